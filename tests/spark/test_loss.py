"""On Spark, loss is an argument of an operator like its policy."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from tests.support.spark_apply import Total
from tests.support.spark_feed import Feed, Query, logged_segments
from trailmark.errors import SettingError
from trailmark.records import FrameKind, Stream

_ITEMS = 6


def _orders() -> pa.Table:
    return pa.table({"item": pa.array(range(_ITEMS), pa.int32())})


def _lost(path: Path) -> dict[int, dict[str, Any]]:
    """What recoveries have lost, by the batch that followed."""
    (segments,) = logged_segments(path, Stream.OUTPUT)
    attributes = {segment.batch: segment.footer.attributes for segment in segments}
    return {
        batch: found["recovery"]["lost"]
        for batch, found in attributes.items()
        if "lost" in found.get("recovery", {})
    }


def _by_key(df: DataFrame, place: Path, loss: Literal["none", "bounded"]) -> DataFrame:
    return tm.aggregate(
        df,
        by="item",
        window=tm.count_window(7),
        values={"n": tm.count()},
        path=place / "log",
        checkpoint=tm.Periodic(3),
        loss=loss,
        buckets=1,
        cache_dir=place / "cache",
    )


def test_a_query_that_may_lose_something_says_what_it_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its state is lost after every run: first with batch 4, then with batch 6, and then, as
    nothing may be lost any more, with none. So the first windows of seven close in batch 8."""
    feed, query, path = Feed(spark, tmp_path / "in", "item int"), Query(tmp_path), tmp_path / "log"
    starts: list[tuple[int, Literal["none", "bounded"]]]
    starts = [(5, "bounded"), (2, "bounded"), (3, "none"), (3, "none")]
    for batches, loss in starts:
        feed.add(*[_orders() for _ in range(batches)])
        query.run(_by_key(feed.stream(), tmp_path, loss))
        shutil.rmtree(tmp_path / "cache")
    assert {batch: found["tuples"] for batch, found in _lost(path).items()} == {5: 6, 7: 6}
    (segments,) = logged_segments(path, Stream.OUTPUT)
    footers = [segment.footer for segment in segments]
    assert [footer.attributes.get("loss") for footer in footers] == ["bounded"] * 7 + [None] * 6
    assert "recovery" in footers[10].attributes, "and this one was exact"
    closed = [footer.batch for footer in footers if footer.rows[FrameKind.RESULTS]]
    assert closed == [8]
    assert query.rows(spark) == Counter((item, 7) for item in range(_ITEMS))


def test_an_operator_of_the_users_own_goes_on_from_its_last_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, query = Feed(spark, tmp_path / "in", "item int"), Query(tmp_path)
    for batches in (5, 2):
        feed.add(*[_orders() for _ in range(batches)])
        running = tm.apply(
            feed.stream(),
            Total,
            schema="rows long",
            path=tmp_path / "log",
            checkpoint=tm.Periodic(3),
            loss="bounded",
            buckets=1,
            cache_dir=tmp_path / "cache",
        )
        assert "loses what it would replay" in str(tm.explanation(running))
        query.run(running)
        shutil.rmtree(tmp_path / "cache")
    # The rows of batch 4 are lost, so that batch 5 counts them anew.
    seen = [6, 12, 18, 24, 30, 30, 36]
    assert query.rows(spark) == Counter((rows,) for rows in seen)
    assert _lost(tmp_path / "log") == {
        5: {
            "batches": 1,
            "tuples": 6,
            "is_estimate": False,
            "windows": 0,
            "doubtful": 0,
            "footprints": 0,
        }
    }


def test_loss_without_logs_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    stream = Feed(spark, tmp_path / "in", "item int").stream()
    with pytest.raises(SettingError, match="without logs") as refused:
        tm.apply(stream, Total, schema="rows long", checkpoint=None, loss="bounded")
    assert refused.value.where == "loss"
