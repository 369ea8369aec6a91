"""What drawings are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeAlias

from trailmark.values import dataclass

Style: TypeAlias = Literal["plain", "bold", "dim", "good", "warning", "bad"]


class Cell(NamedTuple):
    """A piece of text."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True, slots=True)
class Line:
    """Pieces that stand side by side; none of them for an empty line."""

    cells: tuple[Cell, ...] = ()

    @property
    def text(self) -> str:
        """What it says."""
        return "".join(cell.text for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Table:
    """Cells in columns. Numbers stand to the right, columns named in ``left`` to the left."""

    titles: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, titles: Sequence[str], rows: Sequence[Sequence[Cell]], left: frozenset[str]
    ) -> Table:
        """A table of rows that have as many cells as there are titles."""
        assert all(len(row) == len(titles) for row in rows)
        return cls(tuple(titles), tuple(map(tuple, rows)), left)


Part: TypeAlias = Line | Table


def line(*pieces: str | Cell) -> Line:
    """A line of plain and other pieces."""
    return Line(tuple(piece if isinstance(piece, Cell) else Cell(piece) for piece in pieces))


def warning_lines(texts: Sequence[str]) -> list[Part]:
    """How a drawing ends: what is wrong, if anything is."""
    return [line(), *(line(Cell(f"! {text}", "bad")) for text in texts)] if texts else []
