"""Calling the real command line, and looking at what it did to a directory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from wavegen.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
MINIMAL = "metadata: {name: demo}\n"
WAVEGEN = (sys.executable, "-P", "-m", "wavegen")
USER = 20_000 + os.getpid() % 30_000
"""A uid that owns nothing on the machine, and that no other run of tests has: the kernel bounds the processes of a user, not of a run."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended and what it wrote."""

    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams, one after the other."""
        return self.stdout + self.stderr


def wavegen(*args: str, cwd: Path, env: Mapping[str, str] | None = None, prefix: Sequence[str] = (), timeout: float = 60) -> Result:
    """The command line as a process of its own, started by `prefix` where that is given."""
    done = subprocess.run(
        [*prefix, *WAVEGEN, *args],
        cwd=cwd,
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def until(what: Callable[[], object], seconds: float = 60) -> bool:
    """Whether something becomes true. It is waited for longer than any machine needs: no test depends on how fast one is."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.01)
    return bool(what())


def command_lines() -> dict[int, str]:
    found = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            found[int(place.name)] = (place / "cmdline").read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
    return found


def read_so_far() -> int:
    """Bytes that this process has read, by read(2) and its like (proc(5), rchar)."""
    return int(Path("/proc/self/io").read_text("ascii").split()[1])


LINEAR = 10
"""Less than that is the growth of what is linear; more that of what is quadratic."""


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times as long it takes for four times the size: 4 where it is linear, 16 where it is quadratic, on fast machines and slow ones."""
    few, many = (min(_seconds(work, number) for _ in range(5)) for number in (size, 4 * size))
    return many / few


def _seconds(work: Callable[[int], object], size: int) -> float:
    began = time.process_time()
    work(size)
    return time.process_time() - began


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The test's environment, in which `python -m wavegen` is this checkout also where it is not installed."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **(extra or {})}


def masks(status: str) -> dict[str, int]:
    """Signals by what is done with them, of lines of /proc/PID/status.

    Without 32 and 33: they are the C library's own, nobody can set them, and some are started with one of them ignored.
    """
    return {name: int(value, 16) & ~(3 << 31) for name, value in (line.split(":") for line in status.splitlines())}


# What wavegen makes in places that all use: canaries of verify, learn's files, and what a wrapper's process has. Directories of the tests
# themselves have a word first.
_MADE = re.compile(r"\.?wavegen-(?:verify-|learn-|[0-9a-f]{16}\b|(?P<process>[0-9]+)-)")


def left_in(*places: str, canaries: bool = True) -> set[str]:
    """Paths that wavegen has left there, and nobody uses: other tests run at the same time, so the files of living processes do not count.

    Nor do canaries, of which it cannot be told whose they are, where the test starts no `verify`.
    """
    found = set()
    for place in filter(os.path.isdir, places):
        for name in os.listdir(place):
            made = _MADE.match(name)
            if made and (canaries or made["process"]) and not (made["process"] and os.path.exists(f"/proc/{made['process']}")):
                found.add(f"{place}/{name}")
    return found


def gone(look: Callable[[], set[str]], before: set[str], seconds: float = 60) -> set[str]:
    """What is left after some time that was not there before."""
    until = time.monotonic() + seconds
    left = look() - before
    while left and time.monotonic() < until:
        time.sleep(0.05)
        left &= look()  # not what another test has made in the meantime
    return left


def call(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> Result:
    """The same command line in this process: 200 ms faster. Whatever it does not expect is raised here."""
    with contextlib.chdir(cwd):
        done = CliRunner(env=env).invoke(cli, list(args), catch_exceptions=False, prog_name="wavegen")
    return Result(done.exit_code, done.stdout, done.stderr)


def project(tmp_path: Path, manifest: str | bytes, overlay: str | None = None) -> Path:
    """A project directory that holds a manifest and nothing else."""
    root = tmp_path / "project"
    root.mkdir(exist_ok=True)
    data = manifest.encode() if isinstance(manifest, str) else manifest
    (root / "wave.yaml").write_bytes(data)
    if overlay is not None:
        (root / "wave.sandbox.yaml").write_text(overlay, "utf-8")
    return root


def render_project(tmp_path: Path, manifest: str | bytes = MINIMAL, *args: str, overlay: str | None = None) -> Path:
    """A project directory in which `wavegen render` was run, and did not fail."""
    root = project(tmp_path, manifest, overlay)
    done = call("render", *args, cwd=root)
    assert done.status == 0, done.output
    return root


@contextlib.contextmanager
def edited(root: Path, name: str, old: str, new: str) -> Iterator[None]:
    """A rendered file with another text for a while, as if that had been rendered: the lock lists its digest."""
    path, lock = root / name, root / ".wavegen/lock.json"
    text, listed = path.read_text(), lock.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    before, after = (hashlib.sha256(each.encode()).hexdigest() for each in (text, text.replace(old, new)))
    lock.write_text(listed.replace(before, after))
    try:
        yield
    finally:
        path.write_text(text)
        lock.write_text(listed)


def snapshot(root: Path) -> dict[str, tuple[str, bytes | str]]:
    """Everything below a directory, by name: mode and content, or where a link leads."""
    found: dict[str, tuple[str, bytes | str]] = {}
    for path in sorted(root.rglob("*")):
        mode = path.lstat().st_mode
        content: bytes | str = ""
        if stat.S_ISLNK(mode):
            content = os.readlink(path)
        elif stat.S_ISREG(mode):
            content = path.read_bytes() if os.access(path, os.R_OK) else "unreadable"
        found[str(path.relative_to(root))] = (stat.filemode(mode), content)
    return found


def times(root: Path) -> dict[str, tuple[int, int]]:
    """Inode and time of last change of every file below a directory: equal only where nothing was written."""
    return {str(path.relative_to(root)): ((s := path.lstat()).st_ino, s.st_mtime_ns) for path in sorted(root.rglob("*"))}


def rendered(root: Path) -> dict[str, bytes]:
    """The rendered files of a project."""
    names = [path for path in (root / "flake.nix", root / "flake.lock", *(root / ".wavegen").rglob("*")) if path.is_file()]
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(names)}


def without_privileges() -> tuple[str, ...]:
    """What to start a command with so that permissions of files hold for it, also where the caller is root.

    It keeps its user, and with it the way to a Python in a private home; root's power over files is a capability.
    """
    return ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--") if os.geteuid() == 0 else ()


def in_place_of_bwrap(program: Path) -> list[str]:
    """As `in_place_of`; bwrap must be there."""
    assert shutil.which("bwrap")
    return in_place_of("bwrap", program)


def in_place_of(name: str, program: Path) -> list[str]:
    """What to put before a command so that it finds this program where the system has one of the name: in a mount namespace of its own.

    Nothing where the system has none: no test depends on what else is installed.
    """
    real = shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if real is None:
        return []
    own = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-r", "-m"]
    return [*own, "sh", "-c", 'mount --bind "$1" "$2" && shift 2 && exec "$@"', "sh", str(program), os.path.realpath(real)]
