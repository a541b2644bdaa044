"""Files against the disk: what is there, what differs and why, and writing it so that every file is the old or the new one."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum

from wavegen import VERSION
from wavegen.backends import HEADER_MARK, File
from wavegen.backends.project.flake import FLAKE
from wavegen.core.errors import MachineError, UsageError, WavegenError
from wavegen.core.quote import json_text
from wavegen.manifest.yaml_nodes import SIZE_LIMIT, Source
from wavegen.project.project_root import LOCK, TREE, WORK, find_unlisted_files

_BEGUN, _NEXT = "%begun", "%next"
"""In there: what is about to be written. Files of the tree are there as %-separated paths, which begin with no %."""


class Reason(Enum):
    """Why a path on the disk is not what would be rendered."""

    MISSING = "missing"
    STALE = "out of date"
    EDITED = "edited by hand"
    MODE = "not executable"
    ORPHAN = "no longer rendered"
    FOREIGN = "written by hand, left alone"
    UNLISTED = "not of wavegen: remove it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One path that differs."""

    path: str
    reason: Reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason.value}"


@dataclass(frozen=True, slots=True)
class Lock:
    """What lock.json says: digests of the inputs and outputs of the last render."""

    inputs: dict[str, str]
    outputs: dict[str, str]

    def lock_text(self) -> str:
        """lock.json's text."""
        return json_text({"wavegen": VERSION, "inputs": dict(sorted(self.inputs.items())), "outputs": dict(sorted(self.outputs.items()))})


