"""The rows that reach a task: which bucket they are of, without the control row among them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaChanged, TrailmarkError
from trailmark.kernel.columns import contiguous, numbers

#: The column that tells the bucket of each row.
BUCKET = "$bucket"

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
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, control: ControlKeys
) -> tuple[int, pa.RecordBatch]:
    """The bucket, and its rows with the types of the log, the control row taken out."""
    buckets: set[int] = set()
    chunks: list[pa.RecordBatch] = []
    for batch in batches:
        if batch.num_rows:
            tags = numbers(batch.column(BUCKET))
            buckets |= {int(tags.min()), int(tags.max())}
            chunks.append(_with_types(batch, schema))
    if len(buckets) != 1:
        raise TrailmarkError(
            f"A partition holds rows of {len(buckets)} buckets instead of one.",
            where="tm.aggregate",
            fix="Something rearranges partitions between Trailmark's shuffle and its operator; "
            "please report it with the query's plan (explain).",
        )
    bucket = buckets.pop()
    kept = _without_control_row(chunks, control, control.numbers[bucket])
    return bucket, contiguous(pa.Table.from_batches(kept, schema).combine_chunks())


def _without_control_row(
    chunks: list[pa.RecordBatch], control: ControlKeys, number: int
) -> list[pa.RecordBatch]:
    for place, chunk in enumerate(chunks):
        row = _find(chunk, control.column, number)
        if row is not None:
            halves = [chunk.slice(0, row), chunk.slice(row + 1)]
            return [*chunks[:place], *halves, *chunks[place + 1 :]]
    raise TrailmarkError(
        "The control row of the bucket did not arrive.",
        where="tm.aggregate",
        fix="Please report it with the query's plan (explain).",
    )


def _find(chunk: pa.RecordBatch, name: str, number: int) -> int | None:
    """A row that has the key and is null in every other column.

    Few chunks have such rows at all, and counting nulls is free; so only those few are searched.
    """
    others = [chunk.column(f.name) for f in chunk.schema if f.name != name]
    if not all(column.null_count for column in others):
        return None
    key = chunk.column(name)
    found = _equals(key, number)
    for column in others:
        found &= _is_null(column)
    places = np.flatnonzero(found)
    return int(places[0]) if len(places) else None


def _equals(key: pa.Array, number: int) -> npt.NDArray[np.bool_]:
    if pa.types.is_integer(key.type):
        equal: npt.NDArray[np.bool_] = numbers(key) == number
        return equal & ~_is_null(key)
    import pyarrow.compute as pc  # takes long to import, and most keys are whole numbers

    value = pa.scalar(control_value(key.type, number), key.type)
    same = pc.fill_null(pc.equal(key, value), False)
    return np.asarray(same.to_numpy(zero_copy_only=False), dtype=np.bool_).copy()


def _is_null(column: pa.Array) -> npt.NDArray[np.bool_]:
    validity = column.buffers()[0]
    if validity is None:
        return np.zeros(len(column), dtype=np.bool_)
    bits = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")
    is_null: npt.NDArray[np.bool_] = bits[column.offset : column.offset + len(column)] == 0
    return is_null


def _with_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [_with_type(batch.column(f.name), f) for f in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _with_type(column: pa.Array, wanted: pa.Field) -> pa.Array:
    """Spark names instants after the session's time zone, and may send strings as large ones."""
    kind = wanted.type
    if column.type == kind:
        return column
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
        return column.view(kind)
    if (column.type, kind) in _LARGE:
        return column.cast(kind)
    raise SchemaChanged(
        f"Column {wanted.name!r} arrives as {column.type} instead of {kind}.",
        where="tm.aggregate",
        fix="Please report it with the versions of Spark and Trailmark.",
    )
