"""The pages of docs/ that the program writes are what it says now."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

from helpers import ROOT

from wavegen.backends.sandboxes import docker
from wavegen.cli.main import cli
from wavegen.core import errors
from wavegen.manifest.json_schema import manifest_schema
from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.model import Access
from wavegen.policy.planner import plan_manifest
from wavegen.verify.catalogue import PROBES
from wavegen.verify.model import Verdict


def test_pages_that_are_written_are_what_the_program_says() -> None:
    done = subprocess.run([sys.executable, "scripts/documentation.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_key_has_a_line_and_every_mapping_a_place() -> None:
    text = (ROOT / "docs/manifest.md").read_text("utf-8")
    definitions = manifest_schema()["$defs"]
    for name, definition in definitions.items():
        section = text.partition(f'<a id="{name.lower()}"></a>')[2].partition("\n## ")[0]
        assert re.findall(r"^\| `(\w+)` \| \S", section, re.MULTILINE) == list(definition["properties"]), name
    places = re.findall(r"\(#(\w+)\)", text)
    assert set(places) <= {name.lower() for name in definitions}
    assert len(places) >= len(definitions) - 1


def test_every_probe_has_a_line_and_what_is_critical_is_held() -> None:
    rows = re.findall(r"^\| (\w+) \| (.+?) \| (\w+) \| ([\w ]*) \| ([\w ]*) \|$", (ROOT / "docs/protection.md").read_text("utf-8"), re.MULTILINE)
    questions = {probe.id: probe.question for probe in PROBES}
    assert {name: question.replace("\\|", "|") for name, question, *_ in rows}.items() <= questions.items()
    # What a manifest without any grants, limits or personas has nothing to do with is not there.
    assert len(rows) > 0.8 * len(questions)
    critical = [row for row in rows if row[2] == "critical"]
    assert len(critical) > 40
    assert [row[0] for row in critical if row[4] not in ("held", "")] == []
    # `default` has the host's network.
    assert [row[0] for row in critical if row[3] not in ("held", "") and not row[0].startswith("N")] == []


def test_the_differences_of_containers_are_those_of_the_back_end() -> None:
    lines = (ROOT / "docs/containers.md").read_text("utf-8").splitlines()
    start = lines.index("| | in a container | so |")
    rows = lines[start + 2 : lines.index("", start)]
    assert rows == [f"| {effect.value} | {what} | {remedy} |" for effect, what, remedy in (*docker.DIFFERENCES, *docker.JUDGED)]


def test_every_command_and_every_exit_status_has_a_line() -> None:
    text = (ROOT / "docs/commands.md").read_text("utf-8")
    assert sorted(re.findall(r"^\| `wavegen (\w+)` \| \S", text, re.MULTILINE)) == sorted(cli.commands)
    raised = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.WavegenError)}
    assert {int(status) for status in re.findall(r"^\| (\d+) \| \S", text, re.MULTILINE)} == {0, *raised}


# --- our words

GLOSSARY = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", (ROOT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE)[1:]


def test_the_glossary_is_short_and_in_alphabetical_order() -> None:
    words = [word.lower() for word, *_ in GLOSSARY]
    assert 20 <= len(words) <= 30
    assert words == sorted(set(words))


def test_each_word_has_one_sentence_and_the_place_where_it_is_met() -> None:
    known = {key for definition in manifest_schema()["$defs"].values() for key in definition["properties"]}
    for word, meaning, where in GLOSSARY:
        assert re.fullmatch(r"[A-Z].*\.", meaning), word
        assert not re.search(r"[.!] [A-Z]", meaning), word
        met = re.findall(r"`([^`]+)`", where)
        assert met, word
        for place in met:
            verb = re.match(r"wavegen (\w+)", place)
            assert verb is None or verb[1] in cli.commands, (word, place)
            assert not re.fullmatch(r"[a-z_]+", place) or place in known | {"hide"}, (word, place)


def test_the_glossary_names_each_verdict() -> None:
    meanings = {word: meaning for word, meaning, _ in GLOSSARY}
    assert {verdict.value for verdict in Verdict} <= set(meanings)
    assert all(verdict.value in meanings["verdict"] for verdict in Verdict)


# --- coming from something else

MIGRATION = (ROOT / "docs/migration.md").read_text("utf-8")


def test_the_manifest_of_the_bwrap_script_grants_what_the_script_does(tmp_path: Path) -> None:
    (manifest,) = re.findall(r"```yaml\n(.*?)```", MIGRATION, re.DOTALL)
    shell = plan_manifest(Source("wave.yaml", manifest.encode()), None, "wave.sandbox.yaml").find_shell("default")
    assert shell is not None
    granted = {(str(rule.path), rule.access) for rule in shell.paths if rule.origin.at}
    assert granted == {("~/.gitconfig", Access.READ), ("~/.cache/go-build", Access.WRITE)}
    assert "ANTHROPIC_API_KEY" in {rule.name for rule in shell.environment if rule.value is None}


def test_every_key_of_the_table_is_one_of_the_manifest() -> None:
    known = {key for definition in manifest_schema()["$defs"].values() for key in definition["properties"]}
    rows = re.findall(r"^\| (?:`|--|[^|]*`)[^|]* \| ([^|]*) \| [^|]*\|$", MIGRATION, re.MULTILINE)
    keys = {key for cell in rows for key in re.findall(r"`(?:\w+: \{\w+: \{)?(\w+)(?:: |`)", cell)}
    assert len(keys) >= 8
    assert keys - known - {"strict", "off"} == set()


# --- the picture


def test_the_picture_shows_what_a_terminal_does() -> None:
    code = "import sys; sys.path.insert(0, 'scripts'); from picture import picture; print(picture(['$ x <y>', 'it works, and is stopped', 'w ' * 80]))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    root = ET.fromstring(done.stdout)
    lines = ["".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert lines[:2] == ["$ x <y>", "it works, and is stopped"]
    assert len(lines) == 4
    assert [span.text for span in root.iter("{http://www.w3.org/2000/svg}tspan")] == ["$", "works", "stopped"]


def test_the_picture_that_is_shown_is_of_the_demo() -> None:
    root = ET.fromstring((ROOT / "docs/demo.svg").read_text("utf-8"))
    text = "\n".join("".join(text.itertext()) for text in root.iter("{http://www.w3.org/2000/svg}text"))
    assert "$ make demo" in text
    assert re.search(r"shell restricted: fenced, 1\d\d held, 0 broken", text)


def test_every_link_within_the_documentation_leads_somewhere() -> None:
    pages = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"))
    for page in pages:
        text = page.read_text("utf-8")
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in link:
                continue
            path, _, place = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), (page.name, link)
            if place:
                headings = {
                    re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
                }
                assert place in headings | set(re.findall(r'<a id="(\w+)">', target.read_text("utf-8"))), (page.name, link)
