"""What a policy says about a probe: what all such functions are made of, and the plainest of them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from wavegen.manifest.model import Fallback, NetworkMode, Seccomp
from wavegen.policy import path_resolution
from wavegen.policy.model import Access, Anchor, HostPath, Origin, PathRule, Policy
from wavegen.verify.model import Expectation, Fact, Value, Want

Expect = Callable[[Policy], Iterable[Expectation]]
Arguments = dict[str, Value]

MOUNTS, HOME, NO_FENCE = "mounts", "private home", "no fence is asked for"


def home_path(path: str) -> HostPath:
    """A path of the home."""
    return HostPath(Anchor.HOME, path)


def project_path(path: str = "") -> HostPath:
    """A path of the project."""
    return HostPath(Anchor.PROJECT, path)


def host_root_path(path: str) -> HostPath:
    """A path of the host."""
    return HostPath(Anchor.ROOT, path.removeprefix("/"))


def policy_rule_for(policy: Policy, path: HostPath) -> PathRule | None:
    """The rule that decides about a path, as far as the anchors tell."""
    return path_resolution.governing_rule(policy.paths, path)


def arguments_of(arguments: Arguments) -> tuple[tuple[str, Value], ...]:
    return tuple(arguments.items())


def expect_denied(layer: str, reason: str, **arguments: Value) -> Expect:
    """Every fence stops it."""

    def expectations_under(_: Policy) -> Iterator[Expectation]:
        yield Expectation(want=Want.STOPPED, layer=layer, origin=Origin(reason), arguments=arguments_of(arguments))

    return expectations_under


def works_in_project(reason: str, **arguments: Value) -> Expect:
    """What needs a project that can be written."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rule = policy_rule_for(policy, project_path())
        if rule and rule.access is Access.WRITE:
            yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=Origin(reason), arguments=arguments_of(arguments))

    return expectations_under


def git_works(**arguments: Value) -> Expect:
    """git can commit, unless the manifest hides or pins something of the repository."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        git, rule = project_path(".git"), policy_rule_for(policy, project_path())
        bound = any(r.origin.at and r.access in (Access.HIDE, Access.READ) and (git.contains_path(r.path) or r.path.contains_path(git)) for r in policy.paths)
        if rule and rule.access is Access.WRITE and not bound:
            yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=Origin("an agent works with git"), arguments=arguments_of(arguments))

    return expectations_under


def expect_usable_tmpfs(*places: HostPath) -> Expect:
    """Scratch directories can be used, unless the manifest says something else about them."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rules = {place: rule for place in places if (rule := policy_rule_for(policy, place)) and rule.access in (Access.SCRATCH, Access.WRITE)}
        if rules:
            origin = next(iter(rules.values())).origin
            told = tuple(Fact(f"scratch {place}") for place in rules)
            yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=origin, arguments=(("paths", told),))

    return expectations_under


def granted_at(policy: Policy, place: HostPath) -> PathRule | None:
    """The manifest's rule that shows the place, or something below it."""
    for rule in policy.paths:
        if rule.origin.at and rule.access in (Access.READ, Access.WRITE) and (rule.path.contains_path(place) or place.contains_path(rule.path)):
            return rule
    return None


def weakened_rule_at(policy: Policy, place: HostPath) -> PathRule | None:
    """The rule about the place itself by which a back end holds less than it should."""
    return next((rule for rule in policy.paths if rule.weaker and rule.path == place), None)


def expect_isolated(place: HostPath, layer: str, reason: str, **arguments: Value) -> Expect:
    """Kept apart, unless the manifest grants something where the host shares it."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rule = granted_at(policy, place)
        if rule:
            note = "the manifest grants it"
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, arguments=arguments_of(arguments), note=note)
        else:
            yield Expectation(want=Want.STOPPED, layer=layer, origin=Origin(reason), arguments=arguments_of(arguments))

    return expectations_under


def unless_granted(layer: str, reason: str, *places: HostPath, fact: str = "", writing: bool = False) -> Expect:
    """Each out of reach, unless the manifest grants it; `fact`: what is told in its place, by the fact's name and the path.

    `writing`: a grant for reading leaves it out of reach.
    """

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        found = {place: rule for place in places if (rule := granted_at(policy, place) or weakened_rule_at(policy, place))}
        rules = {place: rule for place, rule in found.items() if not (writing and rule.access is Access.READ)}
        told = {place: Fact(f"{fact} {place}") if fact else place for place in places}
        kept = tuple(told[place] for place in places if place not in rules)
        if kept:
            yield Expectation(want=Want.STOPPED, layer=layer, origin=Origin(reason), arguments=(("paths", kept),))
        for place, rule in rules.items():
            note = rule.weaker or "the manifest grants it"
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(place), arguments=(("paths", (told[place],)),), note=note)

    return expectations_under


def any_socket(**arguments: Value) -> Expect:
    """No socket answers, unless the manifest grants one, or the host's network and with it sockets that are shown."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        shared = [found for place in ("/tmp", "/var/tmp", "/dev/shm", "/run") if (found := granted_at(policy, host_root_path(place)))]
        rule = next((rule for rule in (*(rule for rule in policy.paths if rule.socket), *shared)), None)
        if rule or policy.network.mode is NetworkMode.HOST:
            origin = rule.origin if rule else policy.network.origin
            note = "the manifest grants sockets" if rule else "network: host"
            # Connecting to what may be reached would wake services.
            yield Expectation(want=Want.OPEN, layer="", origin=origin, note=note, tried=False)
        else:
            origin = Origin("a read-only mount does not stop connect(2)")
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=origin, arguments=arguments_of(arguments))

    return expectations_under


def expect_allowed(layer: str, reason: str, **arguments: Value) -> Expect:
    """Every fence lets it through."""

    def expectations_under(_: Policy) -> Iterator[Expectation]:
        yield Expectation(want=Want.WORKS, layer=layer, origin=Origin(reason), arguments=arguments_of(arguments))

    return expectations_under


def expect_not_enforced(reason: str, **arguments: Value) -> Expect:
    """No fence holds it, and says so."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        yield Expectation(want=Want.OPEN, layer="", origin=policy.origin, arguments=arguments_of(arguments), note=reason)

    return expectations_under


# --- the kernel


def expect_no_capability(**arguments: Value) -> Expect:
    """The kernel asks for a capability, and none is left."""
    return expect_denied("capabilities", "real root would keep its capabilities and could undo every mount", **arguments)


# --- the launcher


def expect_launcher_refusal(reason: str, **arguments: Value) -> Expect:
    """The wrapper refuses."""
    return expect_denied("launcher", reason, **arguments)


def fails_closed(policy: Policy) -> Iterator[Expectation]:
    """Without a fence nothing is run, unless `fallback: warn` asks for it."""
    if policy.fallback is Fallback.WARN:
        yield Expectation(want=Want.OPEN, layer="", origin=policy.origin, note="fallback: warn")
    else:
        yield Expectation(want=Want.STOPPED, layer="launcher", origin=Origin("never a command without a fence"))


def interactive_use(policy: Policy) -> Iterator[Expectation]:
    """People work in it; with a session of its own there is neither job control nor Ctrl-C."""
    if policy.seccomp is Seccomp.OFF:
        note = "seccomp: off shares no terminal"
        yield Expectation(want=Want.OPEN, layer="", origin=policy.seccomp_origin, note=note, tried=False)
    else:
        yield Expectation(want=Want.WORKS, layer="launcher", origin=Origin("people work in it"))
