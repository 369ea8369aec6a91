"""Elements of lists, and texts, as the blocks of the heap hold them; see ``values.c``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import (
    arrow_fixed,
    arrow_text,
    check_text,
    plain,
    text_offsets,
    validity,
)
from trailmark.kernel.library import address, kernel
from trailmark.state.table import StateTable
from trailmark.values import dataclass

Counts = npt.NDArray[np.int64]
States = npt.NDArray[Any]

#: What the state has of a value that is in the heap.
VALUE = np.dtype([("offset", "<u8"), ("length", "<i8"), ("count", "<i8")], align=True)

_NULL = -1


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type differ in length."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def fixed_width(kind: pa.DataType) -> int | None:
    """How many bytes a value of this type takes in a state; None if that differs, or if states
    hold none of the type."""
    t = pa.types
    if t.is_boolean(kind):
        return 1
    is_number = t.is_integer(kind) or t.is_float32(kind) or t.is_float64(kind)
    if is_number or t.is_date32(kind) or t.is_timestamp(kind) or t.is_decimal128(kind):
        return int(kind.bit_width // 8)
    return None


def fixed_bytes(column: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    """The bytes of a column of fixed width, one row each; where it is null, zeros."""
    data, count = column.buffers()[1], len(column)
    if data is None:
        return np.zeros((count, width), dtype=np.uint8)
    if pa.types.is_boolean(column.type):
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        found = bits[column.offset : column.offset + count].reshape(count, 1)
    else:
        found = np.frombuffer(data, np.uint8, count * width, column.offset * width)
        found = found.reshape(count, width)
    if column.null_count:
        found = np.where(validity(column)[:, None], found, np.uint8(0))
    return found


@dataclass(frozen=True, slots=True)
class Parts:
    """Values as blocks of the heap hold them: counts and lengths of each, and both parts of all."""

    counts: Counts
    lengths: Counts
    first: npt.NDArray[np.uint8]
    second: npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class FixedElements:
    """Elements of fixed width: their bytes, then which of them are valid."""

    kind: pa.DataType
    width: int

    def parts(self, flat: pa.Array, counts: Counts) -> Parts:
        first = np.ascontiguousarray(fixed_bytes(flat, self.width)).reshape(-1)
        second = validity(flat).astype(np.uint8)
        return Parts(counts, counts * (self.width + 1), first, second)

    def flat(self, parts: Parts) -> pa.Array:
        values = parts.first if self.width == 1 else parts.first.reshape(-1, self.width)
        return arrow_fixed(values, self.kind, parts.second.view(np.bool_))


@dataclass(frozen=True, slots=True)
class TextElements:
    """Texts: their lengths, then their bytes."""

    kind: pa.DataType
    width: int = 4

    def parts(self, flat: pa.Array, counts: Counts) -> Parts:
        sizes, data = text_bytes(flat)
        ends = np.concatenate([[0], np.cumsum(np.maximum(sizes, 0), dtype=np.int64)])
        last = np.cumsum(counts)
        lengths = ends[last] - ends[last - counts] + counts * self.width
        return Parts(counts, lengths, sizes.view(np.uint8), data)

    def flat(self, parts: Parts) -> pa.Array:
        return text_column(parts.first.view("<i4"), parts.second, self.kind)


def text_bytes(column: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The lengths of texts, -1 of those that are null, and their bytes one after another."""
    column = plain(column)
    is_valid = validity(column)
    if column.null_count:  # what lies between texts is not always nothing
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    buffers, count = column.buffers(), len(column)
    if buffers[1] is None or not count:
        return np.zeros(count, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(buffers[1], "<i4", count + 1, 4 * column.offset)
    sizes = np.diff(offsets)
    sizes[~is_valid] = _NULL
    if buffers[2] is None:
        return sizes, np.empty(0, dtype=np.uint8)
    return sizes, np.frombuffer(buffers[2], np.uint8)[offsets[0] : offsets[-1]]


def text_column(
    sizes: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], kind: pa.DataType
) -> pa.Array:
    """Texts from their lengths and bytes."""
    is_valid = sizes != _NULL
    offsets = text_offsets(np.maximum(sizes, 0), "operator state")
    return arrow_text(offsets, data, kind, is_valid)


Elements = FixedElements | TextElements


def elements_of(kind: pa.DataType) -> Elements | None:
    """How a list of such elements is kept; None if states hold none of the type."""
    if is_text(kind):
        return TextElements(kind)
    width = fixed_width(kind)
    return None if width is None else FixedElements(kind, width)


def read_parts(table: StateTable, states: States, at: int, width: int) -> Parts:
    """The values that states refer to at a place, with so many bytes of each element in the first
    part."""
    values = _values(states, at)
    counts, lengths = values["count"].copy(), values["length"].copy()
    heads = int(counts.sum()) * width
    check_text(int(lengths.sum()) - heads, "operator state")
    first, second = np.empty(heads, np.uint8), np.empty(int(lengths.sum()) - heads, np.uint8)
    kernel.tm_read_values(
        table.heap_address,
        _address(states, at),
        states.dtype.itemsize,
        len(states),
        width,
        address(first),
        address(second),
    )
    return Parts(counts, lengths, first, second)


def write_parts(table: StateTable, states: States, at: int, width: int, parts: Parts) -> None:
    """Puts values into the heap, in the place of those that the states refer to."""
    counts = np.ascontiguousarray(parts.counts, dtype=np.int64)
    lengths = np.ascontiguousarray(parts.lengths, dtype=np.int64)
    first, second = np.ascontiguousarray(parts.first), np.ascontiguousarray(parts.second)
    table.reserve_heap(kernel.tm_values_need(address(lengths), len(lengths)))
    kernel.tm_write_values(
        table.structure,
        _address(states, at),
        states.dtype.itemsize,
        len(states),
        width,
        address(counts),
        address(lengths),
        address(first),
        address(second),
    )


def free_values(table: StateTable, states: States, at: int) -> None:
    """Gives back what the states refer to."""
    kernel.tm_free_values(table.structure, _address(states, at), states.dtype.itemsize, len(states))


def _values(states: States, at: int) -> States:
    field = np.dtype(
        {"names": ["v"], "formats": [VALUE], "offsets": [at], "itemsize": states.dtype.itemsize}
    )
    found: States = states.view(field)["v"]
    return found


def _address(states: States, at: int) -> int:
    return (address(states) or 0) + at
