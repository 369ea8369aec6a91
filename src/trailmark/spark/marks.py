"""The mark of rows that are only tentative, and how it gets from a union to all that is behind it.

It is a column of its own, `tentative`. Its metadata name the unions that the rows come from, or the
operators of other queries, where the operators behind them find what still stands. Spark keeps both
as long as the column is kept: so whatever an operator is given that comes from such a place has to
have it, or is refused. Else what is tentative would become stable without a word.
"""

from __future__ import annotations

import os

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark

from trailmark.errors import SettingError
from trailmark.log.storage.urls import is_url
from trailmark.records import MARK
from trailmark.spark.connect import check_not_marked, is_connect
from trailmark.spark.control import named
from trailmark.spark.internals import (
    Source,
    driver_directory,
    reads_without_note,
    stream_sources,
)
from trailmark.spark.limits import TELLS_POSITION
from trailmark.spark.marked_by import MARKED, MarkedBy, marked_by, marking
from trailmark.spark.options import REPLICAS
from trailmark.spark.source import TrailmarkSource
from trailmark.spark.union_source import ANSWER_WITHIN, UnionSource
from trailmark.streams.answers import Answers

_STABLE = "trailmark.stable"


def marked_field(whose: tuple[MarkedBy, ...]) -> spark.StructField:
    """The column that marks results."""
    return spark.StructField(MARK, spark.BooleanType(), True, marking(whose))


def marks_of(df: DataFrame, argument: str = "df") -> tuple[MarkedBy, ...]:
    """Whose tentative rows are marked in a DataFrame; none if all its rows stand.

    One that has lost its marks is refused, and one whose marks are those of another query.
    """
    if not df.isStreaming:
        return ()
    if is_connect(df.sparkSession):
        may_be = is_marked(df) or any(map(_may_be_tentative, stream_sources(df)))
        check_not_marked(may_be_tentative=may_be, argument=argument)
        return ()
    found = [field for field in df.schema if _is_mark(field)]
    if len(found) > 1:
        raise SettingError(
            "Rows are marked twice as tentative or not: the DataFrame has several such columns.",
            where=argument,
            fix="Join marked streams with tm.join, which keeps track of both.",
        )
    if reads_without_note(df, _STABLE, _follows_replicas):
        raise _of_replicas(argument)
    if MARK in df.columns and reads_without_note(df, _STABLE, _is_nameless):
        raise _without_reader(argument)
    if not found:
        if reads_without_note(df, _STABLE, _may_be_tentative):
            raise _lost(argument, "there is no column that has it")
        return ()
    (field,) = found
    if field.name != MARK or not isinstance(field.dataType, spark.BooleanType):
        raise _lost(argument, f"it is column {field.name!r} now")
    whose = marked_by(field.metadata)
    here, known = _read_here(df), set(map(_real, whose))
    if not here >= known:
        raise SettingError(
            "Rows may be tentative by a union of another query, and nobody here could tell what "
            "becomes of them.",
            where=argument,
            fix="Read the path of the operator that gave them, with the options answers='all' and "
            "reader; or take the rows that stand: tm.stable(df), or the option answers='stable' "
            "when they are read.",
        )
    # Where two DataFrames come together, Spark keeps what one of them says of the column.
    if any(_reads_tentative(df, each) for each in here - known):
        raise SettingError(
            "Rows of several places that may be tentative come together here, and the mark names "
            "only some of these.",
            where=argument,
            fix="Give all streams to one tm.union, or the DataFrames to tm.join, which keeps track "
            "of both; or take the rows of each that stand with tm.stable(df) before.",
        )
    if any(each.reader is not None for each in whose) and not TELLS_POSITION:
        raise SettingError(
            f"Spark {df.sparkSession.version} does not tell a source where a query stands, and "
            "what becomes of tentative rows of another query depends on that.",
            where=argument,
            fix="Use Spark 4.2 or later, or take the rows that stand: tm.stable(df).",
        )
    return whose


def is_marked(df: DataFrame) -> bool:
    """Whether the rows of a DataFrame are marked."""
    return any(map(_is_mark, df.schema))


def unmarked(schema: spark.StructType) -> spark.StructType:
    """The columns that operators compute with: without the mark."""
    return spark.StructType([field for field in schema if not _is_mark(field)])


def _is_mark(field: spark.StructField) -> bool:
    return MARKED in (field.metadata or {})


