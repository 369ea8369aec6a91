"""Rows as a stream has them: its columns, with its types."""

from __future__ import annotations

import pyarrow as pa

from trailmark.errors import SchemaChanged


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns as the stream has them: by name, with its types.

    Only what holds the same values in another form is changed: zoned times of another zone, texts
    with wider offsets.
    """
    if batch.schema.names != schema.names:
        raise SchemaChanged(
            f"The rows have columns {batch.schema.names} instead of {schema.names}.",
            where="columns",
            fix="Select the columns of the stream, in its order, before you write.",
        )
    columns = []
    for column, wanted in zip(batch.columns, schema, strict=True):
        if column.type == wanted.type:
            columns.append(column)
            continue
        if not _has_same_values(column.type, wanted.type):
            raise _other_type(column, wanted)
        try:
            columns.append(column.cast(wanted.type))
        except pa.ArrowException as error:
            raise _other_type(column, wanted) from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _has_same_values(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types differ in form only; a cast would also make texts of numbers, and drop
    the fields of a struct."""
    kinds = pa.types
    if kinds.is_timestamp(given) and kinds.is_timestamp(wanted):
        return given.unit == wanted.unit and (given.tz is None) == (wanted.tz is None)
    if kinds.is_map(given) or kinds.is_map(wanted):
        return (
            kinds.is_map(given)
            and kinds.is_map(wanted)
            and _has_same_values(given.key_type, wanted.key_type)
            and _has_same_values(given.item_type, wanted.item_type)
        )
    if kinds.is_struct(given) and kinds.is_struct(wanted):
        return [each.name for each in given] == [each.name for each in wanted] and all(
            _has_same_values(one.type, other.type) for one, other in zip(given, wanted, strict=True)
        )
    if _is_list(given) and _is_list(wanted):
        return _has_same_values(given.value_type, wanted.value_type)
    return given == wanted or any(
        is_kind(given) and is_kind(wanted) for is_kind in (_is_text, _is_bytes)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _other_type(column: pa.Array, wanted: pa.Field) -> SchemaChanged:
    return SchemaChanged(
        f"Column {wanted.name!r} arrives as {column.type} instead of {wanted.type}.",
        where=wanted.name,
        fix="Cast it before you write, or write to a new stream.",
    )
