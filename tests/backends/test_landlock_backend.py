"""The fence of Landlock alone, from inside: what it refuses the same program may do outside, and what is work goes on."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from fence import PYTHON, Fence, name_of, users
from helpers import call, command_lines, in_place_of_bwrap, project, until
from stand_in import Server, echo

from wavegen.backends.sandboxes.rules_file import base_text
from wavegen.core import resources
from wavegen.manifest.model import Seccomp
from wavegen.seccomp import Arch
from wavegen.seccomp.bpf import assemble_filter
from wavegen.seccomp.filters import filter_of

pytestmark = pytest.mark.needs("landlock")

NAME, PORT = "echo.example.com", 7000
MANIFEST = """\
metadata: {name: fence}
runtime:
  sandbox:
    backend: landlock
    deny_read_paths: ["~/.ssh"]
    default_allowed_domains: ["echo.example.com:7000"]
    env_passthrough: [WANTED]
    paths:
      - {path: ~/.gitconfig, access: read}
      - {path: ~/shared, access: write}
    shells:
      silent: {network: none}
      unfiltered: {network: filtered}
"""
SHELLS = ("default", "restricted", "silent")


@dataclass(frozen=True)
class Alone(Fence):
    """A fence whose shells are entered by their Landlock scripts."""

    def argv(self, shell: str, command: tuple[str, ...]) -> list[str]:
        return Fence.argv(self, f"landlock-{shell}", command)


def made(manifest: str = MANIFEST, uid: int | None = None) -> Alone:
    fence = Alone.create(manifest, uid=users()[0] if uid is None else uid)
    assert isinstance(fence, Alone)
    for name, text in ((".ssh/id", "CANARY"), (".gitconfig", "[user]\nname = Me\nemail = me@example.com\n"), ("shared/old", "old"), ("secret", "CANARY")):
        path = fence.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    fence.own()
    return fence


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Alone]:
    one = made(uid=request.param)
    yield one
    one.remove()


@pytest.fixture
def own() -> Iterator[Alone]:
    one = made(uid=users()[-1])
    yield one
    one.remove()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    one = Server(echo)
    yield one
    one.close()


# Each attempt with its error's name, or "ok": run inside and, to see that it could succeed, outside.
TRY = r"""
import ctypes, errno, json, os, signal, socket, sys
base, pid, port, abstract, answer = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], {}
def attempt(name, do):
    try:
        do()
        answer[name] = "ok"
    except OSError as failed:
        answer[name] = errno.errorcode[failed.errno]
def syscall(*args):
    if ctypes.CDLL(None, use_errno=True).syscall(*args) < 0:
        raise OSError(ctypes.get_errno(), "")
def tcp():
    with socket.create_connection(("127.0.0.1", port), 5): pass
def udp():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock: sock.sendto(b"x", ("127.0.0.1", port))
def fast_open():
    with socket.socket() as sock: sock.sendto(b"x", 0x20000000, ("127.0.0.1", port))
def mptcp():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262) as sock: sock.connect(("127.0.0.1", port))
def listen():
    with socket.socket() as sock: sock.bind(("127.0.0.1", 0))
def unix():
    with socket.socket(socket.AF_UNIX) as sock: sock.connect("\0" + abstract)
attempt("read", lambda: open(base + "/home/secret").close())
attempt("ssh", lambda: open(base + "/home/.ssh/id").close())
attempt("list", lambda: os.listdir(base + "/home"))
attempt("write", lambda: open(base + "/outside/new", "w").close())
attempt("remove", lambda: os.remove(base + "/outside/victim"))
attempt("environ", lambda: open(f"/proc/{pid}/environ", "rb").close())
attempt("signal", lambda: os.kill(pid, 0))
attempt("abstract", unix)
attempt("io_uring", lambda: syscall(425, 8, ctypes.create_string_buffer(120)))
for name, do in (("tcp", tcp), ("udp", udp), ("fast_open", fast_open), ("mptcp", mptcp), ("listen", listen)):
    attempt(name, do)
