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

from probe_common import (
    CANARIES,
    ROLE,
    Answer,
    answer_for_error,
    answer_for_outcome,
    answer_stopped,
    answer_unknown,
    ask_harness,
    contains_canary,
    errno_name,
    in_child,
    invoke_syscall_by_name,
    libc,
    read_file_start,
    try_action,
)

_PTRACE_SEIZE = 0x4206
_CLONE_NEWUSER = 0x10000000
_NAMESPACE_FLAGS = {"mount": 0x00020000, "uts": 0x04000000, "ipc": 0x08000000, "user": 0x10000000, "pid": 0x20000000, "network": 0x40000000}
_PR_GET_NO_NEW_PRIVS = 39
_MAP_NORESERVE = 0x4000

# --- other processes


def _is_canary(pid: int) -> bool:
    """Whether a pid is the planted process: the number alone may be another's, in another namespace."""
    try:
        return contains_canary(read_file_start(f"/proc/{pid}/cmdline"))
    except OSError:
        return False


def signal_canary_process(pid: int) -> Iterator[Answer]:
    """Send the planted process a signal that does nothing by default; did it get it?"""
    try:
        os.kill(pid, signal.SIGURG)
    except OSError as failed:
        yield answer_for_error("the planted process", failed)
        return
    yield answer_for_outcome("the planted process", "another process has that number", reached=ask_harness("signalled"))


def trace_canary_process(pid: int, address: int, size: int, descriptor: int) -> Iterator[Answer]:
    """Attach to the planted process, read its memory, take a descriptor of it."""
    canary = _is_canary(pid)

    def attach_by_ptrace() -> None:
        # It does not stop the process, which is let go when the tracer ends (ptrace(2)).
        libc.ptrace.restype = ctypes.c_long
        ctypes.set_errno(0)
        if libc.ptrace(_PTRACE_SEIZE, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "")

    yield try_action("ptrace", in_child(attach_by_ptrace)) if canary else answer_stopped("ptrace", "not among the processes")
    memory = ctypes.create_string_buffer(size)
    local = struct.pack("@PN", ctypes.addressof(memory), size)
    remote = struct.pack("@PN", address, size)
    try:
        invoke_syscall_by_name("process_vm_readv", pid, local, 1, remote, 1, 0)
        yield answer_for_outcome("its memory", "another process's", reached=contains_canary(memory.raw))
    except OSError as failed:
        yield answer_for_error("its memory", failed)
    try:
        handle = invoke_syscall_by_name("pidfd_open", pid, 0)
        taken = invoke_syscall_by_name("pidfd_getfd", handle, descriptor, 0)
        yield answer_for_outcome("its descriptors", "another process's", reached=contains_canary(os.pread(taken, 4096, 0)))
    except OSError as failed:
        yield answer_for_error("its descriptors", failed)


def memory_file(pid: int) -> Iterator[Answer]:
    """Open the memory of the planted process as a file."""
    if _is_canary(pid):
        yield try_action("/proc/PID/mem", lambda: os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY)))
    else:
        yield answer_stopped("/proc/PID/mem", "not among the processes")


def find_canary_process(pid: int) -> Iterator[Answer]:
    """Is the planted process among the processes in /proc?"""
    yield answer_for_outcome("the planted process", "not among the processes", reached=_is_canary(pid))


def _nearby_processes(pids: Iterable[int]) -> Iterator[tuple[str, int]]:
    """The given processes, and inside also PID 1 and the parent: outside these would be the user's own."""
    if not ROLE["outside"]:
        yield "PID 1", 1
        yield "the parent", os.getppid()
    for pid in pids:
        yield "the planted process", pid


def read_environments(pids: Iterable[int]) -> Iterator[Answer]:
    """Is a canary among the variables of this process, of its parent, of PID 1, or of the given ones?"""
    yield answer_for_outcome("its own variables", "not there", reached=contains_canary(b"\0".join(os.environb.values())))
    for name, pid in _nearby_processes(pids):
        try:
            yield answer_for_outcome(name, "not there", reached=contains_canary(read_file_start(f"/proc/{pid}/environ", 1 << 20)))
        except OSError as failed:
            yield answer_for_error(name, failed)


