"""What the programs that work as personas are told of the lists of tools: as decisions about calls, and as what is said not to hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from test_corpus import CORPUS, REFUSED, manifests
from test_roles import persona, planned

from wavegen.backends import collect_gaps
from wavegen.backends.agents import gemini, opencode
from wavegen.backends.agents.codex import codex_options
from wavegen.backends.agents.gemini import gemini_policy_rules
from wavegen.backends.agents.opencode import PROJECT, opencode_permissions, opencode_settings
from wavegen.backends.agents.tool_lists import allowed_path, denied_path
from wavegen.manifest.presets import PRESETS
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Access, Agent, AgentKind, Anchor, Origin, PersonaPolicy, Plan
from wavegen.policy.planner import plan_manifest

OPENCODE = "adapters: {opencode: {}}\n"
GEMINI = "adapters: {gemini: {}}\n"
BOTH = "adapters: {opencode: {}, gemini: {}}\nruntime: {fallbacks: {opencode: [gemini]}}\n"


# --- what the programs decide, as their own code does


def by_opencode(found: PersonaPolicy, permission: str, call: str) -> bool:
    """Of the permissions that match, the last holds: its Wildcard.match, for tools and for patterns."""

    def matches(text: str, pattern: str) -> bool:
        expression = re.sub(r"[.+^${}()|\[\]\\]", r"\\\g<0>", pattern.replace("\\", "/")).replace("*", ".*").replace("?", ".")
        if expression.endswith(" .*"):
            expression = expression[:-3] + "( .*)?"
        return bool(re.fullmatch(expression, text.replace("\\", "/"), re.DOTALL))

    verdict = "ask"
    for tool, rule in opencode_permissions(found).items():
        for pattern, action in (rule if isinstance(rule, dict) else {"*": rule}).items():
            if matches(permission, tool) and matches(call, pattern):
                verdict = action
    assert verdict in ("allow", "deny")
    return verdict == "allow"


def by_gemini(found: PersonaPolicy, tool: str, **arguments: str) -> bool:
    """Of the rules that match, the one with the highest priority holds: its policy engine, for a command without others in it."""
    said = "{" + ",".join(f"\0{json.dumps(k)}:{json.dumps(v, ensure_ascii=False)}\0" for k, v in sorted(arguments.items())) + "}"

    def matches(rule: gemini.Rule) -> bool:
        if not {"*", tool} & set(rule.tools):
            return False
        match rule.key:
            case "commandPrefix":
                return bool(re.search(re.escape('"command":' + json.dumps(rule.value)[:-1]) + r'(?:[\s"]|\\")', said))
            case "commandRegex":
                return bool(re.search(f'"command":"{rule.value}', said))
            case "argsPattern":
                return bool(re.search(rule.value, said))
            case _:
                return True

    return max((rule for rule in gemini_policy_rules(found) if matches(rule)), key=lambda rule: rule.priority).allow


# What a call is in opencode and in Gemini CLI.
CALLS = {
    "Read": ("read", "read_file", "file_path"),
    "Glob": ("glob", "glob", "pattern"),
    "Grep": ("grep", "grep_search", "pattern"),
    "Edit": ("edit", "replace", "file_path"),
    "Write": ("edit", "write_file", "file_path"),
    "Bash": ("bash", "run_shell_command", "command"),
    "WebFetch": ("webfetch", "web_fetch", "prompt"),
    "WebSearch": ("websearch", "google_web_search", "query"),
    "Agent": ("task", "invoke_agent", "agent_name"),
    "Skill": ("skill", "activate_skill", "name"),
    "TodoWrite": ("todowrite", "write_todos", "todos"),
    "Other": ("other", "other", "x"),
}


def decided(found: PersonaPolicy, call: str) -> tuple[bool, bool]:
    """What opencode and Gemini CLI say to `Tool argument`."""
    tool, _, argument = call.partition(" ")
    permission, name, key = CALLS[tool]
    return by_opencode(found, permission, argument or "x"), by_gemini(found, name, **{key: argument or "x"})


YES, NO = (True, True), (False, False)
LOOKS = {"Read": YES, "Glob": YES, "Grep": YES, "Agent": NO, "Skill": NO, "TodoWrite": NO, "WebFetch": NO, "WebSearch": NO, "Other": NO}
WORKS = {
    "Write src/a": YES,
    "Edit src/a": YES,
    "Bash make": YES,
    "Bash rm -rf /": NO,
    "Bash rm -rf /home": NO,
    "Bash rm -rf x": YES,
    "Bash sudo": NO,
    "Bash sudo x": NO,
}
LOOKS_AT_GIT = {"Bash git log": YES, "Bash git log -p x": YES, "Bash git log --output=x": NO, "Bash git diff --output x": NO, "Bash git gc": NO, "Bash ls": NO}
WRITES_NOT = {"Write a": NO, "Edit a": NO}
TABLE: dict[str, dict[str, tuple[bool, bool]]] = {
    "navigator": {
        **LOOKS,
        **LOOKS_AT_GIT,
        **WRITES_NOT,
        "Bash git status": YES,
        "Bash git commit -m x": NO,
        "Bash git push": NO,
        "Bash git logx": (True, False),
    },
    "implementer": {**LOOKS, **WORKS},
    "reviewer": {**LOOKS, **LOOKS_AT_GIT, **WRITES_NOT, "Bash gh pr view 1": YES, "Bash gh pr merge 1": NO, "Bash go test ./...": YES, "Bash pytest": YES},
    "craftsman": {**LOOKS, **WORKS},
    "philosopher": {
        **LOOKS,
        "Bash ls": NO,
        "Write .wave/specs/a.md": YES,
        "Write .agents/specs/a/b.md": YES,
        "Write src/a": NO,
        "Edit .wave/specs/a.md": (True, False),
        "Write x/.wave/specs/a": (False, True),
    },
    "auditor": {**LOOKS, **WRITES_NOT, "Bash git log": YES, "Bash git diff": NO, "Bash go vet ./...": YES, "Bash npm audit": YES, "Bash npm install": NO},
}


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_decided_alike(preset: str) -> None:
    found = persona(f"preset: {preset}", BOTH)
    assert {call: decided(found, call) for call in TABLE[preset]} == TABLE[preset]


ARTIFACT = "allowed_tools: [Read, 'Write(.wave/artifact.json)', 'Write(/tmp/*)'], deny: ['Edit(*)']"
CURL = "allowed_tools: ['Bash(curl *)', 'Bash(gh --version)', 'Bash(ls*)'], deny: ['Bash(curl *-X DELETE*)', 'Bash(rm*)']"


@pytest.mark.parametrize(
    ("lists", "call", "expected"),
    [
        pytest.param(ARTIFACT, "Write .wave/artifact.json", YES, id="one-file"),
        pytest.param(ARTIFACT, "Edit .wave/artifact.json", (True, False), id="who-may-write-may-edit-in-opencode"),
        pytest.param(ARTIFACT, "Write .wave/artifact.json.x", NO, id="not-longer"),
        pytest.param(ARTIFACT, "Write .wave/artifactXjson", NO, id="a-dot-is-a-dot"),
        pytest.param(ARTIFACT, "Write src/main.go", NO, id="another-file"),
        pytest.param(ARTIFACT, "Write ../../tmp/x", (True, False), id="absolute-as-opencode-has-it"),
        pytest.param(ARTIFACT, "Write /tmp/x", (False, True), id="absolute-as-gemini-has-it"),
        pytest.param(ARTIFACT, "Write /tmp/../etc/x", NO, id="not-up-again"),
        pytest.param(ARTIFACT, "Write tmp/x", NO, id="of-the-root-alone"),
        pytest.param("allowed_tools: ['Write(*.ts)', 'Write(artifact.json)', 'Write(src/**)']", "Write a/b.ts", YES, id="suffix"),
        pytest.param("allowed_tools: ['Write(*.ts)', 'Write(artifact.json)', 'Write(src/**)']", "Write a/artifact.json", YES, id="anywhere-without-a-slash"),
        pytest.param("allowed_tools: ['Write(*.ts)', 'Write(artifact.json)', 'Write(src/**)']", "Write src/a/b", YES, id="below"),
        pytest.param("allowed_tools: ['Write(*.ts)', 'Write(artifact.json)', 'Write(src/**)']", "Write a.tsx", NO, id="no-longer-suffix"),
        pytest.param("allowed_tools: [Write], deny: ['Write(src/x)']", "Write src/x", NO, id="denied-file"),
        pytest.param("allowed_tools: [Write], deny: ['Write(src/x)']", "Write src/x/y", NO, id="denied-directory"),
        pytest.param("allowed_tools: [Write], deny: ['Write(src/x)']", "Write /p/src/x", NO, id="denied-from-the-root"),
        pytest.param("allowed_tools: [Write], deny: ['Write(src/x)']", "Write src/xy", YES, id="beside-the-denied"),
        pytest.param("allowed_tools: [Write], deny: ['Write(./**/[ab].key)']", "Write x/c.key", NO, id="classes-deny-more"),
        pytest.param("allowed_tools: [Read], deny: ['Read(~/.ssh/*)']", "Read /home/u/.ssh/id", NO, id="denied-in-a-home"),
        pytest.param(CURL, "Bash curl https://x.org", YES, id="curl"),
        pytest.param(CURL, "Bash curl -X DELETE https://x.org", NO, id="denied-in-the-middle"),
        pytest.param(CURL, 'Bash curl "https://x.org" -X DELETE', NO, id="denied-behind-a-quote"),
        pytest.param(CURL, "Bash curl", YES, id="alone"),
        pytest.param(CURL, "Bash curly", NO, id="another-word"),
        pytest.param(CURL, "Bash gh --version", YES, id="exact"),
        pytest.param(CURL, "Bash gh --version x", NO, id="exact-alone"),
        pytest.param(CURL, "Bash ls -l", YES, id="ls"),
        pytest.param(CURL, "Bash lsof", (True, False), id="gemini-ends-words"),
        pytest.param(CURL, "Bash rm x", NO, id="denied"),
        pytest.param("allowed_tools: [Bash], deny: ['Bash(rm*)']", "Bash rmdir x", NO, id="denied-words-do-not-end"),
        pytest.param("allowed_tools: [Bash], deny: ['Bash(rm *)']", "Bash rm\tx", (True, False), id="opencode-knows-blanks-alone"),
        pytest.param("allowed_tools: [Bash], deny: ['Bash(rm *)']", "Bash rmdir x", YES, id="beside-the-denied-word"),
        pytest.param("allowed_tools: ['Bash(git log:*)']", "Bash git log -p", YES, id="older-spelling"),
        pytest.param("allowed_tools: ['Bash(git *)']", "Bash git log --output=x", YES, id="all-of-git"),
        pytest.param("allowed_tools: ['Bash(a * b)']", "Bash a x b", (True, False), id="gemini-knows-beginnings"),
        pytest.param("deny: ['Bash(7)']", "Bash 7", NO, id="an-integer-is-no-first-key"),
        pytest.param("deny: ['Bash(__proto__)']", "Bash __proto__", NO, id="no-key-of-javascript"),
        pytest.param("deny: ['Bash(~/x)']", "Bash ~/x", NO, id="home-is-not-expanded"),
        pytest.param("deny: ['Bash(:*)']", "Bash ls", NO, id="nothing-before-the-colon"),
        pytest.param("deny: ['Bash(x:* y)']", "Bash x a y", NO, id="something-behind-the-colon"),
        pytest.param("deny: ['Bash(rm :*)']", "Bash rm x", NO, id="a-blank-before-the-colon"),
        pytest.param("deny: ['Bash(*:*)']", "Bash rm x", NO, id="a-star-before-the-colon"),
        pytest.param("deny: ['Bash(mkdir *, rm *)']", "Bash rm x", NO, id="each-of-a-list"),
        pytest.param("deny: ['Bash(mkdir *, rm *)']", "Bash ls", YES, id="not-of-a-list"),
        pytest.param("deny: ['Bash(x, y:* z)']", "Bash ls", NO, id="a-list-that-cannot-be-told"),
        pytest.param("deny: ['Read(.env, n.txt)']", "Read n.txt", NO, id="each-path-of-a-list"),
        pytest.param("deny: ['Read({.env,n.txt})']", "Read n.txt", NO, id="braces"),
        pytest.param("deny: ['Edit(.)']", "Edit src/a", NO, id="the-whole-project"),
        pytest.param("deny: ['Edit(./)']", "Write src/a", (False, True), id="the-whole-project-of-one-tool"),
        pytest.param("deny: ['Read(**)']", "Read /etc/x", NO, id="every-path"),
        pytest.param("deny: ['Read(src/**/x)']", "Read src/x", NO, id="two-stars-are-no-directory"),
        pytest.param("deny: ['Read(src/**/x)']", "Read src/a/b/x", NO, id="two-stars-are-many"),
        pytest.param("deny: ['Read(a/../b)']", "Read b", NO, id="up-in-the-middle"),
        pytest.param("deny: ['Read($HOME/x)']", "Read /home/u/x", NO, id="a-variable"),
        pytest.param("deny: ['Read(~root/x)']", "Read /root/x", NO, id="another-home"),
        pytest.param("deny: ['Read(src//x)']", "Read src/x", NO, id="two-slashes"),
        pytest.param("deny: ['Read(!x)']", "Read a", NO, id="a-negation"),
        pytest.param("deny: ['Read(x\\)']", "Read x", NO, id="a-backslash-at-the-end"),
        pytest.param("allowed_tools: ['Bash(:*)']", "Bash x", NO, id="nothing-allowed-before-the-colon"),
        pytest.param("allowed_tools: ['Bash(x:* y)']", "Bash x: y", NO, id="nothing-allowed-behind-the-colon"),
        pytest.param("allowed_tools: ['Bash(ls :*)']", "Bash ls -l", YES, id="allowed-with-a-blank"),
        pytest.param("allowed_tools: ['Write($HOME/x)']", "Write $HOME/x", NO, id="no-variable-is-allowed"),
        pytest.param("allowed_tools: ['Write(src/)']", "Write src/x", YES, id="an-allowed-directory"),
        pytest.param("allowed_tools: ['Write(src/**/x)']", "Write src/x", YES, id="allowed-at-any-depth"),
        pytest.param("allowed_tools: ['Write(src/**/x)']", "Write src/ax", NO, id="allowed-by-its-whole-name"),
        pytest.param("allowed_tools: ['*']", "Other", YES, id="star"),
        pytest.param("allowed_tools: ['*']", "Bash x", YES, id="star-commands"),
        pytest.param("allowed_tools: ['*'], deny: [Bash, 'Edit(*)']", "Bash x", NO, id="star-but"),
        pytest.param("allowed_tools: ['*'], deny: [Bash, 'Edit(*)']", "Write x", YES, id="star-but-no-edit"),
        pytest.param("allowed_tools: ['*'], deny: ['*']", "Read x", NO, id="star-and-no-star"),
        pytest.param("allowed_tools: ['*'], deny: ['*']", "Other", NO, id="nothing-unknown-either"),
        pytest.param("", "Other", YES, id="no-list"),
        pytest.param("allowed_tools: []", "Read x", NO, id="empty-list"),
        pytest.param("allowed_tools: []", "Other", NO, id="empty-list-other"),
        pytest.param("allowed_tools: [Read], deny: [Read]", "Read x", NO, id="deny-wins"),
        pytest.param("allowed_tools: [Task, LS]", "Agent", YES, id="older-name"),
        pytest.param("allowed_tools: [Task, LS]", "Glob", YES, id="listing"),
        pytest.param("allowed_tools: [BashOutput, KillShell]", "Bash x", NO, id="no-shell-by-its-output"),
        pytest.param("allowed_tools: ['Web*']", "WebFetch", YES, id="names-with-a-star"),
        pytest.param("allowed_tools: ['WebFetch(domain:x.org)']", "WebFetch https://x.org", NO, id="domains-are-not-told"),
        pytest.param("allowed_tools: [WebFetch], deny: ['WebFetch(domain:x.org)']", "WebFetch https://y.org", NO, id="a-part-denies-the-whole"),
    ],
)
def test_a_call_is_decided_by_the_lists(lists: str, call: str, expected: tuple[bool, bool]) -> None:
    assert decided(persona(f"permissions: {{{lists}}}" if lists else "", BOTH), call) == expected


def test_in_gemini_a_call_is_known_by_its_own_arguments() -> None:
    found = persona("permissions: {allowed_tools: ['Bash(ls *)', 'Write(src/*)']}", GEMINI)
    assert by_gemini(found, "run_shell_command", command="ls x", description='{"command":"touch x"}')
    assert not by_gemini(found, "run_shell_command", command="touch x", description='"command":"ls "')
    assert not by_gemini(found, "write_file", file_path="/etc/x", content='\0"file_path":"src/x"\0')


# --- the files


def test_opencodes_file() -> None:
    more = "adapters: {opencode: {default_model: anthropic/sonnet}}\n"
    keys = "permissions: {allowed_tools: [Read, 'Bash(git log*)'], deny: ['Bash(git log --ext-diff*)']}, system_prompt_file: .agents/p.md"
    found = persona(keys, more)
    assert opencode_settings(found, found.agents[0]) == (
        """{
  "$schema": "https://opencode.ai/config.json",
  "autoupdate": false,
  "share": "disabled",
  "model": "anthropic/sonnet",
  "small_model": "anthropic/sonnet",
  "instructions": [
    "{env:WAVEGEN_PROJECT}/.wavegen/personas/p/AGENTS.md",
    "{env:WAVEGEN_PROJECT}/AGENTS.md",
    "{env:WAVEGEN_PROJECT}/.agents/p.md"
  ],
  "permission": {
    "*": "deny",
    "read": "allow",
    "glob": "deny",
    "grep": "deny",
    "list": "deny",
    "edit": "deny",
    "bash": {"*": "deny", "git log*": "allow", "git *--output=*": "deny", "git *--output *": "deny", "git log --ext-diff*": "deny"},
    "webfetch": "deny",
    "websearch": "deny",
    "task": "deny",
    "skill": "deny",
    "todowrite": "deny",
    "external_directory": "deny"
  }
}
"""
    )


def test_geminis_file() -> None:
    text = "personas: {p: {permissions: {allowed_tools: [Read, 'Bash(git log*)'], deny: ['Edit(*)']}}}\n"
    [file] = gemini.render(planned(text + GEMINI))
    assert file.path == ".wavegen/personas/p/gemini.toml"
    blocks = file.text.split("\n\n")
    assert blocks[0].startswith("# Generated by wavegen from wave.yaml.")
    assert blocks[3] == ('# wave.yaml: Bash(git log*)\n[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "git log"\ndecision = "allow"\npriority = 950')
    assert [(rule["toolName"], rule["decision"], rule["priority"]) for rule in tomllib.loads(file.text)["rule"]] == [
        ("*", "deny", 900),
        (["read_file", "read_many_files"], "allow", 950),
        ("run_shell_command", "allow", 950),
        ("replace", "deny", 980),
        ("run_shell_command", "deny", 980),
        ("run_shell_command", "deny", 980),
    ]


def test_a_program_has_its_file_and_no_other() -> None:
    text = "personas: {a: {adapter: opencode}, b: {adapter: gemini}, c: {adapter: claude}, d: {adapter: codex}}\n"
    found = planned(text + "adapters: {opencode: {}, gemini: {}, claude: {}, codex: {}}\n")
    assert [file.path for backend in (opencode, gemini) for file in backend.render(found)] == [
        ".wavegen/personas/a/opencode.json",
        ".wavegen/personas/b/gemini.toml",
    ]


def test_nothing_of_a_manifest_is_expanded_by_opencode() -> None:
    text = "{env:WAVEGEN_PROJECT} {env:HOME} {file:/etc/passwd}"
    found = persona(f"permissions: {{deny: ['Bash({text}*)']}}, system_prompt_file: 'a {text}.md'", OPENCODE)
    shown = opencode_settings(found, found.agents[0])
    assert re.findall(r"\{(?:env|file):[^}]+\}", shown) == [PROJECT] * 3
    read = json.loads(shown)
    assert read["permission"]["bash"] == {"*": "allow", f"{text}*": "deny"}
    assert read["instructions"][2] == f"{PROJECT}/a {text}.md"


@pytest.mark.parametrize(
    ("keys", "more", "outside"),
    [
        pytest.param("permissions: {allowed_tools: [Read]}", OPENCODE, "deny", id="project-alone"),
        pytest.param("", OPENCODE, "allow", id="everything"),
        pytest.param("permissions: {allowed_tools: ['Write(/tmp/*)']}", OPENCODE, "allow", id="named"),
        pytest.param(
            "permissions: {allowed_tools: [Read]}", OPENCODE + "runtime: {sandbox: {paths: [{path: ~/.cache/x, access: read}]}}\n", "allow", id="granted"
        ),
        pytest.param("permissions: {allowed_tools: [Read]}", OPENCODE + "runtime: {sandbox: {deny_read_paths: [~/.cache/x]}}\n", "deny", id="hidden"),
        pytest.param("permissions: {allowed_tools: [Read]}", OPENCODE + "runtime: {sandbox: {paths: [{path: vendor, access: read}]}}\n", "deny", id="inside"),
    ],
)
def test_what_is_outside_is_opencodes_to_deny_only_where_nothing_is_granted(keys: str, more: str, outside: str) -> None:
    assert opencode_permissions(persona(keys, more))["external_directory"] == outside


@pytest.mark.parametrize(
    ("specifier", "allowed", "denied"),
    [
        ("src/x", ("src/x", False, False), "src/x"),
        ("./src/x", ("src/x", False, False), "src/x"),
        ("x", ("x", False, True), "x"),
        ("**/x/y", ("x/y", False, True), "x/y"),
        ("/tmp/*", ("tmp/*", True, False), "tmp/*"),
        ("//tmp/*", ("tmp/*", True, False), "tmp/*"),
        ("~/x", None, "x"),
        ("../x", None, "x"),
        ("a/../b", None, "*"),
        (".", None, "*"),
        ("..", None, "*"),
        ("./", None, "*"),
        ("src/./x//y", ("src/x/y", False, False), "src/x/y"),
        ("src/", ("src/*", False, False), "src"),
        ("src/**/x", ("src/**/x", False, False), "src/*x"),
        ("**", ("**", False, True), "*"),
        ("x:*", None, "*"),
        ("!x", None, "*"),
        ("$HOME/x", None, "x"),
        ("~other/x", None, "x"),
        ("~x", None, "*x"),
        ("[ab]/{c,d}", None, "*/*"),
        ("a\\b", None, "a*b"),
        ("/", None, "*"),
    ],
)
def test_paths(specifier: str, allowed: tuple[str, bool, bool] | None, denied: str) -> None:
    found = allowed_path(specifier)
    assert (found and (found.tail, found.absolute, found.deep)) == allowed
    assert denied_path(specifier) == denied


# --- Codex


@pytest.mark.parametrize(
    ("lists", "options"),
    [
        ("", ()),
        ("permissions: {allowed_tools: [Bash, WebSearch, Task]}", ()),
        ("permissions: {allowed_tools: [Bash, Agent]}", ("-c", "web_search=disabled")),
        ("permissions: {deny: ['Bash(*)']}", ("--disable", "shell_tool")),
        ("permissions: {allowed_tools: ['Bash(git log*)', WebSearch, Agent]}", ("--disable", "shell_tool")),
        ("permissions: {deny: ['Bash(sudo *)', Task]}", ("--disable", "multi_agent")),
        ("permissions: {allowed_tools: []}", ("-c", "web_search=disabled", "--disable", "shell_tool", "--disable", "multi_agent")),
    ],
)
def test_codex_is_told_which_tools_are_off(lists: str, options: tuple[str, ...]) -> None:
    assert codex_options(persona(lists, "adapters: {codex: {}}\n")) == options


# --- gaps


def said(text: str) -> list[tuple[str, str, str, str]]:
    """Place, program, effect and the beginning of each gap of the programs."""
    own = [gap for gap in collect_gaps(planned(text)) if gap.backend in ("opencode", "gemini", "programs")]
    assert all((gap.remedy and gap.shell.startswith("persona-")) or gap.shell.endswith(" personas") for gap in own)
    return [(str(gap.origin).partition(": ")[0], gap.backend, gap.effect.value, " ".join(gap.what.split()[:4])) for gap in own]


NOT_TOLD = ("wave.yaml:3", "gemini", "ignored", "gemini does not read")


@pytest.mark.parametrize(
    ("keys", "more", "expected"),
    [
        pytest.param("", OPENCODE, [], id="no-lists"),
        pytest.param("permissions: {allowed_tools: [Read]}", OPENCODE, [], id="whole-tools"),
        pytest.param(
            "permissions: {allowed_tools: [Read, 'Bash(git log*)']}",
            OPENCODE,
            [("wave.yaml:3", "opencode", "weaker", "command patterns are no"), ("wave.yaml:3", "opencode", "weaker", "files that a session")],
            id="commands",
        ),
        pytest.param(
            "permissions: {deny: ['Bash(sudo *)']}",
            OPENCODE,
            [("wave.yaml:3", "opencode", "weaker", "command patterns are no")],
            id="denied-commands",
        ),
        pytest.param(
            "permissions: {allowed_tools: [Edit]}",
            OPENCODE,
            [("wave.yaml:3", "opencode", "weaker", "files that a session"), ("wave.yaml:3", "opencode", "weaker", "editing and writing files")],
            id="edit-is-write",
        ),
        pytest.param(
            "permissions: {allowed_tools: ['Bash(:*)', 'Bash(ls, pwd)'], deny: ['Bash(x:* y)', 'Bash(a, b)']}",
            OPENCODE,
            [
                ("wave.yaml:2", "opencode", "stricter", "Bash(ls, pwd) is one"),
                ("wave.yaml:2", "opencode", "stricter", "Bash(a, b) is one"),
                ("wave.yaml:3", "opencode", "weaker", "command patterns are no"),
                ("wave.yaml:3", "opencode", "weaker", "files that a session"),
                ("wave.yaml:2", "opencode", "stricter", "Bash(:*) is not allowed:"),
                ("wave.yaml:2", "opencode", "stricter", "Bash(x:* y) denies the"),
            ],
            id="commands-that-cannot-be-told",
        ),
        pytest.param(
            "permissions: {allowed_tools: ['Write(~/x)', 'WebFetch(domain:x)', Odd], deny: ['WebFetch(domain:y)', Odder]}",
            OPENCODE,
            [
                ("wave.yaml:2", "opencode", "stricter", "WebFetch(domain:x) is not allowed:"),
                ("wave.yaml:2", "opencode", "stricter", "Odd is not allowed:"),
                ("wave.yaml:2", "opencode", "stricter", "WebFetch(domain:y) denies the whole"),
                ("wave.yaml:3", "opencode", "weaker", "files that a session"),
                ("wave.yaml:3", "opencode", "weaker", "editing and writing files"),
                ("wave.yaml:3", "opencode", "stricter", "paths are compared from"),
                ("wave.yaml:2", "opencode", "stricter", "Write(~/x) is not allowed:"),
            ],
            id="what-cannot-be-told",
        ),
        pytest.param("permissions: {deny: [mcp__x__y]}", OPENCODE, [("wave.yaml:2", "opencode", "ignored", "mcp__x__y is not denied:")], id="mcp"),
        pytest.param(
            "permissions: {allowed_tools: [Read, Grep], deny: ['Read(.env)']}",
            OPENCODE,
            [
                ("wave.yaml:3", "opencode", "stricter", "paths are compared from"),
                ("wave.yaml:2", "opencode", "weaker", "Read(.env) stops reading, not"),
            ],
            id="searching-shows",
        ),
        pytest.param("hooks: {PreToolUse: [{command: lint}]}", OPENCODE, [("wave.yaml:2", "opencode", "ignored", "opencode does not run")], id="hooks"),
        pytest.param("model: opus", OPENCODE, [("wave.yaml:3", "opencode", "ignored", "model 'opus' names no")], id="model"),
        pytest.param("", GEMINI, [NOT_TOLD], id="gemini"),
        pytest.param(
            "permissions: {allowed_tools: ['Bash(a * b)', 'Bash(ls*)', 'Write(src/*)'], deny: [NotebookEdit]}",
            GEMINI,
            [
                NOT_TOLD,
                ("wave.yaml:3", "gemini", "weaker", "command patterns are no"),
                ("wave.yaml:3", "gemini", "weaker", "files that a session"),
                ("wave.yaml:2", "gemini", "stricter", "Bash(a * b) is"),
                ("wave.yaml:3", "gemini", "weaker", "paths are known by"),
                ("wave.yaml:2", "gemini", "weaker", "notebooks are files like"),
            ],
            id="gemini-patterns",
        ),
        pytest.param(
            f"permissions: {{deny: ['Bash({'*?' * 300})']}}",
            GEMINI,
            [NOT_TOLD, ("wave.yaml:3", "gemini", "weaker", "command patterns are no"), ("wave.yaml:2", "gemini", "stricter", "a pattern is longer")],
            id="gemini-too-long",
        ),
        pytest.param("", "adapters: {codex: {}}\n", [], id="codex-without-lists"),
        pytest.param("preset: navigator", "adapters: {codex: {}}\n", [("wave.yaml:3", "programs", "weaker", "codex knows whole tools")], id="codex"),
        pytest.param("", "adapters: {other: {}}\n", [], id="other-without-lists"),
        pytest.param("preset: navigator", "adapters: {other: {}}\n", [("wave.yaml:3", "programs", "ignored", "tool lists have no")], id="other"),
        pytest.param("preset: navigator", "adapters: {claude: {}}\n", [], id="claude"),
    ],
)
def test_what_is_not_held_is_said(keys: str, more: str, expected: list[tuple[str, str, str, str]]) -> None:
    assert said(f"personas: {{p: {{{keys}}}}}\n{more}") == expected


def test_a_gap_of_many_personas_is_one() -> None:
    many = ", ".join(f"p{i}: {{preset: navigator}}" for i in range(31))
    for more, number in ((OPENCODE, 2), (GEMINI, 3), ("adapters: {codex: {}}\n", 1), ("adapters: {other: {}}\n", 1)):
        assert len(said(f"personas: {{{many}}}\n{more}")) == number


def test_settings_of_the_home_do_not_last_in_a_fence_and_without_one_a_gap_says_so() -> None:
    found = planned(f"personas: {{p: {{}}}}\n{OPENCODE}")
    [known] = found.personas
    empty = {str(rule.path) for rule in known.fence.paths if rule.path.anchor is Anchor.HOME and rule.access is Access.SCRATCH}
    assert empty == {"~/.config/opencode", "~/.opencode"}
    assert list(opencode.gaps(found)) == []
    without = replace(known, fence=replace(known.fence, paths=tuple(rule for rule in known.fence.paths if str(rule.path) not in empty)))
    [said] = opencode.gaps(replace(found, personas=(without,)))
    assert "home" in said.what
    # What is hidden is the host's: what the private home has there stays.
    paths = tuple(replace(rule, access=Access.HIDE) if str(rule.path) in empty else rule for rule in known.fence.paths)
    assert list(opencode.gaps(replace(found, personas=(replace(known, fence=replace(known.fence, paths=paths)),)))) == [said]


def test_what_a_session_leaves_is_said_by_the_first_program_alone() -> None:
    more = "adapters: {codex: {}, gemini: {}, opencode: {}, claude: {}}\nruntime: {fallbacks: {codex: [gemini, opencode, claude]}}\n"
    found = planned(f"personas: {{p: {{preset: navigator, adapter: codex}}}}\n{more}")
    assert [gap.backend for gap in collect_gaps(found) if "files that a session" in gap.what] == ["gemini"]


# --- every real manifest, as if these programs worked as its personas

PERMISSIONS = ["*", "read", "glob", "grep", "list", "edit", "bash", "webfetch", "websearch", "task", "skill", "todowrite", "external_directory"]
TOOLS = {
    *("*", "read_file", "read_many_files", "glob", "list_directory", "grep_search", "replace", "write_file", "run_shell_command"),
    *("web_fetch", "google_web_search", "invoke_agent", "activate_skill", "write_todos"),
}
NESTED = re.compile(r"\([^)]*[*+?{].*\)[*+?{]")


def holds_opencode(text: str) -> None:
    """What opencode's own check would let pass, or take in another order."""
    read: dict[str, Any] = json.loads(text)
    optional = {"model", "small_model"} & set(read)
    assert set(read) - optional == {"$schema", "autoupdate", "share", "instructions", "permission"}
    assert (read["autoupdate"], read["share"]) == (False, "disabled")
    assert all(path.startswith(f"{PROJECT}/") for path in read["instructions"])
    assert text.count("{env:") == len(read["instructions"])
    assert "{file:" not in text
    assert list(read["permission"]) == PERMISSIONS
    for rule in read["permission"].values():
        if isinstance(rule, str):
            assert rule in ("allow", "deny")
            continue
        [(first, _), *others] = rule.items()
        assert (first, set(rule.values())) == ("*", {"allow", "deny"})
        actions = [action for _, action in others]
        assert actions == sorted(actions)  # allow before deny
        assert not any(re.fullmatch("0|[1-9][0-9]*|__proto__", key) for key in rule if rule[key] == "deny")


