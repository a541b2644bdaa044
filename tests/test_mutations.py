"""The harness itself is tried: each rule is taken out of a rendered wrapper, and some probe must notice.

What nothing notices is a probe that is missing. A rule about a path that this machine does not have does nothing, and
cannot be missed; that every rule of a policy is in some case is shown without a machine in test_probes.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from wavegen import entry
from wavegen.backends import render
from wavegen.ground import Ground
from wavegen.probes import State, Want, Where
from wavegen.probes.expect import connected_elsewhere
from wavegen.project import Project, load
from wavegen.resources import runtime
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
SHELLS = ("default", "restricted")
NAMED = "filtered"


@dataclass
class Course:
    """A ground on which one wrapper after the other is tried; the control is run once."""

    ground: Ground
    tasks: dict[str, tuple[Task, ...]]
    outside: Run
    wrappers: dict[str, str]
    elsewhere: dict[str, tuple[tuple[str, int], ...]]

    def broken(self, shell: str, text: str = "", *, wholly: bool = False, runtime: dict[str, str] | None = None) -> tuple[str, set[str]]:
        """Why the shell did not start, and otherwise every target that is broken, as `id: target`.

        `wholly`: also what is tried at a terminal and from outside; `runtime`: files of the runtime in their place.
        """
        tasks = tuple(task for task in self.tasks[shell] if wholly or task.case.probe.where is Where.INSIDE)
        rendered = Path(self.ground.project) / ".wavegen"
        changed = {f"bin/{shell}": text or self.wrappers[shell], **{f"runtime/{name}": text for name, text in (runtime or {}).items()}}
        before = {name: (rendered / name).read_text(encoding="utf-8") for name in changed}
        for name, new in changed.items():
            (rendered / name).write_text(new, encoding="utf-8")
        try:
            inside = Run(self.ground, shell, fenced=True, progress=lambda *_: None, elsewhere=self.elsewhere.get(shell, ()))
            inside.run(tasks)
        finally:
            for name, old in before.items():
                (rendered / name).write_text(old, encoding="utf-8")
        return inside.error, {broken for task in tasks for broken in self._targets(task, inside)}

    def _targets(self, task: Task, inside: Run) -> Iterator[str]:
        reached = {answer.target for answer in self.outside.answers(task) if answer.state is State.REACHED}
        for answer in inside.answers(task):
            match task.case.expectation.want:
                case Want.STOPPED if answer.state is State.REACHED:
                    yield f"{task.case.id}: {answer.target}"
                case Want.WORKS if answer.state is State.STOPPED and answer.target in reached:
                    yield f"{task.case.id}: {answer.target}"


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Course]:
    root = tmp_path_factory.mktemp("mutations")
    (root / "wave.yaml").write_text(MANIFEST)
    project: Project = load(str(root / "wave.yaml"))
    # A top-level directory, so that what is around a project and a home is hidden by nothing else.
    under = tempfile.mkdtemp(prefix="wavegen-", dir="/") if os.geteuid() == 0 else None
    files = render(project.plan)
    try:
        with Ground(project, files, under=under, via="wrapper") as ground:
            policies = {name: policy for name in (*SHELLS, NAMED) if (policy := project.plan.shell(name))}
            tasks = {name: tasks_of(ground, policy) for name, policy in policies.items()}
            outside = Run(ground, CONTROL, fenced=False, progress=lambda *_: None)
            outside.run(distinct(task for group in tasks.values() for task in group))
            assert not outside.error
            wrappers = {name: next(file.text for file in files if file.path == f".wavegen/bin/{name}") for name in policies}
            yield Course(ground, tasks, outside, wrappers, {name: connected_elsewhere(policy) for name, policy in policies.items()})
    finally:
        if under:
            shutil.rmtree(under)


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
    error, broken = course.broken("restricted", without(text, *lines), wholly=removed == ("--die-with-parent",))
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
    error, broken = course.broken("restricted", re.sub(r"  --unshare-net .*\n", "", course.wrappers["restricted"]))
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
    error, broken = course.broken("restricted", re.sub(r"  --cap-drop ALL .*\n", "", course.wrappers["restricted"]))
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
    error, broken = course.broken("default", mutated(course, "default", 'declare -g +x -- "${wg_names[@]}" SHLVL OLDPWD PWD', "true"))
    assert error == ""
    assert {"E01: AWS_SECRET_ACCESS_KEY", "E02: names like secrets'", "R09: PID 1", "R09: its own variables"} <= broken
    assert any(target.startswith("E03: ") for target in broken)


def mutated(course: Course, shell: str, old: str, new: str) -> str:
    """The wrapper with one piece of text exchanged, which must be there once."""
    text = course.wrappers[shell]
    assert text.count(old) == 1, (old, text.count(old))
    return text.replace(old, new)


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
            'home | project | keep) wg_mounts+=(--bind "${wg_from[i]}" "$at") ;;',
            'home | project | keep) wg_mounts+=(--bind "$at" "$at") ;;',
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
    assert "\nwg_mounts=() wg_late=()\n" in text
    error, broken = course.broken("default", text.replace("\nwg_mounts=() wg_late=()\n", f"\n{more}\nwg_mounts=() wg_late=()\n"))
    assert error == ""
    assert notice in broken


def test_a_directory_more_on_the_search_path_is_noticed(course: Course) -> None:
    old = '--setenv PATH "${path:-/usr/local/bin:/usr/bin:/bin}"'
    error, broken = course.broken("default", mutated(course, "default", old, '--setenv PATH "$wg_project/bin:$path"'))
    assert error == ""
    assert "E04: PATH" in broken


def test_input_that_can_be_written_is_noticed(course: Course) -> None:
    old = "  [[ ! -f /proc/self/fd/0 ]] || exec < <(exec cat)\n"
    error, broken = course.broken("default", mutated(course, "default", old, ""), wholly=True)
    assert error == ""
    assert "R19b: the input's file" in broken


def test_an_environment_that_is_a_list_of_forbidden_names_is_noticed(course: Course) -> None:
    """What is not on such a list arrives."""
    old = 'declare -g +x -- "${wg_names[@]}" SHLVL OLDPWD PWD'
    forbidding = 'for name in "${wg_names[@]}"; do case $name in WG_*) ;; *) declare -g +x -- "$name" ;; esac; done; true'
    error, broken = course.broken("default", mutated(course, "default", old, forbidding))
    assert error == ""
    assert "E01b: a name that nobody knows" in broken


def test_a_missing_filter_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", '  wg_session+=(--seccomp "$wg_filter")\n', ""))
    assert error == ""
    assert {"K16: this process", "K16: PID 1"} <= broken
    assert {"K01: keyctl", "N15: vsock"} & broken


def fewer(text: str, refused: str) -> str:
    """The wrapper with a filter that lets one more thing through."""
    from wavegen.backends import _filter

    numbers = {"keyctl": 250, "add_key": 248, "request_key": 249, "TIOCSTI": 0x5412, "TIOCLINUX": 0x541C, "vsock": 40, "foreign": None}
    changed = []
    for code, true, false, value in _filter.program():
        if refused == "foreign":
            # What would be ENOSYS is let through: x32, and i386 by its own numbers.
            changed.append((code, true, false, _filter.ALLOW if code == _filter.RET and value == _filter.ENOSYS else value))
        else:
            changed.append((code, true, false, 0xFFFFFF if code == _filter.JEQ and value == numbers[refused] else value))
    whole = b"".join(struct.pack("<HBBI", *one) for one in changed)
    replaced = text.replace(_filter.as_printf(), "".join(f"\\{byte:03o}" for byte in whole)).replace(_filter.name(), f"filter-{refused}")
    assert replaced != text
    return replaced


FILTERED = {
    "keyctl": "K01: keyctl",
    "add_key": "K01: add_key",
    "request_key": "K01: request_key",
    "TIOCSTI": "T01: messages",
    "TIOCLINUX": "T01b: messages",
    "vsock": "N15: vsock",
    "foreign": "K12: int 0x80",
}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86_64's")
@pytest.mark.parametrize("refused", FILTERED)
def test_a_filter_that_lets_one_thing_through_is_noticed(course: Course, refused: str) -> None:
    error, broken = course.broken("default", fewer(course.wrappers["default"], refused), wholly=refused.startswith("TIOC"))
    assert error == ""
    reachable = {
        f"{task.case.id}: {answer.target}" for task in course.tasks["default"] for answer in course.outside.answers(task) if answer.state is State.REACHED
    }
    if FILTERED[refused] in reachable:
        assert FILTERED[refused] in broken
    else:
        # Without this kernel's own refusal there would be something to notice: TIOCSTI since Linux 6.2, a family that is not loaded.
        assert refused in ("TIOCSTI", "vsock", "foreign")


def test_every_thing_that_the_filter_refuses_is_in_that_test() -> None:
    from wavegen.backends import _filter

    assert set(FILTERED) == _filter.REFUSED


def test_a_terminal_that_is_shared_where_none_is_needed_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", mutated(course, "default", "[[ -t 0 || -t 1 || -t 2 ]] || wg_session+=(--new-session)\n", "true\n"))
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
    trusting = '[[ -z ${SANDBOX_ACTIVE-} ]] || exec "$@"\n# One call at the end'
    error, broken = course.broken("default", mutated(course, "default", "# One call at the end", trusting), wholly=True)
    assert error == ""
    assert "I03: SANDBOX_ACTIVE=1" in broken


def test_a_fence_that_does_not_come_up_is_an_error_whatever_the_variables_say(course: Course) -> None:
    unfenced = '#!/bin/bash\nexport SANDBOX_ACTIVE=1 WAVEGEN_SHELL=default\nexec "$@"\n'
    error, broken = course.broken("default", unfenced)
    assert "the fence did not come up" in error
    assert broken == set()


def test_a_shell_that_runs_nothing_is_an_error(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "_START", 2.0)
    for text in ("#!/bin/bash\nexit 0\n", "#!/bin/bash\nread -r\n", "#!/bin/bash\necho '{\"done\": true}'\n"):
        error, _ = course.broken("default", text)
        assert "no probe ran" in error
