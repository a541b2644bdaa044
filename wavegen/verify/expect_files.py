"""What a policy says about probes of files: what is hidden, read-only, held in place, granted. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.policy.defaults import GIT_FILES, WORKTREE_FILES
from wavegen.policy.model import Access, Anchor, HostPath, Origin, PathRule, Policy
from wavegen.policy.paths import is_device
from wavegen.verify.expect import HOME, MOUNTS, Expect, arguments_of, home_path, policy_rule_for, project_path
from wavegen.verify.model import Expectation, Fact, Inodes, Value, Want

# --- paths


def expect_absent_paths(*paths: HostPath, inodes: bool = True, tried: bool = True) -> Expect:
    """What the host has there is not there inside, unless the manifest grants it; what defaults show has no meaning here.

    `tried`: whether what is granted is tried all the same.
    """

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        kept: list[HostPath] = []
        first: PathRule | None = None
        for path in paths:
            rule = policy_rule_for(policy, path)
            if rule is None:
                continue
            value: Value = Inodes((path,)) if inodes else (path,)
            if rule.access in (Access.HIDE, Access.SCRATCH) or rule.source is not None:
                kept.append(path)
                first = first or rule
            elif rule.origin.at or rule.weaker:
                note = rule.weaker or "the manifest grants it"
                told = (("paths", value),)
                # What the kernel shows is the same whoever mounts it, and its inodes may be others.
                asked = tried and not rule.weaker
                yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(path), arguments=told, note=note, tried=asked)
        if first:
            layer = HOME if first.path.anchor is Anchor.HOME and first.access is not Access.HIDE else MOUNTS
            every: Value = Inodes(tuple(kept)) if inodes else tuple(kept)
            yield Expectation(want=Want.STOPPED, layer=layer, origin=first.origin, arguments=(("paths", every),))

    return expectations_under


def hidden_by_default(*prefixes: str, inodes: bool = True) -> Expect:
    """The masks over paths of the system below these: each is a rule of its own."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rules = [rule for rule in policy.paths if rule.access is Access.HIDE and rule.path.anchor is Anchor.ROOT and not rule.origin.at]
        kept = [rule for rule in rules if str(rule.path).startswith(prefixes)]
        if kept:
            paths = tuple(rule.path for rule in kept)
            value: Value = Inodes(paths) if inodes else paths
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=kept[0].origin, arguments=(("paths", value),))

    return expectations_under


def _rules_shown_by_default(policy: Policy) -> list[PathRule]:
    """What is shown of the host without the manifest's asking, as far as that does not hide it."""
    shown = [r for r in policy.paths if r.access is Access.READ and r.path.anchor is Anchor.ROOT and not r.origin.at and not r.source]
    return [rule for rule in shown if policy_rule_for(policy, rule.path) is rule]


def shown_by_default(policy: Policy) -> Iterator[Expectation]:
    """What the defaults show of the host is there: programs would not run without it."""
    rules = [rule for rule in _rules_shown_by_default(policy) if not rule.weaker]
    if rules:
        paths = tuple(rule.path for rule in rules)
        yield Expectation(want=Want.WORKS, layer=MOUNTS, origin=rules[0].origin, arguments=(("paths", Inodes(paths, shown=True)),))


def read_only_by_default(policy: Policy) -> Iterator[Expectation]:
    """What the defaults show of the host is mounted read-only, whoever may write it outside."""
    rules = _rules_shown_by_default(policy)
    if rules:
        yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rules[0].origin, arguments=(("paths", tuple(rule.path for rule in rules)),))


def expect_unwritable(*paths: HostPath, flags: bool = False) -> Expect:
    """Cannot be written: read-only, hidden or not there. Where the project or the manifest makes it writable, it is open.

    `flags`: by its mount; otherwise also where the file's own mode is what keeps it.
    """

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        kept: list[HostPath] = []
        first: PathRule | None = None
        for path in paths:
            rule = policy_rule_for(policy, path)
            if rule is None or rule.access is Access.SCRATCH:
                continue
            if rule.access is Access.WRITE and (flags or not rule.weaker):
                note = rule.weaker or ("the project is writable" if rule.path == project_path() else "the manifest grants it")
                yield Expectation(
                    want=Want.OPEN,
                    layer="",
                    origin=rule.origin,
                    subject=str(path) if len(paths) > 1 else "",
                    arguments=(("paths", (path,)),),
                    note=note,
                )
            else:
                kept.append(path)
                first = first or rule
        if first:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=first.origin, arguments=(("paths", tuple(kept)),))

    return expectations_under


