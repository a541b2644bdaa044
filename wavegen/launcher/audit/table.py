"""Which row of `followed` a name in a project belongs to, and what to do about it."""

from __future__ import annotations

from ..followed import ROWS as _FOLLOWED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .places import Folder

SEVERITIES = ("critical", "high", "medium", "low")

ROWS = tuple((kind, severity, (*protected, *named), what, runs) for kind, severity, protected, named, what, runs in _FOLLOWED)

# Directories that package managers fill: what is found there is counted, unless git would obey it.
DEPENDENCIES = ("node_modules", "bower_components", ".venv", "venv", "site-packages", ".tox", ".nox", "__pypackages__", "vendor", ".direnv", "target", ".yarn")

ADVICE = {
    "fence": "compare it with a commit that no shell made, then run wavegen render",
    "git": "run no git there until you have looked at it",
    "vcs": "run no program of that repository there until you have looked at it",
    "direnv": "read it before you allow it",
    "link": "see where it leads before anything reads or writes through it",
    "special": "remove it",
    "mode": "take the bit away: chmod ug-s, setcap -r",
    "name": "rename it",
    "audit": "look at it by hand",
    "dependencies": "install them anew outside of the fence, where that matters",
}
LOOK = "read what changed before you run that"


class Table:
    """Finds the row of a name."""

    def __init__(self) -> None:
        self.at_root: dict[str, int] = {}
        self.pairs: dict[str, int] = {}
        self.deep: dict[str, list[tuple[tuple[str, ...], int]]] = {}
        """By a file's name: the directories above it, the nearest first."""
        self.names: dict[str, int] = {}
        self.below: dict[str, int] = {}
        self.endings: dict[str, int] = {}
        self.globs: list[tuple[str, str, int]] = []
        for number, row in enumerate(ROWS):
            for pattern in row[2]:
                self._add_pattern(pattern, number)

    def _add_pattern(self, pattern: str, number: int) -> None:
        if pattern.endswith("/**"):
            self.below.setdefault(pattern[:-3], number)
        elif pattern.startswith("/"):
            self.at_root.setdefault(pattern[1:], number)
        elif pattern.count("/") > 1:
            *above, name = pattern.split("/")
            self.deep.setdefault(name, []).append((tuple(above[::-1]), number))
        elif "/" in pattern:
            self.pairs.setdefault(pattern, number)
        elif "*" not in pattern:
            self.names.setdefault(pattern, number)
        elif pattern.startswith("*.") and "." not in pattern[2:]:
            self.endings.setdefault(pattern[1:], number)
        else:
            start, _, end = pattern.partition("*")
            self.globs.append((start, end, number))

    def row_of_file(self, name: str, folder: Folder) -> int:
        """The row of a file, by its folded name and the directories above, or that of what it lies in where it costs more; else -1."""
        parent, inside = folder.name, folder.inside
        found = self.at_root.get(name, -1) if not parent else self.pairs.get(f"{parent}/{name}", -1)
        for above, number in self.deep.get(name, ()) if found < 0 else ():
            if tuple(folder.names_upwards()[: len(above)]) == above:
                found = number
        if found < 0:
            found = self.names.get(name, -1)
        if found < 0 and inside < 0:
            dot = name.rfind(".")
            found = self.endings.get(name[dot:], -1) if dot >= 0 else -1
            if found < 0:
                found = self._row_by_glob(name)
        if found >= 0 and inside >= 0 and SEVERITIES.index(ROWS[inside][1]) < SEVERITIES.index(ROWS[found][1]):
            return inside
        return found if found >= 0 else inside

    def _row_by_glob(self, name: str) -> int:
        for start, end, number in self.globs:
            if name.startswith(start) and name.endswith(end) and len(name) >= len(start) + len(end):
                return number
        return -1

    def row_of_directory(self, name: str, parent: str, inside: int) -> int:
        """The row of everything below a directory, or -1."""
        if not parent:
            found = self.below.get(f"/{name}", -1)
            if found >= 0:
                return found
        found = self.below.get(f"{parent}/{name}", -1)
        if found < 0:
            found = self.below.get(name, -1)
        return found if found >= 0 else inside
