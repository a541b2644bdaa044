"""libseccomp decides as the filters say: over every number, and over the arguments that a rule is about."""

from __future__ import annotations

import json
import random
import subprocess
from functools import cache
from itertools import product

import pytest
from bpf_interpreter import instructions, run, run_each

from wavegen.manifest.model import Seccomp
from wavegen.seccomp import UNJUDGED, Action, Arch, Filter
from wavegen.seccomp.bpf import assemble_filter
from wavegen.seccomp.filters import Sockets, filter_of
from wavegen.seccomp.oci import render_oci_profile
from wavegen.seccomp.syscalls import NUMBERS

pytestmark = pytest.mark.needs("seccomp")

# As runc does it: a name is resolved and, where libseccomp does not know it, left out; a rule with the default's answer is left out too.
LIBSECCOMP = r"""
import json, sys, tempfile
import seccomp
asked = json.load(sys.stdin)
profile, arch = asked["profile"], getattr(seccomp.Arch, asked["arch"])
def action(kind, number):
    return seccomp.ALLOW if kind == "SCMP_ACT_ALLOW" else seccomp.ERRNO(number)
default = action(profile["defaultAction"], profile.get("defaultErrnoRet", 1))
built = seccomp.SyscallFilter(default)
if arch & 0xFFFFFFFF != seccomp.system_arch() & 0xFFFFFFFF:
    built.add_arch(arch)
    built.remove_arch(seccomp.Arch.NATIVE)
unknown = []
for entry in profile["syscalls"]:
    for name in entry["names"]:
        number = seccomp.resolve_syscall(arch, name)
        if number == -1:
            unknown.append(name)
        answer = action(entry["action"], entry.get("errnoRet", 1))
        if number < 0 or answer == default:
            continue
        args = [seccomp.Arg(it["index"], seccomp.MASKED_EQ, it["value"], it["valueTwo"]) for it in entry.get("args", [])]
        assert all(it["op"] == "SCMP_CMP_MASKED_EQ" for it in entry.get("args", []))
        built.add_rule(answer, name, *args)
with tempfile.TemporaryFile() as out:
    built.export_bpf(out)
    out.seek(0)
    program = out.read()
names = {name: seccomp.resolve_syscall(arch, name) for name in asked["names"]}
json.dump({"program": program.hex(), "unknown": sorted(set(unknown)), "names": names}, sys.stdout)
"""
# Debian 12's libseccomp, 2.5.4, is of 2022. A newer one knows more of them.
TOO_NEW = {
    "cachestat", "fchmodat2", "file_getattr", "file_setattr", "futex_requeue", "futex_wait", "futex_wake", "getxattrat", "listmount", "listxattrat",
    "lsm_get_self_attr", "lsm_list_modules", "lsm_set_self_attr", "map_shadow_stack", "mseal", "open_tree_attr", "removexattrat", "setxattrat",
    "statmount", "uprobe", "uretprobe",
}  # fmt: skip

BOUNDED: tuple[Sockets, ...] = ("tcp", "none")
FILTERS: list[tuple[Seccomp, bool, tuple[str, ...], Sockets]] = [
    (seccomp, nested, allow, "all") for seccomp in (Seccomp.DEFAULT, Seccomp.STRICT) for nested in (False, True) for allow in ((), ("io_setup", "ptrace"))
]
FILTERS += [(seccomp, False, (), sockets) for seccomp in Seccomp for sockets in BOUNDED]
HIGH = 1 << 32
INTERESTING = (0, 1, 2, 3, 8, 10, 16, 17, 40, 0x5412, 0x541C, 0x20000, 0x20008, 0x10000000, 0x20000000, 0x7E020000, 0xFFFFFFFF)


def made(seccomp: Seccomp, nested: bool, allow: tuple[str, ...], sockets: Sockets = "all") -> Filter:
    found = filter_of(seccomp, nested=nested, allow=allow, sockets=sockets)
    assert found
    return found


@cache
def libseccomp(seccomp: Seccomp, nested: bool, allow: tuple[str, ...], arch: Arch, sockets: Sockets = "all") -> dict[str, object]:
    return compiled(render_oci_profile(made(seccomp, nested, allow, sockets)), arch)


