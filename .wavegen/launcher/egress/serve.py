"""The way out of a shell that filters its network: answers on sockets of the shell's own network namespace, and
connects from the host's.

Four ways in, one decision (rules.py): DNS, which gives an allowed name an address that is reserved for it;
connections to such an address; an HTTP proxy; SOCKS5.

Standard library only; Python 3.9 and newer.

Longer than 400 lines: one decision function, read from top to bottom, and started with every filtered shell; each further file is one more to be read.
"""

from __future__ import annotations

import _socket as socket
import errno
import sys
import time

from . import names
from . import protocols as wire
from .connect import HANDSHAKE, Reach, RefusedError, Upstream
from .dns import Names
from .log import Log
from .loop import Loop
from .messages import explain_refusal, reason_in_words
from .rules import TLS_PORT, Rule, Rules
from .streams import Ignored, Stream, limit_receive_buffer, pump_stream, tune_local_listener

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from .loop import Task

if TYPE_CHECKING:
    from functools import partial
else:
    from _functools import partial  # its namesake imports much besides

IDLE = 3600.0
"""Seconds without a byte in either direction, after which a connection is ended: a model may think for long."""
HALF_CLOSED = 600.0
"""The same once one direction has ended."""
CONNECTIONS = 512
_WIDE = 16
"""Connections whose servers may send as far ahead as the kernel lets them: for many a small part each is as fast."""
_STALE, _QUIET = 5.0, 60.0
"""Seconds of silence after which a connection makes room, where there is none: with one end gone, and with both there."""
_ACCEPTED = 16
"""Connections that one listener may bring before others have their turn."""
_REASONS_OF_SOCKS = {"unresolved": wire.UNREACHABLE, "unreachable": wire.UNREACHABLE, "bad-name": wire.NOT_ALLOWED}
_PROBLEMS = (OSError, EOFError)
_UNREACHED = ("unresolved", "unreachable")
"""Reasons that are no decision: the host is allowed and did not answer."""


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
        self._written = False

    def count_sent_bytes(self, count: int) -> None:
        """Bytes from the client to the server."""
        self.up += count
        self.last = time.monotonic()

    def count_received_bytes(self, count: int) -> None:
        """Bytes from the server to the client."""
        self.down += count
        self.last = time.monotonic()

    def write_refusal(self, reason: str) -> None:
        """Write down a refusal before it is answered: what the client asks next is then written below it."""
        self._write_decision_once("error" if reason in _UNREACHED else "deny", reason)

    def _write_decision_once(self, verdict: str, reason: str) -> None:
        if not self._written:
            self._written = True
            self.egress.write_decision(self, verdict, reason)

    def finish_connection(self, verdict: str, reason: str = "", *, reset: bool = False) -> None:
        """The end: written down, closed. Once."""
        if self.over:
            return
        self.over = True
        for task in self.tasks:
            self.egress.loop.cancel_task(task)
        if reset and self.server:
            # What has not left yet never will.
            self.up, self.down = max(0, self.up - self.server.count_unsent_bytes()), max(0, self.down - self.client.count_unsent_bytes())
        for stream in (self.client, self.server):
            if stream:
                stream.reset_connection() if reset else stream.close()
        self.egress.forget_connection(self)
        self._write_decision_once(verdict, reason)


