"""Functions of the C library that Python has not, or not yet. Made of what ctypes itself is made of: to import that takes 5 ms."""

from __future__ import annotations

import _ctypes
import posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9


class _Long(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001  not to be subscripted at run time
    _type_ = "l"


class _Function(_ctypes.CFuncPtr):
    _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
    _restype_ = _Long


def call_libc(name: str, *arguments: bytes | int | None) -> int:
    """What a function of the C library returns. Raises OSError where that is -1."""
    function: Any = _Function(_ctypes.dlsym(_ctypes.dlopen(None, 0), name))  # type: ignore[arg-type]  # None: the program itself, and with it the C library
    found = int(function(*(_Long(argument) if isinstance(argument, int) else argument for argument in arguments)))
    if found & 0xFFFFFFFF == 0xFFFFFFFF:
        number = _ctypes.get_errno()
        raise OSError(number, posix.strerror(number))
    return found


def end_with_parent(parent: int) -> None:
    """Let the kernel end this process when its parent does (prctl(2), PR_SET_PDEATHSIG); at once where it has ended already."""
    call_libc("prctl", _PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if posix.getppid() != parent:
        posix._exit(125)  # noqa: SLF001


def unshare_namespaces(flags: int) -> None:
    """Leave namespaces (unshare(2)). Raises OSError."""
    call_libc("unshare", flags)
