"""What a persona may do, from its own keys and its adapter's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from wavegen.manifest import Adapter, NetworkMode, Persona
from wavegen.policy import DomainRule, Network, Origin

_WRITING_TOOLS = ("Bash", "Edit", "MultiEdit", "NotebookEdit", "Write")


def adapter_of(persona: Persona, adapters: Mapping[str, Adapter]) -> tuple[str, Adapter | None]:
    """A persona's adapter by name; an empty name is the first adapter, as Wave's own manifests mean it."""
    if persona.adapter:
        return str(persona.adapter), adapters.get(persona.adapter)
    for name, adapter in adapters.items():
        return str(name), adapter
    return "", None


def tools(persona: Persona, adapter: Adapter | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Allowed and denied tool patterns.

    A persona's list of allowed tools replaces its adapter's; deny lists add up. Without any list every tool is
    allowed, as Wave has it; an empty list allows none.
    """
    own = persona.permissions
    general = adapter.default_permissions if adapter else None
    allowed = own.allowed_tools if own and own.allowed_tools is not None else general.allowed_tools if general and general.allowed_tools is not None else ("*",)
    denied = (*(general.deny if general else ()), *(own.deny if own else ()))
    return tuple(dict.fromkeys(map(str, allowed))), tuple(dict.fromkeys(map(str, denied)))


def may_write(allowed: tuple[str, ...], denied: tuple[str, ...]) -> bool:
    """Whether any tool is left that can change the project: if not, the project is read-only for this persona.

    `X` and `X(*)` in a deny list take the whole tool away; a narrower pattern leaves some of it.
    """
    gone = {pattern.removesuffix("(*)") for pattern in denied}
    if "*" in gone:
        return False
    return any(tool not in gone and any(pattern == "*" or pattern.split("(")[0].strip() == tool for pattern in allowed) for tool in _WRITING_TOOLS)


def narrowed(network: Network, domains: tuple[DomainRule, ...], origin: Origin) -> Network:
    """A shell's network with a persona's list in place of the default list; a persona never reaches more than its shell's mode lets through."""
    if network.mode is NetworkMode.NONE:
        return network
    if not domains:
        return Network(mode=NetworkMode.NONE, origin=origin)
    return replace(network, mode=NetworkMode.FILTERED, origin=origin, domains=domains)


def covers(rule: DomainRule, other: DomainRule) -> bool:
    """Whether everything that `other` lets through, `rule` lets through too."""
    names = other.host == rule.host if not rule.wildcard else other.host.endswith("." + rule.host) or (other.wildcard and other.host == rule.host)
    return names and (not other.wildcard or rule.wildcard) and rule.port in ("*", other.port) and other.flags().items() <= rule.flags().items()
