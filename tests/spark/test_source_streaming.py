"""Persistent streams in streaming queries: written exactly once, replayed and followed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.spark_feed import Feed, Query
from tests.support.spark_runs import wait_until
from tests.support.spark_streams import (
    add,
    follow,
    grow,
    manifests,
    numbered,
    numbers,
    query,
    write_stream,
)
from tests.support.spark_versions import SPARK, needs_spark
from trailmark.log import LocalStorage
from trailmark.log.readers import registered
from trailmark.streams.retention import Retention

_SCHEMA = "id long, text string"


def _feed(spark: SparkSession, directory: Path, batches: int) -> Feed:
    feed = Feed(spark, directory, _SCHEMA)
    feed.add(*(numbered(10 * n, 10 * n + 10) for n in range(batches)))
    return feed


@pytest.fixture(scope="module")
def stream(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six batches of ten rows, and one of a hundred."""
    path = tmp_path_factory.mktemp("streaming") / "stream"
    for n in range(6):
        add(_rows(spark, 10 * n, 10 * n + 10), path)
    add(_rows(spark, 60, 160), path)
    return path


def _rows(spark: SparkSession, first: int, end: int) -> DataFrame:
    rows = spark.range(first, end, numPartitions=1)
    return rows.selectExpr("id", "concat('row ', id) as text")


# Writing


def test_what_is_written_over_many_runs_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    path, checkpoint = tmp_path / "stream", tmp_path / "checkpoint"
    feed = _feed(spark, tmp_path / "in", 3)
    write_stream(feed.stream(), path, checkpoint)
    feed.add(numbered(30, 40))
    write_stream(feed.stream(), path, checkpoint)
    assert numbers(query(spark, path)) == list(range(40))
    # As if the driver had been killed after the batch was in the stream, before Spark noted it.
    for name in ("3", ".3.crc"):
        Path(checkpoint, "commits", name).unlink()
    again = write_stream(feed.stream(), path, checkpoint)
    assert [progress["batchId"] for progress in again if progress["numInputRows"]] == [3]
    assert numbers(query(spark, path)) == list(range(40))
    assert [manifest.rows for manifest in manifests(path)] == [10, 10, 10, 10]
    files = [file.name for file in Path(path, "data").rglob("*.seg")]
    assert len(files) == 4, "what was written for the second time is not left behind"
    # A query of its own writes rows of its own.
    write_stream(feed.stream(), path, tmp_path / "other")
    assert numbers(query(spark, path)) == sorted([*range(40), *range(40)])


def _roll_back(checkpoint: Path, first: int) -> None:
    """As if Spark had lost all that it knew of the batches from one on."""
    for log in ("offsets", "commits", "sources/0"):
        for number in range(first, 10):
            for name in (str(number), f".{number}.crc"):
                Path(checkpoint, log, name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("first", "refusal"),
    [(3, "in the stream with other rows"), (2, "stream has its batches up to 3")],
)
def test_a_query_whose_checkpoint_was_rolled_back_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, first: int, refusal: str
) -> None:
    path, checkpoint = tmp_path / "stream", tmp_path / "checkpoint"
    feed = _feed(spark, tmp_path / "in", 4)
    write_stream(feed.stream(), path, checkpoint)
    _roll_back(checkpoint, first)
    for number in range(first, 4):
        (feed.directory / f"{number:05d}.parquet").unlink()
    feed.add(numbered(100, 110))
    with pytest.raises(StreamingQueryException, match=refusal):
        write_stream(feed.stream(), path, checkpoint)
    assert numbers(query(spark, path)) == list(range(40))
    assert len(list(Path(path, "data").rglob("*.seg"))) == 4, "nothing of it is left behind"


def test_a_job_that_fails_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    feed = _feed(spark, tmp_path / "in", 2)
    write_stream(feed.stream(), path, tmp_path / "checkpoint")
    feed.add(numbered(20, 30))
    failing = feed.stream().selectExpr("id", "if(id = 25, raise_error('for a test'), text) text")
    with pytest.raises(StreamingQueryException, match="for a test"):
        write_stream(failing.repartition(2), path, tmp_path / "checkpoint")
    assert numbers(query(spark, path)) == list(range(20))
    write_stream(feed.stream(), path, tmp_path / "checkpoint")
    assert numbers(query(spark, path)) == list(range(30))


# Replaying and following


def _sizes(progress: Sequence[dict[str, Any]]) -> list[int]:
    return [each["numInputRows"] for each in progress if each["numInputRows"]]


_HAS_LIMITS = needs_spark("4.2", "a source in Python with limits")


def _offsets(progress: dict[str, Any], name: str) -> int:
    return int(json.loads(progress["sources"][0][name])["batch"])


