"""The last step before the command: takes rights from this process, then becomes the command. It never gives any.

Inside bwrap it is a second opinion on the mounts; where a machine has no user namespaces it is the whole fence. It is read
at every start, so it may also be given as text: `python3 -I -S -c TEXT OPTIONS -- COMMAND`. landlock.pl is its little brother.

  --landlock require|core|best-effort   what this kernel cannot hold ends the start, or goes into the report; with core, what
                                   came after Linux 6.7 (ABI 4) goes into the report and the rest ends the start
  --report FD|PATH                 where that is said; nowhere without it
  --writes-only                    reading is free (the mounts' business); else only what is listed is read or executed
  --no-files                       Landlock for ports and scopes only
  --read PATH, --write PATH        what lies beneath may be read and executed; written, too. -try: if it is there
  --tcp, --connect PORT, --bind PORT   no TCP but to, or on, these ports
                                   (and no way round it: TCP Fast Open, MPTCP, SMC, SCTP and io_uring, by a filter)
  --udp                            no UDP
  --scope abstract|signal|unix     no abstract sockets, signals, named sockets of whoever is outside
  --limit NAME=SOFT[:HARD]         as prlimit(1) has it; lowers, never raises
  --seccomp FD|FILE                a filter as bwrap takes it
  --no-new-privs                   comes with --landlock and --seccomp
  --drop-capabilities              root's, for good; comes with --no-new-privs, without which root would have them back
  --close                          the command gets no descriptor but 0, 1 and 2
  --signals                        Ctrl-C and Ctrl-\\, which whoever started the shim ignores, end the command
  --status-fd FD                   gets the number with which the start failed; nothing, and its end, when it did not
  --started FD                     is told `started`, and closed, once nothing can fail any more but the command's own exec
  --unset NAME                     a variable that was meant for the shim
  --arg0 NAME                      what the command takes for its own name
  --show                           says as JSON what would be held, and runs nothing

Standard library only; Python 3.10 and newer. ctypes would take 3 ms: this uses what ctypes itself is made of.

Longer than 400 lines: it is started by itself, with no directory to load another file from.
"""

from __future__ import annotations

import _ctypes
import errno
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import NoReturn
else:
    import _signal as signal  # its namesake makes enumerations, which takes longer than all the rest

CANNOT, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
# landlock(7), openat2(2), close_range(2): the same numbers on every architecture
_CREATE, _ADD, _RESTRICT, _OPENAT2, _CLOSE_RANGE = 444, 445, 446, 437, 436
_ASK_ABI, _ASK_ERRATA = 1, 2
_BENEATH, _PORT = 1, 2
_AT_CWD = -100
_O_PATH = 0x280000  # and O_CLOEXEC
_NO_SYMLINKS = 0x04
_CLOSE_ON_EXEC = 4
_SECCOMP, _FILTER, _NO_NEW_PRIVS = 22, 2, 38
_DIRECTORY, _TYPE = 0o040000, 0o170000
_LAYERS = 16
_CORE = 4
# By uname -m: what seccomp calls it, and socket, sendto, sendmsg, sendmmsg
_MACHINES = {"x86_64": (0xC000003E, (41, 44, 46, 307)), "aarch64": (0xC00000B7, (198, 206, 211, 269))}
_IO_URING_SETUP, _X32 = 425, 0x40000000
_SMC, _SCTP, _MPTCP = 43, 132, 262
_FAST_OPEN = 0x20000000

