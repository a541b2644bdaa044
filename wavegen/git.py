"""The few git commands that wavegen runs in a project whose git settings an agent may have written."""

from __future__ import annotations

import os
import re
import subprocess

from wavegen.errors import MachineError, UsageError
from wavegen.nodes import SIZE_LIMIT
from wavegen.tools import SYSTEM, directories, find

# A repository that says it is a partial clone would fetch what is missing, by a program that it names.
_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}


def add_command(paths: tuple[str, ...]) -> tuple[str, ...]:
    """What makes new files visible to a flake: git must know them, not what is in them."""
    return ("git", "add", "-N", "--", *paths)


def add(root: str, paths: tuple[str, ...]) -> None:
    """Run `add_command` without starting any program that the project's settings name. Raises MachineError.

    git starts fsmonitor and hooks when it writes the index, and the filters of files whose time stamp does not tell
    whether they changed ("racy git" in its documentation): all of them are switched off for this one run.
    """
    command = add_command(paths)
    settings = [("core.fsmonitor", "false"), ("core.hooksPath", "/dev/null")]
    for driver in _filters(root):
        settings += [(f"filter.{driver}.{key}", "") for key in ("clean", "smudge", "process")]
        settings.append((f"filter.{driver}.required", "false"))
    # By variables (git-config(1)), as the name of a driver may hold the = that -c splits at.
    environment = os.environ | {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    done = _git(root, command[1:], environment)
    if done.returncode:
        raise MachineError(f"git add failed: {done.stderr.strip()}", f"run {' '.join(command)} yourself")


# What would lead git to another repository than the project's, as it is set in hooks (git-rev-parse(1), --local-env-vars).
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_ENTRY = re.compile(r"(?P<mode>[0-7]{6}) (?P<kind>[a-z]+) (?P<id>[0-9a-f]{40,64}) +(?P<size>[0-9]+|-)\t", re.DOTALL)


def commit(root: str, revision: str) -> str:
    """The id of the commit that a revision names. Raises UsageError and MachineError."""
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise UsageError(f"{revision!r} is no revision", "name a branch, a tag or a commit")
    done = _plumbing(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    found = done.stdout.strip()
    if done.returncode or not _COMMIT.fullmatch(found):
        why = f": {done.stderr.strip().splitlines()[0]}" if done.stderr.strip() else ""
        raise UsageError(f"there is no revision '{revision}' here{why}", "name a branch, a tag or a commit of the project's repository")
    return found


def file(root: str, commit: str, name: str) -> bytes | None:
    """What a file of the project held at a commit; None where there was none. Raises UsageError for what was no file, and MachineError.

    git's plumbing hands out what is stored: no filter, no textconv and no pager is started for it.
    """
    done = _plumbing(root, "ls-tree", "-z", "--long", commit, "--", f":(literal){name}")
    entry = _ENTRY.match(done.stdout)
    if done.returncode:
        raise MachineError(f"git cannot read {commit}: {done.stderr.strip()}", "run git fsck")
    if entry is None:
        return None
    if entry["mode"] not in ("100644", "100755") or entry["size"] == "-":
        raise UsageError(f"{name} was no file at {commit}", "name a revision where it was one")
    if int(entry["size"]) > SIZE_LIMIT:
        raise UsageError(f"{name} had more than {SIZE_LIMIT} bytes at {commit}", "name another revision")
    blob = _plumbing(root, "cat-file", "blob", entry["id"])
    if blob.returncode:
        raise MachineError(f"git cannot read {name} of {commit}: {blob.stderr.strip()}", "fetch it: what is missing is not fetched here")
    return blob.stdout.encode("utf-8", "surrogateescape")


def _plumbing(root: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    # Objects that are said to stand for others would show another manifest than the one that is named.
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE} | {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0"}
    return _git(root, arguments, environment)


def _filters(root: str) -> tuple[str, ...]:
    # Reading the settings starts nothing. `-z` ends each name with NUL, whatever it holds.
    done = _git(root, ("config", "--name-only", "-z", "--get-regexp", r"^filter\."), dict(os.environ))
    names = [name.split(".", 1)[1].rpartition(".")[0] for name in done.stdout.split("\0") if name.count(".") > 1]
    return tuple(dict.fromkeys(names))


def _git(root: str, arguments: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program = find("git", root, (*SYSTEM, *directories(root, environment.get("PATH", ""))))
    if not program:
        raise MachineError("git is not on the PATH", "install git")
    try:
        return subprocess.run(
            (program, *arguments), cwd=root, env=environment | _OFFLINE, capture_output=True, encoding="utf-8", errors="surrogateescape", check=False
        )
    except OSError as failed:
        raise MachineError(f"git cannot be started: {failed.strerror}", "install git") from None
