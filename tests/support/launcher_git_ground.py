"""Real repositories and a sandbox made of the launcher's rules for git: as root and as a user, with git and bubblewrap of this machine."""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from helpers import USER

from wavegen.launcher.errors import CannotStartError
from wavegen.launcher.git import COPY, READ, GitRule, explain_unusable_git, survey_repositories
from wavegen.launcher.host import RealHost

Value = TypeVar("Value")


class Ground:
    """A directory with a home and repositories, where everything runs as one user."""

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.path = Path(tempfile.mkdtemp(prefix="wavegen-git-")).resolve()
        self.home = self.path / "home"
        self.home.mkdir()
        (self.home / ".gitconfig").write_text('[user]\nname = x\nemail = x@example.com\n[init]\ndefaultBranch = main\n[protocol "file"]\nallow = always\n')
        for path in (self.path, self.home, self.home / ".gitconfig"):
            os.chown(path, uid, uid)

    def close(self) -> None:
        """Remove everything, also what lacks permissions."""
        subprocess.run(["chmod", "-R", "u+rwX", self.path], check=False)
        shutil.rmtree(self.path, ignore_errors=True)

    def _run(self, words: list[str], pass_fds: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
        as_user = ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"] if self.uid else []
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C", "GIT_EDITOR": "true", "T": str(self.path)}
        return subprocess.run([*as_user, *words], env=env, cwd=self.path, capture_output=True, text=True, check=False, pass_fds=pass_fds, timeout=120)

    def host(self, script: str) -> str:
        """What a script of the host's prints; it must succeed."""
        done = self._run(["bash", "-ec", script])
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def as_user(self, answer: Callable[[], Value]) -> Value:
        """What a function returns or raises in a process of the user's."""
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.close(reading)
                if self.uid:
                    os.setgroups([])
                    os.setresgid(self.uid, self.uid, self.uid)
                    os.setresuid(self.uid, self.uid, self.uid)
                try:
                    result: object = answer()
                except (OSError, CannotStartError) as error:
                    result = f"{type(error).__name__}: {error}"
                os.write(writing, pickle.dumps(result))
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as stream:
            text = stream.read()
        os.waitpid(child, 0)
        return pickle.loads(text)  # type: ignore[no-any-return]

    def _survey(self, project: str, *writable: str) -> tuple[GitRule, ...] | str:
        places = tuple(str(self.path / place) for place in writable)
        return self.as_user(
            lambda: survey_repositories(RealHost(), str(self.path / project), home=str(self.home), kept=str(self.home / "kept"), writable=places)
        )

    def rules(self, project: str, *writable: str) -> tuple[GitRule, ...]:
        """The rules for a project below this directory."""
        found = self._survey(project, *writable)
        assert not isinstance(found, str), found
        return found

    def refusal(self, project: str) -> str:
        """The message of a start that is refused."""
        found = self._survey(project)
        assert isinstance(found, str), found
        return found

    def note(self, project: str) -> str | None:
        """Why git does not work in a project."""
        where = str(self.path / project)
        return self.as_user(lambda: explain_unusable_git(RealHost(), where, home=str(self.home), kept=str(self.home / "kept")))

    def inside(self, script: str, project: str = "p", *writable: str) -> subprocess.CompletedProcess[str]:
        """Run a script in a sandbox that shows programs, the home's .gitconfig, the project, and what the rules say."""
        at = str(self.path / project)
        binds = [(str(self.path / place), "--bind") for place in (project, *writable)]
        with contextlib.ExitStack() as opened:
            handles = []
            for rule in self.rules(project, *writable):
                if rule.access == COPY:
                    file = opened.enter_context(tempfile.TemporaryFile())
                    file.write(rule.text)
                    file.seek(0)
                    handles.append(file.fileno())
                    binds.append((rule.path, f"--ro-bind-data {file.fileno()}"))
                elif rule.path != at:
                    binds.append((rule.path, "--ro-bind" if rule.access == READ else "--bind"))
            words = f"bwrap --unshare-all --cap-drop ALL --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp --ro-bind {self.home}/.gitconfig {self.home}/.gitconfig".split()
            for path, option in sorted(binds, key=lambda bind: bind[0].split("/")):
                name, _, handle = option.partition(" ")
                words += [name, handle or path, path]
            return self._run([*words, "--chdir", at, "bash", "-c", script], pass_fds=tuple(handles))


def grounds() -> Iterator[int]:
    """The users to try as: this one, and an ordinary one where this one is root."""
    yield os.getuid()
    if os.getuid() == 0:
        yield USER
