"""What a change of the manifest loosens and tightens: two plans compared by what is reached, not by how it is written. Pure.

Whatever has no order, and might loosen, is a change to look at. Of the system's own paths only those are compared that a manifest names:
the others follow from the network's mode, which is compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from wavegen.explain.model import Verdict
from wavegen.explain.plan_table import size_text
from wavegen.explain.tools import match_rule_to_calls
from wavegen.manifest.model import BackendName, Fallback, NetworkMode, Seccomp
from wavegen.policy import defaults
from wavegen.policy.domains import rule_covers
from wavegen.policy.host_rules import is_past_open
from wavegen.policy.model import (
    Access,
    AgentKind,
    Anchor,
    DomainRule,
    HookRule,
    HostPath,
    Limits,
    Network,
    Origin,
    PathRule,
    PersonaPolicy,
    Plan,
    Policy,
    ToolPattern,
)
from wavegen.policy.path_resolution import PlacedRules, governing_rule
from wavegen.policy.persona_tools import matches_tool


class Way(Enum):
    """What a change does; the order in which changes are listed."""

    LOOSENS = "loosens"
    CHANGES = "changes"
    """It has no order, or cannot be compared: look at it."""
    TIGHTENS = "tightens"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that is reached otherwise. `origin`: the later line, or the earlier one of what is gone."""

    way: Way
    where: str
    what: str
    before: str
    after: str
    origin: Origin | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """Something on one side: how far it reaches (None: it has no order), in words, and why."""

    reach: float | None
    words: str
    origin: Origin | None = None


_MODES = {NetworkMode.NONE: 0, NetworkMode.FILTERED: 1, NetworkMode.OPEN: 2, NetworkMode.HOST: 3}
_FILTERS = {Seccomp.STRICT: 0, Seccomp.DEFAULT: 1, Seccomp.OFF: 2}
_BACKENDS = {BackendName.BUBBLEWRAP: 0, BackendName.DOCKER: 0, BackendName.LANDLOCK: 1, BackendName.NONE: 2}
"""Landlock holds less than the others, which are of one kind."""
_NOTHING = "nothing"
T = TypeVar("T")


def compare_plans(before: Plan, after: Plan) -> tuple[Change, ...]:
    """The changes, those that loosen first; what several shells and personas have in common is one change that names them."""
    found = [*_compare_plan_settings(before, after)]
    shells = _pair_by_name({shell.name: shell for shell in before.shells}, {shell.name: shell for shell in after.shells})
    for name, one, other in shells:
        found += _compare_sandboxes(f"shell {name}", one, other)
    personas = _pair_by_name({persona.name: persona for persona in before.personas}, {persona.name: persona for persona in after.personas})
    for name, role, other_role in personas:
        found += _compare_sandboxes(f"persona {name}", role.fence if role else None, other_role.fence if other_role else None)
        if role and other_role:
            found += _compare_personas(f"persona {name}", role, other_role)
    order = list(Way)
    return tuple(sorted(_merge_changes(found), key=lambda change: (order.index(change.way), change.where, change.what, change.before, change.after)))


def reverse_change(change: Change) -> Change:
    """The change the other way round."""
    way = {Way.LOOSENS: Way.TIGHTENS, Way.TIGHTENS: Way.LOOSENS, Way.CHANGES: Way.CHANGES}[change.way]
    return replace(change, way=way, before=change.after, after=change.before)


def _pair_by_name(before: dict[str, T], after: dict[str, T]) -> Iterator[tuple[str, T | None, T | None]]:
    for name in sorted({*before, *after}):
        yield name, before.get(name), after.get(name)


def _merge_changes(changes: Iterable[Change]) -> Iterator[Change]:
    together: dict[tuple[object, ...], list[Change]] = {}
    for change in changes:
        together.setdefault((change.way, change.what, change.before, change.after), []).append(change)
    for same in together.values():
        yield replace(same[0], where=", ".join(sorted({change.where for change in same})))


def _compare_states(where: str, what: str, before: _State, after: _State) -> Iterator[Change]:
    """One change, or none where both sides say the same."""
    if (before.reach, before.words) == (after.reach, after.words):
        return
    way = Way.CHANGES
    if before.reach is not None and after.reach is not None and before.reach != after.reach:
        way = Way.LOOSENS if after.reach > before.reach else Way.TIGHTENS
    yield Change(way=way, where=where, what=what, before=before.words, after=after.words, origin=after.origin or before.origin)


