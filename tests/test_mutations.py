"""The harness itself is tried: each rule is taken out of a rendered wrapper, and some probe must notice.

What nothing notices is a probe that is missing. A rule about a path that this machine does not have does nothing, and
cannot be missed; that every rule of a policy is in some case is shown without a machine in test_probes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fence import PYTHON, USER

from wavegen import entry
from wavegen.backends import render
from wavegen.ground import Ground
from wavegen.manifest import Seccomp
from wavegen.policy import Policy
from wavegen.probes import State, Want, Where
from wavegen.probes.catalogue import ABSENT
from wavegen.probes.expect_network import connected_elsewhere
from wavegen.project import Project, load
from wavegen.resources import runtime
from wavegen.seccomp import Action, Arch, Filter
from wavegen.seccomp.bpf import RET, assembled, program
from wavegen.seccomp.filters import filter_of, refused_calls
from wavegen.verify import CONTROL, Run, Task, distinct, tasks_of

pytestmark = pytest.mark.needs("bwrap", "bash")

MANIFEST = """\
metadata: {name: mutations}
runtime:
  sandbox:
    env_passthrough: [ANTHROPIC_API_KEY, MY_TOKEN]
    deny_read_paths: [.env, secrets, ~/.cache/hidden, /etc/hostname]
    paths:
      - {path: ~/.gitconfig, access: read, optional: true}
      - {path: ~/.cache, access: write, optional: true}
      - {path: vendor, access: read}
    limits: {tmp: 64m}
    shells:
      filtered:
        network: filtered
        domains: [good.example, "*.wild.example", "port.example:8443"]
        denied_domains: [evil.wild.example]
