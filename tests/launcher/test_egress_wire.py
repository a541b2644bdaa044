"""What clients say, byte for byte: DNS, HTTP heads, chunks, SOCKS5, ClientHellos. Cases X22-X30, X34, X35."""

from __future__ import annotations

import ipaddress
import ssl
import struct
import time
from collections.abc import Callable, Iterator

import pytest
from helpers import LINEAR, growth

from wavegen.launcher.egress import dns as dns_of
from wavegen.launcher.egress import log as log_of
from wavegen.launcher.egress import names
from wavegen.launcher.egress import protocols as wire
from wavegen.launcher.egress import rules as rules_of
from wavegen.launcher.egress import serve as egress_of

Bad = wire.BadMessageError


# --- DNS

A, NS, PTR, AAAA, SVCB, HTTPS, ANY = 1, 2, 12, 28, 64, 65, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP = 0, 1, 2, 3, 4


def encoded(name: str) -> bytes:
    return b"".join(bytes([len(label)]) + label for label in name.encode().split(b".")) + b"\0"


def query(
    name: str | bytes, kind: int = A, *, number: int = 0x1234, flags: int = 0x0100, family: int = 1, counts: tuple[int, int, int, int] = (1, 0, 0, 0)
) -> bytes:
    text = name if isinstance(name, bytes) else encoded(name)
    return struct.pack("!6H", number, flags, *counts) + text + struct.pack("!2H", kind, family)


class Reply:
    """An answer, read by a reader of the test's own."""

    def __init__(self, data: bytes) -> None:
        self.number, self.flags, self.questions, self.answers, authority, additional = struct.unpack_from("!6H", data)
        assert self.flags & 0x8000
        assert (authority, additional) == (0, 0)
        self.code = self.flags & 15
        at = 12
        while self.questions and data[at]:
            at += 1 + data[at]
        self.question = data[12 : at + 5] if self.questions else b""
        at += 5 if self.questions else 0
        self.record: tuple[int, bytes] | None = None
        if self.answers:
            pointer, kind, family, seconds, length = struct.unpack_from("!3HIH", data, at)
            assert (pointer, family) == (0xC00C, 1)
            assert seconds > 0
            at += 12
            self.record = (kind, data[at : at + length])
            at += length
        assert at == len(data)
        assert self.answers <= 1


Ask = Callable[..., Reply]


@pytest.fixture
def egress() -> Iterator[egress_of.Egress]:  # type: ignore[name-defined]
    made = _egress(["github.com", "*.example.org", "db:5432", "9.9.9.9"], deny=["evil.example.org", "half.example.org:80"])
    yield made
    _closed(made)


def _egress(allow: list[str], deny: list[str] | None = None, pool: str = "POOL") -> egress_of.Egress:  # type: ignore[name-defined]
    lists = [[rules_of.Rule(entry, "line 1") for entry in some or ()] for some in (allow, deny)]
    rules = rules_of.Rules(anything=False, allow=lists[0], deny=lists[1], pool=getattr(rules_of, pool))
    return egress_of.Egress(rules, log_of.Log("", "default"), shell="default", connect_to={})


def _closed(made: egress_of.Egress) -> None:  # type: ignore[name-defined]
    made.loop.close()


@pytest.fixture
def ask(egress: egress_of.Egress) -> Ask:  # type: ignore[name-defined]
    return lambda *args, **options: Reply(egress.names.answer_dns_query(query(*args, **options)))


def test_an_allowed_name_gets_an_address_of_its_own(ask: Ask) -> None:
    found = [ask(name).record for name in ("github.com", "a.example.org", "b.example.org", "github.com")]
    assert all(one and one[0] == A for one in found)
    assert found[0] == found[3]
    assert len({one[1] for one in found if one}) == 3
    assert all(ipaddress.ip_address(one[1]) in ipaddress.ip_network("198.18.0.0/15") for one in found if one)


def test_the_question_goes_back_in_its_own_letters(ask: Ask) -> None:
    mixed = ask("GiTHuB.cOm", number=0xBEEF)
    assert (mixed.number, mixed.question) == (0xBEEF, encoded("GiTHuB.cOm") + b"\0\1\0\1")
    assert mixed.record == ask("github.com").record
    assert ask("eViL.org").question == encoded("eViL.org") + b"\0\1\0\1"


@pytest.mark.parametrize("kind", [AAAA, HTTPS, SVCB, NS, 15, 16, 0, 65535])
def test_other_kinds_of_an_allowed_name_are_empty_and_not_missing(ask: Ask, kind: int) -> None:
    found = ask("github.com", kind)
    assert (found.code, found.record) == (NOERROR, None)


@pytest.mark.parametrize("kind", [A, ANY])
def test_any_is_answered_as_a(ask: Ask, kind: int) -> None:
    found = ask("github.com", kind)
    assert found.record
    assert (found.code, found.record[0], len(found.record[1])) == (NOERROR, A, 4)