def command_lines(pids: Iterable[int], passed: Iterable[str]) -> Iterator[Answer]:
    """Does a canary, or the value of a variable that is passed on, stand in a command line?"""
    CANARIES.update(passed)
    for name, pid in _nearby_processes(pids):
        try:
            yield answer_for_outcome(name, "not there", reached=contains_canary(read_file_start(f"/proc/{pid}/cmdline", 1 << 20)))
        except OSError as failed:
            yield answer_for_error(name, failed)


def read_through_process_roots(pids: Iterable[int], path: str) -> Iterator[Answer]:
    """Reach a file of the host through the root or the working directory of another process."""
    for pid in pids:
        for link in ("root", "cwd"):
            name = f"/proc/PID/{link}"
            try:
                yield answer_for_outcome(
                    name, "another file is there", reached=contains_canary(read_file_start(f"/proc/{pid}/{link}{path if link == 'root' else '/canary'}"))
                )
            except OSError as failed:
                yield answer_for_error(name, failed)


# --- namespaces and privileges


def same_namespaces(host: dict[str, int]) -> Iterator[Answer]:
    """Is a namespace the host's?"""
    for name, inode in sorted(host.items()):
        try:
            yield answer_for_outcome(name, "its own", reached=os.stat(f"/proc/self/ns/{name}").st_ino == inode)
        except OSError as failed:
            yield answer_unknown(name, errno_name(failed.errno or 0))


def new_privileges() -> Iterator[Answer]:
    """May an exec gain privileges?"""
    yield answer_for_outcome("no_new_privs", "set", reached=libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1)


def _own_process_status() -> dict[str, str]:
    lines = read_file_start("/proc/self/status").decode().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def check_capabilities() -> Iterator[Answer]:
    """Is a capability left in any of the five sets?"""
    status = _own_process_status()
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        yield answer_for_outcome(name, "empty", reached=int(status[name], 16) != 0)


def setuid_programs(helper: str) -> Iterator[Answer]:
    """Does a program that runs as its owner do so? The planted one prints the user that it is."""
    if os.path.exists(helper):
        try:
            done = subprocess.run([helper, "-u"], capture_output=True, text=True, timeout=1, check=False)
            yield answer_for_outcome("a planted program", "runs as its caller", reached=done.stdout.strip() not in ("", str(os.getuid())))
        except OSError as failed:
            yield answer_for_error("a planted program", failed)
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
        yield answer_for_outcome(path, "runs as its caller", reached=secure is None or secure[1] != "0")
        return


def new_namespaces() -> Iterator[Answer]:
    """Make namespaces of one's own: each opens more of the kernel."""
    for name, flag in _NAMESPACE_FLAGS.items():
        yield try_action(f"unshare {name}", in_child(invoke_syscall_by_name, "unshare", flag))


