"""What a rendered tree holds is compared with its lock: run by `__main__` where something has changed since that was done last.

It is given `read_plain_file` and `file_status_bytes` of `__main__`, and imports nothing of the launcher: nothing else is checked yet.
"""

# mypy: ignore-errors

import marshal
import posix
import sys

TREE = ".wavegen"
ALWAYS = (
    *("errors", "rules", "arguments", "symlinks", "host", "places", "git_config", "git_files", "git", "mounts", "bwrap", "environment", "supervise"),
    *("bwrap_start", "start"),
)
"""The modules of every start, each behind those that it imports. Others are imported when they are needed, from memory."""
_MOST = 100_000


def refuse_tree(what, remedy):
    """End: nothing was run."""
    sys.stderr.write("wavegen: error: " + "".join(c if c.isprintable() else "?" for c in what) + " (" + remedy + ")\n")
    sys.exit(125)


def list_tree_entries(directory):
    """Every file below a directory, and every directory; what is neither counts as a file."""
    files, directories = [], [directory]
    for place in directories:
        for entry in posix.scandir(place):
            (directories if entry.is_dir(follow_symlinks=False) else files).append(place + "/" + entry.name)
            if len(files) + len(directories) > _MOST:
                refuse_tree(place + " holds too many files", "remove what does not belong there, or run wavegen render")
    return files, directories


def check_rendered_tree(tree, own, cache):
    """The modules, compiled, from files that the lock lists with these digests: those of every start, and the others as `_Checked` reads them."""
    from hashlib import sha256
    from json import loads

    if cache:
        try:
            # Made first: it changes the status of the directory that it lies in.
            posix.mkdir(own + "/__pycache__", 0o755)
        except OSError:
            pass
    try:
        statuses = {tree + "/lock.json": file_status_bytes(tree + "/lock.json")}  # noqa: F821  given by __main__
        listed = loads(read_plain_file(tree + "/lock.json"))["outputs"]  # noqa: F821
        files, directories = list_tree_entries(tree)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        refuse_tree(tree + "/lock.json cannot be read", "run wavegen render")
    codes = {}
    for path in files:
        name = TREE + path[len(tree) :]
        if path == tree + "/lock.json" or path.startswith(own + "/__pycache__/"):
            continue
        if name not in listed:
            refuse_tree(name + " is not of wavegen: the lock does not list it", "look at it, then remove it")
        if not path.startswith((own + "/", tree + "/rules/", tree + "/seccomp/", tree + "/bin/")):
            continue
        statuses[path] = file_status_bytes(path)  # noqa: F821
        try:
            text = read_plain_file(path)  # noqa: F821
        except OSError:
            text = b""
        if not statuses[path] or listed[name] != "sha256:" + sha256(text).hexdigest():
            refuse_tree(name + " is not what was rendered", "look at what changed, then run wavegen render")
        if path.endswith(".py") and path.startswith(own + "/"):
            # Without docstrings: each start reads it all.
            codes[path[len(own) + 1 : -3].replace("/", ".")] = compile(text, name, "exec", dont_inherit=True, optimize=2)
    for name in listed:
        if name.startswith((TREE + "/launcher/", TREE + "/rules/")) and tree + name[len(TREE) :] not in statuses:
            refuse_tree(name + " is missing", "run wavegen render")
    statuses.update((path, file_status_bytes(path)) for path in directories if path != own + "/__pycache__")  # noqa: F821
    always = tuple((name, codes[name]) for name in ALWAYS)
    others = marshal.dumps({name: marshal.dumps(code) for name, code in codes.items() if name not in ALWAYS})
    text = marshal.dumps(always)
    known = write_module_cache(own, cache, statuses, len(text).to_bytes(4, "little") + text + others) if cache else b""
    if known:
        note_identity(own, cache.rpartition("/")[2], known)
    return always, others, known


def write_module_cache(own, cache, statuses, body):
    """Write down what was checked, and return the file's identity; in a project that cannot be written it is done each time."""
    try:
        directory = posix.open(own + "/__pycache__", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
        name = cache.rpartition("/")[2]
        new = name + "." + str(posix.getpid())
        handle = posix.open(new, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o644, dir_fd=directory)
        with open(handle, "wb") as stream:
            noted = [part for path, value in statuses.items() for part in (path.encode("utf-8", "surrogateescape"), value)]
            stream.write(b"\0".join((b"%d" % sys.hexversion, *noted)) + b"\0\0" + body)
            stream.flush()
            posix.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
            known = file_identity(stream.fileno())  # noqa: F821  given by __main__
        posix.close(directory)
    except OSError:
        return b""
    return known


def note_identity(own, name, known):
    """Note which file that is, where starts keep something already; else the start itself does, once it has made the place."""
    try:
        directory = open_state(own)  # noqa: F821  given by __main__
        handle = posix.open(name, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_NOFOLLOW | posix.O_CLOEXEC, 0o600, dir_fd=directory)
        posix.write(handle, known)
        posix.close(handle)
        posix.close(directory)
    except OSError:
        pass
