"""Serving a shell that was started: its network, its signals, and how it ended.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import resource
import signal
import socket
import sys
import time
from urllib.parse import unquote_to_bytes

from egress import Egress
from egress_log import Log
from egress_names import BadNameError, authority
from egress_reach import Upstream
from egress_rules import Rules
from launcher import PASSED_ON, Options, Started, leave
from stage import HTTP_PORT, cannot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

_DESCRIPTORS = 4096
"""What the launcher may open: each connection has two. The command keeps the bound that it was given."""


def serve(options: Options, rules: Rules, started: Started, proxy: Upstream | None) -> NoReturn:
    """Until bwrap ends; this process ends as it did."""
    os.set_blocking(started.report, False)
    report = Report(started.report)
    if started.failed:
        status = os.waitstatus_to_exitcode(os.waitpid(started.pid, 0)[1])
        leave(options.groups)
        if not report.ran():
            _not_started(options)
        os._exit(status)
    egress = network(options, rules, proxy)
    done = answering(egress, started.pid, lambda: started.sockets)
    status = wait(started.pid, egress, report.command)
    done.acquire(timeout=2)
    leave(options.groups)
    if status == 1 and not report.ran():
        _not_started(options)
    end(options, egress, status, report.ended())


def network(options: Options, rules: Rules, proxy: Upstream | None, log: Log | None = None) -> Egress:
    """What answers, with enough descriptors for it, and writes to `log` or to the state's own."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS), most))
    log = log or Log(os.path.join(options.state, "network.jsonl") if options.state else "", options.shell)
    return Egress(rules, log, shell=options.shell, connect_to=options.connect_to, upstream=proxy)


def answering(egress: Egress, pid: int, sockets: Callable[[], Sequence[tuple[str, int]]]) -> _thread.LockType:
    """Answer in a thread on the sockets inside, once they are there; what it gives can be acquired when that has ended. Raises RuntimeError."""
    done = _thread.allocate_lock()
    done.acquire()

    def answer() -> None:
        try:
            egress.serve([(purpose, socket.socket(fileno=handle)) for purpose, handle in sockets()])
        except BaseException as failed:  # noqa: BLE001
            # Without its way out the shell is closed, and its user must know.
            sys.stderr.write(f"wavegen: error: the network of the shell ended: {type(failed).__name__}: {failed} (please report it)\n")
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        finally:
            done.release()

    _thread.start_new_thread(answer, ())
    return done


def end(options: Options, egress: Egress, status: int, ended: bool) -> NoReturn:  # noqa: FBT001  whether nothing is left inside
    """The last words, and the command's status."""
    egress.log.close()
    sys.stderr.flush()
    _audit(options, ended=ended)
    os._exit(status)


def _audit(options: Options, *, ended: bool) -> None:
    """One line about what the host would run or follow later; where nothing at all has changed, the session is forgotten."""
    state, own = os.path.split(options.marker)
    if not own:
        return
    where = ("--project", options.project, "--state", state, "--summary")
    if not ended:
        sys.stderr.write("wavegen: warning: something inside has not ended; wavegen audit looks at what it leaves\n")
    try:
        since = min(os.lstat(os.path.join(state, name)).st_mtime_ns for name in os.listdir(state) if name.startswith("entered-"))
        changed = not ended or _changed(options.project, since)
        if not changed:
            os.unlink(options.marker)
    except (OSError, ValueError, RecursionError):
        changed = True
    if changed:
        import audit_command

        audit_command.main((*where, "--done", options.marker) if ended else where)
        sys.stderr.flush()


def _changed(directory: str, since: int) -> bool:
    """Whether anything below a directory has changed since then, by ctime, which nobody inside can set. Raises OSError."""
    below = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_ctime_ns > since:
                return True
            if entry.is_dir(follow_symlinks=False):
                below.append(entry.path)
    return any(_changed(path, since) for path in below)


