"""How much of what is reachable outside is reachable inside, as one number, and how a run ends. Pure."""

from __future__ import annotations

from wavegen.verify.model import Finding, Report, ShellReport, Verdict

PASSED, BROKEN, UNCHECKED = 0, 1, 3

_RATINGS = ((1.0, "tight"), (3.0, "guarded"), (6.0, "exposed"), (10.0, "open"))


def exposure_score(shell: ShellReport) -> float | None:
    """10 * the sum of the weights of what was reached inside / the sum of the weights of all that could be told.

    Weights: critical 10, high 5, medium 2, low 1. Positive twins and what is inconclusive are left out. 0 is a fence
    that nothing passes, 10 none at all, and rounding yields neither; None where nothing could be told.
    """
    counted = [(finding.case.probe.severity.value, finding.exposed) for finding in shell.findings if finding.exposed is not None]
    whole = sum(weight for weight, _ in counted)
    if not whole or shell.error:
        return None
    reached = sum(weight for weight, exposed in counted if exposed)
    if reached in (0, whole):
        return 10.0 if reached else 0.0
    return min(9.9, max(0.1, round(10 * reached / whole, 1)))


def rate_exposure(score: float) -> str:
    """A word for an exposure score."""
    return next(word for most, word in _RATINGS if score <= most)


def unverified_shells(report: Report) -> tuple[tuple[str, str], ...]:
    """Shells that could not be checked and why; a name is empty where no fence was checked at all."""
    found = tuple((shell.shell, shell.error) for shell in report.shells if shell.error)
    if not found and not fenced_findings(report):
        return (("", "no fence was checked: no case was tried in a fenced shell"),)
    return found


def fenced_findings(report: Report) -> tuple[Finding, ...]:
    """All findings that count: those of shells with a fence."""
    return tuple(finding for shell in report.shells if shell.fenced for finding in shell.findings)


def exit_code(report: Report) -> int:
    """1 where something is broken or got worse, else 3 where something required could not be checked, else 0."""
    findings = fenced_findings(report)
    if report.worse or any(finding.verdict is Verdict.BROKEN for finding in findings):
        return BROKEN
    if unverified_shells(report) or any(finding.is_unchecked for finding in findings):
        return UNCHECKED
    return PASSED


def count_verdicts(findings: tuple[Finding, ...]) -> dict[Verdict, int]:
    """How many findings there are of each verdict, in the order of `Verdict`."""
    return {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in Verdict}