REFUSED = [
    pytest.param(encoded("evil.com"), id="not-listed"),
    pytest.param(encoded("evilgithub.com"), id="X03"),
    pytest.param(encoded("github.com.evil.com"), id="X03-prefix"),
    pytest.param(encoded("example.org"), id="X04"),
    pytest.param(encoded("evil.example.org"), id="denied"),
    pytest.param(b"\x0agithub.com\0", id="X11-dot-in-a-label"),
    pytest.param(b"\x0bx.github.com\0"[:1] + b"x.github.co\1m\0", id="X11-dot-in-a-label-of-two"),
    pytest.param(b"\x09x.example\3org\0", id="X11-dot-below-a-wildcard"),
    pytest.param(b"\6github\4com.\0", id="X11-dot-at-the-end"),
    pytest.param(b"\7github\0\3com\0", id="X06-nul"),
    pytest.param(b"\7git hub\3com\0", id="X07-space"),
    pytest.param(b"\x08\xef\xbd\x87ithub\3com\0", id="X09-full-width"),
    pytest.param(encoded("9.9.9.9"), id="X12-address"),
    pytest.param(encoded("127.1"), id="X13"),
    pytest.param(b"\5[::1]\0", id="X15-brackets"),
    pytest.param(encoded("intranet"), id="X16-single-label"),
    pytest.param(encoded("foo.localhost"), id="X16-below-localhost"),
    pytest.param(encoded("db"), id="X16-listed-not-private"),
    pytest.param(encoded("metadata.google.internal"), id="X20"),
    pytest.param(b"\0", id="the-root"),
]


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("kind", [A, AAAA, HTTPS, ANY])
def test_a_refused_name_does_not_exist(egress: egress_of.Egress, ask: Ask, name: bytes, kind: int) -> None:  # type: ignore[name-defined]
    before = dict(egress.names._by_name)
    found = ask(name, kind)
    assert (found.code, found.record, found.question) == (NXDOMAIN, None, name + struct.pack("!2H", kind, 1))
    assert egress.names._by_name == before


def test_a_name_that_is_denied_on_one_port_is_known(ask: Ask) -> None:
    assert ask("half.example.org").record


def test_localhost_is_the_shells_own(ask: Ask) -> None:
    assert ask("LocalHost").record == (A, b"\x7f\0\0\1")
    assert (ask("localhost", AAAA).code, ask("localhost", AAAA).record) == (NOERROR, None)


def test_pointers_are_of_names_that_were_given(ask: Ask) -> None:
    def back(address: bytes) -> str:
        return ".".join(str(byte) for byte in reversed(address)) + ".IN-addr.arpa"

    given = ask("A.Example.org").record
    assert given
    assert ask(back(given[1]), PTR).record == (PTR, encoded("a.example.org"))
    assert ask(back(b"\xc6\x13\xff\xff"), PTR).code == NXDOMAIN
    assert ask(back(b"\x7f\0\0\1"), PTR).record == (PTR, encoded("localhost"))
    for other in (
        "8.8.8.8.in-addr.arpa",
        "1.1.18.in-addr.arpa",
        "in-addr.arpa",
        "x.in-addr.arpa",
        "1.0.ip6.arpa",
        "a.b.c.d.in-addr.arpa",
        "github.com.evil.in-addr.arpa",
    ):
        assert (ask(other, PTR).code, ask(other, PTR).record) == (NXDOMAIN, None)
    assert ask(b"\x0d.in-addr.arpa\0", PTR).code == NXDOMAIN


def test_when_names_are_used_up_servers_fail_and_no_address_changes_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_of, "NAMES", 300)
    made = _egress(["*.example.org"])
    try:
        given = {name: Reply(made.names.answer_dns_query(query(name))).record for name in (f"n{number}.example.org" for number in range(300))}
        assert len({one[1] for one in given.values() if one}) == 300
        late = Reply(made.names.answer_dns_query(query("late.example.org")))
        assert (late.code, late.record) == (SERVFAIL, None)
        assert Reply(made.names.answer_dns_query(query("evil.com"))).code == NXDOMAIN
        assert {name: Reply(made.names.answer_dns_query(query(name))).record for name in given} == given
        assert Reply(made.names.answer_dns_query(query("late.example.org", AAAA))).code == SERVFAIL
    finally:
        _closed(made)


@pytest.mark.parametrize(("pool", "network"), [("POOL", "198.18.0.0/15"), ("LOCAL_POOL", "127.64.0.0/10")])
def test_every_name_that_may_be_given_stays_in_the_pool(pool: str, network: str) -> None:
    made = _egress(["*.example.org"], pool=pool)
    try:
        found = [made.names.reserve_address(f"n{number}.example.org") for number in range(dns_of.NAMES)]
        assert len(set(found)) == dns_of.NAMES
        assert all(ipaddress.ip_address(one) in ipaddress.ip_network(network) for one in found)
        assert all(made.rules.pool.contains_address(one) for one in found)
        for outside in (next(iter(ipaddress.ip_network(network))) - 1, ipaddress.ip_network(network)[-1] + 1):
            assert not made.rules.pool.contains_address(outside.packed)
        assert made.names.reserve_address("late.example.org") is None
    finally:
        _closed(made)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(query("github.com")[:11], id="half-a-head"),
        pytest.param(query("github.com", flags=0x8180), id="an-answer"),
    ],
)
def test_what_is_no_query_is_not_answered(egress: egress_of.Egress, data: bytes) -> None:  # type: ignore[name-defined]
    assert egress.names.answer_dns_query(data) == b""


GOOD = query("github.com")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        *(pytest.param(GOOD[:end], FORMERR, id=f"cut-at-{end}") for end in range(12, len(GOOD))),
        pytest.param(query(b"\xc0\x0c"), FORMERR, id="pointer-to-itself"),
        pytest.param(query(b"\6github\xc0\x0c"), FORMERR, id="pointer-in-a-loop"),
        pytest.param(query(b"\x40" + b"a" * 64 + b"\0"), FORMERR, id="X11-label-64"),
        pytest.param(query(b"\x80" + b"a" * 128 + b"\0"), FORMERR, id="reserved-label"),
        pytest.param(query((b"\x3f" + b"a" * 63) * 5 + b"\0"), FORMERR, id="X11-name-too-long"),
        pytest.param(query(b"\1a" * 200 + b"\0"), FORMERR, id="X11-many-labels"),
        pytest.param(query("github.com", counts=(0, 0, 0, 0)), FORMERR, id="no-question"),
        pytest.param(query("github.com", counts=(2, 0, 0, 0)), FORMERR, id="two-questions"),
        pytest.param(query("github.com", counts=(1, 1, 0, 0)), FORMERR, id="an-answer-in-a-query"),
        pytest.param(query("github.com", flags=0x2900), NOTIMP, id="an-update"),
        pytest.param(query("github.com", family=3), NOTIMP, id="chaos"),
    ],
)
def test_a_malformed_query_is_told_so(egress: egress_of.Egress, data: bytes, code: int) -> None:  # type: ignore[name-defined]
    found = Reply(egress.names.answer_dns_query(data))
    assert (found.code, found.record, found.number) == (code, None, 0x1234)


