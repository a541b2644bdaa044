"""The filters in the kernel: everyday programs run below them, and what they refuse is refused for real."""

from __future__ import annotations

import errno
import json
import os
import platform
import shlex
import shutil
import subprocess
import sys

import pytest

from wavegen.manifest.model import Seccomp
from wavegen.seccomp import Action, Arch, Filter
from wavegen.seccomp.bpf import assemble_filter
from wavegen.seccomp.filters import filter_of, refused_calls
from wavegen.seccomp.syscalls import NUMBERS

pytestmark = [
    pytest.mark.needs("bwrap"),
    pytest.mark.skipif(platform.machine() not in ("x86_64", "aarch64"), reason="no filter for this machine"),
]

BOTH = (Seccomp.DEFAULT, Seccomp.STRICT)
ARCH = Arch.AARCH64 if platform.machine() == "aarch64" else Arch.X86_64
USER = ("setpriv", "--reuid=23456", "--regid=23456", "--clear-groups")
AS = [pytest.param((), id="self"), pytest.param(USER, id="user", marks=pytest.mark.needs("user"))]
FENCE = (
    "bwrap", "--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp",
    "--tmpfs", "/dev/shm", "--dir", "/tmp/home", "--chdir", "/tmp/home",
)  # fmt: skip


def fenced(filter_: Filter | None, command: tuple[str, ...], who: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """The command inside of bwrap, below the filter."""
    if who and os.geteuid() != 0:
        pytest.skip("already a user")
    environment = {"PATH": os.environ["PATH"], "HOME": "/tmp/home", "LANG": "C.UTF-8", "TERM": "xterm", "GOCACHE": "/tmp/home/go", "GOFLAGS": "-mod=mod"}
    for name, below in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")):
        environment[name] = os.environ.get(name, f"/root/{below}")
    users = os.memfd_create("passwd")
    os.write(users, f"root:x:0:0::/tmp/home:/bin/bash\nme:x:{23456 if who else os.getuid()}:23456::/tmp/home:/bin/bash\n".encode())
    os.lseek(users, 0, os.SEEK_SET)
    argv: tuple[str, ...] = (*who, *FENCE, "--ro-bind-data", str(users), "/etc/passwd")
    descriptors: tuple[int, ...] = (users,)
    if filter_:
        loaded = os.memfd_create("filter")
        os.write(loaded, assemble_filter(filter_, *Arch))
        os.lseek(loaded, 0, os.SEEK_SET)
        argv, descriptors = (*argv, "--seccomp", str(loaded)), (users, loaded)
    try:
        return subprocess.run(
            (*argv, "--", *command), env=environment, pass_fds=descriptors, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240
        )
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


PYTHON = r"""
import asyncio, concurrent.futures, mmap, multiprocessing, os, resource, signal, socket, sqlite3, subprocess, tempfile, threading, time
with concurrent.futures.ThreadPoolExecutor(8) as pool: assert sum(pool.map(abs, range(100))) == 4950
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-2, 3]) == [2, 3]
with multiprocessing.get_context("spawn").Pool(1) as pool: assert pool.map(abs, [-2]) == [2]
base = sqlite3.connect("x.db"); base.execute("pragma journal_mode=wal"); base.execute("create table t(x)"); base.execute("insert into t values(7)"); base.commit()
assert base.execute("select x from t").fetchall() == [(7,)]
async def tell():
    async def serve(reader, writer):
        writer.write(await reader.readline()); await writer.drain(); writer.close()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n"); assert await reader.readline() == b"hello\n"
    child = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1); assert (await child.communicate(b"x"))[0] == b"x"
asyncio.run(tell())
here, there = socket.socketpair(); here.send(b"y"); assert there.recv(1) == b"y"
assert socket.getaddrinfo("127.0.0.1", 80); assert socket.if_nameindex()
os.posix_fallocate(os.open("f", os.O_RDWR | os.O_CREAT), 0, 4096); os.copy_file_range(os.open("x.db", os.O_RDONLY), os.open("g", os.O_RDWR | os.O_CREAT), 10)
os.setxattr; os.sched_setaffinity(0, os.sched_getaffinity(0)); os.memfd_create("m"); os.eventfd(0); os.pidfd_open(os.getpid()); os.getrandom(4)
signal.setitimer(signal.ITIMER_REAL, 100); resource.getrlimit(resource.RLIMIT_NOFILE); mmap.mmap(-1, 4096); os.mkfifo("p"); os.symlink("f", "s")
subprocess.run(["true"], check=True, start_new_session=True); print("done")
"""
NODE = r"""
const {Worker, isMainThread} = require('worker_threads'), fs = require('fs'), http = require('http'), {execFileSync} = require('child_process')
new Worker('require("worker_threads").parentPort.postMessage(6 * 7)', {eval: true}).on('message', (n) => {
  if (n !== 42 || String(execFileSync('echo', ['x'])) !== 'x\n') process.exit(1)
  fs.watch('.', () => {}).close()
  const server = http.createServer((q, a) => a.end('served')).listen(0, '127.0.0.1', () =>
    fetch('http://127.0.0.1:' + server.address().port).then((a) => a.text()).then((t) => { console.log(t); process.exit(0) }))
})
"""
SERVER = "import http.server as h\nclass H(h.SimpleHTTPRequestHandler): pass\nh.HTTPServer(('127.0.0.1', 8123), H).serve_forever()"
PROGRAMS = {
    "bash": ("for i in 1 2 3; do echo $i; done | sort -r | tr -d '\\n'; sleep 0.05 & wait; read -t 0.05 x < <(sleep 1); [[ -d /proc ]] && ulimit -n >/dev/null; kill -0 $$", "321"),
    "git": ("git init -q a && cd a && echo x >f && git add f && git -c user.name=n -c user.email=e@x commit -qm first && git clone -q . ../b && git -C ../b log --format=%s && git gc -q", "first"),
    "python3": (f"/usr/bin/python3 -c {shlex.quote(PYTHON)}", "done"),
    "node": (f"cat >t.js <<'END'\n{NODE}\nEND\nnode t.js", "served"),
    "npm": ("npm --version && mkdir p && cd p && npm init -y >/dev/null && npm install --offline --no-audit --no-fund && echo in", "in"),
    "gcc": ("printf '#include <stdio.h>\\n#include <pthread.h>\\nvoid*f(void*a){return a;}int main(){pthread_t t;pthread_create(&t,0,f,0);pthread_join(t,0);puts(\"built\");}' >a.c && gcc -O2 -pthread a.c && ./a.out", "built"),
    "rustc": ("printf 'fn main(){std::thread::spawn(||println!(\"built\")).join().unwrap()}' >a.rs && rustc a.rs && ./a", "built"),
    "cargo": ("export CARGO_HOME=/tmp/home/c; cargo init -q --vcs none --name x y && cd y && cargo run -q --offline", "Hello, world!"),
    "go": ("mkdir m && cd m && go mod init x 2>/dev/null && printf 'package main\\nimport (\"fmt\";\"net\")\\nfunc main(){l,e:=net.Listen(\"tcp\",\"127.0.0.1:0\");if e!=nil{panic(e)};c:=make(chan int);go func(){c<-1}();<-c;l.Close();fmt.Println(\"built\")}' >a.go && go run a.go", "built"),
    "javac": ("printf 'public class A{public static void main(String[] a)throws Exception{Thread t=new Thread(()->System.out.println(\"built\"));t.start();t.join();new java.net.ServerSocket(0).close();new ProcessBuilder(\"true\").start().waitFor();}}' >A.java && javac A.java && java A", "built"),
    "curl": (f"/usr/bin/python3 -c \"{SERVER}\" 2>/dev/null & for n in $(seq 50); do curl -sf http://127.0.0.1:8123/ >o && break; sleep 0.1; done; grep -o 'Directory listing' o | head -n 1; kill %1", "Directory listing"),
    "make": ("printf 'all: a b\\n\\t@echo made\\na b:\\n\\t@touch $@\\n' >Makefile && make -j2", "made"),
    "ssh": ("ssh -V && ssh-keygen -q -t ed25519 -N '' -f k && eval $(ssh-agent) >/dev/null && ssh-add -q k && ssh-add -l | grep -o ED25519 && kill $SSH_AGENT_PID", "ED25519"),
    "perl": ("perl -MSocket -e 'socketpair(A,B,AF_UNIX,SOCK_STREAM,0) or die; if(!fork){syswrite B,\"sent\\n\";exit} wait; sysread A,$x,9; print $x'", "sent"),
    "tmux": ("tmux -S t.sock new-session -d 'echo up >o; sleep 9' && sleep 0.5 && tmux -S t.sock list-sessions >/dev/null && cat o && tmux -S t.sock kill-server", "up"),
    "docker": ("docker --version >/dev/null && echo ran", "ran"),
    "psql": ("bin=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1); if [ $(id -u) = 0 ]; then psql --version | grep -o PostgreSQL; else $bin/initdb -D d -U me -N >/dev/null && $bin/pg_ctl -D d -w -o '-k /tmp/home -h 127.0.0.1' -l log start >/dev/null && psql -h /tmp/home -U me postgres -Atc \"select 'PostgreSQL'\"; $bin/pg_ctl -D d -m immediate stop >/dev/null; fi", "PostgreSQL"),
    "tar": ("mkdir d && echo x >d/f && tar czf a.tgz d && rm -r d && tar xzf a.tgz && cp -a d e && mv e g && ln g/f h && chmod 600 h && touch -d yesterday h && du -s . >/dev/null && find . -name f -print0 | xargs -0 ls >/dev/null && cat h", "x"),
}  # fmt: skip


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""


# The strict filter refuses whatever the other one does.
@pytest.mark.parametrize(
    ("seccomp", "who"),
    [
        pytest.param(seccomp, *who.values, id=f"{seccomp.value}-{who.id}", marks=who.marks)
        for seccomp, who in ((BOTH[0], AS[0]), (BOTH[1], AS[0]), (BOTH[1], AS[1]))
    ],
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_everyday_program_runs(program: str, seccomp: Seccomp, who: tuple[str, ...]) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not on the PATH")
    command, expected = PROGRAMS[program]
    without = fenced(None, ("bash", "-c", command), who)
    if who and program in ("rustc", "cargo") and "not found" in without.stderr:
        pytest.skip(f"{program} is in the home of another")
    assert last_line(without.stdout) == expected, f"without a filter: {without.stderr[-2000:]}"
    below = fenced(filter_of(seccomp, nested=False), ("bash", "-c", command), who)
    assert last_line(below.stdout) == expected, below.stdout[-1000:] + below.stderr[-2000:]
    assert below.returncode == without.returncode


CALLS = r"""
import ctypes, json, sys
kernel = ctypes.CDLL(None, use_errno=True)
kernel.syscall.restype = ctypes.c_long
found = {}
for label, number, arguments in json.loads(sys.argv[1]):
    ctypes.set_errno(0)
    result = kernel.syscall(ctypes.c_long(number), *(ctypes.c_ulong(argument) for argument in arguments))
    if label.startswith("clone") and result == 0:
        kernel._exit(0)
    found[label] = ctypes.get_errno() if result == -1 else 0
print(json.dumps(found))
"""


# A label, a number and arguments.
Call = tuple[str, int, tuple[int, ...]]


def errnos(filter_: Filter | None, calls: list[Call], who: tuple[str, ...] = ()) -> dict[str, int]:
    done = fenced(filter_, ("/usr/bin/python3", "-c", CALLS, json.dumps(calls)), who)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


# Numbers beyond the table.
NOT_YET = (470, 471, 500, 1000, 0x3FFFFFFF)


def named() -> list[Call]:
    """The calls that both filters refuse whatever the arguments."""
    return [(name, NUMBERS[ARCH][name], (0,) * 6) for name in refused_calls(nested=False) if name in NUMBERS[ARCH]]


@pytest.mark.parametrize("who", AS)
@pytest.mark.parametrize("seccomp", BOTH)
def test_each_refused_call_has_its_errno(seccomp: Seccomp, who: tuple[str, ...]) -> None:
    filter_ = filter_of(seccomp, nested=False)
    assert filter_
    calls = [*named(), *((f"number {number}", number, (0,) * 6) for number in (337, 423, *NOT_YET))]
    expected = {label: filter_.action_for(label).error_number if label in NUMBERS[ARCH] else errno.ENOSYS for label, *_ in calls}
    assert 0 not in expected.values()
    assert errnos(filter_, calls, who) == expected
    # That the kernel alone answers otherwise shows that it is the filter that was asked.
    without = errnos(None, calls, who)
    assert len([label for label in expected if without[label] != expected[label]]) > 25


HIGH = 1 << 32
# What the rules by argument are about, and the same with bits that the kernel does not read. Numbers of x86_64.
BY_ARGUMENT: list[Call] = [
    *((f"socket {family} {high:#x}", 41, (family | high, 1, 0)) for family in (0, 3, 17, 29, 38, 40, 43, 44) for high in (0, HIGH, HIGH * 0xFFFFFFFF)),
    *((f"netlink {protocol} {high:#x}", 41, (16, 3, protocol | high)) for protocol in (4, 6, 9, 12, 15, 16) for high in (0, HIGH)),
    *((f"raw {family} {kind:#x}", 41, (family, kind, 1)) for family in (2, 10) for kind in (3, 3 | HIGH, 10, 0x80003)),
    *((f"protocol {protocol}", 41, (2, 1, protocol)) for protocol in (33, 132, 256, 132 | HIGH)),
    ("socketpair 40", 53, (40 | HIGH, 1, 0, 0)),
    *((f"clone {flags:#x}", 56, (flags | 17, 0, 0, 0, 0)) for flags in (0x10000000, 0x10000000 | HIGH, 0x20000, 0x40000000 | HIGH * 9)),
    ("clone3", 435, (0, 0)),
    *((f"personality {value:#x}", 135, (value,)) for value in (0x40000, 0x400000 | HIGH)),
    *((f"ioctl {request:#x}", 16, (0, request, 0)) for request in (0x5412, 0x541C, 0x5412 | HIGH, 0x541C | HIGH * 0x80000000)),
    ("fine: inet", 41, (2, 0x80001, 6)),
    ("fine: inet, high", 41, (2 | HIGH, 1, 0)),
    ("fine: unix", 41, (1, 1, 0)),
    ("fine: route", 41, (16, 3, 0)),
    ("fine: personality", 135, (0xFFFFFFFF,)),
]
X32: list[Call] = [(f"x32 {number}", 0x40000000 | number, (0,) * 6) for number in (0, 1, 39, 514, 546)]


def answers(filter_: Filter, calls: list[Call]) -> dict[str, int]:
    """What the filter says to each, as an error number; 0 where it lets it through."""
    names = {number: name for name, number in NUMBERS[ARCH].items()}
    return {
        label: filter_.action_for(names[number], (*arguments, *(0,) * 6)[:6]).error_number if number in names else errno.ENOSYS
        for label, number, arguments in calls
    }


@pytest.mark.skipif(ARCH is not Arch.X86_64, reason="numbers of x86_64")
@pytest.mark.parametrize("who", AS)
@pytest.mark.parametrize("seccomp", BOTH)
def test_arguments_with_high_bits_get_nobody_round_a_rule(seccomp: Seccomp, who: tuple[str, ...]) -> None:
    calls = [*BY_ARGUMENT, *X32]
    filter_ = filter_of(seccomp, nested=False)
    assert filter_
    expected = answers(filter_, calls)
    assert [label for label, number in expected.items() if number == 0] == [label for label in expected if label.startswith("fine")]
    assert errnos(filter_, calls, who) == expected
    without = errnos(None, [call for call in calls if not call[0].startswith(("socket 0", "x32"))], who)
    assert without["raw 2 0x3"] == errno.EPERM  # the kernel's own answer to whoever has no capability
    assert without["netlink 6 0x0"] != expected["netlink 6 0x0"] or without["netlink 16 0x0"] != expected["netlink 16 0x0"]
    assert without["clone3"] == errno.EINVAL
    assert without["personality 0x40000"] == 0


TERMINAL = r"""
import ctypes, fcntl, json, os, pty
kernel = ctypes.CDLL(None, use_errno=True)
out, told = os.pipe()
child, terminal = pty.fork()
if not child:
    found = {}
    for request in (0x5412, 0x5412 | 1 << 32, 0x5412 | 0xFFFFFFFF << 32, 0x541C, 0x541C | 1 << 32):
        ctypes.set_errno(0)
        kernel.syscall(ctypes.c_long(NUMBER), ctypes.c_ulong(0), ctypes.c_ulong(request), ctypes.c_char_p(b"x"))
        found[hex(request)] = ctypes.get_errno()
    size = fcntl.ioctl(0, 0x5413, b"\0" * 8)
    os.write(told, json.dumps(found).encode())
    os._exit(0)
os.close(told)
print(os.read(out, 4096).decode())
"""


@pytest.mark.parametrize("who", AS)
@pytest.mark.parametrize("seccomp", BOTH)
def test_nobody_types_into_the_terminal(seccomp: Seccomp, who: tuple[str, ...]) -> None:
    script = TERMINAL.replace("NUMBER", str(NUMBERS[ARCH]["ioctl"]))
    below = fenced(filter_of(seccomp, nested=False), ("/usr/bin/python3", "-c", script), who)
    assert set(json.loads(below.stdout).values()) == {errno.EPERM}, below.stderr
    without = json.loads(fenced(None, ("/usr/bin/python3", "-c", script), who).stdout)
    assert without["0x5412"] in (0, errno.EIO)  # EIO where dev.tty.legacy_tiocsti is off
    assert without["0x100005412"] == without["0x5412"]  # the kernel does not see the high bit


I386 = r"""
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
code.write(b"\x53\x89\xf8\x89\xf3\x89\xd1\xcd\x80\x5b\xc3")  # push rbx; mov eax,edi; mov ebx,esi; mov ecx,edx; int 0x80; pop rbx; ret
call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
print(call(20, 0, 0), call(310, 0, 0), call(102, 1, 0), call(359, 40, 1), call(288, 0, 0))
"""


@pytest.mark.skipif(ARCH is not Arch.X86_64, reason="int 0x80 is i386's")
@pytest.mark.parametrize("who", AS)
@pytest.mark.parametrize("seccomp", BOTH)
def test_the_32_bit_way_in_is_closed(seccomp: Seccomp, who: tuple[str, ...]) -> None:
    """getpid, unshare(0), socketcall, socket(AF_VSOCK) and keyctl by i386's numbers."""
    below = fenced(filter_of(seccomp, nested=False), ("/usr/bin/python3", "-c", I386), who)
    assert below.stdout.split() == ["-38"] * 5, below.stderr
    without = fenced(None, ("/usr/bin/python3", "-c", I386), who)
    if without.returncode < 0 or without.stdout.split()[:1] == ["-38"]:
        pytest.skip("this kernel has no 32-bit calls")
    assert int(without.stdout.split()[0]) > 0


MORE_FILTERS = r"""
import ctypes, struct, sys
kernel = ctypes.CDLL(None, use_errno=True)
for answer in (0x7FFF0000, 0x7FFC0000, 0x7FF00000):  # ALLOW, LOG, TRACE
    program = struct.pack("<HBBI", 6, 0, 0, answer) if answer != 0x7FF00000 else struct.pack("<HBBIHBBIHBBIHBBI", 0x20, 0, 0, 0, 0x15, 0, 1, int(sys.argv[1]), 6, 0, 0, answer, 6, 0, 0, 0x7FFF0000)
    held = ctypes.create_string_buffer(program)
    told = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(held)))
    assert kernel.prctl(38, 1, 0, 0, 0) == 0
    assert kernel.prctl(22, 2, told, 0, 0) == 0, ctypes.get_errno()
ctypes.set_errno(0)
kernel.syscall(ctypes.c_long(int(sys.argv[1])), 0, 0, 0, 0, 0)
print(ctypes.get_errno())
"""


@pytest.mark.parametrize("seccomp", BOTH)
def test_a_filter_of_the_commands_own_opens_nothing(seccomp: Seccomp) -> None:
    """The strictest answer of all filters counts, and every program may add its own: browsers and sandboxes do."""
    for call in ("keyctl", "unshare"):
        done = fenced(filter_of(seccomp, nested=False), ("/usr/bin/python3", "-c", MORE_FILTERS, str(NUMBERS[ARCH][call])))
        assert done.stdout.strip() == str(errno.EPERM), done.stderr


@pytest.mark.needs("user")
@pytest.mark.parametrize("seccomp", BOTH)
def test_a_sandbox_is_made_inside_only_where_that_is_allowed(seccomp: Seccomp) -> None:
    """As a user: since Linux 5.12 mapping uid 0 wants CAP_SETFCAP, which root below `--cap-drop ALL` has lost."""
    inner = ("bwrap", "--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--tmpfs", "/tmp", "echo", "made")
    who = USER if os.geteuid() == 0 else ()
    assert fenced(filter_of(seccomp, nested=True), inner, who).stdout.strip() == "made"
    refused = fenced(filter_of(seccomp, nested=False), inner, who)
    assert (refused.returncode, refused.stdout) == (1, "")


@pytest.mark.parametrize("seccomp", BOTH)
def test_a_call_that_the_manifest_opens_works(seccomp: Seccomp) -> None:
    number = NUMBERS[ARCH]["ptrace"]
    opened = filter_of(seccomp, nested=False, allow=("ptrace",))
    assert opened
    assert opened.action_for("ptrace") is Action.ALLOW
    assert errnos(opened, [("ptrace", number, (0, 0, 0, 0))]) == {"ptrace": 0}


def test_the_interpreter_of_these_tests_is_not_the_one_that_is_fenced() -> None:
    """A venv below /root would be unreadable to the user."""
    assert os.access("/usr/bin/python3", os.X_OK)
    assert sys.version_info >= (3, 11)
