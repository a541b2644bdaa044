"""The few git commands that wavegen runs in a project whose git settings an agent may have written."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess

from wavegen.core.errors import MachineError, UsageError
from wavegen.core.host_programs import SYSTEM, find_host_program, path_entries_outside
from wavegen.manifest.yaml_nodes import SIZE_LIMIT

# A repository that says it is a partial clone would fetch what is missing, by a program that it names.
_OFFLINE = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none", "GIT_TERMINAL_PROMPT": "0"}


def add_command(paths: tuple[str, ...]) -> tuple[str, ...]:
    """What makes new files visible to a flake: git must know them, not what is in them."""
    return ("git", "add", "-N", "--", *paths)


def add_paths_to_index(root: str, paths: tuple[str, ...]) -> None:
    """Run `add_command` without starting any program that the project's settings name. Raises MachineError.

    git starts fsmonitor and hooks when it writes the index, and the filters of files whose time stamp does not tell
    whether they changed ("racy git" in its documentation): all of them are switched off for this one run.
    """
    command = add_command(paths)
    settings = [("core.fsmonitor", "false"), ("core.hooksPath", "/dev/null")]
    for driver in _filter_drivers(root):
        settings += [(f"filter.{driver}.{key}", "") for key in ("clean", "smudge", "process")]
        settings.append((f"filter.{driver}.required", "false"))
    # By variables (git-config(1)), as the name of a driver may hold the = that -c splits at.
    environment = os.environ | {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    done = _run_git_text(root, command[1:], environment)
    if done.returncode:
        raise MachineError(f"git add failed: {done.stderr.strip()}", f"run {' '.join(command)} yourself")


# What would lead git to another repository than the project's, as it is set in hooks (git-rev-parse(1), --local-env-vars).
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE")
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SHA1_DIGITS, _DIRECTORY, _FILES = 40, b"40000", (b"100644", b"100755")
_OBJECT_MAX = 16 * SIZE_LIMIT


def resolve_commit(root: str, revision: str) -> str:
    """The id of the commit that a revision names. Raises UsageError and MachineError."""
    if not revision or revision.startswith("-") or not revision.isprintable():
        raise UsageError(f"{revision!r} is no revision", "name a branch, a tag or a commit")
    done = _run_plumbing(root, "-c", "core.warnAmbiguousRefs=true", "rev-parse", "--verify", f"{revision}^{{commit}}")
    found, said = done.stdout.decode("ascii", "replace").strip(), done.stderr.decode("utf-8", "replace").strip()
    # A shell may have made a branch `origin/main`, which comes before the remote's.
    if "ambiguous" in said and not done.returncode:
        raise UsageError(f"'{revision}' names several revisions", f"write refs/remotes/{revision} or refs/heads/{revision}, or a commit's id")
    if done.returncode or not _COMMIT.fullmatch(found):
        why = said.splitlines()[0] if said else "git names none"
        raise UsageError(f"there is no revision '{revision}' here: {why}", "name a branch, a tag or a commit of the project's repository")
    return found


def read_file_at_commit(root: str, commit: str, name: str) -> bytes | None:
    """What a file of the project held at a commit; None where there was none. Raises UsageError for what was no file, and MachineError.

    From the commit on each object is what its name says: git itself does not look, and a command may have written to
    .git/objects. Nothing is started for it: what is stored has gone through no filter, and nothing is shown by a pager.
    """
    inside = _run_plumbing(root, "rev-parse", "--show-prefix").stdout.decode("utf-8", "surrogateescape").removesuffix("\n")
    tree = _read_object(root, "commit", commit).partition(b"\n")[0].removeprefix(b"tree ").decode("ascii", "replace")
    *above, last = [part for part in (*inside.split("/"), name) if part]
    for part in above:
        mode, tree = _tree_entries(root, tree).get(os.fsencode(part), (b"", ""))
        if mode != _DIRECTORY:
            return None
    mode, found = _tree_entries(root, tree).get(os.fsencode(last), (b"", ""))
    if not mode:
        return None
    if mode not in _FILES:
        raise UsageError(f"{name} was no file at {commit}", "name a revision where it was one")
    return _read_object(root, "blob", found)


def _tree_entries(root: str, tree: str) -> dict[bytes, tuple[bytes, str]]:
    """Mode and id of each entry of a tree, by name."""
    rest, found = _read_object(root, "tree", tree), {}
    size = len(tree) // 2
    while rest:
        head, _, rest = rest.partition(b"\0")
        mode, _, name = head.partition(b" ")
        found[name], rest = (mode, rest[:size].hex()), rest[size:]
    return found


def _read_object(root: str, kind: str, name: str) -> bytes:
    size = _run_plumbing(root, "cat-file", "-s", name).stdout.strip()
    if size.isdigit() and int(size) > (SIZE_LIMIT if kind == "blob" else _OBJECT_MAX):
        raise UsageError(f"the {kind} {name} has more than {SIZE_LIMIT} bytes", "name another revision")
    done = _run_plumbing(root, "cat-file", kind, name)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise MachineError(f"git cannot read the {kind} {name}: {said}", "run git fsck, or fetch it: what is missing is not fetched here")
    digest = hashlib.sha1 if len(name) == _SHA1_DIGITS else hashlib.sha256
    if digest(f"{kind} {len(done.stdout)}\0".encode() + done.stdout).hexdigest() != name:
        raise MachineError(f"the {kind} {name} is not what its name says: somebody wrote to .git/objects", "run git fsck, and clone anew")
    return done.stdout


def _run_plumbing(root: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    # Objects that are said to stand for others would show another manifest than the one that is named.
    environment = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    return _run_git_bytes(root, arguments, environment | {"GIT_NO_REPLACE_OBJECTS": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"})


def _filter_drivers(root: str) -> tuple[str, ...]:
    # Reading the settings starts nothing. `-z` ends each name with NUL, whatever it holds.
    done = _run_git_text(root, ("config", "--name-only", "-z", "--get-regexp", r"^filter\."), dict(os.environ))
    names = [name.split(".", 1)[1].rpartition(".")[0] for name in done.stdout.split("\0") if name.count(".") > 1]
    return tuple(dict.fromkeys(names))


def _run_git_text(root: str, arguments: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    done = _run_git_bytes(root, arguments, environment)
    out, said = (stream.decode("utf-8", "replace") for stream in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, said)


def _run_git_bytes(root: str, arguments: tuple[str, ...], environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    program = find_host_program("git", root, (*SYSTEM, *path_entries_outside(root, environment.get("PATH", ""))))
    if not program:
        raise MachineError("git is not on the PATH", "install git")
    try:
        return subprocess.run((program, *arguments), cwd=root, env=environment | _OFFLINE, capture_output=True, check=False)
    except OSError as failed:
        raise MachineError(f"git cannot be started: {failed.strerror}", "install git") from None
