"""Identities of the pieces of a state: what tells one window from another, in the table and in the
logs.

They follow from an operator's description alone, so that a log can be walked without the functions
that wrote it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import column_type, whole_numbers
from trailmark.records import START
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable, TableLayout


class Identities:
    """Keys, and for windows of which a key can have several the start."""

    def __init__(self, keys: KeyLayout, has_start: bool) -> None:
        self._layout = TableLayout(keys, np.dtype([]), has_start=has_start, by_start=True)

    @property
    def has_start(self) -> bool:
        """Whether a key can have several pieces at a time."""
        return self._layout.has_start

    def new_set(self) -> StateTable:
        """An empty set of identities."""
        return StateTable(self._layout, Memory())

    def trouble(self, rows: pa.RecordBatch) -> str:
        """What is wrong with the columns that hold the identities of logged rows; empty if nothing
        is. The kernel takes them as they are."""
        for field in self._layout.keys.fields:
            if column_type(rows, field.name) != field.kind:
                return f"has no key {field.name!r} of type {field.kind}"
        if not self._layout.has_start:
            return ""
        kind = column_type(rows, START)
        is_whole = kind is not None and pa.types.is_signed_integer(kind)
        return "" if is_whole and not rows.column(START).null_count else "has no starts of windows"

    def add(self, rows: pa.RecordBatch, seen: StateTable) -> npt.NDArray[np.bool_]:
        """Adds the identities of results, closed pieces or footprints to a set, and tells which
        were new."""
        return seen.add_identities(seen.encode_keys(rows), self._starts(rows))

    def are_in(self, rows: pa.RecordBatch, seen: StateTable) -> npt.NDArray[np.bool_]:
        """Which of the identities are in a set."""
        return seen.are_identities(seen.encode_keys(rows), self._starts(rows))

    def _starts(self, rows: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        return whole_numbers(rows, START) if self._layout.has_start else None
