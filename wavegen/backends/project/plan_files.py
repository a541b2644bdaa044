"""What every rendered tree holds besides fences: what the static Nix reads of the plan, the launcher, and the editors' schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from wavegen.backends import File
from wavegen.core import resources
from wavegen.core.quote import json_text
from wavegen.manifest.json_schema import manifest_schema
from wavegen.manifest.model import BackendName, Output
from wavegen.policy.model import (
    Access,
    Agent,
    Anchor,
    DomainRule,
    Effect,
    EnvRule,
    Gap,
    HookRule,
    HostPath,
    Image,
    Limits,
    Network,
    PathRule,
    PersonaPolicy,
    Plan,
    Policy,
)

SCHEMA_FILE = ".wavegen/wave.schema.json"


def render(plan: Plan) -> Iterator[File]:
    """plan.json, wave.schema.json and the modules that generated files run."""
    yield File(path=".wavegen/plan.json", text=json_text(nix_json(plan)), header=False)
    yield File(path=SCHEMA_FILE, text=json_text(manifest_schema()), header=False)
    if plan.vendored:
        yield File(path=".wavegen/.gitignore", text="/launcher/__pycache__/\n", header=False)
    yield File(path=".wavegen/.gitattributes", text="* -text linguist-generated\n", header=False)
    left_out = {name for names, needed in _PARTS if not needed(plan) for name in names}
    for name, text in resources.launcher_sources() if plan.vendored else ():
        if name not in left_out:
            yield File(path=f".wavegen/launcher/{name}", text=text, header=False)


_PARTS: tuple[tuple[tuple[str, ...], Callable[[Plan], bool]], ...] = (
    (
        ("container.py", "container_mounts.py", "container_output.py", "engine.py", "inside/container_entry.sh"),
        lambda plan: Output.DOCKER in plan.outputs,
    ),
    (("grants.py", "landlock.py", "rendered.py", "tcp_filter.py"), lambda plan: plan.backend is BackendName.LANDLOCK),
)
"""Files of the launcher that only some projects need."""


def gaps(plan: Plan) -> Iterator[Gap]:
    """What the manifest asks for that nothing renders."""
    for persona in plan.personas:
        for what, remedy, origin in persona.ignored:
            yield Gap(backend="personas", shell=persona.fence.name, effect=Effect.IGNORED, what=what, remedy=remedy, origin=origin)
    if not plan.vendored:
        yield from _installed_gaps(plan)
    if not plan.enabled:
        yield Gap(
            backend="personas",
            shell="",
            effect=Effect.WEAKER,
            what="personas and `wavegen run` without --shell run without a fence, as the manifest says",
            remedy="remove the line to fence it",
            origin=plan.enabled_origin,
        )


_INSTALLED = (
    *(HostPath(Anchor.HOME, place) for place in (".local/bin", ".local/lib", ".local/share", ".local/pipx", ".cache/uv", ".pyenv")),
    *(HostPath(Anchor.ROOT, place) for place in ("usr/local", "usr/bin", "usr/lib", "opt")),
)
"""Where an installed wavegen, or its Python, lies; of uv's cache the installed files are other names."""


def _installed_gaps(plan: Plan) -> Iterator[Gap]:
    """Where a shell may write what its scripts start outside of every sandbox."""
    for shell in plan.all_fences():
        for rule in shell.paths:
            # A path below the home may be spelled from the root.
            strange = rule.path.anchor is Anchor.ROOT and any(f"/{place.tail}/" in f"/{rule.path.tail}/" for place in _INSTALLED)
            if (
                rule.access is Access.WRITE
                and rule.origin.at
                and (strange or any(rule.path.contains_path(place) or place.contains_path(rule.path) for place in _INSTALLED))
            ):
                yield Gap(
                    backend="tree",
                    shell=shell.name,
                    effect=Effect.WEAKER,
                    what=f"with vendor: false scripts start an installed wavegen, and a command may write {rule.path}, where one or its Python may lie",
                    remedy="grant a place elsewhere, or remove vendor: false",
                    origin=rule.origin,
                )


def nix_json(plan: Plan) -> dict[str, object]:
    """What the static Nix reads: names, packages, and which shells are sandboxed. All else stands in the rules."""
    return {
        "version": 1,
        "name": plan.name,
        "image": {"reference": plan.image.reference},
        "unfree": list(plan.unfree),
        "package": str(plan.package.tail) if plan.package else None,
        "shells": {
            shell.name: {"fenced": shell.fenced, "packages": [{"attribute": list(p.attribute), "origin": p.origin.text_without_line} for p in shell.packages]}
            for shell in plan.shells
        },
        "personas": {persona.name: {"shell": persona.shell, "fenced": persona.fence.fenced} for persona in plan.personas},
    }


