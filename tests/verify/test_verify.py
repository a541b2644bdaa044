"""`wavegen verify` as its users call it: the examples in every shell, as root and as a user, by wrapper and by real Nix."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from fence import PYTHON, name_of, users
from helpers import ROOT, USER, Result, gone, in_place_of_bwrap, left_in, render_project, snapshot, wavegen
from nix_env import NixEnv, NixUnavailableError, pin_stub

from wavegen.backends import render_all_files
from wavegen.project.loader import load_project
from wavegen.verify.model import Report, Verdict
from wavegen.verify.run import verify_project
from wavegen.verify.score import BROKEN, PASSED, UNCHECKED, exit_code

pytestmark = pytest.mark.needs("bwrap", "bash")

EXAMPLES = sorted(path.parent.name for path in (ROOT / "examples").glob("*/wave.yaml"))
MINIMAL = "metadata: {name: verify}\n"
PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run")


def leftovers() -> set[str]:
    """What a run could leave behind: files where it puts canaries, and processes."""
    processes = set()
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            line = (directory / "cmdline").read_bytes()
        except OSError:
            continue
        if b"outside.py" in line or b"wavegen-verify" in line:
            processes.add(f"process {directory.name}: {line!r}")
    return left_in(*PLACES) | processes


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The package and what it needs, where another user may read it."""
    base = Path(tempfile.mkdtemp(prefix="site-"))
    for name in ("click", "jinja2", "markupsafe", "yaml"):
        module = __import__(name)
        shutil.copytree(Path(module.__file__ or "").parent, base / name)
    for name in ("wavegen", "templates", "nix"):
        shutil.copytree(ROOT / name, base / name)
    subprocess.run(["chmod", "-R", "a+rX", str(base)], check=True)
    yield base
    shutil.rmtree(base)


def run_as(uid: int, site: Path, project: Path, *args: str) -> Result:
    """The command line as a user, whose home is beside the project."""
    if uid == os.getuid():
        return wavegen(*args, cwd=project, timeout=120)
    home = project.parent / "home"
    home.mkdir(exist_ok=True)
    project.parent.chmod(0o755)
    subprocess.run(["chown", "-R", f"{uid}:{uid}", str(project.parent)], check=True)
    command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--", PYTHON, "-P", "-m", "wavegen", *args]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(site), "LANG": "C.UTF-8"}
    done = subprocess.run(command, cwd=project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False)
    return Result(done.returncode, done.stdout, done.stderr)


def verdicts(text: str) -> dict[str, dict[str, str]]:
    """Verdicts by shell and id, from JSON."""
    return {shell["name"]: {finding["id"]: finding["verdict"] for finding in shell["findings"]} for shell in json.loads(text)["shells"]}


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory that other users may enter; pytest's own is private."""
    path = Path(tempfile.mkdtemp(prefix="verify-test-")).resolve()
    yield path
    shutil.rmtree(path)


# --- the examples hold


@pytest.mark.parametrize("uid", users(), ids=name_of)
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_shell_of_the_examples_holds(example: str, uid: int, site: Path, base: Path) -> None:
    project = base / "project"
    shutil.copytree(ROOT / "examples" / example, project)
    before = leftovers()
    assert wavegen("render", cwd=project).status == 0
    done = run_as(uid, site, project, "verify", "--json")
    assert done.status == PASSED, done.output[-3000:]
    found = verdicts(done.stdout)
    assert {"default", "restricted", "yolo"} <= set(found)
    for shell in set(found) - {"yolo"}:
        assert "BROKEN" not in found[shell].values()
        held = [name for name, verdict in found[shell].items() if verdict == "HELD"]
        assert len(held) >= (90 if uid == 0 else 80), shell
    # The control reaches what a fence stops; where it does not, nothing was proven.
    assert {found["yolo"][name] for name in ("R01", "R09", "P01", "N07", "E01", "W03")} == {"OPEN"}
    assert gone(leftovers, before) == set()


