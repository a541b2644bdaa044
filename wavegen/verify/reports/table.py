"""A run's findings as a table for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from wavegen.core.errors import one_line
from wavegen.core.terminal import Style, painted
from wavegen.verify import score
from wavegen.verify.model import Finding, Group, Report, ShellReport, Verdict

_WIDTH = 100
_VERDICT_WIDTH = max(len(verdict.value) for verdict in Verdict)
_STYLES = {Verdict.HELD: Style.GOOD, Verdict.BROKEN: Style.BAD, Verdict.INCONCLUSIVE: Style.WARNING, Verdict.OPEN: Style.NOTE}


def table(report: Report, *, verbose: bool, colour: bool) -> Iterator[str]:
    """Lines: a section per shell with what did not hold (with `verbose`, everything), what got worse, and how it ended."""
    yield from _wrapped(f"{report.name}: {report.manifest}, checked by {report.via}", "", "    ")
    for shell in report.shells:
        yield ""
        yield from _shell(shell, verbose=verbose, colour=colour)
    if report.worse:
        yield ""
        yield "worse than in the baseline"
        for line in report.worse:
            yield from _wrapped(line, "  ", "    ")
    for note in report.notes:
        yield ""
        yield from _wrapped(f"note: {note}", "", "    ")
    yield ""
    yield _ending(report, colour=colour)


def summary(shell: ShellReport) -> str:
    """`118 held, 0 broken, 3 inconclusive, 9 open; exposure 1.2 of 10: guarded`."""
    parts = [", ".join(f"{count} {verdict.value.lower()}" for verdict, count in score.counts(shell.findings).items())]
    exposure = score.exposure(shell)
    if exposure is not None:
        parts.append(f"exposure {exposure} of 10: {score.rating(exposure)}")
    return "; ".join(parts)


def _shell(shell: ShellReport, *, verbose: bool, colour: bool) -> Iterator[str]:
    name = f"shell {shell.shell}: {'fenced' if shell.fenced else 'NOT SANDBOXED'}"
    header = f"{name}, {summary(shell)}"
    if not shell.fenced and not verbose:
        yield _cut(one_line(f"{name}, could not be checked: {shell.error}" if shell.error else header))
        return
    yield from _wrapped(header, "", "    ")
    if shell.error:
        yield from _wrapped(f"could not be checked: {shell.error}", "  ", "    ")
    for group in Group:
        shown = [f for f in shell.findings if f.case.probe.group is group and (verbose or f.verdict is not Verdict.HELD)]
        if shown:
            yield f"  {group.value}"
        short = [finding for finding in shown if not (verbose or finding.fails)]
        for finding in (finding for finding in shown if finding not in short):
            yield from _in_full(finding, colour=colour)
        yield from _in_short(short, colour=colour)


def _in_short(findings: Sequence[Finding], *, colour: bool) -> Iterator[str]:
    """A line for all that have one verdict for one reason."""
    margin = " " * (4 + _VERDICT_WIDTH + 2)
    together: dict[tuple[Verdict, str], list[str]] = {}
    for finding in findings:
        # What follows the reason is about single targets.
        reason = finding.case.expectation.note or finding.why.partition(": ")[0]
        together.setdefault((finding.verdict, reason), []).append(finding.case.id)
    for (verdict, reason), ids in together.items():
        lines = list(_wrapped(f"{', '.join(ids)}: {reason}", margin, margin))
        yield f"    {_verdict(verdict, colour=colour)}  {lines[0][len(margin) :]}"
        yield from lines[1:]


def _in_full(finding: Finding, *, colour: bool) -> Iterator[str]:
    """The question, what the verdict rests on, and who asked for it."""
    margin = " " * (4 + _VERDICT_WIDTH + 2)
    case = finding.case
    lines = list(_wrapped(one_line(case.id), margin, margin))
    yield f"    {_verdict(finding.verdict, colour=colour)}  {lines[0][len(margin) :]}"
    yield from lines[1:]
    note = (("note", case.expectation.note),) if case.expectation.note else ()
    rows = (("asks", case.probe.question), ("why", finding.why), ("layer", case.expectation.layer), ("from", str(case.expectation.origin)), *note)
    for label, text in rows:
        yield from _wrapped(text, f"{margin}{label + ':':<7}", margin + " " * 7)


def _ending(report: Report, *, colour: bool) -> str:
    findings = score.fenced_findings(report)
    number = score.counts(findings)
    match score.exit_code(report):
        case score.PASSED:
            verdict, text = Verdict.HELD, f"held: {_cases(number[Verdict.HELD])} held, {number[Verdict.OPEN]} open by the policy"
            if number[Verdict.INCONCLUSIVE]:
                text += f", {number[Verdict.INCONCLUSIVE]} could not be told on this machine"
        case score.BROKEN:
            broken = (f"{_cases(number[Verdict.BROKEN])} did not hold",) if number[Verdict.BROKEN] else ()
            worse = (f"{len(report.worse)} worse than in the baseline",) if report.worse else ()
            verdict, text = Verdict.BROKEN, "broken: " + ", ".join(broken + worse)
        case _:
            why = [f"shell {shell}" if shell else reason for shell, reason in score.obstacles(report)]
            unchecked = sum(finding.unchecked for finding in findings)
            why += [f"{_cases(unchecked)} that must be conclusive"] if unchecked else []
            verdict, text = Verdict.INCONCLUSIVE, "could not be checked: " + ", ".join(why)
    return _painted(_cut(one_line(text)), verdict, colour=colour)


def _cases(number: int) -> str:
    return "1 case" if number == 1 else f"{number} cases"


def _verdict(verdict: Verdict, *, colour: bool) -> str:
    return _painted(verdict.value, verdict, colour=colour) + " " * (_VERDICT_WIDTH - len(verdict.value))


def _painted(text: str, verdict: Verdict, *, colour: bool) -> str:
    return painted(text, _STYLES[verdict], colour=colour)


def _cut(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _wrapped(text: str, first: str, others: str) -> list[str]:
    """The text in lines of a terminal's width."""
    wrapped = textwrap.wrap(one_line(text), _WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return wrapped or [first.rstrip()]
