"""What the wrapper scripts of several back ends have in common: the rules of a plan as lines of bash, each with its origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import assert_never

from wavegen import defaults
from wavegen.backends import Option, header
from wavegen.backends._templates import fill
from wavegen.backends.agents import started
from wavegen.manifest import Fallback, NetworkMode
from wavegen.policy import Access, Anchor, EnvRule, HostPath, Origin, PathRule, PersonaPolicy, Plan, Policy
from wavegen.quote import sh
from wavegen.seccomp import Filter
from wavegen.seccomp.filters import filter_of

_CPU_PERIOD = 100_000
"""Microseconds over which the kernel shares processors out."""
_VARIABLES = {
    Anchor.HOME: "$wg_home",
    Anchor.PROJECT: "$wg_project",
    Anchor.STATE: "$wg_private",
    Anchor.RUNTIME: "$wg_runtime",
    Anchor.HOMES: "$wg_homes",
    Anchor.AROUND: "$wg_around",
}


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A call in the wrapper, and why it is there."""

    line: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive lines of one kind, and what stands around them."""

    before: str
    lines: tuple[RuleLine, ...]
    after: str


PROXIED = (NetworkMode.OPEN, NetworkMode.FILTERED)
"""The modes in which the launcher judges each connection."""


def filter_of_shell(shell: Policy) -> Filter | None:
    """The system call filter of a shell; None where it has none."""
    return filter_of(shell.seccomp, nested=shell.nested, allow=shell.seccomp_allow) if shell.fenced else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """What builds a fence, as far as its script differs from others."""

    file: str
    """The script, below the project."""
    name: str
    """What is started."""
    begins: str
    """The file of the runtime whose main() is called."""
    parts: tuple[str, ...]
    """The files of the runtime that are sourced before that one."""
    options: tuple[Option, ...]
    system: tuple[Run, ...]
    network: tuple[Option, ...]
    banner: tuple[str, ...]
    contained: bool = False
    """Whether that is a container, which has a system of its own."""
    settings: tuple[RuleLine, ...] = ()
    """Besides those that every script has."""


def wrapper(plan: Plan, shell: Policy, builder: Builder) -> str:
    """The script of a fenced shell, or of a persona's fence."""
    persona = plan.persona_of(shell)
    return fill(
        "wrapper.sh.j2",
        header=header(plan),
        file=builder.file,
        builder=builder.name,
        begins=builder.begins,
        name=shell.name,
        fallback=shell.fallback.value,
        persona=persona,
        agents=tuple(started(persona)) if persona else (),
        bare=bare(shell) if persona and shell.fallback is Fallback.WARN else (),
        proxied=shell.network.mode in PROXIED,
        settings=(*_settings(shell, persona, contained=builder.contained), *builder.settings),
        parts=" ".join((*_shared_parts(shell), *builder.parts, builder.begins)),
        network=builder.network,
        passed=passed(shell),
        options=builder.options,
        system=builder.system,
        system_paths=" | ".join(sh(f"/{rule.path.tail}") for rule in ground(shell) if rule.path.tail),
        places=tuple(_place_line(rule) for rule in shell.paths if rule.path.anchor is not Anchor.ROOT and not rule.guarded),
        guards=tuple(_guard_line(rule) for rule in shell.paths if rule.guarded),
        banner=builder.banner,
        writable=" ".join(_writable(plan)),
    )


def passed(shell: Policy) -> tuple[EnvRule, ...]:
    """The host's variables that arrive inside."""
    return tuple(rule for rule in shell.environment if rule.value is None)


def _shared_parts(shell: Policy) -> Iterator[str]:
    yield from ("places.sh", "guards.sh", "shim.sh")
    if _with_paths(shell):
        yield "granted.sh"


def bare(fence: Policy) -> tuple[Option, ...]:
    """Variables that are set for a persona's command that has no fence: none that tells of one, or of its proxies."""
    inside = {"SANDBOX_ACTIVE", *(rule.name for rule in defaults.PROXIES)}
    return tuple(Option((f"{rule.name}={rule.value}",), rule.origin) for rule in fence.environment if rule.value is not None and rule.name not in inside)


