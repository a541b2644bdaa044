"""What a client may call a host, and which addresses are nobody's business: cases X01-X20 and X22."""

from __future__ import annotations

import ipaddress
import random
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from egress_reference import Address, authority_of, host_of

from wavegen.launcher.egress import names, special_names

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param(b"API.GitHub.COM", "api.github.com", id="X01-case"),
        pytest.param(b"github.com.", "github.com", id="X02-one-trailing-dot"),
        pytest.param(b"GITHUB.com.", "github.com", id="X02-case-and-dot"),
        pytest.param(b"xn--gthub-n4a.com", "xn--gthub-n4a.com", id="X10-xn-stays-itself"),
        pytest.param(b"_acme.a_b.example.org", "_acme.a_b.example.org", id="X09-underscore"),
        pytest.param(b"a" * 63 + b".org", "a" * 63 + ".org", id="X11-label-63"),
        pytest.param(b"a." * 126 + b"a", "a." * 126 + "a", id="X11-name-253"),
        pytest.param(b"0x7g.example", "0x7g.example", id="X13-not-a-number"),
        pytest.param(b"1.2.3.4.example", "1.2.3.4.example", id="X13-last-label-is-a-word"),
        pytest.param(b"1e100.net", "1e100.net", id="X13-first-label-numeric"),
        pytest.param(b"0xg", "0xg", id="X13-no-hex"),
        pytest.param(b"LOCALHOST.", "localhost", id="X16-localhost"),
    ],
)
def test_a_name_has_one_spelling(text: bytes, name: str) -> None:
    found = names.parse_target(text)
    assert (found.name, found.address) == (name, b"")
    assert names.parse_target(found.authority_text().encode()).name == found.name


