"""What a client may call a host: names in one spelling, and addresses that are nobody's business. Pure.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

import _socket as socket  # its namesake and re make enumerations, which takes longer than a shell takes to start

from .metadata import METADATA_NAMES, METADATA_NETWORKS

_DIGITS = b"0123456789"
# RFC 1123, and the underscore that some service names carry. ASCII alone: IDNA maps look-alikes onto names.
_LETTERS = b"abcdefghijklmnopqrstuvwxyz_" + _DIGITS
_LABEL_MAX = 63
_NAME_MAX = 253
_PORT_MAX, _PORT_DIGITS = 65535, 5
_V4, _V6 = 4, 16


class BadNameError(Exception):
    """What a client called a host is no host's name."""


class Target:
    """A host as a client named it: by a name, or by an address (4 or 16 bytes)."""

    __slots__ = ("address", "name")

    def __init__(self, name: str = "", address: bytes = b"") -> None:
        self.name = name
        self.address = address

    def __str__(self) -> str:
        return self.name or format_address(self.address)

    def authority_text(self) -> str:
        """As it stands before a port."""
        return f"[{self}]" if len(self.address) == _V6 else str(self)


def format_address(address: bytes) -> str:
    """An address in its usual spelling."""
    return socket.inet_ntop(socket.AF_INET if len(address) == _V4 else socket.AF_INET6, address)


def _has_only_characters(text: bytes, letters: bytes) -> bool:
    return not text.translate(None, letters)


def _is_label(label: bytes) -> bool:
    return 0 < len(label) <= _LABEL_MAX and _has_only_characters(label, _LETTERS + b"-") and label[:1] != b"-" and label[-1:] != b"-"


def _is_numeric_label(label: bytes) -> bool:
    """inet_aton(3), and with it getaddrinfo(3), reads 127.1, 0x7f.1 and 2130706433 as addresses."""
    return _has_only_characters(label[2:], _DIGITS + b"abcdef") if label.startswith(b"0x") else _has_only_characters(label, _DIGITS)


def parse_target(text: bytes) -> Target:
    """A host, IPv6 in brackets. Raises BadNameError: nothing is decoded, mapped or guessed.

    Python's getaddrinfo ends a name at a NUL, so none may get there.
    """
    if text.startswith(b"["):
        if not text.endswith(b"]"):
            raise BadNameError("a bracket is open")
        return Target(address=_parse_ipv6_address(text[1:-1]))
    text = text.lower()
    if text.endswith(b"."):
        text = text[:-1]
    if not text or len(text) > _NAME_MAX:
        raise BadNameError("too long" if text else "empty")
    if not all(_is_label(label) for label in text.split(b".")):
        raise BadNameError("not letters, digits and hyphens between dots")
    if _is_numeric_label(text.rpartition(b".")[2]):
        try:
            return Target(address=socket.inet_pton(socket.AF_INET, text.decode("ascii")))
        except OSError:
            raise BadNameError("an address in an unusual spelling") from None
    return Target(name=text.decode("ascii"))


def _parse_ipv6_address(text: bytes) -> bytes:
    try:
        return unmap_ipv4_address(socket.inet_pton(socket.AF_INET6, text.decode("ascii")))
    except (OSError, ValueError):  # a zone, too: fe80::1%eth0
        raise BadNameError("not an IPv6 address") from None


def unmap_ipv4_address(address: bytes) -> bytes:
    """An IPv4 address that is written as an IPv6 one, as IPv4: it is reached as that."""
    return address[12:] if len(address) == _V6 and address[:12] == _MAPPED else address


