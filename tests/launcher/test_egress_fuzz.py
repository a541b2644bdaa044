"""Seeded fuzzing of what clients say: each parser alone, and then a whole filter with sockets, watched from the far side."""

from __future__ import annotations

import _socket
import collections
import contextlib
import errno
import gc
import itertools
import json
import os
import random
import selectors
import socket
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from egress_reference import Entry, Lists, allowed, host_of
from helpers import until

from wavegen.launcher.egress import log as log_of
from wavegen.launcher.egress import names
from wavegen.launcher.egress import protocols as wire
from wavegen.launcher.egress import rules as rules_of
from wavegen.launcher.egress import serve as egress_of

Bad = (wire.BadMessageError, names.BadNameError)

# A test of its own tells of this.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")

CASES = 40_000
"""For each of the five parsers."""
CONVERSATIONS = 6_000


# --- mutations

_SALT = (
    b"\0",
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b".",
    b"..",
    b"@",
    b"%00",
    b":",
    b"[",
    b"]",
    b"\xff\xff",
    b"\0\0\0\xff",
    b"\xc0\x0c",
    b"0x7f",
    b"Host: evil.com\r\n",
)


def mutated(dice: random.Random, data: bytes, others: Sequence[bytes]) -> bytes:
    for _ in range(dice.choice((0, 1, 1, 1, 2, 3))):
        at, to = sorted((dice.randint(0, len(data)), dice.randint(0, len(data))))
        match dice.randrange(8):
            case 0 if data:
                at = dice.randrange(len(data))
                data = data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
            case 1:
                data = data[:at] + dice.randbytes(dice.randint(1, 4)) + data[at:]
            case 2:
                data = data[:at]
            case 3:
                data = data[:at] + data[min(to, at + 8) :]
            case 4:
                data = data[:to] + data[at:to][:200] + data[to:]
            case 5:
                other = dice.choice(others)
                data = data[:at] + other[dice.randint(0, len(other)) :]
            case 6 if data:
                at = dice.randrange(len(data))
                data = data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
            case _:
                data = data[:at] + dice.choice(_SALT) + data[at:]
    return data


def cut(dice: random.Random, data: bytes) -> list[bytes]:
    """In pieces: one, some, or single bytes."""
    if dice.random() < 0.1:
        return [data[at : at + 1] for at in range(len(data))]
    places = [0, *sorted(dice.randint(0, len(data)) for _ in range(dice.randint(0, 4))), len(data)]
    return [data[first:last] for first, last in itertools.pairwise(places) if last > first]


def cases(seed: int, valid: Sequence[bytes]) -> Iterator[tuple[random.Random, bytes]]:
    dice = random.Random(seed)
    for _ in range(CASES):
        yield dice, mutated(dice, dice.choice(valid), valid) if dice.random() < 0.97 else dice.randbytes(dice.randint(0, 80))


def outcome(work: Callable[[], Any]) -> Any:
    """What came of it; a refusal is one outcome, and any other exception is a failure."""
    try:
        return work()
    except Bad as bad:
        return type(bad).__name__


# --- DNS

LISTS = Lists(
    allow=[
        Entry("github.com"),
        Entry("example.org", wildcard=True),
        Entry("ssh.example.net", port=22),
        Entry("internal", wildcard=True, private=True),
        Entry("9.9.9.9"),
        Entry("db"),
        Entry("wide.example.net", port="*"),
    ],
    deny=[Entry("evil.example.org"), Entry("evil.example.org", wildcard=True), Entry("half.example.org", port=80)],
)
HOSTS = (
    *(
        "github.com",
        "GITHUB.com.",
        "a.example.org",
        "a.b.example.org",
        "evil.example.org",
        "x.evil.example.org",
        "half.example.org",
        "example.org",
        "ssh.example.net",
    ),
    *(
        "evil.com",
        "github.com.evil.com",
        "evilgithub.com",
        "metadata.google.internal",
        "build.internal",
        "9.9.9.9",
        "127.0.0.1",
        "localhost",
        "db",
        "wide.example.net",
    ),
)
PORTS = (22, 80, 443)


