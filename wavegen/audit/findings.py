"""What a session left in the project that the host would run or follow: asks the launcher's audit, and shows what it says.

Everything in an answer was named by whoever ran inside: nothing of it is printed as it stands.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby

from wavegen.core.errors import MachineError, one_line
from wavegen.core.terminal import Style, apply_style
from wavegen.launcher.audit import command
from wavegen.launcher.audit.table import SEVERITIES


@dataclass(frozen=True, slots=True)
class Finding:
    """A thing that is new. `path` is relative to the project."""

    path: str
    severity: str
    kind: str
    what: str
    runs: str
    """Who runs or follows it."""
    detail: str
    advice: str
    incomplete: bool
    """Whether it, or what is in it, could not be looked at."""


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found, worst first."""

    findings: tuple[Finding, ...]
    entered: datetime | None
    """The first entry that is not accepted; None where there is none, and nothing is new."""
    baseline: bool
    """Whether there is one."""
    complete: bool
    text: str
    """The answer as it came, JSON."""

    @property
    def audit_exit_status(self) -> int:
        """The exit status: 3 where not everything could be looked at, 1 where something was found."""
        if not self.complete:
            return 3
        return 1 if self.findings else 0


def collect_audit_findings(root: str, state: str, *, everything: bool = False) -> Audit:
    """Look, and change nothing. `state` is the project's directory of what wavegen keeps. Raises MachineError.

    `everything`: whatever the baseline does not hold is listed, whenever it came.
    """
    try:
        walk = command.run_project_audit(root, state, everything=everything)
    except _FAILURES as failed:
        raise MachineError(f"the audit failed: {failed}", "see whether the project can be read") from None
    findings = tuple(Finding(f.path, f.severity, f.kind, f.what, f.runs, f.detail, command.advice_for_finding(f), f.incomplete) for f in walk.findings)
    entered = None if walk.entered is None else datetime.fromtimestamp(walk.entered / 1e9, UTC)
    is_complete = not any(finding.incomplete for finding in findings)
    return Audit(findings, entered, bool(walk.accepted_baseline.things), is_complete, command.audit_json_text(walk) + "\n")


def accept_current_state(root: str, state: str) -> None:
    """Take what is there now for known; of sessions that go on, what they change from now on is new. Raises MachineError."""
    os.makedirs(state, mode=0o700, exist_ok=True)
    try:
        command.accept_baseline(root, state)
    except _FAILURES as failed:
        raise MachineError(f"the baseline cannot be written: {failed}", f"make room in {state}") from None


_FAILURES = (OSError, RecursionError, ValueError, MemoryError, LookupError, TypeError)
"""What an audit raises over what somebody inside may have made."""


def at_least(findings: Iterable[Finding], severity: str) -> tuple[Finding, ...]:
    """Those that are as bad, or worse."""
    worst = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return tuple(finding for finding in findings if finding.severity in worst)


_STYLES = {"critical": Style.BAD, "high": Style.BAD, "medium": Style.WARNING, "low": Style.NOTE}


def render_finding_table(findings: Sequence[Finding], *, colour: bool) -> Iterator[str]:
    """Lines for people, under one heading for each severity."""
    for severity, group in groupby(findings, key=lambda finding: finding.severity):
        yield apply_style(severity, _STYLES[severity], colour=colour)
        for finding in group:
            detail = f", {finding.detail}" if finding.detail else ""
            yield one_line(f"  {finding.path or '.'}: {finding.what}{detail} ({finding.runs}; {finding.advice})")
