"""A shell as a container, by an engine of the tests' own: what it holds, what it passes on, how it ends, and what it leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from contained import Box
from engine import Engine, Podman, cgroups
from fence import PYTHON, name_of, users
from helpers import USER, command_lines, snapshot, until
from stand_in import Server, web
from system_image import pack

from wavegen import Sandbox

MANIFEST = """\
metadata: {name: contained}
runtime:
  sandbox:
    backend: docker
    docker_image: "{image}"
    default_allowed_domains: [good.example.com]
    env_passthrough: [TOKEN_A, TOKEN_B, TOKEN_C]
    deny_read_paths: [secret, keys]
    limits: {pids: 64, memory: 256m, cpus: 1.5, tmp: 8m}
    paths:
      - {path: "~/granted", access: read}
      - {path: "~/given", access: write}
    shells:
      n: {network: none}
adapters:
  python: {binary: python3}
personas:
  runner: {adapter: python, sandbox: {shell: n}}
  open: {adapter: python}
"""
pytestmark = pytest.mark.needs("docker", "user")


def filled(box: Box) -> Box:
    """A repository, what is hidden, what is granted."""
    for name in ("granted", "given"):
        (box.home / name).mkdir()
    (box.home / "granted/file").write_text("granted")
    (box.home / "unseen").write_text("SECRET")
    box.write("secret", "SECRET")
    box.write("keys/key", "SECRET")
    git = ["git", "-C", str(box.project), "-c", "safe.directory=*", "-c", "user.name=n", "-c", "user.email=e", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "wave.yaml"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    assert box.render().returncode == 0  # which writes .git/commondir
    box.own()
    if os.getuid() == 0:
        subprocess.run(["chown", "-R", f"{USER}:{USER}", str(box.home / "given")], check=True)
    return box


@pytest.fixture(scope="module", params=users(), ids=name_of)
def box(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Box]:
    made = filled(Box.made(engine, MANIFEST, caller=request.param))
    yield made
    assert until(lambda: not made.left()), made.left()
    made.remove()


@pytest.fixture(scope="module")
def one(engine: Engine) -> Iterator[Box]:
    """As a user alone, where who calls makes no difference."""
    made = filled(Box.made(engine, MANIFEST, caller=users()[-1]))
    yield made
    assert until(lambda: not made.left()), made.left()
    made.remove()


@pytest.fixture(scope="module")
def own(engine: Engine) -> Iterator[Box]:
    """As whoever runs the tests, for what happens in their process."""
    made = filled(Box.made(engine, MANIFEST, caller=os.getuid()))
    yield made
    assert until(lambda: not made.left()), made.left()
    made.remove()


# --- what it holds

FACTS = r"""
import json, os, stat
def text(path, mode="r"):
    try:
        with open(path, mode) as stream: return stream.read()
    except OSError as error: return error.strerror
def attempt(what, *words):
    try: what(*words); return "done"
    except OSError as error: return error.strerror
def write(path):
    with open(path, "a") as stream: stream.write("x")
def make(path):
    with open(path, "x") as stream: stream.write("x")
def limit(*names):
    for name in names:
        found = text("/sys/fs/cgroup/" + name).split()
        if found and found[0] not in ("No", "Permission"): return found
status = dict(line.split(":\t", 1) for line in text("/proc/self/status").splitlines())
first = dict(line.split(":\t", 1) for line in text("/proc/1/status").splitlines())
home = os.environ["HOME"]
facts = {
    "status": {name: status[name].strip() for name in ("CapEff", "CapBnd", "CapPrm", "CapAmb", "NoNewPrivs", "Seccomp")},
    "first": {name: first[name].strip() for name in ("CapEff", "CapBnd", "Uid", "Gid")},
    "init": text("/proc/1/comm").strip(),
    "ids": [os.getresuid(), os.getresgid(), os.getgroups()],
    "environ": text("/proc/1/environ").split("\0")[:-1], "own": dict(os.environ),
    "pids": limit("pids/pids.max", "pids.max"), "memory": limit("memory/memory.limit_in_bytes", "memory.max"),
    "swap": limit("memory/memory.memsw.limit_in_bytes", "memory.swap.max"),
    "cpus": limit("cpu/cpu.cfs_quota_us", "cpu.max"),
    "sizes": {path: os.statvfs(path).f_blocks * os.statvfs(path).f_frsize for path in ("/tmp", "/var/tmp", "/run", "/dev/shm")},
    "flags": {line.split()[4]: line.split()[5] for line in text("/proc/self/mountinfo").splitlines()},
    "cwd": os.getcwd(), "fds": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + name)),
    "held": {name: attempt(write, name) for name in ("wave.yaml", "flake.nix", "flake.lock", ".wavegen/plan.json", ".wavegen/docker/run-n", ".git/config", ".git/commondir", "/etc/passwd", "/usr/bin/env", home + "/granted/file")},
    "made": {name: attempt(make, name) for name in (".wavegen/new", ".git/hooks/post-commit", "/new", "/etc/new", "/run/wavegen/new", home + "/granted/new", "/sys/fs/cgroup/new", "/proc/sys/kernel/core_pattern")},
    "moved": {name: attempt(os.rename, name, name + ".moved") for name in (".git", ".git/hooks", ".wavegen", "wave.yaml")},
    "secret": [text("secret"), os.listdir("keys"), os.path.exists(home + "/unseen"), os.listdir(home)],
    "writable": {name: attempt(make, name) for name in ("made", home + "/kept", home + "/given/made", "/tmp/made", "/dev/shm/made", "/var/tmp/made")},
    "granted": text(home + "/granted/file"),
    "sockets": [name for name in ("/run/docker.sock", "/var/run/docker.sock") if os.path.exists(name)],
    "devices": sorted(os.listdir("/dev")),
    "limits": __import__("resource").getrlimit(4),
    "network": os.listdir("/sys/class/net"),
    "hostname": os.uname().nodename,
}
for where in ("/tmp", home, "."):
    program = os.path.join(where, "program")
    with open(program, "w") as stream: stream.write("#!/bin/sh\nexit 7\n")
    os.chmod(program, 0o755)
    facts.setdefault("run", {})[where] = os.spawnv(os.P_WAIT, program, [program])