@_HAS_LIMITS
@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"maxRowsPerTrigger": 25}, [20, 20, 20, 100]),
        ({"MAXBYTESPERTRIGGER": "1"}, [10, 10, 10, 10, 10, 10, 100]),
        ({"maxBytesPerTrigger": "1 TiB", "maxRowsPerTrigger": 30}, [30, 30, 100]),
        ({"maxBytesPerTrigger": "{three}", "maxRowsPerTrigger": 40}, [30, 30, 100]),
    ],
    ids=["rows", "bytes", "rows-before-bytes", "bytes-before-rows"],
)
def test_a_micro_batch_takes_as_many_batches_as_the_limits_admit(
    spark: SparkSession, stream: Path, tmp_path: Path, options: dict[str, Any], sizes: list[int]
) -> None:
    three = max(sum(m.bytes for m in manifests(stream)[n : n + 3]) for n in range(4))
    given = {name: str(value).format(three=three) for name, value in options.items()}
    copy = Query(tmp_path)
    progress = copy.run(follow(spark, stream, **given))
    assert _sizes(progress) == sizes
    assert numbers(spark.read.parquet(str(copy.out))) == list(range(160))
    # How far behind a query is can be seen while it runs.
    assert {_offsets(each, "latestOffset") for each in progress} == {7}
    assert _offsets(progress[-1], "endOffset") == 7


