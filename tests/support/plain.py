"""Between Arrow and plain Python values: timestamps and dates as whole numbers of their unit.

Arrays are made the awkward way round: they may begin inside their buffers, and whatever lies under
a null is not zero. Both are legal Arrow, and both are what code forgets first.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.support.folds import unscaled

_T = pa.types


def plain_column(column: pa.Array) -> list[Any]:
    kind = column.type
    if _T.is_timestamp(kind) or _T.is_date64(kind):
        column = column.view(pa.int64())
    elif _T.is_date32(kind):
        column = column.view(pa.int32())
    return list(column.to_pylist())


def plain_rows(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    columns = [plain_column(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


def array_of(values: Sequence[Any], kind: pa.DataType, offset: int = 0) -> pa.Array:
    """An array whose first ``offset`` entries are sliced away and whose nulls hide other values."""
    if _T.is_nested(kind):
        return pa.array([None] * offset + list(values), kind).slice(offset)
    under_null = next((value for value in values if value is not None), _some(kind))
    hidden = [under_null] * offset + [under_null if v is None else v for v in values]
    array = _decimals(hidden, kind) if _T.is_decimal(kind) else pa.array(hidden, kind)
    if any(value is None for value in values):
        is_valid = [place % 2 == 0 for place in range(offset)] + [v is not None for v in values]
        bits = sum(1 << place for place, bit in enumerate(is_valid) if bit)
        validity = pa.py_buffer(bits.to_bytes(len(is_valid) // 8 + 1, "little"))
        array = pa.Array.from_buffers(kind, len(array), [validity, *array.buffers()[1:]])
    return array.slice(offset)


def batch_of(schema: pa.Schema, rows: Sequence[Sequence[Any]], offset: int = 0) -> pa.RecordBatch:
    """A batch from rows of plain values in the order of the schema."""
    arrays = [
        array_of([row[place] for row in rows], field.type, offset)
        for place, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _decimals(values: Sequence[Decimal], kind: pa.DataType) -> pa.Array:
    """From their units: pa.array refuses some values of a negative scale."""
    units = [unscaled(value, kind.scale).to_bytes(16, "little", signed=True) for value in values]
    return pa.Array.from_buffers(kind, len(units), [None, pa.py_buffer(b"".join(units))])


def _some(kind: pa.DataType) -> Any:
    if _T.is_string(kind) or _T.is_large_string(kind):
        return "hidden"
    if _T.is_decimal(kind):
        return Decimal((0, (1,), -kind.scale))
    if _T.is_fixed_size_binary(kind):
        return b"x" * kind.byte_width
    if _T.is_binary(kind):
        return b"hidden"
    return True if _T.is_boolean(kind) else 1
