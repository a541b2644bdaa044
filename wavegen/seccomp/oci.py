"""A filter as the seccomp part of an OCI runtime configuration: the same rules, to be read. What engines are given is seccomp.allowlist's.

A profile has no order, and libseccomp lets an entry without arguments swallow the others of its call. So the rules of a call are cut
into parts that do not overlap, each a product of `argument & mask == value`, and a part that has the default's answer is left out.
That is exact for each call that both sides know. What differs, because a profile cannot say it:

- Under `default`, calls that the runtime's libseccomp or kernel is newer than our table for are let through.
- Names that the runtime's libseccomp does not know are left out by it: under `default` let through, under `strict` refused.
- Calls of other architectures (int 0x80, x32) end the process or thread instead of ENOSYS; that is libseccomp's default.

Sources: opencontainers/runtime-spec config-linux.md, seccomp_rule_add(3). With SCMP_CMP_MASKED_EQ `value` is the mask and `valueTwo` the
value.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from wavegen.seccomp import LOW, Action, Condition, Filter, Rule

# The bits that are asked for, and what they are. Argument → cube is a part of all arguments.
_Cube = tuple[int, int]
Part = dict[int, _Cube]


def oci(filter_: Filter) -> dict[str, Any]:
    """The profile, ready for json.dumps; equal filters give equal ones."""
    names = sorted({name for rule in filter_.rules for name in rule.names})
    simple: dict[Action, list[str]] = {}
    chained: dict[tuple[Rule, ...], list[str]] = {}
    for name in names:
        rules = filter_.about(name)
        if rules[0].when:
            chained.setdefault(rules, []).append(name)
        elif rules[0].action is not filter_.default:
            simple.setdefault(rules[0].action, []).append(name)
    entries = [entry(simple[action], action) for action in Action if action in simple]
    for rules, chained_names in chained.items():
        for action, part in parts(rules, filter_.default):
            if action is not filter_.default:
                entries.append(entry(chained_names, action, part))
    return {**_action(filter_.default, "defaultAction", "defaultErrnoRet"), "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_AARCH64"], "syscalls": entries}


def parts(rules: tuple[Rule, ...], default: Action) -> Iterator[tuple[Action, Part]]:
    """The answers to one call, each with the arguments it is for. The parts do not overlap, and leave nothing out."""
    rest: list[Part] = [{}]
    for rule in rules:
        for condition in rule.when:
            if any(c is not condition and c.argument == condition.argument for c in rule.when):
                raise ValueError(f"libseccomp takes one condition for an argument: {rule}")
        inside, outside = rest, []
        for condition in rule.when:
            outside += [cut for part in inside for cut in _cut(part, condition, holds=False)]
            inside = [cut for part in inside for cut in _cut(part, condition, holds=True)]
        yield from ((rule.action, part) for part in inside)
        rest = outside
    yield from ((default, part) for part in rest)


def _cut(part: Part, condition: Condition, *, holds: bool) -> Iterator[Part]:
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


def entry(names: list[str], action: Action, part: Part | None = None) -> dict[str, Any]:
    entry = {"names": names, **_action(action, "action", "errnoRet")}
    if part:
        entry["args"] = [{"index": index, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"} for index, (mask, value) in sorted(part.items())]
    return entry


def _action(action: Action, key: str, errno_key: str) -> dict[str, Any]:
    return {key: "SCMP_ACT_ALLOW"} if action is Action.ALLOW else {key: "SCMP_ACT_ERRNO", errno_key: action.errno}
