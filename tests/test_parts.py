"""What a wrapper sources: the files beside itself, all of them, and whatever the caller's variables and directory say."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence import Fence, users
from helpers import ROOT

pytestmark = pytest.mark.needs("bwrap", "bash")

MANIFEST = """\
metadata: {name: parts}
runtime:
  sandbox:
    limits: {pids: 64}
    shells:
      filtered: {network: filtered, domains: [good.example]}
      granted: {paths: [{path: vendor, access: read, optional: true}]}
"""
SHELLS = {"default": "direct.sh", "filtered": "launched.sh", "granted": "granted.sh"}
EVIL = "printf 'on the host\\n' >&2; main() { exec \"$@\"; }\n"


@pytest.fixture
def fence() -> Iterator[Fence]:
    made = Fence.create(MANIFEST, uid=users()[-1])
    yield made
    made.remove()


def sourced(wrapper: str) -> list[str]:
    (names,) = re.findall(r"^for wg_part in (.*); do$", wrapper, re.MULTILINE)
    return str(names).split()


def refused(fence: Fence, shell: str = "default", **more: str) -> str:
    """What a shell says that does not start; nothing was run."""
    done = fence.enter("touch", "ran", shell=shell, env=fence.environment(**more))
    assert (done.returncode, done.stdout) == (125, "")
    assert not (fence.project / "ran").exists()
    return done.stderr


INSIDE = ("agent.sh", "awaited.sh", "contained.sh")
"""What no script sources: they are run inside."""


def text(fence: Fence, shell: str) -> str:
    return (fence.project / ".wavegen/bin" / shell).read_text("utf-8")


def test_a_wrapper_sources_what_its_shell_needs_and_its_main_last(fence: Fence) -> None:
    for shell, part in SHELLS.items():
        names = sourced(text(fence, shell))
        assert (part in names, "bounds.sh" in names, names[-1]) == (True, True, "bubblewrap.sh")
    contained = {shell: sourced((fence.project / f".wavegen/docker/run-{shell}").read_text("utf-8")) for shell in SHELLS}
    assert all(names[-1] == "container.sh" and not {"direct.sh", "bubblewrap.sh", "bounds.sh"} & set(names) for names in contained.values())
    every = {name for shell in SHELLS for name in (*sourced(text(fence, shell)), *contained[shell])}
    # What unfenced personas source besides, and what is run inside.
    assert every | {"unfenced.sh", *INSIDE} == {file.name for file in (ROOT / "wavegen/runtime").glob("*.sh")}


def test_who_is_ended_may_have_ended_by_itself() -> None:
    """bash says on the caller's standard error that a process is gone: of no signal that a script sends is that news."""
    sent = [line for file in (ROOT / "wavegen/runtime").glob("*.sh") for line in file.read_text("utf-8").splitlines() if re.search(r"\bkill -|\bkill \$", line)]
    assert len(sent) >= 5
    assert [line for line in sent if len(re.findall(r"\bkill [-$]", line)) != len(re.findall(r"\bkill [^;|]*? 2>/dev/null", line))] == []


def test_each_file_is_small_and_says_what_it_is_for() -> None:
    for file in (ROOT / "wavegen/runtime").glob("*.sh"):
        lines = file.read_text("utf-8").splitlines()
        assert len(lines) < 400
        assert lines[0].startswith("# shellcheck shell=bash disable=") or file.name in INSIDE
        assert "ourced by" in " ".join(line for line in lines[:8] if line.startswith("# ")) or file.name in INSIDE


@pytest.mark.parametrize("shell", SHELLS)
def test_without_one_of_its_files_a_shell_does_not_start(fence: Fence, shell: str) -> None:
    names = sourced(text(fence, shell))
    for name in names:
        part = fence.project / ".wavegen/runtime" / name
        whole = part.read_text("utf-8")
        begin = whole.index("() {")
        for left in (None, "", whole[: begin + 4], whole[: whole.rindex("\n}\n") + 3]):
            part.unlink() if left is None else part.write_text(left, "utf-8")
            assert f".wavegen/bin/{shell}: {name} (run wavegen render, " in refused(fence, shell)
            part.write_text(whole, "utf-8")
    (fence.project / ".wavegen/runtime").rename(fence.project / "elsewhere")
    assert refused(fence, shell).endswith(f": {names[0]} (run wavegen render, and start the shell from .wavegen/bin)\n")


def hostile(fence: Fence, place: Path) -> Path:
    """A directory as a command could have made it."""
    (place / "runtime").mkdir(parents=True)
    for name in (*SHELLS.values(), "bounds.sh", "fence.sh", "guards.sh", "places.sh", "shim.sh"):
        (place / "runtime" / name).write_text(f"{EVIL}wg_read={name}\n", "utf-8")
    fence.own()
    return place