def sha256_digest(data: bytes) -> str:
    """`sha256:…` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def read_source(root: str, name: str, shown: str) -> Source | None:
    """An input file below root; None where there is none. `shown` is its name in messages."""
    path = os.path.join(root, name)
    try:
        # Opening a FIFO would wait for a writer, and a device may have no end.
        if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):
            raise UsageError(f"{shown} is not a file", "name the manifest file itself")
        with open(path, "rb") as stream:
            return Source(shown, stream.read(SIZE_LIMIT + 1))
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise UsageError(f"{shown} is a directory", "name the manifest file itself") from None
    except OSError as failed:
        raise MachineError(f"{shown} cannot be read: {failed.strerror}", "check its permissions") from None


def read_lock(root: str) -> Lock:
    """The lock of the last render; empty where there is none or it cannot be understood."""
    try:
        source = read_source(root, LOCK, LOCK)
        value = json.loads(source.data) if source else {}
        inputs, outputs = value["inputs"], value["outputs"]
        return Lock({str(k): str(v) for k, v in inputs.items()}, {str(k): str(v) for k, v in outputs.items()})
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError, WavegenError):
        return Lock({}, {})


def files_not_in_lock(root: str) -> tuple[str, ...]:
    """What is below .wavegen and not in the lock; see `files_beside`."""
    return find_unlisted_files(root, read_lock(root).outputs)


class Tree:
    """The rendered files of one project, compared with its disk."""

    def __init__(self, root: str, files: tuple[File, ...], inputs: dict[str, str]) -> None:
        self.root = root
        self.before = read_lock(root)
        self.foreign = tuple(f.path for f in files if self._is_foreign(f))
        self.files = tuple(f for f in files if f.path not in self.foreign and not self._is_left_unchanged(f))
        outputs = {f.path: sha256_digest(f.content_bytes) for f in files if f.path not in self.foreign and not f.only_if_missing}
        lock = File(path=LOCK, text=Lock(inputs, outputs).lock_text(), header=False)
        # The lock last: after an interruption it describes the old tree, and the next render puts that right.
        self.files = (*self.files, lock)

    # --- reading

    def _absolute_path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def read_current(self, name: str) -> bytes | None:
        """What is on the disk; None where there is nothing. Refuses symlinks and anything but plain files."""
        self._refuse_links(name)
        try:
            with open(self._absolute_path(name), "rb") as stream:
                return stream.read()
        except FileNotFoundError:
            return None
        except IsADirectoryError:
            raise UsageError(f"{name} is a directory where a file is to be written", "move it away") from None
        except OSError as failed:
            raise MachineError(f"{name} cannot be read: {failed.strerror}", "check its permissions") from None

    def _refuse_links(self, name: str) -> None:
        path = self.root
        for part in name.split("/"):
            path = os.path.join(path, part)
            try:
                mode = os.lstat(path).st_mode
            except FileNotFoundError:
                return
            except NotADirectoryError:
                raise UsageError(f"{name}: a file stands where a directory is needed", "move it away") from None
            if stat.S_ISLNK(mode):
                shown = os.path.relpath(path, self.root)
                raise UsageError(f"{shown} is a symlink; writing through it could change any file", "remove the link, then render again")
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UsageError(f"{os.path.relpath(path, self.root)} is neither a file nor a directory", "move it away")

    def _is_foreign(self, file: File) -> bool:
        """A file outside our own directory that is there and not ours."""
        if file.path.startswith(TREE + "/") or file.only_if_missing:
            return False
        current = self.read_current(file.path)
        ours = current is None or HEADER_MARK.encode() in current.split(b"\n", 1)[0]
        return not ours

    def _is_left_unchanged(self, file: File) -> bool:
        return file.only_if_missing and self.read_current(file.path) is not None

    def find_differences(self) -> tuple[Finding, ...]:
        """Everything that differs, one reason a path, sorted."""
        found = []
        for file in self.files:
            current = self.read_current(file.path)
            if current is None:
                found.append(Finding(file.path, Reason.MISSING))
            elif current != file.content_bytes:
                known = self.before.outputs.get(file.path)
                edited = known is not None and sha256_digest(current) != known
                found.append(Finding(file.path, Reason.EDITED if edited else Reason.STALE))
            elif file.executable and not os.access(self._absolute_path(file.path), os.X_OK):
                found.append(Finding(file.path, Reason.MODE))
        orphans = tuple(self._find_orphans())
        found += [Finding(path, Reason.ORPHAN) for path in orphans]
        mine = {file.path for file in self.files} | set(orphans)
        found += [Finding(path, Reason.UNLISTED) for path in files_not_in_lock(self.root) if path not in mine]
        return tuple(sorted(found, key=lambda f: f.path))

    def _find_orphans(self) -> Iterator[str]:
        """Files of an earlier render that this one does not have: by the lock, or by our header in bin/ and of the flake."""
        mine = {f.path for f in self.files} | set(self.foreign)
        begun = self._read_pending_paths()
        listed = [path for path in (*self.before.outputs, *begun) if path.startswith(TREE + "/") and ".." not in path.split("/")]
        with suppress(FileNotFoundError):
            listed += [f"{TREE}/bin/{name}" for name in os.listdir(self._absolute_path(f"{TREE}/bin"))]
        for path in sorted({*listed, FLAKE} - mine):
            if not os.path.lexists(self._absolute_path(path)):
                continue
            current = self.read_current(path)
            by_lock = path != FLAKE and (path in self.before.outputs or path in begun)
            if by_lock or (current and HEADER_MARK.encode() in b"".join(current.split(b"\n")[:2])):
                yield path

    def render_diff(self) -> Iterator[str]:
        """A unified diff from the disk to what would be rendered, line by line."""
        import difflib

        for finding in self.find_differences():
            new = next((f.content_bytes for f in self.files if f.path == finding.path), b"").decode("utf-8", "backslashreplace")
            old = (self.read_current(finding.path) or b"").decode("utf-8", "backslashreplace")
            if old != new:
                lines = difflib.unified_diff(_split_lines(old), _split_lines(new), f"a/{finding.path}", f"b/{finding.path}")
                yield from (line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
            else:
                yield f"{finding}\n"

    # --- writing

    def write_tree(self) -> tuple[Finding, ...]:
        """Bring the disk to what is rendered; what was already right keeps its time stamp. Returns what was done."""
        self._refuse_links(WORK)
        try:
            os.makedirs(self._absolute_path(TREE), exist_ok=True)
            with self._lock_tree():
                findings = self.find_differences()
                self._record_pending_paths(findings)
                wrong = {f.path: f.reason for f in findings}
                for file in self.files:
                    if file.path in wrong:
                        self._write_file(file)
                for finding in findings:
                    if finding.reason is Reason.ORPHAN:
                        self._remove_file(finding.path)
                self._clean_up()
                return findings
        except OSError as failed:
            name = os.path.relpath(failed.filename, self.root) if failed.filename else self.root
            hint = "make room" if failed.errno in (errno.ENOSPC, errno.EDQUOT) else "check the permissions of the project directory"
            raise MachineError(f"{name} cannot be written: {failed.strerror}", hint) from None

    def _record_pending_paths(self, findings: tuple[Finding, ...]) -> None:
        """Write down what is about to be made or removed: the lock names it only at the end, and a render may be killed before."""
        if not findings:
            self._clean_up()
            return
        work = self._absolute_path(WORK)
        os.makedirs(work, exist_ok=True)
        with open(f"{work}/{_NEXT}", "w", encoding="utf-8") as stream:
            stream.writelines(f"{finding.path}\n" for finding in findings)
        os.replace(f"{work}/{_NEXT}", f"{work}/{_BEGUN}")
        self._clean_up(kept=_BEGUN)

    def _read_pending_paths(self) -> tuple[str, ...]:
        """What a render that was interrupted was about to make or remove."""
        self._refuse_links(WORK)
        with suppress(FileNotFoundError), open(self._absolute_path(f"{WORK}/{_BEGUN}"), encoding="utf-8", errors="replace") as stream:
            return tuple(stream.read().splitlines())
        return ()

    @contextmanager
    def _lock_tree(self) -> Iterator[None]:
        """Two renders at once would take each other's temporary files away."""
        handle = os.open(self._absolute_path(TREE), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            # Not forever: a command inside can hold a lock, too.
            for _ in range(100):
                with suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.1)
            else:
                raise MachineError(f"{TREE} is locked by another program", "end it, or the shell that runs it, and try again")
            yield
        finally:
            os.close(handle)

    def _write_file(self, file: File) -> None:
        self._refuse_links(file.path)
        target, work = self._absolute_path(file.path), self._absolute_path(WORK)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.makedirs(work, exist_ok=True)
        temporary = os.path.join(work, file.path.replace("/", "%"))
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o755 if file.executable else 0o644)
        with os.fdopen(handle, "wb") as stream:
            stream.write(file.content_bytes)
            if file.executable:
                # A rename may reach the disk before the data does. After a power cut an empty script would do nothing, and say that it went well.
                # Nobody takes another file that is empty for a rendered one: each start compares them with the lock, and Nix reads no empty flake.
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(temporary, target)

    def _remove_file(self, path: str) -> None:
        """Delete a file of the tree, and the directories below it that are empty then."""
        self._refuse_links(path)
        os.unlink(self._absolute_path(path))
        with suppress(OSError):
            while (path := os.path.dirname(path)) not in (TREE, ""):
                os.rmdir(self._absolute_path(path))

    def _clean_up(self, kept: str = "") -> None:
        """Remove what an interrupted render left, but for the file `kept`."""
        self._refuse_links(WORK)  # behind a link it would be somebody else's files
        work = self._absolute_path(WORK)
        try:
            names = os.listdir(work)
        except FileNotFoundError:
            return
        for name in names:
            if name != kept:
                os.unlink(os.path.join(work, name))
        if not kept:
            os.rmdir(work)


def _split_lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)
