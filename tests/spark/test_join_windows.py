"""Joins with the last tuples on Spark, late rows that are kept, and what is refused of both."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_feed import Feed, Query, rows_of

_BIDS, _ASKS = "item int, at long, bid int", "item int, at long, ask int"
_BATCHES, _ROWS = 6, 20


def _table(batch: int, side: int, value: str) -> pa.Table:
    """Tuples of a few items; those of both sides take turns."""
    numbers = range(batch * _ROWS, (batch + 1) * _ROWS)
    items = [None if n % 9 == 4 else n * (side + 3) % 7 for n in numbers]
    return pa.table(
        {
            "item": pa.array(items, pa.int32()),
            "at": pa.array([2 * n + side for n in reversed(numbers)], pa.int64()),
            value: pa.array(numbers, pa.int32()),
        }
    )


def _expected(count: int, per_key: bool) -> Counter[tuple[Any, ...]]:
    """Every bid with the last asks before it; every ask with nobody that comes after."""
    asks: list[dict[str, Any]] = []
    found: Counter[tuple[Any, ...]] = Counter()
    for batch in range(_BATCHES):
        arrivals = [
            (side, row)
            for side, value in enumerate(("bid", "ask"))
            for row in _table(batch, side, value).to_pylist()
        ]
        for side, row in sorted(arrivals, key=lambda each: int(each[1]["at"])):
            if row["item"] is None:
                if side == 0:
                    found[None, row["at"], row["bid"], None, None] += 1
                continue
            if side == 1:
                asks.append(row)
                continue
            mine = [ask for ask in asks if ask["item"] == row["item"]]
            met = mine[-count:] if per_key else [ask for ask in mine if ask in asks[-count:]]
            for ask in met:
                found[row["item"], row["at"], row["bid"], ask["at"], ask["ask"]] += 1
            if not met:
                found[row["item"], row["at"], row["bid"], None, None] += 1
    return found


class Market:
    """Bids and asks that come batch by batch."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.root = root
        self.feeds = (Feed(spark, root / "bids", _BIDS), Feed(spark, root / "asks", _ASKS))

    def add(self, batches: range) -> None:
        for batch in batches:
            for side, value in enumerate(("bid", "ask")):
                self.feeds[side].add(_table(batch, side, value))

    def joined(self, *frames: DataFrame, **given: Any) -> DataFrame:
        arguments: dict[str, Any] = {
            "on": "item",
            "windows": (tm.last_tuples(0), tm.last_tuples(2, per_key=True)),
            "how": "left",
            "order_by": "at",
            "path": self.root / "log",
            "cache_dir": self.root / "cache",
        }
        sides = frames or tuple(feed.stream() for feed in self.feeds)
        return tm.join(*sides, **(arguments | given))


@pytest.mark.parametrize("per_key", [False, True])
def test_tuples_meet_the_last_of_the_other_side(
    spark: SparkSession, tmp_path: Path, per_key: bool
) -> None:
    market, query = Market(spark, tmp_path), Query(tmp_path / "ours")
    count = 2 if per_key else 15
    windows = (tm.last_tuples(0), tm.last_tuples(count, per_key=per_key))
    for batches in (range(3), range(3, _BATCHES)):
        market.add(batches)
        query.run(market.joined(windows=windows))
        shutil.rmtree(tmp_path / "cache")  # as on another host
    expected = _expected(count, per_key)
    assert query.rows(spark) == expected
    assert sum(1 for row in expected if row[3] is not None) > 50
    text = str(tm.explanation(market.joined(windows=windows)))
    assert ("there is one bucket" in text) != per_key
    assert "last 0 with the last" in text


def test_windows_in_groups_go_on_where_they_were_and_only_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    market, query = Market(spark, tmp_path), Query(tmp_path / "ours")
    given: dict[str, Any] = {"checkpoint": tm.Incremental(2, group_size=4)}
    for batches in (range(2), range(2, 3), range(3, _BATCHES)):
        market.add(batches)
        query.run(market.joined(**given))
        shutil.rmtree(tmp_path / "cache")
    assert query.rows(spark) == _expected(2, per_key=True)
    text = str(tm.explanation(market.joined(**given)))
    assert "incremental (every 2 batches, group_size 4): replays at most 2 batches" in text
    state = tm.read_table(tmp_path / "log", records="state")
    assert set(state["filled"].to_pylist()) <= {1, 2}
    for other in (None, tm.Incremental(2, group_size=8), tm.Delta(2)):
        with pytest.raises(tm.TrailmarkError, match="group_size"):
            market.joined(checkpoint=other)


