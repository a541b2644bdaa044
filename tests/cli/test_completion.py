"""TAB in real shells: what it completes to, and that it says nothing where there is nothing to say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, call, project, render_project
from nix_env import NixEnv

MANIFEST = """\
metadata: {name: demo}
adapters: {claude: {binary: claude}, second: {binary: other}}
personas:
  navigator: {preset: navigator}
  scribe: {adapter: second}
runtime:
  sandbox:
    shells: {build: {network: none}, broad: {network: open}}
"""
SHELLS = [pytest.param("bash", marks=pytest.mark.needs("bash")), pytest.param("fish", marks=pytest.mark.needs("fish"))]
# A bash that calls the function of a command as readline does, with the words and the place of the cursor, and prints what came of it.
IN_BASH = r"""
. "$1"
compopt() { printf 'compopt %s %s\n' "$1" "$2"; }
COMP_WORDS=("${@:2}") COMP_CWORD=$(($# - 2)) COMPREPLY=()
_wavegen_completion wavegen "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
((${#COMPREPLY[@]} == 0)) || printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A directory with `wavegen` in it."""
    made = tmp_path / "tools"
    made.mkdir()
    (made / "wavegen").write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -P -m wavegen "$@"\n')
    (made / "wavegen").chmod(0o755)
    return made


def complete(shell: str, root: Path, tools: Path, *words: str) -> list[str]:
    """What a shell offers for the last word, in a project; whatever it says on stderr fails."""
    script = tools / f"script.{shell}"
    script.write_text(call("completion", shell, cwd=tools).stdout)
    if shell == "bash":
        argv = ["bash", "--norc", "-c", IN_BASH, "bash", str(script), *words]
    else:
        line = " ".join((*map(shlex.quote, words[:-1]), words[-1]))
        argv = ["fish", "--no-config", "-c", f"source {shlex.quote(str(script))}; complete -C {shlex.quote(line)}"]
    done = subprocess.run(argv, cwd=root, env={**os.environ, "PATH": f"{tools}:/usr/bin:/bin"}, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return [line.partition("\t")[0] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["re"], ["render"]),
        (["seccomp", ""], ["explain", "learn"]),
        (["run", "--sh"], ["--shell"]),
        (["run", "--shell", ""], ["default", "restricted", "yolo", "broad", "build"]),
        (["run", "-s", "b"], ["broad", "build"]),
        (["run", "--persona", ""], ["navigator", "scribe"]),
        (["run", "--adapter", ""], ["claude", "second"]),
        (["run", "--backend", ""], ["bubblewrap", "docker", "landlock"]),
        (["verify", "--shell", "persona-"], ["persona-navigator", "persona-scribe"]),
        (["verify", "-s", "default", "-s", "r"], ["restricted"]),
        (["seccomp", "explain", "-s", "bu"], ["build"]),
        (["log", "-s", "x"], []),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["manual", "seccomp", ""], ["explain", "learn"]),
        (["audit", "--severity", "h"], ["high"]),
    ],
    ids=" ".join,
)
def test_words(shell: str, words: list[str], offered: list[str], tmp_path: Path, tools: Path) -> None:
    root = render_project(tmp_path, MANIFEST)
    found = complete(shell, root, tools, "wavegen", *words)
    assert sorted(found) == sorted(offered)


@pytest.mark.needs("bash")
def test_bash_completes_after_an_equals_sign_and_leaves_files_to_readline(tmp_path: Path, tools: Path) -> None:
    root = render_project(tmp_path, MANIFEST)
    # As readline splits it.
    assert complete("bash", root, tools, "wavegen", "run", "--shell", "=", "br") == ["broad"]
    assert complete("bash", root, tools, "wavegen", "run", "--shell", "=") == ["default", "restricted", "yolo", "build", "broad"]
    for words in (["verify", "--sarif", "x"], ["render", "-m", ""], ["run", "--", "make", ""], ["run", ""]):
        assert complete("bash", root, tools, "wavegen", *words) == ["compopt -o default"]
    for words in (["verify", "--under", ""], ["manual", "--directory", ""], ["init", ""]):
        assert complete("bash", root, tools, "wavegen", *words) == ["compopt -o dirnames"]


@pytest.mark.needs("fish")
def test_fish_completes_after_an_equals_sign(tmp_path: Path, tools: Path) -> None:
    root = render_project(tmp_path, MANIFEST)
    assert complete("fish", root, tools, "wavegen", "run", "--shell=br") == ["--shell=broad"]
    assert complete("fish", root, tools, "wavegen", "audit", "--severity=c") == ["--severity=critical"]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "broken", ["", "metadata: [", "personas: {navigator: {sandbox: {network: 3}}}\nruntime: {sandbox: {shells: {x: {nework: none}}}}\n", None]
)
def test_without_a_manifest_that_can_be_read_there_are_the_three_shells(shell: str, broken: str | None, tmp_path: Path, tools: Path) -> None:
    root = project(tmp_path, broken or "")
    if broken is None:
        (root / "wave.yaml").unlink()
    assert complete(shell, root, tools, "wavegen", "run", "--shell", "") == ["default", "restricted", "yolo"]
    assert complete(shell, root, tools, "wavegen", "run", "--persona", "") == []


@pytest.mark.needs("bash")
def test_the_manifest_that_was_named_is_the_one_that_counts(tmp_path: Path, tools: Path) -> None:
    root = render_project(tmp_path, MANIFEST)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert "broad" not in complete("bash", elsewhere, tools, "wavegen", "run", "-s", "")
    assert "broad" in complete("bash", elsewhere, tools, "wavegen", "run", "-m", str(root / "wave.yaml"), "-s", "")


@pytest.mark.needs("bash")
def test_completing_writes_nothing_and_stops_at_what_is_no_file(tmp_path: Path, tools: Path) -> None:
    root = project(tmp_path, "")
    (root / "wave.yaml").unlink()
    os.mkfifo(root / "wave.yaml")
    assert complete("bash", root, tools, "wavegen", "run", "-s", "") == ["default", "restricted", "yolo"]
    assert os.listdir(root) == ["wave.yaml"]
    (root / "wave.yaml").unlink()
    (root / "wave.yaml").write_text(MANIFEST)
    assert "broad" in complete("bash", root, tools, "wavegen", "run", "-s", "")
    assert os.listdir(root) == ["wave.yaml"]


TYPED = ["wavegen run --persona scr", "wavegen run -s broa", "wavegen seccomp exp", "wavegen run --shell=bro", "wavegen run -- cat a-fi"]
COMPLETED = ["wavegen run --persona scribe", "wavegen run -s broad", "wavegen seccomp explain", "wavegen run --shell=broad", "wavegen run -- cat a-file"]


def typed(echo: str) -> bytes:
    """Each line with TAB at its end; then, instead of running it, what the line is."""
    return b"".join(f"{line}\t\x01{echo} got: \n".encode() for line in TYPED) + b"exit\n"


@pytest.mark.needs("zsh")
@pytest.mark.parametrize("how", ["fpath", "eval"])
def test_zsh_completes_on_a_terminal(how: str, tmp_path: Path, tools: Path) -> None:
    """More than once: a file of $fpath is another function at its first call."""
    root = render_project(tmp_path, MANIFEST)
    (root / "a-file").touch()
    (tools / "_wavegen").write_text(call("completion", "zsh", cwd=tmp_path).stdout)
    start = f"autoload -Uz compinit\ncompinit -u -D\nunsetopt beep\nPS1='> '\nPATH={shlex.quote(str(tools))}:/usr/bin:/bin\n"
    (tmp_path / ".zshrc").write_text(f"fpath=({shlex.quote(str(tools))} $fpath)\n{start}" if how == "fpath" else f'{start}eval "$(wavegen completion zsh)"\n')
    terminal = NixEnv(nix=Path("/usr/bin/true"), root=tmp_path)
    zsh = shutil.which("zsh")
    env = {"ZDOTDIR": str(tmp_path), "TERM": "dumb"}
    shown = terminal.run_pty(["-i"], root, typed("print -r --"), program=zsh, env=env, settle=1.5).output
    assert re.findall("^got: (.*?) *$", shown, re.MULTILINE) == COMPLETED, shown


@pytest.mark.needs("bash")
def test_bash_completes_on_a_terminal(tmp_path: Path, tools: Path) -> None:
    root = render_project(tmp_path, MANIFEST)
    (root / "a-file").touch()
    (tmp_path / "rc").write_text(f"PS1='> '\n{call('completion', 'bash', cwd=tmp_path).stdout}")
    terminal = NixEnv(nix=Path("/usr/bin/true"), root=tmp_path)
    argv = ["--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"]
    env = {"PATH": f"{tools}:/usr/bin:/bin", "TERM": "dumb"}
    shown = terminal.run_pty(argv, root, typed("echo"), program=shutil.which("bash"), env=env, settle=1.5).output
    assert re.findall("got: (.*?) *$", shown, re.MULTILINE)[1::2] == COMPLETED, shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_printing_a_script_starts_no_other_program(shell: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-X", "importtime", "-P", "-m", "wavegen", "completion", shell]
    done = subprocess.run(argv, cwd=tmp_path, env={**os.environ, "PATH": "/nonexistent", "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "_WAVEGEN_COMPLETE" in done.stdout
    assert not {"subprocess", "yaml", "wavegen.policy.planner"} & {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}


def test_an_unknown_shell_is_a_mistake(tmp_path: Path) -> None:
    done = call("completion", "tcsh", cwd=tmp_path)
    assert (done.status, done.stdout) == (2, "")
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in done.stderr
