"""The rows that reach a task: which bucket they are of, without the control row among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaChanged, TrailmarkError
from trailmark.kernel.columns import contiguous, numbers, validity
from trailmark.values import dataclass

_SECOND_US = 1_000_000
_LARGE = {(pa.large_string(), pa.string()), (pa.large_binary(), pa.binary())}


@dataclass(frozen=True, slots=True)
class ControlKeys:
    """Key ``column`` of the control row of bucket b is made from number b; other keys are null."""

    column: str
    numbers: tuple[int, ...]


def control_value(kind: pa.DataType, number: int) -> Any:
    """The number as a key, in the representation of its Arrow type."""
    if pa.types.is_boolean(kind):
        return number == 1
    if pa.types.is_string(kind):
        return str(number)
    if pa.types.is_timestamp(kind):
        return number * _SECOND_US
    return Decimal(number) if pa.types.is_decimal(kind) else number


def take_bucket(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, control: ControlKeys, where: str
) -> tuple[int, pa.RecordBatch]:
    """The bucket, and its rows with the types of the log, the control row taken out.

    ``where`` names the operator in refusals.
    """
    keys = _KeysOfControl(control, schema.field(control.column).type)
    found: dict[int, tuple[int, int]] = {}
    chunks: list[pa.RecordBatch] = []
    for batch in batches:
        chunk = _with_types(batch, schema, where)
        for bucket, row in _control_rows(chunk, control.column, keys):
            found.setdefault(bucket, (len(chunks), row))
        chunks.append(chunk)
    if len(found) != 1:
        raise TrailmarkError(
            f"A partition holds the rows of {len(found)} buckets instead of one.",
            where=where,
            fix="Something rearranges partitions between Trailmark's shuffle and its operator; "
            "please report it with the query's plan (explain).",
        )
    ((bucket, (place, row)),) = found.items()
    halves = [chunks[place].slice(0, row), chunks[place].slice(row + 1)]
    kept = [*chunks[:place], *halves, *chunks[place + 1 :]]
    return bucket, contiguous(pa.Table.from_batches(kept, schema).combine_chunks())


def _control_rows(
    chunk: pa.RecordBatch, name: str, keys: _KeysOfControl
) -> Iterator[tuple[int, int]]:
    """Rows that have a control key and null in every other column: of each bucket the first one.

    Few chunks have rows that are null there at all, and counting nulls is free.
    """
    others = [chunk.column(f.name) for f in chunk.schema if f.name != name]
    if not all(column.null_count for column in others):
        return
    key = chunk.column(name)
    is_candidate = validity(key)
    for column in others:
        is_candidate &= ~validity(column)
    candidates = np.flatnonzero(is_candidate)
    buckets = keys.buckets_of(key, candidates)
    places = np.flatnonzero(buckets >= 0)
    distinct, first = np.unique(buckets[places], return_index=True)
    yield from zip(distinct.tolist(), candidates[places[first]].tolist(), strict=True)


class _KeysOfControl:
    """Which bucket a key is the control key of."""

    def __init__(self, control: ControlKeys, kind: pa.DataType) -> None:
        self._numbers = np.array(control.numbers, dtype=np.int64)
        self._order = np.argsort(self._numbers)
        self._sorted = self._numbers[self._order]
        self._kind = kind
        self._values: pa.Array | None = None

    def buckets_of(self, key: pa.Array, candidates: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The bucket for each candidate, -1 where there is none."""
        if pa.types.is_integer(self._kind):
            values = numbers(key)[candidates]
            at = np.minimum(np.searchsorted(self._sorted, values), len(self._sorted) - 1)
            return np.where(self._sorted[at] == values, self._order[at], -1)
        import pyarrow.compute as pc  # takes long to import, and most keys are whole numbers

        if self._values is None:
            made = [control_value(self._kind, int(number)) for number in self._numbers]
            self._values = pa.array(made, self._kind)
        found = pc.index_in(key.take(pa.array(candidates)), value_set=self._values)
        buckets: npt.NDArray[np.int64] = pc.fill_null(found, -1).to_numpy().astype(np.int64)
        return buckets


def _with_types(batch: pa.RecordBatch, schema: pa.Schema, where: str) -> pa.RecordBatch:
    columns = [_with_type(batch.column(place), f, where) for place, f in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_type(column: pa.Array, wanted: pa.Field, where: str) -> pa.Array:
    """Spark names instants after the session's time zone, and may send strings as large ones."""
    kind = wanted.type
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
        return column.view(kind)
    if (column.type, kind) in _LARGE or (_is_nested(kind) and _is_nested(column.type)):
        return column.cast(kind)
    raise SchemaChanged(
        f"Column {wanted.name!r} arrives as {column.type} instead of {kind}.",
        where=where,
        fix="Please report it with the versions of Spark and Trailmark.",
    )


def _is_nested(kind: pa.DataType) -> bool:
    """Whether there are columns in it: their types differ as those of plain columns do."""
    return bool(pa.types.is_nested(kind))
