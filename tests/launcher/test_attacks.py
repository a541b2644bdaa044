"""Ways out that were found by attacking the fence, each played through both sessions. A pass is that nothing came of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from fence import PYTHON, Fence, name_of, users, wait_until
from helpers import ROOT, in_place_of_bwrap

pytestmark = pytest.mark.needs("bwrap")

SHELLS = ("default", "restricted")
WHO = pytest.mark.parametrize("uid", users(), ids=name_of)


@pytest.fixture
def new() -> Iterator[object]:
    """Makes a fence from what stands under `sandbox:`; all are removed at the end."""
    made: list[Fence] = []

    def make(sandbox: str = "", **options: object) -> Fence:
        text = "metadata: {name: a}\n" + (f"runtime:\n  sandbox:\n{sandbox}" if sandbox else "")
        made.append(Fence.create(text, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.remove()


def put(fence: Fence, *names: str, text: str = "CANARY") -> None:
    """Files below the base directory, owned by the user."""
    for name in names:
        path = fence.base / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    fence.own()


def again(fence: Fence, sandbox: str) -> None:
    """Render another manifest."""
    fence.write("wave.yaml", f"metadata: {{name: a}}\nruntime:\n  sandbox:\n{sandbox}")
    fence.own()
    done = fence.render()
    assert done.returncode == 0, done.stderr


# --- renaming what a mount hangs in


@WHO
@pytest.mark.parametrize("shell", SHELLS)
def test_the_directories_above_the_project_cannot_be_turned_into_links(new, uid: int, shell: str) -> None:
    made = new("    deny_read_paths: [.env]\n", uid=uid, project="home/src/p")
    put(made, "home/src/p/.env")
    first = "mv ~/src ~/old; mkdir -p ~/T/p ~/V; ln -s .. ~/V/p; ln -s .. ~/T/p/l; ln -s T/p/l ~/src; ln -s ../../V l; true"
    assert made.enter("sh", "-c", first, shell=shell).returncode == 0
    before = (made.project / "wave.yaml").read_text()
    second = "cat ~/T/p/.env ~/src/p/.env .env; echo '#PWNED' >>~/T/p/wave.yaml; echo evil >~/T/p/.wavegen/bin/default; echo '#PWNED' >>wave.yaml"
    done = made.enter("sh", "-c", second, shell=shell)
    assert "CANARY" not in done.stdout
    assert (made.project / "wave.yaml").read_text() == before
    assert "evil" not in (made.project / ".wavegen/bin/default").read_text()


@WHO
def test_a_link_in_the_private_home_makes_nothing_on_the_host(new, uid: int) -> None:
    made = new(uid=uid, project="home/src/p")
    assert made.enter("true").returncode == 0
    home = next((made.home / ".local/state/wavegen").glob("*/default/home"))
    (home / "src").rmdir()
    target = made.base / "elsewhere"
    target.mkdir()
    (home / "src").symlink_to(f"../../../../../../../../oldroot{target}")
    made.own()
    done = made.enter("true")
    assert done.returncode == 125
    assert list(target.iterdir()) == []


@WHO
@pytest.mark.parametrize("shell", SHELLS)
def test_a_directory_above_a_hidden_or_read_only_path_cannot_be_renamed(new, uid: int, shell: str) -> None:
    made = new("    deny_read_paths: [config/secrets/.env]\n    paths: [{path: vendor/lib, access: read, optional: true}]\n", uid=uid)
    put(made, "work/project/config/secrets/.env", "work/project/vendor/lib/f")
    made.enter("sh", "-c", "mv config c2; mv config/secrets s2; mv vendor v2; mv vendor/lib l2", shell=shell)
    second = "cat */secrets/.env config/*/.env s2/.env c2/*/.env; for d in vendor v2; do echo PWNED >$d/lib/f; done; echo PWNED >l2/f; echo new >vendor/new"
    done = made.enter("sh", "-c", second, shell=shell)
    assert "CANARY" not in done.stdout
    assert (made.project / "vendor/lib/f").read_text() == "CANARY"
    assert (made.project / "vendor/new").read_text() == "new\n"


@WHO
def test_a_write_grant_that_holds_the_project_does_not_unpin_it(new, uid: int) -> None:
    made = new("    paths: [{path: ~/src, access: write}]\n", uid=uid, project="home/src/a/p")
    before = (made.project / ".wavegen/bin/default").read_text()
    first = "mv ~/src/a ~/src/b; mkdir -p ~/src/a/p/.wavegen/bin; echo evil >~/src/a/p/.wavegen/bin/default; echo kept >~/src/kept"
    made.enter("sh", "-c", first)
    assert (made.project / ".wavegen/bin/default").read_text() == before
    assert (made.home / "src/kept").read_text() == "kept\n"


# --- programs of the project on the PATH


@WHO
def test_no_program_of_the_project_is_started_on_the_host(new, uid: int) -> None:
    made = new("    paths: [{path: ~/.gitconfig, access: read, optional: true}]\n    env_passthrough: [GH_TOKEN]\n", uid=uid)
    log = made.base / "log"
    for name in ("bwrap", "readlink", "env", "mkdir", "mv", "cat", "gh", "bash", "sh", "git", "printf", "dirname"):
        put(made, f"work/project/bin/{name}", text=f"#!/bin/sh\n[ -e /proc/1/root/nonexistent ]\necho {name} >>{log}\n")
        (made.project / "bin" / name).chmod(0o755)
    put(made, "home/dotfiles/gitconfig", "home/.config/gh/hosts.yml")
    (made.home / ".gitconfig").symlink_to("dotfiles/gitconfig")
    made.own()
    env = made.environment() | {"BASH_FUNC_which%%": "() { :; }", "PATH": f"{made.project}/bin:/usr/bin:/bin"}
    for shell in SHELLS:
        # By its path, as the caller would find even `echo` in the project.
        done = made.enter("/bin/sh", "-c", "/bin/cat ~/.gitconfig", shell=shell, env=env, stdin="x")
        assert (done.returncode, done.stdout) == (0, "CANARY"), done.stderr
    assert not log.exists(), log.read_text()


def test_a_tool_in_a_directory_that_may_be_written_inside_is_not_started(new) -> None:
    made = new("    paths: [{path: ~/.local/bin, access: write}]\n    env_passthrough: [GH_TOKEN]\n", uid=users()[0])
    put(made, "home/.config/gh/hosts.yml")
    put(made, "home/.local/bin/gh", text=f"#!/bin/sh\necho ran >>{made.base}/log\n")
    (made.home / ".local/bin/gh").chmod(0o755)
    env = made.environment(PATH=f"{made.home}/.local/bin:/usr/bin:/bin")
    assert made.enter("true", env=env).returncode == 0
    assert not (made.base / "log").exists()


# --- a rule that hides, by every name


def link_home(made: Fence) -> str:
    """The home directory by a name that leads there."""
    (made.base / "link").symlink_to("home")
    return f"{made.base}/link"


@WHO
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("sandbox", "read"),
    [
        pytest.param("    deny_read_paths: [@link/p/.env]\n", ".env", id="an absolute path through a link"),
        pytest.param(
            "    paths: [{path: ~/data, access: read}]\n    deny_read_paths: [~/store/data/secret]\n",
            "~/data/secret",
            id="the place that a granted link leads to",
        ),
        pytest.param(
            "    paths: [{path: ~/.config, access: read}]\n    deny_read_paths: [~/.config/gh]\n",
            "~/.config/gh/f ~/.config/gh-real/f",
            id="a link below a grant",
        ),
        pytest.param("    deny_read_paths: [@home/p/dir]\n", "dir/f", id="an absolute path in the project"),
        pytest.param("    deny_read_paths: [dir/.././dir]\n", "", id="refused: .."),
        pytest.param("    deny_read_paths: [deep/er]\n", "deep/er/f", id="a directory"),
    ],
)
def test_what_is_denied_is_hidden_by_every_name(new, uid: int, shell: str, sandbox: str, read: str) -> None:
    made = new(uid=uid, project="home/p")
    put(made, "home/p/.env", "home/store/data/secret", "home/dotfiles/config/gh-real/f", "home/p/dir/f", "home/p/deep/er/f")
    (made.home / "data").symlink_to("store/data")
    (made.home / ".config").symlink_to("dotfiles/config")
    (made.home / ".config/gh").symlink_to("gh-real")
    (made.project / "to-dir").symlink_to("dir")
    link = link_home(made)
    made.own()
    if not read:
        made.write("wave.yaml", f"metadata: {{name: a}}\nruntime:\n  sandbox:\n{sandbox}")
        assert made.render().returncode == 2
        return
    again(made, sandbox.replace("@link", link).replace("@home", str(made.home)))
    assert "CANARY" in subprocess.run(["sh", "-c", f"cat {read}"], cwd=made.project, env=made.environment(), capture_output=True, text=True).stdout
    done = made.enter("sh", "-c", f"cat {read}", shell=shell)
    assert (done.returncode, "CANARY" in done.stdout) == (1, False), done.stderr


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/etc/os-release", "/etc/os-release /usr/lib/os-release"),
        ("/usr/bin/perl", "/usr/bin/perl /bin/perl"),
        ("/bin/grep", "/bin/grep /usr/bin/grep"),
        ("/usr/share/doc", "/usr/share/doc/*/copyright"),
    ],
)
@pytest.mark.parametrize("shell", SHELLS)
def test_what_is_denied_of_the_system_is_hidden_by_every_name(new, path: str, names: str, shell: str) -> None:
    made = new(f"    deny_read_paths: [{path}]\n", uid=users()[0])
    done = made.enter("sh", "-c", f"head -c 1 {names} | wc -c; cat wave.yaml", shell=shell)
    count, _, rest = done.stdout.partition("\n")
    assert (done.returncode, count.strip(), rest) == (0, "0", (made.project / "wave.yaml").read_text()), done.stderr


@pytest.mark.needs("perl", "landlock")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_perl_that_is_denied_leaves_the_second_layer_to_python(new, shell: str) -> None:
    made = new("    deny_read_paths: [/usr/bin/perl]\n", uid=users()[-1])
    # bwrap's first process is outside the second layer: it can neither be signalled nor read.
    code = "ulimit -c; perl -e 'print 1' || echo no perl; kill -0 $$ && echo own; kill -0 1 || echo unsignalled; cat /proc/1/environ || echo unread"
    done = made.enter("sh", "-c", code, shell=shell)
    assert done.stdout == "0\nno perl\nown\nunsignalled\nunread\n", done.stderr


@pytest.mark.parametrize(
    "sandbox", ["paths: [{path: ~/a, access: read}], deny_read_paths: [@home/a]", "paths: [{path: ~/a/b, access: read}], deny_read_paths: [@home/a]"]
)
def test_a_grant_and_a_denial_by_different_names_are_a_contradiction(new, sandbox: str) -> None:
    made = new(uid=users()[0])
    put(made, "home/a/b/f")
    made.write("wave.yaml", f"metadata: {{name: a}}\nruntime: {{sandbox: {{{sandbox.replace('@home', str(made.home))}}}}}\n")
    made.own()
    assert made.render().returncode == 0
    done = made.enter("sh", "-c", "cat ~/a/f ~/a/b/f")
    assert (done.returncode, done.stdout) == (125, "")
    assert "wave.yaml:2" in done.stderr


@pytest.mark.needs("user")
def test_a_denial_that_cannot_be_checked_stops_the_shell(new) -> None:
    made = new("    deny_read_paths: [config/.env]\n", uid=users()[-1])
    put(made, "work/project/config/.env")
    made.enter("sh", "-c", "chmod 0 config")
    done = made.enter("sh", "-c", "chmod 755 config; cat config/.env")
    (made.project / "config").chmod(0o755)
    assert (done.returncode, done.stdout) == (125, "")
    assert f"chmod u+rwx {made.project}/config" in done.stderr


@WHO
@pytest.mark.parametrize("name", ["wave.yaml", "flake.lock", ".wavegen"])
def test_a_file_of_the_fence_can_be_hidden_and_stays_pinned(new, uid: int, name: str) -> None:
    made = new(f"    deny_read_paths: [{name}]\n", uid=uid)
    done = made.enter("sh", "-c", f"cat {name} {name}/plan.json; rm -rf {name}; mv {name} x; echo evil >{name}; true")
    assert done.stdout == ""
    assert (made.project / name).exists()
    assert made.render("--check").returncode == 0


# --- what can be made for the next session


@pytest.mark.parametrize("name", ["wave.yaml", "flake.nix", "flake.lock", ".wavegen/plan.json"])
def test_a_shell_does_not_start_where_a_file_of_the_fence_is_missing(new, name: str) -> None:
    made = new(uid=users()[0])
    path = made.project / name
    if name.startswith(".wavegen"):
        return
    path.unlink()
    done = made.enter("sh", "-c", f"echo evil >{name}")
    assert (done.returncode, path.exists()) == (125, False)
    assert "run wavegen render" in done.stderr


def test_an_overlay_that_was_rendered_and_is_gone_stops_every_way_in(new) -> None:
    made = new(uid=os.getuid())
    made.write("wave.sandbox.yaml", "runtime: {sandbox: {packages: [go]}}\n")
    assert made.render("--accept-new").returncode == 0
    (made.project / "wave.sandbox.yaml").unlink()
    assert made.enter("sh", "-c", "echo evil >wave.sandbox.yaml").returncode == 125
    assert made.wavegen("run", "sh", "-c", "echo evil >wave.sandbox.yaml").returncode == 125
    assert not (made.project / "wave.sandbox.yaml").exists()


def test_run_refuses_a_project_that_was_never_rendered(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text("metadata: {name: a}\n")
    made = Fence(tmp_path, tmp_path, tmp_path, os.getuid())
    done = made.wavegen("run", "echo", "RAN", HOME=os.environ["HOME"])
    assert (done.returncode, done.stdout) == (125, "")
    assert "run wavegen render" in done.stderr


def test_a_lock_that_is_no_file_does_not_hold_anything_up(tmp_path: Path) -> None:
    (tmp_path / "wave.yaml").write_text("metadata: {name: a}\n")
    (tmp_path / ".wavegen").mkdir()
    os.mkfifo(tmp_path / ".wavegen/lock.json")
    made = Fence(tmp_path, tmp_path, tmp_path, os.getuid())
    assert made.wavegen("run", "true", HOME=os.environ["HOME"]).returncode == 125
    assert made.wavegen("render").returncode == 2


# --- the kernel, descriptors, odd callers


@WHO
@pytest.mark.parametrize("shell", SHELLS)
def test_the_keyrings_of_the_session_and_vsock_are_out_of_reach(new, uid: int, shell: str) -> None:
    made = new(uid=uid)
    code = """
