"""What a probe inside must not reach: one process on the host that holds canaries, and clears them away at the end.

    python -I -S outside.py MARKER <questions >answers

It is told first what to make and what may appear, then what to hold, and says where that is. When its input ends,
because the harness is done or was killed, it ends what the harness had started and removes what it made: never a path
that it found there, nor through a link. It is in a session of its own, so that a signal to the harness's group does not
reach it. Everybody sees the marker; the word in the canaries comes by the input. Standard library only, as it starts on
every run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import socket
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import Any

_MQ_OPEN = {"x86_64": (240, 241), "aarch64": (180, 181)}
_IPC_RMID, _PR_SET_PTRACER = 0, 0x59616D61
_PATIENCE = 3.0
"""Seconds for which removing is tried again, as what is being ended may still write."""
_GREETING_SECONDS = 0.5

libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Waste:
    """What has to be ended and removed."""

    directories: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Directories that were made here, by path: device and inode."""
    files: list[str] = field(default_factory=list)
    """Names that nobody could know, and that may have appeared."""
    queue: str = ""
    started: list[tuple[int, int]] = field(default_factory=list)
    """Processes of the harness, each the first of a session: number and descriptor."""


def main() -> None:
    """Hold the canaries until the input ends."""
    signalled: list[int] = []
    signal.signal(signal.SIGURG, lambda number, _: signalled.append(number))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    waste, servers = Waste(), list[socket.socket]()
    try:
        told = json.loads(_read_line())
        make_canary_directories(told, waste)
        _write_message({"answer": True})
        facts, kept = hold_canaries(json.loads(_read_line()), waste, told["word"].encode(), servers)
        _write_message(facts)
        serve_canaries(servers, told["word"].encode(), signalled, waste)
        del kept
    except OSError as failed:
        _write_message({"error": f"{failed.filename or 'a canary'} cannot be made: {failed.strerror}"})
    finally:
        clear_away(waste)


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    return line


def _write_message(message: object) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def make_canary_directories(told: dict[str, Any], waste: Waste) -> None:
    """Make the directories; one that is there already is somebody else's."""
    waste.files, waste.queue = told["files"], told["queue"]
    for path in told["directories"]:
        os.mkdir(path, 0o700)
        made = os.lstat(path)
        waste.directories[path] = (made.st_dev, made.st_ino)


