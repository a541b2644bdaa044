"""compose.yaml: a profile of each sandboxed shell for people who start containers by compose, as with Docker Desktop. Pure.

Everything that is mounted stands in it, relative to the project; nothing is decided when it is started. What is known only on a machine (which
protected files exist, who the user is, what a grant leads to) is left out, and said in its head and as gaps. A shell whose rules could not be
kept without that has no service. There is no filtered network: nobody outside of the container could answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from wavegen.backends import File, generated_header
from wavegen.backends.agents.files import agent_command_line
from wavegen.backends.sandboxes.docker import DIRECTORY
from wavegen.backends.sandboxes.rules_file import filter_of_shell
from wavegen.backends.templates import fill_template
from wavegen.core.quote import quote_compose as yaml
from wavegen.core.quote import quote_compose_pattern
from wavegen.manifest.model import BackendName, NetworkMode
from wavegen.policy import defaults
from wavegen.policy.model import Access, Anchor, Effect, Gap, HostPath, Origin, PathRule, PersonaPolicy, Plan, Policy

NAME = "compose"
FILE = f"{DIRECTORY}/compose.yaml"
START = f"cd {DIRECTORY} && docker compose run --rm SHELL"
_USE = ".wavegen/docker/run-SHELL or .wavegen/bin/SHELL enforces it"
_HERE, _PROJECT = "../..", "/workspace"
# An image's /var/tmp may be written by everybody, and a new volume has the mode of the directory that it is mounted on.
_VOLUME, _HOME = "/var/tmp", "/var/tmp/home"
_HARD = Origin("as in every container of ours")
# docker's own settings would put them into every container, with their passwords.
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a service, and why it is there."""

    line: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Service:
    """A service of compose.yaml."""

    name: str
    about: str
    lines: tuple[Line, ...]


def render(plan: Plan) -> Iterator[File]:
    """compose.yaml."""
    yield File(path=FILE, text=compose_file(plan))


def compose_shells(plan: Plan) -> tuple[Policy, ...]:
    """The sandboxed shells, and personas where containers hold them."""
    personas = (persona.fence for persona in plan.personas) if plan.backend is BackendName.DOCKER else ()
    return tuple(shell for shell in (*plan.shells, *personas) if shell.fenced)


def has_service(shell: Policy) -> bool:
    """Whether all that a shell's rules take away of the project can be written down without looking at a machine."""
    return not any(_depends_on_machine(rule) for rule in shell.paths)


def compose_file(plan: Plan) -> str:
    """The text of compose.yaml: for docker-compose 1.29 as for compose v2, so with keys that both know."""
    services = tuple(
        Service(shell.name, _service_description(plan, shell), tuple(_service_lines(plan, shell))) for shell in compose_shells(plan) if has_service(shell)
    )
    volumes = tuple(_home_volume(shell) for shell in compose_shells(plan) if has_service(shell) and shell.private_home)
    left_out = tuple(shell.name for shell in compose_shells(plan) if not has_service(shell))
    gaps = tuple(dict.fromkeys(what for _, what, _ in _ALWAYS))
    return fill_template(
        "compose.yaml.j2", header=generated_header(plan), start=START, use=_USE, gaps=gaps, left_out=left_out, services=services, volumes=volumes
    )


def _service_description(plan: Plan, shell: Policy) -> str:
    persona = plan.persona_of(shell)
    return f"The persona {persona.name}." if persona else f"The shell {shell.name}."


def _depends_on_machine(rule: PathRule) -> bool:
    in_project = rule.path.anchor is Anchor.PROJECT and bool(rule.path.tail) and bool(rule.origin.at) and not rule.pinned
    return in_project and (rule.access is Access.HIDE or (rule.access is Access.READ and not rule.required))


