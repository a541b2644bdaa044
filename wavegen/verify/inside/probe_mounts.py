"""Attempts on what is mounted: what no rule asks for, what can be undone, what is writable."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Iterable, Iterator

from probe_common import (
    ROLE,
    Answer,
    answer_for_error,
    answer_for_outcome,
    answer_stopped,
    ask_harness,
    in_child,
    invoke_syscall_by_name,
    libc,
    read_file_start,
    try_action,
)

_AT_FDCWD = -100
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MNT_DETACH, _OPEN_TREE_CLONE, _CLONE_NEWNS = 2, 1, 0x00020000
_CAP_SYS_ADMIN = 21


def writable_mounts(paths: Iterable[str]) -> Iterator[Answer]:
    """Is what is mounted there writable, whoever asks? By the flags of the mount."""
    for path in paths:
        try:
            yield answer_for_outcome(path, "read-only", reached=not os.statvfs(path).f_flag & os.ST_RDONLY)
        except OSError as failed:
            yield answer_for_error(path, failed)


def writable_to_root(paths: Iterable[str]) -> Iterator[Answer]:
    """The same of what mostly nobody but root may write anyway: that is mounted read-only for root alone."""
    for path, state, detail in writable_mounts(paths):
        meant = os.geteuid() == 0 or path in ("/proc/sys", "/proc/pressure")
        yield answer_for_outcome(path, detail or "not root", reached=state == "reached" and meant)


def fill_masked_directories(paths: Iterable[str]) -> Iterator[Answer]:
    """Can a directory in place of a hidden one be filled? It may take a page, and what is in it is this shell's alone. Outside: is it writable at all?"""
    kinds = {mount.at: mount.kind for mount in map(_Mount, read_file_start("/proc/self/mountinfo", 1 << 20).decode("utf-8", "surrogateescape").splitlines())}
    for path in paths:
        try:
            read_only = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
            # What is no tmpfs would be the host's own: it is not touched.
            if read_only or ROLE["outside"] or kinds.get(path) != "tmpfs" or os.listdir(path):
                yield answer_for_outcome(path, "read-only", reached=not read_only)
            else:
                yield try_action(path, _fill_directory, path)
        except OSError as failed:
            yield answer_for_error(path, failed)


def _fill_directory(directory: str) -> None:
    mode = os.stat(directory).st_mode & 0o7777
    with contextlib.suppress(OSError):
        os.chmod(directory, 0o700)
    try:
        handle = os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            if os.write(handle, bytes(_PAGES)) < _PAGES:
                raise OSError(errno.ENOSPC, "")
        finally:
            os.close(handle)
    finally:
        with contextlib.suppress(OSError):
            os.chmod(directory, mode)


_PAGES = 1 << 17
"""Bytes: more than one page, however large the processor's are (64 KiB)."""
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_IN_DEV = {"pts": "devpts", "shm": "tmpfs", "mqueue": "mqueue"}


class _Mount:
    """A line of the list of mounts (proc(5), mountinfo)."""

    def __init__(self, line: str) -> None:
        before, _, after = line.partition(" - ")
        self.number, self.parent, self.device, self.root, place, options = before.split()[:6]
        self.key, self.kind, self.writable = f"{self.device} {place}", after.split()[0], "rw" in options.split(",")
        self.at = place.encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1").decode("utf-8", "surrogateescape")

    def is_common_device(self) -> bool:
        """Whether it is one of the few devices that everybody may use, by its numbers."""
        name = self.at[5:]
        if not self.at.startswith("/dev/") or name in _IN_DEV:
            return self.at.startswith("/dev/") and self.kind == _IN_DEV[name]
        try:
            found = os.stat(self.at)
        except OSError:
            return False
        # The console is the terminal, if there is one: majors 4, 5 and 136 to 143 (admin-guide/devices.txt).
        numbers = (os.major(found.st_rdev), os.minor(found.st_rdev))
        return numbers == _DEVICES.get(name) or (name == "console" and (numbers[0] in (4, 5) or 136 <= numbers[0] <= 143))


def _covered_mounts(mounts: Iterable[_Mount]) -> set[str]:
    """The numbers of mounts that nobody gets to: another one stands where their parent is mounted, and they are below that."""
    by_number = {mount.number: mount for mount in mounts}
    over = {mount.parent for mount in by_number.values() if mount.parent in by_number and by_number[mount.parent].at == mount.at}
    found = {mount.number for mount in by_number.values() if mount.parent in over and mount.at != by_number[mount.parent].at}
    while more := {mount.number for mount in by_number.values() if mount.parent in found} - found:
        found |= more
    return found


