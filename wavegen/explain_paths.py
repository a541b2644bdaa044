"""What is inside at a path: the rule that decides, followed through the links that stand on the way."""

from __future__ import annotations

import os
from dataclasses import dataclass

from wavegen import remedy
from wavegen.backends import landlock
from wavegen.backends.bwrap import PROC_READ_ONLY
from wavegen.defaults import GIT_FILES
from wavegen.errors import UsageError
from wavegen.explained import Answer, Verdict, fences_of
from wavegen.kept import state
from wavegen.manifest import BackendName, Manifest
from wavegen.policy import Access, Anchor, HostPath, Origin, PathRule, Plan, Policy
from wavegen.project import Project
from wavegen.reach import Parts, Placed, Places, governing, parts_of, placed

_HOPS = 40
"""Links that the kernel follows on one way (path_resolution(7))."""


def _kernel(path: str, access: Access, reason: str) -> PathRule:
    return PathRule(path=HostPath(Anchor.ROOT, path[1:]), access=access, origin=Origin(reason))


# What wrappers mount besides the rules of the policy, which stand above these where they are deeper.
_MADE_ANEW = (
    _kernel("/dev", Access.SCRATCH, "the few devices that everybody may use"),
    _kernel("/proc", Access.SCRATCH, "the processes of this shell alone"),
    *(_kernel(path, Access.READ, "real root could change the host's kernel there") for path in PROC_READ_ONLY),
)


@dataclass(frozen=True, slots=True)
class _Found:
    """Where a way ended."""

    rule: PathRule | None
    path: str
    """After links were followed, as the inside has it."""
    real: str
    """What of the host is there."""


def places_of(project: Project, policy: Policy) -> Places:
    """Where a shell's anchors are on this machine; see find_places in runtime/places.sh."""
    home = os.path.realpath(os.environ.get("HOME") or os.path.expanduser("~"))
    kept = os.path.join(state(project.root), policy.name)
    return Places(home=home, project=project.root, state=kept, runtime=os.path.join(project.root, ".wavegen/runtime"))


def path(project: Project, manifest: Manifest, policy: Policy, what: str) -> Answer:
    """The answer of one shell to a path; relative ones are the project's. Raises UsageError for what cannot be a path."""
    if not what or not what.isprintable():
        raise UsageError(f"{what!r} is no path", "name a file")
    if what.startswith("~") and what != "~" and not what.startswith("~/"):
        raise UsageError(f"'{what}' names another user's home", "write the absolute path")
    places = places_of(project, policy)
    if not policy.fenced:
        return _answer(project.plan, policy, what, Verdict.ALLOWED, "no fence: as the user may", policy.origin, fences=())
    text = places.home + what[1:] if what.startswith("~") else os.path.join(project.root, what)
    rules = placed((*_MADE_ANEW, *policy.paths), places)
    return _Judge(project.plan, manifest, policy, places, rules).answer(os.path.normpath(text))


