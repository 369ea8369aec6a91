"""The columns of waiting tuples: blocks of rows in memory that processes share, read without
copying.

Rows are numbered as they come. Each block is an uncompressed Arrow stream; the directory says which
rows it holds and where it lies. Blocks lie one after another, so small ones at the end are merged
with what is added, in their place: there are only few, and a row is moved only a few times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, contiguous
from trailmark.operators.user_code import joined
from trailmark.state.memory import PAGE, Memory

Numbers = npt.NDArray[np.int64]

#: Blocks are not merged beyond either of these.
_MOST_ROWS = 1 << 17
_MOST_BYTES = 64 << 20
#: Where a block may begin: Arrow's own alignment.
_ALIGNED = 64
_BLOCK = np.dtype([("first", "<i8"), ("rows", "<i8"), ("offset", "<i8"), ("bytes", "<i8")])


class RowBlocks:
    """All rows of one side, in the given memory.

    What was added last is not written before `write`: most of it may be gone again by then.
    """

    def __init__(self, memory: Memory, name: str, schema: pa.Schema, *, is_new: bool) -> None:
        self._schema = schema
        self._directory = memory.region(f"{name}-blocks", PAGE)
        self._bytes = memory.region(f"{name}-rows", PAGE)
        if is_new:
            self._count[0] = 0
        self._added: list[pa.RecordBatch] = []
        self._opened: dict[int, pa.RecordBatch] = {}

    @property
    def _count(self) -> npt.NDArray[np.int64]:
        """How many blocks there are, at the start of the directory."""
        return self._directory.view("<i8", 1)

    def _blocks(self) -> npt.NDArray[Any]:
        return self._directory.view(_BLOCK, int(self._count[0]), _BLOCK.itemsize)

    def add(self, rows: pa.RecordBatch) -> None:
        """Numbers rows after the last."""
        if rows.num_rows:
            self._added.append(rows)

    def write(self) -> None:
        """Puts what was added into the memory, merged with the small blocks before it."""
        if not self._added:
            return
        rows = joined(self._added, self._schema)
        self._added = []
        blocks = self._blocks()
        keeps, total, size = len(blocks), rows.num_rows, rows.nbytes
        while keeps and self._is_merged(blocks[keeps - 1], total, size):
            keeps -= 1
            total, size = total + blocks["rows"][keeps], size + blocks["bytes"][keeps]
        merged = [self._open(block) for block in blocks[keeps:]]
        # Joining copies: what is written now may lie over the blocks that it is made of.
        self._put(joined([*merged, rows], self._schema), keeps)

    @staticmethod
    def _is_merged(block: Any, rows: int, size: int) -> bool:
        fits = rows + block["rows"] <= _MOST_ROWS and size + block["bytes"] <= _MOST_BYTES
        return bool(fits and block["rows"] < 2 * rows)

    def _put(self, rows: pa.RecordBatch, place: int) -> None:
        """Writes a block in a place of the directory; it is the last one then."""
        sink = pa.MockOutputStream()
        _write_stream(sink, rows)
        size, before = sink.size(), self._blocks()[:place]
        end = int(before["offset"][-1] + before["bytes"][-1]) if place else 0
        offset = -(-end // _ALIGNED) * _ALIGNED
        first = int(before["first"][-1] + before["rows"][-1]) if place else 0
        if offset + size > self._bytes.size:
            self._opened.clear()  # they would keep the memory of before
            self._bytes.grow(offset + size + self._bytes.size // 4)
        if (place + 2) * _BLOCK.itemsize > self._directory.size:
            self._directory.grow(2 * self._directory.size)
        for stale in [each for each in self._opened if each >= offset]:
            del self._opened[stale]
        room = pa.py_buffer(self._bytes.bytes[offset : offset + size])
        _write_stream(pa.FixedSizeBufferWriter(room), rows)
        self._count[0] = place + 1
        self._blocks()[place] = (first, rows.num_rows, offset, size)

    def _open(self, block: Any) -> pa.RecordBatch:
        offset, size = int(block["offset"]), int(block["bytes"])
        found = self._opened.get(offset)
        if found is None:
            data = pa.py_buffer(self._bytes.bytes[offset : offset + size])
            found = pa.ipc.open_stream(data).read_next_batch()
            self._opened[offset] = found
        return found

    def take(self, numbers: Numbers) -> pa.RecordBatch:
        """Copies of rows, in the order of their numbers as given."""
        if not len(numbers):
            return contiguous(self._schema.empty_table())
        blocks = self._blocks()
        parts = [self._open(block) for block in blocks] + self._added
        firsts = np.cumsum([0, *(part.num_rows for part in parts)])
        block_of = np.searchsorted(firsts, numbers, side="right") - 1
        met = np.flatnonzero(np.bincount(block_of))
        if len(met) == 1:
            return _taken(parts[met[0]], numbers - firsts[met[0]])
        order = np.argsort(block_of, kind="stable")
        ends = np.searchsorted(block_of[order], met, side="right")
        found = [
            _taken(parts[block], some - firsts[block])
            for block, some in zip(met, np.split(numbers[order], ends[:-1]), strict=True)
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return _taken(joined(found, self._schema), back)

    def keep(self, numbers: Numbers) -> None:
        """Lets all other rows go; these are numbered anew, in the order given."""
        kept = [
            self.take(numbers[first : first + _MOST_ROWS])
            for first in range(0, len(numbers), _MOST_ROWS)
        ]
        self._added, self._opened = [], {}
        self._count[0] = 0
        for place, rows in enumerate(kept):
            self._put(rows, place)


def _write_stream(sink: Any, rows: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)


def _taken(rows: pa.RecordBatch, places: Numbers) -> pa.RecordBatch:
    # Made by hand: `pa.array` imports pandas to look at an array of NumPy's.
    return rows.take(arrow_fixed(np.ascontiguousarray(places), pa.int64()))
