"""What a persona may do, from its own keys and its adapter's. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase

from wavegen.core.errors import InvalidValueError
from wavegen.manifest.decoder import Text
from wavegen.manifest.model import Adapter, NetworkMode, Persona
from wavegen.policy.model import DomainRule, Network, Origin, ToolPattern

TOOLS = (
    *("Read", "Glob", "Grep", "Edit", "Write", "NotebookEdit", "Bash"),
    *("WebFetch", "WebSearch", "Agent", "Skill", "TodoWrite"),
    *("Task", "MultiEdit", "LS", "NotebookRead", "BashOutput", "KillShell", "ExitPlanMode"),  # of earlier versions
)
"""The tools that manifests name, as they are spelled."""

WRITING_TOOLS = ("Bash", "Edit", "NotebookEdit", "Write")
"""Those that can change the project."""

FORMER = {"Task": "Agent", "LS": "Glob", "NotebookRead": "Read", "MultiEdit": "Edit"}
"""What tools were called, and are called today."""

_PATTERN = re.compile(r"(\*|[A-Za-z][A-Za-z0-9_.*-]*)(?:\((.*)\))?", re.DOTALL)
_CANONICAL = {tool.lower(): tool for tool in TOOLS}


def tool_pattern(text: Text) -> ToolPattern:
    """`Tool`, `Tool(specifier)` or `*`; the name of a known tool in any case. `Tool(*)` is the whole tool.

    Raises InvalidValueError for anything else: agents skip what they cannot read, and a rule that refuses would refuse nothing.
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None or not text.isprintable():
        raise InvalidValueError(f"'{text}' is not a tool pattern", "write Tool, or Tool(pattern) with the closing bracket at the end")
    tool, specifier = match[1], match[2]
    if specifier is not None and not specifier.strip():
        raise InvalidValueError(f"'{text}' has nothing between its brackets", f"write {tool} for all of its calls")
    whole = specifier is None or specifier.strip() == "*"
    return ToolPattern(_CANONICAL.get(tool.lower(), tool), None if whole else (specifier or "").strip(), Origin("", text.at))


def adapter_of(persona: Persona, adapters: Mapping[str, Adapter]) -> tuple[str, Adapter | None]:
    """A persona's adapter by name; an empty name is the first adapter, as Wave's own manifests mean it."""
    if persona.adapter:
        return str(persona.adapter), adapters.get(persona.adapter)
    for name, adapter in adapters.items():
        return str(name), adapter
    return "", None


def written_tool_patterns(persona: Persona, adapter: Adapter | None) -> tuple[tuple[Text, ...] | None, tuple[Text, ...]]:
    """Allowed and denied tool patterns as written.

    A persona's list of allowed tools replaces its adapter's; deny lists add up. None: no list, and every tool is
    allowed, as Wave has it; an empty list allows none.
    """
    own = persona.permissions
    general = adapter.default_permissions if adapter else None
    allowed = own.allowed_tools if own and own.allowed_tools is not None else general.allowed_tools if general else None
    return allowed, (*(general.deny if general else ()), *(own.deny if own else ()))


def matches_tool(pattern: ToolPattern, tool: str) -> bool:
    """Whether an entry is about a tool; its name may hold `*`."""
    return fnmatchcase(tool, FORMER.get(pattern.tool, pattern.tool))


def may_write(allowed: tuple[ToolPattern, ...], denied: tuple[ToolPattern, ...]) -> bool:
    """Whether any tool is left that can change the project: if not, the project is read-only for this persona.

    A deny entry without a specifier takes the whole tool away; a narrower one leaves some of it.
    """

    def is_tool_left(tool: str) -> bool:
        gone = any(pattern.specifier is None and matches_tool(pattern, tool) for pattern in denied)
        return not gone and any(matches_tool(pattern, tool) for pattern in allowed)

    return any(is_tool_left(tool) for tool in WRITING_TOOLS)


def narrow_network(network: Network, domains: tuple[DomainRule, ...], origin: Origin) -> Network:
    """A shell's network with a persona's list in place of the default list; a persona never reaches more than its shell's mode lets through."""
    if network.mode is NetworkMode.NONE:
        return network
    if not domains:
        return Network(mode=NetworkMode.NONE, origin=origin)
    return replace(network, mode=NetworkMode.FILTERED, origin=origin, domains=domains)