def test_options_at_the_end_of_a_query_are_no_harm(egress: egress_of.Egress) -> None:  # type: ignore[name-defined]
    found = Reply(egress.names.answer_dns_query(query("github.com", counts=(1, 0, 0, 1)) + b"\0\0\x29\x04\xd0\0\0\0\0\0\0"))
    assert found.record
    assert found.question == encoded("github.com") + b"\0\1\0\1"


# --- HTTP heads


def head(first: bytes, *lines: bytes) -> bytes:
    return b"\r\n".join((first, *lines, b"", b""))


def passed_on(data: bytes, host: bytes = b"a.example") -> list[bytes]:
    lines: list[bytes] = wire.http_request(data).build_forwarded_head(host).split(b"\r\n")
    assert lines[-2:] == [b"", b""]
    return lines[:-2]


def test_x23_the_host_is_rewritten_and_the_connection_ends() -> None:
    data = head(b"GET http://A.example.:80/p?q=http://b/ HTTP/1.1", b"Host: a.EXAMPLE", b"Accept: */*", b"X: \xc3\xa4\ty")
    assert passed_on(data) == [b"GET /p?q=http://b/ HTTP/1.1", b"Host: a.example", b"Accept: */*", b"X: \xc3\xa4\ty", b"Connection: close"]


def test_hop_by_hop_headers_end_here() -> None:
    data = head(
        *(b"POST http://a.example/ HTTP/1.1", b"Host: a.example", b"Connection: keep-alive, X-Secret ,x-other", b"Keep-Alive: 5", b"Proxy-Connection: close"),
        *(
            b"Proxy-Authorization: Basic eDp5",
            b"Proxy-Authenticate: x",
            b"TE: trailers",
            b"Trailer: x",
            b"Upgrade: h2c",
            b"x-secret: 1",
            b"X-OTHER: 2",
            b"Content-Length: 3",
            b"Kept: 1",
        ),
    )
    assert passed_on(data) == [b"POST / HTTP/1.1", b"Host: a.example", b"Content-Length: 3", b"Kept: 1", b"Connection: close"]


def test_x35_an_upgrade_is_passed_on_where_it_is_asked_for_as_one() -> None:
    lines = (b"Host: a.example", b"Upgrade: websocket", b"Connection: Upgrade")
    assert passed_on(head(b"GET http://a.example/ HTTP/1.1", *lines))[2:] == [b"Connection: Upgrade", b"Upgrade: websocket"]
    assert passed_on(head(b"GET http://a.example/ HTTP/1.1", *lines[:2]))[2:] == [b"Connection: close"]


@pytest.mark.parametrize(
    ("first", "lines", "authority", "path", "length"),
    [
        pytest.param(b"CONNECT a.example:443 HTTP/1.1", [b"Host: a.example:443"], b"a.example:443", b"", 0, id="connect"),
        pytest.param(b"CONNECT a.example:443 HTTP/1.1", [b"Host: a.example"], b"a.example:443", b"", 0, id="connect-host-without-port"),
        pytest.param(b"CONNECT a.example:443 HTTP/1.0", [], b"a.example:443", b"", 0, id="connect-1.0"),
        pytest.param(b"CONNECT [::1]:443 HTTP/1.1", [b"Host: [::1]:443"], b"[::1]:443", b"", 0, id="X15-connect"),
        pytest.param(b"GET http://a.example HTTP/1.1", [b"Host: a.example"], b"a.example", b"/", 0, id="no-path"),
        pytest.param(b"GET HTTP://a.example?x HTTP/1.1", [b"Host: a.example"], b"a.example", b"/?x", 0, id="query-alone"),
        pytest.param(b"GET http://a.example:81/ HTTP/1.1", [b"Host: a.example:81"], b"a.example:81", b"/", 0, id="port"),
        pytest.param(b"GET http://a.example/ HTTP/1.0", [], b"a.example", b"/", 0, id="1.0"),
        pytest.param(b"PUT http://a.example/ HTTP/1.1", [b"Host:a.example", b"content-LENGTH:  12 "], b"a.example", b"/", 12, id="length"),
        pytest.param(b"PUT http://a.example/ HTTP/1.1", [b"Host: a.example", b"Transfer-Encoding: Chunked"], b"a.example", b"/", -1, id="chunked"),
        pytest.param(b"GET http://a.example/@b\\c HTTP/1.1", [b"Host: a.example"], b"a.example", b"/@b\\c", 0, id="odd-path"),
    ],
)
def test_a_request_is_read(first: bytes, lines: list[bytes], authority: bytes, path: bytes, length: int) -> None:
    request = wire.http_request(head(first, *lines) + b"\x16\3rest")
    assert (request.method, request.authority, request.path, request.length) == (first.split()[0], authority, path, length)
    assert request.rest == b"\x16\3rest", "X27: what was pipelined is kept for after the verdict"


