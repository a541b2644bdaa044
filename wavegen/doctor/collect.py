"""All checks in order, on a machine, for a manifest or for none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from wavegen import backends
from wavegen.core.errors import UsageError
from wavegen.doctor import Check, Needs, bubblewrap, engines, failed_check, kernel, nix, passed_check, programs, sandbox_names, weaker_check
from wavegen.doctor.machine import Machine
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Access, Anchor
from wavegen.policy.planner import plan_manifest
from wavegen.project import loader
from wavegen.project.project_root import MANIFEST, OVERLAY
from wavegen.project.rendered_tree import Finding, Reason, Tree, files_not_in_lock
from wavegen.project.state_dir import state_directory

_NOTHING = b"metadata: {name: none}\n"
"""What is taken where there is no manifest: the shells that every manifest has."""
_SHOWN = 4
_LOADED = (".wavegen/launcher/", ".wavegen/rules/")
_COMPARED = (*_LOADED, ".wavegen/bin/", ".wavegen/seccomp/")
"""What the launcher compares with the lock before it starts anything, and of that what must be there for any shell (launcher/__main__.py)."""

Look = Callable[[Machine, Needs], Iterator[Check]]
Progress = Callable[[str], None]
PARTS: tuple[tuple[str, Look], ...] = (
    (kernel.GROUP, kernel.check_kernel),
    (bubblewrap.GROUP, bubblewrap.check_bubblewrap),
    (programs.GROUP, programs.check_programs),
    (nix.GROUP, nix.check_nix),
    (engines.GROUP, engines.check_container_engines),
)


def load_project_if_present(manifest: str | None) -> loader.Project | None:
    """The project to look at; None where there is no manifest here or above and none was named. Raises WavegenError for a bad one."""
    if manifest is None and not _has_manifest_above():
        return None
    return loader.load_project(manifest, accept=True)


def _has_manifest_above() -> bool:
    try:
        here = os.path.realpath(os.getcwd())
    except FileNotFoundError:
        return False
    while not os.path.lexists(os.path.join(here, MANIFEST)):
        if here == os.path.dirname(here):
            return False
        here = os.path.dirname(here)
    return True


def writable_directories(loaded: loader.Project | None) -> tuple[str, ...]:
    """Where shells of the project may have put programs: the project, what is kept for it, and what is granted for writing."""
    if loaded is None:
        return ()
    home = os.path.expanduser("~")
    bases = {Anchor.ROOT: "/", Anchor.HOME: home, Anchor.PROJECT: loaded.root}
    granted = {
        os.path.realpath(os.path.join(bases[rule.path.anchor], rule.path.tail))
        for fence in loaded.plan.all_fences()
        for rule in fence.paths
        if fence.fenced and rule.access is Access.WRITE and rule.path.tail and rule.path.anchor in bases
    }
    return (loaded.root, os.path.dirname(state_directory(loaded.root)), *sorted(granted))


def machine_needs(loaded: loader.Project | None) -> Needs:
    """What is asked of the machine."""
    if loaded is None:
        return Needs(plan=plan_manifest(Source(MANIFEST, _NOTHING), None, OVERLAY))
    return Needs(plan=loaded.plan, root=loaded.root)


def run_all_checks(machine: Machine, loaded: loader.Project | None, progress: Progress) -> tuple[Check, ...]:
    """Look at everything. `progress` is told what is looked at, and nothing at the end."""
    needs = machine_needs(loaded)
    made: list[Check] = []
    for name, look in PARTS:
        progress(name)
        made += look(machine, needs)
    if loaded:
        progress("project")
        made += check_rendered_files(loaded, needs)
    progress("")
    return tuple(made)


def check_rendered_files(loaded: loader.Project, needs: Needs) -> Iterator[Check]:
    """Whether what is rendered is what the manifest says now: what `render --check` finds."""
    fences = tuple(fence for fence in needs.plan.all_fences() if fence.fenced)
    fatal = [gap for gap in backends.collect_gaps(loaded.plan) if gap.fatal]
    if fatal:
        yield failed_check("manifest", "project", fatal[0].what, fences, remedy=fatal[0].remedy)
        return
    try:
        differs = Tree(loaded.root, backends.render_all_files(loaded.plan), loaded.inputs).find_differences()
    except UsageError as wrong:
        yield failed_check("rendered", "project", str(wrong).removeprefix("wavegen: error: "), fences, remedy="see the message")
        return
    scripts = {f".wavegen/bin/{name}" for name in sandbox_names(fences)}
    missing = {finding.path for finding in differs if finding.reason is Reason.MISSING}
    edited = [finding for finding in differs if finding.reason is Reason.EDITED]
    compared = [finding for finding in edited if finding.path.startswith(_COMPARED)]
    strange = files_not_in_lock(loaded.root)
    if strange and loaded.known:
        what = f"{strange[0]} is not of wavegen: the lock does not list it"
        yield failed_check("rendered", "project", what, fences, remedy="look at it, then remove it")
    elif not differs:
        yield passed_check("rendered", "project", "up to date")
    elif any(path.startswith(_LOADED) for path in missing) or missing >= scripts:
        lacking = f"{len(missing)} files are missing" if len(missing) < len(differs) or loaded.known else "nothing is rendered"
        yield failed_check("rendered", "project", lacking, fences, remedy="run wavegen render", commands=("wavegen render",))
    elif compared:
        commands = ("wavegen render --diff", "wavegen render")
        yield failed_check("rendered", "project", _list_findings(compared), fences, remedy="read the difference, then render", commands=commands)
    elif edited:
        costs = "shells enforce these edited files, not the manifest"
        commands = ("wavegen render --diff", "wavegen render")
        yield weaker_check("rendered", "project", _list_findings(edited), costs, remedy="read the difference, then render", fences=fences, commands=commands)
    else:
        yield weaker_check(
            "rendered",
            "project",
            _list_findings(differs),
            "shells enforce an earlier version of the manifest",
            remedy="run wavegen render",
            fences=fences,
            commands=("wavegen render",),
        )


def _list_findings(found: list[Finding] | tuple[Finding, ...]) -> str:
    shown = "; ".join(map(str, found[:_SHOWN]))
    return shown + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")
