"""A shell fenced by Landlock alone: where everything is, what the command may touch, what it finds in its environment.

Nothing is mounted here, so what is not granted is not there, and of what is granted nothing can be hidden. What follows
is confined_serve.py; the rights themselves are taken by shim.py.

Standard library only; Python 3.10 and newer.

Longer than 400 lines: with what it loads it is what every shell without namespaces starts with, and each further file is one more to be found and read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys

import shim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

CANNOT = 125
PROXIED = ("open", "filtered")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin"
_TOP = ("/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/mnt", "/media", "/nix", "/opt", "/root", "/run", "/sbin")
_NO_PROJECT = (*_TOP, "/srv", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp")
# A terminal of /dev/pts may be any other of the user's, and /dev/shm is shared with all programs of the host: neither is granted.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")
_MEMORY_SHARE = 75
_VALUES = {"--project": "a directory", "--connect-to": "NAME:PORT:ADDRESS:PORT", "--report": "the number of an open descriptor above 2", "--adapter": "a name"}


def cannot(what: str, remedy: str) -> NoReturn:
    """The fence cannot be built; nothing was run."""
    sys.stderr.write(f"wavegen: error: {what} ({remedy})\n")
    sys.stderr.flush()
    os._exit(CANNOT)


class Grant:
    """A path that the manifest names."""

    __slots__ = ("access", "asked", "path", "real")

    def __init__(self, access: str, asked: str, path: str) -> None:
        self.access, self.asked, self.path = access, asked, path
        self.real = ""

    @property
    def writes(self) -> bool:
        """Whether it may be written."""
        return self.access.startswith("write")


class Settings:
    """What the rendered script says, and what its caller does."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.shell = self.script = self.seccomp = ""
        self.fallback, self.network, self.home, self.project_access = "error", "none", "private", "write"
        self.passed: list[str] = []
        self.fixed: dict[str, str] = {}
        self.reads: list[str] = []
        self.grants: list[Grant] = []
        self.hidden: list[tuple[str, str]] = []
        self.limits: list[str] = []
        self.memory = ""
        self.rules: list[str] = []
        self.banner: list[str] = []
        self.project = ""
        self.show = self.instead = False
        self.report = -1
        self.agents: list[list[str]] = []
        self.adapter = ""
        rest = list(arguments)
        while rest and rest[0] != "--":
            self._take(rest)
        self._asked(rest[1:])

    def _take(self, rest: list[str]) -> None:
        option, value = rest.pop(0), rest.pop(0) if len(rest) > 1 else ""
        lists = {"--pass": self.passed, "--read": self.reads, "--limit": self.limits, "--banner": self.banner}
        if option in ("--shell", "--script", "--seccomp", "--fallback", "--network", "--home", "--project-access", "--memory"):
            setattr(self, option[2:].replace("-", "_"), value)
        elif option in lists:
            lists[option].append(value)
        elif option == "--agent":
            self.agents.append([value, *(rest.pop(0) for _ in range(int(rest[0]) + 2))])
        elif option == "--set":
            name, _, text = value.partition("=")
            self.fixed[name] = text
        elif option == "--grant":
            self.grants.append(Grant(value, rest.pop(0), rest.pop(0)))
        elif option == "--hide":
            self.hidden.append((value, rest.pop(0)))
        elif option in ("--allow", "--deny"):
            self.rules += [option, value, rest.pop(0), rest.pop(0)]
        elif option == "--loopback":
            self.rules += [option, value, rest.pop(0)]
        elif option in ("--open", "--upstream"):
            self.rules.append(option)
            rest.insert(0, value)
        else:
            cannot(f"confine.py does not know {option}", "run wavegen render")

    def _asked(self, rest: list[str]) -> None:
        # Of agents --print is an option, too.
        shown = ("--print-fence",) if self.agents else ("--print", "--print-fence")
        last = "[--adapter NAME] [--] [WORD-FOR-THE-AGENT...] | --exec COMMAND..." if self.agents else "[--] [COMMAND [ARGUMENT...]]"
        usage = f"usage: landlock-{self.shell} [--project DIR] [{shown[0]}] [--report FD] [--connect-to NAME:PORT:ADDRESS:PORT] {last}"
        while rest and rest[0].startswith("-"):
            option, equals, value = rest[0].partition("=")
            if rest[0] == "--":
                rest.pop(0)
                break
            if rest[0] in (*shown, "--exec"):
                rest.pop(0)
                self.show |= option in shown
                self.instead |= option == "--exec"
            elif option in _VALUES and (self.agents or option != "--adapter"):
                rest.pop(0)
                value = value if equals else rest.pop(0) if rest else ""
                if not value:
                    cannot(f"{option} needs {_VALUES[option]}", usage)
                self._value(option, value, usage)
            elif self.agents and not self.instead:
                break
            else:
                cannot(f"{rest[0]} is unknown", usage)
        self.command = rest if not self.agents or self.instead else self._agent(rest)
        self.seccomp = os.path.abspath(self.seccomp) if self.seccomp else ""

    def _value(self, option: str, value: str, usage: str) -> None:
        if option == "--project":
            self.project = value
        elif option == "--adapter":
            self.adapter = value
        elif option == "--report":
            self.report = self._descriptor(value, usage)
        else:
            self.rules += [option, value]

    @staticmethod
    def _descriptor(text: str, usage: str) -> int:
        """Where it is told that the command was started, by a word and a line's end."""
        if not (text.isascii() and text.isdigit() and 2 < int(text) < 10_000_000 and os.path.exists(f"/proc/self/fd/{int(text)}")):
            cannot("--report needs the number of an open descriptor above 2", usage)
        return int(text)

    def _agent(self, rest: list[str]) -> list[str]:
        """Of a persona: the first of its programs that is there, with its caller's words behind its own."""
        words = [word for name, *words in self.agents if self.adapter in ("", name) for word in words]
        if not words:
            cannot(f"there is no adapter {self.adapter}", f"adapters: {', '.join(name for name, *_ in self.agents)}")
        # Landlock does not answer access(2): what can be written cannot be told from what cannot.
        return ["/bin/sh", ".wavegen/runtime/agent.sh", "bare", *words, "0", *rest]

    @property
    def proxied(self) -> bool:
        """Whether connections are judged by name."""
        return self.network in PROXIED


