"""`tm.barrier`: several DataFrames of PySpark in, the tuples that came at the same turn out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trailmark.checkpoint.policy import Policy
from trailmark.engine.losses import LossText
from trailmark.errors import SettingError
from trailmark.operators.barrier.operator import ALL_KEY, Barrier
from trailmark.settings import Durability
from trailmark.spark.apply_arguments import check_columns, key_columns
from trailmark.spark.arguments import CommonArguments, check_dataframe
from trailmark.spark.inputs import input_schema, result_fields
from trailmark.spark.operate import Operation, operate


def barrier(
    inputs: Mapping[str, DataFrame] | Sequence[DataFrame],
    *,
    by: str | Sequence[str] | None = None,
    path: str | os.PathLike[str],
    order_by: str | Mapping[str, str] | None = None,
    checkpoint: Policy | None = None,
    recover_within: str | timedelta | None = None,
    loss: LossText = "none",
    buckets: int | None = None,
    retain_batches: int | None = 100,
    durability: Durability | Literal["synced", "unsynced"] = Durability.SYNCED,
    cache_dir: str | os.PathLike[str] | None = None,
) -> DataFrame:
    """Put the n-th tuples of several streams together, with state that recovers in bounded time.

    A row comes out as soon as every input has its tuple. Until then those that have come are kept,
    through crashes too: were one lost, all that follow would be paired wrongly.

    Parameters
    ----------
    inputs
        Streaming DataFrames by name, or a list of them, which are called ``1``, ``2`` and so on.
        DataFrames that do not stream are one batch, without logs.
    by
        Key column, or a list of them, that all inputs have with the same types: the n-th tuples of
        a key belong together. A null is a key like any other. Without ``by``, the n-th of all
        belong together, and there is one bucket.
    path
        Directory or ``s3://`` URL of this operator's logs; it belongs to one query.
    order_by
        A column that all inputs have, or one for each: by it, the tuples of a batch are put in
        order. Without it they are taken as they were logged.
    loss
        Only ``"none"``: a tuple that is lost would pair all that follow wrongly.
    checkpoint, recover_within, buckets, retain_batches, durability, cache_dir
        As in :func:`trailmark.aggregate`.

    Examples
    --------
    >>> steps = tm.barrier(                                           # doctest: +SKIP
    ...     {"pressed": presses, "heated": heats, "cooled": cools},
    ...     by="line",
    ...     order_by="at",
    ...     path="/data/steps",
    ... )
    """
    frames = _named(inputs)
    for name, df in frames.items():
        check_dataframe(df, f"inputs ({name})")
        check_columns(df, f"inputs ({name})")
    if len({df.isStreaming for df in frames.values()}) > 1:
        raise SettingError("Some of the DataFrames stream, and others do not.", where="inputs")
    keys = key_columns(by) or []
    common = CommonArguments.checked(
        path,
        checkpoint=checkpoint,
        recover_within=recover_within,
        loss=loss,
        buckets=buckets,
        retain_batches=retain_batches,
        durability=durability,
        cache_dir=cache_dir,
    )
    given = tuple(frames.values())
    if not keys:
        common = common.in_one_bucket(
            "Without keys, a barrier needs all tuples in one order", "name keys with by."
        )
        frames = {name: df.withColumn(ALL_KEY, F.lit(0)) for name, df in frames.items()}
    operator = Barrier(
        {name: input_schema(df, f"inputs ({name})", keys, "by") for name, df in frames.items()},
        by=keys or [ALL_KEY],
        order_by=order_by,
    )
    operation = Operation(
        "barrier",
        operator,
        keys=operator.keys,
        results_from="inputs",
        known_fields=result_fields(given, keys, operator.shown_schema),
    )
    return operate(tuple(frames.values()), operation, common)


def _named(inputs: Any) -> dict[str, DataFrame]:
    if isinstance(inputs, Mapping):
        names = list(inputs)
        if not all(isinstance(name, str) and name.isprintable() and name for name in names):
            raise SettingError(f"Inputs have names that can be read, got {names}.", where="inputs")
        return dict(inputs)
    if isinstance(inputs, Sequence) and not isinstance(inputs, str):
        return {str(place): df for place, df in enumerate(inputs, 1)}
    raise SettingError(
        f"inputs must be DataFrames by name, or a list of them, got {type(inputs).__name__}.",
        where="inputs",
        fix='For example tm.barrier({"pressed": presses, "heated": heats}, by="line", ...).',
    )