BAD = [
    pytest.param(b"github.com..", id="X02-two-trailing-dots"),
    pytest.param(b".", id="X02-dot-alone"),
    pytest.param(b"127.0.0.1\0.github.com", id="X06-nul"),
    pytest.param(b"github.com\0", id="X06-nul-at-the-end"),
    pytest.param(b"github.com\0.", id="X06-nul-before-a-dot"),
    *(pytest.param(b"git" + bytes([byte]) + b"hub.com", id=f"X07-{byte:02x}") for byte in (*range(33), *b"!\"#$%&'()*+,/:;<=>?@[\\]^`{|}~", 127)),
    *(pytest.param(b"github.com" + bytes([byte]), id=f"X07-end-{byte:02x}") for byte in b"\t\n\r /@"),
    pytest.param(b"github%2ecom", id="X07-percent-dot"),
    pytest.param(b"github.com%00", id="X07-percent-nul"),
    pytest.param(b"github.com\\.evil.com", id="X07-backslash"),
    pytest.param(b"user:pw@github.com", id="X08-userinfo"),
    pytest.param(b"github.com@evil.com", id="X08-userinfo-is-a-name"),
    pytest.param("ｇithub.com".encode(), id="X09-full-width"),
    pytest.param("git\u00adhub.com".encode(), id="X09-soft-hyphen"),
    pytest.param("github.com。evil.com".encode(), id="X09-ideographic-dot"),
    pytest.param("gıthub.com".encode(), id="X10-dotless-i"),
    pytest.param("\u212a.com".encode(), id="X10-kelvin-sign"),
    pytest.param("gıthub.com".encode("iso8859-9"), id="X10-latin-5"),
    pytest.param(b"a" * 64 + b".org", id="X11-label-64"),
    pytest.param(b"a." * 126 + b"ab", id="X11-name-254"),
    pytest.param(b"", id="X11-empty"),
    pytest.param(b"a..b", id="X11-empty-label"),
    pytest.param(b".github.com", id="X11-leading-dot"),
    pytest.param(b"-github.com", id="X11-leading-hyphen"),
    pytest.param(b"github-.com", id="X11-trailing-hyphen"),
    *(
        pytest.param(text, id=f"X13-{text.decode()}")
        for text in (
            *(b"127.1", b"127.0.1", b"0177.0.0.1", b"0x7f.1", b"2130706433", b"0x7f000001", b"017700000001", b"0", b"2852039166", b"0xA9FEA9FE", b"0x", b"1."),
            *(
                b"0x7f.0.0.0x1",
                b"127.0.0.01",
                b"127.0.0.1.1",
                b"256.1.1.1",
                b"github.com.1",
                b"github.com.0x1",
                b"a.0X7F",
                b"127.0.0.1..",
                b"00000000177.0.0.1",
            ),
        )
    ),
    pytest.param("①②⑦.0.0.1".encode(), id="X14-circled"),
    pytest.param("127。0。0。1".encode(), id="X14-ideographic-dots"),
    pytest.param("١٢٧.0.0.1".encode(), id="X14-arabic-digits"),
    pytest.param(b"::1", id="X15-no-brackets"),
    pytest.param(b"[::1", id="X15-open"),
    pytest.param(b"::1]", id="X15-not-opened"),
    pytest.param(b"[]", id="X15-nothing"),
    pytest.param(b"[", id="X15-bracket-alone"),
    pytest.param(b"[fe80::1%eth0]", id="X15-zone"),
    pytest.param(b"[fe80::1%25eth0]", id="X15-zone-encoded"),
    pytest.param(b"[::1]]", id="X15-two-closing"),
    pytest.param(b"[[::1]]", id="X15-two-pairs"),
    pytest.param(b"[::1].", id="X15-dot"),
    pytest.param(b"[127.0.0.1]", id="X15-four-in-brackets"),
    pytest.param(b"[github.com]", id="X15-name-in-brackets"),
    pytest.param(b"[::1\0]", id="X15-nul"),
    pytest.param("[::１]".encode(), id="X15-full-width"),
    pytest.param(b"[v1.a]", id="X15-ip-future"),
    pytest.param(b"[ ::1]", id="X15-space"),
    pytest.param(b"*.github.com", id="X03-star"),
]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_host_is_refused_and_not_mapped(text: bytes) -> None:
    with pytest.raises(names.BadNameError):
        names.parse_target(text)
    with pytest.raises(names.BadNameError):
        names.parse_authority(text + b":443")
    assert host_of(text) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param(b"140.82.121.3", "140.82.121.3", id="X12-v4"),
        pytest.param(b"127.0.0.1.", "127.0.0.1", id="X12-v4-and-dot"),
        pytest.param(b"[::1]", "::1", id="X15-v6"),
        pytest.param(b"[2001:DB8:0::1]", "2001:db8::1", id="X15-v6-case"),
        pytest.param(b"[::ffff:127.0.0.1]", "127.0.0.1", id="X15-mapped"),
        pytest.param(b"[::FFFF:7f00:1]", "127.0.0.1", id="X15-mapped-in-hex"),
        pytest.param(b"[0:0:0:0:0:ffff:a9fe:a9fe]", "169.254.169.254", id="X15-mapped-in-full"),
        pytest.param(b"[64:ff9b::1.2.3.4]", "64:ff9b::102:304", id="X15-nat64-is-not-mapped"),
    ],
)
def test_an_address_is_an_address_however_it_is_written(text: bytes, shown: str) -> None:
    found = names.parse_target(text)
    assert (found.name, str(found)) == ("", shown)
    assert found.address == ipaddress.ip_address(shown).packed
    assert names.parse_target(found.authority_text().encode()).address == found.address


@pytest.mark.parametrize(
    ("text", "default", "expected"),
    [
        pytest.param(b"github.com:22", 0, ("github.com", 22), id="X22-port"),
        pytest.param(b"github.com:1", 0, ("github.com", 1), id="X22-lowest"),
        pytest.param(b"github.com:65535", 0, ("github.com", 65535), id="X22-highest"),
        pytest.param(b"github.com", 80, ("github.com", 80), id="X22-default"),
        pytest.param(b"github.com.:8080", 80, ("github.com", 8080), id="X22-over-the-default"),
        pytest.param(b"[::1]:443", 0, ("::1", 443), id="X15-brackets"),
        pytest.param(b"[::ffff:127.0.0.1]:5", 0, ("127.0.0.1", 5), id="X15-mapped"),
        pytest.param(b"[::1]", 80, ("::1", 80), id="X15-default"),
    ],
)
def test_a_port_is_a_plain_number(text: bytes, default: int, expected: tuple[str, int]) -> None:
    target, port = names.parse_authority(text, port=default)
    assert (str(target), port) == expected