"""
WITH_BOUNDS = MANIFEST.replace("limits: {tmp: 64m}", "limits: {tmp: 64m, pids: 64, memory: 512m, files: 256}")
PART = "\0part "
"""Before the name of each further file in such a text."""
SHELLS = ("default", "restricted")
NAMED = "filtered"


@dataclass
class Course:
    """A ground on which one wrapper after the other is tried; the control is run once.

    A wrapper is the text of its file and of those of the runtime that it sources: a mutation need not know which of them it changes.
    """

    ground: Ground
    policies: dict[str, Policy]
    tasks: dict[str, tuple[Task, ...]]
    outside: Run
    wrappers: dict[str, str]
    elsewhere: dict[str, tuple[tuple[str, int], ...]]

    def broken(self, shell: str, text: str = "", *, wholly: bool = False, runtime: dict[str, str] | None = None, bpf: bytes = b"") -> tuple[str, set[str]]:
        """Why the shell did not start, and otherwise every target that is broken, as `id: target`.

        `wholly`: also what is tried at a terminal and from outside; `runtime`: files of the runtime in their place; `bpf`: another filter.
        """
        tasks = tuple(task for task in self.tasks[shell] if wholly or task.case.probe.where is Where.INSIDE)
        rendered = Path(self.ground.project) / ".wavegen"
        wrapper, *parts = (text or self.wrappers[shell]).split(PART)
        files = dict(part.split("\n", 1) for part in parts) | (runtime or {})
        changed = {f"bin/{shell}": wrapper.encode(), **{f"runtime/{name}": new.encode() for name, new in files.items()}}
        changed |= {"seccomp/default.bpf": bpf} if bpf else {}
        before = {name: (rendered / name).read_bytes() for name in changed}
        assert not bpf or before["seccomp/default.bpf"] != bpf
        for name, new in changed.items():
            (rendered / name).write_bytes(new)
        try:
            inside = Run(self.ground, shell, fenced=True, progress=lambda *_: None, elsewhere=self.elsewhere.get(shell, ()))
            inside.run(tasks)
        finally:
            for name, old in before.items():
                (rendered / name).write_bytes(old)
        return inside.error, {broken for task in tasks for broken in self._targets(task, inside)}

    def reachable(self, shell: str) -> set[str]:
        """Every target that is reached without a fence, as `id: target`: only of these a missing rule can be noticed."""
        return {f"{task.case.id}: {answer.target}" for task in self.tasks[shell] for answer in self.outside.answers(task) if answer.state is State.REACHED}

    def _targets(self, task: Task, inside: Run) -> Iterator[str]:
        reached = {answer.target for answer in self.outside.answers(task) if answer.state is State.REACHED}
        for answer in inside.answers(task):
            match task.case.expectation.want:
                case Want.STOPPED if answer.state is State.REACHED:
                    yield f"{task.case.id}: {answer.target}"
                case Want.WORKS if answer.state is State.STOPPED and answer.target in reached:
                    yield f"{task.case.id}: {answer.target}"


def whole(wrapper: str) -> str:
    """The text of a wrapper and of what it sources."""
    sourced = re.search(r"^for wg_part in (.*); do$", wrapper, re.MULTILINE)
    assert sourced
    texts = dict(runtime())
    return wrapper + "".join(f"{PART}{name}\n{texts[name]}" for name in sourced[1].split())


@contextmanager
def laid_out(root: Path, manifest: str, shells: tuple[str, ...], *numbers: str) -> Iterator[Course]:
    """A course for a manifest, with every probe or with those of these numbers."""
    (root / "wave.yaml").write_text(manifest)
    project: Project = load(str(root / "wave.yaml"))
    # A top-level directory, so that what is around a project and a home is hidden by nothing else.
    under = tempfile.mkdtemp(prefix="wavegen-", dir="/") if os.geteuid() == 0 else None
    files = render(project.plan)
    try:
        with Ground(project, files, under=under, via="wrapper") as ground:
            policies = {name: policy for name in shells if (policy := project.plan.shell(name))}
            tasks = {
                name: tuple(task for task in tasks_of(ground, policy) if not numbers or task.case.probe.id in numbers) for name, policy in policies.items()
            }
            outside = Run(ground, CONTROL, fenced=False, progress=lambda *_: None)
            outside.run(distinct(task for group in tasks.values() for task in group))
            assert not outside.error
            wrappers = {name: whole(next(file.text for file in files if file.path == f".wavegen/bin/{name}")) for name in policies}
            yield Course(ground, policies, tasks, outside, wrappers, {name: connected_elsewhere(policy) for name, policy in policies.items()})
    finally:
        if under:
            shutil.rmtree(under)


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    with laid_out(tmp_path_factory.mktemp("mutations"), MANIFEST, (*SHELLS, NAMED)) as made:
        yield made


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    """With written bounds, which hold for root, too, where control groups can be made; only their probes are run."""
    assert WITH_BOUNDS != MANIFEST
    with laid_out(tmp_path_factory.mktemp("bounded"), WITH_BOUNDS, SHELLS, "Q01", "Q02", "Q05") as made:
        yield made


def without(text: str, *lines: str) -> str:
    """The wrapper without these lines, each of which must be there."""
    for line in lines:
        assert line in text, line
        text = text.replace(line, "", 1)
    return text


def section(text: str, opening: str) -> list[str]:
    """The lines between one that is `opening` and the next that closes it."""
    found: list[str] = []
    for block in text.split(f"\n{opening}\n")[1:]:
        found += [line + "\n" for line in re.split(r"\n *\)\n|\n}\n", block)[0].split("\n") if line.strip()]
    assert found, opening
    return found


def exchanged(text: str, *changes: tuple[str, str]) -> str:
    """The text with pieces exchanged, each of which must be there once."""
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


SCOPES = "  REPLIES=(--landlock best-effort --scope abstract --scope signal)\n"
FILTER = '  wg_session+=(--seccomp "$wg_filter")\n'


def without_landlock(text: str) -> str:
    """The wrapper without the second layer, but with the bounds: the first one must be missed on its own."""
    return exchanged(text, ('  shim_rights\n  words+=("${REPLIES[@]}")\n', ""))


def without_filter(text: str) -> str:
    """The wrapper without the system call filter."""
    return exchanged(text, (FILTER, ""))


def without_layers(text: str) -> str:
    """The wrapper with what bwrap does alone."""
    return without_filter(without_landlock(text))


def words(line: str) -> list[str]:
    """The words of a line before its comment."""
    return line.partition("  # ")[0].split()


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="without root there is nothing to take away")


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_is_broken_without_a_mutation(course: Course, shell: str) -> None:
    assert course.broken(shell, course.wrappers[shell], wholly=True) == ("", set())


# --- what bwrap is told besides paths

OPTIONS = {
    ("--unshare-pid",): "R11: the planted process",
    ("--unshare-ipc",): "P14: System V memory",
    ("--unshare-uts", "--hostname localhost"): "I01: the host's name",
    ("--hostname localhost",): "I01: the host's name",
    ("--unshare-cgroup",): "P06 cgroup: cgroup",
    ("--die-with-parent",): "P15b: the command",
    ("--disable-userns",): "P07: unshare user",
    ("--setenv SANDBOX_ACTIVE 1",): "E05: SANDBOX_ACTIVE",
    **{(f"--setenv {name} /tmp",): f"E05: {name}" for name in ("TMPDIR", "TMP", "TEMP", "TEMPDIR")},
    ("--setenv WAVEGEN_SHELL restricted",): "E05: WAVEGEN_SHELL",
}


@pytest.mark.parametrize("removed", OPTIONS, ids=" ".join)
def test_a_missing_option_is_noticed(course: Course, removed: tuple[str, ...]) -> None:
    text = course.wrappers["restricted"]
    lines = [line for line in section(text, "readonly wg_options=(") if " ".join(words(line)) in removed]
    assert len(lines) == len(removed)
    text = without(text, *lines)
    if removed == ("--disable-userns",):
        text = without_filter(text)  # it refuses unshare, too
    error, broken = course.broken("restricted", text, wholly=removed == ("--die-with-parent",))
    assert error == ""
    assert OPTIONS[removed] in broken


def test_every_option_is_in_one_of_these_tests(course: Course) -> None:
    """A new option needs a mutation."""
    tried = {option for options in OPTIONS for option in options} | {"--unshare-user", "--unshare-net", "--cap-drop ALL"}
    found = {" ".join(words(line)) for shell in SHELLS for line in section(course.wrappers[shell], "readonly wg_options=(")}
    assert found - {"--setenv WAVEGEN_SHELL default"} == tried


def test_a_shell_without_a_user_namespace_does_not_start(course: Course) -> None:
    text = course.wrappers["restricted"]
    error, _ = course.broken("restricted", re.sub(r"  --unshare-user .*\n", "", text))
    assert error


def test_a_missing_network_namespace_is_noticed(course: Course) -> None:
    text = without_landlock(course.wrappers["restricted"])  # it holds abstract sockets, too
    error, broken = course.broken("restricted", re.sub(r"  --unshare-net .*\n", "", text))
    assert error == ""
    assert {"N07: tcp 127.0.0.1", "N07: udp 127.0.0.1", "N08: the planted socket", "N14: 0.0.0.0", "P06 net: net"} <= broken


# --- the filter of names


def test_nothing_is_broken_in_a_shell_that_filters(course: Course) -> None:
    assert course.broken(NAMED, wholly=True) == ("", set())


def test_a_launcher_that_is_to_share_the_network_refuses(course: Course) -> None:
    error, _ = course.broken(NAMED, re.sub(r"  --unshare-net .*\n", "", course.wrappers[NAMED]))
    assert "asks for no network of its own" in error


@pytest.mark.parametrize(
    ("changes", "broken"),
    {
        "any name": (
            {
                "egress_rules": {
                    "        if about:\n            return": "        if True:\n            return Decision(allowed=True, rule=self.allow[0])\n        if about:\n            return"
                }
            },
            {f"N16: {way} wavegen-verify.example:80" for way in ("connect", "direct", "http", "socks")},
        ),
        "names by their ends": (
            {"egress_rules": {"list(self.exact.get(target.name, ()))": "[r for n, rs in self.exact.items() if target.name.endswith(n) for r in rs]"}},
            {"N16c: connect evilgood.example:80", "N16c: direct evilgood.example:80"},
        ),
        "an apex by its wildcard": (
            {"egress_rules": {"rest = target.name\n": 'rest = "." + target.name\n'}},
            {"N16c: connect wild.example:80", "N16c: socks wild.example:80"},
        ),
        "any port": ({"egress_rules": {'if self.port == "*":': "if True:"}}, {"N16d: connect good.example:65000", "N16d: socks good.example:65000"}),
        "no denial": ({"egress_rules": {"in self._deny.find(target):\n            if": "in ():\n            if"}}, {"N16b: connect evil.wild.example:80"}),
        "any address": (
            {
                "egress_rules": {
                    "        if about:\n            return": "        if target.address:\n            return Decision(allowed=True, rule=self.allow[0])\n        if about:\n            return"
                }
            },
            {"N16e: connect 169.254.169.254:80", "N16e: http 168.63.129.16:80"},
        ),
        "the host's loopback": (
            {
                "egress_rules": {
                    "return Decision(allowed=port in self.loopback,": "return Decision(allowed=True, rule=self.allow[0]) or Decision(allowed=False,",
                    "        address = names.plain(address)\n": '        return ""\n',
                }
            },
            {"N16f: connect 127.0.0.1", "N16f: socks localhost", "N16f: connect [::ffff:127.0.0.1]"},
        ),
        "any server name": (
            {"egress": {"    if not said:\n        return": "    return ''\n    if not said:\n        return"}},
            {"N16g: connect good.example:443 as other.wavegen-verify.example"},
        ),
        "no names": ({"egress_dns": {"address = self.given(target.name)": "address = None"}}, {"U13: direct good.example:80"}),
        "no namespace of the network": ({"launcher": {"_NEWUSER | _NEWNET": "_NEWUSER"}}, {"U13: direct good.example:80"}),
        "no proxy": ({"launcher": {'("proxy", four, "127.0.0.1", HTTP_PORT), ': ""}}, {"U13: connect good.example:80"}),
    }.values(),
    ids=lambda value: "" if isinstance(value, set) else "-".join(value),
)
def test_a_filter_that_lets_too_much_or_too_little_through_is_noticed(course: Course, changes: dict[str, dict[str, str]], broken: set[str]) -> None:
    originals = dict(runtime())
    files = {}
    for module, replaced in changes.items():
        text = originals[f"{module}.py"]
        for old, new in replaced.items():
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        files[f"{module}.py"] = text
    error, found = course.broken(NAMED, runtime=files)
    assert error == ""
    assert broken <= found


@pytest.mark.parametrize("line", ["--allow good.example", "--deny 'evil"])
def test_a_line_about_names_that_is_missing_is_noticed(course: Course, line: str) -> None:
    text = course.wrappers[NAMED]
    (whole,) = [one for one in text.split("\n") if line in one and not one.lstrip().startswith("#")]
    error, found = course.broken(NAMED, without(text, whole + "\n"))
    assert error == ""
    assert any(target.startswith("N16b: " if "--deny" in line else "U13: ") for target in found)


@ROOT_ONLY
def test_capabilities_that_stay_are_noticed(course: Course) -> None:
    text = without_layers(course.wrappers["restricted"])  # both refuse to mount
    error, broken = course.broken("restricted", re.sub(r"  --cap-drop ALL .*\n", "", text))
    assert error == ""
    assert {"P04: CapEff", "P04: CapBnd"} <= broken
    assert any(target.startswith("W02: ") for target in broken)


# --- environment


@pytest.mark.parametrize("shell", SHELLS)
def test_every_variable_that_is_no_longer_let_in_is_noticed(course: Course, shell: str) -> None:
    text = course.wrappers[shell]
    lines = section(text, "readonly wg_passed=(")
    names = {words(line)[0] for line in lines}
    assert {"ANTHROPIC_API_KEY", "MY_TOKEN", "LANG", "CC"} <= names
    error, broken = course.broken(shell, without(text, *lines))
    assert error == ""
    assert {target.rpartition(": ")[2] for target in broken if target.startswith("U05")} == names


def test_an_environment_that_is_not_cleaned_is_noticed(course: Course) -> None:
    text = mutated(course, "default", 'declare -g +x -- "${wg_names[@]}" SHLVL OLDPWD PWD', "true")
    error, broken = course.broken("default", without_landlock(text))  # it keeps /proc/1/environ closed, too
    assert error == ""
    assert {"E01: AWS_SECRET_ACCESS_KEY", "E02: names like secrets'", "R09: PID 1", "R09: its own variables"} <= broken
    assert any(target.startswith("E03: ") for target in broken)


def mutated(course: Course, shell: str, old: str, new: str) -> str:
    """The wrapper with one piece of text exchanged, which must be there once."""
    return exchanged(course.wrappers[shell], (old, new))


# --- paths of the system


def exists(line: str) -> bool:
    """Whether the path of a line is there on this machine, so that the line does something."""
    return os.path.exists(words(line)[-1])


def test_every_mask_of_the_system_that_is_missing_is_noticed(course: Course) -> None:
    text = course.wrappers["default"]
    # Without the mask of /var the fence cannot be built: what is in it would be made there.
    lines = [line for line in section(text, "  wg_hidden=(") if exists(line) and words(line)[0] != "/var"]
    assert len(lines) >= 8
    error, broken = course.broken("default", without(text, *lines))
    assert error == ""
    seen = {target.rpartition(": ")[2] for target in broken if target.startswith(("R08: ", "R15: ", "R18: "))}
    assert seen == {words(line)[0] for line in lines}


def test_every_scratch_directory_that_is_missing_is_noticed(course: Course) -> None:
    text = course.wrappers["default"]
    for line in (line for line in section(text, "  wg_mounts+=(") if "--tmpfs" in words(line)):
        error, broken = course.broken("default", without(text, line))
        path = words(line)[-1]
        assert error or any(path in target for target in broken), line


def test_a_scratch_directory_without_a_bound_is_noticed(course: Course) -> None:
    text = course.wrappers["default"]
    error, broken = course.broken("default", re.sub(r"--size \d+ ", "", text))
    assert error == ""
    assert {"Q03: /tmp", "Q03: /var/tmp", "Q03: /run", "Q03: /dev/shm"} <= broken


def test_every_part_of_proc_that_is_left_writable_is_noticed(course: Course) -> None:
    text = course.wrappers["default"]
    lines = [line for line in section(text, "  wg_mounts+=(") if words(line)[-1].startswith("/proc/") and exists(line)]
    assert "/proc/sys" in {words(line)[-1] for line in lines}
    error, broken = course.broken("default", without(text, *lines))
    assert error == ""
    covered = {"/proc/bus", "/proc/irq", "/proc/sysrq-trigger"}  # by bwrap itself, where it can
    assert {f"W24b: {words(line)[-1]}" for line in lines if words(line)[-1] not in covered} <= broken
    if os.geteuid() == 0:
        assert "W24: /proc/sys/kernel/core_pattern" in broken


@pytest.mark.parametrize("path", ["/dev", "/proc"])
def test_a_dev_or_proc_of_the_host_is_noticed(course: Course, path: str) -> None:
    kind = path.removeprefix("/")
    old = f"    --{kind} {path}  #"
    error, broken = course.broken("default", mutated(course, "default", old, f"    --dev-bind {path} {path}  #"))
    assert error or broken, path


def test_a_system_that_is_mounted_writable_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", "    --ro-bind / /  #", "    --bind / /  #"))
    assert error == ""
    assert {"W01b: /", "W01b: /etc", "W01b: /usr"} <= broken


def test_every_part_of_the_minimal_system_that_is_mounted_writable_is_noticed(course: Course) -> None:
    text = course.wrappers["restricted"]
    lines = [line for line in section(text, "  wg_mounts+=(") if "ro-bind" in line and not words(line)[-1].startswith("/proc") and exists(line)]
    for line in lines:
        text = text.replace(line, line.replace("--ro-bind", "--bind", 1))
    error, broken = course.broken("restricted", text)
    assert error == ""
    missed = {words(line)[-1] for line in lines} - {target.rpartition(": ")[2] for target in broken if target.startswith("W01d: ")}
    assert missed == set()


def test_every_part_of_the_minimal_system_that_is_missing_is_noticed(course: Course) -> None:
    text = course.wrappers["restricted"]
    needed = ("/usr", "/bin", "/lib", "/lib64", "/nix/store")  # without which nothing starts
    lines = [line for line in section(text, "  wg_mounts+=(") if "ro-bind" in line and words(line)[-1] not in needed and exists(line)]
    lines = [line for line in lines if not words(line)[-1].startswith("/proc")]
    assert len(lines) >= 10
    error, broken = course.broken("restricted", without(text, *lines))
    assert error == ""
    assert {f"U06: {words(line)[-1]}" for line in lines} <= broken


def test_more_of_the_host_than_the_minimal_system_is_noticed(course: Course) -> None:
    more = "".join(f"    --ro-bind {path} {path}\n" for path in ("/var/lib", "/opt", "/srv"))
    error, broken = course.broken("restricted", mutated(course, "restricted", "    --dev /dev  #", f"{more}    --dev /dev  #"))
    assert error == ""
    assert {"R08b: /var/lib", "R08b: /opt", "R08b: /srv"} <= broken


@pytest.mark.parametrize("shell", SHELLS)
def test_masks_and_roots_that_stay_writable_are_noticed(course: Course, shell: str) -> None:
    text = course.wrappers[shell].replace(' wg_late+=(--remount-ro "$path")', "").replace(' wg_late+=(--remount-ro "$at")', "")
    text = re.sub(r"    --remount-ro \S+  # .*\n", "", text)
    error, broken = course.broken(shell, text)
    assert error == ""
    wanted = {"W01b: /dev"} | ({"W01c: /var"} if shell == "default" else {"W01b: /"})
    assert wanted <= broken


# --- places that are known only when a shell starts


def test_every_place_that_is_missing_is_noticed(course: Course) -> None:
    text = course.wrappers["default"]
    notices = {
        'neighbours "$wg_homes"': "R07: ",
        'neighbours "$wg_around"': "R06: ",
        'rule home - "$wg_home"': "",
        'rule project - "$wg_project"': "",
        'rule read+optional wave.yaml:7 "$wg_home"': "U07 ",
        "rule read": "W25 ",  # in the project: it would be writable
        "rule write": "U08 ",
        "rule hide": "R21 ",
        "rule pin": "W15: ",
    }  # fmt: skip
    for line in section(text, "places() {"):
        call = " ".join(words(line))
        notice = next((notice for start, notice in notices.items() if call.startswith(start)), None)
        assert notice is not None, f"a place that no test knows: {call}"
        if call == 'rule pin - "$wg_project"/wave.sandbox.yaml':
            continue  # there is none here
        removed = (line,)
        if call.startswith("neighbours"):
            if os.geteuid() != 0:
                continue  # the throw-away project lies in /tmp, which is hidden as a whole
            # Here the home lies around the project, too.
            removed = tuple(other for other in section(text, "places() {") if other.split()[0] == "neighbours")
        error, broken = course.broken("default", without(text, *removed))
        if notice:
            assert error == "", (call, error)
            assert any(target.startswith(notice) for target in broken), (call, broken)
        else:
            assert error or broken, call


def test_what_is_granted_for_reading_and_mounted_writable_is_noticed(course: Course) -> None:
    text = course.wrappers["default"].replace('*) wg_mounts+=(--ro-bind "$4" "$3") ;;', '*) wg_mounts+=(--bind "$4" "$3") ;;')
    assert text != course.wrappers["default"]
    error, broken = course.broken("default", text)
    assert error == ""
    assert {"W25 ~/.gitconfig: ~/.gitconfig", "W25 ./vendor: ./vendor"} <= broken


def test_a_pin_that_is_writable_is_noticed(course: Course) -> None:
    error, broken = course.broken(
        "default", mutated(course, "default", 'pin | project-read) wg_mounts+=(--ro-bind "$at" "$at")', 'pin | project-read) wg_mounts+=(--bind "$at" "$at")')
    )
    assert error == ""
    assert {"W15: ./wave.yaml", "W15: ./.wavegen", "W15: ./flake.nix", "W17: ./.wavegen/runtime/probe.py"} <= broken


def test_a_denied_path_that_is_masked_writable_is_noticed(course: Course) -> None:
    """Not an empty file of the host's, nor a directory into which the host would look."""
    error, broken = course.broken(
        "default",
        mutated(
            course, "default", 'mask-directory) wg_mounts+=(--tmpfs "$at") wg_late+=(--remount-ro "$at") ;;', 'mask-directory) wg_mounts+=(--tmpfs "$at") ;;'
        ),
    )
    assert error == ""
    assert any(target.startswith("W26 ./secrets") for target in broken)


