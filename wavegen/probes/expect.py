"""What a policy says about a probe: one function per kind of rule. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from wavegen import reach
from wavegen.backends import script
from wavegen.defaults import GIT_FILES, WORKTREE_FILES
from wavegen.domains import lets_through
from wavegen.manifest import Fallback, NetworkMode, Seccomp
from wavegen.paths import is_device
from wavegen.policy import Access, Anchor, DomainRule, HostPath, Origin, PathRule, Policy
from wavegen.probes import Expectation, Fact, Inodes, Need, Value, Want
from wavegen.seccomp import Action

Expect = Callable[[Policy], Iterable[Expectation]]
Arguments = dict[str, Value]

MOUNTS, HOME, NO_FENCE = "mounts", "private home", "no fence is asked for"


def home(path: str) -> HostPath:
    """A path of the home."""
    return HostPath(Anchor.HOME, path)


def project(path: str = "") -> HostPath:
    """A path of the project."""
    return HostPath(Anchor.PROJECT, path)


def host(path: str) -> HostPath:
    """A path of the host."""
    return HostPath(Anchor.ROOT, path.removeprefix("/"))


def governing(policy: Policy, path: HostPath) -> PathRule | None:
    """The rule that decides about a path, as far as the anchors tell."""
    return reach.governing(reach.by_anchor(policy.paths), reach.anchored(path))


def _arguments(arguments: Arguments) -> tuple[tuple[str, Value], ...]:
    return tuple(arguments.items())


def stopped(layer: str, reason: str, **arguments: Value) -> Expect:
    """Every fence stops it."""

    def expect(_: Policy) -> Iterator[Expectation]:
        yield Expectation(want=Want.STOPPED, layer=layer, origin=Origin(reason), arguments=_arguments(arguments))

    return expect


def works_in_project(reason: str, **arguments: Value) -> Expect:
    """What needs a project that can be written."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        rule = governing(policy, project())
        if rule and rule.access is Access.WRITE:
            yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=Origin(reason), arguments=_arguments(arguments))

    return expect


def git_works(**arguments: Value) -> Expect:
    """git can commit, unless the manifest hides or pins something of the repository."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        git, rule = project(".git"), governing(policy, project())
        bound = any(r.origin.at and r.access in (Access.HIDE, Access.READ) and (git.holds(r.path) or r.path.holds(git)) for r in policy.paths)
        if rule and rule.access is Access.WRITE and not bound:
            yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=Origin("an agent works with git"), arguments=_arguments(arguments))

    return expect


def scratch(*places: HostPath) -> Expect:
    """Scratch directories can be used, unless the manifest says something else about them."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        rules = {place: rule for place in places if (rule := governing(policy, place)) and rule.access in (Access.SCRATCH, Access.WRITE)}
        if rules:
            origin = next(iter(rules.values())).origin
            told = tuple(Fact(f"scratch {place}") for place in rules)
            yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=origin, arguments=(("paths", told),))

    return expect


def _granted_at(policy: Policy, place: HostPath) -> PathRule | None:
    """The manifest's rule that shows the place, or something below it."""
    for rule in policy.paths:
        if rule.origin.at and rule.access in (Access.READ, Access.WRITE) and (rule.path.holds(place) or place.holds(rule.path)):
            return rule
    return None


def _left_at(policy: Policy, place: HostPath) -> PathRule | None:
    """The rule about the place itself by which a back end holds less than it should."""
    return next((rule for rule in policy.paths if rule.weaker and rule.path == place), None)


