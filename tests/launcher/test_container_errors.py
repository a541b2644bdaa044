"""What a container's script says where an engine, its daemon, the image or the machine is not as it must be: one line, and nothing is run or left.

Real where this machine can be so; else by a program that answers as such an engine does.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from contained import Box, run_directories
from engine import Engine
from fence import users
from helpers import USER, edited, until

pytestmark = pytest.mark.needs("bash", "user")

MANIFEST = "metadata: {name: x}\nruntime: {sandbox: {docker_image: 'no/such:image', limits: {pids: 99, memory: 1g, cpus: 1}, shells: {n: {network: none}, unbounded: {network: none}}}}\n"
INFO = (
    "name=seccomp,profile=builtin",
    "name=cgroupns",
    "cpus=2",
    "system=linux Debian GNU/Linux 12 (bookworm)",
    "MemoryLimit=true",
    "PidsLimit=true",
    "CPUCfsQuota=true",
)
# Answers `info`, `image inspect`, `container inspect`; `run` writes its words, and ends with 0.
STAND_IN = r"""#!/bin/sh
here={here}
case $1 in
  info) {info} ;;
  image) {image} ;;
  container) echo "Error: No such container: $4" >&2; exit 1 ;;
  rm) exit 1 ;;
  run) {run} ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """A project, and a directory for the PATH with the programs of a machine that has no other engine."""

    box: Box
    bin: Path

    def stand_in(self, name: str = "docker", *, info: str | None = None, image: str = "exit 0", run: str = "") -> None:
        """An engine that says this."""
        run = run or 'printf "%s\\n" "$@" >"$here/ran"; exit 0'
        if info is None:
            info = said(*INFO)
        path = self.bin / name
        path.write_text(STAND_IN.format(here=shlex.quote(str(self.bin)), info=info, image=image, run=run))
        path.chmod(0o755)

    def start(self, *words: str, before: tuple[str, ...] = (), shell: str = "n", **variables: str) -> subprocess.CompletedProcess[str]:
        """The script, on that machine."""
        with self.open(*words, before=before, shell=shell, **variables) as process:
            shown, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess(process.args, process.returncode, shown, err)

    def open(self, *words: str, before: tuple[str, ...] = (), shell: str = "n", **variables: str) -> subprocess.Popen[str]:
        """The same while it runs. In a mount namespace where the system has no engine: the system's programs come first."""
        hide = 'for name in docker podman; do for place in /usr/bin /usr/local/bin /bin; do [ ! -e $place/$name ] || mount --bind /dev/null $place/$name 2>/dev/null; done; done; exec "$@"'
        own = ("unshare", "--mount", *(() if os.getuid() == 0 else ("--map-root-user",)), "sh", "-c", hide, "sh")
        environment = {
            "HOME": str(self.box.home),
            "PATH": f"{self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "LANG": "C.UTF-8",
            "TERM": "xterm",
            **variables,
        }
        process = subprocess.Popen(
            [*own, *before, *self.box.argv(shell, words or ("true",))],
            cwd=self.box.project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        self.box.started.append(process.pid)
        return process

    def ran(self) -> list[str]:
        """The words that a stand-in was told to run."""
        path = self.bin / "ran"
        return path.read_text().splitlines() if path.exists() else []

    def left(self) -> list[str]:
        """Run directories."""
        return list(map(str, run_directories(self.box.home, self.box.started)))


def said(*lines: str, status: int = 0, stream: int = 1) -> str:
    """Shell code that prints lines and ends."""
    return f"printf '%s\\n' {shlex.join(lines)} >&{stream}; exit {status}"


@pytest.fixture(scope="module")
def project() -> Iterator[Box]:
    with tempfile.TemporaryDirectory() as nowhere:
        box = Box.made(Engine(Path(nowhere), "docker", Path(nowhere), "none"), MANIFEST, caller=users()[-1])
        yield box
        box.remove()


@pytest.fixture
def machine(project: Box) -> Iterator[Machine]:
    place = Path(tempfile.mkdtemp(prefix="wavegen-machine-"))
    place.chmod(0o777)
    one = Machine(project, place)
    yield one
    assert until(lambda: not one.left()), one.left()
    subprocess.run(["rm", "-rf", str(place)], check=True)


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """One line that says what is wrong and, in brackets, what to do; status 125."""
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, lines
    assert re.fullmatch(r"wavegen: error: .+ \(.+\)", lines[0]), lines
    for part in parts:
        assert part in lines[0], lines


def test_without_an_engine_it_says_what_to_install(machine: Machine) -> None:
    refused(machine.start(), "docker is not on the PATH", "(install it: apt install docker.io, or WAVEGEN_CONTAINER=podman for podman)")
    refused(machine.start(WAVEGEN_CONTAINER="podman"), "podman is not on the PATH", "(install it: apt install podman)")


@pytest.mark.parametrize("name", ["other", "Docker", "/usr/bin/docker", "docker podman", "$(x)"])
def test_another_engine_is_refused(machine: Machine, name: str) -> None:
    refused(machine.start(WAVEGEN_CONTAINER=name), f"WAVEGEN_CONTAINER={name} is neither docker nor podman (set it to one of them)")


REMOTE = "docker's daemon is remote"


@pytest.mark.parametrize("host", ["tcp://192.0.2.1:2375", "ssh://somebody@host", "https://x", "npipe:////./pipe/docker_engine", "fd://"])
def test_a_daemon_elsewhere_is_refused(machine: Machine, host: str) -> None:
    machine.stand_in()
    refused(machine.start(DOCKER_HOST=host), f"{REMOTE} ({host.partition(':')[0]})", "DOCKER_HOST=unix:///var/run/docker.sock")
    # What the user's settings name, where they hold the endpoints of contexts by the digests of their names.
    meta = machine.box.home / ".docker/contexts/meta" / hashlib.sha256(b"away").hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": "away", "Endpoints": {"docker": {"Host": host}}}))
    (machine.box.home / ".docker/config.json").write_text('{"currentContext": "away"}')
    try:
        refused(machine.start(), f"{REMOTE} ({host.partition(':')[0]})")
    finally:
        subprocess.run(["rm", "-r", str(machine.box.home / ".docker")], check=True)
    assert machine.ran() == []


def test_a_daemon_that_is_not_there(engine_client: str, machine: Machine) -> None:
    """By the real client; its words differ from version to version."""
    shutil.copy(shutil.which(engine_client) or engine_client, machine.bin / "docker-real")
    machine.stand_in(info='shift; exec "$here/docker-real" info "$@"', image='exec "$here/docker-real" "$@"')
    refused(
        machine.start(DOCKER_HOST="unix:///no/such/socket"),
        "docker's daemon does not answer at unix:///no/such/socket (start it: systemctl start docker; or WAVEGEN_CONTAINER=podman",
    )
    dead = machine.bin / "dead.sock"
    with_nobody = "import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])"
    subprocess.run(["python3", "-c", with_nobody, str(dead)], check=True)
    dead.chmod(0o777)
    refused(machine.start(DOCKER_HOST=f"unix://{dead}"), f"docker's daemon does not answer at unix://{dead} (start it")


@pytest.fixture
def engine_client() -> str:
    from conftest import DOCKER, broken

    if why := broken("docker"):
        pytest.skip(why)
    return DOCKER


@pytest.mark.needs("docker")
def test_a_daemon_that_this_user_may_not_ask(engine: Engine, machine: Machine) -> None:
    if os.getuid() != 0:
        pytest.skip("all sockets are the caller's")
    shutil.copy(engine.client, machine.bin / "docker-real")
    machine.stand_in(info='shift; exec "$here/docker-real" info "$@"', image='exec "$here/docker-real" "$@"')
    done = machine.start(DOCKER_HOST=f"unix://{engine.root_socket}")
    refused(
        done,
        f"this user may not use docker's daemon at unix://{engine.root_socket} (WAVEGEN_CONTAINER=podman needs no daemon; or join the group docker, whose members are as good as root)",
    )


@pytest.mark.needs("docker")
def test_an_image_that_is_not_here_is_not_fetched(engine: Engine) -> None:
    for image, remedy in (
        ("no/such:image", "(fetch it: docker pull no/such:image; or docker load)"),
        ("", "(build it: docker build -t wavegen/x:latest .wavegen/docker)"),
    ):
        setting = f"docker_image: '{image}', " if image else ""
        box = Box.made(engine, f"metadata: {{name: x}}\nruntime: {{sandbox: {{{setting}shells: {{n: {{network: none}}}}}}}}\n", caller=users()[-1])
        try:
            refused(box.enter("true"), f"the image {image or 'wavegen/x:latest'} is not here {remedy}")
            assert not box.left()
        finally:
            box.remove()


@pytest.mark.needs("podman")
def test_an_image_that_podman_does_not_have(podman: object) -> None:
    box = Box.made(podman, "metadata: {name: x}\nruntime: {sandbox: {docker_image: 'no/such:image', shells: {n: {network: none}}}}\n", caller=os.getuid())  # type: ignore[arg-type]
    try:
        refused(box.enter("true"), "the image no/such:image is not here (fetch it: podman pull no/such:image; or podman load)")
    finally:
        box.remove()


def changed(old: str, new: str) -> tuple[str, ...]:
    """What a daemon answers, but for one line."""
    return tuple(new if line.startswith(old) else line for line in INFO)


@pytest.mark.parametrize(
    ("info", "parts"),
    [
        ((*INFO, "name=rootless"), ("docker runs rootless here", "set WAVEGEN_CONTAINER=podman")),
        ((*INFO, "name=userns"), ("remaps user ids (userns-remap)", "WAVEGEN_CONTAINER_USERNS=host")),
        ((*INFO, "name=selinux"), ("SELinux denies containers access to the project", "WAVEGEN_CONTAINER_LABEL=disable", "chcon -R -t container_file_t")),
        (
            changed("system=", "system=linux Docker Desktop"),
            ("Docker Desktop runs containers in a virtual machine", "(start it by compose: cd .wavegen/docker && docker compose run --rm n)"),
        ),
        (changed("system=", "system=windows Windows Server 2022"), ("docker runs containers of windows Windows Server 2022 (switch it to Linux containers)",)),
        (
            changed("MemoryLimit", "MemoryLimit=false"),
            ("cannot bound memory (enable these cgroup controllers in the kernel, see the warnings of `docker info`)",),
        ),
        (changed("PidsLimit", "PidsLimit=false"), ("cannot bound processes",)),
        (changed("CPUCfsQuota", "CPUCfsQuota=false"), ("cannot bound processors",)),
    ],
    ids=["rootless", "userns", "selinux", "desktop", "windows", "memory", "pids", "cpus"],
)
def test_a_daemon_that_cannot_hold_it_is_refused(machine: Machine, info: tuple[str, ...], parts: tuple[str, ...]) -> None:
    machine.stand_in(info=said(*info))
    refused(machine.start(), *parts)
    assert machine.ran() == []


@pytest.mark.parametrize(
    ("info", "variables", "words"),
    [
        ((*INFO, "name=userns"), {"WAVEGEN_CONTAINER_USERNS": "host"}, ["--userns", "host"]),
        ((*INFO, "name=selinux"), {"WAVEGEN_CONTAINER_LABEL": "disable"}, ["--security-opt", "label=disable"]),
        (INFO, {}, ["--cpus", "1.00000"]),
    ],
    ids=["userns", "selinux", "cpus"],
)
def test_what_is_left_out_on_request_reaches_the_engine(machine: Machine, info: tuple[str, ...], variables: dict[str, str], words: list[str]) -> None:
    """The daemon's answer comes late, and is still obeyed."""
    machine.stand_in(info=said(*info))
    machine.start(**variables)
    ran = machine.ran()
    at = [number for number, word in enumerate(ran) if ran[number : number + 2] == words]
    assert at, ran
    assert at[0] < ran.index("no/such:image")


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (said("Error: unknown flag / podman", status=125, stream=2), "is podman (set WAVEGEN_CONTAINER=podman)"),
        (said('template: info:1: function "x" not define.', status=1, stream=2), "is podman"),
        (said("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", status=1, stream=2), "does not answer"),
        (said("Got permission denied while trying to connect to the Docker daemon socket", status=1, stream=2), "may not use docker's daemon"),
        (said("something else", "and more", status=1, stream=2), "gives no information: something else (try: docker info)"),
        ("exit 3", "docker info"),
        ("kill -KILL $$", "docker info"),
        (said("Error \033[31mred\033[0m", status=1, stream=2), "gives no information"),
    ],
    ids=["podman", "template", "daemon", "permission", "other", "silent", "killed", "colours"],
)
def test_what_else_an_engine_answers_is_passed_on(machine: Machine, answer: str, part: str) -> None:
    machine.stand_in(info=answer)
    done = machine.start()
    refused(done, part)
    assert "\033" not in done.stderr
    assert machine.ran() == []


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (said("Error: No such image: no/such:image", status=1, stream=2), "the image no/such:image is not here"),
        (said("Error response from daemon: no such object", status=1, stream=2), "is not here"),
        (said("Error: image not known", status=125, stream=2), "is not here"),
        (
            said("a disk that is full", status=1, stream=2),
            "docker says of the image no/such:image: a disk that is full (try: docker image inspect no/such:image)",
        ),
        ("exit 1", "docker says of the image no/such:image"),
        (said("variable=PATH=/nix/store/x/bin:/bin"), None),
        (said("volume=/data", "volume=/a,b"), None),
    ],
    ids=["docker", "object", "podman", "other", "silent", "nix", "volume"],
)
def test_what_an_engine_says_of_the_image(machine: Machine, answer: str, part: str | None) -> None:
    machine.stand_in(image=answer)
    done = machine.start()
    if part:
        refused(done, part)
        assert machine.ran() == []
    else:
        assert machine.ran(), done.stderr
        if "volume" in answer:
            assert [word for word in machine.ran() if word.startswith("type=tmpfs")] == [
                f'type=tmpfs,"target={place}",tmpfs-size={2 << 30}' for place in ("/data", "/a,b")
            ]


