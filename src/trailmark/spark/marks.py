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
from trailmark.spark.control import named
from trailmark.spark.internals import reads_without_note, stream_sources
from trailmark.spark.task import MARK as TENTATIVE
from trailmark.spark.union_source import ANSWER_WITHIN, UnionSource

_MARK, _STABLE = "trailmark.mark", "trailmark.stable"


def marking(paths: tuple[str, ...]) -> dict[str, str]:
    """The metadata of a column that marks rows of these unions."""
    return {_MARK: json.dumps(paths)}


def marked_field(paths: tuple[str, ...]) -> spark.StructField:
    """The column that marks results."""
    return spark.StructField(TENTATIVE, spark.BooleanType(), True, marking(paths))


def marks_of(df: DataFrame, argument: str = "df") -> tuple[str, ...]:
    """The unions whose tentative rows are marked in a DataFrame; none if all its rows stand.

    One that has lost its marks is refused.
    """
    if not df.isStreaming:
        return ()
    found = [field for field in df.schema if _MARK in (field.metadata or {})]
    if len(found) > 1:
        raise SettingError(
            "Rows are marked twice as tentative or not: the DataFrame has several such columns.",
            where=argument,
            fix="Join marked streams with tm.join, which keeps track of both.",
        )
    if found:
        (field,) = found
        if field.name != TENTATIVE or not isinstance(field.dataType, spark.BooleanType):
            raise _lost(argument, f"it is column {field.name!r} now")
        return tuple(json.loads(field.metadata[_MARK]))
    if _may_be_tentative(df):
        raise _lost(argument, "it has no such column")
    return ()


def is_marked(df: DataFrame) -> bool:
    """Whether the rows of a DataFrame are marked."""
    return any(_MARK in (field.metadata or {}) for field in df.schema)


def stable(df: DataFrame) -> DataFrame:
    """Only the rows that stand, without the mark.

    Rows that :func:`union` gives out because a stream is missing, and all that operators make of
    them, are marked in a column ``tentative``. This leaves them out: what is left is what a union
    would have given that waits.

    Parameters
    ----------
    df
        A DataFrame with the mark; one without is returned as it is.

    Examples
    --------
    >>> sure = tm.stable(counts)                                    # doctest: +SKIP
    """
    if not marks_of(df):
        return df
    rest = [name for name in df.columns if name != TENTATIVE]
    if not rest:
        raise SettingError("There is no column but the mark.", where="df")
    first, *others = rest
    kept: list[Column] = [named(first).alias(first, metadata={_STABLE: "true"})]
    return df.where(~named(TENTATIVE)).select(*kept, *(named(each) for each in others))


def _may_be_tentative(df: DataFrame) -> bool:
    """Whether rows of a union that does not wait get into a DataFrame other than by `stable`."""
    options = [dict(each.options) for each in stream_sources(df) if _is_union(each.format)]
    if not any(ANSWER_WITHIN in each for each in options):
        return False
    return reads_without_note(df, _STABLE, UnionSource.name(), ANSWER_WITHIN)


def _is_union(name: str) -> bool:
    return name == UnionSource.name()


def _lost(argument: str, what: str) -> SettingError:
    return SettingError(
        "The rows come from a union that gives out tentative ones (answer_within), and the mark "
        f"that tells which was lost on the way: {what}.",
        where=argument,
        fix=f"Keep the column {TENTATIVE!r} as it is, or take the rows that stand with "
        "tm.stable(df) before it is dropped.",
    )
