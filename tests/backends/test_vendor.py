"""vendor: false: .wavegen holds no launcher, and an installed wavegen or a flake's input starts what it says."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence import wait_until
from helpers import ROOT, call, project, render_project, rendered, wavegen

MANIFEST = "metadata: {name: x}\nruntime: {sandbox: {vendor: false, env_passthrough: [TOKEN], shells: {ci: {network: none}}}}\n"
PLAIN = "metadata: {name: x}\nruntime: {sandbox: {env_passthrough: [TOKEN], shells: {ci: {network: none}}}}\n"


def installed(home: Path, python: str = sys.executable) -> Path:
    """A wavegen in ~/.local/bin, as installers write it: this checkout's."""
    place = home / ".local/bin/wavegen"
    place.parent.mkdir(parents=True)
    place.write_text(f"#!{python}\n# -*- coding: utf-8 -*-\nraise SystemExit('not asked')\n")
    place.chmod(0o755)
    return place


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "home").mkdir()
    made = render_project(tmp_path, MANIFEST)
    yield made
    kept = tmp_path / "home/.local/state/wavegen"
    wait_until(lambda: not list(kept.glob("*/entered-*")), "the look afterwards has ended")


def start(root: Path, *words: str, shell: str = "bin/ci", **variables: str) -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(root.parent / "home"), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", **variables}
    return subprocess.run([str(root / ".wavegen" / shell), *words], cwd=root, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def test_nothing_of_the_launcher_is_rendered_and_the_rules_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    without, whole = rendered(render_project(tmp_path / "a", MANIFEST)), rendered(render_project(tmp_path / "b", PLAIN))
    assert not [name for name in without if "launcher" in name]
    assert len(without) <= 21
    assert sum(map(len, without.values())) < 180_000
    gone = {name for name in whole if name not in without}
    assert {name for name in gone if not name.startswith(".wavegen/launcher/")} == {".wavegen/.gitignore", "flake.nix", "flake.lock"}

    def rules(files: dict[str, bytes]) -> dict[str, list[bytes]]:
        # A flake that somebody else writes need not be there yet.
        return {name: [line for line in data.split(b"\n") if b"./flake." not in line] for name, data in files.items() if "/rules/" in name}

    assert rules(without) == rules(whole)


def test_an_old_launcher_goes_and_comes_back(tmp_path: Path) -> None:
    root = render_project(tmp_path, PLAIN)
    before = rendered(root)
    (root / "wave.yaml").write_text(MANIFEST)
    assert call("render", cwd=root).status == 0
    assert not (root / ".wavegen/launcher").exists()
    (root / "wave.yaml").write_text(PLAIN)
    assert call("render", cwd=root).status == 0
    assert rendered(root) == before


@pytest.mark.needs("bwrap")
def test_an_installed_wavegen_starts_the_script(root: Path) -> None:
    installed(root.parent / "home")
    done = start(root, "--", "sh", "-c", 'echo "$WAVEGEN_SHELL $TOKEN"; cat /proc/net/dev | wc -l; echo x >.wavegen/x; exit 7', TOKEN="t")
    assert done.returncode == 7, done.stderr
    assert done.stdout == "ci t\n3\n"
    assert "Read-only" in done.stderr
    assert start(root, "--print", "--", "true").stdout.startswith("/usr/bin/bwrap\n")


@pytest.mark.needs("bwrap")
def test_the_callers_python_is_not_asked(root: Path, tmp_path: Path) -> None:
    """Variables that a project sets, and programs that stand on its PATH."""
    installed(root.parent / "home")
    evil = tmp_path / "evil"
    for name in ("wavegen/__init__.py", "json/__init__.py", "sitecustomize.py", "wavegen.py"):
        (evil / name).parent.mkdir(parents=True, exist_ok=True)
        (evil / name).write_text("import os; os.write(2, b'EVIL')")
    (evil / "python3").write_text("#!/bin/sh\necho EVIL >&2\n")
    (evil / "python3").chmod(0o755)
    for name in ("json.py", "os.py", "wavegen.py"):
        (root / name).write_text("raise SystemExit('EVIL')")
    done = start(root, "--", "true", PYTHONPATH=str(evil), PYTHONHOME=str(evil), PATH=f"{evil}:{os.environ['PATH']}", PYTHONSTARTUP=str(evil / "wavegen.py"))
    assert (done.returncode, "EVIL" in done.stderr) == (0, False), done.stderr


def test_without_one_it_says_what_to_do(root: Path) -> None:
    done = start(root, "--", "true")
    if done.returncode == 0:
        pytest.skip("this machine has a wavegen of its own")
    assert done.returncode == 125
    assert done.stderr.startswith("wavegen: error: this project holds no launcher (vendor: false), and no wavegen is installed")


FIRST_LINES = {
    "as ever": "#!{python}",
    "a space before": "#! {python}",
    "options, as pipx writes them": "#!{python} -E",
    "by a shell, as the path is long": "#!/bin/sh\n'''exec' {python} \"$0\" \"$@\"\n' '''",
    "by a shell, as the path has a space": "#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''",
}


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("line", FIRST_LINES)
def test_first_lines_that_installers_write_are_understood(root: Path, tmp_path: Path, line: str) -> None:
    python = tmp_path / ("sp ace" if "space has" in line or "has a space" in line else "venv") / "bin/python3"
    venv.create(python.parent.parent, with_pip=False, symlinks=True)
    # Where wavegen and what it needs lie.
    (python.parent.parent / f"lib/python3.{sys.version_info[1]}/site-packages/here.pth").write_text("\n".join((str(ROOT), *site.getsitepackages())))
    path = installed(root.parent / "home")
    path.write_text(FIRST_LINES[line].format(python=python) + "\n")
    done = start(root, "--", "echo", "started")
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr


PLANTED = ("venv/bin/python", " /usr/bin/python3", "python3", "in/python3", "utf8", "ELF", "a b/python3")


@pytest.mark.parametrize(
    "text",
    [
        "#! /nowhere/python3", "#!venv/bin/python", "#!python3", "#!./in/python3", "ELF", "", "#!", "#!/usr/bin/zsh", "#!/bin/sh", "#!/usr/bin",
        "#!/usr/bin/env python3", "#!/nowhere/python", "{root}/in/python3", "#!{root}/in/python3", "#!{root}/venv/bin/python", "#!{out}/linked/python3",
        "#!{out}/python3", "#!/proc/self/cwd/in/python3", "#!/bin/sh\n'''exec' in/python3 \"$0\" \"$@\"", "#!{out}/python/sh",
    ],
)  # fmt: skip
def test_a_wavegen_that_leads_into_the_project_or_names_no_python_is_none(root: Path, tmp_path: Path, text: str) -> None:
    """Commands write in the project: whatever the first line says, nothing of it is run outside."""
    evil = "#!/bin/sh\necho EVIL\n"
    for name in PLANTED:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(evil if name != "utf8" else "echo EVIL\n")
        (root / name).chmod(0o755)
    out = tmp_path / "out"
    (out / "python").mkdir(parents=True)
    (out / "linked").symlink_to(root / "in")
    (out / "python3").symlink_to(root / "in/python3")
    (out / "python/sh").write_text(evil)
    (out / "python/sh").chmod(0o755)
    installed(root.parent / "home").write_text(text.format(root=root, out=out) + "\n")
    done = start(root, "--", "true", PATH=f"{root}/in:{os.environ['PATH']}")
    assert "EVIL" not in done.stdout + done.stderr
    assert done.returncode == 125 or "wavegen" in (shutil.which("wavegen", path="/usr/local/bin:/usr/bin") or "")


def test_a_wavegen_that_is_a_link_into_the_project_is_none(root: Path) -> None:
    (root / "in").mkdir()
    (root / "in/wavegen").write_text("#!/bin/echo\n")
    path = installed(root.parent / "home")
    path.unlink()
    path.symlink_to(root / "in/wavegen")
    assert start(root, "--", "true").stdout == ""


def test_a_wavegen_that_is_no_file_is_not_waited_for(root: Path) -> None:
    path = installed(root.parent / "home")
    path.unlink()
    os.mkfifo(path)
    assert start(root, "--", "true").stdout == ""


def test_a_wavegen_that_lies_in_the_project_is_refused(root: Path) -> None:
    """As an editable install of it does."""
    for name in ("wavegen", "templates", "nix"):
        shutil.copytree(ROOT / name, root / name)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "wavegen", "start", ".wavegen/bin/ci", "true"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "this wavegen lies in the project" in done.stderr) == (125, True), done.stderr


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("echo >>.wavegen/rules/ci", ".wavegen/rules/ci is not what was rendered"),
        ("echo >>.wavegen/rules/base", ".wavegen/rules/base is not what was rendered"),
        ("echo >>.wavegen/seccomp/default.bpf", ".wavegen/seccomp/default.bpf is not what was rendered"),
        ("mv .wavegen/rules/ci x; ln -s ../../x .wavegen/rules/ci", ".wavegen/rules/ci is not what was rendered"),
        ("rm .wavegen/rules/ci", ".wavegen/rules/ci is not what was rendered"),
        ("mkdir .wavegen/launcher; touch .wavegen/launcher/evil.py", ".wavegen/launcher/evil.py is not of wavegen"),
        ("rm .wavegen/lock.json", ".wavegen/lock.json cannot be read"),
        ("echo '[]' >.wavegen/lock.json", ".wavegen/lock.json cannot be read"),
        ("cp .wavegen/bin/ci .wavegen/bin/other", ".wavegen/bin/other is not of wavegen"),
        ('echo \'{"outputs": [".wavegen/bin/ci"]}\' >.wavegen/lock.json', ".wavegen/lock.json cannot be read"),
        ('echo \'{"outputs": ".wavegen/bin/ci"}\' >.wavegen/lock.json', ".wavegen/lock.json cannot be read"),
        ("echo >>.wavegen/bin/yolo", ".wavegen/bin/yolo is not what was rendered"),
        ("ln -sf yolo .wavegen/bin/ci", ".wavegen/bin/ci is a link"),
        ("cp -r .wavegen other; ln -sf ../../other/bin/yolo .wavegen/bin/ci", ".wavegen/bin/ci is a link"),
        ("mkdir evil; cp -r .wavegen wave.yaml evil; ln -sf ../../evil/.wavegen/bin/yolo .wavegen/bin/ci", ".wavegen/bin/ci is a link"),
    ],
)
def test_what_is_not_what_was_rendered_starts_nothing(root: Path, damage: str, said: str) -> None:
    installed(root.parent / "home")
    subprocess.run(["sh", "-ec", damage], cwd=root, check=True)
    done = start(root, "--", "echo", "started", shell="bin/other" if "bin/other" in damage.rsplit(maxsplit=1)[-1] else "bin/ci")
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_only_scripts_of_a_rendered_tree_are_started(root: Path) -> None:
    for script in ("wave.yaml", ".wavegen/rules/ci", "/bin/sh", "none"):
        done = wavegen("start", script, "true", cwd=root)
        assert (done.status) == 125
        assert "is no script of a rendered project" in done.stderr


