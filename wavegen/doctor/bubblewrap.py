"""bubblewrap: which one, and what of that which the launcher asks for it can do here, each by trying it."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence

from wavegen.backends.sandboxes.bwrap import bpf_filter_file as filter_file
from wavegen.backends.sandboxes.rules_file import filter_of_shell, rules_text
from wavegen.core.quote import quote_bash
from wavegen.doctor import Check, Needs, absent_check, failed_check, passed_check, weaker_check
from wavegen.doctor.kernel import NAMESPACES, USERNS, Barrier, masked_proc_paths, namespace_barriers, profile_commands, trial_command
from wavegen.doctor.machine import Done, Machine
from wavegen.doctor.programs import launcher_python
from wavegen.launcher.bwrap import forbids_sandboxes, mount_words, option_words
from wavegen.launcher.mounts import BIND, DEV, DEV_BIND, EMPTY, FILE, MASK, PROC, RO_BIND, SCRATCH, SYMLINK, Mount
from wavegen.launcher.rules import read_rules
from wavegen.manifest.model import BackendName
from wavegen.policy.model import Plan, Policy

GROUP = "bubblewrap"
INSTALL = "install bubblewrap: apt install bubblewrap, dnf install bubblewrap, or use nix develop"
BASE = ("--unshare-user", "--unshare-pid", "--ro-bind", "/", "/")
"""The least that a sandbox needs: the launcher tries the same to find out why a start failed."""
RUN = ("--", "/bin/sh", "-c", ":")
LEAST = (0, 8, 0)
"""The first version that has all options: --disable-userns came last."""
_SIZE = "1048576"
MOUNTS = (
    Mount(DEV, "/dev", ""),
    Mount(DEV_BIND, "/dev/null", "", "/dev/null"),
    Mount(PROC, "/proc", ""),
    Mount(RO_BIND, "/proc/sys", "", "/proc/sys"),
    Mount(SCRATCH, "/tmp", "", mode="0700"),
    Mount(BIND, "/tmp/directory", "", "/usr"),
    Mount(SYMLINK, "/tmp/link", "", "directory"),
    Mount(EMPTY, "/tmp/empty", ""),
    Mount(MASK, "/tmp/masked", ""),
)
"""A mount of each kind that the launcher makes, in the order in which it makes them."""
COPY = Mount(FILE, "/tmp/copied", "", "0")
"""A copied file: its content is read from a descriptor, so it is tried alone."""
AT_START = (("--chdir", "/"), ("--new-session",), ("--json-status-fd", "1"))
"""What the launcher adds when it starts bwrap."""
_FILTER = ("--seccomp", "0")


def check_bubblewrap(machine: Machine, needs: Needs) -> Iterator[Check]:
    """From the program to the fence."""
    fences = needs.bubblewrap_sandboxes()
    program = machine.find_trusted_program("bwrap")
    if not program:
        commands = ("sudo apt install bubblewrap   # dnf install bubblewrap, pacman -S bubblewrap, apk add bubblewrap",)
        yield failed_check("bubblewrap", GROUP, "bwrap is not on the PATH", fences, remedy=INSTALL, commands=commands, hopeless=True)
        done = machine.run_program(trial_command(NAMESPACES))
        yield _check_user_namespaces(machine, "", done, ())
        return
    yield _check_bwrap_version(machine, program, fences)
    base = machine.run_program((program, *BASE, *RUN))
    yield _check_user_namespaces(machine, program, base, fences)
    if base.has_succeeded:
        yield from _check_sandbox_options(machine, program, needs)
        yield from _check_launcher_namespaces(machine, needs)


def _check_bwrap_version(machine: Machine, program: str, fences: tuple[Policy, ...]) -> Check:
    done = machine.run_program((program, "--version"))
    match = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", done.out)
    real = machine.real_path(program)
    found = f"{done.out.strip() or done.last_error_line()} at {program}" + (f" ({real})" if real != program else "")
    if machine.uid != 0 and machine.file_mode(program) & stat.S_ISUID:
        costs = "it refuses options that the sandbox needs, and a bug in it runs as root"
        commands = (f"sudo chmod u-s {quote_bash(program)}",)
        return weaker_check(
            "bubblewrap", GROUP, f"{found}, setuid root", costs, remedy="remove the setuid bit if users may create user namespaces", commands=commands
        )
    if not match:
        return failed_check("bubblewrap", GROUP, found, fences, remedy=INSTALL, said=done.said)
    if tuple(int(number or 0) for number in match.groups()) < LEAST:
        return weaker_check("bubblewrap", GROUP, found, "some options of the fence: see below", remedy="install 0.8.0 or newer, or use nix develop")
    return passed_check("bubblewrap", GROUP, found)


def _check_user_namespaces(machine: Machine, program: str, done: Done, fences: tuple[Policy, ...]) -> Check:
    """Whether this user may make namespaces: by what came of trying it; the settings only say why not."""
    who = program or "this Python"
    if done.has_succeeded:
        return passed_check("user-namespaces", GROUP, f"{who} makes them")
    why = tuple(namespace_barriers(machine, program))
    said = f"{who}: {done.last_error_line()}"
    if not why:
        why = (Barrier("no setting of this machine says why", "see dmesg for what was denied; backend: landlock needs no namespaces"),)
    if not fences:
        costs = "nothing that this manifest needs" if program else "bubblewrap would start nothing"
        return absent_check("user-namespaces", GROUP, f"{said}: {why[0].found}", costs, remedy=why[0].remedy, commands=why[0].commands)
    commands = tuple(command for barrier in why for command in barrier.commands)
    found = f"{said}: {'; '.join(barrier.found for barrier in why)}"
    remedy = "; ".join(barrier.remedy for barrier in why)
    hopeless = forbids_sandboxes(done.said, machine.read_text_file(USERNS) or "")
    return failed_check("user-namespaces", GROUP, found, fences, remedy=remedy, said=done.said, commands=commands, hopeless=hopeless)


def bwrap_option_groups(plan: Plan, shell: Policy) -> tuple[tuple[str, ...], ...]:
    """What the launcher asks bwrap for, in groups that make sense alone, without the manifest's own paths."""
    rules = read_rules(rules_text(plan, shell, grouped=False), lambda: "", shell.name)
    options = tuple(words for words, _ in option_words(rules))
    return (*options, *mount_options(MOUNTS), *AT_START, *((_FILTER,) if filter_of_shell(shell) else ()))


