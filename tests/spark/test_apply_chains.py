"""The result of `tm.apply` is a DataFrame like any other, and takes any."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_apply import Count, Place, Total, latest, orders, variant
from tests.support.spark_feed import Query, Rows, logged_rows, rows_of
from tests.support.spark_orders import recoveries_in


class Gaps(Count):
    """The seconds since the order before of the same item, once the watermark has come by."""

    state = {"n": pa.int64(), "last": pa.timestamp("us", "UTC")}  # noqa: RUF012

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> None:
        state["n"] += keys.counts()
        state["last"] = latest(keys, rows)
        state.event_timer = state["last"]

    def on_event_timer(self, keys: Any, due: Any, state: Any) -> Any:
        return keys.table(n=state["n"], at=pa.array(due, pa.timestamp("us", "UTC")))


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def _given(place: Place, name: str) -> dict[str, Any]:
    return {"path": place.root / name, "buckets": 1, "cache_dir": place.cache / name}


def _chain(place: Place) -> DataFrame:
    """Timers, a time window over what they tell, counts of its results, and an object."""
    gaps = tm.apply(
        place.feed.stream(),
        Gaps,
        by="item",
        schema="item int, n long, at timestamp",
        time="at",
        checkpoint=tm.Continuous(q=10),
        **_given(place, "gaps"),
    )
    windows = tm.aggregate(
        gaps,
        by="item",
        window=tm.time_window("at", "10 seconds"),
        values={"most": tm.max("n")},
        checkpoint=tm.UpstreamBackup(),
        **_given(place, "windows"),
    )
    counts = tm.apply(
        windows,
        Count,
        by="item",
        schema="item int, n long",
        checkpoint=tm.Periodic("1 second"),
        **_given(place, "counts"),
    )
    return tm.apply(counts, _pass_on, schema="item int, n long", checkpoint=None)


def _pass_on(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def test_operators_in_a_row_are_each_exact_recover_alone_and_close_one_batch_after_another(
    place: Place,
) -> None:
    place.feed.add(orders((1, 1)), orders((3, 12)), orders((1, 25)), orders((3, 40)))
    place.query.run(_chain(place))
    shutil.rmtree(place.cache / "windows")
    place.feed.add(orders((1, 60)), orders((3, 90)))
    place.query.run(_chain(place))
    found = {
        name: recoveries_in(place.root / name, place.newest_batch())
        for name in ("gaps", "windows", "counts")
    }
    assert {name: len(each) for name, each in found.items()} == {
        "gaps": 0,
        "windows": 1,
        "counts": 0,
    }
    told = {(1, 1), (3, 1), (1, 2), (3, 2), (1, 3), (3, 3)}
    assert {(item, n) for item, _, n in logged_rows(place.root / "windows")} == told
    # Each has told in a window of its own; that of 90 is open.
    assert place.rows() == dict.fromkeys(told - {(3, 3)}, 1)


def test_every_action_of_foreach_batch_sees_the_same_batch(place: Place) -> None:
    place.feed.add(*(orders((1, second), (2, second)) for second in range(3)))
    found: list[tuple[int, Rows]] = []

    def write(df: DataFrame, batch: int) -> None:
        found.append((df.where("item = 1").count(), rows_of(df)))

    writer = place.apply(Count).writeStream.foreachBatch(write).trigger(availableNow=True)
    writer.option("checkpointLocation", str(place.query.checkpoint)).start().awaitTermination()
    assert found == [(1, {(1, n): 1, (2, n): 1}) for n in (1, 2, 3)]


def test_it_takes_joins_and_unions_and_gives_them(place: Place) -> None:
    names = place.spark.createDataFrame([(1, "one"), (2, "two")], "item int, name string")
    stream = place.feed.stream().join(names, "item").select("name", "value")
    counted = place.apply(Count, stream.union(stream), by="name", schema="name string, n long")
    place.feed.add(orders((1, 1), (3, 2)), orders((1, 3), (2, 4)))
    Query(place.root).run(
        counted.where("n > 1").coalesce(1).join(names, "name").select("item", "n")
    )
    assert place.rows() == {(1, 2): 1, (1, 4): 1, (2, 2): 1}


def test_rows_without_keys_are_spread_and_none_is_lost(place: Place) -> None:
    place.feed.add(*(orders(*((n % 7, 50 * b + n) for n in range(50))) for b in range(3)))
    place.run(Total, by=None, schema="rows long", buckets=3)
    most = Counter(rows for (rows,) in place.rows().elements())
    assert place.rows().total() == 9, "an object for each bucket, a row for each batch"
    assert sum(sorted(most.elements())[-3:]) == 150


def test_the_order_of_a_batch_can_be_asked_for(place: Place) -> None:
    def process(self: Any, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.RecordBatch:
        assert (np.diff(rows["value"].to_numpy()) >= 0).all()
        return pa.RecordBatch.from_pydict({"item": rows["item"], "n": rows["value"].cast("i8")})

    place.feed.add(orders(*((n % 3, (37 * n) % 50) for n in range(50))))
    scattered = place.feed.stream().repartition(5)
    place.query.run(place.apply(variant(Count, process=process), scattered, order_by="value"))
    assert place.rows().total() == 50


@pytest.mark.parametrize("operator", [Count, Total])
def test_a_dataframe_that_does_not_stream_is_one_batch(place: Place, operator: Any) -> None:
    still = place.spark.range(1000).select((F.col("id") % 5).cast("int").alias("item"))
    schema = "item int, n long" if operator is Count else "rows long"
    found = tm.apply(still, operator, by="item", schema=schema, buckets=2, path=place.path)
    if operator is Count:
        assert rows_of(found) == {(item, 200): 1 for item in range(5)}
    else:
        assert found.agg(F.sum("rows")).first() == (1000,)
    assert not place.path.exists()
