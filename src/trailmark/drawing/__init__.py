"""What is seen of an operator, a stream, a union or a lease: lines and tables for people.

What it promises: the same words wherever somebody looks. A drawing is a list of `Line` and `Table`,
values that say what is a heading and what is bad, and nothing of how that looks. `lines_of` makes
plain text of them, `trailmark.cli.terminal` has colours.

What it leaves to others: looking (`trailmark.inspection`, `trailmark.watch`).
"""

from trailmark.drawing.kinds import draw
from trailmark.drawing.parts import Cell, Line, Part, Style, Table, line
from trailmark.drawing.text import lines_of

__all__ = [
    "Cell",
    "Line",
    "Part",
    "Style",
    "Table",
    "draw",
    "line",
    "lines_of",
]
