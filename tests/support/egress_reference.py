"""What the filter must decide, written a second time from the cases X01-X40 and not from the code: slow, short, plain."""

from __future__ import annotations

import ipaddress
import string
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LETTERS = frozenset(string.ascii_lowercase + string.digits + "_-")
_METADATA = ("metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal")
_OF_THE_LINK = ("localhost", "local", "localdomain", "invalid", "onion")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of a list."""

    host: str
    """Canonical; IPv6 in brackets."""
    wildcard: bool = False
    port: int | str = ""
    """A number, `*`, or empty: 80 and 443 where it allows, every port where it denies."""
    private: bool = False

    def text(self) -> str:
        """As the manifest writes it."""
        return ("*." if self.wildcard else "") + self.host + (f":{self.port}" if self.port else "")


@dataclass(frozen=True, slots=True)
class Lists:
    """What one shell may reach."""

    allow: Sequence[Entry] = ()
    deny: Sequence[Entry] = ()
    loopback: Sequence[int] = ()
    anything: bool = False


def host_of(text: bytes) -> str | Address | None:
    """A name in its one spelling, an address, or nothing where it is neither (X01, X02, X06-X15)."""
    try:
        said = text.decode("ascii")
    except UnicodeDecodeError:
        return None
    if said[:1] == "[":
        if said[-1:] != "]" or "%" in said:
            return None
        try:
            six = ipaddress.IPv6Address(said[1:-1])
        except ValueError:
            return None
        return six.ipv4_mapped or six
    said = said.lower()
    said = said[:-1] if said[-1:] == "." else said
    labels = said.split(".")
    if not 1 <= len(said) <= 253 or not all(_is_label(label) for label in labels):
        return None
    last = labels[-1]
    if all(letter in string.digits for letter in last) or (last[:2] == "0x" and all(letter in string.hexdigits for letter in last[2:])):
        try:
            return ipaddress.IPv4Address(said)
        except ValueError:
            return None
    return said


def _is_label(label: str) -> bool:
    return 1 <= len(label) <= 63 and all(letter in _LETTERS for letter in label) and label[0] != "-" and label[-1] != "-"


def authority_of(text: bytes, default: int = 0) -> tuple[str | Address, int] | None:
    """`host:port` as two, or nothing (X15, X22)."""
    inside = text.rfind(b"]") + 1 if text[:1] == b"[" else 0
    colon = text.find(b":", inside)
    host, digits = (text, None) if colon < 0 else (text[:colon], text[colon + 1 :])
    if digits is None:
        port = default
    elif not 1 <= len(digits) <= 5 or any(digit not in b"0123456789" for digit in digits) or digits[:1] == b"0":
        return None
    else:
        port = int(digits)
    found = host_of(host)
    return (found, port) if found is not None and 1 <= port <= 65535 else None


def _about(entry: Entry, host: str | Address) -> bool:
    if not isinstance(host, str):
        return not entry.wildcard and host_of(entry.host.encode()) == host
    if entry.wildcard:
        labels, below = host.split("."), entry.host.split(".")
        return len(labels) > len(below) and labels[-len(below) :] == below
    return entry.host == host


def _fitting(entries: Iterable[Entry], port: int) -> list[Entry]:
    return [entry for entry in entries if entry.port == "*" or entry.port == port or (entry.port == "" and port in (80, 443))]  # noqa: PLR1714


def _lets_through(entry: Entry, address: Address) -> bool:
    """Of an address that is listed as such: never this machine and its link, and no other network but where the entry says so (X12, X19, X20)."""
    if str(address) == "169.254.169.254":
        return entry.private
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        return False
    return address.is_global or entry.private


def allowed(lists: Lists, host: str | Address, port: int) -> bool:
    """Deny beats everything; then the host's own loopback by its ports; then the list; then `open`."""
    if any(_about(entry, host) and entry.port in ("", "*", port) for entry in lists.deny):
        return False
    if host in ("localhost", ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")):
        return port in lists.loopback
    listed = _fitting((entry for entry in lists.allow if _about(entry, host)), port)
    if not isinstance(host, str):
        return any(_lets_through(entry, host) for entry in listed)
    if host in _METADATA:
        return any(entry.private and not entry.wildcard for entry in listed)
    if "." not in host or host.split(".")[-1] in _OF_THE_LINK:
        return any(entry.private for entry in listed) and host.split(".")[-1] != "localhost"
    return bool(listed) or lists.anything


def allowed_text(lists: Lists, text: bytes, default: int = 0) -> bool:
    """The same for what a client wrote."""
    found = authority_of(text, default)
    return found is not None and allowed(lists, *found)