def holds_gemini(text: str) -> None:
    """What Gemini CLI would skip, the rule or the whole file."""
    read: dict[str, Any] = tomllib.loads(text)
    assert set(read) == {"rule"}
    for number, rule in enumerate(read["rule"]):
        assert set(rule) <= {"toolName", "commandPrefix", "commandRegex", "argsPattern", "decision", "priority", "denyMessage"}
        tools = rule["toolName"] if isinstance(rule["toolName"], list) else [rule["toolName"]]
        assert tools
        assert set(tools) <= TOOLS
        assert rule["priority"] == (900 if number == 0 else {"allow": 950, "deny": 980}[rule["decision"]])
        assert (tools == ["*"]) == (number == 0)
        keys = [key for key in ("commandPrefix", "commandRegex", "argsPattern") if key in rule]
        assert len(keys) <= 1
        assert not keys or len(tools) == 1
        assert not {"commandPrefix", "commandRegex"} & set(keys) or tools == ["run_shell_command"]
        for key in keys:
            assert rule[key].strip()
            if key != "commandPrefix":
                re.compile(rule[key])
                assert len(rule[key]) < 2000
                assert not NESTED.search(rule[key])


def agent(kind: AgentKind) -> Agent:
    return Agent(adapter=kind.value, kind=kind, binary=kind.value, model="anthropic/x", headless=True, hosts=(), origin=Origin("x"))


