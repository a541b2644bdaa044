"""The command lines of personas: each program with the options that hand it its settings and what it is told. Pure.

Words are relative to the project's root, where agents are started, so that what is rendered is the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never

from wavegen.backends import Option
from wavegen.backends.agents.claude import FENCED, UNFENCED
from wavegen.backends.agents.codex import codex_options
from wavegen.backends.agents.instructions import OTHERS, persona_directory
from wavegen.policy.model import Agent, AgentKind, PersonaPolicy


@dataclass(frozen=True, slots=True)
class Command:
    """What is started. A variable's value that begins with ./ is made absolute (launcher/inside/agent.sh)."""

    words: tuple[str, ...]
    variables: tuple[str, ...] = ()


def agent_command_options(persona: PersonaPolicy) -> Iterator[Option]:
    """For each of a persona's programs: its adapter's name, numbers of words and of the variables among them, and the words."""
    for agent in persona.agents:
        found = agent_command_line(persona, agent)
        words = (*found.variables, *found.words)
        yield Option((agent.adapter, str(len(words)), str(len(found.variables)), *words), agent.origin)


def agent_command_line(persona: PersonaPolicy, agent: Agent) -> Command:
    """What is started for one of a persona's programs; its caller's words follow."""
    here = persona_directory(persona)
    model = ("-m", agent.model) if agent.model else ()
    match agent.kind:
        case AgentKind.CLAUDE:
            # No settings, hooks and servers of the project or the private home: a command could have written them. Nor
            # are their instructions read then; CLAUDE.md in the directory names those of the project and of the role.
            settings = f"{here}/{FENCED if persona.fence.fenced else UNFENCED}"
            return Command((agent.binary, "--settings", settings, "--setting-sources", "", "--add-dir", here))
        case AgentKind.CODEX:
            # Its own sandbox needs user namespaces, which are off inside.
            told = ("-c", f'developer_instructions="Read {here}/{OTHERS} first, and follow it."')
            asks = "never" if agent.headless else "on-request"
            return Command((agent.binary, "-s", "danger-full-access", "-a", asks, *model, *codex_options(persona), *told))
        case AgentKind.GEMINI:
            mode = ("--approval-mode", "yolo") if agent.headless else ()
            words = (agent.binary, *mode, "--admin-policy", f"{here}/gemini.toml", *model)
            return Command(words, ("GEMINI_SANDBOX=false", "GEMINI_CLI_TRUST_WORKSPACE=true"))
        case AgentKind.OPENCODE:
            off = ("OPENCODE_DISABLE_PROJECT_CONFIG=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1")
            return Command((agent.binary,), (f"OPENCODE_CONFIG=./{here}/opencode.json", "WAVEGEN_PROJECT=./", *off))
        case AgentKind.OTHER:
            return Command((agent.binary,))
        case _:
            assert_never(agent.kind)
