"""Starting a container's client and serving the container's network from outside: launcher.py turns to it where it has --channel.

    ... launch.py --channel PATH --user UID ... -- ENGINE run ... COMMAND

Nobody outside may enter the container's network namespace, so its first process (stage.py, stage.pl) opens what is listened on and sends
it here, through a socket at PATH that is there until then. The command runs only after that.

The client is this process's child, and the terminal its own. It ends with this process; the container does not: the
wrapper's watchdog removes it, and the wrapper looks at what was left behind.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import struct
import sys
import time

import launch_serve
from egress_reach import Upstream
from egress_rules import Rules
from launcher import Listener, Options, become, join, leave, listeners, taken_over, tell
from stage import CANNOT, cannot

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import NoReturn

    from launcher import Mask

_TALK = 30.0
"""Seconds for the first process to say its next word."""
_BACKLOG = 32


class Channel:
    """A listening socket at a path, for one user. Raises OSError: its directory is not there, its name is taken."""

    def __init__(self, path: str, user: int) -> None:
        self.closed = False
        where, self._name = os.path.split(os.path.abspath(path))
        self._user = user if os.geteuid() == 0 else -1
        with self._as_user():
            self._directory = os.open(where, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._as_user():
            before = os.umask(0o177)
            try:
                # Whatever the path's length, of which a socket's address has 107 bytes.
                self.sock.bind(f"/proc/self/fd/{self._directory}/{self._name}")
            finally:
                os.umask(before)
        self.sock.listen(_BACKLOG)

    @contextlib.contextmanager
    def _as_user(self) -> Iterator[None]:
        # In a directory of the user's root does nothing that the user could not: who may put a link there would else say what root changes.
        if self._user <= 0:
            yield
            return
        os.seteuid(self._user)
        try:
            yield
        finally:
            os.seteuid(0)

    def accept(self) -> socket.socket | None:
        """Somebody of that user, by the kernel's word; None for somebody else. Raises OSError."""
        peer, _ = self.sock.accept()
        _, uid, _ = struct.unpack("iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if self._user_is(uid):
            return peer
        peer.close()
        return None

    def _user_is(self, uid: int) -> bool:
        return uid == (self._user if self._user >= 0 else os.geteuid())

    def close(self) -> None:
        """Nobody connects any more; who waits in `accept` is told."""
        self.closed = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError), self._as_user():
            if stat.S_ISSOCK(os.stat(self._name, dir_fd=self._directory, follow_symlinks=False).st_mode):
                os.unlink(self._name, dir_fd=self._directory)


def met(peer: socket.socket, wanted: Sequence[Listener]) -> list[tuple[str, int]]:
    """The sockets that a first process has opened; none where it could not, or is somebody else. Raises OSError."""
    peer.settimeout(_TALK)
    tell(peer, wanted)
    return taken_over(peer, wanted)[0]


def run(options: Options, rules: Rules, proxy: Upstream | None, mask: Mask) -> NoReturn:
    """Until the client ends; this process ends as it did. Raises OSError, RuntimeError."""
    try:
        channel = Channel(options.channel, options.user)
    except OSError as failed:
        cannot(f"{options.channel} cannot be listened at: {failed.strerror}", "see whether its directory is there and empty")
    try:
        pid = _client(options, mask)
        egress = launch_serve.network(options, rules, proxy)
        done = launch_serve.answering(egress, pid, lambda: _sockets(channel, listeners(rules)))
    except (OSError, RuntimeError):
        channel.close()
        raise
    status = launch_serve.wait(pid, egress, lambda: 0)
    channel.close()
    done.acquire(timeout=2)
    leave(options.groups)
    launch_serve.end(options, egress, status, True)


def _client(options: Options, mask: Mask) -> int:
    """Start the engine's client; its process."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    arguments = [*options.scope, *options.bwrap, *options.command]
    try:
        join(options.groups)
        become(arguments, parent, mask)
    except OSError as failed:
        sys.stderr.write(f"wavegen: error: {arguments[0]}: {failed.strerror} (shorten the command)\n")
        sys.stderr.flush()
    finally:
        os._exit(CANNOT)


def _sockets(channel: Channel, wanted: Sequence[Listener]) -> list[tuple[str, int]]:
    """What the first process inside has opened; none where the client has ended before. Whoever else comes is let go."""
    while True:
        try:
            peer = channel.accept()
            if peer is None:
                continue
            with peer:
                sockets = met(peer, wanted)
                if sockets:
                    # From here on nobody inside can say anything but by what was opened.
                    channel.close()
                    peer.send(b"!")
                    return sockets
        except OSError:
            if channel.closed:
                return []
            time.sleep(0.05)  # too few descriptors, most likely, or a peer that is gone
