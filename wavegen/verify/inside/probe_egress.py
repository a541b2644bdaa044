"""Attempts to get past the filter of names: by each way in, what must be let through and what must not.

Whoever is reached is a server that was planted on the host's loopback, which says its word to everybody; the launcher
is told to connect there in place of the names that are asked for.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Callable, Iterable, Iterator

from probe_common import ROLE, Answer, answer_for_error, answer_for_outcome, answer_stopped, contains_canary

_SECONDS = 0.5
_HTTP, _SOCKS, _TLS = 3128, 1080, 443


def _client_hello(name: str) -> bytes:
    """A ClientHello for a name (RFC 8446, 4.1.2; RFC 6066, 3)."""
    entry = b"\0" + struct.pack("!H", len(name)) + name.encode()
    listed = struct.pack("!H", len(entry)) + entry
    extensions = struct.pack("!HH", 0, len(listed)) + listed
    body = b"\3\3" + os.urandom(32) + b"\0" + b"\0\2\x13\1" + b"\1\0" + struct.pack("!H", len(extensions)) + extensions
    return b"\x16\3\1" + struct.pack("!H", len(body) + 4) + b"\1" + len(body).to_bytes(3, "big") + body


def _open_tcp_socket(place: tuple[str, int]) -> socket.socket:
    client = socket.create_connection(place, timeout=_SECONDS)
    client.settimeout(_SECONDS)
    return client


def _connect_directly(host: str, port: int) -> socket.socket:
    return _open_tcp_socket((host.strip("[]"), port))


def _connect_by_http_proxy(host: str, port: int) -> socket.socket:
    client = _open_tcp_socket(("127.0.0.1", _HTTP))
    client.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        # Byte by byte: what follows is the server's.
        more = client.recv(1)
        if not more:
            break
        answer += more
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ConnectionRefusedError(0, answer.split(b"\r\n")[0].decode("latin-1") or "closed")
    return client


def _request_by_http_proxy(host: str, port: int) -> socket.socket:
    client = _open_tcp_socket(("127.0.0.1", _HTTP))
    client.sendall(f"GET http://{host}:{port}/ HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    return client


def _connect_by_socks_proxy(host: str, port: int) -> socket.socket:
    client = _open_tcp_socket(("127.0.0.1", _SOCKS))
    client.sendall(b"\5\1\0")
    client.recv(2)
    client.sendall(b"\5\1\0\3" + bytes([len(host)]) + host.encode() + struct.pack("!H", port))
    answer = client.recv(10)
    if answer[1:2] != b"\0":
        raise ConnectionRefusedError(0, f"SOCKS reply {answer[1] if len(answer) > 1 else 'none'}")
    return client


_WAYS: dict[str, Callable[[str, int], socket.socket]] = {
    "direct": _connect_directly,
    "connect": _connect_by_http_proxy,
    "http": _request_by_http_proxy,
    "socks": _connect_by_socks_proxy,
}


def _receives_canary(client: socket.socket) -> bool:
    with client:
        client.settimeout(_SECONDS)
        return contains_canary(client.recv(4096))


def _try_destination(way: str, host: str, port: int, asked: str, canary: list[tuple[str, int]], *, target: str = "") -> Answer:  # noqa: PLR0913  what is asked
    target = target or f"{way} {host}:{port}" + (f" as {asked}" if asked != host else "")
    try:
        if ROLE["outside"]:
            # Without a fence whoever asks for it is connected.
            address, place = canary[0]
            return answer_for_outcome(target, "no answer", reached=_receives_canary(_open_tcp_socket((address, place))))
        with _WAYS[way](host, port) as client:
            if port == _TLS and way != "http":
                client.sendall(_client_hello(asked))
            said = b""
            # Who is refused is told so: HTTP that ends otherwise has been passed on.
            with contextlib.suppress(TimeoutError, ConnectionResetError):
                while len(said) < 4096 and (more := client.recv(4096)):
                    said += more
                    if contains_canary(said):
                        break
            return answer_for_outcome(
                target,
                said.split(b"\r\n")[0][:60].decode("latin-1") or "closed",
                reached=contains_canary(said) or (way == "http" and not said.startswith(b"HTTP/1.1 4")),
            )
    except ConnectionRefusedError as failed:
        return answer_stopped(target, str(failed.strerror or "refused"))
    except TimeoutError:
        return answer_stopped(target, "no answer")
    except OSError as failed:
        return answer_for_error(target, failed)


def by_name(places: Iterable[tuple[str, int]], ways: Iterable[str], canary: list[tuple[str, int]]) -> Iterator[Answer]:
    """Ask for hosts, each by each way."""
    for host, port in places:
        for way in ways:
            yield _try_destination(way, host, port, host, canary)


def passed_through(places: Iterable[tuple[str, int]], ways: Iterable[str], canary: list[tuple[str, int]]) -> Iterator[Answer]:
    """The same for hosts that are to be reached."""
    yield from by_name(places, ways, canary)


def host_ports(spellings: Iterable[str], ways: Iterable[str], canary: list[tuple[str, int]]) -> Iterator[Answer]:
    """Ask for a port of the host's loopback, however that may be called."""
    for host in spellings:
        for way in ways:
            # Not the port, which differs from run to run.
            yield _try_destination(way, host, canary[0][1], host, canary, target=f"{way} {host}")


def reach_another_server(places: Iterable[tuple[str, int]], asked: str, ways: Iterable[str], canary: list[tuple[str, int]]) -> Iterator[Answer]:
    """Connect to a host that is let through, and ask it for another by TLS."""
    for host, port in places:
        for way in ways:
            yield _try_destination(way, host, port, asked, canary)


ATTEMPTS = {
    "by_name": by_name,
    "passed_through": passed_through,
    "host_ports": host_ports,
    "another_server": reach_another_server,
}
