"""Starting a script of a project that holds no launcher: its rules, which are what was rendered, and the launcher of the wavegen that is installed.

Little is imported: every start of such a project reads this.
"""

from __future__ import annotations

import json
import os
import sys

from wavegen.core import resources
from wavegen.project import handover
from wavegen.project.last_render import digest_of, read_file
from wavegen.project.project_root import LOCK, find_unlisted_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

_CANNOT_START = 125


def start_script(script: str, words: Sequence[str]) -> NoReturn:
    """Become the launcher, by the rules that a script of .wavegen/bin or .wavegen/docker is named after."""
    directory, name = os.path.split(os.path.realpath(script))
    root = os.path.dirname(os.path.dirname(directory))
    backends = {f"{root}/.wavegen/bin": ("bubblewrap", "", "bpf"), f"{root}/.wavegen/docker": ("docker", "run-", "json")}
    if directory not in backends:
        _refuse_start(f"{script} is no script of a rendered project", "start .wavegen/bin/default")
    backend, prefix, kind = backends[directory]
    if f"{os.path.realpath(resources.package_directory())}/".startswith(f"{root}/"):
        _refuse_start("this wavegen lies in the project, where commands write", "install it outside the project, with pipx install wavegen")
    outputs = _read_locked_digests(root)

    def read_verified(path: str) -> bytes:
        try:
            data = read_file(root, path)
        except (OSError, ValueError):
            data = None
        if data is None or digest_of(data) != outputs.get(path):
            _refuse_start(f"{path} is not what was rendered", "look at what changed, then run wavegen render")
        return data

    for path in outputs:
        if path.startswith(".wavegen/"):
            read_verified(path)
    launch = handover.read_launch(read_verified, name.removeprefix(prefix), kind)
    try:
        handover.exec_launcher(launch, root, ("--backend", backend, *words), ())
    except OSError as failed:
        _refuse_start(f"{sys.executable} cannot be started: {failed.strerror}", "give it fewer or shorter words")


def _read_locked_digests(root: str) -> dict[str, object]:
    """The digests of all that was rendered, with nothing beside it."""
    try:
        outputs = dict(json.loads(read_file(root, LOCK))["outputs"])
        strange = find_unlisted_files(root, outputs)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        _refuse_start(f"{root}/{LOCK} cannot be read", "run wavegen render")
    if strange:
        _refuse_start(f"{strange[0]} is not of wavegen: the lock does not list it", "look at it, then remove it")
    return outputs


def _refuse_start(what: str, remedy: str) -> NoReturn:
    """End: nothing was run."""
    sys.stderr.write("wavegen: error: " + "".join(letter if letter.isprintable() else "?" for letter in what) + f" ({remedy})\n")
    sys.exit(_CANNOT_START)