def private(place: HostPath, layer: str, reason: str, **arguments: Value) -> Expect:
    """Kept apart, unless the manifest grants something where the host shares it."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        rule = _granted_at(policy, place)
        if rule:
            note = "the manifest grants it"
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, arguments=_arguments(arguments), note=note)
        else:
            yield Expectation(want=Want.STOPPED, layer=layer, origin=Origin(reason), arguments=_arguments(arguments))

    return expect


def unless_granted(layer: str, reason: str, *places: HostPath, fact: str = "", writing: bool = False) -> Expect:
    """Each out of reach, unless the manifest grants it; `fact`: what is told in its place, by the fact's name and the path.

    `writing`: a grant for reading leaves it out of reach.
    """

    def expect(policy: Policy) -> Iterator[Expectation]:
        found = {place: rule for place in places if (rule := _granted_at(policy, place) or _left_at(policy, place))}
        rules = {place: rule for place, rule in found.items() if not (writing and rule.access is Access.READ)}
        told = {place: Fact(f"{fact} {place}") if fact else place for place in places}
        kept = tuple(told[place] for place in places if place not in rules)
        if kept:
            yield Expectation(want=Want.STOPPED, layer=layer, origin=Origin(reason), arguments=(("paths", kept),))
        for place, rule in rules.items():
            note = rule.weaker or "the manifest grants it"
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(place), arguments=(("paths", (told[place],)),), note=note)

    return expect


def any_socket(**arguments: Value) -> Expect:
    """No socket answers, unless the manifest grants one, or the host's network and with it sockets that are shown."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        shared = [found for place in ("/tmp", "/var/tmp", "/dev/shm", "/run") if (found := _granted_at(policy, host(place)))]
        rule = next((rule for rule in (*(rule for rule in policy.paths if rule.socket), *shared)), None)
        if rule or policy.network.mode is NetworkMode.HOST:
            origin = rule.origin if rule else policy.network.origin
            note = "the manifest grants sockets" if rule else "network: host"
            # Connecting to what may be reached would wake services.
            yield Expectation(want=Want.OPEN, layer="", origin=origin, note=note, tried=False)
        else:
            origin = Origin("a read-only mount does not stop connect(2)")
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=origin, arguments=_arguments(arguments))

    return expect


def works(layer: str, reason: str, **arguments: Value) -> Expect:
    """Every fence lets it through."""

    def expect(_: Policy) -> Iterator[Expectation]:
        yield Expectation(want=Want.WORKS, layer=layer, origin=Origin(reason), arguments=_arguments(arguments))

    return expect


def open_by(reason: str, **arguments: Value) -> Expect:
    """No fence holds it, and says so."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        yield Expectation(want=Want.OPEN, layer="", origin=policy.origin, arguments=_arguments(arguments), note=reason)

    return expect


# --- paths


def unseen(*paths: HostPath, inodes: bool = True, tried: bool = True) -> Expect:
    """What the host has there is not there inside, unless the manifest grants it; what defaults show has no meaning here.

    `tried`: whether what is granted is tried all the same.
    """

    def expect(policy: Policy) -> Iterator[Expectation]:
        kept: list[HostPath] = []
        first: PathRule | None = None
        for path in paths:
            rule = governing(policy, path)
            if rule is None:
                continue
            value: Value = Inodes((path,)) if inodes else (path,)
            if rule.access in (Access.HIDE, Access.SCRATCH) or rule.source is not None:
                kept.append(path)
                first = first or rule
            elif rule.origin.at or rule.weaker:
                note = rule.weaker or "the manifest grants it"
                told = (("paths", value),)
                # What the kernel shows is the same whoever mounts it, and its inodes may be others.
                asked = tried and not rule.weaker
                yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(path), arguments=told, note=note, tried=asked)
        if first:
            layer = HOME if first.path.anchor is Anchor.HOME and first.access is not Access.HIDE else MOUNTS
            every: Value = Inodes(tuple(kept)) if inodes else tuple(kept)
            yield Expectation(want=Want.STOPPED, layer=layer, origin=first.origin, arguments=(("paths", every),))

    return expect


def hidden_by_default(*prefixes: str, inodes: bool = True) -> Expect:
    """The masks over paths of the system below these: each is a rule of its own."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        rules = [rule for rule in policy.paths if rule.access is Access.HIDE and rule.path.anchor is Anchor.ROOT and not rule.origin.at]
        kept = [rule for rule in rules if str(rule.path).startswith(prefixes)]
        if kept:
            paths = tuple(rule.path for rule in kept)
            value: Value = Inodes(paths) if inodes else paths
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=kept[0].origin, arguments=(("paths", value),))

    return expect


def _shown(policy: Policy) -> list[PathRule]:
    """What is shown of the host without the manifest's asking, as far as that does not hide it."""
    shown = [r for r in policy.paths if r.access is Access.READ and r.path.anchor is Anchor.ROOT and not r.origin.at and not r.source]
    return [rule for rule in shown if governing(policy, rule.path) is rule]


