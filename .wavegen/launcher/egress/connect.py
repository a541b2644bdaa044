"""From a host that may be asked to a connection to it: looking it up, judging what is found, the host's own proxy.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

import _socket as socket
import binascii
import errno
import time

from . import names
from . import protocols as wire
from .loop import Loop
from .rules import LOOPBACK, Rule, Rules
from .streams import Ignored, Stream, tune_remote_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

HANDSHAKE = 30.0
"""Seconds for a client to say what it wants, and for a server to be reached."""
_STAGGER = 0.25
"""Seconds until the next address is tried beside the first (RFC 8305)."""
_ADDRESSES = 8


class RefusedError(Exception):
    """A connection that is not made, or ended: the reason's code."""


class Upstream:
    """The proxy that this host itself must use."""

    def __init__(self, target: names.Target, port: int, login: bytes, direct: Iterable[str]) -> None:
        self.target, self.port = target, port
        self.headers = ((b"Proxy-Authorization", b"Basic " + binascii.b2a_base64(login, newline=False)),) if login else ()
        self._direct = tuple(name.strip().lower().lstrip("*.") for name in direct if name.strip())

    def proxies_target(self, target: names.Target) -> bool:
        """Whether a host is reached through it."""
        text = str(target)
        return not any(text == name or text.endswith("." + name) for name in self._direct)


class Reach:
    """Connects from the host's network. `connect_to`: what is connected to in a host's place."""

    def __init__(self, loop: Loop, rules: Rules, connect_to: dict[tuple[str, int], tuple[str, int]], upstream: Upstream | None) -> None:
        self._loop, self._rules, self._connect_to, self.upstream = loop, rules, connect_to, upstream

    async def connect_to_host(self, rule: Rule, target: names.Target, port: int) -> tuple[Stream, str]:
        """A connection to a host that may be asked, and the address that it is to (empty: a tunnel). Raises RefusedError."""
        elsewhere = self._connect_to.get((str(target), port))
        if elsewhere:
            return await self._connect_to_first([elsewhere])
        if self.goes_through_upstream(rule, target, port):
            return await self._open_upstream_tunnel(rule, target, port), ""
        return await self._connect_to_first(
            [(names.format_address(names.unmap_ipv4_address(address)), port) for address in await self._resolve_allowed_addresses(rule, target, port)]
        )

    def goes_through_upstream(self, rule: Rule, target: names.Target, port: int) -> bool:
        """Whether a host is reached through the host's own proxy."""
        return (
            bool(self.upstream and self.upstream.proxies_target(target))
            and not self._rules.is_loopback_rule(rule)
            and (str(target), port) not in self._connect_to
        )

    async def connect_to_upstream(self, rule: Rule, target: names.Target, port: int) -> Stream:
        """A connection to the host's own proxy, to ask it for a host; of that only an address can be judged. Raises RefusedError."""
        proxy = self.upstream
        reason = self._rules.address_refusal_reason(rule, target.address, port) if target.address else ""
        if proxy is None or reason:
            raise RefusedError(reason or "unreachable")
        found = [proxy.target.address] if proxy.target.address else await self._resolve_name(proxy.target.name)
        stream, _ = await self._connect_to_first([(names.format_address(address), proxy.port) for address in found])
        return stream

    async def _resolve_allowed_addresses(self, rule: Rule, target: names.Target, port: int) -> list[bytes]:
        """The addresses of a host: asked once, and each judged. Raises RefusedError."""
        if self._rules.is_loopback_rule(rule):
            return list(LOOPBACK)
        found = [target.address] if target.address else await self._resolve_name(target.name)
        for address in found:
            reason = self._rules.address_refusal_reason(rule, address, port)
            if reason:
                raise RefusedError(reason)
        return found[:_ADDRESSES]

    async def _resolve_name(self, name: str) -> list[bytes]:
        def look_up_addresses() -> list[bytes]:
            # Bytes: a text would be mapped to other letters on its way (IDNA).
            found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(socket.inet_pton(family, str(place[0]).partition("%")[0]) for family, _, _, _, place in found))

        try:
            found: list[bytes] = await self._loop.run_in_thread(look_up_addresses)
        except (OSError, UnicodeError):
            raise RefusedError("unresolved") from None
        if not found:
            raise RefusedError("unresolved")
        return found

    async def _connect_to_first(self, places: list[tuple[str, int]]) -> tuple[Stream, str]:
        """The first of several addresses that answers, each begun a little after the one before. Raises RefusedError."""
        tried: list[tuple[socket.socket, str]] = []
        until = time.monotonic() + HANDSHAKE
        waiting = list(places)
        try:
            while (waiting or tried) and time.monotonic() < until:
                if waiting:
                    address, port = waiting.pop(0)
                    with Ignored(OSError):
                        sock = self._start_connecting(address, port)
                        if _is_connected(sock):  # at once, on this machine
                            return Stream(self._loop, sock), address
                        tried.append((sock, address))
                if not tried:
                    continue
                await self._loop.wait_any_writable([sock for sock, _ in tried], _STAGGER if waiting else max(0.01, until - time.monotonic()))
                for sock, address in tuple(tried):
                    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                        tried.remove((sock, address))
                        sock.close()
                    elif _is_connected(sock):
                        tried.remove((sock, address))
                        return Stream(self._loop, sock), address
        finally:
            for sock, _ in tried:
                sock.close()
        raise RefusedError("unreachable")

    def _start_connecting(self, address: str, port: int) -> socket.socket:
        """A socket that is being connected. Raises OSError: no way there, no IPv6, too few descriptors."""
        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        try:
            self._loop.register_socket(sock)
            tune_remote_socket(sock)
            failed = sock.connect_ex((address, port))
            if failed not in (0, errno.EINPROGRESS):
                raise OSError(failed, "connect")
        except OSError:
            sock.close()
            raise
        return sock

    async def _open_upstream_tunnel(self, rule: Rule, target: names.Target, port: int) -> Stream:
        """A tunnel through the host's own proxy, which looks up names itself. Raises RefusedError."""
        stream = await self.connect_to_upstream(rule, target, port)
        host = f"{target.authority_text()}:{port}".encode()
        fields = b"".join(name + b": " + value + b"\r\n" for name, value in self.upstream.headers) if self.upstream else b""
        try:
            await stream.send_bytes(b"CONNECT " + host + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + fields + b"\r\n", HANDSHAKE)
            found = await stream.receive_message(wire.http_status, HANDSHAKE)
        except (OSError, EOFError, wire.BadMessageError):
            stream.close()
            raise RefusedError("unreachable") from None
        status, _, rest = found
        if not 200 <= status < 300:
            stream.close()
            raise RefusedError("unreachable")
        stream.push_back_bytes(rest)
        return stream


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True
