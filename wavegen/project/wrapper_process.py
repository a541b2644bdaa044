"""A wrapper as a child process: its input and output, how long it may take, and its end, with all that runs inside."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, Self

from wavegen.core.errors import MachineError

GRACE = 3.0
"""Seconds that a command has between SIGTERM and SIGKILL."""
_CLEANING = 10.0
"""Seconds that a wrapper has for what it does after its command: the audit, and what it made for the session."""
_LAST_WORDS = 1.0
"""Seconds to wait for the end of the output where the wrapper has ended: only what runs without a fence can hold it open longer.
And for the wrapper itself, where whoever waits was interrupted."""
_PART = 65536
_PAUSE = 3600.0  # more than a selector can be asked to wait would be an error
_KILLED = 128  # as shells have it: 128+n where signal n ended it


class Child:
    """A wrapper that runs, as the leader of a session of its own. To be used in a `with` block, at whose end it is gone."""

    def __init__(  # noqa: PLR0913  by keyword: what a process is started with
        self, arguments: Sequence[str], *, given: bytes | None, handles: Sequence[int], environment: Mapping[str, str], directory: str, most: int
    ) -> None:
        """Start it. `given`: its standard input, None for nothing; `handles`: descriptors that it inherits; `most`: bytes of output to keep.

        Raises OSError.
        """
        self._room = most
        self.truncated = False
        """Whether there was more output than is kept."""
        self._out: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._left = memoryview(given or b"")
        self._ready = selectors.DefaultSelector()
        self._open: set[str] = set()
        self._ended = False
        self.status = -1
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=directory,
            env=environment,
            pass_fds=handles,
            start_new_session=True,
        )
        try:
            self._register_streams()
        except OSError:
            # It has come nowhere yet.
            with self._process:
                self._process.kill()
            raise

    def _register_streams(self) -> None:
        # Asking a number would ask whoever has it by then; and a descriptor can be waited for together with the output.
        self._handle = os.pidfd_open(self._process.pid)
        self._ready.register(self._handle, selectors.EVENT_READ, self._record_exit)
        for name in ("stdout", "stderr"):
            stream: IO[bytes] = getattr(self._process, name)
            os.set_blocking(stream.fileno(), False)
            self._open.add(name)
            self._ready.register(stream, selectors.EVENT_READ, partial(self._read_output, stream, name))
        if self._process.stdin:
            os.set_blocking(self._process.stdin.fileno(), False)
            self._ready.register(self._process.stdin, selectors.EVENT_WRITE, self._write_input)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended:
            # An exception: Ctrl-C of whoever waits, for one. The wrapper has a moment to remove what it made for the session.
            with _Held() as held:
                held.pin_processes(self._list_descendants)
                self._kill_inside()
                if not self.wait_for_end(_LAST_WORDS):
                    self.kill_process_tree()
                    self.wait_for_end(None)
                held.kill_pinned()
        self._ready.close()
        os.close(self._handle)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        self._process.wait()

    @property
    def wrapper_pid(self) -> int:
        """The wrapper's, which is its launcher's too."""
        return self._process.pid

    def captured_output(self, name: str) -> bytes:
        """What was written to `stdout` or `stderr` so far."""
        return bytes(self._out[name])

    # --- waiting

    def wait_for_end(self, seconds: float | None, *, bounded: bool = False) -> bool:
        """Carry input and output until the wrapper has ended, for so many seconds. Returns whether it has.

        `bounded`: only as long as there is no more output than is kept.
        """
        until = None if seconds is None else time.monotonic() + seconds
        while not self._ended:
            if bounded and self.truncated:
                return False
            pause = _PAUSE if until is None else until - time.monotonic()
            if pause <= 0:
                return False
            self._transfer_ready_data(pause)
        return True

    def drain_output(self) -> None:
        """The rest of the output."""
        until = time.monotonic() + _LAST_WORDS
        while self._open and (pause := until - time.monotonic()) > 0:
            self._transfer_ready_data(pause)

    def _transfer_ready_data(self, pause: float) -> None:
        for key, _ in self._ready.select(min(pause, _PAUSE)):
            act: Callable[[], None] = key.data
            act()

    def _read_output(self, stream: IO[bytes], name: str) -> None:
        with contextlib.suppress(BlockingIOError):
            part = os.read(stream.fileno(), _PART)
            kept = part[: self._room]
            self._out[name] += kept
            self._room -= len(kept)
            self.truncated |= len(kept) < len(part)
            if not part:
                self._ready.unregister(stream)
                self._open.discard(name)

    def _write_input(self) -> None:
        stream = self._process.stdin
        if not stream:
            return
        with contextlib.suppress(BlockingIOError):
            try:
                self._left = self._left[os.write(stream.fileno(), self._left[:_PART]) :]
            except BrokenPipeError:
                self._left = self._left[:0]  # nobody reads it
        if not self._left:
            self._ready.unregister(stream)
            stream.close()

    def _record_exit(self) -> None:
        self._ready.unregister(self._handle)
        self._ended = True
        try:
            # Not reaped yet: until then its number, and that of its process group, is nobody else's.
            found = os.waitid(os.P_PIDFD, self._handle, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            found = None
        if found is None:
            raise MachineError("the exit status of the command is lost", "let nothing else in this process wait for any child, as waitpid(-1) does")
        self.status = found.si_status if found.si_code == os.CLD_EXITED else _KILLED + found.si_status

    # --- its end

    def terminate_command(self, *, fenced: bool) -> None:
        """End the command and the wrapper, and wait for it: SIGTERM, some seconds, SIGKILL.

        Where there is a fence the command is ended, not the wrapper, which then looks at what was left, as it always does, and
        removes what it made for the session. Where there is none, what it has started is found before: of processes whose parent has
        ended nobody can tell whose they are.
        """
        with _Held() as held:
            if not fenced:
                held.pin_processes(self._list_descendants)
            self._signal_command(signal.SIGTERM)
            if not self.wait_for_end(GRACE):
                if fenced:
                    self._kill_inside()
                else:
                    held.pin_processes(self._list_descendants)
                if not fenced or not self.wait_for_end(_CLEANING):
                    self.kill_process_tree()
                    self.wait_for_end(None)
            # What was started in the same moment, when nothing inside could be found yet.
            self.kill_process_tree()
            held.kill_pinned()

    def kill_process_tree(self) -> None:
        """SIGKILL for the wrapper, what it has started, and its process group; what is in a PID namespace ends with that."""
        for pid in self._list_descendants():
            self._send_signal(pid, signal.SIGKILL, partial(self._is_descendant, pid))
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.wrapper_pid, signal.SIGKILL)

    def _signal_command(self, number: signal.Signals) -> None:
        command = self._command_pid()
        if command:
            self._send_signal(command, number, lambda: self._command_pid() == command)
        else:
            # Without a PID namespace: the launcher of Landlock passes it on, and an unfenced shell is the command.
            self._send_signal(self.wrapper_pid, number, lambda: True)

    def _kill_inside(self) -> None:
        first = self._namespace_init_pid()
        if first:
            self._send_signal(first, signal.SIGKILL, lambda: self._namespace_init_pid() == first)
            return
        for child in _child_pids(self.wrapper_pid):
            self._send_signal(child, signal.SIGKILL, partial(self._is_descendant, child))

    @staticmethod
    def _send_signal(pid: int, number: signal.Signals, still: Callable[[], bool]) -> None:
        """A signal for a process, if that is still the one that is meant once it can be no other."""
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return
        try:
            if still():
                signal.pidfd_send_signal(handle, number)
        except OSError:
            return
        finally:
            os.close(handle)

    def _is_descendant(self, pid: int) -> bool:
        return pid in self._list_descendants()

    def _list_descendants(self) -> list[int]:
        """What the wrapper has started, and what that has, the nearest first."""
        found = _child_pids(self.wrapper_pid)
        for pid in found:
            found += _child_pids(pid)
        return found

    def _namespace_init_pid(self) -> int:
        """The first process of the PID namespace inside, 0 where there is none."""
        outside = len(_pids_by_namespace(os.getpid()))
        for pid in self._list_descendants():
            numbers = _pids_by_namespace(pid)
            if len(numbers) > outside and numbers[-1] == 1:
                return pid
        return 0

    def _command_pid(self) -> int:
        """The command's process in a PID namespace, 0 where there is none: the first child of the first process."""
        first = self._namespace_init_pid()
        return next(iter(_child_pids(first)), 0) if first else 0