@dataclass(frozen=True, slots=True)
class Seen:
    """A run of the smallest project, what it printed, and the reports that it wrote."""

    project: Path
    done: Result
    reports: dict[str, Path]


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Many tests look at one run: each takes seconds."""
    root = render_project(tmp_path_factory.mktemp("seen"), MINIMAL)
    reports = {name: root.parent / f"report.{name}" for name in ("junit", "sarif", "html")}
    options = [word for name, path in reports.items() for word in (f"--{name}", str(path))]
    done = wavegen("verify", "-s", "restricted", "--json", *options, cwd=root)
    assert done.status == PASSED, done.output[-3000:]
    return Seen(root, done, reports)


@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_what_must_be_conclusive_is_so_for_every_user(uid: int, site: Path, base: Path, seen: Seen) -> None:
    done = seen.done if uid == os.getuid() else run_as(uid, site, render_project(base, MINIMAL), "verify", "--json", "-s", "restricted")
    assert done.status == PASSED, done.output[-3000:]
    report = json.loads(done.stdout)
    unproven = {f["id"] for f in report["shells"][0]["findings"] if f["verdict"] == "INCONCLUSIVE"}
    required = {f["id"] for f in report["shells"][0]["findings"] if f["required"]}
    assert not unproven & required
    assert len(required) > 45


@pytest.mark.needs("nix")
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_shell_of_the_examples_holds_by_nix_develop(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        nix = NixEnv.create(tmp_path / "nix")
        stub = nix.stub_nar_hash()
    except NixUnavailableError as reason:
        pytest.fail(str(reason)) if os.environ.get("CI") else pytest.skip(str(reason))
    project = tmp_path / "project"
    shutil.copytree(ROOT / "examples" / example, project)
    assert wavegen("render", cwd=project).status == 0
    pin_stub(project / "flake.lock", stub)
    before = leftovers()
    environment = {name: value for name, value in nix.environ().items() if name.startswith("NIX_") or name == "PATH"}
    done = wavegen("verify", "--via", "nix", "--json", cwd=project, env=environment, timeout=300)
    assert done.status == PASSED, done.output[-3000:]
    report = json.loads(done.stdout)
    assert report["via"] == "nix"
    found = verdicts(done.stdout)
    assert {"default", "restricted", "yolo"} <= set(found)
    for shell in set(found) - {"yolo"}:
        assert "BROKEN" not in found[shell].values()
        assert list(found[shell].values()).count("HELD") >= 80, shell
    assert found["yolo"]["R01"] == "OPEN"
    assert gone(leftovers, before) == set()


# --- what it says


KERNEL = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sys/kernel/hostname", "/proc/self/mountinfo")
ODD = "sp ace quo'te dou\"ble é dollar$HOME"


def test_a_run_says_the_same_wherever_and_whoever_runs_and_with_others_beside_it(tmp_path: Path, seen: Seen) -> None:
    """No clock, place, process number or random word is in a report, and nothing is left: three runs at once, in places of odd names, for odd homes.

    Whether the real home is hidden (R07b) is another matter: that depends on where it is.
    """
    settings = [path.read_text() for path in map(Path, KERNEL) if path.exists()]
    baseline = tmp_path / "baseline.json"
    baseline.write_text(seen.done.stdout)
    places = tuple(tmp_path / name for name in (ODD, "x" * 80))
    for place, mode in zip(places, (0o755, 0o1777), strict=True):
        place.mkdir()
        place.chmod(mode)
    command = [sys.executable, "-P", "-m", "wavegen", "verify", "-s", "restricted", "--json"]
    more = (({}, "--baseline", str(baseline)), ({"HOME": "/"}, "--under", str(places[0])), ({"HOME": "/nowhere"}, "--under", str(places[1])))
    started = [
        subprocess.Popen(
            [*command, *words],
            cwd=seen.project,
            env={**os.environ, "PYTHONPATH": str(ROOT), **home},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        for home, *words in more
    ]
    said = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [PASSED] * 3, said
    assert said[0] == seen.done.stdout
    first, *others = ([f for shell in json.loads(text)["shells"] for f in shell["findings"] if f["id"] != "R07b"] for text in said)
    for other in others:
        assert other == first
    assert [list(place.iterdir()) for place in places] == [[], []]
    assert str(seen.project.parent) not in said[0]
    if len(os.uname().nodename) > 3:  # `vm` is a word of its own
        assert not re.search(rf"\b{re.escape(os.uname().nodename)}\b", said[0])
    # The control writes the kernel's settings back as they are.
    assert [path.read_text() for path in map(Path, KERNEL) if path.exists()] == settings


def test_all_reports_are_written_and_agree(seen: Seen) -> None:
    found = verdicts(seen.done.stdout)["restricted"]
    suites = ET.parse(seen.reports["junit"]).getroot()
    names = [case.get("name", "") for case in suites.iter("testcase")]
    assert len(names) == len(found)
    assert json.loads(seen.reports["sarif"].read_text())["runs"][0]["results"] == []
    page = seen.reports["html"].read_text()
    assert all(name.partition(" ")[0] in page for name in found)


def test_a_baseline_that_was_better_fails_the_run(tmp_path: Path, seen: Seen) -> None:
    document = json.loads(seen.done.stdout)
    loosened = next(f for f in document["shells"][0]["findings"] if f["verdict"] == "OPEN")
    loosened["verdict"] = "HELD"
    better = tmp_path / "better.json"
    better.write_text(json.dumps(document))
    done = wavegen("verify", "-s", "restricted", "--verbose", "--baseline", str(better), cwd=seen.project)
    assert done.status == BROKEN
    assert f"restricted: {loosened['id']}: HELD -> OPEN" in done.stdout.replace("\n    ", " ")
    # What --verbose shows besides.
    assert "Can it read your ssh keys?" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_the_table_shows_what_is_open_and_progress_is_wiped_out(seen: Seen) -> None:
    master, slave = os.openpty()
    command = [sys.executable, "-P", "-m", "wavegen", "verify", "-s", "restricted"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        tempfile.TemporaryFile() as table,
        subprocess.Popen(command, cwd=seen.project, env=environment, stdin=subprocess.DEVNULL, stdout=table, stderr=slave) as process,
    ):
        os.close(slave)
        said = b""
        with contextlib.suppress(OSError):  # nobody has the terminal open any more
            while chunk := os.read(master, 65536):
                said += chunk
        process.wait()
        table.seek(0)
        printed = table.read().decode()
    os.close(master)
    assert process.returncode == PASSED
    shown = said.decode().split("\r\x1b[K")
    assert "yolo: 1 of " in said.decode()
    assert any(line.startswith("restricted: 20 of ") for line in shown)
    assert shown[-1] == ""
    assert "\x1b" not in printed
    assert "R01" not in printed
    assert printed.splitlines()[-1].startswith("held: ")
    assert max(map(len, printed.splitlines())) <= 100


MANIFESTS = {
    "the README's, with a strict filter": """deny_read_paths: [.env, ~/.config/gh]
    seccomp: strict
    paths: [{path: ~/.gitconfig, access: read, optional: true}, {path: ~/.cache/go-build, access: write}]""",
    "keys denied by name, calls let through": """deny_read_paths: [~/.ssh, ~/.aws, ~/.gnupg, .git/config, .git/hooks]
    seccomp_allow: [ptrace, bpf, io_uring_setup, io_uring_enter, io_uring_register]""",
    "what is planted, granted, and variables that run code": """env_passthrough: [PYTHONPATH, BASH_ENV, SSH_AUTH_SOCK, LD_PRELOAD, OPENAI_API_KEY, MY_OWN]
    paths: [{path: ~/.kube, access: read}, {path: ~/.netrc, access: write}, {path: .github, access: read}, {path: .vscode, access: read}]""",
    "git pinned, a device, scratch granted, a home that is not kept": """home: tmpfs
    paths: [{path: .git, access: read}, {path: /dev/full, access: read}, {path: /var/tmp, access: write}]""",
    "a project for reading, bounds of each process": "limits: {files: 256}\n    paths: [{path: ., access: read}]",
    "all of /etc denied, namespaces inside": "deny_read_paths: [/etc/ssl, /etc/alternatives]\n    shells: {default: {nested: true}}",
    "no filter, bounds": "seccomp: 'off'\n    limits: {pids: 100, memory: 1g, cpus: 2, tmp: 16m}",
    "a strict filter, calls and namespaces": "seccomp: strict\n    seccomp_allow: [ptrace]\n    shells: {default: {nested: true}}",
}
"""Every key that opens or closes something, several in one where they touch nothing of each other: none of it may be taken for a hole."""


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_fence_that_is_asked_for_holds_whatever_else_is(tmp_path: Path, name: str) -> None:
    root = render_project(tmp_path, f"metadata: {{name: x}}\nruntime:\n  sandbox:\n    {MANIFESTS[name]}\n")
    done = wavegen("verify", "-s", "default", cwd=root)
    assert done.status == PASSED, done.output[-3000:]


PERSONAS = """\
metadata: {name: verify}
adapters: {claude: {}}
personas:
  reader: {permissions: {allowed_tools: [Read]}}
  builder: {preset: implementer, sandbox: {allowed_domains: [pypi.org, "*.example.org"], deny_read_paths: [secrets, ~/.cache/hidden], env_passthrough: [A_KEY]}}
  local: {sandbox: {shell: default}}
