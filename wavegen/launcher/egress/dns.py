"""What names mean inside: the address that is reserved for each, and what DNS says.

Standard library only; Python 3.9 and newer.
"""

from __future__ import annotations

from . import names
from . import protocols as wire
from .log import Log
from .rules import LOOPBACK, Rule, Rules
from .streams import Ignored

NAMES = 16384
"""Names that get an address. Nothing is taken away again: an address must never become another name's."""


class Names:
    """The names of one shell."""

    def __init__(self, rules: Rules, log: Log) -> None:
        self.rules, self.log = rules, log
        self._by_name: dict[str, bytes] = {}
        self._by_address: dict[bytes, str] = {}
        for name in rules.listed_names():
            self.reserve_address(name)

    def reserve_address(self, name: str) -> bytes | None:
        """The address that is reserved for a name."""
        found = self._by_name.get(name)
        if found is None and len(self._by_name) < NAMES:
            found = self.rules.pool.address_for_number(len(self._by_name))
            self._by_name[name] = found
            self._by_address[found] = name
        return found

    def answer_dns_query(self, data: bytes) -> bytes:
        """What DNS says to a query; empty for none."""
        question = wire.dns_question(data)
        if isinstance(question, bytes):
            return question
        if not question.internet:
            return wire.dns_answer(question, wire.NOTIMP)
        text = b".".join(question.labels)
        if question.kind == wire.PTR and text.lower().endswith(b".in-addr.arpa"):
            return self._answer_pointer_query(question, text)
        try:
            # A dot within a label would become another name.
            if any(b"." in label for label in question.labels):
                raise names.BadNameError("a dot in a label")
            target = names.parse_target(text)
        except names.BadNameError:
            self._log_dns_refusal("bad-name", text.decode("latin-1"), None)
            return wire.dns_answer(question, wire.NXDOMAIN)
        if target.name == "localhost":
            return wire.dns_answer(question, wire.NOERROR, (wire.A, LOOPBACK[0]) if question.kind in (wire.A, wire.ANY) else None)
        decision = self.rules.decide_on_any_port(target)
        if not decision.allowed or not target.name:
            self._log_dns_refusal(decision.reason or "literal", str(target), decision.rule)
            return wire.dns_answer(question, wire.NXDOMAIN)
        address = self.reserve_address(target.name)
        if address is None:
            self._log_dns_refusal("limit", target.name, decision.rule)
            return wire.dns_answer(question, wire.SERVFAIL)
        # No AAAA, as the address is an IPv4 one; no HTTPS or SVCB, which would offer QUIC and ECH.
        return wire.dns_answer(question, wire.NOERROR, (wire.A, address) if question.kind in (wire.A, wire.ANY) else None)

    def name_for_reserved_address(self, target: names.Target) -> names.Target:
        """The name that an address stands for: some clients look names up themselves, and ask for what they find."""
        name = self._by_address.get(target.address)
        return names.Target(name=name) if name else target

    def _answer_pointer_query(self, question: wire.Question, text: bytes) -> bytes:
        with Ignored(names.BadNameError):
            address = names.parse_target(b".".join(reversed(text.split(b".")[:-2]))).address
            name = "localhost" if address == LOOPBACK[0] else self._by_address.get(address)
            if name:
                return wire.dns_answer(question, wire.NOERROR, (wire.PTR, wire.dns_name(name)))
        return wire.dns_answer(question, wire.NXDOMAIN)

    def _log_dns_refusal(self, reason: str, name: str, rule: Rule | None) -> None:
        if not self.log.was_logged_recently("dns", name, reason):
            self.log.write_log_entry("deny", "dns", name, reason, rule=rule)
