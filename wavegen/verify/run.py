"""Entering every shell, trying to get out, and judging what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wavegen.backends import File, render_all_files
from wavegen.backends.sandboxes import docker
from wavegen.core.errors import DriftError, UsageError
from wavegen.manifest.decoder import suggest_spelling
from wavegen.policy.model import Access, Anchor, HostPath, Plan, Policy
from wavegen.project.loader import Project
from wavegen.project.rendered_tree import Tree
from wavegen.verify import containers
from wavegen.verify.catalogue import cases_for_policy
from wavegen.verify.expect import policy_rule_for
from wavegen.verify.expect_network import redirected_destinations
from wavegen.verify.launcher_probes import NOT_BY, try_from_outside
from wavegen.verify.model import Answer, Case, Finding, Need, Report, ShellReport, Want, Where
from wavegen.verify.session import Entry, Inside
from wavegen.verify.testbed import Ground, text_digest
from wavegen.verify.verdicts import control_finding, decide_verdict

CONTROL = "yolo"
"""The shell without a fence, in which everything must be reached that a fence is to stop."""

_SHOWN = 3

Progress = Callable[[str, int, int], None]
"""Called with the shell, how many cases are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Task:
    """A case as it is handed over: two of the same key are the same attempt on the same things."""

    case: Case
    arguments: dict[str, Any]

    @property
    def attempt_key(self) -> str:
        return json.dumps([self.case.probe.attempt, self.case.probe.where.value, self.arguments], sort_keys=True)


def select_policies(plan: Plan, names: Sequence[str], *, personas: bool) -> tuple[Policy, ...]:
    """The named shells and personas (persona-NAME), else all shells that have a fence, and `personas`. Raises UsageError."""
    known = tuple(fence.name for fence in plan.all_fences())
    for name in names:
        if name not in known:
            raise UsageError(f"there is no shell '{name}'", suggest_spelling(name, known) or f"shells: {', '.join(known)}")
    if names:
        return tuple(fence for fence in plan.all_fences() if fence.name in names)
    return tuple(fence for fence in (plan.all_fences() if personas else plan.shells) if fence.fenced)


def verify_project(  # noqa: PLR0913  by keyword, each with a default
    project: Project,
    *,
    shells: Sequence[str] = (),
    personas: bool = False,
    via: str = "wrapper",
    under: str | None = None,
    progress: Progress | None = None,
    files: tuple[File, ...] = (),
) -> Report:
    """Try every shell of a rendered project on a throw-away ground. Raises DriftError, MachineError and UsageError.

    `files`: what to run in place of what the plan renders; without it the project must hold just that.
    """
    policies = select_policies(project.plan, shells, personas=personas)
    if via == "nix" and not {policy.name for policy in policies} <= {shell.name for shell in project.plan.shells}:
        raise UsageError("nix develop enters shells, and no persona", "verify personas --via wrapper")
    rendered = files or render_all_files(project.plan)
    if not files:
        differing = Tree(project.root, rendered, project.inputs).find_differences()
        if differing:
            # Not run: it would be run on the host, too, and anybody may have written it.
            what = f"the rendered files differ from {project.plan.manifest}: {'; '.join(str(finding) for finding in differing[:_SHOWN])}"
            raise DriftError(what, "run wavegen render, and look at what it changes")
    if not project.plan.vendored and not files:
        # A throw-away project has nobody's home, in which a wavegen could be installed: there the same launcher is rendered.
        rendered = render_all_files(replace(project.plan, vendored=True))
    if via == "docker":
        rendered += _missing_persona_scripts(project.plan, policies, rendered)
        policies = container_policies(project, policies)
    told = progress or (lambda _shell, _done, _all: None)
    with _reset_umask_and_sigchld(), Ground(project, rendered, under=under, via=via) as ground:
        tasks = {policy.name: tasks_of(ground, policy) for policy in policies}
        outside = Run(ground, CONTROL, fenced=False, progress=told)
        outside.run_tasks(distinct_tasks(task for group in tasks.values() for task in group))
        ground.chown_new_files()
        reports = [_verify_shell(ground, policy, tasks[policy.name], outside, told) for policy in policies if policy.fenced]
        first: dict[str, Task] = {}
        for task in (task for group in tasks.values() for task in group):
            first.setdefault(task.case.stable_id, task)
        found = tuple(control_finding(task.case, outside.answers_for(task), outside.failure_reason(task)) for task in first.values())
        reports.append(ShellReport(shell=CONTROL, fenced=False, findings=found, error=outside.error))
        notes = _testbed_notes(ground, policies)
    return Report(name=project.plan.name, manifest=project.plan.manifest, via=via, shells=tuple(reports), notes=notes)


def _missing_persona_scripts(plan: Plan, policies: Iterable[Policy], rendered: tuple[File, ...]) -> tuple[File, ...]:
    """The scripts of personas that are rendered for none: `run` makes the same when it is asked for one."""
    known = {file.path for file in rendered}
    missing = (policy for policy in policies if policy.fenced and docker.script_file(policy) not in known)
    return tuple(docker.container_stub(plan, policy) for policy in missing)


