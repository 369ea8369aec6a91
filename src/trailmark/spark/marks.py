"""The mark of rows that are only tentative, and how it gets from a union to all that is behind it.

It is a column of its own, `tentative`. Its metadata name the unions that the rows come from, where
the operators behind them read what still stands. Spark keeps both as long as the column is kept: so
whatever an operator is given that comes from such a union has to have it, or is refused. Else what
is tentative would become stable without a word.
"""

from __future__ import annotations

import json

from pyspark.sql import Column, DataFrame
from pyspark.sql import types as spark

from trailmark.errors import SettingError
from trailmark.records import MARK
from trailmark.spark.control import named
from trailmark.spark.internals import Source, reads_without_note, stream_sources
from trailmark.spark.source import TrailmarkSource
from trailmark.spark.union_source import ANSWER_WITHIN, UnionSource

_MARK, _STABLE = "trailmark.mark", "trailmark.stable"


def marking(paths: tuple[str, ...]) -> dict[str, str]:
    """The metadata of a column that marks rows of these unions."""
    return {_MARK: json.dumps(paths)}


def marked_field(paths: tuple[str, ...]) -> spark.StructField:
    """The column that marks results."""
    return spark.StructField(MARK, spark.BooleanType(), True, marking(paths))


def marks_of(df: DataFrame, argument: str = "df") -> tuple[str, ...]:
    """The unions whose tentative rows are marked in a DataFrame; none if all its rows stand.

    One that has lost its marks is refused, and one whose marks are those of another query.
    """
    if not df.isStreaming:
        return ()
    found = [field for field in df.schema if _is_mark(field)]
    if len(found) > 1:
        raise SettingError(
            "Rows are marked twice as tentative or not: the DataFrame has several such columns.",
            where=argument,
            fix="Join marked streams with tm.join, which keeps track of both.",
        )
    if not found:
        if reads_without_note(df, _STABLE, _may_be_tentative):
            raise _lost(argument, "there is no column that has it")
        return ()
    (field,) = found
    if field.name != MARK or not isinstance(field.dataType, spark.BooleanType):
        raise _lost(argument, f"it is column {field.name!r} now")
    paths = tuple(json.loads(field.metadata[_MARK]))
    here = {path for each in stream_sources(df) if _is_union(each) for path in each.paths}
    if not here.issuperset(paths):
        raise SettingError(
            "Rows may be tentative by a union of another query, and nobody here could tell what "
            "becomes of them.",
            where=argument,
            fix="Take the rows that stand: tm.stable(df), or the option answers='stable' when they "
            "are read.",
        )
    if reads_without_note(df, _STABLE, lambda each: _is_of_others(each, paths)):
        raise SettingError(
            "Rows of several unions come together here, and the mark names only some of these.",
            where=argument,
            fix="Give all streams to one tm.union, or the DataFrames to tm.join, which keeps track "
            "of both; or take the rows of each that stand with tm.stable(df) before.",
        )
    return paths


def is_marked(df: DataFrame) -> bool:
    """Whether the rows of a DataFrame are marked."""
    return any(map(_is_mark, df.schema))


def unmarked(schema: spark.StructType) -> spark.StructType:
    """The columns that operators compute with: without the mark."""
    return spark.StructType([field for field in schema if not _is_mark(field)])


def _is_mark(field: spark.StructField) -> bool:
    return _MARK in (field.metadata or {})


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
    options = {name.lower(): value for name, value in source.options}
    if source.format == TrailmarkSource.name():
        return options.get("answers", "").lower() == "all"
    return _is_union(source) and ANSWER_WITHIN.lower() in options


def _is_of_others(source: Source, paths: tuple[str, ...]) -> bool:
    """Whether rows of a source may be tentative by other unions than these."""
    return _may_be_tentative(source) and not set(source.paths).issubset(paths)


def _is_union(source: Source) -> bool:
    return source.format == UnionSource.name()


def _lost(argument: str, what: str) -> SettingError:
    return SettingError(
        "Some of the rows are tentative, by a union (answer_within) or as they are read "
        f"(answers='all'), and the mark that tells which was lost on the way: {what}.",
        where=argument,
        fix=f"Keep the column {MARK!r} as it is, or take the rows that stand with "
        "tm.stable(df) before it is dropped.",
    )
