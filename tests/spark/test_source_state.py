"""The state of an operator as a DataFrame."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.compare import exact
from tests.support.oracle import Oracle, Row
from tests.support.plain import plain_rows
from tests.support.spark_feed import Feed, Query, logged_segments, meta_of
from tests.support.spark_streams import follow, query, write_stream
from tests.support.stated import VALUES
from trailmark.log import LocalStorage, StreamLog
from trailmark.operators.kinds import form_of
from trailmark.records import Stream
from trailmark.recovery import batch_input
from trailmark.streams.operator_state import open_state
from trailmark.windows.spec import Window

_SCHEMA = "item string, n int, x double, at timestamp"
_BUILT_IN = {"total": tm.sum("n"), "spread": tm.stddev("x"), "newest": tm.last("at")}
_WINDOWS: dict[str, Window] = {
    "count": tm.count_window(7, slide=5),
    "time": tm.time_window("at", "10 seconds", slide="5 seconds", delay="3 seconds"),
    "own": tm.count_window(9),
}
_BATCHES = 4


def _orders(batch: int) -> pa.Table:
    rng = np.random.default_rng(batch)
    start = np.datetime64("2024-01-01T00:00:00", "us") + np.timedelta64(8 * batch, "s")
    times = pa.array(start + rng.integers(-5, 10, 80).astype("m8[s]"))
    return pa.table(
        {
            "item": pa.array([f"item {n}" for n in rng.integers(0, 9, 80)]),
            "n": rng.integers(1, 100, 80, dtype=np.int32),
            "x": rng.random(80),
            "at": times.cast(pa.timestamp("us", "UTC")),
        }
    )


def _values(name: str) -> dict[str, Any]:
    return dict(VALUES) if name == "own" else dict(_BUILT_IN)


def _code(name: str) -> dict[str, str]:
    return {"operator": "tests.support.stated:VALUES"} if name == "own" else {}


@pytest.fixture(scope="module")
def root(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three operators over the same orders, all of whose batches Spark has committed."""
    root = tmp_path_factory.mktemp("state")
    feed = Feed(spark, root / "in", _SCHEMA)
    feed.add(*(_orders(batch) for batch in range(_BATCHES)))
    for name, window in _WINDOWS.items():
        df = tm.aggregate(
            feed.stream(),
            by="item",
            window=window,
            values=_values(name),
            path=root / name,
            checkpoint=tm.Continuous(q=20),
            buckets=2,
        )
        Query(root, f"query-{name}").run(df)
    return root


def _newest(path: Path) -> int:
    meta = meta_of(path)
    return StreamLog(LocalStorage(path), Stream.OUTPUT, meta.log_id, 0).newest()


def _expected(path: Path, name: str, batch: int) -> Counter[tuple[Any, ...]]:
    """The open windows of the oracle, given the logged input up to a batch: key, start, state."""
    found: Counter[tuple[Any, ...]] = Counter()
    ports = form_of(meta_of(path)).ports
    for segments in logged_segments(path, Stream.INPUT):
        oracle = Oracle(ports[0].schema, by=["item"], window=_WINDOWS[name], values=_values(name))
        for segment in segments[: batch + 1]:
            given = batch_input(segment, ports)
            rows = plain_rows(given.rows)
            oracle.process(given.batch, rows, given.late_before, given.watermark)
        for ((item,), start), state in oracle.open_windows().items():
            found[item, start, _state(state)] += 1
    return found


def _state(state: Row) -> tuple[Any, ...]:
    return tuple(sorted((name.lstrip("$"), exact(value)) for name, value in state.items()))


def _found(table: pa.Table) -> Counter[tuple[Any, ...]]:
    found: Counter[tuple[Any, ...]] = Counter()
    starts: list[int | None] = [None] * table.num_rows
    if "window" in table.schema.names:
        window = table["window"].combine_chunks()
        starts = window.field("start").view(pa.int64()).to_pylist()
        table = table.drop_columns(["window"])
    rows = table.drop_columns(["batch", "bucket"]).to_pylist()
    for row, of_window in zip(rows, starts, strict=True):
        start = row.pop("start", of_window)
        plain = {k: int(v) if k.endswith((".sum", ".digest")) else v for k, v in row.items()}
        found[plain.pop("item"), start, _state(plain)] += 1
    return found


