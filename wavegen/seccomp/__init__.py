"""System call filters as values: what is decided about each call, and why. How a kernel is told is the business of others.

Facts: seccomp(2), include/uapi/linux/seccomp.h and audit.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

LOW = 0xFFFFFFFF


class Action(Enum):
    """What a filter answers: SECCOMP_RET_ALLOW, or SECCOMP_RET_ERRNO with an error number, which both architectures share."""

    ALLOW = 0x7FFF0000
    EPERM = 0x00050000 | 1
    ENOSYS = 0x00050000 | 38
    EAFNOSUPPORT = 0x00050000 | 97

    @property
    def error_number(self) -> int:
        """The error number; 0 where the call is let through."""
        return 0 if self is Action.ALLOW else self.value & 0xFFFF


class Arch(Enum):
    """The architectures that have a table, as AUDIT_ARCH values."""

    X86_64 = 0xC000003E
    AARCH64 = 0xC00000B7


UNJUDGED = Action.ENOSYS
"""Of numbers without a name in the table: nobody has judged them. A kernel that is newer than the table has calls that no filter
of today can mean to let through, and every program is written to run on a kernel that lacks them. x32 (number | 0x40000000) is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """`argument & mask` is one of `values`, or, if `other`, is none of them.

    Only the low 32 bits can be asked for: the kernel reads an ioctl's request, a socket's family and clone's flags as 32 bits, so a
    comparison of all 64 is got round by setting a high one (CVE-2019-10063).
    """

    argument: int
    values: tuple[int, ...]
    mask: int = LOW
    other: bool = False

    def __post_init__(self) -> None:
        if self.argument not in range(6) or not self.values or not 0 < self.mask <= LOW or any(value & ~self.mask for value in self.values):
            raise ValueError(f"not a condition: {self}")

    def is_met_by(self, argument: int) -> bool:
        """Whether it holds for a value of the argument, of which the high bits do not matter."""
        return (argument & self.mask in self.values) is not self.other

    def __str__(self) -> str:
        shown = f"arg{self.argument}" if self.mask == LOW else f"arg{self.argument} & {self.mask:#x}"
        return f"{shown} {'not in' if self.other else 'in'} {{{', '.join(f'{value:#x}' for value in self.values)}}}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What is answered to these calls if every condition holds. Names that an architecture does not have say nothing about it."""

    names: tuple[str, ...]
    action: Action
    why: str
    when: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """The first rule that speaks of a call decides, and `default` where none does. `UNJUDGED` is the answer to numbers without a name."""

    name: str
    default: Action
    rules: tuple[Rule, ...]

    def rules_about(self, name: str) -> tuple[Rule, ...]:
        """The rules that can decide about a call, in order; the last one alone may be without conditions."""
        found: list[Rule] = []
        for rule in self.rules:
            if name in rule.names:
                found.append(rule)
                if not rule.when:
                    break
        return tuple(found)

    def action_for(self, name: str, arguments: tuple[int, ...] = (0,) * 6) -> Action:
        """What is answered to a call that has a name."""
        return next((rule.action for rule in self.rules_about(name) if all(c.is_met_by(arguments[c.argument]) for c in rule.when)), self.default)
