"""Finding a project's manifest and reading it into a plan."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from wavegen.core.errors import Problem, Severity, UsageError
from wavegen.policy.model import Plan
from wavegen.policy.planner import plan_manifest
from wavegen.project.project_root import OVERLAY, find_project
from wavegen.project.rendered_tree import read_lock, read_source, sha256_digest


@dataclass(frozen=True, slots=True)
class Project:
    """A project directory, its plan, and the digests of what the plan was made from."""

    root: str
    plan: Plan
    inputs: dict[str, str]
    known: frozenset[str]
    """The inputs of the last render, by name."""
    sources: dict[str, str]


def load_project(manifest: str | None, *, accept: bool = False) -> Project:
    """The project of a manifest, planned. Raises ManifestError or UsageError.

    A manifest or overlay that was not there at the last render is refused unless `accept`: mounts cannot keep a shell
    from creating a file that does not exist, and an agent could loosen its own fence with one.
    """
    root, name = find_project(manifest)
    source = read_source(root, name, name)
    if source is None:
        raise UsageError(f"{name} does not exist", "run wavegen init to write one")
    overlay = read_source(root, OVERLAY, OVERLAY)
    known = read_lock(root).inputs
    for new in (s.name for s in (source, overlay) if s and known and s.name not in known and not accept):
        raise UsageError(f"{new} is new since the last render: a shell may have written it", "read it, then run wavegen render --accept-new")
    sources = {s.name: s.data.decode("utf-8", "replace") for s in (source, overlay) if s}
    planned = plan_manifest(source, overlay, OVERLAY)
    inputs = {s.name: sha256_digest(s.data) for s in (source, overlay) if s}
    return Project(root, planned, inputs, frozenset(known), sources)


def path_notes(root: str) -> tuple[Problem, ...]:
    """What is special about using a flake at this path."""
    notes = []
    if "'" in root:
        what = f"in {root} `nix develop` starts no fence, as Nix puts the path between apostrophes unquoted"
        notes.append(Problem(at=None, severity=Severity.WARNING, what=what, hint="move the project, or use nix run or .wavegen/bin/SHELL"))
    if os.path.lexists(os.path.join(root, ".git")) and re.search(r"[^A-Za-z0-9/._~+@=,-]", root):
        what = f"Nix before 2.19 cannot read a flake in a git repository at {root}"
        notes.append(Problem(at=None, severity=Severity.NOTE, what=what, hint="there, use nix develop path:. or .wavegen/bin/SHELL"))
    return tuple(notes)
