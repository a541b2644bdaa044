"""How fast it is, as ratios of things measured side by side in one run.

Every pair is run in turns, so that other load meets both; medians and ranges are in milliseconds. `run.py [--chart FILE] [PART...]`: parts are
startup, work, egress; without any, all. WAVEGEN_BENCH_RUNS is how many turns there are.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import egress
import startup
from chart import chart
from side_by_side import FOUND, RUNS, compare

PARTS = ("startup", "work", "egress")
CORPUS = Path(__file__).parent.parent.parent / "shared/manifests/current.yaml"


def personas(count: int) -> str:
    """A manifest with that many personas."""
    head = "apiVersion: v1\nkind: WaveManifest\nmetadata: {name: many}\nadapters:\n  claude: {binary: claude, mode: headless}\npersonas:\n"
    one = "  p{0}:\n    adapter: claude\n    system_prompt_file: p{0}.md\n    permissions:\n      allowed_tools: [Read, Grep, 'Bash(git log*)']\n      deny: ['Write(*)']\n    sandbox:\n      allowed_domains: [api.anthropic.com, 'h{0}.example.org']\n"
    return head + "".join(one.format(i) for i in range(count))


def work(base: Path) -> None:
    """What the program itself takes: rendering and proving."""
    python, wavegen = sys.executable, [sys.executable, "-m", "wavegen"]
    bare = ("python3 -c pass", [python, "-c", "pass"])
    project = base / "work"
    project.mkdir()
    (project / "wave.yaml").write_text(CORPUS.read_text(encoding="utf-8") if CORPUS.exists() else personas(31), encoding="utf-8")
    subprocess.run([*wavegen, "render"], cwd=project, check=True, capture_output=True)
    verbs = [
        ("--help", [*wavegen, "--help"]),
        ("run -- true", [*wavegen, "run", "--", "true"]),
        ("render --check", [*wavegen, "render", "--check"]),
        ("render, nothing to do", [*wavegen, "render"]),
        # A manifest that is named is read and planned.
        ("render --manifest", [*wavegen, "render", "--manifest", "wave.yaml"]),
    ]
    limit = "beside Python alone +35 ms for --help, +100 ms for run, +80 ms for --check, +150 ms for render"
    compare("wavegen with 31 personas", project, bare, *verbs, limit=limit, runs=max(10, RUNS // 3))
    one = ("verify, one shell", [*wavegen, "verify", "--shell", "restricted"])
    three = ("verify, all three", [*wavegen, "verify"])
    compare("proving the fence, with the control", project, bare, one, three, limit="2,000 ms for one shell, 4,000 ms for all", runs=max(5, RUNS // 12))
    many = []
    for count in (10, 100, 1000):
        place = base / f"many-{count}"
        place.mkdir()
        (place / "wave.yaml").write_text(personas(count), encoding="utf-8")
        subprocess.run([*wavegen, "render"], cwd=place, check=True, capture_output=True)
        many.append((f"render, {count:,} personas", [*wavegen, "render", "--manifest", str(place / "wave.yaml")]))
    compare("rendering more and more personas", base, bare, *many, limit="1,200 ms for 1,000", runs=8)


def main() -> None:
    """Run what is named, or all of it."""
    parser = argparse.ArgumentParser(description="How fast wavegen is, beside what it is compared with.")
    parser.add_argument("--chart", metavar="FILE", help="draw what was measured as an SVG picture")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all without any")
    asked = parser.parse_args()
    if unknown := [part for part in asked.parts if part not in PARTS]:
        parser.error(f"{unknown[0]} is none of {', '.join(PARTS)}")
    parts = asked.parts or PARTS
    print(f"{platform.platform()}, {os.cpu_count()} processors, Python {platform.python_version()}, {RUNS} turns where nothing else is said")
    # Below /tmp, as whom containers run as must reach it.
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        base = Path(name).resolve()
        base.chmod(0o755)
        os.environ |= {"HOME": str(base / "home")}
        os.environ.pop("XDG_STATE_HOME", None)
        (base / "home").mkdir()
        if "startup" in parts:
            startup.main(base)
        if "work" in parts:
            work(base)
    if "egress" in parts:
        egress.main()
    if asked.chart:
        Path(asked.chart).write_text(chart(FOUND), encoding="utf-8")


if __name__ == "__main__":
    main()
