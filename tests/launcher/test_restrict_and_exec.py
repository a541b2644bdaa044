"""The last step before the command, in Perl and in Python, on this machine's kernel: what it restricts, what it cannot, and what it leaves alone.

Each attempt is made without it first, where it must succeed: a bound that restricts nothing cannot pass.
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
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from wavegen.launcher.inside import restrict_and_exec
from wavegen.launcher.landlock_masks import (
    BESIDE_MOUNTS,
    FILES,
    INSTEAD_OF_MOUNTS,
    NET,
    READS,
    RIGHTS,
    SCOPE,
    TCP,
    UDP,
    WRITES,
    landlock_mask,
    landlock_masks,
    least_abi,
    missing_rights,
)
from wavegen.launcher.tcp_filter import MACHINES, compile_tcp_filter

INSIDE = Path(restrict_and_exec.__file__).parent
PYTHON = "/usr/bin/python3"
PROGRAMS = {
    "python": (PYTHON, "-I", "-S", "-c", (INSIDE / "restrict_and_exec.py").read_text(encoding="utf-8")),
    "perl": ("/usr/bin/perl", "-T", "-e", (INSIDE / "restrict_and_exec.pl").read_text(encoding="utf-8"), "--"),
}
"""As the launcher starts them: the text is an argument."""
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
    with tempfile.TemporaryDirectory(prefix="inside-", dir="/var/tmp") as name:
        _world(Path(name), "root")
        yield Path(name)


def _run(argv: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, **more)  # type: ignore[call-overload,no-any-return]


@cache
def _attempted(prefix: tuple[str, ...], who: str, command: tuple[str, ...] = ()) -> dict[str, str]:
    """What the attempts came to behind these words, in which BASE is the world's place; `command` stands around all of it."""
    with tempfile.TemporaryDirectory(prefix="inside-", dir="/var/tmp") as name:
        _world(Path(name), who)
        with open(f"{name}/outside/file", "ab") as held:
            argv = [*USERS[who], *command, *prefix, PYTHON, "-I", "-S", "-c", ATTEMPTS, name, str(held.fileno())]
            done = _run([word.replace("BASE", name) for word in argv], pass_fds=[held.fileno()])
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))


def _landlock(*names: str, least: bool = True) -> tuple[str, ...]:
    """The options that take these rights, all of which must be known to the kernel unless `least` is false."""
    return ("--landlock-masks", landlock_masks(names), *(("--least-abi", str(least_abi(names))) if least else ()))