PORTS = [
    b"0",
    b"65536",
    b"99999",
    b"100000",
    b"+443",
    b"-1",
    b"0443",
    b" 443",
    b"443 ",
    b"",
    b"https",
    b"4 43",
    b"443:443",
    b"0x50",
    b"443\0",
    b"443\n",
    b"4_43",
    "４４３".encode(),
    b"1e3",
]


@pytest.mark.parametrize("digits", [pytest.param(port, id=f"X22-{port!r}") for port in PORTS])
@pytest.mark.parametrize("host", [b"github.com", b"[::1]", b"1.2.3.4"])
@pytest.mark.parametrize("default", [0, 80])
def test_another_spelling_of_a_port_is_refused(host: bytes, digits: bytes, default: int) -> None:
    with pytest.raises(names.BadNameError):
        names.parse_authority(host + b":" + digits, port=default)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"github.com", id="X22-missing"),
        pytest.param(b"[::1]", id="X22-missing-v6"),
        pytest.param(b"::1:443", id="X15-unbracketed"),
        pytest.param(b"[::1]443", id="X15-no-colon"),
        pytest.param(b"[::1]x:443", id="X15-something-between"),
        pytest.param(b"user:pw@github.com:443", id="X08-userinfo"),
        pytest.param(b"user@github.com:443", id="X08-user"),
        pytest.param(b":443", id="X11-no-host"),
        pytest.param(b"", id="X11-nothing"),
    ],
)
def test_without_a_host_or_a_port_it_is_no_authority(text: bytes) -> None:
    with pytest.raises(names.BadNameError):
        names.parse_authority(text)


def test_random_authorities_are_read_as_the_reference_reads_them() -> None:
    dice = random.Random(12)
    pieces = [
        b"github",
        b"com",
        b".",
        b".",
        b":",
        b"443",
        b"80",
        b"0",
        b"127",
        b"1",
        b"0x7f",
        b"[",
        b"]",
        b"::",
        b"ffff",
        b"-",
        b"_",
        b"@",
        b"%",
        b"\0",
        b"A",
        b"a" * 62,
        b"\xef",
    ]
    good = 0
    for _ in range(40_000):
        text = b"".join(dice.choices(pieces, k=dice.randint(1, 7)))
        default = dice.choice((0, 80))
        expected = authority_of(text, default)
        try:
            target, port = names.parse_authority(text, port=default)
        except names.BadNameError:
            assert expected is None, text
            continue
        assert expected is not None, text
        assert (target.name or ipaddress.ip_address(target.address), port) == expected, text
        good += 1
    assert good > 1000


@pytest.mark.parametrize("name", ["localhost", "foo.localhost", "printer.local", "a.b.local", "box.localdomain", "intranet", "db"])
def test_x16_names_of_this_machine_and_its_link(name: str) -> None:
    assert special_names.is_local_name(name)


@pytest.mark.parametrize("name", ["github.com", "local.example", "localhost.example", "a.xlocal", "mylocalhost.org"])
def test_x16_other_names_are_not(name: str) -> None:
    assert not special_names.is_local_name(name)


# --- addresses

# X19 and IANA's registries, in their own words and not in those of the code.
SPECIAL = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:20::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "168.63.129.16/32",
    "100.100.100.200/32",
    "169.254.169.254/32",
    "fd00:ec2::254/128",
]
# Where we are stricter than ipaddress of some Python (3.11 to 3.14): anycast relays and what holds another address,
# deprecated networks, documentation and segment routing that ipaddress learned late, multicast, Azure's metadata; and
# the assignments within 192.0.0.0/24 and 2001::/23 that IANA calls global and no client connects to by TCP.
STRICTER = [
    "192.0.0.0/24",
    "192.88.99.0/24",
    "224.0.0.0/4",
    "168.63.129.16/32",
    "100.64.0.0/10",
    "::/96",
    "::ffff:0:0/96",
    "::ffff:0:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100:0:0:1::/64",
    "2001::/23",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fec0::/10",
    "ff00::/8",
]
STRICTER_NETWORKS = [ipaddress.ip_network(text) for text in STRICTER]