# --- where everything is


def within(path: str, place: str) -> bool:
    """Whether a path is a place, or lies below it."""
    return path == place or path.startswith(place.rstrip("/") + "/")


class Places:
    """Directories without links on the way."""

    __slots__ = ("home", "inside", "kept", "key", "private", "project", "start", "state", "temporary")

    def __init__(self, settings: Settings) -> None:
        try:
            self.start = os.getcwd()
        except OSError:
            cannot("the working directory is gone", "change to one that exists")
        self.project = self._project(settings)
        self.home = self._home()
        if self.project in _NO_PROJECT or any(within(self.project, place) for place in ("/proc", "/sys", "/dev", "/nix/store")):
            cannot(f"the project is {self.project}, a directory of the system", "move it into a directory of its own")
        if within(self.home, self.project):
            cannot(f"the project {self.project} is, or holds, the home directory {self.home}", "move it into a directory of its own")
        state = os.environ.get("XDG_STATE_HOME", "")
        state = os.path.realpath(state if state.startswith("/") else f"{self.home}/.local/state")
        key = self.project.replace("%", "%25").replace("/", "%2F")
        if len(os.fsencode(key)) >= 250:
            cannot(f"the project's path is too long to keep a home for it: {self.project}", "move it to a shorter path")
        self.kept = f"{state}/wavegen"
        self.key = f"{self.kept}/{key}"
        self.state = f"{self.key}/{settings.shell}"
        if within(state, self.project):
            cannot(f"XDG_STATE_HOME={state} lies in the project", "set it to a directory outside")
        if within(self.project, self.kept):
            cannot(f"the project {self.project} lies among what wavegen keeps", "move it into a directory of its own")
        # Beside the one of bwrap, which has no use for the links that lead out of this one.
        self.temporary = f"{self.state}/landlock/tmp-{os.getpid()}"
        self.private = f"{self.state}/landlock/home" if settings.home == "private" else f"{self.temporary}/home"
        # An agent's settings name paths from the project's root.
        agent = bool(settings.agents) and not settings.instead
        self.inside = self.start if within(self.start, self.project) and not agent else self.project

    def _project(self, settings: Settings) -> str:
        asked = settings.project
        if asked:
            if not os.path.isdir(asked):
                cannot(f"{asked} is not a directory", "name the project with --project DIR")
            return os.path.realpath(asked)
        above = os.path.realpath(os.path.join(os.path.dirname(settings.script), "../.."))
        if not os.path.isfile(f"{above}/.wavegen/plan.json"):
            cannot(f"no rendered project at {above}", "start the shell from .wavegen/bin, or name the project with --project DIR")
        return above

    def _home(self) -> str:
        home = os.environ.get("HOME", "")
        if not home:
            cannot("HOME is not set", "set it to your home directory")
        if not home.startswith("/") or not os.path.isdir(home):
            cannot(f"HOME={home} is not a directory", "set HOME to your home directory")
        home = os.path.realpath(home)
        if home == "/":
            cannot("HOME is /", "set HOME to a directory of your own")
        return home

    def path(self, text: str) -> str:
        """A path as the plan writes it: /x, ~/x, ./x."""
        for mark, place in (("~", self.home), (".", self.project)):
            if text == mark or text.startswith(f"{mark}/"):
                return place + text[len(mark) :]
        return text

    def make(self) -> None:
        """The private home, and an empty directory for what is temporary. Those of shells that were killed go."""
        folder = os.path.dirname(self.temporary)
        try:
            os.makedirs(folder, mode=0o700, exist_ok=True)
            for name in os.listdir(folder):
                number = name.removeprefix("tmp-")
                if name != number and number.isdigit() and (int(number) == os.getpid() or not os.path.exists(f"/proc/{number}")):
                    discard(f"{folder}/{name}")
            for made in (self.temporary, self.private):
                os.makedirs(made, mode=0o700, exist_ok=True)
        except OSError as failed:
            cannot(f"{failed.filename} cannot be created: {failed.strerror}", "make room there")


