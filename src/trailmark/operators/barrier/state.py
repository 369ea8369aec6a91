"""The tuples in flight: a queue for each input, in the order in which they came.

Tuples that have left stay in their queue until they are the greater half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.operators.key_slots import KeySlots
from trailmark.operators.one_piece import OnePiece
from trailmark.operators.protocol import History
from trailmark.operators.row_blocks import Numbers, RowBlocks
from trailmark.records import NO_BATCH
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import PAGE, Memory
from trailmark.state.table import Slots

#: Where a tuple lies in the input log, how many came to the bucket before its batch, and its key.
TUPLE = np.dtype(
    [
        *[(name, "<i8") for name in ("batch", "place", "position")],
        ("key", "<u4"),
        ("is_gone", "u1"),
        ("unused", "V3"),
    ]
)
#: Few enough that to put them together is nothing.
_FEW = 64
#: The input log is kept for tuples where, since their batch, at least one in so many is in flight.
_WORTH = 8


class Queue:
    """The tuples of one input."""

    def __init__(self, memory: Memory, name: str, schema: pa.Schema, *, is_new: bool) -> None:
        self._head = memory.region(f"{name}-head", PAGE)
        self._region = memory.region(f"{name}-tuples", PAGE)
        self.rows = RowBlocks(memory, name, schema, is_new=is_new)
        if is_new:
            self._counts[:] = 0

    @property
    def _counts(self) -> npt.NDArray[np.int64]:
        """How many tuples there are, and how many of them have left."""
        return self._head.view("<i8", 2)

    @property
    def count(self) -> int:
        """How many tuples there are, in flight or not."""
        return int(self._counts[0])

    @property
    def tuples(self) -> npt.NDArray[Any]:
        """All of them; not to be used after more were added."""
        return self._region.view(TUPLE, self.count)

    @property
    def in_flight(self) -> int:
        """How many have not left."""
        return int(self._counts[0] - self._counts[1])

    def numbers(self) -> Numbers:
        """Those that have not left, in the order in which they came."""
        return np.flatnonzero(self.tuples["is_gone"] == 0)

    def add(self, rows: pa.RecordBatch) -> npt.NDArray[Any]:
        """Puts rows at the end; the caller says what else is known of them."""
        first, total = self.count, self.count + rows.num_rows
        if total * TUPLE.itemsize > self._region.size:
            self._region.grow((total + total // 4) * TUPLE.itemsize)
        self.rows.add(rows)
        self._counts[0] = total
        added: npt.NDArray[Any] = self.tuples[first:]
        added["is_gone"] = 0
        return added

    def let_go(self, numbers: Numbers) -> None:
        """These have left."""
        self.tuples["is_gone"][numbers] = 1
        self._counts[1] += len(numbers)

    def tidy(self) -> None:
        """Lets go of tuples that have left, if they are many; what came last is in the memory
        then."""
        gone = int(self._counts[1])
        if gone > _FEW and 2 * gone > self.count:
            numbers = self.numbers()
            kept = self.tuples[numbers]
            self.rows.keep(numbers)
            self._counts[:] = (len(numbers), 0)
            self.tuples[:] = kept
        self.rows.write()


class BarrierState(OnePiece):
    """The queues of all inputs, and the numbers of the keys in them."""

    def __init__(
        self,
        keys: KeyLayout,
        schemas: Sequence[pa.Schema],
        memory: Memory,
        history: History,
        *,
        is_new: bool,
    ) -> None:
        super().__init__(memory, is_new=is_new)
        self.history = history
        self.keys = KeySlots(keys, memory, is_new=is_new) if keys.names else None
        self.queues = [
            Queue(memory, f"queue{place}", schema, is_new=is_new)
            for place, schema in enumerate(schemas)
        ]
        self._region = memory.region("barrier", PAGE)
        if is_new:
            self._numbers[:] = 0

    @property
    def _numbers(self) -> npt.NDArray[np.int64]:
        return self._region.view("<i8", 2)

    @property
    def arrived(self) -> int:
        """How many tuples have come to the bucket."""
        return int(self._numbers[0])

    @arrived.setter
    def arrived(self, count: int) -> None:
        self._numbers[0] = count

    @property
    def held_before(self) -> int:
        """Footprints hold the tuples of earlier batches; for those of this one and later ones they
        refer to the input log."""
        return int(self._numbers[1])

    @held_before.setter
    def held_before(self, batch: int) -> None:
        self._numbers[1] = batch

    def add(self, place: int, rows: pa.RecordBatch, batch: int, places: Numbers) -> None:
        """Tuples of one input come in, which lie at these places of a batch."""
        slots = None if self.keys is None else self.keys.slots_of(rows, None, adds=True)
        added = self.queues[place].add(rows)
        added["batch"], added["place"], added["position"] = batch, places, self.arrived
        added["key"] = 0 if slots is None else slots

    def let_go(self, numbers: Sequence[Numbers], ended_keys: Numbers) -> None:
        """Tuples of each input leave, and keys that nobody in flight has any more."""
        for queue, each in zip(self.queues, numbers, strict=True):
            queue.let_go(each)
        if self.keys is not None and len(ended_keys):
            self.keys.release(ended_keys.astype(np.uint32))

    def tidy(self) -> None:
        for queue in self.queues:
            queue.tidy()

    # Footprints that are about to be written

    def renew(self, slots: Slots, batch: int) -> None:
        super().renew(slots, batch)
        if len(slots):
            self.hold_or_refer()

    def hold_or_refer(self) -> None:
        """Decides from which batch on footprints refer to the input log: they hold the tuples
        before it themselves, where the log would be kept for few of them."""
        tuples = np.concatenate([queue.tuples[queue.numbers()] for queue in self.queues])
        referring = tuples[tuples["batch"] >= self.held_before]
        if not len(referring):
            return
        referring = referring[np.argsort(referring["batch"], kind="stable")]
        since = len(referring) - np.arange(len(referring))
        is_worth = since * _WORTH >= self.arrived - referring["position"]
        last = int(referring["batch"][-1])
        first = int(referring["batch"][np.argmax(is_worth)]) if is_worth.any() else last + 1
        self.held_before = max(self.held_before, first)

    def refers_back_to(self) -> int | None:
        """The oldest batch that the state refers to; None if it refers to none."""
        found = None
        for queue in self.queues:
            batches = queue.tuples["batch"][queue.numbers()]
            batches = batches[batches >= max(self.held_before, NO_BATCH + 1)]
            if len(batches):
                oldest = int(batches.min())
                found = oldest if found is None else min(found, oldest)
        return found
