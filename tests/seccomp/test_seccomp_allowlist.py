"""The profile for containers says what the filter says: to a reader, to libseccomp, and in containers of docker and podman."""

from __future__ import annotations

import errno
import json
import os
import platform
import random
import subprocess
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from bpf_interpreter import instructions, run, run_each
from conftest import TOOLS
from engine import Engine, Podman
from helpers import MINIMAL, call, project
from test_seccomp_live import ARCH, BY_ARGUMENT, CALLS, I386, MORE_FILTERS, NOT_YET, PROGRAMS, TERMINAL, X32, Call, answers, last_line, named
from test_seccomp_oracle import FILTERS, TOO_NEW, arguments_of, compiled, made

from wavegen.manifest.model import Seccomp
from wavegen.seccomp import LOW, Action, Arch
from wavegen.seccomp.bpf import assemble_filter
from wavegen.seccomp.filters import Sockets
from wavegen.seccomp.oci import render_oci_profile
from wavegen.seccomp.syscalls import NAMES, NUMBERS

BOTH = (Seccomp.DEFAULT, Seccomp.STRICT)
Kept = dict[int, tuple[int, int]]


def entries(found: dict[str, Any]) -> dict[str, list[tuple[Action, Kept]]]:
    """What the profile says of each name: answers, each with the arguments it is for as index → (mask, value)."""
    said: dict[str, list[tuple[Action, Kept]]] = {}
    for entry in found["syscalls"]:
        action = Action.ALLOW if entry["action"] == "SCMP_ACT_ALLOW" else Action(0x00050000 | entry["errnoRet"])
        assert action is Action.ALLOW or entry["action"] == "SCMP_ACT_ERRNO"
        args = entry.get("args", [])
        assert all(it["op"] == "SCMP_CMP_MASKED_EQ" and 0 < it["value"] <= LOW for it in args)
        kept = {it["index"]: (it["value"], it["valueTwo"]) for it in args}
        assert len(kept) == len(args)
        for name in entry["names"]:
            said.setdefault(name, []).append((action, kept))
    return said


@pytest.mark.parametrize(("seccomp", "nested", "allow", "sockets"), FILTERS)
def test_every_call_has_the_filters_answer_for_all_arguments(seccomp: Seccomp, nested: bool, allow: tuple[str, ...], sockets: Sockets) -> None:
    """No two parts of a call have arguments in common, together they are all arguments, and the filter says the same in each."""
    filter_ = made(seccomp, nested, allow, sockets)
    said = entries(render_oci_profile(filter_))
    assert set(said) == NAMES
    for name, parts in said.items():
        for (_, one), (_, other) in combinations(parts, 2):
            assert any((one[at][1] ^ other[at][1]) & one[at][0] & other[at][0] for at in one.keys() & other.keys()), (name, one, other)
        assert sum(Fraction(1, 1 << sum(mask.bit_count() for mask, _ in kept.values())) for _, kept in parts) == 1, name
        dice = random.Random(name)
        for action, kept in parts:
            for filler in (0, (1 << 64) - 1, *(dice.getrandbits(64) for _ in range(8))):
                arguments = tuple(filler & ~kept.get(at, (0, 0))[0] | kept.get(at, (0, 0))[1] for at in range(6))
                assert filter_.action_for(name, arguments) is action, (name, tuple(map(hex, arguments)))


