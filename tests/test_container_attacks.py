"""What a command in a container has left, or does, to get out of the next one: tried with a real engine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from engine import Engine
from fence import USER, Fence, name_of, users

MANIFEST = """\
metadata: {name: attacked}
runtime:
  sandbox:
    docker_image: "IMAGE"
    paths: [{path: ~/.config/tool.conf, access: read, optional: true}, {path: ~/given/deep, access: write, optional: true}]
"""
SECRET = "the real home's"


@dataclass(frozen=True)
class Attacked(Fence):
    """A project of a user without privileges, its containers, and who starts them: that user, or root, who has a home of its own."""

    engine: Engine
    caller: int

    def environment(self, **more: str) -> dict[str, str]:
        """Who starts them has nothing but the engine."""
        home = self.home if self.caller else self.base / "root"
        return super().environment() | {"HOME": str(home)} | self.engine.environment() | more

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """The shell's script."""
        words = [str(self.project / ".wavegen/docker" / f"run-{shell}"), *command]
        return words if self.caller == os.getuid() else [*self.as_owner(), *words]

    def as_owner(self) -> list[str]:
        """Words that make the rest of a line the owner's."""
        return ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--"] if self.uid != os.getuid() else []

    @property
    def kept(self) -> Path:
        """The private home of `default`."""
        (found,) = Path(self.environment()["HOME"]).glob(".local/state/wavegen/*/default/**/home")
        return found

    def planted(self, code: str, *words: str) -> None:
        """What a command has done in an earlier run, as Python."""
        subprocess.run([*self.as_owner(), "/usr/bin/python3", "-I", "-c", code, *words], cwd=self.project, check=True)


def attacked(engine: Engine, caller: int) -> Attacked:
    made = Fence.create(MANIFEST.replace("IMAGE", engine.image()), uid=USER if os.getuid() == 0 else os.getuid())
    if os.getuid() == 0:
        (made.base / "root").mkdir(mode=0o700)
    return Attacked(made.base, made.home, made.project, made.uid, engine, caller)


@pytest.fixture(params=users(), ids=name_of)
def box(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Attacked]:
    found = attacked(engine, request.param)
    (found.home / "secret").write_text(SECRET)
    found.own()
    yield found
    found.remove()


pytestmark = pytest.mark.needs("docker", "user")

# Two names that an engine's client could take for one: the first holds a repository, the second leads to the home.
TWINS = """
import os, sys
home, name, taken_for = map(os.fsencode, sys.argv[1:])
os.makedirs(name + b"/file"), os.makedirs(name + b"/directory/.git/hooks")
open(name + b"/file/.git", "w").close()
os.mkdir(taken_for), os.mkdir(taken_for + b"/file"), os.symlink(home + b"/secret", taken_for + b"/file/.git")
os.symlink(home, taken_for + b"/directory")
os.makedirs(home + b"/.git/hooks")
"""


@pytest.mark.parametrize(
    ("name", "taken_for"),
    [
        pytest.param("x\r\ny", "x\ny", id="crlf"),
        pytest.param("x\r\r\ny", "x\r\ny", id="cr-crlf"),
        pytest.param("x\udcf4\udc90\udc80\udc80", "x" + 4 * "\ufffd", id="beyond"),
        pytest.param("x\udcf8\udc88\udc80\udc80\udc80", "x" + 5 * "\ufffd", id="five-bytes"),
        pytest.param("x\udced\udca0\udc80", "x" + 3 * "\ufffd", id="surrogate"),
        pytest.param('x",source="/y', "x", id="quotes"),
    ],
)
def test_a_path_is_not_taken_for_another(box: Attacked, name: str, taken_for: str) -> None:
    """What is mounted of a repository would be a file of the real home, or all of it, writable."""
    box.planted(TWINS, str(box.home), name, taken_for)
    done = box.enter("sh", "-c", 'cat ~/secret "$0"/*/.git; echo x >~/written', taken_for)
    assert SECRET not in done.stdout
    assert not (box.home / "written").exists()
    assert done.returncode == 0 or (done.returncode == 125 and "not UTF-8" in done.stderr), done.stderr
