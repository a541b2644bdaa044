"""The wrapper scripts: one bash file per shell that enters it with bubblewrap, with or without Nix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import assert_never

from wavegen import defaults
from wavegen.backends import File, Option, header
from wavegen.backends._templates import fill
from wavegen.backends.agents import started
from wavegen.manifest import Fallback, NetworkMode, Seccomp
from wavegen.paths import is_device
from wavegen.policy import Access, Anchor, DomainRule, Effect, EnvRule, Gap, HostPath, Network, Origin, PathRule, PersonaPolicy, Plan, Policy
from wavegen.quote import json_text, sh
from wavegen.seccomp import Arch, Filter
from wavegen.seccomp.bpf import assembled
from wavegen.seccomp.filters import filter_of, refused_calls
from wavegen.seccomp.oci import oci

NAME = "bwrap"
_CPU_PERIOD = 100_000
"""Microseconds over which the kernel shares processors out."""
_VARIABLES = {
    Anchor.HOME: "$wg_home",
    Anchor.PROJECT: "$wg_project",
    Anchor.STATE: "$wg_state",
    Anchor.RUNTIME: "$wg_runtime",
    Anchor.HOMES: "$wg_homes",
    Anchor.AROUND: "$wg_around",
}


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A call in the wrapper, and why it is there."""

    line: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive lines of one kind, and what stands around them."""

    before: str
    lines: tuple[RuleLine, ...]
    after: str


# Real root keeps write access to these without any capability (its kernel uid owns them), and some run code on the
# host: core_pattern takes a pipe, sysrq a reboot. Docker makes the same ones read-only.
PROC_READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/mtrr", "/proc/pressure")


PROXIED = (NetworkMode.OPEN, NetworkMode.FILTERED)
"""The modes in which the launcher judges each connection."""


def render(plan: Plan) -> Iterator[File]:
    """bin/<shell> for every shell, and the system call filters that they load: to be loaded, and to be read."""
    filters: dict[str, Filter] = {}
    for shell in plan.fences():
        yield File(path=f".wavegen/bin/{shell.name}", text=wrapper(plan, shell), executable=True)
        if found := filter_of_shell(shell):
            filters[found.name] = found
    for name, found in filters.items():
        yield program(found)
        yield File(path=f".wavegen/seccomp/{name}.json", text=json_text(oci(found)), header=False)


def filter_of_shell(shell: Policy) -> Filter | None:
    """The system call filter of a shell; None where it has none."""
    return filter_of(shell.seccomp, nested=shell.nested, allow=shell.seccomp_allow) if shell.fenced else None


def program(found: Filter) -> File:
    """What the kernel is given of a filter."""
    return File(path=f".wavegen/seccomp/{found.name}.bpf", raw=assembled(found, *Arch), header=False)


def wrapper(plan: Plan, shell: Policy) -> str:
    """The wrapper script of one shell, or of one persona's fence."""
    persona = plan.persona_of(shell)
    passed = tuple(rule for rule in shell.environment if rule.value is None)
    if not shell.fenced:
        return _unfenced(plan, persona, passed) if persona else fill("yolo.sh.j2", header=header(plan), name=shell.name)
    return fill(
        "wrapper.sh.j2",
        header=header(plan),
        file=f".wavegen/bin/{shell.name}",
        name=shell.name,
        fallback=shell.fallback.value,
        persona=persona,
        agents=tuple(started(persona)) if persona else (),
        bare=_bare(shell) if persona and shell.fallback is Fallback.WARN else (),
        proxied=shell.network.mode in PROXIED,
        settings=tuple(_settings(shell, persona)),
        parts=" ".join(_parts(shell)),
        network=tuple(network_options(shell.network)),
        passed=passed,
        options=tuple(options(shell)),
        system=tuple(_system(shell)),
        system_paths=" | ".join(sh(f"/{rule.path.tail}") for rule in shell.paths if rule.path.anchor is Anchor.ROOT and rule.path.tail),
        places=tuple(_place_line(rule) for rule in shell.paths if rule.path.anchor is not Anchor.ROOT and not rule.guarded),
        guards=tuple(_guard_line(rule) for rule in shell.paths if rule.guarded),
        banner=tuple(banner(shell)),
        writable=" ".join(_writable(plan)),
    )


