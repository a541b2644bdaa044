"""Every line of docs/comparison.md, run by wavegen's own shell and by the other fences that are installed."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import SRT
from helpers import ROOT, call

pytestmark = pytest.mark.needs("bwrap", "git")

ROW = re.compile(
    r"^\| (?P<what>[^|]+) \| `(?P<command>[^`]+)` \| (?P<ours>yes|no) \| (?P<srt>yes|no) \| (?P<hozo>yes|no) \| (?P<wanted>yes|no) \|$", re.MULTILINE
)
ROWS = tuple(ROW.finditer((ROOT / "docs/comparison.md").read_text("utf-8")))
ALLOWED = "allowed.example.org"
CONNECT = """\
import socket, sys
with socket.socket(socket.AF_UNIX) as sock:
    sock.settimeout(3)
    sock.connect(sys.argv[1].replace("@", "\\0", 1))
"""
SETTINGS = '{"network": {"allowedDomains": ["%s"], "deniedDomains": []}, "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}'


@dataclass(frozen=True)
class Place:
    """A project between others, and a home with a key."""

    base: Path

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.base / "work/project"

    def says(self, fence: list[str], command: str) -> str:
        """Whether a command succeeds inside, in the table's words."""
        environment = os.environ | {"HOME": str(self.base / "home"), "CANARY": "canary"}
        environment.pop("XDG_STATE_HOME", None)
        done = subprocess.run(
            [*fence, "sh", "-c", command], cwd=self.project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
        return "yes" if done.returncode == 0 else "no"


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with (
        tempfile.TemporaryDirectory(prefix="wavegen-comparison-", dir="/var/tmp") as name,
        socket.socket(socket.AF_UNIX) as named,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        found = Place(Path(name).resolve())
        (found.base / "home/.ssh").mkdir(parents=True)
        (found.base / "home/.ssh/id_canary").write_text("canary\n")
        (found.base / "work/next").mkdir(parents=True)
        (found.base / "work/next/file").write_text("canary\n")
        found.project.mkdir()
        (found.project / "wave.yaml").write_text(f"metadata: {{name: comparison}}\nruntime: {{sandbox: {{default_allowed_domains: [{ALLOWED}]}}}}\n")
        (found.project / "connect.py").write_text(CONNECT)
        (found.project / ".home").write_text(str(found.base / "home"))
        (found.project / ".ipc").write_text(os.readlink("/proc/self/ns/ipc"))
        (found.base / "srt.json").write_text(SETTINGS % ALLOWED)
        subprocess.run(["git", "init", "--quiet", found.project], check=True)
        done = call("render", cwd=found.project)
        assert done.status == 0, done.output
        named.bind(str(found.base / "home/service.sock"))
        abstract.bind("\0service")
        for sock in (named, abstract):
            sock.listen(20)
        yield found


def started(fence: str, place: Place) -> list[str]:
    match fence:
        case "ours":
            return [".wavegen/bin/restricted", "--"]
        case "srt":
            words = [SRT, "--settings", str(place.base / "srt.json"), "--"]
        case _:
            words = [shutil.which("hozo") or "hozo", "--project", ".", "--network", "proxy", f"--allow-net={ALLOWED}:443", "--"]
    if fence == "hozo" and not shutil.which("hozo"):
        pytest.skip("hozo is not installed")
    return words


def test_the_table_is_there() -> None:
    assert len(ROWS) > 12
    assert [row["what"] for row in ROWS if row["ours"] != row["wanted"]] == ["A new `.envrc` can be planted"]


@pytest.mark.parametrize("fence", ["ours", pytest.param("srt", marks=pytest.mark.needs("srt")), "hozo"])
def test_each_line_is_so(place: Place, fence: str) -> None:
    words = started(fence, place)
    for made in (".envrc", ".git/hooks/post-commit"):
        (place.project / made).unlink(missing_ok=True)
    assert place.says(words, "true") == "yes"
    assert {row["what"]: place.says(words, row["command"]) for row in ROWS} == {row["what"]: row[fence] for row in ROWS}


def test_what_they_try_to_reach_is_there_without_a_fence(place: Place) -> None:
    reached = ("printenv", "cat ", "connect.py", "readlink")
    for row in ROWS:
        if any(word in row["command"] for word in reached):
            assert place.says([], row["command"]) == "yes", row["what"]