def test_a_flake_of_ours_is_not_written_and_one_of_theirs_gets_a_hint(tmp_path: Path) -> None:
    root = project(tmp_path, MANIFEST)
    done = call("render", cwd=root)
    assert "import ./.wavegen/shells.nix { inherit nixpkgs wavegen; }" in done.stderr
    assert not (root / "flake.nix").exists()
    (root / "flake.nix").write_text("{ }\n")
    assert call("render", "--check", cwd=root).status == 0


def test_landlock_needs_the_launcher(tmp_path: Path) -> None:
    done = call("render", cwd=project(tmp_path, MANIFEST.replace("vendor: false", "vendor: false, backend: landlock")))
    assert done.status == 2
    assert "vendor: false with backend: landlock" in done.stderr


@pytest.mark.parametrize(
    ("path", "is_said"),
    [
        ("~/.local", True), ("~/.local/share/x", True), ("~/.local/pipx", True), ("~/.cache/uv", True), ("~/.cache", True), ("~/.pyenv", True),
        ("/home/me/.local/bin", True), ("/usr/local", True), ("~/.cache/go-build", False), ("~/.local/state/x", False), ("~/src", False),
    ],
)  # fmt: skip
def test_a_place_where_wavegen_may_be_installed_is_a_gap(tmp_path: Path, path: str, is_said: bool) -> None:
    text = MANIFEST.replace("vendor: false", f"vendor: false, paths: [{{path: {path}, access: write, optional: true}}]")
    done = call("plan", "-v", cwd=project(tmp_path, text))
    assert ("scripts start an installed wavegen" in done.stdout) == is_said


@pytest.mark.needs("bwrap")
def test_verify_proves_such_a_project(root: Path) -> None:
    done = wavegen("verify", "-s", "ci", "--json", cwd=root, timeout=120)
    assert done.status == 0, done.output[-2000:]
    found = [finding["verdict"] for shell in json.loads(done.stdout)["shells"] if shell["name"] == "ci" for finding in shell["findings"]]
    assert found.count("HELD") > 120


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_home_in_the_project_names_no_wavegen(root: Path, tmp_path: Path, is_linked: bool) -> None:
    """A command may write there, and a project's settings may say that it is the home."""
    planted = installed(root / "inner", "/bin/sh")
    planted.write_text("#!/bin/echo\nstarted\n")
    home = root / "inner"
    if is_linked:
        home = tmp_path / "linked"
        home.symlink_to(root / "inner")
    done = start(root, "--", "true", HOME=str(home))
    assert "start" not in done.stdout
