"""The way out of a shell that filters its network: answers on sockets of the shell's own network namespace, and
connects from the host's.

Four ways in, one decision (egress_rules.py): DNS, which gives an allowed name an address that is reserved for it;
connections to such an address; an HTTP proxy; SOCKS5.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import binascii
import contextlib
import errno
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial

import egress_names as names
import egress_wire as wire
from egress_log import Log
from egress_loop import Loop, Stream, pump
from egress_rules import LOOPBACK, TLS_PORT, Decision, Rule, Rules, pool
from egress_say import advice, because

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from egress_loop import Task

    Found = TypeVar("Found")

HANDSHAKE = 30.0
"""Seconds for a client to say what it wants, and for a server to be reached."""
IDLE = 3600.0
"""Seconds without a byte in either direction, after which a connection is ended: a model may think for long."""
HALF_CLOSED = 600.0
"""The same once one direction has ended."""
CONNECTIONS = 512
NAMES = 16384
"""Names that get an address. Nothing is taken away again: an address must never become another name's."""
_STALE, _QUIET = 5.0, 60.0
"""Seconds of silence after which a connection makes room, where there is none: with one end gone, and with both there."""
_STAGGER = 0.25
"""Seconds until the next address is tried beside the first (RFC 8305)."""
_ADDRESSES = 8
_REASONS_OF_SOCKS = {"unresolved": wire.UNREACHABLE, "unreachable": wire.UNREACHABLE, "bad-name": wire.NOT_ALLOWED}
_PROBLEMS = (OSError, EOFError)


class RefusedError(Exception):
    """A connection that is not made, or ended: the reason's code."""


class Upstream:
    """The proxy that this host itself must use."""

    def __init__(self, target: names.Target, port: int, login: bytes, direct: Iterable[str]) -> None:
        self.target, self.port = target, port
        self.headers = ((b"Proxy-Authorization", b"Basic " + binascii.b2a_base64(login, newline=False)),) if login else ()
        self._direct = tuple(name.strip().lower().lstrip("*.") for name in direct if name.strip())

    def serves(self, target: names.Target) -> bool:
        """Whether a host is reached through it."""
        text = str(target)
        return not any(text == name or text.endswith("." + name) for name in self._direct)


class Connection:
    """One request for a connection, from its first byte to its line in the log."""

    def __init__(self, egress: Egress, client: Stream, via: str) -> None:
        self.egress, self.client, self.via = egress, client, via
        self.server: Stream | None = None
        self.name, self.port = "", 0
        self.rule: Rule | None = None
        self.address: str | None = None
        self.up = self.down = 0
        self.started = self.last = time.monotonic()
        self.halves = 0
        self.tasks: set[Task] = set()
        self.over = False
        self.aborted = False

    def sent(self, count: int) -> None:
        """Bytes from the client to the server."""
        self.up += count
        self.last = time.monotonic()

    def received(self, count: int) -> None:
        """Bytes from the server to the client."""
        self.down += count
        self.last = time.monotonic()

    def finish(self, verdict: str, reason: str = "", *, reset: bool = False) -> None:
        """The end: written down, closed. Once."""
        if self.over:
            return
        self.over = True
        for task in self.tasks:
            self.egress.loop.cancel(task)
        for stream in (self.client, self.server):
            if stream:
                stream.reset() if reset else stream.close()
        self.egress.finished(self, verdict, reason)


