"""What clients say, byte for byte: DNS questions, HTTP heads, SOCKS5, the ClientHello of TLS. Pure.

Each reader takes what has arrived so far and gives None while something is missing. What is not exactly what it should
be is refused, as two readers of one message must never read it differently.

Standard library only; Python 3.9 and newer.

Longer than 400 lines: the parsers of one connection, which hand over to each other.
"""

from __future__ import annotations

import struct

HEAD_MAX = 16 * 1024
HELLO_MAX = 64 * 1024


class BadMessageError(Exception):
    """What was said is refused: why, and the HTTP status that says so."""

    def __init__(self, reason: str, status: str = "400 Bad Request") -> None:
        super().__init__(reason)
        self.status = status


# --- DNS (RFC 1035)

A, PTR, ANY = 1, 12, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP = 0, 1, 2, 3, 4
_HEADER = struct.Struct("!6H")
_RESPONSE, _AUTHORITATIVE, _RECURSION, _DESIRED, _OPCODE = 0x8000, 0x0400, 0x0080, 0x0100, 0x7800
_INTERNET = 1
_LABEL_MAX, _QUESTION_MAX = 63, 255
SECONDS_TO_LIVE = 600
"""Seconds: an address stays a name's as long as the shell lives."""


class Question:
    """One question: the labels of its name, and what is asked about it."""

    __slots__ = ("flags", "internet", "kind", "labels", "number", "text")

    def __init__(self, number: int, flags: int, labels: tuple[bytes, ...], kind: int, text: bytes, *, internet: bool) -> None:
        self.number, self.flags, self.labels, self.kind, self.text, self.internet = number, flags, labels, kind, text, internet


def dns_question(data: bytes) -> Question | bytes:
    """The question of a query; where it is none that can be answered, the answer that says so, which may be empty."""
    if len(data) < _HEADER.size:
        return b""
    number, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    if flags & _RESPONSE:
        return b""  # an answer to an answer would go back and forth
    if flags & _OPCODE:
        return _plain_answer(number, flags, NOTIMP)
    if questions != 1 or answers:
        return _plain_answer(number, flags, FORMERR)
    labels, at = [], _HEADER.size
    while True:
        length = data[at] if at < len(data) else -1
        if length == 0:
            break
        # No pointers: there is nothing before the first name.
        if not 0 < length <= _LABEL_MAX or at + 1 + length >= len(data) or at - _HEADER.size + length >= _QUESTION_MAX:
            return _plain_answer(number, flags, FORMERR)
        labels.append(data[at + 1 : at + 1 + length])
        at += 1 + length
    if at + 5 > len(data):
        return _plain_answer(number, flags, FORMERR)
    kind, family = struct.unpack_from("!2H", data, at + 1)
    return Question(number, flags, tuple(labels), kind, data[_HEADER.size : at + 5], internet=family in (_INTERNET, ANY))


def _plain_answer(number: int, flags: int, code: int) -> bytes:
    return _HEADER.pack(number, _RESPONSE | _RECURSION | flags & (_DESIRED | _OPCODE) | code, 0, 0, 0, 0)


def dns_answer(question: Question, code: int, record: tuple[int, bytes] | None = None) -> bytes:
    """An answer with at most one record: its kind and data. The question goes back as it came, in its own letters."""
    flags = _RESPONSE | _AUTHORITATIVE | _RECURSION | question.flags & _DESIRED | code
    head = _HEADER.pack(question.number, flags, 1, 1 if record else 0, 0, 0) + question.text
    if record is None:
        return head
    kind, data = record
    return head + struct.pack("!3HIH", 0xC000 | _HEADER.size, kind, _INTERNET, SECONDS_TO_LIVE, len(data)) + data


