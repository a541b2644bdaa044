"""What doctor says of a machine: of this one, compared with what the launcher does; of others by a stand-in that answers as they do."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import jinja2
import markupsafe
import pytest
import yaml
from fence import MANIFEST, PYTHON, Fence, name_of, users
from helpers import LINEAR, ROOT, growth, in_place_of_bwrap, until

from wavegen.doctor import Check, State, bubblewrap, collect, exit_code_of_checks, kernel, machine, programs, show
from wavegen.doctor.machine import Done, ThisMachine
from wavegen.explain.known_errors import TROUBLES, Trouble, recognise_troubles
from wavegen.launcher import engine
from wavegen.verify import launcher_probes

DIRECTORY, SOCKET, SETUID = 0o040755, 0o140600, 0o104755
PROGRAM = 0o100755


# --- messages


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.name)
def test_each_message_is_recognised_as_what_it_is(trouble: Trouble) -> None:
    assert [found.name for found in recognise_troubles(trouble.says)] == [trouble.name]
    assert trouble.cause
    assert trouble.remedy


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bwrap: setting up uid map: Permission denied", "uid-map"),
        ("unshare: write failed /proc/self/uid_map: Operation not permitted", "uid-map"),
        ('write("/proc/self/uid_map", ..) => Operation not permitted', ""),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", "loopback"),
        ("bwrap: loopback: Failed RTM_NEWADDR: No child processes", "loopback"),
        (
            "bwrap: No permissions to creating new namespace, likely because the kernel does not allow non-privileged user namespaces. On e.g. debian …",
            "forbidden-namespaces",
        ),
        ("bwrap: Creating new namespace failed: Operation not permitted", "new-namespace"),
        ("bwrap: Creating new namespace failed: Invalid argument", "wsl1"),
        ("bwrap: Creating new namespace failed, likely because the kernel does not support user namespaces.", "new-namespace"),
        ("unshare: unshare failed: No space left on device", "too-many-namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Permission denied", "masked-proc"),
        ("bwrap: Can't get type of source /home/me/x/.git/index.lock: No such file or directory", "missing-source"),
        ("bwrap: Can't create file at /etc/resolv.conf: No such file or directory", "mount-point"),
        ("bwrap: Can't create file at /home/me/project/.git: Is a directory", "mount-point"),
        ("error: experimental Nix feature 'nix-command' is disabled; use '--extra-experimental-features nix-command' to override", "flakes-disabled"),
        ("error: getting status of '/nix/store/0a1b-source/flake.nix': No such file or directory", "untracked"),
        ("error: ignoring the client-specified setting 'sandbox', because it is a restricted setting and you are not a trusted user", "untrusted"),
        ("Got permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: Get …", "docker-permission"),
        ("permission denied while trying to connect to the docker API at unix:///var/run/docker.sock", "docker-permission"),
        ("ERROR: Cannot connect to the Docker daemon at tcp://localhost:2375. Is the docker daemon running?", "docker-down"),
        ('Error: cannot set up namespace using "/usr/bin/newuidmap": exit status 1', "no-subordinate-ids"),
        ("warning: No TTY for interactive shell (tcgetpgrp failed)", "no-job-control"),
        ("mv: cannot move 'a' to 'b/a': Invalid cross-device link", "cross-device"),
        ("all is well", ""),
        ("", ""),
    ],
)
def test_variants_of_public_messages(text: str, name: str) -> None:
    assert [found.name for found in recognise_troubles(text)] == ([name] if name else [])


def test_messages_are_found_among_other_lines_once_each() -> None:
    text = (
        "starting\nbwrap: setting up uid map: Permission denied\nretry\nBWRAP: setting up uid map: permission denied\nfatal: ambiguous argument 'HEAD': both\n"
    )
    assert [found.name for found in recognise_troubles(text)] == ["uid-map", "ambiguous-head"]


def test_a_long_line_is_judged_in_linear_time() -> None:
    """Patterns are held against whatever a user pastes."""
    for text, number in (
        ("a", 15_000),
        ("TMPDIR", 2_500),
        ("unable to create file ", 700),
        ("path 'x", 2_000),
        ("'/nix/store/a-source/", 700),
        ("TMPDIR\n", 700),
    ):
        assert growth(lambda size, text=text: recognise_troubles(text * size), number) < LINEAR, text  # type: ignore[misc]


def test_names_of_troubles_are_unique_and_no_remedy_is_empty() -> None:
    assert len({trouble.name for trouble in TROUBLES}) == len(TROUBLES) > 40
    assert all(re.fullmatch("[a-z0-9-]+", trouble.name) for trouble in TROUBLES)


# --- a machine that answers as others do


@dataclass(frozen=True)
class StandIn:
    """A machine on which all is well, but for what is said of it."""

    uid: int = 1000
    variables: Mapping[str, str] = field(default_factory=lambda: {"HOME": "/home/me", "PATH": "/usr/bin"})
    answers: tuple[tuple[str, Done], ...] = ()
    """By a pattern for the command's words; the first that matches holds."""
    files: Mapping[str, str] = field(default_factory=dict)
    modes: Mapping[str, int] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    abi: int = 7
    release: tuple[str, str] = ("6.12.0", "x86_64")
    ran: list[tuple[str, ...]] = field(default_factory=list)

    def run_program(self, argv: Sequence[str], *, given: bytes = b"") -> Done:
        self.ran.append(tuple(argv))
        assert (b"".join([given]) != b"") == ("--seccomp" in argv)
        return next(done for pattern, done in (*self.answers, *WELL) if re.search(pattern, " ".join(argv)))

    def read_text_file(self, path: str) -> str | None:
        return {**FILES, **self.files}.get(path)

    def file_mode(self, path: str) -> int:
        return {**MODES, **self.modes}.get(path, 0)

    def may_access(self, path: str, how: int) -> bool:
        del how
        return path == "/dev/kvm"

    def find_trusted_program(self, name: str) -> str:
        return {**PROGRAMS, **self.programs}.get(name, "")

    def real_path(self, path: str) -> str:
        return path

    def landlock_version(self) -> int:
        return self.abi

    def release_and_processor(self) -> tuple[str, str]:
        return self.release


def said(text: str) -> Done:
    return Done(status=1, said=text)


def told(text: str) -> Done:
    return Done(status=0, out=text)