def new_user_namespace() -> Iterator[Answer]:
    """Make a user namespace, in which one has every capability."""
    yield try_action("unshare user", in_child(lambda: invoke_syscall_by_name("unshare", _CLONE_NEWUSER)))

    def clone_user_namespace() -> None:
        pid = invoke_syscall_by_name("clone", _CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    yield try_action("clone user", in_child(clone_user_namespace))


def enters_namespaces(pid: int) -> Iterator[Answer]:
    """Enter the mount namespace of the planted process, of PID 1, and of a descriptor."""
    for name, number in (("the planted process", pid), ("PID 1", 1)):

        def enter_mount_namespace(number: int = number) -> None:
            handle = os.open(f"/proc/{number}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            try:
                invoke_syscall_by_name("setns", handle, 0x00020000)
            finally:
                os.close(handle)

        yield try_action(name, in_child(enter_mount_namespace))


def other_users() -> Iterator[Answer]:
    """Become another user, or drop the groups that bind."""
    other = 65534 if os.getuid() != 65534 else 65533
    yield try_action("setuid", in_child(lambda: os.setuid(other)))
    yield try_action("setgid", in_child(lambda: os.setgid(other)))
    yield try_action("setgroups", in_child(lambda: os.setgroups([other])))


def access_group_devices(paths: Iterable[str]) -> Iterator[Answer]:
    """Use what only members of a group may: disks, virtual machines, docker."""
    for path in paths:
        yield answer_for_outcome(path, "ENOENT" if not os.path.exists(path) else "EACCES", reached=os.access(path, os.R_OK | os.W_OK))


def becomes_root() -> Iterator[Answer]:
    """Become another user by sudo and its like. Only root tries it: a user's attempt would be reported."""
    for name in ("sudo", "doas"):
        if os.geteuid() != 0:
            yield answer_unknown(name, "not tried: it would be reported")
            continue
        try:
            done = subprocess.run([name, "-n", "-u", "nobody", "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=1.5, check=False)
        except OSError as failed:
            yield answer_unknown(name, errno_name(failed.errno or 0))
            continue
        yield answer_for_outcome(name, f"status {done.returncode}", reached=done.returncode == 0)


def shared_memory(identifier: int, posix: str, queue: str) -> Iterator[Answer]:
    """Find what the host shares with its own processes."""
    libc.shmat.restype = ctypes.c_void_p
    ctypes.set_errno(0)
    address = libc.shmat(identifier, None, 0o10000)  # SHM_RDONLY
    if address in (None, ctypes.c_void_p(-1).value):
        yield answer_for_error("System V memory", OSError(ctypes.get_errno(), ""))
    else:
        yield answer_for_outcome("System V memory", "another segment", reached=contains_canary(ctypes.string_at(address, 64)))
        libc.shmdt(ctypes.c_void_p(address))
    try:
        yield answer_for_outcome("POSIX memory", "another file", reached=contains_canary(read_file_start(f"/dev/shm/{posix}")))
    except OSError as failed:
        yield answer_for_error("POSIX memory", failed)
    yield try_action("a message queue", lambda: os.close(invoke_syscall_by_name("mq_open", queue.encode(), os.O_RDONLY, 0, None)))


def real_time() -> Iterator[Answer]:
    """Take more than a fair share: real-time scheduling, a higher priority, bounds lifted."""
    yield try_action("real-time scheduling", in_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))))
    yield try_action("a higher priority", in_child(lambda: os.setpriority(os.PRIO_PROCESS, 0, -5)))

    def raise_open_file_limit() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard + 1))
        except ValueError as failed:
            raise OSError(1, "") from failed

    yield try_action("a higher bound", in_child(raise_open_file_limit))


# --- bounds


def start_many_threads(most: int) -> Iterator[Answer]:
    """Start more threads than the bound, which counts them like processes, in a child; all of them end with it."""

    def start_threads_past_bound() -> None:
        threading.stack_size(65536)
        wait = threading.Lock()
        wait.acquire()
        for _ in range(most + 20):
            try:
                threading.Thread(target=wait.acquire, daemon=True).start()
            except RuntimeError:
                os._exit(errno.EDQUOT)

    name, state, detail = try_action(f"{most} processes", in_child(start_threads_past_bound))
    yield (name, state, "EAGAIN" if detail == "EDQUOT" else detail)


