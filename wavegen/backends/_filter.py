"""The system calls that every fenced shell is refused, as classic BPF for x86_64 and aarch64 in one program.

Numbers and offsets: seccomp(2), the kernel's syscall tables (arch/x86/entry/syscalls/syscall_64.tbl and
include/uapi/asm-generic/unistd.h), include/uapi/linux/audit.h.
"""

from __future__ import annotations

import hashlib
import struct

X86_64, AARCH64 = 0xC000003E, 0xC00000B7
ALLOW, EPERM, ENOSYS, EAFNOSUPPORT = 0x7FFF0000, 0x00050001, 0x00050026, 0x00050061
LD, JEQ, JGE, RET = 0x20, 0x15, 0x35, 0x06
# Offsets in struct seccomp_data; of the arguments the low 32 bits, as the kernel reads an ioctl's request and a
# socket's family (CVE-2019-10063 compared all 64).
NR, ARCH, ARG0, ARG1 = 0, 4, 16, 24

_IOCTL = {X86_64: 16, AARCH64: 29}
_SOCKET = {X86_64: 41, AARCH64: 198}
# The session keyring is the caller's, whatever the namespaces: it holds Kerberos tickets and keys of file systems.
_KEYRINGS = {X86_64: (248, 249, 250), AARCH64: (217, 218, 219)}  # add_key, request_key, keyctl
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C  # type into the terminal that is shared with the host
_AF_VSOCK = 40  # leads to the hypervisor past every network namespace
_X32 = 0x40000000


def program() -> tuple[tuple[int, int, int, int], ...]:
    """struct sock_filter[]: code, jump if true, jump if false, value."""
    # (label or "", code, label if true, label if false, value); an empty label is the next instruction.
    lines: list[tuple[str, int, str, str, int]] = [
        ("", LD, "", "", ARCH),
        ("", JEQ, "x86_64", "", X86_64),
        ("", JEQ, "aarch64", "foreign", AARCH64),
    ]
    for name, architecture in (("x86_64", X86_64), ("aarch64", AARCH64)):
        lines.append((name, LD, "", "", NR))
        if architecture == X86_64:
            lines.append(("", JGE, "foreign", "", _X32))
        lines.append(("", JEQ, "ioctl", "", _IOCTL[architecture]))
        lines.append(("", JEQ, "socket", "", _SOCKET[architecture]))
        lines += [("", JEQ, "refused", "", number) for number in _KEYRINGS[architecture]]
        lines.append(("", RET, "", "", ALLOW))
    lines += [
        ("ioctl", LD, "", "", ARG1),
        ("", JEQ, "refused", "", _TIOCSTI),
        ("", JEQ, "refused", "", _TIOCLINUX),
        ("", RET, "", "", ALLOW),
        ("socket", LD, "", "", ARG0),
        ("", JEQ, "family", "", _AF_VSOCK),
        ("", RET, "", "", ALLOW),
        # Calls of x32 and of 32-bit programs have other numbers, so none of them is let through.
        ("foreign", RET, "", "", ENOSYS),
        ("refused", RET, "", "", EPERM),
        ("family", RET, "", "", EAFNOSUPPORT),
    ]
    places = {label: place for place, (label, *_) in enumerate(lines) if label}

    def jump(place: int, label: str) -> int:
        return places[label] - place - 1 if label else 0

    return tuple((code, jump(place, true), jump(place, false), value) for place, (_, code, true, false, value) in enumerate(lines))


REFUSED = frozenset({"add_key", "request_key", "keyctl", "TIOCSTI", "TIOCLINUX", "vsock", "foreign"})
"""What the program refuses, by the names of calls, requests and families."""


def as_printf() -> str:
    """The program as bash's printf writes it, little-endian like both architectures."""
    return "".join(f"\\{byte:03o}" for byte in _bytes())


def name() -> str:
    """A file name that changes with the program."""
    return f"filter-{hashlib.sha256(_bytes()).hexdigest()[:12]}"


def _bytes() -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in program())