def _compare_entries(where: str, what: str, before: tuple[T, ...], after: tuple[T, ...], *, loosens: bool, within: Callable[[T, T], bool]) -> Iterator[Change]:  # noqa: PLR0913
    """Entries that are on one side alone. `within(a, b)`: whether a says all that b says. `loosens`: whether more of them reach further."""
    more, less = (Way.LOOSENS, Way.TIGHTENS) if loosens else (Way.TIGHTENS, Way.LOOSENS)
    for mine, others, way, came in ((after, before, more, True), (before, after, less, False)):
        for entry in mine:
            if not any(within(other, entry) for other in others):
                words = _entry_text(entry)
                origin = getattr(entry, "origin", None)
                yield Change(way=way, where=where, what=what, before=_NOTHING if came else words, after=words if came else _NOTHING, origin=origin)


def _entry_text(entry: object) -> str:
    match entry:
        case DomainRule():
            return ", ".join((str(entry), *(f"{name}: {str(flag).lower()}" for name, flag in entry.extra_flags().items())))
        case HookRule():
            return f"{entry.matcher}: {entry.command}"
        case _:
            return str(entry)


def _flag_state(value: bool, yes: str, no: str, origin: Origin | None = None) -> _State:  # noqa: FBT001
    return _State(float(value), yes if value else no, origin)


# --- the whole


def _compare_plan_settings(before: Plan, after: Plan) -> Iterator[Change]:
    def sandbox_state(plan: Plan) -> _State:
        return _flag_state(not plan.enabled, "none for personas and `wavegen run`", "for all", plan.enabled_origin)

    yield from _compare_states("manifest", "fence", sandbox_state(before), sandbox_state(after))
    sides = (_State(_BACKENDS[plan.backend], plan.backend.value, plan.backend_origin) for plan in (before, after))
    yield from _compare_states("manifest", "backend", *sides)
    yield from _compare_states("manifest", "image", *(_State(None, plan.image.reference, plan.image.origin) for plan in (before, after)))
    named = (", ".join(f"{one.attribute}: {' '.join(one.names) or 'none'}" for one in plan.image.named) or _NOTHING for plan in (before, after))
    yield from _compare_states("manifest", "image's packages by name", *(_State(None, text) for text in named))
    files = (_State(None, str(plan.package) if plan.package else _NOTHING) for plan in (before, after))
    yield from _compare_states("manifest", "file that Nix evaluates", *files)
    yield from _compare_states("manifest", "image's base", *(_State(None, plan.image.base, plan.image.base_origin) for plan in (before, after)))


# --- a fence


def _compare_sandboxes(where: str, before: Policy | None, after: Policy | None) -> Iterator[Change]:
    sides = tuple(_State(1, _summarize_sandbox(side), side.origin) if side else _State(0, _NOTHING) for side in (before, after))
    if before is None or after is None:
        yield from _compare_states(where, "all of it", *sides)
        return
    yield from _compare_states(where, "fence", *(_flag_state(not side.fenced, "NOT SANDBOXED", "fenced", side.origin) for side in (before, after)))
    if not (before.fenced and after.fenced):
        return
    yield from _compare_paths(where, before, after)
    yield from _compare_networks(where, before.network, after.network)
    yield from _compare_variables(where, before, after)
    yield from _compare_limits(where, before.limits, after.limits)
    yield from _compare_kernel_settings(where, before, after)


def _summarize_sandbox(policy: Policy) -> str:
    """A fence that is new, in a few words."""
    if not policy.fenced:
        return "NOT SANDBOXED"
    project = governing_rule(policy.paths, HostPath(Anchor.PROJECT))
    granted = [
        f"{rule.path} ({rule.access.value})" for rule in policy.paths if rule.origin.at and rule.path.tail and rule.access in (Access.READ, Access.WRITE)
    ]
    return f"network {_network_text(policy.network)}, project {project.access.value if project else 'hidden'}" + (f", {', '.join(granted)}" if granted else "")