def _unfenced(plan: Plan, persona: PersonaPolicy, passed: tuple[EnvRule, ...]) -> str:
    fence = persona.fence
    off = Option(("the manifest takes the fence from personas",), plan.enabled_origin)
    shell = Option((f"its shell {persona.shell} has no fence",), persona.origin)
    return fill(
        "unfenced.sh.j2",
        header=header(plan),
        file=f".wavegen/bin/{fence.name}",
        name=fence.name,
        persona=persona,
        why=off if not plan.enabled else shell,
        passed=passed,
        fixed=_bare(fence),
        agents=tuple(started(persona)),
        parts="places.sh fence.sh unfenced.sh",
    )


def _bare(fence: Policy) -> tuple[Option, ...]:
    """Variables that are set for a persona's command that has no fence: none that tells of one, or of its proxies."""
    inside = {"SANDBOX_ACTIVE", *(rule.name for rule in defaults.PROXIES)}
    return tuple(Option((f"{rule.name}={rule.value}",), rule.origin) for rule in fence.environment if rule.value is not None and rule.name not in inside)


def _with_paths(shell: Policy) -> bool:
    """Whether the manifest names paths: the project's own rules are no such."""
    return any(rule.origin.at and rule.path.tail for rule in shell.paths)


def _parts(shell: Policy) -> Iterator[str]:
    """The files of the runtime that a wrapper sources; main(), which calls all else, comes last."""
    yield from ("places.sh", "guards.sh", "shim.sh")
    if _with_paths(shell):
        yield "granted.sh"
    if shell.limits.written:
        yield "bounds.sh"
    yield "launched.sh" if shell.network.mode in PROXIED else "direct.sh"
    yield "fence.sh"


def _settings(shell: Policy, persona: PersonaPolicy | None) -> Iterator[RuleLine]:
    """What the files of the runtime ask about a shell, as assignments."""

    def setting(name: str, value: object, origin: Origin) -> RuleLine:
        return RuleLine(f"wg_{name}={'' if value in (None, False) else sh('1' if value is True else str(value))}", origin)

    def words(name: str, values: Iterable[str], origin: Origin) -> RuleLine:
        return RuleLine(f"wg_{name}=({_words(tuple(values))})", origin)

    home = next((rule.origin for rule in shell.paths if rule.path == HostPath(Anchor.HOME)), Origin("the real home is never there"))
    limits, found = shell.limits, filter_of_shell(shell)
    yield setting("persona", persona.name if persona else None, shell.origin)
    yield setting("proxied", shell.network.mode in PROXIED, shell.network.origin)
    yield setting("uses_upstream", shell.network.upstream is not None, shell.network.upstream or shell.network.origin)
    yield setting("filter_name", found.name if found else None, shell.seccomp_origin)
    yield setting("nested", shell.nested, shell.origin)
    yield setting("private_home", shell.private_home, home)
    yield setting("minimal_root", shell.minimal_root, shell.origin)
    yield setting("with_paths", _with_paths(shell), Origin("whether the manifest names paths"))
    yield setting("bounded", limits.written, limits.origin)
    yield setting("pids", limits.pids, limits.origin)
    yield setting("files", limits.files, limits.origin)
    yield setting("memory_limit", limits.memory or None, limits.origin)
    yield setting("memory_share", defaults.MEMORY_SHARE, Origin("percent of what the machine has, where no number is written"))
    yield setting("cpus", round(limits.cpus * _CPU_PERIOD) if limits.cpus else None, limits.origin)
    yield setting("cpu_percent", round(limits.cpus * 100) if limits.cpus else None, limits.origin)
    yield setting("scratch_size", limits.scratch, limits.origin)
    scratch = (rule for rule in shell.paths if rule.access is Access.SCRATCH and rule.path.anchor is Anchor.ROOT and not rule.source)
    yield words("scratch", (f"/{rule.path.tail}" for rule in scratch), Origin("private directories of the system"))
    passed = {rule.name for rule in shell.environment if rule.value is None and rule.origin.at}
    yield words("noted", (name for name in ("GH_TOKEN", "ANTHROPIC_API_KEY") if name in passed), Origin("logins that a shell looks for, or says are missing"))
    yield words("git_files", defaults.GIT_FILES, Origin("git on the host runs or follows it, in any repository"))
    yield words("worktree_files", defaults.WORKTREE_FILES, Origin("git on the host follows it, in any worktree"))


def _writable(plan: Plan) -> tuple[str, ...]:
    """What any shell of the project may write: a link there may be an agent's, whichever shell it was in."""
    rules = (rule for shell in plan.shells for rule in shell.paths if rule.access is Access.WRITE and rule.origin.at and rule.path.tail)
    return tuple(dict.fromkeys(_path(rule.path) for rule in rules))


