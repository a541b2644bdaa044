"""What a command loads: start-up time as a list of modules, which is the same on every machine."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import MINIMAL, environment, project, render_project

HEAVY = {
    "jinja2",
    "yaml",
    "difflib",
    "subprocess",
    "importlib.metadata",
    "asyncio",
    "tempfile",
    "typing_extensions",
    "json",
    "hashlib",
    "wavegen.manifest.decoder",
    "wavegen.policy.planner",
}
# Measured with CPython 3.11, and ten to spare: a new module on this path is 0.3 to 40 ms of every start.
HELP_LIMIT = 75 + 20  # the verbs in modules of their own
# The system call filter, what is kept on the host, the repository's one file; personas, the settings of five programs; the verbs about verbs; the longer verbs;
# the launcher's modules that rules, hosts and git are decided in; the note for the next start; the packages themselves
RENDER_LIMIT = 176 + 56 + 4 + 8


def loaded(root: Path, *args: str) -> list[str]:
    """Modules that `wavegen ARGS` imports, in order; not what `site` loads before, which is the installation's business."""
    argv = [sys.executable, "-X", "importtime", "-m", "wavegen", *args]
    done = subprocess.run(argv, cwd=root, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = re.findall(r"^import time:\s+\d+ \|\s+\d+ \| +(\S+)$", done.stderr, re.MULTILINE)
    assert "wavegen.cli.main" in names
    return names[names.index("site") + 1 :]


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("render", "--help"), ("run", "--help"), ("log", "--help")], ids=" ".join)
def test_help_loads_nothing_that_only_a_manifest_needs(tmp_path: Path, args: tuple[str, ...]) -> None:
    assert HEAVY & set(loaded(tmp_path, *args)) == set()


def test_help_loads_few_modules(tmp_path: Path) -> None:
    assert len(loaded(tmp_path, "--help")) <= HELP_LIMIT


def test_render_loads_few_modules(tmp_path: Path) -> None:
    names = loaded(project(tmp_path, MINIMAL), "render")
    assert {"yaml", "jinja2"} <= set(names)
    assert len(names) <= RENDER_LIMIT, sorted(names)
    assert {"difflib", "subprocess", "importlib.metadata", "asyncio", "socket", "email", "typing_extensions"} & set(names) == set()


def test_what_is_loaded_is_the_same_each_time(tmp_path: Path) -> None:
    root = render_project(tmp_path)
    assert loaded(root, "plan") == loaded(root, "plan")


def test_a_run_of_the_command_line_loads_nothing_that_only_the_library_needs(tmp_path: Path) -> None:
    argv = [sys.executable, "-X", "importtime", "-m", "wavegen", "run", "--manifest", "wave.yaml", "--shell", "yolo", "--", "true"]
    done = subprocess.run(argv, cwd=render_project(tmp_path), env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = set(re.findall(r"^import time:\s+\d+ \|\s+\d+ \| +(\S+)$", done.stderr, re.MULTILINE))
    assert "wavegen.project.library" in names
    assert {"wavegen.project.wrapper_process", "wavegen.project.network_log", "subprocess", "selectors", "difflib", "asyncio"} & names == set()


def test_the_package_itself_loads_nothing(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", "import sys; before = set(sys.modules); import wavegen; print(sorted(set(sys.modules) - before))"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "['wavegen']\n"


def test_schema_needs_no_template(tmp_path: Path) -> None:
    assert "jinja2" not in loaded(tmp_path, "schema")


def test_a_diff_is_only_made_where_it_is_asked_for(tmp_path: Path) -> None:
    root = render_project(tmp_path)
    (root / "wave.yaml").write_text("metadata: {name: other}\n")
    assert "difflib" not in loaded(root, "render", "--git-add")
    (root / "flake.nix").unlink()
    assert "difflib" in loaded(root, "render", "--diff")
