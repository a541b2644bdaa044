"""How fast the filtered network is, beside none and beside other fences that are installed, in one run. By itself: `python bench/egress.py`."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median

import peers
from side_by_side import FOUND, Measured, take_turns

MEBIBYTES = int(os.environ.get("WAVEGEN_BENCH_MIB", "512"))
TURNS = int(os.environ.get("WAVEGEN_BENCH_STREAMS", "7"))
CONNECTS, HELD = 1000, 200
NAME, HTTP, HELLO = "bench.example.org", 8080, 9000
PROXY = "http://127.0.0.1:3128"
PIECE = 1024 * 1024

MANIFEST = f"""\
apiVersion: v1
kind: WaveManifest
metadata: {{name: egress}}
runtime:
  sandbox:
    default_allowed_domains: ["{NAME}:{HTTP}", "{NAME}:{HELLO}"]
"""

# Inside and outside: a server that speaks first, reached in several ways; milliseconds until its first byte, as JSON.
CONNECTING = r"""
import json, socket, sys, time
way, host, port, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
question = b"\x12\x34\1\0\0\1\0\0\0\0\0\0" + b"".join(bytes([len(l)]) + l for l in host.encode().split(b".")) + b"\0\0\1\0\1"
address = socket.gethostbyname(host) if way in ("direct", "transparent") else "127.0.0.1"
taken = []
for _ in range(count):
    start = time.perf_counter()
    if way == "dns":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.connect((address, 53))
            sock.send(question)
            assert len(sock.recv(512)) > len(question)
    else:
        with socket.socket() as sock:
            sock.connect((address, 3128 if way == "connect" else port))
            if way == "connect":
                sock.send(b"CONNECT %b:%d HTTP/1.1\r\nHost: %b:%d\r\n\r\n" % (host.encode(), port, host.encode(), port))
                said = b""
                while b"\r\n\r\n" not in said:
                    more = sock.recv(4096)
                    assert more
                    said += more
                assert b" 200 " in said.split(b"\r\n", 1)[0], said
                if said.endswith(b"\r\n\r\n"):
                    assert sock.recv(1)
            else:
                assert sock.recv(1)
    taken.append((time.perf_counter() - start) * 1000)
print(json.dumps(taken))
"""

# Inside and outside: GB/s of one download, from its first byte, read in pieces of a size.
READING = """
import socket, sys, time
host, port, size, piece = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with socket.create_connection((host, port)) as sock:
    sock.sendall(b"GET /%d HTTP/1.1\\r\\n\\r\\n" % size)
    buffer, left, start = memoryview(bytearray(piece)), size, 0
    while left > 0:
        count = sock.recv_into(buffer)
        assert count
        start, left = start or time.perf_counter(), left - count
    print(size / (time.perf_counter() - start) / 1e9)
"""

# Inside: opens downloads, says when they are open, and reads none of them.
STALLING = """
import socket, sys
held = []
for _ in range(int(sys.argv[3])):
    held.append(socket.create_connection((sys.argv[1], int(sys.argv[2]))))
    held[-1].sendall(b"GET /1073741824 HTTP/1.1\\r\\n\\r\\n")
print("open", flush=True)
sys.stdin.read()
"""

# Inside: says when so many connections are open, and holds them.
HOLDING = """
import socket, sys
host, port, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
held = []
for _ in range(count):
    held.append(socket.create_connection((host, port)))
    assert held[-1].recv(1)
