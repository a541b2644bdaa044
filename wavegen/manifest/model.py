"""The shape of wave.yaml: one dataclass per mapping, a field's name is its key.

STRICT classes are the sections that decide what is fenced: an unknown key there is an error. Elsewhere it is a
note, as Wave's manifests carry keys that are none of our business (`object` fields are kept unread).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from wavegen.manifest.decoder import NOWHERE, Marks, Text, manifest_key, required_key


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
    path: Text = required_key("`~/…` in the home directory, `/…` on the host, anything else in the project")
    access: PathAccess = required_key("read or write")
    optional: bool = manifest_key("skip it where it does not exist (otherwise the shell does not start)", default=False)
    socket: bool = manifest_key("it is, or holds, a Unix socket, and that is meant: whoever answers it is outside the fence", default=False)
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resources of one shell."""

    STRICT: ClassVar[bool] = True
    pids: int | None = manifest_key("processes and threads (default 4096)")
    memory: Text | None = manifest_key(
        "bytes, with k, m, g or t behind the number (default three quarters of the machine's)", pattern="^[0-9]{1,18}[kmgtKMGT]?$"
    )
    cpus: float | None = manifest_key("processors, fractions allowed (default all)")
    files: int | None = manifest_key("open files of each process (default 65536)")
    tmp: Text | None = manifest_key("size of each private /tmp, /run and the like", pattern="^[0-9]{1,18}[kmgtKMGT]?$")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainEntry:
    """An entry of a list of domains that says more than a name."""

    STRICT: ClassVar[bool] = True
    host: Text = required_key("name, *.name, name:port, name:*, or an address, as an entry that is text alone")
    allow_private: bool = manifest_key("it may resolve to addresses of an intranet", default=False)
    allow_no_sni: bool = manifest_key("TLS on port 443 that names no server is let through", default=False)
    tls: bool = manifest_key("false: what is said on port 443 is not looked at", default=True)
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """One development shell."""

    STRICT: ClassVar[bool] = True
    sandbox: bool = manifest_key("false: no fence at all, as in `yolo`", default=True)
    network: NetworkMode | None = manifest_key("host | open (any public name) | filtered (the listed names) | none")
    domains: tuple[Text | DomainEntry, ...] | None = manifest_key("replaces default_allowed_domains for this shell; [] is no network")
    denied_domains: tuple[Text, ...] = manifest_key("added to those of every shell", ())
    loopback: tuple[int, ...] = manifest_key("ports of the host's loopback that are let in, for open and filtered", ())
    packages: tuple[Text, ...] = manifest_key("nixpkgs attribute paths, added to those of every shell", ())
    paths: tuple[PathEntry, ...] = manifest_key("added to those of every shell", ())
    deny_read_paths: tuple[Text, ...] = manifest_key("added to those of every shell", ())
    env_passthrough: tuple[Text, ...] = manifest_key("added to those of every shell", ())
    nested: bool = manifest_key("allow user namespaces, and with them sandboxes, inside", default=False)
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """runtime.sandbox."""

    STRICT: ClassVar[bool] = True
    enabled: bool = manifest_key("false takes the fence from personas and `wavegen run`; the three shells keep theirs", default=True)
    backend: BackendName | None = manifest_key("what holds personas and `wavegen run`")
    outputs: tuple[Output, ...] = manifest_key(
        "what is rendered besides .wavegen/bin: flake, docker, compose, srt; backend: docker brings its own", (Output.FLAKE, Output.DOCKER)
    )
    vendor: bool = manifest_key("false: .wavegen holds no launcher; an installed wavegen, or the flake's input `wavegen`, starts shells", default=True)
    docker_image: Text | None = manifest_key("what containers are started from: name[:tag][@sha256:…] (default: built from .wavegen/docker/Dockerfile)")
    docker_base: Text | None = manifest_key("what .wavegen/docker/Dockerfile builds upon (default debian:stable-slim)")
    docker_packages: Mapping[str, Text | tuple[Text, ...]] = manifest_key(
        "for a nixpkgs attribute the name, or names, of the image's packages, npm:NAME for npm's; false: none", {}
    )
    default_allowed_domains: tuple[Text | DomainEntry, ...] | None = manifest_key(
        "name, *.name, name:port or name:*, or a mapping with host; unset: the API hosts of the adapters; []: no network"
    )
    denied_domains: tuple[Text, ...] = manifest_key("refused whatever else allows them; without a port: on every port", ())
    upstream_proxy: bool = manifest_key("connections go through the proxy that HTTPS_PROXY of the host names", default=False)
    env_passthrough: tuple[Text, ...] = manifest_key("variables of the host that arrive inside", ())
    allow_unsandboxed_commands: bool = manifest_key("let Claude Code retry a command outside its own sandbox", default=False)
    deny_read_paths: tuple[Text, ...] = manifest_key("hidden whatever else shows them", ())
    fallback: Fallback = manifest_key("error: refuse; warn: run without a fence, and say so", Fallback.ERROR)
    packages: tuple[Text, ...] = manifest_key("nixpkgs attribute paths of every shell", ())
    unfree: tuple[Text, ...] = manifest_key("names of unfree packages that are allowed", ())
    package: Text | None = manifest_key("a callPackage file of this project that the flake exposes as a package")
    paths: tuple[PathEntry, ...] = manifest_key("what every shell sees beyond the defaults", ())
    home: Home = manifest_key("private: kept for this project and shell; tmpfs: empty at each entry", Home.PRIVATE)
    limits: Limits | None = manifest_key("resources of one shell")
    seccomp: Seccomp = manifest_key("default | strict | off", Seccomp.DEFAULT)
    seccomp_allow: tuple[Text, ...] = manifest_key("system calls that are let through, as ptrace for debuggers", ())
    shells: Mapping[str, Shell] = manifest_key("default, restricted and yolo exist without being written", {})
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What an agent's tools may do."""

    STRICT: ClassVar[bool] = True
    allowed_tools: tuple[Text, ...] | None = manifest_key("tool patterns; a persona's list replaces its adapter's")
    deny: tuple[Text, ...] = manifest_key("tool patterns; a persona's list adds to its adapter's", ())
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A command that an agent runs around a tool call."""

    STRICT: ClassVar[bool] = True
    matcher: Text | None = manifest_key("which tools")
    command: Text | None = manifest_key("what to run")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """personas.*.hooks."""

    STRICT: ClassVar[bool] = True
    PreToolUse: tuple[Hook, ...] = manifest_key("before a tool call; may refuse it", ())
    PostToolUse: tuple[Hook, ...] = manifest_key("after a tool call", ())
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaSandbox:
    """personas.*.sandbox."""

    STRICT: ClassVar[bool] = True
    shell: Text | None = manifest_key("the shell whose fence holds this persona (default restricted)")
    allowed_domains: tuple[Text | DomainEntry, ...] | None = manifest_key("replaces the default list; [] is no network")
    project: PathAccess | None = manifest_key("read: the project is read-only (default: where no tool is left that writes)")
    env_passthrough: tuple[Text, ...] | None = manifest_key("of the host's variables that its shell lets in, those that this persona gets (default all)")
    deny_read_paths: tuple[Text, ...] = manifest_key("added to those of its shell", ())
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Persona:
    """One role of an agent."""

    preset: Text | None = manifest_key("a built-in role: what is not written here is taken from it")
    adapter: Text | None = manifest_key("a key of adapters; empty: the only or first one")
    description: Text | None = manifest_key("for people")
    system_prompt_file: Text | None = manifest_key("the role's prompt")
    system_prompt: Text | None = manifest_key("the role's prompt, inline")
    temperature: float | None = manifest_key("kept for Wave: no agent takes it")
    model: Text | None = manifest_key("tier or model")
    permissions: Permissions | None = manifest_key("what its tools may do")
    hooks: Hooks | None = manifest_key("commands around its tool calls")
    sandbox: PersonaSandbox | None = manifest_key("its fence")
    skills: object = manifest_key("kept for Wave")
    token_scopes: object = manifest_key("kept for Wave")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One agent program."""

    binary: Text | None = manifest_key("its command")
    default_model: Text | None = manifest_key("its model")
    mode: Text | None = manifest_key("headless: what is not allowed is refused; interactive: it is asked for")
    output_format: Text | None = manifest_key("kept for Wave")
    project_files: object = manifest_key("kept for Wave")
    default_permissions: Permissions | None = manifest_key("for personas that have none of their own")
    hooks_template: object = manifest_key("kept for Wave")
    tier_models: Mapping[str, Text] = manifest_key("its models by tier: cheapest, fastest, balanced, strongest", {})
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """metadata."""

    name: Text | None = manifest_key("the project's name")
    description: Text | None = manifest_key("one line about it")
    repo: Text | None = manifest_key("its repository")
    forge: Text | None = manifest_key("github, gitlab, gitea, forgejo or bitbucket")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """project: kept for Wave, except the language."""

    language: Text | None = manifest_key("its main language")
    flavour: Text | None = manifest_key("kept for Wave")
    test_command: Text | None = manifest_key("kept for Wave")
    contract_test_command: Text | None = manifest_key("kept for Wave")
    lint_command: Text | None = manifest_key("kept for Wave")
    build_command: Text | None = manifest_key("kept for Wave")
    format_command: Text | None = manifest_key("kept for Wave")
    source_glob: Text | None = manifest_key("kept for Wave")
    test_file_pattern: object = manifest_key("kept for Wave")
    test_func_pattern: object = manifest_key("kept for Wave")
    skill: object = manifest_key("kept for Wave")
    services: object = manifest_key("kept for Wave")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """runtime: kept for Wave, except the sandbox."""

    sandbox: Sandbox | None = manifest_key("who may touch what")
    workspace_root: Text | None = manifest_key("where Wave puts workspaces")
    max_concurrent_workers: object = manifest_key("kept for Wave")
    default_timeout_minutes: object = manifest_key("kept for Wave")
    pipeline_id_hash_length: object = manifest_key("kept for Wave")
    max_concurrency: object = manifest_key("kept for Wave")
    timeouts: object = manifest_key("kept for Wave")
    relay: object = manifest_key("kept for Wave")
    audit: object = manifest_key("kept for Wave")
    meta_pipeline: object = manifest_key("kept for Wave")
    routing: object = manifest_key("kept for Wave")
    artifacts: object = manifest_key("kept for Wave")
    circuit_breaker: object = manifest_key("kept for Wave")
    retros: object = manifest_key("kept for Wave")
    cost: object = manifest_key("kept for Wave")
    fallbacks: Mapping[str, tuple[Text, ...]] = manifest_key("for an adapter, those to start where its program is not there", {})
    stall_timeout: object = manifest_key("kept for Wave")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """wave.yaml, with wave.sandbox.yaml laid over it."""

    apiVersion: Text | None = manifest_key("v1")  # noqa: N815  Wave's spelling
    kind: Text | None = manifest_key("WaveManifest")
    metadata: Metadata = manifest_key("what the project is", Metadata())
    project: Project | None = manifest_key("how it is built and tested")
    adapters: Mapping[str, Adapter] = manifest_key("the agent programs", {})
    personas: Mapping[str, Persona] = manifest_key("the agents' roles", {})
    server: object = manifest_key("kept for Wave")
    skills: object = manifest_key("kept for Wave")
    hooks: object = manifest_key("kept for Wave: hooks of its pipelines, not of agents")
    evolution: object = manifest_key("kept for Wave")
    runtime: Runtime = manifest_key("how agents run", Runtime())
    at: Marks = NOWHERE
