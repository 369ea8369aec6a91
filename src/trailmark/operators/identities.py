"""Identities of the pieces of a state: what tells one window from another, in the table and in the
logs.

They follow from an operator's description alone, so that a log can be walked without the functions
that wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import whole_numbers
from trailmark.records import START
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable, TableLayout
from trailmark.windows.spec import window_from_description


class Identities:
    """Keys, and for windows of which a key can have several the start."""

    def __init__(self, keys: KeyLayout, has_start: bool) -> None:
        self._layout = TableLayout(keys, np.dtype([]), has_start=has_start, by_start=True)

    @classmethod
    def from_description(cls, described: Mapping[str, Any], input_schema: pa.Schema) -> Identities:
        """Those of an operator, from what its logs say about it."""
        keys = KeyLayout([input_schema.field(name) for name, _ in described["by"]])
        return cls(keys, window_from_description(described["window"]).has_start)

    def new_set(self) -> StateTable:
        """An empty set of identities."""
        return StateTable(self._layout, Memory())

    def add(self, rows: pa.RecordBatch, seen: StateTable) -> npt.NDArray[np.bool_]:
        """Adds the identities of results, closed pieces or footprints to a set, and tells which
        were new."""
        starts = whole_numbers(rows, START) if self._layout.has_start else None
        return seen.add_identities(seen.encode_keys(rows), starts)
