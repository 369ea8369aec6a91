"""Persistent streams in queries that do not stream: adding to them, and reading parts of them."""

from __future__ import annotations

import random
import threading
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from tests.support.seeds import seeds
from tests.support.spark_feed import Feed
from tests.support.spark_streams import (
    add,
    data_files,
    manifests,
    numbered,
    numbers,
    query,
    write_stream,
)

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def test_rows_are_added_and_nothing_else_is_done_to_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "stream"
    rows = spark.range(10)
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        rows.write.format("trailmark").save(str(path))
    assert not path.exists(), "Spark's default mode is another one"
    add(rows, path)
    add(spark.range(0), path)
    add(spark.range(10, 20), path)
    for mode in ("overwrite", "ignore", "error"):
        with pytest.raises(AnalysisException) as refused:
            rows.write.format("trailmark").mode(mode).save(str(path))
        if mode == "overwrite":
            assert "A stream cannot be overwritten, only added to." in str(refused.value)
            assert "where: mode" in str(refused.value)
            assert "next:  Use append mode" in str(refused.value)
    assert numbers(query(spark, path)) == list(range(20))
    assert [manifest.rows for manifest in manifests(path)] == [10, 10], "one without rows is none"


def test_a_stream_without_batches_can_be_read(spark: SparkSession, tmp_path: Path) -> None:
    add(spark.range(0), tmp_path / "stream")
    assert numbers(query(spark, tmp_path / "stream")) == []
    assert query(spark, tmp_path / "stream").columns == ["id"]


def test_two_jobs_and_a_query_write_to_one_stream_at_the_same_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "stream"
    feed = Feed(spark, tmp_path / "in", "id long, text string")
    feed.add(*(numbered(10 * n, 10 * n + 10) for n in range(5)))
    failures: list[BaseException] = []

    def write(first: int) -> None:
        try:
            for n in range(first, first + 5):
                # Unlike range(), this makes the session known to the thread, and so its formats.
                add(spark.createDataFrame(numbered(10 * n, 10 * n + 10)), path)
        except BaseException as error:
            failures.append(error)
            raise

    jobs = [threading.Thread(target=write, args=(first,)) for first in (100, 200)]
    for job in jobs:
        job.start()
    write_stream(feed.stream(), path, tmp_path / "checkpoint")
    for job in jobs:
        job.join()
    assert not failures
    expected = [*range(50), *range(1000, 1050), *range(2000, 2050)]
    assert numbers(query(spark, path)) == expected
    found = manifests(path)
    assert [manifest.batch for manifest in found] == list(range(15))
    assert found[-1].total_rows == 150
    assert len({frozenset(manifest.writers.items()) for manifest in found}) >= 5


