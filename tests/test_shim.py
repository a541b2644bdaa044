"""The shim and its little brother, on this machine's kernel: what they hold, what they cannot, and what they leave alone.

Each attempt is made without the shim first, where it must succeed: a bound that holds nothing cannot pass.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

RUNTIME = Path(__file__).parents[1] / "wavegen" / "runtime"
sys.path.insert(0, str(RUNTIME))
import shim  # noqa: E402

PYTHON = "/usr/bin/python3"
SOURCE = (RUNTIME / "shim.py").read_text(encoding="utf-8")
SHIMS = {
    "python": (PYTHON, "-I", "-S", str(RUNTIME / "shim.py")),
    "perl": ("perl", "-T", str(RUNTIME / "landlock.pl")),
}
AS_TEXT = {"python": (PYTHON, "-I", "-S", "-c", SOURCE), "perl": ("perl", "-T", "-e", (RUNTIME / "landlock.pl").read_text(encoding="utf-8"), "--")}
USER = ("setpriv", "--reuid=23456", "--regid=23456", "--clear-groups")
USERS = {"root": (), "user": USER} if os.geteuid() == 0 else {"user": ()}

both = pytest.mark.parametrize(
    "which", [pytest.param("python", marks=pytest.mark.needs("landlock")), pytest.param("perl", marks=pytest.mark.needs("landlock", "perl"))]
)
everybody = pytest.mark.parametrize("who", [pytest.param(who, marks=pytest.mark.needs("user")) for who in USERS])

ATTEMPTS = r"""
import ctypes, errno, json, os, socket, stat, sys
base = sys.argv[1]
inside, outside = base + "/inside", base + "/outside"
libc = ctypes.CDLL(None, use_errno=True)
found = {}

def attempt(done):
    try:
        done()
        found[done.__name__] = "ok"
    except OSError as failed:
        found[done.__name__] = errno.errorcode[failed.errno]

def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "")
    return result

def write(path, flags=os.O_WRONLY):
    handle = os.open(path, flags, 0o666)
    try:
        assert os.write(handle, b"x") == 1
    finally:
        os.close(handle)

def both(name, made):
    for place in ("inside", "outside"):
        def one():
            made(base + "/" + place)
        one.__name__ = name + "_" + place
        attempt(one)

