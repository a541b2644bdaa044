"""The harness itself is tried: each rule is taken out of a rendered shell, each step out of its launcher, and some probe must notice.

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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from fence import PYTHON
from first_start import prepare
from helpers import USER

from wavegen.backends import render_all_files
from wavegen.backends.sandboxes.rules_file import rules_text
from wavegen.core import resources
from wavegen.launcher.bwrap import option_words
from wavegen.launcher.mounts import PROC_OF_ROOT
from wavegen.launcher.rules import read_rules
from wavegen.manifest.model import Seccomp
from wavegen.policy.model import Policy
from wavegen.project.loader import Project, load_project
from wavegen.project.rendered_tree import sha256_digest
from wavegen.seccomp import Action, Arch, Filter
from wavegen.seccomp.bpf import RET, assemble_filter, compile_filter
from wavegen.seccomp.filters import filter_of, refused_calls
from wavegen.verify import session
from wavegen.verify.catalogue import ABSENT
from wavegen.verify.expect_network import redirected_destinations
from wavegen.verify.model import State, Want, Where
from wavegen.verify.run import CONTROL, Run, Task, distinct_tasks, tasks_of
from wavegen.verify.testbed import Ground

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
SHELLS = ("default", "restricted")
NAMED = "filtered"


Changed = dict[str, str]
"""Files below .wavegen in their place, by their paths."""


@dataclass
class Course:
    """A ground on which one changed shell after the other is tried; the control is run once."""

    ground: Ground
    policies: dict[str, Policy]
    tasks: dict[str, tuple[Task, ...]]
    outside: Run
    rules: dict[str, str]
    """All rules of each shell, as one text without reference to the groups of `base`."""
    elsewhere: dict[str, tuple[tuple[str, int], ...]]

    def broken(
        self, shell: str, changed: Changed | None = None, *, of: str | Iterable[str] = (), wholly: bool = False, bpf: bytes = b""
    ) -> tuple[str, set[str]]:
        """Why the shell did not start, and otherwise every target that is broken, as `id: target`.

        `of`: only the probes of these targets are asked, wherever they are tried; without it all that are tried inside, and `wholly` also those at a
        terminal and from outside. `bpf`: another filter. The lock lists what is changed, as if it had been rendered so.
        """
        numbers = {re.split("[ :]", target)[0] for target in ((of,) if isinstance(of, str) else of)}
        asked = (task for task in self.tasks[shell] if not numbers or task.case.probe.id in numbers)
        tasks = tuple(task for task in asked if numbers or wholly or task.case.probe.where is Where.INSIDE)
        assert {task.case.probe.id for task in tasks} >= numbers
        rendered = Path(self.ground.project_copy) / ".wavegen"
        new = {f"rules/{shell}": self.rules[shell]} | (changed or {})
        files = {name: text.encode() for name, text in new.items()} | ({"seccomp/default.bpf": bpf} if bpf else {})
        before = {name: (rendered / name).read_bytes() for name in (*files, "lock.json")}
        assert not bpf or before["seccomp/default.bpf"] != bpf
        lock = json.loads(before["lock.json"])
        lock["outputs"] |= {f".wavegen/{name}": sha256_digest(data) for name, data in files.items()}
        for name, data in (files | {"lock.json": json.dumps(lock).encode()}).items():
            (rendered / name).write_bytes(data)
        prepare(rendered.parent, Path(self.ground.home_directory))
        try:
            inside = Run(self.ground, shell, fenced=True, progress=lambda *_: None, elsewhere=self.elsewhere.get(shell, ()))
            inside.run_tasks(tasks)
        finally:
            for name, old in before.items():
                (rendered / name).write_bytes(old)
        return inside.error, {broken for task in tasks for broken in self._targets(task, inside)}

    def without(self, shell: str, *lines: str) -> Changed:
        """The shell without these rules, each of which must be there."""
        return {f"rules/{shell}": without(self.rules[shell], *lines)}

    def with_rules(self, shell: str, *lines: str) -> Changed:
        """The shell with more rules; of two for one path the later holds."""
        return {f"rules/{shell}": self.rules[shell] + "".join(f"{line}\n" for line in lines)}

    def reachable(self, shell: str) -> set[str]:
        """Every target that is reached without a fence, as `id: target`: only of these a missing rule can be noticed."""
        return {
            f"{task.case.stable_id}: {answer.target}"
            for task in self.tasks[shell]
            for answer in self.outside.answers_for(task)
            if answer.state is State.REACHED
        }

    def _targets(self, task: Task, inside: Run) -> Iterator[str]:
        reached = {answer.target for answer in self.outside.answers_for(task) if answer.state is State.REACHED}
        for answer in inside.answers_for(task):
            match task.case.expectation.want:
                case Want.STOPPED if answer.state is State.REACHED:
                    yield f"{task.case.stable_id}: {answer.target}"
                case Want.WORKS if answer.state is State.STOPPED and answer.target in reached:
                    yield f"{task.case.stable_id}: {answer.target}"


def launcher(name: str, *changes: tuple[str, str]) -> Changed:
    """A file of the launcher with pieces exchanged, each of which must be there once."""
    return {f"launcher/{name}": exchanged(dict(resources.launcher_sources())[name], *changes)}


@contextmanager
def laid_out(root: Path, manifest: str, shells: tuple[str, ...], *numbers: str) -> Iterator[Course]:
    """A course for a manifest, with every probe or with those of these numbers."""
    (root / "wave.yaml").write_text(manifest)
    project: Project = load_project(str(root / "wave.yaml"))
    # A top-level directory, so that what is around a project and a home is hidden by nothing else.
    under = tempfile.mkdtemp(prefix="wavegen-", dir="/") if os.geteuid() == 0 else None
    files = render_all_files(project.plan)
    try:
        with Ground(project, files, under=under, via="wrapper") as ground:
            policies = {name: policy for name in shells if (policy := project.plan.find_shell(name))}
            tasks = {
                name: tuple(task for task in tasks_of(ground, policy) if not numbers or task.case.probe.id in numbers) for name, policy in policies.items()
            }
            outside = Run(ground, CONTROL, fenced=False, progress=lambda *_: None)
            outside.run_tasks(distinct_tasks(task for group in tasks.values() for task in group))
            assert not outside.error
            rules = {name: rules_text(project.plan, policy, grouped=False) for name, policy in policies.items()}
            yield Course(ground, policies, tasks, outside, rules, {name: redirected_destinations(policy) for name, policy in policies.items()})
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


def fields(line: str) -> list[str]:
    """A rule's keyword and what follows."""
    return line.rstrip("\n").split("\t")