import ctypes, errno, json, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
numbers = {'x86_64': (248, 249, 250), 'aarch64': (217, 218, 219)}[platform.machine()]
def refused(n, *a):
    return libc.syscall(n, *a) == -1 and ctypes.get_errno() == errno.EPERM
found = [refused(numbers[0], b'user', b'wg', b'x', 1, -3), refused(numbers[1], b'user', b'wg', None, -3), refused(numbers[2], 0, -3, 0)]
try:
    socket.socket(40, socket.SOCK_STREAM)
    found.append(False)
except OSError as e:
    found.append(e.errno == errno.EAFNOSUPPORT)
print(json.dumps(found))
"""
    assert made.python(code, shell=shell) == [True] * 4


@WHO
def test_a_file_given_as_input_cannot_be_written(new, uid: int) -> None:
    made = new(uid=uid)
    put(made, "home/prompt.txt", text="ask\n")
    with (made.home / "prompt.txt").open() as prompt:
        done = subprocess.run(
            made.argv("default", ("sh", "-c", "cat; echo PWNED >>/proc/self/fd/0")),
            stdin=prompt,
            cwd=made.project,
            env=made.environment(),
            capture_output=True,
            text=True,
        )
    assert done.stdout == "ask\n"
    assert (made.home / "prompt.txt").read_text() == "ask\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_do_not_change_the_status(new, closed: str) -> None:
    made = new(uid=os.getuid())
    argv = ["bash", "-c", f'"$@" {closed}', "bash", *made.argv("default", ("sh", "-c", "exit 7"))]
    assert subprocess.run(argv, cwd=made.project, env=made.environment(), capture_output=True).returncode == 7


@WHO
def test_what_is_kept_elsewhere_is_hidden_too(new, uid: int) -> None:
    made = new(uid=uid)
    state = made.base / "state"
    env = made.environment(XDG_STATE_HOME=str(state))
    state.mkdir()
    made.own()
    assert made.enter("sh", "-c", "echo TOKEN >~/login", env=env).returncode == 0
    again(made, f"    paths: [{{path: {made.base}, access: read}}]\n")
    for shell in SHELLS:
        done = made.enter("sh", "-c", f"ls {state}; cat {state}/wavegen/*/*/home/login", shell=shell, env=env)
        assert done.stdout == "wavegen\n", done.stderr


def test_programs_of_another_architecture_are_refused(new) -> None:
    """int 0x80 is the way into the 32-bit calls, whose numbers no filter of 64-bit ones knows."""
    if os.uname().machine != "x86_64":
        pytest.skip("x86_64 only")
    made = new(uid=users()[0])
    code = """
