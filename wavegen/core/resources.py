"""The files that ship with the package: templates and static Nix. The same bytes from a checkout and from a wheel."""

from __future__ import annotations

import marshal
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import MAGIC_NUMBER, cache_from_source, source_hash
from os import listdir, path, walk

_PACKAGE = path.dirname(path.dirname(path.abspath(__file__)))
# In a wheel they are package data; in a checkout they stand beside the package.
_ROOTS = (path.join(_PACKAGE, "data"), path.dirname(_PACKAGE))

_UNCHECKED_HASH = 1


def package_directory() -> str:
    """The directory of the package itself."""
    return _PACKAGE


def resource_directory(name: str) -> str:
    """The path of the `templates` or `nix` directory."""
    return next(found for root in _ROOTS if path.isdir(found := path.join(root, name)))


@cache
def read_resource(name: str) -> str:
    """The text of `nix/…` or `templates/…`."""
    folder, _, file = name.partition("/")
    return _read_text(path.join(resource_directory(folder), file))


@cache
def probe_sources() -> tuple[tuple[str, str], ...]:
    """Name and text of each file that verify runs inside a shell, sorted."""
    folder = path.join(_PACKAGE, "verify/inside")
    names = sorted(name for name in listdir(folder) if path.isfile(path.join(folder, name)) and name != "__init__.py")
    return tuple((name, _read_text(path.join(folder, name))) for name in names)


@cache
def compiled_probes() -> tuple[tuple[str, bytes], ...]:
    """The same, compiled for Pythons of the version that runs wavegen (PEP 552, by hash and unchecked): path and bytes. Others compile the text."""
    folder = path.join(_PACKAGE, "verify/inside")
    found = []
    for name, written in probe_sources():
        file = path.join(folder, name)
        # Python keeps what it compiled beside the package's modules where it may write there.
        code = SourceFileLoader(name.removesuffix(".py"), file).get_code(name.removesuffix(".py"))
        header = MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little") + source_hash(written.encode())
        found.append((path.relpath(cache_from_source(file), folder), header + marshal.dumps(code)))
    return tuple(found)


@cache
def launcher_sources() -> tuple[tuple[str, str], ...]:
    """Path below `launcher/` and text of each file of the launcher, sorted."""
    top = path.join(_PACKAGE, "launcher")
    found = [path.join(where, name) for where, _, names in walk(top) for name in names]
    kept = sorted(file[len(top) + 1 :] for file in found if "__pycache__" not in file)
    return tuple((name, _read_text(path.join(top, name))) for name in kept)


def _read_text(file: str) -> str:
    with open(file, encoding="utf-8", newline="") as stream:
        return stream.read()