# --- what else a wrapper does


def test_a_home_of_the_host_is_noticed(course: Course) -> None:
    error, broken = course.broken(
        "default",
        mutated(
            course,
            "default",
            'home | project | keep | worktree) wg_mounts+=(--bind "${wg_from[i]}" "$at") ;;',
            'home | project | keep | worktree) wg_mounts+=(--bind "$at" "$at") ;;',
        ),
    )
    assert error == ""
    assert {"R01: ~/.ssh/id_ed25519", "R02: ~/.aws/credentials", "R03: ~/.config/gh/hosts.yml", "W03: ~/.bashrc", "N09c: ~/.gnupg/S.gpg-agent"} <= broken


def test_descriptors_that_stay_open_are_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", "\n  close_descriptors\n", "\n"))
    assert error == ""
    assert "R19: its own" in broken


@pytest.mark.parametrize(
    "mount",
    [
        "--bind /proc /run/proc",
        "--ro-bind /proc /run/proc",
        "--bind /etc /run/x",
        "--ro-bind /etc /var/x",
        '--ro-bind "$HOME/.ssh" /run/x',
        '--bind "$HOME/.ssh" "$HOME/.cache2"',
        "--dev-bind /dev/zero /dev/shm/disk",
        "--dev-bind /dev /run/dev",
        "--ro-bind / /run/host",
    ],
)
def test_a_mount_that_no_rule_asks_for_is_noticed(course: Course, mount: str) -> None:
    more = f"  mount_places\n  wg_mounts+=({mount})\n"
    error, broken = course.broken("restricted", mutated(course, "restricted", "\n  mount_places\n", f"\n{more}"))
    assert error == "", error
    assert "R23: mounts" in broken


