"""The image of a project's containers: a Dockerfile with what the manifest lists, on whatever it builds upon."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from wavegen.backends import File, generated_header
from wavegen.backends.sandboxes.rules_file import filter_of_shell
from wavegen.backends.templates import fill_template
from wavegen.manifest import images
from wavegen.policy.distro_packages import AGENTS, NEEDED, Distribution, Found, distribution_of, packages_for_attribute, split_npm_packages
from wavegen.policy.model import Effect, Gap, Image, Origin, Plan
from wavegen.seccomp import Filter
from wavegen.seccomp.oci import render_oci_profile as oci_profile

NAME = "image"
DIRECTORY = ".wavegen/docker"
NOBODY = 65534
"""As whom a container runs that nobody tells otherwise; ours are always told."""


@dataclass(frozen=True, slots=True)
class Line:
    """A package, and why it is there."""

    name: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class Wanted:
    """An attribute that something asks for, and what there is for it."""

    attribute: str
    origin: Origin
    found: Found | None


def render(plan: Plan) -> Iterator[File]:
    """The Dockerfile, what keeps everything else from being sent to whoever builds, and the system call filters as engines read them."""
    yield File(path=f"{DIRECTORY}/Dockerfile", text=dockerfile_text(plan))
    yield File(path=f"{DIRECTORY}/.dockerignore", text=f"# {generated_header(plan)}\n#\n# Nothing is copied, so nothing is sent.\n*\n")
    filters = {found.name: found for fence in plan.all_fences() if (found := filter_of_shell(fence))}
    yield from map(seccomp_profile_file, filters.values())


@cache
def seccomp_profile_file(found: Filter) -> File:
    """What an engine is given of a filter: one entry a line."""
    head = {**oci_profile(found)}
    entries = ",\n".join(f"  {json.dumps(entry)}" for entry in head.pop("syscalls"))
    text = json.dumps(head, indent=2).removesuffix("\n}")
    return File(path=f".wavegen/seccomp/{found.name}.json", text=f'{text},\n  "syscalls": [\n{entries}\n  ]\n}}\n', header=False)


def dockerfile_text(plan: Plan) -> str:
    """The text of the Dockerfile, in what the classic builder of docker 20.10 and `podman build` know."""
    found = tuple(wanted_packages(plan.image, plan))
    distribution = distribution_of(plan.image.base)
    npm = _unique_lines((name, one) for one in found for name in (one.found.npm if one.found else ()))
    return fill_template(
        "Dockerfile.j2",
        header=generated_header(plan),
        directory=DIRECTORY,
        image=plan.image,
        distribution=distribution,
        before=distribution.before,
        after=distribution.after,
        packages=_unique_lines((name, one) for one in found for name in (one.found.names if one.found else ())),
        npm=npm,
        nobody=NOBODY,
    )


def _unique_lines(named: Iterator[tuple[str, Wanted]]) -> tuple[Line, ...]:
    lines: dict[str, Line] = {}
    for name, one in named:
        lines.setdefault(name, Line(name, one.origin))
    return tuple(lines.values())


def wanted_packages(image: Image, plan: Plan) -> Iterator[Wanted]:
    """What the image is to hold: what the fence needs, the packages of all shells, and the adapters' programs."""
    asked = {attribute: Origin(reason) for attribute, reason in NEEDED}
    for shell in plan.shells:
        for package in shell.packages:
            asked.setdefault(".".join(package.attribute), package.origin)
    for kind, origin in image.agents:
        asked.setdefault(AGENTS[kind], origin)
    distribution = distribution_of(image.base)
    found = tuple(Wanted(attribute, origin, _find_package(image, distribution, attribute)) for attribute, origin in asked.items())
    by_npm = next((one.attribute for one in found if one.found and one.found.npm), "")
    yield from found
    if by_npm and "nodejs" not in asked:
        yield Wanted("nodejs", Origin(f"npm, which installs {by_npm}"), _find_package(image, distribution, "nodejs"))


def _find_package(image: Image, distribution: Distribution, attribute: str) -> Found | None:
    named = next((one for one in image.named if one.attribute == attribute), None)
    if named is None:
        return packages_for_attribute(distribution, attribute)
    return split_npm_packages(named.names) or Found(())


# --- what it does not hold


def gaps(plan: Plan) -> Iterator[Gap]:
    """What an image has otherwise than a shell of Nix, and what others decide about it."""
    image = plan.image
    if not image.local:
        what = f"{image.reference} has its own packages, not those of the manifest"
        yield _make_gap(Effect.IGNORED, what, f"build {DIRECTORY}/Dockerfile under that name, or remove docker_image", image.origin)
        if not images.is_digest_pinned(image.reference):
            what = f"the tag of {image.reference} can be moved to another image"
            yield _make_gap(Effect.WEAKER, what, _pin_remedy("docker_image", image.reference), image.origin)
        return
    if not images.is_digest_pinned(image.base):
        what = f"the tag of the base image {image.base} can be moved to another image"
        yield _make_gap(Effect.WEAKER, what, _pin_remedy("docker_base", image.base), image.base_origin)
    yield from _package_gaps(plan)


def _package_gaps(plan: Plan) -> Iterator[Gap]:
    found = tuple(wanted_packages(plan.image, plan))
    distribution = distribution_of(plan.image.base)
    for one in found:
        if one.found is None:
            what = f"{one.attribute} is not in the container image: wavegen knows no package of {distribution.name} for it"
            remedy = (
                f"name one, or none: docker_packages: {{{one.attribute}: NAME}} or {{{one.attribute}: false}}; with Nix on the host it is there all the same"
            )
            yield _make_gap(Effect.IGNORED, what, remedy, one.origin)
        elif one.found.other_version:
            what = f"{one.attribute} is {' '.join((*one.found.names, *one.found.npm))} in the image of containers, in the version that {distribution.name} has"
            yield _make_gap(Effect.IGNORED, what, f"name another: docker_packages: {{{one.attribute}: NAME}}, or take it as docker_base", one.origin)
    floating = [(name, one.origin) for one in found if one.found for name in one.found.npm if "@" not in name[1:]]
    if floating:
        names = ", ".join(name for name, _ in floating)
        what = f"the container image gets the version of {names} that npm's registry serves on the day of the build"
        yield _make_gap(Effect.WEAKER, what, f"write the version: docker_packages: {{ATTRIBUTE: 'npm:{floating[0][0]}@1.2.3'}}", floating[0][1])


def _pin_remedy(key: str, name: str) -> str:
    bare = name.partition("@")[0]
    return f"write {key}: {bare}@sha256:…, as `docker image inspect -f '{{{{index .RepoDigests 0}}}}' {bare}` says after docker pull"


def _make_gap(effect: Effect, what: str, remedy: str, origin: Origin) -> Gap:
    return Gap(backend=NAME, shell="", effect=effect, what=what, remedy=remedy, origin=origin)
