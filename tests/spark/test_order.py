"""With ``order_by`` results depend on the rows of a batch, and not on how they were dealt out."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.compare import exact
from tests.support.oracle import Oracle, place_in_order
from tests.support.plain import plain_rows
from tests.support.spark_feed import Feed, Query, Rows, meta_of, rows_of
from trailmark.kernel.columns import contiguous

_COLUMNS = "item int, seq bigint, text string, weight double"
_ASKED: dict[str, Any] = {
    "by": ["item"],
    "window": tm.count_window(5),
    "values": {
        "begins": tm.first("text"),
        "ends": tm.last("text"),
        "load": tm.sum("weight"),
        "n": tm.count(),
    },
}
#: Nulls, NaN and both zeros in the first column; the second has no equal values.
_ORDER = ["weight", "seq"]


def _tables(batches: int, rows: int = 300) -> list[pa.Table]:
    rng = random.Random(7)
    places = rng.sample(range(batches * rows), batches * rows)
    weights = (None, float("nan"), 0.0, -0.0, 0.1, 1e16, -1e16, 2.5)
    return [
        pa.table(
            {
                "item": pa.array([rng.randrange(6) for _ in range(rows)], pa.int32()),
                "seq": pa.array(places[batch * rows : (batch + 1) * rows], pa.int64()),
                "text": pa.array([str(rng.randrange(1000)) for _ in range(rows)]),
                "weight": pa.array([rng.choice(weights) for _ in range(rows)], pa.float64()),
            }
        )
        for batch in range(batches)
    ]


def _of_oracle(tables: list[pa.Table]) -> Rows:
    oracle = Oracle(tables[0].schema, **_ASKED)
    found: Rows = Counter()
    for batch, table in enumerate(tables):
        rows = plain_rows(contiguous(table))
        rows.sort(key=lambda row: place_in_order(row, _ORDER))
        results = oracle.published(oracle.process(batch, rows).results)
        found.update(tuple(exact(value) for value in row.values()) for row in results)
    return found


@pytest.mark.parametrize("partitions", [1, 3, 8])
def test_results_are_those_of_sorted_batches_however_many_partitions_they_come_in(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    feed = Feed(spark, tmp_path / "in", _COLUMNS)
    tables = _tables(3)
    feed.add(*tables)
    result = tm.aggregate(
        feed.stream().repartition(partitions),
        path=tmp_path / "log",
        cache_dir=tmp_path / "cache",
        order_by=_ORDER,
        **_ASKED,
    )
    query = Query(tmp_path)
    query.run(result)
    assert query.rows(spark) == _of_oracle(tables)
    meta = meta_of(tmp_path / "log")
    assert meta.operator["order_by"] == _ORDER
    assert meta.input_schema.names == ["item", "text", "weight", "seq"]


def test_a_dataframe_that_does_not_stream_is_ordered_as_a_whole(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables = _tables(3)
    Feed(spark, tmp_path / "in", _COLUMNS).add(*tables)
    still = spark.read.schema(_COLUMNS).parquet(str(tmp_path / "in")).repartition(5)
    result = tm.aggregate(still, path=tmp_path / "log", order_by=_ORDER, **_ASKED)
    assert rows_of(result) == _of_oracle([pa.concat_tables(tables)])
