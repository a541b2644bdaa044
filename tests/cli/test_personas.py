"""Personas' scripts for real: which program is started with which words and variables, in which fence, by every back end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fence import Fence, name_of, users
from helpers import USER, in_place_of_bwrap

pytestmark = pytest.mark.needs("bwrap", "bash")

AGENTS = ("claude", "opencode", "codex", "gemini", "wizard")
CANARIES = dict.fromkeys(
    ("AWS_SECRET_ACCESS_KEY", "CANARY_SECRET_KEY", "CANARY_SECRET_VAR", "DATABASE_PASSWORD", "SSH_AUTH_SOCK", "BASH_ENV", "NODE_OPTIONS"), "canary"
)
CANARIES |= {"GIT_CONFIG_COUNT": "0", "PYTHONPATH": "/canary", "odd-name": "canary", "WAVEGEN_ODD.NAME": "canary"}
# A program that says how it was started.
AGENT = """\
#!/usr/bin/python3 -IS
import json, os, sys
print(json.dumps({"name": os.path.basename(sys.argv[0]), "words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}))
"""
MANIFEST = """\
metadata: {{name: personas}}
adapters:
  claude: {{}}
  opencode: {{default_model: anthropic/claude-sonnet-4-5}}
  codex: {{default_model: gpt-5, mode: interactive}}
  gemini: {{tier_models: {{cheapest: gemini-2.5-flash-lite}}}}
  wizard: {{binary: wizard}}
  absent: {{binary: no-such-program}}
personas:
  claude: {{adapter: claude, model: opus}}
  opencode: {{adapter: opencode}}
  codex: {{adapter: codex}}
  gemini: {{adapter: gemini, model: cheapest}}
  wizard: {{adapter: wizard}}
  reader: {{adapter: wizard, permissions: {{allowed_tools: [Read]}}}}
  patient: {{adapter: absent}}
  lost: {{adapter: missing}}
runtime:
  fallbacks: {{absent: [wizard]}}
  sandbox:
    {more}
    env_passthrough: [ANTHROPIC_API_KEY, GH_TOKEN]
    paths: [{{path: {tools}, access: read}}]
    shells: {{open: {{sandbox: false}}}}
"""
SETS = {
    "claude": {"DISABLE_TELEMETRY": "1", "CLAUDE_BASH_MAINTAIN_PROJECT_WORKING_DIR": "1"},
    "opencode": {
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        "OPENCODE_CONFIG": "{project}/.wavegen/personas/opencode/opencode.json",
        "WAVEGEN_PROJECT": "{project}/",
    },
    "codex": {},
    "gemini": {"GEMINI_SANDBOX": "false", "GEMINI_CLI_TRUST_WORKSPACE": "true"},
    "wizard": {},
}


@contextmanager
def made(more: str, uid: int) -> Iterator[Fence]:
    """A rendered project with all personas, whose programs say how they were started."""
    fence = Fence.create("metadata: {name: personas}\n", uid=uid)
    try:
        tools = fence.base / "tools"
        tools.mkdir()
        for name in AGENTS:
            (tools / name).write_text(AGENT, "ascii")
            (tools / name).chmod(0o755)
        fence.write("wave.yaml", MANIFEST.format(more=more, tools=tools))
        fence.own()
        done = fence.render()
        assert done.returncode == 0, done.stderr
        yield fence
    finally:
        fence.remove()


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    with made("home: private", request.param) as found:
        yield found


@pytest.fixture(scope="module", params=["enabled: false", "backend: none"])
def off(request: pytest.FixtureRequest) -> Iterator[Fence]:
    with made(request.param, os.getuid()) as found:
        yield found


def environment(fence: Fence) -> dict[str, str]:
    path = f"{fence.base}/tools:{fence.environment()['PATH']}"
    return fence.environment(PATH=path, ANTHROPIC_API_KEY="the key", **CANARIES)


def started(fence: Fence, persona: str, *words: str, script: str = "", cwd: Path | None = None) -> dict[str, object]:
    """How a persona's program was started."""
    done = fence.enter(*words, shell=script or f"persona-{persona}", env=environment(fence), cwd=cwd)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def check_environment(fence: Fence, found: dict[str, object], name: str) -> None:
    env = found["env"]
    assert isinstance(env, dict)
    assert env["ANTHROPIC_API_KEY"] == "the key"
    assert not set(env) & {*CANARIES, "GH_TOKEN"}  # the latter was not set, and nothing is made of that
    assert "canary" not in json.dumps(found)
    assert {key: env.get(key) for key in SETS[name]} == {key: value.format(project=fence.project) for key, value in SETS[name].items()}
    assert all(variable == "PATH" or not variable.startswith("wg_") for variable in env)


@pytest.mark.parametrize("name", AGENTS)
def test_every_program_gets_the_curated_environment(fence: Fence, name: str) -> None:
    found = started(fence, name, "one", "two words")
    assert (found["name"], found["cwd"]) == (name, str(fence.project))
    assert found["words"][-2:] == ["one", "two words"]  # type: ignore[index]
    check_environment(fence, found, name)
    assert found["env"]["SANDBOX_ACTIVE"] == "1"  # type: ignore[index]


@pytest.mark.parametrize("name", AGENTS)
def test_it_gets_the_same_without_a_fence_and_says_so_loudly(off: Fence, name: str) -> None:
    for command in (off.argv(f"persona-{name}", ("one",)), ["wavegen"]):
        if command == ["wavegen"]:
            done = off.wavegen("run", "--persona", name, "--", "one", **{k: v for k, v in environment(off).items() if k not in ("PYTHONPATH", "BASH_ENV")})
        else:
            done = off.enter("one", shell=f"persona-{name}", env=environment(off))
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert (found["name"], found["cwd"], found["words"][-1]) == (name, str(off.project), "one")
        check_environment(off, found, name)
        assert "SANDBOX_ACTIVE" not in found["env"]
        assert "NOT SANDBOXED: the manifest takes the sandbox from personas" in done.stderr


def test_the_words_of_each_program(fence: Fence) -> None:
    def words(name: str) -> list[str]:
        found = started(fence, name)["words"]
        assert isinstance(found, list)
        return [str(word).replace(f".wavegen/personas/{name}", "HERE") for word in found]

    assert words("claude") == ["--settings", "HERE/settings.fenced.json", "--setting-sources", "", "--add-dir", "HERE"]
    assert words("opencode") == []
    assert words("codex")[:6] == ["-s", "danger-full-access", "-a", "on-request", "-m", "gpt-5"]
    assert 'developer_instructions="Read HERE/AGENTS.md first, and follow it."' in words("codex")
    assert words("gemini") == ["--approval-mode", "yolo", "--admin-policy", "HERE/gemini.toml", "-m", "gemini-2.5-flash-lite"]
    assert words("wizard") == []


def test_without_a_fence_claude_gets_the_settings_with_its_own_sandbox(off: Fence) -> None:
    found = started(off, "claude")["words"]
    assert found[:2] == ["--settings", ".wavegen/personas/claude/settings.json"]  # type: ignore[index]


@pytest.mark.parametrize(
    "words",
    [
        ("-p", "hi"),
        ("--", "-p", "hi"),
        ("--print-nothing",),
        ("--print", "a question"),
        ("--adapters=x",),
        ("--model", "x", "--", "--exec"),
        ("",),
        ("--", "--project", "x"),
    ],
)
def test_the_agents_words_reach_it_as_they_are(fence: Fence, words: tuple[str, ...]) -> None:
    assert started(fence, "wizard", *words)["words"] == list(words[1:] if words[0] == "--" else words)


def test_an_agent_starts_in_the_projects_root_and_a_command_where_its_caller_stands(fence: Fence) -> None:
    below = fence.project / "below"
    below.mkdir(exist_ok=True)
    fence.own()
    assert started(fence, "wizard", cwd=below)["cwd"] == str(fence.project)
    assert fence.enter("--exec", "pwd", shell="persona-wizard", cwd=below).stdout.strip() == str(below)


def test_the_first_program_that_is_inside_is_started_or_the_one_that_is_named(fence: Fence) -> None:
    assert started(fence, "patient", "x")["name"] == "wizard"
    for words in (("--adapter", "wizard"), ("--adapter=wizard",), (f"--project={fence.project}", "--adapter=wizard", "--")):
        assert started(fence, "patient", *words, "x")["words"] == ["x"]
    for words, status, said in (
        (("--adapter", "absent"), 127, "no-such-program: not inside"),
        (("--adapter", "nobody"), 125, "persona patient has no adapter nobody (its adapters: absent, wizard)"),
        (("--adapter",), 125, "--adapter needs a name"),
        (("--adapter", "", "x"), 125, "--adapter needs a name"),
        (("--adapter=", "x"), 125, "--adapter needs a name"),
        (("--adapter=nobody", "x"), 125, "persona patient has no adapter nobody"),
        (("--project", "", "x"), 125, "--project needs a directory"),
        (("--project=", "x"), 125, "--project needs a directory"),
    ):
        done = fence.enter(*words, shell="persona-patient", env=environment(fence))
        assert (done.returncode, done.stdout) == (status, "")
        assert said in done.stderr
    lost = fence.enter(shell="persona-lost", env=environment(fence))
    assert (lost.returncode, "missing: not inside" in lost.stderr) == (127, True)


def test_a_scripts_own_options_are_the_same_without_a_fence(off: Fence) -> None:
    for words in (("--adapter", "wizard"), ("--adapter=wizard",), (f"--project={off.project}", "--adapter=wizard", "--")):
        assert started(off, "patient", *words, "--print", "x")["words"] == ["--print", "x"]
    for words, said in (
        (("--adapter", "", "x"), "--adapter needs a name"),
        (("--adapter=", "x"), "--adapter needs a name"),
        (("--adapter",), "--adapter needs a name"),
        (("--project=", "x"), "--project needs a directory"),
    ):
        done = off.enter(*words, shell="persona-patient", env=environment(off))
        assert (done.returncode, done.stdout, said in done.stderr) == (125, "", True)
    done = off.enter("--print-fence", "--exec", "touch", "made here", shell="persona-wizard", env=environment(off))
    assert (done.returncode, done.stdout, "NOT SANDBOXED" in done.stderr) == (0, "touch\n'made here'\n", True)
    assert not (off.project / "made here").exists()


def test_the_fence_of_a_persona_is_shown_and_nothing_started(fence: Fence) -> None:
    for words in (("--print-fence", "x"), ("--print-fence", "--exec", "wizard", "x"), ("--exec", "--print-fence", "wizard", "x")):
        done = fence.enter(*words, shell="persona-wizard", env=environment(fence))
        assert (done.returncode, done.stdout.splitlines()[0].endswith("/bwrap"), "--unshare-user" in done.stdout) == (0, True, True), done.stderr
    done = fence.enter("--exec", "--print", "wizard", shell="persona-wizard", env=environment(fence))
    assert (done.returncode, "unknown option --print" in done.stderr, "--print-fence" in done.stderr) == (125, True, True)
    for shell in ("default", "restricted"):
        shown = [fence.enter(option, "true", shell=shell).stdout for option in ("--print", "--print-fence")]
        assert shown[0] == shown[1] != ""


@pytest.mark.parametrize("shell", ["default", "restricted", "yolo"])
@pytest.mark.parametrize("words", [("-a", "echo"), ("--adapter", "echo"), ("-c",), ("-l", "env")])
def test_a_command_that_begins_with_a_dash_is_looked_up(fence: Fence, shell: str, words: tuple[str, ...]) -> None:
    done = fence.enter("--", *words, shell=shell)
    assert (done.returncode, done.stdout) == (127, ""), done.stderr
    if shell == "yolo":
        # Without the end of options it is taken for one, and nothing runs.
        done = fence.enter(*words, shell=shell)
        assert (done.returncode, done.stdout, "unknown option" in done.stderr) == (125, "", True)


def test_without_a_fence_it_is_looked_up_too(off: Fence) -> None:
    for words in (("-a", "echo"), ("-c",)):
        done = off.enter("--exec", "--", *words, shell="persona-wizard", env=environment(off))
        assert (done.returncode, done.stdout) == (127, ""), done.stderr


def test_a_directory_that_begins_with_a_dash_is_no_option_of_exec(off: Fence) -> None:
    (off.base / "-tools").symlink_to("tools")
    words = ["/bin/sh", str(off.project / ".wavegen/launcher/inside/agent.sh"), "0", "1", "0", "-tools/wizard", "0", "x"]
    done = subprocess.run(words, cwd=off.base, env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, timeout=60)
    assert (done.returncode, json.loads(done.stdout)["words"]) == (0, ["x"]), done.stderr


def test_options_with_their_value_in_one_word(fence: Fence) -> None:
    for shell in ("default", "restricted", "yolo"):
        assert fence.enter(f"--project={fence.project}", "echo", "in", shell=shell, cwd=fence.home).stdout == "in\n"
    for words, said in (
        (("--connect-to=x",), "--connect-to=x"),
        (("--report=x",), "--report needs the number of"),
        (("--project=",), "--project needs a directory"),
    ):
        done = fence.enter(*words, "echo", "RAN")
        assert (done.returncode, done.stdout) == (125, "")
        assert said in done.stderr or "unknown option --connect-to" in done.stderr
    done = fence.enter("--connect-to=x", "true", shell="restricted")
    assert (done.returncode, "x is not NAME:PORT:ADDRESS:PORT" in done.stderr) == (125, True)
    for shell, words in (("yolo", ("--project",)), ("yolo", ("--project", "")), ("yolo", ("--project=",)), ("default", ("--project", ""))):
        done = fence.enter(*words, shell=shell)
        assert (done.returncode, "--project needs a directory" in done.stderr) == (125, True), (shell, words)


def test_the_unfenced_shell_shows_what_it_would_start(fence: Fence) -> None:
    for option in ("--print", "--print-fence"):
        done = fence.enter(option, "touch", "made here", shell="yolo")
        assert (done.returncode, done.stdout) == (0, "touch\n'made here'\n")
    assert not (fence.project / "made here").exists()


def planted(path: Path, text: str = "#!/bin/sh\necho planted\n") -> Path:
    """A program that a command could have put there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "ascii")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("persona", ["wizard", "reader"])
def test_a_program_that_a_command_put_there_is_passed_over(fence: Fence, persona: str) -> None:
    """In the project, whoever wrote it; in the private home, by a directory of the host's PATH."""
    inside = "mkdir -p ~/own && printf '#!/bin/sh\\necho planted\\n' >~/own/wizard && chmod +x ~/own/wizard"
    assert fence.enter("--exec", "sh", "-c", inside, shell=f"persona-{persona}").returncode == 0
    planted(fence.project / "node_modules/.bin/wizard")
    (fence.base / "link").unlink(missing_ok=True)
    fence.own()
    first = f"{fence.home}/own:{fence.project}/node_modules/.bin:{fence.project}/node_modules/../node_modules/.bin"
    env = environment(fence)
    done = fence.enter("x", shell=f"persona-{persona}", env={**env, "PATH": f"{first}:{env['PATH']}"})
    assert json.loads(done.stdout)["words"] == ["x"], done.stderr
    done = fence.enter("x", shell=f"persona-{persona}", env={**env, "PATH": f"{first}:/usr/bin:/bin"})
    assert (done.returncode, done.stdout) == (127, "")
    assert f"passed over, as a command could have put it there: {fence.home}/own/wizard, {fence.project}/node_modules/.bin/wizard" in done.stderr
    assert fence.enter("--exec", "rm", "-r", f"{fence.home}/own", shell=f"persona-{persona}").returncode == 0


@pytest.mark.parametrize(
    "planting",
    ["chmod 0555 ~/own/wizard ~/own", "chmod 0555 ~/own", "mv ~/own/wizard ~/x; ln -s ~/x ~/own/wizard", "ln -sf $PWD/node_modules/.bin/wizard ~/own/wizard"],
)
def test_what_a_command_may_write_is_told_by_its_place_and_not_by_its_mode(fence: Fence, planting: str) -> None:
    planted(fence.project / "node_modules/.bin/wizard")
    fence.own()
    inside = f"mkdir -p ~/own && printf '#!/bin/sh\\necho planted\\n' >~/own/wizard && chmod +x ~/own/wizard && {planting}"
    try:
        assert fence.enter("--exec", "sh", "-c", inside, shell="persona-wizard").returncode == 0
        env = environment(fence)
        done = fence.enter("x", shell="persona-wizard", env={**env, "PATH": f"{fence.home}/own:/usr/bin:/bin"})
        assert (done.returncode, done.stdout) == (127, ""), done.stderr
        assert f"passed over, as a command could have put it there: {fence.home}/own/wizard" in done.stderr
    finally:
        fence.enter("--exec", "sh", "-c", "chmod -R u+w ~/own; rm -rf ~/own ~/x", shell="persona-wizard")


def test_a_link_of_the_host_s_into_the_project_is_passed_over(fence: Fence) -> None:
    planted(fence.project / "node_modules/.bin/wizard2")
    (fence.base / "tools/wizard").rename(fence.base / "tools/real")
    (fence.base / "tools/wizard").symlink_to(fence.project / "node_modules/.bin/wizard2")
    try:
        done = fence.enter("x", shell="persona-wizard", env=environment(fence))
        assert (done.returncode, done.stdout) == (127, ""), done.stderr
    finally:
        (fence.base / "tools/wizard").unlink()
        (fence.base / "tools/real").rename(fence.base / "tools/wizard")


def test_without_a_fence_what_lies_in_the_project_is_passed_over_too(off: Fence) -> None:
    planted(off.project / "node_modules/.bin/wizard")
    env = environment(off)
    done = off.enter("x", shell="persona-wizard", env={**env, "PATH": f"{off.project}/node_modules/.bin:{env['PATH']}"})
    assert json.loads(done.stdout)["words"] == ["x"], done.stderr


@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_many_words_arrive_as_fast_as_few(fence: Fence, count: int) -> None:
    words = [f"word {i}" for i in range(count)]
    assert started(fence, "wizard", "--", *words)["words"] == words


@pytest.mark.parametrize("words", [("-x", "--", "a=b", "", "0", "3", "new\nline", "*", "$(id)", "it's", '"')])
def test_words_are_words_whatever_they_look_like(fence: Fence, words: tuple[str, ...]) -> None:
    assert started(fence, "wizard", "--", *words)["words"] == list(words)


def test_a_program_in_the_home_is_not_inside(fence: Fence) -> None:
    home = fence.home / "bin"
    home.mkdir(exist_ok=True)
    (home / "wizard").write_text(AGENT, "ascii")
    (home / "wizard").chmod(0o755)
    fence.own()
    done = fence.enter(shell="persona-wizard", env={**environment(fence), "PATH": f"{home}:/usr/bin:/bin"})
    assert (done.returncode, "wizard: not inside (add the package to packages" in done.stderr) == (127, True)
    assert f"of your PATH these directories are not inside: {home}\n" in done.stderr


def test_a_persona_without_a_tool_that_writes_cannot_write_and_another_can(fence: Fence) -> None:
    for persona, status in (("reader", 1), ("wizard", 0)):
        done = fence.enter("--exec", "touch", "made", shell=f"persona-{persona}")
        assert done.returncode == status, done.stderr
    assert "Read-only file system" in fence.enter("--exec", "touch", "made", shell="persona-reader").stderr


def test_each_persona_has_a_home_of_its_own(fence: Fence) -> None:
    script = "cd && ls -A && echo $0 >mine"
    for persona in ("wizard", "reader"):
        assert fence.enter("--exec", "sh", "-c", script, shell=f"persona-{persona}").stdout.split() == [".zshrc"]
    assert fence.enter("--exec", "ls", str(fence.home), shell="persona-wizard").stdout.split() == ["mine"]


def test_what_opencode_once_wrote_into_its_home_does_not_overrule_its_settings(fence: Fence) -> None:
    for _ in range(2):
        listed = fence.enter("--exec", "sh", "-c", "ls -A ~/.config/opencode; echo x >~/.config/opencode/x; ls -A ~/.config/opencode", shell="persona-opencode")
        assert listed.stdout.split() == ["x"], listed.stderr


def test_wavegen_run_starts_personas_by_the_manifest_and_only_with_settings_that_are_its_own(fence: Fence) -> None:
    if fence.uid == USER and os.getuid() == 0:
        pytest.skip("the command line is run as the user that runs the tests")
    env = {name: value for name, value in environment(fence).items() if name not in ("PYTHONPATH", "BASH_ENV")}
    done = fence.wavegen("run", "--persona", "claude", "--", "-p", "x", **env)
    assert json.loads(done.stdout)["words"][-2:] == ["-p", "x"], done.stderr
    assert fence.wavegen("run", "-p", "reader", "--exec", "--", "sh", "-c", "exit 42", **env).returncode == 42
    for words, said in (
        (("--persona", "cluade"), "there is no persona 'cluade' (did you mean 'claude'?)"),
        (("--persona", "", "--", "true"), "there is no persona ''"),
        (("--persona", "", "--shell", "default", "--", "true"), "a persona has its shell from the manifest"),
        (("--shell", "", "--", "true"), "there is no shell ''"),
        (("--persona", "claude", "--adapter", "", "--", "x"), "'' is no adapter"),
        (("--adapter", "", "--", "true"), "an adapter, or a command in place of an agent, wants a persona"),
        (("--persona", "claude", "--shell", "default"), "a persona has its shell from the manifest"),
        (("--exec", "--", "true"), "an adapter, or a command in place of an agent, wants a persona"),
        (("--shell", "persona-claude", "--", "true"), "that is a persona's fence: --persona claude"),
    ):
        done = fence.wavegen("run", *words, **env)
        assert (done.returncode, done.stdout) == (125, "")
        assert said in done.stderr
    place = fence.project / ".wavegen/personas"
    place.rename(fence.project / "elsewhere")
    place.symlink_to("../elsewhere")
    try:
        done = fence.wavegen("run", "--persona", "claude", **env)
        assert (done.returncode, ".wavegen/personas is not of wavegen" in done.stderr) == (125, True), done.stderr
    finally:
        place.unlink()
        (fence.project / "elsewhere").rename(place)
    settings = fence.project / ".wavegen/personas/claude/settings.fenced.json"
    whole = settings.read_text("utf-8")
    settings.write_text(whole.replace("dontAsk", "acceptEdits"), "utf-8")
    try:
        done = fence.wavegen("run", "--persona", "claude", **env)
        assert (done.returncode, "is not what this version of wavegen renders (run wavegen render)" in done.stderr) == (125, True)
        assert fence.wavegen("run", "--persona", "wizard", **env).returncode == 0
        assert fence.wavegen("run", "--persona", "claude", "--exec", "--", "true", **env).returncode == 0
    finally:
        settings.write_text(whole, "utf-8")


@pytest.mark.parametrize("where", [(), ("-s", "restricted"), ("-s", "yolo"), ("--persona", "wizard", "--exec")], ids=" ".join)
def test_a_broken_pipe_ends_what_wavegen_run_has_started(fence: Fence, where: tuple[str, ...]) -> None:
    if fence.uid == USER and os.getuid() == 0:
        pytest.skip("the command line is run as the user that runs the tests")
    env = {name: value for name, value in environment(fence).items() if name not in ("PYTHONPATH", "BASH_ENV")}
    script = "yes | head -n 1; echo ${PIPESTATUS[0]}; grep SigIgn /proc/$$/status"
    done = fence.wavegen("run", *where, "--", "bash", "-c", script, **env)
    lines = done.stdout.splitlines()
    assert (lines[:2], done.stderr.count("roken pipe")) == (["y", "141"], 0), done.stderr
    assert not int(lines[2].split()[1], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)


def test_where_fallback_asks_for_it_an_agent_without_a_fence_has_its_own_sandbox() -> None:
    with made("fallback: warn", os.getuid()) as fence:
        stand_in = fence.base / "bwrap"
        stand_in.write_text("#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2; exit 1\n", "ascii")
        stand_in.chmod(0o755)

        def enter(*words: str, cwd: Path = fence.project) -> subprocess.CompletedProcess[str]:
            """With the stand-in where the system's is."""
            argv = [*in_place_of_bwrap(stand_in), *fence.argv("persona-claude", words)]
            return subprocess.run(argv, cwd=cwd, env=environment(fence), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)

        done = enter("x")
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["words"][:2] == ["--settings", ".wavegen/personas/claude/settings.json"]
        assert "NOT SANDBOXED" in done.stderr
        check_environment(fence, found, "claude")
        assert not {"SANDBOX_ACTIVE", "HTTPS_PROXY"} & set(found["env"])
        done = enter("--print-fence", "--exec", "touch", "made")
        assert (done.stdout.splitlines()[0], (fence.project / "made").exists()) == (os.path.realpath("/usr/bin/bwrap"), False)
        # What lies below is no program of ours, wherever the caller stands.
        below = fence.project / "below"
        planted(below / ".wavegen/launcher/inside/agent.sh")
        fence.own()
        done = enter("x", cwd=below)
        assert json.loads(done.stdout)["cwd"] == str(fence.project), done.stderr
        done = enter("--exec", "sh", "-c", "pwd; env", cwd=below)
        assert done.stdout.splitlines()[0] == str(below)
        assert "canary" not in done.stdout


@pytest.mark.needs("landlock")
def test_landlock_alone_fences_personas_too() -> None:
    with made("backend: landlock\n    home: private", os.getuid()) as fence:
        found = started(fence, "claude", "-p", "x", script="landlock-persona-claude")
        assert (found["cwd"], found["words"][-2:]) == (str(fence.project), ["-p", "x"])  # type: ignore[index]
        check_environment(fence, found, "claude")
        assert started(fence, "patient", "--adapter", "wizard", script="landlock-persona-patient")["name"] == "wizard"
        for words in (("--adapter=wizard",), (f"--project={fence.project}", "--adapter=wizard", "--")):
            assert started(fence, "patient", *words, "--print", "x", script="landlock-persona-patient")["words"] == ["--print", "x"]
        for words, said in (
            (("--adapter", ""), "--adapter needs a name"),
            (("--adapter=",), "--adapter needs a name"),
            (("--adapter",), "--adapter needs a name"),
            (("--project",), "--project needs a directory"),
            (("--project=",), "--project needs a directory"),
            (("--exec", "--print", "x"), "unknown option --print"),
        ):
            done = fence.enter(*words, shell="landlock-persona-patient", env=environment(fence))
            assert (done.returncode, done.stdout, said in done.stderr) == (125, "", True), done.stderr
        done = fence.enter("--print-fence", "x", shell="landlock-persona-wizard", env=environment(fence))
        assert done.stdout.startswith("--landlock-masks "), done.stderr
        assert fence.enter("--print-fence", "true", shell="landlock-default").stdout
        done = fence.enter("--exec", "touch", "made", shell="landlock-persona-reader", env=environment(fence))
        assert (done.returncode, "Permission denied" in done.stderr) == (1, True)
        assert fence.enter("--exec", "touch", "made", shell="landlock-persona-wizard", env=environment(fence)).returncode == 0
        # A program in what a command may write is no agent, though nobody may write it any more.
        planted(fence.project / "bin/wizard").chmod(0o555)
        fence.own()
        before = environment(fence)["PATH"]
        done = fence.enter("x", shell="landlock-persona-wizard", env=environment(fence) | {"PATH": f"{fence.project}/bin:{before}"})
        assert json.loads(done.stdout)["name"] == "wizard", done.stderr
        run = fence.wavegen("run", "--persona", "wizard", "--", "y", **{k: v for k, v in environment(fence).items() if k not in ("PYTHONPATH", "BASH_ENV")})
        assert json.loads(run.stdout)["words"] == ["y"], run.stderr