def _compare_kernel_settings(where: str, before: Policy, after: Policy) -> Iterator[Change]:
    both = (before, after)
    yield from _compare_states(where, "seccomp", *(_State(_FILTERS[side.seccomp], side.seccomp.value, side.seccomp_origin) for side in both))
    if Seccomp.OFF not in (before.seccomp, after.seccomp):
        yield from _compare_entries(
            where, "system call let through", before.seccomp_allow, after.seccomp_allow, loosens=True, within=lambda one, other: one == other
        )
    yield from _compare_states(where, "namespaces inside", *(_flag_state(side.nested, "nested: true", "off", side.origin) for side in both))
    yield from _compare_states(where, "without a usable fence", *(_flag_state(side.fallback is Fallback.WARN, "run unfenced", "refuse") for side in both))


def _compare_limits(where: str, before: Limits, after: Limits) -> Iterator[Change]:
    def limit_state(name: str, value: float | None, limits: Limits) -> _State:
        shown = _UNBOUNDED[name] if value is None else size_text(int(value)) if name in ("memory", "tmp") else f"{value:g}"
        return _State(float("inf") if value is None else float(value), shown, limits.origin)

    for name, value in _BOUNDS.items():
        yield from _compare_states(where, f"limit of {name}", *(limit_state(name, value(side), side) for side in (before, after)))
    together = (_flag_state(not side.written, "each process alone", "all together", side.origin) for side in (before, after))
    yield from _compare_states(where, "limits bind", *together)


_BOUNDS: dict[str, Callable[[Limits], float | None]] = {
    "processes": lambda limits: limits.pids,
    "memory": lambda limits: limits.memory,
    "processors": lambda limits: limits.cpus,
    "files": lambda limits: limits.files,
    "tmp": lambda limits: limits.scratch,
}
_UNBOUNDED = {"memory": f"{defaults.MEMORY_SHARE} % of the machine's", "processors": "all"}


def _compare_variables(where: str, before: Policy, after: Policy) -> Iterator[Change]:
    derived = {"SANDBOX_ACTIVE", "WAVEGEN_SHELL", *(rule.name for rule in defaults.PROXIES)}
    sides = tuple({rule.name: rule for rule in side.environment if rule.value is None or rule.name not in derived} for side in (before, after))
    for name in sorted({*sides[0], *sides[1]}):
        rules = (side.get(name) for side in sides)
        states = (
            _State(0, "not there") if rule is None else _State(1, "the host's", rule.origin) if rule.value is None else _State(0, f"={rule.value}", rule.origin)
            for rule in rules
        )
        yield from _compare_states(where, f"variable {name}", *states)


# --- paths


def _compare_paths(where: str, before: Policy, after: Policy) -> Iterator[Change]:
    system = (_flag_state(not side.minimal_root, "the host's, behind masks", "programs and libraries alone", side.network.origin) for side in (before, after))
    yield from _compare_states(where, "system that is shown", *system)
    sides = tuple(PlacedRules(side.paths) for side in (before, after))
    paths = sorted({rule.path for side in (before, after) for rule in side.paths}, key=lambda path: (path.anchor.value, path.tail_parts()))
    said: dict[HostPath, tuple[object, ...]] = {}
    """By path, those above before those below."""
    for path in paths:
        rules = tuple(side.rule_for_path(path) for side in sides)
        if path.anchor is Anchor.ROOT and not any(rule and rule.origin.at for rule in rules):
            continue
        one, other = (_path_state(rule, path) for rule in rules)
        pair = (one.reach, one.words, other.reach, other.words)
        above = next((said[over] for over in path.parent_paths() if over in said), None)
        said[path] = pair
        # What is below goes with it.
        if above != pair:
            yield from _compare_states(where, f"path {path}", one, other)
        yield from _compare_states(
            where, f"sockets at {path}", *(_flag_state(bool(rule and rule.socket), "reached", "not", rule.origin if rule else None) for rule in rules)
        )


