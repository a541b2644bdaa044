"""May a host be reached? Launcher, plan, explain, probes and a reference that is written from the cases give one answer, whatever is asked."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from egress_reference import Entry, Lists, allowed_text
from helpers import ROOT, project

from wavegen.backends.sandboxes.rules_file import base_text, rules_text
from wavegen.core.errors import InvalidValueError, Location, UsageError
from wavegen.explain.model import Verdict
from wavegen.explain.targets import Kind, explain_target
from wavegen.launcher.egress import metadata, names, special_names
from wavegen.launcher.egress import rules as rules_of
from wavegen.launcher.filtered import network_rules
from wavegen.launcher.rules import read_rules
from wavegen.manifest.decoder import Text
from wavegen.manifest.model import NetworkMode
from wavegen.policy.domains import domain_advice, domain_rule
from wavegen.policy.host_rules import decide_host, origin_of, refusal_of, target_of
from wavegen.policy.model import Policy
from wavegen.project.loader import Project, load_project
from wavegen.verify import expect_network
from wavegen.verify.model import Want

MANIFEST = """\
metadata: {name: hosts}
runtime:
  sandbox:
    default_allowed_domains:
      - allowed.example.org
      - "*.wild.example.org"
      - git.example.org:22
      - any.example.org:*
      - xn--bcher-kva.example.org
      - printer.local
      - {host: nas.local, allow_private: true}
      - {host: "*.lan", allow_private: true}
      - {host: db, allow_private: true}
      - db2:5432
      - {host: svc.localhost, allow_private: true}
      - hidden.onion
      - "*.internal"
      - metadata.goog
      - {host: metadata.google.internal, allow_private: true}
      - 9.9.9.9
      - 10.1.2.3
      - {host: 10.1.2.4, allow_private: true}
      - {host: 169.254.169.254, allow_private: true}
      - {host: 169.254.1.1, allow_private: true}
      - 100.100.100.200
      - {host: 127.0.0.2, allow_private: true}
      - "[2620:fe::fe]:853"
      - {host: "[fd00::1]", allow_private: true}
      - "[fe80::1]"
      - localhost
    shells:
      filtered: {network: filtered}
      narrow: {network: filtered, denied_domains: [allowed.example.org, "*.bad.wild.example.org", "any.example.org:8443", 9.9.9.9]}
      looped: {network: filtered, loopback: [80, 5432], denied_domains: ["localhost:5432"]}
      opened: {network: open}
      opened-narrow: {network: open, denied_domains: ["*.example", evil.example.org, "sometimes.example.org:443"], loopback: [5432]}
      closed: {network: none}
      hosted: {network: host}
"""
FILTERED = ("filtered", "narrow", "looped", "opened", "opened-narrow")
LABELS = ("a", "evil", "bad", "foo", "allowed", "wild", "git", "any", "metadata", "google", "instance-data", "xn--bcher-kva", "db", "9", "_dmarc")
SUFFIXES = ("example.org", "wild.example.org", "example", "com", "localhost", "local", "localdomain", "invalid", "onion", "internal", "google.internal",
            "ec2.internal", "goog", "lan", "corp", "home", "home.arpa", "intranet", "private", "test", "alt", "in-addr.arpa", "svc.localhost", "")  # fmt: skip
SPECIAL = ("localhost", "metadata", "metadata.goog", "metadata.google.internal", "instance-data", "instance-data.ec2.internal", "db", "db2", "nas.local",
           "printer.local", "any.example.org", "git.example.org", "allowed.example.org", "hidden.onion", "evil.example.org", "x.bad.wild.example.org",
           "sometimes.example.org", "wavegen-verify.example", "xn--bcher-kva.example.org", "svc.localhost")  # fmt: skip
LITERALS = ("9.9.9.9", "8.8.8.8", "10.1.2.3", "10.1.2.4", "10.9.9.9", "127.0.0.1", "127.0.0.2", "169.254.169.254", "169.254.170.2", "169.254.42.42", "169.254.1.1",
            "100.100.100.200", "168.63.129.16", "100.64.0.1", "192.168.0.1", "224.0.0.1", "0.0.0.0", "255.255.255.255", "203.0.113.7", "198.18.1.1",
            "[::1]", "[::]", "[2620:fe::fe]", "[2606:4700::1]", "[fd00::1]", "[fd00:ec2::254]", "[fe80::1]", "[ff02::1]", "[2002:7f00:1::]", "[64:ff9b::a9fe:a9fe]",
            "[::ffff:9.9.9.9]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[::ffff:10.1.2.4]", "[2001:db8::1]")  # fmt: skip
ODD = (
    "127.1",
    "2130706433",
    "0x7f.1",
    "0177.0.0.1",
    "[::1%eth0]",
    "[::1",
    "*.wild.example.org",
    "a..b",
    "-a.org",
    "b\u00fccher.example.org",
    "a b.org",
    "",
    "a.b..",
)
PORTS = (1, 22, 53, 80, 443, 853, 3128, 5432, 8443, 65535)


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return load_project(str(project(tmp_path_factory.mktemp("hosts"), MANIFEST) / "wave.yaml"))


def shell(planned: Project, name: str) -> Policy:
    found = planned.plan.find_shell(name)
    assert found is not None
    return found


def asked(seed: int, count: int) -> Iterator[tuple[str, int]]:
    """Hosts in every spelling that a client may use, and ports."""
    dice = random.Random(seed)
    for _ in range(count):
        match dice.randrange(10):
            case 0 | 1:
                host = dice.choice(LITERALS)
            case 2:
                host = dice.choice(ODD)
            case 3 | 4 | 5:
                host = dice.choice(SPECIAL)
            case _:
                host = ".".join((*dice.choices(LABELS, k=dice.choice((1, 1, 2, 3))), dice.choice(SUFFIXES))).removesuffix(".")
        host = dice.choice((host, host, host.upper(), host.title(), host + "." if not host.startswith("[") else host, f"evil{host}", f"x.{host}"))
        yield host, dice.choice((*PORTS, 80, 443, 443))


def launcher_of(planned: Project, policy: Policy) -> rules_of.Rules:  # type: ignore[name-defined]
    """The launcher's rules from the file that it reads."""
    return network_rules(read_rules(rules_text(planned.plan, policy), base_text, policy.name), lambda origin, _: origin)


