"""A filter as docker and podman are given it: a list of what is let through, whatever else there is being refused.

Their runtimes leave out names that their libseccomp does not know, without a word. In a list of refusals such a call
would be let through, and so would every call that came later. Here it is refused: as ENOSYS, which is what a kernel says
that does not have it, so that programs go the way that they have for older kernels.

Refusals are listed all the same, for their error numbers. Where an engine does not read `defaultErrnoRet` (Docker before 22.06), what is
not listed is EPERM; runc answers ENOSYS by itself to numbers beyond the newest call that a profile names and libseccomp knows.

A profile has no order, and libseccomp lets an entry without arguments swallow the others of its call. So the rules of a call are cut
into parts that do not overlap, each a product of `argument & mask == value`. That is exact for each call that both sides know.

A profile has one architecture's answers at a time: of `archMap` an engine takes what the machine is, and calls of other architectures
(int 0x80, x32) end the process. Sources: moby profiles/seccomp, runc libcontainer/seccomp/patchbpf, containers/common pkg/seccomp.
Also opencontainers/runtime-spec config-linux.md, seccomp_rule_add(3). With SCMP_CMP_MASKED_EQ `value` is the mask and `valueTwo` the
value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wavegen.seccomp import LOW, UNJUDGED, Action, Arch, Condition, Filter, Rule
from wavegen.seccomp.syscalls import NAMES

# The bits that are asked for, and what they are. Argument → cube is a part of all arguments.
_Cube = tuple[int, int]
Part = dict[int, _Cube]


def render_oci_profile(filter_: Filter) -> dict[str, Any]:
    """The profile, ready for json.dumps; equal filters give equal ones."""
    whole: dict[Action, list[str]] = {}
    chained: dict[tuple[Rule, ...], list[str]] = {}
    for name in sorted(NAMES):
        rules = filter_.rules_about(name)
        if rules and rules[0].when:
            chained.setdefault(_comparable_rules(rules), []).append(name)
        else:
            whole.setdefault(rules[0].action if rules else filter_.default, []).append(name)
    entries = [profile_entry(whole[action], action) for action in Action if action in whole]
    for rules, names in chained.items():
        answers: dict[Action, list[Part]] = {}
        for action, part in partition_arguments(rules, filter_.default):
            answers.setdefault(action, []).append(part)
        entries += [profile_entry(names, action, part) for action in Action for part in _join_parts(answers.get(action, []))]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": UNJUDGED.error_number,
        "archMap": [{"architecture": f"SCMP_ARCH_{arch.name}", "subArchitectures": []} for arch in Arch],
        "syscalls": entries,
    }


def _comparable_rules(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules without what differs from call to call and decides nothing."""
    return tuple(Rule(names=(), action=rule.action, why="", when=rule.when) for rule in rules)


def _join_parts(cut: list[Part]) -> list[Part]:
    """The same parts in fewer: two that differ in one bit of one argument are one that does not ask for it.

    They still do not overlap. A start of a container is faster by it, as libseccomp copies its whole tree for each rule of a call.
    """
    left = {tuple(sorted(part.items())) for part in cut}
    joined = True
    while joined:
        joined = False
        for key in sorted(left):
            if key not in left:
                continue
            for at, (argument, (mask, value)) in enumerate(key):
                for bit in (1 << place for place in range(mask.bit_length()) if mask >> place & 1):
                    if (other := (*key[:at], (argument, (mask, value ^ bit)), *key[at + 1 :])) in left:
                        left -= {key, other}
                        rest = ((argument, (mask & ~bit, value & ~bit)),) if mask & ~bit else ()
                        left.add((*key[:at], *rest, *key[at + 1 :]))
                        joined = True
                        break
                if key not in left:
                    break
    return [dict(key) for key in sorted(left)]


def partition_arguments(rules: tuple[Rule, ...], default: Action) -> Iterator[tuple[Action, Part]]:
    """The answers to one call, each with the arguments it is for. The parts do not overlap, and leave nothing out."""
    rest: list[Part] = [{}]
    for rule in rules:
        for condition in rule.when:
            if any(c is not condition and c.argument == condition.argument for c in rule.when):
                raise ValueError(f"libseccomp takes one condition for an argument: {rule}")
        inside, outside = rest, []
        for condition in rule.when:
            outside += [cut for part in inside for cut in _cut_part(part, condition, holds=False)]
            inside = [cut for part in inside for cut in _cut_part(part, condition, holds=True)]
        yield from ((rule.action, part) for part in inside)
        rest = outside
    yield from ((default, part) for part in rest)


def _cut_part(part: Part, condition: Condition, *, holds: bool) -> Iterator[Part]:
    """What of a part is inside a condition, or outside of it."""
    mask, value = part.get(condition.argument, (0, 0))
    cubes = _none_of(condition.values, condition.mask) if condition.other is holds else [(condition.mask, value) for value in condition.values]
    for other_mask, other_value in cubes:
        if (value ^ other_value) & mask & other_mask == 0:
            yield {**part, condition.argument: (mask | other_mask, value | other_value)}


def _none_of(values: tuple[int, ...], mask: int) -> list[_Cube]:
    """What is none of the values, as cubes: a walk down the bits that leaves the values' paths wherever no value goes on."""
    found: list[_Cube] = []
    here = [(0, 0, values)]
    for bit in (1 << place for place in reversed(range(LOW.bit_length())) if mask >> place & 1):
        below = []
        for seen, path, left in here:
            for way in (0, bit):
                on = tuple(value for value in left if value & bit == way)
                if on:
                    below.append((seen | bit, path | way, on))
                else:
                    found.append((seen | bit, path | way))
        here = below
    return found


def profile_entry(names: list[str], action: Action, part: Part | None = None) -> dict[str, Any]:
    entry = {"names": names, **_action_keys(action, "action", "errnoRet")}
    if part:
        entry["args"] = [{"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"} for index, (mask, value) in sorted(part.items())]
    return entry


def _action_keys(action: Action, key: str, errno_key: str) -> dict[str, Any]:
    return {key: "SCMP_ACT_ALLOW"} if action is Action.ALLOW else {key: "SCMP_ACT_ERRNO", errno_key: action.error_number}
