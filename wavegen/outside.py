"""What a probe inside must not reach: one process on the host that holds canaries, and clears them away at the end.

    python -I -S outside.py WORD <questions >answers

It is told what will have to be removed before anything is made, then what to hold, and says where that is. When its
input ends, because the harness is done or was killed, it ends what the harness had started and removes everything. It
is in a session of its own, so that a signal to the harness's group does not reach it. Standard library only, as it
starts on every run.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import sys
import time
from typing import Any

_MQ_OPEN = {"x86_64": (240, 241), "aarch64": (180, 181)}
_IPC_RMID, _PR_SET_PTRACER = 0, 0x59616D61
_PATIENCE = 3.0
"""Seconds for which removing is tried again, as what is being ended may still write."""

libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Hold the canaries until the input ends."""
    word = sys.argv[1].encode()
    signalled: list[int] = []
    signal.signal(signal.SIGURG, lambda number, _: signalled.append(number))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    started: list[int] = []
    servers: list[socket.socket] = []
    told: dict[str, Any] = json.loads(_line())
    try:
        _say({"answer": True})
        facts, kept = hold(json.loads(_line()), told["queue"], word, servers)
        _say(facts)
        serve(servers, word, signalled, started)
        del kept
    finally:
        clear_away(told["remove"], told["queue"], started)


def _line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            sys.exit(0)
        line += byte
    return line


def _say(message: object) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def hold(told: dict[str, Any], queue: str, word: bytes, servers: list[socket.socket]) -> tuple[dict[str, Any], list[object]]:
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
    for path in told["sockets"]:
        with contextlib.suppress(OSError):
            os.chdir(os.path.dirname(path))
            server = socket.socket(socket.AF_UNIX)
            server.bind(os.path.basename(path))
            servers.append(server)
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
    with contextlib.suppress(OSError), open(f"/dev/shm/{told['posix']}", "xb") as stream:
        stream.write(word)
    numbers = _MQ_OPEN.get(os.uname().machine)
    if numbers:
        libc.syscall(numbers[0], queue.encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600, None)
    facts = {"pid": os.getpid(), "address": ctypes.addressof(memory), "size": 64, "descriptor": descriptor, "shared memory": segment, "tcp": tcp, "udp": udp}
    return facts, [memory, descriptor]


def serve(servers: list[socket.socket], word: bytes, signalled: list[int], started: list[int]) -> None:
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
                    answer(json.loads(line), signalled, started)
            else:
                with contextlib.suppress(OSError):
                    greet(one, word)


def greet(server: socket.socket, word: bytes) -> None:
    """The word, to one client."""
    if server.type == socket.SOCK_DGRAM:
        _, client = server.recvfrom(64)
        server.sendto(word, client)
    else:
        connection, _ = server.accept()
        connection.sendall(word)
        connection.close()


def answer(question: dict[str, Any], signalled: list[int], started: list[int]) -> None:
    """Was there a signal since the last time? Or: remember a process that was started."""
    if "watch" in question:
        with contextlib.suppress(OSError):
            # A descriptor, as the number may be another's by then.
            started.append(os.pidfd_open(question["watch"]))
        _say({"answer": True})
    else:
        _say({"answer": bool(signalled)})
        signalled.clear()


def clear_away(waste: list[str], queue: str, started: list[int]) -> None:
    """End what was started, and remove what was made."""
    for process in started:
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
    numbers = _MQ_OPEN.get(os.uname().machine)
    if numbers:
        libc.syscall(numbers[1], queue.encode())
    os.chdir("/")
    until = time.monotonic() + _PATIENCE
    while True:
        for path in waste:
            remove(path)
        if not any(os.path.lexists(path) for path in waste) or time.monotonic() > until:
            return
        time.sleep(0.05)


def remove(path: str) -> None:
    """A file or a tree, also one whose directories were made read-only."""
    if os.path.isdir(path) and not os.path.islink(path):
        for directory, _, _ in os.walk(path):
            with contextlib.suppress(OSError):
                os.chmod(directory, 0o700)
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)


if __name__ == "__main__":
    main()
