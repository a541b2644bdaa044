"""How output looks on a terminal: colour where somebody reads it there, and nowhere else.

NO_COLOR (no-color.org) wins; FORCE_COLOR and CLICOLOR_FORCE ask for colour where no terminal is, as in a CI's log.
"""

from __future__ import annotations

import os
import re
from enum import Enum
from typing import TextIO


class Style(Enum):
    """What a text means, as the parameters of SGR (ECMA-48)."""

    BAD = "1;31"
    WARNING = "33"
    GOOD = "32"
    NOTE = "36"
    FAINT = "2"
    STRONG = "1"


_SEVERITIES = {"error": Style.BAD, "warning": Style.WARNING, "gap": Style.WARNING, "note": Style.NOTE, "bug": Style.BAD}
_SEVERITY = re.compile(rf"(?<=: )({'|'.join(_SEVERITIES)})(?=: )")


def should_colour(stream: TextIO | None) -> bool:
    """Whether to colour what is written there. A stream that was closed before the start is None."""
    if stream is None or os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def apply_style(text: str, style: Style, *, colour: bool) -> str:
    """The text in a style; as it is without colour."""
    return f"\x1b[{style.value}m{text}\x1b[0m" if colour else text


def colour_severity(line: str, *, colour: bool) -> str:
    """A message `where: severity: what` with its severity in colour."""
    return _SEVERITY.sub(lambda found: apply_style(found[0], _SEVERITIES[found[0]], colour=colour), line, count=1)
