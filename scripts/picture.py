"""docs/demo.svg: what `make demo` prints, and what `wavegen verify` says of the same project, as a picture of a terminal.

`python scripts/picture.py` runs both for real; what they say of this machine is what the picture shows.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs/demo.svg"
COLUMNS, LINE, LETTER, EDGE = 98, 18, 8.0, 16
INK, PAPER, FAINT = "#d8dee6", "#15191f", "#8b949e"
COLOURS = {
    "stopped": "#3fb950",
    "refused": "#3fb950",
    "works": "#58a6ff",
    "reached": "#58a6ff",
    "fenced": "#3fb950",
    "NOT SANDBOXED": "#f85149",
    "tight": "#3fb950",
}
STYLE = f"text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:{INK};white-space:pre}}"


def session() -> Iterator[str]:
    """The commands, and what they print."""
    path = f"{ROOT}/.venv/bin:{os.environ['PATH']}"
    yield "$ make demo"
    demo = _output(["examples/quickstart/demo"], ROOT, os.environ | {"PATH": path})
    yield from demo.partition("\n\nWhat this fence")[0].splitlines()
    yield ""
    yield "$ wavegen verify"
    with tempfile.TemporaryDirectory() as place:
        project = Path(place) / "project"
        project.mkdir()
        (project / "wave.yaml").write_bytes((ROOT / "examples/quickstart/wave.yaml").read_bytes())
        environment = os.environ | {"PATH": path, "HOME": place}
        _output(["wavegen", "render"], project, environment)
        said = _output(["wavegen", "verify"], project, environment)
    # What each shell came to; the picture has no room for the probes one by one.
    yield from (line for line in said.splitlines() if re.match(r"shell |held: ", line))


def _output(argv: list[str], directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(argv, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{argv[0]}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def picture(lines: list[str]) -> str:
    """Lines of a terminal, wrapped where they are too long."""
    rows = [row for line in lines for row in _wrapped(line)]
    width, height = COLUMNS * LETTER + 2 * EDGE, len(rows) * LINE + 2 * EDGE
    body = "\n".join(
        f'<text xml:space="preserve" x="{EDGE}" y="{EDGE + LINE * number + 13}">{_coloured(row)}</text>' for number, row in enumerate(rows) if row.strip()
    )
    title = "<title>What is tried outside and inside of a fence, and what verify says of it</title>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" role="img">{title}<style>{STYLE}</style>\n'
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>\n{body}\n</svg>\n'
    )


def _wrapped(line: str) -> list[str]:
    rows = []
    while len(line) > COLUMNS:
        cut = line.rfind(" ", 0, COLUMNS)
        rows.append(line[:cut])
        line = "    " + line[cut + 1 :]
    return [*rows, line.rstrip()]


def _coloured(row: str) -> str:
    if row.startswith("$ "):
        return f'<tspan fill="{FAINT}">$</tspan>{escape(row[1:])}'
    words = "|".join(map(re.escape, COLOURS))
    return re.sub(rf"\b({words})\b", lambda found: f'<tspan fill="{COLOURS[found[0]]}">{found[0]}</tspan>', escape(row))


def main() -> None:
    """Write the picture."""
    PICTURE.write_text(picture(list(session())), "utf-8")
    print(f"wrote {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
