"""Attempts on files: reading what is hidden, writing what is read-only, and going round both by links and names.

Longer than 400 lines: attempts, each on its own.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import stat
import struct
from collections.abc import Iterable, Iterator

from probe_common import (
    HANDED_DOWN,
    ROLE,
    Answer,
    answer_for_error,
    answer_for_outcome,
    answer_reached,
    answer_stopped,
    ask_harness,
    contains_canary,
    invoke_syscall_by_name,
    read_file_start,
    try_action,
)

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NULL = os.makedev(1, 3)


def read_canaries(paths: Iterable[str]) -> Iterator[Answer]:
    """Read the file, or the file `canary` in the directory: is what was planted there?"""
    for path in paths:
        try:
            where = os.path.join(path, "canary") if os.path.isdir(path) else path
            yield answer_for_outcome(path, "another file is there", reached=contains_canary(read_file_start(where)))
        except OSError as failed:
            yield answer_for_error(path, failed)


def _is_host_file(path: str, device: int, inode: int, mark: str | int) -> bool:
    """Whether the host's own file is there, or a copy. `mark`: a digest of the content, or a size, with which nothing is opened."""
    found = os.stat(path)
    if (found.st_dev, found.st_ino) == (device, inode):
        return True
    if not mark or not stat.S_ISREG(found.st_mode):
        return False
    return found.st_size == mark if isinstance(mark, int) else hashlib.sha256(read_file_start(path, found.st_size + 1)).hexdigest() == mark


def host_inodes(paths: Iterable[tuple[str, int, int, str | int]]) -> Iterator[Answer]:
    """Is it the same inode as on the host, or a copy? What is hidden counts where this user could read or enter it: the rest its permissions hide."""
    for path, device, inode, mark in paths:
        try:
            found, hidden = _is_host_file(path, device, inode, mark), isinstance(mark, int)
            refuses = hidden and not os.access(path, os.R_OK) and not os.access(path, os.X_OK)
            yield answer_for_outcome(path, "EACCES" if found else "another file is there", reached=found and not refuses)
        except OSError as failed:
            yield answer_for_error(path, failed)


def open_paths_for_reading(paths: Iterable[str]) -> Iterator[Answer]:
    """Open for reading, and read nothing; of a directory, is there anything in it?"""
    for path in paths:
        try:
            if os.path.isdir(path):
                with os.scandir(path) as entries:
                    yield answer_for_outcome(path, "empty", reached=next(entries, None) is not None)
            else:
                os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
                yield answer_for_outcome(path, "", reached=path != "/dev/null")
        except OSError as failed:
            yield answer_for_error(path, failed)


def find_listed_name(directory: str, foreign: str) -> Iterator[Answer]:
    """Is a name that stands in a directory on the host listed inside?"""
    try:
        yield answer_for_outcome(directory, "not listed", reached=foreign in os.listdir(directory))
    except OSError as failed:
        yield answer_for_error(directory, failed)


def find_secret_names(directory: str, endings: tuple[str, ...]) -> Iterator[Answer]:
    """Are there names in a directory that look like secrets? A few thousand are looked at, and none is opened."""
    try:
        with os.scandir(directory) as entries:
            found = any(entry.name.endswith(tuple(endings)) or "secret" in entry.name for entry, _ in zip(entries, range(5000), strict=False))
        yield answer_for_outcome(directory, "no such name", reached=found)
    except OSError as failed:
        yield answer_for_error(directory, failed)


def _make_nameless(directory: str) -> None:
    """A file that has no name, so that nothing can be left; ENOTSUP where the file system knows no such files."""
    try:
        os.close(os.open(directory, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as failed:
        # EISDIR is a kernel's, or a file system's, that does not know the flag (open(2)).
        raise OSError(0 if failed.errno in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL) else failed.errno or 0, "") from failed


def create_nameless_files(paths: Iterable[str]) -> Iterator[Answer]:
    """Make a file without a name in the directory."""
    for path in paths:
        yield try_action(path, _make_nameless, path)


def creates_named(paths: Iterable[str]) -> Iterator[Answer]:
    """Make a file of this name where there is none, and remove it; open one that is there for writing."""
    for path in paths:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.unlink(path)
            yield answer_reached(path)
        except FileExistsError:
            yield from open_paths_for_writing([path])
        except OSError as failed:
            yield answer_for_error(path, failed)


def _open_for_writing(path: str) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))


