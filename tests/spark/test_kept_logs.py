"""Queries that an earlier Trailmark ran go on: with their logs, streams and Spark's checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.kept_logs import (
    SPARK_BATCHES,
    VALUES,
    WINDOWS,
    orders,
    run_query,
    unpack,
    write_orders,
)
from tests.support.spark_feed import expected_rows, logged_rows, meta_of, rows_of, table_rows
from tests.support.spark_streams import query

_END = SPARK_BATCHES + 3


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("kept")
    unpack(root)
    write_orders(root / "spark", SPARK_BATCHES, _END)
    return root / "spark"


@pytest.mark.parametrize("window", WINDOWS)
def test_a_kept_query_goes_on(
    spark: SparkSession, kept: Path, cache_dir: Path, window: str
) -> None:
    before = rows_of(query(spark, kept / f"{window}-out"))
    assert tm.read_table(kept / window).num_rows > 0
    progress = run_query(spark, kept, window, cache_dir)
    assert progress[0]["batchId"] == SPARK_BATCHES
    found = rows_of(query(spark, kept / f"{window}-out"))
    assert before.total() < found.total()
    assert before <= found
    assert found == expected_rows(kept / window, by=["item"], window=WINDOWS[window], values=VALUES)
    names = meta_of(kept / window).input_schema.names
    given = table_rows([orders(batch) for batch in range(_END)], names)
    assert logged_rows(kept / window) == given