@pytest.mark.parametrize(
    "mount",
    [
        "--ro-bind /proc /proc/fs",
        "--ro-bind /proc /proc/tty",
        "--dev-bind /dev/zero /dev/full",
        "--bind /sys/fs/cgroup /sys/fs/cgroup",
        "--ro-bind /etc/passwd /etc/machine-id",
        "--ro-bind /etc /boot",
        '--ro-bind "$HOME/.aws" "$wg_project/secrets"',
        '--ro-bind "$HOME/.netrc" "$wg_project/.env"',
        '--ro-bind "$HOME/.netrc" "$wg_project/wave.yaml"',
        '--ro-bind "$wg_project/../neighbour" "$wg_project/vendor"',
        '--ro-bind "$HOME/.netrc" "$HOME/.gitconfig"',
    ],
)
def test_something_else_in_the_place_of_what_a_rule_shows_is_noticed(course: Course, mount: str) -> None:
    source = mount.split()[1].strip('"')
    for path in (source, mount.split()[2].strip('"')):
        if path.startswith("/") and not os.path.exists(path):
            pytest.skip(f"{path} is not there")
    late = '"${wg_late[@]}" "${wg_variables[@]}"'
    error, broken = course.broken("default", mutated(course, "default", late, f'"${{wg_late[@]}}" {mount} "${{wg_variables[@]}}"'))
    assert error == "", error
    assert {"R23: mounts", "R24: what is shown"} & broken


