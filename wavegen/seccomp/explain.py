"""A filter in words, for a person: what is answered to which call and why, and the program instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wavegen.seccomp import UNJUDGED, Action, Arch, Filter, Rule
from wavegen.seccomp.bpf import AND, ARCH, ARGUMENT_SIZE, ARGUMENTS, JA, JEQ, JGE, LD, NR, RET, Instruction, compile_filter
from wavegen.seccomp.syscalls import NUMBERS

_JUMPS = {JEQ: "jeq", JGE: "jge"}


def explain_filter(filter_: Filter, arch: Arch) -> Iterator[str]:
    """The default, then one line for each call of each rule in the order in which they are asked, and the program's length."""
    table = NUMBERS[arch]
    newest = max(table.values())
    size = len(compile_filter(filter_, arch))
    yield f"filter {filter_.name} for {arch.name.lower()}: {size} instructions"
    yield f"calls without a rule: {_action_text(filter_.default)}"
    yield f"numbers without a name, all above {newest}, x32 and other architectures: {_action_text(UNJUDGED)}"
    for rule in filter_.rules:
        # A rule that an earlier one leaves nothing of would be a line that is not true.
        for name in (name for name in rule.names if name in table and rule in filter_.rules_about(name)):
            yield f"{table[name]:4} {name}: {_action_text(rule.action)}{_condition_text(rule)} ({rule.why})"


def list_instructions(instructions: Iterable[Instruction]) -> Iterator[str]:
    """One line an instruction, with the places that jumps go to."""
    for place, it in enumerate(instructions):
        yield f"{place:4}  {_instruction_text(place, it)}"


def _condition_text(rule: Rule) -> str:
    return f" if {' and '.join(map(str, rule.when))}" if rule.when else ""


def _action_text(action: Action) -> str:
    return "let through" if action is Action.ALLOW else action.name


def _instruction_text(place: int, it: Instruction) -> str:
    if it.code == LD:
        return f"ld   {_field_name(it.value)}"
    if it.code == AND:
        return f"and  {it.value:#x}"
    if it.code == JA:
        return f"ja   {place + 1 + it.value}"
    if it.code == RET:
        return f"ret  {_action_text(Action(it.value))}"
    return f"{_JUMPS[it.code]}  {it.value:#x} {place + 1 + it.true} {place + 1 + it.false}"


def _field_name(offset: int) -> str:
    return {NR: "nr", ARCH: "arch"}.get(offset, f"arg{(offset - ARGUMENTS) // ARGUMENT_SIZE}")
