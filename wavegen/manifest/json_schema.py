"""JSON Schema of wave.yaml from the dataclasses of `manifest`, so that editors and the decoder agree."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from wavegen.manifest.decoder import Text, is_required_key, union_members
from wavegen.manifest.model import Manifest

# The decoder takes the raw text of any scalar for a text field, as Wave's parser does.
_TEXT = {"type": ["string", "number", "boolean", "null"]}
_WORDS = {"type": ["boolean", "null"]}


def manifest_schema() -> dict[str, Any]:
    """The schema of a manifest: draft 2020-12, one definition per mapping."""
    definitions: dict[str, Any] = {}
    _mapping_schema(Manifest, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "wave.yaml as wavegen reads it",
        "$ref": "#/$defs/Manifest",
        "$defs": dict(sorted(definitions.items())),
    }


def _mapping_schema(cls: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        hints = get_type_hints(cls)
        fields = [f for f in dataclasses.fields(cls) if f.name != "at"]
        properties = {f.name: _field_schema(hints[f.name], f, definitions) for f in fields}
        required = [f.name for f in fields if is_required_key(f)]
        definitions[cls.__name__] = {
            "type": ["object", "null"] if not required else "object",
            "properties": properties,
            "additionalProperties": not getattr(cls, "STRICT", False),
        } | ({"required": required} if required else {})
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _field_schema(hint: Any, field: dataclasses.Field[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    schema = _type_schema(hint, definitions)
    if is_required_key(field):
        schema = _not_null(schema)
    if field.metadata["pattern"]:
        schema = {**schema, "pattern": field.metadata["pattern"]}
    return {"description": field.metadata["doc"], **schema}


def _type_schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        some = [_type_schema(a, definitions) for a in union_members(hint)]
        return some[0] if len(some) == 1 else {"anyOf": some}
    if origin is tuple:
        items = _type_schema(arguments[0], definitions)
        return {"type": ["array", "null"], "items": items if arguments[0] is Text else _not_null(items)}
    if origin in (dict, Mapping):
        return {"type": ["object", "null"], "additionalProperties": _type_schema(arguments[1], definitions)}
    if dataclasses.is_dataclass(hint):
        return _mapping_schema(hint, definitions)  # type: ignore[arg-type]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [*(m.value for m in hint), None]}
    simple: dict[Any, dict[str, Any]] = {
        Text: dict(_TEXT),
        bool: dict(_WORDS),
        int: {"type": ["integer", "null"]},
        float: {"type": ["number", "null"]},
        object: {},
    }
    return simple[hint]


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The same without null: the decoder has no default for what must be written, nor for an item of a list."""
    if "$ref" in schema:
        return {**schema, "type": "object"}
    return {
        name: [v for v in value if v not in (None, "null")] if name in ("type", "enum") and isinstance(value, list) else value for name, value in schema.items()
    }
