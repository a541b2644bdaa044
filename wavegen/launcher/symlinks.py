"""Where paths lead: links are followed one by one, in the open, and never where a command could have made them."""

from __future__ import annotations

import errno
from _stat import S_ISLNK

from .errors import CannotStartError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .host import Host

_MOST_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""


def is_within(path: str, place: str) -> bool:
    """Whether a path is a place, or lies below it."""
    return place in (path, "/") or path.startswith(place + "/")


def is_within_any(path: str, places: Sequence[str]) -> bool:
    """Whether a path is, or lies below, one of the places."""
    return any(is_within(path, place) for place in places)


def resolve_path(host: Host, path: str, written: Sequence[str] = (), asked_by: Callable[[], str] = str) -> str:
    """The path without links; empty where nothing is there.

    `written`: places that commands write, in which a link is refused: it could have been made to lead anywhere. `asked_by`: says
    which rule names the path. Raises CannotStartError for such a link, OSError where something cannot be seen.
    """
    try:
        # Mostly there is no link on the way, and one look is enough.
        if path == "/" or not S_ISLNK(host.lstat(path).st_mode):
            return path
    except OSError as failed:
        if failed.errno == errno.ENOENT:
            return ""
        if failed.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
    rest, current, links = path.split("/"), "", 0
    rest.reverse()
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            current = current.rpartition("/")[0]
            continue
        try:
            mode = host.lstat(f"{current}/{part}").st_mode
        except OSError as failed:
            if failed.errno in (errno.ENOENT, errno.ENOTDIR):
                return ""
            raise
        if not S_ISLNK(mode):
            current = f"{current}/{part}"
            continue
        if is_within_any(current or "/", written):
            raise CannotStartError(
                f"{current}/{part} is a link that a command could have made, or could remove", f"{asked_by()} asks for it; name the place it leads to"
            )
        links += 1
        if links > _MOST_LINKS:
            return ""
        target = host.readlink(f"{current}/{part}")
        if target.startswith("/"):
            current = ""
        rest.extend(reversed(target.split("/")))
    return current or "/"
