"""An answer to whether something is reached: by which rule, in which fence, and what would change it. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from wavegen.manifest.model import BackendName
from wavegen.policy.model import Origin, Plan, Policy


class Verdict(Enum):
    """Whether it is let through."""

    ALLOWED = "allowed"
    PARTLY = "partly"
    """Some of it, or with some arguments."""
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one fence says about one thing."""

    kind: str
    what: str
    shell: str
    """The shell, or persona-NAME."""
    verdict: Verdict
    detail: str
    """How, or why not."""
    origin: Origin
    fences: tuple[str, ...]
    """What holds it."""
    notes: tuple[str, ...] = ()
    change: tuple[str, ...] = ()
    """What to write so that it would be otherwise."""


def fences_of(plan: Plan, policy: Policy) -> tuple[str, ...]:
    """What stands around the commands of a shell, the manifest's own back end first."""
    if not policy.fenced:
        return ()
    if plan.backend is BackendName.LANDLOCK:
        return ("Landlock", "bwrap")
    return ("docker", "bwrap") if plan.backend is BackendName.DOCKER else ("bwrap", "docker")
