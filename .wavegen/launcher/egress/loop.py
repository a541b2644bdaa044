"""Many conversations in one thread: coroutines that wait for sockets, for time, or for a lookup.

asyncio would do, but takes longer to import than a shell takes to start.
Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

import _thread
import errno
import posix
import select
import time
import types

from .streams import Ignored, Mover

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a tenth of a start
    from collections.abc import Callable, Coroutine, Generator, Iterable
    from typing import Any

    Work = Coroutine[Any, Any, None]

if TYPE_CHECKING:
    import _socket as socket
    from collections import deque
    from heapq import heapify, heappop, heappush
else:
    # Their namesakes import much besides.
    from _collections import deque
    from _heapq import heapify, heappop, heappush

_TIMERS = 256
_PUT_OFF = 64
"""What may be put off while conversations go on."""
_LOOKUPS = 64
"""Lookups at once: each is a thread."""
_EDGES = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET


class CancelledError(BaseException):
    """Thrown into a conversation that is to end."""


class Task:
    """A conversation: what runs, and what it waits for."""

    __slots__ = ("coroutine", "reads", "runs", "turn", "waiting", "writes")

    def __init__(self, coroutine: Work) -> None:
        self.coroutine = coroutine
        self.runs = self.waiting = False
        self.turn = 0
        """Counts its waits, so that a timer of an earlier one is known."""
        self.reads: tuple[int, ...] = ()
        self.writes: tuple[int, ...] = ()


@types.coroutine
def _wait_for_event(what: tuple[Any, ...]) -> Generator[Any, bool, bool]:
    """Give way until something happens; True where it was not the time that ran out."""
    return (yield what)


class Loop:
    """Runs conversations until it is told to stop."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._readers: dict[int, Task] = {}
        self._writers: dict[int, Task] = {}
        self._preferred: set[int] = set()
        self._ready: deque[tuple[Task, bool]] = deque()
        self._timers: list[tuple[float, int, int, Task]] = []
        self._count = 0
        self._stopped = False
        self._wake, self._woken = posix.pipe2(posix.O_NONBLOCK | posix.O_CLOEXEC)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._found: deque[tuple[Task, list[Any], Any]] = deque()
        self._looking = 0
        self._to_look: deque[tuple[Task, list[Any], Callable[[], Any]]] = deque()
        self.tasks: set[Task] = set()
        self.mover = Mover()
        self._later: list[Callable[[], None]] = []

    # --- for conversations

    def register_socket(self, sock: socket.socket) -> None:
        """Once for each socket, before it is waited for. Events are edges: try first, wait then."""
        sock.setblocking(False)
        self._epoll.register(sock.fileno(), _EDGES)

    def prioritize_socket(self, sock: socket.socket) -> None:
        """Who waits to read from this socket goes on before all others."""
        self._preferred.add(sock.fileno())

    async def wait_readable(self, sock: socket.socket, seconds: float | None = None) -> bool:
        """Wait until a socket may have something; False where the time ran out."""
        return await _wait_for_event(("wait", (sock.fileno(),), (), seconds))

    async def wait_writable(self, sock: socket.socket, seconds: float | None = None) -> bool:
        """Wait until a socket may take something."""
        return await _wait_for_event(("wait", (), (sock.fileno(),), seconds))

    async def wait_any_writable(self, socks: Iterable[socket.socket], seconds: float) -> bool:
        """Wait until one of several sockets may take something."""
        return await _wait_for_event(("wait", (), tuple(sock.fileno() for sock in socks), seconds))

    async def sleep_seconds(self, seconds: float) -> None:
        """Wait for a time; 0 lets others have their turn."""
        await _wait_for_event(("wait", (), (), seconds))

    async def run_in_thread(self, work: Callable[[], Any]) -> Any:
        """What blocking work gives, or raises."""
        result: list[Any] = []
        await _wait_for_event(("thread", result, work))
        (value,) = result
        if isinstance(value, BaseException):
            raise value
        return value

    def spawn_task(self, coroutine: Work) -> Task:
        """Start a conversation: it runs at once, until it waits."""
        task = Task(coroutine)
        self.tasks.add(task)
        self._resume_task(task, True)
        return task

    def run_when_idle(self, work: Callable[[], None]) -> None:
        """Do something when no conversation can go on; at the end at the latest."""
        self._later.append(work)

    def run_deferred_work(self) -> None:
        """Do now what was put off."""
        later, self._later = self._later, []
        for work in later:
            work()

    def cancel_task(self, task: Task) -> None:
        """End a conversation where it waits; one that runs right now, or has started the one that does, is ending by itself."""
        if task in self.tasks and not task.runs:
            self._clear_waits(task)
            self._resume_task(task, CancelledError())

    # --- running

    def run_until_stopped(self) -> None:
        """Until `stop_loop` is called."""
        while not self._stopped:
            self._run_one_turn()

    def stop_loop(self) -> None:
        """From any thread."""
        self._stopped = True
        self._wake_loop()

    def close(self) -> None:
        """End every conversation, so that each may say its last word."""
        for task in tuple(self.tasks):
            self.cancel_task(task)
        self.run_deferred_work()
        self._epoll.close()
        posix.close(self._wake)
        posix.close(self._woken)
        self.mover.close()

    def _run_one_turn(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            _, _, turn, task = heappop(self._timers)
            if task.waiting and task.turn == turn:
                self._schedule_task(task, in_time=False)
        timeout = 0.0 if self._ready or self._later else max(0.0, self._timers[0][0] - now) if self._timers else -1
        try:
            events = self._epoll.poll(timeout, 256)
        except InterruptedError:
            events = []
        self._dispatch_socket_events(events)
        if self._later and (len(self._later) > _PUT_OFF or not self._ready):
            self.run_deferred_work()
        for _ in range(len(self._ready)):
            task, in_time = self._ready.popleft()
            if task in self.tasks:
                self._resume_task(task, in_time)

    def _dispatch_socket_events(self, events: list[tuple[int, int]]) -> None:
        for fd, event in events:
            if fd == self._wake:
                self._collect_thread_results()
                continue
            if event & ~select.EPOLLOUT and fd in self._readers:
                self._schedule_task(self._readers[fd], in_time=True)
                if fd in self._preferred:
                    self._ready.rotate()
            if event & ~(select.EPOLLIN | select.EPOLLRDHUP) and fd in self._writers:
                self._schedule_task(self._writers[fd], in_time=True)

    def _schedule_task(self, task: Task, *, in_time: bool) -> None:
        self._clear_waits(task)
        self._ready.append((task, in_time))

    def _clear_waits(self, task: Task) -> None:
        task.waiting = False
        for table, fds in ((self._readers, task.reads), (self._writers, task.writes)):
            for fd in fds:
                if table.get(fd) is task:
                    del table[fd]
        task.reads = task.writes = ()

    def _resume_task(self, task: Task, value: bool | BaseException) -> None:  # noqa: FBT001
        task.runs = True
        try:
            what = task.coroutine.throw(value) if isinstance(value, BaseException) else task.coroutine.send(value if task.turn else None)
        except (StopIteration, CancelledError):
            self.tasks.discard(task)
            return
        finally:
            task.runs = False
        task.turn += 1
        if what[0] == "thread":
            self._to_look.append((task, what[1], what[2]))
            self._start_lookup_threads()
            return
        _, task.reads, task.writes, seconds = what
        task.waiting = True
        for fd in task.reads:
            self._readers[fd] = task
        for fd in task.writes:
            self._writers[fd] = task
        if seconds is not None:
            self._count += 1
            heappush(self._timers, (time.monotonic() + seconds, self._count, task.turn, task))
            if len(self._timers) > _TIMERS + 4 * len(self.tasks):
                # Of a wait that ended in time the timer is still there, for an hour perhaps.
                self._timers = [timer for timer in self._timers if timer[3].waiting and timer[3].turn == timer[2]]
                heapify(self._timers)

    # --- threads

    def _start_lookup_threads(self) -> None:
        while self._to_look and self._looking < _LOOKUPS:
            task, result, work = self._to_look.popleft()
            if task not in self.tasks:
                continue
            self._looking += 1
            try:
                _thread.start_new_thread(self._run_thread_work, (task, result, work))
            except RuntimeError:
                # A command may use up the processes that its user may have.
                self._found.append((task, result, OSError(errno.EAGAIN, "no thread for a lookup")))
                self._wake_loop()

    def _run_thread_work(self, task: Task, result: list[Any], work: Callable[[], Any]) -> None:
        try:
            value = work()
        except BaseException as failed:  # noqa: BLE001  it is raised where it was asked for
            value = failed
        self._found.append((task, result, value))
        self._wake_loop()

    def _wake_loop(self) -> None:
        # Full, or closed with the loop: either way nobody waits for this.
        with Ignored(OSError):
            posix.write(self._woken, b"!")

    def _collect_thread_results(self) -> None:
        with Ignored(BlockingIOError):
            while posix.read(self._wake, 4096):
                pass
        while self._found:
            task, result, value = self._found.popleft()
            self._looking -= 1
            result.append(value)
            if task in self.tasks:
                self._ready.append((task, True))
        self._start_lookup_threads()
