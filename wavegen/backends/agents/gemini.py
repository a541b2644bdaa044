"""Gemini CLI's policy of each persona: its lists of tools as rules, which `--admin-policy` puts above all others. Nothing asks.

Gemini CLI skips a whole file for one mistake in it, and says so on stderr alone: whatever a list holds, the file must stay valid.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from wavegen.backends import File, header
from wavegen.backends.agents import instructions
from wavegen.backends.agents.tool_lists import (
    EDITS,
    Share,
    allowed_path,
    command,
    common_gaps,
    denied_path,
    every,
    everything,
    gap,
    part_of_git,
    share,
    unclear,
    working,
)
from wavegen.core.quote import comment, toml
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

    def lines(self) -> Iterator[str]:
        """The rule as TOML."""
        yield f"# {comment(self.origin.written)}"
        yield "[[rule]]"
        yield f"toolName = {_names(self.tools)}"
        if self.key:
            yield f"{self.key} = {toml(self.value)}"
        yield f'decision = "{"allow" if self.allow else "deny"}"'
        yield f"priority = {self.priority}"
        if not self.allow:
            yield 'denyMessage = "not among what this persona may do"'


def _names(tools: tuple[str, ...]) -> str:
    return toml(tools[0]) if len(tools) == 1 else f"[{', '.join(map(toml, tools))}]"


def render(plan: Plan) -> Iterator[File]:
    """personas/<name>/gemini.toml."""
    for persona, _ in working(plan, AgentKind.GEMINI):
        blocks = [f"# {header(plan)}", *("\n".join(rule.lines()) for rule in rules(persona))]
        yield File(path=f"{instructions.directory(persona)}/{FILE}", text="\n\n".join(blocks) + "\n")


# --- rules


def rules(persona: PersonaPolicy) -> Iterator[Rule]:
    """The rules of a persona, those that win last."""
    yield Rule(tools=("*",), allow=everything(persona), priority=_GROUND, origin=Origin("whatever no rule below is about"))
    for tool in _TOOLS:
        yield from _allowing(tool, share(persona, tool))
    for tool in _TOOLS:
        yield from _denying(tool, share(persona, tool))
    if share(persona, "Bash").some:
        why = Origin("a command is known by the call's own arguments, not by what they hold")
        yield Rule(tools=(_SHELL,), key="argsPattern", value=_NESTED_COMMAND, allow=False, priority=_DENY, origin=why)
    if part_of_git(persona):
        yield Rule(tools=(_SHELL,), key="commandRegex", value=_GIT_WRITES, allow=False, priority=_DENY, origin=Origin("git writes a file by it"))


def _allowing(tool: str, found: Share) -> Iterator[Rule]:
    if found.whole and found.whole.tool != "*":
        yield Rule(tools=_TOOLS[tool], allow=True, priority=_ALLOW, origin=_said(found.whole))
    for pattern in found.some:
        part = _allowed(tool, pattern)
        if part:
            yield Rule(tools=(_PATHS.get(tool, _SHELL),), key=part[0], value=part[1], allow=True, priority=_ALLOW, origin=_said(pattern))


def _denying(tool: str, found: Share) -> Iterator[Rule]:
    if found.gone:
        yield Rule(tools=_TOOLS[tool], allow=False, priority=_DENY, origin=_said(found.gone))
    for pattern in found.denied if found.kept else ():
        parts = _denied(tool, pattern)
        if parts is None:
            yield Rule(tools=_TOOLS[tool], allow=False, priority=_DENY, origin=_said(pattern))
            continue
        for key, value in parts:
            yield Rule(tools=(_PATHS.get(tool, _SHELL),), key=key, value=value, allow=False, priority=_DENY, origin=_said(pattern))
        if tool == "Read":  # its other tool takes many paths, and patterns of them
            yield Rule(tools=_TOOLS[tool][1:], allow=False, priority=_DENY, origin=_said(pattern))


def _said(pattern: ToolPattern) -> Origin:
    return Origin(str(pattern), pattern.origin.at) if pattern.origin.at else pattern.origin


# --- expressions

Part = tuple[str, str]
_FIRST = re.compile(r"([^*?]*[^*? ])( ?\*)?")


def _allowed(tool: str, pattern: ToolPattern) -> Part | None:
    """What of a tool's arguments an entry allows; None for what cannot be said exactly."""
    specifier = pattern.specifier or "*"
    if len(_literal(specifier)) > _LONGEST or (tool == "Bash" and unclear(specifier)):
        return None
    if tool == "Bash":
        words = _FIRST.fullmatch(command(specifier))
        if not words:
            return None
        return ("commandPrefix", words[1]) if words[2] else ("commandRegex", _literal(words[1]) + '"')
    path = allowed_path(specifier) if tool in _PATHS else None
    if path is None:
        return None
    # A model may write a path from the root or from the project, which is known only when it is started: so its end counts.
    start = "/" if path.absolute else "" if path.tail.startswith("*") else rf"(?:|{_ANY}/)"
    return "argsPattern", rf'\x00"file_path":"(?!{_ANY}\.\.){start}{_expression(path.tail)}"\x00'