HOST = b"Host: a.example"
GET = b"GET http://a.example/ HTTP/1.1"
BAD_HEADS = [
    pytest.param(head(GET, b"Host: evil.example"), id="X23-other-host"),
    pytest.param(head(GET, b"Host: a.example:81"), id="X23-other-port"),
    pytest.param(head(GET, b"Host: xa.example"), id="X23-longer-host"),
    pytest.param(head(GET, b"Host: a.example.evil"), id="X23-prefix"),
    pytest.param(head(GET, b"Host:"), id="X23-empty-host"),
    pytest.param(head(GET, b"Host: a.example, b"), id="X23-two-in-one"),
    pytest.param(head(b"CONNECT a.example:443 HTTP/1.1", b"Host: b.example:443"), id="X23-connect"),
    pytest.param(head(b"CONNECT a.example:443 HTTP/1.1", b"Host: a.example:80"), id="X23-connect-port"),
    pytest.param(head(b"GET / HTTP/1.1", HOST), id="X24-origin-form"),
    pytest.param(head(b"GET a.example/ HTTP/1.1", HOST), id="X24-no-scheme"),
    pytest.param(head(b"GET //a.example/ HTTP/1.1", HOST), id="X24-two-slashes"),
    pytest.param(head(b"OPTIONS * HTTP/1.1", HOST), id="X24-star"),
    pytest.param(head(b"GET https://a.example/ HTTP/1.1", HOST), id="X24-https"),
    pytest.param(head(b"GET ftp://a.example/ HTTP/1.1", HOST), id="X24-ftp"),
    pytest.param(head(b"GET http:/a.example/ HTTP/1.1", HOST), id="X24-one-slash"),
    pytest.param(head(b"GET http:\\\\a.example/ HTTP/1.1", HOST), id="X24-backslashes"),
    pytest.param(head(b"GET http://a.example#@evil/ HTTP/1.1", HOST), id="X07-fragment-in-the-host"),
    pytest.param(head(b"GET http://a.example/#x HTTP/1.1", HOST), id="X07-fragment"),
    pytest.param(head(GET, HOST, HOST), id="X25-two-hosts"),
    pytest.param(head(GET, HOST, b"hOST: evil"), id="X25-two-hosts-two-spellings"),
    pytest.param(head(GET), id="X25-no-host"),
    pytest.param(head(GET, HOST, b" folded: x"), id="X25-obs-fold"),
    pytest.param(head(GET, HOST, b"\tfolded"), id="X25-obs-fold-tab"),
    pytest.param(head(GET, b" " + HOST), id="X25-fold-at-the-first"),
    pytest.param(head(GET, b"Host : a.example"), id="X25-space-before-the-colon"),
    pytest.param(head(GET, HOST, b"Content-Length : 3"), id="X25-length-with-a-space"),
    pytest.param(head(GET, HOST, b"no colon"), id="X25-no-colon"),
    pytest.param(head(GET, HOST, b": x"), id="X25-no-name"),
    pytest.param(head(GET, HOST, b"X: a\0b"), id="X25-nul"),
    pytest.param(head(GET, HOST, b"X\xe4: a"), id="X25-name-not-ascii"),
    pytest.param(GET + b"\n" + HOST + b"\r\n\r\n", id="X25-bare-lf"),
    pytest.param(GET + b"\n" + HOST + b"\n\n", id="X25-all-bare-lf"),
    pytest.param(GET + b"\r" + HOST + b"\r\n\r\n", id="X25-bare-cr"),
    pytest.param(head(GET, HOST, b"X: a\rContent-Length: 3"), id="X25-cr-in-a-value"),
    pytest.param(head(GET, HOST, b"X: a\nContent-Length: 3"), id="X25-lf-in-a-value"),
    pytest.param(head(GET, HOST, b"X: a\r\r"), id="X25-cr-cr-lf"),
    pytest.param(head(GET, HOST, b"Content-Length: 3", b"Transfer-Encoding: chunked"), id="X25-cl-te"),
    pytest.param(head(GET, HOST, b"Transfer-Encoding: chunked", b"Content-Length: 3"), id="X25-te-cl"),
    pytest.param(head(GET, HOST, b"Content-Length: 3", b"Content-Length: 3"), id="X25-two-lengths"),
    pytest.param(head(GET, HOST, b"Content-Length: 3, 3"), id="X25-length-list"),
    *(
        pytest.param(head(GET, HOST, b"Content-Length: " + value), id=f"X25-length-{value!r}")
        for value in (b"", b"+3", b"-1", b"0x3", b"3 3", b"1" * 19, b"\xb2", b"1_0")
    ),
    *(
        pytest.param(head(GET, HOST, b"Transfer-Encoding: " + value), id=f"X25-coding-{value!r}")
        for value in (b"", b"gzip", b"gzip, chunked", b"chunked, chunked", b"xchunked", b"chunked;q=1", b"identity", b"\x0bchunked", b'"chunked"')
    ),
    pytest.param(head(GET, HOST, b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"), id="X25-two-codings"),
    pytest.param(head(GET.replace(b"1.1", b"1.0"), HOST, b"Transfer-Encoding: chunked"), id="X25-coding-1.0"),
    pytest.param(head(GET, HOST, b"Connection: Content-Length", b"Content-Length: 3"), id="X25-length-named-by-connection"),
    pytest.param(head(GET, HOST, b"Connection: close, transfer-encoding", b"Transfer-Encoding: chunked"), id="X25-coding-named-by-connection"),
    pytest.param(head(b"get http://a.example/ HTTP/1.1", HOST), id="X35-lower-case"),
    pytest.param(head(b"connect a.example:443 HTTP/1.1", HOST), id="X35-lower-case-connect"),
    pytest.param(head(b"Get http://a.example/ HTTP/1.1", HOST), id="X35-mixed-case"),
    pytest.param(head(b"TRACE http://a.example/ HTTP/1.1", HOST), id="X35-trace"),
    pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="X31-preface-of-http2"),
    pytest.param(head(GET.replace(b"1.1", b"1.2"), HOST), id="version-1.2"),
    pytest.param(head(GET.replace(b"HTTP/1.1", b"HTTP/2"), HOST), id="version-2"),
    pytest.param(head(GET.replace(b"HTTP/1.1", b"http/1.1"), HOST), id="version-lower-case"),
    pytest.param(head(b"GET http://a.example/", HOST), id="version-0.9"),
    pytest.param(head(GET.replace(b" ", b"  ", 1), HOST), id="two-spaces"),
    pytest.param(head(GET.replace(b" ", b"\t"), HOST), id="tabs"),
    pytest.param(head(GET + b" ", HOST), id="space-at-the-end"),
    pytest.param(head(b"GET http://a.example/a b HTTP/1.1", HOST), id="X07-space-in-the-path"),
    pytest.param(head(b"GET http://a.example/\0 HTTP/1.1", HOST), id="X06-nul-in-the-path"),
    pytest.param(b"\r\n" + head(GET, HOST), id="empty-line-first"),
    pytest.param(b" " + head(GET, HOST), id="space-first"),
    pytest.param(b"\x16\3\1\0\5hello", id="X30-tls-to-the-proxy"),
    pytest.param(b"\x04\1\0\x50\0\0\0\1x\0", id="X34-socks4"),
    pytest.param(head(GET, HOST, b"X: " + b"a" * 16384), id="X37-16-kib"),
    pytest.param(GET + b"\r\nX: " + b"a" * 16384, id="X37-16-kib-and-no-end"),
    pytest.param(b"G" * 16385, id="X37-16-kib-of-a-line"),
]


@pytest.mark.parametrize("data", BAD_HEADS)
def test_a_request_that_can_be_read_in_two_ways_is_refused(data: bytes) -> None:
    with pytest.raises(Bad) as caught:
        wire.http_request(data)
    assert caught.value.status[:3] == {b"TRACE": "405"}.get(data[:5], "431" if len(data) > 16384 else "400")


@pytest.mark.parametrize(
    "authority",
    [
        b"user@a.example",
        b"user:pw@a.example",
        b"a.example@evil.example",
        b"a.example%00",
        b"a%2eexample",
        b"a.example\\@evil",
        b"",
        b":80",
        b"a.example:080",
        b"a.example:",
    ],
    ids=lambda text: f"X07-X08-{text!r}",
)
def test_an_authority_that_is_no_host_goes_no_further_than_the_decision(authority: bytes) -> None:
    request = wire.http_request(head(b"GET http://" + authority + b"/ HTTP/1.1", b"Host: " + authority))
    with pytest.raises(names.BadNameError):
        names.parse_authority(request.authority, port=80)


def test_a_head_of_just_16_kib_is_read() -> None:
    start = GET + b"\r\n" + HOST + b"\r\nX: "
    assert wire.http_request(start + b"a" * (16384 - len(start)) + b"\r\n\r\n").fields == [(b"X", b"a" * (16384 - len(start)))]


def test_a_head_is_read_when_it_is_whole_and_not_before() -> None:
    data = head(GET, HOST, b"Content-Length: 3")
    assert [wire.http_request(data[:end]) for end in range(len(data))] == [None] * len(data)
    assert wire.http_request(data).length == 3


# What is refused is refused at once, as all conversations share one thread.
_STALL = "defect: the pattern of a header backtracks over spaces, in the cube of their number: 16 KiB stall every conversation for an hour"


@pytest.mark.parametrize("filler", [b" ", b"\t"])
def test_x37_spaces_in_a_header_cost_no_more_than_letters(filler: bytes) -> None:
    def read(number: int) -> None:
        with pytest.raises(Bad):
            wire.http_request(head(GET, HOST, b"X:" + filler * number + b"\0"))

    assert growth(read, 200) < LINEAR


def test_x37_spaces_in_a_trailer_cost_no_more_than_letters() -> None:
    def read(number: int) -> None:
        with pytest.raises(Bad):
            wire.Chunks().count_body_bytes(b"0\r\nX:" + b" " * number + b"\0\r\n")

    assert growth(read, 200) < LINEAR


@pytest.mark.parametrize(
    ("data", "status", "expected"),
    [
        (head(b"HTTP/1.1 200 OK", b"Connection: keep-alive", b"A: b"), 200, head(b"HTTP/1.1 200 OK", b"A: b", b"Connection: close")),
        (head(b"HTTP/1.1 404", b"keep-ALIVE: 5", b"Proxy-Connection: x"), 404, head(b"HTTP/1.1 404", b"Connection: close")),
        (head(b"HTTP/1.1 100 Continue"), 100, head(b"HTTP/1.1 100 Continue")),
        (head(b"HTTP/1.1 101 S", b"Connection: Upgrade"), 101, head(b"HTTP/1.1 101 S", b"Connection: Upgrade")),
    ],
)
def test_an_answer_says_that_its_connection_ends(data: bytes, status: int, expected: bytes) -> None:
    assert wire.http_status(data[:-1]) is None
    assert wire.http_status(data + b"body") == (status, expected, b"body")


@pytest.mark.parametrize("line", [b"HTTP/2 200 OK", b"HTTP/1.1 600 X", b"HTTP/1.1 20 X", b"HTTP/1.1 200OK", b"ICY 200 OK", b"", b"HTTP/1.1 200 a\0"])
def test_what_is_no_answer_is_refused(line: bytes) -> None:
    with pytest.raises(Bad) as caught:
        wire.http_status(head(line, b"A: b"))
    assert caught.value.status.startswith("502")


# --- chunks

BODIES = [
    b"0\r\n\r\n",
    b"3\r\nabc\r\n0\r\n\r\n",
    b"a;name=value\r\n0123456789\r\n1;x\r\n\n\r\n000\r\nTrailer: x\r\nB:\r\n\r\n",
    b"2\r\n\r\n\r\n00000000000F\r\n" + b"\r\n0\r\n\r\n".ljust(15, b"x") + b"\r\n0\r\n\r\n",
]
AFTER = b"GET http://evil/ HTTP/1.1\r\n\r\n"


@pytest.mark.parametrize("body", BODIES)
def test_x25_a_chunked_body_ends_where_it_ends_under_every_split_in_three(body: bytes) -> None:
    data = body + AFTER
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            chunks, taken = wire.Chunks(), 0
            for piece in (data[:first], data[first:second], data[second:]):
                count = chunks.count_body_bytes(piece)
                assert count == len(piece) or chunks.done
                taken += count
            assert chunks.done
            assert taken == len(body), (first, second)


@pytest.mark.parametrize("body", BODIES)
def test_a_chunked_body_byte_by_byte(body: bytes) -> None:
    chunks = wire.Chunks()
    for at in range(len(body)):
        assert not chunks.done
        assert chunks.count_body_bytes(body[at : at + 1]) == 1
    assert chunks.done
    assert chunks.count_body_bytes(AFTER) == 0


BAD_CHUNKS = [
    *(
        b"\r\n",
        b"-1\r\n",
        b"+1\r\nx\r\n",
        b"0x1\r\nx\r\n",
        b" 1\r\nx\r\n",
        b"1 \r\nx\r\n",
        b"1\nx\r\n",
        b"1\r\nxy\r\n",
        b"1\r\nx\n",
        b"1\r\nx0\r\n\r\n",
        b"g\r\n",
        b"1_0\r\n",
    ),
    *(
        b"1\r\nx\r\n\r\n",
        b"1" * 13 + b"\r\n",
        b"1;a\0b\r\n",
        b"1;a\rb\r\n",
        b"0\r\n folded\r\n\r\n",
        b"0\r\nA: b\n\r\n",
        b"0\r\n\n",
        b"0\r\nA : b\r\n",
        b"0\r\nA: b\rc\r\n",
        b"\xb2\r\n",
    ),
    *(b"1;" + b"a" * 1100 + b"\r\n", b"1;" + b"a" * 1100, b"0\r\nA: " + b"b" * 1100 + b"\r\n", b"1\r\nx" + b"a" * 1100),
]


@pytest.mark.parametrize("body", BAD_CHUNKS, ids=lambda body: f"X25-{body[:16]!r}")
def test_a_chunk_that_can_be_read_in_two_ways_is_refused_under_every_split(body: bytes) -> None:
    for first in range(min(len(body), 40) + 1):
        chunks = wire.Chunks()
        with pytest.raises(Bad):
            list(map(chunks.count_body_bytes, (body[:first], body[first:])))
        assert not chunks.done


# --- SOCKS5


def socks(kind: int, address: bytes, port: int = 443, command: int = 1, version: int = 5) -> bytes:
    return bytes((version, command, 0, kind)) + address + struct.pack("!H", port)


@pytest.mark.parametrize(
    ("data", "host", "port"),
    [
        pytest.param(socks(3, b"\x0agithub.com"), b"github.com", 443, id="X34-name"),
        pytest.param(socks(3, b"\xff" + b"a" * 255, 1), b"a" * 255, 1, id="X34-length-255"),
        pytest.param(socks(3, b"\x0b127.0.0.1\0x"), b"127.0.0.1\0x", 443, id="X34-nul-is-kept-for-the-decision"),
        pytest.param(socks(1, b"\x7f\0\0\1", 0), b"127.0.0.1", 0, id="X34-v4"),
        pytest.param(socks(4, bytes(10) + b"\xff\xff\x7f\0\0\1", 65535), b"[0000:0000:0000:0000:0000:ffff:7f00:0001]", 65535, id="X34-v6"),
    ],
)
def test_a_socks_request_is_read(data: bytes, host: bytes, port: int) -> None:
    assert [wire.socks_request(data[:end]) for end in range(len(data))] == [None] * len(data)
    assert wire.socks_request(data + b"rest") == (wire.GRANTED, host, port, b"rest")


def test_x34_an_address_in_socks_meets_the_rules_of_addresses() -> None:
    _, host, _, _ = wire.socks_request(socks(4, bytes(10) + b"\xff\xff\x7f\0\0\1"))
    assert names.parse_target(host).address == b"\x7f\0\0\1"
    _, host, _, _ = wire.socks_request(socks(3, b"\x0agithub.com"[:1] + b"127.0.0.\x001"))
    with pytest.raises(names.BadNameError):
        names.parse_target(host)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        pytest.param(socks(1, b"\1\2\3\4", command=2), 7, id="X34-bind"),
        pytest.param(socks(1, b"\1\2\3\4", command=3), 7, id="X34-udp"),
        pytest.param(socks(1, b"\1\2\3\4", command=0), 7, id="X34-no-command"),
        pytest.param(socks(1, b"\1\2\3\4", version=4), 7, id="X34-version-4"),
        pytest.param(socks(3, b"\0"), 8, id="X34-length-0"),
        pytest.param(socks(2, b"\1\2\3\4"), 8, id="X34-kind-2"),
        pytest.param(socks(0, b"\1\2\3\4"), 8, id="X34-kind-0"),
    ],
)
def test_x34_other_socks_requests_are_refused(data: bytes, code: int) -> None:
    assert wire.socks_request(data) == (code, b"", 0, b"")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        pytest.param(b"\5\1\0", (0, b""), id="nobody"),
        pytest.param(b"\5\3\2\1\0rest", (0, b"rest"), id="nobody-before-a-password"),
        pytest.param(b"\5\2\1\2", (2, b""), id="password"),
        pytest.param(b"\5\1\1", (255, b""), id="gssapi-alone"),
        pytest.param(b"\5\0", (255, b""), id="none"),
        pytest.param(b"\5\xff" + b"\1" * 254 + b"\0", (0, b""), id="255"),
        pytest.param(b"\5\2\0", None, id="short"),
        pytest.param(b"\5", None, id="shorter"),
    ],
)
def test_x34_a_way_to_log_in_is_chosen(data: bytes, expected: tuple[int, bytes] | None) -> None:
    assert wire.socks_greeting(data) == expected


