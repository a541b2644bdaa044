"""What a terminal shows while something takes longer than a second: one line on stderr, which is wiped out."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Self

_AFTER = 1.0
_WIPED = "\r\033[K"


class Waiting:
    """`with Waiting("rendering"): …` shows `rendering: 1 s`, `rendering: 2 s`, or what is counted; nothing where stderr is no terminal.

    Nothing may be printed inside, as the line would stand before it. By a signal and not by a thread: `verify` forks.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._seconds = 0
        self._shown = False
        self._on = sys.stderr is not None and sys.stderr.isatty()

    def __enter__(self) -> Self:
        if self._on:
            self._before = signal.signal(signal.SIGALRM, self._handle_alarm)
            # Calls that are not Python's own go on, too.
            signal.siginterrupt(signal.SIGALRM, False)  # noqa: FBT003  the only way to call it
            signal.setitimer(signal.ITIMER_REAL, _AFTER, _AFTER)
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None) -> None:
        if self._on:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._show_line("")

    def set_activity(self, what: str) -> None:
        """Show this from now on, where there is something."""
        self._what = what or self._what

    def show_count(self, what: str, done: int, of: int) -> None:
        """Show how many of what is counted are done; the last count wipes it out."""
        if self._on:
            self._seconds = 0
            self._show_line(f"{what}: {done} of {of} probes" if done < of else "")

    def _handle_alarm(self, _signal: int, _frame: FrameType | None) -> None:
        self._seconds += 1
        # What is counted says more, as long as it moves.
        if self._seconds > 1 or not self._shown:
            self._show_line(f"{self._what}: {self._seconds} s")

    def _show_line(self, text: str) -> None:
        if not text and not self._shown:
            return
        self._shown = bool(text)
        try:
            # Not by a stream, which may be in the middle of a write.
            os.write(sys.stderr.fileno(), f"{_WIPED}{text}".encode())
        except OSError:
            self._on = False  # the terminal is gone, and nobody looks
