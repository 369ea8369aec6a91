"""The inputs of `tm.union`: where they are, and the columns that all of them have."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from trailmark.errors import SettingError, Unreachable, UnsupportedType
from trailmark.log import OperatorMeta, open_storage, read_meta
from trailmark.log.storage.urls import redacted
from trailmark.records import MARK
from trailmark.spark import paths
from trailmark.spark.internals import only_source
from trailmark.spark.marked_by import MARKED
from trailmark.spark.schemas import arrow_schema, spark_schema
from trailmark.spark.source import TrailmarkSource
from trailmark.streams.asking import InThreads
from trailmark.streams.description import is_stream
from trailmark.streams.union.description import SOURCE, UnionDescription, is_union
from trailmark.streams.view import open_view

_log = logging.getLogger("trailmark")

#: How to make a stream of anything else.
_WRITE_IT = (
    'Write it to a stream of its own first, with df.writeStream.format("trailmark"), timeColumn '
    "and delay, and give that path: a source that hangs then takes nothing but its own small "
    "query with it."
)
#: How long a stream may take to tell its columns, in seconds, where the union has them already.
_PATIENCE_S = 5.0


def stream_path(name: str, given: str | os.PathLike[str] | DataFrame, directory: str | None) -> str:
    """Where an input is."""
    if not isinstance(given, DataFrame):
        return paths.absolute(given, directory)
    source = only_source(given)
    if source is None or source.format != TrailmarkSource.name() or len(source.paths) != 1:
        raise SettingError(
            f"Input {name!r} is a DataFrame that does not just read a Trailmark stream.",
            where="inputs",
            fix=_WRITE_IT,
        )
    if source.options:
        names = ", ".join(option for option, _ in source.options)
        raise SettingError(
            f"Input {name!r} reads a stream with options ({names}) that a union cannot keep to.",
            where="inputs",
            fix="Give the path of the stream. A union reads all that is in it.",
        )
    return paths.absolute(source.paths[0], directory)


def columns_of_streams(
    given: Mapping[str, str],
    inputs: Mapping[str, str | os.PathLike[str] | DataFrame],
    time: str,
    stored: OperatorMeta | None,
) -> dict[str, spark.StructType]:
    """The columns of each input.

    Parameters
    ----------
    given
        Where they are.
    inputs
        The same as the user gave them: a DataFrame may read fewer columns.
    time
        The time column of all of them.
    stored
        What is kept at the path of the union. One that goes on knows which columns it reads, so it
        can be defined while some of its streams cannot be reached.
    """
    known = _known_columns(stored)
    found: dict[str, spark.StructType] = {}
    away: dict[str, Unreachable] = {}
    for name, asked in _asked(given, time, _PATIENCE_S if known else None).items():
        try:
            found[name] = _answer(asked, given[name], waits=not known)
        except Unreachable as error:
            away[name] = error
            continue
        each = inputs[name]
        if isinstance(each, DataFrame):
            found[name] = _chosen(found[name], each.columns, name, time)
    read = _as_read(known, [*found.values()]) if known else None
    for name, problem in away.items():
        if read is None:
            raise problem
        _log.warning(
            "tm.union: input %s cannot be reached: %s (%s). The union goes on with the columns "
            "that it has read so far.",
            name,
            problem.what.rstrip("."),
            problem.where,
        )
        found[name] = read
    return {name: found[name] for name in given}


def _known_columns(stored: OperatorMeta | None) -> list[str]:
    """Those that the union reads of every stream, if it has run before."""
    if stored is None or not is_union(stored):
        return []
    schema, *_ = UnionDescription.of(stored).schemas.values()
    return list(schema.names)


def _asked(
    given: Mapping[str, str], time: str, seconds: float | None
) -> dict[str, Future[spark.StructType]]:
    """What the streams answer, side by side, which may take so long."""
    hands = InThreads()
    asked = {name: hands.begin(partial(_columns, name, each, time)) for name, each in given.items()}
    if seconds is not None:
        hands.wait([*asked.values()], seconds)
    return asked


def _answer(asked: Future[spark.StructType], path: str, *, waits: bool) -> spark.StructType:
    if waits or asked.done():
        return asked.result()
    raise Unreachable(
        f"No answer within {_PATIENCE_S:g} seconds.",
        where=redacted(path),
        fix="Look at the state of the store and the way to it, then start again.",
    )


def _as_read(names: Sequence[str], others: Sequence[spark.StructType]) -> spark.StructType | None:
    """Columns of these names, as another stream has them: all have them with the same types."""
    for each in others:
        if set(names) <= set(each.names):
            return spark.StructType([each[name] for name in names])
    return None


def _columns(name: str, path: str, time: str) -> spark.StructType:
    """The columns of an input, which has to be a stream with a time."""
    storage = open_storage(path)
    meta = read_meta(storage)
    if meta is None or not is_stream(meta):
        what = "There is no stream" if meta is None else "There are an operator's logs, no stream,"
        fix = "Begin to write it before the union is defined." if meta is None else _WRITE_IT
        raise SettingError(f"{what} at {path}.", where=f"input {name!r}", fix=fix)
    view = open_view(storage)
    if view.time_column != time:
        has = "none" if view.time_column is None else repr(view.time_column)
        raise SettingError(
            f"The time column of the stream is not {time!r}, but {has}.",
            where=f"input {name!r}",
            fix="Write all streams with the same timeColumn: what their writers promise, and their "
            "order, is about the times in it.",
        )
    columns = spark_schema(view)
    if any(MARKED in (each.metadata or {}) for each in columns):
        raise SettingError(
            "The stream was written from rows that may be tentative, and does not know which of "
            "them still stand.",
            where=f"input {name!r}",
            fix="Write what stands, tm.stable(df), to a stream of its own, and give that.",
        )
    return columns


def _chosen(
    columns: spark.StructType, names: Sequence[str], name: str, time: str
) -> spark.StructType:
    if time not in names:
        raise SettingError(f"It does not read the column {time!r}.", where=f"input {name!r}")
    return spark.StructType([columns[each] for each in names])


def common_columns(
    inputs: Mapping[str, spark.StructType], time: str, *, is_marked: bool
) -> spark.StructType:
    """The columns that all inputs have, and those of the union itself."""
    (first, columns), *others = ((name, each.toNullable()) for name, each in inputs.items())
    common = [each.name for each in columns if all(each.name in other.names for _, other in others)]
    for name, other in others:
        for column in common:
            if other[column].dataType != columns[column].dataType:
                raise UnsupportedType(
                    f"Column {column!r} is {columns[column].dataType.simpleString()} in {first!r} "
                    f"and {other[column].dataType.simpleString()} in {name!r}.",
                    where="inputs",
                    fix="Write all streams with the same types.",
                )
    own = [spark.StructField(SOURCE, spark.StringType(), True)]
    if is_marked:
        own.append(spark.StructField(MARK, spark.BooleanType(), True))
    names = [each.name for each in own]
    clash = [column for column in common if column.lower() in names]
    if clash:
        raise SettingError(
            f"The inputs have a column {clash[0]!r}, and the union has one of its own.",
            where="inputs",
            fix="Write the streams with another name for it.",
        )
    fields = [spark.StructField(column, columns[column].dataType, True) for column in common]
    found = spark.StructType([*fields, *own])
    arrow_schema(found, "inputs", "a union")
    assert time in common, "every input has it"
    return found
