"""The shape of wave.yaml: one dataclass per mapping, a field's name is its key.

STRICT classes are the sections that decide what is fenced: an unknown key there is an error. Elsewhere it is a
note, as Wave's manifests carry keys that are none of our business (`object` fields are kept unread).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from wavegen.manifest.decoder import NOWHERE, Marks, Text, key, needed


class BackendName(Enum):
    """What holds personas and `wavegen run`."""

    BUBBLEWRAP = "bubblewrap"
    DOCKER = "docker"
    LANDLOCK = "landlock"
    NONE = "none"


class Output(Enum):
    """What is rendered besides the scripts of `.wavegen/bin`."""

    FLAKE = "flake"
    DOCKER = "docker"
    COMPOSE = "compose"
    SRT = "srt"


class Fallback(Enum):
    """What happens where the fence cannot be built on a machine."""

    ERROR = "error"
    WARN = "warn"


class Home(Enum):
    """What stands at $HOME inside."""

    PRIVATE = "private"
    TMPFS = "tmpfs"


class Seccomp(Enum):
    """Which system call filter is loaded."""

    DEFAULT = "default"
    STRICT = "strict"
    OFF = "off"


class NetworkMode(Enum):
    """How much of the network a shell reaches."""

    HOST = "host"
    OPEN = "open"
    FILTERED = "filtered"
    NONE = "none"

    @property
    def is_filtered(self) -> bool:
        """Whether the launcher checks each connection against the rules for hosts."""
        return self in (NetworkMode.OPEN, NetworkMode.FILTERED)


class PathAccess(Enum):
    """What a path entry grants."""

    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathEntry:
    """An entry of `paths`."""

    STRICT: ClassVar[bool] = True
    path: Text = needed("`~/…` in the home directory, `/…` on the host, anything else in the project")
    access: PathAccess = needed("read or write")
    optional: bool = key("skip it where it does not exist (otherwise the shell does not start)", default=False)
    socket: bool = key("it is, or holds, a Unix socket, and that is meant: whoever answers it is outside the fence", default=False)
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resources of one shell."""

    STRICT: ClassVar[bool] = True
    pids: int | None = key("processes and threads (default 4096)")
    memory: Text | None = key("bytes, with k, m, g or t behind the number (default three quarters of the machine's)", pattern="^[0-9]{1,18}[kmgtKMGT]?$")
    cpus: float | None = key("processors, fractions allowed (default all)")
    files: int | None = key("open files of each process (default 65536)")
    tmp: Text | None = key("size of each private /tmp, /run and the like", pattern="^[0-9]{1,18}[kmgtKMGT]?$")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainEntry:
    """An entry of a list of domains that says more than a name."""

    STRICT: ClassVar[bool] = True
    host: Text = needed("name, *.name, name:port, name:*, or an address, as an entry that is text alone")
    allow_private: bool = key("it may resolve to addresses of an intranet", default=False)
    allow_no_sni: bool = key("TLS on port 443 that names no server is let through", default=False)
    tls: bool = key("false: what is said on port 443 is not looked at", default=True)
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """One development shell."""

    STRICT: ClassVar[bool] = True
    sandbox: bool = key("false: no fence at all, as in `yolo`", default=True)
    network: NetworkMode | None = key("host | open (any public name) | filtered (the listed names) | none")
    domains: tuple[Text | DomainEntry, ...] | None = key("replaces default_allowed_domains for this shell; [] is no network")
    denied_domains: tuple[Text, ...] = key("added to those of every shell", ())
    loopback: tuple[int, ...] = key("ports of the host's loopback that are let in, for open and filtered", ())
    packages: tuple[Text, ...] = key("nixpkgs attribute paths, added to those of every shell", ())
    paths: tuple[PathEntry, ...] = key("added to those of every shell", ())
    deny_read_paths: tuple[Text, ...] = key("added to those of every shell", ())
    env_passthrough: tuple[Text, ...] = key("added to those of every shell", ())
    nested: bool = key("allow user namespaces, and with them sandboxes, inside", default=False)
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """runtime.sandbox."""

    STRICT: ClassVar[bool] = True
    enabled: bool = key("false takes the fence from personas and `wavegen run`; the three shells keep theirs", default=True)
    backend: BackendName | None = key("what holds personas and `wavegen run`")
    outputs: tuple[Output, ...] = key(
        "what is rendered besides .wavegen/bin: flake, docker, compose, srt; backend: docker brings its own", (Output.FLAKE, Output.DOCKER)
    )
    vendor: bool = key("false: .wavegen holds no launcher; an installed wavegen, or the flake's input `wavegen`, starts shells", default=True)
    docker_image: Text | None = key("what containers are started from: name[:tag][@sha256:…] (default: built from .wavegen/docker/Dockerfile)")
    docker_base: Text | None = key("what .wavegen/docker/Dockerfile builds upon (default debian:stable-slim)")
    docker_packages: Mapping[str, Text | tuple[Text, ...]] = key(
        "for a nixpkgs attribute the name, or names, of the image's packages, npm:NAME for npm's; false: none", {}
    )
    default_allowed_domains: tuple[Text | DomainEntry, ...] | None = key(
        "name, *.name, name:port or name:*, or a mapping with host; unset: the API hosts of the adapters; []: no network"
    )
    denied_domains: tuple[Text, ...] = key("refused whatever else allows them; without a port: on every port", ())
    upstream_proxy: bool = key("connections go through the proxy that HTTPS_PROXY of the host names", default=False)
    env_passthrough: tuple[Text, ...] = key("variables of the host that arrive inside", ())
    allow_unsandboxed_commands: bool = key("let Claude Code retry a command outside its own sandbox", default=False)
    deny_read_paths: tuple[Text, ...] = key("hidden whatever else shows them", ())
    fallback: Fallback = key("error: refuse; warn: run without a fence, and say so", Fallback.ERROR)
    packages: tuple[Text, ...] = key("nixpkgs attribute paths of every shell", ())
    unfree: tuple[Text, ...] = key("names of unfree packages that are allowed", ())
    package: Text | None = key("a callPackage file of this project that the flake exposes as a package")
    paths: tuple[PathEntry, ...] = key("what every shell sees beyond the defaults", ())
    home: Home = key("private: kept for this project and shell; tmpfs: empty at each entry", Home.PRIVATE)
    limits: Limits | None = key("resources of one shell")
    seccomp: Seccomp = key("default | strict | off", Seccomp.DEFAULT)
    seccomp_allow: tuple[Text, ...] = key("system calls that are let through, as ptrace for debuggers", ())
    shells: Mapping[str, Shell] = key("default, restricted and yolo exist without being written", {})
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What an agent's tools may do."""

    STRICT: ClassVar[bool] = True
    allowed_tools: tuple[Text, ...] | None = key("tool patterns; a persona's list replaces its adapter's")
    deny: tuple[Text, ...] = key("tool patterns; a persona's list adds to its adapter's", ())
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A command that an agent runs around a tool call."""

    STRICT: ClassVar[bool] = True
    matcher: Text | None = key("which tools")
    command: Text | None = key("what to run")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """personas.*.hooks."""

    STRICT: ClassVar[bool] = True
    PreToolUse: tuple[Hook, ...] = key("before a tool call; may refuse it", ())
    PostToolUse: tuple[Hook, ...] = key("after a tool call", ())
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaSandbox:
    """personas.*.sandbox."""

    STRICT: ClassVar[bool] = True
    shell: Text | None = key("the shell whose fence holds this persona (default restricted)")
    allowed_domains: tuple[Text | DomainEntry, ...] | None = key("replaces the default list; [] is no network")
    project: PathAccess | None = key("read: the project is read-only (default: where no tool is left that writes)")
    env_passthrough: tuple[Text, ...] | None = key("of the host's variables that its shell lets in, those that this persona gets (default all)")
    deny_read_paths: tuple[Text, ...] = key("added to those of its shell", ())
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """One role of an agent."""

    preset: Text | None = key("a built-in role: what is not written here is taken from it")
    adapter: Text | None = key("a key of adapters; empty: the only or first one")
    description: Text | None = key("for people")
    system_prompt_file: Text | None = key("the role's prompt")
    system_prompt: Text | None = key("the role's prompt, inline")
    temperature: float | None = key("kept for Wave: no agent takes it")
    model: Text | None = key("tier or model")
    permissions: Permissions | None = key("what its tools may do")
    hooks: Hooks | None = key("commands around its tool calls")
    sandbox: PersonaSandbox | None = key("its fence")
    skills: object = key("kept for Wave")
    token_scopes: object = key("kept for Wave")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One agent program."""

    binary: Text | None = key("its command")
    default_model: Text | None = key("its model")
    mode: Text | None = key("headless: what is not allowed is refused; interactive: it is asked for")
    output_format: Text | None = key("kept for Wave")
    project_files: object = key("kept for Wave")
    default_permissions: Permissions | None = key("for personas that have none of their own")
    hooks_template: object = key("kept for Wave")
    tier_models: Mapping[str, Text] = key("its models by tier: cheapest, fastest, balanced, strongest", {})
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """metadata."""

    name: Text | None = key("the project's name")
    description: Text | None = key("one line about it")
    repo: Text | None = key("its repository")
    forge: Text | None = key("github, gitlab, gitea, forgejo or bitbucket")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """project: kept for Wave, except the language."""

    language: Text | None = key("its main language")
    flavour: Text | None = key("kept for Wave")
    test_command: Text | None = key("kept for Wave")
    contract_test_command: Text | None = key("kept for Wave")
    lint_command: Text | None = key("kept for Wave")
    build_command: Text | None = key("kept for Wave")
    format_command: Text | None = key("kept for Wave")
    source_glob: Text | None = key("kept for Wave")
    test_file_pattern: object = key("kept for Wave")
    test_func_pattern: object = key("kept for Wave")
    skill: object = key("kept for Wave")
    services: object = key("kept for Wave")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """runtime: kept for Wave, except the sandbox."""

    sandbox: Sandbox | None = key("who may touch what")
    workspace_root: Text | None = key("where Wave puts workspaces")
    max_concurrent_workers: object = key("kept for Wave")
    default_timeout_minutes: object = key("kept for Wave")
    pipeline_id_hash_length: object = key("kept for Wave")
    max_concurrency: object = key("kept for Wave")
    timeouts: object = key("kept for Wave")
    relay: object = key("kept for Wave")
    audit: object = key("kept for Wave")
    meta_pipeline: object = key("kept for Wave")
    routing: object = key("kept for Wave")
    artifacts: object = key("kept for Wave")
    circuit_breaker: object = key("kept for Wave")
    retros: object = key("kept for Wave")
    cost: object = key("kept for Wave")
    fallbacks: Mapping[str, tuple[Text, ...]] = key("for an adapter, those to start where its program is not there", {})
    stall_timeout: object = key("kept for Wave")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """wave.yaml, with wave.sandbox.yaml laid over it."""

    apiVersion: Text | None = key("v1")  # noqa: N815  Wave's spelling
    kind: Text | None = key("WaveManifest")
    metadata: Metadata = key("what the project is", Metadata())
    project: Project | None = key("how it is built and tested")
    adapters: Mapping[str, Adapter] = key("the agent programs", {})
    personas: Mapping[str, Persona] = key("the agents' roles", {})
    server: object = key("kept for Wave")
    skills: object = key("kept for Wave")
    hooks: object = key("kept for Wave: hooks of its pipelines, not of agents")
    evolution: object = key("kept for Wave")
    runtime: Runtime = key("how agents run", Runtime())
    at: Marks = NOWHERE