def dns_name(name: str) -> bytes:
    """A name as DNS writes it."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


# --- HTTP/1 (RFC 9112)

_UPPER, _DIGITS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0123456789"
_TOKEN = b"!#$%&'*+.^_`|~-" + _DIGITS + _UPPER + _UPPER.lower()
_CONTROLS = bytes((*range(9), *range(10, 32), 127))  # all but the tab
_BLANKS_AND_CONTROLS = bytes((*range(33), 127))
_METHOD_MAX, _LENGTH_MAX, _CHUNK_SIZE_MAX = 32, 18, 12
"""Letters of a method, decimal digits of a Content-Length, hexadecimal digits of a chunk's size."""
# Of one connection, not of the message; and what the client told the proxy alone.
_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"te", b"trailer", b"upgrade", b"host")
)
CHUNKED = -1


class Request:
    """A request to the proxy. `rest` are the bytes after its head; `length` those of its body, or CHUNKED."""

    __slots__ = ("authority", "fields", "length", "method", "minor", "path", "rest", "upgrade")

    def __init__(self, method: bytes, authority: bytes, path: bytes, minor: bytes) -> None:
        self.method, self.authority, self.path, self.minor = method, authority, path, minor
        self.fields: list[tuple[bytes, bytes]] = []
        self.length = 0
        self.upgrade = b""
        self.rest = b""

    def build_forwarded_head(self, host: bytes, *, absolute: bool = False, extra: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
        """As it is passed on: its host is the one that was judged, and its connection ends with it."""
        path = b"http://" + host + self.path if absolute else self.path
        lines = [self.method + b" " + path + b" HTTP/1." + self.minor, b"Host: " + host]
        lines += [name + b": " + value for name, value in (*self.fields, *extra)]
        lines += [b"Connection: Upgrade", b"Upgrade: " + self.upgrade] if self.upgrade else [b"Connection: close"]
        return b"\r\n".join((*lines, b"", b""))


def http_head(data: bytes, most: int = HEAD_MAX) -> tuple[list[bytes], bytes] | None:
    """The lines of a head, and what follows it. A line ends with CR LF and nothing else does."""
    end = data.find(b"\r\n\r\n")
    head = data[:end] if end >= 0 else data
    if len(head) > most:
        raise BadMessageError("the head is longer than 16 KiB", "431 Request Header Fields Too Large")
    bare = head.replace(b"\r\n", b"")
    if b"\n" in bare or b"\r" in (bare[:-1] if end < 0 else bare):
        raise BadMessageError("a line ends with CR or LF alone")
    return (head.split(b"\r\n"), data[end + 4 :]) if end >= 0 else None


def _parse_header_fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    return [_parse_header_field(line) for line in lines]


def _parse_header_field(line: bytes) -> tuple[bytes, bytes]:
    # No expression that could look at a character twice: a command chooses what stands here.
    name, colon, value = line.partition(b":")
    if not colon or not _consists_of(name, _TOKEN, len(name)) or value.translate(None, _CONTROLS) != value:
        raise BadMessageError("a header is malformed")
    return name, value.strip(b" \t")


def http_request(data: bytes) -> Request | None:
    """A request to a proxy: CONNECT host:port, or METHOD http://host/path."""
    if data and not (65 <= data[0] <= 90):
        raise BadMessageError("not HTTP")
    found = http_head(data)
    if found is None:
        return None
    lines, rest = found
    method, asked, minor = _request_line(lines[0])
    fields = _parse_header_fields(lines[1:])
    if method == b"TRACE":
        raise BadMessageError("TRACE would show what others added", "405 Method Not Allowed")
    if method == b"CONNECT":
        request = Request(method, asked, b"", minor)
    else:
        authority, path = _split_absolute_url(asked)
        request = Request(method, authority, path if path.startswith(b"/") else b"/" + path, minor)
        if b"#" in path:
            raise BadMessageError("a fragment is not sent")
    _apply_header_fields(request, fields)
    request.rest = rest
    return request


def _consists_of(text: bytes, letters: bytes, most: int) -> bool:
    return 0 < len(text) <= most and not text.translate(None, letters)


def _request_line(line: bytes) -> tuple[bytes, bytes, bytes]:
    """The method, what is asked for, and HTTP's minor version."""
    parts = line.split(b" ")
    if len(parts) == 3:
        method, asked, version = parts
        known = version in (b"HTTP/1.0", b"HTTP/1.1") and _consists_of(method, _UPPER + b"-", _METHOD_MAX) and method[:1] != b"-"
        if known and asked and asked.translate(None, _BLANKS_AND_CONTROLS) == asked:
            return method, asked, version[-1:]
    raise BadMessageError("the request line is malformed")


def _split_absolute_url(asked: bytes) -> tuple[bytes, bytes]:
    """The authority of http://host/path, and what follows it."""
    rest = asked[7:]
    end = min((at for at in map(rest.find, (b"/", b"?", b"#")) if at >= 0), default=len(rest))
    if asked[:7].lower() != b"http://" or rest[end : end + 1] == b"#":
        raise BadMessageError("this is a proxy: it takes CONNECT host:port, and http://host/path for other methods")
    return rest[:end], rest[end:] or b"/"


def _apply_header_fields(request: Request, fields: list[tuple[bytes, bytes]]) -> None:
    """How long its body is, and which of its headers go on."""
    by_name: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        by_name.setdefault(name.lower(), []).append(value)
    hosts, lengths, codings = (by_name.get(name, []) for name in (b"host", b"content-length", b"transfer-encoding"))
    if len(hosts) > 1 or (not hosts and request.minor == b"1"):
        raise BadMessageError("there must be one Host")
    if hosts and not _same_host(hosts[0], request):
        raise BadMessageError("Host is not the host of the request")
    if len(lengths) > 1 or (lengths and codings) or any(not _consists_of(value, _DIGITS, _LENGTH_MAX) for value in lengths):
        raise BadMessageError("the length is ambiguous")
    if codings and ([value.lower() for value in codings] != [b"chunked"] or request.minor == b"0"):
        raise BadMessageError("the only transfer coding is chunked")
    if request.method == b"CONNECT":
        return  # what follows its head is the tunnel's
    request.length = CHUNKED if codings else int(lengths[0]) if lengths else 0
    named = {token.strip().lower() for value in by_name.get(b"connection", []) for token in value.split(b",")}
    if named & {b"content-length", b"transfer-encoding"}:
        raise BadMessageError("Connection names the length")
    if b"upgrade" in named and len(by_name.get(b"upgrade", [])) == 1:
        if request.length:
            raise BadMessageError("an upgrade has a body")
        request.upgrade = by_name[b"upgrade"][0]
    request.fields = [(name, value) for name, value in fields if name.lower() not in _HOP_BY_HOP | named]


def _same_host(value: bytes, request: Request) -> bool:
    default = b":443" if request.method == b"CONNECT" else b":80"

    def canonical_authority(text: bytes) -> bytes:
        text = text.lower()
        host, colon, port = (text, b"", b"") if text.endswith(b"]") else text.rpartition(b":") if b":" in text else (text, b"", b"")
        host = host.removesuffix(b".")
        return host + (colon + port if colon + port not in (b"", default) else b"")

    said, asked = canonical_authority(value), canonical_authority(request.authority)
    # Some clients (java.net.http) leave the port out there, whatever it is.
    return said == asked or (request.method == b"CONNECT" and said == asked.rpartition(b":")[0])


def http_status(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The head of an answer: its status, the head as it is passed on (its connection ends with it), and what follows."""
    found = http_head(data)
    if found is None:
        return None
    lines, rest = found
    version, code, reason = lines[0][:9], lines[0][9:12], lines[0][12:]
    if (
        version not in (b"HTTP/1.0 ", b"HTTP/1.1 ")
        or len(code) != 3
        or not _consists_of(code, _DIGITS, 3)
        or code[:1] not in b"12345"
        or reason[:1] not in (b"", b" ")
        or reason.translate(None, _CONTROLS) != reason
    ):
        raise BadMessageError("not an HTTP answer", "502 Bad Gateway")
    status = int(code)
    if status >= 200:
        kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in (b"connection", b"keep-alive", b"proxy-connection")]
        lines = [lines[0], *kept, b"Connection: close"]
    return status, b"\r\n".join((*lines, b"", b"")), rest


class Chunks:
    """Follows a chunked body to its end, so that nothing behind it is passed on."""

    _LINE_MAX = 1024

    def __init__(self) -> None:
        self._line = b""
        self._left = 0
        self._state = "size"
        self.done = False

    def count_body_bytes(self, data: bytes) -> int:
        """How many of these bytes belong to the body. Raises BadMessageError."""
        at = 0
        while at < len(data) and not self.done:
            if self._state == "data":
                step = min(self._left, len(data) - at)
                at += step
                self._left -= step
                if not self._left:
                    self._state = "end"
                continue
            end = data.find(b"\n", at)
            piece = data[at : end + 1] if end >= 0 else data[at:]
            at += len(piece)
            self._line += piece
            if len(self._line) > self._LINE_MAX:
                raise BadMessageError("a line of a chunk is too long")
            if end >= 0:
                line, self._line = self._line, b""
                self._process_chunk_line(line)
        return at

    def _process_chunk_line(self, line: bytes) -> None:
        if self._state == "end":
            if line != b"\r\n":
                raise BadMessageError("a chunk is longer than it says")
            self._state = "size"
        elif self._state == "size":
            size, _, extension = line[:-2].partition(b";")
            if line[-2:] != b"\r\n" or not _consists_of(size, _DIGITS + b"ABCDEFabcdef", _CHUNK_SIZE_MAX) or extension.translate(None, _CONTROLS) != extension:
                raise BadMessageError("the size of a chunk is malformed")
            self._left = int(size, 16)
            self._state = "data" if self._left else "trailer"
        elif line == b"\r\n":
            self.done = True
        else:
            _parse_header_field(line.removesuffix(b"\r\n"))


# --- SOCKS5 (RFC 1928)

SOCKS = 5
_ANYBODY, _PASSWORD = 0, 2
_CONNECT = 1
_V4, _NAME, _V6 = 1, 3, 4
GRANTED, FAILED, NOT_ALLOWED, UNREACHABLE, BAD_COMMAND, BAD_ADDRESS = 0, 1, 2, 4, 7, 8


def socks_greeting(data: bytes) -> tuple[int, bytes] | None:
    """The way to log in that is chosen, 255 for none, and what follows. Who asks is never part of a decision."""
    if len(data) < 2 or len(data) < 2 + data[1]:
        return None
    offered, rest = data[2 : 2 + data[1]], data[2 + data[1] :]
    return (_ANYBODY if _ANYBODY in offered else _PASSWORD if _PASSWORD in offered else 255), rest


def socks_login(data: bytes) -> bytes | None:
    """What follows a name and a password (RFC 1929), whatever they are."""
    if len(data) < 2 or len(data) < 3 + data[1]:
        return None
    end = 3 + data[1] + data[2 + data[1]]
    return data[end:] if len(data) >= end else None


def socks_request(data: bytes) -> tuple[int, bytes, int, bytes] | None:
    """The reply if it is none that we do (else GRANTED), the host as text, the port, and what follows."""
    if len(data) < 5:
        return None
    version, command, _, kind, length = data[:5]
    if version != SOCKS or command != _CONNECT:
        return BAD_COMMAND, b"", 0, b""
    size = {_V4: 4, _V6: 16, _NAME: 1 + length}.get(kind)
    if size is None or (kind == _NAME and not length):
        return BAD_ADDRESS, b"", 0, b""
    end = 4 + size + 2
    if len(data) < end:
        return None
    raw, (port,) = data[4 : 4 + size], struct.unpack("!H", data[end - 2 : end])
    if kind == _V4:
        host = b".".join(str(byte).encode() for byte in raw)
    elif kind == _V6:
        host = b"[" + b":".join(raw[i : i + 2].hex().encode() for i in range(0, 16, 2)) + b"]"
    else:
        host = raw[1:]
    return GRANTED, host, port, data[end:]


def socks_reply(code: int) -> bytes:
    """A reply, with no address: there is none that would mean anything inside."""
    return bytes((SOCKS, code, 0, _V4)) + bytes(6)


# --- TLS (RFC 8446)

_HANDSHAKE, _CLIENT_HELLO, _HOST_NAME, _SERVER_NAME = 22, 1, 0, 0
_RECORD_MAX = 16384 + 256


class _Reader:
    """Vectors with a length in front, which must fit."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take_bytes(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise BadMessageError("the ClientHello is malformed")
        self.at += count
        return self.data[self.at - count : self.at]

    def take_vector(self, width: int) -> bytes:
        return self.take_bytes(int.from_bytes(self.take_bytes(width), "big"))

    def is_at_end(self) -> bool:
        return self.at == len(self.data)


class ClientHello:
    """Gathers a ClientHello, however many records it stands in, in time that grows with its length alone."""

    def __init__(self) -> None:
        self._raw = bytearray()
        self._hello = bytearray()

    def feed_bytes(self, data: bytes) -> tuple[bytes, ...] | None:
        """The server names, one or none, as soon as it is whole.

        Raises BadMessageError for what is not the beginning of TLS 1.0 to 1.3. With an encrypted one (ECH) it is the
        outer name: what is inside is for the server that the outer one names.
        """
        raw, hello = self._raw, self._hello
        raw += data
        at = 0
        while not self._is_complete():
            header = bytes(raw[at : at + 5])
            if header[:1] not in (b"", bytes((_HANDSHAKE,))) or header[1:2] not in (b"", b"\3"):
                raise BadMessageError("not TLS")
            if len(header) < 5:
                break
            length = int.from_bytes(header[3:5], "big")
            if not 0 < length <= _RECORD_MAX:
                raise BadMessageError("not TLS")
            if len(raw) < at + 5 + length:
                break
            hello += raw[at + 5 : at + 5 + length]
            at += 5 + length
            if hello[0] != _CLIENT_HELLO:
                raise BadMessageError("not a ClientHello")
        del raw[:at]
        return _server_names(_Reader(bytes(hello[4 : self._expected_length()]))) if self._is_complete() else None

    def _expected_length(self) -> int:
        return 4 + int.from_bytes(self._hello[1:4], "big")

    def _is_complete(self) -> bool:
        if len(self._hello) < 4:
            return False
        if self._expected_length() > HELLO_MAX:
            raise BadMessageError("the ClientHello is too long")
        return len(self._hello) >= self._expected_length()


def _server_names(hello: _Reader) -> tuple[bytes, ...]:
    hello.take_bytes(2 + 32)
    hello.take_vector(1)
    hello.take_vector(2)
    hello.take_vector(1)
    if hello.is_at_end():
        return ()
    extensions = _Reader(hello.take_vector(2))
    if not hello.is_at_end():
        raise BadMessageError("the ClientHello is malformed")
    found: list[bytes] = []
    seen: set[bytes] = set()
    while not extensions.is_at_end():
        kind, body = extensions.take_bytes(2), extensions.take_vector(2)
        if kind in seen:
            raise BadMessageError("an extension stands twice")
        seen.add(kind)
        if int.from_bytes(kind, "big") == _SERVER_NAME:
            listed = _Reader(_Reader(body).take_vector(2))
            if len(body) != 2 + len(listed.data):
                raise BadMessageError("the server name is malformed")
            while not listed.is_at_end():
                (sort,), name = listed.take_bytes(1), listed.take_vector(2)
                if sort != _HOST_NAME or found:
                    raise BadMessageError("there must be one server name")
                found.append(name)
    return tuple(found)
