"""Looks into single files that somebody may have written to mislead whoever looks: what they make the host do, and a signature of just that.

A file is opened once, without following a link, waiting for a writer or taking a terminal, and only so much of it is read.
"""

from __future__ import annotations

import errno
import os
import stat

from ..git_config import parse_config, scan_config
from . import git

READ_MAX = 1024 * 1024
"""Bytes of one file."""
_NAMED_MAX = 200
"""Paths in the settings of one repository."""
_LINKS_MAX = 40
"""As many as the kernel follows."""
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# What npm and its like run without being asked to, when a package is installed, packed or published.
LIFECYCLE = frozenset(
    ("preinstall", "install", "postinstall", "preprepare", "prepare", "postprepare", "prepublish", "prepublishonly", "prepack", "postpack", "dependencies",
     "preuninstall", "uninstall", "postuninstall", "pnpm:devpreinstall")
)  # fmt: skip
_HARMLESS = frozenset(
    ("name", "version", "description", "keywords", "homepage", "bugs", "license", "licenses", "author", "authors", "contributors", "maintainers", "funding",
     "repository", "private", "readme", "readmefilename", "sideeffects", "types", "typings", "type", "files", "gitHead", "githead", "_id", "_from",
     "_resolved", "_integrity")
)  # fmt: skip
"""Fields of package.json that nothing runs; any other is taken for one of some tool's."""
_BUILT_IN = frozenset(
    ("ada", "bash", "bibtex", "cpp", "csharp", "css", "dts", "elixir", "fortran", "fountain", "golang", "html", "java", "kotlin", "markdown", "matlab",
     "objc", "pascal", "perl", "php", "python", "ruby", "rust", "scheme", "tex", "text", "union", "binary")
)  # fmt: skip
"""Drivers that are part of git, gitattributes(5)."""


class Judged:
    """What was found in a file. `signature` changes with whatever matters of it; `parts` has one for each script, where it has scripts."""

    __slots__ = ("detail", "incomplete", "parts", "severity", "signature")

    def __init__(self, signature: str, severity: str, detail: str = "", *, incomplete: bool = False, parts: dict[str, str] | None = None) -> None:
        self.signature, self.severity, self.detail, self.incomplete, self.parts = signature, severity, detail, incomplete, parts or {}


def read_regular_file(name: str, directory: int, most: int = READ_MAX) -> bytes | Judged:
    """The content of a regular file of at most `most` bytes; what to say where there is none to be had."""
    try:
        handle = os.open(name, _OPEN, dir_fd=directory)
    except OSError as failed:
        return unreadable_file_verdict(failed)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return Judged(f"kind {stat.S_IFMT(info.st_mode)}", "high", "not a regular file")
        if info.st_size > most:
            return _oversized_file_verdict(info)
        data = b""
        while len(data) <= most and (more := os.read(handle, most + 1 - len(data))):
            data += more
        return data if len(data) <= most else _oversized_file_verdict(info)
    except OSError as failed:
        return unreadable_file_verdict(failed)
    finally:
        os.close(handle)


def read_file_text(directory: str, name: str) -> str:
    """The content of a file in a directory; empty where there is none to be had."""
    try:
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        data = read_regular_file(name, handle)
    finally:
        os.close(handle)
    return "" if isinstance(data, Judged) else data.decode("utf-8", "surrogateescape")


def unreadable_file_verdict(failed: OSError) -> Judged:
    """Something that cannot be looked at: whatever is in it."""
    word = errno.errorcode.get(failed.errno or 0, "error")
    return Judged(f"unreadable {word}", "high", f"it cannot be read: {failed.strerror}", incomplete=True)


def _oversized_file_verdict(info: os.stat_result) -> Judged:
    # The time of change cannot be set from inside: any write makes another signature.
    return Judged(f"large {info.st_ino} {info.st_size} {info.st_ctime_ns}", "medium", "too large to be looked into", incomplete=True)


def content_digest(data: bytes) -> str:
    """Enough of a SHA-256 that nobody finds another file for it."""
    import hashlib  # 3 ms, of which most starts need none

    return hashlib.sha256(data).hexdigest()[:32]


def worse_severity(one: str, other: str) -> str:
    """The worse of two severities."""
    return min(one, other, key=("critical", "high", "medium", "low").index)


def check_whole_file(name: str, directory: int, severity: str) -> Judged:
    """A file of which everything counts."""
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        # Its size is no reason to doubt that it was looked at: everything of it counts.
        return Judged(data.signature, severity, data.detail, incomplete=data.incomplete and not data.signature.startswith("large"))
    return Judged(content_digest(data), severity)


# --- git


def check_git_config(name: str, directory: int) -> Judged | None:
    """The settings of a file that start a program or lead elsewhere; None where there are none."""
    judged = _check_git_settings(name, directory)
    return judged if judged.detail else None


