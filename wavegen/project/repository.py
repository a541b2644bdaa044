"""The files that a project's repository needs so that no shell can turn git or Mercurial elsewhere."""

from __future__ import annotations

import os

from wavegen.launcher.errors import CannotStartError
from wavegen.launcher.git import git_directories
from wavegen.launcher.host import RealHost

COMMONDIR = ".git/commondir"
MERCURIAL = (".hg/hgrc", ".hg/hgrc-not-shared")
_ITSELF = b"./\n"
"""What git assumes without the file (gitrepository-layout(5)). libgit2, and Nix by it, takes `.` alone for a mistake."""


def pin_repository_settings(root: str, *, only_look: bool = False) -> tuple[str, ...]:
    """Write `commondir` in each git directory of the project, and MERCURIAL, empty, where they are missing; what was written.

    git on the host reads settings and hooks from wherever this file says. Mounts can keep a shell from changing it, but
    not from making it where there is none: in the project's own repository, a clone below, a submodule, one that a pointer names. A linked
    worktree's entry has its own.
    The same holds for the settings of Mercurial, which name hooks. `only_look`: what is missing, and nothing is written.
    """
    mercurial = os.path.join(root, ".hg")
    wanted: dict[str, bytes] = {}
    host = RealHost()
    try:
        found = git_directories(host, os.path.realpath(root), home=os.path.expanduser("~"))
    except (CannotStartError, OSError):
        found = ()  # the launcher says what is wrong with them
    finally:
        host.close_kept_directories()
    for git in found:
        if os.path.isfile(f"{git}/HEAD"):
            wanted[os.path.relpath(f"{git}/commondir", os.path.realpath(root))] = _ITSELF
    if not os.path.islink(mercurial) and os.path.isdir(f"{mercurial}/store"):
        wanted |= dict.fromkeys(MERCURIAL, b"")
    if only_look:
        return tuple(path for path in wanted if not os.path.lexists(os.path.join(root, path)))
    return tuple(path for path, content in wanted.items() if _create_file(os.path.join(root, path), content))


def _create_file(path: str, content: bytes) -> bool:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return False  # it is there, or nobody may write there
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    return True
