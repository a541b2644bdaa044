"""An entry of an allow list means exactly one thing, or is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wavegen.core.errors import InvalidValueError, Location, Severity
from wavegen.manifest.decoder import Text
from wavegen.manifest.model import DomainEntry
from wavegen.manifest.shared_hosting import ANYBODYS, HOSTING
from wavegen.policy.domains import broad_wildcard_reason, denied_rule, domain_advice, domain_rule, rule_covers
from wavegen.policy.model import DomainRule, Origin

AT = Location("wave.yaml", 7, 3)


def rule(text: str) -> DomainRule:
    return domain_rule(Text(text, AT))


@pytest.mark.parametrize(
    ("entry", "host", "wildcard", "port"),
    [
        pytest.param("api.anthropic.com", "api.anthropic.com", False, "", id="name"),
        pytest.param("*.github.com", "github.com", True, "", id="wildcard"),
        pytest.param("github.com:22", "github.com", False, "22", id="port"),
        pytest.param("*.x.org:65535", "x.org", True, "65535", id="wildcard-with-port"),
        pytest.param("x.org:*", "x.org", False, "*", id="any-port"),
        pytest.param("API.Example.ORG", "api.example.org", False, "", id="capitals"),
        pytest.param("x.org.", "x.org", False, "", id="final-dot"),
        pytest.param("  x.org\n", "x.org", False, "", id="blanks-around"),
        pytest.param("localhost", "localhost", False, "", id="one-label"),
        pytest.param("_dmarc.x-y.org", "_dmarc.x-y.org", False, "", id="underscore"),
        pytest.param("xn--bcher-kva.example", "xn--bcher-kva.example", False, "", id="punycode"),
        pytest.param("a" * 63 + ".org", "a" * 63 + ".org", False, "", id="longest-label"),
        pytest.param("203.0.113.7", "203.0.113.7", False, "", id="ipv4"),
        pytest.param("203.0.113.7:8080", "203.0.113.7", False, "8080", id="ipv4-with-port"),
        pytest.param("[2001:DB8::1]", "[2001:db8::1]", False, "", id="ipv6"),
        pytest.param("[2001:db8:0:0::1]:443", "[2001:db8::1]", False, "443", id="ipv6-folded"),
        pytest.param("3com.com", "3com.com", False, "", id="digit-first"),
    ],
)
def test_an_entry_is_brought_into_one_form(entry: str, host: str, wildcard: bool, port: str) -> None:
    found = rule(entry)
    assert (found.host, found.wildcard, found.port, found.origin.at) == (host, wildcard, port, AT)


@pytest.mark.parametrize(
    ("entry", "what", "hint"),
    [
        pytest.param("https://x.org/a", "is an address of a page, not a host", "write x.org", id="url"),
        pytest.param("https://", "is an address of a page", "write the host's name", id="scheme-alone"),
        pytest.param("x.org/a", "is an address of a page", "write x.org", id="path"),
        pytest.param("git@github.com", "is an address of a page", "write github.com", id="user"),
        pytest.param("*", "a star stands only for whole labels at the front", "list the names", id="star"),
        pytest.param("*:443", "a star stands only for whole labels", "list the names", id="star-with-port"),
        pytest.param("*.", "a star stands only for whole labels", "list the names", id="star-dot"),
        pytest.param("*x.org", "a star stands only for whole labels", "list the names", id="half-label"),
        pytest.param("a.*.org", "a star stands only for whole labels", "list the names", id="inner-star"),
        pytest.param("*.*.org", "a star stands only for whole labels", "list the names", id="two-stars"),
        pytest.param("*.203.0.113.7", "an address has no names below it", "write the address alone", id="star-before-address"),
        pytest.param("bücher.example", "is not ASCII", "xn-- form", id="umlaut"),
        pytest.param("\u212aernel.org", "is not ASCII", "xn-- form", id="kelvin-sign-that-becomes-k"),
        pytest.param("x\u3002org", "is not ASCII", "xn-- form", id="ideographic-full-stop"),
        pytest.param("-a.org", "is not a host name", "letters, digits and hyphens", id="hyphen-first"),
        pytest.param("a-.org", "is not a host name", "letters, digits and hyphens", id="hyphen-last"),
        pytest.param("a..org", "is not a host name", "letters, digits and hyphens", id="empty-label"),
        pytest.param(".x.org", "is not a host name", "letters, digits and hyphens", id="dot-first"),
        pytest.param("a b", "is not a host name", "letters, digits and hyphens", id="blank-inside"),
        pytest.param("a\nb", "is not a host name", "letters, digits and hyphens", id="newline-inside"),
        pytest.param("$(x)", "is not a host name", "letters, digits and hyphens", id="shell"),
        pytest.param("x.org\0", "is not a host name", "letters, digits and hyphens", id="nul"),
        pytest.param("a" * 64 + ".org", "is not a host name", "letters, digits and hyphens", id="long-label"),
        pytest.param(".".join(["abcdefg"] * 32), "is not a host name", "letters, digits and hyphens", id="long-name"),
        pytest.param("x.org:0", "'0' is not a port", "1 to 65535", id="port-0"),
        pytest.param("x.org:65536", "'65536' is not a port", "1 to 65535", id="port-65536"),
        pytest.param("x.org:080", "'080' is not a port", "1 to 65535", id="port-with-zero"),
        pytest.param("x.org:+80", "'+80' is not a port", "1 to 65535", id="port-with-sign"),
        pytest.param("x.org:https", "'https' is not a port", "1 to 65535", id="port-by-name"),
        pytest.param("x.org:", "'' is not a port", "1 to 65535", id="no-port"),
        pytest.param("127.1", "is not an address in its usual spelling", "four decimal numbers", id="short-ipv4"),
        pytest.param("2130706433", "is not an address in its usual spelling", "four decimal numbers", id="decimal-ipv4"),
        pytest.param("0x7f000001", "is not an address in its usual spelling", "four decimal numbers", id="hexadecimal-ipv4"),
        pytest.param("0x7f.1", "is not an address in its usual spelling", "four decimal numbers", id="mixed-ipv4"),
        pytest.param("010.0.0.1", "is not an address in its usual spelling", "four decimal numbers", id="octal-ipv4"),
        pytest.param("256.1.1.1", "is not an address in its usual spelling", "four decimal numbers", id="large-ipv4"),
        pytest.param("[]", "is not an address", "", id="empty-brackets"),
        pytest.param("[x.org]", "is not an address", "", id="name-in-brackets"),
        pytest.param("[fe80::1%eth0]", "is an address of one network card", "remove what follows the %", id="zone"),
        pytest.param("[::1", "is not host or host:port", "bracket an IPv6 address", id="open-bracket"),
        pytest.param("*.[::1]", "is not host or host:port", "bracket an IPv6 address", id="star-before-ipv6"),
        pytest.param("2001:db8::1", "is not", "", id="ipv6-without-brackets"),
        pytest.param("", "is empty", "name a host", id="empty"),
    ],
)
def test_an_entry_that_is_nearly_right_is_refused_with_what_to_write(entry: str, what: str, hint: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        rule(entry)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert f"'{entry}'" in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize("entry", ["*.github.com", "x.org:22", "[2001:db8::1]:443", "x.org:*"])
def test_a_rule_is_written_as_it_is_read(entry: str) -> None:
    assert str(rule(entry)) == entry
    assert str(rule(str(rule(entry)))) == entry


def test_a_mapping_says_more_about_a_host() -> None:
    entry = DomainEntry(host=Text("DB.corp.example:5432", AT), allow_private=True, allow_no_sni=True, tls=False)
    found = domain_rule(entry)
    assert found == DomainRule(host="db.corp.example", wildcard=False, port="5432", origin=Origin("", AT), allow_private=True, allow_no_sni=True, tls=False)
    assert found.extra_flags() == {"allow_private": True, "allow_no_sni": True, "tls": False}
    assert domain_rule(DomainEntry(host=Text("x.org", AT))) == rule("x.org")
    assert rule("x.org").extra_flags() == {}
    with pytest.raises(InvalidValueError):
        domain_rule(DomainEntry(host=Text("https://x.org", AT)))


@pytest.mark.parametrize(("entry", "port"), [("x.org", "*"), ("x.org:22", "22"), ("x.org:*", "*"), ("*.x.org", "*"), ("203.0.113.7", "*")])
def test_a_host_is_denied_on_every_port_unless_one_is_written(entry: str, port: str) -> None:
    assert denied_rule(Text(entry, AT)) == replace(rule(entry), port=port)


# --- what is rarely meant


def private(text: str) -> DomainRule:
    return replace(rule(text), allow_private=True)


def said(found: DomainRule) -> tuple[Severity, str] | None:
    problem = domain_advice(found)
    if problem is None:
        return None
    assert problem.at == AT
    assert problem.hint
    return problem.severity, problem.what


@pytest.mark.parametrize(
    "entry",
    [
        "*.com", "*.com:443", "*.dev", "*.uk",
        "*.co.uk", "*.com.au", "*.org.br", "*.ne.jp", "*.go.kr", "*.ac.at", "*.or.id", "*.co.uk:22",
        "*.github.io", "*.gitlab.io", "*.githubusercontent.com", "*.pages.dev", "*.workers.dev", "*.vercel.app", "*.netlify.app",
        "*.herokuapp.com", "*.cloudfront.net", "*.ngrok.io", "*.trycloudflare.com", "*.web.app", "*.blob.core.windows.net",
        "*.s3.amazonaws.com", "*.s3.eu-west-1.amazonaws.com", "*.s3-us-west-2.amazonaws.com", "*.s3.dualstack.eu-west-1.amazonaws.com",
        "*.execute-api.eu-west-1.amazonaws.com", "*.lambda-url.eu-west-1.on.aws", "*.compute-1.amazonaws.com",
        "*.amazonaws.com", "*.eu-west-1.amazonaws.com", "*.windows.net", "*.googleapis.com", "*.r2.dev",
    ],
)  # fmt: skip
def test_a_wildcard_below_which_anybody_can_have_a_name_is_broad(entry: str) -> None:
    assert broad_wildcard_reason(rule(entry))
    found = said(rule(entry))
    assert found == (Severity.WARNING, f"'{entry}' allows {broad_wildcard_reason(rule(entry))}")


@pytest.mark.parametrize(
    "entry",
    [
        "*.github.com", "*.npmjs.org", "*.example.co.uk", "*.example.com", "*.x.org", "*.me.github.io", "*.mine.s3.amazonaws.com", "*.anthropic.com",
        "*.pypi.org", "*.golang.org", "*.go.dev", "*.docker.io", "*.co.com", "*.go.com", "*.example.de", "*.t.co", "*.cache.nixos.org", "*.microsoft.com",
        "com", "co.uk", "github.io", "me.github.io", "mine.s3.amazonaws.com", "api.github.com", "proxy.golang.org", "203.0.113.7", "github.com:22",
    ],
)  # fmt: skip
def test_other_entries_are_not_broad(entry: str) -> None:
    assert broad_wildcard_reason(rule(entry)) == ""
    if "." in entry and entry != "203.0.113.7":
        assert said(rule(entry)) is None


@pytest.mark.parametrize(
    "entry",
    ["raw.githubusercontent.com", "gist.githubusercontent.com", "pastebin.com", "s3.amazonaws.com", "s3.eu-west-1.amazonaws.com", "storage.googleapis.com",
     "webhook.site", "transfer.sh", "pastebin.com:443"],
)  # fmt: skip
def test_a_host_that_serves_what_anybody_puts_there_is_noted(entry: str) -> None:
    found = said(rule(entry))
    assert found is not None
    assert found[0] is Severity.NOTE
    assert found[1].startswith(f"'{entry}' serves ")


def test_the_table_of_suffixes_is_in_order() -> None:
    """Every name is one that an entry could hold, stands once, and has a reason that reads on."""
    for groups in (HOSTING, ANYBODYS):
        names = [name for group in groups for name in group.names]
        assert len(names) == len(set(names))
        assert all(str(rule(name)) == name and "." in name for name in names)
        assert all(group.reason and not group.reason.endswith(".") for group in groups)
        assert all(list(group.names) == sorted(group.names) for group in groups)


@pytest.mark.parametrize(
    "entry",
    ["169.254.169.254", "169.254.169.254:80", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "metadata.google.internal", "[::ffff:169.254.169.254]"],
)
def test_a_host_that_gives_credentials_away_is_warned_of_also_where_it_is_allowed_to_be_private(entry: str) -> None:
    for found in (rule(entry), private(entry)):
        assert said(found) == (Severity.WARNING, f"'{found}' gives the machine's cloud credentials away")


@pytest.mark.parametrize("entry", ["*.internal", "*.google.internal"])
def test_a_wildcard_above_such_a_host_is_warned_of(entry: str) -> None:
    for found in (rule(entry), private(entry)):
        assert said(found) == (Severity.WARNING, f"'{entry}' holds metadata.google.internal, which gives the machine's cloud credentials away")


@pytest.mark.parametrize("entry", ["localhost", "127.0.0.1", "127.9.9.9:80", "[::1]:443"])
def test_the_loopback_is_the_inside(entry: str) -> None:
    for found in (rule(entry), private(entry)):
        assert said(found) == (Severity.WARNING, f"'{entry}' is the inside of the fence itself")


@pytest.mark.parametrize(
    ("entry", "written"),
    [
        pytest.param("10.1.2.3", "10.1.2.3", id="10"),
        pytest.param("192.168.1.1:8080", "192.168.1.1:8080", id="192.168-with-port"),
        pytest.param("172.31.0.1", "172.31.0.1", id="172.31"),
        pytest.param("100.64.0.1", "100.64.0.1", id="carrier"),
        pytest.param("203.0.113.7", "203.0.113.7", id="documentation"),
        pytest.param("[fd12::1]:443", "'[fd12::1]:443'", id="ipv6-local"),
        pytest.param("[2001:db8::1]", "'[2001:db8::1]'", id="ipv6-documentation"),
        pytest.param("[2002:a00:1::]", "'[2002:a00:1::]'", id="ipv6-to-4"),
        pytest.param("[64:ff9b::a00:1]", "'[64:ff9b::a00:1]'", id="ipv6-nat64"),
        pytest.param("[::ffff:10.0.0.1]", f"'{rule('[::ffff:10.0.0.1]')}'", id="ipv6-mapped"),
        pytest.param("intranet", "intranet", id="one-label"),
        pytest.param("intranet:8080", "intranet:8080", id="one-label-with-port"),
        pytest.param("printer.local", "printer.local", id="local"),
        pytest.param("*.local", "'*.local'", id="every-local"),
    ],
)  # fmt: skip
def test_what_the_fence_will_refuse_is_said_with_what_to_write(entry: str, written: str) -> None:
    problem = domain_advice(rule(entry))
    assert problem is not None
    assert problem.severity is Severity.WARNING
    assert "will be refused" in problem.what
    assert f"{{host: {written}, allow_private: true}}" in problem.hint
    assert said(private(entry)) is None


@pytest.mark.parametrize("entry", ["169.254.1.1", "0.0.0.0", "224.0.0.1", "[fe80::1]", "[2002:7f00:1::]", "foo.localhost", "*.localhost:3000"])
def test_what_no_flag_lets_through_is_said_without_one(entry: str) -> None:
    for found in (rule(entry), private(entry)):
        problem = domain_advice(found)
        assert problem is not None
        assert "will be refused" in problem.what
        assert "allow_private" not in problem.hint


@pytest.mark.parametrize("entry", ["140.82.121.3", "[2606:4700::1111]:443", "172.32.0.1", "100.128.0.1", "[::ffff:8.8.8.8]", "8.8.8.8:53"])
def test_a_public_address_is_an_address(entry: str) -> None:
    assert said(rule(entry)) is None


def test_a_wildcard_over_an_intranet_is_meant_where_private_addresses_are() -> None:
    assert said(rule("*.lan")) is not None
    assert said(private("*.lan")) is None
    assert said(private("*.com")) is not None


# --- what covers what


@pytest.mark.parametrize(
    ("flags", "other", "covered"),
    [
        ({}, {}, True),
        ({"allow_private": True}, {}, True),
        ({}, {"allow_private": True}, False),
        ({}, {"allow_no_sni": True}, False),
        ({}, {"tls": False}, False),
        ({"tls": False}, {}, True),
        ({"allow_private": True}, {"tls": False}, False),
        ({"allow_private": True, "tls": False}, {"tls": False}, True),
    ],
)
def test_an_entry_covers_only_what_lets_through_no_more(flags: dict[str, bool], other: dict[str, bool], covered: bool) -> None:
    for bound in ("x.org", "x.org:*"):
        assert rule_covers(replace(rule(bound), **flags), replace(rule("x.org"), **other)) is covered  # type: ignore[arg-type]
    assert rule_covers(replace(rule("*.org"), **flags), replace(rule("x.org"), **other)) is covered  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bound", "other", "covered"),
    [
        ("x.org", "x.org:443", True),
        ("x.org", "x.org:80", True),
        ("x.org", "x.org:22", False),
        ("x.org", "x.org:*", False),
        ("x.org:443", "x.org", False),
        ("x.org:443", "x.org:443", True),
        ("x.org:*", "x.org:22", True),
        ("*.org", "a.x.org:443", True),
        ("*.org", "org:443", False),
    ],
)
def test_no_port_is_443_and_80(bound: str, other: str, covered: bool) -> None:
    assert rule_covers(rule(bound), rule(other)) is covered
