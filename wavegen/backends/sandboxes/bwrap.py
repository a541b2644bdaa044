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
        "another shell of the project that exchanges files while this one starts can make the start fail, and with that leave an empty file where this user may write",
        "start this shell again when the other has ended, and look at what is new in the home",
        Origin("bubblewrap makes mount points by their paths"),
    ),
    (
        "started by root, a command can change the modes of /dev/null and its like, which are the host's own",
        "start shells as a user",
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
    def gap_of_shell(effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
        return _make_gap(shell, effect, what, remedy, origin)

    yield from _network_gaps(shell)
    yield gap_of_shell(
        Effect.WEAKER,
        _BOUND_TOGETHER
        if shell.limits.written
        else "without limits in the manifest memory is bounded for each process alone, and real root's processes are not",
        "start it as a user of systemd, or in a container with limits" if shell.limits.written else "write limits: {pids: 4096, memory: 8g}",
        shell.limits.origin,
    )
    yield gap_of_shell(
        Effect.WEAKER,
        "the second layer (Landlock) holds what the kernel has: writes since Linux 5.13, abstract sockets and signals since 6.12; the shell says what is missing",
        "take a newer kernel",
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
        what = f"{outside.path} and what else is granted for writing outside of the project is not audited; a repository there without .git/commondir is not held whole"
        yield gap_of_shell(
            Effect.WEAKER, what, "look there yourself before you run git or a build in it; in a repository: echo ./ >.git/commondir", outside.origin
        )
    for rule in shell.paths:
        if rule.socket:
            yield gap_of_shell(Effect.WEAKER, f"whoever answers on a socket at {rule.path} acts outside the fence", "remove the entry", rule.origin)
        if rule.origin.at and rule.access is Access.READ and is_device(rule.path):
            # The driver is asked, not the file system (mount(2), MS_RDONLY).
            yield gap_of_shell(Effect.WEAKER, f"{rule.path} is a device: granted for reading it can be written, too", "remove the entry", rule.origin)
    yield from (gap_of_shell(Effect.WEAKER, what, remedy, origin) for what, remedy, origin in _ALWAYS)
    denied = [rule for rule in shell.paths if rule.access is Access.HIDE and rule.origin.at]
    if denied:
        yield gap_of_shell(
            Effect.WEAKER,
            "deny_read_paths hides what exists when the shell starts, and no other hard link to it",
            "deny a directory, and put the secret there",
            denied[0].origin,
        )
