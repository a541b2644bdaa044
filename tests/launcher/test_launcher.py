"""The launcher in operation: how it starts, passes on, serves, fails and ends, with nothing left behind."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fence import PYTHON, Fence, name_of, users
from helpers import ROOT, call, gone, in_place_of_bwrap, left_in, masks, until
from stand_in import HTTP, LOOPBACK, SOCKS, Inside, Server, connect, echo, get, inside, socks

pytestmark = pytest.mark.needs("bwrap")

SHELL, NAME, PORT = "restricted", "echo.example.com", 7000
MANIFEST = """\
metadata: {{name: fence}}
runtime:
  sandbox:
    {more}
    default_allowed_domains: ["echo.example.com:7000", web.example.com]
"""


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    made = Fence.create(MANIFEST.format(more=""), uid=request.param)
    yield made
    made.remove()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server(echo)
    yield made
    made.close()


def change(fence: Fence, name: str, old: str, new: str) -> None:
    """Change a file of the launcher, and its digest in the lock, as if it had been rendered so."""
    path, lock = fence.project / ".wavegen/launcher" / name, fence.project / ".wavegen/lock.json"
    text = path.read_text()
    assert old in text, old
    path.write_text(text.replace(old, new))
    found = json.loads(lock.read_text())
    found["outputs"][f".wavegen/launcher/{name}"] = "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    lock.write_text(json.dumps(found))


@pytest.fixture
def changed() -> Iterator[Callable[..., Fence]]:
    """Makes a fence whose copy of the launcher is changed, and its lock with it: file, old text, new text."""
    made: list[Fence] = []

    def make(*changes: tuple[str, str, str], more: str = "", uid: int | None = None) -> Fence:
        one = Fence.create(MANIFEST.format(more=more), uid=users()[-1] if uid is None else uid)
        made.append(one)
        for name, old, new in changes:
            change(one, name, old, new)
        return one

    yield make
    for one in made:
        one.remove()


NO_UNSHARE = ("netns.py", "    enter_namespaces()\n", '    raise PermissionError(1, "no")\n')


def start(fence: Fence, *command: str, **options: object) -> subprocess.Popen[str]:
    more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(fence.argv(SHELL, command), cwd=fence.project, env=fence.environment(), text=True, **more)  # type: ignore[call-overload,no-any-return]


def processes(word: str) -> dict[int, str]:
    """Processes that name a word in their command line."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in line:
                found[int(entry.name)] = line.decode("utf-8", "replace")
    return found


