"""Everyday tools work unchanged in `restricted`: by the proxy that its variables name, and without any, by name and port alone.

Each tool also fails on a name that the manifest does not list, though a server waits for it there as well.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import world
from fence import PYTHON, Fence, name_of
from world import Authority, Ssh, Web

pytestmark = pytest.mark.needs("bwrap", "user", "openssl", "curl", "node", "java", "git", "ssh", "sshd", "postgres")

GITHUB, NPM, GO, PYPI, WHEELS = "github.com", "registry.npmjs.org", "proxy.golang.org", "pypi.org", "files.pythonhosted.org"
WEB, WEB2, DATABASE, MAIL = "www.example.com", "h2.example.com", "db.example.com", "mail.example.com"
UNLISTED, UNLISTED2 = "unlisted.example.net", "unlisted2.example.net"
MODULE = "example.org/greet"

MANIFEST = f"""\
metadata: {{name: everyday}}
runtime:
  sandbox:
    default_allowed_domains:
      - {GITHUB}
      - {GITHUB}:22
      - {NPM}
      - {GO}
      - {PYPI}
      - {WHEELS}
      - "*.example.com"
      - {DATABASE}:5432
      - {MAIL}:25
"""

JAVA = """
import java.io.InputStream;
import java.net.*;
import java.net.http.*;
import java.util.concurrent.*;

public class Client {
    interface Attempt { String get() throws Exception; }

    static void attempt(String name, Attempt attempt) {
        String answer;
        try { answer = attempt.get().strip(); } catch (Throwable failed) { answer = "failed: " + failed; }
        System.out.println(name + ": " + answer);
    }

    static String connection(String url) throws Exception {
        HttpURLConnection connection = (HttpURLConnection) new URL(url).openConnection();
        connection.setConnectTimeout(10000);
        try (InputStream body = connection.getInputStream()) { return new String(body.readAllBytes()); }
    }

    static String client(HttpClient client, String url) throws Exception {
        HttpResponse<String> got = client.send(HttpRequest.newBuilder(URI.create(url)).build(), HttpResponse.BodyHandlers.ofString());
        if (got.statusCode() != 200) throw new Exception("status " + got.statusCode());
        return got.body();
    }

    static String socket(HttpClient client, String url) throws Exception {
        CompletableFuture<String> came = new CompletableFuture<>();
        WebSocket socket = client.newWebSocketBuilder().buildAsync(URI.create(url), new WebSocket.Listener() {
            public CompletionStage<?> onText(WebSocket socket, CharSequence text, boolean last) { came.complete(text.toString()); return null; }
        }).get(10, TimeUnit.SECONDS);
        socket.sendText("echo of Java", true).get(10, TimeUnit.SECONDS);
        String answer = came.get(10, TimeUnit.SECONDS);
        socket.sendClose(WebSocket.NORMAL_CLOSURE, "").get(10, TimeUnit.SECONDS);
        return answer;
    }