def _check_git_settings(name: str, directory: int) -> Judged:
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        return Judged(data.signature, "critical", data.detail, incomplete=data.incomplete)
    found: list[tuple[str, str, str]] = []
    severity, note = "low", ""
    settings, is_whole = scan_config(data)
    for setting in settings:
        bad = git.setting_severity(setting)
        if bad:
            severity = worse_severity(severity, bad)
            found.append((bad, git.setting_name(setting), setting[3] if setting[3] is not None else "true"))
    if not is_whole:
        # Other programs that read it may not be as strict, and git takes what stands before it.
        severity, note = worse_severity(severity, "medium"), "git refuses a line of it"
    order = ("critical", "high", "medium", "low")
    shown = [f"{setting}={_truncate_text(value)}" for _, setting, value in sorted(found, key=lambda each: order.index(each[0]))]
    told = "\0".join(f"{setting}\1{value}" for _, setting, value in found).encode("utf-8", "surrogateescape")
    return Judged(content_digest(data if note else told), severity, ", ".join([*shown, note] if note else shown))


def paths_named_in_settings(name: str, directory: int, repository: str, root: str) -> dict[str, str]:
    """Paths in the project that the settings of a repository may mean by what they start, read or include, each with its setting."""
    data = read_regular_file(name, directory)
    found: dict[str, str] = {}
    if isinstance(data, Judged):
        return found
    for setting in parse_config(data):
        if git.setting_severity(setting) and len(found) < _NAMED_MAX:
            for word in git.path_candidates(setting):
                for place in (repository, os.path.dirname(repository), ""):
                    path = os.path.relpath(os.path.normpath(os.path.join(root, place, word)), root)
                    if path != "." and not path.startswith("../") and path != "..":
                        found.setdefault(path, git.setting_name(setting))
    return found


def check_submodules(name: str, directory: int) -> Judged:
    """.gitmodules: addresses and ways to update."""
    judged = _check_git_settings(name, directory)
    # A module of any address is fetched, and what is checked out of it is run.
    return Judged(judged.signature, worse_severity(judged.severity, "medium"), judged.detail, incomplete=judged.incomplete)


def check_attributes(name: str, directory: int, severity: str) -> Judged | None:
    """The drivers that a file of attributes names; None where it names none but git's own."""
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        return Judged(data.signature, severity, data.detail, incomplete=data.incomplete)
    drivers = []
    for line in data.replace(b"\r", b"\n").split(b"\n"):
        if line.lstrip().startswith(b"#"):
            continue
        for word in line.split()[1:]:
            kind, _, driver = word.decode("utf-8", "surrogateescape").partition("=")
            if kind in ("filter", "diff", "merge") and driver and driver not in _BUILT_IN:
                drivers.append((kind, driver, line))
    if not drivers:
        return None
    named = sorted({f"{kind}={_truncate_text(driver)}" for kind, driver, _ in drivers})
    return Judged(content_digest(b"\n".join(line for _, _, line in drivers)), severity, ", ".join(named))


def check_packed_refs(name: str, directory: int) -> Judged | None:
    """`packed-refs`: what of it makes git take one object for another."""
    data = read_regular_file(name, directory, 32 * READ_MAX)
    if isinstance(data, Judged):
        return Judged(data.signature, "critical", data.detail, incomplete=data.incomplete)
    lines = [line for line in data.split(b"\n") if b" refs/replace/" in line] if b" refs/replace/" in data else []
    return Judged(content_digest(b"\n".join(lines)), "critical", _truncate_text(lines[0].decode("utf-8", "replace"))) if lines else None


def check_git_pointer(name: str, directory: int, place: str, root: str) -> Judged:
    """A `.git` that is a file: where the repository is."""
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        return Judged(data.signature, "critical", data.detail, incomplete=data.incomplete)
    target = data.decode("utf-8", "surrogateescape").strip().removeprefix("gitdir:").strip()
    led = os.path.relpath(os.path.normpath(os.path.join(root, place, target)), root)
    # There what it holds is looked at, as in every repository.
    known = led.startswith((".git/modules/", ".git/worktrees/"))
    return Judged(content_digest(data), "medium" if known else "critical", f"it leads to {_truncate_text(target)}")


def check_commondir(name: str, directory: int, folder: str) -> Judged | None:
    """`commondir`: where the settings and hooks are taken from. None for what git writes itself, and the fence."""
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        return Judged(data.signature, "critical", data.detail, incomplete=data.incomplete)
    target = data.decode("utf-8", "surrogateescape").strip("\r\n")
    if target in (".", "./") or (target == "../.." and folder == "worktrees"):
        return None
    return Judged(content_digest(data), "critical", f"it leads to {_truncate_text(target)}")


def check_rebase_steps(name: str, directory: int) -> Judged | None:
    """The steps of a rebase under way, where one of them is a command."""
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        return Judged(data.signature, "high", data.detail, incomplete=data.incomplete)
    steps = [line for line in data.split(b"\n") if line.split()[:1] in ([b"exec"], [b"x"])]
    if not steps:
        return None
    return Judged(content_digest(b"\n".join(steps)), "high", _truncate_text(steps[0].decode("utf-8", "surrogateescape").strip()))


