"""What a session left that the host would run: found whenever it is new, never when it was there before, and never run by the audit."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from audit_ground import PACKAGE, SCRIPT, Ground
from helpers import read_so_far, render_project, wavegen, without_privileges

from wavegen.audit import findings as package
from wavegen.launcher.audit import command, table, walk
from wavegen.launcher.audit.places import Finding
from wavegen.project.state_dir import state_directory as state_of


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


# --- the table

CONTENT = {
    ".gitmodules": '[submodule "a"]\n\tpath = a\n\turl = https://example.org/a\n',
    ".gitattributes": "* filter=evil\n",
    "package.json": '{"scripts": {"test": "x"}}',
}


def samples() -> list[tuple[str, str]]:
    """A path for each pattern of the table, each in a directory of its own."""
    found = []
    for number, row in enumerate(table.ROWS):
        for place, pattern in enumerate(row[2]):
            path = pattern.removesuffix("/**") + "/deep/er" if pattern.endswith("/**") else pattern.replace("*", "x")
            found.append((pattern, path[1:] if path[0] == "/" else f"n{number}-{place}/{path}"))
    return found


def plant_all(ground: Ground, upper: bool = False) -> None:
    for _, path in samples():
        directory, name = os.path.split(path)
        ground.put(os.path.join(directory, name.upper() if upper else name), CONTENT.get(name, "x"))


def test_every_row_is_found_when_it_is_new(ground: Ground) -> None:
    ground.enter()
    plant_all(ground)
    assert {path for _, path in samples()} - ground.paths() == set()
    assert len(samples()) > 300


def test_every_row_is_found_when_it_is_written_to(ground: Ground) -> None:
    plant_all(ground)
    ground.enter()
    for _, path in samples():
        ground.put(path, CONTENT.get(os.path.basename(path), "x") + "\n")
    assert {path for _, path in samples()} - ground.paths() == set()


def test_no_row_is_found_when_it_was_there_before(ground: Ground) -> None:
    plant_all(ground)
    ground.enter()
    ground.put("n0-0/new.txt")
    assert ground.paths() == set()


def test_every_row_is_found_whatever_its_case(ground: Ground) -> None:
    ground.enter()
    plant_all(ground, upper=True)
    lower = {path.lower() for path in ground.paths()}
    assert {path.lower() for _, path in samples()} - lower == set()


def test_a_link_in_place_of_what_the_table_names(ground: Ground) -> None:
    ground.enter()
    ground.put("text")
    (ground.root / ".envrc").symlink_to("text")
    (ground.root / ".claude").symlink_to("text")
    assert ground.severities() == {".envrc": "high", ".claude": "high"}


@pytest.mark.parametrize(
    ("path", "severity", "kind"),
    [
        (".envrc", "high", "direnv"),
        ("wave.yaml", "critical", "fence"),
        (".wavegen/launcher/start.py", "critical", "fence"),
        ("sub/flake.nix", "high", "nix"),
        ("sub/wave.yaml.d/flake.nix", "high", "nix"),
        (".env", "low", "direnv"),
        (".vscode/tasks.json", "high", "editor"),
        (".vscode/other.json", "medium", "editor"),
        (".github/workflows/x.yml", "high", "ci"),
        (".github/x.yml", "low", "ci"),
        ("Makefile", "medium", "build"),
        ("sub/rules.mk", "medium", "build"),
        ("CLAUDE.md", "medium", "agent"),
        ("gradle/wrapper/gradle-wrapper.jar", "medium", "build"),
        ("requirements-dev.txt", "low", "package"),
    ],
)
def test_what_is_how_bad(ground: Ground, path: str, severity: str, kind: str) -> None:
    ground.enter()
    ground.put(path)
    assert [(f.path, f.severity, f.kind) for f in ground.findings()] == [(path, severity, kind)]


@pytest.mark.parametrize("path", ["src/main.py", "README.md", "wave.yml", "sub/wave.yaml", "envrc", "x.envrc", "src/makefile/notes.txt", ".git-x", "claude/x"])
def test_what_nobody_runs_unasked_is_no_finding(ground: Ground, path: str) -> None:
    ground.enter()
    ground.put(path)
    assert ground.paths() == set()


@pytest.mark.parametrize("name", ["\u200b.envrc", ".en\u00advrc", ".ENVRC", ".ｅnvrc"])
def test_names_that_another_file_system_takes_for_the_same(ground: Ground, name: str) -> None:
    ground.enter()
    ground.put(name)
    assert (name, "high") in {(f.path, f.severity) for f in ground.findings()}


# --- what is new


def test_without_a_marker_everything_unknown_is_listed(ground: Ground) -> None:
    ground.put(".envrc")
    assert ground.paths() == {".envrc"}
    ground.accept()
    ground.put("Makefile")
    assert ground.paths() == {"Makefile"}


def test_what_was_accepted_is_not_listed_until_it_differs(ground: Ground) -> None:
    ground.enter()
    file = ground.put(".envrc", "one")
    assert ground.paths() == {".envrc"}
    ground.accept()
    assert not ground.marker.exists()
    ground.enter()
    file.write_text("two")
    assert ground.paths() == {".envrc"}
    file.write_text("one")
    assert ground.paths() == set()
    file.chmod(0o755)
    assert ground.paths() == {".envrc"}


def test_a_time_stamp_can_be_forged_and_helps_nobody(ground: Ground) -> None:
    ground.enter()
    os.utime(ground.put(".envrc"), (0, 0))
    subprocess.run(("touch", "-d", "2001-01-01", str(ground.put("sub/.envrc"))), check=True)
    os.utime(ground.root / "sub", (0, 0))
    assert ground.paths() == {".envrc", "sub/.envrc"}


def test_an_old_file_under_a_new_name(ground: Ground) -> None:
    moved, linked = ground.put("innocent"), ground.put("other")
    ground.enter()
    moved.rename(ground.root / ".envrc")
    os.link(linked, ground.root / "Makefile")
    assert ground.paths() == {".envrc", "Makefile"}


@pytest.mark.parametrize("above", ["", "sub/", "sub/deep/"])
def test_an_old_directory_under_a_new_name(ground: Ground, above: str) -> None:
    """A move leaves the time of change of what lies in the directory as it was."""
    ground.put("fixtures/a/b/config", "[core]\n\tfsmonitor = ./evil\n")
    ground.put("fixtures/a/b/HEAD")
    ground.put(f"{above}x")
    ground.enter()
    (ground.root / "fixtures/a/b").rename(ground.root / above / ".git")
    before = (ground.root / above / ".git/config").stat().st_ctime_ns
    assert before < ground.marker.stat().st_mtime_ns
    assert f"{above}.git/config" in ground.paths()


def test_an_old_directory_far_above_is_moved(ground: Ground) -> None:
    ground.put("old/one/two/.envrc")
    ground.enter()
    (ground.root / "old").rename(ground.root / "new")
    assert ground.paths() == {"new/one/two/.envrc"}


def test_an_old_directory_is_moved_with_a_baseline(ground: Ground) -> None:
    ground.put("old/one/.envrc")
    ground.put("sub/.envrc")
    ground.accept()
    ground.enter()
    (ground.root / "old/one").rename(ground.root / "sub/two")
    assert ground.paths() == {"sub/two/.envrc"}


def test_directories_are_exchanged(ground: Ground) -> None:
    ground.put("a/deep/Makefile", "good")
    ground.put("b/deep/Makefile", "evil")
    ground.accept()
    ground.enter()
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (ground.root / old).rename(ground.root / new)
    assert ground.paths() == {"a/deep/Makefile", "b/deep/Makefile"}


def test_new_neighbours_make_no_finding(ground: Ground) -> None:
    ground.put("src/deep/Makefile")
    ground.enter()
    ground.put("src/deep/new.c")
    assert ground.paths() == set()


def test_new_neighbours_on_every_level_make_none_where_the_baseline_knows_the_directories(ground: Ground) -> None:
    ground.put("src/deep/Makefile")
    ground.accept()
    ground.put("src/deep/.envrc")  # the user's own, before the entry
    ground.enter()
    for place in ("src/deep/new.c", "src/new.c", "new.c"):
        ground.put(place)
    assert ground.paths() == set()


def test_the_same_with_no_baseline_is_a_finding_as_it_may_have_been_moved(ground: Ground) -> None:
    ground.put("src/Makefile")
    ground.enter()
    ground.put("src/new.c")
    ground.put("new.c")
    assert ground.paths() == {"src/Makefile"}


def test_a_file_of_the_fence_is_gone(ground: Ground) -> None:
    for path in ("wave.yaml", ".wavegen/launcher/start.py"):
        file = ground.put(path)
        ground.accept()
        ground.enter()
        file.unlink()
        assert [(f.path, f.severity, f.detail) for f in ground.findings()] == [(path, "critical", "it is gone")]


def test_accepting_while_sessions_run_does_not_forget_the_entry(ground: Ground) -> None:
    ground.marker = ground.state / f"entered-{os.getpid()}-1"
    ground.enter()
    ground.put(".envrc")
    ground.accept()
    assert ground.paths() == set()
    ground.put("Makefile")
    assert ground.marker.exists()
    assert ground.paths() == {"Makefile"}


def test_the_earliest_session_counts(ground: Ground) -> None:
    ground.enter()
    ground.put(".envrc")
    ground.marker = ground.state / "entered-0-2"
    ground.enter()
    ground.put("Makefile")
    assert ground.paths() == {".envrc", "Makefile"}
    (ground.state / "entered-0-1").unlink()
    assert ground.paths() == {"Makefile"}


def test_without_a_session_nothing_is_new(ground: Ground) -> None:
    ground.put(".envrc")
    assert (ground.run().returncode, ground.run("--json").returncode) == (0, 0)
    assert ground.run("--json", "--all").returncode == 1


def test_a_session_that_left_nothing_is_forgotten(ground: Ground) -> None:
    ground.enter()
    ground.put("ordinary.py")
    assert ground.notice("--done", str(ground.marker)) == ""
    assert not ground.marker.exists()
    ground.enter()
    ground.put(".envrc")
    assert ".envrc" in ground.notice("--done", str(ground.marker))
    assert ground.marker.exists()


def test_a_session_that_was_killed_is_forgotten_once_all_is_looked_at(ground: Ground) -> None:
    killed, alive = ground.marker, ground.state / f"entered-{os.getpid()}-1"
    for marker in (killed, alive, ground.state / "entered-0-2"):
        ground.marker = marker
        ground.enter()
    ground.put("ordinary.py")
    ground.notice("--done", str(ground.marker))
    assert (killed.exists(), alive.exists(), ground.marker.exists()) == (False, True, False)


def test_a_damaged_baseline_knows_nothing(ground: Ground) -> None:
    ground.put(".envrc")
    for text in ("", "[]", "{", '{"version": 1}', '{"version": 1, "things": 3, "folders": {}, "parts": {}}', "[" * 100_000):
        (ground.state / "audit.json").write_text(text)
        assert ground.paths() == {".envrc"}
    (ground.state / "audit.json").unlink()
    os.mkfifo(ground.state / "audit.json")
    assert ground.paths() == {".envrc"}


def test_the_baseline_is_private_and_replaced_as_a_whole(ground: Ground) -> None:
    ground.put(".envrc")
    ground.accept()
    inode = (ground.state / "audit.json").stat().st_ino
    assert stat.S_IMODE((ground.state / "audit.json").stat().st_mode) == 0o600
    held = os.open(ground.state / "audit.json", os.O_RDONLY)
    ground.accept()
    os.close(held)
    assert (ground.state / "audit.json").stat().st_ino != inode
    assert os.listdir(ground.state) == ["audit.json"]


# --- package.json


def test_new_scripts_are_named(ground: Ground) -> None:
    ground.put("package.json", '{"name": "x", "scripts": {"test": "a", "build": "b"}}')
    ground.accept()
    ground.enter()
    ground.put("package.json", '{"name": "x", "scripts": {"test": "a", "build": "c", "lint": "d"}}')
    assert [(f.severity, f.detail) for f in ground.findings()] == [("medium", "scripts: build, lint")]
    ground.put("package.json", '{"name": "x", "scripts": {"test": "a", "build": "b", "postinstall": "d"}}')
    assert [(f.severity, f.detail) for f in ground.findings()] == [("high", "scripts: postinstall")]
    ground.put("package.json", '{"version": "2", "description": "y", "scripts": {"build": "b", "test": "a"}}')
    assert ground.findings() == []
    ground.put("package.json", '{"scripts": {"build": "b", "test": "a"}, "dependencies": {"evil": "*"}}')
    assert [(f.severity, f.detail) for f in ground.findings()] == [("medium", "")]


def test_without_a_baseline_only_what_runs_unasked_is_named(ground: Ground) -> None:
    ground.enter()
    ground.put("a/package.json", '{"scripts": {"test": "a", "postinstall": "b"}}')
    ground.put("b/package.json", "[" * 100_000)
    ground.put("c/package.json", '{"name": "x"}')
    assert {(f.path, f.severity, f.detail) for f in ground.findings()} == {
        ("a/package.json", "high", "scripts: postinstall"),
        ("b/package.json", "medium", "no JSON"),
    }


def test_what_a_package_manager_filled_is_counted(ground: Ground) -> None:
    ground.enter()
    for number in range(30):
        ground.put(f"web/node_modules/p{number}/package.json", '{"scripts": {"install": "x"}}')
    ground.put("web/node_modules/q/.git/hooks/pre-commit")
    found = {f.path: f for f in ground.findings()}
    assert set(found) == {"web/node_modules/", "web/node_modules/q/.git/hooks/pre-commit"}
    assert found["web/node_modules/"].detail.startswith("30 things: p0/package.json, ")
    assert found["web/node_modules/"].severity == "high"


# --- links, devices, bits, names


@pytest.mark.parametrize(
    ("target", "severity"),
    [
        ("/etc/passwd", "high"),
        ("/proc/self/environ", "high"),
        ("/dev/null", "low"),
        ("/nix/store/x", "low"),
        ("/tmp/only-inside", "medium"),
        ("../../x", "medium"),
        ("hop/../../../x", "medium"),
        ("inner/../../etc", "medium"),
        ("absolute/shadow", "high"),
    ],
)
def test_a_link_that_leads_out(ground: Ground, target: str, severity: str) -> None:
    (ground.root / "hop").mkdir()
    ground.put("a/b/text")
    (ground.root / "inner").symlink_to("a/b")
    (ground.root / "absolute").symlink_to("/etc")
    ground.enter()
    if target == "inner/../../etc":  # by its letters it stays inside until the last step; really it leads to a/../.. only
        (ground.root / "link").symlink_to("inner/../../../etc")
    else:
        (ground.root / "link").symlink_to(target)
    assert ground.severities() == {"link": severity}


def test_a_link_into_home(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(ground.root.parent))
    ground.enter()
    (ground.root / "link").symlink_to("../.ssh")
    assert ground.severities() == {"link": "high"}


@pytest.mark.parametrize("target", ["text", "../project/text", "a/../text", "link", "missing", ".", "inner/../.."])
def test_a_link_that_stays(ground: Ground, target: str) -> None:
    ground.put("text")
    ground.put("a/b/text")
    (ground.root / "inner").symlink_to("a/b")
    ground.enter()
    (ground.root / "a/c/d").mkdir(parents=True)
    (ground.root / "link").symlink_to("text" if target == "../project/text" else target)
    (ground.root / "whole").symlink_to(str(ground.root / "text"))
    assert ground.paths() == set()


def test_things_that_are_no_files(ground: Ground) -> None:
    ground.enter()
    os.mkfifo(ground.root / "pipe")
    os.mkfifo(ground.root / ".envrc")
    with socket.socket(socket.AF_UNIX) as unix:
        here = os.getcwd()
        os.chdir(ground.root)  # the path of a socket is short
        unix.bind("sock")
        os.chdir(here)
        assert ground.severities() == {"pipe": "medium", ".envrc": "high", "sock": "medium"}


def test_set_user_id_and_the_like(ground: Ground) -> None:
    one, two = ground.put("one"), ground.put("two")
    ground.put("three").chmod(0o4755)
    ground.enter()
    one.chmod(0o4755)
    two.chmod(0o2755)
    (ground.root / "shared").mkdir()
    (ground.root / "shared").chmod(0o2775)  # that of a directory hands on its group
    assert {(f.path, f.kind) for f in ground.findings()} == {("one", "mode"), ("two", "mode")}


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setcap"), reason="needs setcap as root")
def test_capabilities_of_a_file(ground: Ground) -> None:
    file = ground.put("program")
    file.chmod(0o755)
    ground.enter()
    subprocess.run(("setcap", "cap_net_raw+ep", str(file)), check=True)
    assert [(f.path, f.kind, f.detail) for f in ground.findings()] == [("program", "mode", "capabilities")]


@pytest.mark.parametrize("name", ["-rf", "a\nb", "\x1b[2J", "gpj.\u202etxt", "a\udcffb"])
def test_names_that_mislead(ground: Ground, name: str) -> None:
    ground.enter()
    ground.put(f"sub/{name}")
    assert ground.severities() == {f"sub/{name}": "low"}


def test_names_are_spelled_out(ground: Ground) -> None:
    ground.enter()
    ground.put("\x1b[31m\nwavegen: all is well\udcff\u202e/.envrc")
    printed = (
        ground.run().stdout
        + ground.notice()
        + "\n".join(package.render_finding_table(package.collect_audit_findings(str(ground.root), str(ground.state)).findings, colour=False))
    )
    assert "\\x1b[31m\\nwavegen: all is well\\udcff\\u202e" in printed
    assert "\x1b" not in printed
    assert "\nwavegen: all" not in printed
    assert ground.run("--json").stdout.isascii()


# --- attacks on the audit


def test_a_directory_that_cannot_be_read(ground: Ground) -> None:
    ground.put("locked/.envrc")
    ground.enter()
    (ground.root / "locked").chmod(0)
    done = ground.run("--json", prefix=without_privileges())
    (ground.root / "locked").chmod(0o755)
    answer = json.loads(done.stdout)
    assert done.returncode == 3
    assert not answer["complete"]
    assert [(f["path"], f["kind"], f["incomplete"]) for f in answer["findings"]] == [("locked", "audit", True)]


def test_a_file_that_cannot_be_read(ground: Ground) -> None:
    ground.enter()
    ground.put(".envrc").chmod(0)
    done = ground.run("--json", prefix=without_privileges())
    assert done.returncode == 3
    assert [(f["path"], f["incomplete"]) for f in json.loads(done.stdout)["findings"]] == [(".envrc", True)]


def test_a_tree_too_deep_to_be_walked(ground: Ground) -> None:
    ground.enter()
    here = os.getcwd()
    try:
        os.chdir(ground.root)
        for _ in range(1200):
            os.mkdir("d" * 10)
            os.chdir("d" * 10)
        Path(".envrc").write_text("x")
    finally:
        os.chdir(here)
    done = ground.run("--json")
    subprocess.run(("rm", "-rf", str(ground.root)), check=True)
    assert done.returncode == 3
    assert [(f["kind"], f["detail"]) for f in json.loads(done.stdout)["findings"]] == [("audit", "deeper than 200 directories")]


def test_too_many_files_to_be_walked(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "ENTRIES_MAX", 10)
    ground.enter()
    for number in range(20):
        ground.put(f"d{number}/x")
    assert [(f.kind, f.incomplete) for f in ground.findings()] == [("audit", True)]


def test_a_file_too_large_to_be_looked_into(ground: Ground) -> None:
    ground.put("sub/.git/config", b"#" * (10 * 1024 * 1024) + b"\n[core]\n\tfsmonitor = x\n")
    ground.put("Makefile", b"#" * (2 * 1024 * 1024))
    before = read_so_far()
    found = {f.path: (f.severity, f.incomplete) for f in ground.findings()}
    assert read_so_far() - before < 9 << 20
    assert found["sub/.git/config"] == ("critical", True)
    assert found["Makefile"] == ("medium", False)
    ground.accept()
    assert ground.paths() == set()
    ground.enter()
    with (ground.root / "Makefile").open("r+b") as stream:
        stream.write(b"!")
    os.utime(ground.root / "Makefile", (0, 0))
    assert ground.paths() == {"Makefile"}


def test_links_in_circles_and_links_to_directories_are_not_followed(ground: Ground) -> None:
    ground.put("real/.envrc")
    (ground.root / "real/loop").symlink_to("..")
    (ground.root / "a").symlink_to("b")
    (ground.root / "b").symlink_to("a")
    assert ground.paths() == {"real/.envrc"}


def test_a_directory_that_changes_meanwhile(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not yet looked at is moved to where one has been looking already."""
    ground.put("a/x")
    ground.put("z/deep/.envrc")
    ground.put("m/x")
    ground.enter()
    original = walk.Walk._enter_directory

    def enter(self: object, above: object, name: str, folded: str) -> None:
        if name == "m":
            (ground.root / "z/deep").rename(ground.root / "a/deep")
        original(self, above, name, folded)

    monkeypatch.setattr(walk.Walk, "_enter_directory", enter)
    found = ground.findings()
    assert [(f.kind, f.incomplete) for f in found] == [("audit", True)]
    assert "changed meanwhile" in found[0].detail