both("write", lambda at: write(at + "/file"))
both("append", lambda at: write(at + "/file", os.O_WRONLY | os.O_APPEND))
both("open_truncating", lambda at: os.close(os.open(at + "/file", os.O_RDONLY | os.O_TRUNC)))
both("truncate", lambda at: os.truncate(at + "/file", 0))
both("create", lambda at: write(at + "/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL))
both("tmpfile", lambda at: write(at, os.O_TMPFILE | os.O_RDWR))
both("mkdir", lambda at: os.mkdir(at + "/newdir"))
both("rmdir", lambda at: os.rmdir(at + "/empty"))
both("unlink", lambda at: os.unlink(at + "/victim"))
both("symlink", lambda at: os.symlink("file", at + "/newlink"))
both("link", lambda at: os.link(at + "/file", at + "/newhard"))
both("fifo", lambda at: os.mkfifo(at + "/newfifo"))
both("mknod", lambda at: os.mknod(at + "/newnode", stat.S_IFREG | 0o600))
both("socket", lambda at: socket.socket(socket.AF_UNIX).bind(at + "/newsock"))
both("rename", lambda at: os.rename(at + "/one/moving", at + "/two/moved"))
both("rename_directory", lambda at: os.rename(at + "/one/tree", at + "/two/tree"))
both("exchange", lambda at: called(libc.renameat2(-100, (at + "/one/swap").encode(), -100, (at + "/two/swap").encode(), 2)))
both("read", lambda at: os.close(os.open(at + "/file", os.O_RDONLY)))
both("list", os.listdir)
both("execute", lambda at: called(-(os.spawnv(os.P_WAIT, at + "/program", ["program"]) == 127) * 1 if os.access(at + "/program", os.X_OK) else -1))
both("chmod", lambda at: os.chmod(at + "/file", 0o606))
both("utime", lambda at: os.utime(at + "/file", (1, 1)))
both("xattr", lambda at: os.setxattr(at + "/file", "user.x", b"1"))
both("stat", lambda at: os.stat(at + "/file"))

def move_out(): os.rename(inside + "/out1", outside + "/out1")
def move_in(): os.rename(outside + "/in1", inside + "/in1")
def link_out(): os.link(inside + "/file", outside + "/hard2")
def link_in():
    os.link(outside + "/in2", inside + "/linked")
    write(inside + "/linked")
def exchange_across(): called(libc.renameat2(-100, (inside + "/swap3").encode(), -100, (outside + "/swap3").encode(), 2))
def through_link():
    os.symlink(outside + "/file", inside + "/leads-out")
    write(inside + "/leads-out")
def through_dots(): write(inside + "/../outside/file")
def through_fd():
    handle = os.open(outside + "/file", os.O_PATH)
    write("/proc/self/fd/%d" % handle)
def through_root(): write("/proc/self/root" + outside + "/file")
def through_directory_fd():
    handle = os.open(outside, os.O_PATH | os.O_DIRECTORY)
    os.close(os.open("file", os.O_WRONLY, dir_fd=handle))
def through_inherited_fd(): os.write(int(sys.argv[2]), b"x")
def memory():
    handle = os.memfd_create("x")
    os.write(handle, b"x")
    write("/proc/self/fd/%d" % handle)
def null(): write("/dev/null")
def terminal():
    master, slave = os.openpty()
    pid = os.fork()
    if not pid:
        try:
            import fcntl, termios
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
            write("/dev/tty", os.O_RDWR)
            write("/dev/ptmx", os.O_RDWR)
            os._exit(0)
        except OSError as failed:
            os._exit(failed.errno)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        raise OSError(code, "")
for one in (move_out, move_in, link_out, link_in, exchange_across, through_link, through_dots, through_fd, through_root, through_directory_fd,
            through_inherited_fd, memory, null, terminal):
    attempt(one)
print(json.dumps(found))
"""


def _world(base: Path, who: str) -> None:
    base.chmod(0o777)
    for place in (base / "inside", base / "outside"):
        for directory in (place, place / "one", place / "two", place / "empty", place / "one" / "tree"):
            directory.mkdir()
            directory.chmod(0o777)
        for name in ("file", "victim", "one/moving", "one/swap", "two/swap", "out1", "in1", "in2", "swap3"):
            (place / name).write_text("old", encoding="ascii")
            (place / name).chmod(0o666)
        (place / "program").write_text("#!/bin/sh\nexit 0\n", encoding="ascii")
        (place / "program").chmod(0o777)
    if who == "user" and os.geteuid() == 0:
        subprocess.run(["chown", "-R", "23456:23456", base], check=True)


@pytest.fixture
def base() -> Iterator[Path]:
    """A place that an unprivileged user may enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory(prefix="shim-", dir="/var/tmp") as name:
        _world(Path(name), "root")
        yield Path(name)


def _run(argv: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload,no-any-return]


@cache
def _attempted(prefix: tuple[str, ...], who: str, command: tuple[str, ...] = ()) -> dict[str, str]:
    """What the attempts came to behind these words, in which BASE is the world's place; `command` stands around all of it."""
    with tempfile.TemporaryDirectory(prefix="shim-", dir="/var/tmp") as name:
        _world(Path(name), who)
        with open(f"{name}/outside/file", "ab") as held:
            argv = [*USERS[who], *command, *prefix, PYTHON, "-I", "-S", "-c", ATTEMPTS, name, str(held.fileno())]
            done = _run([word.replace("BASE", name) for word in argv], pass_fds=[held.fileno()])
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


WRITES_ONLY = ("--landlock", "require", "--writes-only", "--write", "BASE/inside", "--write", "/dev", "--close")
FULL = (
    *("--landlock", "require", "--write", "BASE/inside", "--write", "/dev", "--read", "/usr", "--read", "/proc"),
    *(word for place in ("/lib", "/lib64", "/bin", "/etc", "/root/.pyenv") for word in ("--read-try", place)),
    "--close",
)
WRITING = (
    *("write", "append", "open_truncating", "truncate", "create", "tmpfile", "mkdir", "rmdir", "unlink", "symlink", "link", "fifo", "mknod", "socket"),
    *("rename", "rename_directory", "exchange"),
)
ROUND_ABOUT = (
    *("move_out", "move_in", "link_out", "link_in", "exchange_across", "through_link", "through_dots", "through_fd", "through_root"),
    "through_directory_fd",
)
DENIED = {"EACCES", "EXDEV"}
NOT_HELD = ("chmod_outside", "utime_outside", "xattr_outside", "stat_outside")


@everybody
def test_without_the_shim_every_attempt_succeeds(who: str) -> None:
    assert {name: how for name, how in _attempted((), who).items() if how != "ok"} == {}


@both
@everybody
@pytest.mark.parametrize("name", [*(f"{name}_outside" for name in WRITING), *ROUND_ABOUT])
def test_no_write_outside(which: str, who: str, name: str) -> None:
    assert _attempted((*SHIMS[which], *WRITES_ONLY, "--"), who)[name] in DENIED


@both
@everybody
def test_everything_inside_works(which: str, who: str) -> None:
    found = _attempted((*SHIMS[which], *WRITES_ONLY, "--"), who)
    assert {name: how for name, how in found.items() if name.endswith("_inside") and how != "ok"} == {}
    assert (found["null"], found["terminal"], found["memory"]) == ("ok", "ok", "ok")


@both
@everybody
def test_reading_is_free_where_only_writes_are_held(which: str, who: str) -> None:
    found = _attempted((*SHIMS[which], *WRITES_ONLY, "--"), who)
    assert [found[name] for name in ("read_outside", "list_outside", "execute_outside")] == ["ok", "ok", "ok"]


@both
@everybody
@pytest.mark.parametrize("name", NOT_HELD)
def test_what_landlock_cannot_hold(which: str, who: str, name: str) -> None:
    """A kernel that holds it makes this fail: then the gaps that wavegen names are one fewer."""
    assert _attempted((*SHIMS[which], *WRITES_ONLY, "--"), who)[name] == "ok"


@both
@everybody
def test_an_open_descriptor_is_a_way_round_unless_closed(which: str, who: str) -> None:
    closed, left = WRITES_ONLY, tuple(word for word in WRITES_ONLY if word != "--close")
    assert _attempted((*SHIMS[which], *closed, "--"), who)["through_inherited_fd"] == "EBADF"
    assert _attempted((*SHIMS[which], *left, "--"), who)["through_inherited_fd"] == "ok"


@everybody
@pytest.mark.needs("landlock")
def test_the_whole_fence_holds_reading_too(who: str) -> None:
    found = _attempted((*SHIMS["python"], *FULL, "--"), who)
    outside = {name for name in found if name.endswith("_outside")} | set(ROUND_ABOUT)
    assert {name: found[name] for name in outside - set(NOT_HELD) if found[name] not in DENIED} == {}
    assert {name: how for name, how in found.items() if name.endswith("_inside") and how != "ok"} == {}
    assert (found["null"], found["terminal"], found["memory"]) == ("ok", "ok", "ok")


@everybody
@pytest.mark.needs("landlock")
def test_what_may_be_read_may_not_be_written(who: str) -> None:
    found = _attempted((*SHIMS["python"], *FULL, "--read", "BASE/outside", "--"), who)
    assert [found[name] for name in ("read_outside", "list_outside", "execute_outside")] == ["ok", "ok", "ok"]
    assert {name: found[name] for name in (*(f"{name}_outside" for name in WRITING), *ROUND_ABOUT) if found[name] not in DENIED} == {}


@both
@everybody
@pytest.mark.needs("bwrap")
def test_a_place_that_is_mounted_writable_by_mistake_is_still_held(which: str, who: str) -> None:
    bwrap = ("bwrap", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--dev-bind", "/", "/", "--")
    assert _attempted((), who, bwrap)["write_outside"] == "ok"
    found = _attempted((*SHIMS[which], *WRITES_ONLY, "--"), who, bwrap)
    assert {name: found[name] for name in (*(f"{name}_outside" for name in WRITING), *ROUND_ABOUT) if found[name] not in DENIED} == {}
    assert {name: how for name, how in found.items() if name.endswith("_inside") and how != "ok"} == {}
    assert (found["null"], found["terminal"]) == ("ok", "ok")


@both
def test_a_single_file_may_be_written(which: str, base: Path) -> None:
    words = [*SHIMS[which], "--landlock", "require", "--writes-only", "--write", str(base / "outside" / "file"), "--"]
    done = _run([*words, "sh", "-c", f"echo 1 >{base}/outside/file && echo 2 >{base}/outside/victim"])
    assert "Permission denied" in done.stderr
    assert (base / "outside" / "file").read_text() == "1\n"
    assert (base / "outside" / "victim").read_text() == "old"


@both
def test_a_writable_place_must_not_lie_behind_a_link(which: str, base: Path) -> None:
    (base / "inside" / "link").symlink_to(base / "outside")
    for place in ("link", "link/one"):
        for option in ("--write", "--write-try"):
            done = _run([*SHIMS[which], "--landlock", "require", "--writes-only", option, str(base / "inside" / place), "--", "echo", "ran"])
            assert (done.returncode, done.stdout) == (125, "")
            assert "leads through a link" in done.stderr


@both
def test_a_place_that_is_missing(which: str, base: Path) -> None:
    words = [*SHIMS[which], "--landlock", "best-effort", "--writes-only"]
    done = _run([*words, "--write", str(base / "none"), "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == f"wavegen: error: --write {base}/none: No such file or directory (make it, or take it out of the manifest)\n"
    done = _run([*words, "--write-try", str(base / "none"), "--write-try", str(base / "inside/file/x"), "--", "echo", "ran"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")


# --- scopes and ports

REACHING = r"""
import errno, os, socket, sys
def said(name, done):
    try:
        done()
        print(name, "ok")
    except OSError as failed:
        print(name, errno.errorcode[failed.errno])
def connect(address):
    socket.socket(socket.AF_UNIX).connect(address)
said("outside socket", lambda: connect("\0" + sys.argv[1]))
own = socket.socket(socket.AF_UNIX)
own.bind("\0own-" + sys.argv[1])
own.listen()
said("own socket", lambda: connect("\0own-" + sys.argv[1]))
said("outside signal", lambda: os.kill(int(sys.argv[2]), 0))
child = os.fork()
if not child:
    import time
    time.sleep(20)
said("own signal", lambda: os.kill(child, 9))
"""


@both
@everybody
@pytest.mark.parametrize("scopes", [(), ("abstract",), ("signal",), ("abstract", "signal")])
def test_scopes(which: str, who: str, scopes: tuple[str, ...]) -> None:
    name = f"shim-{os.getpid()}-{which}-{who}-{len(scopes)}"
    with socket.socket(socket.AF_UNIX) as server, subprocess.Popen([*USERS[who], "sleep", "30"]) as sleeper:
        server.bind(f"\0{name}")
        server.listen()
        words = ["--landlock", "require", "--no-files", *(word for scope in scopes for word in ("--scope", scope))]
        done = _run([*USERS[who], *SHIMS[which], *words, "--", PYTHON, "-I", "-S", "-c", REACHING, name, str(sleeper.pid)])
        sleeper.kill()
    expected = {"outside socket": "EPERM" if "abstract" in scopes else "ok", "outside signal": "EPERM" if "signal" in scopes else "ok"}
    assert dict(line.rsplit(" ", 1) for line in done.stdout.splitlines()) == {**expected, "own socket": "ok", "own signal": "ok"}, done.stderr


OTHERS = r"""
import ctypes, errno, os, resource, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
named, pid, shared = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def said(name, done):
    try:
        done()
        print(name, "ok")
    except OSError as failed:
        print(name, errno.errorcode[failed.errno])
def called(result):
    if result in (-1, 2**64 - 1):
        raise OSError(ctypes.get_errno(), "")
libc.shmat.restype = ctypes.c_long
said("named socket", lambda: socket.socket(socket.AF_UNIX).connect(named))
said("environment", lambda: open(f"/proc/{pid}/environ").read())
said("ptrace", lambda: called(libc.ptrace(0x4206, pid, None, None)))
said("descriptor", lambda: called(libc.syscall(438, os.pidfd_open(pid), 0, 0)))
said("mount", lambda: called(libc.mount(b"none", b"/var/empty-" if not os.path.isdir("/mnt") else b"/mnt", b"tmpfs", 0, None)))
said("shared memory", lambda: called(libc.shmat(shared, None, 0)))
said("limit", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (50, 50)))
"""


def _others(*words: str, who: str, base: Path) -> dict[str, str]:
    libc = ctypes.CDLL(None)
    shared = libc.shmget(0, 4096, 0o1666)
    with socket.socket(socket.AF_UNIX) as server, subprocess.Popen([*USERS[who], "sleep", "30"]) as sleeper:
        server.bind(f"{base}/named")
        server.listen()
        (base / "named").chmod(0o777)
        # In a mount namespace of its own: nothing stays mounted.
        around = ["unshare", "-m"] if os.geteuid() == 0 else []
        done = _run([*around, *USERS[who], *words, PYTHON, "-I", "-S", "-c", OTHERS, f"{base}/named", str(sleeper.pid), str(shared)])
        (base / "named").unlink()
        sleeper.kill()
    libc.shmctl(shared, 0, None)
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@both
@everybody
def test_other_processes(which: str, who: str, base: Path) -> None:
    """What comes with Landlock, asked for or not, and what does not."""
    held, open_ = ["environment", "ptrace", "descriptor", *(["mount"] if who == "root" else [])], ["named socket", "shared memory", "limit"]
    plain = _others(who=who, base=base)
    assert {plain[name] for name in held + open_} == {"ok"}
    words = (*SHIMS[which], "--landlock", "require", "--writes-only", "--write", "/dev", "--scope", "abstract", "--scope", "signal")
    found = _others(*words, "--", who=who, base=base)
    if who == "root":
        # CAP_PERFMON goes round it
        assert found["environment"] == "ok"
        found["environment"] = _others(*words, "--drop-capabilities", "--", who=who, base=base)["environment"]
    assert {name: found[name] for name in held if found[name] not in ("EPERM", "EACCES")} == {}
    # A kernel that holds one of these makes this fail: then there is one gap fewer.
    assert {name: found[name] for name in open_ if found[name] != "ok"} == {}


@both
def test_root_loses_its_capabilities_for_good(which: str) -> None:
    if os.geteuid():
        pytest.skip("only root has some")
    watched = ["--", "sh", "-c", "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status"]
    assert set(_run([*SHIMS[which], "--limit", "core=0", *watched]).stdout.split()[1::2]) != {"0" * 16}
    assert _run([*SHIMS[which], "--drop-capabilities", *watched]).stdout.split()[1::2] == ["0" * 16] * 4


TCP = r"""
import ctypes, errno, socket, sys
allowed, denied, mine, free = map(int, sys.argv[1:])
def said(name, done):
    try:
        done()
        print(name, "ok")
    except OSError as failed:
        print(name, errno.errorcode[failed.errno])
def connect(port, protocol=0):
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol).connect(("127.0.0.1", port))
def bind(port):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
def pair():
    global kept
    kept = socket.socketpair()
    return kept
def ring():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(425, 1, ctypes.create_string_buffer(120)) < 0:
        raise OSError(ctypes.get_errno(), "")
said("connect allowed", lambda: connect(allowed))
said("connect denied", lambda: connect(denied))
said("bind allowed", lambda: bind(mine))
said("bind denied", lambda: bind(free))
said("fast open", lambda: socket.socket().sendto(b"x", 0x20000000, ("127.0.0.1", denied)))
said("multipath", lambda: connect(denied, 262))
said("message", lambda: socket.socket().sendmsg([b"x"], [], 0x20000000, ("127.0.0.1", denied)))
said("plain message", lambda: pair()[0].sendmsg([b"x"]))
said("io_uring", lambda: ring())
said("listen unbound", lambda: socket.socket().listen())
said("udp", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", denied)))
"""


def _tcp(*words: str) -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        with socket.socket() as three, socket.socket() as four:
            three.bind(("127.0.0.1", 0))
            four.bind(("127.0.0.1", 0))
            ports = [str(sock.getsockname()[1]) for sock in (one, two, three, four)]
        allowed, _, mine, _ = ports
        words = tuple(word.replace("ALLOWED", allowed).replace("MINE", mine) for word in words)
        done = _run([*words, PYTHON, "-I", "-S", "-c", TCP, *ports])
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.needs("landlock")
def test_tcp_by_port() -> None:
    held = ("connect allowed", "connect denied", "bind allowed", "bind denied")
    assert {_tcp()[name] for name in held} == {"ok"}
    found = _tcp(*SHIMS["python"], "--landlock", "require", "--no-files", "--connect", "ALLOWED", "--bind", "MINE", "--")
    assert [found[name] for name in held] == ["ok", "EACCES", "ok", "EACCES"]
    found = _tcp(*SHIMS["python"], "--landlock", "require", "--no-files", "--tcp", "--")
    assert [found[name] for name in held] == ["EACCES"] * 4


@pytest.mark.needs("landlock")
def test_the_ways_round_tcp_rules_are_closed() -> None:
    """Landlock itself lets them pass: seen on Linux 6.18."""
    plain = _tcp()
    found = _tcp(*SHIMS["python"], "--landlock", "require", "--no-files", "--connect", "ALLOWED", "--close", "--")
    assert (found["fast open"], found["message"], found["multipath"]) == ("ENOTSUP", "ENOTSUP", "EPROTONOSUPPORT")
    assert (found["plain message"], found["connect allowed"]) == ("ok", "ok")
    assert found["io_uring"] == "ENOSYS"
    assert (plain["fast open"], plain["message"]) == ("ok", "ok")


@pytest.mark.needs("landlock")
def test_what_tcp_rules_cannot_hold() -> None:
    found = _tcp(*SHIMS["python"], "--landlock", "require", "--no-files", "--tcp", "--")
    assert (found["listen unbound"], found["udp"]) == ("ok", "ok")


# --- what is missing


def _refusing(number: int, error: int) -> bytes:
    return struct.pack("=HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, number, 0x06, 0, 0, 0x00050000 | error, 0x06, 0, 0, 0x7FFF0000)


REFUSING = _refusing(444, 38)
"""A kernel without Landlock, as a filter: landlock_create_ruleset is ENOSYS."""


@both
def test_without_landlock(which: str, base: Path) -> None:
    (base / "filter").write_bytes(REFUSING)
    around = [*SHIMS["python"], "--seccomp", str(base / "filter"), "--"]
    words = ["--writes-only", "--scope", "signal", "--report", str(base / "report")]
    done = _run([*around, *SHIMS[which], "--landlock", "require", *words, "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("wavegen: error: this kernel has no Landlock")
    done = _run([*around, *SHIMS[which], "--landlock", "best-effort", *words, "--", "echo", "ran"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    lines = (base / "report").read_text().splitlines()
    assert [line.split(": ")[1] for line in lines] == [*shim.WRITES, "signal"]
    assert lines[0] == "not held: write_file: Landlock has it since ABI 1, this kernel has no Landlock"


@both
@pytest.mark.parametrize(("number", "said"), [(446, "Landlock refuses"), (445, "Landlock does not take"), (437, "--write /dev: Operation not permitted")])
@pytest.mark.parametrize("mode", ["require", "best-effort"])
def test_what_fails_half_way_runs_nothing(which: str, number: int, said: str, mode: str, base: Path) -> None:
    (base / "filter").write_bytes(_refusing(number, 1))
    around = [*SHIMS["python"], "--seccomp", str(base / "filter"), "--"]
    done = _run([*around, *SHIMS[which], "--landlock", mode, "--writes-only", "--write", "/dev", "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr


@both
def test_the_report_may_be_a_descriptor(which: str, base: Path) -> None:
    (base / "filter").write_bytes(REFUSING)
    around = [*SHIMS["python"], "--seccomp", str(base / "filter"), "--"]
    done = _run([*around, *SHIMS[which], "--landlock", "best-effort", "--no-files", "--scope", "signal", "--report", "2", "--", "sh", "-c", "echo said >&2"])
    assert done.stderr == "not held: signal: Landlock has it since ABI 6, this kernel has no Landlock\nsaid\n"


@both
def test_a_seventeenth_layer(which: str) -> None:
    layer = [*SHIMS[which], "--landlock", "require", "--writes-only", "--write", "/", "--"]
    assert _run([*layer * 16, "echo", "ran"]).stdout == "ran\n"
    done = _run([*layer * 17, "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "wavegen: error: 16 fences of Landlock are around this one already, and the kernel takes no more (leave one of the shells)\n"
    last = [*SHIMS[which], "--landlock", "best-effort", "--no-files", "--scope", "signal", "--report", "2", "--"]
    done = _run([*layer * 16, *last, "echo", "ran"])
    assert (done.returncode, done.stdout) == (0, "ran\n")
    assert done.stderr == "not held: signal: 16 fences of Landlock are around this one already, and the kernel takes no more\n"


@both
def test_layers_of_both_kinds_add_up_and_leave_renames(which: str, base: Path) -> None:
    words = ["--landlock", "require", "--writes-only", "--write", str(base / "inside"), "--"]
    script = f"mv {base}/inside/one/moving {base}/inside/two/ && echo 1 >{base}/outside/file"
    done = _run([*SHIMS["python"], *words, *SHIMS[which], *words, "sh", "-c", script])
    assert (base / "inside" / "two" / "moving").exists()
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("abi", range(12))
def test_what_each_abi_holds(abi: int) -> None:
    since = {
        1: [*shim.READS, *(name for name in shim.WRITES if name not in ("refer", "truncate"))],
        2: ["refer"],
        3: ["truncate"],
        4: ["bind_tcp", "connect_tcp"],
    }
    since |= {5: ["ioctl_dev"], 6: ["abstract", "signal"], 9: ["resolve_unix"], 10: ["bind_udp", "connect_send_udp"]}
    held, missing = shim.plan(abi, shim.RIGHTS)
    assert set(held) == {name for number, names in since.items() if number <= abi for name in names}
    assert set(held) | set(missing) == set(shim.RIGHTS)
    assert not set(held) & set(missing)
    files = {0: 0, 1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}.get(abi, (1 << 16) - 1 if abi < 9 else (1 << 17) - 1)
    assert shim.mask(shim.FILES, held) == files
    assert shim.mask(shim.NET, held) == (0 if abi < 4 else 3 if abi < 10 else 15)
    assert shim.mask(shim.SCOPE, held) == (0 if abi < 6 else 3)
    assert len(shim.attributes(abi, held)) == (8 if abi < 4 else 16 if abi < 6 else 24)


@pytest.mark.needs("landlock")
def test_this_kernel_takes_what_is_made_for_older_ones() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for abi in range(1, libc.syscall(444, None, 0, 1) + 1):
        attribute = shim.attributes(abi, shim.plan(abi, shim.RIGHTS)[0])
        handle = libc.syscall(444, attribute, len(attribute), 0)
        assert handle >= 0, abi
        os.close(handle)


@pytest.mark.needs("landlock")
def test_show_says_what_is_asked_and_what_is_held() -> None:
    words = ["--landlock", "require", "--writes-only", "--tcp", "--udp", "--scope", "signal", "--show"]
    abi = ctypes.CDLL(None).syscall(444, None, 0, 1)
    shown = json.loads(_run([*SHIMS["python"], *words]).stdout)
    assert shown["abi"] == abi
    assert shown["requested"] == [*shim.WRITES, "bind_tcp", "connect_tcp", "bind_udp", "connect_send_udp", "signal"]
    assert (shown["enforced"], shown["missing"]) == shim.plan(abi, shown["requested"])
    if abi < 10:
        done = _run([*SHIMS["python"], *words[:-1], "--", "echo", "ran"])
        assert (done.returncode, done.stdout) == (125, "")
        assert "does not hold bind_udp, connect_send_udp" in done.stderr


# --- the other bounds


@both
@everybody
def test_limits_are_lowered_and_never_raised(which: str, who: str) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > 100
    words = ["--limit", "nofile=100:101", "--limit", "core=0", "--limit", "data=4000000000:unlimited"]
    script = "ulimit -Sn; ulimit -Hn; ulimit -Hc; ulimit -Sd; ulimit -Hd"
    done = _run([*USERS[who], *SHIMS[which], *words, "--", "bash", "-c", script])
    assert done.stdout.split()[:4] == ["100", "101", "0", str(4000000000 // 1024)]
    raised = ["--limit", "nofile=unlimited", "--limit", "core=5000:unlimited"]
    done = _run([*USERS[who], *SHIMS[which], *words, "--", *SHIMS[which], *raised, "--", "bash", "-c", script])
    assert done.stdout.split()[:3] == ["100", "101", "0"]


@both
@pytest.mark.needs("user")
def test_the_limit_of_processes_holds_an_unprivileged_user(which: str) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait"
    done = _run([*USERS["user"], *SHIMS[which], "--limit", "nproc=5", "--", "sh", "-c", script])
    assert "Cannot fork" in done.stderr
    assert "Cannot fork" not in _run([*USERS["user"], *SHIMS[which], "--limit", "nproc=500", "--", "sh", "-c", script]).stderr


@both
def test_landlock_comes_with_no_new_privileges(which: str) -> None:
    plain = [*SHIMS[which], "--limit", "core=0", "--", "grep", "NoNewPrivs", "/proc/self/status"]
    assert _run(plain).stdout.split() == ["NoNewPrivs:", "0"]
    for words in (["--no-new-privs"], ["--landlock", "require", "--no-files", "--scope", "signal"]):
        done = _run([*SHIMS[which], *words, "--", "grep", "NoNewPrivs", "/proc/self/status"])
        assert done.stdout.split() == ["NoNewPrivs:", "1"]


@both
@pytest.mark.needs("user")
def test_a_setuid_program_stays_what_it_is(which: str, base: Path) -> None:
    if os.geteuid():
        pytest.skip("only root makes a setuid program of root's")
    shutil.copy("/usr/bin/id", base / "id")
    os.chown(base / "id", 0, 0)
    (base / "id").chmod(0o4755)
    assert _run([*USER, str(base / "id"), "-u"]).stdout == "0\n"
    assert _run([*USER, *SHIMS[which], "--no-new-privs", "--", str(base / "id"), "-u"]).stdout == "23456\n"


@everybody
@pytest.mark.parametrize("by_number", [False, True])
def test_a_seccomp_filter_is_loaded(who: str, by_number: bool, base: Path) -> None:
    (base / "filter").write_bytes(REFUSING)
    (base / "filter").chmod(0o644)
    with open(base / "filter", "rb") as stream:
        name = str(stream.fileno()) if by_number else str(base / "filter")
        script = "grep -E '^(Seccomp|NoNewPrivs):' /proc/self/status"
        argv = [*USERS[who], *SHIMS["python"], "--seccomp", name, "--close", "--", "sh", "-c", script]
        assert _run(argv, pass_fds=[stream.fileno()]).stdout.split() == ["NoNewPrivs:", "1", "Seccomp:", "2"]


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8])
def test_a_broken_filter_runs_nothing(content: bytes, base: Path) -> None:
    (base / "filter").write_bytes(content)
    done = _run([*SHIMS["python"], "--seccomp", str(base / "filter"), "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("wavegen: error: ")


# --- what is left alone

ENVIRONMENTS: dict[str, dict[bytes, bytes]] = {
    "empty": {},
    "C": {b"LC_ALL": b"C"},
    "lang C": {b"LANG": b"C"},
    "ctype C": {b"LC_CTYPE": b"C"},
    "ctype POSIX": {b"LC_CTYPE": b"POSIX", b"LANG": b"C.UTF-8"},
    "ctype empty": {b"LC_CTYPE": b""},
    "ctype UTF-8": {b"LC_CTYPE": b"C.UTF-8"},
    "ctype and lang": {b"LC_CTYPE": b"C.UTF-8", b"LANG": b"C"},
    "ctype and lang UTF-8": {b"LC_CTYPE": b"C.UTF-8", b"LANG": b"C.UTF-8"},
    "lang UTF-8": {b"LANG": b"C.UTF-8"},
    "unknown": {b"LANG": b"xx_XX.ISO-8859-1"},
    "no coercion": {b"PYTHONCOERCECLOCALE": b"0"},
    "coercion": {b"PYTHONCOERCECLOCALE": b"warn", b"PYTHONUTF8": b"0"},
    "bytes": {b"A\xff": b"\xfe\xc3\n =", b"LC_ALL": b"C", b"EMPTY": b"", b"BASH_FUNC_x%%": b"() { :; }"},
    "python": {b"PYTHONPATH": b"/nowhere", b"PYTHONSTARTUP": b"/x", b"PYTHONHOME": b"/nowhere"},
    "perl": {b"PERL5OPT": b"-MNoSuchModule", b"PERL5LIB": b"/x", b"PERL_UNICODE": b"SAD"},
}
NOTHING = ["--limit", "core=0", "--"]


@both
@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("how", ["file", "text"])
def test_the_environment_is_left_alone(which: str, name: str, how: str) -> None:
    shims = {"file": SHIMS, "text": AS_TEXT}[how]
    environment = {**ENVIRONMENTS[name], b"PATH": b"/usr/bin:/bin"}
    quiet = {b"PERL_BADLANG": b"0"}  # Perl complains of a locale that is not there
    done = subprocess.run(
        [*shims[which], "--unset", "PERL_BADLANG", *NOTHING, "cat", "/proc/self/environ"], env=environment | quiet, capture_output=True, timeout=60
    )
    assert done.stderr == b""
    assert done.stdout == b"".join(key + b"=" + value + b"\0" for key, value in environment.items())


STRANGE = "import ctypes,sys; a=lambda w:(ctypes.c_char_p*(len(w)+1))(*w); ctypes.CDLL(None).execve(sys.argv[1].encode(),a([w.encode() for w in sys.argv[1:]]),a([{}]))"


@both
def test_a_strange_environment_is_left_alone(which: str) -> None:
    entries = [b"A=1", b"nothing", b"A=2", b"=x", b"PATH=/usr/bin:/bin"]
    script = STRANGE.replace("{}", ",".join(map(repr, entries)))
    shell = [shutil.which(SHIMS[which][0]), *SHIMS[which][1:]]
    done = subprocess.run([PYTHON, "-c", script, *shell, *NOTHING, "/bin/cat", "/proc/self/environ"], capture_output=True, timeout=60)
    assert done.stdout == b"".join(entry + b"\0" for entry in entries), done.stderr


@both
@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("name", ["empty", "lang UTF-8", "ctype and lang UTF-8", "bytes"])
def test_the_environment_is_left_alone_without_proc(which: str, name: str) -> None:
    environment = {**ENVIRONMENTS[name], b"PATH": b"/usr/bin:/bin"}
    bwrap = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/proc", "--"]
    plain = subprocess.run([*bwrap, "env", "-0"], env=environment, capture_output=True, timeout=60)
    done = subprocess.run([*bwrap, *SHIMS[which], *NOTHING, "env", "-0"], env=environment, capture_output=True, timeout=60)
    assert sorted(done.stdout.split(b"\0")) == sorted(plain.stdout.split(b"\0"))
    assert b"PATH=/usr/bin:/bin" in done.stdout


@both
@pytest.mark.parametrize("locale", [b"C", b"C.UTF-8", b"POSIX", b"xx_XX"])
@pytest.mark.parametrize("how", ["file", "text"])
def test_arguments_are_left_alone(which: str, locale: bytes, how: str) -> None:
    shims = {"file": SHIMS, "text": AS_TEXT}[how]
    words = [b"", b"\xff\xfe", "ä€😀".encode(), b"\xed\xa0\x80", b"--", b"--landlock", b"a b\n'\"$(x)", bytes(range(1, 256))]
    environment = {b"LC_ALL": locale, b"PATH": b"/usr/bin:/bin", b"PERL_UNICODE": b"SAD", b"PERL_BADLANG": b"0"}
    command = [*shims[which], *NOTHING, "sh", "-c", "cat /proc/$$/cmdline; :", *words]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.stdout.split(b"\0")[3:-1] == words, done.stderr


@both
def test_the_command_may_be_called_otherwise(which: str) -> None:
    assert _run([*SHIMS[which], "--arg0", "-other", *NOTHING, "sh", "-c", "tr '\\0' ' ' </proc/$$/cmdline"]).stdout.startswith("-other -c ")


@both
def test_signals_and_the_mask_of_modes_are_left_alone(which: str) -> None:
    script = "import os,signal,sys; os.umask(0o027); signal.pthread_sigmask(0, {signal.SIGUSR1}); {}; os.execvp(sys.argv[1], sys.argv[1:])"
    default, ignored = (f"[signal.signal(n, {how}) for n in (signal.SIGPIPE, signal.SIGXFSZ)]; signal.signal(signal.SIGHUP, 1)" for how in (0, 1))
    watched = ["grep", "-E", "^(SigBlk|SigIgn|Umask)", "/proc/self/status"]
    plain = _run([PYTHON, "-c", script.replace("{}", default), *watched]).stdout
    shown = dict(line.split(":\t") for line in plain.splitlines())
    assert (shown["SigBlk"], shown["Umask"]) == ("0000000000000200", "0027")
    assert int(shown["SigIgn"], 16) & 1 << signal.SIGHUP - 1
    assert not int(shown["SigIgn"], 16) & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)
    # Whoever was Python on the way ignores these two, and the command does not.
    for before in (default, ignored):
        assert _run([PYTHON, "-c", script.replace("{}", before), *SHIMS[which], *NOTHING, *watched]).stdout == plain


@both
def test_a_broken_pipe_ends_the_command(which: str) -> None:
    script = f"{' '.join(SHIMS[which])} --limit core=0 -- yes | head -n 1; echo ${{PIPESTATUS[0]}}"
    assert _run(["bash", "-c", script]).stdout == "y\n141\n"


@both
@pytest.mark.parametrize("close", [False, True])
def test_descriptors(which: str, close: bool) -> None:
    first, second = os.pipe()
    words = [*(["--close"] if close else []), "--landlock", "require", "--writes-only", "--write", "/", "--write", "/dev/null"]
    done = _run([*SHIMS[which], *words, "--", "sh", "-c", "echo /proc/$$/fd/*"], pass_fds=[first])
    handles = {word.rsplit("/", 1)[1] for word in done.stdout.split()}
    # The shell opens one of its own, for the directory.
    assert {"0", "1", "2"} <= handles
    assert (str(first) in handles) is not close
    assert len(handles) <= 4 + (not close)
    os.close(first)
    os.close(second)


# --- how it ends


@both
def test_the_statuses(which: str, base: Path) -> None:
    plain = [*SHIMS[which], *NOTHING]
    assert _run([*plain, "sh", "-c", "exit 7"]).returncode == 7
    assert _run([*plain, "sh", "-c", "kill -9 $$"]).returncode == -9
    done = _run([*plain, "no-such-command"])
    remedy = "(add its package to the manifest, or grant its path)"
    assert (done.returncode, done.stderr) == (127, f"wavegen: no-such-command: command not found inside {remedy}\n")
    assert _run([*plain, "/no/such"]).returncode == 127
    assert _run([*plain, ""]).returncode == 127
    done = _run([*plain, str(base)])
    assert done.returncode == 126
    assert done.stderr.startswith(f"wavegen: {base} cannot be executed inside: ")
    (base / "text").write_text('echo "$0 $1"', encoding="ascii")
    assert _run([*plain, str(base / "text")]).returncode == 126
    (base / "text").chmod(0o755)
    assert _run([*plain, str(base / "text"), "x"]).stdout == f"{base}/text x\n"
    assert _run([*plain, "text", "y"], env={"PATH": f"/usr:/usr/bin/env:{base}"}, executable=shutil.which(plain[0])).stdout == f"{base}/text y\n"


@pytest.mark.needs("landlock")
def test_what_is_not_granted_cannot_be_executed(base: Path) -> None:
    done = _run([*SHIMS["python"], "--landlock", "require", "--read", "/usr", "--", str(base / "outside" / "program")])
    assert (done.returncode, done.stderr.split(" (")[0]) == (126, f"wavegen: {base}/outside/program cannot be executed inside: Permission denied")


@pytest.mark.parametrize(("words", "expected"), [(["true"], ""), (["false"], ""), (["/no/such"], "127\n"), (["/etc"], "126\n")])
def test_the_status_descriptor(words: list[str], expected: str) -> None:
    first, second = os.pipe()
    _run([*SHIMS["python"], "--status-fd", str(second), "--close", "--", *words], pass_fds=[second])
    os.close(second)
    with open(first, encoding="ascii") as stream:
        assert stream.read() == expected


@pytest.mark.parametrize(("machine", "arch", "calls"), [("x86_64", 0xC000003E, (41, 44, 46, 307)), ("aarch64", 0xC00000B7, (198, 206, 211, 269))])
def test_the_filter_that_closes_ways_round_tcp_rules(machine: str, arch: int, calls: tuple[int, ...]) -> None:
    program = list(struct.iter_unpack("=HBBI", shim.only_tcp(machine)))

    def result(number: int, *arguments: int, on: int = arch) -> int:
        data = struct.pack("=IIQ6Q", number, on, 0, *arguments, *[0] * (6 - len(arguments)))
        at = value = 0
        while True:
            code, yes, no, operand = program[at]
            at += 1
            if code == 0x06:
                return 0 if operand == 0x7FFF0000 else operand & 0xFFFF
            if code == 0x20:
                (value,) = struct.unpack_from("=I", data, operand)
            else:
                at += yes if {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[code] else no

    makes, sendto, sendmsg, sendmmsg = calls
    fast = 0x20000000
    assert [result(makes, *call) for call in ((2, 1, 0), (10, 1, 6), (2, 2, 17), (1, 1, 0), (16, 3, 0))] == [0] * 5
    assert [result(makes, *call) for call in ((2, 1, 262), (2, 1 | 0o2000000, 262), (2, 1, 132), (43, 1, 0), (10, 1, 262))] == [93] * 5
    for number, place in ((sendto, 3), (sendmsg, 2), (sendmmsg, 3)):
        before = [fast] * place
        assert result(number, *before, 0x4000) == 0
        assert result(number, *before, fast) == result(number, *before, fast | 0x4000) == 95
        assert result(number, *before, fast | 1 << 40) == 95
    assert result(425) == 38
    assert result(makes, 2, 1, 0, on=0x40000003) == 38
    assert result(0x40000000 | sendto, 0, 0, 0, 0) == 38
    others = set(range(500)) - {*calls, 425}
    assert {result(number, fast, fast, fast, fast) for number in others} == {0}


def test_the_command_does_not_get_the_status_descriptor() -> None:
    first, second = os.pipe()
    done = _run([*SHIMS["python"], "--status-fd", str(second), "--", "sh", "-c", f"test -e /proc/$$/fd/{second} || echo gone"], pass_fds=[second])
    assert done.stdout == "gone\n"
    os.close(first)
    os.close(second)


BAD = [
    ["--nonsense", "x", "--", "echo", "ran"],
    ["--landlock", "maybe", "--", "echo", "ran"],
    ["--landlock", "require", "--writes-only"],
    ["--landlock"],
    ["--writes-only", "--write", "/", "--", "echo", "ran"],
    ["--scope", "signal", "--", "echo", "ran"],
    ["--landlock", "require", "--writes-only", "--scope", "everything", "--", "echo", "ran"],
    *([["--limit", limit, "--", "echo", "ran"] for limit in ("nofile", "nofile=", "nofile=-1", "none=1", "nofile=1:x", "nofile=1e3", "nofile=1:", "nofile=1:2:3", "core=18446744073709551616")]),
    ["--"],
]  # fmt: skip


@both
@pytest.mark.parametrize("words", BAD)
def test_what_is_not_understood_runs_nothing(which: str, words: list[str]) -> None:
    done = _run([*SHIMS[which], *words])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("wavegen: error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.needs("perl", "landlock")
def test_perl_says_that_it_holds_writes_only() -> None:
    done = _run([*SHIMS["perl"], "--landlock", "require", "--write", "/", "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert "--writes-only" in done.stderr


@pytest.mark.needs("landlock")
@pytest.mark.parametrize(
    "python", [pytest.param(path, id=path.split("/")[-3]) for path in sorted(glob.glob(f"{os.path.expanduser('~')}/.pyenv/versions/3.1[0-9]*/bin/python3"))]
)
def test_other_pythons(python: str, base: Path) -> None:
    words = ["--landlock", "require", "--writes-only", "--write", str(base / "inside"), "--scope", "signal", "--limit", "core=0", "--close", "--"]
    done = _run([python, "-I", "-S", str(RUNTIME / "shim.py"), *words, "sh", "-c", f"echo 1 >{base}/inside/file; env; echo 1 >{base}/outside/file"], env={})
    assert "Permission denied" in done.stderr
    assert "LC_CTYPE" not in done.stdout
    assert (base / "inside" / "file").read_text() == "1\n"
    # What the shim itself needs is loaded before reading is taken from it.
    whole = ["--landlock", "require", "--read", "/usr/bin", "--read", "/usr/lib", "--read-try", "/lib64", "--read-try", "/lib", "--limit", "core=0", "--"]
    done = _run([python, "-I", "-S", str(RUNTIME / "shim.py"), *whole, "sh", "-c", "ulimit -c; cat /etc/hostname"], env={"PATH": "/usr/bin"})
    assert (done.stdout, "Permission denied" in done.stderr) == ("0\n", True), done.stderr
    (base / "filter").write_bytes(REFUSING)
    assert "Seccomp:\t2" in _run([python, "-I", "-S", str(RUNTIME / "shim.py"), "--seccomp", str(base / "filter"), "--", "cat", "/proc/self/status"]).stdout


def test_the_little_brother_is_strict_perl_without_loading_that() -> None:
    """It would be loaded at each start."""
    done = subprocess.run(("perl", "-Mstrict", "-Mwarnings", "-T", "-c", str(RUNTIME / "landlock.pl")), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"{RUNTIME / 'landlock.pl'} syntax OK\n")
    assert not [line for line in (RUNTIME / "landlock.pl").read_text("utf-8").splitlines() if line.startswith(("use ", "require "))]