def packed(text: str) -> bytes:
    return ipaddress.ip_address(text).packed


def of_python() -> Iterator[Network]:
    for constants in ("_IPv4Constants", "_IPv6Constants"):
        for value in vars(getattr(ipaddress, constants, object)).values():
            yield from (one for one in (value if isinstance(value, list) else [value]) if isinstance(one, ipaddress.IPv4Network | ipaddress.IPv6Network))


def boundaries() -> list[Address]:
    """The first and the last address of every network that either side knows, and what is next to them."""
    ours = [
        f"{ipaddress.ip_address((base << free).to_bytes(size, 'big'))}/{size * 8 - free}"
        for size, base, free in (*names._NEVER, *names._PRIVATE, *names._METADATA)
    ]
    networks = {*map(ipaddress.ip_network, (*SPECIAL, *STRICTER, *ours)), *of_python()}
    found: set[Address] = set()
    for network in networks:
        kind, most = type(network.network_address), 2**network.max_prefixlen - 1
        first, last = int(network.network_address), int(network.broadcast_address)
        found |= {kind(number) for number in (first - 1, first, first + 1, last - 1, last, last + 1) if 0 <= number <= most}
    return sorted(found, key=lambda address: (address.version, int(address)))


def of_nobody(address: Address) -> bool:
    """What ipaddress has against an address; what it reserves of IPv6 is not assigned to anybody (a test of its own)."""
    seven = address.is_private or address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified or not address.is_global
    if isinstance(address, ipaddress.IPv4Address):
        return seven or address.is_reserved
    inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
    return seven or address.is_site_local or (inner is not None and of_nobody(inner))


def test_x18_x19_what_python_calls_special_is_not_public_at_every_boundary() -> None:
    tried = boundaries()
    assert len(tried) > 250
    assert [address for address in tried if of_nobody(address) and names.classify_address(address.packed) == names.PUBLIC] == []


GIVEN_OUT = ipaddress.ip_network("2000::/3")
"""All that IANA has given out of IPv6."""


def test_x18_where_ours_is_stricter_it_is_meant() -> None:
    beyond = [
        address
        for address in boundaries()
        if not of_nobody(address)
        and (address.version == 4 or address in GIVEN_OUT)
        and names.classify_address(address.packed) != names.PUBLIC
        and not any(address in network for network in STRICTER_NETWORKS if network.version == address.version)
    ]
    assert beyond == []


@pytest.mark.parametrize("text", STRICTER)
def test_x18_the_stricter_networks_are_not_public_from_end_to_end(text: str) -> None:
    network = ipaddress.ip_network(text)
    for address in (network.network_address, network.broadcast_address, network[len(f"{network}") % network.num_addresses]):
        assert names.classify_address(address.packed) != names.PUBLIC, address


@pytest.mark.parametrize("text", SPECIAL)
def test_x19_blocked_from_end_to_end(text: str) -> None:
    network = ipaddress.ip_network(text)
    assert names.classify_address(network.network_address.packed) != names.PUBLIC
    assert names.classify_address(network.broadcast_address.packed) != names.PUBLIC


def test_random_addresses_agree_with_python() -> None:
    dice = random.Random(19)
    public = 0
    for _ in range(20_000):
        four = ipaddress.IPv4Address(dice.getrandbits(32))
        six = ipaddress.IPv6Address(0x2 << 124 | dice.getrandbits(125) & ~(0xF << 124))
        for address in (four, six):
            strict = any(address in network for network in STRICTER_NETWORKS if network.version == address.version)
            assert (names.classify_address(address.packed) != names.PUBLIC) == (of_nobody(address) or strict), address
            public += not (of_nobody(address) or strict)
    assert public > 20_000