class _Held:
    """Processes that stay the ones that are meant, whatever becomes of their parents and numbers."""

    def __init__(self) -> None:
        self._handles: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def pin_processes(self, find: Callable[[], list[int]]) -> None:
        """Those that are found now, as many as there may be descriptors."""
        opened: dict[int, int] = {}
        for pid in find():
            if pid not in self._handles:
                with contextlib.suppress(OSError):
                    opened[pid] = os.pidfd_open(pid)
        # Not those that have ended, and whose number another process has got, before they were opened.
        still = set(find()) if opened else set()
        for pid, handle in opened.items():
            if pid in still:
                self._handles[pid] = handle
            else:
                os.close(handle)

    def kill_pinned(self) -> None:
        """SIGKILL for all of them, and for what they have started since."""
        known = 0
        while known < len(self._handles):
            known = len(self._handles)
            self.pin_processes(self._running_children)
        for handle in self._handles.values():
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(handle, signal.SIGKILL)

    def _running_children(self) -> list[int]:
        """The children of those that have not ended."""
        found = []
        for pid, handle in self._handles.items():
            with contextlib.suppress(OSError):
                below = _child_pids(pid)
                signal.pidfd_send_signal(handle, 0)
                found += below
        return found


def _child_pids(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as stream:
            return [int(word) for word in stream.read().split()]
    except (OSError, ValueError):
        return []


def _pids_by_namespace(pid: int) -> list[int]:
    """What a process is called in each PID namespace that it is in, from ours inwards."""
    try:
        with open(f"/proc/{pid}/status", "rb") as stream:
            return next(([int(word) for word in line.split()[1:]] for line in stream if line.startswith(b"NSpid:")), [])
    except (OSError, ValueError):
        return []
