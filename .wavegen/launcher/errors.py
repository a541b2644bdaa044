"""How the launcher refuses: one sentence, one thing to do, exit status 125, nothing was run."""

from __future__ import annotations

import errno

CANNOT_START = 125
"""The exit status of a start that failed: the sandbox could not be built, and nothing was run."""

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class CannotStartError(Exception):
    """The sandbox cannot be built: what is wrong and what to do about it."""

    def __init__(self, what: str, remedy: str, status: int = CANNOT_START) -> None:
        super().__init__(what)
        self.what, self.remedy, self.status = what, remedy, status

    def __str__(self) -> str:
        return escape_unprintable(f"{self.what} ({self.remedy})")


def escape_unprintable(text: str) -> str:
    """A text without control characters, for a terminal: names that a command chose may hold escape sequences and forged lines."""
    return "".join(character if _is_plain(character) else _escape_character(character) for character in text)


def _is_plain(character: str) -> bool:
    return character.isprintable() or character == " "


def _escape_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is no UTF-8 (surrogateescape)
        code -= 0xDC00
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
