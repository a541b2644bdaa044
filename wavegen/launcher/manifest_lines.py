"""In which line of the manifest an entry stands. Rules name the file alone, so that a line more changes no other: the line is looked up when it is said."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .host import Host
    from .rules import PathRule

_LARGEST = 1 << 20  # bytes of a manifest
_JOINED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-./~*$@")
"""What makes a longer word of an entry that it stands beside."""


def find_line(host: Host, project: str, origin: str, *entries: str) -> str:
    """The file that an origin names with the first line, comments apart, that has one of the entries (the first that any line has): `wave.yaml:12`.

    The file alone where no line has it, or nobody may read it; a default as it is.
    """
    file, _, reason = origin.partition(": ")
    if file == "default":
        return origin
    number = 0
    try:
        lines = host.read_host_file(f"{project}/{file}", _LARGEST).decode("utf-8", "replace").casefold().split("\n")
    except OSError:
        lines = []
    for entry in entries:
        number = number or next((at for at, line in enumerate(lines, 1) if _line_has_entry(line, entry.casefold())), 0)
    return (f"{file}:{number}" if number else file) + (f": {reason}" if reason else "")


def find_path_line(host: Host, project: str, rule: PathRule) -> str:
    """The same for a rule about a path, which the manifest may have without the `./`."""
    return find_line(host, project, rule.origin, rule.path, *((rule.path[2:],) if rule.path.startswith("./") else ()))


def _line_has_entry(line: str, entry: str) -> bool:
    line = f" {line}".partition(" #")[0]  # without a comment
    at = line.find(entry) if entry else -1
    while at >= 0:
        after = line[at + len(entry) :]
        after = after[1:] if after[:1] == "/" else after  # a directory may be written so
        if line[at - 1 : at] not in _JOINED and after[:1] not in _JOINED and not (after[:1] == ":" and after[1:2].isdigit()):
            return True
        at = line.find(entry, at + 1)
    return False
