"""Bars of what was measured in turns, as SVG: the median, and a line from the least to the most."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from side_by_side import Measured

WIDTH, LEFT, RIGHT, ROW, HEAD = 920, 300, 130, 24, 58
# Readable on white and on black alike.
INK, LINE, OURS, OTHERS, BASE = "#7a7f87", "#9aa0a8", "#2f81f7", "#b08030", "#6e7681"
STYLE = f"text{{font:13px ui-monospace,Menlo,Consolas,monospace;fill:{INK}}}.t{{font-weight:bold;font-size:15px}}"


def chart(measured: Iterable[Measured]) -> str:
    """One picture, a panel for each: bars in its unit, and the ratio to its first row beside them."""
    panels, height = [], 12
    for one in measured:
        panels.append(f'<g transform="translate(0 {height})">{"".join(_panel(one))}</g>')
        height += HEAD + ROW * len(one.columns)
    body = "\n".join(panels)
    title = "<title>What was measured side by side: medians, and lines from the least to the most</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img">{title}<style>{STYLE}</style>\n{body}\n</svg>\n'


def _panel(one: Measured) -> Iterable[str]:
    yield f'<text class="t" x="12" y="18">{escape(one.title)}</text><text x="12" y="36">{one.unit}; ratios to the first row: median of the turns</text>\n'
    # The bars go to the largest median; what was now and then more than a third longer still leaves the picture.
    scale = (WIDTH - LEFT - RIGHT) / (1.35 * max(median(values) for values in one.columns.values()))
    for number, (name, values) in enumerate(one.columns.items()):
        y = HEAD - 14 + ROW * number
        end = LEFT + scale * median(values)
        least, most = (min(LEFT + scale * value, WIDTH - RIGHT) for value in (min(values), max(values)))
        ratio, _, _ = one.spread(name)
        yield f'<text x="{LEFT - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>'
        yield f'<rect x="{LEFT}" y="{y + 2}" width="{max(end - LEFT, 1):.1f}" height="{ROW - 8}" rx="2" fill="{_colour(one, name)}"/>'
        yield f'<path d="M{least:.1f} {y + 10}H{most:.1f}M{least:.1f} {y + 6}v8M{most:.1f} {y + 6}v8" stroke="{LINE}" stroke-width="1.5" fill="none"/>'
        yield f'<text x="{WIDTH - RIGHT + 8}" y="{y + 13}">{_figure(median(values))}  {ratio:.2f}×</text>\n'


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"  # noqa: PLR2004


def _colour(one: Measured, name: str) -> str:
    """Ours, what it is compared with, and the others."""
    if name == one.base or name.startswith("bwrap"):
        return BASE
    return OURS if name.startswith(("bin/", "docker/", "render", "verify", "wavegen", "transparent", "CONNECT", "SOCKS5", "--help", "DNS")) else OTHERS