import ctypes, json, mmap, os
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(bytes.fromhex('53b814000000cd805bc3'))  # getpid by int 0x80
address = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(json.dumps(ctypes.CFUNCTYPE(ctypes.c_int)(address)()))
"""
    assert made.python(code) == -38  # ENOSYS


def test_python_inside_starts_threads_and_processes(new) -> None:
    made = new(uid=users()[0])
    done = made.enter(
        PYTHON, "-c", "import concurrent.futures as c, subprocess; print(list(c.ThreadPoolExecutor().map(abs, [-1]))); subprocess.run(['true'], check=True)"
    )
    assert (done.returncode, done.stdout) == (0, "[1]\n")


# --- links that a command could have made


@WHO
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("sandbox", "first", "second"),
    [
        pytest.param(
            "paths: [{path: build, access: write, optional: true}]",
            "ln -s .wavegen build",
            "echo evil >.wavegen/bin/default",
            id="a grant that leads to the fence",
        ),
        pytest.param(
            "paths: [{path: build, access: write, optional: true}]",
            "ln -s wave.yaml build",
            "echo '#evil' >>wave.yaml",
            id="a grant that leads to the manifest",
        ),
        pytest.param(
            "paths: [{path: @base/x, access: write}, {path: @base/x/c, access: write, optional: true}]",
            "ln -s ../victim @base/x/c",
            "cat @base/x/c/f; echo evil >@base/x/c/f",
            id="in a granted directory",
        ),
        pytest.param(
            "paths: [{path: @base/tool, access: write, optional: true}]",
            "ln -s @base/victim build",
            "cat @base/tool/f; echo evil >@base/tool/f",
            id="behind a link of the host",
        ),
        pytest.param(
            "paths: [{path: ~/a, access: write}, {path: ~/z, access: write}]",
            "mv ~/a/z ~/a/y; ln -s ../.ssh ~/a/z",
            "cat ~/z/f; echo evil >~/z/f",
            id="a granted link that is turned",
        ),
        pytest.param(
            "paths: [{path: ~/.gitconfig, access: read, optional: true}]", "rm dot; ln -s ../.ssh/f dot", "cat ~/.gitconfig", id="dotfiles in the project"
        ),
        pytest.param("deny_read_paths: [.env]", "rm .env", "cat conf/real", id="a denied link"),
        pytest.param("deny_read_paths: [to-dir/f]", "rm to-dir", "cat dir/f", id="a denied file by a link"),
        pytest.param("paths: [{path: v, access: read}]", "rm v; ln -s conf v", "cat v/real; echo evil >dir/f", id="a read-only link"),
    ],
)
def test_a_link_where_commands_may_write_leads_nowhere(new, uid: int, shell: str, sandbox: str, first: str, second: str) -> None:  # noqa: PLR0917
    made = new(uid=uid, project="home/p")
    put(made, "victim/f", "home/.ssh/f", "home/p/conf/real", "home/p/dir/f")
    put(made, "home/p/dot", text="fine")
    for place in (made.base / "x", made.home / "a/z"):
        place.mkdir(parents=True)
    for link, target in (
        ("tool", made.project / "build"),
        ("home/z", "a/z"),
        ("home/.gitconfig", "p/dot"),
        ("home/p/.env", "conf/real"),
        ("home/p/to-dir", "dir"),
        ("home/p/v", "dir"),
    ):
        (made.base / link).symlink_to(target)
    again(made, "    " + "\n    ".join(sandbox.replace("@base", str(made.base)).split(", deny")) + "\n")
    before = {
        p: p.read_text()
        for p in (made.project / ".wavegen/bin/default", made.project / "wave.yaml", made.base / "victim/f", made.home / ".ssh/f", made.project / "dir/f")
    }
    made.enter("sh", "-c", first.replace("@base", str(made.base)), shell=shell)
    done = made.enter("sh", "-c", second.replace("@base", str(made.base)), shell=shell)
    assert "CANARY" not in done.stdout
    assert {p: p.read_text() for p in before} == before


@WHO
@pytest.mark.parametrize("shell", SHELLS)
def test_what_lies_in_a_granted_place_of_the_system_is_held_too(new, uid: int, shell: str) -> None:
    made = new(uid=uid)
    put(made, "x/a/b/f", "x/a/ro/f", "x/a/c/d/f")
    x = made.base / "x"
    again(made, f"    paths: [{{path: {x}, access: write}}, {{path: {x}/a/ro, access: read}}]\n    deny_read_paths: [{x}/a/b, {x}/a/c/d]\n")
    made.enter("sh", "-c", f"mv {x}/a {x}/m; mv {x}/a/c {x}/a/n; mv {x}/a/b {x}/a/k; echo kept >{x}/kept", shell=shell)
    done = made.enter("sh", "-c", f"cat {x}/*/b/f {x}/a/k/f {x}/a/*/d/f; echo evil >{x}/m/ro/f; echo evil >{x}/a/ro/f", shell=shell)
    assert "CANARY" not in done.stdout
    assert (x / "kept").read_text() == "kept\n"
    assert (x / "a/ro/f").read_text() == "CANARY"


@WHO
@pytest.mark.parametrize("shell", SHELLS)
def test_a_project_below_a_granted_place_of_the_system_is_held(new, uid: int, shell: str) -> None:
    made = new(uid=uid, project="g/x/y/p")
    again(made, f"    paths: [{{path: {made.base}/g, access: write}}]\n")
    before = (made.project / ".wavegen/bin/default").read_text()
    made.enter("sh", "-c", f"cd {made.base}/g && mv x z; mkdir -p x/y/p/.wavegen/bin; echo evil >x/y/p/.wavegen/bin/default", shell=shell)
    assert (made.project / ".wavegen/bin/default").read_text() == before


@WHO
@pytest.mark.parametrize("shell", SHELLS)
def test_a_grant_by_a_link_of_the_host_shows_nothing_that_is_denied(new, uid: int, shell: str) -> None:
    made = new(uid=uid)
    put(made, "work/project/x/secret", "home/store/d/f")
    made.enter("sh", "-c", "echo CANARY >~/login", shell="default")
    for link, target in (("tool", made.project / "x"), ("st", made.home / "store"), ("state", made.home / ".local/state")):
        (made.base / link).symlink_to(target)
    grants = ", ".join(f"{{path: {made.base}/{n}, access: read}}" for n in ("tool", "st", "state"))
    again(made, f"    paths: [{grants}]\n    deny_read_paths: [x/secret, ~/store/d]\n")
    names = f"{made.base}/tool/secret {made.base}/st/d/f {made.base}/state/wavegen/*/*/home/login x/secret ~/store/d/f"
    done = made.enter("sh", "-c", f"cat {names}", shell=shell)
    assert "CANARY" not in done.stdout


@WHO
@pytest.mark.parametrize("denied", ["[config/secrets/.env, config]", "[config, config/secrets/.env]"])
def test_what_is_denied_twice_is_hidden_once(new, uid: int, denied: str) -> None:
    made = new(f"    deny_read_paths: {denied}\n", uid=uid)
    put(made, "work/project/config/secrets/.env", "work/project/config/secrets/key", "work/project/config/f")
    done = made.enter("sh", "-c", "cat config/secrets/key config/secrets/.env config/f; ls -A config")
    assert done.stdout == ""


@WHO
def test_a_denied_directory_above_the_project_shows_nothing_but_the_project(new, uid: int) -> None:
    made = new("    paths: [{path: ~/src, access: write}]\n    deny_read_paths: [~/src/a]\n", uid=uid, project="home/src/a/b/p")
    put(made, "home/src/a/b/secret", "home/src/a/f")
    done = made.enter("sh", "-c", "cat ~/src/a/b/secret ~/src/a/f; ls -A ~/src/a ~/src/a/b; echo x >made")
    assert "CANARY" not in done.stdout
    assert (made.project / "made").read_text() == "x\n"


@WHO
@pytest.mark.parametrize("denied", ["/etc/ssl", "/etc", "/sys", "/var", "/root/.aws", "/etc/ssl/private/key.pem"])
def test_directories_of_the_system_can_be_denied(new, uid: int, denied: str) -> None:
    made = new(f"    deny_read_paths: [{denied}]\n", uid=uid)
    assert made.enter("echo", "fine").stdout == "fine\n"


@WHO
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("sandbox", "command"),
    [
        pytest.param(
            "paths: [{path: ~/code, access: write}]",
            "echo evil >>~/code/p/.wavegen/bin/default; echo evil >>~/code/p/wave.yaml",
            id="the home's link to what holds the project",
        ),
        pytest.param("paths: [{path: @base/l, access: write}]", "echo evil >>@base/l/p/.wavegen/bin/default", id="a link to what holds the project"),
        pytest.param("paths: [{path: @base/w, access: write}]", "echo evil >>@base/w/default", id="a link to the fence"),
        pytest.param("paths: [{path: @base/m, access: write}]", "echo evil >>@base/m", id="a link to the manifest"),
        pytest.param("paths: [{path: @base/b, access: read}]", "cat @base/b/home/.ssh/f", id="a link to what holds the home"),
        pytest.param(
            "paths: [{path: @base/q, access: read}, {path: @base/x/a, access: write}]",
            "echo evil >@base/x/a/ro/f",
            id="a read grant of a part of a write grant",
        ),
        pytest.param(
            "paths: [{path: @base/y, access: write}, {path: @base/y/a/ro, access: read}]",
            "echo evil >@base/y/a/ro/f",
            id="a read grant below a linked write grant",
        ),
        pytest.param("paths: [{path: ~/src, access: write}], deny: [~/src/a, .env]", "cat .env; cat ~/src/a/f", id="denied above and in the project"),
    ],
)
def test_no_other_name_gets_round_a_rule(new, uid: int, shell: str, sandbox: str, command: str) -> None:
    made = new(uid=uid, project="home/src/a/p" if "deny" in sandbox else "home/src/p")
    put(made, "home/.ssh/f", "x/a/ro/f", "home/src/a/f", str((made.project / ".env").relative_to(made.base)))
    links = (
        ("home/code", "src"),
        ("l", "home/src"),
        ("w", made.project / ".wavegen/bin"),
        ("m", made.project / "wave.yaml"),
        ("b", "."),
        ("q", "x/a/ro"),
        ("y", "x"),
    )
    for link, target in links:
        (made.base / link).symlink_to(target)
    again(made, "    " + sandbox.replace("@base", str(made.base)).replace(", deny:", "\n    deny_read_paths:") + "\n")
    files = (made.project / ".wavegen/bin/default", made.project / "wave.yaml", made.base / "x/a/ro/f")
    before = [p.read_text() for p in files]
    done = made.enter("sh", "-c", command.replace("@base", str(made.base)), shell=shell)
    assert "CANARY" not in done.stdout
    assert [p.read_text() for p in files] == before


@WHO
def test_a_link_made_in_one_shell_leads_nowhere_in_another(new, uid: int) -> None:
    shells = "ci: {network: none, paths: [{path: ~/w, access: write}]}, rd: {network: none, paths: [{path: ~/w/x, access: read, optional: true}]}"
    made = new(f"    shells: {{{shells}}}\n", uid=uid)
    put(made, "home/.ssh/f", "home/w/kept")
    made.enter("sh", "-c", "ln -s ../.ssh ~/w/x", shell="ci")
    done = made.enter("sh", "-c", "cat ~/w/x/f", shell="rd")
    assert (done.returncode, done.stdout) == (125, "")


@WHO
def test_an_empty_home_below_a_granted_place_is_held(new, uid: int) -> None:
    made = new(uid=uid, project="b/home/src/p")
    home = made.base / "b/home"
    made = Fence(made.base, home, made.project, uid)
    made.write("wave.yaml", f"metadata: {{name: a}}\nruntime:\n  sandbox:\n    home: tmpfs\n    paths: [{{path: {made.base}, access: write}}]\n")
    made.own()
    assert made.render().returncode == 0
    before = (made.project / ".wavegen/bin/restricted").read_text()
    made.enter(
        "sh", "-c", f"cd {made.base}; mv b moved; mkdir -p b/home/src/p/.wavegen/bin; echo evil >b/home/src/p/.wavegen/bin/restricted", shell="restricted"
    )
    assert (made.project / ".wavegen/bin/restricted").read_text() == before


@pytest.mark.parametrize("shell", SHELLS)
def test_a_granted_path_of_var_run_is_there_by_that_name(new, shell: str) -> None:
    if os.getuid() != 0 or not Path("/var/run").is_symlink():
        pytest.skip("needs root, and /var/run to be a link")
    made = new(uid=0)
    granted = Path(f"/run/{made.base.name}")
    granted.mkdir()
    try:
        (granted / "f").write_text("fine")
        again(made, f"    paths: [{{path: /var/run/{made.base.name}, access: read}}]\n")
        assert made.enter("cat", f"/var/run/{made.base.name}/f", f"/run/{made.base.name}/f", shell=shell).stdout == "finefine"
    finally:
        (granted / "f").unlink()
        granted.rmdir()


def test_a_state_directory_whose_parents_are_missing_is_made_or_refused(new) -> None:
    made = new(uid=users()[0])
    done = made.enter("echo", "fine", env=made.environment(XDG_STATE_HOME=f"{made.base}/none/such"))
    assert done.stdout == "fine\n"
    done = subprocess.run(
        ["timeout", "10", *made.argv("default", ("true",))], cwd=made.project, env=made.environment(XDG_STATE_HOME="/proc/none/such"), capture_output=True
    )
    assert done.returncode == 125


# --- where wavegen keeps things, and callers that are odd


def test_nothing_can_be_planted_where_wavegen_keeps_things(new) -> None:
    made = new("    home: tmpfs\n    paths: [{path: ~/.local, access: write}]\n", uid=users()[-1])
    (made.home / ".local").mkdir(exist_ok=True)
    made.own()
    made.enter("sh", "-c", "mkdir -p ~/.local/state/wavegen/x && echo evil >~/.local/state/wavegen/x/f; mv ~/.local/state ~/.local/s")
    # What the launcher itself keeps: the project's state.
    kept = made.home / ".local/state/wavegen"
    (project,) = kept.iterdir()
    assert project.name == str(made.project).replace("/", "%2F")
    (shell,) = (path for path in project.iterdir() if path.is_dir())
    assert shell.name == "default"
    assert list(shell.iterdir()) == []
    assert not [path for path in kept.rglob("*") if path.is_file() and "evil" in path.read_text()]
    assert not (made.home / ".local/s").exists()


def test_a_state_directory_that_leads_into_the_project_is_refused(new) -> None:
    made = new(uid=users()[0])
    (made.home / ".local").mkdir(exist_ok=True)
    (made.project / "state").mkdir()
    shutil.rmtree(made.home / ".local/state", ignore_errors=True)
    (made.home / ".local/state").symlink_to(made.project / "state")
    made.own()
    assert "lies in the project" in made.enter("true").stderr
    dotted = made.environment(XDG_STATE_HOME=f"{made.project}/./state")
    assert made.enter("true", env=dotted).returncode == 125


def test_a_machine_that_is_short_of_processes_is_no_reason_to_go_without_a_fence(new) -> None:
    made = new("    fallback: warn\n", uid=os.getuid())
    short = made.base / "bwrap"
    short.write_text("#!/bin/sh\necho 'bwrap: Creating new namespace failed: Resource temporarily unavailable' >&2\nexit 1\n")
    short.chmod(0o755)
    argv = [*in_place_of_bwrap(short), *made.argv("default", ("echo", "RAN"))]
    done = subprocess.run(argv, cwd=made.project, env=made.environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (125, "")


@pytest.mark.parametrize("extra", [{"HOSTTYPE": "foo"}, {"FUNCNEST": "1"}, {"BASH_COMPAT": "4.2"}, {"POSIXLY_CORRECT": "1"}], ids=str)
def test_the_environment_does_not_switch_the_filter_off(new, extra: dict[str, str]) -> None:
    made = new(uid=users()[0])
    assert "Seccomp:\t2" in made.enter("cat", "/proc/self/status", env=made.environment(**extra)).stdout


def test_a_directory_as_input_is_refused(new) -> None:
    made = new(uid=os.getuid())
    handle = os.open(made.base, os.O_RDONLY)
    done = subprocess.run(
        made.argv("default", ("ls", "/proc/self/fd/0/..")), stdin=handle, cwd=made.project, env=made.environment(), capture_output=True, text=True
    )
    os.close(handle)
    assert (done.returncode, done.stdout) == (125, "")


@pytest.mark.needs("git")
def test_git_add_fetches_nothing_for_a_repository_that_says_it_is_partial(new) -> None:
    made = new(uid=os.getuid())
    evil = made.base / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {made.base}/sprung\n")
    evil.chmod(0o755)

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=made.project, env=made.environment(), check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    made.write(".gitignore", "x\n")
    git("add", ".gitignore")
    git("update-index", "--skip-worktree", ".gitignore")
    blob = git("hash-object", ".gitignore").strip()
    (made.project / ".gitignore").unlink()
    (made.project / ".git/objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryformatversion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", str(made.project)),
        ("remote.origin.uploadpack", str(evil)),
    ):
        git("config", name, value)
    subprocess.run(["git", "add", "-N", "wave.yaml"], cwd=made.project, env=made.environment(), capture_output=True, check=False)
    assert (made.base / "sprung").exists(), "the repository is no trap, so this test would prove nothing"
    (made.base / "sprung").unlink()
    made.render("--git-add")
    assert not (made.base / "sprung").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes a project there")
@pytest.mark.parametrize("shell", ["default", "restricted"])
def test_neighbours_below_a_directory_of_the_system_are_hidden(shell: str) -> None:
    """/usr is shown whole, and somebody's projects may lie in /usr/local/src."""
    base = Path("/usr/local/src")
    made = not base.exists()
    base.mkdir(exist_ok=True)
    fence = Fence.create("metadata: {name: x}\n", uid=0, under=str(base))
    try:
        secret = fence.base / "work/other/secret"
        secret.parent.mkdir()
        secret.write_text("canary")
        assert fence.enter("cat", str(secret), shell=shell).returncode != 0
        assert fence.enter("ls", "-A", str(fence.project.parent), shell=shell).stdout.split() == [fence.project.name]
        assert fence.enter("touch", "works", shell=shell).returncode == 0
    finally:
        fence.remove()
        if made:
            base.rmdir()


