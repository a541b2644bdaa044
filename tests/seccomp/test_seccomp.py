"""What the filters decide, that their programs decide the same, and that a person can read why."""

from __future__ import annotations

import random
import re
import struct
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import pytest
from bpf_interpreter import instructions, run

from wavegen.core.errors import InvalidValueError
from wavegen.manifest.model import Seccomp
from wavegen.seccomp import LOW, UNJUDGED, Action, Arch, Condition, Filter, Rule
from wavegen.seccomp.bpf import JA, RET, TooLongError, assemble_filter, compile_filter
from wavegen.seccomp.explain import explain_filter, list_instructions
from wavegen.seccomp.filters import NAMESPACES, PERSONALITIES, Sockets, filter_of, opened_calls, refused_calls
from wavegen.seccomp.oci import partition_arguments, render_oci_profile
from wavegen.seccomp.syscalls import NAMES, NUMBERS, is_newer_call

BOTH = (Seccomp.DEFAULT, Seccomp.STRICT)
HIGH = 1 << 32
X86_64, AARCH64 = Arch.X86_64, Arch.AARCH64
HEADERS = {Arch.X86_64: "/usr/include/x86_64-linux-gnu/asm/unistd_64.h", Arch.AARCH64: "/usr/include/asm-generic/unistd.h"}


def made(seccomp: Seccomp, *, nested: bool = False, allow: tuple[str, ...] = (), sockets: Sockets = "all") -> Filter:
    found = filter_of(seccomp, nested=nested, allow=allow, sockets=sockets)
    assert found
    return found


def answers(filter_: Filter, name: str, *arguments: int) -> set[Action]:
    """Of the filter, and of its programs on each architecture that has the call; one where they agree."""
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    found = {filter_.action_for(name, padded)}
    for arch in Arch:
        if name in NUMBERS[arch]:
            found.add(Action(run(instructions(assemble_filter(filter_, arch)), arch.value, NUMBERS[arch][name], padded)))
    return found


@pytest.mark.parametrize("arch", Arch, ids=lambda arch: arch.name)
def test_the_numbers_are_those_of_this_machines_headers(arch: Arch) -> None:
    header = Path(HEADERS[arch])
    if not header.exists():
        pytest.skip(f"{header} is not there")
    text = header.read_text()
    # asm-generic names the calls with a 32-bit twin by way of __NR3264_; only the two renames of stat differ from what follows it.
    found = {name: int(number) for name, number in re.findall(r"^#define __NR(?:3264)?_(\w+) (\d+)$", text, re.MULTILINE)}
    if arch is Arch.AARCH64:
        found["newfstatat"] = found.pop("fstatat")
        numbers = {
            name: number for name, number in found.items() if not 403 <= number <= 423 and name not in ("arch_specific_syscall", "syscalls", "sync_file_range2")
        }
    else:
        numbers = found
    assert len(numbers) >= 300
    assert {name: NUMBERS[arch].get(name) for name in numbers} == numbers


def test_the_newest_numbers_are_one_on_both_architectures() -> None:
    known = {"open_tree": 428, "clone3": 435, "cachestat": 451, "map_shadow_stack": 453, "futex_requeue": 456, "statmount": 457, "listmount": 458, "mseal": 462,
             "setxattrat": 463, "removexattrat": 466, "open_tree_attr": 467, "file_getattr": 468, "file_setattr": 469}  # fmt: skip
    for arch in Arch:
        assert known.items() <= NUMBERS[arch].items()
        assert max(NUMBERS[arch].values()) == 469
        assert len(set(NUMBERS[arch].values())) == len(NUMBERS[arch])
    assert (NUMBERS[X86_64]["uretprobe"], NUMBERS[X86_64]["uprobe"], "uretprobe" in NUMBERS[AARCH64]) == (335, 336, False)
    assert (len(NUMBERS[X86_64]), len(NUMBERS[AARCH64])) == (383, 325)


def test_off_is_no_filter_and_still_reads_the_names() -> None:
    assert filter_of(Seccomp.OFF, nested=False) is None
    with pytest.raises(InvalidValueError):
        filter_of(Seccomp.OFF, nested=False, allow=("no_such_call",))


