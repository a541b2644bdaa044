"""Mounts in the words of docker and podman, and the run directory that holds what a container is handed.

An engine mounts by path, follows links in targets, and makes on the host what is missing of them. So each mount point is made before, by the
project's owner, and what was mounted is compared inside.
"""

from __future__ import annotations

import _socket as socket
import posix
import time
from _stat import S_ISBLK, S_ISCHR, S_ISDIR, S_ISLNK

from .errors import CannotStartError
from .mounts import BIND, DEV, DEV_BIND, EMPTY, FILE, MASK, PROC, RO_BIND, SCRATCH, SYMLINK, Mount
from .symlinks import is_within

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .start import Session

_LARGEST = 1 << 20
_HANDED_OVER = ("container_entry.sh", "restrict_and_exec.pl", "restrict_and_exec.py", "listeners.pl", "listeners.py")
_ABANDONED = 300.0
"""Seconds after which the run directory of a launcher that is gone is nobody's: its watchdog would have removed it."""
_O_PATH = 0o10000000


def must_be_utf8(what: str, texts: Sequence[str]) -> None:
    """An engine takes UTF-8 alone, and makes U+FFFD of all else: another path, or other words than were meant. Raises CannotStartError."""
    try:
        "".join(texts).encode("utf-8")
    except UnicodeEncodeError:
        raise CannotStartError(f"{what} that is not UTF-8 cannot be handed to a container", "use UTF-8") from None


def quote_mount_field(name: str, value: str) -> str:
    """A field of a line of comma separated values (RFC 4180), as --mount reads it. Go's reader takes the CR from each CRLF, also in quotes."""
    value = value.replace('"', '""').replace("\r\n", "\r\r\n")
    return f'"{name}={value}"'


def docker_mount_words(mounts: Sequence[Mount], run: RunDirectory) -> list[str]:
    """The words of all mounts, whose mount points are made where an engine would make them on the host. Raises CannotStartError."""
    words: list[str] = []
    known = {mount.target: mount for mount in mounts}
    must_be_utf8("a path", [text for mount in mounts for text in (mount.source, mount.target)])
    for mount in mounts:
        kind, target = mount.kind, mount.target
        read_only = kind != BIND or run.is_frozen
        if kind in (DEV, PROC, SYMLINK) or target == "/dev/shm":
            continue  # an engine's own, or the image's
        run.make_mount_point(mount, known)
        if kind == SCRATCH:
            words += run.scratch_words(target, mount.mode)
        elif kind == DEV_BIND:
            words += run.device_words(mount)
        elif kind in (RO_BIND, BIND):
            words += run.bind_mount_words(mount.source, target, read_only=read_only)
            # An engine's read-only holds for one mount: what the host has mounted below would be writable.
            for below in run.host_mounts() if read_only else ():
                shown = target.rstrip("/") + below[len(mount.source.rstrip("/")) :]
                if below != mount.source and is_within(below, mount.source) and shown not in known:
                    words += run.bind_mount_words(below, shown, read_only=True)
        elif kind in (EMPTY, MASK, FILE):
            words += run.bind_mount_words(run.make_mount_source(mount), target, read_only=True)
    return words