    public static void main(String[] names) {
        HttpClient client = HttpClient.newBuilder().proxy(ProxySelector.getDefault()).connectTimeout(java.time.Duration.ofSeconds(10)).build();
        String web = names[0], second = names[1];
        attempt("connection http", () -> connection("http://" + web + "/java"));
        attempt("connection https", () -> connection("https://" + web + "/java"));
        attempt("client http", () -> client(client, "http://" + web + "/java"));
        attempt("client https", () -> client(client, "https://" + web + "/java"));
        attempt("client h2", () -> client(client, "https://" + second + "/java"));
        attempt("socket ws", () -> socket(client, "ws://" + web + "/java"));
        attempt("socket wss", () -> socket(client, "wss://" + web + "/java"));
        System.exit(0);
    }
}
"""

# Removes what makes a program ask a proxy, whatever its name, and then becomes the command.
WITHOUT_PROXIES = """
for name in $(env | sed -n 's/^\\([A-Za-z_]*[Pp][Rr][Oo][Xx][Yy][A-Za-z_]*\\)=.*/\\1/p'); do unset "$name"; done
unset GIT_SSH_COMMAND JAVA_TOOL_OPTIONS
exec "$@"
"""


@dataclass(frozen=True)
class World:
    """What stands in for the public network."""

    authority: Authority
    trust_store: Path
    classes: Path
    repositories: Path
    secure: Web
    plain: Web
    ssh: Ssh
    messages: list[bytes]
    ports: dict[tuple[str, int], int]
    """Which port of 127.0.0.1 stands in for a name and a port."""


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """All servers; each listens before the first test starts."""
    base = tmp_path_factory.mktemp("world")
    for name in ("ca", "ssh", "git/me", "java"):
        (base / name).mkdir(parents=True)
    authority = Authority(base / "ca")
    with contextlib.ExitStack() as stack:
        world.git_repository(base / "git/me/repo.git")
        sites = {
            **dict.fromkeys((WEB, UNLISTED), world.hello),
            **world.python_index(PYPI, WHEELS),
            GITHUB: world.git_site(base / "git"),
            NPM: world.npm_registry(NPM),
            GO: world.go_proxy(MODULE),
        }
        https = stack.enter_context(Web(sites, authority.context(*sites)))
        http = stack.enter_context(Web(sites))
        ssh = stack.enter_context(world.ssh_server(base / "ssh", base / "git"))
        http2 = stack.enter_context(world.http2_server(authority, WEB2, UNLISTED2))
        mail, messages = stack.enter_context(world.mail_server(MAIL))
        # The server's own user must get there.
        directory = Path(tempfile.mkdtemp(prefix="wavegen-postgres-"))
        stack.callback(shutil.rmtree, directory)
        directory.chmod(0o755)
        database = stack.enter_context(world.postgres_server(directory, authority, DATABASE, UNLISTED))
        ports = {(name, 443): https.port for name in sites} | {(name, 80): http.port for name in (WEB, UNLISTED)}
        ports |= {(name, 443): http2 for name in (WEB2, UNLISTED2)} | {(name, 22): ssh.port for name in (GITHUB, UNLISTED)}
        ports |= {(name, 5432): database for name in (DATABASE, UNLISTED)} | {(name, 25): mail for name in (MAIL, UNLISTED)}
        for scheme, web in (("https", https), ("http", http)):
            # What is refused inside would be answered.
            there = ("--cacert", authority.certificate, "--connect-to", f"{UNLISTED}::{world.LOOPBACK}:{web.port}", f"{scheme}://{UNLISTED}/")
            assert world.run("curl", "-sSf", "--noproxy", "*", *there) == f"hello from {UNLISTED}/\n".encode()
            web.log.clear()
        store = base / "ca.p12"
        imported = ("-importcert", "-noprompt", "-alias", "ca", "-file", authority.certificate)
        world.run("keytool", *imported, "-keystore", store, "-storetype", "PKCS12", "-storepass", "changeit")
        (base / "java/Client.java").write_text(JAVA)
        world.run("javac", "-d", base / "java", base / "java/Client.java")
        yield World(authority, store, base / "java", base / "git", https, http, ssh, messages, ports)


@dataclass(frozen=True)
class Inside:
    """A project whose `restricted` meets the stand-ins, and one way to reach them."""

    fence: Fence
    public: World
    proxies: bool
    host: str = ""
    """What a shell does to the mounts of the host first, which only root can."""

    def __call__(self, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command inside, with more variables that are set there."""
        stand_ins = itertools.chain.from_iterable(
            ("--connect-to", f"{name}:{port}:{world.LOOPBACK}:{there}") for (name, port), there in self.public.ports.items()
        )
        trusted = dict.fromkeys(
            ("SSL_CERT_FILE", "GIT_SSL_CAINFO", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "PIP_CERT"), self.path("ca.pem")
        )
        way = () if self.proxies else ("sh", "-c", WITHOUT_PROXIES, "sh")
        more = ("env", *(f"{name}={value}" for name, value in env.items())) if env else ()
        argv = self.fence.argv("restricted", (*stand_ins, "--", *way, *more, *command))
        if self.host:
            argv = ["unshare", "--mount", "sh", "-euc", f'{self.host}; exec "$@"', "sh", *argv]
        try:
            return subprocess.run(
                argv, cwd=self.fence.project, env=self.fence.environment(**trusted), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
            )
        except subprocess.TimeoutExpired as stuck:
            (log,) = self.fence.home.rglob("network.jsonl")
            raise AssertionError(f"{command}: not over: {stuck.stdout!r} {stuck.stderr!r}; the last that was asked for: {log.read_text()[-3000:]}") from None

    def output(self, *command: str, env: dict[str, str] | None = None) -> str:
        """What a command prints that must succeed."""
        done = self(*command, env=env)
        assert done.returncode == 0, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def failure(self, *command: str, env: dict[str, str] | None = None) -> str:
        """What a command says that must fail of itself: it was there, and no signal ended it."""
        done = self(*command, env=env)
        assert done.returncode in {*range(1, 125), 128, 255}, f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def path(self, name: str) -> str:
        """A path of the project."""
        return str(self.fence.project / name)

    def directory(self) -> str:
        """A new and empty one in the project, of the user inside."""
        made = Path(tempfile.mkdtemp(dir=self.fence.project))
        os.chown(made, self.fence.uid, -1)
        return str(made)

    def write(self, name: str, text: str) -> str:
        """A file of the project that the user inside owns."""
        path = self.fence.write(name, text)
        os.chown(path, self.fence.uid, -1)
        return str(path)


