"""The tutorial is gone through from its first command to its last, and each prints what the page shows.

On the page `…` stands for what is left out, in a line or as a line, and numbers are those of the machine on which it was written.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from helpers import ROOT

PAGE = (ROOT / "docs/tutorial.md").read_text("utf-8")
PROMPT = "(default)you@localhost:~/app$ "
# What a test of its own runs, as it needs a registry.
ELSEWHERE = {"pipx install .": "test_package.py::test_what_pip_installs_from_the_checkout_renders_as_the_checkout_does"}
# Of a shell that is left: the status of the last command in it, which was refused.
STATUS = {".wavegen/bin/default": 1, ".wavegen/bin/restricted curl -sS https://pypi.org/simple/": 56, "wavegen audit": 1, "wavegen audit --accept": 1}

# Claude Code needs an account: in its place a program that is started as it is, and does what it was asked for.
CLAUDE = r"""#!/bin/sh
case "$ANTHROPIC_API_KEY $*" in "sk-ant-"*" --settings .wavegen/personas/developer/settings.fenced.json "*" -p Add a Makefile"*) ;; *) exit 1 ;; esac
printf 'test:\n\t@echo ok\n' >Makefile
made=$(make -s test) || exit
echo "The Makefile is there, and \`make test\` prints $made."
"""


@dataclass(frozen=True)
class Step:
    """A command and the lines that follow it; or, of YAML, what the manifest is to hold from here on."""

    command: str
    shown: tuple[str, ...] = ()
    manifest: str = ""


def read_steps() -> Iterator[Step]:
    """The page's blocks in their order."""
    for language, block in re.findall(r"^```(console|yaml)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        if language == "yaml":
            yield Step("", manifest=block)
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            yield Step(command, tuple(shown.splitlines()))


def pattern_of(lines: tuple[str, ...]) -> re.Pattern[str]:
    """What matches the output that a page shows."""

    def pattern_of_text(text: str) -> str:
        return re.sub(r"\d+", r"\\d+", re.sub(r" +", " +", re.escape(text).replace("\\ ", " ")))

    return re.compile("".join("(?:.*\n)*?" if line.strip() == "…" else ".*".join(map(pattern_of_text, line.split("…"))) + "\n" for line in lines))


# --- what the reader does in an editor


def allow_the_name(text: str) -> str:
    return re.sub(r"(?m)^( +- )api\.anthropic\.com .*\n", r"\g<0>\1pypi.org\n", text)


def add_the_persona(text: str) -> str:
    block = re.search(r"(?m)^personas:\n(?: .*\n)+", [step.manifest for step in STEPS if step.manifest][1])
    assert block
    text = re.sub(r"(?m)^( +)# (- \{path: ~/\.local/(?:bin|share/claude), access: read\})", r"\1\2", text)
    return text.replace("\nruntime:\n", f"\n{block[0]}\nruntime:\n")


STEPS = tuple(read_steps())
EDITS: tuple[Callable[[str], str], ...] = (allow_the_name, add_the_persona)


def holds(whole: object, part: object) -> bool:
    """Whether a manifest says what a part of one says."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and holds(whole[key], value) for key, value in part.items())
    return all(value in whole for value in part) if isinstance(part, list) and isinstance(whole, list) else whole == part


@dataclass
class Reader:
    """Somebody at a terminal of the host, in a home of their own."""

    home: Path
    directory: Path
    environment: dict[str, str]

    def run(self, step: Step) -> tuple[int, str]:
        """Type a command, and read what came of it."""
        match shlex.split(step.command):
            case ["cd", where]:
                self.directory /= where
                return 0, ""
            case ["export", words]:
                self.environment |= dict([words.split("=", 1)])
                return 0, ""
        typed = "".join(f"{line.removeprefix(PROMPT)}\n" for line in step.shown if line.startswith(PROMPT))
        command = ["script", "-qec", step.command, "/dev/null"] if typed else ["bash", "-c", step.command]
        done = subprocess.run(
            command,
            cwd=self.directory,
            env=self.environment,
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=600,
            check=False,
        )
        # Without what a terminal is told about itself.
        return done.returncode, re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]|\r", "", done.stdout).replace(str(self.home), "/home/you")


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    home = tmp_path / "home"
    for directory in (home / ".local/bin", home / ".local/share/claude", home / ".ssh", home / "another", tmp_path / "bin"):
        directory.mkdir(parents=True)
    programs = {tmp_path / "bin/wavegen": f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.quote(sys.executable)} -P -m wavegen "$@"\n'}
    programs[home / ".local/share/claude/claude"] = CLAUDE
    for path, text in programs.items():
        path.write_text(text)
        path.chmod(0o755)
    (home / ".local/bin/claude").symlink_to(home / ".local/share/claude/claude")
    (home / ".gitconfig").write_text("[user]\nname = You\nemail = you@example.org\n")
    (home / ".ssh/id_ed25519").write_text("a key")
    path = f"{tmp_path}/bin:{home}/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    return Reader(home, home, {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "TERM": "xterm", "USER": "you", "PYTHONUNBUFFERED": "1"})


@pytest.mark.needs("bwrap", "git", "curl")
def test_each_command_prints_what_the_page_shows(reader: Reader) -> None:
    edits = iter(EDITS)
    for step in STEPS:
        if step.command in ELSEWHERE:
            continue
        if step.manifest:
            path = reader.directory / "wave.yaml"
            path.write_text(next(edits)(path.read_text("utf-8")), "utf-8")
            assert holds(yaml.safe_load(path.read_text("utf-8")), yaml.safe_load(step.manifest))
            continue
        status, printed = reader.run(step)
        assert status == STATUS.get(step.command, 0), (step.command, status, printed)
        shown = tuple("…" if line.startswith(PROMPT) else line for line in step.shown)
        wanted = pattern_of(("…", *shown, "…") if shown != step.shown else shown)
        assert wanted.fullmatch(printed), f"$ {step.command}\n{printed}"
    assert not list(edits)


def test_the_page_has_all_steps_and_each_that_is_run_elsewhere_has_its_test() -> None:
    commands = {step.command for step in STEPS}
    assert len(commands) > 20
    assert {*ELSEWHERE, *STATUS} <= commands
    for where in ELSEWHERE.values():
        name, _, test = where.partition("::")
        assert f"def {test}(" in next((ROOT / "tests").glob(f"*/{name}")).read_text("utf-8"), where
    for verb in ("init", "render", "plan", "log", "verify", "audit"):
        assert any(command.startswith(f"wavegen {verb}") for command in commands), verb


@pytest.mark.parametrize(("shown", "printed", "same"), [("a …\n…\nz 1", "a b\nc\nz 22\n", True), ("a\n…\nz", "a\nc\n", False), ("a 1", "a x\n", False)])
def test_what_is_left_out_of_a_page_is_all_that_may_differ(shown: str, printed: str, same: bool) -> None:
    assert bool(pattern_of(tuple(shown.splitlines())).fullmatch(printed)) == same
