"""The fence, tried from inside: as root and as a user without privileges. Each refusal has a twin that must work."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence import MANIFEST, PYTHON, Fence, name_of, users, wait_until
from helpers import in_place_of, in_place_of_bwrap, until

pytestmark = pytest.mark.needs("bwrap")

NAMESPACES = ("user", "mnt", "pid", "ipc", "uts", "cgroup", "net")
SHELLS = ("default", "restricted")


@pytest.fixture(scope="module", params=users(), ids=name_of)
def fence(request: pytest.FixtureRequest) -> Iterator[Fence]:
    made = Fence.create(MANIFEST, uid=request.param)
    for name in (".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml", "canary"):
        path = made.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("CANARY")
    (made.base / "work/neighbour").mkdir()
    (made.base / "work/neighbour/secret").write_text("CANARY")
    made.write("src/file", "mine")
    made.own()
    yield made
    made.remove()


@pytest.fixture
def new(request: pytest.FixtureRequest) -> Iterator[object]:
    """Makes a fence from a manifest; all are removed at the end."""
    made: list[Fence] = []

    def make(manifest: str = MANIFEST, *, uid: int | None = None, **options: str) -> Fence:
        made.append(Fence.create(manifest, uid=users()[0] if uid is None else uid, **options))
        return made[-1]

    yield make
    for one in made:
        one.remove()


# --- it ran inside, and not for nothing


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_runs_in_namespaces_of_its_own(fence: Fence, shell: str) -> None:
    code = "import json, os, sys; print(json.dumps({n: os.readlink(f'/proc/self/ns/{n}') for n in sys.argv[1:]}))"
    inside = fence.python(code, *NAMESPACES, shell=shell)
    outside = {n: os.readlink(f"/proc/self/ns/{n}") for n in NAMESPACES}
    same = {n for n in NAMESPACES if inside[n] == outside[n]}  # type: ignore[index]
    assert same == ({"net"} if shell == "default" else set())


@pytest.mark.parametrize("shell", SHELLS)
def test_the_project_can_be_worked_in(fence: Fence, shell: str) -> None:
    done = fence.enter("sh", "-c", "echo new >made && cat src/file made && mkdir d && mv made d/ && rm -r d && pwd", shell=shell)
    assert (done.returncode, done.stdout) == (0, f"minenew\n{fence.project}\n"), done.stderr


def test_a_subdirectory_stays_the_working_directory(fence: Fence) -> None:
    assert fence.enter("pwd", cwd=fence.project / "src").stdout.strip() == str(fence.project / "src")
    assert fence.enter("pwd", cwd=fence.base).stdout.strip() == str(fence.project)


@pytest.mark.parametrize("shell", SHELLS)
def test_everyday_programs_work(fence: Fence, shell: str) -> None:
    code = (
        "import subprocess, threading, tempfile, socket, json, getpass, os;"
        "t=threading.Thread(target=print, args=('',), kwargs={'end': ''}); t.start(); t.join();"
        "f=tempfile.NamedTemporaryFile(); s=socket.socket(); s.bind(('127.0.0.1', 0)); s.listen();"
        "c=socket.create_connection(s.getsockname());"
        "subprocess.run(['git', 'init', '-q', '/tmp/r'], check=True);"
        "print(json.dumps([f.name.startswith('/tmp/'), os.environ['HOME']]))"
    )
    assert fence.python(code, shell=shell) == [True, str(fence.home)]


# --- paths


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("place", ["canary", ".ssh/id_ed25519", ".aws/credentials", ".config/gh/hosts.yml"])
def test_the_real_home_is_not_there(fence: Fence, shell: str, place: str) -> None:
    assert (fence.home / place).read_text() == "CANARY"
    assert fence.enter("cat", str(fence.home / place), shell=shell).returncode == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_written_to_home_survives_inside_and_never_reaches_the_real_home(fence: Fence, shell: str) -> None:
    before = sorted(p.name for p in fence.home.iterdir())
    assert fence.enter("sh", "-c", "echo token >~/.login && mkdir -p ~/.cache/x", shell=shell).returncode == 0
    assert fence.enter("cat", f"{fence.home}/.login", shell=shell).stdout == "token\n"
    assert set(before) | {".local"} == {p.name for p in fence.home.iterdir()} | {".local"}
    assert not (fence.home / ".login").exists()


def test_each_shell_has_a_home_of_its_own(fence: Fence) -> None:
    fence.enter("sh", "-c", "echo 'curl evil' >>~/.bashrc", shell="restricted")
    assert fence.enter("cat", f"{fence.home}/.bashrc", shell="default").returncode == 1


@pytest.mark.parametrize("shell", SHELLS)
def test_the_projects_neighbours_are_not_there(fence: Fence, shell: str) -> None:
    assert fence.enter("ls", str(fence.base / "work"), shell=shell).stdout == "project\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_outside_the_project_home_and_scratch_can_be_written(fence: Fence, shell: str) -> None:
    code = """
