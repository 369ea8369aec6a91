"""`tm.join`: two DataFrames of PySpark in, the pairs that belong together out."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from trailmark.checkpoint.policy import Policy
from trailmark.engine.losses import LossText
from trailmark.errors import SettingError
from trailmark.operators.join import Join
from trailmark.operators.join.arguments import SIDES, How, how_of, join_keys
from trailmark.operators.join.condition import Condition, condition_name
from trailmark.operators.join.operator import MOST_PAIRS
from trailmark.operators.late import Late
from trailmark.settings import Durability
from trailmark.spark.apply_arguments import check_columns
from trailmark.spark.arguments import CommonArguments, check_dataframe
from trailmark.spark.inputs import input_schema, result_fields
from trailmark.spark.operate import Operation, operate
from trailmark.spark.workers import check_sendable
from trailmark.windows.interval import Interval
from trailmark.windows.last_tuples import LastTuples


def join(
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | Sequence[str],
    within: Interval | None = None,
    windows: tuple[LastTuples, LastTuples] | None = None,
    how: str = "inner",
    condition: str | Column | Condition | None = None,
    path: str | os.PathLike[str],
    checkpoint: Policy | None = None,
    recover_within: str | timedelta | None = None,
    buckets: int | None = None,
    suffixes: tuple[str, str] = ("_left", "_right"),
    late: Late = "drop",
    order_by: str | tuple[str, str] | None = None,
    most_pairs: int = MOST_PAIRS,
    retain_batches: int | None = 100,
    durability: Durability | Literal["synced", "unsynced"] = Durability.SYNCED,
    cache_dir: str | os.PathLike[str] | None = None,
    loss: LossText = "none",
) -> DataFrame:
    """Join two streams by key and time, or windows, with state that recovers in bounded time.

    The result is a DataFrame like any other. It has the key columns, then the other columns of the
    left and of the right side.

    Parameters
    ----------
    left, right
        Two streaming DataFrames. Two that do not stream are joined as one batch, without logs.
    on
        Key column that both have, or a list of them, with the same types. A null equals nothing.
    within
        :func:`trailmark.interval`: which columns have the times, how far apart those of a pair may
        lie, and how late tuples may come.
    windows
        Instead of ``within``, a :func:`trailmark.last_tuples` for each side: a tuple that comes is
        held against the window of the other side, then it enters its own, and the oldest one there
        leaves. A window for all keys needs one bucket.
    how
        ``"inner"``; or ``"left"``, ``"right"``, ``"full"``, which also give the tuples of one or
        both sides that found no partner, once their time is over or they have left their window.
        Spark's other names for these will do, too.
    condition
        What else has to hold of a pair. A function over the rows of both sides, pair by pair, which
        returns an Arrow or NumPy array of booleans; for inner joins also an expression of Spark's
        over the columns of the result.
    path
        Directory or ``s3://`` URL of this operator's logs; it belongs to one query. Executors on
        several hosts need a path that all of them reach.
    suffixes
        What columns get that both sides have by the same name.
    late
        ``"drop"`` tuples behind the watermark, or ``"keep"`` them in the output log; both are
        counted.
    order_by
        A column that both sides have, or a pair of columns: the tuples of a batch are taken in this
        order, those of both sides together. Without it they are taken as they were logged.
    most_pairs
        A batch in which a bucket makes more pairs is refused: some key is nearly everybody's.
    checkpoint, recover_within, buckets, retain_batches, durability, cache_dir
        As in :func:`trailmark.aggregate`.
    loss
        ``"bounded"`` accepts that a recovery loses what came since the last checkpoint, and groups
        that are damaged; it is counted, and no input is kept. Only with :class:`Incremental`.

    Examples
    --------
    >>> clicked = tm.join(                                            # doctest: +SKIP
    ...     impressions,
    ...     clicks,
    ...     on="ad_id",
    ...     within=tm.interval("seen_at", "clicked_at", after="1 hour", delay="10 minutes"),
    ...     how="left",
    ...     path="/data/clicked",
    ...     recover_within="2 seconds",
    ... )
    """
    _check_sides(left, right)
    common = CommonArguments.checked(
        path,
        checkpoint=checkpoint,
        recover_within=recover_within,
        buckets=buckets,
        retain_batches=retain_batches,
        durability=durability,
        cache_dir=cache_dir,
        loss=loss,
    )
    keys, expression = join_keys(on), _expression(condition, how_of(how))
    operator = Join(
        input_schema(left, "left", keys, "on"),
        input_schema(right, "right", keys, "on"),
        on=keys,
        within=within,
        windows=windows,
        how=how,
        condition=None if expression is not None else condition,  # type: ignore[arg-type]
        late=late,
        order_by=order_by,
        suffixes=suffixes,
        most_pairs=most_pairs,
        group_size=None if common.policy is None else common.policy.writes_groups_of,
    )
    if operator.spans_keys:
        common = common.in_one_bucket(
            "One window for all keys needs all tuples in one order",
            "give each key a window of its own: tm.last_tuples(1000, per_key=True).",
        )
    if expression is None and condition is not None:
        check_sendable(condition, condition_name(condition))  # type: ignore[arg-type]
    operation = Operation(
        "join",
        operator,
        keys=operator.keys,
        results_from="on",
        known_fields=result_fields((left, right), operator.keys, operator.shown_schema),
        at_end=operator.finish,
    )
    results = operate((left, right), operation, common)
    return results if expression is None else results.where(expression)


def _check_sides(left: Any, right: Any) -> None:
    """Refuses sides that cannot be in one query."""
    for name, df in zip(SIDES, (left, right), strict=True):
        check_dataframe(df, name)
        check_columns(df, name)
    if left.isStreaming != right.isStreaming:
        still = "right" if left.isStreaming else "left"
        raise SettingError(
            f"One of the two DataFrames streams, and the {still} one does not.",
            where=still,
            fix="Spark joins a stream with a table by itself, and needs no state for it: "
            "stream.join(table, on).",
        )


def _expression(condition: object, how: How) -> Column | None:
    """A condition that Spark evaluates behind the operator, if it is one of these."""
    if not isinstance(condition, str | Column):
        return None
    if how is not How.INNER:
        raise SettingError(
            "Whether a tuple has found a partner is known before Spark could evaluate the "
            f"condition {condition!s}.",
            where="condition",
            fix="Give a function for joins that are not inner: def condition(left, right), which "
            "takes the rows of both sides, pair by pair, and returns booleans.",
        )
    return F.expr(condition) if isinstance(condition, str) else condition
