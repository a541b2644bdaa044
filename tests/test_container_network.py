"""The network of a container, served from outside of it: the launcher, both first processes inside, the service for compose."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from engine import Engine, Podman
from fence import PYTHON, name_of, users
from helpers import ROOT, masks
from stand_in import HTTP, LOOPBACK, SOCKS, Inside, Server, connect, echo, get, hello, inside, socks, web

RUNTIME = ROOT / "wavegen/runtime"
NAME, OTHER, PORT, NOBODY = "good.example.com", "other.example.com", 7000, 65534
STAGES = {"python": (PYTHON, "-I", "-S", str(RUNTIME / "stage.py")), "perl": ("perl", "-T", str(RUNTIME / "stage.pl"))}
LISTED = ((f"{NAME}", ""), ("*.wild.example.com", ""), (f"first.example.com:{PORT}", ""), ("8.8.4.4:7001", ""), ("[2606:4700::1]:7002", ""))
BOTH = pytest.mark.parametrize("stage", [pytest.param("python"), pytest.param("perl", marks=pytest.mark.needs("perl"))])

# A client of no engine: the container that it starts has a network of its own and outlives it; signals are passed on.
CLIENT = r"""
import os, signal, subprocess, sys
place, user, start, *words = sys.argv[1:]
inside = '''
import array, fcntl, os, signal, socket, struct, sys
place, user, start, *words = sys.argv[1:]
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
(flags,) = struct.unpack_from("H", fcntl.ioctl(control, 0x8913, struct.pack("16sH14x", b"lo", 0)), 16)
fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", flags | 1))
with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as stream:
    stream.write(start)
drop = ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
drop += [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if int(user) != os.getuid() and os.environ.get("REAL_ROOT") else []
os.environ.pop("REAL_ROOT", None)
# As an engine starts it: whatever its client was told to ignore.
for number in (signal.SIGINT, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
os.execvp("sh", ["sh", "-c", 'for name in hosts resolv.conf nsswitch.conf; do mount --bind "$0/$name" /etc/$name; done; exec "$@"', place, *drop, *words])
'''
own = ["unshare", "--net", "--mount"] + (["--user", "--map-root-user"] if os.getuid() else [])
if not os.getuid():
    os.environ["REAL_ROOT"] = "1"
container = subprocess.Popen([*own, sys.executable, "-I", "-S", "-c", inside, place, user, start, *words])
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH):
    signal.signal(number, lambda number, _: container.send_signal(number))
with open(os.environ["CONTAINER"], "w") as stream:
    stream.write(str(container.pid))
status = container.wait()
os._exit(status if status >= 0 else 128 - status)
"""


@dataclass(frozen=True)
class Container:
    """A place for containers of that client: a run directory of the user's, what is kept, and how the launcher is called."""

    base: Path
    uid: int
    stage: str
    start: int = 0
    """The first port that anybody may listen on."""
    rules: tuple[str, ...] = field(default=(), kw_only=True)
    user: int | None = None
    descriptors: tuple[str, ...] = ()

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.base / "project"

    @property
    def channel(self) -> Path:
        """The launcher's socket."""
        return self.base / "run" / "channel"

    @property
    def log(self) -> list[dict[str, object]]:
        """What was written down."""
        return [json.loads(line) for line in (self.base / "state/network.jsonl").read_text().splitlines()]

    def environment(self, **more: str) -> dict[str, str]:
        """The caller's."""
        return {
            "HOME": str(self.base),
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "CONTAINER": str(self.base / "state/container"),
        } | more

    def words(self) -> list[str]:
        """The client and the first process."""
        client = [PYTHON, "-I", "-S", "-c", CLIENT, str(RUNTIME), str(self.uid), str(self.start)]
        return [*client, *STAGES[self.stage], str(self.channel), "--"]

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """The launcher with a command, and with options before that."""
        at = command.index("--") if "--" in command else -1
        options, command = command[: max(at, 0)], command[at + 1 :]
        own = ("--state", str(self.base / "state"), "--shell", shell, "--project", str(self.project), "--words", str(len(command)), *self.descriptors)
        own += ("--channel", str(self.channel), "--user", str(self.uid if self.user is None else self.user))
        return [PYTHON, "-I", "-S", str(RUNTIME / "launch.py"), *own, *self.rules, *options, "--", *self.words(), *command]

    def enter(self, *command: str, **more: object) -> subprocess.CompletedProcess[str]:
        """Run a command inside and wait for it."""
        options = {"capture_output": True, "text": True, "timeout": 30, "stdin": subprocess.DEVNULL, **more}
        return subprocess.run(self.argv("default", ("--", *command)), cwd=self.project, env=self.environment(), **options)  # type: ignore[call-overload,no-any-return]


def listed(*more: str) -> tuple[str, ...]:
    return (*(word for number, (entry, flags) in enumerate(LISTED) for word in ("--allow", entry, f"wave.yaml:{number}", flags)), *more)


def made(uid: int, stage: str = "python", **more: object) -> Container:
    base = Path(tempfile.mkdtemp(prefix="wavegen-container-"))
    base.chmod(0o755)
    for name in ("run", "state", "project"):
        (base / name).mkdir(mode=0o700)
    if uid != os.getuid():
        os.chown(base / "run", uid, uid)
    rules = more.pop("rules", listed())
    return Container(base, uid, stage, rules=rules, **more)  # type: ignore[arg-type]


