"""YAML text → frozen dataclasses: every problem at once, each with its line, column and what was probably meant.

Works on parse events, not on PyYAML's constructed values: those have already turned `1.10` into 1.1 and `no`
into False, dropped duplicate keys and forgotten the lines. Wave's own parser (yaml.v3) keeps the raw text of a
scalar in a text field and refuses duplicate keys, and so do we.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Self, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import yaml

from wavegen.errors import Location, ManifestError, Problem, Severity

T = TypeVar("T")

SIZE_LIMIT = 2 * 1024 * 1024
"""Bytes of one manifest. Wave's own, with 31 personas, has 15 kB."""
NODE_LIMIT = 200_000
"""Nodes after the expansion of aliases: stops a chain of aliases that doubles at each step."""
DEPTH_LIMIT = 64
"""Nesting; far above any manifest, far below what recursion stands."""

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_CONFLICT = re.compile(r"^(<{7}|\|{7}|={7}|>{7})( |$)")
_CORE_TAG = "tag:yaml.org,2002:"
_NULLS = ("", "~", "null", "Null", "NULL")
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


def is_needed(field: dataclasses.Field[Any]) -> bool:
    """Whether a field was declared with `needed`."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@dataclasses.dataclass(slots=True)
class Scalar:
    """A leaf: its raw text; `plain` where it is not quoted."""

    at: Location
    text: str
    plain: bool

    @property
    def null(self) -> bool:
        """Whether YAML reads it as null."""
        return self.plain and self.text in _NULLS


@dataclasses.dataclass(slots=True)
class Sequence:
    """A list."""

    at: Location
    items: list[Node]


@dataclasses.dataclass(slots=True)
class Map:
    """A mapping, in the order it is written."""

    at: Location
    entries: dict[str, tuple[Location, Node]]


Node = Scalar | Sequence | Map


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """An input file: the name that messages use, and its bytes."""

    name: str
    data: bytes


class Decoder:
    """Collects problems while sources are parsed, laid over each other and decoded."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.sources: dict[str, str] = {}

    # --- messages

    def error(self, at: Location, what: str, hint: str = "") -> None:
        """Note an error and go on, so that all of them are shown together."""
        self.problems.append(Problem(at=at, severity=Severity.ERROR, what=what, hint=hint))

    def note(self, at: Location, what: str, hint: str = "") -> None:
        """Note something that is ignored but harmless."""
        self.problems.append(Problem(at=at, severity=Severity.NOTE, what=what, hint=hint))

    def check(self) -> None:
        """Raise ManifestError where any error was noted."""
        if any(p.severity is Severity.ERROR for p in self.problems):
            raise ManifestError(tuple(self.problems), self.sources)

    # --- bytes → nodes

    def parse(self, source: Source) -> Map | None:
        """The first document of a source, or None (with the reason noted)."""
        text = self._text(source)
        if text is None:
            return None
        self.sources[source.name] = text
        try:
            root = _Tree(self, source.name).build(text)
        except yaml.MarkedYAMLError as broken:
            self._syntax(source.name, text, broken)
            return None
        except yaml.YAMLError as broken:
            self.error(Location(source.name), f"not YAML: {broken}", "check the file's encoding")
            return None
        if root is None or isinstance(root, Map):
            return root
        if isinstance(root, Scalar) and root.null:
            return Map(root.at, {})
        self.error(root.at, f"expected a mapping at the top, got {_kind(root)}", "start with `metadata:`")
        return None

    def _text(self, source: Source) -> str | None:
        name, data = source.name, source.data
        if len(data) > SIZE_LIMIT:
            self.error(Location(name), f"more than {SIZE_LIMIT} bytes", "a manifest lists rules; keep data elsewhere")
            return None
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as bad:
            before = data[: bad.start].decode("utf-8", "replace")
            line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
            self.error(Location(name, line, column), f"byte 0x{data[bad.start]:02x} is not UTF-8", "save the file as UTF-8")
            return None
        if control := _CONTROL.search(text):
            before = text[: control.start()]
            line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
            self.error(Location(name, line, column), f"control character U+{ord(control[0]):04X}", "remove it")
            return None
        return text

    def _syntax(self, name: str, text: str, broken: yaml.MarkedYAMLError) -> None:
        conflicts = [i for i, line in enumerate(text.split("\n"), 1) if _CONFLICT.match(line)]
        for line_number in conflicts:
            self.error(Location(name, line_number, 1), "merge conflict marker", "resolve the conflict and remove the markers")
        if conflicts:
            return
        mark = broken.problem_mark or broken.context_mark
        at = Location(name, mark.line + 1, mark.column + 1) if mark else Location(name)
        lines = text.split("\n")
        line = lines[at.line - 1] if 0 < at.line <= len(lines) else ""
        if "\t" in line[: len(line) - len(line.lstrip())]:
            self.error(Location(name, at.line, line.index("\t") + 1), "tab in the indentation", "YAML is indented with spaces")
            return
        context = f" {broken.context}" if broken.context else ""
        self.error(at, f"not YAML: {broken.problem or 'cannot be parsed'}{context}", "check indentation, quotes and colons here and just above")

    # --- nodes over nodes

    def overlay(self, base: Map, top: Map) -> Map:
        """`top` laid over `base`: mappings merge key by key, anything else is replaced."""
        merged = dict(base.entries)
        for name, (at, node) in top.entries.items():
            below = merged.get(name)
            if below and isinstance(below[1], Map) and isinstance(node, Map):
                merged[name] = (at, self.overlay(below[1], node))
            else:
                merged[name] = (at, node)
        return Map(base.at, merged)

    # --- nodes → dataclasses

    def decode(self, cls: type[T], node: Map) -> T | None:
        """An instance of the dataclass `cls`, or None where an error was noted in it."""
        value = self._mapping(cls, node, "")
        return None if value is _BAD else cast("T", value)

    def _value(self, hint: Any, node: Node, path: str) -> Any:
        origin = get_origin(hint)
        if origin in (Union, types.UnionType):
            inner = [a for a in get_args(hint) if a is not type(None)]
            return self._value(inner[0], node, path)
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
            self.error(node.at, f"{path}: {_quoted(node.text)} is not one of {', '.join(words)}", suggestion(node.text, words) or "write one of them")
            return _BAD
        return self._wrong(_expected(hint), node, path)

    def _wrong(self, expected: str, node: Node, path: str) -> Any:
        hint = "remove the quotes" if isinstance(node, Scalar) and not node.plain and expected in ("a number", "true or false") else ""
        self.error(node.at, f"{path}: expected {expected}, got {_kind(node)}", hint or f"write {expected}")
        return _BAD

    def _list(self, hint: Any, node: Node, path: str) -> Any:
        if isinstance(node, Scalar) and node.null:
            return ()
        if not isinstance(node, Sequence):
            self.error(node.at, f"{path}: expected a list, got {_kind(node)}", "write it as [a, b] or one `- item` a line")
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
                self.error(node.at, f"{path or 'the mapping'}: {name} is missing", f"add `{name}:`")
                bad = True
            elif not bad:
                self.error(node.at, f"{prefix}{name} is empty", "give it a value")
                bad = True
        return _BAD if bad else cls(**given)

    def _unknown(self, cls: type[Any], at: Location, path: str, name: str, fields: Mapping[str, Any]) -> None:
        hint = suggestion(name, tuple(fields))
        if getattr(cls, "STRICT", False):
            # Ignoring a misspelt rule would open the fence without a word.
            self.error(at, f"unknown key {_quoted(path)}", hint or f"known here: {', '.join(fields)}")
        else:
            self.note(at, f"unknown key {_quoted(path)} is ignored", hint)


