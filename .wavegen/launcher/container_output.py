"""What a container leaves for its caller: a directory beside the one that was named, which takes its name once everything has ended."""

from __future__ import annotations

import posix
import time
from _stat import S_ISDIR, S_ISREG

from .container_mounts import AsOwner, must_be_utf8
from .errors import CannotStartError
from .supervise import print_note
from .symlinks import resolve_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .container import Container

_O_PATH = 0o10000000
_DEEPEST = 500


def prepare_output(container: Container) -> tuple[str, str]:
    """Where the output goes at the end, and where it is collected. Raises CannotStartError."""
    named = container.session.arguments.output
    path = (named if named.startswith("/") else f"{container.places.start}/{named}").rstrip("/")
    above, _, name = path.rpartition("/")
    real = resolve_path(container.host, above or "/")
    if not real or not S_ISDIR(container.host.lstat(real).st_mode):
        raise CannotStartError(f"{above or '/'} does not exist", "name a directory that can be made")
    output = f"{real.rstrip('/')}/{name}"
    try:
        is_free = S_ISDIR(container.host.lstat(output).st_mode) and not container.host.scandir(output, 1)
    except FileNotFoundError:
        is_free = True
    if not is_free:
        raise CannotStartError(f"{output} is there already, and not empty", "name another directory for what comes out")
    collected = f"{output}.wavegen-{posix.getpid()}-{time.time_ns() // 1000}"
    must_be_utf8("a path", [collected])
    if not container.run_directory.is_shown:
        _make_output_directory(container, real, collected)
    return output, collected


def _make_output_directory(container: Container, above: str, path: str) -> None:
    """Made by the project's owner, where the owner may; root gives away what it has made, by its descriptor."""
    directory, name = container.host.open_without_links(above), path.rpartition("/")[2]
    try:
        try:
            with AsOwner(container.run_directory.uid, container.run_directory.gid):
                posix.mkdir(name, 0o700, dir_fd=directory)
        except PermissionError:
            posix.mkdir(name, 0o700, dir_fd=directory)
            handle = posix.open(name, _O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=directory)
            if posix.fstat(handle).st_uid == posix.geteuid() == 0:
                posix.chown(f"/proc/self/fd/{handle}", container.run_directory.uid, container.run_directory.gid)
            posix.close(handle)
    except OSError as failed:
        raise CannotStartError(f"{path} cannot be made: {failed.strerror}", "make room there, for the owner of the project") from None
    finally:
        posix.close(directory)


def collect_output(container: Container) -> None:
    """Let the output have its name: files and directories. A link would lead whoever reads it elsewhere; a FIFO is nobody's result."""
    path = container.collected
    if not container.has_ended:
        print_note(f"error: the output lies in {path}, where the container may still write")
        return
    try:
        with AsOwner(container.run_directory.uid, container.run_directory.gid):
            handle = posix.open(path, _O_PATH | posix.O_DIRECTORY | posix.O_NOFOLLOW | posix.O_CLOEXEC)
            left = _remove_special_files(handle, 0)
            posix.close(handle)
    except OSError as failed:
        print_note(f"error: the output lies in {path}, with whatever is in it: {failed.strerror}")
        return
    if left:
        print_note(f"note: of the output what is no plain file was left behind: {left}")
    try:
        posix.rename(path, container.output)
    except OSError as failed:
        print_note(f"error: the output could not be moved and lies in {path}: {failed.strerror}")


def _remove_special_files(place: int, depth: int) -> int:
    """Remove what is neither file nor directory below a directory, and the bits of setuid, setgid and sticky; how many were removed."""
    if depth > _DEEPEST:
        raise OSError(36, "it is too deep")
    removed = 0
    # What nobody may look into could hold anything.
    posix.chmod(f"/proc/self/fd/{place}", 0o700 | posix.fstat(place).st_mode & 0o777)
    directory = posix.open(f"/proc/self/fd/{place}", posix.O_RDONLY | posix.O_DIRECTORY | posix.O_CLOEXEC)
    try:
        for name in posix.listdir(directory):
            mode = posix.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
            if not S_ISDIR(mode) and not S_ISREG(mode):
                posix.unlink(name, dir_fd=directory)
                removed += 1
                continue
            below = posix.open(name, _O_PATH | posix.O_NOFOLLOW | posix.O_CLOEXEC, dir_fd=directory)
            if S_ISDIR(mode):
                removed += _remove_special_files(below, depth + 1)
            elif mode & 0o7000:
                posix.chmod(f"/proc/self/fd/{below}", mode & 0o777)
            posix.close(below)
    finally:
        posix.close(directory)
    return removed
