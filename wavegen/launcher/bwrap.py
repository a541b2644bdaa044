"""From mounts to bubblewrap: its words, and descriptors in place of every source (bwrap(1)).

A path that was looked at may be another thing when bwrap mounts it: a session of another shell can exchange a directory for a link in
between. So each source is opened component by component, without following a link, and bwrap is handed the descriptor (--bind-fd, since 0.10,
in Debian 12 too). A bwrap that lacks the option mounts by path, and the last step before the command compares device and inode.
"""

from __future__ import annotations

import posix

from .errors import CannotStartError
from .mounts import BIND, DEV, DEV_BIND, EMPTY, FILE, MASK, RO_BIND, SCRATCH, SYMLINK, Mount

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .host import RealHost
    from .rules import Rules

_BOUND = {RO_BIND: "--ro-bind", BIND: "--bind", DEV_BIND: "--dev-bind"}
_MOST_OF_A_FILE = 256 * 1024
_LARGEST_PROGRAM = 4 << 20


class Descriptors:
    """What bwrap inherits. `expected`: device, inode and path of what was mounted by its path alone."""

    def __init__(self) -> None:
        self.handles: list[int] = []
        self.expected: list[tuple[int, int, str]] = []

    def add_descriptor(self, handle: int) -> str:
        """Hand a descriptor over; its number as a word."""
        posix.set_inheritable(handle, True)
        self.handles.append(handle)
        return str(handle)

    def add_bytes(self, data: bytes) -> str:
        """Hand bytes over, as a file in memory."""
        handle = posix.memfd_create("wavegen")
        while data:
            data = data[posix.write(handle, data) :]
        posix.lseek(handle, 0, 0)
        return self.add_descriptor(handle)

    def close_copies(self) -> None:
        """Close this process's own copies."""
        for handle in self.handles:
            posix.close(handle)
        self.handles.clear()


def option_words(rules: Rules) -> list[tuple[tuple[str, ...], str]]:
    """What bwrap is told besides mounts, each with its reason."""
    found: list[tuple[tuple[str, ...], str]] = [
        (("--unshare-user",), "default: --unshare-all would go on without one"),
        (("--unshare-pid",), "default: no process of the host can be seen or signalled"),
        (("--unshare-ipc",), "default: no shared memory or semaphores of the host"),
        (("--unshare-uts",), "default: the host's name stays outside"),
        (("--unshare-cgroup",), "default: the host's control groups stay outside"),
        (("--hostname", "localhost"), "default: a name that resolves everywhere"),
        (("--cap-drop", "ALL"), "default: real root would keep its capabilities and could undo every mount"),
        (("--die-with-parent",), "default: nothing outlives the launcher"),
    ]
    if rules.setting_value("network") != "host":
        found.append((("--unshare-net",), rules.setting_origin("network")))
    if not rules.setting_value("nested"):
        found.append((("--disable-userns",), "default: no namespaces inside: each would open more of the kernel"))
    return found


def forbids_sandboxes(said: str, most: str) -> bool:
    """Whether bwrap's message means that this machine allows no sandbox at all. `most`: the content of /proc/sys/user/max_user_namespaces.

    A full process table, or a place that a command made unfit, is no reason to go without one.
    """
    return any(words in said for words in ("ermission", "not permitted")) or ("No space left" in said and most.strip() == "0")


def mount_words(mounts: Sequence[Mount], size: str) -> list[tuple[tuple[str, ...], str]]:
    """The words of each mount, by path, with its origin. `size`: bytes of a tmpfs."""
    found: list[tuple[tuple[str, ...], str]] = []
    late: list[tuple[tuple[str, ...], str]] = [(("--remount-ro", "/"), "default: nothing of the host is there but what is shown")]
    for mount in mounts:
        kind, target = mount.kind, mount.target
        words: tuple[str, ...]
        if kind in _BOUND:
            words = (_BOUND[kind], mount.source, target)
        elif kind == SCRATCH:
            words = ("--perms", mount.mode, "--size", size, "--tmpfs", target)
        elif kind == EMPTY:
            # Without rights and room in place of a read-only remount, for which bwrap would read the whole mount table once more.
            words = ("--perms", "0555", "--size", "4096", "--tmpfs", target)
        elif kind == MASK:
            words = ("--ro-bind", "/dev/null", target)
        elif kind == SYMLINK:
            words = ("--symlink", mount.source, target)
        elif kind == FILE:
            words = ("--perms", "0444", "--file", mount.source, target)
        else:
            words = (f"--{kind}", target)
            if kind == DEV:
                late.append((("--remount-ro", target), "default: it is a tmpfs without a bound, and nothing is made there"))
        found.append((words, mount.origin))
    return found + late


def takes_descriptors(host: RealHost, bwrap: str) -> bool:
    """Whether a bwrap knows --bind-fd: asked of the program's own text, as to start it takes as long as all the rest."""
    try:
        text = host.read_host_file(bwrap, _LARGEST_PROGRAM)
    except OSError:
        return False
    return b"bind-fd" in text


def open_mounts(host: RealHost, mounts: Sequence[Mount], size: str, descriptors: Descriptors, *, by_descriptor: bool) -> list[str]:
    """The same words, with a descriptor for each source. Raises CannotStartError for what is a link, or gone, by now."""
    found: list[str] = []
    for mount, (words, _) in zip(mounts, mount_words(mounts, size)):
        if mount.kind in (RO_BIND, BIND):
            handle = _open_mount_source(host, mount)
            if by_descriptor:
                found += [f"{words[0]}-fd", descriptors.add_descriptor(handle), mount.target]
            else:
                status = posix.fstat(handle)
                descriptors.expected.append((status.st_dev, status.st_ino, mount.target))
                posix.close(handle)
                found += words
        elif mount.kind == FILE:
            found += [*words[:-2], descriptors.add_bytes(_read_mount_content(host, mount)), mount.target]
        else:
            found += words
    for words, _ in mount_words(mounts, size)[len(mounts) :]:
        found += words
    return found


def _open_mount_source(host: RealHost, mount: Mount) -> int:
    try:
        return host.open_without_links(mount.source)
    except FileNotFoundError:
        if not mount.anchors:
            raise CannotStartError(f"{mount.source} is gone", "start again") from None
    except OSError as failed:
        raise CannotStartError(f"{mount.source} cannot be opened: {failed.strerror}", "start again; if that does not help, look at what it is now") from None
    host.make_directories(mount.source)
    return host.open_without_links(mount.source)


def _read_mount_content(host: RealHost, mount: Mount) -> bytes:
    if mount.data is not None:
        return mount.data
    try:
        return host.read_host_file(mount.source, _MOST_OF_A_FILE)
    except OSError as failed:
        raise CannotStartError(f"{mount.source} cannot be read: {failed.strerror}", "start again; if that does not help, look at what it is now") from None