def lines_of(text: str, *start: str) -> list[str]:
    """The rules that begin with these fields."""
    found = [line for line in text.splitlines(keepends=True) if fields(line)[: len(start)] == list(start)]
    assert found, start
    return found


def of_system(text: str, access: str) -> list[str]:
    """The default rules about paths of the system with this access, those about the root left out."""
    lines = [line for line in lines_of(text, "path", access) if fields(line)[4].startswith("default: ")]
    return [line for line in lines if fields(line)[2][0] == "/" and fields(line)[2] != "/"]


def exchanged(text: str, *changes: tuple[str, str]) -> str:
    """The text with pieces exchanged, each of which must be there once."""
    for old, new in changes:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return text


def without_landlock(course: Course, shell: str) -> Changed:
    """The shell without the second layer, but with the bounds: the first one must be missed on its own."""
    (line,) = lines_of(course.rules[shell], "landlock")
    return {f"rules/{shell}": course.rules[shell].replace(line, re.sub(r":0x[0-9a-f]+", ":0x0", line))}


def without_filter(course: Course, shell: str) -> Changed:
    """The shell without the system call filter, whose terminal is shared all the same."""
    return launcher("bwrap_start.py", ('return [*words, "--seccomp", self.descriptors.add_descriptor(handle)]', "return words"))


def exists(line: str) -> bool:
    """Whether the path of a rule is there on this machine, so that the rule does something."""
    return os.path.exists(fields(line)[2])


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="without root there is nothing to take away")


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_is_broken_without_a_mutation(course: Course, shell: str) -> None:
    assert course.broken(shell, wholly=True) == ("", set())


# --- what bwrap is told besides paths

OPTIONS = {
    "--unshare-pid": "R11: the planted process",
    "--unshare-ipc": "P14: System V memory",
    "--unshare-uts": "I01: the host's name",
    "--unshare-cgroup": "P06 cgroup: cgroup",
    "--die-with-parent": "P15b: the command, when what keeps it is killed, too",
    "--disable-userns": "P07: unshare user",
}


def without_option(option: str) -> tuple[str, str]:
    """What is exchanged in bwrap.py so that bwrap is not given an option."""
    (line,) = re.findall(rf'^.*\(\("{option}".*\n', dict(resources.launcher_sources())["bwrap.py"], re.MULTILINE)
    return (line, "        pass\n" if "append" in line else "")


@pytest.mark.parametrize("removed", OPTIONS)
def test_a_missing_option_is_noticed(course: Course, removed: str) -> None:
    changes = [without_option(removed)]
    if removed == "--unshare-uts":
        changes.append(without_option("--hostname"))
    changed = launcher("bwrap.py", *changes)
    if removed == "--disable-userns":
        changed |= without_filter(course, "restricted")  # it refuses unshare, too
    error, broken = course.broken("restricted", changed, of=OPTIONS[removed])
    assert error == ""
    assert OPTIONS[removed] in broken


def test_a_missing_host_name_is_noticed(course: Course) -> None:
    error, broken = course.broken("restricted", launcher("bwrap.py", without_option("--hostname")), of="I01")
    assert error == ""
    assert "I01: the host's name" in broken


def test_every_option_is_in_one_of_these_tests(course: Course) -> None:
    """A new option needs a mutation."""
    tried = {*OPTIONS, "--hostname", "--unshare-user", "--unshare-net", "--cap-drop"}
    found = {words[0] for shell in SHELLS for words, _ in option_words(read_rules(course.rules[shell], lambda: "", shell))}
    assert found == tried


def test_a_shell_without_a_user_namespace_does_not_start(course: Course) -> None:
    error, _ = course.broken("restricted", launcher("bwrap.py", without_option("--unshare-user")))
    assert error


def test_a_missing_network_namespace_is_noticed(course: Course) -> None:
    changed = without_landlock(course, "restricted")  # it holds abstract sockets, too
    error, broken = course.broken("restricted", changed | launcher("bwrap.py", without_option("--unshare-net")), of=["N07", "N08", "N14", "P06"])
    assert error == ""
    assert {"N07: tcp 127.0.0.1", "N07: udp 127.0.0.1", "N08: the planted socket", "N14: 0.0.0.0", "P06 net: net"} <= broken


# --- the filter of names


def test_nothing_is_broken_in_a_shell_that_filters(course: Course) -> None:
    assert course.broken(NAMED, wholly=True) == ("", set())


@pytest.mark.parametrize(
    ("changes", "broken"),
    {
        "any name": (
            {
                "egress/rules.py": {
                    "        if about:\n            return": "        if True:\n            return Decision(allowed=True, rule=self.allow[0])\n        if about:\n            return"
                }
            },
            {f"N16: {way} wavegen-verify.example:80" for way in ("connect", "direct", "http", "socks")},
        ),
        "names by their ends": (
            {"egress/rules.py": {"list(self.exact.get(target.name, ()))": "[r for n, rs in self.exact.items() if target.name.endswith(n) for r in rs]"}},
            {"N16c: connect evilgood.example:80", "N16c: direct evilgood.example:80"},
        ),
        "an apex by its wildcard": (
            {"egress/rules.py": {"rest = target.name\n": 'rest = "." + target.name\n'}},
            {"N16c: connect wild.example:80", "N16c: socks wild.example:80"},
        ),
        "any port": ({"egress/rules.py": {'if self.port == "*":': "if True:"}}, {"N16d: connect good.example:65000", "N16d: socks good.example:65000"}),
        "no denial": (
            {"egress/rules.py": {"in self._deny.find_matching_rules(target):\n            if": "in ():\n            if"}},
            {"N16b: connect evil.wild.example:80"},
        ),
        "any address": (
            {
                "egress/rules.py": {
                    "        if about:\n            return": "        if target.address:\n            return Decision(allowed=True, rule=self.allow[0])\n        if about:\n            return"
                }
            },
            {"N16e: connect 169.254.169.254:80", "N16e: http 168.63.129.16:80"},
        ),
        "the host's loopback": (
            {
                "egress/rules.py": {
                    "return Decision(allowed=port in self.loopback,": "return Decision(allowed=True, rule=self.allow[0]) or Decision(allowed=False,",
                    "        address = names.unmap_ipv4_address(address)\n": '        return ""\n',
                }
            },
            {"N16f: connect 127.0.0.1", "N16f: socks localhost", "N16f: connect [::ffff:127.0.0.1]"},
        ),
        "any server name": (
            {"egress/serve.py": {"    if not said:\n        return": "    return ''\n    if not said:\n        return"}},
            {"N16g: connect good.example:443 as other.wavegen-verify.example"},
        ),
        "no names": ({"egress/dns.py": {"address = self.reserve_address(target.name)": "address = None"}}, {"U13: direct good.example:80"}),
        "no proxy": ({"netns.py": {'("proxy", four, "127.0.0.1", HTTP_PORT), ': ""}}, {"U13: connect good.example:80"}),
    }.values(),
    ids=lambda value: "" if isinstance(value, set) else "-".join(value),
)
def test_a_filter_that_lets_too_much_or_too_little_through_is_noticed(course: Course, changes: dict[str, dict[str, str]], broken: set[str]) -> None:
    changed: Changed = {}
    for name, replaced in changes.items():
        changed |= launcher(name, *replaced.items())
    error, found = course.broken(NAMED, changed, of=broken)
    assert error == ""
    assert broken <= found


