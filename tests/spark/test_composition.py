"""The result of `tm.aggregate` is a DataFrame like any other, and takes any."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_feed import (
    Feed,
    Query,
    Rows,
    expected_rows,
    logged_rows,
    logged_segments,
    rows_of,
)
from tests.support.spark_versions import needs_spark
from trailmark.engine.commits import newest_mark
from trailmark.log import LocalStorage
from trailmark.records import Stream

_SCHEMA = "item int, price int, time timestamp"
_WINDOW = tm.count_window(4)
_VALUES = {"total": tm.sum("price"), "n": tm.count()}


def _orders(seed: int, rows: int = 200, items: int = 11) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = np.datetime64("2024-01-01T00:00:00", "us") + np.timedelta64(10 * seed, "s")
    return pa.table(
        {
            "item": rng.integers(0, items, rows, dtype=np.int32),
            "price": rng.integers(1, 100, rows, dtype=np.int32),
            "time": pa.array(start + rng.integers(0, 10, rows).astype("m8[s]")).cast(
                pa.timestamp("us", "UTC")
            ),
        }
    )


class Place:
    """A stream of orders, and aggregates over it."""

    def __init__(self, spark: SparkSession, root: Path, batches: int = 4) -> None:
        self.spark = spark
        self.root = root
        self.feed = Feed(spark, root / "in", _SCHEMA)
        self.feed.add(*(_orders(seed) for seed in range(batches)))
        self.query = Query(root)

    def path(self, name: str = "log") -> Path:
        return self.root / name

    def aggregate(self, df: DataFrame, name: str = "log", **given: Any) -> DataFrame:
        arguments: dict[str, Any] = {"by": "item", "window": _WINDOW, "values": _VALUES} | given
        return tm.aggregate(
            df, path=self.path(name), cache_dir=self.root / "cache", buckets=3, **arguments
        )

    def expected(self, name: str = "log") -> Rows:
        """What the oracle makes of the input that was logged."""
        return expected_rows(self.path(name), by=["item"], window=_WINDOW, values=_VALUES)

    def found(self) -> Rows:
        return self.query.rows(self.spark)


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def test_it_takes_and_gives_filtered_streams(place: Place) -> None:
    cheap = place.feed.stream().where("price < 50").withColumn("more", F.lit("nobody needs it"))
    place.query.run(place.aggregate(cheap).where("total > 100").select("total", "item"))
    expected = place.expected()
    assert all(price < 50 for _, price in logged_rows(place.path()))
    assert place.found() == Counter(
        {(total, item): n for (item, total, _), n in expected.items() if total > 100}
    )
    assert expected


def test_results_can_be_observed_in_sparks_own_progress(place: Place) -> None:
    figures = [F.count("*").alias("windows"), F.sum("total").alias("paid")]
    observed = place.aggregate(place.feed.stream()).observe("orders", *figures)
    told = [each["observedMetrics"]["orders"] for each in place.query.run(observed)]
    assert len(told) == 4
    assert sum(each["windows"] for each in told) == place.found().total()
    assert sum(each["paid"] for each in told) == sum(
        total for _, total, _ in place.found().elements()
    )


def test_two_aggregates_in_a_row_are_each_exact(place: Place) -> None:
    first = place.aggregate(place.feed.stream(), "first").withColumnRenamed("total", "price")
    second = place.aggregate(first, "second", window=tm.count_window(3))
    place.query.run(second)
    assert logged_rows(place.path("second")) == Counter(
        {(item, total): n for (item, total, _), n in place.expected("first").items()}
    )
    assert place.found() == expected_rows(
        place.path("second"), by=["item"], window=tm.count_window(3), values=_VALUES
    )


def test_it_takes_a_union_of_streams(place: Place) -> None:
    stream = place.feed.stream()
    place.query.run(place.aggregate(stream.union(stream)))
    assert place.found() == place.expected()
    assert logged_rows(place.path()).total() == 2 * 4 * 200


def test_a_union_after_it_gives_the_results_of_both_sides(place: Place) -> None:
    stream = place.feed.stream()
    other = stream.selectExpr("item", "cast(price as bigint) total", "1L n").where("price > 90")
    left = place.aggregate(stream, "left")
    right = place.aggregate(stream.where("item > 3"), "right")
    place.query.run(other.union(left).union(right))
    others = Counter(
        (item, price, 1)
        for seed in range(4)
        for item, price in zip(
            *_orders(seed).select(["item", "price"]).to_pydict().values(), strict=True
        )
        if price > 90
    )
    assert place.found() == others + place.expected("left") + place.expected("right")


def test_one_task_may_evaluate_all_buckets(place: Place) -> None:
    place.query.run(place.aggregate(place.feed.stream()).coalesce(1))
    assert place.found() == place.expected()
    files = list(place.query.out.glob("*.parquet"))
    assert len(files) <= 4


@needs_spark("4.2", "an availableNow run of several batches beside ticks")
def test_quiet_buckets_close_their_windows_too_even_after_a_union(place: Place) -> None:
    """Only the first batch has orders of all items; later ones move the watermark with one item."""
    feed = Feed(place.spark, place.root / "quiet", _SCHEMA)
    feed.add(_orders(0), _orders(6, rows=3, items=1), _orders(12, rows=3, items=1))
    window = tm.time_window("time", "5 seconds")
    timed = place.aggregate(feed.stream(), window=window)
    nothing = (
        feed.stream()
        .where("price < 0")
        .selectExpr("item", "window(time, '5 seconds') window", "1L total", "1L n")
    )
    place.query.run(nothing.union(timed))
    found = place.found()
    assert found == expected_rows(place.path(), by=["item"], window=window, values=_VALUES)
    assert len({item for item, *_ in found}) == 11, "windows of all items have closed"


def test_an_empty_batch_is_a_batch(place: Place) -> None:
    place.query.run(place.aggregate(place.feed.stream().where("price < 0")))
    assert not place.found()
    for segments in logged_segments(place.path(), Stream.OUTPUT):
        assert [segment.batch for segment in segments] == [0, 1, 2, 3]
    assert newest_mark(LocalStorage(str(place.path()))) == -1, "nobody listens"


def test_a_stream_can_be_joined_with_a_table_before_and_after(place: Place) -> None:
    names = place.spark.createDataFrame(
        [(n, f"item {n}") for n in range(8)], "item int, name string"
    )
    known = place.feed.stream().join(names, "item")
    result = place.aggregate(known, by="name").join(names, "name")
    place.query.run(result.select("name", "total", "n"))
    assert place.found() == expected_rows(place.path(), by=["name"], window=_WINDOW, values=_VALUES)


def test_a_batch_may_be_evaluated_several_times(place: Place) -> None:
    """Every action in foreachBatch evaluates the whole plan again."""
    counts: list[tuple[int, int]] = []
    out = str(place.root / "written")

    def write(df: DataFrame, batch: int) -> None:
        counts.append((df.count(), df.where("n = 4").count()))
        df.write.mode("append").parquet(out)

    writer = place.aggregate(place.feed.stream()).writeStream.foreachBatch(write)
    checkpoint = str(place.query.checkpoint)
    writer.option("checkpointLocation", checkpoint).trigger(
        availableNow=True
    ).start().awaitTermination()
    found = rows_of(place.spark.read.parquet(out))
    assert found == place.expected()
    assert [n for n, _ in counts] == [n for _, n in counts]
    assert sum(n for n, _ in counts) == found.total()


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (lambda df: df.take(1), lambda df: df.collect()),
        (lambda df: df.take(1), lambda df: df.take(1)),
        (lambda df: df.head(), lambda df: df.limit(1).collect()),
    ],
    ids=["take then all", "take", "head then limit"],
)
def test_a_batch_that_was_not_evaluated_whole_is_noticed_at_the_next(
    place: Place, first: Callable[[DataFrame], object], later: Callable[[DataFrame], object]
) -> None:
    def peek(df: DataFrame, batch: int) -> None:
        first(df) if batch == 0 else later(df)

    writer = place.aggregate(place.feed.stream()).writeStream.foreachBatch(peek)
    writer = writer.option("checkpointLocation", str(place.query.checkpoint))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="Batch 1 cannot be taken in") as refused:
        query.awaitTermination()
    assert "take or head in foreachBatch" in str(refused.value)


def test_queries_of_one_session_do_not_disturb_each_other(place: Place) -> None:
    stream = place.feed.stream()
    queries = []
    for name in ("one", "two"):
        writer = place.aggregate(stream, name).writeStream.option(
            "checkpointLocation", str(place.root / name / "checkpoint")
        )
        queries.append(writer.trigger(availableNow=True).start(str(place.root / name / "out")))
    for query in queries:
        query.awaitTermination()
    for name in ("one", "two"):
        found = rows_of(place.spark.read.parquet(str(place.root / name / "out")))
        assert found == place.expected(name)


def test_a_query_on_a_clock_goes_on_with_new_files(place: Place) -> None:
    writer = place.aggregate(place.feed.stream()).writeStream.option(
        "checkpointLocation", str(place.query.checkpoint)
    )
    query = writer.trigger(processingTime="200 milliseconds").start(str(place.query.out))
    try:
        query.processAllAvailable()
        place.feed.add(_orders(9))
        deadline = time.monotonic() + 60
        while logged_rows(place.path()).total() < 5 * 200 and time.monotonic() < deadline:
            query.processAllAvailable()
    finally:
        query.stop()
    assert place.found() == place.expected()
    assert logged_rows(place.path()).total() == 5 * 200


def test_a_path_is_used_by_one_query_only(place: Place) -> None:
    place.query.run(place.aggregate(place.feed.stream()))
    with pytest.raises(StreamingQueryException, match="belong to another query"):
        Query(place.root, "other").run(place.aggregate(place.feed.stream()))
