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
from trailmark.state.keys import KeyLayout

_EXAMPLES = "Give an Arrow table, a record batch, a list of dictionaries or a pandas DataFrame."


def read_batches(batches: object, schema: pa.Schema | None) -> list[pa.RecordBatch]:
    """The batches as Arrow has them, all with the same columns."""
    if isinstance(batches, Mapping | str) or not isinstance(batches, Iterable):
        raise SettingError(
            f"batches must be a list of batches, got {type(batches).__name__}.",
            where="batches",
            fix=_EXAMPLES.replace("Give", "Let each of them be"),
        )
    given = [_known(each, number) for number, each in enumerate(batches)]
    if not given:
        raise SettingError("There is no batch to run.", where="batches", fix="Give at least one.")
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


def split(rows: pa.RecordBatch, by: Sequence[str], buckets: int) -> list[pa.RecordBatch]:
    """Rows by bucket: equal keys go to the same one, in the order they came."""
    if buckets == 1:
        return [rows]
    keys = KeyLayout([rows.schema.field(name) for name in by])
    number = keys.encode(rows, 0).hashes % np.uint64(buckets)
    return [_taken(rows, np.flatnonzero(number == each)) for each in range(buckets)]


def reordered(rows: pa.RecordBatch, rng: np.random.Generator) -> pa.RecordBatch:
    """The rows in another order, as Spark may deliver them when it repeats a batch."""
    return _taken(rows, rng.permutation(rows.num_rows))


def _taken(rows: pa.RecordBatch, places: npt.NDArray[np.int64]) -> pa.RecordBatch:
    return rows.take(arrow_fixed(places.astype(np.int64, copy=False), pa.int64()))