FILES, NET, SCOPE = 0, 1, 2
RIGHTS = {
    "execute": (FILES, 0, 1), "write_file": (FILES, 1, 1), "read_file": (FILES, 2, 1), "read_dir": (FILES, 3, 1),
    "remove_dir": (FILES, 4, 1), "remove_file": (FILES, 5, 1), "make_char": (FILES, 6, 1), "make_dir": (FILES, 7, 1),
    "make_reg": (FILES, 8, 1), "make_sock": (FILES, 9, 1), "make_fifo": (FILES, 10, 1), "make_block": (FILES, 11, 1),
    "make_sym": (FILES, 12, 1), "refer": (FILES, 13, 2), "truncate": (FILES, 14, 3), "ioctl_dev": (FILES, 15, 5), "resolve_unix": (FILES, 16, 9),
    "bind_tcp": (NET, 0, 4), "connect_tcp": (NET, 1, 4), "bind_udp": (NET, 2, 10), "connect_send_udp": (NET, 3, 10),
    "abstract": (SCOPE, 0, 6), "signal": (SCOPE, 1, 6),
}  # fmt: skip
"""Each right that Landlock can take: of what kind, its bit, the ABI it came with. No other is ever handled: what is handled
and not granted is denied."""
READS = ("execute", "read_file", "read_dir")
WRITES = (
    "write_file", "remove_dir", "remove_file", "make_char", "make_dir", "make_reg", "make_sock", "make_fifo", "make_block", "make_sym", "refer", "truncate",
)  # fmt: skip
_ON_A_FILE = 0b1100000000000111  # EXECUTE, WRITE_FILE, READ_FILE, TRUNCATE, IOCTL_DEV: the kernel refuses a file's rule with more
_LIMITS = ("cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime")
_COERCED = (b"C.UTF-8", b"C.utf8", b"UTF-8")


class CannotError(Exception):
    """The start fails: what, what to do, the status."""

    def __init__(self, what: str, remedy: str, status: int = CANNOT) -> None:
        super().__init__(f"wavegen: {'error: ' if status == CANNOT else ''}{what} ({remedy})")
        self.status = status


