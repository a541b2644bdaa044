"""How fast it is, as ratios of things measured side by side in one run.

Every pair is run in turns, so that other load meets both; medians and ranges are in milliseconds.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

RUNS = int(os.environ.get("WAVEGEN_BENCH_RUNS", "60"))
CORPUS = Path(__file__).parent.parent.parent / "shared/manifests/current.yaml"


def once(argv: list[str], directory: Path) -> float:
    """Milliseconds of one run; it must succeed. A word @FILE is the descriptor of that file, open."""
    handles = [os.open(word.removeprefix("@"), os.O_RDONLY) for word in argv if word.startswith("@")]
    argv = [str(handles[0]) if word.startswith("@") else word for word in argv]
    start = time.perf_counter()
    done = subprocess.run(argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=handles, check=False)
    taken = (time.perf_counter() - start) * 1000
    for handle in handles:
        os.close(handle)
    if done.returncode:
        sys.exit(f"{shlex.join(argv)}: status {done.returncode}")
    return taken


def compare(title: str, directory: Path, base: tuple[str, list[str]], *others: tuple[str, list[str]], limit: str, runs: int = RUNS) -> None:
    """Print the base and each other with their ratio to it."""
    columns: dict[str, list[float]] = {name: [] for name, _ in (base, *others)}
    for turn in range(runs + 3):
        for name, argv in (base, *others):
            taken = once(argv, directory)
            if turn >= 3:  # noqa: PLR2004  the first three warm the caches
                columns[name].append(taken)
    print(f"\n{title} (aim: {limit})")
    reference = median(columns[base[0]])
    for name, values in columns.items():
        middle = median(values)
        print(f"  {name:<34} {middle:8.1f} ms  [{min(values):.1f}..{max(values):.1f}]  {middle / reference:5.2f}x  {middle - reference:+8.1f} ms")


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
        for shell in ("default", "restricted"):
            wrapper = [str(project / ".wavegen/bin" / shell), "/bin/true"]
            subprocess.run(wrapper, cwd=project, check=True)
            printed = subprocess.run([wrapper[0], "--print", "--", "/bin/true"], cwd=project, check=True, capture_output=True, text=True).stdout
            (rules,) = (base / "home/.local/state/wavegen").glob(f"*/{shell}/filter-*")
            raw = shlex.split(printed)
            end = raw.index("--")
            raw[end:end] = ["--new-session", "--seccomp", f"@{rules}"]
            compare(f"starting {shell}", project, ("bwrap with the same arguments", raw), (f"wrapper of {shell}", wrapper), limit="1.5x")
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


if __name__ == "__main__":
    main()
