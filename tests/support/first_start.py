"""What the first start of a rendered tree does, done before it: its files are compared with the lock, and compiled.

Hundreds of tests render a tree of their own, of the same launcher; compiling it takes longer than a start. The launcher's own code
(`checked_files.py` of that tree) compares and writes here as ever, by the Python that stubs start; only what `compile` returned for the same text
before is remembered. Tests of that code itself are in test_launcher and test_attacks, on trees that nobody has prepared.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

from wavegen.project.state_dir import state_directory_name

PYTHON = "/usr/bin/python3"
_SERVER = r"""
import json, os, sys

compiled = {}

def remembered(text, name, *arguments, **options):
    key = (bytes(text), name, arguments, tuple(options.items()))
    if key not in compiled:
        compiled[key] = compile(text, name, *arguments, **options)
    return compiled[key]

for line in sys.stdin:
    tree = json.loads(line)
    own = tree + "/launcher"
    try:
        launcher = {"__name__": "launcher", "__file__": own + "/__main__.py"}
        exec(compile(open(own + "/__main__.py").read(), own, "exec"), launcher)
        names = {"__name__": "checked_files", **{name: launcher[name] for name in ("read_plain_file", "file_status_bytes", "file_identity", "open_state")}, "compile": remembered}
        exec(compile(open(own + "/checked_files.py").read(), own, "exec"), names)
        name = "launcher-" + sys.implementation.cache_tag
        known = names["check_rendered_tree"](tree, own, own + "/__pycache__/" + name)[2].decode()
    except (SystemExit, Exception):  # a tree that is refused: the test's own start says so
        name = known = ""
    print(json.dumps([name, known]), flush=True)
"""


@cache
def _server() -> subprocess.Popen[str]:
    """It ends with its input, which is this process's."""
    argv = [PYTHON, "-I", "-S", "-X", "utf8", "-c", _SERVER]
    return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd="/")


def prepare(project: Path, home: Path, uid: int | None = None) -> None:
    """Compare and compile the tree of a project, as this user's first start would; of a shell that may write there nothing is kept, as ever."""
    tree = project / ".wavegen"
    if not (tree / "launcher/__main__.py").is_file() or any((tree / "bin").glob("landlock-*")):
        return
    server = _server()
    assert server.stdin
    assert server.stdout
    server.stdin.write(json.dumps(str(tree.resolve())) + "\n")
    server.stdin.flush()
    name, known = json.loads(server.stdout.readline())
    if not known:
        return
    kept = home / ".local/state/wavegen" / state_directory_name(str(project.resolve()))
    made = [tree / "launcher/__pycache__", *(tree / "launcher/__pycache__").glob("*")]
    for directory in (*reversed(kept.parents), kept):
        if directory.is_relative_to(home) and directory != home and not directory.exists():
            directory.mkdir(0o700)
            made.append(directory)
    if uid not in (None, os.getuid()):
        for path in made:
            os.chown(path, uid, uid)
    # A change of the owner is one of the file.
    info = (tree / "launcher/__pycache__" / name).stat()
    (kept / name).write_text(f"{info.st_ino} {info.st_ctime_ns}\n")
    os.chown(kept / name, *((uid, uid) if uid is not None else (-1, -1)))
