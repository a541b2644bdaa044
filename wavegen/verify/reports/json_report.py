"""A run as JSON values, for programs and for later runs to be compared with."""

from __future__ import annotations

from wavegen.core.errors import one_line
from wavegen.policy.model import Origin
from wavegen.verify import score
from wavegen.verify.model import Finding, Report, ShellReport

VERSION = 1


def as_json(report: Report) -> dict[str, object]:
    """The document: the same findings on the same kind of machine are the same bytes.

    Control characters are spelled out in every text, as in the other reports: a lone surrogate could not be written.
    """
    return {
        "version": VERSION,
        "name": one_line(report.name),
        "manifest": one_line(report.manifest),
        "via": one_line(report.via),
        "exit_code": score.exit_code(report),
        "worse": [one_line(line) for line in report.worse],
        "notes": [one_line(line) for line in report.notes],
        "shells": [_shell_as_json(shell) for shell in report.shells],
    }


def _shell_as_json(shell: ShellReport) -> dict[str, object]:
    exposure = score.exposure_score(shell)
    return {
        "name": one_line(shell.shell),
        "fenced": shell.fenced,
        "error": one_line(shell.error),
        "exposure": exposure,
        "rating": None if exposure is None else score.rate_exposure(exposure),
        "counts": {verdict.value: count for verdict, count in score.count_verdicts(shell.findings).items()},
        "findings": [_finding_as_json(finding) for finding in shell.findings],
    }


def _finding_as_json(finding: Finding) -> dict[str, object]:
    probe, expectation = finding.case.probe, finding.case.expectation
    return {
        "id": one_line(finding.case.stable_id),
        "probe": one_line(probe.id),
        "subject": one_line(expectation.subject),
        "question": one_line(probe.question),
        "group": probe.group.name.lower(),
        "severity": probe.severity.name.lower(),
        "want": expectation.want.value,
        "verdict": finding.verdict.value,
        "required": probe.required,
        "exposed": finding.exposed,
        "layer": one_line(expectation.layer),
        "origin": one_line(str(expectation.origin)),
        "at": _location_as_json(expectation.origin),
        "why": one_line(finding.why),
        "note": one_line(expectation.note),
    }


def _location_as_json(origin: Origin) -> dict[str, object] | None:
    if origin.at is None:
        return None
    return {"file": one_line(origin.at.file), "line": origin.at.line, "column": origin.at.column}