INFO = "name=seccomp,profile=builtin\nname=cgroupns\ncpus=2\nsystem=linux Debian GNU/Linux 12 (bookworm)\nMemoryLimit=true\nPidsLimit=true\nCPUCfsQuota=true\n"
WELL = (
    (r"^/usr/bin/bwrap --version$", told("bubblewrap 0.9.0\n")),
    (r"python3 -I -S --version$", told("Python 3.12.3\n")),
    (r"git --version$", told("git version 2.43.0\n")),
    (r"nix --version$", told("nix (Nix) 2.24.9\n")),
    (r"nix config show$", told("experimental-features = flakes nix-command\nsandbox = true\ntrusted-users = root\n")),
    (r"docker info", told(INFO)),
    (r"podman --version", told("podman version 4.9.3\n")),
    (r"image inspect", told("sha256:0\n")),
    (r"", Done(status=0)),
)
FILES = {
    kernel.USERNS: "63000\n",
    kernel.TIOCSTI: "0\n",
    "/proc/self/status": "Name:\tx\nSeccomp:\t0\n",
    "/proc/self/mountinfo": "22 27 0:21 / /proc rw,relatime - proc proc rw\n",
    "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-1.scope\n",
    "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers": "cpu memory pids\n",
    "/etc/subuid": "1000:100000:65536\n",
    "/etc/subgid": "1000:100000:65536\n",
}
MODES = {"/usr/bin/python3": PROGRAM, "/sys/fs/cgroup/cgroup.controllers": 0o100444, "/dev/kvm": 0o020660, "/usr/bin/bwrap": PROGRAM}
PROGRAMS = {
    name: f"/usr/bin/{name}" for name in ("bash", "bwrap", "perl", "python3", "git", "nix", "docker", "podman", "newuidmap", "newgidmap", "systemd-run")
}
SESSION = {"variables": {"HOME": "/home/me", "PATH": "/usr/bin", "XDG_RUNTIME_DIR": "/run/user/1000"}, "modes": {"/run/user/1000/systemd/private": SOCKET}}
UID_MAP = "bwrap: setting up uid map: Permission denied\n"


