"""A hook of MkDocs (mkdocs.yml): a link from docs/ to a file of the repository, which is no page of the site, becomes plain text with the file's name."""

from __future__ import annotations

import re

_LINK = re.compile(r"\[([^]]+)\]\(\.\./([^)#\s]+)[^)\s]*\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page without links that lead out of docs/."""
    return _LINK.sub(_name_file, markdown)


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"