def shown_by_default(policy: Policy) -> Iterator[Expectation]:
    """What the defaults show of the host is there: programs would not run without it."""
    rules = [rule for rule in _shown(policy) if not rule.weaker]
    if rules:
        paths = tuple(rule.path for rule in rules)
        yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=rules[0].origin, arguments=(("paths", Inodes(paths)),))


def read_only_by_default(policy: Policy) -> Iterator[Expectation]:
    """What the defaults show of the host is mounted read-only, whoever may write it outside."""
    rules = _shown(policy)
    if rules:
        yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rules[0].origin, arguments=(("paths", tuple(rule.path for rule in rules)),))


def unwritable(*paths: HostPath, flags: bool = False) -> Expect:
    """Cannot be written: read-only, hidden or not there. Where the project or the manifest makes it writable, it is open.

    `flags`: by its mount; otherwise also where the file's own mode is what keeps it.
    """

    def expect(policy: Policy) -> Iterator[Expectation]:
        kept: list[HostPath] = []
        first: PathRule | None = None
        for path in paths:
            rule = governing(policy, path)
            if rule is None or rule.access is Access.SCRATCH:
                continue
            if rule.access is Access.WRITE and (flags or not rule.weaker):
                note = rule.weaker or ("the project is writable" if rule.path == project() else "the manifest grants it")
                yield Expectation(
                    want=Want.OPEN,
                    layer="",
                    origin=rule.origin,
                    subject=str(path) if len(paths) > 1 else "",
                    arguments=(("paths", (path,)),),
                    note=note,
                )
            else:
                kept.append(path)
                first = first or rule
        if first:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=first.origin, arguments=(("paths", tuple(kept)),))

    return expect


def project_directory() -> Expect:
    """What can be made in the project, and the host may run later."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        rule = governing(policy, project())
        if rule is None:
            return
        told = (("directory", project()),)
        if rule.access is Access.WRITE:
            note = "the project is writable; wavegen audit names it"
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, arguments=told, note=note)
        else:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rule.origin, arguments=told)

    return expect


def project_files(*paths: str, absent: bool = False) -> Expect:
    """Files of the project that the host later runs: held where a rule is about them, else open as the project is.

    `absent`: they are not there, and a guard holds what is there alone.
    """

    def expect(policy: Policy) -> Iterator[Expectation]:
        held: list[HostPath] = []
        loose: list[HostPath] = []
        first: PathRule | None = None
        for path in map(project, paths):
            rule = governing(policy, path)
            if rule and (guarded(rule, path) if rule.access is Access.WRITE else not (absent and rule.guarded)):
                held.append(path)
                first = first or rule
            else:
                loose.append(path)
        if first:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=first.origin, arguments=(("paths", tuple(held)),))
        if loose:
            rule = governing(policy, project())
            told = (("paths", tuple(loose)),)
            origin = rule.origin if rule else policy.origin
            note = "no placeholder is made on the host; wavegen audit names it" if absent else "the project is writable; wavegen audit names it"
            yield Expectation(want=Want.OPEN, layer="", origin=origin, subject="others" if held else "", arguments=told, note=note)

    return expect


def held_in_place(*absent: str) -> Expect:
    """Whatever is guarded stays where it is, as far as it is there."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        rules = [rule for rule in policy.paths if rule.guarded and rule.path.tail not in absent]
        writable = governing(policy, project())
        if rules and writable and writable.access is Access.WRITE:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rules[0].origin, arguments=(("paths", tuple(rule.path for rule in rules)),))

    return expect


def audited(policy: Policy) -> Iterator[Expectation]:
    """What can be left in a project that may be written is named."""
    rule = governing(policy, project())
    if rule and rule.access is Access.WRITE:
        yield Expectation(want=Want.STOPPED, layer="audit", origin=Origin("mounts cannot stop what is not there yet"))


def guarded(rule: PathRule, path: HostPath) -> bool:
    """Whether a place where one may write is held all the same, as git on the host runs or follows it.

    `rule`: what governs it. Repositories below the project are held like its own, where nothing else is said.
    """
    if rule.origin.at or rule.path.anchor is not Anchor.PROJECT or rule.pinned:
        return False
    parts = path.parts()
    if ".git" not in parts:
        return False
    below = parts[parts.index(".git") + 1 :]
    match below:
        case ():
            return True
        case ("worktrees", _, *rest):
            return "/".join(rest) in WORKTREE_FILES
        case ("modules", _, *rest):
            below = tuple(rest)
        case _:
            pass
    return any(below[: len(name.split("/"))] == tuple(name.split("/")) for name in GIT_FILES)


