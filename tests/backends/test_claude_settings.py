"""The settings of Claude Code: what patterns become, what hooks do in a real shell, and what the real program says of every file."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import CLAUDE
from helpers import ROOT
from messages_api import Call, MessagesApi, Result, Say

from wavegen.backends.agents import claude, claude_rules
from wavegen.backends.agents.claude_hooks import shell_command
from wavegen.core.errors import ManifestError
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.defaults import HOME_SECRETS
from wavegen.policy.model import HookRule, Origin, Plan, ToolPattern
from wavegen.policy.planner import plan_manifest

CORPUS = ROOT.parent / "shared/manifests"
HEAD = "metadata: {name: demo}\nadapters: {claude: {binary: claude, mode: headless}, asks: {binary: claude, mode: interactive}, codex: {binary: codex}}\n"

Json = dict[str, Any]


def planned(text: str) -> Plan:
    return plan_manifest(Source("wave.yaml", (HEAD + text).encode()), None, "wave.sandbox.yaml")


def persona(text: str, more: str = "") -> Plan:
    """The plan of a manifest with one persona `p`, in line 3."""
    return planned(f"personas: {{p: {{adapter: claude, {text}}}}}\n{more}")


def settings(found: Plan, *, fenced: bool = True, name: str = "p") -> Json:
    files = {file.path: file for file in claude.render(found)}
    value = json.loads(files[f".wavegen/personas/{name}/settings{'.fenced' if fenced else ''}.json"].text)
    assert isinstance(value, dict)
    return value


def rules(allowed: str | None, denied: str = "", more: str = "") -> tuple[list[str], list[str]]:
    """The allow and the deny rules that lists of patterns become, without those for the fence's own files."""
    allow = "" if allowed is None else f"allowed_tools: [{allowed}], "
    permissions = settings(persona(f"permissions: {{{allow}deny: [{denied}]}}{more}"))["permissions"]
    return permissions["allow"], [rule for rule in permissions["deny"] if rule not in OWN]


def in_place(text: str, done: subprocess.CompletedProcess[str]) -> bool:
    """Whether a hook said something where nobody takes it for a decision, and nothing anywhere else."""
    return done.stdout == "" and text in done.stderr


def gaps(found: Plan, *, general: bool = False) -> list[str]:
    """What departs, with its effect; those that every persona of a kind has only where `general`."""
    return [f"{gap.effect.value}: {gap.what}" for gap in claude.gaps(found) if general or gap.origin != found.personas_origin]


def of(allowed: str, denied: str = "", more: str = "") -> list[str]:
    """The gaps of lists of patterns."""
    return gaps(persona(f"permissions: {{allowed_tools: [{allowed}], deny: [{denied}]}}{more}"))


OWN = ["Edit(.//wave.yaml)", "Edit(.//wave.sandbox.yaml)", "Edit(.//flake.nix)", "Edit(.//flake.lock)", "Edit(.//.wavegen/**)"]
COMMANDS = ["Bash"]
# What is refused where nothing is allowed.
EVERYTHING = [tool for tool in claude_rules.TOOLS if tool not in claude_rules.CONTROL]


def rest(*named: str) -> list[str]:
    """The rules by which every other tool is refused."""
    return [*(tool for tool in EVERYTHING if tool not in named), "mcp__*"]


_READ = "weaker: files can be read though Read is not allowed: without it nothing could be written"
_TAKEN = "stricter: WebFetch allows nothing: deny takes the whole tool away"

# --- patterns


@pytest.mark.parametrize(
    ("pattern", "rule"),
    [
        ("Read", "Read"),
        ("Bash(*)", "Bash"),
        ("Write(*)", "Write"),
        ("Bash(git log*)", "Bash(git log*)"),
        ("Bash(git log:*)", "Bash(git log:*)"),
        ("Bash(curl *-X:*)", "Bash(curl *-X*)"),  # with both a * would be taken for itself
        ("Bash(git log *:*)", "Bash(git log *)"),
        ("Bash(git log :*)", "Bash(git log:*)"),
        ("Bash(echo '; > x')", "Bash(echo '; > x')"),
        ("Bash(echo (a))", "Bash(echo (a))"),
        ("Write(.wave/output/*)", "Edit(.//.wave/output/**)"),
        ("Write(./src/main.go)", "Edit(.//src/main.go)"),
        ("Write(docs/)", "Edit(.//docs/**)"),
        ("Write(.)", "Edit(./**)"),
        ("Write(README.md)", "Edit(.//README.md)"),
        ("Write('*.go')", "Edit('*.go')"),
        ("Write(*.go)", "Edit(*.go)"),
        ("Write(/etc/*)", "Edit(//etc/**)"),
        ("Write(//etc/hosts)", "Edit(//etc/hosts)"),
        ("Write(/)", "Edit(//**)"),
        ("Write(~/notes/*)", "Edit(~/notes/**)"),
        ("Write(~)", "Edit(~/**)"),
        ("NotebookEdit(a/b.ipynb)", "Edit(.//a/b.ipynb)"),
        ("MultiEdit(a/b)", "Edit(.//a/b)"),
        ("Grep(src/**)", "Read(.//src/**)"),
        ("Glob(src/*)", "Read(.//src/**)"),
        ("LS(src)", "Read(.//src)"),
        ("WebFetch(domain:x.org)", "WebFetch(domain:x.org)"),
        ("Task", "Agent"),
        ("Task(Explore)", "Agent(Explore)"),
        ("KillShell", "TaskStop"),
        ("MultiEdit", "Edit"),
        ("LS", "Glob"),
        ("mcp__github__get_issue", "mcp__github__get_issue"),
        ("mcp__github", "mcp__github"),
        ("mcp__github__*", "mcp__github__*"),
    ],
)
def test_an_allowed_pattern_is_one_rule(pattern: str, rule: str) -> None:
    assert rules(json.dumps(pattern))[0] == [rule]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("Write(*)", ["Write"]),
        ("Bash(git push*)", ["Bash(git push*)"]),
        ("Bash(a, b *)", ["Bash(a, b *)", "Bash(a)", "Bash(b *)"]),
        ("Bash(x :*)", ["Bash(x:*)"]),
        ("Bash(*:*)", ["Bash(*)"]),
        ("Bash(x | *)", ["Bash(x | *)"]),
        ("Bash(*&&*)", ["Bash(*&&*)"]),
        ("Bash(*;*)", ["Bash(*;*)"]),
        ("Bash(X=1 *)", ["Bash(X=1 *)"]),
        ("Bash(x \\y)", ["Bash(x \\y)"]),
        ("Bash(x 'a;b')", ["Bash(x 'a;b')"]),
        ("Read(.env, n.txt)", ["Read(.env, n.txt)", "Read(.env)", "Read(n.txt)"]),
        ("Read(app/[id]/x)", ["Read(.//app/*/x)"]),
        ("Read([)", ["Read(*)"]),
        ("Read(**)", ["Read(//**)"]),
        ("Read(**/*)", ["Read(//**)"]),
        ("Read(**/.env)", ["Read(//**/.env)"]),
        ("Read(**.key)", ["Read(**.key)"]),
        ("Read(./**)", ["Read(./**)"]),
        ("Edit(.)", ["Edit(./**)"]),
        ("Agent(Explore)", ["Agent(Explore)"]),
        ("Bash(curl *-X:*)", ["Bash(curl *-X*)"]),
        ("Write(*.key)", ["Edit(*.key)"]),
        ("Write(.env)", ["Edit(.env)"]),  # a bare name is refused at any depth
        ("Read(.env)", ["Read(.env)"]),
        ("Edit(src/**)", ["Edit(.//src/**)"]),
        ("MultiEdit(src/**)", ["Edit(.//src/**)"]),
        ("NotebookRead(x/y)", ["Read(.//x/y)"]),
        ("Bash", ["Bash", "Monitor", "PowerShell"]),
        ("mcp__github", ["mcp__github"]),
        ("mcp__*", ["mcp__*"]),
        ("Web*", ["WebFetch", "WebSearch"]),
        # What cannot be said takes the whole tool.
        ("Bash(:*)", COMMANDS),
        ("Bash( :*)", COMMANDS),
        ("Bash(x:* y)", COMMANDS),
        ("Bash(x:*y:*)", COMMANDS),
        ("Bash(x\\)", COMMANDS),
        ("Bash(\\)", COMMANDS),
        ("Bash(x\\, y)", COMMANDS),
        ("Bash(x, :*)", COMMANDS),
        ("Bash(x\\\\)", COMMANDS),
        ("Bash(x \\(y\\))", COMMANDS),
        ("Bash(x \\*)", COMMANDS),
        ("Bash(x 'a' | y)", COMMANDS),
        ("Bash(x;:*)", COMMANDS),
        ("Bash(x|y *)", COMMANDS),
        ("Bash(x; y *)", COMMANDS),
        ("Bash(x  | y)", COMMANDS),
        ("Bash(X=1* y)", COMMANDS),
        ("Bash(* > x)", COMMANDS),
        ("Bash(x > y)", COMMANDS),
        ("Read(x\\)", ["Read"]),
        ("Read(a**/b)", ["Read"]),
        ("Read(a/**b)", ["Read"]),
        ("Read(a**b)", ["Read"]),
        ("Read(a/***)", ["Read(.//a/**)"]),
        ("Read(a**)", ["Read(a**)"]),
        ("Read(a\\b)", ["Read"]),
        ("Read({.env,n.txt})", ["Read"]),
        ("Read(.env, ../x)", ["Read"]),
        ("Agent(gen*)", ["Agent"]),
        ("Agent(a, b)", ["Agent"]),
        ("Skill(a, b)", ["Skill"]),
        ("Skill(x\\)", ["Skill"]),
        ("mcp__github__x(y)", ["mcp__github__x"]),
        ("Write(../x)", ["Write"]),
        ("Write($HOME/x)", ["Write"]),
        ("Write(~other/x)", ["Write"]),
        ("Edit(src:*)", ["Edit"]),
        ("Edit(!x)", ["Edit"]),
        ("Edit(src/{a,b})", ["Edit"]),
        ("Edit(#x)", ["Edit(.//**/#x)"]),
        ("mcp__", ["mcp__*"]),
        ("WebFetch(https://x)", ["WebFetch"]),
        ("WebFetch(domain:x.org:443)", ["WebFetch"]),
        ("WebSearch(x)", ["WebSearch"]),
        ("*", ["*", *claude_rules.TOOLS, "mcp__*"]),
        ("*(x)", ["*", *claude_rules.TOOLS, "mcp__*"]),
        # There is no such tool: nothing to refuse.
        ("BashOutput", []),
        ("LS", []),
        ("Nonsense", []),
    ],
)
def test_what_a_denied_pattern_refuses(pattern: str, found: list[str]) -> None:
    denied = rules("'*'", json.dumps(pattern))[1]
    assert denied == (found if found != COMMANDS else ["Bash", "Monitor", "PowerShell"])
    said = of("'*'", json.dumps(pattern))
    assert found or said, "what refuses nothing is said"


