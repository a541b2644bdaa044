"""Connected sockets, and what is moved from one to the other.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

import _socket as socket  # its namesake makes enumerations, which takes longer than all the rest
import errno
import fcntl
import posix
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would take a tenth of a start
    from collections.abc import Callable
    from typing import TypeVar

    from .loop import Loop

    Found = TypeVar("Found")

TURNS = 8
"""Pieces that one stream may move before others have their turn."""
_SPLICE = 3
"""SPLICE_F_MOVE, SPLICE_F_NONBLOCK (splice(2))."""
_PIECE, _SMALL_PIECE = 1024 * 1024, 64 * 1024
"""Bytes that are moved at once: the most, and where `_PARKED` are held already."""
_PARKED = 16 * 1024 * 1024
"""Bytes of all streams together that were read and that no receiver has taken yet."""
_UNSENT = 256 * 1024
"""Bytes that wait in one socket to be sent. The kernel would let them grow to megabytes (tcp(7), tcp_wmem)."""
_NARROW = 256 * 1024
"""Bytes of a receive buffer where the kernel may not choose; it doubles them, or takes less (socket(7), rmem_max)."""
_SET_PIPE_SIZE = 1031
"""F_SETPIPE_SZ (fcntl(2)): the module fcntl knows it from Python 3.10 on."""
_TCP_CONGESTION, _TCP_NOTSENT_LOWAT = 13, 25  # tcp(7), linux/tcp.h
_UNSENT_OF = 0x894B
"""SIOCOUTQNSD (linux/sockios.h): bytes of a socket that were not sent yet."""
_GONE = (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Ignored:
    """Errors that end a block and nothing else, as contextlib.suppress, of which the import takes longer than all the rest."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


def tune_local_listener(listener: socket.socket) -> None:
    """Set what every connection inherits that is accepted on a listener of this machine.

    The link is memory: a congestion control that spaces segments in time (bbr) would start a timer for each of them.
    """
    tune_remote_socket(listener)
    limit_receive_buffer(listener)
    with Ignored(OSError):
        listener.setsockopt(socket.IPPROTO_TCP, _TCP_CONGESTION, b"reno")


def tune_remote_socket(sock: socket.socket) -> None:
    """Send what is passed on at once (tcp(7), TCP_NODELAY), and keep little of it in the kernel where it cannot be sent."""
    with Ignored(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, _UNSENT)


def limit_receive_buffer(sock: socket.socket) -> None:
    """Receive no more ahead than `_NARROW`: the kernel would else hold megabytes of a stream that stands still (tcp(7), tcp_rmem)."""
    with Ignored(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW)


class Mover:
    """Moves bytes from socket to socket: inside the kernel by a pipe (splice(2)), or by a buffer. Holds none of them afterwards."""

    def __init__(self) -> None:
        self._buffer = memoryview(bytearray(_PIECE))  # takes memory where it is used
        self._pipe: tuple[int, int] | None = None
        self.parked = 0
        """Bytes that were read and not taken."""
        with Ignored(OSError):
            if hasattr(posix, "splice"):  # Python 3.10
                self._pipe = posix.pipe2(posix.O_NONBLOCK | posix.O_CLOEXEC)
                # Refused to a user whose pipes hold much already (fs.pipe-user-pages-soft): it works with less.
                fcntl.fcntl(self._pipe[1], _SET_PIPE_SIZE, _PIECE)

    def splice_bytes(self, source: socket.socket, sink: socket.socket) -> tuple[int, int, bytes]:
        """How many bytes came (0: the end), how many were taken, and the others. Raises OSError."""
        if self._pipe is None:
            return self.copy_bytes(source, sink)
        reader, writer = self._pipe
        try:
            count = posix.splice(source.fileno(), writer, self._transfer_limit(), flags=_SPLICE)
        except OSError as failed:
            if failed.errno != errno.EINVAL:
                raise
            self.close()  # this kernel has no splice(2) for sockets
            return self.copy_bytes(source, sink)
        left = count
        try:
            while left:
                left -= posix.splice(reader, sink.fileno(), left, flags=_SPLICE)
        except BlockingIOError:
            return count, count - left, posix.read(reader, left)
        except OSError:
            posix.read(reader, left)
            raise
        return count, count, b""

    def copy_bytes(self, source: socket.socket, sink: socket.socket) -> tuple[int, int, bytes]:
        """The same through this process."""
        count = source.recv_into(self._buffer, self._transfer_limit(), socket.MSG_DONTWAIT)
        try:
            sent = sink.send(self._buffer[:count], socket.MSG_DONTWAIT) if count else 0
        except BlockingIOError:
            sent = 0
        return count, sent, bytes(self._buffer[sent:count])

    def _transfer_limit(self) -> int:
        return max(_SMALL_PIECE, min(_PIECE, _PARKED - self.parked))

    def close(self) -> None:
        """Give the pipe back."""
        pipe, self._pipe = self._pipe, None
        for handle in pipe or ():
            posix.close(handle)


