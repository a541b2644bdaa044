"""The settings for Anthropic's sandbox-runtime (srt): one JSON file per fenced shell, for those who start agents with it.

srt drops keys that it does not know, and 0.0.21 goes on with settings of its own where it refuses a file: what is
written here is what 0.0.21 takes, and of newer versions only keys that narrow, or show again what is hidden there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv6Network, ip_network

from wavegen.backends import File
from wavegen.core.quote import json_text
from wavegen.launcher.egress.metadata import METADATA_NETWORKS
from wavegen.launcher.egress.names import NEVER_NETWORKS, PRIVATE_NETWORKS
from wavegen.manifest.model import NetworkMode, Seccomp
from wavegen.policy import defaults
from wavegen.policy.host_rules import credentials_below, is_denied_by, refusal_of
from wavegen.policy.model import Access, Anchor, DomainRule, Effect, Gap, HostPath, Origin, PathRule, Plan, Policy
from wavegen.policy.path_rules import home_secrets
from wavegen.policy.paths import is_device

NAME = "srt"
_SHOWN = (Access.READ, Access.WRITE)
_NAMED = (Anchor.ROOT, Anchor.HOME, Anchor.PROJECT)
_PROJECT = HostPath(Anchor.PROJECT)


def srt_shells(plan: Plan) -> tuple[Policy, ...]:
    """The shells that are rendered."""
    return tuple(shell for shell in plan.shells if shell.fenced)


def render(plan: Plan) -> Iterator[File]:
    """srt/<shell>.json; none for a shell of which srt would skip a rule that takes something away."""
    for shell in (shell for shell in srt_shells(plan) if not any(_skipped_rules(shell))):
        yield File(path=f".wavegen/srt/{shell.name}.json", text=json_text(srt_settings(shell)), header=False)


def srt_settings(shell: Policy) -> dict[str, dict[str, object]]:
    """What srt is told. It must be started in the project's root: `.` is where it is started."""
    return {"network": _network_settings(shell), "filesystem": _filesystem_settings(shell)}


# --- paths


def _filesystem_settings(shell: Policy) -> dict[str, object]:
    return {
        "denyRead": _spell_paths(srt_hidden_paths(shell)),
        # Newer than 0.0.21, which hides these with what holds them.
        **({"allowRead": _spell_paths(rule.path for rule in again)} if (again := _granted_below_hidden(shell)) else {}),
        "allowWrite": _spell_paths(rule.path for rule in _writable_rules(shell)),
        "denyWrite": _spell_paths(srt_read_only_paths(shell)),
    }


def _spell_paths(paths: Iterable[HostPath]) -> list[str]:
    # Not bare: a file of the project's could have a name that means something to srt.
    return [f"./{path.tail}" if path.anchor is Anchor.PROJECT and path.tail else str(path) for path in dict.fromkeys(paths)]


def _granted_rules(shell: Policy) -> tuple[PathRule, ...]:
    """What the manifest shows, where srt takes its name: it takes those with a bracket for patterns."""
    return tuple(
        rule for rule in shell.paths if rule.origin.at and rule.access in _SHOWN and rule.path.tail and rule.path.anchor in _NAMED and "]" not in rule.path.tail
    )


def _hidden_rules(shell: Policy) -> tuple[PathRule, ...]:
    return tuple(rule for rule in shell.paths if rule.origin.at and rule.access is Access.HIDE)


def srt_hidden_paths(shell: Policy) -> tuple[HostPath, ...]:
    """What the manifest hides, what the system keeps secret, and what is secret in a home."""
    granted = tuple(rule.path for rule in _granted_rules(shell))
    denied = tuple(rule.path for rule in _hidden_rules(shell))
    # The other default rules hide directories that may hold the project.
    system = (rule.path for rule in defaults.HOST_ROOT if rule.access is Access.HIDE and rule.path.tail_parts()[:1] == ("etc",) and rule.path not in granted)
    return (*denied, *(path for path in (*home_secrets(shell), *system) if not any(deny.contains_path(path) for deny in denied)))


def _granted_below_hidden(shell: Policy) -> tuple[PathRule, ...]:
    """What the manifest shows of a directory that is hidden without being written."""
    places = srt_hidden_paths(shell)
    return tuple(rule for rule in _granted_rules(shell) if any(place.contains_path(rule.path) for place in places))


def _writable_rules(shell: Policy) -> tuple[PathRule, ...]:
    project = (rule for rule in shell.paths if rule.path == _PROJECT and rule.access is Access.WRITE)
    return (*project, *(rule for rule in _granted_rules(shell) if rule.access is Access.WRITE and not is_device(rule.path)))


def srt_read_only_paths(shell: Policy) -> tuple[HostPath, ...]:
    """The fence's own files, and what the manifest grants for reading below what can be written.

    Files of the fence that need not be there are left out, as are those that the host may run later: of what is
    missing, srt puts an empty file into the project for as long as the command runs, and git, direnv and editors
    would find it.
    """
    own = (rule.path for rule in shell.paths if rule.pinned and rule.required)
    places = tuple(rule.path for rule in _writable_rules(shell))
    return (*own, *(rule.path for rule in _granted_rules(shell) if rule.access is Access.READ and any(_may_hold(place, rule.path) for place in places)))