@pytest.mark.parametrize(
    ("allowed", "held"),
    [
        ("'Bash(git log*)'", True),
        ("'Bash(git diff:*)', Read", True),
        ("'Bash(git log*)', 'Bash(npm ls)'", True),
        ("'Bash(git *)'", False),
        ("'Bash(git:*)'", False),
        ("'Bash(npm ls)'", False),
        ("Bash", False),
        ("'Bash(git log*)', Bash", False),
    ],
)
def test_who_may_only_look_at_a_repository_does_not_let_git_write(allowed: str, *, held: bool) -> None:
    assert ("Bash(git *--output*)" in rules(allowed)[1]) is held
    assert "Bash(git *--output*)" not in rules(allowed, "Bash")[1]


@pytest.mark.parametrize(
    "pattern",
    [
        "Bash(:*)",
        "Bash(x:* y)",
        "Bash(x\\)",
        "Bash(x > y)",
        "Bash(x *; y)",
        "Bash(x | y)",
        "Bash(x && y *)",
        "Write(a\\b)",
        "Read({a,b})",
        "Agent(x*)",
        "Skill(a,b)",
    ],
)
def test_an_allowed_pattern_that_cannot_be_said_is_left_out(pattern: str) -> None:
    assert rules(json.dumps(pattern))[0] == []
    assert f"stricter: {pattern} allows nothing: Claude Code cannot read the pattern" in of(json.dumps(pattern))


def test_what_no_pattern_allows_is_refused_by_its_name() -> None:
    allow, deny = rules("")
    assert (allow, sorted(deny)) == ([], sorted(rest()))
    assert rules("Read, 'Bash(npm ls*)'") == (["Read", "Bash(npm ls*)"], rest("Read", "Bash"))
    # Everything that runs, fetches, changes or reads is among them; what only talks and lists is not.
    assert {"Bash", "Monitor", "Write", "Edit", "NotebookEdit", "WebFetch", "WebSearch", "Agent", "Read", "Glob", "Grep", "Skill", "Workflow"} <= set(
        EVERYTHING
    )
    assert set(claude_rules.TOOLS) >= claude_rules.CONTROL
    assert "ToolSearch" not in EVERYTHING


def test_a_star_is_every_tool_by_its_name_and_no_mcp_tool() -> None:
    for allowed in ("'*'", None):
        allow, deny = rules(allowed)
        assert (allow, deny) == (list(claude_rules.TOOLS), [])
    assert rules("'*'", "Bash")[0] == [tool for tool in claude_rules.TOOLS if tool not in ("Bash", "Monitor", "PowerShell")]
    assert any("no rule that allows every MCP tool" in gap for gap in gaps(persona("permissions: {allowed_tools: ['*']}"), general=True))


def test_mcp_tools_are_refused_unless_some_are_named() -> None:
    assert "mcp__*" in rules("Read")[1]
    assert "mcp__*" not in rules("Read, mcp__github__*")[1]


def test_a_tool_that_may_write_one_directory_writes_nowhere_else() -> None:
    """Write works by the rule for Edit, also where Edit itself is taken away."""
    allow, deny = rules("Read, 'Write(.wave/output/*)'", "'Edit(*)'")
    assert allow == ["Read", "Edit(.//.wave/output/**)"]
    assert {"Edit", "NotebookEdit"} <= set(deny)
    assert "Write" not in deny
    assert of("Read, 'Write(.wave/output/*)'", "'Edit(*)'") == []


