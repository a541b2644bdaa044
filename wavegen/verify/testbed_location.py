"""Where a throw-away project may lie: where nobody else can exchange what is in it, nor any shell write."""

from __future__ import annotations

import os
import tempfile

from wavegen.core.errors import MachineError, one_line
from wavegen.core.host_programs import is_path_within
from wavegen.policy.model import Access, Anchor
from wavegen.project.loader import Project
from wavegen.project.state_dir import is_ours

_LONGEST = 190


def place_for(project: Project, under: str | None) -> str:
    """A directory for all of it: where nobody else can exchange what is in it, nor any shell write.

    Temporary files are private in every shell, also of other projects; beside the project, agents may be at work. Programs
    must be able to run there.
    """
    candidates = (under,) if under else (tempfile.gettempdir(), "/var/tmp")
    for candidate in candidates:
        place = os.path.realpath(candidate)
        if _is_usable_place(place) and is_ours(place) and not _is_reachable_by_shell(place, project):
            return place
    hint = "name a directory that only you can write, in which programs may run, and that no shell shows: --under DIR"
    raise MachineError(f"{' and '.join(map(one_line, candidates))} cannot hold the throw-away project", hint)


def is_writable_directory(place: str) -> bool:
    """Whether things can be made in a directory."""
    return os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)


def _is_usable_place(place: str) -> bool:
    """Whether a project can lie there: its path, spelled as a file name, keeps its home."""
    known = place.isprintable() and len(place.replace("/", "%2F").encode()) < _LONGEST
    return known and is_writable_directory(place) and not os.statvfs(place).f_flag & os.ST_NOEXEC


def _is_reachable_by_shell(place: str, project: Project) -> bool:
    """Whether a shell may write there: in a project, or where the manifest grants something."""
    anchors = {Anchor.ROOT: "/", Anchor.HOME: os.path.expanduser("~"), Anchor.PROJECT: project.root}
    rules = [rule for shell in project.plan.all_fences() for rule in shell.paths if rule.origin.at and rule.path.anchor in anchors]
    granted = [os.path.realpath(os.path.join(anchors[rule.path.anchor], rule.path.tail)) for rule in rules if rule.access in (Access.READ, Access.WRITE)]
    if any(is_path_within(place, path) for path in (project.root, *granted)):
        return True
    while not os.path.lexists(os.path.join(place, ".wavegen/plan.json")):
        if place == "/":
            return False
        place = os.path.dirname(place)
    return True