def test_loss_is_accepted_of_windows_in_groups_alone(spark: SparkSession, tmp_path: Path) -> None:
    market, query = Market(spark, tmp_path), Query(tmp_path / "ours")
    with pytest.raises(tm.TrailmarkError, match="what it pairs does not belong together"):
        market.joined(loss="bounded")
    given: dict[str, Any] = {"checkpoint": tm.Incremental(1, group_size=4), "loss": "bounded"}
    for batches in (range(3), range(3, _BATCHES)):
        market.add(batches)
        query.run(market.joined(**given))
        shutil.rmtree(tmp_path / "cache")
    assert query.rows(spark) == _expected(2, per_key=True), "every batch has written its groups"


def test_at_rest_what_is_still_in_a_window_comes_out_at_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    bids = spark.createDataFrame([(1, 1, 10), (2, 2, 20), (3, 5, 30)], _BIDS)
    asks = spark.createDataFrame([(1, 3, 11), (2, 4, 21), (2, 0, 22)], _ASKS)
    windows = (tm.last_tuples(9, per_key=True), tm.last_tuples(9))
    joined = Market(spark, tmp_path).joined(bids, asks, windows=windows, how="full")
    assert {(row.bid, row.ask) for row in joined.collect()} == {
        (10, 11),
        (20, 21),
        (20, 22),
        (30, None),
    }
    assert not (tmp_path / "log").exists()


def test_late_rows_are_kept_with_their_side_and_can_be_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    market, query = Market(spark, tmp_path), Query(tmp_path / "ours")
    market.add(range(3))
    timed = [feed.stream().withColumn("at", F.timestamp_seconds("at")) for feed in market.feeds]
    given: dict[str, Any] = {"windows": None, "order_by": None, "late": "keep"}
    query.run(market.joined(*timed, within=tm.interval("at", "at"), **given))
    for feed, value in zip(market.feeds, ("bid", "ask"), strict=True):
        late = {"item": pa.array([7], pa.int32()), "at": pa.array([1], pa.int64())}
        feed.add(pa.table({**late, value: pa.array([99], pa.int32())}))
    query.run(market.joined(*timed, within=tm.interval("at", "at"), **given))
    log = spark.read.format("trailmark").option("records", "late").load(str(tmp_path / "log"))
    assert log.columns == ["$side", "item", "at_left", "bid", "at_right", "ask"]
    kept = {(row["$side"], row.item, row.bid, row.ask) for row in log.collect()}
    assert kept == {("left", 7, 99, None), ("right", 7, None, 99)}
    assert sum(rows_of(log).values()) == 2


def test_what_windows_cannot_do_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    market = Market(spark, tmp_path)
    window, none = tm.last_tuples(3), tm.last_tuples(0)
    within = tm.interval("at", "at")
    cases: list[tuple[str, str, dict[str, Any]]] = [
        ("in one bucket; 2 are asked for", "buckets", {"windows": (window, none), "buckets": 2}),
        ("Both within and windows", "within, windows", {"within": within}),
        ("Neither within nor windows", "within, windows", {"windows": None}),
        ("a window for each side", "windows", {"windows": window}),
        ("nobody ever finds", "windows", {"windows": (none, none)}),
        ("no column", "order_by (right)", {"order_by": ("bid", "bid")}),
        ("one order is for both|is int64 on the left", "order_by", {"order_by": ("at", "ask")}),
        ("must be the name of a column that both", "order_by", {"order_by": 3}),
        ("must be 'drop' or 'keep'", "late", {"late": "never"}),
    ]
    for what, where, given in cases:
        with pytest.raises(tm.TrailmarkError, match=what) as refused:
            market.joined(**given)
        assert refused.value.where == where, what
    with pytest.raises(tm.TrailmarkError, match="a whole number of tuples"):
        tm.last_tuples(-1)
    assert not (tmp_path / "log").exists()
