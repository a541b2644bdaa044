"""The one file that a project's repository needs so that no shell can turn git elsewhere."""

from __future__ import annotations

import os

COMMONDIR = ".git/commondir"
_ITSELF = b"./\n"
"""What git assumes without the file (gitrepository-layout(5)). libgit2, and Nix by it, takes `.` alone for a mistake."""


def keep_to_itself(root: str) -> bool:
    """Write COMMONDIR where the project has a repository without it; whether it was written.

    git on the host reads settings and hooks from wherever this file says. Mounts can keep a shell from changing it, but
    not from making it where there is none. A linked worktree has its own, and a link in the place of .git is left alone.
    """
    git = os.path.join(root, ".git")
    if os.path.islink(git) or not os.path.isfile(f"{git}/HEAD") or not os.path.isdir(f"{git}/objects"):
        return False
    try:
        handle = os.open(os.path.join(root, COMMONDIR), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except OSError:
        return False  # it is there, or nobody may write there
    with os.fdopen(handle, "wb") as stream:
        stream.write(_ITSELF)
    return True
