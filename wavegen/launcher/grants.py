"""What a command may touch where Landlock alone decides: grants, from the rules and this machine. Pure over a Host.

Of what is granted nothing can be hidden or kept read-only: a rule that asks for it is refused.
"""

from __future__ import annotations

import posix
from _stat import S_ISSOCK

from .errors import CannotStartError
from .manifest_lines import find_path_line
from .rules import HIDE, READ, WRITE
from .symlinks import is_within, is_within_any, resolve_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .host import Host
    from .places import Places
    from .rules import PathRule, Rules

INSTEAD = "write backend: bubblewrap"
"""What to do where Landlock cannot enforce a rule."""
# A terminal of /dev/pts may be any other of the user's, and /dev/shm is shared with all programs of the host: neither is granted.
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty")


class Grant:
    """A path of the host that the command may read, or write with all below it. `rule`: what asks for it; None for the project."""

    __slots__ = ("may_write", "origin", "path", "rule")

    def __init__(self, path: str, origin: str, *, may_write: bool, rule: PathRule | None = None) -> None:  # a path without links
        self.path, self.origin, self.may_write, self.rule = path, origin, may_write, rule


def readable_system(rules: Rules) -> list[PathRule]:
    """What of the system can be read: whatever `root` says, a minimal one, as nothing of the whole could be hidden."""
    hidden = {rule.path for rule in rules.paths if rule.access == HIDE and rule.is_named}
    groups = ("minimal-root", "host-names", *(("resolvers",) if rules.setting_value("network") == "host" else ()))
    return [rule for name in groups for rule in rules.group_paths(name) if rule.access == READ and rule.path not in hidden]


def resolve_grants(rules: Rules, places: Places, host: Host) -> tuple[Grant, ...]:
    """The project and what the manifest grants, links resolved. Raises CannotStartError for what Landlock cannot enforce, and OSError."""
    if not places.is_apart:
        raise CannotStartError(f"wavegen's state directory {places.state} is writable in a shell of this project", "set XDG_STATE_HOME to a directory outside")
    found = [Grant(places.project, rule.origin, may_write=rule.access == WRITE) for rule in rules.paths if rule.path == "."]
    for rule in rules.paths:
        if not rule.is_named or rule.access not in (READ, WRITE) or rule.path in ("~", ".") or rule.flags & {"pinned", "guarded"}:
            continue
        path = places.expand_anchor(rule.path)
        real = resolve_path(host, path, places.written, _line_finder(host, places.project, rule))
        if real:
            _check_grant(Grant(real, rule.origin, may_write=rule.access == WRITE, rule=rule), path, places, host)
            found.append(Grant(real, rule.origin, may_write=rule.access == WRITE, rule=rule))
        elif "required" in rule.flags:
            raise CannotStartError(f"{path} does not exist", f"{find_path_line(host, places.project, rule)} asks for it; create it, or write optional: true")
    _check_apart(rules, places, host, found)
    return tuple(found)


def _line_finder(host: Host, project: str, rule: PathRule) -> Callable[[], str]:
    return lambda: find_path_line(host, project, rule)


def _check_grant(grant: Grant, path: str, places: Places, host: Host) -> None:
    for what, remedy in _grant_objections(grant, path, places, host):
        asked_by = find_path_line(host, places.project, grant.rule) if grant.rule else grant.origin
        raise CannotStartError(what, f"{asked_by} asks for it; {remedy}")


def _grant_objections(grant: Grant, path: str, places: Places, host: Host) -> Iterator[tuple[str, str]]:
    """Why a path cannot be granted, and what to do."""
    real, rule = grant.path, grant.rule
    below = next((place for anchor, place in (("~", places.home), (".", places.project)) if rule and rule.path.startswith(f"{anchor}/")), "/")
    if is_within(places.home, real) or is_within(places.state, real):
        yield f"{path} leads to {real}, which contains the home directory or wavegen's state directory", "name what is needed below it"
    if is_within(real, places.state):
        yield f"{path} leads to {real}, which is in wavegen's state directory", "remove the entry"
    if is_within(places.project, real) and real != places.project:
        yield f"{path} leads to {real}, which holds the project", "name what is needed below it"
    if is_within(real, places.project) and not grant.may_write:
        yield f"Landlock cannot keep {real} from being written, as the project is", f"remove the entry, or {INSTEAD}"
    if not is_within(real, below) and (below != places.home or not is_within_any(real, ("/nix/store", "/gnu/store"))):
        yield f"{path} leads to {real}, outside {below}", "name the place it leads to instead"
    if S_ISSOCK(host.lstat(real).st_mode) and rule and "socket" not in rule.flags:
        yield f"{real} is a socket: the server behind it runs outside the sandbox", "remove it, or write socket: true"


def _check_apart(rules: Rules, places: Places, host: Host, grants: Sequence[Grant]) -> None:
    """Nothing that is to stay outside lies in what is granted."""
    shown = [*(real for rule in readable_system(rules) if (real := resolve_or_empty(host, rule.path))), *(grant.path for grant in grants)]
    for place in shown:
        if is_within(places.home, place):
            raise CannotStartError(f"the home directory {places.home} is in {place}, which the sandbox can read", "set HOME to a directory of your own")
        if is_within(places.state, place):
            what = f"wavegen's state directory {places.state} is in {place}, which the sandbox can read"
            raise CannotStartError(what, "set XDG_STATE_HOME to a directory outside")
    for rule in rules.paths:
        if rule.access == HIDE and rule.is_named:
            hidden, tail = places.expand_anchor(rule.path), ""
            while not (real := resolve_path(host, hidden or "/")):
                hidden, _, name = hidden.rpartition("/")
                tail = f"/{name}{tail}"
            place = next((place for place in shown if is_within(real.rstrip("/") + tail, place)), "")
            if place:
                remedy = f"{find_path_line(host, places.project, rule)} asks for it; grant what is needed beside it, or {INSTEAD}"
                raise CannotStartError(f"Landlock cannot hide {real.rstrip('/')}{tail} in {place}, which is granted", remedy)


def resolve_or_empty(host: Host, path: str) -> str:
    """Where a path leads; empty where nothing is, or nothing that this user could see."""
    try:
        return resolve_path(host, path)
    except OSError:
        return ""


def landlock_path_options(grants: Sequence[Grant], system: Sequence[PathRule], writable: Sequence[str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Options of `inside/restrict_and_exec.py` by path, each with its origin. `writable`: directories that are made for this shell alone."""
    yield ("--read-try", "/proc"), "default: programs look at their own processes there"
    for rule in system:
        yield ("--read-try", rule.path), rule.origin
    for path in _DEVICES:
        yield ("--write-try", path), "default: the few devices that everybody may use"
    for path in sorted({posix.ttyname(handle) for handle in (0, 1, 2) if posix.isatty(handle)}):
        yield ("--write-try", path), "default: the terminals at hand, to be opened by their names, too"
    for grant in grants:
        yield ("--write" if grant.may_write else "--read", grant.path), grant.origin
    for path in writable:
        yield ("--write", path), "default: made for this shell alone"
