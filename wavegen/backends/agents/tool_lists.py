"""What a persona's lists of tools say of one tool, for the programs that know tools by other names. Pure: no program's spelling is here."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from wavegen.policy.model import Agent, AgentKind, Effect, Gap, Origin, PersonaPolicy, Plan, ToolPattern
from wavegen.policy.persona_tools import FORMER, TOOLS, matches_tool

EDITS = ("Edit", "Write", "NotebookEdit")
"""What changes files, besides commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What is left of one tool."""

    whole: ToolPattern | None
    """The entry that allows every call, if one does and none denies them."""
    some: tuple[ToolPattern, ...]
    """The entries that allow some calls; none where the whole is allowed, or denied."""
    denied: tuple[ToolPattern, ...]
    """The entries that deny some calls."""
    gone: ToolPattern | None
    """The entry that denies every call."""

    @property
    def has_allowed_calls(self) -> bool:
        """Whether any call is left."""
        return bool(self.whole or self.some)


def share_of_tool(persona: PersonaPolicy, tool: str) -> Share:
    """What the lists leave of a tool. A deny entry for the whole of it wins over all others."""
    allowed = tuple(pattern for pattern in persona.allowed_tools if matches_tool(pattern, tool))
    denied = tuple(pattern for pattern in persona.denied_tools if matches_tool(pattern, tool))
    gone = next((pattern for pattern in denied if pattern.specifier is None), None)
    whole = None if gone else next((pattern for pattern in allowed if pattern.specifier is None), None)
    return Share(
        whole=whole,
        some=() if gone or whole else allowed,
        denied=tuple(pattern for pattern in denied if pattern.specifier is not None),
        gone=gone,
    )


def allows_tools_by_default(persona: PersonaPolicy) -> bool:
    """Whether whatever is not denied is allowed."""
    return any(pattern.tool == "*" and pattern.specifier is None for pattern in persona.allowed_tools) and not any(
        pattern.tool == "*" and pattern.specifier is None for pattern in persona.denied_tools
    )


def restricts_tools(persona: PersonaPolicy) -> bool:
    """Whether the lists say anything at all."""
    return bool(persona.denied_tools) or not allows_tools_by_default(persona)


def personas_with_agent(plan: Plan, kind: AgentKind) -> Iterator[tuple[PersonaPolicy, Agent]]:
    """The personas that a program may work as, with the first of their agents of its kind."""
    for persona in plan.personas:
        agent = next((agent for agent in persona.agents if agent.kind is kind), None)
        if agent:
            yield persona, agent


# --- specifiers


def specifier_and_its_parts(specifier: str) -> tuple[str, ...]:
    """A pattern, and the parts that it has where it is a list with commas: some mean it as one, some as each of them."""
    parts = tuple(part.strip() for part in specifier.split(",") if part.strip())
    return (specifier, *parts) if len(parts) > 1 else (specifier,)


def has_unclear_command_suffix(specifier: str) -> bool:
    """Whether a pattern for commands has `:*` where no program takes it as it is meant: with nothing before it, or something behind it."""
    body = specifier.removesuffix(":*").rstrip()
    return not body or ":*" in body


def normalise_command_pattern(specifier: str) -> str:
    """The pattern for a command: `git log:*` is the older spelling of `git log *`."""
    return specifier.removesuffix(":*").rstrip() + " *" if specifier.endswith(":*") else specifier


def allows_git_by_pattern(persona: PersonaPolicy) -> bool:
    """Whether git is allowed by patterns, and not as a whole. What only looks at a repository writes a file by --output."""
    commands = [normalise_command_pattern(pattern.specifier or "") for pattern in share_of_tool(persona, "Bash").some]
    return any(text.startswith("git ") and text != "git *" for text in commands)


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A path as a manifest's lists write it: `*` for any text, here also across directories."""

    tail: str
    """Without what it hangs from."""
    absolute: bool
    deep: bool
    """Whether it holds in every directory, as .gitignore has it for what has no slash."""


_ODD = re.compile(r"[\[\]{}\\]|:\*|(?:^|/)\.\.(?:/|$)|^[~!$]")


def allowed_path(specifier: str) -> PathPattern | None:
    """The path of an entry that allows; None for what no program here can be told exactly: classes, `..`, the home directory."""
    parts = [part for part in specifier.split("/") if part not in ("", ".")]
    if _ODD.search(specifier) or not parts:
        return None
    if specifier.endswith("/"):
        parts.append("*")
    absolute = specifier.startswith("/")
    deep = not absolute and (len(parts) == 1 or parts[0] == "**")
    tail = "/".join(parts).removeprefix("**/")
    return PathPattern(tail, absolute, deep)