# Of `default`: the call, its arguments, the answer.
TABLE = [
    ("keyctl", (), Action.EPERM),
    ("add_key", (), Action.EPERM),
    ("bpf", (), Action.EPERM),
    ("ptrace", (), Action.EPERM),
    ("mount", (), Action.EPERM),
    ("unshare", (0x10000000,), Action.EPERM),
    ("setns", (), Action.EPERM),
    ("chroot", (), Action.EPERM),
    ("sethostname", (), Action.EPERM),
    ("open_by_handle_at", (), Action.EPERM),
    ("userfaultfd", (), Action.EPERM),
    ("adjtimex", (), Action.EPERM),
    ("modify_ldt", (), Action.EPERM),
    # Newer than Linux 5.0.
    ("io_uring_setup", (), Action.ENOSYS),
    ("clone3", (), Action.ENOSYS),
    ("open_tree", (), Action.ENOSYS),
    ("open_tree_attr", (), Action.ENOSYS),
    ("pidfd_getfd", (), Action.ENOSYS),
    ("process_madvise", (), Action.ENOSYS),
    ("memfd_secret", (), Action.ENOSYS),
    ("statmount", (), Action.ENOSYS),
    ("lsm_set_self_attr", (), Action.ENOSYS),
    # Threads, fork, and vfork as glibc asks for them; then each namespace.
    ("clone", (0x3D0F00,), Action.ALLOW),
    ("clone", (0x1200011,), Action.ALLOW),
    ("clone", (0x4111,), Action.ALLOW),
    *(("clone", (1 << bit | 17,), Action.EPERM) for bit in (17, 25, 26, 27, 28, 29, 30)),
    ("clone", (NAMESPACES | HIGH,), Action.EPERM),
    ("clone", (17 | 0x10000000 | HIGH * 77,), Action.EPERM),
    ("clone", (17 | 0x10000000 * HIGH,), Action.ALLOW),
    ("ioctl", (0, 0x5401), Action.ALLOW),
    ("ioctl", (0, 0x5413), Action.ALLOW),
    ("ioctl", (0, 0x5412), Action.EPERM),
    ("ioctl", (0, 0x541C), Action.EPERM),
    ("ioctl", (0, 0x5412 | HIGH), Action.EPERM),
    ("ioctl", (0, 0x541C | 0xDEADBEEF * HIGH), Action.EPERM),
    ("ioctl", (0x5412, 0x5401), Action.ALLOW),
    *(("personality", (value,), Action.ALLOW) for value in PERSONALITIES),
    ("personality", (0x40000,), Action.EPERM),
    ("personality", (0x400000,), Action.EPERM),
    ("personality", (0x40000 | HIGH,), Action.EPERM),
    ("personality", (0xFFFFFFFE,), Action.EPERM),
    ("personality", (HIGH * LOW | LOW,), Action.ALLOW),
]
SOCKETS = [
    ((1, 1, 0), Action.ALLOW),
    ((1, 5, 0), Action.ALLOW),
    ((2, 1, 6), Action.ALLOW),
    ((2, 0x80801, 0), Action.ALLOW),
    ((10, 2, 17), Action.ALLOW),
    ((2, 2, 1), Action.ALLOW),  # ping
    ((10, 2, 58), Action.ALLOW),
    ((2, 1, 262), Action.ALLOW),  # MPTCP
    ((16, 3, 0), Action.ALLOW),
    ((16, 0x80003, 0), Action.ALLOW),
    *(((family, 2, 0), Action.EAFNOSUPPORT) for family in range(64) if family not in (1, 2, 10, 16)),
    ((40 | HIGH, 1, 0), Action.EAFNOSUPPORT),
    ((40 | LOW * HIGH, 1, 0), Action.EAFNOSUPPORT),
    ((2 | HIGH, 1, 0), Action.ALLOW),  # the kernel sees AF_INET
    ((HIGH, 1, 0), Action.EAFNOSUPPORT),
    ((LOW, 1, 0), Action.EAFNOSUPPORT),
    *(((16, 3, protocol), Action.EAFNOSUPPORT) for protocol in (4, 6, 9, 12, 15, 16, 21)),
    ((16, 3, HIGH), Action.ALLOW),
    ((16, 3, 12 | HIGH), Action.EAFNOSUPPORT),
    ((2, 3, 1), Action.EPERM),  # SOCK_RAW
    ((10, 3, 58), Action.EPERM),
    ((2, 0x80003, 255), Action.EPERM),
    ((2, 3 | HIGH, 255), Action.EPERM),
    ((2, 10, 0x300), Action.EPERM),  # AF_INET with SOCK_PACKET is AF_PACKET
    ((2, 5, 132), Action.EPERM),
    ((2, 0x13, 1), Action.EPERM),  # a flag that the kernel does not know
    ((2, 0x11, 0), Action.ALLOW),  # the kernel refuses it
    ((2, 1, 132), Action.EAFNOSUPPORT),  # SCTP
    ((2, 1, 256), Action.EAFNOSUPPORT),  # SMC
    ((10, 2, 136), Action.EAFNOSUPPORT),
    ((2, 2, 115), Action.EAFNOSUPPORT),  # L2TP
]


