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
from wavegen.manifest.yaml_nodes import Map, Messages, Node, Scalar, Sequence, describe_node, quote_for_message

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

    def location_of(self, key: str) -> Location:
        """The place of the value under `key`, or of the mapping where the key is not written."""
        return self.values.get(key, self.here)

    def __contains__(self, key: str) -> bool:
        return key in self.values


NOWHERE = Marks(Location(""), {})


def manifest_key(doc: str, default: Any = None, *, pattern: str = "") -> Any:
    """A dataclass field that is a key of a mapping: its documentation and its value where it is not written."""
    metadata = {"doc": doc, "pattern": pattern}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def required_key(doc: str) -> Any:
    """Like `key`, for a key without which the mapping means nothing."""
    return dataclasses.field(metadata={"doc": doc, "pattern": ""})


def union_members(hint: Any) -> tuple[Any, ...]:
    """The types of a union but None: one, or the scalar and the dataclass that may stand in its place."""
    return tuple(a for a in get_args(hint) if a is not type(None))


def is_required_key(field: dataclasses.Field[Any]) -> bool:
    """Whether a field was declared with `needed`."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


class Decoder:
    """Decodes nodes and notes in `messages` what is wrong with them."""

    def __init__(self, messages: Messages) -> None:
        self.messages = messages

    def decode_dataclass(self, cls: type[T], node: Map) -> T | None:
        """An instance of the dataclass `cls`, or None where an error was noted in it."""
        value = self._decode_mapping(cls, node, "")
        return None if value is _BAD else cast("T", value)

    def _decode_value(self, hint: Any, node: Node, path: str) -> Any:
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            return self._decode_union(union_members(hint), node, path)
        if hint is object:
            return node
        if origin is tuple:
            return self._decode_list(get_args(hint)[0], node, path)
        if origin in (dict, Mapping):
            return self._decode_table(get_args(hint)[1], node, path)
        if dataclasses.is_dataclass(hint):
            return self._decode_mapping(cast("type[Any]", hint), node, path) if isinstance(node, Map) else self._report_wrong_type("a mapping", node, path)
        if not isinstance(node, Scalar):
            return self._report_wrong_type(_describe_scalar_type(hint), node, path)
        return self._decode_scalar(hint, node, path)

    def _decode_union(self, hints: tuple[Any, ...], node: Node, path: str) -> Any:
        """Of several types the one that has the node's shape."""
        if len(hints) == 1:
            return self._decode_value(hints[0], node, path)
        fitting = [hint for hint in hints if isinstance(node, _node_class_for(hint))]
        if not fitting:
            return self._report_wrong_type(" or ".join(_NAMED_SHAPES.get(_node_class_for(hint)) or _describe_scalar_type(hint) for hint in hints), node, path)
        return self._decode_value(fitting[0], node, path)

    def _decode_scalar(self, hint: Any, node: Scalar, path: str) -> Any:
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
            self.messages.add_error(
                node.at, f"{path}: {quote_for_message(node.text)} is not one of {', '.join(words)}", suggest_spelling(node.text, words) or "write one of them"
            )
            return _BAD
        return self._report_wrong_type(_describe_scalar_type(hint), node, path)

    def _report_wrong_type(self, expected: str, node: Node, path: str) -> Any:
        hint = "remove the quotes" if isinstance(node, Scalar) and not node.plain and expected in ("a number", "true or false") else ""
        self.messages.add_error(node.at, f"{path}: expected {expected}, got {describe_node(node)}", hint or f"write {expected}")
        return _BAD

    def _decode_list(self, hint: Any, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.is_null:
            return ()
        if not isinstance(node, Sequence):
            self.messages.add_error(node.at, f"{path}: expected a list, got {describe_node(node)}", "write it as [a, b] or one `- item` a line")
            return _BAD
        values = [self._decode_value(hint, item, f"{path}[{i}]") for i, item in enumerate(node.items)]
        return _BAD if _BAD in values else tuple(values)

    def _decode_table(self, hint: Any, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.is_null:
            return {}
        if not isinstance(node, Map):
            return self._report_wrong_type("a mapping", node, path)
        values = {}
        for name, (at, child) in node.entries.items():
            place = f"{path}.{name}" if path else name
            value = self._decode_empty_entry(hint, child, place) if isinstance(child, Scalar) and child.is_null else self._decode_value(hint, child, place)
            if value is not _BAD:
                values[Text(name, at)] = value
        return values

    def _decode_empty_entry(self, hint: Any, node: Scalar, path: str) -> Any:
        return self._decode_mapping(cast("type[Any]", hint), Map(node.at, {}), path) if dataclasses.is_dataclass(hint) else Text("", node.at)

    def _decode_mapping(self, cls: type[Any], node: Map, path: str) -> Any:
        prefix = f"{path}." if path else ""
        fields = {f.name: f for f in dataclasses.fields(cls) if f.name != "at"}
        hints = _field_types(cls)
        given: dict[str, Any] = {"at": Marks(node.at, {k: child.at for k, (_, child) in node.entries.items()})}
        bad = False
        for name, (at, child) in node.entries.items():
            if name not in fields:
                self._report_unknown_key(cls, at, prefix + name, name, fields)
                continue
            if isinstance(child, Scalar) and child.is_null:
                continue
            value = self._decode_value(hints[name], child, prefix + name)
            if value is _BAD:
                bad = True
            else:
                given[name] = value
        for name, field in fields.items():
            if not is_required_key(field) or name in given:
                continue
            if name not in node.entries:
                self.messages.add_error(node.at, f"{path or 'the mapping'}: {name} is missing", f"add `{name}:`")
                bad = True
            elif not bad:
                self.messages.add_error(node.at, f"{prefix}{name} is empty", "give it a value")
                bad = True
        return _BAD if bad else cls(**given)

    def _report_unknown_key(self, cls: type[Any], at: Location, path: str, name: str, fields: Mapping[str, Any]) -> None:
        hint = suggest_spelling(name, tuple(fields))
        if getattr(cls, "STRICT", False):
            # Ignoring a misspelt rule would open the fence without a word.
            self.messages.add_error(at, f"unknown key {quote_for_message(path)}", hint or f"known here: {', '.join(fields)}")
        else:
            self.messages.add_note(at, f"unknown key {quote_for_message(path)} is ignored", hint)


class _Bad:
    """What stands for a value that could not be decoded."""


_BAD: Any = _Bad()


def suggest_spelling(word: str, known: tuple[str, ...] | list[str]) -> str:
    """`did you mean …?`, or nothing where no known word is near."""
    import difflib

    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {quote_for_message(near[0])}?" if near else ""


def _node_class_for(hint: Any) -> type[Node]:
    """The class of the nodes that a type is read from."""
    return Map if dataclasses.is_dataclass(hint) else Sequence if get_origin(hint) is tuple else Scalar


_NAMED_SHAPES = {Map: "a mapping", Sequence: "a list"}


def _describe_scalar_type(hint: Any) -> str:
    return {Text: "text", bool: "true or false", int: "a number", float: "a number"}.get(hint, "one word")


_HINTS: dict[type[Any], dict[str, Any]] = {}


def _field_types(cls: type[Any]) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls)
    return _HINTS[cls]