def mount_options(mounts: Sequence[Mount]) -> Iterator[tuple[str, ...]]:
    """The words of mounts; those of a tmpfs with mode and size in two groups, as a bwrap may lack either."""
    for words, _ in mount_words(mounts, _SIZE):
        if "--size" in words:
            yield words[:2] + words[4:]
            yield words[2:]
        else:
            yield words


def _seccomp_program(shell: Policy) -> bytes:
    found = filter_of_shell(shell)
    return filter_file(found).content_bytes if found else b""


def _check_sandbox_options(machine: Machine, program: str, needs: Needs) -> Iterator[Check]:
    """All options of a sandbox at once, for each kind of sandbox that the manifest has; where that fails each group of options alone."""
    fences = needs.bubblewrap_sandboxes() or tuple(shell for shell in needs.plan.shells if shell.fenced and shell.name == "default")
    asked = {fence.name: bwrap_option_groups(needs.plan, fence) for fence in fences}
    kinds: dict[tuple[tuple[str, ...], ...], list[Policy]] = {}
    for fence in fences:
        kinds.setdefault(asked[fence.name], []).append(fence)
    broken: dict[tuple[str, ...], Done] = {}
    stopped: dict[str, Policy] = {}

    def try_alone(part: tuple[str, ...], given: bytes) -> Done:
        return machine.run_program((program, *BASE, *_with_prerequisites(part), *RUN), given=given if part == _FILTER else b"")

    for options, alike in kinds.items():
        given = _seccomp_program(alike[0])
        done = machine.run_program((program, "--ro-bind", "/", "/", *(word for group in options for word in group), *RUN), given=given)
        alone = {} if done.has_succeeded else {part: try_alone(part, given) for part in options}
        alone |= {part: try_alone(part, b"") for part in mount_options((COPY,)) if part[0] == "--perms"}
        parts = {part: found for part, found in alone.items() if not found.has_succeeded}
        if not done.has_succeeded or parts:
            stopped |= {fence.name: fence for fence in alike}
            broken |= parts or {_TOGETHER: done}
    if not broken:
        yield passed_check("fence", GROUP, "builds what the launcher asks for")
        return
    concerned = tuple(stopped.values()) if needs.bubblewrap_sandboxes() else ()
    first: dict[str, tuple[str, ...]] = {}
    for part in broken:
        first.setdefault(_option_name(part), part)
    for option, part in first.items():
        done = broken[part]
        of_it = tuple(fence for fence in concerned if part in asked[fence.name] or part not in {group for one in asked.values() for group in one})
        remedy, commands = _remedy_for_option(machine, program, option, done)
        # The launcher says so and stops, whatever `fallback` is: some sandbox could be built.
        yield failed_check(f"fence {option}", GROUP, f"{' '.join(part)}: {done.last_error_line()}", of_it, remedy=remedy, said=done.said, commands=commands)