@pytest.mark.parametrize("seccomp", BOTH)
@pytest.mark.parametrize(("name", "arguments", "answer"), TABLE)
def test_a_call_is_answered(seccomp: Seccomp, name: str, arguments: tuple[int, ...], answer: Action) -> None:
    assert answers(made(seccomp), name, *arguments) == {answer}


@pytest.mark.parametrize("seccomp", BOTH)
@pytest.mark.parametrize("call", ["socket", "socketpair"])
def test_a_socket_is_answered_by_family_type_and_protocol(seccomp: Seccomp, call: str) -> None:
    filter_ = made(seccomp)
    programs = [(arch, instructions(assemble_filter(filter_, arch))) for arch in Arch]
    for arguments, answer in SOCKETS:
        assert filter_.action_for(call, (*arguments, 0, 0, 0)) is answer, arguments
        for arch, blob in programs:
            assert run(blob, arch.value, NUMBERS[arch][call], arguments) == answer.value, (arch, arguments)


@pytest.mark.parametrize("seccomp", BOTH)
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("arch", Arch, ids=lambda arch: arch.name)
def test_no_number_without_a_name_is_let_through(seccomp: Seccomp, nested: bool, arch: Arch) -> None:
    blob = instructions(assemble_filter(made(seccomp, nested=nested), arch))
    named = set(NUMBERS[arch].values())
    strangers = [number for number in (*range(2000), 0x3FFFFFFF, LOW, 1 << 31, *(0x40000000 | number for number in range(600))) if number not in named]
    assert len(strangers) > 2000
    assert {run(blob, arch.value, number) for number in strangers} == {UNJUDGED.value} == {0x00050026}


@pytest.mark.parametrize("seccomp", BOTH)
def test_calls_of_other_architectures_are_unknown(seccomp: Seccomp) -> None:
    filter_ = made(seccomp)
    foreign = (0x40000003, 0x40000028, 0xC00000F3, 0xC000003E & 0x7FFFFFFF, 0)
    for arches in ((X86_64,), (AARCH64,), (X86_64, AARCH64)):
        blob = instructions(assemble_filter(filter_, *arches))
        for arch in (*foreign, *(arch.value for arch in Arch if arch not in arches)):
            assert {run(blob, arch, number) for number in range(500)} == {Action.ENOSYS.value}


@pytest.mark.parametrize("seccomp", BOTH)
@pytest.mark.parametrize("nested", [False, True])
def test_the_program_decides_as_the_filter_for_every_call_on_each_architecture(seccomp: Seccomp, nested: bool) -> None:
    filter_ = made(seccomp, nested=nested)
    together = instructions(assemble_filter(filter_, *Arch))
    for arch in Arch:
        alone = instructions(assemble_filter(filter_, arch))
        for name, number in NUMBERS[arch].items():
            for arguments in ((0,) * 6, (1, 1, 0, 0, 0, 0), (40, 0x5412, 0, 0, 0, 0), (NAMESPACES, 0x5401, 9, 0, 0, 0), (2, 3, 1, 0, 0, 0)):
                expected = filter_.action_for(name, arguments).value
                assert run(alone, arch.value, number, arguments) == run(together, arch.value, number, arguments) == expected, name


def test_strict_lets_nothing_through_that_default_refuses() -> None:
    for nested in (False, True):
        default, strict = made(Seccomp.DEFAULT, nested=nested), made(Seccomp.STRICT, nested=nested)
        for name in NAMES:
            for arguments in ((0,) * 6, (1, 1, 0, 0, 0, 0), (40, 0x5412, 0, 0, 0, 0), (NAMESPACES, 0, 0, 0, 0, 0)):
                if default.action_for(name, arguments) is not Action.ALLOW:
                    assert strict.action_for(name, arguments) is default.action_for(name, arguments), name
    refused = {name for name in NAMES if made(Seccomp.STRICT).action_for(name) is not Action.ALLOW}
    assert {"io_setup", "remap_file_pages", "vserver", "fanotify_mark"} <= refused
    assert len(NAMES) - len(refused) >= 200


