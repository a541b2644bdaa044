"""The first process inside, where nobody outside can listen for it: opens what is listened on, hands that out, becomes the command.

    python3 -I -S listeners.py CHANNEL -- COMMAND ARGUMENT...

CHANNEL is the path of a socket of the launcher's (container.py), or @N, an open descriptor of one. Each message of it
has words KIND/ADDRESS/PORT, KIND being tcp or udp; `!` is the last. The answers are numbers of two bytes, in the order of
the words and from 0, each with the listening socket of that number (SCM_RIGHTS), at last `!`, or `?` and the error's
number. Then `!` lets the command run. listeners.pl does the same where there is no Python.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

import _socket as socket  # its namesake makes enumerations, which takes longer than all the rest
import errno
import posix
import struct
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from typing import NoReturn
else:
    import _signal as signal

CANNOT = 125
HTTP_PORT, SOCKS_PORT, DNS_PORT = 3128, 1080, 53
FDS_AT_ONCE = 100
_PRIVILEGED = 1024
_BACKLOG = 128
_MESSAGE = 65536

Wanted = tuple[str, str, int]
"""tcp or udp, the address and the port."""


def exit_cannot_start(what: str, remedy: str) -> NoReturn:
    """The fence cannot be built; nothing was run."""
    sys.stderr.write(f"wavegen: error: {what} ({remedy})\n")
    sys.stderr.flush()
    posix._exit(CANNOT)  # noqa: SLF001


def _open_listener(wanted: Wanted) -> socket.socket | None:
    """A listening socket; None where this kernel has no IPv6, or lets only root listen there. Raises OSError."""
    kind, address, port = wanted
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        if kind != "udp":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, port))
        if kind != "udp":
            sock.listen(_BACKLOG)
    except OSError as failed:
        if family == socket.AF_INET6:
            return None  # the IPv4 one is there
        if failed.errno == errno.EACCES and port < _PRIVILEGED:
            return None
        raise
    return sock


def open_and_send(channel: socket.socket, wanted: Sequence[Wanted]) -> list[int]:
    """Open what is listened on and send it; the ports that only root may listen on. Raises OSError."""
    opened = [(number, _open_listener(one)) for number, one in enumerate(wanted)]
    there = [(number, sock) for number, sock in opened if sock]
    for start in range(0, len(there), FDS_AT_ONCE):
        part = there[start : start + FDS_AT_ONCE]
        numbers = struct.pack(f"!{len(part)}H", *(number for number, _ in part))
        channel.sendmsg([numbers], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(part)}i", *(sock.fileno() for _, sock in part)))])
    channel.send(b"!")
    return sorted({wanted[number][2] for number, sock in opened if not sock and ":" not in wanted[number][1]})


def set_java_proxy() -> None:
    """Names do not lead anywhere: a JVM asks a proxy only where it is told to."""
    import os  # slow, and for the launcher, which opens sockets by this file, too, not needed

    java = f"-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={HTTP_PORT} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={HTTP_PORT}"
    os.environ.setdefault("JAVA_TOOL_OPTIONS", java)


def exec_inside_command(command: list[str]) -> NoReturn:
    """Run the command in this process's place."""
    import os

    # Python ignores these two, and what is ignored stays so in other programs.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    name = command[0]
    try:
        os.execvp(name, command)
    except OSError as failed:
        missing = failed.errno in (errno.ENOENT, errno.ENOTDIR)
        sys.stderr.write(f"wavegen: {name}: command not found inside\n" if missing else f"wavegen: {name} cannot be executed inside: {failed.strerror}\n")
        sys.stderr.flush()
        posix._exit(127 if missing else 126)  # noqa: SLF001


def _receive_wanted(channel: socket.socket) -> list[Wanted]:
    """What the launcher wants to be opened. Raises OSError, ValueError."""
    found: list[Wanted] = []
    while (data := channel.recv(_MESSAGE)) != b"!":
        if not data:
            raise OSError(errno.ECONNRESET, "it was closed")
        for word in data.decode("ascii").split():
            kind, address, port = word.split("/")
            found.append((kind, address, int(port)))
    return found


def main(arguments: Sequence[str]) -> NoReturn:
    """Open, hand over, wait to be let go on, become the command."""
    if len(arguments) < 3 or arguments[1] != "--":
        exit_cannot_start("listeners.py was given no command", "say CHANNEL -- COMMAND")
    try:
        if arguments[0][:1] == "@":
            channel = socket.socket(fileno=int(arguments[0][1:]))
        else:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            channel.connect(arguments[0])
        wanted = _receive_wanted(channel)
    except (OSError, ValueError) as failed:
        exit_cannot_start(f"the launcher outside does not answer: {failed}", "start the shell by its script")
    try:
        refused = open_and_send(channel, wanted)
    except OSError as failed:
        channel.send(f"?{failed.errno}".encode())
        exit_cannot_start(f"the shell's network cannot listen: {failed.strerror}", "see the ports that `loopback` lists")
    try:
        if channel.recv(1) != b"!":
            raise OSError(errno.ECONNRESET, "it was closed")
    except OSError as failed:
        exit_cannot_start(f"the launcher outside has ended: {failed}", "start the shell again")
    channel.close()
    if refused:
        ports = ", ".join(map(str, refused))
        sys.stderr.write(f"wavegen: note: ports {ports} cannot be listened on here (net.ipv4.ip_unprivileged_port_start)")
        sys.stderr.write(": only programs that know a proxy reach the network\n" if DNS_PORT in refused else "\n")
        sys.stderr.flush()
    if DNS_PORT in refused:
        set_java_proxy()
    exec_inside_command(list(arguments[2:]))


if __name__ == "__main__":
    main(sys.argv[1:])
