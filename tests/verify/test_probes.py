"""Probes: what a policy says about each, that each can be tried as it is told, and what a verdict rests on."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from helpers import ROOT

from wavegen.core.errors import ManifestError
from wavegen.manifest.model import NetworkMode
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Access, Anchor, HostPath, Origin, Plan, Policy
from wavegen.policy.planner import plan_manifest
from wavegen.seccomp import Action, Condition, Filter, Rule
from wavegen.verify import expect_process
from wavegen.verify.catalogue import DANGEROUS, HOME_SECRETS, PROBES, SECRETS, SOCKETS, TO_SOCKETS, cases_for_policy
from wavegen.verify.expect import home_path, host_root_path, policy_rule_for, project_path
from wavegen.verify.expect_process import is_refused_by_filter
from wavegen.verify.launcher_probes import TRIALS
from wavegen.verify.model import Answer, Case, Expectation, Fact, Finding, Group, Inodes, Need, Probe, Severity, State, Value, Verdict, Want, Where
from wavegen.verify.run import tasks_of
from wavegen.verify.testbed import Ground
from wavegen.verify.verdicts import control_finding, decide_verdict

HELD, BROKEN, INCONCLUSIVE, OPEN = Verdict.HELD, Verdict.BROKEN, Verdict.INCONCLUSIVE, Verdict.OPEN
REACHED, STOPPED, UNKNOWN = State.REACHED, State.STOPPED, State.UNKNOWN
NAME = "metadata: {name: demo}\n"


def planned(text: str = "", overlay: str | None = None) -> Plan:
    over = Source("wave.sandbox.yaml", overlay.encode()) if overlay is not None else None
    return plan_manifest(Source("wave.yaml", (NAME + text).encode()), over, "wave.sandbox.yaml")


def shell(name: str, text: str = "", overlay: str | None = None) -> Policy:
    """A shell of a manifest whose runtime.sandbox holds one flow mapping, in line 2."""
    found = planned(f"runtime: {{sandbox: {{{text}}}}}\n", overlay).find_shell(name)
    assert found is not None
    return found


def by_id(policy: Policy) -> dict[str, Expectation]:
    """What is expected of each case of a shell."""
    return {case.stable_id: case.expectation for case in cases_for_policy(policy)}


def default(text: str = "") -> dict[str, Expectation]:
    return by_id(shell("default", text))


def wants(found: dict[str, Expectation], *names: str) -> list[Want | None]:
    return [found[name].want if name in found else None for name in names]


def told(expectation: Expectation) -> dict[str, Value]:
    return dict(expectation.arguments)


def paths_of(value: Value) -> Iterator[HostPath]:
    """Every path of the host in an argument."""
    match value:
        case HostPath():
            yield value
        case Inodes(paths=paths):
            yield from paths
        case tuple():
            for one in value:
                yield from paths_of(one)
        case _:
            pass


def words(value: Value) -> set[str]:
    """The names in an argument that is a list of names."""
    return {one for one in value if isinstance(one, str)} if isinstance(value, tuple) else set()


def named(expectation: Expectation, *, but: tuple[str, ...] = ("directory", "other")) -> tuple[str, ...]:
    """The paths that a case is about: not where it only works in."""
    return tuple(str(path) for key, value in expectation.arguments if key not in but for path in paths_of(value))


def facts_of(value: Value) -> Iterator[str]:
    match value:
        case Fact(name=name):
            yield name
        case tuple():
            for one in value:
                yield from facts_of(one)
        case _:
            pass


# --- the judge


def case(want: Want, *, required: bool = True) -> Case:
    probe = Probe(id="R01", question="Can it?", group=Group.READ, severity=Severity.HIGH, attempt="canaries", expect=lambda _: (), required=required)
    return Case(probe=probe, expectation=Expectation(want=want, layer="mounts", origin=Origin("so"), note="granted" if want is Want.OPEN else ""))


def answers(**states: State | None) -> tuple[Answer, ...]:
    """One answer for each target that has a state."""
    return tuple(Answer(target, state, "" if state is REACHED else "ENOENT") for target, state in states.items() if state)


# Rows: outside no answer, reached, stopped, unknown. Columns: the same inside.
# Held, Broken, Inconclusive, Open; behind an O whether it counts as exposed: True, False, None.
TABLES = {
    (Want.STOPPED, ""): """
        I  B  I  I
        I  B  H  I
        I  B  I  I
        I  B  I  I""",
    (Want.STOPPED, "no answer"): """
        I  B  I  I
        I  B  I  I
        I  B  I  I
        I  B  I  I""",
    (Want.WORKS, ""): """
        I  I  I  I
        I  H  B  I
        I  I  I  I
        I  I  I  I""",
    (Want.WORKS, "no answer"): """
        I  I  I  I
        I  H  B  I
        I  I  I  I
        I  I  I  I""",
    (Want.OPEN, ""): """
        OT OT OF OT
        OT OT OF OT
        ON OT OF ON
        ON OT OF ON""",
    (Want.OPEN, "no answer"): """
        OT OT OF OT
        OT OT OF OT
        ON OT OF ON
        ON OT OF ON""",
}
STATES = (None, REACHED, STOPPED, UNKNOWN)
ROWS = [
    pytest.param(want, outside, inside, failed, word, id=f"{want.value}-{failed and 'failed-'}{outside and outside.value}-{inside and inside.value}")
    for (want, failed), table in TABLES.items()
    for (outside, inside), word in zip(itertools.product(STATES, STATES), table.split(), strict=True)
]


@pytest.mark.parametrize(("want", "outside", "inside", "failed", "word"), ROWS)
def test_a_verdict_follows_from_what_was_reached_outside_and_inside(want: Want, outside: State | None, inside: State | None, failed: str, word: str) -> None:
    found = decide_verdict(case(want), answers(t=outside), answers(t=inside), failed)
    assert found.verdict is {"H": HELD, "B": BROKEN, "I": INCONCLUSIVE, "O": OPEN}[word[0]]
    stopped = {HELD: False, BROKEN: True, INCONCLUSIVE: None}
    exposed = {"T": True, "F": False, "N": None}[word[1]] if want is Want.OPEN else stopped[found.verdict] if want is Want.STOPPED else None
    assert found.exposed is exposed
    assert found.why


@pytest.mark.parametrize(
    ("outside", "inside", "verdict"),
    [
        pytest.param({"a": REACHED, "b": REACHED}, {"a": STOPPED, "b": STOPPED}, HELD, id="both-stopped"),
        pytest.param({"a": REACHED, "b": REACHED}, {"a": STOPPED, "b": REACHED}, BROKEN, id="one-reached"),
        pytest.param({"a": REACHED, "b": REACHED}, {"a": STOPPED, "b": UNKNOWN}, INCONCLUSIVE, id="one-not-tried-inside"),
        pytest.param({"a": REACHED, "b": REACHED}, {"a": STOPPED}, INCONCLUSIVE, id="one-not-told-inside"),
        pytest.param({"a": REACHED, "b": STOPPED}, {"a": STOPPED, "b": STOPPED}, HELD, id="one-out-of-reach-everywhere"),
        pytest.param({"a": REACHED, "b": STOPPED}, {"a": STOPPED}, HELD, id="one-out-of-reach-outside-and-not-told-inside"),
        pytest.param({"a": REACHED, "b": UNKNOWN}, {"a": STOPPED, "b": UNKNOWN}, HELD, id="one-never-tried"),
        pytest.param({"a": REACHED, "b": STOPPED}, {"a": STOPPED, "b": REACHED}, BROKEN, id="one-reached-inside-only"),
        pytest.param({"a": STOPPED, "b": UNKNOWN}, {"a": STOPPED, "b": STOPPED}, INCONCLUSIVE, id="nothing-to-be-stopped"),
        pytest.param({"a": REACHED}, {"a": STOPPED, "b": STOPPED}, HELD, id="one-more-inside"),
        pytest.param({"a": REACHED}, {"a": STOPPED, "b": UNKNOWN}, HELD, id="one-more-inside-not-tried"),
        pytest.param({"a": REACHED}, {"a": STOPPED, "b": REACHED}, BROKEN, id="one-more-inside-reached"),
        pytest.param({"a": REACHED}, {"b": STOPPED}, INCONCLUSIVE, id="another-one-inside"),
        pytest.param({}, {"a": STOPPED, "b": STOPPED}, INCONCLUSIVE, id="nothing-outside"),
        pytest.param({}, {"a": REACHED}, BROKEN, id="reached-and-nothing-outside"),
        pytest.param({"a": REACHED}, {}, INCONCLUSIVE, id="nothing-inside"),
        pytest.param({}, {}, INCONCLUSIVE, id="nothing-at-all"),
    ],
)
def test_what_is_stopped_is_stopped_on_every_target(outside: dict[str, State], inside: dict[str, State], verdict: Verdict) -> None:
    found = decide_verdict(case(Want.STOPPED), answers(**outside), answers(**inside))
    assert (found.verdict, found.exposed) == (verdict, {HELD: False, BROKEN: True, INCONCLUSIVE: None}[verdict])


@pytest.mark.parametrize(
    ("outside", "inside", "verdict"),
    [
        pytest.param({"a": REACHED, "b": REACHED}, {"a": REACHED, "b": REACHED}, HELD, id="both"),
        pytest.param({"a": REACHED, "b": REACHED}, {"a": REACHED, "b": STOPPED}, BROKEN, id="one-stopped"),
        pytest.param({"a": REACHED, "b": REACHED}, {"a": UNKNOWN, "b": STOPPED}, BROKEN, id="one-stopped-one-not-tried"),
        pytest.param({"a": REACHED, "b": REACHED}, {"a": REACHED, "b": UNKNOWN}, INCONCLUSIVE, id="one-not-tried"),
        pytest.param({"a": REACHED, "b": REACHED}, {"a": REACHED}, INCONCLUSIVE, id="one-not-told"),
        pytest.param({"a": REACHED, "b": STOPPED}, {"a": REACHED, "b": STOPPED}, HELD, id="one-that-never-works"),
        pytest.param({"a": REACHED}, {"a": REACHED, "b": STOPPED}, HELD, id="one-more-inside"),
        pytest.param({"a": STOPPED}, {"a": REACHED}, INCONCLUSIVE, id="works-inside-only"),
        pytest.param({}, {}, INCONCLUSIVE, id="nothing-at-all"),
    ],
)
def test_what_works_outside_works_inside(outside: dict[str, State], inside: dict[str, State], verdict: Verdict) -> None:
    found = decide_verdict(case(Want.WORKS), answers(**outside), answers(**inside))
    assert (found.verdict, found.exposed) == (verdict, None)


def sides() -> Iterator[tuple[tuple[Answer, ...], tuple[Answer, ...]]]:
    """Two targets, in every state or without an answer, outside and inside."""
    for a, b, c, d in itertools.product(STATES, repeat=4):
        yield answers(a=a, b=b), answers(a=c, b=d)


def of_state(given: Sequence[Answer], state: State) -> set[str]:
    return {answer.target for answer in given if answer.state is state}


@pytest.mark.parametrize("failed", ["", "no answer within 2 s"])
def test_whatever_the_answers_what_holds_of_verdicts_holds(failed: str) -> None:
    seen = set()
    for outside, inside in sides():
        found = decide_verdict(case(Want.STOPPED), outside, inside, failed)
        reached = of_state(inside, REACHED)
        assert (found.verdict is BROKEN) == bool(reached)
        if found.verdict is HELD:
            assert of_state(outside, REACHED)
            assert of_state(outside, REACHED) <= of_state(inside, STOPPED)
            assert not failed
        seen.add(found.verdict)
        twin = decide_verdict(case(Want.WORKS), outside, inside, failed)
        assert (twin.verdict is HELD) <= bool(of_state(outside, REACHED) and of_state(outside, REACHED) <= reached)
        assert (twin.verdict is BROKEN) == bool(of_state(outside, REACHED) & of_state(inside, STOPPED))
        assert twin.exposed is None
        let_through = decide_verdict(case(Want.OPEN), outside, inside, failed)
        assert let_through.verdict is OPEN
        assert not reached or let_through.exposed
        assert let_through.why.startswith("granted")
        assert found.why
        assert twin.why
    assert seen == {BROKEN, INCONCLUSIVE} | (set() if failed else {HELD})


@pytest.mark.parametrize("want", Want)
def test_no_answers_are_never_a_fence_that_holds(want: Want) -> None:
    for outside, inside in (((), ()), (answers(a=REACHED), ()), ((), answers(a=STOPPED))):
        assert decide_verdict(case(want), outside, inside).verdict is not HELD
    assert control_finding(case(want), ()).verdict is INCONCLUSIVE


@pytest.mark.parametrize("order", [1, -1])
def test_a_target_that_is_told_of_twice_is_judged_by_the_worse(order: int) -> None:
    # Two places may have one name once what is random is taken out of them.
    twice = (Answer("a", REACHED, ""), Answer("a", STOPPED, "ENOENT"))[::order]
    assert decide_verdict(case(Want.STOPPED), answers(a=REACHED), twice).verdict is BROKEN
    unsure = (Answer("a", UNKNOWN, "EMFILE"), Answer("a", STOPPED, "ENOENT"))[::order]
    assert decide_verdict(case(Want.STOPPED), answers(a=REACHED), unsure).verdict is INCONCLUSIVE


@pytest.mark.parametrize("rest", [UNKNOWN, None])
def test_what_is_open_and_not_told_counts_as_exposed_as_it_was_reached_outside(rest: State | None) -> None:
    found = decide_verdict(case(Want.OPEN), answers(a=REACHED, b=REACHED), answers(a=STOPPED, b=rest))
    assert found.exposed is not False


def test_a_verdict_names_what_it_rests_on() -> None:
    held = decide_verdict(case(Want.STOPPED), answers(a=REACHED, b=STOPPED), answers(a=STOPPED, b=STOPPED))
    assert held.why == "a: ENOENT; 1 more out of reach outside too"
    assert decide_verdict(case(Want.STOPPED), answers(a=REACHED), (), "ended by signal 9").why == "ended by signal 9"
    assert decide_verdict(case(Want.STOPPED), answers(a=REACHED), answers(a=UNKNOWN)).why == "not told inside: a: ENOENT"
    assert decide_verdict(case(Want.STOPPED), answers(a=STOPPED), answers(a=STOPPED)).why == "out of reach outside too: a: ENOENT"
    assert decide_verdict(case(Want.WORKS), answers(a=REACHED), answers(a=STOPPED)).why == "works outside only: a: ENOENT"
    assert decide_verdict(case(Want.OPEN), (), ()).why == "granted"
    many = {f"t{number}": REACHED for number in range(9)}
    assert decide_verdict(case(Want.STOPPED), (), answers(**many)).why == "reached inside: t0; t1; t2; and 6 more"


@pytest.mark.parametrize(
    ("want", "states", "verdict", "exposed"),
    [
        (Want.STOPPED, {"a": REACHED, "b": STOPPED}, OPEN, True),
        (Want.OPEN, {"a": REACHED}, OPEN, True),
        (Want.WORKS, {"a": REACHED, "b": STOPPED}, HELD, None),
        *((want, states, INCONCLUSIVE, None) for want in Want for states in ({}, {"a": STOPPED}, {"a": UNKNOWN}, {"a": STOPPED, "b": UNKNOWN})),
    ],
)
def test_the_control_shows_whether_there_is_anything_to_stop(want: Want, states: dict[str, State], verdict: Verdict, exposed: bool | None) -> None:
    found = control_finding(case(want), answers(**states))
    assert (found.verdict, found.exposed) == (verdict, exposed)
    assert found.why
    assert control_finding(case(want), (), "the shell did not start").why == "the shell did not start"


@pytest.mark.parametrize(
    ("verdict", "required", "fails", "unchecked"),
    [
        (HELD, True, False, False),
        (BROKEN, True, True, False),
        (BROKEN, False, True, False),
        (INCONCLUSIVE, True, True, True),
        (INCONCLUSIVE, False, False, False),
        (OPEN, True, False, False),
    ],
)
def test_a_run_cannot_pass_with_what_is_broken_or_had_to_be_told(verdict: Verdict, required: bool, fails: bool, unchecked: bool) -> None:
    found = Finding(case=case(Want.STOPPED, required=required), verdict=verdict, exposed=None, why="")
    assert (found.is_failure, found.is_unchecked) == (fails, unchecked)


# --- the catalogue

GROUPS = {
    "R": Group.READ,
    "W": Group.WRITE,
    "L": Group.LINKS,
    "P": Group.PROCESS,
    "K": Group.KERNEL,
    "N": Group.NETWORK,
    "E": Group.ENVIRONMENT,
    "Q": Group.RESOURCES,
    "T": Group.TERMINAL,
    "I": Group.IDENTITY,
}
# The ways out that were collected before any probe was written, each with its severity.
COLLECTED = """
    R01C R02C R03C R04C R05H R06H R07H R08H R09C R10H R11H R12C R13C R14C R15M R16H R17L R18M R19C R20C R21M
    W01C W02C W03C W04C W05C W06C W07C W08C W09H W10C W11C W12H W13M W14H W15C W16H W17H W18M W19M W20H W21M W22H W23C W24C
    L01C L02H L03H L04C L05C L06H L07H L08M L09C L10H L11H
    P01H P02C P03H P04C P05C P06H P07H P08H P09C P10C P11H P12H P13H P14M P15M P16H
    K01H K02H K03H K04H K05H K06H K07H K08H K09M K10C K11H K12H K13H K14H K15M K16H K17M K18M K19L
    N01C N02C N03C N04C N05M N06C N07H N08H N09C N10C N11H N12M N13C N14M N15H N16C N17H N18M N19L
    E01C E02H E03H E04M Q01H Q02H Q03M Q04L Q05L T01C T02H T03M T04M I01L I02L I03H I04C I05H I06C