@pytest.mark.parametrize("name", [b"", b"u", b"u" * 255])
@pytest.mark.parametrize("word", [b"", b"p", b"\0" * 255])
def test_x36_whoever_logs_in_may(name: bytes, word: bytes) -> None:
    data = b"\1" + bytes([len(name)]) + name + bytes([len(word)]) + word
    assert [wire.socks_login(data[:end]) for end in range(len(data))] == [None] * len(data)
    assert wire.socks_login(data + b"rest") == b"rest"


def test_a_socks_reply_has_no_address() -> None:
    assert wire.socks_reply(2) == b"\5\2\0\1\0\0\0\0\0\0"


# --- TLS


def real_hello(name: str | None, *, alpn: tuple[str, ...] = ("h2", "http/1.1"), newest: bool = True) -> bytes:
    """A ClientHello of OpenSSL's, in its own record."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(list(alpn))
    if not newest:
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(arriving, leaving, server_hostname=name).do_handshake()
    return leaving.read()


def records(handshake: bytes, size: int = 16384, version: bytes = b"\3\1") -> bytes:
    pieces = [handshake[at : at + size] for at in range(0, len(handshake), size)]
    return b"".join(b"\x16" + version + struct.pack("!H", len(piece)) + piece for piece in pieces)


def vector(width: int, data: bytes) -> bytes:
    return len(data).to_bytes(width, "big") + data


def extension(kind: int, body: bytes) -> bytes:
    return struct.pack("!H", kind) + vector(2, body)


def sni(*found: bytes, sort: int = 0) -> bytes:
    return extension(0, vector(2, b"".join(bytes([sort]) + vector(2, name) for name in found)))


def hello(*extensions: bytes, tail: bytes = b"", after: bytes = b"", kind: int = 1) -> bytes:
    """A ClientHello of the test's own, as a handshake message."""
    listed = vector(2, b"".join(extensions)) if extensions else b""
    body = b"\3\3" + bytes(32) + vector(1, bytes(32)) + vector(2, b"\x13\1") + vector(1, b"\0") + listed + tail
    return bytes([kind]) + vector(3, body) + after


