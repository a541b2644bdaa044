"""How much a shell's script adds to a container's start: where an engine answers, and there is an image to start.

WAVEGEN_BENCH_IMAGE names one that is there, with sh and with python3 or perl; WAVEGEN_CONTAINER=podman measures podman.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

from side_by_side import compare


def main() -> None:
    """Print the ratios, or why there are none."""
    image, engine = os.environ.get("WAVEGEN_BENCH_IMAGE", ""), shutil.which(os.environ.get("WAVEGEN_CONTAINER", "docker"))
    if not engine or not image or subprocess.run([engine, "image", "inspect", image], capture_output=True, check=False).returncode:
        print("\nstarting a container: no engine, or no image: WAVEGEN_BENCH_IMAGE names one that is there")
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        project = Path(name).resolve() / "project"
        project.mkdir()
        manifest = f"metadata: {{name: bench}}\nruntime: {{sandbox: {{docker_image: {image!r}, shells: {{none: {{network: none}}}}}}}}\n"
        (project / "wave.yaml").write_text(manifest, encoding="utf-8")
        subprocess.run([sys.executable, "-m", "wavegen", "render"], cwd=project, check=True, capture_output=True)
        if os.geteuid() == 0:
            # Nothing in a container is root.
            subprocess.run(["chown", "-R", "65534:65534", str(project.parent)], check=True)
        scripts = {shell: [str(project / ".wavegen/docker" / f"run-{shell}"), "/bin/true"] for shell in ("none", "default", "restricted")}
        bare = [engine, "run", "--rm", "--network", "none", image, "/bin/true"]
        compare(
            "starting a container",
            project,
            ("bare, network none", bare),
            ("its options alone", _options(scripts["none"], project)),
            *((f"run-{shell}", script) for shell, script in scripts.items()),
            limit="2x",
            runs=15,
        )


def _options(script: list[str], project: Path) -> list[str]:
    """What a script starts, without what only the script can make: a name of its own, and the directory for its first process."""
    words = shlex.split(subprocess.run([script[0], "--print", "/bin/true"], cwd=project, capture_output=True, text=True, check=True).stdout)
    kept: list[str] = []
    for option, word in pairwise(("", *words)):
        if word == "/bin/sh":
            break
        if "--name" in (option, word):
            continue
        if "target=/run/wavegen" in word:
            kept.pop()
        else:
            kept.append(word)
    return [*kept, "/bin/true"]


if __name__ == "__main__":
    main()
