"""A filter in words, for a person: what is answered to which call and why, and the program instruction by instruction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from wavegen.seccomp import UNJUDGED, Action, Arch, Filter, Rule
from wavegen.seccomp.bpf import AND, ARCH, ARGUMENT_SIZE, ARGUMENTS, JA, JEQ, JGE, LD, NR, RET, Instruction, program
from wavegen.seccomp.syscalls import NUMBERS

_JUMPS = {JEQ: "jeq", JGE: "jge"}


def lines(filter_: Filter, arch: Arch) -> Iterator[str]:
    """The default, then one line for each call of each rule in the order in which they are asked, and the program's length."""
    table = NUMBERS[arch]
    newest = max(table.values())
    size = len(program(filter_, arch))
    yield f"filter {filter_.name} for {arch.name.lower()}: {size} instructions"
    yield f"calls without a rule: {_answer(filter_.default)}"
    yield f"numbers without a name, all above {newest}, x32 and other architectures: {_answer(UNJUDGED)}"
    for rule in filter_.rules:
        # A rule that an earlier one leaves nothing of would be a line that is not true.
        for name in (name for name in rule.names if name in table and rule in filter_.about(name)):
            yield f"{table[name]:4} {name}: {_answer(rule.action)}{_when(rule)} ({rule.why})"


def listing(instructions: Iterable[Instruction]) -> Iterator[str]:
    """One line an instruction, with the places that jumps go to."""
    for place, it in enumerate(instructions):
        yield f"{place:4}  {_mnemonic(place, it)}"


def _when(rule: Rule) -> str:
    return f" if {' and '.join(map(str, rule.when))}" if rule.when else ""


def _answer(action: Action) -> str:
    return "let through" if action is Action.ALLOW else action.name


def _mnemonic(place: int, it: Instruction) -> str:
    if it.code == LD:
        return f"ld   {_field(it.value)}"
    if it.code == AND:
        return f"and  {it.value:#x}"
    if it.code == JA:
        return f"ja   {place + 1 + it.value}"
    if it.code == RET:
        return f"ret  {_answer(Action(it.value))}"
    return f"{_JUMPS[it.code]}  {it.value:#x} {place + 1 + it.true} {place + 1 + it.false}"


def _field(offset: int) -> str:
    return {NR: "nr", ARCH: "arch"}.get(offset, f"arg{(offset - ARGUMENTS) // ARGUMENT_SIZE}")
