"""What is tried from outside, by starting a shell in ways that must not work, or must."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import platform
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

from wavegen import containers
from wavegen.entry import Entry, end
from wavegen.errors import FenceError
from wavegen.ground import piped
from wavegen.host_facts import namespaces
from wavegen.kept import key
from wavegen.probes import Answer, State

_START = 60.0
_SETTLED = 0.1
_ENDED, _STAYS = 3.0, 0.2
"""Seconds within which what ends with its shell has ended, and after which what has not will stay."""


def _told(target: str, detail: str = "", *, reached: bool) -> Answer:
    return Answer(target, State.REACHED, "") if reached else Answer(target, State.STOPPED, detail)


def planted_links(entry: Entry, path: str) -> Iterator[Answer]:
    """A command put a link in place of what the manifest grants: where does it lead at the next start?"""
    aside = f"{path}.aside"
    os.rename(path, aside)
    try:
        directory = os.path.isdir(aside)
        os.symlink(entry.ground.neighbour if directory else f"{entry.ground.neighbour}/canary", path)
        status, out = entry.output(("cat", f"{path}/canary" if directory else path))
        yield _told(entry.ground.shown(path), "refused" if status == FenceError.exit_code else f"status {status}", reached=entry.ground.word in out)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.rename(aside, path)


def project_is_home(entry: Entry) -> Iterator[Answer]:
    """HOME is the project, or lies in it."""
    for name, home in (("HOME is the project", entry.ground.project), ("HOME is in the project", f"{entry.ground.project}/nested")):
        status, out = entry.output(("echo", "started"), environment={**entry.ground.environment(), "HOME": home})
        yield _told(name, f"status {status}", reached="started" in out)


def left_behind(entry: Entry) -> Iterator[Answer]:
    """A process that ignores its terminal's end is left in the background."""
    process = entry.start(("/bin/sh", "-c", "trap '' HUP TERM; sleep 5 & echo up"))
    try:
        if not _ended(process):
            yield Answer("a process in the background", State.UNKNOWN, "the command did not end")
            return
        yield _told("a process in the background", "ended", reached=not _closed(process, _ENDED if entry.fenced else _STAYS))
    finally:
        _end_group(process)


def orphaned(entry: Entry) -> Iterator[Answer]:
    """The wrapper is killed while a command runs."""
    process = entry.start(("/bin/sh", "-c", "sleep 5 & echo up; wait"))
    try:
        out = piped(process.stdout)
        if not select.select([out], [], [], 60)[0] or b"up" not in os.read(out.fileno(), 100):
            yield Answer("the command", State.UNKNOWN, "it did not start")
            return
        # bwrap's own PID 1 binds itself to its parent just after it has started the command.
        time.sleep(_SETTLED)
        os.kill(process.pid, signal.SIGKILL)
        _ended(process)
        yield _told("the command", "ended", reached=not _closed(process, _ENDED if entry.fenced else _STAYS))
    finally:
        _end_group(process)


_LEFT = {"made/.git/hooks/post-checkout": ": >", "made/.envrc": ": >", "made/link": "ln -s /etc", "made/pipe": "mkfifo"}
"""What a command leaves for the host to run or follow, and how it makes that."""


def unaudited(entry: Entry) -> Iterator[Answer]:
    """Something is left for the host to run: does the audit name it?"""
    made = f"{entry.ground.project}/made"
    script = "; ".join(("mkdir -p made/.git/hooks", *(f"{how} {path}" for path, how in _LEFT.items())))
    try:
        entry.output(("/bin/sh", "-c", script))
        state = f"{entry.ground.home}/.local/state/wavegen/{key(entry.ground.project)}"
        audit = f"{entry.ground.project}/.wavegen/runtime/audit.py"
        command = [sys.executable, "-I", "-S", audit, "--project", entry.ground.project, "--state", state, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_START, check=False)
        named = {finding["path"] for finding in json.loads(done.stdout or '{"findings": []}')["findings"]}
        for path in _LEFT:
            if os.path.lexists(f"{entry.ground.project}/{path}"):
                yield _told(path, "named", reached=path not in named)
            else:
                yield Answer(path, State.UNKNOWN, "not made")
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended within some seconds. It is not reaped yet: its number, and its group's, stay its own."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            return True
        time.sleep(0.002)
    return False


