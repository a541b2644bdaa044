"""The engines that the tests start are their own: nobody else's daemon is asked, and nothing of them is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from engine import AS_ROOT, NOBODY, Engine, Podman, cgroups
from helpers import ROOT, USER, until
from system_image import PACKAGES

DOCKER = pytest.mark.needs("docker")
PODMAN = pytest.mark.needs("podman")
SHUT = ("--rm", "--network", "none", "--pull=never")
AS_USER = ("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
# Starts a daemon and a container that does not end by itself, says so, and waits.
HOLDS = """
import sys
sys.path[:0] = [{tests!r}, {tests!r} + "/support"]
from conftest import DOCKER
from engine import started
with started(DOCKER) as engine:
    done = engine.run("run", "--detach", "--network", "none", engine.image("bare"), "sleep", "987654")
    print(engine.directory, len(engine.processes()), done.returncode, done.stderr, flush=True)
    sys.stdin.read()
"""


def processes(words: str) -> list[str]:
    """The command lines with these words, of processes that are no zombies."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if words in line and int(place.name) != os.getpid():
            found.append(line)
    return found


@DOCKER
@pytest.mark.parametrize("end", ["left", "killed"])
def test_nothing_of_a_daemon_is_left_however_the_tests_end(end: str) -> None:
    command = (sys.executable, "-c", HOLDS.format(tests=str(ROOT / "tests")))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin
        assert holder.stdout
        place, inside, status, *error = holder.stdout.readline().split()
        assert (inside, status, error) == ("1", "0", [])
        name = os.path.basename(place)
        assert processes(place)
        assert processes("sleep 987654")
        assert cgroups(name)
        if end == "killed":
            holder.send_signal(signal.SIGKILL)
        holder.stdin.close()
        holder.wait(30)
    until(lambda: not (os.path.exists(place) or cgroups(name) or processes(place)))
    assert not os.path.exists(place)
    assert cgroups(name) == []
    assert processes(place) == []
    assert processes("sleep 987654") == []
    assert name not in Path("/proc/self/mountinfo").read_text()


@DOCKER
def test_the_daemon_is_at_its_own_sockets_alone(engine: Engine) -> None:
    mine = engine.run("info", "--format", "{{.ID}} {{.DockerRootDir}}")
    assert mine.stdout.split()[1:] == [str(engine.directory / "data")], mine.stderr
    usual = engine.run("info", "--format", "{{.ID}}", env={"DOCKER_HOST": "unix:///var/run/docker.sock"})
    assert mine.stdout.split()[0] not in usual.stdout
    listening = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if line.endswith(".sock")}
    assert {str(engine.socket), str(engine.root_socket)} <= listening
    assert not [port for port in (2375, 2376) if f":{port:04X} " in Path("/proc/net/tcp").read_text()]
    assert str(engine.directory) not in Path("/proc/self/mountinfo").read_text()


@DOCKER
def test_the_client_that_a_path_leads_to_asks_this_daemon(engine: Engine) -> None:
    done = subprocess.run(("docker", "info", "--format", "{{.DockerRootDir}}"), env={**os.environ, **engine.environment()}, capture_output=True, text=True)
    assert done.stdout.strip() == str(engine.directory / "data"), done.stderr
    assert sorted(path.name for path in engine.bin.iterdir()) == ["docker", "settings"]


@DOCKER
@pytest.mark.needs("user")
@pytest.mark.skipif(bool(AS_ROOT), reason="the sockets are the caller's where that is a user")
@pytest.mark.parametrize("who", [AS_USER, AS_NOBODY], ids=["user", "nobody"])
def test_a_user_may_ask_at_one_socket_and_not_at_the_other(engine: Engine, who: Sequence[str]) -> None:
    asked = engine.run("run", *SHUT, "--user", "65534:65534", engine.image("bare"), "id", "-u", prefix=who)
    assert (asked.returncode, asked.stdout) == (0, "65534\n"), asked.stderr
    refused = engine.run("info", prefix=who, env=engine.environment(engine.root_socket))
    assert refused.returncode == 1
    assert "permission denied while trying to connect" in refused.stdout + refused.stderr
    stranger = engine.run("info", prefix=("setpriv", "--reuid=23457", "--regid=23457", "--clear-groups"))
    assert "permission denied while trying to connect" in stranger.stdout + stranger.stderr


