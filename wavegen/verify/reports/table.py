"""A run's findings as a table for people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from wavegen.core.errors import one_line
from wavegen.core.terminal import Style, apply_style
from wavegen.verify import score
from wavegen.verify.model import Finding, Group, Report, ShellReport, Verdict

_WIDTH = 100
_VERDICT_WIDTH = max(len(verdict.value) for verdict in Verdict)
_STYLES = {Verdict.HELD: Style.GOOD, Verdict.BROKEN: Style.BAD, Verdict.INCONCLUSIVE: Style.WARNING, Verdict.OPEN: Style.NOTE}


def render_verdict_table(report: Report, *, verbose: bool, colour: bool) -> Iterator[str]:
    """Lines: a section per shell with what did not hold (with `verbose`, everything), what got worse, and how it ended."""
    yield from _wrap_to_width(f"{report.name}: {report.manifest}, checked by {report.via}", "", "    ")
    for shell in report.shells:
        yield ""
        yield from _shell_lines(shell, verbose=verbose, colour=colour)
    if report.worse:
        yield ""
        yield "worse than in the baseline"
        for line in report.worse:
            yield from _wrap_to_width(line, "  ", "    ")
    for note in report.notes:
        yield ""
        yield from _wrap_to_width(f"note: {note}", "", "    ")
    yield ""
    yield _ending_line(report, colour=colour)


def summarize_shell(shell: ShellReport) -> str:
    """`118 held, 0 broken, 3 inconclusive, 9 open; exposure 1.2 of 10: guarded`."""
    parts = [", ".join(f"{count} {verdict.value.lower()}" for verdict, count in score.count_verdicts(shell.findings).items())]
    exposure = score.exposure_score(shell)
    if exposure is not None:
        parts.append(f"exposure {exposure} of 10: {score.rate_exposure(exposure)}")
    return "; ".join(parts)


def _shell_lines(shell: ShellReport, *, verbose: bool, colour: bool) -> Iterator[str]:
    name = f"shell {shell.shell}: {'fenced' if shell.fenced else 'NOT SANDBOXED'}"
    header = f"{name}, {summarize_shell(shell)}"
    if not shell.fenced and not verbose:
        yield _cut_to_width(one_line(f"{name}, could not be checked: {shell.error}" if shell.error else header))
        return
    yield from _wrap_to_width(header, "", "    ")
    if shell.error:
        yield from _wrap_to_width(f"could not be checked: {shell.error}", "  ", "    ")
    for group in Group:
        shown = [f for f in shell.findings if f.case.probe.group is group and (verbose or f.verdict is not Verdict.HELD)]
        if shown:
            yield f"  {group.value}"
        short = [finding for finding in shown if not (verbose or finding.is_failure)]
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
        together.setdefault((finding.verdict, reason), []).append(finding.case.stable_id)
    for (verdict, reason), ids in together.items():
        lines = list(_wrap_to_width(f"{', '.join(ids)}: {reason}", margin, margin))
        yield f"    {_padded_verdict(verdict, colour=colour)}  {lines[0][len(margin) :]}"
        yield from lines[1:]


def _in_full(finding: Finding, *, colour: bool) -> Iterator[str]:
    """The question, what the verdict rests on, and who asked for it."""
    margin = " " * (4 + _VERDICT_WIDTH + 2)
    case = finding.case
    lines = list(_wrap_to_width(one_line(case.stable_id), margin, margin))
    yield f"    {_padded_verdict(finding.verdict, colour=colour)}  {lines[0][len(margin) :]}"
    yield from lines[1:]
    note = (("note", case.expectation.note),) if case.expectation.note else ()
    rows = (("asks", case.probe.question), ("why", finding.why), ("layer", case.expectation.layer), ("from", str(case.expectation.origin)), *note)
    for label, text in rows:
        yield from _wrap_to_width(text, f"{margin}{label + ':':<7}", margin + " " * 7)


def _ending_line(report: Report, *, colour: bool) -> str:
    findings = score.fenced_findings(report)
    number = score.count_verdicts(findings)
    match score.exit_code(report):
        case score.PASSED:
            verdict, text = Verdict.HELD, f"held: {_cases_phrase(number[Verdict.HELD])} held, {number[Verdict.OPEN]} open by the policy"
            if number[Verdict.INCONCLUSIVE]:
                text += f", {number[Verdict.INCONCLUSIVE]} could not be told on this machine"
        case score.BROKEN:
            broken = (f"{_cases_phrase(number[Verdict.BROKEN])} did not hold",) if number[Verdict.BROKEN] else ()
            worse = (f"{len(report.worse)} worse than in the baseline",) if report.worse else ()
            verdict, text = Verdict.BROKEN, "broken: " + ", ".join(broken + worse)
        case _:
            why = [f"shell {shell}" if shell else reason for shell, reason in score.unverified_shells(report)]
            unchecked = sum(finding.is_unchecked for finding in findings)
            why += [f"{_cases_phrase(unchecked)} that must be conclusive"] if unchecked else []
            verdict, text = Verdict.INCONCLUSIVE, "could not be checked: " + ", ".join(why)
    return _paint_by_verdict(_cut_to_width(one_line(text)), verdict, colour=colour)


def _cases_phrase(number: int) -> str:
    return "1 case" if number == 1 else f"{number} cases"


def _padded_verdict(verdict: Verdict, *, colour: bool) -> str:
    return _paint_by_verdict(verdict.value, verdict, colour=colour) + " " * (_VERDICT_WIDTH - len(verdict.value))


def _paint_by_verdict(text: str, verdict: Verdict, *, colour: bool) -> str:
    return apply_style(text, _STYLES[verdict], colour=colour)


def _cut_to_width(line: str) -> str:
    return line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…"


def _wrap_to_width(text: str, first: str, others: str) -> list[str]:
    """The text in lines of a terminal's width."""
    wrapped = textwrap.wrap(one_line(text), _WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False)
    return wrapped or [first.rstrip()]