_TOGETHER = ("all of it together",)


def _option_name(part: tuple[str, ...]) -> str:
    return next((word for word in part if word.startswith("--")), part[0])


def _with_prerequisites(part: tuple[str, ...]) -> tuple[str, ...]:
    """The options that a group is tried with: some need others before them."""
    if part[0] == "--hostname":
        return ("--unshare-uts", *part)
    if part == ("--remount-ro", "/dev"):
        return ("--dev", "/dev", *part)
    return ("--tmpfs", "/tmp", *part) if part[-1].startswith("/tmp/") else part


def _remedy_for_option(machine: Machine, program: str, option: str, done: Done) -> tuple[str, tuple[str, ...]]:
    """What mends a part that does not work, by what stands in its way."""
    if option == "--proc" and (hidden := masked_proc_paths(machine)):
        shown = ", ".join(hidden[:3])
        return f"/proc is masked ({shown}): start the container with --security-opt systempaths=unconfined (docker) or unmask=ALL (podman)", ()
    if "Unknown option" in done.said:
        return "install bubblewrap 0.8.0 or newer, or use nix develop, which brings its own", ("nix develop",)
    if machine.uid != 0 and machine.file_mode(program) & stat.S_ISUID:
        return "bwrap is setuid root: take the bit away", (f"sudo chmod u-s {quote_bash(program)}",)
    if why := next(namespace_barriers(machine, program), None):
        return f"{why.found}: {why.remedy}", why.commands
    return "see what it says, and dmesg", ()


def _check_launcher_namespaces(machine: Machine, needs: Needs) -> Iterator[Check]:
    """Filtered shells: the launcher makes the network namespace itself; where only bwrap may, there are proxies alone."""
    python = launcher_python(machine)
    done = machine.run_program((python, *trial_command(NAMESPACES)[1:])) if python else Done(status=127)
    if not python:
        return  # said of python3 itself
    if done.has_succeeded:
        yield passed_check("launcher", GROUP, f"{python} makes the network of filtered shells")
        return
    costs = "names have no address in filtered shells: programs that know no proxy reach nothing"
    real = machine.real_path(python)
    commands = tuple(f"# {line}" for command in profile_commands(machine, python) for line in command.splitlines())
    remedy = f"a profile for {real} would mend it, and let every program in that Python make namespaces" if machine.uid else "see user.max_net_namespaces"
    fences = needs.filtered_sandboxes(BackendName.BUBBLEWRAP)
    yield weaker_check("launcher", GROUP, f"{python}: {done.last_error_line()}", costs, remedy=remedy, fences=fences, commands=commands if machine.uid else ())
