"""Engines for containers that belong to one run of the tests: a Docker daemon, and podman, each with places, images and cgroups of its own.

The daemon is process 1 of a process and mount namespace of its own. So whatever it starts ends with it, and so do its mounts; and it ends
when the tests do, however they end: a pipe whose writing end only they hold comes to its end. It listens on sockets of its own alone.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers import USER
from system_image import PATH, pack

AS_ROOT = () if os.geteuid() == 0 else ("sudo", "-n")
# Of the tests' users `USER` may use the daemon's socket, and the group of this one.
NOBODY = 65534
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
CGROUPS = "/sys/fs/cgroup"
# podman would raise them, which root may not everywhere.
LIMITS = 'default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]'

# $1: the daemon's directory, $2: its cgroup, $3 and $4: the owner of its socket, $5: what runs inside the namespaces. Standard input is
# what the tests' end is seen by.
# dockerd writes to /etc/docker, /run/docker and /run/containerd whatever one says: they are its own, on places that are made for it.
OUTSIDE = r"""
directory=$1 made=()
for place in /etc/docker /run/docker /run/containerd; do
  [ -d $place ] || { mkdir $place && made+=($place); }
done
unshare --mount --propagation private --pid --fork --kill-child=KILL --mount-proc bash -c "$5" inside "$@"
for _ in {1..100}; do
  find /sys/fs/cgroup -depth -type d -path "*/$2*" -exec rmdir {} + 2>/dev/null
  [ -n "$(find /sys/fs/cgroup -type d -path "*/$2*" -print -quit 2>/dev/null)" ] || break
  sleep 0.05
done
rm -rf --one-file-system "$directory"
for place in "${made[@]}"; do  # unless other tests have theirs on it, which it would take away
  grep -qs " $place " /proc/[0-9]*/mountinfo || rmdir $place
done
"""
INSIDE = r"""
directory=$1 cgroup=$2 owner=$3 group=$4
for place in /etc/docker /run/docker /run/containerd; do
  mkdir -p "$directory/$place"
  mount --bind "$directory/$place" $place
done
dockerd --config-file "$directory/daemon.json" --data-root "$directory/data" --exec-root "$directory/exec" --pidfile "$directory/pid" --group 0 \
  -H "unix://$directory/docker.sock" -H "unix://$directory/root.sock" --cgroup-parent "/$cgroup" --exec-opt native.cgroupdriver=cgroupfs \
  --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false --bridge=none --userland-proxy=false </dev/null >"$directory/log" 2>&1 &
daemon=$!
until [ -S "$directory/docker.sock" ] && [ -S "$directory/root.sock" ]; do
  kill -0 $daemon 2>/dev/null || exit 1
  sleep 0.02
done
chown "$owner:$group" "$directory/docker.sock"
# Nothing is ever written to the pipe: read ends with 1 at its end, and with more than 128 when the time is over.
while read -r -t 0.5 _ || [ $? -gt 128 ]; do
  kill -0 $daemon 2>/dev/null || exit 1
done
"""


@dataclass(frozen=True, slots=True)
class Engine:
    """A daemon that answers, and the client for it."""

    directory: Path
    """Of the daemon, owned by root; it is gone when the tests have ended."""
    client: str
    bin: Path
    """A directory for the PATH, with `docker` alone."""
    cgroup: str
    """The name of the cgroup, in every hierarchy, that its containers are below."""

    @property
    def socket(self) -> Path:
        """For root (or the user who runs the tests), `USER` and gid 65534."""
        return self.directory / "docker.sock"

    @property
    def root_socket(self) -> Path:
        """Of the same daemon, for root alone."""
        return self.directory / "root.sock"

    def environment(self, place: Path | None = None) -> dict[str, str]:
        """What leads a `docker` to this daemon (or to another socket), with the client first on the PATH and no settings of anyone's."""
        path = f"{self.bin}:{os.environ['PATH']}:{SBIN}"
        return {"PATH": path, "DOCKER_HOST": f"unix://{place or self.socket}", "DOCKER_CONFIG": str(self.bin / "settings")}

    def run(self, *words: str | Path, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None, **options: object) -> subprocess.CompletedProcess[str]:
        """The client, with these words, started by `prefix` (a setpriv, say). What it prints is text; its status is the caller's to look at."""
        return _run((*prefix, self.client, *words), {**os.environ, **self.environment(), **(env or {})}, options)

    def image(self, kind: str = "base") -> str:
        """The name of an image with the packages of system_image.PACKAGES[kind], imported when it is first asked for."""
        return _imported(self, kind, ("import", "--change", f"ENV PATH={PATH}"))

    def processes(self) -> tuple[int, ...]:
        """Of the host's processes those in cgroups of the daemon's containers."""
        found = set[int]()
        for place in cgroups(self.cgroup):
            with contextlib.suppress(OSError):
                found.update(map(int, Path(place, "cgroup.procs").read_text().split()))
        return tuple(sorted(found))


