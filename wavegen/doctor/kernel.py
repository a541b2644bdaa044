"""What the kernel lets programs do: namespaces, filters, Landlock, control groups; and who forbids what it does not."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from wavegen.backends.sandboxes.rules_file import filter_of_shell
from wavegen.core.quote import quote_bash
from wavegen.doctor import Check, Needs, absent_check, failed_check, passed_check, weaker_check
from wavegen.doctor.machine import Machine
from wavegen.manifest.model import BackendName, NetworkMode, Seccomp

GROUP = "kernel"
USERNS, CLONE, APPARMOR, UNCONFINED = (
    "/proc/sys/user/max_user_namespaces",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_unconfined",
)
TIOCSTI = "/proc/sys/dev/tty/legacy_tiocsti"
CGROUPS = "/sys/fs/cgroup"
_FILES, _PORTS, _SCOPES, _SOCKETS = 3, 4, 6, 9
"""ABIs of Landlock: all ways to write (Linux 6.2), ports of TCP (6.7), abstract sockets and signals (6.12), sockets by path (7.1)."""

# Loads a filter that lets everything through: PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP with SECCOMP_MODE_FILTER.
FILTER = """
import ctypes, os, struct, sys
code = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 0x7FFF0000), 8)
held = ctypes.create_string_buffer(struct.pack("@HP", 1, ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, held, 0, 0):
    sys.exit("seccomp: " + os.strerror(ctypes.get_errno()))
"""
# What the launcher of filtered shells does: a user and a network namespace, in which the loopback is brought up.
NAMESPACES = """
import ctypes, fcntl, os, socket, struct, sys
user, group = os.geteuid(), os.getegid()
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x50000000):
    sys.exit("unshare: " + os.strerror(ctypes.get_errno()))
step = ""
try:
    for step, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open("/proc/self/" + step, "w") as stream:
            stream.write(text)
    step = "loopback"
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(control, 0x8914, struct.pack("16sH14x", b"lo", 1))
except OSError as failed:
    sys.exit(f"{step}: {failed.strerror}")
