"""What examples/ offers is run as it stands: CI files, direnv, a devcontainer; and the hook for pre-commit."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from helpers import MINIMAL, ROOT, environment, project, render_project
from nix_env import NixEnv
from test_nix import Witness, make
from test_nix import environment as nix_environment

from wavegen.launcher.container import OPTIONS
from wavegen.manifest.model import NetworkMode
from wavegen.policy.model import Access, Anchor, Policy
from wavegen.project.loader import load_project

if TYPE_CHECKING:
    from engine import Engine

EXAMPLES = ROOT / "examples"
GITHUB = yaml.safe_load((EXAMPLES / "ci/github-actions.yml").read_text("utf-8"))
GITLAB = yaml.safe_load((EXAMPLES / "ci/gitlab-ci.yml").read_text("utf-8"))
MANIFEST = "metadata: {name: ci}\nruntime: {sandbox: {packages: [hello]}}\n"
DEVCONTAINER = (EXAMPLES / "devcontainer/devcontainer.json").read_text("utf-8")
COMMENT = "".join(line for line in DEVCONTAINER.splitlines(keepends=True) if line.startswith("//"))
SETTINGS: dict[str, Any] = json.loads(DEVCONTAINER.removeprefix(COMMENT))


@pytest.fixture(scope="module")
def nix(tmp_path_factory: pytest.TempPathFactory) -> NixEnv:
    return nix_environment(tmp_path_factory.mktemp("nix"))


def ours(commands: Iterator[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(command for command in commands if command.startswith(("wavegen ", "nix "))))


GITHUB_RUNS = ours(step["run"] for job in GITHUB["jobs"].values() for step in job["steps"] if "run" in step)
GITLAB_RUNS = ours(line for job in ("test", "verify") for line in GITLAB[job]["script"])


def test_the_ci_files_hold_commands_of_ours() -> None:
    for runs in (GITHUB_RUNS, GITLAB_RUNS):
        assert [line.split(" ")[:2] for line in runs] == [["nix", "develop"], ["wavegen", "render"], ["wavegen", "verify"]]


@pytest.mark.needs("nix", "bwrap")
@pytest.mark.parametrize("runs", [GITHUB_RUNS, GITLAB_RUNS], ids=["github", "gitlab"])
def test_every_command_of_a_ci_file_runs_in_a_rendered_project(runs: tuple[str, ...], nix: NixEnv, tmp_path: Path) -> None:
    root = make(nix, tmp_path, MANIFEST)
    (root / "Makefile").write_text('test:\n\t@test "$$WAVEGEN_SHELL" = restricted && touch passed && ! touch wave.yaml 2>/dev/null\n')
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "wavegen").write_text(f'#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -P -m wavegen "$@"\n')
    (tools / "wavegen").chmod(0o755)
    path = f"{tools}:{nix.environ()['PATH']}"
    for line in runs:
        done = nix.run(["-ec", line], root, program="/bin/sh", env={"PATH": path}, timeout=300)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
    assert (root / "passed").exists()
    sarif = json.loads((root / "verify.sarif").read_text("utf-8"))
    assert (sarif["version"], len(sarif["runs"])) == ("2.1.0", 1)
    assert "<testsuites" in (root / "verify.xml").read_text("utf-8")


def test_github_gives_no_job_more_than_it_needs_and_no_action_without_its_version() -> None:
    assert GITHUB["permissions"] == {"contents": "read"}
    granted = {name: job.get("permissions") for name, job in GITHUB["jobs"].items()}
    assert granted == {"test": None, "verify": {"contents": "read", "security-events": "write"}}
    uses = [step for job in GITHUB["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"[\w.-]+(/[\w.-]+)+@v\d+(\.\d+)*", step["uses"]) for step in uses)
    assert all(step["with"] == {"persist-credentials": False} for step in uses if step["uses"].startswith("actions/checkout@"))
    # What a workflow may be handed by an event is on no command line.
    assert not [line for job in GITHUB["jobs"].values() for step in job["steps"] if "${{" in (line := step.get("run", ""))]
    (upload,) = (step for step in uses if "upload-sarif" in step["uses"])
    assert f"--sarif {upload['with']['sarif_file']} " in f"{GITHUB_RUNS[-1]} "
    assert "!cancelled()" in upload["if"]  # where something is broken, above all


def test_gitlab_keeps_the_reports_that_are_written() -> None:
    artifacts = GITLAB["verify"]["artifacts"]
    assert artifacts["when"] == "always"
    named = {artifacts["reports"]["junit"], *artifacts["paths"]}
    assert named == set(re.findall(r"--(?:junit|sarif|html) (\S+)", GITLAB_RUNS[-1]))


# --- direnv


@pytest.mark.needs("nix", "bwrap", "direnv")
def test_direnv_sets_variables_and_says_that_it_fences_nothing(nix: NixEnv, tmp_path: Path) -> None:
    root = make(nix, tmp_path, MANIFEST)
    (root / ".envrc").write_bytes((EXAMPLES / "direnv/envrc").read_bytes())
    assert nix.run(["allow", "."], root, program="/usr/bin/direnv").returncode == 0
    witness = Witness(nix, root)
    seen = 'type -P hello; echo "TMPDIR=${TMPDIR-unset} TMP=${TMP-unset} BUILD=${NIX_BUILD_TOP-unset}"; exec "$@"'
    done = nix.run(["exec", ".", "bash", "-c", seen, "bash", *witness.argv], root, program="/usr/bin/direnv")
    assert done.returncode == 0, done.stderr
    assert re.match(rf"/nix/store/\S+-hello-2\.12/bin/hello\nTMPDIR={re.escape(str(nix.tmp))} TMP=unset ", done.stdout), done.stdout
    assert witness.verdict(done.stdout) == "outside"
    assert "wavegen: default: NOT SANDBOXED: direnv copies variables and starts no fence" in done.stderr
    assert "error" not in done.stderr


# --- devcontainer

# Those that are the editor's business: it starts a program of its own in the container, and reads what that prints.
EDITORS = {"--rm", "--init", "--interactive", "--pull", "--entrypoint", "--no-healthcheck", "--log-driver", "--detach-keys", "--network", "--env"}


def engine_options(shell: Policy) -> list[tuple[str, ...]]:
    """What an engine is told of every container, option by option, and of this shell."""
    pairs = zip(OPTIONS, (*OPTIONS[1:], "--"), strict=True)
    found = [(word,) if value.startswith("--") else (word, value) for word, value in pairs if word.startswith("--")]
    found += [("--network", "host"), ("--pids-limit", str(shell.limits.pids)), ("--shm-size", str(shell.limits.scratch))]
    return found + [("--env", f"{rule.name}={rule.value}") for rule in shell.environment if rule.value is not None]


def test_the_devcontainer_has_the_options_of_run_default(tmp_path: Path) -> None:
    plan = load_project(str(render_project(tmp_path, MINIMAL) / "wave.yaml")).plan
    shell = plan.find_shell("default")
    assert shell
    assert shell.network.mode is NetworkMode.HOST
    options = engine_options(shell)
    assert {words[0].partition("=")[0] for words in options} >= EDITORS
    expected = [words for words in options if words[0].partition("=")[0] not in EDITORS]
    scratch = {f"/{rule.path.tail}": rule for rule in shell.paths if rule.access is Access.SCRATCH and rule.path.anchor is Anchor.ROOT and not rule.source}
    words = SETTINGS["runArgs"]
    given: list[tuple[str, ...]] = []
    for word in words:
        if word.startswith("--"):
            given.append((word,))
        else:
            given[-1] += (word,)
    fixed = [one for one in given if one[0] != "--tmpfs" and not one[-1].startswith("seccomp=")]
    # What restrict_and_exec does in our own containers.
    assert sorted(fixed) == sorted((*expected, ("--ulimit", "core=0")))
    assert [one[1] for one in given if one[-1].startswith("seccomp=")] == ["seccomp=${localWorkspaceFolder}/.wavegen/seccomp/default.json"]
    tmpfs = dict(one[1].split(":", 1) for one in given if one[0] == "--tmpfs")
    assert set(tmpfs) == {place for place in scratch if place not in ("/var/run", "/dev/shm")} | {SETTINGS["containerEnv"]["HOME"]}
    assert all(f"size={shell.limits.scratch}," in text and "nosuid,nodev" in text for text in tmpfs.values())


def test_the_devcontainer_says_what_it_leaves_out() -> None:
    listed = COMMENT.partition("Of run-default's options")[2]
    assert set(re.findall(r"--[a-z-]+", listed)) == EDITORS
    for word in ("network is not judged", "ssh agent", "deny_read_paths", "Landlock", "audited"):
        assert word in COMMENT


def test_the_devcontainer_is_built_of_what_is_rendered_and_holds_it(tmp_path: Path) -> None:
    root = render_project(tmp_path, MINIMAL)
    place = root / ".devcontainer"
    place.mkdir()
    for key in ("dockerfile", "context"):
        assert (place / SETTINGS["build"][key]).exists()
    sources = [dict(pair.split("=", 1) for pair in mount.split(",") if "=" in pair) for mount in SETTINGS["mounts"]]
    held = {one["target"].removeprefix("/workspace/") for one in sources}
    assert held == {"wave.yaml", "flake.nix", "flake.lock", ".wavegen", ".devcontainer", ".git/config", ".git/hooks"}
    assert all(mount.endswith(",readonly") for mount in SETTINGS["mounts"])
    assert all(one["source"] == f"${{localWorkspaceFolder}}/{one['target'].removeprefix('/workspace/')}" for one in sources)


INSIDE = r"""
grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status | tr -s '\t' ' '
for place in / /usr /workspace /workspace/.wavegen /workspace/.git/hooks /tmp "$HOME"; do
  if (: >"$place/written") 2>/dev/null; then echo "wrote $place"; else echo "held $place"; fi
