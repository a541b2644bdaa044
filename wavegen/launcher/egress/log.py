"""What was asked for and what came of it, as JSON lines that the user can read and the command cannot.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from .rules import Rule

_SIZE_MAX = 8 * 1024 * 1024
"""Bytes, after which a new file is begun; one old one is kept."""
_A_MINUTE = 200
"""Refusals that are written in a minute; the others are counted."""
_NAME = 128
_AGAIN = 5.0
"""Seconds within which the same refusal is not written again."""
_REMEMBERED = 1024
_SEEK_CUR = 1
"""lseek(2)."""


class Log:
    """A file that lines are appended to, or (stream) a descriptor. Several shells may share it."""

    def __init__(self, path: str, shell: str, *, stream: int = -1) -> None:
        self.path, self.shell = path, shell
        self._handle = posix.dup(stream) if stream >= 0 else -1
        self._failed = False
        self._lately: dict[tuple[object, ...], float] = {}
        self._minute, self._refusals = 0, 0
        if path:
            self._open_egress_log()

    def _open_egress_log(self) -> None:
        try:
            flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW | posix.O_CLOEXEC
            self._handle = posix.open(self.path, flags, 0o600)
            if posix.fstat(self._handle).st_size > _SIZE_MAX:
                # Another shell of the project may have done it meanwhile.
                if _is_same_file(posix.fstat(self._handle), posix.lstat(self.path)):
                    posix.replace(self.path, self.path + ".1")
                posix.close(self._handle)
                self._handle = posix.open(self.path, flags, 0o600)
        except OSError as failed:
            self._give_up(failed)

    def _give_up(self, failed: OSError) -> None:
        if not self._failed:
            self._failed = True
            sys.stderr.write(f"wavegen: warning: what is asked for is not written down: {self.path or 'stderr'}: {failed.strerror}\n")

    def write_log_entry(
        self,
        verdict: str,
        via: str,
        name: str,
        reason: str,
        *,
        rule: Rule | None = None,
        port: int = 0,
        address: str | None = None,
        moved: tuple[int, int] = (0, 0),
        seconds: float = 0.0,
    ) -> None:
        """One decision. `moved`: bytes up and down."""
        now = time.time()
        if self._handle < 0 or (verdict != "allow" and not self._has_room(int(now) // 60)):
            return
        up, down = moved
        about = {"name": name[:_NAME], "port": port, "address": address, "rule": str(rule) if rule else None, "line": rule.manifest_location if rule else None}
        self._append_log_line(now, {"verdict": verdict, "via": via, **about, "up": up, "down": down, "ms": round(seconds * 1000), "reason": reason})

    def _has_room(self, minute: int) -> bool:
        """Whether one more refusal is written: a command could else push out what it did before."""
        if minute != self._minute:
            self._count_left_out()
            self._minute = minute
        self._refusals += 1
        return self._refusals <= _A_MINUTE

    def _count_left_out(self) -> None:
        left_out, self._refusals = self._refusals - _A_MINUTE, 0
        if left_out > 0:
            self.write_log_entry("deny", "dns", f"{left_out} more", "limit")

    def _append_log_line(self, now: float, fields: dict[str, object]) -> None:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        import json  # slow: most shells are refused nothing

        # Only ASCII without control characters: what a command asks for is printed on somebody's terminal.
        line = json.dumps({"time": stamp, "shell": self.shell, "pid": posix.getpid(), **fields}) + "\n"
        try:
            posix.write(self._handle, line.encode("ascii"))
            if self.path and posix.lseek(self._handle, 0, _SEEK_CUR) > _SIZE_MAX:
                posix.close(self._handle)
                self._open_egress_log()
        except OSError as failed:
            self._give_up(failed)

    def was_logged_recently(self, *what: object) -> bool:
        """Whether the same was said a moment ago; a program may ask a thousand times."""
        now = time.monotonic()
        if self._lately.get(what, -_AGAIN) + _AGAIN > now:
            return True
        self._lately.pop(what, None)
        if len(self._lately) >= _REMEMBERED:
            del self._lately[next(iter(self._lately))]
        self._lately[what] = now
        return False

    def close(self) -> None:
        """The last line is written."""
        self._count_left_out()
        if self._handle >= 0:
            try:
                posix.close(self._handle)
            except OSError:
                pass
            self._handle = -1


def _is_same_file(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
