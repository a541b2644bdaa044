"""A run as SARIF 2.1.0, as GitHub code scanning takes it: what fails, at the manifest line that asked for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from urllib.parse import quote

from wavegen.core.errors import Location, one_line
from wavegen.verify import score
from wavegen.verify.model import Finding, Probe, Report, Severity, Verdict

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_SECURITY = {Severity.CRITICAL: "9.5", Severity.HIGH: "8.0", Severity.MEDIUM: "5.0", Severity.LOW: "2.0"}
_SHELL, _BASELINE = "wavegen.shell", "wavegen.baseline"
_LONGEST = 1000
"""GitHub shows no more of a message."""
_LONGEST_DESCRIPTION = 500
"""GitHub takes 1024 characters, and markup doubles some."""
_MARKUP = str.maketrans({"\\": "\\\\", "[": "\\[", "]": "\\]", "{": "{{", "}": "}}"})
"""What would be a link or a placeholder in a SARIF message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    id: str
    description: str
    severity: Severity
    tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alert:
    rule: _Rule
    level: str
    text: str
    key: str
    """What tells it apart from others, the same from run to run."""
    at: Location | None = None


def as_sarif(report: Report, version: str) -> dict[str, object]:
    """The log: results for what makes the run fail, and a rule for each probe that has one."""
    alerts = (*_error_alerts(report), *_finding_alerts(report), *_regression_alerts(report))
    rules = {alert.rule.id: alert.rule for alert in alerts}
    places = {rule: place for place, rule in enumerate(rules)}
    driver = {"name": "wavegen", "version": version, "rules": [_rule_object(rule) for rule in rules.values()]}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "properties": {"via": one_line(report.via)},
        "results": [_result_object(alert, places[alert.rule.id], report.manifest) for alert in alerts],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _error_alerts(report: Report) -> list[_Alert]:
    rule = _Rule(id=_SHELL, description="A shell could not be checked", severity=Severity.HIGH, tag="identity")
    obstacles = score.unverified_shells(report)
    return [_Alert(rule=rule, level="warning", text=f"{shell}: {why}" if shell else why, key=shell) for shell, why in obstacles]


def _finding_alerts(report: Report) -> list[_Alert]:
    return [_alert_for_finding(shell.shell, finding) for shell in report.shells if shell.fenced for finding in shell.findings if finding.is_failure]


def _alert_for_finding(shell: str, finding: Finding) -> _Alert:
    expectation = finding.case.expectation
    low = finding.is_unchecked or finding.case.probe.severity is Severity.LOW
    said = "is broken" if finding.verdict is Verdict.BROKEN else "could not be checked"
    text = f"{shell}: {finding.case.stable_id} {said}: {finding.why} (layer: {expectation.layer}; from {expectation.origin})"
    key = f"{one_line(shell)}\0{one_line(finding.case.stable_id)}"
    return _Alert(rule=_probe_rule(finding.case.probe), level="warning" if low else "error", text=text, key=key, at=expectation.origin.at)


def _regression_alerts(report: Report) -> list[_Alert]:
    rule = _Rule(id=_BASELINE, description="A fence holds less than in the baseline", severity=Severity.HIGH, tag="baseline")
    # What changed, without how: shell and id, as for findings.
    return [_Alert(rule=rule, level="error", text=line, key=line.partition(" -> ")[0]) for line in report.worse]


def _probe_rule(probe: Probe) -> _Rule:
    return _Rule(id=one_line(probe.id), description=probe.question, severity=probe.severity, tag=probe.group.name.lower())


def _rule_object(rule: _Rule) -> dict[str, object]:
    text = _message_object(rule.description, _LONGEST_DESCRIPTION)
    return {
        "id": rule.id,
        "shortDescription": text,
        "fullDescription": text,
        "help": text,
        "properties": {"security-severity": _SECURITY[rule.severity], "precision": "very-high", "tags": ["security", rule.tag]},
    }


def _result_object(alert: _Alert, place: int, manifest: str) -> dict[str, object]:
    digest = hashlib.sha256(one_line(f"{alert.rule.id}\0{alert.key}").encode()).hexdigest()[:32]
    return {
        "ruleId": alert.rule.id,
        "ruleIndex": place,
        "level": alert.level,
        "message": _message_object(alert.text),
        "locations": [_location_object(alert.at or Location(manifest))],
        # GitHub reads the first alone; the upload would else derive it from the line, which several findings share.
        "partialFingerprints": {"primaryLocationLineHash": f"{digest}:1", "wavegenCase/v1": digest},
    }


def _location_object(at: Location) -> dict[str, object]:
    region = {"startLine": max(1, at.line)}
    if at.line > 0 and at.column > 0:
        region["startColumn"] = at.column
    # A colon would make a scheme of what precedes it, and a leading slash an absolute path.
    uri = quote(at.file.lstrip("/"), safe="/", errors="replace")
    return {"physicalLocation": {"artifactLocation": {"uri": uri, "uriBaseId": "%SRCROOT%"}, "region": region}}


def _message_object(text: str, longest: int = _LONGEST) -> dict[str, object]:
    line = one_line(text)
    short = line if len(line) <= longest else line[: longest - 1] + "…"
    return {"text": short.translate(_MARKUP)}