def options(shell: Policy) -> Iterator[Option]:
    """What bwrap is told besides paths."""
    yield Option(("--unshare-user",), Origin("--unshare-all would go on without one"))
    yield Option(("--unshare-pid",), Origin("no process of the host can be seen or signalled"))
    yield Option(("--unshare-ipc",), Origin("no shared memory or semaphores of the host"))
    yield Option(("--unshare-uts",), Origin("the host's name stays outside"))
    yield Option(("--unshare-cgroup",), Origin("the host's control groups stay outside"))
    if shell.network.mode is not NetworkMode.HOST:
        yield Option(("--unshare-net",), shell.network.origin)  # the launcher puts its own in the place of this one
    yield Option(("--hostname", "localhost"), Origin("a name that resolves everywhere"))
    yield Option(("--cap-drop", "ALL"), Origin("real root would keep its capabilities and could undo every mount"))
    if not shell.nested:
        yield Option(("--disable-userns",), Origin("no namespaces inside: each would open more of the kernel"))
    yield Option(("--die-with-parent",), Origin("nothing outlives the wrapper"))
    for rule in shell.environment:
        if rule.value is not None:
            yield Option(("--setenv", rule.name, rule.value), rule.origin)


def network_options(network: Network) -> Iterator[Option]:
    """What the launcher is told: who may be reached, each with the line of the manifest that says so."""
    if network.mode is NetworkMode.OPEN:
        yield Option(("--open",), network.origin)
    for word, rules in (("--deny", network.denied), ("--allow", network.domains)):
        for rule in rules:
            yield Option((word, str(rule), _line(rule.origin), _flags(rule)), rule.origin)
    for port in network.loopback:
        yield Option(("--loopback", str(port), _line(network.origin)), network.origin)
    if network.upstream:
        yield Option(("--upstream",), network.upstream)


def _line(origin: Origin) -> str:
    return f"{origin.at.file}:{origin.at.line}" if origin.at else "default"


def _flags(rule: DomainRule) -> str:
    chosen = (("private", rule.allow_private), ("no-sni", rule.allow_no_sni), ("no-tls", not rule.tls))
    return ",".join(name for name, set_ in chosen if set_) or "-"


def _kernel_mounts() -> Iterator[Option]:
    yield Option(("--dev", "/dev"), Origin("the few devices that everybody may use"))
    yield Option(("--proc", "/proc"), Origin("the processes of this shell alone"))
    for path in PROC_READ_ONLY:
        yield Option(("--ro-bind" if path == "/proc/sys" else "--ro-bind-try", path, path), Origin("real root could change the host's kernel there"))


def _system(shell: Policy) -> Iterator[Run]:
    """The rules about the host's own paths, shallow to deep, in runs of one kind."""
    ground = [rule for rule in shell.paths if rule.path.anchor is Anchor.ROOT]
    lines: list[tuple[Kind, RuleLine]] = []
    for rule in sorted(ground, key=lambda rule: (len(rule.path.parts()), _kind(rule).value)):
        lines.append((_kind(rule), _system_line(rule, shell)))
        if not rule.path.tail:
            # Above the root, below everything else; /proc/sys is read-only before anything can be granted there.
            lines += [(Kind.MOUNTS, RuleLine(_words(option.words), option.origin)) for option in _kernel_mounts()]
            lines.append((Kind.LATE, RuleLine("--remount-ro /dev", Origin("it is a tmpfs without a limit, and nothing is made there"))))
    for kind, run in groupby(lines, key=lambda pair: pair[0]):
        before, after = _AROUND[kind]
        yield Run(before, tuple(line for _, line in run), after)


class Kind(Enum):
    """What a line about a path of the system is: words for bwrap, paths that are looked at first, or a call."""

    MOUNTS = 0
    LATE = 1
    HIDDEN = 2
    CALLS = 3


_AROUND = {
    Kind.MOUNTS: ("  wg_mounts+=(", "  )"),
    Kind.LATE: ("  wg_late+=(", "  )"),
    Kind.HIDDEN: ("  wg_hidden=(", '  )\n  hidden "${wg_hidden[@]}"'),
    Kind.CALLS: ("  # What the manifest names:", ""),
}


def _kind(rule: PathRule) -> Kind:
    if rule.origin.at:
        return Kind.CALLS
    if rule.access is not Access.HIDE:
        return Kind.MOUNTS
    return Kind.HIDDEN if rule.path.tail else Kind.LATE


