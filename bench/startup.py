"""From the command line to the end of /bin/true: raw bwrap, the shells, the other fences and containers, in turns."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import containers
import peers
from side_by_side import RUNS, bwrap_of, compare

MANIFEST = "apiVersion: v1\nkind: WaveManifest\nmetadata: {name: startup}\nruntime: {sandbox: {default_allowed_domains: [bench.example.org]}}\n"


def main(base: Path) -> None:
    """Print the ratios."""
    project = base / "startup"
    project.mkdir()
    (project / "wave.yaml").write_text(MANIFEST, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "wavegen", "render"], cwd=project, check=True, capture_output=True)
    (rules,) = (project / ".wavegen/seccomp").glob("*.bpf")
    ways: dict[str, list[str]] = {}
    for shell in ("default", "restricted"):
        wrapper = [str(project / ".wavegen/bin" / shell), "/bin/true"]
        subprocess.run(wrapper, cwd=project, check=True)
        ways[f"bwrap, arguments of {shell}"] = bwrap_of(wrapper, rules, project)
        ways[f"bin/{shell}"] = wrapper
    ways |= {name: [*argv, "/bin/true"] for name, argv in peers.installed(project, os.environ, ("127.0.0.1:8080",)).items()}
    aim = "2x bwrap for default, with a second layer, the look at what is left behind, and bounds; 5x for restricted, which judges the network"
    with containers.engine() as (client, image):
        if client:
            ways |= containers.ways(client, image, base)
        first, *others = ways.items()
        compare("starting a command", project, first, *others, limit=aim, runs=max(10, RUNS // 2))
