"""The pages of docs/ that the program writes are what it says now."""

from __future__ import annotations

import re
import subprocess
import sys

from helpers import ROOT

from wavegen.probes.catalogue import PROBES
from wavegen.schema import manifest_schema


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
