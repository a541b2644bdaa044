"""The filter, tried from inside the real fence by every way in: each refusal with a server behind it that must hear nothing."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fence import Fence, name_of, users
from stand_in import HTTP, LOOPBACK, SOCKS, Inside, Server, connect, echo, get, hello, in_records, inside, socks, web

pytestmark = pytest.mark.needs("bwrap")

GOOD, LITERAL = "good.example.com", "8.8.4.4"
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
MANIFEST = """\
metadata: {{name: fence}}
runtime:
  sandbox:
    denied_domains: [evil.wild.example.com]
    default_allowed_domains:
      - good.example.com
      - "*.wild.example.com"
      - "first.example.com:7000"
      - "8.8.4.4:7000"
      - {{host: plain.example.com, tls: false}}
      - {{host: nosni.example.com, allow_no_sni: true}}
      - rebound.example.com
      - mixed.example.com
      - itself.example.com
      - {{host: intranet.example.com, allow_private: true}}
      - {{host: meta.example.com, allow_private: true}}
    shells:
      restricted: {{network: filtered, loopback: [{port}]}}
      any: {{network: open}}
      silent: {{network: none}}
"""


def speaks_first(sock: socket.socket, seen: bytearray) -> None:
    sock.sendall(b"220 hello\r\n")
    echo(sock, seen)


def after_the_end(sock: socket.socket, seen: bytearray) -> None:
    """Answers only when the other side has said its last word."""
    while data := sock.recv(65536):
        seen += data
    sock.sendall(b"all of " + str(len(seen)).encode())


def resets(sock: socket.socket, seen: bytearray) -> None:
    seen += sock.recv(65536)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def upgrades(sock: socket.socket, seen: bytearray) -> None:
    while b"\r\n\r\n" not in seen:
        seen += sock.recv(65536)
    if b"100-continue" in seen:
        sock.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not seen.endswith(b"body"):
            seen += sock.recv(65536)
        sock.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        return
    sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst")
    echo(sock, seen)


@dataclass(frozen=True)
class Place:
    """A shell, a client in it, and what stands in for the world."""

    fence: Fence
    client: Inside
    tunnel: Server
    web: Server
    evil: Server
    first: Server
    local: Server
    options: tuple[str, ...]

    def unheard(self) -> bool:
        """Whether nothing reached any server."""
        return not any(server.said() for server in (self.tunnel, self.web, self.evil, self.first, self.local))


@pytest.fixture(scope="module", params=users(), ids=name_of)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    tunnel, site, evil, first, local = Server(echo), Server(web), Server(echo), Server(speaks_first), Server(echo)
    fence = Fence.create(MANIFEST.format(port=local.port), uid=request.param)
    options = [*first.at("first.example.com", 7000), *first.at(LITERAL, 7000)]
    for name in (GOOD, "a.wild.example.com", "a.b.wild.example.com", "plain.example.com", "nosni.example.com"):
        options += [*tunnel.at(name, 443), *site.at(name, 80)]
    for name in ("evil.wild.example.com", "wild.example.com", "evilgood.example.com", "good.example.com.evil.com"):
        options += [*evil.at(name, 443), *evil.at(name, 80)]
    for port in (22, 25):
        options += evil.at(GOOD, port)
    try:
        with inside(fence, *options) as client:
            yield Place(fence, client, tunnel, site, evil, first, local, tuple(options))
    finally:
        for server in (tunnel, site, evil, first, local):
            server.close()
        fence.remove()


def status(got: bytes) -> int:
    return int(got[9:12]) if got.startswith(b"HTTP/1.1 ") else 0


# --- names: X01-X16

ALLOWED = (GOOD, "GOOD.Example.COM", "good.example.com.", "a.wild.example.com", "a.b.wild.example.com")
REFUSED = (
    "wild.example.com",
    "evil.wild.example.com",
    "EVIL.wild.example.com.",
    "evilgood.example.com",
    "good.example.com.evil.com",
    "xn--gthub-n4a.com",
    "localhost",
    "foo.localhost",
    "printer.local",
    "intranet",
    "metadata.google.internal",
)
MALFORMED = (
    b"127.0.0.1\0.good.example.com",
    b"good.example.com..",
    b".good.example.com",
    b"a..wild.example.com",
    b"good%2eexample.com",
    b"good.example.com%00",
    b"user@good.example.com",
    b"good.example.com\\",
    b"go\tod.example.com",
    b"good.example.com#x",
    "ｇood.example.com".encode(),
    "good\u00ad.example.com".encode(),
    "good.example.com。evil.com".encode(),
    "①②⑦.0.0.1".encode(),
    b"a" * 64 + b".wild.example.com",
    b"a." * 130 + b"wild.example.com",
    b"127.1",
    b"0177.0.0.1",
    b"0x7f.1",
    b"2130706433",
    b"0x7f000001",
    b"0",
    b"0xA9FEA9FE",
)


@pytest.mark.parametrize("name", ALLOWED)
def test_an_allowed_name_is_reached_by_every_way(place: Place, name: str) -> None:
    client = place.client
    for tcp in (False, True):
        code, address = client.dns(name.encode(), tcp=tcp)
        assert code == 0
        assert address[:2] in (b"\xc6\x12", b"\xc6\x13")
    judged = name.lower().removesuffix(".")
    said = hello(judged)
    assert client.talk(HTTP, connect(f"{name}:443") + said, enough=said) == (ESTABLISHED + said, "open")
    got, _ = client.talk(SOCKS, socks(name, 443) + said, enough=said)
    assert got == b"\5\0\5\0\0\1" + bytes(6) + said
    assert client.talk(443, said, host=name, enough=said) == (said, "open")
    place.tunnel.said()
    got, _ = client.talk(HTTP, get(name), enough=b"ok")
    assert status(got) == 200
    assert f"Host: {judged}\r\n".encode() in place.web.said()


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_name_is_reached_by_no_way(place: Place, name: str) -> None:
    client = place.client
    if name != "localhost":
        assert client.dns(name.encode()) == (3, b"")
        assert client.dns(name.encode(), tcp=True) == (3, b"")
        assert client.talk(443, hello(GOOD), host=name)[1] == "no name" or "." not in name
    for request in (connect(f"{name}:443") + hello(GOOD), get(name), get(name, path=b"/?stolen=1")):
        got, end = client.talk(HTTP, request)
        assert (status(got), end) == (403, "eof")
        assert b"wavegen: " in got
    assert client.talk(SOCKS, socks(name, 443))[0][:4] == b"\5\0\5\2"
    assert place.unheard()


@pytest.mark.parametrize("name", MALFORMED, ids=repr)
def test_what_is_no_name_is_refused(place: Place, name: bytes) -> None:
    client = place.client
    for request in (connect(name + b":443"), get(name)):
        assert status(client.talk(HTTP, request)[0]) == 400
    if len(name) < 256:
        assert client.talk(SOCKS, socks(name, 443))[0][:4] == b"\5\0\5\2"
    labels = name.split(b".")
    if all(0 < len(label) < 64 for label in labels) and len(name) < 250:
        assert client.dns(name)[0] == 3
    assert place.unheard()


def test_a_dot_within_a_label_makes_no_other_name(place: Place) -> None:
    found = place.client.do("result = dns([b'good.example', b'com'])[0]")
    assert found == 3


@pytest.mark.parametrize("port", ["22", "25", "0", "65536", "+443", "0443", " 443", "", "https", "-1", "4\u0664"])
def test_ports_are_numbers_that_are_listed(place: Place, port: str) -> None:
    got = place.client.talk(HTTP, connect(f"{GOOD}:{port}".encode()))[0]
    assert status(got) == (403 if port in ("22", "25") else 400)
    if port in ("22", "25"):
        assert place.client.talk(SOCKS, socks(GOOD, int(port)))[0][:4] == b"\5\0\5\2"
        assert place.client.talk(int(port), b"x", host=GOOD)[1] in ("refused", "reset")
    assert status(place.client.talk(HTTP, connect(GOOD))[0]) == 400
    assert place.unheard()


@pytest.mark.parametrize(
    "address", ["140.82.121.3", "127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[fd00:ec2::254]", "[2606:4700::1]"]
)
def test_an_address_is_refused_unless_listed(place: Place, address: str) -> None:
    client = place.client
    for request in (connect(f"{address}:443"), get(address)):
        assert status(client.talk(HTTP, request)[0]) == 403
    six = address.startswith("[")
    packed = socket.inet_pton(socket.AF_INET6 if six else socket.AF_INET, address.strip("[]"))
    assert client.talk(SOCKS, socks(packed, 443, kind=4 if six else 1))[0][:4] == b"\5\0\5\2"
    assert status(client.talk(HTTP, connect("[fe80::1%25eth0]:443"))[0]) == 400
    assert status(client.talk(HTTP, connect("::1:443"))[0]) == 400
    if not six and address != "127.0.0.1":
        assert client.talk(443, hello(GOOD), host=address, wait=1)[1].startswith(("error", "refused", "reset"))
    assert place.unheard()


def test_a_listed_address_is_reached_by_every_way(place: Place) -> None:
    client = place.client
    greeting = b"220 hello\r\n"
    assert client.talk(7000, host=LITERAL, enough=greeting)[0] == greeting
    assert client.talk(HTTP, connect(f"{LITERAL}:7000"), enough=greeting)[0] == ESTABLISHED + greeting
    assert client.talk(SOCKS, socks(socket.inet_aton(LITERAL), 7000, kind=1), enough=greeting)[0].endswith(greeting)


def test_a_server_may_speak_first(place: Place) -> None:
    greeting = b"220 hello\r\n"
    for port, host, said in (
        (7000, "first.example.com", ()),
        (HTTP, LOOPBACK, (connect("first.example.com:7000"),)),
        (SOCKS, LOOPBACK, (socks("first.example.com", 7000),)),
    ):
        assert place.client.talk(port, *said, host=host, enough=greeting)[0].endswith(greeting)


# --- the loopback


def test_a_port_of_the_hosts_loopback_is_let_in(place: Place) -> None:
    client, port = place.client, place.local.port
    for host in (LOOPBACK, "localhost", "::1"):
        assert client.talk(port, b"ping", host=host, enough=b"ping")[0] == b"ping"
    assert client.talk(HTTP, connect(f"localhost:{port}") + b"ping", enough=b"ping")[0] == ESTABLISHED + b"ping"
    assert client.talk(SOCKS, socks(LOOPBACK.encode(), port) + b"ping", enough=b"ping")[0].endswith(b"ping")
    place.local.said()
    assert status(client.talk(HTTP, connect(f"localhost:{place.evil.port}"))[0]) == 403
    assert client.talk(place.evil.port, b"x")[1] == "refused"
    assert place.unheard()


# --- TLS: X28-X30


@pytest.mark.parametrize(
    "said", [hello("other.example.com"), hello(None), hello("8.8.8.8"), b"SSH-2.0-x\r\n", b"\x80\x2e\1\3\1" + bytes(60), get(GOOD)], ids=range(6)
)
def test_on_443_the_client_must_name_the_server(place: Place, said: bytes) -> None:
    client = place.client
    for port, host, before in ((HTTP, LOOPBACK, connect(f"{GOOD}:443")), (SOCKS, LOOPBACK, socks(GOOD, 443)), (443, GOOD, b"")):
        _, end = client.talk(port, before + said, host=host, wait=2)
        assert end in ("eof", "reset")
    assert place.unheard()


@pytest.mark.parametrize("size", [1, 7, 100])
def test_a_hello_in_pieces_is_one(place: Place, size: int) -> None:
    right, wrong = in_records(hello(GOOD), size), in_records(hello("other.example.com"), size)
    assert place.client.talk(443, right[:20], right[20:], host=GOOD, enough=right)[0] == right
    assert place.tunnel.said() == right
    assert place.client.talk(443, wrong[:20], wrong[20:], host=GOOD)[1] in ("eof", "reset")
    assert place.unheard()


def test_an_entry_may_loosen_what_is_looked_at(place: Place) -> None:
    client = place.client
    assert client.talk(443, b"SSH-2.0-x\r\n", host="plain.example.com", enough=b"x\r\n")[0] == b"SSH-2.0-x\r\n"
    none = hello(None)
    assert client.talk(443, none, host="nosni.example.com", enough=none)[0] == none
    place.tunnel.said()
    assert client.talk(443, hello(GOOD), host="nosni.example.com")[1] in ("eof", "reset")
    assert place.unheard()


# --- HTTP: X23-X27, X35

SMUGGLED = {
    "another Host": b"GET http://good.example.com/ HTTP/1.1\r\nHost: evil.wild.example.com\r\n\r\n",
    "two Hosts": b"GET http://good.example.com/ HTTP/1.1\r\nHost: good.example.com\r\nHost: evil.com\r\n\r\n",
    "origin form": b"GET / HTTP/1.1\r\nHost: good.example.com\r\n\r\n",
    "https": b"GET https://good.example.com/ HTTP/1.1\r\nHost: good.example.com\r\n\r\n",
    "folded": get(GOOD, extra=b"X: a\r\n b\r\n"),
    "space before the colon": get(GOOD, extra=b"X : a\r\n"),
    "bare LF": get(GOOD, extra=b"X: a\nY: b\r\n"),
    "CL and TE": get(GOOD, method=b"POST", extra=b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n") + b"0\r\n\r\n",
    "two CL": get(GOOD, method=b"POST", extra=b"Content-Length: 4\r\nContent-Length: 5\r\n") + b"abcde",
    "signed CL": get(GOOD, method=b"POST", extra=b"Content-Length: +4\r\n") + b"abcd",
    "another coding": get(GOOD, method=b"POST", extra=b"Transfer-Encoding: gzip, chunked\r\n") + b"0\r\n\r\n",
    "hidden length": get(GOOD, method=b"POST", extra=b"Connection: content-length\r\nContent-Length: 4\r\n") + b"abcd",
    "small letters": b"connect good.example.com:443 HTTP/1.1\r\nHost: good.example.com\r\n\r\n",
    "userinfo": b"GET http://good.example.com@evil.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n",
}


@pytest.mark.parametrize("form", SMUGGLED)
def test_a_request_that_can_be_read_in_two_ways_is_refused(place: Place, form: str) -> None:
    got, end = place.client.talk(HTTP, SMUGGLED[form])
    assert (status(got), end) == (400, "eof")
    assert place.unheard()


def test_trace_is_refused(place: Place) -> None:
    assert status(place.client.talk(HTTP, get(GOOD, method=b"TRACE"))[0]) == 405
    assert place.unheard()


@pytest.mark.parametrize("second", [get("evil.wild.example.com"), get(GOOD, path=b"/second"), connect(f"{GOOD}:443")])
def test_a_connection_carries_one_request(place: Place, second: bytes) -> None:
    body = get(GOOD, method=b"POST", extra=b"Content-Length: 4\r\n") + b"body"
    chunked = get(GOOD, method=b"POST", extra=b"Transfer-Encoding: chunked\r\n") + b"4\r\nbody\r\n0\r\n\r\n"
    for first in (get(GOOD), body, chunked):
        got, end = place.client.talk(HTTP, first + second)
        assert (status(got), end) == (200, "eof")
        assert got.count(b"HTTP/1.1") == 1
        assert b"Connection: close" in got
        said = place.web.said()
        assert said.count(b"HTTP/1.1") == 1
        assert b"body" in said or first == get(GOOD)
        assert place.unheard()


def test_a_proxy_in_the_proxy_gets_no_second_verdict(place: Place) -> None:
    assert place.client.talk(HTTP, connect(f"{GOOD}:443") + connect("evil.wild.example.com:443"))[1] in ("eof", "reset")
    assert place.unheard()


def test_the_refusal_says_what_to_do(place: Place) -> None:
    got = place.client.talk(HTTP, connect("other.example.org:8443"))[0]
    assert b'- "other.example.org:8443"' in got
    got = place.client.talk(HTTP, get("evil.wild.example.com"))[0]
    assert b"(evil.wild.example.com:*, wave.yaml:4)" in got


def test_upgrades_and_interim_answers_pass(place: Place) -> None:
    server = Server(upgrades)
    try:
        with inside(place.fence, *server.at(GOOD, 80)) as client:
            asked = get(GOOD, extra=b"Connection: Upgrade\r\nUpgrade: websocket\r\n")
            got, _ = client.talk(HTTP, asked, b"frame", enough=b"frame", pause=0.2)
            assert got.startswith(b"HTTP/1.1 101 ")
            assert got.endswith(b"firstframe")
            assert b"Upgrade: websocket\r\n" in server.said()
            got, end = client.talk(HTTP, get(GOOD, method=b"PUT", extra=b"Expect: 100-continue\r\nContent-Length: 4\r\n"), b"body", pause=0.2)
            assert got.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 ")
            assert end == "eof"
    finally:
        server.close()


# --- SOCKS: X34


def test_socks_only_connects(place: Place) -> None:
    client = place.client
    for command in (2, 3):
        assert client.talk(SOCKS, socks(GOOD, 443, command=command))[0][:4] == b"\5\0\5\7"
    assert client.talk(SOCKS, socks("", 443))[0][:4] == b"\5\0\5\x08"
    assert client.talk(SOCKS, socks(GOOD, 0))[0][:4] == b"\5\0\5\2"
    assert client.talk(SOCKS, b"\4\1\1\xbb\0\0\0\1x\0good.example.com\0")[1] == "eof"
    assert client.talk(SOCKS, b"\5\1\1")[0] == b"\5\xff"
    said = hello(GOOD)
    login = b"\5\1\2\1\1u\1p" + socks(GOOD, 443)[3:] + said
    assert client.talk(SOCKS, login, enough=said)[0].startswith(b"\5\2\1\0\5\0")
    place.tunnel.said()
    assert place.unheard()


# --- ends


@pytest.mark.parametrize("way", ["direct", "connect", "socks"])
def test_each_direction_ends_on_its_own(place: Place, way: str) -> None:
    late, hard = Server(after_the_end), Server(resets)
    try:
        with inside(place.fence, *late.at("first.example.com", 7000), *hard.at(LITERAL, 7000)) as client:

            def talk(name: str, **more: object) -> tuple[bytes, str]:
                before = {"direct": b"", "connect": connect(f"{name}:7000"), "socks": socks(name, 7000)}[way]
                port, host = {"direct": (7000, name), "connect": (HTTP, LOOPBACK), "socks": (SOCKS, LOOPBACK)}[way]
                return client.talk(port, before + b"abc", host=host, **more)

            got, end = talk("first.example.com", half=True)
            assert (got[-8:], end) == (b"all of 3", "eof")
            assert talk(LITERAL)[1] == "reset"
    finally:
        late.close()
        hard.close()


# --- nothing but TCP: X38


def test_datagrams_and_raw_sockets_lead_nowhere(place: Place) -> None:
    code = """
