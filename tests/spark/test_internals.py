"""What is expected of Spark beyond its public names, and what is done without where one is gone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_feed import Feed, Query
from tests.support.spark_runs import wait_until
from tests.support.spark_streams import add, follow
from trailmark.errors import SettingError
from trailmark.spark.internals import (
    CachedPartitions,
    PlanNode,
    Source,
    as_streaming,
    checkpoint_of,
    driver_directory,
    read_plan,
    slots_of_executors,
    stream_sources,
    tell_briefly,
    wait_for_events,
)
from trailmark.spark.listener import TrailmarkListener
from trailmark.spark.sessions import _PROPERTY, attend_queries

_GIVEN: dict[str, Any] = {
    "by": "id",
    "window": tm.count_window(2),
    "values": {"n": tm.count()},
}


def _property(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"told": [context.getLocalProperty(_PROPERTY)]})


def test_a_query_tells_its_tasks_where_its_checkpoint_is(
    spark: SparkSession, tmp_path: Path
) -> None:
    """``StreamExecution.resolvedCheckpointRoot``, and a listener that is called in the query's own
    thread. Without either, a reader cannot know that the newest batch is committed, and says so."""
    feed = Feed(spark, tmp_path / "in", "id int")
    feed.add(pa.table({"id": pa.array([1], pa.int32())}))
    told: list[str | None] = []

    def look(rows: DataFrame, batch: int) -> None:
        told.extend(row[0] for row in rows.collect())

    attend_queries(spark)
    writer = feed.stream().mapInArrow(_property, "told string").writeStream.foreachBatch(look)
    checkpoint = tmp_path / "a place with 50% off"
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        assert checkpoint_of(query) == f"file:{checkpoint}"
        query.processAllAvailable()
    finally:
        query.stop()
    assert told == [f"{query.id} file:{checkpoint}"]


def test_what_listeners_have_not_been_told_can_be_waited_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """``LiveListenerBus.waitUntilEmpty``. Without it, what is told of the last batch of a script is
    lost, and Spark complains of listeners that are gone."""
    feed = Feed(spark, tmp_path / "in", "id int")
    feed.add(*(pa.table({"id": pa.array([n], pa.int32())}) for n in range(3)))
    told = _Told()
    spark.streams.addListener(told)
    try:
        Query(tmp_path).run(feed.stream())
        assert wait_for_events(spark, 30_000)
        assert told.batches == [0, 1, 2]
    finally:
        spark.streams.removeListener(told)


class _Told(StreamingQueryListener):
    def __init__(self) -> None:
        self.batches: list[int] = []

    def onQueryStarted(self, event: Any) -> None:
        """Not asked for."""

    def onQueryProgress(self, event: Any) -> None:
        time.sleep(0.2)
        self.batches.append(event.progress.batchId)

    def onQueryIdle(self, event: Any) -> None:
        """Not asked for."""

    def onQueryTerminated(self, event: Any) -> None:
        """Not asked for."""


@pytest.mark.parametrize("is_brief", [True, False], ids=["brief", "whole"])
def test_listeners_do_not_wait_for_what_they_do_not_look_at(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_brief: bool
) -> None:
    """``JStreamingQueryListener`` and ``_jlistenerobj``. Without them, every event is made into
    Python objects, with hundreds of calls into the JVM."""
    feed = Feed(spark, tmp_path / "in", "id int")
    feed.add(*(pa.table({"id": pa.array([n], pa.int32())}) for n in range(3)))
    stream = tm.aggregate(feed.stream(), path=tmp_path / "log", **_GIVEN)
    whole, made = QueryProgressEvent.fromJObject, []

    def counted(event: Any) -> QueryProgressEvent:
        made.append(event)
        return whole(event)

    monkeypatch.setattr(QueryProgressEvent, "fromJObject", counted)
    if not is_brief:
        monkeypatch.setattr("trailmark.spark.sessions.tell_briefly", lambda *_: None)
    listener = tm.listen(spark)
    try:
        Query(tmp_path).run(stream)
        assert wait_for_events(spark, 30_000)
    finally:
        spark.streams.removeListener(listener)
    assert [progress.batch for _, progress in listener.progress] == [0, 1, 2]
    assert len(made) == (0 if is_brief else 3)


class _Gone:
    """A JVM object of another Spark, which lacks what is asked for."""

    def streamingQuery(self) -> Any:
        return object()


@pytest.mark.parametrize("query", [_Gone(), object()])
def test_a_spark_that_does_not_tell_is_done_without(query: Any) -> None:
    assert checkpoint_of(StreamingQuery(query)) is None
    assert not wait_for_events(query, 1)


def test_spark_tells_in_which_directory_it_was_started(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = os.getcwd()
    monkeypatch.chdir(tmp_path)
    assert driver_directory(spark) == started
    stream = Feed(spark, tmp_path / "in", "id int").stream()
    with pytest.raises(SettingError) as refused:
        tm.aggregate(stream, path="log", **_GIVEN)
    assert f"{tmp_path}/log or {started}/log" in refused.value.what
    assert refused.value.fix == "Give the full path."
    tm.aggregate(stream, path=tmp_path / "log", **_GIVEN)
    monkeypatch.chdir(started)
    assert not Path("log").exists()


def test_the_sources_of_a_stream_are_found(spark: SparkSession, tmp_path: Path) -> None:
    add(spark.range(3), tmp_path / "stream")
    files = Feed(spark, tmp_path / "in", "id bigint").stream()
    both = (
        files.filter("id > 1").union(follow(spark, tmp_path / "stream")).join(spark.range(3), "id")
    )
    assert stream_sources(both) == [
        Source("parquet", (str(tmp_path / "in"),)),
        Source("trailmark", (str(tmp_path / "stream"),)),
    ]
    assert stream_sources(spark.readStream.format("rate").load()) == []


def test_plans_are_read_with_the_names_that_are_wanted(spark: SparkSession, tmp_path: Path) -> None:
    """``QueryPlan``: ``nodeName``, ``isStreaming``, ``children``, ``subqueries``, ``output`` and
    the metadata of its columns; ``WithCTE`` and ``CTERelationRef``; and ``MapInArrow``. Without
    them, nothing can be explained."""
    schema = "id bigint"
    files = Feed(spark, tmp_path / "in", schema).stream()
    noted = spark.range(3).select(F.col("id").alias("id", metadata={"said": "so"}))
    united = spark.range(2).union(noted).where("id > 0").mapInArrow(_as_they_are, schema)
    spark_range = PlanNode("Range", False)
    branches = (
        PlanNode("Range", False, metadata={}),
        PlanNode("Range", False, metadata={"said": "so"}),
    )
    union = PlanNode("Union", False, branches)
    assert read_plan(united, {"MapInArrow"}) == PlanNode("MapInArrow", False, (union,))
    assert read_plan(united, ()) == union
    source = PlanNode("StreamingRelation", True, (), Source("parquet", (str(tmp_path / "in"),)))
    united.createOrReplaceTempView("united_rows")
    files.createOrReplaceTempView("followed_files")
    try:
        text = """
            WITH x AS (SELECT id FROM united_rows), y AS (SELECT id + 1 AS id FROM x)
            SELECT f.id FROM followed_files f JOIN y ON f.id = y.id
            WHERE f.id IN (SELECT id FROM range(7))
        """
        found = read_plan(spark.sql(text), ())
    finally:
        spark.catalog.dropTempView("united_rows")
        spark.catalog.dropTempView("followed_files")
    join = PlanNode("Join", True, (source, union))
    assert found == PlanNode("Filter", True, (join, spark_range))


def test_the_sources_of_a_plan_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """``HadoopFsRelation.location``, ``DataSourceV2Relation.options`` and their like. Without them,
    nothing can be explained either; another kind of relation is told by the name of its node."""
    add(spark.range(3), tmp_path / "stream")
    spark.range(3).write.json(str(tmp_path / "files"))
    stream = str(tmp_path / "stream")
    cases = [
        (follow(spark, stream, reader="me"), Source("trailmark", (stream,), (("reader", "me"),))),
        (
            spark.read.format("trailmark").option("startingBatch", 0).load(stream),
            Source("trailmark", (stream,), (("startingBatch", "0"),)),
        ),
        (spark.read.json(str(tmp_path / "files")), Source("JSON", (f"file:{tmp_path}/files",))),
        (spark.readStream.format("rate").load(), Source("rate")),
        (spark.range(3), None),
    ]
    for df, source in cases:
        assert read_plan(df, ()).source == source


def _as_they_are(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def test_logs_among_the_files_of_the_source_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    files = Feed(spark, tmp_path / "in", "id bigint").stream()
    add(spark.range(3), tmp_path / "stream")
    stream = follow(spark, tmp_path / "stream")
    for source, path in ((files, "in/log"), (files, "in"), (files, "."), (stream, "stream")):
        with pytest.raises(SettingError, match="would be in the same place"):
            tm.aggregate(source, path=tmp_path / path, **_GIVEN)
    assert list((tmp_path / "in").iterdir()) == []
    for source, path in ((files, "log"), (stream, "stream/average"), (stream, "log")):
        tm.aggregate(source, path=tmp_path / path, **_GIVEN)


def test_another_version_without_these_names_is_no_reason_to_fail(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Feed(spark, tmp_path / "in", "id bigint").stream()
    monkeypatch.setattr(type(spark.sparkContext), "_jvm", None)
    assert driver_directory(spark) is None
    listener = TrailmarkListener()
    tell_briefly(spark, listener, listener.onBatch)
    assert not hasattr(listener, "_jlistenerobj")
    monkeypatch.undo()

    class Renamed:
        def __getattr__(self, name: str) -> Any:
            raise AttributeError(name)

    monkeypatch.setattr(stream, "_jdf", Renamed())
    assert stream_sources(stream) == []
    with pytest.raises(SettingError, match="does not show its plans") as refused:
        read_plan(stream, ())
    assert spark.version in refused.value.what
    assert "Queries run all the same" in refused.value.fix


def test_literals_can_be_made_a_stream_that_is_no_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    """``LocalRelation.isStreaming``, and the classic ``Dataset.ofRows``."""
    rows = as_streaming(spark.sql("SELECT * FROM VALUES (7), (8) AS made(id)"))
    assert rows.isStreaming
    feed = Feed(spark, tmp_path / "in", "id int")
    feed.add(*(pa.table({"id": pa.array([n], pa.int32())}) for n in range(2)))
    query = Query(tmp_path)
    assert len(query.run(feed.stream().union(rows))) == 2, "it asks for no batch of its own"
    assert sorted(query.rows(spark).elements()) == [(0,), (1,), (7,), (7,), (8,), (8,)]


def test_a_spark_whose_planner_is_another_is_refused_by_name(spark: SparkSession) -> None:
    with pytest.raises(SettingError, match="cannot send a row to every bucket") as refused:
        as_streaming(spark.range(3))  # no literals
    assert spark.version in refused.value.what
    assert refused.value.fix.startswith("Use a newer Trailmark")


def test_partitions_that_are_cached_are_found_and_dropped(spark: SparkSession) -> None:
    """``CacheManager`` and ``BlockManagerMaster``. Without them, no bucket of a cluster moves to an
    executor that comes."""
    assert slots_of_executors(spark) == {"driver": 2}
    cached = spark.range(8).repartition(3, "id").persist()
    assert CachedPartitions.of(cached) is None, "nobody has asked for it"
    cached.count()
    found = CachedPartitions.of(cached)
    assert found is not None
    assert found.by_executor() == {"driver": [0, 1, 2]}
    found.drop(1)
    wait_until("it is gone", lambda: found.by_executor() == {"driver": [0, 2]}, 10)
    assert cached.count() == 8
    assert found.by_executor() == {"driver": [0, 1, 2]}, "who needs it makes it again"
    cached.unpersist(blocking=True)
    assert CachedPartitions.of(cached) is None
