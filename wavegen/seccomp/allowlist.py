"""A filter as docker and podman are given it: a list of what is let through, whatever else there is being refused.

Their runtimes leave out names that their libseccomp does not know, without a word. In a list of refusals, as seccomp.oci makes of
`default`, such a call is let through, and so is every call that came later. Here it is refused: as ENOSYS, which is what a kernel says
that does not have it, so that programs go the way that they have for older kernels.

Refusals are listed all the same, for their error numbers. Where an engine does not read `defaultErrnoRet` (Docker before 22.06), what is
not listed is EPERM; runc answers ENOSYS by itself to numbers beyond the newest call that a profile names and libseccomp knows.

A profile has one architecture's answers at a time: of `archMap` an engine takes what the machine is, and calls of other architectures
(int 0x80, x32) end the process. Sources: moby profiles/seccomp, runc libcontainer/seccomp/patchbpf, containers/common pkg/seccomp.
"""

from __future__ import annotations

from typing import Any

from wavegen.seccomp import UNJUDGED, Action, Arch, Filter, Rule
from wavegen.seccomp.oci import Part, entry, parts
from wavegen.seccomp.syscalls import NAMES


def profile(filter_: Filter) -> dict[str, Any]:
    """The profile, ready for json.dumps; equal filters give equal ones."""
    whole: dict[Action, list[str]] = {}
    chained: dict[tuple[Rule, ...], list[str]] = {}
    for name in sorted(NAMES):
        rules = filter_.about(name)
        if rules and rules[0].when:
            chained.setdefault(_bare(rules), []).append(name)
        else:
            whole.setdefault(rules[0].action if rules else filter_.default, []).append(name)
    entries = [entry(whole[action], action) for action in Action if action in whole]
    for rules, names in chained.items():
        answers: dict[Action, list[Part]] = {}
        for action, part in parts(rules, filter_.default):
            answers.setdefault(action, []).append(part)
        entries += [entry(names, action, part) for action in Action for part in _joined(answers.get(action, []))]
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": UNJUDGED.errno,
        "archMap": [{"architecture": f"SCMP_ARCH_{arch.name}", "subArchitectures": []} for arch in Arch],
        "syscalls": entries,
    }


def _bare(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
    """The rules without what differs from call to call and decides nothing."""
    return tuple(Rule(names=(), action=rule.action, why="", when=rule.when) for rule in rules)


def _joined(cut: list[Part]) -> list[Part]:
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