def _may_hold(place: HostPath, path: HostPath) -> bool:
    """Whether a path may lie below a place. A home directory has two names; which of them holds the project is not known."""
    return place.contains_path(path) or (place.anchor is not path.anchor and Anchor.PROJECT not in (place.anchor, path.anchor))


# --- network


def _network_settings(shell: Policy) -> dict[str, object]:
    network = shell.network
    allowed = _allowed_rules(shell)
    metadata = {name for rule in allowed for name in credentials_below(rule)} - {rule.host for rule in allowed if not rule.wildcard}
    denied = {_host_pattern(rule) for rule in network.denied if _is_expressible(rule)}
    return {
        "allowedDomains": list(dict.fromkeys(_host_pattern(rule) for rule in allowed)),
        "deniedDomains": sorted(denied | metadata),
        # Newer than 0.0.21: nobody is asked, and a name must not lead into the network around.
        "strictAllowlist": True,
        **({} if _private_address_rules(allowed) or not allowed else {"deniedResolvedAddresses": list(_non_public_networks())}),
    }


def _non_public_networks() -> Iterator[str]:
    """The launcher's networks of addresses that are not public, as far as srt does not refuse them by itself.

    Of IPv6 srt lets through what is global and fc00::/7; a network of mapped IPv4 addresses would be all of IPv4 to it.
    """
    networks = [ip_network(text) for text in (*NEVER_NETWORKS, *PRIVATE_NETWORKS, *METADATA_NETWORKS)]
    for network in sorted(networks, key=lambda one: (one.version, one)):
        wider = any(other != network and other.version == network.version and network.subnet_of(other) for other in networks)  # type: ignore[arg-type]
        taken = network.version == 4 or any(network.subnet_of(whole) for whole in _SIX_OF_SRT)  # noqa: PLR2004
        if taken and not wider:
            yield str(network)


_SIX_OF_SRT = (IPv6Network("2000::/3"), IPv6Network("fc00::/7"))


def _private_address_rules(allowed: Iterable[DomainRule]) -> tuple[DomainRule, ...]:
    """The names that may have private addresses. An address that is listed itself needs no leave."""
    return tuple(rule for rule in allowed if rule.allow_private and not rule.host.replace(".", "").isdigit())


def _host_pattern(rule: DomainRule) -> str:
    return ("*." if rule.wildcard else "") + rule.host


def _is_expressible(rule: DomainRule) -> bool:
    """Whether both versions take a name: no address of IPv6, and a dot, in a wildcard behind the first."""
    return "." in rule.host and not rule.host.startswith("[")


def _unrefused_rules(shell: Policy) -> tuple[DomainRule, ...]:
    """What is let through: not what the launcher refuses though it is listed, as srt would reach it on the host's side."""
    return tuple(rule for rule in shell.network.domains if not refusal_of(rule))


def _allowed_rules(shell: Policy) -> tuple[DomainRule, ...]:
    # A denied name that cannot be said is a whole top level domain: nothing below it is let through.
    unsaid = tuple(rule for rule in shell.network.denied if not _is_expressible(rule))
    return tuple(rule for rule in _unrefused_rules(shell) if _is_expressible(rule) and not any(is_denied_by(deny, rule) for deny in unsaid))


# --- what it does not hold

