"""Personas → what each is told, what its agent enforces, and the fence around it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from wavegen.core.errors import InvalidValueError, Location, Problem, Severity
from wavegen.manifest.decoder import Text, suggest_spelling
from wavegen.manifest.model import Adapter, DomainEntry, Hooks, Manifest, NetworkMode, PathAccess, Persona, Sandbox
from wavegen.manifest.presets import PRESETS, apply_preset
from wavegen.policy import defaults, known_agents, persona_tools
from wavegen.policy.domains import rule_covers
from wavegen.policy.model import Agent, Anchor, DomainRule, EnvRule, HookRule, HostPath, Network, Origin, PathRule, PersonaPolicy, Policy, ToolPattern
from wavegen.policy.paths import host_path

PREFIX = "persona-"
"""What the names of personas' scripts begin with."""

Domains = Callable[[Iterable[Text | DomainEntry]], tuple[DomainRule, ...]]
_EVERYTHING = ToolPattern("*", None, Origin("no list of tools is written"))
_TLS_PORT = "443"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""What can name a shell or a persona, and with it a script and an output of the flake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FenceOf:
    """What the fence of a persona is made from, besides the shell that it is a narrower form of."""

    name: str
    origin: Origin
    shell: Policy
    fenced: bool
    network: Network
    deny: tuple[Text, ...]
    read_only: Origin | None
    passed: tuple[str, ...] | None
    """The host's variables of the shell's list that it gets; None: all of them."""
    variables: tuple[EnvRule, ...]
    emptied: tuple[PathRule, ...]
    """Places of the private home that are empty at each start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Plans personas by what the planner lends: how lists of domains are read, fences built and problems noted."""

    manifest: Manifest
    sandbox: Sandbox
    shells: tuple[Policy, ...]
    domains: Domains
    bounded: Callable[[Network], Network]
    """A shell's network with what holds everywhere, where the host's own has no use for it."""
    fence: Callable[[FenceOf], Policy]
    enabled: bool
    """Whether the manifest leaves personas their fence."""
    report: Callable[[Problem], None]

    def plan_personas(self) -> tuple[PersonaPolicy, ...]:
        """All personas that could be planned, in the order of the manifest."""
        self._check_fallbacks()
        found = (self._plan_persona(str(name), self._with_preset(name, persona)) for name, persona in self.manifest.personas.items() if self._check_name(name))
        return tuple(persona for persona in found if persona)

    def _report_error(self, at: Location, what: str, hint: str) -> None:
        self.report(Problem(at=at, severity=Severity.ERROR, what=what, hint=hint))

    def _report_warning(self, at: Location, what: str, hint: str) -> None:
        self.report(Problem(at=at, severity=Severity.WARNING, what=what, hint=hint))

    def _check_name(self, name: str) -> bool:
        if NAME.fullmatch(name):
            return True
        at = name.at if isinstance(name, Text) else self.manifest.at.location_of("personas")
        self._report_error(at, f"'{name}' cannot name a persona", "letters, digits, - and _, at most 64")
        return False

    def _with_preset(self, name: str, persona: Persona) -> Persona:
        wanted = persona.preset
        if not wanted:
            if "preset" in persona.at:
                self._report_error(persona.at.location_of("preset"), f"personas.{name}.preset is empty", f"name one: {', '.join(PRESETS)}")
            return persona
        preset = PRESETS.get(wanted)
        if preset is None:
            self._report_error(
                wanted.at,
                f"personas.{name}.preset: there is no preset '{wanted}'",
                suggest_spelling(wanted, tuple(PRESETS)) or f"presets: {', '.join(PRESETS)}",
            )
            return persona
        return apply_preset(persona, preset, persona.at)

    def _plan_persona(self, name: str, persona: Persona) -> PersonaPolicy | None:
        shell = self._shell_of(name, persona)
        if shell is None:
            return None
        adapter_name, adapter = persona_tools.adapter_of(persona, self.manifest.adapters)
        if persona.adapter and adapter is None:
            known = tuple(self.manifest.adapters)
            # Wave takes such manifests too; the name is then taken for the command's.
            self._report_warning(
                persona.adapter.at,
                f"personas.{name}.adapter: there is no adapter '{persona.adapter}'",
                suggest_spelling(persona.adapter, known) or f"adapters: {', '.join(known) or 'none'}",
            )
        written, denied_texts = persona_tools.written_tool_patterns(persona, adapter)
        allowed = (_EVERYTHING,) if written is None else self._parse_patterns(written)
        denied = self._parse_patterns(denied_texts)
        agents = self._persona_agents(adapter_name, adapter, persona)
        sandbox = persona.sandbox
        read_only = self._read_only(persona, allowed, denied)
        fence = self.fence(
            FenceOf(
                name=f"{PREFIX}{name}",
                origin=Origin("", persona.at.here),
                shell=shell,
                fenced=shell.fenced and self.enabled,
                network=self._plan_network(name, persona, shell, agents),
                deny=sandbox.deny_read_paths if sandbox else (),
                read_only=read_only,
                passed=self._passed_variables(name, persona, shell),
                variables=known_agents.agent_variables(agents),
                emptied=known_agents.cleared_settings_rules(agents),
            )
        )
        return PersonaPolicy(
            name=name,
            description=str(persona.description or ""),
            origin=Origin("", persona.at.here),
            shell=shell.name,
            fence=fence,
            agents=agents,
            project_writable=read_only is None,
            allowed_tools=allowed,
            denied_tools=denied,
            hooks=tuple(self._plan_hooks(persona.hooks)) if persona.hooks else (),
            prompt=self._prompt_path(name, persona),
            prompt_text=str(persona.system_prompt or ""),
            ignored=(*_ignored_keys(persona, adapter), *(() if fence.fenced else _unenforced_keys(persona))),
            unsandboxed_commands=self.sandbox.allow_unsandboxed_commands,
        )

    # --- the fence

    def _shell_of(self, name: str, persona: Persona) -> Policy | None:
        wanted = persona.sandbox.shell if persona.sandbox else None
        by_name = {shell.name: shell for shell in self.shells}
        if wanted is not None and wanted not in by_name:
            hint = suggest_spelling(wanted, tuple(by_name)) or f"shells: {', '.join(by_name)}"
            self._report_error(wanted.at, f"personas.{name}.sandbox.shell: there is no shell '{wanted}'", hint)
            return None
        return by_name[str(wanted or "restricted")]

    def _read_only(self, persona: Persona, allowed: tuple[ToolPattern, ...], denied: tuple[ToolPattern, ...]) -> Origin | None:
        """Why the project is read-only for a persona; None where it is not."""
        sandbox = persona.sandbox
        if sandbox and sandbox.project is not None:
            return Origin("", sandbox.at.location_of("project")) if sandbox.project is PathAccess.READ else None
        return None if persona_tools.may_write(allowed, denied) else Origin("no tool is left that writes", persona.at.location_of("permissions"))

    def _passed_variables(self, name: str, persona: Persona, shell: Policy) -> tuple[str, ...] | None:
        listed = persona.sandbox.env_passthrough if persona.sandbox else None
        if listed is None:
            return None
        known = {rule.name for rule in defaults.PASSED} | {str(entry) for entry in (*self.sandbox.env_passthrough, *self._shell_passthrough(shell.name))}
        for entry in listed:
            if entry not in known:
                what = f"personas.{name}: {entry} is not among the variables that its shell {shell.name} lets in"
                self._report_error(entry.at, what, "add it to env_passthrough of the sandbox or the shell, or remove it")
        return tuple(map(str, listed))

    def _shell_passthrough(self, shell: str) -> tuple[Text, ...]:
        written = self.sandbox.shells.get(shell)
        return written.env_passthrough if written else ()

    # --- the network

    def _plan_network(self, name: str, persona: Persona, shell: Policy, agents: tuple[Agent, ...]) -> Network:
        sandbox = persona.sandbox
        network = shell.network
        listed = self.sandbox.at.location_of("default_allowed_domains") if "default_allowed_domains" in self.sandbox.at else None
        if sandbox and sandbox.allowed_domains is not None:
            domains = self.domains(sandbox.allowed_domains)
            self._check_shell_domains(name, domains, shell)
            listed = sandbox.at.location_of("allowed_domains")
            network = persona_tools.narrow_network(self.bounded(network), domains, Origin("", listed))
        elif known := {host for agent in agents for host in agent.hosts}:
            # Without any list a shell reaches the models of all adapters.
            network = replace(network, domains=tuple(rule for rule in network.domains if not rule.api or rule.host in known))
        # Without a fence nothing is kept from reaching its model.
        for agent in agents if shell.fenced and self.enabled else ():
            for host in agent.hosts:
                network = self._add_agent_host(host, agent, network, shell, network.origin.at or listed or agent.origin.at or Location(""))
        return network

    def _add_agent_host(self, host: str, agent: Agent, network: Network, shell: Policy, at: Location) -> Network:
        """The network with an agent's API host in it, which is said; an error where what is written forbids it."""
        needed = DomainRule(host=host, wildcard=False, port="", origin=Origin(f"API host of adapter {agent.adapter}", agent.origin.at), api=True)
        for rule in network.denied:
            if rule_covers(rule, replace(needed, port=_TLS_PORT)):
                self._report_error(
                    rule.origin.at or at, f"adapter {agent.adapter} is served at {host}, which is denied here", "remove the entry, or choose another adapter"
                )
                return network
        if network.mode in (NetworkMode.HOST, NetworkMode.OPEN):
            return network
        if any(rule_covers(rule, replace(needed, port=_TLS_PORT)) for rule in network.domains):
            return network
        if network.mode is NetworkMode.NONE:
            self._report_error(at, f"adapter {agent.adapter} is served at {host}, and there is no network here", f"list {host}, or choose another adapter")
            return network
        written = self.sandbox.shells.get(shell.name)
        bound = written is not None and written.domains is not None
        if written is not None and bound and not any(rule_covers(rule, replace(needed, port=_TLS_PORT)) for rule in shell.network.domains):
            self._report_error(
                written.at.location_of("domains"),
                f"adapter {agent.adapter} is served at {host}, which is not among the domains of shell {shell.name}",
                f"list {host}",
            )
            return network
        self.report(Problem(at=at, severity=Severity.NOTE, what=f"{host} is added for personas, as adapter {agent.adapter} is served there", hint="list it"))
        return replace(network, domains=tuple(sorted((*network.domains, needed), key=str)))

    def _check_shell_domains(self, persona: str, domains: tuple[DomainRule, ...], shell: Policy) -> None:
        """A shell's own list of domains is a bound; the default list is only what a persona gets that has none."""
        written = self.sandbox.shells.get(shell.name)
        listed = written is not None and written.domains is not None
        for domain in domains:
            at, shown = domain.origin.at, _with_flags(domain)
            if at and listed and not any(rule_covers(bound, domain) for bound in shell.network.domains):
                self._report_error(
                    at, f"personas.{persona}: {shown} is not among the domains of its shell {shell.name}", "add it there, or choose another shell"
                )
            elif at and domain.allow_private and shell.network.mode is NetworkMode.OPEN:
                # Open means every public name, and no list of the shell could say more.
                self._report_error(
                    at, f"personas.{persona}: {shown} is more than its shell {shell.name} reaches", "choose a shell with network: filtered or host"
                )

    # --- the agent

    def _persona_agents(self, name: str, adapter: Adapter | None, persona: Persona) -> tuple[Agent, ...]:
        if not name:
            return ()
        origin = Origin("", adapter.at.here if adapter else persona.adapter.at if persona.adapter else persona.at.here)
        model = str(persona.model or "")
        found = [known_agents.agent_of(name, adapter or Adapter(), model, origin)]
        for other in self.manifest.runtime.fallbacks.get(name, ()):
            known = self.manifest.adapters.get(other)
            if known is not None and other != name and all(agent.adapter != other for agent in found):
                # The name of a model is one of the first adapter's; a tier is everybody's.
                found.append(known_agents.agent_of(str(other), known, model if model in known_agents.TIERS else "", Origin("", known.at.here)))
        return tuple(found)

    def _check_fallbacks(self) -> None:
        known = tuple(self.manifest.adapters)
        for name, others in self.manifest.runtime.fallbacks.items():
            for entry in (name, *others):
                if entry not in self.manifest.adapters and isinstance(entry, Text):
                    what = f"runtime.fallbacks: there is no adapter '{entry}'"
                    self._report_warning(entry.at, what, suggest_spelling(entry, known) or f"adapters: {', '.join(known) or 'none'}")

    def _parse_patterns(self, texts: Iterable[Text]) -> tuple[ToolPattern, ...]:
        found: dict[str, ToolPattern] = {}
        for text in texts:
            try:
                pattern = persona_tools.tool_pattern(text)
            except InvalidValueError as bad:
                self._report_error(text.at, bad.what, bad.hint)
                continue
            found.setdefault(str(pattern), pattern)
        return tuple(found.values())

    def _plan_hooks(self, hooks: Hooks) -> Iterable[HookRule]:
        for before, written in ((True, hooks.PreToolUse), (False, hooks.PostToolUse)):
            for hook in written:
                if not hook.command or not hook.command.strip():
                    self._report_error(hook.at.here, "a hook has no command", "add `command:`, or remove the entry")
                    continue
                try:
                    matcher = (
                        persona_tools.tool_pattern(hook.matcher)
                        if hook.matcher and hook.matcher.strip()
                        else ToolPattern("*", None, Origin("no matcher is written"))
                    )
                except InvalidValueError as bad:
                    self._report_error(hook.at.location_of("matcher"), bad.what, bad.hint)
                    continue
                yield HookRule(before=before, matcher=matcher, command=str(hook.command), origin=Origin("", hook.at.here))

    def _prompt_path(self, name: str, persona: Persona) -> HostPath | None:
        text = persona.system_prompt_file
        if not text:
            return None
        try:
            path = host_path(text)
        except InvalidValueError as bad:
            self._report_error(text.at, f"personas.{name}.system_prompt_file: {bad.what}", bad.hint)
            return None
        if path.anchor is not Anchor.PROJECT:
            what = f"personas.{name}.system_prompt_file: '{text}' is not in the project, so that it is not read"
            self._report_warning(text.at, what, "put it into the project")
            return None
        return path


