"""Tool patterns of a manifest → permission rules of Claude Code, and what of them it cannot hold. Pure.

What the rules do was tried with version 2.1.332: `Tool` in deny takes the tool out of what the model is offered, and a rule for paths is
consulted as `Read(path)` by everything that reads, and as `Edit(path)` by everything that writes. A path is spelled `.//x` where it hangs
from the directory that the agent is started in: `./x` and `x` match at any depth where no further slash is in them, and `/x` would hang
from the directory of the settings file. A rule that it cannot read is skipped, and one that it reads otherwise than it is meant holds
nothing: what cannot be said is not written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from wavegen.backends.agents.tool_lists import allows_git_by_pattern, has_unclear_command_suffix, specifier_and_its_parts
from wavegen.policy.model import Effect, Origin, PersonaPolicy, ToolPattern
from wavegen.policy.persona_tools import FORMER

TOOLS = (
    *("Agent", "Artifact", "AskUserQuestion", "Bash", "CronCreate", "CronDelete", "CronList", "Edit", "EndConversation"),
    *("EnterPlanMode", "EnterWorktree", "ExitPlanMode", "ExitWorktree", "Glob", "Grep", "LSP", "ListAgents", "ListMcpResourcesTool", "Monitor"),
    *("NotebookEdit", "OfferChromeSetup", "PowerShell", "Projects", "PushNotification", "Read", "ReadMcpResourceDirTool", "ReadMcpResourceTool"),
    *("ReadNotifications", "RemoteTrigger", "ReportFindings", "ScheduleWakeup", "SendFeedback", "SendMessage", "SendUserFile", "SendUserMessage"),
    *("SetGoal", "ShareOnboardingGuide", "ShowOnboardingRolePicker", "Skill", "TaskCreate", "TaskGet", "TaskList", "TaskStop", "TaskUpdate"),
    *("TodoWrite", "ToolSearch", "WaitForMcpServers", "WebFetch", "WebSearch", "Workflow", "Write", "propose_skills"),
)
"""Its built-in tools, as it lists them with the variables that it is told: one that is not there is said to be a typing error."""

CONTROL = frozenset(
    (
        *("AskUserQuestion", "EndConversation", "EnterPlanMode", "ExitPlanMode", "ReportFindings", "SendUserMessage"),
        *("TaskCreate", "TaskGet", "TaskList", "TaskStop", "TaskUpdate", "TodoWrite", "ToolSearch", "WaitForMcpServers"),
    )
)
"""Those that only talk, keep lists, or load the definitions of others: without them allowed tools would be out of reach."""

RENAMED = {**FORMER, "KillShell": "TaskStop", "KillBash": "TaskStop"}
_GONE = frozenset(("BashOutput", "NotebookRead", "TaskOutput", "MultiEdit", "LS"))
"""Names of earlier versions: nothing is left to refuse."""
_READERS = frozenset(("Read", "Glob", "Grep", "LS", "NotebookRead"))
WRITERS = ("Edit", "NotebookEdit", "Write")
_PATHS = {**dict.fromkeys(_READERS, "Read"), **dict.fromkeys((*WRITERS, "MultiEdit"), "Edit")}
"""By tool, the one whose rules for paths are consulted."""
_RUNNERS = ("Monitor", "PowerShell")
"""They run commands as Bash does: who takes Bash away means these too."""
_SPECIFIED = frozenset(("Bash", "PowerShell", "Agent", "Skill", "WebFetch"))
"""The tools besides those with paths whose rules have a specifier."""
MCP = "mcp__"
ALL_MCP = "mcp__*"
GIT_WRITES = "Bash(git *--output*)"
"""Git writes a file by it: a start-up file of the home, which then runs commands. It also matches quoted and escaped spellings."""

_UNSAID = re.compile(r"(?:^|/)\.\.(?:/|$)|:\*|[{\\]|^(?:!|\$[A-Za-z_]|~[^/])")
_WITHIN = re.compile(r"[^/]\*\*[^*]|/\*\*[^*/]")  # ** is more than a * only where it is all between two slashes
_GLOB = re.compile(r"[*?\[\]]")
_CLASS = re.compile(r"\[[^\]]*\]|[\[\]]")
_AGENT = re.compile(r"[A-Za-z0-9_:-]+")  # it has no patterns for them
_OPTIONS_BEFORE = re.compile(r"\S+ +\*+ +\S.*")
_DOMAIN = re.compile(r"domain:[A-Za-z0-9.*_-]+")  # one with a port is taken, and never matches


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """How what is rendered differs from what the manifest says."""

    effect: Effect
    what: str
    remedy: str
    origin: Origin


@dataclass(slots=True)
class Found:
    """What is rendered, in order and each once, and how it departs."""

    allow: list[str] = field(default_factory=list)
    deny: list[str] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)

    def add_departure(self, origin: Origin, effect: Effect, what: str, remedy: str) -> None:
        """Note a departure."""
        self.departures.append(Departure(effect=effect, what=what, remedy=remedy, origin=origin))


# --- permission rules


def rules_of(persona: PersonaPolicy) -> Found:
    """The permission rules of a persona: what it is allowed, what is refused to it, and with that every tool that it is not allowed."""
    found = Found()
    for pattern in _without_narrower(persona.denied_tools):
        _add_deny_rules(pattern, found)
    if not persona.project_writable:
        found.deny += WRITERS
    whole = _fully_denied_tools(found.deny)
    if "Bash" in whole:
        found.deny += _RUNNERS
        whole |= set(_RUNNERS)
    named: set[str] = set()
    for pattern in _without_narrower(persona.allowed_tools):
        named |= _add_allow_rules(pattern, whole, persona, found)
    _check_shared_paths(persona, whole, found)
    _check_files_made_by_edit(persona, whole, found)
    rest = [tool for tool in TOOLS if tool not in named | whole | CONTROL]
    if "Read" in whole and named.intersection(WRITERS):
        found.add_departure(
            persona.origin, Effect.STRICTER, "Read is denied, and with it everything that writes: Claude Code asks the same rules", "allow Read"
        )
    if "Read" in rest and named.intersection(WRITERS):
        # A file that must not be read is neither edited nor written: Claude Code asks the rules for reading first.
        rest.remove("Read")
        what = "files can be read though Read is not allowed: without it nothing could be written"
        found.add_departure(persona.origin, Effect.WEAKER, what, "add Read to allowed_tools")
    if allows_git_by_pattern(persona) and "Bash" not in whole:
        found.deny.append(GIT_WRITES)
    found.deny += rest
    if not any(tool.startswith(MCP) or tool == "*" for tool in named):
        found.deny.append(ALL_MCP)
    found.allow[:] = dict.fromkeys(found.allow)
    found.deny[:] = dict.fromkeys(found.deny)
    return found


def _without_narrower(patterns: tuple[ToolPattern, ...]) -> tuple[ToolPattern, ...]:
    """Without patterns for some calls of a tool that is named as a whole as well: older versions narrowed the tool to those."""
    whole = {pattern.tool for pattern in patterns if pattern.specifier is None}
    return tuple(pattern for pattern in patterns if pattern.specifier is None or pattern.tool not in whole)


def _fully_denied_tools(rules: Iterable[str]) -> set[str]:
    """The built-in tools that are refused as a whole."""
    bare = [rule for rule in rules if "(" not in rule]
    return {tool for rule in bare for tool in matching_tools(rule)}


def matching_tools(name: str) -> tuple[str, ...]:
    """The built-in tools that a name means: its own, the one that it is called today, or all that a `*` in it matches."""
    if "*" in name:
        pattern = re.compile(glob_to_regex(name))
        return tuple(tool for tool in TOOLS if pattern.fullmatch(tool))
    name = RENAMED.get(name, name)
    return (name,) if name in TOOLS else ()


def glob_to_regex(text: str) -> str:
    """The regular expression for a name with `*` in it."""
    return ".*".join(re.escape(part) for part in re.split(r"\*+", text))


def _add_deny_rules(pattern: ToolPattern, found: Found) -> None:
    tool, origin = pattern.tool, pattern.origin
    if tool.startswith(MCP):
        if pattern.specifier is not None:
            found.add_departure(origin, Effect.STRICTER, f"{pattern} refuses every call: rules for MCP tools have no brackets", f"write {tool}")
        found.deny.append(tool if tool != MCP else ALL_MCP)
        return
    gone, specified = tool in _GONE, pattern.specifier is not None
    if gone and not (specified and tool in _PATHS):
        found.add_departure(origin, Effect.STRICTER, f"there is no tool {tool} any more, so that nothing is refused by {pattern}", "remove it")
        return
    tools = (_PATHS[tool],) if gone else matching_tools(tool)
    if tool == "*":
        # The glob also holds for tools of later versions; the names hold for versions that do not know it.
        tools = ("*", *tools, ALL_MCP)
    if not tools:
        found.add_departure(origin, Effect.IGNORED, f"{pattern} refuses nothing: Claude Code has no tool {tool}", advice_for_unknown_tool(tool))
        return
    if not specified:
        found.deny += tools
        return
    rules = _rules_with_specifier(pattern, deny=True)
    if not rules:
        found.add_departure(origin, Effect.STRICTER, f"{pattern} refuses every call: Claude Code cannot read the pattern", _REWRITE)
        found.deny += tools
        return
    found.deny += rules
    if len(rules) > 1:
        what = f"{pattern} is one {_specifier_noun(tool)} to Claude Code; each part of it is refused as well"
        found.add_departure(origin, Effect.STRICTER, what, _ONE_EACH)
    if tool in _PATHS:
        _check_denied_path(pattern, rules, found)


def _check_denied_path(pattern: ToolPattern, rules: tuple[str, ...], found: Found) -> None:
    if _CLASS.search(pattern.specifier or ""):
        what = f"{pattern} refuses whatever stands in the place of its brackets: they are a class of characters, or part of a name"
        found.add_departure(pattern.origin, Effect.STRICTER, what, "write * or the whole name")
    if any(map(_ignored_by_the_sandbox, rules)):
        what = f"{pattern} holds for the file tools alone: Claude Code's own sandbox ignores patterns on Linux"
        found.add_departure(pattern.origin, Effect.WEAKER, what, "name files and directories, or use wavegen's fence with deny_read_paths")


_REWRITE = "write Tool, Bash(command *), Edit(path), Read(path) or WebFetch(domain:name)"
_ONE_EACH = "write one entry for each"


def _specifier_noun(tool: str) -> str:
    return "path" if tool in _PATHS else "command"


def _add_allow_rules(pattern: ToolPattern, denied: set[str], persona: PersonaPolicy, found: Found) -> set[str]:
    """Add the rules for a pattern; the tools that it leaves open."""
    tool, origin = pattern.tool, pattern.origin
    if tool.startswith(MCP):
        return _add_mcp_allow_rule(pattern, found)
    tools = () if tool in _GONE - RENAMED.keys() else matching_tools(tool)
    left = tuple(name for name in tools if name not in denied)
    if not tools:
        found.add_departure(origin, Effect.STRICTER, f"{pattern} allows nothing: Claude Code has no tool {tool}", advice_for_unknown_tool(tool))
        return set()
    if not left:
        why = "deny takes the whole tool away" if persona.project_writable or tools[0] not in WRITERS else "the project is read-only for this persona"
        found.add_departure(origin, Effect.STRICTER, f"{pattern} allows nothing: {why}", "remove one of the two")
        return set()
    if pattern.specifier is None:
        found.allow += left
        return {*left, "*"} if tool == "*" else set(left)
    rules = _rules_with_specifier(pattern, deny=False)
    if not rules:
        found.add_departure(origin, Effect.STRICTER, f"{pattern} allows nothing: Claude Code cannot read the pattern", _REWRITE)
        return set()
    found.allow += rules
    if tool in _READERS:
        found.add_departure(origin, Effect.WEAKER, f"{pattern} is no bound in the project: Claude Code reads all of it unasked", "use deny_read_paths")
    if (tool == "Bash" or tool in _PATHS) and len(specifier_and_its_parts(pattern.specifier)) > 1:
        found.add_departure(origin, Effect.STRICTER, f"{pattern} is one {_specifier_noun(tool)} to Claude Code", _ONE_EACH)
    if tool == "Bash" and _OPTIONS_BEFORE.fullmatch(pattern.specifier):
        what = f"{pattern} allows every option at its first *, also those that run other commands"
        found.add_departure(origin, Effect.WEAKER, what, "write * behind the subcommand alone")
    return set(left)


def _add_mcp_allow_rule(pattern: ToolPattern, found: Found) -> set[str]:
    name = pattern.tool
    if pattern.specifier is not None or not re.fullmatch(r"mcp__[^*]+?(__\*|__[^*]+\*?)?", name):
        found.add_departure(
            pattern.origin, Effect.STRICTER, f"{pattern} allows nothing: Claude Code cannot read the pattern", "write mcp__server__tool or mcp__server__*"
        )
        return set()
    found.allow.append(name)
    return {name}


def advice_for_unknown_tool(tool: str) -> str:
    """What to write instead of a tool that there is not."""
    return "remove it" if tool in _GONE else "name one of its tools, or an MCP tool as mcp__server__tool"


def _check_shared_paths(persona: PersonaPolicy, whole: set[str], found: Found) -> None:
    """Say where a rule for the paths of one tool holds for another, too."""
    for deny, patterns in ((False, persona.allowed_tools), (True, persona.denied_tools)):
        specified = [p for p in _without_narrower(patterns) if p.specifier is not None and p.tool in WRITERS]
        of = {tool: {p.specifier for p in specified if p.tool == tool} for tool in WRITERS if tool not in whole}
        # A tool that is allowed as a whole gains nothing; one that nothing allows is refused by its name.
        others = {tool for tool in of if deny or of[tool]}
        if deny:
            others &= {name for p in persona.allowed_tools for name in matching_tools(p.tool)}
        for pattern in specified:
            also = sorted(tool for tool in others if tool != pattern.tool and pattern.specifier not in of[tool])
            if also and (deny or pattern.tool not in whole):
                what = f"{pattern} holds for {' and '.join(also)} as well: Claude Code has one rule for all tools that write"
                found.add_departure(pattern.origin, Effect.STRICTER if deny else Effect.WEAKER, what, "write the same paths for each of them")


def _check_files_made_by_edit(persona: PersonaPolicy, whole: set[str], found: Found) -> None:
    for pattern in persona.denied_tools:
        if (
            pattern.tool == "Write"
            and pattern.specifier is None
            and "Edit" not in whole
            and any("Edit" in matching_tools(p.tool) for p in persona.allowed_tools)
        ):
            found.add_departure(pattern.origin, Effect.WEAKER, "Write is denied, and Edit makes new files as well", "deny Edit, too, or bound its paths")


# --- specifiers


def _rules_with_specifier(pattern: ToolPattern, *, deny: bool) -> tuple[str, ...]:
    """The rules for some calls of a tool, the first of which is the pattern itself; none where it cannot be said."""
    tool, text = pattern.tool, pattern.specifier or ""
    texts = specifier_and_its_parts(text) if deny else (text,)
    if tool in _PATHS:
        said = tuple(claude_path_pattern(one, deny=deny) for one in texts)
        return tuple(dict.fromkeys(f"{_PATHS[tool]}({path})" for path in said)) if all(said) else ()
    tool = RENAMED.get(tool, tool)
    if tool not in _SPECIFIED or (tool in _SHAPES and not _SHAPES[tool].fullmatch(text)) or _escapes_closing_bracket(text):
        return ()
    if tool != "Bash":
        return (f"{tool}({text})",)
    # Each command of a line has to be allowed by itself, and what is redirected is a matter of rules for paths.
    if not deny and _JOINED.search(_QUOTED.sub("", text)):
        return ()
    said = tuple(map(claude_command_pattern, texts))
    return tuple(dict.fromkeys(f"Bash({command})" for command in said)) if all(said) else ()


_SHAPES = {"WebFetch": _DOMAIN, "Agent": _AGENT, "Skill": re.compile(r"[^,{}]+")}


def _escapes_closing_bracket(text: str) -> bool:
    """Whether a final backslash would take the closing bracket."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def claude_command_pattern(text: str) -> str:
    """A pattern for commands, in which every `*` is one; empty where Claude Code cannot be told it."""
    body = text.removesuffix(":*").rstrip()
    bare = _QUOTED.sub("", text)
    # Redirections are cut off before a command is compared; several commands are compared in a spelling of its own, with one blank around
    # what joins them, and without their quotes.
    if has_unclear_command_suffix(text) or _ESCAPED.search(body) or _JOINED.search(_APART.sub("", bare)) or (_JOINED.search(bare) and _CHANGED.search(text)):
        return ""
    if body == text:
        return text
    # Before a final `:*` a `*` is taken for itself, and matches next to nothing; so is a blank.
    return f"{body.rstrip('*')}*" if "*" in body else f"{body}:*"