def pinned(**more: Value) -> Expect:
    """The fence's own files in the project."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        rules = [rule for rule in policy.paths if rule.pinned]
        if rules:
            paths = tuple(rule.path for rule in rules)
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rules[0].origin, arguments=_arguments({"paths": paths, **more}))

    return expect


def private_home(*paths: str) -> Expect:
    """What is written in the home stays in the private one."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        inner: list[tuple[HostPath, PathRule]] = []
        outer: list[tuple[HostPath, PathRule]] = []
        for path in paths:
            place = home(path)
            rule = governing(policy, place)
            if rule is None:
                continue
            (outer if rule.access is Access.WRITE and rule.source is None else inner).append((place, rule))
        if inner:
            # A file that is granted for reading cannot be written at all.
            yield Expectation(want=Want.STOPPED, layer=HOME, origin=inner[0][1].origin, arguments=(("paths", tuple(place for place, _ in inner)),))
        for place, rule in outer:
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(place), arguments=(("paths", (place,)),), note="the manifest grants it")

    return expect


def granted(access: Access, want: Want, key: str = "paths", *, anchors: tuple[Anchor, ...]) -> Expect:
    """One case for each path that the manifest grants or hides."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        for rule in policy.paths:
            if rule.origin.at and rule.path.tail and rule.access is access and rule.path.anchor in anchors and not rule.pinned and not rule.socket:
                value: Value = Inodes((rule.path,)) if key == "inodes" else (rule.path,)
                told = (("paths" if key == "inodes" else key, value),)
                # The kernel's driver is asked, not the file system (mount(2), MS_RDONLY).
                loose = want is Want.STOPPED and access is Access.READ and is_device(rule.path)
                yield Expectation(
                    want=Want.OPEN if loose else want,
                    layer="" if loose else MOUNTS,
                    origin=rule.origin,
                    subject=str(rule.path),
                    arguments=told,
                    note="a mount for reading does not keep a device from being written" if loose else "",
                )

    return expect


def scratch_bounds(policy: Policy) -> Iterator[Expectation]:
    """Each scratch directory has the bound of `limits.tmp`."""
    rules = [rule for rule in policy.paths if rule.access is Access.SCRATCH and rule.source is None]
    pairs: tuple[Value, ...] = tuple((rule.path, policy.limits.scratch) for rule in rules)
    yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=policy.limits.origin, arguments=(("paths", pairs),))


# --- the kernel


def capabilities(**arguments: Value) -> Expect:
    """The kernel asks for a capability, and none is left."""
    return stopped("capabilities", "real root would keep its capabilities and could undo every mount", **arguments)


def namespace(kind: str, **arguments: Value) -> Expect:
    """What a namespace of its own keeps apart."""
    return stopped(f"{kind} namespace", f"a {kind} namespace of its own", **arguments)


def nested(**arguments: Value) -> Expect:
    """No namespaces can be made inside, unless the manifest asks for them."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        if policy.nested:
            yield Expectation(want=Want.OPEN, layer="", origin=policy.origin, arguments=_arguments(arguments), note="nested: true")
        else:
            reason = Origin("no namespaces inside: each would open more of the kernel")
            yield Expectation(want=Want.STOPPED, layer="user namespace", origin=reason, arguments=_arguments(arguments))

    return expect


FAMILIES = {"packet": 17, "vsock": 40, "alg": 38, "bluetooth": 31, "xdp": 44, "tipc": 30, "rds": 21, "can": 29, "kcm": 41}
"""Socket families by the names that probes give them (include/linux/socket.h)."""
_ARGUMENTS = {
    "TIOCSTI": ("ioctl", (0, 0x5412)),
    "TIOCLINUX": ("ioctl", (0, 0x541C)),
    "personality": ("personality", (0x40000,)),
    "raw": ("socket", (2, 3, 1)),
    **{name: ("socket", (number, 2, 0)) for name, number in FAMILIES.items()},
}


def refused(policy: Policy, name: str) -> bool:
    """Whether the shell's system call filter refuses a call, an ioctl, a socket family, or foreign calls, by a probe's name for it."""
    found = script.filter_of_shell(policy)
    if found is None or name == "foreign":
        return found is not None
    call, arguments = _ARGUMENTS.get(name, (name, ()))
    return found.decide(call, (*arguments, *(0,) * (6 - len(arguments)))) is not Action.ALLOW


