"""The stub of a shell: finds the launcher beside itself, whatever its name is spelt like, and what a start costs in system calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence import Fence, users
from helpers import ROOT

from wavegen.backends.sandboxes import bwrap
from wavegen.backends.sandboxes.rules_file import base_text, rules_text
from wavegen.launcher.bwrap import option_words
from wavegen.launcher.rules import read_rules
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.planner import plan_manifest

pytestmark = pytest.mark.needs("bwrap")

MANIFEST = "metadata: {name: stub}\nruntime: {sandbox: {shells: {filtered: {network: filtered, domains: [good.example]}}}}\n"
MOST_PROGRAMS, MOST_MOUNTS = 5, 90
"""The budget of a start, for a user without privileges."""
_USUAL = {"bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "lost+found", "media", "mnt", "opt", "proc", "root", "run", "sbin", "srv", "sys", "tmp", "usr", "var"}  # fmt: skip


@pytest.fixture
def fence() -> Iterator[Fence]:
    made = Fence.create(MANIFEST, uid=users()[-1])
    yield made
    made.remove()


def started(fence: Fence, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command line of the host's, as the fence's user."""
    argv = [*fence.argv("default", ())[:-1], *words]
    return subprocess.run(argv, cwd=cwd or fence.project, env=fence.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)


def test_the_stubs_of_all_shells_are_the_same_few_lines(fence: Fence) -> None:
    texts = {path.read_text() for path in (fence.project / ".wavegen/bin").iterdir()}
    assert len(texts) == 1
    assert len(texts.pop().splitlines()) <= 40


@pytest.mark.parametrize("uid", users())
@pytest.mark.parametrize("shell", ["default", "filtered"])
def test_a_project_is_entered_by_a_link_to_it_or_to_a_directory_above(uid: int, shell: str) -> None:
    fence = Fence.create(MANIFEST, uid=uid)
    try:
        for name, target in (("to project", fence.project), ("above", fence.project.parent)):
            (fence.base / name).symlink_to(target)
        for place in (fence.base / "to project", fence.base / "above" / fence.project.name):
            for words in ((f"{place}/.wavegen/bin/{shell}", "pwd"), (f"{place}/.wavegen/bin/../bin/{shell}", "pwd")):
                for cwd in (fence.project, place, fence.home):
                    done = started(fence, *words, cwd=cwd) if cwd != fence.home else started(fence, *words[:1], "--project", str(place), "pwd", cwd=cwd)
                    assert (done.returncode, done.stdout) == (0, f"{fence.project}\n"), done.stderr
    finally:
        fence.remove()


@pytest.mark.parametrize("spelling", [".wavegen/bin/default", "./.wavegen/bin/default", ".wavegen/../.wavegen/bin/default", "@link", "@chain", "@path"])
def test_the_launcher_is_found_beside_the_script_itself(fence: Fence, spelling: str) -> None:
    """And not beside a link that leads to it, where a command could have put one."""
    planted = fence.project / "evil/bin"
    planted.mkdir(parents=True)
    (fence.project / "evil/launcher").mkdir()
    (fence.project / "evil/launcher/__main__.py").write_text("print('on the host')\n")
    (planted / "default").symlink_to(fence.project / ".wavegen/bin/default")
    (planted / "other").symlink_to("default")
    fence.own()
    if spelling == "@path":
        done = started(fence, "env", f"PATH={planted}:/usr/bin:/bin", "default", "echo", "inside")
    else:
        done = started(fence, {"@link": str(planted / "default"), "@chain": "evil/bin/default"}.get(spelling, spelling), "echo", "inside")
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


@pytest.mark.parametrize("target", ["yolo", "../../evil/.wavegen/bin/yolo"])
def test_a_script_that_a_pull_request_turned_into_a_link_starts_no_other_shell(fence: Fence, target: str) -> None:
    shutil.copytree(fence.project / ".wavegen", fence.project / "evil/.wavegen")
    script = fence.project / ".wavegen/bin/default"
    script.unlink()
    script.symlink_to(target)
    fence.own()
    for spelling, cwd in ((".wavegen/bin/default", None), ("./default", script.parent), (str(script), None)):
        done = started(fence, spelling, "echo", "ran", cwd=cwd)
        assert (done.returncode, done.stdout) == (125, ""), done.stderr
        assert "is a link (look at it, then run wavegen render)" in done.stderr


