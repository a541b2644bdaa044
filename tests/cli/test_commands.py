"""Every command that the documentation shows is run: here in a project, by Nix, as a container, or by the test that is named here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from helpers import ROOT
from nix_env import NixEnv, NixUnavailableError, pin_stub

if TYPE_CHECKING:
    from engine import Engine

# The tutorial is gone through in its order by test_tutorial.py.
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(page for page in (ROOT / "docs").glob("*.md") if page.name != "tutorial.md"))
PROGRAMS = ("wavegen", ".wavegen/", "nix", "docker", "make", "pip", "cd", "eval", "mkdir", "env", ".venv/")

# Where a command is run that is not run here, or cannot be.
ELSEWHERE = {
    "make demo": "test_package.py::test_the_demo_shows_what_is_let_through_and_what_is_stopped",
    "make test": "this run",
    "make check": "a part of this run",
    "make bench": "minutes of measuring, whose outcome is docs/performance.md",
    "make site": "test_site.py::test_every_page_of_docs_is_built",
    "wavegen init": "test_starter.py::test_",
    "nix develop": "test_nix.py::test_the_interactive_shell_has_its_terminal_and_says_what_it_is",
    "wavegen verify --via nix": "test_verify.py::test_",
    "wavegen verify --via docker": "test_verify_docker.py::test_",
    "docker build -t wavegen/PROJECT .wavegen/docker": "test_image.py::test_",
    'eval "$(wavegen completion bash)"': "test_completion.py::test_",
    "wavegen completion fish | source": "test_completion.py::test_",
    "wavegen manual verify | man -l -": "test_manual.py::test_",
    ".wavegen/bin/persona-navigator -p 'Where is the parser?'": "test_personas.py::test_",
    "wavegen run --persona navigator -- -p 'Where is the parser?'": "test_personas.py::test_",
    "cd .wavegen/docker && docker compose run --rm SHELL COMMAND": "test_compose.py::test_a_shell_runs_and_nothing_of_it_is_left_but_its_home",
    "mkdir -p /tmp/claude": "test_srt.py::test_",
    'env -i HOME="$HOME" PATH="$PATH" TERM="$TERM" srt --settings .wavegen/srt/restricted.json -c \'make test\'': "test_srt.py::test_",
    ".venv/bin/python -m pytest tests/backends/test_docker.py -q": "this run",
    ".venv/bin/wavegen render": "test_nix.py::test_what_is_rendered_here_is_what_its_manifest_says",
    ".venv/bin/python scripts/documentation.py": "test_documentation.py::test_pages_that_are_written_are_what_the_program_says",
    ".venv/bin/python scripts/picture.py": "test_documentation.py::test_the_picture_shows_what_a_terminal_does",
}
# Exit statuses other than 0: there is something to say.
STATUS = {"wavegen plan --diff origin/main --fail-on-loosening": (1,), "wavegen audit": (0, 1)}

MANIFEST = """\
metadata: {name: project}
adapters: {claude: {binary: claude}}
personas: {navigator: {preset: navigator}}
runtime:
  sandbox:
    packages: [hello, claude-code, gnumake]
    unfree: [claude-code]
    limits: {pids: 300}
    default_allowed_domains: [api.anthropic.com, github.com]
