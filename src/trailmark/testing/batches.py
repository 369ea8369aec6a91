"""The batches that users give: Arrow tables, lists of dictionaries or pandas DataFrames."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.kernel.columns import arrow_fixed, contiguous
from trailmark.log import PortRows
from trailmark.state.keys import KeyLayout

_EXAMPLES = "Give an Arrow table, a record batch, a list of dictionaries or a pandas DataFrame."


def read_batches(
    batches: object,
    schema: pa.Schema | Mapping[str, pa.Schema] | None,
    inputs: Sequence[str] = (),
) -> list[PortRows]:
    """The batches as Arrow has them, all with the same columns; the rows of several inputs come one
    input after another."""
    if isinstance(batches, Mapping | str) or not isinstance(batches, Iterable):
        raise SettingError(
            f"batches must be a list of batches, got {type(batches).__name__}.",
            where="batches",
            fix=_EXAMPLES.replace("Give", "Let each of them be"),
        )
    given = list(batches)
    if not given:
        raise SettingError("There is no batch to run.", where="batches", fix="Give at least one.")
    if not inputs:
        return [PortRows((rows,)) for rows in _alike(given, schema)]
    if schema is not None and not isinstance(schema, Mapping):
        raise SettingError(
            f"schema must be a dictionary with a schema for each of {', '.join(inputs)}.",
            where="schema",
        )
    for number, each in enumerate(given):
        if not isinstance(each, Mapping) or not set(each) <= set(inputs):
            raise SettingError(
                f"Batch {number} is no dictionary with the rows of {' and '.join(inputs)}.",
                where=f"batches[{number}]",
                fix=f"For example {{{inputs[0]!r}: [...], {inputs[1]!r}: [...]}}.",
            )
    known = schema or {}
    ports = [_alike([each.get(name, []) for each in given], known.get(name)) for name in inputs]
    return [_one_after_another(tables) for tables in zip(*ports, strict=True)]


def _one_after_another(tables: tuple[pa.RecordBatch, ...]) -> PortRows:
    ports = np.arange(len(tables), dtype=np.uint8)
    return PortRows(tables, np.repeat(ports, [table.num_rows for table in tables]))


def _alike(batches: Sequence[Any], schema: Any) -> list[pa.RecordBatch]:
    """The rows of one input, with the same columns in every batch."""
    given = [_known(each, number) for number, each in enumerate(batches)]
    known = schema if schema is not None else _schema_of(given)
    return [contiguous(_with(known, each, number)) for number, each in enumerate(given)]


def _known(given: Any, number: int) -> pa.Table | list[Mapping[str, Any]]:
    """A batch as a table, or as rows whose types are not known yet."""
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, list | tuple) and all(isinstance(row, Mapping) for row in given):
        return list(given)
    pandas = sys.modules.get("pandas")  # whoever has a DataFrame has imported it
    if pandas is not None and isinstance(given, pandas.DataFrame):
        return pa.Table.from_pandas(given, preserve_index=False).replace_schema_metadata(None)
    raise SettingError(
        f"Batch {number} is {type(given).__name__}, which holds no rows that are understood.",
        where=f"batches[{number}]",
        fix=_EXAMPLES,
    )


def _schema_of(given: Sequence[pa.Table | list[Mapping[str, Any]]]) -> pa.Schema:
    """Those of the first table; without any, the types of all values."""
    for each in given:
        if isinstance(each, pa.Table):
            return each.schema
    rows = [row for each in given for row in each]
    names = list(dict.fromkeys(name for row in rows for name in row))
    try:
        return pa.table({name: [row.get(name) for row in rows] for name in names}).schema
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SettingError(
            f"Rows have values of different types in one column ({error}).",
            where="batches",
            fix="Say which types are meant: schema=pa.schema([...]).",
        ) from error


def _with(schema: pa.Schema, given: pa.Table | list[Mapping[str, Any]], number: int) -> pa.Table:
    where = f"batches[{number}]"
    if isinstance(given, pa.Table):
        if not given.schema.equals(schema):
            raise SettingError(
                f"Batch {number} has columns {_shown(given.schema)}, expected {_shown(schema)}.",
                where=where,
                fix="A stream has the same columns in every batch: cast them.",
            )
        return given
    unknown = sorted({str(name) for row in given for name in row} - set(schema.names))
    if unknown:
        raise SettingError(
            f"Batch {number} has rows with other columns, too: {unknown}.",
            where=where,
            fix=f"The columns are {_shown(schema)}.",
        )
    try:
        return pa.Table.from_pylist(given, schema=schema)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise SettingError(
            f"Batch {number} does not fit the columns {_shown(schema)} ({error}).",
            where=where,
            fix="Cast the values, or give another schema.",
        ) from error


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def split(rows: PortRows, by: Sequence[str], buckets: int) -> list[PortRows]:
    """Rows by bucket: equal keys go to the same one, in the order they came."""
    if buckets == 1:
        return [rows]
    of_ports = [_bucket_of(table, by, buckets) for table in rows.tables]
    of_order = None
    if rows.order is not None:
        of_order = np.empty(len(rows.order), dtype=np.int64)
        for port, numbers in enumerate(of_ports):
            of_order[rows.order == port] = numbers
    found = []
    for bucket in range(buckets):
        tables = tuple(
            _taken(table, np.flatnonzero(numbers == bucket))
            for table, numbers in zip(rows.tables, of_ports, strict=True)
        )
        is_mine = None if of_order is None else of_order == bucket
        order = None if rows.order is None else rows.order[is_mine]
        found.append(PortRows(tables, order))
    return found


def _bucket_of(rows: pa.RecordBatch, by: Sequence[str], buckets: int) -> npt.NDArray[np.int64]:
    keys = KeyLayout([rows.schema.field(name) for name in by])
    return (keys.encode(rows, 0).hashes % np.uint64(buckets)).astype(np.int64)


def reordered(rows: PortRows, rng: np.random.Generator) -> PortRows:
    """The rows in another order, as Spark may deliver them when it repeats a batch."""
    tables = tuple(_taken(table, rng.permutation(table.num_rows)) for table in rows.tables)
    return PortRows(tables, None if rows.order is None else rng.permutation(rows.order))


def without_rows(rows: PortRows) -> PortRows:
    """A batch of the same inputs that brings nothing."""
    order = None if rows.order is None else rows.order[:0]
    return PortRows(tuple(table.slice(0, 0) for table in rows.tables), order)


def _taken(rows: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return rows.take(arrow_fixed(places.astype(np.int64, copy=False), pa.int64()))