def _is_below_any(path: str, places: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{place.rstrip('/')}/") for place in places)


def _is_engine_mount(mount: _Mount, places: Iterable[str]) -> bool:
    """Whether it is what an engine mounts: files of its own, control groups, and masks over what the kernel shows."""
    of_kernel, groups = mount.at.startswith(("/proc/", "/sys/")), mount.at.startswith("/sys/fs/cgroup")
    # A file is hidden by a mount of /dev/null, which is the container's own or, for a user, the host's.
    null = mount.root == "/null" and mount.kind in ("tmpfs", "devtmpfs")
    if of_kernel and (null or (mount.kind == "tmpfs" and (groups or not mount.writable))):
        return True
    return not mount.writable and (mount.at in places or (groups and mount.kind.startswith("cgroup")))


def strange_mounts(  # noqa: PLR0913, PLR0917  by keyword
    expected: Iterable[str], host: Iterable[str], writable: Iterable[str], project: str, home: str, engine: Iterable[str] = ()
) -> Iterator[Answer]:
    """Is something mounted that no rule asks for, or writable that no rule lets be written? By the list of mounts.

    What the host has at the same place is there because what lies above it is shown. The directories on the way from the
    project or the home to a rule are mounts of their own, so that they cannot be renamed.
    """
    lines = read_file_start("/proc/self/mountinfo", 1 << 20).decode("utf-8", "surrogateescape").splitlines()
    found, wanted, theirs = [_Mount(line) for line in lines], set(expected), set() if ROLE["outside"] else set(host)
    proc = [mount.device for mount in found if mount.at == "/proc"][-1:]
    may_write = (*writable, project, home, "/dev", "/proc")
    covered = _covered_mounts(found)
    for mount in (mount for mount in found if mount.number not in covered):
        part_of_proc = mount.kind == "proc" and mount.at == f"/proc{mount.root.rstrip('/')}" and (mount.device in proc or mount.at in wanted)
        if mount.at.startswith(("/proc/", "/dev/")) and mount.at not in wanted and mount.key not in theirs:
            known = part_of_proc or mount.is_common_device()
        elif mount.key in theirs and not (mount.kind == "proc" and mount.at != "/proc"):
            known = not mount.writable or _is_below_any(mount.at, may_write)
        else:
            held = _is_below_any(mount.at, (project, home)) and any(path.startswith(f"{mount.at}/") for path in wanted)
            around = mount.kind == "tmpfs" and any(path.startswith(f"{mount.at}/") for path in (project, home))
            # Files that are hidden are a mount of /dev/null; another proc or /dev is another way to all there is.
            another = (mount.kind == "proc" and not part_of_proc) or (
                mount.kind == "devtmpfs" and mount.root != "/null" and mount.at != "/dev" and not (mount.at in wanted and mount.at.startswith("/dev/"))
            )
            known = (mount.at in wanted or held or around or _is_new(mount)) and not another
        if not known and not (engine and _is_engine_mount(mount, engine)):
            yield ("mounts", "reached", mount.at)
            return
    yield answer_stopped("mounts", "each is a rule's")


def _is_new(mount: _Mount) -> bool:
    """Whether rules mount it since the host has more in its root, or around the project, than when the expectations were made."""
    return not (ROLE["outside"] or mount.writable) and ask_harness("mounted", path=mount.at)


def undo_sandbox_mounts(directory: str) -> Iterator[Answer]:
    """Undo the fence's mounts, or make one's own."""
    tries = {
        "remount / writable": lambda: libc_mount(b"none", b"/", _MS_BIND | _MS_REMOUNT),
        "mount a tmpfs": lambda: libc_mount(b"tmpfs", directory.encode(), 0, b"tmpfs"),
        "unmount /proc": lambda: invoke_syscall_by_name("umount2", b"/proc", _MNT_DETACH),
        "pivot_root": lambda: invoke_syscall_by_name("pivot_root", directory.encode(), directory.encode()),
        "chroot": lambda: os.chroot(directory),
        "fsopen": lambda: invoke_syscall_by_name("fsopen", b"tmpfs", 0),
        "copy a mount": lambda: invoke_syscall_by_name("open_tree", _AT_FDCWD, b"/proc", _OPEN_TREE_CLONE),
        "mount_setattr": lambda: invoke_syscall_by_name("mount_setattr", _AT_FDCWD, b"/", 0, bytes(32), 32),
    }
    for name, action in tries.items():
        yield try_action(name, in_child(_in_own_mounts, action))


def _in_own_mounts(action: Callable[[], object]) -> None:
    """Where the caller may do it all, nothing of it must reach the host: in a copy of the mounts, gone with the child."""
    if _may_mount():
        invoke_syscall_by_name("unshare", _CLONE_NEWNS)
        libc_mount(b"none", b"/", _MS_REC | _MS_PRIVATE)
    action()


def _may_mount() -> bool:
    for line in read_file_start("/proc/self/status").splitlines():
        if line.startswith(b"CapEff:"):
            return bool(int(line.split()[1], 16) >> _CAP_SYS_ADMIN & 1)
    return False


def libc_mount(source: bytes, target: bytes, flags: int, kind: bytes | None = None) -> None:
    """mount(2)."""
    if libc.mount(source, target, kind, ctypes.c_ulong(flags), None) != 0:
        raise OSError(ctypes.get_errno(), "")


ATTEMPTS = {
    "writable_mounts": writable_mounts,
    "writable_to_root": writable_to_root,
    "fills": fill_masked_directories,
    "strange_mounts": strange_mounts,
    "mounts": undo_sandbox_mounts,
}