def _service_lines(plan: Plan, shell: Policy) -> Iterator[Line]:
    limits, network, persona, found = shell.limits, shell.network, plan.persona_of(shell), filter_of_shell(shell)
    yield Line(f"image: {yaml(plan.image.reference)}", plan.image.origin)
    yield Line("pull_policy: never", Origin("what is started is what was built, or fetched, by hand"))
    if not plan.image.origin.at:
        # docker-compose 1.29 knows no pull_policy: it would fetch what anybody has published under that name.
        yield Line("build: {context: .}", plan.image.origin)
    yield Line("init: true", Origin("signals arrive, and what has ended is waited for"))
    yield Line("read_only: true", _HARD)
    yield Line(f"user: {quote_compose_pattern('${WAVEGEN_UID:-1000}:${WAVEGEN_GID:-1000}')}", Origin("whose the project is; never root"))
    yield Line("cap_drop: [ALL]", _HARD)
    yield Line("security_opt:", shell.seccomp_origin)
    yield Line('  - "no-new-privileges:true"', Origin("no program gives more rights than it was started with"))
    yield Line(f"  - {yaml(f'seccomp=../seccomp/{found.name}.json' if found else 'seccomp=unconfined')}", shell.seccomp_origin)
    yield Line("ipc: private", Origin("no shared memory of other containers"))
    yield Line("hostname: localhost", Origin("a name that resolves everywhere"))
    yield Line("ulimits: {core: 1}", Origin("a core file would be a copy of secrets; 1 also keeps a program that takes them from being started"))
    yield Line("healthcheck: {disable: true}", Origin("nothing of the image's own is run"))
    yield Line("stop_grace_period: 1s", Origin("an interactive shell does not end by being asked"))
    yield Line('restart: "no"', Origin("what has ended stays so"))
    yield Line(f"network_mode: {yaml('host' if network.mode is NetworkMode.HOST else 'none')}", network.origin)
    start = 'mkdir -p -m 700 -- "$$HOME" && exec "$$@"'
    yield Line(
        f"entrypoint: [{', '.join(map(quote_compose_pattern, ('/bin/sh', '-c', start, 'sh')))}", Origin("the first process inside; nothing of the image's own")
    )
    words = tuple(_agent_words(persona)) if persona else ()
    yield from (Line(f"  , {word}", persona.origin if persona else shell.origin) for word in words)
    yield Line("  ]", Origin("what is started follows"))
    yield Line(f"command: [{'' if words else yaml('bash')}]", Origin("where nothing else is asked for"))
    yield Line(f"working_dir: {yaml(_PROJECT)}", Origin("the project"))
    yield Line("stdin_open: true", Origin("for those who type"))
    yield Line("tty: true", Origin("for those who type"))
    yield Line("logging: {driver: none}", Origin("what is printed is shown, and kept nowhere"))
    memory = str(limits.memory) if limits.memory else quote_compose_pattern("${WAVEGEN_MEMORY:-4g}")
    yield Line(f"pids_limit: {limits.pids}", limits.origin)
    yield Line(f"mem_limit: {memory}", limits.origin)
    yield Line(f"memswap_limit: {memory}", Origin("no swap besides"))
    if limits.cpus:
        yield Line(f"cpus: {limits.cpus:.2f}", limits.origin)
    yield Line(f"shm_size: {limits.scratch}", limits.origin)
    yield Line("tmpfs:", limits.origin)
    yield from (Line(f"  - {yaml(f'{path}:exec,size={limits.scratch},mode=1777')}", origin) for path, origin in _tmpfs_mounts(shell))
    yield Line("environment:", Origin("names alone have the value that they have outside"))
    yield from _environment_lines(shell)
    yield Line("volumes:", Origin("nothing else of the host is there"))
    yield from (Line(f"  - {text}", origin) for text, origin in _mount_entries(shell))


def _tmpfs_mounts(shell: Policy) -> Iterator[tuple[str, Origin]]:
    for rule in shell.paths:
        if rule.access is Access.SCRATCH and rule.path.anchor is Anchor.ROOT and not rule.source:
            path = f"/{rule.path.tail}"
            if path not in ("/dev/shm", _VOLUME):
                yield path, rule.origin
    if not shell.private_home:
        yield _VOLUME, _home_origin(shell)


def _home_origin(shell: Policy) -> Origin:
    return next((rule.origin for rule in shell.paths if rule.path == HostPath(Anchor.HOME)), Origin("the real home is never there"))


def _agent_words(persona: PersonaPolicy) -> Iterator[str]:
    """The words of a persona's first program, quoted."""
    if not persona.agents:
        return
    found = agent_command_line(persona, persona.agents[0])
    yield from (yaml("env"),) if found.variables else ()
    for name, _, value in (text.partition("=") for text in found.variables):
        yield yaml(f"{name}={_PROJECT}/{value[2:]}" if value.startswith("./") else f"{name}={value}")
    yield from map(yaml, found.words)


