"""A small public network on 127.0.0.1: servers that stand in for the names which everyday tools connect to.

Every server listens on a port of the kernel's choice and ends with its context. Certificates come from a test CA that
the `openssl` program makes.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import pwd
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import tarfile
import textwrap
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

LOOPBACK = "127.0.0.1"
GIT_BACKEND = "git-http-backend"


# What shows that a tool works, for the `needs` marker; each is a program of the distribution.
def run(*command: str | Path, cwd: Path | None = None, stdin: bytes = b"") -> bytes:
    """What a command of the host prints; it must succeed."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, input=stdin, capture_output=True, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stderr.decode()}"
    return done.stdout


# --- certificates


class Authority:
    """A certificate authority in a directory of its own, and certificates that it signed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.certificate = directory / "ca.pem"
        self.key = directory / "ca.key"
        usage = ("-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")
        new = ("openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        run(*new, "-subj", "/CN=wavegen test CA", *usage, "-keyout", self.key, "-out", self.certificate)

    def issue(self, *names: str) -> tuple[Path, Path]:
        """A certificate for these names, and its key."""
        certificate, key = self.directory / f"{names[0]}.pem", self.directory / f"{names[0]}.key"
        extensions = self.directory / f"{names[0]}.ext"
        subject = ",".join(f"DNS:{name}" for name in names)
        extensions.write_text(f"subjectAltName={subject}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\nauthorityKeyIdentifier=keyid\n")
        curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
        request = run("openssl", "req", "-new", "-nodes", *curve, "-subj", f"/CN={names[0]}", "-keyout", key)
        signed = ("-CA", self.certificate, "-CAkey", self.key, "-days", "2", "-set_serial", str(int.from_bytes(os.urandom(8), "big")))
        run("openssl", "x509", "-req", *signed, "-extfile", extensions, "-out", certificate, stdin=request)
        return certificate, key

    def context(self, *names: str) -> ssl.SSLContext:
        """What a TLS server needs that answers to these names."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(*names))
        return context


# --- HTTP, with TLS or without