def look(tmp_path: Path, stand_in: StandIn, manifest: str = MANIFEST) -> dict[str, Check]:
    """All checks of a project that is rendered, by name; a name that comes twice is a defect."""
    root = tmp_path / "project"
    root.mkdir()
    (root / "wave.yaml").write_text(manifest)
    subprocess.run([sys.executable, "-m", "wavegen", "render"], cwd=root, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    found = collect.run_all_checks(stand_in, collect.load_project_if_present(str(root / "wave.yaml")), lambda _: None)
    checks = {check.name: check for check in found}
    assert len(checks) == len(found)
    for check in found:
        assert (check.state is State.OK) == (not check.remedy and not check.costs) or not check.shells, check
    return checks


def test_on_a_machine_on_which_all_is_well_nothing_is_to_be_mended(tmp_path: Path) -> None:
    checks = look(tmp_path, StandIn(**SESSION))  # type: ignore[arg-type]
    assert {check.name for check in checks.values() if check.state is not State.OK} == {"claude", "codex", "gemini", "opencode", "srt"}
    assert exit_code_of_checks(checks.values()) == 0
    assert not any(line.startswith(("sudo", "nix", "export")) for line in show.render_fix_script(checks.values()))


def test_apparmor_of_ubuntu(tmp_path: Path) -> None:
    """The setting is read, the profile is for the program that is used, and nothing advises to share the network."""
    stand_in = StandIn(answers=((r"^/usr/bin/bwrap --unshare-user", said(UID_MAP)),), files={kernel.APPARMOR: "1\n", kernel.CLONE: "1\n"})
    checks = look(tmp_path, stand_in)
    check = checks["user-namespaces"]
    assert (check.state, check.shells) == (State.MISSING, ("default", "restricted"))
    assert "apparmor_restrict_unprivileged_userns is 1" in check.found
    assert "unprivileged_userns_clone" not in check.found
    assert [trouble.name for trouble in check.troubles] == ["uid-map"]
    assert exit_code_of_checks(checks.values()) == 3
    text = "\n".join(show.render_fix_script(checks.values()))
    assert 'profile wavegen-usr-bin-bwrap "/usr/bin/bwrap" flags=(unconfined) {\n  userns,\n}' in text
    assert "sudo apparmor_parser -r /etc/apparmor.d/wavegen-usr-bin-bwrap" in text
    assert "share-net" not in text
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0


def test_apparmor_that_takes_no_unconfined_profiles_gets_one_that_is_written_out(tmp_path: Path) -> None:
    place = "/nix/store/0a1b2c-bubblewrap-0.11.0/bin/bwrap"
    stand_in = StandIn(
        answers=((r"bwrap --version", told("bubblewrap 0.11.0\n")), (r"bwrap --unshare-user", said(UID_MAP))),
        files={kernel.APPARMOR: "1\n", kernel.UNCONFINED: "1\n"},
        programs={"bwrap": place},
    )
    text = "\n".join(show.render_fix_script(look(tmp_path, stand_in).values()))
    assert f'"{place}" flags=(attach_disconnected)' in text
    assert "flags=(unconfined)" not in text
    assert "audit deny capability," in text
    assert '"/usr/bin/bwrap"' not in text


def test_a_path_is_no_pattern_in_a_profile() -> None:
    assert '"/opt/a b\\*{c\\}/bwrap"'.replace("{", "\\{") in kernel.apparmor_profile("/opt/a b*{c}/bwrap", strict=False)
    assert kernel.profile_commands(StandIn(), "/opt/x\nuserns,/bwrap") == ()


def test_where_only_bwrap_has_a_profile_filtered_shells_make_do_with_proxies(tmp_path: Path) -> None:
    stand_in = StandIn(answers=((r"import ctypes, fcntl", said("loopback: Operation not permitted\n")),), files={kernel.APPARMOR: "1\n"})
    checks = look(tmp_path, stand_in, MANIFEST + "runtime: {sandbox: {default_allowed_domains: [example.com]}}\n")
    assert (checks["launcher"].state, checks["launcher"].shells) == (State.WEAKER, ("restricted",))
    assert checks["user-namespaces"].state is State.OK
    assert exit_code_of_checks(checks.values()) == 1
    # Whether all of Python may do so is nobody's to switch on by the way.
    assert all(line.startswith("#") for command in checks["launcher"].commands for line in command.split("\n"))
    assert any("profile wavegen-usr-bin-python3" in command for command in checks["launcher"].commands)


@pytest.mark.parametrize(
    ("files", "message", "setting", "command"),
    [
        (
            {kernel.USERNS: "0\n"},
            "bwrap: Creating new namespace failed: No space left on device",
            "user.max_user_namespaces is 0",
            "user.max_user_namespaces=15000",
        ),
        (
            {kernel.CLONE: "0\n"},
            "bwrap: No permissions to create new namespace, likely",
            "unprivileged_userns_clone is 0",
            "kernel.unprivileged_userns_clone=1",
        ),
    ],
    ids=["max_user_namespaces", "debian"],
)
def test_settings_that_forbid_namespaces(tmp_path: Path, files: dict[str, str], message: str, setting: str, command: str) -> None:
    checks = look(tmp_path, StandIn(answers=((r"bwrap --unshare-user", said(message)),), files=files))
    assert setting in checks["user-namespaces"].found
    assert f"sudo sysctl -w {command}" in checks["user-namespaces"].commands
    assert exit_code_of_checks(checks.values()) == 3


def test_a_setting_that_binds_users_binds_no_root() -> None:
    files = {kernel.CLONE: "0\n", kernel.APPARMOR: "1\n"}
    assert [b.found for b in kernel.namespace_barriers(StandIn(uid=0, files=files), "/usr/bin/bwrap")] == []
    assert len(list(kernel.namespace_barriers(StandIn(files=files), "/usr/bin/bwrap"))) == 2


def test_nobody_is_told_to_loosen_a_container_for_what_a_fence_or_a_setting_forbids() -> None:
    marks = {"/.dockerenv": 0o100644}
    inside = {"SANDBOX_ACTIVE": "1", "WAVEGEN_SHELL": "default"}
    for stand_in in (StandIn(modes=marks, variables=inside), StandIn(modes=marks, files={kernel.USERNS: "0\n"})):
        (barrier,) = kernel.namespace_barriers(stand_in, "/usr/bin/bwrap")
        assert "unconfined" not in barrier.remedy
    (barrier,) = kernel.namespace_barriers(StandIn(modes=marks, files={"/proc/self/status": "Seccomp:\t2\n"}), "/usr/bin/bwrap")
    assert "a filter of its engine is in force" in barrier.found


def test_fallback_warn_is_told_as_no_fence_at_all(tmp_path: Path) -> None:
    stand_in = StandIn(answers=((r"bwrap --unshare-user", said(UID_MAP)),), files={kernel.APPARMOR: "1\n"})
    checks = look(tmp_path, stand_in, MANIFEST + "runtime: {sandbox: {fallback: warn}}\n")
    assert checks["user-namespaces"].state is State.WEAKER
    assert "NOT SANDBOXED" in checks["user-namespaces"].costs
    assert exit_code_of_checks(checks.values()) == 1


def test_a_masked_proc_of_a_container(tmp_path: Path) -> None:
    mounts = "22 27 0:21 / /proc rw - proc proc rw\n31 22 0:24 / /proc/kcore rw - tmpfs tmpfs rw\n32 22 0:24 / /proc/acpi ro - tmpfs tmpfs ro\n"
    stand_in = StandIn(
        answers=((r"bwrap .*--proc", said("bwrap: Can't mount proc on /newroot/proc: Operation not permitted\n")),),
        files={"/proc/self/mountinfo": mounts},
        modes={"/.dockerenv": 0o100644},
    )
    checks = look(tmp_path, stand_in)
    check = checks["fence --proc"]
    assert (check.state, check.shells) == (State.MISSING, ("default", "restricted"))
    assert "/proc is masked (/proc/acpi, /proc/kcore)" in check.remedy
    assert [trouble.name for trouble in check.troubles] == ["masked-proc"]
    assert [name for name in checks if name.startswith("fence")] == ["fence --proc"]
    assert exit_code_of_checks(checks.values()) == 3


@pytest.mark.parametrize(
    ("release", "version"),
    [("4.4.0-19041-Microsoft", 1), ("5.15.90.1-microsoft-standard-WSL2", 2), ("4.4.0-210-generic", 0), ("6.12.0", 0), ("4.19.84-microsoft-standard", 2)],
)
def test_windows(release: str, version: int) -> None:
    assert kernel.detect_wsl_version(StandIn(release=(release, "x86_64"))) == version


def test_wsl_1_has_no_namespaces(tmp_path: Path) -> None:
    stand_in = StandIn(
        answers=((r"bwrap --unshare-user", said("bwrap: Creating new namespace failed: Invalid argument\n")), (r"prctl", said("seccomp: Invalid argument\n"))),
        release=("4.4.0-19041-Microsoft", "x86_64"),
        abi=0,
    )
    checks = look(tmp_path, stand_in)
    assert "WSL 1" in checks["kernel"].found
    assert checks["kernel"].state is checks["user-namespaces"].state is checks["seccomp"].state is State.MISSING
    assert "WSL 2" in checks["user-namespaces"].remedy
    assert exit_code_of_checks(checks.values()) == 3


def test_no_bwrap(tmp_path: Path) -> None:
    checks = look(tmp_path, StandIn(programs={"bwrap": ""}))
    assert (checks["bubblewrap"].state, checks["bubblewrap"].shells) == (State.MISSING, ("default", "restricted"))
    assert "apt install bubblewrap" in "\n".join(show.render_fix_script(checks.values()))
    assert exit_code_of_checks(checks.values()) == 3


def test_an_old_bwrap_is_no_reason_to_go_without_a_fence(tmp_path: Path) -> None:
    """Also with `fallback: warn`: the launcher then refuses, as some sandbox could be built."""
    stand_in = StandIn(
        answers=((r"bwrap --version", told("bubblewrap 0.6.2\n")), (r"bwrap .*--disable-userns", said("bwrap: Unknown option --disable-userns\n")))
    )
    checks = look(tmp_path, stand_in, MANIFEST + "runtime: {sandbox: {fallback: warn, shells: {inner: {nested: true}}}}\n")
    check = checks["fence --disable-userns"]
    assert (check.state, check.shells) == (State.MISSING, ("default", "restricted"))
    assert "NOT SANDBOXED" not in check.costs
    assert [trouble.name for trouble in check.troubles] == ["old-bwrap"]
    assert checks["bubblewrap"].state is State.WEAKER
    assert exit_code_of_checks(checks.values()) == 3


def test_a_setuid_bwrap(tmp_path: Path) -> None:
    stand_in = StandIn(
        answers=((r"bwrap .*--(size|disable-userns)", said("bwrap: The --size option is not permitted in setuid mode\n")),), modes={"/usr/bin/bwrap": SETUID}
    )
    checks = look(tmp_path, stand_in)
    assert "setuid root" in checks["bubblewrap"].found
    assert {"fence --size", "fence --disable-userns"} < set(checks)
    assert checks["fence --size"].commands == ("sudo chmod u-s /usr/bin/bwrap",)
    assert [trouble.name for trouble in checks["fence --size"].troubles] == ["setuid-options"]
    # Where all works as root, the bit is no matter.
    assert checks["bubblewrap"].group == bubblewrap.GROUP


def test_no_system_call_filter(tmp_path: Path) -> None:
    broken = ((r"prctl", said("seccomp: Invalid argument\n")), (r"--seccomp", said("bwrap: prctl(PR_SET_SECCOMP): Invalid argument\n")))
    checks = look(tmp_path, StandIn(answers=broken))
    assert checks["seccomp"].shells == checks["fence --seccomp"].shells == ("default", "restricted")
    (tmp_path / "off").mkdir()
    checks = look(tmp_path / "off", StandIn(answers=broken), MANIFEST + "runtime: {sandbox: {seccomp: 'off'}}\n")
    assert checks["seccomp"].shells == ()
    assert checks["fence"].state is State.OK


@pytest.mark.parametrize(("abi", "state"), [(0, State.WEAKER), (1, State.WEAKER), (5, State.WEAKER), (6, State.OK), (9, State.OK)])
def test_landlock_behind_bubblewrap_is_a_second_layer(tmp_path: Path, abi: int, state: State) -> None:
    checks = look(tmp_path, StandIn(abi=abi))
    assert checks["landlock"].state is state
    assert exit_code_of_checks(checks.values()) == (1 if state is State.WEAKER else 0)


@pytest.mark.parametrize(("abi", "stopped"), [(0, ("default", "restricted")), (3, ("restricted",)), (4, ()), (9, ())])
def test_landlock_alone_is_the_fence(tmp_path: Path, abi: int, stopped: tuple[str, ...]) -> None:
    stand_in = StandIn(abi=abi, answers=((r"bwrap --unshare-user", said(UID_MAP)),), files={kernel.APPARMOR: "1\n"})
    checks = look(tmp_path, stand_in, MANIFEST + "runtime: {sandbox: {backend: landlock}}\n")
    assert (checks["landlock"].shells if checks["landlock"].state is State.MISSING else ()) == stopped
    # Who fences without namespaces does not miss them.
    assert checks["user-namespaces"].shells == ()
    assert exit_code_of_checks(checks.values()) == (3 if stopped else 1 if abi < 9 else 0)


LIMITS = MANIFEST + "runtime: {sandbox: {limits: {pids: 100}}}\n"


@pytest.mark.parametrize(
    ("machine", "state", "found"),
    [
        (StandIn(), State.WEAKER, "no service manager"),
        (StandIn(**SESSION), State.OK, "by scopes of the user's systemd (cpu, memory, pids)"),  # type: ignore[arg-type]
        (StandIn(**SESSION, answers=((r"systemd-run", said("Failed to connect to bus\n")),)), State.WEAKER, "makes no scope: Failed to connect to bus"),  # type: ignore[arg-type]
        (
            StandIn(modes={"/sys/fs/cgroup/cgroup.controllers": 0, "/sys/fs/cgroup/memory": DIRECTORY}, files={"/proc/self/cgroup": "4:memory:/\n8:pids:/\n"}),
            State.WEAKER,
            "version 1, none of which are this user's",
        ),
        (StandIn(modes={"/sys/fs/cgroup/cgroup.controllers": 0}), State.WEAKER, "no control groups are mounted"),
    ],
    ids=["v2-alone", "systemd", "no-bus", "v1", "none"],
)
def test_control_groups(tmp_path: Path, machine: StandIn, state: State, found: str) -> None:
    check = look(tmp_path, machine, LIMITS)["control-groups"]
    assert check.state is state
    assert found in check.found
    assert check.shells == (("default", "restricted") if state is State.WEAKER else ())


@pytest.mark.parametrize(
    ("answers", "programs", "states"),
    [
        ((), {"nix": ""}, {"nix": State.MISSING}),
        (((r"nix --version", told("nix (Nix) 2.3.16\n")),), {}, {"nix": State.WEAKER}),
        (
            (
                (r"nix --version", told("nix (Nix) 2.8.0\n")),
                (r"nix show-config", said("error: experimental Nix feature 'nix-command' is disabled\n")),
                (r"show-config", told("experimental-features = nix-command\nsandbox = false\ntrusted-users = root *\n")),
            ),
            {},
            {"nix": State.WEAKER, "flakes": State.WEAKER, "nix-sandbox": State.WEAKER, "nix-trust": State.WEAKER},
        ),
        ((), {}, {"nix": State.OK, "flakes": State.OK, "nix-sandbox": State.OK, "nix-trust": State.OK}),
    ],
    ids=["missing", "old", "switched-off", "well"],
)
def test_nix(tmp_path: Path, answers: tuple[tuple[str, Done], ...], programs: dict[str, str], states: dict[str, State]) -> None:
    """No shell waits for it, whatever it is like."""
    checks = look(tmp_path, StandIn(answers=answers, programs=programs))
    assert {name: check.state for name, check in checks.items() if check.group == "nix"} == states
    assert exit_code_of_checks(checks.values()) == 0
    if "flakes" in states and states["flakes"] is State.WEAKER:
        assert "flakes, nix-command" in checks["flakes"].found
        assert "extra-experimental-features = nix-command flakes" in "\n".join(checks["flakes"].commands)


def test_who_reaches_a_daemon_that_trusts_him_is_told(tmp_path: Path) -> None:
    stand_in = StandIn(uid=0, answers=((r"nix config show", told("experimental-features = flakes nix-command\nsandbox = true\ntrusted-users = root\n")),))
    text = "runtime: {sandbox: {paths: [{path: /nix/var/nix/daemon-socket, access: write, socket: true, optional: true}]}}\n"
    check = look(tmp_path, stand_in, MANIFEST + text)["nix-trust"]
    assert (check.state, check.shells) == (State.WEAKER, ("default", "restricted"))


DOCKER = MANIFEST + "runtime: {sandbox: {backend: docker}}\n"
REFUSED = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock: dial unix: connect: permission denied\n"


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (said(REFUSED), "this user may not use docker's daemon at /var/run/docker.sock"),
        (
            said("ERROR: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n"),
            "docker's daemon does not answer at",
        ),
        (told("name=rootless\n" + INFO), "docker runs rootless here"),
        (told("name=userns\n" + INFO), "docker remaps user ids (userns-remap)"),
        (told("name=selinux\n" + INFO), "SELinux denies containers access to the project (its label: none)"),
        (told(INFO.replace("Debian GNU/Linux 12 (bookworm)", "Docker Desktop")), "Docker Desktop runs containers in a virtual machine"),
        (told(INFO.replace("PidsLimit=true", "PidsLimit=false")), "this machine's docker cannot bound processes"),
        (told(INFO.replace("system=linux", "system=windows")), "docker runs containers of windows"),
        (said('Error: template: info:1: function "define." podman\n'), "the docker at /usr/bin/docker is podman"),
        (Done(status=-9, late=True), "docker does not answer"),
    ],
)
def test_docker(tmp_path: Path, answer: Done, found: str) -> None:
    checks = look(tmp_path, StandIn(answers=((r"docker info", answer), (r"^stat ", said("stat: no such option\n")))), DOCKER)
    assert (checks["docker"].state, checks["docker"].shells) == (State.MISSING, ("default", "restricted"))
    assert checks["docker"].found.startswith(found)
    assert exit_code_of_checks(checks.values()) == 3
    # In the words in which the launcher refuses.
    assert _without_values(found) in _without_values((ROOT / "wavegen/launcher/engine.py").read_text())