def container_policies(project: Project, policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """What the policies say of a container."""
    variables, stores = containers.read_image_variables(project.root, project.plan.image.reference), containers.package_stores()
    return tuple(docker.policy_in_container(policy, stores=stores, variables=variables) if policy.fenced else policy for policy in policies)


def _testbed_notes(ground: Ground, policies: Iterable[Policy]) -> tuple[str, ...]:
    """What a rule for where the ground lies would have stopped anyhow."""
    where = HostPath(Anchor.ROOT, ground.base_directory.lstrip("/"))
    for rule in (policy_rule_for(policy, where) for policy in policies):
        if rule and rule.path.tail and rule.access in (Access.HIDE, Access.SCRATCH):
            what = f"it was tried in {rule.path}, which shells hide as a whole, and with it neighbours and other homes"
            return (f"{what} (--under DIR tries the rules for these alone)",)
    return ()


@contextlib.contextmanager
def _reset_umask_and_sigchld() -> Iterator[None]:
    """What a caller may hand down, and would disturb: files that nobody may read, and children that cannot be waited for."""
    mask, children = os.umask(0o022), signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        os.umask(mask)
        signal.signal(signal.SIGCHLD, children)


def tasks_of(ground: Ground, policy: Policy) -> tuple[Task, ...]:
    """Every case of a shell for which there is something to try on this ground."""
    found = []
    for case in (_adapt_to_machine(case, ground) for case in cases_for_policy(policy)):
        arguments = {name: ground.resolve_argument(value, policy) for name, value in case.expectation.arguments}
        if None not in arguments.values() and case.probe.attempt not in NOT_BY.get(ground.via, ()):
            found.append(Task(case, arguments))
    return tuple(found)


def _adapt_to_machine(case: Case, ground: Ground) -> Case:
    """The case as it is on this machine."""
    expectation = case.expectation
    if expectation.needs is None or ground.meets_need(expectation.needs):
        return case
    tried = expectation.needs not in (Need.NOT_ROOT, Need.BOUND_PROCESSES)  # they would use the machine up
    note = f"this machine has no {expectation.needs.value}"
    return replace(case, expectation=replace(expectation, want=Want.OPEN, layer="", note=note, tried=tried))


def distinct_tasks(tasks: Iterable[Task]) -> tuple[Task, ...]:
    """Each attempt once."""
    return tuple({task.attempt_key: task for task in tasks}.values())


def _verify_shell(ground: Ground, policy: Policy, tasks: tuple[Task, ...], outside: Run, told: Progress) -> ShellReport:
    inside = Run(ground, policy.name, fenced=True, progress=told, elsewhere=redirected_destinations(policy))
    if outside.error:
        return ShellReport(shell=policy.name, fenced=True, findings=(), error=f"the control did not run: {outside.error}")
    inside.run_tasks(tasks)
    if inside.error:
        return ShellReport(shell=policy.name, fenced=True, findings=(), error=inside.error)
    return ShellReport(shell=policy.name, fenced=True, findings=compare_runs(tasks, outside, inside))


def compare_runs(tasks: Iterable[Task], outside: Run, inside: Run) -> tuple[Finding, ...]:
    """The verdict on each case, from what came of it in the two."""
    return tuple(decide_verdict(task.case, outside.answers_for(task), inside.answers_for(task), inside.failure_reason(task)) for task in tasks)


class Run:
    """All attempts in one shell."""

    def __init__(self, ground: Ground, shell: str, *, fenced: bool, progress: Progress, elsewhere: Sequence[tuple[str, int]] = ()) -> None:
        self.entry = Entry(ground, shell, fenced=fenced, elsewhere=elsewhere)
        self.error = ""
        self._progress = progress
        self._inside = Inside()

    def run_tasks(self, tasks: Sequence[Task]) -> None:
        """Try them: inside, at a terminal, from outside. Nothing more where the shell is not what it should be."""
        tried = [task for task in tasks if task.case.expectation.tried]
        done = 0

        def report_progress() -> None:
            nonlocal done
            done += 1
            self._progress(self.entry.shell, done, len(tried))

        for where in (Where.INSIDE, Where.TERMINAL):
            handed = [
                {"id": task.attempt_key, "attempt": task.case.probe.attempt, "arguments": task.arguments} for task in tried if task.case.probe.where is where
            ]
            found = self.entry.run_attempts(
                handed, [text_digest(self.entry.ground.word), text_digest(self.entry.ground.marker)], report_progress, terminal=where is Where.TERMINAL
            )
            self._inside.answers |= found.answers
            self._inside.failed |= found.failed
            if found.error and where is Where.INSIDE:
                self.error = found.error
                return
            self._inside.failed |= dict.fromkeys((str(task["id"]) for task in handed), found.error) if found.error else {}
        for task in tried:
            if task.case.probe.where is Where.LAUNCHER:
                self._inside.answers[task.attempt_key] = try_from_outside(task.case.probe.attempt, self.entry, task.arguments)
                report_progress()

    def answers_for(self, task: Task) -> tuple[Answer, ...]:
        """What came of a case."""
        return self._inside.answers.get(task.attempt_key, ())

    def failure_reason(self, task: Task) -> str:
        """Why nothing came of it; empty where something did."""
        if not task.case.expectation.tried or task.attempt_key in self._inside.answers:
            return ""
        return self._inside.failed.get(task.attempt_key, "no answer")