def test_narrower_patterns_and_repetitions_are_dropped() -> None:
    assert rules("Write, 'Write(a/b)', 'Write(a/c)', 'Bash(x)', 'Bash(x)'")[0] == ["Write", "Bash(x)"]
    assert rules("'*'", "'Bash(x)', 'Bash(*)', Bash")[1] == ["Bash", "Monitor", "PowerShell"]
    assert rules("'Write(a/b)', 'Edit(a/b)'")[0] == ["Edit(.//a/b)"]


def test_who_may_write_may_read_as_writing_asks_for_it() -> None:
    assert "Read" not in rules("Write")[1]
    assert of("Write") == ["weaker: files can be read though Read is not allowed: without it nothing could be written"]
    assert "Read" in rules("Write", "Read")[1]
    assert of("Write", "Read") == ["stricter: Read is denied, and with it everything that writes: Claude Code asks the same rules"]


def test_a_persona_that_only_reads_has_no_tool_that_writes() -> None:
    text = "permissions: {allowed_tools: [Read, Write, 'Bash(git log*)']}, sandbox: {project: read}"
    deny = settings(persona(text))["permissions"]["deny"]
    assert {"Write", "Edit", "NotebookEdit"} <= set(deny)
    assert "Edit(./**)" not in deny  # our fence holds that
    assert "Edit(./**)" in settings(persona(text), fenced=False)["permissions"]["deny"]
    assert gaps(persona(text)) == ["stricter: Write allows nothing: the project is read-only for this persona"]


@pytest.mark.parametrize(
    ("allowed", "denied", "said"),
    [
        ("Read, SpecialTool", "", ["stricter: SpecialTool allows nothing: Claude Code has no tool SpecialTool"]),
        ("Read", "SpecialTool", ["ignored: SpecialTool refuses nothing: Claude Code has no tool SpecialTool"]),
        ("Read", "LS", ["stricter: there is no tool LS any more, so that nothing is refused by LS"]),
        ("Read, BashOutput", "", ["stricter: BashOutput allows nothing: Claude Code has no tool BashOutput"]),
        ("'Bash(x*)'", "Bash", ["stricter: Bash(x*) allows nothing: deny takes the whole tool away"]),
        ("'Bash(a, b)'", "", ["stricter: Bash(a, b) is one command to Claude Code"]),
        ("Bash", "'Bash(a, b)'", ["stricter: Bash(a, b) is one command to Claude Code; each part of it is refused as well"]),
        ("'Write(a, b)'", "", ["stricter: Write(a, b) is one path to Claude Code", _READ]),
        ("Read", "'Read(a, b)'", ["stricter: Read(a, b) is one path to Claude Code; each part of it is refused as well"]),
        (
            "Read",
            "'Read(app/[id]/x)'",
            [
                "stricter: Read(app/[id]/x) refuses whatever stands in the place of its brackets: they are a class of characters, or part of a name",
                "weaker: Read(app/[id]/x) holds for the file tools alone: Claude Code's own sandbox ignores patterns on Linux",
            ],
        ),
        ("Bash", "'Bash(x > y)'", ["stricter: Bash(x > y) refuses every call: Claude Code cannot read the pattern", _TAKEN.replace("WebFetch", "Bash")]),
        ("'Bash(git * push)'", "", ["weaker: Bash(git * push) allows every option at its first *, also those that run other commands"]),
        ("'Read(docs/*)'", "", ["weaker: Read(docs/*) is no bound in the project: Claude Code reads all of it unasked"]),
        ("'WebFetch(https://x)'", "", ["stricter: WebFetch(https://x) allows nothing: Claude Code cannot read the pattern"]),
        ("'mcp__*'", "", ["stricter: mcp__* allows nothing: Claude Code cannot read the pattern"]),
        ("WebFetch", "'WebFetch(https://x)'", ["stricter: WebFetch(https://x) refuses every call: Claude Code cannot read the pattern", _TAKEN]),
        ("Read", "'mcp__a__b(c)'", ["stricter: mcp__a__b(c) refuses every call: rules for MCP tools have no brackets"]),
        ("Read, Edit", "Write", ["weaker: Write is denied, and Edit makes new files as well"]),
        (
            "Read, Write",
            "'Write(*.key)'",
            ["weaker: Write(*.key) holds for the file tools alone: Claude Code's own sandbox ignores patterns on Linux"],
        ),
        (
            "Read, 'Write(a/b)', 'Edit(c/d)'",
            "",
            [
                "weaker: Write(a/b) holds for Edit as well: Claude Code has one rule for all tools that write",
                "weaker: Edit(c/d) holds for Write as well: Claude Code has one rule for all tools that write",
            ],
        ),
        (
            "Read, Write, Edit",
            "'Write(a/b)'",
            ["stricter: Write(a/b) holds for Edit as well: Claude Code has one rule for all tools that write"],
        ),
        ("Read, Write, 'Bash(ls)'", "'Write(a/b)', 'Bash(git push*)'", []),
    ],
)
def test_what_cannot_be_held_as_written_is_said(allowed: str, denied: str, said: list[str]) -> None:
    assert of(allowed, denied) == said


def test_every_gap_names_its_line_and_its_persona() -> None:
    found = planned("personas:\n  p:\n    adapter: claude\n    permissions:\n      deny: [SpecialTool]\n")
    own = [gap for gap in claude.gaps(found) if gap.origin != found.personas_origin]
    assert [(gap.backend, gap.shell, gap.origin.at and gap.origin.at.line) for gap in own] == [("claude", "persona-p", 7)]


def test_what_is_so_for_all_personas_is_said_in_the_same_words() -> None:
    found = planned("personas: {a: {adapter: claude}, b: {adapter: claude}, c: {adapter: codex}}\n")
    said = [(gap.shell, gap.what, gap.origin) for gap in claude.gaps(found)]
    assert {shell for shell, *_ in said} == {"persona-a", "persona-b"}
    assert [gap[1:] for gap in said if gap[0] == "persona-a"] == [gap[1:] for gap in said if gap[0] == "persona-b"]


# --- whole files


def test_only_personas_of_claude_code_get_files_in_the_order_of_the_manifest() -> None:
    found = planned("personas: {b: {adapter: claude}, a: {adapter: codex}, c: {adapter: asks}}\nruntime: {fallbacks: {codex: [claude]}}\n")
    assert [file.path.removeprefix(".wavegen/personas/") for file in claude.render(found)] == [
        *("b/settings.json", "b/settings.fenced.json"),
        *("a/settings.json", "a/settings.fenced.json"),
        *("c/settings.json", "c/settings.fenced.json"),
    ]
    assert list(claude.render(planned("personas: {a: {adapter: codex}}\n"))) == []
    assert list(claude.gaps(planned("personas: {a: {adapter: codex}}\n"))) == []


ENVIRONMENT = {
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_DISABLE_FEEDBACK_SURVEY": "1",
    "DISABLE_BUG_COMMAND": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD": "1",
    "CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR": "1",
}
MODES = {"defaultMode": "dontAsk", "disableBypassPermissionsMode": "disable", "disableAutoMode": "disable"}
SEED = """
personas:
  navigator:
    adapter: claude
    temperature: 0.1
    permissions:
      allowed_tools: [Read, Glob, Grep, "Bash(git log*)", "Bash(git status*)"]
      deny: ["Write(*)", "Edit(*)", "Bash(git commit*)", "Bash(git push*)"]
    sandbox: {allowed_domains: [api.anthropic.com]}
  implementer:
    adapter: claude
    model: opus
    permissions:
      allowed_tools: [Read, Write, Edit, Bash]
      deny: ["Bash(rm -rf /*)", "Bash(sudo *)"]
    hooks:
      PreToolUse: [{matcher: "Bash(git commit*)", command: .wave/hooks/pre-commit-lint.sh}]
      PostToolUse: [{matcher: "Write(src/**)", command: "npm test --silent"}]
    sandbox: {allowed_domains: [api.anthropic.com, github.com, "*.github.com", "x.org:8443"]}
runtime: {sandbox: {deny_read_paths: [~/private, /srv/keys, secrets/prod]}}
"""
READS = ("Read", "Glob", "Grep", "Bash", "Write", "Edit")


