"""Why something is reached or not, and what to write to change that: asks what decides in the fences, and decides nothing itself.

Paths go by the mounts that the launcher would make (launcher/mounts.py), hosts by the launcher's own decision (host_rules.py), system calls by the filter
that the kernel loads, variables by the rules of the wrappers, tools by the rules that agents are handed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from wavegen.backends.sandboxes import rules_file
from wavegen.core.errors import InvalidValueError, UsageError
from wavegen.explain import remedies, suggestions
from wavegen.explain.model import Answer, Verdict, fences_of
from wavegen.explain.paths import explain_path
from wavegen.explain.tools import explain_tool, is_tool
from wavegen.launcher.egress import names
from wavegen.launcher.egress.special_names import is_loopback_name
from wavegen.manifest.decoder import suggest_spelling
from wavegen.manifest.model import BackendName, Manifest, NetworkMode, Seccomp
from wavegen.policy import defaults
from wavegen.policy.host_rules import decide_host, origin_of
from wavegen.policy.model import Origin, PersonaPolicy, Plan, Policy
from wavegen.project.loader import Project
from wavegen.project.network_log import REASONS
from wavegen.seccomp import Action
from wavegen.seccomp.filters import filter_of, opened_calls, refused_calls
from wavegen.seccomp.syscalls import NAMES


class Kind(Enum):
    """What a word names."""

    PATH = "path"
    HOST = "host"
    VARIABLE = "variable"
    SYSCALL = "syscall"
    TOOL = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What answers are made from."""

    project: Project
    manifest: Manifest

    @property
    def project_plan(self) -> Plan:
        """The project's plan."""
        return self.project.plan


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(?:[^/@]*@)?([^/?#]*)(?:[/?#].*)?", re.DOTALL)
_PORTS = {
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
    "ssh": 22,
    "git": 9418,
    "ftp": 21,
    "git+ssh": 22,
    "git+https": 443,
    "postgres": 5432,
    "postgresql": 5432,
}
_HOST = re.compile(
    r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?(?:\.[A-Za-z0-9_-]+)+\.?(?::[0-9]+)?|localhost(?::[0-9]+)?|\[[0-9A-Fa-f:.]+\](?::[0-9]+)?"
)
_NAME_WITH_PORT = re.compile(r"[A-Za-z0-9_.-]+:[0-9]{1,5}")
_ADDRESS6 = re.compile(r"[0-9A-Fa-f]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def possible_kinds(what: str, project: Project) -> tuple[Kind, ...]:
    """Every meaning that fits the form of a word; a path where none does."""
    if _URL.fullmatch(what):
        return (Kind.HOST,)
    if what.startswith(("/", "~", "./", "../")) or what in (".", ".."):
        return (Kind.PATH,)
    if _VARIABLE.fullmatch(what):
        return (Kind.VARIABLE,)
    found = [kind for kind, fits in _match_kinds(what, project) if fits]
    return tuple(found) or (Kind.PATH,)


def _match_kinds(what: str, project: Project) -> Iterator[tuple[Kind, bool]]:
    there = os.path.lexists(os.path.join(project.root, what)) if what.isprintable() else False
    yield Kind.TOOL, is_tool(what)
    yield Kind.SYSCALL, what in NAMES
    yield Kind.HOST, bool(_HOST.fullmatch(what) or _NAME_WITH_PORT.fullmatch(what) or _ADDRESS6.fullmatch(what))
    known = {rule.name for shell in project.plan.all_fences() for rule in shell.environment} | set(defaults.MADE_BY_THE_FENCE)
    yield Kind.VARIABLE, bool(_NAME.fullmatch(what)) and (what.isupper() or what in known)
    yield Kind.PATH, there or ("/" in what and not _URL.fullmatch(what) and "(" not in what)


def explain_target(project: Project, what: str, kind: Kind, policies: tuple[Policy, ...], personas: tuple[PersonaPolicy, ...]) -> tuple[Answer, ...]:
    """The answers of these fences to a word that means a `kind`; of tools, those of the personas. Raises UsageError for what cannot be one."""
    asked = Asked(project=project, manifest=suggestions.manifest_of(project))
    match kind:
        case Kind.PATH:
            return tuple(explain_path(project, asked.manifest, policy, what) for policy in policies)
        case Kind.HOST:
            return tuple(answer for policy in policies for answer in _explain_host(asked, policy, what))
        case Kind.VARIABLE:
            return tuple(_explain_variable(asked, policy, what) for policy in policies)
        case Kind.SYSCALL:
            return tuple(_explain_syscall(asked, policy, what) for policy in policies)
        case Kind.TOOL:
            return tuple(answer for persona in personas for answer in explain_tool(project.plan, asked.manifest, persona, what))


# --- hosts


def _parse_host(what: str) -> tuple[str, names.Target, tuple[int, ...]]:
    """The host as it is shown, as the launcher knows it, and the ports that are meant."""
    text = what
    ports: tuple[int, ...] = (443, 80)
    if url := _URL.fullmatch(what):
        text = url[2]
        ports = (_PORTS[url[1].lower()],) if url[1].lower() in _PORTS else ports
    if ":" in text and _ADDRESS6.fullmatch(text):
        text = f"[{text}]"
    host, colon, port = (text, "", "") if text.endswith("]") else text.rpartition(":") if ":" in text else (text, "", "")
    if colon and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):  # noqa: PLR2004
        raise UsageError(f"'{what}' has no port from 1 to 65535", "write host or host:port")
    try:
        target = names.parse_target((host.removeprefix("*.") if host.startswith("*.") else host).encode("ascii"))
    except (names.BadNameError, UnicodeEncodeError) as bad:
        why = "it is not ASCII" if isinstance(bad, UnicodeEncodeError) else str(bad)
        raise UsageError(f"'{what}' is no host: {why}", "write a name, an IPv4 address, or an IPv6 one in brackets") from None
    return host, target, (int(port),) if colon else ports


def _explain_host(asked: Asked, policy: Policy, what: str) -> Iterator[Answer]:
    host, target, ports = _parse_host(what)
    if host.startswith("*."):
        raise UsageError(f"'{what}' is a pattern, not a host", "name a host below it")
    answers = [_explain_connection(asked, policy, target, port) for port in ports]
    first = answers[0]
    # Two ports for one reason are one answer.
    if all((one.verdict, one.detail, one.origin, one.change) == (first.verdict, first.detail, first.origin, first.change) for one in answers[1:]):
        yield replace(first, what=f"{target.authority_text()}" + (f":{ports[0]}" if len(ports) == 1 else ""))
        return
    yield from answers


def _explain_connection(asked: Asked, policy: Policy, target: names.Target, port: int) -> Answer:
    network = policy.network
    what = f"{target.authority_text()}:{port}"

    def build_host_answer(verdict: Verdict, detail: str, origin: Origin, *, change: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> Answer:
        held = ("egress", *fences_of(asked.project_plan, policy)) if network.mode.is_filtered else fences_of(asked.project_plan, policy)
        return Answer(kind="host", what=what, shell=policy.name, verdict=verdict, detail=detail, origin=origin, fences=held, notes=notes, change=change)

    if not policy.fenced:
        return build_host_answer(Verdict.ALLOWED, "no fence", policy.origin)
    if network.mode is NetworkMode.HOST:
        change = (f"write `network: filtered` (or open, none) under {remedies.describe_shell_key(asked.manifest, policy)}",)
        return build_host_answer(Verdict.ALLOWED, "the host's network", network.origin, change=change, notes=("its loopback and LAN are reached, too",))
    if network.mode is NetworkMode.NONE:
        return build_host_answer(
            Verdict.REFUSED, "no network", network.origin, change=remedies.allow_host_remedy(asked.manifest, policy, (str(target), port), "not-listed")
        )
    found = decide_host(network, target, port)
    rule = origin_of(network, found.rule)
    origin = rule or network.origin
    if found.allowed:
        private = found.rule is not None and found.rule.allow_private
        says = "its addresses may be private ones, as the entry says" if private else "its addresses must be public ones"
        judged = bool(target.name) and not is_loopback_name(target.name)
        return build_host_answer(Verdict.ALLOWED, f"by {found.rule}", origin, notes=(says,) if judged else ())
    remedy = remedies.allow_host_remedy(asked.manifest, policy, (str(target), port), found.reason, rule)
    return build_host_answer(Verdict.REFUSED, REASONS.get(found.reason, found.reason), origin, change=remedy)


# --- variables


def _explain_variable(asked: Asked, policy: Policy, what: str) -> Answer:
    match = _VARIABLE.fullmatch(what)
    name = match[1] if match else what
    if not _NAME.fullmatch(name):
        raise UsageError(f"'{what}' cannot name a variable", "letters, digits and _")

    def build_variable_answer(verdict: Verdict, detail: str, origin: Origin, *, change: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> Answer:
        fences = fences_of(asked.project_plan, policy)
        return Answer(kind="variable", what=name, shell=policy.name, verdict=verdict, detail=detail, origin=origin, fences=fences, notes=notes, change=change)

    rule = next((rule for rule in reversed(policy.environment) if rule.name == name), None)
    if not policy.fenced:
        return build_variable_answer(Verdict.ALLOWED, "no fence: the host's", policy.origin)
    if rule and rule.value is not None:
        return build_variable_answer(Verdict.ALLOWED, f"set to {rule.value}; the host's value stays outside", rule.origin)
    if name in defaults.MADE_BY_THE_FENCE:
        return build_variable_answer(Verdict.ALLOWED, "set by the fence; the host's value stays outside", Origin("each shell has its own"))
    if rule:
        notes: tuple[str, ...] = () if name in os.environ else ("it is not set here and now",)
        if name in defaults.OF_THE_SYSTEM and not rule.origin.at:
            notes += ("not in containers, which have the system of their image",)
        change: tuple[str, ...] = (f"remove {name} from env_passthrough at {rule.origin.at}",) if rule.origin.at else ()
        return build_variable_answer(Verdict.ALLOWED, "the host's value", rule.origin, change=change, notes=notes)
    danger = defaults.variable_danger(name)
    notes = (f"{name} {danger}",) if danger else ()
    origin = Origin("variables arrive where a line lists them")
    return build_variable_answer(Verdict.REFUSED, "not there", origin, change=remedies.allow_variable_remedy(asked.manifest, policy, name), notes=notes)


# --- system calls


def _explain_syscall(asked: Asked, policy: Policy, name: str) -> Answer:
    if name not in NAMES:
        raise UsageError(f"'{name}' is not a system call", suggest_spelling(name, tuple(NAMES)) or "write its name as strace(1) does")
    alone = policy.fenced and asked.project_plan.backend is BackendName.LANDLOCK
    found = (rules_file.landlock_filter if alone else rules_file.filter_of_shell)(policy)

    def build_syscall_answer(verdict: Verdict, detail: str, origin: Origin, *, change: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> Answer:
        held = (f"seccomp ({found.name})",) if found else ()
        return Answer(kind="syscall", what=name, shell=policy.name, verdict=verdict, detail=detail, origin=origin, fences=held, notes=notes, change=change)

    if found is None:
        return build_syscall_answer(Verdict.ALLOWED, "no filter", policy.seccomp_origin if policy.fenced else policy.origin)
    rules = found.rules_about(name)
    # A last rule without conditions decides whatever the earlier ones leave.
    last = next((rule.action for rule in rules if not rule.when), found.default)
    steered = [rule for rule in rules if rule.when]
    reason = next((rule.why for rule in rules if not rule.when), "no rule is about it")
    origin = policy.seccomp_allow_origin if name in policy.seccomp_allow else policy.seccomp_origin
    notes = tuple(f"{rule.action.name} if {' and '.join(map(str, rule.when))} ({rule.why})" for rule in steered)
    if last is Action.ALLOW:
        return build_syscall_answer(
            Verdict.PARTLY if steered else Verdict.ALLOWED, "let through, but for some arguments" if steered else f"let through ({reason})", origin, notes=notes
        )
    return build_syscall_answer(
        Verdict.REFUSED, f"{last.name} ({reason})", origin, change=_allow_syscall_remedy(asked, policy, name, steered=bool(steered)), notes=notes
    )


def _allow_syscall_remedy(asked: Asked, policy: Policy, name: str, *, steered: bool) -> tuple[str, ...]:
    if steered:
        return ()
    try:
        opened_calls((name,))
    except InvalidValueError as bad:
        return (f"nothing: {bad.what} ({bad.hint})",)
    sandbox = asked.manifest.runtime.sandbox
    where = remedies.describe_list_key(sandbox.at if sandbox else None, "seccomp_allow", "runtime.sandbox.seccomp_allow")
    nested = frozenset(refused_calls(nested=False)) - frozenset(refused_calls(nested=True))
    more = (f"or write `nested: true` under {remedies.describe_shell_key(asked.manifest, policy)}, if sandboxes are to work inside",) if name in nested else ()
    usual = filter_of(Seccomp.DEFAULT, nested=policy.nested)
    strict = policy.seccomp is Seccomp.STRICT and usual is not None and usual.action_for(name) is Action.ALLOW
    return (f"add `{name}` to {where}", *more, *(("or write `seccomp: default`",) if strict else ()))