import json, os
def writable(top):
    for directory, names, files in os.walk(top, followlinks=False):
        if directory.startswith(('/proc/', '/dev/pts')) or directory in allowed:
            names[:] = []
            continue
        try:
            name = os.path.join(directory, '.wavegen-probe')
            os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            os.unlink(name)
            yield directory
            names[:] = []
        except OSError:
            pass
        if directory.count('/') > 3: names[:] = []
import sys
allowed = set(sys.argv[1:])
print(json.dumps(sorted(writable('/'))))
"""
    allowed = ("/tmp", "/run", "/var/run", "/var/tmp", "/dev/shm", str(fence.home), str(fence.project))
    assert fence.python(code, *allowed, shell=shell) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_no_setting_of_the_kernel_can_be_opened_for_writing(fence: Fence, shell: str) -> None:
    code = """
import json, os
found = []
for top in ('/proc', '/sys'):
    for directory, names, files in os.walk(top):
        names[:] = [n for n in names if not (directory == '/proc' and (n.isdigit() or n in ('self', 'thread-self')))]
        for file in files:
            try:
                os.close(os.open(os.path.join(directory, file), os.O_WRONLY | os.O_NONBLOCK))
                found.append(os.path.join(directory, file))
            except OSError:
                pass
print(json.dumps(found))
"""
    assert fence.python(code, shell=shell) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_passwords_and_keys_of_the_host_cannot_be_read(fence: Fence, shell: str) -> None:
    code = """
import json, os
found = []
for name in ('/etc/shadow', '/etc/gshadow', '/etc/shadow-', '/etc/sudoers', '/etc/ssh/ssh_host_rsa_key', '/etc/machine-id', '/root/.bashrc', '/var/lib/docker', '/var/log/dpkg.log', '/boot/config'):
    try:
        found.append([name, open(name).read(10)])
    except OSError:
        pass
print(json.dumps(found))
"""
    assert fence.python(code, shell=shell) == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["wave.yaml", "flake.nix", "flake.lock", ".wavegen/plan.json", ".wavegen/bin/default", ".wavegen/lock.json"])
def test_an_agent_cannot_change_its_own_fence(fence: Fence, shell: str, name: str) -> None:
    before = (fence.project / name).read_bytes()
    code = """
import json, os, sys
name = sys.argv[1]
def attempt(what):
    try: what(); return True
    except OSError: return False
def append(): open(name, 'a').close()
def replace():
    open('evil', 'w').close()
    try: os.replace('evil', name)
    finally:
        if os.path.exists('evil'): os.unlink('evil')
def link():
    os.symlink('/tmp', 'evil')
    try: os.replace('evil', name)
    finally:
        if os.path.lexists('evil'): os.unlink('evil')
tries = [append, replace, link, lambda: os.unlink(name), lambda: os.rename(name, 'elsewhere'), lambda: os.chmod(name, 0o777), lambda: os.truncate(name, 0), lambda: os.rename('.wavegen', 'old')]
print(json.dumps([attempt(t) for t in tries]))
"""
    assert fence.python(code, name, shell=shell) == [False] * 8
    assert (fence.project / name).read_bytes() == before


def test_entering_leaves_nothing_in_the_project_or_home(fence: Fence) -> None:
    before = {str(p) for p in fence.project.rglob("*")}
    fence.enter("true", shell="default")
    fence.enter("true", shell="restricted")
    assert {str(p) for p in fence.project.rglob("*")} == before
    assert [p.name for p in fence.home.iterdir() if p.name.startswith(".") and p.name not in (".ssh", ".aws", ".config", ".local")] == []


# --- sockets, processes, privileges


@pytest.mark.parametrize("shell", SHELLS)
def test_sockets_of_the_host_cannot_be_reached(fence: Fence, shell: str) -> None:
    code = """
import json, socket, sys
reached = []
for name in sys.argv[1:]:
    s = socket.socket(socket.AF_UNIX)
    try: s.connect(name); reached.append(name)
    except OSError: pass
print(json.dumps(reached))
"""
    places = ["/tmp/wavegen-test.sock", str(fence.home / "agent.sock"), str(fence.base / "work/neighbour/s.sock")]
    places += ["/run/wavegen-test.sock", "/var/tmp/wavegen-test.sock"] if os.getuid() == 0 else []
    servers = []
    try:
        for place in places:
            server = socket.socket(socket.AF_UNIX)
            server.bind(place)
            os.chmod(place, 0o777)
            server.listen()
            servers.append(server)
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(place)
        assert fence.python(code, *places, shell=shell) == []
    finally:
        for server, place in zip(servers, places, strict=False):
            server.close()
            os.unlink(place)


@pytest.mark.parametrize("shell", SHELLS)
def test_no_privilege_is_left_and_none_can_be_gained(fence: Fence, shell: str) -> None:
    code = """
