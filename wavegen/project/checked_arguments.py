"""What is asked for in Python: each argument is checked by hand, as nobody else does, and handed on in the wrapper's words.

All raise UsageError for what no program can be given.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from wavegen.core.errors import UsageError
from wavegen.manifest.model import BackendName
from wavegen.policy.model import Policy

_LONGEST_SHOWN = 60


def is_network_filtered(where: Policy) -> bool:
    """Whether connections of the shell are judged."""
    return where.fenced and where.network.mode.is_filtered


def is_number_of_type(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether it is one of these kinds of number; True and False are none, though they are of int."""
    return isinstance(value, kinds) and not isinstance(value, bool)


def short_repr(value: object) -> str:
    """For a message: not megabytes of it."""
    try:
        text = repr(value)
    except ValueError:  # an int of thousands of digits
        text = f"this {type(value).__name__}"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


def is_passable_text(text: object) -> bool:
    """Whether a program can be given it as a word, a name or a path."""
    try:
        return isinstance(text, str) and b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def checked_words(given: Sequence[str], what: str, example: str) -> tuple[str, ...]:
    """As a tuple. Raises UsageError for what a program cannot be given, and for one text, which would be a sequence of letters."""
    try:
        found: tuple[object, ...] | None = None if isinstance(given, (str, bytes)) else tuple(given)
    except TypeError:
        found = None
    texts = tuple(word for word in found or () if isinstance(word, str) and is_passable_text(word))
    if found is None or len(texts) < len(found):
        raise UsageError(f"{what} is no sequence of str that a program can be given", f"write it as {example}, without NUL and lone surrogates")
    return texts


def path_of(given: object, what: str, remedy: str) -> str:
    """A path as text."""
    name = os.fspath(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(name, str) or not name or not is_passable_text(name):
        raise UsageError(f"{what} is no path: {short_repr(given)}", remedy)
    return name


def name_of(given: object, what: str) -> str:
    """A name of a shell or persona."""
    if not isinstance(given, str):
        raise UsageError(f"{short_repr(given)} is no name of a {what}", "name it as a str")
    return given


def adapter_option(given: object) -> tuple[str, ...]:
    """Words for the wrapper. An empty name is no way to say any: it is a variable that was not set."""
    if given is None:
        return ()
    if not isinstance(given, str) or not given or not is_passable_text(given):
        raise UsageError(f"{short_repr(given)} is no adapter", "name one of the persona's, or leave it out")
    return ("--adapter", given)


def container_directory_options(where: Policy, backend: BackendName, artifacts: object, output: object) -> tuple[str, ...]:
    """Words for the wrapper. Only a container has places of its own for them."""
    given = (("--artifacts", artifacts), ("--output", output))
    asked = tuple((option, os.path.abspath(path_of(path, option, "name a directory, or leave it out"))) for option, path in given if path is not None)
    if asked and (backend is not BackendName.DOCKER or not where.fenced):
        raise UsageError(f"{asked[0][0]} is for containers", "choose docker as the back end, and a shell that has a fence")
    return tuple(word for pair in asked for word in pair)


def input_bytes(given: object) -> bytes | None:
    """What is written to standard input, or None for nothing."""
    if given is None:
        return None
    try:
        if isinstance(given, str):
            return given.encode()
    except UnicodeEncodeError:
        raise UsageError("the input has lone surrogates, which are no UTF-8", "give it as bytes") from None
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise UsageError(f"{short_repr(given)} is no input", "give bytes or a str, or None")
    return bytes(given)


def connect_to_options(where: Policy, connect_to: Sequence[str]) -> list[str]:
    """Options for the wrapper: where in place of an allowed name it connects to."""
    places = checked_words(connect_to, "connect_to", '["NAME:PORT:ADDRESS:PORT"]')
    if places and not is_network_filtered(where):
        raise UsageError(f"{where.name} has no filtered network", "leave out connect_to, or name a shell with network: filtered or open")
    return [word for place in places for word in ("--connect-to", place)]


def checked_environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """The variables of this process, and those that are given."""
    if env is not None and not isinstance(env, Mapping):
        raise UsageError(f"{short_repr(env)} are no variables", "give a mapping of names to values, or None")
    for name, value in (env or {}).items():
        if not is_passable_text(name) or not is_passable_text(value) or not name or "=" in name:
            raise UsageError(
                f"{short_repr(name)} and its value are no variable", "give names without =, and values, that are str without NUL and lone surrogates"
            )
    return {**os.environ, **(env or {})}