def discard(path: str) -> None:
    """Remove a directory and all in it, as far as that can be done; links are not followed."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)


# --- what the command may touch


def resolve(path: str, asked: str, written: Sequence[str]) -> str:
    """Where a path leads, empty where it leads nowhere. A link on the way that a command could have made is refused."""
    rest, current, hops = [part for part in path.split("/") if part], "", 0
    while rest:
        part = rest.pop(0)
        if part == "..":
            current = current.rpartition("/")[0]
            continue
        try:
            mode = os.lstat(f"{current}/{part}").st_mode
        except OSError:
            return ""
        if not stat.S_ISLNK(mode):
            current = f"{current}/{part}"
            continue
        if any(within(current or "/", place) for place in written):
            cannot(f"{current}/{part} is a link that a command could have made, or could remove", f"{asked} asks for it; name the place it leads to")
        hops += 1
        if hops > 40:
            return ""
        link = os.readlink(f"{current}/{part}")
        current = "" if link.startswith("/") else current
        rest[:0] = [part for part in link.split("/") if part not in ("", ".")]
    return current or "/"


def grant(settings: Settings, places: Places) -> None:
    """Look where the paths of the manifest lead, and refuse what Landlock cannot hold."""
    written = [places.project, places.kept]
    for one in settings.grants:
        if one.writes:
            path = places.path(one.path)
            written += [path, os.path.realpath(path)]
    for one in settings.grants:
        path = places.path(one.path)
        one.real = resolve(path, one.asked, written if one.path.startswith("/") else [*written, places.private])
        if not one.real:
            if "+optional" not in one.access:
                cannot(f"{path} does not exist", f"{one.asked} asks for it; create it, or write optional: true")
            continue
        _fit(one, path, places)
    _apart(settings, places)


def _apart(settings: Settings, places: Places) -> None:
    """Nothing that is to stay outside lies in what is granted."""
    readable = [os.path.realpath(path) for path in settings.reads if os.path.lexists(path)]
    shown = [*readable, *(one.real for one in settings.grants if one.real), places.project]
    for place in shown:
        if within(places.home, place):
            cannot(f"the home directory {places.home} lies in {place}, which can be read inside", "set HOME to a directory of your own")
        if within(places.kept, place):
            cannot(f"what wavegen keeps in {places.kept} lies in {place}, which can be read inside", "set XDG_STATE_HOME to a directory outside")
    for asked, text in settings.hidden:
        hidden = os.path.realpath(places.path(text))
        for place in shown:
            if within(hidden, place):
                cannot(f"Landlock cannot hide {hidden} in {place}, which is granted", f"{asked} asks for it; grant what is needed beside it, or use bubblewrap")


def _fit(one: Grant, path: str, places: Places) -> None:
    real = one.real
    if within(places.home, real) or within(places.kept, real):
        cannot(f"{path} leads to {real}, which holds the home directory or what wavegen keeps", f"{one.asked} asks for it; name what is needed below it")
    if within(real, places.kept):
        cannot(f"{path} leads to {real}, which is wavegen's own", f"{one.asked} asks for it; remove the entry")
    if within(places.project, real) and real != places.project:
        cannot(f"{path} leads to {real}, which holds the project", f"{one.asked} asks for it; name what is needed below it")
    if within(real, places.project) and one.access.startswith("read"):
        cannot(f"Landlock cannot keep {real} from being written, as the project is", f"{one.asked} asks for it; remove the entry, or use bubblewrap")
    if one.path.startswith("~/") and not within(real, places.home) and not within(real, "/nix/store") and not within(real, "/gnu/store"):
        cannot(f"{path} leads to {real}, outside {places.home}", f"{one.asked} asks for it; name the place it leads to instead")
    if one.path.startswith("./") and not within(real, places.project):
        cannot(f"{path} leads to {real}, outside {places.project}", f"{one.asked} asks for it; name the place it leads to instead")
    if stat.S_ISSOCK(os.stat(real).st_mode) and "+socket" not in one.access:
        cannot(f"{real} is a socket: whoever answers there acts outside the fence", f"{one.asked} asks for it; remove it, or write socket: true")


def link(settings: Settings, places: Places) -> None:
    """What is granted below the home directory is found in the private one by links; what stands there already stays."""
    for one in settings.grants:
        if one.real and one.path.startswith("~/"):
            *above, last = one.path[2:].split("/")
            handle = os.open(places.private, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                for part in above:
                    # No link may lead this process anywhere: the home is the command's.
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(part, 0o700, dir_fd=handle)
                    below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=handle)
                    os.close(handle)
                    handle = below
                with contextlib.suppress(FileExistsError):
                    os.symlink(places.path(one.path), last, dir_fd=handle)
            except OSError as failed:
                cannot(
                    f"~/{'/'.join(above)} of the private home is no directory: {failed.strerror}", f"{one.asked} asks for it; remove it from {places.private}"
                )
            finally:
                os.close(handle)


def words(settings: Settings, places: Places, ports: Sequence[int]) -> list[str]:
    """The options of the shim."""
    found = ["--landlock", "core", "--read-try", "/proc"]
    for path in settings.reads:
        found += ["--read-try", path]
    for path in (*_DEVICES, *_terminals()):
        found += ["--write-try", path]
    for one in settings.grants:
        if one.real:
            found += ["--write" if one.writes else "--read", one.real]
    found += ["--write" if settings.project_access == "write" else "--read", places.project]
    found += ["--write", places.private, "--write", places.temporary]
    found += ["--scope", "abstract", "--scope", "signal"]
    if settings.network != "host":
        found.append("--tcp")
        for port in ports:
            found += ["--connect", str(port)]
    for limit in (*settings.limits, f"data={settings.memory or _memory()}"):
        found += ["--limit", limit]
    if os.geteuid() == 0:
        found.append("--drop-capabilities")
    if settings.seccomp:
        found += ["--seccomp", settings.seccomp]
    return [*found, "--no-new-privs", "--close"]


def _terminals() -> list[str]:
    """The terminals at hand, to be opened by their names, too."""
    found = []
    for handle in (0, 1, 2):
        try:
            found.append(os.ttyname(handle))
        except OSError:
            continue
    return sorted(set(found))


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _MEMORY_SHARE // 100


# --- the environment


def environment(settings: Settings, places: Places, ports: Sequence[int]) -> dict[bytes, bytes]:
    """All that the command finds there."""
    # As it was when this process began: Python adds LC_CTYPE.
    with open("/proc/self/environ", "rb") as stream:
        given = dict(entry.partition(b"=")[::2] for entry in stream.read().split(b"\0") if b"=" in entry)
    # What cannot be read would hide that a command is not there.
    readable = [os.path.realpath(place) for place in (*settings.reads, places.project, *(one.real for one in settings.grants if one.real))]
    listed = [part for part in os.environ.get("wg_path", SYSTEM_PATH).split(":") if part.startswith("/")]  # noqa: SIM112  as the wrapper names it
    path = [part for part in listed if any(within(os.path.realpath(part), place) for place in readable)]
    found = {os.fsencode(name): given[os.fsencode(name)] for name in settings.passed if os.fsencode(name) in given}
    fixed = dict(settings.fixed)
    for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR"):
        fixed[name] = places.temporary
    if ports:
        web, socks = ports
        # Everything goes through the proxies: nothing else answers, on the loopback neither.
        fixed = {
            name: value.replace("127.0.0.1:3128", f"127.0.0.1:{web}").replace("127.0.0.1:1080", f"127.0.0.1:{socks}")
            for name, value in fixed.items()
            if name.upper() != "NO_PROXY"
        }
        fixed["CLOUDSDK_PROXY_PORT"] = str(web)
        java = f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={web} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={web}"
        fixed["JAVA_TOOL_OPTIONS"] = java
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    fixed |= {"HOME": places.private, "PATH": ":".join(path) or "/usr/local/bin:/usr/bin:/bin", "SHELL": shell, "PWD": places.inside}
    if not settings.command and os.isatty(0):
        fixed |= {"PS1": f"({settings.shell}) \\w\\$ ", "debian_chroot": settings.shell}
    return found | {os.fsencode(name): os.fsencode(value) for name, value in fixed.items()}


# --- may it start


def able(settings: Settings) -> list[str]:
    """What this kernel does not hold, and need not. Ends where it holds too little."""
    abi, _ = shim._kernel(shim._function("syscall"))  # noqa: SLF001
    machine = os.uname().machine
    missing = shim.missing_core(abi, tcp=settings.network != "host")
    if not abi:
        _without(settings, "this kernel has no Landlock, or it is not switched on", "boot with lsm=landlock,... on Linux 6.7 or newer, or use bubblewrap")
    if missing:
        _without(settings, f"this kernel's Landlock (ABI {abi}) does not hold {', '.join(missing)}", "take Linux 6.7 or newer, or use bubblewrap")
    if machine not in ("x86_64", "aarch64") and (settings.seccomp or settings.network != "host"):
        _without(settings, f"there is no system call filter for {machine}", "use x86_64 or aarch64")
    late = (
        ("ioctl_dev", "device controls (ioctl)"),
        ("abstract", "abstract sockets"),
        ("signal", "signals to other programs"),
        ("resolve_unix", "named sockets"),
    )
    return [f"{what} since ABI {shim.RIGHTS[name][2]}, this kernel has {abi}" for name, what in late if shim.RIGHTS[name][2] > abi]


def _without(settings: Settings, what: str, remedy: str) -> None:
    """Refuse, or do what `fallback: warn` asks for."""
    if settings.fallback != "warn" or settings.show:
        cannot(what, remedy)
    sys.stderr.write(f"wavegen: error: {what} ({remedy})\n")
    sys.stderr.write("\033[1;31mwavegen: NOT SANDBOXED: fallback: warn runs the command without any fence\033[0m\n")
    sys.stderr.flush()
    os.environ["PATH"] = os.environ.pop("wg_path", SYSTEM_PATH)
    command = settings.command or ["bash"]
    if settings.report >= 0:
        try:
            os.write(settings.report, b"unfenced\n")
            os.close(settings.report)
        except OSError as failed:
            cannot(f"the report cannot be written: {failed.strerror}", "open the descriptor for writing")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them
    try:
        os.execvp(command[0], command)
    except OSError as failed:
        missing = isinstance(failed, FileNotFoundError)
        sys.stderr.write(f"wavegen: {command[0]}: {failed.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if missing else 126)


def as_rendered(places: Places) -> None:
    """Refuse what was changed since the host rendered it: nothing keeps a command from writing it.

    The list of it lies in the project, too; render left that one's digest where no command writes.
    """
    import json

    import audit_command

    lock = os.path.join(places.project, audit_command.LOCK)
    remedy = "a command may have changed it: look at it, then run wavegen render"
    try:
        with open(f"{places.key}/{audit_command.RENDERED}", encoding="ascii") as stream:
            if stream.read(200) != audit_command._digest(places.project, audit_command.LOCK):  # noqa: SLF001
                cannot(f"{lock} is not what was rendered here", remedy)
    except OSError:
        pass  # no shell was started here yet
    try:
        with open(lock, encoding="utf-8") as stream:
            known = json.load(stream)
        listed = {**known["inputs"], **{path: digest for path, digest in known["outputs"].items() if path.startswith(".wavegen/")}}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        cannot(f"{lock} cannot be read", "run wavegen render")
    for path, digest in sorted(listed.items()):
        if audit_command._digest(places.project, path) != digest:  # noqa: SLF001
            cannot(f"{places.project}/{path} is not what was rendered last", remedy)


def _remember(places: Places) -> None:
    """What was there when the first shell started: from now on it counts as what was rendered."""
    import audit_command

    try:
        handle = os.open(f"{places.key}/{audit_command.RENDERED}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    with open(handle, "w", encoding="ascii") as stream:
        stream.write(audit_command._digest(places.project, audit_command.LOCK))  # noqa: SLF001


def main(arguments: Sequence[str]) -> NoReturn:
    """Build the fence and run the command in it."""
    os.umask(umask := os.umask(0o077))
    for handle, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            # All of the host can be reached from an open directory.
            if stat.S_ISDIR(os.fstat(handle).st_mode):
                cannot("input or output is a directory", "redirect it to a file, or not at all")
        except OSError:
            os.open("/dev/null", mode)  # the lowest number that is free
    settings = Settings(arguments)
    late = able(settings)
    places = Places(settings)
    as_rendered(places)
    grant(settings, places)
    import confined_serve

    if settings.show:
        confined_serve.show(settings, places)
    os.umask(0o077)
    places.make()
    _remember(places)
    link(settings, places)
    os.umask(umask)
    _say_once(places, late)
    confined_serve.run(settings, places)


def _say_once(places: Places, late: Sequence[str]) -> None:
    said = f"{places.state}/landlock/said-{os.uname().release}"
    if not late or os.path.lexists(said):
        return
    for line in late:
        sys.stderr.write(f"wavegen: note: not held: {line} (said once)\n")
    sys.stderr.flush()
    try:
        os.close(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError:
        return
