"""`tm.union` on Spark: order, restarts, windows that close by the boundary, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_runs import wait_until
from tests.support.spark_versions import needs_spark
from trailmark.errors import SchemaChanged, SettingError, UnsupportedType
from trailmark.log import LocalStorage
from trailmark.log.readers import read_reader
from trailmark.streams.own_writer import OwnWriter
from trailmark.streams.union.decisions import newest_decision

pytestmark = needs_spark("4.2", "tm.union")

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])


def _at(seconds: float) -> datetime:
    return _START + timedelta(seconds=seconds)


def _writer(path: Path, schema: pa.Schema = _SCHEMA, **given: Any) -> OwnWriter:
    asked = {"name": path.name, "time_column": "at", "delay": "1 second", **given}
    return tm.stream_writer(path, schema, **asked)


def _rows(seconds: list[float], item: int = 0) -> pa.Table:
    times = pa.array([_at(each) for each in seconds], _SCHEMA.field("at").type)
    return pa.table({"at": times, "item": [item] * len(seconds)}, schema=_SCHEMA)


@pytest.fixture
def writers(tmp_path: Path) -> dict[str, OwnWriter]:
    """Of three streams, none of which has any rows."""
    return {name: _writer(tmp_path / name) for name in ("eu", "us", "asia")}


def _union(tmp_path: Path, **given: Any) -> DataFrame:
    streams = {name: tmp_path / name for name in ("eu", "us", "asia")}
    return tm.union(streams, **{"time": "at", "path": tmp_path / "union", **given})


#: Of each row in seconds since the start, which stream it is of, and the item.
Seen = list[tuple[float, str, int]]


def _start(df: DataFrame, tmp_path: Path, seen: list[Seen], **trigger: Any) -> StreamingQuery:
    def keep(rows: DataFrame, number: int) -> None:
        found = [
            ((each["at"] - _START).total_seconds(), each["source"], each["item"])
            for each in rows.toArrow().to_pylist()
        ]
        if found:
            seen.append(found)

    writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", f"{tmp_path}/check")
    return writer.trigger(**(trigger or {"processingTime": "20 milliseconds"})).start()


@contextmanager
def _running(df: DataFrame, tmp_path: Path, seen: list[Seen]) -> Iterator[StreamingQuery]:
    query = _start(df, tmp_path, seen)
    try:
        yield query
    finally:
        query.stop()


def _all(seen: list[Seen]) -> Seen:
    return [row for batch in seen for row in batch]


def _pairs(seen: list[Seen]) -> list[tuple[float, str]]:
    return [row[:2] for row in _all(seen)]


def _released(path: Path) -> float | None:
    released_us = newest_decision(LocalStorage(path)).released_us
    if released_us is None:
        return None
    return released_us / 1e6 - _START.timestamp()


def test_rows_come_in_order_when_all_are_complete_also_after_restarts(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    seen: list[Seen] = []
    writers["eu"].append(_rows([1, 3, 5, 12]))
    writers["us"].append(_rows([2, 4, 3, 30]))
    df = _union(tmp_path, reader="me")
    assert [field.simpleString() for field in df.schema] == [
        "at:timestamp",
        "item:bigint",
        "source:string",
    ]
    _start(df, tmp_path, seen, availableNow=True).awaitTermination()
    assert seen == [], "nothing is known of asia"
    writers["asia"].append(_rows([3, 11]))
    _start(df, tmp_path, seen, availableNow=True).awaitTermination()
    first = [(1, "eu"), (2, "us"), (3, "eu"), (3, "us"), (3, "asia"), (4, "us"), (5, "eu")]
    assert _pairs(seen) == first
    with _running(df, tmp_path, seen):
        writers["eu"].append(_rows([14, 12]))
        writers["asia"].heartbeat(_at(40))
        wait_until("eu holds all others", lambda: _released(tmp_path / "union") == 13.0)
        writers["eu"].heartbeat(_at(40))
        wait_until("up to where us is", lambda: _released(tmp_path / "union") == 29.0)
        wait_until("all rows", lambda: len(_all(seen)) == len(first) + 4)
    assert _pairs(seen)[len(first) :] == [(11, "asia"), (12, "eu"), (12, "eu"), (14, "eu")]
    # Batch 0 of us holds the row of second 30, which has not been released.
    assert _needs(tmp_path / "us") == 0
    _start(df, tmp_path, seen, availableNow=True).awaitTermination()
    assert _needs(tmp_path / "eu") == 2


def _needs(path: Path) -> int | None:
    found = read_reader(LocalStorage(path), "me")
    return None if found is None else found.needs


def test_windows_behind_a_union_close_by_its_boundary_though_no_row_comes(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """Without it they would wait for a row that is later by the delay of the window, and that is
    held back as long as any stream is behind."""
    for each in writers.values():
        each.append(_rows([1, 9, 11], item=7))
    found: list[tuple[int, int]] = []

    def keep(rows: DataFrame, number: int) -> None:
        found.extend((row["item"], row["n"]) for row in rows.collect())

    window = tm.time_window("at", "10 seconds", delay="1 hour")
    rows = _union(tmp_path).where("item > 0").select("item", F.col("at").alias("at"))
    counts = tm.aggregate(
        rows,
        by="item",
        window=window,
        values={"n": tm.count()},
        path=tmp_path / "counts",
        buckets=1,
    )
    query = (
        counts.writeStream.foreachBatch(keep)
        .option("checkpointLocation", f"{tmp_path}/check")
        .trigger(processingTime="20 milliseconds")
        .start()
    )
    try:
        wait_until("the first window", lambda: found == [(7, 6)])
        for each in writers.values():
            each.heartbeat(_at(21))
        wait_until("the second one", lambda: found == [(7, 6), (7, 3)])
    finally:
        query.stop()


class _Counts:
    """A keyed operator: how many rows a key has had."""

    state: ClassVar[Any] = {"n": pa.int64()}

    def process(self, keys: Any, rows: pa.RecordBatch, state: Any) -> pa.Table:
        state["n"] += keys.counts()
        return keys.table(n=state["n"])


def _are_counted(seen: dict[str, list[Any]], rows: int) -> bool:
    return all(len(each) == rows for each in seen.values())


def test_rows_at_the_boundary_itself_are_in_time_for_every_operator(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """Slices end at whole seconds, and so do the times of rows: those of keyed operators and of
    joins are late at the watermark, which therefore is before the boundary."""
    seen: dict[str, list[Any]] = {"counts": [], "pairs": []}

    def kept(name: str) -> Callable[[DataFrame, int], None]:
        return lambda rows, _: seen[name].extend(tuple(each) for each in rows.collect())

    rows = _union(tmp_path)
    counts = tm.apply(
        rows,
        _Counts,
        by="item",
        schema="item long, n long",
        time="at",
        path=tmp_path / "counts",
        buckets=1,
    )
    other = _union(tmp_path, path=tmp_path / "union-2").withColumnRenamed("at", "other_at")
    pairs = tm.join(
        _union(tmp_path, path=tmp_path / "union-3"),
        other,
        on="item",
        within=tm.interval("at", "other_at", before="0 seconds", after="0 seconds"),
        path=tmp_path / "pairs",
        buckets=1,
    )
    queries = [
        each.writeStream.foreachBatch(kept(name))
        .option("checkpointLocation", f"{tmp_path}/check-{name}")
        .trigger(processingTime="20 milliseconds")
        .start()
        for name, each in (("counts", counts), ("pairs", pairs))
    ]
    try:
        for second in range(1, 6):
            for place, each in enumerate(writers.values()):
                each.append(_rows([second], item=place))
                each.heartbeat(_at(second + 1))
            # Those of this second are at the boundary. Each second is to be a batch of its own.
            before = partial(_are_counted, seen, 3 * (second - 1))
            wait_until(f"all rows before second {second}", before)
    finally:
        for query in queries:
            query.stop()
    assert sorted(seen["counts"]) == [(item, n) for item in range(3) for n in range(1, 5)]


def test_where_other_rows_are_added_the_boundary_does_not_count(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """A row of another stream is behind the union, but not late."""
    other = _writer(tmp_path / "other")
    for each in writers.values():
        each.append(_rows([1, 31], item=7))
    other.append(_rows([2], item=7))
    follow = spark.readStream.format("trailmark").load(str(tmp_path / "other"))
    rows = _union(tmp_path).drop("source").union(follow)
    found: list[int] = []

    def keep(rows: DataFrame, number: int) -> None:
        found.extend(row["n"] for row in rows.collect())

    counts = tm.aggregate(
        rows,
        by="item",
        window=tm.time_window("at", "10 seconds", delay="60 seconds"),
        values={"n": tm.count()},
        path=tmp_path / "counts",
        buckets=1,
    )
    writer = counts.writeStream.foreachBatch(keep)
    query = writer.option("checkpointLocation", f"{tmp_path}/check").start()
    try:
        for later in (3, 1000):
            query.processAllAvailable()
            assert _released(tmp_path / "union") == 30.0
            assert found == []
            other.append(_rows([later], item=7))
        wait_until("the window", lambda: bool(found))
    finally:
        query.stop()
    assert found == [5], "three of the union and two of the other stream"


def test_streams_in_any_batches_give_one_order(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(5)
    writers = {n: _writer(tmp_path / n, delay="30 seconds") for n in ("eu", "us", "asia")}
    expected: list[tuple[float, int, int]] = []
    number = 0
    seen: list[Seen] = []
    for turn in range(5):
        for place, writer in enumerate(writers.values()):
            for _ in range(rng.randint(0, 3)):
                # Many rows have the same time, and none is late.
                seconds = [10 * turn + rng.randint(0, 19) / 2 for _ in range(40)]
                parts = [_rows([each], number + n) for n, each in enumerate(seconds)]
                writer.append(pa.concat_tables(parts))
                expected += [(each, place, number + n) for n, each in enumerate(seconds)]
                number += len(seconds)
            writer.heartbeat(_at(10 * turn + 10 + 30))
        df = _union(tmp_path, max_rows_per_trigger=rng.choice([50, 100, None]))
        _start(df, tmp_path, seen, availableNow=True).awaitTermination()
    assert _released(tmp_path / "union") == 50.0
    names = list(writers)
    assert _all(seen) == [(at, names[place], item) for at, place, item in sorted(expected)]
    assert len(expected) > 400
    assert newest_decision(LocalStorage(tmp_path / "union")).late_rows == 0


# What is refused


def test_what_cannot_be_a_union_is_refused_with_a_reason(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    eu, us = tmp_path / "eu", tmp_path / "us"
    path = tmp_path / "union"

    def refused(match: str, error: type[Exception] = SettingError, **given: Any) -> None:
        asked = {"inputs": {"eu": eu, "us": us}, "time": "at", "path": path, **given}
        with pytest.raises(error, match=match):
            tm.union(asked.pop("inputs"), **asked)

    refused("must be a dictionary", inputs=[eu, us])
    refused("1 to 32 inputs, not 0", inputs={})
    refused("'' cannot be the name", inputs={"": eu})
    refused("There is no stream at", inputs={"eu": eu, "mars": tmp_path / "mars"})
    refused("not 'time', but 'at'", time="time")
    refused("A slice has a length", interval="0 seconds")
    refused("idle before it can be complete for a slice", idle_after="100 ms")
    refused("max_rows_per_trigger must be a number", max_rows_per_trigger=0)
    refused("is a stream that the union reads", path=eu)
    refused("cannot be the name of a reader|name", reader="a/b")
    schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.string())])
    _writer(tmp_path / "texts", schema)
    refused(
        "Column 'item' is bigint in 'eu' and string in 'texts'",
        UnsupportedType,
        inputs={"eu": eu, "texts": tmp_path / "texts"},
    )
    _writer(tmp_path / "timeless", _SCHEMA, time_column=None, delay=None)
    refused("not 'at', but none", inputs={"eu": eu, "timeless": tmp_path / "timeless"})
    sourced = pa.schema([*_SCHEMA, ("source", pa.string())])
    _writer(tmp_path / "sourced", sourced)
    refused("have a column 'source'", inputs={"sourced": tmp_path / "sourced"})
    stream = spark.readStream.format("trailmark")
    refused("does not just read", inputs={"eu": stream.load(str(eu)).where("item > 1")})
    refused(
        "with options \\(startingOffsets\\)",
        inputs={"eu": stream.option("startingOffsets", "latest").load(str(eu))},
    )
    refused("does not just read", inputs={"eu": spark.readStream.format("rate").load()})


def test_a_union_in_two_places_of_a_query_is_one_source_or_refused(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    for each in writers.values():
        each.append(_rows([1, 2, 11]))
    one = _union(tmp_path)
    seen: list[Seen] = []
    both = one.where("source = 'eu'").union(one.where("source = 'us'"))
    _start(both, tmp_path, seen, availableNow=True).awaitTermination()
    assert sorted(_pairs(seen)) == [(1, "eu"), (1, "us"), (2, "eu"), (2, "us")]
    # Two sources, of which each would decide for itself.
    one, again = (_union(tmp_path, path=tmp_path / "union-2") for _ in range(2))
    both = one.where("source = 'eu'").union(again.where("source = 'us'"))
    query = _start(both, tmp_path / "other", seen, availableNow=True)
    with pytest.raises(StreamingQueryException, match="needs two of them with two paths"):
        query.awaitTermination()
    assert len(_all(seen)) == 4


def test_the_columns_are_those_that_all_streams_have(spark: SparkSession, tmp_path: Path) -> None:
    more = pa.schema([("extra", pa.int32()), *_SCHEMA])
    _writer(tmp_path / "eu")
    _writer(tmp_path / "us", more)
    follow = spark.readStream.format("trailmark").load(str(tmp_path / "us"))
    df = tm.union({"us": follow, "eu": tmp_path / "eu"}, time="at", path=tmp_path / "union")
    assert df.columns == ["at", "item", "source"]


def test_a_union_stays_what_it_was_and_belongs_to_one_query(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    for each in writers.values():
        each.append(_rows([1, 11]))
    seen: list[Seen] = []
    _start(_union(tmp_path), tmp_path, seen, availableNow=True).awaitTermination()
    for each in writers.values():
        each.append(_rows([21]))
    _start(_union(tmp_path), tmp_path, seen, availableNow=True).awaitTermination()
    with pytest.raises(SchemaChanged, match=r"operator\.interval_us: 500000 -> 1000000"):
        _union(tmp_path, interval="1 second")
    other = _start(_union(tmp_path), tmp_path / "other", seen, availableNow=True)
    with pytest.raises(StreamingQueryException, match="Give each query that runs a union a path"):
        other.awaitTermination()