def _with_paths(shell: Policy) -> bool:
    """Whether the manifest names paths: the project's own rules are no such."""
    return any(rule.origin.at and rule.path.tail for rule in shell.paths)


def setting(name: str, value: object, origin: Origin) -> RuleLine:
    """An assignment that the files of the runtime ask for; empty is no, or none."""
    return RuleLine(f"wg_{name}={'' if value in (None, False) else sh('1' if value is True else str(value))}", origin)


def _settings(shell: Policy, persona: PersonaPolicy | None, *, contained: bool) -> Iterator[RuleLine]:
    """What the files of the runtime ask about a shell, as assignments."""

    def words(name: str, values: Iterable[str], origin: Origin) -> RuleLine:
        return RuleLine(f"wg_{name}=({_words(tuple(values))})", origin)

    home = next((rule.origin for rule in shell.paths if rule.path == HostPath(Anchor.HOME)), Origin("the real home is never there"))
    limits, found = shell.limits, filter_of_shell(shell)
    yield setting("persona", persona.name if persona else None, shell.origin)
    yield setting("contained", contained, Origin("whether the system inside is an image's"))
    yield setting("proxied", shell.network.mode in PROXIED, shell.network.origin)
    yield setting("uses_upstream", shell.network.upstream is not None, shell.network.upstream or shell.network.origin)
    yield setting("filter_name", found.name if found else None, shell.seccomp_origin)
    yield setting("nested", shell.nested, shell.origin)
    yield setting("private_home", shell.private_home, home)
    yield setting("minimal_root", shell.minimal_root, shell.origin)
    yield setting("with_paths", _with_paths(shell), Origin("whether the manifest names paths"))
    yield setting("bounded", limits.written, limits.origin)
    yield setting("pids", limits.pids, limits.origin)
    yield setting("files", limits.files, limits.origin)
    yield setting("memory_limit", limits.memory or None, limits.origin)
    yield setting("memory_share", defaults.MEMORY_SHARE, Origin("percent of what the machine has, where no number is written"))
    yield setting("cpus", round(limits.cpus * _CPU_PERIOD) if limits.cpus else None, limits.origin)
    yield setting("cpu_percent", round(limits.cpus * 100) if limits.cpus else None, limits.origin)
    yield setting("scratch_size", limits.scratch, limits.origin)
    scratch = (rule for rule in shell.paths if rule.access is Access.SCRATCH and rule.path.anchor is Anchor.ROOT and not rule.source)
    yield words("scratch", (f"/{rule.path.tail}" for rule in scratch), Origin("private directories of the system"))
    passed = {rule.name for rule in shell.environment if rule.value is None and rule.origin.at}
    yield words("noted", (name for name in ("GH_TOKEN", "ANTHROPIC_API_KEY") if name in passed), Origin("logins that a shell looks for, or says are missing"))
    yield words("git_files", defaults.GIT_FILES, Origin("git on the host runs or follows it, in any repository"))
    yield words("worktree_files", defaults.WORKTREE_FILES, Origin("git on the host follows it, in any worktree"))


def _writable(plan: Plan) -> tuple[str, ...]:
    """What any shell of the project may write: a link there may be an agent's, whichever shell it was in."""
    rules = (rule for shell in plan.shells for rule in shell.paths if rule.access is Access.WRITE and rule.origin.at and rule.path.tail)
    return tuple(dict.fromkeys(_path(rule.path) for rule in rules))


def ground(shell: Policy) -> tuple[PathRule, ...]:
    """The rules about the host's own paths."""
    return tuple(rule for rule in shell.paths if rule.path.anchor is Anchor.ROOT)


def system(shell: Policy, rules: Iterable[PathRule], *, kernel: Iterable[Option] = ()) -> Iterator[Run]:
    """Rules about paths of the system, shallow to deep, in runs of one kind. `kernel`: what stands above the root and below all else."""
    lines: list[tuple[Kind, RuleLine]] = []
    for rule in sorted(rules, key=lambda rule: (len(rule.path.parts()), _kind(rule).value)):
        lines.append((_kind(rule), _system_line(rule, shell)))
        if not rule.path.tail:
            lines += [(Kind.LATE if option.words[0] == "--remount-ro" else Kind.MOUNTS, RuleLine(_words(option.words), option.origin)) for option in kernel]
    for kind, run in groupby(lines, key=lambda pair: pair[0]):
        before, after = _AROUND[kind]
        yield Run(before, tuple(line for _, line in run), after)