def allocate_past_bound(most: int) -> Iterator[Answer]:
    """Ask for half as much memory again as the bound; none of it is used."""
    try:
        mmap.mmap(-1, most + most // 2, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE).close()
    except OSError as failed:
        yield answer_stopped(f"{most} bytes", errno_name(failed.errno or 0))
    else:
        # Control groups bound what is used, not what is asked for; using it would use the machine up.
        yield answer_for_outcome(f"{most} bytes", "bounded for all together", reached=ROLE["outside"] or not 0 < _cgroup_memory_limit() <= most)


def _cgroup_memory_limit() -> int:
    """Bytes that the control group of this namespace may use, as the kernel says, by either version; 0 where nothing is told."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return int(read_file_start(path))
    return 0


def check_resource_limits(most: int) -> Iterator[Answer]:
    """Is a dump of memory written where a program crashes? May more files be open than the bound?"""
    # With a bound of 1 the kernel starts no program of the host to take the dump either; 0 does not keep it from that (core(5)).
    hard, piped = resource.getrlimit(resource.RLIMIT_CORE)[1], read_file_start("/proc/sys/kernel/core_pattern").startswith(b"|")
    yield answer_for_outcome("core dumps", "none", reached=hard not in (0, 1) or (hard == 0 and piped))
    yield answer_for_outcome("open files", "bounded", reached=not 0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] <= most)


# --- identity


def host_name(host: str) -> Iterator[Answer]:
    """Is the host's name known inside? By digest."""
    yield answer_for_outcome("the host's name", "another name", reached=hashlib.sha256(os.uname().nodename.encode()).hexdigest() == host)


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

    async def connect_to_itself() -> None:
        started = await asyncio.start_server(lambda _, w: w.close(), "127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*started.sockets[0].getsockname())
        writer.close()
        started.close()

    asyncio.run(asyncio.wait_for(connect_to_itself(), 1.5))


def _use_inotify_and_epoll() -> None:
    if libc.inotify_init1(0) < 0:
        raise OSError(ctypes.get_errno(), "")
    select.epoll().close()


def _map_memory() -> None:
    with mmap.mmap(-1, 4096) as block:
        block[0] = 1


def _make_socket_pair() -> None:
    for one in socket.socketpair():
        one.close()


def _own_terminal() -> None:
    for one in os.openpty():
        os.close(one)


def run_ordinary_programs() -> Iterator[Answer]:
    """Ordinary programs do ordinary things."""
    tries = {
        "threads": _in_thread, "subprocesses": _in_subprocess, "a database": _in_database, "inotify and epoll": _use_inotify_and_epoll, "mmap": _map_memory,
        "a server on its own loopback": _serve_itself, "socket pairs": _make_socket_pair, "a terminal": _own_terminal,
    }  # fmt: skip
    for name, action in tries.items():
        yield try_action(name, action)


def lock_new_files(paths: Iterable[str]) -> Iterator[Answer]:
    """A file in the directory is locked."""

    def create_and_lock(path: str) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(handle)
            os.unlink(path)

    for path in paths:
        yield try_action(path, create_and_lock, path)


def git_commands(git: str, directory: str) -> Iterator[Answer]:
    """git status, add and commit in the project."""
    if not git:
        yield answer_unknown("git", "not installed")
        return
    settings = ["-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "commit.gpgsign=false", "-c", f"safe.directory={directory}"]
    for command in (("status", "--porcelain"), ("commit", "--allow-empty", "--quiet", "--message=x"), ("branch", "--list")):
        try:
            done = subprocess.run([git, *settings, *command], cwd=directory, capture_output=True, text=True, timeout=1.5, check=False, stdin=subprocess.DEVNULL)
        except FileNotFoundError:
            yield answer_unknown("git", "not installed")
            return
        yield answer_for_outcome(f"git {command[0]}", done.stderr.strip().split("\n")[-1][:80], reached=done.returncode == 0)


ATTEMPTS = {
    "signals": signal_canary_process,
    "traces": trace_canary_process,
    "memory_file": memory_file,
    "listed": find_canary_process,
    "environments": read_environments,
    "command_lines": command_lines,
    "roots": read_through_process_roots,
    "same_namespaces": same_namespaces,
    "new_privileges": new_privileges,
    "capabilities": check_capabilities,
    "setuid_programs": setuid_programs,
    "new_namespaces": new_namespaces,
    "new_user_namespace": new_user_namespace,
    "enters_namespaces": enters_namespaces,
    "other_users": other_users,
    "groups": access_group_devices,
    "becomes_root": becomes_root,
    "shared_memory": shared_memory,
    "real_time": real_time,
    "starts": start_many_threads,
    "allocates": allocate_past_bound,
    "bounds": check_resource_limits,
    "host_name": host_name,
    "programs": run_ordinary_programs,
    "locks": lock_new_files,
    "git_commands": git_commands,
}
