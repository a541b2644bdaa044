"""What is tried from outside, by starting a shell in ways that must not work, or must.

Longer than 400 lines: a list of trials.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import platform
import pty
import random
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from wavegen.core.errors import FenceError
from wavegen.launcher.audit import command
from wavegen.project.shell_mounts import resolve_shell_mounts
from wavegen.project.state_dir import state_directory_name
from wavegen.verify import containers
from wavegen.verify.host_facts import namespace_inodes
from wavegen.verify.model import Answer, State
from wavegen.verify.session import Entry, kill_entry
from wavegen.verify.testbed import require_pipe, wait_until_readable

_START = 60.0
_SETTLED = 0.1
_TICK = 0.1
"""Seconds between two signs of life of a command that is to end with its shell."""
_LIVES, _STAYS = 50, 1
"""So many of them after the shell's end show that a command goes on: counted, as on a machine with much to do all takes longer. `_STAYS`: in the control,
where it goes on."""
_TICKING = f"(n=0; while [ $n -lt 80 ]; do echo .; sleep {_TICK}; n=$((n + 1)); done) & echo up"
"""It ends by itself: whoever kills all that keeps a container leaves it to its command."""


def _make_answer(target: str, detail: str = "", *, reached: bool) -> Answer:
    return Answer(target, State.REACHED, "") if reached else Answer(target, State.STOPPED, detail)


def planted_links(entry: Entry, path: str) -> Iterator[Answer]:
    """A command put a link in place of what the manifest grants: where does it lead at the next start?"""
    aside = f"{path}.aside"
    os.rename(path, aside)
    try:
        directory = os.path.isdir(aside)
        os.symlink(entry.ground.neighbour_project if directory else f"{entry.ground.neighbour_project}/canary", path)
        status, out = entry.run_and_capture(("cat", f"{path}/canary" if directory else path))
        yield _make_answer(
            entry.ground.anonymize_text(path), "refused" if status == FenceError.exit_code else f"status {status}", reached=entry.ground.word in out
        )
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
        os.rename(aside, path)


def project_is_home(entry: Entry) -> Iterator[Answer]:
    """HOME is the project, or lies in it."""
    for name, home in (("HOME is the project", entry.ground.project_copy), ("HOME is in the project", f"{entry.ground.project_copy}/nested")):
        status, out = entry.run_and_capture(("echo", "started"), environment={**entry.ground.entry_environment(), "HOME": home})
        yield _make_answer(name, f"status {status}", reached="started" in out)


def left_behind(entry: Entry) -> Iterator[Answer]:
    """A process that ignores its terminal's end is left in the background."""
    process = entry.start_command(("/bin/sh", "-c", f"trap '' HUP TERM; {_TICKING}"))
    try:
        if not _wait_for_exit(process):
            yield Answer("a process in the background", State.UNKNOWN, "the command did not end")
            return
        yield _check_survival("a process in the background", process, _LIVES if entry.fenced else _STAYS)
    finally:
        _end_group(process)


def orphaned_command(entry: Entry) -> Iterator[Answer]:
    """The wrapper is killed while a command runs: alone, and with the processes that it started."""
    for name, wholly in (("the command", False), ("the command, when what keeps it is killed, too", True)):
        process = entry.start_command(("/bin/sh", "-c", f"{_TICKING}; wait"))
        try:
            out = require_pipe(process.stdout)
            if not wait_until_readable(out, _START) or not os.read(out.fileno(), 100):
                yield Answer(name, State.UNKNOWN, "it did not start")
                continue
            # bwrap's own PID 1 binds itself to its parent just after it has started the command.
            time.sleep(_SETTLED)
            # Stopped first: whoever sees another one end would end the command.
            os.kill(process.pid, signal.SIGSTOP)
            # Outside nobody keeps a command: these would be its own processes.
            for pid in _child_pids(process.pid) if wholly and entry.fenced else ():
                os.kill(pid, signal.SIGKILL)
            os.kill(process.pid, signal.SIGKILL)
            _wait_for_exit(process)
            yield _check_survival(name, process, _LIVES if entry.fenced else _STAYS)
        finally:
            _end_group(process)


