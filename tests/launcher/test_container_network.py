"""The network of a container, served from outside of it: the launcher, and both first processes inside.

The engine is a stand-in where a test wants to look into the container, or at a moment between two steps; a real one has the last word.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from contained import Box, run_directories
from engine import Engine
from fence import PYTHON, name_of, users
from helpers import ROOT, call, masks, until
from stand_in import HTTP, LOOPBACK, SOCKS, Inside, Server, connect, echo, get, hello, inside, socks, web

INSIDE = ROOT / "wavegen/launcher/inside"
NAME, OTHER, PORT = "good.example.com", "other.example.com", 7000
STAGES = {"python": (PYTHON, "-I", "-S", str(INSIDE / "listeners.py")), "perl": ("perl", "-T", str(INSIDE / "listeners.pl"))}
MANIFEST = f"""\
metadata: {{name: x}}
runtime:
  sandbox:
    docker_image: stand-in:1
    default_allowed_domains: [{NAME}, "*.wild.example.com", "first.example.com:{PORT}", "8.8.4.4:7001", "[2606:4700::1]:7002"]
    upstream_proxy: UPSTREAM
    env_passthrough: [PERL5OPT, PERL5LIB, PERL_UNICODE, PERL_BADLANG, odd]
    shells: {{restricted: {{loopback: [LOOPBACK]}}}}
"""
BOTH = pytest.mark.parametrize("stage", [pytest.param("python"), pytest.param("perl", marks=pytest.mark.needs("perl"))])
REAL = ("/usr/local/bin/docker", "/usr/bin/docker", "/bin/docker")
pytestmark = pytest.mark.needs("bwrap")  # where that works, namespaces can be made

# A client of no engine: the container that it starts has a network and mounts of its own, and outlives it; signals are passed on.
CLIENT = r"""#!/usr/bin/python3
import os, re, signal, subprocess, sys
here, words = os.path.dirname(os.path.abspath(__file__)), sys.argv[1:]
if words[0] == "info":
    print("cpus=2", "system=linux x", "MemoryLimit=true", "PidsLimit=true", "CPUCfsQuota=true", sep="\n")
if words[0] == "container":
    sys.exit("Error: No such container")
if words[0] != "run":
    sys.exit()
if os.path.exists(here + "/instead"):
    os.execv("/bin/sh", ["sh", here + "/instead", re.search('source=([^"]*)","target=/run/wavegen"', "\n".join(words))[1]])
inside = '''
import csv, fcntl, os, signal, socket, struct, subprocess, sys
here, words = sys.argv[1], sys.argv[2:]
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
(flags,) = struct.unpack_from("H", fcntl.ioctl(control, 0x8913, struct.pack("16sH14x", b"lo", 0)), 16)
fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", flags | 1))
with open("/proc/sys/net/ipv4/ip_unprivileged_port_start", "w") as stream:
    stream.write(open(here + "/start").read())
at = words.index("stand-in:1")
sources = [dict(field.partition("=")[::2] for field in next(csv.reader([word]))) for word in words[:at] if word.startswith("type=bind")]
handles = [os.open(one["source"], os.O_PATH) for one in sources]
subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
os.mkdir("/run/wavegen")
for one, handle in zip(sources, handles):
    subprocess.run(["mount", "--bind", f"/proc/self/fd/{handle}", one["target"]], check=True, pass_fds=[handle])
    if "readonly" in one:
        subprocess.run(["mount", "-o", "remount,bind,ro", one["target"]], check=True)
    os.close(handle)
given = [words[number + 1].partition("=") for number in range(at) if words[number] == "--env"]
variables = {name: value if equals else os.environ[name] for name, equals, value in given if equals or name in os.environ}
variables["PATH"] = here + "/image"
user = words[words.index("--user") + 1].partition(":")[0]
drop = ["/usr/bin/setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
drop += [f"--reuid={user}", f"--regid={user}", "--clear-groups"] if os.environ.get("REAL_ROOT") else []
# As an engine starts it: whatever its client was told to ignore.
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
    signal.signal(number, signal.SIG_DFL)
os.chdir(words[words.index("--workdir") + 1])
os.execve(drop[0], [*drop, *words[at + 1 :]], variables)
'''
own = ["unshare", "--net", "--mount"] + (["--user", "--map-root-user"] if os.getuid() else [])
more = {} if os.getuid() else {"REAL_ROOT": "1"}
container = subprocess.Popen([*own, sys.executable, "-I", "-S", "-c", inside, here, *words], env={**os.environ, **more})
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGWINCH):
    signal.signal(number, lambda number, _: container.send_signal(number))
