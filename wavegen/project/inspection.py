"""What surrounds a project: bounded reads of files, questions to tools on PATH, and hosts out of URLs.

Nothing here fails: what cannot be read is empty text. Nothing of the project is ever run, as an agent may have put it
there, and no credential that a URL carries gets past `host_of`.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from wavegen.core.errors import InvalidValueError, Location
from wavegen.core.host_programs import find_host_program, is_path_within, path_entries_outside
from wavegen.launcher.egress.rules import DEFAULT_PORTS
from wavegen.manifest.decoder import Text
from wavegen.policy.defaults import variable_danger
from wavegen.policy.domains import broad_wildcard_reason, domain_rule
from wavegen.policy.host_rules import is_worth_listing

SIZE_LIMIT = 32 * 1024**2
"""Bytes of the largest file that is read: a lock file of thousands of packages has a few."""

SECONDS = 5
"""How long a tool may take to print one of its settings."""

_PORTS = {"ssh": 22, "git": 9418}
_URL_LIMIT = 4096
# user@host:path, as git and scp write it; not a URL.
_SCP = re.compile(r"(?:[^@/\s]+@)?([A-Za-z0-9._-]+):(?!//)\S*")
_QUIET = {
    "PWD": "/",
    "COLUMNS": "1000",  # so that no URL is broken over two lines
    "GOTOOLCHAIN": "local",  # go would fetch the toolchain that a setting names
    "COREPACK_ENABLE_NETWORK": "0",  # the same for npm
    "NPM_CONFIG_UPDATE_NOTIFIER": "false",
    "NPM_CONFIG_LOGS_MAX": "0",  # leave no log in the home directory
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


@dataclass(frozen=True, slots=True)
class Surroundings:
    """A project's directory (absolute, without symlinks), the user's home directory and environment."""

    root: str
    home: str
    env: Mapping[str, str]

    @property
    def config_directory(self) -> str:
        """Where programs keep the user's settings."""
        return self._directory_from_variable("XDG_CONFIG_HOME", ".config")

    @property
    def cargo_directory(self) -> str:
        """Where cargo keeps settings and indexes."""
        return self._directory_from_variable("CARGO_HOME", ".cargo")

    def _directory_from_variable(self, variable: str, default: str) -> str:
        named = self.env.get(variable, "")
        return named if os.path.isabs(named) else os.path.join(self.home, default)

    def has_file(self, name: str) -> bool:
        """Whether the project has a file of this name."""
        return os.path.isfile(os.path.join(self.root, name))

    def read_project_text(self, name: str) -> str:
        """The text of a file of the project; empty where a symlink leads out of it."""
        path = os.path.realpath(os.path.join(self.root, name))
        return text_of(path) if is_path_within(path, self.root) else ""

    def abbreviate_home(self, path: str) -> str:
        """A path as people write it, with ~ for the home directory."""
        return "~" + path.removeprefix(self.home) if self.home != "/" and is_path_within(path, self.home) else path

    def query_tool(self, *words: str) -> str:
        """What a tool prints, run outside of the project; empty where there is none, it fails, or takes too long."""
        path = path_entries_outside(self.root, self.env.get("PATH", ""))
        tool = find_host_program(words[0], self.root, path)
        if not tool:
            return ""
        # PATH too: a script on an innocent path finds its interpreter there.
        kept = {k: v for k, v in self.env.items() if not variable_danger(k) and self.root not in v}
        environment = {**kept, **_QUIET, "PATH": os.pathsep.join(path)}
        try:
            return _run_tool([tool, *words[1:]], environment)
        except OSError:
            return ""


def text_of(path: str) -> str:
    """The text of a regular file; empty where it is missing, too large, binary or not UTF-8."""
    try:
        # Without O_NONBLOCK, opening a FIFO would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        data = _read_bounded(descriptor) if regular else b""
        return data.decode("utf-8-sig") if len(data) <= SIZE_LIMIT and b"\0" not in data else ""
    except (OSError, UnicodeDecodeError):
        return ""
    finally:
        os.close(descriptor)


def _read_bounded(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read(SIZE_LIMIT + 1)


def names_in(directory: str) -> list[str]:
    """The names in a directory, sorted; none where it cannot be read."""
    try:
        return sorted(os.listdir(directory))
    except (OSError, ValueError):
        return []


def host_of(url: str) -> str:
    """The host of a URL, or of git's user@host:path, as an entry of an allow list; empty where it has none to allow.

    `host`, or `host:port` for ports other than the web's. Variables are not expanded: ${TOKEN}.example would carry one out.
    """
    # Programs disagree about the host where there is a backslash, and urlsplit drops control characters.
    if len(url) > _URL_LIMIT or "\\" in url or not url.isprintable():
        return ""
    scp = _SCP.fullmatch(url)
    if scp and "://" not in url:
        return _allowlist_entry(scp[1], 22)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    scheme = parts.scheme.rpartition("+")[2]
    if scheme not in ("http", "https", *_PORTS) or _password_with_slash(url):
        return ""
    return _allowlist_entry(f"[{host}]" if ":" in host else host, port or _PORTS.get(scheme, 443))


def pattern_host(pattern: str) -> str:
    """The host of a pattern of module paths, as GOPRIVATE has them: `*.example.org`, `example.org/team`."""
    return _allowlist_entry(pattern.strip().split("/")[0], 443)


def _password_with_slash(url: str) -> bool:
    """Whether what looks like the host may be the first half of a secret: https://user.name/secret@host/."""
    scheme, _, rest = url.partition("://")
    after = re.split(r"[/?#]", rest, maxsplit=1)[1:]
    end = "/" if scheme.startswith("git") else "(?:/|$)"  # git+https://host/repo@v1.0 is a revision
    return any(re.search(rf"[^/]@[^/@]+\.[^/@]+{end}", part) for part in after)


def _allowlist_entry(host: str, port: int) -> str:
    host = host.removesuffix(".")
    # A name without a dot is a machine of the local network, an alias of ssh's, or the half of a mangled password.
    if "." not in host and ":" not in host:
        return ""
    try:
        entry = host if port in DEFAULT_PORTS else f"{host}:{port}"
        rule = domain_rule(Text(entry, Location("")))
    except InvalidValueError:
        return ""
    return str(rule) if is_worth_listing(rule.host) and not broad_wildcard_reason(rule) else ""


def _run_tool(argv: list[str], environment: dict[str, str]) -> str:
    with subprocess.Popen(
        argv,
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=SECONDS)
        except BaseException as stopped:
            # The whole group: a child of a shim would live on and hold the pipe.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(stopped, subprocess.TimeoutExpired):
                raise
            return ""
    return output.decode("utf-8", "replace") if process.returncode == 0 else ""
