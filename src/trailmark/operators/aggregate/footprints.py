"""Footprints as Arrow rows: the identity, the age, and the state of a window, column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaChanged
from trailmark.kernel.columns import (
    arrow_fixed,
    column_type,
    numbers,
    plain,
    single,
    whole_numbers,
)
from trailmark.kernel.library import Bytes, Local, address, kernel, reference
from trailmark.operators.ages import CHECK, OPEN, age_trouble
from trailmark.records import FILL, FOOTPRINT, KIND, OPENED, START
from trailmark.state.table import (
    FILL_PLACE,
    OPENED_PLACE,
    PLACE,
    Places,
    Slots,
    StateTable,
    TableLayout,
)
from trailmark.windows.bound import BoundFunction, StateField, states_structure
from trailmark.windows.spec import CountWindow, Window

#: Starts of windows keep far from the ends of 64 bits: sums with sizes do not overflow.
_FURTHEST_START = 3 << 61


class FootprintFormat:
    """Turns slots into rows and rows back into slots."""

    def __init__(
        self, layout: TableLayout, functions: Sequence[BoundFunction], has_fill: bool
    ) -> None:
        self._layout = layout
        self._functions = functions
        self._has_fill = has_fill
        self._logged = [
            (function, item)
            for function in functions
            for item in function.fields
            if not pa.types.is_null(item.kind)
        ]
        self._is_all_numbers = all(_is_number(item) for _, item in self._logged)
        self._places = self._number_places()
        fields = [pa.field(f.name, f.kind) for f in layout.keys.fields]
        fields += [pa.field(START, pa.int64())] if layout.has_start else []
        fields += [pa.field(KIND, pa.int8()), pa.field(OPENED, pa.int64())]
        fields += [pa.field(FILL, pa.int64())] if has_fill else []
        fields += [pa.field(_column(f, item), item.kind) for f, item in self._logged]
        self.schema = pa.schema(fields)

    def _number_places(self) -> Places:
        """Start, batch opened, fill, and the whole numbers of the state, as they are logged."""
        layout = self._layout
        start = layout.key_offset + layout.keys.record_bytes
        places = [np.array([(start, 8)], dtype=PLACE)] if layout.has_start else []
        places += [OPENED_PLACE, FILL_PLACE] if self._has_fill else [OPENED_PLACE]
        states = [
            (layout.state_offset + function.at + item.at, item.kind.bit_width // 8)
            for function, item in self._logged
            if _is_number(item)
        ]
        return np.concatenate([*places, np.array(states, dtype=PLACE)])

    def encode(self, table: StateTable, slots: Slots, opened: int) -> pa.RecordBatch:
        numbers = iter(table.read_numbers(slots, self._places))
        rows = table.read(slots, with_states=not self._is_all_numbers)
        arrays = table.read_keys(slots, rows)
        if self._layout.has_start:
            arrays.append(next(numbers))
        kinds = np.full(len(slots), OPEN, dtype=np.int8)
        kinds[opened:] = CHECK
        arrays.append(arrow_fixed(kinds, pa.int8()))
        arrays.append(next(numbers))
        if self._has_fill:
            arrays.append(next(numbers))
        held: dict[str, dict[str, pa.Array]] = {}
        for function, item in self._logged:
            column = next(numbers) if _is_number(item) else None
            if column is None:
                if rows.states is None:
                    rows = table.read(slots)
                assert rows.states is not None
                if item.is_held and function.name not in held:
                    source = Bytes(None, None, table.heap_address)
                    held[function.name] = function.read_held(rows.states, source)
                column = (
                    held[function.name][item.name]
                    if item.is_held
                    else state_column(rows.states, function, item)
                )
            arrays.append(column)
        return pa.RecordBatch.from_arrays(arrays, names=self.schema.names)

    def widen(self, rows: pa.RecordBatch, where: str) -> pa.RecordBatch:
        """Footprints with the full types of the state, however narrow they were logged."""
        missing = [name for name in self.schema.names if name not in rows.schema.names]
        if missing:
            raise SchemaChanged(
                f"The logged footprints lack {missing}.",
                where=where,
                fix="Use the functions the log was written with, or a new path.",
            )
        arrays = [_widen(single(rows.column(f.name)), f.type) for f in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def trouble(self, rows: pa.RecordBatch, window: Window, batch: int) -> str:
        """What is wrong with the footprints of a batch; empty if they can be loaded."""
        for function, item in self._logged:
            name = _column(function, item)
            kind = column_type(rows, name)
            is_narrow = _is_number(item) and kind is not None and pa.types.is_signed_integer(kind)
            if kind != item.kind and not is_narrow:
                return f"has no {name!r} of type {item.kind}"
            if rows.column(name).null_count and not item.may_be_null:
                return f"has nulls in {name!r}"
            if pa.types.is_list(item.kind) and rows.column(name).flatten().null_count:
                return f"has nulls among the values of {name!r}"
        return footprint_trouble(rows, window, batch)

    def decode(self, table: StateTable, rows: pa.RecordBatch, where: str) -> None:
        """Puts footprints into the table; they come with the batch of each.

        The kernel takes them as they are: whoever has them from a log looks for `trouble` first.
        """
        if not rows.num_rows:
            return
        footprints = whole_numbers(rows, FOOTPRINT)
        rows = self.widen(rows, where)
        states = np.zeros(rows.num_rows, dtype=self._layout.state)
        held: dict[str, dict[str, pa.Array]] = {}
        for function, item in self._logged:
            column = rows.column(_column(function, item))
            if item.is_held:
                held.setdefault(function.name, {})[item.name] = plain(column)
            else:
                states[function.name][item.name] = field_values(column, item)
        for function in self._functions:
            if function.name in held:
                self._move(table, states, function, function.hold(states, held[function.name]))
        table.insert(
            table.encode_keys(rows),
            starts=whole_numbers(rows, START) if self._layout.has_start else None,
            opened=whole_numbers(rows, OPENED),
            footprints=footprints,
            fills=whole_numbers(rows, FILL) if self._has_fill else None,
            states=states,
            where=where,
        )

    def _move(
        self,
        table: StateTable,
        states: npt.NDArray[Any],
        function: BoundFunction,
        data: npt.NDArray[np.uint8],
    ) -> None:
        """Moves what states hold into the heap."""
        count = len(states)
        zeros = np.zeros(count, dtype=np.uint8)
        local = Local(None, address(zeros), address(zeros), count, count)
        for item in function.fields:
            if item.is_held:
                area = reference(states_structure(states, function.at + item.at))
                table.reserve_heap(kernel.tm_blobs_need(area, reference(local)))
                source = Bytes(None, address(data), table.heap_address)
                kernel.tm_store_blobs(table.structure, area, reference(local), reference(source))


def footprint_trouble(rows: pa.RecordBatch, window: Window, batch: int) -> str:
    """What is wrong with the places of windows, by the footprints of a batch; empty if nothing
    is."""
    bounds: dict[str, tuple[int, int]] = {}
    if isinstance(window, CountWindow):
        bounds[FILL] = (min(0, window.size - window.slide), window.size - 1)
    if window.has_start:
        first = 0 if isinstance(window, CountWindow) else -_FURTHEST_START
        bounds[START] = (first, _FURTHEST_START)
    wrong = age_trouble(rows, batch, bounds)
    if wrong:
        return wrong
    if window.has_start and (whole_numbers(rows, START) % window.slide).any():
        return "has windows that begin where none does"
    return ""


def _column(function: BoundFunction, item: StateField) -> str:
    return f"{function.name}.{item.name}"


def _is_number(item: StateField) -> bool:
    """Whole numbers are logged as narrow as they are: most states are small."""
    return bool(pa.types.is_decimal128(item.kind) or pa.types.is_int64(item.kind))


def state_column(states: npt.NDArray[Any], function: BoundFunction, item: StateField) -> pa.Array:
    """A field of fixed width of the states of a function."""
    return arrow_fixed(states[function.name][item.name].copy(), item.kind)


def _widen(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind or not pa.types.is_integer(column.type):
        return column
    low = numbers(column).astype(np.int64)
    if not pa.types.is_decimal128(kind):
        return arrow_fixed(low.astype(f"<i{kind.bit_width // 8}", copy=False), kind)
    return arrow_fixed(np.stack([low, low >> 63], axis=1), kind)


def field_values(column: pa.Array, item: StateField) -> npt.NDArray[Any]:
    """The values of a column as states have them in a field."""
    kind = np.dtype(item.dtype)
    width = column.type.bit_width // 8
    data = np.frombuffer(column.buffers()[1], np.uint8, width * len(column), width * column.offset)
    return data.reshape(len(column), width) if kind.subdtype is not None else data.view(kind)
