"""What is known of agents' programs: which one a command is, where its model is served, what it is told by variables. Data and lookups."""

from __future__ import annotations

from collections.abc import Mapping

from wavegen.manifest.model import Adapter
from wavegen.policy.model import Access, Agent, AgentKind, Anchor, EnvRule, HostPath, Origin, PathRule

TIERS = ("cheapest", "fastest", "balanced", "strongest")
"""What Wave calls models by their price."""

# The aliases of Claude Code; balanced is what it takes by itself.
_CLAUDE_TIERS = {"cheapest": "haiku", "fastest": "haiku", "balanced": "", "strongest": "opus"}

_HOSTS: Mapping[AgentKind, tuple[str, ...]] = {
    AgentKind.CLAUDE: ("api.anthropic.com",),
    AgentKind.CODEX: ("api.openai.com",),
    AgentKind.GEMINI: ("generativelanguage.googleapis.com",),
    AgentKind.OPENCODE: (),  # by its model's provider
    AgentKind.OTHER: (),
}

_PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("api.anthropic.com",),
    "openai": ("api.openai.com",),
    "google": ("generativelanguage.googleapis.com",),
    "opencode": ("opencode.ai",),
    "zai": ("api.z.ai",),
    "zai-coding-plan": ("api.z.ai",),
    "openrouter": ("openrouter.ai",),
    "groq": ("api.groq.com",),
    "mistral": ("api.mistral.ai",),
    "deepseek": ("api.deepseek.com",),
    "xai": ("api.x.ai",),
}
"""The API hosts of providers, by what opencode puts before a model's name."""

LOCAL_PROVIDERS: Mapping[str, int] = {"ollama": 11434, "lmstudio": 1234}
"""Providers on the host's own loopback, with their ports."""

_VARIABLES: Mapping[AgentKind, tuple[tuple[str, str], ...]] = {
    # What Wave sets for Claude Code; and an update of itself would end with the shell.
    AgentKind.CLAUDE: (
        ("DISABLE_TELEMETRY", "1"),
        ("DISABLE_ERROR_REPORTING", "1"),
        ("CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY", "1"),
        ("DISABLE_BUG_COMMAND", "1"),
        ("DISABLE_AUTOUPDATER", "1"),
        ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        # What it is told lies in a directory of its own.
        ("CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD", "1"),
        # Rules with relative paths are relative to where a command last changed to; this takes every cd back.
        ("CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR", "1"),
    ),
}


HOME_SETTINGS: Mapping[AgentKind, tuple[str, ...]] = {
    # What it has fetched of its organisation's policy counts above all, whatever --setting-sources says. In the place of
    # these files a directory holds.
    AgentKind.CLAUDE: (".claude/remote-settings.json", ".claude/policy-limits.json"),
    # It takes what stands there over the file that it is handed: what a persona once wrote would hold from then on. It
    # writes into the first at every start, so that it must be writable.
    AgentKind.OPENCODE: (".config/opencode", ".opencode"),
}
"""Where programs read settings from, below the home: empty at each start of a persona."""


def kind_of(command: str) -> AgentKind:
    """The agent that a command is: its name, also with something behind a hyphen, as `opencode-patched`."""
    name = command.rsplit("/", 1)[-1].partition("-")[0]
    return next((kind for kind in AgentKind if kind is not AgentKind.OTHER and kind.value == name), AgentKind.OTHER)


def hosts_of(kind: AgentKind, model: str) -> tuple[str, ...]:
    """Where a program's model is served; empty where that is not known."""
    return _HOSTS[kind] or _PROVIDERS.get(model.partition("/")[0], ())


def model_of(kind: AgentKind, adapter: Adapter, wanted: str) -> str:
    """The model of a persona: a tier is looked up, a name is taken, nothing is the adapter's own default."""
    found = str(adapter.tier_models.get(wanted, "")) if wanted in TIERS else wanted
    if found == "default" and kind is not AgentKind.CLAUDE:  # for the others that is the name of no model
        found = ""
    if not found and wanted in TIERS and kind is AgentKind.CLAUDE:
        found = _CLAUDE_TIERS[wanted]
    return found or str(adapter.default_model or "")


def agent_of(name: str, adapter: Adapter, model: str, origin: Origin) -> Agent:
    """The agent that an adapter starts; an adapter without a command is one of its own name."""
    binary = str(adapter.binary or name)
    kind = kind_of(binary)
    found = model_of(kind, adapter, model)
    return Agent(adapter=name, kind=kind, binary=binary, model=found, headless=adapter.mode != "interactive", hosts=hosts_of(kind, found), origin=origin)


def cleared_settings_rules(agents: tuple[Agent, ...]) -> tuple[PathRule, ...]:
    """Rules by which settings that a program left in the private home are gone at its next start."""
    reason = Origin("what stands there would overrule the settings that the agent is handed")
    places = dict.fromkeys(place for agent in agents for place in HOME_SETTINGS.get(agent.kind, ()))
    return tuple(PathRule(path=HostPath(Anchor.HOME, place), access=Access.SCRATCH, origin=reason) for place in places)


def agent_variables(agents: tuple[Agent, ...]) -> tuple[EnvRule, ...]:
    """What the programs are told by variables, each once."""
    rules: dict[str, EnvRule] = {}
    for agent in agents:
        for name, value in _VARIABLES.get(agent.kind, ()):
            rules.setdefault(name, EnvRule(name=name, value=value, origin=Origin(f"how {agent.kind.value} is to work here")))
    return tuple(rules.values())
