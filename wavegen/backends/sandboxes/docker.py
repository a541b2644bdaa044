"""Containers: a script for each shell that starts it with docker or podman, for machines where bubblewrap cannot be used."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from wavegen.backends import File, generated_header
from wavegen.backends.templates import fill_template
from wavegen.manifest.model import BackendName, NetworkMode
from wavegen.policy import defaults
from wavegen.policy.model import Access, Anchor, Effect, EnvRule, Gap, HostPath, Origin, PathRule, Plan, Policy

NAME = "docker"
DIRECTORY = ".wavegen/docker"
# Stores of packages, and who the user is: ssh, for one, ends where an uid has no name.
_STORES = ("nix/store", "gnu/store")
_HOSTS = (*_STORES, "etc/passwd", "etc/group")


def render(plan: Plan) -> Iterator[File]:
    """docker/run-<shell> for every fenced shell, and for personas where they are started so: the stub, which starts the launcher."""
    for shell in shells_with_script(plan):
        yield container_stub(plan, shell)


def shells_with_script(plan: Plan) -> tuple[Policy, ...]:
    """The shells and personas that have a script of their own here; of others one is made when it is asked for."""
    return tuple(fence for fence in (plan.all_fences() if plan.backend is BackendName.DOCKER else plan.shells) if fence.fenced)


def script_file(shell: Policy) -> str:
    """Where the script of a shell is, below the project."""
    return f"{DIRECTORY}/run-{shell.name}"


def container_stub(plan: Plan, shell: Policy) -> File:
    """What starts a shell as a container: by the directory the launcher sees that one is meant."""
    return File(path=script_file(shell), text=fill_template("stub.sh.j2", header=generated_header(plan), vendored=plan.vendored), executable=True)


def _host_rules_inside(shell: Policy) -> tuple[PathRule, ...]:
    """What is shown of the host: what the manifest names, stores of packages, names of users, and files of the fence. The rest is the image's."""
    kept = tuple(
        rule
        for rule in shell.paths
        if rule.path.anchor is Anchor.ROOT and (rule.origin.at or rule.path.tail in _HOSTS or (rule.access is Access.SCRATCH) is (rule.source is None))
    )
    # Where bwrap shows the whole root, no rule names them.
    named = {rule.path.tail for rule in kept}
    kept += tuple(rule for rule in defaults.MINIMAL_ROOT if rule.path.tail in _HOSTS and rule.path.tail not in named)
    # An engine puts a copy of the host's resolv.conf there, whatever the network.
    return (*kept, *(defaults.NETWORK_FILES if shell.network.mode is NetworkMode.NONE else ()))


def policy_in_container(shell: Policy, *, stores: Collection[str] = (), variables: Mapping[str, str] | None = None) -> Policy:
    """The policy as a container holds it: its system is the image's, whatever the host has there. What is tried inside is derived from it.

    `stores`: the directories of packages that are shown, as the PATH leads there; `variables`: the image's own.
    """
    inside = tuple(rule for rule in _host_rules_inside(shell) if rule.path.tail not in _STORES or rule.path.tail in stores)
    image = tuple(rule if _is_host_rule(rule, inside) else replace(rule, source=replace(rule.path, anchor=Anchor.IMAGE)) for rule in shell.paths)
    # What stands below /sys is the kernel's, whoever mounts it.
    image = tuple(rule for rule in image if rule.source is None or not _KERNEL.path.contains_path(rule.path))
    known = {rule.name for rule in shell.environment}
    own = (EnvRule(name=name, value=value, origin=Origin(_SYS)) for name, value in (variables or {}).items() if name not in known and name not in _REPLACED)
    paths = (*image, _KERNEL, *_LOOSE, *(rule for rule in inside if rule not in shell.paths))
    return replace(shell, paths=paths, environment=(*shell.environment, *own))


_REPLACED = ("HOME", "PATH", "HOSTNAME", "SHELL", "PWD")
"""Of the image's variables those that the script sets, or adds to."""


def _is_host_rule(rule: PathRule, inside: Collection[PathRule]) -> bool:
    """Whether a rule is about more than the system, or about what a container shows of it: what no mount shows needs no mask."""
    if rule.path.anchor is not Anchor.ROOT:
        return True
    shown = (other.path for other in inside if other.access in (Access.READ, Access.WRITE))
    return rule in inside and (rule.access is not Access.HIDE or any(path.contains_path(rule.path) for path in shown))