def _system_line(rule: PathRule, shell: Policy) -> RuleLine:
    path = f"/{rule.path.tail}"
    if rule.origin.at:
        return RuleLine(_words(("named", _access(rule), _asked_by(rule), path)), rule.origin)
    match rule.access:
        case Access.HIDE:
            # bwrap starts from an empty root; it is made read-only when all is mounted.
            return RuleLine(sh(path) if rule.path.tail else "--remount-ro /", rule.origin)
        case Access.READ if rule.source:
            return RuleLine(f"--ro-bind {_path(rule.source)} {sh(path)}", rule.origin)
        case Access.READ:
            return RuleLine(_words(("--ro-bind" if rule.required else "--ro-bind-try", path, path)), rule.origin)
        case Access.SCRATCH if rule.source:
            return RuleLine(_words(("--symlink", f"/{rule.source.tail}", path)), rule.origin)
        case Access.SCRATCH:
            mode = "1777" if path.endswith(("/tmp", "/shm")) else "0755"
            return RuleLine(_words(("--perms", mode, "--size", str(shell.limits.scratch), "--tmpfs", path)), rule.origin)
        case Access.WRITE:
            return RuleLine(_words(("--bind", path, path)), rule.origin)
        case _:
            assert_never(rule.access)


def _place_line(rule: PathRule) -> RuleLine:
    """A rule about a path that is known only when the shell starts."""
    path = _path(rule.path)
    if rule.path.anchor in (Anchor.HOMES, Anchor.AROUND):
        return RuleLine(f"neighbours {path}", rule.origin)
    if not rule.path.tail and rule.access in (Access.READ, Access.WRITE):
        kind = "home" if rule.path.anchor is Anchor.HOME else "project" if rule.access is Access.WRITE else "project-read"
        return RuleLine(f"rule {kind} - {path}" + (f" {_path(rule.source)}" if rule.source else ""), rule.origin)
    if rule.pinned:
        return RuleLine(f"rule pin {'wavegen' if rule.required else '-'} {path}", rule.origin)
    return RuleLine(f"rule {_access(rule)} {sh(_asked_by(rule))} {path}", rule.origin)


def _guard_line(rule: PathRule) -> RuleLine:
    """What the host runs or follows: whether it is there is known when the shell starts."""
    path = _path(rule.path)
    return RuleLine(f"{'keep_place' if rule.access is Access.WRITE else 'guard'} {path}", rule.origin)


def _access(rule: PathRule) -> str:
    optional = rule.access in (Access.READ, Access.WRITE) and not rule.required
    return rule.access.value + ("+optional" if optional else "") + ("+socket" if rule.socket else "")


def _asked_by(rule: PathRule) -> str:
    return str(rule.origin) if rule.origin.at else "-"


def _words(words: tuple[str, ...]) -> str:
    return " ".join(sh(word) for word in words)


def _path(path: HostPath) -> str:
    if path.anchor is Anchor.ROOT:
        return sh(f"/{path.tail}")
    return f'"{_VARIABLES[path.anchor]}"' + (f"/{sh(path.tail)}" if path.tail else "")


def banner(shell: Policy, *, by: str = "bubblewrap", fence: str = "the manifest, flake.nix and .wavegen are read-only") -> Iterator[str]:
    """What an interactive shell begins with."""
    granted = [rule for rule in shell.paths if rule.origin.at and not rule.pinned]
    project = next((rule.access for rule in shell.paths if rule.path == HostPath(Anchor.PROJECT)), Access.WRITE)
    writable = [*(("the project",) if project is Access.WRITE else ()), "~ (private" + (", kept)" if shell.private_home else ", empty)"), "/tmp"]
    writable += [str(rule.path) for rule in granted if rule.access is Access.WRITE and rule.path.tail]
    readable = ["the host's system, without homes, other disks and /var" if not shell.minimal_root else "programs and libraries of the host"]
    readable += ["the project"] if project is Access.READ else []
    readable += [str(rule.path) for rule in granted if rule.access is Access.READ and rule.path.tail]
    hidden = [str(rule.path) for rule in granted if rule.access is Access.HIDE]
    yield f"wavegen: shell {shell.name}: fenced by {by}"
    yield f"  write:   {', '.join(writable)}"
    yield f"  read:    {', '.join(readable)}"
    if hidden:
        yield f"  hidden:  {', '.join(hidden)}"
    match shell.network.mode:
        case NetworkMode.HOST:
            yield "  network: the host's, with its loopback and LAN"
        case NetworkMode.NONE:
            yield "  network: none"
        case NetworkMode.OPEN:
            yield "  network: any public name; what was refused: wavegen log"
        case NetworkMode.FILTERED:
            yield f"  network: {_named(shell.network)}; what was refused: wavegen log"
        case _:
            assert_never(shell.network.mode)
    yield f"  fence:   {fence}"