def _path_state(rule: PathRule | None, path: HostPath) -> _State:
    if rule is None:
        return _State(0, "not there")
    match rule.access:
        case Access.HIDE:
            return _State(0, "hidden", rule.origin)
        case Access.SCRATCH:
            return _State(0.1, "empty at each start", rule.origin)
        case Access.READ if rule.guarded:
            return _State(1.5, "read where it exists", rule.origin)
        case Access.READ:
            return _State(1, "read", rule.origin)
        case Access.WRITE if rule.source is not None:
            return _State(0.2, "a private home's, kept", rule.origin)
        case Access.WRITE if rule.guarded and rule.path == path:
            return _State(1.9, "write, held in its place", rule.origin)
        case Access.WRITE:
            return _State(2, "write", rule.origin)


# --- the network


def _network_text(network: Network) -> str:
    listed = [*map(_entry_text, network.domains), *(f"localhost:{port}" for port in network.loopback)] if network.mode is NetworkMode.FILTERED else []
    return network.mode.value + (f" ({', '.join(listed)})" if listed else "")


def _compare_networks(where: str, before: Network, after: Network) -> Iterator[Change]:
    if before.mode is not after.mode:
        yield from _compare_states(where, "network", *(_State(_MODES[side.mode], _network_text(side), side.origin) for side in (before, after)))
        # Of names `open` reaches the public ones alone, with everything looked at: an entry may say more.
        if before.mode.is_filtered and after.mode.is_filtered:
            more = (tuple(rule for rule in side.domains if side.mode is NetworkMode.FILTERED and is_past_open(rule)) for side in (before, after))
            yield from _compare_entries(where, "host", *more, loosens=True, within=rule_covers)
    elif before.mode is NetworkMode.FILTERED:
        yield from _compare_entries(where, "host", before.domains, after.domains, loosens=True, within=rule_covers)
    if before.mode.is_filtered and after.mode.is_filtered:
        yield from _compare_entries(where, "denied host", before.denied, after.denied, loosens=False, within=rule_covers)
        proxy = (
            _flag_state(side.upstream is not None, "HTTPS_PROXY of the host, which judges no addresses", "direct", side.upstream) for side in (before, after)
        )
        yield from _compare_states(where, "way out", *proxy)
    if NetworkMode.HOST not in (before.mode, after.mode):
        yield from _compare_entries(where, "port of the host's loopback", before.loopback, after.loopback, loosens=True, within=lambda one, other: one == other)


# --- a persona


def _compare_personas(where: str, before: PersonaPolicy, after: PersonaPolicy) -> Iterator[Change]:
    both = (before, after)
    yield from _compare_entries(where, "tool", before.allowed_tools, after.allowed_tools, loosens=True, within=_covers_pattern)
    yield from _compare_entries(where, "denied tool", before.denied_tools, after.denied_tools, loosens=False, within=_covers_pattern)
    for moment, early in (("before", True), ("after", False)):
        hooks = tuple(tuple(hook for hook in side.hooks if hook.before is early) for side in both)
        if early:
            # It may refuse a call.
            yield from _compare_entries(where, f"hook {moment} calls", *hooks, loosens=False, within=_is_same_hook)
        else:
            words = (", ".join(map(_entry_text, side)) or _NOTHING for side in hooks)
            yield from _compare_states(where, f"hooks {moment} calls", *(_State(None, text) for text in words))
    yield from _compare_states(where, "runs", *(_State(None, ", else ".join(agent.binary for agent in side.agents) or _NOTHING, side.origin) for side in both))
    modes = (_flag_state(any(not agent.headless for agent in side.agents), "asked for", "refused", side.origin) for side in both)
    yield from _compare_states(where, "what no list allows is", *modes)
    bound = (_flag_state(any(agent.kind is AgentKind.OTHER for agent in side.agents), "not by every program", "by its programs", side.origin) for side in both)
    yield from _compare_states(where, "lists of tools are kept", *bound)
    past = (_flag_state(side.unsandboxed_commands, "may go past Claude Code's own sandbox", "stay in it", side.origin) for side in both)
    yield from _compare_states(where, "commands", *past)


def _covers_pattern(one: ToolPattern, other: ToolPattern) -> bool:
    """Whether a pattern is about all that another is about."""
    if "*" in other.tool:
        return one.tool in ("*", other.tool) and one.specifier in (None, other.specifier)
    return matches_tool(one, other.tool) and match_rule_to_calls(str(one), other) is Verdict.ALLOWED


def _is_same_hook(one: HookRule, other: HookRule) -> bool:
    return (str(one.matcher), one.command) == (str(other.matcher), other.command)
