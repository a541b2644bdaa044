"""References to container images and names of their packages: what may be written, and what a project's own image is called. Pure.

The grammar is that of docker and podman (github.com/distribution/reference, regexp.go and normalize.go), of which only digests by sha256 are taken.
"""

from __future__ import annotations

import re
import unicodedata

from wavegen.core.errors import InvalidValueError

_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REFERENCE = re.compile(
    rf"(?P<name>(?:(?P<domain>{_LABEL}(?:\.{_LABEL})*(?::[0-9]{{1,5}})?)/)?{_COMPONENT}(?:/{_COMPONENT})*)"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?(?P<digest>@sha256:[0-9a-f]{64})?"
)
_LONGEST_NAME = 255
_HEX = re.compile("[0-9a-f]{64}")
# A final - would have apt-get remove the package; npm would take other forms for addresses, and fetch what is there.
_PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9+._-]*[A-Za-z0-9+])?(?:[=~][A-Za-z0-9][A-Za-z0-9.+:~-]*)?")
_NPM = re.compile(r"npm:(?:@[a-z0-9][a-z0-9._-]*/)?[a-z0-9][a-z0-9._-]*(?:@[A-Za-z0-9][A-Za-z0-9.+-]*)?")
_LONGEST_SLUG = 100
NPM = "npm:"
"""What stands before the name of a package of npm."""


def check_image_reference(text: str) -> str:
    """The same text, which names an image. Raises InvalidValueError for what docker would refuse, or take for an option or an identifier."""
    match = _REFERENCE.fullmatch(text)
    hint = "write it as debian:stable-slim, registry.example.org/team/image:1.2, or with @sha256: and 64 digits"
    if not match:
        lower = text.lower()
        if lower != text and _REFERENCE.fullmatch(lower):
            hint = f"names are in lower case: {lower}"
        message = f"'{text}' is not the name of an image"
        raise InvalidValueError(message, hint)
    domain = match["domain"] or ""
    # The first part is a registry's only where it looks like one; otherwise it is part of the name, in lower case.
    if domain and domain != "localhost" and not set(domain) & {".", ":"} and domain != domain.lower():
        message = f"'{text}' is not the name of an image"
        raise InvalidValueError(message, f"names are in lower case: {text.lower()}")
    if len(match["name"]) > _LONGEST_NAME or _HEX.fullmatch(match["name"]):
        message = f"'{text}' is not the name of an image"
        raise InvalidValueError(message, "give it a name of at most 255 characters, which is no identifier")
    return str(text)


def is_digest_pinned(text: str) -> bool:
    """Whether a reference says what the image holds, whoever moves its tag."""
    return "@sha256:" in text


def is_package_name(text: str) -> bool:
    """Whether a text names a package of a distribution, or with `npm:` one of npm; a version may be added as apt-get, apk and npm take it."""
    return bool(_PACKAGE.fullmatch(text) or _NPM.fullmatch(text))


def image_slug(name: str) -> str:
    """A project's name as a part of an image's: lower case letters, digits and single hyphens; `project` where nothing of it is left."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub("[^a-z0-9]+", "-", plain)[:_LONGEST_SLUG].strip("-") or "project"


def local_image(name: str) -> str:
    """The image that is built for a project of this name."""
    return f"wavegen/{image_slug(name)}:latest"
