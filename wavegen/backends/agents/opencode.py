"""opencode's settings of each persona: its lists of tools as permissions. Its fence holds what these cannot say; nothing asks.

opencode is started with OPENCODE_CONFIG=<the file> and OPENCODE_DISABLE_PROJECT_CONFIG=1: otherwise a project's own opencode.json would win.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from wavegen.backends import File
from wavegen.backends.agents import instructions
from wavegen.backends.agents.tool_lists import (
    EDITS,
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
from wavegen.core.quote import json_text
from wavegen.policy.known_agents import HOME_SETTINGS
from wavegen.policy.model import Access, Agent, AgentKind, Anchor, Effect, Gap, HostPath, PersonaPolicy, Plan, ToolPattern

NAME = "opencode"
FILE = "opencode.json"
PROJECT = "{env:WAVEGEN_PROJECT}"
"""What opencode replaces by the variable before it reads the file as JSON: the wrapper sets it, as a JSON string's inside."""

# Permissions, and the tools that a manifest calls what they are for.
_PERMISSIONS = (
    ("read", ("Read",)),
    ("glob", ("Glob",)),
    ("grep", ("Grep",)),
    ("list", ("Glob",)),
    ("edit", EDITS),
    ("bash", ("Bash",)),
    ("webfetch", ("WebFetch",)),
    ("websearch", ("WebSearch",)),
    ("task", ("Agent",)),
    ("skill", ("Skill",)),
    ("todowrite", ("TodoWrite",)),
)
_PATHS = ("read", "edit")
_SPECIFIED = ("Read", *EDITS, "Bash")
# Git writes a file by these; of what only looks at a repository nothing else does that is in ordinary use.
_GIT_WRITES = ("git *--output=*", "git *--output *")
# A JavaScript object has integers before all other keys, whatever their order in the text, and `__proto__` is none.
_NO_KEY = re.compile(r"0|[1-9][0-9]*|__proto__")

Rule = str | dict[str, str]


def render(plan: Plan) -> Iterator[File]:
    """personas/<name>/opencode.json."""
    for persona, agent in personas_with_agent(plan, AgentKind.OPENCODE):
        yield File(path=f"{instructions.persona_directory(persona)}/{FILE}", text=opencode_settings(persona, agent), header=False)


def opencode_settings(persona: PersonaPolicy, agent: Agent) -> str:
    """The file's text. In it no text of a manifest is expanded: opencode replaces {env:…} and {file:…} wherever they stand."""
    model = {"model": agent.model, "small_model": agent.model} if "/" in agent.model else {}
    text = json_text(
        {
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": False,
            "share": "disabled",
            **model,
            "instructions": [],
            "permission": opencode_permissions(persona),
        }
    )
    told = [f"{instructions.persona_directory(persona)}/{instructions.OTHERS}", instructions.OTHERS, *([persona.prompt.tail] if persona.prompt else [])]
    lines = ",\n".join(f'    "{PROJECT}/' + _escape_placeholders(json_text(path).strip())[1:] for path in told)
    return _escape_placeholders(text).replace('\n  "instructions": [],\n', f'\n  "instructions": [\n{lines}\n  ],\n', 1)


def _escape_placeholders(text: str) -> str:
    return text.replace("{env:", "\\u007benv:").replace("{file:", "\\u007bfile:")


# --- permissions


def opencode_permissions(persona: PersonaPolicy) -> dict[str, Rule]:
    """The permissions, in the order that counts: of those that match a call the last holds."""
    return {
        "*": "allow" if allows_tools_by_default(persona) else "deny",
        **{name: _permission_rule(persona, name, tools) for name, tools in _PERMISSIONS},
        "external_directory": "allow" if _reaches_outside(persona) else "deny",
    }


def _permission_rule(persona: PersonaPolicy, name: str, tools: tuple[str, ...]) -> Rule:
    shares = [share_of_tool(persona, tool) for tool in tools]
    table = {"*": "allow" if any(found.whole for found in shares) else "deny"}
    for pattern in (pattern for found in shares for pattern in found.some):
        table.update(dict.fromkeys(_allowed_keys(name, pattern), "allow"))
    if name == "bash" and allows_git_by_pattern(persona):
        table.update(dict.fromkeys(_GIT_WRITES, "deny"))
    for key in (key for found in shares for pattern in found.denied for key in _denied_keys(name, pattern)):
        if key == "*":
            return "deny"
        table.pop(key, None)  # so that it stands last
        table[key] = "deny"
    return table if len(set(table.values())) > 1 else table["*"]


def _allowed_keys(name: str, pattern: ToolPattern) -> tuple[str, ...]:
    specifier = pattern.specifier or "*"
    if name == "bash":
        return () if has_unclear_command_suffix(specifier) else (normalise_command_pattern(specifier),)
    path = allowed_path(specifier) if name in _PATHS else None
    if path is None:
        return ()
    if path.absolute:
        return (f"*../{path.tail}",)  # opencode compares paths relative to the repository
    near = path.tail.replace("/**/", "/")  # to it a ** between slashes is at least one directory
    tails = tuple(dict.fromkeys((path.tail, near)))
    return tuple(place + tail for place in (("", "*/") if path.deep and not path.tail.startswith("*") else ("",)) for tail in tails)