class Stream:
    """A connected socket, and what was read of it and not yet used."""

    __slots__ = ("_buffer", "loop", "sock")

    def __init__(self, loop: Loop, sock: socket.socket) -> None:
        self.loop, self.sock = loop, sock
        self._buffer = b""

    async def receive_bytes(self, seconds: float) -> bytes:
        """What was kept, else what comes next; empty at its end. Raises TimeoutError, ConnectionError."""
        if self._buffer:
            return self.take_pushed_back_bytes()
        until = time.monotonic() + seconds
        while True:
            try:
                return self.sock.recv(65536)
            except BlockingIOError:
                left = until - time.monotonic()
                if left <= 0 or not await self.loop.wait_readable(self.sock, left):
                    raise TimeoutError from None

    async def receive_message(self, reader: Callable[[bytes], Found | None], seconds: float) -> Found:
        """What a reader makes of what comes, as soon as there is enough of it. Raises TimeoutError, ConnectionError, EOFError."""
        data, until = b"", time.monotonic() + seconds
        while more := await self.receive_bytes(until - time.monotonic()):
            data += more
            found = reader(data)
            if found is not None:
                return found
        raise EOFError

    def take_pushed_back_bytes(self) -> bytes:
        """What was given back."""
        data, self._buffer = self._buffer, b""
        return data

    def push_back_bytes(self, data: bytes) -> None:
        """Give back what was read too much."""
        self._buffer = data + self._buffer

    async def send_bytes(self, data: bytes | memoryview, seconds: float | None = None, counted: Callable[[int], None] | None = None) -> None:
        """All of it; `counted` is told of each part that was taken. Raises TimeoutError, ConnectionError."""
        view = memoryview(data)
        while view:
            try:
                sent = self.sock.send(view)
            except BlockingIOError:
                if not await self.loop.wait_writable(self.sock, seconds):
                    raise TimeoutError from None
                continue
            view = view[sent:]
            if counted:
                counted(sent)

    def count_unsent_bytes(self) -> int:
        """Bytes that were taken and have not left yet: they are lost where the connection is reset."""
        count = bytearray(4)
        with Ignored(OSError):
            fcntl.ioctl(self.sock.fileno(), _UNSENT_OF, count)
        return int.from_bytes(count, sys.byteorder)

    def shut_down_writing(self) -> None:
        """Say that nothing more will come (half-close)."""
        with Ignored(OSError):
            self.sock.shutdown(socket.SHUT_WR)

    def reset_connection(self) -> None:
        """Close at once, as if nobody were there."""
        with Ignored(OSError):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self.sock.close()

    def close(self) -> None:
        """Close; what was sent still arrives."""
        self.sock.close()


async def pump_stream(source: Stream, sink: Stream, counted: Callable[[int], None]) -> None:
    """Move everything from one to the other, and then the end of it. Reads no more than is taken (back-pressure).

    There is no bound on time: a stream may stand still while both ends are there. Raises ConnectionError.
    """
    loop, mover, turns = source.loop, source.loop.mover, 0
    while kept := source.take_pushed_back_bytes():
        await sink.send_bytes(kept, counted=counted)
    move = mover.splice_bytes
    while True:
        try:
            count, sent, rest = move(source.sock, sink.sock)
        except BlockingIOError:
            if move == mover.copy_bytes:
                move = mover.splice_bytes
                await loop.wait_readable(source.sock)
            else:
                move = mover.copy_bytes  # urgent data (tcp(7)) stops splice(2), and not recv(2)
            continue
        except OSError as failed:
            if failed.errno in _GONE:
                raise ConnectionError from None
            raise
        if not count:
            sink.shut_down_writing()
            return
        move = mover.splice_bytes
        counted(sent)
        if rest:
            mover.parked += len(rest)
            try:
                await sink.send_bytes(rest, counted=counted)
            finally:
                mover.parked -= len(rest)
        turns += 1
        if turns % TURNS == 0:
            await loop.sleep_seconds(0)