runtime: {sandbox: {env_passthrough: [A_KEY, B_KEY], paths: [{path: vendor, access: write, optional: true}, {path: ~/.cache, access: write, optional: true}]}}
"""


@pytest.mark.parametrize("uid", users(), ids=name_of)
def test_the_fences_of_personas_hold_what_their_own_policies_say(uid: int, site: Path, base: Path) -> None:
    root = render_project(base, PERSONAS)
    done = run_as(uid, site, root, "verify", "--personas", "--json")
    assert done.status == PASSED, done.output[-3000:]
    found = verdicts(done.stdout)
    assert set(found) == {"default", "restricted", "yolo", "persona-reader", "persona-builder", "persona-local"}
    # W13 leaves something in the project that the host runs: open where it is writable.
    assert (found["persona-reader"]["W13"], found["persona-builder"]["W13"], found["restricted"]["W13"]) == ("HELD", "OPEN", "OPEN")
    assert (found["persona-reader"]["N07"], found["persona-local"]["N07"]) == ("HELD", "OPEN")


def test_a_persona_that_could_write_after_all_is_broken(tmp_path: Path) -> None:
    report = broken_report(tmp_path, "persona-reader", ("path\tread\t.\t", "path\twrite\t.\t"), manifest=PERSONAS)
    assert exit_code(report) == BROKEN
    assert {f.case.stable_id for f in report.shells[0].findings if f.verdict is Verdict.BROKEN} >= {"W13"}


def test_nix_develop_enters_shells_and_no_persona(tmp_path: Path) -> None:
    done = wavegen("verify", "--personas", "--via", "nix", cwd=render_project(tmp_path, PERSONAS))
    assert (done.status, "nix develop enters shells, and no persona" in done.stderr) == (2, True)


# --- how it ends


def broken_report(tmp_path: Path, shell: str, *changes: tuple[str, str], manifest: str = MINIMAL) -> Report:
    """A run with a shell in whose rules, launcher or stub pieces of text are others."""
    root = render_project(tmp_path, manifest)
    project = load_project(str(root / "wave.yaml"))
    files = list(render_all_files(project.plan))
    for old, new in changes:
        of_shell = (f".wavegen/bin/{shell}", f".wavegen/rules/{shell}")
        (place,) = (i for i, file in enumerate(files) if (file.path in of_shell or file.path.startswith(".wavegen/launcher/")) and old in file.text)
        files[place] = replace(files[place], text=files[place].text.replace(old, new))
    return verify_project(project, shells=(shell,), files=tuple(files))


HOSTS_NETWORK = ('found.append((("--unshare-net",)', '((("--unshare-net",)')


def test_a_broken_fence_ends_with_1(tmp_path: Path) -> None:
    report = broken_report(tmp_path, "restricted", HOSTS_NETWORK)
    assert exit_code(report) == BROKEN
    found = {f.case.stable_id: f.verdict for f in report.shells[0].findings}
    assert {name for name, verdict in found.items() if verdict is Verdict.BROKEN} >= {"N07", "N08b", "P06 net"}
    # What the second layer holds, too, is held by that alone, where the kernel has it.
    scopes = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 6
    assert found["N08"] is (Verdict.HELD if scopes else Verdict.BROKEN)


def test_what_two_layers_hold_is_broken_where_neither_does(tmp_path: Path) -> None:
    report = broken_report(tmp_path, "restricted", HOSTS_NETWORK, (":0x3:0x0:0x0\t", ":0x2:0x0:0x0\t"))
    assert exit_code(report) == BROKEN
    assert {f.case.stable_id for f in report.shells[0].findings if f.verdict is Verdict.BROKEN} >= {"N07", "N08", "N08b", "P06 net"}


def test_a_fence_that_did_not_come_up_ends_with_3(tmp_path: Path) -> None:
    unfenced = 'self=$0\nexport SANDBOX_ACTIVE=1; while [ "$1" != -- ]; do shift; done; shift; exec "$@"\n'
    report = broken_report(tmp_path, "restricted", ("self=$0\n", unfenced))
    assert exit_code(report) == UNCHECKED
    assert "the fence did not come up" in report.shells[0].error
    assert report.shells[0].findings == ()


def test_a_machine_without_bwrap_ends_with_3_and_says_why(tmp_path: Path) -> None:
    root = render_project(tmp_path, MINIMAL)
    failing = tmp_path / "bwrap"
    failing.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    failing.chmod(0o755)
    done = wavegen("verify", cwd=root, prefix=in_place_of_bwrap(failing))
    assert done.status == UNCHECKED, done.output
    assert "this machine does not let bwrap create user namespaces" in done.stdout.replace("\n    ", " ")


def test_edited_wrappers_are_not_run(tmp_path: Path) -> None:
    """They would be run on the host, too."""
    root = render_project(tmp_path, MINIMAL)
    for name in ("bin/default", "bin/yolo", "launcher/start.py"):
        path = root / ".wavegen" / name
        text = path.read_text()
        path.write_text(text.replace("\n", f"\ntouch {tmp_path}/ran\n", 1))
        done = wavegen("verify", cwd=root)
        assert done.status == 1
        assert f".wavegen/{name}: edited by hand" in done.stderr
        assert not (tmp_path / "ran").exists()
        path.write_text(text)


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("-s", "defalt"), 2, "there is no shell 'defalt'"),
        (("--baseline", "none.json"), 2, "none.json cannot be read"),
        (("--baseline", ""), 2, "the name of the baseline is empty"),
        (("--junit", ""), 2, "the name of a report is empty"),
        (("--sarif", ""), 2, "the name of a report is empty"),
        (("--html", ""), 2, "the name of a report is empty"),
        (("--baseline", "wave.yaml"), 2, "wave.yaml is no JSON"),
        (("--under", "/proc"), 3, "--under DIR"),
        (("--html", "/nowhere/x"), 3, "/nowhere/x cannot be written"),
        (("--html", "wave.yaml"), 2, "wave.yaml is part of the fence"),
        (("--junit", ".wavegen/plan.json"), 2, "is part of the fence"),
    ],
)
def test_what_cannot_be_done_is_said_without_a_traceback(tmp_path: Path, args: tuple[str, ...], status: int, said: str) -> None:
    done = wavegen("verify", *args, cwd=render_project(tmp_path, MINIMAL))
    assert done.status == status, done.output
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_project_that_was_never_rendered_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MINIMAL)
    done = wavegen("verify", cwd=tmp_path)
    assert done.status == 1
    assert "run wavegen render" in done.stderr


# --- the project as it is


@pytest.mark.needs("git")
def test_settings_of_the_real_repository_are_looked_at_wherever_git_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = render_project(tmp_path, MINIMAL)
    subprocess.run(["git", "init", "-q", "--bare", ".bare"], cwd=root, check=True)
    (root / ".git").write_text("gitdir: ./.bare\n")
    held = verify_project(load_project(str(root / "wave.yaml")), shells=("default",)).shells[0].findings
    (own,) = (finding for finding in held if finding.case.stable_id == "W07c")
    assert own.verdict is Verdict.HELD
    assert "./.bare/hooks" in own.why
    monkeypatch.setattr("wavegen.launcher.mounts.survey_repositories", lambda *_, **__: ())
    loose = verify_project(load_project(str(root / "wave.yaml")), shells=("default",)).shells[0].findings
    assert next(finding for finding in loose if finding.case.stable_id == "W07c").verdict is Verdict.BROKEN


# --- nothing is left


def test_nothing_of_the_users_is_changed(tmp_path: Path, private_home: Path) -> None:
    root = render_project(tmp_path, "metadata: {name: x}\nruntime: {sandbox: {deny_read_paths: [.env], paths: [{path: ~/notes, access: write}]}}\n")
    (root / ".env").write_text("mine")
    (private_home / "notes").mkdir()
    (private_home / "notes/mine").write_text("mine")
    before = snapshot(root), snapshot(private_home)
    assert wavegen("verify", "-s", "default", cwd=root).status == PASSED
    assert (snapshot(root), snapshot(private_home)) == before


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM], ids=lambda number: signal.Signals(number).name)
def test_nothing_is_left_after_a_signal(tmp_path: Path, number: int) -> None:
    root = render_project(tmp_path, MINIMAL)
    before = leftovers()
    for moment in (0.25, 0.45, 0.7, 1.1, 1.6):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "wavegen", "verify", "-s", "restricted"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(moment)
        process.send_signal(number)
        process.wait(30)
        assert gone(leftovers, before) == set(), moment


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_place_where_others_could_exchange_it_is_refused(tmp_path: Path, seen: Seen, mode: int) -> None:
    under = tmp_path / "under"
    under.mkdir()
    under.chmod(mode)
    assert wavegen("verify", "-s", "restricted", "--under", str(under), cwd=seen.project).status == UNCHECKED


def test_a_place_that_an_agent_may_write_is_refused(tmp_path: Path, private_home: Path) -> None:
    """What is run there is run on the host, too."""
    root = render_project(tmp_path, "metadata: {name: x}\nruntime: {sandbox: {paths: [{path: ~/src, access: write}]}}\n")
    inner = root / "inner"
    inner.mkdir()
    (private_home / "src/deep").mkdir(parents=True)
    for place in (root, inner, private_home / "src", private_home / "src/deep"):
        done = wavegen("verify", "-s", "restricted", "--under", str(place), cwd=root)
        assert done.status == UNCHECKED, place
        assert "--under DIR" in done.stderr


def test_a_user_without_privileges_is_meant(base: Path) -> None:
    """The tests as a user are not tests as root under another name."""
    assert USER != 0
    if os.getuid() == 0:
        assert users() == [0, USER]
