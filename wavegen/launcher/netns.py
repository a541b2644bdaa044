"""The network of a shell whose connections are filtered: a namespace of its own, with sockets that this launcher answers from outside.

A child of the launcher makes a user and a network namespace, opens there what is listened on, hands the sockets over (SCM_RIGHTS, unix(7)), and
becomes bwrap. So the sockets exist before the command does, nothing listens on the host, and no process relays.
"""

from __future__ import annotations

import _socket as socket
import errno
import fcntl
import posix

from . import libc
from .egress.names import format_address
from .egress.ports import DNS_PORT, HTTP_PORT, SOCKS_PORT
from .egress.rules import ANY, POOL, UNPRIVILEGED, Rules
from .inside.listeners import FDS_AT_ONCE, open_and_send

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NEWUSER, _NEWNET = 0x10000000, 0x40000000
# ioctls of netdevice(7)
_GET_FLAGS, _SET_FLAGS, _SET_ADDRESS, _SET_MASK = 0x8913, 0x8914, 0x8916, 0x891C
_UP = 1
_TALK = 30.0
"""Seconds for the first process inside to answer."""
REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS, errno.EINVAL, errno.ENOSYS)
"""A namespace is refused: by the kernel's settings, AppArmor or seccomp, or as there are too many (unshare(2))."""
Listener = "tuple[str, int, str, int]"
"""What for, the family, the address and the port."""


def list_wanted_listeners(rules: Rules, *, everywhere: bool = True) -> tuple[tuple[str, int, str, int], ...]:
    """What is listened on inside. `everywhere`: not the proxies alone, which need no privilege."""
    four, six = int(socket.AF_INET), int(socket.AF_INET6)
    found = [("proxy", four, "127.0.0.1", HTTP_PORT), ("proxy", four, "127.0.0.1", SOCKS_PORT)]
    if everywhere:
        found += [("dns-udp", four, "127.0.0.1", DNS_PORT), ("dns-tcp", four, "127.0.0.1", DNS_PORT)]
        for address, port in rules.listener_addresses():
            if address != ANY or port not in (DNS_PORT, HTTP_PORT, SOCKS_PORT):
                found.append(("direct", four if len(address) == 4 else six, format_address(address), port))
    taken = {port for _, _, address, port in found if address == "0.0.0.0"}
    for port in rules.loopback:
        if port not in taken:
            found.append(("direct", four, "127.0.0.1", port))
        found.append(("direct", six, "::1", port))
    if everywhere and any(len(address) > 4 for address in rules.assignable_addresses()):
        found += [("direct", six, "::", port) for port in rules.listener_ports() if port < UNPRIVILEGED and port not in (DNS_PORT, *rules.loopback)]
    return tuple(found)


def enter_namespaces() -> None:
    """A user and a network namespace of this process's own, in which it is nobody else. Raises OSError."""
    user, group = posix.geteuid(), posix.getegid()
    libc.unshare_namespaces(_NEWUSER | _NEWNET)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        handle = posix.open(f"/proc/self/{name}", posix.O_WRONLY | posix.O_CLOEXEC)
        posix.write(handle, text.encode())
        posix.close(handle)


def bring_loopback_up(listed: Iterable[bytes]) -> None:
    """With the addresses that stand for names, and those that are listed as such. Raises OSError."""
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = b"lo".ljust(16, b"\0")
    flags = int.from_bytes(fcntl.ioctl(control.fileno(), _GET_FLAGS, request + bytes(16))[16:18], "little")
    fcntl.ioctl(control.fileno(), _SET_FLAGS, request + (flags | _UP).to_bytes(2, "little") + bytes(14))
    # On the loopback every address of a network is one's own, once it has one of them.
    listed = tuple(listed)
    nets = [(POOL.first, POOL.length), *((address, 32) for address in listed if len(address) == 4)]
    for number, (address, length) in enumerate(nets):
        name = f"lo:{number}".encode().ljust(16, b"\0")
        family = int(socket.AF_INET).to_bytes(2, "little") + bytes(2)
        mask = (0xFFFFFFFF << 32 - length & 0xFFFFFFFF).to_bytes(4, "big")
        fcntl.ioctl(control.fileno(), _SET_ADDRESS, name + family + address + bytes(8))
        fcntl.ioctl(control.fileno(), _SET_MASK, name + family + mask + bytes(8))
    control.close()
    for address in listed:
        if len(address) > 4:
            try:
                control = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
                index = socket.if_nametoindex("lo").to_bytes(4, "little")
                fcntl.ioctl(control.fileno(), _SET_ADDRESS, address + (128).to_bytes(4, "little") + index)
                control.close()
            except OSError:
                return  # no IPv6 here: the proxies still take it


