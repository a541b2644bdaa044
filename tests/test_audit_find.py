"""The words of find print something whenever the audit would find something; not when nothing of interest changed."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import time
from pathlib import Path

import pytest
from audit_ground import TABLE, Ground
from test_audit import CONTENT, samples
from test_audit_git import INSIDE

from wavegen.audit_names import find_words


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def every(ground: Ground, flat: bool = False) -> set[str]:
    """Everything that the words match; without directories if `flat`."""
    words = list(find_words(TABLE, str(ground.root), str(ground.state / "entered")))
    assert words[-1] == "-quit"
    words[-2:] = ["-print0"]
    if flat:
        at = words.index("-type")
        assert words[at : at + 3] == ["-type", "d", "-o"]
        words[at : at + 3] = []
    done = subprocess.run(words, env={**os.environ, "LC_ALL": "C"}, capture_output=True, check=True)
    return {os.path.relpath(os.fsdecode(path), ground.root) for path in done.stdout.split(b"\0")[:-1]}


@pytest.mark.parametrize("upper", [False, True])
def test_what_the_table_matches_find_matches(ground: Ground, upper: bool) -> None:
    planted = []
    for _, path in samples():
        directory, name = os.path.split(path)
        planted.append(os.path.join(directory, name.upper() if upper else name))
        ground.put(planted[-1], "")
    ground.enter()
    for path in planted:
        ground.put(path, CONTENT.get(os.path.basename(path).lower(), "x"))
    assert set(planted) - every(ground, flat=True) == set()
    found = ground.paths()
    assert set(planted) - found == set()


def test_what_git_obeys_find_matches(ground: Ground) -> None:
    planted = {f"{place}/{path}" for place in (".git", "sub/.GIT", "bare") for path, _, _ in INSIDE} | {"tree/.git", "sub/tree/.Git"}
    for path in planted:
        ground.put(path, "")
    ground.enter()
    for path in planted:
        ground.put(path, "x")
    assert planted - every(ground, flat=True) == set()


def test_what_is_no_file_or_has_a_strange_name_find_matches(ground: Ground) -> None:
    one, two, three = (ground.put(f"sub/{name}") for name in ("one", "two", "three"))
    strange = ["-rf", "a\nb", "\x1b[2J", "\u200b.envrc", "a\udcffb", "gpj.\u202etxt"]
    for name in strange:
        ground.put(f"sub/{name}", "")
    ground.enter()
    os.mkfifo(ground.root / "sub/pipe")
    (ground.root / "sub/link").symlink_to("/etc")
    one.chmod(0o4644)
    two.chmod(0o2644)
    three.chmod(0o755)
    for name in strange:
        ground.put(f"sub/{name}", "x")
    with socket.socket(socket.AF_UNIX) as unix:
        here = os.getcwd()
        os.chdir(ground.root)
        unix.bind("sub/sock")
        os.chdir(here)
        expected = {f"sub/{name}" for name in ("pipe", "link", "one", "two", "three", "sock", *strange)}
        assert every(ground, flat=True) - {"sub"} == expected


def test_a_directory_that_was_moved_find_matches(ground: Ground) -> None:
    ground.put("a/b/config")
    ground.enter()
    (ground.root / "a/b").rename(ground.root / "a/.git")
    assert ground.found_by_find() == str(ground.root / "a")


def test_nothing_is_printed_where_nothing_of_interest_changed(ground: Ground) -> None:
    for _, path in samples():
        ground.put(path)
    ground.put("src/main.c")
    ground.enter()
    ground.put("src/main.c", "y")
    ground.put("notes.txt")
    assert ground.found_by_find() == ""
    ground.put("notes/x")
    assert ground.found_by_find() == str(ground.root / "notes")


def test_one_path_is_printed_at_most(ground: Ground) -> None:
    ground.enter()
    for _, path in samples():
        ground.put(path)
    assert "\n" not in ground.found_by_find()
    assert ground.found_by_find()


def test_words_survive_a_shell_and_a_hostile_project(tmp_path: Path) -> None:
    base = tmp_path / "-a $(b) *\n'"
    base.mkdir()
    ground = Ground(base)
    ground.enter()
    ground.put(".envrc")
    words = find_words(TABLE, str(ground.root), str(ground.state / "entered"))
    done = subprocess.run(("bash", "-c", f"LC_ALL=C {shlex.join(words)}"), capture_output=True, text=True, check=True)
    assert done.stdout == f"{ground.root}/.envrc\n"


def test_words_are_the_same_each_time() -> None:
    assert find_words(TABLE) == find_words(TABLE)
    assert find_words(TABLE)[:3] == ("find", "-P", "$project")
    assert "$marker" in find_words(TABLE)
    assert not [word for word in find_words(TABLE) if word in ("-exec", "-delete", "-ok", "-execdir", "-prune", "-fprint")]


def test_names_are_asked_for_only_of_what_changed(ground: Ground) -> None:
    """find would do it the other way round, which takes 14 times as long."""
    for number in range(250):
        for name in range(20):
            ground.put(f"d{number}/f{name}.py", "")
    ground.enter()
    words = find_words(TABLE, str(ground.root), str(ground.state / "entered"))
    plain = ("find", "-P", str(ground.root), "-newercm", str(ground.state / "entered"), "-printf", "")

    def seconds(argv: tuple[str, ...]) -> float:
        best = 9.0
        for _ in range(5):
            began = time.monotonic()
            subprocess.run(argv, env={**os.environ, "LC_ALL": "C"}, check=True)
            best = min(best, time.monotonic() - began)
        return best

    assert seconds(words) < 4 * seconds(plain) + 0.01