def listening() -> set[str]:
    """What listens in this network namespace on the ports that a launcher opens elsewhere."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) in (53, 80, 443, 1080, 3128, PORT):
                found.add(f"{name} {words[1]}")
    return found


# --- how it ends


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("true",), 0),
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "exit 1"), 1),
        (("sh", "-c", "kill -9 $$"), 137),
        (("sh", "-c", "kill -TERM $$"), 143),
        (("/etc/passwd",), 126),
        (("no-such-command",), 127),
    ],
)
def test_the_status_is_the_commands(fence: Fence, command: tuple[str, ...], status: int) -> None:
    assert fence.enter(*command, shell=SHELL).returncode == status


def test_the_three_streams_are_the_callers(fence: Fence) -> None:
    done = fence.enter("sh", "-c", "cat; echo err >&2", shell=SHELL, stdin="in\n")
    assert (done.stdout, done.stderr, done.returncode) == ("in\n", "err\n", 0)


def test_what_is_missing_is_said(changed: Callable[..., Fence], tmp_path: Path) -> None:
    one = changed(uid=users()[0])
    gone = one.project / ".wavegen/launcher/netns.py"
    fake = one.base / "bwrap"
    fake.write_text('#!/bin/sh\necho "bwrap: setting up uid map: Permission denied" >&2\nexit 1\n')
    fake.chmod(0o755)
    done = subprocess.run([*in_place_of_bwrap(fake), *one.argv(SHELL, ("echo", "ran"))], cwd=one.project, env=one.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert "does not let bwrap create user namespaces" in done.stderr
    gone.unlink()
    done = one.enter("echo", "ran", shell=SHELL)
    assert (done.returncode, done.stdout) == (125, "")
    assert "run wavegen render" in done.stderr


def test_an_old_python_says_that_it_is_too_old(fence: Fence) -> None:
    main = fence.project / ".wavegen/launcher/__main__.py"
    code = "import sys; sys.version_info = (3, 8, 19); sys.argv = sys.argv[1:]; __file__ = sys.argv[0]; exec(compile(open(__file__).read(), __file__, 'exec'))"
    stub = str(fence.project / ".wavegen/bin" / SHELL)
    done = subprocess.run([PYTHON, "-I", "-S", "-c", code, str(main), stub, "touch", "ran"], cwd=fence.project, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert "python3 is older than 3.9 (install a newer one" in done.stderr
    assert not (fence.project / "ran").exists()


@pytest.mark.parametrize("shell", [SHELL, "default"])
def test_without_python_it_is_said_what_to_install(fence: Fence, shell: str) -> None:
    """In a mount namespace in which there is none where the stub looks."""
    hide = 'for p in /usr/bin/python3 /usr/local/bin/python3; do if [ -e "$p" ]; then mount --bind /dev/null "$(readlink -f "$p")"; fi; done; exec "$@"'
    own = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-r", "-m"]
    argv = [*own, "sh", "-c", hide, "sh", *fence.argv(shell, ("touch", "ran"))]
    done = subprocess.run(argv, cwd=fence.project, env=fence.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, "apt install python3" in done.stderr) == (125, "", True), done.stderr
    assert not (fence.project / "ran").exists()


# --- signals and terminals


def test_a_signal_reaches_the_command(fence: Fence) -> None:
    for name in ("TERM", "INT", "HUP", "USR1", "WINCH"):
        with start(fence, "sh", "-c", f"trap 'echo got >>caught; exit 9' {name}; echo ready; while :; do sleep 0.02; done") as process:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            process.send_signal(getattr(signal, f"SIG{name}"))
            assert process.wait(10) == 9
        assert (fence.project / "caught").read_text() == "got\n"
        (fence.project / "caught").unlink()


def test_signals_inside_are_as_the_caller_left_them(fence: Fence) -> None:
    assert masks(fence.enter("grep", "Sig[BI]", "/proc/self/status", shell=SHELL).stdout) == {"SigBlk": 0, "SigIgn": 0}
    argv = ["sh", "-c", 'trap "" INT HUP USR1; exec "$@"', "sh", *fence.argv(SHELL, ("grep", "Sig[BI]", "/proc/self/status"))]
    done = subprocess.run(argv, cwd=fence.project, env=fence.environment(), capture_output=True, text=True)
    assert masks(done.stdout) == {"SigBlk": 0, "SigIgn": 0x203}


def test_a_terminal_stays_one(fence: Fence) -> None:
    main, other = pty.openpty()
    code = "trap 'echo int >>caught' INT; trap 'echo winch' WINCH; tty; stty size; echo ready; n=0; while [ $n -lt 40 ]; do sleep 0.05; n=$((n+1)); done; echo done"
    process = subprocess.Popen(
        ["setsid", "--ctty", *fence.argv(SHELL, ("sh", "-c", code))], cwd=fence.project, env=fence.environment(), stdin=other, stdout=other, stderr=other
    )
    os.close(other)
    said = b""

    def read(word: bytes, seconds: float = 60) -> bool:
        nonlocal said
        end = time.monotonic() + seconds
        while word not in said and time.monotonic() < end:
            if select.select([main], [], [], 0.1)[0]:
                try:
                    said += os.read(main, 4096)
                except OSError:
                    break
        return word in said

    try:
        assert read(b"ready"), said
        assert b"not a tty" not in said
        import fcntl
        import struct
        import termios

        fcntl.ioctl(main, termios.TIOCSWINSZ, struct.pack("4H", 50, 100, 0, 0))
        assert read(b"winch"), said
        time.sleep(0.2)
        assert said.count(b"winch") == 1
        assert read(b"done"), said
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(main)


# --- nothing is left


@pytest.mark.parametrize("victim", ["launcher", "bwrap", "command"])
def test_nothing_outlives_any_of_them(fence: Fence, victim: str) -> None:
    before = (listening(), left_in("/tmp", canaries=False), sorted(str(p) for p in fence.project.rglob("*") if "__pycache__" not in p.parts))
    for _ in range(50):
        word = f"3{secrets.randbelow(10**9):09d}"
        with start(fence, "sh", "-c", f"echo ready; sleep {word}; true") as process:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            found = processes(word)
            children = {pid: line for pid, line in found.items() if pid != process.pid and "bwrap" in line.split("\0")[0]}
            target = {"launcher": process.pid, "bwrap": min(children), "command": max(pid for pid in found if found[pid].startswith(("sh\0", "sleep\0")))}[
                victim
            ]
            os.kill(target, signal.SIGKILL)
            assert process.wait(10) != 0 or victim == "command"
        assert until(lambda word=word: not processes(word)), processes(word)
    after = (listening(), sorted(str(p) for p in fence.project.rglob("*") if "__pycache__" not in p.parts))
    assert after[0] <= before[0]
    assert gone(lambda: left_in("/tmp", canaries=False), before[1]) == set()
    assert after[1] == before[2]


def test_nothing_of_the_launcher_is_inside(fence: Fence) -> None:
    code = "ls /proc/self/fd | tr '\\n' ' '; grep -h Cap /proc/self/status; unshare -Ur true 2>/dev/null && echo namespace; tr '\\0' '\\n' </proc/1/environ"
    environment = fence.environment(CANARY="of the host")
    before = listening()
    done = fence.enter("sh", "-c", code, shell=SHELL, env=environment)
    assert done.stdout.startswith("0 1 2 3 ")
    assert re.findall(r"Cap(?:Eff|Bnd|Prm|Inh|Amb):\s*(\w+)", done.stdout) == ["0" * 16] * 5
    assert "namespace" not in done.stdout
    assert "CANARY" not in done.stdout
    assert "wg_" not in done.stdout
    logs = list(fence.home.rglob("network.jsonl"))
    assert len(logs) == 1
    assert fence.enter("sh", "-c", f"cat '{logs[0]}' || echo x >>'{logs[0]}'", shell=SHELL).stdout == ""
    with start(fence, "sh", "-c", "echo ready; sleep 0.3") as process:
        assert process.stdout
        process.stdout.readline()
        assert listening() <= before


# --- what is carried


MOVED = """
import hashlib
before, port, host, size = arguments[0], arguments[1], arguments[2], arguments[3]
def one(number, size):
    block = hashlib.sha256(b'%d' % number).digest() * 512
    sock = socket.create_connection((host, port), 10)
    sock.settimeout(60)
    sock.sendall(before)
    skip = arguments[4]
    while skip: skip -= len(sock.recv(skip))
    there, back = hashlib.sha256(), hashlib.sha256()
    def send():
        left = size
        while left:
            piece = block[:left]; sock.sendall(piece); there.update(piece); left -= len(piece)
        sock.shutdown(socket.SHUT_WR)
    thread = threading.Thread(target=send); thread.start()
    while data := sock.recv(262144): back.update(data)
    thread.join(); sock.close()
    return there.hexdigest() == back.hexdigest()
