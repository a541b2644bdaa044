"""From the command line to the end of /bin/true: a bare bwrap, the shells, the other sandboxes and containers, in turns; and what each part costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import containers
import peers
from side_by_side import RUNS, Measured, bwrap_of, once, show, take_turns

from wavegen.launcher.arguments import Arguments
from wavegen.launcher.bwrap_start import BwrapStart
from wavegen.launcher.mounts import resolve_mounts
from wavegen.launcher.rules import read_rules
from wavegen.launcher.start import Session

MANIFEST = "apiVersion: v1\nkind: WaveManifest\nmetadata: {name: startup}\nruntime: {sandbox: {default_allowed_domains: [bench.example.org]}}\n"
COMMAND = ["/bin/true"]
BARE = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", *COMMAND]
PYTHON = ["/usr/bin/python3", "-I", "-S", "-X", "utf8", "-c", "pass"]
SHELLS = ("default", "restricted")
AIM = "3.5x a bare bwrap for default, 4.5x for restricted"


def main(base: Path) -> None:
    """Print the ratios."""
    project = base / "startup"
    project.mkdir()
    (project / "wave.yaml").write_text(MANIFEST, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "wavegen", "render"], cwd=project, check=True, capture_output=True)
    ways: dict[str, list[str]] = {"bwrap, bare": BARE}
    for shell in SHELLS:
        ways[f"bin/{shell}"] = [str(project / ".wavegen/bin" / shell), *COMMAND]
        # What is said and compiled once, and what warms the caches.
        subprocess.run(ways[f"bin/{shell}"], cwd=project, check=True, capture_output=True)
    ways |= {name: [*argv, *COMMAND] for name, argv in peers.installed(project, os.environ, ("127.0.0.1:8080",)).items()}
    with containers.engine() as (client, image):
        if client:
            ways |= containers.ways(client, image, base)
        columns = take_turns({name: lambda argv=argv: once(argv, project) for name, argv in ways.items()}, max(10, RUNS // 2), warm=3)
    show(Measured("starting a command", AIM, "ms", columns))
    for shell in SHELLS:
        show(parts(project, shell))


def parts(project: Path, shell: str) -> Measured:
    """What each part of one start costs, measured alone; what is measured with others has theirs of the same turn taken away."""
    script = str(project / ".wavegen/bin" / shell)
    (filter_file,) = (project / ".wavegen/seccomp").glob("*.bpf")
    alone = {
        "bare": BARE,
        "command": COMMAND,
        "stub": [str(stub_alone(Path(script), project.parent))],
        "python": PYTHON,
        "print": [script, "--print", "--", *COMMAND],
        "bwrap": bwrap_of([script, *COMMAND], filter_file, project),
        "last step": [*last_step(project, shell), *COMMAND],
        "whole": [script, *COMMAND],
    }
    taken = take_turns({name: lambda argv=argv: once(argv, project) for name, argv in alone.items()}, RUNS, warm=3)

    def without(whole: str, *rest: str) -> list[float]:
        return [value - sum(taken[name][turn] for name in rest) for turn, value in enumerate(taken[whole])]

    columns = {
        "bwrap, bare": taken["bare"],
        f"bin/{shell}": taken["whole"],
        "  stub: sh": taken["stub"],
        "  python3": taken["python"],
        "  rules and resolve": without("print", "stub", "python"),
        "  bwrap, with these mounts": without("bwrap", "command"),
        "  perl, the last step": without("last step", "command"),
        "  command": taken["command"],
        # The command is part of two that are taken away.
        "  the rest: network, waiting": [rest + own for rest, own in zip(without("whole", "print", "bwrap", "last step"), taken["command"], strict=True)],
    }
    return Measured(f"what a start of {shell} is made of", "bwrap, with these mounts, is most of it", "ms", columns)


def stub_alone(script: Path, directory: Path) -> Path:
    """The same script, which ends where it would become the launcher."""
    text, found, _ = script.read_text(encoding="utf-8").partition("for python in ")
    if not found:
        sys.exit(f"{script} does not look for python")
    stub = directory / f"stub-{script.name}"
    stub.write_text(f"{text}trap - EXIT\nexit 0\n", encoding="utf-8")
    stub.chmod(0o755)
    return stub


def last_step(project: Path, shell: str) -> list[str]:
    """The words of what runs inside before the command, as the launcher gives them to bwrap."""
    own, rules_directory = str(project / ".wavegen/launcher"), project / ".wavegen/rules"
    rules = read_rules((rules_directory / shell).read_text(encoding="utf-8"), lambda: (rules_directory / "base").read_text(encoding="utf-8"), shell)
    arguments = Arguments(rules, ["--project", str(project), "--", *COMMAND])
    session = Session(rules, arguments, dict(os.environ), own, str(project / ".wavegen/bin" / shell))
    session.find_places()
    start = BwrapStart(session, session.locate_program("bwrap"), resolve_mounts(rules, session.places, session.host))
    words = start.inside_words(0)
    at = words.index("--life")
    return words[:at] + words[at + 2 :]
