"""Whose tentative rows a column marks: those of a union of the same query, or what a reader gets of
an operator of another query. The metadata of the column name them, and every task is told."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from trailmark.values import dataclass

#: In the metadata of the column.
MARKED = "trailmark.mark"


@dataclass(frozen=True, slots=True)
class MarkedBy:
    """A union by its full path; or an operator by its path and the name under which it is read."""

    path: str
    reader: str | None = None

    @property
    def place(self) -> tuple[str, str]:
        """Where it is among others, whoever asks."""
        return self.path, self.reader or ""


def marking(whose: Iterable[MarkedBy]) -> dict[str, str]:
    """The metadata of a column that marks rows of these."""
    named = [each.path if each.reader is None else [each.path, each.reader] for each in whose]
    return {MARKED: json.dumps(named)}


def marked_by(metadata: Mapping[str, Any]) -> tuple[MarkedBy, ...]:
    """Those that the metadata of a column name."""
    named = json.loads(metadata[MARKED])
    return tuple(MarkedBy(each) if isinstance(each, str) else MarkedBy(*each) for each in named)
