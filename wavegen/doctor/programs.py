"""Programs that shells and personas start: the launcher's Python, what carries the second layer, bash, git, the agents themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from wavegen.core.host_programs import is_path_within
from wavegen.doctor import Check, Needs, State, absent_check, failed_check, passed_check, sandbox_names, weaker_check
from wavegen.doctor.machine import Done, Machine
from wavegen.policy.model import Access, AgentKind, Anchor, PersonaPolicy

GROUP, AGENTS = "programs", "agents"
PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3", "/run/current-system/sw/bin/python3")
"""Where the scripts of .wavegen/bin look for the launcher's Python, in this order: places where no command of a project can have put it."""
_PYTHON = (3, 9)
_KNOWN = tuple(kind.value for kind in AgentKind if kind is not AgentKind.OTHER)


def check_programs(machine: Machine, needs: Needs) -> Iterator[Check]:
    """What is needed on every day, then the agents."""
    yield _check_bash(machine, needs)
    yield _check_second_layer(machine, needs)
    yield _check_launcher_python(machine, needs)
    yield _check_git(machine)
    for persona in needs.plan.personas:
        yield _check_persona_agent(machine, persona)
    started = {agent.binary for persona in needs.plan.personas for agent in persona.agents}
    yield from _check_unused_agents(machine, tuple(name for name in _KNOWN if name not in started))
    yield _check_srt(machine)


def parse_version_number(done: Done) -> tuple[int, ...]:
    """The first version number that a program names; empty where it names none."""
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.out) if done.has_succeeded else None
    return tuple(int(number) for number in match.groups() if number) if match else ()


def _format_version(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def launcher_python(machine: Machine) -> str:
    """The Python that runs the launcher; empty where there is none."""
    return next((path for path in PYTHONS if machine.file_mode(path) & 0o111), "")


def _check_bash(machine: Machine, needs: Needs) -> Check:
    """What a shell without a command starts inside."""
    program = machine.find_trusted_program("bash")
    if not program:
        costs = "shells without a command: name one" if needs.bubblewrap_sandboxes() else "nothing that this manifest needs"
        return absent_check("bash", GROUP, "bash is not on the PATH", costs, remedy="install bash, or use nix develop")
    return passed_check("bash", GROUP, program)


def _check_second_layer(machine: Machine, needs: Needs) -> Check:
    """What takes the last rights from the command: launcher/inside."""
    for name, argv in (("perl", ("-e", 'print "$]\\n"')), ("python3", ("-I", "-S", "-c", "print('1.0')"))):
        program = machine.find_trusted_program(name)
        if program and machine.run_program((program, *argv)).has_succeeded:
            slower = "" if name == "perl" else ", which takes three times as long as perl"
            return passed_check("second-layer", GROUP, f"carried by {program}{slower}")
    return failed_check(
        "second-layer",
        GROUP,
        "neither perl nor python3 is on the PATH",
        needs.bubblewrap_sandboxes(),
        remedy="install one of them, or use nix develop",
        commands=("sudo apt install perl-base   # dnf install perl-interpreter",),
    )


def _check_launcher_python(machine: Machine, needs: Needs) -> Check:
    """The launcher's, which starts every shell."""
    fences = tuple(fence for fence in needs.plan.all_fences() if fence.fenced) if needs.plan.enabled else ()
    program = launcher_python(machine)
    numbers = parse_version_number(machine.run_program((program, "-I", "-S", "--version"))) if program else ()
    if numbers < _PYTHON:
        elsewhere = machine.find_trusted_program("python3")
        missing = f"there is no {PYTHONS[0]}" + (f", but {elsewhere}" if elsewhere else "")
        found = f"{program} {_format_version(numbers) or 'does not run'}" if program else missing
        remedy = "install python3 (3.9 or newer), or use nix develop, which brings its own"
        return failed_check("python3", GROUP, found, fences, remedy=remedy, commands=("sudo apt install python3",))
    return passed_check("python3", GROUP, f"{program} {_format_version(numbers)}")


def _check_git(machine: Machine) -> Check:
    program = machine.find_trusted_program("git")
    if not program:
        return absent_check(
            "git", GROUP, "git is not on the PATH", "git inside, and flakes in repositories", remedy="install it", commands=("sudo apt install git",)
        )
    return passed_check("git", GROUP, f"{program} {_format_version(parse_version_number(machine.run_program((program, '--version')))) or 'does not run'}")


def _check_persona_agent(machine: Machine, persona: PersonaPolicy) -> Check:
    """The first of a persona's programs that is there, and whether it is inside."""
    check = f"persona {persona.name}"
    if not persona.agents:
        return absent_check(check, AGENTS, "the manifest names no adapter", "it starts commands alone (--exec)", remedy="name an adapter in the manifest")
    brought = {package.attribute[-1] for package in persona.fence.packages}
    where: list[str] = []
    for agent in persona.agents:
        path = machine.find_trusted_program(agent.binary)
        if path and (home := _path_in_home(machine, path)) and persona.fence.fenced and not _is_path_granted(machine, persona, path):
            where.append(f"{agent.binary} lies at {home}, in your home, which is not inside")
        elif path:
            return passed_check(check, AGENTS, f"starts {path}")
        elif any(name == agent.binary or name.startswith(f"{agent.binary}-") for name in brought):
            return passed_check(check, AGENTS, f"{agent.binary} is not on the PATH; nix develop brings it")
        else:
            where.append(f"{agent.binary} is not on the PATH")
    remedy = "grant its directory and where its link leads (paths: [{path: ~/.local/bin, access: read}]), install it for all, or list it under packages"
    found = "; ".join(where)
    return Check(
        name=check,
        group=AGENTS,
        state=State.WEAKER,
        found=found,
        costs="its fence starts, its agent does not",
        remedy=remedy,
        shells=sandbox_names((persona.fence,)),
    )


def _path_in_home(machine: Machine, path: str) -> str:
    home = machine.real_path(machine.variables.get("HOME") or "/")
    real = machine.real_path(path)
    return next((place for place in (path, real) if home != "/" and is_path_within(place, home)), "")


def _is_path_granted(machine: Machine, persona: PersonaPolicy, path: str) -> bool:
    home = machine.real_path(machine.variables.get("HOME") or "/")
    shown = [
        f"{home}/{rule.path.tail}"
        for rule in persona.fence.paths
        if rule.path.anchor is Anchor.HOME and rule.path.tail and rule.access in (Access.READ, Access.WRITE)
    ]
    places = [place for place in (path, machine.real_path(path)) if is_path_within(place, home)]
    return all(any(is_path_within(place, directory) for directory in shown) for place in places)


def _check_unused_agents(machine: Machine, unnamed: tuple[str, ...]) -> Iterator[Check]:
    for name in unnamed:
        if path := machine.find_trusted_program(name):
            yield passed_check(name, AGENTS, path)
        else:
            yield absent_check(name, AGENTS, f"{name} is not on the PATH, and no persona starts it", "")


def _check_srt(machine: Machine) -> Check:
    program = machine.find_trusted_program("srt")
    if not program:
        return absent_check("srt", AGENTS, "srt is not on the PATH; .wavegen/srt is for it alone", "")
    missing = [name for name in ("rg", "socat", "bwrap") if not machine.find_trusted_program(name)]
    if missing:
        return weaker_check("srt", AGENTS, program, f"srt does not start without {' and '.join(missing)}", remedy="install ripgrep, socat and bubblewrap")
    return passed_check("srt", AGENTS, program)
