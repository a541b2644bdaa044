"""Running bwrap: its start, the signals that are for the command, input from a file, how it ended, and what is looked at afterwards."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # its namesake makes enumerations, which takes longer than all the rest
import _socket as socket
import _thread
import errno
import posix
import sys
import time

from .errors import CANNOT_START, CannotStartError, escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
"""What a caller may send and the command is to get. The terminal's own reach it directly."""
_WAITED = (signal.SIGCHLD, *PASSED_ON)
_PIECE = 65536


def print_note(text: str) -> None:
    """Say something on stderr, without what would move a terminal's cursor."""
    sys.stderr.write(f"wavegen: {escape_unprintable(text)}\n")
    sys.stderr.flush()


class Report:
    """What bwrap says of the command (--json-status-fd): the shell's first process, and whether the command ran and ended."""

    def __init__(self, handle: int) -> None:
        posix.set_blocking(handle, False)
        self._handle, self._said = handle, b""

    def _read_report(self) -> bytes:
        try:
            while True:
                more = posix.read(self._handle, 4096)
                if not more:
                    break
                self._said += more
        except BlockingIOError:
            pass
        return self._said

    def has_ended(self) -> bool:
        """Whether the command has run and ended."""
        return b'"exit-code"' in self._read_report()

    def first_process(self) -> int:
        """The shell's first process; 0 where there is none yet."""
        _, found, rest = self._read_report().partition(b'"child-pid":')
        digits = rest.strip().split(b",")[0].split(b"}")[0].split()
        return int(digits[0]) if found and digits and digits[0].isdigit() else 0

    def kill_first_process(self) -> None:
        """End what is inside where bwrap was killed: one that has not yet asked to end with its parent (prctl(2)) would go on."""
        first = self.first_process()
        try:
            with open(f"/proc/{first}/status", encoding="utf-8", errors="replace") as stream:
                numbers = next((line for line in stream if line.startswith("NSpid:")), "").split()[1:]
            # Its number may be another process's by now, which is not the first of a namespace below this one.
            if len(numbers) > 1 and numbers[-1] == "1":
                posix.kill(first, signal.SIGKILL)
        except OSError:
            pass

    def command_process(self) -> int:
        """The command's process, the first child of the shell's first process; 0 where there is none yet."""
        first = self.first_process()
        try:
            with open(f"/proc/{first}/task/{first}/children", encoding="ascii") as stream:
                return int(stream.read().split()[0])
        except (OSError, IndexError, ValueError):
            return 0

    def is_over(self) -> bool:
        """Wait until everything inside has ended, for some seconds at most: bwrap ends before that.

        The first process of a PID namespace becomes a zombie only after all others are gone (pid_namespaces(7)).
        """
        first = self.first_process()
        for turn in range(500):
            try:
                with open(f"/proc/{first}/stat", encoding="utf-8", errors="replace") as stream:
                    if stream.read().rpartition(") ")[2][:1] in ("Z", "X"):
                        return True
            except OSError:
                return True
            time.sleep(0.0002 if turn < 50 else 0.01)
        return False


class Signals:
    """The signals that are waited for: blocked from now on, so that none is lost. `mask`: what the command starts with."""

    def __init__(self) -> None:
        self.mask = set(signal.pthread_sigmask(signal.SIG_BLOCK, set(_WAITED)))
        self._interrupted = False
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def wait_for_child(self, child: int, command: Callable[[], int], end: Callable[[], None] | None = None, *, reaps: bool = False) -> int:
        """Pass signals on to the command until the child has ended; its status, 128+n where signal n ended it.

        As long as there is no command (0) they are the child's, or make an end of it by `end`. `reaps`: whoever else becomes this process's
        own child (prctl(2), PR_SET_CHILD_SUBREAPER) leaves no zombie.
        """
        ended_by = 0
        while True:
            info = signal.sigwaitinfo(set(_WAITED))
            if info.si_signo == signal.SIGCHLD:
                pid, status = posix.waitpid(-1 if reaps else child, posix.WNOHANG)
                while pid and pid != child:
                    pid, status = posix.waitpid(-1, posix.WNOHANG)
                if pid:
                    return 128 + ended_by if ended_by else exit_status(status)
            elif info.si_signo == signal.SIGINT and info.si_code > 0:
                self._interrupted = True  # by Ctrl-C, which the command has got, too
            elif info.si_code <= 0 or info.si_signo == signal.SIGHUP:
                # Somebody's kill(2). What the terminal sends (SI_KERNEL) the command has got already, but for its hangup: that is sent to the
                # leader of the session alone, which may be this process.
                try:
                    target = command()
                    if target or not end:
                        posix.kill(target or child, info.si_signo)
                    elif info.si_signo != signal.SIGWINCH and not ended_by:
                        end()
                        ended_by = info.si_signo
                except ProcessLookupError:
                    pass

    def end_if_interrupted(self, status: int) -> None:
        """End by SIGINT where Ctrl-C ended the command: a shell goes on with its loop or script where its child has exited (bash(1), SIGNALS)."""
        if self._interrupted and status == 128 + signal.SIGINT:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            posix.kill(posix.getpid(), signal.SIGINT)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def restore_signals(self, *, keep_interrupts: bool) -> None:
        """In a child: signals as they were, but for those that Python ignores, which would stay ignored in other programs."""
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if keep_interrupts:
            # On a terminal Ctrl-C reaches bwrap, too, and would end the shell whatever the command makes of it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGQUIT, signal.SIG_IGN)
        elif signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)


