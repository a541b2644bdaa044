"""A hook of MkDocs (mkdocs.yml): a link from docs/ to another file of the repository becomes the name of that file.

The site has no page for such a file, and the project names no address at which the repository could be read.
"""

from __future__ import annotations

import re

_LINK = re.compile(r"\[([^]]+)\]\(\.\./([^)#\s]+)[^)\s]*\)")


def on_page_markdown(markdown: str, **_: object) -> str:
    """The page without links that lead out of docs/."""
    return _LINK.sub(_name_file, markdown)


def _name_file(link: re.Match[str]) -> str:
    text, path = link.groups()
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}`)"
