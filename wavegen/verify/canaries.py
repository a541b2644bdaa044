"""What a throw-away ground is made of: directories, a copy of the fence's files, a repository, canaries."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from dataclasses import dataclass

from wavegen.backends import File
from wavegen.core import resources
from wavegen.core.host_programs import find_host_program
from wavegen.core.quote import quote_bash
from wavegen.policy.model import Access, Anchor, HostPath, Plan
from wavegen.project.project_root import LOCK
from wavegen.project.rendered_tree import Lock, sha256_digest
from wavegen.project.repository import COMMONDIR, pin_repository_settings
from wavegen.project.state_dir import state_directory
from wavegen.verify.catalogue import ABSENT, FOLLOWED, GIT_FILES, HOME_SECRETS
from wavegen.verify.containers import chown_below

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PROBES = ".wavegen/probes"
"""Where what verify runs inside lies in a throw-away project: read-only inside, and in no other project."""
_DIRECTORIES = (".github/workflows", ".git/hooks", "nested/.git/hooks", "linked", "pointed/.bare/hooks", "pointed/.bare/objects", "pointed/.bare/refs")
_PLANTED = (
    *(".git/config", ".git/modules/m/HEAD", "nested/.git/config", "pointed/.bare/config"),
    *(path for path in GIT_FILES if path != COMMONDIR),
    *(path for paths in FOLLOWED.values() for path in paths if path != ".envrc"),
)
"""Files that are there, and empty where nothing else is said."""
_NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Places:
    """The directories of a ground."""

    base: str

    @property
    def home_directory(self) -> str:
        """HOME of the entries."""
        return os.path.join(self.base, "home/probe")

    @property
    def other_home(self) -> str:
        """Another user's."""
        return os.path.join(self.base, "home/other")

    @property
    def project_copy(self) -> str:
        """The copy of the project."""
        return os.path.join(self.base, "src/project")

    @property
    def neighbour_project(self) -> str:
        """The project next door."""
        return os.path.join(self.base, "src/neighbour")

    def locate_path(self, path: HostPath) -> str:
        """Where a path of a policy is."""
        places = {
            Anchor.ROOT: "/",
            Anchor.HOME: self.home_directory,
            Anchor.PROJECT: self.project_copy,
            Anchor.RUNTIME: f"{self.project_copy}/.wavegen/launcher/etc",
            Anchor.HOMES: f"{self.base}/home",
            Anchor.AROUND: f"{self.base}/src",
        }
        return os.path.join(places[path.anchor], path.tail).rstrip("/") or "/"

    def repository_paths(self) -> frozenset[str]:
        """Where repositories below the project are held, with the directories above: what is mounted there is theirs."""
        found = set()
        for path in (*_PLANTED, *_DIRECTORIES, "linked/.git", "pointed/.git"):
            parts = path.split("/")
            found |= {os.path.join(self.project_copy, *parts[:length]) for length in range(1, len(parts) + 1) if ".git" in parts}
        return frozenset(found)


def plant_testbed(places: Places, root: str, plan: Plan, files: tuple[File, ...], word: str, owner: tuple[int, int] | None = None) -> None:  # noqa: PLR0913, PLR0917
    """Make all of it below `places.base`, which is there and private, and give it to `owner`. Raises OSError."""
    for directory in (
        places.home_directory,
        places.project_copy,
        places.neighbour_project,
        f"{places.other_home}/.ssh",
        f"{places.base}/tmp",
        f"{places.home_directory}/.gnupg",
    ):
        os.makedirs(directory, mode=0o700, exist_ok=True)
    # As render makes it: there starts note what they have compared.
    os.makedirs(state_directory(places.project_copy, {"HOME": places.home_directory}), mode=0o700)
    plant_canary(f"{places.neighbour_project}/canary", word)
    plant_canary(f"{places.other_home}/.ssh/id_ed25519", word)
    _plant_startup(places)
    for paths in HOME_SECRETS.values():
        for path in paths:
            plant_canary(f"{places.home_directory}/{path}", word)
    _copy_sandbox_files(places, root, plan, files)
    _plant_repository(places, root)
    _plant_guarded(places, plan)
    _plant_rules(places, root, plan, word)
    give_testbed_to(places, root, owner)


def give_testbed_to(places: Places, root: str, owner: tuple[int, int] | None) -> None:
    """Give all of it to `owner`, and make what only root can make. Raises OSError."""
    if owner:
        chown_below(places.base, owner)
    if os.geteuid() == 0:
        # chown(2) takes the bit away, so it is the last.
        _plant_setuid_helper(places, root)