def named_users() -> list[int]:
    """As `users`, but with a name in /etc/passwd, as every user of ssh has."""
    return [0, pwd.getpwnam("daemon").pw_uid] if os.getuid() == 0 else [os.getuid()]


@pytest.fixture(scope="module", params=named_users(), ids=name_of)
def fence(request: pytest.FixtureRequest, public: World) -> Iterator[Fence]:
    """A rendered project that holds what a client must trust, and its key."""
    made = Fence.create(MANIFEST, uid=request.param)
    try:
        shutil.copy(public.authority.certificate, made.project / "ca.pem")
        shutil.copy(public.trust_store, made.project / "ca.p12")
        shutil.copy(public.ssh.identity, made.project / "identity")
        shutil.copytree(public.classes, made.project / "classes")
        made.write("known_hosts", f"{GITHUB},{UNLISTED} {public.ssh.host_key}\n")
        settings = {"UserKnownHostsFile": "known_hosts", "IdentityFile": "identity"}
        lines = [f"{name} {made.project / file}" for name, file in settings.items()]
        made.write("ssh_config", "\n".join([*lines, "IdentitiesOnly yes", "BatchMode yes", "StrictHostKeyChecking yes", ""]))
        made.own()
        yield made
    finally:
        made.remove()


@pytest.fixture(params=[True, False], ids=["proxies", "transparent"])
def inside(request: pytest.FixtureRequest, fence: Fence, public: World) -> Inside:
    """Both ways to the stand-ins."""
    return Inside(fence, public, request.param)


def test_the_variables_name_a_proxy(fence: Fence, public: World) -> None:
    shown = Inside(fence, public, proxies=True).output("env").splitlines()
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        assert {f"{name}=http://127.0.0.1:3128", f"{name.lower()}=http://127.0.0.1:3128"} <= set(shown)
    assert "PROXY" not in Inside(fence, public, proxies=False).output("env").upper()


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_curl(inside: Inside, scheme: str) -> None:
    web = inside.public.secure if scheme == "https" else inside.public.plain
    assert inside.output("curl", "-sSf", f"{scheme}://{WEB}/curl?x=1") == f"hello from {WEB}/curl?x=1\n"
    assert inside.output("curl", "-sSf", "-d", "x" * 2000, f"{scheme}://{WEB}/post") == f"hello from {WEB}/post\n"
    assert web.log[-1].body == b"x" * 2000
    assert inside.failure("curl", "-sSf", f"{scheme}://{UNLISTED}/curl")
    assert not web.asked(UNLISTED)