print("open", flush=True)
sys.stdin.read()
"""


# --- servers


def serve_http(listener: socket.socket) -> None:
    """GET /BYTES sends so many, PUT takes what it is given. The kernel copies; Python only starts it."""
    handle = os.memfd_create("body")
    os.truncate(handle, 16 * PIECE)
    os.pwrite(handle, os.urandom(PIECE) * 16, 0)

    def answer(sock: socket.socket) -> None:
        with sock, contextlib.suppress(ConnectionError):
            head, rest = b"", b""
            while not rest and b"\r\n\r\n" not in head:
                more = sock.recv(65536)
                if not more:
                    return
                head += more
            head, _, rest = head.partition(b"\r\n\r\n")
            method, path = head.split()[:2]
            if method == b"GET":
                left = int(path.rpartition(b"/")[2])
                sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % left)
                while left:
                    left -= os.sendfile(sock.fileno(), handle, 0, min(left, 16 * PIECE))
                sock.recv(1)  # the client closes: where the server does, srt now and then loses what it has not passed on
                return
            (left,) = (int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
            left -= len(rest)
            buffer = memoryview(bytearray(PIECE))
            while left:
                count = sock.recv_into(buffer, min(left, PIECE))
                if not count:
                    return
                left -= count
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    while True:
        threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()


def serve_hello(listener: socket.socket) -> None:
    """Speaks first, one byte, and closes when the client does."""
    with selectors.DefaultSelector() as events:
        events.register(listener, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is listener:
                    sock, _ = listener.accept()
                    with contextlib.suppress(ConnectionError):
                        sock.send(b"!")
                    events.register(sock, selectors.EVENT_READ)
                else:
                    sock = key.fileobj  # type: ignore[assignment]
                    events.unregister(sock)
                    sock.close()


@contextlib.contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A process of its own that serves; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        pid = os.fork()
        if pid == 0:
            try:
                serve(listener)
            finally:
                os._exit(1)
        port = listener.getsockname()[1]
    try:
        yield port
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# --- what is measured


class Ground:
    """A project, what starts a command in its `restricted`, and the others that are installed."""

    def __init__(self, base: Path, http: int, hello: int) -> None:
        self.http, self.hello = http, hello
        self.project = base / "project"
        self.project.mkdir()
        (self.project / "wave.yaml").write_text(MANIFEST, encoding="utf-8")
        self.environment = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy") and name != "XDG_STATE_HOME"}
        self.environment["HOME"] = str(base / "home")
        (base / "home").mkdir()
        self.environment["PATH"] = peers.path()
        self.wrapper = str(self.project / ".wavegen/bin/restricted")
        self.run([sys.executable, "-m", "wavegen", "render"])
        self.inside = [self.wrapper]
        for port, there in ((HTTP, http), (HELLO, hello)):
            self.inside += ["--connect-to", f"{NAME}:{port}:127.0.0.1:{there}"]
        self.inside.append("--")
        self.run([self.wrapper, "/bin/true"])
        self.others = peers.installed(self.project, self.environment, (f"127.0.0.1:{http}", f"127.0.0.1:{hello}"))

    def run(self, argv: list[str]) -> str:
        """What a command prints that must succeed."""
        done = subprocess.run(argv, cwd=self.project, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            sys.exit(f"{shlex.join(argv)}: status {done.returncode}\n{done.stderr}")
        return done.stdout


def streams(ground: Ground) -> None:
    """One connection, as much as it takes."""
    size = MEBIBYTES * PIECE
    sparse = ground.project / "upload"
    with sparse.open("wb") as stream:
        stream.truncate(size)
    named, near = f"http://{NAME}:{HTTP}", f"http://127.0.0.1:{ground.http}"
    ours = {
        "transparent": [*ground.inside, "curl", "--noproxy", "*", named],
        "CONNECT": [*ground.inside, "curl", "--noproxy", "", "-p", "-x", PROXY, named],
        "SOCKS5": [*ground.inside, "curl", "--noproxy", "", "-x", "socks5h://127.0.0.1:1080", named],
    }
    ways = {"direct": ["curl", "--noproxy", "*", near], **ours}
    ways |= {name: [*argv, "curl", "--noproxy", "", "-p", near] for name, argv in ground.others.items()}
    for title, aim, figure, rest in (
        ("download", 0.9, "speed_download", [f"/{size}", "-o", "/dev/null"]),
        ("upload", 0.4, "speed_upload", ["/", "-T", str(sparse), "-H", "Expect:"]),
    ):

        def speed(way: list[str], figure: str = figure, rest: list[str] = rest) -> float:
            """GB/s, by curl's own clock: without the start of the fence."""
            url = way[-1] + rest[0]
            return float(ground.run([*way[:-1], "-sSf", "-w", f"%{{{figure}}}", *rest[1:], url]).split()[-1]) / 1e9

        columns = take_turns({name: partial(speed, way) for name, way in ways.items()}, TURNS)
        print(f"\n{title} of {MEBIBYTES} MiB in one stream, {TURNS} turns (aim: {aim}x direct)")
        if median(columns["direct"]) < 1.5:  # noqa: PLR2004
            print("  curl and the server alone move less than 1.5 GB/s here: they, or other load, are the bottleneck.")
        measured = Measured(f"{title} in one stream", f"{aim}x direct", "GB/s", columns)
        FOUND.append(measured)
        for name, values in columns.items():
            ratio, least, most = measured.spread(name)
            print(f"  {name:<14} {median(values):5.2f} GB/s [{min(values):.2f}..{max(values):.2f}]  {ratio:6.2f}x [{least:.2f}..{most:.2f}] direct")
    sparse.unlink()