def _without_values(text: str) -> str:
    """Without what is filled in, on either side."""
    text = re.sub(r"\{[^{}]*\}|/usr/bin/docker|/var/run/docker.sock|windows$", "", text).replace("label: none", "label: ")
    return text.replace("docker does not answer", " does not answer").replace("bound processes", "bound ").rstrip()


def test_docker_is_asked_what_the_launcher_asks(tmp_path: Path) -> None:
    stand_in = StandIn()
    look(tmp_path, stand_in, DOCKER)
    assert [argv[1:] for argv in stand_in.ran if argv[0].endswith("docker") and argv[1] == "info"] == [("info", "-f", engine.INFO)]
    assert [re.match(r"(\w+)=", line)[1] for line in INFO.splitlines()[2:]] == re.findall(r"(\w+)=\{\{", engine.INFO)  # type: ignore[index]


def test_docker_that_works_and_its_image(tmp_path: Path) -> None:
    checks = look(tmp_path, StandIn(answers=((r"image inspect", said("Error: No such image: x\n")),)), DOCKER)
    assert checks["docker"].state is State.OK
    assert [trouble.name for trouble in checks["image"].troubles] == ["no-image"]
    assert checks["image"].commands[0].startswith("docker build -t ")
    assert exit_code_of_checks(checks.values()) == 3


