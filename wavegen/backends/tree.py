"""What every rendered tree holds besides fences: the resolved plan, which the static Nix reads, and the editors' schema."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen import resources
from wavegen.backends import File
from wavegen.policy import Agent, DomainRule, Effect, EnvRule, Gap, HookRule, Image, Limits, Network, PathRule, PersonaPolicy, Plan, Policy
from wavegen.quote import json_text
from wavegen.schema import manifest_schema

SCHEMA_FILE = ".wavegen/wave.schema.json"


def render(plan: Plan) -> Iterator[File]:
    """plan.json, wave.schema.json and the modules that generated files run."""
    yield File(path=".wavegen/plan.json", text=json_text(plan_json(plan)), header=False)
    yield File(path=SCHEMA_FILE, text=json_text(manifest_schema()), header=False)
    for name, text in resources.runtime():
        yield File(path=f".wavegen/runtime/{name}", text=text, header=False)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What the manifest asks for that nothing renders."""
    for persona in plan.personas:
        for what, remedy, origin in persona.ignored:
            yield Gap(backend="personas", shell=persona.fence.name, effect=Effect.IGNORED, what=what, remedy=remedy, origin=origin)
    if not plan.enabled:
        yield Gap(
            backend="personas",
            shell="",
            effect=Effect.WEAKER,
            what="personas and `wavegen run` without --shell run without a fence, as the manifest says",
            remedy="remove the line to fence it",
            origin=plan.enabled_origin,
        )


def plan_json(plan: Plan) -> dict[str, object]:
    """The plan as JSON values: what `wavegen plan --json` prints and the static Nix reads. Pure data, stable order."""
    return {
        "version": 1,
        "name": plan.name,
        "manifest": plan.manifest,
        "overlay": plan.overlay if plan.overlaid else None,
        "enabled": plan.enabled,
        "backend": plan.backend.value,
        "image": _image(plan.image),
        "unfree": list(plan.unfree),
        "package": str(plan.package.tail) if plan.package else None,
        "shells": {shell.name: _shell(shell) for shell in plan.shells},
        "personas": {persona.name: _persona(persona) for persona in plan.personas},
    }


def _image(image: Image) -> dict[str, object]:
    return {"reference": image.reference, "origin": str(image.origin), "base": image.base, "base_origin": str(image.base_origin)}


def _shell(shell: Policy) -> dict[str, object]:
    return {
        "origin": str(shell.origin),
        "fenced": shell.fenced,
        "wrapper": f"bin/{shell.name}",
        "packages": [{"attribute": list(p.attribute), "origin": str(p.origin)} for p in shell.packages],
        "network": _network(shell.network),
        "nested": shell.nested,
        "fallback": shell.fallback.value,
        "seccomp": {
            "filter": shell.seccomp.value,
            **({"allow": list(shell.seccomp_allow)} if shell.seccomp_allow else {}),
            "origin": str(shell.seccomp_origin),
        },
        "limits": _limits(shell.limits),
        "paths": [_path(rule) for rule in shell.paths],
        "environment": [_variable(rule) for rule in shell.environment],
    }


def _network(network: Network) -> dict[str, object]:
    return {
        "mode": network.mode.value,
        "origin": str(network.origin),
        "domains": [_domain(rule) for rule in network.domains],
        "loopback": list(network.loopback),
        **({"denied": [_domain(rule) for rule in network.denied]} if network.denied else {}),
        **({"upstream": str(network.upstream)} if network.upstream else {}),
    }


def _domain(rule: DomainRule) -> dict[str, object]:
    return {"domain": str(rule), **rule.flags(), "origin": str(rule.origin)}


def _limits(limits: Limits) -> dict[str, object]:
    return {"pids": limits.pids, "memory": limits.memory, "cpus": limits.cpus, "files": limits.files, "scratch": limits.scratch, "origin": str(limits.origin)}


def _path(rule: PathRule) -> dict[str, object]:
    flags = {"required": rule.required, "socket": rule.socket, "pinned": rule.pinned, "guarded": rule.guarded}
    shown = {"shows": str(rule.source)} if rule.source else {}
    return {"path": str(rule.path), "access": rule.access.value, **shown, **{k: True for k, v in flags.items() if v}, "origin": str(rule.origin)}


def _variable(rule: EnvRule) -> dict[str, object]:
    return {"name": rule.name, **({} if rule.value is None else {"value": rule.value}), "origin": str(rule.origin)}


def _persona(persona: PersonaPolicy) -> dict[str, object]:
    fence = persona.fence
    return {
        "origin": str(persona.origin),
        "shell": persona.shell,
        "fenced": fence.fenced,
        "wrapper": f"bin/{fence.name}",
        "agents": [_agent(agent) for agent in persona.agents],
        "project": "write" if persona.project_writable else "read",
        "network": _network(fence.network),
        "allowed_tools": [str(pattern) for pattern in persona.allowed_tools],
        "denied_tools": [str(pattern) for pattern in persona.denied_tools],
        "hooks": [_hook(hook) for hook in persona.hooks],
        "paths": [_path(rule) for rule in fence.paths if rule.origin.at],
        "environment": [_variable(rule) for rule in fence.environment if rule.origin.at],
    }


def _agent(agent: Agent) -> dict[str, object]:
    return {"adapter": agent.adapter, "kind": agent.kind.value, "command": agent.binary, "model": agent.model, "origin": str(agent.origin)}


def _hook(hook: HookRule) -> dict[str, object]:
    return {"before": hook.before, "matcher": str(hook.matcher), "command": hook.command, "origin": str(hook.origin)}