def compiled(profile: dict[str, object], arch: Arch) -> dict[str, object]:
    """The program that libseccomp makes of a profile, the names in it that it does not know, and its numbers of ours."""
    asked = {"profile": profile, "arch": arch.name, "names": sorted(NUMBERS[arch])}
    done = subprocess.run(("/usr/bin/python3", "-c", LIBSECCOMP), input=json.dumps(asked), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def arguments_of(name: str) -> list[tuple[int, ...]]:
    """What is worth asking a rule: everything it names, all around it, and the same with a high bit."""
    dice, odd = random.Random(name), 20
    low: list[tuple[int, ...]]
    if name in ("socket", "socketpair"):
        families = (0, 1, 2, 3, 9, 10, 11, 15, 16, 17, 26, 38, 40, 43, 255, 0x10001, 0x80000002, 0xFFFFFFFF)
        low = list(product(families, (0, 1, 2, 3, 5, 10, 0x80001, 0x80003), (0, 1, 6, 12, 58, 132, 262)))
    elif name == "clone":
        low = [(1 << bit | extra,) for bit in range(32) for extra in (0, 17, 0x3D0F00)] + [(17,), (0x7E020011,), (0x3D0F00,)]
    elif name == "ioctl":
        low = [(0, value) for value in (0x5412, 0x541C, 0x5413, 0x5411, 0x541D, 0x5401, 0, 0xFFFFFFFF, *(0x5412 ^ 1 << bit for bit in range(32)))]
    elif name == "personality":
        low = [(value,) for value in (*range(64), 0x20000, 0x20008, 0x20009, 0x40000, 0x400000, 0xFFFFFFFF, 0xFFFFFFFE, *(1 << bit for bit in range(32)))]
    else:
        # No rule asks for an argument of these: a few show that none does.
        low, odd = [(value,) * 6 for value in INTERESTING[:4]], 5
    low += [tuple(dice.choice(INTERESTING) for _ in range(6)) for _ in range(odd)]
    high = [tuple(value | dice.getrandbits(31) << 33 | HIGH for value in values) for values in low]
    return low + high


@pytest.mark.parametrize("arch", Arch, ids=lambda arch: arch.name)
@pytest.mark.parametrize(("seccomp", "nested", "allow", "sockets"), FILTERS)
def test_libseccomp_answers_every_number_as_our_program_does(seccomp: Seccomp, nested: bool, allow: tuple[str, ...], sockets: Sockets, arch: Arch) -> None:
    theirs = libseccomp(seccomp, nested, allow, arch, sockets)
    filter_ = made(seccomp, nested, allow, sockets)
    ours, other = instructions(assemble_filter(filter_, arch)), instructions(bytes.fromhex(str(theirs["program"])))
    names = {number: name for name, number in NUMBERS[arch].items()}
    skipped = compared = 0
    for number in range(600):
        name = names.get(number, "")
        if name in theirs["unknown"] or (not name and filter_.default is Action.ALLOW):
            skipped += 1  # a profile is of names; that they are the few that are known to be new is the next test
            continue
        asked = arguments_of(name)
        for arguments, here, there in zip(asked, run_each(ours, arch.value, number, asked), run_each(other, arch.value, number, asked), strict=True):
            assert here == there, f"{name or number}{tuple(map(hex, arguments))}: {here:#x}, libseccomp {there:#x}"
            compared += 1
    assert compared > 10_000
    assert skipped <= (300 if filter_.default is Action.ALLOW else len(TOO_NEW))


@pytest.mark.parametrize("arch", Arch, ids=lambda arch: arch.name)
@pytest.mark.parametrize("seccomp", [Seccomp.DEFAULT, Seccomp.STRICT])
def test_what_libseccomp_does_not_know_is_new(seccomp: Seccomp, arch: Arch) -> None:
    assert set(libseccomp(seccomp, False, (), arch)["unknown"]) <= TOO_NEW


@pytest.mark.parametrize("arch", Arch, ids=lambda arch: arch.name)
def test_our_numbers_are_libseccomps(arch: Arch) -> None:
    theirs = libseccomp(Seccomp.DEFAULT, False, (), arch)["names"]
    known = {name: number for name, number in theirs.items() if number != -1}
    assert known.items() <= NUMBERS[arch].items(), sorted(known.items() - NUMBERS[arch].items())
    assert set(NUMBERS[arch]) - set(known) <= TOO_NEW
    assert len(known) >= 300


# By hand, so that a name lost from the filter is missed here.
REFUSED_BY_DEFAULT = """
keyctl add_key request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register kexec_load kexec_file_load init_module
finit_module delete_module create_module query_module get_kernel_syms nfsservctl uselib _sysctl sysfs ustat mount umount2 pivot_root fsopen fsconfig
fsmount fspick move_mount open_tree mount_setattr open_tree_attr setns unshare clone3 swapon swapoff reboot acct quotactl quotactl_fd syslog
open_by_handle_at name_to_handle_at ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise iopl ioperm clock_settime settimeofday
clock_adjtime adjtimex move_pages migrate_pages mbind set_mempolicy set_mempolicy_home_node fanotify_init lookup_dcookie vhangup modify_ldt memfd_secret
chroot sethostname setdomainname statmount listmount lsm_set_self_attr
"""
FAR_REFUSALS = r"""
import json, sys, tempfile
import seccomp
asked = json.load(sys.stdin)
arch = getattr(seccomp.Arch, asked["arch"])
built = seccomp.SyscallFilter(seccomp.ALLOW)
if arch & 0xFFFFFFFF != seccomp.system_arch() & 0xFFFFFFFF:
    built.add_arch(arch)
    built.remove_arch(seccomp.Arch.NATIVE)
low = 0xFFFFFFFF
for name in asked["refused"]:
    number = seccomp.resolve_syscall(arch, name)
    if number >= 0:
        built.add_rule(seccomp.ERRNO(38 if number >= 424 else 1), name)
for bit in (17, 25, 26, 27, 28, 29, 30):
    built.add_rule(seccomp.ERRNO(1), "clone", seccomp.Arg(0, seccomp.MASKED_EQ, 1 << bit, 1 << bit))
for request in (0x5412, 0x541C):
    built.add_rule(seccomp.ERRNO(1), "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, low, request))
with tempfile.TemporaryFile() as out:
    built.export_bpf(out)
    out.seek(0)
    json.dump(out.read().hex(), sys.stdout)
"""


ABOUT_PID_1 = ("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity", "setpriority", "ioprio_set")


@pytest.mark.parametrize("arch", Arch, ids=lambda arch: arch.name)
def test_default_refuses_what_a_list_written_by_hand_does(arch: Arch) -> None:
    asked = json.dumps({"arch": arch.name, "refused": REFUSED_BY_DEFAULT.split()})
    done = subprocess.run(("/usr/bin/python3", "-c", FAR_REFUSALS), input=asked, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = instructions(bytes.fromhex(json.loads(done.stdout)))
    ours = instructions(assemble_filter(made(Seccomp.DEFAULT, False, ()), arch))
    for name, number in NUMBERS[arch].items():
        if name in TOO_NEW or name in ("socket", "socketpair", "personality") or name in ABOUT_PID_1:
            continue
        for arguments in arguments_of(name):
            assert run(ours, arch.value, number, arguments) == run(theirs, arch.value, number, arguments), (name, arguments)


@pytest.mark.parametrize("seccomp", [Seccomp.DEFAULT, Seccomp.STRICT])
def test_libseccomp_lets_no_other_architecture_through_either(seccomp: Seccomp) -> None:
    """The profile's difference: it ends the caller."""
    program = instructions(bytes.fromhex(str(libseccomp(seccomp, False, (), Arch.X86_64)["program"])))
    ours = instructions(assemble_filter(made(seccomp, False, ()), Arch.X86_64))
    for arch, number in ((0x40000003, 20), (0xC000003E, 0x40000001), (Arch.AARCH64.value, 0), (0x40000028, 20)):
        assert run(program, arch, number) != Action.ALLOW.value
        assert run(ours, arch, number) == UNJUDGED.value