@pytest.mark.parametrize("opened", ["7</", '7<"$wg_home"', "7</dev/null", "101</etc/passwd"])
def test_a_descriptor_that_the_wrapper_leaves_open_is_noticed(course: Course, opened: str) -> None:
    text = mutated(course, "restricted", "\n  close_descriptors\n", f"\n  close_descriptors\n  exec {opened}\n")
    error, broken = course.broken("restricted", text)
    assert error == ""
    assert "R19c: descriptors" in broken


@pytest.mark.parametrize(
    ("old", "new", "notice"),
    [
        ("#!/bin/bash -p\n", "#!/bin/bash\n", "I07: a program of the project"),
        ("\nPATH=${wg_tools:+", "\nPATH=$wg_path:${wg_tools:+", "I07: a program of the project"),
        ("\n  close_descriptors\n", '\n  close_descriptors\n  source "$wg_project/.envrc"\n', "I07: a program of the project"),
        ("die 'input or output is a directory'", ": 'input or output is a directory'", "R19d: input from a directory"),
    ],
)
def test_a_wrapper_that_trusts_its_caller_is_noticed(course: Course, old: str, new: str, notice: str) -> None:
    error, broken = course.broken("default", mutated(course, "default", old, new), wholly=True)
    assert error == ""
    assert notice in broken


def test_a_status_that_does_not_come_back_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", 'then exit "$wg_status"; fi', "then exit 0; fi"), wholly=True)
    assert error == ""
    assert "U11: status 7" in broken


@pytest.mark.parametrize(
    ("more", "notice"),
    [
        ("wg_passed+=(GITHUB_TOKEN)", "E01: GITHUB_TOKEN"),
        ("wg_passed+=(SSH_AUTH_SOCK)", "E01c: variables"),
        ("wg_options+=(--setenv LD_PRELOAD /x)", "E01c: variables"),
        ("wg_options+=(--setenv GIT_CONFIG_GLOBAL /x)", "E01c: variables"),
    ],
)
def test_a_variable_more_is_noticed(course: Course, more: str, notice: str) -> None:
    text = course.wrappers["default"].replace("readonly wg_passed=(", "wg_passed=(").replace("readonly wg_options=(", "wg_options=(")
    header = "\nwg_mounts=() wg_late=() wg_groups=() wg_scope=() wg_memory=0\n"
    error, broken = course.broken("default", exchanged(text, (header, f"\n{more}{header}")))
    assert error == ""
    assert notice in broken


def test_a_directory_more_on_the_search_path_is_noticed(course: Course) -> None:
    old = '--setenv PATH "${path:-/usr/local/bin:/usr/bin:/bin}"'
    error, broken = course.broken("default", mutated(course, "default", old, '--setenv PATH "$wg_project/bin:$path"'))
    assert error == ""
    assert "E04: PATH" in broken


def test_input_that_can_be_written_is_noticed(course: Course) -> None:
    old = "  [[ ! -f /proc/self/fd/0 ]] || exec < <(exec cat)\n"
    error, broken = course.broken("default", without_landlock(mutated(course, "default", old, "")), wholly=True)
    assert error == ""
    assert "R19b: the input's file" in broken


def test_an_environment_that_is_a_list_of_forbidden_names_is_noticed(course: Course) -> None:
    """What is not on such a list arrives."""
    old = 'declare -g +x -- "${wg_names[@]}" SHLVL OLDPWD PWD'
    forbidding = 'for name in "${wg_names[@]}"; do case $name in WG_*) ;; *) declare -g +x -- "$name" ;; esac; done; true'
    error, broken = course.broken("default", mutated(course, "default", old, forbidding))
    assert error == ""
    assert "E01b: a name that nobody knows" in broken


# --- the second layer: Landlock and the bounds, set inside by the shim


@pytest.mark.needs("landlock")
@pytest.mark.parametrize(
    ("shell", "removed", "noticed"),
    [
        ("default", " --scope abstract", {"N08: the planted socket"}),
        ("default", " --scope signal", {"T02: the caller's process group"}),
        ("restricted", " --scope signal", {"T02: the caller's process group"}),
    ],
)
def test_a_scope_that_is_missing_is_noticed(course: Course, shell: str, removed: str, noticed: set[str]) -> None:
    """Wholly: a terminal is shared with the caller's process group."""
    assert noticed <= course.reachable(shell)
    error, broken = course.broken(shell, mutated(course, shell, SCOPES, SCOPES.replace(removed, "")), wholly=True)
    assert error == ""
    assert broken == noticed