@pytest.mark.parametrize("name", _WINDOWS)
def test_it_is_that_of_the_oracle_as_of_any_batch(
    spark: SparkSession, root: Path, name: str
) -> None:
    newest = _newest(root / name)
    assert newest >= _BATCHES - 1
    for asked in (None, newest, 1):
        options: dict[str, Any] = {} if asked is None else {"endingBatch": asked}
        df = query(spark, root / name, records="state", **options, **_code(name))
        table = df.toArrow()
        batch = newest if asked is None else asked
        expected = _expected(root / name, name, batch)
        assert set(table["batch"].to_pylist()) <= {batch}
        assert _found(table) == expected
        assert expected or name == "time", "something is open"


def test_each_bucket_is_a_partition(spark: SparkSession, root: Path) -> None:
    df = query(spark, root / "count", records="state")
    assert df.rdd.getNumPartitions() == 2
    parts = df.select("bucket").rdd.glom().collect()
    assert [{row.bucket for row in part} for part in parts] == [{0}, {1}]


def test_its_schema_is_known_without_reading_it(spark: SparkSession, root: Path) -> None:
    found = query(spark, root / "time", records="state").schema.simpleString()
    assert found == (
        "struct<batch:bigint,bucket:int,item:string,"
        "window:struct<start:timestamp,end:timestamp>,opened:bigint,"
        "total.sum:decimal(38,0),total.count:bigint,"
        "spread.count:bigint,spread.mean:double,spread.m2:double,"
        "newest.value:bigint,newest.seen:bigint>"
    )
    own = query(spark, root / "own", records="state", **_code("own")).schema
    # Spark has neither numbers without a sign nor bytes of a fixed width.
    kinds = {field.name: field.dataType.simpleString() for field in own}
    assert kinds["trail.tail"] == "binary"
    assert kinds["trail.length"] == "int"
    assert kinds["trail.digest"] == "decimal(20,0)"
    assert kinds["notes.words"] == "array<string>"
    assert kinds["notes.data"] == "binary"


def test_columns_are_chosen_and_queried(spark: SparkSession, root: Path) -> None:
    whole = query(spark, root / "count", records="state")
    few = query(spark, root / "count", "item string, `total.sum` decimal(38,0)", records="state")
    assert few.columns == ["item", "total.sum"]
    assert sorted(few.collect()) == sorted(whole.select("item", "`total.sum`").collect())
    whole.createOrReplaceTempView("open_windows")
    sums = spark.sql("SELECT sum(`total.count`) AS n FROM open_windows WHERE fill > 3").first()
    rows = open_state(LocalStorage(root / "count")).table().to_pylist()
    assert sums is not None
    assert sums.n == sum(row["total.count"] for row in rows if row["fill"] > 3) > 0


@pytest.mark.parametrize(
    ("options", "what", "where"),
    [
        ({"startingBatch": 1}, "startingBatch does not go with a state", "startingBatch"),
        ({"endingTimestamp": "2026-01-01"}, "does not go with a state", "endingTimestamp"),
        ({"operator": "no_such_module:x"}, "cannot be imported", "operator"),
        ({"operator": "x"}, "names no code", "operator"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(
    spark: SparkSession, root: Path, options: dict[str, Any], what: str, where: str
) -> None:
    with pytest.raises(AnalysisException) as refused:
        query(spark, root / "own", records="state", **{**_code("own"), **options})
    assert what in str(refused.value)
    assert f"where: {where}" in str(refused.value)


def test_functions_of_ones_own_have_to_be_named(spark: SparkSession, root: Path) -> None:
    with pytest.raises(AnalysisException, match=r"(?s)of the user's own.*package.module:name"):
        query(spark, root / "own", records="state")
    with pytest.raises(AnalysisException, match="Only a state is rebuilt with code"):
        query(spark, root / "own", **_code("own"))


def test_a_batch_that_is_not_there_is_refused(spark: SparkSession, root: Path) -> None:
    with pytest.raises((AnalysisException, PythonException), match="it is not committed"):
        query(spark, root / "count", records="state", endingBatch=99).collect()


def test_a_state_cannot_be_followed(spark: SparkSession, root: Path, tmp_path: Path) -> None:
    with pytest.raises(StreamingQueryException, match="cannot be followed"):
        write_stream(
            follow(spark, root / "count", records="state"), tmp_path / "copy", tmp_path / "c"
        )
