"""The files that ship with the package: templates and static Nix. The same bytes from a checkout and from a wheel."""

from __future__ import annotations

from functools import cache
from os import path

_PACKAGE = path.dirname(path.abspath(__file__))
# In a wheel they are package data; in a checkout they stand beside the package.
_ROOTS = (path.join(_PACKAGE, "data"), path.dirname(_PACKAGE))


def directory(name: str) -> str:
    """The path of the `templates` or `nix` directory."""
    return next(found for root in _ROOTS if path.isdir(found := path.join(root, name)))


@cache
def text(name: str) -> str:
    """The text of `nix/…` or `templates/…`."""
    folder, _, file = name.partition("/")
    with open(path.join(directory(folder), file), encoding="utf-8", newline="") as stream:
        return stream.read()
