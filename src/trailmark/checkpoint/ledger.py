"""The ledger: running totals at the end of each batch since the oldest footprint.

It answers in constant time how many records and tuples lie between a batch and now, and how heavy
the records are. It lives in the same memory as the table, so that the next process to work on the
bucket finds it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from trailmark.records import NO_BATCH
from trailmark.state.memory import PAGE, Memory
from trailmark.values import dataclass

# Three numbers at the start: the oldest batch, how many unused rows precede it, how many follow.
_FIRST, _SKIP, _COUNT = range(3)
# Then six numbers per batch: records, inputs, needs, first, looks_back, excess.
_HEAD = 3
_WIDTH = 6
_EXCESS = 5

#: Where a state looks back to that looks at no tuple.
NOWHERE = 1 << 62


@dataclass(frozen=True, slots=True)
class Totals:
    """Records written and tuples taken since the log began, up to the end of a batch; the first
    batches of input and of output that a recovery to that end reads; the first batch of input to
    whose tuples the state refers then; and what the records weigh beyond one each, since some batch
    that is in the ledger or before it."""

    records: int
    inputs: int
    needs: int
    first: int = NO_BATCH
    looks_back: int = NOWHERE
    excess: int = 0


class Ledger:
    """Rows for consecutive batches, oldest first."""

    def __init__(self, memory: Memory) -> None:
        self._region = memory.region("ledger", PAGE)
        self._map()

    def _map(self) -> None:
        numbers = self._region.view("<i8", self._region.size // 8)
        self._head = numbers[:_HEAD]
        room = (len(numbers) - _HEAD) // _WIDTH * _WIDTH
        self._all = numbers[_HEAD : _HEAD + room].reshape(-1, _WIDTH)

    @property
    def _rows(self) -> npt.NDArray[np.int64]:
        _, skip, count = self._head.tolist()
        return self._all[skip : skip + count]

    def __len__(self) -> int:
        return int(self._head[_COUNT])

    @property
    def first(self) -> int:
        """The oldest batch it knows."""
        return int(self._head[_FIRST])

    @property
    def newest(self) -> Totals:
        """Totals at the end of the newest batch."""
        return Totals(*self._rows[-1].tolist())

    def start(self, batch: int, totals: Totals) -> None:
        """Begins anew with one batch."""
        self._head[:] = (batch, 0, 0)
        self._put(totals)

    def append(self, batch: int, totals: Totals) -> None:
        """Adds the batch that follows the newest."""
        assert batch == self.first + len(self), "batches follow one another"
        self._put(totals)

    def _put(self, totals: Totals) -> None:
        end = int(self._head[_SKIP]) + len(self)
        if end == len(self._all):
            self._region.grow(self._region.size * 3 // 2)
            self._map()
        self._all[end] = (
            totals.records,
            totals.inputs,
            totals.needs,
            totals.first,
            totals.looks_back,
            totals.excess,
        )
        self._head[_COUNT] += 1

    def at(self, batch: int) -> Totals | None:
        """Totals at the end of a batch; None if it is older than the ledger."""
        number = batch - self.first
        return None if number < 0 else Totals(*self._rows[number].tolist())

    def columns_at(
        self, oldest: npt.NDArray[np.int64], now: Totals
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """For each of these batches: the weight of the records from its beginning, and the tuples
        from its end, up to ``now``. The last may be the batch that ``now`` is the end of."""
        rows = self._rows
        at = oldest - self.first
        ends = np.append(rows[:, 1], now.inputs)
        before = rows[at - 1]
        return now.records + now.excess - before[:, 0] - before[:, _EXCESS], now.inputs - ends[at]

    def first_batch_within(self, now: Totals, records: int | None, inputs: int | None) -> int:
        """The oldest batch that leaves at most so many records (those of the batch included) and
        input tuples (those of the batch excluded) up to ``now``. None stands for no limit."""
        rows = self._rows
        oldest = first = self.first
        if records is not None:
            before = int(np.searchsorted(rows[:, 0], now.records - records))
            oldest = max(oldest, first + before + 1)
        if inputs is not None:
            reached = int(np.searchsorted(rows[:, 1], now.inputs - inputs))
            oldest = max(oldest, first + reached)
        return min(oldest, first + len(rows))

    def forget_before(self, batch: int) -> None:
        """Drops what is older than a batch; moves the rest only when most space is unused."""
        drop = min(max(0, batch - self.first), len(self) - 1)
        if drop <= 0:
            return
        self._head += (drop, drop, -drop)
        if self._head[_SKIP] > 2 * len(self) + 64:
            rows = self._rows.copy()
            self._head[_SKIP] = 0
            self._all[: len(rows)] = rows