def lists_of(policy: Policy) -> Lists:
    network = policy.network
    allow, deny = (
        [Entry(rule.host, wildcard=rule.wildcard, port=int(rule.port) if rule.port.isdigit() else rule.port, private=rule.allow_private) for rule in some]
        for some in (network.domains, network.denied)
    )
    return Lists(allow=allow, deny=deny, loopback=network.loopback, anything=network.mode is NetworkMode.OPEN)


def explained(planned: Project, policy: Policy, host: str, port: int) -> tuple[bool, str]:
    """Whether explain says that it is reached, and the line that it names."""
    try:
        (answer,) = explain_target(planned, f"{host}:{port}", Kind.HOST, (policy,), ())
    except UsageError:
        return False, ""
    return answer.verdict is Verdict.ALLOWED, str(answer.origin)


@pytest.mark.parametrize("name", FILTERED)
def test_everybody_gives_the_launchers_answer(planned: Project, name: str) -> None:
    policy = shell(planned, name)
    launcher, lists, seen = launcher_of(planned, policy), lists_of(policy), {True: 0, False: 0}
    reasons: set[str] = set()
    for number, (host, port) in enumerate(asked(31, 4000)):
        target = target_of(host)
        found = launcher.decide_connection(target, port) if target else rules_of.Decision(allowed=False, reason="bad-name")
        ours = decide_host(policy.network, host, port)
        assert (ours.allowed, ours.reason, str(ours.rule)) == (found.allowed, found.reason, str(found.rule)), (host, port)
        assert allowed_text(lists, f"{host}:{port}".encode()) == found.allowed, (host, port, found.reason)
        if number % 4 == 0:
            said, line = explained(planned, policy, host, port)
            assert said == found.allowed, (host, port, found.reason)
            rule = origin_of(policy.network, ours.rule)
            assert not said or (rule is not None and str(rule) == line) or name.startswith("opened"), (host, port, line)
            assert found.rule is None or rule is None or found.rule.manifest_location in (f"{rule.at.file}:{rule.at.line}" if rule.at else "default")
        seen[found.allowed] += 1
        reasons.add(found.reason)
    assert min(seen.values()) > 100, seen
    assert reasons >= {"", "local-name", "literal", "bad-name", "loopback-port"}


@pytest.mark.parametrize(("name", "reached"), [("closed", False), ("hosted", True)])
def test_without_rules_everything_or_nothing_is_reached(planned: Project, name: str, reached: bool) -> None:
    policy = shell(planned, name)
    for host, port in asked(32, 200):
        if target_of(host) is not None:
            assert decide_host(policy.network, host, port).allowed is reached
            assert explained(planned, policy, host, port)[0] is reached


@pytest.mark.parametrize("name", FILTERED)
def test_probes_expect_what_the_launcher_does(planned: Project, name: str) -> None:
    policy = shell(planned, name)
    launcher = launcher_of(planned, policy)
    tried = 0
    for expect in (expect_network.unlisted_hosts, expect_network.refused_names, expect_network.look_alikes, expect_network.other_ports, expect_network.metadata_services,
                   expect_network.allowlisted_hosts, expect_network.expect_another_server):  # fmt: skip
        for expectation in expect(policy):
            arguments = dict(expectation.arguments)
            places = arguments["places"]
            assert isinstance(places, tuple)
            for host, port in places:
                target = target_of(host)
                assert target is not None
                # The one that asks for another server is let through, and told apart by what it says then.
                assert launcher.decide_connection(target, port).allowed == (expectation.want is Want.WORKS or "asked" in arguments), (host, port)
                tried += 1
    assert tried > 6


