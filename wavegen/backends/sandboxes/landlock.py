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
        "the manifest, flake.nix, .wavegen, git's hooks and settings, .envrc and agents' settings are writable: Landlock cannot make a part of a writable directory read-only",
        "start shells by wavegen run, which refuses what was changed; look at wavegen audit before you run git, direnv or Nix outside",
    ),
    (
        Effect.WEAKER,
        "before Linux 7.1 a command can connect to Unix sockets of the host (Docker, D-Bus, ssh-agent, databases) if their permissions allow this user",
        "stop these services, or start the shell as a user that may not use them",
    ),
    (
        Effect.WEAKER,
        "the host's processes are listed, with their arguments; System V and POSIX shared memory that this user may open is reached",
        "pass no secret in an argument",
    ),
    (
        Effect.WEAKER,
        "a command can stat files outside whose path it knows (size, owner, times), and change modes, owners, times and attributes of this user's files",
        "use bubblewrap, or start the shell as a separate user",
    ),
    (Effect.WEAKER, "a command can lower limits and priorities of this user's other programs (prlimit)", "start the shell as a separate user"),
    (
        Effect.WEAKER,
        "the number of processes, CPUs and the size of TMPDIR are not limited; memory is limited for each process only",
        "start the shell in a container or a systemd service with limits",
    ),
    (Effect.WEAKER, "processes that the command started survive if the launcher is killed with SIGKILL", "end the launcher with SIGTERM"),
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
                shell,
                Effect.STRICTER,
                "only the system files of a minimal root can be read",
                "list other files and directories under paths",
                plan.backend_origin,
            )
        kept = [str(rule.path) for rule in shell.paths if rule.path.anchor is Anchor.HOME and rule.path.tail and rule.access is Access.SCRATCH]
        if kept and shell.private_home:
            what = f"files that a session writes to {', '.join(kept)} stay for the next one, and the agent prefers them to the settings that wavegen passes"
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
            what = f"{rule.path} cannot be hidden: {holder} is granted, and Landlock cannot hide a part of a granted directory"
            yield _make_gap(shell, Effect.IGNORED, what, "grant only the other paths in that directory, or use bubblewrap", rule.origin, fatal=True)
        holder = next((place for place in writable if place.contains_path(rule.path)), None) if rule.access is Access.READ else None
        if holder:
            what = f"{rule.path} cannot be read-only: {holder} is writable, and Landlock cannot make a part of a writable directory read-only"
            yield _make_gap(shell, Effect.IGNORED, what, "remove the entry, or use bubblewrap", rule.origin, fatal=True)
        if rule.path.anchor is Anchor.HOME and rule.access is not Access.HIDE:
            what = f"{rule.path} is a link in the private home: a program that replaces the file by a new one changes the link alone"
            yield _make_gap(shell, Effect.STRICTER, what, "grant its directory, or use bubblewrap", rule.origin)


def _network_gaps(shell: Policy) -> Iterator[Gap]:
    network = shell.network
    match network.mode:
        case NetworkMode.HOST:
            yield _make_gap(
                shell,
                Effect.WEAKER,
                "network: host shares the network of the host, with its loopback and LAN",
                "write network: none or filtered",
                network.origin,
            )
        case NetworkMode.NONE:
            pass
        case NetworkMode.OPEN | NetworkMode.FILTERED:
            what = "Landlock filters by port, not by address: a server on the same port number as the shell's proxy can be reached past the allowlist"
            yield _make_gap(shell, Effect.WEAKER, what, "use bubblewrap where data must not get out", network.origin)
            what = "only programs that use a proxy reach the network, only the proxy resolves names, and no program may listen on a TCP or Unix socket"
            yield _make_gap(shell, Effect.STRICTER, what, "set HTTPS_PROXY or SOCKS5 in the program, or use bubblewrap", network.origin)
