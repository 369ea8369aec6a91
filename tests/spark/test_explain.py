"""`tm.explain` finds the operators of a query again, whatever Spark has made of its plan."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.harm import segment_path
from tests.support.spark_feed import Feed, Query
from tests.support.spark_streams import add, follow, query
from trailmark.errors import SettingError
from trailmark.records import Stream
from trailmark.spark import operate

_GIVEN: dict[str, Any] = {
    "by": "item",
    "window": tm.count_window(4),
    "values": {"price": tm.sum("price")},
    "buckets": 2,
}
_NOTE = (
    "note      without order_by, tuples of a batch have no certain order: windows may come out "
    "differently when the query starts anew"
)
_RECOVERY = re.compile(r"would take about \d.*? \((.*)\)$")


def _orders(rows: int = 30) -> pa.Table:
    return pa.table(
        {
            "item": pa.array([n % 7 for n in range(rows)], pa.int32()),
            "price": pa.array(range(rows), pa.int64()),
            "time": pa.array([n * 1_000_000 for n in range(rows)], pa.timestamp("us", "UTC")),
        }
    )


@pytest.fixture
def feed(spark: SparkSession, tmp_path: Path) -> Feed:
    feed = Feed(spark, tmp_path / "in", "item int, price bigint, time timestamp")
    feed.add(_orders())
    return feed


def _lines(df: DataFrame) -> list[str]:
    header, *lines = str(tm.explanation(df)).splitlines()
    assert header == "== Trailmark Operators =="
    return lines


def test_an_operator_is_told_before_its_query_ran_and_after(
    feed: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tm.aggregate(
        feed.stream(), path=tmp_path / "log", recover_within="2 seconds", **_GIVEN
    )
    before = [
        "aggregate by item, windows of 4 tuples",
        ":    policy    continuous (objective 2 s): recovers within 2 seconds",
        f":    path      {tmp_path}/log, 2 buckets",
        ":    logs      no batch yet",
        f":    {_NOTE}",
        f"+- parquet: {tmp_path}/in",
    ]
    assert _lines(result) == before
    assert not (tmp_path / "log").exists(), "nothing is made"
    Query(tmp_path).run(result)
    after = _lines(result)
    assert after[:3] == before[:3]
    assert after[3] == ":    logs      batch 0, 2 pieces of state open"
    found = _RECOVERY.search(after[4])
    assert found is not None
    assert found[1] == "objective 2 s"
    assert after[5:] == before[4:]
    capsys.readouterr()
    assert tm.explain(result) is None  # type: ignore[func-returns-value]
    assert capsys.readouterr().out.splitlines()[1:] == after


def test_logs_are_found_from_a_new_session_and_a_new_dataframe(feed: Feed, tmp_path: Path) -> None:
    first = tm.aggregate(feed.stream(), path=tmp_path / "log", order_by="price", **_GIVEN)
    Query(tmp_path).run(first)
    session = feed.spark.newSession()
    stream = Feed(session, feed.directory, feed.schema).stream()
    again = tm.aggregate(
        stream, path=tmp_path / "log", order_by="price", checkpoint=tm.NoCheckpoint(), **_GIVEN
    )
    (operator,) = tm.explanation(again).operators
    assert operator.logs is not None
    assert operator.logs.batch == 0
    assert operator.logs.other_policy == "continuous (objective 5 s)"
    assert operator.objective_us is None
    assert (operator.caution, operator.warnings) == ("", ())
    assert "ordered by price" in _lines(again)[0]


@pytest.mark.parametrize("has_several_hosts", [False, True])
def test_a_chain_has_each_operator_with_its_own_policy(
    feed: Feed, tmp_path: Path, has_several_hosts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operate, "has_several_hosts", lambda session: has_several_hosts)
    timed = tm.time_window("time", "10 seconds")
    first = tm.aggregate(
        feed.stream(), path=tmp_path / "first", **{**_GIVEN, "window": timed, "buckets": 3}
    )
    between = first.where("price > 3").withColumnRenamed("item", "other")
    second = tm.aggregate(
        between.selectExpr("other item", "price"),
        path=tmp_path / "second",
        checkpoint=tm.Periodic(5),
        **_GIVEN,
    )
    assert _lines(second.select("price").where("price > 7")) == [
        "aggregate by item, windows of 4 tuples",
        ":    policy    full snapshot (every 5 batches): loads the last snapshot and replays at "
        "most 5 batches",
        f":    path      {tmp_path}/second, 2 buckets",
        ":    logs      no batch yet",
        f":    {_NOTE}",
        "+- aggregate by item, windows of 10 seconds of time",
        "   :    policy    continuous (objective 5 s): recovers within 5 seconds",
        f"   :    path      {tmp_path}/first, 3 buckets",
        "   :    logs      no batch yet",
        f"   +- parquet: {tmp_path}/in",
    ]


def test_unions_joins_and_views_lead_to_the_same_operators(feed: Feed, tmp_path: Path) -> None:
    spark = feed.spark
    left, right = (
        tm.aggregate(feed.stream(), path=tmp_path / name, **_GIVEN) for name in ("left", "right")
    )
    names = spark.createDataFrame([(1, "one")], "item int, name string")
    united = left.union(right).alias("both").join(names, "item").selectExpr("item as renamed")
    united.createOrReplaceTempView("united_operators")
    try:
        text = "WITH x AS (SELECT * FROM united_operators) SELECT a.renamed FROM x a, x b"
        joined = spark.sql(text)
    finally:
        spark.catalog.dropTempView("united_operators")
    titles = [line for line in _lines(united) if "- " in line or line.startswith("Spark")]
    assert titles == [
        "Spark: Join",
        ":- Spark: Union",
        ":  :- aggregate by item, windows of 4 tuples",
        f":  :  +- parquet: {tmp_path}/in",
        ":  +- aggregate by item, windows of 4 tuples",
        f":     +- parquet: {tmp_path}/in",
        "+- Spark: LogicalRDD",
    ]
    paths = [operator.path for operator in tm.explanation(united).operators]
    assert paths == [f"{tmp_path}/left", f"{tmp_path}/right"]
    assert [operator.path for operator in tm.explanation(joined).operators] == paths * 2
    assert _lines(joined)[0] == "Spark: Join, with state in Spark's own checkpoint"


def test_a_union_that_is_read_is_not_taken_for_the_operators_own(
    feed: Feed, tmp_path: Path
) -> None:
    rates = feed.spark.readStream.format("rate").load()
    other = rates.selectExpr("cast(value as int) item", "value price", "timestamp time")
    result = tm.aggregate(
        feed.stream().union(other),
        path=tmp_path / "log",
        **{**_GIVEN, "window": tm.time_window("time", "1 minute")},
    )
    assert _lines(result)[-3:] == [
        "+- Spark: Union",
        f"   :- parquet: {tmp_path}/in",
        "   +- rate",
    ]


def test_what_keeps_state_in_spark_is_told_as_sparks(feed: Feed, tmp_path: Path) -> None:
    window = F.window("time", "10 seconds")
    counted = (
        feed.stream().withWatermark("time", "1 minute").groupBy(window, "item").agg(F.sum("price"))
    )
    rows = counted.selectExpr("item", "`sum(price)` price").dropDuplicates(["item"])
    result = tm.aggregate(rows, path=tmp_path / "log", **_GIVEN)
    assert _lines(result)[-3:] == [
        "+- Spark: Deduplicate, with state in Spark's own checkpoint",
        "   +- Spark: Aggregate, with state in Spark's own checkpoint",
        f"      +- parquet: {tmp_path}/in",
    ]
    assert _lines(counted) == [
        "There are none in this plan.",
        "Spark: Aggregate, with state in Spark's own checkpoint",
        f"+- parquet: {tmp_path}/in",
    ]


def test_a_dataframe_that_does_not_stream_has_no_logs(feed: Feed, tmp_path: Path) -> None:
    table = feed.spark.read.parquet(str(feed.directory))
    grouped = table.groupBy("item").agg(F.max("price").alias("price"))
    result = tm.aggregate(grouped, path=tmp_path / "log", **_GIVEN)
    assert _lines(result.groupBy("item").count()) == [
        "aggregate by item, windows of 4 tuples",
        ":    runs      as one batch, in memory, in 2 buckets",
        f":    {_NOTE}",
        f"+- Parquet: file:{feed.directory}",
    ]
    (operator,) = tm.explanation(result).operators
    assert (operator.path, operator.logs) == (None, None)


def test_streams_of_trailmark_are_told_with_their_options(feed: Feed, tmp_path: Path) -> None:
    spark = feed.spark
    add(spark.read.parquet(str(feed.directory)), tmp_path / "stream")
    stream = follow(spark, tmp_path / "stream", startingBatch=0, reader="me")
    result = tm.aggregate(stream, path=tmp_path / "log", **_GIVEN)
    assert (
        _lines(result)[-1] == f"+- Trailmark stream: {tmp_path}/stream, reader me, startingBatch 0"
    )
    table = query(spark, tmp_path / "stream", endingBatch=3)
    assert _lines(table) == [
        "There are none in this plan.",
        f"Trailmark stream: {tmp_path}/stream, endingBatch 3",
    ]


def test_an_objective_out_of_reach_is_a_warning(feed: Feed, tmp_path: Path) -> None:
    result = tm.aggregate(feed.stream(), path=tmp_path / "log", recover_within="1 us", **_GIVEN)
    Query(tmp_path).run(result)
    (operator,) = tm.explanation(result).operators
    assert [warning.partition(":")[0] for warning in operator.warnings] == ["bucket 0", "bucket 1"]
    assert all(re.search("objective|target", warning) for warning in operator.warnings)


def test_logs_that_are_damaged_are_a_warning_and_no_failure(feed: Feed, tmp_path: Path) -> None:
    result = tm.aggregate(feed.stream(), path=tmp_path / "log", **_GIVEN)
    Query(tmp_path).run(result)
    newest = tmp_path / "log" / segment_path(Stream.OUTPUT, 0, bucket=1)
    newest.write_bytes(newest.read_bytes()[:40])
    (operator,) = tm.explanation(result).operators
    assert len(operator.warnings) == 1
    assert operator.warnings[0].startswith("bucket 1: ")
    (tmp_path / "log" / "meta.json").write_text("{")
    (operator,) = tm.explanation(result).operators
    assert operator.trouble.startswith("the logs cannot be read: ")
    shutil.rmtree(tmp_path / "log")
    assert ":    logs      no batch yet" in _lines(result)


def test_what_is_no_dataframe_is_refused() -> None:
    with pytest.raises(SettingError, match="must be a DataFrame, got list"):
        tm.explain([])  # type: ignore[arg-type]
