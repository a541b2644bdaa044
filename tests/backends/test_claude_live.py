"""Personas with the real Claude Code: a scripted model makes it call tools, inside the persona's own script.

The model is a stand-in for the Messages API at https://api.anthropic.com: the name is allowed by the manifest, and the
launcher is told to connect to the test's server in its place. What a rule of the agent's refuses and what the operating
system refuses are told apart by their words.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import CLAUDE
from fence import Fence, name_of, users
from helpers import USER
from messages_api import Call, MessagesApi, Say, Turn
from world import Authority

pytestmark = pytest.mark.needs("claude", "bwrap", "bash", "openssl", "git")

KEY = "sk-ant-wavegen-test"
CANARY = "wavegen-canary-of-the-host"
NEVER = dict.fromkeys(("AWS_SECRET_ACCESS_KEY", "CANARY_SECRET_KEY", "DATABASE_PASSWORD", "SSH_AUTH_SOCK", "LD_PRELOAD_", "GH_TOKEN"), CANARY)

MANIFEST = """\
metadata: {{name: live}}
adapters:
  claude: {{binary: claude, mode: headless, default_model: sonnet}}
personas:
  navigator:
    preset: navigator
    system_prompt_file: .agents/navigator.md
  implementer: {{preset: implementer}}
runtime:
  sandbox:
    env_passthrough: [ANTHROPIC_API_KEY]
    deny_read_paths: [.env]
    paths:
      - {{path: {program}, access: read}}
"""


def program() -> tuple[Path, Path]:
    """The directory with the command of Claude Code, and the one that holds all of it: npm makes links beside its packages."""
    found = shutil.which(CLAUDE)
    assert found
    directory = Path(found).absolute().parent
    return directory, directory.parent if directory.name == ".bin" else Path(found).resolve().parent


def reachable(path: Path, uid: int) -> bool:
    """Whether a user without privileges gets there: a checkout may lie in root's home."""
    return uid == os.getuid() or all(part.stat().st_mode & 0o005 == 0o005 for part in (path, *path.parents))


@dataclass(frozen=True)
class Live:
    """A rendered project, an authority that its agents trust, and the program."""

    fence: Fence
    authority: Authority
    bin: Path

    def work(self, persona: str, *script: Turn, words: tuple[str, ...] = ("--", "-p", "Go on.")) -> tuple[MessagesApi, subprocess.CompletedProcess[str]]:
        """Let a persona work through a script of tool calls."""
        chain, key = self.authority.issue("api.anthropic.com")
        environment = self.fence.environment(
            PATH=f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            ANTHROPIC_API_KEY=KEY,
            NODE_EXTRA_CA_CERTS=str(self.fence.project / "ca.pem"),
            **NEVER,
        )
        with MessagesApi(script, tls=(chain, key)) as api:
            wrapper = ("--connect-to", f"api.anthropic.com:443:127.0.0.1:{api.port}", *words)
            done = self.fence.enter(*wrapper, shell=f"persona-{persona}", env=environment)
        return api, done


def snapshot(directory: Path) -> dict[str, bytes | None]:
    """Every path below a directory with what it holds, but for what wavegen keeps."""
    found = (path for path in directory.rglob("*") if ".local/state/wavegen" not in str(path) and path.name not in (".local", "state"))
    return {str(path.relative_to(directory)): path.read_bytes() if path.is_file() else None for path in found}