NPROC = '  ((EUID == 0)) || words+=(--limit nproc="$wg_pids")\n'


@pytest.mark.needs("landlock")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_second_layer_that_is_gone_is_noticed(course: Course, shell: str) -> None:
    text = mutated(course, shell, '  wg_shim=("${words[@]}")\n', "")
    text = exchanged(text, ("    wg_shim+=(--)\n", ""), ("      wg_shim+=(--signals)\n", ""))
    error, broken = course.broken(shell, text, wholly=True)
    assert error == ""
    wanted = {"T02: the caller's process group", "Q02: ", *({"N08: the planted socket"} if shell == "default" else set())}
    assert {name for name in wanted if any(target.startswith(name) for target in broken)} == wanted
    unbounded = {target for target in course.reachable(shell) if target.startswith("Q05: ")}
    assert "Q05: core dumps" in unbounded
    assert unbounded <= broken


def without_files(text: str) -> str:
    """The wrapper whose second layer says nothing about files."""
    return exchanged(text, ("  if [[ -n $wg_nested ]]; then\n", "  if true; then\n"))


@pytest.mark.needs("landlock")
def test_a_system_that_is_mounted_writable_is_held_by_the_second_layer(course: Course) -> None:
    """And by nothing else: without its files the same mistake lets files be made."""
    text = mutated(course, "default", "    --ro-bind / /  #", "    --bind / /  #")
    error, broken = course.broken("default", text)
    assert error == ""
    made = {target for target in course.reachable("default") if target.startswith("W01: ")}
    assert not made & broken
    if os.geteuid() == 0:
        error, broken = course.broken("default", without_files(text))
        assert error == ""
        assert {"W01: /etc", "W01: /usr"} <= made & broken


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_is_broken_with_written_bounds(bounded: Course, shell: str) -> None:
    tried = {task.case.probe.id for task in bounded.tasks[shell] if task.case.expectation.tried}
    assert tried == {"Q01", "Q02", "Q05"}
    assert bounded.broken(shell) == ("", set())


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    ("number", "removed"),
    [
        ("Q02", [' --limit data="$wg_memory"']),
        ("Q05", ["--limit core=0 "]),
        ("Q05", ['--limit nofile="$wg_files" ']),
        # A user's are bounded by the shim, real root's by the control group, where one can be made.
        ("Q01", [NPROC, "{pids.max}"]),
    ],
)
def test_a_bound_that_is_missing_is_noticed(bounded: Course, shell: str, number: str, removed: list[str]) -> None:
    text = bounded.wrappers[shell]
    if removed[-1] == "{pids.max}":
        for file in ("$REPLY", "$place"):
            text = exchanged(text, (f'bound "{file}/pids.max" "$wg_pids"', "true"))
        removed = removed[:-1]
    if any("nofile" in line for line in removed) and not any(target.startswith("Q05: open files") for target in bounded.reachable(shell)):
        pytest.skip("the caller of these tests may open no more")
    error, broken = bounded.broken(shell, exchanged(text, *((old, "") for old in removed)))
    assert error == ""
    assert {target.partition(":")[0] for target in broken} == {number}


def as_user(place: Path) -> dict[str, list[object]]:
    """What is broken with and without the bound on processes, for a user without privileges: in a child, as nobody comes back from that."""
    place.chmod(0o777)
    receiving, sending = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            os.environ["HOME"] = tempfile.mkdtemp(dir=place)
            sys.executable = PYTHON  # the tests' own may be in the home of another
            with laid_out(Path(tempfile.mkdtemp(dir=place)), WITH_BOUNDS, SHELLS, "Q01") as made:
                found = {}
                for shell in SHELLS:
                    held = made.broken(shell)
                    bare = made.broken(shell, mutated(made, shell, NPROC, ""))
                    found[shell] = [[task.case.id for task in made.tasks[shell] if task.case.expectation.tried], *held, *bare]
            os.write(sending, json.dumps(found, default=sorted).encode())
        except BaseException:  # noqa: BLE001  whatever it is must not go on in the child
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(sending)
    with os.fdopen(receiving, "rb") as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    return json.loads(text)  # type: ignore[no-any-return]


@ROOT_ONLY
@pytest.mark.needs("user")
def test_a_bound_on_processes_that_is_missing_is_noticed_for_a_user(bounded: Course) -> None:
    # All modules are loaded before: to a user this Python's may be out of reach.
    assert bounded.broken("default") == ("", set())
    place = Path(tempfile.mkdtemp())
    try:
        found = as_user(place)
    finally:
        shutil.rmtree(place)
    assert found == {shell: [["Q01"], "", [], "", ["Q01: 64 processes"]] for shell in SHELLS}


# --- what the host runs or follows of the project


def test_guards_that_are_missing_are_noticed(course: Course) -> None:
    before, opening, after = course.wrappers["default"].partition("\nguards() {\n")
    body, closing, after = after.partition("\n}\n")
    assert body.count("\n  guard ") > 20
    assert "repositories " in body
    bare = before + opening + "  :" + closing + after
    wanted = {
        target
        for task in course.tasks["default"]
        if task.case.probe.id in GUARDED and task.case.expectation.want is Want.STOPPED
        for answer in course.outside.answers(task)
        if answer.state is State.REACHED
        for target in [f"{task.case.id}: {answer.target}"]
    }
    assert {target.partition(":")[0].partition(" ")[0] for target in wanted} == set(GUARDED)
    error, broken = course.broken("default", bare)
    assert error == ""
    assert wanted <= broken


GUARDED = ("W04", "W05", "W06", "W07", "W08", "W09", "W10", "W10c", "W11", "W12")


def guard_lines(text: str) -> list[str]:
    """The calls about single places."""
    return [line for line in section(text, "guards() {") if words(line)[:1] in (["guard"], ["keep_place"])]


REPOSITORIES = '  repositories "$wg_project" "$wg_project" 3\n'


def test_each_guard_that_is_missing_is_noticed(course: Course) -> None:
    """In one go, but each of them by the probe that names its path: what is replaced is looked at one by one.

    Without what looks for repositories, too, which holds the project's own parts of .git once more.
    """
    text = course.wrappers["default"]
    lines = guard_lines(text)
    paths = {words(line)[1].removeprefix('"$wg_project"/') for line in lines}
    error, broken = course.broken("default", without(text, *lines, REPOSITORIES))
    assert error == ""
    noticed = {target.partition(": ./")[2] for target in broken if target.startswith("W10c: ")}
    planted = {target.partition(": ./")[2] for target in course.reachable("default") if target.startswith("W10c: ")}
    assert {path for path in paths if path not in ABSENT} == planted
    assert planted <= noticed


