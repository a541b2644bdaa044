"""bubblewrap: which one, and what of that which the wrappers ask for it can do here, each by trying it."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator

from wavegen.backends import bwrap, script
from wavegen.doctor import Check, Needs, absent, failed, fine, weaker
from wavegen.doctor.kernel import NAMESPACES, Barrier, barriers, masked, profile_commands, trial
from wavegen.doctor.machine import Done, Machine
from wavegen.manifest import BackendName
from wavegen.policy import Policy
from wavegen.quote import sh
from wavegen.seccomp import Arch
from wavegen.seccomp.bpf import assembled

GROUP = "bubblewrap"
INSTALL = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap, or use nix develop"
BASE = ("--unshare-user", "--unshare-pid", "--ro-bind", "/", "/")
"""What no fence goes without: the same as hopeless() in bubblewrap.sh tries."""
RUN = ("--", "/bin/sh", "-c", ":")
LEAST = (0, 8, 0)
"""Which version has all of the options: --disable-userns came last."""
# What the wrappers ask for besides what the plan says (runtime/places.sh, direct.sh, bubblewrap.sh): in groups that make sense alone.
MOUNTS = (
    ("--dev", "/dev"),
    ("--dev-bind", "/dev/null", "/dev/null"),
    ("--proc", "/proc"),
    ("--ro-bind", "/proc/sys", "/proc/sys"),
    ("--ro-bind-try", "/proc/irq", "/proc/irq"),
    ("--perms", "0700", "--tmpfs", "/tmp"),
    ("--size", "1048576", "--tmpfs", "/tmp"),
    ("--bind", "/usr", "/tmp/held"),
    ("--symlink", "held", "/tmp/link"),
    ("--remount-ro", "/tmp"),
    ("--unsetenv", "_"),
    ("--setenv", "HOME", "/tmp"),
    ("--chdir", "/"),
    ("--new-session",),
    ("--json-status-fd", "1"),
)
_FILTER = ("--seccomp", "0")


def checks(machine: Machine, needs: Needs) -> Iterator[Check]:
    """From the program to the fence."""
    fences = needs.mounted()
    program = machine.find("bwrap")
    if not program:
        commands = ("sudo apt install bubblewrap   # dnf install bubblewrap, pacman -S bubblewrap, apk add bubblewrap",)
        yield failed("bubblewrap", GROUP, "bwrap is not on the PATH", fences, remedy=INSTALL, commands=commands, hopeless=True)
        done = machine.run(trial(NAMESPACES))
        yield _namespaces(machine, "", done, ())
        return
    yield _version(machine, program, fences)
    base = machine.run((program, *BASE, *RUN))
    yield _namespaces(machine, program, base, fences)
    if base.worked:
        yield from _fence(machine, program, needs)
        yield from _launcher(machine, needs)


def _version(machine: Machine, program: str, fences: tuple[Policy, ...]) -> Check:
    done = machine.run((program, "--version"))
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.out)
    real = machine.real(program)
    found = f"{done.out.strip() or done.words()} at {program}" + (f" ({real})" if real != program else "")
    if machine.uid != 0 and machine.mode(program) & stat.S_ISUID:
        costs = "it refuses options of the fence, and a mistake in it is root's"
        commands = (f"sudo chmod u-s {sh(program)}",)
        return weaker("bubblewrap", GROUP, f"{found}, setuid root", costs, remedy="take the bit away where users may make namespaces", commands=commands)
    if not match:
        return failed("bubblewrap", GROUP, found, fences, remedy=INSTALL, said=done.said)
    if tuple(int(number or 0) for number in match.groups()) < LEAST:
        return weaker("bubblewrap", GROUP, found, "some options of the fence: see below", remedy="install 0.8.0 or newer, or use nix develop")
    return fine("bubblewrap", GROUP, found)


def _namespaces(machine: Machine, program: str, done: Done, fences: tuple[Policy, ...]) -> Check:
    """Whether this user may make namespaces: by what came of trying it; the settings only say why not."""
    who = program or "this Python"
    if done.worked:
        return fine("user-namespaces", GROUP, f"{who} makes them")
    why = tuple(barriers(machine, program))
    said = f"{who}: {done.words()}"
    if not why:
        why = (Barrier("no setting of this machine says why", "see dmesg for what was denied; backend: landlock needs no namespaces"),)
    if not fences:
        costs = "nothing that this manifest needs" if program else "bubblewrap would start nothing"
        return absent("user-namespaces", GROUP, f"{said}: {why[0].found}", costs, remedy=why[0].remedy, commands=why[0].commands)
    commands = tuple(command for barrier in why for command in barrier.commands)
    found = f"{said}: {'; '.join(barrier.found for barrier in why)}"
    remedy = "; ".join(barrier.remedy for barrier in why)
    # As hopeless() in bubblewrap.sh judges it.
    hopeless = re.search(r"Permission denied|ermissions|not permitted|No space left", done.said) is not None
    return failed("user-namespaces", GROUP, found, fences, remedy=remedy, said=done.said, commands=commands, hopeless=hopeless)


def _asked(fence: Policy) -> tuple[tuple[str, ...], ...]:
    """What a wrapper asks bwrap for, in groups, without the manifest's own paths and variables."""
    options = tuple(option.words for option in bwrap.options(fence) if option.words[0] != "--setenv")
    return (*options, *MOUNTS, *((_FILTER,) if script.filter_of_shell(fence) else ()))