def plan_json(plan: Plan) -> dict[str, object]:
    """The plan as JSON values: what `wavegen plan --json` prints. Pure data, stable order."""
    return {
        "version": 1,
        "name": plan.name,
        "manifest": plan.manifest,
        "overlay": plan.overlay if plan.overlaid else None,
        "enabled": plan.enabled,
        "backend": plan.backend.value,
        "image": _image_json(plan.image),
        "unfree": list(plan.unfree),
        "package": str(plan.package.tail) if plan.package else None,
        "shells": {shell.name: _shell_json(shell) for shell in plan.shells},
        "personas": {persona.name: _persona_json(persona) for persona in plan.personas},
    }


def _image_json(image: Image) -> dict[str, object]:
    return {"reference": image.reference, "origin": str(image.origin), "base": image.base, "base_origin": str(image.base_origin)}


def _shell_json(shell: Policy) -> dict[str, object]:
    return {
        "origin": str(shell.origin),
        "fenced": shell.fenced,
        "wrapper": f"bin/{shell.name}",
        "packages": [{"attribute": list(p.attribute), "origin": str(p.origin)} for p in shell.packages],
        "network": _network_json(shell.network),
        "nested": shell.nested,
        "fallback": shell.fallback.value,
        "seccomp": {
            "filter": shell.seccomp.value,
            **({"allow": list(shell.seccomp_allow)} if shell.seccomp_allow else {}),
            "origin": str(shell.seccomp_origin),
        },
        "limits": _limits_json(shell.limits),
        "paths": [_path_json(rule) for rule in shell.paths],
        "environment": [_variable_json(rule) for rule in shell.environment],
    }


def _network_json(network: Network) -> dict[str, object]:
    return {
        "mode": network.mode.value,
        "origin": str(network.origin),
        "domains": [_domain_json(rule) for rule in network.domains],
        "loopback": list(network.loopback),
        **({"denied": [_domain_json(rule) for rule in network.denied]} if network.denied else {}),
        **({"upstream": str(network.upstream)} if network.upstream else {}),
    }


def _domain_json(rule: DomainRule) -> dict[str, object]:
    return {"domain": str(rule), **rule.extra_flags(), "origin": str(rule.origin)}


def _limits_json(limits: Limits) -> dict[str, object]:
    return {"pids": limits.pids, "memory": limits.memory, "cpus": limits.cpus, "files": limits.files, "scratch": limits.scratch, "origin": str(limits.origin)}


def _path_json(rule: PathRule) -> dict[str, object]:
    flags = {"required": rule.required, "socket": rule.socket, "pinned": rule.pinned, "guarded": rule.guarded}
    shown = {"shows": str(rule.source)} if rule.source else {}
    return {"path": str(rule.path), "access": rule.access.value, **shown, **{k: True for k, v in flags.items() if v}, "origin": str(rule.origin)}


def _variable_json(rule: EnvRule) -> dict[str, object]:
    return {"name": rule.name, **({} if rule.value is None else {"value": rule.value}), "origin": str(rule.origin)}


def _persona_json(persona: PersonaPolicy) -> dict[str, object]:
    fence = persona.fence
    return {
        "origin": str(persona.origin),
        "shell": persona.shell,
        "fenced": fence.fenced,
        "wrapper": f"bin/{fence.name}",
        "agents": [_agent_json(agent) for agent in persona.agents],
        "project": "write" if persona.project_writable else "read",
        "network": _network_json(fence.network),
        "allowed_tools": [str(pattern) for pattern in persona.allowed_tools],
        "denied_tools": [str(pattern) for pattern in persona.denied_tools],
        "hooks": [_hook_json(hook) for hook in persona.hooks],
        "paths": [_path_json(rule) for rule in fence.paths if rule.origin.at],
        "environment": [_variable_json(rule) for rule in fence.environment if rule.origin.at],
    }


def _agent_json(agent: Agent) -> dict[str, object]:
    return {"adapter": agent.adapter, "kind": agent.kind.value, "command": agent.binary, "model": agent.model, "origin": str(agent.origin)}


def _hook_json(hook: HookRule) -> dict[str, object]:
    return {"before": hook.before, "matcher": str(hook.matcher), "command": hook.command, "origin": str(hook.origin)}
