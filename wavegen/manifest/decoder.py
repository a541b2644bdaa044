"""Nodes → frozen dataclasses: every problem at once, each with its line, column and what was probably meant.

Wave's own parser (yaml.v3) keeps the raw text of a scalar in a text field, and so do we.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from wavegen.core.errors import Location
from wavegen.manifest.yaml_nodes import Map, Messages, Node, Scalar, Sequence, kind, quoted

T = TypeVar("T")

# yaml.v3 takes the YAML 1.1 words for a field that is a bool, and only there.
_BOOLS = {w: b for b, ws in ((True, "true yes on y"), (False, "false no off n")) for base in ws.split() for w in (base, base.capitalize(), base.upper())}
_INT = re.compile(r"[-+]?(0x[0-9a-fA-F]{1,15}|0o[0-7]{1,20}|[0-9]{1,18})")
_FLOAT = re.compile(r"[-+]?([0-9]{1,18}(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,2})?")


class Text(str):
    """A string of the manifest that knows where it stands."""

    __slots__ = ("at",)
    at: Location

    def __new__(cls, value: str, at: Location) -> Self:
        """The text `value`, read at `at`."""
        self = super().__new__(cls, value)
        self.at = at
        return self


@dataclasses.dataclass(frozen=True, slots=True)
class Marks:
    """Where a mapping and each of its keys' values stand."""

    here: Location
    values: Mapping[str, Location]

    def of(self, key: str) -> Location:
        """The place of the value under `key`, or of the mapping where the key is not written."""
        return self.values.get(key, self.here)

    def __contains__(self, key: str) -> bool:
        return key in self.values


NOWHERE = Marks(Location(""), {})


def key(doc: str, default: Any = None, *, pattern: str = "") -> Any:
    """A dataclass field that is a key of a mapping: its documentation and its value where it is not written."""
    metadata = {"doc": doc, "pattern": pattern}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def needed(doc: str) -> Any:
    """Like `key`, for a key without which the mapping means nothing."""
    return dataclasses.field(metadata={"doc": doc, "pattern": ""})


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types of a union but None: one, or the scalar and the dataclass that may stand in its place."""
    return tuple(a for a in get_args(hint) if a is not type(None))


def is_needed(field: dataclasses.Field[Any]) -> bool:
    """Whether a field was declared with `needed`."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