def open_paths_for_writing(paths: Iterable[str]) -> Iterator[Answer]:
    """Open for writing, and write nothing. A device is not opened: its driver may act on that."""
    for path in paths:
        try:
            found = os.stat(path)
        except OSError as failed:
            yield answer_for_error(path, failed)
            continue
        if stat.S_ISDIR(found.st_mode):
            yield try_action(path, _make_nameless, path)
        elif stat.S_ISREG(found.st_mode) or found.st_rdev == _NULL:
            yield try_action(path, _open_for_writing, path)
        else:
            yield answer_for_outcome(path, "EACCES", reached=os.access(path, os.W_OK))


def writes_back(paths: Iterable[str]) -> Iterator[Answer]:
    """Write a setting of the kernel as it is; one that cannot be read is only opened."""
    for path in paths:
        try:
            now = read_file_start(path, 4096)
        except OSError:
            now = b""
        # Of a choice, the word that is chosen: always [madvise] never.
        chosen = re.search(rb"\[(\w+)\]", now)
        now = chosen[1] if chosen else now

        def write_same_value(path: str = path, now: bytes = now) -> None:
            handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                if now:
                    os.write(handle, now)
            finally:
                os.close(handle)

        yield try_action(path, write_same_value)


def _aside_path(path: str) -> str:
    return f"{path}.wavegen-{os.urandom(6).hex()}"


def rename_and_restore(paths: Iterable[str]) -> Iterator[Answer]:
    """Give it another name, and its own back."""
    for path in paths:
        aside = _aside_path(path)

        def there_and_back(path: str = path, aside: str = aside) -> None:
            os.rename(path, aside)
            os.rename(aside, path)

        yield try_action(path, there_and_back)


def replace_with_symlink(paths: Iterable[str]) -> Iterator[Answer]:
    """Put a symlink in its place, and it back."""
    for path in paths:
        aside = _aside_path(path)

        def there_and_back(path: str = path, aside: str = aside) -> None:
            os.rename(path, aside)
            try:
                os.symlink(os.path.basename(aside), path)
                os.unlink(path)
            finally:
                os.rename(aside, path)

        yield try_action(path, there_and_back)


