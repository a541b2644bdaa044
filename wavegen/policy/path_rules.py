"""The path rules of one shell: defaults, what the manifest grants and hides, and the files of the fence itself. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from wavegen.core.errors import InvalidValueError, Problem, Severity
from wavegen.manifest.decoder import Marks, Text
from wavegen.manifest.model import Home, NetworkMode, PathAccess, PathEntry, Sandbox, Shell
from wavegen.policy import defaults
from wavegen.policy.model import Access, Anchor, HostPath, Origin, PathRule, Policy
from wavegen.policy.paths import granted_path, holds_socket, host_path, is_device

Report = Callable[[Problem], None]

OWN_FILES = ("flake.nix", "flake.lock", ".wavegen")
"""What an agent could loosen its fence with, besides the manifest and its overlay."""


def path_rules(  # noqa: PLR0913
    sandbox: Sandbox,
    shell: Shell,
    *,
    own: Mapping[str, bool],
    network: NetworkMode,
    report: Report,
    more: tuple[PathRule, ...] = (),
    deny: tuple[Text, ...] = (),
    read_only: Origin | None = None,
) -> tuple[PathRule, ...]:
    """All path rules of a fenced shell, in the order that back ends list them.

    `own`: the fence's files in the project, and whether they must be there: what is not there could be made inside.
    `more`, `deny`, `read_only`: of a persona's fence other defaults, what it hides besides, and why it does not write the
    project where it does not.
    """
    granted = tuple(rule for entry in (*sandbox.paths, *shell.paths) if (rule := _granted_rule(entry, own, report)))
    denied = hidden_path_rules((*sandbox.deny_read_paths, *shell.deny_read_paths, *deny), report=report)
    _report_contradictions(granted, denied, report)
    ground = defaults.HOST_ROOT if network is NetworkMode.HOST else defaults.MINIMAL_ROOT
    names = {NetworkMode.HOST: defaults.RESOLVERS, NetworkMode.OPEN: defaults.NETWORK_FILES, NetworkMode.FILTERED: defaults.NETWORK_FILES}.get(network, ())
    project = PathRule(path=HostPath(Anchor.PROJECT), access=Access.WRITE, required=True, origin=Origin("what the shell is for"))
    if read_only:
        project = replace(project, access=Access.READ, origin=read_only)
        granted = tuple(replace(rule, access=Access.READ) if rule.path.anchor is Anchor.PROJECT else rule for rule in granted)
    # Of what the manifest grants nothing is emptied: it is the host's, and a mount would leave its mark there.
    more = tuple(rule for rule in more if not any(shown.path.contains_path(rule.path) for shown in granted))
    rules = {rule.path: rule for rule in (*ground, *names, *defaults.SCRATCH, _home_rule(sandbox), project, *more)}
    for rule in granted:
        rules.pop(rule.path, None)  # so that it stands where the manifest's other rules stand
        rules[rule.path] = rule
    hidden = {rule.path for rule in denied}
    pins = (rule for rule in _own_files(own) if rule.path not in hidden)
    # A default that hides the same path stays where it is: what other defaults put below it needs it there.
    kept = (rule for rule in rules.values() if rule.path not in hidden or rule.access is Access.HIDE)
    # What cannot be written needs no guard.
    guards = (rule for rule in defaults.GUARDS if not read_only and rule.path not in hidden and rule.path not in rules)
    return (*kept, *denied, *pins, *guards)


def home_secrets(policy: Policy) -> tuple[HostPath, ...]:
    """What is secret of the real home and not granted, for the fences in which that home is there."""
    shown = tuple(rule.path for rule in policy.paths if rule.origin.at and rule.access in (Access.READ, Access.WRITE))
    return tuple(path for path in defaults.HOME_SECRETS if not any(place.contains_path(path) for place in shown))


def hidden_path_rules(entries: Iterable[Text], *, report: Report) -> tuple[PathRule, ...]:
    """The rules of `deny_read_paths`."""
    rules: dict[HostPath, PathRule] = {}
    for entry in entries:
        try:
            path = host_path(entry)
        except InvalidValueError as bad:
            report(Problem(at=entry.at, severity=Severity.ERROR, what=bad.what, hint=bad.hint))
            continue
        if not path.tail:
            report(Problem(at=entry.at, severity=Severity.ERROR, what=f"'{entry}' would hide everything", hint="name what must not be read"))
            continue
        rules.setdefault(path, PathRule(path=path, access=Access.HIDE, origin=Origin("", entry.at)))
    return tuple(rules.values())


def _home_rule(sandbox: Sandbox) -> PathRule:
    path = HostPath(Anchor.HOME)
    marks: Marks = sandbox.at
    origin = Origin("", marks.location_of("home")) if "home" in marks else Origin("kept for this project and shell; the real home is never there")
    if sandbox.home is Home.TMPFS:
        return PathRule(path=path, access=Access.SCRATCH, origin=origin)
    return PathRule(path=path, access=Access.WRITE, required=True, source=HostPath(Anchor.STATE, "home"), origin=origin)


def _own_files(own: Mapping[str, bool]) -> tuple[PathRule, ...]:
    reason = Origin("an agent must not loosen its own fence")
    return tuple(
        PathRule(path=HostPath(Anchor.PROJECT, name), access=Access.READ, pinned=True, required=required, origin=reason) for name, required in own.items()
    )


def _granted_rule(entry: PathEntry, own: Mapping[str, bool], report: Report) -> PathRule | None:
    def report_problem(severity: Severity, what: str, hint: str) -> None:
        report(Problem(at=entry.path.at, severity=severity, what=what, hint=hint))

    try:
        path = granted_path(entry.path)
    except InvalidValueError as bad:
        report_problem(Severity.ERROR, bad.what, bad.hint)
        return None
    known = holds_socket(path)
    if known and not entry.socket:
        what = f"'{entry.path}' shows the socket {known}: the server behind it runs outside the sandbox"
        report_problem(Severity.ERROR, what, "remove it, or write socket: true if that is meant")
        return None
    if path.anchor is Anchor.PROJECT and path.tail and path.tail_parts()[0] in own:
        report_problem(Severity.ERROR, f"'{entry.path}' is part of the fence and stays read-only", "remove the entry")
        return None
    if is_device(path):
        report_problem(Severity.WARNING, f"'{entry.path}' opens a driver of the kernel", "grant only devices that are needed")
    access = Access.WRITE if entry.access is PathAccess.WRITE else Access.READ
    return PathRule(path=path, access=access, required=not entry.optional, socket=entry.socket, origin=Origin("", entry.path.at))


def _report_contradictions(granted: tuple[PathRule, ...], denied: tuple[PathRule, ...], report: Report) -> None:
    for hide in denied:
        for show in granted:
            if hide.path.contains_path(show.path):
                what = f"'{show.path}' is granted here and hidden by deny_read_paths ({hide.origin})"
                report(Problem(at=show.origin.at, severity=Severity.ERROR, what=what, hint="remove one of the two"))