def _denied_keys(name: str, pattern: ToolPattern) -> tuple[str, ...]:
    return tuple(key for text in specifier_and_its_parts(pattern.specifier or "*") for key in _keys_of_denied_specifier(name, text))


def _keys_of_denied_specifier(name: str, specifier: str) -> tuple[str, ...]:
    """What one pattern denies; `*` for the whole, where it cannot be told."""
    if name == "bash":
        if has_unclear_command_suffix(specifier):
            return ("*",)
        # It expands a leading ~ or $HOME, which the command that it compares still has.
        found = re.sub(r"^[~$]", "?", normalise_command_pattern(specifier))
        return (f"{found} *" if _NO_KEY.fullmatch(found) else found,)
    if name not in _PATHS:
        return ("*",)
    tail = denied_path(specifier)
    ends = (tail,) if tail.endswith("*") else (f"{tail}/*", f"{tail}*" if _NO_KEY.fullmatch(tail) else tail)
    return tuple(place + end for place in (("",) if tail.startswith("*") else ("", "*/")) for end in ends)


def _reaches_outside(persona: PersonaPolicy) -> bool:
    """Whether opencode must leave it to the fence what of the machine is reached: it knows directories, and not for what."""
    granted = any(
        rule.origin.at and rule.path.anchor is not Anchor.PROJECT and rule.access in (Access.READ, Access.WRITE, Access.SCRATCH) for rule in persona.fence.paths
    )
    named = (pattern.specifier or "" for tool in ("Read", *EDITS) for pattern in share_of_tool(persona, tool).some)
    return granted or allows_tools_by_default(persona) or any(specifier.startswith("/") for specifier in named)


# --- what it does not hold


def gaps(plan: Plan) -> Iterator[Gap]:
    """What opencode cannot be told of the lists."""
    for persona, agent in personas_with_agent(plan, AgentKind.OPENCODE):
        if not _resets_home_settings(persona):
            what = "settings in the persona's own home win over these (~/.config/opencode, ~/.opencode): what is written there once holds from then on"
            yield agent_gap(NAME, persona, Effect.WEAKER, what, "start from an empty home where that matters; the fence holds all the same", agent.origin)
        yield from common_gaps(NAME, persona, agent, _SPECIFIED)
        yield from _command_gaps(persona)
        yield from _edit_gaps(persona, agent)
        yield from _path_gaps(persona, agent)
        if agent.model and "/" not in agent.model:
            what = f"model '{agent.model}' names no provider, so that opencode takes its own default"
            yield agent_gap(NAME, persona, Effect.IGNORED, what, "write provider/model, or tier_models of the adapter", agent.origin)


def _resets_home_settings(persona: PersonaPolicy) -> bool:
    """Whether every start finds these directories as empty as the first. A path that is hidden is the host's: what a private home has there stays."""
    gone = {rule.path for rule in persona.fence.paths if rule.access is Access.SCRATCH}
    return gone >= {HostPath(Anchor.HOME, place) for place in HOME_SETTINGS[AgentKind.OPENCODE]}


def _command_gaps(persona: PersonaPolicy) -> Iterator[Gap]:
    bash = share_of_tool(persona, "Bash")
    for pattern in (*bash.some, *(bash.denied if bash.has_allowed_calls else ())):
        if any(map(has_unclear_command_suffix, specifier_and_its_parts(pattern.specifier or "*"))):
            said = "is not allowed" if pattern in bash.some else "denies the whole tool"
            what = f"{pattern} {said}: `:*` stands for arguments at the end of a command alone"
            yield agent_gap(NAME, persona, Effect.STRICTER, what, "write * where any text may stand", pattern.origin)


def _edit_gaps(persona: PersonaPolicy, agent: Agent) -> Iterator[Gap]:
    says = {
        (bool(found.whole), tuple(p.specifier for p in found.some), tuple(p.specifier for p in found.denied))
        for found in (share_of_tool(persona, tool) for tool in EDITS[:2])
    }
    if len(says) > 1:
        what = "editing and writing files are one permission: what either is allowed, both are, but for the parts that either is denied"
        yield agent_gap(NAME, persona, Effect.WEAKER, what, "name Edit and Write alike, or restrict it by the sandbox: project: read, paths", agent.origin)


def _path_gaps(persona: PersonaPolicy, agent: Agent) -> Iterator[Gap]:
    shares = [share_of_tool(persona, tool) for tool in ("Read", *EDITS)]
    some = [pattern for found in shares for pattern in found.some]
    if some or any(found.has_allowed_calls and found.denied for found in shares):
        what = "paths are compared from the top of the git repository, and * crosses directories: what is denied is denied in every directory"
        yield agent_gap(NAME, persona, Effect.STRICTER, what, "keep the manifest at the top of its repository", agent.origin)
    for pattern in some:
        if allowed_path(pattern.specifier or "*") is None:
            what = f"{pattern} is not allowed: opencode knows neither classes of characters nor .. nor the home directory in paths"
            yield agent_gap(NAME, persona, Effect.STRICTER, what, "write a path in the project, or an absolute one", pattern.origin)
    if shares[0].has_allowed_calls and share_of_tool(persona, "Grep").has_allowed_calls:
        for pattern in shares[0].denied:
            what = f"{pattern} stops reading, not searching: a search shows lines of the file"
            yield agent_gap(NAME, persona, Effect.WEAKER, what, "list it in deny_read_paths, which the sandbox enforces", pattern.origin)
