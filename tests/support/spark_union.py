"""Windows behind a union of two streams that answers within a second, as a query that goes on until
it is told to end. Spark computes every batch twice, and what comes out is kept try by try."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.traps import trapped_sum

if TYPE_CHECKING:
    from tests.support.spark_query import Query

NAMES = ("eu", "asia")
#: Seconds of event time that a window of a replica has.
REPLICA_WINDOW_S = 2
#: Item, begin of its window in seconds, count, sum, the same sum, and whether it is tentative.
Result = tuple[int, int, int, int, int, bool]


def union_path(query: Query) -> str:
    return f"{query.path}-union"


def tries_file(query: Query) -> Path:
    return Path(f"{query.out}.jsonl")


def end_file(query: Query) -> Path:
    """The query ends when it is there."""
    return Path(query.trap, "end")


def start_union(query: Query) -> StreamingQuery:
    def keep(rows: DataFrame, number: int) -> None:
        for _ in range(2):
            found = [
                (r.item, round(r.window.start.timestamp()), r.n, r.total, r.trapped, r.tentative)
                for r in rows.collect()
            ]
            with tries_file(query).open("a") as file:
                file.write(json.dumps([number, sorted(found)]) + "\n")

    writer = _counts(query).writeStream.queryName(query.name).foreachBatch(keep)
    started = writer.option("checkpointLocation", query.checkpoint).start()
    threading.Thread(target=_end_when_told, args=(started, end_file(query)), daemon=True).start()
    return started


def start_replica(query: Query) -> StreamingQuery:
    """One of several queries over the same streams, each with its own path."""
    rows = tm.union(
        {name: f"{query.input}/{name}" for name in NAMES},
        time="time",
        path=union_path(query),
        interval="500 ms",
        reader=query.name,
    )
    counts = tm.aggregate(
        rows,
        by="item",
        window=tm.time_window("time", f"{REPLICA_WINDOW_S} seconds"),
        values={"n": tm.count(), "total": tm.sum("price")},
        path=query.path,
        buckets=query.buckets,
        numbered=True,
    )
    writer = counts.writeStream.format("noop").queryName(query.name)
    return writer.option("checkpointLocation", query.checkpoint).start()


def start_following(spark: SparkSession, query: Query) -> StreamingQuery:
    """Follows the replicas whose paths are the input, and writes their results to a stream."""
    reader = spark.readStream.format("trailmark").option("reader", query.name)
    counts = reader.option("replicas", query.input).load()
    ended = counts.select("item", "n", F.col("window.end").alias("time"))
    writer = ended.writeStream.format("trailmark").queryName(query.name)
    writer = writer.option("timeColumn", "time").option("delay", "0 seconds")
    return writer.option("checkpointLocation", query.checkpoint).start(query.out)


def _counts(query: Query) -> DataFrame:
    rows = tm.union(
        {name: f"{query.input}/{name}" for name in NAMES},
        time="time",
        path=union_path(query),
        interval="1 second",
        answer_within="1 second",
    )
    return tm.aggregate(
        rows,
        by="item",
        window=tm.time_window("time", "10 seconds"),
        values={
            "n": tm.count(),
            "total": tm.sum("price"),
            "trapped": trapped_sum("price", query.trap, query.slow_s),
        },
        path=query.path,
        buckets=query.buckets,
        cache_dir=query.cache or None,
    )


def _end_when_told(query: StreamingQuery, file: Path) -> None:
    while query.isActive and not file.exists():
        time.sleep(0.05)
    query.stop()