status = container.wait()
os._exit(status if status >= 0 else 128 - status)
"""


@dataclass(frozen=True)
class Container:
    """A project whose `restricted` is started by that client, and who starts it. `stage`: what the image has of python3 and perl."""

    base: Path
    uid: int

    @property
    def project(self) -> Path:
        """Where it is started."""
        return self.base / "project"

    @property
    def home(self) -> Path:
        """The caller's."""
        return self.base / "home"

    @property
    def log(self) -> list[dict[str, object]]:
        """What was written down."""
        (path,) = self.home.glob(".local/state/wavegen/*/restricted/network.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    def environment(self, **more: str) -> dict[str, str]:
        """The caller's."""
        return {"HOME": str(self.home), "PATH": f"{self.base}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"} | more

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        """The script with a command, and with options before that, where the system has no engine."""
        hide = 'for place; do shift; [ "$place" != -- ] || break; [ ! -e "$place" ] || mount --bind /dev/null "$place"; done; exec "$@"'
        own = ["unshare", "--mount", "sh", "-c", hide, "sh", *REAL, "--"] if os.getuid() == 0 else []
        own += ["setpriv", f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups", "--"] if self.uid != os.getuid() else []
        return [*own, str(self.project / ".wavegen/docker" / f"run-{shell}"), *command]

    def enter(self, *command: str, env: dict[str, str] | None = None, **more: object) -> subprocess.CompletedProcess[str]:
        """Run a command inside and wait for it."""
        options = {"capture_output": True, "text": True, "timeout": 30, "stdin": subprocess.DEVNULL, **more}
        return subprocess.run(self.argv("restricted", ("--", *command)), cwd=self.project, env=env or self.environment(), **options)  # type: ignore[call-overload,no-any-return]

    def instead(self, script: str) -> None:
        """What the client does in place of a container, with the directory that is handed over as $1."""
        (self.base / "bin/instead").write_text(script)

    def remove(self) -> None:
        """All of it, once no launcher is left."""
        subprocess.run(["rm", "-rf", str(self.base)], check=True)


def made(uid: int, stage: str = "python", *, start: int = 0, loopback: int = 5432, upstream: bool = False) -> Container:
    if os.getuid() and any(os.path.exists(path) for path in REAL):
        pytest.skip("only root hides the engine that this machine has")
    base = Path(tempfile.mkdtemp(prefix="wavegen-container-")).resolve()
    base.chmod(0o755)
    for name in ("project", "home", "bin/image"):
        (base / name).mkdir(parents=True)
    for program in Path("/usr/bin").iterdir():
        if stage == "python" or not program.name.startswith("python"):
            (base / "bin/image" / program.name).symlink_to(program)
    (base / "bin/docker").write_text(CLIENT)
    (base / "bin/docker").chmod(0o755)
    (base / "bin/start").write_text(str(start))
    (base / "project/wave.yaml").write_text(MANIFEST.replace("LOOPBACK", str(loopback)).replace("UPSTREAM", str(upstream).lower()))
    done = call("render", cwd=base / "project")
    assert done.status == 0, done.output
    owner = users()[-1]
    if os.getuid() == 0:
        subprocess.run(["chown", "-hR", f"{owner}:{owner}", str(base / "project")], check=True)
        os.chown(base / "home", uid, uid)
    return Container(base, uid)


@pytest.fixture
def box() -> Iterator[Container]:
    one = made(users()[-1])
    yield one
    one.remove()


@pytest.fixture
def staged(stage: str) -> Iterator[Container]:
    one = made(users()[-1], stage)
    yield one
    one.remove()


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
    box = made(uid, stage, loopback=local.port)
    options = [*tunnel.at("first.example.com", PORT), *tunnel.at("8.8.4.4", 7001), *elsewhere.at(OTHER, 443), *elsewhere.at(OTHER, 80)]
    for name in (NAME, "a.wild.example.com"):
        options += [*tunnel.at(name, 443), *site.at(name, 80)]
    try:
        with inside(box, *options) as client:
            yield Place(box, client, tunnel, site, local, elsewhere)
    finally:
        for server in (tunnel, site, local, elsewhere):
            server.close()
        box.remove()


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
    assert [(line["name"], line["verdict"], line["via"], line["line"]) for line in allowed] == [("first.example.com", "allow", "direct", "wave.yaml:5")]


def test_nothing_of_the_channel_is_inside(place: Place) -> None:
    """The socket is gone, and no descriptor leads out of the container."""
    there = place.client.do("result = os.listdir('/run/wavegen')")
    assert isinstance(there, list)
    assert ("report" in there, "channel" in there) == (True, False)
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
def test_the_status_is_the_clients(staged: Container, command: tuple[str, ...], status: int) -> None:
    done = staged.enter(*command)
    assert done.returncode == status, done.stderr
    assert re.search({126: "cannot be executed inside: Permission denied", 127: "command not found inside"}.get(status, "^$"), done.stderr)
    assert until(lambda: not list((staged.home / ".local/state/wavegen/run").iterdir()))


@BOTH
def test_the_streams_signals_and_words_are_the_commands(staged: Container) -> None:
    code = 'cat; echo err >&2; printf "%s|" "$0" "$@"; grep Sig[BI] /proc/self/status'
    done = staged.enter("sh", "-c", code, "a b", "--", "", "\u00e9\n", input="in\n", stdin=None)
    assert done.stderr == "err\n"
    words, _, signals = done.stdout.rpartition("|")
    assert (words, masks(signals)) == ("in\na b|--||\u00e9\n", {"SigBlk": 0, "SigIgn": 0})


@BOTH
def test_where_only_root_may_listen_the_proxies_work(stage: str) -> None:
    one = made(users()[-1], stage, start=1024)
    done = one.enter("sh", "-c", 'echo "$JAVA_TOOL_OPTIONS"')
    assert done.stdout == "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128 -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=3128\n", done.stderr
    assert done.stderr.count("wavegen: note: ports 53, 80, 443 cannot be listened on here") == 1
    assert "only programs that know a proxy" in done.stderr
    server = Server(echo)
    with inside(one, *server.at("first.example.com", PORT)) as client:
        assert client.talk(HTTP, connect(f"first.example.com:{PORT}") + b"ping", enough=b"ping")[0].endswith(b"ping")
    server.close()
    one.remove()


def test_a_container_that_needs_no_proxy_is_told_of_none(box: Container) -> None:
    assert box.enter("sh", "-c", 'echo "<$JAVA_TOOL_OPTIONS>"').stdout == "<>\n"


def test_a_client_that_ends_early_is_believed(box: Container) -> None:
    box.instead("echo 'docker: no such image' >&2; exit 125")
    done = box.enter("true")
    assert done.returncode == 125
    assert done.stderr.splitlines() == ["docker: no such image", "wavegen: error: the container did not start the command (see its message above)"]


def test_a_state_deep_in_the_tree_works(box: Container) -> None:
    """A socket's address has 107 bytes; inside, the path is short."""
    deep = box.home / "/".join(["d" * 60] * 3)
    done = box.enter("echo", "ran", env=box.environment(XDG_STATE_HOME=str(deep)))
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


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


@pytest.mark.parametrize(("how", "said"), [("right", "waits\nthere\nb'!'\n"), ("wrong", "waits\nthere\nb''\n")])
def test_nobody_goes_on_before_the_sockets_are_taken_over(box: Container, how: str, said: str) -> None:
    (box.base / "bin/slow.py").write_text(SLOW)
    box.instead(f'exec python3 -I -S {box.base}/bin/slow.py "$1/channel" {how}')
    assert box.enter("true").stdout.startswith(said)


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
    """Another uid may connect where the mode of the socket and of its directory do not keep it from that; root's launcher serves a user."""
    if os.getuid():
        pytest.skip("one user cannot be another")
    root = made(0)
    stranger = "import socket,sys\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.connect(sys.argv[1])\ns.settimeout(5)\nprint(s.recv(99))"
    (root.base / "bin/stranger.py").write_text(stranger)
    ask = f'python3 -I -S {root.base}/bin/stranger.py "/proc/self/cwd/channel"'
    # The directory is entered by root, as nobody else gets that far.
    root.instead(
        f'cd "$1" && chmod 755 . && chmod 666 channel && setpriv --reuid=65534 --regid=65534 --clear-groups {ask}; {ask}; {ask.replace("python3", f"setpriv --reuid={users()[-1]} python3")}'
    )
    assert root.enter("true").stdout.splitlines()[:2] == ["b''", "b''"]
    assert b"tcp/127.0.0.1" in root.enter("true").stdout.splitlines()[2].encode()
    root.remove()


def test_the_channel_is_the_users_alone() -> None:
    for caller in users():
        one = made(caller)
        one.instead('stat -c "%u %a %F" "$1/channel"')
        assert one.enter("true").stdout == f"{users()[-1]} 600 socket\n"
        one.remove()


def start(box: Container, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        box.argv("restricted", ("--", *command)), cwd=box.project, env=box.environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_signal_is_passed_on(box: Container) -> None:
    for name in ("TERM", "INT", "USR1", "WINCH"):
        with start(box, "sh", "-c", f"trap 'echo got; exit 9' {name}; echo ready; while :; do sleep 0.02; done") as process:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            process.send_signal(getattr(signal, f"SIG{name}"))
            assert process.stdout.readline() == "got\n"
            assert process.wait(10) == 9


def test_a_signal_before_anything_is_inside_is_passed_on(box: Container) -> None:
    box.instead("trap 'exit 143' TERM; echo ready; while :; do sleep 0.02; done")
    with start(box, "true") as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143


def test_the_client_ends_with_the_launcher(box: Container) -> None:
    """Whether or not the watchdog has an engine that removes the container."""
    box.instead("echo $$; exec sleep 60")
    with start(box, "true") as process:
        assert process.stdout
        client = int(process.stdout.readline())
        process.kill()
        assert until(lambda: not alive(client))
    assert until(lambda: not run_directories(box.home, [process.pid]))


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


def test_the_password_of_the_hosts_proxy_reaches_nobody() -> None:
    above = Server(takes_all)
    one = made(users()[-1], upstream=True)
    environment = one.environment(HTTPS_PROXY=f"http://user:secret@{LOOPBACK}:{above.port}")
    try:
        with inside(one, env=environment) as client:
            assert client.talk(PORT, b"ping", host="first.example.com", enough=b"ping")[0] == b"ping"
            assert b"Basic dXNlcjpzZWNyZXQ=" in above.said()
            assert "secret" not in str(client.do("result = dict(os.environ)"))
            for child in Path(f"/proc/{client.process.pid}/task/{client.process.pid}/children").read_text().split():
                if Path(f"/proc/{child}/cmdline").read_bytes().count(b"/bin/docker"):
                    assert b"secret" not in Path(f"/proc/{child}/environ").read_bytes()
    finally:
        above.close()
        one.remove()


@pytest.mark.needs("perl")
def test_the_little_brother_is_strict_perl_without_loading_that() -> None:
    done = subprocess.run(("perl", "-Mstrict", "-Mwarnings", "-T", "-c", str(INSIDE / "listeners.pl")), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"{INSIDE / 'listeners.pl'} syntax OK\n")


@pytest.mark.needs("perl")
def test_perls_settings_are_for_the_command() -> None:
    one = made(users()[-1], "perl")
    more = {"PERL5OPT": "-MNoSuchModule", "PERL5LIB": "/x", "PERL_UNICODE": "SAD", "odd": "\u00e9\n"}
    done = one.enter("env", "-0", env=one.environment(**more))
    assert done.returncode == 0, done.stderr
    found = dict(word.split("=", 1) for word in done.stdout.split("\0") if word)
    assert all(found[name] == value for name, value in more.items())
    one.remove()


# --- with an engine

SPEAKS = f"""
exec 3<>/dev/tcp/first.example.com/{PORT}; echo ping >&3; read -u 3 line; echo "$line"
exec 4<>/dev/tcp/{OTHER}/443; exit 5
"""


@pytest.mark.needs("docker")
@pytest.mark.parametrize("kind", ["base", "perl"])
def test_in_a_real_container(engine: Engine, kind: str) -> None:
    server = Server(echo)
    text = f"metadata: {{name: x}}\nruntime: {{sandbox: {{docker_image: '{engine.image(kind)}', default_allowed_domains: ['first.example.com:{PORT}']}}}}\n"
    real = Box.made(engine, text, caller=users()[-1])
    real.own()
    try:
        done = real.enter(*server.at("first.example.com", PORT), "--", "bash", "-c", SPEAKS, shell="restricted")
        assert (done.returncode, done.stdout) == (5, "ping\n"), done.stderr
        assert f"{OTHER}: Name or service not known" in done.stderr
        assert "note" not in done.stderr
        (path,) = real.home.glob(".local/state/wavegen/*/restricted/network.jsonl")
        assert ("deny", OTHER) in {(line["verdict"], line["name"]) for line in map(json.loads, path.read_text().splitlines())}
    finally:
        server.close()
        real.remove()