_HOME = Origin("srt keeps the host's file system and environment")
# Few and short, as most do not use srt: docs/srt.md says more.
_ALWAYS = (
    (
        Effect.WEAKER,
        "srt lets a command read everything but known secrets, passes every variable, sets no limits, filters names but no ports and (0.0.21) no addresses, and protects fewer files that the host runs later",
        "start it by env -i in the project's root, hide what must not be read (deny_read_paths), and look at wavegen audit afterwards",
    ),
    (
        Effect.STRICTER,
        "with srt the home and /tmp cannot be written, no Unix socket opens, and only programs that ask a proxy reach the network",
        "mkdir -p /tmp/claude, which is its TMPDIR, and grant what is to be written: paths",
    ),
)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What srt does not hold as the policy says."""
    for shell in srt_shells(plan):
        yield from (_make_gap(shell, effect, what, remedy, _HOME) for effect, what, remedy in _ALWAYS)
        yield from _path_gaps(shell)
        yield from _network_gaps(shell)
        yield from _other_gaps(shell)


def _make_gap(shell: Policy, effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
    return Gap(backend=NAME, shell=shell.name, effect=effect, what=what, remedy=remedy, origin=origin)


def _pattern_rules(shell: Policy) -> Iterator[PathRule]:
    """What the manifest names and srt takes for a pattern."""
    return (rule for rule in shell.paths if rule.origin.at and "]" in rule.path.tail and rule.path.anchor in _NAMED)


def _skipped_rules(shell: Policy) -> Iterator[PathRule]:
    """Of these, what takes something away: of a grant only that is missing, unless it takes from what can be written."""
    for rule in _pattern_rules(shell):
        if rule.access is Access.HIDE or (rule.access is Access.READ and any(_may_hold(place.path, rule.path) for place in _writable_rules(shell))):
            yield rule


def _path_gaps(shell: Policy) -> Iterator[Gap]:
    skipped = tuple(_skipped_rules(shell))
    for rule in skipped:
        what = f"there is no .wavegen/srt/{shell.name}.json: srt takes {rule.path} for a pattern, and would skip it"
        yield _make_gap(shell, Effect.IGNORED, what, "name its directory, or rename it", rule.origin)
    for rule in _pattern_rules(shell):
        if rule not in skipped:
            yield _make_gap(shell, Effect.STRICTER, f"srt takes {rule.path} for a pattern, and skips it", "name its directory, or rename it", rule.origin)
    for rule in _granted_below_hidden(shell):
        place = next(place for place in srt_hidden_paths(shell) if place.contains_path(rule.path))
        yield _make_gap(shell, Effect.STRICTER, f"srt 0.0.21 hides {rule.path} with {place}", "use a newer srt", rule.origin)
    closed = srt_read_only_paths(shell)
    for rule in _granted_rules(shell):
        if rule.socket:
            yield _make_gap(shell, Effect.STRICTER, f"srt lets nobody connect to the socket at {rule.path}", "use the shells of .wavegen/bin", rule.origin)
        elif is_device(rule.path):
            yield _make_gap(shell, Effect.STRICTER, f"srt makes /dev anew, without {rule.path}", "use the shells of .wavegen/bin", rule.origin)
        elif rule.access is Access.WRITE and (above := next((path for path in closed if path != rule.path and path.contains_path(rule.path)), None)):
            what = f"srt keeps {rule.path} read-only, as {above} is"
            yield _make_gap(shell, Effect.STRICTER, what, "grant what is to be read beside it", rule.origin)


def _network_gaps(shell: Policy) -> Iterator[Gap]:
    network, allowed = shell.network, _allowed_rules(shell)
    if network.mode in (NetworkMode.HOST, NetworkMode.OPEN):
        what = f"with srt network: {network.mode.value} is {'the names of default_allowed_domains' if allowed else 'no network'}"
        yield _make_gap(shell, Effect.STRICTER, what, "list the names: network: filtered", network.origin)
    if ported := [rule for rule in allowed if rule.port not in ("", "*")]:
        what = f"srt 0.0.21 takes no port: {_join_rules(ported)} on every port"
        yield _make_gap(shell, Effect.WEAKER, what, "use the shells of .wavegen/bin where that matters", ported[0].origin)
    if (private := _private_address_rules(allowed)) and len(private) < len(allowed):
        what = f"srt allows private addresses for all names or for none: as {_join_rules(private)} may be private, every listed name may"
        yield _make_gap(shell, Effect.WEAKER, what, "list the address instead: {host: 10.1.2.3, allow_private: true}", private[0].origin)
    if dropped := [rule for rule in _unrefused_rules(shell) if rule not in allowed]:
        what = f"srt cannot express {_join_rules(dropped)}, or a denial of a part of it, and does not allow it"
        yield _make_gap(shell, Effect.STRICTER, what, "list names with two labels behind the star, and addresses of IPv4", dropped[0].origin)
    if narrow := [rule for rule in network.denied if rule.port != "*"]:
        yield _make_gap(shell, Effect.STRICTER, f"srt 0.0.21 takes no port: {_join_rules(narrow)} denied on every port", "deny the name", narrow[0].origin)
    if network.loopback:
        ports = ", ".join(map(str, network.loopback))
        what = f"the host's loopback ports are not reached with srt: {ports}; localhost in its list would be all of them"
        yield _make_gap(shell, Effect.STRICTER, what, "use the shells of .wavegen/bin", shell.origin)
    if network.upstream:
        what = "srt 0.0.21 ignores upstream_proxy; newer versions use HTTPS_PROXY of the host if it is set, and then check no addresses"
        yield _make_gap(shell, Effect.STRICTER, what, "use a newer srt", network.upstream)


def _join_rules(rules: Iterable[DomainRule]) -> str:
    return ", ".join(map(str, rules))


def _other_gaps(shell: Policy) -> Iterator[Gap]:
    if shell.limits.origin.at:
        yield _make_gap(shell, Effect.IGNORED, "srt sets no limits", "start it in a scope: systemd-run --user --scope -p TasksMax=…", shell.limits.origin)
    if shell.seccomp_origin.at and shell.seccomp is not Seccomp.OFF:
        yield _make_gap(shell, Effect.WEAKER, f"seccomp: {shell.seccomp.value} is srt's own filter", "use the shells of .wavegen/bin", shell.seccomp_origin)
    if shell.seccomp_allow:
        what = "srt's filter does not let through what seccomp_allow names where it refuses it"
        yield _make_gap(shell, Effect.STRICTER, what, "use the shells of .wavegen/bin", shell.seccomp_allow_origin)
    if shell.nested:
        what = "nested: true has no effect: newer versions of srt refuse namespaces"
        yield _make_gap(shell, Effect.STRICTER, what, "use the shells of .wavegen/bin", shell.origin)
