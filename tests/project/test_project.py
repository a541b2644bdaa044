"""Which manifest is taken, and which are refused because a shell may have written them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT, call, render_project

from wavegen import backends
from wavegen.backends import File
from wavegen.policy.model import Plan
from wavegen.project import loader, wrappers

MANIFEST = "metadata: {name: p}\n"


def wavegen(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "wavegen", *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_the_nearest_manifest_above_is_taken(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MANIFEST)
    (tmp_path / "a/b").mkdir(parents=True)
    assert wavegen("render", cwd=tmp_path / "a/b").returncode == 0
    assert (tmp_path / ".wavegen/plan.json").exists()
    assert not (tmp_path / "a/b/.wavegen").exists()


def test_without_a_manifest_it_says_how_to_get_one(tmp_path: Path) -> None:
    done = wavegen("render", cwd=tmp_path)
    assert done.returncode == 2
    assert "wavegen init" in done.stderr


def test_a_manifest_inside_a_fenced_project_must_be_named(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MANIFEST)
    assert wavegen("render", cwd=tmp_path).returncode == 0
    (tmp_path / "sub").mkdir()
    planted = tmp_path / "sub/wave.yaml"
    planted.write_text(MANIFEST + "runtime: {sandbox: {enabled: false}}\n")
    for verb, status in (("render", 2), ("plan", 2), ("run", 125)):
        done = wavegen(verb, cwd=tmp_path / "sub")
        assert done.returncode == status
        assert "a shell may have written it" in done.stderr
    assert wavegen("plan", "--manifest", "wave.yaml", cwd=tmp_path / "sub").returncode == 0


def test_an_input_that_is_new_since_the_last_render_must_be_accepted(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MANIFEST)
    assert wavegen("render", cwd=tmp_path).returncode == 0
    (tmp_path / "wave.sandbox.yaml").write_text("runtime: {sandbox: {enabled: false}}\n")
    for arguments, status in ((("render",), 2), (("render", "--check"), 2), (("run", "true"), 125)):
        done = wavegen(*arguments, cwd=tmp_path)
        assert done.returncode == status
        assert "wave.sandbox.yaml is new since the last render" in done.stderr
    assert wavegen("render", "--accept-new", cwd=tmp_path).returncode == 0
    assert wavegen("render", cwd=tmp_path).returncode == 0


def test_another_manifest_than_the_rendered_one_must_be_accepted(tmp_path: Path) -> None:
    (tmp_path / "fence.yaml").write_text(MANIFEST)
    assert wavegen("render", "-m", "fence.yaml", cwd=tmp_path).returncode == 0
    (tmp_path / "wave.yaml").write_text(MANIFEST)
    assert wavegen("render", cwd=tmp_path).returncode == 2


def test_run_says_125_where_the_manifest_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text("metadata: {name: p}\nruntime: {sandbox: {pacakges: []}}\n")
    done = wavegen("run", "true", cwd=tmp_path)
    assert done.returncode == 125
    assert "did you mean 'packages'?" in done.stderr
    assert wavegen("run", "--shell", "nope", "true", cwd=tmp_path).returncode == 125


def test_gaps_of_every_manifest_are_listed_the_first_time_and_counted_later(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text(MANIFEST)
    first = wavegen("render", cwd=tmp_path).stderr
    assert "default: network: host reaches the host's loopback services" in first
    (tmp_path / "wave.yaml").write_text(MANIFEST + "runtime: {sandbox: {limits: {pids: 50}}}\n")
    later = wavegen("render", cwd=tmp_path).stderr
    assert "wave.yaml:2:29: gap: default, restricted: limits apply to all processes together only if a cgroup can be created" in later
    assert "network: host" not in later
    assert "more gaps, as before (wavegen plan -v lists them)" in later
    assert "network: host" in wavegen("plan", "-v", cwd=tmp_path).stdout


PERSONAS = """\
metadata: {name: p}
adapters: {claude: {}, opencode: {}, codex: {}, gemini: {}, wizard: {}}
personas:
  all: {adapter: claude, permissions: {allowed_tools: [Read]}}
  codex: {adapter: codex}
  wizard: {adapter: wizard}
runtime:
  fallbacks: {claude: [opencode, gemini]}
"""


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock", "docker"])
def test_a_start_renders_what_it_needs_and_checks_what_render_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    root = render_project(tmp_path, PERSONAS + f"  sandbox: {{backend: {backend}}}\n")
    loaded = loader.load_project(str(root / "wave.yaml"))
    written = {file.path: file for file in backends.render_all_files(loaded.plan)}
    for persona in loaded.plan.personas:
        place = f".wavegen/personas/{persona.name}/"
        handed = backends.files_for_agent(loaded.plan, persona)
        assert handed == tuple(file for path, file in written.items() if path.startswith(place))
        assert handed
        assert loaded.plan.persona_of(persona.fence) is persona
        assert loaded.plan.find_fence(f"persona-{persona.name}") is persona.fence
    assert loaded.plan.persona_of(loaded.plan.shells[0]) is None

    def whole(plan: Plan) -> Iterator[File]:
        raise AssertionError(plan.name)

    for module in ("project.plan_files", "project.flake", *(f"sandboxes.{name}" for name in ("bwrap", "landlock", "srt", "image", "compose")), "agents.codex"):
        monkeypatch.setattr(f"wavegen.backends.{module}.render", whole)
    for fence in loaded.plan.all_fences():
        assert wrappers.launch_of(loaded, fence, backend=loaded.plan.backend).rules


def test_the_filter_of_a_personas_fence_is_explained(tmp_path: Path) -> None:
    root = render_project(tmp_path, PERSONAS)
    assert call("seccomp", "explain", "-s", "persona-all", cwd=root).stdout == call("seccomp", "explain", "-s", "restricted", cwd=root).stdout != ""
    assert "there is no shell 'persona-none'" in call("seccomp", "explain", "-s", "persona-none", cwd=root).stderr


def test_what_the_page_on_python_names_is_there() -> None:
    import wavegen as package

    text = (ROOT / "docs/python.md").read_text("utf-8")
    named = text.partition("from wavegen import ")[2].partition("\n")[0].replace("# and", ",").replace(" ", "").split(",")
    assert sorted(name for name in named if name) == sorted(name for name in package.__all__ if name != "VERSION")
