"""What the last render left is told by digests: the same answers as the long way, nobody else's lock is believed, and little is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import MINIMAL, USER, call, environment, project, render_project, wavegen

from wavegen.project import handover, last_render
from wavegen.project.rendered_tree import Tree, sha256_digest
from wavegen.project.state_dir import state_directory

MANIFEST = """\
metadata: {name: x}
runtime: {sandbox: {shells: {ci: {network: none}}, env_passthrough: [TOKEN]}}
"""


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    return place


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = render_project(tmp_path, MANIFEST)
    monkeypatch.chdir(made)
    return made


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[handover.Launch, list[str]]]]:
    """Each start that comes of a run, in place of it."""
    found: list[tuple[handover.Launch, list[str]]] = []

    def become(launch: handover.Launch, root: str, options: object, words: list[str]) -> None:
        del root, options
        found.append((launch, words))

    monkeypatch.setattr(handover, "exec_launcher", become)
    return found


def loaded(root: Path, *words: str) -> set[str]:
    """Modules that a verb loads, to its end or to the launcher."""
    argv = [sys.executable, "-X", "importtime", "-m", "wavegen", *words]
    done = subprocess.run(argv, cwd=root, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.split("import time: self")[1].splitlines()  # the launcher's own Python comes after
    return {line.rpartition("|")[2].strip() for line in lines if "|" in line}


@pytest.mark.parametrize("words", [("render",), ("render", "--check"), ("run", "--", "true"), ("run", "-s", "ci", "true")], ids=" ".join)
@pytest.mark.needs("bwrap")
def test_what_has_not_changed_loads_little(root: Path, words: tuple[str, ...]) -> None:
    found = loaded(root, *words)
    assert "wavegen.project.last_render" in found
    assert {"click", "yaml", "jinja2", "dataclasses", "wavegen.cli.main", "wavegen.manifest.model", "wavegen.policy.model"} & found == set()
    assert len({name for name in found if name.startswith("wavegen")}) <= (20 if words == ("render",) else 8)


def test_the_short_way_starts_what_the_long_way_starts(root: Path, starts: list[tuple[handover.Launch, list[str]]]) -> None:
    last_render.run_if_unchanged(["-s", "ci", "--", "echo", "-n"])
    assert call("run", "-s", "ci", "--", "echo", "-n", cwd=root).status == 0
    (short, words), (long, others) = starts
    assert (words, tuple(words)) == (["echo", "-n"], tuple(others))
    assert short.filter == long.filter != b""

    def rules(launch: handover.Launch) -> list[str]:
        return [line for line in launch.rules.split("\n") if not line.startswith("#")]

    assert rules(short) == rules(long)


CHANGES = {
    "the manifest": "echo '# x' >>wave.yaml",
    "an overlay": "echo '{}' >wave.sandbox.yaml",
    "no manifest": "rm wave.yaml",
    "a rule": "echo >>.wavegen/rules/ci",
    "the groups": "sed -i s/read/write/ .wavegen/rules/base",
    "a filter": "echo >>.wavegen/seccomp/default.bpf",
    "the lock": "echo >>.wavegen/lock.json",
    "no lock": "rm .wavegen/lock.json",
    "a file besides": "touch .wavegen/launcher/evil.py",
    "a link besides": "ln -s / .wavegen/evil",
    "a link for a file": "mv .wavegen/rules/ci x; ln -s ../../x .wavegen/rules/ci",
    "a link for a directory": "mv .wavegen/rules x; ln -s ../x .wavegen/rules",
    "a link for all": "mv .wavegen x; ln -s x .wavegen",
    "a pipe": "rm .wavegen/rules/ci; mkfifo .wavegen/rules/ci",
    "an interrupted render": "mkdir .wavegen/.tmp",
}
ONLY_CHECKED = {
    "a mode": "chmod -x .wavegen/bin/ci",
    "the flake": "echo >>flake.nix",
    "another flake": "echo '{}' >flake.nix",
    "no flake.lock": "rm flake.lock",
    "a launcher": "echo >>.wavegen/launcher/start.py",
    "a script": "rm .wavegen/bin/ci",
}


@pytest.mark.parametrize("change", [*CHANGES, *ONLY_CHECKED])
def test_whatever_has_changed_goes_the_long_way(root: Path, starts: list[tuple[handover.Launch, list[str]]], change: str) -> None:
    assert last_render.unchanged_project_root()
    subprocess.run(["sh", "-ec", {**CHANGES, **ONLY_CHECKED}[change]], cwd=root, check=True)
    assert not last_render.unchanged_project_root()
    last_render.run_if_unchanged(["-s", "ci", "true"])
    assert bool(starts) == (change in ONLY_CHECKED)


def test_a_lock_that_was_brought_is_not_believed(root: Path, starts: list[tuple[handover.Launch, list[str]]]) -> None:
    """A pull request brings rules that give the network back, and a lock that lists them."""
    rules, lock = root / ".wavegen/rules/ci", root / ".wavegen/lock.json"
    rules.write_text(rules.read_text().replace("network\tnone", "network\thost"))
    listed = json.loads(lock.read_text())
    listed["outputs"][".wavegen/rules/ci"] = sha256_digest(rules.read_bytes())
    lock.write_text(json.dumps(listed))
    assert not last_render.unchanged_project_root()
    last_render.run_if_unchanged(["-s", "ci", "true"])
    assert starts == []
    assert wavegen("render", "--check", cwd=root).stdout == ".wavegen/lock.json: out of date\n.wavegen/rules/ci: out of date\n"


def test_another_wavegen_goes_the_long_way(root: Path, starts: list[tuple[handover.Launch, list[str]]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_render.unchanged_project_root()
    monkeypatch.setattr(last_render, "code_stamp", lambda: "another")
    assert not last_render.unchanged_project_root()
    last_render.run_if_unchanged(["true"])
    assert starts == []


def test_the_stamp_changes_with_any_file_of_wavegen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = {name: tmp_path / name for name in ("package", "templates", "nix")}
    for place in places.values():
        (place / "sub").mkdir(parents=True)
        (place / "sub/x").write_text("x")
    monkeypatch.setattr(last_render.resources, "package_directory", lambda: str(places["package"]))
    monkeypatch.setattr(last_render.resources, "resource_directory", lambda name: str(places[name]))
    seen = {last_render.code_stamp()}
    for place in places.values():
        (place / "sub/x").write_text("xx")
        seen.add(last_render.code_stamp())
        (place / "sub/y").write_text("")
        seen.add(last_render.code_stamp())
        os.utime(place / "sub/y", (1, 1))
        seen.add(last_render.code_stamp())
        (place / "__pycache__").mkdir()
        assert last_render.code_stamp() in seen
    assert len(seen) == 10


@pytest.mark.parametrize(
    "words",
    [
        ["-p", "x"],
        ["--exec", "true"],
        ["-b", "docker", "true"],
        ["-s"],
        ["-s", "", "true"],
        ["-s", "none", "true"],
        ["-s", "base", "true"],
        ["-s", "../rules/ci", "true"],
        ["-m", "x"],
    ],
    ids=" ".join,
)
def test_what_names_more_than_a_shell_goes_the_long_way(root: Path, starts: list[tuple[handover.Launch, list[str]]], words: list[str]) -> None:
    last_render.run_if_unchanged(words)
    assert starts == []


@pytest.mark.parametrize("backend", ["docker", "landlock", "none"])
def test_other_back_ends_go_the_long_way(
    tmp_path: Path, starts: list[tuple[handover.Launch, list[str]]], backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = project(tmp_path, MINIMAL + f"runtime: {{sandbox: {{backend: {backend}}}}}\n")
    monkeypatch.chdir(made)
    call("render", cwd=made)
    last_render.run_if_unchanged(["true"])
    assert starts == []


@pytest.mark.needs("git")
def test_a_render_with_nothing_to_write_says_so_and_keeps_repositories_to_themselves(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert last_render.is_up_to_date()
    assert capfd.readouterr().out == "up to date\n"
    assert wavegen("render", cwd=root).stdout == call("render", cwd=root).stdout == "up to date\n"
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    assert not last_render.is_up_to_date()
    assert wavegen("render", cwd=root).stdout == "wrote .git/commondir\n"
    assert last_render.is_up_to_date()
    (root / ".git/commondir").unlink()
    assert wavegen("render", cwd=root).stdout == "wrote .git/commondir\n"


def test_output_that_cannot_be_written_goes_the_long_way(root: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "wavegen", "render"], cwd=root, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert done.stderr == "wavegen: error: the output cannot be written: no space left (make room, or print elsewhere)\n"


def test_only_what_is_as_rendered_is_noted(root: Path) -> None:
    place = Path(state_directory(str(root))) / "last-render.json"
    (root / "wave.yaml").write_text(MANIFEST + "# x\n")
    place.unlink()
    assert call("render", "--check", cwd=root).status == 1
    assert call("render", "--diff", cwd=root).status == 0
    assert not place.exists()
    assert call("render", cwd=root).status == 0
    assert last_render.unchanged_project_root()
    place.unlink()
    assert call("render", "--check", cwd=root).status == 0
    assert last_render.unchanged_project_root()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"lock": 1}', "null", "\udcff"])
def test_a_damaged_note_goes_the_long_way(root: Path, text: str) -> None:
    (Path(state_directory(str(root))) / "last-render.json").write_text(text, "utf-8", "surrogateescape")
    assert not last_render.unchanged_project_root()
    assert wavegen("render", "--check", cwd=root).status == 0


def test_a_render_without_a_home_that_can_be_written_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    made = render_project(tmp_path, MANIFEST)
    assert wavegen("render", "--check", cwd=made).status == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root writes in another's home")
def test_root_makes_nothing_in_another_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What root made there its owner could not use."""
    home = tmp_path / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(home))
    render_project(tmp_path, MANIFEST)
    assert list(home.iterdir()) == []