def test_the_settings_of_the_two_personas_of_the_first_manifests() -> None:
    found = planned(SEED)
    schema = "https://json.schemastore.org/claude-code-settings.json"
    navigator = {
        "$schema": schema,
        "env": ENVIRONMENT,
        "permissions": {
            "allow": ["Read", "Glob", "Grep", "Bash(git log*)", "Bash(git status*)"],
            "deny": ["Write", "Edit", "Bash(git commit*)", "Bash(git push*)", "Bash(git *--output*)", *rest(*READS), *OWN],
            **MODES,
        },
        "sandbox": {"enabled": False, "allowUnsandboxedCommands": False},
    }
    assert settings(found, name="navigator") == navigator
    implementer = {
        "$schema": schema,
        "model": "opus",
        "env": ENVIRONMENT,
        "permissions": {
            "allow": ["Read", "Write", "Edit", "Bash"],
            "deny": ["Bash(rm -rf /*)", "Bash(sudo *)", *rest("Read", "Write", "Edit", "Bash"), *OWN],
            **MODES,
        },
        "disableAllHooks": False,
        "hooks": {
            "PreToolUse": [
                {
                    "matcher": "Bash",
                    "hooks": [
                        {"type": "command", "if": "Bash(git commit*)", "command": "/bin/sh -c .wave/hooks/pre-commit-lint.sh >&2 || exit 2", "timeout": 86400},
                    ],
                },
            ],
            "PostToolUse": [
                {"matcher": "Write", "hooks": [{"type": "command", "if": "Write(.//src/**)", "command": "/bin/sh -c 'npm test --silent' >&2"}]},
            ],
        },
        "sandbox": {"enabled": False, "allowUnsandboxedCommands": False},
    }
    assert settings(found, name="implementer") == implementer
    hidden = [*map(str, HOME_SECRETS), "~/private", "//srv/keys"]
    assert settings(found, fenced=False, name="implementer") == {
        **implementer,
        "permissions": {
            **implementer["permissions"],  # type: ignore[dict-item]
            "deny": [*implementer["permissions"]["deny"], *(f"Read({path})" for path in hidden), "Read(.//secrets/prod)"],  # type: ignore[index]
        },
        "sandbox": {
            "enabled": True,
            "failIfUnavailable": True,
            "autoAllowBashIfSandboxed": True,
            "allowUnsandboxedCommands": False,
            "network": {
                "allowedDomains": [
                    *("*.github.com:80", "*.github.com:443", "api.anthropic.com:80", "api.anthropic.com:443"),
                    *("github.com:80", "github.com:443", "x.org:8443"),
                ],
                "deniedDomains": [],
                "strictAllowlist": True,
                "allowLocalBinding": False,
                "allowAllUnixSockets": False,
            },
            "filesystem": {"allowWrite": [], "denyWrite": [], "denyRead": hidden},
        },
    }
    outside = settings(found, fenced=False, name="navigator")
    assert outside["sandbox"]["autoAllowBashIfSandboxed"] is False  # or the sandbox would allow what the list does not
    assert outside["permissions"]["allow"] == navigator["permissions"]["allow"]  # type: ignore[index]


def own_sandbox(text: str, more: str = "") -> Json:
    value = settings(persona(text, more), fenced=False)["sandbox"]
    assert isinstance(value, dict)
    return value


def test_its_own_sandbox_reaches_what_the_manifest_lists_and_not_its_api() -> None:
    assert own_sandbox("model: opus")["network"]["allowedDomains"] == []  # the fence adds the API's host for the agent alone
    listed = own_sandbox("sandbox: {allowed_domains: [x.org, 'y.org:*']}")["network"]["allowedDomains"]
    assert listed == ["x.org:80", "x.org:443", "y.org"]


@pytest.mark.parametrize("mode", ["host", "open"])
def test_a_network_without_a_list_is_every_name_and_that_it_goes_by_a_proxy_is_said(mode: str) -> None:
    more = f"runtime: {{sandbox: {{denied_domains: [bad.org], shells: {{s: {{network: {mode}}}}}}}}}\n"
    network = own_sandbox("sandbox: {shell: s}", more)["network"]
    assert network["allowedDomains"] == ["*"]
    assert network["deniedDomains"] == (["bad.org"] if mode == "open" else [])
    assert any(f"network: {mode} is what a proxy reaches" in gap for gap in gaps(persona("sandbox: {shell: s}", more)))


def test_paths_of_the_manifest_are_absolute_or_below_home_in_lists_and_rules_in_the_project() -> None:
    more = "runtime: {sandbox: {paths: [{path: ~/w, access: write}, {path: /opt/w, access: write}, {path: ~/r, access: read}, {path: docs, access: read}]}}\n"
    found = persona("model: opus", more)
    value = settings(found, fenced=False)
    assert value["sandbox"]["filesystem"]["allowWrite"] == ["~/w", "//opt/w"]
    assert value["sandbox"]["filesystem"]["denyWrite"] == ["~/r"]
    assert {"Edit(.//docs)", "Edit(~/r)"} <= set(value["permissions"]["deny"])
    assert not {"Edit(.//docs)", "Edit(~/r)"} & set(settings(found)["permissions"]["deny"])


def test_secrets_of_the_home_directory_are_hidden_from_commands_and_tools() -> None:
    value = settings(persona("model: opus"), fenced=False)
    assert {"~/.ssh", "~/.aws", "~/.gnupg", "~/.config/gh", "~/.netrc", "~/.docker", "~/.kube", "~/.npmrc", "~/.pypirc", "~/.git-credentials"} <= set(
        value["sandbox"]["filesystem"]["denyRead"]
    )
    assert {f"Read({path})" for path in HOME_SECRETS} <= set(value["permissions"]["deny"])


def test_who_may_be_asked_is_asked_and_no_switch_brings_everything_back() -> None:
    found = planned("personas: {p: {adapter: asks}}\nruntime: {sandbox: {allow_unsandboxed_commands: true}}\n")
    assert settings(found)["permissions"]["defaultMode"] == "default"
    assert settings(found)["permissions"]["disableBypassPermissionsMode"] == "disable"
    assert settings(found)["sandbox"] == {"enabled": False, "allowUnsandboxedCommands": False}
    assert settings(found, fenced=False)["sandbox"]["allowUnsandboxedCommands"] is True


def test_a_persona_without_a_fence_has_no_sandbox_either() -> None:
    found = persona("model: opus", "runtime: {sandbox: {enabled: false}}\n")
    assert settings(found, fenced=False)["sandbox"] == {"enabled": False, "allowUnsandboxedCommands": False}
    assert "Read(~/.ssh)" not in settings(found, fenced=False)["permissions"]["deny"]


