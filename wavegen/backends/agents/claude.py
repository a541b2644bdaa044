"""The settings of Claude Code for each persona: a file for use within our fence, and one that leaves Claude Code its own sandbox.

Each is all that a persona needs: what is spread over several files may be loosened by one of the project's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.backends import File
from wavegen.backends.agents.claude_hooks import hooks_of
from wavegen.backends.agents.claude_rules import Found, rules_of
from wavegen.backends.agents.instructions import persona_directory
from wavegen.backends.agents.tool_lists import personas_with_agent, session_leftover_gaps
from wavegen.core.quote import json_text
from wavegen.manifest.model import NetworkMode
from wavegen.policy import known_agents
from wavegen.policy.model import Access, Agent, AgentKind, Anchor, DomainRule, Effect, Gap, HostPath, Origin, PathRule, PersonaPolicy, Plan
from wavegen.policy.path_rules import OWN_FILES, home_secrets

NAME = "claude"
FENCED, UNFENCED = "settings.fenced.json", "settings.json"
"""Inside our fence, and without it."""
SCHEMA = "https://json.schemastore.org/claude-code-settings.json"


def render(plan: Plan) -> Iterator[File]:
    """personas/<name>/settings.json and settings.fenced.json."""
    for persona, agent in personas_with_agent(plan, AgentKind.CLAUDE):
        found = rules_of(persona)
        hooks = hooks_of(persona, found)
        for name, fenced in ((UNFENCED, False), (FENCED, True)):
            text = json_text(_build_settings(plan, persona, agent, found, hooks, fenced=fenced))
            yield File(path=f"{persona_directory(persona)}/{name}", text=text, header=False)


def _build_settings(plan: Plan, persona: PersonaPolicy, agent: Agent, found: Found, hooks: dict[str, object], *, fenced: bool) -> dict[str, object]:  # noqa: PLR0913
    told = known_agents.agent_variables((agent,))
    variables = {rule.name: rule.value for rule in persona.fence.environment if rule in told}
    deny = (*found.deny, *(f"Edit({path})" for path in _own_files(plan)), *(() if fenced else _path_rules(persona)))
    return {
        "$schema": SCHEMA,
        **({"model": agent.model} if agent.model else {}),
        "env": variables,
        "permissions": {
            "allow": list(found.allow),
            "deny": list(dict.fromkeys(deny)),
            "defaultMode": "dontAsk" if agent.headless else "default",
            # In these modes a switch, or a model that judges, would allow what the list does not.
            "disableBypassPermissionsMode": "disable",
            "disableAutoMode": "disable",
        },
        # Unless this says so itself, a file of the project may turn all hooks off.
        **({"disableAllHooks": False, "hooks": hooks} if hooks else {}),
        "sandbox": {"enabled": False, "allowUnsandboxedCommands": False} if fenced or not persona.fence.fenced else _sandbox_settings(persona, found),
    }


def _own_files(plan: Plan) -> tuple[str, ...]:
    """The fence's files, those that are not there among them, as what is made in their place would be used."""
    return tuple(f".//{name}/**" if name == ".wavegen" else f".//{name}" for name in (plan.manifest, plan.overlay, *OWN_FILES))


# --- without our fence


def _sandbox_settings(persona: PersonaPolicy, found: Found) -> dict[str, object]:
    network = persona.fence.network
    outside = [rule for rule in _manifest_path_rules(persona) if rule.path.anchor is not Anchor.PROJECT]
    return {
        "enabled": True,
        "failIfUnavailable": True,
        # Otherwise a command would be allowed for being in the sandbox, whatever the list says.
        "autoAllowBashIfSandboxed": "Bash" in found.allow,
        "allowUnsandboxedCommands": persona.unsandboxed_commands,
        "network": {
            "allowedDomains": ["*"] if network.mode in _UNLISTED else [name for rule in network.domains if not rule.api for name in _domain_patterns(rule)],
            "deniedDomains": [name for rule in network.denied for name in _domain_patterns(rule)],
            "strictAllowlist": True,
            "allowLocalBinding": False,
            "allowAllUnixSockets": False,
        },
        "filesystem": {
            "allowWrite": [_spell_path(rule.path) for rule in outside if rule.access is Access.WRITE],
            "denyWrite": [_spell_path(rule.path) for rule in outside if rule.access is Access.READ],
            "denyRead": [
                _spell_path(path) for path in dict.fromkeys((*home_secrets(persona.fence), *(rule.path for rule in outside if rule.access is Access.HIDE)))
            ],
        },
    }


_UNLISTED = (NetworkMode.HOST, NetworkMode.OPEN)


def _domain_patterns(rule: DomainRule) -> tuple[str, ...]:
    """A rule as its sandbox has it, which takes an entry without a port for every port."""
    name = ("*." if rule.wildcard else "") + rule.host
    ports = {"*": (), "": ("80", "443")}.get(rule.port, (rule.port,))
    return tuple(f"{name}:{port}" for port in ports) or (name,)


def _manifest_path_rules(persona: PersonaPolicy) -> tuple[PathRule, ...]:
    """The rules for paths that the manifest wrote."""
    return tuple(rule for rule in persona.fence.paths if rule.origin.at and rule.path.tail and rule.path.anchor in _ANCHORS)


