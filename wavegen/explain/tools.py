"""Whether an agent's tool may be called: by the very rules that its program is handed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wavegen.backends import all_backends
from wavegen.backends.agents.claude_rules import CONTROL, MCP, RENAMED, claude_path_pattern, glob_to_regex, rules_of
from wavegen.backends.agents.claude_rules import TOOLS as CLAUDE_TOOLS
from wavegen.backends.agents.tool_lists import normalise_command_pattern, share_of_tool
from wavegen.core.errors import InvalidValueError, Location, UsageError
from wavegen.explain import remedies
from wavegen.explain.model import Answer, Verdict
from wavegen.manifest.decoder import Text
from wavegen.manifest.model import Manifest
from wavegen.policy.model import Agent, AgentKind, Anchor, Gap, HostPath, Origin, PersonaPolicy, Plan, ToolPattern
from wavegen.policy.persona_planner import PREFIX
from wavegen.policy.persona_tools import FORMER, TOOLS, adapter_of, tool_pattern

_FORM = re.compile(r"[A-Za-z][A-Za-z0-9_.*-]*\(.*\)", re.DOTALL)
_READING = frozenset(("Read", "Glob", "Grep"))
_WRITING = frozenset(("Edit", "Write", "NotebookEdit"))


def is_tool(what: str) -> bool:
    """Whether a word has the form of an agent's tool, or of some of its calls."""
    return what in TOOLS or what in CLAUDE_TOOLS or what.startswith(MCP) or bool(_FORM.fullmatch(what))


def explain_tool(plan: Plan, manifest: Manifest, persona: PersonaPolicy, what: str) -> Iterator[Answer]:
    """The answers of a persona's programs to a tool, or to calls of it as `Bash(git push:*)`. Raises UsageError for what is none."""
    try:
        asked = tool_pattern(Text(what, Location("")))
    except InvalidValueError as bad:
        raise UsageError(bad.what, bad.hint) from None
    name = RENAMED.get(asked.tool, asked.tool)
    seen: set[AgentKind] = set()
    for agent in persona.agents:
        if agent.kind not in seen:
            seen.add(agent.kind)
            yield _Judge(plan, manifest, persona, agent, ToolPattern(name, asked.specifier, asked.origin), what).answer_tool()
    if not persona.agents:
        origin, fence = persona.origin, PREFIX + persona.name
        yield Answer(kind="tool", what=what, shell=fence, verdict=Verdict.REFUSED, detail="it has no adapter: nothing is started", origin=origin, fences=())