def test_podman_alone(tmp_path: Path) -> None:
    """Who says so is served by it; who does not is told of docker."""
    alone = StandIn(programs={"docker": ""})
    checks = look(tmp_path, alone, DOCKER)
    assert checks["docker"].shells == ("default", "restricted")
    assert "WAVEGEN_CONTAINER=podman" in checks["docker"].remedy
    # A variable that a script sets is gone with it.
    assert not any(line.startswith(("export", "nix develop")) for line in show.render_fix_script(checks.values()))
    (tmp_path / "said").mkdir()
    checks = look(tmp_path / "said", replace(alone, variables={"HOME": "/home/me", "WAVEGEN_CONTAINER": "podman"}), DOCKER)
    assert (checks["podman"].state, checks["docker"].shells) == (State.OK, ())
    assert exit_code_of_checks(checks.values()) == 0
    # A user's podman is asked for no image where that would make its store.
    assert not [argv for argv in alone.ran if argv[0].endswith("podman") and argv[1:] != ("--version",)]


def test_podman_of_a_user_without_further_ids(tmp_path: Path) -> None:
    stand_in = StandIn(variables={"HOME": "/home/me", "WAVEGEN_CONTAINER": "podman"}, files={"/etc/subuid": "other:1:2\n"})
    check = look(tmp_path, stand_in, DOCKER)["podman"]
    assert (check.state, check.shells) == (State.MISSING, ("default", "restricted"))
    assert "/etc/subuid" in check.found
    assert "/etc/subgid" not in check.found


def test_no_other_machine_is_asked(tmp_path: Path) -> None:
    stand_in = StandIn(variables={"HOME": "/home/me", "DOCKER_HOST": "tcp://docker.example:2375"})
    check = look(tmp_path, stand_in, DOCKER)["docker"]
    assert check.found.startswith("docker's daemon is remote (tcp)")
    assert not [argv for argv in stand_in.ran if argv[0].endswith("docker")]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"modes": {"/usr/bin/python3": 0}}, "python3"),
        ({"answers": ((r"python3 -I -S --version", told("Python 3.8.10\n")),)}, "python3"),
        ({"programs": {"perl": "", "python3": ""}}, "second-layer"),
    ],
    ids=["no-python", "old-python", "no-perl-no-python"],
)
def test_programs_that_every_shell_needs(tmp_path: Path, change: dict[str, Any], name: str) -> None:
    checks = look(tmp_path, StandIn(**change))
    assert (checks[name].state, checks[name].shells) == (State.MISSING, ("default", "restricted"))
    assert exit_code_of_checks(checks.values()) == 3


def test_a_python_elsewhere_on_the_path_is_named_and_not_taken(tmp_path: Path) -> None:
    """A script of .wavegen/bin starts none that a command could have put there."""
    check = look(tmp_path, StandIn(modes={"/usr/bin/python3": 0}, programs={"python3": "/home/me/bin/python3"}))["python3"]
    assert check.found == "there is no /usr/bin/python3, but /home/me/bin/python3"


def test_the_launchers_python_is_looked_for_where_scripts_do() -> None:
    (places,) = re.findall(r"^for python in (.*); do$", (ROOT / "templates/stub.sh.j2").read_text(), re.MULTILINE)
    assert tuple(places.split()) == programs.PYTHONS


def test_bash_is_what_a_shell_without_a_command_starts(tmp_path: Path) -> None:
    checks = look(tmp_path, StandIn(programs={"bash": ""}))
    assert (checks["bash"].state, checks["bash"].shells) == (State.MISSING, ())
    assert "shells without a command" in checks["bash"].costs
    assert exit_code_of_checks(checks.values()) == 0


PERSONA = """\
metadata: {name: x}
adapters: {claude: {binary: claude, mode: headless}}
personas: {one: {adapter: claude, permissions: {allowed_tools: [Read]}}}
"""