def test_curl_asks_the_proxy_that_is_named(fence: Fence, public: World) -> None:
    assert "CONNECT www.example.com:443" in Inside(fence, public, proxies=True)("curl", "-sSfv", f"https://{WEB}/").stderr
    assert "CONNECT" not in Inside(fence, public, proxies=False)("curl", "-sSfv", f"https://{WEB}/").stderr


@pytest.mark.needs("nc")
def test_socks(fence: Fence, public: World) -> None:
    """The same port, where a program is told to."""
    inside = Inside(fence, public, proxies=False)
    curl = ("curl", "-sSf", "-x", "socks5h://127.0.0.1:3128")
    assert inside.output(*curl, f"https://{WEB}/socks") == f"hello from {WEB}/socks\n"
    assert "HTTP/1.1 200 OK" in inside.output("sh", "-c", f"printf 'HEAD / HTTP/1.0\\r\\nHost: {WEB}\\r\\n\\r\\n' | nc -X 5 -x 127.0.0.1:3128 {WEB} 80")
    assert inside.failure(*curl, f"https://{UNLISTED}/socks")
    assert not public.secure.asked(UNLISTED)


def clone_and_push(inside: Inside, address: str, branch: str, env: dict[str, str]) -> None:
    """Clone, commit more than fits into one request without chunks, push, and look whether it arrived."""
    script = """
        set -eu
        git clone -q "$1" "$2/clone" && cd "$2/clone"
        head -c 3000000 /dev/urandom >blob && git add blob
        git -c user.name=Me -c user.email=me@example.com commit -q -m "from inside"
        git push -q origin "HEAD:refs/heads/$3"
        git fetch -q && git rev-parse HEAD "origin/$3"
    """
    shown = inside.output("sh", "-c", script, "sh", address, inside.directory(), branch, env=env).split()
    there = world.run("git", "-C", inside.public.repositories / "me/repo.git", "rev-parse", branch).decode().strip()
    assert shown == [there, there]


def branch_of(inside: Inside, kind: str) -> str:
    return f"{kind}-{inside.fence.uid}-{'proxies' if inside.proxies else 'transparent'}"


def test_git_over_https(inside: Inside) -> None:
    env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_TERMINAL_PROMPT": "0"}
    clone_and_push(inside, f"https://{GITHUB}/me/repo.git", branch_of(inside, "https"), env)
    assert "unable to access" in inside.failure("git", "ls-remote", f"https://{UNLISTED}/me/repo.git", env=env)
    assert not inside.public.secure.asked(UNLISTED)


def test_git_over_ssh(inside: Inside) -> None:
    env = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_SSH_COMMAND": f"ssh -F {inside.path('ssh_config')}"}
    user = inside.public.ssh.user
    clone_and_push(inside, f"{user}@{GITHUB}:me/repo.git", branch_of(inside, "ssh"), env)
    said = inside.failure("git", "ls-remote", f"{user}@{UNLISTED}:me/repo.git", env=env)
    assert "Could not resolve hostname" in said


@pytest.mark.needs("nc")
def test_ssh_through_a_proxy_command(fence: Fence, public: World) -> None:
    """As those do who know only proxies."""
    inside = Inside(fence, public, proxies=True)
    through = ("ssh", "-F", inside.path("ssh_config"), "-o", "ProxyCommand=nc -X connect -x 127.0.0.1:3128 %h %p")
    assert inside.output(*through, f"{public.ssh.user}@{GITHUB}", "git -C me/repo.git rev-parse --is-bare-repository") == "true\n"
    assert inside.failure(*through, f"{public.ssh.user}@{UNLISTED}", "true")