def fed(data: bytes, step: int = 0) -> tuple[bytes, ...] | None:
    reader = wire.ClientHello()
    for at in range(0, len(data), step or len(data)):
        found: tuple[bytes, ...] | None = reader.feed_bytes(data[at : at + (step or len(data))])
        if found is not None:
            return found
    return None


@pytest.mark.parametrize("newest", [True, False], ids=["1.3", "1.2"])
@pytest.mark.parametrize("size", [1, 2, 5, 100, 16384])
@pytest.mark.parametrize("step", [0, 1, 3, 7, 100])
def test_x29_a_real_hello_is_read_however_it_is_cut(newest: bool, size: int, step: int) -> None:
    data = records(real_hello("github.com", newest=newest)[5:], size)
    assert fed(data, step) == (b"github.com",)
    assert fed(data[:-1], step) is None


def test_x29_a_real_hello_that_names_nobody() -> None:
    assert fed(real_hello(None)) == ()


def test_x29_a_real_hello_of_many_records() -> None:
    data = real_hello("github.com", alpn=tuple(f"protocol-{number:04}" for number in range(3000)))
    assert len(data) > 2 * 16384
    assert fed(data, 1000) == (b"github.com",)


@pytest.mark.parametrize(
    ("handshake", "expected"),
    [
        pytest.param(hello(sni(b"GitHub.com.")), (b"GitHub.com.",), id="as-it-came"),
        pytest.param(hello(), (), id="no-extensions"),
        pytest.param(hello(extension(10, b"x")), (), id="no-server-name"),
        pytest.param(hello(extension(0, b"\0\0")), (), id="an-empty-list"),
        pytest.param(hello(extension(0xFE0D, b"\0" * 200), sni(b"outer.example")), (b"outer.example",), id="ech-outer-name"),
        pytest.param(hello(sni(b"outer.example"), extension(0xFE0D, vector(2, sni(b"inner.example")))), (b"outer.example",), id="ech-after"),
        pytest.param(hello(extension(0xFE0D, sni(b"inner.example"))), (), id="ech-alone"),
        pytest.param(hello(extension(21, sni(b"in-the-padding")), sni(b"a.example")), (b"a.example",), id="name-in-the-padding"),
        pytest.param(hello(sni(b"a.example"), after=b"\x14\0\0\0garbage"), (b"a.example",), id="garbage-after-the-message"),
        pytest.param(hello(sni(b"127.0.0.1")), (b"127.0.0.1",), id="an-address"),
        pytest.param(hello(sni(b"a\0b")), (b"a\0b",), id="X06-nul-is-kept-for-the-check"),
    ],
)
def test_x29_server_names(handshake: bytes, expected: tuple[bytes, ...]) -> None:
    for size in (1, 5, 16384):
        assert fed(records(handshake, size)) == expected
        assert fed(records(handshake, size), 1) == expected
    assert fed(records(handshake) + b"\x17\3\3\0\1x") == expected


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9\r\n", id="X30-ssh"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="X30-http"),
        pytest.param(b"\0\0\0\0\0", id="X30-nothing"),
        pytest.param(b"\x80\x2e\1\0\2\0\x15\0\0\0\x10" + bytes(40), id="X29-sslv2"),
        pytest.param(b"\x16\2\0\0\5\1\0\0\1\0", id="version-2"),
        pytest.param(b"\x15\3\1\0\2\2\x70", id="an-alert"),
        pytest.param(b"\x17\3\3\0\1x", id="data"),
        pytest.param(b"\x16\3\1\0\0", id="an-empty-record"),
        pytest.param(b"\x16\3\1\xff\xff", id="a-record-too-long"),
        pytest.param(records(hello(sni(b"a.example"), kind=2)), id="a-server-hello"),
        pytest.param(records(hello(sni(b"a.example"))[:20]) + b"\x15\3\1\0\2\1\0" + records(hello(sni(b"a.example"))[20:]), id="an-alert-within"),
        pytest.param(records(hello(sni(b"a.example"))[:20]) + b"\x14\3\1\0\1\1" + records(hello(sni(b"a.example"))[20:]), id="a-change-of-cipher-within"),
        pytest.param(records(hello(sni(b"a.example"), sni(b"b.example"))), id="X29-server-name-twice"),
        pytest.param(records(hello(extension(10, b""), extension(10, b""), sni(b"a.example"))), id="X29-another-twice"),
        pytest.param(records(hello(sni(b"a.example", b"b.example"))), id="X29-two-names-in-a-list"),
        pytest.param(records(hello(sni(b"a.example", sort=1))), id="X29-a-name-of-another-sort"),
        pytest.param(records(hello(extension(0, vector(2, b"\0" + vector(2, b"a.example")) + b"x"))), id="X29-garbage-after-the-list"),
        pytest.param(records(hello(extension(0, b""))), id="X29-no-list"),
        pytest.param(records(hello(extension(0, b"\0\x0c\0\0\x0ea.example"))), id="X29-a-name-longer-than-its-list"),
        pytest.param(records(hello(sni(b"a.example"), tail=b"x")), id="X29-garbage-after-the-extensions"),
        pytest.param(records(hello(b"\0\0\0\xff")), id="X29-an-extension-longer-than-all"),
        pytest.param(records(b"\1\0\0\4abcd"), id="X29-short"),
        pytest.param(records(b"\1\0\0\0"), id="X29-empty"),
        pytest.param(records(b"\1" + vector(3, bytes(65536))), id="X29-longer-than-64-kib"),
        pytest.param(b"\x16\3\1\0\4\1\xff\xff\xff", id="X29-says-16-mib"),
    ],
)
def test_x29_x30_what_is_no_hello_is_refused_however_it_is_cut(data: bytes) -> None:
    for step in (0, 1, 7):
        with pytest.raises(Bad):
            fed(data, step)


