"""The table of docs/map.md is complete, and true: each key is rendered with and without, and what differs is what its row says."""

from __future__ import annotations

import ast
import dataclasses
import re
import sys
import typing
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from functools import cache
from types import CodeType, FrameType, UnionType
from typing import Any

import pytest
from fake_host import FakeHost, directory, file
from helpers import ROOT
from manifest_map import OTHER_KEYWORDS, SECTIONS, Row, Section
from test_mounts import HOME, ME, OWN, PROJECT, SYSTEM

from wavegen.backends import render_all_files
from wavegen.backends.sandboxes.rules_file import base_text, rules_text
from wavegen.core.errors import Location
from wavegen.launcher import rules as launcher_rules
from wavegen.launcher.bwrap import mount_words, option_words
from wavegen.launcher.mounts import resolve_mounts
from wavegen.launcher.places import Places
from wavegen.launcher.rules import read_rules
from wavegen.manifest.json_schema import manifest_schema
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Origin, PersonaPolicy, Plan, Policy
from wavegen.policy.planner import plan_manifest
from wavegen.seccomp.filters import filter_of
from wavegen.verify.catalogue import PROBES, cases_for_policy

DEFINITIONS: dict[str, Any] = manifest_schema()["$defs"]
ROWS = [pytest.param(section, row, id=f"{section.place}.{row.key}".lstrip(".")) for section in SECTIONS for row in section.rows]
SAMPLED = [pytest.param(*param.values, id=param.id) for param in ROWS if not param.values[1].below]
READ = [pytest.param(*param.values, id=param.id) for param in SAMPLED if not param.values[1].unread]
KEYWORDS = {*launcher_rules.SETTINGS, *launcher_rules._LISTS, "path", "agent", "use"}
"""All that the reader of rules takes."""

# --- the table is complete


def test_every_key_of_the_schema_has_one_row_and_nothing_else_has() -> None:
    rows = [f"{section.mapping}.{row.key}" for section in SECTIONS for row in section.rows]
    assert sorted(rows) == sorted(f"{name}.{key}" for name, definition in DEFINITIONS.items() for key in definition["properties"])