print(json.dumps(facts))
"""
HOSTS = {
    "SECRET_OF_THE_HOST": "sesame",
    "HTTP_PROXY": "http://user:sesame@proxy:1",
    "TOKEN_A": "value-of-a $x '\n\u00e9",
    "TOKEN_C": "",
    "LD_PRELOAD": "",
    "DOCKER_X": "sesame",
}


@pytest.fixture(scope="module")
def facts(box: Box) -> dict[str, Any]:
    found = box.python(FACTS, shell="n", env={**box.environment(), **HOSTS})
    assert isinstance(found, dict)
    return found


def test_the_process_has_no_rights(facts: dict[str, Any]) -> None:
    zero = "0" * 16
    assert facts["status"] == {"CapEff": zero, "CapBnd": zero, "CapPrm": zero, "CapAmb": zero, "NoNewPrivs": "1", "Seccomp": "2"}
    uid = USER if os.getuid() == 0 else os.getuid()
    assert facts["ids"] == [[uid] * 3, [uid] * 3, [uid]]
    assert facts["init"] in ("docker-init", "tini")
    assert facts["first"] == {"CapEff": zero, "CapBnd": zero, "Uid": "\t".join([str(uid)] * 4), "Gid": "\t".join([str(uid)] * 4)}
    assert facts["sockets"] == []
    assert facts["limits"] == [1, 1]
    assert (facts["network"], facts["hostname"], facts["fds"]) == (["lo"], "localhost", [0, 1, 2])


def test_the_bounds_are_the_manifests(facts: dict[str, Any]) -> None:
    assert facts["pids"] == ["64"]
    assert facts["memory"] == [str(256 << 20)]
    assert facts["swap"] in ([str(256 << 20)], ["0"])
    assert facts["cpus"] in (["150000"], ["150000", "100000"])
    assert facts["sizes"] == dict.fromkeys(("/tmp", "/var/tmp", "/run", "/dev/shm"), 8 << 20)


def test_a_bound_of_more_processors_than_there_are_is_all_of_them(one: Box) -> None:
    """An engine refuses more."""
    done = one.enter("--print", shell="default", env={"XDG_STATE_HOME": str(one.home / "elsewhere")})
    words = done.stdout.splitlines()
    assert words[words.index("--cpus") + 1] == "1.50000"
    text = (one.project / "wave.yaml").read_text()
    one.write("wave.yaml", text.replace("cpus: 1.5", "cpus: 4096"))
    try:
        assert one.render().returncode == 0
        done = one.enter(*reads("cpu/cpu.cfs_quota_us", "cpu.max"))
    finally:
        one.write("wave.yaml", text)
        one.render()
    assert done.stdout.split()[0] == str(100000 * (os.cpu_count() or 0)), done.stderr


def reads(*names: str) -> tuple[str, ...]:
    """A command that prints a file of the control group, whichever version that is of."""
    return ("sh", "-c", "cd /sys/fs/cgroup; cat " + " ".join(names) + " 2>/dev/null; :")


def test_programs_run_where_builds_put_them(facts: dict[str, Any], box: Box) -> None:
    assert facts["run"] == {"/tmp": 7, str(box.home): 7, ".": 7}
    for place in ("/tmp", "/var/tmp", "/run"):
        assert {"nosuid", "nodev"} <= set(facts["flags"][place].split(",")), place
        assert "noexec" not in facts["flags"][place].split(","), place


def test_what_is_to_be_read_only_is(facts: dict[str, Any]) -> None:
    done = {name: said for kind in ("held", "made", "moved") for name, said in facts[kind].items() if said == "done"}
    assert done == {}
    assert set(facts["moved"].values()) == {"Device or resource busy"}
    flags = facts["flags"]
    assert [
        name for name in ("/", "/run/wavegen", "/sys", "/proc/sys", "/etc/hosts", "/etc/resolv.conf", "/etc/hostname") if "ro" not in flags[name].split(",")
    ] == []


def test_what_is_to_be_written_is_and_stays(facts: dict[str, Any], box: Box) -> None:
    assert set(facts["writable"].values()) == {"done"}
    assert facts["granted"] == "granted"
    for path in (
        box.project / "made",
        box.home / "given/made",
        next(box.home.glob(".local/state/wavegen/*/n/*/kept"), Path()),
        next(box.home.glob(".local/state/wavegen/*/n/*/*/kept"), Path()),
    ):
        assert path == Path() or path.stat().st_uid == (USER if os.getuid() == 0 else os.getuid())
    again = box.enter("sh", "-c", "ls ~/kept /tmp/made")
    assert again.stdout.split() == [str(box.home / "kept")], again.stderr


def test_what_is_hidden_is(facts: dict[str, Any]) -> None:
    text, keys, unseen, home = facts["secret"]
    assert (text, keys, unseen) == ("Permission denied", [], False)
    assert sorted(home) == [".zshrc", "given", "granted"]


def test_variables_are_those_that_are_let_in(facts: dict[str, Any], box: Box) -> None:
    own = facts["own"]
    assert own["TOKEN_A"] == HOSTS["TOKEN_A"]
    assert own["TOKEN_C"] == ""
    assert own["HOME"] == str(box.home)
    assert set(own) <= {
        "HOME", "LANG", "PATH", "PWD", "SANDBOX_ACTIVE", "SHELL", "TEMP", "TEMPDIR", "TERM", "TMP", "TMPDIR", "TOKEN_A", "TOKEN_C", "WAVEGEN_SHELL", "_", "SHLVL", "OLDPWD",
    }  # fmt: skip
    assert "sesame" not in str(facts)
    assert facts["environ"] == []  # of the first process, which is outside of what Landlock lets the command look at


def test_no_value_of_a_variable_stands_on_a_command_line(box: Box) -> None:
    """Of the client, the script, the watchdog, the daemon's children and what is inside; and the first process inside knows no more."""
    env = {**HOSTS, "TOKEN_B": "value-of-b"}
    for shell in ("n", "restricted"):
        with box.open("sh", "-c", "echo up; exec sleep 60", shell=shell, env=env) as process:
            assert process.stdout
            assert process.stdout.readline() == b"up\n"
            lines = command_lines()
            assert any("--env\0TOKEN_B" in line for line in lines.values())
            assert {line for line in lines.values() if "value-of" in line or "sesame" in line} == set()
            inside = [pid for pid in box.engine.processes() if "TOKEN_B" in environ(pid)]  # type: ignore[union-attr]
            assert inside
            assert {pid for pid in inside if "sesame" in environ(pid)} == set()
            process.terminate()
            process.wait(20)


def environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


# --- streams, status, signals, terminal


def test_the_status_is_the_commands(one: Box) -> None:
    """One container after another: a status that an engine has for itself (125, 126, 127, 137) is the command's, too."""
    for status in (0, 1, 125, 126, 127, 137, 255):
        done = one.enter("sh", "-c", f"exit {status}")
        assert (done.returncode, done.stdout, done.stderr) == (status, "", ""), status