def wrapper(fence: Fence, name: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Start a shell by this name of its wrapper."""
    argv = [name if word.endswith("bin/default") else word for word in fence.argv("default", ("echo", "inside"))]
    return subprocess.run(argv, cwd=cwd, env=fence.environment(**more), capture_output=True, text=True, timeout=60)


def test_what_is_sourced_is_beside_the_wrapper_however_it_is_named(fence: Fence) -> None:
    evil = hostile(fence, fence.project / "evil")
    bin_ = fence.project / ".wavegen/bin"
    links = {evil / "bin/one": bin_ / "default", evil / "bin/two": Path("one"), evil / "bin/three": Path("../there/default")}
    (evil / "bin").mkdir()
    (evil / "there").symlink_to(bin_)
    for link, target in links.items():
        link.symlink_to(target)
    for cwd in (evil, evil / "bin", bin_, fence.project, fence.home):
        for name in (
            str(bin_ / "default"),
            os.path.relpath(bin_ / "default", cwd),
            *(str(link) for link in links),
            *(os.path.relpath(link, cwd) for link in links),
        ):
            done = wrapper(fence, name if "/" in name else f"./{name}", cwd, CDPATH=str(evil), wg_runtime=str(evil / "runtime"), wg_file=str(evil / "bin/x"))
            where = fence.project in (cwd, *cwd.parents) or "evil" not in name
            assert "on the host" not in done.stderr
            # From a link elsewhere the project is the one that the caller stands in.
            assert done.stdout == "inside\n" or (not where and done.returncode == 125), (cwd, name, done.stderr)


@pytest.mark.parametrize("named", ["default", "one"])
def test_a_wrapper_that_bash_is_handed_by_its_bare_name_finds_them(fence: Fence, named: str) -> None:
    evil = hostile(fence, fence.project / "evil")
    bin_ = fence.project / ".wavegen/bin"
    (evil / "bin").mkdir()
    (evil / "bin/one").symlink_to(bin_ / "default")
    directory = bin_ if named == "default" else evil / "bin"
    argv = fence.argv("default", ("echo", "inside"))
    place = next(i for i, word in enumerate(argv) if word.endswith("bin/default"))
    argv[place : place + 1] = ["/bin/bash", "-p", named]
    for cwd, path in ((directory, "/usr/bin:/bin"), (evil / "runtime", f"{directory}:/usr/bin:/bin")):
        done = subprocess.run(argv, cwd=cwd, env=fence.environment(PATH=path), capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


def test_a_link_that_cannot_be_read_is_no_reason_to_look_elsewhere(fence: Fence) -> None:
    """There is no readlink: what lies beside the link, or where the caller stands, is not taken instead."""
    evil = hostile(fence, fence.project / "evil")
    (evil / "bin").mkdir()
    changed = text(fence, "default").replace("$(readlink -f", "$(false")
    assert changed != text(fence, "default")
    (fence.project / ".wavegen/bin/default").write_text(changed, "utf-8")
    (evil / "bin/one").symlink_to(fence.project / ".wavegen/bin/default")
    for name, cwd in ((str(evil / "bin/one"), evil / "bin"), ("./one", evil / "bin"), ("bin/one", evil)):
        done = wrapper(fence, name, cwd)
        assert (done.returncode, done.stdout, "on the host" in done.stderr) == (125, "", False)
        assert "is not beside" in done.stderr


def settings(fence: Fence, shell: str) -> list[str]:
    """Every variable that a wrapper or what it sources has."""
    files = (fence.project / ".wavegen/bin" / shell, *(fence.project / ".wavegen/runtime").glob("*.sh"))
    return sorted({name for file in files for name in re.findall(r"\bwg_[a-z_]+", file.read_text("utf-8"))})


@pytest.mark.parametrize("value", ["1", "", "/", "warn"])
@pytest.mark.parametrize("shell", SHELLS)
def test_no_variable_of_the_environment_decides(fence: Fence, shell: str, value: str) -> None:
    names = settings(fence, shell)
    assert {"wg_proxied", "wg_fallback", "wg_with_paths", "wg_filter_name", "wg_cpus", "wg_runtime", "wg_at"} <= set(names)
    shown = fence.enter("--print", "true", shell=shell)
    assert shown.returncode == 0, shown.stderr
    told = fence.enter("--print", "true", shell=shell, env=fence.environment(**dict.fromkeys(names, value)))
    assert (told.returncode, told.stdout) == (0, shown.stdout), told.stderr
    look = ("sh", "-c", "env | grep -v ^_= | sort; grep -E 'Seccomp:|NoNew|Cap' /proc/self/status; ulimit -a")
    plain, odd = (fence.enter(*look, shell=shell, env=fence.environment(**more)) for more in ({}, dict.fromkeys(names, value)))
    assert plain.returncode == 0
    assert odd.stdout == plain.stdout
