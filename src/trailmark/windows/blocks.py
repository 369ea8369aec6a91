"""Texts and lists that states hold beside the slots: each a block of the heap, or of a batch until
it is stored.

A state has the place of a block: of a text its bytes, of a list its values. Those of fixed width
lie side by side, of texts come the lengths, then the bytes. There are no nulls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, arrow_text, check_text, plain, text_offsets
from trailmark.kernel.library import Bytes, address, kernel, reference
from trailmark.windows.bound import Array, states_structure

Counts = npt.NDArray[np.int64]
Blocks = npt.NDArray[np.uint8]

#: What a state has of a block, by the kernel's layout.
HELD = np.dtype(
    [("place", "<u8"), ("length", "<u4"), ("seen", "u1"), ("in_batch", "u1"), ("zero", "<u2")]
)
#: The same of a list, and how many values it has.
HELD_LIST = np.dtype([*HELD.descr, ("count", "<i8")])


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type differ in length."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def memory_of(kind: pa.DataType) -> np.dtype[Any] | None:
    """What a state has of a value of this type; None if it can hold none."""
    if is_text(kind):
        return HELD
    if not pa.types.is_list(kind):
        return None
    t, element = pa.types, kind.value_type
    is_number = t.is_integer(element) or t.is_float32(element) or t.is_float64(element)
    is_time = t.is_date32(element) or t.is_timestamp(element)
    is_other = t.is_boolean(element) or t.is_decimal128(element) or is_text(element)
    return HELD_LIST if is_number or is_time or is_other else None


def held(states: Array, at: int, kind: np.dtype[Any] = HELD) -> Array:
    """What states have of blocks at a place, to be changed in place."""
    size = states.dtype.itemsize
    field = np.dtype({"names": ["held"], "formats": [kind], "offsets": [at], "itemsize": size})
    found: Array = states.view(field)["held"]
    return found


def read_blocks(states: Array, at: int, source: Bytes) -> tuple[npt.NDArray[np.int32], Blocks]:
    """The blocks of states one after another, and where each begins and the last one ends."""
    where = (reference(states_structure(states, at)), None, len(states), reference(source))
    total = kernel.tm_read_blobs(*where, None, None)
    check_text(total, "states of windows")
    offsets = np.zeros(len(states) + 1, dtype=np.int32)
    data = np.empty(max(1, total), dtype=np.uint8)
    kernel.tm_read_blobs(*where, address(offsets), address(data))
    return offsets, data[:total]


class HeldColumn:
    """Texts or lists that states hold at a place."""

    def __init__(self, kind: pa.DataType, at: int) -> None:
        self._kind = kind
        self._at = at

    def read(self, states: Array, source: Bytes) -> pa.Array:
        offsets, data = read_blocks(states, self._at, source)
        if is_text(self._kind):
            return arrow_text(offsets, np.ascontiguousarray(data), self._kind, None)
        counts = held(states, self._at, HELD_LIST)["count"]
        return lists_of(counts, flat_values(counts, offsets, data, self._kind.value_type))

    def hold(self, states: Array, which: Counts, column: pa.Array, begin: int) -> Blocks:
        """Lets states hold these values, which are in the bytes that are returned, behind so many
        others."""
        if is_text(self._kind):
            sizes, data = text_parts(column)
            lengths = sizes.astype(np.int64)
        else:
            counts = list_counts(column)
            lengths, data = list_blocks(plain(column.flatten()), counts)
            held(states, self._at, HELD_LIST)["count"][which] = counts
        mine = held(states, self._at)
        mine["place"][which] = begin + np.cumsum(lengths) - lengths
        mine["length"][which] = lengths
        mine["seen"][which] = 1
        mine["in_batch"][which] = 1
        return data


def flat_values(
    counts: Counts, offsets: npt.NDArray[np.int32], data: Blocks, element: pa.DataType
) -> pa.Array:
    """The values of blocks, which have so many each."""
    if not is_text(element):
        width = width_of(element)
        values = data if width == 1 else data.reshape(-1, width)
        return arrow_fixed(np.ascontiguousarray(values), element)
    is_length = _first_parts(4 * counts, np.diff(offsets))
    sizes = np.ascontiguousarray(data[is_length]).view("<i4")
    ends = text_offsets(sizes, "states of windows")
    return arrow_text(ends, np.ascontiguousarray(data[~is_length]), element, None)


def text_parts(flat: pa.Array) -> tuple[npt.NDArray[np.int32], Blocks]:
    """The lengths of texts, and their bytes."""
    buffers, count = flat.buffers(), len(flat)
    if not count:
        return np.zeros(0, dtype=np.int32), np.empty(0, dtype=np.uint8)
    offsets = np.frombuffer(buffers[1], "<i4", count + 1, 4 * flat.offset)
    data = np.frombuffer(buffers[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    return np.diff(offsets), data


def width_of(kind: pa.DataType) -> int:
    return 1 if pa.types.is_boolean(kind) else int(kind.bit_width // 8)


def list_counts(lists: pa.Array) -> Counts:
    """How many values each list has, of lists that are not null."""
    counts: Counts = lists.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return counts


def lists_of(counts: Counts, flat: pa.Array) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _first_parts(heads: Counts, lengths: Counts) -> npt.NDArray[np.bool_]:
    """Which bytes of blocks that lie side by side belong to the first part of each."""
    parts = np.empty(2 * len(heads), dtype=np.int64)
    parts[::2], parts[1::2] = heads, lengths - heads
    return np.repeat(np.arange(len(parts)) % 2 == 0, parts)


def list_blocks(flat: pa.Array, counts: Counts) -> tuple[Counts, Blocks]:
    """The lengths of the blocks for lists of values, and the blocks side by side."""
    if not is_text(flat.type):
        width = width_of(flat.type)
        return counts * width, _raw_bytes(flat, width)
    sizes, text = text_parts(flat)
    ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    last = np.cumsum(counts)
    lengths = ends[last] - ends[last - counts] + 4 * counts
    is_length = _first_parts(4 * counts, lengths)
    data = np.empty(len(is_length), dtype=np.uint8)
    data[is_length] = sizes.view(np.uint8)
    data[~is_length] = text
    return lengths, data


def _raw_bytes(flat: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    if not len(flat):
        return np.empty(1, dtype=np.uint8)
    if pa.types.is_boolean(flat.type):
        bits: npt.NDArray[np.uint8] = flat.to_numpy(zero_copy_only=False).astype(np.uint8)
        return bits
    return np.frombuffer(flat.buffers()[1], np.uint8, width * len(flat), width * flat.offset)
