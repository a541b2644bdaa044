"""A run as JUnit XML, for the test views of CI systems."""

from __future__ import annotations

from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from wavegen.core.errors import one_line
from wavegen.verify import score
from wavegen.verify.model import Finding, Report, ShellReport, Verdict

_OUTCOMES = {"failures": "failure", "errors": "error", "skipped": "skipped"}
"""The attribute of a suite that counts them, and the element below a case."""


def as_junit(report: Report) -> str:
    """The document: a suite per fenced shell, and where there is cause one for the control and one for the baseline.

    It fails where the run does. Every text is spelled in printable characters, as XML holds no others.
    """
    root = ET.Element("testsuites", name="wavegen verify")
    for shell in report.shells:
        if shell.fenced or shell.error:
            _add_shell_suite(root, shell)
    if any(not shell for shell, _ in score.unverified_shells(report)):
        suite = _add_suite(root, "wavegen")
        for _, why in score.unverified_shells(report):
            _add_case(suite, "wavegen", "a fence is checked", ("error", why, why))
    if report.worse:
        suite = _add_suite(root, "baseline")
        for line in report.worse:
            _add_case(suite, "wavegen.baseline", line.partition(" -> ")[0], ("failure", line, line))
    _set_counts(root)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _add_shell_suite(root: Element, shell: ShellReport) -> None:
    suite = _add_suite(root, shell.shell)
    if shell.error:
        _add_case(suite, f"wavegen.{shell.shell}", "the shell can be checked", ("error", shell.error, shell.error))
    if not shell.fenced:
        return
    for finding in shell.findings:
        probe = finding.case.probe
        _add_case(suite, f"wavegen.{shell.shell}.{probe.group.name.lower()}", f"{finding.case.stable_id} {probe.question}", _outcome_element(finding))


def _outcome_element(finding: Finding) -> tuple[str, str, str] | None:
    """The element that says that a case did not pass, its message, and its text."""
    expectation = finding.case.expectation
    details = "\n".join(one_line(line) for line in (finding.why, f"layer: {expectation.layer}", f"from: {expectation.origin}"))
    match finding.verdict:
        case Verdict.HELD:
            return None
        case Verdict.BROKEN:
            return "failure", finding.why, details
        case Verdict.INCONCLUSIVE:
            return ("error" if finding.is_unchecked else "skipped"), f"inconclusive: {finding.why}", details
        case Verdict.OPEN:
            return "skipped", f"open by the policy: {expectation.note or finding.why}", details


def _add_suite(root: Element, name: str) -> Element:
    return ET.SubElement(root, "testsuite", name=one_line(name))


def _add_case(suite: Element, classname: str, name: str, outcome: tuple[str, str, str] | None) -> None:
    case = ET.SubElement(suite, "testcase", classname=one_line(classname), name=one_line(name))
    if outcome:
        kind, message, details = outcome
        ET.SubElement(case, kind, message=one_line(message)).text = "\n".join(one_line(line) for line in details.split("\n"))


def _set_counts(root: Element) -> None:
    for element in (*root, root):
        element.set("tests", str(len(list(element.iter("testcase")))))
        for attribute, kind in _OUTCOMES.items():
            element.set(attribute, str(len(list(element.iter(kind)))))