@pytest.fixture(scope="module")
def spread(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five batches of twenty rows, a second apart each, in four buckets by key."""
    path = tmp_path_factory.mktemp("batch") / "spread"
    for batch in range(5):
        rows = spark.range(20 * batch, 20 * batch + 20, numPartitions=1).selectExpr(
            "id",
            "cast(id % 10 as int) as key",
            "concat('k', id % 10) as name",
            "if(id % 20 = 19, null, timestamp_seconds(id)) as time",
        )
        options = {"partitionBy": "key,name", "buckets": 4, "timeColumn": "time"}
        add(rows, path, **(options if batch == 0 else {}))
    return path


def test_rows_with_one_key_are_in_one_bucket(spark: SparkSession, spread: Path) -> None:
    files = data_files(spread)
    assert {file.bucket for file in files} == {0, 1, 2, 3}
    assert sum(file.rows for file in files) == 100
    keys: dict[int, set[int]] = {}
    for partition, key in (
        query(spark, spread).selectExpr("spark_partition_id() as p", "key").distinct().collect()
    ):
        keys.setdefault(partition, set()).add(key)
    assert len(keys) == 4
    assert sorted(key for found in keys.values() for key in found) == list(range(10))
    # Within a bucket, rows are in the order they were written.
    for rows in query(spark, spread).select("id").rdd.glom().collect():
        assert [row.id for row in rows] == sorted(row.id for row in rows)


def test_what_a_stream_was_begun_with_stays(spark: SparkSession, spread: Path) -> None:
    rows = query(spark, spread)
    for options in ({"buckets": 5}, {"partitionBy": "key"}, {"timeColumn": "no_such"}):
        with pytest.raises(AnalysisException, match=r"(?s)where: .*next: "):
            add(rows, spread, **options)
    assert len(manifests(spread)) == 5


def test_spark_itself_refuses_its_own_partitioning(spark: SparkSession, tmp_path: Path) -> None:
    writer = spark.range(3).write.format("trailmark").mode("append").partitionBy("id")
    with pytest.raises(IllegalArgumentException, match="identity"):
        writer.save(str(tmp_path / "stream"))


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [(1, 3, range(20, 80)), (2, 2, range(40, 60)), (3, None, range(60, 100)), (9, None, [])],
)
def test_ranges_of_batches_include_both_ends(
    spark: SparkSession, spread: Path, first: int, last: int | None, expected: range
) -> None:
    options: dict[str, Any] = {"startingBatch": first}
    if last is not None:
        options["ENDINGBATCH"] = last
    assert numbers(query(spark, spread, **options)) == list(expected)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("1970-01-01 00:00:10", "1970-01-01 00:00:50", range(10, 51)),
        ("1970-01-01T13:45:20+13:45", "1970-01-01T00:00:20Z", range(20, 21)),
        ("1970-01-01 00:00:95", None, None),
        ("1970-01-01 00:01:35.000001", None, range(96, 100)),
        (None, "1970-01-01 00:00:00", range(1)),
        ("2000-01-01", None, []),
    ],
)
def test_ranges_of_times_include_both_ends_and_no_row_without_a_time(
    spark: SparkSession, spread: Path, first: str | None, last: str | None, expected: range | None
) -> None:
    given = {"startingTimestamp": first, "endingTimestamp": last}
    options = {name: value for name, value in given.items() if value is not None}
    if expected is None:
        with pytest.raises(AnalysisException, match=r"(?s)is not a time.*startingTimestamp.*next:"):
            query(spark, spread, **options)
        return
    timeless = {19, 39, 59, 79, 99}
    assert numbers(query(spark, spread, **options)) == sorted({*expected} - timeless)
    assert numbers(query(spark, spread, "id long", **options)) == sorted({*expected} - timeless)


# Filters


#: Values by column, as SQL; they are compared with one another.
_POOLS = {
    "flag": ["true", "false"],
    "small": ["-7Y", "0Y", "7Y"],
    "number": ["-3", "0", "1", "2147483647"],
    "large": ["-9223372036854775808L", "5L", "9223372036854775807L"],
    "real": ["double('NaN')", "-0.0D", "0.0D", "1.5D", "double('-Infinity')"],
    "short": ["float('NaN')", "float('0.1')", "float('-2')"],
    "price": ["-1.50BD", "0.00BD", "1.00BD", "1.01BD"],
    "text": ["''", "'a'", "'A'", "'ab'", "'ä'", "'𐍈'", "'\ufffd'"],
    "bytes": ["X''", "X'00'", "X'FF'"],
    "day": ["date'1969-12-31'", "date'2024-02-29'", "date'9999-12-31'"],
    "time": ["timestamp'1969-12-31 23:59:59.999999'", "timestamp'2024-04-07 03:00:00'"],
    "local": ["timestamp_ntz'1900-01-01 00:00:00'", "timestamp_ntz'2024-04-07 03:00:00'"],
}


def _filter(rng: random.Random) -> str:
    shape = rng.random()
    if shape < 0.25:
        return f"({_filter(rng)} {rng.choice(['and', 'and', 'or'])} {_filter(rng)})"
    if shape < 0.33:
        return f"not {_filter(rng)}"
    column = rng.choice(list(_POOLS))
    pool = _POOLS[column]
    kind = rng.random()
    if kind < 0.1:
        return f"({column} is {rng.choice(['', 'not '])}null)"
    if kind < 0.3:
        some = [*rng.sample(pool, 2), *(["null"] if rng.random() < 0.2 else [])]
        return f"({column} {rng.choice(['', 'not '])}in ({', '.join(some)}))"
    if kind < 0.4:
        match = rng.choice(["like 'a%'", "like '%b'", "like '%a%'", "= 'a' || ''"])
        return f"(text {match})"
    sign = rng.choice(["=", "=", "<", "<=", ">", ">=", "<>", "<=>"])
    return f"({column} {sign} {rng.choice(pool)})"


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("pushes", ["true", "false"])
def test_filters_give_the_same_rows_whether_spark_pushes_them_down_or_not(
    spark: SparkSession, tmp_path: Path, pushes: str, seed: int
) -> None:
    rng = random.Random(seed)
    given = [
        [rng.choice(pool) if rng.random() < 0.85 else "null" for pool in _POOLS.values()]
        for _ in range(120)
    ]
    values = ", ".join(f"({n}L, {', '.join(row)})" for n, row in enumerate(given))
    rows = spark.sql(f"select * from values {values} as rows(id, {', '.join(_POOLS)})")
    add(rows, tmp_path / "stream", partitionBy="number,text", buckets=3, timeColumn="time")
    filters = [_filter(rng) for _ in range(16)]

    def matches(source: DataFrame) -> dict[int, list[int]]:
        """All of them over one DataFrame in one query."""
        found: dict[int, list[int]] = {n: [] for n in range(len(filters))}
        tagged = [source.where(f).selectExpr("id", f"{n} n") for n, f in enumerate(filters)]
        for row in reduce(DataFrame.union, tagged).collect():
            found[row.n].append(row.id)
        return {n: sorted(ids) for n, ids in found.items()}

    expected = matches(rows)
    assert sum(0 < len(ids) < 120 for ids in expected.values()) > len(filters) // 2
    spark.conf.set(_PUSHDOWN, pushes)
    try:
        stream = query(spark, tmp_path / "stream")
        found = matches(stream)
        assert numbers(stream) == list(range(120)), "it has not been narrowed by its filters"
    finally:
        spark.conf.unset(_PUSHDOWN)
    for n, each in enumerate(filters):
        assert found[n] == expected[n], f"TRAILMARK_SEED={seed}: {each}"
