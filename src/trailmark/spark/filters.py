"""Filters that Spark pushes down: rows are left out early, files and batches are not read at all.

Spark evaluates every filter again. So only what cannot differ from Spark's own answer is used:
comparisons of whole numbers, texts, booleans, dates, times and decimals, not of floating-point
numbers, whose NaN is different in Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import datasource as spark

from trailmark.errors import SettingError
from trailmark.streams.times import Span, parse_timestamp

_COMPARISONS: dict[type[Any], str] = {
    spark.EqualTo: "equal",
    spark.GreaterThan: "greater",
    spark.GreaterThanOrEqual: "greater_equal",
    spark.LessThan: "less",
    spark.LessThanOrEqual: "less_equal",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """A column, how it is compared, and with what."""

    column: str
    comparison: str
    value: Any

    def holds(self, rows: pa.RecordBatch) -> pa.Array:
        """Where it holds; null where that is unknown, which is no."""
        column = rows.column(self.column)
        compare: Any = getattr(pc, self.comparison)
        return compare(column, pa.scalar(self.value, column.type))


def usable(filters: Iterable[spark.Filter], schema: pa.Schema) -> list[Condition]:
    """The filters that rows can be left out by."""
    found = []
    for each in filters:
        comparison = _COMPARISONS.get(type(each))
        path: Sequence[str] = getattr(each, "attribute", ())
        if comparison is None or len(path) != 1 or path[0] not in schema.names:
            continue
        condition = Condition(path[0], comparison, getattr(each, "value", None))
        if _is_exact(schema.field(path[0]).type, condition.value):
            found.append(condition)
    return found


def _is_exact(kind: pa.DataType, value: Any) -> bool:
    t = pa.types
    is_known = (
        t.is_integer(kind)
        or t.is_string(kind)
        or t.is_boolean(kind)
        or t.is_date(kind)
        or t.is_timestamp(kind)
        or t.is_decimal(kind)
    )
    if not is_known or value is None:
        return False
    try:
        pa.scalar(value, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def select(rows: pa.RecordBatch, conditions: Sequence[Condition]) -> pa.RecordBatch:
    """The rows for which all conditions hold."""
    for condition in conditions:
        rows = rows.filter(condition.holds(rows))
    return rows


def equal_values(conditions: Sequence[Condition]) -> Mapping[str, Any]:
    """The columns that have to have one value."""
    return {each.column: each.value for each in conditions if each.comparison == "equal"}


def narrowed(span: Span, conditions: Sequence[Condition], time_column: str | None) -> Span:
    """The span less the times that the conditions exclude."""
    first, last = span.first_us, span.last_us
    for each in conditions:
        if each.column != time_column or not isinstance(each.value, datetime):
            continue
        moment = parse_timestamp(each.value, each.column)
        if each.comparison in ("equal", "greater", "greater_equal"):
            first = moment if first is None else max(first, moment)
        if each.comparison in ("equal", "less", "less_equal"):
            last = moment if last is None else min(last, moment)
    try:
        return Span(span.first_batch, span.last_batch, first, last)
    except SettingError:
        return span  # nothing can be in there; Spark will find out
