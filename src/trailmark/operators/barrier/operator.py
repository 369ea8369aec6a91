"""The barrier bound to the columns of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trailmark.errors import OperatorError
from trailmark.log import PortRows
from trailmark.operators.barrier.arguments import check_barrier, order_columns
from trailmark.operators.barrier.columns import TogetherColumns
from trailmark.operators.barrier.footprints import BarrierFootprints
from trailmark.operators.barrier.pairing import complete
from trailmark.operators.barrier.state import TUPLE, BarrierState
from trailmark.operators.identities import Identities
from trailmark.operators.independent import IndependentPieces
from trailmark.operators.key_slots import CHAINS
from trailmark.operators.order import in_order
from trailmark.operators.protocol import BatchInput, History, Outcome, Port
from trailmark.operators.user_code import joined
from trailmark.state.keys import KeyLayout
from trailmark.state.memory import Memory
from trailmark.state.table import Slots

_NO_COLUMNS = pa.schema([])
_NONE: Slots = np.empty(0, dtype=np.int64)


#: The key that all tuples have where there is none: on Spark, rows are sent to buckets by a key.
ALL_KEY = "$all"


class Barrier(IndependentPieces):
    """A barrier bound to the schemas of its inputs. Implements ``Operator``.

    Parameters
    ----------
    schemas
        The columns of each input, by its name.
    by
        Key columns, which all inputs have: the n-th tuples of a key belong together. Without any,
        the n-th of all do. A null is a key like any other.
    order_by
        A column that all inputs have, or one of each: by it, the tuples of a batch are put in
        order.
    """

    uses_clock = rebuilds_from_openings = False
    identities = copied_together = Identities(KeyLayout([]), has_start=False)

    def __init__(
        self,
        schemas: Mapping[str, pa.Schema],
        *,
        by: str | Sequence[str] = (),
        order_by: str | Mapping[str, str] | None = None,
    ) -> None:
        by = [by] if isinstance(by, str) else list(by)
        check_barrier(schemas, by)
        first = next(iter(schemas.values()))
        self._keys = KeyLayout([first.field(name) for name in by])
        self._order = order_columns(schemas, order_by)
        self._columns = TogetherColumns(schemas, by)
        self._format = BarrierFootprints(schemas)
        self.ports = tuple(Port(name, schema) for name, schema in schemas.items())
        self.late_schema = first
        self.logged_schema = self.result_schema = self._columns.schema
        self.shown_schema = pa.schema([f for f in self._columns.schema if f.name != ALL_KEY])

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return self._keys.names

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "operator": "barrier",
            "by": [[f.name, str(f.kind)] for f in self._keys.fields],
        }
        return {**described, "order_by": self._order} if self._order else described

    def layout_key(self) -> list[object]:
        columns = [[f.name, str(f.type)] for port in self.ports for f in port.schema]
        return ["barrier", str(TUPLE), str(CHAINS), self._keys.describe(), columns]

    def arrange(self, rows: PortRows) -> PortRows:
        if not self._order:
            return rows
        columns = self._order.values()
        tables = [in_order(t, [name]) for t, name in zip(rows.tables, columns, strict=True)]
        return PortRows(tuple(tables), rows.order)

    def open(self, memory: Memory, history: History, *, is_new: bool = True) -> BarrierState:
        schemas = [port.schema for port in self.ports]
        return BarrierState(self._keys, schemas, memory, history, is_new=is_new)

    def looks_back(self, state: BarrierState) -> int | None:
        return state.refers_back_to()

    def next_alarm(self, state: BarrierState) -> None:
        """Only tuples complete others."""

    # A batch, live or replayed

    def process(self, state: BarrierState, given: BatchInput) -> Outcome:
        was_open = bool(state.open_windows)
        has_rows = bool(_rows(given))
        results = self._take(state, given)
        if has_rows and not was_open:
            state.open_at(given.batch, given.footprint)
            if given.footprint == given.batch:
                state.hold_or_refer()
        is_changed = given.lists_changed and has_rows
        return Outcome(
            results,
            _NONE if was_open else state.list_oldest(),
            state.list_oldest() if is_changed else _NONE,
            closed=joined([], _NO_COLUMNS),
        )

    def replay(self, state: BarrierState, given: BatchInput, where: str) -> None:
        if state.open_windows and state.footprint < given.batch:
            self._take(state, given)

    def _take(self, state: BarrierState, given: BatchInput) -> pa.RecordBatch:
        """Takes a batch in; returns what is complete."""
        came_at = []
        for place, rows in enumerate((given.rows, *given.others)):
            assert given.order is not None
            came_at.append(np.flatnonzero(given.order == place))
            state.add(place, rows, given.batch, np.arange(rows.num_rows))
        state.arrived += _rows(given)
        found = complete(state, came_at)
        queues = zip(state.queues, found.numbers, strict=True)
        taken = [queue.rows.take(numbers) for queue, numbers in queues]
        state.let_go(found.numbers, found.ended_keys)
        state.tidy()
        return self._columns.together(taken)

    def touched(self, state: BarrierState, given: BatchInput) -> Slots:
        return state.list_oldest() if _rows(given) else _NONE

    # Results and footprints

    def publish(self, results: pa.RecordBatch) -> pa.RecordBatch:
        return results

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        return published.select(self.shown_schema.names)

    def footprints(self, state: BarrierState, slots: Slots, opened: int) -> pa.RecordBatch:
        if not len(slots):
            return joined([], self._format.schema)
        return self._format.encode(state, is_opening=bool(opened))

    def content(self, state: BarrierState) -> pa.RecordBatch:
        return self._format.content(state)

    def widen(self, footprints: pa.RecordBatch, where: str) -> pa.RecordBatch:
        return footprints

    def weigh(self, footprints: pa.RecordBatch) -> int:
        return self._format.weigh(footprints)

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        return self._format.trouble(footprints, batch)

    def load(self, state: BarrierState, footprints: pa.RecordBatch, where: str) -> None:
        for place in range(footprints.num_rows):  # there is one
            if state.open_windows:
                raise OperatorError(
                    "The state of a bucket is there twice.",
                    where=where,
                    fix="Run a verification of the logs; restore the damaged files from a backup.",
                )
            self._format.load(state, footprints.slice(place, 1), where)


def _rows(given: BatchInput) -> int:
    return int(given.rows.num_rows + sum(each.num_rows for each in given.others))
