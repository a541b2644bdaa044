"""Probes: ways to get round a fence, what is expected of each in a shell, and what came of it. Values only.

A `Probe` is data. Applied to a shell's Policy it becomes `Case`s: what is tried, on what, and what must come of it,
which is derived from the Policy and never written for a shell. A `Finding` is a case that was judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

from wavegen.policy.model import HostPath, Origin, Policy

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
"""The kinds of namespaces(7), as /proc/PID/ns names them."""


class Group(Enum):
    """What a probe is about."""

    READ = "reading files"
    WRITE = "writing and persistence"
    LINKS = "links"
    PROCESS = "processes and privileges"
    KERNEL = "kernel surface"
    NETWORK = "network"
    ENVIRONMENT = "environment"
    RESOURCES = "resources"
    TERMINAL = "terminal"
    IDENTITY = "identity and launcher"


class Severity(Enum):
    """What it would cost if the fence did not hold; the value is the weight in the exposure score."""

    CRITICAL = 10
    HIGH = 5
    MEDIUM = 2
    LOW = 1


class Want(Enum):
    """What the policy says about a case."""

    STOPPED = "stopped"
    WORKS = "works"
    """A positive twin: a fence that lets nothing through would be no use, and would prove nothing."""
    OPEN = "open"
    """The policy lets it through, or says by a gap that it does not hold it."""


class Where(Enum):
    """How a case is tried."""

    INSIDE = "inside"
    """By inside/probe.py in the shell, without a terminal."""
    TERMINAL = "terminal"
    """The same with a terminal that is shared with the host."""
    LAUNCHER = "launcher"
    """From outside, by starting the shell in ways that should not work."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that only the ground knows on which a shell is tried: the number of a process, a port, a place."""

    name: str


@dataclass(frozen=True, slots=True)
class Inodes:
    """Paths of the host by which a process inside tells whether it sees the host's own: those that are there."""

    paths: tuple[HostPath, ...]
    shown: bool = False
    """Whether defaults show them: a copy with the same content will do, and / stands for each top-level directory that no rule hides."""


class Need(Enum):
    """What a machine must have for an expectation to hold; elsewhere a gap says so."""

    NOT_ROOT = "bound for real root's processes where limits are not written"
    BOUND_PROCESSES = "control groups, and nothing else bounds real root's processes"
    GROUPS = "control groups of version 2, by which alone a user's engine bounds memory"
    USERS = "user namespace for what root's engine starts"
    SCOPES = "Landlock with scopes (Linux 6.12)"


Value = str | int | HostPath | Fact | Inodes | tuple["Value", ...]
"""What an attempt is told; paths are made absolute and facts filled in when it is handed over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a policy says about a probe, by which layer of the fence, and which line asked for it."""

    want: Want
    layer: str
    origin: Origin
    subject: str = ""
    """What tells several cases of one probe apart: the path or name that a manifest line is about."""
    arguments: tuple[tuple[str, Value], ...] = ()
    note: str = ""
    """With OPEN: why it is open."""
    needs: Need | None = None
    """What the machine must have; where it has not, the case is open."""
    tried: bool = True
    """With OPEN: whether it is tried all the same; a bound that is not enforced would use the machine up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A way to get out. `expect` yields nothing where the probe has no meaning under a policy."""

    id: str
    question: str
    """Answered yes where the fence does not hold; of a positive twin, where it does."""
    group: Group
    severity: Severity
    attempt: str
    """The function that tries it: in the runtime, or (LAUNCHER) in the harness."""
    expect: Callable[[Policy], Iterable[Expectation]]
    where: Where = Where.INSIDE
    required: bool = True
    """Whether it must be conclusive on every machine: its target is planted, or is there everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A probe in one shell."""

    probe: Probe
    expectation: Expectation

    @property
    def stable_id(self) -> str:
        """The probe's id, and the subject where it has several: stable from run to run."""
        return f"{self.probe.id} {self.expectation.subject}" if self.expectation.subject else self.probe.id


class State(Enum):
    """What came of one target of an attempt."""

    REACHED = "reached"
    STOPPED = "stopped"
    UNKNOWN = "unknown"
    """It could not be tried: a missing tool, a time-out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One target of an attempt, and what came of it: an errno's name or a few words."""

    target: str
    state: State
    detail: str


class Verdict(Enum):
    """What a case showed."""

    HELD = "HELD"
    """Reachable outside and stopped inside; of a positive twin: works in both."""
    BROKEN = "BROKEN"
    INCONCLUSIVE = "INCONCLUSIVE"
    OPEN = "OPEN"
    """The policy lets it through. Neither a pass nor a failure; it counts as exposed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A case that was judged."""

    case: Case
    verdict: Verdict
    exposed: bool | None
    """Whether it was reached inside; None where that is not known, or the case is a positive twin."""
    why: str
    """What the verdict rests on, without paths of this machine or anything random: `~/.ssh/id_ed25519: ENOENT`."""

    @property
    def is_failure(self) -> bool:
        """Whether the run cannot pass with it."""
        return self.verdict is Verdict.BROKEN or self.is_unchecked

    @property
    def is_unchecked(self) -> bool:
        """A required case that is not conclusive."""
        return self.verdict is Verdict.INCONCLUSIVE and self.case.probe.required


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellReport:
    """All findings of one shell, in the catalogue's order."""

    shell: str
    fenced: bool
    findings: tuple[Finding, ...]
    error: str = ""
    """Why nothing could be checked: the shell did not start, or its fence did not come up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run. The control's findings, of the shell without a fence, come last."""

    name: str
    manifest: str
    via: str
    shells: tuple[ShellReport, ...]
    worse: tuple[str, ...] = ()
    """What got worse than in the baseline, a line each."""
    notes: tuple[str, ...] = ()
    """What the reader must know of how it was tried, a line each."""