def listener_request(listener: tuple[str, int, str, int]) -> tuple[str, str, int]:
    """A listener in the words of `inside/listeners`: tcp or udp, address, port."""
    purpose, _, address, port = listener
    return ("udp" if purpose == "dns-udp" else "tcp", address, port)


def receive_sockets(channel: socket.socket, wanted: Sequence[tuple[str, int, str, int]]) -> tuple[list[tuple[str, int]], int]:
    """The sockets that somebody inside has opened, by purpose and descriptor, and the error for which he could not: -1 where he is gone, or
    has sent anything else than the sockets that were wanted. Raises OSError.
    """
    found: dict[int, int] = {}
    failure = 0
    while not failure:
        data, rights, _, _ = channel.recvmsg(2 * FDS_AT_ONCE, socket.CMSG_SPACE(4 * FDS_AT_ONCE), socket.MSG_CMSG_CLOEXEC)
        handles = [int.from_bytes(raw[at : at + 4], "little") for _, _, raw in rights for at in range(0, len(raw) - 3, 4)]
        if data == b"!" and not handles:
            return [(wanted[number][0], handle) for number, handle in found.items()], 0
        if data[:1] == b"?" and not handles:
            failure = int(data[1:]) if data[1:4].isdigit() and len(data) <= 4 else -1
            continue
        numbers = [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data) - 1, 2)]
        for place, handle in enumerate(handles):
            number = numbers[place] if place < len(numbers) else len(wanted)
            if number >= len(wanted) or number in found or not _is_wanted_socket(handle, wanted[number]):
                posix.close(handle)
                failure = -1
            else:
                found[number] = handle
        if not handles or len(data) != 2 * len(handles):
            failure = -1
    for handle in found.values():
        posix.close(handle)
    return [], failure


def offer_listeners(channel: socket.socket, wanted: Sequence[tuple[str, int, str, int]]) -> tuple[list[tuple[str, int]], int]:
    """Tell the first process inside what to open, and take that over, as `receive_sockets` does; then it may go on. Raises OSError."""
    channel.settimeout(_TALK)
    words = [f"{kind}/{address}/{port}" for kind, address, port in map(listener_request, wanted)]
    for start in range(0, len(words), 500):
        channel.send(" ".join(words[start : start + 500]).encode())
    channel.send(b"!")
    sockets, failure = receive_sockets(channel, wanted)
    if not failure:
        channel.send(b"!")
    return sockets, failure


def _is_wanted_socket(handle: int, listener: tuple[str, int, str, int]) -> bool:
    """Whether a descriptor is the socket that was wanted: what else would come might stop who serves it."""
    purpose, family, address, port = listener
    udp = purpose == "dns-udp"
    try:
        sock = socket.socket(fileno=handle)
    except OSError:
        return False
    try:
        asked = [sock.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_DOMAIN, socket.SO_TYPE, socket.SO_PROTOCOL, socket.SO_ACCEPTCONN)]
        protocol, kind = (socket.IPPROTO_UDP, socket.SOCK_DGRAM) if udp else (socket.IPPROTO_TCP, socket.SOCK_STREAM)
        return asked == [family, kind, protocol, int(not udp)] and sock.getsockname()[:2] == (address, port)
    except OSError:
        return False
    finally:
        sock.detach()


def open_network(channel: socket.socket, rules: Rules, wanted: Sequence[tuple[str, int, str, int]]) -> list[int]:
    """Make the namespace and what is listened on in it, and hand that over; the ports that only root may listen on. Raises OSError."""
    enter_namespaces()
    bring_loopback_up(rules.assignable_addresses())
    return open_and_send(channel, [listener_request(listener) for listener in wanted])
