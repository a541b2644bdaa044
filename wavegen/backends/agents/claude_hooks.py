"""Hooks of a manifest → hooks of Claude Code, whose commands refuse a call as Wave has it: by any failure. Pure.

What Claude Code does was tried with version 2.1.332, and is read from it: a line is given to `/bin/sh`, whatever SHELL and PATH say; with
`${CLAUDE_PLUGIN_ROOT}` or `${CLAUDE_PLUGIN_DATA}` in it nothing is run at all, and the call passes; and what it prints is read as JSON, which
may allow the call, or have its status ignored. A condition is held against each command of a line by itself, without redirections and quotes.
"""

from __future__ import annotations

import re

from wavegen.backends.agents.claude_rules import (
    MCP,
    RENAMED,
    Found,
    advice_for_unknown_tool,
    claude_command_pattern,
    claude_path_pattern,
    glob_to_regex,
    matching_tools,
)
from wavegen.backends.agents.tool_lists import specifier_and_its_parts
from wavegen.core.quote import quote_posix
from wavegen.policy.model import Effect, HookRule, PersonaPolicy, ToolPattern

LONG = 24 * 60 * 60
"""Seconds. A hook that takes too long lets the call pass, so that it is given a day."""


def hooks_of(persona: PersonaPolicy, found: Found) -> dict[str, object]:
    """The `hooks` of the settings. What departs is noted in `found`."""
    events: dict[str, list[object]] = {}
    for hook in persona.hooks:
        where = _matcher_and_condition(hook, found)
        if where is None:
            continue
        matcher, condition = where
        run: dict[str, object] = {"type": "command", **({"if": condition} if condition else {}), "command": shell_command(hook)}
        if hook.before:
            run["timeout"] = LONG
        events.setdefault("PreToolUse" if hook.before else "PostToolUse", []).append({"matcher": matcher, "hooks": [run]})
    return dict(events)


def shell_command(hook: HookRule) -> str:
    """What /bin/sh is given: the manifest's command as one argument of another, so that nothing in it reaches beyond.

    Before a call only status 2 refuses it, and any other failure lets it pass, also that of a program that is not there. What it prints may
    hold what the agent wrote, so that none of it goes where decisions are read. No name that Claude Code would replace is left in one piece.
    """
    line = f"/bin/sh -c {quote_posix(hook.command).replace('${', _BROKEN)} >&2"
    return f"{line} || exit 2" if hook.before else line


_BROKEN = "$''{"
"""`${` between two single quotes."""


def _matcher_and_condition(hook: HookRule, found: Found) -> tuple[str, str] | None:
    """The matcher, and the condition where there is one. None: no call is meant that there is."""
    pattern = hook.matcher
    tool = RENAMED.get(pattern.tool, pattern.tool)
    if tool != "*" and not tool.startswith(MCP) and not matching_tools(tool):
        found.add_departure(hook.origin, Effect.IGNORED, f"the hook for {pattern} never runs: Claude Code has no tool {tool}", advice_for_unknown_tool(tool))
        return None
    # Letters, digits and _ are a name; anything else is a regular expression, which may match anywhere in one.
    matcher = tool if tool == "*" or re.fullmatch(r"[A-Za-z0-9_]+", tool) else f"^{glob_to_regex(tool)}$"
    if pattern.specifier is None:
        return matcher, ""
    condition = _hook_condition(pattern, tool)
    if not condition:
        what = f"the hook for {pattern} runs for every call of {tool}: Claude Code cannot tell the calls that are meant"
        found.add_departure(hook.origin, Effect.STRICTER, what, "let the command look at the call, which it reads as JSON")
    return matcher, condition


def _hook_condition(pattern: ToolPattern, tool: str) -> str:
    text = pattern.specifier or ""
    if len(specifier_and_its_parts(text)) > 1:
        return ""
    if tool in ("Read", "Edit", "Write"):
        path = claude_path_pattern(text, deny=True)
        return f"{tool}({path})" if path else ""
    if tool == "Bash" and not _CHANGED.search(text):
        command = claude_command_pattern(text)
        return f"Bash({command})" if command else ""
    return ""


_CHANGED = re.compile(r"[;&|<>`()\"'\\#]|^[^ ]*=")
"""What no single command has when it is compared: what stands between them, quotes, comments, and assignments before them."""