"""


def ways() -> list[tuple[bytes, int, str, int]]:
    tunnel = connect(f"{NAME}:{PORT}")
    return [(b"", PORT, NAME, 0), (tunnel, HTTP, LOOPBACK, 39), (socks(NAME, PORT), SOCKS, LOOPBACK, 12)]


def test_everything_arrives_as_it_was_sent(fence: Fence, server: Server) -> None:
    with inside(fence, *server.at(NAME, PORT)) as client:
        for before, port, host, skip in ways():
            assert client.do(MOVED + "result = one(1, size)", before, port, host, 64 * 2**20, skip) is True
            server.seen.clear()
        before, port, host, skip = ways()[0]
        many = """
found = []
threads = [threading.Thread(target=lambda n=n: found.append(one(n, size))) for n in range(200)]
[t.start() for t in threads]; [t.join() for t in threads]
result = [len(found), all(found)]
"""
        assert client.do(MOVED + many, before, port, host, 100_000, skip) == [200, True]
        server.seen.clear()


def descriptors(client: Inside) -> int:
    return len(os.listdir(f"/proc/{client.process.pid}/fd"))


def test_two_thousand_connections_leave_no_descriptor(fence: Fence, server: Server) -> None:
    with inside(fence, *server.at(NAME, PORT)) as client:
        client.talk(PORT, b"x", host=NAME, enough=b"x")
        time.sleep(0.1)
        before = descriptors(client)
        code = "result = sum(talk(arguments[0], b'x', host=arguments[1], enough=b'x')[0] == b'x' for _ in range(2000))"
        assert client.do(code, PORT, NAME) == 2000
        assert until(lambda: descriptors(client) <= before)
        server.seen.clear()


def test_a_slow_reader_holds_back_the_sender(fence: Fence) -> None:
    def flood(sock: socket.socket, seen: bytearray) -> None:
        for _ in range(64):
            sock.sendall(bytes(2**20))

    flooding = Server(flood)
    try:
        with inside(fence, *flooding.at(NAME, PORT)) as client:
            code = "globals_ = __builtins__; sock = socket.create_connection((arguments[0], arguments[1])); time.sleep(1); import builtins; builtins.kept = sock; result = 1"
            client.do(code, NAME, PORT)
            text = Path(f"/proc/{client.process.pid}/status").read_text()
            assert int(re.search(r"VmRSS:\s+(\d+)", text)[1]) < 60 * 1024  # type: ignore[index]
            assert client.do("import builtins\nn = 0\nwhile d := builtins.kept.recv(2**20): n += len(d)\nresult = n") == 64 * 2**20
    finally:
        flooding.close()


def test_limits_hold_and_it_recovers(fence: Fence, server: Server) -> None:
    with inside(fence, *server.at(NAME, PORT)) as client:
        code = """
