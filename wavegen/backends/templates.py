"""The one place that loads jinja2. Templates are logic-free; their filters are the functions of `quote`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from wavegen.core import quote, resources

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def _jinja_environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # slow: most verbs fill no template

    environment = Environment(  # noqa: S701  every value passes a filter that quotes, in HTML too
        loader=FileSystemLoader(resources.resource_directory("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        # jinja's own comment mark is bash's length of an array.
        comment_start_string="{@",
        comment_end_string="@}",
    )
    environment.filters.update(
        sh=quote.quote_bash,
        posix=quote.quote_posix,
        compose=quote.quote_compose,
        nix=quote.quote_nix,
        comment=lambda value: quote.escape_comment(str(value)),
        words=_quote_words,
    )
    environment.filters["html"] = lambda value: quote.escape_html(str(value))
    return environment


def _quote_words(words: tuple[str, ...]) -> str:
    return " ".join(quote.quote_bash(word) for word in words)


def fill_template(template: str, **values: object) -> str:
    """The text of a template with these values."""
    return _jinja_environment().get_template(template).render(values)