def test_gaps_of_its_own_sandbox() -> None:
    more = "runtime: {sandbox: {paths: [{path: /run/x.sock, access: read, socket: true}], shells: {restricted: {loopback: [5432], domains: [api.anthropic.com]}}}}\n"
    found = gaps(persona("model: opus", more), general=True)
    assert "stricter: loopback: 5432 is not reached in Claude Code's own sandbox" in found
    assert "stricter: /run/x.sock: Claude Code's own sandbox lets no command use sockets" in found
    assert sum("in place of the fence" in gap for gap in found) == 1


# --- hooks


@pytest.mark.parametrize(
    ("matcher", "expected", "condition"),
    [
        ("", "*", None),
        ("'*'", "*", None),
        ("Bash", "Bash", None),
        ("Task", "Agent", None),
        ("'Write*'", "^Write.*$", None),
        ("mcp__a__b", "mcp__a__b", None),
        ("mcp__a-b__c", r"^mcp__a\-b__c$", None),
        ("'mcp__a__*'", "^mcp__a__.*$", None),
        ("'Bash(git commit*)'", "Bash", "Bash(git commit*)"),
        ("'Bash(rm -rf)'", "Bash", "Bash(rm -rf)"),
        ("'Write(docs/*)'", "Write", "Write(.//docs/**)"),
        ("'Edit(*.go)'", "Edit", "Edit(*.go)"),
        ("'Read(/etc/x)'", "Read", "Read(//etc/x)"),
        ("'Bash(x :*)'", "Bash", "Bash(x:*)"),
        ("'Read(**)'", "Read", "Read(//**)"),
        ("'Read(**/.env)'", "Read", "Read(//**/.env)"),
        ("'Read(app/[id]/x)'", "Read", "Read(.//app/*/x)"),
        # Where the calls that are meant cannot be told it runs for all.
        ("'Bash(:*)'", "Bash", None),
        ("'Bash(x:* y)'", "Bash", None),
        ("'Bash(x\\)'", "Bash", None),
        ("'Bash(* > x)'", "Bash", None),
        ("'Bash(x \"y\")'", "Bash", None),
        ("'Bash(x \\y)'", "Bash", None),
        ("'Bash(x # y)'", "Bash", None),
        ("'Bash(X=1 y)'", "Bash", None),
        ("'Bash(*| sh)'", "Bash", None),
        ("'Bash(a && b)'", "Bash", None),
        ("'Bash(*$(*)'", "Bash", None),
        ("'Read({.env,n.txt})'", "Read", None),
        ("'Read(.env, n.txt)'", "Read", None),
        ("'Read(x\\)'", "Read", None),
        ("'Bash(a, b)'", "Bash", None),
        ("'Grep(x)'", "Grep", None),
        ("'*(x)'", "*", None),
        ("'Write(../x)'", "Write", None),
    ],
)
def test_the_matcher_of_a_hook(matcher: str, expected: str, condition: str | None) -> None:
    found = persona(f"hooks: {{PreToolUse: [{{matcher: {matcher or chr(39) * 2}, command: x}}]}}")
    [entry] = settings(found)["hooks"]["PreToolUse"]
    assert (entry["matcher"], entry["hooks"][0].get("if")) == (expected, condition)
    every = "(" in matcher and condition is None
    assert any("runs for every call" in gap for gap in gaps(found)) is every


def test_a_name_matches_no_longer_name() -> None:
    """What is no plain name is a regular expression that may match anywhere."""
    for pattern, names in (("Write*", {"Write", "WriteMore"}), ("mcp__a-b__*", {"mcp__a-b__c"})):
        matched = {n for n in ("Write", "WriteMore", "OverWrite", "mcp__a-b__c", "x_mcp__a-b__c") if re.search(f"^{claude_rules.glob_to_regex(pattern)}$", n)}
        assert matched == names


def test_a_hook_for_a_tool_that_there_is_not_is_said_and_left_out() -> None:
    found = persona("hooks: {PreToolUse: [{matcher: Nonsense, command: x}]}")
    assert "hooks" not in settings(found)
    assert gaps(found) == ["ignored: the hook for Nonsense never runs: Claude Code has no tool Nonsense"]


def test_the_projects_own_settings_cannot_turn_hooks_off() -> None:
    assert settings(persona("hooks: {PostToolUse: [{matcher: Bash, command: x}]}"))["disableAllHooks"] is False
    assert "disableAllHooks" not in settings(persona("model: opus"))


HOSTILE = [
    ("true", 0, ""),
    ("exit 0", 0, ""),
    ("exit 1", 2, ""),
    ("exit 2", 2, ""),
    ("false", 2, ""),
    ("no-such-command-at-all", 2, ""),
    ("/no/such/script.sh", 2, ""),
    ("kill -9 $$", 2, ""),
    ("exec false", 2, ""),
    ("echo a # and no more", 0, "a\n"),
    ("false # || exit 0", 2, ""),
    ("echo a; exit 3; echo b", 2, "a\n"),
    ("echo a \\", 0, "a \\\n"),
    ("false \\", 2, ""),
    ("echo 'open", 2, ""),
    ('echo "open', 2, ""),
    ("echo $(", 2, ""),
    ("if true; then", 2, ""),
    ("} || exit 0", 2, ""),
    (") || exit 0", 2, ""),
    ("' || exit 0 #", 2, ""),
    ("'\"'\"' || exit 0 #", 2, ""),
    ("echo \"it's\" '\"' $HOME_IS_UNSET `echo c` $((1+1))", 0, "it's \" c 2\n"),
    ("cat <<E\none 'two' $\nE\nfalse", 2, "one 'two' $\n"),
    ("cat <<'E'\nnever closed", 0, "never closed"),
    ("echo one\necho 'two\nthree'\n", 0, "one\ntwo\nthree\n"),
    ("echo 'a\tb'\n# end", 0, "a\tb\n"),
    ("[ a = a ] && echo ${NOT_SET:-sh}", 0, "sh\n"),
    (
        "echo '${CLAUDE_PLUGIN_ROOT}' '${CLAUDE_PLUGIN_DATA}' \"it's\" '$${{user_config.x}}'",
        0,
        "${CLAUDE_PLUGIN_ROOT} ${CLAUDE_PLUGIN_DATA} it's $${{user_config.x}}\n",
    ),
    ("cat", 0, "the call\n"),
    ("grep -q forbidden", 2, ""),
    ("echo ä€🦊 \u2028end", 0, "ä€🦊 \u2028end\n"),
    ("-x", 2, ""),
    ("printf '%s\\n' '$'\"'\"'x'", 0, "$'x\n"),
]


@pytest.mark.needs("bash")
@pytest.mark.parametrize("shell", ["sh", "bash"])
@pytest.mark.parametrize(("command", "status", "out"), HOSTILE)
def test_before_a_call_every_failure_refuses_it_whatever_the_command_holds(shell: str, command: str, status: int, out: str) -> None:
    """Claude Code gives the line to /bin/sh, which may be any shell; what it prints there would be taken for a decision."""
    hook = HookRule(before=True, matcher=ToolPattern("*", None, Origin("")), command=command, origin=Origin(""))
    done = subprocess.run([shell, "-c", shell_command(hook)], input="the call\n", capture_output=True, text=True, encoding="utf-8", timeout=30, check=False)
    assert done.returncode == status, done.stderr
    assert in_place(out, done), done.stdout


