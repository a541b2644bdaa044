"""Where something is wrong, what is wrong, and the few exceptions that carry it to the command line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class Severity(Enum):
    """How a `Problem` is shown; only ERROR stops a command."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    GAP = "gap"


@dataclass(frozen=True, slots=True)
class Location:
    """A place in an input file; lines and columns count from 1, and 0 means the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One finding about an input. `at` is None where a default, not a line of the user's, is the cause."""

    at: Location | None
    severity: Severity
    what: str
    hint: str = ""

    def message_line(self) -> str:
        """`file:line:col: error: what (hint)`, one line whatever the manifest's strings hold."""
        where = f"{self.at}: " if self.at else "wavegen: "
        hint = f" ({self.hint})" if self.hint else ""
        return one_line(f"{where}{self.severity.value}: {self.what}{hint}")

    def source_order(self) -> tuple[str, int, int, str]:
        """The sort key: by file, line and column; what has no place comes last."""
        if self.at is None:
            return ("\U0010ffff", 0, 0, self.what)
        return (self.at.file, self.at.line, self.at.column, self.what)


def one_line(text: str) -> str:
    """The same text with control characters spelled out, so that a message cannot forge a second one."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def with_excerpt(problem: Problem, sources: Mapping[str, str]) -> str:
    """The problem's line, and below it the line of the source with a caret under the column."""
    at = problem.at
    if at is None or not at.line or at.file not in sources:
        return problem.message_line()
    # Not splitlines(): YAML breaks lines at LF, CR, NEL, LS and PS only, and the marks count those.
    lines = _yaml_lines(sources[at.file])
    if at.line > len(lines):
        return problem.message_line()
    source = lines[at.line - 1]
    if not source.strip():
        return problem.message_line()
    start = max(0, at.column - 1 - 60)
    shown = one_line(source.replace("\t", " ")[start : start + 120])
    caret = " " * max(0, at.column - 1 - start) + "^"
    return f"{problem.message_line()}\n    {shown}\n    {caret}"


def _yaml_lines(text: str) -> list[str]:
    for other in ("\r\n", "\r", "\x85", "\u2028", "\u2029"):
        text = text.replace(other, "\n")
    return text.split("\n")


class InvalidValueError(Exception):
    """A value of the manifest, or of a command line, that means nothing: what is wrong with it, and what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint


class WavegenError(Exception):
    """An expected failure: `exit_code` and the lines to print. Anything else that is raised is a bug."""

    exit_code = 70

    def message_lines(self) -> tuple[str, ...]:
        """What to print on stderr, already in its final form."""
        return (one_line(str(self)),)


class ManifestError(WavegenError):
    """The manifest cannot be used; all of its problems at once."""

    exit_code = 2

    def __init__(self, problems: tuple[Problem, ...], sources: Mapping[str, str]) -> None:
        super().__init__(f"{len(problems)} problems")
        self.problems = tuple(sorted(problems, key=Problem.source_order))
        self.sources = sources

    def message_lines(self) -> tuple[str, ...]:
        """Every problem with its excerpt."""
        return tuple(with_excerpt(problem, self.sources) for problem in self.problems)


class UsageError(WavegenError):
    """The command was called in a way that cannot work."""

    exit_code = 2

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"wavegen: error: {what} ({hint})")


class MachineError(WavegenError):
    """This machine lacks something, or its file system refused."""

    exit_code = 3

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"wavegen: error: {what} ({hint})")


class DriftError(WavegenError):
    """What is on the disk is not what the manifest renders."""

    exit_code = 1

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"wavegen: error: {what} ({hint})")


class FenceError(WavegenError):
    """The fence could not be built, so the command was not run."""

    exit_code = 125

    def __init__(self, what: str, hint: str, said: str = "") -> None:
        """`said`: all that was written to stderr meanwhile, as bwrap's own words may be."""
        super().__init__(f"wavegen: error: {what} ({hint})")
        self.said = said
