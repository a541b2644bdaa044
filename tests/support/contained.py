"""A throw-away project that is entered as a container: by its script or by `wavegen run`, as root or as the user whom it belongs to."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine import Engine, Podman
from fence import Fence
from first_start import prepare
from helpers import ROOT, USER, call, until

AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--")


@dataclass(frozen=True)
class Box(Fence):
    """A rendered project of the user's, and who enters it with which engine. Root has a home of its own."""

    engine: Engine | Podman
    caller: int
    started: list[int] = field(default_factory=list)
    """The process ids of what was started: other tests, beside these, start scripts, too."""

    @classmethod
    def made(cls, engine: Engine | Podman, manifest: str, *, caller: int, project: str = "work/project") -> Box:
        """Write and render a manifest, `{image}` in it being the engine's image, in a new directory."""
        base = Path(tempfile.mkdtemp(prefix="wavegen-contained-")).resolve()
        home, root = (isinstance(engine, Podman) and engine.home) or base / "home", base / project
        for directory in (home, root):
            directory.mkdir(parents=True, exist_ok=True)
        box = cls(base, home, root, USER if os.getuid() == 0 else os.getuid(), engine, caller)
        box.write("wave.yaml", manifest.replace("{image}", engine.image()) if "{image}" in manifest else manifest)
        rendered = call("render", cwd=root, env=box.environment())
        assert rendered.status == 0, rendered.stderr
        box.own()
        return box

    def own(self) -> None:
        """The project to the user, the home to whoever calls."""
        self.base.chmod(0o755)
        if os.getuid() == 0:
            subprocess.run(["chown", "-hR", f"{self.uid}:{self.uid}", str(self.base)], check=True)
            if self.home.is_relative_to(self.base):
                subprocess.run(["chown", "-hR", f"{self.caller}:{self.caller}", str(self.home)], check=True)
        self.home.chmod(0o700)
        prepare(self.project, self.home, self.caller)

    def give(self, place: Path) -> None:
        """A directory to whoever calls, and no other: the audit goes by the time of change."""
        if os.getuid() == 0:
            subprocess.run(["chown", "-hR", f"{self.caller}:{self.caller}", str(place)], check=True)

    def attempts(self, *attacks: str) -> dict[str, int]:
        """How each of these shell commands ends, in one container."""
        done = self.enter("sh", "-c", 'for attack; do sh -c "$attack" >/dev/null 2>&1; echo $?; done', "sh", *attacks)
        assert done.returncode == 0, done.stderr
        return dict(zip(attacks, map(int, done.stdout.split()), strict=True))

    def environment(self, **more: str) -> dict[str, str]:
        """The caller's: an engine that answers, and no settings."""
        found = self.engine.environment()
        own = {"HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "xterm", "PYTHONPATH": str(ROOT)}
        if isinstance(self.engine, Podman):
            own["WAVEGEN_CONTAINER"] = "podman"
        return found | own | more

    @property
    def prefix(self) -> tuple[str, ...]:
        """What a program is started by to be the caller's."""
        if isinstance(self.engine, Podman) and self.engine.who:
            return self.engine.who
        return () if self.caller == os.getuid() else AS_USER

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """The script of a shell."""
        return [*self.prefix, str(self.project / ".wavegen/docker" / f"run-{shell}"), *command]

    def enter(
        self, *command: str, shell: str = "n", cwd: Path | None = None, env: dict[str, str] | None = None, stdin: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """As Fence.enter."""
        argv = self.argv(shell, command)
        with self.open(*command, shell=shell, cwd=cwd or self.project, env=env or {}, stdin=subprocess.PIPE, text=True) as process:
            shown, said = process.communicate(stdin, timeout=60)
        return subprocess.CompletedProcess(argv, process.returncode, shown, said)

    def run(self, *words: str, env: dict[str, str] | None = None, cwd: Path | None = None, **more: object) -> subprocess.CompletedProcess[str]:
        """`wavegen run`, by root: its Python may lie in a home."""
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60, **more}
        argv = [sys.executable, "-P", "-m", "wavegen", "run", *words]
        return subprocess.run(argv, cwd=cwd or self.project, env=env or self.environment(), **options)  # type: ignore[call-overload,no-any-return]

    @contextlib.contextmanager
    def open(self, *command: str, shell: str = "n", before: tuple[str, ...] = (), **more: object) -> Iterator[subprocess.Popen[Any]]:
        """The script while it runs; it is killed at the end. `before`: what it is started by."""
        options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": self.project, **more}
        env = {**self.environment(), **options.pop("env", {})}  # type: ignore[dict-item]
        process = subprocess.Popen([*before, *self.argv(shell, command)], env=env, **options)  # type: ignore[call-overload]
        self.started.append(process.pid)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):
                    if stream:
                        stream.close()
            process.wait(30)

    def left(self) -> list[str]:
        """What there is of containers: what the engine lists, and run directories of the launcher's."""
        listed = self.engine.run("ps", "-aq", "--no-trunc", **({"cwd": "/"} if isinstance(self.engine, Podman) else {})).stdout.split()
        return [*listed, *map(str, run_directories(self.home, self.started))]

    def remove(self) -> None:
        """Delete all of it."""
        remove_all(self.base)


def remove_all(base: Path) -> None:
    """Delete a directory into which a look at what was left behind may still write."""

    def removed() -> bool:
        shutil.rmtree(base, ignore_errors=True)
        return not base.exists()

    assert until(removed) or os.getuid(), base


def run_directories(home: Path, started: Iterable[int]) -> list[Path]:
    """Those of launchers with these process ids that are there."""
    return [path for pid in started for path in (home / ".local/state/wavegen/run").glob(f"{pid}-[0-9]*")]
