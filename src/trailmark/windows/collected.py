"""Functions that hold the values of a window: lists and sets of them, and what these tell.

A state has the place of its values in the heap of the table, in one block: those of fixed width
side by side, of strings the lengths, then the bytes. Nulls are passed over. A batch reads the
blocks of the windows that it adds to, and writes them anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import (
    arrow_fixed,
    arrow_text,
    check_text,
    numbers,
    plain,
    single,
    text_offsets,
    validity,
)
from trailmark.kernel.library import Bytes, address, kernel, reference
from trailmark.windows.bound import (
    Array,
    Assignment,
    BatchColumns,
    StateField,
    states_structure,
)
from trailmark.windows.builtin import BuiltIn, is_number, physical_of

Counts = npt.NDArray[np.int64]


class Collected(BuiltIn):
    """A function that holds all values of a window, or each of them once."""

    def _settle(self, kind: Any) -> None:
        name = self._call.name
        is_known = is_number(kind) if name == "percentile" else physical_of(kind) is not None
        if not is_known:
            raise self._refuse()
        self.physical = None
        self.is_distinct = name in ("collect_set", "count_distinct")
        self._element = pa.float64() if name == "percentile" else _plain_type(kind)
        self.fields = (
            StateField("values", "<u8", pa.list_(self._element), 0, is_list=True),
            StateField("length", "<u4", pa.null(), 8),
            StateField("seen", "<u1", pa.null(), 12),
            StateField("in_batch", "<u1", pa.null(), 13),
            StateField("zero", "<u2", pa.null(), 14),
            StateField("count", "<i8", pa.null(), 16),
        )
        self.result_type = {
            "collect_list": pa.list_(kind),
            "collect_set": pa.list_(kind),
            "count_distinct": pa.int64(),
            "percentile": pa.list_(pa.float64()) if self._has_many else pa.float64(),
        }[name]

    @property
    def _has_many(self) -> bool:
        """Whether several percentiles are asked for, and so the result is a list."""
        return isinstance(self._call.at, tuple)

    def begin(self) -> CollectedFold:
        return CollectedFold(self)

    def text_column(self) -> None:
        return None

    def source(self, columns: BatchColumns, heap: int | None) -> Bytes:
        written = columns.written.get(self.name)
        return Bytes(None, None if written is None else address(written), heap)

    def column(self, columns: BatchColumns) -> pa.Array:
        """The values of a batch as they are held; of sets those that are equal are the same."""
        name = str(self._call.column)
        if self._call.name == "percentile":
            return columns.get(name, "f64").column
        found = plain(single(columns.rows.column(name)))
        if self.is_distinct and pa.types.is_floating(found.type):
            is_valid = validity(found) if found.null_count else None
            return arrow_fixed(
                numbers(found) + found.type.to_pandas_dtype()(0), found.type, is_valid
            )
        return found

    # Values and their blocks

    def flat(self, states: Array, source: Bytes) -> pa.Array:
        """The values of states, one state after another."""
        where = (reference(states_structure(states, self.at)), None, len(states), reference(source))
        total = kernel.tm_read_blobs(*where, None, None)
        check_text(total, "states of windows")
        offsets = np.zeros(len(states) + 1, dtype=np.int32)
        data = np.empty(max(1, total), dtype=np.uint8)
        kernel.tm_read_blobs(*where, address(offsets), address(data))
        data, counts = data[:total], states[self.name]["count"]
        if not pa.types.is_string(self._element):
            width = _width(self._element)
            values = data if width == 1 else data.reshape(-1, width)
            return arrow_fixed(np.ascontiguousarray(values), self._element)
        is_length = _first_parts(4 * counts, np.diff(offsets))
        sizes = np.ascontiguousarray(data[is_length]).view("<i4")
        ends = text_offsets(sizes, "states of windows")
        return arrow_text(ends, np.ascontiguousarray(data[~is_length]), pa.string(), None)

    def hold(
        self, states: Array, which: Counts, flat: pa.Array, counts: Counts
    ) -> npt.NDArray[np.uint8]:
        """Lets states hold these values, which are in the bytes that are returned."""
        lengths, data = _blocks(flat, counts)
        mine = states[self.name]
        mine["values"][which] = np.cumsum(lengths) - lengths
        mine["length"][which] = lengths
        mine["count"][which] = counts
        mine["in_batch"][which] = 1
        return data

    def gather(
        self, states: Array, which: Counts, owners: Counts, flat: pa.Array
    ) -> npt.NDArray[np.uint8]:
        """The same with values in the order in which they came; ``which[owners]`` are the states
        that they belong to. Sets take each value once."""
        if self.is_distinct:
            kept = _first_of_each(owners, flat)
            owners, flat = owners[kept], flat.take(pa.array(kept))
        flat = flat.take(pa.array(np.argsort(owners, kind="stable")))
        return self.hold(states, which, flat, np.bincount(owners, minlength=len(which)))

    def lists(self, states: Array, source: Bytes) -> pa.Array:
        """What states hold, as lists."""
        return _lists(states[self.name]["count"], self.flat(states, source))

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        name, counts = self._call.name, states[self.name]["count"]
        if name == "count_distinct":
            return arrow_fixed(np.ascontiguousarray(counts), pa.int64())
        found = self.lists(states, self.source(columns, heap))
        if name != "percentile":
            return found.cast(self.result_type)
        return self._percentiles(np.ascontiguousarray(counts), numbers(found.flatten()))

    def _percentiles(self, counts: Counts, values: npt.NDArray[np.float64]) -> pa.Array:
        wanted = self._call.at if isinstance(self._call.at, tuple) else (self._call.at,)
        values = values[np.lexsort((values, np.repeat(np.arange(len(counts)), counts)))]
        found = np.zeros((len(counts), len(wanted)))
        has_any = counts > 0
        first = (np.cumsum(counts) - counts)[has_any]
        for place, share in enumerate(wanted):
            assert share is not None
            found[has_any, place] = _between(values, first, (counts[has_any] - 1) * share)
        if not self._has_many:
            return arrow_fixed(np.ascontiguousarray(found[:, 0]), pa.float64(), has_any)
        flat = arrow_fixed(np.ascontiguousarray(found[has_any]).reshape(-1), pa.float64())
        listed = _lists(np.where(has_any, len(wanted), 0), flat)
        if has_any.all():
            return listed
        return pa.ListArray.from_arrays(listed.offsets, flat, mask=pa.array(~has_any))


class CollectedFold:
    """Gathers the values of a batch, and puts them behind those that windows hold at its end."""

    def __init__(self, function: Collected) -> None:
        self._function = function
        self._windows: list[Counts] = []
        self._values: list[pa.Array] = []

    def add(
        self, states: Array, columns: BatchColumns, assigned: Assignment, heap: int | None
    ) -> None:
        column = self._function.column(columns)
        keep = np.flatnonzero(assigned.window >= 0)
        rows = keep if assigned.row is None else assigned.row[keep].astype(np.int64)
        window = assigned.window[keep].astype(np.int64)
        if column.null_count:
            is_valid = validity(column)[rows]
            rows, window = rows[is_valid], window[is_valid]
        self._windows.append(window)
        self._values.append(column.take(pa.array(rows)))

    def finish(
        self,
        states: Array,
        is_prior: npt.NDArray[np.bool_],
        columns: BatchColumns,
        heap: int | None,
    ) -> None:
        if not self._windows:
            return
        function = self._function
        met, owners = np.unique(np.concatenate(self._windows), return_inverse=True)
        if not len(met):
            return
        before = states[met]
        held = function.flat(before, function.source(columns, heap))
        flat = pa.concat_arrays([held, *self._values])
        counts = before[function.name]["count"]
        owners = np.concatenate([np.repeat(np.arange(len(met)), counts), owners])
        columns.written[function.name] = function.gather(states, met, owners, flat)


def _first_of_each(owners: Counts, values: pa.Array) -> Counts:
    """The places at which an owner has a value for the first time."""
    codes = values.dictionary_encode().indices.to_numpy().astype(np.int64)
    _, first = np.unique(owners * (int(codes.max(initial=0)) + 1) + codes, return_index=True)
    places: Counts = np.sort(first)
    return places


def _between(
    values: npt.NDArray[np.float64], first: Counts, position: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Values at positions between others, as far from both as the position is; Spark's formula, to
    the last digit."""
    low, high = np.floor(position).astype(np.int64), np.ceil(position).astype(np.int64)
    lower, higher = values[first + low], values[first + high]
    with np.errstate(all="ignore"):
        found = lower + (higher - lower) * (position - low)
    is_one = (low == high) | (lower == higher)
    between: npt.NDArray[Any] = np.where(is_one, lower, found)
    return between


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else kind


