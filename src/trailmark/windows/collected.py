"""Functions that hold the values of a window: lists and sets of them, and what these tell.

A state has the place of its values in the heap of the table, in one block: those of fixed width
side by side, of strings the lengths, then the bytes. Nulls are passed over. A batch reads the
blocks of the windows that it adds to, and writes them anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, numbers, plain, single, validity
from trailmark.kernel.library import Bytes, address
from trailmark.windows.blocks import (
    Blocks,
    Counts,
    flat_values,
    list_blocks,
    list_counts,
    lists_of,
    read_blocks,
)
from trailmark.windows.bound import Array, Assignment, BatchColumns, StateField
from trailmark.windows.builtin import BuiltIn, is_number, physical_of


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
            StateField("values", "<u8", pa.list_(self._element), 0, is_held=True),
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
        counts = states[self.name]["count"]
        return flat_values(counts, *read_blocks(states, self.at, source), self._element)

    def _let_hold(self, states: Array, which: Counts, flat: pa.Array, counts: Counts) -> Blocks:
        """Lets states hold these values, which are in the bytes that are returned."""
        lengths, data = list_blocks(flat, counts)
        mine = states[self.name]
        mine["values"][which] = np.cumsum(lengths) - lengths
        mine["length"][which] = lengths
        mine["count"][which] = counts
        mine["in_batch"][which] = 1
        return data

    def hold(self, states: Array, values: Mapping[str, pa.Array]) -> Blocks:
        column = values["values"]
        every = np.arange(len(column))
        return self._let_hold(states, every, plain(column.flatten()), list_counts(column))

    def read_held(self, states: Array, source: Bytes) -> dict[str, pa.Array]:
        return {"values": lists_of(states[self.name]["count"], self.flat(states, source))}

    def gather(self, states: Array, which: Counts, owners: Counts, flat: pa.Array) -> Blocks:
        """Lets states hold values that are in the order in which they came; ``which[owners]`` are
        the states that they belong to. Sets take each value once."""
        if self.is_distinct:
            kept = _first_of_each(owners, flat)
            owners, flat = owners[kept], flat.take(pa.array(kept))
        flat = flat.take(pa.array(np.argsort(owners, kind="stable")))
        return self._let_hold(states, which, flat, np.bincount(owners, minlength=len(which)))

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        name, counts = self._call.name, states[self.name]["count"]
        if name == "count_distinct":
            return arrow_fixed(np.ascontiguousarray(counts), pa.int64())
        found = self.read_held(states, self.source(columns, heap))["values"]
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
        listed = lists_of(np.where(has_any, len(wanted), 0), flat)
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
