"""Who may be reached: the one decision, compared with a reference, and what it says of each X case."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Iterator

import pytest
from egress_reference import Entry, Lists, allowed, allowed_text, host_of

from wavegen.core.errors import Location
from wavegen.launcher.egress import names
from wavegen.launcher.egress import rules as rules_of
from wavegen.manifest.decoder import Text
from wavegen.policy import domains


def flags(entry: Entry) -> str:
    return "private" if entry.private else ""


def built(lists: Lists) -> rules_of.Rules:  # type: ignore[name-defined]
    """The lists, as the launcher hands them over."""
    made = [[rules_of.Rule(entry.text(), f"{entry.text()} in the manifest", flags(entry)) for entry in some] for some in (lists.allow, lists.deny)]
    loopback = [rules_of.Rule(f"127.0.0.1:{port}", "loopback") for port in lists.loopback]
    return rules_of.Rules(anything=lists.anything, allow=made[0], deny=made[1], loopback=loopback)


def says(rules: object, text: bytes) -> str:
    """`allow`, `bad-name`, or why not."""
    try:
        target, port = names.parse_authority(text)
    except names.BadNameError:
        return "bad-name"
    found = rules.decide_connection(target, port)  # type: ignore[attr-defined]
    assert found.allowed == (not found.reason)
    assert found.rule is not None or not found.allowed
    return "allow" if found.allowed else found.reason


LISTS = Lists(
    allow=[
        Entry("github.com"),
        Entry("github.com", wildcard=True),
        Entry("example.org", wildcard=True),
        Entry("git.example.net", port=22),
        Entry("any.example.net", port="*"),
        Entry("9.9.9.9"),
        Entry("[2620:fe::fe]", port=853),
        Entry("internal", wildcard=True, private=True),
        Entry("nas.local", private=True),
        Entry("printer.local"),
        Entry("db", port=5432, private=True),
        Entry("foo.localhost"),
    ],
    deny=[Entry("evil.github.com"), Entry("bad.example.org", wildcard=True), Entry("github.com", port=80), Entry("9.9.9.9", port=80)],
    loopback=[5432],
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"API.GitHub.COM:443", "allow", id="X01"),
        pytest.param(b"github.com.:443", "allow", id="X02"),
        pytest.param(b"github.com..:443", "bad-name", id="X02-two"),
        pytest.param(b"evilgithub.com:443", "not-listed", id="X03-no-boundary"),
        pytest.param(b"github.com.evil.com:443", "not-listed", id="X03-prefix"),
        pytest.param(b"example.org.evil.com:443", "not-listed", id="X03-prefix-of-a-wildcard"),
        pytest.param(b"evilexample.org:443", "not-listed", id="X03-wildcard-no-boundary"),
        pytest.param(b"example.org:443", "not-listed", id="X04-apex"),
        pytest.param(b"a.b.example.org:443", "allow", id="X05-deep"),
        pytest.param(b"127.0.0.1\0.github.com:443", "bad-name", id="X06"),
        pytest.param(b"github.com%00:443", "bad-name", id="X07"),
        pytest.param(b"github.com@evil.com:443", "bad-name", id="X08"),
        pytest.param("ｇithub.com:443".encode(), "bad-name", id="X09"),
        pytest.param(b"xn--gthub-n4a.com:443", "not-listed", id="X10"),
        pytest.param(b".github.com:443", "bad-name", id="X11"),
        pytest.param(b"140.82.121.3:443", "literal", id="X12"),
        pytest.param(b"9.9.9.9:443", "allow", id="X12-listed"),
        pytest.param(b"9.9.9.9:80", "denied", id="X12-listed-and-denied"),
        pytest.param(b"9.9.9.9:22", "port", id="X12-listed-other-port"),
        pytest.param(b"[::ffff:9.9.9.9]:443", "allow", id="X12-listed-mapped"),
        pytest.param(b"[::ffff:9.9.9.9]:80", "denied", id="X12-denied-mapped"),
        pytest.param(b"127.1:5432", "bad-name", id="X13-short"),
        pytest.param(b"2130706433:5432", "bad-name", id="X13-number"),
        pytest.param("127。0。0。1:5432".encode(), "bad-name", id="X14"),
        pytest.param(b"[2620:fe::fe]:853", "allow", id="X15-listed"),
        pytest.param(b"[2620:FE:0:0::fe]:853", "allow", id="X15-listed-in-another-spelling"),
        pytest.param(b"[2620:fe::fe]:443", "port", id="X15-other-port"),
        pytest.param(b"[2620:fe::fd]:853", "literal", id="X15-other"),
        pytest.param(b"[fe80::1%25eth0]:443", "bad-name", id="X15-zone"),
        pytest.param(b"localhost:80", "loopback-port", id="X16"),
        pytest.param(b"LOCALHOST.:80", "loopback-port", id="X16-spelling"),
        pytest.param(b"localhost:5432", "allow", id="X16-let-in"),
        pytest.param(b"127.0.0.1:5432", "allow", id="X16-let-in-v4"),
        pytest.param(b"[::1]:5432", "allow", id="X16-let-in-v6"),
        pytest.param(b"[::ffff:7f00:1]:5432", "allow", id="X16-let-in-mapped"),
        pytest.param(b"[::ffff:7f00:1]:5433", "loopback-port", id="X16-mapped"),
        pytest.param(b"127.0.0.2:5432", "literal", id="X16-not-the-one"),
        pytest.param(b"0.0.0.0:5432", "literal", id="X16-zero"),
        pytest.param(b"foo.localhost:443", "local-name", id="X16-below-localhost"),
        pytest.param(b"bar.localhost:443", "local-name", id="X16-below-localhost-unlisted"),
        pytest.param(b"printer.local:443", "local-name", id="X16-local"),
        pytest.param(b"nas.local:443", "allow", id="X16-local-private"),
        pytest.param(b"intranet:443", "local-name", id="X16-single-label"),
        pytest.param(b"db:5432", "allow", id="X16-single-label-private"),
        pytest.param(b"db:443", "local-name", id="X16-single-label-other-port"),
        pytest.param(b"metadata.google.internal:80", "metadata", id="X20-no-wildcard"),
        pytest.param(b"METADATA.google.internal.:80", "metadata", id="X20-spelling"),
        pytest.param(b"metadata:80", "metadata", id="X20-single"),
        pytest.param(b"169.254.169.254:80", "literal", id="X20-address"),
        pytest.param(b"build.internal:80", "allow", id="X20-a-neighbour"),
        pytest.param(b"github.com:22", "port", id="X22-22"),
        pytest.param(b"github.com:25", "port", id="X22-25"),
        pytest.param(b"github.com:0", "bad-name", id="X22-0"),
        pytest.param(b"github.com:65536", "bad-name", id="X22-65536"),
        pytest.param(b"github.com:+443", "bad-name", id="X22-plus"),
        pytest.param(b"github.com:0443", "bad-name", id="X22-zero"),
        pytest.param(b"github.com: 443", "bad-name", id="X22-space"),
        pytest.param(b"github.com", "bad-name", id="X22-missing"),
        pytest.param(b"github.com:https", "bad-name", id="X22-word"),
        pytest.param(b"git.example.net:22", "allow", id="X22-listed"),
        pytest.param(b"git.example.net:443", "port", id="X22-not-the-usual-ones"),
        pytest.param(b"any.example.net:65535", "allow", id="X22-every"),
        pytest.param(b"evil.github.com:443", "denied", id="deny-beats-a-wildcard"),
        pytest.param(b"EVIL.github.com.:443", "denied", id="deny-in-another-spelling"),
        pytest.param(b"x.evil.github.com:443", "allow", id="deny-is-exact"),
        pytest.param(b"bad.example.org:443", "allow", id="deny-of-a-wildcard-not-the-apex"),
        pytest.param(b"x.y.bad.example.org:443", "denied", id="deny-of-a-wildcard"),
        pytest.param(b"evil.github.com:2222", "denied", id="deny-every-port"),
        pytest.param(b"github.com:80", "denied", id="deny-one-port"),
        pytest.param(b"github.com:443", "allow", id="deny-not-the-other-port"),
    ],
)
def test_the_decision(text: bytes, expected: str) -> None:
    assert says(built(LISTS), text) == expected
    assert allowed_text(LISTS, text) == (expected == "allow")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(b"anything.example:9999", "allow", id="a-public-name"),
        pytest.param(b"1.1.1.1:443", "literal", id="X12-an-address"),
        pytest.param(b"localhost:80", "loopback-port", id="X16-localhost"),
        pytest.param(b"a.local:80", "local-name", id="X16-local"),
        pytest.param(b"intranet:80", "local-name", id="X16-single"),
        pytest.param(b"metadata.google.internal:80", "metadata", id="X20"),
        pytest.param(b"evil.example:80", "denied", id="denied"),
    ],
)
def test_an_open_network_is_one_of_public_names(text: bytes, expected: str) -> None:
    assert says(built(Lists(deny=[Entry("evil.example")], anything=True)), text) == expected


@pytest.mark.parametrize(
    ("entry", "allows"),
    [
        pytest.param(Entry("metadata.google.internal", private=True), True, id="by-its-name"),
        pytest.param(Entry("metadata.google.internal"), False, id="not-private"),
        pytest.param(Entry("google.internal", wildcard=True, private=True), False, id="wildcard"),
    ],
)
def test_x20_metadata_is_let_through_by_name_alone(entry: Entry, allows: bool) -> None:
    assert (says(built(Lists(allow=[entry])), b"metadata.google.internal:80") == "allow") is allows


# --- against the reference

_LABELS = ("a", "b", "git", "github", "evilgithub", "com", "org", "internal", "google", "metadata", "local", "corp", "xn--p1ai")
_ADDRESSES = ("9.9.9.9", "10.0.0.1", "127.0.0.1", "127.0.0.2", "169.254.169.254", "[::1]", "[2620:fe::fe]", "[fd00::1]")
_PORTS = (22, 80, 443, 5432, 8080, 65535)


def _host(dice: random.Random) -> str:
    if dice.random() < 0.05:
        return dice.choice(("metadata.google.internal", "metadata", "instance-data.ec2.internal"))
    return ".".join(dice.choices(_LABELS, k=dice.choice((1, 2, 2, 2, 3, 3, 4))))


def _entry(dice: random.Random, *, deny: bool) -> Entry:
    port: int | str = dice.choice(("", "", "*", *_PORTS))
    if dice.random() < 0.15:
        address = dice.choice(_ADDRESSES)
        # Whether a deny of the host's own loopback counts is a test of its own.
        return Entry(address if not deny or address not in ("127.0.0.1", "[::1]") else "9.9.9.9", port=port, private=dice.random() < 0.5)
    return Entry(_host(dice), wildcard=dice.random() < 0.4, port=port, private=not deny and dice.random() < 0.3)


def _lists(dice: random.Random) -> Lists:
    allow = [_entry(dice, deny=False) for _ in range(dice.randint(0, 14))]
    deny = [_entry(dice, deny=True) for _ in range(dice.choice((0, 0, 1, 3, 6)))]
    return Lists(allow=allow, deny=deny, loopback=dice.sample(_PORTS, dice.choice((0, 0, 1, 2))), anything=dice.random() < 0.15)


def _spelled(dice: random.Random, host: str) -> str:
    match dice.randrange(12):
        case 0:
            return host.upper()
        case 1:
            return host + "."
        case 2:
            return "evil" + host
        case 3:
            return host + ".evil.com"
        case 4 | 5:
            return f"{dice.choice(_LABELS)}.{host}"
        case 6:
            return host.partition(".")[2] or host
        case 7:
            return f"[::ffff:{host}]" if host[0].isdigit() else host
        case 8:
            return dice.choice(("localhost", "LocalHost.", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]"))
        case 9:
            return dice.choice(("127.1", "0x7f.1", "a..b", "a\0b", "user@", "", "*.")) + host
        case _:
            return host


def _cases(seed: int, count: int, each: int) -> Iterator[tuple[Lists, object, bytes]]:
    dice = random.Random(seed)
    for _ in range(count):
        lists = _lists(dice)
        rules = built(lists)
        hosts = [entry.host for entry in (*lists.allow, *lists.deny)] + [_host(dice) for _ in range(4)] + list(_ADDRESSES)
        for _ in range(each):
            yield lists, rules, f"{_spelled(dice, dice.choice(hosts))}:{dice.choice((*_PORTS, 80, 443))}".encode()


def test_20000_random_decisions_are_those_of_the_reference() -> None:
    seen = {"allow": 0, "bad-name": 0}
    for lists, rules, text in _cases(20, 500, 40):
        said = says(rules, text)
        assert (said == "allow") == allowed_text(lists, text), (text, said, lists)
        seen[said] = seen.get(said, 0) + 1
    assert sum(seen.values()) == 20_000
    assert set(seen) == {"allow", "bad-name", "denied", "literal", "local-name", "loopback-port", "metadata", "not-listed", "not-public", "port"}
    assert min(seen.values()) > 50, seen


def test_a_name_that_no_port_lets_through_is_not_known_and_denied_ones_never_are() -> None:
    known = 0
    for lists, rules, text in _cases(21, 200, 40):
        host = host_of(text.rpartition(b":")[0])
        if not isinstance(host, str) or host == "localhost":
            continue
        if rules.decide_on_any_port(names.Target(name=host)).allowed:  # type: ignore[attr-defined]
            known += 1
            assert any(allowed(Lists(lists.allow, (), lists.loopback, lists.anything), host, port) for port in (*_PORTS, 1)), (host, lists)
            everywhere = Lists(deny=[entry for entry in lists.deny if entry.port in ("", "*")], anything=True, allow=[Entry(host, port="*", private=True)])
            assert allowed(everywhere, host, 80), (host, lists)
    assert known > 300


@pytest.mark.parametrize("name", ["db", "metadata.google.internal"])
def test_a_name_that_some_port_lets_through_is_known(name: str) -> None:
    rules = built(Lists(allow=[Entry(name), Entry(name, port=5432, private=True)]))
    assert rules.decide_connection(names.Target(name=name), 5432).allowed
    assert rules.decide_on_any_port(names.Target(name=name)).allowed


@pytest.mark.parametrize("text", ["localhost", "127.0.0.1", "[::1]"])
def test_deny_beats_the_loopback_ports_too(text: str) -> None:
    rules = built(Lists(deny=[Entry(text)], loopback=[5432]))
    assert not rules.decide_connection(names.parse_target(text.encode()), 5432).allowed


# --- X17: what a name leads to


def _packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


@pytest.fixture
def no_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of the machine that runs the test are nobody's."""
    monkeypatch.setattr(rules_of, "is_own_address", lambda _: False)


