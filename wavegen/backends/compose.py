"""Containers where nothing but files is shared with the host, as with Docker Desktop: compose.yaml, and the script that starts it.

A service for each fenced shell; beside one whose network is filtered another, which is all of its network. What is known only on a machine
(who, where, which guarded places exist) is added by the script, without which compose.yaml starts nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wavegen import defaults
from wavegen.backends import File, header
from wavegen.backends._templates import fill
from wavegen.backends.agents import command
from wavegen.backends.bwrap import network_options
from wavegen.backends.image import DIRECTORY
from wavegen.backends.script import PROXIED, RuleLine, filter_of_shell
from wavegen.images import slug
from wavegen.manifest import BackendName, NetworkMode
from wavegen.paths import is_device
from wavegen.policy import Access, Anchor, Effect, Gap, HostPath, Origin, PathRule, PersonaPolicy, Plan, Policy
from wavegen.quote import compose as yaml
from wavegen.quote import compose_pattern, printf_b

NAME = "compose"
SCRIPT = f"{DIRECTORY}/compose"
CHANNEL = "/run/wavegen/channel"
_ASKS = f"start it by {SCRIPT}"
_OWN = f"${{WAVEGEN_UID:?{_ASKS}}}"
_GROUP = "${WAVEGEN_GID:?}"
_PROJECT = "${WAVEGEN_PROJECT:?}"
_RUNTIME = f"{_PROJECT}/.wavegen/runtime"
_HARD = Origin("as in every container of ours")
# What docker's own settings would put into every container, a password with it.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")
_EGRESS_MEMORY = 512 * 1024**2
_EGRESS_PIDS = 256
_SHOWN = (Access.READ, Access.WRITE)
_ANCHORS = {Anchor.ROOT: "root", Anchor.HOME: "home", Anchor.PROJECT: "project"}


@dataclass(frozen=True, slots=True)
class Service:
    """A service of compose.yaml."""

    name: str
    about: str
    lines: tuple[RuleLine, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """What the script does for a service."""

    name: str
    lines: tuple[RuleLine, ...]


def fences(plan: Plan) -> tuple[Policy, ...]:
    """What has a service: the fenced shells, and personas where containers are what holds them."""
    personas = (persona.fence for persona in plan.personas) if plan.backend is BackendName.DOCKER else ()
    return tuple(fence for fence in (*plan.shells, *personas) if fence.fenced)


def render(plan: Plan) -> Iterator[File]:
    """compose.yaml, the script, and what that shows in the place of hidden files: an empty line, as of an empty file no diff can tell."""
    yield File(path=f"{DIRECTORY}/compose.yaml", text=compose_file(plan))
    yield File(path=SCRIPT, text=script(plan), executable=True)
    yield File(path=f"{DIRECTORY}/empty", text="\n", header=False)


def compose_file(plan: Plan) -> str:
    """The text of compose.yaml: for docker-compose 1.29 as for compose v2, so with keys that both know."""
    found: list[Service] = []
    for fence in fences(plan):
        found.append(Service(fence.name, _about(plan, fence), tuple(_service(plan, fence))))
        if fence.network.mode in PROXIED:
            found.append(Service(f"egress-{fence.name}", f"All of the network of {fence.name}.", tuple(_egress(plan, fence))))
    volumes = tuple(_volume(fence) for fence in fences(plan) if fence.network.mode in PROXIED)
    return fill("compose.yaml.j2", header=header(plan), script=SCRIPT, services=found, volumes=volumes)


def script(plan: Plan) -> str:
    """The text of the script."""
    shells = fences(plan)
    limits = plan.shells[0].limits
    return fill(
        "compose.sh.j2",
        header=header(plan),
        script=SCRIPT,
        slug=slug(plan.name),
        manifest=plan.manifest,
        overlay=plan.overlay,
        image=plan.image,
        services=tuple(Places(fence.name, tuple(_places(fence))) for fence in shells),
        proxied=tuple(fence.name for fence in shells if fence.network.mode in PROXIED),
        upstream=any(fence.network.upstream for fence in shells),
        memory=str(limits.memory or ""),
        # What docker's and podman's `info` are asked.
        memory_of=("{{.MemTotal}}", "{{.Host.MemTotal}}"),
        processors_of=("{{.NCPU}}", "{{.Host.CPUs}}"),
        share=str(defaults.MEMORY_SHARE),
        cpus=f"{limits.cpus:.2f}" if limits.cpus else "",
        hundredths=str(round(limits.cpus * 100)) if limits.cpus else "",
        writable=tuple(_written(plan)),
    )


def _about(plan: Plan, fence: Policy) -> str:
    persona = plan.persona_of(fence)
    return f"The persona {persona.name}." if persona else f"The shell {fence.name}."


# --- services


def _line(text: str, origin: Origin) -> RuleLine:
    return RuleLine(text, origin)


def _hardened(plan: Plan, fence: Policy) -> Iterator[RuleLine]:
    """What holds in every container, the agent's and the one that is its network."""
    found = filter_of_shell(fence)
    yield _line(f"image: {yaml(plan.image.reference)}", plan.image.origin)
    yield _line("pull_policy: never", Origin("what is started is what was built, or fetched, by hand"))
    yield _line("init: true", Origin("signals arrive, and what has ended is waited for"))
    yield _line("read_only: true", _HARD)
    yield _line(f"user: {compose_pattern(f'{_OWN}:{_GROUP}')}", Origin("whose the project is; never root"))
    yield _line("cap_drop: [ALL]", _HARD)
    yield _line("security_opt:", fence.seccomp_origin)
    yield _line('  - "no-new-privileges:true"', Origin("no program gives more rights than it was started with"))
    loaded = f"{_PROJECT}/.wavegen/seccomp/{found.name}.json" if found else "unconfined"
    yield _line(f"  - {compose_pattern(f'seccomp={loaded}')}", fence.seccomp_origin)
    yield _line("ipc: private", Origin("no shared memory of other containers"))
    yield _line("hostname: localhost", Origin("a name that resolves everywhere"))
    yield _line("ulimits: {core: 0}", Origin("a core file would be a copy of secrets"))
    yield _line("healthcheck: {disable: true}", Origin("nothing of the image's own is run"))
    yield _line("stop_grace_period: 1s", Origin("an interactive shell does not end by being asked"))
    yield _line('restart: "no"', Origin("what has ended stays so"))


