"""The rules files that the launcher reads: `.wavegen/rules/base`, the defaults once, and one file a shell with what its manifest adds. Pure.

The format, and what each keyword means, stands in launcher/rules.py, whose reader is the only one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wavegen.backends import File, generated_header
from wavegen.backends.agents.files import agent_command_options
from wavegen.backends.sandboxes.banner import banner_lines, landlock_banner
from wavegen.launcher.landlock_masks import BESIDE_MOUNTS, SCOPES, landlock_masks
from wavegen.launcher.rules import escape_field
from wavegen.manifest.model import BackendName, NetworkMode
from wavegen.policy import defaults
from wavegen.policy.host_rules import flags_of
from wavegen.policy.model import Access, Anchor, EnvRule, HostPath, Origin, PathRule, Plan, Policy
from wavegen.seccomp import Filter
from wavegen.seccomp.filters import Sockets, filter_of

DIRECTORY = ".wavegen/rules"
_CPU_PERIOD = 100_000
"""Microseconds over which the kernel shares processors out: `cpus` is in these of one processor."""
_LOGINS = ("GH_TOKEN", "ANTHROPIC_API_KEY")
_ACCESS = {Access.HIDE: "hide", Access.READ: "read", Access.WRITE: "write", Access.SCRATCH: "tmpfs"}
_REPLACED = {rule.path for rule in defaults.NETWORK_FILES}
_GROUPS: tuple[tuple[str, Sequence[PathRule | EnvRule]], ...] = (
    ("host-root", defaults.HOST_ROOT),
    ("resolvers", defaults.RESOLVERS),
    ("minimal-root", tuple(rule for rule in defaults.MINIMAL_ROOT if rule.path not in _REPLACED)),
    ("host-names", tuple(rule for rule in defaults.MINIMAL_ROOT if rule.path in _REPLACED)),
    ("network-files", defaults.NETWORK_FILES),
    ("scratch", defaults.SCRATCH),
    ("guards", tuple(rule for rule in defaults.GUARDS if ".git" not in rule.path.tail_parts())),
    ("passed", defaults.PASSED),
    ("fixed", defaults.FIXED),
    ("proxies", defaults.PROXIES),
)
"""Rules that many shells have, by the name under which `base` lists them."""


def filter_of_shell(shell: Policy) -> Filter | None:
    """The system call filter of a shell; None where it has none."""
    return filter_of(shell.seccomp, nested=shell.nested, allow=shell.seccomp_allow) if shell.fenced else None


LANDLOCK_SOCKETS: dict[NetworkMode, Sockets] = {NetworkMode.HOST: "all", NetworkMode.OPEN: "tcp", NetworkMode.FILTERED: "tcp", NetworkMode.NONE: "none"}


def landlock_filter(shell: Policy) -> Filter | None:
    """The same where Landlock alone holds the shell: there are no namespaces that one could nest in."""
    return filter_of(shell.seccomp, nested=False, allow=shell.seccomp_allow, sockets=LANDLOCK_SOCKETS[shell.network.mode])


def rules_files(plan: Plan) -> Iterator[File]:
    """base, and a file for each shell and persona."""
    yield File(path=f"{DIRECTORY}/base", text=f"# {generated_header(plan)}\n{base_text()}")
    written = project_writable_paths(plan)
    for shell in plan.all_fences():
        alone = plan.backend is BackendName.LANDLOCK
        yield File(path=f"{DIRECTORY}/{shell.name}", text=f"# {generated_header(plan)}\n{rules_text(plan, shell, alone=alone, written=written)}")


def base_text() -> str:
    """The groups, each a list of rules with their reasons."""
    return "".join(f"group\t{name}\n" + "".join(map(_rule_line, rules)) for name, rules in _GROUPS)


def rules_text(  # noqa: PLR0913
    plan: Plan, shell: Policy, *, whole: bool = False, alone: bool = False, grouped: bool = True, written: tuple[str, ...] | None = None
) -> str:
    """All rules of a shell. `whole`: with the groups of `base` behind them, as one text; `alone`: for a start by Landlock, too; not `grouped`: each line
    of a group in its place; `written`: what `written_paths` gives, where that is known already.
    """
    # The launcher itself looks for repositories, of which the project's own is one.
    rules: list[PathRule | EnvRule] = [rule for rule in shell.paths if not (rule.guarded and ".git" in rule.path.tail_parts())]
    rules += shell.environment
    lines = list(_setting_lines(plan, shell))
    # By identity: those of the defaults are the same objects in every shell, and to compare them by what they hold takes long.
    left = {id(rule): rule for rule in rules}
    for name, group in _GROUPS if grouped else ():
        if group and all(id(rule) in left for rule in group):
            lines.append(f"use\t{name}\n")
            for rule in group:
                del left[id(rule)]
    lines += map(_rule_line, left.values())
    lines += _network_lines(shell)
    lines += (_join_fields("writable", path) for path in (project_writable_paths(plan) if written is None else written))
    passed = {rule.name for rule in shell.environment if rule.value is None and rule.origin.at}
    lines += (_join_fields("login", name) for name in _LOGINS if name in passed)
    persona = plan.persona_of(shell)
    lines += (_join_fields("agent", *option.words) for option in (agent_command_options(persona) if persona else ()))
    lines += (_join_fields("banner", line) for line in (banner_lines(shell) if shell.fenced else ()))
    if alone and shell.fenced:
        found = landlock_filter(shell)
        lines.append(_join_fields("seccomp_landlock", found.name if found else "off", shell.seccomp_origin.text_without_line))
        lines += (_join_fields("banner_landlock", line) for line in landlock_banner(shell))
    return "".join(lines) + (base_text() if whole else "")


def project_writable_paths(plan: Plan) -> tuple[str, ...]:
    """What any shell of the project may write: a link there may be an agent's, whichever shell it was in."""
    rules = (rule for shell in plan.all_fences() for rule in shell.paths if rule.access is Access.WRITE and rule.origin.at and rule.path.tail)
    return tuple(dict.fromkeys(path_text(rule.path) for rule in rules))


