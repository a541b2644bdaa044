"""The reports of a run: each says the same, none is fooled by what a text holds, and the same run gives the same bytes."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable
from html.parser import HTMLParser
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree as ET

import pytest
from helpers import ROOT

from wavegen.core import quote
from wavegen.core.errors import Location, UsageError, one_line
from wavegen.policy.model import Origin
from wavegen.verify import score
from wavegen.verify.model import Case, Expectation, Finding, Group, Probe, Report, Severity, ShellReport, Verdict, Want
from wavegen.verify.reports.baseline import find_regressions as compare
from wavegen.verify.reports.baseline import parse_baseline
from wavegen.verify.reports.html import as_html
from wavegen.verify.reports.json_report import as_json
from wavegen.verify.reports.junit import as_junit
from wavegen.verify.reports.sarif import as_sarif
from wavegen.verify.reports.table import render_verdict_table


def worse(before: object, report: Report) -> tuple[str, ...]:
    """The comparison with a document."""
    return compare(parse_baseline(before), report)


HELD, BROKEN, INCONCLUSIVE, OPEN = Verdict.HELD, Verdict.BROKEN, Verdict.INCONCLUSIVE, Verdict.OPEN
LINE = Origin("keys", Location("wave.yaml", 12, 5))
HOSTILE = (
    "two\nlines",
    "cr\rlf\r\n",
    "\x1b[31mred\x1b[0m",
    "<script>alert(1)</script>",
    "]]>",
    "<![CDATA[",
    "-->",
    "'single' \"double\"",
    "' onclick='x",
    '"><img src=http://evil.example/x>',
    "nul\0nul",
    "lone \ud800 surrogate",
    "\udc80byte",
    "\ufffe\uffff",
    "\u202eright to left",
    "\x9b31m",
    "\u2028",
    "&amp;",
    "{{ 7 * 7 }}{% raw %}",
    "[link](http://evil.example) {0}",
    "https://evil.example/",
    "//evil.example/x",
    "a:b c#d?e%",
    "</style></title></details></table>",
    "x" * 20_000,
    "word " * 4_000,
    "日本語 é 😀",
)
with_hostile_texts = pytest.mark.parametrize("text", HOSTILE, ids=[str(place) for place in range(len(HOSTILE))])
EVERY = tuple(itertools.product(Verdict, (True, False)))


def finding(
    verdict: Verdict = HELD,
    *,
    probe: str = "read.key",
    subject: str = "",
    required: bool = True,
    group: Group = Group.READ,
    severity: Severity = Severity.HIGH,
    why: str = "~/.ssh/id: ENOENT",
    origin: Origin = LINE,
    question: str = "Can a key be read?",
    layer: str = "mount namespace",
    note: str = "",
    want: Want = Want.STOPPED,
) -> Finding:
    made = Probe(id=probe, question=question, group=group, severity=severity, attempt="read", expect=lambda _: (), required=required)
    case = Case(probe=made, expectation=Expectation(want=want, layer=layer, origin=origin, subject=subject, note=note))
    exposed = None if want is Want.WORKS else {HELD: False, BROKEN: True, OPEN: True, INCONCLUSIVE: None}[verdict]
    return Finding(case=case, verdict=verdict, exposed=exposed, why=why)


def shell(*findings: Finding, name: str = "agent", fenced: bool = True, error: str = "") -> ShellReport:
    return ShellReport(shell=name, fenced=fenced, findings=findings, error=error)


def report(*shells: ShellReport, worse: tuple[str, ...] = ()) -> Report:
    return Report(name="demo", manifest="wave.yaml", via="bwrap", shells=shells, worse=worse)


def control(*findings: Finding, error: str = "") -> ShellReport:
    return shell(*findings, name="yolo", fenced=False, error=error)


def of_every_kind(*, worse: tuple[str, ...] = ()) -> Report:
    """Every verdict, required and not, in every group; subjects; an error; the control."""
    mixed = tuple(
        finding(
            verdict,
            probe=f"{group.name.lower()}.{verdict.name.lower()}.{'must' if required else 'may'}",
            group=group,
            required=required,
            severity=severity,
            why=f"seen {verdict.name.lower()}",
        )
        for (group, severity), (verdict, required) in itertools.product(zip(Group, itertools.cycle(Severity), strict=False), EVERY)
    )
    subjects = (
        finding(BROKEN, subject="~/.ssh"),
        finding(HELD, subject="~/.aws", origin=Origin("never shown")),
        finding(OPEN, subject="~/x", note="asked for"),
    )
    return report(shell(*mixed, *subjects), shell(subjects[1], name="build"), shell(name="ci", error="bwrap: no"), control(subjects[0]), worse=worse)


def hostile(text: str) -> Report:
    """The text in every place that one can come from outside."""
    at = Origin(text, Location(text, 3, 2))
    findings = tuple(
        finding(verdict, probe=f"p.{verdict.name}.{required}{text}", subject=text, required=required, why=text, origin=at, question=text, layer=text, note=text)
        for verdict, required in EVERY
    )
    shells = (shell(*findings, name=text), shell(name=text + "2", error=text), control(*findings))
    return Report(name=text, manifest=text, via=text, shells=shells, worse=(text, f"{text}: {text}: HELD -> BROKEN: {text}"))


def lines(made: Report, *, verbose: bool = False, colour: bool = False) -> list[str]:
    return list(render_verdict_table(made, verbose=verbose, colour=colour))


def renderings(made: Report) -> dict[str, str]:
    """What is printed, by report."""
    return {
        "table": "\n".join(lines(made)),
        "verbose": "\n".join(lines(made, verbose=True, colour=True)),
        "json": quote.json_text(as_json(made)),
        "junit": as_junit(made),
        "sarif": quote.json_text(as_sarif(made, "1.2.3")),
        "html": as_html(made),
    }


# --- the score


EXITS: tuple[tuple[Report, int, str], ...] = (
    (report(shell(finding(HELD))), 0, "held"),
    (report(shell(finding(HELD), finding(OPEN))), 0, "held"),
    (report(shell(finding(HELD), finding(INCONCLUSIVE, required=False))), 0, "held"),
    (report(shell(finding(HELD)), control(finding(BROKEN), finding(INCONCLUSIVE))), 0, "held"),
    (report(shell(finding(BROKEN))), 1, "broken"),
    (report(shell(finding(BROKEN, required=False))), 1, "broken"),
    (report(shell(finding(BROKEN), finding(INCONCLUSIVE))), 1, "broken"),
    (report(shell(finding(BROKEN)), shell(name="ci", error="no")), 1, "broken"),
    (report(shell(finding(HELD)), worse=("agent: x: HELD -> OPEN: y",)), 1, "broken"),
    (report(worse=("agent: gone",)), 1, "broken"),
    (report(shell(finding(HELD), finding(INCONCLUSIVE))), 3, "could not be checked"),
    (report(shell(finding(HELD)), shell(name="ci", error="no")), 3, "could not be checked"),
    (report(shell(finding(HELD)), control(error="no")), 3, "could not be checked"),
    (report(shell()), 3, "could not be checked"),
    (report(control(finding(OPEN))), 3, "could not be checked"),
    (report(), 3, "could not be checked"),
)


@pytest.mark.parametrize(("made", "code", "word"), EXITS)
def test_every_report_agrees_on_how_a_run_ends(made: Report, code: int, word: str) -> None:
    assert score.exit_code(made) == code
    assert lines(made)[-1].startswith(word + ": ")
    assert as_json(made)["exit_code"] == code
    root = ET.fromstring(as_junit(made))
    failures, errors = int(root.attrib["failures"]), int(root.attrib["errors"])
    assert (1 if failures else 3 if errors else 0) == code
    assert bool(results(as_sarif(made, "1"))) == bool(code)
    assert f"Exit code {code}." in as_html(made)
    assert ("What makes the run fail" in as_html(made)) == bool(code)


def test_exposure_is_the_weighted_share_of_what_was_reached() -> None:
    held = finding(HELD, severity=Severity.CRITICAL)
    reached = finding(OPEN, severity=Severity.HIGH)
    twin = finding(HELD, want=Want.WORKS)
    assert score.exposure_score(shell(held)) == 0
    assert score.exposure_score(shell(reached)) == 10
    assert score.exposure_score(shell(held, reached, twin, finding(INCONCLUSIVE))) == 3.3
    assert score.exposure_score(shell(twin)) is None
    assert score.exposure_score(shell(held, error="no")) is None


def test_rounding_makes_neither_a_perfect_fence_nor_none() -> None:
    critical, low = [finding(HELD, severity=Severity.CRITICAL)] * 100, [finding(HELD, severity=Severity.LOW)]
    assert score.exposure_score(shell(*critical, finding(OPEN, severity=Severity.LOW))) == 0.1
    assert score.exposure_score(shell(*[finding(OPEN, severity=Severity.CRITICAL)] * 100, *low)) == 9.9


@pytest.mark.parametrize(("value", "word"), [(0, "tight"), (1.0, "tight"), (1.1, "guarded"), (3.0, "guarded"), (3.1, "exposed"), (6.1, "open"), (10.0, "open")])
def test_ratings(value: float, word: str) -> None:
    assert score.rate_exposure(value) == word


# --- for people, in a terminal


def test_a_shell_s_header_counts_and_rates() -> None:
    made = lines(report(shell(finding(HELD), finding(OPEN, severity=Severity.LOW), finding(INCONCLUSIVE, required=False))))
    assert "shell agent: fenced, 1 held, 0 broken, 1 inconclusive, 1 open; exposure 1.7 of 10: guarded" in made


def test_what_held_is_listed_only_when_asked_for() -> None:
    made = report(shell(finding(HELD, probe="read.this"), finding(OPEN, probe="read.that", note="asked for")))
    assert not any("read.this" in line for line in lines(made))
    assert "    OPEN          read.that: asked for" in lines(made)
    full = "\n".join(lines(made, verbose=True))
    assert all(text in full for text in ("HELD          read.this", "Can a key be read?", "wave.yaml:12: keys", "note:  asked for"))


@pytest.mark.parametrize("verdict", [BROKEN, INCONCLUSIVE])
def test_what_fails_is_always_told_in_full(verdict: Verdict) -> None:
    made = "\n".join(lines(report(shell(finding(verdict, subject="~/.ssh", why="it was reached")))))
    assert all(text in made for text in ("  reading files", "read.key ~/.ssh", "Can a key be read?", "it was reached", "mount namespace", "wave.yaml:12: keys"))


def test_what_need_not_be_conclusive_takes_one_line() -> None:
    made = lines(report(shell(finding(INCONCLUSIVE, required=False, why="no strace"))))
    assert "    INCONCLUSIVE  read.key: no strace" in made
    assert not any("Can a key be read?" in line for line in made)


def test_the_control_takes_one_line() -> None:
    made = report(shell(finding(HELD)), control(finding(OPEN, probe="write.everything"), finding(BROKEN, probe="write.more")))
    about = [line for line in lines(made) if "yolo" in line or "write." in line]
    assert about == ["shell yolo: NOT SANDBOXED, 0 held, 1 broken, 0 inconclusive, 1 open; exposure 10.0 of 10: open"]
    assert any("write.everything" in line for line in lines(made, verbose=True))
    assert any("it crashed" in line for line in lines(report(control(error="it crashed"))))


def test_groups_stand_in_their_order_and_empty_ones_do_not() -> None:
    made = lines(report(shell(*(finding(OPEN, group=group) for group in (Group.NETWORK, Group.READ, Group.NETWORK)))))
    assert [line for line in made if re.fullmatch(r"  [a-z ]+", line)] == ["  reading files", "  network"]


def test_an_error_and_what_got_worse_are_shown() -> None:
    made = lines(report(shell(error="bwrap: not permitted"), worse=("agent: read.key: HELD -> OPEN: it was reached",)))
    assert "  could not be checked: bwrap: not permitted" in made
    assert "  agent: read.key: HELD -> OPEN: it was reached" in made


def test_colour_only_paints() -> None:
    plain, painted = lines(of_every_kind(), verbose=True), lines(of_every_kind(), verbose=True, colour=True)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in painted] == plain
    assert "\x1b" not in "".join(plain)
    for verdict in Verdict:
        codes = {m for line in painted for m in re.findall(rf"\x1b\[([0-9;]+)m{verdict.value}\x1b\[0m", line)}
        assert len(codes) == 1


@with_hostile_texts
@pytest.mark.parametrize("verbose", [True, False])
def test_no_line_is_wider_than_a_terminal_or_more_than_one(text: str, verbose: bool) -> None:
    for line in lines(hostile(text), verbose=verbose):
        assert len(line) <= 100
        assert line.isprintable()


# --- JSON


def test_json_holds_all_of_a_run() -> None:
    found = finding(OPEN, subject="~/x", note="asked for", required=False, severity=Severity.LOW, group=Group.NETWORK)
    made = as_json(report(shell(found, finding(HELD, origin=Origin("never shown"))), shell(name="ci", error="no"), worse=("w",)))
    assert list(made) == ["version", "name", "manifest", "via", "exit_code", "worse", "notes", "shells"]
    first, second = made["shells"]  # type: ignore[misc]
    assert {key: value for key, value in first.items() if key != "findings"} == {
        "name": "agent",
        "fenced": True,
        "error": "",
        "exposure": 1.7,
        "rating": "guarded",
        "counts": {"HELD": 1, "BROKEN": 0, "INCONCLUSIVE": 0, "OPEN": 1},
    }
    assert first["findings"][0] == {
        "id": "read.key ~/x",
        "probe": "read.key",
        "subject": "~/x",
        "question": "Can a key be read?",
        "group": "network",
        "severity": "low",
        "want": "stopped",
        "verdict": "OPEN",
        "required": False,
        "exposed": True,
        "layer": "mount namespace",
        "origin": "wave.yaml:12: keys",
        "at": {"file": "wave.yaml", "line": 12, "column": 5},
        "why": "~/.ssh/id: ENOENT",
        "note": "asked for",
    }
    assert first["findings"][1]["at"] is None
    assert first["findings"][1]["origin"] == "default: never shown"
    assert (second["error"], second["exposure"], second["rating"]) == ("no", None, None)


@with_hostile_texts
def test_json_survives_being_written_and_read(text: str) -> None:
    made = as_json(hostile(text))
    assert json.loads(quote.json_text(made).encode()) == made
    assert made["name"] == one_line(text)


# --- the baseline

ORDER = (HELD, INCONCLUSIVE, OPEN, BROKEN)


def before(made: Report) -> Any:
    """A report as a later run reads it."""
    return json.loads(quote.json_text(as_json(made)))


@pytest.mark.parametrize(("was", "now"), tuple(itertools.product(Verdict, Verdict)))
def test_each_change_of_a_verdict(was: Verdict, now: Verdict) -> None:
    made = worse(before(report(shell(finding(was, subject="~/x")))), report(shell(finding(now, subject="~/x", why="because"))))
    regressed = ORDER.index(now) > ORDER.index(was)
    assert made == ((f"agent: read.key ~/x: {was.value} -> {now.value}: because",) if regressed else ())


def test_a_run_is_not_worse_than_itself() -> None:
    assert worse(before(of_every_kind()), of_every_kind()) == ()
    for text in HOSTILE:
        assert worse(before(hostile(text)), hostile(text)) == ()


@pytest.mark.parametrize(("was", "missed"), [(HELD, True), (INCONCLUSIVE, True), (OPEN, False), (BROKEN, False)])
def test_a_case_or_shell_that_is_gone(was: Verdict, missed: bool) -> None:
    other = finding(HELD, probe="other")
    case = worse(before(report(shell(finding(was), other))), report(shell(other)))
    assert case == ((f"agent: read.key: {was.value} -> gone: this run has no such case",) if missed else ())
    gone = worse(before(report(shell(finding(was)), shell(other, name="build"))), report(shell(other, name="build")))
    assert len(gone) == missed
    assert all(line.startswith("agent: fenced -> gone: ") for line in gone)


def test_what_only_this_run_has_is_no_regression() -> None:
    now = report(shell(finding(HELD), finding(BROKEN, probe="new")), shell(finding(BROKEN), name="new"))
    assert worse(before(report(shell(finding(HELD)))), now) == ()


def test_a_shell_that_fails_now_is_worse_once() -> None:
    failed = report(shell(error="bwrap: no"))
    assert worse(before(report(shell(finding(HELD), finding(HELD, probe="b")))), failed) == ("agent: checked -> could not be checked: bwrap: no",)
    assert worse(before(failed), failed) == ()
    assert worse(before(failed), report(shell(finding(BROKEN)))) == ()


def test_only_fenced_shells_are_compared_and_losing_the_fence_is_worse() -> None:
    assert worse(before(report(control(finding(HELD)))), report(control(finding(BROKEN)))) == ()
    assert worse(before(report(shell(finding(HELD)))), report(shell(finding(HELD), fenced=False))) == (
        "agent: fenced -> NOT SANDBOXED: the shell has no fence any more",
    )


def test_a_case_that_is_there_twice_counts_as_the_worse() -> None:
    made = worse(before(report(shell(finding(HELD)))), report(shell(finding(BROKEN, why="b"), finding(HELD, why="h"))))
    assert made == ("agent: read.key: HELD -> BROKEN: b",)


GOOD: dict[str, Any] = {"version": 1, "shells": [{"name": "a", "fenced": True, "error": "", "findings": [{"id": "x", "verdict": "HELD"}]}]}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        *((value, "is no report") for value in (None, 1, "x", [], {}, {"version": 1}, {"shells": []}, {"version": "1", "shells": []})),
        *((value, "is no report") for value in ({"version": True, "shells": []}, {"version": 1.0, "shells": []}, {"version": 1, "shells": {}})),
        ({**GOOD, "version": 2}, "version 2"),
        ({**GOOD, "version": 0}, "version 0"),
        ({**GOOD, "shells": [1]}, "a shell without"),
        *(({**GOOD, "shells": [{k: v for k, v in GOOD["shells"][0].items() if k != key}]}, "a shell without") for key in GOOD["shells"][0]),
        ({**GOOD, "shells": [{**GOOD["shells"][0], "fenced": 1}]}, "a shell without"),
        ({**GOOD, "shells": [*GOOD["shells"], *GOOD["shells"]]}, "two shells"),
        *(
            ({**GOOD, "shells": [{**GOOD["shells"][0], "findings": [bad]}]}, "a finding of shell a")
            for bad in (1, {}, {"id": "x"}, {"id": 1, "verdict": "HELD"}, {"id": "x", "verdict": "held"}, {"id": "x", "verdict": []})
        ),
    ],
)
def test_a_baseline_that_is_none_is_refused(document: object, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        worse(document, report(shell(finding(HELD, probe="x"), name="a")))
    assert says in str(raised.value)
    assert "wavegen verify --json >FILE" in str(raised.value)
    assert all(line.isprintable() for line in raised.value.message_lines())


def test_the_smallest_baseline_is_read() -> None:
    assert worse(GOOD, report(shell(finding(BROKEN, probe="x", why="y"), name="a"))) == ("a: x: HELD -> BROKEN: y",)


def test_texts_of_a_baseline_forge_no_line() -> None:
    for text in HOSTILE:
        document = {"version": 1, "shells": [{"name": text, "fenced": True, "error": "", "findings": [{"id": text, "verdict": "HELD"}]}]}
        for now in (report(), report(shell(name=text, error=text)), report(shell(finding(BROKEN, probe=text, why=text), name=text)), report(shell(name=text))):
            made = worse(document, now)
            assert len(made) == 1
            assert made[0].isprintable()


# --- JUnit


def test_junit_has_a_suite_per_fenced_shell() -> None:
    root = ET.fromstring(as_junit(of_every_kind(worse=("agent: read.key: HELD -> OPEN: y",))))
    assert root.tag == "testsuites"
    assert [suite.attrib["name"] for suite in root] == ["agent", "build", "ci", "baseline"]
    for element in (root, *root):
        for attribute, kind in (("tests", "testcase"), ("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            assert int(element.attrib[attribute]) == len(list(element.iter(kind)))
    assert root.attrib["tests"] == str(10 * 8 + 3 + 1 + 1 + 1)
    names = {name for element in root.iter() for name in element.attrib}
    assert names == {"name", "classname", "message", "tests", "failures", "errors", "skipped"}


@pytest.mark.parametrize(
    ("verdict", "required", "kind"),
    [
        (HELD, True, None),
        (HELD, False, None),
        (BROKEN, True, "failure"),
        (BROKEN, False, "failure"),
        (INCONCLUSIVE, True, "error"),
        (INCONCLUSIVE, False, "skipped"),
        (OPEN, True, "skipped"),
        (OPEN, False, "skipped"),
    ],
)
def test_the_outcome_of_a_case_in_junit(verdict: Verdict, required: bool, kind: str | None) -> None:
    root = ET.fromstring(as_junit(report(shell(finding(verdict, required=required, group=Group.NETWORK, subject="~/x", why="because")))))
    (case,) = root.iter("testcase")
    assert case.attrib == {"classname": "wavegen.agent.network", "name": "read.key ~/x Can a key be read?"}
    assert [child.tag for child in case] == ([kind] if kind else [])
    for child in case:
        assert "because" in child.attrib["message"]
        assert child.text == "because\nlayer: mount namespace\nfrom: wave.yaml:12: keys"


def test_errors_and_the_baseline_are_cases_in_junit() -> None:
    root = ET.fromstring(
        as_junit(report(shell(finding(HELD)), shell(name="ci", error="bwrap: no"), control(error="lost"), worse=("agent: a: HELD -> OPEN: b",)))
    )
    assert [(case.attrib["classname"], child.tag, child.attrib["message"]) for case in root.iter("testcase") for child in case] == [
        ("wavegen.ci", "error", "bwrap: no"),
        ("wavegen.yolo", "error", "lost"),
        ("wavegen.baseline", "failure", "agent: a: HELD -> OPEN: b"),
    ]


@with_hostile_texts
def test_junit_is_well_formed_whatever_a_text_holds(text: str) -> None:
    root = ET.fromstring(as_junit(hostile(text)).encode())
    assert [suite.attrib["name"] for suite in root] == [one_line(text), one_line(text + "2"), "baseline"]
    assert {child.tag for case in root.iter("testcase") for child in case} == {"failure", "error", "skipped"}
    assert len(list(root.iter("testcase"))) == 8 + 1 + 2


# --- SARIF


def results(log: dict[str, Any]) -> list[dict[str, Any]]:
    return log["runs"][0]["results"]  # type: ignore[no-any-return]


def check_sarif(log: dict[str, Any]) -> None:
    """The structure that the standard and GitHub ask for."""
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("wavegen", "1.2.3")
    rules = driver["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    for rule in rules:
        assert all(0 < len(rule[key]["text"]) <= 1024 for key in ("shortDescription", "fullDescription", "help"))
        assert rule["properties"]["security-severity"] in {"9.5", "8.0", "5.0", "2.0"}
        assert "security" in rule["properties"]["tags"]
    assert {result["ruleId"] for result in run["results"]} == {rule["id"] for rule in rules}
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in {"error", "warning"}
        assert result["message"]["text"]
        assert re.fullmatch(r"[0-9a-f]{32}:1", result["partialFingerprints"]["primaryLocationLineHash"])
        (location,) = result["locations"]
        place = location["physicalLocation"]
        assert place["region"]["startLine"] >= 1
        assert place["region"].get("startColumn", 1) >= 1
        assert place["artifactLocation"]["uriBaseId"] == "%SRCROOT%"
        uri = place["artifactLocation"]["uri"]
        assert re.fullmatch(r"(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})+", uri)
        split = urlsplit(uri)
        assert not (split.scheme)
        assert not (split.netloc)
        assert not (uri.startswith("/"))
    prints = [result["partialFingerprints"]["primaryLocationLineHash"] for result in run["results"]]
    assert len(set(prints)) == len(prints)


def test_sarif_has_the_structure_that_is_asked_for() -> None:
    made = as_sarif(of_every_kind(worse=("agent: read.key: HELD -> OPEN: y",)), "1.2.3")
    check_sarif(made)
    assert len(results(made)) == 10 * 3 + 1 + 1 + 1
    check_sarif(as_sarif(report(), "1.2.3"))
    assert as_sarif(report(shell(finding(HELD))), "1.2.3")["runs"][0]["tool"]["driver"]["rules"] == []  # type: ignore[index]


@with_hostile_texts
def test_sarif_keeps_its_structure_whatever_a_text_holds(text: str) -> None:
    made = as_sarif(hostile(text), "1.2.3")
    check_sarif(made)
    assert json.loads(quote.json_text(made).encode()) == made
    for result in results(made):
        assert re.sub(r"\\[\[\]\\]", "", result["message"]["text"]).count("[") == 0


@pytest.mark.parametrize(
    ("verdict", "severity", "level", "number"),
    [
        (BROKEN, Severity.CRITICAL, "error", "9.5"),
        (BROKEN, Severity.HIGH, "error", "8.0"),
        (BROKEN, Severity.MEDIUM, "error", "5.0"),
        (BROKEN, Severity.LOW, "warning", "2.0"),
        (INCONCLUSIVE, Severity.CRITICAL, "warning", "9.5"),
    ],
)
def test_levels_in_sarif(verdict: Verdict, severity: Severity, level: str, number: str) -> None:
    made: Any = as_sarif(report(shell(finding(verdict, severity=severity, why="because"))), "1.2.3")
    (result,) = results(made)
    assert (result["level"], result["ruleId"]) == (level, "read.key")
    assert "because" in result["message"]["text"]
    (rule,) = made["runs"][0]["tool"]["driver"]["rules"]
    assert rule["properties"]["security-severity"] == number
    assert rule["properties"]["tags"] == ["security", "read"]


def test_what_does_not_fail_is_no_result_in_sarif() -> None:
    made = report(shell(finding(HELD), finding(OPEN), finding(INCONCLUSIVE, required=False)), control(finding(BROKEN)))
    assert results(as_sarif(made, "1")) == []


@pytest.mark.parametrize(
    ("origin", "uri", "region"),
    [
        (LINE, "wave.yaml", {"startLine": 12, "startColumn": 5}),
        (Origin("", Location("wave.yaml", 7)), "wave.yaml", {"startLine": 7}),
        (Origin("", Location("wave.local.yaml")), "wave.local.yaml", {"startLine": 1}),
        (Origin("never shown"), "wave.yaml", {"startLine": 1}),
        (Origin("", Location("a b/é:#?%.yaml", 2)), "a%20b/%C3%A9%3A%23%3F%25.yaml", {"startLine": 2}),
        (Origin("", Location("//evil.example/x", 2)), "evil.example/x", {"startLine": 2}),
    ],
)
def test_a_result_stands_at_the_line_that_asked_for_it(origin: Origin, uri: str, region: dict[str, int]) -> None:
    (result,) = results(as_sarif(report(shell(finding(BROKEN, origin=origin))), "1"))
    place = result["locations"][0]["physicalLocation"]
    assert place["region"] == region
    assert place["artifactLocation"]["uri"] == uri
    assert unquote(uri) == (origin.at.file.lstrip("/") if origin.at else "wave.yaml")


def test_fingerprints_depend_on_shell_and_case_alone() -> None:
    def prints(*shells: ShellReport, worse: tuple[str, ...] = ()) -> list[str]:
        return [result["partialFingerprints"]["primaryLocationLineHash"] for result in results(as_sarif(report(*shells, worse=worse), "1"))]

    first = prints(shell(finding(BROKEN)))
    assert first == prints(shell(finding(INCONCLUSIVE, why="other", origin=Origin("moved", Location("wave.yaml", 99)))))
    assert first != prints(shell(finding(BROKEN), name="build"))
    assert first != prints(shell(finding(BROKEN, subject="~/x")))
    held = shell(finding(HELD))
    assert prints(held, worse=("a: b: HELD -> OPEN: c",)) == prints(held, worse=("a: b: HELD -> BROKEN: d",)) != prints(held, worse=("a: c: HELD -> OPEN: c",))


# --- the page

VOID = {"meta", "input", "br", "img", "link", "hr"}


class Page(HTMLParser):
    """The elements of a page, whose tags must be balanced, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.style = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs)
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] == "style":
            self.style += data
        else:
            self.text.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]

    def classes(self, tag: str) -> list[set[str]]:
        return [set((attrs.get("class") or "").split()) for attrs in self.all(tag)]


