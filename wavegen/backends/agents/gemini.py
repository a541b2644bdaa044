"""Gemini CLI's policy of each persona: its lists of tools as rules, which `--admin-policy` puts above all others. Nothing asks.

Gemini CLI skips a whole file for one mistake in it, and says so on stderr alone: whatever a list holds, the file must stay valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from wavegen.backends import File, generated_header
from wavegen.backends.agents import instructions
from wavegen.backends.agents.tool_lists import (
    EDITS,
    Share,
    agent_gap,
    allowed_path,
    allows_git_by_pattern,
    allows_tools_by_default,
    common_gaps,
    denied_path,
    has_unclear_command_suffix,
    normalise_command_pattern,
    personas_with_agent,
    share_of_tool,
    specifier_and_its_parts,
)
from wavegen.core.quote import escape_comment, quote_toml
from wavegen.policy.model import Agent, AgentKind, Effect, Gap, Origin, PersonaPolicy, Plan, ToolPattern

NAME = "gemini"
FILE = "gemini.toml"

# The tools of a manifest, and what they are here.
_TOOLS = {
    "Read": ("read_file", "read_many_files"),
    "Glob": ("glob", "list_directory"),
    "Grep": ("grep_search",),
    "Edit": ("replace",),
    "Write": ("write_file",),
    "Bash": ("run_shell_command",),
    "WebFetch": ("web_fetch",),
    "WebSearch": ("google_web_search",),
    "Agent": ("invoke_agent",),
    "Skill": ("activate_skill",),
    "TodoWrite": ("write_todos",),
}
_PATHS = {"Read": "read_file", "Edit": "replace", "Write": "write_file"}
_SPECIFIED = (*_PATHS, "Bash")
_SHELL = "run_shell_command"
# Of rules that match, the one of the highest priority holds.
_GROUND, _ALLOW, _DENY = 900, 950, 980
# Gemini CLI drops a rule whose expression is longer than 2048 characters.
_LONGEST = 1500
# Arguments are compared as JSON text in which every pair of the top level stands between two NULs, so that none can be forged further in.
_ANY = r"[^\x00]*"
_NESTED_COMMAND = r'[{,]"command":'
_GIT_WRITES = rf"git {_ANY}--output[= \\]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the file: tools, and what of their arguments it is about."""

    tools: tuple[str, ...]
    key: str = ""
    """commandPrefix, commandRegex or argsPattern; empty for every call."""
    value: str = ""
    allow: bool
    priority: int
    origin: Origin

    def toml_lines(self) -> Iterator[str]:
        """The rule as TOML."""
        yield f"# {escape_comment(self.origin.text_without_line)}"
        yield "[[rule]]"
        yield f"toolName = {_toml_tool_names(self.tools)}"
        if self.key:
            yield f"{self.key} = {quote_toml(self.value)}"
        yield f'decision = "{"allow" if self.allow else "deny"}"'
        yield f"priority = {self.priority}"
        if not self.allow:
            yield 'denyMessage = "not among what this persona may do"'


def _toml_tool_names(tools: tuple[str, ...]) -> str:
    return quote_toml(tools[0]) if len(tools) == 1 else f"[{', '.join(map(quote_toml, tools))}]"


def render(plan: Plan) -> Iterator[File]:
    """personas/<name>/gemini.toml."""
    for persona, _ in personas_with_agent(plan, AgentKind.GEMINI):
        blocks = [f"# {generated_header(plan)}", *("\n".join(rule.toml_lines()) for rule in gemini_policy_rules(persona))]
        yield File(path=f"{instructions.persona_directory(persona)}/{FILE}", text="\n\n".join(blocks) + "\n")


# --- rules


def gemini_policy_rules(persona: PersonaPolicy) -> Iterator[Rule]:
    """The rules of a persona, those that win last."""
    yield Rule(tools=("*",), allow=allows_tools_by_default(persona), priority=_GROUND, origin=Origin("whatever no rule below is about"))
    for tool in _TOOLS:
        yield from _allow_rules(tool, share_of_tool(persona, tool))
    for tool in _TOOLS:
        yield from _deny_rules(tool, share_of_tool(persona, tool))
    if share_of_tool(persona, "Bash").some:
        why = Origin("a command is known by the call's own arguments, not by what they hold")
        yield Rule(tools=(_SHELL,), key="argsPattern", value=_NESTED_COMMAND, allow=False, priority=_DENY, origin=why)
    if allows_git_by_pattern(persona):
        yield Rule(tools=(_SHELL,), key="commandRegex", value=_GIT_WRITES, allow=False, priority=_DENY, origin=Origin("git writes a file by it"))