class Kind(Enum):
    """What a line about a path of the system is: words for bwrap, paths that are looked at first, or a call."""

    MOUNTS = 0
    LATE = 1
    HIDDEN = 2
    CALLS = 3


_AROUND = {
    Kind.MOUNTS: ("  wg_mounts+=(", "  )"),
    Kind.LATE: ("  wg_late+=(", "  )"),
    Kind.HIDDEN: ("  wg_hidden=(", '  )\n  hidden "${wg_hidden[@]}"'),
    Kind.CALLS: ("  # What the manifest names:", ""),
}


def _kind(rule: PathRule) -> Kind:
    if rule.origin.at:
        return Kind.CALLS
    if rule.access is not Access.HIDE:
        return Kind.MOUNTS
    return Kind.HIDDEN if rule.path.tail else Kind.LATE


def _system_line(rule: PathRule, shell: Policy) -> RuleLine:
    path = f"/{rule.path.tail}"
    if rule.origin.at:
        return RuleLine(_words(("named", _access(rule), _asked_by(rule), path)), rule.origin)
    match rule.access:
        case Access.HIDE:
            # bwrap starts from an empty root; it is made read-only when all is mounted.
            return RuleLine(sh(path) if rule.path.tail else "--remount-ro /", rule.origin)
        case Access.READ if rule.source:
            return RuleLine(f"--ro-bind {_path(rule.source)} {sh(path)}", rule.origin)
        case Access.READ:
            return RuleLine(_words(("--ro-bind" if rule.required else "--ro-bind-try", path, path)), rule.origin)
        case Access.SCRATCH if rule.source:
            return RuleLine(_words(("--symlink", f"/{rule.source.tail}", path)), rule.origin)
        case Access.SCRATCH:
            mode = "1777" if path.endswith(("/tmp", "/shm")) else "0755"
            return RuleLine(_words(("--perms", mode, "--size", str(shell.limits.scratch), "--tmpfs", path)), rule.origin)
        case Access.WRITE:
            return RuleLine(_words(("--bind", path, path)), rule.origin)
        case _:
            assert_never(rule.access)


def _place_line(rule: PathRule) -> RuleLine:
    """A rule about a path that is known only when the shell starts."""
    path = _path(rule.path)
    if rule.path.anchor in (Anchor.HOMES, Anchor.AROUND):
        return RuleLine(f"neighbours {path}", rule.origin)
    if not rule.path.tail and rule.access in (Access.READ, Access.WRITE):
        kind = "home" if rule.path.anchor is Anchor.HOME else "project" if rule.access is Access.WRITE else "project-read"
        return RuleLine(f"rule {kind} - {path}" + (f" {_path(rule.source)}" if rule.source else ""), rule.origin)
    if rule.pinned:
        return RuleLine(f"rule pin {'wavegen' if rule.required else '-'} {path}", rule.origin)
    return RuleLine(f"rule {_access(rule)} {sh(_asked_by(rule))} {path}", rule.origin)


def _guard_line(rule: PathRule) -> RuleLine:
    """What the host runs or follows: whether it is there is known when the shell starts."""
    path = _path(rule.path)
    return RuleLine(f"{'keep_place' if rule.access is Access.WRITE else 'guard'} {path}", rule.origin)


def _access(rule: PathRule) -> str:
    optional = rule.access in (Access.READ, Access.WRITE) and not rule.required
    return rule.access.value + ("+optional" if optional else "") + ("+socket" if rule.socket else "")


def _asked_by(rule: PathRule) -> str:
    return str(rule.origin) if rule.origin.at else "-"


def _words(words: tuple[str, ...]) -> str:
    return " ".join(sh(word) for word in words)


def _path(path: HostPath) -> str:
    if path.anchor is Anchor.ROOT:
        return sh(f"/{path.tail}")
    return f'"{_VARIABLES[path.anchor]}"' + (f"/{sh(path.tail)}" if path.tail else "")