class Egress:
    """Serves one shell."""

    def __init__(
        self,
        rules: Rules,
        log: Log,
        *,
        shell: str,
        connect_to: dict[tuple[str, int], tuple[str, int]],
        upstream: Upstream | None = None,
        admit: Callable[[Any, Any], bool] | None = None,
    ) -> None:
        self.rules, self.log, self.shell = rules, log, shell
        self.loop = Loop()
        self.names = Names(rules, log)
        self.reach = Reach(self.loop, rules, connect_to, upstream)
        self._connections: set[Connection] = set()
        self._admit = admit
        """Whether a client, by its address and the one that it connected to, is answered at all."""

    # --- running

    def serve_listeners(self, listeners: Iterable[tuple[str, socket.socket]]) -> None:
        """Answer on sockets, each with what it is for, until the loop is stopped."""
        for purpose, sock in listeners:
            self.loop.register_socket(sock)
            self.loop.prioritize_socket(sock)
            if purpose == "dns-udp":
                self.loop.spawn_task(self._serve_dns_datagrams(sock))
            else:
                tune_local_listener(sock)
                self.loop.spawn_task(self._accept_clients(purpose, sock))
        self.loop.spawn_task(self._end_idle_connections())
        self.loop.run_until_stopped()
        for connection in tuple(self._connections):
            connection.finish_connection("allow" if connection.halves else "error", "ended")
        self.loop.run_deferred_work()

    def forget_connection(self, connection: Connection) -> None:
        """A connection has ended."""
        self._connections.discard(connection)

    def write_decision(self, connection: Connection, verdict: str, reason: str) -> None:
        """A line in the log, when nobody waits; in the order of the calls."""
        if not connection.name and reason in ("", "ended", "timeout"):
            return  # nobody was asked for
        if verdict != "allow" and self.log.was_logged_recently(connection.via, connection.name, connection.port, reason):
            return
        # Whoever connects next must not wait for this line.
        line = partial(self.log.write_log_entry, verdict, connection.via, connection.name, reason, rule=connection.rule, port=connection.port)
        moved, seconds = (connection.up, connection.down), time.monotonic() - connection.started
        self.loop.run_when_idle(partial(line, address=connection.address, moved=moved, seconds=seconds))

    async def _end_idle_connections(self) -> None:
        while True:
            await self.loop.sleep_seconds(5)
            now = time.monotonic()
            for connection in tuple(self._connections):
                if connection.halves and now - connection.last > (IDLE if connection.halves > 1 else HALF_CLOSED):
                    connection.finish_connection("allow", "timeout", reset=True)

    async def _accept_clients(self, purpose: str, listener: socket.socket) -> None:
        answer = {"proxy": self._serve_proxy_client, "direct": self._serve_direct_client, "dns-tcp": self._serve_dns_over_tcp}[purpose]
        turns = 0
        while True:
            turns += 1
            if turns % _ACCEPTED == 0:
                await self.loop.sleep_seconds(0)
            try:
                handle, peer = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001  accept() is of the slow module
                sock = socket.socket(listener.family, listener.type, listener.proto, handle)
            except BlockingIOError:
                await self.loop.wait_readable(listener)
                continue
            except OSError as failed:
                # Too few descriptors, most likely; whatever it is, others have their turn.
                await self.loop.sleep_seconds(0.1 if failed.errno != errno.ECONNABORTED else 0)
                continue
            if self._admit and not self._admit(sock.getsockname(), peer):
                sock.close()
                continue
            try:
                self.loop.register_socket(sock)
            except OSError:  # more than max_user_watches (epoll(7))
                sock.close()
                continue
            client = Stream(self.loop, sock)
            connection = Connection(self, client, "direct" if purpose == "direct" else "dns" if purpose == "dns-tcp" else "connect")
            if len(self._connections) >= CONNECTIONS and not self._evict_idle_connection():
                if purpose == "proxy":
                    with Ignored(OSError):
                        sock.send(_http_answer("429 Too Many Requests", "too many connections at once"))
                connection.finish_connection("deny", "limit", reset=purpose != "proxy")
                continue
            self._connections.add(connection)
            self.loop.spawn_task(self._handle_connection(connection, answer))

    def _evict_idle_connection(self) -> bool:
        """End the connection that has been idle longest, if it has been for long: sooner where one end is gone."""
        now = time.monotonic()
        waiting = [one for one in self._connections if one.halves and now - one.last > (_STALE if one.halves == 1 else _QUIET)]
        if waiting:
            min(waiting, key=lambda one: one.last).finish_connection("allow", "timeout", reset=True)
        return bool(waiting)

    async def _handle_connection(self, connection: Connection, work: Callable[[Connection], Coroutine[Any, Any, None]]) -> None:
        """Whatever happens to one connection ends that alone."""
        try:
            await work(connection)
        except RefusedError as refused:
            connection.write_refusal(str(refused))
            connection.finish_connection("deny", str(refused), reset=connection.via == "direct")
        except TimeoutError:
            connection.finish_connection("error", "timeout", reset=True)
        except _PROBLEMS:
            connection.finish_connection("error", "ended", reset=True)
        except Exception as failed:  # noqa: BLE001  the others go on
            _report_launcher_fault(failed)
            connection.finish_connection("error", "ended", reset=True)
        finally:
            if not connection.halves:
                connection.finish_connection("error", "ended")

    async def _serve_dns_datagrams(self, sock: socket.socket) -> None:
        while True:
            for _ in range(64):
                try:
                    data, peer = sock.recvfrom(4096)
                except BlockingIOError:
                    await self.loop.wait_readable(sock)
                    break
                except OSError:
                    await self.loop.sleep_seconds(0.1)
                    break
                reply = self.names.answer_dns_query(data)
                if reply:
                    with Ignored(OSError):
                        sock.sendto(reply, peer)
            else:
                await self.loop.sleep_seconds(0)

    async def _serve_dns_over_tcp(self, connection: Connection) -> None:
        client, data = connection.client, b""
        until = time.monotonic() + HANDSHAKE
        while time.monotonic() < until:
            while len(data) >= 2 and len(data) >= 2 + int.from_bytes(data[:2], "big"):
                end = 2 + int.from_bytes(data[:2], "big")
                reply = self.names.answer_dns_query(data[2:end])
                data = data[end:]
                if not reply:
                    return connection.finish_connection("allow")
                await client.send_bytes(len(reply).to_bytes(2, "big") + reply, HANDSHAKE)
                await self.loop.sleep_seconds(0)
            more = await client.receive_bytes(HANDSHAKE)
            if not more:
                break
            data += more
        return connection.finish_connection("allow")

    # --- reaching

    def _require_allowing_rule(self, connection: Connection, target: names.Target, port: int) -> Rule:
        """The rule that lets a host through. Raises RefusedError."""
        connection.name, connection.port = str(target), port
        decision = self.rules.decide_connection(target, port)
        connection.rule = decision.rule
        if not decision.allowed or decision.rule is None:
            raise RefusedError(decision.reason)
        return decision.rule

    async def _connect_to_server(self, connection: Connection, target: names.Target, port: int) -> Stream:
        """The server, after every check that can be made before it is asked. Raises RefusedError."""
        rule = self._require_allowing_rule(connection, target, port)
        server, address = await self.reach.connect_to_host(rule, target, port)
        connection.address = address or None
        return self._attach_server(connection, server)

    def _attach_server(self, connection: Connection, server: Stream) -> Stream:
        connection.server = server
        if len(self._connections) > _WIDE:
            limit_receive_buffer(server.sock)
        return server

    # --- TLS

    def _requires_tls_check(self, rule: Rule, port: int) -> bool:
        """Whether what is said must be TLS, to the name that was judged."""
        return port == TLS_PORT and rule.tls and not self.rules.is_loopback_rule(rule)

    async def _check_server_name(self, connection: Connection, target: names.Target) -> None:
        """On 443 the server name of the ClientHello must be the name that was judged. Raises RefusedError."""
        rule = connection.rule
        if rule is None or not self._requires_tls_check(rule, connection.port):
            return
        hello, said = wire.ClientHello(), bytearray()
        until = time.monotonic() + HANDSHAKE
        found = None
        while found is None:
            data = await connection.client.receive_bytes(until - time.monotonic())
            if not data:
                if said:
                    raise RefusedError("not-tls")
                connection.finish_connection("allow")  # somebody looked whether the port is open
                raise EOFError
            said += data
            try:
                found = hello.feed_bytes(data)
            except wire.BadMessageError:
                raise RefusedError("not-tls") from None
        reason = _server_name_refusal(found, target, rule)
        if reason:
            with Ignored(OSError):
                await connection.client.send_bytes(b"\x15\x03\x01\0\x02\x02\x70", 1.0)  # alert: fatal, unrecognized_name
            raise RefusedError(reason)
        connection.client.push_back_bytes(bytes(said))

    # --- relaying

    def _relay_both_ways(self, connection: Connection) -> None:
        """Both directions at once, as a server may speak first; each ends on its own."""
        client, server = connection.client, connection.server
        if server is None:
            return
        connection.halves = 2
        connection.last = time.monotonic()
        for source, sink, counted in ((client, server, connection.count_sent_bytes), (server, client, connection.count_received_bytes)):
            if not connection.over:
                connection.tasks.add(self.loop.spawn_task(self._relay_one_way(connection, partial(pump_stream, source, sink, counted))))

    async def _relay_one_way(self, connection: Connection, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (*_PROBLEMS, wire.BadMessageError):
            connection.finish_connection("allow", reset=True)
        except Exception as failed:  # noqa: BLE001  the others go on
            _report_launcher_fault(failed)
            connection.finish_connection("allow", reset=True)
        connection.halves -= 1
        if not connection.halves:
            connection.finish_connection("allow")

    # --- ways in

    async def _serve_direct_client(self, connection: Connection) -> None:
        """Somebody connected to an address that stands for a name."""
        place = connection.client.sock.getsockname()
        address, port = names.unmap_ipv4_address(socket.inet_pton(connection.client.sock.family, place[0])), place[1]
        target = self.names.name_for_reserved_address(names.Target(address=address))
        await self._connect_to_server(connection, target, port)
        await self._check_server_name(connection, target)
        self._relay_both_ways(connection)

    async def _serve_proxy_client(self, connection: Connection) -> None:
        """A client of the proxy: SOCKS5 begins with 5, HTTP with a letter."""
        data = await connection.client.receive_bytes(HANDSHAKE)
        if not data:
            connection.finish_connection("allow")
        elif data[0] == wire.SOCKS:
            connection.via = "socks"
            connection.client.push_back_bytes(data)
            await self._serve_socks_client(connection)
        else:
            connection.client.push_back_bytes(data)
            await self._serve_http_client(connection)

    async def _serve_socks_client(self, connection: Connection) -> None:
        client = connection.client
        method, rest = await connection.client.receive_message(wire.socks_greeting, HANDSHAKE)
        client.push_back_bytes(rest)
        await client.send_bytes(bytes((wire.SOCKS, method)), HANDSHAKE)
        if method == 255:
            raise RefusedError("bad-request")
        if method:
            client.push_back_bytes(await connection.client.receive_message(wire.socks_login, HANDSHAKE))
            await client.send_bytes(b"\x01\0", HANDSHAKE)
        code, host, port, rest = await connection.client.receive_message(wire.socks_request, HANDSHAKE)
        client.push_back_bytes(rest)
        try:
            if code != wire.GRANTED:
                raise RefusedError("method" if code == wire.BAD_COMMAND else "bad-request")
            try:
                connection.name, connection.port = host.decode("latin-1"), port
                target = self.names.name_for_reserved_address(names.parse_target(host))
                if not port:
                    raise names.BadNameError("no port")
            except names.BadNameError:
                code = wire.NOT_ALLOWED
                raise RefusedError("bad-name") from None
            await self._connect_to_server(connection, target, port)
        except RefusedError as refused:
            connection.write_refusal(str(refused))
            code = code or _REASONS_OF_SOCKS.get(str(refused), wire.NOT_ALLOWED)
            with Ignored(OSError):
                await client.send_bytes(wire.socks_reply(code), 1.0)
            raise
        await client.send_bytes(wire.socks_reply(wire.GRANTED), HANDSHAKE)
        await self._check_server_name(connection, target)
        self._relay_both_ways(connection)

    async def _serve_http_client(self, connection: Connection) -> None:
        client, target = connection.client, None
        try:
            request = await connection.client.receive_message(wire.http_request, HANDSHAKE)
            connection.via = "connect" if request.method == b"CONNECT" else "http"
            connection.name = request.authority.decode("latin-1")
            target, port = names.parse_authority(request.authority, port=0 if request.method == b"CONNECT" else 80)
            target = self.names.name_for_reserved_address(target)
            client.push_back_bytes(request.rest)
            if request.method != b"CONNECT":
                await self._relay_plain_request(connection, request, target, port)
                return
            await self._connect_to_server(connection, target, port)
        except wire.BadMessageError as bad:
            reason = "method" if bad.status.startswith("405") else "bad-request"
            connection.write_refusal(reason)
            await self._send_http_error(connection, bad.status, str(bad))
            raise RefusedError(reason) from None
        except names.BadNameError as bad:
            connection.write_refusal("bad-name")
            await self._send_http_error(connection, "400 Bad Request", f"not host:port: {bad}")
            raise RefusedError("bad-name") from None
        except TimeoutError:
            await self._send_http_error(connection, "408 Request Timeout", "nothing came for too long")
            raise
        except RefusedError as refused:
            connection.write_refusal(str(refused))
            if str(refused) in _UNREACHED:
                await self._send_http_error(connection, "502 Bad Gateway", f"{connection.name}: {reason_in_words(str(refused))}")
            elif target is not None:
                await self._send_http_error(
                    connection,
                    "403 Forbidden",
                    explain_refusal(self.shell, str(refused), target, connection.port, connection.rule, listed=not self.rules.anything),
                )
            raise
        await client.send_bytes(b"HTTP/1.1 200 Connection established\r\n\r\n", HANDSHAKE)
        await self._check_server_name(connection, target)
        self._relay_both_ways(connection)

    async def _send_http_error(self, connection: Connection, status: str, body: str) -> None:
        with Ignored(OSError, TimeoutError):
            await connection.client.send_bytes(_http_answer(status, body), 1.0)
            connection.client.shut_down_writing()
            # What was sent is lost where something unread is left when it is closed.
            until = time.monotonic() + 0.5
            for _ in range(16):
                if not await connection.client.receive_bytes(max(0.0, until - time.monotonic())):
                    break

    # --- plain HTTP

    async def _relay_plain_request(self, connection: Connection, request: wire.Request, target: names.Target, port: int) -> None:
        """Pass on one request and its answer, then close: the next may be for another host."""
        host = target.authority_text() + (f":{port}" if port != 80 else "")
        rule = self._require_allowing_rule(connection, target, port)
        if self._requires_tls_check(rule, port):
            raise RefusedError("not-tls")
        # After an upgrade the host's proxy could be told of other hosts: then by a tunnel.
        absolute = self.reach.goes_through_upstream(rule, target, port) and not request.upgrade
        server = (
            self._attach_server(connection, await self.reach.connect_to_upstream(rule, target, port))
            if absolute
            else await self._connect_to_server(connection, target, port)
        )
        head = request.build_forwarded_head(host.encode(), absolute=absolute, extra=self.reach.upstream.headers if absolute and self.reach.upstream else ())
        await server.send_bytes(head, HANDSHAKE, connection.count_sent_bytes)
        connection.halves = 2
        # Before an upgrade there is no body, and what the client says after it is not read yet.
        works = (
            partial(self._relay_response, connection, request, server),
            *(() if request.upgrade else (partial(self._relay_request_body, connection, request, server),)),
        )
        connection.tasks.update(self.loop.spawn_task(self._relay_one_way(connection, work)) for work in works)

    async def _relay_request_body(self, connection: Connection, request: wire.Request, server: Stream) -> None:
        """The request's body, and nothing that follows it."""
        client, left = connection.client, request.length
        chunks = wire.Chunks() if left == wire.CHUNKED else None
        while (not chunks.done) if chunks else left:
            data = await client.receive_bytes(IDLE)
            if not data:
                raise EOFError
            count = chunks.count_body_bytes(data) if chunks else min(left, len(data))
            left -= 0 if chunks else count
            await server.send_bytes(data[:count], IDLE, connection.count_sent_bytes)
        # Somebody who is gone must not keep the connection; what more is said is dropped.
        await _discard_client_input(client)

    async def _relay_response(self, connection: Connection, request: wire.Request, server: Stream) -> None:
        """The answer, with the end of the connection said in it; after 101 both may say what they like."""
        client, data, status = connection.client, b"", 0
        searched = 0
        while status < 200:
            more = await server.receive_bytes(IDLE)
            if not more:
                raise EOFError
            data += more
            # Looked at as a whole only where its end may be: it may come byte by byte.
            ended = b"\r\n\r\n" in data[max(0, searched - 3) :] or len(data) > wire.HEAD_MAX
            searched = len(data)
            found = wire.http_status(data) if ended else None
            while found:
                status, head, data = found
                await client.send_bytes(head, IDLE, connection.count_received_bytes)
                if status == 101 and request.upgrade:
                    server.push_back_bytes(data)
                    self._relay_both_ways(connection)
                    connection.halves += 1  # this one, which ends now
                    return
                searched = 0
                found = wire.http_status(data) if status < 200 else None
        if request.upgrade:
            # The server has declined; nobody has watched the client until now, as it might have spoken.
            connection.tasks.add(self.loop.spawn_task(self._relay_one_way(connection, partial(_discard_client_input, client))))
        server.push_back_bytes(data)
        await pump_stream(server, client, connection.count_received_bytes)
        connection.finish_connection("allow")


async def _discard_client_input(client: Stream) -> None:
    """What a client says now is dropped, until it is gone."""
    while await client.receive_bytes(IDLE):
        await client.loop.sleep_seconds(0)


def _report_launcher_fault(failed: Exception) -> None:
    sys.stderr.write(f"wavegen: warning: a connection ended by a fault of the launcher: {type(failed).__name__}: {failed} (please report it)\n")


def _server_name_refusal(said: tuple[bytes, ...], target: names.Target, rule: Rule) -> str:
    """Why a server name does not fit the host that was judged; empty where it does."""
    if target.address:
        return ""  # the list is about the address, whoever is there
    if not said:
        return "" if rule.allow_no_sni else "sni-missing"
    try:
        return "" if names.parse_target(said[0]).name == target.name else "sni-mismatch"
    except names.BadNameError:
        return "sni-mismatch"


def _http_answer(status: str, body: str) -> bytes:
    text = f"wavegen: {body}\n".encode()
    return f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text)}\r\nConnection: close\r\n\r\n".encode() + text