print(json.dumps(answer))
"""


@pytest.fixture
def attempts(fence: Alone, server: Server) -> Iterator[tuple[str, ...]]:
    """The arguments of TRY: a process of the same user, a TCP server, an abstract socket."""
    outside = fence.base / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "victim").write_text("x")
    fence.own()
    prefix = ["setpriv", f"--reuid={fence.uid}", f"--regid={fence.uid}", "--clear-groups"] if fence.uid != os.getuid() else []
    with subprocess.Popen([*prefix, "sleep", "60"]) as process, socket.socket(socket.AF_UNIX) as abstract:
        name = f"wavegen-{os.getpid()}"
        abstract.bind(f"\0{name}")
        abstract.listen()
        time.sleep(0.1)
        yield str(fence.base), str(process.pid), str(server.port), name
        process.kill()


ALLOWED = {"default": {"tcp", "udp", "fast_open", "mptcp", "listen"}, "restricted": set(), "silent": set()}


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_outside_stays_outside(fence: Alone, attempts: tuple[str, ...], shell: str) -> None:
    inside = fence.python(TRY, *attempts, shell=shell)
    assert isinstance(inside, dict)
    prefix = ["setpriv", f"--reuid={fence.uid}", f"--regid={fence.uid}", "--clear-groups"] if fence.uid != os.getuid() else []
    done = subprocess.run([*prefix, PYTHON, "-c", TRY, *attempts], capture_output=True, text=True, check=True)
    outside = json.loads(done.stdout)
    # All of it is possible for this user without the fence; io_uring where the machine has it.
    assert {name for name, answer in outside.items() if answer != "ok"} <= {"io_uring", "mptcp", "fast_open"}
    assert {name for name, answer in inside.items() if answer == "ok"} == ALLOWED[shell] & {name for name, answer in outside.items() if answer == "ok"}
    assert {inside[name] for name in ("read", "ssh", "list", "write", "remove", "environ")} == {"EACCES"}
    assert {inside[name] for name in ("signal", "abstract")} == {"EPERM"}


@pytest.mark.parametrize(("shell", "expected"), [("restricted", ("EACCES", "EPERM")), ("silent", ("EAFNOSUPPORT", "EAFNOSUPPORT"))])
def test_the_network_is_refused_by_the_layer_that_is_meant(fence: Alone, attempts: tuple[str, ...], shell: str, expected: tuple[str, str]) -> None:
    inside = fence.python(TRY, *attempts, shell=shell)
    assert isinstance(inside, dict)
    assert (inside["tcp"], inside["udp"]) == expected


def test_root_reads_no_passwords_and_has_no_capability(fence: Alone) -> None:
    done = fence.enter("sh", "-c", "cat /etc/shadow; grep -E 'Cap(Eff|Prm|Inh)|NoNewPrivs|Seccomp:' /proc/self/status")
    assert "/etc/shadow: Permission denied" in done.stderr
    fields = dict(line.split(":\t") for line in done.stdout.splitlines())
    assert {fields[f"Cap{name}"] for name in ("Eff", "Prm", "Inh")} == {"0" * 16}
    assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.needs("git")
def test_the_project_is_worked_in(fence: Alone, shell: str) -> None:
    script = (
        "set -e; mkdir r && cd r && git init -q . && mkdir a b && echo 1 >a/f && git add . && git commit -qm one && git log --format=%an"
        " && mv a/f b/g && ln b/g a/h && mv a b/a && git add -A && git commit -qm two && cat b/a/h && cd .. && rm -rf r"
    )
    done = fence.enter("sh", "-c", script, shell=shell)
    assert (done.returncode, done.stdout) == (0, "Me\n1\n"), done.stderr
    assert not (fence.project / "r").exists()


def test_grants_are_there_under_their_names_and_no_more(fence: Alone) -> None:
    done = fence.enter("sh", "-c", "cat ~/shared/old; echo new >~/shared/new; echo x >>~/.gitconfig; cat ~/secret")
    assert done.stdout == "old"
    assert (fence.home / "shared/new").read_text() == "new\n"
    assert "name = Me" in (fence.home / ".gitconfig").read_text()
    assert "x" not in (fence.home / ".gitconfig").read_text().splitlines()
    assert done.stderr.count("Permission denied") == 1
    assert "secret: No such file" in done.stderr


def test_home_is_private_and_kept_and_tmp_is_gone_with_the_shell(fence: Alone) -> None:
    done = fence.enter("sh", "-c", 'echo kept >~/kept; echo gone >"$TMPDIR/gone"; echo "$HOME"; echo "$TMPDIR"; umask')
    home, tmp, umask = done.stdout.split()
    assert Path(home).parent == Path(tmp).parent
    assert not (fence.home / "kept").exists()
    assert (Path(home) / "kept").read_text() == "kept\n"
    assert not Path(tmp).exists()
    os.umask(mask := os.umask(0))
    assert umask == f"{mask:04o}"
    assert fence.enter("cat", "kept", cwd=fence.project).returncode == 1
    assert fence.enter("sh", "-c", "cat ~/kept").stdout == "kept\n"


def test_the_environment_is_the_policys_alone(fence: Alone) -> None:
    host = fence.environment(SECRET="CANARY", WANTED="yes", LD_PRELOAD_X="CANARY", BASH_ENV="/dev/stdin", PYTHONPATH="/nowhere")
    done = fence.enter(PYTHON, "-I", "-S", "-c", "import os, json; print(json.dumps(dict(os.environ)))", env=host)
    inside = json.loads(done.stdout)
    assert inside["WANTED"] == "yes"
    assert "CANARY" not in done.stdout
    assert not {"SECRET", "BASH_ENV", "PYTHONPATH", "wg_path", "SHLVL", "_", "HTTPS_PROXY"} & inside.keys()
    assert "environ: Permission denied" in fence.enter("sh", "-c", "cat /proc/$PPID/environ", env=host).stderr


def test_the_working_directory_is_kept_below_the_project_only(fence: Alone) -> None:
    below = fence.project / "below"
    below.mkdir(exist_ok=True)
    fence.own()
    assert fence.enter("pwd", cwd=below).stdout == f"{below}\n"
    assert fence.enter("pwd", cwd=fence.base).stdout == f"{fence.project}\n"


def test_no_descriptor_of_the_caller_arrives(fence: Alone) -> None:
    with open(fence.home / "secret") as stream:
        done = subprocess.run(
            ["bash", "-c", f'exec 9<&{stream.fileno()}; exec "$@"', "-", *fence.argv("default", (PYTHON, "-c", "import os; print(os.listdir('/proc/self/fd'))"))],
            pass_fds=(stream.fileno(),), env=fence.environment(), cwd=fence.project, capture_output=True, text=True,
        )  # fmt: skip
    assert done.stdout == "['0', '1', '2', '3']\n"  # 3 is the listing's own


# --- the network, by name


FETCH = """
import json, os, socket, sys
host, port = os.environ["HTTPS_PROXY"].removeprefix("http://").split(":")
found = []
for name in sys.argv[1:]:
    with socket.create_connection((host, int(port)), 10) as sock:
        sock.sendall(f"CONNECT {name} HTTP/1.1\\r\\nHost: {name}\\r\\n\\r\\n".encode())
        answer = sock.recv(4096).split(b"\\r\\n")[0].decode()
        if " 200 " in answer:
            sock.sendall(b"ping")
            answer = sock.recv(100).decode()
        found.append(answer)