def _width(kind: pa.DataType) -> int:
    return 1 if pa.types.is_boolean(kind) else int(kind.bit_width // 8)


def _lists(counts: Counts, flat: pa.Array) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(counts)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat)


def _first_parts(heads: Counts, lengths: Counts) -> npt.NDArray[np.bool_]:
    """Which bytes of blocks that lie side by side belong to the first part of each."""
    parts = np.empty(2 * len(heads), dtype=np.int64)
    parts[::2], parts[1::2] = heads, lengths - heads
    return np.repeat(np.arange(len(parts)) % 2 == 0, parts)


def _blocks(flat: pa.Array, counts: Counts) -> tuple[Counts, npt.NDArray[np.uint8]]:
    """The lengths of the blocks for lists of values, and the blocks side by side."""
    if not pa.types.is_string(flat.type):
        width = _width(flat.type)
        return counts * width, _raw_bytes(flat, width)
    buffers, count = flat.buffers(), len(flat)
    if not count:
        return np.zeros(len(counts), dtype=np.int64), np.empty(1, dtype=np.uint8)
    offsets = np.frombuffer(buffers[1], "<i4", count + 1, 4 * flat.offset)
    text = np.frombuffer(buffers[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    last = np.cumsum(counts)
    ends = offsets.astype(np.int64)
    lengths = ends[last] - ends[last - counts] + 4 * counts
    is_length = _first_parts(4 * counts, lengths)
    data = np.empty(len(is_length), dtype=np.uint8)
    data[is_length] = np.diff(offsets).view(np.uint8)
    data[~is_length] = text
    return lengths, data


def _raw_bytes(flat: pa.Array, width: int) -> npt.NDArray[np.uint8]:
    if not len(flat):
        return np.empty(1, dtype=np.uint8)
    if pa.types.is_boolean(flat.type):
        bits: npt.NDArray[np.uint8] = flat.to_numpy(zero_copy_only=False).astype(np.uint8)
        return bits
    return np.frombuffer(flat.buffers()[1], np.uint8, width * len(flat), width * flat.offset)
