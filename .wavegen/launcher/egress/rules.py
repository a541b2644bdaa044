"""Who may be reached: the one decision for every way out. Pure, but for asking the kernel which addresses are its own.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

import _socket as socket
import errno

from . import names, special_names
from .metadata import METADATA_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

DEFAULT_PORTS = frozenset({80, 443})
TLS_PORT = 443
# Where something may listen that a rule for every port leads to without a proxy; all below 1024, so that nothing is
# taken from what the command itself wants to listen on.
CUSTOMARY = (21, 22, 25, 80, 110, 143, 389, 443, 465, 587, 636, 853, 873, 989, 990, 993, 995)


UNPRIVILEGED = 1024
"""The first port that anybody may listen on."""
ANY = bytes(4)
LOOPBACK = (b"\x7f\0\0\x01", bytes(15) + b"\x01")


class Pool:
    """A network whose addresses stand for names inside."""

    __slots__ = ("_base", "first", "length", "widened")

    def __init__(self, first: bytes, length: int, *, widened: bool) -> None:
        self.first, self.length = first, length
        self.widened = widened
        """Whether the loopback inside was given addresses: of this network, and those that are listed as such."""
        self._base = int.from_bytes(first, "big") >> 32 - length << 32 - length

    def address_for_number(self, number: int) -> bytes:
        """The address that stands for the name of that number."""
        return (self._base + 257 + number).to_bytes(4, "big")

    def contains_address(self, address: bytes) -> bool:
        """Whether an address stands for a name, or could."""
        return len(address) == 4 and int.from_bytes(address, "big") >> 32 - self.length == self._base >> 32 - self.length


POOL = Pool(b"\xc6\x12\0\1", 15, widened=True)
"""198.18.0.0/15 is for benchmarks of networks (RFC 2544): nobody's server has such an address, and unlike 127.0.0.0/8 no
program takes it for the machine itself."""
LOCAL_POOL = Pool(b"\x7f\x40\0\1", 10, widened=False)
"""127.64.0.0/10, for where nobody can give the loopback an address (that takes CAP_NET_ADMIN over its namespace, which
nobody outside has of a container's): all of 127.0.0.0/8 is there from the start."""


class Rule:
    """An entry of a list: a host, or (wildcard) every name below it."""

    __slots__ = ("address", "allow_no_sni", "allow_private", "find_line", "host", "origin", "port", "tls", "wildcard")

    def __init__(self, entry: str, origin: str, flags: str = "", find_line: Callable[[str, str], str] | None = None) -> None:
        """`entry` as the manifest has it, canonical: host, *.host, host:22, host:*, an address. `find_line`: gives the line for the origin and the entry."""
        host, port = _split_entry(entry)
        self.wildcard = host.startswith("*.")
        self.host = host[2:] if self.wildcard else host
        self.port = port
        self.origin, self.find_line = origin, find_line
        chosen = flags.split(",")
        self.allow_private = "private" in chosen
        self.allow_no_sni = "no-sni" in chosen
        self.tls = "no-tls" not in chosen
        found = names.parse_target(self.host.encode())
        self.address = found.address

    def __str__(self) -> str:
        return ("*." if self.wildcard else "") + self.host + (f":{self.port}" if self.port else "")

    @property
    def manifest_location(self) -> str:
        """Where it stands, looked up only here: most rules are never spoken of."""
        return self.find_line(self.origin, str(self)) if self.find_line else self.origin

    def allows_port(self, port: int) -> bool:
        """Whether it lets this port through."""
        if self.port == "*":
            return True
        return port == int(self.port) if self.port else port in DEFAULT_PORTS


def _split_entry(entry: str) -> tuple[str, str]:
    if entry.startswith("["):
        host, _, rest = entry.partition("]")
        return f"{host}]", rest[1:]
    host, _, port = entry.partition(":")
    return host, port


class Decision:
    """Whether a host may be asked, by which rule, and why not."""

    __slots__ = ("allowed", "reason", "rule")

    def __init__(self, *, allowed: bool, reason: str = "", rule: Rule | None = None) -> None:
        self.allowed = allowed
        self.reason = reason
        self.rule = rule


class _Index:
    """Rules by what they are about: looking one up costs as many steps as a name has labels."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.exact: dict[str, list[Rule]] = {}
        self.below: dict[str, list[Rule]] = {}
        self.addresses: dict[bytes, list[Rule]] = {}
        for rule in rules:
            if rule.address:
                self.addresses.setdefault(rule.address, []).append(rule)
            else:
                (self.below if rule.wildcard else self.exact).setdefault(rule.host, []).append(rule)

    def find_matching_rules(self, target: names.Target) -> list[Rule]:
        """Every rule about a host, the nearest first."""
        if target.address:
            return self.addresses.get(target.address, [])
        found = list(self.exact.get(target.name, ()))
        rest = target.name
        while rest := rest.partition(".")[2]:
            found += self.below.get(rest, ())
        return found


class Rules:
    """What one shell may reach."""

    def __init__(self, *, anything: bool, allow: Iterable[Rule] = (), deny: Iterable[Rule] = (), loopback: Iterable[Rule] = (), pool: Pool = POOL) -> None:
        self.pool = pool
        self.anything = anything
        """Every public name, on every port."""
        self.allow = tuple(allow)
        self.deny = tuple(deny)
        self.loopback = {int(rule.port): rule for rule in loopback}
        """The host's own loopback, by port."""
        self._allow = _Index(self.allow)
        self._deny = _Index(self.deny)
        self._any = Rule("any:*", "network: open")

    def listener_ports(self) -> tuple[int, ...]:
        """Where something listens, so that programs need no proxy."""
        found: set[int] = set(CUSTOMARY) if self.anything else set()
        for rule in self.allow:
            found |= set(CUSTOMARY) if rule.port == "*" else {int(rule.port)} if rule.port else DEFAULT_PORTS
        return tuple(sorted(found))

    def listed_names(self) -> tuple[str, ...]:
        """Names that are listed as such; each has its address from the start."""
        return tuple(dict.fromkeys(rule.host for rule in self.allow if not rule.wildcard and not rule.address))

    def listener_addresses(self) -> tuple[tuple[bytes, int], ...]:
        """Where something listens: an address and a port, 0.0.0.0 for every one.

        A port that the command may want for itself is taken only at the addresses of the names that it is listed for.
        """
        reserved = {name: self.pool.address_for_number(number) for number, name in enumerate(self.listed_names())}
        found: list[tuple[bytes, int]] = []
        for port in self.listener_ports():
            about = [rule for rule in self.allow if rule.port == str(port)]
            if port < UNPRIVILEGED or any(rule.wildcard for rule in about):
                found.append((ANY, port))
            else:
                found += [(rule.address or reserved[rule.host], port) for rule in about if not rule.address or rule.address in self.assignable_addresses()]
        return tuple(dict.fromkeys(found))

    def assignable_addresses(self) -> tuple[bytes, ...]:
        """Addresses that are listed as such, but for those that no interface of the shell could have, or has already.

        Others are reached by the proxies alone.
        """
        if not self.pool.widened:
            return ()
        listed = dict.fromkeys(rule.address for rule in self.allow if rule.address)
        return tuple(address for address in listed if names.classify_address(address) != names.NEVER and not self.pool.contains_address(address))

    def decide_on_any_port(self, target: names.Target) -> Decision:
        """Whether a host may be asked at all, on whatever port."""
        denied = [rule for rule in self._deny.find_matching_rules(target) if rule.port in ("", "*")]
        if denied:
            return Decision(allowed=False, reason="denied", rule=denied[0])
        return self._decide_by_allowlist(target, None)

    def decide_connection(self, target: names.Target, port: int) -> Decision:
        """Whether a host may be asked on a port, by which rule, and why not: the one answer for launcher, plan, explain and probes.

        Deny beats allow; names are compared by whole labels. The addresses that a name leads to are judged once they are known (`address_refusal_reason`).
        """
        for rule in self._deny.find_matching_rules(target):
            if not rule.port or rule.allows_port(port):
                return Decision(allowed=False, reason="denied", rule=rule)
        if is_own_loopback(target):
            return Decision(allowed=port in self.loopback, reason="" if port in self.loopback else "loopback-port", rule=self.loopback.get(port))
        return self._decide_by_allowlist(target, port)

    def _decide_by_allowlist(self, target: names.Target, port: int | None) -> Decision:
        about = self._allow.find_matching_rules(target)
        found = [rule for rule in about if port is None or rule.allows_port(port)]
        if target.name in METADATA_NAMES:
            found = [rule for rule in found if rule.allow_private and not rule.wildcard]
            return Decision(allowed=True, rule=found[0]) if found else Decision(allowed=False, reason="metadata")
        if target.name and special_names.is_local_name(target.name):
            found = [rule for rule in found if rule.allow_private and not special_names.is_loopback_name(target.name)]
            return Decision(allowed=True, rule=found[0]) if found else Decision(allowed=False, reason="local-name")
        if target.address and found:
            reasons = [rule_refusal_reason(rule, target.address) for rule in found]
            rule, reason = (found[reasons.index("")], "") if "" in reasons else (found[0], reasons[0])
            return Decision(allowed=not reason, reason=reason, rule=rule)
        if found:
            return Decision(allowed=True, rule=found[0])
        if self.anything and target.name:
            return Decision(allowed=True, rule=self._any)
        if about:
            return Decision(allowed=False, reason="port", rule=about[0])
        return Decision(allowed=False, reason="literal" if target.address else "not-listed")

    def is_loopback_rule(self, rule: Rule) -> bool:
        """Whether a rule is about the host's own loopback."""
        return self.loopback.get(int(rule.port or 0) if rule.port != "*" else 0) is rule

    def address_refusal_reason(self, rule: Rule, address: bytes, port: int) -> str:
        """Why an address that a name has led to must not be reached; empty where it may.

        Of a name with several addresses every one must pass: whoever may add an address would else choose.
        """
        address = names.unmap_ipv4_address(address)
        if self.is_loopback_rule(rule):
            return "" if address in LOOPBACK else "not-public"
        if any(denied.port in ("", "*") or denied.allows_port(port) for denied in self._deny.addresses.get(address, ())):
            return "denied"
        if names.classify_address(address) in (names.PUBLIC, names.PRIVATE) and is_own_address(address):
            return "own-address"
        return rule_refusal_reason(rule, address)


def is_own_loopback(target: names.Target) -> bool:
    """Whether a host is the loopback, which inside is the shell's own; ports of the host's are let in one by one."""
    return target.name == "localhost" or target.address in LOOPBACK


def rule_refusal_reason(rule: Rule, address: bytes) -> str:
    """Why a rule does not let an address through, whoever's it is here; empty where it does. Pure."""
    found = names.classify_address(address)
    if found == names.METADATA:
        by_itself = rule.address == address or (not rule.wildcard and rule.host in METADATA_NAMES)
        return "" if by_itself and rule.allow_private else "metadata"
    if found == names.NEVER:
        return "not-public"
    return "" if found == names.PUBLIC or rule.allow_private else "not-public"


def is_own_address(address: bytes) -> bool:
    """Whether an address is one of this host's: those alone can be bound (bind(2), EADDRNOTAVAIL)."""
    family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
    text = names.format_address(address)
    probe = None
    try:
        probe = socket.socket(family, socket.SOCK_DGRAM)
        # With ip_nonlocal_bind every address can be; the way to one's own is from that address.
        if _binds_anything(family):
            probe.connect((text, 9))
            return bool(probe.getsockname()[0] == text)
        probe.bind((text, 0))
    except OSError as failed:
        # What cannot be told is not reached; without IPv6 nothing of it is ours.
        return failed.errno not in _NOT_OURS
    finally:
        if probe is not None:
            probe.close()
    return True


_NOT_OURS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL, errno.EACCES)


def _binds_anything(family: int) -> bool:
    version = "ipv4" if family == socket.AF_INET else "ipv6"
    try:
        with open(f"/proc/sys/net/{version}/ip_nonlocal_bind", "rb") as stream:
            return stream.read(1) == b"1"
    except OSError:
        return False
