"""What a command inside a shell is started with: the wrapper, from the plan at hand, and whether what it needs is what was rendered."""

from __future__ import annotations

import os
from typing import assert_never

from wavegen.backends import File, files_for_agent
from wavegen.backends.sandboxes.bwrap import bpf_filter_file
from wavegen.backends.sandboxes.rules_file import filter_of_shell, landlock_filter, rules_text
from wavegen.core.errors import FenceError, UsageError
from wavegen.manifest.decoder import suggest_spelling
from wavegen.manifest.model import BackendName
from wavegen.policy.model import Plan, Policy
from wavegen.project.handover import Launch
from wavegen.project.loader import Project
from wavegen.project.rendered_tree import files_not_in_lock, read_lock


def persona_of(plan: Plan, name: str) -> Policy:
    """The fence of a persona. Raises UsageError for an unknown name."""
    persona = plan.find_persona(name)
    if persona is None:
        known = tuple(persona.name for persona in plan.personas)
        raise UsageError(f"there is no persona '{name}'", suggest_spelling(name, known) or f"personas: {', '.join(known) or 'none'}")
    return persona.fence


def backend_of(plan: Plan, name: str | None) -> BackendName:
    """What holds a command: the named back end, else the manifest's. Raises UsageError for an unknown name."""
    if name is None:
        return plan.backend
    if name not in STARTED:
        raise UsageError(f"there is no back end '{name}' to start a command with", suggest_spelling(name, STARTED) or f"back ends: {', '.join(STARTED)}")
    return BackendName(name)


STARTED = tuple(backend.value for backend in (BackendName.BUBBLEWRAP, BackendName.DOCKER, BackendName.LANDLOCK))
"""The back ends that start commands."""


def shell_of(plan: Plan, name: str | None) -> Policy:
    """The shell to run in: the named one, else `default`, or `yolo` where the manifest takes the fence from `run`.

    Raises UsageError for an unknown name.
    """
    if name is not None:
        shell = plan.find_shell(name)
        if shell is None:
            fence = plan.find_fence(name)
            if fence and (persona := plan.persona_of(fence)):
                raise UsageError(f"there is no shell '{name}'", f"that is a persona's fence: --persona {persona.name}")
            known = tuple(shell.name for shell in plan.shells)
            raise UsageError(f"there is no shell '{name}'", suggest_spelling(name, known) or f"shells: {', '.join(known)}")
        return shell
    fallback = plan.find_shell("default" if plan.enabled else "yolo")
    if fallback is None:
        raise UsageError("the plan has no default shell", "name one with --shell")
    return fallback


def _check_rendered_bytes(root: str, path: str, data: bytes, remedy: str) -> None:
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
        _check_rendered_bytes(project.root, file.path, file.content_bytes, "run wavegen render")
    except FenceError:
        if not changed:
            raise
        raise FenceError(f"{' and '.join(changed)} {'have' if len(changed) > 1 else 'has'} changed since the last render", "run wavegen render") from None


def launch_of(project: Project, shell: Policy, *, backend: BackendName, agent: bool = True) -> Launch:
    """The rules of a shell or a persona, from the plan at hand. Raises FenceError where this project was never rendered, or holds what is not ours.

    Only in a rendered project: what is rendered is read-only inside, so that nothing that decides about the next session can be made in this one.
    `agent`: whether a persona's agent is started, which reads what it is handed from the disk, so that it must be what is rendered.
    """
    if project.known != frozenset(project.inputs):
        what = f"{project.plan.manifest} and {project.plan.overlay} are not what was rendered last" if project.known else "this project was never rendered"
        raise FenceError(what, "run wavegen render")
    if strange := files_not_in_lock(project.root):
        raise FenceError(f"{strange[0]} is not of wavegen: the lock does not list it", "look at it, then remove it")
    persona = project.plan.persona_of(shell)
    if shell.fenced and backend is BackendName.LANDLOCK:
        _check_inputs_unchanged(project)
    if persona and agent:
        for file in files_for_agent(project.plan, persona):
            _check_rendered(project, file)
    return Launch(rules_text(project.plan, shell, whole=True, alone=backend is BackendName.LANDLOCK), _seccomp_program(shell, backend))


def _check_inputs_unchanged(project: Project) -> None:
    """What nothing keeps a command from writing where Landlock alone holds it: the manifest. Raises FenceError."""
    listed = read_lock(project.root).inputs
    for name, value in project.inputs.items():
        if listed.get(name) != value:
            raise FenceError(f"{name} is not what was rendered last", "a command may have changed it: look at it, then run wavegen render")


def _seccomp_program(shell: Policy, backend: BackendName) -> bytes:
    if not shell.fenced:
        return b""
    match backend:
        case BackendName.LANDLOCK:
            found = landlock_filter(shell)
            return bpf_filter_file(found).content_bytes if found else b""
        case BackendName.DOCKER:
            found = filter_of_shell(shell)
            from wavegen.backends.sandboxes.image import seccomp_profile_file

            return seccomp_profile_file(found).content_bytes if found else b""
        case BackendName.BUBBLEWRAP | BackendName.NONE:
            found = filter_of_shell(shell)
            return bpf_filter_file(found).content_bytes if found else b""
        case _:
            assert_never(backend)
