"""The wrapper scripts: one bash file per shell that enters it with bubblewrap, with or without Nix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from wavegen.backends import File, Option, header, script
from wavegen.backends._templates import fill
from wavegen.backends.agents import started
from wavegen.backends.script import PROXIED, Builder, bare, filter_of_shell, ground, passed, system
from wavegen.manifest import NetworkMode, Seccomp
from wavegen.paths import is_device
from wavegen.policy import Access, Anchor, DomainRule, Effect, Gap, HostPath, Network, Origin, PersonaPolicy, Plan, Policy
from wavegen.quote import json_text
from wavegen.seccomp import Arch, Filter
from wavegen.seccomp.bpf import assembled
from wavegen.seccomp.filters import refused_calls
from wavegen.seccomp.oci import profile

NAME = "bwrap"
# Real root keeps write access to these without any capability (its kernel uid owns them), and some run code on the
# host: core_pattern takes a pipe, sysrq a reboot. Docker makes the same ones read-only.
PROC_READ_ONLY = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi", "/proc/mtrr", "/proc/pressure")


def render(plan: Plan) -> Iterator[File]:
    """bin/<shell> for every shell, and the system call filters that they load: to be loaded, and to be read."""
    filters: dict[str, Filter] = {}
    for shell in plan.fences():
        yield File(path=f".wavegen/bin/{shell.name}", text=wrapper(plan, shell), executable=True)
        if found := filter_of_shell(shell):
            filters[found.name] = found
    for name, found in filters.items():
        yield program(found)
        yield File(path=f".wavegen/seccomp/{name}.json", text=json_text(profile(found)), header=False)


def program(found: Filter) -> File:
    """What the kernel is given of a filter."""
    return File(path=f".wavegen/seccomp/{found.name}.bpf", raw=assembled(found, *Arch), header=False)


def wrapper(plan: Plan, shell: Policy) -> str:
    """The wrapper script of one shell, or of one persona's fence."""
    persona = plan.persona_of(shell)
    if not shell.fenced:
        return _unfenced(plan, persona) if persona else fill("yolo.sh.j2", header=header(plan), name=shell.name)
    return script.wrapper(
        plan,
        shell,
        Builder(
            file=f".wavegen/bin/{shell.name}",
            name="bwrap",
            begins="bubblewrap.sh",
            parts=tuple(_parts(shell)),
            options=tuple(options(shell)),
            system=tuple(system(shell, ground(shell), kernel=_kernel_mounts())),
            network=tuple(network_options(shell.network)),
            banner=tuple(banner(shell)),
        ),
    )


def _parts(shell: Policy) -> Iterator[str]:
    if shell.limits.written:
        yield "bounds.sh"
    yield from ("launched.sh",) if shell.network.mode in PROXIED else ("direct.sh", "audit.sh")
    yield "fence.sh"


def _unfenced(plan: Plan, persona: PersonaPolicy) -> str:
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
        passed=passed(fence),
        fixed=bare(fence),
        agents=tuple(started(persona)),
        parts="places.sh fence.sh unfenced.sh",
    )


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
    # /proc/sys is read-only before anything can be granted there.
    yield Option(("--dev", "/dev"), Origin("the few devices that everybody may use"))
    yield Option(("--proc", "/proc"), Origin("the processes of this shell alone"))
    for path in PROC_READ_ONLY:
        yield Option(("--ro-bind" if path == "/proc/sys" else "--ro-bind-try", path, path), Origin("real root could change the host's kernel there"))
    yield Option(("--remount-ro", "/dev"), Origin("it is a tmpfs without a limit, and nothing is made there"))


def banner(shell: Policy, *, by: str = "bubblewrap", system: str = "", fence: str = "the manifest, flake.nix and .wavegen are read-only") -> Iterator[str]:
    """What an interactive shell begins with. `system`: what is read, where it is not the host's."""
    granted = [rule for rule in shell.paths if rule.origin.at and not rule.pinned]
    project = next((rule.access for rule in shell.paths if rule.path == HostPath(Anchor.PROJECT)), Access.WRITE)
    writable = [*(("the project",) if project is Access.WRITE else ()), "~ (private" + (", kept)" if shell.private_home else ", empty)"), "/tmp"]
    writable += [str(rule.path) for rule in granted if rule.access is Access.WRITE and rule.path.tail]
    readable = [system or ("the host's system, without homes, other disks and /var" if not shell.minimal_root else "programs and libraries of the host")]
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