@dataclass(frozen=True, slots=True)
class Podman:
    """podman with storage and settings of its own, and runc."""

    directory: Path
    client: str
    bin: Path
    """A directory for the PATH, with `podman` alone: a script that says where everything is."""
    who: tuple[str, ...] = ()
    """What a command is started by to find this podman, and to be the user's whose it is: a mount namespace in which the system's
    settings, or its program, are these, as the launcher gives clients an environment of its own."""
    home: Path | None = None
    """The user's HOME, where it is not the caller's."""

    def environment(self) -> dict[str, str]:
        """The script first on the PATH, and the user's own places where it is a user's."""
        found = {"PATH": f"{self.bin}:{os.environ['PATH']}:{SBIN}", "PODMAN_IGNORE_CGROUPSV1_WARNING": "1"}
        if self.home:
            found |= {"HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home.parent / "runtime")}
            kinds = {"CONFIG": ".config", "CACHE": ".cache", "DATA": ".local/share", "STATE": ".local/state"}
            found |= {f"XDG_{kind}_HOME": str(self.home / place) for kind, place in kinds.items()}
        return found

    def run(self, *words: str | Path, prefix: Sequence[str] = (), env: Mapping[str, str] | None = None, **options: object) -> subprocess.CompletedProcess[str]:
        """As Engine.run."""
        return _run((*prefix, *self.who, self.client, *words), {**os.environ, **self.environment(), **(env or {})}, options)

    def image(self, kind: str = "base") -> str:
        """As Engine.image; the same files."""
        return f"localhost/{_imported(self, kind, ('import', '--change', f'ENV PATH={PATH}'))}"


def _run(argv: Sequence[str | Path], environment: Mapping[str, str], options: Mapping[str, object]) -> subprocess.CompletedProcess[str]:
    with_input = {} if "input" in options or "stdin" in options else {"stdin": subprocess.DEVNULL}
    return subprocess.run(
        tuple(map(str, argv)), env=environment, **{"capture_output": True, "text": True, "timeout": 120, "check": False, **with_input, **options}
    )  # type: ignore[call-overload,no-any-return]


@functools.cache
def _imported(engine: Engine | Podman, kind: str, words: tuple[str, ...]) -> str:
    name = f"wavegen-test:{kind}"
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        done = engine.run(*words, pack(kind, Path(place)), name)
    if done.returncode:
        raise RuntimeError(f"{engine.client} does not import {name}: {done.stderr}")
    return name


def cgroups(name: str) -> list[str]:
    """The cgroups whose path has that name (or begins one with it), in whatever hierarchies there are."""
    return [place for place, _, _ in os.walk(CGROUPS) if f"/{name}" in place]


@contextlib.contextmanager
def started(client: str) -> Iterator[Engine]:
    """A daemon that answers, until the context ends; then nothing of it is left: no process, mount, cgroup or file."""
    directory = Path(tempfile.mkdtemp(prefix="wavegen-docker-"))
    directory.chmod(0o755)
    found = shutil.which(client)
    if not found:
        raise FileNotFoundError(client)
    _program(directory / "bin/docker", f'exec {shlex.quote(found)} "$@"')
    (directory / "bin/settings").mkdir()
    (directory / "daemon.json").write_text("{}\n")
    engine = Engine(directory, found, directory / "bin", directory.name)
    owner = USER if not AS_ROOT else os.getuid()
    forgotten = tuple(word for name in os.environ if name.startswith("DOCKER_") for word in ("-u", name))
    keeper = subprocess.Popen(
        (
            *AS_ROOT, "env", *forgotten, f"PATH={os.environ['PATH']}:{SBIN}",
            "bash", "-c", OUTSIDE, "outside", directory, engine.cgroup, str(owner), str(NOBODY), INSIDE,
        ),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        _wait(lambda: _answers(engine.socket), keeper, directory / "log")
        yield engine
    finally:
        assert keeper.stdin
        keeper.stdin.close()
        keeper.wait(60)


# $0: a mount namespace, which is entered without another process, for the sake of signals.
IN_SPACE = """here=$PWD space=$0
exec nsenter --mount="$space" sh -c 'cd "$0" && exec "$@"' "$here" "$@"
"""


@contextlib.contextmanager
def podman() -> Iterator[Podman]:
    """podman with its own storage, until the context ends; then its containers are ended and its files are gone.

    But for what root's podman keeps in one place whatever one says: a cache of what registries have told, which is empty.
    """
    directory = Path(tempfile.mkdtemp(prefix="wavegen-podman-"))
    directory.chmod(0o755)
    found = shutil.which("podman")
    runc = shutil.which("runc", path=f"{os.environ['PATH']}:{SBIN}")
    if not found or not runc:
        raise FileNotFoundError("podman" if not found else "runc")
    _program(directory / "runc", f'exec {shlex.quote(runc)} --root {directory}/containers "$@"')
    own = {"tmp_dir": f"{directory}/tmp", "cgroup_manager": "cgroupfs", "events_logger": "file", "runtime": "runc"}
    lines = (
        "[containers]",
        LIMITS,
        "[engine]",
        *(f'{name} = "{value}"' for name, value in own.items()),
        "[engine.runtimes]",
        f'runc = ["{directory}/runc"]',
        "",
    )
    settings = directory / "etc"
    shutil.copytree("/etc/containers", settings)
    (settings / "containers.conf").write_text("\n".join(lines))
    (settings / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\ngraphroot = "{directory}/storage"\nrunroot = "{directory}/run"\n')
    space = ("unshare", "--mount", "--propagation", "private", "sh", "-ec", 'mount --bind "$0" /etc/containers; echo; read -r _', str(settings))
    holder = subprocess.Popen((*AS_ROOT, *space), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert holder.stdin
        assert holder.stdout
        if holder.stdout.read(1) != b"\n":
            raise RuntimeError("no mount namespace for podman's settings")
        program = Podman(directory, found, directory / "bin", (*AS_ROOT, "sh", "-c", IN_SPACE, f"/proc/{holder.pid}/ns/mnt"))
        yield program
        program.run("rm", "--all", "--force", "--time", "0")
    finally:
        holder.communicate()
        remove = 'for place in $(findmnt -rno TARGET | grep -F "$1/" | sort -r); do umount "$place"; done; rm -rf --one-file-system "$1"'
        subprocess.run((*AS_ROOT, "sh", "-c", remove, "remove", directory), check=True)
        for place in sorted(cgroups("libpod_parent"), reverse=True):
            subprocess.run((*AS_ROOT, "rmdir", place), stderr=subprocess.DEVNULL, check=False)


# $0: a mount namespace, in which the user has a name and further ids; it is entered without another process, for the sake of signals.
AS_USER = f"""
here=$PWD space=$0
exec nsenter --mount="$space" sh -c 'cd "$0" && exec setpriv --reuid={USER} --regid={USER} --clear-groups "$@"' "$here" "$@"
"""


@contextlib.contextmanager
def rootless() -> Iterator[Podman]:
    """podman of a user, until the context ends: of `USER`, who gets a name and further ids in a mount namespace alone, or of the caller."""
    user = USER if os.geteuid() == 0 else os.geteuid()
    directory = Path(tempfile.mkdtemp(prefix="wavegen-podman-"))
    directory.chmod(0o755)
    found = shutil.which("podman")
    runc = shutil.which("runc", path=f"{os.environ['PATH']}:{SBIN}")
    if not found or not runc:
        raise FileNotFoundError("podman" if not found else "runc")
    mine = directory / "mine"
    for place in (mine, mine / "home", mine / "runtime"):
        place.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(place, USER, USER)
    lines = {"passwd": f"wavegen-test:x:{USER}:{USER}::{mine}/home:/bin/sh\n", "group": f"wavegen-test:x:{USER}:\n"}
    for name in ("passwd", "group"):
        (directory / name).write_text(Path("/etc", name).read_text() + lines[name])
    for name in ("subuid", "subgid"):
        (directory / name).write_text("wavegen-test:1000000:65536\n")
    (directory / "containers.conf").write_text(f"[containers]\n{LIMITS}\n")
    (directory / "real").touch()
    real = str(directory / "real") if user == USER else found
    words = [
        "env", f"CONTAINERS_CONF={directory}/containers.conf", "PODMAN_IGNORE_CGROUPSV1_WARNING=1", f"XDG_RUNTIME_DIR={mine}/runtime", real,
        "--root", f"{mine}/storage", "--runroot", f"{mine}/run", "--tmpdir", f"{mine}/tmp", "--storage-driver", "overlay", "--cgroup-manager", "cgroupfs",
        "--events-backend", "file", "--runtime", runc, "--log-level", "error",
    ]  # fmt: skip
    _program(directory / "bin/podman", f'exec {shlex.join(words)} "$@"')
    bind = 'for name in passwd group subuid subgid; do [ -e /etc/$name ] || exit 1; mount --bind "$0/$name" /etc/$name; done; mount --bind "$1" "$0/real"; mount --bind "$0/bin/podman" "$1"; echo; read -r _'
    namespace = (
        ("unshare", "--mount", "--propagation", "private", "bash", "-ec", bind, str(directory), found) if user == USER else ("sh", "-c", "echo; read -r _")
    )
    holder = subprocess.Popen(namespace, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    who = ("sh", "-c", AS_USER, f"/proc/{holder.pid}/ns/mnt") if user == USER else ()
    program = Podman(directory, str(directory / "bin/podman"), directory / "bin", who, mine / "home")
    try:
        assert holder.stdin
        assert holder.stdout
        if holder.stdout.read(1) != b"\n":
            raise RuntimeError("no names for the user: /etc/subuid and /etc/subgid must exist")
        yield program
    finally:
        program.run("rm", "--all", "--force", "--time", "0", cwd="/")
        remove = ("rm", "-rf", "--one-file-system", directory)
        if user != USER:
            program.run("unshare", *remove)  # files of the further ids
        holder.kill()
        holder.communicate()
        for process in _of(str(directory), user):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        subprocess.run(remove, check=True)


def _of(place: str, user: int) -> Iterator[int]:
    """The user's processes that know a directory: podman leaves one that keeps its namespaces."""
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            known = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
            if place.encode() in known and process.stat().st_uid in (user, *range(1000000, 1065536)):
                yield int(process.name)


def _program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def _answers(place: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as ask:
        ask.settimeout(5)
        try:
            ask.connect(str(place))
            ask.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return ask.recv(64).startswith(b"HTTP/1.0 200")
        except OSError:
            return False


def _wait(ready: Callable[[], bool], keeper: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(600):
        if ready():
            return
        if keeper.poll() is not None:
            break
        time.sleep(0.05)
    shown = log.read_text("utf-8", "replace") if log.exists() else "it ended, and its log with it"
    raise RuntimeError(f"dockerd does not answer:\n{shown[-3000:]}")