class Decoder:
    """Decodes nodes and notes in `messages` what is wrong with them."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages

    def decode(self, cls: type[T], node: Map) -> T | None:
        """An instance of the dataclass `cls`, or None where an error was noted in it."""
        value = self._mapping(cls, node, "")
        return None if value is _BAD else cast("T", value)

    def _value(self, hint: Any, node: Node, path: str) -> Any:
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            return self._either(alternatives(hint), node, path)
        if hint is object:
            return node
        if origin is tuple:
            return self._list(get_args(hint)[0], node, path)
        if origin in (dict, Mapping):
            return self._table(get_args(hint)[1], node, path)
        if dataclasses.is_dataclass(hint):
            return self._mapping(cast("type[Any]", hint), node, path) if isinstance(node, Map) else self._wrong("a mapping", node, path)
        if not isinstance(node, Scalar):
            return self._wrong(_expected(hint), node, path)
        return self._scalar(hint, node, path)

    def _either(self, hints: tuple[Any, ...], node: Node, path: str) -> Any:
        """Of several types the one that has the node's shape."""
        if len(hints) == 1:
            return self._value(hints[0], node, path)
        fitting = [hint for hint in hints if isinstance(node, _shape(hint))]
        if not fitting:
            return self._wrong(" or ".join(_NAMED_SHAPES.get(_shape(hint)) or _expected(hint) for hint in hints), node, path)
        return self._value(fitting[0], node, path)

    def _scalar(self, hint: Any, node: Scalar, path: str) -> Any:
        if hint is Text:
            return Text(node.text, node.at)
        if hint is bool and node.plain and node.text in _BOOLS:
            return _BOOLS[node.text]
        if hint is int and node.plain and _INT.fullmatch(node.text):
            return int(node.text, 0 if node.text.lstrip("+-").startswith(("0x", "0o")) else 10)
        if hint is float and node.plain and _FLOAT.fullmatch(node.text):
            return float(node.text)
        if isinstance(hint, type) and issubclass(hint, Enum):
            words = [str(m.value) for m in hint]
            if node.text in words:
                return hint(node.text)
            self.messages.error(node.at, f"{path}: {quoted(node.text)} is not one of {', '.join(words)}", suggestion(node.text, words) or "write one of them")
            return _BAD
        return self._wrong(_expected(hint), node, path)

    def _wrong(self, expected: str, node: Node, path: str) -> Any:
        hint = "remove the quotes" if isinstance(node, Scalar) and not node.plain and expected in ("a number", "true or false") else ""
        self.messages.error(node.at, f"{path}: expected {expected}, got {kind(node)}", hint or f"write {expected}")
        return _BAD

    def _list(self, hint: Any, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.null:
            return ()
        if not isinstance(node, Sequence):
            self.messages.error(node.at, f"{path}: expected a list, got {kind(node)}", "write it as [a, b] or one `- item` a line")
            return _BAD
        values = [self._value(hint, item, f"{path}[{i}]") for i, item in enumerate(node.items)]
        return _BAD if _BAD in values else tuple(values)

    def _table(self, hint: Any, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.null:
            return {}
        if not isinstance(node, Map):
            return self._wrong("a mapping", node, path)
        values = {}
        for name, (at, child) in node.entries.items():
            place = f"{path}.{name}" if path else name
            value = self._empty(hint, child, place) if isinstance(child, Scalar) and child.null else self._value(hint, child, place)
            if value is not _BAD:
                values[Text(name, at)] = value
        return values

    def _empty(self, hint: Any, node: Scalar, path: str) -> Any:
        return self._mapping(cast("type[Any]", hint), Map(node.at, {}), path) if dataclasses.is_dataclass(hint) else Text("", node.at)

    def _mapping(self, cls: type[Any], node: Map, path: str) -> Any:
        prefix = f"{path}." if path else ""
        fields = {f.name: f for f in dataclasses.fields(cls) if f.name != "at"}
        hints = _hints(cls)
        given: dict[str, Any] = {"at": Marks(node.at, {k: child.at for k, (_, child) in node.entries.items()})}
        bad = False
        for name, (at, child) in node.entries.items():
            if name not in fields:
                self._unknown(cls, at, prefix + name, name, fields)
                continue
            if isinstance(child, Scalar) and child.null:
                continue
            value = self._value(hints[name], child, prefix + name)
            if value is _BAD:
                bad = True
            else:
                given[name] = value
        for name, field in fields.items():
            if not is_needed(field) or name in given:
                continue
            if name not in node.entries:
                self.messages.error(node.at, f"{path or 'the mapping'}: {name} is missing", f"add `{name}:`")
                bad = True
            elif not bad:
                self.messages.error(node.at, f"{prefix}{name} is empty", "give it a value")
                bad = True
        return _BAD if bad else cls(**given)

    def _unknown(self, cls: type[Any], at: Location, path: str, name: str, fields: Mapping[str, Any]) -> None:
        hint = suggestion(name, tuple(fields))
        if getattr(cls, "STRICT", False):
            # Ignoring a misspelt rule would open the fence without a word.
            self.messages.error(at, f"unknown key {quoted(path)}", hint or f"known here: {', '.join(fields)}")
        else:
            self.messages.note(at, f"unknown key {quoted(path)} is ignored", hint)


class _Bad:
    """What stands for a value that could not be decoded."""


_BAD: Any = _Bad()


def suggestion(word: str, known: tuple[str, ...] | list[str]) -> str:
    """`did you mean …?`, or nothing where no known word is near."""
    import difflib

    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {quoted(near[0])}?" if near else ""


def _shape(hint: Any) -> type[Node]:
    """The class of the nodes that a type is read from."""
    return Map if dataclasses.is_dataclass(hint) else Sequence if get_origin(hint) is tuple else Scalar


_NAMED_SHAPES = {Map: "a mapping", Sequence: "a list"}


def _expected(hint: Any) -> str:
    return {Text: "text", bool: "true or false", int: "a number", float: "a number"}.get(hint, "one word")


_HINTS: dict[type[Any], dict[str, Any]] = {}


def _hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls)
    return _HINTS[cls]