def _service(plan: Plan, fence: Policy) -> Iterator[RuleLine]:
    limits, network, persona = fence.limits, fence.network, plan.persona_of(fence)
    yield from _hardened(plan, fence)
    yield _line(f"network_mode: {yaml('host' if network.mode is NetworkMode.HOST else 'none')}", network.origin)
    yield from _started(fence, persona)
    yield _line(f"working_dir: {compose_pattern(_PROJECT)}", Origin("where it is outside, too"))
    yield _line("stdin_open: true", Origin("for those who type"))
    yield _line("tty: true", Origin("for those who type"))
    yield _line("logging: {driver: none}", Origin("what is printed is shown, and kept nowhere"))
    memory = str(limits.memory) if limits.memory else compose_pattern("${WAVEGEN_MEMORY:?}")
    yield _line(f"pids_limit: {limits.pids}", limits.origin)
    yield _line(f"mem_limit: {memory}", limits.origin)
    yield _line(f"memswap_limit: {memory}", Origin("no swap besides"))
    if limits.cpus:
        yield _line(f"cpus: {compose_pattern('${WAVEGEN_CPUS:?}')}", limits.origin)
    yield _line(f"shm_size: {limits.scratch}", limits.origin)
    if network.mode in PROXIED:
        yield _line("sysctls: {net.ipv4.ip_unprivileged_port_start: 0}", Origin("names are asked for at port 53"))
        yield _line(f"depends_on: [{yaml(f'egress-{fence.name}')}]", network.origin)
    yield _line("tmpfs:", limits.origin)
    for rule in fence.paths:
        if rule.access is Access.SCRATCH and rule.path.anchor is Anchor.ROOT and not rule.source and rule.path.tail != "dev/shm":
            yield _line(f"  - {yaml(f'/{rule.path.tail}:exec,size={limits.scratch},mode=1777')}", rule.origin)
    yield from _environment(fence)
    yield _line("volumes:", Origin("the script adds what is known only on a machine"))
    yield from (_line(f"  - {text}", origin) for text, origin in _mounts(fence))