def test_a_filter_without_a_network_of_its_own_is_noticed(course: Course) -> None:
    """The launcher takes it for a machine that lets no program but bwrap make namespaces: then only what knows a proxy gets out."""
    error, found = course.broken(NAMED, launcher("netns.py", ("_NEWUSER | _NEWNET", "_NEWUSER")), of="U13")
    assert error or "U13: direct good.example:80" in found


@pytest.mark.parametrize(("start", "notice"), [(("allow", "good.example"), "U13: "), (("deny", "evil.wild.example:*"), "N16b: ")])
def test_a_rule_about_names_that_is_missing_is_noticed(course: Course, start: tuple[str, str], notice: str) -> None:
    error, found = course.broken(NAMED, course.without(NAMED, *lines_of(course.rules[NAMED], *start)), of=notice)
    assert error == ""
    assert any(target.startswith(notice) for target in found)


@ROOT_ONLY
def test_capabilities_that_stay_are_noticed(course: Course) -> None:
    changed = without_landlock(course, "restricted") | without_filter(course, "restricted")  # both refuse to mount
    error, broken = course.broken("restricted", changed | launcher("bwrap.py", without_option("--cap-drop")), of=("P04", "W02"))
    assert error == ""
    assert {"P04: CapEff", "P04: CapBnd"} <= broken
    assert any(target.startswith("W02: ") for target in broken)


# --- environment


@pytest.mark.parametrize("shell", SHELLS)
def test_every_variable_that_is_no_longer_let_in_is_noticed(course: Course, shell: str) -> None:
    lines = lines_of(course.rules[shell], "pass")
    names = {fields(line)[1] for line in lines}
    assert {"ANTHROPIC_API_KEY", "MY_TOKEN", "LANG", "CC"} <= names
    error, broken = course.broken(shell, course.without(shell, *lines), of="U05")
    assert error == ""
    assert {target.rpartition(": ")[2] for target in broken if target.startswith("U05")} == names


@pytest.mark.parametrize("shell", SHELLS)
def test_every_variable_that_has_no_longer_its_value_is_noticed(course: Course, shell: str) -> None:
    lines = lines_of(course.rules[shell], "env")
    error, broken = course.broken(shell, course.without(shell, *lines), of="E05")
    assert error == ""
    assert {f"E05: {fields(line)[1]}" for line in lines} == {target for target in broken if target.startswith("E05: ")}


SET = "    found.update(HOME=places.home"
"""The line of environment.py before which the rules' variables are all there is."""


def test_an_environment_that_is_not_cleaned_is_noticed(course: Course) -> None:
    changed = launcher("environment.py", (SET, "    found = {**caller, **found}\n" + SET))
    # Landlock keeps /proc/1/environ closed, too.
    error, broken = course.broken("default", changed | without_landlock(course, "default"), of=("E01", "E02", "R09", "E03"))
    assert error == ""
    assert {"E01: AWS_SECRET_ACCESS_KEY", "E02: names like secrets'", "R09: PID 1", "R09: its own variables"} <= broken
    assert any(target.startswith("E03: ") for target in broken)


def test_an_environment_that_is_a_list_of_forbidden_names_is_noticed(course: Course) -> None:
    """What is not on such a list arrives."""
    forbidding = '    found = {**{name: caller[name] for name in caller if name.startswith("WG_")}, **found}\n'
    error, broken = course.broken("default", launcher("environment.py", (SET, forbidding + SET)), of="E01b")
    assert error == ""
    assert "E01b: a name that nobody knows" in broken


# --- paths of the system


def shows_more(line: str) -> bool:
    """Whether this machine would show something if a default did not hide it: in the root only what everybody may read is shown."""
    path = fields(line)[2]
    return exists(line) and (path.count("/") > 1 or os.stat(path).st_mode & 0o005 == 0o005)


def test_every_mask_of_the_system_that_is_missing_is_noticed(course: Course) -> None:
    text = course.rules["default"]
    # Without the mask of /var no sandbox can be built: what is made in it is there already.
    lines = [line for line in of_system(text, "hide") if shows_more(line) and fields(line)[2] != "/var"]
    assert len(lines) >= 8
    # What others cannot read is hidden by a rule of its own, too.
    error, broken = course.broken("default", course.without("default", *lines, *lines_of(text, "private")), of=("R08", "R15", "R18"))
    assert error == ""
    seen = {target.rpartition(": ")[2] for target in broken if target.startswith(("R08: ", "R15: ", "R18: "))}
    assert seen == {fields(line)[2] for line in lines}


@ROOT_ONLY
def test_what_others_cannot_read_is_hidden_by_a_rule_of_its_own(course: Course) -> None:
    # Root without capabilities reads what is root's own.
    private = {target for target in course.reachable("default") if target.startswith("R08c: ") and os.stat(target[6:]).st_uid == 0}
    assert private
    error, broken = course.broken("default", course.without("default", *lines_of(course.rules["default"], "private")), of="R08c")
    assert error == ""
    listed = [fields(line)[2] for line in of_system(course.rules["default"], "hide")]
    assert {target for target in private if not any(f"{target[6:]}/".startswith(f"{path}/") for path in listed)} <= broken