def _environment_lines(shell: Policy) -> Iterator[Line]:
    names = {rule.name for rule in shell.environment}
    yield Line(f"  - {yaml(f'HOME={_HOME}')}", _home_origin(shell))
    for rule in shell.environment:
        if rule in defaults.PROXIES:
            names.discard(rule.name)  # nobody answers there
        elif rule.value is not None:
            yield Line(f"  - {yaml(f'{rule.name}={rule.value}')}", rule.origin)
        elif rule.origin.at or rule.name not in defaults.OF_THE_SYSTEM:
            yield Line(f"  - {yaml(rule.name)}", rule.origin)
    for name in (*_PROXIES, *map(str.lower, _PROXIES)):
        if name not in names:
            yield Line(f"  - {yaml(f'{name}=')}", Origin("docker's settings may name one, with its password"))


def _mount_entries(shell: Policy) -> Iterator[tuple[str, Origin]]:
    if shell.private_home:
        yield f"{{type: volume, source: {yaml(f'home-{shell.name}')}, target: {yaml(_VOLUME)}}}", _home_origin(shell)
    for rule in shell.paths:
        if rule.path == HostPath(Anchor.PROJECT):
            yield _bind_entry("", read_only=rule.access is Access.READ), rule.origin
    for rule in shell.paths:
        if rule.path.anchor is Anchor.PROJECT and rule.path.tail and rule.required and rule.access is Access.READ:
            yield _bind_entry(f"/{rule.path.tail}", read_only=True), rule.origin


def _bind_entry(tail: str, *, read_only: bool) -> str:
    return f"{{type: bind, source: {yaml(_HERE + tail)}, target: {yaml(_PROJECT + tail)}{', read_only: true' if read_only else ''}}}"


def _home_volume(shell: Policy) -> Service:
    return Service(f"home-{shell.name}", "", (Line("driver: local", _home_origin(shell)),))


# --- what it does not enforce

_AS_COMPOSE = Origin("as compose starts containers")
# Few and short, as most do not use it.
_ALWAYS = (
    (
        Effect.WEAKER,
        "with compose git's settings and hooks, .envrc, tasks and agents' settings are writable, and nothing looks for what was left behind",
        f"look at wavegen audit before the host runs git or an editor; {_USE}",
    ),
    (
        Effect.WEAKER,
        "with compose there is no second layer (Landlock), mounts are not compared, and a container goes on where its client is killed",
        f"docker compose down; {_USE}",
    ),
    (
        Effect.WEAKER,
        "with compose memory is bounded by WAVEGEN_MEMORY (4g) where the manifest names no bound, and an image's own variables are obeyed",
        "write limits: {memory: 8g}",
    ),
    (
        Effect.STRICTER,
        "with compose the user is WAVEGEN_UID:WAVEGEN_GID (1000:1000), the project is /workspace, and what the manifest grants besides it is not there",
        f"set the two for another user; {_USE}",
    ),
)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What compose does not enforce as the policy says."""
    for shell in compose_shells(plan):
        if plan.persona_of(shell):
            continue  # what it shares with its shell is said there
        left_out = next((rule for rule in shell.paths if _depends_on_machine(rule)), None)
        if left_out:
            what = f"compose.yaml has no service for this shell: compose cannot check whether {left_out.path} exists"
            yield _make_gap(shell, Effect.STRICTER, what, _USE, left_out.origin)
            continue
        yield from (_make_gap(shell, effect, what, remedy, _AS_COMPOSE) for effect, what, remedy in _ALWAYS)
        if shell.network.mode is NetworkMode.HOST:
            what = "with compose, network: host shares the network of the docker daemon's machine: its loopback, abstract sockets and LAN"
            yield _make_gap(shell, Effect.WEAKER, what, "write network: none", shell.network.origin)
        elif shell.network.mode.is_filtered:
            yield _make_gap(shell, Effect.STRICTER, "with compose the shell has no network, as compose starts no filter for it", _USE, shell.network.origin)
        if shell.limits.files != defaults.FILES:
            yield _make_gap(shell, Effect.IGNORED, "with compose limits.files is the engine's own", "set default-ulimits of the daemon", shell.limits.origin)
    for persona in plan.personas if plan.backend is BackendName.DOCKER else ():
        if persona.fence.fenced and len(persona.agents) > 1:
            what = f"compose starts only {persona.agents[0].binary}, and no other adapter if it is missing"
            yield _make_gap(persona.fence, Effect.IGNORED, what, "install it in the image", persona.origin)


def _make_gap(shell: Policy, effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
    return Gap(backend=NAME, shell=shell.name, effect=effect, what=what, remedy=remedy.replace("SHELL", shell.name), origin=origin)