_LEFT = {"made/.git/hooks/post-checkout": ": >", "made/.envrc": ": >", "made/link": "ln -s /etc", "made/pipe": "mkfifo"}
"""What a command leaves for the host to run or follow, and how it makes that."""


def unaudited_leftovers(entry: Entry) -> Iterator[Answer]:
    """Something is left for the host to run: does the audit name it?"""
    made = f"{entry.ground.project_copy}/made"
    script = "; ".join(("mkdir -p made/.git/hooks", *(f"{how} {path}" for path, how in _LEFT.items())))
    try:
        entry.run_and_capture(("/bin/sh", "-c", script))
        state = f"{entry.ground.home_directory}/.local/state/wavegen/{state_directory_name(entry.ground.project_copy)}"
        named = {finding.path for finding in command.run_project_audit(entry.ground.project_copy, state).findings}
        for path in _LEFT:
            if os.path.lexists(f"{entry.ground.project_copy}/{path}"):
                yield _make_answer(path, "named", reached=path not in named)
            else:
                yield Answer(path, State.UNKNOWN, "not made")
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _wait_for_exit(process: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended within some seconds. It is not reaped yet: its number, and its group's, stay its own."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
            return True
        time.sleep(0.002)
    return False


def _check_survival(name: str, process: subprocess.Popen[bytes], most: int) -> Answer:
    """Whether so many signs of life come before everybody who had the command's output open has ended."""
    out, signs = require_pipe(process.stdout), 0
    until = time.monotonic() + _START
    while (left := until - time.monotonic()) > 0 and wait_until_readable(out, left):
        data = os.read(out.fileno(), 4096)
        signs += data.count(b".")
        if not data or signs > most:
            return _make_answer(name, "ended", reached=bool(data))
    return Answer(name, State.UNKNOWN, "it neither ended nor went on")


def _is_output_closed(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Whether everybody who had the command's output open has ended."""
    out = require_pipe(process.stdout)
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not wait_until_readable(out, left):
            return False
        if not os.read(out.fileno(), 4096):
            return True
    return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """The session of an entry that was not reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    kill_entry(process)


def reopened_input(entry: Entry) -> Iterator[Answer]:
    """The caller's input is a file, which is open for reading: can it be opened again for writing?"""
    path = f"{entry.ground.neighbour_project}/input"
    with open(path, "wb") as stream:
        stream.write(b"as it was")
    handle = os.open(path, os.O_RDONLY)
    try:
        process = entry.start_command(("/bin/sh", "-c", "echo changed >/proc/self/fd/0"), source=handle)
    finally:
        os.close(handle)
    try:
        process.communicate(timeout=_START)
        with open(path, "rb") as stream:
            yield _make_answer("the input's file", "as it was", reached=stream.read() != b"as it was")
    except subprocess.TimeoutExpired:
        yield Answer("the input's file", State.UNKNOWN, "the command did not end")
    finally:
        _end_group(process)
        os.unlink(path)


def kept_input(entry: Entry) -> Iterator[Answer]:
    """The caller's input is a file: what a command does not read is there for the next one, and what it reads is gone."""
    path = f"{entry.ground.neighbour_project}/lines"
    with open(path, "wb") as stream:
        stream.write(b"a\nb\n")
    handle = os.open(path, os.O_RDONLY)
    try:
        for name, command, left in (("input that is not read", "true", 0), ("a line of input", "read -r line", 2)):
            process = entry.start_command(("/bin/sh", "-c", command), source=handle)
            process.communicate(timeout=_START)
            found = os.lseek(handle, 0, os.SEEK_CUR)
            yield _make_answer(name, f"{found} bytes are gone", reached=found == left)
            _end_group(process)
    finally:
        os.close(handle)
        os.unlink(path)


_FLIPS = 4
_EXCHANGE, _AT_FDCWD = 2, -100


def exchanged_directory(entry: Entry) -> Iterator[Answer]:
    """While a shell starts, a directory that it looks at is exchanged for a link to the neighbour, again and again: is that mounted?"""
    ground = entry.ground
    place, link = f"{ground.project_copy}/exchanged/.git", f"{ground.project_copy}/exchanged/link"
    os.makedirs(f"{place}/hooks", exist_ok=True)
    with open(f"{place}/config", "w", encoding="ascii"):
        os.symlink(ground.neighbour_project, link)
    ground.chown_new_files()
    read = ("/bin/cat", "exchanged/.git/canary", "exchanged/link/canary")
    reached = False
    try:
        if not entry.fenced:
            # A control that depends on who is faster would prove nothing: the link is there before the command.
            _exchange_paths(place, link)
            reached = ground.word in entry.run_and_capture(read)[1]
        for _ in range(_FLIPS if entry.fenced else 0):
            process = entry.start_command(read)
            number = 0
            while process.poll() is None and number < _MOST_FLIPS:
                _exchange_paths(place, link)
                number += 1
                time.sleep(random.uniform(0, 0.002))  # noqa: S311  no secret
            out, _ = process.communicate(timeout=_START)
            reached = reached or ground.word.encode() in out
        yield _make_answer("a directory that was exchanged for a link", "what was looked at is mounted, or the start refused", reached=reached)
    finally:
        shutil.rmtree(f"{ground.project_copy}/exchanged", ignore_errors=True)


_MOST_FLIPS = 100_000


def _exchange_paths(one: str, other: str) -> None:
    """renameat2(2), RENAME_EXCHANGE."""
    ctypes.CDLL(None).renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE)


def unreadable_repository(entry: Entry) -> Iterator[Answer]:
    """A command took away the rights to enter a repository, so that no start can look at it: can the next command write in it?"""
    git = f"{entry.ground.project_copy}/nested/.git"
    made = f"{git}/hooks/wavegen-probe"
    mode = os.stat(git).st_mode & 0o7777
    os.chmod(git, 0)
    try:
        status, _ = entry.run_and_capture(("/bin/sh", "-c", "chmod 700 nested/.git; : >nested/.git/hooks/wavegen-probe"))
        os.chmod(git, 0o700)
        yield _make_answer("./nested/.git", f"status {status}", reached=os.path.lexists(made))
    finally:
        os.chmod(git, 0o700)
        with contextlib.suppress(OSError):
            os.unlink(made)
        os.chmod(git, mode)


def killed_early(entry: Entry) -> Iterator[Answer]:
    """What starts a shell is killed just after its first child was there: does the command run all the same?"""
    ran = f"{entry.ground.project_copy}/ran"
    for wait in _EARLY if entry.fenced else (None,):
        process = entry.start_command(("/bin/sh", "-c", "sleep 0.3; : >ran; sleep 5"))
        try:
            until = time.monotonic() + _START
            while not _child_pids(process.pid) and time.monotonic() < until and not _has_exited(process):
                time.sleep(0.0005)
            if wait is not None:
                time.sleep(wait)
                os.kill(process.pid, signal.SIGKILL)
            # Until the command shows that it runs, or everybody has ended who could become it.
            until = time.monotonic() + _START
            while not os.path.lexists(ran) and not _is_output_closed(process, 0.05):
                if time.monotonic() > until:
                    yield Answer("the command", State.UNKNOWN, "it neither ran nor ended")
                    return
            if os.path.lexists(ran):
                yield Answer("the command", State.REACHED, "")
                return
        finally:
            _end_group(process)
            with contextlib.suppress(OSError):
                os.unlink(ran)
    yield Answer("the command", State.STOPPED, "it was not started, or ended")


_EARLY = (0.001, 0.002, 0.004, 0.006, 0.009, 0.012, 0.016, 0.020, 0.025)


def _has_exited(process: subprocess.Popen[bytes]) -> bool:
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def _child_pids(pid: int) -> tuple[int, ...]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as stream:
            return tuple(map(int, stream.read().split()))
    except OSError:
        return ()


def check_own_repository(entry: Entry, paths: Sequence[str]) -> Iterator[Answer]:
    """Of the real project, wherever its .git leads: would what git on the host runs or follows be writable? Nothing is started for that."""
    ground = entry.ground
    for path in paths:
        shown = ground.anonymize_text(path) if not path.startswith(ground.root) else f".{path[len(ground.root) :]}"
        if not entry.fenced:
            yield Answer(shown, State.REACHED, "")
            continue
        policy = next(fence for fence in ground.plan.all_fences() if fence.name == entry.shell)
        mount = resolve_shell_mounts(ground.plan, policy, ground.root, os.environ).mount_at(path)
        yield _make_answer(shown, mount.kind if mount else "not there", reached=mount is not None and mount.is_writable)


def foreign_code(entry: Entry) -> Iterator[Answer]:
    """Files that shells run at their start, and programs of the project before those of the system: is one run on the host?"""
    ground = entry.ground
    mark, fakes = f"{ground.neighbour_project}/mark", f"{ground.project_copy}/fakes"
    variables = ground.entry_environment()
    environment = {**variables, "PATH": f"{fakes}:{variables['PATH']}", "PYTHONPATH": fakes, "PERL5LIB": fakes}
    entry.run_and_capture(("cat", "/dev/null"), environment=environment)
    yield _make_answer("a program of the project", "not on the host", reached=os.path.lexists(mark))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(mark)


def open_directory(entry: Entry) -> Iterator[Answer]:
    """The caller's input, or its output, is a directory: all of the host can be reached from there."""
    for number, name in enumerate(("input from a directory", "output to a directory")):
        handle = os.open(entry.ground.neighbour_project, os.O_RDONLY)
        source, output = (handle, subprocess.PIPE) if number == 0 else (subprocess.PIPE, handle)
        try:
            command = ("/bin/sh", "-c", f"cat /proc/$$/fd/{number}/canary >&2; :")
            # No launcher in Python starts so: outside it is tried without one.
            process = entry.start_command(command, bare=not entry.fenced, source=source, output=output)
        finally:
            os.close(handle)
        try:
            _, said = process.communicate(timeout=_START)
            yield _make_answer(name, f"status {process.returncode}", reached=entry.ground.word.encode() in said)
        except subprocess.TimeoutExpired:
            yield Answer(name, State.UNKNOWN, "the command did not end")
        finally:
            _end_group(process)


def check_exit_status(entry: Entry) -> Iterator[Answer]:
    """A command's status comes back."""
    for status in (0, 7):
        found, _ = entry.run_and_capture(("/bin/sh", "-c", f"exit {status}"))
        yield _make_answer(f"status {status}", f"status {found}", reached=found == status)


def forged_environment(entry: Entry) -> Iterator[Answer]:
    """The caller's environment says that there is a fence already."""
    environment = {**entry.ground.entry_environment(), "SANDBOX_ACTIVE": "1", "WAVEGEN_SHELL": entry.shell, "container": "docker", "IN_NIX_SHELL": "impure"}
    code = "import os; print(os.stat('/proc/self/ns/mnt').st_ino)"
    _, out = entry.run_and_capture((entry.probe[0], "-I", "-S", "-c", code), environment=environment)
    found = out.strip().split("\n")[-1]
    if not found.isdigit():
        yield Answer("SANDBOX_ACTIVE=1", State.UNKNOWN, "nothing was run")
    else:
        yield _make_answer("SANDBOX_ACTIVE=1", "fenced all the same", reached=int(found) == namespace_inodes().get("mnt"))


def unavailable_sandbox(entry: Entry) -> Iterator[Answer]:
    """A kernel that forbids user namespaces, or a daemon that is not there: what is run?"""
    if entry.ground.via == "docker" and not containers.uses_podman():
        status, out = entry.run_and_capture(
            ("echo", "started"), environment={**entry.ground.entry_environment(), "DOCKER_HOST": f"unix://{entry.ground.neighbour_project}/none"}
        )
        yield _make_answer("no engine", f"status {status}", reached="started" in out)
        return
    try:
        forbid = _forbidding_namespaces()
    except NotImplementedError:
        yield Answer("no user namespaces", State.UNKNOWN, "not on this processor")
        return
    status, out = entry.run_and_capture(("echo", "started"), before=forbid)
    yield _make_answer("no user namespaces", f"status {status}", reached="started" in out)


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

    def forbid_namespaces(_program: object = buffer) -> None:
        # PR_SET_NO_NEW_PRIVS; PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, described, 0, 0):
            raise OSError(ctypes.get_errno(), "prctl")

    return forbid_namespaces


# --- at a terminal


def interactive_terminal(entry: Entry) -> Iterator[Answer]:
    """Somebody works in it: the window is resized, a command interrupted, one put into the background.

    Keys that are pressed while a shell gets ready can be lost, there and everywhere: what fails is tried once more.
    """
    answers = tuple(_try_terminal(entry))
    if any(answer.state is not State.REACHED for answer in answers):
        answers = tuple(_try_terminal(entry))
    yield from answers


def _try_terminal(entry: Entry) -> Iterator[Answer]:
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = entry.start_command((), terminal=slave, wholly=True)
    os.close(slave)
    screen = _Screen(master)
    try:
        screen.press_keys("echo rea''dy\n")
        if not screen.wait_for_text("ready", _START):
            yield Answer("a prompt", State.STOPPED, "none came")
            return
        fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
        # A daemon hears of it by another way than of the keys.
        yield _make_answer("resizing", "the old size", reached=any(_shows_new_size(screen) for _ in range(_SIZES)))
        screen.press_keys("sh -c 'echo go''ing; exec sleep 30'\n")
        screen.wait_for_text("going")
        screen.press_keys("\x03")
        screen.press_keys("echo st$((1 + 1))=$?\n")
        yield _make_answer("Ctrl-C", "not interrupted", reached=screen.wait_for_text("st2=130"))
        screen.press_keys("sh -c 'echo wait''ing; exec sleep 30'\n")
        screen.wait_for_text("waiting")
        screen.press_keys("\x1a")
        screen.press_keys("jobs; kill %1; echo sto''pped\n")
        yield _make_answer("Ctrl-Z", "not stopped", reached=screen.wait_for_text("stopped") and "Stopped" in screen.text)
        screen.press_keys("exit\n")
    finally:
        _end_group(process)
        os.close(master)


_SIZES = 40


def _shows_new_size(screen: _Screen) -> bool:
    screen.press_keys("stty size\n")
    return screen.wait_for_text("33 111", 0.5)


class _Screen:
    """What a terminal shows."""

    def __init__(self, master: int) -> None:
        self.master, self.text = master, ""

    def press_keys(self, keys: str) -> None:
        """Press keys."""
        with contextlib.suppress(OSError):
            os.write(self.master, keys.encode())

    def wait_for_text(self, text: str, seconds: float = 20) -> bool:
        """Whether a text appears within some seconds."""
        until = time.monotonic() + seconds
        while text not in self.text:
            left = until - time.monotonic()
            if left < 0 or not wait_until_readable(self.master, left):
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
    "planted_links": planted_links,
    "project_is_home": project_is_home,
    "left_behind": left_behind,
    "orphaned": orphaned_command,
    "unaudited": unaudited_leftovers,
    "reopened_input": reopened_input,
    "kept_input": kept_input,
    "open_directory": open_directory,
    "exchanged": exchanged_directory,
    "unreadable_repository": unreadable_repository,
    "killed_early": killed_early,
    "own_repository": check_own_repository,
    "foreign_code": foreign_code,
    "exit_status": check_exit_status,
    "forged": forged_environment,
    "unfenceable": unavailable_sandbox,
    "interactive": interactive_terminal,
}


NOT_BY = {"nix": {"foreign_code", "passed_through", "another_server"}, "docker": {"kept_input"}}
"""Nix runs bash, and what stands on the caller's PATH, before any fence; and no server can be named to it in a name's place. An engine's client
reads input ahead of the command."""


def try_from_outside(name: str, entry: Entry, arguments: dict[str, Any]) -> tuple[Answer, ...]:
    """The answers of one trial."""
    try:
        return tuple(TRIALS[name](entry, **arguments))
    except (OSError, subprocess.SubprocessError) as failed:
        return (Answer(name, State.UNKNOWN, type(failed).__name__),)
