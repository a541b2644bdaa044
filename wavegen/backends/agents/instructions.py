"""What a persona is told: its restrictions in words, from the policy that its fence and its agent's settings come from.

Advice alone: nothing here is enforced, and nothing here is not. A model that knows what is refused does not try it, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import assert_never

from wavegen.backends import File
from wavegen.core.errors import one_line
from wavegen.manifest.model import NetworkMode
from wavegen.policy.model import Access, AgentKind, Anchor, Gap, PathRule, PersonaPolicy, Plan, Policy, ToolPattern

CLAUDE, OTHERS = "CLAUDE.md", "AGENTS.md"
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")


def persona_directory(persona: PersonaPolicy) -> str:
    """Where a persona's files are, below the project."""
    return f".wavegen/personas/{persona.name}"


def instruction_file_names(persona: PersonaPolicy) -> tuple[str, ...]:
    """The names under which a persona's programs read what they are told."""
    kinds = {agent.kind for agent in persona.agents}
    names = ((CLAUDE, AgentKind.CLAUDE in kinds), (OTHERS, bool(kinds - {AgentKind.CLAUDE}) or not kinds))
    return tuple(name for name, wanted in names if wanted)


def render(plan: Plan) -> Iterator[File]:
    """personas/<name>/CLAUDE.md, and AGENTS.md for the programs that read that."""
    for persona in plan.personas:
        for name in instruction_file_names(persona):
            yield File(path=f"{persona_directory(persona)}/{name}", text="\n".join(instruction_lines(persona, imports=name == CLAUDE)) + "\n", header=False)


def gaps(plan: Plan) -> Iterator[Gap]:
    """None: what is told is not what holds."""
    del plan
    return iter(())


def instruction_lines(persona: PersonaPolicy, *, imports: bool) -> Iterator[str]:
    """The lines of a persona's file. `imports`: whether `@path` is read as the file at that path, as Claude Code does."""
    yield f"# Persona {persona.name}"
    yield ""
    if persona.description:
        yield one_line(persona.description)
        yield ""
    if persona.prompt:
        yield f"Your role is described in {_markdown_code_span(persona.prompt.tail)}: {'its text follows' if imports and _PLAIN.fullmatch(persona.prompt.tail) else 'read that file first'}; follow it."
        yield ""
    if imports:
        # From this file's own directory. What is not there is silently nothing.
        yield from (f"@../../../{path}" for path in _imported_paths(persona))
        yield ""
    if persona.prompt_text.strip():
        yield persona.prompt_text.strip()
        yield ""
    yield "## Restrictions"
    yield ""
    yield from _enforcement_lines(persona)
    yield ""
    yield from _tool_lines(persona)
    yield from _network_lines(persona.fence)
    yield ""
    yield from _path_lines(persona)


def _enforcement_lines(persona: PersonaPolicy) -> Iterator[str]:
    if persona.fence.fenced:
        yield "They are enforced outside of you: by the operating system (network and files) and by your program (tools)."
    else:
        yield "You have no fence: only your program enforces the list of tools, and nothing enforces the rest."
    yield "What is refused is refused on purpose. Do not look for a way round it: say what you could not do, and why you wanted to."


def _tool_lines(persona: PersonaPolicy) -> Iterator[str]:
    if persona.denied_tools:
        yield "### Denied tools"
        yield ""
        yield from _pattern_lines(persona.denied_tools)
        yield ""
    if any(pattern.tool == "*" and pattern.specifier is None for pattern in persona.allowed_tools):
        return
    yield "### Allowed tools"
    yield ""
    if persona.allowed_tools:
        yield "You may ONLY use the following tools:"
        yield ""
        yield from _pattern_lines(persona.allowed_tools)
    else:
        yield "None: answer from what you are given."
    yield ""


def _pattern_lines(patterns: tuple[ToolPattern, ...]) -> Iterator[str]:
    for pattern in patterns:
        yield f"- {_markdown_code_span(str(pattern))}"


def _network_lines(fence: Policy) -> Iterator[str]:
    network = fence.network
    yield "### Network access"
    yield ""
    match network.mode:
        case NetworkMode.HOST:
            yield "The network is the host's."
        case NetworkMode.NONE:
            yield "There is no network." if fence.fenced else "Nothing keeps you from it, but you are not to use the network."
        case NetworkMode.OPEN:
            yield "Every public host can be reached, and no host of a local network."
        case NetworkMode.FILTERED:
            yield "Network requests are restricted to:" if fence.fenced else "Nothing keeps you from other hosts, but you are to keep to:"
            yield ""
            yield from (f"- `{rule}`" for rule in network.domains)
            yield from (f"- `localhost:{port}`, a service of the host" for port in network.loopback)
        case _:
            assert_never(network.mode)
    if network.denied:
        yield ""
        yield "Never:"
        yield ""
        yield from (f"- `{str(rule).removesuffix(':*')}`" for rule in network.denied)


def _path_lines(persona: PersonaPolicy) -> Iterator[str]:
    fence = persona.fence
    written = [rule for rule in fence.paths if rule.origin.at and rule.path.tail]
    yield "### Files"
    yield ""
    if not fence.fenced:
        yield "- Write the project alone." if persona.project_writable else "- Change nothing in the project."
        return
    yield "- The project can be written, but for what makes up this fence." if persona.project_writable else "- The project is read-only."
    yield "- Your home directory is private to this persona, and `/tmp` to this session."
    for word, access in (("Also writable", Access.WRITE), ("Also readable", Access.READ), ("Hidden", Access.HIDE)):
        found = [rule for rule in written if rule.access is access and not rule.pinned]
        if found:
            yield f"- {word}: {', '.join(_markdown_code_span(_display_path(rule)) for rule in found)}."


def _display_path(rule: PathRule) -> str:
    return rule.path.tail if rule.path.anchor is Anchor.PROJECT else str(rule.path)


def _imported_paths(persona: PersonaPolicy) -> Iterator[str]:
    """The role's prompt, where its path can be written as an import, and what the project tells every agent."""
    if persona.prompt and _PLAIN.fullmatch(persona.prompt.tail):
        yield persona.prompt.tail
    yield "CLAUDE.md"


def _markdown_code_span(text: str) -> str:
    """A code span of Markdown: fenced by more backticks than it holds (CommonMark 6.1)."""
    shown = one_line(text)
    if "`" not in shown:
        return f"`{shown}`"
    ticks = "`" * (1 + max(map(len, re.findall("`+", shown))))
    return f"{ticks} {shown} {ticks}"