import ctypes, json, os
libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status').read().splitlines() if ':\\t' in line)
caps = {status[k].strip('0') for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb')}
tries = {
    'remount': libc.mount(b'none', b'/', None, 0x1000 | 0x20, None),
    'mount': libc.mount(b'none', b'/tmp', b'tmpfs', 0, None),
    'umount': libc.umount2(b'/proc/sys', 2),
    'userns': libc.unshare(0x10000000),
    'mntns': libc.unshare(0x00020000),
    'chroot': libc.chroot(b'/tmp'),
    'sethostname': libc.sethostname(b'x', 1),
}
print(json.dumps([sorted(caps), status['NoNewPrivs'].strip(), [k for k, v in tries.items() if v == 0]]))
"""
    assert fence.python(code, shell=shell) == [[""], "1", []]


@pytest.mark.parametrize("shell", SHELLS)
def test_only_the_shells_own_processes_are_seen(fence: Fence, shell: str) -> None:
    code = "import json, os; print(json.dumps([int(n) for n in os.listdir('/proc') if n.isdigit()]))"
    assert max(fence.python(code, shell=shell)) < 20  # type: ignore[type-var]
    assert fence.enter("sh", "-c", f"kill -0 {os.getpid()}", shell=shell).returncode == 1


def test_nested_is_what_allows_namespaces_inside(new) -> None:
    code = "import ctypes, json; print(json.dumps(ctypes.CDLL(None).unshare(0x10000000)))"
    nested = new("metadata: {name: n}\nruntime: {sandbox: {shells: {own: {network: none, nested: true}, plain: {network: none}}}}\n", uid=users()[-1])
    assert nested.python(code, shell="own") == 0
    assert nested.python(code, shell="plain") == -1


# --- environment and descriptors


@pytest.mark.parametrize("shell", SHELLS)
def test_only_listed_variables_arrive_and_none_is_left_in_proc(new, shell: str) -> None:
    made = new("metadata: {name: e}\nruntime: {sandbox: {env_passthrough: [TOKEN_A, PROJECT]}}\n")
    env = made.environment(
        TOKEN_A="allowed-value", AWS_SECRET_ACCESS_KEY="CANARY", LD_PRELOAD="", BASH_ENV="/nonexistent", PROJECT="theirs", SSH_AUTH_SOCK="/CANARY"
    )
    env |= {"odd.name": "CANARY", "BASH_FUNC_cd%%": "() { echo CANARY; }", "SHELLOPTS": "xtrace", "A,B": "CANARY", "1X": "CANARY"}
    code = """
import glob, json, os
canary = b'CAN' + b'ARY'
def read(name):
    try:
        return open(name, 'rb').read()
    except PermissionError:  # PID 1 is outside the second layer
        refused.append(name)
        return b''
refused = []
names = glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline')
leaks = [name for name in names if canary in read(name)]
shown = [name for name in glob.glob('/proc/[0-9]*/cmdline') if b'allowed-' + b'value' in read(name)]
print(json.dumps([os.environ.get('TOKEN_A'), os.environ.get('PROJECT'), canary.decode() in str(dict(os.environ)), leaks, shown, os.environ['TMPDIR'], sorted(k for k in os.environ if k.startswith('wg_')), sorted(set(names) - set(refused))]))
"""
    found = made.python(code, shell=shell, env=env)
    assert isinstance(found, list)
    looked_at = found.pop()
    assert found == ["allowed-value", "theirs", False, [], [], "/tmp", []]
    # Of every process but PID 1, whose environment the second layer keeps closed where there is one.
    assert {"/proc/1/cmdline", "/proc/2/cmdline", "/proc/2/environ"} <= set(looked_at)


def test_a_secret_is_in_no_argument_list_on_the_host(new) -> None:
    made = new("metadata: {name: e}\nruntime: {sandbox: {env_passthrough: [TOKEN_A]}}\n")
    process = subprocess.Popen(
        made.argv("default", ("sh", "-c", "echo ready; sleep 20")), cwd=made.project, env=made.environment(TOKEN_A="hidden-value"), stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        shown = [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"hidden-value" in _read(p)]
        assert shown == []
    finally:
        process.kill()
        process.communicate()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("number", [3, 7, 200, 254, 255])
def test_inherited_descriptors_are_closed(fence: Fence, number: int) -> None:
    code = "import os; print(len(os.listdir('/proc/self/fd')))"
    argv = fence.argv("default", (PYTHON, "-I", "-S", "-c", code))
    opened = ["bash", "-c", f'exec {number}</etc/hostname; [ -e /proc/self/fd/{number} ] && exec "$@"', "bash", *argv]
    done = subprocess.run(opened, cwd=fence.project, env=fence.environment(), capture_output=True, text=True)
    assert done.stdout == "4\n", done.stderr  # 0, 1, 2 and listdir's own


def test_relative_entries_of_the_path_are_dropped(fence: Fence) -> None:
    env = fence.environment(PATH=".::/usr/bin:bin:/bin")
    assert fence.enter("printenv", "PATH", env=env).stdout == "/usr/bin:/bin\n"


def test_a_program_that_the_project_put_on_the_path_does_not_build_the_fence(new) -> None:
    made = new()
    evil = made.write("bin/bwrap", "#!/bin/sh\necho hijacked\n")
    evil.chmod(0o755)
    env = made.environment()
    env["PATH"] = f"{made.project}/bin:{env['PATH']}"
    assert made.enter("echo", "fine", env=env).stdout == "fine\n"


# --- status


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (("sh", "-c", "exit 7"), 7),
        (("sh", "-c", "exit 1"), 1),
        (("sh", "-c", "kill -9 $$"), 137),
        (("sh", "-c", "kill -15 $$"), 143),
        (("no-such-command",), 127),
        (("./no-such-command",), 127),
        (("cd",), 127),
        (("/tmp",), 126),
        (("/etc/passwd",), 126),
        (("false",), 1),
    ],
)
def test_the_status_is_the_commands_own(fence: Fence, command: tuple[str, ...], status: int) -> None:
    assert fence.enter(*command).returncode == status


def test_input_and_output_pass_through(fence: Fence) -> None:
    done = fence.enter("sh", "-c", "cat; echo err >&2", stdin="a\nb")
    assert (done.stdout, done.stderr) == ("a\nb", "err\n")


def test_arguments_arrive_as_they_are(fence: Fence) -> None:
    words = ("a b", "", "$x", "*", "'", '"', "\\", "new\nline", "--", "-x")
    assert fence.enter("printf", "<%s>", *words).stdout == "".join(f"<{w}>" for w in words)


REFUSED = "wavegen: error: "


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"HOME": ""}, "HOME is not set"),
        ({"HOME": "/"}, "HOME is /"),
        ({"HOME": "/nonexistent"}, "is not a directory"),
        ({"HOME": "relative"}, "is not a directory"),
        ({"HOME": "@project"}, "is, or holds, the home directory"),
        ({"HOME": "@project/src"}, "is, or holds, the home directory"),
        ({"XDG_STATE_HOME": "@project/state"}, "lies in the project"),
    ],
    ids=str,
)
def test_it_refuses_with_125_and_runs_nothing(fence: Fence, change: dict[str, str], says: str) -> None:
    env = fence.environment(**{k: v.replace("@project", str(fence.project)) for k, v in change.items()})
    done = fence.enter("echo", "RAN", env=env)
    assert done.returncode == 125
    assert done.stderr.startswith(REFUSED)
    assert says in done.stderr
    assert "RAN" not in done.stdout


@pytest.mark.parametrize("place", ["/", "/etc", "/tmp", "/usr"])
def test_a_directory_of_the_system_is_no_project(fence: Fence, place: str) -> None:
    done = fence.enter("--project", place, "--", "echo", "RAN")
    assert done.returncode == 125
    assert "directory of the system" in done.stderr or "holds, the home" in done.stderr


def _with_bwrap(fence: Fence, text: str | None, *command: str) -> subprocess.CompletedProcess[str]:
    """Enter on a machine whose bwrap is this script, or (None) on one without: in a mount namespace of the test's own."""
    fake = fence.base / "bwrap"
    fake.write_text(text or "")
    fake.chmod(0o755 if text else 0o644)
    argv = [*in_place_of_bwrap(fake), *fence.argv("default", command)]
    return subprocess.run(argv, cwd=fence.project, env=fence.environment(), capture_output=True, text=True)


NO_NAMESPACES = "#!/bin/sh\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1\n"


def test_a_fence_that_cannot_be_built_is_125_and_says_what_to_do(fence: Fence) -> None:
    done = _with_bwrap(fence, NO_NAMESPACES, "echo", "RAN")
    assert (done.returncode, done.stdout) == (125, "")
    assert "apparmor_restrict_unprivileged_userns" in done.stderr
    done = _with_bwrap(fence, None, "echo", "RAN")
    assert (done.returncode, done.stdout) == (125, "")
    assert "bwrap is not on the PATH (install bubblewrap" in done.stderr


@pytest.mark.parametrize("text", [NO_NAMESPACES, None], ids=["no namespaces", "no bwrap"])
def test_fallback_warn_runs_without_a_fence_and_shouts(new, text: str | None) -> None:
    made = new("metadata: {name: f}\nruntime: {sandbox: {fallback: warn}}\n", uid=os.getuid())
    done = _with_bwrap(made, text, "echo", "RAN")
    assert (done.returncode, done.stdout) == (0, "RAN\n"), done.stderr
    assert "NOT SANDBOXED" in done.stderr


def test_fallback_warn_does_not_excuse_a_place_that_an_agent_made_unfit(new) -> None:
    made = new(paths("{path: ~/.config/tool, access: read, optional: true}") + "    fallback: warn\n")
    (made.home / ".config/tool").mkdir(parents=True)
    made.own()
    assert made.enter("echo", "RAN").stdout == "RAN\n"
    home = next((made.home / ".local/state/wavegen").glob("*/default/home"))
    shutil.rmtree(home / ".config")
    (home / ".config").write_text("in the way")
    made.own()
    done = made.enter("echo", "RAN")
    assert (done.returncode, done.stdout) == (125, "")


def test_fallback_warn_does_not_excuse_a_refused_place(new) -> None:
    made = new("metadata: {name: f}\nruntime: {sandbox: {fallback: warn}}\n")
    assert made.enter("echo", "RAN", env=made.environment(HOME=str(made.project))).returncode == 125


# --- what the manifest grants and denies


def paths(*entries: str) -> str:
    return "metadata: {name: p}\nruntime:\n  sandbox:\n    paths:\n" + "".join(f"      - {entry}\n" for entry in entries)


def test_a_granted_path_of_the_home_is_shown_and_written_as_said(new) -> None:
    made = new(paths("{path: ~/.gitconfig, access: read}", "{path: ~/.tool, access: write}", "{path: ~/.none, access: read, optional: true}"))
    (made.home / ".gitconfig").write_text("G")
    (made.home / ".tool").mkdir()
    made.own()
    done = made.enter("sh", "-c", "cat ~/.gitconfig; echo T >~/.tool/x; echo E >~/.gitconfig || echo refused; ls ~/.none || echo none")
    assert done.stdout == "Grefused\nnone\n"
    assert (made.home / ".tool/x").read_text() == "T\n"
    assert (made.home / ".gitconfig").read_text() == "G"


def test_a_required_path_that_is_missing_stops_the_shell_and_names_the_line(new) -> None:
    done = new(paths("{path: ~/.gitconfig, access: read}")).enter("echo", "RAN")
    assert done.returncode == 125
    assert "wave.yaml:5 asks for it" in done.stderr


def test_a_link_in_the_home_that_leads_out_of_it_is_refused(new) -> None:
    made = new(paths("{path: ~/.gitconfig, access: read}"))
    (made.home / ".gitconfig").symlink_to("/etc/passwd")
    done = made.enter("echo", "RAN")
    assert done.returncode == 125
    assert "leads to /etc/passwd" in done.stderr


def test_a_link_within_the_home_is_followed(new) -> None:
    made = new(paths("{path: ~/.gitconfig, access: read}"))
    (made.home / "dotfiles").mkdir()
    (made.home / "dotfiles/gitconfig").write_text("D")
    (made.home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    made.own()
    done = made.enter("sh", "-c", "cat ~/.gitconfig; ls ~/dotfiles")
    assert done.stdout == "D"


def test_a_link_that_an_agent_planted_in_the_project_is_no_way_out(new) -> None:
    made = new(paths("{path: cache, access: read}", "{path: ~/.tool/sub, access: read, optional: true}", "{path: ~/.tool, access: write}"))
    (made.home / ".ssh").mkdir()
    (made.home / ".ssh/key").write_text("CANARY")
    (made.home / ".tool").mkdir()
    (made.project / "cache").symlink_to(made.home / ".ssh")
    made.own()
    done = made.enter("cat", "cache/key")
    assert (done.returncode, done.stdout) == (125, "")
    (made.project / "cache").unlink()
    (made.project / "cache").mkdir()
    (made.home / ".tool/sub").symlink_to(made.home / ".ssh")
    made.own()
    done = made.enter("cat", f"{made.home}/.tool/sub/key")
    assert (done.returncode, done.stdout) == (125, "")


def test_a_link_that_an_agent_planted_in_its_home_is_not_mounted_through(new) -> None:
    made = new(paths("{path: ~/.tool, access: write}"))
    (made.home / ".tool").mkdir()
    made.own()
    state = next(iter((made.home / ".local/state/wavegen").glob("*/default/home")), None)
    assert state is None
    assert made.enter("true").returncode == 0
    home = next((made.home / ".local/state/wavegen").glob("*/default/home"))
    (home / ".tool").rmdir()
    (home / ".tool").symlink_to("../../../../etc")
    done = made.enter("true")
    assert done.returncode == 125
    assert "is a symlink where the manifest mounts something" in done.stderr


def test_a_fence_file_that_became_a_link_is_refused(new) -> None:
    made = new()
    (made.project / "wave.yaml").rename(made.project / "real.yaml")
    (made.project / "wave.yaml").symlink_to("real.yaml")
    done = made.enter("true")
    assert done.returncode == 125
    assert "which an agent could point to another file" in done.stderr


def test_a_socket_is_refused_unless_it_is_meant(new) -> None:
    made = new(paths("{path: ~/agent.sock, access: read}"))
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(made.home / "agent.sock"))
    server.listen()
    made.own()
    done = made.enter("true")
    assert done.returncode == 125
    assert "is a socket" in done.stderr
    made.write("wave.yaml", paths("{path: ~/agent.sock, access: read, socket: true}"))
    assert "runs outside the sandbox" in made.render().stderr
    code = "import json, os, socket; s=socket.socket(socket.AF_UNIX); s.connect(os.path.expanduser('~/agent.sock')); print(json.dumps('reached'))"
    assert made.python(code) == "reached"
    server.close()


def test_denied_paths_are_hidden_in_the_project_and_below_what_is_granted(new) -> None:
    made = new(paths("{path: ~/.config, access: read}") + "    deny_read_paths: [.env, secrets, ~/.config/gh, ~/.ssh]\n")
    made.write(".env", "CANARY")
    made.write("secrets/key", "CANARY")
    for name in (".config/gh/hosts.yml", ".config/other"):
        (made.home / name).parent.mkdir(parents=True, exist_ok=True)
        (made.home / name).write_text("CANARY" if "gh" in name else "fine")
    made.own()
    for shell in SHELLS:
        done = made.enter("sh", "-c", "cat .env secrets/* ~/.config/gh/* ~/.ssh/*; cat ~/.config/other; rm .env; mv secrets x; touch secrets/new", shell=shell)
        assert done.stdout == "fine"
    assert (made.project / ".env").read_text() == "CANARY"
    assert not (made.project / "secrets/new").exists()


def test_a_deeper_rule_wins_wherever_home_and_project_are(new) -> None:
    absolute = paths("{path: /usr/share, access: read}")
    made = new(absolute, project="home/code/project")
    made.write("f", "mine")
    (made.home / "code/other").mkdir()
    (made.home / "canary").write_text("CANARY")
    made.own()
    done = made.enter("sh", "-c", "cat f; ls ~; ls ~/code; echo x >g")
    assert done.stdout == "minecode\nproject\n"


def test_an_absolute_path_into_the_home_is_shown_inside_the_private_home(new) -> None:
    made = new()
    (made.home / "data").mkdir()
    (made.home / "data/f").write_text("D")
    made.write("wave.yaml", paths(f"{{path: {made.home}/data, access: read}}"))
    made.own()
    assert made.render().returncode == 0
    assert made.enter("cat", f"{made.home}/data/f").stdout == "D"


@pytest.mark.parametrize("which", ["home", "project"])
def test_an_absolute_path_that_is_the_home_or_the_project_is_refused(new, which: str) -> None:
    made = new()
    made.write("wave.yaml", paths(f"{{path: {getattr(made, which)}, access: read}}"))
    made.own()
    assert made.render().returncode == 0
    done = made.enter("echo", "RAN")
    assert (done.returncode, done.stdout) == (125, "")
    assert which in done.stderr
    assert "wave.yaml:5 asks for it" in done.stderr


@pytest.mark.parametrize("access", ["read", "write"])
@pytest.mark.parametrize("link", [False, True], ids=["plain", "by a link"])
def test_what_is_kept_for_other_shells_is_never_shown(new, access: str, *, link: bool) -> None:
    granted = "dotfiles" if link else ".local"
    made = new(paths(f"{{path: ~/{granted}, access: {access}}}"))
    (made.home / granted / "bin").mkdir(parents=True)
    if link:
        shutil.rmtree(made.home / ".local", ignore_errors=True)
        (made.home / "dotfiles/local").mkdir()
        (made.home / ".local").symlink_to("dotfiles/local")
    made.own()
    made.enter("sh", "-c", "echo TOKEN >~/login", shell="default")
    state = f"~/{granted}/{'local/' if link else ''}state"
    done = made.enter(
        "sh", "-c", f"ls ~/{granted}; ls -A {state}/wavegen; mv {state} x; mv {state}/wavegen {state}/y; cat {state}/*/*/*/home/login", shell="restricted"
    )
    assert done.stdout.split() == (["bin", "local"] if link else ["bin", "state"])
    assert next((made.home / ".local/state/wavegen").glob("*/default/home/login")).read_text() == "TOKEN\n"


def test_the_project_is_read_only_where_the_manifest_says_so(new) -> None:
    made = new(paths("{path: ., access: read}", "{path: out, access: write}"))
    (made.project / "out").mkdir()
    made.own()
    done = made.enter("sh", "-c", "cat wave.yaml >/dev/null && echo x >out/f && echo y >f")
    assert done.returncode != 0
    assert (made.project / "out/f").read_text() == "x\n"
    assert not (made.project / "f").exists()


def test_an_absolute_denied_path_in_the_project_is_hidden(new) -> None:
    made = new()
    made.write("secret", "CANARY")
    made.write("wave.yaml", f"metadata: {{name: p}}\nruntime: {{sandbox: {{deny_read_paths: [{made.project}/secret]}}}}\n")
    made.own()
    assert made.render().returncode == 0
    done = made.enter("cat", "secret")
    assert (done.returncode, done.stdout) == (1, "")


def test_the_scratch_size_is_a_limit(new) -> None:
    made = new("metadata: {name: l}\nruntime: {sandbox: {limits: {tmp: 1m}}}\n")
    for place in ("/tmp", "/run", "/dev/shm", "/var/tmp"):
        assert made.enter("sh", "-c", f"head -c 900000 /dev/zero >{place}/x").returncode == 0
        assert "No space left" in made.enter("sh", "-c", f"head -c 3000000 /dev/zero >{place}/x").stderr
    assert made.enter("sh", "-c", "echo x >/dev/x").returncode != 0


def test_home_tmpfs_is_empty_at_each_entry(new) -> None:
    made = new("metadata: {name: t}\nruntime: {sandbox: {home: tmpfs}}\n")
    assert made.enter("sh", "-c", "echo x >~/x && cat ~/x").stdout == "x\n"
    assert made.enter("sh", "-c", "ls -A ~").stdout == ""
    # What marks the entry, for the audit, the place of a repository that is not there, and compiled code: no home, and nothing that was written.
    key = str(made.project).replace("/", "%2F")
    above = {
        Path(),
        Path(".local"),
        Path(".local/state"),
        Path(".local/state/wavegen"),
        kept := Path(".local/state/wavegen", key),
        kept / "default",
        kept / ".git",
    }
    found = {path.relative_to(made.home) for path in made.home.rglob("*")}
    assert {path for path in found if path not in above and not path.name.startswith((".noted-", "entered-", "directory", "launcher-"))} == set()
    assert kept / "default" in found
    wait_until(lambda: not list(made.home.rglob("entered-*")), "the marks of sessions that left nothing are removed")


def test_two_projects_never_share_a_home(new) -> None:
    first = new(project="work/a-b")
    second = Fence(first.base, first.home, first.base / "work/a/b", first.uid)
    second.project.mkdir(parents=True)
    second.write("wave.yaml", MANIFEST)
    second.own()
    assert second.render().returncode == 0
    first.enter("sh", "-c", "echo x >~/x")
    assert second.enter("ls", "-A", str(first.home)).stdout == ".zshrc\n"  # empty: zsh would ask a newcomer what they are to be
    assert second.enter("cat", f"{first.home}/.zshrc").stdout == ""


# --- tokens


def test_the_token_of_gh_is_taken_where_it_is_listed_and_unset(new) -> None:
    made = new("metadata: {name: g}\nruntime: {sandbox: {env_passthrough: [GH_TOKEN]}}\n")
    for directory, token in ((made.base / "tools", "from-gh"), (made.project / "bin", "hijacked")):
        directory.mkdir()
        (directory / "gh").write_text(f'#!/bin/sh\n[ "$1 $2" = "auth token" ] && echo {token}\n')
        (directory / "gh").chmod(0o755)
    env = made.environment()
    env["PATH"] = f"{made.project}/bin:{made.base}/tools:{env['PATH']}"
    made.own()

    def token(**more: str) -> str:
        command = [*in_place_of("gh", made.base / "tools/gh"), *made.argv("default", ("printenv", "GH_TOKEN"))]
        done = subprocess.run(command, cwd=made.project, env=env | more, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
        return done.stdout

    assert token() == ""
    (made.home / ".config/gh").mkdir(parents=True)
    (made.home / ".config/gh/hosts.yml").write_text("github: {}")
    made.own()
    assert token() == "from-gh\n"
    assert token(GH_TOKEN="set") == "set\n"


def test_a_missing_key_is_said_once(new) -> None:
    made = new("metadata: {name: k}\nruntime: {sandbox: {env_passthrough: [ANTHROPIC_API_KEY]}}\n")
    assert "ANTHROPIC_API_KEY is not set" in made.enter("true").stderr
    assert made.enter("true").stderr == ""
    assert made.enter("true", shell="restricted").stderr == ""


# --- ends


def _alive(marker: str) -> bool:
    return any(marker.encode() in _read(p) for p in Path("/proc").glob("[0-9]*/cmdline"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_nothing_outlives_the_wrapper(fence: Fence, how: signal.Signals) -> None:
    marker = f"3{os.getpid()}{how.value}"
    command = ("sh", "-c", f"(setsid sleep {marker} &) ; echo ready; sleep {marker}")
    process = subprocess.Popen(fence.argv("default", command), cwd=fence.project, env=fence.environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    assert _alive(marker)
    process.send_signal(how)
    process.wait(60)
    assert until(lambda: not _alive(marker))
    process.stdout.close()


# --- terminal


def _in_terminal(fence: Fence, shell: str, feed: bytes) -> tuple[int, str]:
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(fence.project)
        argv = fence.argv(shell, ())
        os.execvpe(argv[0], argv, fence.environment())
    out = b""
    sent = False
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.3)
        if ready:
            try:
                chunk = os.read(master, 65536)
            except OSError:
                break
            if not chunk:
                break
            out += chunk
        elif not sent:
            os.write(master, feed)
            sent = True
    os.close(master)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), out.decode(errors="replace")


@pytest.mark.parametrize("shell", SHELLS)
def test_an_interactive_entry_says_what_is_reachable_and_keeps_job_control(fence: Fence, shell: str) -> None:
    status, out = _in_terminal(fence, shell, b"sleep 30 &\njobs; kill %1; set -o | grep monitor\nexit 3\n")
    assert status == 3, out
    assert f"wavegen: shell {shell}: fenced by bubblewrap" in out
    assert "the project" in out
    assert ("network: none" in out) == (shell == "restricted")
    assert "Running" in out
    assert "no job control" not in out


def test_nothing_can_be_typed_into_the_shared_terminal(fence: Fence) -> None:
    code = b"import fcntl,os\nfor n in (0x5412,0x100005412,0x541C):\n try: fcntl.ioctl(0,n&0xffffffff,b'X'); print('TYPED')\n except OSError as e: print('errno',e.errno)\n"
    (fence.project / "typing.py").write_bytes(code)
    status, out = _in_terminal(fence, "default", f"{PYTHON} typing.py\nexit 0\n".encode())
    assert status == 0
    assert "TYPED" not in out
    assert out.count("errno 1") == 3


def test_without_a_terminal_the_callers_is_out_of_reach(fence: Fence) -> None:
    done = fence.enter("sh", "-c", "echo x >/dev/tty")
    assert done.returncode != 0


# --- yolo and `run`


def test_yolo_has_no_fence_and_says_so(fence: Fence) -> None:
    done = fence.enter("sh", "-c", "cat ~/canary; exit 4", shell="yolo")
    assert (done.returncode, done.stdout) == (4, "CANARY")
    assert "NOT SANDBOXED" in done.stderr


def test_run_uses_the_manifest_as_it_is_now(new) -> None:
    made = new(uid=os.getuid())
    made.write("secret", "CANARY")
    assert made.wavegen("run", "cat", "secret").stdout == "CANARY"
    made.write("wave.yaml", MANIFEST + "runtime: {sandbox: {deny_read_paths: [secret]}}\n")
    assert made.wavegen("run", "--", "cat", "secret").returncode == 1
    assert made.enter("cat", "secret").stdout == "CANARY"


def test_run_runs_inside(new) -> None:
    made = new(uid=os.getuid())
    (made.home / "canary").write_text("CANARY")
    done = made.wavegen("run", "--shell", "restricted", "--", "sh", "-c", "cat ~/canary; readlink /proc/self/ns/mnt; exit 9", AWS_SECRET_ACCESS_KEY="x")
    assert done.returncode == 9
    assert done.stdout.startswith("mnt:")
    assert os.readlink("/proc/self/ns/mnt") not in done.stdout


@pytest.mark.parametrize("line", ["enabled: false", "backend: none"])
def test_run_without_a_fence_must_be_written_down_and_is_loud(new, line: str) -> None:
    made = new(f"metadata: {{name: r}}\nruntime: {{sandbox: {{{line}}}}}\n", uid=os.getuid())
    (made.home / "canary").write_text("CANARY")
    done = made.wavegen("run", "--", "sh", "-c", "cat ~/canary")
    assert done.stdout == "CANARY"
    assert "NOT SANDBOXED" in done.stderr
    assert made.wavegen("run", "--shell", "default", "--", "sh", "-c", "cat ~/canary").returncode == 1
    assert made.enter("sh", "-c", "cat ~/canary").returncode == 1


def test_without_an_engine_or_an_image_nothing_is_run(new) -> None:
    made = new("metadata: {name: r}\nruntime: {sandbox: {backend: docker, docker_image: wavegen.invalid/none}}\n", uid=os.getuid())
    done = made.wavegen("run", "--", "echo", "RAN")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("wavegen: error: ")


def test_print_shows_the_command_line_and_runs_nothing(fence: Fence) -> None:
    done = fence.enter("--print", "--", "touch", "made")
    words = done.stdout.splitlines()
    assert words[0].endswith("/bwrap")
    assert words[-3:] == ["--", "touch", "made"]
    assert not (fence.project / "made").exists()
    assert json.dumps(words).count("--cap-drop") == 1