def test_strict_lets_ordinary_calls_through() -> None:
    ordinary = [
        "read",
        "openat2",
        "fchmodat2",
        "faccessat2",
        "statx",
        "close_range",
        "execveat",
        "memfd_create",
        "copy_file_range",
        "getrandom",
        "membarrier",
        "pkey_alloc",
        "mseal",
        "map_shadow_stack",
        "cachestat",
        "sched_setaffinity",
        "timer_create",
        "timerfd_create",
        "signalfd4",
        "eventfd2",
        "splice",
        "tee",
        "vmsplice",
        "shmget",
        "semop",
        "msgsnd",
        "mq_open",
        "landlock_create_ruleset",
        "landlock_restrict_self",
        "seccomp",
        "prctl",
        "rseq",
        "futex",
        "futex_waitv",
        "epoll_wait",
        "inotify_add_watch",
        "pidfd_open",
        "vfork",
    ]
    strict = made(Seccomp.STRICT)
    assert {name: strict.action_for(name) for name in ordinary} == dict.fromkeys(ordinary, Action.ALLOW)


def test_every_rule_is_of_calls_that_exist_and_says_why() -> None:
    for seccomp in BOTH:
        for rule in made(seccomp).rules:
            assert set(rule.names) <= NAMES
            assert len(rule.why) > 3
        first = [name for rule in made(seccomp).rules if not rule.when for name in rule.names]
        assert len(first) == len(set(first))  # none is said twice


def test_what_is_refused_is_enosys_only_where_it_is_new() -> None:
    for name in refused_calls(nested=False):
        assert made(Seccomp.DEFAULT).action_for(name) is (Action.ENOSYS if is_newer_call(name) else Action.EPERM), name


def test_nested_lets_a_sandbox_inside_be_made() -> None:
    for seccomp in BOTH:
        filter_ = made(seccomp, nested=True)
        for name in ("unshare", "setns", "mount", "umount2", "pivot_root", "fsopen", "open_tree", "move_mount", "mount_setattr", "chroot", "sethostname"):
            assert answers(filter_, name, 0x10000000) == {Action.ALLOW}
        assert answers(filter_, "clone", NAMESPACES | 17) == {Action.ALLOW}
        assert answers(filter_, "clone3") == {Action.ENOSYS}
        assert answers(filter_, "keyctl") == {Action.EPERM}
        assert answers(filter_, "ioctl", 0, 0x5412) == {Action.EPERM}


def test_a_call_may_be_opened_by_name() -> None:
    assert answers(made(Seccomp.STRICT), "io_setup") == {Action.ENOSYS}
    assert answers(made(Seccomp.STRICT, allow=("io_setup",)), "io_setup") == {Action.ALLOW}
    for seccomp in BOTH:
        opened = made(seccomp, allow=("ptrace", "process_vm_readv", "ptrace"))
        assert answers(opened, "ptrace") == answers(opened, "process_vm_readv") == {Action.ALLOW}
        assert answers(opened, "process_vm_writev") == {Action.EPERM}
    assert made(Seccomp.DEFAULT, allow=("io_setup", "ptrace")) == made(Seccomp.DEFAULT, allow=("ptrace", "io_setup"))


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("clone", "clone cannot be let through as a whole"),
        ("ioctl", "ioctl cannot be let through as a whole"),
        ("socket", "socket cannot be let through as a whole"),
        ("socketpair", "socketpair cannot be let through as a whole"),
        ("personality", "personality cannot be let through as a whole"),
        ("clone3", "clone3 cannot be let through"),
        ("TIOCSTI", "'TIOCSTI' is not a system call"),
        ("", "'' is not a system call"),
        ("Read", "'Read' is not a system call"),
    ],
)
def test_a_name_that_opens_too_much_or_nothing_is_refused(name: str, what: str) -> None:
    for attempt in (lambda: opened_calls((name,)), lambda: filter_of(Seccomp.DEFAULT, nested=True, allow=("read", name))):
        with pytest.raises(InvalidValueError) as raised:
            attempt()
        assert raised.value.what == what
        assert raised.value.hint


