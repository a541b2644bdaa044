"""What was looked at is what is mounted: a session that exchanges directories while another starts shows it nothing of the host.

The exchange is real and goes on all the time; whichever moment it hits, a start shows the project's own or is refused.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fence import Fence, name_of, users
from helpers import in_place_of_bwrap

pytestmark = pytest.mark.needs("bwrap")

_AT_FDCWD, _EXCHANGE = -100, 2
STARTS = 12
MANIFEST = "metadata: {name: exchange}\nruntime: {sandbox: {paths: [{path: ~/granted/deep, access: write, optional: true}]}}\n"


@contextmanager
def exchanging(one: Path, other: Path) -> Iterator[None]:
    """Two entries of the file system that change places all the time (renameat2(2), RENAME_EXCHANGE)."""
    libc, ends = ctypes.CDLL(None), threading.Event()
    names = (os.fsencode(one), os.fsencode(other))

    def run() -> None:
        while not ends.is_set():
            libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _EXCHANGE)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


@pytest.fixture(params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    made = Fence.create(MANIFEST, uid=request.param)
    (made.home / "canary").write_text("CANARY")
    (made.home / "granted/deep").mkdir(parents=True)
    made.own()
    yield made
    made.remove()


def without_descriptors(fence: Fence) -> list[str]:
    """What puts a bwrap in the place of the machine's that does not know --bind-fd."""
    text = Path("/usr/bin/bwrap").read_bytes()
    assert b"bind-fd" in text, "this machine's bwrap has no --bind-fd: both ways are the same here"
    older = fence.base / "bwrap"
    older.write_bytes(text.replace(b"bind-fd", b"bind-zz"))
    older.chmod(0o755)
    return [*in_place_of_bwrap(older)]


WHERE = {
    "a repository": (".git", "link"),
    "a repository below": ("x/.git", "link"),
    "settings of an editor": (".zed", "link"),
    "a directory above a repository": ("x", "link"),
}


@pytest.mark.parametrize("older", [False, True], ids=["by descriptor", "by path"])
@pytest.mark.parametrize("where", WHERE)
def test_a_directory_that_becomes_a_link_shows_nothing_of_the_home(fence: Fence, where: str, older: bool) -> None:
    if older and (fence.uid != os.getuid() or os.getuid() != 0):
        pytest.skip("another bwrap can be put in its place as root alone")
    path, name = WHERE[where]
    place, link = fence.project / path, fence.project / f"{path.rpartition('/')[0]}/{name}".lstrip("/")
    (fence.project / "x/.git").mkdir(parents=True)
    place.mkdir(exist_ok=True)
    (place / "own").write_text("own")
    link.symlink_to(fence.home)
    fence.own()
    before = without_descriptors(fence) if older else []
    outcomes = set()
    with exchanging(place, link):
        for _ in range(STARTS):
            argv = [*before, *fence.argv("default", ("sh", "-c", "cat .git/canary x/canary x/.git/canary .zed/canary; echo done"))]
            done = subprocess.run(argv, cwd=fence.project, env=fence.environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
            assert "CANARY" not in done.stdout
            assert done.returncode in (0, 125), done.stderr
            outcomes.add(done.returncode)
    assert outcomes


def test_a_bwrap_without_descriptors_starts_what_is_at_rest(fence: Fence) -> None:
    if fence.uid != os.getuid() or os.getuid() != 0:
        pytest.skip("another bwrap can be put in its place as root alone")
    argv = [*without_descriptors(fence), *fence.argv("default", ("echo", "inside"))]
    done = subprocess.run(argv, cwd=fence.project, env=fence.environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr


def test_what_was_mounted_by_its_path_is_compared(fence: Fence) -> None:
    """A bwrap that mounts something else than it was told: the command is not run."""
    if fence.uid != os.getuid() or os.getuid() != 0:
        pytest.skip("another bwrap can be put in its place as root alone")
    text = Path("/usr/bin/bwrap").read_bytes().replace(b"bind-fd", b"bind-zz")
    real, lying = fence.base / "real", fence.base / "bwrap"
    real.write_bytes(text)
    other = fence.base / "elsewhere"
    other.mkdir()
    lying.write_text(
        f"#!{sys.executable} -IS\n"
        "import os, sys\n"
        "at = sys.argv.index('--args') + 1\n"
        "words = os.read(int(sys.argv[at]), 1 << 20).split(b'\\0')[:-1]\n"
        f"words = [{os.fsencode(other)!r} if w == {os.fsencode(fence.project)!r} and words[n - 1] == b'--bind' else w for n, w in enumerate(words)]\n"
        f"rest = [os.fsencode(w) for w in sys.argv[1:at - 1]]\n"
        f"os.execv({str(real)!r}, [b'bwrap', *rest, *words, *[os.fsencode(w) for w in sys.argv[at + 1:]]])\n"
        "# bind-zz\n"
    )
    for program in (real, lying):
        program.chmod(0o755)
    argv = [*in_place_of_bwrap(lying), *fence.argv("default", ("touch", "ran"))]
    done = subprocess.run(argv, cwd=fence.project, env=fence.environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, (other / "ran").exists()) == (125, False), done.stderr
    assert "exchanged" in done.stderr
