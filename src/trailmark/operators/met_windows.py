"""The windows that one batch meets, with their states side by side for the aggregate functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from trailmark.kernel.library import NEED_WINDOWS, Local, address, kernel, reference
from trailmark.kernel.scratch import scratch
from trailmark.state.table import Slots, StateTable

#: What states take before it is known how many windows there are: rarely as many as tuples.
_FIRST_BYTES = 32 << 20


class BatchWindows:
    """Numbers windows in the order the batch meets them and holds their states until the end.

    One batch at a time: the next one of this thread uses the same memory.
    """

    def __init__(self, table: StateTable, fresh: npt.NDArray[Any], capacity: int) -> None:
        self._table = table
        self._fresh = fresh
        self._capacity = max(64, capacity)
        self._slot = scratch("slots", self._capacity, np.int64)
        self._is_prior = scratch("is prior", self._capacity, np.uint8)
        self._is_closed = scratch("is closed", self._capacity, np.uint8)
        self.local = Local(count=0)
        self._point()
        first = min(self._capacity, max(64, _FIRST_BYTES // table.layout.state.itemsize))
        self._states = scratch("states", first, table.layout.state)
        self._loaded = 0

    def _point(self) -> None:
        self.local.slot = address(self._slot)
        self.local.is_prior = address(self._is_prior)
        self.local.is_closed = address(self._is_closed)
        self.local.capacity = self._capacity
        self.structure = reference(self.local)

    def make_room(self, need: int, where: str) -> None:
        if need & NEED_WINDOWS:
            self.grow()
        if need & ~NEED_WINDOWS:
            self._table.make_room(need & ~NEED_WINDOWS, where)

    def grow(self) -> None:
        self._capacity *= 2
        self._slot = np.resize(self._slot, self._capacity)
        self._is_prior = np.resize(self._is_prior, self._capacity)
        self._is_closed = np.resize(self._is_closed, self._capacity)
        self._point()

    @property
    def count(self) -> int:
        return int(self.local.count)

    @property
    def slot(self) -> npt.NDArray[np.int64]:
        return self._slot[: self.count]

    @property
    def is_prior(self) -> npt.NDArray[np.bool_]:
        return self._is_prior[: self.count].view(np.bool_)

    def states(self) -> npt.NDArray[Any]:
        """States of all windows met so far, loaded from the table or fresh."""
        if len(self._states) < self.count:
            most = max(self.count, 2 * len(self._states))
            grown = np.empty(min(self._capacity, most), dtype=self._states.dtype)
            grown[: self._loaded] = self._states[: self._loaded]
            self._states = grown
        if self._loaded < self.count:
            kernel.tm_load_states(
                self._table.structure,
                self.structure,
                self._loaded,
                address(self._fresh),
                address(self._states),
            )
            self._loaded = self.count
        return self._states[: self.count]

    def states_of(self, which: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
        """States of some of the windows, by their numbers."""
        states = self.states()
        chosen = np.empty(len(which), dtype=states.dtype)
        size = states.dtype.itemsize
        kernel.tm_pick_rows(address(states), size, address(which), len(which), address(chosen))
        return chosen

    def closed(self) -> npt.NDArray[np.int64]:
        """Numbers of the windows that closed."""
        # A number is written for every window before it is known whether it stays.
        numbers = scratch("closed", self.count + 1, np.int64)
        count = kernel.tm_list_closed(self.structure, address(numbers))
        return numbers[:count]

    def left_open(self) -> Slots:
        """Slots of the windows that did not close."""
        left: Slots = self.slot[self._is_closed[: self.count] == 0]
        return left

    def meet(self, slots: Slots) -> None:
        """Numbers pieces that are open already."""
        assert self.count + len(slots) <= self._capacity
        kernel.tm_meet_pieces(self._table.structure, address(slots), len(slots), self.structure)

    def close(self, is_closed: npt.NDArray[np.bool_]) -> None:
        """Closes some of those that were met."""
        self._is_closed[: self.count] = is_closed
        kernel.tm_close_pieces(self._table.structure, self.structure)

    def store(self) -> Slots:
        """Writes the states of open windows back and frees the slots of closed ones. Returns those
        that this batch opened and left open."""
        states = self.states()
        opened = scratch("opened", self.count + 1, np.int64)
        count = kernel.tm_store_states(
            self._table.structure, self.structure, address(states), address(opened)
        )
        kernel.tm_release_closed(self._table.structure, self.structure)
        return opened[:count].copy()