def filtered(*names: str, key: str = "", **arguments: Value) -> Expect:
    """The system call filter refuses it, unless the manifest lets it through; `key` is the argument that takes the names."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        held, loose = tuple(name for name in names if refused(policy, name)), tuple(name for name in names if not refused(policy, name))
        if held:
            told = _arguments({**({key: held} if key else {}), **arguments})
            yield Expectation(want=Want.STOPPED, layer="seccomp", origin=policy.seccomp_origin, arguments=told)
        opened = tuple(name for name in loose if name in policy.seccomp_allow)
        rest = tuple(name for name in loose if name not in opened)
        off = policy.seccomp is Seccomp.OFF
        for names_, why, origin, subject in (
            (rest, "seccomp: off" if off else "nested: true", policy.seccomp_origin if off else policy.origin, "others"),
            (opened, "seccomp: off" if off else "the manifest lets it through", policy.seccomp_origin if off else policy.seccomp_allow_origin, "allowed"),
        ):
            if names_:
                told = _arguments({**({key: names_} if key else {}), **arguments})
                yield Expectation(want=Want.OPEN, layer="", origin=origin, subject=subject if held or (rest and opened) else "", arguments=told, note=why)

    return expect


def any_filter(**arguments: Value) -> Expect:
    """There is a system call filter at all."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        off = policy.seccomp is Seccomp.OFF
        want = Want.OPEN if off else Want.STOPPED
        yield Expectation(
            want=want, layer="" if off else "seccomp", origin=policy.seccomp_origin, arguments=_arguments(arguments), note="seccomp: off" if off else ""
        )

    return expect


def bounded(name: str, **arguments: Value) -> Expect:
    """A bound of `limits`."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        limits = policy.limits
        value: Value = {"pids": limits.pids, "files": limits.files, "memory": limits.memory or Fact("memory share")}[name]
        needs = {"pids": Need.BOUND_PROCESSES if limits.written else Need.NOT_ROOT, "memory": Need.GROUPS}.get(name)
        yield Expectation(want=Want.STOPPED, layer="limits", origin=limits.origin, arguments=(("most", value), *_arguments(arguments)), needs=needs)

    return expect


# --- network


def network(**arguments: Value) -> Expect:
    """Out of reach, unless the shell has the host's network."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        yield _network(policy, _arguments(arguments))

    return expect


def abstract_sockets(**arguments: Value) -> Expect:
    """Out of reach in a network namespace of one's own, and in the host's by the second layer."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        if policy.network.mode is NetworkMode.HOST:
            yield Expectation(want=Want.STOPPED, layer="landlock", origin=policy.network.origin, arguments=_arguments(arguments), needs=Need.SCOPES)
        else:
            yield _network(policy, _arguments(arguments))

    return expect


def _network(policy: Policy, arguments: tuple[tuple[str, Value], ...]) -> Expectation:
    if policy.network.mode is NetworkMode.HOST:
        return Expectation(want=Want.OPEN, layer="", origin=policy.network.origin, arguments=arguments, note="network: host")
    return Expectation(want=Want.STOPPED, layer="network namespace", origin=policy.network.origin, arguments=arguments)


# --- the filter of names

NOBODY = "wavegen-verify.example"
"""A name that no server has (RFC 2606)."""
_EVERY_WAY = ("direct", "connect", "http", "socks")
_TUNNELS = ("direct", "connect", "socks")
_PLACES = 3
_CANARY = ("canary", Fact("tcp"))


def _filter(policy: Policy, want: Want, *arguments: tuple[str, Value], origin: Origin | None = None, note: str = "") -> Expectation:
    return Expectation(want=want, layer="egress", origin=origin or policy.network.origin, arguments=(*arguments, _CANARY), note=note)


def _asked_for(policy: Policy, *places: tuple[str, int], ways: tuple[str, ...] = _EVERY_WAY) -> Iterator[Expectation]:
    """Places that the list does not let through."""
    kept = tuple(place for place in dict.fromkeys(places) if not lets_through(policy.network, *place))
    if policy.network.mode in script.PROXIED and kept:
        yield _filter(policy, Want.STOPPED, ("places", kept), ("ways", ways))


def unlisted(policy: Policy) -> Iterator[Expectation]:
    """A name that is on no list is not reached, whichever way it is asked for."""
    yield from _asked_for(policy, (NOBODY, 80), (NOBODY, 443), ("192.0.2.1", 443))


def refused_names(policy: Policy) -> Iterator[Expectation]:
    """A name that is denied is not reached."""
    yield from _asked_for(policy, *((rule.host, _port(rule)) for rule in policy.network.denied[:_PLACES] if not rule.wildcard))


def look_alikes(policy: Policy) -> Iterator[Expectation]:
    """Names are compared by whole labels, and to their ends."""
    names = [rule.host for rule in policy.network.domains if not rule.host[0].isdigit() and rule.host[0] != "["][:_PLACES]
    yield from _asked_for(policy, *((f"evil{name}", 80) for name in names), *((f"{name}.{NOBODY}", 80) for name in names), *((name, 80) for name in names))


def other_ports(policy: Policy) -> Iterator[Expectation]:
    """What is listed is let through on its own ports alone."""
    yield from _asked_for(policy, *((rule.host, 65000) for rule in policy.network.domains[:_PLACES] if not rule.wildcard))


def metadata(policy: Policy) -> Iterator[Expectation]:
    """The cloud's metadata are not reached through the way out either."""
    yield from _asked_for(policy, ("169.254.169.254", 80), ("metadata.google.internal", 80), ("168.63.129.16", 80))


