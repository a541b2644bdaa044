"""Things measured in turns, so that other load meets all of them; ratios are those of the runs of one turn."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RUNS = int(os.environ.get("WAVEGEN_BENCH_RUNS", "60"))

_SETTLE = 0.05
"""Seconds between two runs."""


@dataclass(frozen=True)
class Measured:
    """What was measured in turns: of each thing as many values as there were turns, the first thing being what the others are compared with."""

    title: str
    aim: str
    unit: str
    columns: dict[str, list[float]]

    @property
    def base(self) -> str:
        """What the others are compared with."""
        return next(iter(self.columns))

    def spread(self, name: str) -> tuple[float, float, float]:
        """The ratios of one thing to the base within a turn: median, least, most."""
        found = [value / reference for value, reference in zip(self.columns[name], self.columns[self.base], strict=True)]
        return median(found), min(found), max(found)


FOUND: list[Measured] = []
"""Whatever this run has measured, in its order."""


def once(argv: list[str], directory: Path) -> float:
    """Milliseconds of one run; it must succeed. A word @FILE is the descriptor of that file, open."""
    handles: list[int] = []
    for at, word in enumerate(argv):
        if word.startswith("@"):
            handles.append(os.open(word.removeprefix("@"), os.O_RDONLY))
            argv = [*argv[:at], str(handles[-1]), *argv[at + 1 :]]
    start = time.perf_counter()
    done = subprocess.run(argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=handles, check=False)
    taken = (time.perf_counter() - start) * 1000
    for handle in handles:
        os.close(handle)
    if done.returncode:
        sys.exit(f"{shlex.join(argv)}: status {done.returncode}")
    # What goes on in the background, as a shell's look at what is left behind does, is not the next one's.
    time.sleep(_SETTLE)
    return taken


def take_turns(things: dict[str, Callable[[], float]], runs: int, warm: int = 1) -> dict[str, list[float]]:
    """What each thing measures, in turns; the first ones warm the caches."""
    columns: dict[str, list[float]] = {name: [] for name in things}
    for turn in range(warm + runs):
        for name, measure in things.items():
            value = measure()
            if turn >= warm:
                columns[name].append(value)
    return columns


def compare(title: str, directory: Path, base: tuple[str, list[str]], *others: tuple[str, list[str]], limit: str, runs: int = RUNS) -> dict[str, list[float]]:
    """Print the base and each other with their ratio to it."""
    columns = take_turns({name: lambda argv=argv: once(argv, directory) for name, argv in (base, *others)}, runs, warm=3)
    show(Measured(title, limit, "ms", columns))
    return columns


def show(measured: Measured) -> None:
    """Print each median, its range, and its ratio to the base; and keep it for the chart."""
    FOUND.append(measured)
    base = median(measured.columns[measured.base])
    print(f"\n{measured.title} (aim: {measured.aim})")
    for name, values in measured.columns.items():
        middle, (ratio, least, most) = median(values), measured.spread(name)
        spread = f"[{min(values):.1f}..{max(values):.1f}]"
        print(f"  {name:<38} {middle:8.1f} {measured.unit}  {spread:<18} {ratio:6.2f}x [{least:.2f}..{most:.2f}]  {middle - base:+8.1f} {measured.unit}")
    sys.stdout.flush()


def bwrap_of(script: list[str], rules: Path, project: Path) -> list[str]:
    """bwrap with the options that the launcher gives it, by path: what is copied is read from descriptors, as `once` opens them."""
    printed = subprocess.run([script[0], "--print", "--", *script[1:]], cwd=project, check=True, capture_output=True, text=True).stdout
    words = shlex.split(printed, comments=True)
    end = words.index("--")
    options = [f"@{word}" if at and words[at - 1] == "--file" else word for at, word in enumerate(words[:end])]
    return [*options, "--new-session", "--seccomp", f"@{rules}", *words[end:]]