@pytest.mark.parametrize(
    "text",
    [
        *(
            "1.1.1.1",
            "8.8.8.8",
            "140.82.121.3",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
        ),
        *("172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "168.63.129.15"),
        *("2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "2001:200::", "2003::1", "2001:db7:ffff::", "2001:db9::"),
    ],
)
def test_the_internet_is_public(text: str) -> None:
    assert names.classify_address(packed(text)) == names.PUBLIC


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param("::127.0.0.1", "NEVER", id="X18-compatible"),
        pytest.param("::ffff:127.0.0.1", "NEVER", id="X18-mapped"),
        pytest.param("::ffff:0:127.0.0.1", "NEVER", id="X18-translated"),
        pytest.param("64:ff9b::7f00:1", "NEVER", id="X18-nat64"),
        pytest.param("64:ff9b::a9fe:a9fe", "METADATA", id="X18-nat64-metadata"),
        pytest.param("64:ff9b:1::a9fe:a9fe", "METADATA", id="X18-nat64-local-metadata"),
        pytest.param("64:ff9b:1::1", "NEVER", id="X18-nat64-local"),
        pytest.param("64:ff9b::8.8.8.8", "PRIVATE", id="X18-nat64-public"),
        pytest.param("2002:7f00:1::", "NEVER", id="X18-6to4"),
        pytest.param("2002:a9fe:a9fe::1", "METADATA", id="X18-6to4-metadata"),
        pytest.param("2002:808:808::1", "PRIVATE", id="X18-6to4-public"),
        pytest.param("2001:0:1:2:3:4:80ff:fffe", "NEVER", id="X18-teredo"),
        pytest.param("2001:0:1:2:3:4:5601:5601", "METADATA", id="X18-teredo-metadata"),
        pytest.param("2606:4700::200:5efe:127.0.0.1", "NEVER", id="X18-isatap"),
        pytest.param("2606:4700::5efe:10.0.0.1", "PRIVATE", id="X18-isatap-private"),
        pytest.param("2606:4700::5efe:8.8.8.8", "PUBLIC", id="X18-isatap-public"),
        pytest.param("224.0.0.1", "NEVER", id="X18-multicast"),
        pytest.param("ff02::1", "NEVER", id="X18-multicast-six"),
        pytest.param("fec0::1", "PRIVATE", id="X18-site-local"),
        pytest.param("5f00::1", "PRIVATE", id="X18-segment-routing"),
        pytest.param("192.88.99.1", "PRIVATE", id="X18-relay"),
        pytest.param("::", "NEVER", id="X19-unspecified"),
        pytest.param("0.0.0.0", "NEVER", id="X19-this-host"),
        pytest.param("255.255.255.255", "NEVER", id="X19-broadcast"),
        pytest.param("fe80::1", "NEVER", id="X19-link"),
        pytest.param("10.1.2.3", "PRIVATE", id="X19-ten"),
        pytest.param("169.254.169.254", "METADATA", id="X20-aws"),
        pytest.param("169.254.170.2", "METADATA", id="X20-ecs"),
        pytest.param("fd00:ec2::254", "METADATA", id="X20-aws-six"),
        pytest.param("100.100.100.200", "METADATA", id="X20-alibaba"),
        pytest.param("168.63.129.16", "METADATA", id="X20-azure"),
        pytest.param("::ffff:168.63.129.16", "METADATA", id="X20-azure-mapped"),
        pytest.param("192.0.0.192", "METADATA", id="X20-oracle"),
    ],
)
def test_what_is_inside_counts_where_it_is_worse(text: str, kind: str) -> None:
    assert names.classify_address(packed(text)) == getattr(names, kind)


@pytest.mark.parametrize(
    "text", ["200::1", "400::1", "1000::1", "4000::1", "6000::1", "8000::1", "a000::1", "c000::1", "e000::1", "f000::1", "f800::1", "fe00::1"]
)
def test_what_is_reserved_of_ipv6_is_not_public(text: str) -> None:
    assert ipaddress.IPv6Address(text).is_reserved
    assert names.classify_address(packed(text)) != names.PUBLIC


def test_shown_is_what_the_system_reads_back() -> None:
    shown: Any = names.format_address
    assert shown(packed("::ffff:1.2.3.4")) == socket.inet_ntop(socket.AF_INET6, packed("::ffff:1.2.3.4"))
    assert (shown(b"\1\2\3\4"), names.unmap_ipv4_address(packed("::ffff:1.2.3.4"))) == ("1.2.3.4", b"\1\2\3\4")
