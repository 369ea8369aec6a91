"""Which windows have changed since the last delta: a byte per slot, in the table's memory."""

from __future__ import annotations

import numpy as np

from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import OPENED_PLACE, Slots, StateTable


class Changes:
    """A set of windows, named by their slots."""

    def __init__(self, memory: Memory) -> None:
        self._region = memory.region("changes", PAGE)

    def add(self, slots: Slots) -> None:
        if not len(slots):
            return
        largest = int(slots.max())
        if largest >= self._region.size:
            self._region.grow(largest + 1 + self._region.size // 2)
        self._region.bytes[slots] = 1

    def take(self, table: StateTable) -> Slots:
        """The windows in it that are still open; the set is empty afterwards."""
        slots = np.flatnonzero(self._region.bytes).astype(np.int64)
        self.clear()
        return slots[table.read_field(slots, OPENED_PLACE) >= 0]

    def clear(self) -> None:
        self._region.bytes[:] = 0