def plant_canary(path: str, word: str) -> None:
    """The word at the end of a file, as a comment: programs read some of these files."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as stream:
        stream.write(f"# {word}\n")


def _copy_sandbox_files(places: Places, root: str, plan: Plan, files: tuple[File, ...]) -> None:
    """The fence's files. What is run comes from the plan: whoever may write the project could have edited the disk's."""
    for name in (plan.manifest, plan.overlay, "flake.nix", "flake.lock"):
        source = os.path.join(root, name)
        if os.path.isfile(source) and not os.path.islink(source):
            shutil.copyfile(source, os.path.join(places.project_copy, name))
    files = (*files, *(File(path=f"{PROBES}/{name}", text=text) for name, text in resources.probe_sources()))
    for file in files:
        path = os.path.join(places.project_copy, file.path)
        if file.path.startswith(".wavegen/") or not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as stream:
                stream.write(file.content_bytes)
            os.chmod(path, 0o755 if file.executable else 0o644)
    listed = {file.path: sha256_digest(file.content_bytes) for file in files if file.path.startswith(".wavegen/")}
    # Every shell starts the probes twice: they need not be compiled each time.
    for name, data in resources.compiled_probes():
        path = os.path.join(places.project_copy, PROBES, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as compiled:
            compiled.write(data)
        listed[f"{PROBES}/{name}"] = sha256_digest(data)
    # The launcher loads nothing that the lock does not list.
    with open(os.path.join(places.project_copy, LOCK), "w", encoding="utf-8") as stream:
        stream.write(Lock({}, listed).lock_text())


def _plant_repository(places: Places, root: str) -> None:
    git = find_host_program("git", root, tuple(SYSTEM_PATH.split(":")))
    if git:
        command = [git, "init", "--quiet", "--template=", places.project_copy]
        environment = {"PATH": SYSTEM_PATH, "HOME": f"{places.base}/tmp", "GIT_CONFIG_NOSYSTEM": "1"}
        subprocess.run(command, env=environment, check=False, capture_output=True)
    for path in _DIRECTORIES:
        os.makedirs(os.path.join(places.project_copy, path), exist_ok=True)
    pointers = (("linked/.git", "gitdir: ../.git/modules/m\n"), ("pointed/.git", "gitdir: ./.bare\n"), ("pointed/.bare/HEAD", "ref: refs/heads/main\n"))
    for name, text in (*pointers, *((name, "") for name in _PLANTED)):
        path = os.path.join(places.project_copy, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "a", encoding="ascii") as stream:
            stream.write(text)
    pin_repository_settings(places.project_copy)


def _plant_guarded(places: Places, plan: Plan) -> None:
    """What defaults protect where it exists is there, but for what is tried where it is not."""
    rules = {rule.path: rule for shell in plan.all_fences() for rule in shell.paths if rule.guarded}.values()
    # What others lie in is a directory, and is made with them.
    for rule in sorted(rules, key=lambda rule: -len(rule.path.tail_parts())):
        path = places.locate_path(rule.path)
        if rule.path.tail not in ABSENT and ".git" not in rule.path.tail_parts() and not os.path.lexists(path):
            with contextlib.suppress(NotADirectoryError, FileExistsError):  # another rule is about a file on the way
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="ascii"):
                    pass


def _plant_rules(places: Places, root: str, plan: Plan, word: str) -> None:
    """What the manifest grants or hides in the home and the project: of the kind that the real one is."""
    for rule in (rule for shell in plan.all_fences() for rule in shell.paths):
        if not rule.origin.at or not rule.path.tail or rule.path.anchor not in (Anchor.HOME, Anchor.PROJECT) or rule.pinned:
            continue
        path = places.locate_path(rule.path)
        # Two rules may contradict each other about what is a directory: then there is nothing to try.
        with contextlib.suppress(NotADirectoryError, FileExistsError, IsADirectoryError):
            if os.path.isdir(path) or (not os.path.lexists(path) and _is_directory(rule.path, root, plan, access=rule.access)):
                plant_canary(f"{path}/canary", word)
            else:
                plant_canary(path, word)


def _is_directory(path: HostPath, root: str, plan: Plan, *, access: Access) -> bool:
    real = os.path.join(root if path.anchor is Anchor.PROJECT else os.path.expanduser("~"), path.tail)
    if os.path.exists(real):
        return os.path.isdir(real)
    below = any(path != rule.path and path.contains_path(rule.path) for shell in plan.all_fences() for rule in shell.paths)
    # Nobody knows what it will be: .env is a file, secrets a directory, and ~/.cache is granted for writing.
    name = path.tail_parts()[-1]
    return below or "." not in name or (access is Access.WRITE and "." not in name[1:])


FAKES = ("bwrap", "readlink", "cat", "env", "mkdir", "mv", "bash", "sh", "python3", "perl", "git", "systemd-run")
"""Programs of the system for which the project has others."""
FAKE_MODULES = ("json.py", "hashlib.py", "os.py", "subprocess.py", "typing.py", "select.py", "encodings.py")
"""Of Python's."""


def _plant_startup(places: Places) -> None:
    """What must not be run on the host: it leaves a mark that only the host can make."""
    mark = f": >{quote_bash(f'{places.neighbour_project}/mark')}\n"
    for path in (f"{places.neighbour_project}/startup", f"{places.project_copy}/.envrc", *(f"{places.project_copy}/fakes/{name}" for name in FAKES)):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(f"#!/bin/sh\n{mark}")
        os.chmod(path, 0o700)
    for name in FAKE_MODULES:
        with open(f"{places.project_copy}/fakes/{name}", "w", encoding="utf-8") as stream:
            # encodings is loaded before there is an open().
            stream.write(f"import posix\nposix.close(posix.open({f'{places.neighbour_project}/mark'!r}, posix.O_CREAT | posix.O_WRONLY, 0o600))\n")


def _plant_setuid_helper(places: Places, root: str) -> None:
    """A program that runs as nobody, where root can make one: `id`."""
    source = find_host_program("id", root, tuple(SYSTEM_PATH.split(":")))
    path = os.path.join(places.project_copy, "setuid-helper")
    if source:
        shutil.copyfile(source, path)
        with contextlib.suppress(OSError):  # a file system that root does not own
            os.chown(path, _NOBODY, -1)
            os.chmod(path, 0o4755)  # noqa: S103  that is what is tried
