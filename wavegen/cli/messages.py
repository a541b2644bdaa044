"""What the verbs of the command line have in common: the option that names the manifest, and how messages are printed."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from wavegen.core import terminal

if TYPE_CHECKING:
    from wavegen.core.errors import Problem
    from wavegen.policy.model import Gap

MANIFEST = click.option("-m", "--manifest", metavar="FILE", help="The manifest. Default: wave.yaml here or in the nearest directory above.")


def print_message(line: str) -> None:
    """Print a message to stderr."""
    colour = terminal.should_colour(sys.stderr)
    # What is not ours to colour holds no control characters; click would take ours away where no terminal is.
    click.echo(terminal.colour_severity(line, colour=colour), err=True, color=colour or None)


def print_program_message(severity: str, what: str) -> None:
    """Print a message that no line of an input is the cause of."""
    print_message(f"wavegen: {severity}: {what}")


def print_problems(notes: Iterable[Problem], gaps: Iterable[Gap]) -> None:
    """Print problems, and gaps as problems."""
    for problem in (*notes, *(gap.as_problem() for gap in gaps)):
        print_message(problem.message_line())


def raise_fatal_gaps(gaps: Iterable[Gap], sources: dict[str, str]) -> None:
    """Raise ManifestError where rendering a gap would be a lie."""
    from wavegen.core.errors import ManifestError

    fatal = tuple(gap.as_problem() for gap in gaps if gap.fatal)
    if fatal:
        raise ManifestError(fatal, sources)


def format_count(count: int, one: str, more: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count} {one if count == 1 else more}"
