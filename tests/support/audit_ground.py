"""A project, the moment at which a fence was entered, and what an audit then says."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import ROOT

from wavegen.launcher.audit import command

PACKAGE = ROOT / "wavegen/launcher/audit"
SCRIPT = "import sys; sys.path.insert(0, sys.argv.pop(1)); from launcher.audit.command import main; sys.exit(main(sys.argv[1:]))"
"""The command line, started as the launcher starts: `python3 -I -S -c SCRIPT wavegen/ --project ...`."""


class Ground:
    """Below a test's directory."""

    def __init__(self, base: Path) -> None:
        self.root, self.state = base / "project", base / "state"
        self.root.mkdir()
        self.state.mkdir()
        self.marker = self.state / "entered-0-1"
        """Of a session that has ended."""

    def put(self, path: str, content: str | bytes = "x") -> Path:
        """A file of the project's."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    def enter(self) -> None:
        """From now on everything is new. The clock of files ticks every 4 ms or so."""
        time.sleep(0.03)
        self.marker.touch()
        time.sleep(0.03)

    def accept(self) -> None:
        """What is there now is known."""
        command.accept_baseline(str(self.root), str(self.state))

    def findings(self) -> list[Any]:
        """In this process; without an entry everything that is not known."""
        found: list[Any] = command.run_project_audit(str(self.root), str(self.state), everything=not command.session_markers(str(self.state))).findings
        return found

    def paths(self) -> set[str]:
        """Of all findings."""
        return {finding.path for finding in self.findings()}

    def severities(self) -> dict[str, str]:
        """By path, the worst of each."""
        return {finding.path: finding.severity for finding in reversed(self.findings())}

    def run(self, *words: str, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        """In a process of its own."""
        argv = [*prefix, sys.executable, "-I", "-S", "-c", SCRIPT, str(PACKAGE.parent.parent), "--project", str(self.root), "--state", str(self.state), *words]
        return subprocess.run(argv, env=None if env is None else dict(env), capture_output=True, text=True, timeout=timeout, check=False)

    def notice(self, *words: str, **how: Any) -> str:
        """What the next start would say, and says once."""
        done = self.run("--notice", *words, **how)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), done
        file = self.state / "notice"
        text = file.read_text("ascii") if file.exists() else ""
        file.unlink(missing_ok=True)
        return text

    def answer(self, **how: Any) -> dict[str, Any]:
        """What --json says."""
        value: dict[str, Any] = json.loads(self.run("--json", **how).stdout)
        return value