@_HAS_LIMITS
def test_readers_of_one_stream_are_each_where_they_are(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    add(_rows(spark, 0, 10), path)
    fast, slow = Query(tmp_path, "fast"), Query(tmp_path, "slow")
    fast.run(follow(spark, path))
    add(_rows(spark, 10, 20), path)
    assert _sizes(fast.run(follow(spark, path))) == [10], "it goes on where it was"
    assert _sizes(slow.run(follow(spark, path, maxRowsPerTrigger=10))) == [10, 10]
    for each in (fast, slow):
        assert numbers(spark.read.parquet(str(each.out))) == list(range(20))
    assert _sizes(fast.run(follow(spark, path))) == [], "there is nothing new"


#: Where to start, the rows that are read at first, and those after ten more were added.
_STARTS: list[tuple[dict[str, Any], range, range]] = [
    ({"startingOffsets": "EARLIEST"}, range(20), range(30)),
    ({"startingOffsets": "latest"}, range(0), range(20, 30)),
    ({"startingBatch": 1}, range(10, 20), range(10, 30)),
    ({"startingBatch": 2}, range(0), range(20, 30)),
    ({"startingTimestamp": "1970-01-01 00:00:15"}, range(15, 20), range(15, 30)),
    ({"startingTimestamp": "1970-01-01T00:00:25Z"}, range(0), range(25, 30)),
]


def test_a_query_starts_where_it_is_told_to_and_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "stream"
    rows = "id", "timestamp_seconds(id) as time"
    for n in range(2):
        batch = spark.range(10 * n, 10 * n + 10, numPartitions=1).selectExpr(*rows)
        add(batch, path, timeColumn="time")
    copies = [Query(tmp_path, f"copy-{n}") for n in range(len(_STARTS))]
    for copy, (options, first, _) in zip(copies, _STARTS, strict=True):
        copy.run(follow(spark, path, **options))
        assert _found(spark, copy) == list(first), options
    add(spark.range(20, 30, numPartitions=1).selectExpr(*rows), path)
    # Where it starts counts at the first start only: then its checkpoint says where it is.
    for copy, (options, _, then) in zip(copies, _STARTS, strict=True):
        copy.run(follow(spark, path, **options))
        assert _found(spark, copy) == list(then), options


def _found(spark: SparkSession, copy: Query) -> list[int]:
    has_any = any(copy.out.glob("*.parquet"))
    return numbers(spark.read.parquet(str(copy.out))) if has_any else []


@pytest.fixture
def running() -> Iterator[list[StreamingQuery]]:
    queries: list[StreamingQuery] = []
    yield queries
    for each in queries:
        each.stop()


@pytest.mark.parametrize(("first", "expected"), [(None, range(30)), (1, range(10, 30))])
def test_a_query_waits_for_a_stream_that_nobody_has_begun_to_write(
    spark: SparkSession,
    tmp_path: Path,
    running: list[StreamingQuery],
    first: int | None,
    expected: range,
) -> None:
    path, copy = tmp_path / "stream", Query(tmp_path)
    options = {} if first is None else {"startingBatch": first}
    followed = follow(spark, path, _SCHEMA, reader="waiting", **options)
    writer = followed.writeStream.option("checkpointLocation", str(copy.checkpoint))
    following = writer.trigger(processingTime="50 milliseconds").start(str(copy.out))
    running.append(following)
    following.processAllAvailable()
    assert following.isActive
    add(spark.createDataFrame([], _SCHEMA), path)
    following.processAllAvailable()
    wait_until("it has registered", lambda: bool(registered(LocalStorage(path))))
    assert [each.needs for each in registered(LocalStorage(path))] == [first or 0]
    for n in range(3):
        add(_rows(spark, 10 * n, 10 * n + 10), path)
        following.processAllAvailable()
    assert following.isActive
    assert _found(spark, copy) == list(expected)
    assert following.lastProgress is not None
    if SPARK >= (4, 2):  # before, sources in Python do not say how far there is to read
        assert _offsets(dict(following.lastProgress), "latestOffset") == 3


def test_no_schema_and_no_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(
        AnalysisException, match=r"(?s)There is no stream at .*give its schema with"
    ):
        follow(spark, tmp_path / "stream")


# What is gone


_TRIMMED_AT = 16  # batches, as many as are committed between trims


def _begin(spark: SparkSession, path: Path) -> None:
    add(spark.createDataFrame([], _SCHEMA), path)


def test_batches_that_were_trimmed_before_they_were_read_end_a_query_unless_it_says_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "stream"
    _begin(spark, path)
    grow(path, [numbered(n, n + 1) for n in range(3)])
    strict, lenient = Query(tmp_path, "strict"), Query(tmp_path, "lenient")
    for each in (strict, lenient):
        each.run(follow(spark, path))
    more = [numbered(n, n + 1) for n in range(3, _TRIMMED_AT)]
    grow(path, more, Retention(batches=4))
    assert [manifest.batch for manifest in manifests(path)] == [12, 13, 14, 15]
    with pytest.raises(StreamingQueryException) as refused:
        strict.run(follow(spark, path, maxRowsPerTrigger=2))
    message = str(refused.value)
    assert "Batches 3 to 11 are gone: they were trimmed before they were read." in message
    assert f"where: {path}" in message
    assert "set the option failOnDataLoss to false" in message
    assert _found(spark, strict) == [0, 1, 2]
    lenient.run(follow(spark, path, maxRowsPerTrigger=2, failOnDataLoss="FALSE"))
    assert _found(spark, lenient) == [0, 1, 2, 12, 13, 14, 15]
    fresh = Query(tmp_path, "fresh")
    fresh.run(follow(spark, path))
    assert _found(spark, fresh) == [12, 13, 14, 15], "what was gone before it began is no loss"
    # The same for queries that do not stream.
    with pytest.raises(AnalysisException, match=r"(?s)Batches 5 to 11 are gone.*failOnDataLoss"):
        query(spark, path, startingBatch=5).collect()
    assert numbers(query(spark, path, startingBatch=5, failOnDataLoss="false")) == [12, 13, 14, 15]
    assert numbers(query(spark, path)) == [12, 13, 14, 15]


def test_another_stream_in_the_same_place_is_noticed(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    _begin(spark, path)
    grow(path, [numbered(n, n + 1) for n in range(5)])
    strict, lenient = Query(tmp_path, "strict"), Query(tmp_path, "lenient")
    for each in (strict, lenient):
        each.run(follow(spark, path))
    shutil.rmtree(path)
    _begin(spark, path)
    grow(path, [numbered(n, n + 1) for n in (100, 101)])
    with pytest.raises(StreamingQueryException, match="holds another stream than the query began"):
        strict.run(follow(spark, path))
    lenient.run(follow(spark, path, failOnDataLoss="false"))
    assert _found(spark, lenient) == [0, 1, 2, 3, 4, 100, 101]
    grow(path, [numbered(102, 103)])
    lenient.run(follow(spark, path))
    assert _found(spark, lenient) == [0, 1, 2, 3, 4, 100, 101, 102]


def test_what_a_named_reader_needs_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "stream"
    _begin(spark, path)
    grow(path, [numbered(n, n + 1) for n in range(4)])
    copy = Query(tmp_path)
    copy.run(follow(spark, path, reader="billing", maxRowsPerTrigger=1))
    (reader,) = registered(LocalStorage(path))
    # Spark asks for more when the last batch is done.
    assert (reader.name, reader.needs) == ("billing", 4)
    keep_one = Retention(batches=1)
    grow(path, [numbered(n, n + 1) for n in range(4, 2 * _TRIMMED_AT)], keep_one)
    assert manifests(path)[0].batch == 4, "it has not read more"
    copy.run(follow(spark, path, reader="billing"))
    grow(path, [numbered(n, n + 1) for n in range(2 * _TRIMMED_AT, 3 * _TRIMMED_AT)], keep_one)
    copy.run(follow(spark, path, reader="billing"))
    assert _found(spark, copy) == list(range(3 * _TRIMMED_AT))
    grow(path, [numbered(48, 49)] * _TRIMMED_AT, keep_one)
    assert manifests(path)[0].batch == 3 * _TRIMMED_AT
