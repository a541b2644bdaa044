"""The shells that bubblewrap holds: a stub for each, which starts the launcher, its rules, and the system call filters."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.backends import File, generated_header
from wavegen.backends.sandboxes.rules_file import filter_of_shell, rules_files
from wavegen.backends.templates import fill_template
from wavegen.manifest.model import NetworkMode, Seccomp
from wavegen.policy.model import Access, Anchor, Effect, Gap, Network, Origin, Plan, Policy
from wavegen.policy.paths import is_device
from wavegen.seccomp import Arch, Filter
from wavegen.seccomp.bpf import assemble_filter
from wavegen.seccomp.filters import refused_calls

NAME = "bwrap"


def render(plan: Plan) -> Iterator[File]:
    """bin/<shell> for every shell, its rules, and the system call filters that they load."""
    filters: dict[str, Filter] = {}
    yield from rules_files(plan)
    for shell in plan.all_fences():
        yield File(path=f".wavegen/bin/{shell.name}", text=fill_template("stub.sh.j2", header=generated_header(plan), vendored=plan.vendored), executable=True)
        if found := filter_of_shell(shell):
            filters[found.name] = found
    for found in filters.values():
        yield bpf_filter_file(found)


def bpf_filter_file(found: Filter) -> File:
    """What the kernel is given of a filter."""
    return File(path=f".wavegen/seccomp/{found.name}.bpf", raw=assemble_filter(found, *Arch), header=False)


_PROJECT = Origin("the project is what the shell is for")
# What is so in every fenced shell: what, what to do, why.
_ALWAYS = (
    (
        "the project is writable, and with it what the host may run later: build scripts, CI files, new repositories and settings below it",
        "look at `wavegen audit` before you run git, Nix or a build outside the fence",
        _PROJECT,
    ),
    (
        "git hooks and settings, .envrc, editor tasks and agent settings are read-only only if they exist when the shell starts; a symlink protects only its target",
        "wavegen audit lists new ones; run wavegen render once in each clone, which writes .git/commondir",
        _PROJECT,
    ),
    (
        "git cannot change .git/config: no remote add, no branch tracking, no submodule init; protected files cannot be renamed, and git checkout cannot replace them",
        "run git outside, or grant the path: paths: [{path: .vscode, access: write}]",
        _PROJECT,
    ),
    (
        "a read-only or hidden file loses its mount if the host replaces the file: an editor's save, git checkout, wavegen render",
        "end the shells of a project first, or list the directory in place of the file",
        _PROJECT,
    ),
    (
        "output reaches your terminal unfiltered: escape sequences can set its title and, in some terminals, the clipboard",
        "disable these sequences in the terminal (OSC 52)",
        Origin("how a terminal is shared"),
    ),
    (
        "another shell of the project that exchanges files while this one starts can make the start fail, and with that leave an empty file where this user may write",
        "start this shell again when the other has ended, and look at what is new in the home",
        Origin("bubblewrap makes mount points by their paths"),
    ),
    (
        "a shell started by root can change the modes of the host's /dev/null and similar devices",
        "start shells as a normal user",
        Origin("root owns them"),
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


def _make_gap(shell: Policy, effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
    return Gap(backend=NAME, shell=shell.name, effect=effect, what=what, remedy=remedy, origin=origin)


def _network_gaps(shell: Policy) -> Iterator[Gap]:
    network = shell.network
    match network.mode:
        case NetworkMode.HOST:
            what = "network: host reaches the host's loopback services, its LAN, and sockets in directories that are shown"
            unbound = ", and default_allowed_domains does not bind it" if network.domains else ""
            yield _make_gap(shell, Effect.WEAKER, what + unbound, "write network: open (public names only) or none", network.origin)
        case NetworkMode.FILTERED | NetworkMode.OPEN:
            yield from (_make_gap(shell, effect, what, remedy, origin) for effect, what, remedy, origin in _filter_gaps(network))
        case NetworkMode.NONE:
            pass


def _filter_gaps(network: Network) -> Iterator[tuple[Effect, str, str, Origin]]:
    """What a filter by name does not hold, and what it holds more than was asked for."""
    fronting = "the filter checks only the server name (SNI) of TLS on port 443, and nothing inside other connections: a server with many names (a CDN)"
    yield Effect.WEAKER, f"{fronting} can be asked for any of them", "allow only hosts that serve nothing but what you need", network.origin
    if network.mode is NetworkMode.OPEN:
        yield (
            Effect.WEAKER,
            "network: open lets a command send every file that it can read to any public host",
            "use network: filtered, and list the domains",
            network.origin,
        )
        yield Effect.STRICTER, "network: open allows host names only: a bare IP address cannot be reached", "use a host name", network.origin
    for rule in network.domains:
        if rule.wildcard:
            what = f"{rule} is a wildcard: a command can send data in the names that it looks up, to the DNS server of the domain"
            yield Effect.WEAKER, what, "list the host names in place of the star", rule.origin
        if not rule.tls or rule.allow_no_sni:
            yield (
                Effect.WEAKER,
                f"{rule}: the server name (SNI) of connections on port 443 is not checked",
                "remove tls: false or allow_no_sni: true",
                rule.origin,
            )
    every = next((rule.origin for rule in network.domains if rule.port == "*"), network.origin if network.mode is NetworkMode.OPEN else None)
    if every:
        what = "programs that ignore proxy settings reach only the usual ports (21, 22, 25, 80, 443, mail, rsync); other ports need HTTP_PROXY or SOCKS5"
        yield Effect.STRICTER, what, "list the port: name:5432", every
    if network.upstream:
        what = "the upstream proxy (HTTPS_PROXY of the host) resolves names itself, so wavegen cannot check the addresses"
        yield Effect.WEAKER, what, "remove upstream_proxy if the host reaches the internet without a proxy", network.upstream
    yield Effect.STRICTER, "only TCP connections leave the sandbox: no UDP (QUIC, NTP), no ping", "no action needed: programs fall back to TCP", network.origin
    where = (
        "if the machine lets only bwrap create user namespaces (AppArmor on Ubuntu), programs without proxy support have no network; the shell prints a note"
    )
    yield Effect.STRICTER, where, "wavegen doctor --fix-hints prints an AppArmor profile for python3", network.origin


_BOUND_TOGETHER = (
    "limits apply to all processes together only if a cgroup can be created (by root, or a systemd user manager); otherwise memory is limited for each process, "
    "CPUs are not limited, nor is the number of real root's processes; the shell prints a note"
)


def _shell_gaps(shell: Policy) -> Iterator[Gap]:
    def gap_of_shell(effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
        return _make_gap(shell, effect, what, remedy, origin)

    yield from _network_gaps(shell)
    yield gap_of_shell(
        Effect.WEAKER,
        _BOUND_TOGETHER
        if shell.limits.written
        else "without limits in the manifest, memory is limited for each process only, and the number of real root's processes is not limited",
        "log in through systemd, or start the shell in a container with limits" if shell.limits.written else "write limits: {pids: 4096, memory: 8g}",
        shell.limits.origin,
    )
    yield gap_of_shell(
        Effect.WEAKER,
        "Landlock, the second layer, enforces what the kernel supports: writes since Linux 5.13, abstract sockets and signals since 6.12; the shell prints what is missing",
        "use Linux 6.12 or newer",
        Origin("as of what the kernel has"),
    )
    if shell.seccomp is Seccomp.OFF:
        yield gap_of_shell(Effect.WEAKER, "seccomp: off lets every system call through, and shares no terminal", "remove it", shell.seccomp_origin)
    else:
        yield gap_of_shell(
            Effect.STRICTER,
            "the system call filter refuses debuggers and profilers (ptrace, perf, bpf), io_uring, namespaces, and sockets but for Unix, TCP, UDP, ping and routes",
            "seccomp_allow: [ptrace] for debuggers; wavegen seccomp explain says all",
            shell.seccomp_origin,
        )
    opened = [name for name in shell.seccomp_allow if name in refused_calls(nested=shell.nested)]
    if opened and shell.seccomp is not Seccomp.OFF:
        yield gap_of_shell(Effect.WEAKER, f"seccomp_allow opens {', '.join(opened)}", "remove what nothing needs", shell.seccomp_allow_origin)
    if shell.nested:
        yield gap_of_shell(
            Effect.WEAKER,
            "nested: true lets the command make user namespaces, and with them reach more of the kernel",
            "remove it where nothing inside needs it",
            shell.origin,
        )
    outside = next((rule for rule in shell.paths if rule.access is Access.WRITE and rule.origin.at and rule.path.anchor is not Anchor.PROJECT), None)
    if outside:
        what = f"wavegen audit does not look at {outside.path} and other writable paths outside the project; a repository there without .git/commondir is only partly protected"
        yield gap_of_shell(
            Effect.WEAKER, what, "check these paths yourself before you run git or a build there; in a repository: echo ./ >.git/commondir", outside.origin
        )
    for rule in shell.paths:
        if rule.socket:
            yield gap_of_shell(Effect.WEAKER, f"the server behind the socket {rule.path} runs outside the sandbox", "remove the entry", rule.origin)
        if rule.origin.at and rule.access is Access.READ and is_device(rule.path):
            # The driver is asked, not the file system (mount(2), MS_RDONLY).
            yield gap_of_shell(Effect.WEAKER, f"{rule.path} is a device: a read-only mount does not stop writes to it", "remove the entry", rule.origin)
    yield from (gap_of_shell(Effect.WEAKER, what, remedy, origin) for what, remedy, origin in _ALWAYS)
    denied = [rule for rule in shell.paths if rule.access is Access.HIDE and rule.origin.at]
    if denied:
        yield gap_of_shell(
            Effect.WEAKER,
            "deny_read_paths hides only paths that exist when the shell starts, and not other hard links to the same file",
            "keep secrets in a directory, and list that directory",
            denied[0].origin,
        )
