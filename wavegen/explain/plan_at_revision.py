"""The plan of a project as it was at a revision of its repository. Nothing is checked out, and nothing of the repository is run."""

from __future__ import annotations

from wavegen.core.errors import ManifestError, UsageError
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Plan
from wavegen.policy.planner import plan_manifest
from wavegen.project import git
from wavegen.project.loader import Project
from wavegen.project.project_root import OVERLAY


def load_plan_at_revision(project: Project, revision: str) -> Plan:
    """The plan of the manifest, and of the overlay where there was one, at a revision. Raises UsageError and MachineError."""
    name = project.plan.manifest
    commit = git.resolve_commit(project.root, revision)
    found = git.read_file_at_commit(project.root, commit, name)
    if found is None:
        raise UsageError(f"there is no {name} at {revision}", "name a revision that has one; all of a new manifest is new")
    overlay = git.read_file_at_commit(project.root, commit, OVERLAY)
    try:
        return plan_manifest(Source(name, found), Source(OVERLAY, overlay) if overlay is not None else None, OVERLAY)
    except ManifestError as bad:
        raise UsageError(f"the manifest of {revision} cannot be used: {bad.problems[0].message_line()}", "name a revision whose manifest renders") from None