@dataclass(frozen=True)
class Request:
    """What a client of a web server asked for."""

    host: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Response:
    """What it is answered."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)


Site = Callable[[Request], Response]
NOT_FOUND = Response(b"not found\n", 404, {"Content-Type": "text/plain"})


def hello(request: Request) -> Response:
    """Says the name and the path that it was asked for."""
    return Response(f"hello from {request.host}{request.path}\n".encode(), headers={"Content-Type": "text/plain"})


def pages(content: dict[str, bytes], kind: str = "application/json") -> Site:
    """A site of fixed pages."""
    return lambda request: Response(content[path], headers={"Content-Type": kind}) if (path := request.path.split("?")[0]) in content else NOT_FOUND


class Web:
    """A threaded web server that answers by the Host header, echoes WebSockets, and remembers what it was asked."""

    def __init__(self, sites: dict[str, Site], tls: ssl.SSLContext | None = None) -> None:
        self.sites = sites
        self.log: list[Request] = []
        self.indications: list[str] = []
        web = self

        class Handler(_Handler):
            server_of = web

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 64

            def finish_request(self, request: socket.socket, client_address: object) -> None:
                # In the connection's own thread, so that a slow handshake stops nobody else.
                request.settimeout(20)
                if tls:
                    with contextlib.suppress(OSError), tls.wrap_socket(request, server_side=True) as secured:
                        super().finish_request(secured, client_address)
                else:
                    super().finish_request(request, client_address)

            def handle_error(self, request: object, client_address: object) -> None:
                """A client that goes away is no news."""

        if tls:
            tls.sni_callback = lambda _socket, name, _context: self.indications.append(name or "")
        self._server = Server((LOOPBACK, 0), Handler)
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def asked(self, host: str) -> list[Request]:
        """The requests for one name so far."""
        return [request for request in self.log if request.host == host]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: Web

    def answer(self) -> None:
        host = self.headers.get("Host", "").split(":")[0].lower()
        request = Request(host, self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, self._body())
        self.server_of.log.append(request)
        if request.headers.get("upgrade", "").lower() == "websocket":
            self._websocket(request)
            return
        site = self.server_of.sites.get(host)
        response = site(request) if site else NOT_FOUND
        self.send_response(response.status)
        for name, value in response.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815  names of the base class

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _websocket(self, request: Request) -> None:
        """RFC 6455: the handshake, then every message goes back as it came."""
        accept = hashlib.sha1(request.headers["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()
        self.send_response(101)
        self.send_header("Upgrade", "websocket")
        self.send_header("Connection", "Upgrade")
        self.send_header("Sec-WebSocket-Accept", base64.b64encode(accept).decode())
        self.end_headers()
        self.close_connection = True
        while len(head := self.rfile.read(2)) == 2:
            kind, size = head[0] & 0x0F, head[1] & 0x7F
            if size >= 126:
                size = int.from_bytes(self.rfile.read(2 if size == 126 else 8), "big")
            mask = self.rfile.read(4)
            data = bytes(byte ^ mask[at % 4] for at, byte in enumerate(self.rfile.read(size)))
            sent = bytes([len(data)]) if len(data) < 126 else b"\x7e" + struct.pack(">H", len(data))
            self.wfile.write(bytes([0x80 | (10 if kind == 9 else kind)]) + sent + data)
            if kind == 8:
                return

    def log_message(self, *_: object) -> None:
        """Kept in `log`."""


# --- git


def git_repository(path: Path) -> Path:
    """A bare repository with one commit on `main`, into which may be pushed."""
    seed = path.with_suffix(".seed")
    run("git", "init", "-q", "-b", "main", seed)
    (seed / "README").write_text("a stand-in\n")
    run("git", "-C", seed, "add", "README")
    run("git", "-C", seed, "-c", "user.name=Seed", "-c", "user.email=seed@example.com", "commit", "-q", "-m", "the first")
    run("git", "clone", "-q", "--bare", seed, path)
    run("git", "-C", path, "config", "http.receivepack", "true")
    shutil.rmtree(seed)
    return path


def git_site(root: Path) -> Site:
    """The repositories below a directory by smart HTTP: git's own CGI program."""
    backend = Path(run("git", "--exec-path").decode().strip()) / GIT_BACKEND

    def site(request: Request) -> Response:
        path, _, query = request.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "GIT_PROJECT_ROOT": str(root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "REQUEST_METHOD": request.method,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": request.headers.get("content-type", ""),
            "CONTENT_LENGTH": str(len(request.body)),
            "HTTP_CONTENT_ENCODING": request.headers.get("content-encoding", ""),
            "GIT_PROTOCOL": request.headers.get("git-protocol", ""),
            "REMOTE_USER": "someone",
        }
        done = subprocess.run([backend], env=environment, input=request.body, capture_output=True, timeout=60)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200").split()[0])
        return Response(body, status, headers)

    return site


@dataclass(frozen=True)
class Ssh:
    """A running sshd, and what a client must know to log in."""

    port: int
    user: str
    identity: Path
    host_key: str


@contextlib.contextmanager
def ssh_server(directory: Path, root: Path) -> Iterator[Ssh]:
    """A real sshd that runs the git commands of its one client in `root`.

    sshd takes each connection as inetd would give it, so its port is the kernel's choice too. Started by root it gets
    a user `git` and the directory that it wants, in a mount namespace of its own; otherwise the user is the caller.
    """
    host_key, identity = directory / "host_key", directory / "identity"
    for key in (host_key, identity):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", key)
    keys = directory / "authorized_keys"
    keys.write_text(identity.with_suffix(".pub").read_text())
    config = directory / "sshd_config"
    config.write_text(
        textwrap.dedent(f"""\
            HostKey {host_key}
            AuthorizedKeysFile {keys}
            AuthenticationMethods publickey
            PermitRootLogin yes
            StrictModes no
            UsePAM no
            UseDNS no
            PidFile none
            ForceCommand cd {root} && eval "$SSH_ORIGINAL_COMMAND"
        """)
    )
    command = ["/usr/sbin/sshd", "-i", "-f", str(config), "-E", str(directory / "sshd.log")]
    user = pwd.getpwuid(os.getuid()).pw_name
    if os.getuid() == 0:
        user = "git"
        passwd = directory / "passwd"
        others = [line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("git:")]
        passwd.write_text("\n".join([*others, f"git:x:0:0::{root}:/bin/sh", ""]))
        own = 'mount --bind "$1" /etc/passwd && mount -t tmpfs tmpfs /run && mkdir /run/sshd && shift && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", own, "sh", str(passwd), *command]

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with subprocess.Popen(command, stdin=self.request, stdout=self.request, stderr=subprocess.DEVNULL) as started:
                self.request.close()
                started.wait()

    with _threaded(Connection) as port:
        yield Ssh(port, user, identity, host_key.with_suffix(".pub").read_text().rsplit(" ", 1)[0])


