"""The other fences that are installed here: how each starts a command, with a network of the same few names.

`WAVEGEN_BENCH_PATH` names directories with them that are not on the PATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

ENVIRONMENT = "WAVEGEN_BENCH_PATH"


def path() -> str:
    """The PATH, and what is named besides."""
    return os.pathsep.join(filter(None, (os.environ.get("PATH"), os.environ.get(ENVIRONMENT))))


def installed(project: Path, environment: Mapping[str, str], allowed: Iterable[str]) -> dict[str, list[str]]:
    """What starts a command in each, before the command. `allowed`: HOST:PORT that may be reached; they take addresses for names."""
    names = tuple(allowed)
    settings = project.parent / "srt.json"
    rules = {"network": {"allowedDomains": list(names), "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}
    settings.write_text(json.dumps(rules), encoding="utf-8")
    known = (
        (["srt", "--settings", str(settings), "--"], "npm install -g @anthropic-ai/sandbox-runtime; it needs socat and rg too"),
        (["hozo", "--project", str(project), "--network", "proxy", f"--allow-net={','.join(names)}", "--"], "pip install hozo"),
    )
    return {argv[0]: found for argv, how in known if (found := _started(argv, how, project, environment))}


def _started(argv: list[str], how: str, project: Path, environment: Mapping[str, str]) -> list[str]:
    """The same by its path; nothing where it is not here or does not start a command, and says why."""
    name = argv[0]
    found = shutil.which(name, path=path())
    if not found:
        print(f"{name} is not installed, and left out ({how}).")
        return []
    words = [found, *argv[1:]]
    done = subprocess.run([*words, "/bin/true"], cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name} does not work here, and is left out: {(done.stderr.strip() or 'it says nothing').splitlines()[-1]}")
        return []
    return words
