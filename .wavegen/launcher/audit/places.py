"""What an audit meets on its way: directories, what is known of them, what it finds, and which parts of a repository git obeys."""

from __future__ import annotations

import os
import stat

from ..git_config import parse_config
from . import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .files import Judged

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

    __slots__ = ("detail", "incomplete", "kind", "path", "runs", "severity", "signature", "what")

    def __init__(self, path: str, severity: str, kind: str, what: str, runs: str, detail: str = "", *, incomplete: bool = False, signature: str = "") -> None:
        self.path, self.severity, self.kind, self.what, self.runs, self.detail = path, severity, kind, what, runs, detail
        self.incomplete, self.signature = incomplete, signature


class Folder:
    """A directory while it is walked."""

    __slots__ = ("above", "depth", "git", "handle", "has_flake", "info", "inside", "name", "rel", "repository", "suspects")

    def __init__(self, handle: int, info: os.stat_result, above: Folder | None, rel: str, name: str) -> None:
        self.handle, self.info, self.above, self.rel, self.name = handle, info, above, rel, name
        self.depth: int = above.depth + 1 if above else 0
        self.inside = -1
        """The row of everything in it."""
        self.git: bool = above is not None and (above.git or name == ".git")
        """Whether it is, or is in, a directory that git alone uses."""
        self.repository = self.has_flake = False
        self.suspects: tuple[tuple[str, int], ...] = above.suspects if above else ()
        """Directories on the way that may have been moved: path and inode."""

    def entry_path(self, name: str) -> str:
        """The path of an entry."""
        return f"{self.rel}/{name}" if self.rel else name

    def names_upwards(self) -> list[str]:
        """Folded names of the directories above it and its own, the nearest first."""
        found, folder = [], self
        while folder.above:
            found.append(folder.name)
            folder = folder.above
        return found


def fold_name(name: str) -> str:
    """A name as the least strict file system takes it: without case, and without characters that are not seen."""
    if name.isascii():
        return name.lower()
    import unicodedata

    seen = "".join(char for char in unicodedata.normalize("NFKC", name) if unicodedata.category(char) not in ("Cf", "Cc", "Mn"))
    return seen.casefold()


def list_directory(handle: int, most: int) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]], list[os.DirEntry[str]]]:
    """What is in a directory: directories in the order of their names, links, and the rest; at most so many in all."""
    below: list[os.DirEntry[str]] = []
    links: list[os.DirEntry[str]] = []
    others: list[os.DirEntry[str]] = []
    with os.scandir(handle) as entries:
        for entry in entries:
            if most <= 0:
                break
            most -= 1
            kind = links if entry.is_symlink() else below if entry.is_dir(follow_symlinks=False) else others
            kind.append(entry)
    below.sort(key=lambda entry: entry.name)
    return below, links, others


def is_repository(folder: Folder, names: set[str]) -> bool:
    """Whether git would take it for a repository, or may once more is added; what is below .git/modules and .git/worktrees are some, too."""
    if folder.name == ".git" or ("head" in names and ("commondir" in names or {"objects", "refs"} <= names)):
        return True
    if not folder.git or not names & {"head", "config", "config.worktree", "commondir", "gitdir"}:
        return False
    names_above = folder.names_upwards()
    within = set(names_above[: names_above.index(".git")] if ".git" in names_above else names_above)
    # Branches may be called like these files.
    return bool(within & {"modules", "worktrees"}) and not within & {"logs", "refs", "objects", "hooks"}