_ANCHORS = {Anchor.ROOT: "//", Anchor.HOME: "~/", Anchor.PROJECT: ".//"}
"""How its rules spell what a path hangs from. In lists of `sandbox.filesystem` a relative path has no effect."""


def _spell_path(path: HostPath) -> str:
    return _ANCHORS[path.anchor] + path.tail


def _path_rules(persona: PersonaPolicy) -> Iterator[str]:
    """What the fence would hold, as rules: they bind the file tools, and its sandbox takes them over for commands."""
    if not persona.project_writable:
        yield "Edit(./**)"
    if not persona.fence.fenced:
        return
    secrets = home_secrets(persona.fence)
    yield from (f"Read({_spell_path(path)})" for path in secrets)
    for rule in _manifest_path_rules(persona):
        # What must not be read is not written either, so that one rule is enough.
        if rule.access in _REFUSED and rule.path not in secrets:
            yield f"{_REFUSED[rule.access]}({_spell_path(rule.path)})"


_REFUSED = {Access.HIDE: "Read", Access.READ: "Edit"}

# --- what it does not hold

_WEAKER_SANDBOX = (
    "settings.json, with Claude Code's own sandbox in place of the fence: the home directory can be read but for known secrets, variables are the caller's,"
    " names lead to private addresses, system calls, processes and memory are not bounded, and all of it holds for Bash alone: file tools have rules,"
    " hooks and MCP servers nothing"
)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What a manifest asks for that Claude Code does not do."""
    for persona, agent in personas_with_agent(plan, AgentKind.CLAUDE):
        found = rules_of(persona)
        hooks_of(persona, found)
        for departure in found.departures:
            yield _make_gap(persona, departure.effect, departure.what, departure.remedy, departure.origin)
        yield from _tool_list_gaps(plan, persona, found)
        yield from session_leftover_gaps(NAME, persona, agent, plan.personas_origin)
        if persona.fence.fenced:
            yield from _own_sandbox_gaps(plan, persona)


def _make_gap(persona: PersonaPolicy, effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
    return Gap(backend=NAME, shell=persona.fence.name, effect=effect, what=what, remedy=remedy, origin=origin)


def _tool_list_gaps(plan: Plan, persona: PersonaPolicy, found: Found) -> Iterator[Gap]:
    """What is so for every list of its kind: said once for all personas."""
    if any(pattern.tool == "*" and pattern.specifier is None for pattern in persona.allowed_tools) and "*" not in found.deny:
        what = "* allows the built-in tools alone: Claude Code has no rule that allows every MCP tool"
        yield _make_gap(persona, Effect.STRICTER, what, "add mcp__server__*", plan.personas_origin)
    if "Bash" not in (*found.allow, *found.deny):
        what = "commands that Claude Code takes for harmless (ls, cat, grep, git log) run whatever the list says"
        yield _make_gap(persona, Effect.WEAKER, what, "deny Bash as a whole, or hide what must not be read", plan.personas_origin)
    if any(pattern.tool == "Bash" and pattern.specifier for pattern in (*persona.denied_tools, *(hook.matcher for hook in persona.hooks))):
        what = "a Bash pattern is compared with the text of a command: `git -C . push` and `sh -c 'git push'` do not match `git push`"
        yield _make_gap(persona, Effect.WEAKER, what, "restrict it by the sandbox: no network, no credentials, project: read", plan.personas_origin)
    if any("(" in rule for rule in found.allow):
        what = "if a tool is allowed only in part, this list alone refuses the rest: --permission-mode acceptEdits adds to it, and, if the file is used "
        what += "without the persona's script, what ~/.claude/settings.json allows"
        yield _make_gap(persona, Effect.WEAKER, what, "deny what must never happen, or set project: read", plan.personas_origin)

    if persona.hooks:
        what = (
            "hooks run in the same sandbox as the agent's commands: a command may end a slow hook, and a hook finds programs on a PATH that may"
            " include directories that the agent wrote; the call is then allowed"
        )
        yield _make_gap(
            persona,
            Effect.WEAKER,
            what,
            "call programs by absolute paths, and enforce what matters by the sandbox: project: read, allowed_domains",
            plan.personas_origin,
        )


def _own_sandbox_gaps(plan: Plan, persona: PersonaPolicy) -> Iterator[Gap]:
    yield _make_gap(persona, Effect.WEAKER, _WEAKER_SANDBOX, "start personas by their wrappers", plan.personas_origin)
    network = persona.fence.network
    if network.mode in _UNLISTED:
        what = f"network: {network.mode.value} is what a proxy reaches in Claude Code's own sandbox: names on every port, and nothing but TCP"
        yield _make_gap(persona, Effect.STRICTER, what, "start it by its wrapper", network.origin)
    if network.loopback:
        ports = ", ".join(map(str, network.loopback))
        yield _make_gap(persona, Effect.STRICTER, f"loopback: {ports} is not reached in Claude Code's own sandbox", "start it by its wrapper", network.origin)
    for rule in _manifest_path_rules(persona):
        if rule.socket:
            yield _make_gap(
                persona, Effect.STRICTER, f"{rule.path}: Claude Code's own sandbox lets no command use sockets", "start it by its wrapper", rule.origin
            )
