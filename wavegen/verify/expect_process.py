"""What a policy says about probes of namespaces, system calls, bounds, variables and terminals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from wavegen.backends.sandboxes.rules_file import filter_of_shell
from wavegen.manifest.model import Seccomp
from wavegen.policy.model import Origin, Policy
from wavegen.seccomp import Action
from wavegen.verify.expect import Expect, arguments_of, expect_denied
from wavegen.verify.expect_network import network_expectation
from wavegen.verify.model import Expectation, Fact, Need, Value, Want

FAMILIES = {"packet": 17, "vsock": 40, "alg": 38, "bluetooth": 31, "xdp": 44, "tipc": 30, "rds": 21, "can": 29, "kcm": 41}
"""Socket families by the names that probes give them (include/linux/socket.h)."""


def expect_namespace_isolation(kind: str, **arguments: Value) -> Expect:
    """What a namespace of its own keeps apart."""
    return expect_denied(f"{kind} namespace", f"a {kind} namespace of its own", **arguments)


def expect_no_nesting(**arguments: Value) -> Expect:
    """No namespaces can be made inside, unless the manifest asks for them."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        if policy.nested:
            yield Expectation(want=Want.OPEN, layer="", origin=policy.origin, arguments=arguments_of(arguments), note="nested: true")
        else:
            reason = Origin("no namespaces inside: each would open more of the kernel")
            yield Expectation(want=Want.STOPPED, layer="user namespace", origin=reason, arguments=arguments_of(arguments))

    return expectations_under


_ARGUMENTS = {
    "TIOCSTI": ("ioctl", (0, 0x5412)),
    "TIOCLINUX": ("ioctl", (0, 0x541C)),
    "personality": ("personality", (0x40000,)),
    "raw": ("socket", (2, 3, 1)),
    **{name: ("socket", (number, 2, 0)) for name, number in FAMILIES.items()},
}


def is_refused_by_filter(policy: Policy, name: str) -> bool:
    """Whether the shell's system call filter refuses a call, an ioctl, a socket family, or foreign calls, by a probe's name for it."""
    found = filter_of_shell(policy)
    if found is None or name == "foreign":
        return found is not None
    call, arguments = _ARGUMENTS.get(name, (name, ()))
    return found.action_for(call, (*arguments, *(0,) * (6 - len(arguments)))) is not Action.ALLOW


def expect_calls_filtered(*names: str, key: str = "", **arguments: Value) -> Expect:
    """The system call filter refuses it, unless the manifest lets it through; `key` is the argument that takes the names."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        held, loose = (
            tuple(name for name in names if is_refused_by_filter(policy, name)),
            tuple(name for name in names if not is_refused_by_filter(policy, name)),
        )
        if held:
            told = arguments_of({**({key: held} if key else {}), **arguments})
            yield Expectation(want=Want.STOPPED, layer="seccomp", origin=policy.seccomp_origin, arguments=told)
        opened = tuple(name for name in loose if name in policy.seccomp_allow)
        rest = tuple(name for name in loose if name not in opened)
        off = policy.seccomp is Seccomp.OFF
        for names_, why, origin, subject in (
            (rest, "seccomp: off" if off else "nested: true", policy.seccomp_origin if off else policy.origin, "others"),
            (opened, "seccomp: off" if off else "the manifest lets it through", policy.seccomp_origin if off else policy.seccomp_allow_origin, "allowed"),
        ):
            if names_:
                told = arguments_of({**({key: names_} if key else {}), **arguments})
                yield Expectation(want=Want.OPEN, layer="", origin=origin, subject=subject if held or (rest and opened) else "", arguments=told, note=why)

    return expectations_under


def any_filter(**arguments: Value) -> Expect:
    """There is a system call filter at all."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        off = policy.seccomp is Seccomp.OFF
        want = Want.OPEN if off else Want.STOPPED
        yield Expectation(
            want=want, layer="" if off else "seccomp", origin=policy.seccomp_origin, arguments=arguments_of(arguments), note="seccomp: off" if off else ""
        )

    return expectations_under


