"""From a script's name to a running shell: arguments, rules, places, mounts, bwrap. `main` is what every stub starts.

Longer than 400 lines: every start goes through it, and each further file is one more to be found and read.
"""

from __future__ import annotations

import posix
import sys
import time

from .arguments import Arguments, agent_start, agent_words
from .bwrap import mount_words, option_words
from .bwrap_start import BwrapStart
from .environment import read_environment, unsandboxed_environment
from .errors import CANNOT_START, OUT_OF_DESCRIPTORS, CannotStartError, escape_unprintable
from .host import RealHost
from .mounts import BIND, RO_BIND, SCRATCH, Mount, resolve_mounts
from .places import Places, find_program
from .rules import Rules, read_rules
from .supervise import Signals, audit_afterwards, print_note

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_RED, _PLAIN = "\033[1;31m", "\033[0m"
_LARGEST = 1 << 20


def main(words: list[str], own: str) -> NoReturn:
    """Start the shell that the first word names: a script of .wavegen/bin, or `@N`, a descriptor with its rules. `own`: the launcher's directory."""
    status = CANNOT_START
    try:
        status = _start_shell(words, own)
    except CannotStartError as failed:
        # Said of the file that was the first one too many.
        print_note(f"error: {_too_many_files(failed) or failed}")
        status = failed.status
    except MemoryError:
        print_note("error: there is too little memory to start (raise ulimit -d and ulimit -v)")
    except OSError as failed:
        what = f"{failed.filename or 'the sandbox'}: {failed.strerror} (raise the limits of processes and of file sizes: ulimit -u, ulimit -f)"
        print_note(f"error: {_too_many_files(failed) or what}")
    sys.stdout.flush()
    sys.stderr.flush()
    posix._exit(status)  # noqa: SLF001


def _too_many_files(failed: BaseException | None) -> str:
    """What to say where an error comes from a limit on open files; empty where it does not."""
    while failed:
        if isinstance(failed, OSError) and failed.errno in OUT_OF_DESCRIPTORS:
            return f"{failed.strerror} (raise the limit of open files: ulimit -n 1024)"
        failed = failed.__cause__ or failed.__context__
    return ""


def _start_shell(words: list[str], own: str) -> int:
    _open_descriptors()
    caller = read_environment()
    rules, script = _rules_of(words[0], own)
    arguments = Arguments(rules, words[1:])
    if not rules.setting_value("unsandboxed"):
        seccomp = rules.setting_value("seccomp")
        _close_descriptors((arguments.report, int(seccomp[1:]) if seccomp.startswith("@") else -1))
    session = Session(rules, arguments, caller, own, script)
    if rules.setting_value("unsandboxed"):
        return session.run_unsandboxed(rules.setting_value("unsandboxed"))
    session.find_places()
    backend = arguments.backend or _backend_of(script)
    if backend == "docker":
        try:
            from .container import run_container
        except ImportError:
            raise CannotStartError("this project was rendered without containers", "write outputs: [flake, docker] and render, or use wavegen run") from None
        return int(run_container(session))
    if backend == "landlock":
        try:
            from .landlock import run_landlock
        except ImportError:
            raise CannotStartError("this project was rendered without Landlock's scripts", "write backend: landlock and render, or use wavegen run") from None
        return run_landlock(session)
    return session.run_bwrap()


def _backend_of(script: str) -> str:
    """What a script starts its shell with, by where it lies and what it is called."""
    directory, _, name = script.rpartition("/")
    return "docker" if directory.endswith("/docker") else "landlock" if name.startswith("landlock-") else "bubblewrap"


def _rules_of(script: str, own: str) -> tuple[Rules, str]:
    """The rules that a script is named after, and the script."""
    if script.startswith("@"):
        own_rules, _, groups = _text_of(int(script[1:])).partition("\ngroup\t")
        return read_rules(own_rules, lambda: f"group\t{groups}", "the rules of wavegen run"), ""
    directory = f"{own.rpartition('/')[0]}/rules"

    def read_rules_file(name: str) -> str:
        try:
            return _text_of(posix.open(f"{directory}/{name}", posix.O_RDONLY | posix.O_NOFOLLOW | posix.O_CLOEXEC))
        except OSError as failed:
            raise CannotStartError(f"{directory}/{name}: {failed.strerror}", "run wavegen render") from None

    name = script.rpartition("/")[2]
    name = name[4:] if _backend_of(script) == "docker" else name[9:] if _backend_of(script) == "landlock" else name
    return read_rules(read_rules_file(name), lambda: read_rules_file("base"), f".wavegen/rules/{name}"), script