def filter_of(lists: Lists, connect_to: dict[tuple[str, int], tuple[str, int]]) -> Any:
    made = [[rules_of.Rule(entry.text(), "line 1", "private" if entry.private else "") for entry in some] for some in (lists.allow, lists.deny)]
    rules = rules_of.Rules(anything=False, allow=made[0], deny=made[1])
    return egress_of.Egress(rules, log_of.Log("", "default"), shell="default", connect_to=connect_to)


def closed(egress: Any) -> None:
    egress.loop.close()


def question(name: bytes, kind: int, flags: int = 0x100) -> bytes:
    labels = b"".join(bytes([len(label)]) + label for label in name.rstrip(b".").split(b"."))
    return struct.pack("!6H", 0x1234, flags, 1, 0, 0, 0) + labels + b"\0" + struct.pack("!2H", kind, 1)


def asked(data: bytes) -> bytes | None:
    """The name in a question, as the reference reads it; nothing where a label holds a dot."""
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]])
        at += 1 + data[at]
    return None if any(b"." in label for label in labels) else b".".join(labels)


def test_dns_answers_only_what_the_list_lets_through() -> None:
    egress = filter_of(LISTS, {})
    seen: collections.Counter[str] = collections.Counter()
    given: dict[bytes, str] = {}
    try:
        for _, data in cases(1, [question(host.encode(), kind) for host in HOSTS for kind in (1, 28, 65, 255, 12)]):
            reply = egress.names.answer_dns_query(data)
            if not reply:
                seen["silence"] += 1
                continue
            number, flags, questions, answers, authority, additional = struct.unpack_from("!6H", reply)
            assert (number, flags & 0x8000, authority, additional) == (struct.unpack_from("!H", data)[0], 0x8000, 0, 0)
            assert answers <= questions <= 1
            assert not questions or reply[12:] == data[12 : len(reply)] or answers
            seen[f"code-{flags & 15}"] += 1
            if not answers or reply[-10:-4] != struct.pack("!IH", wire.SECONDS_TO_LIVE, 4):
                continue
            text = asked(data)
            assert text is not None, data
            host = host_of(text)
            assert isinstance(host, str), data
            if host == "localhost":
                assert reply[-4:] == b"\x7f\0\0\1"
                continue
            assert any(allowed(LISTS, host, port) for port in PORTS), (data, host)
            assert given.setdefault(reply[-4:], host) == host
            seen["address"] += 1
    finally:
        closed(egress)
    assert min(seen[what] for what in ("silence", "address", "code-0", "code-1", "code-3", "code-4")) > 100, seen
    assert len(given) > 20


# --- HTTP

HEADS = [
    b"CONNECT github.com:443 HTTP/1.1\r\nHost: github.com:443\r\nUser-Agent: x\r\n\r\n",
    b"GET http://a.example.org/p?q=1 HTTP/1.1\r\nHost: a.example.org\r\nConnection: keep-alive, x-a\r\nX-A: b\r\nAccept: */*\r\n\r\n",
    b"POST http://github.com:80/ HTTP/1.1\r\nHost: github.com\r\nContent-Length: 3\r\n\r\nabc",
    b"POST http://github.com/ HTTP/1.1\r\nHost: github.com\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"GET http://[2620:fe::fe]/ HTTP/1.0\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    b"GET http://evil.com/ HTTP/1.1\r\nHost: evil.com\r\nCookie: a\r\nContent-Length: 0\r\n\r\n",
]


def test_a_head_is_read_alike_however_it_arrives_and_passed_on_without_doubt() -> None:
    read = refused = 0
    for dice, data in cases(2, HEADS):
        whole = outcome(lambda data=data: wire.http_request(data))
        if whole is None:
            assert b"\r\n\r\n" not in data
            continue
        if isinstance(whole, str):
            refused += 1
            continue
        read += 1
        end = data.index(b"\r\n\r\n") + 4
        assert whole.rest == data[end:]
        for cut_at in (dice.randrange(end), end - 1):
            assert wire.http_request(data[:cut_at]) is None
        target = outcome(lambda whole=whole: names.parse_authority(whole.authority, port=80))
        if isinstance(target, str) or whole.method == b"CONNECT":
            continue
        head = whole.build_forwarded_head(b"judged.example")
        lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        assert head.count(b"\r") == head.count(b"\n") == len(lines) + 1
        assert b"\0" not in head
        fields = [line.partition(b":")[0].lower() for line in lines[1:]]
        assert lines[0].startswith(whole.method + b" /")
        assert lines[1] == b"Host: judged.example"
        assert fields.count(b"host") == fields.count(b"connection") == 1
        assert fields.count(b"content-length") + fields.count(b"transfer-encoding") == (whole.length != 0 or b"content-length" in fields)
        assert not {b"proxy-authorization", b"proxy-connection", b"te", b"keep-alive"} & set(fields)
    assert read > 3000
    assert refused > 3000