def run_by_these(found: Plan) -> Plan:
    agents = tuple(map(agent, AgentKind))
    return replace(found, personas=tuple(replace(known, agents=agents) for known in found.personas))


@cache
def real() -> tuple[Plan, ...]:
    names = [file for file in manifests() if file.stem not in REFUSED]
    return tuple(run_by_these(plan_manifest(Source("wave.yaml", file.read_bytes()), None, "wave.sandbox.yaml")) for file in names)


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real manifests is not beside the repository")
def test_every_persona_of_every_real_manifest_is_told_what_the_programs_understand() -> None:
    seen = 0
    for found in real():
        for file in opencode.render(found):
            holds_opencode(file.text)
            seen += 1
        for file in gemini.render(found):
            holds_gemini(file.text)
            seen += 1
        assert all(gap.remedy for gap in collect_gaps(found))
    assert seen > 1000


HOSTILE = ("(a*b)*", "[x](y)?", '"\\', "a|b", "$(x)", "^x$", "{1,2}", "é😀", "a'b", "'''", '"""', "\\x00", "~", "a  b*", "?*?", "*/../*", "x" * 3000)


def hostile(*, allowed: slice, denied: slice) -> Plan:
    """A plan with one persona, in whose lists some of these patterns stand."""
    patterns = [f"{tool}({text})" for tool in ("Bash", "Write", "Read", "Edit", "WebFetch", "*") for text in HOSTILE]
    lists = {"allowed_tools": patterns[allowed], "deny": patterns[denied]}
    return run_by_these(planned(f"personas: {{p: {{permissions: {json.dumps(lists, ensure_ascii=False)}}}}}\n"))