def test_a_name_below_a_wildcard_is_probed(planned: Project) -> None:
    """A filter that drops all `*.name` entries would else pass."""
    policy = shell(planned, "filtered")
    below = [host for host, _ in expect_network.allowed_destinations(policy) if host.startswith("wavegen-verify.")]
    assert len(below) == 1
    assert any(rule.wildcard and below[0].endswith(f".{rule.host}") for rule in policy.network.domains)


@pytest.mark.parametrize("host", ["x.local", "x.onion", "x.localdomain", "x.invalid", "metadata.goog", "x.internal", "intranet", "10.1.2.3", "169.254.1.1"])
def test_what_is_listed_and_refused_is_warned_of_and_expected_of_no_probe(tmp_path: Path, host: str) -> None:
    text = f"metadata: {{name: x}}\nruntime: {{sandbox: {{default_allowed_domains: [{host}], shells: {{s: {{network: filtered}}}}}}}}\n"
    planned = load_project(str(project(tmp_path, text) / "wave.yaml"))
    policy = shell(planned, "s")
    (rule,) = policy.network.domains
    reached = launcher_of(planned, policy).decide_connection(target_of(host), 443).allowed
    assert reached == (host == "x.internal")
    assert bool(refusal_of(rule)) is not reached
    assert (domain_advice(rule) is None) is reached
    assert bool(expect_network.allowed_destinations(policy)) is reached


@pytest.mark.parametrize("host", ["foo.internal", "foo.localdomain", "foo.invalid", "foo.onion", "metadata.goog"])
def test_an_open_network_has_one_answer_for_special_names(planned: Project, host: str) -> None:
    policy = shell(planned, "opened")
    answers = {
        launcher_of(planned, policy).decide_connection(target_of(host), 443).allowed,
        decide_host(policy.network, host, 443).allowed,
        explained(planned, policy, host, 443)[0],
    }
    assert answers == {host == "foo.internal"}


def test_what_a_manifest_may_list_is_what_the_launcher_reads() -> None:
    """Entries are read for their problems' places; what is read is the same host to both, and what is no host is none to both."""
    seen = {True: 0, False: 0}
    for host, port in asked(33, 4000):
        for text in (host, f"{host}:{port}"):
            try:
                rule = domain_rule(Text(text, Location("wave.yaml", 1, 1)))
            except InvalidValueError:
                assert target_of(host) is None, text
                seen[False] += 1
                continue
            if rule.wildcard:
                continue
            theirs = rules_of.Rule(str(rule), "")
            assert str(theirs) == str(rule)
            assert str(names.Target(name="" if theirs.address else theirs.host, address=theirs.address)) == str(target_of(host))
            seen[True] += 1
    assert min(seen.values()) > 200, seen


# --- each fact in one place

LAUNCHER = ROOT / "wavegen/launcher/egress"
# These run alone inside, where nothing of the launcher is.
INSIDE = {"listeners.py", "listeners.pl", "probe_egress.py"}


@cache
def sources() -> dict[Path, str]:
    """All that is installed or rendered."""
    files = (file for folder in ("wavegen", "templates", "nix") for file in (ROOT / folder).rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    return {file: file.read_text("utf-8") for file in files}


def where(pattern: str) -> set[Path]:
    return {file for file, text in sources().items() if re.search(pattern, text) and file.name not in INSIDE}


def test_the_proxies_ports_stand_in_one_module() -> None:
    assert where(r"\b(3128|1080)\b") == {LAUNCHER / "ports.py"}
    inside = {file.name: text for file, text in sources().items() if file.name in INSIDE}
    assert inside.keys() == INSIDE
    assert all("3128" in text for text in inside.values())


def test_the_addresses_and_names_of_metadata_stand_in_one_module() -> None:
    spelled = [network.partition("/")[0] for network in metadata.METADATA_NETWORKS] + [name for name in metadata.METADATA_NAMES if name != "metadata"]
    assert len(spelled) > 15
    for text in (*spelled, *metadata.PROBED_ADDRESSES):
        assert where(rf"(?<![\w.]){re.escape(text)}(?![\w.])") == {LAUNCHER / "metadata.py"}, text


def test_special_names_stand_in_one_module() -> None:
    special = {*special_names._LOCAL, *special_names._INTRANETS}
    for file, text in sources().items():
        if file.suffix != ".py" or file == LAUNCHER / "special_names.py":
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                held = {item.value for item in node.elts if isinstance(item, ast.Constant)} & special - {"home", "private"}
                assert len(held) < 2, (file.name, node.lineno, held)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert node.value not in {f".{name}" for name in special} - {".home"}, (file.name, node.lineno)
                assert node.value not in ("localdomain", "onion", "intranet", "corp", "lan"), (file.name, node.lineno)