print(json.dumps(found))
"""


def test_a_listed_name_is_reached_and_no_other(fence: Alone, server: Server) -> None:
    server.said()
    options = server.at(NAME, PORT)
    done = fence.enter(*options, PYTHON, "-I", "-c", FETCH, f"{NAME}:{PORT}", "other.example.com:7000", f"127.0.0.1:{server.port}", shell="restricted")
    assert done.returncode == 0, done.stderr
    reached, refused, loopback = json.loads(done.stdout)
    assert reached == "ping"
    assert {refused.split()[1], loopback.split()[1]} == {"403"}
    log = next(fence.home.glob(".local/state/wavegen/*/restricted/network.jsonl")).read_text()
    assert sorted(json.loads(line)["verdict"] for line in log.splitlines()) == ["allow", "deny", "deny"]


@pytest.mark.skipif(os.getuid() != 0, reason="needs two users")
def test_another_user_is_not_answered_by_the_proxy(fence: Alone, server: Server) -> None:
    script = 'echo "$HTTPS_PROXY" >proxy.new && mv proxy.new proxy && while [ -e proxy ]; do sleep 0.05; done'
    process = subprocess.Popen(fence.argv("restricted", (*server.at(NAME, PORT), "sh", "-c", script)), env=fence.environment(), cwd=fence.project)
    at = fence.project / "proxy"
    try:
        assert until(at.exists)
        env = {"HTTPS_PROXY": at.read_text().strip()}
        answers = {}
        for uid in (fence.uid, 34567):
            command = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", PYTHON, "-c", FETCH, f"{NAME}:{PORT}"]
            answers[uid] = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
        assert json.loads(answers[fence.uid].stdout) == ["ping"]
        assert "ping" not in answers[34567].stdout
    finally:
        at.unlink(missing_ok=True)
        process.wait(20)


# --- how it ends


@pytest.mark.parametrize(
    ("command", "status", "said"),
    [
        (("sh", "-c", "exit 7"), 7, ""),
        (("sh", "-c", "kill -TERM $$"), 143, ""),
        (("no-such-command",), 127, "wavegen: no-such-command: command not found inside (add its package to the manifest, or grant its path)"),
        (("./plain",), 126, "wavegen: ./plain cannot be executed inside: Permission denied"),
        (("--wrong", "true"), 125, "unknown option --wrong"),
    ],
)
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_the_status_is_the_commands_or_says_why_there_is_none(fence: Alone, shell: str, command: tuple[str, ...], status: int, said: str) -> None:
    fence.write("plain", "x")
    fence.own()
    done = fence.enter(*command, shell=shell)
    assert done.returncode == status, done.stderr
    assert said in done.stderr


def test_a_signal_to_the_launcher_reaches_the_command(fence: Alone) -> None:
    script = "trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    with subprocess.Popen(
        fence.argv("default", ("sh", "-c", script)), env=fence.environment(), cwd=fence.project, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "got\n"
        assert process.wait(20) == 3


def test_what_is_left_running_ends_with_the_shell(fence: Alone) -> None:
    mark = f"86{os.getpid()}"
    done = fence.enter("sh", "-c", f"setsid sleep {mark} >/dev/null 2>&1 & echo started")
    assert done.stdout == "started\n"
    # Its own whole command line: that of the process which looks afterwards is the launcher's, and holds these words, too.
    assert f"sleep\0{mark}\0" not in command_lines().values()


ON_A_TERMINAL = r"""
import os, pty, sys, time
pid, master = pty.fork()
if not pid:
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
def until(what):
    global said
    end = time.monotonic() + 60
    while what not in said:
        assert time.monotonic() < end, said
        try:
            said += os.read(master, 4096)
        except OSError:
            raise SystemExit(f"it ended with {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])} and said {said}")
