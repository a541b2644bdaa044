"""What got worse since an earlier run, of which only its JSON document is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wavegen.core.errors import UsageError, one_line
from wavegen.verify.model import Report, ShellReport, Verdict
from wavegen.verify.reports.json_report import VERSION

_ORDER = (Verdict.HELD, Verdict.INCONCLUSIVE, Verdict.OPEN, Verdict.BROKEN)
_MISSED = (Verdict.HELD, Verdict.INCONCLUSIVE)
"""Where a case with these verdicts is gone, less is held or asked than before; without the others nothing is lost."""


@dataclass(frozen=True, slots=True)
class Before:
    """A fenced shell of the earlier run."""

    name: str
    failed: bool
    verdicts: dict[str, Verdict]


def parse_baseline(document: object) -> tuple[Before, ...]:
    """The fenced shells of an earlier run's parsed JSON. Raises UsageError for what is no such document."""
    return _parse_shells(document)


def find_regressions(before: tuple[Before, ...], report: Report, *, only: tuple[str, ...] = ()) -> tuple[str, ...]:
    """A line for each case and shell that is worse than in the earlier run: `shell: id: HELD -> BROKEN: why`.

    HELD is better than INCONCLUSIVE, that than OPEN, and that than BROKEN. What only this run has is no regression.
    `only`: the shells that were asked for, where not all were.
    """
    now = {one_line(shell.shell): shell for shell in report.shells}
    asked = [old for old in before if not only or old.name in only]
    return tuple(line for old in asked for line in _compare_shell(old, now.get(old.name)))


def _compare_shell(old: Before, new: ShellReport | None) -> Iterator[str]:
    missed = sum(verdict in _MISSED for verdict in old.verdicts.values())
    if new is None:
        if missed:
            yield f"{old.name}: fenced -> gone: this run has no such shell, where {missed} cases held or were inconclusive"
    elif not new.fenced:
        yield f"{old.name}: fenced -> NOT SANDBOXED: the shell has no fence any more"
    elif new.error:
        # It has no findings to compare: that it had some is said once.
        if not old.failed:
            yield one_line(f"{old.name}: checked -> could not be checked: {new.error}")
    else:
        yield from _compare_findings(old, new)


def _compare_findings(old: Before, new: ShellReport) -> Iterator[str]:
    verdicts = _worst_by_case((one_line(finding.case.stable_id), finding.verdict) for finding in new.findings)
    reasons = {(one_line(finding.case.stable_id), finding.verdict): finding.why for finding in new.findings}
    for case, was in old.verdicts.items():
        verdict = verdicts.get(case)
        if verdict is None:
            if was in _MISSED:
                yield f"{old.name}: {case}: {was.value} -> gone: this run has no such case"
        elif _ORDER.index(verdict) > _ORDER.index(was):
            yield one_line(f"{old.name}: {case}: {was.value} -> {verdict.value}: {reasons[case, verdict]}")


def _worst_by_case(verdicts: Iterable[tuple[str, Verdict]]) -> dict[str, Verdict]:
    """By id; ids tell cases apart, and if two should be the same the worse verdict counts."""
    found: dict[str, Verdict] = {}
    for case, verdict in verdicts:
        found[case] = max(found.get(case, verdict), verdict, key=_ORDER.index)
    return found


# --- reading the document


def _parse_shells(before: object) -> tuple[Before, ...]:
    match before:
        case {"version": int(version), "shells": list(shells)} if not isinstance(version, bool):
            if version != VERSION:
                raise _baseline_error(f"has version {version}, and this wavegen reads version {VERSION}")
            read = tuple(_read_shell(shell) for shell in shells)
        case _:
            raise _baseline_error('is no report: it is not an object with a number "version" and a list "shells"')
    names = [shell.name for shell, _ in read]
    if len(set(names)) < len(names):
        raise _baseline_error("has two shells of one name")
    return tuple(shell for shell, fenced in read if fenced)


def _read_shell(shell: object) -> tuple[Before, bool]:
    match shell:
        case {"name": str(name), "fenced": bool(fenced), "error": str(error), "findings": list(findings)}:
            return Before(one_line(name), bool(error), _worst_by_case(_read_finding(name, finding) for finding in findings)), fenced
        case _:
            raise _baseline_error("has a shell without name, fenced, error and findings")


def _read_finding(shell: str, finding: object) -> tuple[str, Verdict]:
    match finding:
        case {"id": str(case), "verdict": str(verdict)} if verdict in Verdict.__members__:
            return one_line(case), Verdict[verdict]
        case _:
            raise _baseline_error(f"has a finding of shell {shell} without an id and one of the verdicts {', '.join(Verdict.__members__)}")


def _baseline_error(what: str) -> UsageError:
    return UsageError(f"the baseline {what}", "write one with `wavegen verify --json >FILE`")