HAS = {"base": ("python3", "perl", "git", "bash", "curl", "awk", "ps", "grep", "find"), "perl": ("perl", "bash", "grep", "awk"), "bare": ()}
ALL = sorted({name for names in HAS.values() for name in names})


def check(engine: Engine | Podman, kind: str) -> None:
    """The image's programs start, and it has no other of those."""
    script = f"for name in {' '.join(ALL)}; do command -v $name >/dev/null && echo $name; done; id -u >&2; test -L /bin && test -d /tmp"
    done = engine.run("run", *SHUT, "--read-only", "--user", "23456:23456", engine.image(kind), "/bin/sh", "-c", script)
    assert (done.returncode, sorted(done.stdout.split()), done.stderr) == (0, sorted(HAS[kind]), "23456\n")
    start = {
        "base": "python3 -I -S -c 'import ctypes, json, select, socket, sqlite3, ssl, subprocess' && perl -T -e 'use Socket; use IO::Socket::UNIX; print 7' && git --version && bash -c 'ps -e' && curl --version && awk 1 </dev/null && find /etc/ssl/certs/ca-certificates.crt && setpriv --version",
        "perl": "perl -T -e 'use Socket; socketpair(A, B, AF_UNIX, SOCK_SEQPACKET, 0) or die; print 7' && bash -c 'exit 0'",
        "bare": "ls / && cat /etc/passwd",
    }[kind]
    ran = engine.run("run", *SHUT, engine.image(kind), "/bin/sh", "-c", start)
    assert ran.returncode == 0, ran.stderr


@DOCKER
@pytest.mark.parametrize("kind", PACKAGES)
def test_an_image_has_what_it_is_for(engine: Engine, kind: str) -> None:
    check(engine, kind)


@PODMAN
@pytest.mark.parametrize("kind", ["base", "bare"])
def test_podman_runs_the_same_image(podman: Podman, kind: str) -> None:
    check(podman, kind)


@PODMAN
def test_podmans_places_are_its_own(podman: Podman) -> None:
    shown = json.loads(podman.run("info", "--format", "json").stdout)
    assert shown["store"]["graphRoot"] == str(podman.directory / "storage")
    assert shown["store"]["runRoot"] == str(podman.directory / "run")
    done = subprocess.run(
        (*podman.who, "podman", "images", "--format", "{{.Repository}}:{{.Tag}}"), env={**os.environ, **podman.environment()}, capture_output=True, text=True
    )
    assert set(done.stdout.split()) <= {f"localhost/wavegen-test:{kind}" for kind in PACKAGES}


@pytest.mark.needs("podman-rootless")
def test_podman_without_root_is_a_users(rootless: Podman, tmp_path: Path) -> None:
    shared = rootless.home
    assert shared
    shown = rootless.run("info", "--format", "{{.Host.Security.Rootless}} {{.Store.GraphRoot}}")
    assert shown.stdout.split() == ["true", str(rootless.directory / "mine/storage")], shown.stderr
    done = rootless.run(
        "run", *SHUT, "--userns", "keep-id", "--volume", f"{shared}:{shared}", "--workdir", shared, rootless.image("bare"), "sh", "-c", "id -u; echo x >made",
    )  # fmt: skip
    user = USER if os.geteuid() == 0 else os.geteuid()
    assert (done.returncode, done.stdout) == (0, f"{user}\n"), done.stderr
    assert (shared / "made").stat().st_uid == user
    plain = subprocess.run(
        (*rootless.who, "sh", "-c", "pwd; id -u; command -v podman"), cwd="/usr", env={**os.environ, **rootless.environment()}, capture_output=True, text=True
    )
    assert plain.stdout.split() == ["/usr", str(user), str(rootless.bin / "podman")], plain.stderr


@DOCKER
@pytest.mark.needs("docker-compose")
def test_compose_runs_a_service_of_the_image(engine: Engine, tmp_path: Path) -> None:
    service = {"image": engine.image("bare"), "network_mode": "none", "command": ["sh", "-c", "echo from a service"]}
    (tmp_path / "compose.yaml").write_text(json.dumps({"version": "3.8", "services": {"shell": service}}))
    done = subprocess.run(
        ("sh", "-c", 'if command -v docker-compose >/dev/null; then exec docker-compose "$@"; else exec docker compose "$@"; fi', "sh", "up", "--no-color"),
        cwd=tmp_path,
        env={**os.environ, **engine.environment()},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "from a service" in done.stdout, done.stderr
    assert done.returncode == 0