def _answer(  # noqa: PLR0913, PLR0917
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
class _Judge:
    plan: Plan
    manifest: Manifest
    policy: Policy
    places: Places
    rules: tuple[Placed, ...]

    def follow(self, path: str) -> _Found:
        """The rule that decides in the end. Links count where they are shown; where one is mounted itself, what it leads to is there."""
        for _ in range(_HOPS):
            step = self._step(path)
            if isinstance(step, _Found):
                return step
            path = step
        return _Found(None, path, path)

    def _step(self, path: str) -> _Found | str:
        parts = parts_of(path)
        for length in range(1, len(parts) + 1):
            prefix = "/" + "/".join(parts[:length])
            rule = governing(self.rules, parts[:length])
            rest = parts[length:]
            if rule is None or rule.access not in (Access.READ, Access.WRITE):
                if rule and rule.source and rule.access is Access.SCRATCH and self.places.absolute(rule.path) == prefix:
                    return os.path.join(self.places.absolute(rule.source), *rest)  # a link of the fence's own
                continue
            shown = self._source(rule, prefix)
            if not os.path.islink(shown):
                continue
            if parts_of(self.places.absolute(rule.path)) == parts[:length]:
                real = os.path.join(os.path.realpath(shown), *rest)
                hides = governing(self.rules, parts_of(real))
                deeper = governing(self.rules, parts)
                return _Found(hides if hides and _denies(hides) else deeper, path, real)
            return os.path.normpath(os.path.join(os.path.dirname(prefix), os.readlink(shown), *rest))
        rule = governing(self.rules, parts)
        real = self._source(rule, path) if rule else path
        # What the manifest hides is hidden by every path that leads there.
        hides = governing(self.rules, parts_of(os.path.realpath(real)))
        return _Found(hides if hides and _denies(hides) and rule and rule.access is not Access.SCRATCH else rule, path, real)

    def _source(self, rule: PathRule, path: str) -> str:
        """What of the host is at a path that a rule shows."""
        if rule.source is None or rule.access is Access.SCRATCH:
            return path
        below = parts_of(path)[len(parts_of(self.places.absolute(rule.path))) :]
        return os.path.join(self.places.absolute(rule.source), *below)

    def answer(self, path: str) -> Answer:
        """What is said about an absolute path."""
        found = self.follow(path)
        rule = found.rule
        notes = (f"it leads to {found.path}",) if found.path != path else ()
        if rule is None:
            return self._say(path, Verdict.REFUSED, "nothing is mounted there", self.policy.origin, notes=notes)
        here = self._anchored(found.path)
        there = os.path.lexists(found.real)
        match rule.access:
            case Access.HIDE:
                below = self._below(found.path)
                more = (f"below it are shown: {', '.join(below)}",) if below else ()
                change = remedy.shown(self.manifest, self.policy, here, rule)
                return self._say(path, Verdict.REFUSED, "hidden", rule.origin, notes=(*notes, *more), change=change)
            case Access.SCRATCH:
                what = "made anew for each shell; the host's is not there"
                return self._say(path, Verdict.REFUSED, what, rule.origin, notes=notes, change=remedy.shown(self.manifest, self.policy, here, None))
            case Access.WRITE if rule.source is not None:
                what = "the private home's own; the host's is not there"
                return self._say(path, Verdict.REFUSED, what, rule.origin, notes=notes, change=remedy.shown(self.manifest, self.policy, here, None))
            case Access.READ if rule.guarded and not os.path.lexists(self.places.absolute(rule.path)):
                more = (f"{rule.path} would be read-only if it existed when the shell started: it can be made, and wavegen audit names it",)
                project = governing(self.rules, parts_of(self.places.project))
                return self._say(path, Verdict.ALLOWED, "write", project.origin if project else rule.origin, notes=(*notes, *more))
            case Access.READ:
                more = ("what wavegen puts there, not the host's own",) if rule.source else ()
                return self._read(path, rule, here, notes=(*notes, *more), there=there)
            case Access.WRITE:
                return self._write(path, found, rule, notes=notes, there=there)

    def _read(self, path: str, rule: PathRule, here: HostPath, *, notes: tuple[str, ...], there: bool) -> Answer:
        weak = self.plan.backend is BackendName.LANDLOCK and (rule.pinned or rule.guarded)
        more = (*(() if there else ("it is not there on the host now",)), *(("Landlock alone lets it be written: see wavegen plan",) if weak else ()))
        return self._say(path, Verdict.ALLOWED, "read", rule.origin, notes=(*notes, *more), change=remedy.written(self.manifest, self.policy, here, rule))

    def _write(self, path: str, found: _Found, rule: PathRule, *, notes: tuple[str, ...], there: bool) -> Answer:
        parts = parts_of(found.path)
        inner = [i for i, part in enumerate(parts) if part == ".git" and i > len(parts_of(self.places.project))]
        held = bool(inner) and any("/".join(parts[inner[-1] + 1 :]).startswith(name) for name in GIT_FILES)
        if held and there:
            origin = Origin("git on the host runs or follows it, in any repository")
            return self._say(path, Verdict.ALLOWED, "read", origin, notes=(*notes, "of the repositories that are there when the shell starts"))
        more = ("it can be neither renamed nor replaced",) if rule.guarded and rule.path == self._anchored(found.path) else ()
        absent = () if there else ("it is not there on the host now",)
        change: tuple[str, ...] = ()
        if rule.origin.at and rule.path.tail:
            change = (f"write `access: read` in the entry at {remedy.at(rule.origin)}",)
        return self._say(path, Verdict.ALLOWED, "write", rule.origin, notes=(*notes, *more, *absent), change=change)

    def _say(self, path: str, verdict: Verdict, detail: str, origin: Origin, *, notes: tuple[str, ...] = (), change: tuple[str, ...] = ()) -> Answer:  # noqa: PLR0913
        system = origin.at is None and self._anchored(path).anchor is Anchor.ROOT
        fences = tuple(fence for fence in fences_of(self.plan, self.policy) if not (system and fence == "docker"))
        more = self._elsewhere(path, verdict) if system else ()
        return _answer(self.plan, self.policy, path, verdict, detail, origin, fences=fences, notes=(*notes, *more), change=change)

    def _elsewhere(self, path: str, verdict: Verdict) -> tuple[str, ...]:
        """What the manifest's own back end says otherwise of the system, where that is not bwrap."""
        if self.plan.backend is BackendName.DOCKER:
            return ("that is said of bwrap: containers have the system of their image",)
        shown = governing(placed(landlock.ground(self.policy), self.places), parts_of(path))
        if self.plan.backend is BackendName.LANDLOCK and verdict is Verdict.ALLOWED and shown is None:
            return ("bwrap shows it; Landlock, which holds `wavegen run` here, does not",)
        return ()

    def _anchored(self, path: str) -> HostPath:
        """A path as the manifest would write it."""
        for anchor, base in ((Anchor.PROJECT, self.places.project), (Anchor.HOME, self.places.home)):
            if path == base or path.startswith(f"{base}/"):
                return HostPath(anchor, path[len(base) + 1 :])
        return HostPath(Anchor.ROOT, path[1:])

    def _below(self, path: str) -> tuple[str, ...]:
        at = parts_of(path)
        shown = [one for one in self.rules if one.parts[: len(at)] == at and one.parts != at and one.rule.access in (Access.READ, Access.WRITE)]
        names = tuple(dict.fromkeys(_name(one.parts) for one in shown if os.path.lexists(_name(one.parts))))
        return names if len(names) <= _FEW else (*names[:_FEW], f"{len(names) - _FEW} more")


_FEW = 4


def _name(parts: Parts) -> str:
    return "/" + "/".join(parts)


def _denies(rule: PathRule) -> bool:
    return rule.access is Access.HIDE and rule.origin.at is not None
