"""An entry of an allow list → a `DomainRule` in canonical form, or what is wrong with it. Pure."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import replace

from wavegen.decode import Text
from wavegen.errors import Problem, Severity
from wavegen.manifest import DomainEntry, NetworkMode
from wavegen.policy import DomainRule, Network, Origin
from wavegen.suffixes import below, serves

# RFC 1123 labels, and the underscore that some service names carry.
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}|\*")
_PORT_MAX = 65535
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Advice = tuple[Severity, str, str]


def _networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(word) for word in text.split())


_GLOBAL = ipaddress.ip_network("2000::/3")
NOT_PUBLIC = _networks(
    "0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 "
    "198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 2001::/23 2001:db8::/32 2002::/16 3fff::/20"
)
"""What of IPv4, and of IPv6's global addresses, is no public address."""
# Whoever reaches these from a machine in a cloud is that machine.
_METADATA = ("metadata.google.internal", "metadata.goog", "metadata", "instance-data.ec2.internal", "instance-data")
_METADATA_ADDRESSES = _networks(
    "169.254.169.254 169.254.170.2 169.254.170.23 169.254.42.42 100.100.100.200 168.63.129.16 192.0.0.192 "
    "fd00:ec2::254 fd00:ec2::23 fd20:ce::254 fd00:c1::a9fe:a9fe fd00:42::42"
)
# Names below these are nobody's on the Internet.
_INTRANETS = ("corp", "home", "internal", "intranet", "lan", "local", "localhost", "private")


class BadDomainError(Exception):
    """What is wrong with an entry, and what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


def domain_rule(entry: Text | DomainEntry) -> DomainRule:
    """`name`, `*.name`, `name:port`, `name:*`, an IPv4 address or a bracketed IPv6 one, lower-cased.

    Raises BadDomainError for anything else: an entry that is nearly right must not silently match nothing.
    """
    if isinstance(entry, DomainEntry):
        return replace(domain_rule(entry.host), allow_private=entry.allow_private, allow_no_sni=entry.allow_no_sni, tls=entry.tls)
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


def denied_rule(entry: Text | DomainEntry) -> DomainRule:
    """The same for an entry of a deny list: without a port it means every port."""
    rule = domain_rule(entry)
    return rule if rule.port else replace(rule, port="*")


def too_broad(rule: DomainRule) -> str:
    """What a wildcard lets through that is anybody's choice, or nothing."""
    if not rule.wildcard or (rule.allow_private and rule.host in _INTRANETS):
        return ""
    return below(rule.host)


def advice(rule: DomainRule) -> Problem | None:
    """What is to be said about an entry that can be read and is rarely meant."""
    found = _credentials(rule) or _inside(rule) or _refused(rule) or _anybodys(rule)
    if found is None:
        return None
    severity, what, hint = found
    return Problem(at=rule.origin.at, severity=severity, what=f"'{rule}' {what}", hint=hint)


def _credentials(rule: DomainRule) -> _Advice | None:
    gives = "gives the machine's cloud credentials away"
    if rule.wildcard:
        held = metadata_below(rule)
        return (Severity.WARNING, f"holds {held[0]}, which {gives}", "list the names") if held else None
    address = _literal(rule.host)
    named = any(address in network for network in _METADATA_ADDRESSES) if address else rule.host in _METADATA
    return (Severity.WARNING, gives, "remove it") if named else None


def _inside(rule: DomainRule) -> _Advice | None:
    address = _literal(rule.host)
    if rule.host != "localhost" and not (address and address.is_loopback):
        return None
    return Severity.WARNING, "is the inside of the fence itself", "a port of the host's loopback is let in by `loopback: [PORT]`"


def _refused(rule: DomainRule) -> _Advice | None:
    if rule.allow_private:
        return None
    address = _literal(rule.host)
    last = rule.host.rpartition(".")[2]
    if address:
        why = "" if _public(address) else "is no public address"
    elif last in ("local", "localhost"):
        why = f"is a name below {last}, which is never public"
    else:
        why = "" if "." in rule.host or rule.wildcard else "has no dot, so it is never a public name"
    text = f"'{rule}'" if str(rule)[0] in "[*" else str(rule)  # YAML's own signs
    return (Severity.WARNING, f"{why}, and will be refused", f"write {{host: {text}, allow_private: true}} if that is meant") if why else None


def _anybodys(rule: DomainRule) -> _Advice | None:
    if broad := too_broad(rule):
        return Severity.WARNING, f"allows {broad}", "list the names"
    content = "" if rule.wildcard else serves(rule.host)
    return (Severity.NOTE, f"serves {content}", "name a host that serves only yours, where there is one") if content else None


def never_reached(rule: DomainRule) -> bool:
    """Whether the launcher refuses all that an entry names though it is listed: advice() has said so."""
    return bool(_inside(rule) or _refused(rule) or (not rule.wildcard and not rule.allow_private and _credentials(rule)))


def metadata_below(rule: DomainRule) -> tuple[str, ...]:
    """The names below a wildcard that give a machine's cloud credentials away."""
    return tuple(name for name in _METADATA if rule.wildcard and name.endswith("." + rule.host))


def _literal(host: str) -> _Address | None:
    """The address that a host is, if it is one; of an IPv4 address in IPv6's clothes the former."""
    if not (host.startswith("[") or host.replace(".", "").isdigit()):
        return None
    address = ipaddress.ip_address(host.strip("[]"))
    return address.ipv4_mapped or address if isinstance(address, ipaddress.IPv6Address) else address


def _public(address: _Address) -> bool:
    # Not is_global: Python 3.11 takes multicast, 6to4 and NAT64 addresses for global ones.
    inside = any(address in network for network in NOT_PUBLIC)
    return not inside and (address.version == 4 or address in _GLOBAL)  # noqa: PLR2004


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
    if "%" in host:
        raise BadDomainError(f"'{entry}' is an address of one network card", "remove what follows the %")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise BadDomainError(f"'{entry}' is not an address in its usual spelling", "write four decimal numbers, or the host's name") from None
    return str(address) if address.version == 4 else f"[{address}]"  # noqa: PLR2004


_WEB = (80, 443)


def lets_through(network: Network, host: str, port: int) -> bool:
    """Whether a network's lists let a host in canonical form through on a port. Deny beats allow."""
    if any(is_about(rule, host) and rule.port in ("", "*", str(port)) for rule in network.denied):
        return False
    if network.mode is NetworkMode.OPEN and not host[0].isdigit() and not host.startswith("["):
        return "." in host and not host.endswith((".internal", ".local", ".localhost"))
    return allows(network.domains, host, port)


def allows(rules: Iterable[DomainRule], host: str, port: int) -> bool:
    """Whether a list lets a host in canonical form through; port 0 is any."""
    return any(is_about(rule, host) and (not port or rule.port in ("*", str(port)) or (not rule.port and port in _WEB)) for rule in rules)


def is_about(rule: DomainRule, host: str) -> bool:
    """Whether a rule names a host, whatever the port."""
    return host.endswith(f".{rule.host}") if rule.wildcard else host == rule.host


def covers(rule: DomainRule, other: DomainRule) -> bool:
    """Whether everything that `other` lets through, `rule` lets through too."""
    names = other.host == rule.host if not rule.wildcard else other.host.endswith("." + rule.host) or (other.wildcard and other.host == rule.host)
    ports = rule.port in ("*", other.port) or (not rule.port and other.port in map(str, _WEB))
    return names and (not other.wildcard or rule.wildcard) and ports and other.flags().items() <= rule.flags().items()
