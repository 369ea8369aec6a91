"""What the page is made of: places with facts, tables, and a state in a word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal, TypeAlias

from trailmark.units import printable
from trailmark.values import dataclass

#: How something is: colour, sign and word go by it.
State: TypeAlias = Literal["good", "warning", "bad", "none"]

_ORDER: dict[State, int] = {"none": 0, "good": 1, "warning": 2, "bad": 3}


def worst(states: Sequence[State]) -> State:
    """The worst of several states."""
    return max(states, key=lambda state: _ORDER[state], default="none")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table; one that is ``minor`` is left out where there is little room."""

    title: str
    is_number: bool = True
    is_minor: bool = False

    def to_json(self) -> list[Any]:
        return [self.title, self.is_number, self.is_minor]


#: A text, or a text and how good or bad it is.
Cell: TypeAlias = str | tuple[str, State]


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Parameters
    ----------
    name, caption
        What tells it from other tables of the place, and what it shows.
    columns, rows
        Its cells; the first of a row names the row.
    order
        Places of the rows in another order, and what that is called; nothing if there is none.
    picks
        Whether a row can be picked, to be drawn in the chart.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    order: Sequence[int] = ()
    picks: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "caption": self.caption,
            "columns": [column.to_json() for column in self.columns],
            "rows": [[_cell(cell) for cell in row] for row in self.rows],
            "order": list(self.order),
            "picks": self.picks,
        }


@dataclass(frozen=True, slots=True)
class Shown:
    """A place on the page.

    Parameters
    ----------
    kind, path, title
        What it is, where it is, and what it does.
    state, word
        How it is.
    facts
        Names and values.
    tables
        The details.
    trouble
        What is wrong, in words.
    has_chart
        Whether there is a recovery to predict.
    """

    kind: str
    path: str
    title: str
    state: State
    word: str
    facts: Sequence[tuple[str, Cell]] = ()
    tables: Sequence[Table] = ()
    trouble: Sequence[str] = field(default_factory=tuple)
    has_chart: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "path": printable(self.path),
            "title": printable(self.title),
            "state": self.state,
            "word": printable(self.word),
            "facts": [[name, _cell(value)] for name, value in self.facts],
            "tables": [table.to_json() for table in self.tables],
            "trouble": list(map(printable, self.trouble)),
            "has_chart": self.has_chart,
        }


def _cell(cell: Cell) -> str | list[str]:
    return printable(cell) if isinstance(cell, str) else [printable(cell[0]), cell[1]]