def test_a_condition_that_could_never_hold_cannot_be_made() -> None:
    for broken in (
        {"argument": 6, "values": (1,)},
        {"argument": 0, "values": ()},
        {"argument": 0, "values": (HIGH,)},
        {"argument": 0, "values": (2,), "mask": 1},
    ):
        with pytest.raises(ValueError, match="not a condition"):
            Condition(**broken)


def test_programs_are_short_and_the_same_each_time() -> None:
    for seccomp in BOTH:
        for nested in (False, True):
            for arches in ((X86_64,), (AARCH64,), (X86_64, AARCH64)):
                first = assemble_filter(made(seccomp, nested=nested), *arches)
                assert first == assemble_filter(made(seccomp, nested=nested), *arches)
                assert 8 * 60 * len(arches) < len(first) <= 8 * 150 * len(arches)
    assert len({assemble_filter(made(seccomp, nested=nested), arch) for seccomp in BOTH for nested in (False, True) for arch in Arch}) == 8


def test_jumps_reach_in_a_program_of_thousands() -> None:
    """Every second call has a list of its own, so most jumps are further than 255."""
    rules = tuple(
        Rule(
            names=(name,),
            action=(Action.EPERM, Action.ENOSYS)[number % 2],
            why="test",
            when=(Condition(argument=number % 6, values=tuple(range(number, number + 7))),),
        )
        for name, number in NUMBERS[X86_64].items()
    )
    filter_ = Filter(name="long", default=Action.EAFNOSUPPORT, rules=rules)
    blob = instructions(assemble_filter(filter_, X86_64))
    assert 3000 < len(blob) <= 4096
    assert {JA, RET} <= {code for code, *_ in blob}
    for name, number in NUMBERS[X86_64].items():
        for value in (number, number + 6, number + 7, max(number, 1) - 1, (number + 4) | HIGH):
            arguments = tuple(value if index == number % 6 else 0xABCDEF for index in range(6))
            assert run(blob, X86_64.value, number, arguments) == filter_.action_for(name, arguments).value, name
    with pytest.raises(TooLongError, match="the kernel takes 4096"):
        compile_filter(filter_, *Arch)


def any_filter(seed: int) -> Filter:
    dice = random.Random(seed)
    names = sorted(NAMES)

    def condition() -> Condition:
        mask = dice.choice((LOW, LOW, 0xFF, 0x7E020000, 1 << dice.randrange(32)))
        values = {dice.choice((dice.getrandbits(32), dice.randrange(64), LOW)) & mask for _ in range(dice.choice((1, 2, 5, 60)))}
        return Condition(argument=dice.randrange(6), values=tuple(sorted(values)), mask=mask, other=dice.random() < 0.4)

    def one() -> Rule:
        when = tuple(condition() for _ in range(dice.choice((0, 1, 1, 2, 3))))
        return Rule(names=tuple(dice.sample(names, dice.choice((1, 2, 9, 20)))), action=dice.choice(list(Action)), why="test", when=when)

    return Filter(name=str(seed), default=dice.choice(list(Action)), rules=tuple(one() for _ in range(dice.randrange(1, 12))))


@pytest.mark.parametrize("seeds", [range(start, start + 40) for start in range(0, 160, 40)], ids=str)
def test_the_program_of_any_filter_decides_as_the_filter(seeds: range) -> None:
    far = 0
    for seed in seeds:
        filter_, dice = any_filter(seed), random.Random(seed)
        blob = instructions(assemble_filter(filter_, *Arch))
        far += JA in {code for code, *_ in blob}
        interesting = sorted({value for rule in filter_.rules for condition in rule.when for value in condition.values} | {0, LOW})
        for name in {name for rule in filter_.rules for name in rule.names} | {"read", "openat"}:
            for arch in Arch:
                if name in NUMBERS[arch]:
                    arguments = tuple(dice.choice(interesting) | dice.choice((0, HIGH, LOW * HIGH)) for _ in range(6))
                    assert run(blob, arch.value, NUMBERS[arch][name], arguments) == filter_.action_for(name, arguments).value, (seed, name, arguments)
    assert far > 5


