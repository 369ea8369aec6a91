"""Drawings as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trailmark.drawing.parts import Line, Part, Table


def lines_of(parts: Sequence[Part]) -> list[str]:
    """The lines of a drawing."""
    return [text for part in parts for text in _lines(part)]


def _lines(part: Part) -> Iterator[str]:
    if isinstance(part, Line):
        yield part.text
        return
    texts = [part.titles, *([cell.text for cell in row] for row in part.rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "  ".join(_aligned(row, part, widths)).rstrip()


def _aligned(row: Sequence[str], table: Table, widths: Sequence[int]) -> Iterator[str]:
    for text, title, width in zip(row, table.titles, widths, strict=True):
        yield text.ljust(width) if title in table.left else text.rjust(width)