CLOSED = ("--close-from", "3")
WRITES_ONLY = (*_landlock(*WRITES), "--write", "BASE/inside", "--write", "/dev", *CLOSED)
FULL = (
    *_landlock(*READS, *WRITES, "ioctl_dev"),
    *("--write", "BASE/inside", "--write", "/dev", "--read", "/usr", "--read", "/proc"),
    *(word for place in ("/lib", "/lib64", "/bin", "/etc", "/root/.pyenv") for word in ("--read-try", place)),
    *CLOSED,
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
def test_unrestricted_every_attempt_succeeds(who: str) -> None:
    assert {name: how for name, how in _attempted((), who).items() if how != "ok"} == {}


@both
@everybody
@pytest.mark.parametrize("name", [*(f"{name}_outside" for name in WRITING), *ROUND_ABOUT])
def test_no_write_outside(which: str, who: str, name: str) -> None:
    assert _attempted((*PROGRAMS[which], *WRITES_ONLY, "--"), who)[name] in DENIED


@both
@everybody
def test_everything_inside_works(which: str, who: str) -> None:
    found = _attempted((*PROGRAMS[which], *WRITES_ONLY, "--"), who)
    assert {name: how for name, how in found.items() if name.endswith("_inside") and how != "ok"} == {}
    assert (found["null"], found["terminal"], found["memory"]) == ("ok", "ok", "ok")


@both
@everybody
def test_reading_is_free_where_only_writes_are_held(which: str, who: str) -> None:
    found = _attempted((*PROGRAMS[which], *WRITES_ONLY, "--"), who)
    assert [found[name] for name in ("read_outside", "list_outside", "execute_outside")] == ["ok", "ok", "ok"]


@both
@everybody
@pytest.mark.parametrize("name", NOT_HELD)
def test_what_landlock_cannot_hold(which: str, who: str, name: str) -> None:
    """A kernel that holds it makes this fail: then the gaps that wavegen names are one fewer."""
    assert _attempted((*PROGRAMS[which], *WRITES_ONLY, "--"), who)[name] == "ok"


@both
@everybody
def test_an_open_descriptor_is_a_way_round_unless_closed(which: str, who: str) -> None:
    closed, left = WRITES_ONLY, WRITES_ONLY[: -len(CLOSED)]
    assert _attempted((*PROGRAMS[which], *closed, "--"), who)["through_inherited_fd"] == "EBADF"
    assert _attempted((*PROGRAMS[which], *left, "--"), who)["through_inherited_fd"] == "ok"


@everybody
@pytest.mark.needs("landlock")
def test_the_whole_fence_holds_reading_too(who: str) -> None:
    found = _attempted((*PROGRAMS["python"], *FULL, "--"), who)
    outside = {name for name in found if name.endswith("_outside")} | set(ROUND_ABOUT)
    assert {name: found[name] for name in outside - set(NOT_HELD) if found[name] not in DENIED} == {}
    assert {name: how for name, how in found.items() if name.endswith("_inside") and how != "ok"} == {}
    assert (found["null"], found["terminal"], found["memory"]) == ("ok", "ok", "ok")


@everybody
@pytest.mark.needs("landlock")
def test_what_may_be_read_may_not_be_written(who: str) -> None:
    found = _attempted((*PROGRAMS["python"], *FULL, "--read", "BASE/outside", "--"), who)
    assert [found[name] for name in ("read_outside", "list_outside", "execute_outside")] == ["ok", "ok", "ok"]
    assert {name: found[name] for name in (*(f"{name}_outside" for name in WRITING), *ROUND_ABOUT) if found[name] not in DENIED} == {}


@pytest.mark.needs("landlock")
def test_reading_where_it_is_there(base: Path) -> None:
    words = [*PROGRAMS["python"], *_landlock(*READS, *WRITES), "--read", "/usr", "--read", "/lib", "--read-try", "/lib64", "--read-try", f"{base}/none"]
    script = f"cat {base}/outside/file; echo 1 >{base}/outside/file"
    assert _run([*words, "--", "sh", "-c", script]).stdout == ""
    for place in (base, base / "outside" / "file"):
        assert _run([*words, "--read-try", str(place), "--", "sh", "-c", script]).stdout == "old"
    assert _run([*words, "--read", f"{base}/none", "--", "sh", "-c", script]).returncode == 125


@both
@everybody
@pytest.mark.needs("bwrap")
def test_a_place_that_is_mounted_writable_by_mistake_is_still_held(which: str, who: str) -> None:
    bwrap = ("bwrap", "--unshare-user", "--disable-userns", "--cap-drop", "ALL", "--dev-bind", "/", "/", "--")
    assert _attempted((), who, bwrap)["write_outside"] == "ok"
    found = _attempted((*PROGRAMS[which], *WRITES_ONLY, "--"), who, bwrap)
    assert {name: found[name] for name in (*(f"{name}_outside" for name in WRITING), *ROUND_ABOUT) if found[name] not in DENIED} == {}
    assert {name: how for name, how in found.items() if name.endswith("_inside") and how != "ok"} == {}
    assert (found["null"], found["terminal"]) == ("ok", "ok")


@both
def test_a_single_file_may_be_written(which: str, base: Path) -> None:
    words = [*PROGRAMS[which], *_landlock(*WRITES), "--write", str(base / "outside" / "file"), "--"]
    done = _run([*words, "sh", "-c", f"echo 1 >{base}/outside/file && echo 2 >{base}/outside/victim"])
    assert "Permission denied" in done.stderr
    assert (base / "outside" / "file").read_text() == "1\n"
    assert (base / "outside" / "victim").read_text() == "old"


@both
def test_a_writable_place_must_not_lie_behind_a_link(which: str, base: Path) -> None:
    (base / "inside" / "link").symlink_to(base / "outside")
    for place in ("link", "link/one"):
        for option in ("--write", "--write-try"):
            done = _run([*PROGRAMS[which], *_landlock(*WRITES), option, str(base / "inside" / place), "--", "echo", "ran"])
            assert (done.returncode, done.stdout) == (125, "")
            assert "leads through a link" in done.stderr


@both
def test_a_place_that_is_missing(which: str, base: Path) -> None:
    words = [*PROGRAMS[which], *_landlock(*WRITES, least=False)]
    done = _run([*words, "--write", str(base / "none"), "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == f"wavegen: error: --write {base}/none: No such file or directory (make it, or remove it from the manifest)\n"
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
    name = f"inside-{os.getpid()}-{which}-{who}-{len(scopes)}"
    with socket.socket(socket.AF_UNIX) as server, subprocess.Popen([*USERS[who], "sleep", "30"]) as sleeper:
        server.bind(f"\0{name}")
        server.listen()
        words = _landlock(*scopes) if scopes else ()
        done = _run([*USERS[who], *PROGRAMS[which], *words, "--", PYTHON, "-I", "-S", "-c", REACHING, name, str(sleeper.pid)])
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
    words = (*PROGRAMS[which], *_landlock(*BESIDE_MOUNTS), "--write", "/dev")
    found = _others(*words, "--", who=who, base=base)
    if who == "root":
        # CAP_PERFMON goes round it. In Perl's place bwrap has dropped it before.
        assert found["environment"] == "ok"
        dropped = (*PROGRAMS["python"], "--drop-capabilities", "all", "--")
        found["environment"] = _others(*dropped, *words, "--", who=who, base=base)["environment"]
    assert {name: found[name] for name in held if found[name] not in ("EPERM", "EACCES")} == {}
    # A kernel that holds one of these makes this fail: then there is one gap fewer.
    assert {name: found[name] for name in open_ if found[name] != "ok"} == {}


def test_root_loses_its_capabilities_for_good() -> None:
    if os.geteuid():
        pytest.skip("only root has some")
    watched = ["--", "sh", "-c", "grep -E 'Cap(Inh|Prm|Eff|Amb)' /proc/self/status"]
    assert set(_run([*PROGRAMS["python"], "--limit", "core=1", *watched]).stdout.split()[1::2]) != {"0" * 16}
    assert _run([*PROGRAMS["python"], "--drop-capabilities", "all", *watched]).stdout.split()[1::2] == ["0" * 16] * 4


CONNECTING = r"""
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
        done = _run([*words, PYTHON, "-I", "-S", "-c", CONNECTING, *ports])
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.needs("landlock")
def test_tcp_by_port() -> None:
    watched = ("connect allowed", "connect denied", "bind allowed", "bind denied")
    assert {_tcp()[name] for name in watched} == {"ok"}
    found = _tcp(*PROGRAMS["python"], *_landlock(*TCP), "--connect", "ALLOWED", "--bind", "MINE", "--")
    assert [found[name] for name in watched] == ["ok", "EACCES", "ok", "EACCES"]
    found = _tcp(*PROGRAMS["python"], *_landlock(*TCP), "--")
    assert [found[name] for name in watched] == ["EACCES"] * 4


@pytest.mark.parametrize("may_listen", [True, False])
@pytest.mark.needs("landlock")
def test_the_ways_round_tcp_rules_are_closed(may_listen: bool, base: Path) -> None:
    """Landlock itself lets them pass: seen on Linux 6.18."""
    plain = _tcp(*PROGRAMS["python"], *_landlock(*TCP), "--connect", "ALLOWED", "--")
    assert (plain["fast open"], plain["message"], plain["listen unbound"], plain["udp"]) == ("ok", "ok", "ok", "ok")
    (base / "filter").write_bytes(compile_tcp_filter(os.uname().machine, may_listen=may_listen))
    found = _tcp(*_filtered(base / "filter", *PROGRAMS["python"], *_landlock(*TCP), "--connect", "ALLOWED", *CLOSED, "--seccomp", "9", "--"))
    assert (found["fast open"], found["message"], found["multipath"]) == ("ENOTSUP", "ENOTSUP", "EPROTONOSUPPORT")
    assert (found["plain message"], found["connect allowed"], found["udp"]) == ("ok", "ok", "ok")
    assert found["io_uring"] == "ENOSYS"
    assert found["listen unbound"] == ("ok" if may_listen else "EACCES")


def _filtered(path: Path, *words: str) -> tuple[str, ...]:
    """These words with the file at descriptor 9."""
    return ("bash", "-c", 'exec 9<"$0" "$@"', str(path), *words)


# --- what is missing


def _refusing(number: int, error: int) -> bytes:
    return struct.pack("=HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, number, 0x06, 0, 0, 0x00050000 | error, 0x06, 0, 0, 0x7FFF0000)


REFUSING = _refusing(444, 38)
"""A kernel without Landlock, as a filter: landlock_create_ruleset is ENOSYS."""


def _reported(argv: list[str]) -> tuple[subprocess.CompletedProcess[str], str]:
    """The outcome, and what came through the descriptor that the words call REPORT."""
    first, second = os.pipe()
    done = _run([word.replace("REPORT", str(second)) for word in argv], pass_fds=[second])
    os.close(second)
    with open(first, encoding="ascii") as stream:
        return done, stream.read()


@both
def test_the_kernel_s_abi_is_reported(which: str) -> None:
    abi = ctypes.CDLL(None).syscall(444, None, 0, 1)
    done, report = _reported([*PROGRAMS[which], *_landlock(*BESIDE_MOUNTS), "--write", "/", "--report", "REPORT", "--", "sh", "-c", "ls /proc/$$/fd"])
    assert report == f"abi {abi}\n"
    assert set(done.stdout.split()) <= {"0", "1", "2", "255"}, "the command got the descriptor"


@both
def test_without_landlock(which: str, base: Path) -> None:
    (base / "filter").write_bytes(REFUSING)
    around = [*PROGRAMS["python"], "--seccomp", "9", "--"]
    done = _run([*_filtered(base / "filter", *around, *PROGRAMS[which], *_landlock(*BESIDE_MOUNTS), "--", "echo", "ran")])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "wavegen: error: the kernel's Landlock (ABI 0) is older than ABI 6 (use a newer kernel)\n"
    words = [*PROGRAMS[which], *_landlock(*BESIDE_MOUNTS, least=False), "--report", "REPORT", "--", "echo", "ran"]
    done, report = _reported(list(_filtered(base / "filter", *around, *words)))
    assert (done.returncode, done.stdout, done.stderr, report) == (0, "ran\n", "", "abi 0\n")


@both
@pytest.mark.parametrize("older", range(1, 8))
def test_the_highest_entry_that_the_kernel_knows_is_taken(which: str, older: int, base: Path) -> None:
    """With entries for one old ABI and for one that no kernel has yet: the old one restricts, the other is not tried."""
    if older > ctypes.CDLL(None).syscall(444, None, 0, 1):
        pytest.skip("this kernel is older")
    last = [entry for entry in landlock_masks(BESIDE_MOUNTS).split(",") if int(entry.split(":")[0]) <= older][-1]
    masks = f"{last},99:0xffffffffffffffff:0x1:0xff:0xff:0x0:0x0"
    done = _run(
        [
            *PROGRAMS[which],
            "--landlock-masks",
            masks,
            "--write",
            f"{base}/inside",
            "--",
            "sh",
            "-c",
            f"echo 1 >{base}/inside/file && echo 1 >{base}/outside/file",
        ]
    )
    assert "Permission denied" in done.stderr
    assert ((base / "inside/file").read_text(), (base / "outside/file").read_text()) == ("1\n", "old")


@both
@pytest.mark.parametrize(("number", "said"), [(446, "Landlock refuses"), (445, "Landlock does not take"), (437, "--write /dev: Operation not permitted")])
@pytest.mark.parametrize("least", [True, False])
def test_what_fails_half_way_runs_nothing(which: str, number: int, said: str, least: bool, base: Path) -> None:
    (base / "filter").write_bytes(_refusing(number, 1))
    around = [*PROGRAMS["python"], "--seccomp", "9", "--"]
    done = _run([*_filtered(base / "filter", *around, *PROGRAMS[which], *_landlock(*WRITES, least=least), "--write", "/dev", "--", "echo", "ran")])
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr


@both
def test_a_seventeenth_layer(which: str) -> None:
    layer = [*PROGRAMS[which], *_landlock(*WRITES), "--write", "/", "--"]
    assert _run([*layer * 16, "echo", "ran"]).stdout == "ran\n"
    done = _run([*layer * 17, "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "wavegen: error: 16 layers of Landlock are around this one already, and the kernel takes no more (leave one of the shells)\n"
    done, report = _reported([*layer * 16, *PROGRAMS[which], *_landlock("signal", least=False), "--report", "REPORT", "--", "echo", "ran"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "ran\n", "")
    assert report == f"abi {ctypes.CDLL(None).syscall(444, None, 0, 1)} full\n"


@both
def test_layers_of_both_kinds_add_up_and_leave_renames(which: str, base: Path) -> None:
    words = [*_landlock(*WRITES), "--write", str(base / "inside"), "--"]
    script = f"mv {base}/inside/one/moving {base}/inside/two/ && echo 1 >{base}/outside/file"
    done = _run([*PROGRAMS["python"], *words, *PROGRAMS[which], *words, "sh", "-c", script])
    assert (base / "inside" / "two" / "moving").exists()
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize("abi", range(1, 12))
def test_what_each_abi_restricts(abi: int) -> None:
    own = [name for name in RIGHTS if RIGHTS[name][2] <= abi]
    files = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}.get(abi, (1 << 16) - 1 if abi < 9 else (1 << 17) - 1)
    net, scope = 0 if abi < 4 else 3 if abi < 10 else 15, 0 if abi < 6 else 3
    assert (landlock_mask(FILES, RIGHTS, abi), landlock_mask(NET, RIGHTS, abi), landlock_mask(SCOPE, RIGHTS, abi)) == (files, net, scope)
    entries = restrict_and_exec.parse_masks(landlock_masks(RIGHTS))
    assert [entry[0] for entry in entries] == [1, 2, 3, 4, 5, 6, 9, 10]
    _, *masks = max(entry for entry in entries if entry[0] <= abi)
    # Of a file: EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX.
    assert masks == [files, files & 0b11100000000000111, net, scope, 0b1101, 0b101]
    assert missing_rights(abi, own) == []
    assert len(missing_rights(abi, RIGHTS)) == len(RIGHTS) - len(own)
    assert least_abi(own) == max(RIGHTS[name][2] for name in own) <= abi


def test_what_is_missing_is_said() -> None:
    assert missing_rights(0, BESIDE_MOUNTS) == ["the kernel has no Landlock, or it is not switched on (boot with lsm=landlock,...)"]
    assert missing_rights(4, BESIDE_MOUNTS) == [
        "the kernel's Landlock (ABI 4) cannot restrict abstract sockets (needs ABI 6, Linux 6.12)",
        "the kernel's Landlock (ABI 4) cannot restrict signals to other programs (needs ABI 6, Linux 6.12)",
    ]
    assert [line for line in missing_rights(1, WRITES) if "every move" in line] == [
        "the kernel's Landlock (ABI 1) refuses every move and hard link between directories (allowed since ABI 2, Linux 5.19)"
    ]
    assert missing_rights(12, [*INSTEAD_OF_MOUNTS, *TCP, *UDP]) == missing_rights(0, ()) == []


@both
def test_this_kernel_takes_what_is_made_for_older_ones(which: str) -> None:
    """A structure that is longer than an older kernel's is zero there, and this kernel takes one that is longer than its own as long as it is zero."""
    libc = ctypes.CDLL(None, use_errno=True)
    for _, files, _, net, scope, *_ in restrict_and_exec.parse_masks(landlock_masks(RIGHTS)):
        if landlock_mask(FILES, RIGHTS, restrict_and_exec.ask_landlock()[0]) & files == files and net <= 3:
            attribute = struct.pack("=QQQ", files, net, scope) + bytes(80)
            handle = libc.syscall(444, attribute, len(attribute), 0)
            assert handle >= 0
            os.close(handle)


# --- the other bounds


@both
@everybody
def test_limits_are_lowered_and_never_raised(which: str, who: str) -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > 100
    words = ["--limit", "nofile=100:101", "--limit", "core=1", "--limit", "data=4000000000:unlimited"]
    script = "ulimit -Sn; ulimit -Hn; ulimit -Hc; ulimit -Sd; ulimit -Hd"
    done = _run([*USERS[who], *PROGRAMS[which], *words, "--", "bash", "-c", script])
    assert done.stdout.split()[:4] == ["100", "101", "0", str(4000000000 // 1024)]
    raised = ["--limit", "nofile=unlimited", "--limit", "core=5000:unlimited"]
    done = _run([*USERS[who], *PROGRAMS[which], *words, "--", *PROGRAMS[which], *raised, "--", "bash", "-c", script])
    assert done.stdout.split()[:3] == ["100", "101", "0"]


@both
@pytest.mark.needs("user")
def test_the_limit_of_processes_holds_an_unprivileged_user(which: str) -> None:
    script = "for i in 1 2 3 4 5 6 7 8 9; do sleep 1 & done; wait"
    # One who runs nothing else: other tests' processes would count, too.
    alone = [word.replace("23456", "23478") for word in USERS["user"]]
    done = _run([*alone, *PROGRAMS[which], "--limit", "nproc=5", "--", "sh", "-c", script])
    assert "Cannot fork" in done.stderr
    assert "Cannot fork" not in _run([*alone, *PROGRAMS[which], "--limit", "nproc=500", "--", "sh", "-c", script]).stderr


@both
def test_there_are_no_new_privileges(which: str) -> None:
    watched = ["grep", "NoNewPrivs", "/proc/self/status"]
    assert _run(watched).stdout.split() == ["NoNewPrivs:", "0"]
    assert _run([*PROGRAMS[which], "--", *watched]).stdout.split() == ["NoNewPrivs:", "1"]


@both
@pytest.mark.needs("user")
def test_a_setuid_program_stays_what_it_is(which: str, base: Path) -> None:
    if os.geteuid():
        pytest.skip("only root makes a setuid program of root's")
    shutil.copy("/usr/bin/id", base / "id")
    os.chown(base / "id", 0, 0)
    (base / "id").chmod(0o4755)
    assert _run([*USER, str(base / "id"), "-u"]).stdout == "0\n"
    assert _run([*USER, *PROGRAMS[which], "--", str(base / "id"), "-u"]).stdout == "23456\n"


@everybody
def test_seccomp_filters_are_loaded(who: str, base: Path) -> None:
    (base / "filter").write_bytes(_refusing(95, 77))
    (base / "other").write_bytes(_refusing(110, 78))
    words = (
        *USERS[who],
        *PROGRAMS["python"],
        "--seccomp",
        "9",
        "--seccomp",
        "8",
        *CLOSED,
        "--",
        "grep",
        "-E",
        "^(Seccomp|Seccomp_filters|NoNewPrivs):",
        "/proc/self/status",
    )
    done = _run(["bash", "-c", 'exec 9<"$0" 8<"$1"; shift; exec "$@"', str(base / "filter"), str(base / "other"), *words])
    before = int(_run(["grep", "Seccomp_filters", "/proc/self/status"]).stdout.split()[1])
    assert done.stdout.split() == ["NoNewPrivs:", "1", "Seccomp:", "2", "Seccomp_filters:", str(before + 2)], done.stderr


@pytest.mark.parametrize("content", [b"", b"1234567", b"\xff" * 8])
def test_a_broken_filter_runs_nothing(content: bytes, base: Path) -> None:
    (base / "filter").write_bytes(content)
    done = _run([*_filtered(base / "filter", *PROGRAMS["python"], "--seccomp", "9", "--", "echo", "ran")])
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
    "perl": {b"PERL5OPT": b"-MNoSuchModule", b"PERL5LIB": b"/x", b"PERL_UNICODE": b"SAD", b"NAME": b"\xc3\xa4\xff"},
}
NOTHING = ["--"]


@both
@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_environment_is_left_alone(which: str, name: str) -> None:
    environment = {**ENVIRONMENTS[name], b"PATH": b"/usr/bin:/bin"}
    quiet = {b"PERL_BADLANG": b"0"}  # Perl complains of a locale that is not there
    done = subprocess.run(
        [*PROGRAMS[which], "--unset", "PERL_BADLANG", *NOTHING, "cat", "/proc/self/environ"], env=environment | quiet, capture_output=True, timeout=60
    )
    assert done.stderr == b""
    assert done.stdout == b"".join(key + b"=" + value + b"\0" for key, value in environment.items())


STRANGE = "import ctypes,sys; a=lambda w:(ctypes.c_char_p*(len(w)+1))(*w); ctypes.CDLL(None).execve(sys.argv[1].encode(),a([w.encode() for w in sys.argv[1:]]),a([{}]))"


@both
def test_a_strange_environment_is_left_alone(which: str) -> None:
    entries = [b"A=1", b"nothing", b"A=2", b"=x", b"PATH=/usr/bin:/bin"]
    script = STRANGE.replace("{}", ",".join(map(repr, entries)))
    done = subprocess.run([PYTHON, "-c", script, *PROGRAMS[which], *NOTHING, "/bin/cat", "/proc/self/environ"], capture_output=True, timeout=60)
    assert done.stdout == b"".join(entry + b"\0" for entry in entries), done.stderr


@both
@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("name", ["empty", "lang UTF-8", "ctype and lang UTF-8", "bytes"])
def test_the_environment_is_left_alone_without_proc(which: str, name: str) -> None:
    environment = {**ENVIRONMENTS[name], b"PATH": b"/usr/bin:/bin"}
    bwrap = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/proc", "--"]
    plain = subprocess.run([*bwrap, "env", "-0"], env=environment, capture_output=True, timeout=60)
    done = subprocess.run([*bwrap, *PROGRAMS[which], *NOTHING, "env", "-0"], env=environment, capture_output=True, timeout=60)
    assert sorted(done.stdout.split(b"\0")) == sorted(plain.stdout.split(b"\0"))
    assert b"PATH=/usr/bin:/bin" in done.stdout


@both
@pytest.mark.parametrize("locale", [b"C", b"C.UTF-8", b"POSIX", b"xx_XX"])
def test_arguments_are_left_alone(which: str, locale: bytes) -> None:
    words = [b"", b"\xff\xfe", "ä€😀".encode(), b"\xed\xa0\x80", b"--", b"--landlock", b"a b\n'\"$(x)", bytes(range(1, 256))]
    environment = {b"LC_ALL": locale, b"PATH": b"/usr/bin:/bin", b"PERL_UNICODE": b"SAD", b"PERL_BADLANG": b"0"}
    command = [*PROGRAMS[which], *NOTHING, "sh", "-c", "cat /proc/$$/cmdline; :", *words]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert done.stdout.split(b"\0")[3:-1] == words, done.stderr


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
        assert _run([PYTHON, "-c", script.replace("{}", before), *PROGRAMS[which], *NOTHING, *watched]).stdout == plain


@both
def test_a_broken_pipe_ends_the_command(which: str) -> None:
    script = '"$@" -- yes | head -n 1; echo ${PIPESTATUS[0]}'
    assert _run(["bash", "-c", script, "bash", *PROGRAMS[which]]).stdout == "y\n141\n"


@both
@pytest.mark.parametrize("close", [False, True])
def test_descriptors(which: str, close: bool) -> None:
    first, second = os.pipe()
    words = [*(CLOSED if close else ()), *_landlock(*WRITES), "--write", "/", "--write", "/dev/null"]
    done = _run([*PROGRAMS[which], *words, "--", "sh", "-c", "echo /proc/$$/fd/*"], pass_fds=[first])
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
    plain = [*PROGRAMS[which], *NOTHING]
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
    # What is there and cannot be executed is said, not that it is missing in the next place.
    assert _run([*plain, "one"], env={"PATH": f"{base}/inside:{base}:/usr/bin"}).returncode == 126
    assert _run([*plain, "text", "y"], env={"PATH": f"/usr:/usr/bin/env:{base}"}).stdout == f"{base}/text y\n"


@pytest.mark.needs("landlock")
def test_what_is_not_granted_cannot_be_executed(base: Path) -> None:
    done = _run([*PROGRAMS["python"], *_landlock(*READS, *WRITES), "--read", "/usr", "--", str(base / "outside" / "program")])
    assert (done.returncode, done.stderr.split(" (")[0]) == (126, f"wavegen: {base}/outside/program cannot be executed inside: Permission denied")


@pytest.mark.parametrize("may_listen", [True, False])
@pytest.mark.parametrize(("machine", "arch", "calls"), [("x86_64", 0xC000003E, (41, 44, 46, 307, 50)), ("aarch64", 0xC00000B7, (198, 206, 211, 269, 201))])
def test_the_filter_that_closes_ways_round_tcp_rules(machine: str, arch: int, calls: tuple[int, ...], may_listen: bool) -> None:
    assert {"x86_64", "aarch64"} == set(MACHINES)
    program = list(struct.iter_unpack("=HBBI", compile_tcp_filter(machine, may_listen=may_listen)))

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

    makes, sendto, sendmsg, sendmmsg, listen = calls
    assert result(listen, 3, 128) == (0 if may_listen else 13)
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


# --- the launcher's descriptors, and what it looked at


def _with_pipe(argv: list[str], *, writes: bool = False, closed: bool = False) -> tuple[subprocess.CompletedProcess[str], bytes]:
    """The outcome with one end of a pipe at the descriptor that the words call END, and what the pipe held in the end; `closed`: with no other end."""
    ends = os.pipe()
    given, kept = reversed(ends) if writes else ends
    os.set_blocking(ends[0], False)
    if closed:
        os.close(kept)
    done = _run([word.replace("END", str(given)) for word in argv], pass_fds=[given])
    os.close(given)
    said = os.read(kept, 100) if writes and not closed else b""
    if not closed:
        os.close(kept)
    return done, said


@both
def test_that_the_command_starts_is_told(which: str) -> None:
    words = [*PROGRAMS[which], "--started", "END", "--"]
    done, said = _with_pipe([*words, "sh", "-c", "test -e /proc/$$/fd/END || echo gone"], writes=True)
    assert (done.stdout, said) == ("gone\n", b"started\n"), done.stderr
    # Also where the command's own exec fails: that is the command's failure.
    assert _with_pipe([*words, "/no/such"], writes=True)[1] == b"started\n"
    for broken in (["--expect", "1:1:/"], [*_landlock(*WRITES), "--write", "/no/such"]):
        done, said = _with_pipe([*PROGRAMS[which], "--started", "END", *broken, "--", "echo", "ran"], writes=True)
        assert (done.returncode, done.stdout, said) == (125, "", b"")


@both
@everybody
def test_nothing_starts_once_the_launcher_has_ended(which: str, who: str) -> None:
    words = [*USERS[who], *PROGRAMS[which], "--life", "END", "--", "sh", "-c", "test -e /proc/$$/fd/END || echo gone"]
    assert _with_pipe(words)[0].stdout == "gone\n"
    done, _ = _with_pipe(words, closed=True)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == "wavegen: error: the launcher ended before the command was started (start the shell again)\n"
    # No descriptor at all is no life either.
    assert _run([*PROGRAMS[which], "--life", "77", "--", "echo", "ran"]).returncode == 125


@both
def test_life_is_asked_after_all_the_rest(which: str, base: Path) -> None:
    """The launcher ends while the restrictions are being made: here, while a FIFO that gives the report away is not read."""
    os.mkfifo(base / "fifo")
    life, launcher = os.pipe()
    holder = subprocess.Popen(["sleep", "60"], pass_fds=[launcher])
    os.close(launcher)
    script = 'exec 9>"$0" "$@"'
    words = [*PROGRAMS[which], *_landlock("signal"), "--started", "9", "--life", str(life), "--", "echo", "ran"]
    with subprocess.Popen(["bash", "-c", script, str(base / "fifo"), *words], stdout=subprocess.PIPE, pass_fds=[life], stderr=subprocess.DEVNULL) as started:
        holder.kill()
        holder.wait()
        assert (base / "fifo").read_text() == "started\n"
        assert started.communicate(timeout=30)[0] == b""
        assert started.returncode == 125
    os.close(life)


@both
@everybody
def test_what_was_exchanged_is_not_entered(which: str, who: str, base: Path) -> None:
    """Of the kinds of attack 2 of those that exchange a directory for another, or for a link."""
    place = base / "inside" / "one"
    expected = f"{place.stat().st_dev}:{place.stat().st_ino}:{place}"
    file = (base / "inside" / "file").stat()
    words = [*USERS[who], *PROGRAMS[which], "--expect", f"{file.st_dev}:{file.st_ino}:{base}/inside/file", "--expect", expected, "--", "echo", "ran"]
    assert _run(words).stdout == "ran\n"
    place.rename(base / "inside" / "before")
    error = (
        f"wavegen: error: {place} was exchanged while the sandbox was built (another shell of the project may have done it: try again when that has ended)\n"
    )
    for exchange in (lambda: None, lambda: place.symlink_to("before"), place.mkdir, place.touch):
        exchange()
        done = _run(words)
        assert (done.returncode, done.stdout, done.stderr) == (125, "", error)
        if place.is_symlink() or place.is_file():
            place.unlink()
        elif place.exists():
            place.rmdir()
    (base / "inside" / "before").rename(place)
    assert _run(words).stdout == "ran\n"
    # A link above it that leads to the same directory: it can be turned elsewhere once the command runs.
    (base / "inside").rename(base / "elsewhere")
    (base / "inside").symlink_to("elsewhere")
    assert place.stat().st_ino == int(expected.split(":")[1])
    assert _run(words).returncode == 125
    for device, inode in ((file.st_dev + 1, file.st_ino), (file.st_dev, file.st_ino + 1)):
        assert _run([*PROGRAMS[which], "--expect", f"{device}:{inode}:{base}/elsewhere/file", "--", "echo", "ran"]).returncode == 125
    assert _run([*PROGRAMS[which], "--expect", f"{file.st_dev}:{file.st_ino}:{base}/elsewhere/file", "--", "echo", "ran"]).returncode == 0


@both
def test_names_reach_the_terminal_without_control_characters(which: str, base: Path) -> None:
    name = f"{base}/a\x1b]0;title\x07\nwavegen: note: forged\x7f ä"
    for words in (["--expect", f"1:1:{name}", "--", "true"], [*_landlock(*WRITES), "--write", name, "--", "true"], ["--", name]):
        done = _run([*PROGRAMS[which], *words])
        assert done.stderr.count("\n") == 1
        assert done.stderr.isascii()
        assert done.stderr[:-1].isprintable()
        assert "a\\x1b]0;title\\x07\\x0awavegen: note: forged\\x7f \\xc3\\xa4" in done.stderr


@both
@pytest.mark.parametrize("signals", [(), ("INT",), ("INT", "QUIT")])
def test_signals_that_the_launcher_ignores(which: str, signals: tuple[str, ...]) -> None:
    script = "import os,signal,sys; [signal.signal(n, signal.SIG_IGN) for n in (2, 3)]; os.execv(sys.argv[1], sys.argv[1:])"
    words = [word for name in signals for word in ("--reset-signal", name)]
    done = _run([PYTHON, "-c", script, *PROGRAMS[which], *words, "--", "grep", "SigIgn", "/proc/self/status"])
    ignored = int(done.stdout.split()[1], 16)
    assert {name for name, number in (("INT", 2), ("QUIT", 3)) if not ignored >> number - 1 & 1} == set(signals)


@both
def test_the_limit_of_core_dumps_is_raised_to_one(which: str) -> None:
    """core(5), fs/coredump.c: a limit of 0 starts the program of a core_pattern that is a pipe as well, a limit of 1 does not. Tried by hand:
    core_pattern is the whole machine's. A command can lower its limit to 0 again, which only a system call filter prevents.
    """
    words = ["prlimit", "--core=0:1000000", *PROGRAMS[which], "--limit", "core=1", "--", "grep", "core file", "/proc/self/limits"]
    assert _run(words).stdout.split()[4:6] == ["1", "1"]


MASKS = landlock_masks(WRITES)
BAD = [
    *([option, "x", "--", "echo", "ran"] for option in ("--nonsense", "--landlock-masks", "--least-abi", "--report", "--started", "--life", "--close-from")),
    *(["--landlock-masks", masks, "--", "echo", "ran"] for masks in ("", "1", "1:0x1", f"{MASKS},", f",{MASKS}", f"{MASKS}:0x0", MASKS.replace("0x", "", 1), f"-{MASKS}")),
    *([option, fd, "--", "echo", "ran"] for option in ("--report", "--started", "--life", "--close-from") for fd in ("", "0", "2", "-1", "3 ", "&3")),
    *(["--expect", expected, "--", "echo", "ran"] for expected in ("/", "1:/", "1:1:", "x:1:/", "1:1", "1:-1:/")),
    *(["--reset-signal", name, "--", "echo", "ran"] for name in ("", "KILL", "TERM")),
    *([option, "", "--", "echo", "ran"] for option in ("--write", "--write-try", "--unset")),
    ["--unset", "A=B", "--", "echo", "ran"],
    ["--landlock-masks", MASKS],
    ["--landlock-masks"],
    *([["--limit", limit, "--", "echo", "ran"] for limit in ("nofile", "nofile=", "nofile=-1", "none=1", "nofile=1:x", "nofile=1e3", "nofile=1:", "nofile=1:2:3", "core=18446744073709551616")]),
    ["--"],
    [],
]  # fmt: skip


@both
@pytest.mark.parametrize("words", BAD)
def test_what_is_not_understood_runs_nothing(which: str, words: list[str]) -> None:
    done = _run([*PROGRAMS[which], *words])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("wavegen: error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.needs("perl")
@pytest.mark.parametrize("option", ["--read", "--read-try", "--connect", "--bind", "--seccomp", "--drop-capabilities"])
def test_perl_refuses_what_it_cannot_do(option: str) -> None:
    done = _run([*PROGRAMS["perl"], option, "9", "--", "echo", "ran"])
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr == f"wavegen: error: restrict_and_exec.pl does not know {option} (run wavegen render)\n"


@pytest.mark.needs("landlock")
@pytest.mark.parametrize(
    "python", [pytest.param(path, id=path.split("/")[-3]) for path in sorted(glob.glob(f"{os.path.expanduser('~')}/.pyenv/versions/3.*/bin/python3")) if "/3.6" not in path and "/3.7" not in path and "/3.8" not in path]
)  # fmt: skip
def test_other_pythons(python: str, base: Path) -> None:
    program = [python, *PROGRAMS["python"][1:]]
    words = [*_landlock(*WRITES, "signal"), "--write", str(base / "inside"), "--limit", "core=1", *CLOSED, "--"]
    done = _run([*program, *words, "sh", "-c", f"echo 1 >{base}/inside/file; env; echo 1 >{base}/outside/file"], env={})
    assert "Permission denied" in done.stderr
    assert "LC_CTYPE" not in done.stdout
    assert (base / "inside" / "file").read_text() == "1\n"
    # What the program itself needs is loaded before reading is taken from it.
    whole = [
        "--read",
        "/usr/bin",
        "--read",
        "/usr/lib",
        "--read-try",
        "/lib64",
        "--read-try",
        "/lib",
        "--limit",
        "nofile=77",
        "--drop-capabilities",
        "all",
        "--",
    ]
    done = _run([*program, *_landlock(*READS, *WRITES), *whole, "sh", "-c", "ulimit -n; cat /etc/hostname"], env={"PATH": "/usr/bin"})
    assert (done.stdout, "Permission denied" in done.stderr) == ("77\n", True), done.stderr
    (base / "filter").write_bytes(REFUSING)
    assert "Seccomp:\t2" in _run([*_filtered(base / "filter", *program, "--seccomp", "9", "--", "cat", "/proc/self/status")]).stdout


def test_perl_s_text_is_strict_without_loading_that() -> None:
    """It would be loaded at each start."""
    path = INSIDE / "restrict_and_exec.pl"
    done = subprocess.run(("perl", "-Mstrict", "-Mwarnings", "-T", "-c", path), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"{path} syntax OK\n")
    assert not [line for line in path.read_text("utf-8").splitlines() if line.startswith(("use ", "require "))]