# --- chunks

BODIES = [
    b"3\r\nabc\r\n0\r\n\r\nGET http://evil/ HTTP/1.1\r\n\r\n",
    b"1a;x=y\r\nabcdefghijklmnopqrstuvwxyz\r\n1\r\n\n\r\n0\r\nA: b\r\nC: d\r\n\r\nrest",
    b"0\r\n\r\n0\r\n\r\n",
    b"00F\r\n0\r\n\r\n0123456789\r\n000\r\n\r\n",
]


def body_end(data: bytes) -> int | str | None:
    """Where a chunked body ends, in words of RFC 9112 and in one go; None while it goes on."""
    at = 0
    while True:
        end = data.find(b"\n", at)
        if end < 0:
            return None if len(data) - at <= 1024 else "long"
        line = data[at : end + 1]
        digits = line[:-2].partition(b";")[0]
        if len(line) > 1024 or line[-2:] != b"\r\n" or not 1 <= len(digits) <= 12 or any(digit not in b"0123456789abcdefABCDEF" for digit in digits):
            return "malformed"
        if any((byte < 32 and byte != 9) or byte == 127 for byte in line[:-2]):
            return "malformed"
        at, size = end + 1, int(digits, 16)
        if not size:
            break
        if len(data) - at <= size:
            return None
        at += size
        if b"\r\n".startswith(data[at:][:2]) and len(data) - at < 2:
            return None
        if data[at : at + 2] != b"\r\n":
            return "malformed" if b"\n" in data[at:] or len(data) - at > 1024 else None
        at += 2
    while True:
        end = data.find(b"\n", at)
        if end < 0:
            return None
        line = data[at : end + 1]
        at = end + 1
        if line == b"\r\n":
            return at
        name = line.partition(b":")[0]
        if line[-2:] != b"\r\n" or b":" not in line or not name or any(byte in b' \t"(),/:;<=>?@[\\]{}' or byte < 33 or byte > 126 for byte in name):
            return "malformed"
        if any((byte < 32 and byte != 9) or byte == 127 for byte in line[:-2]):
            return "malformed"


def test_a_chunked_body_ends_where_the_reference_ends_it() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for dice, data in cases(3, BODIES):
        expected = body_end(data)
        chunks, taken = wire.Chunks(), 0
        try:
            for piece in cut(dice, data):
                taken += chunks.count_body_bytes(piece)
        except wire.BadMessageError:
            assert isinstance(expected, str), data
            seen["refused"] += 1
            continue
        assert not isinstance(expected, str), data
        assert (taken if chunks.done else None) == expected, data
        assert chunks.done or taken == len(data)
        seen["whole" if chunks.done else "open"] += 1
    assert min(seen[what] for what in ("refused", "whole", "open")) > 2000, seen


# --- SOCKS5

SOCKS = [
    *(b"\5\1\0\3" + bytes([len(host)]) + host.encode() + b"\1\xbb" for host in HOSTS),
    b"\5\1\0\1\x09\x09\x09\x09\0\x50",
    b"\5\1\0\4" + bytes(10) + b"\xff\xff\x7f\0\0\1\1\xbb",
    b"\5\2\0\1\1\2\3\4\0\x50",
]