class InputFile:
    """Standard input that is a file, handed on through a pipe: by /proc/self/fd/0 a command could open the file itself again, for writing.

    What the command has read is taken from the file, and no more: at the end the shared offset stands behind it.
    """

    def __init__(self) -> None:
        self._start = posix.lseek(0, 0, 1)
        self.source, self._write = posix.pipe2(posix.O_CLOEXEC)
        posix.set_blocking(self._write, False)
        self._sent, self._ended = 0, False
        self._writes = _thread.allocate_lock()
        """Held from a write until it is counted."""
        _thread.start_new_thread(self._feed_pipe, ())

    def _feed_pipe(self) -> None:
        import select

        try:
            data = posix.pread(0, _PIECE, self._start)
            while data:
                try:
                    with self._writes:
                        if self._ended:
                            break
                        sent = posix.write(self._write, data)
                        self._sent += sent
                    data = data[sent:] or posix.pread(0, _PIECE, self._start + self._sent)
                except BlockingIOError:
                    select.select((), (self._write,), (), 0.5)
        except OSError:
            pass  # nobody reads it any more
        posix.close(self._write)

    def restore_file_offset(self) -> None:
        """Let the file's offset stand behind what was read, once nobody reads any more."""
        import fcntl

        with self._writes:
            self._ended = True
        left = int.from_bytes(fcntl.ioctl(self.source, 0x541B, bytes(4)), sys.byteorder)  # FIONREAD, ioctl_tty(2)
        # A command can write into the pipe itself: it must not lead the caller back to what was read before.
        posix.lseek(0, self._start + max(0, self._sent - left), 0)


def is_regular(handle: int) -> bool:
    """Whether a descriptor is a file that can be read at an offset."""
    try:
        return posix.fstat(handle).st_mode & 0o170000 == 0o100000
    except OSError:
        return False


def exit_status(status: int) -> int:
    """What waitpid(2) gave, as a shell says it: 128+n where signal n ended it."""
    code = posix.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def start_child(prepare: Callable[[], None], arguments: Sequence[str], environment: dict[str, str], signals: Signals, *, keep_interrupts: bool) -> int:
    """Start a program in a child of this process, after `prepare` there; the child. What cannot be started ends with status 125 and says why."""
    pid = posix.fork()
    if pid:
        return pid
    try:
        prepare()
        signals.restore_signals(keep_interrupts=keep_interrupts)
        posix.execve(arguments[0], list(arguments), environment)
    except CannotStartError as failed:
        print_note(f"error: {failed}")
    except OSError as failed:
        shorten = failed.errno == errno.E2BIG
        print_note(f"error: {arguments[0]} cannot be started: {failed.strerror} ({'shorten the command' if shorten else 'see that it is there'})")
    finally:
        posix._exit(CANNOT_START)  # noqa: SLF001


class Life:
    """A pipe that ends with the launcher. `keepers`, `launchers`: its ends; `status`: where bwrap's status is read (--json-status-fd)."""

    def __init__(self, status: int) -> None:
        self.keepers, self.launchers = posix.pipe2(posix.O_CLOEXEC)
        self.status = status

    def close_launcher_end(self) -> None:
        """Let the keeper end what is inside."""
        posix.close(self.launchers)


