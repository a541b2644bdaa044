"""`wavegen verify --via docker` with real engines: containers hold, and without any one of their options they do not."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from contained import AS_USER
from engine import Engine, Podman
from fence import PYTHON, wait_until
from helpers import USER, Result, gone, wavegen
from test_verify import leftovers, site  # noqa: F401  a fixture

from wavegen.backends import render_all_files
from wavegen.project.loader import load_project
from wavegen.verify.containers import chown_below
from wavegen.verify.model import Verdict, Where
from wavegen.verify.run import CONTROL, Run, Task, compare_runs, container_policies, distinct_tasks, tasks_of
from wavegen.verify.score import PASSED, UNCHECKED
from wavegen.verify.testbed import Ground

pytestmark = pytest.mark.needs("docker", "bash")

MANIFEST = """\
metadata: {name: verify}
adapters: {claude: {binary: claude, mode: headless}}
personas:
  navigator: {adapter: claude, permissions: {allowed_tools: [Read]}}
runtime:
  sandbox:
    docker_image: '{image}'
    env_passthrough: [MY_TOKEN]
    deny_read_paths: [.env, secrets, /etc/hostname]
    paths:
      - {path: ~/.gitconfig, access: read, optional: true}
      - {path: ~/.cache, access: write, optional: true}
      - {path: vendor, access: read, optional: true}
    limits: {tmp: 64m, pids: 300, memory: 512m, files: 256}
    shells:
      filtered: {network: filtered, domains: [good.example, "port.example:8443"]}
"""
SHELLS = {"default": 125, "restricted": 150, "filtered": 140, "persona-navigator": 150}
"""How many cases hold at the least."""
CONTROLLED = ("R01", "R06", "R22", "P01", "N07", "N09", "E01", "W03")
"""What the control must reach: where it does not, nothing was proven."""
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="root's containers are somebody else's")


@contextmanager
def laid_out(manifest: str, image: str) -> Iterator[Path]:
    """A rendered project of the user's, in a directory that everybody may enter."""
    base = Path(tempfile.mkdtemp(prefix="verify-docker-")).resolve()
    try:
        project = base / "project"
        (project / "vendor").mkdir(parents=True)
        (base / "home").mkdir()
        (project / "wave.yaml").write_text(manifest.replace("{image}", image))
        assert wavegen("render", cwd=project).status == 0
        base.chmod(0o755)
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", f"{USER}:{USER}", str(base)], check=True)
        yield project
    finally:
        shutil.rmtree(base)


@pytest.fixture(scope="module")
def project(engine: Engine) -> Iterator[Path]:
    with laid_out(MANIFEST, engine.image()) as made:
        yield made


def run(project: Path, environment: dict[str, str], *words: str, prefix: tuple[str, ...] = ()) -> Result:
    """verify by docker, as whoever runs the tests."""
    return wavegen("verify", "--via", "docker", *words, cwd=project, env=environment, prefix=prefix, timeout=200)


