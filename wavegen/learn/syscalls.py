"""Which system calls a command makes, by strace(1), and what a filter would answer to them. Nothing is fenced while it is watched.

Only what runs is seen: a call of a path not taken is not learned, and a proposal is to be read, not to be believed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wavegen.core.errors import MachineError, UsageError
from wavegen.manifest.model import Seccomp
from wavegen.seccomp import Action, Filter
from wavegen.seccomp.filters import filter_of, refused_calls
from wavegen.seccomp.syscalls import NAMES

# Raw arguments are numbers: no text of the command's is ever in a line. Signals and exits would have lines of their own.
_STRACE = ("strace", "-f", "-e", "quiet=attach,exit", "-e", "trace=all", "-e", "raw=all", "-e", "signal=none")
# PID name(arguments) = result; of a call that another process interrupts, the end is `<unfinished ...>`, and `<... name resumed>` follows.
_CALL = re.compile(r"(\d+) +([a-z_][a-z0-9_]*)\(([^)<]*)")
# `[ Process PID=7 runs in 32 bit mode. ]`: the names that follow are those of another architecture, until the next such line.
_MODE = re.compile(r"\d+ +\[ Process PID=(\d+) runs in (.+) mode\. \]")
_NATIVE = "64 bit"
_UNNAMED = "syscall_0x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What a command did. Every tuple is sorted."""

    status: int
    """The command's own, as a shell shows it."""
    calls: tuple[str, ...]
    missing: tuple[str, ...]
    """What `strict` does not know and `default` lets through: to be allowed if the command needs it."""
    refused: tuple[str, ...]
    """What both filters refuse; with arguments where they are the reason."""
    unnamed: tuple[str, ...]
    """Numbers that have no name; both filters answer ENOSYS."""
    modes: tuple[str, ...]
    """Other architectures that programs ran for; both filters answer ENOSYS to all of their calls."""


def learn_syscalls(command: Sequence[str], *, nested: bool = False) -> Learned:
    """Run a command with this process's terminal, to its end, and tell what it did.

    Raises UsageError where there is no such command, MachineError where strace is missing or may not trace.
    """
    if not command or not shutil.which(command[0]):
        raise UsageError(f"{command[0]} is not a command" if command else "no command", "name a program, and what it is given")
    if not shutil.which(_STRACE[0]):
        raise MachineError("strace is not on the PATH", "install strace")
    with tempfile.TemporaryDirectory(prefix="wavegen-learn-") as directory:
        trace = os.path.join(directory, "trace")
        status = subprocess.run((*_STRACE, "-o", trace, "--", *command), check=False).returncode
        try:
            with open(trace, encoding="ascii", errors="replace") as lines:
                found = parse_trace(lines, status=status if status >= 0 else 128 - status, nested=nested)
        except FileNotFoundError:
            found = None
    if found is None or not found.calls:
        raise MachineError("strace could not trace the command", "strace says why above; inside a fence and in many containers, ptrace is refused")
    return found


def parse_trace(trace: Iterable[str], *, status: int = 0, nested: bool = False) -> Learned:
    """What the lines of a trace say."""
    default, strict = (_require_filter(seccomp, nested=nested) for seccomp in (Seccomp.DEFAULT, Seccomp.STRICT))
    calls: set[str] = set()
    unnamed: set[str] = set()
    modes: dict[str, str] = {}
    foreign: set[str] = set()
    refused: set[str] = set()
    whole = set(refused_calls(nested=nested))
    for line in trace:
        if mode := _MODE.match(line):
            modes[mode[1]] = mode[2]
        call = _CALL.match(line)
        if not call:
            continue
        process, name, arguments = call[1], call[2], _parse_call_arguments(call[3])
        if modes.get(process, _NATIVE) != _NATIVE:
            foreign.add(modes[process])
        elif name.startswith(_UNNAMED):
            unnamed.add(name.removeprefix("syscall_"))
        elif name in NAMES:
            calls.add(name)
            if default.action_for(name, arguments) is not Action.ALLOW:
                refused.add(name if name in whole else f"{name}({', '.join(f'{argument:#x}' for argument in arguments[:3])})")
    missing = {name for name in calls if not strict.rules_about(name)}
    return Learned(
        status=status,
        calls=tuple(sorted(calls)),
        missing=tuple(sorted(missing)),
        refused=tuple(sorted(refused)),
        unnamed=tuple(sorted(unnamed)),
        modes=tuple(sorted(foreign)),
    )


def proposal_lines(found: Learned) -> Iterator[str]:
    """Lines for a manifest's shell; what is for a person to decide is a comment."""
    if found.status:
        yield f"# The command ended with status {found.status}, so it may not have done all that it does."
    yield f"# {len(found.calls)} system calls; strict lets {len(found.calls) - len(found.missing) - len(_calls_refused_entirely(found))} of them through."
    if found.missing:
        yield f"seccomp_allow: [{', '.join(found.missing)}]"
    for name in found.refused:
        hint = (
            " (most programs do without; if this one does not, add it to seccomp_allow)" if name in _calls_refused_entirely(found) and name != "clone3" else ""
        )
        yield f"# refused by both filters: {name}{hint}"
    for number in found.unnamed:
        yield f"# answered ENOSYS by both filters: number {number}, which has no name"
    for mode in found.modes:
        yield f"# answered ENOSYS by both filters: every call of programs in {mode} mode"


def _calls_refused_entirely(found: Learned) -> tuple[str, ...]:
    return tuple(name for name in found.refused if "(" not in name)


def _require_filter(seccomp: Seccomp, *, nested: bool) -> Filter:
    found = filter_of(seccomp, nested=nested)
    if found is None:
        raise ValueError(f"no filter: {seccomp}")
    return found


def _parse_call_arguments(arguments: str) -> tuple[int, ...]:
    numbers = [int(word, 0) for word in re.findall(r"0x[0-9a-f]+|\b\d+\b", arguments)]
    return tuple((numbers + [0] * 6)[:6])