@dataclass(frozen=True, slots=True)
class _Judge:
    plan: Plan
    manifest: Manifest
    persona: PersonaPolicy
    agent: Agent
    asked: ToolPattern
    what: str

    def answer_tool(self) -> Answer:
        """What the agent's program says."""
        match self.agent.kind:
            case AgentKind.CLAUDE:
                return self._answer_claude()
            case AgentKind.OPENCODE | AgentKind.GEMINI:
                return self._answer_from_lists(f"{self.agent.kind.value}'s settings")
            case AgentKind.CODEX:
                return self._answer_from_lists("codex's options, which know whole tools alone")
            case AgentKind.OTHER:
                answer = self._answer_from_lists("nothing: lists of tools bind no program that wavegen does not know")
                return replace(answer, verdict=Verdict.ALLOWED, detail=f"{self.agent.binary} is handed no list")

    def _build_tool_answer(self, verdict: Verdict, detail: str, origin: Origin, by: str, change: tuple[str, ...] = ()) -> Answer:
        gaps = tuple(
            dict.fromkeys(
                gap.what
                for gap in self._agent_gaps()
                if gap.origin == origin and origin.at is not None and gap.backend == self.agent.kind.value and gap.origin != self.persona.origin
            )
        )
        fence = PREFIX + self.persona.name
        return Answer(kind="tool", what=self.what, shell=fence, verdict=verdict, detail=detail, origin=origin, fences=(by,), notes=gaps, change=change)

    def _agent_gaps(self) -> Iterator[Gap]:
        alone = replace(self.plan, personas=(self.persona,))
        return (gap for name, backend in all_backends() if name == self.agent.kind.value for gap in backend.gaps(alone))

    # --- Claude Code: the rules of its settings, deny before allow, and what nothing allows is refused (dontAsk) or asked for

    def _answer_claude(self) -> Answer:
        found = rules_of(self.persona)
        by = f"Claude Code's settings ({'dontAsk' if self.agent.headless else 'asks'})"
        denied: tuple[str, Origin] | None = None
        partly: tuple[str, Origin] | None = None
        for rule in found.deny:
            said = match_rule_to_calls(rule, self.asked)
            if said is Verdict.ALLOWED:
                return self._answer_denied(rule, by)
            if said is Verdict.PARTLY:
                denied = denied or (f"some of it is denied by {rule}", self._origin_of_rule(rule, self.persona.denied_tools))
        for rule in found.allow:
            said = match_rule_to_calls(rule, self.asked)
            if said is Verdict.ALLOWED:
                origin = self._origin_of_rule(rule, self.persona.allowed_tools)
                if denied:
                    return self._build_tool_answer(Verdict.PARTLY, f"allowed by {rule}; {denied[0]}", denied[1], by)
                return self._build_tool_answer(Verdict.ALLOWED, f"by {rule}", origin, by, self._deny_tool_remedy())
            if said is Verdict.PARTLY:
                partly = partly or (f"some of it is allowed by {rule}", self._origin_of_rule(rule, self.persona.allowed_tools))
        if self.asked.tool in CONTROL:
            return self._build_tool_answer(Verdict.ALLOWED, "it only talks or keeps lists", Origin("allowed tools would be out of reach without it"), by)
        if partly:
            return self._build_tool_answer(Verdict.PARTLY, partly[0], partly[1], by, self._allow_tool_remedy())
        return self._answer_unlisted(by)

    def _answer_denied(self, rule: str, by: str) -> Answer:
        patterns = [pattern for pattern in self.persona.denied_tools if _is_about_tool(pattern, self.asked.tool)]
        if patterns:
            origin = self._origin_of_rule(rule, self.persona.denied_tools)
            return self._build_tool_answer(
                Verdict.REFUSED, f"denied by {rule}", origin, by, (f"remove the entry of deny at {remedies.origin_location(origin)}",)
            )
        if not self.persona.project_writable and self.asked.tool in _WRITING:
            origin = next((one.origin for one in self.persona.fence.paths if one.path == HostPath(Anchor.PROJECT)), self.persona.origin)
            return self._build_tool_answer(Verdict.REFUSED, "the project is read-only for this persona", origin, by, self._allow_tool_remedy())
        return self._answer_unlisted(by)

    def _origin_of_rule(self, rule: str, patterns: tuple[ToolPattern, ...]) -> Origin:
        """The entry that a rule was made from: of those about the tool the one that says the same of its calls."""
        name, spec = _split_rule(rule)
        about = [pattern for pattern in patterns if _is_about_tool(pattern, name) or _is_about_tool(pattern, self.asked.tool)]
        same = [pattern for pattern in about if (pattern.specifier is None) == (spec is None)]
        said = [pattern for pattern in same if pattern.specifier and _normalize_calls(name, pattern.specifier) == _normalize_calls(name, spec or "")]
        chosen = next(iter((*said, *same, *about)), None)
        return chosen.origin if chosen else self.persona.origin

    # --- the others: what the lists leave of the tool

    def _answer_from_lists(self, by: str) -> Answer:
        left = share_of_tool(self.persona, self.asked.tool)
        if left.gone:
            return self._build_tool_answer(
                Verdict.REFUSED, f"denied by {left.gone}", left.gone.origin, by, (f"remove the entry of deny at {remedies.origin_location(left.gone.origin)}",)
            )
        overlap: ToolPattern | None = None
        for pattern in left.denied:
            said = match_rule_to_calls(str(pattern), self.asked)
            if said is Verdict.ALLOWED:
                return self._build_tool_answer(
                    Verdict.REFUSED, f"denied by {pattern}", pattern.origin, by, (f"remove the entry of deny at {remedies.origin_location(pattern.origin)}",)
                )
            if said is Verdict.PARTLY:
                overlap = overlap or pattern
        for pattern in (*((left.whole,) if left.whole else ()), *left.some):
            verdict = Verdict.ALLOWED if pattern.specifier is None else match_rule_to_calls(str(pattern), self.asked)
            if verdict is not Verdict.REFUSED:
                if overlap:
                    return self._build_tool_answer(Verdict.PARTLY, f"allowed by {pattern}; some of it is denied by {overlap}", overlap.origin, by)
                detail = f"by {pattern}" if verdict is Verdict.ALLOWED else f"some of it is allowed by {pattern}"
                return self._build_tool_answer(verdict, detail, pattern.origin, by, self._deny_tool_remedy())
        return self._answer_unlisted(by)

    # --- what to write

    def _answer_unlisted(self, by: str) -> Answer:
        return self._build_tool_answer(Verdict.REFUSED, "no entry of allowed_tools allows it", self._list_origin(), by, self._allow_tool_remedy())

    def _list_origin(self) -> Origin:
        persona = self.manifest.personas.get(self.persona.name)
        own = persona.permissions if persona else None
        if own and own.allowed_tools is not None:
            return Origin("", own.at.location_of("allowed_tools"))
        _, adapter = adapter_of(persona, self.manifest.adapters) if persona else ("", None)
        general = adapter.default_permissions if adapter and not (persona and persona.preset) else None
        return Origin("", general.at.location_of("allowed_tools")) if general and general.allowed_tools is not None else self.persona.origin

    def _allow_tool_remedy(self) -> tuple[str, ...]:
        persona = self.manifest.personas.get(self.persona.name)
        own = persona.permissions if persona else None
        if own and own.allowed_tools is not None:
            return (f"add `{self.what}` to {remedies.describe_list_key(own.at, 'allowed_tools', f'personas.{self.persona.name}.permissions.allowed_tools')}",)
        origin = self._list_origin()
        replaced = ", ".join(map(str, self.persona.allowed_tools)) or "nothing"
        whose = f"the list at {remedies.origin_location(origin)}" if origin != self.persona.origin else "that of its preset"
        return (f"write allowed_tools under personas.{self.persona.name}.permissions, with `{self.what}`; it replaces {whose}: {replaced}",)

    def _deny_tool_remedy(self) -> tuple[str, ...]:
        persona = self.manifest.personas.get(self.persona.name)
        own = persona.permissions if persona else None
        return (f"add `{self.what}` to {remedies.describe_list_key(own.at if own else None, 'deny', f'personas.{self.persona.name}.permissions.deny')}",)