def forge(root: Path, place: Path, shell: str = "default") -> None:
    """A note that says that all is well, as a command inside can write it: it reads the lock, and may read wavegen's files."""
    place.mkdir(parents=True, exist_ok=True)
    lock = sha256_digest((root / ".wavegen/lock.json").read_bytes())
    note = {"lock": lock, "code": last_render.code_stamp(), "manifest": "wave.yaml", "shell": shell, "backend": "bubblewrap"}
    (place / "last-render.json").write_text(json.dumps(note | {"executable": [], "required": [], "flake": True}))


def test_no_note_leads_to_a_shell_without_a_sandbox(root: Path, starts: list[tuple[handover.Launch, list[str]]]) -> None:
    forge(root, Path(state_directory(str(root))), "yolo")
    last_render.run_if_unchanged(["true"])
    assert starts == []
    forge(root, Path(state_directory(str(root))))
    last_render.run_if_unchanged(["true"])
    assert len(starts) == 1


@pytest.mark.parametrize("way", ["in the project", "linked", "the home", "relative", "below a link", "around"])
def test_a_note_that_a_command_of_the_project_can_write_is_not_believed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: list[tuple[handover.Launch, list[str]]], way: str
) -> None:
    match way:
        case "in the project":
            monkeypatch.setenv("XDG_STATE_HOME", str(root / ".state"))
        case "linked":
            (tmp_path / "linked").symlink_to(root)
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "linked"))
        case "the home":
            monkeypatch.delenv("XDG_STATE_HOME")
            monkeypatch.setenv("HOME", str(root))
        case "relative":
            monkeypatch.delenv("XDG_STATE_HOME")
            monkeypatch.setenv("HOME", ".")
        case "below a link":
            monkeypatch.delenv("XDG_STATE_HOME")
            (tmp_path / "home").mkdir()
            (root / "inner").mkdir()
            (tmp_path / "home/.local").symlink_to(root / "inner")
            monkeypatch.setenv("HOME", str(tmp_path / "home"))
        case _:
            kept = Path(state_directory(str(root)))
            kept.parent.mkdir(parents=True, exist_ok=True)
            if kept.exists():
                kept.rename(kept.with_name("aside"))
            kept.symlink_to(tmp_path)
    forge(root, Path(state_directory(str(root))))
    assert not last_render.unchanged_project_root()
    last_render.run_if_unchanged(["true"])
    assert starts == []


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_note_where_others_write_is_not_believed(root: Path, mode: int) -> None:
    kept = Path(state_directory(str(root)))
    assert last_render.unchanged_project_root()
    kept.chmod(mode)
    assert not last_render.unchanged_project_root()
    kept.chmod(0o700)
    kept.parent.chmod(mode)
    assert not last_render.unchanged_project_root()
    kept.parent.chmod(0o700)
    assert last_render.unchanged_project_root()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("level", [0, 1])