def test_without_its_launcher_a_shell_does_not_start(fence: Fence) -> None:
    for name in ("launcher/mounts.py", "launcher/inside/restrict_and_exec.pl", "rules/default", "rules/base", "seccomp/default.bpf"):
        part = fence.project / ".wavegen" / name
        whole = part.read_bytes()
        for left in (None, b"", whole[:100], whole + b"\n"):
            part.unlink() if left is None else part.write_bytes(left)
            done = fence.enter("touch", "ran")
            assert (done.returncode, done.stdout, (fence.project / "ran").exists()) == (125, "", False), (name, left)
            assert "run wavegen render" in done.stderr
            part.write_bytes(whole)
    fence.own()
    assert fence.enter("echo", "inside").stdout == "inside\n"


def test_an_older_python_says_so() -> None:
    main = ROOT / "wavegen/launcher/__main__.py"
    head = main.read_text("utf-8").partition("import marshal")[0]
    # Whatever an old Python makes of the rest, it comes as far as that: no syntax that is newer than Python 3.
    compile(main.read_text("utf-8"), "main", "exec")
    assert not re.search(r"from __future__|:=|^ *match |\bf['\"]|def \w+\(.*\) ->", main.read_text("utf-8"), re.MULTILINE)
    assert "sys.exit(125)" in head


@pytest.mark.parametrize(
    ("sandbox", "shell", "option", "there"),
    [
        ("", "default", "--unshare-net", False),
        ("", "restricted", "--unshare-net", True),
        ("shells: {own: {network: none}}", "own", "--unshare-net", True),
        ("shells: {own: {network: open}}", "own", "--unshare-net", True),
        ("shells: {own: {network: host}}", "own", "--unshare-net", False),
        ("shells: {own: {}}", "own", "--unshare-net", True),
        ("", "default", "--disable-userns", True),
        ("shells: {own: {nested: true}}", "own", "--disable-userns", False),
        *(("", "default", option, True) for option in ("--cap-drop", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup")),
        ("", "default", "--die-with-parent", True),
    ],
)
def test_an_option_is_there_exactly_where_the_policy_asks_for_it(sandbox: str, shell: str, option: str, there: bool) -> None:
    text = "metadata: {name: p}\n" + (f"runtime: {{sandbox: {{{sandbox}}}}}\n" if sandbox else "")
    made = plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")
    policy = made.find_shell(shell)
    assert policy
    rules = read_rules(rules_text(made, policy), base_text, "rules")
    assert (option in [words[0] for words, _ in option_words(rules)]) == there


def test_every_rule_names_where_it_comes_from() -> None:
    text = b"metadata: {name: p}\nruntime:\n  sandbox:\n    paths: [{path: ~/.gitconfig, access: read}]\n    env_passthrough: [TOKEN_A]\n"
    made = plan_manifest(Source("wave.yaml", text), None, "wave.sandbox.yaml")
    files = {file.path: file.text for file in bwrap.render(made) if file.path.startswith(".wavegen/rules/")}
    lines = [line for file in files.values() for line in file.splitlines() if line.split("\t")[0] in ("path", "pass", "env", "allow")]
    assert len(lines) > 150
    assert [line for line in lines if not line.split("\t")[-1].startswith("default: ") and line.split("\t")[-1] != "wave.yaml"] == []
    assert "path\tread\t~/.gitconfig\trequired\twave.yaml" in files[".wavegen/rules/default"]
    assert files == {file.path: file.text for file in bwrap.render(made) if file.path in files}


@pytest.mark.needs("strace", "git", "user")
@pytest.mark.parametrize("shell", ["default", "restricted", "filtered"])
def test_a_start_costs_few_programs_and_mounts(shell: str) -> None:
    """As a user, in a repository: system calls, and no stopwatch."""
    made = Fence.create(MANIFEST, uid=users()[-1])
    try:
        subprocess.run(["git", "init", "--quiet", str(made.project)], check=True)
        made.own()
        assert made.render().returncode == 0
        assert made.enter("true", shell=shell).returncode == 0
        trace = made.base / "trace"
        argv = made.argv(shell, ("true",))
        at = argv.index(str(made.project / ".wavegen/bin" / shell))
        done = subprocess.run(
            [*argv[:at], "strace", "-f", "-qq", "-o", str(trace), "-e", "trace=execve,mount", *argv[at:]],
            cwd=made.project,
            env=made.environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        calls = [line for line in trace.read_text().splitlines() if line.endswith("= 0")]
        programs = [line for line in calls if "execve(" in line]
        # A directory of the root that most machines do not have is shown, too: two mounts each.
        more = [name for name in os.listdir("/") if name not in _USUAL and os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")]
        assert len(programs) <= MOST_PROGRAMS, programs
        assert len([line for line in calls if "mount(" in line]) <= MOST_MOUNTS + 2 * len(more)
    finally:
        made.remove()
