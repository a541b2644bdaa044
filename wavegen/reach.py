"""Which of a policy's rules decides about a path: the one order for what is explained, compared and probed. Pure.

Of two mounts the later one holds, and wrappers mount shallow paths before deep ones, the system's before those of the project and the
home, and what the manifest hides last of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wavegen.policy import Access, Anchor, HostPath, PathRule

Parts = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where the anchors are when a shell starts: absolute paths without symlinks. `homes` and `around` are / where there is nothing to hide."""

    home: str
    project: str
    state: str
    runtime: str

    @property
    def homes(self) -> str:
        """What holds the home; see find_places in runtime/places.sh."""
        above = self.home.rpartition("/")[0]
        return "/" if above in ("", "/opt") or f"{above}/".startswith(("/usr/", "/nix/", "/etc/")) else above

    @property
    def around(self) -> str:
        """The highest directory above the project that is no part of the system."""
        top = "/" + self.project.split("/")[1]
        if top in _SYSTEM or top.startswith("/lib"):
            top = self.project.rpartition("/")[0]
        return "/" if top in (self.project, "", "/usr/local") or top in _SYSTEM or top.startswith("/lib") else top

    def absolute(self, path: HostPath) -> str:
        """Where a path is on this machine."""
        bases = {
            Anchor.ROOT: "",
            Anchor.HOME: self.home,
            Anchor.PROJECT: self.project,
            Anchor.STATE: self.state,
            Anchor.RUNTIME: self.runtime,
            Anchor.HOMES: self.homes,
            Anchor.AROUND: self.around,
        }
        base = bases[path.anchor]
        return (f"{base.rstrip('/')}/{path.tail}" if path.tail else base) or "/"


_SYSTEM = ("/bin", "/etc", "/nix", "/opt", "/sbin", "/usr")


@dataclass(frozen=True, slots=True)
class Placed:
    """A rule, and the absolute path that it is about in parts."""

    parts: Parts
    rule: PathRule


def parts_of(path: str) -> Parts:
    """The parts of an absolute path."""
    return tuple(part for part in path.split("/") if part)


def placed(rules: Iterable[PathRule], places: Places) -> tuple[Placed, ...]:
    """Rules at their places on this machine, in the order in which they are mounted."""
    rules = tuple(rules)
    system = {rule.path for rule in rules if rule.path.anchor is Anchor.ROOT}

    def at(rule: PathRule) -> Iterator[Placed]:
        path = places.absolute(rule.path)
        around = rule.path.anchor in (Anchor.HOMES, Anchor.AROUND)
        # Where another rule is about the place, that one holds.
        if not around or (path != "/" and HostPath(Anchor.ROOT, path[1:]) not in system):
            yield Placed(parts_of(path), rule)

    ordered = sorted(rules, key=lambda rule: (rule.path.anchor is not Anchor.ROOT, len(parts_of(places.absolute(rule.path)))))
    return tuple(found for rule in ordered for found in at(rule))


def governing(rules: Iterable[Placed], path: Parts) -> PathRule | None:
    """The rule for the deepest path at or above this one; of two for one path, the later.

    What the manifest hides stays hidden, whatever shows it or what is below it.
    """
    found: Placed | None = None
    for one in rules:
        if path[: len(one.parts)] != one.parts:
            continue
        if one.rule.access is Access.HIDE and one.rule.origin.at:
            return one.rule
        if found is None or len(one.parts) >= len(found.parts):
            found = one
    return found.rule if found else None


def by_anchor(rules: Iterable[PathRule]) -> tuple[Placed, ...]:
    """Rules for where no machine is looked at: a path is known by its anchor alone."""
    return tuple(Placed((rule.path.anchor.value, *rule.path.parts()), rule) for rule in rules)


def anchored(path: HostPath) -> Parts:
    """A path as `by_anchor` has it."""
    return (path.anchor.value, *path.parts())
