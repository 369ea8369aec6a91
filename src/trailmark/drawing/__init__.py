"""What is seen of an operator, a stream, a union or a lease: lines and tables for people.

What it promises: the same words wherever somebody looks. A drawing is a list of `Line` and `Table`,
values that say what is a heading and what is bad, and nothing of how that looks. `lines_of` makes
plain text of them, `html_of` HTML, `trailmark.cli.terminal` has colours; `status` is what a
notebook shows.

What it leaves to others: looking (`trailmark.inspection`, `trailmark.watch`).
"""

from trailmark.drawing.html import html_of
from trailmark.drawing.kinds import draw
from trailmark.drawing.parts import Cell, Line, Part, Style, Table, line
from trailmark.drawing.shown import ShownStatus, status
from trailmark.drawing.text import lines_of

__all__ = [
    "Cell",
    "Line",
    "Part",
    "ShownStatus",
    "Style",
    "Table",
    "draw",
    "html_of",
    "line",
    "lines_of",
    "status",
]