def _denied(tool: str, pattern: ToolPattern) -> tuple[Part, ...] | None:
    """What of a tool's arguments an entry denies; None for all of them."""
    found = [_part(tool, text) for text in every(pattern.specifier or "*")]
    parts = tuple(part for part in found if part)
    return parts if len(parts) == len(found) else None


def _part(tool: str, specifier: str) -> Part | None:
    if tool == "Bash":
        if unclear(specifier):
            return None
        text = command(specifier)
        # A blank may be several; after a word comes a blank, an escaped quote, tab or newline, or the end.
        body, end = (text[:-2], r'[ "\\]') if text.endswith(" *") else (text[:-1], "") if text.endswith("*") else (text, '"')
        found = _expression(body).replace(" ", " +") + end
        return ("commandRegex", found) if len(found) <= _LONGEST else None
    if tool not in _PATHS:
        return None
    tail = denied_path(specifier)
    found = rf'\x00"file_path":"(?:|{_ANY}/){_expression(tail)}["/]'
    return ("argsPattern", found) if len(found) <= _LONGEST else None


def _expression(text: str) -> str:
    """A pattern with `*` and `?` as a regular expression for JSON text."""
    parts = re.split(r"(/\*\*/|\*+|\?)", text)
    said = {"?": r"[^\x00]", "/**/": f"/(?:|{_ANY}/)"}  # a ** between slashes may be no directory at all
    return "".join(said.get(part) or (_ANY if part.startswith("*") else _literal(part)) for part in parts)


def _literal(text: str) -> str:
    """Text as JSON writes it inside of a string, as a regular expression."""
    inside = json.dumps(text, ensure_ascii=False)[1:-1]
    return re.sub(r"[\[\]{}()*+?.\\^$|]", r"\\\g<0>", inside)


# --- what it does not hold


def gaps(plan: Plan) -> Iterator[Gap]:
    """What Gemini CLI cannot be told of a persona."""
    for persona, agent in working(plan, AgentKind.GEMINI):
        what = "what the persona is told is not read by gemini: only its settings could name the file, and it reads no settings of ours in the fence"
        remedy = "let the prompt begin with @ and the path of the persona's AGENTS.md"
        yield gap(NAME, persona, Effect.IGNORED, what, remedy, agent.origin)
        yield from common_gaps(NAME, persona, agent, _SPECIFIED)
        yield from _command_gaps(persona)
        yield from _path_gaps(persona, agent)
        yield from _notebook_gaps(persona)


def _command_gaps(persona: PersonaPolicy) -> Iterator[Gap]:
    bash = share(persona, "Bash")
    for pattern in bash.some:
        if _allowed("Bash", pattern) is None:
            what = f"{pattern} is not allowed: gemini knows a command by how it begins, up to the end of a word"
            yield gap(NAME, persona, Effect.STRICTER, what, "write the words that it begins with, and * behind them", pattern.origin)
    for pattern in bash.denied if bash.kept else ():
        if _denied("Bash", pattern) is None:
            what = "a pattern is longer than gemini reads, or has `:*` before its end: it denies the whole tool"
            yield gap(NAME, persona, Effect.STRICTER, what, "write a shorter one, and * where any text may stand", pattern.origin)


def _path_gaps(persona: PersonaPolicy, agent: Agent) -> Iterator[Gap]:
    shares = [share(persona, tool) for tool in _PATHS]
    some = [(tool, pattern) for tool in _PATHS for pattern in share(persona, tool).some]
    if some or any(found.kept and found.denied for found in shares):
        what = "paths are known by their ends, and * crosses directories: x/a/b is what a/b is"
        yield gap(NAME, persona, Effect.WEAKER, what, "leave files to the fence: project: read, paths", agent.origin)
    for tool, pattern in some:
        if _allowed(tool, pattern) is None:
            what = f"{pattern} is not allowed: gemini is told neither classes of characters nor .. nor the home directory in paths, nor long ones"
            yield gap(NAME, persona, Effect.STRICTER, what, "write a path in the project, or an absolute one", pattern.origin)
    if shares[0].kept and share(persona, "Grep").kept:
        for pattern in shares[0].denied:
            what = f"{pattern} binds reading alone: searching shows lines of the file"
            yield gap(NAME, persona, Effect.WEAKER, what, "list it in deny_read_paths, which the fence holds", pattern.origin)


def _notebook_gaps(persona: PersonaPolicy) -> Iterator[Gap]:
    notebook = share(persona, "NotebookEdit")
    if (notebook.gone or notebook.denied) and any(share(persona, tool).kept for tool in EDITS[:2]):
        what = "notebooks are files like others: they are written where files are"
        origin = (notebook.gone or notebook.denied[0]).origin
        yield gap(NAME, persona, Effect.WEAKER, what, "let the fence hold it: project: read, paths", origin)