@pytest.mark.needs("pip")
def test_pip(inside: Inside) -> None:
    env = {"PIP_CONFIG_FILE": "/dev/null"}
    target = inside.directory()
    inside.output(PYTHON, "-m", "pip", "install", "--no-cache-dir", "--target", target, "wave-greeting", env=env)
    assert inside.output(PYTHON, "-m", "wave_greeting", env={"PYTHONPATH": target}) == "hello from a wheel\n"
    unlisted = ("--index-url", f"https://{UNLISTED}/simple/")
    said = inside.failure(PYTHON, "-m", "pip", "install", "--retries", "0", "--target", target, *unlisted, "wave-greeting", env=env)
    assert "No matching distribution" in said
    assert not inside.public.secure.asked(UNLISTED)


@pytest.mark.needs("npm")
def test_npm(inside: Inside) -> None:
    # What npm asks of its registry besides the package has no stand-in.
    env = {"NPM_CONFIG_GLOBALCONFIG": "/dev/null", "NPM_CONFIG_AUDIT": "false", "NPM_CONFIG_UPDATE_NOTIFIER": "false"}
    directory = inside.directory()
    cache = ("--cache", f"{directory}/cache")
    inside.output("npm", "install", "--prefix", directory, *cache, "wave-greeting", env=env)
    assert inside.output("node", "-p", f"require('{directory}/node_modules/wave-greeting')") == "hello from a tarball\n"
    said = inside.failure("npm", "view", *cache, "--fetch-retries", "0", "--registry", f"https://{UNLISTED}/", "wave-greeting", env=env)
    assert "npm " in said
    assert not inside.public.secure.asked(UNLISTED)


@pytest.mark.needs("go")
def test_go(inside: Inside) -> None:
    directory = inside.directory()
    env = {"GOFLAGS": "-mod=mod -modcacherw", "GONOSUMDB": MODULE, "GOMODCACHE": f"{directory}/cache"}
    inside.write(f"{directory}/go.mod", f"module example.org/main\n\ngo 1.19\n\nrequire {MODULE} v1.0.0\n")
    inside.write(f"{directory}/main.go", f'package main\n\nimport (\n\t"fmt"\n\n\t"{MODULE}"\n)\n\nfunc main() {{ fmt.Println(greet.Greeting()) }}\n')
    done = inside("sh", "-c", 'cd "$1" && go mod download && exec go run .', "sh", directory, env=env)
    assert (done.returncode, done.stdout) == (0, "hello from a module\n"), done.stderr
    other = env | {"GOMODCACHE": f"{directory}/other", "GOPROXY": f"https://{UNLISTED}"}
    assert UNLISTED in inside.failure("sh", "-c", 'cd "$1" && go mod download', "sh", directory, env=other)
    assert not inside.public.secure.asked(UNLISTED)


NODE = {
    "fetch": "fetch(`https://${name}/node`).then(got => got.text()).then(shown, failed)",
    "https": "require('https').get(`https://${name}/node`, got => got.on('data', shown)).on('error', failed)",
    "http2": """
        const session = require('http2').connect(`https://${name}`).on('error', failed);
        session.request({':path': '/node'}).on('data', shown).on('error', failed).on('end', () => session.close());
    """,
    # Node 20 has a WebSocket behind a flag, older ones what it is made of; both send and get "echo".
    "WebSocket": """
        if (globalThis.WebSocket) {
          const socket = new WebSocket(`wss://${name}/node`);
          Object.assign(socket, {onerror: failed, onopen: () => socket.send('echo'), onmessage: got => { shown(got.data); socket.close(); }});
        } else {
          const headers = {Connection: 'Upgrade', Upgrade: 'websocket', 'Sec-WebSocket-Key': 'AAAAAAAAAAAAAAAAAAAAAA==', 'Sec-WebSocket-Version': 13};
          require('https').get(`https://${name}/node`, {headers}).on('error', failed).on('upgrade', (_, socket) => {
            socket.write(Buffer.concat([Buffer.from([0x81, 0x84, 0, 0, 0, 0]), Buffer.from('echo')]));
            socket.on('data', frame => { shown(frame.subarray(2)); socket.end(); });
          });
        }
    """,
}


