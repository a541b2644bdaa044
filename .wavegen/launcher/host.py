"""The machine as the launcher sees it. Decisions ask a `Host`, so that tests can decide about machines that do not exist.

Paths are absolute and normalised: no `.`, no `..`, no doubled or trailing slash. No method follows a symbolic link in any component: a path
that leads through one raises OSError with ELOOP or ENOTDIR. So whoever wants to follow a link does it in the open, with `readlink`.
"""

from __future__ import annotations

import errno
import posix
from _stat import S_ISDIR, S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # typing takes longer to import than the launcher takes to decide

_O_PATH, _O_CLOEXEC, _O_NOFOLLOW, _O_DIRECTORY = 0o10000000, posix.O_CLOEXEC, posix.O_NOFOLLOW, posix.O_DIRECTORY
LONGEST_LINK = 4096
MOST_OPEN = 200
"""Directories that are kept open: a process may have 1,024 descriptors, or fewer."""


class Host(Protocol):
    """What the launcher asks of a machine. All methods raise OSError; "cannot be seen" (EACCES) is never "is not there" (ENOENT)."""

    uid: int
    """The effective user."""
    is_member: bool
    """Whether this user may read more than others: as root, or by a group besides its own."""

    def lstat(self, path: str) -> posix.stat_result:
        """The status of what is at a path."""

    def readlink(self, path: str) -> str:
        """Where the symbolic link at a path leads."""

    def scandir(self, path: str, most: int) -> list[tuple[str, bool]]:
        """Names in a directory, sorted, and whether each is a directory itself (a link is none). At most `most` + 1 of them: more than
        `most` says that there are more.
        """

    def scandir_modes(self, path: str, most: int) -> list[tuple[str, int]]:
        """Names in a directory, links left out, with the mode of each: of what nobody may look at it is 0."""

    def can_read(self, path: str) -> bool:
        """Whether this user could read what is at a path, or enter it: by its mode, by a list of access control (acl(5)), or as root."""

    def owns_path(self, path: str) -> bool:
        """Whether what is at a path belongs to this user, who could give itself its rights."""

    def read_host_file(self, path: str, most: int) -> bytes:
        """The content of a regular file of at most `most` bytes. Raises OSError with EFBIG where it is longer, with EINVAL where it is no
        regular file: a FIFO would block, a device may do anything.
        """


def _error_with_path(failed: OSError, path: str) -> OSError:
    """An error with the whole path that it is about."""
    return OSError(failed.errno, failed.strerror, path)


class RealHost:
    """This machine. The directories that were opened last are kept open until `close_kept_directories`: a start asks for the same ones again and again."""

    def __init__(self) -> None:
        self.uid = posix.geteuid()
        self.is_member = self.uid == 0 or any(group != posix.getegid() for group in posix.getgroups())
        self._open: dict[str, int] = {}

    def close_kept_directories(self) -> None:
        """Close every directory that was kept open."""
        for handle in self._open.values():
            posix.close(handle)
        self._open.clear()

    def _open_directory(self, path: str) -> int:
        """A descriptor of a directory, reached component by component without following a link."""
        handle = self._open.get(path)
        if handle is None:
            if path == "/":
                handle = posix.open("/", _O_PATH | _O_DIRECTORY | _O_CLOEXEC)
            else:
                above, _, name = path.rpartition("/")
                holder = self._open_directory(above or "/")
                try:
                    handle = posix.open(name, _O_PATH | _O_DIRECTORY | _O_NOFOLLOW | _O_CLOEXEC, dir_fd=holder)
                except OSError as failed:
                    raise _error_with_path(failed, path) from None
            if len(self._open) >= MOST_OPEN:
                posix.close(self._open.pop(next(iter(self._open))))
            self._open[path] = handle
        return handle

    def _open_parent(self, path: str) -> tuple[int, str]:
        """The directory that holds a path, and the path's last component; `.` for the root itself."""
        above, _, name = path.rpartition("/")
        return self._open_directory(above or "/"), name or "."

    def open_without_links(self, path: str) -> int:
        """An O_PATH descriptor of what is at a path, whatever it is, which the caller owns. A link there is refused (ELOOP)."""
        above, name = self._open_parent(path)
        try:
            handle = posix.open(name, _O_PATH | _O_NOFOLLOW | _O_CLOEXEC, dir_fd=above)
        except OSError as failed:
            raise _error_with_path(failed, path) from None
        if posix.fstat(handle).st_mode & 0o170000 == 0o120000:
            posix.close(handle)
            raise OSError(errno.ELOOP, posix.strerror(errno.ELOOP), path)
        return handle

    def make_directories(self, path: str) -> None:
        """Make a directory, and those above it that are missing, for this user alone; none by way of a link. Raises OSError."""
        try:
            above, name = self._open_parent(path)
        except FileNotFoundError:
            self.make_directories(path.rpartition("/")[0])
            above, name = self._open_parent(path)
        try:
            posix.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            if not S_ISDIR(self.lstat(path).st_mode):
                raise

    def lstat(self, path: str) -> posix.stat_result:
        above, name = self._open_parent(path)
        try:
            return posix.stat(name, dir_fd=above, follow_symlinks=False)
        except OSError as failed:
            raise _error_with_path(failed, path) from None

    def readlink(self, path: str) -> str:
        above, name = self._open_parent(path)
        try:
            return posix.readlink(name, dir_fd=above)
        except OSError as failed:
            raise _error_with_path(failed, path) from None

    def scandir(self, path: str, most: int) -> list[tuple[str, bool]]:
        above, name = self._open_parent(path)
        try:
            handle = posix.open(name, posix.O_RDONLY | _O_DIRECTORY | _O_NOFOLLOW | _O_CLOEXEC, dir_fd=above)
        except OSError as failed:
            raise _error_with_path(failed, path) from None
        found = []
        try:
            with posix.scandir(handle) as entries:
                for entry in entries:
                    found.append((entry.name, entry.is_dir(follow_symlinks=False)))
                    if len(found) > most:
                        break
        finally:
            posix.close(handle)
        return sorted(found)

    def scandir_modes(self, path: str, most: int) -> list[tuple[str, int]]:
        found = []
        try:
            # Of a directory of the system, where nobody but root makes links.
            with posix.scandir(path) as entries:
                for entry in entries:
                    if not entry.is_symlink():
                        found.append((entry.name, entry.stat(follow_symlinks=False).st_mode))
                    if len(found) > most:
                        break
        except PermissionError:
            return []
        return found

    def can_read(self, path: str) -> bool:
        if self.uid == 0:
            return True
        above, name = self._open_parent(path)
        return any(posix.access(name, mode, dir_fd=above, effective_ids=True) for mode in (posix.R_OK, posix.X_OK))

    def owns_path(self, path: str) -> bool:
        try:
            return self.lstat(path).st_uid == self.uid
        except OSError:
            return False

    def read_host_file(self, path: str, most: int) -> bytes:
        above, name = self._open_parent(path)
        try:
            handle = posix.open(name, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | _O_NOFOLLOW | _O_CLOEXEC, dir_fd=above)
        except OSError as failed:
            raise _error_with_path(failed, path) from None
        try:
            status = posix.fstat(handle)
            if not S_ISREG(status.st_mode):
                raise OSError(errno.EISDIR if S_ISDIR(status.st_mode) else errno.EINVAL, "not a regular file", path)
            text = b""
            while len(text) <= most:
                more = posix.read(handle, most + 1 - len(text))
                if not more:
                    return text
                text += more
        finally:
            posix.close(handle)
        raise OSError(errno.EFBIG, posix.strerror(errno.EFBIG), path)