def test_a_directory_becomes_a_link_meanwhile(ground: Ground, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/.envrc").write_text("secret")
    ground.put("z/x")
    original = walk.Walk._enter_directory

    def enter(self: object, above: object, name: str, folded: str) -> None:
        (ground.root / "z").rename(ground.root / "y")
        (ground.root / "z").symlink_to(tmp_path / "elsewhere")
        original(self, above, name, folded)

    monkeypatch.setattr(walk.Walk, "_enter_directory", enter)
    assert "z/.envrc" not in ground.paths()


def test_nothing_is_ever_started(ground: Ground, tmp_path: Path) -> None:
    trap, sprung = tmp_path / "bin", tmp_path / "sprung"
    trap.mkdir()
    for name in ("git", "direnv", "sh", "nix", "python3", "make"):
        (trap / name).write_text(f"#!/bin/bash\ntouch {sprung}\n")
        (trap / name).chmod(0o755)
    ground.enter()
    ground.put(".git/config", f"[core]\n\tfsmonitor = touch {sprung}; false\n\tpager = touch {sprung}\n[include]\n\tpath = /dev/stdin\n")
    ground.put(".git/HEAD", "ref: refs/heads/main\n")
    for name in ("json.py", "hashlib.py", "sitecustomize.py", "walk.py", "encodings.py"):
        ground.put(name, f"open({str(sprung)!r}, 'w')\n")
    env = {"PATH": str(trap), "PYTHONPATH": str(ground.root), "PYTHONSTARTUP": str(ground.root / "json.py"), "HOME": str(tmp_path)}
    for words in (("--notice",), ("--json",), (), ("--accept",)):
        done = subprocess.run(
            (sys.executable, "-I", "-S", "-c", SCRIPT, str(PACKAGE.parent.parent), "--project", ".", "--state", str(ground.state), *words),
            cwd=ground.root,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stderr
        if words == ("--notice",):
            assert ".git/config" in (ground.state / "notice").read_text("ascii")
    assert not sprung.exists()


def test_the_source_names_nothing_that_starts_programs() -> None:
    for file in PACKAGE.glob("*.py"):
        text = file.read_text("utf-8")
        assert not [
            word for word in ("subprocess", "os.system", "popen", "os.exec", "spawn", "eval(", "exec(", "__import__", "import_module") if word in text
        ], file


# --- the command line


def test_a_notice_says_each_finding_once(ground: Ground) -> None:
    ground.enter()
    assert ground.notice() == ""
    ground.put("notes/.env")
    ground.put("Makefile")
    ground.put("node_modules/a/.envrc")
    ground.put(".venv/x/.vscode/tasks.json")
    ground.put("package-lock.json")
    assert ground.notice() == ""  # wavegen audit lists these
    assert {".envrc", "Makefile"} & ground.paths() == {"Makefile"}
    ground.put(".envrc")
    said = "audit: 1 thing the host would run or follow: .envrc (wavegen audit lists them)\n"
    assert ground.notice() == said
    assert ground.notice() == ""
    ground.put("sub/.git/hooks/pre-commit")
    ground.put("sub/flake.nix")
    ground.put(".nvim.lua")
    assert ground.notice() == "audit: 3 things the host would run or follow: sub/.git/hooks/pre-commit, .nvim.lua and 1 more (wavegen audit lists them)\n"
    ground.put(".envrc", "another")
    assert ground.notice() == said
    assert ".envrc" in ground.paths()
    ground.accept()
    assert ground.notice() == ""
    ground.enter()
    ground.put(".envrc", "x")
    assert ground.notice() == said


def test_notices_that_nobody_read_are_kept_and_their_number_is_bounded(ground: Ground) -> None:
    ground.enter()
    for number in range(30):
        ground.put(f"d{number}/.envrc")
        assert ground.run("--notice").returncode == 0
    lines = (ground.state / "notice").read_text("ascii").splitlines()
    assert len(lines) == 20
    assert "d29/.envrc" in lines[-1]
    assert not [name for name in os.listdir(ground.state) if name.startswith(".")]


def test_who_finds_another_one_looking_leaves_the_marker(ground: Ground) -> None:
    ground.enter()
    ground.put(".envrc")
    with (ground.state / "audit.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert ground.notice("--done", str(ground.marker)) == ""
        assert ground.marker.exists()
    assert ".envrc" in ground.notice("--done", str(ground.marker))


def test_a_session_that_ends_during_a_look_is_looked_at_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.enter()
    other = ground.state / f"entered-{os.getpid()}-2"
    other.touch()
    gone = ground.state / "entered-999999999-3"
    audit = command.run_project_audit

    def ends(*words: Any, **how: Any) -> Any:
        found = audit(*words, **how)
        other.rename(gone)
        return found

    monkeypatch.setattr(command, "run_project_audit", ends)
    assert command.main(("--project", str(ground.root), "--state", str(ground.state), "--notice", "--done", str(ground.marker))) == 0
    assert gone.exists()
    assert not ground.marker.exists()


def test_of_many_sessions_with_findings_the_earliest_marker_stays(ground: Ground) -> None:
    ground.enter()
    first = ground.marker
    ground.put(".envrc")
    for number in range(3):
        ground.marker = ground.state / f"entered-0-{number + 2}"
        ground.enter()
        ground.notice("--done", str(ground.marker))
    assert command.session_markers(str(ground.state)) == [str(first)]
    assert ground.paths() == {".envrc"}


def test_a_project_that_is_gone_makes_no_noise(ground: Ground) -> None:
    ground.enter()
    shutil.rmtree(ground.root)
    assert "could not be looked at" in ground.notice("--done", str(ground.marker))
    assert ground.notice("--done", str(ground.marker)) == ""
    assert ground.marker.exists()
    assert ground.run("--json").returncode == 3


def test_the_exit_status(ground: Ground) -> None:
    ground.enter()
    assert ground.run().returncode == 0
    ground.put(".envrc")
    assert ground.run().returncode == 1
    assert ground.run("--accept").returncode == 0
    assert ground.run().returncode == 0
    assert subprocess.run((sys.executable, "-I", "-S", "-c", SCRIPT, str(PACKAGE.parent.parent)), capture_output=True, check=False).returncode == 2


def test_little_is_loaded_where_nothing_is_found(ground: Ground) -> None:
    ground.enter()
    ground.put("src/x.c")
    (ground.root / "src").rename(ground.root / "lib")
    ground.enter()
    ground.put("lib/y.c")
    done = subprocess.run(
        (
            sys.executable,
            "-I",
            "-S",
            "-X",
            "importtime",
            "-c",
            SCRIPT,
            str(PACKAGE.parent.parent),
            "--project",
            str(ground.root),
            "--state",
            str(ground.state),
            "--notice",
        ),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "launcher.audit.walk" in loaded
    assert not loaded & {"json", "re", "hashlib", "typing", "dataclasses", "subprocess", "unicodedata", "collections"}


def test_many_files_are_walked_with_few_calls_each(ground: Ground) -> None:
    for number in range(500):
        for name in range(20):
            ground.put(f"d{number}/f{name}.py", "")
    ground.enter()
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        assert ground.paths() == set()
    finally:
        sys.setprofile(None)
    assert calls < 120 * 10_000, calls / 10_000


# --- the package's side


def test_the_package_asks_and_shows(ground: Ground) -> None:
    root, state = str(ground.root), str(ground.state / "demo")
    package.accept_current_state(root, state)
    (ground.state / "demo/entered-0-1").touch()
    time.sleep(0.03)
    ground.put(".envrc")
    ground.put("Makefile")
    ground.put(".env")
    found = package.collect_audit_findings(root, state)
    assert (found.audit_exit_status, found.complete, found.entered is not None) == (1, True, True)
    assert [f.path for f in found.findings] == [".envrc", "Makefile", ".env"]
    assert [f.path for f in package.at_least(found.findings, "medium")] == [".envrc", "Makefile"]
    assert list(package.render_finding_table(found.findings, colour=False)) == [
        "high",
        "  .envrc: a direnv script (direnv runs it when you enter the directory, once it is allowed; read it before you allow it)",
        "medium",
        "  Makefile: a recipe (make, just, cmake, docker and their like run it; read what changed before you run that)",
        "low",
        "  .env: variables (direnv, docker compose and many programs load it into their environment; read it before you allow it)",
    ]
    package.accept_current_state(root, state)
    assert package.collect_audit_findings(root, state).audit_exit_status == 0


def test_the_package_says_when_it_cannot(ground: Ground) -> None:
    with pytest.raises(package.MachineError, match="the audit failed"):
        package.collect_audit_findings(str(ground.root / "missing"), str(ground.state), everything=True)


def test_severities_are_known() -> None:
    assert {row[1] for row in table.ROWS} <= set(table.SEVERITIES)


def test_no_pattern_is_there_twice() -> None:
    patterns = [pattern for row in table.ROWS for pattern in row[2]]
    assert len(set(patterns)) == len(patterns)
    assert [pattern for pattern in patterns if pattern != pattern.lower()] == []
    assert [pattern for pattern in patterns if pattern.removesuffix("/**").count("*") > 1] == []


# --- the fence's own files, rendered anew by the host


def test_what_the_host_renders_is_no_finding_and_an_edit_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    root = render_project(tmp_path)
    state = Path(state_of(str(root)))
    (state / "entered-0-1").touch()
    time.sleep(0.03)
    (root / "wave.yaml").write_text("metadata: {name: another}\n", "utf-8")
    before = wavegen("audit", cwd=root)
    assert (before.status, "wave.yaml" in before.stdout) == (1, True)
    assert wavegen("render", cwd=root).status == 0
    assert wavegen("audit", cwd=root).status == 0
    wrapper = root / ".wavegen/bin/default"
    wrapper.write_text(wrapper.read_text("utf-8") + "true\n", "utf-8")
    after = wavegen("audit", cwd=root)
    assert (after.status, ".wavegen/bin/default" in after.stdout) == (1, True)
    # Not even where the list says so, unless render has left word of it.
    lock = root / ".wavegen/lock.json"
    value = json.loads(lock.read_text("utf-8"))
    value["outputs"][".wavegen/bin/default"] = "sha256:" + hashlib.sha256(wrapper.read_bytes()).hexdigest()
    lock.write_text(json.dumps(value), "utf-8")
    assert wavegen("audit", cwd=root).status == 1


def test_the_command_line(tmp_path: Path) -> None:
    root = render_project(tmp_path)
    assert wavegen("audit", cwd=root).status == 0
    (root / ".envrc").write_text("x", "utf-8")
    everything = wavegen("audit", "--all", cwd=root)
    assert (everything.status, "direnv" in everything.stdout) == (1, True)
    assert wavegen("audit", "--all", "--severity", "critical", cwd=root).stdout.count(".envrc") == 0
    assert {f["path"] for f in json.loads(wavegen("audit", "--all", "--json", cwd=root).stdout)["findings"]} >= {".envrc"}
    assert "is known" in wavegen("audit", "--all", "--accept", cwd=root).stderr
    assert wavegen("audit", "--all", cwd=root).status == 0


def test_what_an_old_link_leads_to_is_looked_at(ground: Ground) -> None:
    for name in ("scripts/pre.sh", "conf/tasks.json", "env"):
        ground.put(name)
    ground.put(".git/HEAD")
    ground.put(".git/config", "")
    (ground.root / ".git/hooks").mkdir()
    (ground.root / ".git/hooks/pre-commit").symlink_to("../../scripts/pre.sh")
    (ground.root / ".vscode").symlink_to("conf")
    (ground.root / ".envrc").symlink_to("env")
    ground.enter()
    assert ground.paths() == set()
    for name in ("scripts/pre.sh", "conf/tasks.json", "env"):
        ground.put(name, "changed")
    assert ground.paths() == {"scripts/pre.sh", "conf/tasks.json", "env"}
    ground.accept()
    ground.enter()
    assert ground.paths() == set()


def test_a_setting_that_names_a_path_without_end_is_no_way_out(ground: Ground) -> None:
    ground.put("sub/.git/HEAD")
    for number in range(1, 3000):
        if number in (210, 2999):
            ground.put(f"sub{number}/.git/HEAD")
            ground.put(f"sub{number}/.git/config", f"[core]\n\tpager = {'a/' * number}b\n")
    ground.enter()
    ground.put(".envrc")
    assert ".envrc" in ground.paths()
    assert {f.path for f in ground.findings() if f.incomplete} == {"sub210/.git/config", "sub2999/.git/config"}


def test_whatever_goes_wrong_is_said_and_the_session_is_not_forgotten(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    ground.enter()

    def fails(*_: object, **__: object) -> None:
        raise RecursionError

    monkeypatch.setattr(command, "run_project_audit", fails)
    assert command.main(("--project", str(ground.root), "--state", str(ground.state), "--notice", "--done", str(ground.marker))) == 0
    assert "could not be looked at" in (ground.state / "notice").read_text("ascii")
    assert ground.marker.exists()
    assert command.main(("--project", str(ground.root), "--state", str(ground.state))) == 3


def test_links_that_take_hours_to_follow(ground: Ground) -> None:
    """40 links, the most that the kernel follows, each by hundreds of parts."""
    (ground.root / "d").mkdir()
    for number in range(39):
        (ground.root / f"l{number}").symlink_to("d/../" * 700 + f"l{number + 1}")
    for number in range(2000):
        (ground.root / f"m{number}").symlink_to("l0")
    ground.put("z/.envrc")
    found = [f for f in ground.findings() if f.path != "z/.envrc"]
    assert ".envrc" in str(ground.paths())
    assert [(f.kind, f.incomplete, f.detail) for f in found] == [("audit", True, "links that are too long to be followed")]


def test_what_is_accepted_is_not_said_at_the_next_start(ground: Ground) -> None:
    ground.enter()
    ground.put(".envrc", "x\n")
    assert ground.run("--notice").returncode == 0
    assert ".envrc" in (ground.state / "notice").read_text("ascii")
    assert ground.run("--accept").returncode == 0
    assert not (ground.state / "notice").exists()
    assert ground.notice() == ""


def test_a_notice_looks_again_where_something_was_at_work(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """As git is, on the host or in the next shell."""
    looks: list[int] = []
    really = command.run_project_audit

    def looked(*arguments: Any, **options: Any) -> Any:
        walk = really(*arguments, **options)
        looks.append(1)
        walk.has_changed = len(looks) < 3
        if walk.has_changed:
            walk.findings = [Finding("", "high", "audit", "it was not looked at", "whatever is in it is not listed", "it changed meanwhile", incomplete=True)]
        return walk

    monkeypatch.setattr(command, "run_project_audit", looked)
    monkeypatch.setattr(command, "_PAUSES", (0.01, 0.01, 0.01))
    command.leave_notice(str(ground.root), str(ground.state), None)
    assert len(looks) == 3
    assert not (ground.state / "notice").exists()
    # Whoever never stops is told of.
    monkeypatch.setattr(command, "run_project_audit", lambda *arguments, **options: (looks.clear(), looked(*arguments, **options))[1])
    command.leave_notice(str(ground.root), str(ground.state), None)
    assert "not everything could be looked at" in (ground.state / "notice").read_text("ascii")
