"""The plan as a table for people: who may touch what, each with the line that says so. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from wavegen.core.errors import one_line
from wavegen.core.terminal import Style, apply_style
from wavegen.manifest.model import Fallback, NetworkMode, Seccomp
from wavegen.policy.defaults import MEMORY_SHARE
from wavegen.policy.model import Access, Anchor, DomainRule, Effect, Gap, HostPath, Limits, Network, Origin, PathRule, PersonaPolicy, Plan, Policy

_WIDEST_KIND, _WIDEST = 16, 96


@dataclass(frozen=True, slots=True)
class Row:
    """A line: what kind of rule, what it says, and where it comes from. `always`: also where it is a default that nobody wrote."""

    kind: str
    what: str
    origin: Origin
    always: bool = False
    style: Style | None = None


def render_plan_table(plan: Plan, gaps: Iterable[Gap] = (), *, verbose: bool = True, colour: bool = False) -> Iterator[str]:
    """Lines: a section for each shell and persona, then the gaps. Without `verbose` defaults that nobody wrote are counted, not listed."""
    yield f"{one_line(plan.name)}: {_count_text(len(plan.shells), 'shell')}, {_count_text(len(plan.personas), 'persona')}, backend {plan.backend.value}"
    yield one_line(f"containers of {plan.image.reference}  # {plan.image.origin}")
    for shell in plan.shells:
        yield ""
        unfenced = apply_style(": NOT SANDBOXED", Style.BAD, colour=colour) if not shell.fenced else ""
        yield f"shell {apply_style(one_line(shell.name), Style.STRONG, colour=colour)}{unfenced}  # {one_line(str(shell.origin))}"
        yield from _section_lines(tuple(_shell_rows(shell)) if shell.fenced else (), verbose=verbose, colour=colour)
    for persona in plan.personas:
        yield ""
        yield f"persona {apply_style(one_line(persona.name), Style.STRONG, colour=colour)}  # {one_line(str(persona.origin))}"
        yield from _section_lines(tuple(_persona_rows(persona, plan.find_shell(persona.shell))), verbose=verbose, colour=colour)
    yield from _gap_lines(tuple(gaps), verbose=verbose, colour=colour)


def _count_text(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _section_lines(rows: tuple[Row, ...], *, verbose: bool, colour: bool) -> Iterator[str]:
    shown = [row for row in rows if verbose or row.always or row.origin.at]
    yield from _align_rows(shown, colour=colour)
    hidden = [row for row in rows if row not in shown]
    if hidden:
        counts: dict[str, int] = {}
        for row in hidden:
            counts[row.kind.strip()] = counts.get(row.kind.strip(), 0) + 1
        listed = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        yield f"  and {_count_text(len(hidden), 'default')} ({listed}): -v shows them"


def _align_rows(rows: list[Row], *, colour: bool) -> Iterator[str]:
    if not rows:
        return
    first = min(_WIDEST_KIND, max(len(row.kind) for row in rows))
    second = min(_WIDEST, max(len(one_line(row.what)) for row in rows))
    before = ""
    for row in rows:
        # One name over all lines of a kind; what hangs below another line keeps its own.
        kind = row.kind if row.kind != before or row.kind.startswith(" ") else ""
        before = row.kind
        what = f"{one_line(row.what):<{second}}"
        yield f"  {kind:<{first}}  {apply_style(what, row.style, colour=colour) if row.style else what}  # {one_line(str(row.origin))}"


# --- a shell


_STYLES = {Access.WRITE: Style.WARNING, Access.HIDE: Style.FAINT}
_ORDER = (Access.WRITE, Access.SCRATCH, Access.READ, Access.HIDE)
_WORDS = {Access.WRITE: "write", Access.SCRATCH: "scratch", Access.READ: "read", Access.HIDE: "hide"}


def _shell_rows(shell: Policy) -> Iterator[Row]:
    yield from _path_rows(shell.paths)
    yield from _network_rows(shell.network)
    yield from _variable_rows(shell)
    yield from _kernel_rows(shell)
    for package in shell.packages:
        yield Row("package", ".".join(package.attribute), package.origin)
    if shell.fallback is Fallback.WARN:
        yield Row("fallback", "warn: run without a fence where it cannot be built", shell.origin, always=True, style=Style.BAD)


def _path_rows(rules: Iterable[PathRule]) -> Iterator[Row]:
    rules = tuple(rules)
    for access in _ORDER:
        for rule in (rule for rule in rules if rule.access is access and not rule.guarded):
            main = not rule.path.tail and rule.path.anchor in (Anchor.PROJECT, Anchor.HOME)
            more = [f"shows {rule.source}"] if rule.source else []
            more += ["optional"] if rule.origin.at and not rule.required and access in (Access.READ, Access.WRITE) else []
            more += ["with its sockets"] if rule.socket else []
            more += ["part of the fence"] if rule.pinned else []
            text = f"{rule.path}" + (f" ({', '.join(more)})" if more else "")
            yield Row(_WORDS[access], text, rule.origin, always=main, style=_STYLES.get(access) if rule.origin.at else None)
    for rule in (rule for rule in rules if rule.guarded):
        yield Row("hold" if rule.access is Access.WRITE else "guard", f"{rule.path} (where it exists)", rule.origin)


def _network_rows(network: Network, *, always: bool = True) -> Iterator[Row]:
    style = Style.BAD if network.mode is NetworkMode.HOST else Style.WARNING if network.mode is NetworkMode.OPEN else None
    yield Row("network", network.mode.value, network.origin, always=always, style=style)
    yield from (Row("  deny", str(rule), rule.origin, always=True) for rule in network.denied)
    if network.mode is NetworkMode.FILTERED:
        yield from (Row("  allow", _domain_text(rule), rule.origin, always=True) for rule in network.domains)
    if network.upstream:
        yield Row("  upstream", "HTTPS_PROXY of the host", network.upstream)
    yield from (Row("  loopback", str(port), network.origin, always=True) for port in network.loopback)


def _domain_text(rule: DomainRule) -> str:
    return ", ".join((str(rule), *(f"{name}: {str(flag).lower()}" for name, flag in rule.extra_flags().items())))


def _variable_rows(shell: Policy) -> Iterator[Row]:
    for rule in shell.environment:
        yield Row("variable", rule.name if rule.value is None else f"{rule.name}={rule.value}", rule.origin)


def _kernel_rows(shell: Policy) -> Iterator[Row]:
    yield Row("limits", limits_text(shell.limits), shell.limits.origin, always=True)
    loose = shell.seccomp is Seccomp.OFF
    yield Row("seccomp", shell.seccomp.value, shell.seccomp_origin, always=True, style=Style.BAD if loose else None)
    if shell.seccomp_allow:
        yield Row("  let through", ", ".join(shell.seccomp_allow), shell.seccomp_allow_origin)
    if shell.nested:
        yield Row("nested", "sandboxes inside, and with them user namespaces", shell.origin, always=True, style=Style.WARNING)


def limits_text(limits: Limits) -> str:
    """`pids 4096, memory 2g, …`."""
    memory = size_text(limits.memory) if limits.memory else f"{MEMORY_SHARE} % of the machine's"
    cpus = f"{limits.cpus:g}" if limits.cpus else "all"
    return f"pids {limits.pids}, memory {memory}, cpus {cpus}, files {limits.files}, tmp {size_text(limits.scratch)}"


def size_text(number: int) -> str:
    """`512m`, `2g`: bytes in the largest unit that divides them."""
    for unit, size in (("t", 1024**4), ("g", 1024**3), ("m", 1024**2), ("k", 1024)):
        if number >= size and number % size == 0:
            return f"{number // size}{unit}"
    return str(number)


# --- a persona


def _persona_rows(persona: PersonaPolicy, shell: Policy | None) -> Iterator[Row]:
    fence = persona.fence
    runs = ", else ".join(agent.binary + (f" ({agent.model})" if agent.model else "") for agent in persona.agents) or "nothing: it has no adapter"
    yield Row("runs", runs, persona.agents[0].origin if persona.agents else persona.origin, always=True)
    if not fence.fenced:
        yield Row("shell", f"{persona.shell}: NOT SANDBOXED", persona.origin, always=True, style=Style.BAD)
    else:
        yield Row("shell", f"{persona.shell}, narrower", persona.origin, always=True)
        project = next((rule.origin for rule in fence.paths if rule.path == HostPath(Anchor.PROJECT)), persona.origin)
        yield Row("project", "write" if persona.project_writable else "read-only", project, always=True)
        yield from _network_rows(fence.network)
        known = set(shell.paths) if shell else set()
        # What it shares with its shell is said there.
        yield from (row for row in _path_rows(rule for rule in fence.paths if rule not in known and rule.path != HostPath(Anchor.PROJECT)))
        shared = {rule.name: rule for rule in shell.environment} if shell else {}
        names = {rule.name for rule in fence.environment}
        for rule in fence.environment:
            if shared.get(rule.name) != rule and rule.name != "WAVEGEN_SHELL":
                yield Row("variable", rule.name if rule.value is None else f"{rule.name}={rule.value}", rule.origin)
        gone = [name for name in shared if name not in names]
        if gone:
            yield Row("no variable", ", ".join(gone), persona.origin, always=True)
    yield from (Row("tool", str(pattern), pattern.origin, always=True) for pattern in persona.allowed_tools)
    yield from (Row("no tool", str(pattern), pattern.origin, always=True) for pattern in persona.denied_tools)
    for hook in persona.hooks:
        yield Row("hook", f"{'before' if hook.before else 'after'} {hook.matcher}: {hook.command}", hook.origin)
    if persona.unsandboxed_commands:
        yield Row("unsandboxed", "Claude Code may retry a command outside its own sandbox", persona.origin, always=True, style=Style.BAD)


# --- gaps


def _gap_lines(gaps: tuple[Gap, ...], *, verbose: bool, colour: bool) -> Iterator[str]:
    if not gaps:
        return
    shown = [gap for gap in gaps if verbose or gap.origin.at or gap.fatal]
    yield ""
    yield apply_style("gaps", Style.STRONG, colour=colour)
    styles = {Effect.IGNORED: Style.BAD, Effect.WEAKER: Style.WARNING, Effect.STRICTER: Style.NOTE}
    for gap in shown:
        where = f"{gap.shell}: " if gap.shell else ""
        effect = apply_style(f"{gap.effect.value:<8}", styles[gap.effect], colour=colour)
        yield f"  {effect}  {one_line(f'{where}{gap.what} [{gap.backend}] ({gap.remedy})')}  # {one_line(str(gap.origin))}"
    if len(shown) < len(gaps):
        yield f"  and {len(gaps) - len(shown)} that no line of the manifest is the cause of: -v shows them"
