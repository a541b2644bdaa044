"""What is measured can be measured: each way to start a command starts one, and the parts of a start are there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from helpers import ROOT, environment


@pytest.mark.needs("bwrap", "perl")
def test_starts_are_measured_beside_a_bare_bwrap_and_taken_apart(tmp_path: Path) -> None:
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    alone = environment({"WAVEGEN_BENCH_RUNS": "1", "WAVEGEN_BENCH_IMAGE": "none", "WAVEGEN_BENCH_PATH": "", "PATH": path})
    argv = [sys.executable, "bench/run.py", "--chart", str(tmp_path / "chart.svg"), "startup"]
    done = subprocess.run(argv, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    tables = [re.findall(r"^  +(.*?)  +-?[0-9.]+ ms", part, re.MULTILINE) for part in done.stdout.split("\n\n")[1:]]
    others = {"srt", "hozo"}
    assert [name for name in tables[0] if name not in others] == ["bwrap, bare", "bin/default", "bin/restricted"]
    steps = ["stub: sh", "python3", "rules and resolve", "bwrap, with these mounts", "perl, the last step", "command", "the rest: network, waiting"]
    assert tables[1:] == [["bwrap, bare", f"bin/{shell}", *steps] for shell in ("default", "restricted")]
    assert len(ET.parse(tmp_path / "chart.svg").getroot()) >= len(tables)
