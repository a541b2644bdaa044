"""The image of a project's containers, as the manifest asks for it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from wavegen.core.errors import InvalidValueError, Location, Problem, Severity
from wavegen.manifest.decoder import Marks, Text
from wavegen.manifest.images import check_image_reference, is_package_name, local_image
from wavegen.manifest.model import Manifest, Sandbox
from wavegen.policy.distro_packages import AGENTS, NEEDED
from wavegen.policy.known_agents import kind_of
from wavegen.policy.model import AgentKind, Image, ImagePackage, Origin

ATTRIBUTE = re.compile(r"[A-Za-z_][A-Za-z0-9_'+-]*(\.[A-Za-z0-9_][A-Za-z0-9_'+-]*)*")
"""A path of attributes in nixpkgs."""
_BASE = "debian:stable-slim"
Report = Callable[[Problem], None]


def origin_of_key(marks: Marks, name: str, reason: str) -> Origin:
    """The line of a key, or the reason for its default where it is not written."""
    return Origin("", marks.location_of(name)) if name in marks else Origin(reason)


def image_of(manifest: Manifest, name: str, file: Location, report: Report) -> Image:
    """The image: `name` is the project's, `file` where a problem is that has no place of its own."""
    sandbox = manifest.runtime.sandbox or Sandbox()
    written = _read_reference("docker_image", sandbox.docker_image, report)
    base = _read_reference("docker_base", sandbox.docker_base, report)
    if base == "scratch" and sandbox.docker_base:
        _report_image_error(
            report, sandbox.docker_base.at, "docker_base: scratch is empty, and nothing can be installed in it", "name an image of a distribution"
        )
    listed = frozenset(str(entry) for entries in (sandbox.packages, *(shell.packages for shell in sandbox.shells.values())) for entry in entries)
    return Image(
        reference=written or local_image(name),
        origin=origin_of_key(sandbox.at, "docker_image", "built from .wavegen/docker/Dockerfile"),
        # What no registry is asked for: our own names, and those that podman gives to what it has built.
        local=written is None or written.startswith(("wavegen/", "localhost/")),
        base=base or _BASE,
        base_origin=origin_of_key(sandbox.at, "docker_base", "small, and with packages for most attributes"),
        named=tuple(_image_packages(sandbox.docker_packages, listed, file, report)),
        agents=_image_agents(manifest),
    )


def _report_image_error(report: Report, at: Location, what: str, hint: str) -> None:
    report(Problem(at=at, severity=Severity.ERROR, what=what, hint=hint))


def _read_reference(name: str, text: Text | None, report: Report) -> str | None:
    if text is None:
        return None
    try:
        return check_image_reference(text)
    except InvalidValueError as bad:
        _report_image_error(report, text.at, f"{name}: {bad.what}", bad.hint)
        return None


def _image_packages(entries: Mapping[str, Text | tuple[Text, ...]], listed: frozenset[str], file: Location, report: Report) -> Iterator[ImagePackage]:
    for attribute, names in entries.items():
        at = attribute.at if isinstance(attribute, Text) else file
        if not ATTRIBUTE.fullmatch(attribute):
            _report_image_error(report, at, f"docker_packages: '{attribute}' is not a nixpkgs attribute path", "write it as in packages")
        if attribute not in {*listed, *AGENTS.values(), *dict(NEEDED), "nodejs"}:
            what = f"docker_packages: {attribute} is not in packages; the entry has no effect"
            report(Problem(at=at, severity=Severity.WARNING, what=what, hint="list it there, or remove it here"))
        wanted = names if isinstance(names, tuple) else () if names in ("", "false") else (names,)
        for text in wanted:
            if not is_package_name(text):
                hint = "write the name that apt-get, apk or dnf knows, npm:NAME, or false to leave it out"
                _report_image_error(report, text.at, f"docker_packages: '{text}' cannot name a package", hint)
        yield ImagePackage(attribute=str(attribute), names=tuple(map(str, wanted)), origin=Origin("", at))


def _image_agents(manifest: Manifest) -> tuple[tuple[AgentKind, Origin], ...]:
    """The programs that the image is to hold, and who asks for each first."""
    found: dict[AgentKind, Origin] = {}
    for name, adapter in manifest.adapters.items():
        found.setdefault(kind_of(str(adapter.binary or name)), Origin(f"adapter {name}", adapter.at.here))
    for wanted in (persona.adapter for persona in manifest.personas.values() if persona.adapter):
        if wanted not in manifest.adapters:
            found.setdefault(kind_of(wanted), Origin(f"adapter {wanted}", wanted.at))
    found.pop(AgentKind.OTHER, None)
    return tuple(found.items())