# --- what is added to a project, or made in it before the next start


@WHO
def test_a_file_that_was_only_added_is_not_taken_for_the_checked_launcher(new, uid: int) -> None:
    """As a pull request can: `__pycache__` beside the launcher is in no lock."""
    made = new(uid=uid)
    cache = made.project / ".wavegen/launcher/__pycache__"
    plant = """if True:
        import marshal, sys
        from pathlib import Path
        cache, named = Path(sys.argv[1]), sys.argv[2]
        start = "def main(words, own):\\n    print('EVIL')\\n    raise SystemExit"
        modules = {name: marshal.dumps(compile(text, name, "exec")) for name, text in (("__init__", ""), ("start", start))}
        cache.mkdir(exist_ok=True)
        statuses = {"/not/there": ()} if not named else {named + part: () for part in ("/lock.json", "", "/launcher", "/rules")}
        (cache / ("launcher-" + sys.implementation.cache_tag)).write_bytes(marshal.dumps((sys.hexversion, modules, statuses)))
    """
    for named in ("", str(made.project / ".wavegen")):
        assert subprocess.run(["/usr/bin/python3", "-c", plant, cache, named], check=False).returncode == 0
        made.own()
        assert made.enter("echo", "ran").stdout == "ran\n"


@WHO
def test_very_many_names_in_the_project_leave_nothing_open_that_the_host_follows(new, uid: int) -> None:
    made = new(uid=uid)
    names = (".envrc", ".vscode/tasks.json", ".claude/settings.json", ".git/config", ".mcp.json")
    put(made, *(f"{made.project.relative_to(made.base)}/{name}" for name in names), text="")
    assert made.enter("python3", "-c", "for i in range(101000): open(f'f{i}', 'w').close()", shell="restricted").returncode == 0
    made.enter("sh", "-c", f"for f in {' '.join(names)}; do echo evil >$f; done", shell="restricted")
    assert [name for name in names if (made.project / name).read_text()] == []


