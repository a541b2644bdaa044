"""Landlock looks at bind and connect of plain TCP. A seccomp filter that refuses what does the same otherwise, for a program to fall back."""

from __future__ import annotations

import sys

MACHINES = {
    "x86_64": (0xC000003E, {"socket": 41, "sendto": 44, "sendmsg": 46, "sendmmsg": 307, "listen": 50}),
    "aarch64": (0xC00000B7, {"socket": 198, "sendto": 206, "sendmsg": 211, "sendmmsg": 269, "listen": 201}),
}
"""By uname -m: what seccomp calls it, and the system calls that the filter looks at."""
_IO_URING_SETUP, _X32 = 425, 0x40000000
_SMC, _SCTP, _MPTCP, _FAST_OPEN = 43, 132, 262, 0x20000000
_ALLOW, _ERROR = 0x7FFF0000, 0x50000
_EACCES, _ENOSYS, _EPROTONOSUPPORT, _EOPNOTSUPP = 13, 38, 93, 95


def compile_tcp_filter(machine: str, *, may_listen: bool) -> bytes:
    """The filter as `--seccomp` takes it. `may_listen` False refuses listen(2), on Unix sockets too, which a filter cannot tell apart: on a socket
    that was never bound listen chooses a port, and Landlock does not look there. KeyError: a machine that is not in MACHINES.
    """
    arch, calls = MACHINES[machine]
    # struct seccomp_data: nr 0, arch 4, args 16 + 8 * n. All these arguments have 32 bits, and both machines the low ones first.
    load, equal, above, any_of, end = 0x20, 0x15, 0x35, 0x45, 0x06
    absent = _ERROR | _ENOSYS
    program: list[tuple[int, int, int, int]] = [(load, 0, 0, 4), (equal, 1, 0, arch), (end, 0, 0, absent), (load, 0, 0, 0)]
    program += [(above, 0, 1, _X32), (end, 0, 0, absent), (equal, 0, 1, _IO_URING_SETUP), (end, 0, 0, absent)]
    if not may_listen:
        program += [(equal, 0, 1, calls["listen"]), (end, 0, 0, _ERROR | _EACCES)]
    for name, flags in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3)):
        program += [
            (equal, 0, 4, calls[name]),
            (load, 0, 0, 16 + 8 * flags),
            (any_of, 0, 1, _FAST_OPEN),
            (end, 0, 0, _ERROR | _EOPNOTSUPP),
            (end, 0, 0, _ALLOW),
        ]
    program += [(equal, 1, 0, calls["socket"]), (end, 0, 0, _ALLOW), (load, 0, 0, 16), (equal, 3, 0, _SMC), (load, 0, 0, 32), (equal, 1, 0, _MPTCP)]
    program += [(equal, 0, 1, _SCTP), (end, 0, 0, _ERROR | _EPROTONOSUPPORT), (end, 0, 0, _ALLOW)]
    return b"".join(code.to_bytes(2, sys.byteorder) + bytes((yes, no)) + value.to_bytes(4, sys.byteorder) for code, yes, no, value in program)
