"""What `render` does to a disk: only what is needed, never to a file of the user's, and never half of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from helpers import MINIMAL, ROOT, WAVEGEN, call, environment, project, render_project, rendered, snapshot, times, wavegen

from wavegen import backends
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.planner import plan_manifest

ONE = "metadata: {name: one}\nruntime: {sandbox: {packages: [go], shells: {ci: {}, first: {}}}}\n"
TWO = "metadata: {name: two}\nruntime: {sandbox: {packages: [gh, jq], home: tmpfs, shells: {ci: {network: none}, second: {}}}}\n"
ADOPT = "devShells = (import ./.wavegen/shells.nix { inherit nixpkgs; }).devShells;"
# The launcher's files that only some projects need, by what needs them.
OF_CONTAINERS = ("container.py", "container_mounts.py", "container_output.py", "engine.py", "inside/container_entry.sh")
OF_LANDLOCK = ("grants.py", "landlock.py", "rendered.py", "tcp_filter.py")
LAUNCHER = sorted(
    str(file.relative_to(ROOT / "wavegen/launcher")) for file in (ROOT / "wavegen/launcher").rglob("*") if file.is_file() and "__pycache__" not in file.parts
)
TREE = sorted(
    [
        ".wavegen/.gitattributes",
        ".wavegen/.gitignore",
        *(f".wavegen/bin/{name}" for name in ("default", "restricted", "yolo")),
        *(f".wavegen/docker/{name}" for name in (".dockerignore", "Dockerfile", "run-default", "run-restricted")),
        # Programs are the same for everyone: all that are in the package, and no others.
        *(f".wavegen/launcher/{name}" for name in LAUNCHER if name not in OF_LANDLOCK),
        *(f".wavegen/rules/{name}" for name in ("base", "default", "restricted", "yolo")),
        ".wavegen/lock.json",
        ".wavegen/plan.json",
        ".wavegen/seccomp/default.bpf",
        ".wavegen/seccomp/default.json",
        ".wavegen/shells.nix",
        ".wavegen/wave.schema.json",
        "flake.lock",
        "flake.nix",
    ]
)


def with_directories(files: Iterable[str]) -> list[str]:
    """Files, and every directory that one of them lies in, sorted."""
    above = {str(parent) for name in files for parent in Path(name).parents if str(parent) != "."}
    return sorted({*files, *above})


def check(root: Path) -> tuple[int, list[str]]:
    """Status and lines of `render --check`, which must change nothing."""
    before, when = snapshot(root), times(root)
    done = call("render", "--check", cwd=root)
    assert (snapshot(root), times(root)) == (before, when)
    return done.status, done.stdout.splitlines()


# --- writing


def test_the_first_render_writes_the_tree_and_names_each_file_that_is_the_projects_own(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    done = call("render", cwd=root)
    assert done.status == 0
    launcher = [name for name in TREE if name.startswith(".wavegen/launcher/")]
    assert done.stdout.splitlines() == [f"wrote .wavegen/launcher/ ({len(launcher)} files)", *(f"wrote {name}" for name in TREE if name not in launcher)]
    assert sorted(rendered(root)) == TREE
    assert sorted(snapshot(root)) == with_directories([*TREE, "wave.yaml"])


COMMONDIR = ".git/commondir"


def repository(tmp_path: Path) -> Path:
    root = project(tmp_path, MINIMAL)
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    return root


@pytest.mark.needs("git")
def test_a_repository_is_told_once_that_its_settings_are_its_own(tmp_path: Path) -> None:
    root = repository(tmp_path)
    before = subprocess.run(["git", "rev-parse", "--git-common-dir"], cwd=root, capture_output=True, text=True, check=True).stdout
    first = call("render", cwd=root)
    assert first.stdout.splitlines()[-1] == f"wrote {COMMONDIR}"
    assert f"{COMMONDIR} says what git assumes anyway" in first.stderr
    # As git says it, and so that libgit2 takes it, too.
    assert (root / COMMONDIR).read_bytes() == b"./\n"
    assert stat.S_IMODE((root / COMMONDIR).stat().st_mode) & 0o133 == 0
    after = subprocess.run(["git", "rev-parse", "--git-common-dir"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert os.path.realpath(root / after.strip()) == os.path.realpath(root / before.strip()) == os.path.realpath(root / ".git")
    subprocess.run(["git", "status", "--porcelain"], cwd=root, capture_output=True, check=True)
    when = times(root)
    assert call("render", cwd=root).stdout == "up to date\n"
    assert times(root) == when


@pytest.mark.needs("git")
@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_looking_writes_nothing_into_a_repository(tmp_path: Path, option: str) -> None:
    root = repository(tmp_path)
    before = snapshot(root)
    call("render", option, cwd=root)
    assert snapshot(root) == before
    assert call("render", cwd=root).status == 0
    assert (root / COMMONDIR).exists()


@pytest.mark.needs("git")
@pytest.mark.parametrize(
    "made",
    [
        pytest.param("printf ../elsewhere >.git/commondir", id="it-says-something-else"),
        pytest.param("ln -s ../../victim .git/commondir", id="a-link-in-its-place"),
        pytest.param("mv .git ../real && ln -s ../real .git", id="a-link-in-the-place-of-git"),
        pytest.param("rm -r .git && echo 'gitdir: ../real' >.git", id="a-linked-worktree"),
        pytest.param("rm -r .git/objects", id="no-repository"),
        pytest.param("rm .git/HEAD", id="no-repository-yet"),
        pytest.param("rm -r .git", id="none-at-all"),
    ],
)
def test_what_is_there_of_a_repository_is_left_alone(tmp_path: Path, made: str) -> None:
    root = repository(tmp_path)
    subprocess.run(["sh", "-ec", made], cwd=root, check=True)
    written = set(snapshot(tmp_path))
    before = snapshot(root / ".git") if (root / ".git").is_dir() else {}
    done = call("render", cwd=root)
    assert done.status == 0
    assert f"wrote {COMMONDIR}" not in done.stdout
    assert f"{COMMONDIR} says" not in done.stderr
    assert (snapshot(root / ".git") if (root / ".git").is_dir() else {}) == before
    assert {name for name in set(snapshot(tmp_path)) - written if not name.startswith(("project/.wavegen", "project/flake."))} == set()
    assert (root / ".wavegen/plan.json").exists()


def test_wrappers_are_executable_and_nothing_else_is(tmp_path: Path) -> None:
    modes = {name: mode for name, (mode, _) in snapshot(render_project(tmp_path)).items() if not mode.startswith("d")}
    assert {name for name, mode in modes.items() if "x" in mode} == {
        *(".wavegen/bin/default", ".wavegen/bin/restricted", ".wavegen/bin/yolo"),
        *(f".wavegen/docker/{name}" for name in ("run-default", "run-restricted")),
    }
    assert {mode for mode in modes.values() if "x" in mode} == {"-rwxr-xr-x"}


def with_outputs(*names: str, backend: str = "bubblewrap") -> str:
    """A manifest that asks for these."""
    return f"metadata: {{name: demo}}\nruntime: {{sandbox: {{backend: {backend}, outputs: [{', '.join(names)}]}}}}\n"


BARE = {name for name in TREE if not name.startswith((".wavegen/docker/", "flake."))} - {".wavegen/seccomp/default.json", ".wavegen/shells.nix"}
BARE -= {f".wavegen/launcher/{name}" for name in OF_CONTAINERS}
FLAKE_FILES = {"flake.nix", "flake.lock", ".wavegen/shells.nix"}
IMAGE_FILES = {".wavegen/docker/.dockerignore", ".wavegen/docker/Dockerfile", ".wavegen/seccomp/default.json"}
STARTS = {f".wavegen/docker/run-{name}" for name in ("default", "restricted")} | {f".wavegen/launcher/{name}" for name in OF_CONTAINERS}


@pytest.mark.parametrize(
    ("names", "backend", "more"),
    [
        ((), "bubblewrap", set()),
        (("flake",), "bubblewrap", FLAKE_FILES),
        (("docker",), "bubblewrap", IMAGE_FILES | STARTS),
        (("compose",), "bubblewrap", IMAGE_FILES | {".wavegen/docker/compose.yaml"}),
        (("srt",), "bubblewrap", {f".wavegen/srt/{name}.json" for name in ("default", "restricted")}),
        (("flake", "docker"), "bubblewrap", FLAKE_FILES | IMAGE_FILES | STARTS),
        ((), "docker", IMAGE_FILES | STARTS),
    ],
)
def test_what_is_rendered_is_what_is_asked_for(tmp_path: Path, names: tuple[str, ...], backend: str, more: set[str]) -> None:
    root = render_project(tmp_path, with_outputs(*names, backend=backend))
    assert set(rendered(root)) == BARE | more
    assert check(root) == (0, [])


def test_what_is_no_longer_asked_for_is_removed_and_the_users_flake_is_not(tmp_path: Path) -> None:
    root = render_project(tmp_path, with_outputs("flake", "docker", "compose", "srt"))
    assert {"flake.nix", ".wavegen/docker/compose.yaml", ".wavegen/srt/default.json"} <= set(rendered(root))
    (root / "wave.yaml").write_text(with_outputs())
    assert call("render", cwd=root).status == 0
    assert {path.name for path in root.iterdir()} == {".wavegen", "flake.lock", "wave.yaml"}  # the lock may be the user's
    assert set(rendered(root)) == BARE | {"flake.lock"}
    (root / "flake.nix").write_text("{ outputs = _: { }; }\n")
    (root / "wave.yaml").write_text(with_outputs("docker"))
    assert call("render", cwd=root).status == 0
    assert (root / "flake.nix").read_text() == "{ outputs = _: { }; }\n"


def test_gaps_are_those_of_what_is_rendered(tmp_path: Path) -> None:
    def gaps(*names: str) -> set[str]:
        done = call("plan", "-v", cwd=project(tmp_path, with_outputs(*names)))
        return {name for name in ("bwrap", "flake", "docker", "compose", "srt") if f"[{name}]" in done.output}

    assert gaps() == {"bwrap"}
    assert gaps("flake", "compose") == {"bwrap", "flake", "compose"}
    assert gaps("srt", "docker") == {"bwrap", "srt", "docker"}


def test_git_takes_what_is_generated_as_it_is_and_says_so_to_reviewers(tmp_path: Path) -> None:
    assert (render_project(tmp_path) / ".wavegen/.gitattributes").read_text() == "* -text linguist-generated\n"


def test_the_second_render_writes_nothing(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    before = times(root)
    done = call("render", cwd=root)
    assert (done.status, done.stdout, done.stderr) == (0, "up to date\n", "")
    assert times(root) == before


def test_a_comment_in_the_manifest_writes_only_the_digests(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    (root / "wave.yaml").write_text(ONE + "# a thought\n")
    assert call("render", cwd=root).stdout == "wrote .wavegen/lock.json\n"


def test_a_change_of_one_shell_writes_only_what_depends_on_it(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    before = times(root)
    (root / "wave.yaml").write_text(ONE.replace("ci: {}", "ci: {network: none}"))
    done = call("render", cwd=root)
    assert done.stdout.splitlines() == [f"wrote .wavegen/{name}" for name in ("lock.json", "rules/ci")]
    changed = {name for name, when in times(root).items() if before[name] != when}
    assert changed == {
        ".wavegen",
        ".wavegen/lock.json",
        ".wavegen/rules",
        ".wavegen/rules/ci",
        "wave.yaml",
    }


@pytest.mark.parametrize("outputs", ["[flake, docker]", "[flake, docker, compose, srt]"])
def test_no_line_of_the_manifest_stands_in_what_is_rendered(tmp_path: Path, outputs: str) -> None:
    text = f"""metadata: {{name: x}}