def _named(network: Network) -> str:
    names = [str(rule) for rule in network.domains] + [f"localhost:{port}" for port in network.loopback]
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")


_NAMES_SHOWN = 6

_PROJECT = Origin("the project is what the shell is for")
# What is so in every fenced shell: what, what to do, why.
_ALWAYS = (
    (
        "the project is writable, and with it what the host may run later: build scripts, CI files, new repositories and settings below it",
        "look at `wavegen audit` before you run git, Nix or a build outside the fence",
        _PROJECT,
    ),
    (
        "git hooks and settings, .envrc, tasks and agents' settings are held where they exist when the shell starts; where one is a symlink, only what it leads to",
        "wavegen audit names those that were made; run wavegen render once in each clone, which writes .git/commondir",
        _PROJECT,
    ),
    (
        "git cannot change .git/config: no remote add, no branch tracking, no submodule init; what is held cannot be renamed, nor checked out anew",
        "do that outside, or grant the path: paths: [{path: .vscode, access: write}]",
        _PROJECT,
    ),
    (
        "a file that is read-only or hidden by its name stays so until the host replaces it: an editor's save, git checkout, wavegen render",
        "end the shells of a project first; a directory holds",
        _PROJECT,
    ),
    (
        "what is written to the terminal reaches it unfiltered: escape sequences set titles and, in some terminals, the clipboard",
        "switch such sequences off in the terminal (OSC 52)",
        Origin("how a terminal is shared"),
    ),
    (
        "a file system that the host mounts later below a directory shown inside appears there, writable",
        "mount it before the shell starts",
        Origin("bwrap follows the host's mounts"),
    ),
)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What bubblewrap alone does not hold."""
    for shell in plan.shells:
        if shell.fenced:
            yield from _shell_gaps(shell)
    for persona in plan.personas:
        # What it shares with its shell is said there.
        if persona.fence.fenced and persona.fence.network.origin.at:
            yield from (gap for gap in _network_gaps(persona.fence) if gap.effect is Effect.WEAKER and gap.origin != persona.fence.network.origin)


def _gap(shell: Policy, effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
    return Gap(backend=NAME, shell=shell.name, effect=effect, what=what, remedy=remedy, origin=origin)


def _network_gaps(shell: Policy) -> Iterator[Gap]:
    network = shell.network
    match network.mode:
        case NetworkMode.HOST:
            what = "network: host reaches the host's loopback services, its LAN, and sockets in directories that are shown"
            unbound = ", and default_allowed_domains does not bind it" if network.domains else ""
            yield _gap(shell, Effect.WEAKER, what + unbound, "write network: open (public names only) or none", network.origin)
        case NetworkMode.FILTERED | NetworkMode.OPEN:
            yield from (_gap(shell, effect, what, remedy, origin) for effect, what, remedy, origin in _filter_gaps(network))
        case NetworkMode.NONE:
            pass


def _filter_gaps(network: Network) -> Iterator[tuple[Effect, str, str, Origin]]:
    """What a filter by name does not hold, and what it holds more than was asked for."""
    fronting = "of TLS on port 443 only the server's name is looked at, and of other connections nothing: a server that answers for many names"
    yield Effect.WEAKER, f"{fronting} can be asked for any of them", "list hosts that serve only what is meant", network.origin
    if network.mode is NetworkMode.OPEN:
        yield Effect.WEAKER, "network: open lets everything that can be read be sent to anybody", "list the names: network: filtered", network.origin
        yield Effect.STRICTER, "network: open is about names: an address without one is not reached", "use a name", network.origin
    for rule in network.domains:
        if rule.wildcard:
            what = f"{rule} lets data out in the names themselves, to whoever answers for the domain"
            yield Effect.WEAKER, what, "list the names that are needed", rule.origin
        if not rule.tls or rule.allow_no_sni:
            yield Effect.WEAKER, f"{rule}: whom a connection on port 443 asks is not looked at", "remove the flag", rule.origin
    every = next((rule.origin for rule in network.domains if rule.port == "*"), network.origin if network.mode is NetworkMode.OPEN else None)
    if every:
        what = "programs that know no proxy reach every port's usual ones alone (21, 22, 25, 80, 443, mail, rsync); others need HTTP_PROXY or SOCKS5"
        yield Effect.STRICTER, what, "list the port: name:5432", every
    if network.upstream:
        what = "what HTTPS_PROXY of the host leads to looks names up itself, so that nobody judges the addresses"
        yield Effect.WEAKER, what, "remove upstream_proxy where the host reaches the internet itself", network.upstream
    yield Effect.STRICTER, "there is TCP alone: no QUIC, no ping, no time servers", "nothing; programs fall back to TCP", network.origin
    where = "where a machine lets only bwrap make namespaces (AppArmor on Ubuntu), programs that know no proxy reach nothing; the shell says so"
    yield Effect.STRICTER, where, "allow python3 user namespaces there", network.origin


_BOUND_TOGETHER = (
    "limits bind all processes together only where a control group can be made (root, a systemd user manager); elsewhere memory is bounded for each alone, "
    "processors are not, and real root's processes neither; the shell says so"
)


def _shell_gaps(shell: Policy) -> Iterator[Gap]:
    def gap(effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
        return _gap(shell, effect, what, remedy, origin)

    yield from _network_gaps(shell)
    yield gap(
        Effect.WEAKER,
        _BOUND_TOGETHER
        if shell.limits.written
        else "without limits in the manifest memory is bounded for each process alone, and real root's processes are not",
        "start it as a user of systemd, or in a container with limits" if shell.limits.written else "write limits: {pids: 4096, memory: 8g}",
        shell.limits.origin,
    )
    yield gap(
        Effect.WEAKER,
        "the second layer (Landlock) holds what the kernel has: writes since Linux 5.13, abstract sockets and signals since 6.12; the shell says what is missing",
        "take a newer kernel",
        Origin("as of what the kernel has"),
    )
    if shell.seccomp is Seccomp.OFF:
        yield gap(Effect.WEAKER, "seccomp: off lets every system call through, and shares no terminal", "remove it", shell.seccomp_origin)
    else:
        yield gap(
            Effect.STRICTER,
            "the system call filter refuses debuggers and profilers (ptrace, perf, bpf), io_uring, namespaces, and sockets but for Unix, TCP, UDP, ping and routes",
            "seccomp_allow: [ptrace] for debuggers; wavegen seccomp explain says all",
            shell.seccomp_origin,
        )
    opened = [name for name in shell.seccomp_allow if name in refused_calls(nested=shell.nested)]
    if opened and shell.seccomp is not Seccomp.OFF:
        yield gap(Effect.WEAKER, f"seccomp_allow opens {', '.join(opened)}", "remove what nothing needs", shell.seccomp_allow_origin)
    if shell.nested:
        yield gap(
            Effect.WEAKER,
            "nested: true lets the command make user namespaces, and with them reach more of the kernel",
            "remove it where nothing inside needs it",
            shell.origin,
        )
    outside = next((rule for rule in shell.paths if rule.access is Access.WRITE and rule.origin.at and rule.path.anchor is not Anchor.PROJECT), None)
    if outside:
        what = f"{outside.path} and what else is granted for writing outside of the project is not audited; a repository there without .git/commondir is not held whole"
        yield gap(Effect.WEAKER, what, "look there yourself before you run git or a build in it; in a repository: echo ./ >.git/commondir", outside.origin)
    for rule in shell.paths:
        if rule.socket:
            yield gap(Effect.WEAKER, f"whoever answers on a socket at {rule.path} acts outside the fence", "remove the entry", rule.origin)
        if rule.origin.at and rule.access is Access.READ and is_device(rule.path):
            # The driver is asked, not the file system (mount(2), MS_RDONLY).
            yield gap(Effect.WEAKER, f"{rule.path} is a device: granted for reading it can be written, too", "remove the entry", rule.origin)
    yield from (gap(Effect.WEAKER, what, remedy, origin) for what, remedy, origin in _ALWAYS)
    denied = [rule for rule in shell.paths if rule.access is Access.HIDE and rule.origin.at]
    if denied:
        yield gap(
            Effect.WEAKER,
            "deny_read_paths hides what exists when the shell starts, and no other hard link to it",
            "deny a directory, and put the secret there",
            denied[0].origin,
        )