def test_a_profile_is_a_list_of_what_is_let_through() -> None:
    for seccomp in BOTH:
        found = render_oci_profile(made(seccomp, nested=False, allow=()))
        assert (found["defaultAction"], found["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", errno.ENOSYS)
        assert found["archMap"] == [{"architecture": f"SCMP_ARCH_{name}", "subArchitectures": []} for name in ("X86_64", "AARCH64")]
        assert "architectures" not in found
        whole = [entry for entry in found["syscalls"] if "args" not in entry]
        assert [(entry["action"], entry.get("errnoRet")) for entry in whole] == [
            ("SCMP_ACT_ALLOW", None),
            ("SCMP_ACT_ERRNO", errno.EPERM),
            ("SCMP_ACT_ERRNO", errno.ENOSYS),
        ]
        assert {"read", "execve", "futex", "openat2"} <= set(whole[0]["names"])
        assert {"keyctl", "mount", "ptrace"} <= set(whole[1]["names"])
        assert {"clone3", "io_uring_setup"} <= set(whole[2]["names"])
        assert len(found["syscalls"]) < 350  # each costs a container's start
        assert found == render_oci_profile(made(seccomp, nested=False, allow=()))


@pytest.mark.needs("seccomp")
@pytest.mark.parametrize("arch", Arch, ids=lambda arch: arch.name)
@pytest.mark.parametrize(
    ("seccomp", "sockets", "reads"),
    [(Seccomp.DEFAULT, "all", True), (Seccomp.DEFAULT, "all", False), (Seccomp.STRICT, "all", True), (Seccomp.OFF, "tcp", True)],
)
def test_libseccomp_answers_as_our_program_does(seccomp: Seccomp, sockets: Sockets, arch: Arch, reads: bool) -> None:
    """Also where an engine does not read `defaultErrnoRet`; then what libseccomp does not know has another errno, and is refused all the same."""
    filter_ = made(seccomp, False, (), sockets)
    asked = render_oci_profile(filter_)
    if not reads:
        del asked["defaultErrnoRet"]
    theirs = compiled(asked, arch)
    assert set(theirs["unknown"]) <= TOO_NEW  # type: ignore[call-overload]
    ours, other = instructions(assemble_filter(filter_, arch)), instructions(bytes.fromhex(str(theirs["program"])))
    names = {number: name for name, number in NUMBERS[arch].items()}
    unlisted = Action.ENOSYS if reads else Action.EPERM
    for number in range(600):
        name = names.get(number, "")
        if not name or name in theirs["unknown"]:  # type: ignore[operator]
            assert run(other, arch.value, number) == unlisted.value, name or number
            continue
        asked_of = arguments_of(name)
        for arguments, here, there in zip(asked_of, run_each(ours, arch.value, number, asked_of), run_each(other, arch.value, number, asked_of), strict=True):
            assert here == there, f"{name}{tuple(map(hex, arguments))}: {here:#x}, libseccomp {there:#x}"
    for foreign, number in ((0x40000003, 20), (0xC000003E, 0x40000001), (0x40000028, 20)):
        assert run(other, foreign, number) != Action.ALLOW.value


X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="numbers of x86_64")
WHO = [pytest.param("23456:23456", id="user"), pytest.param("0:0", id="root")]
PYTHON = "/usr/bin/python3"


def contained(
    engine: Engine | Podman, place: Path, seccomp: Seccomp, *words: str, user: str = "23456:23456", image: str | None = None
) -> subprocess.CompletedProcess[str]:
    """The command in a container that has the profile; `words` may begin with further options, and then have the image among them."""
    file = place / "seccomp.json"
    file.write_text(json.dumps(render_oci_profile(made(seccomp, nested=False, allow=()))))
    options = (
        "run", "--rm", "--interactive", "--network", "none", "--pull=never", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
        "--security-opt", f"seccomp={file}", "--user", user,
    )  # fmt: skip
    return engine.run(*options, *(() if image is None else (image,)), *words)


def errnos(engine: Engine | Podman, place: Path, seccomp: Seccomp, calls: list[Call], user: str) -> dict[str, int]:
    done = contained(engine, place, seccomp, PYTHON, "-c", CALLS, json.dumps(calls), user=user, image=engine.image())
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def check_calls(engine: Engine | Podman, place: Path, seccomp: Seccomp, user: str) -> None:
    """The attempts that tests/seccomp/test_seccomp_live.py makes below bwrap have the same answers."""
    beyond: list[Call] = [(f"number {number}", number, (0,) * 6) for number in NOT_YET]
    new: list[Call] = [(name, NUMBERS[ARCH][name], (0,) * 6) for name in ("statmount", "listmount", "lsm_set_self_attr", "open_tree_attr")]
    calls = [*named(), *(BY_ARGUMENT if ARCH is Arch.X86_64 else ()), *beyond, *new]
    expected = answers(made(seccomp, nested=False, allow=()), calls)
    found = errnos(engine, place, seccomp, calls, user)
    assert found == expected
    assert len(found) > 70
    assert set(found.values()) >= {0, errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT} or ARCH is not Arch.X86_64
    assert {found[label] for label, *_ in (*beyond, *new)} == {errno.ENOSYS}


