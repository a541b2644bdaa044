"""What this machine can hold of a manifest, and why not: checks as values. Who runs them is collect.py, who shows them show.py."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from wavegen.core.errors import MachineError
from wavegen.explain.known_errors import Trouble, recognise_troubles
from wavegen.manifest.model import BackendName, Fallback
from wavegen.policy.model import Plan, Policy

VERSION = 1


class State(Enum):
    """What came of a check."""

    OK = "ok"
    WEAKER = "weaker"
    """It is there, and holds less."""
    MISSING = "missing"
    """It is not there, or does not work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at, or tried."""

    name: str
    """What it is about: the key of the JSON."""
    group: str
    state: State
    found: str
    """What is there."""
    costs: str = ""
    """What does not hold, or does not start; empty where all is well."""
    remedy: str = ""
    commands: tuple[str, ...] = ()
    """What mends it, as lines of a shell script that a person reads first."""
    shells: tuple[str, ...] = ()
    """The scripts of the manifest that cannot start (MISSING), or hold less (WEAKER); none where the manifest does not need it."""
    troubles: tuple[Trouble, ...] = ()
    """What was recognised in what a trial has said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a manifest asks of a machine. Without a manifest: what one asks that says nothing."""

    plan: Plan
    root: str = ""
    """The project's directory; empty where there is no manifest."""

    def started_by(self, backend: BackendName) -> tuple[Policy, ...]:
        """The fences that this back end holds."""
        return tuple(fence for fence in self.plan.all_fences() if fence.fenced) if self.plan.enabled and self.plan.backend is backend else ()

    def bubblewrap_sandboxes(self) -> tuple[Policy, ...]:
        """Those of bubblewrap."""
        return self.started_by(BackendName.BUBBLEWRAP)

    def filtered_sandboxes(self, backend: BackendName) -> tuple[Policy, ...]:
        """Those whose connections are judged."""
        return tuple(fence for fence in self.started_by(backend) if fence.network.mode.is_filtered)


def sandbox_names(fences: Iterable[Policy]) -> tuple[str, ...]:
    """What the fences are called."""
    return tuple(fence.name for fence in fences)


def failed_check(  # noqa: PLR0913  one for each field
    check: str,
    group: str,
    found: str,
    fences: Iterable[Policy],
    *,
    remedy: str,
    said: str = "",
    commands: tuple[str, ...] = (),
    hopeless: bool = False,
) -> Check:
    """A check of what fences cannot start without. `hopeless`: no fence at all can be built, and `fallback: warn` goes without."""
    fences = tuple(fences)
    bare = sandbox_names(fence for fence in fences if hopeless and fence.fallback is Fallback.WARN)
    stopped = tuple(name for name in sandbox_names(fences) if name not in bare)
    costs = [f"cannot start: {', '.join(stopped)}"] if stopped else []
    costs += [f"NOT SANDBOXED, as fallback: warn asks for: {', '.join(bare)}"] if bare else []
    return Check(
        name=check,
        group=group,
        state=State.WEAKER if bare and not stopped else State.MISSING,
        found=found,
        costs="; ".join(costs) or "nothing that this manifest needs",
        remedy=remedy,
        commands=commands,
        shells=stopped or bare,
        troubles=recognise_troubles(said),
    )


def weaker_check(  # noqa: PLR0913  one for each field
    check: str, group: str, found: str, costs: str, *, remedy: str = "", fences: Iterable[Policy] = (), commands: tuple[str, ...] = ()
) -> Check:
    """A check of what holds less than it could."""
    return Check(name=check, group=group, state=State.WEAKER, found=found, costs=costs, remedy=remedy, commands=commands, shells=sandbox_names(fences))


def passed_check(check: str, group: str, found: str) -> Check:
    """A check with which all is well."""
    return Check(name=check, group=group, state=State.OK, found=found)


def absent_check(  # noqa: PLR0913  one for each field
    check: str, group: str, found: str, costs: str, *, remedy: str = "", commands: tuple[str, ...] = ()
) -> Check:
    """A check of what is not there, and what the manifest does not need."""
    return Check(name=check, group=group, state=State.MISSING, found=found, costs=costs, remedy=remedy, commands=commands)


def exit_code_of_checks(checks: Iterable[Check]) -> int:
    """0 where all is there that the manifest needs, 1 where something of it holds less, 3 where a shell of it cannot start."""
    found = tuple(check for check in checks if check.shells)
    if any(check.state is State.MISSING for check in found):
        return MachineError.exit_code
    return int(any(check.state is State.WEAKER for check in found))
