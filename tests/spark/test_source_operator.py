"""An operator's logs as a source: its results and other records, queried and followed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed, Query, expected_rows, logged_rows, rows_of
from tests.support.spark_streams import add, follow, query

_SCHEMA = "item int, price int, time timestamp"
_VALUES = {"total": tm.sum("price"), "n": tm.count()}
_COUNT, _TIME = tm.count_window(4), tm.time_window("time", "5 seconds", delay="1 second")


def _orders(seed: int, first: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    start = np.datetime64("2024-01-01T00:00:00", "us") + np.timedelta64(first, "s")
    times = pa.array(start + rng.integers(0, 10, 100).astype("m8[s]"))
    return pa.table(
        {
            "item": rng.integers(0, 7, 100, dtype=np.int32),
            "price": rng.integers(1, 100, 100, dtype=np.int32),
            "time": times.cast(pa.timestamp("us", "UTC")),
        }
    )


class Place:
    """Orders that go through two operators, whose results go to Parquet as well."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.feed = Feed(spark, root / "in", _SCHEMA)
        # The last but one comes late.
        self.feed.add(*(_orders(n, first) for n, first in enumerate((0, 10, 20, 0, 30))))
        self.queries = {name: Query(root, name) for name in ("count", "time")}

    def path(self, name: str) -> Path:
        return self.root / f"{name}-logs"

    def run(self) -> None:
        for name, window in (("count", _COUNT), ("time", _TIME)):
            late: Any = {"late": "keep"} if name == "time" else {}
            df = tm.aggregate(
                self.feed.stream(),
                by="item",
                window=window,
                values=_VALUES,
                path=self.path(name),
                checkpoint=tm.Continuous(q=50),
                buckets=2,
                cache_dir=self.root / "cache",
                retain_batches=None,
                **late,
            )
            self.queries[name].run(df)
        jvm: Any = self.spark.sparkContext._jsc
        jvm.sc().listenerBus().waitUntilEmpty()

    def sink(self, name: str) -> DataFrame:
        return self.spark.read.parquet(str(self.queries[name].out))


@pytest.fixture(scope="module")
def place(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(spark, tmp_path_factory.mktemp("operator"))
    listener = tm.listen(spark)
    try:
        place.run()
    finally:
        spark.streams.removeListener(listener)
    return place


@pytest.mark.parametrize("name", ["count", "time"])
def test_its_results_are_those_that_the_sink_got(place: Place, name: str) -> None:
    found = query(place.spark, place.path(name))
    window = _COUNT if name == "count" else _TIME
    assert found.columns == place.sink(name).columns
    assert found.schema.simpleString() == place.sink(name).schema.simpleString()
    assert rows_of(found) == rows_of(place.sink(name))
    late: Any = "keep" if name == "time" else "drop"
    assert rows_of(found) == expected_rows(
        place.path(name), by=["item"], window=window, values=_VALUES, late=late
    )
    copy = Query(place.root, f"{name}-followed")
    progress = copy.run(follow(place.spark, place.path(name), maxRowsPerTrigger=1))
    assert rows_of(place.spark.read.parquet(str(copy.out))) == rows_of(found)
    assert len(progress) >= 4, "its batches are those of the operator"


def test_other_records_are_read_where_they_are_asked_for(place: Place) -> None:
    everything = query(place.spark, place.path("count"), records="all")
    kinds = Counter(row.kind for row in everything.select("kind").collect())
    results = rows_of(place.sink("count"))
    assert kinds["result"] == results.total()
    assert kinds["open"] > 0
    assert set(kinds) <= {"result", "open", "check"}
    assert rows_of(everything.where("kind = 'result'").select("item", "total", "n")) == results
    states = everything.where("kind <> 'result'").select("state", "total").collect()
    assert all(row.state and row.total is None for row in states)
    assert "kind" not in query(place.spark, place.path("count")).columns
    given = query(place.spark, place.path("count"), records="input")
    assert rows_of(given) == logged_rows(place.path("count"))
    assert rows_of(given).total() == 500
    late = query(place.spark, place.path("time"), RECORDS="late")
    assert sorted(late.columns) == ["item", "price", "time"]
    assert 0 < late.count() <= 100
    assert not rows_of(late) - rows_of(query(place.spark, place.path("time"), records="input"))
    with pytest.raises(
        AnalysisException, match=r"(?s)are no records.*where: records.*results, all"
    ):
        query(place.spark, place.path("count"), records="some")


def test_nobody_but_its_query_writes_to_it(place: Place) -> None:
    with pytest.raises(AnalysisException, match=r"(?s)holds the logs of an operator.*next:  Give"):
        add(place.spark.range(3), place.path("count"))


def test_without_a_listener_the_newest_batch_is_seen_as_soon_as_spark_has_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, operator = Feed(spark, tmp_path / "in", _SCHEMA), Query(tmp_path)
    path = tmp_path / "logs"

    def run() -> None:
        df = tm.aggregate(
            feed.stream(), by="item", window=_COUNT, values=_VALUES, path=path, buckets=2
        )
        operator.run(df)

    copy = Query(tmp_path, "copy")
    for batch in range(2):
        feed.add(_orders(batch, 0))
        run()
        results = operator.rows(spark)
        copy.run(follow(spark, path))
        assert results.total() > 0
        assert rows_of(query(spark, path)) == copy.rows(spark) == results
