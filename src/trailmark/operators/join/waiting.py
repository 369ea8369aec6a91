"""The tuples of one side that wait for partners: time, key and whether they have matched, in the
layout of the kernel, and their columns beside it.

Tuples are numbered as they come. Those that have left stay where they are, and in the chains of
their keys, until they are more than those that wait: no tuple that is in time matches them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import StorageError
from trailmark.kernel.library import TUPLE, address, kernel
from trailmark.operators.key_slots import KeySlots
from trailmark.operators.row_blocks import Numbers, RowBlocks
from trailmark.state.memory import PAGE, Memory

#: Numbers of tuples are 32 bits wide in chains.
_MOST = (1 << 32) - 2
#: What is allocated beyond what is needed: one part in so many.
_SPARE = 4
#: Few enough that to put them in order is nothing.
_FEW = 64


class Waiting:
    """One side of a join. ``keys`` is the table of keys that both sides share; with ``by_number``
    the times of tuples are their numbers. ``labels`` are what somebody else wants to know of each
    tuple."""

    def __init__(
        self,
        memory: Memory,
        name: str,
        side: int,
        schema: pa.Schema,
        keys: KeySlots,
        *,
        is_new: bool,
        by_number: bool = False,
        labels: np.dtype[Any] | None = None,
    ) -> None:
        self.name = name
        self.by_number = by_number
        self._side = side
        self._keys = keys
        self._head = memory.region(f"{name}-head", PAGE)
        self._region = memory.region(f"{name}-tuples", PAGE)
        self._label = labels
        self._labels = None if labels is None else memory.region(f"{name}-labels", PAGE)
        self.rows = RowBlocks(memory, name, schema, is_new=is_new)
        if is_new:
            self._numbers[:] = 0

    @property
    def _numbers(self) -> npt.NDArray[np.int64]:
        """How many tuples there are, are in chains, and have left."""
        return self._head.view("<i8", 3)

    @property
    def count(self) -> int:
        """How many tuples there are, whether they still wait or not."""
        return int(self._numbers[0])

    @property
    def linked(self) -> int:
        """How many of them are in the chains of their keys."""
        return int(self._numbers[1])

    @property
    def gone(self) -> int:
        """How many of them have left."""
        return int(self._numbers[2])

    def let_go(self, numbers: Numbers) -> None:
        """These have left."""
        self.tuples["is_gone"][numbers] = 1
        self._numbers[2] += len(numbers)

    @property
    def tuples(self) -> npt.NDArray[Any]:
        """All of them; not to be used after more were added."""
        return self._region.view(TUPLE, self.count)

    @property
    def labels(self) -> npt.NDArray[Any]:
        """Those of all tuples; not to be used after more were added."""
        assert self._labels is not None
        assert self._label is not None
        return self._labels.view(self._label, self.count)

    @property
    def address(self) -> int:
        """Where they begin."""
        return self._region.address

    def _make_room(self, more: int) -> None:
        """Makes sure that so many more fit."""
        total = self.count + more
        if total > _MOST:
            raise StorageError(
                f"A bucket cannot hold more than {_MOST:,} tuples of the {self.name} side.",
                where="operator state",
                fix="Use a shorter interval or a smaller window, or more buckets.",
            )
        regions = [(self._region, TUPLE)]
        if self._labels is not None and self._label is not None:
            regions.append((self._labels, self._label))
        for region, each in regions:
            if total * each.itemsize > region.size:
                region.grow((total + total // _SPARE) * each.itemsize)

    def add(self, rows: pa.RecordBatch, *, linked: bool) -> Numbers:
        """Numbers the rows; the caller, or the kernel, writes their times and keys."""
        first = self.count
        self._make_room(rows.num_rows)
        self.rows.add(rows)
        self._numbers[0] = first + rows.num_rows
        if self._labels is not None:
            self.labels[first:] = 0
        if linked:
            self._numbers[1] = self._numbers[0]
        return np.arange(first, first + rows.num_rows, dtype=np.int64)

    def link(self) -> None:
        """Puts those into the chains of their keys that are in none yet."""
        kernel.tm_join_link(self._keys.structure, self.address, self._side, self.linked, self.count)
        self._numbers[1] = self.count

    @property
    def is_mostly_gone(self) -> bool:
        """Whether it is time to let go of those that have left."""
        return self.gone > _FEW and 2 * self.gone > self.count

    def keep(self, numbers: Numbers) -> None:
        """Lets all others go; these are numbered anew, in the order given, and linked so."""
        tuples = self.tuples
        named = np.ascontiguousarray(tuples["key"])
        linked = named[: self.linked]
        kept = tuples[numbers]
        labels = None if self._labels is None else self.labels[numbers]
        kernel.tm_join_unlink(self._keys.structure, self._side, address(linked), len(linked))
        self.rows.keep(numbers)
        self._numbers[:] = (len(numbers), 0, 0)
        self.tuples[:] = kept
        if labels is not None:
            self.labels[:] = labels
        if self.by_number:
            self.tuples["time"] = np.arange(len(numbers))
        self.link()
        self._keys.release(named)
