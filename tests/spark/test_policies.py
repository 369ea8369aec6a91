"""On Spark, too, a policy changes what is written and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import reduce
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_feed import Feed, Query, expected_rows, logged_segments
from trailmark.checkpoint.policy import Policy
from trailmark.records import FrameKind, Stream
from trailmark.windows.spec import Window

_SCHEMA = "item int, price int, time timestamp"
_VALUES = {"total": tm.sum("price"), "number": tm.count(), "last": tm.last("price")}
_WINDOWS: dict[str, Window] = {
    "count": tm.count_window(7),
    "time": tm.time_window("time", "20 seconds", delay="5 seconds"),
}
_POLICIES: dict[str, Policy] = {
    "targets": tm.Continuous(q=60, u=200),
    "objective": tm.Continuous.within("25 ms"),
    "cost-benefit": tm.CostBenefit(failure_rate="2 per second", weight=100),
    "slow": tm.SlowWindows("100 ms", "500 ms", shots=2),
    "full": tm.FullSnapshot(every=2),
    "behind": tm.FullSnapshot(every=2, asynchronous=True),
    "delta": tm.Delta(every=2, full_every=3),
    "upstream": tm.UpstreamBackup(),
    "none": tm.NoCheckpoint(),
}
_POLICIES_OF = {
    "count": ("targets", "cost-benefit", "full", "delta"),
    "time": ("objective", "slow", "behind", "upstream", "none"),
}


def _orders(batch: int) -> pa.Table:
    """All orders of an item in a batch are alike: a shuffle does not keep their order."""
    items = [(5 * batch + n % 9) % 60 for n in range(120)]
    prices = [(7 * item + batch) % 100 for item in items]
    times = [(1_700_000_000 + 6 * batch + n % 6) * 1_000_000 for n in range(120)]
    return pa.table(
        {
            "item": pa.array(items, pa.int32()),
            "price": pa.array(prices, pa.int32()),
            "time": pa.array(times, pa.timestamp("us", tz="UTC")),
        }
    )


def _restarts(count: int) -> Iterator[range]:
    """Batches between restarts: an uneven number, so that snapshots fall anywhere."""
    first = 0
    for number in range(count):
        yield range(first, first + 2 + number)
        first += 2 + number


def _aggregate(place: Path, stream: DataFrame, name: str, kind: str) -> DataFrame:
    counted = tm.aggregate(
        stream,
        by="item",
        window=_WINDOWS[kind],
        values=_VALUES,
        path=place / "log" / name,
        checkpoint=_POLICIES[name],
        buckets=2,
        cache_dir=place / "cache",
    )
    return counted.withColumn("policy", F.lit(name))


@pytest.mark.parametrize("kind", _WINDOWS)
def test_a_query_that_loses_its_cache_goes_on_exactly_under_every_policy(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    """One query for each kind of windows, with an operator for each of its policies: without Spark,
    all kinds and policies are tried together."""
    names = _POLICIES_OF[kind]
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    query = Query(tmp_path)
    for batches in _restarts(3):
        feed.add(*map(_orders, batches))
        branches = [_aggregate(tmp_path, feed.stream(), name, kind) for name in names]
        query.run(reduce(DataFrame.union, branches))
        shutil.rmtree(tmp_path / "cache")
    # Every run of time windows ends with a batch without data.
    count = 9 + (3 if kind == "time" else 0)
    found = query.rows(spark)
    for name in names:
        path, recovered = tmp_path / "log" / name, 0
        for segments in logged_segments(path, Stream.OUTPUT):
            assert [segment.batch for segment in segments] == list(range(count))
            recovered += sum("recovery" in segment.footer.attributes for segment in segments)
        assert recovered == 4, "both buckets, after both losses"
        expected = expected_rows(path, by=["item"], window=_WINDOWS[kind], values=_VALUES)
        assert {row[:-1]: times for row, times in found.items() if row[-1] == name} == expected
        assert len(expected) > 40
    for name in {"none", "upstream"}.intersection(names):
        _assert_no_state_is_written(tmp_path / "log" / name)


def _assert_no_state_is_written(path: Path) -> None:
    for segments in logged_segments(path, Stream.OUTPUT):
        assert all(segment.table(FrameKind.FOOTPRINTS) is None for segment in segments)
    assert not (path / "snap").exists()