@pytest.mark.parametrize("which", ["info", "image"])
def test_an_engine_that_hangs_is_said_in_time_and_can_be_interrupted(machine: Machine, which: str) -> None:
    machine.stand_in(**{which: "exec sleep 300"})  # type: ignore[arg-type]
    with machine.open() as process:
        try:
            time.sleep(0.7)
            assert process.poll() is None
            os.killpg(process.pid, signal.SIGINT)
            process.wait(5)
            assert process.returncode not in (0, 125)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert until(lambda: not machine.left()), machine.left()


@pytest.mark.parametrize("which", ["info", "image"])
def test_an_engine_that_hangs_for_long_is_given_up(machine: Machine, which: str) -> None:
    machine.stand_in(**{which: 'echo $$ >>"$here/asked"; exec sleep 300'})  # type: ignore[arg-type]
    with edited(machine.box.project, ".wavegen/launcher/engine.py", "PATIENCE = 30.0", "PATIENCE = 1.0"):
        done = machine.start()
    refused(done, "docker does not answer (see whether it runs: docker info)")
    # Nor does the client that was asked wait on.
    assert until(lambda: not Path(f"/proc/{(machine.bin / 'asked').read_text().strip()}").exists())


def test_an_engine_that_dies_in_the_middle(machine: Machine) -> None:
    """Its client ends with a message and 125, which is no status of the command's; where the command was started it is what the client says."""
    machine.stand_in(run="echo 'docker: Error response from daemon: EOF.' >&2; exit 125")
    done = machine.start()
    assert (done.returncode, done.stdout) == (125, "")
    lines = done.stderr.splitlines()
    assert lines == ["docker: Error response from daemon: EOF.", "wavegen: error: the container did not start the command (see its message above)"]
    machine.stand_in(run="exit 0")
    done = machine.start()
    assert done.returncode == 125
    assert done.stderr.splitlines() == ["wavegen: error: the container did not start the command (see its message above)"]