"""
LEFT_OUT = {
    "L10": "macOS has no fence in this version",
    "L11": "nor has Landlock",
    "P16": "is P10 here, as mounts are W02",
    "K17": "is U04: what must work",
    "K19": "a count of calls proves nothing",
    "N12": "the way out is TCP, which carries no descriptors",
    "N18": "what must work is U13",
    "I02": "the time is no secret",
    "I04": "every run enters as people do: by the wrapper, or by nix develop --command",
    "I05": "nothing is run that is not what the manifest renders",
}
# Why a group has no positive twin of its own, and which twin would fail in its place.
NO_TWIN = {
    Group.LINKS: "U01",  # renames and opens by new names, in the project
    Group.KERNEL: "U04",  # threads, epoll, mmap and sockets under the same filter
    Group.NETWORK: "U04",  # a server on the shell's own loopback; nothing else works in every shell
    Group.RESOURCES: "U03",  # files in the bounded directories
}


def collected() -> dict[str, Severity]:
    letters = {severity.name[0]: severity for severity in Severity}
    return {word[:3]: letters[word[3]] for word in COLLECTED.split()}


@cache
def attempts() -> dict[str, Callable[..., Any]]:
    """The attempts, which are no package: it finds its parts beside itself."""
    before, writes = list(sys.path), sys.dont_write_bytecode
    sys.path.insert(0, str(ROOT / "wavegen/verify/inside"))
    try:
        found: dict[str, Callable[..., Any]] = importlib.import_module("probe").ATTEMPTS
    finally:
        sys.path[:], sys.dont_write_bytecode = before, writes
    return found


# One for each kind of rule; `full` has them all.
GRANTS = (
    "paths: [{path: ~/.aws/credentials, access: read}, {path: ~/.cache, access: write}, {path: ~/.docker/run, access: write, socket: true, optional: true}, "
    "{path: data, access: read}, {path: out, access: write, optional: true}, {path: /opt, access: read}, {path: /srv/x, access: write}, "
    "{path: /var/lib/y, access: read}, {path: /run/docker.sock, access: write, socket: true}, {path: /dev/kvm, access: write}]"
)
DENIES = "deny_read_paths: [.env, secrets, ~/.config/gh, ~/.aws, /etc/hosts, /var/lib/y/z]"
KINDS = {
    "minimal": "",
    "grants": GRANTS,
    "denies": DENIES,
    "limits": "limits: {pids: 100, memory: 1g, cpus: 1.5, files: 256, tmp: 64m}",
    "no-filter": "seccomp: 'off'",
    "strict-filter": "seccomp: strict",
    "opened-filter": "seccomp_allow: [ptrace, bpf]",
    "nested": "shells: {default: {nested: true}}",
    "warn": "fallback: warn",
    "tmpfs-home": "home: tmpfs",
    "filtered": "shells: {a: {network: filtered, domains: [x.org, '*.y.org'], denied_domains: [bad.y.org]}}",
    "no-network": "shells: {default: {network: none}}",
    "own-shells": "shells: {a: {}, b: {network: host, packages: [go]}, c: {network: open}, d: {network: filtered, domains: [x.org]}, e: {sandbox: false}}",
    "variables": "env_passthrough: [NPM_TOKEN, LD_PRELOAD, SSH_AUTH_SOCK, ANTHROPIC_API_KEY, TERM, PERL5LIB]",
    "scratch": "paths: [{path: /tmp, access: write, socket: true}, {path: /var/tmp, access: read}]",
    "full": f"{GRANTS}, deny_read_paths: [.env, /etc/hosts], limits: {{pids: 90, memory: 1g}}, seccomp: 'off', fallback: warn, home: tmpfs, "
    "env_passthrough: [NPM_TOKEN, SSH_AUTH_SOCK], shells: {default: {nested: true}, restricted: {nested: true}, own: {network: none}}",
}
of_every_kind = pytest.mark.parametrize("kind", KINDS)


def policies(kind: str) -> tuple[Policy, ...]:
    return planned(f"runtime: {{sandbox: {{{KINDS[kind]}}}}}\n").shells


def test_each_probe_has_a_number_of_its_own_in_the_letter_of_its_group() -> None:
    numbers = [probe.id for probe in PROBES]
    assert len(numbers) == len(set(numbers)) > 150
    for probe in PROBES:
        assert re.fullmatch(r"[RWLPKNEQTIU][0-9]{2}[a-z]?", probe.id), probe.id
        assert probe.id[0] == "U" or GROUPS[probe.id[0]] is probe.group, probe.id
        assert probe.id[:3] in numbers, f"{probe.id} goes with a probe that is not there"


def test_every_way_out_that_was_collected_is_tried_or_left_out_for_a_reason() -> None:
    here = {probe.id[:3] for probe in PROBES}
    assert set(collected()) - here == set(LEFT_OUT)
    assert len({name for name in collected() if name in here and name[0] in "RWLPKNEQT"}) >= 90


def test_a_severity_is_what_was_thought_of_it_before_or_next_to_that() -> None:
    order = list(Severity)
    # A number with a letter is another question, that was not thought of then.
    known = [(probe, collected()[probe.id]) for probe in PROBES if probe.id in collected()]
    assert len(known) > 100
    far = {probe.id: (probe.severity, severity) for probe, severity in known if abs(order.index(probe.severity) - order.index(severity)) > 1}
    assert not far


def test_a_question_is_one_and_no_two_are_the_same() -> None:
    for probe in PROBES:
        assert re.fullmatch(r"[A-Z][^\n]*[^ ?]\?", probe.question), probe.id
    assert len({probe.question for probe in PROBES}) == len(PROBES) > 150


def test_every_probe_has_something_that_tries_it() -> None:
    missing = {probe.id: probe.attempt for probe in PROBES if probe.attempt not in (TRIALS if probe.where is Where.LAUNCHER else attempts())}
    assert {probe.where for probe in PROBES} == set(Where)
    assert not missing


def test_nothing_can_be_tried_that_no_probe_asks_for() -> None:
    used = {probe.attempt for probe in PROBES if probe.where is not Where.LAUNCHER}
    assert not set(attempts()) - used
    assert not set(TRIALS) - {probe.attempt for probe in PROBES if probe.where is Where.LAUNCHER}


@cache
def expected_arguments(probe: Probe) -> set[str]:
    function = (TRIALS if probe.where is Where.LAUNCHER else attempts())[probe.attempt]
    names = list(inspect.signature(function).parameters)
    return set(names[1:] if probe.where is Where.LAUNCHER else names)  # the first is the shell's entry


def mismatched(found: Iterable[Case]) -> dict[str, set[str]]:
    """Cases whose attempt could not be called with what it is told."""
    wrong = {}
    for one in found:
        names = [name for name, _ in one.expectation.arguments]
        if one.expectation.tried and (len(names) != len(set(names)) or set(names) != expected_arguments(one.probe)):
            wrong[one.stable_id] = set(names) ^ expected_arguments(one.probe)
    return wrong


@of_every_kind
def test_an_attempt_is_told_just_what_it_takes(kind: str) -> None:
    for policy in policies(kind):
        found = cases_for_policy(policy)
        assert found
        assert not mismatched(found), policy.name


@of_every_kind
def test_no_two_cases_of_a_shell_have_one_name(kind: str) -> None:
    for policy in policies(kind):
        names = [one.stable_id for one in cases_for_policy(policy)]
        assert len(names) == len(set(names))
        assert not policy.fenced or len(names) > 120


@of_every_kind
def test_what_only_the_ground_knows_is_known_there(kind: str) -> None:
    # A fact that nobody provides would leave its case out, and nobody would see it.
    source = "".join((ROOT / f"wavegen/verify/{name}.py").read_text("utf-8") for name in ("testbed", "canary_server"))
    facts = {fact for policy in policies(kind) for one in cases_for_policy(policy) for _, value in one.expectation.arguments for fact in facts_of(value)}
    assert len(facts) > 20
    kinds = ("namespace ", "variables ", "socket ", "temporary ", "scratch ")
    assert not {fact for fact in facts if f'"{fact}"' not in source and not (fact.startswith(kinds) and fact.split()[0] in source)}


def test_cases_stand_in_the_catalogues_order() -> None:
    place = {probe.id: number for number, probe in enumerate(PROBES)}
    for policy in policies("full"):
        found = [place[one.probe.id] for one in cases_for_policy(policy)]
        assert found == sorted(found) != []


def test_every_probe_means_something_under_some_manifest() -> None:
    seen = {one.probe.id for kind in KINDS for policy in policies(kind) if policy.fenced for one in cases_for_policy(policy)}
    assert {probe.id for probe in PROBES} == seen != set()


def test_every_group_has_a_positive_twin_or_another_that_would_fail_in_its_place() -> None:
    found = cases_for_policy(shell("default"))
    twins = {one.probe.id: one.probe.group for one in found if one.expectation.want is Want.WORKS}
    assert set(twins.values()) | set(NO_TWIN) == set(Group)
    assert not set(twins.values()) & set(NO_TWIN)
    assert set(NO_TWIN.values()) <= set(twins)
    for group in Group:
        assert any(one.expectation.want is Want.STOPPED for one in found if one.probe.group is group), group


def test_only_a_probe_of_its_own_asks_what_must_work() -> None:
    # The question of a U probe is answered yes where the fence holds; of all others, where it does not.
    found = [one for kind in KINDS for policy in policies(kind) for one in cases_for_policy(policy)]
    assert {one.expectation.want for one in found} == set(Want)
    for one in found:
        twin = one.probe.id[0] == "U" or (one.probe.id == "T04" and one.expectation.want is not Want.OPEN)
        assert twin == (one.expectation.want is Want.WORKS), one.stable_id


def test_what_gives_the_host_away_is_critical() -> None:
    weights = {probe.id: probe.severity for probe in PROBES}
    for name in ("R01", "R02", "R03", "R09", "R13", "R19", "W01", "W03", "W04", "W15", "W15b", "L01", "P02", "P04", "N01", "N06", "N09", "E01", "T01", "I06"):
        assert weights[name] is Severity.CRITICAL, name


def test_no_secret_or_name_of_the_lists_passes_by_default() -> None:
    listed = {rule.name for rule in shell("default").environment}
    assert not listed & {*SECRETS, *DANGEROUS, *TO_SOCKETS}
    assert not set(SECRETS) & set(DANGEROUS)


# --- expectations follow the policy


def lines(expectation: Expectation) -> tuple[str, int] | None:
    at = expectation.origin.at
    return (at.file, at.line) if at else None


@pytest.mark.parametrize("name", ["default", "restricted"])
def test_nothing_of_the_home_is_read_unless_it_is_granted(name: str) -> None:
    for number, secrets in HOME_SECRETS.items():
        found = by_id(shell(name))
        assert (found[number].want, found[number].layer) == (Want.STOPPED, "private home")
        assert told(found[number])["paths"] == tuple(home_path(path) for path in secrets)
        assert not [case_id for case_id in found if case_id.startswith(f"{number} ")]


@pytest.mark.parametrize("name", ["default", "restricted"])
@pytest.mark.parametrize("access", ["read", "write"])
def test_a_granted_path_of_the_home_is_open_and_the_others_stay_stopped(name: str, access: str) -> None:
    found = by_id(shell(name, f"paths: [{{path: ~/.aws/credentials, access: {access}}}]"))
    opened = found["R02 ~/.aws/credentials"]
    assert (opened.want, lines(opened), opened.note) == (Want.OPEN, ("wave.yaml", 2), "the manifest grants it")
    assert told(opened)["paths"] == (home_path(".aws/credentials"),)
    assert told(found["R02"])["paths"] == tuple(home_path(path) for path in HOME_SECRETS["R02"] if path != ".aws/credentials")
    for number in ("R01", "R03", "R04", "R05"):
        assert told(found[number])["paths"] == tuple(home_path(path) for path in HOME_SECRETS[number])
    # What is granted must work, and no more of it than is granted.
    twins = ("U07 ~/.aws/credentials", "W25 ~/.aws/credentials", "U08 ~/.aws/credentials")
    assert wants(found, *twins) == ([Want.WORKS, Want.STOPPED, None] if access == "read" else [None, None, Want.WORKS])


def test_a_granted_directory_opens_what_lies_in_it_but_for_what_is_denied() -> None:
    found = default("paths: [{path: ~/.config, access: read}], deny_read_paths: [~/.config/gh]")
    assert wants(found, "R02 ~/.config/gcloud/credentials.db", "R05 ~/.config/op/config") == [Want.OPEN, Want.OPEN]
    assert "~/.config/gh/hosts.yml" in named(found["R03"])
    assert "~/.config/gcloud/credentials.db" not in named(found["R02"])


def test_a_granted_cache_can_be_poisoned_and_the_rest_of_the_home_stays_private() -> None:
    found = default("paths: [{path: ~/.cache, access: write}, {path: ~/go, access: read}]")
    assert (found["W22 ~/.cache/pip/x"].want, lines(found["W22 ~/.cache/pip/x"])) == (Want.OPEN, ("wave.yaml", 2))
    assert named(found["W22"]) == ("~/go/pkg/mod/x", "~/.cargo/registry/x", "~/.npm/x")
    assert found["W03"].want is Want.STOPPED


def test_what_is_denied_is_stopped_by_the_line_that_denies_it() -> None:
    text = "runtime:\n  sandbox:\n    deny_read_paths:\n      - .env\n      - ~/.config/gh\n      - /etc/hosts\n"
    for policy in planned(text).shells[:2]:
        found = by_id(policy)
        for number, path, line in (("R21", "./.env", 5), ("R21", "~/.config/gh", 6), ("R21b", "/etc/hosts", 7)):
            denied = found[f"{number} {path}"]
            assert (denied.want, lines(denied), denied.layer, named(denied)) == (Want.STOPPED, ("wave.yaml", line), "mounts", (path,))
        assert (found["W26 ./.env"].want, lines(found["W26 ./.env"])) == (Want.STOPPED, ("wave.yaml", 5))
        assert isinstance(told(found["R21b /etc/hosts"])["paths"], Inodes)


def test_without_a_line_that_denies_there_is_nothing_denied_to_try() -> None:
    found = default()
    assert found
    assert not [name for name in found if name.startswith(("R21", "W25", "W26", "U07", "U08", "L05", "L06 "))]


NETWORK = ("N01", "N02", "N03", "N04", "N05", "N06", "N07", "N08", "N08b", "N14", "P06 net")


@pytest.mark.parametrize("mode", ["none", "open", "filtered"])
def test_without_the_hosts_network_nothing_of_it_is_reached(mode: str) -> None:
    policy = shell("default", f"default_allowed_domains: [x.org], shells: {{default: {{network: {mode}}}}}")
    found = by_id(policy)
    assert policy.network.mode is NetworkMode(mode)
    assert set(wants(found, *NETWORK)) == {Want.STOPPED}
    assert {(found[name].layer, found[name].needs) for name in NETWORK} == {("network namespace", None)}
    assert {lines(found[name]) for name in NETWORK} == {("wave.yaml", 2)}


def test_the_hosts_network_is_open_and_its_sockets_are_not() -> None:
    found = default()
    assert {(found[name].want, found[name].note) for name in NETWORK if name != "N08"} == {(Want.OPEN, "network: host")}
    # Abstract sockets are of the network, and the second layer holds them where the kernel can.
    assert (found["N08"].want, found["N08"].layer, found["N08"].needs) == (Want.STOPPED, "landlock", Need.SCOPES)
    assert set(wants(found, "N09", "N09b", "N13", "N15", "N17")) == {Want.STOPPED}
    other = {f"P06 {kind}" for kind in ("cgroup", "ipc", "mnt", "pid", "user", "uts")}
    assert {found[name].want for name in other} == {Want.STOPPED}
    assert {name for name in found if name.startswith("P06")} == other | {"P06 net"}


@pytest.mark.parametrize(("variable", "number"), [("NPM_TOKEN", "E01"), ("PERL5LIB", "E03"), ("SSH_AUTH_SOCK", "N11")])
def test_a_variable_that_is_listed_is_open_and_no_other(variable: str, number: str) -> None:
    before, after = default()[number], default(f"env_passthrough: [{variable}]")
    opened = after[f"{number} {variable}"]
    assert (opened.want, lines(opened), told(opened)["names"]) == (Want.OPEN, ("wave.yaml", 2), (variable,))
    assert after[number].want is Want.STOPPED
    assert words(told(after[number])["names"]) == words(told(before)["names"]) - {variable} != set()
    assert variable in words(told(before)["names"])
    assert words(told(after["E02"])["passed"]) - words(told(default()["E02"])["passed"]) == {variable}
    assert (after[f"U05 {variable}"].want, lines(after[f"U05 {variable}"])) == (Want.WORKS, ("wave.yaml", 2))


def test_where_every_secret_is_listed_none_is_stopped() -> None:
    found = default(f"env_passthrough: [{', '.join(SECRETS)}]")
    assert "E01" not in found
    assert [found[f"E01 {name}"].want for name in SECRETS] == [Want.OPEN] * len(SECRETS)


FILTERED = ("K01", "K02", "K03", "K04", "K05", "K09", "K10", "K11b", "K12", "K13", "K14", "K15", "K16", "N15", "T01b")


@pytest.mark.parametrize("seccomp", ["default", "strict"])
def test_what_the_filter_refuses_is_stopped_by_it(seccomp: str) -> None:
    found = default(f"seccomp: {seccomp}")
    assert {(name, found[name].want, found[name].layer, lines(found[name])) for name in (*FILTERED, "T01")} == {
        (name, Want.STOPPED, "seccomp", ("wave.yaml", 2)) for name in (*FILTERED, "T01")
    }
    assert not [name for name in found if name.endswith(" others") and name[0] in "KNT"]
    assert told(found["K02"])["names"] == ("bpf",)
    assert {"ptrace", "unshare", "setns", "fsopen", "pidfd_getfd"} <= words(told(found["K14"])["names"])
    assert {"vsock", "alg", "xdp", "can"} <= words(told(found["K11b"])["names"])
    # Capabilities and sessions are held without any filter.
    assert set(wants(found, "K06", "K07", "K08", "K11", "K18", "T02b")) == {Want.STOPPED}
    assert "seccomp" not in {found[name].layer for name in ("K06", "K07", "K08", "K11", "K18", "T02b")}


def test_a_call_that_the_manifest_lets_through_is_open_and_no_other() -> None:
    before, after = default(), default("seccomp_allow: [ptrace, io_uring_enter, bpf]")
    assert {name for name in {*before, *after} if wants(before, name) != wants(after, name)} == {"K02", "K05 allowed", "K14 allowed"}
    for name, calls in (("K02", ("bpf",)), ("K05 allowed", ("io_uring_enter",)), ("K14 allowed", ("ptrace",))):
        assert (after[name].want, after[name].note, told(after[name])["names"]) == (Want.OPEN, "the manifest lets it through", calls)
        held = name.removesuffix(" allowed")
        assert lines(after[name]) == ("wave.yaml", 2)
        if held != name:
            assert words(told(after[held])["names"]) == words(told(before[held])["names"]) - set(calls) != set()


@pytest.mark.parametrize("seccomp", ["default", "strict", "'off'"])
def test_what_shares_the_terminal_is_not_signalled_where_the_kernel_can_hold_it(seccomp: str) -> None:
    one = default(f"seccomp: {seccomp}")["T02"]
    layer, needs = ("a session of its own", None) if "off" in seccomp else ("landlock", Need.SCOPES)
    assert (one.want, one.layer, one.needs) == (Want.STOPPED, layer, needs)


def test_without_a_filter_calls_are_open_and_the_terminal_is_not_shared() -> None:
    found = default("seccomp: 'off'")
    assert {(found[name].want, found[name].note, lines(found[name])) for name in FILTERED} == {(Want.OPEN, "seccomp: off", ("wave.yaml", 2))}
    assert {(found[name].want, found[name].layer) for name in ("T01", "T02")} == {(Want.STOPPED, "a session of its own")}
    assert set(wants(found, "T01b", "T04")) == {Want.OPEN}
    assert set(wants(found, "K06", "K07", "K08", "K11", "K18", "P03", "P04")) == {Want.STOPPED}


def refusing(*rules: Rule) -> Filter:
    return Filter(name="other", default=Action.ALLOW, rules=rules)


OTHER = refusing(
    Rule(names=("bpf", "clone3"), action=Action.EPERM, why="a test"),
    Rule(names=("ioctl",), action=Action.EPERM, why="a test", when=(Condition(argument=1, values=(0x541C,)),)),
    Rule(names=("socket",), action=Action.EPERM, why="a test", when=(Condition(argument=0, values=(38,)),)),
)


@pytest.mark.parametrize("other", [None, refusing(), OTHER], ids=["none", "nothing", "others"])
def test_expectations_follow_the_filter_that_there_is(other: Filter | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expect_process, "filter_of_shell", lambda _: other)
    found = default()
    assert wants(found, "K01", "K03", "K09", "K10", "K14", "N15", "T01") == [Want.OPEN] * 7
    assert wants(found, "K02", "K15", "T01b") == [Want.STOPPED if other is OTHER else Want.OPEN] * 3
    # Any filter at all refuses calls of other architectures.
    assert wants(found, "K12", "K13") == [Want.OPEN if other is None else Want.STOPPED] * 2
    if other is OTHER:
        assert (told(found["K11b"])["names"], found["K11b"].want, found["K11b others"].want) == (("alg",), Want.STOPPED, Want.OPEN)
    assert not {name for name, one in found.items() if one.want is Want.OPEN and not one.note}


REFUSED = ("keyctl", "bpf", "ptrace", "unshare", "setns", "clone3", "TIOCSTI", "TIOCLINUX", "personality", "raw", "packet", "vsock", "foreign")
# Some are refused by their arguments alone, and none are given.
LET_THROUGH = ("read", "openat", "clone", "execve", "ioctl", "seccomp", "landlock_restrict_self")


@pytest.mark.parametrize("seccomp", ["default", "strict", "'off'"])
@pytest.mark.parametrize(("name", "there"), [*((name, True) for name in REFUSED), *((name, False) for name in LET_THROUGH)])
def test_a_probes_name_for_a_call_says_whether_the_filter_refuses_it(name: str, there: bool, seccomp: str) -> None:
    assert is_refused_by_filter(shell("default", f"seccomp: {seccomp}"), name) is (there and "off" not in seccomp)


def test_namespaces_inside_are_open_only_where_they_are_asked_for() -> None:
    before, after = default(), default("shells: {default: {nested: true}}")
    changed = {name for name in {*before, *after} if wants(before, name) != wants(after, name)}
    assert changed == {"P07", "P08", "K14 others"}
    assert {(after[name].want, after[name].note) for name in changed} == {(Want.OPEN, "nested: true")}
    assert {lines(after[name]) for name in ("P07", "P08")} == {("wave.yaml", 2)}
    # What a sandbox is made of, and nothing that reaches into other processes.
    opened = words(told(after["K14 others"])["names"])
    assert opened == {"fsopen", "open_tree", "move_mount", "setns", "unshare"}
    assert words(told(after["K14"])["names"]) == words(told(before["K14"])["names"]) - opened
    assert "ptrace" in words(told(after["K14"])["names"])


MOST = ("Q01", "Q02", "Q05")


def test_bounds_that_are_not_written_are_tried_with_their_defaults() -> None:
    found = default()
    assert [(found[name].want, found[name].layer, found[name].tried, told(found[name])["most"], found[name].needs) for name in MOST] == [
        (Want.STOPPED, "limits", True, 4096, Need.NOT_ROOT),
        (Want.STOPPED, "limits", True, Fact("memory share"), Need.GROUPS),
        (Want.STOPPED, "limits", True, 65536, None),
    ]
    assert {lines(found[name]) for name in MOST} == {None}


def test_bounds_that_are_written_are_tried_with_their_values() -> None:
    found = default("limits: {pids: 50, memory: 64m, files: 100}")
    assert [(found[name].want, found[name].layer, found[name].tried, told(found[name])["most"], found[name].needs) for name in MOST] == [
        (Want.STOPPED, "limits", True, 50, Need.BOUND_PROCESSES),
        (Want.STOPPED, "limits", True, 64 << 20, Need.GROUPS),
        (Want.STOPPED, "limits", True, 100, None),
    ]
    assert {lines(found[name]) for name in MOST} == {("wave.yaml", 2)}


class Machine(Ground):
    """A ground on a machine that has some of what is needed; nothing is planted."""

    via = "wrapper"

    def __init__(self, *there: Need) -> None:
        self.there = there

    def meets_need(self, need: Need) -> bool:
        return need in self.there

    def resolve_argument(self, value: Value, _: Policy) -> Any:
        return repr(value)


def here(machine: Machine, text: str = "") -> dict[str, Expectation]:
    return {task.case.stable_id: task.case.expectation for task in tasks_of(machine, shell("default", text))}


@pytest.mark.parametrize(
    ("need", "text", "names", "tried"),
    [
        (Need.SCOPES, "", {"N08", "T02"}, True),
        (Need.GROUPS, "", {"Q02"}, True),
        (Need.USERS, "", {"P06 user"}, True),
        (Need.NOT_ROOT, "", {"Q01"}, False),
        (Need.BOUND_PROCESSES, "limits: {memory: 1g}", {"Q01"}, False),
    ],
)
def test_what_a_machine_lacks_is_open_there_and_held_elsewhere(need: Need, text: str, names: set[str], tried: bool) -> None:
    everywhere, lacking = here(Machine(*Need), text), here(Machine(*(other for other in Need if other is not need)), text)
    assert everywhere == default(text)
    assert {name for name in everywhere if everywhere[name] != lacking[name]} == names
    for name in names:
        assert everywhere[name].want is Want.STOPPED
        found = lacking[name]
        # A bound that is not there would use the machine up.
        assert (found.want, found.layer, found.note, found.tried) == (Want.OPEN, "", f"this machine has no {need.value}", tried)
        assert (found.arguments, found.origin) == (everywhere[name].arguments, everywhere[name].origin)


def test_only_what_works_or_is_held_on_every_machine_needs_nothing_of_it() -> None:
    found = [one for kind in KINDS for policy in policies(kind) for one in cases_for_policy(policy) if one.expectation.needs]
    assert {one.expectation.needs for one in found} == set(Need)
    assert {one.probe.id for one in found} == {"N08", "T02", "P06", "Q01", "Q02"}
    assert {one.expectation.want for one in found} == {Want.STOPPED}


def test_only_what_would_wake_services_and_launches_that_race_are_not_tried() -> None:
    untried = [one for kind in KINDS for policy in policies(kind) for one in cases_for_policy(policy) if not one.expectation.tried]
    assert {one.probe.id for one in untried} == {"L06", "T04", "N09b", "N10", "N19"}
    assert {one.expectation.want for one in untried} == {Want.OPEN}


def test_each_scratch_directory_has_its_bound() -> None:
    found = default("limits: {tmp: 64m}, home: tmpfs")
    bounds = told(found["Q03"])["paths"]
    assert bounds == tuple(
        (path, 64 << 20) for path in (host_root_path("/tmp"), host_root_path("/var/tmp"), host_root_path("/run"), host_root_path("/dev/shm"), home_path(""))
    )
    assert named(default("paths: [{path: /var/tmp, access: write}]")["Q03"]) == ("/tmp", "/run", "/dev/shm")


def test_a_home_that_is_empty_at_each_entry_holds_what_a_private_one_does() -> None:
    before, after = default(), default("home: tmpfs")
    assert {name: one.want for name, one in before.items()} == {name: one.want for name, one in after.items()}
    for name in ("R01", "W03", "W22", "W23"):
        assert (after[name].layer, lines(after[name])) == ("private home", ("wave.yaml", 2))


@pytest.mark.parametrize("path", ["/run/docker.sock", "/run/podman", "/nix/var/nix/daemon-socket"])
def test_a_socket_that_is_granted_is_open_and_the_others_stay_stopped(path: str) -> None:
    found = default(f"paths: [{{path: {path}, access: write, socket: true}}]")
    number = "N13" if path.startswith("/nix") else "N09b"
    socket = next(socket for socket in (*SOCKETS, "/nix/var/nix/daemon-socket/socket") if socket.startswith(path))
    opened = found[f"{number} {socket}"]
    assert (opened.want, lines(opened), named(opened)) == (Want.OPEN, ("wave.yaml", 2), (socket,))
    assert socket not in named(found[number]) if number in found else True
    assert len(named(found["N09b"])) == len(SOCKETS) - (number == "N09b")
    # Nothing is read from or written to a socket.
    assert not [name for name in found if name.endswith(f" {path}") and name.startswith(("U", "W25"))]


def test_a_path_below_one_that_is_hidden_opens_itself_alone() -> None:
    before, after = default(), default("paths: [{path: /var/lib/x, access: write}]")
    assert set(after) - set(before) == {"U08b /var/lib/x"}
    assert {name for name in before if before[name].want is not after[name].want} == set()
    assert {"/var", "/var/lib"} <= set(named(after["W01"]))


def test_a_hidden_path_that_is_granted_is_open_for_what_is_granted() -> None:
    read, write = (default(f"paths: [{{path: /var/log, access: {access}}}]") for access in ("read", "write"))
    for found in (read, write):
        assert (found["R08b /var/log"].want, lines(found["R08b /var/log"])) == (Want.OPEN, ("wave.yaml", 2))
        assert "/var/log" not in named(found["R08b"])
    assert wants(read, "U07b /var/log", "W25b /var/log", "U08b /var/log") == [Want.WORKS, Want.STOPPED, None]
    assert wants(write, "U07b /var/log", "W25b /var/log", "U08b /var/log") == [None, None, Want.WORKS]
    cron = default("paths: [{path: /etc/cron.d, access: write}]")
    assert wants(cron, "W20 /etc/cron.d") == [Want.OPEN]
    assert named(cron["W20"]) == ("/var/spool/cron", "/etc/systemd/system")


def test_scratch_that_is_granted_is_the_hosts() -> None:
    found = default("paths: [{path: /tmp, access: write, socket: true}]")
    assert wants(found, "W21 /tmp", "R22 /tmp", "N09b /tmp/.X11-unix/X0") == [Want.OPEN] * 3
    assert {fact for _, value in found["W21"].arguments for fact in facts_of(value)} == {"scratch /var/tmp", "scratch /dev/shm"}


@pytest.mark.parametrize(("path", "more"), [("/tmp", ", socket: true"), ("/var/tmp", "")])
def test_temporary_files_of_a_granted_directory_are_not_among_those_that_are_stopped(path: str, more: str) -> None:
    found = default(f"paths: [{{path: {path}, access: write{more}}}]")
    # Told the same, one of the two would be judged by what the other is about.
    assert found[f"R22 {path}"].want is Want.OPEN
    assert "R22" not in found or told(found["R22"]) != told(found[f"R22 {path}"])


@pytest.mark.parametrize(
    ("number", "entry"),
    [
        pytest.param("P12", "{path: /dev/kvm, access: write}", id="a-virtual-machine"),
        pytest.param("R12", "{path: /dev/kmsg, access: read}", id="the-kernels-log"),
        pytest.param("R14", "{path: /dev/sda, access: read}", id="a-disk"),
        pytest.param("W24", "{path: /sys/kernel/mm, access: write}", id="a-setting"),
        pytest.param("W24b", "{path: /sys, access: write}", id="all-settings"),
        pytest.param("P14", "{path: /dev/shm, access: write}", id="shared-memory"),
        pytest.param("N09d", "{path: /var/tmp, access: write}", id="sockets-in-scratch"),
        pytest.param("N09c", "{path: ~/.gnupg, access: write, socket: true}", id="an-agents-socket"),
        pytest.param("N10", "{path: /run/docker.sock, access: write, socket: true}", id="any-socket"),
    ],
)
def test_what_the_manifest_grants_does_not_break_the_fence(number: str, entry: str) -> None:
    found = default(f"paths: [{entry}]")
    path = entry.split()[1].rstrip(",")
    opened = [one for name, one in found.items() if name.split()[0] == number and one.want is Want.OPEN]
    # Or it is told to leave the granted path out.
    left_out = [one for name, one in found.items() if name == number and path in str(told(one).get("skip", ""))]
    assert [lines(one) for one in opened] == [("wave.yaml", 2)] * len(opened)
    assert opened or left_out


def test_a_project_that_is_granted_for_reading_is_not_expected_to_be_written() -> None:
    found = default("paths: [{path: ., access: read}]")
    assert set(wants(found, "W04", "W05", "W06", "W07", "W10", "W11", "W12")) == {Want.STOPPED}
    assert not {name for name, one in found.items() if "the project is writable" in one.note}
    assert Want.WORKS not in wants(found, "U01", "U09")


@pytest.mark.parametrize("text", ["deny_read_paths: [/tmp]", "deny_read_paths: [/dev/shm]", "paths: [{path: /var/tmp, access: read}]"])
def test_scratch_that_is_not_writable_is_not_expected_to_be(text: str) -> None:
    policy = shell("default", text)
    writable = {rule.path for rule in policy.paths if rule.access in (Access.SCRATCH, Access.WRITE)}
    assert {path for value in told(by_id(policy)["U03"]).values() for path in paths_of(value)} <= writable


def test_what_the_project_holds_and_the_host_runs_is_open_unless_a_rule_is_about_it() -> None:
    before, after = default(), default("paths: [{path: .git, access: read}], deny_read_paths: [.envrc]")
    assert set(wants(before, "W04", "W05", "W06", "W07", "W08", "W09", "W10", "W10c", "W11", "W12")) == {Want.STOPPED}
    assert set(wants(before, "W10b", "W12b", "W13", "W14", "W16", "L08")) == {Want.OPEN}
    assert set(wants(after, "W04", "W05", "W06", "W07", "W10")) == {Want.STOPPED}
    loose = default("paths: [{path: .git/hooks, access: write}, {path: .envrc, access: write}]")
    assert (named(loose["W04 others"]), loose["W04 others"].want) == (("./.git/hooks/wavegen-probe",), Want.OPEN)
    assert (named(loose["W10 others"]), loose["W10 others"].want) == (("./.envrc",), Want.OPEN)
    assert "./.envrc" not in named(loose["W10c"])
    assert lines(after["W06"]) == ("wave.yaml", 2)
    assert wants(after, "W13", "L08") == [Want.OPEN] * 2


@pytest.mark.parametrize("overlay", [None, "runtime: {sandbox: {deny_read_paths: [x]}}\n"])
def test_the_fences_own_files_are_pinned_and_the_overlay_with_them(overlay: str | None) -> None:
    for name in ("default", "restricted"):
        found = by_id(shell(name, "", overlay))
        for number in ("W15", "W15b", "L02", "L07"):
            assert found[number].want is Want.STOPPED
            assert set(named(found[number])) == {"./wave.yaml", "./wave.sandbox.yaml", "./flake.nix", "./flake.lock", "./.wavegen"}
        assert ("R21 ./x" in found) == (overlay is not None)
        if overlay:
            assert lines(found["R21 ./x"]) == ("wave.sandbox.yaml", 1)


def test_the_fences_own_files_stay_pinned_where_the_project_is_granted() -> None:
    found = default("paths: [{path: ., access: write}, {path: src, access: write}]")
    assert (found["W15"].want, len(named(found["W15"]))) == (Want.STOPPED, 5)
    assert wants(found, "L05 ./src", "L06 ./src", "U08 ./src", "W17") == [Want.STOPPED, Want.OPEN, Want.WORKS, Want.STOPPED]


def test_a_command_without_a_fence_is_run_only_where_that_is_asked_for() -> None:
    assert (default()["I06"].want, default()["I06"].layer) == (Want.STOPPED, "launcher")
    warned = default("fallback: warn")["I06"]
    assert (warned.want, warned.note) == (Want.OPEN, "fallback: warn")


def without_name(policy: Policy) -> list[tuple[str, Expectation]]:
    """All cases of a shell, but for its name, and the lines of its keys."""

    def nameless(value: Value) -> Value:
        return tuple(one for one in value if one != ("WAVEGEN_SHELL", policy.name)) if isinstance(value, tuple) else value

    found = []
    for one in cases_for_policy(policy):
        arguments = tuple((key, nameless(value)) for key, value in one.expectation.arguments)
        found.append((one.stable_id, replace(one.expectation, origin=Origin(""), arguments=arguments)))
    return found


@pytest.mark.parametrize("keys", ["network: host", "network: none", "network: host, nested: true, env_passthrough: [NPM_TOKEN], deny_read_paths: [x]"])
@pytest.mark.parametrize("name", ["zz", "restricted", "defaults", "yolo2", "none"])
def test_a_shells_name_says_nothing(name: str, keys: str) -> None:
    text = f"shells: {{default: {{{keys}}}, {name}: {{{keys}}}}}"
    one, other = shell("default", text), shell(name, text)
    assert without_name(one) == without_name(other) != []
    assert cases_for_policy(replace(one, name="yolo")) == cases_for_policy(one)


def test_the_same_policy_gives_the_same_cases() -> None:
    for policy in policies("full"):
        assert cases_for_policy(policy) == cases_for_policy(policy) != ()


def test_of_rules_above_a_path_the_deepest_governs_and_of_two_the_later() -> None:
    policy = shell("default", "paths: [{path: ~/a, access: read}, {path: ~/a/b, access: write}], deny_read_paths: [~/a/b/c]")
    for path, access in (
        (home_path("a/x"), Access.READ),
        (home_path("a/b/x"), Access.WRITE),
        (home_path("a/b/c/x"), Access.HIDE),
        (home_path("ab"), Access.WRITE),
    ):
        rule = policy_rule_for(policy, path)
        assert rule is not None
        assert rule.access is access
    both = policy_rule_for(replace(policy, paths=(*policy.paths, replace(policy.paths[-1], path=home_path("a"), access=Access.HIDE))), home_path("a"))
    assert both is not None
    assert both.access is Access.HIDE
    assert policy_rule_for(replace(policy, paths=()), home_path("a")) is None


# --- any manifest

POOL = (
    "~/.ssh/config", "~/.aws", "~/.config/gh", "~/.cache", "~/.netrc", "~/go", "~/.local/bin", "~/.bashrc", "~/.gitconfig", ".env", "src", ".git", ".git/hooks",
    ".vscode", "nested", "a b/ü", "/opt", "/srv/x", "/var/log", "/var/lib", "/var/lib/docker", "/etc/ssh", "/etc/hosts", "/etc/shadow", "/usr/local/bin", "/root",
    "/media", "/home/other", "/var/tmp", "/dev/shm", "/dev/kvm", "/dev/fuse", "/sys/kernel", "/nix/store", "/mnt/x", "/etc/cron.d", "/usr", "/boot",
)  # fmt: skip
WITH_SOCKETS = ("/run/docker.sock", "/run/dbus", "/tmp", "/run", "~/.gnupg", "/nix/var/nix/daemon-socket", "/run/user/1000", "~/.docker")
VARIABLES = (*SECRETS, *DANGEROUS, *TO_SOCKETS, "TERM", "HOME", "GH_TOKEN", "LC_ALL", "NIX_REMOTE", "A_KEY")


def some(chance: random.Random, pool: Iterable[str], most: int) -> list[str]:
    words = tuple(pool)
    return chance.sample(words, chance.randint(0, min(most, len(words))))


def random_keys(chance: random.Random) -> dict[str, Any]:
    """The keys that `sandbox` and a shell have in common."""
    found: dict[str, Any] = {
        "paths": [{"path": path, "access": chance.choice(["read", "write"]), "optional": chance.random() < 0.3} for path in some(chance, POOL, 5)]
        + [{"path": path, "access": chance.choice(["read", "write"]), "socket": True} for path in some(chance, WITH_SOCKETS, 2)],
        "env_passthrough": some(chance, VARIABLES, 6),
    }
    granted = [entry["path"] for entry in found["paths"]]
    # What is granted and denied at once is an error.
    found["deny_read_paths"] = [path for path in some(chance, POOL, 4) if not any(one == path or one.startswith(f"{path}/") for one in granted)]
    return {key: value for key, value in found.items() if value and chance.random() < 0.8}


def random_shell(chance: random.Random) -> dict[str, Any]:
    mode = chance.choice(["host", "open", "filtered", "none", None])
    found = random_keys(chance) | ({"network": mode} if mode else {}) | ({"nested": True} if chance.random() < 0.3 else {})
    if mode == "filtered" and chance.random() < 0.5:
        found["domains"] = chance.choice([[], ["x.org"]])
    return found


def random_manifest(seed: int) -> str:
    chance = random.Random(seed)
    sandbox = random_keys(chance)
    for key, values in (
        ("seccomp", ("default", "strict", "off")),
        ("fallback", ("warn", "error")),
        ("home", ("private", "tmpfs")),
        ("seccomp_allow", (["ptrace"], ["bpf", "io_uring_setup"], [])),
        ("limits", ({"pids": 16}, {"memory": "1g", "tmp": "8m"}, {"cpus": 1.5, "files": 64}, {})),
        ("default_allowed_domains", ([], ["x.org"])),
    ):
        if chance.random() < 0.5:
            sandbox[key] = chance.choice(values)
    if chance.random() < 0.8:
        sandbox["shells"] = {name: random_shell(chance) for name in some(chance, ("default", "restricted", "own", "ci"), 4)}
        if chance.random() < 0.2:
            sandbox["shells"]["open"] = {"sandbox": False}
    return f"runtime: {json.dumps({'sandbox': sandbox})}\n"


@cache
def random_shells() -> tuple[tuple[str, Policy, tuple[Case, ...]], ...]:
    """The shells of some two hundred manifests: text, policy, cases. Those that contradict themselves are left out."""
    found, refused = [], 0
    for seed in range(250):
        text = random_manifest(seed)
        try:
            shells = planned(text, "" if seed % 3 else None).shells
        except ManifestError:
            refused += 1
            continue
        found += [(text, policy, cases_for_policy(policy)) for policy in shells]
    assert refused < 60
    return tuple(found)


def test_whatever_the_manifest_every_case_says_why() -> None:
    seen: dict[Want, int] = dict.fromkeys(Want, 0)
    for text, _, found in random_shells():
        assert len({one.stable_id for one in found}) == len(found), text
        for one in found:
            expectation = one.expectation
            reason = expectation.origin.reason or expectation.origin.at
            match expectation.want:
                case Want.OPEN:
                    assert expectation.note, (one.stable_id, text)
                    assert not expectation.layer, (one.stable_id, text)
                case _:
                    assert expectation.layer, (one.stable_id, text)
                    assert expectation.tried, (one.stable_id, text)
            assert reason, (one.stable_id, text)
            seen[expectation.want] += 1
    assert min(seen.values()) > 5000


def test_whatever_the_manifest_attempts_are_told_just_what_they_take() -> None:
    for text, _, found in random_shells():
        assert found
        assert not mismatched(found), text


# Attempts that are about paths: to see what is there, and to change it.
SEEING = ("canaries", "host_inodes", "opens", "sockets", "groups")
CHANGING = ("creates", "creates_named", "writes", "writable_mounts", "writes_back", "replaces", "exchanges", "hardlinks", "reaches_host")


def granted(policy: Policy, one: Case) -> list[str]:
    """Paths that a case says are stopped, though the manifest grants just that."""
    found = []
    for key, value in one.expectation.arguments:
        for path in paths_of(value) if key not in ("directory", "other") else ():
            rule = policy_rule_for(policy, path)
            # With a source it is not the host's that is there.
            if rule and rule.origin.at and rule.source is None and not rule.pinned:
                found += [str(path)] if rule.access is Access.WRITE or (rule.access is Access.READ and one.probe.attempt in SEEING) else []
    return found


def test_whatever_the_manifest_nothing_that_it_grants_is_expected_to_be_stopped() -> None:
    tried, wrong = 0, set()
    for _, policy, found in random_shells():
        for one in found:
            if policy.fenced and one.expectation.want is Want.STOPPED and one.probe.attempt in (*SEEING, *CHANGING):
                tried += 1
                wrong |= {(one.probe.id, path) for path in granted(policy, one)}
    assert tried > 5000
    assert not wrong


def test_whatever_the_manifest_nothing_that_it_hides_is_expected_to_work() -> None:
    tried, wrong = 0, set()
    for _, policy, found in random_shells():
        for one in found:
            if policy.fenced and one.expectation.want is Want.WORKS:
                for path in (path for _, value in one.expectation.arguments for path in paths_of(value)):
                    rule = policy_rule_for(policy, path)
                    tried += 1
                    if rule and (rule.access is Access.HIDE or (rule.access is Access.READ and one.probe.group is Group.WRITE)):
                        wrong.add((one.probe.id, str(path)))
    assert tried > 5000
    assert not wrong


def test_whatever_the_manifest_what_it_denies_is_tried_and_stopped_by_its_line() -> None:
    tried = 0
    for text, policy, every in random_shells():
        found = {one.stable_id: one.expectation for one in every}
        for rule in policy.paths:
            if rule.access is Access.HIDE and rule.origin.at:
                one = found[f"{'R21b' if rule.path.anchor is Anchor.ROOT else 'R21'} {rule.path}"]
                assert (one.want, one.origin) == (Want.STOPPED, rule.origin), text
                tried += 1
    assert tried > 200


def test_whatever_the_manifest_the_fence_itself_is_held() -> None:
    for text, policy, every in random_shells():
        if policy.fenced:
            found = {one.stable_id: one.expectation for one in every}
            assert {found[name].want for name in ("W15", "W15b", "L04", "L07", "P02", "P04", "R09", "R13", "R19", "L09", "I03")} == {Want.STOPPED}, text
            assert project_path(".wavegen") in set(paths_of(told(found["W15"])["paths"]))


# --- nothing of a policy is left untried


@pytest.mark.parametrize("name", ["default", "restricted"])
def test_every_rule_of_a_policy_is_tried(name: str) -> None:
    """Also those about paths that this machine does not have, which no mutation of a wrapper can show."""
    policy = shell(name, "deny_read_paths: [.env, /etc/x], paths: [{path: ~/r, access: read}, {path: ~/w, access: write}], env_passthrough: [A]")
    found = by_id(policy)
    tried = {path for expected in found.values() for _, value in expected.arguments for path in paths_of(value)}
    # The neighbours and other homes are places of the ground.
    by_fact = {Anchor.HOMES: "R07", Anchor.AROUND: "R06"}
    for rule in policy.paths:
        if rule.path.anchor in by_fact:
            assert by_fact[rule.path.anchor] in found
        elif rule.access is Access.SCRATCH and rule.source is not None:
            assert rule.path.tail == "var/run"  # a link: what it leads to is tried
        else:
            assert rule.path in tried, rule
    names = {word for expected in found.values() for _, value in expected.arguments for fact in facts_of(value) for word in fact.split()}
    fixed = {pair[0] for pair in told(found["E05"])["pairs"]}
    for variable in policy.environment:
        assert variable.name in (names if variable.value is None else fixed), variable