@pytest.mark.parametrize("shell", SHELLS)
def test_every_scratch_directory_that_is_missing_is_noticed(course: Course, shell: str) -> None:
    for line in (line for line in of_system(course.rules[shell], "tmpfs") if "source=" not in line):
        error, broken = course.broken(shell, course.without(shell, line))
        path = fields(line)[2]
        assert error or any(path in target for target in broken), line


def test_a_scratch_directory_without_a_bound_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", launcher("bwrap.py", ('mount.mode, "--size", size, "--tmpfs"', 'mount.mode, "--tmpfs"')), of="Q03")
    assert error == ""
    assert {"Q03: /tmp", "Q03: /var/tmp", "Q03: /run", "Q03: /dev/shm"} <= broken


@ROOT_ONLY
def test_every_part_of_proc_that_is_left_writable_is_noticed(course: Course) -> None:
    error, broken = course.broken(
        "default", launcher("mounts.py", ("for path in PROC_OF_ROOT if self.host.uid == 0 else _PROC_OF_ALL:", "for path in ():")), of=("W24", "W24b")
    )
    assert error == ""
    covered = {"/proc/bus", "/proc/irq", "/proc/sysrq-trigger"}  # by bwrap itself, where it can
    assert {f"W24b: {path}" for path in PROC_OF_ROOT if path not in covered and os.path.exists(path)} <= broken
    assert "W24: /proc/sys/kernel/core_pattern" in broken


@pytest.mark.parametrize("kind", ["dev", "proc"])
def test_a_dev_or_proc_of_the_host_is_noticed(course: Course, kind: str) -> None:
    changed = launcher("mounts.py", (f'self.put_mount({kind.upper()}, "/{kind}", ', f'self.put_mount(DEV_BIND, "/{kind}", source="/{kind}", origin='))
    error, broken = course.broken("default", changed)
    assert error or broken, kind


TOP_LEVEL = ("self.put_mount(RO_BIND, path, root.origin, path)", "self.put_mount(BIND, path, root.origin, path)")
REMOUNT = ('[(("--remount-ro", "/"), "default: nothing of the host is there but what is shown")]', "[]")


def test_a_system_that_is_mounted_writable_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", launcher("mounts.py", TOP_LEVEL) | launcher("bwrap.py", REMOUNT), of="W01b")
    assert error == ""
    assert {"W01b: /", "W01b: /etc", "W01b: /usr"} <= broken


def of_minimal_system(course: Course) -> list[str]:
    """The rules of the minimal root whose paths are there."""
    return [line for line in of_system(course.rules["restricted"], "read") if exists(line)]


def test_every_part_of_the_minimal_system_that_is_mounted_writable_is_noticed(course: Course) -> None:
    writable = ("self.put_mount(FILE if small and self.host.can_read(source) else RO_BIND, path", "self.put_mount(BIND, path")
    error, broken = course.broken("restricted", launcher("mounts.py", writable) | launcher("bwrap.py", REMOUNT), of="W01d")
    assert error == ""
    named = {fields(line)[2] for line in of_minimal_system(course) if "source=" not in line}
    assert named - {target.rpartition(": ")[2] for target in broken if target.startswith("W01d: ")} == set()


def test_every_part_of_the_minimal_system_that_is_missing_is_noticed(course: Course) -> None:
    needed = ("/usr", "/bin", "/lib", "/lib64", "/nix/store")  # without which nothing starts
    lines = [line for line in of_minimal_system(course) if fields(line)[2] not in needed]
    assert len(lines) >= 10
    error, broken = course.broken("restricted", course.without("restricted", *lines), of="U06")
    assert error == ""
    assert {f"U06: {fields(line)[2]}" for line in lines if "source=" not in line} <= broken


def test_every_top_level_directory_that_is_missing_is_noticed(course: Course) -> None:
    skipping = ("if name in _NOT_OF_THE_ROOT", 'if name in (*_NOT_OF_THE_ROOT, "opt", "sys")')
    error, broken = course.broken("default", launcher("mounts.py", skipping), of="U06")
    assert error == ""
    assert {f"U06: {path}" for path in ("/opt", "/sys") if os.path.isdir(path)} <= broken


def test_more_of_the_host_than_the_minimal_system_is_noticed(course: Course) -> None:
    more = [f"path\tread\t{path}\t-\tdefault: more" for path in ("/var/lib", "/opt", "/srv", "/etc/fstab")]
    error, broken = course.broken("restricted", course.with_rules("restricted", *more), of="R08b")
    assert error == ""
    assert {"R08b: /var/lib", "R08b: /opt", "R08b: /srv", "R08b: /etc/fstab"} & course.reachable("restricted") <= broken


EMPTY = ('words = ("--perms", "0555", "--size", "4096", "--tmpfs", target)', 'words = ("--tmpfs", target)')


@pytest.mark.parametrize("shell", SHELLS)
def test_masks_and_roots_that_stay_writable_are_noticed(course: Course, shell: str) -> None:
    of_dev = ('late.append((("--remount-ro", target)', '((("--remount-ro", target)')
    error, broken = course.broken(
        shell, launcher("bwrap.py", REMOUNT, of_dev, EMPTY) | without_landlock(course, shell), of=("W01b", *(("W01c",) if shell == "default" else ()))
    )
    assert error == ""
    assert {"W01b: /dev", "W01b: /", *({"W01c: /sys/firmware"} if shell == "default" else ())} <= broken


# --- places that are known only when a shell starts


