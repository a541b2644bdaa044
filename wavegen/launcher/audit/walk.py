"""Walks a project and names what in it the host would execute or follow, and was not so when the fence was entered.

What may be new is told by ctime, which nobody inside can set: that of the thing itself, or of a directory above it that may have been moved
there, for a move leaves what lies deeper as it was. A move changes both the directory and the one that it is moved into; a directory for
which only one holds was not moved. Directories that the baseline knows by path and inode were not moved either.

Every directory is opened below the one before it, without following links.

Longer than 400 lines: one walk, whose judgements share what is new.
"""

from __future__ import annotations

import os
import stat
import sys

from . import files, table
from .files import Judged
from .places import (
    IN_REPOSITORY,
    Baseline,
    Finding,
    Folder,
    common_directory,
    find_git_control_file,
    fold_name,
    is_below_hooks,
    is_repository,
    list_directory,
    special_file_kind,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from .places import Judge

_BY_LINK = "leading there"
DEPTH_MAX = 200
"""Levels; each holds a file descriptor while it is walked."""
ENTRIES_MAX, STEPS_MAX = 2_000_000, 1_000_000
"""Names that are looked at, and parts of links' paths that are followed: some seconds each."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Walk:
    """One audit. `entered`: nanoseconds, or None where nobody knows; `record`: everything of interest is signed for a new baseline."""

    def __init__(
        self, root: str, entered: int | None, known: Callable[[], Baseline], *, record: bool = False, directories: dict[str, int] | None = None
    ) -> None:
        self.root, self.entered, self.record = root, entered, record
        self._common = ""
        self._directories = directories or {}
        """Inodes of directories at the entry, by path: these were not moved there since. With a slash: these were repositories."""
        self.findings: list[Finding] = []
        self.recorded = Baseline()
        self.entries, self._steps = 0, [STEPS_MAX]
        self._known, self._baseline = known, None if not record else Baseline()
        self._table = table.Table()
        self._visited: list[tuple[str, int, int]] = []
        self._full = self._fence_changed = False
        self.has_changed = False
        """Whether something was changed while it was looked at."""
        self._named: dict[str, tuple[str, str]] = {}
        """What settings of git's name in the project: the path, where, and by which setting."""

    @property
    def accepted_baseline(self) -> Baseline:
        """Read when it is first needed."""
        if self._baseline is None:
            self._baseline = self._known()
        return self._baseline

    def walk_project(self) -> None:
        """Walk. Raises OSError where the project itself cannot be opened."""
        handle = os.open(self.root, _DIRECTORY)
        limit = sys.getrecursionlimit()
        try:
            sys.setrecursionlimit(max(limit, DEPTH_MAX * 4 + 200))
            top = Folder(handle, os.fstat(handle), None, "", "")
            self._walk_folder(top)
            self._common = common_directory(self.root)
            if self._common and not self._full:
                self._walk_common_directory()
            for rel, (config, setting) in sorted(self._named.items()):
                if rel.count("/") < DEPTH_MAX:
                    self._follow_named_path(top, rel, rel.split("/"), config, setting)
                else:
                    self._report_incomplete(config, f"{setting} names a path deeper than {DEPTH_MAX} directories")
        finally:
            sys.setrecursionlimit(limit)
            os.close(handle)
        self._check_missing()
        self._check_changed_meanwhile()

    # --- directories

    def _walk_common_directory(self) -> None:
        """Walk the git directory outside of the project that it is a working tree of."""
        handle = -1
        try:
            handle = os.open(self._common, _DIRECTORY)
            top = Folder(handle, os.fstat(handle), None, self._common, ".git")
            top.git = True
            self._walk_folder(top)
        except OSError as failed:
            self._report_incomplete(self._common, failed.strerror or "")
        finally:
            if handle >= 0:
                os.close(handle)

    def _walk_folder(self, folder: Folder) -> None:
        self._visited.append((folder.rel, folder.info.st_ino, folder.info.st_ctime_ns))
        if self._may_be_new(folder, folder.info) and (not folder.rel or folder.rel.split("/")[0] == ".wavegen"):
            self._fence_changed = True
        below, links, others = self._list_folder(folder)
        names = {fold_name(entry.name) for entry in (*below, *links, *others)}
        folder.repository, folder.has_flake = is_repository(folder, names), "flake.nix" in names
        of_worktree = folder.git and folder.above is not None and folder.above.name == "worktrees"
        was_one = self._directories.get(f"{folder.rel}/") == folder.info.st_ino
        changed = self.entered is not None and folder.info.st_ctime_ns >= self.entered
        if folder.repository and folder.name != ".git" and not of_worktree and changed and not was_one:
            # It may have become one by what was added, and what is old in it means something since: no inode can vouch for that.
            folder.suspects = (*folder.suspects, (folder.rel, -1))
        times = [self._inspect_file(folder, entry) for entry in others]
        for entry in links:
            self._inspect_link(folder, entry)
        if folder.repository:
            self._check_new_repository(folder, times)
        for entry in below:
            if self._full:
                return
            self._enter_directory(folder, entry.name, fold_name(entry.name))

    def _list_folder(self, folder: Folder) -> tuple[list[os.DirEntry[str]], list[os.DirEntry[str]], list[os.DirEntry[str]]]:
        """What is in a directory: directories in the order of their names, links, and the rest."""
        found = list_directory(folder.handle, ENTRIES_MAX - self.entries)
        self.entries += sum(map(len, found))
        if self.entries >= ENTRIES_MAX and not self._full:
            self._report_incomplete(folder.rel, f"more than {ENTRIES_MAX} files")
            self._full = True
        return found

    def _enter_directory(self, above: Folder, name: str, folded: str) -> None:
        rel = above.entry_path(name)
        if above.depth >= DEPTH_MAX:
            self._report_incomplete(rel, f"deeper than {DEPTH_MAX} directories")
            return
        try:
            handle = os.open(name, _DIRECTORY, dir_fd=above.handle)
        except FileNotFoundError:
            return  # seen by _check_still
        except OSError as failed:
            self._report_unreadable(above, name, failed)
            return
        try:
            folder = self._make_subfolder(above, handle, name, folded)
            if not folder.git:
                folder.inside = self._table.row_of_directory(folded, above.name, above.inside)
            self._check_entry_name(folder, name, rel, folder.info)
            if folder.info.st_mode & stat.S_ISUID:
                self._check_mode_bits(folder, rel, folder.info)
            self._walk_folder(folder)
        except OSError as failed:
            self._report_unreadable(above, name, failed)
        finally:
            os.close(handle)

    def _follow_named_path(self, folder: Folder, rel: str, parts: list[str], config: str, setting: str) -> None:
        """Look at a file that a setting names, or at the files in a directory that one does."""
        try:
            info = os.stat(parts[0], dir_fd=folder.handle, follow_symlinks=False)
            if stat.S_ISREG(info.st_mode) and len(parts) == 1:
                self._report_named_file(folder, parts[0], info, config, setting)
            if not stat.S_ISDIR(info.st_mode) or (len(parts) == 1 and not setting.endswith((".hookspath", _BY_LINK))):
                return
            handle = os.open(parts[0], _DIRECTORY, dir_fd=folder.handle)
        except OSError:
            return  # nothing there; a link is a finding of its own, where it is new
        try:
            below = self._make_subfolder(folder, handle, parts[0], fold_name(parts[0]))
            if len(parts) > 1:
                self._follow_named_path(below, rel, parts[1:], config, setting)
                return
            for entry in self._list_folder(below)[2]:
                if entry.is_file(follow_symlinks=False) and not entry.name.endswith(".sample"):
                    self._report_named_file(below, entry.name, entry.stat(follow_symlinks=False), config, setting)
        except OSError as failed:
            self._report_unreadable(folder, parts[0], failed)
        finally:
            os.close(handle)

    def _report_named_file(self, folder: Folder, name: str, info: os.stat_result, config: str, setting: str) -> None:
        row = ("git", "critical", f"a file that {config} names by {setting}", "whoever follows that starts or reads it")
        is_settings = setting.startswith("include")
        self._report_if_new(
            folder,
            folder.entry_path(name),
            info,
            row,
            lambda: files.check_git_config(name, folder.handle) if is_settings else files.check_whole_file(name, folder.handle, "critical"),
        )

    def _make_subfolder(self, above: Folder, handle: int, name: str, folded: str) -> Folder:
        info = os.fstat(handle)
        folder = Folder(handle, info, above, above.entry_path(name), folded)
        if self.entered is not None and info.st_ctime_ns >= self.entered and above.info.st_ctime_ns >= self.entered:
            folder.suspects = (*above.suspects, (folder.rel, info.st_ino))
        return folder

    def _report_unreadable(self, above: Folder, name: str, failed: OSError) -> None:
        try:
            info = os.stat(name, dir_fd=above.handle, follow_symlinks=False)
        except OSError:
            return
        judged = files.unreadable_file_verdict(failed)
        self._report_if_new(above, above.entry_path(name), info, ("audit", "high", "a directory", "whatever is in it was not looked at"), lambda: judged)

    # --- files

    def _inspect_file(self, folder: Folder, entry: os.DirEntry[str]) -> int:
        """Look at what is neither a directory nor a link; its ctime."""
        try:
            info = entry.stat(follow_symlinks=False)
        except OSError:
            return 0
        name, mode = entry.name, info.st_mode
        folded = fold_name(name)
        rel = folder.entry_path(name)
        self._check_entry_name(folder, name, rel, info)
        if not stat.S_ISREG(mode):
            row = ("special", "medium", special_file_kind(mode), "a program that opens it waits for, or talks to, whoever made it")
            self._report_if_new(
                folder, rel, info, row, lambda: Judged(f"kind {stat.S_IFMT(mode)}", "high" if self._row_of_name(folder, folded) >= 0 else "medium")
            )
            return info.st_ctime_ns
        if mode & (stat.S_ISUID | stat.S_ISGID) or (mode & 0o111 and self._may_be_new(folder, info)):
            self._check_mode_bits(folder, rel, info, name)
        if folded == ".git":
            row = ("git", "critical", "a pointer to a repository", "git takes settings and hooks from there")
            self._report_if_new(folder, rel, info, row, lambda: files.check_git_pointer(name, folder.handle, folder.rel, self.root))
        else:
            self._check_git_file(folder, name, folded, info)
            row_number = self._row_of_name(folder, folded)
            if row_number >= 0:
                kind, severity, _, what, runs = table.ROWS[row_number]
                self._report_if_new(folder, rel, info, (kind, severity, what, runs), lambda: self._inspect_content(folder, name, folded, severity))
        return info.st_ctime_ns

    def _row_of_name(self, folder: Folder, folded: str) -> int:
        return -1 if folder.git else self._table.row_of_file(folded, folder)

    def _inspect_content(self, folder: Folder, name: str, folded: str, severity: str) -> Judged | None:
        if severity == "critical":  # the fence's own
            return files.check_whole_file(name, folder.handle, severity)
        if folded == ".gitmodules":
            return files.check_submodules(name, folder.handle)
        if folded == ".gitattributes":
            return files.check_attributes(name, folder.handle, severity)
        if folded == "package.json":
            return files.check_package_json(name, folder.handle, self.accepted_baseline.parts.get(folder.entry_path(name), {}))
        return files.check_whole_file(name, folder.handle, severity)

    def _check_git_file(self, folder: Folder, name: str, folded: str, info: os.stat_result) -> None:
        """What git would obey in a repository."""
        handle, rel = folder.handle, folder.entry_path(name)
        if is_below_hooks(folder):
            if not folded.endswith(".sample"):
                row = ("git", "critical", "a hook of git's", "git runs it, at a commit or a checkout for example")
                self._report_if_new(folder, rel, info, row, lambda: files.check_whole_file(name, handle, "critical"))
        elif folder.repository and folded in ("config", "config.worktree"):
            row = ("git", "critical", "settings of a repository", "git starts these programs or goes to these places, at a status even")
            self._report_if_new(folder, rel, info, row, lambda: files.check_git_config(name, handle))
            # Also of settings that were there before: what they name may not have been.
            for path, setting in files.paths_named_in_settings(name, handle, folder.rel, self.root).items():
                self._named.setdefault(path, (rel, setting))
        else:
            part, judge = find_git_control_file(folder, name, folded)
            if judge:
                self._report_if_new(folder, rel, info, part, judge)

    def _check_new_repository(self, folder: Folder, times: list[int]) -> None:
        """A repository all of which is new: what is in it is looked at file by file."""
        if not times or not folder.above or folder.above.git:
            return
        # One old file is enough: git rewrites others all the time.
        if self.record or self.entered is None or min(times) >= self.entered or self._was_moved(folder):
            runs = "nix evaluates what it holds in place of the files" if folder.above.has_flake else "git takes its settings for those of what lies around it"
            severity = "critical" if folder.above.has_flake else "low"
            self._report_if_new(folder, folder.rel, folder.info, ("git", severity, "a repository", runs), lambda: Judged("repository", severity))

    # --- links, bits and names

    def _follow_link_target(self, folder: Folder, folded: str, rel: str, target: str) -> None:
        """What a link of a name that somebody follows leads to in the project is followed, too, however old the link is."""
        followed = (
            is_below_hooks(folder)
            or folded == ".git"
            or self._row_of_name(folder, folded) >= 0
            or (not folder.git and self._table.row_of_directory(folded, folder.name, -1) >= 0)
        )
        place = os.path.normpath(os.path.join(folder.rel, target))
        if followed and not target.startswith("/") and place != "." and not place.startswith(("../", "/")):
            self._named.setdefault(place, (rel, _BY_LINK))

    def _inspect_link(self, folder: Folder, entry: os.DirEntry[str]) -> None:
        try:
            info = entry.stat(follow_symlinks=False)
            name, folded, rel = entry.name, fold_name(entry.name), folder.entry_path(entry.name)
            self._check_entry_name(folder, name, rel, info)
            target = os.readlink(name, dir_fd=folder.handle)
        except OSError:
            return
        if self.record or not self._needs_inspection(folder, info):
            self._follow_link_target(folder, folded, rel, target)
        if not self._needs_inspection(folder, info):
            return
        sign = Judged(f"link {files.content_digest(os.fsencode(target))}", "", f"a link to {target}")
        hook = is_below_hooks(folder) and not folded.endswith(".sample")
        row: tuple[str, ...]
        if folded == ".git" or hook or (folder.repository and folded in IN_REPOSITORY) or (folder.git and folder.name in ("info", "modules", "worktrees")):
            row = ("git", "critical", "a link in place of a part of a repository", "git follows it")
        else:
            number = self._row_of_name(folder, folded)
            number = number if number >= 0 or folder.git else self._table.row_of_directory(folded, folder.name, -1)
            row = () if number < 0 else (table.ROWS[number][0], table.ROWS[number][1], *table.ROWS[number][3:])
        if row:
            severity = row[1]
            self._report_if_new(folder, rel, info, row, lambda: Judged(sign.signature, severity, sign.detail))
        in_common = folder.rel.startswith("/")
        place = folder.rel[len(self._common) :] if in_common else folder.rel
        led = files.link_target_outside(self._common if in_common else self.root, place, target, self._steps)
        if self._steps and self._steps[0] < 0:
            self._report_incomplete(rel, "links that are too long to be followed")
            self._steps.clear()
        if led is not None:
            found = ("link", "high", "a link that leads out of the project", "whoever reads or writes through it does so there")
            self._report_if_new(folder, rel, info, found, lambda: Judged(sign.signature, files.link_severity(led), f"to {led}"))

    def _check_mode_bits(self, folder: Folder, rel: str, info: os.stat_result, name: str = "") -> None:
        bits = stat.S_IMODE(info.st_mode) & (stat.S_ISUID | stat.S_ISGID)
        if stat.S_ISDIR(info.st_mode):
            bits &= stat.S_ISUID
        elif not bits and not files.has_capabilities(name, folder.handle):
            return
        detail = "set-user-ID or set-group-ID" if bits else "capabilities"
        row = ("mode", "high", "a program with another's rights", "whoever starts it gets them")
        self._report_if_new(folder, rel, info, row, lambda: Judged(f"mode {bits:o} {info.st_ino}", "high", detail))

    def _check_entry_name(self, folder: Folder, name: str, rel: str, info: os.stat_result) -> None:
        if name[0] == "-" or not name.isprintable():
            what = "a name that looks like an option" if name[0] == "-" else "a name with characters that are not seen"
            self._report_if_new(
                folder, rel, info, ("name", "low", what, "commands that are given names by a wildcard take it for another"), lambda: Judged("name", "low")
            )

    # --- what is new

    def _may_be_new(self, folder: Folder, info: os.stat_result) -> bool:
        return self.entered is None or info.st_ctime_ns >= self.entered or bool(folder.suspects)

    def _needs_inspection(self, folder: Folder, info: os.stat_result) -> bool:
        if self.record or self.entered is None or info.st_ctime_ns >= self.entered:
            return True
        return self._was_moved(folder)

    def _was_moved(self, folder: Folder) -> bool:
        return any(inode not in (self._directories.get(rel), self.accepted_baseline.folders.get(rel)) for rel, inode in folder.suspects)

    def _report_if_new(self, folder: Folder, rel: str, info: os.stat_result, row: tuple[str, ...], judge: Judge) -> None:
        """Note a thing that may be new, unless the baseline knows it just so. `row`: kind, severity, what it is, who runs it."""
        if not self._needs_inspection(folder, info):
            return
        judged = judge()
        if judged is None:
            return
        kind, _, what, runs = row
        if stat.S_ISREG(info.st_mode) and kind not in ("mode", "name"):
            judged.signature += " x" if info.st_mode & 0o111 else ""
        key = f"{kind}:{rel}"
        if self.record:
            self._record_in_baseline(folder, key, rel, judged)
        elif self.accepted_baseline.things.get(key) != judged.signature:
            self.findings.append(Finding(rel, judged.severity, kind, what, runs, judged.detail, incomplete=judged.incomplete, signature=judged.signature))

    def _record_in_baseline(self, folder: Folder, key: str, rel: str, judged: Judged) -> None:
        self.recorded.things[key] = judged.signature
        if judged.parts:
            self.recorded.parts[rel] = judged.parts
        above: Folder | None = folder
        while above and above.rel not in self.recorded.folders:
            self.recorded.folders[above.rel] = above.info.st_ino
            above = above.above

    def _report_incomplete(self, rel: str, why: str) -> None:
        self.findings.append(Finding(rel, "high", "audit", "it was not looked at", "whatever is in it is not listed", why, incomplete=True))

    def _check_missing(self) -> None:
        """Files of the fence that were there; of others it is no danger that they are gone."""
        if self.record or not self._fence_changed:
            return
        for key in self.accepted_baseline.things:
            kind, _, rel = key.partition(":")
            if kind == "fence" and not os.path.lexists(f"{self.root}/{rel}"):
                self.findings.append(Finding(rel, "critical", "fence", "a file of the fence's own", "wavegen and nix make the fence of it", "it is gone"))

    def _check_changed_meanwhile(self) -> None:
        """Whether a directory changed meanwhile: something may have moved from where nobody had looked to where somebody had."""
        changed = []
        for rel, inode, ctime in self._visited:
            try:
                info = os.lstat(os.path.join(self.root, rel))
            except OSError as failed:
                if failed.errno == 36:  # ENAMETOOLONG: it is there, but by no single name
                    continue
                changed.append(rel)
                continue
            if (info.st_ino, info.st_ctime_ns) != (inode, ctime):
                changed.append(rel)
        if changed:
            self.has_changed = True
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            self._report_incomplete(changed[0], f"it changed meanwhile{more}: end what runs there, and look again")