@pytest.fixture
def box() -> Iterator[Container]:
    one = made(users()[-1])
    yield one
    subprocess.run(["rm", "-rf", str(one.base)], check=True)


pytestmark = pytest.mark.needs("bwrap")  # where that works, namespaces can be made


@dataclass(frozen=True)
class Place:
    """A container, a client in it, and what stands in for the world."""

    box: Container
    client: Inside
    tunnel: Server
    web: Server
    local: Server
    elsewhere: Server


@pytest.fixture(
    scope="module",
    params=[(uid, stage) for uid in users() for stage in STAGES],
    ids=lambda found: f"{name_of(found[0])}-{found[1]}",
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    uid, stage = request.param
    tunnel, site, local, elsewhere = Server(echo), Server(web), Server(echo), Server(echo)
    box = made(uid, stage, rules=listed("--loopback", str(local.port), "wave.yaml:9"))
    options = [*tunnel.at("first.example.com", PORT), *tunnel.at("8.8.4.4", 7001), *elsewhere.at(OTHER, 443), *elsewhere.at(OTHER, 80)]
    for name in (NAME, "a.wild.example.com"):
        options += [*tunnel.at(name, 443), *site.at(name, 80)]
    try:
        with inside(box, *options) as client:
            yield Place(box, client, tunnel, site, local, elsewhere)
    finally:
        for server in (tunnel, site, local, elsewhere):
            server.close()
        subprocess.run(["rm", "-rf", str(box.base)], check=True)


def until(what: object, seconds: float = 10) -> bool:
    assert callable(what)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.01)
    return bool(what())


# --- who may be reached


def test_an_allowed_name_is_reached_by_every_way(place: Place) -> None:
    assert place.client.talk(HTTP, connect(f"first.example.com:{PORT}") + b"ping", enough=b"ping")[0].endswith(b"ping")
    assert place.client.talk(SOCKS, socks("first.example.com", PORT) + b"ping", enough=b"ping")[0].endswith(b"ping")
    assert place.client.talk(PORT, b"ping", host="first.example.com", enough=b"ping")[0] == b"ping"
    assert place.client.talk(HTTP, get(NAME))[0].endswith(b"ok")
    assert place.client.talk(80, b"GET / HTTP/1.0\r\n\r\n", host="a.wild.example.com")[0].endswith(b"ok")
    place.tunnel.said()


def test_a_name_stands_for_an_address_of_the_loopback(place: Place) -> None:
    for tcp in (False, True):
        code, address = place.client.dns(NAME.encode(), tcp=tcp)
        assert (code, address[0], address[1] >> 6) == (0, 127, 1)
        code, wild = place.client.dns(b"x.wild.example.com", tcp=tcp)
        assert (code, wild[0], wild[1] >> 6) == (0, 127, 1)
        assert wild != address
    assert place.client.do("result = socket.gethostbyaddr(socket.gethostbyname(arguments[0]))[0]", NAME) == NAME


def test_who_asks_a_proxy_for_such_an_address_means_the_name(place: Place) -> None:
    _, address = place.client.dns(b"first.example.com")
    assert place.client.talk(SOCKS, socks(address, PORT, kind=1) + b"ping", enough=b"ping")[0].endswith(b"ping")
    assert place.client.talk(HTTP, connect(f"{socket.inet_ntoa(address)}:{PORT}") + b"ping", enough=b"ping")[0].endswith(b"ping")
    for nobody in ("127.64.200.1", "127.127.255.254"):
        assert place.client.talk(HTTP, connect(f"{nobody}:{PORT}"))[0].startswith(b"HTTP/1.1 403")
    place.tunnel.said()


def test_a_name_that_is_refused_leads_nowhere(place: Place) -> None:
    for tcp in (False, True):
        assert place.client.dns(OTHER.encode(), tcp=tcp) == (3, b"")
    assert place.client.talk(443, hello(OTHER), host=OTHER) == (b"", "no name")
    assert place.client.talk(HTTP, connect(f"{OTHER}:443"))[0].startswith(b"HTTP/1.1 403")
    assert place.client.talk(SOCKS, socks(OTHER, 443))[0][2:4] == b"\5\2"
    # Addresses that stand for nothing, the machine's own port 443, and the world's.
    for address in ("127.64.200.1", "127.127.255.254", LOOPBACK, "127.63.255.1", "0.0.0.0"):
        assert place.client.talk(443, hello(OTHER), host=address) in ((b"", "reset"), (b"", "eof")), address
    assert place.client.talk(443, hello(OTHER), host="8.8.8.8") == (b"", "error 101")
    assert place.elsewhere.said() == b""


def test_tls_to_another_name_is_ended(place: Place) -> None:
    for port, before, host in ((443, b"", NAME), (HTTP, connect(f"{NAME}:443"), LOOPBACK)):
        got, how = place.client.talk(port, *filter(None, (before, hello(OTHER))), host=host)
        assert got.endswith(b"\x15\x03\x01\0\x02\x02\x70"), (got, how)
    assert place.tunnel.said() == b""
    assert place.client.talk(443, hello(NAME), host=NAME, enough=hello(NAME)[:3])[0][:3] == b"\x16\x03\x01"
    place.tunnel.said()


