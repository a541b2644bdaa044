"""Containers: a script for each shell that starts it with docker or podman, for machines where bubblewrap cannot be used."""

from __future__ import annotations

from collections.abc import Iterator

from wavegen.backends import File, Option
from wavegen.backends.bwrap import banner, network_options
from wavegen.backends.script import PROXIED, Builder, RuleLine, filter_of_shell, ground, setting, system, wrapper
from wavegen.manifest import BackendName, NetworkMode
from wavegen.policy import Access, Effect, Gap, Origin, PathRule, Plan, Policy
from wavegen.quote import json_text
from wavegen.seccomp import Filter
from wavegen.seccomp.oci import oci

NAME = "docker"
DIRECTORY = ".wavegen/docker"
_STORES = ("nix/store", "gnu/store")
_KEYS = "ctrl-@,ctrl-^,ctrl-_,ctrl-@"


def render(plan: Plan) -> Iterator[File]:
    """docker/run-<shell> for every fenced shell, for personas where they are started so, and the filters that the engine reads."""
    filters: dict[str, Filter] = {}
    for shell in scripts(plan):
        yield File(path=script_file(shell), text=script(plan, shell), executable=True)
        if found := filter_of_shell(shell):
            filters[found.name] = found
    yield from (profile(found) for found in filters.values())


def scripts(plan: Plan) -> tuple[Policy, ...]:
    """The shells and personas that have a script of their own here; of others one is made when it is asked for."""
    return tuple(fence for fence in (plan.fences() if plan.backend is BackendName.DOCKER else plan.shells) if fence.fenced)


def script_file(shell: Policy) -> str:
    """Where the script of a shell is, below the project."""
    return f"{DIRECTORY}/run-{shell.name}"


def profile(found: Filter) -> File:
    """What the engine is given of a filter."""
    return File(path=f".wavegen/seccomp/{found.name}.container.json", text=json_text(oci(found)), header=False)


def script(plan: Plan, shell: Policy) -> str:
    """The script that starts a shell, or a persona's fence, as a container."""
    return wrapper(
        plan,
        shell,
        Builder(
            file=script_file(shell),
            name="the engine",
            begins="container.sh",
            contained=True,
            parts=(*(("launched.sh",) if shell.network.mode in PROXIED else ()), "audit.sh", "fence.sh", "binds.sh"),
            options=tuple(options(shell)),
            system=tuple(system(shell, _inside(shell))),
            network=tuple(network_options(shell.network)),
            banner=tuple(banner(shell, by="a container", system="programs and libraries of the image")),
            settings=tuple(_settings(plan)),
        ),
    )


def _settings(plan: Plan) -> Iterator[RuleLine]:
    yield setting("image", "wg/base", Origin("x"))
    yield setting("image_remedy", "build it", Origin("what to do where the image is missing"))


def _inside(shell: Policy) -> tuple[PathRule, ...]:
    """What is shown of the host: what the manifest names, stores of packages, and files of the fence. The rest is the image's."""
    return tuple(rule for rule in ground(shell) if rule.origin.at or rule.path.tail in _STORES or (rule.access is Access.SCRATCH) is (rule.source is None))


def options(shell: Policy) -> Iterator[Option]:
    """What the engine is told besides paths."""
    yield Option(("--rm",), Origin("nothing of the container is kept"))
    yield Option(("--init",), Origin("a first process that passes signals on: without one a command that handles none cannot be ended"))
    yield Option(("--interactive",), Origin("standard input is the caller's; without it there would be none, and nobody would say so"))
    yield Option(("--pull=never",), Origin("an image comes when you fetch it, not when an agent starts"))
    yield Option(("--entrypoint", ""), Origin("what the image would start in its place could be anything"))
    yield Option(("--no-healthcheck",), Origin("nothing runs inside but the command"))
    yield Option(("--log-driver", "none"), Origin("the daemon would write all output to the disk, without a bound"))
    yield Option(("--detach-keys", _KEYS), Origin("Ctrl-P Ctrl-Q would leave the container alone"))
    yield Option(("--read-only",), Origin("of the image nothing can be changed"))
    yield Option(("--cap-drop", "ALL"), Origin("no capabilities"))
    yield Option(("--security-opt", "no-new-privileges"), Origin("setuid programs give nothing"))
    yield Option(("--network", "host" if shell.network.mode is NetworkMode.HOST else "none"), shell.network.origin)
    yield Option(("--hostname", "localhost"), Origin("a name that resolves everywhere"))
    yield Option(("--ipc", "private"), Origin("no shared memory or semaphores of the host"))
    yield Option(("--cgroupns", "private"), Origin("the host's control groups stay outside"))
    yield Option(("--pids-limit", str(shell.limits.pids)), shell.limits.origin)
    yield Option(("--ulimit", "core=0"), Origin("a core file would be a copy of secrets"))
    yield Option(("--shm-size", str(shell.limits.scratch)), shell.limits.origin)
    for rule in shell.environment:
        if rule.value is not None:
            yield Option(("--env", f"{rule.name}={rule.value}"), rule.origin)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What containers do not hold as the plan says."""
    for shell in scripts(plan):
        yield Gap(backend=NAME, shell=shell.name, effect=Effect.WEAKER, what="x", remedy="y", origin=plan.backend_origin)
