"""Calls of users' code: what cannot be called is refused before, what it raises is told with where
it happened, what it returns is looked at before anything is written."""

from __future__ import annotations

import inspect
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


def check_makeable(user: type, name: str) -> None:
    """Refuses a class whose instances are made of arguments."""
    check_arguments(
        user,
        f"{name} cannot be made without arguments",
        f"Give an instance: operator={name}(...).",
    )


def instance_of(user: Any) -> Any:
    """An instance of a user's class, or the instance that was given."""
    if not inspect.isclass(user):
        return user
    check_makeable(user, user.__qualname__)
    return user()


def check_arguments(method: Any, what: str, fix: str, *expected: str) -> None:
    """Refuses what cannot be called with arguments such as these."""
    try:
        signature = inspect.signature(method)
    except ValueError:
        return  # some that are not written in Python do not say
    try:
        signature.bind(*expected)
    except TypeError as error:
        raise SettingError(f"{what}: {error}.", where="operator", fix=fix) from error


def call(method: Callable[..., Any], name: str, batch: int, *arguments: Any) -> Any:
    """What a user's method returns; what it raises is an `OperatorError`, unless it is an error of
    ours, which is told with its place."""
    try:
        return method(*arguments)
    except TrailmarkError as error:
        where = ", ".join(filter(None, [error.where, _place(error, batch)]))
        fix = " ".join(filter(None, [error.fix, _NOTHING_LOST]))
        raise type(error)(error.what, where=where, fix=fix) from error
    except Exception as error:
        raise OperatorError(
            f"{name} raised {type(error).__name__}: {error}",
            where=_place(error, batch),
            fix=_NOTHING_LOST,
        ) from error


def _place(error: Exception, batch: int) -> str:
    """The innermost line of the user's own file: what it calls may be deep inside of a library."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # the first one is here
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    lines = [f", {last.filename}, line {last.lineno}, in {last.name}" for last in own[-1:]]
    return f"batch {batch}{''.join(lines)}"


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
        if not _has_same_fields(column.type, wanted.type):
            raise pa.ArrowInvalid("there are other fields in it")
        return column.cast(wanted.type)
    except pa.ArrowException as error:
        raise OperatorError(
            f"Column {wanted.name!r} was returned as {column.type}, and cannot become "
            f"{wanted.type}, which is declared: {error}",
            where=where,
            fix=f"Return the declared type, or declare another. {_NOTHING_LOST}",
        ) from error


def _has_same_fields(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether structs, however deep, have the same fields: Arrow drops the others, and fills what
    is missing."""
    t = pa.types
    if t.is_struct(given) and t.is_struct(wanted):
        names = [field.name for field in given]
        return sorted(names) == sorted(field.name for field in wanted) and all(
            _has_same_fields(given.field(name).type, wanted.field(name).type) for name in names
        )
    if t.is_map(given) and t.is_map(wanted):
        return _has_same_fields(given.key_type, wanted.key_type) and _has_same_fields(
            given.item_type, wanted.item_type
        )
    if not t.is_nested(given) or not t.is_nested(wanted) or t.is_map(given) or t.is_struct(given):
        return True  # Arrow refuses to make one of the other
    return _has_same_fields(given.value_type, wanted.value_type)


def joined(parts: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """All parts as one."""
    if len(parts) == 1:
        return parts[0]
    return contiguous(pa.Table.from_batches(parts, schema).combine_chunks())


def weight_of(footprints: pa.RecordBatch) -> int:
    """How heavy footprints of states of any size are, in plain records."""
    return int(max(footprints.num_rows, footprints.nbytes // _RECORD_BYTES))


def is_keyed(operator: Any) -> bool:
    """Which of the two forms an operator has: the keyed one declares a state. An object of the
    whole form may call what it likes its state."""
    return hasattr(operator, "state") and not hasattr(operator, "get_checkpoint")


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
