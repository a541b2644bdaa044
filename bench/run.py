"""How fast it is, as ratios of things measured side by side in one run.

Every pair is run in turns, so that other load meets both; medians and ranges are in milliseconds.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import containers
import egress
from side_by_side import RUNS, bwrap_of, compare

CORPUS = Path(__file__).parent.parent.parent / "shared/manifests/current.yaml"


def personas(count: int) -> str:
    """A manifest with that many personas."""
    head = "apiVersion: v1\nkind: WaveManifest\nmetadata: {name: many}\nadapters:\n  claude: {binary: claude, mode: headless}\npersonas:\n"
    one = "  p{0}:\n    adapter: claude\n    system_prompt_file: p{0}.md\n    permissions:\n      allowed_tools: [Read, Grep, 'Bash(git log*)']\n      deny: ['Write(*)']\n    sandbox:\n      allowed_domains: [api.anthropic.com, 'h{0}.example.org']\n"
    return head + "".join(one.format(i) for i in range(count))


def main() -> None:
    """Run all of it."""
    print(f"{platform.platform()}, {os.cpu_count()} processors, Python {platform.python_version()}, {RUNS} runs each")
    python, wavegen = sys.executable, [sys.executable, "-m", "wavegen"]
    with tempfile.TemporaryDirectory() as name:
        base = Path(name).resolve()
        os.environ |= {"HOME": str(base / "home")}
        os.environ.pop("XDG_STATE_HOME", None)
        (base / "home").mkdir()
        project = base / "project"
        project.mkdir()
        (project / "wave.yaml").write_text(CORPUS.read_text(encoding="utf-8") if CORPUS.exists() else personas(31), encoding="utf-8")
        subprocess.run([*wavegen, "render"], cwd=project, check=True, capture_output=True)
        for shell, limit in (
            ("default", "2x, with a second layer, and the look at what is left behind"),
            ("restricted", "5x, as it starts Python and a network namespace too"),
        ):
            wrapper = [str(project / ".wavegen/bin" / shell), "/bin/true"]
            subprocess.run(wrapper, cwd=project, check=True)
            (rules,) = (project / ".wavegen/seccomp").glob("*.bpf")
            raw = bwrap_of(wrapper, rules, project)
            compare(f"starting {shell}", project, ("bwrap with the same arguments", raw), (f"wrapper of {shell}", wrapper), limit=limit)
        bare = ("python3 -c pass", [python, "-c", "pass"])
        render = ("render, nothing to do", [*wavegen, "render"])
        help_ = ("--help", [*wavegen, "--help"])
        check = ("render --check", [*wavegen, "render", "--check"])
        compare(
            "wavegen on Wave's own manifest, 31 personas",
            project,
            bare,
            help_,
            render,
            check,
            limit="+60 ms for --help, +150 ms for render",
            runs=max(10, RUNS // 3),
        )
        one = ("verify, one shell", [*wavegen, "verify", "--shell", "restricted"])
        three = ("verify, all three", [*wavegen, "verify"])
        compare("proving the fence, with the control", project, bare, one, three, limit="3,000 ms for one shell, 8,000 ms for all", runs=max(5, RUNS // 12))
        many = base / "many"
        many.mkdir()
        (many / "wave.yaml").write_text(personas(1000), encoding="utf-8")
        compare("1,000 personas", many, bare, ("render", [*wavegen, "render"]), limit="1,500 ms", runs=8)
    containers.main()
    egress.main()


if __name__ == "__main__":
    main()
