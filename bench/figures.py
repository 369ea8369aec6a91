"""A figure is a name, a value, and the limit it has to keep: one line each."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Figure:
    """``limit`` None: a figure to compare with, not one to keep."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    sense: Literal["at most", "at least"] = "at most"

    @property
    def is_short(self) -> bool:
        if self.limit is None:
            return False
        return self.value > self.limit if self.sense == "at most" else self.value < self.limit

    def __str__(self) -> str:
        value = f"{self.value:,.3f} {self.unit}".strip()
        if self.limit is None:
            return f"{self.name:<58} {value:>22}"
        limit = f"{self.sense} {self.limit:,g}"
        return f"{self.name:<58} {value:>22}   {limit:<20} {'short' if self.is_short else 'ok'}"


class Report:
    """Prints figures as they come and remembers whether any was short."""

    def __init__(self) -> None:
        self.figures: list[Figure] = []

    def add(self, figure: Figure) -> None:
        self.figures.append(figure)
        print(figure, flush=True)

    def note(self, text: str) -> None:
        """Says what is going on, where a person looks but a script does not."""
        print(f"... {text}", file=sys.stderr, flush=True)

    @property
    def exit_code(self) -> int:
        return int(any(figure.is_short for figure in self.figures))