def path_text(path: HostPath) -> str:
    """A path as rules have it: an anchor and a tail."""
    if path.anchor is Anchor.ROOT:
        return f"/{path.tail}"
    anchor = {Anchor.RUNTIME: "$LAUNCHER/etc"}.get(path.anchor, path.anchor.value)
    return f"{anchor}/{path.tail}" if path.tail else anchor


def _join_fields(*fields: str) -> str:
    return "\t".join(map(escape_field, fields)) + "\n"


def _rule_line(rule: PathRule | EnvRule) -> str:
    if isinstance(rule, EnvRule):
        return (
            _join_fields("pass", rule.name, rule.origin.text_without_line)
            if rule.value is None
            else _join_fields("env", rule.name, rule.value, rule.origin.text_without_line)
        )
    flags = [name for name in ("required", "socket", "pinned", "guarded") if getattr(rule, name)]
    flags += [f"source={path_text(rule.source)}"] if rule.source else []
    return _join_fields("path", _ACCESS[rule.access], path_text(rule.path), ",".join(flags) or "-", rule.origin.text_without_line)


def _setting_lines(plan: Plan, shell: Policy) -> Iterator[str]:
    persona, limits, found = plan.persona_of(shell), shell.limits, filter_of_shell(shell)

    def setting_line(key: str, value: object, origin: Origin) -> Iterator[str]:
        if value not in (None, False, ""):
            yield _join_fields(key, "1" if value is True else str(value), origin.text_without_line)

    yield from setting_line("shell", shell.name, shell.origin)
    yield from setting_line("persona", persona.name if persona else None, shell.origin)
    if not shell.fenced:
        yield from setting_line("unsandboxed", *_why_unsandboxed(plan, shell))
        return
    yield from setting_line("fallback", shell.fallback.value, Origin("what happens where this machine can hold no sandbox"))
    yield from setting_line("network", shell.network.mode.value, shell.network.origin)
    yield from setting_line("upstream", shell.network.upstream is not None, shell.network.upstream or shell.network.origin)
    yield from setting_line("root", "minimal" if shell.minimal_root else "host", shell.origin)
    if not shell.minimal_root:
        yield from setting_line("private", defaults.PRIVATE_BELOW, Origin("what others cannot read there may be secret"))
    yield from setting_line("home", "private" if shell.private_home else "tmpfs", Origin("the real home is never there"))
    yield from setting_line("seccomp", found.name if found else None, shell.seccomp_origin)
    yield from setting_line("nested", shell.nested, shell.origin)
    masks = landlock_masks(SCOPES if shell.nested else BESIDE_MOUNTS)
    yield from setting_line("landlock", masks, Origin("a second opinion on writes; signals and abstract sockets stay inside"))
    yield from setting_line("bounded", limits.written, limits.origin)
    yield from setting_line("pids", limits.pids, limits.origin)
    yield from setting_line("files", limits.files, limits.origin)
    yield from setting_line("memory", limits.memory, limits.origin)
    yield from setting_line("memory_share", defaults.MEMORY_SHARE, Origin("percent of what the machine has, where no number is written"))
    yield from setting_line("cpus", round(limits.cpus * _CPU_PERIOD) if limits.cpus else None, limits.origin)
    yield from setting_line("tmpfs_size", limits.scratch, limits.origin)
    yield from setting_line("image", plan.image.reference, plan.image.origin)


def _why_unsandboxed(plan: Plan, shell: Policy) -> tuple[str, Origin]:
    persona = plan.persona_of(shell)
    if not persona:
        return "everything that you may touch, this shell may touch", shell.origin
    if not plan.enabled:
        return "the manifest takes the sandbox from personas", plan.enabled_origin
    return f"its shell {persona.shell} has no sandbox", persona.origin


def _network_lines(shell: Policy) -> Iterator[str]:
    if not shell.network.mode.is_filtered:
        return
    for word, rules in (("deny", shell.network.denied), ("allow", shell.network.domains)):
        for rule in rules:
            yield _join_fields(word, str(rule), flags_of(rule), rule.origin.text_without_line)
    for port in shell.network.loopback:
        yield _join_fields("loopback", str(port), shell.network.origin.text_without_line)
