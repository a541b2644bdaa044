"""Attempts on processes, privileges, the environment, bounds and the terminal, and what must work in spite of them.

Longer than 400 lines: attempts, each on its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import re
import resource
import select
import signal
import socket
import stat
import struct
import subprocess
import threading
from collections.abc import Iterable, Iterator

from probe_common import CANARIES, ROLE, Answer, ask, code, in_child, libc, planted, read, refused, stopped, syscall, told, tried, unknown

_PTRACE_SEIZE = 0x4206
_CLONE_NEWUSER = 0x10000000
_NAMESPACE_FLAGS = {"mount": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000, "network": 0x40000000}
_PR_GET_NO_NEW_PRIVS = 39
_MAP_NORESERVE = 0x4000

# --- other processes


def _is_canary(pid: int) -> bool:
    """Whether a pid is the planted process: the number alone may be another's, in another namespace."""
    try:
        return planted(read(f"/proc/{pid}/cmdline"))
    except OSError:
        return False


def signals(pid: int) -> Iterator[Answer]:
    """Send the planted process a signal that does nothing by default; did it get it?"""
    try:
        os.kill(pid, signal.SIGURG)
    except OSError as failed:
        yield refused("the planted process", failed)
        return
    yield told("the planted process", "another process has that number", reached=ask("signalled"))


def traces(pid: int, address: int, size: int, descriptor: int) -> Iterator[Answer]:
    """Attach to the planted process, read its memory, take a descriptor of it."""
    canary = _is_canary(pid)

    def attach() -> None:
        # It does not stop the process, which is let go when the tracer ends (ptrace(2)).
        libc.ptrace.restype = ctypes.c_long
        ctypes.set_errno(0)
        if libc.ptrace(_PTRACE_SEIZE, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "")

    yield tried("ptrace", in_child(attach)) if canary else stopped("ptrace", "not among the processes")
    memory = ctypes.create_string_buffer(size)
    local = struct.pack("@PN", ctypes.addressof(memory), size)
    remote = struct.pack("@PN", address, size)
    try:
        syscall("process_vm_readv", pid, local, 1, remote, 1, 0)
        yield told("its memory", "another process's", reached=planted(memory.raw))
    except OSError as failed:
        yield refused("its memory", failed)
    try:
        handle = syscall("pidfd_open", pid, 0)
        taken = syscall("pidfd_getfd", handle, descriptor, 0)
        yield told("its descriptors", "another process's", reached=planted(os.pread(taken, 4096, 0)))
    except OSError as failed:
        yield refused("its descriptors", failed)


def memory_file(pid: int) -> Iterator[Answer]:
    """Open the memory of the planted process as a file."""
    if _is_canary(pid):
        yield tried("/proc/PID/mem", lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY)))
    else:
        yield stopped("/proc/PID/mem", "not among the processes")


def listed(pid: int) -> Iterator[Answer]:
    """Is the planted process among the processes in /proc?"""
    yield told("the planted process", "not among the processes", reached=_is_canary(pid))


def _near(pids: Iterable[int]) -> Iterator[tuple[str, int]]:
    """The given processes, and inside also PID 1 and the parent: outside these would be the user's own."""
    if not ROLE["outside"]:
        yield "PID 1", 1
        yield "the parent", os.getppid()
    for pid in pids:
        yield "the planted process", pid


def environments(pids: Iterable[int]) -> Iterator[Answer]:
    """Is a canary among the variables of this process, of its parent, of PID 1, or of the given ones?"""
    yield told("its own variables", "not there", reached=planted(b"\0".join(os.environb.values())))
    for name, pid in _near(pids):
        try:
            yield told(name, "not there", reached=planted(read(f"/proc/{pid}/environ", 1 << 20)))
        except OSError as failed:
            yield refused(name, failed)