def _started(fence: Policy, persona: PersonaPolicy | None) -> Iterator[RuleLine]:
    words = tuple(_agent(persona)) if persona else ()
    first = ("/bin/sh", f"{_RUNTIME}/awaited.sh", CHANNEL) if fence.network.mode in PROXIED else ("/bin/sh", "-c", 'exec "$$@"', "sh")
    yield _line(f"entrypoint: [{', '.join(map(compose_pattern, first))}", Origin("the first process inside; nothing of the image's own"))
    yield from (_line(f"  , {word}", persona.origin if persona else fence.origin) for word in words)
    yield _line("  ]", Origin("what is started follows"))
    yield _line(f"command: [{'' if words else yaml('bash')}]", Origin("where nothing else is asked for"))


def _agent(persona: PersonaPolicy) -> Iterator[str]:
    """The words of a persona's first program, quoted."""
    if not persona.agents:
        return
    found = command(persona, persona.agents[0])
    yield from (yaml("env"),) if found.variables else ()
    for name, _, value in (text.partition("=") for text in found.variables):
        rest = compose_pattern(f"{_PROJECT}/{value[2:].replace('$', '$$')}") if value.startswith("./") else yaml(value)
        yield yaml(f"{name}=")[:-1] + rest[1:]
    yield from map(yaml, found.words)


def _environment(fence: Policy) -> Iterator[RuleLine]:
    """Names alone: their values come from whoever starts it."""
    names = {rule.name for rule in fence.environment}
    yield _line("environment:", Origin("names alone have the value that they have outside"))
    home = next((rule.origin for rule in fence.paths if rule.path == HostPath(Anchor.HOME)), Origin("the real home is never there"))
    yield _line(f"  - {compose_pattern('HOME=${WAVEGEN_HOME:?}')}", home)
    for rule in fence.environment:
        if rule.value is not None:
            yield _line(f"  - {yaml(f'{rule.name}={rule.value}')}", rule.origin)
        elif rule.origin.at or rule.name not in defaults.OF_THE_SYSTEM:
            yield _line(f"  - {yaml(rule.name)}", rule.origin)
    yield from _no_proxies(names)


def _no_proxies(names: set[str]) -> Iterator[RuleLine]:
    for name in (*_PROXIES, *map(str.lower, _PROXIES)):
        if name not in names:
            yield _line(f"  - {yaml(f'{name}=')}", Origin("docker's settings may name one, with its password"))


def _bind(target: str, source: str = "", *, read_only: bool) -> str:
    where = compose_pattern(target)
    return f"{{type: bind, source: {compose_pattern(source) if source else where}, target: {where}{', read_only: true' if read_only else ''}}}"


def _mounts(fence: Policy) -> Iterator[tuple[str, Origin]]:
    for rule in fence.paths:
        if rule.path == HostPath(Anchor.PROJECT):
            yield _bind(_PROJECT, read_only=rule.access is Access.READ), rule.origin
        elif rule.pinned and rule.required:
            yield _bind(_inside(rule.path), read_only=True), rule.origin
        elif rule.source and rule.source.anchor is Anchor.RUNTIME:
            yield _bind(f"/{rule.path.tail}", f"{_RUNTIME}/{rule.source.tail}", read_only=True), rule.origin
    if fence.network.mode is NetworkMode.NONE:
        yield _bind("/etc/resolv.conf", f"{_RUNTIME}/resolv.conf", read_only=True), Origin("the host's names its network")
    if fence.network.mode in PROXIED:
        what = f"{{type: volume, source: {yaml(f'channel-{fence.name}')}, target: /run/wavegen, read_only: true}}"
        yield what, Origin("the first process hands its sockets out there; to connect needs no writing")


def _inside(path: HostPath) -> str:
    return f"{_PROJECT}/{path.tail.replace('$', '$$')}"