def expect_resource_limit(name: str, **arguments: Value) -> Expect:
    """A bound of `limits`."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        limits = policy.limits
        value: Value = {"pids": limits.pids, "files": limits.files, "memory": limits.memory or Fact("memory share")}[name]
        needs = {"pids": Need.BOUND_PROCESSES if limits.written else Need.NOT_ROOT, "memory": Need.GROUPS}.get(name)
        yield Expectation(want=Want.STOPPED, layer="limits", origin=limits.origin, arguments=(("most", value), *arguments_of(arguments)), needs=needs)

    return expectations_under


def expect_own_namespaces(*kinds: str) -> Expect:
    """Each namespace is the shell's own; the network's is the host's where the manifest says so."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        for kind in kinds:
            if kind == "net":
                told = (("host", Fact("namespace net")),)
                base = network_expectation(policy, told)
            else:
                origin = Origin("a namespace of its own")
                needs = Need.USERS if kind == "user" else None
                base = Expectation(want=Want.STOPPED, layer=f"{kind} namespace", origin=origin, arguments=(("host", Fact(f"namespace {kind}")),), needs=needs)
            yield replace(base, subject=kind)

    return expectations_under


# --- environment


def passed_variables(policy: Policy) -> Iterator[Expectation]:
    """Variables of the host that are let in arrive as they are."""
    asked = [rule for rule in policy.environment if rule.value is None and rule.origin.at]
    for rule in asked:
        yield Expectation(
            want=Want.WORKS, layer="clean environment", origin=rule.origin, subject=rule.name, arguments=(("wanted", Fact(f"variables {rule.name}")),)
        )
    usual = [rule for rule in policy.environment if rule.value is None and not rule.origin.at]
    if usual:
        names = " ".join(rule.name for rule in usual)
        yield Expectation(want=Want.WORKS, layer="clean environment", origin=usual[0].origin, arguments=(("wanted", Fact(f"variables {names}")),))


def fixed_variables(policy: Policy) -> Iterator[Expectation]:
    """Variables with a fixed value have it, whatever the host's is."""
    rules = [rule for rule in policy.environment if rule.value is not None]
    if rules:
        pairs: tuple[Value, ...] = tuple((rule.name, rule.value or "") for rule in rules)
        yield Expectation(want=Want.STOPPED, layer="clean environment", origin=rules[0].origin, arguments=(("pairs", pairs),))


def absent_variables(names: Iterable[str]) -> Expect:
    """Variables that are not on the list do not arrive; those that the manifest lists are open."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        listed = {rule.name: rule for rule in policy.environment}
        kept = tuple(name for name in names if name not in listed)
        if kept:
            origin = Origin("every variable that is not listed stays outside")
            yield Expectation(want=Want.STOPPED, layer="clean environment", origin=origin, arguments=(("names", kept),))
        for name in names:
            if name in listed and listed[name].value is None:
                yield Expectation(
                    want=Want.OPEN, layer="", origin=listed[name].origin, subject=name, arguments=(("names", (name,)),), note="the manifest lists it"
                )

    return expectations_under


def unlisted_secrets(policy: Policy) -> Iterator[Expectation]:
    """No variable has a name like a secret's, but those that are listed."""
    names = tuple(rule.name for rule in policy.environment)
    origin = Origin("every variable that is not listed stays outside")
    yield Expectation(want=Want.STOPPED, layer="clean environment", origin=origin, arguments=(("passed", names),))


def listed_variables(policy: Policy) -> Iterator[Expectation]:
    """Every variable is a rule's."""
    names = tuple(rule.name for rule in policy.environment)
    origin = Origin("every variable that is not listed stays outside")
    yield Expectation(want=Want.STOPPED, layer="clean environment", origin=origin, arguments=(("listed", names),))


def expect_injection_denied(filter_name: str) -> Expect:
    """With a shared terminal the filter keeps commands from typing; without a filter there is no shared terminal."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        if is_refused_by_filter(policy, filter_name):
            yield Expectation(want=Want.STOPPED, layer="seccomp", origin=policy.seccomp_origin)
        elif policy.seccomp is Seccomp.OFF and filter_name == "TIOCSTI":
            # Only the controlling terminal takes it, but from real root (tty_ioctl(4)).
            yield Expectation(want=Want.STOPPED, layer="a session of its own", origin=policy.seccomp_origin)
        else:
            off = policy.seccomp is Seccomp.OFF
            note = "seccomp: off" if off else "the manifest lets it through"
            yield Expectation(want=Want.OPEN, layer="", origin=policy.seccomp_origin, note=note)

    return expectations_under


def shared_terminal(reason: str, **arguments: Value) -> Expect:
    """What comes with a terminal that is shared with the host, and the second layer holds; with `seccomp: off` none is."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        own = policy.seccomp is Seccomp.OFF
        yield Expectation(
            want=Want.STOPPED,
            layer="a session of its own" if own else "landlock",
            origin=policy.seccomp_origin if own else Origin(reason),
            arguments=arguments_of(arguments),
            needs=None if own else Need.SCOPES,
        )

    return expectations_under