def _program(fence: Policy) -> bytes:
    found = script.filter_of_shell(fence)
    return assembled(found, *Arch) if found else b""


def _fence(machine: Machine, program: str, needs: Needs) -> Iterator[Check]:
    """The whole of a fence at once, for each kind of fence that the manifest has; where it fails each part alone."""
    fences = needs.mounted() or tuple(shell for shell in needs.plan.shells if shell.fenced and shell.name == "default")
    kinds: dict[tuple[tuple[str, ...], ...], list[Policy]] = {}
    for fence in fences:
        kinds.setdefault(_asked(fence), []).append(fence)
    broken: dict[tuple[str, ...], Done] = {}
    stopped: dict[str, Policy] = {}
    for asked, alike in kinds.items():
        given = _program(alike[0])
        done = machine.run((program, "--ro-bind", "/", "/", *(word for group in asked for word in group), *RUN), given=given)
        if done.worked:
            continue
        stopped |= {fence.name: fence for fence in alike}
        alone = {part: machine.run((program, *BASE, *_with(part), *RUN), given=given if part == _FILTER else b"") for part in asked}
        parts = {part: found for part, found in alone.items() if not found.worked}
        broken |= parts or {("all of it together",): done}
    if not broken:
        yield fine("fence", GROUP, "builds what the wrappers ask for")
        return
    concerned = tuple(stopped.values()) if needs.mounted() else ()
    for part, done in broken.items():
        option = next((word for word in part if word.startswith("--")), part[0])
        of_it = tuple(fence for fence in concerned if part in _asked(fence) or part[0] == "all of it together")
        remedy, commands = _mending(machine, program, option, done)
        # The wrapper says so and stops, whatever `fallback` is: some fence could be built.
        yield failed(f"fence {option}", GROUP, f"{' '.join(part)}: {done.words()}", of_it, remedy=remedy, said=done.said, commands=commands)


def _with(part: tuple[str, ...]) -> tuple[str, ...]:
    """What a part is tried with: some stand on others."""
    before = ("--tmpfs", "/tmp") if part[0] in ("--bind", "--symlink", "--remount-ro") else ("--unshare-uts",) if part[0] == "--hostname" else ()
    return (*before, *part)


def _mending(machine: Machine, program: str, option: str, done: Done) -> tuple[str, tuple[str, ...]]:
    """What mends a part that does not work, by what stands in its way."""
    if option == "--proc" and (hidden := masked(machine)):
        shown = ", ".join(hidden[:3])
        return f"/proc is masked ({shown}): start the container with --security-opt systempaths=unconfined (docker) or unmask=ALL (podman)", ()
    if "Unknown option" in done.said:
        return "install bubblewrap 0.8.0 or newer, or use nix develop, which brings its own", ("nix develop",)
    if machine.uid != 0 and machine.mode(program) & stat.S_ISUID:
        return "bwrap is setuid root: take the bit away", (f"sudo chmod u-s {sh(program)}",)
    if why := next(barriers(machine, program), None):
        return f"{why.found}: {why.remedy}", why.commands
    return "see what it says, and dmesg", ()


def _launcher(machine: Machine, needs: Needs) -> Iterator[Check]:
    """Filtered shells: their launcher makes the network's namespace itself; where only bwrap may, there are proxies alone."""
    python = machine.find("python3")
    done = machine.run((python, *trial(NAMESPACES)[1:])) if python else Done(status=127)
    if not python:
        return  # said of python3 itself
    if done.worked:
        yield fine("launcher", GROUP, f"{python} makes the network of filtered shells")
        return
    costs = "names have no address in filtered shells: programs that know no proxy reach nothing"
    real = machine.real(python)
    commands = tuple(f"# {line}" for command in profile_commands(machine, python) for line in command.splitlines())
    remedy = f"a profile for {real} would mend it, and let every program in that Python make namespaces" if machine.uid else "see user.max_net_namespaces"
    fences = needs.proxied(BackendName.BUBBLEWRAP)
    yield weaker("launcher", GROUP, f"{python}: {done.words()}", costs, remedy=remedy, fences=fences, commands=commands if machine.uid else ())