def command_lines(pids: Iterable[int], passed: Iterable[str]) -> Iterator[Answer]:
    """Does a canary, or the value of a variable that is passed on, stand in a command line?"""
    CANARIES.update(passed)
    for name, pid in _near(pids):
        try:
            yield told(name, "not there", reached=planted(read(f"/proc/{pid}/cmdline", 1 << 20)))
        except OSError as failed:
            yield refused(name, failed)


def roots(pids: Iterable[int], path: str) -> Iterator[Answer]:
    """Reach a file of the host through the root or the working directory of another process."""
    for pid in pids:
        for link in ("root", "cwd"):
            name = f"/proc/PID/{link}"
            try:
                yield told(name, "another file is there", reached=planted(read(f"/proc/{pid}/{link}{path if link == 'root' else '/canary'}")))
            except OSError as failed:
                yield refused(name, failed)


# --- namespaces and privileges


def same_namespaces(host: dict[str, int]) -> Iterator[Answer]:
    """Is a namespace the host's?"""
    for name, inode in sorted(host.items()):
        try:
            yield told(name, "its own", reached=os.stat(f"/proc/self/ns/{name}").st_ino == inode)
        except OSError as failed:
            yield unknown(name, code(failed.errno or 0))


def new_privileges() -> Iterator[Answer]:
    """May an exec gain privileges?"""
    yield told("no_new_privs", "set", reached=libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)


def _status() -> dict[str, str]:
    lines = read("/proc/self/status").decode().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def capabilities() -> Iterator[Answer]:
    """Is a capability left in any of the five sets?"""
    status = _status()
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        yield told(name, "empty", reached=int(status[name], 16) != 0)


def setuid_programs(helper: str) -> Iterator[Answer]:
    """Does a program that runs as its owner do so? The planted one prints the user that it is."""
    if os.path.exists(helper):
        try:
            done = subprocess.run([helper, "-u"], capture_output=True, text=True, timeout=1, check=False)
            yield told("a planted program", "runs as its caller", reached=done.stdout.strip() not in ("", str(os.getuid())))
        except OSError as failed:
            yield refused("a planted program", failed)
    # One of the system's: where no privilege is gained, the loader shows the vector that says so (ld.so(8)).
    for path in ("/usr/bin/mount", "/bin/mount", "/usr/bin/newgrp", "/usr/bin/chsh"):
        try:
            found = os.stat(path)
        except OSError:
            continue
        if not found.st_mode & stat.S_ISUID or found.st_uid == os.getuid():
            continue
        done = subprocess.run([path, "--version"], env={"LD_SHOW_AUXV": "1"}, capture_output=True, text=True, timeout=1, check=False)
        secure = re.search(r"AT_SECURE:\s*(\d)", done.stdout)
        yield told(path, "runs as its caller", reached=secure is None or secure[1] != "0")
        return


def new_namespaces() -> Iterator[Answer]:
    """Make namespaces of one's own: each opens more of the kernel."""
    for name, flag in _NAMESPACE_FLAGS.items():
        yield tried(f"unshare {name}", in_child(syscall, "unshare", flag))


