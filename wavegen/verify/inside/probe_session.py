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

from probe_common import ROLE, Answer, ask, code, in_child, reached, stopped, syscall, told, tried, unknown

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C


# --- environment


def variables(wanted: dict[str, str]) -> Iterator[Answer]:
    """Does each variable arrive with its value? Known by digest."""
    for name, digest in wanted.items():
        value = os.environ.get(name)
        if value is None:
            yield stopped(name, "not set")
        else:
            yield told(name, "has another value", reached=hashlib.sha256(os.fsencode(value)).hexdigest() == digest)


def other_values(pairs: Iterable[tuple[str, str]]) -> Iterator[Answer]:
    """Has a variable another value than the one that the fence sets?"""
    for name, value in pairs:
        yield told(name, "as set", reached=os.environ.get(name) != value)


def foreign_variables(names: Iterable[str]) -> Iterator[Answer]:
    """Is a variable there that must not be? Whatever its value."""
    for name in names:
        yield told(name, "not set", reached=name in os.environ)


def suspicious_variables(passed: Iterable[str]) -> Iterator[Answer]:
    """Is there a variable with a name like a secret's that nobody asked for?"""
    pattern = re.compile(r"TOKEN|SECRET|PASSW|KEY|CRED|SESSION|DATABASE_URL|_DSN")
    found = sorted(name for name in os.environ if pattern.search(name) and name not in set(passed))
    yield told("names like secrets'", "none", reached=bool(found))


def search_path(allowed: Iterable[str]) -> Iterator[Answer]:
    """Is a relative directory on the PATH, or one that the caller did not have?"""
    entries = os.environ.get("PATH", "").split(":")
    strange = [entry for entry in entries if not entry.startswith("/") or (entry not in set(allowed) and not entry.startswith("/nix/store/"))]
    yield told("PATH", "the caller's, without relative ones", reached=bool(strange))


_OWN_NAMES = {"HOME", "PATH", "SHELL", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE", "PS1", "debian_chroot"}


def unlisted_variables(listed: Iterable[str]) -> Iterator[Answer]:
    """Is there any variable that no rule lets in, and that is not the shell's own?"""
    strange = sorted(set(os.environ) - set(listed) - _OWN_NAMES)
    yield ("variables", "reached", strange[0]) if strange else stopped("variables", "each is a rule's")


# --- the terminal


def _terminals() -> Iterator[tuple[str, int]]:
    for name, number in (("input", 0), ("output", 1), ("messages", 2)):
        if os.isatty(number):
            yield name, number
    with contextlib.suppress(OSError):
        yield "/dev/tty", os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)


def types_into_terminal() -> Iterator[Answer]:
    """Type into the terminal, as if the user had: a letter, by TIOCSTI, also with high bits that seccomp may not see."""
    found = False
    for name, number in _terminals():
        found = True
        for request in (_TIOCSTI, _TIOCSTI | 1 << 32):
            letter = ctypes.create_string_buffer(b"x")
            high = " with high bits" if request > _TIOCSTI else ""
            yield tried(f"{name}{high}", syscall, "ioctl", number, request, ctypes.byref(letter))
    if not found:
        yield stopped("a terminal", "there is none")


def own_terminal() -> Iterator[Answer]:
    """TIOCSTI on a terminal of one's own: EIO is the kernel's own refusal (dev.tty.legacy_tiocsti), EPERM a filter's."""

    def inject() -> None:
        os.setsid()
        _, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        syscall("ioctl", slave, _TIOCSTI, ctypes.byref(ctypes.create_string_buffer(b"x")))

    name, state, detail = tried("TIOCSTI", in_child(inject))
    yield (name, "reached", detail) if detail == "EIO" else (name, state, detail)


def pastes_into_terminal() -> Iterator[Answer]:
    """Paste by TIOCLINUX. No console is here, so what tells is whether the kernel sees the call at all."""
    for name, number in _terminals():
        argument = ctypes.create_string_buffer(b"\xff")
        try:
            syscall("ioctl", number, _TIOCLINUX, ctypes.byref(argument))
            yield reached(name)
        except OSError as failed:
            yield told(name, code(failed.errno or 0), reached=failed.errno != 1)


def callers_group(host: dict[str, int]) -> Iterator[Answer]:
    """Is the process group of its caller, which kill(0) reaches, within its reach?"""
    # In a PID namespace of one's own a group from outside has no number.
    if os.stat("/proc/self/ns/pid").st_ino != host["pid"] and os.getpgrp() != 0:
        yield stopped("the caller's process group", "a group of its own")
        return
    # Nobody is harmed: who may not signal PID 1 of its own namespace, which is outside the second layer, may not signal
    # whoever else is. Real root on the host may.
    try:
        os.kill(1, 0)
    except OSError as failed:
        yield told("the caller's process group", code(failed.errno or 0), reached=ROLE["outside"])
    else:
        yield reached("the caller's process group")


def escapes() -> Iterator[Answer]:
    """Write to the terminal's clipboard (OSC 52); does the terminal get it?"""
    word = os.urandom(6).hex()
    for name, number in _terminals():
        os.write(number, f"\033]52;c;{word}\007".encode())
        yield told(name, "filtered", reached=ask("shown", word=word))
        return
    yield unknown("a terminal", "there is none")


ATTEMPTS = {
    "variables": variables,
    "other_values": other_values,
    "foreign_variables": foreign_variables,
    "suspicious_variables": suspicious_variables,
    "search_path": search_path,
    "unlisted_variables": unlisted_variables,
    "types_into_terminal": types_into_terminal,
    "own_terminal": own_terminal,
    "pastes_into_terminal": pastes_into_terminal,
    "callers_group": callers_group,
    "escapes": escapes,
}