def find_git_control_file(folder: Folder, name: str, folded: str) -> tuple[tuple[str, ...], Judge | None]:
    """The smaller parts of a repository that git obeys: what they are, and how to look at one. No judge for any other file."""
    handle, above = folder.handle, folder.above
    within = above is not None and above.repository
    if folder.repository and folded == "commondir":
        row = ("git", "critical", "where a repository's settings are", "git takes settings and hooks from there")
        return row, lambda: files.check_commondir(name, handle, above.name if above else "")
    if folder.repository and folded == "gitdir":
        return ("git", "medium", "where a working tree is", "git looks for it there"), lambda: files.check_whole_file(name, handle, "medium")
    if folded == "attributes" and folder.name == "info" and within:
        return ("git", "critical", "attributes of files", "git starts the drivers that it names"), lambda: files.check_attributes(name, handle, "critical")
    if folded in ("alternates", "http-alternates") and folder.name == "info":
        return ("git", "high", "other places for objects", "git reads objects from there"), lambda: files.check_whole_file(name, handle, "high")
    if folder.name == "sl" and folded == "config" and within:
        return ("vcs", "critical", "settings of Sapling", "sl starts the hooks that it names"), lambda: files.check_whole_file(name, handle, "critical")
    if folded == "git-rebase-todo":
        row = ("git", "high", "steps of a rebase under way", "git runs its commands when the rebase goes on")
        return row, lambda: files.check_rebase_steps(name, handle)
    if folder.name in ("rebase-merge", "rebase-apply", "sequencer") and folded in ("strategy", "strategy_opts", "opts"):
        row = ("git", "high", "how a rebase or cherry-pick under way goes on", "git starts the merge strategy that it names")
        return row, lambda: files.check_merge_strategy(name, handle)
    if folder.name in ("branches", "remotes") and within:
        return ("git", "medium", "the address of a remote", "git fetches from and pushes to it"), lambda: files.check_whole_file(name, handle, "medium")
    return _find_object_replacement(folder, name, folded)


def _find_object_replacement(folder: Folder, name: str, folded: str) -> tuple[tuple[str, ...], Judge | None]:
    """What makes git, and nix by it, take one object for another."""
    handle, above = folder.handle, folder.above
    within = above is not None and above.repository
    whole = lambda: files.check_whole_file(name, handle, "critical")  # noqa: E731
    if folded == "grafts" and folder.name == "info" and within:
        return ("git", "critical", "other parents of commits", "git takes them in place of the true ones"), whole
    if folder.name == "replace" and above is not None and above.name == "refs" and above.above is not None and above.above.repository:
        return ("git", "critical", "an object in place of another one", "git shows it as the other one, and nix evaluates it"), whole
    if folder.repository and folded == "packed-refs":
        row = ("git", "critical", "objects in place of others", "git shows them as the others, and nix evaluates them")
        return row, lambda: files.check_packed_refs(name, handle)
    return (), None


def common_directory(root: str) -> str:
    """The git directory outside of a project that it is a working tree of, and that names it in turn; empty where there is none.

    A pointer alone may be a command's, and lead anywhere. See gitrepository-layout(5), git-worktree(1).
    """
    top = os.path.realpath(root)
    entry = _read_target_path(top, ".git", "gitdir: ")
    if not entry or entry == top or entry.startswith(f"{top}/"):
        return ""
    common = _read_target_path(entry, "commondir")
    if common and os.path.dirname(entry) == f"{common}/worktrees":
        return common if _read_target_path(entry, "gitdir") == f"{top}/.git" else ""
    text = "" if common else files.read_file_text(entry, "config")
    trees = [value for section, _, key, value in parse_config(text.encode("utf-8", "surrogateescape")) if (section, key) == ("core", "worktree") and value]
    return entry if trees and os.path.realpath(os.path.join(entry, trees[-1])) == top else ""


def _read_target_path(directory: str, name: str, start: str = "") -> str:
    """Where a file of one line leads; empty where it does not."""
    line = files.read_file_text(directory, name).rstrip("\r\n")
    return os.path.realpath(os.path.join(directory, line[len(start) :])) if line.startswith(start) and len(line) > len(start) and "\0" not in line else ""


def is_below_hooks(folder: Folder) -> bool:
    """Whether it is below the hooks of a repository."""
    within: Folder | None = folder
    while within and within.above:
        if within.name == "hooks" and within.above.repository:
            return True
        within = within.above
    return False


def special_file_kind(mode: int) -> str:
    """What a thing that is neither file, directory nor link is called."""
    if stat.S_ISFIFO(mode):
        return "a FIFO"
    return "a socket" if stat.S_ISSOCK(mode) else "a device"