def test_no_length_of_a_rule_is_just_out_of_reach() -> None:
    """What a conditional jump reaches is 255: every distance around it is made once."""
    other = Rule(names=("close", "mmap"), action=Action.EAFNOSUPPORT, why="test", when=(Condition(argument=1, values=(7, 9), other=True),))
    for values in range(1, 520):
        rule = Rule(names=("read", "openat"), action=Action.EPERM, why="test", when=(Condition(argument=0, values=tuple(range(values))),))
        filter_ = Filter(name="x", default=Action.ALLOW, rules=(rule, other))
        blob = instructions(assemble_filter(filter_, *Arch))
        for arch, name, arguments in product(Arch, ("read", "openat", "close", "mmap", "write", "getpid"), ((0, 7), (values - 1, 9), (values, 8))):
            padded = (*arguments, 0, 0, 0, 0)
            assert run(blob, arch.value, NUMBERS[arch][name], padded) == filter_.action_for(name, padded).value, (values, arch, name, arguments)


def test_a_filter_without_a_rule_is_a_program_too() -> None:
    for default in Action:
        bare = Filter(name="bare", default=default, rules=())
        blob = instructions(assemble_filter(bare, *Arch))
        for arch in Arch:
            assert run(blob, arch.value, NUMBERS[arch]["read"]) == default.value
            assert run(blob, arch.value, 5000) == UNJUDGED.value
        assert run(blob, 0x40000003, 0) == UNJUDGED.value


def test_every_jump_goes_on_and_the_program_ends() -> None:
    for seccomp in BOTH:
        for place, it in enumerate(found := compile_filter(made(seccomp), *Arch)):
            assert it.value <= LOW
            assert max(it.true, it.false) + place + 1 < len(found) or it.code in (RET, 0x20, 0x54)
        assert found[-1].code == RET
        assert assemble_filter(made(seccomp), *Arch) == b"".join(struct.pack("<HBBI", it.code, it.true, it.false, it.value) for it in found)


SCHEDULING = ("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity")


@pytest.mark.parametrize("seccomp", BOTH)
def test_the_first_process_cannot_be_starved(seccomp: Seccomp) -> None:
    for name in SCHEDULING:
        answers = [made(seccomp).action_for(name, (pid, 0, 0, 0, 0, 0)) for pid in (0, 1, 1 << 32 | 1, 2, 4711)]
        assert answers == [Action.ALLOW, Action.EPERM, Action.EPERM, Action.ALLOW, Action.ALLOW]
    for name in ("setpriority", "ioprio_set"):
        assert [made(seccomp).action_for(name, (0, pid, 5, 0, 0, 0)) for pid in (0, 1, 7)] == [Action.ALLOW, Action.EPERM, Action.ALLOW]


def test_the_parts_of_a_rule_do_not_overlap_and_leave_nothing_out() -> None:
    for seccomp in BOTH:
        filter_ = made(seccomp)
        cut = list(partition_arguments(filter_.rules_about("socket"), filter_.default))
        for arguments in [arguments for arguments, _ in SOCKETS] + [
            (family, kind, protocol) for family in range(20) for kind in range(8) for protocol in range(9)
        ]:
            found = [action for action, part in cut if all(arguments[at] & mask == value for at, (mask, value) in part.items())]
            assert found == [filter_.action_for("socket", (*arguments, 0, 0, 0))], arguments


def test_two_conditions_for_one_argument_are_no_profile() -> None:
    twice = (Condition(argument=0, values=(1,)), Condition(argument=0, values=(2,), other=True))
    broken = Filter(name="x", default=Action.ALLOW, rules=(Rule(names=("read",), action=Action.EPERM, why="test", when=twice),))
    with pytest.raises(ValueError, match="one condition for an argument"):
        render_oci_profile(broken)


def test_a_filter_is_explained_call_by_call() -> None:
    for arch, number in ((X86_64, 250), (AARCH64, 219)):
        told = list(explain_filter(made(Seccomp.DEFAULT), arch))
        assert told[0] == f"filter default for {arch.name.lower()}: {len(compile_filter(made(Seccomp.DEFAULT), arch))} instructions"
        assert "calls without a rule: let through" in told
        assert any("above 469" in line and line.endswith("ENOSYS") for line in told[:4])
        assert f"{number:4} keyctl: EPERM (keyrings are the user's, whatever the namespaces: Kerberos tickets, keys of file systems)" in told
        assert any(line.endswith("(makes namespaces, as unshare does)") and "arg0 & 0x7e020000 not in {0x0}" in line for line in told)
        assert any(" ioctl: EPERM if arg1 in {0x5412, 0x541c} (" in line for line in told)
        assert not any(" uselib: " in line for line in told) or arch is X86_64
        assert any(
            line.endswith(" io_setup: let through (the manifest's seccomp_allow)") for line in explain_filter(made(Seccomp.STRICT, allow=("io_setup",)), arch)
        )
        assert len([line for line in explain_filter(made(Seccomp.STRICT, allow=("read",)), arch) if " read: " in line]) == 1


