"""What wavegen keeps on the host for a project, outside of it: where, and what render leaves there."""

from __future__ import annotations

import os
from collections.abc import Mapping


def state(root: str, environment: Mapping[str, str] | None = None) -> str:
    """Where the wrappers of a project keep what they keep; see find_places in runtime/places.sh. `environment`: theirs, if not this process's."""
    environment = os.environ if environment is None else environment
    base = environment.get("XDG_STATE_HOME", "")
    if not base.startswith("/"):
        base = os.path.join(os.path.realpath(environment.get("HOME") or os.path.expanduser("~")), ".local/state")
    return os.path.join(base, "wavegen", key(root))


def key(root: str) -> str:
    """The name of a project's directory there."""
    return root.replace("%", "%25").replace("/", "%2F")


def note_rendered(root: str, lock: str) -> None:
    """Leave word for the audit of what the host has rendered, where shells were started: `lock` is the digest of its list."""
    place = state(root)
    if not os.path.isdir(place):
        return
    try:
        with open(os.path.join(place, "rendered"), "w", encoding="ascii") as stream:
            stream.write(lock)
    except OSError:
        return  # then the audit names what was rendered
