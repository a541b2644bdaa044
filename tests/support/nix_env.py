"""Run the real nix, offline, on a flake as it is rendered.

The flake's only input is nixpkgs from GitHub. Nix takes a locked input from the store when the store
holds a path called ``source`` with the lock's narHash, and asks nobody. So: put the stub in
``tests/support/nixpkgs`` into the store, write its narHash into ``flake.lock``, leave ``flake.nix`` alone.

    env = NixEnv.create(tmp_path / "nix")                # raises NixUnavailableError with the reason
    pin_stub(project / "flake.lock", env.stub_nar_hash())
    env.run(["develop", "--command", "true"], cwd=project)
    env.run_pty(["develop"], cwd=project, feed=b"echo hi\nexit\n")

Everything but the store itself lives below the given directory. The store is the real one: /nix has to
be writable and no daemon used, because the stub's builds need the host's programs (``sandbox = false``).
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

STUB: Final = Path(__file__).parent / "nixpkgs"

NIX_CONFIG: Final = """\
experimental-features = nix-command flakes
build-users-group =
builders =
sandbox = false
substitute = false
substituters =
flake-registry =
warn-dirty = false
build-poll-interval = 1
"""

_LOCK: Final[Mapping[str, Any]] = {
    "nodes": {
        "nixpkgs": {
            "locked": {
                "lastModified": 1,
                "owner": "NixOS",
                "repo": "nixpkgs",
                "rev": "0" * 40,
                "type": "github",
            },
            "original": {
                "owner": "NixOS",
                "ref": "nixos-unstable",
                "repo": "nixpkgs",
                "type": "github",
            },
        },
        "root": {"inputs": {"nixpkgs": "nixpkgs"}},
    },
    "root": "root",
    "version": 7,
}

_nar_hashes: dict[tuple[Path, Path], str] = {}


class NixUnavailableError(Exception):
    """The real nix cannot be run here; the text says why."""


class PtyResult(NamedTuple):
    """How a command under a terminal ended (-N: signal N) and what was shown, with plain newlines."""

    status: int
    output: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NixEnv:
    """One nix binary with a private home, cache and temp directory below ``root``."""

    nix: Path
    root: Path

    @classmethod
    def create(cls, root: Path, nix: Path | None = None) -> NixEnv:
        """Make the directories. Without ``nix``: ``$WAVEGEN_TEST_NIX``, else the one on PATH."""
        found = nix or os.environ.get("WAVEGEN_TEST_NIX") or shutil.which("nix")
        if not found:
            raise NixUnavailableError("no nix on PATH")
        if not os.access("/nix" if Path("/nix").exists() else "/", os.W_OK):
            raise NixUnavailableError("/nix is not writable: these tests build without a daemon")
        env = cls(nix=Path(found).resolve(), root=root.resolve())
        for directory in (env.home, env.tmp, env.root / "conf"):
            directory.mkdir(parents=True, exist_ok=True)
        return env

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def tmp(self) -> Path:
        """TMPDIR: what nix and a shell hook leave behind shows up here."""
        return self.root / "tmp"

    def environ(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The whole environment of a command; nothing is inherited but what is named here."""
        return {
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "LOGNAME": "tester",
            "NIX_CONFIG": NIX_CONFIG,
            "NIX_CONF_DIR": str(self.root / "conf"),  # the host's nix.conf does not count
            "NIX_REMOTE": "local",  # neither a daemon nor, as a plain user on a fresh /nix, a store below HOME
            "PATH": f"{self.nix.parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "SHELL": "/bin/bash",
            "TERM": "dumb",  # no progress bar, no colours
            "TMPDIR": str(self.tmp),
            "USER": "tester",
            # The evaluation cache is keyed by flake and not by store, so it must not be shared.
            "XDG_CACHE_HOME": str(self.root / "cache"),
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "XDG_DATA_HOME": str(self.root / "data"),
            "XDG_STATE_HOME": str(self.root / "state"),
            **(extra or {}),
        }

    def stub_nar_hash(self, stub: Path = STUB) -> str:
        """Put the stub nixpkgs into the store (once per process) and give its narHash.

        Nix remembers below XDG_CACHE_HOME what a locked revision held: a second stub needs a second `NixEnv`.
        """
        key = (self.nix, stub)
        if key not in _nar_hashes:
            outputs = []
            for command in (["store", "add-path", "--name", "source"], ["hash", "path"]):
                done = self.run([*command, str(stub)], cwd=self.root)
                if done.returncode != 0:
                    raise NixUnavailableError(f"nix {' '.join(command)}: {done.stderr.strip()}")
                outputs.append(done.stdout.strip())
            _nar_hashes[key] = outputs[-1]
        return _nar_hashes[key]

    def run(
        self,
        args: Sequence[str],
        cwd: Path,
        *,
        timeout: float = 120,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
        program: str | Path | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run ``nix ARGS`` (or ``program ARGS``) without a terminal, in a session of its own.

        Raises `subprocess.TimeoutExpired` after killing that session.
        """
        argv = [str(program or self.nix), *args]
        with subprocess.Popen(
            argv,
            cwd=cwd,
            env=self.environ(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                stdout, stderr = process.communicate(stdin, timeout=timeout)
            except BaseException:
                _kill_session(process)
                raise
        return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)

    def run_pty(
        self,
        args: Sequence[str],
        cwd: Path,
        feed: bytes = b"",
        *,
        timeout: float = 120,
        settle: float = 0.4,
        env: Mapping[str, str] | None = None,
        program: str | Path | None = None,
    ) -> PtyResult:
        """Run ``nix ARGS`` (or ``program ARGS``) under a terminal of its own and type ``feed`` into it.

        The next line of ``feed`` is typed when the output has been still for ``settle`` seconds, so end it
        with what leaves the shell (``exit``, or ``\\x04`` for end of file). The output holds the echo of
        what was typed. Raises `subprocess.TimeoutExpired` after killing the terminal's session.
        """
        argv = [str(program or self.nix), *args]
        master, slave = os.openpty()
        try:
            # A session leader that opens a terminal gets it as its controlling terminal. Done by a shell
            # that then execs, because forking in Python is not safe in a process with threads.
            process = subprocess.Popen(
                ["/bin/sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(slave), *argv],
                cwd=cwd,
                env=self.environ(env),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                # `slave` stays open meanwhile, so the end is the process's and not an error of `master`.
                output = _converse(process, master, feed, timeout, settle)
            except BaseException:
                _kill_session(process)
                process.wait()
                raise
        finally:
            os.close(slave)
            os.close(master)
        text = output.decode("utf-8", "replace").replace("\r\n", "\n")
        return PtyResult(process.returncode, text)


def pin_stub(lock: Path, nar_hash: str) -> None:
    """Make ``lock`` name the stub: only nixpkgs' narHash is changed, a missing lock is written."""
    data = json.loads(lock.read_text("utf-8")) if lock.exists() else json.loads(json.dumps(_LOCK))
    data["nodes"]["nixpkgs"]["locked"]["narHash"] = nar_hash
    lock.write_text(json.dumps(data, indent=2, sort_keys=True) + "\n", "utf-8")


def _converse(process: subprocess.Popen[bytes], master: int, feed: bytes, timeout: float, settle: float) -> bytes:
    """Type ``feed`` line by line until ``process`` has ended, and give what the terminal showed."""
    lines = feed.splitlines(keepends=True)
    output = bytearray()
    deadline = time.monotonic() + timeout
    os.set_blocking(master, False)
    with selectors.DefaultSelector() as selector:
        selector.register(master, selectors.EVENT_READ)
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, timeout, bytes(output))
            if selector.select(settle if lines else 0.05):
                output += os.read(master, 65536)
            elif lines:
                os.write(master, lines.pop(0))
        while selector.select(0):
            output += os.read(master, 65536)
    return bytes(output)


def _kill_session(process: subprocess.Popen[Any]) -> None:
    """Kill every process of the session that ``process`` leads, and nothing else.

    ``process`` has not been waited for, so its id, which is the session's, cannot be anyone else's.
    """
    if process.returncode is not None:
        return
    for pid in _session_members(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _session_members(session: int) -> Iterator[int]:
    yield session
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            # The name in parentheses may hold anything; after it: state, parent, group, session.
            fields = (directory / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and int(directory.name) != session:
            yield int(directory.name)