def exchange_with_own_file(paths: Iterable[str], other: str) -> Iterator[Answer]:
    """Exchange it with a file that can be written, by renameat2(2), and back."""
    mine = os.path.join(other, f".wavegen-{os.urandom(6).hex()}")

    def there_and_back(path: str) -> None:
        os.close(os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            for _ in range(2):
                invoke_syscall_by_name("renameat2", _AT_FDCWD, path.encode(), _AT_FDCWD, mine.encode(), _RENAME_EXCHANGE)
        finally:
            os.unlink(mine)

    for path in paths:
        yield try_action(path, there_and_back, path)


def read_through_symlink(paths: Iterable[str], directory: str) -> Iterator[Answer]:
    """Read a canary through a symlink made in a directory of one's own."""
    link = os.path.join(directory, f".wavegen-{os.urandom(6).hex()}")
    for path in paths:
        try:
            os.symlink(path, link)
            yield answer_for_outcome(path, "another file is there", reached=contains_canary(read_file_start(link)))
        except OSError as failed:
            yield answer_for_error(path, failed)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(link)


def write_through_hardlink(paths: Iterable[str], directory: str) -> Iterator[Answer]:
    """Give a file that is read-only a second name where one may write, and open that for writing."""
    for path in paths:
        link = os.path.join(directory, f".wavegen-{os.urandom(6).hex()}")

        def open_through_link(path: str = path, link: str = link) -> None:
            os.link(path, link, follow_symlinks=False)
            try:
                os.close(os.open(link, os.O_WRONLY | os.O_CLOEXEC))
            finally:
                os.unlink(link)

        yield try_action(path, open_through_link)


def read_canaries_upwards(paths: Iterable[str]) -> Iterator[Answer]:
    """Read a canary by `..` from the working directory, and through /proc/self."""
    for path in paths:
        for start in ("../" * 40, "/proc/self/cwd/" + "../" * 40, "/proc/self/root/", "/proc/1/root/", "/proc/1/cwd/" + "../" * 40):
            name = start + path.lstrip("/")
            try:
                yield answer_for_outcome(f"{start[:14]}…{path}", "another file is there", reached=contains_canary(read_file_start(name)))
            except OSError as failed:
                yield answer_for_error(f"{start[:14]}…{path}", failed)


def read_open_descriptors() -> Iterator[Answer]:
    """Is there an open descriptor that nobody meant to pass on? Read what is in it, also by those of PID 1 and the parent."""
    owners = {"self": "its own", "1": "PID 1's", str(os.getppid()): "the parent's"}
    # Outside these would be the user's own.
    for owner, name in list(owners.items())[: 1 if ROLE["outside"] else None]:
        try:
            numbers = [int(number) for number in os.listdir(f"/proc/{owner}/fd")]
        except OSError as failed:
            yield answer_for_error(name, failed)
            continue
        found = False
        for number in numbers:
            path = f"/proc/{owner}/fd/{number}"
            with contextlib.suppress(OSError):
                mode = os.stat(path).st_mode
                if stat.S_ISDIR(mode):
                    found = found or contains_canary(read_file_start(f"{path}/canary"))
                elif stat.S_ISREG(mode):
                    found = found or contains_canary(read_file_start(path)) or (owner == "self" and contains_canary(os.pread(number, 4096, 0)))
        yield answer_for_outcome(name, "none of the canary's", reached=found)


def handed_down() -> Iterator[Answer]:
    """Is any descriptor open but the usual three, whatever it leads to?"""
    yield answer_for_outcome("descriptors", "none", reached=bool(HANDED_DOWN))


def check_write_access(paths: Iterable[str]) -> Iterator[Answer]:
    """May it be written, by access(2)? It may be the user's own, and is not opened."""
    for path in paths:
        yield answer_for_outcome(path, "EROFS or EACCES" if os.path.lexists(path) else "ENOENT", reached=os.access(path, os.W_OK))


def other_things(shown: Iterable[tuple[str, int, int, str | int]], masks: Iterable[str], expected: Iterable[str]) -> Iterator[Answer]:
    """Is something else shown than the rule says, or anything where nothing is to be?"""
    wanted = set(expected)
    for path, device, inode, mark in shown:
        with contextlib.suppress(OSError):
            if not _is_host_file(path, device, inode, mark):
                yield ("what is shown", "reached", path)
                return
    for path in masks:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            if not stat.S_ISDIR(found.st_mode):
                # An engine mounts a file of the script's own, an empty one; what was planted never is.
                if found.st_rdev != _NULL and os.access(path, os.R_OK) and not (stat.S_ISREG(found.st_mode) and found.st_size == 0):
                    yield ("what is shown", "reached", path)
                    return
                continue
            # What other rules show below a mask stands in it.
            strangers = [name for name in os.listdir(path) if not any(f"{other}/".startswith(f"{path}/{name}/") for other in wanted)]
            if strangers:
                yield ("what is shown", "reached", path)
                return
    yield answer_stopped("what is shown", "what the rules say")


def open_root_by_handle(paths: Iterable[str]) -> Iterator[Answer]:
    """Open the root of a file system by its handle (inode 2, the root of ext4), whatever is mounted over it."""

    # struct file_handle: eight bytes of type FILEID_INO32_GEN, the inode and any generation.
    root = struct.pack("<IiII", 8, 1, 2, 0)
    for path in paths:

        def by_handle(path: str = path) -> None:
            mount = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
            try:
                os.close(invoke_syscall_by_name("open_by_handle_at", mount, root, os.O_RDONLY | os.O_CLOEXEC))
            except OSError as failed:
                # The call went through, this file system only has other handles.
                if failed.errno not in (errno.ESTALE, errno.EINVAL, errno.EOPNOTSUPP):
                    raise
            finally:
                os.close(mount)

        yield try_action(path, by_handle)


def access_disk_devices(path: str) -> Iterator[Answer]:
    """A disk in /dev, or one that was made."""
    kinds = ("sd", "vd", "nvme", "loop", "dm-", "xvd", "mmcblk")
    try:
        disks = [name for name in os.listdir("/dev") if name.startswith(kinds) and stat.S_ISBLK(os.stat(f"/dev/{name}").st_mode)]
        yield answer_for_outcome("/dev", "no disk", reached=bool(disks))
    except OSError as failed:
        yield answer_for_error("/dev", failed)

    def make_disk_node() -> None:
        os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(8, 0))
        os.unlink(path)

    yield try_action("mknod of a disk", make_disk_node)