"""


@dataclass(frozen=True, slots=True)
class Barrier:
    """Something of the machine that forbids user namespaces."""

    found: str
    remedy: str
    commands: tuple[str, ...] = ()


def trial_command(code: str) -> tuple[str, ...]:
    """A command that runs a few lines of Python, which say on stderr what they could not do."""
    return (sys.executable, "-I", "-S", "-c", code)


def detect_container(machine: Machine) -> str:
    """What kind of container this is; empty where it is none, as far as can be told."""
    if machine.file_mode("/.dockerenv"):
        return "docker"
    if machine.file_mode("/run/.containerenv"):
        return "podman"
    return machine.variables.get("container", "")


def detect_wsl_version(machine: Machine) -> int:
    """Which Windows Subsystem for Linux: 1, 2, or 0 for none."""
    release, _ = machine.release_and_processor()
    if "microsoft" not in release.lower():
        return 0
    # WSL 1 is no Linux: it says 4.4.0-19041-Microsoft; WSL 2 says 5.15.90.1-microsoft-standard-WSL2.
    return 1 if release.startswith("4.4.0-") and release.endswith("-Microsoft") else 2


def masked_proc_paths(machine: Machine) -> tuple[str, ...]:
    """What of /proc is mounted over, as engines do it: the kernel then mounts no other /proc in a user namespace (mount_too_revealing)."""
    lines = (line.split() for line in (machine.read_text_file("/proc/self/mountinfo") or "").splitlines())
    found = (words[4] for words in lines if len(words) > 4)  # noqa: PLR2004  proc(5): the fifth is the mount point
    # An automount of binfmt_misc lies on an empty directory, and hides nothing.
    return tuple(sorted({path for path in found if path.startswith("/proc/") and not path.startswith("/proc/sys/fs/binfmt_misc")}))


def _sysctl_commands(path: str, value: str) -> tuple[str, ...]:
    name = path.removeprefix("/proc/sys/").replace("/", ".")
    return (f"sudo sysctl -w {name}={value}", f"echo '{name} = {value}' | sudo tee /etc/sysctl.d/60-wavegen.conf")


def namespace_barriers(machine: Machine, program: str) -> Iterator[Barrier]:
    """Who forbids a program to make user namespaces, the likeliest first; nothing where no sign of it is found."""
    if detect_wsl_version(machine) == 1:
        command = '# in PowerShell: wsl.exe --set-version "$WSL_DISTRO_NAME" 2'
        yield Barrier("WSL 1 has no namespaces", "move the distribution to WSL 2, in PowerShell", (command,))
        return
    if machine.variables.get("SANDBOX_ACTIVE") and machine.variables.get("WAVEGEN_SHELL"):
        # Nothing is to be loosened for that.
        yield Barrier("this is inside a fenced shell, which allows no namespaces", "run it on the host")
        return
    if (machine.read_text_file(USERNS) or "1").strip() == "0":
        yield Barrier("user.max_user_namespaces is 0", "allow some", _sysctl_commands(USERNS, "15000"))
        return
    if machine.uid != 0:
        if (machine.read_text_file(CLONE) or "1").strip() == "0":
            yield Barrier("kernel.unprivileged_userns_clone is 0 (Debian's setting)", "set it to 1", _sysctl_commands(CLONE, "1"))
        if (machine.read_text_file(APPARMOR) or "0").strip() != "0":
            yield Barrier(
                "kernel.apparmor_restrict_unprivileged_userns is 1 (Ubuntu's AppArmor)",
                f"install a profile for {program}" if program else "install bubblewrap, and a profile for it",
                profile_commands(machine, program) if program else (),
            )
    if where := detect_container(machine):
        # Seccomp: 2 says that a filter is in force (proc(5)).
        held = (
            "a filter of its engine is in force, and " if re.search(r"^Seccomp:\s*2", machine.read_text_file("/proc/self/status") or "", re.MULTILINE) else ""
        )
        yield Barrier(
            f"there are marks of a container ({where}): {held}its engine decides about namespaces",
            "start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined (weaker), or use backend: landlock",
        )


def apparmor_profile(path: str, *, strict: bool) -> str:
    """An AppArmor profile that lets the program at `path` make user namespaces.

    `strict`: written out, with children that have no rights in a namespace, where the kernel takes no namespaces from profiles that are
    `unconfined` (kernel.apparmor_restrict_unprivileged_unconfined).
    """
    name = "wavegen-" + (re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-") or "bwrap")
    # A path is a pattern there; in quotes it may hold spaces.
    attached = '"' + re.sub(r'([\\"*?\[\]{}^@])', r"\\\1", path) + '"'
    head = "abi <abi/4.0>,\ninclude <tunables/global>\n"
    if not strict:
        return f"{head}\nprofile {name} {attached} flags=(unconfined) {{\n  userns,\n}}"
    plain = ("file rwlkm /{**,}", "network", "unix", "ptrace", "signal", "mqueue", "io_uring", "userns", "mount", "umount", "pivot_root", "dbus")
    rules = "\n".join(f"  allow {rule}," for rule in plain)
    first = f"profile {name} {attached} flags=(attach_disconnected) {{\n  allow capability,\n{rules}\n  allow pix /** -> &{name}//&{name}-inside,\n}}"
    second = f"profile {name}-inside flags=(attach_disconnected) {{\n  audit deny capability,\n{rules}\n  allow pix /** -> &{name}-inside,\n}}"
    return f"{head}\n{first}\n\n{second}"


def profile_commands(machine: Machine, program: str) -> tuple[str, ...]:
    """The commands that install a profile for a program where it really lies, and load it."""
    path = machine.real_path(program)
    if not path.isprintable():
        return ()  # a line's end in it would be another line of the profile
    strict = (machine.read_text_file(UNCONFINED) or "0").strip() != "0"
    name = "wavegen-" + (re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-") or "bwrap")
    file = f"/etc/apparmor.d/{name}"
    return (f"sudo tee {file} >/dev/null <<'PROFILE'\n{apparmor_profile(path, strict=strict)}\nPROFILE", f"sudo apparmor_parser -r {quote_bash(file)}")


def check_kernel(machine: Machine, needs: Needs) -> Iterator[Check]:
    """The kernel, from what it says of itself to what it does."""
    yield _check_system(machine, needs)
    yield from _check_seccomp(machine, needs)
    yield _check_landlock(machine, needs)
    yield _check_terminal_injection(machine, needs)
    yield _check_control_groups(machine, needs)
    yield _check_kvm(machine)


def _check_system(machine: Machine, needs: Needs) -> Check:
    release, processor = machine.release_and_processor()
    which = detect_wsl_version(machine)
    where = detect_container(machine)
    found = f"Linux {release} on {processor}" + (f", WSL {which}" if which else "") + (f", with marks of a container ({where})" if where else "")
    fences = (*needs.bubblewrap_sandboxes(), *needs.started_by(BackendName.LANDLOCK))
    if which == 1:
        return failed_check("kernel", GROUP, found, fences, remedy="move the distribution to WSL 2, in PowerShell", hopeless=True)
    filtered = tuple(fence for fence in fences if fence.seccomp is not Seccomp.OFF)
    if processor not in ("x86_64", "aarch64"):
        return failed_check("kernel", GROUP, f"{found}: there is no system call filter for it", filtered, remedy="write seccomp: off if that is meant")
    return passed_check("kernel", GROUP, found)


def _check_seccomp(machine: Machine, needs: Needs) -> Iterator[Check]:
    done = machine.run_program(trial_command(FILTER))
    if done.has_succeeded:
        yield passed_check("seccomp", GROUP, "takes system call filters")
        return
    fences = tuple(fence for backend in BackendName for fence in needs.started_by(backend) if filter_of_shell(fence))
    remedy = "take a kernel with CONFIG_SECCOMP_FILTER; seccomp: off goes without the filter"
    yield failed_check("seccomp", GROUP, f"takes no system call filter: {done.last_error_line()}", fences, remedy=remedy, said=done.said)


def _check_landlock(machine: Machine, needs: Needs) -> Check:
    abi = machine.landlock_version()
    found = f"Landlock ABI {abi}" if abi else "no Landlock, or it is not switched on"
    alone = needs.started_by(BackendName.LANDLOCK)
    stopped = tuple(fence for fence in alone if abi < (_FILES if fence.network.mode is NetworkMode.HOST else _PORTS))
    remedy = "boot with lsm=landlock,... on Linux 6.12 or newer" if not abi else "take Linux 6.12 or newer"
    if stopped:
        return failed_check("landlock", GROUP, found, stopped, remedy=remedy, hopeless=True)
    second = (*needs.bubblewrap_sandboxes(), *needs.started_by(BackendName.DOCKER))
    if abi < _SCOPES:
        lost = ["abstract sockets and signals to processes outside"] + (["some writes"] if abi < _FILES else [])
        costs = (
            f"the second layer does not restrict {', and '.join(lost)}"
            if abi
            else "there is no second layer behind the mounts: nothing catches a mistake in them"
        )
        return weaker_check("landlock", GROUP, found, costs, remedy=remedy, fences=(*second, *alone))
    if alone and abi < _SOCKETS:
        return weaker_check(
            "landlock", GROUP, found, "sockets of the host that have a path, such as docker's, are reached", remedy="take Linux 7.1", fences=alone
        )
    return passed_check("landlock", GROUP, found)


def _check_terminal_injection(machine: Machine, needs: Needs) -> Check:
    value = (machine.read_text_file(TIOCSTI) or "").strip()
    if value == "0":
        return passed_check("terminal", GROUP, "nobody types into another's terminal (dev.tty.legacy_tiocsti is 0)")
    found = "programs may type into their terminal (TIOCSTI)" + ("" if value else ": the kernel has no switch, Linux 6.2 has")
    del needs
    # Sandboxed shells have a filter, or a session of their own; so nothing of the manifest is weaker.
    return weaker_check(
        "terminal", GROUP, found, "yolo, and what else runs without a fence", commands=_sysctl_commands(TIOCSTI, "0") if value else (), remedy="switch it off"
    )


def _check_control_groups(machine: Machine, needs: Needs) -> Check:
    second = machine.file_mode(f"{CGROUPS}/cgroup.controllers")
    kind = "version 2" if second else "version 1" if machine.file_mode(f"{CGROUPS}/memory") else ""
    bounded = tuple(fence for fence in needs.bubblewrap_sandboxes() if fence.limits.written)
    costs = "limits hold for each process alone, and processors are not bounded"
    if not kind:
        return weaker_check("control-groups", GROUP, "no control groups are mounted", costs, remedy="mount /sys/fs/cgroup", fences=bounded)
    if _can_make_control_groups(machine, second=bool(second)):
        return passed_check("control-groups", GROUP, f"{kind}, and groups can be made")
    private = machine.variables.get("XDG_RUNTIME_DIR", "")
    if not (private and stat.S_ISSOCK(machine.file_mode(f"{private}/systemd/private"))):
        found = f"{kind}, none of which are this user's, and no service manager of the user"
        return weaker_check("control-groups", GROUP, found, costs, remedy="log in by a session of systemd", fences=bounded)
    program = machine.find_trusted_program("systemd-run")
    if not program:
        return weaker_check("control-groups", GROUP, f"{kind}; systemd-run is not on the PATH", costs, remedy="install systemd", fences=bounded)
    done = machine.run_program((program, "--user", "--scope", "--quiet", "--collect", "-p", "TasksMax=64", "-p", "MemoryMax=1G", "--", "/bin/sh", "-c", ":"))
    if not done.has_succeeded:
        found = f"{kind}; systemd-run makes no scope: {done.last_error_line()}"
        return weaker_check("control-groups", GROUP, found, costs, remedy="see systemctl --user status", fences=bounded)
    delegated = _delegated_controllers(machine)
    if kind == "version 1" or not {"memory", "pids"} <= delegated:
        found = f"{kind}; the user's service manager bounds only {', '.join(sorted(delegated)) or 'nothing'}"
        commands = (
            "sudo mkdir -p /etc/systemd/system/user@.service.d",
            "printf '[Service]\\nDelegate=cpu memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/delegate.conf",
            "sudo systemctl daemon-reload",
        )
        return weaker_check("control-groups", GROUP, found, costs, remedy="hand more on, and log in again", fences=bounded, commands=commands)
    return passed_check("control-groups", GROUP, f"{kind}, by scopes of the user's systemd ({', '.join(sorted(delegated))})")


def _delegated_controllers(machine: Machine) -> set[str]:
    base = f"{CGROUPS}/user.slice/user-{machine.uid}.slice/user@{machine.uid}.service/cgroup.controllers"
    return set((machine.read_text_file(base) or "").split())


def _can_make_control_groups(machine: Machine, *, second: bool) -> bool:
    """Whether the launcher can make groups of its own, by the same conditions as launcher/cgroups.py."""
    lines = [line.split(":", 2) for line in (machine.read_text_file("/proc/self/cgroup") or "").splitlines() if line.count(":") > 1]
    if second:
        place = CGROUPS + next((path for number, name, path in lines if (number, name) == ("0", "")), "/").rstrip("/")
        while place.startswith(CGROUPS):
            enabled = (machine.read_text_file(f"{place}/cgroup.subtree_control") or "").split()
            if machine.may_access(place, os.W_OK) and machine.may_access(f"{place}/cgroup.procs", os.W_OK) and {"pids", "memory"} <= set(enabled):
                return True
            place = place.rpartition("/")[0]
        return False
    for controller in ("pids", "memory"):
        path = next((path for _, names, path in lines if controller in names.split(",")), "/")
        place = f"{CGROUPS}/{controller}"
        own = f"{place}{path}".rstrip("/")
        place = own if machine.file_mode(own) else place
        if not machine.may_access(place, os.W_OK) or not machine.file_mode(f"{place}/tasks"):
            return False
    return True


def _check_kvm(machine: Machine) -> Check:
    if not machine.file_mode("/dev/kvm"):
        return absent_check(
            "kvm", GROUP, "no /dev/kvm", "containers in a virtual machine of their own (Kata)", remedy="switch virtualisation on in the firmware"
        )
    if not machine.may_access("/dev/kvm", os.R_OK | os.W_OK):
        costs = "containers in a virtual machine of their own (Kata) for this user"
        return weaker_check("kvm", GROUP, "/dev/kvm is not this user's", costs, remedy="join the group kvm", commands=('sudo usermod -aG kvm "$(id -un)"',))
    return passed_check("kvm", GROUP, "/dev/kvm can be used")
