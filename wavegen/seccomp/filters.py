"""Which system calls a fenced shell may make: the two filters of `seccomp:` as values, each rule with its reason.

`default` refuses what reaches past a fence or what only the machine's owner needs; `strict` also answers ENOSYS to whatever ordinary
programs do without. What `default` refuses, `strict` refuses the same way.

A call refused is EPERM, as a kernel says it to whoever lacks the right. One that came after Linux 5.0 is ENOSYS: programs have a way
without it, and take that way only for ENOSYS (moby/moby#42680 for clone3, #43595 for close_range).

What no rule here stops, because it is no call of its own: writing to /proc/PID/mem of a process of the same user, which the PID
namespace confines; TIOCSETD and TCP_ULP, which load a module for a terminal or a connection of one's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Literal

from wavegen.core.errors import InvalidValueError
from wavegen.manifest.model import Seccomp
from wavegen.seccomp import Action, Condition, Filter, Rule
from wavegen.seccomp.syscalls import NAMES, is_newer_call

TIOCSTI, TIOCLINUX = 0x5412, 0x541C
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
FAMILIES = (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)
NETLINK_ROUTE = 0
SOCK_STREAM, SOCK_DGRAM, _SOCK_TYPE_MASK = 1, 2, 0xF
# IP itself (the family's usual one), ICMP, TCP, UDP, ICMPv6, and MPTCP, which Go's servers ask for since 1.24.
PROTOCOLS = (0, 1, 6, 17, 58, 262)
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. CLONE_NEWTIME is in clone's signal bits, so clone cannot ask for it.
NAMESPACES = 0x7E020000
# What the call answers without changing anything, Linux, 32 bits, uname 2.6, and both: Docker's list. Left out: READ_IMPLIES_EXEC,
# ADDR_NO_RANDOMIZE, ADDR_COMPAT_LAYOUT, MMAP_PAGE_ZERO, which make an exploit easier.
PERSONALITIES = (0x0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)

# (calls, why they are refused)
_REFUSED = (
    ("keyctl add_key request_key", "keyrings are the user's, whatever the namespaces: Kerberos tickets, keys of file systems"),
    ("bpf perf_event_open userfaultfd", "the kernel's parts that most privilege escalations start from"),
    ("io_uring_setup io_uring_enter io_uring_register", "opens files and sockets without a system call that a filter could see"),
    ("kexec_load kexec_file_load init_module finit_module delete_module", "replaces or extends the kernel"),
    ("create_module query_module get_kernel_syms nfsservctl uselib _sysctl sysfs ustat", "no kernel of today has it, or no program needs it"),
    ("swapon swapoff reboot acct quotactl quotactl_fd syslog vhangup", "runs the machine, which is its owner's"),
    ("open_by_handle_at name_to_handle_at", "opens files by number, past every mount"),
    ("ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise", "reaches into other processes"),
    ("iopl ioperm modify_ldt", "hardware and segments, for emulators of old machines"),
    ("clock_settime settimeofday clock_adjtime adjtimex", "the clock is the machine's"),
    ("move_pages migrate_pages mbind set_mempolicy set_mempolicy_home_node", "memory placement: helps exploits more than programs"),
    ("fanotify_init lookup_dcookie", "watches the whole machine"),
    ("memfd_secret", "memory that nobody can inspect, and that stops hibernation"),
    ("lsm_set_self_attr", "changes the label that the machine's policy goes by"),
)
# What a sandbox inside the fence is made of; `nested` lets all of it through.
_NESTED = (
    ("mount umount2 pivot_root fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr open_tree_attr", "mounts are what the fence is made of"),
    ("statmount listmount", "tells how the fence is made"),
    ("unshare setns", "a new user namespace is root to the kernel's parts that only root reached before"),
    ("chroot", "needs the rights of a new user namespace"),
    ("sethostname setdomainname", "names the machine"),
)
# (calls, why) where sockets are bounded and no filter is asked for: what makes sockets past this one.
_PAST_SOCKETS = (("io_uring_setup io_uring_enter io_uring_register", "makes sockets without a system call that a filter could see"),)
_CLONE3 = Rule(names=("clone3",), action=Action.ENOSYS, why="its flags are in memory, where no filter sees them; programs fall back to clone")
_CLONE = Rule(
    names=("clone",),
    action=Action.EPERM,
    why="makes namespaces, as unshare does",
    when=(Condition(argument=0, values=(0,), mask=NAMESPACES, other=True),),
)
_INET = Condition(argument=0, values=(AF_INET, AF_INET6))
_BY_ARGUMENT = (
    Rule(
        names=("ioctl",),
        action=Action.EPERM,
        why="TIOCSTI and TIOCLINUX type into the terminal that is shared with the host (CVE-2017-5226)",
        when=(Condition(argument=1, values=(TIOCSTI, TIOCLINUX)),),
    ),
    Rule(
        names=("sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity"),
        action=Action.EPERM,
        why="the first process ends the others; starved of the processor it would not (pid_namespaces(7))",
        when=(Condition(argument=0, values=(1,)),),
    ),
    Rule(
        names=("setpriority", "ioprio_set"),
        action=Action.EPERM,
        why="the first process ends the others; starved of the processor it would not (pid_namespaces(7))",
        when=(Condition(argument=1, values=(1,)),),
    ),
    Rule(
        names=("personality",),
        action=Action.EPERM,
        why="turns off what the kernel does against exploits",
        when=(Condition(argument=0, values=PERSONALITIES, other=True),),
    ),
    # socketpair makes both sockets before it finds that only AF_UNIX has pairs, so the same rules are for both.
    Rule(
        names=("socket", "socketpair"),
        action=Action.EAFNOSUPPORT,
        why="AF_VSOCK leads to the hypervisor past every network namespace; the other families are code that few look at",
        when=(Condition(argument=0, values=FAMILIES, other=True),),
    ),
    Rule(
        names=("socket", "socketpair"),
        action=Action.EAFNOSUPPORT,
        why="getaddrinfo and `ip` need NETLINK_ROUTE; the others (firewall, IPsec, audit) are the machine's",
        when=(Condition(argument=0, values=(AF_NETLINK,)), Condition(argument=2, values=(NETLINK_ROUTE,), other=True)),
    ),
    # AF_INET with SOCK_PACKET is AF_PACKET by another name (net/socket.c, __sock_create), and SOCK_SEQPACKET is SCTP.
    Rule(
        names=("socket", "socketpair"),
        action=Action.EPERM,
        why="of Internet sockets only streams and datagrams: raw ones forge packets",
        when=(_INET, Condition(argument=1, values=(SOCK_STREAM, SOCK_DGRAM), mask=_SOCK_TYPE_MASK, other=True)),
    ),
    # The type once more, so that no two of these rules speak of the same arguments: an OCI profile has no order.
    Rule(
        names=("socket", "socketpair"),
        action=Action.EAFNOSUPPORT,
        why="DCCP, SCTP, L2TP and SMC over IP: the kernel loads a module for whoever asks",
        when=(
            _INET,
            Condition(argument=1, values=(SOCK_STREAM, SOCK_DGRAM), mask=_SOCK_TYPE_MASK),
            Condition(argument=2, values=PROTOCOLS, other=True),
        ),
    ),
)


def _socket_rule(action: Action, why: str, *when: Condition) -> Rule:
    return Rule(names=("socket", "socketpair"), action=action, why=why, when=when)


Sockets = Literal["all", "tcp", "none"]
# In the place of the rules above that are about sockets, where no network namespace is around the command. Their conditions exclude
# each other, as those do.
_ROUTES = _socket_rule(
    Action.EAFNOSUPPORT,
    "getaddrinfo and `ip` need NETLINK_ROUTE; the others (firewall, IPsec, audit) are the machine's",
    Condition(argument=0, values=(AF_NETLINK,)),
    Condition(argument=2, values=(NETLINK_ROUTE,), other=True),
)
_BY_SOCKETS: dict[Sockets, tuple[Rule, ...]] = {
    "all": (),
    "tcp": (
        _socket_rule(
            Action.EAFNOSUPPORT,
            "AF_VSOCK leads to the hypervisor past every network; the other families are code that few look at",
            Condition(argument=0, values=FAMILIES, other=True),
        ),
        _ROUTES,
        _socket_rule(
            Action.EPERM,
            "only TCP goes by Landlock's ports and the proxies: UDP, as of DNS, would reach anybody",
            _INET,
            Condition(argument=1, values=(SOCK_STREAM,), mask=_SOCK_TYPE_MASK, other=True),
        ),
        _socket_rule(
            Action.EAFNOSUPPORT,
            "MPTCP, SCTP and SMC are not TCP to Landlock",
            _INET,
            Condition(argument=1, values=(SOCK_STREAM,), mask=_SOCK_TYPE_MASK),
            Condition(argument=2, values=(0, 6), other=True),
        ),
    ),
    "none": (
        _socket_rule(Action.EAFNOSUPPORT, "there is no network", Condition(argument=0, values=(AF_UNIX, AF_NETLINK), other=True)),
        _ROUTES,
    ),
}

# (calls, what for) of the strict filter. Left out, next to what `default` refuses:
#   io_setup io_submit io_getevents io_cancel io_destroy io_pgetevents: databases with O_DIRECT use libaio and do without it on ENOSYS;
#     like io_uring, it reads and writes by a way of its own.
#   fanotify_mark, remap_file_pages, process_mrelease, lsm_get_self_attr, lsm_list_modules, set_thread_area, get_thread_area and the
#     calls that only hold a number (vserver, tuxcall, ...): no ordinary program was seen to make them.
_ALLOWED = (
    ("read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile copy_file_range splice tee vmsplice", "reading and writing"),
    ("open openat openat2 creat close close_range dup dup2 dup3 fcntl flock ioctl pipe pipe2", "descriptors"),
    ("stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat statfs fstatfs getdents getdents64 getcwd", "looking at files"),
    ("chdir fchdir umask mkdir mkdirat rmdir unlink unlinkat rename renameat renameat2 link linkat symlink symlinkat mknod mknodat", "changing directories"),
    ("chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat file_getattr file_setattr", "changing files"),
    ("truncate ftruncate fallocate fadvise64 readahead cachestat sync syncfs fsync fdatasync sync_file_range", "contents and the disk"),
    ("getxattr lgetxattr fgetxattr getxattrat setxattr lsetxattr fsetxattr setxattrat", "extended attributes"),
    ("listxattr llistxattr flistxattr listxattrat removexattr lremovexattr fremovexattr removexattrat", "extended attributes"),
    ("mmap munmap mremap mprotect msync madvise mincore brk mlock mlock2 mlockall munlock munlockall memfd_create mseal membarrier", "memory"),
    ("pkey_alloc pkey_free pkey_mprotect map_shadow_stack get_mempolicy", "memory"),
    ("clone fork vfork execve execveat exit exit_group wait4 waitid getpid getppid gettid pidfd_open arch_prctl prctl", "processes"),
    ("set_tid_address set_robust_list get_robust_list rseq futex futex_waitv futex_wait futex_wake futex_requeue uretprobe uprobe", "threads"),
    ("getpgid setpgid getpgrp getsid setsid getpriority setpriority ioprio_get ioprio_set personality", "processes"),
    ("getrlimit setrlimit prlimit64 getrusage times sysinfo uname getcpu getrandom", "limits and facts"),
    ("sched_yield sched_getaffinity sched_setaffinity sched_getattr sched_setattr sched_getparam sched_setparam sched_getscheduler", "scheduling"),
    ("sched_setscheduler sched_get_priority_max sched_get_priority_min sched_rr_get_interval", "scheduling"),
    ("kill tkill tgkill pidfd_send_signal rt_sigaction rt_sigprocmask rt_sigreturn rt_sigsuspend rt_sigpending rt_sigtimedwait", "signals"),
    ("rt_sigqueueinfo rt_tgsigqueueinfo sigaltstack signalfd signalfd4 restart_syscall pause", "signals"),
    ("time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer", "time"),
    ("timer_create timer_settime timer_gettime timer_getoverrun timer_delete timerfd_create timerfd_settime timerfd_gettime", "time"),
    ("select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2", "waiting"),
    ("inotify_init inotify_init1 inotify_add_watch inotify_rm_watch", "watching files"),
    ("socket socketpair bind listen accept accept4 connect getsockname getpeername getsockopt setsockopt shutdown", "sockets"),
    ("sendto recvfrom sendmsg recvmsg sendmmsg recvmmsg", "sockets"),
    ("shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl", "System V IPC, of the fence's own namespace"),
    ("mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr", "message queues, of the fence's own namespace"),
    ("getuid geteuid getgid getegid getgroups getresuid getresgid setuid setgid setreuid setregid setresuid setresgid", "identity"),
    ("setgroups setfsuid setfsgid capget capset", "identity"),
    ("seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self", "only ever takes rights away"),
)

_STEERED = frozenset(name for rule in (_CLONE3, _CLONE, *_BY_ARGUMENT) for name in rule.names)
"""The calls that have a rule of their own. Whoever could open one of these as a whole would open what the rule is about."""


@cache
def filter_of(seccomp: Seccomp, *, nested: bool, allow: tuple[str, ...] = (), sockets: Sockets = "all") -> Filter | None:
    """The filter of a setting, or None for `off`. `allow` opens further calls, also such as `default` refuses.

    `sockets`, for shells without a network namespace: of the Internet's, TCP streams alone, or none. That is held with `off`, too.

    Raises InvalidValueError for a name that is no call, or that has a rule by its arguments.
    """
    opened = opened_calls(allow)
    bounds = _BY_SOCKETS[sockets]
    more = (*(("nested",) if nested else ()), *(("more",) if opened else ()), *((f"{sockets}-sockets",) if bounds else ()))
    name = "-".join((seccomp.value, *more))
    if seccomp is Seccomp.OFF:
        past = tuple(Rule(names=tuple(names.split()), action=Action.ENOSYS, why=why) for names, why in _PAST_SOCKETS)
        return Filter(name=f"off-{sockets}-sockets", default=Action.ALLOW, rules=(*past, *bounds)) if bounds else None
    rules = tuple(_refusal_rules(opened, nested=nested, bounds=bounds))
    if seccomp is Seccomp.DEFAULT:
        return Filter(name=name, default=Action.ALLOW, rules=rules)
    return Filter(name=name, default=Action.ENOSYS, rules=(*rules, *_allowance_rules(opened, nested=nested)))


def opened_calls(allow: tuple[str, ...]) -> tuple[str, ...]:
    """The names, sorted, each once. Raises InvalidValueError."""
    for name in allow:
        if name not in NAMES:
            raise InvalidValueError(f"'{name}' is not a system call", "write its name as strace(1) does")
        if name == "clone3":
            raise InvalidValueError("clone3 cannot be let through", "no filter sees its flags; programs fall back to clone")
        if name in _STEERED:
            raise InvalidValueError(f"{name} cannot be let through as a whole", "both filters let it through but for some arguments")
    return tuple(sorted(set(allow)))


def refused_calls(*, nested: bool) -> tuple[str, ...]:
    """What both filters refuse whatever the arguments, sorted."""
    return tuple(sorted(name for rule in _refusal_rules((), nested=nested) if not rule.when for name in rule.names))


def _refusal_rules(opened: tuple[str, ...], *, nested: bool, bounds: tuple[Rule, ...] = ()) -> Iterator[Rule]:
    for names, why in _REFUSED if nested else (*_REFUSED, *_NESTED):
        left = tuple(name for name in names.split() if name not in opened)
        for action, some in (
            (Action.EPERM, tuple(name for name in left if not is_newer_call(name))),
            (Action.ENOSYS, tuple(name for name in left if is_newer_call(name))),
        ):
            if some:
                yield Rule(names=some, action=action, why=why)
    yield _CLONE3
    if not nested:
        yield _CLONE
    yield from (rule for rule in _BY_ARGUMENT if not bounds or not _about_sockets(rule))
    yield from bounds


def _about_sockets(rule: Rule) -> bool:
    return "socket" in rule.names


def _allowance_rules(opened: tuple[str, ...], *, nested: bool) -> Iterator[Rule]:
    for names, why in _ALLOWED:
        yield Rule(names=tuple(names.split()), action=Action.ALLOW, why=why)
    if nested:
        yield Rule(names=tuple(name for names, _ in _NESTED for name in names.split()), action=Action.ALLOW, why="a sandbox inside")
    if opened:
        yield Rule(names=opened, action=Action.ALLOW, why="the manifest's seccomp_allow")
