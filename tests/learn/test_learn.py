"""What strace saw, what of it the filters refuse, and what is proposed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

from wavegen.core.errors import MachineError, UsageError
from wavegen.learn.syscalls import Learned, learn_syscalls, parse_trace, proposal_lines

TRACE = """\
100 execve(0x7ffe772c0300, 0x7ffe772c17d0, 0x7ffe772c17f0) = 0
100 brk(0)                            = 0x55becd6e0000
101 set_robust_list(0x7f96682c1a20, 0x18 <unfinished ...>
100 rt_sigprocmask(0x2, 0x7ffd5abbb9e0, 0, 0x8 <unfinished ...>
101 <... set_robust_list resumed>)    = 0
100 <... rt_sigprocmask resumed>)     = 0
100 getpid( <unfinished ...>
100 <... getpid resumed>)             = 0x64
100 io_setup(0x80, 0x7f96684e2000)    = 0
100 clone(0x1200011, 0, 0, 0x7f9668, 0) = 0x65
100 socket(0x2, 0x80001, 0x6)         = 0x3
100 socket(0x28, 0x1, 0 <unfinished ...>
100 clone(0x10000011, 0, 0, 0, 0)     = -1 EPERM (Operation not permitted)
100 clone3(0x7ffd, 0x58)              = 0x66
100 ptrace(0, 0, 0, 0)                = 0
100 syscall_0x3e7(0x1, 0x7fe8d9d55548) = -1 ENOSYS (Function not implemented)
102 [ Process PID=102 runs in 32 bit mode. ]
102 socketcall(0x1, 0xff)             = 0x3
102 vserver(0x1)                      = 0x3
102 [ Process PID=102 runs in 64 bit mode. ]
102 getppid()                         = 0x64
100 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED} ---
100 +++ exited with 0 +++
100 write(0x1, 0x7fff
strace: Process 103 attached
"""


def test_a_trace_is_read_line_by_line() -> None:
    found = parse_trace(TRACE.splitlines(keepends=True), status=3)
    assert found == Learned(
        status=3,
        calls=("brk", "clone", "clone3", "execve", "getpid", "getppid", "io_setup", "ptrace", "rt_sigprocmask", "set_robust_list", "socket", "write"),
        missing=("io_setup",),
        refused=("clone(0x10000011, 0x0, 0x0)", "clone3", "ptrace", "socket(0x28, 0x1, 0x0)"),
        unnamed=("0x3e7",),
        modes=("32 bit",),
    )


def test_a_sandbox_inside_refuses_less() -> None:
    trace = ["7 unshare(0x10000000) = 0\n", "7 mount(0, 0, 0, 0, 0) = 0\n", "7 clone(0x10000011, 0, 0, 0, 0) = 8\n"]
    assert parse_trace(trace).refused == ("clone(0x10000011, 0x0, 0x0)", "mount", "unshare")
    assert (parse_trace(trace, nested=True).refused, parse_trace(trace, nested=True).missing) == ((), ())


def test_a_proposal_names_what_is_missing_and_why_the_rest_is_not_in_it() -> None:
    told = list(proposal_lines(parse_trace(TRACE.splitlines(keepends=True), status=3)))
    assert told == [
        "# The command ended with status 3, so it may not have done all that it does.",
        "# 12 system calls; strict lets 9 of them through.",
        "seccomp_allow: [io_setup]",
        "# refused by both filters: clone(0x10000011, 0x0, 0x0)",
        "# refused by both filters: clone3",
        "# refused by both filters: ptrace (most programs do without; if this one does not, add it to seccomp_allow)",
        "# refused by both filters: socket(0x28, 0x1, 0x0)",
        "# answered ENOSYS by both filters: number 0x3e7, which has no name",
        "# answered ENOSYS by both filters: every call of programs in 32 bit mode",
    ]
    assert list(proposal_lines(parse_trace(["7 read(0, 0, 0) = 0"]))) == ["# 1 system calls; strict lets 1 of them through."]


@pytest.mark.needs("strace")
def test_a_command_is_watched_with_its_children() -> None:
    found = learn_syscalls(("bash", "-c", "mkdir -p /tmp && ls / >/dev/null & wait; exit 3"))
    assert found.status == 3
    assert {"execve", "wait4", "mmap", "openat"} <= set(found.calls)
    assert {"getdents64", "getdents"} & set(found.calls)  # ls, two processes below
    assert found.missing == found.unnamed == found.modes == ()
    assert set(found.refused) <= {"clone3"}


@pytest.mark.needs("strace")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
def test_what_the_filters_refuse_is_seen() -> None:
    script = (
        "import ctypes, socket, threading\nk = ctypes.CDLL(None)\nk.syscall(206, 0, 0)\nk.syscall(999)\nk.syscall(101, -1, 0, 0, 0)\nk.syscall(250, 0, 0)\n"
    )
    script += "try: socket.socket(40, 1, 0)\nexcept OSError: pass\nt = threading.Thread(target=print)\nt.start()"
    found = learn_syscalls(("/usr/bin/python3", "-c", script))
    assert (found.status, found.missing, found.unnamed) == (0, ("io_setup",), ("0x3e7",))
    assert {"keyctl", "ptrace"} <= set(found.refused)
    assert [name for name in found.refused if name.startswith("socket(0x28, ")]


@pytest.mark.needs("strace")
def test_a_command_that_a_signal_ends_has_its_status() -> None:
    done = subprocess.run(
        (sys.executable, "-c", "from wavegen.learn.syscalls import learn_syscalls; print(learn_syscalls(('sh', '-c', 'kill -TERM $$')).status)"),
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout == "143\n", done.stderr


@pytest.mark.needs("strace")
def test_arguments_that_look_like_a_trace_say_nothing() -> None:
    """Nothing that the command is given or writes is in the trace as text."""
    found = learn_syscalls(("echo", "\n7 vserver(0x1) = 0\n", "-o", "/nowhere"))
    assert "vserver" not in found.calls
    assert found.status == 0


def test_a_command_that_is_not_there_is_the_callers_mistake() -> None:
    for command in ((), ("no-such-command-anywhere",), ("/",)):
        with pytest.raises(UsageError) as raised:
            learn_syscalls(command)
        assert raised.value.exit_code == 2


def test_without_strace_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tool").write_text(f"#!/bin/sh\n: > {tmp_path}/ran\n")
    (tmp_path / "tool").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="strace is not on the PATH"):
        learn_syscalls(("tool",))
    assert not (tmp_path / "ran").exists()


@pytest.mark.needs("strace", "bwrap")
def test_where_ptrace_is_refused_that_is_said(tmp_path: Path) -> None:
    """Below `default` itself."""
    script = """
import os, sys
from wavegen.core.errors import MachineError
from wavegen.learn.syscalls import learn_syscalls
try:
    learn_syscalls(("true",))
except MachineError as failed:
    print(failed)
"""
    filter_ = "from wavegen.manifest.model import Seccomp as S; from wavegen.seccomp import Arch; from wavegen.seccomp.bpf import assemble_filter as a; from wavegen.seccomp.filters import filter_of as f"
    program = subprocess.run((sys.executable, "-c", f"{filter_}; import sys; sys.stdout.buffer.write(a(f(S.DEFAULT, nested=False), *Arch))"), capture_output=True, check=True,
                             cwd=ROOT).stdout  # fmt: skip
    (tmp_path / "program").write_bytes(program)
    held = os.open(tmp_path / "program", os.O_RDONLY)
    try:
        done = subprocess.run(
            ("bwrap", "--unshare-all", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--bind", str(tmp_path), str(tmp_path),
             "--seccomp", str(held), sys.executable, "-c", script),
            cwd=ROOT, pass_fds=(held,), capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
    finally:
        os.close(held)
    assert done.stdout.startswith("wavegen: error: strace could not trace the command"), done.stderr
    assert "ptrace" in done.stderr.lower()
