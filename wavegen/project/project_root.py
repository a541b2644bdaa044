"""Which project is meant, and what its files are called. Little is imported: every start reads this."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

MANIFEST = "wave.yaml"
OVERLAY = "wave.sandbox.yaml"
TREE = ".wavegen"
LOCK = ".wavegen/lock.json"
CACHE = ".wavegen/launcher/__pycache__"
"""What the launcher compiled. It is believed only as the file that a start noted outside of the project (launcher/__main__.py)."""
WORK = ".wavegen/.tmp"
"""What a render is about to write; it is gone when a render has ended."""


def find_project(manifest: str | None) -> tuple[str, str]:
    """The project directory (absolute, without symlinks) and the manifest's name in it.

    The named file, else the nearest wave.yaml at or above the working directory; one that lies in a rendered project
    must be named, as a shell of that project may have written it. Raises UsageError.
    """
    if manifest is not None:
        if not os.path.lexists(manifest):
            raise _usage_error(f"{manifest} does not exist", "run wavegen init to write one")
        directory, name = os.path.split(manifest)
        if not name.isprintable() or not name:
            # It stands in the first line of every rendered file.
            raise _usage_error(f"{manifest!r} cannot be the name of a manifest", "rename it to wave.yaml")
        return os.path.realpath(directory or "."), name
    try:
        here = os.path.realpath(os.getcwd())
    except FileNotFoundError:
        raise _usage_error("the working directory is gone", "change to one that exists") from None
    while not os.path.lexists(os.path.join(here, MANIFEST)):
        above = os.path.dirname(here)
        if above == here:
            raise _usage_error(f"there is no {MANIFEST} here or above", "run wavegen init to write one, or name it with --manifest")
        here = above
    outer = os.path.dirname(here)
    while outer != os.path.dirname(outer):
        if os.path.lexists(os.path.join(outer, LOCK)):
            found = os.path.join(here, MANIFEST)
            raise _usage_error(f"{found} lies in the fenced project {outer}: a shell may have written it", f"read it, then name it: --manifest {found}")
        outer = os.path.dirname(outer)
    return here, MANIFEST


def _usage_error(what: str, hint: str) -> Exception:
    from wavegen.core.errors import UsageError

    return UsageError(what, hint)


def find_unlisted_files(root: str, listed: Container[str]) -> tuple[str, ...]:
    """What is below .wavegen and not listed, but for the lock and the launcher's cache: nothing of ours, whoever put it there. Sorted, as paths of the project."""
    top = os.path.join(root, TREE)
    found = []
    for where, folders, names in os.walk(top):
        shown = TREE + where[len(top) :]
        # A link to a directory is an entry, too; os.walk does not go there.
        names += [name for name in folders if os.path.islink(os.path.join(where, name))]
        folders[:] = [name for name in folders if f"{shown}/{name}" not in (CACHE, WORK)]
        found += [path for path in (f"{shown}/{name}" for name in names) if path != LOCK and path not in listed]
    return tuple(sorted(found))