"""


def commands() -> Iterator[tuple[str, str]]:
    """Page and command, without comments and what is printed."""
    for page in PAGES:
        for language, block in re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            for line in block.splitlines() if language in ("", "console") else ():
                command = re.sub(r"\s+# .*", "", line.strip().removeprefix("$ ")).rstrip()
                if command.startswith(PROGRAMS) and "──" not in command and not command.startswith("wave.yaml"):
                    yield page.name, command


HERE = tuple(dict.fromkeys(command for _, command in commands() if command not in ELSEWHERE))
OF_NIX = tuple(command for command in HERE if command.startswith("nix "))
OF_DOCKER = tuple(command for command in HERE if "docker" in command)
OF_PROJECT = tuple(command for command in HERE if command not in (*OF_NIX, *OF_DOCKER))


@dataclass(frozen=True)
class Place:
    """A rendered project, whose manifest is wider than the one that is committed, and what runs in it."""

    project: Path

    def run(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """As somebody types it."""
        tools = self.project.parent / "bin"
        environment = os.environ | {"HOME": str(self.project.parent / "home"), "PATH": f"{tools}:{os.environ['PATH']}", "ANTHROPIC_API_KEY": "key"} | more
        environment.pop("XDG_STATE_HOME", None)
        text = command.replace("CMD", "true")
        return subprocess.run(
            ["bash", "-c", text], cwd=self.project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
        )


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="wavegen-commands-", dir="/tmp") as name:
        base = Path(name).resolve()
        base.chmod(0o755)
        found = Place(base / "project")
        for directory in (found.project, base / "bin", base / "home"):
            directory.mkdir()
        (base / "bin/wavegen").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m wavegen "$@"\n')
        (base / "bin/wavegen").chmod(0o755)
        (found.project / "Makefile").write_text("all test:\n\t@echo made\nreport:\n\t@cat /artifacts/given >/workspace/output/report\n")
        (found.project / "wave.yaml").write_text(MANIFEST)
        git = "git -c user.name=x -c user.email=x"
        done = found.run(f"git init -q && wavegen render && git add . && {git} commit -qm first && git update-ref refs/remotes/origin/main HEAD")
        assert done.returncode == 0, done.stderr
        (found.project / "wave.yaml").write_text(MANIFEST.replace("github.com]", "github.com, pypi.org]"))
        assert found.run("wavegen render").returncode == 0
        yield found


def test_commands_are_found_and_each_stands_once() -> None:
    shown = {command for _, command in commands()}
    assert len(OF_PROJECT) > 20
    assert len(OF_NIX) >= 2
    assert len(OF_DOCKER) >= 2
    assert set(ELSEWHERE) <= shown
    for where in ELSEWHERE.values():
        name, _, test = where.partition("::")
        if test:
            assert f"def {test}" in next((ROOT / "tests").glob(f"*/{name}")).read_text("utf-8"), where


@pytest.mark.needs("bwrap", "git")
@pytest.mark.parametrize("command", OF_PROJECT)
def test_a_command_of_the_documentation_does_what_it_says(place: Place, command: str) -> None:
    if "baseline" in command and ">" not in command:
        place.run("wavegen verify --json >baseline.json")
    done = place.run(command)
    assert done.returncode in STATUS.get(command, (0,)), (done.returncode, done.stdout[-2000:], done.stderr[-2000:])
    # What it was asked for is on one of them.
    assert done.stdout + done.stderr != "" or ">" in command


@pytest.mark.needs("nix", "bwrap")
@pytest.mark.parametrize("command", OF_NIX)
def test_a_command_of_nix_does_what_it_says(place: Place, tmp_path: Path, command: str) -> None:
    try:
        nix = NixEnv.create(tmp_path / "nix")
        pin_stub(place.project / "flake.lock", nix.stub_nar_hash())
    except NixUnavailableError as why:
        pytest.skip(str(why))
    done = nix.run(shlex.split(command)[1:], place.project)
    assert done.returncode == 0, done.stderr
    assert ("made" if "make" in command else "claude") in done.stdout


@pytest.mark.needs("docker", "git")
@pytest.mark.parametrize("command", OF_DOCKER)
def test_a_command_of_containers_does_what_it_says(place: Place, engine: Engine, command: str) -> None:
    tag = "wavegen/project:latest"
    assert engine.run("tag", engine.image(), tag).returncode == 0
    (place.project / "in").mkdir(exist_ok=True)
    (place.project / "in/given").write_text("from before\n")
    if os.geteuid() == 0:
        # Nothing in a container is root, and git of root's reads no other's repository.
        subprocess.run(["chown", "-R", "65534:65534", place.project, place.project.parent / "home"], check=True)
    try:
        done = place.run(command, **{name: value for name, value in engine.environment().items() if name != "PATH"})
    finally:
        subprocess.run(["chown", "-R", f"{os.geteuid()}:{os.getegid()}", place.project, place.project.parent / "home"], check=True)
        engine.run("image", "rm", tag)
    assert done.returncode == 0, done.stderr
    if "--output" in command:
        assert (place.project / "out/report").read_text() == "from before\n"
    else:
        assert "made" in done.stdout


@pytest.mark.needs("bwrap", "git")
def test_the_script_of_bubblewrap_that_one_comes_from_works_and_holds_less(place: Place) -> None:
    (script,) = re.findall(r"```bash\n(bwrap .*?)```", (ROOT / "docs/migration.md").read_text("utf-8"), re.DOTALL)
    home = place.project.parent / "home"
    for directory in (".claude", ".cache/go-build"):
        (home / directory).mkdir(parents=True, exist_ok=True)
    (home / ".gitconfig").touch()
    (place.project / "old").write_text(script)
    plant = "touch .git/hooks/planted"
    assert place.run(f"bash old sh -c '{plant} && test ! -e ~/.ssh'").returncode == 0
    (place.project / ".git/hooks/planted").unlink()
    assert place.run(f".wavegen/bin/default sh -c '{plant}'").returncode != 0