def test_repositories_below_that_are_not_looked_for_are_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", REPOSITORIES, ""))
    assert error == ""
    assert any(target.startswith("W09: ") for target in broken)


# --- the system call filter


def test_a_missing_filter_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", FILTER, ""))
    assert error == ""
    assert {"K16: this process", "K16: PID 1"} <= broken
    assert {"K01: keyctl", "N15: vsock"} & broken


def the_filter() -> Filter:
    """What both shells of this manifest load."""
    found = filter_of(Seccomp.DEFAULT, nested=False)
    assert found
    return found


def letting(*names: str, about: str = "") -> bytes:
    """The filter without what it says of these calls whatever their arguments, or without the rules whose reason has these words."""
    whole = the_filter()
    rules = [rule for rule in whole.rules if not (about and about in rule.why)]
    fewer = [replace(rule, names=tuple(name for name in rule.names if rule.when or name not in names)) for rule in rules]
    left = replace(whole, rules=tuple(rule for rule in fewer if rule.names))
    assert left != whole
    return assembled(left, *Arch)


def letting_foreign() -> bytes:
    """The filter that lets through what is no call of its own architecture, x32's numbers among it."""
    whole = program(the_filter(), *Arch)
    changed = [replace(one, value=Action.ALLOW.value) if one.code == RET and one.value == Action.ENOSYS.value else one for one in whole]
    return b"".join(struct.pack("<HBBI", one.code, one.true, one.false, one.value) for one in changed)


def asked(course: Course) -> dict[str, set[str]]:
    """Calls that probes ask about by their names, each with the probes."""
    found: dict[str, set[str]] = {}
    for case in (task.case for task in course.tasks["default"]):
        if case.probe.attempt == "calls":
            for name in dict(case.expectation.arguments)["names"]:  # type: ignore[union-attr]
                found.setdefault(str(name), set()).add(case.id)
    return found


