"""The keyed operator: a user's code over many keys at once, with one row of state for each."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.kernel.columns import arrow_fixed, chosen_rows, contiguous, validity
from trailmark.log import PortRows
from trailmark.log.meta import schema_to_json
from trailmark.operators.ages import without_kinds
from trailmark.operators.find import slots_of_keys
from trailmark.operators.identities import Identities
from trailmark.operators.independent import IndependentPieces
from trailmark.operators.keyed.arguments import check_keyed, initial_port
from trailmark.operators.keyed.batch import Code, KeyedBatch, Numbers
from trailmark.operators.keyed.declared import read_declaration, state_type
from trailmark.operators.keyed.due import (
    CLOCK_TIMER,
    CLOCK_TTL,
    EVENT_TIMER,
    EVENT_TTL,
    NEVER,
    KeyedTable,
)
from trailmark.operators.keyed.footprints import KeyedFootprints, keyed_trouble, null_trouble
from trailmark.operators.late import Late
from trailmark.operators.order import in_order, order_names
from trailmark.operators.protocol import BatchInput, History, Outcome, Port
from trailmark.operators.user_code import check_output, instance_of, weight_of
from trailmark.records import FOOTPRINT, INPUT_PORT, KIND, OPENED, FootprintKind
from trailmark.settings import parse_duration
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import Slots, TableLayout
from trailmark.windows.spec import event_times

#: How often a key's timer is called at the end of all rows.
_MOST_FLUSHES = 1000


class Keyed(IndependentPieces):
    """A user's operator bound to the schema of its input. Implements ``Operator``.

    Parameters
    ----------
    schema
        The columns of the input.
    user
        The user's class, or an instance of it.
    by
        Key columns.
    output
        The columns of the results.
    time, delay
        The column with event times, if there is one, and how far the watermark stays behind it.
    late
        What happens to rows behind the watermark.
    order_by
        Columns by which the rows of a batch are put in order.
    has_initial
        Whether the first batch comes with states that keys begin with, on a port of its own.
    """

    #: What a key's state is made of may be older than the oldest key that is open.
    rebuilds_from_openings = False

    #: Whether there has to be a key, and how long after its time a row still counts.
    _needs_keys = True
    _counts_for_us = 0

    def __init__(
        self,
        schema: pa.Schema,
        user: Any,
        *,
        by: str | Sequence[str],
        output: pa.Schema,
        time: str | None = None,
        delay: str | timedelta = "0 seconds",
        late: Late = "drop",
        order_by: str | Sequence[str] | None = None,
        has_initial: bool = False,
    ) -> None:
        user = instance_of(user)
        declared = read_declaration(user)
        names, self._order = check_keyed(
            schema,
            declared,
            by=by,
            time=time,
            late=late,
            order=order_names(order_by),
            needs_keys=self._needs_keys,
        )
        check_output(output)
        self._late = late
        self._time = time
        self._keys = KeyLayout([schema.field(name) for name in names])
        columns = tuple(copy.copy(column) for column in declared.columns)
        self.layout = TableLayout(self._keys, state_type(columns, declared.dues))
        by_name = {column.name: column for column in columns}
        key_schema = pa.schema([pa.field(f.name, f.kind) for f in self._keys.fields])
        fresh = self._fresh(columns, declared.dues)
        self._code = Code(user, declared, by_name, fresh, output, key_schema)
        delay_us = parse_duration(delay, "delay")
        self.input_schema = schema
        initial = (initial_port(key_schema, declared.schema),) if has_initial else ()
        self.ports: tuple[Port, ...] = (Port(INPUT_PORT, schema, time, delay_us), *initial)
        self.identities = self.copied_together = Identities(self._keys, has_start=False)
        self.late_schema = schema
        self.logged_schema = self.result_schema = self.shown_schema = output
        self._format = KeyedFootprints(names, by_name, declared.dues)
        self.uses_clock = declared.uses_clock

    @property
    def user(self) -> Any:
        """The instance of the user's class."""
        return self._code.user

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self._keys.names

    def _fresh(self, columns: Sequence[Any], dues: Sequence[str]) -> Any:
        fresh = np.zeros(1, dtype=self.layout.state)
        for column in columns:
            column.fresh(fresh)
        for kind in dues:
            fresh[kind] = (NEVER, NEVER)
        return fresh

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "operator": "keyed",
            "about": {"name": self._code.declared.name},
            "by": [[f.name, str(f.kind)] for f in self._keys.fields],
            "state": schema_to_json(self._code.declared.schema),
            "time": self._time,
            "delay_us": self.ports[0].delay_us,
            "late": self._late,
        }
        if self._order:
            described["order_by"] = self._order
        return described

    def layout_key(self) -> list[object]:
        return [self.layout.stride, str(self.layout.state), self._keys.describe()]

    def arrange(self, rows: PortRows) -> PortRows:
        if not self._order:
            return rows
        first, *others = rows.tables
        return PortRows((in_order(first, self._order), *others), rows.order)

    def open(self, memory: Memory, history: History, *, is_new: bool = True) -> KeyedTable:
        return KeyedTable(self.layout, self._code.declared.dues, memory, is_new=is_new)

    def looks_back(self, table: KeyedTable) -> None:
        """States hold what they need of their tuples."""

    def next_alarm(self, table: KeyedTable) -> int | None:
        return _earliest(table, (CLOCK_TIMER, CLOCK_TTL))

    def next_due(self, table: KeyedTable) -> int | None:
        """When the first timer is called, or the first life ends."""
        return _earliest(table, (EVENT_TIMER, EVENT_TTL))

    def touched(self, table: KeyedTable, given: BatchInput) -> Slots:
        rows, _, _, _ = self._split(given)
        limits = {
            **dict.fromkeys((EVENT_TIMER, EVENT_TTL), given.watermark),
            **dict.fromkeys((CLOCK_TIMER, CLOCK_TTL), given.now_us),
        }
        found = [slots_of_keys(table, table.encode_keys(rows))]
        for kind in self._code.declared.dues:
            limit = limits[kind]
            if limit is not None:
                found.append(table.find_due(kind, limit))
        return np.unique(np.concatenate(found))

    # A batch, live or replayed

    def process(self, table: KeyedTable, given: BatchInput) -> Outcome:
        batch = KeyedBatch(self._code, table, given)
        begun = self._begin(table, given)
        rows, times, late, null_times = self._split(given)
        batch.take_rows(rows, times)
        batch.take_due()
        opened = _open_ones(table, [begun, *batch.opened])
        changed = _open_ones(table, [begun, *batch.changed]) if given.lists_changed else opened[:0]
        keeps = self._late == "keep" and late.num_rows
        return Outcome(
            batch.results(),
            opened,
            changed,
            closed=batch.closed(),
            late=late if keeps else None,
            late_rows=late.num_rows,
            null_times=null_times,
        )

    def replay(self, table: KeyedTable, given: BatchInput, where: str) -> None:
        batch = KeyedBatch(self._code, table, given, is_replay=True)
        rows, times, _, _ = self._split(given)
        batch.take_rows(rows, times)
        batch.take_due()

    def finish(self, table: KeyedTable) -> pa.RecordBatch:
        """What all event-time timers return, when no more rows will come; refuses those that set
        themselves again and again."""
        given = BatchInput(0, contiguous(self.input_schema.empty_table()))
        batch = KeyedBatch(self._code, table, given)
        if EVENT_TIMER in table.queues:
            batch.take_kind(EVENT_TIMER, NEVER - 1, most=_MOST_FLUSHES)
        return batch.results()

    def initial_trouble(self, rows: pa.RecordBatch) -> str:
        """What is wrong with states that keys begin with; empty if nothing is."""
        if not self.identities.add(rows, self.identities.new_set()).all():
            return "has a key more than once"
        return null_trouble(rows, self._code.columns)

    def _begin(self, table: KeyedTable, given: BatchInput) -> Slots:
        """Puts the states in that keys begin with."""
        if not given.others or not given.others[0].num_rows:
            return np.empty(0, dtype=np.int64)
        rows, count = given.others[0], given.others[0].num_rows
        trouble = self.initial_trouble(rows)
        if trouble:
            raise SettingError(f"The initial state {trouble}.", where="initial_state")
        plain = {KIND: int(FootprintKind.OPEN), OPENED: given.batch, FOOTPRINT: given.footprint}
        for name, number in plain.items():
            column = arrow_fixed(np.full(count, number, dtype=np.int64), pa.int64())
            rows = rows.append_column(name, column)
        slots: Slots = self._format.load(table, rows, self._code.fresh, "initial_state")
        return slots

    def _split(
        self, given: BatchInput
    ) -> tuple[pa.RecordBatch, Numbers | None, pa.RecordBatch, int]:
        """The rows that are in time and their times, those that are late, and how many have no
        time."""
        rows = given.rows
        if self._time is None:
            return rows, None, rows.slice(0, 0), 0
        column = rows.column(self._time)
        null_times = column.null_count
        if null_times:
            rows = chosen_rows(rows, validity(column))
        times = event_times(rows.column(self._time))
        if given.late_before is None:
            return rows, times, rows.slice(0, 0), null_times
        is_late = times <= given.late_before - self._counts_for_us
        if not is_late.any():
            return rows, times, rows.slice(0, 0), null_times
        return chosen_rows(rows, ~is_late), times[~is_late], chosen_rows(rows, is_late), null_times

    # Results and footprints

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        return results

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        return published

    def footprints(self, table: KeyedTable, slots: Slots, opened: int) -> pa.RecordBatch:
        return self._format.encode(table, slots, opened)

    def content(self, table: KeyedTable) -> pa.RecordBatch:
        return without_kinds(self.footprints(table, table.list_oldest(), 0))

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        return self._format.widen(footprints)

    def weigh(self, footprints: pa.RecordBatch) -> int:
        return weight_of(footprints)

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        wrong = keyed_trouble(footprints, self.identities, pa.schema([]), batch)
        return wrong or null_trouble(footprints, self._code.columns)

    def load(self, table: KeyedTable, footprints: pa.RecordBatch, where: str) -> None:
        self._format.load(table, footprints, self._code.fresh, where)


def _open_ones(table: KeyedTable, parts: Sequence[Slots]) -> Slots:
    """Those of the pieces that are open, each once."""
    slots = np.unique(np.concatenate(parts))
    return slots[table.are_open(slots)]


def _earliest(table: KeyedTable, kinds: Sequence[str]) -> int | None:
    """The first time of these kinds that any key has, or had."""
    times = [table.queues[kind].earliest for kind in kinds if kind in table.queues]
    return min((each for each in times if each is not None), default=None)
