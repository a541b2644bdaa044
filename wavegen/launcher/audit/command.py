"""What an audit found, and the baseline that it is compared with: the command line of an audit, and its notice to the next start.

    main(("--project", DIR, "--state", DIR, [--json [--all] | --accept | --notice [--done MARKER]]))

--state is the project's directory of what wavegen keeps, outside of the project: in it are `entered-PID-TIME`, a file for each session that was
not audited, whose mtime is its entry, with inode and path of directories that were not moved since (a line each; with a slash at its end those
that are repositories), and `audit.json`, the baseline. The earliest entry counts; where there is none nothing is new, unless --all lists whatever
the baseline does not know. --notice leaves what the next start says once; --done names the marker of the session that has ended: it goes where
nothing is found.

Exit status: 0 nothing found, 1 something, 2 wrong usage, 3 not everything could be looked at; with --notice always 0, with --accept 0 unless the
baseline cannot be written (3).
"""

from __future__ import annotations

import os
import stat
import sys
import time

from .places import Baseline, Finding
from .table import ADVICE, DEPENDENCIES, LOOK, SEVERITIES
from .walk import Walk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MARKER = "entered-"
BASELINE = "audit.json"
RENDERED = "rendered"
"""In the state: the digest of the last list of what was rendered."""
LOCK = ".wavegen/lock.json"
CACHE = ".wavegen/launcher/__pycache__/"
VERSION = 1
NOTICE, NOTICED, LOCK_FILE = "notice", "noticed", "audit.lock"
"""In the state: what the next start says, digests of what was said already, and a file that whoever looks for a notice has locked."""
_FILE_MAX = 64 * 1024 * 1024
_BASELINE_MAX = 256 * 1024 * 1024
_NAMED = 2
"""Paths in the line of a notice."""
_LINES = 20
"""Lines of a notice that nobody has read yet."""


def session_markers(state: str) -> list[str]:
    """Of each session that was not audited, or whose findings nobody has accepted."""
    try:
        return [os.path.join(state, name) for name in os.listdir(state) if name.startswith(MARKER)]
    except OSError:
        return []


def _earliest_session(state: str) -> tuple[int | None, str]:
    """When the first of these sessions began, and its marker; None where there is none."""
    found = []
    for marker in session_markers(state):
        try:
            found.append((os.lstat(marker).st_mtime_ns, marker))
        except OSError:
            continue  # its session has just ended
    return min(found) if found else (None, "")


def read_earliest_entry(state: str) -> tuple[int | None, dict[str, int]]:
    """The first of these sessions' entry, in nanoseconds, and the inodes of directories at the project's top then; None where there is none."""
    since, marker = _earliest_session(state)
    directories = {}
    for line in _read_state_lines(state, os.path.basename(marker)) if marker else ():
        inode, _, name = line.partition(" ")
        if name and inode.isdigit():
            directories[name] = int(inode)
    return since, directories


def load_baseline(state: str) -> Baseline:
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


def run_project_audit(project: str, state: str, *, everything: bool = False) -> Walk:
    """Look, and change nothing. `everything`: whatever the baseline does not know, whenever it came."""
    since, directories = (None, {}) if everything else read_earliest_entry(state)
    walk = Walk(os.path.realpath(project), since, lambda: load_baseline(state), directories=directories)
    if since is not None or everything:
        walk.walk_project()
        if any(finding.kind == "fence" for finding in walk.findings):
            rendered = _rendered_digests(walk.root, state)
            walk.findings = [
                f for f in walk.findings if f.kind != "fence" or not (_is_rendered(walk.root, rendered, f.path) or _is_launcher_cache(walk.root, state, f.path))
            ]
        walk.findings = _group_findings(walk.findings)
    return walk