def test_the_hosts_loopback_is_let_in_where_a_port_of_it_is_listed(place: Place) -> None:
    for host in (LOOPBACK, "localhost", "::1"):
        assert place.client.talk(place.local.port, b"ping", host=host, enough=b"ping")[0] == b"ping", host
    place.local.said()
    assert place.client.talk(HTTP, connect("127.0.0.1:22"))[0].startswith(b"HTTP/1.1 403")


def test_an_address_that_is_listed_is_reached_by_the_proxies_alone(place: Place) -> None:
    assert place.client.talk(HTTP, connect("8.8.4.4:7001") + b"ping", enough=b"ping")[0].endswith(b"ping")
    assert place.client.talk(SOCKS, socks(socket.inet_aton("8.8.4.4"), 7001, kind=1) + b"ping", enough=b"ping")[0].endswith(b"ping")
    assert place.client.talk(7001, host="8.8.4.4") == (b"", "error 101")
    place.tunnel.said()


def test_decisions_are_written_down(place: Place) -> None:
    place.client.talk(HTTP, connect("written.example.org:443"))
    place.client.talk(PORT, b"written", host="first.example.com", enough=b"written")
    place.tunnel.said()
    assert until(lambda: any(line["up"] == 7 for line in place.box.log))
    refused = [line for line in place.box.log if line["name"] == "written.example.org"]
    assert [(line["verdict"], line["via"], line["reason"], line["shell"]) for line in refused] == [("deny", "connect", "not-listed", "restricted")]
    allowed = [line for line in place.box.log if line["up"] == 7]
    assert [(line["name"], line["verdict"], line["via"], line["line"]) for line in allowed] == [("first.example.com", "allow", "direct", "wave.yaml:2")]


def test_nothing_of_the_channel_is_inside(place: Place) -> None:
    """The socket is gone, and no descriptor leads out of the container."""
    assert not place.box.channel.exists()
    code = (
        "result = [os.readlink(f'/proc/self/fd/{name}') for name in os.listdir('/proc/self/fd') if int(name) > 2 and os.path.exists(f'/proc/self/fd/{name}')]"
    )
    assert place.client.do(code) == []
    blocked = "result = [line for line in open('/proc/self/status') if line.startswith(('SigBlk', 'SigIgn'))]"
    shown = masks("".join(place.client.do(blocked)))  # type: ignore[arg-type]
    assert (shown["SigBlk"], shown["SigIgn"] & ~(1 << 12 | 1 << 24)) == (0, 0)  # the two are Python's own


# --- how it starts and ends


@BOTH
@pytest.mark.parametrize(
    ("command", "status"),
    [(("true",), 0), (("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -TERM $$"), 143), (("/etc/passwd",), 126), (("no-such-command",), 127)],
)
def test_the_status_is_the_clients(box: Container, stage: str, command: tuple[str, ...], status: int) -> None:
    one = Container(box.base, box.uid, stage, rules=box.rules)
    done = one.enter(*command)
    assert done.returncode == status, done.stderr
    assert re.search({126: "cannot be executed inside: Permission denied", 127: "command not found inside"}.get(status, "^$"), done.stderr)
    assert not one.channel.exists()


@BOTH
def test_the_streams_signals_and_words_are_the_commands(box: Container, stage: str) -> None:
    one = Container(box.base, box.uid, stage, rules=box.rules)
    code = 'cat; echo err >&2; printf "%s|" "$0" "$@"; grep Sig[BI] /proc/self/status'
    done = one.enter("sh", "-c", code, "a b", "--", "", "\u00e9\n", input="in\n", stdin=None)
    assert done.stderr == "err\n"
    words, _, signals = done.stdout.rpartition("|")
    assert (words, masks(signals)) == ("in\na b|--||\u00e9\n", {"SigBlk": 0, "SigIgn": 0})


@BOTH
def test_where_only_root_may_listen_the_proxies_work(box: Container, stage: str) -> None:
    one = Container(box.base, box.uid, stage, 1024, rules=box.rules)
    done = one.enter("sh", "-c", 'echo "$JAVA_TOOL_OPTIONS"')
    assert done.stdout == "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128\n"
    assert done.stderr.count("wavegen: note: ports 53, 80, 443 cannot be listened on here") == 1
    assert "only programs that know a proxy" in done.stderr
    server = Server(echo)
    with inside(one, *server.at(NAME, PORT), "--allow", f"{NAME}:{PORT}", "wave.yaml:1", "") as client:
        assert client.talk(HTTP, connect(f"{NAME}:{PORT}") + b"ping", enough=b"ping")[0].endswith(b"ping")
    server.close()


def test_a_container_that_needs_no_proxy_is_told_of_none(box: Container) -> None:
    assert box.enter("sh", "-c", 'echo "<$JAVA_TOOL_OPTIONS>"').stdout == "<>\n"


def test_a_client_that_ends_early_is_believed(box: Container) -> None:
    argv = box.argv("default", ())
    argv[argv.index("--") + 1 :] = ["/bin/sh", "-c", "echo 'docker: no such image' >&2; exit 125"]
    done = subprocess.run(argv, env=box.environment(), capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr, box.channel.exists()) == (125, "docker: no such image\n", False)
    argv[argv.index("--") + 1 :] = ["/no/such/engine"]
    done = subprocess.run(argv, env=box.environment(), capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr.startswith("wavegen: error: /no/such/engine")) == (125, True)


