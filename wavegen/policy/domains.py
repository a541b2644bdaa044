"""An entry of an allow list → a `DomainRule` in canonical form, or what is wrong with it. Whether a host is reached, host_rules.py says. Pure."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import replace

from wavegen.core.errors import InvalidValueError, Problem, Severity
from wavegen.launcher.egress.rules import DEFAULT_PORTS
from wavegen.launcher.egress.special_names import is_intranet_suffix, is_loopback_name
from wavegen.manifest.decoder import Text
from wavegen.manifest.model import DomainEntry
from wavegen.manifest.shared_hosting import shared_content_reason, shared_hosting_reason
from wavegen.policy.host_rules import credentials_below, is_rule_for_own_loopback, refusal_of, rule_gives_credentials
from wavegen.policy.model import DomainRule, Origin

# RFC 1123 labels, and the underscore that some service names carry.
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_PORT = re.compile(r"[1-9][0-9]{0,4}|\*")
_PORT_MAX = 65535
_Advice = tuple[Severity, str, str]


def domain_rule(entry: Text | DomainEntry) -> DomainRule:
    """`name`, `*.name`, `name:port`, `name:*`, an IPv4 address or a bracketed IPv6 one, lower-cased.

    Raises InvalidValueError for anything else: an entry that is nearly right must not silently match nothing.
    """
    if isinstance(entry, DomainEntry):
        return replace(domain_rule(entry.host), allow_private=entry.allow_private, allow_no_sni=entry.allow_no_sni, tls=entry.tls)
    text = entry.strip().lower()
    if "://" in text or "/" in text or "@" in text:
        host = text.split("://")[-1].split("/")[0].split("@")[-1]
        raise InvalidValueError(f"'{entry}' is an address of a page, not a host", f"write {host}" if host else "write the host's name")
    if not entry.isascii():  # not of the lower-cased text: the Kelvin sign's lower case is k
        raise InvalidValueError(f"'{entry}' is not ASCII", "write the name in its xn-- form")
    host, port = _split_port(text, entry)
    wildcard = host.startswith("*.")
    host = host.removeprefix("*.").removesuffix(".")
    if host.startswith("["):
        host = _parse_address(host, entry)
    elif "*" in host or not host:
        raise InvalidValueError(f"'{entry}': a star stands only for whole labels at the front", "write *.example.org, or list the names")
    elif re.fullmatch(r"(.*\.)?([0-9]+|0x[0-9a-f]*)", host):
        # inet_aton would take 0x7f.1 or 2130706433 for an address; a list must not say it that way.
        host = _parse_address(host, entry)
    elif len(host) > 253 or not all(_LABEL.fullmatch(label) for label in host.split(".")):  # noqa: PLR2004  RFC 1035
        raise InvalidValueError(f"'{entry}' is not a host name", "letters, digits and hyphens between dots")
    if wildcard and (host.startswith("[") or host.replace(".", "").isdigit()):
        raise InvalidValueError(f"'{entry}': an address has no names below it", "write the address alone")
    return DomainRule(host=host, wildcard=wildcard, port=port, origin=Origin("", entry.at))


def denied_rule(entry: Text | DomainEntry) -> DomainRule:
    """The same for an entry of a deny list: without a port it means every port."""
    rule = domain_rule(entry)
    return rule if rule.port else replace(rule, port="*")


def broad_wildcard_reason(rule: DomainRule) -> str:
    """What a wildcard lets through that is anybody's choice, or nothing."""
    if not rule.wildcard or (rule.allow_private and is_intranet_suffix(rule.host)):
        return ""
    return shared_hosting_reason(rule.host)


def domain_advice(rule: DomainRule) -> Problem | None:
    """What is to be said about an entry that can be read and is rarely meant."""
    found = _credentials_advice(rule) or _refusal_advice(rule) or _shared_hosting_advice(rule)
    if found is None:
        return None
    severity, what, hint = found
    return Problem(at=rule.origin.at, severity=severity, what=f"'{rule}' {what}", hint=hint)


def _credentials_advice(rule: DomainRule) -> _Advice | None:
    gives = "gives the machine's cloud credentials away"
    if rule_gives_credentials(rule):
        return Severity.WARNING, gives, "remove it"
    held = credentials_below(rule)
    return (Severity.WARNING, f"holds {held[0]}, which {gives}", "list the names") if held else None


def _refusal_advice(rule: DomainRule) -> _Advice | None:
    """What the launcher refuses though it is listed."""
    reason = refusal_of(rule)
    if not reason:
        return None
    if is_rule_for_own_loopback(rule) or rule.host.startswith("127."):
        return Severity.WARNING, "is the inside of the fence itself", _LOOPBACK_PORT
    if is_loopback_name(rule.host):
        return Severity.WARNING, "is a name of the loopback, and will be refused", _LOOPBACK_PORT
    if refusal_of(replace(rule, allow_private=True)):
        return Severity.WARNING, "is an address of this machine or its link, and will be refused", "remove it"
    last = rule.host.rpartition(".")[2]
    local = f"is a name below {last}, which is never public" if "." in rule.host or rule.wildcard else "has no dot, so it is never a public name"
    why = local if reason == "local-name" else "is no public address"
    text = f"'{rule}'" if str(rule)[0] in "[*" else str(rule)  # YAML's own signs
    return Severity.WARNING, f"{why}, and will be refused", f"write {{host: {text}, allow_private: true}} if that is meant"


_LOOPBACK_PORT = "a port of the host's loopback is let in by `loopback: [PORT]`"


def _shared_hosting_advice(rule: DomainRule) -> _Advice | None:
    if broad := broad_wildcard_reason(rule):
        return Severity.WARNING, f"allows {broad}", "list the names"
    content = "" if rule.wildcard else shared_content_reason(rule.host)
    return (Severity.NOTE, f"serves {content}", "name a host that serves only yours, where there is one") if content else None


def _split_port(text: str, entry: str) -> tuple[str, str]:
    if not text:
        raise InvalidValueError(f"'{entry}' is empty", "name a host, or remove it")
    match = re.fullmatch(r"(\[[^]]*\]|[^:\[\]]*)(?::(.*))?", text)
    if not match or (text.count(":") > 1 and not text.startswith("[")):
        raise InvalidValueError(f"'{entry}' is not host or host:port", "bracket an IPv6 address: [2001:db8::1]:443")
    port = match[2]
    if port is None:
        return match[1], ""
    if not _PORT.fullmatch(port) or (port != "*" and int(port) > _PORT_MAX):
        raise InvalidValueError(f"'{entry}': '{port}' is not a port", "write a number from 1 to 65535, or * for any")
    return match[1], port


def _parse_address(host: str, entry: str) -> str:
    if "%" in host:
        raise InvalidValueError(f"'{entry}' is an address of one network card", "remove what follows the %")
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise InvalidValueError(f"'{entry}' is not an address in its usual spelling", "write four decimal numbers, or the host's name") from None
    return str(address) if address.version == 4 else f"[{address}]"  # noqa: PLR2004


def rule_covers(rule: DomainRule, other: DomainRule) -> bool:
    """Whether everything that `other` lets through, `rule` lets through too."""
    names = other.host == rule.host if not rule.wildcard else other.host.endswith("." + rule.host) or (other.wildcard and other.host == rule.host)
    ports = rule.port in ("*", other.port) or (not rule.port and other.port in map(str, DEFAULT_PORTS))
    return names and (not other.wildcard or rule.wildcard) and ports and other.extra_flags().items() <= rule.extra_flags().items()