@pytest.mark.needs("bash")
@pytest.mark.parametrize(("command", "out"), [(command, out) for command, status, out in HOSTILE if status == 0])
def test_after_a_call_the_command_runs_as_it_is(command: str, out: str) -> None:
    hook = HookRule(before=False, matcher=ToolPattern("*", None, Origin("")), command=command, origin=Origin(""))
    done = subprocess.run(["sh", "-c", shell_command(hook)], input="the call\n", capture_output=True, text=True, encoding="utf-8", timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    assert in_place(out, done), done.stdout


def test_no_shell_of_the_path_runs_a_hook(tmp_path: Path) -> None:
    for name in ("sh", "bash", "env"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 0\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    hook = HookRule(before=True, matcher=ToolPattern("*", None, Origin("")), command="exit 1", origin=Origin(""))
    done = subprocess.run(["/bin/sh", "-c", shell_command(hook)], env={"PATH": str(tmp_path)}, capture_output=True, timeout=30, check=False)
    assert done.returncode == 2


@pytest.mark.parametrize("before", [True, False])
def test_no_name_that_would_be_replaced_is_left_in_a_hook(*, before: bool) -> None:
    """With one of them Claude Code does not run it at all."""
    for command in ("${CLAUDE_PLUGIN_ROOT}/x", "'${CLAUDE_PLUGIN_DATA}'", "'$''{'", "$${{x}}", "a'${'b"):
        hook = HookRule(before=before, matcher=ToolPattern("*", None, Origin("")), command=command, origin=Origin(""))
        assert "${" not in shell_command(hook)


def test_what_hooks_are_worth_is_said_once() -> None:
    found = planned("personas: {p: {adapter: claude, hooks: {PreToolUse: [{command: a}, {command: b}], PostToolUse: [{command: c}]}}, q: {adapter: claude}}\n")
    said = [gap for gap in claude.gaps(found) if "may end a slow hook" in gap.what]
    assert [(gap.shell, gap.effect.value, gap.origin) for gap in said] == [("persona-p", "weaker", found.personas_origin)]


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("preset: navigator", "", True),
        ("preset: philosopher", "", True),
        ("preset: implementer", "", False),  # any command is on its list
        ("model: opus", "", False),
        ("permissions: {allowed_tools: [Read]}", "", False),
        ("preset: navigator", "runtime: {sandbox: {home: tmpfs}}\n", False),
        ("preset: navigator", "runtime: {sandbox: {enabled: false}}\n", False),
    ],
)
def test_what_a_session_leaves_to_the_next_one_is_said_where_the_list_is_partial(text: str, more: str, *, said: bool) -> None:
    assert any("files that a session writes" in gap for gap in gaps(persona(text, more), general=True)) is said


# --- what the published schema says of the keys that are used

_RULE = re.compile(
    r"(\*|mcp__\S+|(Agent|Bash|Edit|Read|Skill|WebFetch)(\([^\n]+\))?|[A-Za-z_]+)",
)
_BOOL, _TEXTS = bool, (list, str)
SHAPE: Json = {
    "$schema": str,
    "model": str,
    "env": (dict, str),
    "disableAllHooks": _BOOL,
    "permissions": {
        "allow": _TEXTS,
        "deny": _TEXTS,
        "defaultMode": {"default", "dontAsk"},
        "disableBypassPermissionsMode": {"disable"},
        "disableAutoMode": {"disable"},
    },
    "hooks": {
        event: [{"matcher": str, "hooks": [{"type": {"command"}, "command": str, "if": str, "timeout": int}]}] for event in ("PreToolUse", "PostToolUse")
    },
    "sandbox": {
        **dict.fromkeys(("enabled", "failIfUnavailable", "autoAllowBashIfSandboxed", "allowUnsandboxedCommands"), _BOOL),
        "network": {
            **dict.fromkeys(("allowedDomains", "deniedDomains"), _TEXTS),
            **dict.fromkeys(("strictAllowlist", "allowLocalBinding", "allowAllUnixSockets"), _BOOL),
        },
        "filesystem": dict.fromkeys(("allowWrite", "denyWrite", "denyRead"), _TEXTS),
    },
}


def mismatches(value: object, shape: object, place: str = "") -> Iterator[str]:
    """Where a value is not as the table above has it."""
    match shape:
        case dict():
            if not isinstance(value, dict):
                yield f"{place}: not an object"
                return
            for key, inner in value.items():
                yield from mismatches(inner, shape[key], f"{place}.{key}") if key in shape else (f"{place}.{key}: unknown",)
        case [inner]:
            if not isinstance(value, list):
                yield f"{place}: not a list"
                return
            for at, entry in enumerate(value):
                yield from mismatches(entry, inner, f"{place}[{at}]")
        case (outer, inner):
            entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            if not isinstance(value, outer) or not all(isinstance(entry, inner) for entry in entries):
                yield f"{place}: not {outer.__name__} of {inner.__name__}"
            elif isinstance(value, list) and len(set(value)) != len(value):
                yield f"{place}: the same twice"
        case set():
            if value not in shape:
                yield f"{place}: {value}"
        case type():
            if type(value) is not shape:
                yield f"{place}: not {shape.__name__}"


def complaints(value: Json) -> list[str]:
    """What of a settings file the schema does not know, or takes for something else."""
    if found := list(mismatches(value, SHAPE)):
        return found
    bad = [rule for kind in ("allow", "deny") for rule in value["permissions"][kind] if not _RULE.fullmatch(rule)]
    bad += [rule for rule in value["permissions"]["allow"] if rule == "*" or re.fullmatch("mcp__[^_]*[*].*", rule)]
    lists = (*value["sandbox"].get("filesystem", {}).values(), value["sandbox"].get("network", {}).get("allowedDomains", []))
    bad += [path for paths in lists[:-1] for path in paths if not path.startswith(("~/", "//")) or "*" in path]
    return bad


MANIFESTS = (
    SEED,
    "personas: {p: {adapter: claude}}\n",
    "personas: {p: {adapter: asks, permissions: {allowed_tools: [], deny: ['*']}, sandbox: {project: read}}}\n",
    "personas: {p: {adapter: claude, permissions: {allowed_tools: ['*', 'mcp__a__*'], deny: ['Edit(docs/a)', 'mcp__b']}, hooks: {PreToolUse: [{command: x}]}}}\n",
    "".join(
        (
            "personas:\n",
            *(f"  {name}: {{adapter: claude, preset: {name}}}\n" for name in ["navigator", "implementer", "reviewer", "craftsman", "philosopher", "auditor"]),
        )
    ),
)


@pytest.mark.parametrize("text", MANIFESTS)
def test_every_file_is_as_the_schema_has_it(text: str) -> None:
    files = list(claude.render(planned(text)))
    assert files
    for file in files:
        assert complaints(json.loads(file.text)) == [], file.path
        assert file.text.endswith("}\n")
        assert not file.header


def test_the_table_of_the_schema_sees_mistakes() -> None:
    good = settings(planned(SEED), fenced=False, name="implementer")
    assert complaints(good) == []
    for key, wrong in (("model", 3), ("temperature", 0.1), ("sandbox", []), ("permissions", {**good["permissions"], "defaultMode": "dontask"})):
        assert complaints({**good, key: wrong})
    assert complaints({**good, "permissions": {**good["permissions"], "allow": ["*"]}})
    assert complaints({**good, "permissions": {**good["permissions"], "deny": ["Bash", "Bash"]}})
    assert complaints({**good, "permissions": {**good["permissions"], "deny": ["Write(x)"]}})
    assert complaints({**good, "sandbox": {**good["sandbox"], "filesystem": {"denyWrite": ["x"]}}})