@pytest.mark.parametrize("shell", SHELLS)
def test_every_place_that_is_missing_is_noticed(course: Course, shell: str) -> None:
    text = course.rules[shell]
    notices = {
        ("write", "~"): "",
        ("write", "."): "",
        ("read", "~/.gitconfig"): "U07 ",
        ("read", "./vendor"): "W25 ",  # in the project: it would be writable
        ("write", "~/.cache"): "U08 ",
        ("hide", "./.env"): "R21 ",
        ("hide", "./secrets"): "R21 ",
        ("hide", "~/.cache/hidden"): "R21 ",
        ("hide", "/etc/hostname"): "R21b ",
        **{("read", f"./{name}"): "W15: " for name in ("wave.yaml", "flake.nix", "flake.lock", ".wavegen")},
    }
    known = {(fields(line)[1], fields(line)[2]): line for line in lines_of(text, "path")}
    here = {
        key
        for key, line in known.items()
        if "guarded" not in line and line not in (*of_system(text, "hide"), *of_system(text, "read"), *of_system(text, "tmpfs"))
    }
    unknown = here - set(notices) - {("read", "/"), ("hide", "/"), ("hide", "~/.."), ("hide", "./.."), ("read", "./wave.sandbox.yaml")}
    assert unknown == set(), "a place that no test knows"
    for key, notice in notices.items():
        if key == ("hide", "/etc/hostname") and shell == "restricted":
            continue  # it is not shown anyway
        error, broken = course.broken(shell, course.without(shell, known[key]), of=(notice,) if notice else ())
        if notice:
            assert error == "", (key, error)
            assert any(target.startswith(notice) for target in broken), (key, broken)
        else:
            assert error or broken, key


@contextmanager
def everybody_enters(course: Course) -> Iterator[None]:
    """While the directories that hold the ground are as homes and projects mostly are: what nobody else enters is not shown anyway."""
    places = ["/" + course.ground.base_directory.split("/")[1], course.ground.base_directory]
    before = [os.stat(place).st_mode for place in places]
    for place in places:
        os.chmod(place, 0o755)
    try:
        yield
    finally:
        for place, mode in zip(places, before, strict=True):
            os.chmod(place, mode)


@ROOT_ONLY
def test_neighbours_that_are_not_hidden_are_noticed(course: Course) -> None:
    """As a user the throw-away project lies in /tmp, which is hidden as a whole. Here the home lies around the project, too."""
    lines = [line for path in ("~/..", "./..") for line in lines_of(course.rules["default"], "path", "hide", path)]
    with everybody_enters(course):
        error, broken = course.broken("default", course.without("default", *lines), of=("R07", "R06"))
    assert error == ""
    assert any(target.startswith("R07: ") for target in broken)
    assert any(target.startswith("R06: ") for target in broken)


def test_what_is_granted_for_reading_and_mounted_writable_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", launcher("mounts.py", ("else BIND if rule.access == WRITE else RO_BIND", "else BIND")), of="W25")
    assert error == ""
    assert {"W25 ~/.gitconfig: ~/.gitconfig", "W25 ./vendor: ./vendor"} <= broken


def test_a_pin_that_is_writable_is_noticed(course: Course) -> None:
    error, broken = course.broken(
        "default",
        launcher(
            "mounts.py",
            (
                "            else:\n                self.put_mount(RO_BIND, path, rule.origin, path)",
                "            else:\n                self.put_mount(BIND, path, rule.origin, path)",
            ),
        ),
        of=("W15", "W17"),
    )
    assert error == ""
    assert {"W15: ./wave.yaml", "W15: ./.wavegen", "W15: ./flake.nix", "W17: ./.wavegen/probes/probe.py"} <= broken


def test_a_denied_path_that_is_masked_writable_is_noticed(course: Course) -> None:
    """Not an empty file of the host's, nor a directory into which the host would look."""
    error, broken = course.broken("default", launcher("bwrap.py", EMPTY) | without_landlock(course, "default"), of="W26")
    assert error == ""
    assert any(target.startswith("W26 ./secrets") for target in broken)


# --- what else a launcher does


def test_a_home_of_the_host_is_noticed(course: Course) -> None:
    (line,) = lines_of(course.rules["default"], "path", "write", "~")
    error, broken = course.broken(
        "default", {"rules/default": course.rules["default"].replace(line, line.replace("$STATE/home", "~"))}, of=("R01", "R02", "R03", "W03", "N09c")
    )
    assert error == ""
    assert {"R01: ~/.ssh/id_ed25519", "R02: ~/.aws/credentials", "R03: ~/.config/gh/hosts.yml", "W03: ~/.bashrc", "N09c: ~/.gnupg/S.gpg-agent"} <= broken


def test_descriptors_that_stay_open_are_noticed(course: Course) -> None:
    error, broken = course.broken("default", launcher("start.py", ("        if int(name) > 2 and int(name) not in kept:", "        if False:")), of="R19")
    assert error == ""
    assert "R19: its own" in broken


def mounting(*words: str) -> tuple[str, str]:
    """What is exchanged in bwrap.py so that something more is mounted, last of all but what is mounted read-only again."""
    return ("    return found + late\n", f'    return found + [(({", ".join(map(repr, words))}), "more")] + late\n')


@pytest.mark.parametrize(
    "mount",
    [
        "--bind /proc /run/proc",
        "--ro-bind /proc /run/proc",
        "--bind /etc /run/x",
        "--ro-bind /etc /var/x",
        "--ro-bind ~/.ssh /run/x",
        "--bind ~/.ssh ~/.cache2",
        "--dev-bind /dev/zero /dev/shm/disk",
        "--dev-bind /dev /run/dev",
        "--ro-bind / /run/host",
    ],
)
def test_a_mount_that_no_rule_asks_for_is_noticed(course: Course, mount: str) -> None:
    words = mount.replace("~", course.ground.home_directory).split()
    error, broken = course.broken("restricted", launcher("bwrap.py", mounting(*words)), of="R23")
    assert error == "", error
    assert "R23: mounts" in broken


@ROOT_ONLY
def test_a_directory_that_others_make_meanwhile_is_no_mount_that_no_rule_asks_for(course: Course) -> None:
    made = tempfile.mkdtemp(prefix="wavegen-meanwhile-", dir="/")
    os.chmod(made, 0o755)
    try:
        assert course.broken("default", of="R23") == ("", set())
    finally:
        os.rmdir(made)


@pytest.mark.parametrize(
    "mount",
    [
        "--ro-bind /proc /proc/fs",
        "--ro-bind /proc /proc/tty",
        "--dev-bind /dev/zero /dev/full",
        "--bind /sys/fs/cgroup /sys/fs/cgroup",
        "--ro-bind /etc/passwd /etc/machine-id",
        "--ro-bind /etc /boot",
        "--ro-bind ~/.aws ./secrets",
        "--ro-bind ~/.netrc ./.env",
        "--ro-bind ~/.netrc ./wave.yaml",
        "--ro-bind ./../neighbour ./vendor",
        "--ro-bind ~/.netrc ~/.gitconfig",
    ],
)
def test_something_else_in_the_place_of_what_a_rule_shows_is_noticed(course: Course, mount: str) -> None:
    words = [re.sub(r"^\.(?=/)", course.ground.project_copy, word).replace("~", course.ground.home_directory) for word in mount.split()]
    for path in words[1:]:
        if not os.path.exists(path):
            pytest.skip(f"{path} is not there")
    error, broken = course.broken("default", launcher("bwrap.py", mounting(*words)), of=("R23", "R24"))
    assert error == "", error
    assert {"R23: mounts", "R24: what is shown"} & broken