_SYS = "the image's own variables and programs are there, and /sys read-only, which tells what machine it is"
_MOUNTED = "/dev, /proc/mtrr and /proc/pressure are not mounted read-only: what keeps them is that nothing inside runs as root"
_BY_ENGINE = Origin("an engine mounts it")
_KERNEL = PathRule(path=HostPath(Anchor.ROOT, "sys"), access=Access.READ, origin=_BY_ENGINE, weaker=_SYS)
_LOOSE = tuple(
    PathRule(path=HostPath(Anchor.ROOT, tail), access=Access.WRITE, origin=_BY_ENGINE, source=HostPath(Anchor.IMAGE, tail), weaker=_MOUNTED)
    for tail in ("dev", "proc/mtrr", "proc/pressure")
)
# Files of its own, its cgroups, its first process (where /sbin is a link, too), and what the script hands over.
MOUNTED = (
    *("/sys", "/sys/fs/cgroup", "/etc/hostname", "/etc/hosts", "/etc/resolv.conf"),
    *("/sbin/docker-init", "/usr/sbin/docker-init", "/dev/init", "/run/podman-init", "/run/.containerenv", "/run/wavegen"),
)
"""Where an engine mounts something that no rule asks for, read-only."""
# What differs from bubblewrap, whatever the manifest says: how, what, what to do.
DIFFERENCES = (
    (
        Effect.WEAKER,
        "a daemon that is root starts the container, and the user inside is the host's own: there is no user namespace between them",
        "use bubblewrap, or podman as a user: WAVEGEN_CONTAINER=podman",
    ),
    (
        Effect.WEAKER,
        "the daemon keeps the values of variables that are let in while the container runs: whoever may ask it can read them",
        "let nobody into the group docker, whose members are as good as root",
    ),
    (
        Effect.WEAKER,
        _SYS,
        "take an image of your own, and write its digest: docker_image: NAME@sha256:...",
    ),
    (
        Effect.WEAKER,
        _MOUNTED,
        "use bubblewrap",
    ),
    (
        Effect.WEAKER,
        "without perl or python3 in the image there is no second layer (Landlock), which with network: host alone keeps abstract sockets away",
        "put one of them into the image; .wavegen/docker/Dockerfile does",
    ),
    (
        Effect.STRICTER,
        "of the host's programs none is there but those of the Nix store, in a Nix shell; a device may want a group that does not arrive",
        "name packages in the manifest and build .wavegen/docker/Dockerfile, or use bubblewrap",
    ),
    (
        Effect.STRICTER,
        "there is a terminal only where input, output and messages all are one; in /dev/shm no program can be run",
        "redirect nothing, or use bubblewrap",
    ),
    (
        Effect.STRICTER,
        "what a command leaves unread of its input is gone, as the client of the engine reads ahead",
        "give each command input of its own, or use bubblewrap",
    ),
    (
        Effect.STRICTER,
        "podman 4.3, started by a user, may lose signals, and after one the status may be another; killing the script ends the container all the same",
        "use docker or bubblewrap where signals matter",
    ),
    (
        Effect.STRICTER,
        "paths, words and variables must be UTF-8; the project must not belong to root; the daemon must be this machine's, and no virtual machine's",
        "with Docker Desktop write outputs: [flake, compose] and use .wavegen/docker/compose.yaml",
    ),
)
JUDGED = (
    (Effect.STRICTER, "connections can be judged only where the image has python3 or perl", "put one of them into the image; .wavegen/docker/Dockerfile does"),
    (
        Effect.STRICTER,
        "names stand for addresses in 127.64.0.0/10, which some programs take for the machine itself; listed addresses are reached by proxy alone",
        "use the proxy, or bubblewrap",
    ),
    (
        Effect.STRICTER,
        "a program that asks for IPv4 alone and for what this machine is configured for (AI_ADDRCONFIG) finds no name, as there is loopback alone",
        "let it ask for both, or use the proxy",
    ),
)


def gaps(plan: Plan) -> Iterator[Gap]:
    """What containers hold otherwise than bubblewrap does."""
    for shell in shells_with_script(plan):
        judged = JUDGED if shell.network.mode.is_filtered else ()
        yield from (
            Gap(backend=NAME, shell=shell.name, effect=effect, what=what, remedy=remedy, origin=_CONTAINER) for effect, what, remedy in (*DIFFERENCES, *judged)
        )


_CONTAINER = Origin("as a container is")
