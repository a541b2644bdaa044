"""Running a command that Landlock fences: its processes, its signals, its way to the network, and what it leaves.

The proxies listen on the host's own loopback, on ports of the kernel's choice, as there is no other: only processes of
this user are answered.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time

from confined import Places, Settings, cannot, discard, environment, words

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _thread
    from collections.abc import Sequence
    from typing import NoReturn

    from egress import Egress

_PDEATHSIG, _SUBREAPER = 1, 36
_DESCRIPTORS = 4096
_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
_HERE = os.path.dirname(os.path.abspath(__file__))


def _shim(*options: str) -> list[str]:
    return [sys.executable, "-I", "-S", f"{_HERE}/shim.py", *options]


def show(settings: Settings, places: Places) -> NoReturn:
    """Print what would be taken: the options of the shim, and what the kernel holds of them."""
    options = words(settings, places, (3128, 1080) if settings.proxied else ())
    sys.stdout.write("".join(f"{word}\n" for word in options))
    sys.stdout.flush()
    os.execv(sys.executable, _shim(*options, "--show"))


def run(settings: Settings, places: Places) -> NoReturn:
    """Until the command ends; this process ends as it did."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_PASSED_ON})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listeners = _listeners() if settings.proxied else []
    ports = [sock.getsockname()[1] for sock in listeners]
    egress = _egress(settings, places) if settings.proxied else None
    marker = _marker(places)
    # What the command starts and leaves becomes this process's own, and ends with it.
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    if settings.banner and not settings.command and os.isatty(0):
        sys.stderr.write("".join(f"{line}\n" for line in settings.banner))
        sys.stderr.flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            _become(settings, places, ports, parent, mask)
        except BaseException as failed:  # noqa: BLE001  whatever it is, nothing of this process goes on twice
            sys.stderr.write(f"wavegen: error: the fence cannot be built: {failed} (its message stands here; run wavegen render)\n")
            sys.stderr.flush()
        finally:
            os._exit(125)
    done = _serve(egress, listeners, pid) if egress else None
    status = _wait(pid)
    _end()
    if egress and done:
        egress.loop.stop()
        done.acquire(timeout=2)  # what was answered last is still to be written down
        egress.log.close()
    discard(places.temporary)
    import audit_command

    audit_command.main(("--project", places.project, "--state", places.key, "--summary", "--done", marker))
    sys.stderr.flush()
    os._exit(status)


def _become(settings: Settings, places: Places, ports: Sequence[int], parent: int, mask: set[int | signal.Signals]) -> None:
    """All that the child does."""
    variables = environment(settings, places, ports)
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(125)
    # A terminal is shared where the filter keeps the command from typing into it; /dev/tty must not lead to one otherwise.
    if not settings.seccomp or not any(os.isatty(handle) for handle in (0, 1, 2)):
        os.setsid()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(places.inside)
    options = words(settings, places, ports)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    command = settings.command or ["bash"]
    if settings.report >= 0:
        options += ["--started", str(settings.report)]
    os.execve(sys.executable, _shim(*options, "--", *command), variables)


def _marker(places: Places) -> str:
    """What changes from now on is this session's."""
    marker = f"{places.key}/entered-{os.getpid()}-{time.time_ns() // 1000}"
    try:
        os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as failed:
        cannot(f"{marker} cannot be written: {failed.strerror}", "make room there")
    return marker


# --- the network


def _listeners() -> list[socket.socket]:
    """The proxies' sockets: for HTTP and for SOCKS5."""
    found = []
    for _ in range(2):
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.bind(("127.0.0.1", 0))
        sock.listen(128)
        found.append(sock)
    return found


def _egress(settings: Settings, places: Places) -> Egress:
    import launch_serve
    from egress import Egress
    from egress_log import Log
    from launcher import Options

    options = Options(["--state", places.state, "--shell", settings.shell, *settings.rules])
    launch_serve.find_upstream()
    upstream = launch_serve.upstream(options)
    log = Log(f"{places.state}/network.jsonl", settings.shell)
    return Egress(options.rules(), log, shell=settings.shell, connect_to=options.connect_to, upstream=upstream, admit=is_ours)


def is_ours(listener: tuple[str, int], peer: tuple[str, int]) -> bool:
    """Whether a connection on the loopback comes from a process of this user, as the kernel lists it."""
    four = f"{int.from_bytes(socket.inet_aton(peer[0]), sys.byteorder):08X}:{peer[1]:04X}"
    there = f"{int.from_bytes(socket.inet_aton(listener[0]), sys.byteorder):08X}:{listener[1]:04X}"
    mapped = "0000000000000000" + f"{int.from_bytes(bytes((0, 0, 255, 255)), sys.byteorder):08X}"
    for name, before in (("tcp", ""), ("tcp6", mapped)):
        with contextlib.suppress(OSError), open(f"/proc/self/net/{name}", encoding="ascii") as stream:
            for line in stream:
                fields = line.split()
                if fields[1:3] == [before + four, before + there]:
                    return int(fields[7]) == os.geteuid()
    return False


def _serve(egress: Egress, listeners: Sequence[socket.socket], pid: int) -> _thread.LockType:
    import resource

    from launch_serve import answering

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS if most == resource.RLIM_INFINITY else min(most, _DESCRIPTORS), most))
    return answering(egress, pid, lambda: [("proxy", sock.detach()) for sock in listeners])


# --- processes


def _wait(pid: int) -> int:
    """Pass signals on until the command has ended; its status."""
    while True:
        info = signal.sigwaitinfo({signal.SIGCHLD, *_PASSED_ON})
        number = signal.Signals(info.si_signo)
        if number is not signal.SIGCHLD:
            # Somebody's kill(2). What the terminal sends (SI_KERNEL) the command has got already.
            if info.si_code <= 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            continue
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == pid:
                    code = os.waitstatus_to_exitcode(ended[1])
                    return code if code >= 0 else 128 - code


def _end() -> None:
    """End what the command left running: as each ends, what it had started becomes ours."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        for child in _children():
            with contextlib.suppress(OSError):
                os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    own, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as stream:
                if int(stream.read().rpartition(b")")[2].split()[1]) == own:
                    found.append(int(name))
    return found
