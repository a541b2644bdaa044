"""An engine and an image for containers, and what starts them bare and by a shell's script.

`WAVEGEN_BENCH_IMAGE` names an image that is there, with sh and with python3 or perl; `WAVEGEN_CONTAINER=podman` takes podman. Without
it root has a daemon and an image of the tests' own (`tests/support/engine.py`); a user has none.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

TESTS = Path(__file__).parent.parent / "tests/support"


@contextlib.contextmanager
def engine() -> Iterator[tuple[str, str]]:
    """An engine's client and an image, or two empty texts, and why is printed."""
    client, image = shutil.which(os.environ.get("WAVEGEN_CONTAINER", "docker")), os.environ.get("WAVEGEN_BENCH_IMAGE", "")
    if image:
        if client and subprocess.run([client, "image", "inspect", image], capture_output=True, check=False).returncode == 0:
            yield client, image
        else:
            print(f"{image} is not there: containers are left out.")
            yield "", ""
    elif os.geteuid() or not shutil.which("dockerd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
        print("No engine and image for containers, which are left out: WAVEGEN_BENCH_IMAGE names an image that is there.")
        yield "", ""
    else:
        with _of_the_tests() as found:
            yield found


@contextlib.contextmanager
def _of_the_tests() -> Iterator[tuple[str, str]]:
    sys.path.insert(0, str(TESTS))
    import engine as of_tests

    with of_tests.started("/usr/bin/docker") as daemon:
        before = dict(os.environ)
        os.environ |= daemon.environment()
        try:
            yield "/usr/bin/docker", daemon.image()
        finally:
            os.environ.clear()
            os.environ |= before


def ways(client: str, image: str, base: Path) -> dict[str, list[str]]:
    """What starts /bin/true: the engine with no options to speak of, and with all of a script's; scripts of three networks."""
    project = base / "contained"
    project.mkdir()
    manifest = f"metadata: {{name: bench}}\nruntime: {{sandbox: {{docker_image: {image!r}, shells: {{none: {{network: none}}}}}}}}\n"
    (project / "wave.yaml").write_text(manifest, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "wavegen", "render"], cwd=project, check=True, capture_output=True)
    if os.geteuid() == 0:
        # Nothing in a container is root.
        subprocess.run(["chown", "-R", "65534:65534", str(project)], check=True)
    scripts = {f"docker/run-{shell}": [str(project / ".wavegen/docker" / f"run-{shell}"), "/bin/true"] for shell in ("none", "default", "restricted")}
    for script in scripts.values():
        # What is kept is made by the first start.
        subprocess.run(script, cwd=project, check=True, capture_output=True)
    name = os.path.basename(client)
    return {
        f"{name} run --network none": [client, "run", "--rm", "--network", "none", image, "/bin/true"],
        "the options of run-none alone": _options(scripts["docker/run-none"], project),
        **scripts,
    }


def _options(script: list[str], project: Path) -> list[str]:
    """What a script starts, without what only the script can make: a name of its own, the directory for its first process, and small files."""
    words = shlex.split(subprocess.run([script[0], "--print", "/bin/true"], cwd=project, capture_output=True, text=True, check=True).stdout)
    kept: list[str] = []
    for option, word in pairwise(("", *words)):
        if word == "/bin/sh":
            break
        if "--name" in (option, word):
            continue
        if "target=/run/wavegen" in word or "/made/" in word:
            kept.pop()
        else:
            kept.append(word)
    return [*kept, "/bin/true"]
