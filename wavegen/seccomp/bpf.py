"""A filter as the classic BPF that seccomp(2) loads, for one architecture or for several in one program.

The program is made from its end: every jump of a filter goes forward, so the place that a jump goes to is known when the jump is made, and
a place beyond the 255 instructions that a conditional jump reaches gets a copy, or a jump of its own, in between. No conditional jump
falls through, so whatever is put between two parts is never run by accident.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from wavegen.seccomp import LOW, UNJUDGED, Action, Arch, Condition, Filter, Rule
from wavegen.seccomp.syscalls import NUMBERS

# include/uapi/linux/bpf_common.h: LD|W|ABS, ALU|AND|K, JMP|JEQ|K, JMP|JGE|K, JMP|JA, RET|K.
LD, AND, JEQ, JGE, JA, RET = 0x20, 0x54, 0x15, 0x35, 0x05, 0x06
# Offsets in struct seccomp_data. Both architectures are little-endian, so an argument's low half comes first.
NR, ARCH, ARGUMENTS, ARGUMENT_SIZE = 0, 4, 16, 8
MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS
_REACH = 255


@dataclass(frozen=True, slots=True)
class Instruction:
    """struct sock_filter."""

    code: int
    true: int
    false: int
    value: int


class TooLongError(ValueError):
    """The kernel takes no program of that length."""


# What is decided about a number: the rules with conditions, in order, and what holds where none does.
_Outcome = tuple[tuple[tuple[tuple[Condition, ...], Action], ...], Action]


def compile_filter(filter_: Filter, *arches: Arch) -> tuple[Instruction, ...]:
    """struct sock_filter[]. Calls of every other architecture are answered with ENOSYS: their numbers mean other calls.

    i386 on x86_64 (int 0x80) is another architecture. ENOSYS and not the end of the process: programs that try how they may call the
    kernel survive it, and nothing that is answered so reaches the kernel.
    """
    layout = _Layout()
    place = layout.add_return(Action.ENOSYS)
    for arch in reversed(arches):
        inside = layout.add_search(_number_ranges(filter_, arch))
        place = layout.add_jump(JEQ, arch.value, inside, place)
    layout.add_instruction(LD, ARCH)
    if len(layout.backwards) > MAX_INSTRUCTIONS:
        raise TooLongError(f"{filter_.name}: {len(layout.backwards)} instructions, and the kernel takes {MAX_INSTRUCTIONS}")
    return tuple(reversed(layout.backwards))


def assemble_filter(filter_: Filter, *arches: Arch) -> bytes:
    """The same as bytes, as `bwrap --seccomp` reads them."""
    return b"".join(struct.pack("<HBBI", it.code, it.true, it.false, it.value) for it in compile_filter(filter_, *arches))


def _number_ranges(filter_: Filter, arch: Arch) -> tuple[tuple[int, _Outcome], ...]:
    """(first number, outcome) up to the next one's number; neighbours differ. The last is without end, and holds x32 and -1."""
    names = {number: name for name, number in NUMBERS[arch].items()}
    found: list[tuple[int, _Outcome]] = []
    for number in range(max(names) + 2):
        outcome = _outcome_of(filter_, filter_.rules_about(names[number])) if number in names else ((), UNJUDGED)
        if not found or found[-1][1] != outcome:
            found.append((number, outcome))
    return tuple(found)


def _outcome_of(filter_: Filter, rules: tuple[Rule, ...]) -> _Outcome:
    last = rules[-1].action if rules and not rules[-1].when else filter_.default
    return tuple((rule.when, rule.action) for rule in rules if rule.when), last


@dataclass(slots=True)
class _Layout:
    """The program in the making, last instruction first. A place is counted from the end, so it stays what it is."""

    backwards: list[Instruction] = field(default_factory=list)
    answers: dict[Action, int] = field(default_factory=dict)
    known: dict[_Outcome, int] = field(default_factory=dict)

    def add_instruction(self, code: int, value: int, true: int = 0, false: int = 0) -> int:
        self.backwards.append(Instruction(code, true, false, value))
        return len(self.backwards) - 1

    def add_return(self, action: Action) -> int:
        if action not in self.answers:
            self.answers[action] = self.add_instruction(RET, action.value)
        return self.answers[action]

    def add_jump(self, code: int, value: int, true: int, false: int) -> int:
        """A conditional jump. A copy for the second target moves the first one place further, so one is left to spare."""
        true, false = self._bring_within_reach(true), self._bring_within_reach(false)
        place = len(self.backwards)
        return self.add_instruction(code, value, place - true - 1, place - false - 1)

    def _bring_within_reach(self, target: int) -> int:
        place = len(self.backwards)
        if place - target - 1 <= _REACH - 1:
            return target
        there = self.backwards[target]
        if there.code != RET:
            return self.add_instruction(JA, place - target - 1)
        self.answers[Action(there.value)] = place
        return self.add_instruction(RET, there.value)

    def add_search(self, ranges: tuple[tuple[int, _Outcome], ...]) -> int:
        """A binary search for the number, from its loading on. Where there is nothing to search, there is nothing to load."""
        place = self._add_search_tree(ranges)
        return self.add_instruction(LD, NR) if len(ranges) > 1 else place

    def _add_search_tree(self, ranges: tuple[tuple[int, _Outcome], ...]) -> int:
        if len(ranges) == 1:
            return self.add_decision(ranges[0][1])
        middle = len(ranges) // 2
        above = self._add_search_tree(ranges[middle:])
        below = self._add_search_tree(ranges[:middle])
        return self.add_jump(JGE, ranges[middle][0], above, below)

    def add_decision(self, outcome: _Outcome) -> int:
        if outcome not in self.known:
            rules, last = outcome
            place = self.add_return(last)
            for conditions, action in reversed(rules):
                place = self._add_rule_jumps(conditions, self.add_return(action), place)
            self.known[outcome] = place
        return self.known[outcome]

    def _add_rule_jumps(self, conditions: tuple[Condition, ...], action: int, otherwise: int) -> int:
        place = action
        for condition in reversed(conditions):
            found, not_found = (otherwise, place) if condition.other else (place, otherwise)
            for value in reversed(condition.values):
                not_found = self.add_jump(JEQ, value, found, not_found)
            if condition.mask != LOW:
                self.add_instruction(AND, condition.mask)
            place = self.add_instruction(LD, ARGUMENTS + ARGUMENT_SIZE * condition.argument)
        return place