_ESCAPED = re.compile(r"\\(?:[()*\\]|$)|^[^ ]*=[^ ]*[*(]")
"""Where a backslash is the rule's own: before a bracket, a star and its end. And a variable whose value would be any."""
_JOINED = re.compile(r"[;&|<>]")
_APART = re.compile(r"(?<=[* ])(?:\|\|?|&&)(?=[* ])|(?<=\*);(?=\*)")
_CHANGED = re.compile(r"[\"'\\`${(#=]|  |[;&|] *:\*$")
_QUOTED = re.compile(r"\"[^\"*]*\"|'[^'*]*'")


def claude_path_pattern(text: str, *, deny: bool) -> str:
    """A path as Claude Code's rules spell it; empty where they cannot say it.

    A bare name or pattern of a deny rule matches at any depth, as in .gitignore; so does a bare pattern of an allow rule, but a bare name is
    that file alone. `**/x` of a deny rule is x wherever it is, also outside of the project. A class of characters would not match a file
    that has these very brackets in its name.
    """
    if deny:
        text = re.sub(r"\*{3,}", "**", _CLASS.sub("*", text))
    parts = text.split("/")
    # Braces are no pattern to it, `!` would turn the rule round, backslashes match nothing, and variables and other homes are not looked up.
    if _UNSAID.search(text) or (deny and _WITHIN.search(text)):
        return ""
    tail = [part for part in parts if part not in ("", ".")]
    root = "//" if text.startswith("/") else ""
    if parts[0] == "~":
        root, tail = "~/", tail[1:]
    # A directory, all that is in it, and all below it are the same; the sandbox knows the last spelling alone.
    if not tail or text.endswith("/"):
        tail.append("**")
    if tail[-1] == "*" and len(tail) > 1:
        tail[-1] = "**"
    below = "/".join(tail)
    if deny and text.startswith("**"):
        # Not a name that only begins so, as **.key.
        root = "//" if tail[0] == "**" else ""
        below = below if below.strip("*/") else "**"
    if root:
        return root + below
    if below == "**":
        return "./**"
    if len(tail) == 1 and (deny or _GLOB.search(below)):
        return f".//**/{below}" if below.startswith("#") else below  # a bare one would be a comment
    return f".//{below}"


def _ignored_by_the_sandbox(rule: str) -> bool:
    return _GLOB.search(rule.removesuffix(")").removesuffix("/**")) is not None
