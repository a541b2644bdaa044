"""YAML text → nodes with their places: aliases expanded, merge keys resolved, duplicate keys refused.

Works on parse events, not on PyYAML's constructed values: those have already turned `1.10` into 1.1 and `no`
into False, dropped duplicate keys and forgotten the lines.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import yaml

from wavegen.core.errors import Location, ManifestError, Problem, Severity

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


@dataclasses.dataclass(slots=True)
class Scalar:
    """A leaf: its raw text; `plain` where it is not quoted."""

    at: Location
    text: str
    plain: bool

    @property
    def is_null(self) -> bool:
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


class Messages:
    """The problems found so far, and the sources that their excerpts are taken from."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.sources: dict[str, str] = {}

    def add_error(self, at: Location, what: str, hint: str = "") -> None:
        """Note an error and go on, so that all of them are shown together."""
        self.problems.append(Problem(at=at, severity=Severity.ERROR, what=what, hint=hint))

    def add_note(self, at: Location, what: str, hint: str = "") -> None:
        """Note something that is ignored but harmless."""
        self.problems.append(Problem(at=at, severity=Severity.NOTE, what=what, hint=hint))

    def raise_if_errors(self) -> None:
        """Raise ManifestError where any error was noted."""
        if any(p.severity is Severity.ERROR for p in self.problems):
            raise ManifestError(tuple(self.problems), self.sources)


def parse_yaml(source: Source, messages: Messages) -> Map | None:
    """The first document of a source, or None (with the reason noted)."""
    text = _decode_source(source, messages)
    if text is None:
        return None
    messages.sources[source.name] = text
    try:
        root = _Tree(messages, source.name).build_document(text)
    except yaml.MarkedYAMLError as broken:
        _report_syntax_error(source.name, text, broken, messages)
        return None
    except yaml.YAMLError as broken:
        messages.add_error(Location(source.name), f"not YAML: {broken}", "check the file's encoding")
        return None
    if root is None or isinstance(root, Map):
        return root
    if isinstance(root, Scalar) and root.is_null:
        return Map(root.at, {})
    messages.add_error(root.at, f"expected a mapping at the top, got {describe_node(root)}", "start with `metadata:`")
    return None


def _decode_source(source: Source, messages: Messages) -> str | None:
    name, data = source.name, source.data
    if len(data) > SIZE_LIMIT:
        messages.add_error(Location(name), f"more than {SIZE_LIMIT} bytes", "a manifest lists rules; keep data elsewhere")
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as bad:
        before = data[: bad.start].decode("utf-8", "replace")
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        messages.add_error(Location(name, line, column), f"byte 0x{data[bad.start]:02x} is not UTF-8", "save the file as UTF-8")
        return None
    if control := _CONTROL.search(text):
        before = text[: control.start()]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        messages.add_error(Location(name, line, column), f"control character U+{ord(control[0]):04X}", "remove it")
        return None
    return text


def _report_syntax_error(name: str, text: str, broken: yaml.MarkedYAMLError, messages: Messages) -> None:
    conflicts = [i for i, line in enumerate(text.split("\n"), 1) if _CONFLICT.match(line)]
    for line_number in conflicts:
        messages.add_error(Location(name, line_number, 1), "merge conflict marker", "resolve the conflict and remove the markers")
    if conflicts:
        return
    mark = broken.problem_mark or broken.context_mark
    at = Location(name, mark.line + 1, mark.column + 1) if mark else Location(name)
    lines = text.split("\n")
    line = lines[at.line - 1] if 0 < at.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        messages.add_error(Location(name, at.line, line.index("\t") + 1), "tab in the indentation", "YAML is indented with spaces")
        return
    context = f" {broken.context}" if broken.context else ""
    messages.add_error(at, f"not YAML: {broken.problem or 'cannot be parsed'}{context}", "check indentation, quotes and colons here and just above")


def merge_overlay(base: Map, top: Map) -> Map:
    """`top` laid over `base`: mappings merge key by key, anything else is replaced."""
    merged = dict(base.entries)
    for name, (at, node) in top.entries.items():
        below = merged.get(name)
        if below and isinstance(below[1], Map) and isinstance(node, Map):
            merged[name] = (at, merge_overlay(below[1], node))
        else:
            merged[name] = (at, node)
    return Map(base.at, merged)


_SHOWN = 80