class Report:
    """What bwrap says of the command (--json-status-fd)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._said = b""

    def _lines(self) -> list[bytes]:
        with contextlib.suppress(BlockingIOError):
            while more := os.read(self._handle, 4096):
                self._said += more
        return self._said.splitlines()

    def ran(self) -> bool:
        """Whether the command has run and ended."""
        return any(b'"exit-code"' in line for line in self._lines())

    def _first(self) -> int:
        """The shell's first process, 0 where there is none yet."""
        for line in self._lines():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return int(json.loads(line)["child-pid"])
        return 0

    def ended(self) -> bool:
        """Wait until everything inside has ended, for some seconds at most: bwrap ends before that.

        The first process of a PID namespace becomes a zombie only after all others are gone (pid_namespaces(7)).
        """
        first = self._first()
        for turn in range(500):
            try:
                with open(f"/proc/{first}/stat", encoding="utf-8", errors="replace") as stream:
                    if stream.read().rpartition(") ")[2][:1] in ("Z", "X"):
                        return True
            except OSError:
                return True
            time.sleep(0.0002 if turn < 50 else 0.01)
        return False

    def command(self) -> int:
        """The command's process, 0 where there is none yet: the first child of the shell's first process."""
        with contextlib.suppress(ValueError, OSError, IndexError):
            first = self._first()
            with open(f"/proc/{first}/task/{first}/children", encoding="ascii") as stream:
                return int(stream.read().split()[0])
        return 0


def wait(child: int, egress: Egress, command: Callable[[], int]) -> int:
    """Pass signals on to the command (0: to the child) until the child has ended; its status."""
    waited = {signal.SIGCHLD, *PASSED_ON}
    while True:
        info = signal.sigwaitinfo(waited)
        number = signal.Signals(info.si_signo)
        if number is signal.SIGCHLD:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                egress.loop.stop()
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
        elif info.si_code <= 0:
            # Somebody's kill(2). What the terminal sends (SI_KERNEL) the command has got already.
            with contextlib.suppress(ProcessLookupError):
                os.kill(command() or child, number)


def _not_started(options: Options) -> NoReturn:
    """Say why no command ran. bwrap has said its part: is it the machine, or this fence?"""
    bwrap = options.bwrap
    # The filter's descriptor is used up, and of no matter here.
    at = bwrap.index("--seccomp") if "--seccomp" in bwrap else bwrap.index("--")
    quiet = os.open("/dev/null", os.O_RDWR)
    read, write = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, handle, place) for place, handle in enumerate((quiet, quiet, write))]
    pid = os.posix_spawn(bwrap[0], [*bwrap[:at], "--", "/bin/sh", "-c", ":"], os.environ, file_actions=actions)
    os.close(write)
    with open(read, "rb") as stream:
        said = stream.read().decode("utf-8", "replace")
    os.waitpid(pid, 0)
    if any(words in said for words in ("setting up uid map", "new namespace", "Operation not permitted", "RTM_NEWADDR")):
        knobs = "user.max_user_namespaces, kernel.unprivileged_userns_clone and kernel.apparmor_restrict_unprivileged_userns"
        cannot("this machine does not let bwrap make namespaces", f"see {knobs} with sysctl; wavegen doctor says which")
    cannot("bwrap could not build the fence", "its message stands above")


def find_upstream() -> None:
    """Where no wrapper has said which the host's own proxy is: what the environment says."""
    proxy, direct = (os.environ.get(name) or os.environ.get(name.lower(), "") for name in ("HTTPS_PROXY", "NO_PROXY"))
    os.environ["wg_upstream"] = f"{proxy}\n{direct}" if proxy else ""  # noqa: SIM112  as the wrapper writes it


def upstream(options: Options) -> Upstream | None:
    """The host's own proxy, from the wrapper: its address and the names that are reached without it."""
    text = os.environ.pop("wg_upstream", "")
    if not options.upstream or not text:
        return None
    address, _, direct = text.partition("\n")
    scheme, separator, rest = address.partition("://")
    if not separator:
        scheme, rest = "http", address
    login, _, host = rest.rstrip("/").rpartition("@")
    try:
        if scheme.lower() != "http":
            raise BadNameError(scheme)
        target, port = authority(os.fsencode(host), port=HTTP_PORT)
    except (BadNameError, UnicodeError):
        cannot("HTTPS_PROXY of the host is not http://HOST:PORT", "set it so, or remove upstream_proxy from the manifest")
    return Upstream(target, port, unquote_to_bytes(os.fsencode(login)), direct.split(","))
