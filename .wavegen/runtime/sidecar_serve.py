"""Serving the networks of several containers, each in a process of its own: whatever one of them sends ends or stops that alone.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import _thread
import contextlib
import ctypes
import errno
import os
import select
import signal
import socket
import stat
import sys
import time

import launch_serve
from egress import Egress
from egress_log import Log
from launch_container import Channel, met
from launcher import Options, listeners
from stage import cannot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from egress_reach import Upstream

AGENTS = 16
"""Containers at once."""
_HANDING = 5
"""Seconds for a first process to hand over what it has opened."""
_LAST_WORDS = 2.0
_AGAIN = 60.0
_PDEATHSIG = 1
_PEER_PIDFD = 77
"""SO_PEERPIDFD, since Linux 6.5; Python has no name for it."""


def main(arguments: Sequence[str]) -> NoReturn:
    """Serve until TERM or INT, or look whether somebody does."""
    if len(arguments) == 2 and arguments[0] == "--check":
        sys.exit(0 if _answers(arguments[1]) else 1)
    try:
        options = Options([*arguments, "--"])
    except (IndexError, ValueError):
        cannot("an option of sidecar.py has no value", "run wavegen render")
    if not options.channel or not options.shell:
        cannot("sidecar.py was not told where to listen, and for which shell", "say --channel PATH --shell NAME")
    Service(options).run()


def _answers(path: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(3)
        sock.connect(path)
        return bool(sock.recv(65536))
    return False


class Service:
    """Listens at the channel; each that connects is another process's business."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.rules = options.rules()
        self.wanted = listeners(self.rules)
        if "wg_upstream" not in os.environ:  # compose's script has found it: here HTTPS_PROXY is empty
            launch_serve.find_upstream()
        self.proxy: Upstream | None = launch_serve.upstream(options)
        self.agents: set[int] = set()
        self._full = -_AGAIN
        try:
            _forget(options.channel)
            self.channel = Channel(options.channel, options.user)
        except OSError as failed:
            cannot(f"{options.channel} cannot be listened at: {failed.strerror}", "see whether its directory is there and its user's own")

    def run(self) -> NoReturn:
        """Until TERM or INT."""
        woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            # Python's handler writes the number to the pipe.
            signal.signal(number, lambda *_: None)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self.channel.sock, select.POLLIN)
        self.channel.sock.setblocking(False)
        while True:
            ready = {handle for handle, _ in poll.poll()}
            if woken in ready and set(os.read(woken, 4096)) & {signal.SIGTERM, signal.SIGINT}:
                self._end()
            self._reap()
            if self.channel.sock.fileno() in ready:
                self._meet()

    def _meet(self) -> None:
        try:
            peer = self.channel.accept()
        except BlockingIOError:
            return
        except OSError:
            time.sleep(0.1)  # too few descriptors, most likely: others end
            return
        if peer is None:
            return
        with peer:
            if len(self.agents) >= AGENTS:
                self._say_full()
                return
            parent = os.getpid()
            try:
                pid = os.fork()
            except OSError as failed:
                sys.stderr.write(f"wavegen: warning: no process for a container's network: {failed.strerror}\n")
                time.sleep(0.1)
                return
            if not pid:
                try:
                    self._agent(peer, parent)
                except BaseException as failed:  # noqa: BLE001  nothing of this process goes on twice
                    sys.stderr.write(f"wavegen: error: the network of a container ended: {type(failed).__name__}: {failed} (please report it)\n")
                    sys.stderr.flush()
                finally:
                    os._exit(1)
            self.agents.add(pid)

    def _say_full(self) -> None:
        if time.monotonic() - self._full > _AGAIN:
            self._full = time.monotonic()
            sys.stderr.write(f"wavegen: warning: {AGENTS} containers are served, and no more (end one)\n")
            sys.stderr.flush()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                self.agents.discard(pid)

    def _end(self) -> NoReturn:
        self.channel.close()
        for pid in self.agents:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        until = time.monotonic() + _LAST_WORDS
        while self.agents and time.monotonic() < until:
            self._reap()
            time.sleep(0.01)
        # What has not ended until now ends with this process.
        os._exit(0)

    # --- in a process of its own

    def _agent(self, peer: socket.socket, parent: int) -> NoReturn:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        self.channel.sock.close()
        # Whatever it is that a peer makes this wait for.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_HANDING)
        try:
            lives = peer.getsockopt(socket.SOL_SOCKET, _PEER_PIDFD)
        except OSError as failed:
            if failed.errno != errno.ENOPROTOOPT:
                os._exit(0)  # it has ended already, whoever else has its socket now
            lives = -1
        try:
            sockets = met(peer, self.wanted)
            if not sockets:
                os._exit(0)
            peer.send(b"!")
        except OSError:
            os._exit(0)
        signal.alarm(0)
        peer.close()
        egress = self._egress()
        signal.signal(signal.SIGTERM, lambda *_: egress.loop.stop())
        if lives >= 0:
            _thread.start_new_thread(_until_gone, (lives, egress))
        egress.serve([(purpose, socket.socket(fileno=handle)) for purpose, handle in sockets])
        egress.log.close()
        os._exit(0)

    def _egress(self) -> Egress:
        if self.options.state:
            return launch_serve.network(self.options, self.rules, self.proxy)
        log = Log("", self.options.shell, stream=2)
        return launch_serve.network(self.options, self.rules, self.proxy, log)


def _until_gone(process: int, egress: Egress) -> None:
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll()
    egress.loop.stop()
    time.sleep(_LAST_WORDS)
    # A socket of a container's own can keep who closes it waiting (SO_LINGER).
    os._exit(0)


def _forget(path: str) -> None:
    """Remove what an earlier service has left there, in whose volume it still is. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            os.unlink(path)