class Egress:
    """Serves one shell."""

    def __init__(self, rules: Rules, log: Log, *, shell: str, connect_to: dict[tuple[str, int], tuple[str, int]], upstream: Upstream | None = None) -> None:
        self.rules, self.log, self.shell = rules, log, shell
        self.loop = Loop()
        self.upstream = upstream
        self._connect_to = connect_to
        self._by_name: dict[str, bytes] = {}
        self._by_address: dict[bytes, str] = {}
        self._connections: set[Connection] = set()
        for name in rules.listed():
            self._given(name)

    # --- running

    def serve(self, listeners: Iterable[tuple[str, socket.socket]]) -> None:
        """Answer on sockets, each with what it is for, until the loop is stopped."""
        for purpose, sock in listeners:
            self.loop.watch(sock)
            if purpose == "dns-udp":
                self.loop.spawn(self._datagrams(sock))
            else:
                self.loop.spawn(self._accept(purpose, sock))
        self.loop.spawn(self._sweep())
        self.loop.run()
        for connection in tuple(self._connections):
            connection.finish("allow" if connection.halves else "error", "ended")

    def finished(self, connection: Connection, verdict: str, reason: str) -> None:
        """A connection has ended."""
        self._connections.discard(connection)
        if not connection.name and reason in ("", "ended", "timeout"):
            return  # nobody was asked for
        host, rule = connection.name, connection.rule
        if verdict != "allow" and self.log.lately(connection.via, host, connection.port, reason):
            return
        self.log.write(
            verdict=verdict,
            via=connection.via,
            name=host,
            port=connection.port,
            address=connection.address,
            rule=str(rule) if rule else None,
            line=rule.line if rule else None,
            up=connection.up,
            down=connection.down,
            ms=round((time.monotonic() - connection.started) * 1000),
            reason=reason,
        )

    async def _sweep(self) -> None:
        while True:
            await self.loop.sleep(5)
            now = time.monotonic()
            for connection in tuple(self._connections):
                if connection.halves and now - connection.last > (IDLE if connection.halves > 1 else HALF_CLOSED):
                    self._abort(connection, "timeout")

    async def _accept(self, purpose: str, listener: socket.socket) -> None:
        answer = {"proxy": self._proxied, "direct": self._directly, "dns-tcp": self._asked_by_tcp}[purpose]
        while True:
            try:
                sock, _ = listener.accept()
            except BlockingIOError:
                await self.loop.readable(listener)
                continue
            except OSError as failed:
                # Too few descriptors, most likely; whatever it is, others have their turn.
                await self.loop.sleep(0.1 if failed.errno != errno.ECONNABORTED else 0)
                continue
            self.loop.watch(sock)
            client = Stream(self.loop, sock)
            connection = Connection(self, client, "direct" if purpose == "direct" else "dns" if purpose == "dns-tcp" else "connect")
            if len(self._connections) >= CONNECTIONS and not self._made_room():
                if purpose == "proxy":
                    with contextlib.suppress(OSError):
                        sock.send(_http_answer("429 Too Many Requests", "too many connections at once"))
                connection.finish("deny", "limit", reset=purpose != "proxy")
                continue
            self._connections.add(connection)
            self.loop.spawn(self._guarded(connection, answer))

    def _made_room(self) -> bool:
        """End the connection that has been idle longest, if it has been for long: sooner where one end is gone."""
        now = time.monotonic()
        waiting = [one for one in self._connections if one.halves and now - one.last > (_STALE if one.halves == 1 else _QUIET)]
        if waiting:
            self._abort(min(waiting, key=lambda connection: connection.last), "timeout")
        return bool(waiting)

    async def _guarded(self, connection: Connection, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        """Whatever happens to one connection ends that alone."""
        try:
            await work(connection)
        except RefusedError as refused:
            connection.finish("error" if str(refused) in ("unresolved", "unreachable") else "deny", str(refused), reset=connection.via == "direct")
        except TimeoutError:
            connection.finish("error", "timeout", reset=True)
        except _PROBLEMS:
            connection.finish("error", "ended", reset=True)
        except Exception as failed:  # noqa: BLE001  the others go on
            _bug(failed)
            connection.finish("error", "ended", reset=True)
        finally:
            if not connection.halves:
                connection.finish("error", "ended")

    # --- names

    def _given(self, name: str) -> bytes | None:
        """The address that is reserved for a name."""
        found = self._by_name.get(name)
        if found is None and len(self._by_name) < NAMES:
            found = pool(len(self._by_name))
            self._by_name[name] = found
            self._by_address[found] = name
        return found

    def answer(self, data: bytes) -> bytes:
        """What DNS says to a query; empty for none."""
        question = wire.dns_question(data)
        if isinstance(question, bytes):
            return question
        if not question.internet:
            return wire.dns_answer(question, wire.NOTIMP)
        text = b".".join(question.labels)
        if question.kind == wire.PTR and text.lower().endswith(b".in-addr.arpa"):
            return self._pointer(question, text)
        try:
            # A dot within a label would become another name.
            if any(b"." in label for label in question.labels):
                raise names.BadNameError("a dot in a label")
            target = names.target(text)
        except names.BadNameError:
            self._note("bad-name", text.decode("latin-1"), None)
            return wire.dns_answer(question, wire.NXDOMAIN)
        if target.name == "localhost":
            return wire.dns_answer(question, wire.NOERROR, (wire.A, LOOPBACK[0]) if question.kind in (wire.A, wire.ANY) else None)
        decision = self.rules.known(target)
        if not decision.allowed or not target.name:
            self._note(decision.reason or "literal", str(target), decision.rule)
            return wire.dns_answer(question, wire.NXDOMAIN)
        address = self._given(target.name)
        if address is None:
            self._note("limit", target.name, decision.rule)
            return wire.dns_answer(question, wire.SERVFAIL)
        # No AAAA, as the address is an IPv4 one; no HTTPS or SVCB, which would offer QUIC and ECH.
        return wire.dns_answer(question, wire.NOERROR, (wire.A, address) if question.kind in (wire.A, wire.ANY) else None)

    def _meant(self, target: names.Target) -> names.Target:
        """The name that an address stands for: some clients look names up themselves, and ask for what they find."""
        name = self._by_address.get(target.address)
        return names.Target(name=name) if name else target

    def _pointer(self, question: wire.Question, text: bytes) -> bytes:
        with contextlib.suppress(names.BadNameError):
            address = names.target(b".".join(reversed(text.split(b".")[:-2]))).address
            name = "localhost" if address == LOOPBACK[0] else self._by_address.get(address)
            if name:
                return wire.dns_answer(question, wire.NOERROR, (wire.PTR, wire.dns_name(name)))
        return wire.dns_answer(question, wire.NXDOMAIN)

    def _note(self, reason: str, name: str, rule: Rule | None) -> None:
        if not self.log.lately("dns", name, reason):
            line = rule.line if rule else None
            self.log.write(
                verdict="deny", via="dns", name=name, port=0, address=None, rule=str(rule) if rule else None, line=line, up=0, down=0, ms=0, reason=reason
            )

    async def _datagrams(self, sock: socket.socket) -> None:
        while True:
            for _ in range(64):
                try:
                    data, peer = sock.recvfrom(4096)
                except BlockingIOError:
                    await self.loop.readable(sock)
                    break
                except OSError:
                    await self.loop.sleep(0.1)
                    break
                reply = self.answer(data)
                if reply:
                    with contextlib.suppress(OSError):
                        sock.sendto(reply, peer)
            else:
                await self.loop.sleep(0)

    async def _asked_by_tcp(self, connection: Connection) -> None:
        client, data = connection.client, b""
        until = time.monotonic() + HANDSHAKE
        while time.monotonic() < until:
            while len(data) >= 2 and len(data) >= 2 + int.from_bytes(data[:2], "big"):
                end = 2 + int.from_bytes(data[:2], "big")
                reply = self.answer(data[2:end])
                data = data[end:]
                if not reply:
                    return connection.finish("allow")
                await client.send(len(reply).to_bytes(2, "big") + reply, HANDSHAKE)
                await self.loop.sleep(0)
            more = await client.more(HANDSHAKE)
            if not more:
                break
            data += more
        return connection.finish("allow")

    # --- reaching

    async def _reach(self, connection: Connection, target: names.Target, port: int) -> Stream:
        """A connection to a host, after every check that can be made before it. Raises RefusedError."""
        connection.name, connection.port = str(target), port
        decision = self.rules.decide(target, port)
        connection.rule = decision.rule
        if not decision.allowed or decision.rule is None:
            raise RefusedError(decision.reason)
        elsewhere = self._connect_to.get((str(target), port))
        if elsewhere:
            connection.server = await self._connected(connection, [elsewhere])
        elif self.upstream and self.upstream.serves(target) and decision.rule not in self.rules.loopback.values():
            if target.address and self.rules.judge(decision.rule, target.address):
                raise RefusedError(self.rules.judge(decision.rule, target.address))
            connection.server = await self._through_upstream(connection, target, port)
        else:
            connection.server = await self._connected(connection, await self._addresses(decision.rule, target, port))
        return connection.server

    async def _addresses(self, rule: Rule, target: names.Target, port: int) -> list[tuple[str, int]]:
        """Where a host is: asked once, and each address judged. Raises RefusedError."""
        found = [target.address] if target.address else await self._resolved(target.name)
        if rule in self.rules.loopback.values():
            found = list(LOOPBACK)
        for address in found:
            reason = self.rules.judge(rule, address)
            if reason:
                raise RefusedError(reason)
        return [(names.shown(names.plain(address)), port) for address in found[:_ADDRESSES]]

    async def _resolved(self, name: str) -> list[bytes]:
        if name == "localhost":
            return list(LOOPBACK)

        def look() -> list[bytes]:
            # Bytes: a text would be mapped to other letters on its way (IDNA).
            found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(socket.inet_pton(family, str(place[0]).partition("%")[0]) for family, _, _, _, place in found))

        try:
            found: list[bytes] = await self.loop.in_thread(look)
        except (OSError, UnicodeError):
            raise RefusedError("unresolved") from None
        if not found:
            raise RefusedError("unresolved")
        return found

    async def _connected(self, connection: Connection, places: list[tuple[str, int]]) -> Stream:
        """The first of several addresses that answers, each begun a little after the one before."""
        tried: list[tuple[socket.socket, str]] = []
        until = time.monotonic() + HANDSHAKE
        waiting = list(places)
        try:
            while (waiting or tried) and time.monotonic() < until:
                if waiting:
                    address, port = waiting.pop(0)
                    try:
                        sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
                    except OSError:  # no IPv6 here
                        continue
                    self.loop.watch(sock)
                    failed = sock.connect_ex((address, port))
                    if failed in (0, errno.EINPROGRESS):
                        tried.append((sock, address))
                    else:
                        sock.close()
                        continue
                await self.loop.any_writable([sock for sock, _ in tried], _STAGGER if waiting else max(0.01, until - time.monotonic()))
                for sock, address in tuple(tried):
                    failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                    if failed:
                        tried.remove((sock, address))
                        sock.close()
                    elif _is_connected(sock):
                        tried.remove((sock, address))
                        connection.address = address
                        return Stream(self.loop, sock)
        finally:
            for sock, _ in tried:
                sock.close()
        raise RefusedError("unreachable")

    async def _through_upstream(self, connection: Connection, target: names.Target, port: int) -> Stream:
        """A tunnel through the host's own proxy, which looks up names itself. Raises RefusedError."""
        proxy = await self._upstream(connection)
        host = f"{target.authority()}:{port}".encode()
        fields = b"".join(name + b": " + value + b"\r\n" for name, value in proxy.headers)
        server = connection.server
        if server is None:
            raise RefusedError("unreachable")
        await server.send(b"CONNECT " + host + b" HTTP/1.1\r\nHost: " + host + b"\r\n" + fields + b"\r\n", HANDSHAKE)
        data = b""
        while True:
            more = await server.more(HANDSHAKE)
            if not more:
                raise RefusedError("unreachable")
            data += more
            try:
                found = wire.http_status(data)
            except wire.BadMessageError:
                raise RefusedError("unreachable") from None
            if found:
                if not 200 <= found[0] < 300:
                    raise RefusedError("unreachable")
                server.keep(found[2])
                return server

    async def _upstream(self, connection: Connection) -> Upstream:
        """A connection to the host's own proxy, as the connection's server."""
        proxy = self.upstream
        if proxy is None:
            raise RefusedError("unreachable")
        found = [proxy.target.address] if proxy.target.address else await self._resolved(proxy.target.name)
        connection.server = await self._connected(connection, [(names.shown(address), proxy.port) for address in found])
        return proxy

    # --- TLS

    def _looked_at(self, rule: Rule | None, port: int) -> bool:
        """Whether what is said must be TLS, to the name that was judged."""
        return port == TLS_PORT and rule is not None and rule.tls and rule not in self.rules.loopback.values()

    async def _checked(self, connection: Connection, target: names.Target) -> None:
        """On 443 the server name of the ClientHello must be the name that was judged. Raises RefusedError."""
        rule = connection.rule
        if rule is None or not self._looked_at(rule, connection.port):
            return
        hello, said = wire.ClientHello(), bytearray()
        until = time.monotonic() + HANDSHAKE
        found = None
        while found is None:
            data = await connection.client.more(until - time.monotonic())
            if not data:
                if said:
                    raise RefusedError("not-tls")
                connection.finish("allow")  # somebody looked whether the port is open
                raise EOFError
            said += data
            try:
                found = hello.feed(data)
            except wire.BadMessageError:
                raise RefusedError("not-tls") from None
        reason = _unfit(found, target, rule)
        if reason:
            with contextlib.suppress(OSError):
                await connection.client.send(b"\x15\x03\x01\0\x02\x02\x70", 1.0)  # alert: fatal, unrecognized_name
            raise RefusedError(reason)
        connection.client.keep(bytes(said))

    # --- relaying

    def _relay(self, connection: Connection) -> None:
        """Both directions at once, as a server may speak first; each ends on its own."""
        client, server = connection.client, connection.server
        if server is None:
            return
        connection.halves = 2
        connection.last = time.monotonic()
        for source, sink, counted in ((client, server, connection.sent), (server, client, connection.received)):
            connection.tasks.add(self.loop.spawn(self._half(connection, partial(pump, source, sink, counted))))

    async def _half(self, connection: Connection, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (*_PROBLEMS, wire.BadMessageError):
            connection.aborted = True
        except Exception as failed:  # noqa: BLE001  the others go on
            _bug(failed)
            connection.aborted = True
        connection.halves -= 1
        if connection.over:
            return
        if connection.aborted:
            self._abort(connection)
        elif not connection.halves:
            connection.finish("allow")

    def _abort(self, connection: Connection, reason: str = "", *, reset: bool = True) -> None:
        """End both directions; the one that calls it has given up already."""
        connection.finish("allow", reason, reset=reset)

    # --- ways in

    async def _directly(self, connection: Connection) -> None:
        """Somebody connected to an address that stands for a name."""
        place = connection.client.sock.getsockname()
        address, port = names.plain(socket.inet_pton(connection.client.sock.family, place[0])), place[1]
        target = self._meant(names.Target(address=address))
        await self._reach(connection, target, port)
        await self._checked(connection, target)
        self._relay(connection)

    async def _proxied(self, connection: Connection) -> None:
        """A client of the proxy: SOCKS5 begins with 5, HTTP with a letter."""
        data = await connection.client.more(HANDSHAKE)
        if not data:
            connection.finish("allow")
        elif data[0] == wire.SOCKS:
            connection.via = "socks"
            connection.client.keep(data)
            await self._socks(connection)
        else:
            connection.client.keep(data)
            await self._http(connection)

    async def _socks(self, connection: Connection) -> None:
        client = connection.client
        method, rest = await self._gather(connection, wire.socks_greeting)
        client.keep(rest)
        await client.send(bytes((wire.SOCKS, method)), HANDSHAKE)
        if method == 255:
            raise RefusedError("bad-request")
        if method:
            client.keep(await self._gather(connection, wire.socks_login))
            await client.send(b"\x01\0", HANDSHAKE)
        code, host, port, rest = await self._gather(connection, wire.socks_request)
        client.keep(rest)
        try:
            if code != wire.GRANTED:
                raise RefusedError("method" if code == wire.BAD_COMMAND else "bad-request")
            try:
                connection.name, connection.port = host.decode("latin-1"), port
                target = self._meant(names.target(host))
                if not port:
                    raise names.BadNameError("no port")
            except names.BadNameError:
                code = wire.NOT_ALLOWED
                raise RefusedError("bad-name") from None
            await self._reach(connection, target, port)
        except RefusedError as refused:
            code = code or _REASONS_OF_SOCKS.get(str(refused), wire.NOT_ALLOWED)
            with contextlib.suppress(OSError):
                await client.send(wire.socks_reply(code), 1.0)
            raise
        await client.send(wire.socks_reply(wire.GRANTED), HANDSHAKE)
        await self._checked(connection, target)
        self._relay(connection)

    async def _gather(self, connection: Connection, reader: Callable[[bytes], Found | None]) -> Found:
        """What a reader makes of what comes, as soon as there is enough of it."""
        data, until = b"", time.monotonic() + HANDSHAKE
        while True:
            more = await connection.client.more(until - time.monotonic())
            if not more:
                raise RefusedError("bad-request") if data else EOFError
            data += more
            found = reader(data)
            if found is not None:
                return found

    async def _http(self, connection: Connection) -> None:
        client, target = connection.client, None
        try:
            request = await self._gather(connection, wire.http_request)
            connection.via = "connect" if request.method == b"CONNECT" else "http"
            connection.name = request.authority.decode("latin-1")
            target, port = names.authority(request.authority, port=0 if request.method == b"CONNECT" else 80)
            target = self._meant(target)
            client.keep(request.rest)
            if request.method != b"CONNECT":
                await self._one_request(connection, request, target, port)
                return
            await self._reach(connection, target, port)
        except wire.BadMessageError as bad:
            await self._answer(connection, bad.status, str(bad))
            raise RefusedError("method" if bad.status.startswith("405") else "bad-request") from None
        except names.BadNameError as bad:
            await self._answer(connection, "400 Bad Request", f"not host:port: {bad}")
            raise RefusedError("bad-name") from None
        except TimeoutError:
            await self._answer(connection, "408 Request Timeout", "nothing came for too long")
            raise
        except RefusedError as refused:
            if str(refused) in ("unresolved", "unreachable"):
                await self._answer(connection, "502 Bad Gateway", f"{connection.name}: {because(str(refused))}")
            elif target is not None:
                await self._answer(
                    connection, "403 Forbidden", advice(self.shell, str(refused), target, connection.port, connection.rule, listed=not self.rules.anything)
                )
            raise
        await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n", HANDSHAKE)
        await self._checked(connection, target)
        self._relay(connection)

    async def _answer(self, connection: Connection, status: str, body: str) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            await connection.client.send(_http_answer(status, body), 1.0)
            connection.client.finish()
            # What was sent is lost where something unread is left when it is closed.
            until = time.monotonic() + 0.5
            for _ in range(16):
                if not await connection.client.more(max(0.0, until - time.monotonic())):
                    break

    # --- plain HTTP

    async def _one_request(self, connection: Connection, request: wire.Request, target: names.Target, port: int) -> None:
        """Pass on one request and its answer, then close: the next may be for another host."""
        host = target.authority() + (f":{port}" if port != 80 else "")
        absolute = False
        extra: tuple[tuple[bytes, bytes], ...] = ()
        decision = self.rules.decide(target, port)
        if decision.allowed and self._looked_at(decision.rule, port):
            connection.name, connection.port, connection.rule = str(target), port, decision.rule
            raise RefusedError("not-tls")
        if self._by_upstream(request, decision, target) and (str(target), port) not in self._connect_to:
            connection.name, connection.port, connection.rule = str(target), port, decision.rule
            if target.address and decision.rule and self.rules.judge(decision.rule, target.address):
                raise RefusedError(self.rules.judge(decision.rule, target.address))
            extra, absolute = (await self._upstream(connection)).headers, True
        else:
            await self._reach(connection, target, port)
        server = connection.server
        if server is None:
            raise RefusedError("unreachable")
        head = request.head(host.encode(), absolute=absolute, extra=extra)
        await server.send(head, HANDSHAKE)
        connection.sent(len(head))
        connection.halves = 2
        connection.tasks.add(self.loop.spawn(self._half(connection, partial(self._body, connection, request, server))))
        connection.tasks.add(self.loop.spawn(self._half(connection, partial(self._response, connection, request, server))))

    def _by_upstream(self, request: wire.Request, decision: Decision, target: names.Target) -> bool:
        """Whether the host's proxy gets the request itself. After an upgrade it would be told of other hosts: then by a tunnel."""
        through = self.upstream is not None and self.upstream.serves(target) and decision.rule not in self.rules.loopback.values()
        return decision.allowed and through and not request.upgrade

    async def _body(self, connection: Connection, request: wire.Request, server: Stream) -> None:
        """The request's body, and nothing that follows it."""
        client, left = connection.client, request.length
        chunks = wire.Chunks() if left == wire.CHUNKED else None
        while (not chunks.done) if chunks else left:
            data = await client.more(IDLE)
            if not data:
                raise EOFError
            count = chunks.take(data) if chunks else min(left, len(data))
            left -= 0 if chunks else count
            await server.send(data[:count], IDLE)
            connection.sent(count)
        # Somebody who is gone must not keep the connection; what more is said is dropped.
        if not request.upgrade:
            await _drain(client)

    async def _response(self, connection: Connection, request: wire.Request, server: Stream) -> None:
        """The answer, with the end of the connection said in it; after 101 both may say what they like."""
        client, data, status = connection.client, b"", 0
        searched = 0
        while status < 200:
            more = await server.more(IDLE)
            if not more:
                raise EOFError
            data += more
            # Looked at as a whole only where its end may be: it may come byte by byte.
            ended = b"\r\n\r\n" in data[max(0, searched - 3) :] or len(data) > wire.HEAD_MAX
            searched = len(data)
            found = wire.http_status(data) if ended else None
            while found:
                status, head, data = found
                await client.send(head, IDLE)
                connection.received(len(head))
                if status == 101 and request.upgrade:
                    server.keep(data)
                    self._relay(connection)
                    connection.halves += 1  # this one, which ends now
                    return
                searched = 0
                found = wire.http_status(data) if status < 200 else None
        if request.upgrade:
            # The server has declined; nobody has watched the client until now, as it might have spoken.
            connection.halves += 1
            connection.tasks.add(self.loop.spawn(self._half(connection, partial(_drain, client))))
        server.keep(data)
        await pump(server, client, connection.received)
        self._abort(connection, reset=False)


async def _drain(client: Stream) -> None:
    """What a client says now is dropped, until it is gone."""
    while await client.more(IDLE):
        await client.loop.sleep(0)


def _bug(failed: Exception) -> None:
    sys.stderr.write(f"wavegen: warning: a connection ended by a fault of the launcher: {type(failed).__name__}: {failed} (please report it)\n")


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:
        return False
    return True


def _unfit(said: tuple[bytes, ...], target: names.Target, rule: Rule) -> str:
    """Why a server name does not fit the host that was judged; empty where it does."""
    if target.address:
        return ""  # the list is about the address, whoever is there
    if not said:
        return "" if rule.allow_no_sni else "sni-missing"
    try:
        return "" if names.target(said[0]).name == target.name else "sni-mismatch"
    except names.BadNameError:
        return "sni-mismatch"


def _http_answer(status: str, body: str) -> bytes:
    text = f"wavegen: {body}\n".encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text