def _egress(plan: Plan, fence: Policy) -> Iterator[RuleLine]:
    yield from _hardened(plan, fence)
    program = ("python3", "-I", "-S", f"{_RUNTIME}/sidecar.py")
    yield _line(f"entrypoint: [{', '.join(map(compose_pattern, program))}]", Origin("nothing of the image's own"))
    yield _line("command:", fence.network.origin)
    words = (("--channel", CHANNEL), ("--shell", fence.name), ("--state", "/run/state"))
    for two in words:
        yield _line(f"  - {yaml(two[0])}", fence.network.origin)
        yield _line(f"  - {yaml(two[1])}", fence.network.origin)
    yield from (_line(f"  - {yaml(word)}", option.origin) for option in network_options(fence.network) for word in option.words)
    yield _line('logging: {driver: json-file, options: {max-size: 1m, max-file: "1"}}', Origin("its warnings, of a bounded size"))
    yield _line(f"pids_limit: {_EGRESS_PIDS}", Origin("one process for each container that it serves"))
    yield _line(f"mem_limit: {_EGRESS_MEMORY}", Origin("what it serves is a program's guess"))
    yield _line(f"memswap_limit: {_EGRESS_MEMORY}", Origin("no swap besides"))
    yield _line("environment:", Origin("nothing of the host's"))
    yield from _no_proxies(set())
    if fence.network.upstream:
        yield _line('  - "wg_upstream"', fence.network.upstream)
    yield _line("volumes:", Origin("the script adds where it writes what was asked for"))
    yield _line(f"  - {_bind(_RUNTIME, read_only=True)}", Origin("what it is made of"))
    yield _line(f"  - {{type: volume, source: {yaml(f'channel-{fence.name}')}, target: /run/wavegen}}", Origin("where it listens"))


def _volume(fence: Policy) -> Service:
    """In the memory of whoever runs the containers, and gone with them."""
    options = compose_pattern(f"size=1m,mode=0700,uid={_OWN},gid={_GROUP}")
    lines = (
        _line("driver: local", fence.network.origin),
        _line(f"driver_opts: {{type: tmpfs, device: tmpfs, o: {options}}}", Origin("nobody else gets in")),
    )
    return Service(f"channel-{fence.name}", "", lines)


# --- what the script does


def _places(fence: Policy) -> Iterator[RuleLine]:
    """Calls of the script's functions; places are an anchor and what printf %b makes the rest of."""
    home = next((rule.origin for rule in fence.paths if rule.path == HostPath(Anchor.HOME)), Origin("the real home is never there"))
    yield _line(f"begin {'kept' if fence.private_home else 'empty'} {fence.limits.scratch}", home)
    for rule in fence.paths:
        if rule.path.anchor not in _ANCHORS or not rule.path.tail:
            continue
        if rule.pinned:
            yield _call(f"pin {'required' if rule.required else 'optional'}", rule, asked=False)
        elif rule.access is Access.SCRATCH and rule.path.anchor is Anchor.HOME:
            yield _call("emptied", rule, asked=False)
        elif rule.origin.at and rule.access in _SHOWN and not is_device(rule.path):
            yield _call(f"grant {rule.access.value} {'required' if rule.required else 'optional'} {'socket' if rule.socket else 'none'}", rule)
    yield from (_call("deny", rule) for rule in fence.paths if rule.origin.at and rule.access is Access.HIDE)
    yield _line("kept_apart", Origin("what wavegen keeps holds the logins of other shells"))
    yield from (_call("keep" if rule.access is Access.WRITE else "guard", rule, asked=False) for rule in fence.paths if rule.guarded)


def _call(words: str, rule: PathRule, *, asked: bool = True) -> RuleLine:
    asker = f" {printf_b(str(rule.origin))}" if asked else ""
    return _line(f"{words}{asker} {_ANCHORS[rule.path.anchor]} {printf_b(rule.path.tail)}", rule.origin)


def _written(plan: Plan) -> Iterator[RuleLine]:
    """What any shell of the project may write: a link there may be an agent's, whichever shell it was in."""
    rules = {rule.path: rule for shell in plan.shells for rule in shell.paths if rule.access is Access.WRITE and rule.origin.at and rule.path.tail}
    for path, rule in rules.items():
        if path.anchor in _ANCHORS:
            yield _line(f"may_write {_ANCHORS[path.anchor]} {printf_b(path.tail)}", rule.origin)