@pytest.mark.parametrize("opened", ["'/'", "self.places.home", "'/dev/null'", "'/etc/passwd'"])
def test_a_descriptor_that_the_launcher_leaves_open_is_noticed(course: Course, opened: str) -> None:
    before = "        listed = descriptors.add_bytes("
    error, broken = course.broken("restricted", launcher("bwrap_start.py", (before, f"        posix.dup2(posix.open({opened}, 0), 901)\n{before}")), of="R19c")
    assert error == ""
    assert "R19c: descriptors" in broken


def stub(course: Course, *changes: tuple[str, str]) -> Changed:
    """What starts `default`, with pieces exchanged."""
    return {"bin/default": exchanged((Path(course.ground.project_copy) / ".wavegen/bin/default").read_text(), *changes)}


TRUSTING = {
    "settings of bash": (("#!/bin/sh -p\n", "#!/bin/bash\n"),),
    "the caller's PATH": (("for python in ", 'for python in "$(command -v python3)" '),),
    "the caller's PYTHONPATH": ((" -I -S -X utf8 -X", " -S -X utf8 -X"),),
    "a file of the project": (("self=$0\n", 'self=$0\n. "${self%/*}/../../.envrc"\n'),),
}


@pytest.mark.parametrize("name", TRUSTING)
def test_a_stub_that_trusts_its_caller_is_noticed(course: Course, name: str) -> None:
    error, broken = course.broken("default", stub(course, *TRUSTING[name]), of="I07")
    assert error == ""
    assert "I07: a program of the project" in broken


def test_a_launcher_that_starts_programs_of_the_project_is_noticed(course: Course) -> None:
    changed = launcher(
        "places.py",
        ('(*SYSTEM_PATH.split(":"), *path.split(":"))', '(*path.split(":"), *SYSTEM_PATH.split(":"))'),
        ("                and not is_within_any(real, written)\n", ""),
        ("                and not is_within_any(directory, written)\n", ""),
    )
    error, broken = course.broken("default", changed, of="I07")
    assert error == ""
    assert "I07: a program of the project" in broken


def test_a_status_that_does_not_come_back_is_noticed(course: Course) -> None:
    error, broken = course.broken(
        "default",
        launcher("bwrap_start.py", ("        return status\n\n    def _run_filtered", "        return 0\n\n    def _run_filtered")),
        wholly=True,
        of="U11",
    )
    assert error == ""
    assert "U11: status 7" in broken


@pytest.mark.parametrize(
    ("more", "notice"),
    [
        ("pass\tGITHUB_TOKEN\tdefault: more", "E01: GITHUB_TOKEN"),
        ("pass\tSSH_AUTH_SOCK\tdefault: more", "E01c: variables"),
        ("env\tLD_PRELOAD\t/x\tdefault: more", "E01c: variables"),
        ("env\tGIT_CONFIG_GLOBAL\t/x\tdefault: more", "E01c: variables"),
    ],
)
def test_a_variable_more_is_noticed(course: Course, more: str, notice: str) -> None:
    error, broken = course.broken("default", course.with_rules("default", more), of=notice)
    assert error == ""
    assert notice in broken


CALLERS_PATH = 'PATH=absolute_path(caller.get("PATH", ""))'


@pytest.mark.parametrize("path", ['PATH=caller.get("PATH", "")', f'PATH=places.project + "/bin:" + {CALLERS_PATH[5:]}'])
def test_a_search_path_that_is_relative_or_has_more_is_noticed(course: Course, path: str) -> None:
    error, broken = course.broken("default", launcher("environment.py", (CALLERS_PATH, path)), of="E04")
    assert error == ""
    assert "E04: PATH" in broken


INPUT = ("source = InputFile() if is_regular(0) else None", "source = None")


def test_input_that_can_be_written_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", launcher("bwrap_start.py", INPUT) | without_landlock(course, "default"), of="R19b")
    assert error == ""
    assert "R19b: the input's file" in broken


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("posix.lseek(0, self._start + max(0, self._sent - left), 0)", "pass"),
        ("self._start + max(0, self._sent - left), 0)", "self._start + self._sent, 0)"),
    ],
    ids=["nothing is taken", "all is taken"],
)
def test_input_that_is_not_left_where_the_command_stopped_is_noticed(course: Course, old: str, new: str) -> None:
    error, broken = course.broken("default", launcher("supervise.py", (old, new)), of="U14")
    assert error == ""
    assert any(target.startswith("U14: ") for target in broken)


def test_a_launcher_that_looks_at_no_repository_writes_in_one_that_cannot_be_looked_at(course: Course) -> None:
    error, broken = course.broken("default", launcher("git.py", NO_SURVEY), of="W07d")
    assert error == ""
    assert "W07d: ./nested/.git" in broken


KEEPER = ("        _thread.start_new_thread(_end_when_alone, (life.keepers, child))\n", "")
"""What ends a shell whose launcher was killed."""


def test_a_command_that_does_not_ask_whether_its_launcher_lives_is_noticed_where_nothing_else_ends_it(course: Course) -> None:
    changed = launcher("bwrap_start.py", ('words += ["--life", str(life)]', "pass")) | launcher("supervise.py", KEEPER)
    error, broken = course.broken("default", changed, of="P15c")
    assert error == ""
    assert "P15c: the command" in broken


def test_a_shell_that_outlives_its_launcher_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", launcher("supervise.py", KEEPER), of="P15b")
    assert error == ""
    assert "P15b: the command" in broken


# --- the second layer: Landlock and the bounds, set inside by the shim


def masks(course: Course, shell: str, *changes: tuple[str, str]) -> Changed:
    """The shell with other masks of Landlock, the numbers of which change as these expressions say."""
    (line,) = lines_of(course.rules[shell], "landlock")
    changed = line
    for old, new in changes:
        changed = re.sub(old, new, changed)
    assert changed != line
    return {f"rules/{shell}": course.rules[shell].replace(line, changed)}


