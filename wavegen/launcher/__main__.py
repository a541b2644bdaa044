"""Starts a shell: `python3 -I -S -X utf8 .wavegen/launcher/__main__.py SCRIPT [OPTION...] [COMMAND...]`, by the rules named after SCRIPT.

This file and `checked_files.py` alone are run as they are, so this one is short: it is compiled at each start. In a rendered project the
others are loaded only if their digests are those of lock.json, and none that the lock does not list; all are read before anything else is
done, so that no command can exchange one later. What was checked and compiled is kept in __pycache__, with the status of every file that was
looked at, and believed only if it is the very file that a start noted outside of the project. In the Nix store and in the installed package it is a
usual one.
"""

# mypy: ignore-errors
# Without annotations: an older Python must get as far as to say that it is too old.

import sys

if sys.version_info < (3, 9):
    sys.stderr.write("wavegen: error: python3 is older than 3.9 (install a newer one as /usr/bin/python3, or use nix develop)\n")
    sys.exit(125)

import marshal
import posix

_LARGEST = 4 << 20  # bytes of a file that is loaded


def read_plain_file(path):
    """The content of a file that is no link, up to a bound. Raises OSError."""
    handle = posix.open(path, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC)
    try:
        return posix.read(handle, min(posix.fstat(handle).st_size, _LARGEST))
    finally:
        posix.close(handle)


def file_status_bytes(path):
    """What changes when a file or directory does; empty where it is not there, or a link."""
    try:
        found = posix.lstat(path)
    except OSError:
        return b""
    return b"%d %d %d %d" % (found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mode) if found.st_mode & 0o170000 != 0o120000 else b""


def file_identity(handle):
    """What no one can choose of a file: its inode and the time of its last change."""
    found = posix.fstat(handle)
    return b"%d %d\n" % (found.st_ino, found.st_ctime_ns)


def open_state(own):
    """The directory outside of the project in which this user's starts note what they left, where it is there and nobody else's. Raises OSError.

    Where the state is, `places.py` decides, and refuses more; here a start without cache is the answer to all that is not plain.
    """
    project = own.removesuffix("/.wavegen/launcher")
    state = posix.environ.get(b"XDG_STATE_HOME", b"")
    state = state if state.startswith(b"/") else posix.environ.get(b"HOME", b"") + b"/.local/state"
    key = project.replace("%", "%25").replace("/", "%2F").encode("utf-8", "surrogateescape")
    if not state.startswith(b"/"):
        raise OSError
    directory = posix.open(state + b"/wavegen/" + key, posix.O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    found, place = posix.fstat(directory), posix.readlink("/proc/self/fd/" + str(directory))
    if found.st_uid != posix.geteuid() or found.st_mode & 0o022 or (place + "/").startswith(project + "/"):
        posix.close(directory)
        raise OSError
    return directory


def noted_identity(own, name):
    """The identity of the cache as a start left it, noted outside of the project; empty where that is not sure.

    The statuses in a cache do not tell who wrote it: a command inside sees them all, and git lays files of any content anywhere.
    """
    opened = []
    try:
        opened.append(open_state(own))
        opened.append(posix.open(name, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC, dir_fd=opened[0]))
        return posix.read(opened[1], 100) if posix.fstat(opened[1]).st_uid == posix.geteuid() else b""
    except OSError:
        return b""
    finally:
        for handle in opened:
            posix.close(handle)


def load_modules(tree, own):
    """The modules that are always needed, in their order, the others by name, and the cache's identity: from it where nothing has changed since."""
    name = "launcher-" + sys.implementation.cache_tag
    cache = own + "/__pycache__/" + name
    if any(name.startswith("landlock-") for name in posix.listdir(tree + "/bin")):
        cache = ""  # commands of these shells may write there
    try:
        # A pull request may bring such a file, and marshal must not read what others wrote.
        handle = posix.open(cache, posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_NONBLOCK | posix.O_CLOEXEC)
        try:
            known = file_identity(handle)
            text = posix.read(handle, min(posix.fstat(handle).st_size, _LARGEST)) if known == noted_identity(own, name) else b""
        finally:
            posix.close(handle)
        end = text.index(b"\0\0")
        version, *noted = text[:end].split(b"\0")
        if (
            version == b"%d" % sys.hexversion
            and file_status_bytes(own + "/__pycache__")
            and (tree + "/lock.json").encode("utf-8", "surrogateescape") in noted[:1]
        ):
            for number in range(0, len(noted), 2):
                if file_status_bytes(noted[number]) != noted[number + 1] or not noted[number + 1]:
                    break
            else:
                others = end + 6 + int.from_bytes(text[end + 2 : end + 6], "little")
                return marshal.loads(memoryview(text)[end + 6 : others]), memoryview(text)[others:], known  # noqa: S302
    except (OSError, ValueError, EOFError, TypeError, IndexError):
        pass
    slowly = {
        "__name__": "checked_files",
        "read_plain_file": read_plain_file,
        "file_status_bytes": file_status_bytes,
        "file_identity": file_identity,
        "open_state": open_state,
    }
    exec(compile(read_plain_file(own + "/checked_files.py"), own + "/checked_files.py", "exec"), slowly)  # noqa: S102
    return slowly["check_rendered_tree"](tree, own, cache)


class _Checked:
    """Finds and loads what was checked, by name, and nothing else. It was read at the start, and is understood when it is first needed."""

    def __init__(self, text):
        self.text, self.modules = text, {}

    def find_spec(self, name, path=None, target=None):
        if not name.startswith("launcher."):
            return None
        self.modules = self.modules or marshal.loads(self.text)  # noqa: S302
        short = name[9:]
        packaged = short + ".__init__"
        found = packaged if packaged in self.modules else short
        return type(sys.__spec__)(name, self, origin=found, is_package=found is packaged) if found in self.modules else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(marshal.loads(self.modules[module.__spec__.origin]), module.__dict__)  # noqa: S102, S302


def run_launcher():
    """Find the launcher's modules and start."""
    sys.dont_write_bytecode = True
    handle = posix.open(__file__.rpartition("/")[0] or ".", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    own = posix.readlink("/proc/self/fd/" + str(handle))  # without links
    posix.close(handle)
    package = sys.modules["launcher"] = type(sys)("launcher")
    package.__path__ = [own]
    if own.endswith("/.wavegen/launcher") and not own.startswith(("/nix/store/", "/gnu/store/")):
        always, others, package.cache = load_modules(own.rpartition("/")[0], own)
        sys.meta_path.insert(0, _Checked(others))
        package.__path__ = []
        for name, code in always:
            module = sys.modules["launcher." + name] = type(sys)("launcher." + name)
            module.__package__ = "launcher"
            exec(code, module.__dict__)  # noqa: S102
    from launcher.start import main

    main(sys.argv[1:], own)


if __name__ == "__main__":
    try:
        run_launcher()
    except MemoryError:
        posix.write(2, b"wavegen: error: there is too little memory to start (raise ulimit -d and ulimit -v)\n")
        posix._exit(125)  # noqa: SLF001
