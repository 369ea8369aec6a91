"""Which windows have changed since the last delta: a byte per slot, in the table's memory."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trailmark.operators.protocol import Pieces
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import Slots

#: First comes a number: the batch whose changes are to be added next; zero before the first.
_HEAD = 8


class Changes:
    """A set of windows, named by their slots, and up to which batch it is complete."""

    def __init__(self, memory: Memory) -> None:
        self._region = memory.region("changes", PAGE)

    @property
    def _next(self) -> npt.NDArray[np.int64]:
        return self._region.view("<i8", 1)

    @property
    def _marks(self) -> npt.NDArray[np.uint8]:
        return self._region.bytes[_HEAD:]

    def follow(self, batch: int, slots: Slots) -> bool:
        """Adds what a batch has changed, and tells whether all before it is there, too: the set is
        of no use otherwise."""
        if self._next[0] != batch:
            return False
        self._next[0] = batch + 1
        largest = int(slots.max(initial=0))
        if largest >= len(self._marks):
            self._region.grow(_HEAD + largest + 1 + self._region.size // 2)
        self._marks[slots] = 1
        return True

    def take(self, pieces: Pieces) -> Slots:
        """The windows in it that are still open; the set is empty afterwards."""
        slots = np.flatnonzero(self._marks).astype(np.int64)
        self._marks[:] = 0
        return slots[pieces.are_open(slots)]

    def begin(self, batch: int) -> None:
        """Empties the set: all that had changed up to the end of a batch is known otherwise."""
        self._marks[:] = 0
        self._next[0] = batch + 1
