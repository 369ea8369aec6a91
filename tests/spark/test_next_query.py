"""Tentative results of one query in the next, through its log, and in the one after that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from tests.support.spark_runs import wait_until
from trailmark.errors import SettingError
from trailmark.inspection import StatusReader
from trailmark.log import LocalStorage
from trailmark.spark.marks import marks_of
from trailmark.streams.following import following_path, newest_followed
from trailmark.streams.own_writer import OwnWriter

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64()), ("n", pa.int64())])
_NAMES = ("eu", "us", "asia")


def _at(seconds: float) -> datetime:
    return _START + timedelta(seconds=seconds)


def _go_on(writers: dict[str, OwnWriter], names: tuple[str, ...], seconds: range) -> None:
    for item, name in enumerate(names):
        times = pa.array([_at(each) for each in seconds], _SCHEMA.field("at").type)
        items = [item % 2] * len(seconds)
        writers[name].append(pa.table({"at": times, "item": items, "n": list(seconds)}, _SCHEMA))
        writers[name].heartbeat(_at(seconds.stop + 1))


@pytest.fixture
def writers(tmp_path: Path) -> dict[str, OwnWriter]:
    return {
        name: tm.stream_writer(
            tmp_path / name, _SCHEMA, name=name, time_column="at", delay="1 second"
        )
        for name in _NAMES
    }


def _first(tmp_path: Path, where: Path, **given: Any) -> DataFrame:
    streams = {name: tmp_path / name for name in _NAMES}
    rows = tm.union(streams, time="at", path=where / "union", interval="1 second", **given)
    return _counts(rows, "at", 10, "n", where / "a")


def _counts(df: DataFrame, time: str, seconds: int, of: str, path: Path) -> DataFrame:
    return tm.aggregate(
        df,
        by="item",
        window=tm.time_window(time, f"{seconds} seconds"),
        values={"rows": tm.count(), "total": tm.sum(of)},
        path=path,
        buckets=2,
    )


def _read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    asked = {"answers": "all", "reader": "next", **options}
    found = spark.readStream.format("trailmark").options(**asked).load(str(path))
    return found.withColumn("end", F.col("window.end")).drop("window")


def _second(spark: SparkSession, where: Path) -> DataFrame:
    return _counts(_read(spark, where / "a"), "end", 20, "total", where / "b")


def _third(spark: SparkSession, where: Path) -> DataFrame:
    counts = _read(spark, where / "b").drop("rows")
    return tm.join(
        counts,
        counts.withColumnsRenamed({"total": "before", "end": "then"}),
        on="item",
        within=tm.interval("end", "then", before="20 seconds", after="0 seconds"),
        how="left",
        path=where / "c",
        buckets=2,
    )


_CHAIN: dict[str, Callable[[SparkSession, Path], DataFrame]] = {"b": _second, "c": _third}


class _Seen:
    """What a query gave, batch by batch and try by try. The first time that something is tentative,
    the query dies before it has committed."""

    def __init__(self) -> None:
        self.tries: dict[int, list[list[str]]] = defaultdict(list)
        self.died_in: int | None = None

    def keep(self, rows: DataFrame, number: int) -> None:
        found = rows.toArrow().to_pylist()
        self.tries[number].append(sorted(map(repr, found)))
        if self.died_in is None and any(row["tentative"] for row in found):
            self.died_in = number
            raise RuntimeError("it dies")


@contextmanager
def _running(df: DataFrame, where: Path, name: str, seen: _Seen | None = None) -> Iterator[None]:
    writer = df.writeStream.option("checkpointLocation", f"{where}/check-{name}")
    query = (writer.format("noop") if seen is None else writer.foreachBatch(seen.keep)).start()
    try:
        yield
    finally:
        query.stop()


def _to_its_end(df: DataFrame, where: Path, name: str) -> None:
    writer = df.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", f"{where}/check-{name}").start().awaitTermination()


def _results(path: Path, answers: str = "stable") -> Counter[str]:
    if not (path / "meta.json").exists():
        return Counter()
    return Counter(map(repr, tm.read_table(path, answers=answers).to_pylist()))


def _changed(path: Path) -> Counter[str]:
    """What is left of a change feed."""
    found: Counter[str] = Counter()
    for row in tm.read_table(path, change_feed=True).to_pylist():
        change = row.pop("_change_type")
        del row["_commit_version"], row["_commit_timestamp"]
        found[repr(row)] += 1 if change == "insert" else -1
    return +found


def _tentative(path: Path) -> int:
    return sum("'tentative': True" in row for row in _results(path, "all"))


def _stands(path: Path) -> bool:
    return _phase(path) == "STABLE"


def _phase(path: Path) -> str:
    return StatusReader(LocalStorage(path)).read().phase


def test_a_chain_of_queries_answers_without_a_stream_and_is_replaced_when_it_is_back(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """Also when a query in the middle dies: what it had given out, it gives out again."""
    where, twin, seen = tmp_path / "answers", tmp_path / "waits", _Seen()
    _go_on(writers, _NAMES, range(45))
    with ExitStack() as stack:
        first = _first(tmp_path, where, answer_within="1 second")
        stack.enter_context(_running(first, where, "a"))
        wait_until("results of the first", lambda: bool(_results(where / "a")))
        with _running(_second(spark, where), where, "b", seen):
            wait_until("results of the second", lambda: bool(_results(where / "b")))
            stack.enter_context(_running(_third(spark, where), where, "c"))
            _go_on(writers, _NAMES[:2], range(45, 105))
            wait_until("answers of the second", lambda: seen.died_in is not None)
        stack.enter_context(_running(_second(spark, where), where, "b", seen))
        wait_until("answers of the last", lambda: _tentative(where / "c") > 0)
        assert {_phase(where / name) for name in "abc"} == {"UP_FAILURE"}
        _go_on(writers, _NAMES[2:], range(45, 105))
        for name in "abc":
            wait_until(f"all of {name} stands", partial(_stands, where / name))
        _go_on(writers, _NAMES, range(105, 160))
        _to_its_end(_first(tmp_path, twin), twin, "a")
        for name, make in _CHAIN.items():
            _to_its_end(make(spark, twin), twin, name)
        wait_until("the end", lambda: _results(where / "c") == _results(twin / "c"))
    assert seen.died_in is not None
    died, repeated = seen.tries[seen.died_in]
    assert died == repeated
    for name in "abc":
        assert _results(where / name) == _results(twin / name), name
        assert _results(where / name).total() > 4, name
        assert _results(where / name, "current") == _changed(where / name), name
    assert newest_followed(LocalStorage(following_path(str(where / "b"), "next"))).parts == ()


# What is refused


def test_a_reader_without_a_name_or_of_several_queries_is_refused(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    _go_on(writers, _NAMES, range(25))
    _to_its_end(_first(tmp_path, tmp_path, answer_within="1 minute"), tmp_path, "a")
    nameless = spark.readStream.format("trailmark").option("answers", "all")
    rows = nameless.load(str(tmp_path / "a")).withColumn("end", F.col("window.end"))
    with pytest.raises(SettingError, match=r"(?s)without a name.*option reader"):
        _counts(rows.drop("window"), "end", 20, "total", tmp_path / "b")
    one, other = (_read(spark, tmp_path / "a", reader=name) for name in ("one", "other"))
    with pytest.raises(SettingError, match=r"(?s)names only some of these.*tm\.stable"):
        _counts(one.union(other), "end", 20, "total", tmp_path / "b")
    with pytest.raises(SettingError, match="lost on the way"):
        _counts(one.drop("tentative"), "end", 20, "total", tmp_path / "b")
    assert "tentative" not in _counts(tm.stable(one), "end", 20, "total", tmp_path / "b").columns


def test_what_stands_may_be_united_with_what_is_marked(
    spark: SparkSession, tmp_path: Path, writers: dict[str, OwnWriter]
) -> None:
    """Spark keeps what the first DataFrame says of a column."""
    streams = {name: tmp_path / name for name in _NAMES}
    one, two = (
        tm.union(streams, time="at", path=tmp_path / name, answer_within="1 second")
        for name in ("one", "two")
    )
    with pytest.raises(SettingError, match="names only some of these"):
        marks_of(one.union(two))
    assert [each.path for each in marks_of(tm.stable(one).union(tm.stable(two)))] == []
    beside = one.union(tm.stable(two).withColumn("tentative", F.lit(False)))
    assert [each.path for each in marks_of(beside)] == [str(tmp_path / "one")]