def _closed(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether everybody who had the command's output open has ended."""
    out = piped(process.stdout)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not select.select([out], [], [], left)[0]:
            return False
        if not os.read(out.fileno(), 4096):
            return True
    return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """The session of an entry that was not reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    end(process)


def reopened_input(entry: Entry) -> Iterator[Answer]:
    """The caller's input is a file, which is open for reading: can it be opened again for writing?"""
    path = f"{entry.ground.neighbour}/input"
    with open(path, "wb") as stream:
        stream.write(b"as it was")
    handle = os.open(path, os.O_RDONLY)
    try:
        process = entry.start(("/bin/sh", "-c", "echo changed >/proc/self/fd/0"), source=handle)
    finally:
        os.close(handle)
    try:
        process.communicate(timeout=_START)
        with open(path, "rb") as stream:
            yield _told("the input's file", "as it was", reached=stream.read() != b"as it was")
    except subprocess.TimeoutExpired:
        yield Answer("the input's file", State.UNKNOWN, "the command did not end")
    finally:
        _end_group(process)
        os.unlink(path)


def foreign_code(entry: Entry) -> Iterator[Answer]:
    """Files that shells run at their start, and programs of the project before those of the system: is one run on the host?"""
    ground = entry.ground
    mark, fakes = f"{ground.neighbour}/mark", f"{ground.project}/fakes"
    variables = ground.environment()
    environment = {**variables, "PATH": f"{fakes}:{variables['PATH']}", "wg_tools": fakes, "wg_plan": fakes}
    entry.output(("cat", "/dev/null"), environment=environment)
    yield _told("a program of the project", "not on the host", reached=os.path.lexists(mark))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(mark)


def open_directory(entry: Entry) -> Iterator[Answer]:
    """The caller's input is a directory: all of the host can be reached from there."""
    handle = os.open(entry.ground.neighbour, os.O_RDONLY)
    try:
        process = entry.start(("/bin/cat", "/proc/self/fd/0/canary"), source=handle)
    finally:
        os.close(handle)
    try:
        out, _ = process.communicate(timeout=_START)
        yield _told("input from a directory", f"status {process.returncode}", reached=entry.ground.word.encode() in out)
    except subprocess.TimeoutExpired:
        yield Answer("input from a directory", State.UNKNOWN, "the command did not end")
    finally:
        _end_group(process)


def exit_status(entry: Entry) -> Iterator[Answer]:
    """A command's status comes back."""
    for status in (0, 7):
        found, _ = entry.output(("/bin/sh", "-c", f"exit {status}"))
        yield _told(f"status {status}", f"status {found}", reached=found == status)


def forged(entry: Entry) -> Iterator[Answer]:
    """The caller's environment says that there is a fence already."""
    environment = {**entry.ground.environment(), "SANDBOX_ACTIVE": "1", "WAVEGEN_SHELL": entry.shell, "container": "docker", "IN_NIX_SHELL": "impure"}
    code = "import os; print(os.stat('/proc/self/ns/mnt').st_ino)"
    _, out = entry.output((entry.probe[0], "-I", "-S", "-c", code), environment=environment)
    found = out.strip().split("\n")[-1]
    if not found.isdigit():
        yield Answer("SANDBOX_ACTIVE=1", State.UNKNOWN, "nothing was run")
    else:
        yield _told("SANDBOX_ACTIVE=1", "fenced all the same", reached=int(found) == namespaces().get("mnt"))


def unfenceable(entry: Entry) -> Iterator[Answer]:
    """A kernel that forbids user namespaces, or a daemon that is not there: what is run?"""
    if entry.ground.via == "docker" and not containers.podman():
        status, out = entry.output(("echo", "started"), environment={**entry.ground.environment(), "DOCKER_HOST": f"unix://{entry.ground.neighbour}/none"})
        yield _told("no engine", f"status {status}", reached="started" in out)
        return
    try:
        forbid = _forbidding_namespaces()
    except NotImplementedError:
        yield Answer("no user namespaces", State.UNKNOWN, "not on this processor")
        return
    status, out = entry.output(("echo", "started"), before=forbid)
    yield _told("no user namespaces", f"status {status}", reached="started" in out)


def _forbidding_namespaces() -> Callable[[], None]:
    """Makes unshare(2), and clone(2) with CLONE_NEWUSER, fail with EPERM in this process and all that it starts."""
    numbers = {"x86_64": (0xC000003E, 272, 56, 435), "aarch64": (0xC00000B7, 97, 220, 435)}.get(platform.machine())
    if numbers is None:
        raise NotImplementedError
    architecture, unshare, clone, clone3 = numbers
    eperm, enosys, allow = 0x00050001, 0x00050026, 0x7FFF0000
    program = [
        (0x20, 0, 0, 4),  # the architecture
        (0x15, 0, 7, architecture),
        (0x20, 0, 0, 0),  # the number
        (0x15, 6, 0, unshare),
        (0x15, 6, 0, clone3),
        (0x15, 0, 3, clone),
        (0x20, 0, 0, 16),  # the flags
        (0x45, 2, 1, 0x10000000),
        (0x06, 0, 0, allow),
        (0x06, 0, 0, allow),
        (0x06, 0, 0, eperm),
        (0x06, 0, 0, enosys),
    ]
    code = b"".join(struct.pack("<HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    described = ctypes.create_string_buffer(struct.pack("@HP", len(program), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)

    def forbid(_program: object = buffer) -> None:
        # PR_SET_NO_NEW_PRIVS; PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, described, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")

    return forbid


# --- at a terminal


def interactive(entry: Entry) -> Iterator[Answer]:
    """Somebody works in it: the window is resized, a command interrupted, one put into the background.

    Keys that are pressed while a shell gets ready can be lost, there and everywhere: what fails is tried once more.
    """
    answers = tuple(_interact(entry))
    if any(answer.state is not State.REACHED for answer in answers):
        answers = tuple(_interact(entry))
    yield from answers


def _interact(entry: Entry) -> Iterator[Answer]:
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = entry.start((), terminal=slave, wholly=True)
    os.close(slave)
    screen = _Screen(master)
    try:
        screen.type("echo rea''dy\n")
        if not screen.shows("ready", _START):
            yield Answer("a prompt", State.STOPPED, "none came")
            return
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
        # A daemon hears of it by another way than of the keys.
        yield _told("resizing", "the old size", reached=any(_sized(screen) for _ in range(_SIZES)))
        screen.type("sh -c 'echo go''ing; exec sleep 30'\n")
        screen.shows("going")
        screen.type("\x03")
        screen.type("echo st$((1 + 1))=$?\n")
        yield _told("Ctrl-C", "not interrupted", reached=screen.shows("st2=130"))
        screen.type("sh -c 'echo wait''ing; exec sleep 30'\n")
        screen.shows("waiting")
        screen.type("\x1a")
        screen.type("jobs; kill %1; echo sto''pped\n")
        yield _told("Ctrl-Z", "not stopped", reached=screen.shows("stopped") and "Stopped" in screen.text)
        screen.type("exit\n")
    finally:
        _end_group(process)
        os.close(master)


_SIZES = 6


def _sized(screen: _Screen) -> bool:
    screen.type("stty size\n")
    return screen.shows("33 111", 0.5)


class _Screen:
    """What a terminal shows."""

    def __init__(self, master: int) -> None:
        self.master, self.text = master, ""

    def type(self, keys: str) -> None:
        """Press keys."""
        with contextlib.suppress(OSError):
            os.write(self.master, keys.encode())

    def shows(self, text: str, seconds: float = 3) -> bool:
        """Whether a text appears within some seconds."""
        until = time.monotonic() + seconds
        while text not in self.text:
            left = until - time.monotonic()
            if left < 0 or not select.select([self.master], [], [], left)[0]:
                return False
            try:
                chunk = os.read(self.master, 65536)
            except OSError:
                return False
            if not chunk:
                return False
            self.text += chunk.decode("utf-8", "replace")
        return True


TRIALS: dict[str, Callable[..., Iterator[Answer]]] = {
    function.__name__: function
    for function in (
        planted_links,
        project_is_home,
        left_behind,
        orphaned,
        unaudited,
        reopened_input,
        open_directory,
        foreign_code,
        exit_status,
        forged,
        unfenceable,
        interactive,
    )
}


NOT_BY_NIX = {"foreign_code", "passed_through", "another_server"}
"""Nix runs bash, and what stands on the caller's PATH, before any fence; and no server can be named to it in a name's place."""


def try_from_outside(name: str, entry: Entry, arguments: dict[str, Any]) -> tuple[Answer, ...]:
    """The answers of one trial."""
    try:
        return tuple(TRIALS[name](entry, **arguments))
    except (OSError, subprocess.SubprocessError) as failed:
        return (Answer(name, State.UNKNOWN, type(failed).__name__),)