NONE, ALL, EVEN, ODD = slice(0), slice(None), slice(0, None, 2), slice(1, None, 2)


@pytest.mark.parametrize(("allowed", "denied"), [(ALL, NONE), (NONE, ALL), (EVEN, ODD), (ODD, EVEN), (ALL, ALL)])
def test_any_pattern_leaves_the_files_sound(allowed: slice, denied: slice) -> None:
    found = hostile(allowed=allowed, denied=denied)
    for file in opencode.render(found):
        holds_opencode(file.text)
    for file in gemini.render(found):
        holds_gemini(file.text)
    assert list(collect_gaps(found))


# --- the programs themselves


def chosen() -> list[PersonaPolicy]:
    """The presets, lists as real manifests have them, and hostile ones."""
    found = [persona(f"preset: {preset}", BOTH) for preset in PRESETS]
    found += [persona(f"permissions: {{{lists}}}", BOTH) for lists in (ARTIFACT, CURL, "allowed_tools: ['*']", "allowed_tools: []")]
    return [*found, *hostile(allowed=EVEN, denied=ODD).personas, *hostile(allowed=ODD, denied=EVEN).personas]


@pytest.mark.needs("opencode")
def test_opencode_reads_what_it_is_told(tmp_path: Path) -> None:
    program = os.environ.get("WAVEGEN_OPENCODE") or "opencode"
    switches = ("DISABLE_PROJECT_CONFIG", "DISABLE_AUTOUPDATE", "DISABLE_MODELS_FETCH", "DISABLE_LSP_DOWNLOAD")
    for number, found in enumerate(chosen()):
        file = tmp_path / f"{number}.json"
        text = opencode_settings(found, agent(AgentKind.OPENCODE))
        file.write_text(text, "utf-8")
        env = {**os.environ, "OPENCODE_CONFIG": str(file), "WAVEGEN_PROJECT": str(tmp_path), **{f"OPENCODE_{name}": "1" for name in switches}}
        done = subprocess.run([program, "debug", "config"], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        expected = json.loads(text.replace(PROJECT, str(tmp_path)))
        assert {key: shown[key] for key in expected} == expected
        for name, rule in expected["permission"].items():
            if isinstance(rule, dict):  # in the same order, too
                assert list(shown["permission"][name]) == list(rule)


@pytest.mark.needs("gemini")
def test_gemini_finds_no_mistake_in_what_it_is_told(tmp_path: Path, private_home: Path) -> None:
    """It reads the policy before it looks for a key, and there is none."""
    program = os.environ.get("WAVEGEN_GEMINI") or "gemini"
    keys = {name for name in os.environ if name.startswith(("GEMINI_", "GOOGLE_"))}
    env = {name: value for name, value in os.environ.items() if name not in keys} | {"GEMINI_CLI_HOME": str(private_home), "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    policies = tmp_path / "policies"
    policies.mkdir()

    def told(*texts: str) -> str:
        for number, text in enumerate(texts):
            (policies / f"{number}.toml").write_text(text, "utf-8")
        argv = [program, "--approval-mode", "yolo", "--admin-policy", str(policies), "-p", "x"]
        done = subprocess.run(argv, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
        return done.stderr

    texts = ["\n\n".join("\n".join(rule.toml_lines()) for rule in gemini_policy_rules(found)) + "\n" for found in chosen()]
    assert "olicy file" not in told(*texts)
    assert "Policy file error in 0.toml" in told("[[rule]]\ntoolName = '*'\ndecision = 'no'\npriority = 1\n")
