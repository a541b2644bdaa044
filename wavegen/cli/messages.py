"""What the verbs of the command line have in common: the option that names the manifest, and how messages are printed."""

from __future__ import annotations

import sys
from typing import Any

import click

from wavegen.core import terminal

MANIFEST = click.option("-m", "--manifest", metavar="FILE", help="The manifest. Default: wave.yaml here or in the nearest directory above.")


def say(line: str) -> None:
    """Print a message to stderr."""
    colour = terminal.coloured(sys.stderr)
    # What is not ours to colour holds no control characters; click would take ours away where no terminal is.
    click.echo(terminal.message(line, colour=colour), err=True, color=colour or None)


def tell(severity: str, what: str) -> None:
    """Print a message that no line of an input is the cause of."""
    say(f"wavegen: {severity}: {what}")


def show(notes: Any, gaps: Any) -> None:
    """Print problems, and gaps as problems."""
    for problem in (*notes, *(gap.problem() for gap in gaps)):
        say(problem.line())


def refuse(gaps: Any, sources: dict[str, str]) -> None:
    """Raise ManifestError where rendering a gap would be a lie."""
    from wavegen.core.errors import ManifestError

    fatal = tuple(gap.problem() for gap in gaps if gap.fatal)
    if fatal:
        raise ManifestError(fatal, sources)


def counted(count: int, one: str, more: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count} {one if count == 1 else more}"
