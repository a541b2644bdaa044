"""YAML becomes values the way Wave's own parser reads it, with every mistake at its line and column."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeVar

import pytest
import yaml
from helpers import MINIMAL, ROOT

from wavegen.core.errors import Location, ManifestError, Problem, Severity
from wavegen.manifest.decoder import NOWHERE, Decoder, Marks, Text, manifest_key, required_key
from wavegen.manifest.yaml_nodes import NODE_LIMIT, Map, Messages, Scalar, Sequence, Source, merge_overlay, parse_yaml
from wavegen.policy.planner import plan_manifest

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    NO = "no"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    STRICT: ClassVar[bool] = True
    name: Text = required_key("its name")
    size: int | None = manifest_key("its size")
    at: Marks = NOWHERE


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    text: Text | None = manifest_key("text")
    flag: bool = manifest_key("a flag", default=False)
    count: int | None = manifest_key("a number")
    share: float | None = manifest_key("a fraction")
    colour: Colour | None = manifest_key("a colour")
    words: tuple[Text, ...] | None = manifest_key("words")
    inner: Inner | None = manifest_key("one")
    inners: tuple[Inner, ...] = manifest_key("several", ())
    mixed: tuple[Text | Inner, ...] = manifest_key("names, or names with more", ())
    either: Text | Inner | None = manifest_key("a name, or a name with more")
    table: Mapping[str, Inner] = manifest_key("by name", {})
    tags: Mapping[str, Text] = manifest_key("texts by name", {})
    rest: object = manifest_key("anything")
    at: Marks = NOWHERE


def decode(text: str, cls: type[T] = Outer) -> tuple[T | None, list[Problem]]:  # type: ignore[assignment]
    decoder = Decoder(Messages())
    root = parse_yaml(Source("f", text.encode()), decoder.messages)
    return (decoder.decode_dataclass(cls, root) if root else None), decoder.messages.problems


def good(text: str) -> Outer:
    value, problems = decode(text)
    assert problems == []
    assert value is not None
    return value


def mistakes(text: str) -> list[str]:
    """Line:column and text of each error; there must be one."""
    _, problems = decode(text)
    found = [f"{p.at.line}:{p.at.column} {p.what}" for p in sorted(problems, key=Problem.source_order) if p.severity is Severity.ERROR and p.at]
    assert found
    return found


# --- scalars


@pytest.mark.parametrize(
    ("written", "read"),
    [
        pytest.param("1.10", "1.10", id="version"),
        pytest.param("24.04", "24.04", id="image-tag"),
        pytest.param("no", "no", id="norway"),
        pytest.param("True", "True", id="bool"),
        pytest.param("12:30:45", "12:30:45", id="sexagesimal"),
        pytest.param("0x1F", "0x1F", id="hexadecimal"),
        pytest.param("1_000", "1_000", id="underscores"),
        pytest.param("2026-01-02", "2026-01-02", id="date"),
        pytest.param("'quoted'", "quoted", id="single"),
        pytest.param('"a\\tb\\u00e9"', "a\tbé", id="double"),
        pytest.param("''", "", id="empty"),
        pytest.param("'null'", "null", id="quoted-null"),
        pytest.param("|\n  a\n  b\n", "a\nb\n", id="literal"),
        pytest.param(">-\n  a\n  b\n", "a b", id="folded"),
        pytest.param("!!str 5", "5", id="tagged"),
        pytest.param("! x", "x", id="non-specific-tag"),
        pytest.param("a # comment", "a", id="comment"),
        pytest.param("a#b", "a#b", id="no-comment"),
    ],
)
def test_a_text_field_keeps_the_raw_text_of_any_scalar(written: str, read: str) -> None:
    assert good(f"text: {written}").text == read


@pytest.mark.parametrize("written", ["", "~", "null", "Null", "NULL"])
def test_null_is_the_default_of_any_field(written: str) -> None:
    fields = ("text", "flag", "count", "share", "colour", "words", "inner", "inners", "table", "rest")
    value = good("".join(f"{name}: {written}\n" for name in fields))
    default = Outer()
    assert all(getattr(value, name) == getattr(default, name) for name in fields)


@pytest.mark.parametrize("word", ["true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", "y", "Y"])
def test_the_words_of_yaml_1_1_are_true_in_a_bool_field(word: str) -> None:
    assert good(f"flag: {word}").flag is True


@pytest.mark.parametrize("word", ["false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", "n", "N"])
def test_the_words_of_yaml_1_1_are_false_in_a_bool_field(word: str) -> None:
    assert good(f"flag: {word}").flag is False


@pytest.mark.parametrize("word", ["tRUE", "1", "0", "'true'", '"yes"', "!!str true", "maybe", "[]", "{}"])
def test_nothing_else_is_a_bool(word: str) -> None:
    [mistake] = mistakes(f"flag: {word}")
    assert mistake.startswith(("1:7 flag: expected true or false, got ", "1:13 flag"))


@pytest.mark.parametrize(
    ("written", "read"), [("0", 0), ("-5", -5), ("+5", 5), ("007", 7), ("0x1f", 31), ("0o17", 15), ("123456789012345678", 123456789012345678)]
)
def test_a_number_field_reads_whole_numbers(written: str, read: int) -> None:
    assert good(f"count: {written}").count == read


@pytest.mark.parametrize("written", ["1.5", "1e3", "1_000", "five", "'5'", "５", "9" * 19, "9" * 5000, "0b1", "--1", "1:30", "true", "[1]"])
def test_nothing_else_is_a_whole_number(written: str) -> None:
    assert [m.split(",")[0] for m in mistakes(f"count: {written}")] == ["1:8 count: expected a number"]


@pytest.mark.parametrize(("written", "read"), [("2", 2.0), ("0.5", 0.5), (".5", 0.5), ("2.", 2.0), ("-1.5e-3", -0.0015), ("1e10", 1e10)])
def test_a_fraction_field_reads_decimal_numbers(written: str, read: float) -> None:
    assert good(f"share: {written}").share == read


@pytest.mark.parametrize("written", [".inf", "-.inf", ".nan", "nan", "inf", "1e999", "9" * 5000, "0x1p3", "'1.5'", "1,5"])
def test_nothing_else_is_a_fraction(written: str) -> None:
    assert [m.split(",")[0] for m in mistakes(f"share: {written}")] == ["1:8 share: expected a number"]


def test_a_word_of_a_closed_set_is_read_raw() -> None:
    assert good("colour: no").colour is Colour.NO
    assert good("colour: 'red'").colour is Colour.RED
    assert mistakes("colour: rde") == ["1:9 colour: 'rde' is not one of red, no"]
    assert mistakes("colour: [red]") == ["1:9 colour: expected one word, got a list"]


# --- structure


def test_lists_tables_and_mappings_nest() -> None:
    value = good("words: [a, b]\ninner: {name: x, size: 3}\ninners:\n  - name: y\n  - {name: z}\ntable: {k: {name: v}}\ntags: {a: 1, b: }\n")
    assert value.words == ("a", "b")
    assert value.inner is not None
    assert (value.inner.name, value.inner.size) == ("x", 3)
    assert [i.name for i in value.inners] == ["y", "z"]
    assert value.table["k"].name == "v"
    assert dict(value.tags) == {"a": "1", "b": ""}


def test_a_value_may_be_text_or_a_mapping() -> None:
    value = good("mixed: [a, {name: b, size: 1}, 5, ~]\neither: {name: c}\n")
    assert [(type(v), v.at.here if isinstance(v, Inner) else v.at) for v in value.mixed] == [
        (Text, Location("f", 1, 9)),
        (Inner, Location("f", 1, 12)),
        (Text, Location("f", 1, 32)),
        (Text, Location("f", 1, 35)),
    ]
    assert isinstance(value.mixed[1], Inner)
    assert (value.mixed[1].name, value.mixed[1].size) == ("b", 1)
    assert isinstance(value.either, Inner)
    assert good("either: c").either == "c"
    assert good("either: ~").either is None


def test_a_misspelt_key_of_a_mapping_in_place_of_text_is_answered_with_the_right_one() -> None:
    _, problems = decode("mixed: [{name: x, sise: 1}]")
    assert [(str(p.at), p.hint) for p in problems] == [("f:1:19", "did you mean 'size'?")]


def test_a_list_that_is_not_written_differs_from_an_empty_one() -> None:
    assert good("flag: no").words is None
    assert good("words: []").words == ()


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        pytest.param("words: a", "1:8 words: expected a list, got 'a'", id="text-for-list"),
        pytest.param("words: {a: b}", "1:8 words: expected a list, got a mapping", id="mapping-for-list"),
        pytest.param("words: [a, [b]]", "1:12 words[1]: expected text, got a list", id="list-in-list"),
        pytest.param("inner: x", "1:8 inner: expected a mapping, got 'x'", id="text-for-mapping"),
        pytest.param("inner: [x]", "1:8 inner: expected a mapping, got a list", id="list-for-mapping"),
        pytest.param("table: [x]", "1:8 table: expected a mapping, got a list", id="list-for-table"),
        pytest.param("table: {k: [x]}", "1:12 table.k: expected a mapping, got a list", id="list-in-table"),
        pytest.param("text: {a: b}", "1:7 text: expected text, got a mapping", id="mapping-for-text"),
        pytest.param("inner: {}", "1:8 inner: name is missing", id="missing"),
        pytest.param("inner: {size: 1}", "1:8 inner: name is missing", id="missing-beside-another"),
        pytest.param("inner: {name: }", "1:8 inner.name is empty", id="empty"),
        pytest.param("inners: [{}]", "1:10 inners[0]: name is missing", id="missing-in-list"),
        pytest.param("inner: {name: x, sise: 1}", "1:18 unknown key 'inner.sise'", id="unknown"),
        pytest.param("table: {k: }", "1:12 table.k: name is missing", id="empty-in-table"),
        pytest.param("either: [x]", "1:9 either: expected text or a mapping, got a list", id="list-for-either"),
        pytest.param("mixed: {name: x}", "1:8 mixed: expected a list, got a mapping", id="mapping-for-mixed-list"),
        pytest.param("mixed: [a, [b]]", "1:12 mixed[1]: expected text or a mapping, got a list", id="list-in-mixed-list"),
        pytest.param("mixed: [a, {size: 1}]", "1:12 mixed[1]: name is missing", id="missing-in-mixed-list"),
        pytest.param("mixed: [{name: x, size: y}]", "1:25 mixed[0].size: expected a number, got 'y'", id="wrong-in-mixed-list"),
        pytest.param("mixed: [{name: x, sise: 1}]", "1:19 unknown key 'mixed[0].sise'", id="unknown-in-mixed-list"),
    ],
)
def test_the_wrong_shape_is_an_error_at_its_place(text: str, mistake: str) -> None:
    assert mistakes(text) == [mistake]


def test_an_unknown_key_is_an_error_where_the_class_is_strict_and_else_a_note() -> None:
    value, problems = decode("txet: x\nzzz: y\n")
    assert value == Outer(at=value.at)  # type: ignore[union-attr]
    assert [(p.severity, p.what, p.hint) for p in problems] == [
        (Severity.NOTE, "unknown key 'txet' is ignored", "did you mean 'text'?"),
        (Severity.NOTE, "unknown key 'zzz' is ignored", ""),
    ]


def test_a_value_with_a_mistake_is_no_value() -> None:
    assert decode("flag: maybe")[0] is None
    assert decode("inner: {name: [x]}")[0] is None
    assert decode("inners: [{name: x}, {size: y}]")[0] is None


def test_all_mistakes_are_found_in_one_pass() -> None:
    assert len(mistakes("flag: x\ncount: y\nwords: z\ninner: {size: a, x: b}\ninners: [{}, {name: [c]}]\ntable: {k: 1, l: {size: d}}\n")) == 11


def test_what_is_kept_for_others_is_not_read() -> None:
    rest = good("rest: {a: [1, {b: c}], d: *x}\n".replace("*x", "'*x'")).rest
    assert isinstance(rest, Map)
    assert isinstance(rest.entries["a"][1], Sequence)


# --- places


def test_text_and_marks_know_their_places() -> None:
    value = good("# hi\ntext: a\nwords:\n  - x\n  -   y\ntable: {k: {name: v}}\n")
    assert value.text is not None
    assert value.text.at == Location("f", 2, 7)
    assert [w.at for w in value.words or ()] == [Location("f", 4, 5), Location("f", 5, 7)]
    assert [k.at for k in value.table if isinstance(k, Text)] == [Location("f", 6, 9)]
    assert value.at.location_of("words") == Location("f", 4, 3)
    assert "text" in value.at
    assert "flag" not in value.at
    assert value.at.location_of("flag") == value.at.here == Location("f", 2, 1)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        pytest.param("# é😀\nflag: x", "2:7", id="after-wide-characters"),
        pytest.param("text: é😀\nflag: x", "2:7", id="after-a-wide-value"),
        pytest.param("{text: é😀, flag: x}", "1:18", id="columns-are-characters"),
        pytest.param("\ufefftext: a\nflag: x", "2:7", id="byte-order-mark"),
        pytest.param("text: a\r\nflag: x\r\n", "2:7", id="crlf"),
        pytest.param("text: |\n  a\n  b\nflag: x", "4:7", id="after-a-block"),
        pytest.param("a: &a {x: 1}\nflag: x", "2:7", id="after-an-anchor"),
        pytest.param("flag: &f x\n", "1:7", id="at-an-anchor"),
        pytest.param("---\nflag: x\n", "2:7", id="after-the-document-mark"),
        pytest.param("%YAML 1.1\n---\nflag: x\n", "3:7", id="after-a-directive"),
    ],
)
def test_places_are_what_an_editor_shows(text: str, place: str) -> None:
    assert [m.split()[0] for m in mistakes(text)] == [place]


# --- anchors, merge keys, duplicates


def test_aliases_stand_for_their_anchors_and_know_where_those_stand() -> None:
    value = good("text: &t hello\nwords: [*t, *t]\ninner: &i {name: *t}\ntable: {a: *i, b: *i}\n")
    assert value.words == ("hello", "hello")
    assert value.table["b"].name == "hello"
    assert value.table["b"].name.at == Location("f", 1, 7)


def test_an_anchor_may_be_given_anew() -> None:
    assert good("text: &a x\nwords: [*a, &a y, *a]\n").words == ("x", "y", "y")


@pytest.mark.parametrize(
    ("text", "name", "size"),
    [
        pytest.param("rest: &b {name: b, size: 1}\ninner: {<<: *b}", "b", 1, id="all"),
        pytest.param("rest: &b {name: b, size: 1}\ninner: {<<: *b, name: own}", "own", 1, id="own-key-after"),
        pytest.param("rest: &b {name: b, size: 1}\ninner: {name: own, <<: *b}", "own", 1, id="own-key-before"),
        pytest.param("rest: [&b {name: b}, &c {name: c, size: 2}]\ninner: {<<: [*b, *c]}", "b", 2, id="the-first-of-several"),
        pytest.param("rest: {x: &b {name: b}, y: &c {<<: *b, size: 2}}\ninner: {<<: *c}", "b", 2, id="merged-twice"),
        pytest.param("inner: {<<: {name: inline, size: 4}}", "inline", 4, id="without-an-anchor"),
    ],
)
def test_merge_keys_give_what_is_not_written(text: str, name: str, size: int) -> None:
    inner = good(text).inner
    assert inner is not None
    assert (inner.name, inner.size) == (name, size)


def test_a_quoted_merge_key_is_a_key() -> None:
    assert mistakes("inner: {name: x, '<<': {size: 1}}") == ["1:18 unknown key 'inner.<<'"]


@pytest.mark.parametrize("text", ["text: a\ntext: b\n", "text: a\n'text': b\n", 'text: a\nflag: yes\n"text": a\n'])
def test_a_key_that_is_given_twice_is_an_error(text: str) -> None:
    assert [m.split(" ", 1)[1] for m in mistakes(text)] == ["duplicate key 'text'"]


def test_keys_that_are_given_twice_are_found_also_where_nothing_is_read() -> None:
    assert mistakes("rest: {a: {b: 1, b: 2}}") == ["1:18 duplicate key 'b'"]
    assert mistakes("unknown: {b: 1, b: 2}") == ["1:17 duplicate key 'b'"]


def test_aliases_that_double_stop_at_the_limit_and_quickly() -> None:
    levels = 40
    text = "rest:\n  - &a0 [x, x]\n" + "".join(f"  - &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, levels))
    [mistake] = mistakes(text)
    assert f"aliases expand to more than {NODE_LIMIT} values" in mistake


def test_as_many_values_as_the_limit_allows_are_read() -> None:
    text = "words: [" + ",".join(["x"] * 150_000) + "]"
    assert len(good(text).words or ()) == 150_000
    assert mistakes("rest: [" + ",".join(["x"] * (NODE_LIMIT + 1)) + "]")[0].endswith(f"more than {NODE_LIMIT} values")


def test_64_levels_are_read_and_more_are_not() -> None:
    assert good("rest: " + "[" * 60 + "]" * 60).rest is not None
    assert mistakes("rest: " + "[" * 70 + "]" * 70)[0].endswith("nested deeper than 64")


# --- sources over sources


def overlaid(base: str, top: str) -> tuple[Outer | None, list[Problem]]:
    decoder = Decoder(Messages())
    below, above = parse_yaml(Source("base", base.encode()), decoder.messages), parse_yaml(Source("top", top.encode()), decoder.messages)
    assert below is not None
    assert above is not None
    return decoder.decode_dataclass(Outer, merge_overlay(below, above)), decoder.messages.problems


def test_an_overlay_merges_mappings_key_by_key_and_replaces_the_rest() -> None:
    value, problems = overlaid(
        "text: a\nwords: [x, y]\ninner: {name: n, size: 1}\ntable: {k: {name: k}, l: {name: l}}\n",
        "words: [z]\ninner: {size: 2}\ntable: {l: {name: L}, m: {name: m}}\n",
    )
    assert problems == []
    assert value is not None
    assert value.inner is not None
    assert (value.text, value.words, value.inner.name, value.inner.size) == ("a", ("z",), "n", 2)
    assert {name: inner.name for name, inner in value.table.items()} == {"k": "k", "l": "L", "m": "m"}
    assert value.inner.name.at.file == "base"
    assert value.at.location_of("words").file == "top"


def test_an_overlay_is_laid_over_without_changing_what_is_below() -> None:
    decoder = Decoder(Messages())
    base, top = parse_yaml(Source("b", b"rest: {a: 1}"), decoder.messages), parse_yaml(Source("t", b"rest: {a: 2, c: 3}"), decoder.messages)
    assert base is not None
    assert top is not None
    merge_overlay(base, top)
    inner = base.entries["rest"][1]
    assert isinstance(inner, Map)
    assert list(inner.entries) == ["a"]


# --- whatever comes in


def corpus() -> list[bytes]:
    """Manifests to start from: those of the examples, the real ones where they are, and one with every key."""
    files = [*sorted(ROOT.glob("examples/*/wave.yaml")), *sorted((ROOT.parent / "shared/manifests").glob("*.yaml"))[::9]]
    everything = (
        "metadata: {name: x, description: &d 'é'}\nruntime:\n  sandbox:\n    packages: [go]\n    paths: [{path: ~/a, access: read}]\n"
        "    limits: {pids: 5, memory: 4g, cpus: 1.5}\n    shells: {ci: {network: filtered, domains: ['x.org:22', *d], loopback: [1]}}\n"
        "    default_allowed_domains: ['*.x.org', 10.0.0.1]\nadapters: {c: {binary: claude}}\npersonas: {p: {adapter: c, sandbox: {shell: ci}}}\n"
    )
    return [MINIMAL.encode(), everything.encode(), *(file.read_bytes() for file in files)]


def mutated(chance: random.Random, data: bytes, other: bytes) -> bytes:
    pieces = [
        b"{",
        b"}",
        b"[",
        b"]",
        b": ",
        b"- ",
        b"&a ",
        b"*a",
        b"<<: *a",
        b"\n",
        b"\t",
        b"'",
        b'"',
        b"|\n",
        b"!!x ",
        b"#",
        b"---\n",
        b"%",
        b"\xff",
        b"\0",
        b"~",
        b"999999999999",
    ]
    for _ in range(chance.randint(1, 4)):
        at, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        match chance.randint(0, 4):
            case 0:
                data = data[:at] + chance.choice(pieces) + data[at:]
            case 1:
                data = data[:at] + data[min(end, at + 20) :]
            case 2:
                data = data[:at] + data[at : at + 40] + data[at:]
            case 3:
                data = data[:at] + other[at : at + 60] + data[end:]
            case 4:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
    return data


def test_no_mutation_of_a_manifest_raises_anything_but_a_manifest_error_with_places() -> None:
    chance, seeds = random.Random(11), corpus()
    refused: list[ManifestError] = []
    rounds = 4000
    for _ in range(rounds):
        data = mutated(chance, chance.choice(seeds)[:6000], chance.choice(seeds))
        try:
            plan_manifest(Source("wave.yaml", data), None, "wave.sandbox.yaml")
        except ManifestError as failed:
            refused.append(failed)
    assert 200 < len(refused) < rounds - 200
    for error in refused:
        assert any(problem.severity is Severity.ERROR for problem in error.problems)
        assert all(problem.at and problem.at.file == "wave.yaml" for problem in error.problems)
        assert all(line.startswith("wave.yaml") and "\0" not in line for line in error.message_lines())
        assert list(error.problems) == sorted(error.problems, key=Problem.source_order)


def test_the_slow_parser_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where PyYAML was built without libyaml."""
    texts = [text for text in corpus() if len(text) < 20_000]
    fast = [nodes(text) for text in texts]
    monkeypatch.delattr(yaml, "CSafeLoader")
    assert [nodes(text) for text in texts] == fast


def nodes(data: bytes) -> object:
    decoder = Decoder(Messages())
    root = parse_yaml(Source("f", data), decoder.messages)
    return (root, [p for p in decoder.messages.problems if "not YAML" not in p.what])


def test_a_scalar_is_null_only_where_it_is_plain() -> None:
    at = Location("f")
    assert Scalar(at, "~", plain=True).is_null
    assert not Scalar(at, "~", plain=False).is_null