@pytest.mark.usefixtures("no_own")
@pytest.mark.parametrize(
    ("entry", "chosen", "address", "reason"),
    [
        pytest.param("a.example", "", "8.8.8.8", "", id="public"),
        pytest.param("a.example", "", "::ffff:8.8.8.8", "", id="public-mapped"),
        pytest.param("a.example", "", "2606:4700::1", "", id="public-six"),
        pytest.param("a.example", "", "10.0.0.1", "not-public", id="X17-private"),
        pytest.param("a.example", "", "::ffff:10.0.0.1", "not-public", id="X17-private-mapped"),
        pytest.param("a.example", "", "64:ff9b::a00:1", "not-public", id="X18-nat64"),
        pytest.param("a.example", "private", "10.0.0.1", "", id="X17-allow-private"),
        pytest.param("*.example", "private", "fd00::1", "", id="X17-allow-private-wildcard"),
        pytest.param("a.example", "private", "127.0.0.1", "not-public", id="X17-never-loopback"),
        pytest.param("a.example", "private", "::1", "not-public", id="X17-never-loopback-six"),
        pytest.param("a.example", "private", "::ffff:127.0.0.1", "not-public", id="X17-never-loopback-mapped"),
        pytest.param("a.example", "private", "2002:7f00:1::", "not-public", id="X18-never-6to4-of-loopback"),
        pytest.param("a.example", "private", "169.254.1.1", "not-public", id="X19-never-link"),
        pytest.param("a.example", "private", "0.0.0.0", "not-public", id="X19-never-zero"),
        pytest.param("a.example", "private", "169.254.169.254", "metadata", id="X20-not-by-a-name"),
        pytest.param("*.example", "private", "168.63.129.16", "metadata", id="X20-not-by-a-wildcard"),
        pytest.param("a.example", "private", "64:ff9b::a9fe:a9fe", "metadata", id="X20-not-inside"),
        pytest.param("a.example", "private", "fd00:ec2::254", "metadata", id="X20-six"),
        pytest.param("169.254.169.254", "private", "169.254.169.254", "", id="X20-by-itself"),
        pytest.param("169.254.169.254", "", "169.254.169.254", "metadata", id="X20-by-itself-not-private"),
        pytest.param("metadata.google.internal", "private", "169.254.169.254", "", id="X20-by-its-name"),
        pytest.param("*.google.internal", "private", "169.254.169.254", "metadata", id="X20-by-a-wildcard-of-its-name"),
        pytest.param("a.example", "private", "203.0.113.9", "denied", id="denied-by-address"),
        pytest.param("a.example", "", "::ffff:203.0.113.9", "denied", id="denied-by-address-mapped"),
        pytest.param("10.0.0.1", "", "10.0.0.1", "not-public", id="X12-listed-not-private"),
        pytest.param("10.0.0.1", "private", "10.0.0.1", "", id="X12-listed-private"),
    ],
)
def test_every_address_of_a_name_is_judged(entry: str, chosen: str, address: str, reason: str) -> None:
    rule = rules_of.Rule(entry, "line 1", chosen)
    rules = rules_of.Rules(anything=False, allow=[rule], deny=[rules_of.Rule("203.0.113.9", "line 2")])
    assert rules.address_refusal_reason(rule, _packed(address), 443) == reason