@pytest.mark.parametrize("client", NODE)
def test_node(inside: Inside, client: str) -> None:
    """No node before 22.21 asks a proxy, whatever the variables say."""
    start = f"const name = process.argv[1], shown = text => console.log(String(text).trim()), failed = () => process.exit(7);{NODE[client]}"
    flag = "--experimental-websocket"
    known = client == "WebSocket" and world.run("node", "-p", f"process.allowedNodeEnvironmentFlags.has('{flag}')") == b"true\n"
    node = ("node", *([flag] if known else ()), "-e", start)
    answers = {"http2": f"hello by HTTP/2.0 from {WEB2}/node\n", "WebSocket": "echo\n"}
    listed, unlisted = (WEB2, UNLISTED2) if client == "http2" else (WEB, UNLISTED)
    assert inside.output(*node, listed) == answers.get(client, f"hello from {WEB}/node\n")
    assert inside(*node, unlisted).returncode == 7
    assert not inside.public.secure.asked(UNLISTED)


@pytest.mark.parametrize("way", ["proxies", "transparent", "told"])
def test_java(fence: Fence, public: World, way: str) -> None:
    """HttpURLConnection, HttpClient and its WebSocket, which heed no variable but may be told of the proxy."""
    inside = Inside(fence, public, proxies=way != "transparent")
    proxy = [f"-D{scheme}.proxy{key}={value}" for scheme in ("http", "https") for key, value in (("Host", "127.0.0.1"), ("Port", "3128"))]
    trust = (f"-Djavax.net.ssl.trustStore={inside.path('ca.p12')}", "-Djavax.net.ssl.trustStorePassword=changeit")
    start = ("java", "-XX:TieredStopAtLevel=1", *trust, *(proxy if way == "told" else ()), "-cp", inside.path("classes"), "Client")
    assert inside.output(*start, WEB, WEB2).splitlines() == [
        f"connection http: hello from {WEB}/java",
        f"connection https: hello from {WEB}/java",
        f"client http: hello from {WEB}/java",
        f"client https: hello from {WEB}/java",
        f"client h2: hello by HTTP/2.0 from {WEB2}/java",
        "socket ws: echo of Java",
        "socket wss: echo of Java",
    ]
    refused = inside.output(*start, UNLISTED, UNLISTED2).splitlines()
    assert len(refused) == 7
    assert all(": failed: " in line for line in refused)
    assert not public.secure.asked(UNLISTED) + public.plain.asked(UNLISTED)


def test_psql(inside: Inside) -> None:
    env = {"PGUSER": "tester", "PGDATABASE": "postgres", "PGSSLMODE": "verify-full", "PGSSLROOTCERT": inside.path("ca.pem"), "PGCONNECT_TIMEOUT": "10"}
    query = ("psql", "-X", "-A", "-t", "-c", "select 6 * 7, ssl from pg_stat_ssl where pid = pg_backend_pid()")
    assert inside.output(*query, "-h", DATABASE, env=env) == "42|t\n"
    assert "could not translate host name" in inside.failure(*query, "-h", UNLISTED, env=env)


def test_http2(inside: Inside) -> None:
    assert inside.output("curl", "-sSf", "--http2", f"https://{WEB2}/curl") == f"hello by HTTP/2.0 from {WEB2}/curl\n"
    assert inside.failure("curl", "-sSf", "--http2", f"https://{UNLISTED2}/curl")