def test_a_command_that_is_ended_by_a_signal_says_which(one: Box) -> None:
    for number in ("TERM", "KILL", "SEGV"):
        done = one.enter("sh", "-c", f"kill -{number} $$")
        assert done.returncode == 128 + {"TERM": 15, "KILL": 9, "SEGV": 11}[number], done.stderr


@pytest.mark.parametrize(("command", "status", "said"), [("no-such-command", 127, "not found"), ("/etc/passwd", 126, "ermission denied")])
def test_a_command_that_is_none(one: Box, command: str, status: int, said: str) -> None:
    done = one.enter(command)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


def test_words_input_and_output_arrive_as_they_are(box: Box) -> None:
    words = ("", "a b", "$HOME", "*", "--", "-x", "\n", "é", "'\"\\", "%s")
    done = box.enter("sh", "-c", 'cat; echo err >&2; printf "<%s>" "$@"', "sh", *words, stdin="in\x00put")
    assert (done.returncode, done.stderr) == (0, "err\n")
    assert done.stdout == "in\x00put" + "".join(f"<{word}>" for word in words)
    large = os.urandom(3 << 20)
    with box.open("cat", stdin=subprocess.PIPE) as process:
        assert process.communicate(large, timeout=60)[0] == large


def test_closed_streams_are_empty_ones(one: Box) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *one.argv("n", ("sh", "-c", "cat; echo x; echo x >&2; exit 3"))],
        cwd=one.project, env=one.environment(), timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 3


@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "USR2", "QUIT"])
def test_a_signal_reaches_the_command(one: Box, name: str) -> None:
    code = f"trap 'echo got; exit 9' {name}; echo up; while :; do sleep 0.05; done"
    with one.open("sh", "-c", code) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.send_signal(getattr(signal, f"SIG{name}"))
        assert process.communicate(timeout=30)[0] == b"got\n"
        assert process.returncode == 9


def test_a_command_that_handles_no_signal_is_ended_by_it(one: Box) -> None:
    """As a first process it would not be: the kernel keeps such signals from that."""
    with one.open("sleep", "600") as process:
        assert until(lambda: running(one))
        process.terminate()
        process.wait(20)
        assert process.returncode == 143
    assert until(lambda: not one.left()), one.left()


def running(box: Box, name: str = "sleep") -> list[int]:
    """Processes of that name in the engine's containers."""
    return [pid for pid in box.engine.processes() if name in command_lines().get(pid, "").split("\0")[0]]  # type: ignore[union-attr]


def children(process: int) -> list[int]:
    """Its children."""
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


@pytest.mark.parametrize("who", ["script", "client", "both", "watchdog"])
def test_whoever_is_killed_nothing_is_left(box: Box, who: str) -> None:
    with box.open("sh", "-c", "trap '' TERM INT HUP; echo up; sleep 600", start_new_session=True) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        name = f"wavegen-{process.pid}-"
        mine = {pid: line for pid, line in command_lines().items() if name in line}
        client = [pid for pid, line in mine.items() if line.split("\0")[1:2] == ["run"]]
        watchdog = [pid for pid in children(process.pid) if pid not in client]
        assert (len(client), len(watchdog)) == (1, 1)
        victims = {"script": [process.pid], "client": client, "both": [process.pid, *client], "watchdog": watchdog}[who]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        if who == "watchdog":
            # The command goes on; once it has ended, the script does what the watchdog would have done.
            time.sleep(0.3)
            assert process.poll() is None
            os.kill(client[0], signal.SIGKILL)
        if who == "script":
            # The client has its own streams; killed script leaves it, until the watchdog has removed the container.
            process.wait(10)
        elif who in ("client", "watchdog"):
            assert process.wait(15) == 137
        assert until(lambda: not box.left()), box.left()
        assert until(lambda: not [line for line in command_lines().values() if name in line])  # who removes it ends after it
        assert until(lambda: not os.path.exists(f"/proc/{watchdog[0]}"))


class Terminal:
    """The script on a terminal of its own."""

    def __init__(self, box: Box, *command: str, shell: str = "n") -> None:
        self.pid, self.master = pty.fork()
        if not self.pid:
            os.chdir(box.project)
            os.execvpe(box.argv(shell, command)[0], box.argv(shell, command), box.environment())
        box.started.append(self.pid)
        self.size(33, 101)
        self.shown = b""

    def size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def read(self) -> bool:
        """Whether something came."""
        if not select.select([self.master], [], [], 0.2)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:
            data = b""
        self.shown += data
        return bool(data)

    def see(self, text: bytes, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while text not in self.shown and time.monotonic() < end:
            self.read()
        assert text in self.shown, self.shown

    def settings(self) -> list[object]:
        return termios.tcgetattr(self.master)

    def end(self) -> int:
        """The script's status."""
        while self.read():
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.master)
        return status


def test_there_is_a_terminal_with_its_size_and_ctrl_c(one: Box) -> None:
    code = "import os, signal, sys; print([os.isatty(n) for n in range(3)], os.ttyname(0), flush=True)\n"
    code += "signal.signal(signal.SIGWINCH, lambda *_: print('size', *os.get_terminal_size(), flush=True))\n"
    code += "signal.signal(signal.SIGINT, lambda *_: print('interrupted', flush=True))\n"
    code += "print('first', *os.get_terminal_size(), flush=True)\n"
    code += "for line in sys.stdin:\n    print('line', line.strip(), flush=True)\n    if line.strip() == 'end': sys.exit(7)\n"
    terminal = Terminal(one, PYTHON, "-c", code)
    before = terminal.settings()
    terminal.see(b"[True, True, True] /dev/pts/0")
    terminal.see(b"first")
    terminal.size(44, 122)
    terminal.see(b"size 122 44")
    terminal.type(b"\x03")
    terminal.see(b"interrupted")
    # The keys by which a docker client would leave its container alone.
    terminal.type(b"\x10\x11\n")
    terminal.see(b"line")
    terminal.type(b"end\n")
    terminal.see(b"line end")
    assert terminal.end() == 7
    assert before


def test_an_interactive_shell_has_job_control(one: Box) -> None:
    terminal = Terminal(one)
    terminal.see(b"(n)")
    terminal.type(b"sleep 600\n")
    assert until(lambda: running(one))
    terminal.type(b"\x1a")
    terminal.see(b"Stopped")
    terminal.type(b"kill %1; wait; echo o''ver\n")
    terminal.see(b"over")
    terminal.type(b"sleep 600\n")
    assert until(lambda: running(one))
    terminal.type(b"\x03")
    terminal.type(b"echo $?; exit 5\n")
    terminal.see(b"130")
    assert terminal.end() == 5
    assert b"no job control" not in terminal.shown


