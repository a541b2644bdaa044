"""Nix: which version, whether flakes are switched on, who trusts whom, how builds are fenced. No store is opened, nothing is built."""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Iterator

from wavegen.doctor import Check, Needs, absent_check, passed_check, weaker_check
from wavegen.doctor.machine import Machine
from wavegen.doctor.programs import parse_version_number
from wavegen.explain.known_errors import recognise_troubles
from wavegen.policy.model import Access, Anchor, HostPath, Policy

GROUP = "nix"
_FEATURES = {"nix-command", "flakes"}
_LEAST, _NEWER, _CONFIG = (2, 4), (2, 19), (2, 20)
"""Flakes came with 2.4; 2.19 reads them at any path; 2.20 renamed `show-config`."""
_SOCKET = HostPath(Anchor.ROOT, "nix/var/nix/daemon-socket/socket")


def check_nix(machine: Machine, needs: Needs) -> Iterator[Check]:
    """Nothing of it is needed: the scripts of .wavegen/bin start without. So no shell ever waits for it."""
    program = machine.find_trusted_program("nix") or next((path for path in ("/nix/var/nix/profiles/default/bin/nix",) if machine.file_mode(path)), "")
    if not program:
        costs = "nix develop, nix run, and the packages that the manifest lists; .wavegen/bin starts without"
        yield absent_check("nix", GROUP, "nix is not on the PATH", costs, remedy="install Nix with a daemon, as nixos.org says")
        return
    numbers = parse_version_number(machine.run_program((program, "--version")))
    found = f"{program} {'.'.join(map(str, numbers)) or 'does not run'}"
    if numbers < _LEAST:
        yield weaker_check("nix", GROUP, found, "it has no flakes: nix develop", remedy="take Nix 2.4 or newer; .wavegen/bin starts without")
        return
    old = numbers < _NEWER
    note = "before 2.19 no flake is read in a git repository whose path holds other signs than letters, digits and ./_~+@=,-"
    yield weaker_check("nix", GROUP, found, note, remedy="where that matters: nix develop path:.") if old else passed_check("nix", GROUP, found)
    yield from _check_nix_settings(machine, needs, program, ("config", "show") if numbers >= _CONFIG else ("show-config",))


def _check_nix_settings(machine: Machine, needs: Needs, program: str, show: tuple[str, ...]) -> Iterator[Check]:
    done = machine.run_program((program, *show))
    allowed = machine.run_program((program, "--extra-experimental-features", "nix-command", *show)) if not done.has_succeeded else done
    settings = dict(re.findall(r"^([\w-]+) = ?(.*)$", allowed.out, re.MULTILINE))
    if not settings:
        yield weaker_check(
            "flakes", GROUP, f"nix {' '.join(show)} says nothing: {done.last_error_line()}", "whether nix develop works is not known", remedy="see nix.conf"
        )
        return
    # Where it had to be switched on to be asked, it is not on.
    on = set(settings.get("experimental-features", "").split()) - (set() if done.has_succeeded else {"nix-command"})
    lacking = sorted(_FEATURES - on)
    if lacking:
        known = recognise_troubles("error: experimental Nix feature 'flakes' is disabled")
        found = f"switched off: {', '.join(lacking)}"
        yield weaker_check("flakes", GROUP, found, "nix develop and nix run", remedy=known[0].remedy, commands=known[0].commands)
    else:
        yield passed_check("flakes", GROUP, "switched on")
    yield _check_trusted_users(machine, needs, settings.get("trusted-users", "root").split())
    value = settings.get("sandbox", "")
    if value == "true":
        yield passed_check("nix-sandbox", GROUP, "builds are fenced by Nix")
    else:
        costs = "what nix develop builds may read this machine and reach the network"
        commands = ("echo 'sandbox = true' | sudo tee -a /etc/nix/nix.conf",)
        yield weaker_check("nix-sandbox", GROUP, f"sandbox = {value or '?'}", costs, remedy="write sandbox = true into /etc/nix/nix.conf", commands=commands)


def _check_trusted_users(machine: Machine, needs: Needs, trusted: list[str]) -> Check:
    """Whom the daemon trusts is as good as root, and so is whoever reaches it as that user."""
    who = _user_and_group_names(machine.uid)
    by = next((entry for entry in trusted if entry == "*" or entry in who), "")
    if not by:
        return passed_check("nix-trust", GROUP, "the daemon does not trust this user: settings that a flake brings along are ignored")
    reached = tuple(fence for fence in needs.plan.all_fences() if fence.fenced and _reaches_nix_daemon(fence))
    if machine.uid == 0 and not reached:
        return passed_check("nix-trust", GROUP, "root is trusted, as everywhere; no shell reaches the daemon")
    costs = "a shell that reaches the daemon is as good as root" + ("" if reached else "; none of this manifest does")
    return weaker_check("nix-trust", GROUP, f"this user is trusted by {by}", costs, remedy="take it out of trusted-users in /etc/nix/nix.conf", fences=reached)


def _user_and_group_names(uid: int) -> set[str]:
    """A user's name, and @ with the names of the user's groups."""
    try:
        user = pwd.getpwuid(uid)
    except KeyError:
        return set()
    groups = {group.gr_name for group in grp.getgrall() if user.pw_name in group.gr_mem or group.gr_gid == user.pw_gid}
    return {user.pw_name, *(f"@{name}" for name in groups)}


def _reaches_nix_daemon(fence: Policy) -> bool:
    """Whether the daemon's socket is shown: of the rules about what holds it the deepest decides."""
    above = [rule for rule in fence.paths if rule.path.contains_path(_SOCKET)]
    deepest = max(above, key=lambda rule: len(rule.path.tail_parts()), default=None)
    return deepest is not None and deepest.access in (Access.READ, Access.WRITE)
