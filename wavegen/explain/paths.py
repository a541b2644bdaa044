"""What is inside at a path, by the mounts that the launcher would make now, and which rule says so. Follows links as a command inside would."""

from __future__ import annotations

import os
from dataclasses import dataclass

from wavegen.backends.sandboxes import landlock
from wavegen.backends.sandboxes.rules_file import path_text
from wavegen.core.errors import UsageError
from wavegen.explain import remedies
from wavegen.explain.model import Answer, Verdict, fences_of
from wavegen.launcher.mounts import BIND, DEV, DEV_BIND, EMPTY, FILE, MASK, PROC, RO_BIND, SCRATCH, SYMLINK, Mount
from wavegen.launcher.symlinks import is_within
from wavegen.manifest.model import BackendName, Manifest
from wavegen.policy.model import Access, Anchor, HostPath, Origin, PathRule, Plan, Policy
from wavegen.policy.path_resolution import governing_rule
from wavegen.project.loader import Project
from wavegen.project.shell_mounts import ShellMounts, resolve_supposed_mounts

_HOPS = 40
"""Links that the kernel follows on one way (path_resolution(7))."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a way ended: the mount that decides, if any, the path inside after links, and what of the host is there."""

    mount: Mount | None
    path: str
    real: str


def explain_path(project: Project, manifest: Manifest, policy: Policy, what: str) -> Answer:
    """The answer of one shell to a path; relative ones are the project's. Raises UsageError for what cannot be a path."""
    if not what or not what.isprintable():
        raise UsageError(f"{what!r} is no path", "name a file")
    if what.startswith("~") and what != "~" and not what.startswith("~/"):
        raise UsageError(f"'{what}' names another user's home", "write the absolute path")
    if not policy.fenced:
        return _path_answer(project.plan, policy, what, Verdict.ALLOWED, "no fence: as the user may", policy.origin, fences=())
    shell = resolve_supposed_mounts(project.plan, policy, project.root, os.environ)
    text = shell.places.home + what[1:] if what.startswith("~") else os.path.join(project.root, what)
    return _Reader(project.plan, manifest, policy, shell).answer_path(os.path.normpath(text))


def _path_answer(  # noqa: PLR0913, PLR0917
    plan: Plan,
    policy: Policy,
    what: str,
    verdict: Verdict,
    detail: str,
    origin: Origin,
    *,
    fences: tuple[str, ...] | None = None,
    notes: tuple[str, ...] = (),
    change: tuple[str, ...] = (),
) -> Answer:
    held = fences_of(plan, policy) if fences is None else fences
    return Answer(kind="path", what=what, shell=policy.name, verdict=verdict, detail=detail, origin=origin, fences=held, notes=notes, change=change)


