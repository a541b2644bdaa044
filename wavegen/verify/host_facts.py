"""What the host has, as those who try its shells need to know it."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import stat
import subprocess
from collections.abc import Iterable
from typing import Any

from wavegen.core.host_programs import SYSTEM, find_host_program, is_path_within
from wavegen.verify.model import NAMESPACES


def namespace_inodes() -> dict[str, int]:
    """The inode of each namespace of this process."""
    return {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in NAMESPACES if os.path.exists(f"/proc/self/ns/{name}")}


_COPIED = 256 * 1024
"""Bytes up to which the launcher copies a file of the system in place of mounting it (launcher/mounts.py)."""


def inode_records(paths: Iterable[str], *, contents: bool = False) -> list[list[Any]]:
    """Path, device, inode and a mark of each that is there: by the mark a copy is known.

    `contents`: the mark of a small file is the digest of its content (of files that everybody may read); otherwise it is its size, and nothing is
    opened.
    """
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        plain = stat.S_ISREG(status.st_mode)
        mark: str | int = status.st_size if plain else 0
        if contents:
            mark = _content_digest(path) if plain and status.st_size <= _COPIED else ""
        found.append([path, status.st_dev, status.st_ino, mark])
    return found


def _content_digest(path: str) -> str:
    try:
        with open(path, "rb") as stream:
            return hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return ""


def git_settings(root: str) -> list[str]:
    """What git runs or follows of a project's own repository, wherever its .git leads, as git itself tells: hooks, settings, and those of a worktree."""
    git = find_host_program("git", root, SYSTEM)
    names = ("hooks", "config", "config.worktree", "info/attributes", "commondir")
    if not git or not os.path.lexists(os.path.join(root, ".git")):
        return []
    # Settings of the repository are not obeyed by rev-parse, but for where hooks are.
    command = [git, "-C", root, "rev-parse", "--path-format=absolute", *(word for name in names for word in ("--git-path", name))]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="surrogateescape", check=False)
    return [path for path in done.stdout.splitlines() if os.path.lexists(path)] if done.returncode == 0 else []


def private_files(top: str) -> list[str]:
    """Files below a directory that others than their owner and group cannot read, a thousand at most; links are left out."""
    found: list[str] = []
    for where, _, names in os.walk(top):
        for path in (os.path.join(where, name) for name in names):
            with contextlib.suppress(OSError):
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode) and not status.st_mode & 0o004:
                    found.append(path)
    return sorted(found)[:1000]


_NOT_SHOWN = ("dev", "proc")


def top_level() -> list[str]:
    """The directories of the root that everybody may read, and links to such; /dev and /proc are made anew."""
    found = [f"/{name}" for name in sorted(os.listdir("/")) if name not in _NOT_SHOWN]
    return [path for path in found if os.path.isdir(path) and os.stat(path).st_mode & _READABLE == _READABLE]


_READABLE = stat.S_IROTH | stat.S_IXOTH


def count_seccomp_filters() -> int:
    """How many system call filters this process has (since Linux 5.9); before, 0, or -1 where it has some."""
    with open("/proc/self/status", encoding="ascii") as stream:
        status = dict(line.rstrip("\n").split(":\t", 1) for line in stream if ":\t" in line)
    return int(status["Seccomp_filters"]) if "Seccomp_filters" in status else 0 if status.get("Seccomp", "0") == "0" else -1


WITH_SCOPES = 6
"""The ABI of Landlock that knows scopes (Linux 6.12)."""


def landlock_abi() -> int:
    """The ABI of the kernel's Landlock, asked for as landlock(7) says; below 1 where there is none."""
    syscall = ctypes.CDLL(None).syscall
    syscall.restype = ctypes.c_long
    return int(syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def makes_groups() -> bool:
    """Whether a control group that counts processes can be made here: as the wrappers do it, of either version."""
    with open("/proc/self/cgroup", encoding="utf-8") as stream:
        groups = {names: path.rstrip("\n") for _, names, path in (line.split(":", 2) for line in stream)}
    places = [f"/sys/fs/cgroup/pids{groups.get('pids', '')}", "/sys/fs/cgroup/pids"]
    place = f"/sys/fs/cgroup{groups.get('', '')}".rstrip("/")
    while is_path_within(place, "/sys/fs/cgroup"):
        with contextlib.suppress(OSError), open(f"{place}/cgroup.subtree_control", encoding="ascii") as stream:
            places += [place] if "pids" in stream.read().split() else []
        place = os.path.dirname(place)
    for name in (f"{place}/wavegen-verify-{os.getpid()}" for place in places):
        with contextlib.suppress(OSError):
            os.mkdir(name)
            os.rmdir(name)
            return True
    return False


def machine_memory() -> int:
    """Bytes of the machine, as the wrappers read them."""
    with open("/proc/meminfo", encoding="ascii") as stream:
        return int(stream.readline().split()[1]) * 1024


def list_host_mounts() -> list[str]:
    """What is mounted where on the host: device and mount point of each (proc(5), mountinfo).

    Not what of a device it is: of control groups a namespace of its own shows another.
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        return [f"{fields[2]} {fields[4]}" for fields in map(str.split, stream)]