def quote_for_message(text: str) -> str:
    return "'" + (text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...") + "'"


def describe_node(node: Node) -> str:
    match node:
        case Scalar():
            return "nothing" if node.is_null else f"{quote_for_message(node.text)}"
        case Sequence():
            return "a list"
        case Map():
            return "a mapping"


class _Tree:
    """Parse events → nodes, with aliases expanded, merge keys resolved and duplicate keys refused."""

    def __init__(self, messages: Messages, name: str) -> None:
        self.messages = messages
        self.name = name
        self.anchors: dict[str, Node | None] = {}
        self.nodes = 0
        self.events: Any = None

    def build_document(self, text: str) -> Node | None:
        """The first document's root; None after an error."""
        self.events = iter(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
        root: Node | None = None
        documents = 0
        for event in self.events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 1:
                    root = self._build_node(next(self.events), 0)
                    if self.broken:
                        return None
                else:
                    self.messages.add_note(self._event_location(event), "only the first document is read", "remove the rest")
                    break
        return root if documents else Map(Location(self.name), {})

    broken = False

    def _event_location(self, event: Any) -> Location:
        mark = event.start_mark
        return Location(self.name, mark.line + 1, mark.column + 1)

    def _stop_with_error(self, at: Location, what: str, hint: str) -> Scalar:
        if not self.broken:
            self.messages.add_error(at, what, hint)
        self.broken = True
        return Scalar(at, "", plain=True)

    def _build_node(self, event: Any, depth: int) -> Node:
        at = self._event_location(event)
        self.nodes += 1
        if self.nodes > NODE_LIMIT:
            return self._stop_with_error(at, f"more than {NODE_LIMIT} values", "split the manifest, or use fewer aliases")
        if depth > DEPTH_LIMIT:
            return self._stop_with_error(at, f"nested deeper than {DEPTH_LIMIT}", "flatten it")
        if isinstance(event, yaml.AliasEvent):
            return self._expand_alias(event, at)
        self._check_tag(event, at)
        if "\0" in getattr(event, "value", ""):  # written as an escape; neither an argument nor Nix can hold it
            return self._stop_with_error(at, "the text holds a NUL character", "remove it")
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
                    node.items.append(self._build_node(item, depth + 1))
            case _:
                node = self._build_map(at, depth)
        if event.anchor:
            self.anchors[event.anchor] = node
        return node

    def _expand_alias(self, event: Any, at: Location) -> Node:
        if event.anchor not in self.anchors:
            return self._stop_with_error(at, f"alias *{event.anchor} has no anchor before it", f"define &{event.anchor} first")
        target = self.anchors[event.anchor]
        if target is None:
            return self._stop_with_error(at, f"alias *{event.anchor} stands inside its own anchor", "a manifest cannot contain itself")
        self.nodes += _count_nodes(target, NODE_LIMIT)
        if self.nodes > NODE_LIMIT:
            return self._stop_with_error(at, f"aliases expand to more than {NODE_LIMIT} values", "use fewer aliases")
        return target

    def _check_tag(self, event: Any, at: Location) -> None:
        tag = event.tag
        if tag and not (tag == "!" or tag.removeprefix(_CORE_TAG) in ("str", "int", "float", "bool", "null", "seq", "map")):
            self._stop_with_error(at, f"tag {tag!r} is not understood", "remove the tag")

    def _build_map(self, at: Location, depth: int) -> Map:
        entries: dict[str, tuple[Location, Node]] = {}
        merged: dict[str, tuple[Location, Node]] = {}
        while not self.broken and not isinstance(event := next(self.events), yaml.MappingEndEvent):
            name = self._build_node(event, depth + 1)
            value = self._build_node(next(self.events), depth + 1)
            if not isinstance(name, Scalar):
                self._stop_with_error(name.at, f"a key must be text, not {describe_node(name)}", "quote it")
            elif name.text == "<<" and name.plain:
                self._apply_merge_key(value, merged)
            elif name.text in entries:
                first = entries[name.text][0]
                self.messages.add_error(name.at, f"duplicate key {quote_for_message(name.text)}", f"first given in line {first.line}; keep one")
            else:
                entries[name.text] = (name.at, value)
        return Map(at, merged | entries)

    def _apply_merge_key(self, value: Node, merged: dict[str, tuple[Location, Node]]) -> None:
        parts = value.items if isinstance(value, Sequence) else [value]
        for part in parts:
            if not isinstance(part, Map):
                self._stop_with_error(part.at, f"<< takes a mapping, got {describe_node(part)}", "merge an anchor of a mapping")
                return
            for name, entry in part.entries.items():
                merged.setdefault(name, entry)


def _count_nodes(node: Node, limit: int) -> int:
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
