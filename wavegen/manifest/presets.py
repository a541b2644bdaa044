"""The built-in roles: what a persona that says `preset: navigator` has without writing it. Data, and one function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from wavegen.manifest.decoder import Marks, Text
from wavegen.manifest.model import PathAccess, Permissions, Persona, PersonaSandbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """A role: tool patterns and domains as a manifest would list them."""

    description: str
    allowed: tuple[str, ...]
    denied: tuple[str, ...] = ()
    domains: tuple[str, ...]
    reads_only: bool = False
    """Whether the operating system gives it the project read-only, whatever its tools could do."""


_API = ("api.anthropic.com",)
_GITHUB = ("github.com", "*.github.com")
_BUILDS = (*_API, *_GITHUB, "*.githubusercontent.com", "proxy.golang.org", "sum.golang.org")
_READS = ("Read", "Glob", "Grep")
_LOOKS_AT_GIT = ("Bash(git log*)", "Bash(git status*)", "Bash(git diff*)", "Bash(git show*)")
_WRITES_NOT = ("Write(*)", "Edit(*)", "NotebookEdit")
_WORKS = (*_READS, "Write", "Edit", "Bash")
_NEVER = ("Bash(rm -rf /*)", "Bash(sudo *)")

PRESETS: Mapping[str, Preset] = {
    "navigator": Preset(
        description="explores and explains the code, and changes nothing",
        allowed=(*_READS, *_LOOKS_AT_GIT),
        denied=(*_WRITES_NOT, "Bash(git commit*)", "Bash(git push*)"),
        domains=_API,
        reads_only=True,
    ),
    "implementer": Preset(description="writes code, runs it, fetches what builds need", allowed=_WORKS, denied=_NEVER, domains=_BUILDS),
    "reviewer": Preset(
        description="reads pull requests and issues, runs the tests, and edits nothing",
        allowed=(
            *_READS,
            *_LOOKS_AT_GIT,
            *("Bash(gh pr view*)", "Bash(gh pr diff*)", "Bash(gh issue view*)"),
            *("Bash(go test*)", "Bash(npm test*)", "Bash(pytest*)", "Bash(make test*)"),
        ),
        denied=_WRITES_NOT,
        domains=(*_API, *_GITHUB),
    ),
    "craftsman": Preset(description="builds, tests and pushes", allowed=_WORKS, denied=_NEVER, domains=_BUILDS),
    "philosopher": Preset(
        description="thinks about architecture, and writes specifications alone",
        allowed=(*_READS, "Write(.agents/specs/*)", "Write(.wave/specs/*)"),
        denied=("Bash",),
        domains=_API,
    ),
    "auditor": Preset(
        description="looks for what is unsafe, and changes nothing",
        allowed=(*_READS, "Bash(git log*)", "Bash(go vet*)", "Bash(npm audit*)"),
        denied=_WRITES_NOT,
        domains=_API,
        reads_only=True,
    ),
}
"""By name. The domains are those of Wave's own table of roles."""


def apply_preset(persona: Persona, preset: Preset, at: Marks) -> Persona:
    """The persona with what it does not write itself taken from a preset; deny lists add up. `at`: where the preset is named."""

    def located_texts(words: tuple[str, ...]) -> tuple[Text, ...]:
        return tuple(Text(word, at.location_of("preset")) for word in words)

    own = persona.permissions or Permissions(at=at)
    allowed = own.allowed_tools if own.allowed_tools is not None else located_texts(preset.allowed)
    sandbox = persona.sandbox or PersonaSandbox(at=at)
    marks = sandbox.at
    if sandbox.allowed_domains is None:
        marks = Marks(marks.here, {**marks.values, "allowed_domains": at.location_of("preset")})
        sandbox = replace(sandbox, allowed_domains=located_texts(preset.domains))
    if sandbox.project is None and preset.reads_only:
        marks = Marks(marks.here, {**marks.values, "project": at.location_of("preset")})
        sandbox = replace(sandbox, project=PathAccess.READ)
    return replace(
        persona,
        description=persona.description or Text(preset.description, at.location_of("preset")),
        permissions=replace(own, allowed_tools=allowed, deny=(*located_texts(preset.denied), *own.deny)),
        sandbox=replace(sandbox, at=marks),
    )
