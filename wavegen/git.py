"""The one git command that wavegen runs in a project whose git settings an agent may have written."""

from __future__ import annotations

import os
import subprocess

from wavegen.errors import MachineError
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
        return subprocess.run((program, *arguments), cwd=root, env=environment | _OFFLINE, capture_output=True, text=True, errors="replace", check=False)
    except OSError as failed:
        raise MachineError(f"git cannot be started: {failed.strerror}", "install git") from None