@pytest.mark.parametrize(
    ("place", "more", "state", "found"),
    [
        ("", "", State.WEAKER, "claude is not on the PATH"),
        ("/usr/bin/claude", "", State.OK, "starts /usr/bin/claude"),
        ("/home/me/.local/bin/claude", "", State.WEAKER, "in your home, which is not inside"),
        ("/home/me/.local/bin/claude", "runtime: {sandbox: {paths: [{path: ~/.local/bin, access: read, optional: true}]}}\n", State.OK, "starts"),
        ("", "runtime: {sandbox: {packages: [claude-code], unfree: [claude-code]}}\n", State.OK, "nix develop brings it"),
    ],
    ids=["missing", "there", "home", "granted", "package"],
)
def test_agents(tmp_path: Path, place: str, more: str, state: State, found: str) -> None:
    checks = look(tmp_path, StandIn(programs={"claude": place}), PERSONA + more)
    assert checks["persona one"].state is state
    assert found in checks["persona one"].found
    assert exit_code_of_checks(checks.values()) == (0 if state is State.OK else 1)


def test_a_terminal_that_takes_what_others_type_makes_no_fenced_shell_weaker(tmp_path: Path) -> None:
    checks = look(tmp_path, StandIn(files={kernel.TIOCSTI: "1\n"}))
    assert checks["terminal"].state is State.WEAKER
    assert exit_code_of_checks(checks.values()) == 0


KNOWN = r"^ +(--[a-z-]+)"
OPTION = r'"(--[a-z][a-z-]+)"'


@pytest.mark.needs("bwrap")
def test_the_trial_asks_for_every_option_that_the_launcher_has() -> None:
    """Read from what it prints and from its text, so that a new option cannot be forgotten."""
    stand_in = StandIn()
    made = Fence.create(MANIFEST, uid=os.getuid())
    try:
        needs = collect.machine_needs(collect.load_project_if_present(str(made.project / "wave.yaml")))
        list(bubblewrap.check_bubblewrap(stand_in, needs))
        asked = {word for argv in stand_in.ran for word in argv if word.startswith("--")}
        used: set[str] = set()
        known = set(re.findall(KNOWN, subprocess.run(["bwrap", "--help"], capture_output=True, text=True, check=True).stdout, re.MULTILINE))
        for shell in ("default", "restricted"):
            printed = made.enter("--print", "--", "true", shell=shell)
            assert printed.returncode == 0, printed.stderr
            argv = shlex.split(printed.stdout, comments=True)
            used |= {word for word in argv[1 : argv.index("--")] if word in known}
        assert len(used) > 15
        for name in ("bwrap", "bwrap_start", "filtered"):
            used |= {word for word in re.findall(OPTION, (ROOT / f"wavegen/launcher/{name}.py").read_text()) if word in known}
    finally:
        made.remove()
    # Options in a file, and descriptors in place of paths, are no others; a bwrap without the latter mounts by path.
    assert used - {"--args", "--bind-fd", "--ro-bind-fd"} <= asked, used - asked


def test_the_plans_options_are_tried(tmp_path: Path) -> None:
    stand_in = StandIn()
    look(tmp_path, stand_in)
    whole = [argv for argv in stand_in.ran if argv[0].endswith("bwrap") and "--disable-userns" in argv]
    assert len(whole) == 2  # with a network of its own, and with the host's
    options = ("--cap-drop", "--die-with-parent", "--hostname", "--seccomp", "--size", "--perms", "--ro-bind", "--bind", "--symlink", "--remount-ro")
    for option in (*options, "--dev", "--proc", "--chdir", "--new-session", "--json-status-fd"):
        assert all(option in argv for argv in whole)
    assert sum("--unshare-net" in argv for argv in whole) == 1
    assert any("--file" in argv for argv in stand_in.ran)


@pytest.mark.parametrize(("most", "hopeless"), [("63000\n", False), ("0\n", True)])
def test_used_up_namespaces_are_no_reason_to_go_without_a_sandbox(tmp_path: Path, most: str, *, hopeless: bool) -> None:
    """As the launcher judges it: a command can use them up."""
    stand_in = StandIn(answers=((r"bwrap --unshare-user", said("bwrap: Creating new namespace failed: No space left on device")),), files={kernel.USERNS: most})
    check = look(tmp_path, stand_in, MANIFEST + "runtime: {sandbox: {fallback: warn}}\n")["user-namespaces"]
    assert ("NOT SANDBOXED" in check.costs) == hopeless
    assert check.state is (State.WEAKER if hopeless else State.MISSING)


# --- this machine


@dataclass(frozen=True)
class Here:
    """A rendered project, and the way in which its user starts doctor."""

    fence: Fence
    packages: Path
    """Where the package and what it needs are readable for everybody."""

    def argv(self, *arguments: str) -> list[str]:
        command = [PYTHON, "-m", "wavegen", "doctor", *arguments]
        return (
            command
            if self.fence.uid == os.getuid()
            else ["setpriv", f"--reuid={self.fence.uid}", f"--regid={self.fence.uid}", "--clear-groups", "--", *command]
        )

    def environment(self, **more: str) -> dict[str, str]:
        return self.fence.environment(PYTHONPATH=str(self.packages), PYTHONDONTWRITEBYTECODE="1", **more)

    def doctor(
        self, *arguments: str, before: Sequence[str] = (), cwd: Path | None = None, start: Callable[[], object] | None = None, **more: str
    ) -> tuple[int, Any]:
        """Status and JSON."""
        done = self.run(*arguments, "--json", before=before, cwd=cwd, start=start, **more)
        assert done.stderr == "", done.stderr
        return done.returncode, json.loads(done.stdout)

    def run(
        self, *arguments: str, before: Sequence[str] = (), cwd: Path | None = None, start: Callable[[], object] | None = None, stdin: str = "", **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*before, *self.argv(*arguments)],
            cwd=cwd or self.fence.project,
            env=self.environment(**more),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            preexec_fn=start,
        )

    def enter(self, shell: str, *, before: Sequence[str] = (), start: Callable[[], object] | None = None) -> int:
        """What the launcher does in the same circumstances."""
        argv = [*before, *self.fence.argv(shell, ("true",))]
        return subprocess.run(
            argv, cwd=self.fence.project, env=self.fence.environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, preexec_fn=start
        ).returncode