def _allow_rules(tool: str, found: Share) -> Iterator[Rule]:
    if found.whole and found.whole.tool != "*":
        yield Rule(tools=_TOOLS[tool], allow=True, priority=_ALLOW, origin=_pattern_origin(found.whole))
    for pattern in found.some:
        part = _allowed_arguments(tool, pattern)
        if part:
            yield Rule(tools=(_PATHS.get(tool, _SHELL),), key=part[0], value=part[1], allow=True, priority=_ALLOW, origin=_pattern_origin(pattern))


def _deny_rules(tool: str, found: Share) -> Iterator[Rule]:
    if found.gone:
        yield Rule(tools=_TOOLS[tool], allow=False, priority=_DENY, origin=_pattern_origin(found.gone))
    for pattern in found.denied if found.has_allowed_calls else ():
        parts = _denied_arguments(tool, pattern)
        if parts is None:
            yield Rule(tools=_TOOLS[tool], allow=False, priority=_DENY, origin=_pattern_origin(pattern))
            continue
        for key, value in parts:
            yield Rule(tools=(_PATHS.get(tool, _SHELL),), key=key, value=value, allow=False, priority=_DENY, origin=_pattern_origin(pattern))
        if tool == "Read":  # its other tool takes many paths, and patterns of them
            yield Rule(tools=_TOOLS[tool][1:], allow=False, priority=_DENY, origin=_pattern_origin(pattern))


def _pattern_origin(pattern: ToolPattern) -> Origin:
    return Origin(str(pattern), pattern.origin.at) if pattern.origin.at else pattern.origin


# --- expressions

Part = tuple[str, str]
_FIRST = re.compile(r"([^*?]*[^*? ])( ?\*)?")


def _allowed_arguments(tool: str, pattern: ToolPattern) -> Part | None:
    """What of a tool's arguments an entry allows; None for what cannot be said exactly."""
    specifier = pattern.specifier or "*"
    if len(_literal_to_regex(specifier)) > _LONGEST or (tool == "Bash" and has_unclear_command_suffix(specifier)):
        return None
    if tool == "Bash":
        words = _FIRST.fullmatch(normalise_command_pattern(specifier))
        if not words:
            return None
        return ("commandPrefix", words[1]) if words[2] else ("commandRegex", _literal_to_regex(words[1]) + '"')
    path = allowed_path(specifier) if tool in _PATHS else None
    if path is None:
        return None
    # A model may write a path from the root or from the project, which is known only when it is started: so its end counts.
    start = "/" if path.absolute else "" if path.tail.startswith("*") else rf"(?:|{_ANY}/)"
    return "argsPattern", rf'\x00"file_path":"(?!{_ANY}\.\.){start}{_wildcards_to_regex(path.tail)}"\x00'


def _denied_arguments(tool: str, pattern: ToolPattern) -> tuple[Part, ...] | None:
    """What of a tool's arguments an entry denies; None for all of them."""
    found = [_denied_argument(tool, text) for text in specifier_and_its_parts(pattern.specifier or "*")]
    parts = tuple(part for part in found if part)
    return parts if len(parts) == len(found) else None


def _denied_argument(tool: str, specifier: str) -> Part | None:
    if tool == "Bash":
        if has_unclear_command_suffix(specifier):
            return None
        text = normalise_command_pattern(specifier)
        # A blank may be several; after a word comes a blank, an escaped quote, tab or newline, or the end.
        body, end = (text[:-2], r'[ "\\]') if text.endswith(" *") else (text[:-1], "") if text.endswith("*") else (text, '"')
        found = _wildcards_to_regex(body).replace(" ", " +") + end
        return ("commandRegex", found) if len(found) <= _LONGEST else None
    if tool not in _PATHS:
        return None
    tail = denied_path(specifier)
    found = rf'\x00"file_path":"(?:|{_ANY}/){_wildcards_to_regex(tail)}["/]'
    return ("argsPattern", found) if len(found) <= _LONGEST else None


