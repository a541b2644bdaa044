"""Pages for man(1), written from what --help says: one for the program, one for each verb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

SECTION = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What --help says about one command. `name` is how it is called, `wavegen seccomp explain`; `text` as it was written, with \\b before what keeps its lines."""

    name: str
    summary: str
    usage: str
    text: str
    epilog: str
    options: tuple[tuple[str, str], ...]
    """How each is written, and what it does."""
    verbs: tuple[tuple[str, str], ...]
    """The names of what stands below it, and what each does, in a line."""


def file_of(name: str) -> str:
    """The file of a command's page: `wavegen seccomp explain` is `wavegen-seccomp-explain.1`."""
    return f"{name.replace(' ', '-')}.{SECTION}"


def render_roff(page: Page, *, version: str, all_names: tuple[str, ...]) -> str:
    """The source of a page, in man(7). It bears the version, and no date: the same command line gives the same bytes."""
    return "\n".join(_roff_lines(page, version, all_names)) + "\n"


def _roff_lines(page: Page, version: str, all_names: tuple[str, ...]) -> Iterator[str]:
    dashed = page.name.replace(" ", "-")
    yield f'.TH {_roff_argument(dashed.upper())} {SECTION} "" {_roff_argument(f"wavegen {version}")} {_roff_argument("wavegen")}'
    # Neither words cut in two nor lines stretched: options and paths are read, and copied.
    yield ".nh"
    yield ".ad l"
    yield ".SH NAME"
    yield f"{_roff_text(dashed)} \\- {_roff_text(page.summary)}"
    yield ".SH SYNOPSIS"
    yield f".B {_roff_argument(page.name)}"
    if page.usage:
        yield _roff_text(page.usage)
    body, status = _split_exit_status(f"{page.text}\n\n{page.epilog}")
    yield ".SH DESCRIPTION"
    yield from _roff_paragraphs(body)
    for title, rows in (("OPTIONS", page.options), ("COMMANDS", page.verbs)):
        if rows:
            yield f".SH {title}"
            yield from _roff_terms(rows)
    if status:
        yield ".SH EXIT STATUS"
        yield from _roff_paragraphs(status)
    yield ".SH SEE ALSO"
    others = [name for name in all_names if name != page.name]
    yield from (f".BR {_roff_argument(name.replace(' ', '-'))} ({SECTION}){',' if name != others[-1] else ''}" for name in others)


def _split_exit_status(text: str) -> tuple[list[str], list[str]]:
    """The paragraphs, and apart from them those that say how the command ends."""
    body: list[str] = []
    status: list[str] = []
    for paragraph in re.split(r"\n{2,}", text.strip("\n")):
        stripped = paragraph.strip("\n")
        found = re.match(r"(?:The e|E)xit status\b(?:: )?", stripped)
        if not found:
            body.append(stripped)
        elif found.group().endswith(": "):
            status.append(stripped[found.end() :])
        else:
            status.append(stripped)
    return body, status


def _roff_paragraphs(texts: list[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        first, _, rest = text.partition("\n")
        if number:
            yield ".PP"
        if first.strip() != "\b":
            yield _roff_text(" ".join(text.split()))
            continue
        yield ".nf"
        yield from (_roff_text(line.rstrip()) for line in rest.splitlines())
        yield ".fi"


def _roff_terms(rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for term, what in rows:
        yield ".TP"
        yield f".B {_roff_argument(term)}"
        yield _roff_text(" ".join(what.split()))


def _roff_text(line: str) -> str:
    """A line of text that roff prints as it is: no escape of its own, and no request where it begins with a dot."""
    safe = _escape_roff(line)
    return f"\\&{safe}" if safe.startswith((".", "'")) else safe


def _roff_argument(text: str) -> str:
    """One argument of a macro."""
    quoted = _escape_roff(text).replace('"', r"\(dq")
    return f'"{quoted}"'


def _escape_roff(text: str) -> str:
    # A bare - may become a typographic hyphen, ' a quotation mark, ^ and ~ accents: then what is copied does not work.
    special = {"\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}
    return "".join(special.get(char, char if char.isascii() else f"\\[u{ord(char):04X}]") for char in text)
