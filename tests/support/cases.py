"""A case: an aggregate and the batches it is given. How it is run is left to the tests."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.compare import footprint_states, table_states
from tests.support.delivered import shuffled, split
from tests.support.oracle import Identity, Oracle, OracleOutcome, Row, place_in_order
from tests.support.plain import batch_of, plain_column, plain_rows
from tests.support.userfunctions import spread, trail, weighted
from trailmark.kernel.columns import contiguous
from trailmark.log import PortRows, Segment
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.late import Late
from trailmark.operators.protocol import BatchInput, State
from trailmark.records import FrameKind
from trailmark.windows.functions import AnyFunction, Function, UserFunction
from trailmark.windows.spec import CountWindow, TimeWindow, Window

_T = pa.types

#: Types that Arrow prints under another name than that of the function that makes them.
_TYPE_NAMES = {
    "bool": "bool_",
    "date32[day]": "date32",
    "date64[ms]": "date64",
    "double": "float64",
    "float": "float32",
}


@dataclass(frozen=True, repr=False)
class Case:
    """``watermarks[n]`` is the watermark at the end of batch ``n``; it never falls."""

    schema: pa.Schema
    by: tuple[str, ...]
    window: Window
    values: Mapping[str, AnyFunction]
    late: Late
    batches: tuple[pa.RecordBatch, ...]
    watermarks: tuple[int | None, ...]
    order_by: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        schema: pa.Schema,
        *,
        by: Sequence[str],
        window: Window,
        values: Mapping[str, AnyFunction],
        late: Late = "drop",
        batches: Sequence[tuple[int, Sequence[Sequence[Any]]]],
        watermarks: Sequence[int | None] | None = None,
        order_by: Sequence[str] = (),
    ) -> Case:
        """A case from plain rows; each batch comes with the offset its arrays begin at."""
        made = tuple(batch_of(schema, rows, offset) for offset, rows in batches)
        marks = tuple(watermarks) if watermarks is not None else (None,) * len(made)
        return cls(schema, tuple(by), window, values, late, made, marks, tuple(order_by))

    def operator(self) -> Aggregate:
        return Aggregate(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """What the operator is made with."""
        return {
            "schema": self.schema,
            "by": self.by,
            "window": self.window,
            "values": self.values,
            "late": self.late,
            "order_by": self.order_by or None,
        }

    def code(self) -> dict[str, AnyFunction] | None:
        """What of the operator no log holds: functions of the user's own."""
        names = [name for name, call in self.values.items() if isinstance(call, UserFunction)]
        return {name: self.values[name] for name in names} or None

    def oracle(self) -> Oracle:
        return Oracle(
            self.schema, by=self.by, window=self.window, values=self.values, late=self.late
        )

    def given(self, batch: int) -> BatchInput:
        """A batch as it is logged. Windows that it closed are closed for all later ones."""
        late_before = self.watermarks[batch - 1] if batch else None
        rows = self.batches[batch]
        if self.order_by:
            (rows,) = self.operator().arrange(PortRows((rows,))).tables
        return BatchInput(batch, rows, late_before, self.watermarks[batch])

    # As the crash harness wants it: see `tests.support.engine.CrashCase`.

    def shuffled(self, rows: pa.RecordBatch, rng: random.Random) -> pa.RecordBatch:
        return shuffled(rows, rng)

    def split(self, rows: pa.RecordBatch, buckets: int) -> list[pa.RecordBatch]:
        return split(rows, self.by, buckets)

    def outcome(
        self,
        oracle: Oracle,
        batch: int,
        rows: pa.RecordBatch,
        late_before: int | None,
        watermark: int | None,
    ) -> OracleOutcome:
        return oracle.process(batch, plain_rows(rows), late_before, watermark)

    def expected(self, oracle: Oracle, logged: Segment) -> OracleOutcome:
        attributes = logged.footer.attributes
        rows = plain_rows(contiguous(logged.rows(FrameKind.INPUT, self.operator().input_schema)))
        places = [place_in_order(row, self.order_by) for row in rows]
        assert places == sorted(places), f"batch {logged.batch} is logged in another order"
        return oracle.process(
            logged.batch, rows, attributes["late_before"], attributes["watermark"]
        )

    def footprint_states(
        self, operator: Aggregate, footprints: pa.RecordBatch
    ) -> dict[Identity, Row]:
        return footprint_states(operator, footprints)

    def states(self, operator: Aggregate, state: State) -> dict[Identity, Row]:
        return table_states(operator, state)

    def __repr__(self) -> str:
        """Python that makes the case again; see :func:`case_from_text`."""
        fields = ", ".join(f"({f.name!r}, {_type_text(f.type)})" for f in self.schema)
        values = ", ".join(f"{n!r}: {_function_text(call)}" for n, call in self.values.items())
        batches = ",\n        ".join(_batch_text(batch) for batch in self.batches)
        return (
            "Case.of(\n"
            f"    pa.schema([{fields}]),\n"
            f"    by={list(self.by)!r},\n"
            f"    window={self.window!r},\n"
            f"    values={{{values}}},\n"
            f"    late={self.late!r},\n"
            f"    batches=[\n        {batches}\n    ],\n"
            f"    watermarks={list(self.watermarks)!r},\n"
            f"    order_by={list(self.order_by)!r},\n"
            ")"
        )


def case_from_text(text: str) -> Case:
    """The case that a failure printed."""
    names = {
        "Case": Case,
        "CountWindow": CountWindow,
        "Decimal": Decimal,
        "Function": Function,
        "TimeWindow": TimeWindow,
        "inf": float("inf"),
        "nan": float("nan"),
        "pa": pa,
        "spread": spread,
        "trail": trail,
        "weighted": weighted,
    }
    case: Case = eval(text, names)
    return case


def _type_text(kind: pa.DataType) -> str:
    if _T.is_timestamp(kind):
        return f"pa.timestamp({kind.unit!r}, {kind.tz!r})"
    if _T.is_decimal128(kind):
        return f"pa.decimal128({kind.precision}, {kind.scale})"
    name = str(kind)
    return f"pa.{_TYPE_NAMES.get(name, name)}()"


def _function_text(call: AnyFunction) -> str:
    if isinstance(call, UserFunction):
        return f"{call.name}({', '.join(map(repr, call.columns))})"
    return repr(call)


def _batch_text(batch: pa.RecordBatch) -> str:
    rows = list(zip(*(plain_column(column) for column in batch.columns), strict=True))
    return f"({batch.column(0).offset}, {rows!r})"