def _rendered_digests(root: str, state: str) -> dict[str, str]:
    """Digests of the fence's own files, by path, as the host rendered them: whose list has the digest that render left in the state."""
    import json

    try:
        with open(os.path.join(state, RENDERED), encoding="ascii") as stream:
            if stream.read(200) != _file_digest(root, LOCK):
                return {}
        with open(os.path.join(root, LOCK), encoding="utf-8") as stream:
            lock = json.load(stream)
        return {**lock["inputs"], **lock["outputs"], LOCK: _file_digest(root, LOCK)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _is_rendered(root: str, rendered: dict[str, str], path: str) -> bool:
    return path in rendered and rendered[path] == _file_digest(root, path)


def _is_launcher_cache(root: str, state: str, path: str) -> bool:
    """Whether these are the launcher's compiled modules, as a start loaded or wrote them: it leaves inode and ctime in the state."""
    if not path.startswith(f"{CACHE}launcher-"):
        return False
    try:
        info = os.lstat(os.path.join(root, path))
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and _read_state_lines(state, path[len(CACHE) :]) == [f"{info.st_ino} {info.st_ctime_ns}"]


def _file_digest(root: str, path: str) -> str:
    """`sha256:...` of a regular file; empty where it is none, or cannot be read."""
    import hashlib

    try:
        handle = os.open(os.path.join(root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(handle, "rb") as stream:
            return f"sha256:{hashlib.sha256(stream.read(_FILE_MAX)).hexdigest()}" if stat.S_ISREG(os.fstat(handle).st_mode) else ""
    except OSError:
        return ""


def accept_baseline(project: str, state: str) -> Walk:
    """Take everything that is there now for known. Of sessions that go on, what they do from now on is new."""
    import json

    began = time.time_ns()
    walk = Walk(os.path.realpath(project), None, Baseline, record=True)
    walk.walk_project()
    known = walk.recorded
    try:
        os.unlink(os.path.join(state, NOTICE))  # what it says was looked at
    except FileNotFoundError:
        pass
    text = json.dumps({"version": VERSION, "things": known.things, "folders": known.folders, "parts": known.parts}, indent=0, sort_keys=True)
    _write_state_file(state, BASELINE, text + "\n")
    for marker in session_markers(state):
        try:
            if _is_session_running(marker):
                # What was where at its entry means nothing now. The clock of files lags behind by up to a tick.
                os.truncate(marker, 0)
                os.utime(marker, ns=(began - 20_000_000, began - 20_000_000), follow_symlinks=False)
            else:
                os.unlink(marker)
        except OSError:
            continue  # its session has just ended
    return walk


def _write_state_file(state: str, name: str, text: str) -> None:
    """Write a file of the state, whole or not at all. Raises OSError."""
    temporary = os.path.join(state, f".{name}.{os.getpid()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(handle, "w", encoding="ascii", errors="backslashreplace") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(handle)
        os.replace(temporary, os.path.join(state, name))
    except OSError:
        os.unlink(temporary)
        raise


def _read_state_lines(state: str, name: str) -> list[str]:
    """Lines of a file of the state; none where there is no such file."""
    try:
        with open(os.path.join(state, name), encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            return stream.read(_FILE_MAX).split("\n")[:-1]
    except OSError:
        return []


def _is_session_running(marker: str) -> bool:
    """Whether the process that made it is there; its number may be another's by now, and then the marker stays."""
    pid = os.path.basename(marker)[len(MARKER) :].split("-")[0]
    return pid.isdigit() and os.path.exists(f"/proc/{pid}")


def _group_findings(findings: Iterable[Finding]) -> list[Finding]:
    """By severity and path; what package managers filled is counted for each place, unless it is git's or worse than that."""
    single: list[Finding] = []
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        place = (
            ".wavegen"
            if finding.path.startswith(".wavegen/")
            else ""
            if finding.kind in ("git", "mode", "special", "audit") or finding.severity == "critical"
            else _dependency_directory(finding.path)
        )
        (groups.setdefault(place, []) if place else single).append(finding)
    for place, members in groups.items():
        if len(members) == 1:
            single += members
            continue
        members.sort(key=_finding_sort_key)
        if place == ".wavegen":
            what = (members[0].severity, "fence", "files of the fence's own", members[0].runs, f"{len(members)} of them")
            single.append(
                Finding(f"{place}/", *what, incomplete=any(member.incomplete for member in members), signature=" ".join(m.signature for m in members))
            )
            continue
        some = ", ".join(member.path[len(place) + 1 :] for member in members[:_NAMED])
        more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
        detail = f"{len(members)} things: {some}{more}"
        incomplete = any(member.incomplete for member in members)
        single.append(
            Finding(f"{place}/", members[0].severity, "dependencies", "dependencies", "the project's tools run what is in it", detail, incomplete=incomplete)
        )
    return sorted(single, key=_finding_sort_key)


def _dependency_directory(path: str) -> str:
    """The outermost directory above it that a package manager fills."""
    parts = path.split("/")
    for number, part in enumerate(parts[:-1]):
        if part.lower() in DEPENDENCIES:
            return "/".join(parts[: number + 1])
    return ""


def _finding_sort_key(finding: Finding) -> tuple[int, str]:
    return SEVERITIES.index(finding.severity), finding.path


def advice_for_finding(finding: Finding) -> str:
    """What to do about it."""
    return ADVICE.get(finding.kind, LOOK)


def is_worth_a_notice(finding: Finding) -> bool:
    """Whether a start speaks of it: what the host runs by itself, outside of what package managers fill. wavegen audit lists the rest."""
    return finding.severity == "critical" or (finding.severity == "high" and not _dependency_directory(finding.path))


def format_notice(findings: Sequence[Finding]) -> str:
    """One line; empty where there is nothing."""
    names = list(dict.fromkeys(_printable_text(finding.path) for finding in findings))
    if not names:
        return ""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    between = ", " if more else " and "
    things = "1 thing" if len(names) == 1 else f"{len(names)} things"
    incomplete = "; not everything could be looked at" if any(finding.incomplete for finding in findings) else ""
    return f"audit: {things} the host would run or follow: {between.join(names[:_NAMED])}{more}{incomplete} (wavegen audit lists them)"


_PAUSES = (0.3, 1.0, 3.0)
"""Seconds after which it is looked once more, where something was changed meanwhile."""


def leave_notice(project: str, state: str, done: str | None) -> None:
    """Look, and leave what is new since the last notice for the next start to say. `done`: the marker of a session that has ended. Raises OSError.

    One process at a time: whoever finds another one looking leaves the marker, from which the next look begins.
    """
    import fcntl

    handle = os.open(os.path.join(state, LOCK_FILE), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return
    try:
        # Of sessions that ended before this look began, killed ones too: later ones may have changed what was looked at already.
        ended = [marker for marker in session_markers(state) if marker == done or not _is_session_running(marker)]
        failed, found = "", []
        try:
            walk = run_project_audit(project, state)
            for pause in _PAUSES if walk.has_changed else ():
                time.sleep(pause)  # git on the host, or the next shell, may be at work
                walk = run_project_audit(project, state)
                if not walk.has_changed:
                    break
            found = walk.findings
        except (RecursionError, ValueError, MemoryError, KeyError, IndexError, TypeError, OSError) as error:
            # Somebody inside may have written what it stumbles over: that is a reason to look, not to say nothing.
            failed = f"audit: the project could not be looked at ({type(error).__name__}): look before you run anything of it"
        _write_new_notice(state, [finding for finding in found if is_worth_a_notice(finding)], failed)
        # Where there is something to look at, the earliest marker alone says since when.
        kept = "" if done and not found and not failed else _earliest_session(state)[1]
        for marker in ended:
            if marker == kept or failed:
                continue
            try:
                os.unlink(marker)
            except OSError:
                continue  # then it is audited again
    finally:
        os.close(handle)


def _write_new_notice(state: str, findings: Sequence[Finding], failed: str) -> None:
    """Say what was not said before; what is no finding any more is forgotten."""
    keys = {_finding_key(finding): finding for finding in findings}
    keys_now = {*keys, *({failed[:80]} if failed else ())}
    said = set(_read_state_lines(state, NOTICED))
    if keys_now == said:
        return
    line = failed if failed and failed[:80] not in said else format_notice([finding for key, finding in keys.items() if key not in said])
    if line:
        _write_state_file(state, NOTICE, "".join(f"{one}\n" for one in [*_read_state_lines(state, NOTICE), line][-_LINES:]))
    _write_state_file(state, NOTICED, "".join(f"{key}\n" for key in sorted(keys_now)))


def _finding_key(finding: Finding) -> str:
    """What makes a finding another one: where, what kind, and what is in it now."""
    import hashlib

    return hashlib.sha256(f"{finding.kind}\0{finding.path}\0{finding.signature}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _printable_text(text: str) -> str:
    """On one line, and nothing that a terminal obeys."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text[:160]) or "."


def audit_json_text(walk: Walk) -> str:
    """The answer of --json."""
    import json

    found = [
        {
            "path": f.path,
            "severity": f.severity,
            "kind": f.kind,
            "what": f.what,
            "runs": f.runs,
            "detail": f.detail,
            "advice": advice_for_finding(f),
            "incomplete": f.incomplete,
        }
        for f in walk.findings
    ]
    known = bool(walk.accepted_baseline.things)
    complete = not any(f.incomplete for f in walk.findings)
    head = {"version": VERSION, "entered": walk.entered, "baseline": known, "complete": complete, "entries": walk.entries}
    return json.dumps({**head, "findings": found}, indent=2)


def main(words: Sequence[str]) -> int:
    """The command line; see above."""
    options = {word: words[number + 1] for number, word in enumerate(words[:-1]) if word in ("--project", "--state", "--done")}
    if "--project" not in options or "--state" not in options:
        sys.stderr.write("wavegen: error: usage: --project DIR --state DIR [--json [--all] | --accept | --notice [--done MARKER]]\n")
        return 2
    project, state = options["--project"], options["--state"]
    try:
        if "--accept" in words:
            accept_baseline(project, state)
            return 0
        if "--notice" in words:
            leave_notice(project, state, options.get("--done"))
            return 0
        walk = run_project_audit(project, state, everything="--all" in words)
    except OSError as failed:
        sys.stderr.write(f"wavegen: error: audit: {_printable_text(str(failed.filename))}: {failed.strerror}\n")
        return 3
    except (RecursionError, ValueError, MemoryError, KeyError, IndexError, TypeError) as failed:
        # Somebody inside may have written what it stumbles over: that is a reason to look, not to say nothing.
        sys.stderr.write(f"wavegen: error: audit: the project could not be looked at ({type(failed).__name__}): look before you run anything of it\n")
        return 3
    if "--json" in words:
        sys.stdout.write(audit_json_text(walk) + "\n")
    else:
        for finding in walk.findings:
            sys.stdout.write(f"{finding.severity}: {_printable_text(finding.path)}: {finding.what} ({finding.runs})\n")
    return 3 if any(finding.incomplete for finding in walk.findings) else 1 if walk.findings else 0
