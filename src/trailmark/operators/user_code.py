"""Calls of users' code: what it raises is told with where it happened, what it returns is looked
at before anything is written."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from trailmark.errors import OperatorError, SchemaError, SettingError, TrailmarkError
from trailmark.kernel.columns import contiguous

#: What a plain record takes: a window with a counter.
_RECORD_BYTES = 64
_NOTHING_LOST = (
    "Nothing of the batch was written: mend the operator and start the query again, and it goes on "
    "with this batch."
)


def call(method: Callable[..., Any], name: str, batch: int, *arguments: Any) -> Any:
    """What a user's method returns; what it raises is an `OperatorError`."""
    try:
        return method(*arguments)
    except TrailmarkError:
        raise
    except Exception as error:
        place = _place(error, method)
        raise OperatorError(
            f"{name} raised {type(error).__name__}: {error}",
            where=f"batch {batch}, {place.filename}, line {place.lineno}, in {place.name}",
            fix=_NOTHING_LOST,
        ) from error


def _place(error: Exception, method: Callable[..., Any]) -> traceback.FrameSummary:
    """The innermost line of the user's own: what it has called may be deep in some library."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(method, "__code__", None)
    own = [frame for frame in frames if code is not None and frame.filename == code.co_filename]
    return (own or frames)[-1]


def returned_rows(returned: Any, schema: pa.Schema, name: str, batch: int) -> pa.RecordBatch | None:
    """The rows that a method has returned, with exactly the declared columns; None if it returned
    none."""
    if returned is None:
        return None
    where = f"{name}, batch {batch}"
    if not isinstance(returned, pa.RecordBatch | pa.Table):
        raise OperatorError(
            f"{name} returned {type(returned).__name__}, not an Arrow record batch or table.",
            where=where,
            fix="Return rows with the columns of the declared schema, or None.",
        )
    if sorted(returned.schema.names) != sorted(schema.names):
        raise OperatorError(
            f"{name} returned the columns {returned.schema.names}; declared are {schema.names}.",
            where=where,
            fix=f"Return the columns of the declared schema. {_NOTHING_LOST}",
        )
    rows = contiguous(returned.select(schema.names))
    return pa.RecordBatch.from_arrays(
        [_conform(rows.column(field.name), field, where) for field in schema], schema=schema
    )


def _conform(column: pa.Array, wanted: pa.Field, where: str) -> pa.Array:
    """The column with the declared type: what loses nothing is converted."""
    if column.type == wanted.type:
        return column
    try:
        return column.cast(wanted.type)
    except pa.ArrowException as error:
        raise OperatorError(
            f"Column {wanted.name!r} was returned as {column.type}, and cannot become "
            f"{wanted.type}, which is declared: {error}",
            where=where,
            fix=f"Return the declared type, or declare another. {_NOTHING_LOST}",
        ) from error


def joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All parts as one."""
    if len(parts) == 1:
        return parts[0]
    return contiguous(pa.Table.from_batches(parts, schema).combine_chunks())


def weight_of(footprints: pa.RecordBatch) -> int:
    """How heavy footprints of states of any size are, in plain records."""
    return int(max(footprints.num_rows, footprints.nbytes // _RECORD_BYTES))


def is_keyed(operator: Any) -> bool:
    """Which of the two forms an operator has: the keyed one declares a state."""
    return hasattr(operator, "state")


def check_output(schema: pa.Schema) -> None:
    """Refuses columns of results that a log cannot have."""
    for name in schema.names:
        if name.startswith("$"):
            raise SchemaError(
                f"Names that begin with $ are used by the log: {name!r}.", where="schema"
            )
    if len(set(schema.names)) < len(schema.names):
        raise SchemaError(f"Two columns have the same name: {schema.names}.", where="schema")


def code_needed(name: str) -> SettingError:
    """What to say where the state of an operator is asked for, and its code is not at hand."""
    return SettingError(
        f"To rebuild the state takes the code of {name}: a log holds none.",
        where="operator",
        fix="Name it: the option operator is 'package.module:name' of the class, or of an instance "
        "of it, which can be imported where the reader runs; tm.read_table takes the class itself. "
        "records='all' shows the footprints as they were logged, without any code.",
    )