def parse_authority(text: bytes, *, port: int = 0) -> tuple[Target, int]:
    """`host:port`; `port` is the default, without which it must be there. Raises BadNameError."""
    if text.startswith(b"["):
        host, bracket, rest = text.partition(b"]")
        host += bracket
        if rest and not rest.startswith(b":"):
            raise BadNameError("something follows the bracket")
        digits = rest[1:] if rest else None
    else:
        host, colon, after = text.partition(b":")
        digits = after if colon else None
    if digits is None:
        if not port:
            raise BadNameError("a port is missing")
    else:
        port = int(digits) if 0 < len(digits) <= _PORT_DIGITS and _has_only_characters(digits, _DIGITS) and not digits.startswith(b"0") else 0
        if not 0 < port <= _PORT_MAX:
            raise BadNameError("not a port from 1 to 65535")
    return parse_target(host), port


# --- addresses

_MAPPED = bytes(10) + b"\xff\xff"


def _parse_network(text: str) -> tuple[int, int, int]:
    """A network as bytes of an address, value, and how many low bits are free."""
    base, _, length = text.partition("/")
    family = socket.AF_INET6 if ":" in base else socket.AF_INET
    packed = socket.inet_pton(family, base)
    free = len(packed) * 8 - int(length)
    return len(packed), int.from_bytes(packed, "big") >> free, free


# Never reached by a name, whatever an entry says: this host, and what is on its link.
NEVER_NETWORKS = ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32", "::/127", "fe80::/10", "ff00::/8")
# Not on the internet, but on somebody's network: reached where an entry has allow_private. IANA's registries of special
# addresses (RFC 6890), and whatever holds another address inside: Teredo, 6to4, NAT64, IPv4-compatible. Python's
# ipaddress calls several of them global (3.11: 64:ff9b::7f00:1, 2002:7f00:1::, ::127.0.0.1).
PRIVATE_NETWORKS = (
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001::/23",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fec0::/10",
)
_NEVER, _PRIVATE, _METADATA = (tuple(map(_parse_network, networks)) for networks in (NEVER_NETWORKS, PRIVATE_NETWORKS, METADATA_NETWORKS))
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")

PUBLIC, PRIVATE, NEVER, METADATA = "", "not-public", "local-address", "metadata"


def classify_address(address: bytes) -> str:
    """PUBLIC, PRIVATE, NEVER or METADATA; what an address holds inside counts, where that is worse."""
    found = [_classify_outer_address(address)]
    if len(address) == _V6:
        found += [_classify_outer_address(inner) for inner in _embedded_ipv4_addresses(address)]
    return next(worst for worst in (METADATA, NEVER, PRIVATE, PUBLIC) if worst in found)


def _classify_outer_address(address: bytes) -> str:
    for name, networks in ((METADATA, _METADATA), (NEVER, _NEVER), (PRIVATE, _PRIVATE)):
        value = int.from_bytes(address, "big")
        if any(len(address) == size and value >> free == base for size, base, free in networks):
            return name
    # IANA has given out nothing else yet (RFC 4291, 2.4).
    return PRIVATE if len(address) == _V6 and address[0] >> 5 != 1 else PUBLIC


def _embedded_ipv4_addresses(address: bytes) -> list[bytes]:
    """IPv4 addresses that an IPv6 one leads to on some networks."""
    found = []
    if address[:12] in (bytes(12), _MAPPED, bytes(8) + b"\xff\xff\0\0") or address[:12] == b"\0\x64\xff\x9b" + bytes(8):
        found.append(address[12:])
    if address[:6] == b"\0\x64\xff\x9b\0\x01":  # RFC 8215, with the usual /96
        found.append(address[12:])
    if address[:2] == b"\x20\x02":
        found.append(address[2:6])
    if address[:4] == b"\x20\x01\0\0":
        found.append(bytes(byte ^ 0xFF for byte in address[12:]))
    if address[8:12] in _ISATAP:
        found.append(address[12:])
    return found


def gives_credentials(target: Target) -> bool:
    """Whether a host hands out the credentials of the machine that asks it."""
    return target.name in METADATA_NAMES or (bool(target.address) and classify_address(target.address) == METADATA)
