"""What tools on the host run or follow is protected where it exists, named where it is new, and both come from one table."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from helpers import environment, render_project, wavegen

from wavegen.launcher.audit import table
from wavegen.launcher.followed import KEPT_IN_PLACE, ROWS
from wavegen.policy import defaults
from wavegen.policy.model import Access

PROTECTED = tuple(pattern for row in ROWS for pattern in row[2])


def test_whatever_is_protected_is_named_by_the_audit_too() -> None:
    named = {pattern for row in table.ROWS for pattern in row[2]}
    guards = {rule.path.tail: rule for rule in defaults.GUARDS}
    for pattern in PROTECTED:
        assert pattern in named
        assert guards[pattern.removesuffix("/**")].access is Access.READ
        assert "*" not in pattern.removesuffix("/**")
    assert all(guards[name].access is Access.WRITE for name in KEPT_IN_PLACE)


@pytest.mark.parametrize(
    "path",
    [".hg/hgrc", ".hg/hgrc-not-shared", ".jj/repo/config.toml", ".sl/config", "opencode.json", ".github/hooks", ".kiro/hooks", ".pi/extensions", ".factory",
     ".junie", ".claude-plugin", ".envrc.local", "hie.yaml", ".vscode", ".git/config"],
)  # fmt: skip
def test_what_runs_by_itself_is_protected(path: str) -> None:
    assert path in {rule.path.tail for rule in defaults.GUARDS}


@pytest.mark.parametrize(
    ("path", "severity"),
    [(".bsp/sbt.json", "high"), ("hie.yaml", "high"), ("a/jupyter_server_config.py", "high"), (".pdbrc", "high"), (".envrc.local", "high"),
     ("pixi.toml", "high"), (".flox/env/manifest.toml", "high"), ("gunicorn.conf.py", "high"), ("Session.vim", "high"), (".junie/mcp/mcp.json", "high"),
     (".trae/mcp.json", "high"), (".claude-plugin/plugin.json", "high"), (".gitpod.yml", "high"), (".replit", "high"), ("Guardfile", "medium"),
     ("Snakefile", "medium"), ("conanfile.py", "medium"), ("Podfile", "medium"), (".github/hooks/x.json", "high"), (".github/x.json", "low"),
     (".kiro/hooks/x.kiro.hook", "high"), (".kiro/specs/x.md", "medium"), (".clinerules/hooks/PreToolUse", "high"), (".clinerules/x.md", "medium"),
     ("sub/.hg/hgrc", "critical"), (".jj/repo/config.toml", "critical"), (".jj/repo/store/git_target", "high"), (".sl/config", "critical"),
     (".qwen/settings.json", "high"), (".augment/settings.json", "high"), (".grok/settings.json", "high")],
)  # fmt: skip
def test_what_is_new_is_named(path: str, severity: str, tmp_path: Path) -> None:
    from audit_ground import Ground

    ground = Ground(tmp_path)
    ground.enter()
    ground.put(path)
    ground.put("x/repo/config.toml")  # only part of a path
    assert ground.severities() == {path: severity}


def shell(root: Path, env: dict[str, str], script: str) -> subprocess.CompletedProcess[str]:
    """Run in the project's `default` shell."""
    return subprocess.run((root / ".wavegen/bin/default", "sh", "-c", script), cwd=root, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "home").mkdir()
    return environment({"HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path / "state"), "HGUSER": "a"})


def look_ends(tmp_path: Path) -> None:
    """Wait until the look that a shell left behind has ended: it alone holds the lock."""
    import fcntl

    until = time.monotonic() + 60
    time.sleep(0.5)
    while time.monotonic() < until:
        for lock in (tmp_path / "state/wavegen").glob("*/audit.lock"):
            with lock.open("r+") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
            return
        time.sleep(0.1)


@pytest.mark.needs("bwrap")
@pytest.mark.needs("hg")
def test_no_hook_of_mercurial_is_planted_and_a_new_repository_is_named(tmp_path: Path, env: dict[str, str]) -> None:
    subprocess.run(("hg", "init", tmp_path / "project"), env=env, check=True)
    root = render_project(tmp_path)
    assert (root / ".hg/hgrc").read_text() == ""
    planted = tmp_path / "planted"
    hook = f"printf '[hooks]\\npre-status = touch {planted}\\n'"
    for script in (f"{hook} >>.hg/hgrc", f"{hook} >.hg/hgrc-not-shared", "mv .hg other", "rm -f .hg/hgrc", "echo share-safe >.hg/requires", "mv x .hg/hgrc"):
        assert shell(root, env, f"echo >x; {script}").returncode != 0, script
    assert shell(root, env, "echo a >a && hg add a && hg commit -qm one && hg log").returncode == 0
    subprocess.run(("hg", "status"), cwd=root, env=env, check=True, capture_output=True)
    assert not planted.exists()
    look_ends(tmp_path)
    assert shell(root, env, "true").stderr == ""
    assert shell(root, env, f"mkdir sub && cd sub && hg init && {hook} >.hg/hgrc && mkdir ../.grok && echo >../.grok/settings.json").returncode == 0
    look_ends(tmp_path)
    found = wavegen("audit", cwd=root, env=env)
    assert "sub/.hg/hgrc" in found.stdout
    assert shell(root, env, "true").stderr == (
        "wavegen: audit: 3 things the host would run or follow: sub/.hg/hgrc, .grok/settings.json and 1 more (wavegen audit lists them)\n"
    )
    look_ends(tmp_path)
    assert shell(root, env, "true").stderr == ""
    assert os.path.exists(root / ".grok")


@pytest.mark.needs("bwrap")
def test_what_a_repository_brings_is_read_only_and_what_agents_write_is_not(tmp_path: Path, env: dict[str, str]) -> None:
    root = render_project(tmp_path)
    for pattern in PROTECTED:
        file = root / pattern.replace("/**", "/held")
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.write_text("before")
    (root / ".kiro/specs").mkdir()
    tries = "; ".join(f"echo after 2>/dev/null >>{pattern.replace('/**', '/held')}" for pattern in PROTECTED)
    done = shell(root, env, f"{tries}; mv .kiro away; mv .jj away; echo x >.kiro/specs/x && echo x >.jj/x && echo done")
    assert done.stdout == "done\n", done.stderr
    for pattern in PROTECTED:
        assert (root / pattern.replace("/**", "/held")).read_text() == "before", pattern