def test_a_channel_that_is_there_already_is_not_taken(box: Container) -> None:
    box.channel.write_text("mine")
    done = box.enter("echo", "ran")
    assert (done.returncode, done.stdout, "cannot be listened at" in done.stderr) == (125, "", True)
    assert box.channel.read_text() == "mine"


def test_a_channel_deep_in_the_tree_works(box: Container) -> None:
    """A socket's address has 107 bytes; inside, the path is short."""
    deep = box.base / "run" / "/".join(["d" * 60] * 3)
    deep.mkdir(parents=True)
    for one in (deep, *deep.parents[:2]):
        os.chown(one, box.uid, box.uid)
    argv = box.argv("default", ("true",))
    argv[argv.index("--channel") + 1] = str(deep / "channel")
    client = argv.index(str(box.channel))
    argv[client] = f"/proc/self/fd/9/{deep.name}/channel"
    wrapped = ["sh", "-c", 'exec 9<"$0"; exec "$@"', str(deep.parent)]
    argv[argv.index("--") + 1 :] = [*box.words()[:8], *wrapped, *argv[argv.index("--") + 9 :]]
    done = subprocess.run(argv, env=box.environment(), capture_output=True, text=True, timeout=20)
    assert done.returncode == 0, done.stderr


# Says when it has connected, what it was told, and whether it may go on.
SLOW = r"""
import socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
while sock.recv(65536) != b"!": pass
sock.settimeout(0.5)
try: print("early", sock.recv(10))
except TimeoutError: print("waits")
sock.settimeout(10)
listener = socket.socket(); listener.bind(("127.0.0.1", 3128)); listener.listen()
if sys.argv[2] == "wrong": listener = open("/dev/null")
import os
print("there" if os.path.exists(sys.argv[1]) else "gone")
socket.send_fds(sock, [b"\0\0"], [listener.fileno()])
try:
    sock.send(b"!")
    print(sock.recv(10))
except (BrokenPipeError, ConnectionResetError): print(b"")
print("there" if os.path.exists(sys.argv[1]) else "gone")
"""


@pytest.mark.parametrize(("how", "said"), [("right", "waits\nthere\nb'!'\ngone\n"), ("wrong", "waits\nthere\nb''\nthere\n")])
def test_nobody_goes_on_before_the_sockets_are_taken_over(box: Container, how: str, said: str) -> None:
    argv = box.argv("default", ())
    at = argv.index(STAGES["python"][-1])
    argv[at - 3 :] = [PYTHON, "-I", "-S", "-c", SLOW, str(box.channel), how]
    done = subprocess.run(argv, env=box.environment(), capture_output=True, text=True, timeout=20)
    assert (done.stdout, done.returncode) == (said, 0), done.stderr
    assert not box.channel.exists()


@BOTH
def test_a_first_process_whose_launcher_is_silent_or_gone_starts_nothing(tmp_path: Path, stage: str) -> None:
    path = tmp_path / "channel"
    command = (*STAGES[stage], str(path), "--", "echo", "RAN")
    done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    assert (done.returncode, done.stdout, "does not answer: No such file" in done.stderr or "No such file" in done.stderr) == (125, "", True)
    for words in ((), (b"!",), (b"tcp/127.0.0.1/1 rubbish", b"!"), (b"tcp/127.0.0.1/x",), (b"tcp/192.0.2.1/4711", b"!")):
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
            listener.listen()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            peer, _ = listener.accept()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it may have had enough
                for word in words:
                    peer.send(word)
            said = peer.recv(100) if words in ((b"!",), (b"tcp/192.0.2.1/4711", b"!")) else b""
            peer.close()
            out, error = process.communicate(timeout=10)
        assert (process.returncode, out, error.count("wavegen: error: ")) == (125, "", 1), (words, error)
        assert said == {1: b"!", 2: b"?99"}.get(len(words) if said else 0, b"")


def test_whoever_is_somebody_else_is_not_listened_to(box: Container) -> None:
    """Another uid may connect where the mode of the socket and of its directory do not keep it from that; root's wrapper serves a user."""
    if os.getuid():
        pytest.skip("one user cannot be another")
    argv = box.argv("default", ("sh", "-c", "echo ran"))
    # A client that waits for a stranger to have tried, and makes the way free for him.
    at = argv.index("--") + 1
    stranger = "import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.connect(sys.argv[1])\ns.settimeout(5)\nprint(s.recv(99))"
    code = (
        'chmod 755 "${0%/*}"; chmod 666 "$0"; setpriv --reuid=65534 --regid=65534 --clear-groups python3 -c "$1" "$0"; python3 -c "$1" "$0"; shift; exec "$@"'
    )
    argv[at:] = ["/bin/sh", "-c", code, str(box.channel), stranger, *argv[at:]]
    done = subprocess.run(argv, env=box.environment(), capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stdout) == (0, "b''\nb''\nran\n"), done.stderr


def test_the_channel_is_the_users_alone(box: Container) -> None:
    argv = box.argv("default", ())
    argv[argv.index("--") + 1 :] = ["/usr/bin/stat", "-c", "%u %a %F", str(box.channel)]
    assert subprocess.run(argv, env=box.environment(), capture_output=True, text=True).stdout == f"{box.uid} 600 socket\n"