@WHO
def test_a_repository_that_a_command_made_shows_no_others_objects(new, uid: int) -> None:
    """Where the project had none, a command writes settings and list both; of one that was there first, its settings are kept."""
    made = new(uid=uid)
    kept = made.home / "kept"
    commands = f"git init -q {kept} && cd {kept} && echo CANARY >a && git add a && git -c user.name=a -c user.email=a@b commit -qm 1"
    assert subprocess.run(["sh", "-c", commands], check=False, env={"PATH": os.environ["PATH"], "HOME": str(made.home)}).returncode == 0
    made.own()
    plant = f"git init -q && git config remote.o.url {kept} && mkdir -p .git/objects/info && echo {kept}/.git/objects >.git/objects/info/alternates"
    assert made.enter("sh", "-c", plant, shell="restricted").returncode == 0
    assert "CANARY" not in made.enter("sh", "-c", "git cat-file --batch-all-objects --batch", shell="restricted").stdout


@WHO
def test_what_a_command_writes_into_its_input_leads_its_caller_nowhere(new, uid: int, tmp_path: Path) -> None:
    made = new(uid=uid)
    (tmp_path / "list").write_text("a\nb\n")
    with (tmp_path / "list").open("rb", buffering=0) as stream:
        stream.read(2)
        words = made.argv("default", ("sh", "-c", "echo longer than what was read >/proc/self/fd/0; exit 3"))
        done = subprocess.run(words, cwd=made.project, env=made.environment(), stdin=stream, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr, stream.tell()) == (3, "", 2)


