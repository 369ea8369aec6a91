"""Spark's column types and Arrow's: what the engine sees, and what Spark gets back."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import types as spark

from trailmark.errors import UnsupportedType

#: Instants are logged in UTC, whatever the session's time zone is at the time.
INSTANT = pa.timestamp("us", tz="UTC")

_ARROW: dict[type[spark.DataType], pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: INSTANT,
    spark.TimestampNTZType: pa.timestamp("us"),
}
_SPARK: dict[pa.DataType, Callable[[], spark.DataType]] = {v: k for k, v in _ARROW.items()}


def arrow_type(column: spark.StructField, argument: str) -> pa.DataType:
    """The Arrow type of a column; refused if the engine has no use for such columns."""
    kind = column.dataType
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = _ARROW.get(type(kind))
    if found is None or not _compares_bytes(kind):
        raise UnsupportedType(
            f"Column {column.name!r} of type {kind.simpleString()} cannot be used.",
            where=argument,
            fix="Cast it to a number, string, boolean, date, timestamp or decimal first.",
        )
    return found


def spreads_rows(kind: spark.DataType) -> bool:
    """Whether a column of this type can decide which bucket takes a row, and have control keys."""
    if isinstance(kind, spark.BinaryType) or not _compares_bytes(kind):
        return False
    return isinstance(kind, spark.DecimalType) or type(kind) in _ARROW


def _compares_bytes(kind: spark.DataType) -> bool:
    """Under other collations, equal strings have different bytes."""
    return getattr(kind, "collation", "UTF8_BINARY") == "UTF8_BINARY"


def spark_type(kind: pa.DataType, argument: str) -> spark.DataType:
    """The Spark type of a column of results; refused if there is none."""
    if pa.types.is_decimal(kind):
        return spark.DecimalType(kind.precision, kind.scale)
    if pa.types.is_list(kind):
        return spark.ArrayType(spark_type(kind.value_type, argument), containsNull=False)
    if kind in _SPARK:
        return _SPARK[kind]()
    raise UnsupportedType(
        f"Spark has no type for {kind}.",
        where=argument,
        fix="Let the function return one of Spark's types.",
    )