def _read_here(df: DataFrame) -> set[MarkedBy]:
    """All that a DataFrame reads by itself and that may give tentative rows."""
    directory = _directory(df)
    found = {_place_of(source, directory) for source in stream_sources(df)}
    return {each for each in found if each is not None}


def _reads_tentative(df: DataFrame, whose: MarkedBy) -> bool:
    """Whether tentative rows get into a DataFrame from one of these places."""
    directory = _directory(df)
    return reads_without_note(
        df,
        _STABLE,
        lambda source: _may_be_tentative(source) and _place_of(source, directory) == whose,
    )


def _place_of(source: Source, directory: str) -> MarkedBy | None:
    """Whose rows a source gives; None if they are not marked."""
    reader = _options(source).get("reader") if _gives_all(source) else None
    if not source.paths or (reader is None and not _is_union(source)):
        return None
    (path,) = source.paths
    own = path if is_url(path) else os.path.join(directory, os.path.expanduser(path))
    return _real(MarkedBy(own, reader))


def _directory(df: DataFrame) -> str:
    return driver_directory(df.sparkSession) or os.getcwd()


def _real(whose: MarkedBy) -> MarkedBy:
    """The same, whichever way its path leads there."""
    path = whose.path if is_url(whose.path) else os.path.realpath(whose.path)
    return MarkedBy(path, whose.reader)


def stable(df: DataFrame) -> DataFrame:
    """Only the rows that stand, without the mark.

    Rows that :func:`union` gives out because a stream is missing, and all that operators make of
    them, are marked in a column ``tentative``. This leaves them out: what is left is what a union
    would have given that waits.

    Parameters
    ----------
    df
        A DataFrame with the mark; one whose rows all stand is returned as it is.

    Examples
    --------
    >>> sure = tm.stable(counts)                                    # doctest: +SKIP
    """
    if not isinstance(df, DataFrame):
        raise SettingError(
            f"df must be a DataFrame, got {type(df).__name__}.",
            where="df",
            fix="To read only what stands of a path, use the option answers='stable'.",
        )
    marks = [field for field in df.schema if field.name == MARK]
    if not any(isinstance(field.dataType, spark.BooleanType) for field in marks):
        marks_of(df)  # it may have been lost
        return df
    rest = [name for name in df.columns if name != MARK]
    if not rest:
        raise SettingError("There is no column but the mark.", where="df")
    first, *others = rest
    kept: list[Column] = [named(first).alias(first, metadata={_STABLE: "true"})]
    return df.where(~named(MARK)).select(*kept, *(named(each) for each in others))


def _may_be_tentative(source: Source) -> bool:
    """Whether some of the rows of a source are tentative."""
    return _gives_all(source) or (_is_union(source) and ANSWER_WITHIN.lower() in _options(source))


def _gives_all(source: Source) -> bool:
    is_own = source.format == TrailmarkSource.name()
    return is_own and _options(source).get("answers", "").lower() == Answers.ALL.value


def _follows_replicas(source: Source) -> bool:
    return _gives_all(source) and REPLICAS in _options(source)


def _is_nameless(source: Source) -> bool:
    return _gives_all(source) and "reader" not in _options(source)


def _options(source: Source) -> dict[str, str]:
    return {name.lower(): value for name, value in source.options}


def _is_union(source: Source) -> bool:
    return source.format == UnionSource.name()


def _of_replicas(argument: str) -> SettingError:
    return SettingError(
        "Rows of replicas may be tentative (answers='all'), and nothing that lasts as long as the "
        "query tells an operator what becomes of them: any of the replicas may be gone.",
        where=argument,
        fix="Take the rows that stand: tm.stable(df), or the option answers='stable'. To go on "
        "from tentative ones read the path of one replica, with the options answers='all' and "
        "reader.",
    )


def _without_reader(argument: str) -> SettingError:
    return SettingError(
        "Rows may be tentative, as they are read (answers='all'), and without a name the query is "
        "not told what becomes of them.",
        where=argument,
        fix="Give the query that reads them a name, with the option reader; or take the rows that "
        "stand, with the option answers='stable'.",
    )


def _lost(argument: str, what: str) -> SettingError:
    return SettingError(
        "Some of the rows are tentative, by a union (answer_within) or as they are read "
        f"(answers='all'), and the mark that tells which was lost on the way: {what}.",
        where=argument,
        fix=f"Keep the column {MARK!r} as it is, or take the rows that stand with "
        "tm.stable(df) before it is dropped.",
    )
