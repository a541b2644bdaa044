"""What the filtered shells' launchers wrote about the network, as a table and as what the manifest would have to say.

The names in it were chosen by whoever ran inside: nothing of it is printed as it stands, and nothing that is no valid entry as YAML.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from itertools import groupby
from typing import Any, BinaryIO, NoReturn

from wavegen.core.errors import MachineError, one_line
from wavegen.policy.model import Policy
from wavegen.project.loader import Project
from wavegen.project.state_dir import state_directory

LOG = "network.jsonl"
OLDER = "network.jsonl.1"

_LINE_MAX = 65536
_NAME_MAX = 253  # RFC 1035: what is longer is no name
_PORT_MAX = 65535
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z")


class Verdict(Enum):
    """What the launcher did."""

    ALLOW = "allow"
    DENY = "deny"
    ERROR = "error"
    """Let through, but out of reach."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A line of the log."""

    time: datetime
    shell: str
    verdict: Verdict
    via: str
    name: str
    port: int
    """0 where it is not known, as for a question to the DNS."""
    address: str | None
    rule: str | None
    line: str | None
    up: int
    down: int
    ms: int
    reason: str
    pid: int = 0
    """The launcher's process, which is the wrapper's; 0 where it is not told."""
    text: str = field(repr=False)
    """The line as it was written."""


@dataclass(frozen=True, slots=True)
class Log:
    """What was read, oldest first."""

    decisions: tuple[Decision, ...]
    unreadable: int
    found: bool
    """Whether there is a log at all."""


# --- reading


class Mark:
    """Where a shell's log ended at one time: what stands behind that was written later."""

    def __init__(self, directory: str) -> None:
        """`directory`: what is kept for the shell."""
        self._directory = directory
        self._sizes: dict[tuple[int, int], int] = {}
        with contextlib.ExitStack() as streams:
            for name in (OLDER, LOG):
                if stream := _open_network_log(os.path.join(directory, name), streams):
                    found = os.fstat(stream.fileno())
                    self._sizes[found.st_dev, found.st_ino] = found.st_size

    def decisions_since_mark(self, shell: str, pid: int) -> Iterator[Decision]:
        """What the launcher with this process id has decided since, oldest first. Raises MachineError for a log that cannot be read."""
        for lines in _lines_by_file(self._directory, self._sizes):
            for line in lines:
                decided = parse_decision(line, shell)
                if decided and decided.pid == pid:
                    yield decided


def read_network_log(project: Project, shells: Sequence[Policy]) -> Log:
    """The logs of these shells of a project, by time. Raises MachineError for one that cannot be read."""
    decisions: list[Decision] = []
    unreadable, found = 0, False
    for shell in shells:
        for lines in _lines_by_file(os.path.join(state_directory(project.root), shell.name)):
            found = True
            for line in lines:
                decided = parse_decision(line, shell.name)
                if decided:
                    decisions.append(decided)
                else:
                    unreadable += 1
    return Log(tuple(sorted(decisions, key=lambda decided: decided.time)), unreadable, found)


def _lines_by_file(directory: str, sizes: Mapping[tuple[int, int], int] | None = None) -> Iterator[Iterator[bytes]]:
    """The lines of each file, the older one first; both are opened before, so that none is read twice if they are rotated meanwhile.

    `sizes`: by device and inode, what of a file is left out.
    """
    with contextlib.ExitStack() as streams:
        newer, older = (_open_network_log(os.path.join(directory, name), streams) for name in (LOG, OLDER))
        if older and not (newer and os.path.sameopenfile(newer.fileno(), older.fileno())):
            yield _unread_lines(older, sizes)
        if newer:
            yield _unread_lines(newer, sizes)


def _unread_lines(stream: BinaryIO, sizes: Mapping[tuple[int, int], int] | None) -> Iterator[bytes]:
    if sizes:
        found = os.fstat(stream.fileno())
        stream.seek(sizes.get((found.st_dev, found.st_ino), 0))
    while line := stream.readline(_LINE_MAX):
        yield line


def _open_network_log(path: str, streams: contextlib.ExitStack) -> BinaryIO | None:
    try:
        # Opening a FIFO would wait for a writer.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as failed:
        raise MachineError(f"{path} cannot be read: {failed.strerror}", "check its permissions") from None
    stream = streams.enter_context(os.fdopen(handle, "rb"))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        raise MachineError(f"{path} is not a file", "remove it: launchers write it anew")
    return stream


# --- a line


def parse_decision(line: bytes, shell: str) -> Decision | None:
    """A line of a shell's log; None for what is none: torn by a crash, or of another shape."""
    try:
        text = line.decode("utf-8").strip()
        value = json.loads(text, parse_constant=_reject_constant)
        if not isinstance(value, dict) or _typed_value(value, "shell", str) != shell:
            return None
        return Decision(
            time=_parse_time(_typed_value(value, "time", str)),
            shell=shell,
            verdict=Verdict(_typed_value(value, "verdict", str)),
            via=_typed_value(value, "via", str),
            name=_typed_value(value, "name", str),
            port=_bounded_number(value, "port", _PORT_MAX),
            address=_optional_text(value, "address"),
            rule=_optional_text(value, "rule"),
            line=_optional_text(value, "line"),
            up=_bounded_number(value, "up"),
            down=_bounded_number(value, "down"),
            ms=_bounded_number(value, "ms"),
            reason=_typed_value(value, "reason", str),
            pid=_bounded_number(value, "pid") if "pid" in value else 0,
            text=text,
        )
    except (ValueError, RecursionError):
        return None