# --- rules and calls


def _split_rule(rule: str) -> tuple[str, str | None]:
    name, bracket, rest = rule.partition("(")
    return name, rest.removesuffix(")") if bracket else None


def _is_about_tool(pattern: ToolPattern, tool: str) -> bool:
    return bool(re.fullmatch(glob_to_regex(RENAMED.get(pattern.tool, FORMER.get(pattern.tool, pattern.tool))), tool))


def match_rule_to_calls(rule: str, asked: ToolPattern) -> Verdict:
    """Of which of the calls that are asked for a rule speaks. ALLOWED: the rule is about all that is asked for; PARTLY: about some of it; REFUSED: about none."""
    name, spec = _split_rule(rule)
    tools = {asked.tool}
    # Whatever reads asks the rules of Read, and whatever writes those of Edit.
    if spec is not None:
        tools |= {"Read"} if asked.tool in _READING else {"Edit"} if asked.tool in _WRITING else set()
    if not any(re.fullmatch(glob_to_regex(name), tool) for tool in tools):
        return Verdict.REFUSED
    if spec is None:
        return Verdict.ALLOWED
    if asked.specifier is None:
        return Verdict.PARTLY
    rule_calls, asked_calls = _normalize_calls(asked.tool, spec), _normalize_calls(asked.tool, asked.specifier)
    if _pattern_matches(asked.tool, rule_calls, asked_calls):
        return Verdict.ALLOWED
    return Verdict.PARTLY if _pattern_matches(asked.tool, asked_calls, rule_calls) else Verdict.REFUSED


def _normalize_calls(tool: str, spec: str) -> str:
    """A specifier in one spelling."""
    if tool in _READING | _WRITING:
        said = spec if spec.startswith((".//", "//", "~/")) else claude_path_pattern(spec, deny=False) or spec
        return said.removeprefix(".//")
    return normalise_command_pattern(spec) if tool == "Bash" else spec


def _pattern_matches(tool: str, pattern: str, text: str) -> bool:
    """Whether a pattern is about a text; a `*` of the text stands for itself, and so for whatever it would match."""
    if tool in _READING | _WRITING:
        body = re.sub(r"\\\*(\\\*)+|\\\*", lambda star: ".*" if star[1] else "[^/]*", re.escape(pattern))
        deep = "(?:.*/)?" if "/" not in pattern else ""
        return re.fullmatch(deep + body, text) is not None
    # `git log *` is also `git log`.
    body = ".*".join(re.escape(part) for part in re.split(r"\*+", pattern))
    optional = rf"{re.escape(pattern[:-2])}(?: .*)?" if pattern.endswith(" *") and "*" not in pattern[:-2] else body
    return re.fullmatch(optional, text, re.DOTALL) is not None