adapters: {{claude: {{binary: claude, mode: headless}}, gemini: {{}}, opencode: {{}}}}
personas:
  a: {{adapter: claude, permissions: {{allowed_tools: [Read, "Bash(ls)"], deny: [WebFetch]}}}}
  b: {{adapter: gemini, permissions: {{allowed_tools: [Read, "Bash(ls)"]}}}}
  c: {{adapter: opencode, permissions: {{allowed_tools: [Read, "Bash(ls)"]}}}}
runtime:
  sandbox:
    outputs: {outputs}
    packages: [jq]
    default_allowed_domains: [api.anthropic.com, generativelanguage.googleapis.com]
    deny_read_paths: [.env]
    env_passthrough: [TOKEN]
    limits: {{pids: 99}}
    paths: [{{path: ~/.x, access: read, optional: true}}]
"""
    root = render_project(tmp_path, text)
    (root / "wave.yaml").write_text("# a thought\n" + text)
    assert call("render", cwd=root).stdout == "wrote .wavegen/lock.json\n"
    (root / "wave.yaml").write_text(text.replace("[api.anthropic.com,", "[api.anthropic.com, example.org,"))
    assert call("render", cwd=root).stdout.count("rules/restricted\n") == 1


def test_the_lock_holds_the_digest_of_each_input_and_output(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE, overlay="runtime: {sandbox: {packages: [jq]}}\n")
    lock = json.loads((root / ".wavegen/lock.json").read_text())

    def digest(name: str) -> str:
        return f"sha256:{hashlib.sha256((root / name).read_bytes()).hexdigest()}"

    assert lock["inputs"] == {name: digest(name) for name in ("wave.sandbox.yaml", "wave.yaml")}
    outputs = [name for name in rendered(root) if name not in (".wavegen/lock.json", "flake.lock")]
    assert lock["outputs"] == {name: digest(name) for name in outputs}


def test_shells_that_are_no_longer_in_the_manifest_are_removed(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    (root / "wave.yaml").write_text(TWO)
    done = call("render", cwd=root)
    assert "removed .wavegen/bin/first" in done.stdout.splitlines()
    assert {p.name for p in (root / ".wavegen/bin").iterdir()} == {"ci", "default", "restricted", "second", "yolo"}
    fresh = render_project(tmp_path / "fresh" if (tmp_path / "fresh").mkdir() is None else tmp_path, TWO)
    assert rendered(root) == rendered(fresh)


def test_shells_that_are_no_longer_in_the_manifest_are_removed_also_without_a_lock(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    (root / ".wavegen/lock.json").unlink()
    (root / "wave.yaml").write_text(TWO)
    assert "removed .wavegen/bin/first" in call("render", cwd=root).stdout


def test_a_file_of_the_users_in_the_tree_is_left_alone(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    (root / ".wavegen/bin/mine").write_text("#!/bin/sh\n")
    (root / ".wavegen/notes.txt").write_text("mine")
    (root / "wave.yaml").write_text(TWO)
    assert call("render", cwd=root).status == 0
    assert (root / ".wavegen/bin/mine").read_text() == "#!/bin/sh\n"
    assert (root / ".wavegen/notes.txt").read_text() == "mine"
    # What is loaded from there is wavegen's alone: it is named until somebody has looked at it.
    assert check(root) == (1, [f".wavegen/{name}: not of wavegen: remove it" for name in ("bin/mine", "notes.txt")])


# --- --check and --diff


def test_check_of_an_empty_project_names_each_missing_file(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    assert check(root) == (1, [f"{name}: missing" for name in TREE])


def test_check_after_render_finds_nothing(tmp_path: Path) -> None:
    assert check(render_project(tmp_path, ONE)) == (0, [])


@pytest.mark.parametrize(
    ("damage", "lines"),
    [
        pytest.param("rm .wavegen/plan.json", [".wavegen/plan.json: missing"], id="missing"),
        pytest.param("echo >>.wavegen/bin/ci", [".wavegen/bin/ci: edited by hand"], id="edited"),
        pytest.param("echo >>flake.nix", ["flake.nix: edited by hand"], id="edited-flake"),
        pytest.param("chmod -x .wavegen/bin/ci", [".wavegen/bin/ci: not executable"], id="not-executable"),
        pytest.param(
            "sed -i 's/ci: {}/ci: {network: none}/' wave.yaml",
            [f".wavegen/{name}: out of date" for name in ("lock.json", "rules/ci")],
            id="stale",
        ),
        pytest.param("echo '# hi' >>wave.yaml", [".wavegen/lock.json: out of date"], id="comment"),
        pytest.param(
            "sed -i 's/, first: {}//' wave.yaml",
            [
                ".wavegen/bin/first: no longer rendered",
                ".wavegen/docker/run-first: no longer rendered",
                ".wavegen/lock.json: out of date",
                ".wavegen/plan.json: out of date",
                ".wavegen/rules/first: no longer rendered",
            ],
            id="orphan",
        ),
        pytest.param("rm -r .wavegen/lock.json", [".wavegen/lock.json: missing"], id="no-lock"),
        pytest.param("rm flake.lock", ["flake.lock: missing"], id="no-flake-lock"),
        pytest.param(
            "chmod -x .wavegen/bin/ci; rm flake.nix; echo >>.wavegen/bin/default",
            [".wavegen/bin/ci: not executable", ".wavegen/bin/default: edited by hand", "flake.nix: missing"],
            id="several",
        ),
    ],
)
def test_check_fails_with_one_reason_a_line_and_render_puts_it_right(tmp_path: Path, damage: str, lines: list[str]) -> None:
    root = render_project(tmp_path, ONE)
    subprocess.run(["sh", "-ec", damage], cwd=root, check=True)
    assert check(root) == (1, lines)
    assert call("render", cwd=root).status == 0
    assert check(root) == (0, [])


def test_diff_shows_what_would_change_and_writes_nothing(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    (root / "wave.yaml").write_text(ONE.replace("ci: {}", "ci: {network: none}"))
    before = times(root)
    alone, with_check = call("render", "--diff", cwd=root), call("render", "--diff", "--check", cwd=root)
    assert (alone.status, with_check.status) == (0, 1)
    assert alone.stdout == with_check.stdout
    assert times(root) == before
    lines = alone.stdout.splitlines()
    assert "--- a/.wavegen/rules/ci" in lines
    assert "+++ b/.wavegen/rules/ci" in lines
    assert any(line.startswith("-network\tnone\tdefault: filtered unless") for line in lines)
    assert "+network\tnone\twave.yaml" in lines


@pytest.mark.needs("git")
def test_the_diff_applied_gives_what_render_writes(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    (root / "wave.yaml").write_text(TWO)
    (root / ".wavegen/bin/ci").write_bytes((root / ".wavegen/bin/ci").read_bytes()[:-1] + b" # no newline")
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    diff = call("render", "--diff", cwd=root).stdout
    applied = subprocess.run(["git", "apply", "--unsafe-paths", "-"], cwd=copy, input=diff, text=True, capture_output=True, check=False)
    assert applied.returncode == 0, applied.stderr
    assert call("render", cwd=root).status == 0
    gone = {name: text for name, text in rendered(copy).items() if text}  # a removed file is shown as an emptied one
    assert gone == rendered(root)


def test_diff_of_a_clean_project_is_empty(tmp_path: Path) -> None:
    done = call("render", "--diff", "--check", cwd=render_project(tmp_path, ONE))
    assert (done.status, done.output) == (0, "")


# --- files of the user's


def test_a_flake_written_by_hand_stays_and_the_line_to_add_is_printed(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    (root / "flake.nix").write_text("{ outputs = _: { }; }\n")
    done = call("render", cwd=root)
    assert done.status == 0
    assert (root / "flake.nix").read_text() == "{ outputs = _: { }; }\n"
    assert ADOPT in done.stderr
    assert "flake.nix" not in done.stdout
    assert ".wavegen/bin/default" in rendered(root)
    assert check(root) == (0, [])
    assert ADOPT in call("render", cwd=root).stderr


def test_an_empty_flake_is_the_users_too(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    (root / "flake.nix").write_text("")
    assert call("render", cwd=root).status == 0
    assert (root / "flake.nix").read_text() == ""


def test_an_existing_flake_lock_is_never_touched(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    (root / "flake.lock").write_text("{}")
    before = times(root)["flake.lock"]
    assert "flake.lock" not in call("render", cwd=root).stdout
    (root / "wave.yaml").write_text(ONE)
    assert "flake.lock" not in call("render", cwd=root).stdout
    assert (root / "flake.lock").read_text() == "{}"
    assert times(root)["flake.lock"] == before


# --- git


def git(root: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True).stdout


HINT = "flakes see only what git knows: git add -N -- flake.nix flake.lock .wavegen"


@pytest.mark.needs("git")
def test_git_add_is_printed_only_in_a_repository_and_only_for_new_files(tmp_path: Path) -> None:
    root = project(tmp_path, ONE)
    assert HINT not in call("render", cwd=root).stderr
    shutil.rmtree(root / ".wavegen")
    git(root, "init", "-q")
    assert HINT in call("render", cwd=root).stderr.splitlines()
    assert git(root, "ls-files") == ""
    (root / "wave.yaml").write_text("# hi\n" + ONE)
    assert HINT not in call("render", cwd=root).stderr


@pytest.mark.needs("git")
def test_git_add_runs_where_it_is_asked_for(tmp_path: Path) -> None:
    root = project(tmp_path, ONE)
    git(root, "init", "-q")
    done = call("render", "--git-add", cwd=root)
    assert (done.status, HINT in done.stderr) == (0, False)
    assert set(git(root, "ls-files").split()) == set(rendered(root))
    assert git(root, "diff", "--cached", "--name-only") == ""  # intended only, nothing is staged


def trapped(root: Path) -> Path:
    """A repository whose settings name a program wherever git might start one; the file that it writes when it runs."""
    root.mkdir()
    (root / "wave.yaml").write_text(ONE)
    git(root, "init", "-q")
    log = root.with_name(f"{root.name}-sprung")
    trap = root.with_name(f"{root.name}-trap")
    trap.write_text(f"#!/bin/sh\necho \"$0 $*\" >>'{log}'\n")
    trap.chmod(0o755)
    os.utime(root / "wave.yaml", (2**31, 2**31))
    git(root, "add", "wave.yaml")
    # A tracked file that is newer than the index: whenever git writes the index it looks at that file's content again.
    (root / ".gitattributes").write_text("* filter=x diff=x merge=x\n")
    hooks = root.with_name(f"{root.name}-hooks")
    hooks.mkdir()
    for directory in (root / ".git/hooks", hooks):
        directory.mkdir(exist_ok=True)
        for hook in ("post-index-change", "fsmonitor-watchman", "pre-commit", "post-checkout"):
            shutil.copy(trap, directory / hook)
    settings = (
        "core.fsmonitor",
        "core.sshCommand",
        "core.pager",
        "core.editor",
        "filter.x.clean",
        "filter.x.smudge",
        "diff.x.textconv",
        "diff.x.command",
        "diff.external",
    )
    for name in settings:
        git(root, "config", name, str(trap))
    git(root, "config", "alias.add", f"!{trap}")
    git(root, "config", "core.hooksPath", str(hooks))
    return log


@pytest.mark.needs("git")
def test_git_add_runs_no_program_that_the_projects_git_settings_name(tmp_path: Path) -> None:
    baited = tmp_path / "baited"
    log = trapped(baited)
    (baited / "new").write_text("x")
    subprocess.run(["git", "add", "-N", "new"], cwd=baited, capture_output=True, check=False)
    sprung = log.read_text().splitlines()
    assert f"{tmp_path}/baited-trap " in sprung, "the filter is no trap, so this test would prove nothing"
    assert len(sprung) > 1, "nor are hooks and fsmonitor"

    root = tmp_path / "project"
    log = trapped(root)
    done = call("render", "--git-add", cwd=root)
    assert done.status == 0, done.output
    assert ".wavegen/plan.json" in git(root, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "ls-files").split()
    assert not log.exists(), log.read_text()


@pytest.mark.parametrize("drop", ["clean", "process"])
@pytest.mark.needs("git")
def test_git_add_starts_no_filter(tmp_path: Path, drop: str) -> None:
    root = tmp_path / "project"
    log = trapped(root)
    trap = git(root, "config", "filter.x.clean").strip()
    git(root, "config", "--unset", "filter.x.clean")
    git(root, "config", f"filter.x.{drop}", trap)
    git(root, "config", "filter.x.required", "true")
    call("render", "--git-add", cwd=root)
    time.sleep(0.1)  # a filter process is not waited for
    assert not log.exists(), log.read_text()


@pytest.mark.needs("git")
def test_git_add_that_fails_is_said_with_what_to_do(tmp_path: Path) -> None:
    root = project(tmp_path, ONE)
    git(root, "init", "-q")
    (root / ".gitignore").write_text(".wavegen\n")
    done = call("render", "--git-add", cwd=root)
    assert done.status == 3
    assert "wavegen: error: git add failed: " in done.stderr
    assert "(run git add -N -- flake.nix flake.lock .wavegen yourself)" in done.stderr
    assert check(root) == (0, [])


@pytest.mark.needs("git")
def test_git_add_works_where_the_flake_is_written_by_hand(tmp_path: Path) -> None:
    root = project(tmp_path, ONE)
    git(root, "init", "-q")
    (root / "flake.nix").write_text("{ }\n")
    (root / "flake.lock").write_text("{ }\n")
    assert call("render", "--git-add", cwd=root).status == 0
    assert ".wavegen/plan.json" in git(root, "ls-files").split()


# --- interruptions


def test_what_a_killed_render_left_is_cleaned_up_by_the_next(tmp_path: Path) -> None:
    root = render_project(tmp_path, ONE)
    before = snapshot(root)
    work = root / ".wavegen/.tmp"
    work.mkdir()
    (work / ".wavegen%plan.json").write_text("half")
    (work / "flake.nix").write_text("")
    assert call("render", cwd=root).status == 0
    assert snapshot(root) == before


def test_nothing_is_left_of_a_persona_that_is_no_more(tmp_path: Path) -> None:
    text = "metadata: {name: x}\nadapters: {claude: {}}\npersonas: {%s: {}}\n"
    root = project(tmp_path, text % "one")
    assert call("render", cwd=root).status == 0
    (root / "wave.yaml").write_text(text % "other")
    assert call("render", cwd=root).status == 0
    assert sorted(path.name for path in (root / ".wavegen/personas").iterdir()) == ["other"]
    (root / "wave.yaml").write_text("metadata: {name: x}\n")
    assert call("render", cwd=root).status == 0
    assert not (root / ".wavegen/personas").exists()
    assert check(root) == (0, [])


def test_a_render_waits_for_the_disk_only_for_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that is empty after a power cut would do nothing, and say that it went well; all else is compared with the lock before it is read."""
    waited: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda handle: waited.append(os.readlink(f"/proc/self/fd/{handle}")))
    root = render_project(tmp_path)
    scripts = [path for path in (root / ".wavegen").rglob("*") if path.is_file() and os.access(path, os.X_OK)]
    assert len(waited) == len(scripts) == 5