@pytest.fixture(scope="module")
def packages() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="wavegen-doctor-") as directory:
        base = Path(directory)
        base.chmod(0o755)
        for module in (click, yaml, jinja2, markupsafe):
            assert module.__file__
            shutil.copytree(Path(module.__file__).parent, base / module.__name__, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "wavegen", base / "wavegen", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("templates", "nix"):
            shutil.copytree(ROOT / name, base / name)
        subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
        yield base


@pytest.fixture(scope="module", params=users(), ids=name_of)
def here(request: pytest.FixtureRequest, packages: Path) -> Iterator[Here]:
    made = Fence.create(MANIFEST, uid=request.param)
    yield Here(made, packages)
    made.remove()


def by_name(document: Any) -> dict[str, Any]:
    return {check["name"]: check for check in document["checks"]}


def stops(document: Any) -> set[str]:
    """The shells that cannot start, by what is said."""
    return {name for check in document["checks"] if check["state"] == "missing" for name in check["shells"]}


@pytest.mark.needs("bwrap", "user")
def test_what_is_said_of_this_machine_is_what_the_launcher_does(here: Here) -> None:
    status, document = here.doctor()
    assert status == document["exit_code"]
    assert [check["name"] for check in document["checks"]][:1] == ["kernel"]
    for shell in ("default", "restricted"):
        assert (here.enter(shell) == 0) == (shell not in stops(document))
    checks = by_name(document)
    assert checks["rendered"]["state"] == checks["user-namespaces"]["state"] == checks["fence"]["state"] == "ok"
    assert checks["kernel"]["found"].startswith(f"Linux {os.uname().release}")
    assert status in (0, 1)


@pytest.mark.needs("bwrap", "user")
def test_a_machine_that_forbids_namespaces(here: Here) -> None:
    """Really: a filter refuses unshare and clone, as that of a container does."""
    forbid = launcher_probes._forbidding_namespaces()
    status, document = here.doctor(start=forbid)
    assert status == 3
    assert stops(document) == {"default", "restricted"}
    assert by_name(document)["user-namespaces"]["troubles"] in (["forbidden-namespaces"], ["new-namespace"])
    assert here.enter("default", start=forbid) == here.enter("restricted", start=forbid) == 125


@pytest.mark.needs("bwrap", "user")
def test_a_machine_whose_namespaces_are_used_up(here: Here) -> None:
    """Really: the setting is a namespace's own."""
    before = ("unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$@"', "sh")
    if here.fence.uid != os.getuid():
        pytest.skip("root's own namespace would keep it from becoming another user")
    status, document = here.doctor(before=before)
    assert status == 3
    check = by_name(document)["user-namespaces"]
    assert "user.max_user_namespaces is 0" in check["found"]
    assert check["troubles"] == ["too-many-namespaces"]
    assert here.enter("default", before=before) == 125


@pytest.mark.needs("bwrap", "user")
def test_a_machine_whose_proc_is_masked(here: Here) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to mount")
    before = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc/irq && exec "$@"', "sh")
    status, document = here.doctor(before=before)
    assert status == 3
    check = by_name(document)["fence --proc"]
    assert check["troubles"] == ["masked-proc"]
    assert "/proc/irq" in check["remedy"]
    assert here.enter("default", before=before) == 125


OLD_BWRAP = r"""#!/bin/sh
# The launcher gives most options by --args.
[ "$1" != --version ] || { echo bubblewrap 0.6.2; exit; }
before=
for word; do
  listed=
  [ "$before" != --args ] || listed=$(tr '\0' '\n' </proc/self/fd/"$word" | grep -x -e --disable-userns)
  case $word$listed in *--disable-userns) echo "bwrap: Unknown option --disable-userns" >&2; exit 1 ;; esac
  before=$word
done
exec @copy "$@"
"""


@pytest.mark.needs("bwrap", "user")
@pytest.mark.parametrize("kind", ["none", "old", "setuid"])
def test_another_bwrap(here: Here, tmp_path: Path, kind: str) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root to put another in its place")
    real = shutil.which("bwrap")
    assert real
    with tempfile.TemporaryDirectory(prefix="wavegen-bwrap-", dir="/var/tmp") as directory:
        os.chmod(directory, 0o755)
        copy, other = Path(directory) / "copy", Path(directory) / "bwrap"
        shutil.copy(real, copy)
        shutil.copy(real, other)
        if kind == "none":
            other.chmod(0o644)
        elif kind == "setuid":
            other.chmod(0o4755)
        else:
            other.write_text(OLD_BWRAP.replace("@copy", str(copy)))
        before = in_place_of_bwrap(other)
        status, document = here.doctor(before=before)
        entered = here.enter("default", before=before)
    checks = by_name(document)
    assert (entered == 0) == ("default" not in stops(document)), checks
    if kind == "none":
        assert (status, checks["bubblewrap"]["found"]) == (3, "bwrap is not on the PATH")
    elif kind == "old":
        assert (status, checks["fence --disable-userns"]["troubles"]) == (3, ["old-bwrap"])
    elif here.fence.uid != 0:
        assert "setuid root" in checks["bubblewrap"]["found"]


@pytest.mark.needs("bwrap", "user")
def test_a_tree_that_was_edited_or_is_gone(packages: Path) -> None:
    made = Fence.create(MANIFEST, uid=os.getuid())
    here = Here(made, packages)
    try:
        script = made.project / ".wavegen/bin/default"
        script.write_text(script.read_text().replace("exec", "exec "))
        status, document = here.doctor()
        check = by_name(document)["rendered"]
        assert (status, check["state"], check["found"]) == (3, "missing", ".wavegen/bin/default: edited by hand")
        assert check["commands"] == ["wavegen render --diff", "wavegen render"]
        assert here.enter("default") == 125
        made.render()
        # What nobody starts holds less, and keeps no shell from starting.
        shells = made.project / ".wavegen/shells.nix"
        shells.write_text(shells.read_text() + "\n")
        status, document = here.doctor()
        check = by_name(document)["rendered"]
        assert (status, check["state"], check["found"]) == (1, "weaker", ".wavegen/shells.nix: edited by hand")
        assert here.enter("default") == 0
        made.render()
        strange = made.write(".wavegen/launcher/re.py", "import os\n")
        status, document = here.doctor()
        check = by_name(document)["rendered"]
        assert (status, check["state"]) == (3, "missing")
        assert check["found"] == ".wavegen/launcher/re.py is not of wavegen: the lock does not list it"
        assert here.enter("default") == 125
        strange.unlink()
        made.write("wave.yaml", MANIFEST + "runtime: {sandbox: {limits: {pids: 99}}}\n")
        assert by_name(here.doctor()[1])["rendered"]["found"].endswith("and 1 more") or "out of date" in by_name(here.doctor()[1])["rendered"]["found"]
        shutil.rmtree(made.project / ".wavegen")
        status, document = here.doctor()
        assert (status, by_name(document)["rendered"]["state"]) == (3, "missing")
    finally:
        made.remove()


@pytest.mark.needs("bwrap", "user")
def test_without_a_manifest_the_machine_alone_is_told(here: Here) -> None:
    status, document = here.doctor(cwd=here.fence.base)
    assert document["manifest"] is None
    assert "rendered" not in by_name(document)
    assert status == document["exit_code"]
    # A bad one is no missing one.
    (here.fence.base / "bad").mkdir(exist_ok=True)
    (here.fence.base / "bad/wave.yaml").write_text("metadata: 1\n")
    done = here.run(cwd=here.fence.base / "bad")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("wave.yaml:1:")


def everything(*directories: Path) -> dict[str, tuple[int, int]]:
    """What is there, with mode and size."""
    found = {}
    for directory in directories:
        for path in directory.rglob("*"):
            status = path.lstat()
            found[str(path)] = (status.st_mode, status.st_size)
    return found


@pytest.mark.needs("bwrap", "user")
def test_nothing_is_left(here: Here) -> None:
    mounts = Path("/proc/self/mountinfo").read_text
    before, temporary = everything(here.fence.home, here.fence.project), here.fence.base / "temporary"
    temporary.mkdir()
    temporary.chmod(0o1777)
    here.doctor(TMPDIR=str(temporary))
    assert everything(here.fence.home, here.fence.project) == before
    assert [name for name in os.listdir(temporary) if name.startswith(("tmp", "nix"))] == []  # podman has its own places there
    assert "held" not in mounts()


def test_a_program_that_hangs_is_ended_with_what_it_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "SECONDS", 2)
    done = ThisMachine().run_program(("/bin/sh", "-c", f"sleep 611 & echo $! >{tmp_path}/pid; echo begun; wait"))
    assert (done.late, done.has_succeeded, done.out) == (True, False, "begun\n")
    assert "no answer" in done.last_error_line()
    pid = int((tmp_path / "pid").read_text())
    assert until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_a_program_that_is_not_there_is_no_traceback() -> None:
    done = ThisMachine().run_program(("/nonexistent/program",))
    assert (done.status, done.has_succeeded) == (127, False)
    assert "No such file" in done.last_error_line()


def test_programs_that_a_shell_may_have_written_are_not_run(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    for directory in (inside, outside):
        directory.mkdir()
    (inside / "no-such-tool").write_text("#!/bin/sh\n")
    (inside / "no-such-tool").chmod(0o755)
    (outside / "no-such-link").symlink_to(inside / "no-such-tool")
    this = ThisMachine(avoided=(str(inside),), variables={"PATH": f"relative:{inside}:{outside}"})
    assert this.find_trusted_program("no-such-tool") == this.find_trusted_program("no-such-link") == ""
    assert ThisMachine(variables={"PATH": f"{inside}"}).find_trusted_program("no-such-tool") == f"{inside}/no-such-tool"


@pytest.mark.needs("user")
def test_no_other_machine_is_asked_in_truth(here: Here) -> None:
    """A daemon on a port is one of another machine's, perhaps: nobody connects."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        here.doctor(DOCKER_HOST=f"tcp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.needs("landlock")
def test_landlock_is_asked_in_the_kernel() -> None:
    said_by_kernel = subprocess.run(
        [PYTHON, "-c", "import ctypes; print(ctypes.CDLL(None).syscall(444, None, 0, 1))"], capture_output=True, text=True, check=True
    )
    assert ThisMachine().landlock_version() == int(said_by_kernel.stdout)


# --- the command line


@pytest.mark.needs("user")
def test_hints_are_a_script_that_nobody_has_run(here: Here) -> None:
    done = here.run("--fix-hints", start=launcher_probes._forbidding_namespaces())
    assert done.returncode == 3
    assert done.stdout.startswith("#!/bin/sh\n# Printed by wavegen doctor --fix-hints. Nothing of it was run")
    assert subprocess.run(["sh", "-n"], input=done.stdout, text=True, check=False).returncode == 0


@pytest.mark.parametrize("pasted", [False, True], ids=["argument", "input"])
def test_a_message_is_explained(here: Here, pasted: bool) -> None:
    text = f"x\n{UID_MAP}"
    done = here.run("--message", "-" if pasted else text, stdin=text if pasted else "")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("uid-map (bwrap)\n  cause: AppArmor")
    assert "$ wavegen doctor --fix-hints" in done.stdout
    done = here.run("--message", "-" if pasted else text, "--json", stdin=text if pasted else "")
    assert json.loads(done.stdout)["troubles"][0]["name"] == "uid-map"


def test_a_message_that_is_not_known(here: Here) -> None:
    done = here.run("--message", "all is well")
    assert (done.returncode, done.stdout) == (1, "")
    assert "not known" in done.stderr
    assert here.run("--message", "-", stdin="").returncode == 2
    assert here.run("--json", "--fix-hints").returncode == here.run("--message", "x", "--fix-hints").returncode == 2


def test_the_json_is_what_its_description_says(tmp_path: Path) -> None:
    checks = look(tmp_path, StandIn(answers=((r"bwrap --unshare-user", said(UID_MAP)),), files={kernel.APPARMOR: "1\n"}))
    document = show.checks_as_json(checks.values(), manifest="wave.yaml")
    assert set(document) == {"version", "manifest", "exit_code", "checks"}
    assert (document["version"], document["manifest"], document["exit_code"]) == (1, "wave.yaml", 3)
    for check in json.loads(json.dumps(document))["checks"]:
        assert set(check) == {"name", "group", "state", "found", "costs", "remedy", "commands", "shells", "troubles"}
        assert check["state"] in ("ok", "weaker", "missing")
    described = show.checks_as_json.__doc__ or ""
    assert all(
        word in described
        for word in ("version", "manifest", "exit_code", "checks", "group", "state", "found", "costs", "remedy", "commands", "shells", "troubles")
    )


def test_what_programs_say_forges_no_line(tmp_path: Path) -> None:
    """A terminal's escapes and line ends are spelled out, in the script too."""
    evil = "bwrap: \x1b[31m\nrm -rf /\rsudo reboot\n"
    checks = look(tmp_path, StandIn(answers=((r"bwrap --unshare-user", said(evil)), (r"bwrap --version", told("bubblewrap 0.9.0\nrm -rf /\n")))))
    lines = [*show.render_check_table(checks.values()), *show.render_fix_script(checks.values())]
    assert all(line.replace("\n", "").isprintable() for line in lines)
    assert not any(re.match(r"\s*(rm|sudo reboot)", part) for line in show.render_fix_script(checks.values()) for part in line.split("\n"))
