"""What an audit meets on its way: directories, what is known of them, what it finds, and which parts of a repository git obeys.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import os
import stat

import audit_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from audit_files import Judged

    Judge = Callable[[], "Judged | None"]


IN_REPOSITORY = frozenset(
    ("hooks", "info", "config", "config.worktree", "commondir", "gitdir", "modules", "worktrees", "objects", "refs", "branches", "remotes", "head")
)
"""What in a repository leads somewhere else if it is a link."""


class Baseline:
    """What was there, and known, at the last accepted audit."""

    __slots__ = ("folders", "parts", "things")

    def __init__(self) -> None:
        self.things: dict[str, str] = {}
        """Signatures, by kind and path."""
        self.folders: dict[str, int] = {}
        """Inodes of the directories above them, by path."""
        self.parts: dict[str, dict[str, str]] = {}
        """Signatures of the scripts in each package.json, by path."""


class Finding:
    """Something new. `path` is relative to the project, as the file system has it."""

    __slots__ = ("detail", "incomplete", "kind", "path", "runs", "severity", "what")

    def __init__(  # noqa: PLR0913, PLR0917  a record
        self, path: str, severity: str, kind: str, what: str, runs: str, detail: str = "", *, incomplete: bool = False
    ) -> None:
        self.path, self.severity, self.kind, self.what, self.runs, self.detail, self.incomplete = path, severity, kind, what, runs, detail, incomplete


class Folder:
    """A directory while it is walked."""

    __slots__ = ("above", "depth", "git", "handle", "info", "inside", "name", "rel", "repository", "suspects")

    def __init__(self, handle: int, info: os.stat_result, above: Folder | None, rel: str, name: str) -> None:
        self.handle, self.info, self.above, self.rel, self.name = handle, info, above, rel, name
        self.depth: int = above.depth + 1 if above else 0
        self.inside = -1
        """The row of everything in it."""
        self.git: bool = above is not None and (above.git or name == ".git")
        """Whether it is, or is in, a directory that git alone uses."""
        self.repository = False
        self.suspects: tuple[tuple[str, int], ...] = above.suspects if above else ()
        """Directories on the way that may have been moved: path and inode."""

    def join(self, name: str) -> str:
        """The path of an entry."""
        return f"{self.rel}/{name}" if self.rel else name

    def names(self) -> list[str]:
        """Folded names of the directories above it and its own, the nearest first."""
        found, folder = [], self
        while folder.above:
            found.append(folder.name)
            folder = folder.above
        return found


def fold(name: str) -> str:
    """A name as the least strict file system takes it: without case, and without characters that are not seen."""
    if name.isascii():
        return name.lower()
    import unicodedata

    seen = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) not in ("Cf", "Cc", "Mn"))
    return seen.casefold()


def is_repository(folder: Folder, names: set[str]) -> bool:
    """Whether git would take it for a repository, or may once more is added; what is below .git/modules and .git/worktrees are some, too."""
    if folder.name == ".git" or ("head" in names and ("commondir" in names or {"objects", "refs"} <= names)):
        return True
    if not folder.git or not names & {"head", "config", "commondir"}:
        return False
    within = set(folder.names()[: folder.names().index(".git")])
    # Branches may be called like these files.
    return bool(within & {"modules", "worktrees"}) and not within & {"logs", "refs", "objects", "hooks"}


def part_of_git(folder: Folder, name: str, folded: str) -> tuple[tuple[str, ...], Judge | None]:
    """The smaller parts of a repository that git obeys: what they are, and how to look at one. No judge for any other file."""
    handle, above = folder.handle, folder.above
    within = above is not None and above.repository
    if folder.repository and folded == "commondir":
        row = ("git", "critical", "where a repository's settings are", "git takes settings and hooks from there")
        return row, lambda: audit_files.common(name, handle, above.name if above else "")
    if folder.repository and folded == "gitdir":
        return ("git", "medium", "where a working tree is", "git looks for it there"), lambda: audit_files.whole(name, handle, "medium")
    if folded == "attributes" and folder.name == "info" and within:
        return ("git", "critical", "attributes of files", "git starts the drivers that it names"), lambda: audit_files.attributes(name, handle, "critical")
    if folded in ("alternates", "http-alternates") and folder.name == "info":
        return ("git", "high", "other places for objects", "git reads objects from there"), lambda: audit_files.whole(name, handle, "high")
    if folded == "git-rebase-todo":
        row = ("git", "high", "steps of a rebase under way", "git runs its commands when the rebase goes on")
        return row, lambda: audit_files.rebase(name, handle)
    if folder.name in ("rebase-merge", "rebase-apply", "sequencer") and folded in ("strategy", "strategy_opts", "opts"):
        row = ("git", "high", "how a rebase or cherry-pick under way goes on", "git starts the merge strategy that it names")
        return row, lambda: audit_files.strategy(name, handle)
    if folder.name in ("branches", "remotes") and within:
        return ("git", "medium", "the address of a remote", "git fetches from and pushes to it"), lambda: audit_files.whole(name, handle, "medium")
    return (), None


def in_hooks(folder: Folder) -> bool:
    """Whether it is below the hooks of a repository."""
    within: Folder | None = folder
    while within and within.above:
        if within.name == "hooks" and within.above.repository:
            return True
        within = within.above
    return False


def special(mode: int) -> str:
    """What a thing that is neither file, directory nor link is called."""
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
