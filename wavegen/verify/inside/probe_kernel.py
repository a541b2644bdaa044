"""Attempts on the kernel: system calls with arguments that do nothing. The errno tells how far a call came."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import socket
import struct
from collections.abc import Iterable, Iterator

from probe_common import (
    Answer,
    answer_for_error,
    answer_for_outcome,
    answer_reached,
    answer_unknown,
    in_child,
    invoke_syscall_by_name,
    invoke_syscall_by_number,
    loaded_protocols,
    read_file_start,
    try_action,
)

_NOWHERE = 1
"""A pointer that is never mapped: a call that reads it has passed every check before."""
_REFUSALS = {errno.EPERM, errno.ENOSYS, errno.EACCES, errno.EAFNOSUPPORT, errno.ENOSPC}
_FAMILIES = {"packet": 17, "vsock": 40, "alg": 38, "bluetooth": 31, "xdp": 44, "tipc": 30, "rds": 21, "can": 29, "kcm": 41}
_ADDR_NO_RANDOMIZE = 0x40000
_X32 = 0x40000000

# Each with arguments that the kernel refuses after it has looked at the caller's rights.
_CALLS: dict[str, tuple[object, ...]] = {
    "keyctl": (0, -3, 0), "add_key": (None, None, None, 0, 0), "request_key": (None, None, None, 0), "bpf": (0, None, 0),
    "perf_event_open": (None, 0, -1, -1, 0), "userfaultfd": (1,), "io_uring_setup": (1, None), "io_uring_enter": (-1, 0, 0, 0, None, 0),
    "io_uring_register": (-1, 0, None, 0), "kexec_load": (0, 1 << 20, None, 0xFFFF), "kexec_file_load": (-1, -1, 0, None, 0xFFFF),
    "init_module": (None, 0, None), "finit_module": (-1, None, 0), "delete_module": (_NOWHERE, 0), "reboot": (0, 0, 0, None),
    "swapon": (_NOWHERE, 0), "acct": (_NOWHERE,), "syslog": (10, None, 0),
    "fsopen": (_NOWHERE, 0), "open_tree": (-1, _NOWHERE, 0), "move_mount": (-1, _NOWHERE, -1, _NOWHERE, 0), "setns": (-1, 0),
    "unshare": (0,), "open_by_handle_at": (-1, _NOWHERE, 0), "name_to_handle_at": (-1, _NOWHERE, None, None, 0),
    "fanotify_init": (0x200, 0xFFFFFFFF), "lookup_dcookie": (0, None, 0), "move_pages": (0, 0, None, None, None, 0), "pidfd_getfd": (-1, 0, 0),
    "process_madvise": (-1, None, 0, 0, 0), "kcmp": (0, 0, 0, 0, 0), "ptrace": (2, 0, None, None), "memfd_secret": (0,), "modify_ldt": (0, None, 0),
    "clone3": (None, 0),
}  # fmt: skip


def probe_syscalls(names: Iterable[str]) -> Iterator[Answer]:
    """Is the call looked at, or refused before that?"""
    for name in names:

        def call_in_question(name: str = name) -> None:
            done = invoke_syscall_by_name(name, *(argument if argument is not None else 0 for argument in _CALLS[name]))
            if done > 2:
                os.close(done)

        try:
            in_child(call_in_question)()
        except NotImplementedError:
            yield answer_unknown(name, "no such call here")
        except OSError as failed:
            yield answer_for_outcome(name, errno.errorcode.get(failed.errno or 0, ""), reached=failed.errno not in _REFUSALS)
        else:
            yield answer_reached(name)


_PROTOCOLS = {"packet": "PACKET", "vsock": "AF_VSOCK", "alg": "ALG", "bluetooth": "HCI", "xdp": "XDP", "tipc": "TIPC", "rds": "RDS", "can": "RAW", "kcm": "KCM"}


def open_socket_families(names: Iterable[str]) -> Iterator[Answer]:
    """Make a socket of a family that leads round the fence or deep into the kernel.

    Only of those that the kernel knows by now: socket(2) would load the module of another, and it would stay.
    """
    loaded = loaded_protocols()
    for name in names:
        raw = (socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        family, kind, protocol = raw if name == "raw" else (_FAMILIES[name], socket.SOCK_SEQPACKET if name == "alg" else socket.SOCK_DGRAM, 0)
        if name in _PROTOCOLS and _PROTOCOLS[name] not in loaded:
            yield answer_unknown(name, "not loaded here")
            continue
        if name in ("can", "packet", "xdp", "bluetooth"):
            kind, protocol = socket.SOCK_RAW, 1 if name in ("can", "bluetooth") else 0
        if name == "vsock":
            kind = socket.SOCK_STREAM
        if name in ("tipc", "rds"):
            kind = socket.SOCK_SEQPACKET

        def open_socket_of_family(family: int = family, kind: int = kind, protocol: int = protocol) -> None:
            socket.socket(family, kind, protocol).close()

        yield try_action(name, open_socket_of_family)


def change_personality() -> Iterator[Answer]:
    """Take the randomness out of addresses."""

    def disable_randomization() -> None:
        invoke_syscall_by_name("personality", _ADDR_NO_RANDOMIZE)

    yield try_action("ADDR_NO_RANDOMIZE", in_child(disable_randomization))


def foreign_calls() -> Iterator[Answer]:
    """Call the kernel as a 32-bit program does, past a filter that only knows the numbers of 64 bits: getpid."""
    if os.uname().machine != "x86_64":
        yield answer_unknown("int 0x80", "not on this processor")
        return

    def call_by_int80() -> None:
        # push rbx; mov eax, 20; int 0x80; pop rbx; ret
        machine_code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        machine_code.write(bytes.fromhex("53b814000000cd805bc3"))
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(machine_code)))
        done = function()
        if done < 0:
            raise OSError(-done, "")

    yield try_action("int 0x80", in_child(call_by_int80))


def x32_calls() -> Iterator[Answer]:
    """Call the kernel by the numbers of x32."""
    if os.uname().machine != "x86_64":
        yield answer_unknown("x32", "not on this processor")
    else:
        # A filter that lists calls may end whoever calls by such a number.
        yield try_action("x32", in_child(invoke_syscall_by_number, _X32 | 39))


def check_seccomp_filters(filters: int) -> Iterator[Answer]:
    """Is a process without more system call filters than on the host? Counted since Linux 5.9, for this one and PID 1."""
    for name, pid in (("this process", "self"), ("PID 1", "1")):
        try:
            lines = read_file_start(f"/proc/{pid}/status").decode().splitlines()
        except OSError as failed:
            yield answer_for_error(name, failed)
            continue
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        # Before Linux 5.9 they are not counted: one of the host's cannot be told from one's own.
        counted = int(status.get("Seccomp_filters", "1" if status.get("Seccomp") == "2" else "0"))
        if filters < 0:
            yield answer_unknown(name, "the host is filtered, too")
        else:
            yield answer_for_outcome(name, "filtered", reached=status.get("Seccomp") != "2" or counted <= filters)


def clock_and_names() -> Iterator[Answer]:
    """Set the clock (to nothing), and the names of the machine (to what they are)."""
    # settimeofday(2) with two null pointers asks for the right, and does nothing.
    yield try_action("settimeofday", lambda: invoke_syscall_by_name("settimeofday", 0, 0))
    name = os.uname().nodename.encode()
    yield try_action("sethostname", in_child(lambda: invoke_syscall_by_name("sethostname", name, len(name))))
    domain = read_file_start("/proc/sys/kernel/domainname").strip()
    yield try_action("setdomainname", in_child(lambda: invoke_syscall_by_name("setdomainname", domain, len(domain))))


def threads_without_clone3() -> Iterator[Answer]:
    """clone3 must be refused as unknown, not as forbidden: libraries then use clone, which a filter can look into."""
    try:
        invoke_syscall_by_name("clone3", 0, 0)
        yield answer_reached("clone3")
    except OSError as failed:
        yield answer_for_outcome("clone3", errno.errorcode.get(failed.errno or 0, ""), reached=failed.errno != errno.ENOSYS)


def network_settings() -> Iterator[Answer]:
    """Change nothing of an interface, by netlink: the right is asked for all the same (RTM_SETLINK, rtnetlink(7))."""

    def set_link_unchanged() -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as link:
            link.settimeout(1)
            body = struct.pack("=BxHiII", 0, 0, 1, 0, 0)
            link.send(struct.pack("=IHHII", 16 + len(body), 19, 5, 1, 0) + body)
            answer = link.recv(4096)
            number = -struct.unpack("=i", answer[16:20])[0]
            if number:
                raise OSError(number, "")

    yield try_action("an interface", set_link_unchanged)


ATTEMPTS = {
    "calls": probe_syscalls,
    "families": open_socket_families,
    "personality": change_personality,
    "foreign_calls": foreign_calls,
    "x32_calls": x32_calls,
    "unfiltered": check_seccomp_filters,
    "clock_and_names": clock_and_names,
    "threads_without_clone3": threads_without_clone3,
    "network_settings": network_settings,
}