def test_a_socks_request_is_what_its_bytes_say() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for dice, data in cases(4, SOCKS):
        for reader in (wire.socks_greeting, wire.socks_login):
            rest = reader(data)
            assert rest is None or data.endswith(rest[1] if isinstance(rest, tuple) else rest)
        found = wire.socks_request(data)
        if found is None:
            seen["short"] += 1
            continue
        code, host, port, rest = found
        if code != wire.GRANTED:
            assert data[0] != 5 or data[1] != 1 or data[3] not in (1, 3, 4) or data[3:5] == b"\3\0"
            seen["refused"] += 1
            continue
        end = len(data) - len(rest)
        assert (port, data[end:]) == (struct.unpack("!H", data[end - 2 : end])[0], rest)
        assert end == 6 + {1: 4, 3: 1 + data[4], 4: 16}[data[3]]
        assert wire.socks_request(data[: dice.randrange(end)]) is None
        target = outcome(lambda host=host: names.parse_target(host))
        seen["name" if data[3] == 3 else "address"] += 1
        if data[3] != 3:
            raw = data[4 : end - 2]
            assert target.address == (raw[12:] if raw[:12] == bytes(10) + b"\xff\xff" else raw)
        else:
            expected = host_of(data[5 : end - 2])
            assert (expected is None) == isinstance(target, str), data
            if isinstance(expected, str):
                assert target.name == expected
    assert min(seen[what] for what in ("short", "refused", "name", "address")) > 500, seen


# --- ClientHello


