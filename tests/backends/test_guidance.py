"""What personas are told: the same rules that their fence and their agent's settings come from, in words."""

from __future__ import annotations

import pytest
from test_roles import CLAUDE, persona, planned, sandbox

from wavegen.backends.agents.instructions import instruction_file_names, instruction_lines, render
from wavegen.policy.model import PersonaPolicy

NAVIGATOR = """\
# Persona p

explores and explains the code, and changes nothing

Your role is described in `.agents/navigator.md`: its text follows; follow it.

@../../../.agents/navigator.md
@../../../CLAUDE.md

## Restrictions

They are enforced outside of you: by the operating system (network and files) and by your program (tools).
What is refused is refused on purpose. Do not look for a way round it: say what you could not do, and why you wanted to.

### Denied tools

- `Write`
- `Edit`
- `NotebookEdit`
- `Bash(git commit*)`
- `Bash(git push*)`

### Allowed tools

You may ONLY use the following tools:

- `Read`
- `Glob`
- `Grep`
- `Bash(git log*)`
- `Bash(git status*)`
- `Bash(git diff*)`
- `Bash(git show*)`

### Network access

Network requests are restricted to:

- `api.anthropic.com`
- `localhost:5432`, a service of the host

Never:

- `gist.github.com`

### Files

- The project is read-only.
- Your home directory is private to this persona, and `/tmp` to this session.
- Also writable: `~/.cache/x`.
- Also readable: `vendor`.
- Hidden: `.env`, `~/.config/gh`.
"""


def told(found: PersonaPolicy, *, imports: bool = True) -> str:
    return "\n".join(instruction_lines(found, imports=imports)) + "\n"


def test_a_role_is_told_what_holds() -> None:
    more = sandbox(
        "deny_read_paths: [.env, ~/.config/gh]\n    denied_domains: [gist.github.com]\n    shells: {restricted: {loopback: [5432]}}\n"
        "    paths: [{path: ~/.cache/x, access: write}, {path: vendor, access: read}]"
    )
    assert told(persona("preset: navigator, system_prompt_file: .agents/navigator.md", more)) == NAVIGATOR


@pytest.mark.parametrize(
    ("keys", "more", "line"),
    [
        pytest.param("sandbox: {shell: default}", CLAUDE, "The network is the host's.", id="host"),
        pytest.param(
            "sandbox: {shell: s}", sandbox("shells: {s: {network: open}}"), "Every public host can be reached, and no host of a local network.", id="open"
        ),
        pytest.param("sandbox: {allowed_domains: []}", "", "There is no network.", id="none"),
        pytest.param("", CLAUDE, "- The project can be written, but for what makes up this fence.", id="writes"),
        pytest.param("", sandbox("enabled: false"), "- Write the project alone.", id="unfenced"),
        pytest.param("permissions: {allowed_tools: []}", CLAUDE, "None: answer from what you are given.", id="no-tool"),
        pytest.param("permissions: {deny: ['Bash(echo `x``)']}", CLAUDE, "- ``` Bash(echo `x``) ```", id="backticks"),
        pytest.param('system_prompt: "Be brief.\\nAlways.\\n"', CLAUDE, "Always.", id="inline"),
    ],
)
def test_each_rule_has_its_words(keys: str, more: str, line: str) -> None:
    assert line in told(persona(keys, more)).splitlines()


def test_no_list_of_tools_is_no_section() -> None:
    assert "### Allowed tools" not in told(persona(""))
    assert "### Denied tools" not in told(persona(""))


@pytest.mark.parametrize(
    ("more", "names"),
    [
        (CLAUDE, ("CLAUDE.md",)),
        ("adapters: {codex: {}}\n", ("AGENTS.md",)),
        ("adapters: {claude: {}, x: {}}\nruntime: {fallbacks: {claude: [x]}}\n", ("CLAUDE.md", "AGENTS.md")),
        ("", ("AGENTS.md",)),
    ],
)
def test_each_program_finds_the_file_that_it_reads(more: str, names: tuple[str, ...]) -> None:
    assert instruction_file_names(persona("", more)) == names
    assert [file.path for file in render(planned(f"personas: {{p: {{}}}}\n{more}"))] == [f".wavegen/personas/p/{name}" for name in names]


@pytest.mark.parametrize(
    ("path", "imports", "line", "imported"),
    [
        (".agents/p.md", True, "Your role is described in `.agents/p.md`: its text follows; follow it.", ["@../../../.agents/p.md", "@../../../CLAUDE.md"]),
        (".agents/p.md", False, "Your role is described in `.agents/p.md`: read that file first; follow it.", []),
        ("a b.md", True, "Your role is described in `a b.md`: read that file first; follow it.", ["@../../../CLAUDE.md"]),
        ("a`b.md", False, "Your role is described in `` a`b.md ``: read that file first; follow it.", []),
    ],
)
def test_a_prompt_file_is_named_and_not_copied(path: str, imports: bool, line: str, imported: list[str]) -> None:
    lines = told(persona(f"system_prompt_file: '{path}'"), imports=imports).splitlines()
    assert line in lines
    assert [found for found in lines if found.startswith("@")] == imported
