"""What attempts share: answers, canaries, system calls, and questions to the harness outside."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import signal
from collections.abc import Callable
from typing import Any

Answer = tuple[str, str, str]
"""A target, its state (reached, stopped, unknown), and why: the errno's name, or a few words."""

CANARIES: set[str] = set()
"""The digests of the random words that were planted outside."""

ROLE = {"outside": False}
"""Whether this is the control: real root on a real machine, where nothing may be tried that is not undone by itself."""

HANDED_DOWN: list[int] = []
"""The numbers of descriptors, beyond the usual three, that were open when the probe was started."""

# Not refusals: the machine is at its limits, or too slow; 0 is a time-out's.
_NO_REFUSAL = {0, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EAGAIN}
_SEPARATORS = re.compile(rb"[\s\0=:\"',;]+")
_PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

_replies = b""


# --- talking to the harness: one line of JSON each


def send_json_line(message: dict[str, Any]) -> None:
    """A line on standard output, at once."""
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(1, data) :]


def receive_json_line() -> dict[str, Any] | None:
    """The next line of standard input; None at its end."""
    global _replies  # noqa: PLW0603  what was read beyond the line
    while b"\n" not in _replies:
        chunk = os.read(0, 65536)
        if not chunk:
            return None
        _replies += chunk
    line, _, _replies = _replies.partition(b"\n")
    found: dict[str, Any] = json.loads(line)
    return found


def ask_harness(question: str, **about: object) -> bool:
    """Something that only the host can tell; False where nobody answers."""
    number = int.from_bytes(os.urandom(6), "big")
    send_json_line({"ask": question, "number": number, **about})
    while True:
        reply = receive_json_line()
        if reply is None:
            return False
        if reply.get("number") == number:
            return bool(reply["answer"])


# --- answers


def errno_name(number: int) -> str:
    """EACCES rather than 13."""
    return errno.errorcode.get(number, str(number))


def answer_for_error(target: str, failed: OSError) -> Answer:
    """The answer where a call failed."""
    number = failed.errno or 0
    return (target, "unknown" if number in _NO_REFUSAL else "stopped", errno_name(number))


def try_action(target: str, action: Callable[..., object], *arguments: object) -> Answer:
    """Reached where the action succeeds, stopped where the kernel refuses it."""
    try:
        action(*arguments)
    except OSError as failed:
        return answer_for_error(target, failed)
    return (target, "reached", "")


def answer_reached(target: str) -> Answer:
    """Nothing stopped it."""
    return (target, "reached", "")


def answer_stopped(target: str, why: str) -> Answer:
    """Something stopped it."""
    return (target, "stopped", why)


def answer_for_outcome(target: str, why: str, *, reached: bool) -> Answer:
    """Reached, or stopped for the reason given."""
    return (target, "reached", "") if reached else (target, "stopped", why)


def answer_unknown(target: str, why: str) -> Answer:
    """It could not be tried."""
    return (target, "unknown", why)


def contains_canary(data: bytes) -> bool:
    """Whether a canary stands in the data, as a word of its own."""
    return any(word and hashlib.sha256(word).hexdigest() in CANARIES for word in _SEPARATORS.split(data))


def read_file_start(path: str, most: int = 65536) -> bytes:
    """The beginning of a file."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    data = b""
    try:
        # Files of the kernel come a page at a time.
        while len(data) < most and (chunk := os.read(handle, most - len(data))):
            data += chunk
    finally:
        os.close(handle)
    return data


# --- the kernel

# Numbers: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h. From 424 on they are the same.
_NUMBERS = {
    "x86_64": {
        "ioctl": 16, "ptrace": 101, "syslog": 103, "personality": 135, "pivot_root": 155, "settimeofday": 164, "umount2": 166,
        "acct": 163, "swapon": 167, "reboot": 169, "sethostname": 170, "setdomainname": 171, "init_module": 175, "delete_module": 176,
        "lookup_dcookie": 212, "mq_open": 240, "kexec_load": 246, "add_key": 248, "request_key": 249,
        "keyctl": 250, "move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304,
        "setns": 308, "process_vm_readv": 310, "kcmp": 312, "finit_module": 313, "renameat2": 316, "kexec_file_load": 320, "bpf": 321,
        "userfaultfd": 323, "unshare": 272, "clone": 56, "modify_ldt": 154,
    },
    "aarch64": {
        "ioctl": 29, "ptrace": 117, "syslog": 116, "personality": 92, "pivot_root": 41, "settimeofday": 170, "umount2": 39,
        "acct": 89, "swapon": 224, "reboot": 142, "sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106,
        "lookup_dcookie": 18, "mq_open": 180, "kexec_load": 104, "add_key": 217, "request_key": 218,
        "keyctl": 219, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262, "name_to_handle_at": 264, "open_by_handle_at": 265,
        "setns": 268, "process_vm_readv": 270, "kcmp": 272, "finit_module": 273, "renameat2": 276, "kexec_file_load": 294, "bpf": 280,
        "userfaultfd": 282, "unshare": 97, "clone": 220,
    },
}  # fmt: skip
_EVERYWHERE = {
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429, "fsopen": 430,
    "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442,
    "memfd_secret": 447,
}  # fmt: skip


def invoke_syscall_by_name(name: str, *arguments: object) -> int:
    """Call the kernel by a call's name. Raises OSError, and NotImplementedError where the number is not known here."""
    number = _EVERYWHERE.get(name) or _NUMBERS.get(os.uname().machine, {}).get(name)
    if number is None:
        raise NotImplementedError(name)
    return invoke_syscall_by_number(number, *arguments)


def invoke_syscall_by_number(number: int, *arguments: object) -> int:
    """Call the kernel by number. Raises OSError."""
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if done == -1:
        raise OSError(ctypes.get_errno(), "")
    return int(done)


def die_with(parent: int) -> None:
    """End this process when its parent ends, also where that has happened already."""
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def in_child(action: Callable[..., object], *arguments: object) -> Callable[[], None]:
    """The same action in a child, for what would change this process; its errno comes back as OSError."""

    def fork_and_run() -> None:
        own = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(own)
            try:
                action(*arguments)
            except OSError as failed:
                os._exit(failed.errno or 255)
            except NotImplementedError:
                os._exit(errno.ENOSYS)
            except BaseException:  # noqa: BLE001  nothing of this process must go on
                os._exit(255)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.WIFSIGNALED(status):
            raise OSError(errno.ENOSYS if os.WTERMSIG(status) == signal.SIGSYS else errno.EINTR, "")
        if os.WEXITSTATUS(status):
            raise OSError(os.WEXITSTATUS(status), "")

    return fork_and_run


def loaded_protocols() -> set[str]:
    """Families of sockets that the kernel knows by now (proc_net(5)). Asking for another would load its module for good."""
    lines = read_file_start("/proc/net/protocols", 1 << 16).decode("utf-8", "replace").splitlines()
    return {line.split()[0] for line in lines if line.strip()}
