"""Schemas of persistent streams: Spark's and Arrow's, whole and nested."""

from __future__ import annotations

import inspect
from typing import Any

import pyarrow as pa
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from trailmark.errors import SchemaChanged, UnsupportedType
from trailmark.streams.view import Columned

#: What comes back from Arrow as it went in. Subclasses (char, varchar) come back as they are, too.
_PLAIN = (
    spark.BooleanType,
    spark.ByteType,
    spark.ShortType,
    spark.IntegerType,
    spark.LongType,
    spark.FloatType,
    spark.DoubleType,
    spark.DecimalType,
    spark.StringType,
    spark.BinaryType,
    spark.DateType,
    spark.TimestampType,
    spark.TimestampNTZType,
    spark.DayTimeIntervalType,
)
#: Types of Arrow's that Spark does not have, and the next larger one that it has.
_LARGER = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
}
# Spark 4.0 and 4.1 always give times in UTC, later ones ask for the zone.
_UTC = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}


def arrow_schema(
    schema: spark.StructType, where: str = "schema", place: str = "a stream"
) -> pa.Schema:
    """The columns as they are stored and handed to Spark; refused if some cannot be kept in
    ``place``, as part of the argument ``where``."""
    for field in schema:
        _check(field.dataType, field.name, where, place)
    return to_arrow_schema(schema, **_UTC)  # type: ignore[arg-type]


def stored_form(schema: spark.StructType) -> spark.StructType:
    """The schema of a stream that is written with this one: any column may hold nulls later."""
    fields = [spark.StructField(f.name, f.dataType, True, f.metadata) for f in schema]
    return spark.StructType(fields)


def spark_schema(view: Columned) -> spark.StructType:
    """The columns of a stream as Spark has them."""
    stored: Any = view.source_schema
    if stored is not None:
        return spark.StructType.fromJson(dict(stored))
    return from_arrow_schema(pa.schema([_known_to_spark(field) for field in view.schema]))


def _known_to_spark(field: pa.Field) -> pa.Field:
    """The column in the next larger type, if Spark has none for it: states of users' functions are
    of any number of bits."""
    kind = field.type
    if pa.types.is_fixed_size_binary(kind):
        kind = pa.binary()
    return field.with_type(_LARGER.get(kind, kind))


def check_wanted(wanted: spark.StructType, view: Columned) -> None:
    """Refuses a schema that asks for other columns than the stream has. Fewer are fine."""
    has = arrow_schema(spark_schema(view))
    for field in arrow_schema(wanted):
        found = has.field(field.name).type if field.name in has.names else "absent"
        if found != field.type:
            raise SchemaChanged(
                f"Column {field.name!r} is {found} in the stream, not {field.type}.",
                where="schema",
                fix=f"The stream has {', '.join(f'{f.name}: {f.type}' for f in has)}; name any of "
                "these, or leave the schema out.",
            )


def as_asked(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with the very types that Spark expects of them."""
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _check(kind: spark.DataType, column: str, where: str, place: str) -> None:
    if isinstance(kind, spark.ArrayType):
        _check(kind.elementType, f"{column}.element", where, place)
    elif isinstance(kind, spark.MapType):
        _check(kind.keyType, f"{column}.key", where, place)
        _check(kind.valueType, f"{column}.value", where, place)
    elif isinstance(kind, spark.StructType):
        for field in kind:
            _check(field.dataType, f"{column}.{field.name}", where, place)
    elif not isinstance(kind, _PLAIN):
        raise UnsupportedType(
            f"Column {column!r} of type {kind.simpleString()} cannot be kept in {place}.",
            where=where,
            fix="Cast it, to a string for example, or leave it out.",
        )
