"""What the README says that the program knows better."""

from __future__ import annotations

from helpers import ROOT

from wavegen.backends.sandboxes import docker

README = (ROOT / "README.md").read_text("utf-8")


def test_the_differences_of_containers_are_those_of_the_back_end() -> None:
    lines = README.splitlines()
    start = lines.index("| | in a container | so |")
    rows = lines[start + 2 : lines.index("", start)]
    assert rows == [f"| {effect.value} | {what} | {remedy} |" for effect, what, remedy in (*docker.DIFFERENCES, *docker.JUDGED)]