@pytest.mark.parametrize("name", ["nothing", "default.json"])
def test_a_filter_that_is_missing(machine: Machine, name: str) -> None:
    if name == "nothing":
        machine.stand_in(image=said("Error: No such image: x", status=1, stream=2))
        refused(machine.start("--print"), "is not here")
        return
    machine.stand_in()
    text = (machine.box.project / ".wavegen/seccomp/default.json").read_text()
    with edited(machine.box.project, ".wavegen/seccomp/default.json", text, ""):
        refused(machine.start(), ".wavegen/seccomp/default.json is missing (run wavegen render)")


def test_options_that_are_wrong(machine: Machine) -> None:
    machine.stand_in()
    for words, part in (
        (("--no-such",), "unknown option --no-such"),
        (("--artifacts",), "--artifacts needs a directory"),
        (("--output", ""), "--output needs a directory"),
        (("--report", "99"), "--report needs the number of an open descriptor above 2"),
        (("--project", "/no/such"), "/no/such is not a directory"),
    ):
        refused(machine.start(*words), part)


def test_no_owner_but_a_user_and_no_engine_of_the_projects(machine: Machine) -> None:
    """A program that a command could have put there is none."""
    box = machine.box
    planted = box.project / "bin"
    planted.mkdir(exist_ok=True)
    (planted / "docker").write_text("#!/bin/sh\ntouch ran\n")
    (planted / "docker").chmod(0o755)
    try:
        refused(machine.start(PATH=f"{planted}:/usr/bin:/bin"), "docker is not on the PATH")
        assert not (box.project / "ran").exists()
    finally:
        subprocess.run(["rm", "-r", str(planted)], check=True)
    assert USER
