"""What a command inside a shell is started with: the wrapper, from the plan at hand, and whether what it needs is what was rendered."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import assert_never

from wavegen import resources
from wavegen.backends import File, docker, handed
from wavegen.backends.bwrap import program, wrapper
from wavegen.backends.landlock import PREFIX, script
from wavegen.backends.landlock import filter_of_shell as landlock_filter
from wavegen.backends.script import filter_of_shell as mounted_filter
from wavegen.decode import suggestion
from wavegen.errors import FenceError, UsageError
from wavegen.manifest import BackendName
from wavegen.output import read_lock
from wavegen.policy import Plan, Policy
from wavegen.project import Project
from wavegen.quote import sh
from wavegen.tools import SYSTEM, directories, find


def persona_of(plan: Plan, name: str) -> Policy:
    """The fence of a persona. Raises UsageError for an unknown name."""
    persona = plan.persona(name)
    if persona is None:
        known = tuple(persona.name for persona in plan.personas)
        raise UsageError(f"there is no persona '{name}'", suggestion(name, known) or f"personas: {', '.join(known) or 'none'}")
    return persona.fence


def backend_of(plan: Plan, name: str | None) -> BackendName:
    """What holds a command: the named back end, else the manifest's. Raises UsageError for an unknown name."""
    if name is None:
        return plan.backend
    if name not in STARTED:
        raise UsageError(f"there is no back end '{name}' to start a command with", suggestion(name, STARTED) or f"back ends: {', '.join(STARTED)}")
    return BackendName(name)


STARTED = tuple(backend.value for backend in (BackendName.BUBBLEWRAP, BackendName.DOCKER, BackendName.LANDLOCK))
"""The back ends that start commands."""


def shell_of(plan: Plan, name: str | None) -> Policy:
    """The shell to run in: the named one, else `default`, or `yolo` where the manifest takes the fence from `run`.

    Raises UsageError for an unknown name.
    """
    if name is not None:
        shell = plan.shell(name)
        if shell is None:
            fence = plan.fence(name)
            if fence and (persona := plan.persona_of(fence)):
                raise UsageError(f"there is no shell '{name}'", f"that is a persona's fence: --persona {persona.name}")
            known = tuple(shell.name for shell in plan.shells)
            raise UsageError(f"there is no shell '{name}'", suggestion(name, known) or f"shells: {', '.join(known)}")
        return shell
    fallback = plan.shell("default" if plan.enabled else "yolo")
    if fallback is None:
        raise UsageError("the plan has no default shell", "name one with --shell")
    return fallback


def _check(root: str, path: str, data: bytes, remedy: str) -> None:
    """Whether a rendered file is what this version renders. Raises FenceError where it is not, or cannot be read."""
    place = os.path.join(root, path)
    try:
        with open(place, "rb") as stream:
            # Behind a link anybody might exchange it.
            same = stream.read() == data and os.path.realpath(place) == place
    except OSError:
        same = False
    if not same:
        raise FenceError(f"{os.path.join(root, path)} is not what this version of wavegen renders", remedy)


def _check_rendered(project: Project, file: File) -> None:
    """The same for what the manifest decides about, which is right for another one, too."""
    listed = read_lock(project.root).inputs
    changed = [name for name, value in project.inputs.items() if listed.get(name) != value]
    try:
        _check(project.root, file.path, file.data, "run wavegen render")
    except FenceError:
        if not changed:
            raise
        raise FenceError(f"{' and '.join(changed)} {'have' if len(changed) > 1 else 'has'} changed since the last render", "run wavegen render") from None


def _parts(project: Project, found: File | None) -> str:
    """Where the wrapper finds what it starts and loads: what is rendered, which is read-only in every shell. `found`: its filter.

    Raises FenceError for another version's.
    """
    for name, text in resources.runtime():
        _check(project.root, f".wavegen/runtime/{name}", text.encode(), "run wavegen render")
    if found:
        _check_rendered(project, found)
    runtime, filters = (sh(os.path.join(project.root, ".wavegen", name)) for name in ("runtime", "seccomp"))
    return f"readonly wg_runtime={runtime}\nreadonly wg_seccomp={filters}\n"


def _unchanged(project: Project, shell: Policy, text: str) -> None:
    """What nothing keeps a command from writing: the manifest, and what was rendered from it. Raises FenceError."""
    remedy = "a command may have changed it: look at it, then run wavegen render"
    listed = read_lock(project.root).inputs
    for name, value in project.inputs.items():
        if listed.get(name) != value:
            raise FenceError(f"{name} is not what was rendered last", remedy)
    _check(project.root, f".wavegen/bin/{PREFIX}{shell.name}", text.encode(), remedy)


def script_of(project: Project, shell: Policy, *, backend: BackendName, agent: bool = True) -> str:
    """The wrapper of a shell or a persona, rendered from the plan at hand. Raises FenceError where what it starts is not what is rendered.

    Only in a rendered project: what is rendered is read-only inside, so that nothing that decides about the next session can be made in this one.
    `agent`: whether a persona's agent is started, which reads what it is handed from the disk, so that it must be what is rendered.
    """
    if project.known != frozenset(project.inputs):
        what = f"{project.plan.manifest} and {project.plan.overlay} are not what was rendered last" if project.known else "this project was never rendered"
        raise FenceError(what, "run wavegen render")
    persona = project.plan.persona_of(shell)
    text, found = _script(project.plan, shell, backend)
    if shell.fenced and backend is BackendName.LANDLOCK:
        _unchanged(project, shell, text)
    if persona and agent:
        for file in handed(project.plan, persona):
            _check_rendered(project, file)
    if shell.fenced or persona:
        text = text.replace("\n", f"\n{_parts(project, found)}", 1)
    return text


def _script(plan: Plan, shell: Policy, backend: BackendName) -> tuple[str, File | None]:
    """The text of a wrapper, and the file of the filter that it loads."""
    if not shell.fenced:
        return wrapper(plan, shell), None
    match backend:
        case BackendName.LANDLOCK:
            found = landlock_filter(shell)
            return script(plan, shell), program(found) if found else None
        case BackendName.DOCKER:
            found = mounted_filter(shell)
            return docker.script(plan, shell), docker.profile(found) if found else None
        case BackendName.BUBBLEWRAP | BackendName.NONE:
            found = mounted_filter(shell)
            return wrapper(plan, shell), program(found) if found else None
        case _:
            assert_never(backend)


def bash(root: str, path: str) -> str:
    """The bash that runs a wrapper: the system's, else one of the PATH. Raises FenceError where there is none."""
    found = find("bash", root, (*SYSTEM, *directories(root, path)))
    if not found:
        raise FenceError("bash is not on the PATH", "install bash")
    return found


def arguments(program: str, script: int, root: str, options: Sequence[str], command: Sequence[str]) -> list[str]:
    """The command line of a wrapper. `script`: the descriptor that its text is read from; `options`: words for the wrapper itself."""
    return [program, "-p", f"/proc/self/fd/{script}", "--project", root, *options, "--", *command]


def in_memory(text: str) -> int:
    """A descriptor, of no file, that a wrapper's text can be read from."""
    handle = os.memfd_create("wavegen")
    with os.fdopen(os.dup(handle), "wb") as stream:
        stream.write(text.encode())
    return handle
