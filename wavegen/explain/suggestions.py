"""What the manifest would have to say so that what was refused is let through: lines of YAML, and the list that they belong into.

The names were chosen by whoever ran inside: nothing that is no valid entry is printed as YAML.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from itertools import groupby
from typing import Any

from wavegen.core.errors import InvalidValueError, Location, one_line
from wavegen.launcher.egress.rules import DEFAULT_PORTS, is_own_loopback
from wavegen.manifest.decoder import Decoder, Text
from wavegen.manifest.model import Manifest, NetworkMode, Persona, Sandbox, Shell
from wavegen.manifest.yaml_nodes import Messages, Source, merge_overlay, parse_yaml
from wavegen.policy.domains import domain_rule
from wavegen.policy.host_rules import decide_host, is_worth_listing, needs_private, target_of
from wavegen.policy.model import DomainRule, Policy
from wavegen.policy.persona_planner import PREFIX
from wavegen.project.loader import Project
from wavegen.project.network_log import Decision, Verdict, format_time, was_refused

# YAML takes these for text without quotes: not so `null`, `1.5`, `[::1]:443`.
_PLAIN = re.compile(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+(:[0-9]+)?")
# Of what `domain_rule` returns; an IPv6 zone (`fe80::1%…`) could hold anything.
_ENTRY = re.compile(r"[a-z0-9_.-]+|\[[0-9a-f:.]+\]")


def manifest_of(project: Project) -> Manifest:
    """The manifest of a project that has a plan already: which list a rule came from stands only there."""
    messages = Messages()
    sources = [Source(name, project.sources[name].encode()) for name in (project.plan.manifest, project.plan.overlay) if name in project.sources]
    base, *top = [parse_yaml(source, messages) for source in sources]
    node = merge_overlay(base, top[0]) if base and top and top[0] else base
    decoded = Decoder(messages).decode_dataclass(Manifest, node) if node else None
    return decoded or Manifest()


class Flag(Enum):
    """What an entry must say beyond the name."""

    ALLOW_PRIVATE = "allow_private: true"
    ALLOW_NO_SNI = "allow_no_sni: true"
    NO_TLS = "tls: false"


_FLAGS = {"local-name": Flag.ALLOW_PRIVATE, "not-public": Flag.ALLOW_PRIVATE, "sni-missing": Flag.ALLOW_NO_SNI, "not-tls": Flag.NO_TLS}
# Of the other reasons none goes away with an entry, or ever should.
_ENTRY_HELPS = frozenset({"not-listed", "port", "literal", *_FLAGS})
_WEB = (0, *DEFAULT_PORTS)


@dataclass(frozen=True, slots=True)
class Place:
    """The list of the manifest that decides for a shell."""

    name: str
    at: Location | None
    """None where it is not written."""
    own: bool
    replaces: tuple[str, ...] = ()
    """The entries that hold only as long as the list is not written."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Lines of YAML with their comments, and how many names were left out for being none."""

    lines: tuple[str, ...]
    invalid: int


@dataclass(frozen=True, slots=True)
class _Named:
    """A refusal and its name in canonical form."""

    decided: Decision
    host: str
    """Its name in canonical form."""

    @property
    def host_entry(self) -> str:
        """`host` or `host:port`."""
        if _FLAGS.get(self.decided.reason) is Flag.NO_TLS:
            return f"{self.host}:{self.decided.port or 443}"
        return self.host if self.decided.port in _WEB else f"{self.host}:{self.decided.port}"


def canonical_host(name: str) -> str:
    """A name of the log in canonical form; empty for what is no single host."""
    text = name
    with contextlib.suppress(ValueError):
        # Programs say ::1, entries [::1].
        text = f"[{ipaddress.IPv6Address(name)}]"
    try:
        rule = domain_rule(Text(text, Location("")))
    except InvalidValueError:
        return ""
    # `*.com` and `name:22` are entries, too, but no names.
    return rule.host if not rule.wildcard and not rule.port and _ENTRY.fullmatch(rule.host) else ""


def sandbox_of(manifest: Manifest) -> Sandbox:
    """The manifest's sandbox, also where none is written."""
    return manifest.runtime.sandbox or Sandbox()


