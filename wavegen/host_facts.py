"""What the host has, as those who try its shells need to know it."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from typing import Any

from wavegen.probes import NAMESPACES
from wavegen.tools import within


def namespaces() -> dict[str, int]:
    """The inode of each namespace of this process."""
    return {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in NAMESPACES if os.path.exists(f"/proc/self/ns/{name}")}


def inodes(paths: Iterable[str]) -> list[list[Any]]:
    """Path, device and inode of each that is there."""
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append([path, status.st_dev, status.st_ino])
    return found


def filters() -> int:
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
    while within(place, "/sys/fs/cgroup"):
        with contextlib.suppress(OSError), open(f"{place}/cgroup.subtree_control", encoding="ascii") as stream:
            places += [place] if "pids" in stream.read().split() else []
        place = os.path.dirname(place)
    for name in (f"{place}/wavegen-verify-{os.getpid()}" for place in places):
        with contextlib.suppress(OSError):
            os.mkdir(name)
            os.rmdir(name)
            return True
    return False


def memory() -> int:
    """Bytes of the machine, as the wrappers read them."""
    with open("/proc/meminfo", encoding="ascii") as stream:
        return int(stream.readline().split()[1]) * 1024


def mounts() -> list[str]:
    """What is mounted where on the host: device and mount point of each (proc(5), mountinfo).

    Not what of a device it is: of control groups a namespace of its own shows another.
    """
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
        return [f"{fields[2]} {fields[4]}" for fields in map(str.split, stream)]