@pytest.mark.parametrize("name", ["base", "directory", "notice", "entered-1"])
def test_no_shell_takes_the_name_of_a_file_of_ours(tmp_path: Path, name: str) -> None:
    (tmp_path / "wave.yaml").write_text(f"metadata: {{name: a}}\nruntime: {{sandbox: {{shells: {{{name}: {{network: none}}}}}}}}\n")
    done = Fence(tmp_path, tmp_path, tmp_path, os.getuid()).wavegen("render")
    assert done.returncode == 2
    assert f"'{name}' is the name of a file of wavegen's (choose another name)" in done.stderr


@WHO
def test_another_project_at_the_same_path_inherits_no_home(new, uid: int) -> None:
    """Also where the file system gives its directory the number of the one that was removed."""
    made = new(uid=uid)
    aside = made.base / "aside"
    shutil.copytree(made.project, aside, symlinks=True)
    assert made.enter("sh", "-c", "echo evil >~/.bashrc").returncode == 0
    shutil.rmtree(made.project)
    made.project.mkdir()
    shutil.copytree(aside, made.project, symlinks=True, dirs_exist_ok=True)
    made.own()
    done = made.enter("sh", "-c", "cat ~/.bashrc")
    assert "evil" not in done.stdout, done.stderr
    assert "another directory was at" in done.stderr


