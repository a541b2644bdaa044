"""What the filter moves: how many calls it takes, how much of it is held, what is counted, and who goes first."""

from __future__ import annotations

import contextlib
import errno
import os
import posix
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from helpers import until

from wavegen.launcher.egress import streams
from wavegen.launcher.egress.log import Log
from wavegen.launcher.egress.loop import Loop
from wavegen.launcher.egress.rules import Rule, Rules
from wavegen.launcher.egress.serve import Egress

MEBIBYTE = 1 << 20
NAME, PORT = "good.example.com", 7000
CONNECT = f"CONNECT {NAME}:{PORT} HTTP/1.1\r\nHost: {NAME}:{PORT}\r\n\r\n".encode()
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
SPLICES = hasattr(os, "splice")


class Noted(Log):
    """A log that is kept here."""

    def __init__(self) -> None:
        super().__init__("", "default")
        self.moved: list[tuple[int, int]] = []
        self.said: list[tuple[str, str, str]] = []
        """Verdict, name, reason."""

    def write_log_entry(self, verdict: str, _via: str, name: str, reason: str, *_: Any, moved: tuple[int, int] = (0, 0), **__: Any) -> None:
        self.moved.append(moved)
        self.said.append((verdict, name, reason))


class Served:
    """A filter in a thread of its own, which lets one name through, and the server behind it."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.proxy = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.log = Noted()
        rules = Rules(anything=False, allow=[Rule(f"{NAME}:{PORT}", "line 1", "")], deny=[])
        self.egress = Egress(rules, self.log, shell="default", connect_to={(NAME, PORT): self.server.getsockname()})
        self.thread = threading.Thread(target=self.egress.serve_listeners, args=([("proxy", self.proxy)],), daemon=True)
        self.thread.start()
        # A connection has the settings that its listener had when it was made.
        assert until(lambda: self.proxy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1)

    def join(self) -> tuple[socket.socket, socket.socket]:
        """A client and the server's end, joined by the filter."""
        client = socket.create_connection(self.proxy.getsockname(), 20)
        client.sendall(CONNECT)
        said = b""
        while len(said) < len(ESTABLISHED):
            said += client.recv(len(ESTABLISHED) - len(said))
        assert said == ESTABLISHED
        far, _ = self.server.accept()
        far.settimeout(20)
        return client, far

    def close(self) -> None:
        self.egress.loop.stop_loop()
        self.thread.join(10)
        self.egress.loop.close()
        self.server.close()
        self.proxy.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


def sent_through(source: socket.socket, sink: socket.socket, count: int) -> bytes:
    """What arrives of so many bytes that are sent."""
    data = os.urandom(count)

    def send() -> None:
        source.sendall(data)
        source.shutdown(socket.SHUT_WR)

    sender = threading.Thread(target=send)
    sender.start()
    came = b"".join(iter(lambda: sink.recv(MEBIBYTE), b""))
    sender.join()
    assert came == data
    return came


@pytest.mark.skipif(not SPLICES, reason="Python 3.10 has splice")
@pytest.mark.parametrize("down", [True, False])
def test_bytes_pass_by_the_kernel_alone_and_with_few_calls(served: Served, monkeypatch: pytest.MonkeyPatch, down: bool) -> None:
    calls: list[int] = []
    splice = os.splice

    def counted(source: int, sink: int, count: int, **more: Any) -> int:
        calls.append(count)
        return splice(source, sink, count, **more)

    client, far = served.join()
    monkeypatch.setattr(posix, "splice", counted)
    monkeypatch.setattr(streams.Mover, "copy_bytes", lambda *_: (_ for _ in ()).throw(BlockingIOError))
    with client, far:
        sent_through(*((far, client) if down else (client, far)), 64 * MEBIBYTE)
    # 64 KiB a piece would be 32 for each MiB; it is about two.
    assert 0 < len(calls) < 64 * 16
    assert until(lambda: served.log.moved == [(0, 64 * MEBIBYTE) if down else (64 * MEBIBYTE, 0)])


