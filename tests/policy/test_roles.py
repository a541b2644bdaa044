"""Personas as policies: which fence, which programs, which tools; and what is refused at which line."""

from __future__ import annotations

import pytest

from wavegen.backends import collect_gaps
from wavegen.core.errors import InvalidValueError, Location, ManifestError, Severity
from wavegen.manifest.decoder import Text
from wavegen.manifest.model import Adapter, NetworkMode
from wavegen.manifest.presets import PRESETS
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.known_agents import agent_of, agent_variables, hosts_of, kind_of, model_of
from wavegen.policy.model import Access, Agent, AgentKind, Origin, PersonaPolicy, Plan
from wavegen.policy.persona_tools import TOOLS, tool_pattern
from wavegen.policy.planner import plan_manifest

CLAUDE = "adapters: {claude: {binary: claude, mode: headless}}\n"


def planned(text: str) -> Plan:
    return plan_manifest(Source("wave.yaml", f"metadata: {{name: demo}}\n{text}".encode()), None, "wave.sandbox.yaml")


def persona(text: str, more: str = CLAUDE) -> PersonaPolicy:
    """The policy of a persona `p`."""
    [found] = planned(f"personas: {{p: {{{text}}}}}\n{more}").personas
    return found


def mistakes(text: str) -> list[tuple[str, str]]:
    """Place and text of each error of a manifest."""
    with pytest.raises(ManifestError) as caught:
        planned(text)
    return [(str(p.at), p.what) for p in caught.value.problems if p.severity is Severity.ERROR]


def notes(text: str) -> list[tuple[str, str, str]]:
    return [(str(note.at), note.severity.value, note.what) for note in planned(text).notes]


def domains(found: PersonaPolicy) -> list[str]:
    return [str(rule) for rule in found.fence.network.domains]


# --- tool patterns


@pytest.mark.parametrize(
    ("text", "tool", "specifier"),
    [
        ("Read", "Read", None),
        (" Read ", "Read", None),
        ("*", "*", None),
        ("Write(*)", "Write", None),
        ("Write( * )", "Write", None),
        ("bash", "Bash", None),
        ("BASH(git log*)", "Bash", "git log*"),
        ("webfetch(domain:x.org)", "WebFetch", "domain:x.org"),
        ("Bash(echo (x))", "Bash", "echo (x)"),
        ("Bash(rm -rf /*)", "Bash", "rm -rf /*"),
        ("mcp__github__create_issue", "mcp__github__create_issue", None),
        ("mcp__github__*", "mcp__github__*", None),
        ("SpecialTool", "SpecialTool", None),
    ],
)
def test_a_tool_pattern_is_a_tool_or_some_of_its_calls(text: str, tool: str, specifier: str | None) -> None:
    found = tool_pattern(Text(text, Location("wave.yaml", 3, 5)))
    assert (found.tool, found.specifier, str(found.origin)) == (tool, specifier, "wave.yaml:3")
    assert str(found) == (tool if specifier is None else f"{tool}({specifier})")


@pytest.mark.parametrize(
    "text", ["", " ", "Bash(", "Bash)", "Bash(rm -rf /)*", "Bash()", "Bash( )", "(x)", "a b", "-x", "Bash(a\nb)", "Bash(\x1b[2J)", "é", "**"]
)
def test_what_an_agent_would_skip_is_an_error(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        tool_pattern(Text(text, Location("wave.yaml")))
    assert caught.value.hint


@pytest.mark.parametrize("key", ["allowed_tools: [Read, 'Bash(rm)x']", "deny: ['Bash(rm)x', Read]"])
def test_a_pattern_that_says_nothing_is_an_error_at_its_line(key: str) -> None:
    [(at, what)] = mistakes(f"personas:\n  p:\n    permissions: {{{key}}}\n")
    assert at.startswith("wave.yaml:4:")
    assert what == "'Bash(rm)x' is not a tool pattern"


def test_a_hook_is_a_matcher_and_a_command() -> None:
    found = persona("hooks: {PreToolUse: [{matcher: 'Bash(git commit*)', command: lint.sh}], PostToolUse: [{command: go test}]}").hooks
    assert [(hook.before, str(hook.matcher), hook.command, str(hook.origin)) for hook in found] == [
        (True, "Bash(git commit*)", "lint.sh", "wave.yaml:2"),
        (False, "*", "go test", "wave.yaml:2"),
    ]
    assert mistakes("personas: {p: {hooks: {PreToolUse: [{matcher: Bash}]}}}\n") == [("wave.yaml:2:37", "a hook has no command")]
    assert mistakes("personas: {p: {hooks: {PreToolUse: [{matcher: 'Bash(', command: x}]}}}\n") == [("wave.yaml:2:47", "'Bash(' is not a tool pattern")]


# --- programs


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("claude", AgentKind.CLAUDE),
        ("/opt/bin/claude", AgentKind.CLAUDE),
        ("codex", AgentKind.CODEX),
        ("gemini", AgentKind.GEMINI),
        ("opencode", AgentKind.OPENCODE),
        ("opencode-patched", AgentKind.OPENCODE),
        ("claudette", AgentKind.OTHER),
        ("other", AgentKind.OTHER),
        ("ls", AgentKind.OTHER),
        ("", AgentKind.OTHER),
    ],
)
def test_a_program_is_known_by_its_name(command: str, kind: AgentKind) -> None:
    assert kind_of(command) is kind