def denied_path(specifier: str) -> str:
    """The end of a path for an entry that denies: whatever it hangs from, and `*` for what cannot be told."""
    parts = [part for part in specifier.split("/") if part not in ("", ".")]
    while parts and (parts[0] in ("..", "**", "~") or (len(parts) > 1 and parts[0].startswith(("~", "$")))):
        del parts[0]
    if ".." in parts or ":*" in specifier or specifier.startswith("!"):
        return "*"
    tail = re.sub(r"\[[^\]]*\]|\{[^}]*\}|[\[\]{}\\]|^[~$]", "*", "/".join(parts))
    # `a/**/b` is also a/b.
    return re.sub(r"/(?:\*\*+/)+", "/*", tail) or "*"


# --- what is the same for all of them


def agent_gap(program: str, persona: PersonaPolicy, effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:  # noqa: PLR0913, PLR0917
    """A gap of a program. Its text names no persona, so that what many have is said once."""
    return Gap(backend=program, shell=persona.fence.name, effect=effect, what=what, remedy=remedy, origin=origin)


def common_gaps(program: str, persona: PersonaPolicy, agent: Agent, specified: Collection[str]) -> Iterator[Gap]:
    """Hooks, tools that the program does not have, specifiers that it does not take, and what patterns of commands are worth.

    `specified`: the tools of which the program can be allowed and denied some calls.
    """
    for hook in persona.hooks:
        what = f"{program} does not run this hook: wavegen passes hooks only to Claude Code"
        yield agent_gap(program, persona, Effect.IGNORED, what, "use Claude Code for this persona, or a git hook or CI", hook.origin)
    for patterns, allows in ((persona.allowed_tools, True), (persona.denied_tools, False)):
        for pattern in patterns:
            yield from _pattern_gaps(program, persona, pattern, specified, allows=allows)
    bash = share_of_tool(persona, "Bash")
    if bash.some or (bash.whole and bash.denied):
        what = "command patterns are no barrier: an allowed command may write files (git log --output=x, > x) or start other programs (find -exec, sh -c)"
        yield agent_gap(program, persona, Effect.WEAKER, what, "leave files and network to the fence: project: read, allowed_domains", agent.origin)
    yield from session_leftover_gaps(program, persona, agent, agent.origin)


def session_leftover_gaps(program: str, persona: PersonaPolicy, agent: Agent, origin: Origin) -> Iterator[Gap]:
    """What a session may leave to the next one: said once for a persona, by the first of its programs that has lists."""
    first = next((one for one in persona.agents if one.kind in _LISTED), None)
    if agent != first or not (persona.fence.fenced and persona.fence.private_home and restricts_tools(persona)) or share_of_tool(persona, "Bash").whole:
        return
    if share_of_tool(persona, "Bash").some or any(share_of_tool(persona, tool).has_allowed_calls for tool in EDITS):
        what = "files that a session writes to the private home (shell start-up files, ~/.gitconfig, the agent's memory) stay for the next one,"
        what += " and may run commands that the list does not allow, within the sandbox"
        yield agent_gap(program, persona, Effect.WEAKER, what, "write home: tmpfs", origin)


_LISTED = (AgentKind.CLAUDE, AgentKind.OPENCODE, AgentKind.GEMINI)


def _pattern_gaps(program: str, persona: PersonaPolicy, pattern: ToolPattern, specified: Collection[str], *, allows: bool) -> Iterator[Gap]:
    about = [tool for tool in TOOLS if tool not in FORMER and matches_tool(pattern, tool)]
    if not about:
        if allows:
            what = f"{pattern} is not allowed: {program} has no tool that is known by that name"
            yield agent_gap(program, persona, Effect.STRICTER, what, "remove the entry", pattern.origin)
        elif allows_tools_by_default(persona):
            what = f"{pattern} is not denied: {program} has no tool that is known by that name"
            yield agent_gap(program, persona, Effect.IGNORED, what, "list what is allowed", pattern.origin)
    elif pattern.specifier is not None and not set(about) & set(specified):
        said = "is not allowed" if allows else "denies the whole tool"
        what = f"{pattern} {said}: {program} knows no part of this tool's calls as the pattern means it"
        yield agent_gap(
            program, persona, Effect.STRICTER, what, "name the whole tool; what it reaches is the fence's: allowed_domains, deny_read_paths", pattern.origin
        )
    elif pattern.specifier is not None and len(specifier_and_its_parts(pattern.specifier)) > 1:
        what = f"{pattern} is one pattern to {program}" + ("" if allows else "; each part of it is denied as well")
        yield agent_gap(program, persona, Effect.STRICTER, what, "write one entry for each", pattern.origin)
