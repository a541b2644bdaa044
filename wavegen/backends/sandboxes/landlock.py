"""The stubs for machines without user namespaces: one per fenced shell, which the launcher starts by Landlock alone.

Rendered only where the manifest says so: nothing is mounted, so that much of what bubblewrap holds is a gap here.
"""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.backends import File, generated_header
from wavegen.backends.sandboxes.bwrap import bpf_filter_file
from wavegen.backends.sandboxes.rules_file import LANDLOCK_SOCKETS, landlock_filter
from wavegen.backends.templates import fill_template
from wavegen.manifest.model import BackendName, NetworkMode
from wavegen.policy import defaults
from wavegen.policy.model import Access, Anchor, Effect, Gap, HostPath, Origin, PathRule, Plan, Policy
from wavegen.seccomp import Filter
from wavegen.seccomp.filters import filter_of

NAME = "landlock"
PREFIX = "landlock-"


def landlock_shells(plan: Plan) -> tuple[Policy, ...]:
    """The shells that are rendered."""
    return tuple(shell for shell in plan.all_fences() if shell.fenced) if plan.backend is BackendName.LANDLOCK else ()


def render(plan: Plan) -> Iterator[File]:
    """bin/landlock-<shell>, and the filters that only these load."""
    filters: dict[str, Filter] = {}
    for shell in landlock_shells(plan):
        yield File(
            path=f".wavegen/bin/{PREFIX}{shell.name}", text=fill_template("stub.sh.j2", header=generated_header(plan), vendored=plan.vendored), executable=True
        )
        # The others are rendered for bubblewrap.
        if (found := landlock_filter(shell)) and (LANDLOCK_SOCKETS[shell.network.mode] != "all" or shell.nested):
            filters[found.name] = found
    usual = {found.name for shell in plan.shells if shell.fenced and (found := filter_of(shell.seccomp, nested=shell.nested, allow=shell.seccomp_allow))}
    for name, found in filters.items():
        if name not in usual:
            yield bpf_filter_file(found)


def landlock_system_rules(shell: Policy) -> tuple[PathRule, ...]:
    """What of the system can be read, as launcher/landlock.py decides it: whatever the network, as nothing of the whole could be hidden."""
    denied = {rule.path for rule in shell.paths if rule.access is Access.HIDE and rule.origin.at}
    resolvers = defaults.RESOLVERS if shell.network.mode is NetworkMode.HOST else ()
    return tuple(rule for rule in (*defaults.MINIMAL_ROOT, *resolvers) if rule.access is Access.READ and rule.path not in denied)


# --- what it does not hold