def run_as(prefix: tuple[str, ...], place: Path, project: Path, environment: dict[str, str], *words: str) -> Result:
    """The same as the user."""
    own = {"HOME": str(project.parent / "home"), "PYTHONPATH": str(place), "LANG": "C.UTF-8", **environment}
    command = [*prefix, PYTHON, "-P", "-m", "wavegen", "verify", "--via", "docker", *words]
    done = subprocess.run(command, cwd=project, env=own, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def shells(report: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """The findings of a JSON report by shell and id."""
    return {shell["name"]: {finding["id"]: finding for finding in shell["findings"]} for shell in report["shells"]}


def check(done: Result, *names: str) -> dict[str, dict[str, dict[str, Any]]]:
    """Nothing is broken, all that is required was told, and not in vain."""
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    found = shells(report)
    wrong = {(shell, number): one["why"] for shell, all_ in found.items() for number, one in all_.items() if one["verdict"] == "BROKEN" or _untold(shell, one)}
    assert [shell["error"] for shell in report["shells"] if shell["error"]] == []
    assert wrong == {}
    assert done.status == PASSED
    for name in names:
        verdicts = [finding["verdict"] for finding in found[name].values()]
        assert "BROKEN" not in verdicts
        assert verdicts.count("HELD") >= SHELLS[name], name
    assert {found["yolo"][number]["verdict"] for number in CONTROLLED} == {"OPEN"}
    return found


def _untold(shell: str, finding: dict[str, Any]) -> bool:
    return shell != CONTROL and finding["required"] and finding["verdict"] == "INCONCLUSIVE"


def open_by_gaps(found: dict[str, dict[str, Any]]) -> set[str]:
    """What is open though the manifest does not ask for it: what the back end's gaps say."""
    notes = ("/sys read-only", "not mounted read-only", "user namespace for")
    return {number for number, finding in found.items() if finding["verdict"] == "OPEN" and any(note in finding["why"] for note in notes)}


# --- they hold


def test_every_shell_and_persona_holds_in_a_container(project: Path, engine: Engine, tmp_path: Path) -> None:
    before, names = leftovers(), ("default", "persona-navigator")  # whose network is filtered, too
    others = engine.run("ps", "-aq").stdout  # of tests that were here before
    reports = {kind: tmp_path / f"report.{kind}" for kind in ("sarif", "html")}
    words = [word for kind, path in reports.items() for word in (f"--{kind}", str(path))]
    done = run(project, engine.environment(), "--json", *words, *(word for name in names for word in ("-s", name)))
    found = check(done, *names)
    assert json.loads(done.stdout)["via"] == "docker"
    for path in reports.values():
        assert "docker" in path.read_text("utf-8"), path
    for name in names:
        of_sys = {f"R08b /sys/{part}" for part in ("kernel", "fs", "class")}
        assert open_by_gaps(found[name]) == {"W01b /dev", "W24b /proc/mtrr", "W24b /proc/pressure", "P06 user", *of_sys}, name
        # Which of them a probe of a terminal, of the launcher and of the network has reached, too.
        assert {found[name][number]["verdict"] for number in ("T01", "T01b", "T02", "R19b", "I06", "P15", "P15b", "R23", "R24", "Q01", "Q02")} == {"HELD"}
        assert {found[name][number]["verdict"] for number in ("T04", "U04", "U11")} == {"HELD"}
        assert found[name]["T03"]["verdict"] == "OPEN"
        assert "not reached" not in found[name]["T03"]["why"]
    assert found["default"]["U09"]["verdict"] == "HELD"
    assert gone(leftovers, before) == set()
    wait_until(lambda: engine.run("ps", "-aq").stdout == others, "the engine removes what has ended")


@AS_ROOT
def test_a_users_containers_hold(project: Path, engine: Engine, site: Path) -> None:  # noqa: F811
    done = run_as(AS_USER, site, project, engine.environment(), "--json", "-s", "filtered")
    found = check(done, "filtered")["filtered"]
    assert "P06 user" in open_by_gaps(found)
    assert {found[number]["verdict"] for number in ("N16", "N16d", "N16f", "U13")} == {"HELD"}


@pytest.mark.needs("podman")
def test_podmans_hold(podman: Podman) -> None:
    with laid_out(MANIFEST, podman.image()) as project:
        found = check(run(project, {**podman.environment(), "WAVEGEN_CONTAINER": "podman"}, "--json", "-s", "default", prefix=podman.who), "default")
    assert found["default"]["I06"]["verdict"] == "HELD"


@AS_ROOT
@pytest.mark.needs("podman-rootless")
def test_a_users_podman_holds_with_a_user_namespace(rootless: Podman, site: Path) -> None:  # noqa: F811
    with laid_out(MANIFEST, rootless.image()) as project:
        environment = {**rootless.environment(), "WAVEGEN_CONTAINER": "podman"}
        done = run_as(rootless.who, site, project, environment, "--json", "-s", "default")
        found = check(done, "default")["default"]
    assert found["P06 user"]["verdict"] == "HELD"
    # On control groups of version 1 it bounds nothing; a note says so.
    bounded = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    assert found["Q01"]["verdict"] == found["Q02"]["verdict"] == ("HELD" if bounded else "OPEN")


# --- what cannot be checked


@pytest.mark.parametrize(
    ("image", "variables", "said"),
    [
        pytest.param("", {"DOCKER_HOST": "unix:///nowhere.sock"}, "docker's daemon does not answer", id="no-daemon"),
        pytest.param("nobody/has-it:1", {}, "the image nobody/has-it:1 is not here", id="no-image"),
        pytest.param("perl", {}, "python3 cannot be started inside", id="no-python"),
        pytest.param("", {"WAVEGEN_CONTAINER": "lxc"}, "is neither docker nor podman", id="another-engine"),
        pytest.param("", {"DOCKER_HOST": "tcp://127.0.0.1:1"}, "docker's daemon is remote", id="elsewhere"),
    ],
)
def test_what_keeps_containers_from_starting_is_said(engine: Engine, image: str, variables: dict[str, str], said: str) -> None:
    with laid_out(MANIFEST, image if "/" in image else engine.image(image or "base")) as project:
        done = run(project, {**engine.environment(), **variables}, "-s", "restricted")
    assert done.status == UNCHECKED
    assert said in " ".join(done.output.split())
    assert "Traceback" not in done.output


@AS_ROOT
def test_a_daemon_of_others_is_said(project: Path, engine: Engine, site: Path) -> None:  # noqa: F811
    done = run_as(AS_USER, site, project, {**engine.environment(), "DOCKER_HOST": f"unix://{engine.root_socket}"}, "-s", "restricted")
    assert done.status == UNCHECKED
    assert "this user may not use docker's daemon" in " ".join(done.output.split())


@AS_ROOT
def test_a_project_of_roots_is_refused(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MANIFEST.replace("{image}", engine.image()))
    assert wavegen("render", cwd=tmp_path).status == 0
    done = run(tmp_path, engine.environment(), "-s", "restricted")
    assert done.status == UNCHECKED
    assert "the project belongs to root, and nothing in a container runs as root (give it to a user" in done.stderr


@AS_ROOT
def test_what_is_planted_is_given_away_without_following_a_link(tmp_path: Path) -> None:
    outside, ground = tmp_path / "outside", tmp_path / "ground"
    outside.write_text("mine")
    (ground / "a/b").mkdir(parents=True)
    (ground / "a/link").symlink_to(outside)
    (ground / "a/directory").symlink_to(tmp_path)
    chown_below(str(ground), (USER, USER))
    assert {path.lstat().st_uid for path in ground.rglob("*")} == {USER}
    # The directory itself keeps everybody else away from all of it.
    assert {outside.stat().st_uid, tmp_path.stat().st_uid, ground.stat().st_uid} == {0}


# --- each option is missed


@dataclass
class Course:
    """A ground on which one script after the other is tried; the control is run once."""

    ground: Ground
    tasks: dict[str, tuple[Task, ...]]
    outside: Run

    def broken(self, shell: str, changes: tuple[tuple[str, str, str], ...], *numbers: str) -> set[str]:
        """The ids that are broken, of these probes, with texts exchanged in files: a file, what is there once, and what comes in its place."""
        tasks = tuple(task for task in self.tasks[shell] if task.case.probe.id in numbers)
        assert {task.case.probe.id for task in tasks} == set(numbers)
        rendered = Path(self.ground.project_copy, ".wavegen")
        before = {name: (rendered / name).read_text("utf-8") for name, _, _ in changes}
        after = dict(before)
        for name, old, new in changes:
            assert after[name].count(old) == 1, (name, old, after[name].count(old))
            after[name] = after[name].replace(old, new)
        lock = rendered / "lock.json"
        listed = lock.read_text("utf-8")
        now = listed
        try:
            for name, text in after.items():
                (rendered / name).write_text(text, "utf-8")
                old, new = (hashlib.sha256(each[name].encode()).hexdigest() for each in (before, after))
                now = now.replace(old, new)
            lock.write_text(now, "utf-8")
            inside = Run(self.ground, shell, fenced=True, progress=lambda *_: None)
            inside.run_tasks(tasks)
        finally:
            for name, text in before.items():
                (rendered / name).write_text(text, "utf-8")
            lock.write_text(listed, "utf-8")
        assert not inside.error
        return {finding.case.probe.id for finding in compare_runs(tasks, self.outside, inside) if finding.verdict is Verdict.BROKEN}


MAIN, MOUNTS, ENGINE, FIRST = "launcher/container.py", "launcher/container_mounts.py", "launcher/engine.py", "launcher/inside/container_entry.sh"
BEGINS = 'found = [self.engine.program, "run", *OPTIONS, '
BARE = (
    (FIRST, 'if [ -n "$perl" ]; then\n  export', "if false; then\n  export"),
    (FIRST, 'elif [ -n "$python" ]; then\n  eval', "elif false; then\n  eval"),
    (FIRST, "exec 3>$here/report || exit 125\n", "exec 3>$here/report\necho started >&3\n"),
)
"""Without the second layer, which takes some of the rights away once more."""
TRUSTING = (FIRST, '*) refuse "at ${line% *} is not what was to be mounted there" "$exchanged" ;;', "*) ;;")
"""Without the look at what was mounted."""


DISK = next((str(path) for path in sorted(Path("/dev").iterdir()) if path.is_block_device()), "")
"""Any: nobody inside may open it, and that it is there is what is to be noticed."""


def added(*words: str) -> tuple[tuple[str, str, str], ...]:
    """The launcher with more options, each as Python has it."""
    return ((MAIN, BEGINS, f"{BEGINS}{', '.join(words)}, "),)


def option(old: str, new: str = "") -> tuple[tuple[str, str, str], ...]:
    """The launcher with one option less, or another one."""
    return ((MAIN, old, new),)


# Not the host's processes: the tests' daemon has a PID namespace of its own, and can hand out no other.
MUTATIONS: dict[str, tuple[tuple[tuple[str, str, str], ...], set[str]]] = {
    "the image can be written": (option('"--read-only", '), {"W01b"}),
    "capabilities": (option('"--cap-drop", "ALL", '), {"P04"}),
    "new privileges": ((*option('"--security-opt", "no-new-privileges", '), *BARE), {"P03"}),
    "no filter": (option('f"seccomp={self._prepare_seccomp_filter()}"', '"seccomp=unconfined"'), {"K02", "K14", "K16"}),
    "the host's network": (option('"host" if rules.setting_value("network") == "host" else "none"', '"host"'), {"P06", "N07", "N01"}),
    "the host's shared memory": (option('"--ipc", "private"', '"--ipc", "host"'), {"P06", "P14"}),
    "the host's control groups": (option('"--cgroupns", "private"', '"--cgroupns", "host"'), {"P06"}),
    "processes without a bound": (option('"--pids-limit", rules.setting_value("pids")', '"--pids-limit", "-1"'), {"Q01"}),
    "memory without a bound": (((ENGINE, 'return ["--memory", memory, "--memory-swap", memory]', "return []"),), {"Q02"}),
    "shared memory without a bound": (option('"--shm-size", rules.setting_value("tmpfs_size")', '"--shm-size", "134217728"'), {"Q03"}),
    "scratch without a bound": (((MOUNTS, "size={self.rules.setting_value('tmpfs_size')},", ""),), {"Q03"}),
    "files and core dumps": (BARE, {"Q05"}),
    "no masks in /proc": (added('"--security-opt", "systempaths=unconfined"'), {"W24b"}),
    "mounts for reading can be written": (((MOUNTS, "{',readonly' if read_only else ''}", ""), TRUSTING), {"W04", "W05", "W15", "W25"}),
    "what is denied is shown": (((MOUNTS, "elif kind in (EMPTY, MASK, FILE):", "elif kind == FILE:"),), {"R21"}),
    "root inside": (
        (*added('"--cap-add", "DAC_OVERRIDE"'), (ENGINE, "        if self.uid:\n            return\n", "        self.uid = self.gid = 0\n        if not self.uid:\n            return\n")),
        {"W01", "P04"},
    ),
    "the host's root": (added('"--mount", "type=bind,source=/,target=/mnt,readonly"'), {"R23"}),
    "the host's home": (added('"--mount", f"type=bind,source={self.places.home}/.ssh,target={self.places.home}/.ssh,readonly"'), {"R01", "R23"}),
    "another variable": ((("rules/restricted", "pass\tMY_TOKEN\t", "pass\tAWS_SECRET_ACCESS_KEY\tdefault: x\npass\tMY_TOKEN\t"),), {"E01", "E01c", "E02"}),
    **({"a disk": (added(f'"--device", "{DISK}:/dev/sdz:r"'), {"R14"})} if DISK else {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def course(project: Path, engine: Engine) -> Iterator[Course]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in engine.environment().items():
            patch.setenv(name, value)
        loaded = load_project(str(project / "wave.yaml"))
        wanted = {number for _, numbers in MUTATIONS.values() for number in numbers}
        with Ground(loaded, render_all_files(loaded.plan), under=None, via="docker") as ground:
            policies = container_policies(loaded, tuple(shell for shell in loaded.plan.shells if shell.name == "restricted"))
            tasks = {policy.name: tuple(task for task in tasks_of(ground, policy) if task.case.probe.id in wanted) for policy in policies}
            assert all(task.case.probe.where is Where.INSIDE for group in tasks.values() for task in group)
            outside = Run(ground, CONTROL, fenced=False, progress=lambda *_: None)
            outside.run_tasks(distinct_tasks(task for group in tasks.values() for task in group))
            assert not outside.error
            ground.chown_new_files()
            yield Course(ground, tasks, outside)


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_option_is_missed(name: str, course: Course) -> None:
    changes, numbers = MUTATIONS[name]
    assert course.broken("restricted", changes, *sorted(numbers)) == numbers


def test_nothing_is_missed_of_the_script_as_it_is(course: Course) -> None:
    assert course.broken("restricted", (), *sorted({number for _, numbers in MUTATIONS.values() for number in numbers})) == set()