def start(box: Container, *command: str, **options: object) -> subprocess.Popen[str]:
    more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen(box.argv("default", ("--", *command)), cwd=box.project, env=box.environment(), text=True, **more)  # type: ignore[call-overload,no-any-return]


def container(box: Container) -> int:
    return int(Path(box.environment()["CONTAINER"]).read_text())


def test_a_signal_is_passed_on(box: Container) -> None:
    for name in ("TERM", "INT", "USR1", "WINCH"):
        with start(box, "sh", "-c", f"trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.02; done") as process:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            process.send_signal(getattr(signal, f"SIG{name}"))
            assert process.stdout.readline() == "got\n"
            assert process.wait(10) == 9


def test_a_signal_before_anything_is_inside_is_passed_on(box: Container) -> None:
    argv = box.argv("default", ())
    argv[argv.index("--") + 1 :] = ["/bin/sh", "-c", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done"]
    with subprocess.Popen(argv, env=box.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 3
    assert not box.channel.exists()


def test_the_terminal_is_the_clients(box: Container) -> None:
    main, other = pty.openpty()
    code = "tty; ps -o pgid= -p $$; echo ready; trap 'echo int; exit 4' INT; while :; do sleep 0.02; done"
    process = subprocess.Popen(["setsid", "--ctty", *box.argv("default", ("sh", "-c", code))], env=box.environment(), stdin=other, stdout=other, stderr=other)
    os.close(other)
    said = b""
    with contextlib.suppress(OSError):
        while b"ready" not in said and select.select([main], [], [], 8)[0]:
            said += os.read(main, 4096)
        time.sleep(0.1)
        os.write(main, b"\x03")
        while select.select([main], [], [], 8)[0]:
            said += os.read(main, 4096)
    os.close(main)
    # The fake client shares the terminal with what it starts, so that it is heard of twice at most.
    assert process.wait(10) == 4, said
    assert b"not a tty" not in said
    assert f"{process.pid}".encode() in said


def test_the_client_is_counted_in_the_groups_of_the_wrapper(box: Container) -> None:
    group = box.base / "group"
    group.mkdir()
    (group / "cgroup.procs").touch()
    argv = box.argv("default", (f"--group={group}", "--", "true"))
    argv[argv.index("--") + 1 :] = ["/bin/sh", "-c", "echo $$"]
    done = subprocess.run(argv, env=box.environment(), capture_output=True, text=True, timeout=20)
    assert done.stdout.strip() == (group / "cgroup.procs").read_text()


# --- its end


def test_the_client_ends_with_the_launcher_though_the_container_goes_on(box: Container) -> None:
    with start(box, "sh", "-c", "echo ready; exec sleep 60") as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        client = client_of(process)
        process.kill()
        try:
            assert until(lambda: not alive(client))
            assert alive(container(box))
        finally:
            os.kill(container(box), signal.SIGKILL)


def client_of(process: subprocess.Popen[str]) -> int:
    (found,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(found)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


# --- the hosts' own proxy


def takes_all(sock: socket.socket, seen: bytearray) -> None:
    """A proxy that makes every tunnel, to an echo."""
    while b"\r\n\r\n" not in seen:
        seen += sock.recv(65536)
    sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    echo(sock, seen)


def test_the_password_of_the_hosts_proxy_reaches_nobody(box: Container) -> None:
    above = Server(takes_all)
    one = Container(box.base, box.uid, "python", rules=(*box.rules, "--upstream"))
    environment = one.environment(wg_upstream=f"http://user:secret@{LOOPBACK}:{above.port}\n")
    try:
        with inside(one, env=environment) as client:
            assert client.talk(PORT, b"ping", host="first.example.com", enough=b"ping")[0] == b"ping"
            assert b"Basic dXNlcjpzZWNyZXQ=" in above.said()
            assert "secret" not in str(client.do("result = dict(os.environ)"))
            (client_pid,) = Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children").read_text().split()
            assert b"secret" not in Path(f"/proc/{client_pid}/environ").read_bytes()
    finally:
        above.close()


# --- the service for compose


@dataclass(frozen=True)
class Service:
    """A sidecar that runs, and where."""

    box: Container
    process: subprocess.Popen[str]

    def stage(self, *command: str) -> list[str]:
        """A container that no launcher starts."""
        return [*self.box.words(), *command]

    def check(self) -> int:
        """How the check of its health ends."""
        return subprocess.run([PYTHON, "-I", "-S", str(RUNTIME / "sidecar.py"), "--check", str(self.box.channel)], timeout=10).returncode

    def connected(self) -> socket.socket:
        """Somebody with the right uid."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.connect(str(self.box.channel))
        sock.settimeout(15)
        return sock

    def agents(self) -> list[int]:
        """The processes that serve."""
        return [int(word) for word in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()]


@contextlib.contextmanager
def service(*options: str, state: bool = True, **more: str) -> Iterator[Service]:
    box = made(os.getuid())
    argv = [PYTHON, "-I", "-S", str(RUNTIME / "sidecar.py"), "--channel", str(box.channel), "--shell", "agent", *box.rules, *options]
    argv += ("--state", str(box.base / "state")) if state else ()
    process = subprocess.Popen(argv, env=box.environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    one = Service(box, process)
    try:
        assert until(lambda: one.check() == 0)
        yield one
    finally:
        process.kill()
        process.communicate()
        subprocess.run(["rm", "-rf", str(box.base)], check=True)


class Agent(Inside):
    """A client in a container that the service serves."""

    def __init__(self, one: Service) -> None:
        entered = Served(one)
        super().__init__(entered)


@dataclass(frozen=True)
class Served:
    """Entered without a launcher."""

    service: Service

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.service.box.project

    def environment(self) -> dict[str, str]:
        """The caller's."""
        return self.service.box.environment()

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """The first process, with the command."""
        del shell
        return self.service.stage(*command[command.index("--") + 1 :])


HOSTILE = r"""
import os, socket, struct, sys
path, how = sys.argv[1:]
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.settimeout(15)
sock.connect(path)
def tcp(port, address="127.0.0.1"):
    one = socket.socket(); one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); one.bind((address, port)); one.listen(); return one
if how == "hundreds":
    for number in range(300):
        pipes = [os.open("/dev/null", os.O_RDONLY) for _ in range(250)]
        try: socket.send_fds(sock, [struct.pack("!100H", *range(100))], pipes)
        except (ConnectionResetError, BrokenPipeError): break
        for one in pipes: os.close(one)
elif how == "file": socket.send_fds(sock, [b"\0\0"], [0])
elif how == "unix":
    one = socket.socket(socket.AF_UNIX); one.bind("\0x"); one.listen(); socket.send_fds(sock, [b"\0\0"], [one.fileno()])
elif how == "connected":
    one = tcp(0); other = socket.create_connection(one.getsockname()); socket.send_fds(sock, [b"\0\0"], [other.fileno()])
elif how == "elsewhere":
    one = tcp(3129); socket.send_fds(sock, [b"\0\0"], [one.fileno()])
elif how == "silent-listener":
    one = socket.socket(); one.bind(("127.0.0.1", 3128)); socket.send_fds(sock, [b"\0\0"], [one.fileno()])
elif how == "datagrams":
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); one.bind(("127.0.0.1", 3128)); socket.send_fds(sock, [b"\0\0"], [one.fileno()])
elif how == "numbers":
    one = tcp(3128); socket.send_fds(sock, [b"\xff\xff"], [one.fileno()])
elif how == "twice":
    one = tcp(3128); socket.send_fds(sock, [b"\0\0\0\0"], [one.fileno(), one.fileno()])
elif how == "rubbish": sock.send(os.urandom(50000))
elif how == "error": sock.send(b"?" + b"9" * 5000)
elif how == "error-word": sock.send(b"?x")
elif how == "nothing": pass
if how == "nothing": sock.shutdown(socket.SHUT_WR)
got = b""
try:
    if how != "nothing": sock.send(b"!")
    while data := sock.recv(65536):
        # Words of what is wanted, and then `!`, which a second `!` follows where one is let go on.
        got = got + data
except (ConnectionResetError, BrokenPipeError): pass
print(got.count(b"!") < 2 or got)
"""
WAYS = ("hundreds", "file", "unix", "connected", "elsewhere", "silent-listener", "datagrams", "numbers", "twice", "rubbish", "error", "error-word", "nothing")


def test_several_agents_are_served_and_a_hostile_one_stops_nobody() -> None:
    server, second = Server(echo), Server(echo)
    with service(*server.at("first.example.com", PORT), *second.at(OTHER, 443)) as one:
        agents = [Agent(one), Agent(one)]
        held = [one.connected() for _ in range(5)]  # who says nothing at all
        for how in WAYS:
            argv = [*one.box.words()[:8], PYTHON, "-I", "-S", "-c", HOSTILE, str(one.box.channel), how]
            done = subprocess.run(argv, env=one.box.environment(), capture_output=True, text=True, timeout=30)
            assert done.stdout == "True\n", (how, done.stdout, done.stderr)
        agents.append(Agent(one))
        for agent in agents:
            assert agent.talk(PORT, b"ping", host="first.example.com", enough=b"ping")[0] == b"ping"
            assert agent.talk(HTTP, connect(f"{OTHER}:443"))[0].startswith(b"HTTP/1.1 403")
            assert agent.dns(OTHER.encode()) == (3, b"")
        assert second.said() == b""
        assert one.check() == 0
        before = len(one.agents())
        assert [agent.close() for agent in agents] == ["", "", ""]
        # Who serves ends with what it served; who was silent is let go in time.
        assert until(lambda: len(one.agents()) <= before - 3)
        for sock in held:
            sock.close()
        assert until(lambda: not one.agents())
        verdicts = {(line["verdict"], line["via"], line["name"]) for line in one.box.log}
        assert {("allow", "direct", "first.example.com"), ("deny", "connect", OTHER), ("deny", "dns", OTHER)} <= verdicts
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(5) == 0
        assert not one.box.channel.exists()
        assert one.check() == 1
    server.close()
    second.close()


def test_there_is_a_bound_to_what_is_served_and_to_waiting() -> None:
    with service() as one:
        assert until(lambda: not one.agents())  # the check's
        held = [one.connected() for _ in range(40)]
        told = [sock.recv(65536) for sock in held]
        assert sum(map(bool, told)) == 16
        assert one.check() == 1
        began = time.monotonic()
        assert until(lambda: one.check() == 0, 15)
        assert time.monotonic() - began > 2
        for sock in held:
            sock.close()


def test_a_socket_that_turns_against_who_serves_it_stops_itself_alone() -> None:
    """O_NONBLOCK belongs to what both have: whoever keeps a listening socket can make accept() wait."""
    server = Server(echo)
    with service(*server.at("first.example.com", PORT)) as one:
        code = r"""
import fcntl, os, socket, struct, subprocess, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
while sock.recv(65536) != b"!": pass
one = socket.socket(); one.bind(("127.0.0.1", 3128)); one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 3600)); one.listen()
socket.send_fds(sock, [b"\0\0"], [one.fileno()])
sock.send(b"!")
print(sock.recv(10), flush=True)
end = time.monotonic() + 2
while time.monotonic() < end:
    fcntl.fcntl(one, fcntl.F_SETFL, 0)
    socket.create_connection(("127.0.0.1", 3128)).close()
"""
        argv = [*one.box.words()[:8], PYTHON, "-I", "-S", "-c", code, str(one.box.channel)]
        with subprocess.Popen(argv, env=one.box.environment(), stdout=subprocess.PIPE, text=True) as hostile:
            assert hostile.stdout
            assert hostile.stdout.readline() == "b'!'\n"
            time.sleep(0.5)
            agent = Agent(one)
            assert agent.talk(PORT, b"ping", host="first.example.com", enough=b"ping")[0] == b"ping"
            agent.close()
            hostile.wait(10)
        assert until(lambda: not one.agents())
    server.close()


def test_without_a_state_lines_go_to_stderr() -> None:
    with service(state=False) as one:
        agent = Agent(one)
        agent.talk(HTTP, connect(f"{OTHER}:443"))
        agent.close()
        one.process.send_signal(signal.SIGINT)
        _, said = one.process.communicate(timeout=5)
        lines = [json.loads(line) for line in said.splitlines()]
        assert [(line["verdict"], line["name"], line["shell"]) for line in lines] == [("deny", OTHER, "agent")]


@pytest.mark.parametrize("by_script", [False, True], ids=["variables", "compose"])
def test_a_service_may_have_a_proxy_above_it(*, by_script: bool) -> None:
    above = Server(takes_all)
    address = f"http://user:secret@{LOOPBACK}:{above.port}"
    # As compose.yaml has it: the script says which, and what docker's settings would set is empty.
    empty = dict.fromkeys(("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"), "")
    said = {**empty, "wg_upstream": f"{address}\nx.example"} if by_script else {"https_proxy": address, "no_proxy": "x.example"}
    with service("--upstream", **said) as one:
        agent = Agent(one)
        assert agent.talk(PORT, b"ping", host="first.example.com", enough=b"ping")[0] == b"ping"
        assert b"Basic dXNlcjpzZWNyZXQ=" in above.said()
        agent.close()
    above.close()


def test_a_service_that_starts_again_takes_its_place() -> None:
    with service() as one:
        one.process.kill()
        one.process.wait()
        assert one.box.channel.exists()
        assert one.check() == 1
        argv = [PYTHON, "-I", "-S", str(RUNTIME / "sidecar.py"), "--channel", str(one.box.channel), "--shell", "agent"]
        with subprocess.Popen(argv) as again:
            assert until(lambda: one.check() == 0)
            again.terminate()
            assert again.wait(5) == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "say --channel PATH"),
        (("--allow", "x"), "has no value"),
        (("--channel", "/no/such/place/c", "--shell", "x"), "cannot be listened at"),
        (("--what",), "does not know --what"),
    ],
)
def test_a_service_that_cannot_start_says_why(options: tuple[str, ...], said: str) -> None:
    done = subprocess.run([PYTHON, "-I", "-S", str(RUNTIME / "sidecar.py"), *options], capture_output=True, text=True, timeout=10)
    assert (done.returncode, said in done.stderr) == (125, True), done.stderr


