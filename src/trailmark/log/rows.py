"""Rows out of a frame: an Arrow stream that is not trusted, though its checksums are right.

Arrow looks at the structure of a stream when it reads one, and into the columns only when it is
told to: offsets and indexes can point anywhere. Whoever reads them, the kernel above all, takes
them as they are. So nothing leaves this module that Arrow has not validated in full. What values
mean is not judged: Spark's texts may be any bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

#: Types whose values Arrow judges, and those of the same buffers that may be anything.
_LOOSER = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.date64(): pa.int64(),
    pa.time32("s"): pa.int32(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.time64("ns"): pa.int64(),
}
#: So many rows need no bytes: a batch may have columns that are all null.
_FEW_ROWS = 1 << 20


def read_rows(payload: memoryview) -> pa.Table:
    """All rows, validated; raises what Arrow raises, or ``ValueError``.

    Copies nothing: uncompressed columns point into the payload.
    """
    table = pa.ipc.open_stream(pa.py_buffer(payload)).read_all()
    _validate(table)
    return table


def read_parts(
    payload: memoryview, schema: pa.Schema, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows part by part, as they were written; otherwise as `read_rows`.

    They have the columns of the schema. Only those that are named are decompressed; all of them if
    none is.
    """
    places = sorted(schema.get_field_index(name) for name in names)
    options = pa.ipc.IpcReadOptions(included_fields=places, use_threads=False)
    chosen = pa.schema([schema.field(place) for place in places]) if places else schema
    for rows in pa.ipc.open_stream(pa.py_buffer(payload), options=options):
        if not same_columns(rows.schema, chosen):
            raise ValueError(f"other columns than {', '.join(chosen.names)}")
        _validate(rows)
        yield rows


def same_columns(found: pa.Schema, expected: pa.Schema) -> bool:
    """Whether two schemas have the same columns; whether these may be null does not matter."""
    return bool(found.names == expected.names and found.types == expected.types)


def as_bytes(array: pa.Array) -> pa.Array:
    """The same buffers, without the claim that texts are UTF-8 and times are those of a day."""
    kind = _as_bytes(array.type)
    return array if kind == array.type else array.view(kind)


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    t = pa.types
    if kind in _LOOSER:
        return _LOOSER[kind]
    if t.is_struct(kind):
        return pa.struct([_field_as_bytes(each) for each in kind])
    if t.is_map(kind):
        return pa.map_(_field_as_bytes(kind.key_field), _field_as_bytes(kind.item_field))
    if t.is_list(kind):
        return pa.list_(_field_as_bytes(kind.value_field))
    if t.is_large_list(kind):
        return pa.large_list(_field_as_bytes(kind.value_field))
    if t.is_fixed_size_list(kind):
        return pa.list_(_field_as_bytes(kind.value_field), kind.list_size)
    if t.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _as_bytes(kind.value_type), kind.ordered)
    return kind


def _field_as_bytes(field: pa.Field) -> pa.Field:
    return field.with_type(_as_bytes(field.type))


def _validate(rows: pa.Table | pa.RecordBatch) -> None:
    rows.validate()  # that they can be looked at as something else
    for column in rows.columns:
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            as_bytes(chunk).validate(full=True)
    # Names are bytes to Arrow, and text to everybody else.
    names = [f"{field.name} {field.type}" for field in rows.schema]
    most = max(_FEW_ROWS, 8 * rows.nbytes)
    if rows.num_rows > most:
        raise ValueError(f"{rows.num_rows:,} rows do not fit into its bytes")
    for name, column in zip(names, rows.columns, strict=True):
        if pa.types.is_nested(column.type):
            chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
            if any(_longest(chunk) > most for chunk in chunks):
                raise ValueError(f"the values of column {name} do not fit into its bytes")


def _longest(array: pa.Array) -> int:
    """Values of an array, or of one that is nested in it: of some types a few bytes make many."""
    kind = array.type
    inner: list[pa.Array] = []
    if pa.types.is_struct(kind) or pa.types.is_union(kind):
        inner = [array.field(place) for place in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        inner = [array.keys, array.items]
    elif pa.types.is_nested(kind):
        inner = [array.values]
    return max([len(array), *map(_longest, inner)])
