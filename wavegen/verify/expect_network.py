"""What a policy says about probes of the network: which names, addresses and ports are reached. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.launcher.egress.metadata import METADATA_NAMES, PROBED_ADDRESSES
from wavegen.manifest.model import NetworkMode
from wavegen.policy.host_rules import decide_host, is_rule_for_own_loopback
from wavegen.policy.model import DomainRule, Origin, Policy
from wavegen.verify.expect import Expect, arguments_of
from wavegen.verify.model import Expectation, Fact, Need, Value, Want

NOBODY = "wavegen-verify.example"
"""A name that no server has (RFC 2606)."""

# --- network


def expect_no_network(**arguments: Value) -> Expect:
    """Out of reach, unless the shell has the host's network."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        yield network_expectation(policy, arguments_of(arguments))

    return expectations_under


def abstract_sockets(**arguments: Value) -> Expect:
    """Out of reach in a network namespace of one's own, and in the host's by the second layer."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        if policy.network.mode is NetworkMode.HOST:
            yield Expectation(want=Want.STOPPED, layer="landlock", origin=policy.network.origin, arguments=arguments_of(arguments), needs=Need.SCOPES)
        else:
            yield network_expectation(policy, arguments_of(arguments))

    return expectations_under


def network_expectation(policy: Policy, arguments: tuple[tuple[str, Value], ...]) -> Expectation:
    if policy.network.mode is NetworkMode.HOST:
        return Expectation(want=Want.OPEN, layer="", origin=policy.network.origin, arguments=arguments, note="network: host")
    return Expectation(want=Want.STOPPED, layer="network namespace", origin=policy.network.origin, arguments=arguments)


_EVERY_WAY = ("direct", "connect", "http", "socks")
_TUNNELS = ("direct", "connect", "socks")
_PLACES = 3
_BELOW = "wavegen-verify"
"""What a probe calls a host below a wildcard."""
_CANARY = ("canary", Fact("tcp"))


def _egress_expectation(policy: Policy, want: Want, *arguments: tuple[str, Value], origin: Origin | None = None, note: str = "") -> Expectation:
    return Expectation(want=want, layer="egress", origin=origin or policy.network.origin, arguments=(*arguments, _CANARY), note=note)


def _expect_places_denied(policy: Policy, *places: tuple[str, int], ways: tuple[str, ...] = _EVERY_WAY) -> Iterator[Expectation]:
    """Places that the list does not let through."""
    kept = tuple(place for place in dict.fromkeys(places) if not decide_host(policy.network, *place).allowed)
    if policy.network.mode.is_filtered and kept:
        yield _egress_expectation(policy, Want.STOPPED, ("places", kept), ("ways", ways))


def unlisted_hosts(policy: Policy) -> Iterator[Expectation]:
    """A name that is on no list is not reached, whichever way it is asked for."""
    yield from _expect_places_denied(policy, (NOBODY, 80), (NOBODY, 443), ("192.0.2.1", 443))


def refused_names(policy: Policy) -> Iterator[Expectation]:
    """A name that is denied is not reached."""
    yield from _expect_places_denied(policy, *((rule.host, _port_of_rule(rule)) for rule in policy.network.denied[:_PLACES] if not rule.wildcard))


def look_alikes(policy: Policy) -> Iterator[Expectation]:
    """Names are compared by whole labels, and to their ends."""
    names = [rule.host for rule in policy.network.domains if not rule.host[0].isdigit() and rule.host[0] != "["][:_PLACES]
    yield from _expect_places_denied(
        policy, *((f"evil{name}", 80) for name in names), *((f"{name}.{NOBODY}", 80) for name in names), *((name, 80) for name in names)
    )


def other_ports(policy: Policy) -> Iterator[Expectation]:
    """What is listed is let through on its own ports alone."""
    yield from _expect_places_denied(policy, *((rule.host, 65000) for rule in policy.network.domains[:_PLACES] if not rule.wildcard))


def metadata_services(policy: Policy) -> Iterator[Expectation]:
    """The cloud's metadata are not reached through the way out either."""
    yield from _expect_places_denied(policy, *((host, 80) for host in (*PROBED_ADDRESSES, METADATA_NAMES[0]) if ":" not in host))