# --- the little brother


@pytest.mark.needs("perl")
def test_the_little_brother_is_strict_perl_without_loading_that() -> None:
    done = subprocess.run(("perl", "-Mstrict", "-Mwarnings", "-T", "-c", str(RUNTIME / "stage.pl")), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"{RUNTIME / 'stage.pl'} syntax OK\n")


@pytest.mark.needs("perl")
def test_perls_settings_are_for_the_command(box: Container) -> None:
    one = Container(box.base, box.uid, "perl", rules=box.rules)
    more = {"PERL5OPT": "-MNoSuchModule", "PERL5LIB": "/x", "PERL_UNICODE": "SAD", "PERL_BADLANG": "0", "odd": "\u00e9\n"}
    argv = one.argv("default", ("env", "-0"))
    done = subprocess.run(argv, env=one.environment(**more), capture_output=True, timeout=20)
    assert done.returncode == 0, done.stderr
    found = dict(word.split(b"=", 1) for word in done.stdout.split(b"\0") if word)
    assert all(found[name.encode()] == value.encode() for name, value in more.items())


# --- with an engine


def binds(box: Container) -> dict[Path, str]:
    """What a container shows of the host: where the channel is, the runtime, and what leads programs to the listeners."""
    etc = {RUNTIME / name: f"/etc/{name}" for name in ("hosts", "resolv.conf", "nsswitch.conf")}
    return {box.base / "run": "/run/wavegen", RUNTIME: str(RUNTIME), **etc}