@pytest.mark.needs("docker")
@pytest.mark.parametrize("user", WHO)
@pytest.mark.parametrize("seccomp", BOTH)
def test_a_container_refuses_what_a_shell_does(engine: Engine, tmp_path: Path, seccomp: Seccomp, user: str) -> None:
    check_calls(engine, tmp_path, seccomp, user)


@pytest.mark.needs("podman")
@pytest.mark.parametrize("seccomp", BOTH)
def test_a_container_of_podmans_does_as_well(podman: Podman, tmp_path: Path, seccomp: Seccomp) -> None:
    check_calls(podman, tmp_path, seccomp, "23456:23456")


@X86
@pytest.mark.needs("docker")
@pytest.mark.parametrize("seccomp", BOTH)
def test_other_architectures_end_a_container(engine: Engine, tmp_path: Path, seccomp: Seccomp) -> None:
    one = json.dumps(X32[2:3])
    for words in ((PYTHON, "-c", I386), (PYTHON, "-c", CALLS, one)):
        done = contained(engine, tmp_path, seccomp, *words, image=engine.image())
        assert (done.returncode, done.stdout) == (128 + 31, ""), done.stderr  # SIGSYS


@pytest.mark.needs("docker")
def test_nobody_types_into_the_terminal_or_takes_the_filter_off(engine: Engine, tmp_path: Path) -> None:
    typed = contained(engine, tmp_path, Seccomp.DEFAULT, PYTHON, "-c", TERMINAL.replace("NUMBER", str(NUMBERS[ARCH]["ioctl"])), image=engine.image())
    assert set(json.loads(typed.stdout).values()) == {errno.EPERM}, typed.stderr
    for name in ("keyctl", "unshare"):
        done = contained(engine, tmp_path, Seccomp.DEFAULT, PYTHON, "-c", MORE_FILTERS, str(NUMBERS[ARCH][name]), image=engine.image())
        assert done.stdout.strip() == str(errno.EPERM), done.stderr


COMMON = ("bash", "git", "python3", "node", "perl", "curl", "tmux", "docker", "tar", "go")


@pytest.mark.needs("docker")
@pytest.mark.parametrize("program", [pytest.param(name, marks=pytest.mark.needs(name)) if name in TOOLS else name for name in COMMON])
def test_an_everyday_program_runs_in_a_container(engine: Engine, tmp_path: Path, program: str) -> None:
    """The machine's own, on an image that has only some of them, and below `strict`, which lets through less than `default`."""
    command, expected = PROGRAMS[program]
    here = tuple(word for place in ("/usr", "/etc/alternatives") for word in ("--mount", f"type=bind,source={place},target={place},readonly"))
    places = ("--tmpfs", "/tmp:exec,mode=1777", "--workdir", "/tmp/home", "--tmpfs", "/tmp/home:exec,mode=1777")
    variables = {"HOME": "/tmp/home", "PATH": os.environ["PATH"], "GOCACHE": "/tmp/home/go", "GOFLAGS": "-mod=mod", "LANG": "C.UTF-8", "TERM": "xterm"}
    given = tuple(word for name, value in variables.items() for word in ("--env", f"{name}={value}"))
    done = contained(engine, tmp_path, Seccomp.STRICT, *here, *places, *given, engine.image(), "bash", "-c", command)
    assert last_line(done.stdout) == expected, done.stdout[-1000:] + done.stderr[-2000:]


@pytest.mark.needs("docker")
def test_what_is_printed_as_json_is_what_docker_is_given(engine: Engine, tmp_path: Path) -> None:
    root = project(tmp_path, MINIMAL + "sandbox: {enabled: true}\n")
    shown = call("seccomp", "explain", "--json", cwd=root)
    assert shown.status == 0, shown.stderr
    assert json.loads(shown.stdout) == render_oci_profile(made(Seccomp.DEFAULT, nested=False, allow=()))
    file = tmp_path / "printed.json"
    file.write_text(shown.stdout)
    done = engine.run("run", "--rm", "--network", "none", "--security-opt", f"seccomp={file}", engine.image("bare"), "cat", "/proc/self/status")
    assert "Seccomp:\t2\n" in done.stdout, done.stderr
