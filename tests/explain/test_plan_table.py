"""`wavegen plan` for people: everything that the plan holds, each with its line, and no more than was written unless asked for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import call, project, wavegen

from wavegen.core.terminal import Style, apply_style, colour_severity, should_colour
from wavegen.explain.plan_table import render_plan_table
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.planner import plan_manifest

MANIFEST = """\
metadata: {name: demo}
adapters: {claude: {binary: claude, mode: headless, default_model: sonnet}}
runtime:
  sandbox:
    env_passthrough: [TOKEN]
    deny_read_paths: [secrets]
    seccomp_allow: [ptrace]
    limits: {pids: 100, memory: 512m}
    packages: [go]
    paths:
      - {path: ~/cache, access: write, optional: true}
    shells:
      restricted: {network: filtered, domains: [api.anthropic.com, a.example, {host: b.example, allow_private: true}], loopback: [5432]}
personas:
  reader:
    permissions: {allowed_tools: [Read], deny: [WebFetch]}
    hooks: {PreToolUse: [{matcher: Bash, command: ./check}]}
    sandbox: {deny_read_paths: [private], env_passthrough: []}
"""


def rows(text: str) -> list[tuple[str, str]]:
    """What stands before and behind each line's #, in single blanks."""
    return [(" ".join(line.rpartition("  # ")[0].split()), line.rpartition("  # ")[2]) for line in text.splitlines()]


def test_what_was_written_is_shown_with_its_line_and_the_rest_is_counted(tmp_path: Path) -> None:
    done = call("plan", cwd=project(tmp_path, MANIFEST))
    assert done.status == 0
    found = rows(done.stdout)
    shell = done.stdout.partition("shell restricted")[2].partition("\n\n")[0]
    assert {
        ("hide ./secrets", "wave.yaml:6"),
        ("~/cache (optional)", "wave.yaml:11"),
        ("network filtered", "wave.yaml:13"),
        ("allow a.example", "wave.yaml:13"),
        ("allow b.example, allow_private: true", "wave.yaml:13"),
        ("loopback 5432", "wave.yaml:13"),
        ("variable TOKEN", "wave.yaml:5"),
        ("limits pids 100, memory 512m, cpus all, files 65536, tmp 2g", "wave.yaml:8"),
        ("let through ptrace", "wave.yaml:7"),
        ("package go", "wave.yaml:9"),
    } <= set(rows(shell))
    assert "/usr" not in shell
    assert next(line for line in shell.splitlines() if line.startswith("  and ")).endswith("-v shows them")
    persona = rows(done.stdout.partition("persona reader")[2].partition("\n\n")[0])
    assert {
        ("runs claude (sonnet)", "wave.yaml:2"),
        ("project read-only", "wave.yaml:16: no tool is left that writes"),
        ("tool Read", "wave.yaml:16"),
        ("no tool WebFetch", "wave.yaml:16"),
        ("hook before Bash: ./check", "wave.yaml:17"),
        ("hide ./private", "wave.yaml:18"),
        ("no variable TOKEN", "wave.yaml:16"),
    } <= set(persona)
    assert any(what.startswith("weaker ") for what, _ in found)


def test_verbose_shows_every_rule_of_the_plan_with_its_reason(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    text = call("plan", "-v", cwd=root).stdout
    assert "-v shows them" not in text
    for shell in json.loads(call("plan", "--json", cwd=root).stdout)["shells"].values():
        for rule in (*shell["paths"], *shell["environment"]):
            name = rule.get("path") or rule["name"]
            assert any(name in line and line.endswith(f"# {rule['origin']}") for line in text.splitlines()), rule
    assert "network: host reaches the host's loopback services" in text


def test_shell_and_persona_restrict_it_and_a_name_that_is_none_is_a_message(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    one = call("plan", "-s", "restricted", cwd=root).stdout
    assert ("shell restricted" in one, "shell default" in one, "persona reader" in one) == (True, False, False)
    other = call("plan", "-p", "reader", cwd=root).stdout
    assert ("shell restricted  #" in other, "persona reader" in other) == (False, True)
    assert list(json.loads(call("plan", "--json", "-s", "restricted", cwd=root).stdout)["shells"]) == ["restricted"]
    for words in (("-s", "none"), ("-p", "none")):
        assert call("plan", *words, cwd=root).status == 2


def test_what_nix_reads_is_a_part_of_the_json(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    assert call("render", cwd=root).status == 0
    whole = json.loads(call("plan", "--json", cwd=root).stdout)
    read = json.loads((root / ".wavegen/plan.json").read_text("utf-8"))
    assert {name: read[name] for name in ("name", "unfree", "package")} == {name: whole[name] for name in ("name", "unfree", "package")}
    assert {name: shell["fenced"] for name, shell in read["shells"].items()} == {name: shell["fenced"] for name, shell in whole["shells"].items()}
    assert {name: (one["shell"], one["fenced"]) for name, one in read["personas"].items()} == {
        name: (one["shell"], one["fenced"]) for name, one in whole["personas"].items()
    }


def test_a_text_of_the_manifest_forges_no_line_and_no_colour() -> None:
    text = MANIFEST.replace("command: ./check", 'command: "x\\n  write  /  # default\\e[31m"')
    lines = list(render_plan_table(plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")))
    assert not [line for line in lines if "\n" in line or "\x1b" in line]
    assert [line for line in lines if "\\x1b[31m" in line or "\\n  write" in line]


# --- colour


class _Stream:
    def __init__(self, *, terminal: bool) -> None:
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("variables", "terminal", "expected"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"NO_COLOR": "1"}, True, False),
        ({"NO_COLOR": ""}, True, True),
        ({"TERM": "dumb"}, True, False),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, True, False),
    ],
)
def test_colour_is_for_terminals_and_variables_say_otherwise(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], terminal: bool, expected: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert should_colour(_Stream(terminal=terminal)) is expected  # type: ignore[arg-type]
    assert should_colour(None) is False


def test_of_a_message_the_first_severity_is_painted() -> None:
    line = "wave.yaml:1:2: error: x: warning: y"
    assert colour_severity(line, colour=True) == f"wave.yaml:1:2: {apply_style('error', Style.BAD, colour=True)}: x: warning: y"
    assert colour_severity(line, colour=False) == line


def test_what_is_forced_to_be_coloured_is_the_same_text_besides(tmp_path: Path) -> None:
    """Not where no terminal is: programs that read the output find what they always found."""
    import re

    root = project(tmp_path, MANIFEST)
    for words in (("plan",), ("explain", "/etc/shadow"), ("render", "--check"), ("plan", "-s", "none")):
        plain = wavegen(*words, cwd=root, env={"TERM": "xterm", "NO_COLOR": "", "FORCE_COLOR": ""})
        painted_ = wavegen(*words, cwd=root, env={"FORCE_COLOR": "1", "NO_COLOR": ""})
        assert "\x1b" not in plain.output
        assert re.sub(r"\x1b\[[0-9;]*m", "", painted_.output) == plain.output
        assert ("\x1b[" in painted_.output) is (words[0] != "render"), words
