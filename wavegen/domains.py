"""An entry of an allow list → a `DomainRule` in canonical form, or what is wrong with it. Pure."""

from __future__ import annotations

import ipaddress
import re

from wavegen.decode import Text
from wavegen.policy import DomainRule, Origin

# RFC 1123 labels, and the underscore that some service names carry.
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}|\*")
_PORT_MAX = 65535


class BadDomainError(Exception):
    """What is wrong with an entry, and what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def domain_rule(entry: Text) -> DomainRule:
    """`name`, `*.name`, `name:port`, `name:*`, an IPv4 address or a bracketed IPv6 one, lower-cased.

    Raises BadDomainError for anything else: an entry that is nearly right must not silently match nothing.
    """
    text = entry.strip().lower()
    if "://" in text or "/" in text or "@" in text:
        host = text.split("://")[-1].split("/")[0].split("@")[-1]
        raise BadDomainError(f"'{entry}' is an address of a page, not a host", f"write {host}" if host else "write the host's name")
    if not entry.isascii():  # not of the lower-cased text: the Kelvin sign's lower case is k
        raise BadDomainError(f"'{entry}' is not ASCII", "write the name in its xn-- form")
    host, port = _split(text, entry)
    wildcard = host.startswith("*.")
    host = host.removeprefix("*.").removesuffix(".")
    if host.startswith("["):
        host = _address(host, entry)
    elif "*" in host or not host:
        raise BadDomainError(f"'{entry}': a star stands only for whole labels at the front", "write *.example.org, or list the names")
    elif re.fullmatch(r"(.*\.)?([0-9]+|0x[0-9a-f]*)", host):
        # inet_aton would take 0x7f.1 or 2130706433 for an address; a list must not say it that way.
        host = _address(host, entry)
    elif len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):  # noqa: PLR2004  RFC 1035
        raise BadDomainError(f"'{entry}' is not a host name", "letters, digits and hyphens between dots")
    if wildcard and (host.startswith("[") or host.replace(".", "").isdigit()):
        raise BadDomainError(f"'{entry}': an address has no names below it", "write the address alone")
    return DomainRule(host=host, wildcard=wildcard, port=port, origin=Origin("", entry.at))


def too_broad(rule: DomainRule) -> bool:
    """Whether a wildcard covers a whole top-level domain."""
    return rule.wildcard and "." not in rule.host


def _split(text: str, entry: str) -> tuple[str, str]:
    if not text:
        raise BadDomainError(f"'{entry}' is empty", "name a host, or remove it")
    match = re.fullmatch(r"(\[[^]]*\]|[^:\[\]]*)(?::(.*))?", text)
    if not match or (text.count(":") > 1 and not text.startswith("[")):
        raise BadDomainError(f"'{entry}' is not host or host:port", "bracket an IPv6 address: [2001:db8::1]:443")
    port = match[2]
    if port is None:
        return match[1], ""
    if not _PORT.fullmatch(port) or (port != "*" and int(port) > _PORT_MAX):
        raise BadDomainError(f"'{entry}': '{port}' is not a port", "write a number from 1 to 65535, or * for any")
    return match[1], port


def _address(host: str, entry: str) -> str:
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise BadDomainError(f"'{entry}' is not an address in its usual spelling", "write four decimal numbers, or the host's name") from None
    return str(address) if address.version == 4 else f"[{address}]"  # noqa: PLR2004