@pytest.mark.parametrize("left", ["mkdir x && chmod 0 x", 'python3 -c \'import os; [os.mkdir("d" * 250) or os.chdir("d" * 250) for i in range(40)]\''])
def test_what_cannot_be_looked_at_is_not_taken_for_nothing(new, left: str) -> None:
    """What looks for changes after a command asks the audit where it could not look itself."""
    made = new(uid=users()[-1])
    assert made.enter("sh", "-c", left).returncode == 0
    audited = made.base / "audited"
    audited.mkdir(mode=0o777)
    audited.chmod(0o777)
    code = f"""if True:
        import sys, types
        from wavegen.launcher import supervise
        package, command = types.ModuleType("wavegen.launcher.audit"), types.ModuleType("wavegen.launcher.audit.command")
        package.__path__, command.main = [], lambda words: open("{audited}/yes", "w").close()
        sys.modules.update({{package.__name__: package, command.__name__: command}})
        supervise.audit_afterwards("{made.project}", "{audited}", "{audited}/entered-1", ended=True)
    """
    (audited / "entered-1").touch()
    os.utime(audited / "entered-1", ns=(1 << 62, 1 << 62))
    words = (
        [sys.executable, "-c", code] if os.getuid() else ["setpriv", f"--reuid={made.uid}", f"--regid={made.uid}", "--clear-groups", sys.executable, "-c", code]
    )
    assert subprocess.run(words, cwd=ROOT, check=False).returncode == 0
    wait_until((audited / "yes").exists, "the audit was not asked")
    for path in made.project.glob("x"):
        path.chmod(0o755)


