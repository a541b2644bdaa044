"""A remedy that names a key names one that the manifest has, with a value that the key takes: in every message, whatever language it is written in."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from helpers import ROOT

from wavegen.explain.known_errors import TROUBLES
from wavegen.manifest.json_schema import manifest_schema

Names = Mapping[str, list[str]]
# What stands before a colon in a sentence and is no key.
PROSE = frozenset({
    "accessible", "address", "again", "alone", "another", "away", "bubblewrap", "case", "changed", "compose", "digest", "fence", "in", "instead", "it",
    "machine", "made", "manifest", "matters", "names", "needed", "none", "one", "patterns", "places", "port", "repository", "runs", "scope", "shows", "so",
    "start", "them", "try", "usage", "user", "variables", "version", "written"
})  # fmt: skip
# Words with an underscore that are the system's, or a parameter of the library's.
OTHERS = frozenset({"cgroup_enable", "connect_to", "container_file_t"})
KEY = re.compile(r"(?<![\w./$-])([a-z][a-z_]+): (?=([\w-]+)|[\[{*\"~\u2026/.'])")
SNAKE = re.compile(r"(?<![\w./$:{-])([a-z]+(?:_[a-z]+)+)(?![\w./(-])")


def keys() -> dict[str, set[str] | None]:
    """Every key of the manifest, with the words that it takes, or None where it takes any."""
    schema = manifest_schema()
    found: dict[str, set[str] | None] = {}

    def words(value: Any) -> set[str] | None:
        if "$ref" in value:
            value = schema["$defs" if "$defs" in schema else "definitions"][value["$ref"].rpartition("/")[2]]  # type: ignore[index]
        if value.get("type") in ("boolean", ["boolean", "null"]):
            return {"true", "false"}
        return {str(word) for word in value["enum"] if word is not None} if "enum" in value else None

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            properties = node.get("properties")
            for name, value in properties.items() if isinstance(properties, dict) else ():
                allowed = words(value)
                had = found.get(name, set())
                found[name] = (had | allowed) if isinstance(had, set) and allowed else None
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(schema)
    return found


def texts(node: ast.expr, names: Names) -> Iterator[str]:
    """What an expression says, with a sign in place of what is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.JoinedStr(values=values):
            yield "".join(str(value.value) if isinstance(value, ast.Constant) else "\u2026" for value in values)
        case ast.IfExp(body=one, orelse=other) | ast.BinOp(left=one, right=other):
            yield from texts(one, names)
            yield from texts(other, names)
        case ast.Name(id=name):
            yield from names.get(name, ())
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            for part in parts:
                yield from texts(part, names)


def _after_effect(parts: list[ast.expr]) -> list[ast.expr]:
    """Of a gap: its effect, what it is, and the remedy."""
    at = next((place for place, part in enumerate(parts) if isinstance(part, ast.Attribute) and ast.unparse(part.value) == "Effect"), len(parts))
    return parts[at + 2 : at + 3]


def of_python(text: str) -> list[str]:
    """The remedies that a module speaks of: of errors, problems and gaps, and what explain proposes."""
    tree, names, found = ast.parse(text), defaultdict[str, list[str]](list), list[ast.expr]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                names[ast.unparse(target)] += texts(node.value, {})
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=function, args=arguments, keywords=keywords):
                name = ast.unparse(function).rpartition(".")[2]
                found += [keyword.value for keyword in keywords if keyword.arg in ("remedy", "hint", "change", "commands")]
                found += (
                    arguments[1:2]
                    if name in ("refuse_or_fall_back", "exit_cannot_start", "refuse_tree", "_refuse_start", "die") or name.endswith("Error")
                    else []
                )
                found += arguments[2:3] if name in ("add_error", "add_warning", "_report_error", "_report_warning", "_report_image_error") else []
                found += _after_effect(arguments)
            case ast.Tuple(elts=parts):
                found += _after_effect(parts)
            case ast.Assign(targets=[ast.Name(id="remedy" | "hint" | "change")], value=value):
                found.append(value)
            case ast.Return(value=ast.Tuple(elts=parts)) if any("write `" in text or "add `" in text for part in parts for text in texts(part, {})):
                found += parts
    return [text for node in found for text in texts(node, names)]


def of_scripts(text: str) -> list[str]:
    """The same of bash, sh and Perl: the second word of `die` and `cannot`."""
    quoted = r"(?:\"(?:[^\"\\]|\\.)*\"|'[^']*')"
    return [found[1:-1] for found in re.findall(rf"\b(?:die|cannot)[ (]+(?:{quoted}|\$\w+),? ({quoted})", text)]


def remedies() -> dict[str, list[str]]:
    found = {str(file.relative_to(ROOT)): of_python(file.read_text("utf-8")) for file in sorted((ROOT / "wavegen").rglob("*.py"))}
    scripts = (*(ROOT / "wavegen").rglob("*.sh"), *(ROOT / "wavegen").rglob("*.pl"), *(ROOT / "templates").glob("*.sh.j2"))
    return found | {str(file.relative_to(ROOT)): of_scripts(file.read_text("utf-8")) for file in sorted(scripts)}


REMEDIES = {file: said for file, said in remedies().items() if said}
KEYS = keys()


def wrong(text: str) -> list[str]:
    """What a remedy names that no manifest could say."""
    found = []
    for name, value in KEY.findall(text):
        if name in KEYS:
            allowed = KEYS[name]
            found += [f"{name}: {value}"] if allowed and value and value not in allowed else []
        elif name not in PROSE:
            found.append(name)
    return found + [name for name in SNAKE.findall(text) if name not in KEYS and name not in OTHERS and not name.startswith("wg_")]


@pytest.mark.parametrize("file", REMEDIES)
def test_every_key_that_a_remedy_names_is_the_manifests(file: str) -> None:
    assert [(text, found) for text in REMEDIES[file] if (found := wrong(text))] == []


def test_what_doctor_proposes_names_the_manifests_keys() -> None:
    assert [(trouble.name, found) for trouble in TROUBLES for text in (trouble.remedy, *trouble.commands) if (found := wrong(text))] == []


def test_remedies_are_found_at_all() -> None:
    everything = [text for said in REMEDIES.values() for text in said]
    assert len(everything) > 600
    named = {name for text in everything for name, _ in KEY.findall(text)} & set(KEYS)
    assert named >= {"network", "access", "project", "nested", "backend", "allow_private", "docker_packages", "unfree", "env_passthrough"}
    assert {
        "wavegen/launcher/landlock.py",
        "wavegen/launcher/mounts.py",
        "wavegen/policy/planner.py",
        "wavegen/backends/sandboxes/srt.py",
        "wavegen/explain/targets.py",
    } <= set(REMEDIES)
    assert KEYS["backend"] == {"bubblewrap", "docker", "landlock", "none"}
    assert KEYS["nested"] == {"true", "false"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("say `landlock: off`, and tell us", ["landlock"]),
        ("write `network: closed`", ["network: closed"]),
        ("write {host: a.b, allow_privat: true}", ["allow_privat", "allow_privat"]),
        ("see deny_write_paths", ["deny_write_paths"]),
        ("take a newer kernel, or write `backend: bubblewrap`", []),
        ("list the names: network: filtered", []),
        ("write `loopback: [5432]`", []),
    ],
)
def test_a_key_that_is_none_is_found(text: str, found: list[str]) -> None:
    assert wrong(text) == found