@pytest.mark.parametrize("end", range(4, len(hello(sni(b"a.example")))))
def test_x29_a_hello_that_says_it_is_shorter_is_malformed(end: int) -> None:
    whole = hello(sni(b"a.example"))
    cut = b"\1" + vector(3, whole[4:end])
    if cut[4:] == hello()[4:]:
        assert fed(records(cut)) == ()
        return
    with pytest.raises(Bad):
        fed(records(cut))


def test_x29_the_bound_is_64_kib_and_what_is_kept_is_bounded() -> None:
    longest = hello(sni(b"a.example"), extension(21, bytes(65000)))
    assert 65000 < len(longest) <= 65536
    assert fed(records(longest, 100)) == (b"a.example",)
    # As records of one byte it takes six times as much on the wire, and is not kept like that.
    reader = wire.ClientHello()
    for byte in b"\1\0\xff\xf0" + bytes(0xFFF0 - 1):
        assert reader.feed_bytes(b"\x16\3\1\0\1" + bytes([byte])) is None
        assert len(reader._raw) == 0
    assert len(reader._hello) == 0xFFF0 + 3


def test_x29_the_time_of_a_hello_grows_with_its_length_alone() -> None:
    def seconds(padding: int) -> float:
        data = records(hello(sni(b"a.example"), extension(21, bytes(padding))), 1)
        best = 9.0
        for _ in range(3):
            started = time.process_time()
            assert fed(data, 6) == (b"a.example",)
            best = min(best, time.process_time() - started)
        return best

    # Eight times as long; in the square it would be 64 times.
    assert seconds(64_000) < 24 * seconds(8_000)


