"""Sessions bound to the schema of their input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from trailmark.operators.aggregate import Aggregate
from trailmark.operators.aggregate.arguments import (
    AnyWindow,
    check_arguments,
    check_logged_names,
    key_names,
)
from trailmark.operators.aggregate.states import bind_all, fresh_state, needed_columns
from trailmark.operators.keyed.operator import Keyed
from trailmark.operators.late import Late
from trailmark.operators.order import order_names
from trailmark.operators.protocol import Port
from trailmark.operators.sessions.code import SessionCode
from trailmark.records import INPUT_PORT
from trailmark.windows.bounds import WindowBounds
from trailmark.windows.functions import AnyFunction
from trailmark.windows.session import SessionWindow

#: The column with the bounds, as Spark's own operator names it.
SESSION = "session_window"


class Sessions(Keyed):
    """An aggregate over sessions. Implements ``Operator``; a piece is all that a key has open."""

    _needs_keys = False

    def __init__(
        self,
        schema: pa.Schema,
        *,
        by: str | Sequence[str],
        window: SessionWindow,
        values: Mapping[str, AnyFunction],
        late: Late = "drop",
        order_by: str | Sequence[str] | None = None,
    ) -> None:
        names, order = key_names(by, may_be_none=True), order_names(order_by)
        check_arguments(schema, names, window, values, late, order)
        self.window = window
        self._calls = dict(values)
        #: A tuple counts for as long as the session that it would be by itself.
        self._counts_for_us = window.gap
        functions = bind_all(values, schema)
        needed = needed_columns(schema, names, window.column, values, order)
        self.bounds = session_bounds(window, schema, len(names))
        results = pa.schema(
            [
                *(schema.field(name) for name in names),
                *self.bounds.fields,
                *(pa.field(each.name, each.result_type) for each in functions),
            ]
        )
        code = SessionCode(
            window, functions, fresh_state(functions), needed, results, self.bounds.kind
        )
        self._columns = code.columns
        check_logged_names([*names, *code.columns.names])
        super().__init__(
            needed,
            code,
            by=names,
            output=results,
            time=window.column,
            delay=f"{window.delay} us",
            late=late,
            order_by=order_by,
        )
        given = (INPUT_PORT, needed, window.column, window.delay)
        self.ports = (Port(*given, late_at_watermark=False),)
        self.shown_schema = self.bounds.joined_schema(results)

    def describe(self) -> dict[str, Any]:
        described = super().describe()
        del described["about"]
        return {
            **described,
            "operator": "sessions",
            "window": self.window.describe(),
            "values": {name: call.describe() for name, call in self._calls.items()},
        }

    def trouble(self, footprints: pa.RecordBatch, batch: int) -> str:
        wrong = super().trouble(footprints, batch)
        return wrong or self._columns.trouble(footprints)

    def show(self, published: pa.RecordBatch) -> pa.RecordBatch:
        return self.bounds.joined(published)


def windowed(
    schema: pa.Schema,
    *,
    by: str | Sequence[str],
    window: AnyWindow,
    values: Mapping[str, AnyFunction],
    late: Late = "drop",
    order_by: str | Sequence[str] | None = None,
) -> Aggregate | Sessions:
    """The aggregate over these columns, whatever its windows are."""
    if isinstance(window, SessionWindow):
        return Sessions(schema, by=by, window=window, values=values, late=late, order_by=order_by)
    return Aggregate(schema, by=by, window=window, values=values, late=late, order_by=order_by)


def session_bounds(window: SessionWindow, schema: pa.Schema, keys: int) -> WindowBounds:
    """The bounds of sessions among the columns of results; a session has no size of its own."""
    zone = schema.field(window.column).type.tz
    return WindowBounds(keys, 0, pa.timestamp("us", tz=zone), SESSION)
