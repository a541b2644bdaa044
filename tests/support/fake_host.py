"""A machine that does not exist, for decisions of the launcher: a tree of directories, files, links and sockets with modes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from wavegen.launcher.host import Host


@dataclass(frozen=True)
class Entry:
    """What is at a path. `link`: where a symbolic link leads; `data`: a file's content."""

    kind: int = stat.S_IFDIR
    mode: int = 0o755
    owner: int = 0
    link: str = ""
    data: bytes = b""


def link(target: str) -> Entry:
    """A symbolic link."""
    return Entry(stat.S_IFLNK, 0o777, link=target)


def file(mode: int = 0o644, data: bytes = b"x", owner: int = 0) -> Entry:
    """A regular file."""
    return Entry(stat.S_IFREG, mode, owner, data=data)


def directory(mode: int = 0o755, owner: int = 0) -> Entry:
    """A directory."""
    return Entry(stat.S_IFDIR, mode, owner)


SOCKET = Entry(stat.S_IFSOCK, 0o666)


@dataclass
class FakeHost(Host):
    """Paths and what is there; directories above what is named are made."""

    tree: Mapping[str, Entry]
    uid: int = 1000
    is_member: bool = False
    entries: dict[str, Entry] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.entries = {"/": Entry()}
        for path, entry in self.tree.items():
            above = ""
            for part in path.strip("/").split("/")[:-1]:
                above += f"/{part}"
                self.entries.setdefault(above, Entry())
            self.entries[path] = entry

    def _walk(self, path: str) -> Entry:
        """As the kernel does without following a link: ENOTDIR at a link on the way, EACCES where nobody may pass."""
        assert path == "/" or (path.startswith("/") and not path.endswith("/") and "//" not in path and "/../" not in path), path
        parts = [part for part in path.split("/") if part]
        at, entry = "", self.entries["/"]
        for number, part in enumerate(parts):
            if not stat.S_ISDIR(entry.kind):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if self.uid and not entry.mode & (0o100 if entry.owner == self.uid else 0o001):
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), f"{at}/{'/'.join(parts[number:])}")
            at += f"/{part}"
            if at not in self.entries:
                raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            entry = self.entries[at]
        return entry

    def lstat(self, path: str) -> os.stat_result:
        entry = self._walk(path)
        return os.stat_result((entry.kind | entry.mode, hash(path) & 0xFFFF, 1, 1, entry.owner, entry.owner, len(entry.data), 0, 0, 0))

    def readlink(self, path: str) -> str:
        return self._walk(path).link

    def scandir(self, path: str, most: int) -> list[tuple[str, bool]]:
        self._walk(path)
        above = path.rstrip("/") + "/"
        names = sorted(name[len(above) :] for name in self.entries if name.startswith(above) and "/" not in name[len(above) :] and name != "/")
        return [(name, stat.S_ISDIR(self.entries[above + name].kind)) for name in names][: most + 1]

    def scandir_modes(self, path: str, most: int) -> list[tuple[str, int]]:
        found = [(name, self.entries[f"{path.rstrip('/')}/{name}"]) for name, _ in self.scandir(path, most)]
        return [(name, entry.kind | entry.mode) for name, entry in found if not stat.S_ISLNK(entry.kind)]

    def can_read(self, path: str) -> bool:
        entry = self._walk(path)
        return self.uid == 0 or bool(entry.mode & (0o500 if entry.owner == self.uid else 0o005))

    def owns_path(self, path: str) -> bool:
        return self._walk(path).owner == self.uid

    def read_host_file(self, path: str, most: int) -> bytes:
        entry = self._walk(path)
        if not stat.S_ISREG(entry.kind):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if len(entry.data) > most:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
        return entry.data
