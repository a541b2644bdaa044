"""What the last render left is still right: told by digests, without reading the manifest. Little is imported: this is for speed.

Nobody else is believed. The lock lies in the project, where a pull request may bring another with all that it lists, so what this user rendered is
noted where wavegen keeps what no shell sees: the digest of the lock, which holds those of all inputs and outputs, and a stamp of wavegen's own
files. Where anything differs, or only cannot be read, whoever asks goes the long way.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from hashlib import sha256

from wavegen.core import resources
from wavegen.project import handover, state_dir
from wavegen.project.project_root import LOCK, MANIFEST, OVERLAY, WORK, find_project, find_unlisted_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_NOTE = "last-render.json"
_LARGEST = 16 << 20
"""Bytes of a file that is looked at here."""


def code_stamp() -> str:
    """What changes when wavegen's own files do: their names, sizes and times."""
    found = []
    for top in (resources.package_directory(), *map(resources.resource_directory, ("templates", "nix"))):
        for where, folders, names in os.walk(top):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                status = os.stat(os.path.join(where, name))
                found.append(f"{where}/{name} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n")
    return sha256("".join(found).encode("utf-8", "surrogateescape")).hexdigest()


def record_last_render(root: str, lock: bytes, rendered: dict[str, object]) -> None:
    """Note that what is on the disk is what this wavegen renders.

    `lock`: as it was rendered or compared; by now others may have put another in its place. `rendered`: the name of the `manifest`, the `shell` and
    the `backend` of a start that names none, whether there is to be a `flake`, the paths that are `executable`, and those `required`, whatever they hold.
    """
    try:
        state_dir.write_note(state_dir.checked_state_directory(root), _NOTE, json.dumps({"lock": digest_of(lock), "code": code_stamp(), **rendered}))
    except OSError:
        return  # then all goes the long way


class _Unchanged:
    """A project whose manifest, lock and wavegen are those of the last render. Raises OSError and ValueError where they are not."""

    def __init__(self) -> None:
        self.root, name = find_project(None)
        self.note = json.loads(read_file(state_dir.checked_state_directory(self.root), _NOTE))
        lock = read_file(self.root, LOCK)
        _fail_unless(self.note["lock"] == digest_of(lock) and self.note["manifest"] == name and self.note["code"] == code_stamp())
        found = json.loads(lock)
        self.inputs, self.outputs = found["inputs"], found["outputs"]
        _fail_unless(set(self.inputs) <= {MANIFEST, OVERLAY} and MANIFEST in self.inputs)
        for name in (MANIFEST, OVERLAY):
            _fail_unless(digest_of(self._read_input(name)) == self.inputs[name] if name in self.inputs else not os.path.lexists(f"{self.root}/{name}"))
        _fail_unless(not find_unlisted_files(self.root, self.outputs) and not os.path.lexists(f"{self.root}/{WORK}"))

    def _read_input(self, name: str) -> bytes:
        """A manifest may be a link."""
        path = f"{self.root}/{name}"
        _fail_unless(stat.S_ISREG(os.stat(path).st_mode))
        with open(path, "rb") as stream:
            return stream.read(_LARGEST)

    def read_rendered_file(self, path: str) -> bytes:
        """A rendered file, which is what the lock says."""
        data = read_file(self.root, path)
        _fail_unless(digest_of(data) == self.outputs[path])
        return data

    def check_all(self) -> None:
        """Every file that is rendered."""
        # A render by Landlock leaves word of each time, and a flake that is written by hand gets a hint.
        _fail_unless(self.note["backend"] != "landlock")
        _fail_unless(self.note["flake"] == ("flake.nix" in self.outputs) and (self.note["flake"] or not os.path.lexists(f"{self.root}/flake.nix")))
        for path in self.outputs:
            self.read_rendered_file(path)
        _fail_unless(all(os.access(f"{self.root}/{path}", os.X_OK) for path in self.note["executable"]))
        for path in self.note["required"]:
            _fail_unless(stat.S_ISREG(os.lstat(f"{self.root}/{path}").st_mode))


def _fail_unless(holds: object) -> None:
    if not holds:
        raise ValueError


def digest_of(data: bytes) -> str:
    """As the lock has it."""
    return f"sha256:{sha256(data).hexdigest()}"


def read_file(root: str, name: str) -> bytes:
    """A file of the project that is no link, and behind none. Raises OSError and ValueError."""
    path = f"{root}/{name}"
    _fail_unless(os.path.realpath(os.path.dirname(path)) == os.path.dirname(path))
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(handle, "rb") as stream:
        _fail_unless(stat.S_ISREG(os.fstat(handle).st_mode))
        return stream.read(_LARGEST)


def unchanged_project_root() -> str:
    """The project where all is as it was rendered last, and would be rendered again; empty where that is not sure."""
    try:
        found = _Unchanged()
        found.check_all()
    except Exception:  # noqa: BLE001  the long way says what is wrong
        return ""
    return found.root


def is_up_to_date() -> bool:
    """Whether a render has nothing to write, neither here nor in the project's repositories; then it says so."""
    from wavegen.project import repository  # which `run` does not need

    root = unchanged_project_root()
    try:
        if not root or repository.pin_repository_settings(root, only_look=True):
            return False
        sys.stdout.write("up to date\n")
        sys.stdout.flush()
    except OSError:
        return False  # the long way says what is wrong
    return True


def run_if_unchanged(words: Sequence[str]) -> None:
    """Become the command of `wavegen run WORDS...`, where nothing but a shell is named and all is as it was rendered; else come back."""
    shell: str | None = None
    rest = list(words)
    if len(rest) > 1 and rest[0] in ("-s", "--shell"):
        shell, rest = rest[1], rest[2:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    elif rest and rest[0].startswith("-"):
        return
    try:
        found = _Unchanged()
        # An empty name is a variable that was not set, and must not stand for another shell. A shell without a sandbox is named by whoever asks, or
        # by the manifest: no note leads there.
        shell = shell if shell is not None else "default" if found.note["shell"] == "default" else ""
        _fail_unless(found.note["backend"] == "bubblewrap" and shell and shell != "base" and not shell.startswith("persona-"))
        handover.exec_launcher(handover.read_launch(found.read_rendered_file, shell, "bpf"), found.root, ("--backend", "bubblewrap"), rest)
    except Exception:  # noqa: BLE001  the long way says what is wrong
        return