@contextlib.contextmanager
def _threaded(handler: type[socketserver.BaseRequestHandler]) -> Iterator[int]:
    """The port of a server that handles each connection in a thread."""

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server((LOOPBACK, 0), handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


# --- registries


def zipped(content: dict[str, str]) -> bytes:
    """A zip archive of texts."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return buffer.getvalue()


def python_index(index: str, files: str) -> dict[str, Site]:
    """PyPI: a simple index on one host, and on the other a wheel `wave-greeting`, whose module says hello."""
    wheel = "wave_greeting-1.0-py3-none-any.whl"
    info = "wave_greeting-1.0.dist-info"
    content = {
        "wave_greeting.py": "print('hello from a wheel')\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: wave-greeting\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    data = zipped(content | {f"{info}/RECORD": "".join(f"{name},,\n" for name in (*content, f"{info}/RECORD"))})
    link = f'<!DOCTYPE html><a href="https://{files}/packages/{wheel}#sha256={hashlib.sha256(data).hexdigest()}">{wheel}</a>\n'
    return {
        index: pages({"/simple/wave-greeting/": link.encode()}, "text/html"),
        files: pages({f"/packages/{wheel}": data}, "application/octet-stream"),
    }


def npm_registry(host: str) -> Site:
    """An npm registry with one package `wave-greeting`."""
    manifest = {"name": "wave-greeting", "version": "1.0.0", "main": "index.js"}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (("package.json", json.dumps(manifest)), ("index.js", "module.exports = 'hello from a tarball'\n")):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    data = buffer.getvalue()
    tarball = "/wave-greeting/-/wave-greeting-1.0.0.tgz"
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    version = manifest | {"dist": {"tarball": f"https://{host}{tarball}", "integrity": integrity, "shasum": hashlib.sha1(data).hexdigest()}}
    document = {"name": "wave-greeting", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
    content = {"/wave-greeting": json.dumps(document).encode(), tarball: data, "/-/npm/v1/security/advisories/bulk": b"{}"}
    return pages(content)


def go_proxy(module: str) -> Site:
    """A Go module proxy with one module, whose version is v1.0.0 and whose `Greeting` says hello."""
    go_mod = f"module {module}\n\ngo 1.19\n"
    source = f'package {module.rsplit("/", 1)[-1]}\n\nfunc Greeting() string {{ return "hello from a module" }}\n'
    at = f"/{module}/@v"
    return pages(
        {
            f"{at}/list": b"v1.0.0\n",
            f"{at}/v1.0.0.info": b'{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}',
            f"{at}/v1.0.0.mod": go_mod.encode(),
            f"{at}/v1.0.0.zip": zipped({f"{module}@v1.0.0/go.mod": go_mod, f"{module}@v1.0.0/greeting.go": source}),
        },
        "text/plain",
    )


# --- other protocols


@contextlib.contextmanager
def http2_server(authority: Authority, *names: str) -> Iterator[int]:
    """Node's HTTP/2 server with TLS: says which version of HTTP it was asked by."""
    certificate, key = authority.issue(*names)
    program = """
        const fs = require('fs'), [cert, key] = process.argv.slice(1).map(name => fs.readFileSync(name));
        const server = require('http2').createSecureServer({cert, key, allowHTTP1: true}, (asked, answer) =>
          answer.end(`hello by HTTP/${asked.httpVersion} from ${(asked.authority || asked.headers.host).split(':')[0]}${asked.url}\\n`));
        server.on('sessionError', () => {}).listen(0, '127.0.0.1', () => console.log(server.address().port));
        process.stdin.on('end', () => process.exit()).resume();
    """
    with subprocess.Popen(["node", "-e", program, str(certificate), str(key)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as node:
        try:
            assert node.stdout
            yield int(node.stdout.readline())
        finally:
            node.kill()


@contextlib.contextmanager
def mail_server(name: str) -> Iterator[tuple[int, list[bytes]]]:
    """SMTP, where the server speaks first; its port, and the messages that it took."""
    messages: list[bytes] = []

    class Session(socketserver.StreamRequestHandler):
        timeout = 20

        def say(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            with contextlib.suppress(OSError):
                self.session()

        def session(self) -> None:
            self.say(f"220 {name} ESMTP at your service")
            while line := self.rfile.readline():
                verb = line.split()[0].upper() if line.split() else b""
                if verb == b"DATA":
                    self.say("354 go on")
                    messages.append(b"".join(iter(self.rfile.readline, b".\r\n")))
                    self.say("250 taken")
                elif verb == b"QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say(f"250 {name}" if verb in (b"EHLO", b"HELO", b"MAIL", b"RCPT") else "502 what?")

    with _threaded(Session) as port:
        yield port, messages


@contextlib.contextmanager
def postgres_server(directory: Path, authority: Authority, *names: str) -> Iterator[int]:
    """A real PostgreSQL with TLS for its user `tester`, run without privileges, as it wants to be."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    data = directory / "data"
    data.mkdir()
    certificate, key = (shutil.copy(file, directory / name) for file, name in zip(authority.issue(*names), ("server.pem", "server.key"), strict=True))
    os.chmod(key, 0o600)
    prefix: list[str] = []
    if os.getuid() == 0:
        # One that has a name: initdb insists.
        other = pwd.getpwnam("nobody")
        for path in (directory, data, Path(certificate), Path(key)):
            os.chown(path, other.pw_uid, other.pw_gid)
        prefix = ["setpriv", f"--reuid={other.pw_uid}", f"--regid={other.pw_gid}", "--clear-groups", "--"]
    run(*prefix, programs / "initdb", "-D", data, "-A", "trust", "-U", "tester", "-N", "--no-instructions", cwd=directory)
    # PostgreSQL cannot say which port the kernel chose: try one that was free just now, and look who answers.
    for _ in range(5):
        with socket.create_server((LOOPBACK, 0)) as free:
            port = free.getsockname()[1]
        settings = {
            "listen_addresses": LOOPBACK,
            "port": port,
            "unix_socket_directories": "",
            "ssl": "on",
            "ssl_cert_file": certificate,
            "ssl_key_file": key,
            "fsync": "off",
            "shared_buffers": "1MB",
            "dynamic_shared_memory_type": "mmap",
        }
        command = [*prefix, str(programs / "postgres"), "-D", str(data), *(word for name, value in settings.items() for word in ("-c", f"{name}={value}"))]
        with (directory / "log").open("wb") as log, subprocess.Popen(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as started:
            try:
                if _ready(started, programs, port):
                    yield port
                    return
            finally:
                started.send_signal(3)  # SIGQUIT: at once
    raise AssertionError((directory / "log").read_text())


def _ready(started: subprocess.Popen[bytes], programs: Path, port: int) -> bool:
    """Whether the server runs and answers."""
    until = time.monotonic() + 20
    while started.poll() is None and time.monotonic() < until:
        if subprocess.run([programs / "pg_isready", "-q", "-h", LOOPBACK, "-p", str(port)]).returncode == 0:
            return True
        time.sleep(0.05)
    return False
