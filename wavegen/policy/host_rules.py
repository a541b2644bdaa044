"""May a host be reached on a port, by which rule, and why not? The launcher's own answer: nothing else in the package decides that. Pure."""

from __future__ import annotations

from functools import cache

from wavegen.launcher.egress import names, rules
from wavegen.launcher.egress.metadata import METADATA_NAMES
from wavegen.manifest.model import NetworkMode
from wavegen.policy.model import DomainRule, Network, Origin

_PREFIXED = "x."
_TLS_PORT = rules.TLS_PORT


def line_of(origin: Origin) -> str:
    """Where a rule stands, as the launcher shows it to whoever is refused."""
    return f"{origin.at.file}:{origin.at.line}" if origin.at else "default"


def flags_of(rule: DomainRule) -> str:
    """What an entry says beyond its host, in the launcher's words."""
    chosen = (("private", rule.allow_private), ("no-sni", rule.allow_no_sni), ("no-tls", not rule.tls))
    return ",".join(name for name, is_set in chosen if is_set) or "-"


def _launcher_rule(rule: DomainRule) -> rules.Rule:
    return rules.Rule(str(rule), line_of(rule.origin), flags_of(rule))


@cache
def launcher_rules(network: Network) -> rules.Rules:
    """The rules of a filtered network as its launcher makes them of the words that it is handed."""
    return rules.Rules(
        anything=network.mode is NetworkMode.OPEN,
        allow=map(_launcher_rule, network.domains),
        deny=map(_launcher_rule, network.denied),
        loopback=[rules.Rule(f"127.0.0.1:{port}", line_of(network.origin)) for port in network.loopback],
    )


def target_of(host: str) -> names.Target | None:
    """A host in any spelling that clients may use, IPv6 in brackets; None for what is no host's name."""
    try:
        return names.parse_target(host.encode("ascii"))
    except (names.BadNameError, UnicodeEncodeError):
        return None


def decide_host(network: Network, host: str | names.Target, port: int) -> rules.Decision:
    """Whether a host is reached on a port (0: on any), by which rule, and why not (`reason`, as in the launcher's log).

    The addresses that a name leads to are not known here: the launcher judges them when the name is asked for.
    """
    target = target_of(host) if isinstance(host, str) else host
    if network.mode is NetworkMode.HOST:
        return rules.Decision(allowed=True)
    if target is None:
        return rules.Decision(allowed=False, reason="bad-name")
    if network.mode is NetworkMode.NONE:
        return rules.Decision(allowed=False, reason="not-listed")
    found = launcher_rules(network)
    return found.decide_connection(target, port) if port else found.decide_on_any_port(target)


def origin_of(network: Network, rule: rules.Rule | None) -> Origin | None:
    """Where the manifest has a rule that a decision names."""
    if rule is None:
        return None
    found = launcher_rules(network)
    if found.is_loopback_rule(rule):
        return network.origin
    pairs = (*zip(found.deny, network.denied, strict=True), *zip(found.allow, network.domains, strict=True))
    return next((ours.origin for theirs, ours in pairs if theirs is rule), None)


# --- entries


def example_of(rule: DomainRule) -> names.Target:
    """A host that an entry is about: below a wildcard, any name."""
    return names.Target(_PREFIXED + rule.host) if rule.wildcard else names.parse_target(rule.host.encode("ascii"))


def refusal_of(rule: DomainRule) -> str:
    """Why the launcher refuses all that an entry names although it is listed; empty where it lets that through."""
    alone = rules.Rules(anything=False, allow=(_launcher_rule(rule),))
    return alone.decide_connection(example_of(rule), int(rule.port) if rule.port.isdigit() else _TLS_PORT).reason


def is_denied_by(denied: DomainRule, rule: DomainRule) -> bool:
    """Whether a deny rule, taken for every port, refuses what an entry names."""
    alone = rules.Rules(anything=True, deny=(rules.Rule(f"{str(denied).removesuffix(f':{denied.port}') if denied.port else denied}:*", ""),))
    return alone.decide_connection(example_of(rule), _TLS_PORT).reason == "denied"


def is_past_open(rule: DomainRule) -> bool:
    """Whether an entry lets through more than `network: open` does."""
    return bool(rule.extra_flags()) or not rules.Rules(anything=True).decide_connection(example_of(rule), _TLS_PORT).allowed


def is_rule_for_own_loopback(rule: DomainRule) -> bool:
    """Whether an entry is about the loopback, which inside is the shell's own."""
    return rules.is_own_loopback(example_of(rule))


def rule_gives_credentials(rule: DomainRule) -> bool:
    """Whether an entry names a host that hands out the machine's cloud credentials."""
    return not rule.wildcard and names.gives_credentials(example_of(rule))


def credentials_below(rule: DomainRule) -> tuple[str, ...]:
    """The names below a wildcard that hand out the machine's cloud credentials."""
    return tuple(name for name in METADATA_NAMES if rule.wildcard and name.endswith("." + rule.host))


def is_worth_listing(host: str) -> bool:
    """Whether an entry may be proposed for a host: not for the loopback, what is on the link, or what hands out credentials."""
    target = target_of(host)
    if target is None or names.gives_credentials(target):
        return False
    entry = DomainRule(host=target.authority_text(), wildcard=False, port="", origin=Origin(""), allow_private=True)
    return not refusal_of(entry)


def needs_private(host: str) -> bool:
    """Whether an entry for a host lets it through only with allow_private."""
    target = target_of(host)
    return target is not None and refusal_of(DomainRule(host=target.authority_text(), wildcard=False, port="", origin=Origin(""))) in (
        "not-public",
        "local-name",
    )
