"""What the launcher is handed for one start, and how this process becomes it. Little is imported: every `wavegen run` reads this."""

from __future__ import annotations

import os
import signal
import sys

from wavegen.core import resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn


class Launch:
    """The rules of one start, as one text, and the system call filter that they name; empty where there is none."""

    __slots__ = ("filter", "rules")

    def __init__(self, rules: str, program: bytes) -> None:
        self.rules, self.filter = rules, program


def read_launch(read: Callable[[str], bytes], shell: str, kind: str) -> Launch:
    """The start of a shell from the files that are rendered. `read`: gives one, by its path in the project; `kind`: bpf, or json for an engine."""
    rules = read(f".wavegen/rules/{shell}").decode("utf-8", "surrogateescape")
    named = next((line.split("\t")[1] for line in rules.split("\n") if line.startswith("seccomp\t")), "")
    base = read(".wavegen/rules/base").decode("utf-8", "surrogateescape")
    return Launch(rules + base, read(f".wavegen/seccomp/{named}.{kind}") if named else b"")


def memory_descriptors(launch: Launch) -> tuple[int, ...]:
    """Descriptors, of no files, from which the launcher reads: the rules, and the filter where there is one. Raises OSError."""
    handles: list[int] = []
    try:
        if launch.filter:
            handles.append(_create_memory_file(launch.filter))
        rules = launch.rules
        if handles:
            rules = f"seccomp\t@{handles[0]}\t-\n" + "".join(line for line in rules.splitlines(keepends=True) if not line.startswith("seccomp\t"))
        handles.insert(0, _create_memory_file(rules.encode("utf-8", "surrogateescape")))
    except OSError:
        for handle in handles:
            os.close(handle)
        raise
    return tuple(handles)


def _create_memory_file(data: bytes) -> int:
    handle = os.memfd_create("wavegen")
    with os.fdopen(os.dup(handle), "wb") as stream:
        stream.write(data)
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def launcher_arguments(rules: int, root: str, options: Sequence[str], command: Sequence[str]) -> list[str]:
    """The command line of the launcher: wavegen's own, never the project's. `rules`: the first of `in_memory`; `options`: words for the launcher itself."""
    main = os.path.join(resources.package_directory(), "launcher", "__main__.py")
    return [sys.executable, "-I", "-S", "-X", "utf8", main, f"@{rules}", "--project", root, *options, *(["--", *command] if command else [])]


def exec_launcher(launch: Launch, root: str, options: Sequence[str], command: Sequence[str]) -> NoReturn:
    """Become the launcher. Raises OSError."""
    handles = memory_descriptors(launch)
    for handle in handles:
        os.set_inheritable(handle, True)  # noqa: FBT003
    # What is ignored stays so in other programs.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGPIPE, signal.SIGXFSZ)}
    try:
        os.execv(sys.executable, launcher_arguments(handles[0], root, options, command))
    finally:
        for handle in handles:
            os.close(handle)
        for number, act in before.items():
            signal.signal(number, act if act is not None else signal.SIG_DFL)
