"""Bounds for all processes of a shell together: control groups of our own where they can be made (cgroups(7)), else a scope of the user's
service manager (systemd-run(1)). Only where the manifest writes limits: to join a group takes the kernel longer than all the rest of a start.
"""

from __future__ import annotations

import errno
import posix
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT = "/sys/fs/cgroup"
_PERIOD = 100_000
"""Microseconds over which the kernel shares processors out."""


class Bounds:
    """What is to be bounded: processes, bytes, and hundred-thousandths of a processor (0: none)."""

    __slots__ = ("cpus", "memory", "pids")

    def __init__(self, pids: int, memory: int, cpus: int) -> None:
        self.pids, self.memory, self.cpus = pids, memory, cpus


class Groups:
    """The control groups of one shell. `held`: which of pids, memory and cpu they bound."""

    def __init__(self, bounds: Bounds) -> None:
        self.paths: list[str] = []
        self.held: set[str] = set()
        wanted = ["pids", "memory", *(["cpu"] if bounds.cpus else [])]
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as stream:
            own = [line.rstrip("\n").split(":", 2) for line in stream]
        places = _unified_parents(own, wanted) if _path_exists(f"{_ROOT}/cgroup.controllers") else _controller_parents(own, wanted)
        self._make_cgroups(list(dict.fromkeys(places)))
        for path in self.paths:
            self._write_bounds(path, bounds)
        if not bounds.cpus:
            self.held.add("cpu")

    @property
    def unbounded_resources(self) -> list[str]:
        """What they do not bound."""
        return [name for name in ("pids", "memory", "cpu") if name not in self.held]

    def _make_cgroups(self, places: list[str]) -> None:
        for place in places:
            _remove_stale(place)
            path = f"{place}/wavegen-{posix.getpid()}"
            try:
                posix.mkdir(path)
            except OSError:
                self.remove_cgroups()
                return
            self.paths.append(path)

    def _write_bounds(self, path: str, bounds: Bounds) -> None:
        memory, pids = str(bounds.memory), str(bounds.pids)
        if _write_control_file(f"{path}/pids.max", pids):
            self.held.add("pids")
        if _write_control_file(f"{path}/memory.max", memory) or _write_control_file(f"{path}/memory.limit_in_bytes", memory):
            self.held.add("memory")
            _write_control_file(f"{path}/memory.swap.max", "0")
            _write_control_file(f"{path}/memory.memsw.limit_in_bytes", memory)
        cpus = str(bounds.cpus)
        if bounds.cpus and (
            _write_control_file(f"{path}/cpu.max", f"{cpus} {_PERIOD}")
            or (_write_control_file(f"{path}/cpu.cfs_period_us", str(_PERIOD)) and _write_control_file(f"{path}/cpu.cfs_quota_us", cpus))
        ):
            self.held.add("cpu")

    def join_cgroups(self) -> None:
        """Let this process, and what it starts, be counted. Raises OSError."""
        for path in self.paths:
            with open(f"{path}/cgroup.procs", "w", encoding="ascii") as stream:
                stream.write(str(posix.getpid()))

    def remove_cgroups(self) -> None:
        """Remove them. bwrap ends a moment before the last of the processes that it leaves to the kernel."""
        for _ in range(100):
            self.paths = [path for path in self.paths if not _remove_cgroup(path)]
            if not self.paths:
                return
            time.sleep(0.01)


def _unified_parents(own: list[list[str]], wanted: list[str]) -> Iterator[str]:
    """Version 2: below the nearest group above ours that hands its controllers on."""
    path = next((path for number, names, path in own if number == "0" and not names), "/")
    place = (_ROOT + path).rstrip("/")
    while place.startswith(_ROOT):
        try:
            with open(f"{place}/cgroup.subtree_control", encoding="ascii") as stream:
                handed_on = stream.read().split()
        except OSError:
            handed_on = []
        if set(wanted) <= set(handed_on) and posix.access(place, posix.W_OK) and posix.access(f"{place}/cgroup.procs", posix.W_OK):
            yield place
            return
        place = place.rpartition("/")[0]


def _controller_parents(own: list[list[str]], wanted: list[str]) -> Iterator[str]:
    """Version 1: one hierarchy for each controller."""
    for _, names, path in own:
        for controller in wanted:
            if controller in names.split(","):
                place = f"{_ROOT}/{controller}"
                # In a container the path may be the host's.
                place = f"{place}{path}".rstrip("/") if _path_exists(f"{place}{path}") else place
                if _path_exists(f"{place}/tasks") and posix.access(place, posix.W_OK):
                    yield place


def _remove_stale(place: str) -> None:
    """Remove the groups of launchers that were killed."""
    for name in posix.listdir(place):
        number = name[8:] if name.startswith("wavegen-") else ""
        if number.isdigit() and not _path_exists(f"/proc/{number}"):
            _remove_cgroup(f"{place}/{name}")


def _path_exists(path: str) -> bool:
    return posix.access(path, posix.F_OK)


def _write_control_file(path: str, text: str) -> bool:
    """Write to a file of the kernel's that is there; whether it took that."""
    if not _path_exists(path):
        return False
    try:
        with open(path, "w", encoding="ascii") as stream:
            stream.write(text)
    except OSError:
        return False
    return True


def _remove_cgroup(path: str) -> bool:
    try:
        posix.rmdir(path)
    except OSError as failed:
        return failed.errno != errno.EBUSY
    return True


def scope_words(runtime_directory: str, program: str, bounds: Bounds, passed: set[str]) -> list[str]:
    """The words before bwrap that start it in a scope of the user's service manager. `program`: systemd-run; `passed`: variables that arrive inside."""
    # They lead to the service manager, which starts programs outside.
    unset = [word for name in ("XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS") if name not in passed for word in ("-u", name)]
    words = ["/usr/bin/env", f"XDG_RUNTIME_DIR={runtime_directory}", program, "--user", "--scope", "--quiet", "--collect"]
    words += ["-p", f"TasksMax={bounds.pids}", "-p", f"MemoryMax={bounds.memory}", "-p", "MemorySwapMax=0"]
    words += ["-p", f"CPUQuota={bounds.cpus * 100 // _PERIOD}%"] if bounds.cpus else []
    return [*words, "--", *(["/usr/bin/env", *unset] if unset else [])]
