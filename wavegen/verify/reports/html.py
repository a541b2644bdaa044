"""A run as one page for people: what was tried against what came of it in each shell."""

from __future__ import annotations

from dataclasses import dataclass

from wavegen.backends.templates import fill_template
from wavegen.verify import score
from wavegen.verify.model import Case, Finding, Group, Report, Severity, ShellReport, Verdict

_MARKS = {Verdict.HELD: "✓", Verdict.BROKEN: "✗", Verdict.INCONCLUSIVE: "?", Verdict.OPEN: "○"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """A verdict or group that the rows can be filtered by; `key` is a class and, with a prefix, an id."""

    key: str
    label: str
    mark: str = ""
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fact:
    name: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """What came of a case in a shell; `verdict` is empty where the shell has no such case."""

    key: str
    mark: str
    verdict: str
    remark: str
    facts: tuple[_Fact, ...]
    fails: bool
    control: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    anchor: str
    id: str
    question: str
    severity: str
    verdicts: tuple[str, ...]
    """The classes of the verdicts that the row is shown for."""
    cells: tuple[_Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    key: str
    title: str
    verdicts: tuple[str, ...]
    rows: tuple[_Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A shell, in the head of the page and of the table."""

    name: str
    kind: str
    fenced: bool
    exposure: str
    rating: str
    counts: tuple[_Choice, ...]
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trouble:
    """Something that makes the run fail; `anchor` is the row that it is about, if it is about one."""

    key: str
    label: str
    anchor: str
    word: str
    text: str


def as_html(report: Report) -> str:
    """The page. It holds no script and loads nothing; its filters are CSS, and without them everything is shown."""
    shells = (*(s for s in report.shells if s.fenced), *(s for s in report.shells if not s.fenced))
    sections = _sections_by_group(shells)
    return fill_template(
        "verify.html.j2",
        name=report.name,
        manifest=report.manifest,
        via=report.via,
        outcome=_overall_outcome(report),
        notes=report.notes,
        shells=tuple(_shell_column(shell) for shell in shells),
        span=len(shells) + 1,
        troubles=_list_troubles(report, sections),
        verdicts=_verdict_choices(score.fenced_findings(report)),
        groups=tuple(_Choice(key=section.key, label=section.title, count=len(section.rows)) for section in sections),
        sections=sections,
        weights=", ".join(f"{severity.name.lower()} {severity.value}" for severity in Severity),
    )


def _overall_outcome(report: Report) -> _Choice:
    match score.exit_code(report):
        case score.PASSED:
            verdict, label = Verdict.HELD, "The fence held."
        case score.BROKEN:
            verdict, label = Verdict.BROKEN, "The fence is broken, or holds less than it did."
        case _:
            verdict, label = Verdict.INCONCLUSIVE, "The fence could not be checked in full."
    return _Choice(key=_verdict_key(verdict), label=label, mark=_MARKS[verdict], count=score.exit_code(report))


def _shell_column(shell: ShellReport) -> _Column:
    exposure = score.exposure_score(shell)
    return _Column(
        name=shell.shell,
        kind="fenced" if shell.fenced else "NOT SANDBOXED: the control",
        fenced=shell.fenced,
        exposure="" if exposure is None else str(exposure),
        rating="" if exposure is None else score.rate_exposure(exposure),
        counts=_verdict_choices(shell.findings),
        error=shell.error,
    )


def _verdict_choices(findings: tuple[Finding, ...]) -> tuple[_Choice, ...]:
    counted = score.count_verdicts(findings).items()
    return tuple(_Choice(key=_verdict_key(verdict), label=verdict.value.lower(), mark=_MARKS[verdict], count=count) for verdict, count in counted)


def _verdict_key(verdict: Verdict) -> str:
    return verdict.name.lower()


# --- the table


def _sections_by_group(shells: tuple[ShellReport, ...]) -> tuple[_Section, ...]:
    """A section per group that has cases. Cases are rows, in the order in which a shell first has them."""
    found = tuple({finding.case.stable_id: finding for finding in shell.findings} for shell in shells)
    cases: dict[str, Case] = {}
    for shell in shells:
        for finding in shell.findings:
            cases.setdefault(finding.case.stable_id, finding.case)
    rows: dict[Group, list[_Row]] = {group: [] for group in Group}
    for number, case in enumerate(cases.values(), 1):
        own = tuple(findings.get(case.stable_id) for findings in found)
        rows[case.probe.group].append(_case_row(f"case-{number}", case, shells, own))
    return tuple(_group_section(group, tuple(rows[group])) for group in Group if rows[group])


def _group_section(group: Group, rows: tuple[_Row, ...]) -> _Section:
    verdicts = tuple(_verdict_key(verdict) for verdict in Verdict if any(_verdict_key(verdict) in row.verdicts for row in rows))
    return _Section(key=group.name.lower(), title=group.value, verdicts=verdicts, rows=rows)


def _case_row(anchor: str, case: Case, shells: tuple[ShellReport, ...], findings: tuple[Finding | None, ...]) -> _Row:
    # The control's verdicts are of no interest to a filter, unless no other shell has the case.
    fenced = {finding.verdict for shell, finding in zip(shells, findings, strict=True) if finding and shell.fenced}
    shown = fenced or {finding.verdict for finding in findings if finding}
    return _Row(
        anchor=anchor,
        id=case.stable_id,
        question=case.probe.question,
        severity=case.probe.severity.name.lower(),
        verdicts=tuple(_verdict_key(verdict) for verdict in Verdict if verdict in shown),
        cells=tuple(_finding_cell(finding, fenced=shell.fenced) for shell, finding in zip(shells, findings, strict=True)),
    )


def _finding_cell(finding: Finding | None, *, fenced: bool) -> _Cell:
    if finding is None:
        return _Cell(key="", mark="", verdict="", remark="", facts=(), fails=False, control=not fenced)
    expectation = finding.case.expectation
    why = ("Why", finding.why)
    # Nothing stops anything where there is no fence.
    facts = (why, ("Layer", expectation.layer), ("From", str(expectation.origin)), ("Note", expectation.note)) if fenced else (why,)
    return _Cell(
        key=_verdict_key(finding.verdict),
        mark=_MARKS[finding.verdict],
        verdict=finding.verdict.value,
        remark="required" if finding.is_unchecked else "",
        facts=tuple(_Fact(name=name, text=text) for name, text in facts if text),
        fails=finding.is_failure and fenced,
        control=not fenced,
    )


# --- what makes the run fail


def _list_troubles(report: Report, sections: tuple[_Section, ...]) -> tuple[_Trouble, ...]:
    """What is broken, what got worse, and what could not be checked, in this order."""
    anchors = {row.id: row.anchor for section in sections for row in section.rows}
    failing = tuple((shell.shell, finding) for shell in report.shells if shell.fenced for finding in shell.findings if finding.is_failure)
    findings = tuple(_finding_trouble(shell, finding, anchors[finding.case.stable_id]) for shell, finding in failing)
    broken = _verdict_key(Verdict.BROKEN)
    return (
        *(trouble for trouble in findings if trouble.key == broken),
        *(_Trouble(key=broken, label="baseline", anchor="", word="WORSE", text=line) for line in report.worse),
        *(
            _Trouble(key=_verdict_key(Verdict.INCONCLUSIVE), label=shell or "run", anchor="", word="UNCHECKED", text=why)
            for shell, why in score.unverified_shells(report)
        ),
        *(trouble for trouble in findings if trouble.key != broken),
    )


def _finding_trouble(shell: str, finding: Finding, anchor: str) -> _Trouble:
    verdict = finding.verdict
    return _Trouble(
        key=_verdict_key(verdict),
        label=f"{shell}: {finding.case.stable_id}",
        anchor=anchor,
        word=verdict.value,
        text=f"{finding.case.probe.question} {finding.why}",
    )