def persona_named(manifest: Manifest, fence: Policy) -> tuple[str, Persona] | None:
    """The persona whose fence it is, by what the manifest says; None for a shell."""
    name = fence.name.removeprefix(PREFIX)
    return (name, manifest.personas[name]) if fence.name != name and name in manifest.personas else None


def shell_name(manifest: Manifest, fence: Policy) -> str:
    """The shell, or the one that a persona's fence is a narrower form of."""
    found = persona_named(manifest, fence)
    if found is None:
        return fence.name
    sandbox = found[1].sandbox
    return str(sandbox.shell) if sandbox and sandbox.shell else "restricted"


def written_shell(manifest: Manifest, fence: Policy) -> Shell | None:
    """The shell as the manifest has it, where it is written."""
    return sandbox_of(manifest).shells.get(shell_name(manifest, fence))


def domain_list_for(shell: Policy, manifest: Manifest) -> Place:
    """The list that an entry for this shell or persona belongs into."""
    sandbox, persona = sandbox_of(manifest), persona_named(manifest, shell)
    if persona and persona[1].sandbox and persona[1].sandbox.allowed_domains is not None:
        return Place(f"personas.{persona[0]}.sandbox.allowed_domains", persona[1].sandbox.at.location_of("allowed_domains"), own=True)
    written = written_shell(manifest, shell)
    if written is not None and written.domains is not None:
        return Place(f"runtime.sandbox.shells.{shell_name(manifest, shell)}.domains", written.at.location_of("domains"), own=persona is None)
    if sandbox.default_allowed_domains is not None:
        return Place("runtime.sandbox.default_allowed_domains", sandbox.at.location_of("default_allowed_domains"), own=False)
    return Place("runtime.sandbox.default_allowed_domains", None, own=False, replaces=tuple(str(rule) for rule in shell.network.domains))


def suggest_entries(decisions: Iterable[Decision], shells: Sequence[Policy], manifest: Manifest) -> Advice:
    """What would allow what was refused, by shell, without what is allowed by now."""
    asked = [decided for decided in decisions if was_refused(decided) and decided.reason in {*_ENTRY_HELPS, "denied", "loopback-port"}]
    named = [_Named(decided, canonical_host(decided.name)) for decided in asked]
    invalid = {one.decided.name for one in named if not one.host}
    lines: list[str] = []
    for shell in shells:
        mine = [one for one in named if one.host and one.decided.shell == shell.name]
        section = _suggest_for_shell(shell, manifest, mine)
        lines += ["", *section] if lines and section else section
    return Advice(tuple(lines), len(invalid))


def _suggest_for_shell(shell: Policy, manifest: Manifest, named: Sequence[_Named]) -> list[str]:
    entries, loopback, denied = list(_entry_lines(shell, named)), list(_loopback_lines(shell, named)), list(_denied_lines(named))
    mode, written = shell.network.mode, written_shell(manifest, shell)
    reaches = mode.is_filtered
    # An empty list is no network, too, and could be longer.
    listed = mode is NetworkMode.FILTERED or (mode is NetworkMode.NONE and not (written and written.network is NetworkMode.NONE))
    lines: list[str] = []
    if entries and listed:
        lines += [*_heading_lines(shell.name, domain_list_for(shell, manifest)), *entries]
    if loopback and reaches:
        lines += [f"# shell {shell.name}: runtime.sandbox.shells.{shell_name(manifest, shell)}", *loopback]
    if denied and reaches:
        lines += [f"# shell {shell.name}: no entry allows what a deny rule refuses", *denied]
    if (entries or loopback or denied) and not lines:
        lines.append(f"# shell {shell.name}: no list counts, as its network is {mode.value}")
    return lines


def _heading_lines(shell: str, into: Place) -> Iterator[str]:
    where = f" ({one_line(str(into.at))})" if into.at else ", which is not written"
    yield f"# shell {shell}: {into.name}{where}"
    if not into.own:
        yield "# every shell and persona that has no list of its own uses this one"
    if into.replaces:
        yield f"# once it is written it replaces, so copy what is needed: {', '.join(into.replaces)}"