# --- what it does not hold

_WITHOUT = Origin("containers of an engine that shares no sockets with the host")
# Few and short, as most do not use it: the README says more.
_ALWAYS = (
    (
        Effect.WEAKER,
        "with compose git settings and hooks are held in the project's own .git alone (not what core.hooksPath or a linked hook leads to), not against commands of another shell while one starts, and nothing is audited",
        "look at wavegen audit afterwards; on Linux use the shells of .wavegen/bin",
    ),
    (
        Effect.WEAKER,
        "with compose the engine's daemon is trusted, no second layer (Landlock) holds, and where the script itself is killed containers go on",
        f"end them with {SCRIPT} down; on Linux use the shells of .wavegen/bin",
    ),
    (
        Effect.WEAKER,
        "with compose what judges the network is Python of the image that it guards, and nothing verifies from inside",
        "pin the image and what it installs; on Linux use the shells of .wavegen/bin",
    ),
    (
        Effect.WEAKER,
        "with compose on a file system that ignores case (macOS's own) another spelling of a guarded name may lead round its mount",
        "keep the project on a volume that tells case apart",
    ),
    (
        Effect.STRICTER,
        "with compose only what the image holds is there of a system, and a place of the project's that is guarded must not be a symlink",
        "list packages and build the image; put the file itself there",
    ),
)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What compose does not hold as the policy says."""
    for fence in fences(plan):
        if plan.persona_of(fence):
            continue  # what it shares with its shell is said there
        yield from (_gap(fence, effect, what, remedy, _WITHOUT) for effect, what, remedy in _ALWAYS)
        yield from _path_gaps(fence)
        yield from _network_gaps(fence)
        if fence.limits.files != defaults.FILES:
            yield _gap(fence, Effect.IGNORED, "with compose limits.files is the engine's own", "set default-ulimits of the daemon", fence.limits.origin)
        if fence.nested:
            what = "with compose nested: true gives the wider filter alone, to the service of the network as well: namespaces may fail all the same"
            yield _gap(fence, Effect.WEAKER, what, "use .wavegen/bin", fence.origin)
    for persona in plan.personas if plan.backend is BackendName.DOCKER else ():
        if persona.fence.fenced and len(persona.agents) > 1:
            what = f"with compose {persona.agents[0].binary} is started, and none of the other adapters where it is missing"
            yield _gap(persona.fence, Effect.IGNORED, what, "put it into the image", persona.origin)


def _gap(fence: Policy, effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
    return Gap(backend=NAME, shell=fence.name, effect=effect, what=what, remedy=remedy, origin=origin)


def _path_gaps(fence: Policy) -> Iterator[Gap]:
    for rule in fence.paths:
        if not rule.origin.at or rule.access not in _SHOWN:
            continue
        if is_device(rule.path):
            yield _gap(fence, Effect.STRICTER, f"with compose {rule.path} is not there", "use the shells of .wavegen/bin", rule.origin)
        elif rule.socket:
            yield _gap(fence, Effect.STRICTER, f"no socket at {rule.path} is reached out of a virtual machine", "use .wavegen/bin", rule.origin)


def _network_gaps(fence: Policy) -> Iterator[Gap]:
    network = fence.network
    match network.mode:
        case NetworkMode.HOST:
            what = "with compose network: host is that of whatever runs the containers: its loopback, abstract sockets and LAN"
            yield _gap(fence, Effect.WEAKER, what, "write network: open or none", network.origin)
        case NetworkMode.NONE:
            pass
        case NetworkMode.OPEN | NetworkMode.FILTERED:
            if network.loopback:
                ports = ", ".join(map(str, network.loopback))
                what = f"with compose the host's loopback ports are not reached: {ports}"
                yield _gap(fence, Effect.STRICTER, what, "use the shells of .wavegen/bin, or list a name that leads to the service", fence.origin)
            if network.upstream:
                what = "with compose a proxy on the host's own loopback is not reached"
                yield _gap(fence, Effect.STRICTER, what, "let HTTPS_PROXY name it as containers reach it", network.upstream)