@pytest.mark.needs("landlock")
@pytest.mark.parametrize(
    ("shell", "scopes", "noticed"),
    [
        ("default", "0x2", {"N08: the planted socket"}),
        ("default", "0x1", {"T02: the caller's process group"}),
        ("restricted", "0x1", {"T02: the caller's process group"}),
    ],
)
def test_a_scope_that_is_missing_is_noticed(course: Course, shell: str, scopes: str, noticed: set[str]) -> None:
    """Wholly: a terminal is shared with the caller's process group. The scopes are 1, abstract sockets, and 2, signals."""
    assert noticed <= course.reachable(shell)
    error, broken = course.broken(shell, masks(course, shell, (r":0x3(:0x0:0x0\b)", rf":{scopes}\1")), wholly=True)
    assert error == ""
    assert broken == noticed


NPROC = ('words += ["--limit", f"nproc={pids}"] if host.uid else []', "")


@pytest.mark.needs("landlock")
@pytest.mark.parametrize("shell", SHELLS)
def test_a_second_layer_that_is_gone_is_noticed(course: Course, shell: str) -> None:
    error, broken = course.broken(
        shell, launcher("bwrap_start.py", ("            *inside,\n", "")), of=("T02", "Q02", "Q05", *(("N08",) if shell == "default" else ()))
    )
    assert error == ""
    wanted = {"T02: the caller's process group", "Q02: ", *({"N08: the planted socket"} if shell == "default" else set())}
    assert {name for name in wanted if any(target.startswith(name) for target in broken)} == wanted
    unbounded = {target for target in course.reachable(shell) if target.startswith("Q05: ")}
    assert "Q05: core dumps" in unbounded
    assert unbounded <= broken


@pytest.mark.needs("landlock")
def test_a_system_that_is_mounted_writable_is_held_by_the_second_layer(course: Course) -> None:
    """And by nothing else: without its files the same mistake lets files be made."""
    # Landlock lets be written what the launcher binds writable: by mistake it would be of both.
    writable = launcher("mounts.py", TOP_LEVEL) | launcher(
        "bwrap_start.py", ("for mount in self.mounts:\n                if ", "for mount in self.mounts:\n                if mount.target.count('/') > 1 and ")
    )
    error, broken = course.broken("default", writable, of="W01")
    assert error == ""
    made = {target for target in course.reachable("default") if target.startswith("W01: ")}
    assert not made & broken
    if os.geteuid() == 0:
        error, broken = course.broken("default", writable | masks(course, "default", (r"(\d:)0x[0-9a-f]+:0x[0-9a-f]+", r"\g<1>0x0:0x0")), of="W01")
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
        ("Q02", {"bwrap_start.py": ', "--limit", f"data={memory}"'}),
        ("Q05", {"bwrap_start.py": '"--limit", "core=1", '}),
        ("Q05", {"bwrap_start.py": """"--limit", f"nofile={rules.setting_value('files')}", """}),
        # A user's are bounded by the last step before the command, real root's by the control group, where one can be made.
        ("Q01", {"bwrap_start.py": NPROC[0], "cgroups.py": 'if _write_control_file(f"{path}/pids.max", pids)'}),
    ],
)
def test_a_bound_that_is_missing_is_noticed(bounded: Course, shell: str, number: str, removed: dict[str, str]) -> None:
    if "nofile" in str(removed) and not any(target.startswith("Q05: open files") for target in bounded.reachable(shell)):
        pytest.skip("the caller of these tests may open no more")
    changed: Changed = {}
    for name, old in removed.items():
        changed |= launcher(name, (old, "if True" if old.startswith("if ") else ""))
    error, broken = bounded.broken(shell, changed)
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
                    bare = made.broken(shell, launcher("bwrap_start.py", NPROC))
                    found[shell] = [[task.case.stable_id for task in made.tasks[shell] if task.case.expectation.tried], *held, *bare]
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


NO_SURVEY = ("    look.collect_git_rules()\n    return look.finish_git_rules()", "    return ()")


def guards(course: Course) -> list[str]:
    """The rules about what the host runs or follows."""
    return [line for line in lines_of(course.rules["default"], "path") if "guarded" in fields(line)[3]]


def test_guards_that_are_missing_are_noticed(course: Course) -> None:
    assert len(guards(course)) > 20
    wanted = {
        target
        for task in course.tasks["default"]
        if task.case.probe.id in GUARDED and task.case.expectation.want is Want.STOPPED
        for answer in course.outside.answers_for(task)
        if answer.state is State.REACHED
        for target in [f"{task.case.stable_id}: {answer.target}"]
    }
    assert {target.partition(":")[0].partition(" ")[0] for target in wanted} == set(GUARDED)
    error, broken = course.broken("default", course.without("default", *guards(course)) | launcher("git.py", NO_SURVEY), of=GUARDED)
    assert error == ""
    assert wanted <= broken


GUARDED = ("W04", "W05", "W06", "W07", "W07b", "W08", "W09", "W09b", "W10", "W10c", "W11", "W12")


def test_each_guard_that_is_missing_is_noticed(course: Course) -> None:
    """In one go, but each of them by the probe that names its path: what is replaced is looked at one by one."""
    paths = {fields(line)[2].removeprefix("./") for line in guards(course)}
    error, broken = course.broken("default", course.without("default", *guards(course)), of="W10c")
    assert error == ""
    noticed = {target.partition(": ./")[2] for target in broken if target.startswith("W10c: ")}
    planted = {target.partition(": ./")[2] for target in course.reachable("default") if target.startswith("W10c: ")}
    assert {path for path in paths if path not in ABSENT} == {path for path in planted if path.partition("/")[0] != ".git"}
    assert noticed == {path for path in planted if path.partition("/")[0] != ".git"}


def test_repositories_that_are_not_looked_for_are_noticed(course: Course) -> None:
    numbers = {"W04", "W05", "W06", "W07", "W07b", "W08", "W09", "W09b"}
    error, broken = course.broken("default", launcher("git.py", NO_SURVEY), of=numbers)
    assert error == ""
    assert {target.partition(":")[0] for target in broken} == numbers