def test_the_listing_has_every_instruction_and_its_targets() -> None:
    found = compile_filter(made(Seccomp.DEFAULT), X86_64)
    told = list(list_instructions(found))
    assert len(told) == len(found)
    assert told[0] == "   0  ld   arch"
    assert told[1] == f"   1  jeq  0xc000003e 2 {len(found) - 1}"
    assert told[-1].endswith("ret  ENOSYS")
    assert any(line.endswith("and  0x7e020000") for line in told)
    for line in told:
        if target := re.search(r"j(?:eq|ge)  0x[0-9a-f]+ (\d+) (\d+)$", line):
            assert int(line[:4]) < min(int(target[1]), int(target[2]))
            assert max(int(target[1]), int(target[2])) < len(found)
    far = [replace(found[0], code=JA, value=4)]
    assert next(list_instructions(far)) == "   0  ja   5"
    assert all(int(one[:4]) + 1 == int(other[:4]) for one, other in pairwise(told))


# --- sockets, where no network namespace is around the command

UNIX, INET, INET6, NETLINK, PACKET, VSOCK, SMC = 1, 2, 10, 16, 17, 40, 43
STREAM, DGRAM, RAW, SEQPACKET, CLOEXEC = 1, 2, 3, 5, 0o2000000
TCP_ALONE = [
    *((family, STREAM | flags, protocol) for family in (INET, INET6) for flags in (0, CLOEXEC) for protocol in (0, 6)),
]
NOT_TCP = [
    *((family, kind, protocol) for family in (INET, INET6) for kind, protocol in ((DGRAM, 0), (DGRAM | CLOEXEC, 17), (DGRAM, 1), (RAW, 6), (SEQPACKET, 132))),
    *((family, STREAM, protocol) for family in (INET, INET6) for protocol in (132, 256, 262)),
    (PACKET, RAW, 0),
    (VSOCK, STREAM, 0),
    (SMC, STREAM, 0),
    (NETLINK, RAW, 12),
]
LOCAL = [(UNIX, STREAM, 0), (UNIX, DGRAM, 0), (NETLINK, RAW, 0)]


@pytest.mark.parametrize("seccomp", Seccomp)
@pytest.mark.parametrize("name", ["socket", "socketpair"])
def test_bounded_sockets_are_tcp_alone_or_none(seccomp: Seccomp, name: str) -> None:
    tcp, none = made(seccomp, sockets="tcp"), made(seccomp, sockets="none")
    for arguments in LOCAL:
        assert answers(tcp, name, *arguments) == answers(none, name, *arguments) == {Action.ALLOW}
    for arguments in TCP_ALONE:
        assert answers(tcp, name, *arguments) == {Action.ALLOW}, arguments
        assert answers(none, name, *arguments) == {Action.EAFNOSUPPORT}, arguments
    for family, kind, protocol in NOT_TCP:
        for high in (0, HIGH):
            assert len(found := answers(tcp, name, family | high, kind | high, protocol | high)) == 1
            assert found <= {Action.EPERM, Action.EAFNOSUPPORT}, (family, kind, protocol)
            assert answers(none, name, family | high, kind | high, protocol | high) == {Action.EAFNOSUPPORT}


def test_bounded_sockets_change_nothing_else_and_are_held_without_a_filter() -> None:
    for seccomp in BOTH:
        for sockets in ("tcp", "none"):
            bounded, usual = made(seccomp, sockets=sockets), made(seccomp)
            assert bounded.name == f"{seccomp.value}-{sockets}-sockets"
            assert all(bounded.rules_about(name) == usual.rules_about(name) for name in NAMES if name not in ("socket", "socketpair"))
    off = made(Seccomp.OFF, sockets="tcp")
    assert (off.name, answers(off, "io_uring_setup"), answers(off, "mount")) == ("off-tcp-sockets", {Action.ENOSYS}, {Action.ALLOW})
