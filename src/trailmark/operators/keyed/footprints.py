"""Footprints of keys as Arrow rows: the key, its age, its times, and the columns of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from trailmark.errors import SchemaChanged
from trailmark.kernel.columns import (
    arrow_fixed,
    column_type,
    numbers,
    single,
    validity,
    whole_numbers,
)
from trailmark.operators.ages import CHECK, OPEN, age_trouble
from trailmark.operators.identities import Identities
from trailmark.operators.keyed.columns import NumberColumn, StateColumn
from trailmark.operators.keyed.due import (
    CLOCK_TIMER,
    CLOCK_TTL,
    EVENT_TIMER,
    EVENT_TTL,
    NEVER,
    KeyedTable,
)
from trailmark.operators.keyed.elements import States
from trailmark.records import FOOTPRINT, KIND, OPENED
from trailmark.state.table import OPENED_PLACE, Slots

_MOMENT = pa.timestamp("us", "UTC")
TIMES = (EVENT_TIMER, CLOCK_TIMER, EVENT_TTL, CLOCK_TTL)


class KeyedFootprints:
    """Turns slots into rows and rows back into slots."""

    def __init__(
        self, keys: Sequence[str], columns: Mapping[str, StateColumn], dues: Sequence[str]
    ) -> None:
        self._keys = tuple(keys)
        self._columns = columns
        self._dues = dues

    def encode(self, table: KeyedTable, slots: Slots, opened: int) -> pa.RecordBatch:
        rows = table.read(slots)
        assert rows.states is not None
        states = rows.states.copy()  # reading keys and heap uses the same memory again
        kinds = np.full(len(slots), OPEN, dtype=np.int8)
        kinds[opened:] = CHECK
        columns = dict(zip(self._keys, table.read_keys(slots, rows), strict=True))
        columns[KIND] = arrow_fixed(kinds, pa.int8())
        (columns[OPENED],) = table.read_numbers(slots, OPENED_PLACE)
        for kind in self._dues:
            at = np.ascontiguousarray(states[kind]["at"])
            columns[kind] = arrow_fixed(at, pa.int64(), at != NEVER)
        columns |= {name: each.read(table, states) for name, each in self._columns.items()}
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def widen(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Footprints with ages in full, however narrow they were logged, and times as such."""
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        columns[OPENED] = arrow_fixed(whole_numbers(rows, OPENED), pa.int64())
        columns |= {kind: columns[kind].view(_MOMENT) for kind in self._dues if kind in columns}
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def load(self, table: KeyedTable, rows: pa.RecordBatch, fresh: States, where: str) -> Slots:
        """Puts footprints into the table; they come with the batch of each."""
        if not rows.num_rows:
            return np.empty(0, dtype=np.int64)
        self._check(rows, where)
        states = np.repeat(fresh, rows.num_rows)
        for name, column in self._columns.items():
            if name in rows.schema.names:  # one that was declared later begins as for a new key
                column.write(table, states, single(rows.column(name)))
        for kind in self._dues:
            if kind in rows.schema.names:
                times = single(rows.column(kind))
                states[kind]["at"] = np.where(validity(times), numbers(times), NEVER)
            states[kind]["queued"] = states[kind]["at"]
        slots = table.insert(
            table.encode_keys(rows),
            starts=None,
            opened=whole_numbers(rows, OPENED),
            footprints=whole_numbers(rows, FOOTPRINT),
            fills=None,
            states=states,
            where=where,
        )
        for kind in self._dues:
            has_time = states[kind]["at"] != NEVER
            table.queues[kind].push(states[kind]["at"][has_time], slots[has_time])
        return slots

    def _check(self, rows: pa.RecordBatch, where: str) -> None:
        """Refuses footprints of a state that was declared in another way."""
        known = {*self._keys, *self._columns, *self._dues, KIND, OPENED, FOOTPRINT}
        for name in rows.schema.names:
            if name in known or (name in TIMES and rows.column(name).null_count == rows.num_rows):
                continue
            raise SchemaChanged(
                f"The logged state has {name.removeprefix('$')!r}, which the operator does not "
                "declare any more.",
                where=where,
                fix="Declare it again, or start the query on a new path.",
            )
        for name, column in self._columns.items():
            found = column_type(rows, name)
            if found is not None and found != column.kind:
                raise SchemaChanged(
                    f"State column {name!r} is {found} in the log and {column.kind} now.",
                    where=where,
                    fix="Declare the type it had, or give the new column another name.",
                )


def keyed_trouble(
    rows: pa.RecordBatch, identities: Identities, state: pa.Schema, batch: int
) -> str:
    """What is wrong with the footprints of a batch, whose state is declared so or has further
    columns; empty if nothing is."""
    wrong = age_trouble(rows, batch) or identities.trouble(rows)
    if wrong:
        return wrong
    for name in TIMES:
        kind = column_type(rows, name)
        if kind is not None and kind != pa.int64():
            return f"has {name!r} of type {kind}"
    for field in state:
        if column_type(rows, field.name) not in (field.type, None):
            return f"has {field.name!r} of another type than {field.type}"
    return ""


def null_trouble(rows: pa.RecordBatch, columns: Mapping[str, StateColumn]) -> str:
    """Nulls where a state has none; empty if there are none."""
    for name, column in columns.items():
        is_number = isinstance(column, NumberColumn) and column.numpy.kind != "M"
        if is_number and name in rows.schema.names and rows.column(name).null_count:
            return f"has nulls in {name!r}"
    return ""
