"""The files that ship with the package: templates and static Nix. The same bytes from a checkout and from a wheel."""

from __future__ import annotations

from functools import cache
from os import listdir, path

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
    return _read(path.join(directory(folder), file))


@cache
def runtime() -> tuple[tuple[str, str], ...]:
    """Name and text of each file that is copied into the output, sorted."""
    folder = path.join(_PACKAGE, "runtime")
    names = sorted(name for name in listdir(folder) if path.isfile(path.join(folder, name)) and name != "__init__.py")
    return tuple((name, _read(path.join(folder, name))) for name in names)


def _read(file: str) -> str:
    with open(file, encoding="utf-8", newline="") as stream:
        return stream.read()
