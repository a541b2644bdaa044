"""The throw-away ground on which shells are tried: a copy of what is rendered, a home, neighbours, and canaries.

Canaries are random words. Nothing of the user's own is read: of real files only whether they are there. All of it is
removed at the end by a process of its own (`canary_server`), also where this one is killed.

Longer than 400 lines: what is laid out is taken away again in the same place.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import IO, Any, Self, assert_never

from wavegen.backends import File
from wavegen.backends.sandboxes import docker
from wavegen.core.errors import MachineError, one_line
from wavegen.core.host_programs import find_host_program, is_path_within
from wavegen.launcher.mounts import PROC_OF_ROOT
from wavegen.policy.defaults import MEMORY_SHARE, PRIVATE_BELOW
from wavegen.policy.model import Access, Anchor, HostPath, PathRule, Policy
from wavegen.project.loader import Project
from wavegen.project.shell_mounts import resolve_shell_mounts
from wavegen.verify import canary_server, containers, host_facts
from wavegen.verify.canaries import SYSTEM_PATH, Places, give_testbed_to, plant_canary, plant_testbed
from wavegen.verify.catalogue import DANGEROUS, SECRETS, TO_SOCKETS
from wavegen.verify.expect import policy_rule_for
from wavegen.verify.model import Fact, Inodes, Need, Value
from wavegen.verify.testbed_location import is_writable_directory, place_for

_ROOT = HostPath(Anchor.ROOT)
_SILENCE = 20.0
"""Seconds within which the process outside answers."""
_KNOWN_VALUES = {"TERM": "xterm-256color", "TZ": "UTC", "CI": "true", "SOURCE_DATE_EPOCH": "1", "LANGUAGE": "en"}
_KNOWN_VALUES |= {"USER": "probe", "LOGNAME": "probe", "LC_CTYPE": "C.utf8"}
# They change what every program does, or what Nix does, before the fence is there.
_NEVER_SET = frozenset(
    [
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
        "OLDPWD",
        "PPID",
        "PS1",
        "RANDOM",
        "SHLVL",
        "_",
    ]
)


class Ground:
    """A throw-away project and home, and what was planted around them. Use it as a context manager."""

    def __init__(self, project: Project, files: tuple[File, ...], *, under: str | None, via: str) -> None:
        self.root, self.plan, self.files, self.via = project.root, project.plan, files, via
        self.owner = containers.container_owner(project.root) if via == "docker" else None
        """Whose the ground is, where root's containers are somebody else's."""
        self.word, self.marker = secrets.token_hex(16), secrets.token_hex(16)
        self.random = secrets.token_hex(8)
        """What names outside of the ground begin with: nobody can know it before they are there."""
        self.places = Places(os.path.join(place_for(project, under), f"wavegen-verify-{secrets.token_hex(8)}"))
        self.temporary = tuple(f"{place}/wavegen-{self.random}" for place in ("/tmp", "/var/tmp") if is_writable_directory(place))
        self.scratch = {place: f"{place}/wavegen-{self.random}-scratch" for place in ("/tmp", "/var/tmp", "/dev/shm", "/run") if is_writable_directory(place)}
        self.facts: dict[str, Any] = {}
        self.values: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def base_directory(self) -> str:
        """The directory that holds nearly all of it."""
        return self.places.base

    @property
    def home_directory(self) -> str:
        """HOME of the entries."""
        return self.places.home_directory

    @property
    def project_copy(self) -> str:
        """The copy of the project."""
        return self.places.project_copy

    @property
    def neighbour_project(self) -> str:
        """A directory beside the project, that no shell shows."""
        return self.places.neighbour_project

    # --- making and removing

    def __enter__(self) -> Self:
        try:
            self._build_testbed()
        except BaseException:
            self.remove_testbed()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove_testbed()

    def remove_testbed(self) -> None:
        """End what was started, and remove everything."""
        process, self._process = self._process, None
        if process is None:
            return
        # A probe that was ended while it traced it may have left it stopped.
        process.send_signal(signal.SIGCONT)
        require_pipe(process.stdin).close()
        require_pipe(process.stdout).close()
        process.wait()

    def _build_testbed(self) -> None:
        posix, run = f"wavegen-{self.random}", f"/run/wavegen-{self.random}.sock"
        command = [sys.executable, "-I", "-S", canary_server.__file__, self.marker]
        environment = {"PATH": SYSTEM_PATH, "WAVEGEN_CANARY": self.word}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, start_new_session=True, cwd="/")
        files = [f"/dev/shm/{posix}", run, *self.scratch.values()]
        self._ask_server({"word": self.word, "queue": posix, "directories": [self.base_directory, *self.temporary], "files": files})
        try:
            plant_testbed(self.places, self.root, self.plan, self.files, self.word, self.owner)
            for directory in self.temporary:
                plant_canary(f"{directory}/canary", self.word)
                self._chown_path(f"{directory}/canary")
        except OSError as failed:
            raise MachineError(f"{failed.filename or self.base_directory} cannot be made: {failed.strerror}", "choose another place with --under DIR") from None
        everywhere = {"/run": run, **{os.path.dirname(place): f"{place}/s" for place in self.temporary}}
        near = [f"{self.neighbour_project}/s", f"{self.places.other_home}/s"]
        abstract = f"wavegen-{self.random}"
        told = {
            "sockets": [*near, f"{self.home_directory}/.gnupg/S.gpg-agent", *everywhere.values()],
            "directory": self.neighbour_project,
            "abstract": abstract,
            "file": f"{self.neighbour_project}/canary",
            "posix": f"/dev/shm/{posix}",
            "owner": self.owner,
        }
        self.facts |= self._ask_server(told)
        bound = self.facts.pop("bound")
        for path in bound:
            self._chown_path(path)
        self.values = self._passed_values()
        self.facts |= {
            "abstract": abstract,
            "posix memory": posix,
            "queue": posix,
            "sockets": [path for path in near if path in bound],
            **{f"socket {place}": path for place, path in everywhere.items() if path in bound},
            **{f"temporary {os.path.dirname(place)}": place for place in self.temporary},
            **{f"scratch {place}": path for place, path in self.scratch.items()},
            "neighbour": f"{self.neighbour_project}/canary",
            "around": os.path.dirname(self.project_copy),
            "other home": f"{self.places.other_home}/.ssh/id_ed25519",
            "git": "git" if self.via == "docker" else find_host_program("git", self.root, tuple(SYSTEM_PATH.split(":"))),
            "setuid helper": f"{self.project_copy}/setuid-helper",
            "filters": host_facts.count_seccomp_filters(),
            "memory share": host_facts.machine_memory() * MEMORY_SHARE // 100,
            "host name": text_digest(os.uname().nodename),
            "unheard of": [f"WG_{self.random}", f"wg.{self.random}"],
            "passed values": [text_digest(value) for value in self.values.values() if value.startswith("passed-")],
            "mounts": host_facts.list_host_mounts(),
            "engine's mounts": docker.MOUNTED if self.via == "docker" else (),
            "search path": [*SYSTEM_PATH.split(":"), *self._search_path()],
            **{f"namespace {name}": {name: inode} for name, inode in host_facts.namespace_inodes().items()},
        }

    def chown_new_files(self) -> None:
        """Give the owner what has been made since: by the control, which is the caller's."""
        if self.owner:
            give_testbed_to(self.places, self.root, self.owner)

    def _chown_path(self, path: str) -> None:
        """Give the owner something that was made in a directory in which nobody else can put a link."""
        if self.owner:
            os.chown(path, *self.owner, follow_symlinks=False)

    # --- questions

    def _ask_server(self, message: object) -> Any:
        line = b""
        if self._process:
            questions, answers = require_pipe(self._process.stdin), require_pipe(self._process.stdout)
            with contextlib.suppress(BrokenPipeError):
                questions.write(json.dumps(message).encode() + b"\n")
                questions.flush()
            if not wait_until_readable(answers, _SILENCE):
                raise MachineError("the process that holds the canaries does not answer", "try again")
            line = answers.readline()
        if not line:
            raise MachineError("the process that holds the canaries has ended", "try again")
        found = json.loads(line)
        if "error" in found:
            raise MachineError(found["error"], "choose another place with --under DIR")
        return found

    def watch_process(self, pid: int) -> None:
        """A process of ours, to be ended with us."""
        self._ask_server({"watch": pid})

    def was_signalled(self) -> bool:
        """Whether a signal arrived outside since the last time."""
        return bool(self._ask_server({"question": "signalled"})["answer"])

    # --- what a shell is started with

    def _passed_values(self) -> dict[str, str]:
        """Variables that are let in somewhere, each with a value of its own."""
        values = {}
        fitting = _KNOWN_VALUES | (containers.user_name_variables() if self.via == "docker" else {})
        for rule in (rule for shell in self.plan.all_fences() for rule in shell.environment if rule.value is None):
            known = fitting.get(rule.name) or ("C.UTF-8" if rule.name == "LANG" or rule.name.startswith("LC_") else "")
            nix = self.via == "nix" and (
                rule.name.startswith("NIX_") or rule.name in ("IN_NIX_SHELL", "SSL_CERT_FILE", "SSL_CERT_DIR", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO")
            )
            if rule.name in _NEVER_SET or nix or rule.name == "PATH" or self._leads_to_socket(rule.name):
                continue
            if rule.origin.at or not (self.via == "nix" and not known):
                values[rule.name] = known or f"passed-{secrets.token_hex(12)}"
        return values

    def _search_path(self) -> tuple[str, ...]:
        """What of the caller's PATH is handed to an entry."""
        match self.via:
            case "nix":
                return tuple(entry for entry in os.environ.get("PATH", "").split(":") if os.path.isabs(entry))
            case "docker":
                return containers.image_search_path()
            case _:
                return ()

    @staticmethod
    def _leads_to_socket(name: str) -> bool:
        return name in TO_SOCKETS or name == "NIX_REMOTE"

    def entry_environment(self) -> dict[str, str]:
        """The host's environment of an entry. Nothing of the caller's is in it but what Nix itself needs."""
        socket = f"{self.neighbour_project}/s"
        variables = {
            "HOME": self.home_directory,
            "PATH": f"{SYSTEM_PATH}:wavegen-relative",
            "LANG": "C.UTF-8",
            "SHELL": "/bin/bash",
            "TMPDIR": f"{self.base_directory}/tmp",
            **dict.fromkeys(SECRETS, self.word),
            **dict.fromkeys(DANGEROUS, f"/wavegen/{self.word}"),
            **dict.fromkeys(("BASH_ENV", "ENV"), f"{self.neighbour_project}/startup"),
            **{name: f"unix:path={socket}" if name == "DBUS_SESSION_BUS_ADDRESS" else socket for name in TO_SOCKETS},
            "XDG_RUNTIME_DIR": self.neighbour_project,
            **dict.fromkeys(self.facts["unheard of"], self.word),
            **self.values,
        }
        if self.via == "nix":
            kept = ("NIX_CONFIG", "NIX_CONF_DIR", "NIX_REMOTE", "NIX_STORE_DIR", "NIX_STATE_DIR", "NIX_USER_CONF_FILES", "NIX_SSL_CERT_FILE", "SSL_CERT_FILE")
            variables |= {name: os.environ[name] for name in kept if name in os.environ and name not in self.values}
        if self.via == "docker":
            variables = {name: value for name, value in variables.items() if name not in containers.bait_variables()} | containers.client_environment(
                self.base_directory
            )
            variables["PATH"] += "".join(f":{entry}" for entry in os.environ.get("PATH", "").split(":") if os.path.isabs(entry))
        variables["PATH"] += "".join(f":{entry}" for entry in self._search_path())
        return variables

    # --- what an attempt is told

    def locate_path(self, path: HostPath) -> str:
        """Where a path of a policy is on this ground."""
        return self.places.locate_path(path)

    def resolve_argument(self, value: Value, policy: Policy) -> Any:
        """The JSON value of an argument; None where there is nothing to try."""
        match value:
            case HostPath():
                return self.locate_path(value)
            case Inodes(paths=paths, shown=shown):
                kept = [path for path in paths if not self._leads_to_hidden(path, policy)]
                return host_facts.inode_records(self._top_level(kept, policy) if shown else map(self.locate_path, kept), contents=shown) or None
            case Fact(name=name):
                return self._fact_value(name, policy)
            case tuple():
                found = [self.resolve_argument(one, policy) for one in value]
                return [one for one in found if one is not None] or None
            case _:
                return value

    def _fact_value(self, name: str, policy: Policy) -> Any:
        """What only this ground knows, for every policy or for this one."""
        if name == "own repository":
            return host_facts.git_settings(self.root) or None
        if name == "private files":
            return host_facts.inode_records(host_facts.private_files(PRIVATE_BELOW)) or None
        if name.startswith("variables "):
            return {one: text_digest(self.values[one]) for one in name.split()[1:] if one in self.values} or None
        by_policy = {
            "mount points": self._mount_points,
            "writable": self._writable_mounts,
            "shown": self._shown_inodes,
            "masks": self._masked_paths,
            "real places": self._real_places,
        }
        return by_policy[name](policy) or None if name in by_policy else self.facts.get(name)

    def _top_level(self, paths: Iterable[HostPath], policy: Policy) -> Iterator[str]:
        """Where paths of the system are; in place of / the top-level directories for which there is no other rule."""
        for path in paths:
            if path != _ROOT:
                yield self.locate_path(path)
                continue
            rule = policy_rule_for(policy, _ROOT)
            found = ((place, HostPath(Anchor.ROOT, place[1:])) for place in host_facts.top_level() if not is_path_within(self.base_directory, place))
            yield from (place for place, named in found if policy_rule_for(policy, named) is rule and not self._leads_to_hidden(named, policy))

    def _mount_points(self, policy: Policy) -> list[str]:
        """Where something may be mounted inside, as the launcher decides; in a container also what an engine mounts."""
        stores = [f"/{store}" for store in containers.package_stores()] if self.via == "docker" else None
        of_engine = {"/proc", "/dev", *PROC_OF_ROOT} if self.via == "docker" else set[str]()
        with contextlib.suppress(MachineError):  # it refuses to start, and says why
            shell = self.plan.find_fence(policy.name) or policy
            found = resolve_shell_mounts(self.plan, shell, self.project_copy, self.entry_environment(), stores=stores)
            return sorted({mount.target for mount in found.mounts} | {"/"} | of_engine)
        return ["/"]

    def is_mount_point(self, path: str, shell: str) -> bool:
        """Whether something may be mounted there by now: others on this machine make and remove directories."""
        policy = self.plan.find_fence(shell)
        return policy is not None and path in self._mount_points(policy)

    def _writable_mounts(self, policy: Policy) -> list[str]:
        """Where mounts may be writable."""
        rules = [rule for rule in policy.paths if rule.access in (Access.WRITE, Access.SCRATCH) and not _of_image(rule)]
        return sorted({self.locate_path(rule.path) for rule in rules} | {os.path.realpath(self.locate_path(rule.path)) for rule in rules})

    def _shown_inodes(self, policy: Policy) -> list[list[Any]]:
        """What is shown where, by inode; the home is another one, which is not there yet."""
        rules = [rule for rule in policy.paths if rule.access in (Access.READ, Access.WRITE) and rule.source is None and not rule.weaker]
        rules = [rule for rule in rules if policy_rule_for(policy, rule.path) is rule and not self._leads_to_hidden(rule.path, policy)]
        system = [rule.path for rule in rules if rule.path.anchor is Anchor.ROOT and not rule.origin.at]
        asked = [self.locate_path(rule.path) for rule in rules if rule.path not in system]
        return [*host_facts.inode_records(self._top_level(system, policy), contents=True), *host_facts.inode_records(asked)]

    def _masked_paths(self, policy: Policy) -> list[str]:
        """What is hidden, and must be empty."""
        return sorted({self.locate_path(rule.path) for rule in policy.paths if rule.access is Access.HIDE and rule.path.tail and not _of_image(rule)})

    def _leads_to_hidden(self, path: HostPath, policy: Policy) -> bool:
        """Whether a link of the system leads to what the manifest hides."""
        real = os.path.realpath(self.locate_path(path))
        if path.anchor is Anchor.ROOT and real == f"/{path.tail}":
            return False
        rule = policy_rule_for(policy, HostPath(Anchor.ROOT, real.lstrip("/")))
        return path.anchor is Anchor.ROOT and bool(rule and rule.access is Access.HIDE and rule.origin.at)

    def _real_places(self, policy: Policy) -> list[list[Any]]:
        """The real home and project, where a rule for the whole system hides them; others are hidden by where they are."""
        places = (os.path.realpath(os.path.expanduser("~")), self.root)
        hidden = []
        for place in dict.fromkeys(places):
            rule = policy_rule_for(policy, HostPath(Anchor.ROOT, place.lstrip("/")))
            if rule and rule.access in (Access.HIDE, Access.SCRATCH) and place != "/" and not is_path_within(self.base_directory, place):
                hidden.append(place)
        return host_facts.inode_records(hidden)

    def meets_need(self, need: Need) -> bool:
        """Whether this machine has what an expectation needs."""
        match need:
            case Need.NOT_ROOT | Need.BOUND_PROCESSES if self.via == "docker":
                return containers.bounds_processes()
            case Need.GROUPS:
                return self.via != "docker" or containers.bounds_processes()
            case Need.USERS:
                return self.via != "docker" or containers.is_rootless_engine()
            case Need.NOT_ROOT:
                return os.geteuid() != 0
            case Need.BOUND_PROCESSES:
                return os.geteuid() != 0 or host_facts.makes_groups()
            case Need.SCOPES:
                return host_facts.landlock_abi() >= host_facts.WITH_SCOPES
            case _:
                assert_never(need)

    def anonymize_text(self, text: str) -> str:
        """The text without anything that is random or of this machine."""
        real = {os.path.realpath(os.path.expanduser("~")): "your home", self.root: "your project"}
        if text in real and text != "/":
            return real[text]
        names = {
            self.home_directory: "~",
            self.project_copy: ".",
            self.neighbour_project: "../neighbour",
            self.places.other_home: "~/../other",
            self.base_directory: "…",
            **{place: f"{os.path.dirname(place)}/…" for place in (*self.temporary, *self.scratch.values())},
            f"/run/wavegen-{self.random}.sock": "/run/…",
            f"WG_{self.random}": "a name that nobody knows",
            f"wg.{self.random}": "a name that is no identifier",
        }
        return one_line(_whole_names(tuple(names)).sub(lambda found: names[found[1]], text))


@cache
def _whole_names(names: tuple[str, ...]) -> re.Pattern[str]:
    """What finds one of them, and no part of a longer name: the longest first."""
    found = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.compile(rf"(?<![\w/.-])({found})(?![\w-])")


def wait_until_readable(source: IO[bytes] | int, seconds: float) -> bool:
    """Whether there is something to read, or the end, within some seconds: by poll(2), as select(2) takes no descriptor above 1023."""
    waiting = select.poll()
    waiting.register(source, select.POLLIN)
    return bool(waiting.poll(seconds * 1000))


def require_pipe(stream: IO[bytes] | None) -> IO[bytes]:
    """A pipe that was asked for when the process was started."""
    if stream is None:
        raise ValueError
    return stream


def text_digest(text: str) -> str:
    """By which a word is known to those who do not know it."""
    return hashlib.sha256(os.fsencode(text)).hexdigest()


def _of_image(rule: PathRule) -> bool:
    return rule.source is not None and rule.source.anchor is Anchor.IMAGE
