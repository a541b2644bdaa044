"""One quoting function per target language. Nothing else in the package builds quoted text by hand."""

from __future__ import annotations

import json
import re
from functools import lru_cache

_SH_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_SH_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "'": "\\'"}
_CONTROL = {chr(code): f"\\{code:03o}" for code in (*range(1, 32), 127)}
_HTML_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_TOML_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_TOML_CONTROL = {chr(code): f"\\u{code:04x}" for code in (*range(32), *range(127, 160), 0x2028, 0x2029)}
_NIX_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "$": "\\$"}


@lru_cache(maxsize=4096)  # hundreds of scripts hold the same words
def quote_bash(text: str) -> str:
    """One bash word that expands to exactly `text`, on one line.

    Plain where nothing needs quoting, 'single quotes' where they suffice, $'…' for control characters.
    Raises ValueError for NUL, which no argument vector can hold.
    """
    _refuse_nul(text)
    if _SH_PLAIN.fullmatch(text):
        return text
    if all(c.isprintable() for c in text):
        return "'" + text.replace("'", "'\"'\"'") + "'"
    # Octal with three digits: unlike \xHH it cannot swallow the character that follows.
    return "$'" + "".join(_SH_ESCAPES.get(c) or _CONTROL.get(c) or c for c in text) + "'"


def quote_posix(text: str) -> str:
    """One word of any POSIX shell that expands to exactly `text`: as `sh` gives it where that is plain, and on as many lines as it has otherwise.

    Raises ValueError for NUL.
    """
    _refuse_nul(text)
    return text if _SH_PLAIN.fullmatch(text) else "'" + text.replace("'", "'\"'\"'") + "'"


def quote_nix(text: str) -> str:
    """A double-quoted Nix string that evaluates to exactly `text`.

    Every `$` is escaped, so no `${` can arise; control characters other than tab, LF and CR stand raw, as Nix
    has no escape for them (its manual, "String literal"). Raises ValueError for NUL, which Nix strings cannot hold.
    """
    _refuse_nul(text)
    return '"' + "".join(_NIX_ESCAPES.get(c, c) for c in text) + '"'


def quote_toml(text: str) -> str:
    """A TOML basic string of exactly `text`, on one line: all that may not stand raw in one, and every line separator, is escaped."""
    return '"' + "".join(_TOML_ESCAPES.get(c) or _TOML_CONTROL.get(c) or c for c in text) + '"'


def quote_compose(text: str) -> str:
    """A double-quoted YAML scalar, on one line, that compose reads as exactly `text`: every `$` is doubled, so that no variable is looked for.

    Raises ValueError for NUL, which no argument vector can hold.
    """
    return quote_compose_pattern(text.replace("$", "$$"))


def quote_compose_pattern(text: str) -> str:
    """The same for text in which `${NAME}` is a variable: of ours, never of a manifest's."""
    _refuse_nul(text)
    return '"' + "".join(_TOML_ESCAPES.get(c) or (c if c.isprintable() else _yaml_escape(c)) for c in text) + '"'


def _yaml_escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"  # noqa: PLR2004


def quote_printf_b(text: str) -> str:
    """One word of any POSIX shell, on one line, of which `printf %b` makes exactly `text`. Raises ValueError for NUL."""
    _refuse_nul(text)
    plain = text.replace("\\", "\\\\")
    return quote_posix("".join(c if c.isprintable() else "".join(f"\\0{byte:03o}" for byte in c.encode()) for c in plain))


def json_text(value: object) -> str:
    """JSON with a final newline in which every innermost object of a few keys, and every innermost list that is short, stands on one line.

    Rules are such objects, so a change of one rule is a change of one line; a long table, or list, has one entry a line. Keys keep the order they were
    given in; non-ASCII text stays readable.
    """
    return _format_json(value, "") + "\n"


def escape_comment(text: str) -> str:
    """Text for the rest of a `#` comment line: control characters and line separators spelled out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escape_html(text: str) -> str:
    """Text for an element or a quoted attribute of a page: control characters, NUL among them, spelled out."""
    return "".join(_HTML_ESCAPES.get(c, c) for c in escape_comment(text))


def _refuse_nul(text: str) -> None:
    if "\0" in text:
        message = "a NUL character cannot be quoted"
        raise ValueError(message)


_FEW = 5
_LONG = 100
"""Columns of a list that can still be read, and whose change can be seen."""


def _format_json(value: object, indent: str) -> str:
    inner = indent + "  "
    match value:
        case dict() if len(value) > _FEW or any(isinstance(v, (dict, list, tuple)) and v for v in value.values()):
            rows = [f"{inner}{_atom(str(k))}: {_format_json(v, inner)}" for k, v in value.items()]
            return "{\n" + ",\n".join(rows) + "\n" + indent + "}"
        case list() | tuple() if any(isinstance(v, (dict, list, tuple)) for v in value) or len(_atom(value)) > _LONG:
            return "[\n" + ",\n".join(inner + _format_json(v, inner) for v in value) + "\n" + indent + "]"
        case _:
            return _atom(value)


_atom = json.JSONEncoder(ensure_ascii=False).encode