def test_a_render_that_is_killed_leaves_each_file_wholly_old_or_new(tmp_path: Path) -> None:
    """66 kills, most of them while it writes, the two manifests in turn: what was written before is what the next one finds."""
    root = project(tmp_path, ONE)
    wanted = []
    for text in (ONE, TWO):
        other = tmp_path / text.split()[2].strip("}")
        other.mkdir()
        wanted.append(rendered(render_project(other, text)))
    allowed = {name: {tree[name] for tree in wanted if name in tree} for name in {*wanted[0], *wanted[1]}}
    start = time.monotonic()
    assert wavegen("render", cwd=root).status == 0
    span = time.monotonic() - start
    chance = random.Random(20)
    seen: set[bool] = set()
    for kill in range(66):
        (root / "wave.yaml").write_text((TWO, ONE)[kill % 2])
        process = subprocess.Popen([*WAVEGEN, "render"], cwd=root, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if kill % 3:
            while process.poll() is None and not (root / ".wavegen/.tmp").exists():
                time.sleep(0.0005)
            time.sleep(chance.uniform(0, 0.015))  # now it writes
        else:
            time.sleep(span * chance.uniform(0, 1))
        process.send_signal(signal.SIGKILL)
        seen.add(process.wait() == -signal.SIGKILL)
        state = {name: data for name, data in rendered(root).items() if not name.startswith(".wavegen/.tmp/")}
        for name, data in state.items():
            assert data in allowed[name], (kill, name)
        assert {"flake.nix", "flake.lock", ".wavegen/bin/ci", ".wavegen/plan.json"} <= set(state)
        assert all(os.access(root / name, os.X_OK) for name in state if name.startswith(".wavegen/bin/"))
    assert True in seen
    (root / "wave.yaml").write_text(TWO)
    done = wavegen("render", cwd=root)
    assert done.status == 0, done.output
    assert rendered(root) == wanted[1]
    assert sorted(snapshot(root)) == with_directories([*wanted[1], "wave.yaml"])
    assert check(root) == (0, [])


def test_a_render_that_stops_between_any_two_files_is_put_right_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same at every single step, without luck: the n-th rename does not happen."""
    replace, wanted = os.replace, None
    for stop in range(1, 20):
        base = tmp_path / str(stop)
        base.mkdir()
        root = render_project(base, ONE)
        (root / "wave.yaml").write_text(TWO)
        calls = []

        def interrupted(source: str, target: str, stop: int = stop, calls: list[str] = calls, base: Path = base) -> None:
            if target.startswith(str(base)):  # and not what is kept on the host
                calls.append(target)
                if len(calls) == stop:
                    raise KeyboardInterrupt
            replace(source, target)

        monkeypatch.setattr(os, "replace", interrupted)
        with contextlib.suppress(KeyboardInterrupt):
            call("render", cwd=root)
        monkeypatch.setattr(os, "replace", replace)
        status, _ = check(root)
        assert status == (1 if len(calls) == stop else 0)
        assert call("render", cwd=root).status == 0
        wanted = wanted or rendered(root)
        assert rendered(root) == wanted
        assert not (root / ".wavegen/.tmp").exists()
        if len(calls) < stop:
            break
    else:
        pytest.fail("the render never ran to its end")
    assert stop > 4


def test_renders_at_once_leave_a_clean_tree(tmp_path: Path) -> None:
    root = project(tmp_path, ONE)
    processes = [
        subprocess.Popen([*WAVEGEN, "render"], cwd=root, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    for process in processes:
        _, shown = process.communicate(timeout=60)
        assert process.returncode == 0, shown
    assert check(root) == (0, [])
    assert not (root / ".wavegen/.tmp").exists()


def test_renders_of_a_manifest_that_changes_meanwhile_leave_whole_files(tmp_path: Path) -> None:
    root = project(tmp_path, ONE)
    processes = []
    for i in range(6):
        (tmp_path / "next").write_text((ONE, TWO)[i % 2])
        (tmp_path / "next").replace(root / "wave.yaml")  # at once, as nobody may read half a manifest
        processes.append(subprocess.Popen([*WAVEGEN, "render"], cwd=root, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(0.02)
    assert {process.wait(timeout=60) for process in processes} == {0}
    assert call("render", cwd=root).status == 0
    assert check(root) == (0, [])


# --- the same everywhere


def test_the_bytes_depend_on_nothing_but_the_manifest(tmp_path: Path) -> None:
    text = ONE + "personas: {b: {}, a: {permissions: {deny: [Bash, Edit]}}}\nadapters: {claude: {}, codex: {}, gemini: {}}\n"
    wanted = rendered(render_project(tmp_path, text))
    around = (
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "1", "LC_ALL": "C", "TZ": "Asia/Kathmandu", "PYTHONUTF8": "0"},
        {"PYTHONHASHSEED": "2", "LC_ALL": "tr_TR.UTF-8", "HOME": "/nonexistent", "USER": "somebody", "NO_COLOR": "1"},
        {"PYTHONHASHSEED": "3", "LANG": "de_DE.ISO-8859-1", "TERM": "dumb", "CI": "1", "XDG_STATE_HOME": "/elsewhere"},
    )
    for i, env in enumerate(around):
        place = tmp_path / f"a b {i}é" / "deep"
        place.mkdir(parents=True)
        root = project(place, text)
        below = root / "sub/dir"
        below.mkdir(parents=True)
        done = wavegen("render", cwd=below if i % 2 else root, env=env)
        assert done.status == 0, done.output
        assert rendered(root) == wanted, env


def test_the_bytes_name_no_place_and_no_person(tmp_path: Path) -> None:
    everything = b"".join(rendered(render_project(tmp_path, ONE)).values())
    for name in (str(tmp_path), os.path.expanduser("~"), os.uname().nodename):
        assert not re.search(rb"\b" + re.escape(name.encode()) + rb"\b", everything), name


def test_the_work_grows_with_the_number_of_personas_and_not_with_its_square() -> None:
    def calls(count: int) -> int:
        personas = "".join(f"  p{number}: {{adapter: claude, permissions: {{allowed_tools: [Read, 'Bash(git log*)']}}}}\n" for number in range(count))
        text = f"metadata: {{name: many}}\nadapters: {{claude: {{binary: claude}}}}\npersonas:\n{personas}"
        many = plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")
        counted = 0

        def count_one(_: object, __: str, ___: object) -> Any:
            nonlocal counted
            counted += 1  # a line, or another turn of a loop
            return count_one

        before = sys.gettrace()
        sys.settrace(count_one)
        try:
            backends.render_all_files(many)
        finally:
            sys.settrace(before)
        return counted

    calls(10)  # what is kept after the first time
    few, many = calls(40), calls(160)
    assert many < 5 * few, (few, many)