def check_page(text: str) -> Page:
    """No script, nothing from elsewhere, and ids that are there once."""
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>\n")
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "link", "iframe", "object", "embed", "form", "base", "svg", "video", "audio"}
    assert len(page.all("style")) == len(page.all("title")) == len(page.all("table")) == len(page.all("caption")) == 1
    for tag, attrs in page.elements:
        assert not {name for name in attrs if name.startswith("on")} | attrs.keys() & {"src", "srcset", "style", "action"}, tag
        assert (attrs.get("href") or "#").startswith("#")
    assert not re.search(r"url\(|@import|expression\(", page.style)
    (policy,) = [attrs["content"] for attrs in page.all("meta") if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    ids = [attrs["id"] for _, attrs in page.elements if "id" in attrs]
    assert len(set(ids)) == len(ids)
    assert {(attrs["href"] or "")[1:] for attrs in page.all("a")} <= set(ids)
    return page


def test_the_page_is_a_table_of_cases_and_shells() -> None:
    made = of_every_kind(worse=("agent: read.key: HELD -> OPEN: y",))
    page = check_page(as_html(made))
    columns = [attrs for attrs in page.all("th") if attrs["scope"] == "col"]
    assert len(columns) == 1 + len(made.shells)
    assert len([attrs for attrs in page.all("th") if attrs["scope"] == "row"]) == 10 * 8 + 3
    assert [attrs["colspan"] for attrs in page.all("th") if attrs["scope"] == "rowgroup"] == ["5"] * len(Group)
    assert len(page.all("td")) == (10 * 8 + 3) * len(made.shells)
    assert len(page.all("details")) == len(page.all("summary")) == 10 * 8 + 3 + 1 + 1
    assert len([attrs for attrs in page.all("details") if "open" in attrs]) == 10 * 3 + 1
    words = " ".join(" ".join(page.text).split())
    for text in (
        "demo",
        "wave.yaml",
        "bwrap",
        "Exposure",
        "NOT SANDBOXED",
        "bwrap: no",
        "agent: read.key: HELD -> OPEN: y",
        "default: never shown",
        "asked for",
    ):
        assert text in words
    assert "critical 10, high 5, medium 2, low 1" in words


def test_the_control_s_column_is_the_last() -> None:
    page = check_page(as_html(report(control(finding(OPEN)), shell(finding(HELD)))))
    assert ["control" in found for found in page.classes("td")] == [False, True]
    assert [found & {"held", "open"} for found in page.classes("td")] == [{"held"}, {"open"}]
    text = [part for part in page.text if part in {"agent", "yolo"}]
    assert text == ["agent", "yolo", "agent", "yolo"]


def test_rows_can_be_filtered_by_what_they_hold() -> None:
    made = report(shell(finding(HELD), finding(BROKEN, probe="b", group=Group.NETWORK)), shell(finding(OPEN), name="build"), control(finding(INCONCLUSIVE)))
    page = check_page(as_html(made))
    assert [found for found in page.classes("tr") if "case" in found] == [{"case", "has-held", "has-open"}, {"case", "has-broken"}]
    boxes = {attrs["id"]: attrs for attrs in page.all("input")}
    assert set(boxes) == {f"verdict-{verdict.name.lower()}" for verdict in Verdict} | {"group-read", "group-network"}
    assert all(attrs["type"] == "checkbox" and "checked" in attrs for attrs in boxes.values())
    assert [attrs["id"] for attrs in page.all("tbody")] == ["section-read", "section-network"]
    for box in boxes:
        assert f"#{box}:" in page.style
    # Both ids: the rule must be more specific than the one that hides all rows.
    assert "body:has(#verdicts #verdict-held:checked) .has-held {" in page.style
    # They stand before the table, and without them everything is shown.
    order = [tag for tag, _ in page.elements]
    assert max(place for place, tag in enumerate(order) if tag == "input") < order.index("table")
    hides = [rule for rule in re.findall(r"^.*display: none.*$", page.style, re.MULTILINE) if "filters" not in rule]
    assert hides
    assert all(":has(" in rule for rule in hides)


def test_a_verdict_is_a_word_and_not_only_a_colour() -> None:
    page = check_page(as_html(report(shell(*(finding(verdict, probe=verdict.name) for verdict in Verdict)))))
    for verdict in Verdict:
        assert f" {verdict.value}" in [part.rstrip() for part in page.text]


@with_hostile_texts
def test_the_page_stays_whole_whatever_a_text_holds(text: str) -> None:
    made = as_html(hostile(text))
    page = check_page(made)
    made.encode()
    assert all(c.isprintable() or c == "\n" for c in made)
    assert len(page.all("td")) == 8 * 3
    assert one_line(text) in page.text
    plain = check_page(as_html(hostile("plain")))
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]


