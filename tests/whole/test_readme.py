"""The README is short, and leads to every page: what it says more is where a reader looks for it."""

from __future__ import annotations

import re

from helpers import MINIMAL, ROOT

from wavegen.manifest.yaml_nodes import Source
from wavegen.policy.planner import plan_manifest

README = (ROOT / "README.md").read_text("utf-8")
GROUPS = ("Tutorial", "How-to", "Reference", "Explanation")


def test_it_is_read_in_two_minutes() -> None:
    assert len(README.splitlines()) <= 120
    assert len(re.findall(r"[.!?](?:\s|$)", README.partition("\n\n")[2].partition("\n\n")[0])) == 3


def test_a_demo_and_the_tests_are_one_command_each() -> None:
    (block,) = re.findall(r"```\n(make .*?)```", README, re.DOTALL)
    assert [line.partition("  ")[0] for line in block.splitlines()] == ["make demo", "make test"]


def test_every_page_stands_in_one_of_four_groups_and_in_no_other() -> None:
    text = README.partition("\n## Documentation\n")[2]
    groups = re.findall(r"^### (.*?):.*\n((?:(?!### ).*\n)*)", text, re.MULTILINE)
    assert tuple(name for name, _ in groups) == GROUPS
    linked = [link for _, group in groups for link in re.findall(r"\]\((\S+?)\)", group)]
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} - {"docs/index.md"}  # the website's own first page
    assert sorted(linked) == sorted(pages | {"CONTRIBUTING.md", "CHANGELOG.md"})


def test_its_table_has_the_shells_that_every_manifest_has() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)
    assert rows == [shell.name for shell in plan_manifest(Source("wave.yaml", MINIMAL.encode()), None, "wave.sandbox.yaml").shells]
