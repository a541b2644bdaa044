"""A path of the manifest → a `HostPath`, or what is wrong with it; and which paths hold sockets. Pure."""

from __future__ import annotations

import re

from wavegen.core.errors import InvalidValueError
from wavegen.policy.model import Anchor, HostPath

# Whoever can connect to one of these acts outside the fence: a read-only mount does not stop connect(2).
_SOCKETS = tuple(
    HostPath(anchor, tail)
    for anchor, tail in (
        (Anchor.ROOT, "run/docker.sock"),
        (Anchor.ROOT, "run/podman"),
        (Anchor.ROOT, "run/containerd"),
        (Anchor.ROOT, "run/user"),
        (Anchor.ROOT, "run/dbus"),
        (Anchor.ROOT, "run/systemd/private"),
        (Anchor.ROOT, "run/libvirt"),
        (Anchor.ROOT, "run/snapd.socket"),
        (Anchor.ROOT, "run/postgresql"),
        (Anchor.ROOT, "var/run/docker.sock"),
        (Anchor.ROOT, "var/run/dbus"),
        (Anchor.ROOT, "nix/var/nix/daemon-socket"),
        (Anchor.ROOT, "tmp/.X11-unix"),
        (Anchor.HOME, ".docker/run"),
        (Anchor.HOME, ".docker/desktop"),
        (Anchor.HOME, ".gnupg"),
        (Anchor.HOME, ".ssh/agent"),
    )
)
# /proc and /dev are made anew for each shell; what the host has there must not be laid over them.
_MADE_ANEW = ("proc", "dev")


def host_path(text: str) -> HostPath:
    """`/x` on the host, `~/x` in the home directory, anything else in the project; `.` and `//` are folded.

    Raises InvalidValueError for `..`, patterns, other users' homes and empty text: each would mean something else
    than it seems to.
    """
    if not text.strip():
        raise InvalidValueError("a path is empty", "write ~/…, /… or a path in the project")
    if text.startswith("~") and text != "~" and not text.startswith("~/"):
        raise InvalidValueError(f"'{text}' names another user's home", "write the absolute path")
    if re.fullmatch(r"\$(\{[A-Z_]+\}|[A-Z_]+)(/.*)?", text, re.DOTALL):
        raise InvalidValueError(f"'{text}' is taken as it is: variables are not expanded", "write ~/… for the home directory")
    anchor = Anchor.ROOT if text.startswith("/") else Anchor.HOME if text.startswith("~") else Anchor.PROJECT
    parts = [part for part in text.removeprefix("~").split("/") if part not in ("", ".")]
    if ".." in parts:
        raise InvalidValueError(f"'{text}' goes up with ..", "write where it leads to")
    if any(c in part for part in parts for c in "*?["):
        raise InvalidValueError(f"'{text}' is a pattern", "a fence holds paths, not patterns: list them, or name their directory")
    return HostPath(anchor, "/".join(parts))


def granted_path(text: str) -> HostPath:
    """A path that a rule may show; raises InvalidValueError for the root, the whole home directory, /proc and /dev."""
    path = host_path(text)
    if path.anchor is Anchor.ROOT and not path.tail:
        raise InvalidValueError("'/' as a whole cannot be granted", "list the directories that are needed")
    if path.anchor is Anchor.HOME and not path.tail:
        raise InvalidValueError("the home directory as a whole cannot be granted", "list what is needed below it, as ~/.gitconfig")
    if path.anchor is Anchor.ROOT and (path.tail in _MADE_ANEW or path.tail_parts()[0] == "proc"):
        raise InvalidValueError(f"'{text}' is made anew for each shell", "remove the entry; single devices are granted as /dev/NAME")
    return path


def holds_socket(path: HostPath) -> HostPath | None:
    """The known socket that is at, above or below a path."""
    return next((known for known in _SOCKETS if path.contains_path(known) or known.contains_path(path)), None)


def is_device(path: HostPath) -> bool:
    """Whether a path lies in /dev."""
    return path.anchor is Anchor.ROOT and path.tail_parts()[:1] == ("dev",)