def start_with_keeper(
    prepare: Callable[[], None], arguments: Sequence[str], environment: dict[str, str], signals: Signals, *, keep_interrupts: bool, life: Life
) -> int:
    """The same for bwrap, with a keeper between; the keeper, which ends with bwrap's status.

    bwrap that is killed before it has told its child to go on leaves that child waiting forever, so it must outlive a launcher that is killed:
    the keeper then ends what is inside instead.
    """
    pid = posix.fork()
    if pid:
        return pid
    try:
        posix.close(life.launchers)
        child = start_child(prepare, arguments, environment, signals, keep_interrupts=keep_interrupts)
        for name in posix.listdir("/proc/self/fd"):
            # What bwrap says needs a reader, or it would get a SIGPIPE.
            if int(name) > 2 and int(name) not in (life.keepers, life.status):
                try:
                    posix.close(int(name))
                except OSError:
                    pass  # the listing's own
        _thread.start_new_thread(_end_when_alone, (life.keepers, child))
        posix._exit(exit_status(posix.waitpid(child, 0)[1]))  # noqa: SLF001
    except OSError as failed:
        print_note(f"error: bwrap cannot be started: {failed.strerror} (raise the limit of processes: ulimit -u)")
    finally:
        posix._exit(CANNOT_START)  # noqa: SLF001


def _end_when_alone(life: int, bwrap: int) -> None:
    """In a thread of the keeper, whose end is this one's, too."""
    posix.read(life, 1)
    while True:
        try:
            with open(f"/proc/{bwrap}/task/{bwrap}/children", encoding="ascii") as stream:
                # The first process inside, with which all of its namespace ends.
                for first in stream.read().split():
                    posix.kill(int(first), signal.SIGKILL)
        except ProcessLookupError:
            pass
        except OSError:
            posix.kill(bwrap, signal.SIGKILL)  # a kernel that does not say which children there are
        time.sleep(0.001)


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Two ends of a channel that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


# --- afterwards


def end_children() -> bool:
    """End what a command left running: as each ends, what it had started becomes this process's own. Whether all has ended, after seconds."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        for child in _list_children():
            try:
                posix.kill(child, 9)
            except OSError:
                continue
        try:
            while posix.waitpid(-1, posix.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return True
        time.sleep(0.005)
    return False


def _list_children() -> list[int]:
    """Whoever this process would wait for, by proc(5): a kernel may be built without /proc/PID/task/TID/children."""
    own, found = str(posix.getpid()).encode(), []
    for name in posix.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:
                    if stream.read().rpartition(b")")[2].split()[1] == own:
                        found.append(int(name))
            except (OSError, IndexError):
                continue
    return found


def remove_recursively(path: str) -> None:
    """Remove a directory and all in it, as far as that can be done; links are not followed."""
    from shutil import rmtree

    rmtree(path, ignore_errors=True)


def audit_afterwards(project: str, kept: str, marker: str, *, ended: bool) -> None:
    """In a process of its own, which nobody waits for: see what the host would run or follow of what was left. The next start says it."""
    try:
        if posix.fork():
            return
    except OSError:
        return  # no room for a process; wavegen audit looks again
    try:
        posix.setsid()
        quiet = posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)
        for handle in (0, 1, 2):
            posix.dup2(quiet, handle)
        import os

        since = time.time_ns()
        for name in os.listdir(kept):
            try:
                since = min(since, os.lstat(f"{kept}/{name}").st_mtime_ns) if name.startswith("entered-") else since
            except FileNotFoundError:
                continue  # another look has just ended
        try:
            changed = _has_changed(project, since)
        except OSError:
            changed = True  # a command made what cannot be looked at, or is too deep: the audit says so
        if ended and not changed:
            os.unlink(marker)
        else:
            from .audit.command import main

            main(("--project", project, "--state", kept, "--notice", *(("--done", marker) if ended else ())))
    except BaseException:  # noqa: BLE001, S110  wavegen audit looks again, and says what is wrong
        pass
    finally:
        posix._exit(0)  # noqa: SLF001


def _has_changed(directory: str, since: int) -> bool:
    """Whether anything below a directory has changed since then, by ctime, which nobody inside can set. Raises OSError."""
    left = [directory]
    while left:
        with posix.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.stat(follow_symlinks=False).st_ctime_ns > since:
                    return True
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
    return False
