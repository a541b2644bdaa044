"""The last step before the command: takes rights from this process, then becomes the command. It never gives any.

    python3 -I -S -c TEXT OPTIONS -- COMMAND

Inside bwrap it is a second opinion on the mounts, for machines without Perl (restrict_and_exec.pl takes the options above the line);
where a machine has no user namespaces it is the whole sandbox. Every option has one value:

  --landlock-masks MASKS      what a kernel of each ABI shall take away, as landlock_masks.py prints it
  --least-abi ABI             an older Landlock, or a seventeenth layer of it, ends the start
  --write PATH                what lies beneath may be written; --write-try: if it is there and within reach
  --expect DEVICE:INODE:PATH  what is at a path must be that, or the start ends: it was exchanged after the launcher looked
  --limit NAME=SOFT[:HARD]    as prlimit(1) has it; lowers, and never raises but `core` up to its hard limit
  --unset NAME                a variable that was meant for the interpreter
  --reset-signal INT|QUIT     a signal that the launcher ignores ends the command
  --close-from DESCRIPTOR     the command gets this descriptor and higher ones no more
  --report DESCRIPTOR         is told `abi N`, or `abi N full` where 16 layers are around this one
  --started DESCRIPTOR        is told `started`, once nothing can fail any more but the command's own exec
  --life DESCRIPTOR           a pipe whose other end the launcher alone holds: where the launcher has ended, nothing is started
  -----
  --read PATH                 what lies beneath may be read and executed; --read-try: if it is there and within reach
  --read-fd DESCRIPTOR        the same of what is open there; --write-fd: it may be written
  --connect PORT, --bind PORT a TCP port that may be connected to, or bound
  --seccomp DESCRIPTOR        a filter as bwrap takes it
  --drop-capabilities all     root's, for good

Standard library only; Python 3.9 and newer. ctypes would take 3 ms: this uses what ctypes itself is made of.

Longer than 400 lines: it is given to the interpreter as one text, with no directory to load another file from.
"""

from __future__ import annotations

import _ctypes
import errno
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, NoReturn
else:
    import _signal as signal  # its namesake makes enumerations, which takes longer than all the rest

CANNOT_START, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127
_CREATE, _ADD, _RESTRICT, _OPENAT2, _CLOSE_RANGE = 444, 445, 446, 437, 436  # the same on every architecture
_LIMITS = ("cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock", "as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime")
_CORE, _UNLIMITED = 4, (1 << 64) - 1


class CannotError(Exception):
    """The start ends: what is wrong, what to do about it, the status."""

    def __init__(self, what: str, remedy: str, status: int = CANNOT_START) -> None:
        super().__init__(f"{'error: ' if status == CANNOT_START else ''}{what} ({remedy})")
        self.status = status


# --- the options