done
(: >>/workspace/wave.yaml) 2>/dev/null || echo held wave.yaml
unshare --user true 2>/dev/null || echo held namespaces
cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null
"""


@pytest.mark.needs("docker", "git")
def test_the_devcontainer_s_options_hold_in_a_container(engine: Engine, tmp_path: Path) -> None:
    """As the editor starts it, without the editor."""
    root = render_project(tmp_path, MINIMAL)
    subprocess.run(["git", "init", "-q", root], check=True)
    (root / ".git/hooks").mkdir(exist_ok=True)
    (root / ".devcontainer").mkdir()
    for place in (root, root / ".git", root / ".git/hooks", root / ".wavegen"):
        place.chmod(0o777)

    def meant(text: str) -> str:
        return text.replace("${localWorkspaceFolder}", str(root))

    mounts = [word for mount in (SETTINGS["workspaceMount"], *SETTINGS["mounts"]) for word in ("--mount", meant(mount))]
    env = [word for name, value in SETTINGS["containerEnv"].items() for word in ("--env", f"{name}={value}")]
    words = [*map(meant, SETTINGS["runArgs"]), *mounts, *env, "--user", "65534:65534", "--workdir", SETTINGS["workspaceFolder"], "--network", "none"]
    done = engine.run("run", "--rm", "--init", *words, engine.image(), "bash", "-c", INSIDE)
    assert done.returncode in (0, 1), done.stderr
    said = done.stdout.splitlines()
    assert said[:3] == ["CapEff: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"], done.stderr
    assert said[3:] == [
        *("held /", "held /usr", "wrote /workspace", "held /workspace/.wavegen", "held /workspace/.git/hooks", "wrote /tmp", "wrote /home/agent"),
        *("held wave.yaml", "held namespaces", "4096"),
    ]


# --- pre-commit


def test_the_hook_for_pre_commit_passes_and_fails_as_render_check_does(tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))
    assert (hook["id"], hook["language"], hook["pass_filenames"], hook["always_run"]) == ("wavegen-render-check", "python", False, True)
    known = {"id", "name", "description", "entry", "language", "pass_filenames", "always_run", "require_serial"}
    assert set(hook) == known
    program, *args = shlex.split(hook["entry"])
    # What pre-commit installs is the package, whose program has this name.
    assert f'{program} = "wavegen.__main__:main"' in (ROOT / "pyproject.toml").read_text("utf-8")

    def run(root: Path) -> tuple[int, str]:
        argv = [sys.executable, "-P", "-m", "wavegen", *args]
        done = subprocess.run(argv, cwd=root, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    root = project(tmp_path, MINIMAL)
    status, said = run(root)
    assert (status, "flake.nix: missing" in said, os.listdir(root)) == (1, True, ["wave.yaml"])
    render_project(tmp_path, MINIMAL)
    assert run(root) == (0, "")
    with (root / ".wavegen/bin/default").open("a") as script:
        script.write("# an agent was here\n")
    assert run(root) == (1, ".wavegen/bin/default: edited by hand\n")
