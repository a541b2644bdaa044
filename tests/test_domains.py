"""An entry of an allow list means exactly one thing, or is refused."""

from __future__ import annotations

import pytest

from wavegen.decode import Text
from wavegen.domains import BadDomainError, domain_rule, too_broad
from wavegen.errors import Location
from wavegen.policy import DomainRule

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
        pytest.param("[::1", "is not host or host:port", "bracket an IPv6 address", id="open-bracket"),
        pytest.param("*.[::1]", "is not host or host:port", "bracket an IPv6 address", id="star-before-ipv6"),
        pytest.param("2001:db8::1", "is not", "", id="ipv6-without-brackets"),
        pytest.param("", "is empty", "name a host", id="empty"),
    ],
)
def test_an_entry_that_is_nearly_right_is_refused_with_what_to_write(entry: str, what: str, hint: str) -> None:
    with pytest.raises(BadDomainError) as caught:
        rule(entry)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert f"'{entry}'" in caught.value.what
    assert caught.value.hint


@pytest.mark.parametrize("entry", ["*.github.com", "x.org:22", "[2001:db8::1]:443", "x.org:*"])
def test_a_rule_is_written_as_it_is_read(entry: str) -> None:
    assert str(rule(entry)) == entry
    assert str(rule(str(rule(entry)))) == entry


@pytest.mark.parametrize(("entry", "broad"), [("*.com", True), ("*.com:443", True), ("*.x.com", False), ("com", False), ("*.co.uk", False)])
def test_a_wildcard_for_a_whole_top_level_domain_is_broad(entry: str, broad: bool) -> None:
    assert too_broad(rule(entry)) is broad
