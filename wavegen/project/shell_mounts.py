"""What is mounted in a shell of a project, by the launcher's own decision: for whoever explains or tries a shell. Starts and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from wavegen.backends.sandboxes.rules_file import rules_text
from wavegen.core.errors import MachineError
from wavegen.launcher.errors import CannotStartError
from wavegen.launcher.host import RealHost
from wavegen.launcher.mounts import Mount, resolve_mounts
from wavegen.launcher.places import Places
from wavegen.launcher.rules import read_rules
from wavegen.launcher.symlinks import is_within
from wavegen.policy.model import Anchor, Plan, Policy


@dataclass(frozen=True, slots=True)
class ShellMounts:
    """Where a shell's directories are on this machine, and its mounts, in the order in which they are made."""

    places: Places
    mounts: tuple[Mount, ...]

    def mount_at(self, path: str) -> Mount | None:
        """The mount that decides about a path without links: the deepest at or above it; None where nothing is mounted."""
        covering = [mount for mount in self.mounts if is_within(path, mount.target)]
        return max(covering, key=lambda mount: len(mount.target), default=None)


def resolve_shell_mounts(plan: Plan, shell: Policy, root: str, environment: Mapping[str, str], *, stores: Sequence[str] | None = None) -> ShellMounts:
    """What the launcher mounts for a shell that is started in `root`. `environment`: its caller's; `stores`: see launcher/mounts.resolve_mounts.

    Raises MachineError where the launcher would refuse to start.
    """
    return _resolve_mounts(plan, shell, root, environment, RealHost(), stores)


def resolve_supposed_mounts(plan: Plan, shell: Policy, root: str, environment: Mapping[str, str]) -> ShellMounts:
    """The same as if everything that rules of the manifest and of wavegen itself name was there: a directory, where nothing is yet."""
    rules = [rule for rule in shell.paths if rule.source is None and (rule.origin.at or rule.pinned) and rule.path.anchor in _KNOWN]
    home = os.path.realpath(environment.get("HOME") or os.path.expanduser("~"))
    bases = {Anchor.ROOT: "/", Anchor.HOME: home, Anchor.PROJECT: root}
    paths = [os.path.join(bases[rule.path.anchor], rule.path.tail).rstrip("/") for rule in rules if not rule.socket]
    return _resolve_mounts(plan, shell, root, environment, _SupposedHost(paths))


_KNOWN = (Anchor.ROOT, Anchor.HOME, Anchor.PROJECT)


class _SupposedHost(RealHost):
    """This machine with directories at some paths, where nothing is."""

    def __init__(self, paths: Iterable[str]) -> None:
        super().__init__()
        self._supposed = {path[:end] for path in paths for end in range(1, len(path) + 1) if path[end : end + 1] in ("", "/")}

    def lstat(self, path: str) -> os.stat_result:
        try:
            return super().lstat(path)
        except FileNotFoundError:
            if path not in self._supposed:
                raise
            return super().lstat("/")


def _resolve_mounts(  # noqa: PLR0913, PLR0917  what a start is made of
    plan: Plan, shell: Policy, root: str, environment: Mapping[str, str], host: RealHost, stores: Sequence[str] | None = None
) -> ShellMounts:
    try:
        rules = read_rules(rules_text(plan, shell, grouped=False), lambda: "", "the plan's rules")
        places = Places(host, rules, environment, start=root, project=root, launcher=os.path.join(root, ".wavegen/launcher"))
        return ShellMounts(places, resolve_mounts(rules, places, host, stores=stores))
    except CannotStartError as failed:
        raise MachineError(f"{shell.name} does not start here: {failed.what}", failed.remedy) from None
    finally:
        host.close_kept_directories()
