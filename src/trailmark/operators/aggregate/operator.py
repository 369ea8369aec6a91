"""The windowed aggregate: group by keys, cut into windows, fold functions over each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import arrow_fixed, contiguous
from trailmark.kernel.library import kernel, reference
from trailmark.log import PortRows
from trailmark.operators.ages import without_kinds
from trailmark.operators.aggregate.arguments import (
    check_arguments,
    check_logged_names,
    key_names,
)
from trailmark.operators.aggregate.assign import (
    TimeAssignment,
    assign_disjoint,
    assign_overlapping,
    close_ended,
    first_end,
)
from trailmark.operators.aggregate.footprints import FootprintFormat
from trailmark.operators.aggregate.states import (
    bind_all,
    fresh_state,
    needed_columns,
    state_type,
)
from trailmark.operators.aggregate.touched import touched_windows
from trailmark.operators.identities import Identities
from trailmark.operators.independent import IndependentPieces
from trailmark.operators.late import Late
from trailmark.operators.met_windows import BatchWindows
from trailmark.operators.order import in_order, order_names
from trailmark.operators.protocol import BatchInput, History, Outcome, Port
from trailmark.operators.user_code import weight_of
from trailmark.records import INPUT_PORT, START
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import FILL_PLACE, SlotRows, Slots, StateTable, TableLayout
from trailmark.windows.bound import (
    Assignment,
    BatchColumns,
    states_structure,
)
from trailmark.windows.bounds import WindowBounds
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow, TimeWindow, Window, event_times


class _Batch(NamedTuple):
    """A batch whose tuples are in their windows, but whose windows are not back in the table."""

    columns: BatchColumns
    windows: BatchWindows
    times: TimeAssignment
    null_times: int


class Aggregate(IndependentPieces):
    """An aggregate bound to the schema of its input. Implements ``Operator``."""

    uses_clock = False

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
        names, order = key_names(by, may_be_none=True), order_names(order_by)
        check_arguments(schema, names, window, values, late, order)
        self.window = window
        self._late = late
        self._order = order
        self._calls = dict(values)
        self._keys = KeyLayout([schema.field(name) for name in names])
        self._functions = bind_all(values, schema)
        self._held = [
            (each, item) for each in self._functions for item in each.fields if item.is_held
        ]
        self.layout = TableLayout(
            self._keys,
            state_type(self._functions),
            has_start=window.has_start,
            by_start=isinstance(window, TimeWindow),
        )
        self.event_time = window.column if isinstance(window, TimeWindow) else None
        self.input_schema = needed_columns(schema, names, self.event_time, values, order)
        delay_us = window.delay if isinstance(window, TimeWindow) else 0
        given = (INPUT_PORT, self.input_schema, self.event_time, delay_us)
        self.ports = (Port(*given, late_at_watermark=False),)
        self.late_schema = self.input_schema
        self.identities = Identities(self._keys, window.has_start)
        # Windows of a count of tuples follow from the ones of their key before them.
        self.copied_together = Identities(self._keys, isinstance(window, TimeWindow))
        # The windows of a count of tuples begin where the ones before them end.
        self.rebuilds_from_openings = isinstance(window, TimeWindow)
        self._fresh = fresh_state(self._functions)
        self.logged_schema = self._result_fields([pa.field(START, pa.int64())])
        #: None if windows have none.
        self.bounds = WindowBounds.of(window, schema, len(names))
        self.result_schema = self._result_fields(self.bounds.fields if self.bounds else [])
        self.shown_schema = (
            self.result_schema
            if self.bounds is None
            else self.bounds.joined_schema(self.result_schema)
        )
        self._format = FootprintFormat(self.layout, self._functions, self._has_fill)
        check_logged_names(self._format.schema.names)

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

    def layout_key(self) -> list[object]:
        layout = self.layout
        return [layout.stride, str(layout.state), layout.keys.describe()]

    def arrange(self, rows: PortRows) -> PortRows:
        return PortRows((in_order(rows.tables[0], self._order),)) if self._order else rows

    def open(self, memory: Memory, history: History, *, is_new: bool = True) -> StateTable:
        return StateTable(self.layout, memory, is_new=is_new)

    def looks_back(self, table: StateTable) -> None:
        """Windows hold what they need of their tuples."""

    def next_alarm(self, table: StateTable) -> None:
        """Windows close by event time alone."""

    def next_due(self, table: StateTable) -> int | None:
        """When the first window ends."""
        if not isinstance(self.window, TimeWindow):
            return None
        return first_end(table, self.window)

    def touched(self, table: StateTable, given: BatchInput) -> Slots:
        rows, _ = self._with_times(given.rows)
        return touched_windows(table, self.window, rows, given)

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
            fold.finish(states, windows.is_prior, columns, table.heap_address)
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
        for function, item in self._held:
            states = reference(states_structure(windows.states(), function.at + item.at))
            table.reserve_heap(kernel.tm_blobs_need(states, windows.structure))
            source = function.source(columns, table.heap_address)
            assert source is not None
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

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        return published if self.bounds is None else self.bounds.joined(published)

    def footprints(self, table: StateTable, slots: Slots, opened: int) -> pa.RecordBatch:
        return self._format.encode(table, slots, opened)

    def content(self, table: StateTable) -> pa.RecordBatch:
        return without_kinds(self.footprints(table, table.list_oldest(), 0))

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        return self._format.widen(footprints, where)

    def weigh(self, footprints: pa.RecordBatch) -> int:
        """Windows take about as much as one another, plain records, but for those that hold lists,
        or texts of a user's."""
        if not all(item.may_be_null for _, item in self._held):
            return weight_of(footprints)
        return int(footprints.num_rows)

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        wrong = self.identities.trouble(footprints)
        return wrong or self._format.trouble(footprints, self.window, batch)

    def load(self, table: StateTable, footprints: pa.RecordBatch, where: str) -> None:
        self._format.decode(table, footprints, where)