def reaches_host(paths: Iterable[str]) -> Iterator[Answer]:
    """Write a word to a file, or to one in the directory; does the host's file have it? It is taken out again."""
    for place in paths:
        word = os.urandom(12).hex()
        path = os.path.join(place, ".wavegen-probe") if os.path.isdir(place) else place
        made: list[str] = []
        try:
            while not os.path.isdir(above := os.path.dirname(made[-1] if made else path)):
                made.append(above)
            for directory in reversed(made):
                os.mkdir(directory)
            if os.path.lexists(path):
                size = os.stat(path, follow_symlinks=False).st_size
                handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
            else:
                size = -1
                handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.write(handle, word.encode())
                reached = ask_harness("contains", path=path, word=word)
                if size >= 0:
                    os.ftruncate(handle, size)
                else:
                    os.unlink(path)
            finally:
                os.close(handle)
            yield answer_for_outcome(place, "written inside only", reached=reached)
        except OSError as failed:
            yield answer_for_error(place, failed)
        finally:
            for directory in made:
                with contextlib.suppress(OSError):
                    os.rmdir(directory)


def create_setuid_program(directory: str) -> Iterator[Answer]:
    """Make a program that runs as its owner, which the host may start."""
    name = os.path.join(directory, f".wavegen-{os.urandom(6).hex()}")

    def make_setuid_file() -> None:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700))
        try:
            os.chmod(name, 0o4700)
            if not os.stat(name).st_mode & stat.S_ISUID:
                raise OSError(errno.EPERM, "")
        finally:
            os.unlink(name)

    yield try_action(directory, make_setuid_file)


def create_capable_program(directory: str) -> Iterator[Answer]:
    """Give a program the capability to trace everything (VFS_CAP_REVISION_2, CAP_SYS_PTRACE)."""
    name = os.path.join(directory, f".wavegen-{os.urandom(6).hex()}")
    value = (0x02000001).to_bytes(4, "little") + (1 << 19).to_bytes(4, "little") + bytes(12)

    def make_capable_file() -> None:
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o700))
        try:
            os.setxattr(name, "security.capability", value)
        finally:
            os.unlink(name)

    yield try_action(directory, make_capable_file)


def create_fifo(directory: str) -> Iterator[Answer]:
    """Put a pipe and a socket where a tool of the host would read a file."""
    name = os.path.join(directory, f".wavegen-{os.urandom(6).hex()}")

    def make_and_remove_fifo() -> None:
        os.mkfifo(name)
        os.unlink(name)

    yield try_action(directory, make_and_remove_fifo)


def check_tmpfs_sizes(paths: Iterable[tuple[str, int]]) -> Iterator[Answer]:
    """Has a scratch directory a bound? By the size of its file system (statvfs(3)); filling it would fill the machine."""
    for path, most in paths:
        try:
            found = os.statvfs(path)
            yield answer_for_outcome(path, "bounded", reached=found.f_blocks == 0 or found.f_blocks * found.f_frsize > most)
        except OSError as failed:
            yield answer_for_error(path, failed)


def use_files_normally(directory: str) -> Iterator[Answer]:
    """A file is made, read, renamed and removed."""
    name = os.path.join(directory, f".wavegen-{os.urandom(6).hex()}")

    def make_read_rename_remove() -> None:
        with open(name, "w", encoding="ascii") as stream:
            stream.write("x")
        os.rename(name, name + "2")
        with open(name + "2", encoding="ascii") as stream:
            stream.read()
        os.unlink(name + "2")

    yield try_action(directory, make_read_rename_remove)


def working_directory(directory: str) -> Iterator[Answer]:
    """The command starts in the project."""
    yield answer_for_outcome(directory, os.getcwd() if os.getcwd() != directory else "", reached=os.getcwd() == directory)


ATTEMPTS = {
    "canaries": read_canaries,
    "host_inodes": host_inodes,
    "opens": open_paths_for_reading,
    "listing": find_listed_name,
    "names": find_secret_names,
    "creates": create_nameless_files,
    "creates_named": creates_named,
    "writes": open_paths_for_writing,
    "writes_back": writes_back,
    "renames": rename_and_restore,
    "replaces": replace_with_symlink,
    "exchanges": exchange_with_own_file,
    "symlinks": read_through_symlink,
    "hardlinks": write_through_hardlink,
    "upwards": read_canaries_upwards,
    "descriptors": read_open_descriptors,
    "handles": open_root_by_handle,
    "devices": access_disk_devices,
    "reaches_host": reaches_host,
    "setuid": create_setuid_program,
    "capable": create_capable_program,
    "fifos": create_fifo,
    "sizes": check_tmpfs_sizes,
    "handed_down": handed_down,
    "accessible": check_write_access,
    "other_things": other_things,
    "works": use_files_normally,
    "working_directory": working_directory,
}
