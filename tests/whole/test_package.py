"""The wheel renders what the checkout renders, and the documentation's manifests are good ones."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from wavegen import VERSION
from wavegen.cli.completion import completion_script
from wavegen.cli.main import cli
from wavegen.cli.manual_pages import render_manual_pages

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/quickstart/wave.yaml"


def _tree(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file()}


def _render(directory: Path, *python_path: str) -> dict[str, bytes]:
    directory.mkdir()
    (directory / "wave.yaml").write_bytes(EXAMPLE.read_bytes())
    code = (
        f"import sys; sys.path[:0] = {list(python_path)!r}; import wavegen.cli.main; print(wavegen.cli.main.__file__, file=sys.stderr); wavegen.cli.main.main()"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code, "render"], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if python_path:
        assert python_path[0] in done.stderr.splitlines()[0]
    return _tree(directory)


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An sdist and the wheel that is built from it, and in `direct` the wheel that is built from the checkout."""
    place = tmp_path_factory.mktemp("dist")
    for out, how in ((place, ()), (place / "direct", ("--wheel",))):
        subprocess.run([sys.executable, "-m", "build", *how, "--outdir", str(out), str(ROOT)], check=True, capture_output=True)
    return place


def _contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_wheel_renders_the_same_bytes_as_the_checkout(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    assert (tmp_path / "installed/wavegen/py.typed").read_bytes() == b""
    assert _render(tmp_path / "a", str(tmp_path / "installed")) == _render(tmp_path / "b")


def test_a_wheel_is_the_same_from_the_sdist_and_from_the_checkout(dist: Path) -> None:
    (wheel,), (direct,) = dist.glob("*.whl"), (dist / "direct").glob("*.whl")
    assert _contents(wheel) == _contents(direct)


def test_a_wheel_brings_what_man_and_shells_read(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    data = {name.partition(".data/data/")[2]: data for name, data in _contents(wheel).items() if ".data/data/" in name}
    expected = {f"share/man/man1/{name}": text.encode() for name, text in render_manual_pages(cli).items()}
    for shell, place in (
        ("bash", "bash-completion/completions/wavegen"),
        ("zsh", "zsh/site-functions/_wavegen"),
        ("fish", "fish/vendor_completions.d/wavegen.fish"),
    ):
        expected[f"share/{place}"] = completion_script(cli, shell).encode()
    assert data == expected


def test_what_pip_installs_from_the_checkout_renders_as_the_checkout_does(tmp_path: Path) -> None:
    """As `pip install .` does, dependencies and all, in an environment that has nothing."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    subprocess.run([str(tmp_path / "venv/bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(ROOT)], check=True, capture_output=True)
    program = str(tmp_path / "venv/bin/wavegen")
    here = tmp_path / "here"
    here.mkdir()
    (here / "wave.yaml").write_bytes(EXAMPLE.read_bytes())
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    assert subprocess.run([program, "--version"], env=env, capture_output=True, text=True, check=True).stdout == f"wavegen, version {VERSION}\n"
    done = subprocess.run([program, "render"], cwd=here, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert _tree(here) == _render(tmp_path / "there")
    assert (tmp_path / "venv/share/man/man1/wavegen.1").exists()


def test_the_changelog_knows_the_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"## [{VERSION}]" in text or f"What {VERSION} is going to be." in text


def _yaml_blocks() -> list[str]:
    pages = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    return [block for page in pages for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)]


@pytest.mark.parametrize("block", _yaml_blocks())
def test_the_manifests_of_the_documentation_render(block: str, tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(("" if block.startswith("metadata:") else "metadata: {name: readme}\n") + block, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "wavegen", "render"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr
    assert "warning" not in done.stderr


@pytest.mark.needs("bwrap")
def test_the_demo_shows_what_is_let_through_and_what_is_stopped(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "wavegen").write_text(f'#!/bin/sh\nexec {sys.executable} -m wavegen "$@"\n')
    (tools / "wavegen").chmod(0o755)
    env = {"PATH": f"{tools}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([str(ROOT / "examples/quickstart/demo")], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tried, _, asked = done.stdout.split("What this fence")[0].partition("asked for inside restricted")
    rows = [line.split()[-2:] for line in tried.splitlines()[1:] if line.strip()]
    asked, _, persona = asked.partition("inside the fence of the persona navigator")
    assert [line.split()[-1] for line in asked.splitlines() if line.strip()] == ["reached", "refused"]
    assert [line.split()[-1] for line in persona.splitlines() if line.strip()] == ["works", "stopped"]
    assert rows == [["works", "works"]] * 4 + [["works", "stopped"]] * 6
    assert "- default: network: host reaches" in done.stdout
    assert {p.name for p in tmp_path.iterdir()} == {"bin"}
