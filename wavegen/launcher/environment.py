"""The variables of a command: those of the caller that the rules let in, those with fixed values, and HOME, PATH, SHELL.

The launcher gives them to bwrap as its own environment: bwrap stays as process 1 inside, where its first environment can be read
(/proc/1/environ), and arguments can be read by every user of the machine (/proc/PID/cmdline).
"""

from __future__ import annotations

import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .places import Places
    from .rules import Rules

_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"


def read_environment() -> dict[str, str]:
    """The caller's variables as they came: Python sets LC_CTYPE where the locale is C (PEP 538). Bytes that are no UTF-8 are kept."""
    try:
        with open("/proc/self/environ", "rb") as stream:
            text = stream.read()
        pairs = (part.decode("utf-8", "surrogateescape").partition("=") for part in text.split(b"\0") if b"=" in part)
    except OSError:
        pairs = ((name.decode("utf-8", "surrogateescape"), "=", value.decode("utf-8", "surrogateescape")) for name, value in posix.environ.items())
    return {name: value for name, _, value in pairs if name}


def absolute_path(path: str) -> str:
    """PATH without empty and relative entries, which are the working directory."""
    return ":".join(directory for directory in path.split(":") if directory.startswith("/")) or _DEFAULT_PATH


def command_environment(rules: Rules, places: Places, caller: dict[str, str], *, shell: str, interactive: bool) -> dict[str, str]:
    """All variables of a command inside. `shell`: the program that SHELL names."""
    found = {name: caller[name] for name, _ in rules.lists["pass"] if name in caller}
    found.update((name, value) for name, value, _ in rules.lists["env"])
    found.update(HOME=places.home, PATH=absolute_path(caller.get("PATH", "")), SHELL=shell)
    if interactive:
        name = rules.setting_value("shell")
        found.update(PS1=f"({name}) \\w\\$ ", debian_chroot=name)
    return found


def unsandboxed_environment(rules: Rules, caller: dict[str, str]) -> dict[str, str]:
    """The same for a persona's command that has no sandbox: none that tells of one, or of its proxies."""
    found = {name: caller[name] for name, _ in rules.lists["pass"] if name in caller}
    inside = ("SANDBOX_ACTIVE",)
    proxied = {name for name, _, origin in rules.lists["env"] if "proxy" in origin}
    found.update((name, value) for name, value, _ in rules.lists["env"] if name not in inside and name not in proxied)
    found.update({name: caller[name] for name in ("HOME", "PATH") if name in caller})
    return found


def bash_of(tools: str) -> str:
    """The bash of the system, else of the tools that Nix names, else the system's sh."""
    for directory in ("/bin", "/usr/bin", "/run/current-system/sw/bin", *tools.split(":")):
        if directory.startswith("/") and posix.access(f"{directory}/bash", posix.X_OK):
            return f"{directory}/bash"
    return "/bin/sh"