@pytest.mark.parametrize(
    ("kind", "model", "hosts"),
    [
        (AgentKind.CLAUDE, "", ("api.anthropic.com",)),
        (AgentKind.CODEX, "o3", ("api.openai.com",)),
        (AgentKind.GEMINI, "", ("generativelanguage.googleapis.com",)),
        (AgentKind.OPENCODE, "anthropic/claude-sonnet-4-5", ("api.anthropic.com",)),
        (AgentKind.OPENCODE, "zai-coding-plan/glm-5-turbo", ("api.z.ai",)),
        (AgentKind.OPENCODE, "ollama/qwen3.5:27b", ()),
        (AgentKind.OPENCODE, "", ()),
        (AgentKind.OTHER, "anthropic/x", ("api.anthropic.com",)),
        (AgentKind.OTHER, "x", ()),
    ],
)
def test_a_model_is_served_somewhere(kind: AgentKind, model: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of(kind, model) == hosts


def adapter(default: str = "", **tiers: str) -> Adapter:
    at = Location("wave.yaml")
    return Adapter(default_model=Text(default, at), tier_models={name: Text(value, at) for name, value in tiers.items()})


@pytest.mark.parametrize(
    ("kind", "of", "wanted", "model"),
    [
        pytest.param(AgentKind.CLAUDE, adapter(), "", "", id="nothing"),
        pytest.param(AgentKind.CLAUDE, adapter("sonnet"), "", "sonnet", id="default"),
        pytest.param(AgentKind.CLAUDE, adapter("sonnet"), "opus", "opus", id="literal"),
        pytest.param(AgentKind.CLAUDE, adapter(), "cheapest", "haiku", id="tier-of-ours"),
        pytest.param(AgentKind.CLAUDE, adapter(), "fastest", "haiku", id="older-tier"),
        pytest.param(AgentKind.CLAUDE, adapter(), "strongest", "opus", id="strongest"),
        pytest.param(AgentKind.CLAUDE, adapter("sonnet"), "balanced", "sonnet", id="balanced-is-the-default"),
        pytest.param(AgentKind.CLAUDE, adapter(cheapest="claude-haiku-4-5"), "cheapest", "claude-haiku-4-5", id="tier-of-the-manifest"),
        pytest.param(AgentKind.CLAUDE, adapter(strongest="default"), "strongest", "default", id="an-alias-of-claudes"),
        pytest.param(AgentKind.OPENCODE, adapter("opencode/big-pickle", strongest="default"), "strongest", "opencode/big-pickle", id="no-name-elsewhere"),
        pytest.param(AgentKind.OPENCODE, adapter(), "strongest", "", id="unknown-tier"),
        pytest.param(AgentKind.OPENCODE, adapter("a/b", cheapest="ollama/x"), "cheapest", "ollama/x", id="local"),
    ],
)
def test_a_tier_is_a_model_of_the_adapter(kind: AgentKind, of: Adapter, wanted: str, model: str) -> None:
    assert model_of(kind, of, wanted) == model


def test_fallbacks_are_programs_too_with_the_tier_and_not_with_the_name_of_anothers_model() -> None:
    more = (
        "adapters: {claude: {}, opencode: {default_model: openai/o3, tier_models: {strongest: google/g}}, other: {}}\n"
        "runtime: {fallbacks: {claude: [opencode, claude, opencode, nobody, other]}}\n"
    )
    for model, expected in (("opus", ["opus", "openai/o3", ""]), ("strongest", ["opus", "google/g", ""])):
        found = persona(f"adapter: claude, model: {model}", more)
        assert [(agent.adapter, agent.model) for agent in found.agents] == list(zip(("claude", "opencode", "other"), expected, strict=True))
    assert domains(persona("adapter: claude, model: opus", more)) == ["api.anthropic.com", "api.openai.com"]
    assert ("wave.yaml:4:60", "warning", "runtime.fallbacks: there is no adapter 'nobody'") in notes(f"personas: {{p: {{}}}}\n{more}")


def test_a_persona_without_an_adapter_starts_nothing_and_has_a_fence_all_the_same() -> None:
    found = persona("permissions: {allowed_tools: [Read]}", "")
    assert (found.agents, found.fence.fenced, found.project_writable) == ((), True, False)


def test_an_adapter_that_is_declared_nowhere_is_the_command_of_its_name() -> None:
    [agent] = persona("adapter: claude", "").agents
    assert (agent.binary, agent.kind, agent.hosts) == ("claude", AgentKind.CLAUDE, ("api.anthropic.com",))


def test_an_agent_is_headless_unless_it_is_interactive() -> None:
    for mode, headless in (("headless", True), ("interactive", False), ("''", True)):
        [agent] = persona("", f"adapters: {{claude: {{mode: {mode}}}}}\n").agents
        assert agent.headless is headless


def test_variables_of_a_program_are_told_once() -> None:
    agent = agent_of("claude", Adapter(), "", Origin("x"))
    assert [rule.name for rule in agent_variables((agent, agent))].count("DISABLE_TELEMETRY") == 1
    assert "DISABLE_TELEMETRY" in {rule.name for rule in persona("").fence.environment if rule.value == "1"}
    assert agent_variables((Agent(adapter="x", kind=AgentKind.OTHER, binary="x", model="", headless=True, hosts=(), origin=Origin("x")),)) == ()


# --- the API host


def sandbox(keys: str) -> str:
    return CLAUDE + f"runtime:\n  sandbox:\n    {keys}\n"


@pytest.mark.parametrize(
    ("own", "more", "expected", "said"),
    [
        pytest.param("", CLAUDE, ["api.anthropic.com"], [], id="no-list-at-all"),
        pytest.param("", sandbox("default_allowed_domains: [x.org]"), ["api.anthropic.com", "x.org"], ["wave.yaml:6:30"], id="default-list"),
        pytest.param("allowed_domains: [x.org]", CLAUDE, ["api.anthropic.com", "x.org"], ["wave.yaml:2:43"], id="own-list"),
        pytest.param("allowed_domains: [api.anthropic.com]", CLAUDE, ["api.anthropic.com"], [], id="listed"),
        pytest.param("allowed_domains: ['api.anthropic.com:443']", CLAUDE, ["api.anthropic.com:443"], [], id="listed-by-port"),
        pytest.param("allowed_domains: ['*.anthropic.com']", CLAUDE, ["*.anthropic.com"], [], id="listed-by-a-wildcard"),
        pytest.param("allowed_domains: ['api.anthropic.com:*']", CLAUDE, ["api.anthropic.com:*"], [], id="listed-with-every-port"),
        pytest.param(
            "shell: ci, allowed_domains: [pypi.org]",
            CLAUDE + "runtime: {sandbox: {shells: {ci: {domains: [pypi.org, api.anthropic.com]}}}}\n",
            ["api.anthropic.com", "pypi.org"],
            ["wave.yaml:2:54"],
            id="within-the-bound-of-its-shell",
        ),
        pytest.param("allowed_domains: ['api.anthropic.com:22']", CLAUDE, ["api.anthropic.com", "api.anthropic.com:22"], ["wave.yaml:2:43"], id="another-port"),
        pytest.param("shell: default", CLAUDE, [], [], id="network-of-the-host"),
    ],
)
def test_the_api_host_is_added_and_said(own: str, more: str, expected: list[str], said: list[str]) -> None:
    text = f"personas: {{p: {{sandbox: {{{own}}}}}}}\n{more}"
    [found] = planned(text).personas
    assert domains(found) == expected
    assert [at for at, severity, what in notes(text) if severity == "note" and "is added for personas" in what] == said


@pytest.mark.parametrize(
    ("own", "more", "expected"),
    [
        pytest.param(
            "allowed_domains: []", CLAUDE, ("wave.yaml:2:43", "adapter claude is served at api.anthropic.com, and there is no network here"), id="none"
        ),
        pytest.param(
            "",
            sandbox("default_allowed_domains: []"),
            ("wave.yaml:6:30", "adapter claude is served at api.anthropic.com, and there is no network here"),
            id="no-default",
        ),
        pytest.param(
            "shell: s",
            sandbox("shells: {s: {network: none}}"),
            ("wave.yaml:6:27", "adapter claude is served at api.anthropic.com, and there is no network here"),
            id="shell-without",
        ),
        pytest.param(
            "shell: s",
            sandbox("shells: {s: {domains: [x.org]}}"),
            ("wave.yaml:6:27", "adapter claude is served at api.anthropic.com, which is not among the domains of shell s"),
            id="bound",
        ),
        pytest.param(
            "",
            sandbox("denied_domains: ['*.anthropic.com']"),
            ("wave.yaml:6:22", "adapter claude is served at api.anthropic.com, which is denied here"),
            id="denied",
        ),
        pytest.param(
            "shell: s",
            sandbox("shells: {s: {network: open, denied_domains: [api.anthropic.com]}}"),
            ("wave.yaml:6:50", "adapter claude is served at api.anthropic.com, which is denied here"),
            id="denied-of-all",
        ),
    ],
)
def test_an_agent_that_cannot_reach_its_model_is_an_error(own: str, more: str, expected: tuple[str, str]) -> None:
    assert mistakes(f"personas: {{p: {{sandbox: {{{own}}}}}}}\n{more}") == [expected]


@pytest.mark.parametrize("keys", ["enabled: false, default_allowed_domains: []", "shells: {restricted: {sandbox: false}}"])
def test_where_nothing_is_fenced_nothing_is_out_of_reach(keys: str) -> None:
    more = CLAUDE + f"runtime: {{sandbox: {{{keys}}}}}\n"
    if "shells" in keys:
        more = more.replace("restricted", "open")
        assert notes(f"personas: {{p: {{sandbox: {{shell: open}}}}}}\n{more}") == []
    else:
        assert notes(f"personas: {{p: {{}}}}\n{more}") == []


def test_the_same_absence_is_said_once_for_all_personas() -> None:
    many = ", ".join(f"p{i}: {{}}" for i in range(31))
    assert len(mistakes(f"personas: {{{many}}}\n{sandbox('default_allowed_domains: []')}")) == 1


# --- the fence


def test_the_fence_of_a_persona_is_its_shells_and_narrower() -> None:
    more = sandbox(
        "env_passthrough: [ANTHROPIC_API_KEY, GH_TOKEN]\n    deny_read_paths: [.env]\n    limits: {pids: 64}\n"
        "    paths: [{path: vendor, access: write}, {path: ~/.cache/x, access: write}]\n    shells: {s: {network: host, env_passthrough: [OWN]}}"
    )
    found = persona("sandbox: {shell: s, deny_read_paths: [secrets], env_passthrough: [OWN, ANTHROPIC_API_KEY]}, permissions: {allowed_tools: [Read]}", more)
    shell = planned(f"personas: {{}}\n{more}").find_shell("s")
    assert shell is not None
    fence = found.fence
    rules = {str(rule.path): rule for rule in fence.paths}
    assert (fence.name, fence.limits, fence.seccomp, fence.packages, fence.network.mode) == (
        "persona-p",
        shell.limits,
        shell.seccomp,
        shell.packages,
        NetworkMode.HOST,
    )
    assert [rules[path].access for path in (".", "./.env", "./secrets", "./vendor", "~/.cache/x")] == [
        Access.READ,
        Access.HIDE,
        Access.HIDE,
        Access.READ,  # what cannot be written as a whole is not written in parts
        Access.WRITE,
    ]
    assert str(rules["."].origin).endswith("no tool is left that writes")
    assert not any(rule.guarded for rule in fence.paths)
    passed = {rule.name for rule in fence.environment if rule.value is None}
    assert {"OWN", "ANTHROPIC_API_KEY", "TERM"} <= passed
    assert "GH_TOKEN" not in passed
    assert {rule.name: rule.value for rule in fence.environment}["WAVEGEN_SHELL"] == "persona-p"


def test_what_the_manifest_grants_of_the_home_is_not_emptied() -> None:
    """A mount over something of the host's own home would leave a directory there."""
    places = {"~/.claude/remote-settings.json", "~/.claude/policy-limits.json"}
    for granted, expected in (("~/.cache", places), ("~/.claude", set()), ("~/.claude/remote-settings.json", {"~/.claude/policy-limits.json"})):
        fence = persona("", sandbox(f"paths: [{{path: {granted}, access: write, optional: true}}]")).fence
        assert {str(rule.path) for rule in fence.paths if rule.access is Access.SCRATCH} & places == expected


def test_a_list_of_domains_in_a_shell_with_the_hosts_network_is_a_filtered_fence_with_a_minimal_root() -> None:
    fence = persona("sandbox: {shell: default, allowed_domains: [x.org]}").fence
    assert (fence.network.mode, fence.minimal_root) == (NetworkMode.FILTERED, True)
    assert {str(rule.path): rule for rule in fence.paths}["/"].access is Access.HIDE
    assert any(rule.name == "HTTPS_PROXY" for rule in fence.environment)


@pytest.mark.parametrize(
    ("keys", "writable", "why"),
    [
        ("", True, ""),
        ("sandbox: {project: read}", False, "wave.yaml:2"),
        ("sandbox: {project: write}, permissions: {allowed_tools: [Read]}", True, ""),
        ("permissions: {allowed_tools: [Read]}", False, "wave.yaml:2: no tool is left that writes"),
        ("permissions: {allowed_tools: [Bash, Read], deny: [bash]}", False, "wave.yaml:2: no tool is left that writes"),
    ],
)
def test_the_manifest_may_say_that_the_project_is_read_only(keys: str, writable: bool, why: str) -> None:
    found = persona(keys)
    assert found.project_writable is writable
    project = {str(rule.path): rule for rule in found.fence.paths}["."]
    assert project.access is (Access.WRITE if writable else Access.READ)
    assert writable or str(project.origin) == why


def test_a_variable_that_the_shell_does_not_let_in_is_nobodys() -> None:
    assert mistakes("personas: {p: {sandbox: {env_passthrough: [X]}}}\n") == [
        ("wave.yaml:2:44", "personas.p: X is not among the variables that its shell restricted lets in")
    ]
    assert "LANG" in {rule.name for rule in persona("sandbox: {env_passthrough: [TERM, LANG]}").fence.environment}
    assert "TERM" in {rule.name for rule in persona("sandbox: {env_passthrough: []}", sandbox("env_passthrough: [TERM, X]")).fence.environment}


@pytest.mark.parametrize("keys", ["enabled: false", "backend: none"])
def test_the_fence_is_off_where_that_is_written(keys: str) -> None:
    found = persona("", sandbox(keys))
    assert (found.fence.fenced, found.fence.paths) == (False, ())
    assert {rule.name for rule in found.fence.environment} >= {"TERM", "DISABLE_TELEMETRY"}


@pytest.mark.parametrize("more", [sandbox("enabled: false"), sandbox("shells: {restricted: {sandbox: false}}").replace("restricted", "open")])
def test_what_a_fence_would_hold_is_said_where_there_is_none(more: str) -> None:
    shell = "shell: open, " if "open" in more else ""
    found = planned(f"personas: {{p: {{sandbox: {{{shell}allowed_domains: [x.org], deny_read_paths: [secrets], project: read}}}}}}\n{more}")
    [persona_] = found.personas
    assert [what.partition(" ")[0] for what, _, _ in persona_.ignored] == ["allowed_domains", "deny_read_paths", "project"]
    assert all(origin.at for _, _, origin in persona_.ignored)
    assert {gap.origin for gap in collect_gaps(found) if gap.backend == "personas" and "the persona has no sandbox" in gap.what} == {
        origin for _, _, origin in persona_.ignored
    }
    assert persona("sandbox: {project: read}").ignored == ()


@pytest.mark.parametrize("name", ["a/b", "../x", ".", "a b", "", "-a", "a.b", "é", "a" * 65, "$(x)"])
def test_a_personas_name_is_a_word_for_files(name: str) -> None:
    assert [what for _, what in mistakes(f"personas: {{'{name}': {{}}}}\n")] == [f"'{name}' cannot name a persona"]


@pytest.mark.parametrize(
    ("key", "path", "said"),
    [
        ("system_prompt_file: .agents/p.md", "./.agents/p.md", []),
        ("system_prompt_file: ./p.md", "./p.md", []),
        ("system_prompt_file: /etc/p.md", "None", ["personas.p.system_prompt_file: '/etc/p.md' is not in the project, so that it is not read"]),
        ("description: x", "None", []),
    ],
)
def test_a_prompt_is_a_file_of_the_project(key: str, path: str, said: list[str]) -> None:
    text = f"personas: {{p: {{{key}}}}}\n"
    assert str(planned(text).personas[0].prompt) == path
    assert [what for _, _, what in notes(text)] == said
    assert len(mistakes("personas: {p: {system_prompt_file: ../p.md}}\n")) == 1


# --- presets

_GITHUB = ["*.github.com", "*.githubusercontent.com", "github.com", "proxy.golang.org", "sum.golang.org"]


@pytest.mark.parametrize(
    ("name", "reached", "writes"),
    [
        ("navigator", ["api.anthropic.com"], False),
        ("implementer", sorted(["api.anthropic.com", *_GITHUB]), True),
        ("reviewer", ["*.github.com", "api.anthropic.com", "github.com"], True),
        ("craftsman", sorted(["api.anthropic.com", *_GITHUB]), True),
        ("philosopher", ["api.anthropic.com"], True),
        ("auditor", ["api.anthropic.com"], False),
    ],
)
def test_each_role_has_the_domains_of_the_table(name: str, reached: list[str], writes: bool) -> None:
    found = persona(f"preset: {name}")
    assert (domains(found), found.project_writable) == (reached, writes)
    assert all(rule.origin.at for rule in found.fence.network.domains)
    assert found.description == PRESETS[name].description
    assert all(pattern.tool in TOOLS for pattern in (*found.allowed_tools, *found.denied_tools))


def test_every_preset_is_in_the_table_above() -> None:
    assert list(PRESETS) == ["navigator", "implementer", "reviewer", "craftsman", "philosopher", "auditor"]


def test_what_a_persona_writes_itself_is_not_taken_from_its_preset_and_deny_lists_add_up() -> None:
    found = persona(
        "preset: navigator, description: mine, permissions: {allowed_tools: [Read], deny: [Glob]}, sandbox: {allowed_domains: [x.org], project: write}"
    )
    assert (found.description, [str(p) for p in found.allowed_tools], domains(found), found.project_writable) == (
        "mine",
        ["Read"],
        ["api.anthropic.com", "x.org"],
        True,
    )
    assert [str(p) for p in found.denied_tools] == ["Write", "Edit", "NotebookEdit", "Bash(git commit*)", "Bash(git push*)", "Glob"]


@pytest.mark.parametrize("text", ["preset: ''", "preset:", "preset: ~"])
def test_an_empty_preset_is_an_error_and_not_every_tool(text: str) -> None:
    assert [what for _, what in mistakes(f"personas:\n  p:\n    {text}\n")] == ["personas.p.preset is empty"]


def test_an_unknown_preset_is_an_error() -> None:
    assert mistakes("personas: {p: {preset: navigater}}\n") == [("wave.yaml:2:24", "personas.p.preset: there is no preset 'navigater'")]


# --- variables that are rarely meant


@pytest.mark.parametrize(
    "name",
    [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "NODE_OPTIONS",
        "GIT_CONFIG_COUNT",
        "GIT_CONFIG_KEY_0",
        "GIT_CONFIG_VALUE_12",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_SYSTEM",
        "SSH_AUTH_SOCK",
        "GPG_AUTH_SOCK",
        "MY_AUTH_SOCK",
        "DBUS_SYSTEM_BUS_ADDRESS",
        "PYTHONPATH",
        "JAVA_TOOL_OPTIONS",
        "PERL5OPT",
    ],
)
def test_a_dangerous_variable_is_passed_by_an_entry_alone_and_with_a_warning(name: str) -> None:
    assert name not in {rule.name for rule in persona("").fence.environment}
    text = f"personas: {{p: {{}}}}\n{sandbox(f'env_passthrough: [{name}]')}"
    assert name in {rule.name for rule in planned(text).personas[0].fence.environment}
    assert [severity for _, severity, what in notes(text) if what.startswith(f"{name} ")] == ["warning"]


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "GIT_AUTHOR_NAME", "MY_CONFIG", "SOCK", "GH_TOKEN"])
def test_a_usual_variable_is_passed_without_a_word(name: str) -> None:
    assert notes(f"personas: {{p: {{}}}}\n{sandbox(f'env_passthrough: [{name}]')}") == []