@dataclass(frozen=True, slots=True)
class _Reader:
    plan: Plan
    manifest: Manifest
    policy: Policy
    shell: ShellMounts

    def follow_links(self, path: str) -> _Found:
        """The mount that decides in the end. Links count where they are shown."""
        for _ in range(_HOPS):
            step = self._follow_one_link(path)
            if isinstance(step, _Found):
                return step
            path = step
        return _Found(None, path, path)

    def _follow_one_link(self, path: str) -> _Found | str:
        parts = [part for part in path.split("/") if part]
        for length in range(1, len(parts) + 1):
            prefix, rest = "/" + "/".join(parts[:length]), parts[length:]
            mount = self.shell.mount_at(prefix)
            if mount is None:
                continue
            if mount.kind == SYMLINK:
                return os.path.normpath(os.path.join(os.path.dirname(prefix), mount.source, *rest))
            shown = self._source_on_host(mount, prefix)
            if mount.shows_host and mount.target != prefix and os.path.islink(shown):
                return os.path.normpath(os.path.join(os.path.dirname(prefix), os.readlink(shown), *rest))
        mount = self.shell.mount_at(path)
        return _Found(mount, path, self._source_on_host(mount, path) if mount and mount.shows_host else path)

    @staticmethod
    def _source_on_host(mount: Mount, path: str) -> str:
        return mount.source.rstrip("/") + path[len(mount.target.rstrip("/")) :]

    # --- which rule says so

    def _rule_of_mount(self, mount: Mount) -> PathRule:
        """The rule that a mount comes from; the launcher has some of its own."""
        found = [rule for rule in self.policy.paths if rule.origin.text_without_line == mount.origin]
        if mount.rule:
            found = [rule for rule in found if path_text(rule.path) == mount.rule.path]
        exact = [rule for rule in found if self.shell.places.expand_anchor(path_text(rule.path)) == mount.target]
        if exact or found:
            return (exact or found)[0]
        access = Access.WRITE if mount.is_writable else Access.HIDE if mount.kind in (EMPTY, MASK) else Access.READ
        return PathRule(path=self._as_host_path(mount.target), access=access, origin=Origin(mount.origin.removeprefix("default: ")))

    def _governing_rule(self, path: str) -> PathRule | None:
        """Why nothing is mounted at a path: the rule that hides it, or a directory above it."""
        return governing_rule(self.policy.paths, self._as_host_path(path))

    def answer_path(self, path: str) -> Answer:
        """What is said about an absolute path."""
        found = self.follow_links(path)
        notes = (f"it leads to {found.path}",) if found.path != path else ()
        mount = found.mount
        here = self._as_host_path(found.path)
        if mount is None:
            rule = self._governing_rule(found.path)
            hides = rule if rule and rule.access is Access.HIDE else None
            below = self._paths_shown_below(found.path)
            more = (f"below it are shown: {', '.join(below)}",) if below else ()
            change = remedies.show_path_remedy(self.manifest, self.policy, here, hides) if found.path != "/" else ()
            detail = "hidden" if hides else "nothing is mounted there"
            return self._build_path_answer(path, Verdict.REFUSED, detail, hides.origin if hides else self.policy.origin, notes=(*notes, *more), change=change)
        rule = self._rule_of_mount(mount)
        if mount.kind in (EMPTY, MASK):
            below = self._paths_shown_below(found.path)
            more = (f"below it are shown: {', '.join(below)}",) if below else ()
            return self._build_path_answer(
                path, Verdict.REFUSED, "hidden", rule.origin, notes=(*notes, *more), change=remedies.show_path_remedy(self.manifest, self.policy, here, rule)
            )
        if mount.kind in (SCRATCH, DEV, PROC):
            change = remedies.show_path_remedy(self.manifest, self.policy, here, None)
            return self._build_path_answer(path, Verdict.REFUSED, "made anew for each shell; the host's is not there", rule.origin, notes=notes, change=change)
        if is_within(mount.source, self.shell.places.private) and mount.kind == BIND:
            change = remedies.show_path_remedy(self.manifest, self.policy, here, None)
            return self._build_path_answer(path, Verdict.REFUSED, "the private home's own; the host's is not there", rule.origin, notes=notes, change=change)
        there = os.path.lexists(found.real)
        if mount.kind == BIND or (mount.kind == DEV_BIND and rule.access is Access.WRITE):
            return self._answer_writable(path, found, rule, notes=notes, there=there)
        return self._answer_readable(path, mount, rule, here, notes=notes, there=there)

    def _answer_readable(self, path: str, mount: Mount, rule: PathRule, here: HostPath, *, notes: tuple[str, ...], there: bool) -> Answer:  # noqa: PLR0913
        if mount.kind == FILE:
            notes = (*notes, "what wavegen puts there, not the host's own" if rule.source else "a copy, not the host's own file")
        if mount.kind == RO_BIND and ".git" in here.tail_parts() and not rule.origin.at:
            notes = (*notes, "of the repositories that are there when the shell starts")
        weak = self.plan.backend is BackendName.LANDLOCK and (rule.pinned or rule.guarded)
        more = (*(() if there else ("it is not there on the host now",)), *(("Landlock alone lets it be written: see wavegen plan",) if weak else ()))
        return self._build_path_answer(
            path, Verdict.ALLOWED, "read", rule.origin, notes=(*notes, *more), change=remedies.write_path_remedy(self.manifest, self.policy, here, rule)
        )

    def _answer_writable(self, path: str, found: _Found, rule: PathRule, *, notes: tuple[str, ...], there: bool) -> Answer:
        guard = self._governing_rule(found.path)
        if guard and guard.guarded and guard.access is Access.READ and not os.path.lexists(self.shell.places.expand_anchor(path_text(guard.path))):
            said = f"{guard.path} would be read-only if it existed when the shell started: it can be made, and wavegen audit names it"
            return self._build_path_answer(path, Verdict.ALLOWED, "write", rule.origin, notes=(*notes, said))
        place = found.mount.target if found.mount else ""
        kept = ("it can be neither renamed nor replaced",) if found.path == place and place != self.shell.places.project and not rule.origin.at else ()
        absent = () if there else ("it is not there on the host now",)
        change = (f"write `access: read` in the entry at {remedies.origin_location(rule.origin)}",) if rule.origin.at and rule.path.tail else ()
        return self._build_path_answer(path, Verdict.ALLOWED, "write", rule.origin, notes=(*notes, *kept, *absent), change=change)

    def _build_path_answer(  # noqa: PLR0913
        self, path: str, verdict: Verdict, detail: str, origin: Origin, *, notes: tuple[str, ...] = (), change: tuple[str, ...] = ()
    ) -> Answer:
        system = origin.at is None and self._as_host_path(path).anchor is Anchor.ROOT
        fences = tuple(fence for fence in fences_of(self.plan, self.policy) if not (system and fence == "docker"))
        more = self._other_backend_notes(path, verdict) if system else ()
        return _path_answer(self.plan, self.policy, path, verdict, detail, origin, fences=fences, notes=(*notes, *more), change=change)

    def _other_backend_notes(self, path: str, verdict: Verdict) -> tuple[str, ...]:
        """What the manifest's own back end says otherwise of the system, where that is not bwrap."""
        if self.plan.backend is BackendName.DOCKER:
            return ("that is said of bwrap: containers have the system of their image",)
        shown = governing_rule(landlock.landlock_system_rules(self.policy), self._as_host_path(path))
        if self.plan.backend is BackendName.LANDLOCK and verdict is Verdict.ALLOWED and shown is None:
            return ("bwrap shows it; Landlock, which holds `wavegen run` here, does not",)
        return ()

    def _as_host_path(self, path: str) -> HostPath:
        """A path as the manifest would write it."""
        for anchor, base in ((Anchor.PROJECT, self.shell.places.project), (Anchor.HOME, self.shell.places.home)):
            if path == base or path.startswith(f"{base}/"):
                return HostPath(anchor, path[len(base) + 1 :])
        return HostPath(Anchor.ROOT, path[1:])

    def _paths_shown_below(self, path: str) -> tuple[str, ...]:
        shown = [mount.target for mount in self.shell.mounts if mount.shows_host and mount.target != path and is_within(mount.target, path)]
        names = tuple(name for name in dict.fromkeys(shown) if os.path.lexists(name)) if path != "/" else ()
        return names if len(names) <= _FEW else (*names[:_FEW], f"{len(names) - _FEW} more")


_FEW = 4