def host_loopback(policy: Policy) -> Iterator[Expectation]:
    """The host's loopback is not reached through the way out, however it is called."""
    spellings = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "[::1]", "[::ffff:127.0.0.1]")
    if policy.network.mode.is_filtered:
        yield _egress_expectation(policy, Want.STOPPED, ("spellings", spellings), ("ways", ("connect", "http", "socks")))


def allowlisted_hosts(policy: Policy) -> Iterator[Expectation]:
    """What is listed is reached by every way: by its name alone, by the proxy, by SOCKS5."""
    places = (
        tuple(place for place in ((NOBODY, 80),) if decide_host(policy.network, *place).allowed)
        if policy.network.mode is NetworkMode.OPEN
        else allowed_destinations(policy)
    )
    if places and policy.network.mode.is_filtered:
        yield _egress_expectation(policy, Want.WORKS, ("places", places), ("ways", _TUNNELS))


def expect_another_server(policy: Policy) -> Iterator[Expectation]:
    """On 443 a host is not asked for another."""
    asked = ((NOBODY, _TLS_PORT),) if policy.network.mode is NetworkMode.OPEN else allowed_destinations(policy)
    places = tuple(place for place in asked if place[1] == _TLS_PORT and decide_host(policy.network, *place).allowed)
    loose = {rule.host for rule in policy.network.domains if not rule.tls}
    kept = tuple(place for place in places if place[0] not in loose)
    if kept and policy.network.mode.is_filtered:
        yield _egress_expectation(policy, Want.STOPPED, ("places", kept), ("asked", f"other.{NOBODY}"), ("ways", _TUNNELS))


def data_in_names(policy: Policy) -> Iterator[Expectation]:
    """Whoever answers for a domain is told every name below it."""
    wildcards = [rule for rule in policy.network.domains if rule.wildcard]
    if policy.network.mode is NetworkMode.OPEN or (policy.network.mode is NetworkMode.FILTERED and wildcards):
        origin = wildcards[0].origin if wildcards else policy.network.origin
        yield Expectation(want=Want.OPEN, layer="", origin=origin, note=f"{wildcards[0] if wildcards else 'network: open'} lets any name through", tried=False)


_TLS_PORT = 443


def _port_of_rule(rule: DomainRule) -> int:
    return int(rule.port) if rule.port not in ("", "*") else 80


def allowed_destinations(policy: Policy) -> tuple[tuple[str, int], ...]:
    """Hosts and ports that are let through, for each of the first rules one, one on 443, and one below a wildcard."""
    listed = [rule for rule in policy.network.domains if not is_rule_for_own_loopback(rule)]
    rules = [rule for rule in listed if not rule.wildcard]
    found = [(rule.host, _port_of_rule(rule)) for rule in rules[:_PLACES]]
    found += [(rule.host, _TLS_PORT) for rule in rules if rule.port in ("", "*", str(_TLS_PORT)) and not rule.host[0].isdigit()][:1]
    below = [(f"{_BELOW}.{rule.host}", _port_of_rule(rule)) for rule in listed if rule.wildcard]
    reached, reached_below = ([place for place in dict.fromkeys(places) if decide_host(policy.network, *place).allowed] for places in (found, below))
    return (*reached, *reached_below[:1])


def redirected_destinations(policy: Policy) -> tuple[tuple[str, int], ...]:
    """Every host and port that an attempt names: the launcher connects to the planted server in its place."""
    found: list[tuple[str, int]] = []
    for expect in (unlisted_hosts, refused_names, look_alikes, other_ports, metadata_services, allowlisted_hosts, expect_another_server):
        for expectation in expect(policy):
            found += [place for name, places in expectation.arguments if name == "places" and isinstance(places, tuple) for place in places]  # type: ignore[misc]
    return tuple(dict.fromkeys(found))
