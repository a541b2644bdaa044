"""A throw-away project with a throw-away home, entered as root or as a user without privileges."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from first_start import prepare
from helpers import USER, call, until

PYTHON = "/usr/bin/python3"
"""The distribution's Python: the tests' own may live in a home directory, which no shell shows."""

MANIFEST = "metadata: {name: fence}\n"


@dataclass(frozen=True)
class Fence:
    """A rendered project. `base` holds home, project and its neighbours."""

    base: Path
    home: Path
    project: Path
    uid: int

    @classmethod
    def create(cls, manifest: str, *, uid: int, project: str = "work/project", under: str | None = None) -> Fence:
        """Write and render a manifest in a new directory that `uid` owns."""
        base = Path(tempfile.mkdtemp(prefix="wavegen-fence-", dir=under)).resolve()
        home, root = base / "home", base / project
        for directory in (home, root):
            directory.mkdir(parents=True)
        fence = cls(base, home, root, uid)
        fence.write("wave.yaml", manifest)
        rendered = call("render", cwd=root, env=fence.environment())
        assert rendered.status == 0, rendered.stderr
        fence.own()
        return fence

    def own(self) -> None:
        """Give everything to the user."""
        self.base.chmod(0o755)
        if self.uid != os.getuid():
            subprocess.run(["chown", "-R", f"{self.uid}:{self.uid}", str(self.base)], check=True)
        prepare(self.project, self.home, self.uid)

    def remove(self) -> None:
        """Delete all of it. What a session left may still be looked at, in a process that nobody waits for."""
        wait_until(lambda: shutil.rmtree(self.base, ignore_errors=True) or not self.base.exists(), f"{self.base} can be removed")

    def write(self, name: str, text: str) -> Path:
        """A file of the project."""
        path = self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def edit(self, name: str, change: Callable[[str], str]) -> None:
        """Change a file of .wavegen as if it had been rendered so: with its digest in the lock."""
        path, lock = self.project / ".wavegen" / name, self.project / ".wavegen/lock.json"
        before = path.read_text()
        after = change(before)
        assert after != before, name
        path.write_text(after)
        listed = json.loads(lock.read_text())
        listed["outputs"][f".wavegen/{name}"] = f"sha256:{hashlib.sha256(after.encode()).hexdigest()}"
        lock.write_text(json.dumps(listed))
        prepare(self.project, self.home, self.uid)

    def render(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `wavegen render` on the host."""
        done = self.wavegen("render", *arguments)
        self.own()
        return done

    def wavegen(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run the real command line in the project, as the user that runs the tests."""
        command = [sys.executable, "-m", "wavegen", *arguments]
        return subprocess.run(command, cwd=self.project, env=self.environment(**more), capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)

    def environment(self, **more: str) -> dict[str, str]:
        """The host's environment of an entry."""
        base = {"HOME": str(self.home), "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "TERM": "xterm"}
        return base | more

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """What is executed to enter a shell."""
        wrapper = [str(self.project / ".wavegen/bin" / shell), *command]
        return wrapper if self.uid == os.getuid() else ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--", *wrapper]

    def enter(
        self, *command: str, shell: str = "default", cwd: Path | None = None, env: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command inside and wait for it."""
        return subprocess.run(
            self.argv(shell, command),
            cwd=cwd or self.project,
            env=self.environment() if env is None else env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )

    def python(self, code: str, *arguments: str, shell: str = "default", **options: object) -> object:
        """What a Python program inside prints as JSON; it must succeed."""
        done = self.enter(PYTHON, "-I", "-S", "-c", code, *arguments, shell=shell, **options)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait for something that happens in the background, which nobody waits for: however slow the machine is, it comes."""
    assert until(holds, 120), what


def users() -> list[int]:
    """Root and a user without privileges, or only the latter where the tests are not root."""
    return [0, USER] if os.getuid() == 0 else [os.getuid()]


def name_of(uid: int) -> str:
    """For test ids."""
    return "root" if uid == 0 else "user"
