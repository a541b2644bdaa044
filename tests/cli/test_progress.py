"""What takes longer than a second says so on a terminal, in a line that is wiped out, and nowhere else."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from helpers import MINIMAL, environment, project, render_project, wavegen

MANY = "metadata: {name: big}\nadapters: {claude: {binary: claude}}\npersonas:\n" + "".join(f"  p{n}: {{preset: navigator}}\n" for n in range(1000))
WIPED = "\r\x1b[K"


def on_a_terminal(root: Path, *argv: str) -> tuple[int, str, str]:
    """Status, stdout, and what a terminal got that is stderr alone."""
    master, slave = os.openpty()
    # A file, as nobody reads a pipe meanwhile.
    with tempfile.TemporaryFile("w+", encoding="utf-8") as out:
        with subprocess.Popen(argv, cwd=root, env=environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=slave) as process:
            os.close(slave)
            said = b""
            with contextlib.suppress(OSError):  # nobody has the terminal open any more
                while chunk := os.read(master, 65536):
                    said += chunk
        os.close(master)
        out.seek(0)
        return process.returncode, out.read(), said.decode().replace("\r\n", "\n")


def command(*args: str) -> tuple[str, ...]:
    return (sys.executable, "-P", "-m", "wavegen", *args)


def test_a_thousand_personas_are_waited_for_with_a_line_that_is_wiped_out(tmp_path: Path) -> None:
    root = project(tmp_path, MANY)
    status, out, said = on_a_terminal(root, *command("render"))
    assert status == 0
    assert "\x1b" not in out
    for what in ("rendering", "writing"):
        assert f"{WIPED}{what}: 1 s" in said
    # What is said for good stands on lines of its own, after the wiping.
    assert not [line for line in said.split("\n") if re.search(r"ing: \d+ s(?!\r)", line)]
    done = wavegen("render", "--check", cwd=root)
    assert (done.status, done.output) == (0, "")


def test_what_is_quick_says_nothing(tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL)
    for args in (("render",), ("render", "--check"), ("log",), ("audit",)):
        status, _, said = on_a_terminal(root, *command(*args))
        assert (status, WIPED in said) == (0, False), args


SLOW = """
import sys, time
from wavegen.{package} import {module}
from wavegen.cli.main import main
real = {module}.{function}
def slow(*args, **options):
    time.sleep(1.5)
    return real(*args, **options)
{module}.{function} = slow
sys.argv[1:] = [{verb!r}]
main()
"""


@pytest.mark.parametrize(
    ("verb", "place", "function", "what"),
    [("audit", "audit.findings", "collect_audit_findings", "looking"), ("log", "project.network_log", "read_network_log", "reading")],
)
def test_an_audit_and_a_log_that_take_long_are_waited_for(verb: str, place: str, function: str, what: str, tmp_path: Path) -> None:
    """As of a large project, which takes as long to make."""
    root = render_project(tmp_path, MINIMAL)
    status, _, said = on_a_terminal(
        root, sys.executable, "-c", SLOW.format(verb=verb, package=place.partition(".")[0], module=place.partition(".")[2], function=function)
    )
    assert status == 0
    assert re.sub(r"\x1b\[[0-9;]*m", "", said).startswith(f"{WIPED}{what}: 1 s{WIPED}wavegen: note: ")


WAITS = """
import time
from wavegen.cli.progress import Waiting
def busy(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until: time.sleep(0.05)
with Waiting("thinking") as shown:
    {inside}
print("done")
"""


def waits(root: Path, inside: str) -> tuple[int, str, str]:
    return on_a_terminal(root, sys.executable, "-c", WAITS.format(inside=inside))


def test_it_counts_seconds_and_leaves_nothing(tmp_path: Path) -> None:
    assert waits(tmp_path, "busy(2.5)") == (0, "done\n", f"{WIPED}thinking: 1 s{WIPED}thinking: 2 s{WIPED}")
    assert waits(tmp_path, "busy(0.5)") == (0, "done\n", "")


def test_what_is_counted_is_shown_at_once_and_as_long_as_it_moves(tmp_path: Path) -> None:
    shown = waits(tmp_path, "[(shown.show_count('it', n, 4), busy(0.4)) for n in (1, 2, 3, 4)]")[2]
    assert shown == "".join(f"{WIPED}it: {n} of 4 probes" for n in (1, 2, 3)) + WIPED
    stuck = waits(tmp_path, "shown.show_count('it', 1, 2); busy(2.5)")[2]
    assert stuck == f"{WIPED}it: 1 of 2 probes{WIPED}thinking: 2 s{WIPED}"


def test_a_failure_wipes_it_before_it_is_said(tmp_path: Path) -> None:
    status, _, said = waits(tmp_path, "busy(1.2); raise SystemExit('failed')")
    assert (status, said) == (1, f"{WIPED}thinking: 1 s{WIPED}failed\n")


def test_children_have_no_alarm_of_ours_and_what_was_there_is_put_back(tmp_path: Path) -> None:
    inside = "import os, signal; p = os.fork(); p or (time.sleep(1.5), print('child', flush=True), os._exit(0)); print(os.waitpid(p, 0)[1], flush=True)"
    status, out, said = waits(tmp_path, inside)
    assert (status, out) == (0, "child\n0\ndone\n")
    assert said.endswith(WIPED)
    code = "import signal; from wavegen.cli.progress import Waiting\nwith Waiting('x'): pass\nprint(signal.getsignal(signal.SIGALRM), signal.getitimer(0))"
    assert on_a_terminal(tmp_path, sys.executable, "-c", f"import signal; print(signal.SIG_DFL, (0.0, 0.0))\n{code}")[1].splitlines() == 2 * [
        f"{signal.SIG_DFL} (0.0, 0.0)"
    ]
