"""Programs that shells and personas start: the launcher's Python, what carries the second layer, bash, git, the agents themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wavegen.core.host_programs import within
from wavegen.doctor import Check, Needs, State, absent, failed, fine, names, weaker
from wavegen.doctor.machine import Done, Machine
from wavegen.policy.model import Access, AgentKind, Anchor, PersonaPolicy

GROUP, AGENTS = "programs", "agents"
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3", "/run/current-system/sw/bin/python3")
"""Where the scripts of .wavegen/bin look for the launcher's Python, in this order: places where no command of a project can have put it."""
_PYTHON = (3, 9)
_KNOWN = tuple(kind.value for kind in AgentKind if kind is not AgentKind.OTHER)


def checks(machine: Machine, needs: Needs) -> Iterator[Check]:
    """What is needed on every day, then the agents."""
    yield _bash(machine, needs)
    yield _shim(machine, needs)
    yield _python(machine, needs)
    yield _git(machine)
    for persona in needs.plan.personas:
        yield _agent(machine, persona)
    started = {agent.binary for persona in needs.plan.personas for agent in persona.agents}
    yield from _others(machine, tuple(name for name in _KNOWN if name not in started))
    yield _srt(machine)


def version(done: Done) -> tuple[int, ...]:
    """The first version number that a program names; empty where it names none."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.out) if done.worked else None
    return tuple(int(number) for number in match.groups() if number) if match else ()


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def launcher_python(machine: Machine) -> str:
    """The Python that runs the launcher; empty where there is none."""
    return next((path for path in PYTHONS if machine.mode(path) & 0o111), "")


def _bash(machine: Machine, needs: Needs) -> Check:
    """What a shell without a command starts inside."""
    program = machine.find("bash")
    if not program:
        costs = "shells without a command: name one" if needs.mounted() else "nothing that this manifest needs"
        return absent("bash", GROUP, "bash is not on the PATH", costs, remedy="install bash, or use nix develop")
    return fine("bash", GROUP, program)


def _shim(machine: Machine, needs: Needs) -> Check:
    """What takes the last rights from the command: launcher/inside."""
    for name, argv in (("perl", ("-e", 'print "$]\\n"')), ("python3", ("-I", "-S", "-c", "print('1.0')"))):
        program = machine.find(name)
        if program and machine.run((program, *argv)).worked:
            slower = "" if name == "perl" else ", which takes three times as long as perl"
            return fine("second-layer", GROUP, f"carried by {program}{slower}")
    return failed(
        "second-layer",
        GROUP,
        "neither perl nor python3 is on the PATH",
        needs.mounted(),
        remedy="install one of them, or use nix develop",
        commands=("sudo apt install perl-base   # dnf install perl-interpreter",),
    )


def _python(machine: Machine, needs: Needs) -> Check:
    """The launcher's, which starts every shell."""
    fences = tuple(fence for fence in needs.plan.fences() if fence.fenced) if needs.plan.enabled else ()
    program = launcher_python(machine)
    numbers = version(machine.run((program, "-I", "-S", "--version"))) if program else ()
    if numbers < _PYTHON:
        elsewhere = machine.find("python3")
        missing = f"there is no {PYTHONS[0]}" + (f", but {elsewhere}" if elsewhere else "")
        found = f"{program} {_dotted(numbers) or 'does not run'}" if program else missing
        remedy = "install python3 (3.9 or newer), or use nix develop, which brings its own"
        return failed("python3", GROUP, found, fences, remedy=remedy, commands=("sudo apt install python3",))
    return fine("python3", GROUP, f"{program} {_dotted(numbers)}")


def _git(machine: Machine) -> Check:
    program = machine.find("git")
    if not program:
        return absent("git", GROUP, "git is not on the PATH", "git inside, and flakes in repositories", remedy="install it", commands=("sudo apt install git",))
    return fine("git", GROUP, f"{program} {_dotted(version(machine.run((program, '--version')))) or 'does not run'}")


def _agent(machine: Machine, persona: PersonaPolicy) -> Check:
    """The first of a persona's programs that is there, and whether it is inside."""
    check = f"persona {persona.name}"
    if not persona.agents:
        return absent(check, AGENTS, "the manifest names no adapter", "it starts commands alone (--exec)", remedy="name an adapter in the manifest")
    brought = {package.attribute[-1] for package in persona.fence.packages}
    where: list[str] = []
    for agent in persona.agents:
        path = machine.find(agent.binary)
        if path and (home := _in_home(machine, path)) and persona.fence.fenced and not _granted(machine, persona, path):
            where.append(f"{agent.binary} lies at {home}, in your home, which is not inside")
        elif path:
            return fine(check, AGENTS, f"starts {path}")
        elif any(name == agent.binary or name.startswith(f"{agent.binary}-") for name in brought):
            return fine(check, AGENTS, f"{agent.binary} is not on the PATH; nix develop brings it")
        else:
            where.append(f"{agent.binary} is not on the PATH")
    remedy = "grant its directory and where its link leads (paths: [{path: ~/.local/bin, access: read}]), install it for all, or list it under packages"
    found = "; ".join(where)
    return Check(
        name=check, group=AGENTS, state=State.WEAKER, found=found, costs="its fence starts, its agent does not", remedy=remedy, shells=names((persona.fence,))
    )


def _in_home(machine: Machine, path: str) -> str:
    home = machine.real(machine.variables.get("HOME") or "/")
    real = machine.real(path)
    return next((place for place in (path, real) if home != "/" and within(place, home)), "")


def _granted(machine: Machine, persona: PersonaPolicy, path: str) -> bool:
    home = machine.real(machine.variables.get("HOME") or "/")
    shown = [
        f"{home}/{rule.path.tail}"
        for rule in persona.fence.paths
        if rule.path.anchor is Anchor.HOME and rule.path.tail and rule.access in (Access.READ, Access.WRITE)
    ]
    places = [place for place in (path, machine.real(path)) if within(place, home)]
    return all(any(within(place, directory) for directory in shown) for place in places)


def _others(machine: Machine, unnamed: tuple[str, ...]) -> Iterator[Check]:
    for name in unnamed:
        if path := machine.find(name):
            yield fine(name, AGENTS, path)
        else:
            yield absent(name, AGENTS, f"{name} is not on the PATH, and no persona starts it", "")


def _srt(machine: Machine) -> Check:
    program = machine.find("srt")
    if not program:
        return absent("srt", AGENTS, "srt is not on the PATH; .wavegen/srt is for it alone", "")
    missing = [name for name in ("rg", "socat", "bwrap") if not machine.find(name)]
    if missing:
        return weaker("srt", AGENTS, program, f"srt does not start without {' and '.join(missing)}", remedy="install ripgrep, socat and bubblewrap")
    return fine("srt", AGENTS, program)