def test_places_that_are_not_kept_are_noticed(course: Course) -> None:
    """Whoever renames a directory above a mount takes the mount away."""
    anchors = ("if anchor and directory else RO_BIND, target, origin, real, anchors=", "if False else RO_BIND, target, origin, real, anchors=")
    error, broken = course.broken(
        "default",
        launcher("mounts.py", ("            self._anchor_parents(mount)\n", "            pass\n"), anchors) | launcher("git.py", NO_ANCHORS),
        of="W09b",
    )
    assert error == ""
    assert any(target.startswith("W09b: ") for target in broken)


NO_ANCHORS = ("    return look.finish_git_rules()", "    return tuple(rule for rule in look.finish_git_rules() if rule.access != ANCHOR)")


# --- the system call filter


def test_a_missing_filter_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", without_filter(course, "default"), of=("K16", "K01", "N15"))
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
    return assemble_filter(left, *Arch)


def letting_foreign() -> bytes:
    """The filter that lets through what is no call of its own architecture, x32's numbers among it."""
    whole = compile_filter(the_filter(), *Arch)
    changed = [replace(one, value=Action.ALLOW.value) if one.code == RET and one.value == Action.ENOSYS.value else one for one in whole]
    return b"".join(struct.pack("<HBBI", one.code, one.true, one.false, one.value) for one in changed)


def asked(course: Course) -> dict[str, set[str]]:
    """Calls that probes ask about by their names, each with the probes."""
    found: dict[str, set[str]] = {}
    for case in (task.case for task in course.tasks["default"]):
        if case.probe.attempt == "calls":
            for name in dict(case.expectation.arguments)["names"]:  # type: ignore[union-attr]
                found.setdefault(str(name), set()).add(case.stable_id)
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
    changed = without_landlock(course, "default") | launcher("bwrap.py", without_option("--cap-drop"), without_option("--disable-userns"))
    error, broken = course.broken("default", changed, bpf=letting(*IN_THE_NAMESPACE), of=IN_THE_NAMESPACE.values())
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
    error, broken = course.broken("default", bpf=letting(about=why), of=BY_ARGUMENT[why] | ({"T01b"} if "terminal" in why else set()))
    assert error == ""
    noticed = BY_ARGUMENT[why] & course.reachable("default")
    # Of families only those that the kernel has loaded are tried: there may be none.
    assert noticed or why.startswith("AF_VSOCK")
    assert noticed <= broken
    if "terminal" in why:
        assert any(target.startswith("T01b: ") for target in broken)


CLONE = "makes namespaces, as unshare does"


def test_namespaces_that_the_filter_lets_be_made_are_noticed_where_bwrap_lets_them(course: Course) -> None:
    changed = launcher("bwrap.py", without_option("--disable-userns"))
    assert course.broken("restricted", changed) == ("", set())
    for bpf, call in ((letting(about=CLONE), "clone"), (letting("unshare"), "unshare")):
        error, broken = course.broken("restricted", changed, bpf=bpf)
        assert error == ""
        assert {target for target in broken if target.startswith("P07: ")} == {f"P07: {call} user"}


@ROOT_ONLY
def test_raw_sockets_that_the_filter_lets_through_are_noticed_where_the_rights_stay(course: Course) -> None:
    changed = launcher("bwrap.py", without_option("--cap-drop"), without_option("--disable-userns"))
    assert not {"K11: raw"} & course.broken("restricted", changed)[1]
    error, broken = course.broken("restricted", changed, bpf=letting(about="raw ones forge packets"))
    assert error == ""
    assert "K11: raw" in broken


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers are x86_64's")
def test_a_filter_that_lets_foreign_calls_through_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", bpf=letting_foreign(), of=("K12", "K13", "K15"))
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
    shared = launcher("bwrap_start.py", ('words = [] if self.has_terminal else ["--new-session"]', "words: list[str] = []"))
    error, broken = course.broken("default", shared | without_landlock(course, "default"), of="T02b")  # it lets nobody outside be signalled, too
    assert error == ""
    assert "T02b: the caller's process group" in broken


def test_a_sandbox_that_fails_open_is_noticed(course: Course) -> None:
    (line,) = lines_of(course.rules["default"], "fallback", "error")
    error, broken = course.broken("default", {"rules/default": course.rules["default"].replace(line, line.replace("\terror\t", "\twarn\t"))}, of="I06")
    assert error == ""
    assert "I06: no user namespaces" in broken


def test_a_link_that_is_followed_at_the_next_start_is_noticed(course: Course) -> None:
    changed = launcher("symlinks.py", ('if is_within_any(current or "/", written):', "if False:"))
    outside = ("if within and not is_within(source, within) and not (", "if False and not (")
    changed |= launcher("mounts.py", outside, ("        self.put_for(rule, kind, target, source)", "        self.put_for(rule, kind, source, source)"))
    error, broken = course.broken("default", changed, of="L05")
    assert error == ""
    assert "L05 ./vendor: ./vendor" in broken


def test_a_project_that_is_the_home_is_noticed(course: Course) -> None:
    changed = launcher(
        "places.py", ("    if is_within(home, project):", "    if False:"), ("        if is_within(self.state, self.project):", "        if False:")
    )
    error, broken = course.broken("default", changed, of="L09")
    assert error == ""
    assert any(target.startswith("L09: ") for target in broken)


TRUSTED = """[ -z "${SANDBOX_ACTIVE-}" ] || { while [ "$1" != -- ]; do shift; done; shift; exec "$@"; }
"""


def test_a_shell_that_trusts_a_variable_is_noticed(course: Course) -> None:
    error, broken = course.broken("default", stub(course, ("self=$0\n", f"{TRUSTED}self=$0\n")), of="I03")
    assert error == ""
    assert "I03: SANDBOX_ACTIVE=1" in broken


def test_a_sandbox_that_does_not_come_up_is_an_error_whatever_the_variables_say(course: Course) -> None:
    unfenced = '#!/bin/bash\nexport SANDBOX_ACTIVE=1 WAVEGEN_SHELL=default\nwhile [[ $1 != -- ]]; do shift; done\nshift\nexec "$@"\n'
    error, broken = course.broken("default", {"bin/default": unfenced})
    assert "the fence did not come up" in error
    assert broken == set()


def test_a_shell_that_runs_nothing_is_an_error(course: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_START", 2.0)
    for text in ("#!/bin/bash\nexit 0\n", "#!/bin/bash\nread -r\n", "#!/bin/bash\necho '{\"done\": true}'\n"):
        error, _ = course.broken("default", {"bin/default": text})
        assert "no probe ran" in error