def project_directory() -> Expect:
    """What can be made in the project, and the host may run later."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rule = policy_rule_for(policy, project_path())
        if rule is None:
            return
        told = (("directory", project_path()),)
        if rule.access is Access.WRITE:
            note = "the project is writable; wavegen audit names it"
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, arguments=told, note=note)
        else:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rule.origin, arguments=told)

    return expectations_under


def project_files(*paths: str, absent: bool = False) -> Expect:
    """Files of the project that the host later runs: held where a rule is about them, else open as the project is.

    `absent`: they are not there, and a guard holds what is there alone.
    """

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        held: list[HostPath] = []
        loose: list[HostPath] = []
        first: PathRule | None = None
        for path in map(project_path, paths):
            rule = policy_rule_for(policy, path)
            if rule and (is_protected_path(rule, path) if rule.access is Access.WRITE else not (absent and rule.guarded)):
                held.append(path)
                first = first or rule
            else:
                loose.append(path)
        if first:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=first.origin, arguments=(("paths", tuple(held)),))
        if loose:
            rule = policy_rule_for(policy, project_path())
            told = (("paths", tuple(loose)),)
            origin = rule.origin if rule else policy.origin
            note = "no placeholder is made on the host; wavegen audit names it" if absent else "the project is writable; wavegen audit names it"
            yield Expectation(want=Want.OPEN, layer="", origin=origin, subject="others" if held else "", arguments=told, note=note)

    return expectations_under


def expect_repositories_protected(*paths: str, told: bool = True) -> Expect:
    """Parts of repositories of the project that are found when a shell starts, and the directories above such parts: as far as no rule is about them.

    `told`: whether the attempt asks for the paths.
    """

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rules = {path: rule for path in map(project_path, paths) if (rule := policy_rule_for(policy, path))}
        kept = tuple(path for path, rule in rules.items() if not (rule.origin.at and rule.path.tail and rule.access is Access.WRITE))
        if kept:
            origin = Origin("git on the host runs or follows it, in any repository")
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=origin, arguments=(("paths", kept),) if told else ())

    return expectations_under


def expect_own_repository(policy: Policy) -> Iterator[Expectation]:
    """What git on the host runs or follows of the project's own repository, where the manifest grants nothing of it."""
    if not any(rule.origin.at and rule.access is Access.WRITE and ".git" in rule.path.tail_parts() for rule in policy.paths):
        told = (("paths", Fact("own repository")),)
        yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=Origin("git on the host runs or follows it"), arguments=told)


def held_in_place(*absent: str) -> Expect:
    """Whatever is guarded stays where it is, as far as it is there."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rules = [rule for rule in policy.paths if rule.guarded and rule.path.tail not in absent]
        writable = policy_rule_for(policy, project_path())
        if rules and writable and writable.access is Access.WRITE:
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rules[0].origin, arguments=(("paths", tuple(rule.path for rule in rules)),))

    return expectations_under


def leftovers_named_by_audit(policy: Policy) -> Iterator[Expectation]:
    """What can be left in a project that may be written is named."""
    rule = policy_rule_for(policy, project_path())
    if rule and rule.access is Access.WRITE:
        yield Expectation(want=Want.STOPPED, layer="audit", origin=Origin("mounts cannot stop what is not there yet"))


def is_protected_path(rule: PathRule, path: HostPath) -> bool:
    """Whether a place where one may write is held all the same, as git on the host runs or follows it.

    `rule`: what governs it. Repositories below the project are held like its own, where nothing else is said.
    """
    if rule.origin.at or rule.path.anchor is not Anchor.PROJECT or rule.pinned:
        return False
    parts = path.tail_parts()
    if ".git" not in parts:
        return False
    below = parts[parts.index(".git") + 1 :]
    match below:
        case ():
            return True
        case ("worktrees", _, *rest):
            return "/".join(rest) in WORKTREE_FILES
        case ("modules", _, *rest):
            below = tuple(rest)
        case _:
            pass
    return any(below[: len(name.split("/"))] == tuple(name.split("/")) for name in GIT_FILES)


def expect_sandbox_files(**more: Value) -> Expect:
    """The fence's own files in the project."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        rules = [rule for rule in policy.paths if rule.pinned]
        if rules:
            paths = tuple(rule.path for rule in rules)
            yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=rules[0].origin, arguments=arguments_of({"paths": paths, **more}))

    return expectations_under


