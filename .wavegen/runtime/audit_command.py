"""What an audit found, and the baseline that it is compared with: the command line of audit.py.

Standard library only; Python 3.10 and newer.
"""

from __future__ import annotations

import os
import stat
import sys

from audit_places import Baseline, Finding
from audit_table import ADVICE, LOOK, SEVERITIES
from audit_walk import Walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MARKER = "entered-"
BASELINE = "audit.json"
RENDERED = "rendered"
"""In the state: the digest of the last list of what was rendered."""
LOCK = ".wavegen/lock.json"
VERSION = 1
_FILE_MAX = 64 * 1024 * 1024
_BASELINE_MAX = 256 * 1024 * 1024
_NAMED = 2
"""Paths in the line of --summary."""


def markers(state: str) -> list[str]:
    """Of each session that was not audited, or whose findings nobody has accepted."""
    try:
        return [os.path.join(state, name) for name in os.listdir(state) if name.startswith(MARKER)]
    except OSError:
        return []


def entered(state: str) -> int | None:
    """The first of these sessions' entry, in nanoseconds; None where there is none."""
    times = []
    for marker in markers(state):
        try:
            times.append(os.lstat(marker).st_mtime_ns)
        except OSError:
            continue  # its session has just ended
    return min(times, default=None)


def baseline(state: str) -> Baseline:
    """What the last accepted audit knew; nothing where there was none, or what it wrote is damaged."""
    import json

    known = Baseline()
    try:
        handle = os.open(os.path.join(state, BASELINE), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, encoding="ascii") as stream:
            if not stat.S_ISREG(os.fstat(handle).st_mode) or os.fstat(handle).st_size > _BASELINE_MAX:
                return known
            value = json.load(stream)
        if value["version"] == VERSION:
            known.things, known.folders, known.parts = dict(value["things"]), dict(value["folders"]), dict(value["parts"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return Baseline()
    return known


def audit(project: str, state: str, *, everything: bool = False) -> Walk:
    """Look, and change nothing. `everything`: whatever the baseline does not know, whenever it came."""
    since = None if everything else entered(state)
    walk = Walk(os.path.realpath(project), since, lambda: baseline(state))
    if since is not None or everything:
        walk.run()
        if any(finding.kind == "fence" for finding in walk.findings):
            rendered = _rendered(walk.root, state)
            walk.findings = [f for f in walk.findings if f.kind != "fence" or f.path not in rendered or rendered[f.path] != _digest(walk.root, f.path)]
        walk.findings = _gathered(walk.findings)
    return walk


def _rendered(root: str, state: str) -> dict[str, str]:
    """Digests of the fence's own files, by path, as the host rendered them: whose list has the digest that render left in the state."""
    import json

    try:
        with open(os.path.join(state, RENDERED), encoding="ascii") as stream:
            if stream.read(200) != _digest(root, LOCK):
                return {}
        with open(os.path.join(root, LOCK), encoding="utf-8") as stream:
            lock = json.load(stream)
        return {**lock["inputs"], **lock["outputs"], LOCK: _digest(root, LOCK)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _digest(root: str, path: str) -> str:
    """`sha256:...` of a regular file; empty where it is none, or cannot be read."""
    import hashlib

    try:
        handle = os.open(os.path.join(root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as stream:
            return f"sha256:{hashlib.sha256(stream.read(_FILE_MAX)).hexdigest()}" if stat.S_ISREG(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""


def accept(project: str, state: str) -> Walk:
    """Take everything that is there now for known. Of sessions that go on, what they do from now on is new."""
    import json
    import time

    began = time.time_ns()
    walk = Walk(os.path.realpath(project), None, Baseline, record=True)
    walk.run()
    known = walk.recorded
    text = json.dumps({"version": VERSION, "things": known.things, "folders": known.folders, "parts": known.parts}, indent=0, sort_keys=True)
    temporary = os.path.join(state, f".{BASELINE}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "w", encoding="ascii") as stream:
            stream.write(text + "\n")
            stream.flush()
            os.fsync(handle)
        os.replace(temporary, os.path.join(state, BASELINE))
    except OSError:
        os.unlink(temporary)
        raise
    for marker in markers(state):
        try:
            if _runs(marker):
                # The clock of files lags behind by up to a tick.
                os.utime(marker, ns=(began - 20_000_000, began - 20_000_000), follow_symlinks=False)
            else:
                os.unlink(marker)
        except OSError:
            continue  # its session has just ended
    return walk


def _forget(marker: str) -> None:
    try:
        os.unlink(marker)
    except OSError:
        return  # then it is audited again


def _runs(marker: str) -> bool:
    """Whether the process that made it is there; its number may be another's by now, and then the marker stays."""
    pid = os.path.basename(marker)[len(MARKER) :].split("-")[0]
    return pid.isdigit() and os.path.exists(f"/proc/{pid}")


def _gathered(findings: Iterable[Finding]) -> list[Finding]:
    """By severity and path; what package managers filled is counted for each place, unless it is git's or worse than that."""
    single: list[Finding] = []
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        place = (
            ".wavegen"
            if finding.path.startswith(".wavegen/")
            else ""
            if finding.kind in ("git", "mode", "special", "audit") or finding.severity == "critical"
            else _dependency(finding.path)
        )
        (groups.setdefault(place, []) if place else single).append(finding)
    for place, members in groups.items():
        if len(members) == 1:
            single += members
            continue
        members.sort(key=_order)
        if place == ".wavegen":
            what = (members[0].severity, "fence", "files of the fence's own", members[0].runs, f"{len(members)} of them")
            single.append(Finding(f"{place}/", *what, incomplete=any(member.incomplete for member in members)))
            continue
        some = ", ".join(member.path[len(place) + 1 :] for member in members[:_NAMED])
        more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
        detail = f"{len(members)} things: {some}{more}"
        incomplete = any(member.incomplete for member in members)
        single.append(
            Finding(f"{place}/", members[0].severity, "dependencies", "dependencies", "the project's tools run what is in it", detail, incomplete=incomplete)
        )
    return sorted(single, key=_order)


def _dependency(path: str) -> str:
    """The outermost directory above it that a package manager fills."""
    from audit_table import DEPENDENCIES

    parts = path.split("/")
    for number, part in enumerate(parts[:-1]):
        if part.lower() in DEPENDENCIES:
            return "/".join(parts[: number + 1])
    return ""


def _order(finding: Finding) -> tuple[int, str]:
    return SEVERITIES.index(finding.severity), finding.path


def advice(finding: Finding) -> str:
    """What to do about it."""
    return ADVICE.get(finding.kind, LOOK)


def summary(findings: Sequence[Finding]) -> str:
    """One line for what is worse than low; nothing where there is none."""
    told = [finding for finding in findings if finding.severity != "low"]
    if not told:
        return ""
    names = list(dict.fromkeys(_plain(finding.path) for finding in told))
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    between = ", " if more else " and "
    things = "1 thing" if len(names) == 1 else f"{len(names)} things"
    incomplete = "; not everything could be looked at" if any(finding.incomplete for finding in findings) else ""
    return f"wavegen: audit: {things} the host would run or follow: {between.join(names[:_NAMED])}{more}{incomplete} (wavegen audit lists them)\n"


def _plain(text: str) -> str:
    """On one line, and nothing that a terminal obeys."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text[:160]) or "."


def _json(walk: Walk) -> str:
    import json

    found = [
        {
            "path": f.path,
            "severity": f.severity,
            "kind": f.kind,
            "what": f.what,
            "runs": f.runs,
            "detail": f.detail,
            "advice": advice(f),
            "incomplete": f.incomplete,
        }
        for f in walk.findings
    ]
    known = bool(walk.baseline.things)
    complete = not any(f.incomplete for f in walk.findings)
    head = {"version": VERSION, "entered": walk.entered, "baseline": known, "complete": complete, "entries": walk.entries}
    return json.dumps({**head, "findings": found}, indent=2)


def main(words: Sequence[str]) -> int:
    """The command line; see audit.py."""
    options = {word: words[number + 1] for number, word in enumerate(words[:-1]) if word in ("--project", "--state", "--done")}
    if "--project" not in options or "--state" not in options:
        sys.stderr.write("wavegen: error: usage: audit.py --project DIR --state DIR [--cache DIR] [--summary [--done MARKER] | --json [--all] | --accept]\n")
        return 2
    project, state = options["--project"], options["--state"]
    try:
        if "--accept" in words:
            accept(project, state)
            return 0
        walk = audit(project, state, everything="--all" in words)
    except OSError as failed:
        sys.stderr.write(f"wavegen: error: audit: {_plain(str(failed.filename))}: {failed.strerror}\n")
        return 0 if "--summary" in words else 3
    except (RecursionError, ValueError, MemoryError, KeyError, IndexError, TypeError) as failed:
        # Somebody inside may have written what it stumbles over: that is a reason to look, not to say nothing.
        sys.stderr.write(f"wavegen: error: audit: the project could not be looked at ({type(failed).__name__}): look before you run anything of it\n")
        return 0 if "--summary" in words else 3
    if "--summary" in words:
        sys.stderr.write(summary(walk.findings))
        if "--done" in options and not walk.findings:
            # And those of sessions that were killed: this audit began at the earliest of all.
            for marker in (options["--done"], *(marker for marker in markers(state) if not _runs(marker))):
                _forget(marker)
        return 0
    if "--json" in words:
        sys.stdout.write(_json(walk) + "\n")
    else:
        for finding in walk.findings:
            sys.stdout.write(f"{finding.severity}: {_plain(finding.path)}: {finding.what} ({finding.runs})\n")
    return 3 if any(finding.incomplete for finding in walk.findings) else 1 if walk.findings else 0
