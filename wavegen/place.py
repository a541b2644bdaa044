"""Where a throw-away project may lie: where nobody else can exchange what is in it, nor any shell write."""

from __future__ import annotations

import grp
import os
import stat
import tempfile

from wavegen.errors import MachineError, one_line
from wavegen.policy import Access, Anchor
from wavegen.project import Project
from wavegen.tools import within

_LONGEST = 190
_OVERFLOW = 65534
"""Whom a user namespace shows in place of those that it does not know."""


def place_for(project: Project, under: str | None) -> str:
    """A directory for all of it: where nobody else can exchange what is in it, nor any shell write.

    Temporary files are private in every shell, also of other projects; beside the project, agents may be at work. Programs
    must be able to run there.
    """
    candidates = (under,) if under else (tempfile.gettempdir(), "/var/tmp")
    for candidate in candidates:
        place = os.path.realpath(candidate)
        if _usable(place) and _ours(place) and not _in_reach(place, project):
            return place
    hint = "name a directory that only you can write, in which programs may run, and that no shell shows: --under DIR"
    raise MachineError(f"{' and '.join(map(one_line, candidates))} cannot hold the throw-away project", hint)


def writable(place: str) -> bool:
    """Whether things can be made in a directory."""
    return os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK)


def _usable(place: str) -> bool:
    """Whether a project can lie there: its path, spelled as a file name, keeps its home."""
    known = place.isprintable() and len(place.replace("/", "%2F").encode()) < _LONGEST
    return known and writable(place) and not os.statvfs(place).f_flag & os.ST_NOEXEC


def _ours(place: str) -> bool:
    """Whether nobody else can rename what is in it: neither there nor in a directory above."""
    while True:
        found = os.stat(place)
        others = stat.S_IWOTH if _private_group(found) else stat.S_IWOTH | stat.S_IWGRP
        if found.st_uid not in (0, os.geteuid(), _OVERFLOW) or (found.st_mode & others and not found.st_mode & stat.S_ISVTX):
            return False
        if place == "/":
            return True
        place = os.path.dirname(place)


def _private_group(found: os.stat_result) -> bool:
    """Whether the group is its owner's alone, as distributions make one for each user: by the number, and nobody else in it."""
    try:
        return found.st_gid == found.st_uid and not grp.getgrgid(found.st_gid).gr_mem
    except KeyError:
        return False


def _in_reach(place: str, project: Project) -> bool:
    """Whether a shell may write there: in a project, or where the manifest grants something."""
    anchors = {Anchor.ROOT: "/", Anchor.HOME: os.path.expanduser("~"), Anchor.PROJECT: project.root}
    rules = [rule for shell in project.plan.fences() for rule in shell.paths if rule.origin.at and rule.path.anchor in anchors]
    granted = [os.path.realpath(os.path.join(anchors[rule.path.anchor], rule.path.tail)) for rule in rules if rule.access in (Access.READ, Access.WRITE)]
    if any(within(place, path) for path in (project.root, *granted)):
        return True
    while not os.path.lexists(os.path.join(place, ".wavegen/plan.json")):
        if place == "/":
            return False
        place = os.path.dirname(place)
    return True