def new_user_namespace() -> Iterator[Answer]:
    """Make a user namespace, in which one has every capability."""
    yield tried("unshare user", in_child(lambda: syscall("unshare", _CLONE_NEWUSER)))

    def cloned() -> None:
        pid = syscall("clone", _CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    yield tried("clone user", in_child(cloned))


def enters_namespaces(pid: int) -> Iterator[Answer]:
    """Enter the mount namespace of the planted process, of PID 1, and of a descriptor."""
    for name, number in (("the planted process", pid), ("PID 1", 1)):

        def enter(number: int = number) -> None:
            handle = os.open(f"/proc/{number}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                syscall("setns", handle, 0x00020000)
            finally:
                os.close(handle)

        yield tried(name, in_child(enter))


def other_users() -> Iterator[Answer]:
    """Become another user, or drop the groups that bind."""
    other = 65534 if os.getuid() != 65534 else 65533
    yield tried("setuid", in_child(lambda: os.setuid(other)))
    yield tried("setgid", in_child(lambda: os.setgid(other)))
    yield tried("setgroups", in_child(lambda: os.setgroups([other])))


def groups(paths: Iterable[str]) -> Iterator[Answer]:
    """Use what only members of a group may: disks, virtual machines, docker."""
    for path in paths:
        yield told(path, "ENOENT" if not os.path.exists(path) else "EACCES", reached=os.access(path, os.R_OK | os.W_OK))


def becomes_root() -> Iterator[Answer]:
    """Become another user by sudo and its like. Only root tries it: a user's attempt would be reported."""
    for name in ("sudo", "doas"):
        if os.geteuid() != 0:
            yield unknown(name, "not tried: it would be reported")
            continue
        try:
            done = subprocess.run([name, "-n", "-u", "nobody", "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=1.5, check=False)
        except OSError as failed:
            yield unknown(name, code(failed.errno or 0))
            continue
        yield told(name, f"status {done.returncode}", reached=done.returncode == 0)


def shared_memory(identifier: int, posix: str, queue: str) -> Iterator[Answer]:
    """Find what the host shares with its own processes."""
    libc.shmat.restype = ctypes.c_void_p
    ctypes.set_errno(0)
    address = libc.shmat(identifier, None, 0o10000)  # SHM_RDONLY
    if address in (None, ctypes.c_void_p(-1).value):
        yield refused("System V memory", OSError(ctypes.get_errno(), ""))
    else:
        yield told("System V memory", "another segment", reached=planted(ctypes.string_at(address, 64)))
        libc.shmdt(ctypes.c_void_p(address))
    try:
        yield told("POSIX memory", "another file", reached=planted(read(f"/dev/shm/{posix}")))
    except OSError as failed:
        yield refused("POSIX memory", failed)
    yield tried("a message queue", lambda: os.close(syscall("mq_open", queue.encode(), os.O_RDONLY, 0, None)))


def real_time() -> Iterator[Answer]:
    """Take more than a fair share: real-time scheduling, a higher priority, bounds lifted."""
    yield tried("real-time scheduling", in_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))))
    yield tried("a higher priority", in_child(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)))

    def lift() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard + 1))
        except ValueError as failed:
            raise OSError(1, "") from failed

    yield tried("a higher bound", in_child(lift))


# --- bounds


def starts(most: int) -> Iterator[Answer]:
    """Start more threads than the bound, which counts them like processes, in a child; all of them end with it."""

    def start() -> None:
        threading.stack_size(65536)
        wait = threading.Lock()
        wait.acquire()
        for _ in range(most + 20):
            try:
                threading.Thread(target=wait.acquire, daemon=True).start()
            except RuntimeError:
                os._exit(errno.EDQUOT)

    name, state, detail = tried(f"{most} processes", in_child(start))
    yield (name, state, "EAGAIN" if detail == "EDQUOT" else detail)