class RunDirectory:
    """What a container is handed, below wavegen's state, where no shell can be granted anything; and its mounts, which are compared inside."""

    def __init__(self, session: Session, mounts: tuple[Mount, ...], owner: tuple[int, int], name: str, *, is_shown: bool) -> None:
        """`owner`: user and group of the container; `is_shown`: the words are for a person to read, and nothing is made."""
        self.session, self.mounts, self.is_shown = session, mounts, is_shown
        self.rules, self.places, self.host = session.rules, session.places, session.host
        self.uid, self.gid = owner
        self.is_frozen = bool(session.arguments.artifacts or session.arguments.output)
        """Whether nothing that is written lasts but the output."""
        self.path = f"{self.places.state}/run/{name}"
        self.expected: list[tuple[str, str, bool]] = []
        """Device and inode, the path inside, whether read-only."""
        self.report = -1
        """A FIFO to which the first process inside writes that the command is started."""
        self.channel: socket.socket | None = None
        """Where the first process inside hands over what is listened on."""
        self.is_podman = False
        self._host_mounts: tuple[str, ...] | None = None

    def fill_run_directory(self) -> list[str]:
        """Make what the container is handed; the names of starts that left their containers behind. Raises CannotStartError."""
        if self.is_shown:
            return []
        inside = f"{self.path}/inside"
        try:
            abandoned = self._remove_abandoned()
            self.host.make_directories(inside)
            posix.mkdir(f"{self.path}/made", 0o700)
            posix.close(posix.open(f"{self.path}/nothing", posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0))
            for name in _HANDED_OVER:
                self.write_new_file(f"{inside}/{name}", self.host.read_host_file(f"{self.session.own}/inside/{name}", _LARGEST), 0o444)
            posix.mkfifo(f"{inside}/report", 0o600)
            self.report = posix.open(f"{inside}/report", posix.O_RDWR | posix.O_NONBLOCK | posix.O_CLOEXEC)
            posix.chmod(f"{inside}/report", 0o200)  # what is said there is for this launcher alone
            if self.rules.filters_connections:
                self.channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                # Whatever the path's length, of which a socket's address has 107 bytes.
                handle = self.host.open_without_links(inside)
                self.channel.bind(f"/proc/self/fd/{handle}/channel")
                posix.close(handle)
                posix.chmod(f"{inside}/channel", 0o600)
                self.channel.listen(32)
            if not self.host.uid:
                for path in (inside, f"{inside}/report", *([f"{inside}/channel"] if self.channel else [])):
                    posix.chown(path, self.uid, self.gid, follow_symlinks=False)
                if self.rules.setting_value("home") == "private":
                    self._give_home()
        except OSError as failed:
            raise CannotStartError(f"{self.path} cannot be filled: {failed.strerror}", "make room there") from None
        return abandoned

    def _remove_abandoned(self) -> list[str]:
        """Remove what starts have left that were killed with their watchdog, or before it was there; their names."""
        found = []
        above = self.path.rpartition("/")[0]
        self.host.make_directories(above)
        for name in posix.listdir(above):
            if posix.access(f"/proc/{name.partition('-')[0]}", posix.F_OK):
                continue
            try:
                changed = posix.lstat(f"{above}/{name}").st_ctime
            except FileNotFoundError:
                continue  # another start has just ended, and removed its own
            if time.time() - changed > _ABANDONED:
                remove_tree(f"{above}/{name}")
                found.append(name)
        return found

    def write_new_file(self, path: str, data: bytes, mode: int) -> None:
        """Make a file. Raises OSError."""
        handle = posix.open(path, posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600)
        with open(handle, "wb") as stream:
            stream.write(data)
            posix.fchmod(handle, mode)

    def _give_home(self) -> None:
        """To the owner; what is in it may be a command's, and is left alone but for the file that was made for zsh."""
        handle = self.host.open_without_links(f"{self.places.private}/home")
        if posix.fstat(handle).st_uid != self.uid:
            posix.chown(f"/proc/self/fd/{handle}", self.uid, self.gid)
        with AsOwner(self.uid, self.gid):
            try:
                if posix.stat(".zshrc", dir_fd=handle, follow_symlinks=False).st_size == 0:
                    posix.unlink(".zshrc", dir_fd=handle)
                    posix.close(posix.open(".zshrc", posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC, 0o600, dir_fd=handle))
            except OSError:
                pass
        posix.close(handle)

    # --- mounts

    def bind_mount_words(self, source: str, target: str, *, read_only: bool) -> list[str]:
        """The words of a bind mount, which is compared inside."""
        if not self.is_shown:
            try:
                status = self.host.lstat(source)
            except OSError as failed:
                raise CannotStartError(f"{source} cannot be looked at: {failed.strerror}", "start again") from None
            if S_ISLNK(status.st_mode):
                raise CannotStartError(f"{source} is a symlink where something is mounted", "remove it")
            self.expected.append((f"{status.st_dev}:{status.st_ino}", target, read_only))
        return ["--mount", f"type=bind,{quote_mount_field('source', source)},{quote_mount_field('target', target)}{',readonly' if read_only else ''}"]

    def make_mount_source(self, mount: Mount) -> str:
        """What is shown in place of an EMPTY, a MASK or a FILE: something in the run directory."""
        if mount.kind == MASK:
            return f"{self.path}/nothing"
        path = f"{self.path}/made/{self.mounts.index(mount)}"
        if self.is_shown:
            return path
        if mount.kind == EMPTY:
            try:
                posix.mkdir(path, 0o755)
            except FileExistsError:
                pass
        else:
            self.write_new_file(path, self.host.read_host_file(mount.source, _LARGEST), 0o444)
        return path

    def make_mount_point(self, mount: Mount, known: dict[str, Mount]) -> None:
        """Make the place that something is mounted on, where an engine would make it on the host, as root. Raises CannotStartError."""
        above, target = mount.target.rpartition("/")[0], mount.target
        while above and above not in known:
            above = above.rpartition("/")[0]
        base = known.get(above)
        if self.is_shown or base is None or base.kind not in (BIND, RO_BIND, EMPTY):
            return  # in the image, or in a file system of the container's own
        try:
            directory = mount.anchors or mount.kind in (EMPTY, SCRATCH) or (mount.kind != MASK and S_ISDIR(self.host.lstat(mount.source).st_mode))
            source = self.make_mount_source(base) if base.kind == EMPTY else base.source
            self._make_mount_target(source, target[len(above) + 1 :].split("/"), directory=directory, as_owner=base.kind != EMPTY)
        except OSError as failed:
            what = "is a symlink where something is mounted" if failed.errno in (20, 40) else f"cannot be mounted on: {failed.strerror}"
            raise CannotStartError(f"{failed.filename or target} {what}", "remove it") from None

    def _make_mount_target(self, base: str, parts: list[str], *, directory: bool, as_owner: bool) -> None:
        handle, path = self.host.open_without_links(base), base
        with AsOwner(self.uid if as_owner else 0, self.gid):
            for number, part in enumerate(parts, 1):
                path = f"{path}/{part}"
                try:
                    status = posix.stat(part, dir_fd=handle, follow_symlinks=False)
                    if S_ISLNK(status.st_mode):
                        raise OSError(40, "a symlink", path)
                except FileNotFoundError:
                    if number == len(parts) and not directory:
                        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_EXCL | posix.O_CLOEXEC
                        posix.close(posix.open(part, flags, 0o600, dir_fd=handle))
                    else:
                        posix.mkdir(part, 0o700 if as_owner else 0o755, dir_fd=handle)
                if number < len(parts):
                    below = posix.open(part, _O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=handle)
                    posix.close(handle)
                    handle = below
        posix.close(handle)

    def scratch_words(self, target: str, mode: str) -> list[str]:
        """An empty directory of a bounded size. Programs may be run there, as builds do."""
        if ":" in target:
            raise CannotStartError(f"{target}: no engine makes an empty directory at a path with a colon", "write home: private")
        # The command's own, as runc gives it the mode of what the image has there. Of the two only docker knows uid=, and only podman U.
        owner = ",U" if self.is_podman else f",uid={self.uid},gid={self.gid}"
        return ["--tmpfs", f"{target}:rw,exec,nosuid,nodev,size={self.rules.setting_value('tmpfs_size')},mode={mode}{owner}"]

    def device_words(self, mount: Mount) -> list[str]:
        """A device, or a directory of devices; what else is in /dev is shown read-only."""
        if ":" in mount.source + mount.target:
            raise CannotStartError(f"{mount.target}: no engine takes a device at a path with a colon", "remove the entry")
        mode = self.host.lstat(mount.source).st_mode
        if S_ISDIR(mode) or S_ISCHR(mode) or S_ISBLK(mode):
            return ["--device", f"{mount.source}:{mount.target}"]
        return self.bind_mount_words(mount.source, mount.target, read_only=True)

    def host_mounts(self) -> tuple[str, ...]:
        """Where the host has mounted something."""
        if self._host_mounts is None:
            with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as stream:
                self._host_mounts = tuple(dict.fromkeys(_unescape_mountinfo(line.split(" ")[4]) for line in stream))
        return self._host_mounts

    def remove_run_directory(self) -> None:
        """Remove it; what cannot be removed stays."""
        remove_tree(self.path)