def host_loopback(policy: Policy) -> Iterator[Expectation]:
    """The host's loopback is not reached through the way out, however it is called."""
    spellings = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "0", "[::1]", "[::ffff:127.0.0.1]")
    if policy.network.mode in script.PROXIED:
        yield _filter(policy, Want.STOPPED, ("spellings", spellings), ("ways", ("connect", "http", "socks")))


def listed(policy: Policy) -> Iterator[Expectation]:
    """What is listed is reached by every way: by its name alone, by the proxy, by SOCKS5."""
    places = stand_ins(policy)
    if policy.network.mode is NetworkMode.OPEN:
        places = ((NOBODY, 80),)
    if places and policy.network.mode in script.PROXIED:
        yield _filter(policy, Want.WORKS, ("places", places), ("ways", _TUNNELS))


def another_server(policy: Policy) -> Iterator[Expectation]:
    """On 443 a host is not asked for another."""
    places = ((NOBODY, 443),) if policy.network.mode is NetworkMode.OPEN else tuple((host, port) for host, port in stand_ins(policy) if port == _TLS_PORT)
    loose = {rule.host for rule in policy.network.domains if not rule.tls}
    kept = tuple(place for place in places if place[0] not in loose)
    if kept and policy.network.mode in script.PROXIED:
        yield _filter(policy, Want.STOPPED, ("places", kept), ("asked", f"other.{NOBODY}"), ("ways", _TUNNELS))


def data_in_names(policy: Policy) -> Iterator[Expectation]:
    """Whoever answers for a domain is told every name below it."""
    wildcards = [rule for rule in policy.network.domains if rule.wildcard]
    if policy.network.mode is NetworkMode.OPEN or (policy.network.mode is NetworkMode.FILTERED and wildcards):
        origin = wildcards[0].origin if wildcards else policy.network.origin
        yield Expectation(want=Want.OPEN, layer="", origin=origin, note=f"{wildcards[0] if wildcards else 'network: open'} lets any name through", tried=False)


_TLS_PORT = 443


def _port(rule: DomainRule) -> int:
    return int(rule.port) if rule.port not in ("", "*") else 80


def stand_ins(policy: Policy) -> tuple[tuple[str, int], ...]:
    """Hosts and ports that are let through, for each of the first rules one, and one on 443."""
    rules = [rule for rule in policy.network.domains if not rule.wildcard and not rule.host.startswith(("127.", "localhost"))]
    found = [(rule.host, _port(rule)) for rule in rules[:_PLACES]]
    found += [(rule.host, _TLS_PORT) for rule in rules if rule.port in ("", "*", str(_TLS_PORT)) and not rule.host[0].isdigit()][:1]
    return tuple(place for place in dict.fromkeys(found) if lets_through(policy.network, *place))