def private_home(*paths: str) -> Expect:
    """What is written in the home stays in the private one."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        inner: list[tuple[HostPath, PathRule]] = []
        outer: list[tuple[HostPath, PathRule]] = []
        for path in paths:
            place = home_path(path)
            rule = policy_rule_for(policy, place)
            if rule is None:
                continue
            (outer if rule.access is Access.WRITE and rule.source is None else inner).append((place, rule))
        if inner:
            # A file that is granted for reading cannot be written at all.
            yield Expectation(want=Want.STOPPED, layer=HOME, origin=inner[0][1].origin, arguments=(("paths", tuple(place for place, _ in inner)),))
        for place, rule in outer:
            yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(place), arguments=(("paths", (place,)),), note="the manifest grants it")

    return expectations_under


def expect_manifest_rules(access: Access, want: Want, key: str = "paths", *, anchors: tuple[Anchor, ...]) -> Expect:
    """One case for each path that the manifest grants or hides."""

    def expectations_under(policy: Policy) -> Iterator[Expectation]:
        for rule in policy.paths:
            if rule.origin.at and rule.path.tail and rule.access is access and rule.path.anchor in anchors and not rule.pinned and not rule.socket:
                value: Value = Inodes((rule.path,)) if key == "inodes" else (rule.path,)
                told = (("paths" if key == "inodes" else key, value),)
                # The kernel's driver is asked, not the file system (mount(2), MS_RDONLY).
                loose = want is Want.STOPPED and access is Access.READ and is_device(rule.path)
                yield Expectation(
                    want=Want.OPEN if loose else want,
                    layer="" if loose else MOUNTS,
                    origin=rule.origin,
                    subject=str(rule.path),
                    arguments=told,
                    note="a mount for reading does not keep a device from being written" if loose else "",
                )

    return expectations_under


def scratch_bounds(policy: Policy) -> Iterator[Expectation]:
    """Each scratch directory has the bound of `limits.tmp`."""
    rules = [rule for rule in policy.paths if rule.access is Access.SCRATCH and rule.source is None]
    pairs: tuple[Value, ...] = tuple((rule.path, policy.limits.scratch) for rule in rules)
    yield Expectation(want=Want.STOPPED, layer=MOUNTS, origin=policy.limits.origin, arguments=(("paths", pairs),))


# --- the filter of names


def links_in_granted_paths(policy: Policy) -> Iterator[Expectation]:
    """One case for each path of the project that the manifest grants: what if a command puts a link there?"""
    for rule in _granted_in_project(policy):
        yield Expectation(want=Want.STOPPED, layer="launcher", origin=rule.origin, subject=str(rule.path), arguments=(("path", rule.path),))


def _granted_in_project(policy: Policy) -> Iterator[PathRule]:
    for rule in policy.paths:
        if rule.origin.at and rule.path.anchor is Anchor.PROJECT and rule.path.tail and rule.access in (Access.READ, Access.WRITE) and not rule.pinned:
            yield rule


def races_on_granted_paths(policy: Policy) -> Iterator[Expectation]:
    """The same while a shell starts: what is looked at, and what is mounted, are two steps."""
    for rule in _granted_in_project(policy):
        note = "of two shells at once, one may exchange it while the other starts"
        yield Expectation(want=Want.OPEN, layer="", origin=rule.origin, subject=str(rule.path), note=note, tried=False)