@pytest.mark.parametrize("why", ["no splice", "not for sockets", "no descriptors"])
def test_without_splice_everything_arrives_as_well(monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    def fails(number: int) -> Callable[..., int]:
        def failing(*_: Any, **__: Any) -> int:
            raise OSError(number, os.strerror(number))

        return failing

    if why == "no splice":
        monkeypatch.delattr(posix, "splice", raising=False)
    elif why == "not for sockets":
        monkeypatch.setattr(posix, "splice", fails(errno.EINVAL), raising=False)
    else:
        calls = iter((os.pipe2,))  # the loop's own

        def pipe2(flags: int) -> object:
            return next(calls, fails(errno.EMFILE))(flags)

        monkeypatch.setattr(posix, "pipe2", pipe2)
    served = Served()
    try:
        client, far = served.join()
        with client, far:
            sent_through(far, client, 8 * MEBIBYTE)
        assert until(lambda: served.log.moved == [(0, 8 * MEBIBYTE)])
    finally:
        served.close()


def test_urgent_data_holds_nothing_up(served: Served) -> None:
    client, far = served.join()
    with client, far:
        client.sendall(b"before")
        client.send(b"!", socket.MSG_OOB)
        client.sendall(b"after")
        said = b""
        with contextlib.suppress(TimeoutError):
            while not said.endswith(b"after"):
                said += far.recv(100)
    assert said == b"beforeafter"


def test_what_was_delivered_is_counted_where_a_connection_is_reset(served: Served) -> None:
    client, far = served.join()
    client.setblocking(False)
    count, quiet, came = 0, 0, 0
    while quiet < 20:  # until nobody takes any more
        try:
            count, quiet = count + client.send(bytes(65536)), 0
        except BlockingIOError:
            quiet += 1
            time.sleep(0.02)
    while came < 34752:
        came += len(far.recv(34752 - came))
    far.close()  # with much unread: a reset
    assert until(lambda: bool(served.log.moved))
    client.close()
    ((up, down),) = served.log.moved
    assert down == 0
    assert came <= up
    # What has not left the filter was not delivered.
    assert up < count


def test_downloads_that_stand_still_are_held_in_little_memory(served: Served) -> None:
    count = 120
    pairs = [served.join() for _ in range(count)]
    for _, far in pairs:
        far.setblocking(False)
    end = time.monotonic() + 30
    quiet = 0
    while quiet < 10 and time.monotonic() < end:
        taken = 0
        for _, far in pairs:
            with contextlib.suppress(BlockingIOError):
                taken += far.send(bytes(MEBIBYTE))
        quiet = 0 if taken else quiet + 1
        time.sleep(0.01)
    assert quiet == 10
    near = [connection.client.sock for connection in served.egress._connections]
    far_ends = [connection.server.sock for connection in served.egress._connections if connection.server]
    unsent = sum(streams.Stream(served.egress.loop, sock).count_unsent_bytes() for sock in near)
    assert len(near) == count
    assert served.egress.loop.mover.parked <= 16 * MEBIBYTE + count * 65536
    assert unsent <= count * (256 + 128) * 1024
    assert sum(sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 512 * 1024 for sock in far_ends) >= count - 16
    for client, far in pairs:
        client.close()
        far.close()
    assert until(lambda: not served.egress._connections)
    assert served.egress.loop.mover.parked == 0


def test_what_is_accepted_is_sent_on_at_once_and_not_spaced_in_time(served: Served) -> None:
    client, far = served.join()
    with client, far:
        (connection,) = served.egress._connections
        assert connection.server
        for sock in (connection.client.sock, connection.server.sock):
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, 25) == 256 * 1024
        assert connection.client.sock.getsockopt(socket.IPPROTO_TCP, 13, 16).rstrip(b"\0") == b"reno"


# --- who goes first


@pytest.fixture
def loop() -> Iterator[Loop]:
    made = Loop()
    yield made
    made.close()


def test_a_conversation_runs_at_once_until_it_waits_and_may_be_ended_by_one_that_it_starts(loop: Loop) -> None:
    said: list[str] = []

    async def inner() -> None:
        said.append("inner")
        loop.cancel_task(outer_task[0]) if outer_task else None
        await loop.sleep_seconds(60)

    async def outer() -> None:
        said.append("outer")
        loop.spawn_task(inner())
        said.append("outer goes on")

    outer_task: list[Any] = []
    outer_task.append(loop.spawn_task(outer()))
    assert said == ["outer", "inner", "outer goes on"]
    assert outer_task[0] not in loop.tasks


def test_a_new_connection_comes_before_others_and_what_can_wait_after_them(loop: Loop) -> None:
    said: list[str] = []
    pairs = {name: socket.socketpair() for name in ("first", "second", "preferred")}

    async def hear(name: str) -> None:
        await loop.wait_readable(pairs[name][0])
        said.append(name)
        loop.run_when_idle(lambda: said.append("later"))

    for name, (ours, theirs) in pairs.items():
        loop.register_socket(ours)
        if name == "preferred":
            loop.prioritize_socket(ours)
        loop.spawn_task(hear(name))
        theirs.send(b"x")

    async def stop() -> None:
        await loop.sleep_seconds(0.1)
        loop.stop_loop()

    loop.spawn_task(stop())
    loop.run_until_stopped()
    assert said[0] == "preferred"
    assert sorted(said[1:3]) == ["first", "second"]
    assert said[3:] == ["later"] * 3
    for sock in (sock for pair in pairs.values() for sock in pair):
        sock.close()


def test_a_server_of_this_machine_is_reached_without_a_wait(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    real = Loop.wait_any_writable

    def noted(self: Loop, *arguments: Any) -> Coroutine[Any, Any, bool]:
        waits.append(1)
        return real(self, *arguments)

    monkeypatch.setattr(Loop, "wait_any_writable", noted)
    client, far = served.join()
    client.close()
    far.close()
    assert waits == []


# --- what is written down

REFUSED = {
    "connect": ((CONNECT.replace(b"good", b"bad"),), "not-listed"),
    "http": ((b"GET http://bad.example.com/ HTTP/1.1\r\nHost: bad.example.com\r\n\r\n",), "not-listed"),
    "name": ((b"CONNECT bad..name:443 HTTP/1.1\r\nHost: bad..name:443\r\n\r\n",), "bad-name"),
    "socks": ((b"\x05\x01\x00", b"\x05\x01\x00\x03\x0fbad.example.com\x1b\x58"), "not-listed"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_refusal_is_written_before_what_is_asked_after_its_answer(served: Served, how: str) -> None:
    """The first client keeps its connection open, as one that is slow to close it does."""
    parts, reason = REFUSED[how]
    with socket.create_connection(served.proxy.getsockname(), 20) as early:
        for part in parts:
            early.sendall(part)
            assert early.recv(4096)
        with socket.create_connection(served.proxy.getsockname(), 20) as late:
            late.sendall(CONNECT.replace(b"good", b"later"))
            assert b" 403 " in late.recv(4096)
        assert until(lambda: any("later" in name for _, name, _ in served.log.said))
    assert until(lambda: not served.egress._connections)
    (verdict, name, said), (_, second, _) = served.log.said
    assert (verdict, said, "bad" in name, "later" in second) == ("deny", reason, True, True)