class AsOwner:
    """Root does with the owner's files what the owner could, and no more: a command of another shell could put links there meanwhile."""

    def __init__(self, uid: int, gid: int) -> None:
        self.uid, self.gid = (uid, gid) if posix.geteuid() == 0 else (0, 0)
        self.groups = posix.getgroups() if self.uid else []

    def __enter__(self) -> None:
        if self.uid:
            posix.setgroups([self.gid])
            posix.setegid(self.gid)
            posix.seteuid(self.uid)

    def __exit__(self, *_: object) -> None:
        if self.uid:
            posix.seteuid(0)
            posix.setegid(0)
            posix.setgroups(self.groups)


def remove_tree(path: str) -> None:
    """Remove a directory of ours; what cannot be removed stays."""
    try:
        for name in posix.listdir(path):
            below = f"{path}/{name}"
            if S_ISDIR(posix.lstat(below).st_mode):
                remove_tree(below)
            else:
                posix.unlink(below)
        posix.rmdir(path)
    except OSError:
        pass


_ESCAPES = (("\\", "\\134"), (" ", "\\040"), ("\t", "\\011"), ("\n", "\\012"))
"""As the kernel writes paths in mountinfo (proc_pid_mountinfo(5))."""


def mount_line(target: str, read_only: bool) -> str:  # noqa: FBT001
    """A mount as `container_entry.sh` finds it in mountinfo."""
    for plain, written in _ESCAPES:
        target = target.replace(plain, written)
    return f"{target} {'ro' if read_only else 'any'}\n"


def _unescape_mountinfo(path: str) -> str:
    for plain, written in reversed(_ESCAPES):
        path = path.replace(written, plain)
    return path
