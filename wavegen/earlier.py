"""The plan of a project as it was at a revision of its repository. Nothing is checked out, and nothing of the repository is run."""

from __future__ import annotations

from wavegen import git
from wavegen.errors import ManifestError, UsageError
from wavegen.nodes import Source
from wavegen.planner import plan
from wavegen.policy import Plan
from wavegen.project import Project
from wavegen.project_root import OVERLAY


def earlier(project: Project, revision: str) -> Plan:
    """The plan of the manifest, and of the overlay where there was one, at a revision. Raises UsageError and MachineError."""
    name = project.plan.manifest
    commit = git.commit(project.root, revision)
    found = git.file(project.root, commit, name)
    if found is None:
        raise UsageError(f"there is no {name} at {revision}", "name a revision that has one; all of a new manifest is new")
    overlay = git.file(project.root, commit, OVERLAY)
    try:
        return plan(Source(name, found), Source(OVERLAY, overlay) if overlay is not None else None, OVERLAY)
    except ManifestError as bad:
        raise UsageError(f"the manifest of {revision} cannot be used: {bad.problems[0].line()}", "name a revision whose manifest renders") from None