result = []
for host, port in (('8.8.8.8', 53), ('8.8.4.4', 443), ('good.example.com', 443)):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.3)
    try: s.connect((host, port)); s.send(b'x'); result.append(s.recv(10).hex())
    except OSError as e: result.append('nothing')
for kind, proto in ((socket.SOCK_RAW, 1), (socket.SOCK_DGRAM, 1)):
    try: s = socket.socket(socket.AF_INET, kind, proto); s.settimeout(0.3); s.sendto(bytes([8]) + bytes(7), ('8.8.8.8', 0)); s.recv(10); result.append('came')
    except OSError: result.append('nothing')
"""
    assert place.client.do(code) == ["nothing"] * 5


def test_without_proxy_variables_nothing_opens(place: Place) -> None:
    found = place.client.do("os.environ['NO_PROXY'] = '*'\nresult = [talk(443, b'x', host=h)[1] for h in ('140.82.121.3', 'evil.wild.example.com')]")
    assert isinstance(found, list)
    assert found[0].startswith("error")
    assert found[1] == "no name"


def test_dns_says_only_what_it_must(place: Place) -> None:
    client = place.client
    for kind in (28, 64, 65, 16, 15, 33):  # AAAA, SVCB, HTTPS, TXT, MX, SRV
        assert client.dns(GOOD.encode(), kind=kind) == (0, b"")
        assert client.dns(b"stolen.evil.com", kind=kind) == (3, b"")
    assert client.dns(GOOD.encode(), klass=3)[0] == 4
    assert client.dns(GOOD.encode(), flags=0x0900)[0] == 4
    assert client.dns(GOOD.encode(), flags=0x8100)[0] is None
    assert client.do("result = socket.gethostbyaddr(socket.gethostbyname('good.example.com'))[0]") == GOOD


# --- where names lead: X17-X21


@pytest.mark.skipif(os.getuid() != 0, reason="a hosts file of one's own needs root")
def test_an_address_that_is_nobodys_business_is_not_reached(place: Place) -> None:
    server = Server(echo)
    hosts = place.fence.base / "hosts"
    hosts.write_text(
        "127.0.0.1 localhost\n127.0.0.1 rebound.example.com\n8.8.8.8 mixed.example.com\n192.168.77.1 mixed.example.com\n127.0.0.1 intranet.example.com\n"
        "169.254.169.254 meta.example.com\n::ffff:127.0.0.1 itself.example.com\n"
    )
    prefix = ("unshare", "-m", "sh", "-c", 'mount --bind "$1" /etc/hosts && shift && exec "$@"', "sh", str(hosts))
    try:
        with inside(place.fence, prefix=prefix) as client:
            for name in ("rebound", "mixed", "intranet", "meta", "itself"):
                host = f"{name}.example.com"
                assert status(client.talk(HTTP, connect(f"{host}:443"))[0]) == 403
                assert status(client.talk(HTTP, get(host))[0]) == 403
                assert client.talk(SOCKS, socks(host, 443))[0][:4] == b"\5\0\5\2"
                assert client.talk(443, hello(host), host=host)[1] == "reset"
            assert status(client.talk(HTTP, connect(f"{GOOD}:443"), wait=15)[0]) == 502
        assert not server.said()
    finally:
        server.close()


# --- open and none


def test_open_reaches_any_public_name(place: Place) -> None:
    with inside(place.fence, *place.options, *place.tunnel.at("any.example.org", 443), *place.first.at("any.example.org", 7777), shell="any") as client:
        said = hello("any.example.org")
        assert client.talk(443, said, host="any.example.org", enough=said)[0] == said
        assert client.talk(HTTP, connect("any.example.org:7777"), enough=b"hello")[0].startswith(ESTABLISHED)
        place.tunnel.said(), place.first.said()
        for host in ("evil.wild.example.com", "140.82.121.3", "127.0.0.1", "localhost", "printer.local", "metadata.google.internal"):
            assert status(client.talk(HTTP, connect(f"{host}:443"))[0]) == 403
        assert place.unheard()


def test_none_has_no_listener(place: Place) -> None:
    done = place.fence.enter("sh", "-c", "cat /proc/net/tcp /proc/net/udp /proc/net/tcp6 | grep -vc local_address; grep -c : /proc/net/dev", shell="silent")
    assert done.stdout == "0\n1\n", done.stderr


def test_plain_http_does_not_reach_443(place: Place) -> None:
    place.client.talk(HTTP, get(f"{GOOD}:443"), wait=1)
    assert place.unheard()