def test_a_note_of_another_user_is_not_believed(root: Path, level: int) -> None:
    kept = Path(state_directory(str(root)))
    os.chown((kept, kept.parent)[level], USER, USER)
    assert not last_render.unchanged_project_root()


def test_a_note_that_is_a_link_or_a_pipe_is_neither_followed_nor_waited_for(root: Path, tmp_path: Path) -> None:
    note = Path(state_directory(str(root))) / "last-render.json"
    note.rename(tmp_path / "note")
    note.symlink_to(tmp_path / "note")
    assert not last_render.unchanged_project_root()
    note.unlink()
    os.mkfifo(note)
    assert not last_render.unchanged_project_root()


@pytest.mark.skipif(os.getuid() != 0, reason="only root writes in another's home")
@pytest.mark.parametrize("link", ["last-render.json", "rendered", ""])
def test_root_writes_nothing_through_a_link_of_another_user(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: str) -> None:
    """Whose home it is, as with `sudo -E`."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "file").write_text("mine")
    home = tmp_path / "theirs"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(home))
    kept = Path(state_directory(str(root)))
    kept.parent.mkdir(parents=True)
    if link:
        kept.mkdir()
        (kept / link).symlink_to(victim / "file")
    else:
        kept.symlink_to(victim)
    subprocess.run(["chown", "-hR", f"{USER}:{USER}", str(home)], check=True)
    (root / "wave.yaml").write_text(MANIFEST + "# x\n")
    assert call("render", cwd=root).status == 0
    assert call("render", "--check", cwd=root).status == 0
    assert {path.name: path.read_text() for path in victim.iterdir()} == {"file": "mine"}


def test_what_is_noted_is_what_was_compared_and_not_what_lies_there_by_now(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may write `.wavegen` while it is compared exchanges it afterwards."""
    findings = Tree.find_differences
    lock = root / ".wavegen/lock.json"

    def exchanging(tree: Tree) -> object:
        found = findings(tree)
        lock.write_text(lock.read_text() + "\n")
        return found

    (Path(state_directory(str(root))) / "last-render.json").unlink()
    monkeypatch.setattr(Tree, "find_differences", exchanging)
    assert call("render", "--check", cwd=root).status == 0
    assert not last_render.unchanged_project_root()


def test_a_flake_of_theirs_that_is_gone_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = project(tmp_path, MANIFEST)
    monkeypatch.chdir(made)
    (made / "flake.nix").write_text("{ }\n")
    assert call("render", cwd=made).status == 0
    (made / "flake.nix").unlink()
    assert not last_render.unchanged_project_root()
    assert wavegen("render", cwd=made).status == 0
    assert (made / "flake.nix").exists()


def test_directories_of_the_state_are_this_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    before = os.umask(0)
    try:
        made = render_project(tmp_path, MANIFEST)
    finally:
        os.umask(before)
    places = [tmp_path / "home" / part for part in (".local", ".local/state", ".local/state/wavegen")]
    assert [place.stat().st_mode & 0o777 for place in (*places, Path(state_directory(str(made))))] == [0o700] * 4