_ALWAYS = (
    (
        Effect.WEAKER,
        "the manifest, flake.nix, .wavegen, git's hooks and settings, .envrc and agents' settings can be written: of a writable directory nothing is exempt",
        "start shells by wavegen run, which refuses what was changed; look at wavegen audit before you run git, direnv or Nix outside",
    ),
    (
        Effect.WEAKER,
        "named sockets of the host are reached before Linux 7.1: Docker, D-Bus, ssh-agent, databases, where their permissions let this user",
        "stop these services, or start the shell as a user that may not use them",
    ),
    (
        Effect.WEAKER,
        "the host's processes are listed, with their arguments; System V and POSIX shared memory that this user may open is reached",
        "pass no secret in an argument",
    ),
    (
        Effect.WEAKER,
        "files outside whose names are known can be looked up (size, owner, times), and those of this user get other modes, owners, times and attributes",
        "use bubblewrap, or a user of its own",
    ),
    (Effect.WEAKER, "limits and priorities of this user's other programs can be lowered (prlimit)", "start the shell as a user of its own"),
    (
        Effect.WEAKER,
        "processes are not bounded (a limit would count all of this user's), processors and what is written to TMPDIR neither; memory is for each process alone",
        "start it in a container or a service with limits",
    ),
    (Effect.WEAKER, "what the command started outlives the shell where the launcher itself is killed (SIGKILL)", "end the launcher with SIGTERM"),
    (
        Effect.STRICTER,
        "/tmp, /dev/shm, new pseudo-terminals (script, tmux) and the directory / are not there; sockets in TMPDIR may have too long a path",
        "let programs use TMPDIR, or use bubblewrap",
    ),
)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What Landlock alone does not hold."""
    for shell in landlock_shells(plan):
        yield from (_make_gap(shell, effect, what, remedy, plan.backend_origin) for effect, what, remedy in _ALWAYS)
        yield from _path_gaps(shell)
        yield from _network_gaps(shell)
        if shell.network.mode is NetworkMode.HOST:
            yield _make_gap(
                shell, Effect.STRICTER, "of the host's system only what a minimal root holds can be read", "grant what is needed: paths", plan.backend_origin
            )
        kept = [str(rule.path) for rule in shell.paths if rule.path.anchor is Anchor.HOME and rule.path.tail and rule.access is Access.SCRATCH]
        if kept and shell.private_home:
            what = f"{', '.join(kept)} keep what a session leaves there, which the agent takes over the settings that it is handed"
            yield _make_gap(shell, Effect.WEAKER, what, "write home: tmpfs, or use bubblewrap", plan.backend_origin)
        if shell.nested:
            yield _make_gap(shell, Effect.STRICTER, "nested: true has no effect: Landlock refuses mounts", "use bubblewrap", shell.origin)


def _make_gap(shell: Policy, effect: Effect, what: str, remedy: str, origin: Origin, *, fatal: bool = False) -> Gap:  # noqa: PLR0913
    return Gap(backend=NAME, shell=shell.name, effect=effect, what=what, remedy=remedy, origin=origin, fatal=fatal)


def _path_gaps(shell: Policy) -> Iterator[Gap]:
    named = [rule for rule in shell.paths if rule.origin.at and rule.path.tail]
    granted = [rule.path for rule in named if rule.access in (Access.READ, Access.WRITE)]
    places = [*granted, HostPath(Anchor.PROJECT), *(rule.path for rule in landlock_system_rules(shell))]
    writable = [HostPath(Anchor.PROJECT), *(rule.path for rule in named if rule.access is Access.WRITE)]
    for rule in named:
        holder = next((place for place in places if place.contains_path(rule.path)), None) if rule.access is Access.HIDE else None
        if holder:
            what = f"{rule.path} cannot be hidden: {holder} is granted, and Landlock exempts nothing of it"
            yield _make_gap(shell, Effect.IGNORED, what, "grant what is needed beside it, or use bubblewrap", rule.origin, fatal=True)
        holder = next((place for place in writable if place.contains_path(rule.path)), None) if rule.access is Access.READ else None
        if holder:
            what = f"{rule.path} cannot be read-only: {holder} is writable, and Landlock exempts nothing of it"
            yield _make_gap(shell, Effect.IGNORED, what, "remove the entry, or use bubblewrap", rule.origin, fatal=True)
        if rule.path.anchor is Anchor.HOME and rule.access is not Access.HIDE:
            what = f"{rule.path} is a link in the private home: a program that replaces the file by a new one changes the link alone"
            yield _make_gap(shell, Effect.STRICTER, what, "grant its directory, or use bubblewrap", rule.origin)


def _network_gaps(shell: Policy) -> Iterator[Gap]:
    network = shell.network
    match network.mode:
        case NetworkMode.HOST:
            yield _make_gap(shell, Effect.WEAKER, "network: host is the host's, with its loopback and LAN", "write network: none or filtered", network.origin)
        case NetworkMode.NONE:
            pass
        case NetworkMode.OPEN | NetworkMode.FILTERED:
            what = "Landlock knows ports and no addresses: whoever listens on the number that the shell's proxy happened to get is reached past the list"
            yield _make_gap(shell, Effect.WEAKER, what, "use bubblewrap where data must not get out", network.origin)
            what = "only programs that know a proxy reach the network, and none may listen, on Unix sockets neither; names are looked up by the proxy alone"
            yield _make_gap(shell, Effect.STRICTER, what, "set HTTPS_PROXY or SOCKS5 in the program, or use bubblewrap", network.origin)
