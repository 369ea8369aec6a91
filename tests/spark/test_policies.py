"""On Spark, too, a policy changes what is written and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

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


@pytest.mark.parametrize("kind", _WINDOWS)
@pytest.mark.parametrize("policy", _POLICIES.values(), ids=_POLICIES)
def test_a_query_that_loses_its_cache_goes_on_exactly_under_every_policy(
    spark: SparkSession, tmp_path: Path, policy: Policy, kind: str
) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    query, path, cache = Query(tmp_path), tmp_path / "log", tmp_path / "cache"
    recovered = 0
    for batches in _restarts(3):
        feed.add(*map(_orders, batches))
        query.run(
            tm.aggregate(
                feed.stream(),
                by="item",
                window=_WINDOWS[kind],
                values=_VALUES,
                path=path,
                checkpoint=policy,
                buckets=2,
                cache_dir=cache,
            )
        )
        shutil.rmtree(cache)
    # Every run of time windows ends with a batch without data.
    count = 9 + (3 if kind == "time" else 0)
    for segments in logged_segments(path, Stream.OUTPUT):
        assert [segment.batch for segment in segments] == list(range(count))
        recovered += sum("recovery" in segment.footer.attributes for segment in segments)
    assert recovered == 4, "both buckets, after both losses"
    expected = expected_rows(path, by=["item"], window=_WINDOWS[kind], values=_VALUES)
    assert query.rows(spark) == expected
    assert len(expected) > 40


@pytest.mark.parametrize("name", ["none", "upstream"])
def test_policies_that_write_no_state_write_none(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    feed = Feed(spark, tmp_path / "in", _SCHEMA)
    feed.add(*map(_orders, range(3)))
    path = tmp_path / "log"
    averages = tm.aggregate(
        feed.stream(),
        by="item",
        window=_WINDOWS["time"],
        values=_VALUES,
        path=path,
        checkpoint=_POLICIES[name],
        buckets=2,
        cache_dir=tmp_path / "cache",
    )
    Query(tmp_path).run(averages)
    for segments in logged_segments(path, Stream.OUTPUT):
        assert all(segment.table(FrameKind.FOOTPRINTS) is None for segment in segments)
    assert not (path / "snap").exists()