def _wildcards_to_regex(text: str) -> str:
    """A pattern with `*` and `?` as a regular expression for JSON text."""
    parts = re.split(r"(/\*\*/|\*+|\?)", text)
    said = {"?": r"[^\x00]", "/**/": f"/(?:|{_ANY}/)"}  # a ** between slashes may be no directory at all
    return "".join(said.get(part) or (_ANY if part.startswith("*") else _literal_to_regex(part)) for part in parts)


def _literal_to_regex(text: str) -> str:
    """Text as JSON writes it inside of a string, as a regular expression."""
    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    return re.sub(r"[\[\]{}()*+?.\\^$|]", r"\\\g<0>", inside)


# --- what it does not hold


def gaps(plan: Plan) -> Iterator[Gap]:
    """What Gemini CLI cannot be told of a persona."""
    for persona, agent in personas_with_agent(plan, AgentKind.GEMINI):
        what = "gemini does not read the persona's instructions: only its settings could name the file, and it reads no settings of wavegen in the sandbox"
        remedy = "let the prompt begin with @ and the path of the persona's AGENTS.md"
        yield agent_gap(NAME, persona, Effect.IGNORED, what, remedy, agent.origin)
        yield from common_gaps(NAME, persona, agent, _SPECIFIED)
        yield from _command_gaps(persona)
        yield from _path_gaps(persona, agent)
        yield from _notebook_gaps(persona)


def _command_gaps(persona: PersonaPolicy) -> Iterator[Gap]:
    bash = share_of_tool(persona, "Bash")
    for pattern in bash.some:
        if _allowed_arguments("Bash", pattern) is None:
            what = f"{pattern} is not allowed: gemini knows a command by how it begins, up to the end of a word"
            yield agent_gap(NAME, persona, Effect.STRICTER, what, "write the words that it begins with, and * behind them", pattern.origin)
    for pattern in bash.denied if bash.has_allowed_calls else ():
        if _denied_arguments("Bash", pattern) is None:
            what = "a pattern is longer than gemini reads, or has `:*` before its end: it denies the whole tool"
            yield agent_gap(NAME, persona, Effect.STRICTER, what, "write a shorter one, and * where any text may stand", pattern.origin)


def _path_gaps(persona: PersonaPolicy, agent: Agent) -> Iterator[Gap]:
    shares = [share_of_tool(persona, tool) for tool in _PATHS]
    some = [(tool, pattern) for tool in _PATHS for pattern in share_of_tool(persona, tool).some]
    if some or any(found.has_allowed_calls and found.denied for found in shares):
        what = "paths are known by their ends, and * crosses directories: x/a/b is what a/b is"
        yield agent_gap(NAME, persona, Effect.WEAKER, what, "leave files to the fence: project: read, paths", agent.origin)
    for tool, pattern in some:
        if _allowed_arguments(tool, pattern) is None:
            what = f"{pattern} is not allowed: gemini is told neither classes of characters nor .. nor the home directory in paths, nor long ones"
            yield agent_gap(NAME, persona, Effect.STRICTER, what, "write a path in the project, or an absolute one", pattern.origin)
    if shares[0].has_allowed_calls and share_of_tool(persona, "Grep").has_allowed_calls:
        for pattern in shares[0].denied:
            what = f"{pattern} stops reading, not searching: a search shows lines of the file"
            yield agent_gap(NAME, persona, Effect.WEAKER, what, "list it in deny_read_paths, which the sandbox enforces", pattern.origin)


def _notebook_gaps(persona: PersonaPolicy) -> Iterator[Gap]:
    notebook = share_of_tool(persona, "NotebookEdit")
    if (notebook.gone or notebook.denied) and any(share_of_tool(persona, tool).has_allowed_calls for tool in EDITS[:2]):
        what = "notebooks are files like others: they are written where files are"
        origin = (notebook.gone or notebook.denied[0]).origin
        yield agent_gap(NAME, persona, Effect.WEAKER, what, "restrict it by the sandbox: project: read, paths", origin)