def test_many_at_once(inside: Inside) -> None:
    got = inside.output("curl", "-sSf", "-Z", "--parallel-max", "40", "--no-keepalive", *(f"https://{WEB}/{at}" for at in range(120)))
    assert sorted(got.splitlines()) == sorted(f"hello from {WEB}/{at}" for at in range(120))


@pytest.mark.needs("nc")
def test_a_server_that_speaks_first(inside: Inside) -> None:
    before = len(inside.public.messages)
    inside.write("letter", f"Subject: hello\r\n\r\n{'x' * 70}\r\n" * 3)
    mail = ("--mail-from", "me@example.org", "--mail-rcpt", "you@example.org", "-T", inside.path("letter"))
    inside.output("curl", "-sS", f"smtp://{MAIL}:25", *mail)
    assert inside.public.messages[before:] == [(inside.fence.project / "letter").read_bytes()]
    assert inside.failure("curl", "-sS", f"smtp://{UNLISTED}:25", *mail)
    banner = "import socket, sys; print(socket.create_connection((sys.argv[1], 25), 10).makefile().readline())"
    assert f"220 {MAIL} ESMTP" in inside.output(PYTHON, "-c", banner, MAIL)
    assert "Name or service not known" in inside.failure(PYTHON, "-c", banner, UNLISTED)
    assert f"220 {MAIL} ESMTP" in inside.output("sh", "-c", 'echo QUIT | nc -N -w 10 "$1" 25', "sh", MAIL)
    assert inside.failure("sh", "-c", 'echo QUIT | nc -N -w 10 "$1" 25', "sh", UNLISTED)
    assert len(inside.public.messages) == before + 1


def test_a_server_inside_and_the_own_name(inside: Inside) -> None:
    """What listens inside is reached there, and the machine's own name leads to itself, as Java and others expect."""
    serve = """
        set -eu
        /usr/bin/python3 -c 'import socket; socket.getaddrinfo(socket.gethostname(), 0)'
        rm -f log
        /usr/bin/python3 -u -m http.server -b 127.0.0.1 8765 >log 2>&1 & trap "kill $!" EXIT
        until grep -qs Serving log; do sleep 0.05; done
        curl -sSf http://127.0.0.1:8765/known_hosts http://localhost:8765/known_hosts
    """
    assert inside.output("sh", "-c", serve).count(inside.public.ssh.host_key) == 2


@pytest.mark.skipif(os.getuid() != 0, reason="exchanges files of /etc")
def test_ssh_where_the_system_has_settings(fence: Fence, public: World) -> None:
    """As systemd 256 and Fedora install them: ssh wants them to be root's, whom a user namespace does not know."""
    given = "mount -t tmpfs -o mode=755 tmpfs /etc/ssh/ssh_config.d; echo 'Host unix/*' >/etc/ssh/ssh_config.d/20-systemd-ssh-proxy.conf"
    assert f"hostname {GITHUB}\n" in Inside(fence, public, proxies=True, host=given).output("ssh", "-G", GITHUB)


@pytest.mark.skipif(os.getuid() != 0, reason="exchanges files of /etc")
def test_names_that_the_host_knows_otherwise(inside: Inside) -> None:
    """The host's own /etc/hosts leads where nothing inside can go."""
    given = f"mount -t tmpfs tmpfs /mnt; printf '127.0.0.1 localhost\\n192.0.2.1 {WEB} {UNLISTED}\\n' >/mnt/hosts; mount --bind /mnt/hosts /etc/hosts"
    there = replace(inside, host=given)
    assert there.output("curl", "-sSf", "-m", "10", f"https://{WEB}/") == f"hello from {WEB}/\n"
    assert there.failure("curl", "-sSf", "-m", "10", f"https://{UNLISTED}/")


def test_a_port_that_is_not_listed(inside: Inside) -> None:
    """A listed name is reached on its listed ports alone."""
    connect = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).recv(1)"
    assert inside.failure(PYTHON, "-c", connect, GITHUB, "25")
    assert inside.failure(PYTHON, "-c", connect, WEB, "5432")