@pytest.mark.parametrize(
    ("said", "entry", "flags", "reason"),
    [
        pytest.param((b"github.com",), "github.com", "", "", id="the-name"),
        pytest.param((b"GitHub.com.",), "github.com", "", "", id="another-spelling"),
        pytest.param((b"evil.com",), "github.com", "", "sni-mismatch", id="X28"),
        pytest.param((b"a.github.com",), "github.com", "", "sni-mismatch", id="X28-below"),
        pytest.param((), "github.com", "", "sni-missing", id="X29-none"),
        pytest.param((), "github.com", "no-sni", "", id="X29-none-allowed"),
        pytest.param((b"evil.com",), "github.com", "no-sni", "sni-mismatch", id="X28-no-sni-is-not-any"),
        pytest.param((b"127.0.0.1",), "github.com", "", "sni-mismatch", id="X29-address"),
        pytest.param((b"[::1]",), "github.com", "", "sni-mismatch", id="X29-address-six"),
        pytest.param((b"github.com\0.evil.com",), "github.com", "", "sni-mismatch", id="X06-nul"),
        pytest.param((b"",), "github.com", "", "sni-mismatch", id="X29-empty"),
        pytest.param((b"whoever.example",), "9.9.9.9", "", "", id="a-listed-address"),
    ],
)
def test_x28_the_server_name_is_the_name_that_was_judged(said: tuple[bytes, ...], entry: str, flags: str, reason: str) -> None:
    target = names.parse_target(entry.encode())
    assert egress_of._server_name_refusal(said, target, rules_of.Rule(entry, "line 1", flags)) == reason