def test_a_terminal_is_as_it_was_when_the_client_was_killed(one: Box) -> None:
    terminal = Terminal(one, "sh", "-c", "echo up; exec sleep 600")
    terminal.see(b"up")
    raw = terminal.settings()
    name = f"wavegen-{terminal.pid}-"
    for pid, line in command_lines().items():
        if name in line and line.split("\0")[1:2] == ["run"]:
            os.kill(pid, signal.SIGKILL)
    assert until(lambda: terminal.settings() != raw)
    assert int(terminal.settings()[3]) & termios.ECHO  # type: ignore[call-overload]
    assert terminal.end() == 137


def test_a_terminal_that_hangs_up_ends_it(one: Box) -> None:
    terminal = Terminal(one, "sh", "-c", "echo up; exec sleep 600")
    terminal.see(b"up")
    os.close(terminal.master)
    assert until(lambda: not one.left()), one.left()
    os.waitpid(terminal.pid, 0)


# --- paths


ODD = "a b:c,d\"e'f\nnew \t$x`é☃\\z"


@pytest.mark.parametrize("caller", users(), ids=name_of)
def test_any_path_will_do(engine: Engine, caller: int) -> None:
    """Of the project, of what is granted, of what is hidden, of what is read-only."""
    granted = json.dumps("~/" + ODD)
    lines = f"{{path: {granted}, access: read}}, {{path: {json.dumps(ODD)}, access: write}}"
    text = f"metadata: {{name: x}}\nruntime: {{sandbox: {{docker_image: '{{image}}', paths: [{lines}], deny_read_paths: [{json.dumps('no' + ODD)}], shells: {{n: {{network: none}}}}}}}}\n"
    box = Box.made(engine, text, caller=caller, project=f"{ODD}*[0]?/{ODD}*")
    try:
        (box.home / ODD).mkdir()
        (box.home / ODD / "f").write_text("granted")
        (box.project / ODD).mkdir()
        box.write("no" + ODD, "SECRET")
        box.write(f"{ODD}sub/x", "")
        box.own()
        code = 'pwd -P; cat ~/"$1"/f; echo x >"$1/made" || echo no; cat "no$1"; echo x >>wave.yaml; echo x >~/"$1/made"; ls -d "$1sub"'
        done = box.enter("bash", "-c", code, "sh", ODD)
        assert done.stdout == f"{box.project}\ngranted{ODD}sub\n", done.stderr
        assert done.stderr.count("Read-only file system") == 2
        assert "ermission denied" in done.stderr
        assert (box.project / ODD / "made").exists()
        deeper = box.enter("pwd", cwd=box.project / f"{ODD}sub")
        assert deeper.stdout == f"{box.project}/{ODD}sub\n", deeper.stderr
        # Nothing was made on the host beside it: an engine makes what it takes for a missing source, as root.
        assert sorted(os.listdir(box.base)) == sorted(["home", f"{ODD}*[0]?"])
        assert sorted(os.listdir(box.project.parent)) == [f"{ODD}*"]
    finally:
        box.remove()


def test_a_path_that_is_not_utf8_is_refused(engine: Engine) -> None:
    box = Box.made(
        engine, "metadata: {name: x}\nruntime: {sandbox: {docker_image: '{image}', shells: {n: {network: none}}}}\n", caller=users()[-1], project="a\udcff/p"
    )
    try:
        done = box.enter("true")
        assert (done.returncode, done.stdout) == (125, "")
        assert "a path that is not UTF-8 cannot be handed to a container (use UTF-8)" in done.stderr
    finally:
        box.remove()


def test_words_and_variables_that_are_not_utf8_are_refused(one: Box) -> None:
    assert "a word that is not UTF-8 cannot be handed to a container (use UTF-8)" in one.enter("echo", "\udcff").stderr
    assert "a variable that is not UTF-8 cannot be handed to a container (use UTF-8)" in one.enter("true", env={"TOKEN_A": "\udcff"}).stderr


def test_what_is_missing_is_refused_or_left_out_and_never_made(one: Box) -> None:
    """An engine makes a directory of root's where a source is missing."""
    (one.home / "granted").rename(one.home / "away")
    try:
        done = one.enter("true")
    finally:
        (one.home / "away").rename(one.home / "granted")
    assert (done.returncode, done.stdout) == (125, "")
    assert "granted" in done.stderr
    assert not (one.home / "granted/granted").exists()


# --- git


def test_git_works_and_its_settings_are_held(box: Box) -> None:
    git = "git -c user.name=n -c user.email=e"
    code = f"set -e; git status --short >/dev/null; echo x >new; git add new; {git} commit -qm second; git branch other; {git} stash list; git gc -q; git log --oneline | wc -l; git worktree add -q tree; git -C tree status --short; git worktree remove tree; git branch -D tree >/dev/null"
    done = box.enter("bash", "-c", code)
    assert (done.returncode, done.stdout.split()) == (0, ["2"]), done.stderr
    tried = box.attempts(
        "git config core.fsmonitor /bin/x",
        "mv .git .g",
        "rm -rf .git/hooks",
        "echo x >.git/hooks/post-checkout",
        "ln -sf /x .git/config",
        "git remote add o x",
    )
    assert 0 not in tried.values(), tried


