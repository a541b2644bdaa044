"""The agents that read no settings of ours: what of a persona's lists their options say, and what is left to the fence."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.backends import File
from wavegen.backends.agents.tool_lists import agent_gap, personas_with_agent, restricts_tools, share_of_tool
from wavegen.policy.model import AgentKind, Effect, Gap, PersonaPolicy, Plan

NAME = "programs"


def render(plan: Plan) -> Iterator[File]:
    """Nothing: there is no file that they would read."""
    del plan
    return iter(())


def codex_options(persona: PersonaPolicy) -> tuple[str, ...]:
    """What switches tools off in Codex. It stands before the subcommand, or where there is none.

    Its shell is all or nothing: where commands are allowed by patterns, it is off. Edits have no switch.
    """
    search = () if share_of_tool(persona, "WebSearch").whole else ("-c", "web_search=disabled")
    shell = () if share_of_tool(persona, "Bash").whole else ("--disable", "shell_tool")
    agents = () if share_of_tool(persona, "Agent").whole else ("--disable", "multi_agent")
    return (*search, *shell, *agents)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What of the lists binds no program of these kinds."""
    for persona, agent in personas_with_agent(plan, AgentKind.CODEX):
        if restricts_tools(persona):
            what = "codex knows whole tools alone: its shell (which reads files, too), web search and sub-agents are switched off unless the whole is allowed; "
            what += "edits, what else it has, denied patterns and hooks are left to the fence"
            yield agent_gap(NAME, persona, Effect.WEAKER, what, "restrict it by the sandbox: project: read, allowed_domains", agent.origin)
    for persona, agent in personas_with_agent(plan, AgentKind.OTHER):
        if restricts_tools(persona):
            what = f"tool lists have no effect on {agent.adapter}, a program that wavegen does not know: its tools can do whatever the sandbox allows"
            yield agent_gap(NAME, persona, Effect.IGNORED, what, "restrict it by the sandbox: project: read, allowed_domains", agent.origin)
