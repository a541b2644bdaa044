"""Many conversations in one thread: coroutines that wait for sockets, for time, or for a lookup.

asyncio would do, but takes longer to import than a shell takes to start.
Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import _thread
import collections
import contextlib
import errno
import heapq
import os
import select
import socket
import time
import types
from collections.abc import Callable, Coroutine, Generator, Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a tenth of a start
    from typing import Any, TypeVar

    Found = TypeVar("Found")
    Work = Coroutine[Any, Any, None]

_TIMERS = 256
_LOOKUPS = 64
"""Lookups at once: each is a thread."""
TURNS = 16
"""Pieces that one stream may move before others have their turn."""
_EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET


class CancelledError(BaseException):
    """Thrown into a conversation that is to end."""


class Task:
    """A conversation: what runs, and what it waits for."""

    __slots__ = ("_fds", "coroutine", "turn", "waiting")

    def __init__(self, coroutine: Work) -> None:
        self.coroutine = coroutine
        self.waiting = False
        self.turn = 0
        """Counts its waits, so that a timer of an earlier one is known."""
        self._fds: tuple[tuple[dict[int, Task], int], ...] = ()


@types.coroutine
def _park(what: tuple[Any, ...]) -> Generator[Any, bool, bool]:
    """Give way until something happens; True where it was not the time that ran out."""
    return (yield what)


class Loop:
    """Runs conversations until it is told to stop."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Task] = {}
        self._writers: dict[int, Task] = {}
        self._ready: collections.deque[tuple[Task, bool]] = collections.deque()
        self._timers: list[tuple[float, int, int, Task]] = []
        self._count = 0
        self._stopped = False
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._found: collections.deque[tuple[Task, list[Any], Any]] = collections.deque()
        self._looking = 0
        self._to_look: collections.deque[tuple[Task, list[Any], Callable[[], Any]]] = collections.deque()
        self.tasks: set[Task] = set()
        self._current: Task | None = None

    # --- for conversations

    def watch(self, sock: socket.socket) -> None:
        """Once for each socket, before it is waited for. Events are edges: try first, wait then."""
        sock.setblocking(False)
        self._epoll.register(sock.fileno(), _EDGES)

    async def readable(self, sock: socket.socket, seconds: float | None = None) -> bool:
        """Wait until a socket may have something; False where the time ran out."""
        return await _park(("wait", (sock.fileno(),), (), seconds))

    async def writable(self, sock: socket.socket, seconds: float | None = None) -> bool:
        """Wait until a socket may take something."""
        return await _park(("wait", (), (sock.fileno(),), seconds))

    async def any_writable(self, socks: Iterable[socket.socket], seconds: float) -> bool:
        """Wait until one of several sockets may take something."""
        return await _park(("wait", (), tuple(sock.fileno() for sock in socks), seconds))

    async def sleep(self, seconds: float) -> None:
        """Wait for a time; 0 lets others have their turn."""
        await _park(("wait", (), (), seconds))

    async def in_thread(self, work: Callable[[], Any]) -> Any:
        """What blocking work gives, or raises."""
        result: list[Any] = []
        await _park(("thread", result, work))
        (value,) = result
        if isinstance(value, BaseException):
            raise value
        return value

    def spawn(self, coroutine: Work) -> Task:
        """Start a conversation."""
        task = Task(coroutine)
        self.tasks.add(task)
        self._ready.append((task, True))
        return task

    def cancel(self, task: Task) -> None:
        """End a conversation where it waits; one that runs right now is ending by itself."""
        if task in self.tasks and task is not self._current:
            self._unwait(task)
            self._step(task, CancelledError())

    # --- running

    def run(self) -> None:
        """Until `stop` is called."""
        while not self._stopped:
            self._turn()

    def stop(self) -> None:
        """From any thread."""
        self._stopped = True
        self._poke()

    def close(self) -> None:
        """End every conversation, so that each may say its last word."""
        for task in tuple(self.tasks):
            self.cancel(task)
        self._epoll.close()
        os.close(self._wake)
        os.close(self._woken)

    def _turn(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, turn, task = heapq.heappop(self._timers)
            if task.waiting and task.turn == turn:
                self._wakeup(task, in_time=False)
        timeout = 0.0 if self._ready else max(0.0, self._timers[0][0] - now) if self._timers else -1
        try:
            events = self._epoll.poll(timeout, 256)
        except InterruptedError:
            events = []
        for fd, event in events:
            if fd == self._wake:
                self._collect()
                continue
            if event & ~select.EPOLLOUT and fd in self._readers:
                self._wakeup(self._readers[fd], in_time=True)
            if event & ~(select.EPOLLIN | select.EPOLLRDHUP) and fd in self._writers:
                self._wakeup(self._writers[fd], in_time=True)
        for _ in range(len(self._ready)):
            task, in_time = self._ready.popleft()
            if task in self.tasks:
                self._step(task, in_time)

    def _wakeup(self, task: Task, *, in_time: bool) -> None:
        self._unwait(task)
        self._ready.append((task, in_time))

    def _unwait(self, task: Task) -> None:
        task.waiting = False
        for table, fd in task._fds:  # noqa: SLF001
            if table.get(fd) is task:
                del table[fd]
        task._fds = ()  # noqa: SLF001

    def _step(self, task: Task, value: bool | BaseException) -> None:  # noqa: FBT001
        before, self._current = self._current, task
        try:
            what = task.coroutine.throw(value) if isinstance(value, BaseException) else task.coroutine.send(value if task.turn else None)
        except (StopIteration, CancelledError):
            self.tasks.discard(task)
            return
        finally:
            self._current = before
        task.turn += 1
        if what[0] == "thread":
            self._to_look.append((task, what[1], what[2]))
            self._look()
            return
        _, reads, writes, seconds = what
        task.waiting = True
        task._fds = (*((self._readers, fd) for fd in reads), *((self._writers, fd) for fd in writes))  # noqa: SLF001
        for table, fd in task._fds:  # noqa: SLF001
            table[fd] = task
        if seconds is not None:
            self._count += 1
            heapq.heappush(self._timers, (time.monotonic() + seconds, self._count, task.turn, task))
            if len(self._timers) > _TIMERS + 4 * len(self.tasks):
                # Of a wait that ended in time the timer is still there, for an hour perhaps.
                self._timers = [timer for timer in self._timers if timer[3].waiting and timer[3].turn == timer[2]]
                heapq.heapify(self._timers)

    # --- threads

    def _look(self) -> None:
        while self._to_look and self._looking < _LOOKUPS:
            task, result, work = self._to_look.popleft()
            if task not in self.tasks:
                continue
            self._looking += 1
            try:
                _thread.start_new_thread(self._work, (task, result, work))
            except RuntimeError:
                # A command may use up the processes that its user may have.
                self._found.append((task, result, OSError(errno.EAGAIN, "no thread for a lookup")))
                self._poke()

    def _work(self, task: Task, result: list[Any], work: Callable[[], Any]) -> None:
        try:
            value = work()
        except BaseException as failed:  # noqa: BLE001  it is raised where it was asked for
            value = failed
        self._found.append((task, result, value))
        self._poke()

    def _poke(self) -> None:
        # Full, or closed with the loop: either way nobody waits for this.
        with contextlib.suppress(OSError):
            os.write(self._woken, b"!")

    def _collect(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._wake, 4096):
                pass
        while self._found:
            task, result, value = self._found.popleft()
            self._looking -= 1
            result.append(value)
            if task in self.tasks:
                self._ready.append((task, True))
        self._look()


# --- streams

_PIECE, _FIRST = 1024 * 1024, 64 * 1024
"""Bytes that are moved at once: the most, and as long as the receiver does not take all of it."""
_GONE = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Stream:
    """A connected socket, and what was read of it and not yet used."""

    __slots__ = ("_buffer", "loop", "sock")

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.loop, self.sock = loop, sock
        self._buffer = b""

    async def more(self, seconds: float) -> bytes:
        """What was kept, else what comes next; empty at its end. Raises TimeoutError, ConnectionError."""
        if self._buffer:
            return self.kept()
        until = time.monotonic() + seconds
        while True:
            try:
                return self.sock.recv(65536)
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0 or not await self.loop.readable(self.sock, left):
                    raise TimeoutError from None

    async def gather(self, reader: Callable[[bytes], Found | None], seconds: float) -> Found:
        """What a reader makes of what comes, as soon as there is enough of it. Raises TimeoutError, ConnectionError, EOFError."""
        data, until = b"", time.monotonic() + seconds
        while more := await self.more(until - time.monotonic()):
            data += more
            found = reader(data)
            if found is not None:
                return found
        raise EOFError

    def kept(self) -> bytes:
        """What was given back."""
        data, self._buffer = self._buffer, b""
        return data

    def keep(self, data: bytes) -> None:
        """Give back what was read too much."""
        self._buffer = data + self._buffer

    async def send(self, data: bytes | memoryview, seconds: float | None = None) -> None:
        """All of it. Raises TimeoutError, ConnectionError."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                if not await self.loop.writable(self.sock, seconds):
                    raise TimeoutError from None

    def finish(self) -> None:
        """Say that nothing more will come (half-close)."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """Close at once, as if nobody were there."""
        with contextlib.suppress(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self) -> None:
        """Close; what was sent still arrives."""
        self.sock.close()


_shared = memoryview(bytearray(_PIECE))
"""Read into and sent from at once, by whichever stream has its turn: what cannot be sent at once is copied out."""


async def pump(source: Stream, sink: Stream, counted: Callable[[int], None]) -> None:  # noqa: C901  no calls in the hottest loop
    """Move everything from one to the other, and then the end of it. Reads no more than is taken (back-pressure).

    There is no bound on time: a stream may stand still while both ends are there. Raises ConnectionError.
    """
    loop, turns = source.loop, 0
    while kept := source.kept():
        await sink.send(kept)
        counted(len(kept))
    take, give, size = source.sock.recv_into, sink.sock.send, _FIRST
    while True:
        try:
            count = take(_shared[:size])
        except BlockingIOError:
            await loop.readable(source.sock)
            turns = 0
            continue
        except OSError as failed:
            if failed.errno in _GONE:
                raise ConnectionError from None
            raise
        if not count:
            sink.finish()
            return
        try:
            sent = give(_shared[:count])
        except BlockingIOError:
            sent = 0
        if sent < count:
            await sink.send(bytes(_shared[sent:count]))
            turns, size = 0, _FIRST
        elif count == size:
            size = min(2 * size, _PIECE)
        counted(count)
        turns += 1
        if turns >= TURNS:
            turns = 0
            await loop.sleep(0)
