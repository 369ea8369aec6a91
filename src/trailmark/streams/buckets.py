"""Which bucket of a written stream a row is in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import contiguous
from trailmark.state.keys import KeyLayout
from trailmark.streams.description import StreamDescription

#: Where a key is found must never change.
_HASH_SEED: Final = 0x7261696C


class Buckets:
    """Spreads rows by the values of key columns."""

    def __init__(self, keys: pa.Schema, count: int) -> None:
        self._schema = keys
        self._layout = KeyLayout(list(keys))
        self._count = count

    @classmethod
    def of(cls, stream: StreamDescription) -> Buckets:
        """As a stream is spread."""
        return cls(pa.schema([stream.schema.field(name) for name in stream.keys]), stream.buckets)

    def split(self, rows: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        """The rows of each bucket that has some, in the order they came in."""
        if self._count == 1:
            yield 0, rows
            return
        buckets = self._numbers(contiguous(rows.select(self._schema.names)))
        order = np.argsort(buckets, kind="stable")
        sorted_rows = rows.take(pa.array(order)).combine_chunks()
        numbers, starts = np.unique(buckets[order], return_index=True)
        ends = [*starts[1:].tolist(), rows.num_rows]
        for bucket, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
            yield bucket, sorted_rows.slice(start, end - start)

    def _numbers(self, keys: pa.RecordBatch) -> npt.NDArray[np.int64]:
        hashes = self._layout.encode(keys, _HASH_SEED).hashes
        return (hashes % np.uint64(self._count)).astype(np.int64)
