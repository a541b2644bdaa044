"""What an interactive shell begins with: where it writes, what it reads, whom it reaches. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from wavegen.manifest.model import NetworkMode
from wavegen.policy.model import Access, Anchor, HostPath, Network, Policy


def banner_lines(
    shell: Policy, *, by: str = "bubblewrap", system: str = "", fence: str = "the manifest, flake.nix and .wavegen are read-only"
) -> Iterator[str]:
    """What an interactive shell begins with. `system`: what is read, where it is not the host's."""
    granted = [rule for rule in shell.paths if rule.origin.at and not rule.pinned]
    project = next((rule.access for rule in shell.paths if rule.path == HostPath(Anchor.PROJECT)), Access.WRITE)
    writable = [*(("the project",) if project is Access.WRITE else ()), "~ (private" + (", kept)" if shell.private_home else ", empty)"), "/tmp"]
    writable += [str(rule.path) for rule in granted if rule.access is Access.WRITE and rule.path.tail]
    readable = [system or ("the host's system, without homes, other disks and /var" if not shell.minimal_root else "programs and libraries of the host")]
    readable += ["the project"] if project is Access.READ else []
    readable += [str(rule.path) for rule in granted if rule.access is Access.READ and rule.path.tail]
    hidden = [str(rule.path) for rule in granted if rule.access is Access.HIDE]
    yield f"wavegen: shell {shell.name}: fenced by {by}"
    yield f"  write:   {', '.join(writable)}"
    yield f"  read:    {', '.join(readable)}"
    if hidden:
        yield f"  hidden:  {', '.join(hidden)}"
    match shell.network.mode:
        case NetworkMode.HOST:
            yield "  network: the host's, with its loopback and LAN"
        case NetworkMode.NONE:
            yield "  network: none"
        case NetworkMode.OPEN:
            yield "  network: any public name; what was refused: wavegen log"
        case NetworkMode.FILTERED:
            yield f"  network: {_join_network_names(shell.network)}; what was refused: wavegen log"
        case _:
            assert_never(shell.network.mode)
    yield f"  fence:   {fence}"


def _join_network_names(network: Network) -> str:
    names = [str(rule) for rule in network.domains] + [f"localhost:{port}" for port in network.loopback]
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else "")


_NAMES_SHOWN = 6


def landlock_banner(shell: Policy) -> tuple[str, ...]:
    """The same where Landlock alone holds the shell."""
    system = "programs and libraries of the host"
    return tuple(banner_lines(shell, by="Landlock", system=system, fence="the manifest and .wavegen can be written: wavegen run refuses what was changed"))
