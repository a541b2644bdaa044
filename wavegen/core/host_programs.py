"""Programs of the host: the system's before those of the PATH, and never one that the project could have put there."""

from __future__ import annotations

import os

SYSTEM = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/run/current-system/sw/bin")


def is_path_within(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies below it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def path_entries_outside(root: str, path: str) -> tuple[str, ...]:
    """The entries of a PATH that are not in the project at `root`, nor relative, which would be the same."""
    return tuple(entry for entry in path.split(os.pathsep) if os.path.isabs(entry) and not _is_in_project(entry, root))


def find_host_program(name: str, root: str, places: tuple[str, ...]) -> str:
    """The path of a program in the first of these places that has it outside of the project; empty where none has."""
    for directory in places:
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK) and not _is_in_project(path, root):
            return path
    return ""


def _is_in_project(path: str, root: str) -> bool:
    return is_path_within(os.path.normpath(path), root) or is_path_within(os.path.realpath(path), root)