def hold_canaries(told: dict[str, Any], waste: Waste, word: bytes, servers: list[socket.socket]) -> tuple[dict[str, Any], list[object]]:
    """Make everything; where it is, and what must not be let go of."""
    # Yama lets only parents trace, unless the traced one agrees: the probe is to be stopped by the fence.
    libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1 & (1 << 64) - 1), 0, 0, 0)
    tcp: list[tuple[str, int]] = []
    udp: list[tuple[str, int]] = []
    for family, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        with contextlib.suppress(OSError):
            for kind, places in ((socket.SOCK_STREAM, tcp), (socket.SOCK_DGRAM, udp)):
                server = socket.socket(family, kind)
                server.bind((address, 0))
                places.append((address, server.getsockname()[1]))
                servers.append(server)
    bound = []
    for path in told["sockets"]:
        with contextlib.suppress(OSError):
            # An address holds 107 bytes (unix(7)); a name in the working directory is short.
            os.chdir(os.path.dirname(path))
            server = socket.socket(socket.AF_UNIX)
            server.bind(os.path.basename(path))
            servers.append(server)
            bound.append(path)
    os.chdir(told["directory"])
    server = socket.socket(socket.AF_UNIX)
    server.bind(b"\0" + told["abstract"].encode())
    servers.append(server)
    for server in servers:
        if server.type == socket.SOCK_STREAM:
            server.listen(64)
    memory = ctypes.create_string_buffer(word + b"\0", 64)
    # It goes with the last process that uses it, and can be attached to until then (shmctl(2)).
    segment = libc.shmget(0, 4096, 0o600 | 0o1000)
    libc.shmat.restype = ctypes.c_void_p
    attached = libc.shmat(segment, None, 0)
    if segment >= 0 and attached:
        ctypes.memmove(attached, memory, 64)
        libc.shmctl(segment, _IPC_RMID, None)
    descriptor = os.open(told["file"], os.O_RDONLY)
    with contextlib.suppress(OSError):
        handle = os.open(told["posix"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        os.write(handle, word)
        _set_owner(handle, told["owner"])
        os.close(handle)
    numbers = _MQ_OPEN.get(os.uname().machine)
    if numbers:
        made = libc.syscall(numbers[0], waste.queue.encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, None)
        if made >= 0:
            _set_owner(made, told["owner"])
            os.close(made)
    facts = {
        "pid": os.getpid(),
        "address": ctypes.addressof(memory),
        "size": 64,
        "descriptor": descriptor,
        "shared memory": segment,
        "tcp": tcp,
        "udp": udp,
        "bound": bound,
    }
    return facts, [memory, descriptor]


def _set_owner(handle: int, owner: tuple[int, int] | None) -> None:
    """Whose it is to be, where that is not the caller: what nobody inside may open anyhow proves nothing about a fence."""
    if owner:
        os.fchown(handle, *owner)


def serve_canaries(servers: list[socket.socket], word: bytes, signalled: list[int], waste: Waste) -> None:
    """Give the word to whoever connects; answer questions; until the input ends."""
    buffer = b""
    everything: list[int | socket.socket] = [0, *servers]
    while True:
        ready, _, _ = select.select(everything, [], [])
        for one in ready:
            if isinstance(one, int):
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, buffer = (buffer + data).split(b"\n")
                for line in lines:
                    answer_harness(json.loads(line), signalled, waste)
            else:
                with contextlib.suppress(OSError):
                    send_canary(one, word)


def send_canary(server: socket.socket, word: bytes) -> None:
    """The word, to one client."""
    if server.type == socket.SOCK_DGRAM:
        _, client = server.recvfrom(64)
        server.sendto(word, client)
    else:
        connection, _ = server.accept()
        connection.settimeout(_GREETING_SECONDS)
        connection.sendall(word)
        connection.close()


def answer_harness(question: dict[str, Any], signalled: list[int], waste: Waste) -> None:
    """Was there a signal since the last time? Or: remember a process that was started."""
    if "watch" in question:
        with contextlib.suppress(OSError):
            # A descriptor, as the number may be another's by then.
            waste.started.append((question["watch"], os.pidfd_open(question["watch"])))
        _write_message({"answer": True})
    else:
        _write_message({"answer": bool(signalled)})
        signalled.clear()


# --- the end


def clear_away(waste: Waste) -> None:
    """End what was started, and remove what was made."""
    for number, process in waste.started:
        end_session(number, process)
    numbers = _MQ_OPEN.get(os.uname().machine)
    if numbers and waste.queue:
        libc.syscall(numbers[1], waste.queue.encode())
    os.chdir("/")
    for path in waste.files:
        with contextlib.suppress(OSError):
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                os.unlink(path)
    until = time.monotonic() + _PATIENCE
    while waste.directories and time.monotonic() < until:
        for path, inode in tuple(waste.directories.items()):
            if remove_directory(path, inode):
                del waste.directories[path]
        if waste.directories:
            time.sleep(0.05)


def end_session(number: int, process: int) -> None:
    """Kill a process that has not been waited for, and what it left in its session."""
    try:
        signal.pidfd_send_signal(process, 0)
    except OSError:
        return  # it has ended in the harness's own time, and its number may be another's
    for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
        with contextlib.suppress(OSError):
            member = os.pidfd_open(pid)
            if session_of(pid) == number:
                signal.pidfd_send_signal(member, signal.SIGKILL)
            os.close(member)


def session_of(pid: int) -> int:
    """The session of a process (proc(5), stat); the name in parentheses may hold anything."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
        return int(stream.read().rpartition(")")[2].split()[3])


def remove_directory(path: str, inode: tuple[int, int]) -> bool:
    """Remove a directory that was made here; whether nothing of it is left."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return True
    try:
        found = os.fstat(handle)
        if (found.st_dev, found.st_ino) != inode:
            return True
        empty_directory(handle)
        os.rmdir(path)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def empty_directory(directory: int) -> None:
    """Remove all that is in an open directory, without following a link."""
    for name in os.listdir(directory):
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=directory)
            continue
        if os.geteuid() != 0:
            os.chmod(name, 0o700, dir_fd=directory)  # one that was made read-only; nobody else can put a link here
        handle = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        try:
            empty_directory(handle)
        finally:
            os.close(handle)
        os.rmdir(name, dir_fd=directory)


if __name__ == "__main__":
    main()