def _number_parser(least: int, most: int) -> Callable[[str], int]:
    def parse_bounded_number(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or not least <= int(text) <= most:
            raise ValueError
        return int(text)

    return parse_bounded_number


_abi, _amount, _port, _descriptor = _number_parser(0, 99), _number_parser(0, _UNLIMITED), _number_parser(0, 0xFFFF), _number_parser(3, 999999999)


def _parse_path(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _parse_variable(text: str) -> bytes:
    if not text or "=" in text:
        raise ValueError
    return _encode_text(text)


def _parse_signal(text: str) -> int:
    return (signal.SIGINT, signal.SIGQUIT)[("INT", "QUIT").index(text)]


def _parse_expected(text: str) -> tuple[int, int, str]:
    device, inode, path = text.split(":", 2)
    return _amount(device), _amount(inode), _parse_path(path)


def _parse_limit(text: str) -> tuple[int, int, int]:
    """Which limit, soft, hard."""
    name, _, amounts = text.partition("=")
    soft, colon, hard = amounts.partition(":")
    soft, hard = (str(_UNLIMITED) if amount == "unlimited" else amount for amount in (soft, hard if colon else soft))
    return _LIMITS.index(name), _amount(soft), _amount(hard)


def parse_masks(text: str) -> list[tuple[int, ...]]:
    """Tuples of an ABI and the six masks of landlock_masks.py. Raises ValueError."""
    found = []
    for entry in text.split(","):
        abi, *masks = entry.split(":")
        if len(masks) != 6 or not all(mask.startswith("0x") for mask in masks):
            raise ValueError
        found.append((_abi(abi), *(int(mask, 16) for mask in masks)))
    return found


_OPTIONS: dict[str, Callable[[str], Any]] = {
    "--landlock-masks": parse_masks, "--least-abi": _abi, "--write": _parse_path, "--write-try": _parse_path, "--read": _parse_path, "--read-try": _parse_path,
    "--read-fd": _descriptor, "--write-fd": _descriptor, "--connect": _port, "--bind": _port, "--seccomp": _descriptor, "--drop-capabilities": _parse_path, "--expect": _parse_expected, "--limit": _parse_limit,
    "--unset": _parse_variable, "--reset-signal": _parse_signal, "--close-from": _descriptor, "--report": _descriptor, "--started": _descriptor, "--life": _descriptor,
}  # fmt: skip
"""What each option's value becomes. ValueError: it means nothing."""


def parse_options(arguments: Sequence[str]) -> tuple[dict[str, list[Any]], list[str]]:
    """The values of each option, and the command. What is not understood ends the start."""
    given: dict[str, list[Any]] = {name: [] for name in _OPTIONS}
    words = iter(arguments)
    for option in words:
        if option == "--":
            break
        value = next(words, "")
        if option not in given:
            raise CannotError(f"restrict_and_exec.py does not know {option}", "run wavegen render")
        try:
            given[option].append(_OPTIONS[option](value))
        except ValueError:
            raise CannotError(f"{option} {value} means nothing", "run wavegen render") from None
    command = list(words)
    if not command:
        raise CannotError("restrict_and_exec.py was given no command", "end its options with -- COMMAND")
    return given, command


# --- the kernel


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001  not to be subscripted at run time
    _type_ = "l"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


_PROGRAM = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # the program itself, and with it the C library


def _call_libc(name: str, *arguments: bytes | int | None) -> int:
    """Call a function of the C library that returns a long, as ctypes.CDLL(None, use_errno=True) does."""
    made = _Function(_ctypes.dlsym(_PROGRAM, name))
    return int(made(*(_Long(argument) if isinstance(argument, int) else argument for argument in arguments)))


def _errno_message() -> str:
    return posix.strerror(_ctypes.get_errno())


def _pack_numbers(*values: int) -> bytes:
    """As unsigned 64-bit numbers, one after the other."""
    return b"".join(value.to_bytes(8, sys.byteorder) for value in values)


def _address_of_bytes(text: bytes) -> int:
    """Where a bytes object has its bytes: it begins with its header, and `bytes.__basicsize__` counts the last byte."""
    return id(text) + bytes.__basicsize__ - 1


def _encode_text(text: str) -> bytes:
    return text.encode(sys.getfilesystemencoding(), "surrogateescape")


def ask_landlock() -> tuple[int, int]:
    """The kernel's ABI, and the errata that are mended in it. 0: not built in, not switched on at boot, or refused by a filter around this process."""
    abi = max(0, _call_libc("syscall", _CREATE, None, 0, 1))
    return abi, max(0, _call_libc("syscall", _CREATE, None, 0, 2)) if abi else 0


# --- Landlock


def restrict_by_landlock(given: dict[str, list[Any]], masks: list[tuple[int, ...]]) -> str:
    """Take what the masks say for this kernel. Returns the line for the report."""
    abi, _ = ask_landlock()
    for least in given["--least-abi"]:
        if abi < least:
            raise CannotError(f"the kernel's Landlock (ABI {abi}) is older than ABI {least}", "use a newer kernel")
    chosen = max((entry for entry in masks if entry[0] <= abi), default=())
    failed = _enforce_ruleset(given, *chosen[1:]) if any(chosen[1:]) else 0
    if failed and failed != errno.E2BIG:
        raise CannotError(f"Landlock refuses: {posix.strerror(failed)}", "report this to wavegen")
    if failed and given["--least-abi"]:
        raise CannotError("16 layers of Landlock are around this one already, and the kernel takes no more", "leave one of the shells")
    return f"abi {abi} full\n" if failed else f"abi {abi}\n"


def _enforce_ruleset(given: dict[str, list[Any]], *masks: int) -> int:
    """Returns the error with which the kernel refused, or 0."""
    files, file, net, scope, read, read_file = masks
    # An older kernel takes a longer structure as long as it is zero where the kernel knows nothing (copy_struct_from_user).
    ruleset = _call_libc("syscall", _CREATE, _pack_numbers(files, net, scope), 24, 0)
    if ruleset < 0:
        raise CannotError(f"Landlock makes no ruleset: {_errno_message()}", "report this to wavegen")
    for option, rights in (("--write", (files, file)), ("--write-try", (files, file)), ("--read", (read, read_file)), ("--read-try", (read, read_file))):
        for path in given[option] if files else ():
            _allow_beneath(ruleset, option, path, rights)
    for option, rights in (("--write-fd", (files, file)), ("--read-fd", (read, read_file))):
        for handle in given[option] if files else ():
            _allow_opened(ruleset, f"{option} {handle}", handle, rights)
    for option, right in (("--bind", net & 1), ("--connect", net & 2)):
        for port in given[option] if right else ():
            _add_rule(ruleset, 2, _pack_numbers(right, port), f"{option} {port}")
    failed = _ctypes.get_errno() if _call_libc("syscall", _RESTRICT, ruleset, 0) else 0
    posix.close(ruleset)
    return failed


def _open_place(path: str, *, through_links: bool) -> int:
    """O_PATH|O_CLOEXEC, RESOLVE_NO_SYMLINKS: a session that may write above or beside the path could put a link there. -1: errno says why."""
    return _call_libc("syscall", _OPENAT2, -100, _encode_text(path), _pack_numbers(0x280000, 0, 0 if through_links else 4), 24)


def _add_rule(ruleset: int, kind: int, attribute: bytes, about: str) -> None:
    if _call_libc("syscall", _ADD, ruleset, kind, attribute, 0):
        raise CannotError(f"Landlock does not take {about}: {_errno_message()}", "remove it from the manifest")


def _allow_beneath(ruleset: int, option: str, path: str, rights: tuple[int, int]) -> None:
    """Grant the first of these rights beneath a directory, the second on anything else."""
    place = _open_place(path, through_links=option.startswith("--read"))
    if place < 0:
        failed = _ctypes.get_errno()
        if option.endswith("-try") and failed in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
            return
        if failed == errno.ELOOP:
            raise CannotError(f"{option} {path} leads through a link", "name the place itself")
        raise CannotError(f"{option} {path}: {posix.strerror(failed)}", "make it, or remove it from the manifest")
    _allow_opened(ruleset, f"{option} {path}", place, rights)
    posix.close(place)


def _allow_opened(ruleset: int, about: str, place: int, rights: tuple[int, int]) -> None:
    allowed = rights[posix.fstat(place).st_mode & 0o170000 != 0o040000]
    if allowed:
        _add_rule(ruleset, 1, _pack_numbers(allowed) + place.to_bytes(4, sys.byteorder), about)  # packed: 12 bytes


# --- the other bounds


def _check_expected(device: int, inode: int, path: str) -> None:
    place = _open_place(path, through_links=False)
    found = posix.fstat(place) if place >= 0 else None
    if found is None or (found.st_dev, found.st_ino) != (device, inode):
        remedy = "another shell of the project may have done it: try again when that has ended"
        raise CannotError(f"{path} was exchanged while the sandbox was built", remedy)
    posix.close(place)


def _read_filter(handle: int) -> bytes:
    data = b""
    while part := posix.read(handle, 65536):
        data += part
    posix.close(handle)
    if not data or len(data) % 8:
        raise CannotError(f"--seccomp {handle} holds no filter", "run wavegen render")
    return data


def _apply_filter(program: bytes) -> None:
    """struct sock_fprog: how many, and where."""
    fprog = (len(program) // 8).to_bytes(2, sys.byteorder) + bytes(6) + _pack_numbers(_address_of_bytes(program))
    if _call_libc("prctl", 22, 2, fprog, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
        raise CannotError(f"the kernel does not take the seccomp filter: {_errno_message()}", "run wavegen render")


def _lower_limit(which: int, soft: int, hard: int) -> None:
    now = bytes(16)
    if _call_libc("prlimit", 0, which, None, now):  # the kernel writes into it, and nobody else has it
        raise CannotError(f"a limit cannot be read: {_errno_message()}", "remove it from the manifest")
    old_soft, old_hard = (int.from_bytes(now[at : at + 8], sys.byteorder) for at in (0, 8))
    hard = min(hard, old_hard)
    # A core_pattern that is a pipe runs its program outside where the limit is 0 as well, and does not where it is 1 (core(5)): so core is raised.
    soft = min(soft, hard) if which == _CORE else min(soft, old_soft, hard)
    if _call_libc("prlimit", 0, which, _pack_numbers(soft, hard), None):
        raise CannotError(f"a limit cannot be set: {_errno_message()}", "remove it from the manifest")


def _close_from(first: int) -> None:
    if _call_libc("syscall", _CLOSE_RANGE, first, 0xFFFFFFFF, 4):  # at exec: until then some are needed
        raise CannotError(f"open descriptors cannot be closed: {_errno_message()}", "use Linux 5.11 or newer")


def _tell_launcher(handle: int, line: str) -> None:
    try:
        posix.write(handle, line.encode())
        posix.close(handle)
    except OSError as failed:
        raise CannotError(f"descriptor {handle} cannot be written: {failed.strerror}", "start the shell again") from None


def _check_life(handle: int) -> None:
    """A pipe that nobody writes to has something to read once its writing end is closed."""
    try:
        posix.set_blocking(handle, False)
        posix.read(handle, 1)
    except BlockingIOError:
        posix.close(handle)
        return
    except OSError:
        pass
    raise CannotError("the launcher ended before the command was started", "start the shell again")


# --- the command


def read_raw_environment() -> list[bytes]:
    """The environment as it came: names twice, and without "=". Python itself adds LC_CTYPE in the C locale (PEP 538), with -I too."""
    data = b""
    try:
        handle = posix.open("/proc/self/environ", posix.O_RDONLY | posix.O_CLOEXEC)
        while part := posix.read(handle, 65536):
            data += part
        posix.close(handle)
        return data.split(b"\0")[:-1]
    except OSError:
        # No /proc. A locale of one's own makes Python leave LC_CTYPE alone.
        own = posix.environ.get(b"LC_ALL") or posix.environ.get(b"LANG") or b"C"
        coerced = own in (b"C", b"POSIX") and posix.environ.get(b"LC_CTYPE") in (b"C.UTF-8", b"C.utf8", b"UTF-8")
        return [name + b"=" + value for name, value in posix.environ.items() if not (coerced and name == b"LC_CTYPE")]


def _pack_pointers(words: Iterable[bytes]) -> bytes:
    """An array as execve(2) wants it. The words must live as long as it does."""
    return _pack_numbers(*map(_address_of_bytes, words), 0)


def become_command(words: list[bytes], environment: list[bytes]) -> NoReturn:
    """As execvp(3), which bwrap uses: along PATH, and a text without #! is the shell's."""
    envp, argv = _pack_pointers(environment), _pack_pointers(words)
    path = next((entry[5:] for entry in environment if entry.startswith(b"PATH=")), b"/bin:/usr/bin")
    name = words[0]
    worst = errno.ENOENT
    for place in [name] if b"/" in name else [folder + b"/" + name if folder else name for folder in path.split(b":")] if name else []:
        _call_libc("execve", place, argv, envp)
        number = _ctypes.get_errno()
        if number == errno.ENOEXEC:
            shell = [b"/bin/sh", place, *words[1:]]
            _call_libc("execve", shell[0], _pack_pointers(shell), envp)
        if number not in (errno.ENOENT, errno.ENOTDIR):
            worst = number
            if number != errno.EACCES:
                break
    shown = name.decode(sys.getfilesystemencoding(), "surrogateescape")
    if worst == errno.ENOENT:
        raise CannotError(f"{shown}: command not found inside", "add its package to the manifest, or grant its path", NOT_FOUND)
    raise CannotError(f"{shown} cannot be executed inside: {posix.strerror(worst)}", "grant its path, or make it executable", NOT_EXECUTABLE)


def apply_restrictions(given: dict[str, list[Any]]) -> None:
    """Take everything that was asked for, in this order: each of them could forbid what the one before needs."""
    for expected in given["--expect"]:
        _check_expected(*expected)
    filters = [_read_filter(handle) for handle in given["--seccomp"]]
    if _call_libc("prctl", 38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise CannotError(f"no_new_privs cannot be set: {_errno_message()}", "use Linux 3.5 or newer")
    for masks in given["--landlock-masks"]:
        line = restrict_by_landlock(given, masks)
        for handle in given["--report"]:
            _tell_launcher(handle, line)
    # Version 3 of the header, this process; nothing effective, permitted, inheritable. With it goes what is ambient.
    if given["--drop-capabilities"] and _call_libc("capset", _pack_numbers(0x20080522), bytes(24)):
        raise CannotError(f"capabilities cannot be dropped: {_errno_message()}", "do not run it as root")
    for limit in given["--limit"]:
        _lower_limit(*limit)
    for first in given["--close-from"]:
        _close_from(first)
    # Python ignores two of these, and what is ignored stays so in other programs.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, *given["--reset-signal"]):
        signal.signal(number, signal.SIG_DFL)
    for program in filters:
        _apply_filter(program)


def main(arguments: Sequence[str]) -> NoReturn:
    """Take the rights, become the command."""
    try:
        given, command = parse_options(arguments)
        environment = [entry for entry in read_raw_environment() if b"=" not in entry or entry.partition(b"=")[0] not in given["--unset"]]
        apply_restrictions(given)
        for handle in given["--started"]:
            _tell_launcher(handle, "started\n")
        for handle in given["--life"]:
            _check_life(handle)
        become_command([_encode_text(word) for word in command], environment)
    except CannotError as failed:
        number, text = failed.status, str(failed)
    except (OSError, MemoryError) as failed:
        number = CANNOT_START
        text = f"error: the sandbox cannot be built: {getattr(failed, 'strerror', 'no memory')} (raise the limits of open files and memory)"
    try:
        # A name may hold what would move a terminal's cursor.
        shown = "".join(chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}" for byte in _encode_text(text))
        posix.write(2, f"wavegen: {shown}\n".encode())
    except OSError:
        pass  # nobody listens
    posix._exit(number)  # noqa: SLF001


if __name__ == "__main__":
    main(sys.argv[1:])
