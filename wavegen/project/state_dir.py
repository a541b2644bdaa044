"""What wavegen keeps on the host for a project, outside of it: where, and what render leaves there."""

from __future__ import annotations

import grp
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_OVERFLOW = 65534
"""Whom a user namespace shows in place of those that it does not know."""


def state_directory(root: str, environment: Mapping[str, str] | None = None) -> str:
    """Where the wrappers of a project keep what they keep; see find_places in runtime/places.sh. `environment`: theirs, if not this process's."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(os.path.realpath(environment.get("HOME") or os.path.expanduser("~")), ".local/state")
    return os.path.join(base, "wavegen", state_directory_name(root))


def state_directory_name(root: str) -> str:
    """The name of a project's directory there."""
    return root.replace("%", "%25").replace("/", "%2F")


def checked_state_directory(root: str) -> str:
    """Where it is for this process, without links. Raises OSError where somebody else could have written what is there, or a command of the project."""
    named = os.path.abspath(state_directory(root))
    place = os.path.realpath(named)
    if f"{place}/".startswith(f"{root}/") or f"{root}/".startswith(f"{place}/"):
        raise PermissionError(f"{place} lies in the project, or the project in it")
    for there in (place, os.path.dirname(place)):
        # Not even where only owners may rename: others could have made what is not there yet.
        if os.path.lexists(there) and os.lstat(there).st_mode & stat.S_IWOTH:
            raise PermissionError(f"others may write in {there}")
    while not os.path.lexists(named):
        named = os.path.dirname(named)
    there = os.path.realpath(named)
    if os.stat(there).st_uid != os.geteuid() or not is_ours(there):
        raise PermissionError(f"{there} is not this user's alone")
    while named != "/":
        # A link of another user's leads wherever that user wants.
        if os.lstat(named).st_uid not in (0, os.geteuid(), _OVERFLOW):
            raise PermissionError(f"{named} is another user's")
        named = os.path.dirname(named)
    return place


def is_ours(place: str) -> bool:
    """Whether nobody else can rename what is in a directory: neither there nor in a directory above."""
    while True:
        found = os.stat(place)
        others = stat.S_IWOTH if _is_private_group(found) else stat.S_IWOTH | stat.S_IWGRP
        if found.st_uid not in (0, os.geteuid(), _OVERFLOW) or (found.st_mode & others and not found.st_mode & stat.S_ISVTX):
            return False
        if place == "/":
            return True
        place = os.path.dirname(place)


def _is_private_group(found: os.stat_result) -> bool:
    """Whether the group is its owner's alone, as distributions make one for each user: by the number, and nobody else in it."""
    if not found.st_mode & stat.S_IWGRP:
        return False
    try:
        return found.st_gid == found.st_uid and not grp.getgrgid(found.st_gid).gr_mem
    except KeyError:
        return False


def write_note(place: str, name: str, text: str) -> None:
    """Leave a file in this user's own state, in place of an older one. Raises OSError."""
    missing = [place]
    while not os.path.lexists(missing[-1]):
        missing.append(os.path.dirname(missing[-1]))
    for above in reversed(missing[:-1]):
        os.mkdir(above, 0o700)
    directory = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        new = f"{name}.{os.getpid()}"
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
    finally:
        os.close(directory)


def record_lock_digest(root: str, lock: str) -> None:
    """Leave word for the audit of what the host has rendered, where shells were started: `lock` is the digest of its list."""
    try:
        place = checked_state_directory(root)
        if os.path.isdir(place):
            write_note(place, "rendered", lock)
    except OSError:
        return  # then the audit names what was rendered