def test_a_loopback_port_leads_to_the_loopback_alone() -> None:
    rules = built(Lists(loopback=[5432]))
    rule = rules.loopback[5432]
    assert [rules.address_refusal_reason(rule, _packed(text), 443) for text in ("127.0.0.1", "::1", "::ffff:127.0.0.1", "127.0.0.2", "8.8.8.8")] == [
        "",
        "",
        "",
        "not-public",
        "not-public",
    ]


def test_x21_the_hosts_own_addresses_are_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rules_of.is_own_address(_packed("127.0.0.1"))
    assert rules_of.is_own_address(_packed("127.9.9.9"))
    assert not rules_of.is_own_address(_packed("8.8.8.8"))
    assert not rules_of.is_own_address(_packed("2606:4700::1"))
    monkeypatch.setattr(rules_of, "is_own_address", lambda address: address == _packed("8.8.8.8"))
    rule = rules_of.Rule("a.example", "line 1", "private")
    rules = rules_of.Rules(anything=False, allow=[rule])
    assert [rules.address_refusal_reason(rule, _packed(text), 443) for text in ("8.8.8.8", "::ffff:8.8.8.8", "8.8.4.4")] == ["own-address", "own-address", ""]


def test_x21_what_cannot_be_told_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> object:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(rules_of.socket, "socket", none_left)
    assert rules_of.is_own_address(_packed("8.8.8.8"))


