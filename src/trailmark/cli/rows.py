"""Rows of a log as text or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from trailmark.log.rows import as_bytes
from trailmark.units import moment

_T = pa.types


def plain_rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as JSON has them: whole numbers exactly, times and decimals as text, bytes as hex."""
    columns = [_plain_column(column) for column in table.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(table.schema.names, values, strict=True))


def row_text(row: dict[str, Any], moments: Collection[str] = ()) -> str:
    """A row for people: ``column=value``, one after another; some numbers are moments."""
    shown = {name: value for name, value in row.items() if name != "$kind"}
    for name in moments:
        if isinstance(shown.get(name), int):
            shown[name] = moment(shown[name])
    return "  ".join(f"{value_text(name)}={value_text(value)}" for name, value in shown.items())


def _plain_column(column: pa.ChunkedArray) -> list[Any]:
    """Arrow's own text for times: Python's would need pandas for nanoseconds, and ends in 9999."""
    kind = column.type
    if _T.is_timestamp(kind):
        zone = "Z" if kind.tz is not None else ""
        bare = column.cast(pa.int64()).cast(pa.timestamp(kind.unit)).cast(pa.string())
        return [None if each is None else f"{each}{zone}" for each in bare.to_pylist()]
    if _T.is_date(kind) or _T.is_time(kind):
        return list(column.cast(pa.string()).to_pylist())
    return [_plain(value) for value in _values(column)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:  # Spark's texts may be any bytes
        chunks = [as_bytes(chunk) for chunk in column.chunks]
        return [_decoded(value) for chunk in chunks for value in chunk.to_pylist()]


def _decoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, dict):
        return {name: _decoded(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_decoded(each) for each in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no word for it
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Decimal) else value


def value_text(value: Any) -> str:
    """Text that cannot be taken for anything else, nor play tricks on a terminal."""
    if isinstance(value, str):
        is_plain = value.isprintable() and value not in ("", "null") and not set(value) & set(' ="')
        return value if is_plain else json.dumps(value)
    return json.dumps(value, default=str)
