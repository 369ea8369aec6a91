"""Sessions are those of Spark's own ``session_window()`` in append mode, on the same input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.beside_spark import SALES, assert_same_after_every_run, random_sales
from tests.support.spark_feed import meta_of, rows_of
from trailmark.errors import TrailmarkError
from trailmark.operators.kinds import title_of

_GAP, _DELAY = "6 seconds", "30 seconds"


def _sales(rng: np.random.Generator, batch: int) -> pa.Table:
    """On whole seconds, so that some are a gap apart."""
    return random_sales(rng, batch, most=120, whole_seconds=True)


def _columns() -> dict[str, Column]:
    return {
        "n": F.count("*"),
        "known": F.count("weight"),
        "total": F.sum("price"),
        "mean": F.avg("weight"),
        "least": F.min("name"),
        "most": F.max("price"),
        "names": F.collect_list("name"),
        "prices": F.collect_set("price"),
        "middle": F.percentile("weight", [0.0, 0.5, 0.9]),
        "about": F.approx_count_distinct("name"),
    }


def _sorted(rows: DataFrame) -> DataFrame:
    """Neither lists behind a shuffle of Spark's nor its sets have a certain order; and it knows
    that they hold no nulls, which columns from Python do not say."""
    kinds = {"names": "array<string>", "prices": "array<int>"}
    columns = {name: F.sort_array(name).cast(kind) for name, kind in kinds.items()}
    return rows.withColumns({**columns, "middle": F.col("middle").cast("array<double>")})


def _ours(rows: DataFrame, root: Path, **given: Any) -> DataFrame:
    return tm.aggregate(
        rows,
        by="shop",
        window=tm.session_window("time", _GAP, delay=_DELAY),
        values=_columns(),
        path=root / "log",
        cache_dir=root / "cache",
        **given,
    )


def _theirs(rows: DataFrame) -> DataFrame:
    columns = [column.alias(name) for name, column in _columns().items()]
    return rows.groupBy("shop", F.session_window("time", _GAP)).agg(*columns)


@pytest.mark.usefixtures("few_partitions")
def test_after_every_run_the_results_are_those_of_sparks_own_sessions(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert_same_after_every_run(
        spark,
        tmp_path,
        _sales,
        lambda stream: _sorted(_ours(stream, tmp_path, buckets=2)),
        lambda stream: _sorted(_theirs(stream.withWatermark("time", _DELAY))),
    )
    log = tmp_path / "log"
    assert (
        title_of(meta_of(log).operator)
        == "aggregate by shop, sessions of time with gaps of 6 seconds"
    )
    open_now = spark.read.format("trailmark").option("records", "state").load(str(log))
    assert open_now.count() > 0
    assert rows_of(spark.read.format("trailmark").load(str(log))).total() > 0


def test_a_dataframe_that_does_not_stream_ends_its_sessions_with_a_flush(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    rows = spark.createDataFrame(pa.concat_tables([_sales(rng, number) for number in range(3)]))
    assert _ours(rows, tmp_path).count() == 0
    found, wanted = _ours(rows, tmp_path, flush=True), _theirs(rows)
    assert rows_of(_sorted(found)) == rows_of(_sorted(wanted))


def test_different_values_of_sessions_are_counted_as_in_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Exactly, Spark does so where nothing streams."""
    rows = spark.createDataFrame(_sales(np.random.default_rng(6), 0))
    column = F.count_distinct("name")
    window = tm.session_window("time", _GAP)
    given: dict[str, Any] = {"by": "shop", "path": tmp_path, "flush": True}
    found = tm.aggregate(rows, window=window, values={"kinds": column}, **given)
    wanted = rows.groupBy("shop", F.session_window("time", _GAP)).agg(column.alias("kinds"))
    assert rows_of(found) == rows_of(wanted)
    assert rows_of(found).total() > 10


def test_what_cannot_be_a_session_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.createDataFrame([], SALES)
    given: dict[str, Any] = {"by": "shop", "values": {"n": tm.count()}, "path": tmp_path}
    window = tm.session_window("time", "1 minute")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"window": tm.session_window("name", "1 minute")}, "Sessions need a timestamp column"),
        ({"window": tm.session_window("when", "1 minute")}, "no column 'when'"),
        ({"window": window, "values": {"session_window": tm.count()}}, "bounds of"),
        ({"window": window, "values": {"window_end": tm.count()}}, "bounds of"),
        ({"window": F.session_window("time", "1 minute")}, "a session_window, got"),
    ]
    for change, text in wrong:
        with pytest.raises(TrailmarkError, match=text):
            tm.aggregate(rows, **(given | change))
