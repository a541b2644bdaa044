"""The plan as a table for people."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.errors import one_line
from wavegen.manifest import NetworkMode
from wavegen.policy import Access, PathRule, PersonaPolicy, Plan, Policy


def table(plan: Plan) -> Iterator[str]:
    """Lines: one section per shell, one rule a line, each with where it comes from."""
    yield f"{one_line(plan.name)}: {len(plan.shells)} shells, {len(plan.personas)} personas, backend {plan.backend.value}"
    yield one_line(f"containers of {plan.image.reference}  # {plan.image.origin}")
    for shell in plan.shells:
        yield ""
        yield from _shell(shell)
    if plan.personas:
        yield ""
        yield "personas"
        rows = [(persona.name, _persona(persona), str(persona.origin)) for persona in plan.personas]
        first, second = (min(96, max(len(row[i]) for row in rows)) for i in (0, 1))
        for name, what, origin in rows:
            yield one_line(f"  {name:<{first}}  {what:<{second}}  # {origin}")


def _persona(persona: PersonaPolicy) -> str:
    fence = persona.fence
    runs = ", else ".join(agent.binary + (f" ({agent.model})" if agent.model else "") for agent in persona.agents) or "nothing: it has no adapter"
    project = "project writable" if persona.project_writable else "project read-only"
    network = fence.network.mode.value + (f" ({', '.join(map(str, fence.network.domains))})" if fence.network.mode is NetworkMode.FILTERED else "")
    return f"runs {runs}; " + (f"shell {persona.shell}, {project}, network {network}" if fence.fenced else "NOT SANDBOXED")


def _shell(shell: Policy) -> Iterator[str]:
    yield one_line(f"shell {shell.name}" + ("" if shell.fenced else ": NOT SANDBOXED") + f"  # {shell.origin}")
    if not shell.fenced:
        return
    rows: list[tuple[str, str, str]] = [("network", shell.network.mode.value, str(shell.network.origin))]
    binds = shell.network.mode is NetworkMode.FILTERED
    rows += [("  deny", str(d), str(d.origin)) for d in shell.network.denied]
    rows += [
        ("  allow", ", ".join((str(d), *(f"{name}: {str(flag).lower()}" for name, flag in d.flags().items()))), str(d.origin))
        for d in shell.network.domains
        if binds
    ]
    rows += [("  upstream", "HTTPS_PROXY of the host", str(origin)) for origin in (shell.network.upstream,) if origin]
    rows += [("  loopback", str(port), str(shell.network.origin)) for port in shell.network.loopback]
    rows += [_path(rule) for rule in shell.paths]
    rows += [("variable", rule.name if rule.value is None else f"{rule.name}={rule.value}", str(rule.origin)) for rule in shell.environment]
    rows += [("package", ".".join(p.attribute), str(p.origin)) for p in shell.packages]
    first, second = (min(48, max(len(row[i]) for row in rows)) for i in (0, 1))
    for kind, what, origin in rows:
        yield one_line(f"  {kind:<{first}}  {what:<{second}}  # {origin}")


def _path(rule: PathRule) -> tuple[str, str, str]:
    kind = "hold" if rule.guarded and rule.access is Access.WRITE else rule.access.value
    more = f" (shows {rule.source})" if rule.source else " (where it exists)" if rule.guarded else ""
    return (kind, f"{rule.path}{more}", str(rule.origin))
