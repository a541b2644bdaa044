"""Attempts on what a session is handed: variables, and the terminal that it shares with the host."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import os
import re
import termios
from collections.abc import Iterable, Iterator

from probe_common import (
    ROLE,
    Answer,
    answer_for_outcome,
    answer_reached,
    answer_stopped,
    answer_unknown,
    ask_harness,
    errno_name,
    in_child,
    invoke_syscall_by_name,
    try_action,
)

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


# --- environment


def check_variables(wanted: dict[str, str]) -> Iterator[Answer]:
    """Does each variable arrive with its value? Known by digest."""
    for name, digest in wanted.items():
        value = os.environ.get(name)
        if value is None:
            yield answer_stopped(name, "not set")
        else:
            yield answer_for_outcome(name, "has another value", reached=hashlib.sha256(os.fsencode(value)).hexdigest() == digest)


def other_values(pairs: Iterable[tuple[str, str]]) -> Iterator[Answer]:
    """Has a variable another value than the one that the fence sets?"""
    for name, value in pairs:
        yield answer_for_outcome(name, "as set", reached=os.environ.get(name) != value)


def foreign_variables(names: Iterable[str]) -> Iterator[Answer]:
    """Is a variable there that must not be? Whatever its value."""
    for name in names:
        yield answer_for_outcome(name, "not set", reached=name in os.environ)


def suspicious_variables(passed: Iterable[str]) -> Iterator[Answer]:
    """Is there a variable with a name like a secret's that nobody asked for?"""
    pattern = re.compile(r"TOKEN|SECRET|PASSW|KEY|CRED|SESSION|DATABASE_URL|_DSN")
    found = sorted(name for name in os.environ if pattern.search(name) and name not in set(passed))
    yield answer_for_outcome("names like secrets'", "none", reached=bool(found))


def check_search_path(allowed: Iterable[str]) -> Iterator[Answer]:
    """Is a relative directory on the PATH, or one that the caller did not have?"""
    entries = os.environ.get("PATH", "").split(":")
    strange = [entry for entry in entries if not entry.startswith("/") or (entry not in set(allowed) and not entry.startswith("/nix/store/"))]
    yield answer_for_outcome("PATH", "the caller's, without relative ones", reached=bool(strange))


_OWN_NAMES = {"HOME", "PATH", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "PS1", "debian_chroot"}


def unlisted_variables(listed: Iterable[str]) -> Iterator[Answer]:
    """Is there any variable that no rule lets in, and that is not the shell's own?"""
    strange = sorted(set(os.environ) - set(listed) - _OWN_NAMES)
    yield ("variables", "reached", strange[0]) if strange else answer_stopped("variables", "each is a rule's")


# --- the terminal


def _open_terminals() -> Iterator[tuple[str, int]]:
    for name, number in (("input", 0), ("output", 1), ("messages", 2)):
        if os.isatty(number):
            yield name, number
    with contextlib.suppress(OSError):
        yield "/dev/tty", os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)


def types_into_terminal() -> Iterator[Answer]:
    """Type into the terminal, as if the user had: a letter, by TIOCSTI, also with high bits that seccomp may not see."""
    found = False
    for name, number in _open_terminals():
        found = True
        for request in (_TIOCSTI, _TIOCSTI | 1 << 32):
            letter = ctypes.create_string_buffer(b"x")
            high = " with high bits" if request > _TIOCSTI else ""
            yield try_action(f"{name}{high}", invoke_syscall_by_name, "ioctl", number, request, ctypes.byref(letter))
    if not found:
        yield answer_stopped("a terminal", "there is none")


def own_terminal() -> Iterator[Answer]:
    """TIOCSTI on a terminal of one's own: EIO is the kernel's own refusal (dev.tty.legacy_tiocsti), EPERM a filter's."""

    def inject_by_tiocsti() -> None:
        os.setsid()
        _, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        invoke_syscall_by_name("ioctl", slave, _TIOCSTI, ctypes.byref(ctypes.create_string_buffer(b"x")))

    name, state, detail = try_action("TIOCSTI", in_child(inject_by_tiocsti))
    yield (name, "reached", detail) if detail == "EIO" else (name, state, detail)


def pastes_into_terminal() -> Iterator[Answer]:
    """Paste by TIOCLINUX. No console is here, so what tells is whether the kernel sees the call at all."""
    for name, number in _open_terminals():
        argument = ctypes.create_string_buffer(b"\xff")
        try:
            invoke_syscall_by_name("ioctl", number, _TIOCLINUX, ctypes.byref(argument))
            yield answer_reached(name)
        except OSError as failed:
            yield answer_for_outcome(name, errno_name(failed.errno or 0), reached=failed.errno != 1)


def callers_group(host: dict[str, int]) -> Iterator[Answer]:
    """Is the process group of its caller, which kill(0) reaches, within its reach?"""
    # In a PID namespace of one's own a group from outside has no number.
    if os.stat("/proc/self/ns/pid").st_ino != host["pid"] and os.getpgrp() != 0:
        yield answer_stopped("the caller's process group", "a group of its own")
        return
    # Nobody is harmed: who may not signal PID 1 of its own namespace, which is outside the second layer, may not signal
    # whoever else is. Real root on the host may.
    try:
        os.kill(1, 0)
    except OSError as failed:
        yield answer_for_outcome("the caller's process group", errno_name(failed.errno or 0), reached=ROLE["outside"])
    else:
        yield answer_reached("the caller's process group")


def write_clipboard_escape() -> Iterator[Answer]:
    """Write to the terminal's clipboard (OSC 52); does the terminal get it?"""
    word = os.urandom(6).hex()
    for name, number in _open_terminals():
        os.write(number, f"\033]52;c;{word}\007".encode())
        yield answer_for_outcome(name, "filtered", reached=ask_harness("shown", word=word))
        return
    yield answer_unknown("a terminal", "there is none")


ATTEMPTS = {
    "variables": check_variables,
    "other_values": other_values,
    "foreign_variables": foreign_variables,
    "suspicious_variables": suspicious_variables,
    "search_path": check_search_path,
    "unlisted_variables": unlisted_variables,
    "types_into_terminal": types_into_terminal,
    "own_terminal": own_terminal,
    "pastes_into_terminal": pastes_into_terminal,
    "callers_group": callers_group,
    "escapes": write_clipboard_escape,
}
