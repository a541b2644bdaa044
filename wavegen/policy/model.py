"""What a fence must hold, in words that belong to no back end. Values only: the planner decides, back ends render."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from wavegen.core.errors import Location, Problem, Severity
from wavegen.manifest.model import BackendName, Fallback, NetworkMode, Output, Seccomp


@dataclass(frozen=True, slots=True)
class Origin:
    """Why a rule exists: the manifest line that asked for it, or (at is None) the reason for the default."""

    reason: str
    at: Location | None = None

    def __str__(self) -> str:
        if self.at is None:
            return f"default: {self.reason}"
        return f"{self.at.file}:{self.at.line}" + (f": {self.reason}" if self.reason else "")

    @property
    def text_without_line(self) -> str:
        """The same as generated files have it, without the line: one more in the manifest must not change them."""
        if self.at is None:
            return str(self)
        return self.at.file + (f": {self.reason}" if self.reason else "")


class Anchor(Enum):
    """What a path hangs from. All but ROOT are known only when a shell starts."""

    ROOT = "/"
    HOME = "~"
    PROJECT = "."
    STATE = "$STATE"
    """What wavegen keeps on the host for this project and shell."""
    RUNTIME = "$RUNTIME"
    """What is rendered besides the wrappers: programs and files of the fence itself."""
    HOMES = "~/.."
    """The directory that holds HOME, where that is not the root."""
    AROUND = "./.."
    """The highest directory above the project that holds no part of the system."""
    IMAGE = "$IMAGE"
    """The root of a container's image: only where something is shown from, never a place of the host's."""


@dataclass(frozen=True, slots=True)
class HostPath:
    """An anchor and a normalised tail without `..`, `.` or empty parts; the tail may be empty."""

    anchor: Anchor
    tail: str = ""

    def __str__(self) -> str:
        if self.anchor is Anchor.ROOT:
            return f"/{self.tail}"
        return f"{self.anchor.value}/{self.tail}" if self.tail else self.anchor.value

    def tail_parts(self) -> tuple[str, ...]:
        """The components of the tail."""
        return tuple(self.tail.split("/")) if self.tail else ()

    def parent_paths(self) -> Iterator[HostPath]:
        """The paths above this one as far as the anchor tells, the nearest first."""
        tail = self.tail
        while tail:
            tail = tail.rpartition("/")[0]
            yield HostPath(self.anchor, tail)

    def contains_path(self, other: HostPath) -> bool:
        """Whether `other` is this path or lies below it, as far as the anchors tell."""
        return self.anchor is other.anchor and other.tail_parts()[: len(self.tail_parts())] == self.tail_parts()


class Access(Enum):
    """What is inside at a path."""

    HIDE = "hide"
    """Nothing: an empty read-only directory, or a file that cannot be read."""
    READ = "read"
    WRITE = "write"
    SCRATCH = "scratch"
    """An empty writable directory that is gone with the shell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRule:
    """One rule about a path; of two rules the one for the deeper path holds."""

    path: HostPath
    access: Access
    origin: Origin
    required: bool = False
    """Whether the shell must not start where the path is missing on the host."""
    source: HostPath | None = None
    """What is shown at `path`, where it is not what the host has there."""
    socket: bool = False
    pinned: bool = False
    """A file of the fence itself: a symlink in its place is refused, as the link could be turned elsewhere."""
    guarded: bool = False
    """Something that the host runs or follows later: held where it exists when the shell starts, and never made. A
    guarded rule for writing holds its place alone: it can be neither renamed nor replaced."""
    weaker: str = ""
    """Why a back end shows it, or lets it be written, though nothing asks for that: what its gap says. Never planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainRule:
    """Names and ports that are let through: `host`, or with `wildcard` every name below it."""

    host: str
    wildcard: bool
    port: str
    """Digits; `*` for any; empty for 80 and 443."""
    origin: Origin
    allow_private: bool = False
    """Whether it may resolve to addresses that are not public."""
    allow_no_sni: bool = False
    """Whether TLS on port 443 may leave out the server's name."""
    tls: bool = True
    """Whether what is said on port 443 is looked at: it must be TLS, and for this name."""
    api: bool = False
    """Whether it was added because an agent's model is served there: the commands of the agent have no need of it."""

    def extra_flags(self) -> dict[str, bool]:
        """What the entry lets through beyond a plain one: the fields that differ from their defaults."""
        return {
            **({"allow_private": True} if self.allow_private else {}),
            **({"allow_no_sni": True} if self.allow_no_sni else {}),
            **({} if self.tls else {"tls": False}),
        }

    def __str__(self) -> str:
        return ("*." if self.wildcard else "") + self.host + (f":{self.port}" if self.port else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a shell reaches."""

    mode: NetworkMode
    origin: Origin
    domains: tuple[DomainRule, ...] = ()
    """What is let through; with mode HOST they are the manifest's default list, and bind nobody."""
    loopback: tuple[int, ...] = ()
    denied: tuple[DomainRule, ...] = ()
    """What is refused whatever allows it; with modes OPEN and FILTERED only, and every rule with a port or `*`."""
    upstream: Origin | None = None
    """What asks for the proxy that the host's HTTPS_PROXY names; with modes OPEN and FILTERED only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvRule:
    """A variable that is there inside: with the host's value, or (value is not None) a fixed one."""

    name: str
    value: str | None
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds: counts, bytes, processors. Of files for each process, of the others for all together."""

    pids: int
    memory: int | None = None
    """None: MEMORY_SHARE of what the machine has."""
    cpus: float | None = None
    """None: all of them."""
    files: int
    scratch: int
    origin: Origin
    written: bool = False
    """Whether the manifest bounds processes, memory or processors: then a service manager is asked where nothing else holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A nixpkgs attribute path."""

    attribute: tuple[str, ...]
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All that holds in one shell."""

    name: str
    origin: Origin
    fenced: bool
    nested: bool
    minimal_root: bool
    private_home: bool
    network: Network
    paths: tuple[PathRule, ...]
    environment: tuple[EnvRule, ...]
    limits: Limits
    seccomp: Seccomp
    seccomp_origin: Origin
    seccomp_allow: tuple[str, ...]
    """System calls that are let through whatever the filter says."""
    seccomp_allow_origin: Origin
    packages: tuple[Package, ...]
    fallback: Fallback


class AgentKind(Enum):
    """The agents whose settings and options are known."""

    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """A program that works as a persona."""

    adapter: str
    """Its name in the manifest."""
    kind: AgentKind
    binary: str
    """Its command."""
    model: str
    """As the program spells it; empty: its own choice."""
    headless: bool
    """Whether nobody is there to ask."""
    hosts: tuple[str, ...]
    """Where its model is served."""
    origin: Origin


@dataclass(frozen=True, slots=True)
class ToolPattern:
    """`Tool`, or `Tool(specifier)` for some of its calls; the tool may be `*`."""

    tool: str
    specifier: str | None
    origin: Origin

    def __str__(self) -> str:
        return self.tool if self.specifier is None else f"{self.tool}({self.specifier})"


@dataclass(frozen=True, slots=True, kw_only=True)
class HookRule:
    """A command that an agent runs around tool calls."""

    before: bool
    """Before the call, which it may refuse; otherwise after it."""
    matcher: ToolPattern
    command: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonaPolicy:
    """A role of an agent: what it is told, what its program enforces, and what its fence holds."""

    name: str
    description: str
    origin: Origin
    shell: str
    fence: Policy
    """All that holds around it; its name is that of the script in .wavegen/bin."""
    agents: tuple[Agent, ...]
    """What is started: the first whose program is there. Empty where the manifest names none."""
    project_writable: bool
    allowed_tools: tuple[ToolPattern, ...]
    denied_tools: tuple[ToolPattern, ...]
    hooks: tuple[HookRule, ...]
    prompt: HostPath | None
    """The role's own prompt, a file of the project."""
    prompt_text: str
    """The same, where the manifest holds the text itself."""
    ignored: tuple[tuple[str, str, Origin], ...]
    """What the manifest asks for and nothing of ours does: what, what to do, and where."""
    unsandboxed_commands: bool
    """Whether Claude Code may go past its own sandbox, where that is on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePackage:
    """What the manifest says to take into an image for a nixpkgs attribute."""

    attribute: str
    names: tuple[str, ...]
    """The distribution's packages; with `npm:` before them those of npm. Empty: nothing is taken."""
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """What containers are started from."""

    reference: str
    """name[:tag][@sha256:…]."""
    origin: Origin
    local: bool
    """Whether it is built from our Dockerfile, and fetched from nowhere."""
    base: str
    """What the Dockerfile builds upon."""
    base_origin: Origin
    named: tuple[ImagePackage, ...]
    agents: tuple[tuple[AgentKind, Origin], ...]
    """The programs that the manifest's adapters are, each once."""


class Effect(Enum):
    """How a back end departs from a rule."""

    IGNORED = "ignored"
    WEAKER = "weaker"
    STRICTER = "stricter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that a back end does not hold as the policy says."""

    backend: str
    shell: str
    effect: Effect
    what: str
    remedy: str
    origin: Origin
    fatal: bool = False
    """An ignored HIDE or network rule: rendering it would be a lie."""

    def as_problem(self) -> Problem:
        """The gap as a message."""
        severity = Severity.ERROR if self.fatal else Severity.GAP
        where = f"{self.shell}: " if self.shell else ""
        return Problem(at=self.origin.at, severity=severity, what=f"{where}{self.what} [{self.backend}: {self.effect.value}]", hint=self.remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that is rendered."""

    name: str
    description: str
    manifest: str
    """The manifest's file name inside the project."""
    overlay: str
    """The overlay's file name, also where there is none."""
    overlaid: bool
    enabled: bool
    enabled_origin: Origin
    backend: BackendName
    backend_origin: Origin
    outputs: frozenset[Output]
    """What is rendered besides the scripts of `.wavegen/bin`."""
    vendored: bool
    """Whether the launcher is rendered, too."""
    image: Image
    shells: tuple[Policy, ...]
    personas: tuple[PersonaPolicy, ...]
    personas_origin: Origin
    unfree: tuple[str, ...]
    package: HostPath | None
    notes: tuple[Problem, ...]

    def find_shell(self, name: str) -> Policy | None:
        """The policy of a shell, if there is one of that name."""
        return next((shell for shell in self.shells if shell.name == name), None)

    def find_persona(self, name: str) -> PersonaPolicy | None:
        """The persona of that name, if there is one."""
        return next((persona for persona in self.personas if persona.name == name), None)

    def persona_of(self, fence: Policy) -> PersonaPolicy | None:
        """The persona whose fence it is; a shell is nobody's."""
        return next((persona for persona in self.personas if persona.fence.name == fence.name), None)

    def find_fence(self, name: str) -> Policy | None:
        """The policy of the shell or persona whose script has that name."""
        return next((fence for fence in self.all_fences() if fence.name == name), None)

    def all_fences(self) -> tuple[Policy, ...]:
        """The policies of all shells and personas."""
        return (*self.shells, *(persona.fence for persona in self.personas))