socks_ = [socket.create_connection(('127.0.0.1', 3128)) for _ in range(512)]
time.sleep(0.5)
first, second = talk(3128, wait=2), talk(arguments[0], b'x', host=arguments[1], wait=2)
[s.close() for s in socks_]; time.sleep(0.5)
result = [first[0][:12], second, talk(arguments[0], b'x', host=arguments[1], enough=b'x')[0]]
"""
        # DNS goes by datagrams: the name is known though no connection is to be had.
        assert client.do(code, PORT, NAME) == [b"HTTP/1.1 429", [b"", "reset"], b"x"]
        assert client.talk(HTTP, get("web.example.com", extra=b"X: " + b"a" * 17000 + b"\r\n"))[0].startswith(b"HTTP/1.1 431 ")


def test_who_says_nothing_is_let_go(changed: Callable[..., Fence], server: Server) -> None:
    one = changed(("egress/connect.py", "HANDSHAKE = 30.0", "HANDSHAKE = 0.5"))
    with inside(one, *server.at("web.example.com", 443)) as client:
        assert client.talk(HTTP, b"CONNECT ")[0].startswith(b"HTTP/1.1 408 ")
        assert client.talk(SOCKS, b"\5")[1] in ("eof", "reset")
        assert client.talk(443, b"\x16\3\1", host="web.example.com")[1] in ("eof", "reset")
        code = "s = socket.create_connection(('127.0.0.1', 3128))\nresult = 0\ntry:\n    while True: s.send(b'G'); time.sleep(0.1); result += 1\nexcept OSError: pass"
        assert client.do(code) < 20  # type: ignore[operator]


# --- the log


def test_the_log_is_turned_over_and_never_written_through_a_link(changed: Callable[..., Fence]) -> None:
    one = changed(("egress/log.py", "8 * 1024 * 1024", "1000"))
    with inside(one) as client:
        for number in range(20):
            client.dns(b"n%d.example.org" % number)
    (log,) = one.home.rglob("network.jsonl")
    assert Path(f"{log}.1").stat().st_size <= 1400
    assert all(json.loads(line)["verdict"] == "deny" for line in log.read_text().splitlines())
    target = one.base / "target"
    target.write_text("")
    log.unlink()
    log.symlink_to(target)
    done = one.enter("true", shell=SHELL)
    assert done.returncode == 0
    assert "warning" in done.stderr
    assert target.read_text() == ""


# --- fallback and upstream


def test_where_only_bwrap_may_make_namespaces_proxies_work(changed: Callable[..., Fence], server: Server) -> None:
    one = changed(NO_UNSHARE)
    with inside(one, *server.at(NAME, PORT)) as client:
        assert client.talk(HTTP, connect(f"{NAME}:{PORT}") + b"ping", enough=b"ping")[0].endswith(b"ping")
        assert client.talk(HTTP, connect("evil.com:443"))[0].startswith(b"HTTP/1.1 403")
        assert client.talk(PORT, host=NAME)[1] == "no name"
        assert client.close().count("wavegen: note") == 1
    assert one.enter("sh", "-c", "exit 5", shell=SHELL).returncode == 5
    assert one.enter("no-such-command", shell=SHELL).returncode == 127


def test_the_fallback_leaves_the_commands_words_alone(changed: Callable[..., Fence]) -> None:
    assert changed(NO_UNSHARE).enter("echo", "--state", shell=SHELL).stdout == "--state\n"


def test_without_room_for_a_process_nothing_is_run(changed: Callable[..., Fence]) -> None:
    one = changed()
    if one.uid == 0:
        pytest.skip("root has no such bound")
    argv = one.argv(SHELL, ("true",))
    at = argv.index("--") + 1 if "setpriv" in argv else 0
    done = subprocess.run([*argv[:at], "prlimit", "--nproc=2", "--", *argv[at:]], cwd=one.project, env=one.environment(), capture_output=True, text=True)
    assert done.returncode in (125, 254)  # 254 is bash, where it is the one that cannot fork


def test_an_upstream_proxy_is_used_and_its_password_kept(changed: Callable[..., Fence]) -> None:
    def proxy(sock: socket.socket, seen: bytearray) -> None:
        while b"\r\n\r\n" not in seen:
            seen += sock.recv(65536)
        if b"web.example.com:443" in seen:
            sock.sendall(b"HTTP/1.1 407 No\r\n\r\n")
            return
        sock.sendall(b"HTTP/1.1 200 OK\r\n\r\nearly")
        echo(sock, seen)

    above, one = Server(proxy), changed(more="upstream_proxy: true")
    environment = one.environment(HTTPS_PROXY=f"http://user:pass%77ord@{LOOPBACK}:{above.port}")
    try:
        with inside(one, env=environment) as client:
            assert client.talk(PORT, b"ping", host=NAME, enough=b"ping")[0] == b"earlyping"
            said = above.said()
            assert said.startswith(f"CONNECT {NAME}:{PORT} HTTP/1.1\r\n".encode())
            assert base64.b64encode(b"user:password") in said
            assert client.talk(HTTP, connect("web.example.com:443"))[0].startswith(b"HTTP/1.1 502")
            assert client.talk(HTTP, connect("evil.com:443"))[0].startswith(b"HTTP/1.1 403")
            assert b"evil.com" not in above.said()
            # Of PID 1, which is outside the second layer, even the reading is refused where the kernel has that layer.
            read = "try:\n    first = open('/proc/1/environ').read()\nexcept PermissionError:\n    first = 'refused'\nresult = [dict(os.environ), first]"
            told = str(client.do(read))
            assert "pass%77ord" not in told
            assert "WAVEGEN_SHELL" in told
            assert not processes("pass%77ord")
    finally:
        above.close()


def test_ctrl_c_reaches_the_command_once(fence: Fence) -> None:
    main, other = pty.openpty()
    command = "trap 'echo caught' INT; echo ready; sleep 2; sleep 0.2; exit 4"
    process = subprocess.Popen(
        fence.argv(SHELL, ("sh", "-c", command)),
        cwd=fence.project,
        env=fence.environment(),
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(other, termios.TIOCSCTTY, 0),  # noqa: PLW1509
    )
    os.close(other)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(main, 1024)
    os.write(main, b"\x03")
    status = process.wait(20)
    with contextlib.suppress(OSError):
        while more := os.read(main, 1024):
            shown += more
    os.close(main)
    assert (status, shown.count(b"caught")) == (4, 1)


def test_a_stopped_job_goes_on(fence: Fence) -> None:
    main, other = pty.openpty()
    shell = ["setsid", "--ctty", "bash", "--norc", "-i"]
    if fence.uid != os.getuid():
        ids = [f"--reuid={fence.uid}", f"--regid={fence.uid}", "--clear-groups"]
        shell[2:2] = ["setpriv", *ids, "--"]
    process = subprocess.Popen(shell, cwd=fence.project, env=fence.environment(PS1="$ "), stdin=other, stdout=other, stderr=other)
    os.close(other)
    said = b""

    def read(word: bytes) -> bool:
        nonlocal said
        end = time.monotonic() + 60
        while word not in said and time.monotonic() < end:
            if select.select([main], [], [], 0.1)[0]:
                said += os.read(main, 4096)
        return word in said

    try:
        os.write(main, b".wavegen/bin/restricted sh -c 'echo rea''dy; sleep 1; echo wo''ke; exit 6'\n")
        assert read(b"ready\r\n"), said
        time.sleep(0.3)
        os.write(main, b"\x1a")
        assert read(b"Stopped"), said
        os.write(main, b"fg\n")
        assert read(b"woke\r\n"), said
        os.write(main, b"echo status=$?\n")
        assert read(b"status=6"), said
    finally:
        process.kill()
        process.wait()
        os.close(main)


# --- what was found by trying to break it


def test_the_launcher_is_the_wrappers_own_whatever_project_is_named(changed: Callable[..., Fence]) -> None:
    one, hostile = changed(), changed()
    (hostile.project / ".wavegen/launcher/start.py").write_text("import os; os.write(2, b'on the host'); os._exit(0)\n")
    (hostile.project / ".wavegen/launcher/__main__.py").write_text("import os; os.write(2, b'on the host'); os._exit(0)\n")
    (hostile.project / ".wavegen/launcher/etc/hosts").unlink()
    (hostile.project / ".wavegen/launcher/etc/hosts").symlink_to(one.home / "hidden")
    wrapper = str(one.project / ".wavegen/bin" / SHELL)
    argv = [wrapper if word.endswith(f"bin/{SHELL}") else word for word in hostile.argv(SHELL, ("cat", "/etc/hosts"))]
    argv[argv.index(wrapper) + 1 : argv.index(wrapper) + 1] = ["--project", str(hostile.project)]
    done = subprocess.run(argv, cwd=hostile.project, env=hostile.environment(), capture_output=True, text=True)
    assert "on the host" not in done.stderr
    assert (done.returncode, "127.0.0.1 localhost" in done.stdout) == (0, True), done.stderr


def test_a_wrapper_that_is_named_from_elsewhere_knows_its_project(changed: Callable[..., Fence]) -> None:
    one = changed()
    named = os.path.relpath(one.project / ".wavegen/bin" / SHELL, one.home)
    argv = [named if word.endswith(f"bin/{SHELL}") else word for word in one.argv(SHELL, ("pwd",))]
    done = subprocess.run(argv, cwd=one.home, env=one.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, str(one.project))


def test_a_link_to_the_wrapper_finds_its_launcher(changed: Callable[..., Fence]) -> None:
    one = changed()
    (one.home / "bin").mkdir()
    (one.home / "bin/enter").symlink_to(one.project / ".wavegen/bin" / SHELL)
    one.own()
    argv = [str(one.home / "bin/enter") if word.endswith(f"bin/{SHELL}") else word for word in one.argv(SHELL, ("echo", "inside"))]
    done = subprocess.run(argv, cwd=one.project, env=one.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "inside\n")


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "http://a b:1", "http://user:pw@:1", "http://[::1:1"])
def test_a_bad_upstream_proxy_is_said_before_anything_runs(changed: Callable[..., Fence], url: str) -> None:
    one = changed(more="upstream_proxy: true")
    done = subprocess.run(one.argv(SHELL, ("touch", "ran")), cwd=one.project, env=one.environment(HTTPS_PROXY=url), capture_output=True, text=True)
    assert (done.returncode, "HTTPS_PROXY of the host" in done.stderr) == (125, True)
    assert not (one.project / "ran").exists()


def test_a_login_of_odd_bytes_is_passed_on(changed: Callable[..., Fence]) -> None:
    above, one = Server(echo), changed(more="upstream_proxy: true")
    try:
        environment = one.environment(HTTPS_PROXY=f"http://u%zz:p%C3%A4@{LOOPBACK}:{above.port}")
        with inside(one, env=environment) as client:
            client.talk(HTTP, connect(f"{NAME}:{PORT}"))
        assert base64.b64encode(b"u%zz:p\xc3\xa4") in above.said()
    finally:
        above.close()


def test_refusals_do_not_push_out_what_was_let_through(changed: Callable[..., Fence], server: Server) -> None:
    one = changed()
    flood = (
        "import socket\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('127.0.0.1', 53))\n"
        "for i in range(3000):\n"
        "    name = b'%063d' % i\n"
        "    s.send(b'ab\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0' + b''.join(bytes([len(name)]) + name for _ in range(3)) + b'\\0\\0\\1\\0\\1'); s.recv(512)\n"
    )
    assert one.enter("/usr/bin/python3", "-c", flood, shell=SHELL).returncode == 0
    (log,) = (one.home / ".local/state/wavegen").glob(f"*/{SHELL}/network.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert 100 <= len(lines) <= 500
    assert all(len(line["name"]) <= 128 for line in lines)


def is_only_noted(path: Path) -> bool:
    """Whether a file of the state says which compiled launcher was loaded, by inode and time, and holds none itself."""
    return bool(re.fullmatch(rb"[0-9]+ [0-9]+\n", path.read_bytes()))


def test_compiled_forms_are_not_taken_from_where_a_command_may_write(changed: Callable[..., Fence]) -> None:
    one = changed(more="paths: [{path: ~/.local, access: write}]")
    (one.home / ".local").mkdir(exist_ok=True)
    os.chown(one.home / ".local", one.uid, one.uid)
    assert one.enter("true", shell=SHELL).returncode == 0
    assert not list((one.home / ".local").rglob("*.pyc"))
    assert all(is_only_noted(path) for path in (one.home / ".local").rglob("launcher-*"))
    # It lies beside the launcher, where every shell only reads.
    kept = one.project / ".wavegen/launcher/__pycache__"
    names = {path.name for path in kept.iterdir()}
    assert len(names) == 1
    done = one.enter("sh", "-c", f"echo x >>{kept}/planted; echo x >>{kept}/{names.pop()}; rm -r {kept}; mv {kept} {kept}.old", shell=SHELL)
    assert done.returncode != 0
    assert {path.name.partition("-")[0] for path in kept.iterdir()} == {"launcher"}
    assert one.enter("echo", "well", shell=SHELL).stdout == "well\n"


@pytest.mark.parametrize("named", ["", "paths: [{path: vendor, access: read, optional: true}], "])
def test_another_shell_of_the_project_plants_no_compiled_launcher(named: str) -> None:
    writer = "shells: {writer: {network: none, paths: [{path: ~/.local/state, access: write}]}}"
    one = Fence.create(f"metadata: {{name: planted}}\nruntime: {{sandbox: {{{named}default_allowed_domains: [a.b.org], {writer}}}}}\n", uid=users()[-1])
    try:
        (one.home / ".local/state").mkdir(parents=True, exist_ok=True)
        (one.home / "other").mkdir()
        one.own()
        # What would be run, had the launcher a cache where the other shell may write with another XDG_STATE_HOME.
        assert one.enter("true", shell=SHELL).returncode == 0
        done = one.enter("sh", "-c", "touch ~/.local/state/mine && echo written", shell="writer", env=one.environment(XDG_STATE_HOME=str(one.home / "other")))
        assert done.stdout == "written\n", done.stderr
        # What the starts without that variable believe is out of its reach, too.
        plant = "for note in ~/.local/state/wavegen/*/launcher-*; do echo 1 1 >$note; done; mv ~/.local/state/wavegen ~/.local/state/aside; echo x >~/.local/state/wavegen/x"
        one.enter("sh", "-c", plant, shell="writer", env=one.environment(XDG_STATE_HOME=str(one.home / "other")))
        assert not (one.home / ".local/state/aside").exists()
        assert not [path for path in (one.home / ".local/state/wavegen").rglob("*") if path.is_file() and path.read_text() in ("1 1\n", "x\n")]
        assert not list((one.home / ".local/state").rglob("*.pyc"))
        assert all(is_only_noted(path) for path in (one.home / ".local/state").rglob("launcher-*"))
    finally:
        one.remove()


def test_a_terminal_is_told_what_is_missing(fence: Fence) -> None:
    for command, status, said in (
        (("no-such",), 127, b"no-such: command not found inside (add its package"),
        (("/etc/hosts",), 126, b"/etc/hosts cannot be executed inside"),
        (("sh", "-c", "exit 127"), 127, b""),
        (("-",), 127, b"-: command not found inside"),
    ):
        main, other = pty.openpty()
        process = subprocess.Popen(fence.argv(SHELL, ("--", *command)), cwd=fence.project, env=fence.environment(), stdin=other, stdout=other, stderr=other)
        os.close(other)
        shown = b""
        with contextlib.suppress(OSError):
            while more := os.read(main, 1024):
                shown += more
        os.close(main)
        assert (process.wait(20), said in shown, b"not found inside" in shown) == (status, True, b"not found inside" in said), shown


def test_too_few_processes_for_a_lookup_end_one_connection_and_not_the_shell(changed: Callable[..., Fence]) -> None:
    one = changed(("egress/loop.py", "_thread.start_new_thread(self._run_thread_work, (task, result, work))", "raise RuntimeError"))
    with inside(one) as client:
        assert client.talk(HTTP, connect("web.example.com:443"))[0].startswith(b"HTTP/1.1 502")
        assert client.talk(HTTP, connect("evil.com:443"))[0].startswith(b"HTTP/1.1 403")


ODD = '"127.0.0.1:8080", "0.0.0.0:8081", "224.0.0.1:8082", "198.18.1.1:8083", "255.255.255.255:443", "[::1]:8084", "[fe80::1]:8085", "[2606:4700::1]:8086"'


def test_odd_addresses_that_are_listed_keep_no_shell_from_starting() -> None:
    one = Fence.create(
        f'metadata: {{name: odd}}\nruntime: {{sandbox: {{default_allowed_domains: [{ODD}, "1.1.1.1:8087", "1.1.1.1:1080"]}}}}\n', uid=users()[-1]
    )
    try:
        done = one.enter("true", shell=SHELL)
        assert (done.returncode, "note" in done.stderr) == (0, False), done.stderr
    finally:
        one.remove()


@pytest.mark.parametrize("text", ["x", "a.b:1:c.d:2", "a.b:1:127.0.0.1", "a.b:0:127.0.0.1:1", "a b:1:127.0.0.1:1"])
def test_what_is_connected_to_instead_is_an_address(fence: Fence, text: str) -> None:
    wrapper = fence.argv(SHELL, ("--connect-to", text, "--", "true"))
    done = subprocess.run(wrapper, cwd=fence.project, env=fence.environment(), capture_output=True, text=True)
    assert (done.returncode, "is not NAME:PORT:ADDRESS:PORT" in done.stderr) == (125, True)


def test_run_takes_wavegens_own_launcher_whatever_the_project_has(tmp_path: Path) -> None:
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    (project / "wave.yaml").write_text(MANIFEST.format(more=""))
    assert call("render", cwd=project).status == 0
    argv = [sys.executable, "-m", "wavegen", "run", "--shell", SHELL, "--", "echo", "inside"]
    environment = {**os.environ, "HOME": str(home), "XDG_STATE_HOME": ""}
    assert subprocess.run(argv, cwd=project, env=environment, capture_output=True).returncode == 0
    for name in ("__main__", "start", "egress/serve"):
        with (project / f".wavegen/launcher/{name}.py").open("a") as stream:
            stream.write(f"\nopen({str(tmp_path / 'escaped')!r}, 'w')\n")
    done = subprocess.run(argv, cwd=project, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "inside\n"), done.stderr
    assert not (tmp_path / "escaped").exists()
    # What is rendered refuses to load them.
    stub = [str(project / ".wavegen/bin" / SHELL), "echo", "inside"]
    (project / ".wavegen/launcher/__main__.py").write_bytes((ROOT / "wavegen/launcher/__main__.py").read_bytes())
    done = subprocess.run(stub, cwd=project, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, "is not what was rendered" in done.stderr) == (125, "", True), done.stderr
    assert not (tmp_path / "escaped").exists()
