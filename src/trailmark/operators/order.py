"""The order in which the tuples of a batch are taken: by columns, as Spark sorts them.

A batch that comes from several partitions has no order of its own. Rows are put in order once,
before they are logged, and what is logged is what counts from then on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.kernel.columns import arrow_fixed, numbers
from trailmark.log import PortRows

_T = pa.types


def order_names(order_by: str | Sequence[str] | None) -> list[str]:
    """The columns that are asked for; none where the order does not matter."""
    if order_by is None:
        return []
    names = [order_by] if isinstance(order_by, str) else order_by
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise SettingError(
            f"order_by must be the name of a column or a list of names, got {order_by!r}.",
            where="order_by",
        )
    if not names:
        raise SettingError(
            "order_by names no column.",
            where="order_by",
            fix="Name at least one, or leave order_by out.",
        )
    if len(set(names)) != len(names):
        raise SettingError(f"A column is named twice: {list(names)}.", where="order_by")
    return list(names)


def check_orderable(schema: pa.Schema, names: Sequence[str]) -> None:
    for name in names:
        kind = schema.field(name).type
        if not is_orderable(kind):
            raise UnsupportedType(
                f"Tuples cannot be ordered by column {name!r} of type {kind}.",
                where="order_by",
                fix="Cast it to a number, string, boolean, date, timestamp or decimal first.",
            )


def is_orderable(kind: pa.DataType) -> bool:
    """Whether tuples can be put in order by a column of this type."""
    is_number = _T.is_integer(kind) or _T.is_float32(kind) or _T.is_float64(kind)
    is_text = _T.is_string(kind) or _T.is_large_string(kind)
    is_time = _T.is_date(kind) or _T.is_timestamp(kind)
    is_other = _T.is_boolean(kind) or _T.is_decimal128(kind)
    return bool(is_number or is_text or is_time or is_other)


def in_order(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Rows by the columns, ascending: nulls first, NaN last, -0.0 equal to 0.0, strings by their
    bytes. Rows that are equal in all of them stay as they came."""
    return rows.take(sorted_places([rows.column(name) for name in names]))


def merged(rows: PortRows, columns: Sequence[str]) -> PortRows:
    """The rows of several inputs in one such order, by a column of each."""
    assert rows.order is not None
    parts = [table.column(name) for table, name in zip(rows.tables, columns, strict=True)]
    firsts = np.cumsum([0, *map(len, parts)])
    came = np.empty(len(rows.order), dtype=np.int64)
    for port, first in enumerate(firsts[:-1]):
        came[rows.order == port] = np.arange(first, firsts[port + 1])
    values = pa.concat_arrays(parts).take(arrow_fixed(came, pa.int64()))
    places = came[numbers(sorted_places([values]))]
    order = np.searchsorted(firsts, places, side="right") - 1
    tables = [
        table.take(arrow_fixed(places[order == port] - firsts[port], pa.int64()))
        for port, table in enumerate(rows.tables)
    ]
    return PortRows(tuple(tables), order.astype(np.uint8))


def sorted_places(columns: Sequence[pa.Array]) -> pa.Array:
    """The places of rows in order."""
    from pyarrow import compute  # slow to import, and most operators order nothing

    keys: list[pa.Array] = []
    for column in columns:
        if column.null_count:
            keys.append(column.is_valid())  # Arrow puts nulls last, and NaN before them
        keys.append(column)
    labels = [str(place) for place in range(len(keys))]
    return compute.sort_indices(
        pa.RecordBatch.from_arrays(keys, labels),
        sort_keys=[(label, "ascending") for label in labels],
    )
