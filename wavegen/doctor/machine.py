"""The machine as it is asked by the checks: programs are run, files read, the kernel called. Nothing is changed, and nothing is left."""

from __future__ import annotations

import contextlib
import os
import platform
import signal
import stat
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from wavegen.core.host_programs import SYSTEM, is_path_within
from wavegen.verify.host_facts import landlock_abi

SECONDS = 10.0
"""How long a trial may take. An engine that does not answer would hang for ever."""
_KEPT = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A program that has ended, or could not be started."""

    status: int
    """Its own; negative where a signal ended it, 127 where it was not started."""
    out: str = ""
    said: str = ""
    """What it wrote to stderr."""
    late: bool = False
    """Whether it was ended because it took too long."""

    @property
    def has_succeeded(self) -> bool:
        """Whether it ended well."""
        return self.status == 0 and not self.late

    def last_error_line(self) -> str:
        """The last line of what it complained of."""
        if self.late:
            return f"no answer within {SECONDS:.0f} seconds"
        lines = [line.strip() for line in (self.said or self.out).splitlines() if line.strip()]
        return lines[-1] if lines else f"status {self.status}"


class Machine(Protocol):
    """What the checks may ask."""

    @property
    def uid(self) -> int:
        """The effective user."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment."""

    def run_program(self, argv: Sequence[str], *, given: bytes = b"") -> Done:
        """Run a program and wait for it, some seconds at most. `given`: its input."""

    def read_text_file(self, path: str) -> str | None:
        """The beginning of a file; None where there is none, or it cannot be read."""

    def file_mode(self, path: str) -> int:
        """The mode bits of what a path leads to, with its kind; 0 where there is nothing."""

    def may_access(self, path: str, how: int) -> bool:
        """Whether this user may: os.R_OK, os.W_OK."""

    def find_trusted_program(self, name: str) -> str:
        """A program's path: the system's, else the first of the PATH that no shell can have written; empty where there is none."""

    def real_path(self, path: str) -> str:
        """A path without links."""

    def landlock_version(self) -> int:
        """The ABI of Landlock; 0 where the kernel has none, or it is switched off."""

    def release_and_processor(self) -> tuple[str, str]:
        """Release and processor, as uname(2) says them."""


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """The one that this process runs on."""

    avoided: tuple[str, ...] = ()
    """Directories that shells may write: no program from there is run."""
    uid: int = field(default_factory=os.geteuid)
    variables: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))

    def run_program(self, argv: Sequence[str], *, given: bytes = b"") -> Done:
        """Run a program in a session of its own, from /, in English; what it leaves behind is ended with it."""
        environment = {**self.variables, "LC_ALL": "C", "LANGUAGE": ""}
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env=environment, start_new_session=True
            )
        except OSError as failed:
            return Done(status=127, said=f"{argv[0]}: {failed.strerror}")
        late = False
        try:
            out, said = process.communicate(given, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            late = True
            _kill_process_session(process)
            out, said = _read_remaining_output(process)
        except BaseException:
            _kill_process_session(process)
            process.wait()
            raise
        return Done(status=process.returncode, out=_decode_output(out), said=_decode_output(said), late=late)

    def read_text_file(self, path: str) -> str | None:
        """The first 64 KiB of a plain file, or of one of the kernel's."""
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):
                return None
            with open(path, "rb") as stream:
                return _decode_output(stream.read(_KEPT))
        except OSError:
            return None

    def file_mode(self, path: str) -> int:
        """As stat(2) says it."""
        try:
            return os.stat(path).st_mode
        except OSError:
            return 0

    def may_access(self, path: str, how: int) -> bool:
        """As access(2) says it."""
        return os.access(path, how)

    def find_trusted_program(self, name: str) -> str:
        """As the launcher looks for it."""
        for directory in (*SYSTEM, *self.variables.get("PATH", "").split(os.pathsep)):
            path = os.path.join(directory, name)
            if os.path.isabs(path) and os.path.isfile(path) and os.access(path, os.X_OK) and not self._is_avoided(path):
                return path
        return ""

    def _is_avoided(self, path: str) -> bool:
        return any(is_path_within(place, directory) for place in (os.path.normpath(path), os.path.realpath(path)) for directory in self.avoided)

    def real_path(self, path: str) -> str:
        """As realpath(3) says it."""
        return os.path.realpath(path)

    def landlock_version(self) -> int:
        """As the kernel says it."""
        return max(landlock_abi(), 0)

    def release_and_processor(self) -> tuple[str, str]:
        """Release and processor."""
        return platform.release(), platform.machine()


def _kill_process_session(process: subprocess.Popen[bytes]) -> None:
    # Its session holds what it has started; the number is its own, as it was not waited for yet.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _read_remaining_output(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What it had written; not for ever, as something that left the session may have its output open."""
    try:
        return process.communicate(timeout=1)
    except subprocess.TimeoutExpired as still:
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream:
                stream.close()
        process.wait()
        return still.output or b"", still.stderr or b""


def _decode_output(data: bytes) -> str:
    return data[:_KEPT].decode("utf-8", "replace")