@pytest.mark.parametrize(
    ("entry", "on", "off"),
    [("a.b", (80, 443), (22, 8080)), ("a.b:22", (22,), (80, 443)), ("a.b:*", (1, 80, 65535), ()), ("[::2]:22", (22,), (80,)), ("*.b:1", (1,), (11, 80))],
)
def test_an_entry_is_on_its_ports(entry: str, on: tuple[int, ...], off: tuple[int, ...]) -> None:
    rule = rules_of.Rule(entry, "line 1")
    assert str(rule) == entry
    assert all(rule.allows_port(port) for port in on)
    assert not any(rule.allows_port(port) for port in off)


def test_the_ports_that_something_listens_on() -> None:
    assert built(Lists(allow=[Entry("a.b"), Entry("c.d", port=2222)])).listener_ports() == (80, 443, 2222)
    assert set(built(Lists(allow=[Entry("a.b", port="*")])).listener_ports()) == set(rules_of.CUSTOMARY) == set(built(Lists(anything=True)).listener_ports())
    assert built(Lists()).listener_ports() == ()


def test_a_denied_address_is_denied_on_its_port() -> None:
    rules = rules_of.Rules(
        anything=False, allow=[rules_of.Rule("a.example.org:*", "1")], deny=[rules_of.Rule("8.8.8.8:22", "2"), rules_of.Rule("8.8.4.4:*", "3")]
    )
    rule = rules.allow[0]
    assert [rules.address_refusal_reason(rule, _packed(text), port) for text, port in (("8.8.8.8", 22), ("8.8.8.8", 443), ("8.8.4.4", 443))] == [
        "denied",
        "",
        "denied",
    ]


def test_what_a_manifest_is_warned_of_is_what_is_refused() -> None:
    """The package and the runtime share no code: their tables must say the same."""
    for size, base, free in (*names._NEVER, *names._PRIVATE):
        for value in (base << free, (base << free) + (1 << free) - 1):
            for near in (value - 1, value, value + 1):
                if not 0 <= near < 1 << size * 8:
                    continue
                packed = near.to_bytes(size, "big")
                if names.classify_address(packed) == names.METADATA or names.unmap_ipv4_address(packed) != packed or names._embedded_ipv4_addresses(packed):
                    continue  # told of otherwise, or by what is inside
                text = names.format_address(packed)
                advised = domains.domain_advice(domains.domain_rule(Text(f"[{text}]" if size > 4 else text, Location(""))))
                assert (advised is not None) == (names.classify_address(packed) != names.PUBLIC), text