def vector(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def hello_of(host: bytes | None, *more: tuple[int, bytes], size: int = 16384) -> bytes:
    listed = [(10, b"\0\2\0\x1d"), *more]
    if host is not None:
        listed.insert(0, (0, vector(2, b"\0" + vector(2, host))))
    extensions = b"".join(struct.pack("!H", kind) + vector(2, body) for kind, body in listed)
    body = b"\3\3" + b"r" * 32 + vector(1, b"s" * 8) + vector(2, b"\x13\1\x13\2") + vector(1, b"\0") + vector(2, extensions)
    message = b"\1" + vector(3, body)
    return b"".join(b"\x16\3\1" + vector(2, message[at : at + size]) for at in range(0, len(message), size))


HELLOS = [
    *(hello_of(b"github.com", (0xFE0D, b"e" * 40), size=size) for size in (1, 5, 30, 16384)),
    hello_of(None),
    hello_of(b"a.example.org", (16, b"\0\3\2h2"), (21, bytes(200))),
    hello_of(b"evil.com", (43, b"\2\3\4")),
]


def test_a_hello_says_the_same_however_it_arrives() -> None:
    seen: collections.Counter[str] = collections.Counter()
    for dice, data in cases(5, HELLOS):

        def read(pieces: list[bytes]) -> Any:
            reader = wire.ClientHello()
            for piece in pieces:
                found = reader.feed_bytes(piece)
                if found is not None:
                    return found
            return None

        whole = outcome(lambda read=read, data=data: read([data]))
        assert outcome(lambda read=read, dice=dice, data=data: read(cut(dice, data))) == whole, data
        if isinstance(whole, tuple):
            assert len(whole) <= 1
            joined = b"".join(wire_payloads(data))
            assert all(name in joined for name in whole)
        seen["refused" if isinstance(whole, str) else "open" if whole is None else "named" if whole else "unnamed"] += 1
    assert min(seen[what] for what in ("refused", "open", "named", "unnamed")) > 500, seen


def wire_payloads(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 5 <= len(data):
        length = int.from_bytes(data[at + 3 : at + 5], "big")
        yield data[at + 5 : at + 5 + length]
        at += 5 + length


# --- end to end


class Servers:
    """One listener for each name and port, allowed or not: who connects to which is what the filter let through."""

    def __init__(self, keys: Sequence[tuple[str, int]]) -> None:
        self.connections: collections.Counter[tuple[str, int]] = collections.Counter()
        self.heard: dict[tuple[str, int], list[bytes]] = {key: [] for key in keys}
        self.places: dict[tuple[str, int], tuple[str, int]] = {}
        self._selector = selectors.DefaultSelector()
        self._stop, self._stopped = socket.socketpair()
        self._selector.register(self._stop, selectors.EVENT_READ, None)
        for key in keys:
            listener = socket.create_server(("127.0.0.1", 0), backlog=256)
            listener.setblocking(False)
            self.places[key] = listener.getsockname()
            self._selector.register(listener, selectors.EVENT_READ, (self._accept, key, b""))
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while True:
            for found, _ in self._selector.select():
                if found.data is None:
                    return
                work, key, said = found.data
                work(found.fileobj, key, said)

    def _accept(self, listener: socket.socket, key: tuple[str, int], _: bytes) -> None:
        sock, _place = listener.accept()
        self.connections[key] += 1
        self._selector.register(sock, selectors.EVENT_READ, (self._read, key, b""))

    def _read(self, sock: socket.socket, key: tuple[str, int], said: bytes) -> None:
        try:
            data = sock.recv(65536)
            if data and not said:
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            if data and b"\r\nConnection: close\r\n\r\n" in said + data:
                sock.shutdown(socket.SHUT_WR)  # as it was told
        except OSError:
            data = b""
        if data:
            self._selector.modify(sock, selectors.EVENT_READ, (self._read, key, said + data))
            return
        self.heard[key].append(said)
        self._selector.unregister(sock)
        sock.close()

    def close(self) -> None:
        self._stopped.send(b"!")
        self.thread.join(10)
        for found in tuple(self._selector.get_map().values()):
            found.fileobj.close()  # type: ignore[union-attr]
        self._stopped.close()
        self._selector.close()


def conversations(dice: random.Random, trap: int) -> bytes:
    """One whole conversation with the proxy, mostly of a target that is not let through."""
    host, port = dice.choice((*HOSTS, "trap.example.org")).encode(), dice.choice((*PORTS, 443, 80))
    port = trap if host.startswith(b"trap") else port
    said = dice.choice((host, host, host.rstrip(b".").upper(), b"github.com", b"evil.com", None))
    hello = hello_of(said, size=dice.choice((1, 7, 16384)))
    inner = hello if dice.random() < 0.8 else dice.choice((b"SSH-2.0-x\r\n", HEADS[1], b"", dice.randbytes(50)))
    match dice.randrange(6):
        case 0 | 1:
            start = b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (host, port, host, port)
        case 2:
            body = dice.choice((b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", b"\r\n"))
            colon = b":%d" % port if port != 80 else b""
            return b"POST http://%s%s/ HTTP/1.1\r\nHost: %s%s\r\nX-A: b\r\n%s" % (host, colon, host, colon, body) + dice.choice((b"", HEADS[5], HEADS[2]))
        case 3:
            start = b"\5\2\0\2\5\1\0\3" + vector(1, host) + struct.pack("!H", port)
        case 4:
            start = b"\5\1\2\1\1u\1p\5\1\0\3" + vector(1, host) + struct.pack("!H", port)
        case _:
            address = dice.choice((b"\1\x09\x09\x09\x09", b"\1\x7f\0\0\1", b"\4" + bytes(10) + b"\xff\xff\x7f\0\0\1", b"\4" + bytes(15) + b"\1"))
            start = b"\5\1\0\5\1\0" + address + struct.pack("!H", dice.choice((port, trap)))
    return start + inner


def talk(dice: random.Random, place: tuple[str, int], data: bytes) -> str:
    """Say it in pieces, then hear everything; `hung` where that does not end."""
    heard = b""
    try:
        with socket.create_connection(place, timeout=10) as sock:
            for piece in cut(dice, data) if len(data) < 600 or dice.random() < 0.1 else [data]:
                sock.sendall(piece)
            if dice.random() < 0.1:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return "gone"
            sock.shutdown(socket.SHUT_WR)
            while more := sock.recv(65536):
                heard += more
    except TimeoutError:
        return "hung"
    except OSError:
        return "reset"
    return "answered" if heard else "silence"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


class Served:
    """A filter that is served in a thread, with listeners of the test's own."""

    def __init__(self, lists: Lists, servers: Servers, **purposes: tuple[str, int]) -> None:
        self.listeners = {purpose: socket.create_server(place, backlog=256) for purpose, place in purposes.items()}
        self.egress = filter_of(lists, servers.places)
        self.failed: list[BaseException] = []
        self.thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        try:
            self.egress.serve_listeners([(purpose.rstrip("0123456789"), listener) for purpose, listener in self.listeners.items()])
        except BaseException as failed:  # noqa: BLE001  the test tells
            self.failed.append(failed)

    def place(self, purpose: str) -> tuple[str, int]:
        found: tuple[str, int] = self.listeners[purpose].getsockname()
        return found

    def idle(self) -> bool:
        return not self.egress._connections and len(self.egress.loop.tasks) == len(self.listeners) + 1

    def close(self) -> None:
        self.egress.loop.stop_loop()
        self.thread.join(10)
        with contextlib.suppress(ValueError):
            closed(self.egress)
        for listener in self.listeners.values():
            listener.close()
        gc.collect()  # what is left over is this test's, and not the next one's


def heard_fits(key: tuple[str, int], said: bytes) -> bool:
    """Whether a server heard what a client of its own would say."""
    name, port = key
    if not said:
        return True
    if port == 443 and name[0] not in "0123456789":  # of a listed address any server name may be asked
        return said[:2] == b"\x16\3" and name.encode() in b"".join(wire_payloads(said)).lower()
    head, _, body = said.partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    if port != 80 or first.split(b" ")[1:2] == [] or not first.split(b" ")[1].startswith(b"/"):
        return True  # a tunnel: what is said within is the client's business
    fields = {line.partition(b":")[0].lower(): line.partition(b": ")[2] for line in lines}
    chunked = b"transfer-encoding" in fields
    whole = body_end(body) in (None, len(body)) if chunked else len(body) <= int(fields.get(b"content-length", b"0"))
    return [line for line in lines if line.lower().startswith(b"host")] == [b"Host: " + name.encode()] and whole


def test_fuzzed_conversations_reach_nobody_whom_the_reference_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: collections.Counter[str] = collections.Counter()

    really = _socket.getaddrinfo

    def resolver(name: bytes | str, *args: Any, **options: Any) -> list[Any]:
        if isinstance(name, str):
            return really(name, *args, **options)  # the test's own; the filter asks with bytes
        looked_up[name.decode()] += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))]

    monkeypatch.setattr(_socket, "getaddrinfo", resolver)
    dice = random.Random(6)
    plain = sorted({host.lower().rstrip(".") for host in HOSTS})
    servers = Servers([*((host, port) for host in plain for port in PORTS), ("nobody", 0)])
    trap = servers.places.pop(("nobody", 0))[1]
    lists = Lists([*LISTS.allow, Entry("trap.example.org", port=trap)], LISTS.deny)
    served = Served(lists, servers, proxy=("127.0.0.1", 0))
    try:
        served.thread.start()
        assert until(served.idle)
        before = descriptors()
        valid = [conversations(dice, trap) for _ in range(200)]
        results: collections.Counter[str] = collections.Counter()
        for _ in range(CONVERSATIONS):
            data = conversations(dice, trap)
            data = mutated(dice, data, valid) if dice.random() < 0.6 else data
            result = talk(dice, served.place("proxy"), data)
            assert result != "hung", data
            results[result] += 1
        assert until(served.idle), served.egress._connections
        assert until(lambda: descriptors() == before), (before, descriptors())
        assert served.thread.is_alive()
        assert results["answered"] > CONVERSATIONS / 3, results
    finally:
        served.close()
        servers.close()
    assert served.failed == []
    wrong = [key for key in servers.connections if key[1] and not allowed(lists, host_of(key[0].encode()) or "", key[1])]
    assert wrong == []
    assert servers.connections[("nobody", 0)] == 0, "X17: a name that leads to the loopback"
    assert looked_up["trap.example.org"] > 20
    assert all(any(allowed(lists, name, port) for port in (*range(1, 1024), trap)) for name in looked_up)
    # Everything that is let through was reached, so that the absence of the others means something.
    reachable = {(host, port) for host in plain for port in PORTS if allowed(lists, host_of(host.encode()) or "", port)}
    assert set(servers.connections) == reachable
    misheard = [(key, said) for key, all_said in servers.heard.items() for said in all_said if not heard_fits(key, said)]
    assert misheard == []
    assert sum(bool(said) for (_, port), all_said in servers.heard.items() for said in all_said if port == 443) > 100


def test_connections_to_reserved_addresses_reach_the_name_that_has_them() -> None:
    dice = random.Random(7)
    found = socket.create_server(("127.0.0.1", 0))
    port: int = found.getsockname()[1]
    found.close()
    by_address = {"127.0.0.71": "ok.example", "127.0.0.72": "evil.example", "127.0.0.73": "other.example", "127.0.0.74": "denied.example"}
    servers = Servers([(name, port) for name in by_address.values()])
    lists = Lists([Entry("ok.example", port=port), Entry("other.example", port=port - 1), Entry("denied.example", port="*")], [Entry("denied.example")])
    served = Served(lists, servers, **{f"direct{at}": (address, port) for at, address in enumerate((*by_address, "127.0.0.75"))})
    served.egress.names._by_address.update({socket.inet_aton(address): name for address, name in by_address.items()})
    try:
        served.thread.start()
        results = [[talk(dice, (address, port), dice.randbytes(40)) for _ in range(20)] for address in (*by_address, "127.0.0.75")]
        assert until(served.idle)
    finally:
        served.close()
        servers.close()
    assert served.failed == []
    assert dict(servers.connections) == {("ok.example", port): results[0].count("answered") + results[0].count("gone") + results[0].count("reset")}
    assert results[0].count("answered") > 10
    assert all(result in ("reset", "gone", "silence") for some in results[1:] for result in some)


def test_a_connection_that_ends_at_once_leaves_no_warning() -> None:
    egress = filter_of(LISTS, {})
    ours, client = socket.socketpair()
    far, server = socket.socketpair()
    connection = egress_of.Connection(egress, egress_of.Stream(egress.loop, client), "connect")
    connection.server = egress_of.Stream(egress.loop, server)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        egress._relay_both_ways(connection)
        connection.finish_connection("allow", reset=True)
        closed(egress)
        del connection, egress
        gc.collect()
    for sock in (ours, client, far, server):
        sock.close()
    assert [str(one.message) for one in said] == []


def test_dns_over_tcp_in_any_pieces() -> None:
    dice = random.Random(8)
    servers = Servers([])
    served = Served(LISTS, servers, **{"dns-tcp": ("127.0.0.1", 0)})
    try:
        served.thread.start()
        for _ in range(200):
            hosts = [dice.choice(HOSTS).encode() for _ in range(dice.randint(1, 5))]
            data = b"".join(vector(2, question(host, 1)) for host in hosts)
            with socket.create_connection(served.place("dns-tcp"), timeout=10) as sock:
                for piece in cut(dice, data):
                    sock.sendall(piece)
                sock.shutdown(socket.SHUT_WR)
                heard = b"".join(iter(lambda sock=sock: sock.recv(65536), b""))
            for host in hosts:
                length = int.from_bytes(heard[:2], "big")
                reply, heard = heard[2 : 2 + length], heard[2 + length :]
                assert reply == served.egress.names.answer_dns_query(question(host, 1)), host
            assert heard == b""
        for _ in range(500):
            talk(dice, served.place("dns-tcp"), mutated(dice, vector(2, question(b"github.com", 1)), [b"\xff\xff", b"\0\0"]))
        assert until(served.idle)
        assert served.thread.is_alive()
    finally:
        served.close()
        servers.close()
    assert served.failed == []


def test_the_last_refusals_are_counted(tmp_path: Path) -> None:
    log = log_of.Log(str(tmp_path / "log"), "default")
    for number in range(1000):
        log.write_log_entry("deny", "dns", f"n{number}.org", "not-listed")
    log.write_log_entry("allow", "connect", "a.org", "", port=443, moved=(1, 2))
    log.close()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    left_out = sum(int(line["name"].split()[0]) for line in lines if line["name"].endswith(" more"))
    refused = [line for line in lines if line["verdict"] == "deny" and not line["name"].endswith(" more")]
    assert (len(refused) + left_out, [line["name"] for line in lines if line["verdict"] == "allow"]) == (1000, ["a.org"])


def test_a_connection_that_cannot_be_watched_is_closed_and_the_next_one_served(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = Servers([])
    served = Served(LISTS, servers, proxy=("127.0.0.1", 0))
    watch, calls = served.egress.loop.register_socket, itertools.count()

    def second_fails(sock: socket.socket) -> None:  # the first is the listener
        if next(calls) == 1:
            raise OSError(errno.ENOSPC, "too many watches")
        watch(sock)

    monkeypatch.setattr(served.egress.loop, "register_socket", second_fails)
    served.thread.start()
    answers = []
    try:
        for _ in range(2):
            with socket.create_connection(served.place("proxy"), timeout=10) as sock, contextlib.suppress(OSError):
                answers.append(b"")
                sock.sendall(b"CONNECT evil.com:443 HTTP/1.1\r\nHost: evil.com:443\r\n\r\n")
                answers[-1] = sock.recv(100)[:12]
    finally:
        served.close()
        servers.close()
    assert (answers, served.failed) == ([b"", b"HTTP/1.1 403"], [])
