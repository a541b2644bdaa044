"""The house in order: modules and functions that are longer than others say why, and CONTRIBUTING.md has the layers that are held."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from helpers import ROOT
from layers import rows_as_markdown

MOST_LINES, MOST_OF_A_FUNCTION = 400, 60
FILES = tuple(sorted(file for place in ("wavegen", "bench", "scripts") for file in (ROOT / place).rglob("*.py")))
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_is_long_says_why(file: Path) -> None:
    text = file.read_text("utf-8")
    tree = ast.parse(text)
    assert (len(text.splitlines()) > MOST_LINES) == ("Longer than 400 lines:" in (ast.get_docstring(tree) or ""))
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            long = (node.end_lineno or 0) - node.lineno + 1 > MOST_OF_A_FUNCTION
            assert long == ("Longer than 60 lines:" in (ast.get_docstring(node) or "")), node.name


@pytest.mark.parametrize("file", sorted((ROOT / "templates").iterdir()), ids=lambda file: file.name)
def test_a_template_that_is_long_says_why(file: Path) -> None:
    text = file.read_text("utf-8")
    assert (len(text.splitlines()) > MOST_LINES) == text.startswith("{@ Longer than 400 lines: ")


def test_what_is_looked_at_is_there() -> None:
    assert len(FILES) > 120


def test_contributors_read_the_layers_that_are_held() -> None:
    assert rows_as_markdown() in CONTRIBUTING


def test_contributors_are_told_of_places_that_are_there() -> None:
    for name in re.findall(r"`((?:wavegen|tests|docs|scripts)/[\w./]+)`", CONTRIBUTING):
        if "NAME" not in name:
            assert (ROOT / name).exists(), name


PROTOCOL = {"render", "gaps"}
"""What each back end has."""
MODULES = {file: ast.parse(file.read_text("utf-8")) for file in sorted((ROOT / "wavegen").rglob("*.py"))}


def test_names_of_functions_say_what_they_do_in_more_than_one_word() -> None:
    named = [node.name for tree in MODULES.values() for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    named = [name for name in named if not name.startswith("__") and name not in PROTOCOL]
    short = [name for name in named if "_" not in name.strip("_")]
    assert len(named) > 2000
    assert len(short) < len(named) / 10, short


def test_no_two_modules_export_a_function_of_the_same_name() -> None:
    places: dict[str, list[str]] = {}
    for file, tree in MODULES.items():
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(file.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1 and name not in {*PROTOCOL, "main"}} == {}


CLOCKS = {"monotonic", "perf_counter", "process_time", "time"}


@pytest.mark.parametrize("file", sorted((ROOT / "tests").glob("*/*.py")), ids=lambda file: file.name)
def test_no_verdict_of_a_test_is_a_time(file: Path) -> None:
    """It would be the machine's, and of what else runs there. `until` and `growth` ask without one."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Assert):
            called = {call.func.attr for call in ast.walk(node) if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)}
            assert not called & CLOCKS, f"{file.name}:{node.lineno}"
