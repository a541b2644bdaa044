"""The throw-away ground on which shells are tried: a copy of what is rendered, a home, neighbours, and canaries.

Canaries are random words. Nothing of the user's own is read: of real files only whether they are there. All of it is
removed at the end by a process of its own (`outside`), also where this one is killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from typing import IO, Any, Self

from wavegen import outside
from wavegen.backends import File
from wavegen.errors import MachineError, one_line
from wavegen.policy import Access, Anchor, HostPath, Plan, Policy
from wavegen.probes import Fact, Inodes, Value
from wavegen.probes.catalogue import DANGEROUS, GIT_FILES, HOME_SECRETS, SECRETS, TO_SOCKETS
from wavegen.probes.expect import governing
from wavegen.project import Project
from wavegen.tools import find, within

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_KNOWN_VALUES = {
    "TERM": "xterm-256color",
    "TZ": "UTC",
    "CI": "true",
    "SOURCE_DATE_EPOCH": "1",
    "LANGUAGE": "en",
    "USER": "probe",
    "LOGNAME": "probe",
    "LC_CTYPE": "C.utf8",
}
# They change what every program does, or what Nix does, before the fence is there.
_NEVER_SET = {
    "LD_PRELOAD",
    "LD_AUDIT",
    "PYTHONHOME",
    "GIT_CONFIG_COUNT",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_GLOBAL",
    "SHELLOPTS",
    "BASHOPTS",
    "PERL5OPT",
    "RUBYOPT",
    "IFS",
}


class Ground:
    """A throw-away project and home, and what was planted around them. Use it as a context manager."""

    def __init__(self, project: Project, files: tuple[File, ...], *, under: str | None, via: str) -> None:
        self.root, self.plan, self.files, self.via = project.root, project.plan, files, via
        self.word = secrets.token_hex(16)
        self.base = os.path.join(_place(self.plan, under), f"wavegen-verify-{secrets.token_hex(4)}")
        self.home = os.path.join(self.base, "home/probe")
        self.project = os.path.join(self.base, "src/project")
        self.neighbour = os.path.join(self.base, "src/neighbour")
        self.other_home = os.path.join(self.base, "home/other")
        self.temporary = tuple(f"{place}/wavegen-verify-{self.word[:8]}" for place in ("/tmp", "/var/tmp") if os.path.isdir(place))
        self.facts: dict[str, Any] = {}
        self.values: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    # --- making and removing

    def __enter__(self) -> Self:
        try:
            self._open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what was started, and remove everything."""
        process, self._process = self._process, None
        if process is None:
            return
        piped(process.stdin).close()
        piped(process.stdout).close()
        process.wait()

    def _open(self) -> None:
        posix, queue = f"wavegen-{self.word[:8]}", f"wavegen-{self.word[:8]}"
        run = f"/run/wavegen-verify-{self.word[:8]}.sock"
        command = [sys.executable, "-I", "-S", outside.__file__, self.word]
        environment = {"PATH": _SYSTEM_PATH, "WAVEGEN_CANARY": self.word}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True, cwd="/")
        self._told({"remove": [self.base, *self.temporary, f"/dev/shm/{posix}", run], "queue": queue})
        try:
            self._make()
            everywhere = {"/run": run, **{os.path.dirname(place): f"{place}/s" for place in self.temporary}}
            near = [f"{self.base}/run/s", f"{self.neighbour}/s"]
            sockets = [*near, f"{self.home}/.gnupg/S.gpg-agent", *everywhere.values()]
            told = {
                "sockets": sockets,
                "directory": self.neighbour,
                "abstract": f"wavegen-{self.word[:8]}",
                "file": f"{self.neighbour}/canary",
                "posix": posix,
            }
            self.facts |= self._told(told)
        except OSError as failed:
            raise MachineError(f"{failed.filename or self.base} cannot be made: {failed.strerror}", "choose another place with --under DIR") from None
        self.facts |= {
            "abstract": told["abstract"],
            "posix memory": posix,
            "queue": queue,
            "sockets": near,
            **{f"socket {place}": path for place, path in everywhere.items() if os.path.exists(path)},
            **{f"temporary {os.path.dirname(place)}": place for place in self.temporary},
            "neighbour": f"{self.neighbour}/canary",
            "around": os.path.dirname(self.project),
            "other home": f"{self.other_home}/.ssh/id_ed25519",
            "git": find("git", self.root, tuple(_SYSTEM_PATH.split(":"))),
            "setuid helper": f"{self.project}/setuid-helper",
            "filters": _filters(),
            "host name": digest(os.uname().nodename),
            **{f"namespace {name}": {name: inode} for name, inode in host_namespaces().items()},
        }
        self.values = self._values()
        self.facts["passed values"] = [digest(value) for name, value in self.values.items() if value.startswith("passed-")]

    def _make(self) -> None:
        os.makedirs(self.base, mode=0o700)
        for directory in (self.home, self.project, self.neighbour, f"{self.other_home}/.ssh", f"{self.base}/run", f"{self.base}/tmp", f"{self.home}/.gnupg"):
            os.makedirs(directory, mode=0o700, exist_ok=True)
        for directory in self.temporary:
            os.mkdir(directory, 0o700)
            self._plant(f"{directory}/canary")
        self._plant(f"{self.neighbour}/canary")
        self._plant(f"{self.other_home}/.ssh/id_ed25519")
        for paths in HOME_SECRETS.values():
            for path in paths:
                self._plant(f"{self.home}/{path}")
        self._copy()
        self._plant_repository()
        self._plant_rules()
        if os.geteuid() == 0:
            self._plant_setuid_helper()

    def _plant(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="ascii") as stream:
            stream.write(f"# {self.word}\n")  # a comment in most files of settings, which programs read
        os.chmod(path, 0o600)

    def _copy(self) -> None:
        """The fence's files. What is run comes from the plan: whoever may write the project could have edited the disk's."""
        for name in (self.plan.manifest, self.plan.overlay, "flake.nix", "flake.lock"):
            source = os.path.join(self.root, name)
            if os.path.isfile(source) and not os.path.islink(source):
                shutil.copyfile(source, os.path.join(self.project, name))
        for file in self.files:
            path = os.path.join(self.project, file.path)
            if file.path.startswith(".wavegen/") or not os.path.exists(path):
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "w", encoding="utf-8", newline="") as stream:
                    stream.write(file.text)
                os.chmod(path, 0o755 if file.executable else 0o644)

    def _plant_repository(self) -> None:
        git = find("git", self.root, tuple(_SYSTEM_PATH.split(":")))
        if git:
            command = [git, "init", "--quiet", "--template=", self.project]
            environment = {"PATH": _SYSTEM_PATH, "HOME": self.home, "GIT_CONFIG_NOSYSTEM": "1"}
            subprocess.run(command, env=environment, check=False, capture_output=True)
        for path in (
            *GIT_FILES,
            ".git/hooks/x",
            "nested/.git/hooks/x",
            ".vscode/x",
            ".idea/x",
            ".devcontainer/x",
            ".claude/x",
            ".codex/x",
            ".cursor/x",
            ".github/workflows/x",
        ):
            os.makedirs(os.path.dirname(os.path.join(self.project, path)), exist_ok=True)
        os.makedirs(os.path.join(self.project, "linked"))
        for name, text in (("linked/.git", "gitdir: ../.git/modules/m\n"), (".git/config", "")):
            with open(os.path.join(self.project, name), "a", encoding="ascii") as stream:
                stream.write(text)

    def _plant_rules(self) -> None:
        """What the manifest grants or hides in the home and the project: of the kind that the real one is."""
        for rule in (rule for shell in self.plan.shells for rule in shell.paths):
            if not rule.origin.at or not rule.path.tail or rule.path.anchor not in (Anchor.HOME, Anchor.PROJECT) or rule.pinned:
                continue
            path = self.absolute(rule.path)
            if os.path.lexists(path):
                continue
            if self._is_directory(rule.path, access=rule.access):
                os.makedirs(path, exist_ok=True)
                self._plant(f"{path}/canary")
            else:
                self._plant(path)

    def _is_directory(self, path: HostPath, *, access: Access) -> bool:
        real = os.path.join(self.root if path.anchor is Anchor.PROJECT else os.path.expanduser("~"), path.tail)
        if os.path.exists(real):
            return os.path.isdir(real)
        below = any(path != rule.path and path.holds(rule.path) for shell in self.plan.shells for rule in shell.paths)
        # Nobody knows what it will be: .env is a file, secrets a directory, and ~/.cache is granted for writing.
        name = path.parts()[-1]
        return below or "." not in name or (access is Access.WRITE and "." not in name[1:])

    def _plant_setuid_helper(self) -> None:
        """A program that runs as nobody, where root can make one: `id`."""
        source = find("id", self.root, tuple(_SYSTEM_PATH.split(":")))
        path = os.path.join(self.project, "setuid-helper")
        if source:
            shutil.copyfile(source, path)
            os.chown(path, 65534, -1)
            os.chmod(path, 0o4755)  # noqa: S103  that is what is tried

    # --- questions

    def _told(self, message: object) -> Any:
        line = b""
        if self._process:
            questions = piped(self._process.stdin)
            questions.write(json.dumps(message).encode() + b"\n")
            questions.flush()
            line = piped(self._process.stdout).readline()
        if not line:
            raise MachineError("the process that holds the canaries has ended", "try again")
        return json.loads(line)

    def watch(self, pid: int) -> None:
        """A process of ours, to be ended with us."""
        self._told({"watch": pid})

    def signalled(self) -> bool:
        """Whether a signal arrived outside since the last time."""
        return bool(self._told({"question": "signalled"})["answer"])

    # --- what a shell is started with

    def _values(self) -> dict[str, str]:
        """Variables that are let in somewhere, each with a value of its own."""
        values = {}
        for rule in (rule for shell in self.plan.shells for rule in shell.environment if rule.value is None):
            known = _KNOWN_VALUES.get(rule.name) or ("C.UTF-8" if rule.name == "LANG" or rule.name.startswith("LC_") else "")
            nix = self.via == "nix" and (
                rule.name.startswith("NIX_") or rule.name in ("IN_NIX_SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
            )
            if rule.name in _NEVER_SET or nix or rule.name == "PATH" or self._leads_to_socket(rule.name):
                continue
            if rule.origin.at or not (self.via == "nix" and not known):
                values[rule.name] = known or f"passed-{secrets.token_hex(12)}"
        return values

    @staticmethod
    def _leads_to_socket(name: str) -> bool:
        return name in TO_SOCKETS or name == "NIX_REMOTE"

    def environment(self) -> dict[str, str]:
        """The host's environment of an entry. Nothing of the caller's is in it but what Nix itself needs."""
        socket = f"{self.base}/run/s"
        variables = {
            "HOME": self.home,
            "PATH": f"{_SYSTEM_PATH}:wavegen-relative",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TMPDIR": f"{self.base}/tmp",
            **dict.fromkeys(SECRETS, self.word),
            **dict.fromkeys(DANGEROUS, f"/wavegen/{self.word}"),
            **{name: f"unix:path={socket}" if name == "DBUS_SESSION_BUS_ADDRESS" else socket for name in TO_SOCKETS},
            "XDG_RUNTIME_DIR": f"{self.base}/run",
            **self.values,
        }
        if self.via == "nix":
            kept = ("NIX_CONFIG", "NIX_CONF_DIR", "NIX_REMOTE", "NIX_STORE_DIR", "NIX_STATE_DIR", "NIX_USER_CONF_FILES", "NIX_SSL_CERT_FILE", "SSL_CERT_FILE")
            variables |= {name: os.environ[name] for name in kept if name in os.environ and name not in self.values}
            variables["PATH"] += ":" + ":".join(entry for entry in os.environ.get("PATH", "").split(":") if os.path.isabs(entry))
        return variables

    # --- what an attempt is told

    def absolute(self, path: HostPath) -> str:
        """Where a path of a policy is on this ground."""
        places = {Anchor.ROOT: "/", Anchor.HOME: self.home, Anchor.PROJECT: self.project, Anchor.HOMES: f"{self.base}/home", Anchor.AROUND: f"{self.base}/src"}
        return os.path.join(places[path.anchor], path.tail).rstrip("/") or "/"

    def resolved(self, value: Value, policy: Policy) -> Any:
        """The JSON value of an argument; None where there is nothing to try."""
        match value:
            case HostPath():
                return self.absolute(value)
            case Inodes(paths=paths):
                return _inodes(self.absolute(path) for path in paths) or None
            case Fact(name="real places"):
                return self._real_places(policy) or None
            case Fact(name=name) if name.startswith("variables "):
                return {one: digest(self.values[one]) for one in name.split()[1:] if one in self.values} or None
            case Fact(name=name):
                return self.facts.get(name)
            case tuple():
                found = [self.resolved(one, policy) for one in value]
                return [one for one in found if one is not None] or None
            case _:
                return value

    def _real_places(self, policy: Policy) -> list[list[Any]]:
        """The real home and project, where a rule for the whole system hides them; others are hidden by where they are."""
        places = (os.path.realpath(os.path.expanduser("~")), self.root)
        hidden = []
        for place in dict.fromkeys(places):
            rule = governing(policy, HostPath(Anchor.ROOT, place.lstrip("/")))
            if rule and rule.access is not Access.READ and rule.access is not Access.WRITE and place != "/" and not within(self.base, place):
                hidden.append(place)
        return _inodes(hidden)

    def shown(self, text: str) -> str:
        """The text without anything that is random or of this machine."""
        names = ((self.home, "~"), (self.project, "."), (self.neighbour, "../neighbour"), (self.other_home, "~/../other"), (self.base, "…"))
        for place in self.temporary:
            text = text.replace(place, os.path.dirname(place) + "/…")
        for name, short in names:
            text = text.replace(name, short)
        for real in dict.fromkeys((self.root, os.path.realpath(os.path.expanduser("~")))):
            if len(real) > 1:
                text = text.replace(real, "the real home" if real != self.root else "the real project")
        return one_line(text.replace(self.word[:8], "…"))


def piped(stream: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for when the process was started."""
    if stream is None:
        raise ValueError
    return stream


def digest(text: str) -> str:
    """By which a word is known to those who do not know it."""
    return hashlib.sha256(os.fsencode(text)).hexdigest()


def host_namespaces() -> dict[str, int]:
    """The inode of each namespace of this process."""
    return {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in NAMESPACES if os.path.exists(f"/proc/self/ns/{name}")}


def _inodes(paths: Iterable[str]) -> list[list[Any]]:
    found = []
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue
        found.append([path, status.st_dev, status.st_ino])
    return found


def _filters() -> int:
    """How many system call filters this process has (since Linux 5.9)."""
    with open("/proc/self/status", encoding="ascii") as stream:
        return next((int(line.split()[1]) for line in stream if line.startswith("Seccomp_filters:")), 0)


def _place(plan: Plan, under: str | None) -> str:
    """A directory for all of it, in which programs may run, and that no shell of the manifest is granted."""
    granted = [
        f"/{rule.path.tail}"
        for shell in plan.shells
        for rule in shell.paths
        if rule.origin.at and rule.path.anchor is Anchor.ROOT and rule.access in (Access.READ, Access.WRITE)
    ]
    candidates = [under] if under else [tempfile.gettempdir(), "/var/tmp", os.path.expanduser("~/.cache")]
    for candidate in candidates:
        place = os.path.realpath(candidate)
        if not os.path.isdir(place) or not os.access(place, os.W_OK) or os.statvfs(place).f_flag & os.ST_NOEXEC:
            continue
        if not any(within(place, path) for path in granted):
            return place
    hint = "name a writable directory in which programs may run, and that the manifest does not grant: --under DIR"
    raise MachineError(f"{' and '.join(candidates)} cannot hold the throw-away project", hint)