class Options:
    """What is asked for."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.landlock = self.report = self.seccomp = self.arg0 = ""
        self.flags: set[str] = set()
        self.paths: list[tuple[str, str]] = []
        self.ports: list[tuple[str, int]] = []
        self.scopes: list[str] = []
        self.unset: list[bytes] = []
        self.limits: list[tuple[int, int, int]] = []
        self.status = self.started = -1
        rest = iter(arguments)
        for option in rest:
            if option == "--":
                break
            self._take(option, rest)
        self.command = list(rest)
        rules = self.paths or self.ports or self.scopes or self.flags & {"--writes-only", "--no-files", "--tcp", "--udp"}
        if rules and not self.landlock:
            raise CannotError("the shim was given rules and no --landlock", "run wavegen render")
        if not self.command and "--show" not in self.flags:
            raise CannotError("the shim was given no command", "end its options with -- COMMAND")

    def _take(self, option: str, rest: Iterator[str]) -> None:
        if option in ("--writes-only", "--no-files", "--tcp", "--udp", "--no-new-privs", "--drop-capabilities", "--close", "--signals", "--show"):
            self.flags.add(option)
            return
        value = next(rest, None)
        if value is None:
            raise CannotError(f"the shim does not know {option}, or it has no value", "run wavegen render")
        try:
            self._value(option, value)
        except ValueError:
            raise CannotError(f"{option} {value} means nothing", "run wavegen render") from None

    def _value(self, option: str, value: str) -> None:
        if option in ("--read", "--write", "--read-try", "--write-try"):
            self.paths.append((option, value))
        elif option in ("--connect", "--bind"):
            self.ports.append((option[2:] + "_tcp", _number(value, 0xFFFF)))
        elif option == "--scope" and value in ("abstract", "signal", "unix"):
            self.scopes.append("resolve_unix" if value == "unix" else value)
        elif option == "--limit":
            name, _, text = value.partition("=")
            soft, colon, hard = text.partition(":")
            self.limits.append((_LIMITS.index(name), _amount(soft), _amount(hard if colon else soft)))
        elif option == "--unset" and value and "=" not in value:
            self.unset.append(value.encode(sys.getfilesystemencoding(), "surrogateescape"))
        elif option == "--landlock" and value in ("require", "core", "best-effort"):
            self.landlock = value
        elif option == "--status-fd":
            self.status = _number(value, 0x7FFFFFFF)
        elif option == "--started":
            self.started = _number(value, 0x7FFFFFFF)
        elif option in ("--report", "--seccomp", "--arg0"):
            setattr(self, option[2:], value)
        else:
            raise ValueError


def _number(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit()) or int(text) > most:
        raise ValueError
    return int(text)


def _amount(text: str) -> int:
    return (1 << 64) - 1 if text == "unlimited" else _number(text, 10**19 - 1)


# --- what is wanted, and what of it the kernel can hold


def requested(options: Options) -> list[str]:
    """The rights that the options ask to be taken."""
    if not options.landlock:
        return []
    names: list[str] = []
    if "--no-files" not in options.flags:
        names += WRITES if "--writes-only" in options.flags else (*READS, *WRITES, "ioctl_dev")
    names += ("bind_tcp", "connect_tcp") if options.ports or "--tcp" in options.flags else ()
    names += ("bind_udp", "connect_send_udp") if "--udp" in options.flags else ()
    return names + [scope for scope in ("abstract", "signal", "resolve_unix") if scope in options.scopes]


def plan(abi: int, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """What of it a kernel with this ABI holds, and what it does not. 0: no Landlock."""
    there: list[str] = []
    missing: list[str] = []
    for name in names:
        (there if RIGHTS[name][2] <= abi else missing).append(name)
    return there, missing


def mask(kind: int, names: Iterable[str]) -> int:
    """These rights, of this kind, as the kernel has them."""
    return sum(1 << RIGHTS[name][1] for name in names if RIGHTS[name][0] == kind)


def attributes(abi: int, names: Sequence[str]) -> bytes:
    """struct landlock_ruleset_attr, no longer than this ABI knows it: a longer one is E2BIG."""
    whole = b"".join(mask(kind, names).to_bytes(8, sys.byteorder) for kind in (FILES, NET, SCOPE))
    return whole[: 8 if abi < 4 else 16 if abi < 6 else 24]


# --- the kernel


def _function(name: str) -> Callable[..., int]:
    """A function of the C library that returns a long and is asked for its errno: as ctypes.CDLL(None, use_errno=True) makes it."""

    class Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001  not to be subscripted at run time
        _type_ = "l"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = Long

    program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # the program itself, and with it the C library
    made = Function(_ctypes.dlsym(program, name))

    def call(*arguments: bytes | int | None) -> int:
        return int(made(*(Long(argument) if isinstance(argument, int) else argument for argument in arguments)))

    return call


def _error() -> int:
    return _ctypes.get_errno()


def _said(number: int) -> str:
    return posix.strerror(number)


def _u64(value: int) -> bytes:
    return value.to_bytes(8, sys.byteorder)


def _kernel(syscall: Callable[..., int]) -> tuple[int, int]:
    """The ABI and the errata that are mended. 0: not built in, not switched on at boot, or forbidden by a filter around us."""
    abi = max(0, syscall(_CREATE, None, 0, _ASK_ABI))
    return abi, max(0, syscall(_CREATE, None, 0, _ASK_ERRATA)) if abi else 0


def _place(syscall: Callable[..., int], option: str, path: str) -> int:
    """Open what a rule is about. What is to be written must be named as it is: who may write beside it could put a link there."""
    writes = option.startswith("--write")
    how = _u64(_O_PATH) + _u64(0) + _u64(_NO_SYMLINKS if writes else 0)
    name = path.encode(sys.getfilesystemencoding(), "surrogateescape")
    handle = syscall(_OPENAT2, _AT_CWD, name, how, len(how))
    if handle >= 0:
        return handle
    number = _error()
    if option.endswith("-try") and number in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
        return -1  # or out of this user's reach: there is nothing to grant
    if number == errno.ELOOP:
        raise CannotError(f"{option} {path} leads through a link", "name the place itself")
    raise CannotError(f"{option} {path}: {_said(number)}", "make it, or take it out of the manifest")


def _rule(syscall: Callable[..., int], ruleset: int, kind: int, attribute: bytes, about: str) -> None:
    if syscall(_ADD, ruleset, kind, attribute, 0):
        raise CannotError(f"Landlock does not take {about}: {_said(_error())}", "take it out of the manifest")


def _enforce(syscall: Callable[..., int], options: Options, abi: int, held: Sequence[str]) -> str:
    """Take these rights. Returns why that could not be, where the kernel has enough of it."""
    attribute = attributes(abi, held)
    ruleset = syscall(_CREATE, attribute, len(attribute), 0)
    if ruleset < 0:
        raise CannotError(f"Landlock makes no ruleset: {_said(_error())}", "say `landlock: off`, and tell us")
    everything = mask(FILES, held)
    reading = everything & mask(FILES, READS)
    for option, path in options.paths if everything else ():
        handle = _place(syscall, option, path)
        if handle < 0:
            continue
        allowed = everything if option.startswith("--write") else reading
        if posix.fstat(handle).st_mode & _TYPE != _DIRECTORY:
            allowed &= _ON_A_FILE
        if allowed:
            # packed: 12 bytes
            _rule(syscall, ruleset, _BENEATH, _u64(allowed) + handle.to_bytes(4, sys.byteorder), f"{option} {path}")
        posix.close(handle)
    for name, port in options.ports:
        if name in held:
            _rule(syscall, ruleset, _PORT, _u64(mask(NET, (name,))) + _u64(port), f"port {port}")
    failed = _error() if syscall(_RESTRICT, ruleset, 0) else 0
    posix.close(ruleset)
    if failed and failed != errno.E2BIG:
        raise CannotError(f"Landlock refuses: {_said(failed)}", "say `landlock: off`, and tell us")
    return f"{_LAYERS} fences of Landlock are around this one already, and the kernel takes no more" if failed else ""


def _layer(syscall: Callable[..., int], options: Options) -> list[str]:
    """Take what is asked for. Returns a line for each thing that cannot be held."""
    abi, _ = _kernel(syscall)
    names = requested(options)
    held, missing = plan(abi, names)
    extra = "resolve_unix"  # is no reason to fail on a kernel before 7.1, but held where it can be
    if abi >= RIGHTS[extra][2] and "execute" in held and extra not in held:
        held.append(extra)
    strict = options.landlock != "best-effort"
    needed = [name for name in missing if RIGHTS[name][2] <= _CORE or options.landlock == "require"]
    if strict and needed:
        raise CannotError(_without(abi, needed), "say `landlock: best-effort`, or take a newer kernel")
    machine = posix.uname().machine
    if "connect_tcp" in held and machine not in _MACHINES and strict:
        raise CannotError(f"the ways round TCP rules cannot be closed on {machine}", "say `landlock: best-effort`")
    lines = [f"not held: {name}: Landlock has it since ABI {RIGHTS[name][2]}, this kernel has {abi or 'no Landlock'}" for name in missing]
    crowded = _enforce(syscall, options, abi, held) if held else ""
    if "connect_tcp" in held and machine in _MACHINES:
        _confine(only_tcp(machine))
    elif "connect_tcp" in held:
        lines.append(f"not held: TCP Fast Open, MPTCP: the system calls of {machine} are not known")
    if crowded and strict:
        raise CannotError(crowded, "leave one of the shells")
    return [*lines, *([f"not held: {name}: {crowded}" for name in held] if crowded else ())]


def missing_core(abi: int, *, tcp: bool) -> list[str]:
    """What a fence of Landlock alone needs, and a kernel with this ABI does not have."""
    return plan(abi, (*READS, *WRITES, *(("bind_tcp", "connect_tcp") if tcp else ())))[1]


def _without(abi: int, missing: Sequence[str]) -> str:
    if not abi:
        return "this kernel has no Landlock, or it is not switched on (boot with lsm=landlock,...)"
    return f"this kernel's Landlock (ABI {abi}) does not hold {', '.join(missing)}"


def show(options: Options) -> str:
    """Asked against held, as JSON."""
    abi, errata = _kernel(_function("syscall"))
    names = requested(options)
    held, missing = plan(abi, names)
    parts = [f'"abi": {abi}', f'"errata": {errata}']
    for title, listed in (("requested", names), ("enforced", held), ("missing", missing)):
        parts.append(f'"{title}": [' + ", ".join(f'"{name}"' for name in listed) + "]")
    return "{" + ", ".join(parts) + "}\n"


# --- the other bounds


def _filter(name: str) -> bytes:
    """A seccomp filter, read before anything is taken."""
    handle = int(name) if name.isascii() and name.isdigit() else -1
    try:
        handle = posix.open(name, posix.O_RDONLY | posix.O_CLOEXEC) if handle < 0 else handle
        data = b""
        while part := posix.read(handle, 65536):
            data += part
        posix.close(handle)
    except OSError as failed:
        raise CannotError(f"--seccomp {name}: {failed.strerror}", "run wavegen render") from None
    if not data or len(data) % 8:
        raise CannotError(f"--seccomp {name} holds no filter", "run wavegen render")
    return data


def only_tcp(machine: str) -> bytes:
    """Landlock looks at bind and connect of plain TCP. A filter that refuses what does the same otherwise, for a program to fall back."""
    arch, (socket, sendto, sendmsg, sendmmsg) = _MACHINES[machine]
    allow, unsupported, unknown, absent = 0x7FFF0000, 0x50000 | errno.EOPNOTSUPP, 0x50000 | errno.EPROTONOSUPPORT, 0x50000 | errno.ENOSYS
    # struct seccomp_data: nr 0, arch 4, args 16 + 8 * n. All these arguments have 32 bits, and both machines the low ones first.
    load, equal, above, any_of, end = 0x20, 0x15, 0x35, 0x45, 0x06
    flags = {sendto: 3, sendmsg: 2, sendmmsg: 3}
    program: list[tuple[int, int, int, int]] = [(load, 0, 0, 4), (equal, 1, 0, arch), (end, 0, 0, absent), (load, 0, 0, 0)]
    program += [(above, 0, 1, _X32), (end, 0, 0, absent), (equal, 0, 1, _IO_URING_SETUP), (end, 0, 0, absent)]
    for number, place in flags.items():
        program += [(equal, 0, 4, number), (load, 0, 0, 16 + 8 * place), (any_of, 0, 1, _FAST_OPEN), (end, 0, 0, unsupported), (end, 0, 0, allow)]
    program += [(equal, 1, 0, socket), (end, 0, 0, allow), (load, 0, 0, 16), (equal, 3, 0, _SMC), (load, 0, 0, 32), (equal, 1, 0, _MPTCP)]
    program += [(equal, 0, 1, _SCTP), (end, 0, 0, unknown), (end, 0, 0, allow)]
    return b"".join(code.to_bytes(2, sys.byteorder) + bytes((yes, no)) + value.to_bytes(4, sys.byteorder) for code, yes, no, value in program)


def _confine(program: bytes) -> None:
    """struct sock_fprog: how many, and where. A bytes object begins with its header, and `bytes.__basicsize__` counts the last byte."""
    where = id(program) + bytes.__basicsize__ - 1
    fprog = (len(program) // 8).to_bytes(2, sys.byteorder) + bytes(6) + _u64(where)
    if _function("prctl")(_SECCOMP, _FILTER, fprog, 0, 0):
        raise CannotError(f"the kernel does not take the seccomp filter: {_said(_error())}", "run wavegen render")


def _no_new_privileges() -> None:
    if _function("prctl")(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise CannotError(f"no_new_privs cannot be set: {_said(_error())}", "take a kernel of 3.5 or newer")


def _drop() -> None:
    """Version 3 of the header, this process; nothing effective, permitted, inheritable. With it goes what is ambient."""
    if _function("capset")(0x20080522.to_bytes(8, sys.byteorder), bytes(24)):
        raise CannotError(f"capabilities cannot be dropped: {_said(_error())}", "do not run it as root")


def _lower(limits: Iterable[tuple[int, int, int]]) -> None:
    import resource

    most = 1 << 64
    for which, soft, hard in limits:
        now = tuple(value % most for value in resource.getrlimit(which))
        hard = min(hard, now[1])  # noqa: PLW2901
        soft = min(soft, now[0], hard)  # noqa: PLW2901
        resource.setrlimit(which, (soft if soft < most - 1 else -1, hard if hard < most - 1 else -1))


def _close(syscall: Callable[..., int]) -> None:
    """At exec. Until then the status descriptor is needed."""
    if syscall(_CLOSE_RANGE, 3, 0xFFFFFFFF, _CLOSE_ON_EXEC):
        try:
            handles = [int(name) for name in posix.listdir("/proc/self/fd")]
        except OSError:
            raise CannotError("open descriptors cannot be closed", "take a kernel of 5.11 or newer, or mount /proc") from None
        for handle in handles:
            try:
                posix.set_inheritable(handle, handle <= 2)
            except OSError:
                continue  # the one by which they were listed


def _environment() -> None:
    """Python in the C locale sets LC_CTYPE (PEP 538), -I or not. The command gets what there was."""
    if posix.environ.get(b"LC_CTYPE") not in _COERCED:
        return
    before: list[bytes] = []
    try:
        handle = posix.open("/proc/self/environ", posix.O_RDONLY | posix.O_CLOEXEC)
        data = b"\0"
        while part := posix.read(handle, 65536):
            data += part
        posix.close(handle)
        before = [entry[9:] for entry in data.split(b"\0") if entry.startswith(b"LC_CTYPE=")]
    except OSError:
        # No /proc: a locale of one's own makes Python leave it alone
        own = posix.environ.get(b"LC_ALL") or posix.environ.get(b"LANG") or b"C"
        before = [] if own in (b"C", b"POSIX") else [posix.environ[b"LC_CTYPE"]]
    if not before:
        posix.unsetenv(b"LC_CTYPE")
    elif before[0] != posix.environ[b"LC_CTYPE"]:
        posix.putenv(b"LC_CTYPE", before[0])


def _become(name: str, arguments: list[str]) -> NoReturn:
    """As execvp(3), which bwrap uses: along PATH, and a text without #! is the shell's."""
    path = posix.environ.get(b"PATH", b"/bin:/usr/bin").decode(sys.getfilesystemencoding(), "surrogateescape")
    places = [name] if "/" in name else [f"{place}/{name}" if place else name for place in path.split(":")] if name else []
    worst = errno.ENOENT
    for place in places:
        try:
            posix.execv(place, arguments)
        except OSError as failed:
            number = failed.errno or errno.EIO
        if number == errno.ENOEXEC:
            try:
                posix.execv("/bin/sh", ["/bin/sh", place, *arguments[1:]])
            except OSError:
                worst = number
                break
        if number not in (errno.ENOENT, errno.ENOTDIR):
            worst = number
            if number != errno.EACCES:
                break
    if worst == errno.ENOENT:
        raise CannotError(f"{name}: command not found inside", "add its package to the manifest, or grant its path", NOT_FOUND)
    raise CannotError(f"{name} cannot be executed inside: {_said(worst)}", "grant its path, or make it executable", NOT_EXECUTABLE)