# --- what the program itself says

# Sections of its report about the machine and the account.
_OF_THE_MACHINE = (
    "Claude Code doctor",
    "Running:",
    "API connectivity",
    "Remote Control",
    "No installation issues",
    "For a full setup",
    "Multiple installations",
)
_GLOBS = "Glob patterns in sandbox settings are not fully supported on Linux and WSL"


def doctor(text: str, place: Path) -> list[str]:
    """What `claude doctor` says against a settings file."""
    (place / "empty").mkdir(parents=True)
    (place / "home").mkdir()
    file = place / "settings.json"
    file.write_text(text, "utf-8")
    # Nobody listens there: otherwise it waits for the network.
    env = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    argv = [CLAUDE, "--settings", str(file), "doctor"]
    done = subprocess.run(argv, cwd=place / "empty", env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert "Claude Code doctor" in done.stdout, done.stdout + done.stderr
    sections = done.stdout.split("\n\n")
    return [line for section in sections if not section.strip().startswith(_OF_THE_MACHINE) for line in section.splitlines() if line.strip()]


def covering(files: Sequence[tuple[str, Plan]]) -> tuple[tuple[str, Plan], ...]:
    """As few of the files as hold every setting but rules that any of them holds: what is said of a file is said of one of these."""

    def held(text: str) -> frozenset[str]:
        value = json.loads(text)
        other = {f"permissions.{kind}": rules for kind, rules in value.pop("permissions").items() if not isinstance(rules, list)}
        return frozenset(f"{name} {json.dumps(setting)}" for name, setting in (value | other).items() if name != "model")

    left = {at: held(text) for at, (text, _) in enumerate(files)}
    chosen, missing = [], frozenset[str]().union(*left.values())
    while missing:
        best = max(left, key=lambda at: (len(left[at] & missing), -at))
        chosen.append(files[best])
        missing -= left.pop(best)
    return tuple(chosen)


def with_all_rules(files: Sequence[tuple[str, Plan]]) -> str:
    """One file with the rules of all of them: the program looks at each rule by itself."""
    merged: Json = {}
    for text, _ in files:
        for kind, rules in json.loads(text)["permissions"].items():
            merged[kind] = list(dict.fromkeys([*merged.get(kind, ()), *rules])) if isinstance(rules, list) else rules
    return json.dumps({**json.loads(files[0][0]), "permissions": merged})


@cache
def real_files() -> tuple[tuple[str, Plan], ...]:
    """Of all settings of all manifests those that differ in more than the model, and whose they are."""
    found: dict[str, tuple[str, Plan]] = {}
    for manifest in sorted(CORPUS.glob("*.yaml")):
        try:
            whole = plan_manifest(Source("wave.yaml", manifest.read_bytes()), None, "wave.sandbox.yaml")
        except ManifestError:
            continue
        for file in claude.render(whole):
            value = json.loads(file.text)
            value.pop("model", None)
            found.setdefault(json.dumps(value), (file.text, whole))
    return tuple(found.values())


def patterns_said(whole: Plan) -> set[str]:
    """The rules for paths of which a gap says that the sandbox ignores them."""
    return {gap.what.partition(")")[0].partition("(")[2] for gap in claude.gaps(whole) if "own sandbox ignores patterns" in gap.what}


def test_the_files_of_real_manifests_are_as_the_schema_has_them() -> None:
    if not CORPUS.is_dir():
        pytest.skip("the corpus of real manifests is not beside the repository")
    assert len(real_files()) > 200
    for text, _ in real_files():
        assert complaints(json.loads(text)) == []


@pytest.mark.needs("claude")
def test_the_program_has_nothing_to_say_of_any_file_of_ours(tmp_path: Path) -> None:
    """All of ours, and of those of real manifests as many as hold every setting, and one with every rule: a start of the program takes a second."""
    real = real_files()
    few = covering(real)
    assert 0 < len(few) < len(real) / 4 or not real
    files = [(file.text, patterns_said(whole)) for text in MANIFESTS for whole in (planned(text),) for file in claude.render(whole)]
    files += [(text, patterns_said(whole)) for text, whole in few]
    files += [(with_all_rules(real), set().union(*(patterns_said(whole) for _, whole in real)))] if real else []
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        said = list(workers.map(lambda at: doctor(files[at][0], tmp_path / str(at)), range(len(files))))
    for (text, patterns), lines in zip(files, said, strict=True):
        if any(_GLOBS in line for line in lines):
            # The one thing that is ours to say, and said: patterns, which only some manifests have.
            named = re.findall(r"(?:Edit|Read)\(([^)]*)\)", " ".join(lines))
            denied = [rule for rule in json.loads(text)["permissions"]["deny"] if any(f"({name})" in rule for name in named)]
            assert denied
            assert {rule.partition("(")[2].rstrip(")") for rule in denied} <= patterns
            lines[:] = [line for line in lines if _GLOBS not in line and "Fix: Found" not in line and "warning" not in line]
        assert lines == [], text


@pytest.mark.needs("claude")
@pytest.mark.parametrize(
    ("change", "seen"),
    [
        ({"model": 3}, "Expected string, but received number"),
        ({"permissions": {"allow": ["*"]}}, 'Wildcard tool name "*" is not supported in allow rules'),
        ({"permissions": {"deny": ["Write(x)"]}}, "is not matched by file permission checks"),
        ({"permissions": {"deny": ["Nonsense"]}}, "matches no known tool"),
        ({"hooks": {"Never": []}}, "Unknown hook event"),
        ({"sandbox": {"enabled": True}, "permissions": {"deny": ["Edit(*.key)"]}}, _GLOBS),
    ],
)
def test_what_the_program_dislikes_would_be_seen(tmp_path: Path, change: Json, seen: str) -> None:
    value = {**settings(planned(SEED), fenced=False, name="implementer"), **change}
    assert any(seen in line for line in doctor(json.dumps(value), tmp_path / "x"))


def played(permissions: Json, hooks: Json, calls: list[Call], place: Path) -> tuple[list[Result], str]:
    """What the program does with calls by these settings, and what it says of them."""
    project, home = place / "project", place / "home"
    project.mkdir(parents=True)
    home.mkdir()
    for name in (".env", "n.txt", "br[a]ck", "b\\s"):
        (project / name).write_text("CONTENT", "utf-8")
    (place / "settings.json").write_text(json.dumps({"permissions": permissions, **hooks}), "utf-8")
    with MessagesApi((*calls, Say("done"))) as api:
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "ANTHROPIC_API_KEY": "sk-ant-test", "ANTHROPIC_BASE_URL": api.url, **ENVIRONMENT}
        argv = [CLAUDE, "--settings", str(place / "settings.json"), "--setting-sources", "", "-p", "Go on."]
        done = subprocess.run(argv, cwd=project, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return list(api.results), done.stderr


def call(text: str) -> Call:
    """`Bash …`, `Read …` or `Agent …` as a call."""
    tool, _, argument = text.partition(" ")
    keys = {"Bash": "command", "Read": "file_path", "Agent": "subagent_type"}
    return Call(tool, {keys[tool]: argument, **({"description": "x", "prompt": "x"} if tool == "Agent" else {})})


ODD = {
    "Bash(:*)": ["Bash touch q"],
    "Bash(touch:* q)": ["Bash touch q", "Bash touch a q"],
    "Bash(touch :*)": ["Bash touch q"],
    "Bash(*:*)": ["Bash touch q"],
    "Bash(touch *:*)": ["Bash touch q"],
    "Bash(touch q\\)": ["Bash touch q"],
    "Bash(mkdir *, touch *)": ["Bash touch q"],
    "Bash(* > b)": ["Bash echo a > b"],
    "Bash(*| sh)": ["Bash echo | sh"],
    "Bash(**)": ["Bash touch q"],
    "Bash(touch \\*)": ["Bash touch *"],
    "Bash(touch \\(q\\))": ["Bash touch \\(q\\)"],
    "Bash(touch 'q')": ["Bash touch 'q'"],
    'Bash(touch "q" | *)': ['Bash touch "q" | cat'],
    "Bash(touch q|*)": ["Bash touch q|cat"],
    "Bash(touch q | *)": ["Bash touch q|cat", "Bash touch q | cat"],
    "Bash(*&&*)": ["Bash true&&touch q"],
    "Bash(true; touch *)": ["Bash true;touch q"],
    "Bash(*;*)": ["Bash true;touch q", "Bash true; touch q"],
    "Bash(* && touch *)": ["Bash true&&touch q", "Bash true && touch q"],
    "Bash(* || touch *)": ["Bash false||touch q", "Bash false || touch q"],
    "Bash(touch q #)": ["Bash touch q #"],
    "Bash(X=1 touch q)": ["Bash X=1 touch q"],
    "Read({.env,n.txt})": ["Read .env", "Read n.txt"],
    "Read(.env, n.txt)": ["Read .env", "Read n.txt"],
    "Read(**)": ["Read n.txt", "Read /etc/hostname"],
    "Read(**/hostname)": ["Read /etc/hostname"],
    "Read(br[a]ck)": ["Read br[a]ck"],
    "Read(b\\s)": ["Read b\\s"],
    "Read(n.txt\\)": ["Read n.txt"],
    "Read([)": ["Read n.txt"],
    "Agent(general*)": ["Agent general-purpose"],
    "Agent(Explore, general-purpose)": ["Agent general-purpose"],
}


@pytest.mark.needs("claude")
def test_the_program_refuses_what_an_odd_pattern_denies_and_has_nothing_to_say_of_it(tmp_path: Path) -> None:
    def refused(at: int) -> tuple[list[bool], str]:
        pattern, calls = list(ODD.items())[at]
        permissions = settings(persona(f"permissions: {{deny: [{json.dumps(pattern)}]}}"))["permissions"]
        results, said = played(permissions, {}, list(map(call, calls)), tmp_path / str(at))
        return [result.is_error and bool(re.search("denied|No such tool", result.text)) for result in results], said

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        found = dict(zip(ODD, workers.map(refused, range(len(ODD))), strict=True))
    assert found == {pattern: ([True] * len(calls), "") for pattern, calls in ODD.items()}


@pytest.mark.needs("claude")
def test_the_program_runs_a_hook_for_what_an_odd_matcher_means(tmp_path: Path) -> None:
    meant = {pattern: calls for pattern, calls in ODD.items() if not pattern.startswith("Agent")}

    def seen(at: int) -> tuple[list[bool], str]:
        pattern, calls = list(meant.items())[at]
        # It would not run at all for the first of these names, and would let the call pass for what is printed.
        command = "echo '{\"async\": true} ${CLAUDE_PLUGIN_ROOT}${CLAUDE_PLUGIN_DATA}'; exit 1"
        value = settings(persona(f"hooks: {{PreToolUse: [{{matcher: {json.dumps(pattern)}, command: {json.dumps(command)}}}]}}"))
        hooks = {key: value[key] for key in ("disableAllHooks", "hooks")}
        results, said = played(value["permissions"], hooks, list(map(call, calls)), tmp_path / str(at))
        return [result.is_error and "hook error" in result.text for result in results], said

    with ThreadPoolExecutor(os.cpu_count()) as workers:
        found = dict(zip(meant, workers.map(seen, range(len(meant))), strict=True))
    assert found == {pattern: ([True] * len(calls), "") for pattern, calls in meant.items()}


GIT = (
    "--output=x",
    '"--output=x"',
    '--out""put=x',
    "--out\\put=x",
    "$'--output=x'",
    '--outp"$Z"ut=x',
    "--o{u,}tput=x",
    "--output x",
    '"--out"put=x',
    "--out$()put=x",
)


@pytest.mark.needs("claude", "git")
def test_the_program_lets_git_write_no_file_however_it_is_spelled(tmp_path: Path) -> None:
    permissions = settings(persona("permissions: {allowed_tools: [Read, 'Bash(git diff*)']}"))["permissions"]
    calls = [Call("Bash", {"command": f"git diff --no-index .env n.txt {words}"}) for words in (*GIT, "--stat")]
    [*written, looked], said = played(permissions, {}, calls, tmp_path)
    assert [result.is_error and "denied" in result.text for result in written] == [True] * len(GIT)
    assert "denied" not in looked.text
    assert (said, sorted(path.name for path in (tmp_path / "project").iterdir())) == ("", [".env", "b\\s", "br[a]ck", "n.txt"])


def rules_of_all(patterns: list[str]) -> list[str]:
    """What becomes of these denied patterns; of those that the manifest refuses, nothing."""
    try:
        return rules("'*'", ", ".join(map(json.dumps, patterns)))[1]
    except ManifestError:
        middle = len(patterns) // 2
        return [*rules_of_all(patterns[:middle]), *rules_of_all(patterns[middle:])] if middle else []


@pytest.mark.needs("claude")
def test_the_program_can_read_every_rule_for_whatever_is_denied(tmp_path: Path) -> None:
    """All pairs of what is odd, behind a word and alone: what it says of none of them it would say of each."""
    pieces = ("x", "*", "**", ":*", "\\", "'", '"', "(", ")", "{", "}", "[", ",", "|", ">", " ", "/", "..", "!", "~", "#", "?", "$", "=")
    texts = [f"{start}{one}{two}" for start in ("", "x ") for one in pieces for two in pieces]
    found: set[str] = set()
    for tool in ("Bash", "Read", "Edit", "Agent", "Skill", "WebFetch"):
        for words in (texts[at : at + 48] for at in range(0, len(texts), 48)):
            found.update(rules_of_all([f"{tool}({text})" for text in words]))
    assert len(found) > 1000
    permissions = {"deny": sorted(found)}
    _, said = played(permissions, {}, [], tmp_path)
    assert said == ""
    assert doctor(json.dumps({"env": ENVIRONMENT, "permissions": permissions}), tmp_path / "doctor") == []


@pytest.mark.needs("claude")
def test_the_program_has_nothing_to_say_of_all_tools_when_it_works(tmp_path: Path) -> None:
    _, said = played({"deny": list(claude_rules.TOOLS)}, {}, [], tmp_path)
    assert said == ""


@pytest.mark.needs("claude")
def test_all_tools_are_known_to_the_program(tmp_path: Path) -> None:
    value = {"env": ENVIRONMENT, "permissions": {"deny": list(claude_rules.TOOLS)}}
    assert doctor(json.dumps(value), tmp_path / "x") == []
