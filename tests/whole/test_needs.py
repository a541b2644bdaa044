"""A tool that does not work skips a test at home, and fails it in CI: a proof that was not run is none."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, environment

TESTS = """
import pytest
@pytest.mark.needs("bash")
def test_with_bash(): pass
@pytest.mark.needs("nix", "bash")
def test_with_nix(): pass
def test_without(): pass
"""


def run(tmp_path: Path, tests: str = TESTS, *, with_nix: bool = False, **env: str) -> tuple[int, str]:
    """Run pytest with this suite's conftest and a PATH on which nix-instantiate fails, or works."""
    shutil.copy(ROOT / "tests/conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs(*tools): x\naddopts = --strict-markers -p no:cacheprovider\n")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "nix-instantiate").write_text(f"#!/bin/sh\n{'exit 0' if with_nix else 'echo no daemon >&2; exit 1'}\n")
    (tools / "nix-instantiate").chmod(0o755)
    argv = [sys.executable, "-m", "pytest", "-ra", "test_it.py"]
    clean = {name: value for name, value in environment().items() if name not in ("CI", "WAVEGEN_MAY_SKIP")}
    done = subprocess.run(argv, cwd=tmp_path, env={**clean, "PATH": f"{tools}:{clean['PATH']}", **env}, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.needs("bash")
def test_at_home_a_broken_tool_skips_with_the_reason(tmp_path: Path) -> None:
    status, shown = run(tmp_path)
    assert status == 0
    assert "2 passed, 1 skipped" in shown
    assert "needs nix: nix-instantiate fails: no daemon" in shown


@pytest.mark.needs("bash")
def test_in_ci_a_broken_tool_fails(tmp_path: Path) -> None:
    status, shown = run(tmp_path, CI="true")
    assert status == 1
    assert "2 passed, 1 error" in shown
    assert "needs nix: nix-instantiate fails: no daemon" in shown
    assert "no test ran that needs: nix" in shown


@pytest.mark.needs("bash")
def test_in_ci_a_broken_tool_that_is_excused_skips(tmp_path: Path) -> None:
    status, shown = run(tmp_path, CI="true", WAVEGEN_MAY_SKIP="nix")
    assert status == 0, shown
    assert "2 passed, 1 skipped" in shown


@pytest.mark.needs("bash")
def test_an_agents_program_is_optional_in_ci_too(tmp_path: Path) -> None:
    tests = TESTS.replace('needs("nix", "bash")', 'needs("opencode")')
    status, shown = run(tmp_path, tests, CI="true", WAVEGEN_OPENCODE="/nonexistent")
    assert status == 0, shown
    assert "needs opencode: /nonexistent is not on the PATH (optional, in CI too; WAVEGEN_OPENCODE may name it)" in shown


@pytest.mark.needs("bash")
def test_a_tool_that_works_runs_its_tests(tmp_path: Path) -> None:
    status, shown = run(tmp_path, with_nix=True, CI="true")
    assert (status, "3 passed" in shown) == (0, True)


@pytest.mark.needs("bash")
def test_in_ci_a_tool_whose_tests_all_skip_themselves_fails_the_run(tmp_path: Path) -> None:
    tests = TESTS.replace("def test_with_bash(): pass", "def test_with_bash(): pytest.skip('not today')")
    status, shown = run(tmp_path, tests, CI="true", WAVEGEN_MAY_SKIP="nix")
    assert status == 1
    assert "no test ran that needs: bash" in shown


@pytest.mark.parametrize("marker", ['needs("bsah")', "needs()", 'needs(tool="bash")'])
def test_a_marker_that_names_no_known_tool_stops_the_run(tmp_path: Path, marker: str) -> None:
    status, shown = run(tmp_path, TESTS.replace('needs("bash")', marker))
    assert status == 4
    assert "must name some of: bash, bwrap, curl, " in shown


def test_an_excuse_for_an_unknown_tool_stops_the_run(tmp_path: Path) -> None:
    status, shown = run(tmp_path, WAVEGEN_MAY_SKIP="nxi")
    assert status == 4
    assert "WAVEGEN_MAY_SKIP names unknown tools: nxi" in shown


def test_every_tool_is_one_that_some_test_needs() -> None:
    import conftest

    shown = "".join(path.read_text("utf-8") for path in (ROOT / "tests").glob("*/test_*.py") if path.name != "test_needs.py")
    assert [tool for tool in conftest.TOOLS if f'"{tool}"' not in shown] == []


def divided(base: Path, python: str, *words: str) -> subprocess.CompletedProcess[str]:
    """scripts/test with a script in place of the python that it starts."""
    (base / "scripts").mkdir()
    shutil.copy(ROOT / "scripts/test", base / "scripts")
    (base / "tests").symlink_to(ROOT / "tests")
    program = base / ".venv/bin/python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{python}\n")
    program.chmod(0o755)
    return subprocess.run(["bash", "scripts/test", *words], cwd=base, capture_output=True, text=True, check=False)


def test_every_test_file_is_in_one_run(tmp_path: Path) -> None:
    done = divided(tmp_path, 'shift 2; for file; do echo "$file"; [ -e "$file" ] || exit 1; done')
    assert (done.returncode, sorted(done.stdout.split())) == (0, sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py")))


def test_the_quick_ones_are_files_that_there_are_and_need_no_engine(tmp_path: Path) -> None:
    done = divided(tmp_path, 'for file; do case $file in tests/*) echo "$file"; [ -e "$file" ] || exit 1;; esac; done', "check")
    files = done.stdout.split()
    assert (done.returncode, len(files)) == (0, len(set(files)))
    assert len(files) > 30
    for name in files:
        needed = set(re.findall(r"needs\((.*?)\)", (ROOT / name).read_text("utf-8")))
        assert not any(tool in words for words in needed for tool in ("podman", "qemu", "claude", "srt")), name


@pytest.mark.parametrize("failing", ["test_hosts.py", "test_probes.py"])
def test_a_quick_one_that_fails_fails_the_check(tmp_path: Path, failing: str) -> None:
    assert divided(tmp_path, f'case " $* " in *{failing}*) exit 7; esac', "check").returncode == 7


@pytest.mark.parametrize("failing", ["test_quote.py", "test_docker.py", "test_fence.py"])
def test_one_run_that_fails_fails_them_all(tmp_path: Path, failing: str) -> None:
    done = divided(tmp_path, f'case " $*" in *{failing}*) echo broken; exit 7; esac')
    assert (done.returncode, done.stdout) == (7, "broken\n")