def _report(name: str) -> int:
    handle = int(name) if name.isascii() and name.isdigit() else -1
    try:
        handle = posix.open(name, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND | posix.O_CLOEXEC, 0o600) if handle < 0 else handle
    except OSError as failed:
        raise CannotError(f"--report {name}: {failed.strerror}", "name a place that may be written") from None
    return handle


def _reset(options: Options) -> None:
    # Python ignores these two, and what is ignored stays so in other programs.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if "--signals" in options.flags:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def _bounds(options: Options) -> None:
    """In this order: each of them could forbid what the one before needs."""
    program = _filter(options.seccomp) if options.seccomp else b""
    report = _report(options.report) if options.report else -1
    syscall = _function("syscall")
    if options.limits:
        import resource  # noqa: F401  while its file may be read
    _environment()
    for name in options.unset:
        posix.unsetenv(name)
    if options.landlock or program or options.flags & {"--drop-capabilities", "--no-new-privs"}:
        _no_new_privileges()
    lines = _layer(syscall, options) if options.landlock else []
    if "--drop-capabilities" in options.flags:
        _drop()
    if report >= 0:
        posix.write(report, "".join(f"{line}\n" for line in lines).encode())
    if report > 2:
        posix.close(report)
    if options.limits:
        _lower(options.limits)
    if "--close" in options.flags:
        _close(syscall)
    _reset(options)
    if program:
        _confine(program)