class _Bad:
    """What stands for a value that could not be decoded."""


_BAD: Any = _Bad()


def suggestion(word: str, known: tuple[str, ...] | list[str]) -> str:
    """`did you mean …?`, or nothing where no known word is near."""
    import difflib

    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return f"did you mean {_quoted(near[0])}?" if near else ""


_SHOWN = 80


def _quoted(text: str) -> str:
    return "'" + (text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...") + "'"


def _kind(node: Node) -> str:
    match node:
        case Scalar():
            return "nothing" if node.null else f"{_quoted(node.text)}"
        case Sequence():
            return "a list"
        case Map():
            return "a mapping"


def _expected(hint: Any) -> str:
    return {Text: "text", bool: "true or false", int: "a number", float: "a number"}.get(hint, "one word")


_HINTS: dict[type[Any], dict[str, Any]] = {}


def _hints(cls: type[Any]) -> dict[str, Any]:
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls)
    return _HINTS[cls]


class _Tree:
    """Parse events → nodes, with aliases expanded, merge keys resolved and duplicate keys refused."""

    def __init__(self, decoder: Decoder, name: str) -> None:
        self.decoder = decoder
        self.name = name
        self.anchors: dict[str, Node | None] = {}
        self.nodes = 0
        self.events: Any = None

    def build(self, text: str) -> Node | None:
        """The first document's root; None after an error."""
        self.events = iter(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        root: Node | None = None
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 1:
                    root = self._node(next(self.events), 0)
                    if self.broken:
                        return None
                else:
                    self.decoder.note(self._at(event), "only the first document is read", "remove the rest")
                    break
        return root if documents else Map(Location(self.name), {})

    broken = False

    def _at(self, event: Any) -> Location:
        mark = event.start_mark
        return Location(self.name, mark.line + 1, mark.column + 1)

    def _stop(self, at: Location, what: str, hint: str) -> Scalar:
        if not self.broken:
            self.decoder.error(at, what, hint)
        self.broken = True
        return Scalar(at, "", plain=True)

    def _node(self, event: Any, depth: int) -> Node:
        at = self._at(event)
        self.nodes += 1
        if self.nodes > NODE_LIMIT:
            return self._stop(at, f"more than {NODE_LIMIT} values", "split the manifest, or use fewer aliases")
        if depth > DEPTH_LIMIT:
            return self._stop(at, f"nested deeper than {DEPTH_LIMIT}", "flatten it")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, at)
        self._tag(event, at)
        if "\0" in getattr(event, "value", ""):  # written as an escape; neither an argument nor Nix can hold it
            return self._stop(at, "the text holds a NUL character", "remove it")
        if event.anchor:
            self.anchors[event.anchor] = None
        node: Node
        match event:
            case yaml.ScalarEvent():
                plain = not event.style and event.tag != _CORE_TAG + "str"
                node = Scalar(at, event.value, plain=plain)
            case yaml.SequenceStartEvent():
                node = Sequence(at, [])
                while not self.broken and not isinstance(item := next(self.events), yaml.SequenceEndEvent):
                    node.items.append(self._node(item, depth + 1))
            case _:
                node = self._map(at, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _alias(self, event: Any, at: Location) -> Node:
        if event.anchor not in self.anchors:
            return self._stop(at, f"alias *{event.anchor} has no anchor before it", f"define &{event.anchor} first")
        target = self.anchors[event.anchor]
        if target is None:
            return self._stop(at, f"alias *{event.anchor} stands inside its own anchor", "a manifest cannot contain itself")
        self.nodes += _count(target, NODE_LIMIT)
        if self.nodes > NODE_LIMIT:
            return self._stop(at, f"aliases expand to more than {NODE_LIMIT} values", "use fewer aliases")
        return target

    def _tag(self, event: Any, at: Location) -> None:
        tag = event.tag
        if tag and not (tag == "!" or tag.removeprefix(_CORE_TAG) in ("str", "int", "float", "bool", "null", "seq", "map")):
            self._stop(at, f"tag {tag!r} is not understood", "remove the tag")

    def _map(self, at: Location, depth: int) -> Map:
        entries: dict[str, tuple[Location, Node]] = {}
        merged: dict[str, tuple[Location, Node]] = {}
        while not self.broken and not isinstance(event := next(self.events), yaml.MappingEndEvent):
            name = self._node(event, depth + 1)
            value = self._node(next(self.events), depth + 1)
            if not isinstance(name, Scalar):
                self._stop(name.at, f"a key must be text, not {_kind(name)}", "quote it")
            elif name.text == "<<" and name.plain:
                self._merge(value, merged)
            elif name.text in entries:
                first = entries[name.text][0]
                self.decoder.error(name.at, f"duplicate key {_quoted(name.text)}", f"first given in line {first.line}; keep one")
            else:
                entries[name.text] = (name.at, value)
        return Map(at, merged | entries)

    def _merge(self, value: Node, merged: dict[str, tuple[Location, Node]]) -> None:
        parts = value.items if isinstance(value, Sequence) else [value]
        for part in parts:
            if not isinstance(part, Map):
                self._stop(part.at, f"<< takes a mapping, got {_kind(part)}", "merge an anchor of a mapping")
                return
            for name, entry in part.entries.items():
                merged.setdefault(name, entry)


def _count(node: Node, limit: int) -> int:
    total, todo = 0, [node]
    while todo and total <= limit:
        match todo.pop():
            case Sequence(items=items):
                total += 1 + len(items)
                todo.extend(items)
            case Map(entries=entries):
                total += 1 + len(entries)
                todo.extend(child for _, child in entries.values())
            case Scalar():
                pass
    return total + 1
