"""From what was reached outside and inside to a verdict. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from wavegen.verify.model import Answer, Case, Finding, State, Verdict, Want

_SHOWN = 3


def decide_verdict(case: Case, outside: Sequence[Answer], inside: Sequence[Answer], failed: str = "") -> Finding:
    """The verdict on a case; `failed` says why there are no answers from inside."""
    # Of two answers about one target the one that speaks against the fence counts.
    worst = (State.STOPPED, State.UNKNOWN, State.REACHED) if case.expectation.want is Want.WORKS else (State.REACHED, State.UNKNOWN, State.STOPPED)
    there, here = _by_target(outside, worst), _by_target(inside, worst)
    reached_outside = {target for target, answer in there.items() if answer.state is State.REACHED}
    reached = [answer for answer in here.values() if answer.state is State.REACHED]
    match case.expectation.want:
        case Want.STOPPED:
            return _verdict_on_denied(case, reached_outside, there, here, failed)
        case Want.WORKS:
            return _verdict_on_allowed(case, reached_outside, there, here, failed)
        case Want.OPEN:
            tried = [answer for answer in here.values() if answer.state is not State.UNKNOWN]
            # What the policy lets through counts as exposed as far as nothing stopped it, unless it is out of reach outside too.
            loose = [target for target in reached_outside if target not in here or here[target].state is not State.STOPPED]
            exposed = bool(reached or loose) if tried else None if there and not reached_outside else True
            why = case.expectation.note
            if tried:
                why += f"; {'reached' if reached else 'not reached'}: {_summarize_answers(reached or tried)}"
            return Finding(case=case, verdict=Verdict.OPEN, exposed=exposed, why=why)
        case _:
            assert_never(case.expectation.want)


def control_finding(case: Case, outside: Sequence[Answer], failed: str = "") -> Finding:
    """What a case shows in the shell without a fence: whether there is anything to be stopped."""
    reached = [answer for answer in outside if answer.state is State.REACHED]
    twin = case.expectation.want is Want.WORKS
    if reached:
        return Finding(case=case, verdict=Verdict.HELD if twin else Verdict.OPEN, exposed=None if twin else True, why=f"reached: {_summarize_answers(reached)}")
    return Finding(case=case, verdict=Verdict.INCONCLUSIVE, exposed=None, why=failed or _summarize_answers(outside) or "not tried")


def _by_target(answers: Sequence[Answer], worst: tuple[State, ...]) -> dict[str, Answer]:
    found: dict[str, Answer] = {}
    for answer in answers:
        known = found.get(answer.target)
        if known is None or worst.index(answer.state) < worst.index(known.state):
            found[answer.target] = answer
    return found


def _verdict_on_denied(case: Case, reached_outside: set[str], there: dict[str, Answer], here: dict[str, Answer], failed: str) -> Finding:
    broken = [answer for answer in here.values() if answer.state is State.REACHED]
    if broken:
        return Finding(case=case, verdict=Verdict.BROKEN, exposed=True, why=f"reached inside: {_summarize_answers(broken)}")
    if failed:
        return Finding(case=case, verdict=Verdict.INCONCLUSIVE, exposed=None, why=failed)
    open_ = [target for target in reached_outside if target not in here or here[target].state is State.UNKNOWN]
    if open_:
        why = ", ".join(f"{target}: {here[target].detail if target in here else 'no answer'}" for target in sorted(open_)[:_SHOWN])
        return Finding(case=case, verdict=Verdict.INCONCLUSIVE, exposed=None, why=f"not told inside: {why}")
    proven = [here[target] for target in here if target in reached_outside]
    if not proven:
        # What nobody reaches tells nothing about a fence.
        return Finding(
            case=case, verdict=Verdict.INCONCLUSIVE, exposed=None, why=f"out of reach outside too: {_summarize_answers(list(there.values())) or 'not told'}"
        )
    rest = len(here) - len(proven)
    more = f"; {rest} more out of reach outside too" if rest else ""
    return Finding(case=case, verdict=Verdict.HELD, exposed=False, why=_summarize_answers(proven) + more)


def _verdict_on_allowed(case: Case, reached_outside: set[str], there: dict[str, Answer], here: dict[str, Answer], failed: str) -> Finding:
    if failed and not here:
        return Finding(case=case, verdict=Verdict.INCONCLUSIVE, exposed=None, why=failed)
    if not reached_outside:
        return Finding(
            case=case, verdict=Verdict.INCONCLUSIVE, exposed=None, why=f"does not work outside either: {_summarize_answers(list(there.values())) or 'not told'}"
        )
    lost = [here.get(target, Answer(target, State.UNKNOWN, "no answer")) for target in sorted(reached_outside)]
    lost = [answer for answer in lost if answer.state is not State.REACHED]
    stopped = [answer for answer in lost if answer.state is State.STOPPED]
    if stopped:
        return Finding(case=case, verdict=Verdict.BROKEN, exposed=None, why=f"works outside only: {_summarize_answers(stopped)}")
    if lost:
        return Finding(case=case, verdict=Verdict.INCONCLUSIVE, exposed=None, why=f"not told inside: {_summarize_answers(lost)}")
    return Finding(
        case=case,
        verdict=Verdict.HELD,
        exposed=None,
        why=f"works: {', '.join(sorted(reached_outside)[:_SHOWN])}{', …' if len(reached_outside) > _SHOWN else ''}",
    )


def _summarize_answers(answers: Sequence[Answer]) -> str:
    shown = "; ".join(f"{answer.target}: {answer.detail}" if answer.detail else answer.target for answer in answers[:_SHOWN])
    return shown + (f"; and {len(answers) - _SHOWN} more" if len(answers) > _SHOWN else "")
