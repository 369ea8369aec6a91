"""A union that answers within a bound, on Spark: what is tentative, what replaces it, and what is
refused."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.errors import SettingError
from trailmark.log import LocalStorage
from trailmark.streams.own_writer import OwnWriter
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decisions import newest_decision

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64()), ("n", pa.int64())])
_NAMES = ("eu", "us", "asia")


def _at(seconds: float) -> datetime:
    return _START + timedelta(seconds=seconds)


def _rows(seconds: range, item: int) -> pa.Table:
    times = pa.array([_at(each) for each in seconds], _SCHEMA.field("at").type)
    return pa.table({"at": times, "item": [item] * len(seconds), "n": list(seconds)}, _SCHEMA)


@pytest.fixture
def writers(tmp_path: Path) -> dict[str, OwnWriter]:
    return {
        name: tm.stream_writer(
            tmp_path / name, _SCHEMA, name=name, time_column="at", delay="1 second"
        )
        for name in _NAMES
    }


def _union(tmp_path: Path, **given: Any) -> DataFrame:
    asked: dict[str, Any] = {"time": "at", "path": tmp_path / "union", "interval": "1 second"}
    return tm.union({name: tmp_path / name for name in _NAMES}, **{**asked, **given})


def _counts(df: DataFrame, tmp_path: Path, name: str = "counts", **given: Any) -> DataFrame:
    return tm.aggregate(
        df,
        by="item",
        window=tm.time_window("at", "10 seconds"),
        values={"rows": tm.count(), "total": tm.sum("n")},
        path=tmp_path / name,
        buckets=2,
        **given,
    )


def _by_end(df: DataFrame, tmp_path: Path, name: str) -> DataFrame:
    """Counts once more, in longer windows, by the ends of the first."""
    counted = _counts(df, tmp_path, f"{name}-first").withColumn("end", F.col("window.end"))
    return tm.aggregate(
        counted.drop("window"),
        by="item",
        window=tm.time_window("end", "20 seconds"),
        values={"windows": tm.count(), "total": tm.sum("total")},
        path=tmp_path / name,
        buckets=2,
    )


def _last_three(df: DataFrame, tmp_path: Path, name: str) -> DataFrame:
    return tm.aggregate(
        df,
        by="item",
        window=tm.count_window(3),
        values={"total": tm.sum("n")},
        order_by=["at", "n"],
        path=tmp_path / name,
        buckets=2,
    )


def _pairs(df: DataFrame, tmp_path: Path, name: str) -> DataFrame:
    eu = df.where("source = 'eu'").select("at", "item", "n", *_mark(df))
    others = df.where("source != 'eu'").select("at", "item", F.col("n").alias("m"), *_mark(df))
    return tm.join(
        eu,
        others,
        on="item",
        within=tm.interval("at", "at", before="2 seconds", after="2 seconds"),
        how="left",
        path=tmp_path / name,
        buckets=2,
    )


def _mark(df: DataFrame) -> list[str]:
    return [name for name in df.columns if name == "tentative"]


_OPERATIONS: dict[str, Callable[[DataFrame, Path, str], DataFrame]] = {
    "time windows": lambda df, path, name: _counts(df, path, name),
    "a chain": _by_end,
    "count windows": _last_three,
    "a join": _pairs,
}


class _Seen:
    """What a query gave, batch by batch: the rows that stand, and the tentative ones."""

    def __init__(self) -> None:
        self.stable: list[str] = []
        self.tentative: list[str] = []

    def keep(self, rows: DataFrame, number: int) -> None:
        for row in rows.toArrow().to_pylist():
            is_tentative = row.pop("tentative", False)
            (self.tentative if is_tentative else self.stable).append(repr(row))


@contextmanager
def _running(df: DataFrame, tmp_path: Path, seen: _Seen) -> Iterator[None]:
    writer = df.writeStream.foreachBatch(seen.keep)
    query = writer.option("checkpointLocation", f"{tmp_path}/check").start()
    try:
        yield
    finally:
        query.stop()


def _to_its_end(df: DataFrame, tmp_path: Path, name: str) -> _Seen:
    seen = _Seen()
    writer = df.writeStream.foreachBatch(seen.keep).trigger(availableNow=True)
    writer.option("checkpointLocation", f"{tmp_path}/{name}").start().awaitTermination()
    return seen


def _phase(tmp_path: Path) -> Phase:
    return newest_decision(LocalStorage(tmp_path / "union")).phase


def _go_on(writers: dict[str, OwnWriter], names: tuple[str, ...], seconds: range) -> None:
    for item, name in enumerate(names):
        writers[name].append(_rows(seconds, item % 2))
        writers[name].heartbeat(_at(seconds.stop + 1))


@pytest.mark.parametrize("what", _OPERATIONS)
def test_a_missing_stream_is_answered_without_and_replaced_when_it_is_back(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter], what: str
) -> None:
    """What stands is in the end what a union gives that waits."""
    operate, seen = _OPERATIONS[what], _Seen()
    _go_on(writers, _NAMES, range(25))
    df = operate(_union(tmp_path, answer_within="1 second"), tmp_path, "answers")
    assert df.schema["tentative"].dataType.simpleString() == "boolean"
    with _running(df, tmp_path, seen):
        wait_until("all that is complete", lambda: len(seen.stable) > 0)
        _go_on(writers, _NAMES[:2], range(25, 65))
        wait_until("answers without asia", lambda: len(seen.tentative) > 0)
        assert _phase(tmp_path) is Phase.UP_FAILURE
        _go_on(writers, _NAMES[:2], range(65, 90))
        _go_on(writers, _NAMES[2:], range(25, 90))
        wait_until("asia is back", lambda: _phase(tmp_path) is Phase.STABLE)
        _go_on(writers, _NAMES, range(90, 120))
        _go_on(writers, _NAMES, range(120, 121))
        wait_until("the end", lambda: _released(tmp_path) == _at(121).timestamp())
    twin = operate(_union(tmp_path, path=tmp_path / "waits"), tmp_path, "twin")
    expected = _to_its_end(twin, tmp_path, "check-twin").stable
    rest = _to_its_end(df, tmp_path, "check")
    assert rest.tentative == []
    assert sorted(seen.stable + rest.stable) == sorted(expected)
    assert not set(seen.tentative) <= set(expected), "some were wrong without asia"


def _released(tmp_path: Path) -> float | None:
    released_us = newest_decision(LocalStorage(tmp_path / "union")).released_us
    return None if released_us is None else released_us / 1e6


def test_nothing_is_tentative_when_a_stream_is_back_in_time(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    seen = _Seen()
    _go_on(writers, _NAMES, range(20))
    df = _counts(_union(tmp_path, answer_within="1 minute"), tmp_path)
    with _running(df, tmp_path, seen):
        _go_on(writers, _NAMES[:2], range(20, 60))
        wait_until("the first", lambda: len(seen.stable) == 4)
        _go_on(writers, _NAMES[2:], range(20, 60))
        wait_until("all", lambda: len(seen.stable) == 12)
    assert seen.tentative == []


def test_nothing_runs_while_nothing_is_due(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """Not while all wait, nor when what is there has been answered without a stream."""
    seen, batches = _Seen(), tmp_path / "check/offsets"
    _go_on(writers, _NAMES, range(20))
    df = _counts(_union(tmp_path, answer_within="4 seconds"), tmp_path)
    with _running(df, tmp_path, seen):
        wait_until("the first windows", lambda: len(seen.stable) == 4)
        before = len(list(batches.iterdir()))
        _go_on(writers, _NAMES[:2], range(20, 45))
        time.sleep(2)
        assert len(list(batches.iterdir())) == before, "the bound is far away"
        wait_until("answers without asia", lambda: len(seen.tentative) == 4)
        assert _until(tmp_path) == _at(45).timestamp()
        time.sleep(1)
        before = len(list(batches.iterdir()))
        time.sleep(2)
        assert len(list(batches.iterdir())) == before, "all is answered"


def _until(tmp_path: Path) -> float | None:
    until_us = newest_decision(LocalStorage(tmp_path / "union")).until_us
    return None if until_us is None else until_us / 1e6


def test_a_run_over_what_is_there_ends_with_the_windows_that_sparks_own_would_have(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """Today's, and not with tomorrow's run."""
    for day in (range(21), range(21, 45)):
        _go_on(writers, _NAMES, day)
        ours = _counts(_union(tmp_path, answer_within="1 second"), tmp_path)
        found = _to_its_end(ours, tmp_path, "check")
        expected = _to_its_end(_counts_of_spark(spark, tmp_path), tmp_path, "check-spark")
        assert found.tentative == []
        assert sorted(found.stable) == sorted(expected.stable) != []


def _counts_of_spark(spark: SparkSession, tmp_path: Path) -> DataFrame:
    stream = spark.readStream.format("trailmark")
    eu, us, asia = (stream.load(str(tmp_path / name)) for name in _NAMES)
    rows = eu.union(us).union(asia).withWatermark("at", "0 seconds")
    counted = rows.groupBy("item", F.window("at", "10 seconds"))
    return counted.agg(F.count("*").alias("rows"), F.sum("n").alias("total"))


def test_a_stream_that_never_returns_is_ended_for_all_who_read_it(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    seen = _Seen()
    _go_on(writers, _NAMES, range(25))
    df = _union(tmp_path, answer_within="500 ms", give_up_after="3 seconds")
    with _running(_counts(df, tmp_path), tmp_path, seen):
        wait_until("the first", lambda: len(seen.stable) > 0)
        _go_on(writers, _NAMES[:2], range(25, 65))
        wait_until("answers without asia", lambda: len(seen.tentative) > 0)
        wait_until("asia is given up", lambda: _released(tmp_path) == _at(65).timestamp())
        assert _phase(tmp_path) is Phase.STABLE
        writers["asia"].append(_rows(range(25, 30), 0))
        _go_on(writers, _NAMES[:2], range(65, 90))
        wait_until("asia is not waited for", lambda: _released(tmp_path) == _at(90).timestamp())
    assert newest_decision(LocalStorage(tmp_path / "union")).late_rows == 5
    twin = _counts(_union(tmp_path, path=tmp_path / "waits"), tmp_path, "twin")
    expected = _to_its_end(twin, tmp_path, "check-twin").stable
    rest = _to_its_end(_counts(df, tmp_path), tmp_path, "check").stable
    assert sorted(seen.stable + rest) == sorted(expected), "another union agrees"


# What is refused


def test_whoever_loses_the_mark_is_refused_unless_only_what_stands_is_taken(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    df = _union(tmp_path, answer_within="1 second")
    for lost in (df.drop("tentative"), df.select("at", "item", "n").where("n > 1")):
        with pytest.raises(SettingError, match="lost on the way") as refused:
            _counts(lost, tmp_path)
        assert "tm.stable" in str(refused.value)
    with pytest.raises(SettingError, match="lost on the way: it is column 'guess' now"):
        _counts(df.withColumnRenamed("tentative", "guess"), tmp_path)
    end, rows = F.col("window.end").alias("at"), F.col("rows").alias("n")
    behind = _counts(df, tmp_path).select("item", end, rows)
    with pytest.raises(SettingError, match="lost on the way"):
        _counts(behind, tmp_path, "second")
    certain = tm.stable(df).where("n > 1").select("at", "item", "n")
    assert certain.columns == ["at", "item", "n"]
    assert "tentative" not in _counts(certain, tmp_path, "certain").columns
    joined = certain.withColumnRenamed("n", "m").join(df.select("item", "n"), "item")
    with pytest.raises(SettingError, match="lost on the way"):
        _counts(joined, tmp_path, "joined")


@pytest.mark.parametrize("given", [None, "logs/counts"])
def test_what_stands_is_taken_of_a_dataframe(given: Any) -> None:
    with pytest.raises(SettingError, match="df must be a DataFrame") as refused:
        tm.stable(given)
    assert "answers='stable'" in refused.value.fix


def test_one_mark_does_not_speak_for_two_unions(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """Spark keeps the metadata of one of two columns that it puts under each other."""
    df = _union(tmp_path, answer_within="1 second")
    other = _union(tmp_path, path=tmp_path / "other", answer_within="1 second")
    others = other.select("item", F.col("n").alias("m"))
    for both in (df.unionByName(other), df.join(others, "item")):
        with pytest.raises(SettingError, match="names only some of these") as refused:
            _counts(both, tmp_path)
        assert "one tm.union" in str(refused.value)
    _counts(df.join(tm.stable(other).select("item", F.col("n").alias("m")), "item"), tmp_path)


def test_marks_of_another_query_are_refused_unless_only_what_stands_is_taken(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """A union that runs elsewhere is at another batch."""
    df = _union(tmp_path, answer_within="1 second")
    _go_on(writers, _NAMES, range(5))
    keep = df.writeStream.format("trailmark").trigger(availableNow=True)
    keep = keep.option("checkpointLocation", f"{tmp_path}/check").option("timeColumn", "at")
    keep.start(str(tmp_path / "kept")).awaitTermination()
    followed = spark.readStream.format("trailmark").load(str(tmp_path / "kept"))
    with pytest.raises(SettingError, match="by a union of another query"):
        _counts(followed, tmp_path)
    assert "tentative" not in _counts(tm.stable(followed), tmp_path).columns
    certain = spark.readStream.format("trailmark").option("answers", "stable")
    _counts(certain.load(str(tmp_path / "kept")), tmp_path)
    for within in (None, "1 second"):
        kept = {"kept": tmp_path / "kept"}
        with pytest.raises(SettingError, match="does not know which of them still stand") as no:
            tm.union(kept, time="at", path=tmp_path / "again", answer_within=within)
        assert "tm.stable" in no.value.fix
    at_rest = spark.read.format("trailmark").load(str(tmp_path / "kept"))
    assert at_rest.count() == tm.stable(at_rest).count() > 0
    assert "tentative" not in tm.stable(at_rest).columns


def test_the_mark_is_no_column_to_compute_with(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    df = _union(tmp_path, answer_within="1 second")
    windows: dict[str, Any] = {
        "window": tm.time_window("at", "1 second"),
        "path": tmp_path / "logs",
    }
    with pytest.raises(SettingError, match="marks rows"):
        tm.aggregate(df, by="tentative", values={"rows": tm.count()}, **windows)
    with pytest.raises(SettingError, match="marks rows"):
        tm.aggregate(df, by="item", values={"tentative": tm.count()}, **windows)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"answer_within": "0 seconds"}, "A bound has a length"),
        ({"answer_within": "soon"}, "answer_within"),
        ({"answer_within": "1 second", "on_failure": "suspend"}, "on_failure must be one of"),
        ({"answer_within": "1 second", "on_correction": "wait"}, "on_correction must be one of"),
        ({"on_failure": "delay"}, "Without answer_within a union waits"),
        ({"give_up_after": "1 hour"}, "Without answer_within a union waits"),
        ({"answer_within": "1 minute", "give_up_after": "1 second"}, "ended before anything"),
    ],
)
def test_wrong_choices_are_refused_by_name(
    spark: SparkSession,
    tmp_path: Path,
    writers: dict[str, OwnWriter],
    given: dict[str, str],
    problem: str,
) -> None:
    with pytest.raises(SettingError, match=problem):
        _union(tmp_path, **given)


def test_a_choice_that_breaks_the_bound_says_so(
    spark: SparkSession,
    tmp_path: Path,
    writers: dict[str, OwnWriter],
    caplog: pytest.LogCaptureFixture,
) -> None:
    _union(tmp_path, answer_within="1 second", on_correction="suspend")
    assert "takes longer than answer_within" in caplog.text
