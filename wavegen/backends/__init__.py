"""The back ends: each renders the plan into files, and says what of it it cannot hold. Pure.

A new one is a module with `render` and `gaps`, its test, and a line in `all_backends`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from wavegen.manifest.model import BackendName, Output
from wavegen.policy.model import Gap, Origin, PersonaPolicy, Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """An output: its path below the project, its text, and how it meets what is there."""

    path: str
    text: str = ""
    raw: bytes = b""
    """What is no text: its bytes."""
    executable: bool = False
    only_if_missing: bool = False
    """Written where there is none; what is there is the user's and stays."""
    header: bool = True
    """Whether its text begins with our header, by which a hand-written file in its place is told apart."""

    @property
    def content_bytes(self) -> bytes:
        """What is written."""
        return self.raw or self.text.encode()


@dataclass(frozen=True, slots=True)
class Option:
    """Words of a command line that belong together, and why they are there."""

    words: tuple[str, ...]
    origin: Origin


class Backend(Protocol):
    """What a back end module offers."""

    def render(self, plan: Plan) -> Iterator[File]:
        """The files of this back end."""
        ...

    def gaps(self, plan: Plan) -> Iterator[Gap]:
        """What this back end does not hold as the plan says."""
        ...


def all_backends() -> tuple[tuple[str, Backend], ...]:
    """Every back end by name, in the order in which their files are listed."""
    from wavegen.backends.agents import claude, codex, gemini, instructions, opencode
    from wavegen.backends.project import flake, plan_files
    from wavegen.backends.sandboxes import bwrap, compose, docker, image, landlock, srt

    return (
        ("tree", plan_files),
        ("flake", flake),
        ("bwrap", bwrap),
        ("landlock", landlock),
        ("docker", docker),
        ("guidance", instructions),
        ("claude", claude),
        ("opencode", opencode),
        ("gemini", gemini),
        ("programs", codex),
        ("srt", srt),
        ("image", image),
        ("compose", compose),
    )


_OUTPUTS = {"flake": (Output.FLAKE,), "docker": (Output.DOCKER,), "image": (Output.DOCKER, Output.COMPOSE), "compose": (Output.COMPOSE,), "srt": (Output.SRT,)}
"""The back ends that are rendered only where one of these is asked for."""


def requested_backends(plan: Plan) -> tuple[Backend, ...]:
    """The back ends whose files the manifest asks for."""
    return tuple(backend for name, backend in all_backends() if name not in _OUTPUTS or plan.outputs.intersection(_OUTPUTS[name]))


def render_all_files(plan: Plan) -> tuple[File, ...]:
    """All files of a plan, sorted by path."""
    files = [file for backend in requested_backends(plan) for file in backend.render(plan)]
    return tuple(sorted(files, key=lambda file: file.path))


def files_for_agent(plan: Plan, persona: PersonaPolicy) -> tuple[File, ...]:
    """What a persona's agent is handed: its files below .wavegen/personas, sorted by path."""
    alone = replace(plan, personas=(persona,))
    files = [file for name, backend in all_backends() if name in _HANDING for file in backend.render(alone)]
    return tuple(sorted(files, key=lambda file: file.path))


_HANDING = ("guidance", "claude", "opencode", "gemini")
"""The back ends that write there, and nowhere else."""


def collect_gaps(plan: Plan) -> tuple[Gap, ...]:
    """All gaps of a plan; one that several shells have is one gap that names them all, or says how many they are.

    What is the same at many lines of the manifest stands at the first of them.
    """
    alike: dict[tuple[object, ...], dict[Origin, list[Gap]]] = {}
    for gap in (gap for backend in requested_backends(plan) for gap in backend.gaps(plan)):
        alike.setdefault((gap.backend, gap.effect, gap.what), {}).setdefault(gap.origin, []).append(gap)
    personas = {persona.fence.name for persona in plan.personas}
    return tuple(gap for lines in alike.values() for gap in _merge_same_gaps(lines, personas))


_ASIDE = {BackendName.DOCKER: ("docker", "image", "compose"), BackendName.LANDLOCK: ("landlock",), None: ("srt",)}
"""The back ends of fences that the manifest does not start by itself, but where it names them."""


def is_gap_of_active_backend(plan: Plan, gap: Gap) -> bool:
    """Whether a gap is of a fence that this manifest starts; what others stand ready for the plan lists."""
    return all(gap.backend not in names or plan.backend is backend for backend, names in _ASIDE.items())


def _merge_same_gaps(lines: dict[Origin, list[Gap]], personas: set[str]) -> Iterator[Gap]:
    if len(lines) > _NAMED:
        first, *others = (gap for same in lines.values() for gap in same)
        names = tuple(dict.fromkeys((first.shell, *(gap.shell for gap in others))))
        yield replace(first, shell=_join_shell_names(names, personas), what=f"{first.what} (here and at {len(lines) - 1} more lines)")
        return
    for same in lines.values():
        yield replace(same[0], shell=_join_shell_names(tuple(gap.shell for gap in same), personas))


def _join_shell_names(shells: tuple[str, ...], personas: set[str]) -> str:
    few = tuple(shell for shell in shells if shell not in personas)
    many = tuple(shell for shell in shells if shell in personas)
    return ", ".join((*few, f"{len(many)} personas") if len(many) > _NAMED else (*few, *many))


_NAMED = 3
"""Personas, and lines, that are named one by one."""


def generated_header(plan: Plan) -> str:
    """The first line of every generated file that can carry one."""
    return f"Generated by wavegen from {plan.manifest}. Do not edit: change the manifest, then run: wavegen render"


HEADER_MARK = "Generated by wavegen from "
"""By which a generated file is known again."""