def allocates(most: int) -> Iterator[Answer]:
    """Ask for half as much memory again as the bound; none of it is used."""
    try:
        mmap.mmap(-1, most + most // 2, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE).close()
    except OSError as failed:
        yield stopped(f"{most} bytes", code(failed.errno or 0))
    else:
        # Control groups bound what is used, not what is asked for; using it would use the machine up.
        yield told(f"{most} bytes", "bounded for all together", reached=ROLE["outside"] or not 0 < _of_group() <= most)


def _of_group() -> int:
    """Bytes that the control group of this namespace may use, as the kernel says, by either version; 0 where nothing is told."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return int(read(path))
    return 0


def bounds(most: int) -> Iterator[Answer]:
    """Is a dump of memory written where a program crashes? May more files be open than the bound?"""
    # With a bound of 1 the kernel starts no program of the host to take the dump either; 0 does not keep it from that (core(5)).
    hard, piped = resource.getrlimit(resource.RLIMIT_CORE)[1], read("/proc/sys/kernel/core_pattern").startswith(b"|")
    yield told("core dumps", "none", reached=hard not in (0, 1) or (hard == 0 and piped))
    yield told("open files", "bounded", reached=not 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= most)


# --- identity


def host_name(host: str) -> Iterator[Answer]:
    """Is the host's name known inside? By digest."""
    yield told("the host's name", "another name", reached=hashlib.sha256(os.uname().nodename.encode()).hexdigest() == host)


# --- what must work


def _in_thread() -> None:
    done: list[int] = []
    thread = threading.Thread(target=done.append, args=(1,))
    thread.start()
    thread.join(1)
    if not done:
        raise OSError(errno.EAGAIN, "")  # too slow, which says nothing


def _in_subprocess() -> None:
    if subprocess.run(["/bin/sh", "-c", "echo x | cat"], capture_output=True, text=True, timeout=1.5, check=False).stdout != "x\n":
        raise OSError(errno.EIO, "")


def _in_database() -> None:
    import sqlite3

    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("create table t (x)")


def _serve_itself() -> None:
    import asyncio

    async def talk() -> None:
        started = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*started.sockets[0].getsockname())
        writer.close()
        started.close()

    asyncio.run(asyncio.wait_for(talk(), 1.5))


def _watch() -> None:
    if libc.inotify_init1(0) < 0:
        raise OSError(ctypes.get_errno(), "")
    select.epoll().close()


def _map() -> None:
    with mmap.mmap(-1, 4096) as block:
        block[0] = 1


def _pair() -> None:
    for one in socket.socketpair():
        one.close()


def _own_terminal() -> None:
    for one in os.openpty():
        os.close(one)


def programs() -> Iterator[Answer]:
    """Ordinary programs do ordinary things."""
    tries = {
        "threads": _in_thread, "subprocesses": _in_subprocess, "a database": _in_database, "inotify and epoll": _watch, "mmap": _map,
        "a server on its own loopback": _serve_itself, "socket pairs": _pair, "a terminal": _own_terminal,
    }  # fmt: skip
    for name, action in tries.items():
        yield tried(name, action)


def locks(paths: Iterable[str]) -> Iterator[Answer]:
    """A file in the directory is locked."""

    def lock(path: str) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
            os.unlink(path)

    for path in paths:
        yield tried(path, lock, path)


def git_commands(git: str, directory: str) -> Iterator[Answer]:
    """git status, add and commit in the project."""
    if not git:
        yield unknown("git", "not installed")
        return
    settings = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false", "-c", f"safe.directory={directory}"]
    for command in (("status", "--porcelain"), ("commit", "--allow-empty", "--quiet", "--message=x"), ("branch", "--list")):
        try:
            done = subprocess.run([git, *settings, *command], cwd=directory, capture_output=True, text=True, timeout=1.5, check=False, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            yield unknown("git", "not installed")
            return
        yield told(f"git {command[0]}", done.stderr.strip().split("\n")[-1][:80], reached=done.returncode == 0)


ATTEMPTS = {
    "signals": signals,
    "traces": traces,
    "memory_file": memory_file,
    "listed": listed,
    "environments": environments,
    "command_lines": command_lines,
    "roots": roots,
    "same_namespaces": same_namespaces,
    "new_privileges": new_privileges,
    "capabilities": capabilities,
    "setuid_programs": setuid_programs,
    "new_namespaces": new_namespaces,
    "new_user_namespace": new_user_namespace,
    "enters_namespaces": enters_namespaces,
    "other_users": other_users,
    "groups": groups,
    "becomes_root": becomes_root,
    "shared_memory": shared_memory,
    "real_time": real_time,
    "starts": starts,
    "allocates": allocates,
    "bounds": bounds,
    "host_name": host_name,
    "programs": programs,
    "locks": locks,
    "git_commands": git_commands,
}
