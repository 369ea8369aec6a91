"""The windowed aggregate: group by keys, cut into windows, fold functions over each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.kernel.columns import arrow_fixed, contiguous
from trailmark.kernel.library import kernel, reference
from trailmark.operators.assign import (
    TimeAssignment,
    assign_disjoint,
    assign_overlapping,
    close_ended,
)
from trailmark.operators.footprints import FootprintFormat
from trailmark.operators.identities import Identities
from trailmark.operators.order import check_orderable, in_order, order_names
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.records import START
from trailmark.state.batch import BatchWindows
from trailmark.state.keys import KeyLayout
from trailmark.state.table import FILL_PLACE, SlotRows, Slots, StateTable, TableLayout
from trailmark.windows import bind
from trailmark.windows.bound import (
    Assignment,
    BatchColumns,
    BoundFunction,
    bytes_structure,
    states_structure,
)
from trailmark.windows.bounds import BOUNDS, WindowBounds
from trailmark.windows.functions import AnyFunction, Function, UserFunction
from trailmark.windows.spec import CountWindow, TimeWindow, Window, event_times

Late = Literal["drop", "keep"]


class _Batch(NamedTuple):
    """A batch whose tuples are in their windows, but whose windows are not back in the table."""

    columns: BatchColumns
    windows: BatchWindows
    times: TimeAssignment
    null_times: int


class Aggregate:
    """An aggregate bound to the schema of its input. Implements ``Operator``."""

    def __init__(
        self,
        schema: pa.Schema,
        *,
        by: str | Sequence[str],
        window: Window,
        values: Mapping[str, AnyFunction],
        late: Late = "drop",
        order_by: str | Sequence[str] | None = None,
    ) -> None:
        names, order = _key_names(by), order_names(order_by)
        _check(schema, names, window, values, late, order)
        self.window = window
        self._late = late
        self._order = order
        self._calls = dict(values)
        self._keys = KeyLayout([schema.field(name) for name in names])
        self._functions = _bind_all(values, schema)
        self.layout = TableLayout(
            self._keys,
            _state_type(self._functions),
            has_start=window.has_start,
            by_start=isinstance(window, TimeWindow),
        )
        self.input_schema = _needed(schema, names, window, values, order)
        self.event_time = window.column if isinstance(window, TimeWindow) else None
        self.delay = window.delay if isinstance(window, TimeWindow) else 0
        self.identities = Identities(self._keys, window.has_start)
        # The windows of a count of tuples begin where the ones before them end.
        self.rebuilds_from_openings = isinstance(window, TimeWindow)
        self._fresh = np.zeros(1, dtype=self.layout.state)
        for function in self._functions:
            function.fresh(self._fresh)
        self.logged_schema = self._result_fields([pa.field(START, pa.int64())])
        #: None if windows have none.
        self.bounds = WindowBounds.of(window, schema, len(names))
        self.result_schema = self._result_fields(self.bounds.fields if self.bounds else [])
        self._format = FootprintFormat(self.layout, self._functions, self._has_fill)
        _check_logged_names(self._format.schema.names)

    @property
    def _has_fill(self) -> bool:
        return isinstance(self.window, CountWindow)

    def _result_fields(self, window: list[pa.Field]) -> pa.Schema:
        keys = [pa.field(f.name, f.kind) for f in self._keys.fields]
        values = [pa.field(f.name, f.result_type) for f in self._functions]
        return pa.schema([*keys, *(window if self.window.has_start else []), *values])

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "operator": "aggregate",
            "by": [[f.name, str(f.kind)] for f in self._keys.fields],
            "window": self.window.describe(),
            "values": {name: call.describe() for name, call in self._calls.items()},
            "late": self._late,
        }
        if self._order:
            described["order_by"] = self._order
        return described

    def arrange(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return in_order(rows, self._order) if self._order else rows

    # A batch, live or replayed

    def process(self, table: StateTable, given: BatchInput) -> Outcome:
        batch = self._take_in(table, given)
        results = self._results(table, batch.windows, batch.columns)
        opened = self._store(table, batch.windows, batch.columns)
        changed = batch.windows.left_open() if given.lists_changed else opened[:0]
        is_late = batch.times.is_late.view(np.bool_)
        late_rows = 0 if self.event_time is None else int(is_late.sum())
        keeps = self._late == "keep" and late_rows
        return Outcome(
            results,
            opened,
            changed,
            late=batch.columns.rows.filter(pa.array(is_late)) if keeps else None,
            late_rows=late_rows,
            late_updates=batch.times.late_updates,
            null_times=batch.null_times,
        )

    def replay(self, table: StateTable, given: BatchInput, where: str) -> None:
        batch = self._take_in(table, given, is_replay=True, where=where)
        self._store(table, batch.windows, batch.columns)

    def _take_in(
        self, table: StateTable, given: BatchInput, *, is_replay: bool = False, where: str = ""
    ) -> _Batch:
        """Finds the windows of all tuples and brings their states to the end of the batch."""
        rows, null_times = self._with_times(given.rows)
        columns = BatchColumns(rows)
        windows = BatchWindows(table, self._fresh, rows.num_rows + 16)
        times = TimeAssignment(rows.num_rows)
        folds = [function.begin() for function in self._functions]
        if rows.num_rows:
            for assigned in self._assign(table, windows, columns, given, times, is_replay, where):
                states = windows.states()
                for fold in folds:
                    fold.add(states, columns, assigned, table.heap_address)
        if not is_replay:
            self._close(table, windows, given)
        states = windows.states()
        for fold in folds:
            fold.finish(states, windows.is_prior)
        return _Batch(columns, windows, times, null_times)

    def _assign(
        self,
        table: StateTable,
        windows: BatchWindows,
        columns: BatchColumns,
        given: BatchInput,
        times: TimeAssignment,
        is_replay: bool,
        where: str,
    ) -> Iterator[Assignment]:
        keys = table.encode_keys(columns.rows)
        spec = self.window
        if isinstance(spec, TimeWindow):
            when = event_times(columns.rows.column(spec.column))
            yield from times.assign(table, windows, keys, spec, when, given, is_replay, where)
        elif spec.slide < spec.size:
            yield from assign_overlapping(table, windows, keys, spec, given, is_replay, where)
        else:
            yield from assign_disjoint(table, windows, keys, spec, given, is_replay, where)

    def _with_times(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """Rows without an event time belong to no window."""
        if self.event_time is None:
            return rows, 0
        column = rows.column(self.event_time)
        if not column.null_count:
            return rows, 0
        return rows.filter(column.is_valid()), column.null_count

    def _close(self, table: StateTable, windows: BatchWindows, given: BatchInput) -> None:
        if not isinstance(self.window, TimeWindow) or given.watermark is None:
            return
        if given.late_before is None or given.watermark > given.late_before:
            close_ended(table, windows, self.window, given.watermark)

    def _results(
        self, table: StateTable, windows: BatchWindows, columns: BatchColumns
    ) -> pa.RecordBatch:
        closed = windows.closed()
        slots = windows.slot[closed]
        rows = table.read(slots, with_states=False)
        return self._result_rows(table, slots, rows, windows.states_of(closed), columns)

    def _result_rows(
        self,
        table: StateTable,
        slots: Slots,
        rows: SlotRows,
        states: npt.NDArray[Any],
        columns: BatchColumns,
    ) -> pa.RecordBatch:
        arrays = table.read_keys(slots, rows)
        if rows.starts is not None:
            arrays.append(arrow_fixed(rows.starts, pa.int64()))
        heap = table.heap_address
        arrays += [function.result(states, columns, heap) for function in self._functions]
        return pa.RecordBatch.from_arrays(arrays, schema=self.logged_schema)

    def _store(self, table: StateTable, windows: BatchWindows, columns: BatchColumns) -> Slots:
        for function in self._functions:
            column = function.text_column()
            if column is None:
                continue
            states = reference(states_structure(windows.states(), function.at))
            table.reserve_heap(kernel.tm_blobs_need(states, windows.structure))
            source = bytes_structure(columns.get(column, "text"), table.heap_address)
            kernel.tm_store_blobs(table.structure, states, windows.structure, reference(source))
        return windows.store()

    def unfinished(self, table: StateTable) -> pa.RecordBatch:
        """Results of the windows that are still open, as far as they have come."""
        slots = table.slots()
        if self._has_fill:
            fill = table.read_field(slots, FILL_PLACE)
            slots = slots[fill > 0]  # the others only skip the tuples of a gap
        rows = table.read(slots)
        assert rows.states is not None
        columns = BatchColumns(contiguous(self.input_schema.empty_table()))
        return self._result_rows(table, slots, rows, rows.states, columns)

    # Results and footprints

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        if not self.window.has_start:
            return results
        at = results.schema.get_field_index(START)
        keys, values = results.columns[:at], results.columns[at + 1 :]
        bounds = [] if self.bounds is None else self.bounds.columns(results.column(at))
        return pa.RecordBatch.from_arrays([*keys, *bounds, *values], schema=self.result_schema)

    def snapshot(self, table: StateTable, slots: Slots, opened: int) -> pa.RecordBatch:
        return self._format.encode(table, slots, opened)

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        return self._format.widen(footprints, where)

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        wrong = self.identities.trouble(footprints)
        return wrong or self._format.trouble(footprints, self.window, batch)

    def load(self, table: StateTable, footprints: pa.RecordBatch, where: str) -> None:
        self._format.decode(table, footprints, where)


def _bind_all(values: Mapping[str, AnyFunction], schema: pa.Schema) -> list[BoundFunction]:
    functions: list[BoundFunction] = []
    at = 0
    for name, call in values.items():
        function = bind(name, call, schema, at)
        functions.append(function)
        at += function.size
    return functions


def _state_type(functions: Sequence[BoundFunction]) -> np.dtype[Any]:
    kinds = []
    for function in functions:
        kinds.append(
            np.dtype(
                {
                    "names": [f.name for f in function.fields],
                    "formats": [f.dtype for f in function.fields],
                    "offsets": [f.at for f in function.fields],
                    "itemsize": function.size,
                }
            )
        )
    return np.dtype(
        {
            "names": [function.name for function in functions],
            "formats": kinds,
            "offsets": [function.at for function in functions],
            "itemsize": sum(function.size for function in functions),
        }
    )


def _needed(
    schema: pa.Schema,
    by: list[str],
    window: Window,
    values: Mapping[str, AnyFunction],
    order: list[str],
) -> pa.Schema:
    names = list(by)
    if isinstance(window, TimeWindow):
        names.append(window.column)
    for call in values.values():
        names.extend(call.columns)
    names.extend(order)
    return pa.schema([schema.field(name) for name in dict.fromkeys(names)])


def _key_names(by: str | Sequence[str]) -> list[str]:
    names = [by] if isinstance(by, str) else by
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise SettingError(
            f"by must be the name of a column or a list of names, got {by!r}.", where="by"
        )
    return list(names)


def _check(
    schema: pa.Schema,
    by: list[str],
    window: Window,
    values: Mapping[str, AnyFunction],
    late: str,
    order: list[str],
) -> None:
    if not by:
        raise SettingError("At least one key column is needed.", where="by")
    if len(set(by)) != len(by):
        raise SettingError(f"A key column is named twice: {by}.", where="by")
    if not isinstance(window, CountWindow | TimeWindow):
        raise SettingError(
            f"window must be a count_window or a time_window, got {window!r}.",
            where="window",
            fix="For example tm.count_window(10) or tm.time_window('ordered_at', '1 minute').",
        )
    if not isinstance(values, Mapping) or not values:
        raise SettingError(
            f"values must name at least one function, got {values!r}.",
            where="values",
            fix="For example values={'avg_price': tm.avg('price')}.",
        )
    if late not in ("drop", "keep"):
        raise SettingError(f"late must be 'drop' or 'keep', got {late!r}.", where="late")
    wanted = [*(("by", name) for name in by), *(("order_by", name) for name in order)]
    if isinstance(window, TimeWindow):
        wanted.append(("window", window.column))
    for output, call in values.items():
        if not isinstance(output, str) or not output:
            raise SettingError(f"A value needs a name, got {output!r}.", where="values")
        if not isinstance(call, Function | UserFunction):
            raise SettingError(
                f"{output!r} must be a function such as avg('price'), got {call!r}.",
                where="values",
                fix=f"For example values={{{output!r}: tm.avg('price')}}.",
            )
        if isinstance(call, Function) and call.column is None and call.name != "count":
            raise SettingError(f"{call.name} needs a column.", where=f"values[{output!r}]")
        wanted += [(f"values[{output!r}]", name) for name in call.columns]
    for where, name in wanted:
        if not isinstance(name, str):
            raise SettingError(
                f"A column is given by its name, as text, got {name!r}.", where=where
            )
        if len(schema.get_all_field_indices(name)) != 1:
            raise SettingError(
                f"There is no column {name!r} (or more than one); the input has {schema.names}.",
                where=where,
                fix="Name a column of the input.",
            )
    _check_outputs(by, window, values)
    check_orderable(schema, order)
    if isinstance(window, TimeWindow):
        window.check_schema(schema)


def _check_outputs(by: list[str], window: Window, values: Mapping[str, AnyFunction]) -> None:
    for name in [*by, *values]:
        if name.startswith("$"):
            raise SettingError(
                f"Names that begin with $ are used by the log: {name!r}.", where="by, values"
            )
        if isinstance(window, TimeWindow) and name in BOUNDS:
            raise SettingError(
                f"{name!r} is a result column with the bounds of time windows.",
                where="by" if name in by else "values",
                fix="Rename the column.",
            )
    for name in values:
        if name in by:
            raise SettingError(
                f"{name!r} is the name of another column of the result.",
                where="values",
                fix="Give it another name.",
            )


def _check_logged_names(names: Sequence[str]) -> None:
    """A footprint has a column for every field of a value's state, named ``value.field``."""
    for name in names:
        if names.count(name) > 1:
            raise SettingError(
                f"Two columns of the log would be called {name!r}.",
                where="by, values",
                fix="Give the key column or the value another name.",
            )