def _ignored_keys(persona: Persona, adapter: Adapter | None) -> Iterator[tuple[str, str, Origin]]:
    if persona.temperature is not None:
        yield "temperature has no effect: no agent has such a setting", "remove it", Origin("", persona.at.location_of("temperature"))
    if "token_scopes" in persona.at:
        what = "token_scopes has no effect: a token keeps every scope that it was issued with"
        yield what, "pass a token with fewer scopes, or none: sandbox.env_passthrough", Origin("", persona.at.location_of("token_scopes"))
    if adapter and "hooks_template" in adapter.at:
        yield "hooks_template has no effect", "write the hooks of a persona as hooks", Origin("", adapter.at.location_of("hooks_template"))


def _unenforced_keys(persona: Persona) -> Iterator[tuple[str, str, Origin]]:
    """What of a persona's own keys a fence would hold, where it has none."""
    sandbox = persona.sandbox
    for key in ("allowed_domains", "deny_read_paths", "project"):
        if sandbox and key in sandbox.at:
            yield (
                f"{key} has no effect: the persona has no sandbox",
                "give it a shell with a sandbox, and remove enabled: false",
                Origin("", sandbox.at.location_of(key)),
            )


def _with_flags(rule: DomainRule) -> str:
    flags = ", ".join(f"{name}: {str(value).lower()}" for name, value in rule.extra_flags().items())
    return f"{rule} ({flags})" if flags else str(rule)