"""
ONCE = r"""
until(b"READY")
os.write(master, b"\x03")
until(b"DONE")
print(said.count(b"GOT"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
SURVIVES = r"""
os.write(master, b"echo READ''Y; sleep 40\n")
until(b"READY")
time.sleep(0.5)
os.write(master, b"\x03")
time.sleep(0.5)
os.write(master, b"echo ALI''VE; exit 5\n")
until(b"ALIVE")
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def on_a_terminal(fence: Alone, play: str, *command: str) -> str:
    words = [PYTHON, "-c", ON_A_TERMINAL + play, *fence.argv("default", command)]
    done = subprocess.run(words, env=fence.environment(), cwd=fence.project, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_ctrl_c_reaches_the_command_once(fence: Alone) -> None:
    """It would come twice if the launcher passed on what the terminal sends to both."""
    handler = "signal.signal(2, lambda *_: os.write(1, b'GOT '))"
    script = f"import os, signal, time; {handler}; os.write(1, b'READY '); time.sleep(1.5); os.write(1, b'DONE '); raise SystemExit(4)"
    assert on_a_terminal(fence, ONCE, PYTHON, "-I", "-S", "-c", script) == "1 4\n"


def test_ctrl_c_ends_what_runs_and_the_shell_survives(fence: Alone) -> None:
    assert on_a_terminal(fence, SURVIVES) == "5\n"


def test_without_a_terminal_the_command_has_a_session_of_its_own(fence: Alone) -> None:
    assert fence.python("import json, os; print(json.dumps(os.getsid(0) == os.getpid()))") is True


# --- it needs no namespaces


def test_it_starts_without_bwrap_and_where_no_namespace_can_be_made(own: Alone) -> None:
    broken = own.write("broken", "#!/bin/sh\necho BWRAP; exit 1\n")
    broken.chmod(0o755)
    own.own()
    no_userns = filter_of(Seccomp.DEFAULT, nested=False)
    assert no_userns
    # No user namespace can be made below this filter, nor does bwrap work.
    path = own.base / "filter"
    path.write_bytes(assemble_filter(no_userns, *Arch))
    path.chmod(0o644)
    step = [PYTHON, "-I", "-S", str(own.project / ".wavegen/launcher/inside/restrict_and_exec.py")]
    filtered = ["bash", "-c", f'exec {shlex.join(step)} --seccomp 7 -- "$@" 7<"$0"', str(path)]
    entry = own.argv("default", ("sh", "-c", "unshare -U true || echo NONE"))
    done = subprocess.run([*in_place_of_bwrap(broken), *filtered, *entry], env=own.environment(), cwd=own.project, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "NONE\n"), done.stderr
    # And the machine of the test is as it says.
    outside = subprocess.run([*filtered, "unshare", "-U", "true"], capture_output=True, text=True)
    assert outside.returncode != 0


NO_LANDLOCK = """
import sys; sys.dont_write_bytecode = True
package = sys.modules["launcher"] = type(sys)("launcher")
package.__path__ = [sys.argv[1]]
from launcher.inside import restrict_and_exec
restrict_and_exec.ask_landlock = lambda: (int(sys.argv[2]), 0)
from launcher.start import main
main(sys.argv[3:], sys.argv[1])
"""
LAUNCHER = os.path.join(resources.package_directory(), "launcher")


@pytest.mark.parametrize(
    ("abi", "network", "fallback", "status", "said"),
    [
        ("0", "host", "error", 125, "the kernel has no Landlock"),
        ("2", "host", "error", 125, "(ABI 2) cannot restrict truncation of files"),
        ("3", "none", "error", 125, "(ABI 3) cannot restrict listening TCP ports"),
        ("0", "host", "warn", 0, "NOT SANDBOXED"),
    ],
)
def test_a_kernel_that_holds_too_little_runs_nothing(  # noqa: PLR0917
    own: Alone, abi: str, network: str, fallback: str, status: int, said: str
) -> None:
    rules = f"shell\tdefault\t-\nnetwork\t{network}\t-\nfallback\t{fallback}\t-\nseccomp_landlock\toff\t-\n{base_text()}"
    with tempfile.TemporaryFile() as text:
        text.write(rules.encode())
        text.seek(0)
        words = [f"@{text.fileno()}", "--backend", "landlock", "--project", str(own.project), "echo", "RAN"]
        command = [PYTHON, "-I", "-S", "-c", NO_LANDLOCK, LAUNCHER, abi, *words]
        done = subprocess.run(command, env=own.environment(), pass_fds=(text.fileno(),), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, "RAN\n" if fallback == "warn" else "")
    assert said in done.stderr


# --- the fence's own files


def test_run_refuses_what_a_command_changed_until_it_is_rendered_again() -> None:
    fence = made(uid=os.getuid())
    try:
        assert fence.wavegen("run", "--", "true").returncode == 0
        for name in ("wave.yaml", ".wavegen/bin/landlock-default", ".wavegen/launcher/landlock.py", ".wavegen/seccomp/default.bpf", ".wavegen/lock.json"):
            done = fence.wavegen("run", "--", "sh", "-c", f"printf '\\n' >>{name}")
            assert done.returncode == 0, done.stderr
            refused = fence.wavegen("run", "--", "echo", "RAN")
            assert (refused.returncode, refused.stdout) == (125, ""), name
            assert "wavegen render" in refused.stderr
            assert fence.render().returncode == 0
            assert fence.wavegen("run", "--", "echo", "RAN").stdout == "RAN\n", name
    finally:
        fence.remove()


def test_a_manifest_and_a_list_that_fit_each_other_are_refused_too() -> None:
    """A command may run render itself; what it cannot reach is the digest that the host left."""
    fence = made(uid=os.getuid())
    try:
        assert fence.wavegen("run", "--", "true").returncode == 0
        fence.write("wave.yaml", MANIFEST.replace('deny_read_paths: ["~/.ssh"]', "deny_read_paths: []"))
        subprocess.run([sys.executable, "-m", "wavegen", "render"], cwd=fence.project, env=fence.environment(XDG_STATE_HOME=str(fence.base / "x")), check=True)
        refused = fence.wavegen("run", "--", "echo", "RAN")
        assert (refused.returncode, refused.stdout) == (125, "")
        assert "lock.json is not what was rendered here" in refused.stderr
        fence.wavegen("render")
        assert fence.wavegen("run", "--", "echo", "RAN").stdout == "RAN\n"
    finally:
        fence.remove()


# --- what it cannot hold is refused


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("deny_read_paths: [.env]", "./.env cannot be hidden: . is granted"),
        ("deny_read_paths: [/usr/share/secret]", "/usr/share/secret cannot be hidden: /usr is granted"),
        ("deny_read_paths: [~/w/s]\n    paths: [{path: ~/w, access: read, optional: true}]", "~/w/s cannot be hidden: ~/w is granted"),
        ("paths: [{path: vendor, access: read, optional: true}]", "./vendor cannot be read-only: . is writable"),
    ],
)
def test_an_ignored_rule_is_an_error_and_renders_nothing(tmp_path: Path, more: str, said: str) -> None:
    root = project(tmp_path, f"metadata: {{name: d}}\nruntime:\n  sandbox:\n    backend: landlock\n    {more}\n")
    done = call("render", cwd=root)
    assert done.status == 2
    assert said in done.output
    assert not (root / ".wavegen").exists()


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("hide", "Landlock cannot hide"),
        ("home", "contains the home directory"),
        ("link", "is a link that a command could have made"),
        ("missing", "does not exist"),
    ],
)
def test_what_is_seen_only_at_the_start_is_refused_there(own: Alone, kind: str, said: str) -> None:
    base, inside = own.base, own.project / "sub/secret"
    inside.mkdir(parents=True)
    (own.project / "leads").symlink_to(own.home / ".ssh")
    more = {
        "hide": f"deny_read_paths: ['{inside}']",
        "home": f"paths: [{{path: '{base}', access: read}}]",
        "link": "paths: [{path: leads, access: write}]",
        "missing": f"paths: [{{path: '{base}/none', access: read}}]",
    }[kind]
    own.write("wave.yaml", f"metadata: {{name: d}}\nruntime:\n  sandbox:\n    backend: landlock\n    {more}\n")
    assert own.render().returncode == 0
    done = own.enter("echo", "RAN")
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert said in done.stderr


def test_no_link_in_the_private_home_leads_the_launcher_out(own: Alone) -> None:
    own.write("wave.yaml", "metadata: {name: d}\nruntime:\n  sandbox:\n    backend: landlock\n    paths: [{path: ~/.config/x, access: read}]\n")
    (own.home / ".config").mkdir()
    (own.home / ".config/x").write_text("granted")
    victim = own.base / "victim"
    victim.mkdir()
    own.own()
    assert own.render().returncode == 0
    assert own.enter("sh", "-c", f"cat ~/.config/x && rm -r ~/.config && ln -s {victim} ~/.config").stdout == "granted"
    done = own.enter("echo", "RAN")
    assert (done.returncode, done.stdout) == (125, "")
    assert not list(victim.iterdir())


def test_scripts_are_rendered_only_where_the_manifest_says_so(tmp_path: Path) -> None:
    root = project(tmp_path, "metadata: {name: d}\n")
    assert call("render", cwd=root).status == 0
    assert not list((root / ".wavegen/bin").glob("landlock-*"))
    (root / "wave.yaml").write_text("metadata: {name: d}\nruntime: {sandbox: {backend: landlock, shells: {n: {network: open}}}}\n")
    done = call("render", cwd=root)
    assert sorted(path.name for path in (root / ".wavegen/bin").glob("landlock-*")) == ["landlock-default", "landlock-n", "landlock-restricted"]
    done = call("plan", cwd=root)
    for said in ("can connect to Unix sockets of the host", "Landlock filters by port, not by address", "git's hooks and settings", "can stat files outside"):
        assert said in done.output


def test_print_shows_what_is_asked_and_what_is_held(own: Alone) -> None:
    done = own.enter("--print", "--", "touch", "made", shell="restricted")
    lines = done.stdout.splitlines()
    assert f"--write {own.project}  # default: what the shell is for" in lines
    assert [line for line in lines if line.startswith("--landlock-masks ")]
    assert any(line.startswith("--read ") and line.endswith("/.gitconfig  # wave.yaml:9") for line in lines), lines
    assert not (own.project / "made").exists()