def connected_elsewhere(policy: Policy) -> tuple[tuple[str, int], ...]:
    """Every host and port that an attempt names: the launcher connects to the planted server in its place."""
    found: list[tuple[str, int]] = []
    for expect in (unlisted, refused_names, look_alikes, other_ports, metadata, listed, another_server):
        for expectation in expect(policy):
            found += [place for name, places in expectation.arguments if name == "places" and isinstance(places, tuple) for place in places]  # type: ignore[misc]
    return tuple(dict.fromkeys(found))


def namespaces(*kinds: str) -> Expect:
    """Each namespace is the shell's own; the network's is the host's where the manifest says so."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        for kind in kinds:
            if kind == "net":
                told = (("host", Fact("namespace net")),)
                base = _network(policy, told)
            else:
                origin = Origin("a namespace of its own")
                needs = Need.USERS if kind == "user" else None
                base = Expectation(want=Want.STOPPED, layer=f"{kind} namespace", origin=origin, arguments=(("host", Fact(f"namespace {kind}")),), needs=needs)
            yield replace(base, subject=kind)

    return expect


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

    def expect(policy: Policy) -> Iterator[Expectation]:
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

    return expect


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


# --- the launcher


def launcher(reason: str, **arguments: Value) -> Expect:
    """The wrapper refuses."""
    return stopped("launcher", reason, **arguments)


def fails_closed(policy: Policy) -> Iterator[Expectation]:
    """Without a fence nothing is run, unless `fallback: warn` asks for it."""
    if policy.fallback is Fallback.WARN:
        yield Expectation(want=Want.OPEN, layer="", origin=policy.origin, note="fallback: warn")
    else:
        yield Expectation(want=Want.STOPPED, layer="launcher", origin=Origin("never a command without a fence"))


def terminal(filter_name: str) -> Expect:
    """With a shared terminal the filter keeps commands from typing; without a filter there is no shared terminal."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        if refused(policy, filter_name):
            yield Expectation(want=Want.STOPPED, layer="seccomp", origin=policy.seccomp_origin)
        elif policy.seccomp is Seccomp.OFF and filter_name == "TIOCSTI":
            # Only the controlling terminal takes it, but from real root (tty_ioctl(4)).
            yield Expectation(want=Want.STOPPED, layer="a session of its own", origin=policy.seccomp_origin)
        else:
            off = policy.seccomp is Seccomp.OFF
            note = "seccomp: off" if off else "the manifest lets it through"
            yield Expectation(want=Want.OPEN, layer="", origin=policy.seccomp_origin, note=note)

    return expect


def people(policy: Policy) -> Iterator[Expectation]:
    """People work in it; with a session of its own there is neither job control nor Ctrl-C."""
    if policy.seccomp is Seccomp.OFF:
        note = "seccomp: off shares no terminal"
        yield Expectation(want=Want.OPEN, layer="", origin=policy.seccomp_origin, note=note, tried=False)
    else:
        yield Expectation(want=Want.WORKS, layer="launcher", origin=Origin("people work in it"))


def shared_terminal(reason: str, **arguments: Value) -> Expect:
    """What comes with a terminal that is shared with the host, and the second layer holds; with `seccomp: off` none is."""

    def expect(policy: Policy) -> Iterator[Expectation]:
        own = policy.seccomp is Seccomp.OFF
        yield Expectation(
            want=Want.STOPPED,
            layer="a session of its own" if own else "landlock",
            origin=policy.seccomp_origin if own else Origin(reason),
            arguments=_arguments(arguments),
            needs=None if own else Need.SCOPES,
        )

    return expect


def sources(policy: Policy) -> Iterator[Expectation]:
    """One case for each path of the project that the manifest grants: what if a command puts a link there?"""
    for rule in _granted_in_project(policy):
        yield Expectation(want=Want.STOPPED, layer="launcher", origin=rule.origin, subject=str(rule.path), arguments=(("path", rule.path),))


def races(policy: Policy) -> Iterator[Expectation]:
    """The same while a shell starts: what is looked at, and what is mounted, are two steps."""
    for rule in _granted_in_project(policy):
        note = "of two shells at once, one may exchange it while the other starts"
        yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(rule.path), note=note, tried=False)


def _granted_in_project(policy: Policy) -> Iterator[PathRule]:
    for rule in policy.paths:
        if rule.origin.at and rule.path.anchor is Anchor.PROJECT and rule.path.tail and rule.access in (Access.READ, Access.WRITE) and not rule.pinned:
            yield rule