def test_the_end_says_what_the_host_would_run(box: Box) -> None:
    """As after bubblewrap: one line at the next start, which waits for nothing; and the command's own status."""
    code = "mkdir sub; cd sub; git init -q .; git config core.fsmonitor /x; echo 'x' >.git/hooks/post-commit; chmod +x .git/hooks/post-commit; exit 3"
    done = box.enter("bash", "-c", code)
    assert (done.returncode, done.stderr) == (3, "")
    assert until(lambda: list(box.home.glob(".local/state/wavegen/*/notice")))
    done = box.enter("true")
    assert "wavegen audit" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1
    found = subprocess.run(
        [sys.executable, "-P", "-m", "wavegen", "audit"], cwd=box.project, env=box.environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert "sub/.git/config" in found.stdout, found
    quiet = box.enter("true")
    assert "sub" not in quiet.stdout
    subprocess.run(["rm", "-rf", str(box.project / "sub")], check=True)
    # What was looked at before that is said once more.
    assert until(lambda: box.enter("true").stderr == "")


# --- abuse


def counted(engine: Engine) -> list[int]:
    """Processes of each of the engine's containers, as the kernel counts them; a list of them would hold some that have ended meanwhile."""
    found = [0]
    for place in cgroups(engine.cgroup):
        with contextlib.suppress(OSError):
            if not any(Path(place, name).is_dir() for name in os.listdir(place)):
                found.append(int(Path(place, "pids.current").read_text()))
    return found


def test_a_fork_bomb_stays_inside_its_bound_and_ends(one: Box) -> None:
    with one.open("bash", "-c", "bomb() { bomb | bomb & }; echo up; bomb; sleep 60", stderr=subprocess.DEVNULL) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        most, end = 0, time.monotonic() + 1.5
        while time.monotonic() < end:
            most = max(most, *counted(one.engine))  # type: ignore[arg-type]
        # The kernel counts a fork before it refuses it: one on each processor may be seen so.
        assert 30 < most <= 64 + (os.cpu_count() or 1)
        process.terminate()
        process.wait(20)
    assert until(lambda: not one.left()), one.left()


def test_processes_are_counted_for_the_whole_container(one: Box) -> None:
    code = "import os, signal\nn = 0\ntry:\n  while True:\n    if not os.fork(): signal.pause()\n    n += 1\nexcept BlockingIOError: print(n)\nos.kill(-1, signal.SIGKILL)"
    done = one.enter(PYTHON, "-c", code)
    assert 55 <= int(done.stdout or 0) < 64, done.stderr


def test_who_takes_too_much_memory_is_killed(one: Box) -> None:
    code = "import sys\nhoard = []\nwhile len(hoard) < 600: hoard.append(bytearray(b'x' * (1 << 20))); print(len(hoard), flush=True)"
    done = one.enter(PYTHON, "-c", code)
    assert done.returncode == 137
    assert 100 < int(done.stdout.split()[-1]) < 256
    # What lies in a temporary directory counts, too, and so do processes together.
    together = "for _ in 1 2 3 4; do python3 -c 'x = bytearray(b\"x\" * (90 << 20)); import time; time.sleep(3)' & done; wait -n; wait -n; echo $?"
    assert one.enter("bash", "-c", together).stdout == "137\n"


FILLS = r"""
import errno, os, sys
for place in sys.argv[1:]:
    written = 0
    try:
        with open(place + "/fill", "wb", buffering=0) as stream:
            while written < 64 << 20: written += stream.write(bytes(1 << 20))
    except OSError as error: print(place, errno.errorcode[error.errno], written >> 20)
    else: print(place, "full", written >> 20)
    os.unlink(place + "/fill")
"""


def test_what_is_filled_is_bounded_and_not_the_hosts_disk(engine: Engine) -> None:
    text = "metadata: {name: x}\nruntime: {sandbox: {docker_image: '{image}', home: tmpfs, limits: {tmp: 4m}, shells: {n: {network: none}}}}\n"
    box = Box.made(engine, text, caller=users()[-1])
    try:
        places = ("/tmp", "/var/tmp", "/run", "/dev/shm", str(box.home))
        done = box.enter(PYTHON, "-c", FILLS, *places)
        assert done.stdout.splitlines() == [f"{place} ENOSPC 4" for place in places], done.stderr
        kept = box.enter("sh", "-c", 'echo x >~/x; stat -c "%u %a" ~; test -x ~; ls -A ~')
        assert kept.stdout.split() == [str(box.uid), "700", "x"]
        assert box.enter("ls", "-A", str(box.home)).stdout == ""
        assert not list(box.home.rglob("x"))
    finally:
        box.remove()


def test_output_that_nobody_reads_waits_and_ends_with_its_reader(one: Box) -> None:
    with one.open("sh", "-c", "exec yes $(printf %01000d 0)") as process:
        assert process.stdout
        assert process.stdout.read(100) == b"0" * 100
        time.sleep(1)
        before = daemon_memory(one)
        time.sleep(1)
        assert daemon_memory(one) - before < 16 << 20
        process.stdout.close()
        assert process.wait(20) != 0
    assert until(lambda: not one.left()), one.left()


def daemon_memory(box: Box) -> int:
    """Bytes that the daemon's process holds."""
    (found,) = (pid for pid, line in command_lines().items() if line.startswith("dockerd\0") and box.engine.directory.name in line)
    return int(Path(f"/proc/{found}/statm").read_text().split()[1]) * 4096


@pytest.mark.parametrize("stubborn", [False, True], ids=["obedient", "stubborn"])
def test_timeout_ends_all_of_it(box: Box, stubborn: bool) -> None:
    command = ("sh", "-c", "trap '' TERM; while :; do sleep 0.1; done") if stubborn else ("sleep", "600")
    words = ("timeout", *(("-k", "1") if stubborn else ()), "2")
    with box.open(*command, before=words) as process:
        assert process.wait(30) == (-9 if stubborn else 124)  # timeout(1) kills itself, too
    assert until(lambda: not box.engine.processes())  # type: ignore[union-attr]
    assert until(lambda: not box.engine.run("ps", "-aq").stdout)


@pytest.mark.parametrize("command", ["sleep 600", "trap '' TERM; while :; do sleep 0.1; done"], ids=["obedient", "stubborn"])
def test_a_time_of_the_api_ends_all_of_it(own: Box, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    for name, value in own.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("XDG_STATE_HOME")
    result = Sandbox.load(str(own.project / "wave.yaml")).run(["sh", "-c", f"echo up; {command}"], shell="n", timeout=1.5)
    assert (result.timed_out, result.status, result.stdout, result.fenced) == (True, 124, b"up\n", True)
    assert until(lambda: not own.engine.processes())  # type: ignore[union-attr]
    assert until(lambda: not own.engine.run("ps", "-aq").stdout)


# --- artifacts


def entered_with(box: Box, *options: str, code: str) -> subprocess.CompletedProcess[str]:
    return box.enter(*options, "--", "sh", "-c", code)


@pytest.fixture
def place(box: Box) -> Iterator[Path]:
    """A directory of the caller's, beside the project, with artifacts."""
    made = box.base / "place"
    (made / "in/deep").mkdir(parents=True)
    (made / "in/deep/artifact").write_text("earlier")
    (made / "in/link").symlink_to("/etc/shadow")
    (made / "in/up").symlink_to("../outside")
    (made / "outside").write_text("SECRET")
    box.give(made)
    yield made
    subprocess.run(["rm", "-rf", str(made)], check=True)


def test_results_come_out_and_nothing_else_does(box: Box, place: Path) -> None:
    before = snapshot(box.project)
    code = """
    cat /artifacts/deep/artifact; cat /artifacts/up /artifacts/link; echo x >/artifacts/new; echo x >/artifacts/deep/artifact
    echo x >made; rm wave.yaml; mkdir -p ~/x; echo x >~/lost; echo x >~/given/lost; echo x >/tmp/lost; echo x >/workspace/lost
    cd /workspace/output && mkdir -p d/e && echo result >d/e/file && echo x >d/run && chmod 4755 d/run && chmod 1777 d
    ln -s /etc/passwd link; ln -s . here; ln d/e/file hard; mkfifo pipe; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("sock")'
    exit 4
    """
    done = entered_with(box, "--artifacts", str(place / "in"), "--output", str(place / "out"), code=code)
    assert done.returncode == 4, done.stderr
    assert done.stdout == "earlier"
    assert "SECRET" not in done.stdout + done.stderr
    assert "note: of the output what is no plain file was left behind: 4" in done.stderr
    found = {str(path.relative_to(place / "out")): path.lstat() for path in (place / "out").rglob("*")}
    assert sorted(found) == ["d", "d/e", "d/e/file", "d/run", "hard"]
    assert {name: oct(info.st_mode & 0o7777) for name, info in found.items() if info.st_mode & 0o7000} == {}
    assert (place / "out/d/e/file").read_text() == "result\n"
    assert sorted(path.name for path in place.iterdir()) == ["in", "out", "outside"]
    assert sorted(str(path.relative_to(place)) for path in (place / "in").rglob("*")) == ["in/deep", "in/deep/artifact", "in/link", "in/up"]
    assert (place / "in/deep/artifact").read_text() == "earlier"
    assert snapshot(box.project) == before
    assert box.enter("sh", "-c", "cat ~/lost ~/given/lost").stdout == ""


def test_a_directory_that_holds_something_takes_no_results(box: Box, place: Path) -> None:
    (place / "full").mkdir()
    (place / "full/mine").write_text("mine")
    (place / "empty").mkdir()
    (place / "led").symlink_to("empty")
    (place / "file").write_text("mine")
    box.give(place)
    for name in ("full", "led", "file", "full/mine"):
        done = entered_with(box, "--output", str(place / name), code="echo x >/workspace/output/x")
        assert (done.returncode, done.stdout) == (125, ""), name
        assert "is there already, and not empty (name another directory for what comes out)" in done.stderr
    missing = entered_with(box, "--output", str(place / "no/such"), code="true")
    assert (missing.returncode, "does not exist (name a directory that can be made)" in missing.stderr) == (125, True), missing.stderr
    none = entered_with(box, "--artifacts", str(place / "nothing"), code="true")
    assert (none.returncode, "is not a directory (name what is to be at /artifacts)" in none.stderr) == (125, True), none.stderr
    assert sorted(path.name for path in place.iterdir()) == ["empty", "file", "full", "in", "led", "outside"]
    assert entered_with(box, "--output", str(place / "empty"), code="echo x >/workspace/output/x").returncode == 0
    assert (place / "empty/x").read_text() == "x\n"


def test_results_of_a_run_that_is_ended_stay_apart(one: Box) -> None:
    """Not under the name that whoever asked looks at."""
    words = ("--output", str(one.base / "out"), "--", "sh", "-c", "echo x >/workspace/output/x; echo up; exec sleep 600")
    one.base.chmod(0o777)
    with one.open(*words) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.terminate()
        assert process.wait(20) == 143
    assert (one.base / "out/x").read_text() == "x\n"
    with one.open("--output", str(one.base / "other"), *words[2:]) as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        process.kill()
        process.wait(20)
    assert until(lambda: not one.left())
    assert not (one.base / "other").exists()
    for path in one.base.glob("o*"):
        subprocess.run(["rm", "-rf", str(path)], check=True)


# --- what keeps Wave's own docker from working


WHERE = "import os; print(os.path.exists('/.dockerenv'), os.getuid(), os.getcwd())"


def test_every_command_and_persona_is_in_the_container_that_the_manifest_asks_for(own: Box) -> None:
    """1: with `backend: docker` the programs of agents ran on the host."""
    inside = f"True {own.uid} {own.project}\n"
    for words in (
        ("-s", "n", "--", PYTHON, "-c", WHERE),
        ("-p", "runner", "--", "-c", WHERE),
        ("-p", "open", "--", "-c", WHERE),
        ("-p", "open", "--exec", "--", PYTHON, "-c", WHERE),
    ):
        done = own.run(*words)
        assert (done.returncode, done.stdout) == (0, inside), (words, done.stderr)
    script = own.enter("-c", WHERE, shell="persona-runner")
    assert (script.returncode, script.stdout) == (0, inside), script.stderr
    # And elsewhere only where that is said.
    other = own.run("-b", "bubblewrap", "-s", "n", "--", PYTHON, "-c", WHERE)
    assert other.stdout == f"False {os.getuid()} {own.project}\n", other.stderr


def test_input_arrives_and_a_time_that_is_up_ends_the_container(own: Box) -> None:
    """2: no -i, no --init, no name: the client was killed, and the container went on."""
    fed = own.run("-s", "n", "--", "cat", input="put in", stdin=None)
    assert (fed.returncode, fed.stdout) == (0, "put in"), fed.stderr
    with subprocess.Popen(
        ["timeout", "2", sys.executable, "-P", "-m", "wavegen", "run", "-s", "n", "--", "sleep", "600"], cwd=own.project, env=own.environment()
    ) as process:
        assert process.wait(20) == 124
    assert until(lambda: not own.engine.run("ps", "-aq").stdout)


def test_programs_and_directories_are_there(own: Box) -> None:
    """3: neither the agent's program nor artifacts and output were in the container."""
    (own.home / "granted/program").write_text("#!/bin/sh\necho from the host\n")
    (own.home / "granted/program").chmod(0o755)
    (own.base / "in").mkdir()
    (own.base / "in/a").write_text("earlier")
    own.base.chmod(0o777)
    words = ("--artifacts", str(own.base / "in"), "--output", str(own.base / "out"), "-s", "n")
    done = own.run(*words, "--", "sh", "-c", "~/granted/program; cat /artifacts/a; command -v git; command -v python3; echo later >/workspace/output/b")
    assert (done.returncode, done.stdout) == (0, "from the host\nearlier/usr/bin/git\n/usr/bin/python3\n"), done.stderr
    assert (own.base / "out/b").read_text() == "later\n"


def test_listed_names_are_reached_and_no_others(box: Box) -> None:
    """4: the network was none, whatever domains were allowed."""
    site = Server(web)
    code = "import urllib.request as r\nprint(r.urlopen('http://good.example.com/', timeout=10).read())\ntry: print(r.urlopen('http://other.example.com/', timeout=10).read())\nexcept OSError as error: print(error)"
    try:
        done = box.enter(*site.at("good.example.com", 80), "--", PYTHON, "-c", code, shell="restricted")
    finally:
        site.close()
    assert done.returncode == 0, done.stderr
    reached, refused = done.stdout.splitlines()
    assert reached == "b'ok'"
    assert "403" in refused or "not known" in refused
    (log,) = box.home.glob(".local/state/wavegen/*/restricted/network.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert {(line["name"], line["verdict"]) for line in lines} == {("good.example.com", "allow"), ("other.example.com", "deny")}


def test_a_steps_variables_arrive_by_name(own: Box) -> None:
    """5: they did not, and secrets stood on the command line (test_no_value_of_a_variable_stands_on_a_command_line)."""
    done = own.run("-s", "n", "--", "sh", "-c", 'echo "$TOKEN_A"', env=own.environment(TOKEN_A="value-of a"))
    assert done.stdout == "value-of a\n", done.stderr
    shown = own.enter("--print", env={"TOKEN_A": "value-of a"}).stdout
    assert "TOKEN_A" in shown
    assert "value-of" not in shown


def test_root_is_not_root_inside_and_a_project_of_roots_is_refused(engine: Engine) -> None:
    """6: root was; and nothing was bounded, a path with a colon was none, missing ones were made, programs in /tmp could not be run."""
    box = Box.made(engine, "metadata: {name: x}\nruntime: {sandbox: {docker_image: '{image}', shells: {n: {network: none}}}}\n", caller=os.getuid())
    try:
        assert box.enter("id", "-u").stdout == f"{box.uid}\n"
        if os.getuid() == 0:
            os.chown(box.project, 0, 0)
            done = box.enter("true")
            assert (done.returncode, done.stdout) == (125, "")
            assert "the project belongs to root, and nothing in a container runs as root (give it to a user: chown" in done.stderr
            # Of a group of root's nothing is in the container.
            os.chown(box.project, USER, 0)
            assert box.enter("id").stdout == f"uid={USER} gid={USER} groups={USER}\n"
    finally:
        box.remove()


def test_git_works_in_a_linked_worktree(engine: Engine) -> None:
    """7: its .git leads out of what was mounted."""
    for caller in users():
        box = Box.made(
            engine,
            "metadata: {name: x}\nruntime: {sandbox: {docker_image: '{image}', shells: {n: {network: none}}}}\n",
            caller=caller,
            project="work/repository",
        )
        try:
            git = ["git", "-c", "safe.directory=*", "-c", "user.name=n", "-c", "user.email=e", "-C", str(box.project)]
            for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "first"], ["worktree", "add", "-q", "../linked"]):
                subprocess.run([*git, *words], check=True)
            linked = dataclasses.replace(box, project=box.base / "work/linked")
            assert linked.render().returncode == 0
            code = "set -e; git status --short; echo x >new; git add new; git -c user.name=n -c user.email=e commit -qm second; git log --oneline | wc -l"
            done = linked.enter("bash", "-c", code)
            assert (done.returncode, done.stdout.split()[-1]) == (0, "2"), done.stderr
            tried = linked.attempts(
                "git config core.fsmonitor /x",
                'echo x >"$(git rev-parse --git-common-dir)"/hooks/post-commit',
                "echo x >.git",
                'echo x >>"$(git rev-parse --git-dir)"/commondir',
            )
            assert 0 not in tried.values(), tried
            assert linked.enter("ls", "-A", str(box.project)).stdout.split() == [".git"]
        finally:
            box.remove()


def test_without_a_workspace_the_project_is_it(own: Box) -> None:
    """8: a command got no directory; its network was none. From outside of the project it starts in its root."""
    elsewhere = own.run("--manifest", str(own.project / "wave.yaml"), "-s", "default", "--", "sh", "-c", "pwd; ls wave.yaml; ls /sys/class/net", cwd=own.base)
    assert elsewhere.returncode == 0, elsewhere.stderr
    assert elsewhere.stdout.split()[:2] == [str(own.project), "wave.yaml"]
    assert len(elsewhere.stdout.split()) == 2 + len(os.listdir("/sys/class/net"))
    (own.project / "deep").mkdir()
    assert own.run("-s", "n", "--", "pwd", cwd=own.project / "deep").stdout == f"{own.project}/deep\n"


# --- images


def test_what_an_image_would_start_or_keep_does_not_matter(engine: Engine) -> None:
    """An entrypoint, a volume, which would be a directory on the disk, a user, a health check, variables, a working directory."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        changes = (
            'ENTRYPOINT ["/bin/false"]',
            'VOLUME ["/data", "/da:ta"]',
            "USER 0",
            "WORKDIR /data",
            "HEALTHCHECK CMD touch /tmp/checked",
            "ENV HOME=/image LD_PRELOAD=/no/such.so LD_LIBRARY_PATH=/evil BASH_ENV=/evil PERL5OPT=-Mevil OWN=1",
        )
        words = [word for change in changes for word in ("--change", change)]
        done = engine.run("import", *words, pack("bare", Path(directory)), "wavegen-test:odd")
        assert done.returncode == 0, done.stderr
    text = "metadata: {name: x}\nruntime: {sandbox: {docker_image: 'wavegen-test:odd', limits: {tmp: 4m}, shells: {n: {network: none}}}}\n"
    box = Box.made(engine, text, caller=users()[-1])
    try:
        code = 'id -u; pwd; echo "$HOME"; echo "<$LD_PRELOAD$LD_LIBRARY_PATH$BASH_ENV$PERL5OPT>$OWN"; dd if=/dev/zero of=/data/x bs=1M 2>/dev/null; stat -c %s /data/x; touch /x'
        done = box.enter("sh", "-c", code)
        assert done.stdout.split() == [str(box.uid), str(box.project), str(box.home), "<>1", str(4 << 20)], done.stderr
        assert "preload" not in done.stderr
        assert "Read-only file system" in done.stderr
        assert engine.run("volume", "ls", "-q").stdout == ""
    finally:
        box.remove()
        engine.run("rmi", "wavegen-test:odd")


def test_an_image_without_perl_and_python_has_one_layer_less(engine: Engine) -> None:
    text = f"metadata: {{name: x}}\nruntime: {{sandbox: {{docker_image: '{engine.image('bare')}', default_allowed_domains: [a.example], shells: {{n: {{network: none}}}}}}}}\n"
    box = Box.made(engine, text, caller=users()[-1])
    try:
        done = box.enter("sh", "-c", "echo in; touch .wavegen/x; exit 3")
        assert (done.returncode, done.stdout) == (3, "in\n"), done.stderr
        assert "Read-only file system" in done.stderr
        judged = box.enter("true", shell="restricted")
        assert (judged.returncode, judged.stdout) == (125, "")
        assert "the image has neither python3 nor perl, without which no connection can be filtered" in judged.stderr
    finally:
        box.remove()


# --- podman


PODMEN = [pytest.param(name, marks=pytest.mark.needs(need)) for name, need in (("podman", "podman"), ("rootless", "podman-rootless"))]


@pytest.fixture(scope="module", params=PODMEN)
def pod(request: pytest.FixtureRequest) -> Iterator[Box]:
    real: Podman = request.getfixturevalue(request.param)
    made = filled(Box.made(real, MANIFEST, caller=users()[-1] if request.param == "rootless" else os.getuid()))
    yield made
    assert until(lambda: not made.left()), made.left()
    made.remove()


def test_podman_holds_the_same(pod: Box) -> None:
    found = pod.python(FACTS, shell="n", env={**pod.environment(), **HOSTS})
    assert isinstance(found, dict)
    zero = "0" * 16
    assert found["status"] == {"CapEff": zero, "CapBnd": zero, "CapPrm": zero, "CapAmb": zero, "NoNewPrivs": "1", "Seccomp": "2"}
    assert found["ids"][:2] == [[pod.uid] * 3, [pod.uid] * 3]
    assert (found["network"], found["limits"], found["fds"]) == (["lo"], [1, 1], [0, 1, 2])
    assert {name: said for kind in ("held", "made", "moved") for name, said in found[kind].items() if said == "done"} == {}
    assert set(found["writable"].values()) == {"done"}
    assert found["secret"][:3] == ["Permission denied", [], False]
    assert found["run"] == {"/tmp": 7, str(pod.home): 7, ".": 7}
    assert found["sizes"] == dict.fromkeys(("/tmp", "/var/tmp", "/run", "/dev/shm"), 8 << 20)
    assert found["own"]["TOKEN_A"] == HOSTS["TOKEN_A"]
    assert "sesame" not in str(found)
    if not pod.engine.home or os.path.exists("/sys/fs/cgroup/cgroup.controllers"):  # type: ignore[union-attr]
        assert (found["pids"], found["memory"], found["cpus"][0]) == (["64"], [str(256 << 20)], "150000")


def test_podman_passes_status_words_input_and_signals_on(pod: Box) -> None:
    for status in (0, 3, 125, 126, 137):
        done = pod.enter("sh", "-c", f"exit {status}")
        assert done.returncode == status, done.stderr
    words = ("", "a b", "$HOME", "*", "\n", "é")
    done = pod.enter("sh", "-c", 'cat; echo err >&2; printf "<%s>" "$@"', "sh", *words, stdin="in")
    assert (done.returncode, done.stdout) == (0, "in" + "".join(f"<{word}>" for word in words)), done.stderr
    # A user's podman 4.3 passes few on, and says 0 after those.
    for name in ("TERM",) if pod.engine.home else ("TERM", "INT", "HUP", "USR1"):  # type: ignore[union-attr]
        # Its client passes none on in its first moments, and ends of them: nobody can see how long those are.
        assert any(passed_on(pod, name, wait) for wait in (0.4, 3, 10))


def passed_on(pod: Box, name: str, wait: float) -> bool:
    """Whether a command gets a signal that is sent some seconds after it was up, and its status comes back."""
    with pod.open("sh", "-c", f"trap 'echo got; exit 9' {name}; echo up; while :; do sleep 0.05; done") as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        time.sleep(wait)
        process.send_signal(getattr(signal, f"SIG{name}"))
        return process.communicate(timeout=30)[0] == b"got\n" and bool(process.returncode == 9 or pod.engine.home)  # type: ignore[union-attr]


@pytest.mark.parametrize("who", ["script", "client"])
def test_nothing_of_podman_is_left_when_it_is_killed(pod: Box, who: str) -> None:
    with pod.open("sh", "-c", "trap '' TERM INT HUP; echo up; exec sleep 600") as process:
        assert process.stdout
        assert process.stdout.readline() == b"up\n"
        name = f"wavegen-{process.pid}-"
        client = [pid for pid, line in command_lines().items() if name in line and "\0run\0" in line and "conmon" not in line]
        for pid in [process.pid] if who == "script" else client:
            os.kill(pid, signal.SIGKILL)
        process.wait(20)
        assert until(lambda: not pod.left()), pod.left()
        assert until(lambda: not [line for line in command_lines().values() if name in line])


def test_podman_judges_names(pod: Box) -> None:
    site = Server(web)
    code = "import urllib.request as r\nprint(r.urlopen('http://good.example.com/', timeout=10).read())\ntry: r.urlopen('http://other.example.com/', timeout=10)\nexcept OSError: print('refused')"
    try:
        done = pod.enter(*site.at("good.example.com", 80), "--", PYTHON, "-c", code, shell="restricted")
    finally:
        site.close()
    assert (done.returncode, done.stdout) == (0, "b'ok'\nrefused\n"), done.stderr


class Between:
    """Stands between a client and the daemon, and does something just before the client asks for a start."""

    def __init__(self, place: Path, daemon: Path, before: Callable[[], None]) -> None:
        self._daemon, self._before = daemon, before
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(place))
        place.chmod(0o777)
        self._listener.listen(64)
        self._ends = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._daemon))
                self._ends += [client, server]
                for ends in ((client, server), (server, client)):
                    threading.Thread(target=self._pass, args=ends, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if re.search(rb"^POST \S+/containers/\S+/start\b", data, re.MULTILINE):
                    self._before()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Let nobody in any more."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


def test_a_start_that_the_daemon_refuses_ends(one: Box) -> None:
    """A place is exchanged between the client's two requests: the daemon starts nothing, and the client waits for a removal that nobody makes."""
    manifest, aside = one.project / "wave.yaml", one.project / "aside"
    proxy = Between(one.base / "between.sock", one.engine.socket, lambda: manifest.rename(aside))  # type: ignore[union-attr]
    try:
        done = one.enter("true", env={"DOCKER_HOST": f"unix://{one.base}/between.sock"})
    finally:
        proxy.close()
        aside.rename(manifest)
    assert done.returncode == 125, done.stderr
    assert "the container did not start the command" in done.stderr
    assert until(lambda: not one.left()), one.left()