def luminance(colour: str) -> float:
    """As WCAG defines it, of `rgb` or `rrggbb`."""
    digits = "".join(c * 2 for c in colour) if len(colour) == 3 else colour
    channels = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_every_text_can_be_told_from_what_is_behind_it() -> None:
    blocks = re.findall(r":root \{(.*?)\}", Page(as_html(report())).style, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        colour = {name: luminance(value) for name, value in re.findall(r"--([\w-]+): #([0-9a-f]+);", block)}
        pairs = [(front, back) for front in ("text", "quiet", "held", "broken", "inconclusive", "open") for back in ("page", "panel")]
        pairs += [(front, f"{verdict}-back") for verdict in ("held", "broken", "inconclusive") for front in ("text", "quiet", verdict)]
        for front, back in pairs:
            light, dark = sorted((colour[front], colour[back]), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (front, back)


def test_html_quotes_every_character() -> None:
    assert quote.escape_html("&<>\"'") == "&amp;&lt;&gt;&quot;&#39;"
    assert quote.escape_html("a\0b\nc\x1b") == "a\\x00b\\nc\\x1b"
    assert quote.escape_html("é 日本 😀") == "é 日本 😀"
    every = "".join(map(chr, range(0x3000))) + "\ud800\udfff\ufffe\uffff"
    assert all(c.isprintable() for c in quote.escape_html(every))
    assert not set("<>\"'") & set(quote.escape_html(every))


# --- all of them


def everything() -> Iterable[Report]:
    return (of_every_kind(), of_every_kind(worse=("agent: x: HELD -> OPEN: y",)), report(), *(hostile(text) for text in HOSTILE[:8]))


def test_the_same_run_gives_the_same_bytes() -> None:
    for first, second in zip(everything(), everything(), strict=True):
        assert renderings(first) == renderings(second)


def test_no_report_holds_a_path_of_this_machine_or_a_time() -> None:
    for text in renderings(of_every_kind()).values():
        assert len(text) > 100
        assert str(ROOT) not in text
        assert not re.search(r"(?<![\w~.])/(?:home|root|tmp|usr|work)/|\b20\d\d-\d\d|timestamp|hostname|0x[0-9a-f]{6}", text)


def test_every_report_tells_what_is_broken() -> None:
    for name, text in renderings(report(shell(finding(BROKEN, subject="~/.ssh", why="it was reached")))).items():
        assert "read.key" in text, name
        assert "it was reached" in text, name