OF_THE_MACHINE = ("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "swapon", "acct", "syslog")
"""The kernel asks for a right over the whole machine, which nothing in a user namespace has: with and without the filter."""
IN_THE_NAMESPACE = {"reboot": "K08: reboot", "fsopen": "K14: fsopen", "move_mount": "K14: move_mount"}
"""The kernel asks for a right in the namespace, which --cap-drop ALL takes, and the second user namespace of --disable-userns has not."""
BY_VERSION = ("open_by_handle_at",)
"""Before Linux 6.13 the kernel asked for a right over the machine before it looked at the descriptor."""


def test_each_call_that_the_filter_lets_through_is_noticed(course: Course) -> None:
    """All at once: each target is an answer of its own."""
    names = asked(course)
    assert len(names) > 30
    assert set(names) <= set(refused_calls(nested=False))
    wanted = {f"{probe}: {name}" for name, probes in names.items() for probe in probes if name not in (*OF_THE_MACHINE, *IN_THE_NAMESPACE, *BY_VERSION)}
    here = wanted & course.reachable("default")
    # Calls that no kernel of today has, and such as this one does not.
    assert {target.partition(": ")[2] for target in wanted - here} <= NOT_IN_EVERY_KERNEL
    error, broken = course.broken("default", bpf=letting(*names))
    assert error == ""
    assert here <= broken
    assert not {target for target in broken if target.partition(": ")[2] in OF_THE_MACHINE}


NOT_IN_EVERY_KERNEL = {
    "lookup_dcookie", "memfd_secret", "userfaultfd", "kcmp", "modify_ldt", "bpf", "perf_event_open",
    "keyctl", "add_key", "request_key", "process_madvise", "move_pages",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "fanotify_init", "name_to_handle_at",
}  # fmt: skip


@pytest.mark.parametrize(
    ("names", "noticed"),
    [
        (("keyctl", "add_key", "request_key"), "K01"),
        (("bpf", "perf_event_open", "userfaultfd"), "K02"),
        (("io_uring_setup", "io_uring_enter", "io_uring_register"), "K05"),
        (("ptrace", "kcmp", "pidfd_getfd", "process_madvise"), "K14"),
        (("unshare", "setns"), "K14"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_group_of_calls_that_the_filter_lets_through_is_noticed_and_nothing_else(course: Course, names: tuple[str, ...], noticed: str) -> None:
    error, broken = course.broken("default", bpf=letting(*names))
    assert error == ""
    assert {target.partition(": ")[2] for target in broken} <= set(names)
    wanted = {f"{probe}: {name}" for name in names for probe in asked(course)[name]}
    assert broken == wanted & course.reachable("default")
    assert any(target.startswith(noticed) for target in broken)


@ROOT_ONLY
def test_calls_that_take_rights_are_noticed_where_neither_layer_holds_them(course: Course) -> None:
    text = re.sub(r"  --(?:cap-drop ALL|disable-userns) .*\n", "", without_landlock(course.wrappers["default"]))
    error, broken = course.broken("default", text, bpf=letting(*IN_THE_NAMESPACE))
    assert error == ""
    assert set(IN_THE_NAMESPACE.values()) <= broken


BY_ARGUMENT = {
    "type into the terminal": {"K10: TIOCSTI"},
    "turns off what the kernel": {"K09: ADDR_NO_RANDOMIZE"},
    "AF_VSOCK leads": {"N15: vsock", "K11b: vsock", "K11b: alg"},
    "fall back to clone": {"K15: clone3"},
}


@pytest.mark.parametrize("why", BY_ARGUMENT)
def test_a_rule_of_the_filter_that_is_missing_is_noticed(course: Course, why: str) -> None:
    error, broken = course.broken("default", bpf=letting(about=why), wholly="terminal" in why)
    assert error == ""
    noticed = BY_ARGUMENT[why] & course.reachable("default")
    # Of families only those that the kernel has loaded are tried: there may be none.
    assert noticed or why.startswith("AF_VSOCK")
    assert noticed <= broken
    if "terminal" in why:
        assert any(target.startswith("T01b: ") for target in broken)


CLONE = "makes namespaces, as unshare does"


def test_namespaces_that_the_filter_lets_be_made_are_noticed_where_bwrap_lets_them(course: Course) -> None:
    text = re.sub(r"  --disable-userns .*\n", "", course.wrappers["restricted"])
    assert text != course.wrappers["restricted"]
    assert course.broken("restricted", text) == ("", set())
    for bpf, call in ((letting(about=CLONE), "clone"), (letting("unshare"), "unshare")):
        error, broken = course.broken("restricted", text, bpf=bpf)
        assert error == ""
        assert {target for target in broken if target.startswith("P07: ")} == {f"P07: {call} user"}


@ROOT_ONLY
def test_raw_sockets_that_the_filter_lets_through_are_noticed_where_the_rights_stay(course: Course) -> None:
    text = re.sub(r"  --(?:cap-drop ALL|disable-userns) .*\n", "", course.wrappers["restricted"])
    assert not {"K11: raw"} & course.broken("restricted", text)[1]
    error, broken = course.broken("restricted", text, bpf=letting(about="raw ones forge packets"))
    assert error == ""
    assert "K11: raw" in broken


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86_64's")
def test_a_filter_that_lets_foreign_calls_through_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", bpf=letting_foreign())
    assert error == ""
    noticed = {"K12: int 0x80", "K13: x32"} & course.reachable("default")
    assert noticed <= broken
    assert "K15: clone3" in broken


NOT_ASKED = {
    "fsconfig fsmount fspick mount_setattr open_tree_attr": "they take what fsopen or open_tree made, which K14 asks about",
    "mount umount2 pivot_root chroot": "W02 and P04: the kernel asks for a right in the mount namespace, and none is left",
    "statmount listmount": "they tell what /proc/self/mountinfo tells, and R23 reads that",
    "process_vm_readv process_vm_writev": "P02 tries them on a process of the host, which has no number inside",
    "clock_settime settimeofday clock_adjtime adjtimex sethostname setdomainname": "K18: the kernel asks for a right over the machine",
    "swapoff quotactl quotactl_fd vhangup iopl ioperm": "the kernel asks for a right over the machine, as for what K06 to K08 ask about",
    "_sysctl create_module query_module get_kernel_syms nfsservctl uselib sysfs ustat": "no kernel of today has it, or nothing of a fence depends on it",
    "mbind migrate_pages set_mempolicy set_mempolicy_home_node": "of a process's own memory, as move_pages, which K14 asks about",
    "lsm_set_self_attr": "does nothing where no machine's policy has labels",
    "clone3": "K15, by its errno",
}
"""Calls that the filter refuses and no K probe asks for by name, and why not: test_seccomp_live has the errno of each."""


def test_every_refused_call_that_no_probe_asks_about_is_in_the_list(course: Course) -> None:
    """A new one needs a probe, or a reason."""
    listed = [name for names in NOT_ASKED for name in names.split()]
    assert len(listed) == len(set(listed))
    assert set(refused_calls(nested=False)) - set(asked(course)) == set(listed)


def test_every_rule_by_arguments_is_in_a_test_or_has_a_reason() -> None:
    reasons = {
        CLONE: "in a test of its own",
        "NETLINK_ROUTE": "other families of netlink ask for a right, or tell what /proc tells",
        "DCCP, SCTP": "of protocols that are not loaded nothing is tried",
        "raw ones forge packets": "in a test of its own",
        "starved of the processor": "a decision table; that a shell waits for its end is seen by W27",
    }
    parts = (*BY_ARGUMENT, *reasons)
    for rule in the_filter().rules:
        if rule.when:
            assert any(part in rule.why for part in parts), rule.why


def test_a_terminal_that_is_shared_where_none_is_needed_is_noticed(course: Course) -> None:
    text = mutated(course, "default", "[[ -t 0 || -t 1 || -t 2 ]] || wg_session+=(--new-session)\n", "true\n")
    error, broken = course.broken("default", without_landlock(text))  # it lets nobody outside be signalled, too
    assert error == ""
    assert "T02b: the caller's process group" in broken


def test_a_search_path_that_is_not_cleaned_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", "  if [[ :$path: == *:[!/]* ]]; then\n", "  if false; then\n"))
    assert error == ""
    assert "E04: PATH" in broken


def test_a_fence_that_fails_open_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", "readonly wg_fallback=error\n", "readonly wg_fallback=warn\n"), wholly=True)
    assert error == ""
    assert "I06: no user namespaces" in broken


@ROOT_ONLY
def test_a_link_that_is_followed_at_the_next_start_is_noticed(course: Course) -> None:
    """That the neighbours are hidden stops it, too."""
    text = course.wrappers["default"]
    text = without(text, *(line for line in section(text, "places() {") if line.split()[0] == "neighbours"))
    for check in ('! written "$current" ||', '[[ $within == "$wg_home" && ($from == /nix/store/* || $from == /gnu/store/*) ]] ||'):
        assert text.count(check) == 1, check
        text = text.replace(check, "true ||")
    error, broken = course.broken("default", text, wholly=True)
    assert error == ""
    assert "L05 ./vendor: ./vendor" in broken


def test_a_project_that_is_the_home_is_noticed(course: Course) -> None:
    text = course.wrappers["default"]
    for check in ('die "the project $wg_project is, or holds', 'die "XDG_STATE_HOME=$state lies in the project"'):
        assert text.count(check) == 1, check
        text = text.replace(check, check.replace("die", ":"))
    error, broken = course.broken("default", text, wholly=True)
    assert error == ""
    assert any(target.startswith("L09: ") for target in broken)


def test_a_shell_that_trusts_a_variable_is_noticed(course: Course) -> None:
    trusting = '[[ -z ${SANDBOX_ACTIVE-} ]] || { while [[ $1 != -- ]]; do shift; done; shift; exec "$@"; }\n# One call at the end'
    error, broken = course.broken("default", mutated(course, "default", "# One call at the end", trusting), wholly=True)
    assert error == ""
    assert "I03: SANDBOX_ACTIVE=1" in broken


def test_a_fence_that_does_not_come_up_is_an_error_whatever_the_variables_say(course: Course) -> None:
    unfenced = '#!/bin/bash\nexport SANDBOX_ACTIVE=1 WAVEGEN_SHELL=default\nwhile [[ $1 != -- ]]; do shift; done\nshift\nexec "$@"\n'
    error, broken = course.broken("default", unfenced)
    assert "the fence did not come up" in error
    assert broken == set()


def test_a_shell_that_runs_nothing_is_an_error(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_START", 2.0)
    for text in ("#!/bin/bash\nexit 0\n", "#!/bin/bash\nread -r\n", "#!/bin/bash\necho '{\"done\": true}'\n"):
        error, _ = course.broken("default", text)
        assert "no probe ran" in error