def _tell(handle: int) -> None:
    try:
        posix.write(handle, b"started\n")
        posix.close(handle)
    except OSError as failed:
        raise CannotError(f"--started {handle}: {failed.strerror}", "open the descriptor for writing") from None


def main(arguments: Sequence[str]) -> NoReturn:
    """Take the rights, become the command."""
    status = -1
    try:
        options = Options(arguments)
        status = options.status
        if "--show" in options.flags:
            posix.write(1, show(options).encode())
            posix._exit(0)  # noqa: SLF001
        if status >= 0:
            posix.set_inheritable(status, False)
        _bounds(options)
        if options.started >= 0:
            _tell(options.started)
        _become(options.command[0], [options.arg0 or options.command[0], *options.command[1:]])
    except CannotError as failed:
        number, text = failed.status, str(failed)
    except (OSError, MemoryError) as failed:
        number, text = (
            CANNOT,
            f"wavegen: error: the fence cannot be built: {getattr(failed, 'strerror', 'no memory')} (raise the limits of open files and memory)",
        )
    for handle, said in ((2, f"{text}\n"), (status, f"{number}\n")):
        try:
            if handle >= 0:
                posix.write(handle, said.encode(sys.getfilesystemencoding(), "surrogateescape"))
        except OSError:
            pass  # nobody listens
    posix._exit(number)  # noqa: SLF001


if __name__ == "__main__":
    main(sys.argv[1:])