@pytest.fixture(scope="module", params=users(), ids=name_of)
def live(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    commands, where = program()
    uid = request.param
    if not reachable(where, uid):
        pytest.skip(f"{where} cannot be read by a user without privileges")
    fence = Fence.create(MANIFEST.format(program=where), uid=uid)
    try:
        authority = Authority(tmp_path_factory.mktemp("authority"))
        fence.write("ca.pem", authority.certificate.read_text("ascii"))
        fence.write(".agents/navigator.md", "You are the navigator of this test, and answer by the word heliotrope.\n")
        fence.write("CLAUDE.md", "The project's own memory holds the word amaranth.\n")
        fence.write(
            ".claude/settings.json",
            '{"permissions": {"allow": ["Bash(touch *)"]}, "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch hooked"}]}]}}\n',
        )
        fence.write(".env", f"TOKEN={CANARY}\n")
        fence.write("greeting.py", 'print("hello")\n')
        fence.write("../../home/.ssh/id_ed25519", CANARY)
        git = ("git", "-c", "safe.directory=*", "-c", "user.name=t", "-c", "user.email=t@t", "-C", str(fence.project))
        for words in (("init", "-q"), ("add", "greeting.py"), ("commit", "-q", "-m", "first")):
            subprocess.run((*git, *words), check=True, capture_output=True, env=fence.environment())
        assert fence.render().returncode == 0  # the repository is new
        yield Live(fence, authority, commands)
    finally:
        fence.remove()


def test_the_implementer_edits_a_file_and_runs_a_command(live: Live) -> None:
    before = snapshot(live.fence.home)
    greeting = live.fence.project / "greeting.py"
    api, done = live.work(
        "implementer",
        Call("Read", {"file_path": str(greeting)}),
        Call("Edit", {"file_path": str(greeting), "old_string": "hello", "new_string": "good day"}),
        Call("Write", {"file_path": str(live.fence.project / "new.txt"), "content": "made\n"}),
        Call(
            "Bash", {"command": "python3 greeting.py && git add -A greeting.py && git -c user.name=t -c user.email=t@t commit -qm second && git log --oneline"}
        ),
        Call("Bash", {"command": "env; cat .env ~/.ssh/id_ed25519 /root/.ssh/id_ed25519"}),
        Say("finished"),
    )
    assert (done.returncode, done.stdout.strip()) == (0, "finished"), done.stderr
    assert greeting.read_text("utf-8") == 'print("good day")\n'
    assert (live.fence.project / "new.txt").read_text("utf-8") == "made\n"
    ran, looked = api.results_of("Bash")
    assert (ran.is_error, "good day" in ran.text, "second" in ran.text) == (False, True, True), ran
    # The key arrives where it is needed; what the manifest does not list arrives nowhere.
    assert {request.headers["x-api-key"] for request in api.requests} == {KEY}
    assert "WAVEGEN_SHELL=persona-implementer" in looked.text
    assert CANARY not in looked.text
    assert all(f"{name}=" not in looked.text for name in NEVER)
    assert snapshot(live.fence.home) == before


def test_what_a_persona_is_told_reaches_the_model_and_what_the_project_says_about_tools_does_not(live: Live) -> None:
    api, done = live.work("navigator", Call("Bash", {"command": "touch planted"}), Say("finished"))
    assert done.returncode == 0, done.stderr
    said = api.conversation[0].text
    assert ("heliotrope" in said, "amaranth" in said, "You may ONLY use the following tools" in said) == (True, True, True)
    assert api.offered & {"Write", "Edit", "NotebookEdit", "WebFetch", "WebSearch", "Agent"} == set()
    assert {"Read", "Bash"} <= api.offered
    # The project's file would allow it, and would run a hook: neither counts.
    [refused] = api.results
    assert refused.is_error
    assert "don't ask mode" in refused.text
    assert not (live.fence.project / "planted").exists()
    assert not (live.fence.project / "hooked").exists()


def test_a_navigator_that_insists_meets_its_rules_and_then_the_operating_system(live: Live) -> None:
    project = live.fence.project
    before = snapshot(project)
    api, done = live.work(
        "navigator",
        Call("Write", {"file_path": str(project / "x"), "content": "x"}),
        Call("Edit", {"file_path": str(project / "greeting.py"), "old_string": "good", "new_string": "bad"}),
        Call("Bash", {"command": "touch x"}),
        # What the pattern for git log would allow is denied by another.
        Call("Bash", {"command": "git log --output=stolen"}),
        Call("Bash", {"command": "git log --oneline"}),
        Say("finished"),
    )
    assert done.returncode == 0, done.stderr
    write, edit, touch, output, log = api.results
    assert all(result.is_error for result in (write, edit, touch, output))
    assert "No such tool" in write.text
    assert "No such tool" in edit.text
    assert "don't ask mode" in touch.text
    assert "denied" in output.text
    assert (log.is_error, "first" in log.text) == (False, True)
    assert snapshot(project) == before


def test_the_operating_system_refuses_what_no_rule_of_the_agents_does(live: Live) -> None:
    """The same fence around an agent that has no settings of ours, and is allowed everything."""
    project = live.fence.project
    before, home = snapshot(project), snapshot(live.fence.home)
    fetch = "curl -sS -m 5 https://example.org/ 2>&1; curl -sS -m 5 --noproxy '*' https://example.org/ 2>&1; getent hosts example.org || echo no such name"
    api, done = live.work(
        "navigator",
        Call("Write", {"file_path": str(project / "x"), "content": "x"}),
        Call("Read", {"file_path": str(project / "greeting.py")}),
        Call("Edit", {"file_path": str(project / "greeting.py"), "old_string": "print", "new_string": "exec"}),
        Call("Bash", {"command": "touch x"}),
        Call("Bash", {"command": "git log --output=stolen"}),
        Call("Bash", {"command": "python3 -c \"open('greeting.py', 'w')\""}),
        Call("Bash", {"command": "git -c user.name=t -c user.email=t@t commit --allow-empty -m x"}),
        Call("Bash", {"command": fetch}),
        Call("Bash", {"command": f"env | grep {CANARY}; cat .env; ls ~/.ssh /root /home; echo looked"}),
        Say("finished"),
        words=("--exec", "claude", "-p", "Go on.", "--allowedTools", "Bash,Edit,Read,Write"),
    )
    assert done.returncode == 0, done.stderr
    write, _, edit, *shell, network, looked = api.results
    for result in (write, edit, *shell):
        assert result.is_error
        assert "EROFS" in result.text or "read-only file system" in result.text.lower(), result
    assert "403" in network.text
    assert "no such name" in network.text
    assert "looked" in looked.text
    assert CANARY not in looked.text
    assert snapshot(project) == before
    assert snapshot(live.fence.home) == home
    refused = live.fence.wavegen("log", "--denied", "--json", "-s", "persona-navigator")
    if live.fence.uid != USER:  # the log lies in that user's home
        assert '"name": "example.org"' in refused.stdout


def test_a_policy_that_a_session_left_in_the_home_does_not_count_in_the_next(live: Live) -> None:
    """Claude Code keeps what it fetched of its organisation's policy there, and obeys it whatever its setting sources are."""
    policy = json.dumps({"allowManagedPermissionRulesOnly": True, "permissions": {"allow": ["Bash"], "defaultMode": "acceptEdits"}})
    plant = f"mkdir -p ~/.claude; printf '%s' '{policy}' >~/.claude/remote-settings.json; test -d ~/.claude/remote-settings.json && echo a directory"
    done = live.fence.enter("--exec", "sh", "-c", plant, shell="persona-navigator")
    assert done.stdout == "a directory\n", done
    # Nor by another directory in its place, for whoever may write the home.
    ways = ("mv ~/.claude ~/away", "rmdir ~/.claude/remote-settings.json", "ln -sfnT /tmp ~/.claude/remote-settings.json", "rm -rf ~/.claude")
    script = "; ".join(f"if {way} 2>/dev/null; then echo '{way}'; fi" for way in ways)
    done = live.fence.enter("--exec", "sh", "-c", f"{script}; test -d ~/.claude/remote-settings.json && echo held", shell="persona-navigator")
    assert done.stdout == "held\n", done
    api, done = live.work("navigator", Call("Bash", {"command": "python3 -c 'print(6 * 7)'"}), Call("Bash", {"command": "touch ~/planted"}), Say("finished"))
    assert done.returncode == 0, done.stderr
    assert api.offered & {"Write", "Agent", "WebFetch"} == set()
    assert all(result.is_error and "don't ask mode" in result.text for result in api.results)


def test_an_agent_that_is_not_inside_is_said_to_be_missing(live: Live) -> None:
    done = live.fence.enter("-p", "x", shell="persona-navigator", env=live.fence.environment(ANTHROPIC_API_KEY=KEY))
    assert done.returncode == 127
    assert "claude: not inside (add the package to packages, or grant where it lies with paths, and where its links lead)" in done.stderr


@pytest.mark.needs("socat")
def test_without_our_fence_its_own_sandbox_holds_what_settings_json_says(live: Live) -> None:
    """The other file of the pair, in use as a colleague without bubblewrap wrappers would use it."""
    fence = live.fence
    if fence.uid != os.getuid():
        pytest.skip("it is started as the user that runs the tests")
    secret = "import os; print(open(os.path.expanduser('~/.ssh/id_ed25519')).read())"
    script = (
        Call("Bash", {"command": "touch inside && echo made it"}),
        Call("Bash", {"command": "touch ~/outside"}),
        Call("Bash", {"command": f'python3 -c "{secret}"'}),
        Call("Bash", {"command": "python3 -c \"open('wave.yaml', 'a').write('x')\""}),
        Call("Bash", {"command": "curl -sS -o /dev/null -m 5 -w '%{http_connect}' https://example.org/"}),
        Call("Bash", {"command": "curl -sS -o /dev/null -m 5 -w '%{http_connect}' https://github.com/"}),
        Say("finished"),
    )
    with MessagesApi(script) as api:
        environment = fence.environment(PATH=f"{live.bin}:/usr/local/bin:/usr/bin:/bin", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL=api.url)
        command = ["claude", "--settings", ".wavegen/personas/implementer/settings.json", "--setting-sources", "", "-p", "Go on."]
        manifest = (fence.project / "wave.yaml").read_bytes()
        done = subprocess.run(command, cwd=fence.project, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout.strip()) == (0, "finished"), done.stderr
    inside, outside, read, written, refused, let_through = api.results
    assert (inside.is_error, "made it" in inside.text) == (False, True), inside
    assert "Read-only file system" in outside.text, outside
    assert (read.is_error, CANARY in read.text) == (True, False), read
    assert (written.is_error, (fence.project / "wave.yaml").read_bytes()) == (True, manifest), written
    assert "403" in refused.text, refused
    assert "403" not in let_through.text, let_through
