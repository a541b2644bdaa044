"""Where the project, the home and wavegen's own state are, and which projects are refused. Also: which programs may be started."""

from __future__ import annotations

import errno
import posix
from _stat import S_ISDIR, S_ISREG

from .errors import OUT_OF_DESCRIPTORS, CannotStartError
from .symlinks import is_within, is_within_any, resolve_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .host import Host
    from .rules import Rules

SYSTEM_DIRECTORIES = (
    *("/", "/bin", "/boot", "/dev", "/dev/shm", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media", "/mnt", "/nix", "/opt", "/proc"),
    *("/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/tmp"),
)
"""No project: each holds what is not the user's alone."""
_NO_PROJECT_BELOW = ("/proc", "/sys", "/nix/store", "/gnu/store")
_PARTS_OF_THE_SYSTEM = ("/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/gnu", "/opt", "/sbin", "/usr")
"""Top-level directories that stay shown although a project or a home lies in them."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin"
_LONGEST_NAME = 250


class Places:
    """Absolute directories without links on the way.

    start: where the caller stands; project; home; state: what wavegen keeps for all projects; kept: for this one; own: for this shell of it;
    private: where the private home lies; launcher: what the launcher's own files lie in; home_parent and project_parent: what is hidden
    around the two (`/`: nothing); written: what commands of any shell of this project may write.
    """

    __slots__ = ("home", "home_parent", "kept", "launcher", "own", "private", "project", "project_parent", "start", "state", "written")

    def __init__(self, host: Host, rules: Rules, environment: Mapping[str, str], *, start: str, project: str, launcher: str) -> None:
        """`project`: as its caller names it, absolute. Raises CannotStartError."""
        self.start, self.launcher = start, launcher
        self.project = _require_directory(host, project, f"{project} is not a directory", "name the project with --project DIR")
        self.home = _find_home(host, environment)
        _check_project(self.project, self.home)
        self.state = _find_state_directory(host, environment, self.home)
        if is_within(self.state, self.project):
            raise CannotStartError(f"XDG_STATE_HOME={self.state.rpartition('/')[0]} lies in the project", "set it to a directory outside")
        if is_within(self.project, self.state):
            raise CannotStartError(f"the project {self.project} is in wavegen's state directory", "move it into a directory of its own")
        self.kept = f"{self.state}/{state_key(self.project)}"
        self.own = f"{self.kept}/{rules.setting_value('shell')}"
        self.private = self.own
        above = self.home.rpartition("/")[0] or "/"
        self.home_parent = "/" if is_within_any(above, ("/usr", "/nix", "/etc")) or above == "/opt" else above
        top = "/" + self.project[1:].partition("/")[0]
        around = self.project.rpartition("/")[0] if top in _PARTS_OF_THE_SYSTEM else top
        self.project_parent = "/" if around in (*_PARTS_OF_THE_SYSTEM, "/usr/local", self.project) else around
        self.written: tuple[str, ...] = (self.project, self.state)
        named = [self.expand_anchor(path) for (path,) in rules.lists["writable"]]
        for path in named:
            self.written += (path, *((real,) if (real := _resolve_or_empty(host, path)) and real != path else ()))

    def expand_anchor(self, text: str) -> str:
        """A path of a rule as one of this machine: `~/x`, `./x`, `$STATE/x` and so on."""
        anchor, slash, tail = text.partition("/")
        if text in ("~/..", "./.."):
            return self.home_parent if anchor == "~" else self.project_parent
        place = {"~": self.home, ".": self.project, "$STATE": self.private, "$LAUNCHER": self.launcher}.get(anchor)
        return text if place is None else place + slash + tail

    @property
    def is_apart(self) -> bool:
        """Whether no command of this project can write, or move away, what wavegen keeps."""
        return not any(is_within(self.state, place) or is_within(place, self.state) for place in self.written[2:])

    def start_directory(self, *, in_root: bool) -> str:
        """Where a command starts: where its caller stands in the project, else (or with `in_root`) in the project's root."""
        return self.start if is_within(self.start, self.project) and not in_root else self.project


def state_key(project: str) -> str:
    """The name of the directory that keeps a project's state. Raises CannotStartError where the path is too long for one."""
    key = project.replace("%", "%25").replace("/", "%2F")
    if len(key.encode("utf-8", "surrogateescape")) >= _LONGEST_NAME:
        raise CannotStartError(f"the project's path is too long to keep a home for it: {project}", "move it to a shorter path")
    return key


def _resolve_or_empty(host: Host, path: str) -> str:
    try:
        return resolve_path(host, path)
    except OSError:
        return ""


def _require_directory(host: Host, path: str, what: str, remedy: str) -> str:
    try:
        real = resolve_path(host, path)
        found = bool(real) and S_ISDIR(host.lstat(real).st_mode)
    except OSError as failed:
        if failed.errno in OUT_OF_DESCRIPTORS:
            raise
        found, real = False, ""
    if not found:
        raise CannotStartError(what, remedy)
    return real


def _find_home(host: Host, environment: Mapping[str, str]) -> str:
    home = environment.get("HOME", "")
    if not home:
        raise CannotStartError("HOME is not set", "set it to your home directory; nix develop -i needs -k HOME")
    what = f"HOME={home} is not a directory"
    if not home.startswith("/"):
        raise CannotStartError(what, "set HOME to your home directory")
    home = _require_directory(host, home, what, "set HOME to your home directory")
    if home == "/":
        raise CannotStartError("HOME is /", "set HOME to a directory of your own")
    return home


def _check_project(project: str, home: str) -> None:
    if project in SYSTEM_DIRECTORIES or is_within_any(project, _NO_PROJECT_BELOW):
        raise CannotStartError(f"the project is {project}, a directory of the system", "move it into a directory of its own")
    if is_within(home, project):
        raise CannotStartError(f"the project {project} is, or holds, the home directory {home}", "move it into a directory of its own")


def _find_state_directory(host: Host, environment: Mapping[str, str], home: str) -> str:
    """Where wavegen keeps state, without links; what is missing of it will be made."""
    state = environment.get("XDG_STATE_HOME", "")
    state, missing = state if state.startswith("/") else f"{home}/.local/state", "/wavegen"
    while state:
        try:
            host_state = resolve_path(host, state)
            if host_state:
                return (host_state if host_state != "/" else "") + missing
            if _is_link(host, state):
                raise CannotStartError(f"{state} leads nowhere", "remove the link")
        except OSError as failed:
            raise CannotStartError(f"{state}: {failed.strerror}", f"make it accessible: chmod u+rwx {failed.filename or state}") from None
        state, _, name = state.rstrip("/").rpartition("/")
        missing = f"/{name}{missing}"
    return missing


def _is_link(host: Host, path: str) -> bool:
    above, _, name = path.rstrip("/").rpartition("/")
    real = resolve_path(host, above or "/")
    try:
        return bool(real) and host.lstat(f"{real.rstrip('/')}/{name}").st_mode & 0o170000 == 0o120000
    except OSError as failed:
        if failed.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise


def find_program(host: Host, name: str, path: str, written: Sequence[str]) -> str:
    """A program of the system, else of the caller's PATH, that no command of the project could have put there; empty where there is none.

    Judged by place, not by mode: a command may make what it wrote read-only.
    """
    for directory in (*SYSTEM_PATH.split(":"), *path.split(":")):
        if not directory.startswith("/"):
            continue
        try:
            real = resolve_path(host, f"{directory}/{name}")
            if (
                real
                and S_ISREG(host.lstat(real).st_mode)
                and not is_within_any(real, written)
                and not is_within_any(directory, written)
                and posix.access(real, posix.X_OK)
            ):
                return real
        except OSError as failed:
            if failed.errno in OUT_OF_DESCRIPTORS:
                raise
    return ""
