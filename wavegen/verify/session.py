"""Entering a shell as its users do, and talking to the probe inside."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import selectors
import signal
import socket
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from wavegen.core.errors import MachineError, one_line
from wavegen.core.host_programs import SYSTEM, find_host_program, path_entries_outside
from wavegen.verify.canaries import PROBES
from wavegen.verify.host_facts import namespace_inodes
from wavegen.verify.model import NAMESPACES, Answer, State
from wavegen.verify.testbed import Ground, require_pipe

_SILENCE = 20.0
"""Seconds without a word, after which a probe is given up: each attempt has two."""
_HIGH = 100
"""The number of a descriptor that nobody expects."""
_START = 120.0
"""Seconds for a shell to start: Nix may have to build it."""


@dataclass(slots=True)
class Inside:
    """What came of one entry: the answers by case, and why there are no more."""

    answers: dict[str, tuple[Answer, ...]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    error: str = ""


class Entry:
    """How a shell of the ground is entered."""

    def __init__(self, ground: Ground, shell: str, *, fenced: bool, elsewhere: Sequence[tuple[str, int]] = ()) -> None:
        """`elsewhere`: hosts and ports in whose place the planted server is connected to."""
        self.ground, self.shell, self.fenced = ground, shell, fenced
        canary = next((f"127.0.0.1:{port}" for address, port in ground.facts["tcp"] if address == "127.0.0.1"), "")
        self._elsewhere = tuple(word for host, port in elsewhere if canary for word in ("--connect-to", f"{host}:{port}:{canary}"))
        # The image's may be anywhere on its PATH.
        python = "" if fenced and ground.via == "docker" else find_host_program("python3", ground.root, SYSTEM)
        # Where the system has none, the shell's own packages may.
        self.probe = (python or "python3", "-I", "-S", f"{ground.project_copy}/{PROBES}/probe.py")

    def entry_command(self, command: Sequence[str]) -> list[str]:
        """The command line of an entry; without a command, of an interactive one."""
        if self.ground.via != "nix":
            script = f"docker/run-{self.shell}" if self.fenced and self.ground.via == "docker" else f"bin/{self.shell}"
            # Of a persona the fence is tried, not its agent.
            return [f"{self.ground.project_copy}/.wavegen/{script}", *self._elsewhere, "--exec", "--", *command]
        root = self.ground.root
        nix = find_host_program("nix", root, (*SYSTEM, *path_entries_outside(root, os.environ.get("PATH", ""))))
        if not nix:
            raise MachineError("nix is not on the PATH", "install Nix, or verify --via wrapper")
        if not all(c.isalnum() or c in "/._~+@=,-" for c in root):
            raise MachineError(f"Nix cannot read a flake at {root}", "move the project to a path of plain characters, or verify --via wrapper")
        options = ["--extra-experimental-features", "nix-command flakes", "develop", f"{root}#{self.shell}", "--no-write-lock-file"]
        return [nix, *options, *(["--command", *command] if command else [])]

    def start_command(  # noqa: PLR0913  by keyword: what an entry can differ in
        self,
        command: Sequence[str],
        *,
        terminal: int | None = None,
        wholly: bool = False,
        environment: dict[str, str] | None = None,
        before: Callable[[], None] | None = None,
        source: int = subprocess.PIPE,
        output: int = subprocess.PIPE,
        bare: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a command inside. `terminal`: one for messages, or `wholly` for everything, that it controls; `source` and `output`: in place of pipes;
        `bare`: the command alone, without what starts a shell.
        """
        messages = terminal if terminal is not None else subprocess.PIPE
        inherited = self._open_inherited_files() if terminal is None else ()
        try:
            process = subprocess.Popen(
                list(command) if bare else self.entry_command(command),
                cwd=self.ground.project_copy,
                env=environment or self.ground.entry_environment(),
                stdin=terminal if wholly else source,
                stdout=terminal if wholly else output,
                stderr=messages,
                start_new_session=True,
                pass_fds=inherited,
                preexec_fn=before if terminal is None else lambda: fcntl.ioctl(terminal, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no threads here
            )
        except OSError as failed:
            raise MachineError(f"{failed.filename}: {failed.strerror}", "run wavegen render") from None
        finally:
            for handle in inherited:
                os.close(handle)
        self.ground.watch_process(process.pid)
        return process

    def _open_inherited_files(self) -> tuple[int, ...]:
        """Descriptors that the caller left open: a file and a directory of the neighbour."""
        low = tuple(os.open(path, os.O_RDONLY) for path in (f"{self.ground.neighbour_project}/canary", self.ground.neighbour_project))
        return (*low, fcntl.fcntl(low[0], fcntl.F_DUPFD, _HIGH))

    def run_and_capture(
        self, command: Sequence[str], *, environment: dict[str, str] | None = None, before: Callable[[], None] | None = None
    ) -> tuple[int, str]:
        """Run a command inside to its end; its status and standard output."""
        process = self.start_command(command, environment=environment, before=before)
        try:
            out, _ = process.communicate(timeout=_START)
        except subprocess.TimeoutExpired:
            kill_entry(process)
            return (-1, "")
        return (process.returncode, out.decode("utf-8", "replace"))

    def run_attempts(self, tasks: Sequence[dict[str, Any]], digests: Sequence[str], told: Callable[[], None], *, terminal: bool) -> Inside:
        """Run attempts inside; `told` is called for each answer."""
        inside = Inside()
        if not tasks:
            return inside
        master, slave = pty.openpty() if terminal else (-1, -1)
        # An engine makes a terminal only where all three are one.
        wholly = terminal and self.fenced and self.ground.via == "docker"
        command = ("/bin/sh", "-c", 'stty raw -echo; exec "$@"', "sh", *self.probe) if wholly else self.probe
        process = self.start_command(command, terminal=slave if terminal else None, wholly=wholly)
        try:
            if terminal:
                os.close(slave)
            conversation = _Conversation(self, process, master, wholly=wholly)
            conversation.exchange_messages(tasks, digests, told, inside)
        finally:
            kill_entry(process)
            if terminal:
                os.close(master)
        return inside


def kill_entry(process: subprocess.Popen[bytes]) -> None:
    """End an entry that we started, with its session, and close its pipes."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()
    process.wait()


class _Conversation:
    """The probe's lines, and what it is told."""

    def __init__(self, entry: Entry, process: subprocess.Popen[bytes], master: int, *, wholly: bool) -> None:
        """`wholly`: the probe's lines, too, come by the terminal, among all else that it shows."""
        self.entry, self.process, self.master = entry, process, master
        self._out = master if wholly else require_pipe(process.stdout).fileno()
        self._in = master if wholly else require_pipe(process.stdin).fileno()
        self.shown = b""
        self.messages = b""
        self._buffer = b""
        self._ready = selectors.DefaultSelector()
        for stream in (process.stdout, process.stderr):
            if stream:
                self._ready.register(stream.fileno(), selectors.EVENT_READ)
        if master >= 0:
            self._ready.register(master, selectors.EVENT_READ)

    def exchange_messages(self, tasks: Sequence[dict[str, Any]], digests: Sequence[str], told: Callable[[], None], inside: Inside) -> None:
        """From the probe's hello to its last answer."""
        names = {task["id"]: task["id"] for task in tasks}
        for line in self._read_messages():
            if "hello" in line:
                inside.error = self._isolation_failure(line["hello"])
                if inside.error:
                    return
                self._send_message({"digests": list(digests), "outside": not self.entry.fenced, "tasks": list(tasks)})
            elif "ask" in line:
                self._send_message({"number": line["number"], "answer": self._answer_question(line)})
            elif "done" in line:
                break
            elif line.get("id") in names:
                told()
                if "failed" in line:
                    inside.failed[line["id"]] = self.entry.ground.anonymize_text(line["failed"])
                else:
                    inside.answers[line["id"]] = tuple(self._parse_answer(*answer) for answer in line["answers"])
        if not inside.answers:
            inside.error = self._explain_silence()

    def _parse_answer(self, target: str, state: str, detail: str) -> Answer:
        return Answer(self.entry.ground.anonymize_text(target), State(state), self.entry.ground.anonymize_text(detail))

    def _isolation_failure(self, found: dict[str, int]) -> str:
        """Why this is not the fence that the shell is to have; empty where it is one."""
        if not self.entry.fenced:
            return ""
        ours = namespace_inodes()
        shared = [name for name in NAMESPACES if found.get(name, ours.get(name)) == ours.get(name)]
        if "mnt" in shared:
            return f"the fence did not come up: the command ran in the host's namespaces ({', '.join(shared)})"
        return ""

    def _explain_silence(self) -> str:
        """Why nothing was heard: the status, and the last that was said."""
        try:
            status = f"status {self.process.wait(1)}"
        except subprocess.TimeoutExpired:
            status = "no answer"
        said = self.messages.decode("utf-8", "replace").strip().split("\n")
        words = [line for line in said if line and "note:" not in line and "NOT SANDBOXED" not in line]
        if self.process.returncode in (126, 127):
            words.append(f"{self.entry.probe[0]} cannot be started inside (add python3 to the packages)")
        elif self.process.returncode not in (0, 125):
            words.append("the probes need Python 3.10 or newer")
        return one_line(self.entry.ground.anonymize_text(": ".join((f"no probe ran: {status}", *words[-2:]))))

    def _send_message(self, message: object) -> None:
        data = json.dumps(message).encode() + b"\n"
        with contextlib.suppress(OSError):
            while data:
                data = data[os.write(self._in, data) :]

    def _read_messages(self) -> Iterator[dict[str, Any]]:
        patience = _START
        while True:
            ready = self._ready.select(patience)
            if not ready:
                return
            for key, _ in ready:
                chunk = self._read_chunk(key.fd)
                if key.fd == self.master:
                    self.shown += chunk
                elif key.fd != self._out:
                    self.messages += chunk
                if not chunk:
                    self._ready.unregister(key.fd)
                    if key.fd == self._out:
                        self._drain_streams()
                        return
                if key.fd == self._out:
                    *lines, self._buffer = (self._buffer + chunk).split(b"\n")
                    for line in lines:
                        patience = _SILENCE
                        yield _decode_message(line)

    def _read_chunk(self, handle: int) -> bytes:
        try:
            return os.read(handle, 65536)
        except OSError:  # a terminal that nobody has open any more
            return b""

    def _drain_streams(self) -> None:
        until = time.monotonic() + 1
        while self._ready.get_map() and time.monotonic() < until:
            for key, _ in self._ready.select(0.2):
                chunk = self._read_chunk(key.fd)
                if not chunk:
                    self._ready.unregister(key.fd)
                elif key.fd != self.master:
                    self.messages += chunk

    def _answer_question(self, line: dict[str, Any]) -> bool:
        """Something that only the host can tell."""
        match line["ask"]:
            case "contains":
                return _file_contains(line["path"], line["word"])
            case "mounted":
                return self.entry.ground.is_mount_point(line["path"], self.entry.shell)
            case "signalled":
                return self.entry.ground.was_signalled()
            case "greeted":
                return _is_listener_reachable(line["port"], line["word"], six=line["six"])
            case "shown":
                return self._was_shown(f"\033]52;c;{line['word']}".encode())
            case _:
                return False

    def _was_shown(self, word: bytes) -> bool:
        until = time.monotonic() + 0.5
        while word not in self.shown and time.monotonic() < until:
            for key, _ in self._ready.select(0.05):
                if key.fd == self.master:
                    self.shown += self._read_chunk(key.fd)
        return word in self.shown


def _decode_message(line: bytes) -> dict[str, Any]:
    """A line of the probe; what a wrapper or a shell says in between is none."""
    try:
        # At a terminal what it shows may stand before.
        found = json.loads(line[max(line.find(b"{"), 0) :])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _file_contains(path: str, word: str) -> bool:
    try:
        with open(path, "rb") as stream:
            return word.encode() in stream.read()
    except OSError:
        return False


def _is_listener_reachable(port: int, word: str, *, six: bool) -> bool:
    """Whether a listener inside answers on the host's loopback: by its word, as the port may be another's."""
    try:
        with socket.create_connection(("::1" if six else "127.0.0.1", port), timeout=0.5) as client:
            return client.recv(64) == word.encode()
    except OSError:
        return False
