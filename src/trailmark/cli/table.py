"""Text in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from trailmark.cli.terminal import Paint, Style


class Cell(NamedTuple):
    """A piece of text in one column."""

    text: str
    style: Style = "plain"


def columns(
    titles: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    paint: Paint,
    *,
    left: frozenset[str] = frozenset(),
) -> list[str]:
    """Lines of a table; numbers stand to the right, columns named in ``left`` to the left."""
    widths = [
        max([len(title), *(len(row[place].text) for row in rows)])
        for place, title in enumerate(titles)
    ]
    head = [Cell(title, "bold") for title in titles]
    return [_line(row, titles, widths, paint, left) for row in [head, *rows]]


def _line(
    row: Sequence[Cell],
    titles: Sequence[str],
    widths: Sequence[int],
    paint: Paint,
    left: frozenset[str],
) -> str:
    parts = []
    for cell, title, width in zip(row, titles, widths, strict=True):
        space = " " * (width - len(cell.text))
        text = paint(cell.text, cell.style)
        parts.append(f"{text}{space}" if title in left else f"{space}{text}")
    return "  ".join(parts).rstrip()
