"""Order-independent digests of rows, of columns of any type.

Every row has a digest of 64 bits that its columns are absorbed into one after another; that of all
rows is the sum of theirs. So it does not matter in which order or in how many parts rows come.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import numbers, plain, view
from trailmark.kernel.library import address, kernel
from trailmark.kernel.scratch import scratch
from trailmark.records import Fingerprint

_SEED = np.uint64(0x243F6A8885A308D3)
_DIGEST_BITS = 64

_Digests = npt.NDArray[np.uint64]


def fingerprint(rows: pa.RecordBatch) -> Fingerprint:
    """An order-independent digest of the rows: equal for equal multisets of rows."""
    count = rows.num_rows
    return Fingerprint(count, kernel.tm_digest_sum(address(row_digests(rows)), count))


def row_digests(rows: pa.RecordBatch) -> _Digests:
    """A digest of each row, until the next ones are asked for."""
    count = rows.num_rows
    digests = scratch("row digests", count, np.uint64)
    digests.fill(_SEED)
    if count:
        for column in rows.columns:
            _absorb(digests, column)
    return digests


def joined(parts: Iterable[Fingerprint]) -> Fingerprint:
    """The fingerprint of the rows of all parts together."""
    rows = digest = 0
    for part in parts:
        rows += part.rows
        digest += part.digest
    return Fingerprint(rows, digest % (1 << _DIGEST_BITS))


def _absorb(digests: _Digests, column: pa.Array) -> None:
    """Adds a column to the digests of its rows."""
    kind = column.type
    t = pa.types
    if t.is_struct(kind):
        _absorb(digests, column.is_valid())  # a null is not a struct of nulls
        for child in column.flatten():
            _absorb(digests, child)
    elif t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind) or t.is_map(kind):
        _absorb_lists(digests, column)
    elif t.is_null(kind):
        _absorb(digests, column.cast(pa.bool_()))
    else:
        _absorb_plain(digests, plain(column))


def _absorb_plain(digests: _Digests, column: pa.Array) -> None:
    v, count = view(column), len(column)
    if v.is_text:
        kernel.tm_digest_strings(address(digests), v.offsets, v.data, v.validity, v.first, count)
    else:
        kernel.tm_digest_fixed(address(digests), v.data, v.width, v.validity, v.first, count)


def _absorb_lists(digests: _Digests, column: pa.Array) -> None:
    """Every element has a digest of its own; entries of a map have no order."""
    offsets = _offsets(column)
    first, end = int(offsets[0]), int(offsets[-1])
    offsets -= first
    elements = np.full(end - first, _SEED, dtype=np.uint64)
    if len(elements):
        _absorb(elements, column.values.slice(first, end - first))
    validity = column.buffers()[0] if column.null_count else None
    kernel.tm_digest_lists(
        address(digests),
        address(offsets),
        address(elements),
        None if validity is None else validity.address,
        column.offset,
        len(column),
        not pa.types.is_map(column.type),
    )


def _offsets(column: pa.Array) -> npt.NDArray[np.int64]:
    """Where the elements of each list begin among those of all, and where the last ends."""
    if not pa.types.is_fixed_size_list(column.type):
        return np.array(numbers(column.offsets), dtype=np.int64)  # a copy: it is changed
    size = int(column.type.list_size)
    return np.arange(column.offset, column.offset + len(column) + 1, dtype=np.int64) * size