@WHO
@pytest.mark.parametrize("at", ["~/.local/bin", "away"])
def test_no_program_that_a_command_made_becomes_the_agent(new, uid: int, at: str) -> None:
    """Not read-only ones either, nor one of the project that a link outside names."""
    if at == "away" and os.getuid():
        pytest.skip("root alone makes a directory of the system")
    made = new(uid=uid)
    persona = "adapters: {wizard: {command: [wizard]}}\npersonas: {dev: {adapters: {wizard: {}}}}\n"
    made.write("wave.yaml", "metadata: {name: a}\n" + persona)
    made.own()
    done = made.render()
    assert done.returncode == 0, done.stderr
    target = "~/.local/bin" if at == "~/.local/bin" else str(made.project)
    plant = (
        f"mkdir -p {target}; cd {target}; printf '#!/bin/sh\\necho EVIL\\n' | tee wizard readlink chmod >/dev/null; chmod 555 *; [ {at} = away ] || chmod 555 ."
    )
    words = ["sh", "-c", plant]
    assert made.enter("--exec", *words, shell="persona-dev").returncode == 0
    path = Path(tempfile.mkdtemp(dir="/usr/local")) if at == "away" else made.home / ".local/bin"
    try:
        if at == "away":
            path.chmod(0o755)
            (path / "wizard").symlink_to(made.project / "wizard")
        done = made.enter(shell="persona-dev", env=made.environment(PATH=f"{path}:/usr/bin:/bin"))
        assert (done.returncode, done.stdout) == (127, ""), done.stderr
        assert "passed over, as a command could have put it there" in done.stderr
    finally:
        if at == "away":
            shutil.rmtree(path)