def reads(ground: Ground) -> None:
    """One download, read in large pieces and in such as curl reads."""
    here = ["/usr/bin/python3", "-I", "-S", "-c", READING]

    def speed(argv: list[str]) -> float:
        return float(ground.run(argv))

    for size, aim in ((PIECE, 0.8), (100 * 1024, 0.9), (16 * 1024, 0.9)):
        rest = [str(MEBIBYTES * PIECE), str(size)]
        ways = {"direct": [*here, "127.0.0.1", str(ground.http), *rest], "transparent": [*ground.inside, *here, NAME, str(HTTP), *rest]}
        columns = take_turns({name: partial(speed, argv) for name, argv in ways.items()}, TURNS)
        measured = Measured(f"download, read in pieces of {size // 1024} KiB", f"{aim}x direct", "GB/s", columns)
        FOUND.append(measured)
        ratio, least, most = measured.spread("transparent")
        speeds = ", ".join(f"{name} {median(values):.2f}" for name, values in columns.items())
        print(f"  read in pieces of {size // 1024:>4} KiB: {speeds} GB/s, {ratio:.2f}x [{least:.2f}..{most:.2f}] direct (aim: {aim}x)")


def delays(ground: Ground) -> None:
    """What it takes until a server's first byte is here."""
    turns = 10
    here = ["/usr/bin/python3", "-I", "-S", "-c", CONNECTING]
    count = str(CONNECTS // turns)

    def ask(prefix: list[str], way: str, host: str, port: int) -> list[float]:
        return [float(value) for value in json.loads(ground.run([*prefix, *here, way, host, str(port), count]))]

    ways = {
        "direct": partial(ask, [], "direct", "127.0.0.1", ground.hello),
        "transparent": partial(ask, ground.inside, "transparent", NAME, HELLO),
        "CONNECT": partial(ask, ground.inside, "connect", NAME, HELLO),
        "DNS question": partial(ask, ground.inside, "dns", NAME, 0),
    }
    found: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            found[name].append(way())
    print(f"\nuntil a server's first byte is here, {CONNECTS} each in {turns} turns (aim: +0.20 ms at the median)")
    base = [median(values) for values in found["direct"]]
    columns = {name: [median(values) for values in each] for name, each in found.items()}
    FOUND.append(Measured("until a server's first byte is here", "+0.20 ms", "ms, the median of each turn", columns))
    for name, each in found.items():
        every = sorted(value for values in each for value in values)
        added = [median(values) - (0 if name.startswith("DNS") else reference) for values, reference in zip(each, base, strict=True)]
        text = f"{median(every):6.3f} ms, 99 of 100 in {every[len(every) * 99 // 100]:6.3f} ms"
        print(f"  {name:<14} {text}" + (f"  adds {median(added):+.3f} [{min(added):+.3f}..{max(added):+.3f}] ms" if name != "direct" else ""))


def tcp_memory() -> int:
    """Bytes that TCP holds on this machine, also for the servers and the clients of this test."""
    text = Path("/proc/net/sockstat").read_text(encoding="ascii")
    return int(text.partition("TCP: ")[2].partition(" mem ")[2].split()[0]) * os.sysconf("SC_PAGE_SIZE")


def memory(ground: Ground) -> None:
    """What the launcher holds: all of it, and its share."""
    print(f"\nmemory of the launcher (aim: 30 MB with {HELD} connections)")
    for title, command in (
        ("idle", ["sh", "-c", "echo open; read -r line"]),
        (f"{HELD} stalled", ["/usr/bin/python3", "-I", "-S", "-c", STALLING, NAME, str(HTTP), str(HELD)]),
        (f"{HELD} connections", ["/usr/bin/python3", "-I", "-S", "-c", HOLDING, NAME, str(HELLO), str(HELD)]),
    ):
        before = tcp_memory()
        with subprocess.Popen(
            [*ground.inside, *command], cwd=ground.project, env=ground.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as started:
            if started.stdout is None or started.stdin is None or started.stdout.readline() != "open\n":
                sys.exit(f"{title}: the command did not start")
            time.sleep(2)  # until nothing moves any more
            # The wrapper became the launcher: the same process.
            shares = dict(line.split()[:2] for line in Path(f"/proc/{started.pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:])
            open_now = len(os.listdir(f"/proc/{started.pid}/fd"))
            queued = tcp_memory() - before
            started.stdin.close()
        print(
            f"  {title:<18} TCP {queued / 1e6:+7.1f} MB  RSS {int(shares['Rss:']) / 1000:5.1f} MB  PSS {int(shares['Pss:']) / 1000:5.1f} MB  {open_now} descriptors"
        )


def main() -> None:
    """Run all of it."""
    print("\nThe filtered network:")
    with tempfile.TemporaryDirectory() as name, server(serve_http) as http, server(serve_hello) as hello:
        ground = Ground(Path(name).resolve(), http, hello)
        for measure in (streams, reads, delays, memory):
            measure(ground)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