SPEAKS = f"""
exec 3<>/dev/tcp/first.example.com/{PORT}; echo ping >&3; read -u 3 line; echo "$line"
exec 4<>/dev/tcp/{OTHER}/443; exit 5
"""


@BOTH
@pytest.mark.parametrize("which", [pytest.param(name, marks=pytest.mark.needs(name)) for name in ("docker", "podman", "podman-rootless")])
def test_in_a_real_container(request: pytest.FixtureRequest, which: str, stage: str) -> None:
    real: Engine | Podman = request.getfixturevalue({"docker": "engine", "podman": "podman", "podman-rootless": "rootless"}[which])
    server, box = Server(echo), made(users()[-1])
    try:
        mounts = [word for source, target in binds(box).items() for word in ("--mount", f"type=bind,source={source},target={target},readonly")]
        fence = ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--network", "none", "--user", f"{box.uid}:{box.uid}"]
        # Docker sets it; podman leaves the kernel's 1024.
        fence += ["--init", "--log-driver", "none"] if which == "docker" else ["--sysctl", "net.ipv4.ip_unprivileged_port_start=0"]
        who: tuple[str, ...] = ()
        if which == "podman-rootless":
            fence += ["--userns", "keep-id"]
            who = real.who  # type: ignore[union-attr]
            for name in ("state", "project"):
                os.chown(box.base / name, box.uid, box.uid)
        client = [shutil.which(real.client) or real.client, "run", "--rm", "-i", "--pull=never", *fence, *mounts, real.image()]
        argv = box.argv("default", (*server.at("first.example.com", PORT), "--", "bash", "-c", SPEAKS))
        at = argv.index("--") + 1
        argv[at : at + len(box.words())] = [*client, *STAGES[stage], "/run/wavegen/channel", "--"]
        done = subprocess.run(
            [*who, *argv], env={**box.environment(), **real.environment()}, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (5, "ping\n"), done.stderr
        assert f"{OTHER}: Name or service not known" in done.stderr
        assert "note" not in done.stderr
        assert ("deny", OTHER) in {(line["verdict"], line["name"]) for line in box.log}
    finally:
        server.close()
        subprocess.run(["rm", "-rf", str(box.base)], check=True)


@pytest.mark.needs("docker", "docker-compose")
def test_beside_a_service_of_compose(engine: Engine, tmp_path: Path) -> None:
    """The agent waits until the service is healthy, has its network while it runs, and leaves nothing behind in the service."""
    server, user = Server(echo), f"{users()[-1]}"
    runtime = f"{RUNTIME}:{RUNTIME}:ro"
    own = {"image": engine.image(), "user": f"{user}:{user}", "cap_drop": ["ALL"], "read_only": True}
    sidecar = ["python3", "-I", "-S", str(RUNTIME / "sidecar.py")]
    asked = [*sidecar, "--channel", "/run/wavegen/channel", "--shell", "agent", *listed(), *server.at("first.example.com", PORT)]
    healthy = {"test": ["CMD", *sidecar, "--check", "/run/wavegen/channel"], "interval": "1s", "timeout": "5s", "retries": 20}
    etc = [f"{RUNTIME / name}:/etc/{name}:ro" for name in ("resolv.conf", "nsswitch.conf")]
    run = [*STAGES["python"], "/run/wavegen/channel", "--", "bash", "-c", SPEAKS.replace("$", "$$")]
    services = {
        "egress": {**own, "network_mode": "host", "command": asked, "volumes": [runtime, "channel:/run/wavegen"], "healthcheck": healthy},
        "agent": {
            **own, "network_mode": "none", "init": True, "command": run, "volumes": [runtime, "channel:/run/wavegen:ro", *etc],
            "depends_on": {"egress": {"condition": "service_healthy"}},
        },
    }  # fmt: skip
    volume = {"driver": "local", "driver_opts": {"type": "tmpfs", "device": "tmpfs", "o": f"uid={user},gid={user},mode=0700"}}
    (tmp_path / "compose.yaml").write_text(json.dumps({"services": services, "volumes": {"channel": volume}}))
    words = ["docker-compose"] if shutil.which("docker-compose") else [engine.client, "compose"]
    environment = {**os.environ, **engine.environment()}

    def compose(*more: str) -> subprocess.CompletedProcess[str]:
        argv = [*words, "-p", "wavegennet", "-f", str(tmp_path / "compose.yaml"), *more]
        return subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)

    try:
        done = compose("run", "--rm", "agent")
        assert done.returncode == 5, done.stderr
        assert "ping" in done.stdout
        (name,) = engine.run("ps", "-q", "--filter", "label=com.docker.compose.service=egress").stdout.split()
        assert until(lambda: engine.run("top", name, "-o", "pid,args").stdout.count("sidecar.py") == 1)
        said = compose("logs", "egress").stdout
        assert '"verdict": "allow", "via": "direct", "name": "first.example.com"' in said
        assert f'"verdict": "deny", "via": "dns", "name": "{OTHER}"' in said
    finally:
        compose("down", "-v", "-t", "2")
        server.close()
