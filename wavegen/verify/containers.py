"""What `wavegen verify` must know of the engine that starts containers: where it is, whose they are, what the image brings along."""

from __future__ import annotations

import os
import pwd
import stat
import subprocess

from wavegen.core.errors import MachineError
from wavegen.core.host_programs import SYSTEM, find_host_program, path_entries_outside

CHOICE = "WAVEGEN_CONTAINER"
_STORES = ("nix/store", "gnu/store")
_PASSED = (
    *(CHOICE, "WAVEGEN_CONTAINER_USERNS", "WAVEGEN_CONTAINER_LABEL", "DOCKER_HOST", "DOCKER_CONTEXT"),
    *("CONTAINERS_CONF", "CONTAINERS_CONF_OVERRIDE", "CONTAINERS_STORAGE_CONF", "XDG_RUNTIME_DIR"),
)
_BAITS = ("DOCKER_HOST", "CONTAINER_HOST", "XDG_RUNTIME_DIR")
"""They would lead the client itself to a planted socket."""
_SECONDS = 20.0


def client_environment(base: str) -> dict[str, str]:
    """What leads the client to its daemon or its images, though HOME is another one. `base`: a directory of the ground's."""
    home = os.path.expanduser("~")
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    if not uses_podman():
        own = f"{home}/.docker"
        return {**passed, "DOCKER_CONFIG": os.environ.get("DOCKER_CONFIG") or (own if os.path.isdir(own) else f"{base}/none")}
    # Where a user's podman keeps images: from HOME it would make them out to be in the throw-away one.
    places = {"XDG_DATA_HOME": ".local/share", "XDG_CONFIG_HOME": ".config"} if is_rootless_engine() else {}
    return {**passed, **{name: os.environ.get(name) or f"{home}/{place}" for name, place in places.items()}}


def bait_variables() -> tuple[str, ...]:
    """Variables that are not set to what was planted."""
    return _BAITS


def uses_podman() -> bool:
    """Whether podman starts them."""
    return os.environ.get(CHOICE) == "podman"


def bounds_processes() -> bool:
    """Whether the engine bounds them: a user's podman does so by control groups of version 2 alone."""
    return not uses_podman() or os.geteuid() == 0 or os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def user_name_variables() -> dict[str, str]:
    """Variables by which a user's podman finds the further ids that are the user's."""
    if not is_rootless_engine():
        return {}
    try:
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return {}
    return dict.fromkeys(("USER", "LOGNAME"), name)


def is_rootless_engine() -> bool:
    """Whether the engine is the user's own, whose containers have a user namespace."""
    return uses_podman() and os.geteuid() != 0


def image_search_path() -> tuple[str, ...]:
    """The entries of the caller's PATH that are there inside, too: those of stores of packages."""
    return tuple(entry for entry in os.environ.get("PATH", "").split(":") if entry.startswith(tuple(f"/{store}/" for store in _STORES)))


def package_stores() -> tuple[str, ...]:
    """The stores that are shown."""
    return tuple(store for store in _STORES if any(entry.startswith(f"/{store}/") for entry in image_search_path()))


def read_image_variables(root: str, image: str) -> dict[str, str]:
    """The image's own variables; none where the engine does not tell, which the script then says itself."""
    name = os.environ.get(CHOICE) or "docker"
    program = find_host_program(name, root, (*SYSTEM, *path_entries_outside(root, os.environ.get("PATH", ""))))
    if not program:
        return {}
    command = [program, "image", "inspect", "-f", "{{range .Config.Env}}{{println .}}{{end}}", image]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line) if done.returncode == 0 else {}


def container_owner(root: str) -> tuple[int, int] | None:
    """Whom a container of root's runs as: the project's owner, and the group as the script chooses it. None where the caller is no root.

    Raises MachineError for a project of root's.
    """
    if os.geteuid() != 0:
        return None
    found = os.stat(root)
    if found.st_uid == 0:
        raise MachineError("the project belongs to root, and nothing in a container runs as root", "give it to a user: chown -R USER:GROUP the project")
    return (found.st_uid, found.st_gid or found.st_uid)


def chown_below(directory: str, whom: tuple[int, int]) -> None:
    """Give what is below a directory to a user, never through a link. Raises OSError.

    The directory itself stays the caller's and private, so that nobody else gets at what is in it, then or later.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _chown_entries(handle, whom)
    finally:
        os.close(handle)


def _chown_entries(directory: int, whom: tuple[int, int]) -> None:
    for name in os.listdir(directory):
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            try:
                _chown_entries(below, whom)
            finally:
                os.close(below)
        os.chown(name, *whom, dir_fd=directory, follow_symlinks=False)