def _reject_constant(word: str) -> NoReturn:
    message = f"{word} is no JSON"
    raise ValueError(message)


def _typed_value(value: Mapping[str, Any], key: str, kind: type) -> Any:
    if type(value.get(key)) is not kind:  # True is an int, too
        message = f"{key} is no {kind.__name__}"
        raise ValueError(message)
    return value[key]


def _optional_text(value: Mapping[str, Any], key: str) -> str | None:
    return None if value.get(key) is None else str(_typed_value(value, key, str))


def _bounded_number(value: Mapping[str, Any], key: str, most: int = 2**63) -> int:
    number = int(_typed_value(value, key, int))
    if not 0 <= number <= most:
        message = f"{key} is out of range"
        raise ValueError(message)
    return number


def _parse_time(text: str) -> datetime:
    if not _TIME.fullmatch(text):
        message = "no time"
        raise ValueError(message)
    return datetime.fromisoformat(text).astimezone(UTC)


def json_line(decided: Decision) -> str:
    """The line as it was written; what a terminal could obey is spelled out, which is the same JSON."""
    if decided.text.isprintable():
        return decided.text
    return json.dumps(json.loads(decided.text))


# --- the table

REASONS = {
    "": "",
    "not-listed": "no entry allows it",
    "denied": "a deny rule refuses it",
    "port": "its entry does not allow this port",
    "bad-name": "not a host name",
    "literal": "an address instead of a name",
    "local-name": "a name of the local network",
    "not-public": "its address is not a public one",
    "metadata": "its address is a cloud's metadata service",
    "own-address": "its address is one of this machine's own",
    "unresolved": "the name was not found",
    "unreachable": "no connection came about",
    "sni-missing": "the client named no server (SNI)",
    "sni-mismatch": "the client named another server (SNI)",
    "not-tls": "not TLS, on a port that is for TLS",
    "method": "a request of a kind that the proxy does not take",
    "bad-request": "a request that cannot be understood",
    "limit": "too many at once",
    "timeout": "no answer in time",
    "loopback-port": "a port of the host's loopback that is not let in",
    "ended": "the shell ended first",
}
_HEADER = ("time (UTC)", "shell", "verdict", "name:port", "up", "down", "ms", "why")
_WIDEST = 48
_RIGHT = frozenset({4, 5, 6})


def was_refused(decided: Decision) -> bool:
    """Whether somebody did not get what they asked for."""
    return decided.verdict is not Verdict.ALLOW


def render_decision_table(decisions: Iterable[Decision]) -> Iterator[str]:
    """Lines for people, one a decision; the same refusal several times in a row is one line."""
    rows = [_HEADER, *(_table_row(tuple(group)) for _, group in groupby(enumerate(decisions), key=_grouping_key))]
    if len(rows) == 1:
        return
    widths = [min(_WIDEST, max(len(row[column]) for row in rows)) for column in range(len(_HEADER) - 1)]
    for row in rows:
        cells = [f"{cell:>{width}}" if column in _RIGHT else f"{cell:<{width}}" for column, (cell, width) in enumerate(zip(row, widths, strict=False))]
        yield "  ".join((*cells, row[-1])).rstrip()


def _grouping_key(numbered: tuple[int, Decision]) -> tuple[object, ...]:
    number, decided = numbered
    return (decided.shell, decided.verdict, decided.name, decided.port, decided.reason) if was_refused(decided) else (number,)


def _table_row(group: tuple[tuple[int, Decision], ...]) -> tuple[str, ...]:
    first = group[0][1]
    times = f" (x{len(group)})" if len(group) > 1 else ""
    up, down = (format_byte_count(sum(getattr(decided, way) for _, decided in group)) for way in ("up", "down"))
    return (
        format_time(first.time),
        escape_to_ascii(first.shell),
        first.verdict.value,
        decision_target(first) + times,
        up,
        down,
        str(first.ms),
        decision_reason(first),
    )


def decision_reason(decided: Decision) -> str:
    """The rule with its line, or the reason in words; both where a rule led to the reason."""
    rule = (
        f"{escape_to_ascii(decided.rule)}  # {one_line(decided.line)}" if decided.rule and decided.line else escape_to_ascii(decided.rule or decided.line or "")
    )
    reason = REASONS.get(decided.reason, escape_to_ascii(decided.reason))
    return f"{reason}: {rule}" if reason and rule else reason or rule


def decision_target(decided: Decision) -> str:
    """`name:port`, or the name where no port is known."""
    name = escape_to_ascii(decided.name[:_NAME_MAX]) + ("…" if len(decided.name) > _NAME_MAX else "")
    if not decided.port:
        return name
    return f"[{name}]:{decided.port}" if ":" in name and not name.startswith("[") else f"{name}:{decided.port}"


def escape_to_ascii(text: str) -> str:
    """The text without anything that could pass for another cell, another letter or a command to the terminal."""
    return "".join(c if "!" <= c <= "~" else f"\\x{ord(c):02x}" for c in text)


def format_time(time: datetime) -> str:
    """To the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S")


def format_byte_count(count: int) -> str:
    """Bytes, with k, M, G or T behind the number from a thousand on."""
    if count < 1000:  # noqa: PLR2004
        return str(count)
    scaled, unit = float(count), ""
    for unit in "kMGT":  # noqa: B007
        scaled /= 1000
        if scaled < 999.95:  # noqa: PLR2004  what would be shown as 1000.0
            break
    return f"{scaled:.1f}{unit}"