def _entry_lines(shell: Policy, named: Iterable[_Named]) -> Iterator[str]:
    helped = [one for one in named if one.decided.reason in _ENTRY_HELPS and is_worth_listing(one.host)]
    needed = [one for one in helped if one.decided.reason in _FLAGS or not decide_host(shell.network, one.host, one.decided.port).allowed]
    present = {str(rule): rule for rule in shell.network.domains}
    for entry, group in _group_refusals_by(needed, lambda one: one.host_entry):
        flags = {_FLAGS[one.decided.reason] for one in group if one.decided.reason in _FLAGS}
        if needs_private(group[0].host):
            flags.add(Flag.ALLOW_PRIVATE)
        rule = present.get(entry)
        if rule and all(_has_flag(rule, flag) for flag in flags):
            continue  # it was let through since
        at = rule.origin.at if rule else None
        line = f"- {_entry_yaml(entry, flags)}  # {_refusal_history(group)}" + (f"; in place of {one_line(str(at))}" if at else "")
        # A command gets such a refusal whenever it likes: nobody is to paste it unread.
        weaker = flags & {Flag.NO_TLS, Flag.ALLOW_NO_SNI}
        yield f"# {line}; nobody would look whom it asks: remove the # only where that is meant" if weaker else line


def _has_flag(rule: DomainRule, flag: Flag) -> bool:
    match flag:
        case Flag.ALLOW_PRIVATE:
            return rule.allow_private
        case Flag.ALLOW_NO_SNI:
            return rule.allow_no_sni
        case Flag.NO_TLS:
            return not rule.tls


def _entry_yaml(entry: str, flags: set[Flag]) -> str:
    if not flags:
        return entry if _PLAIN.fullmatch(entry) else f'"{entry}"'
    name = entry if _PLAIN.fullmatch(entry) and ":" not in entry else f'"{entry}"'
    return f"{{host: {name}, {', '.join(flag.value for flag in Flag if flag in flags)}}}"


def _is_own_loopback(name: str) -> bool:
    target = target_of(name)
    return target is not None and is_own_loopback(target)


def _loopback_lines(shell: Policy, named: Iterable[_Named]) -> Iterator[str]:
    asked = [one for one in named if one.decided.reason == "loopback-port" and _is_own_loopback(one.host) and one.decided.port]
    new = [(port, _refusal_history(group)) for port, group in _group_refusals_by(asked, lambda one: one.decided.port) if port not in shell.network.loopback]
    if new:
        ports = sorted({*shell.network.loopback, *(port for port, _ in new)})
        yield f"loopback: [{', '.join(map(str, ports))}]  # " + "; ".join(f"{port} {history}" for port, history in new)


def _denied_lines(named: Iterable[_Named]) -> Iterator[str]:
    asked = [one for one in named if one.decided.reason == "denied"]
    for (entry, line), group in _group_refusals_by(asked, lambda one: (one.host_entry, one.decided.line or "")):
        by = f"the deny rule at {one_line(line)}" if line else "a deny rule"
        yield f"# {entry} is refused by {by}  # {_refusal_history(group)}"


def _group_refusals_by(named: Iterable[_Named], key: Callable[[_Named], Any]) -> Iterator[tuple[Any, list[_Named]]]:
    for value, group in groupby(sorted(named, key=key), key=key):
        yield value, list(group)


def hypothetical_refusal(shell: str, name: str, port: int, reason: str) -> Decision:
    """A decision that nobody's request led to: what a launcher would write if there was one."""
    return Decision(
        time=_NEVER,
        shell=shell,
        verdict=Verdict.DENY,
        via="",
        name=name,
        port=port,
        address=None,
        rule=None,
        line=None,
        up=0,
        down=0,
        ms=0,
        reason=reason,
        text="",
    )


_NEVER = datetime.min.replace(tzinfo=UTC)


def _refusal_history(group: Sequence[_Named]) -> str:
    if all(one.decided.time == _NEVER for one in group):
        return "asked for"
    times = "once" if len(group) == 1 else f"{len(group)} times"
    return f"refused {times}, last {format_time(max(one.decided.time for one in group))} UTC"