def schema_places(value: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
    """Every place of a mapping, and the mapping's name."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        yield at, name
        for key, inner in DEFINITIONS[name]["properties"].items():
            yield from schema_places(inner, f"{at}.{key}".lstrip("."))
    for some in value.get("anyOf", ()):
        yield from schema_places(some, at)
    if isinstance(value.get("items"), dict):
        yield from schema_places(value["items"], f"{at}[]")
    if isinstance(value.get("additionalProperties"), dict):
        yield from schema_places(value["additionalProperties"], f"{at}.NAME")


def test_sections_stand_where_the_schema_has_their_mappings() -> None:
    assert {(place, section.mapping) for section in SECTIONS for place in (section.place, *section.also)} == set(schema_places(manifest_schema(), ""))


def test_a_key_that_refers_to_another_section_holds_that_mapping() -> None:
    for section in SECTIONS:
        found = {key: {name for at, name in schema_places(value, key) if at.removesuffix(".NAME").removesuffix("[]") == key} for key, value in
                 DEFINITIONS[section.mapping]["properties"].items()}  # fmt: skip
        assert {row.key: {row.below} for row in section.rows if row.below}.items() <= found.items()


def test_what_the_schema_calls_kept_for_wave_is_what_nothing_reads() -> None:
    for section in SECTIONS:
        for row in section.rows:
            said = DEFINITIONS[section.mapping]["properties"][row.key]["description"].startswith("kept for Wave")
            assert not said or row.unread.startswith("kept for Wave"), row.key


def test_every_keyword_of_the_reader_of_rules_is_in_a_row() -> None:
    named = {word.split()[0] for section in SECTIONS for row in section.rows for word in row.rules}
    assert named | set(OTHER_KEYWORDS) == KEYWORDS
    assert not named & set(OTHER_KEYWORDS)


@pytest.mark.parametrize(("section", "row"), ROWS)
def test_a_row_says_who_tries_it_or_why_nobody_does(section: Section, row: Row) -> None:
    if row.below or row.unread:
        assert dataclasses.replace(row, key="", below="", unread="", samples=()) == Row(key="")
        return
    assert all((row.policy, row.rendered, row.rules or row.files, row.samples))
    assert bool(row.probes) != bool(row.untried)
    assert set(row.probes) <= {probe.id for probe in PROBES}
    assert {word.split()[0] for word in row.rules} <= KEYWORDS
    # Where bwrap is given nothing that is printed, the page says that.
    assert bool(row.printed) or row.shown == "" or row.shown.startswith("nothing")
    assert row.read or row.program
    for name in re.findall(r"tests/\w+/\w+\.py", row.untried):
        assert row.key in (ROOT / name).read_text("utf-8")


# --- the page


def test_each_function_on_the_page_has_one_link_and_each_key_a_row() -> None:
    text = (ROOT / "docs/map.md").read_text("utf-8")
    links = re.findall(r"^(\[`[^`]+`\]): \.\./(\S+)$", text, re.MULTILINE)
    assert len(dict(links)) == len(links) > 50
    assert set(re.findall(r"\[`[^`]+`\]", text)) == {label for label, _ in links}
    for section in SECTIONS:
        part = text.partition(f'<a id="{section.mapping.lower()}"></a>')[2].partition("\n## ")[0]
        above = f"{section.place}.".removeprefix(".").removeprefix("runtime.sandbox.")
        assert re.findall(r"^\| `([\w.\[\]]+)` \|", part, re.MULTILINE) == [f"{above}{row.key}" for row in section.rows]


# --- what it names is there


@cache
def functions_of(path: str) -> dict[str, list[ast.AST]]:
    found: dict[str, list[ast.AST]] = {}
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.setdefault(node.name, []).append(node)
    return found


def constants_of(place: str) -> str:
    """All text that a function holds, a piece a line."""
    path, _, name = place.partition("::")
    nodes = functions_of(path)[name] if name else []
    return "\n".join(node.value for tree in nodes for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize(("section", "row"), READ)
def test_functions_are_there_and_hold_the_keywords_and_options(section: Section, row: Row) -> None:
    for place in (*row.rendered, *row.read):
        path, _, name = place.partition("::")
        assert (ROOT / path).is_file(), place
        assert not name or name in functions_of(path), place
    written = "\n".join(map(constants_of, row.rendered)).split("\n")
    read = "\n".join(constants_of(place) for place in row.read if place.endswith(".py") or "::" in place).split("\n")
    for word in {word.split()[0] for word in row.rules}:
        # The reader itself has these: a group's lines, agents, and rules about paths, which are told by their access and flags.
        assert word in written or f"{word}\t" in written, word
        assert word in read or word in ("path", "agent", "use"), word
    assert all(any(option in text for text in read) for option in row.started)
    # Flags of hosts are taken apart where a rule is made of them (launcher/egress/rules.py).
    assert row.flag in ("", "private", "no-sni", "no-tls") or row.flag in read or not any(place.endswith(".py::_grant_path") for place in row.read)


def attribute_exists(path: str) -> bool:
    root, *names = path.split(".")
    hint: Any = {"Plan": Plan, "Policy": Policy, "PersonaPolicy": PersonaPolicy}[root]
    for name in names:
        hint = next((some for some in typing.get_args(hint) if some is not type(None)), hint) if isinstance(hint, UnionType) else hint
        if not dataclasses.is_dataclass(hint):
            return False
        hints = typing.get_type_hints(hint)
        if name.removesuffix("[]") not in hints:
            return False
        hint = hints[name.removesuffix("[]")]
        if name.endswith("[]"):
            if typing.get_origin(hint) is not tuple:
                return False
            hint = typing.get_args(hint)[0]
    return True


def test_attributes_of_the_policy_are_found() -> None:
    assert attribute_exists("Policy.network.domains[].host")
    assert not attribute_exists("Policy.network.domains[].name")
    assert not attribute_exists("Policy.network.domains.host")
    assert not attribute_exists("Plan.network")


@pytest.mark.parametrize(("section", "row"), READ)
def test_attributes_of_the_policy_are_there(section: Section, row: Row) -> None:
    assert [path for path in row.policy if not attribute_exists(path)] == []


# --- what it says is so


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What becomes of one manifest."""

    plan: Plan
    files: dict[str, str]
    called: frozenset[str]
    """FILE::FUNCTION of what ran meanwhile."""

    def policy_attribute(self, path: str, shell: str) -> object:
        """An attribute, without the places in the manifest."""
        root, *names = path.split(".")
        found = [{"Plan": self.plan, "Policy": self.plan.find_fence(shell), "PersonaPolicy": self.plan.find_persona("p")}[root]]
        for name in names:
            values = [getattr(value, name.removesuffix("[]")) for value in found]
            found = [entry for value in values for entry in value] if name.endswith("[]") else values
        return plain_value(found)

    def rule_lines(self, shell: str) -> list[str]:
        return self.files.get(f".wavegen/rules/{shell}", "").splitlines()

    def printed_options(self, shell: str) -> list[str]:
        """The lines of `--print` on a machine that has what the samples name."""
        policy = self.plan.find_fence(shell)
        if policy is None or not policy.fenced:
            return []
        rules = read_rules(rules_text(self.plan, policy), base_text, "rules")
        kept = f"{HOME}/.local/state/wavegen/%2Fhome%2Fme%2Fsrc%2Fp/{shell}/home"
        more = {path: directory(owner=ME) for path in (kept, f"{PROJECT}/x", f"{PROJECT}/y")}
        machine = FakeHost({**SYSTEM, **OWN, **more, f"{PROJECT}/file": file(owner=ME)}, uid=ME)
        found = Places(machine, rules, {"HOME": HOME}, start=PROJECT, project=PROJECT, launcher="/launcher")
        words = (*option_words(rules), *mount_words(resolve_mounts(rules, found, machine), rules.setting_value("tmpfs_size")))
        return [" ".join(line) for line, _ in words]

    def probe_cases(self, shell: str) -> list[tuple[str, str, bool]]:
        """What is expected of each probe, and whether a line of the manifest asks for it."""
        policy = self.plan.find_fence(shell)
        cases = cases_for_policy(policy) if policy else ()
        return [(case.probe.id, repr(plain_value(case.expectation)), bool(case.expectation.origin.at)) for case in cases]


def plain_value(value: Any) -> Any:
    """A value without what tells where in the manifest it comes from."""
    if isinstance(value, (Origin, Location)):
        return "where"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple((field.name, plain_value(getattr(value, field.name))) for field in dataclasses.fields(value))
    if isinstance(value, (tuple, list)):
        return tuple(map(plain_value, value))
    return value


@cache
def render_manifest_text(text: str) -> Rendered:
    called: set[CodeType] = set()

    def note_call(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    plan = plan_manifest(Source("wave.yaml", text.encode()), None, "wave.sandbox.yaml")
    filter_of.cache_clear()  # what is kept from before does not run
    before = sys.getprofile()
    sys.setprofile(note_call)
    try:
        files = {file.path: file.text or file.raw.hex() for file in render_all_files(plan)}
    finally:
        sys.setprofile(before)
    return Rendered(plan, files, frozenset(f"{code.co_filename.removeprefix(f'{ROOT}/')}::{code.co_name}" for code in called))


def with_and_without(section: Section, row: Row) -> list[tuple[Rendered, Rendered]]:
    def manifest(keys: str) -> str:
        text = section.frame.replace("%s", keys)
        return text if text.startswith("metadata:") else f"metadata: {{name: demo}}\n{text}"

    return [(render_manifest_text(manifest(sample.text)), render_manifest_text(manifest(sample.without))) for sample in row.samples]


def differing_entries(one: list[Any], other: list[Any]) -> list[Any]:
    return [line for line in one if line not in other] + [line for line in other if line not in one]


@pytest.mark.parametrize(("section", "row"), [param for param in SAMPLED if param.values[1].unread])
def test_a_key_that_nothing_reads_changes_nothing(section: Section, row: Row) -> None:
    assert row.samples
    for one, other in with_and_without(section, row):
        assert one.files == other.files


@pytest.mark.parametrize(("section", "row"), READ)
def test_a_key_changes_what_its_row_names_and_the_functions_that_it_names_run(section: Section, row: Row) -> None:
    pairs = with_and_without(section, row)
    for path in row.policy:
        assert any(one.policy_attribute(path, section.shell) != other.policy_attribute(path, section.shell) for one, other in pairs), path
    ran = frozenset().union(*(one.called for one, _ in pairs), *(other.called for _, other in pairs))
    assert [place for place in row.rendered if place not in ran] == []
    for entry in row.files:
        path, word = re.split(": | ~ ", f"{entry}: ")[:2]
        pattern = re.compile(re.sub("SHELL|NAME|FILTER", r"[\\w-]+", re.escape(path)))
        changed = [line for one, other in pairs for line in changed_lines(one.files, other.files, pattern)]
        assert [line for line in changed if word in line], entry


def changed_lines(one: dict[str, str], other: dict[str, str], pattern: re.Pattern[str]) -> Iterator[str]:
    """The lines that differ in files of that name."""
    for name in filter(pattern.fullmatch, one.keys() | other.keys()):
        yield from (line[1:] for line in unified_diff(one.get(name, "").splitlines(), other.get(name, "").splitlines(), n=0))


@pytest.mark.parametrize(("section", "row"), READ)
def test_a_key_changes_lines_of_the_rules_with_the_keywords_of_its_row(section: Section, row: Row) -> None:
    lines = [changed for one, other in with_and_without(section, row) for changed in (lines_alone(one, other, section), lines_alone(other, one, section))]
    changed = {word for side in lines for line in side for word in (line[0], " ".join(line[:2]))}
    assert set(row.rules) <= changed
    assert row.rules or not changed
    flags = [{flag for line in side if line[0] in ("path", "allow") for flag in line[-2].split(",")} for side in lines]
    assert row.flag == "" or any(row.flag in one ^ other for one, other in zip(flags[::2], flags[1::2], strict=True))


def lines_alone(one: Rendered, other: Rendered, section: Section) -> list[list[str]]:
    """The fields of the lines of rules that only one of two manifests has."""
    return [line.split("\t") for line in one.rule_lines(section.shell) if line not in other.rule_lines(section.shell)]


@pytest.mark.parametrize(("section", "row"), READ)
def test_a_key_changes_what_print_shows_by_the_options_of_its_row(section: Section, row: Row) -> None:
    lines = [
        line
        for one, other in with_and_without(section, row)
        for line in differing_entries(one.printed_options(section.shell), other.printed_options(section.shell))
    ]
    assert [option for option in row.printed if not any(option in line.split() for line in lines)] == []
    assert row.printed or lines == []


@pytest.mark.parametrize(("section", "row"), READ)
def test_a_key_changes_what_is_expected_of_the_probes_of_its_row(section: Section, row: Row) -> None:
    cases = [
        case for one, other in with_and_without(section, row) for case in differing_entries(one.probe_cases(section.shell), other.probe_cases(section.shell))
    ]
    assert set(row.probes) <= {name for name, *_ in cases}
    if not row.probes and (section.mapping, row.key) != ("Shell", "sandbox"):
        assert cases == []