_STRATEGIES = frozenset(("ort", "recursive", "resolve", "octopus", "ours", "subtree"))


def check_merge_strategy(name: str, directory: int) -> Judged | None:
    """How a rebase or cherry-pick goes on, where that is by a strategy that is not git's own: git starts git-merge-NAME, also by a path."""
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        return Judged(data.signature, "high", data.detail, incomplete=data.incomplete)
    text = data.decode("utf-8", "surrogateescape")
    named = [line.partition("=")[2].strip().strip('"') for line in text.splitlines() if line.strip().lower().startswith("strategy =")] if name == "opts" else []
    named += [text.strip()] if name == "strategy" else []
    if not [one for one in named if one not in _STRATEGIES] and "/" not in text:
        return None
    return Judged(content_digest(data), "high", _truncate_text(text.strip()))


# --- packages


def check_package_json(name: str, directory: int, known: dict[str, str]) -> Judged | None:
    """package.json: what is run or fetched for it. `known` has the signatures of the scripts at the last audit."""
    data = read_regular_file(name, directory)
    if isinstance(data, Judged):
        return Judged(data.signature, "medium", data.detail, incomplete=data.incomplete)
    import json

    try:
        value = json.loads(data)
        if not isinstance(value, dict):
            return Judged(content_digest(data), "low", "no package")
    except (ValueError, RecursionError):
        return Judged(content_digest(data), "medium", "no JSON")
    counts = {key: value[key] for key in sorted(value) if key.lower() not in _HARMLESS}
    if not counts:
        return None
    scripts = counts.get("scripts")
    parts = {key: content_digest(json.dumps(scripts[key]).encode())[:8] for key in sorted(scripts)} if isinstance(scripts, dict) else {}
    changed = [key for key in parts if parts[key] != known.get(key)] if known else [key for key in parts if key.lower() in LIFECYCLE]
    severity = "high" if any(key.lower() in LIFECYCLE for key in changed) else "medium"
    detail = f"scripts: {', '.join(_truncate_text(key) for key in changed)}" if changed else ""
    return Judged(content_digest(json.dumps(counts, sort_keys=True).encode()), severity, detail, parts=parts)


# --- bits


def has_capabilities(name: str, directory: int) -> bool:
    """Whether a program has capabilities(7) of its own."""
    if not hasattr(os, "getxattr"):
        return False  # not Linux
    try:
        handle = os.open(name, _OPEN, dir_fd=directory)
    except OSError:
        return False
    try:
        return bool(os.getxattr(handle, "security.capability"))
    except OSError:
        return False
    finally:
        os.close(handle)


# --- links

_SENSITIVE = ("/etc", "/root", "/home", "/Users", "/proc", "/sys", "/dev", "/run", "/var/run", "/var/lib", "/boot")
_PROGRAMS = ("/nix/store", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/opt", "/dev/null")


def link_target_outside(root: str, place: str, target: str, steps: list[int]) -> str | None:
    """Where a link that lies in a directory of the project leads, if that is outside of it; nothing there is touched. `steps`: how many are left, if any."""
    here = [part for part in place.split("/") if part]
    ahead = _reversed_link_parts(root, here, target)
    links = 0
    while ahead:
        part = ahead.pop()
        if not steps or steps[0] < 0:
            return None
        steps[0] -= 1
        if part == "/" or (part == ".." and not here):
            rest = "/".join(reversed(ahead))
            return os.path.normpath("/" + rest.lstrip("/") if part == "/" else f"{root}/../{rest}")
        if part in ("", "."):
            continue
        if part == "..":
            here.pop()
            continue
        try:
            further = os.readlink("/".join((root, *here, part)))
        except (OSError, ValueError):
            here.append(part)
            continue
        links += 1
        if links > _LINKS_MAX:
            return None
        ahead += _reversed_link_parts(root, here, further)
    return None


def _reversed_link_parts(root: str, here: list[str], target: str) -> list[str]:
    """The parts of a link's target, last one first; `/` leaves the project."""
    if not target.startswith("/"):
        return target.split("/")[::-1]
    if target == root or target.startswith(f"{root}/"):
        here.clear()
        return target[len(root) :].split("/")[::-1]
    return [*target.split("/")[::-1], "/"]


def link_severity(led: str) -> str:
    """How bad it is to be led there."""
    if any(led == place or led.startswith(f"{place}/") for place in _PROGRAMS):
        return "low"
    home = os.environ.get("HOME", "/root")
    return "high" if any(led == place or led.startswith(f"{place}/") for place in (*_SENSITIVE, home)) else "medium"


def _truncate_text(text: str) -> str:
    return text if len(text) <= 60 else text[:60] + "…"