def _text_of(handle: int) -> str:
    with open(handle, encoding="utf-8", errors="surrogateescape", newline="") as stream:
        return stream.read(_LARGEST)


def _open_descriptors() -> None:
    """0, 1 and 2 are there. None is a directory, from which all of the host could be reached: Python would not have started."""
    for handle in (0, 1, 2):
        try:
            posix.fstat(handle)
        except OSError:
            posix.dup2(posix.open("/dev/null", posix.O_RDWR), handle)


def _close_descriptors(kept: tuple[int, ...]) -> None:
    """All that the caller left open but these."""
    for name in posix.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                posix.close(int(name))
            except OSError:
                pass  # the listing's own


class Session:
    """One start: what is asked for, where everything is, and how it runs."""

    def __init__(self, rules: Rules, arguments: Arguments, caller: dict[str, str], own: str, script: str) -> None:
        self.rules, self.arguments, self.caller, self.own, self.script = rules, arguments, caller, own, script
        self.host = RealHost()
        self.places: Places
        self.signals: Signals

    def find_line(self, origin: str, entry: str) -> str:
        """Where in the manifest an entry stands."""
        from .manifest_lines import find_line  # for messages alone

        # A host that is denied on every port need not be written with one.
        return find_line(self.host, self.places.project, origin, entry, entry.removesuffix(":*"))

    # --- where everything is

    def find_places(self) -> None:
        """Raises CannotStartError."""
        try:
            start = posix.getcwd()
        except OSError:
            raise CannotStartError("the working directory is gone", "change to one that exists") from None
        project = self.arguments.project or self._project_above(start)
        project = project if project.startswith("/") else f"{start}/{project}"
        self.places = Places(self.host, self.rules, self.caller, start=start, project=project, launcher=self.own)

    def _project_above(self, start: str) -> str:
        tree = self.own.rpartition("/")[0]
        if tree.endswith("/.wavegen") and not tree.startswith(("/nix/store/", "/gnu/store/")):
            return tree.rpartition("/")[0]
        # Started from the Nix store: the project is the highest directory above with the same plan, and the same rules for this
        # shell. A command may have put a copy of it into a directory below.
        names, found, other = ("plan.json", f"rules/{self.rules.setting_value('shell')}"), "", ""
        plan, place = [_read_or_empty(f"{tree}/{name}") for name in names], start
        while True:
            there = [_read_or_empty(f"{place.rstrip('/')}/.wavegen/{name}") for name in names]
            if there[0] and there == plan:
                found = place
            elif there[0]:
                other = place
            if place == "/":
                break
            place = place.rpartition("/")[0] or "/"
        if found:
            return found
        if other:
            raise CannotStartError(
                f"this shell was not rendered from the manifest of {other}",
                "use the flake of that project, render it again, or name the directory with --project DIR",
            )
        raise CannotStartError(f"no rendered project at or above {start}", "change into the project, or name it with --project DIR")

    def locate_program(self, name: str) -> str:
        """A program that no command of this project could have put there; empty where there is none."""
        tools = self.arguments.tools
        return find_program(self.host, name, f"{tools}:{self.caller.get('PATH', '')}" if tools else self.caller.get("PATH", ""), self.places.written)

    def prepare_state(self) -> None:
        """Make the directory that keeps this shell's state."""
        places = self.places
        try:
            self.host.make_directories(places.own)
            self._note_identity()
            if self.rules.setting_value("home") == "private":
                home = f"{places.private}/home"
                try:
                    self.host.lstat(home)
                except FileNotFoundError:
                    self.host.make_directories(home)
                    # Without settings zsh asks a newcomer what they are to be.
                    posix.close(posix.open(f"{home}/.zshrc", posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600))
            self._say_notice()
            self._note_cache()
        except OSError as failed:
            raise CannotStartError(
                f"{failed.filename or places.own} cannot be created: {failed.strerror}", "make room there, see ulimit -f, or set XDG_STATE_HOME"
            ) from None

    def mark_entry(self, mounts: Sequence[Mount] = ()) -> str:
        """A file from whose time on changes are this session's, with what was where then; its path. `mounts`: among them those that hold repositories."""
        marker = f"{self.places.kept}/entered-{posix.getpid()}-{time.time_ns() // 1000}"
        try:
            with open(posix.open(marker, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600), "wb") as stream:
                stream.write(self._top_directories() + self._protected_repositories(mounts))
        except OSError as failed:
            raise CannotStartError(f"{marker} cannot be written: {failed.strerror}", "make room there, and see ulimit -f") from None
        return marker

    def _top_directories(self) -> bytes:
        """Inode and name of each directory at the project's top: what is the same afterwards was not moved there."""
        with posix.scandir(self.places.project) as entries:
            found = [f"{entry.inode()} {entry.name}\n" for entry in entries if entry.is_dir(follow_symlinks=False) and "\n" not in entry.name]
        return "".join(found[:2000]).encode("utf-8", "surrogateescape")

    def _protected_repositories(self, mounts: Sequence[Mount]) -> bytes:
        """The same of each repository of the project whose settings are held, and can thus not be moved; with a slash: it is one already."""
        project, found = f"{self.places.project}/", []
        for mount in mounts:
            directory, _, name = mount.target.rpartition("/")
            if name == "config" and mount.kind == RO_BIND and directory.startswith(project) and mount.source == mount.target and "\n" not in directory:
                if not all(posix.access(f"{directory}/{part}", posix.F_OK) for part in ("HEAD", "objects", "refs")):
                    continue  # the manifest may hold any file of that name
                inode, name = self.host.lstat(directory).st_ino, directory[len(project) :]
                found.append(f"{inode} {name}\n{inode} {name}/\n")
        return "".join(found[:2000]).encode("utf-8", "surrogateescape")

    def _note_identity(self) -> None:
        """The state goes by the project's path. Where another directory is there now, what was planted for it is set aside."""
        places = self.places
        identity = f"{posix.statvfs(places.project).f_fsid}:{self.host.lstat(places.project).st_ino}:{_inode_generation(places.project)}\n".encode()
        noted = f"{places.kept}/directory"
        before = _read_or_empty(noted)
        if before and before != identity:
            number = 1
            while posix.access(f"{places.kept}.{number}", posix.F_OK):
                number += 1
            posix.rename(places.kept, f"{places.kept}.{number}")
            print_note(f"note: another directory was at {places.project} before; what was kept for it is now in {places.kept}.{number}")
            self.host.close_kept_directories()
            self.host.make_directories(places.own)
        if before != identity:
            try:
                git = b"%d" % self.host.lstat(f"{places.project}/.git").st_ino
            except OSError:
                git = b""
            for path, text in ((f"{places.kept}/.git", git), (noted, identity)):
                _replace_file(path, text)

    def _note_cache(self) -> None:
        """Which compiled modules this start loaded, or wrote: no other is loaded again, and the audit takes it for a command's."""
        name, identity = f"launcher-{sys.implementation.cache_tag}", getattr(sys.modules["launcher"], "cache", b"")
        if identity and _read_or_empty(f"{self.places.kept}/{name}") != identity:
            _replace_file(f"{self.places.kept}/{name}", identity)

    def _say_notice(self) -> None:
        """What was found after the last session, once."""
        path = f"{self.places.kept}/notice"
        text = _read_or_empty(path)
        if text:
            posix.unlink(path)
            for line in text.decode("utf-8", "replace").splitlines()[:20]:
                print_note(line)

    # --- without a sandbox

    def run_unsandboxed(self, why: str) -> int:
        """Become the command, loudly. Of a persona with the variables that it would have inside."""
        arguments, caller = self.arguments, self.caller
        persona = self.rules.setting_value("persona")
        red, plain = (_RED, _PLAIN) if posix.isatty(2) and not caller.get("NO_COLOR") else ("", "")
        sys.stderr.write(f"{red}wavegen: {self.rules.setting_value('shell')}: NOT SANDBOXED: {escape_unprintable(why)}{plain}\n")
        sys.stderr.flush()
        if persona:
            self.find_places()
        if arguments.starts_agent:
            command = self.agent_command([f"+{path}" for path in self.places.written], sandboxed=False)
        elif arguments.command:
            command = arguments.command
        else:
            # Under Nix, SHELL is a bash without line editing; the one on the PATH has it.
            command = ["bash" if caller.get("IN_NIX_SHELL") or persona else caller.get("SHELL") or "bash"]
        if arguments.wants_print:
            sys.stdout.write("".join(f"{quote_shell_word(word)}\n" for word in command))
            return 0
        environment = unsandboxed_environment(self.rules, caller) if persona else caller
        if persona:
            posix.chdir(self.places.start_directory(in_root=arguments.starts_agent))
        self._send_report_word(b"unfenced\n")
        return _exec_command(command, environment)

    def refuse_or_fall_back(self, what: str, remedy: str, *, hopeless: bool) -> int:
        """The machine cannot hold the sandbox: refuse, or do what `fallback: warn` asks for."""
        if self.rules.setting_value("fallback") != "warn" or self.arguments.wants_print or not hopeless:
            raise CannotStartError(what, remedy)
        print_note(f"error: {what} ({remedy})")
        return self.run_unsandboxed("fallback: warn runs the command without any sandbox")

    def _send_report_word(self, word: bytes) -> None:
        if self.arguments.report < 0:
            return
        try:
            posix.write(self.arguments.report, word)
            posix.close(self.arguments.report)
        except OSError:
            raise CannotStartError("the report cannot be written", "open the descriptor for writing") from None

    # --- bubblewrap

    def run_bwrap(self) -> int:
        """Build the sandbox, run the command in it, and end as it ended."""
        rules, arguments = self.rules, self.arguments
        bwrap = self.locate_program("bwrap")
        if not bwrap:
            return self.refuse_or_fall_back(
                "bwrap is not on the PATH", "install bubblewrap: apt install bubblewrap, dnf install bubblewrap, or use nix develop", hopeless=True
            )
        if arguments.wants_print:
            return self._print_sandbox_words(bwrap, resolve_mounts(rules, self.places, self.host))
        # Made before anybody else makes it: what is not there cannot be hidden.
        self.prepare_state()
        mounts = resolve_mounts(rules, self.places, self.host)
        marker = self.mark_entry(mounts)
        self._look_for_logins()
        self.note_landlock_gaps()
        start = BwrapStart(self, bwrap, mounts)
        status = start.run_sandboxed_command()
        audit_afterwards(self.places.project, self.places.kept, marker, ended=start.is_over)
        self.signals.end_if_interrupted(status)
        return status

    def command_inside(self, mounts: Sequence[Mount]) -> list[str]:
        """What is run inside."""
        if self.arguments.starts_agent:
            # The project is never a place for programs, also where this persona does not write it.
            signs = {self.places.project: "+", **{mount.target: "+" if mount.kind in (BIND, SCRATCH) else "-" for mount in mounts if mount.shows_directory}}
            signs[self.places.project] = "+"
            return self.agent_command([sign + path for path, sign in sorted(signs.items(), key=lambda one: one[0].count("/"))])
        return self.arguments.command or ["bash"]

    def agent_command(self, written: Sequence[str], *, sandboxed: bool = True) -> list[str]:
        """What starts the first of a persona's programs that is there, as text: inside there may be another file at its path. `written`: what
        commands may write, and not, as agent.sh has it.
        """
        text = self.host.read_host_file(f"{self.own}/inside/agent.sh", _LARGEST).decode("utf-8")
        return agent_start(text, written, agent_words(self.rules, self.arguments, sandboxed=sandboxed))

    @property
    def is_interactive(self) -> bool:
        """Whether somebody types."""
        return not self.arguments.command and not self.arguments.starts_agent and posix.isatty(0)

    def _print_sandbox_words(self, bwrap: str, mounts: tuple[Mount, ...]) -> int:
        from .manifest_lines import find_path_line

        for mount in mounts:
            mount.origin = find_path_line(self.host, self.places.project, mount.rule) if mount.rule else mount.origin
        lines = [*option_words(self.rules), *mount_words(mounts, self.rules.setting_value("tmpfs_size"))]
        inside = self.places.start_directory(in_root=self.arguments.starts_agent)
        lines.append((("--chdir", inside), "default: where its caller stands in the project"))
        text = f"{quote_shell_word(bwrap)}\n" + "".join(
            f"{' '.join(map(quote_shell_word, words))}  # {escape_unprintable(origin)}\n" for words, origin in lines
        )
        sys.stdout.write(text + "".join(f"{quote_shell_word(word)}\n" for word in ("--", *self.command_inside(mounts))))
        return 0

    def _look_for_logins(self) -> None:
        for (name,) in self.rules.lists["login"]:
            if name == "GH_TOKEN":
                self._fetch_gh_token()
            elif not self.caller.get(name):
                self.note_once(f"missing-{name}", f"{name} is not set; log in inside, or set it on the host")

    def is_noted(self, key: str) -> bool:
        """Whether something was said before in this project."""
        return posix.access(f"{self.places.kept}/.noted-{key}", posix.F_OK)

    def note_once(self, key: str, text: str) -> None:
        """Say something once in this project. An empty text: it need not be asked again."""
        said = f"{self.places.kept}/.noted-{key}"
        if not self.is_noted(key):
            if text:
                print_note(f"note: {text} (said once)")
            try:
                posix.close(posix.open(said, posix.O_WRONLY | posix.O_CREAT | posix.O_CLOEXEC, 0o600))
            except OSError:
                pass

    def note_landlock_gaps(self) -> None:
        """What of the second layer this kernel cannot enforce, once for each kernel."""
        release = posix.uname().release
        if self.is_noted(f"landlock-{release}"):
            return
        from . import libc
        from .landlock_masks import BESIDE_MOUNTS, SCOPES, missing_rights

        try:
            abi = libc.call_libc("syscall", 444, None, 0, 1)  # landlock_create_ruleset(2), LANDLOCK_CREATE_RULESET_VERSION
        except OSError:
            abi = 0
        missing = missing_rights(abi, SCOPES if self.rules.setting_value("nested") else BESIDE_MOUNTS)
        self.note_once(f"landlock-{release}", f"the second layer (Landlock) is incomplete: {'; '.join(missing)}" if missing else "")

    def _fetch_gh_token(self) -> None:
        caller = self.caller
        config = caller.get("GH_CONFIG_DIR") or f"{caller.get('XDG_CONFIG_HOME') or self.places.home + '/.config'}/gh"
        gh = "" if caller.get("GH_TOKEN") or not posix.access(f"{config}/hosts.yml", posix.R_OK) else self.locate_program("gh")
        if gh:
            import subprocess

            # Not in the project, whose files could tell a version manager what gh is.
            done = subprocess.run([gh, "auth", "token"], cwd="/", env=caller, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if done.returncode == 0 and done.stdout.strip():
                caller["GH_TOKEN"] = done.stdout.decode("utf-8", "surrogateescape").strip()


def _replace_file(path: str, data: bytes) -> None:
    """Write a file anew. In another user's home, as root may have it, a link could lead anywhere: a rename replaces it. Raises OSError."""
    new = f"{path}.{posix.getpid()}"
    with open(posix.open(new, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(data)
    posix.rename(new, path)


def _read_or_empty(path: str) -> bytes:
    try:
        handle = posix.open(path, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC)
        with open(handle, "rb") as stream:
            return stream.read(_LARGEST)
    except OSError:
        return b""


def _inode_generation(directory: str) -> int:
    """What tells two directories apart that had one number after another (FS_IOC_GETVERSION, ioctl_iflags(2)); 0 where the file system has nothing."""
    import fcntl

    handle = posix.open(directory, posix.O_RDONLY | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
    try:
        return int.from_bytes(fcntl.ioctl(handle, 0x80087601, bytes(8))[:4], sys.byteorder)
    except OSError:
        return 0
    finally:
        posix.close(handle)


def _exec_command(command: list[str], environment: dict[str, str]) -> int:
    """Run a command in this process's place, found on its PATH (execvp(3))."""
    import _signal  # type: ignore[import-not-found]
    import errno

    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    name, worst = command[0], errno.ENOENT
    for place in [name] if "/" in name else [f"{directory or '.'}/{name}" for directory in environment.get("PATH", "/usr/bin:/bin").split(":")]:
        try:
            posix.execve(place, command, environment)
        except OSError as failed:
            if failed.errno == errno.ENOEXEC:
                posix.execve("/bin/sh", ["/bin/sh", place, *command[1:]], environment)
            if failed.errno not in (errno.ENOENT, errno.ENOTDIR):
                worst = failed.errno or worst
    print_note(f"{name}: command not found" if worst == errno.ENOENT else f"{name}: {posix.strerror(worst)}")
    return 127 if worst == errno.ENOENT else 126


def quote_shell_word(word: str) -> str:
    """A word as a shell reads it."""
    if word and all((character.isalnum() and character.isascii()) or character in "/._-+=:,@%" for character in word):
        return word
    if word.isprintable():
        return "'" + word.replace("'", "'\\''") + "'"
    # What would move a terminal's cursor, as bash reads it.
    escaped = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b"'\\" else f"\\x{byte:02x}" for byte in word.encode("utf-8", "surrogateescape"))
    return f"$'{''.join(escaped)}'"
