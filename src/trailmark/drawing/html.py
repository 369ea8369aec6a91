"""Drawings as a piece of a page, for notebooks.

It brings its looks along, in attributes: notebooks drop style sheets, and are light or dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from trailmark.drawing.parts import Cell, Line, Part, Style, Table
from trailmark.units import printable

#: Colours that can be read on white and on black.
_LOOKS: dict[Style, str] = {
    "plain": "",
    "bold": "font-weight:600",
    "dim": "opacity:.65",
    "good": "color:#1a8a4a",
    "warning": "color:#b07200",
    "bad": "color:#d6453d",
}
_LINES = "margin:0 0 .6em;white-space:pre-wrap;background:none;font-size:.9em"
_WIDE = "margin:0 0 .6em;overflow-x:auto"
_TABLE = (
    "border-collapse:collapse;color:inherit;font-size:.9em;font-variant-numeric:tabular-nums;"
    "white-space:nowrap"
)
_CELL = "padding:.15em .6em;background:none"


def html_of(parts: Sequence[Part]) -> str:
    """The parts as HTML, in which no text of theirs is markup."""
    return "".join(_groups(parts))


def _groups(parts: Sequence[Part]) -> Iterator[str]:
    for is_table, group in groupby(parts, lambda part: isinstance(part, Table)):
        if is_table:
            yield from (_table(part) for part in group if isinstance(part, Table))
        else:
            texts = [_line(part) for part in group if isinstance(part, Line)]
            yield f'<pre style="{_LINES}">{chr(10).join(texts).strip(chr(10))}</pre>'


def _line(line: Line) -> str:
    return "".join(
        f'<span style="{_LOOKS[cell.style]}">{text_in_html(cell.text)}</span>'
        if _LOOKS[cell.style]
        else text_in_html(cell.text)
        for cell in line.cells
    )


def _table(table: Table) -> str:
    titles = [Cell(title, "bold") for title in table.titles]
    rows = "".join(_row(row, table, "td") for row in table.rows)
    head = _row(titles, table, "th")
    markup = f'<table style="{_TABLE}"><thead>{head}</thead><tbody>{rows}</tbody></table>'
    return f'<div style="{_WIDE}">{markup}</div>'


def _row(row: Sequence[Cell], table: Table, tag: str) -> str:
    cells = []
    for cell, title in zip(row, table.titles, strict=True):
        side = "left" if title in table.left else "right"
        look = f"{_CELL};text-align:{side};{_LOOKS[cell.style]}".rstrip(";")
        cells.append(f'<{tag} style="{look}">{text_in_html(cell.text)}</{tag}>')
    return f"<tr>{''.join(cells)}</tr>"


def text_in_html(text: str) -> str:
    """A text that is neither markup nor a trick, also where it stands in an attribute."""
    return escape(printable(text))
