"""A Spark application that moves rows between persistent streams, to be killed and started again.

``python -m tests.support.stream_query CONFIG.json`` runs the steps of the file side by side and
says what happens, a line at a time, on its output::

    batch NAME N        Spark has committed batch N of a step
    finished            all steps of a turn have come to the end of their input
    failed MESSAGE      one has not; the message is a JSON string

A step goes on until it is killed, unless it is told to end with what is there. Steps that all end
take turns: each finds what those before it have left.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)
from pyspark.sql.streaming.query import StreamingQuery

import trailmark as tm
from tests.support.spark_query import Config, open_session, run_to_end, say
from tests.support.traps import meet_traps
from trailmark.spark.sessions import add_listener

COLUMNS = "id bigint, key int, time timestamp"
RESULTS = "key int, n bigint, total bigint"
WINDOW = tm.count_window(7)
VALUES = {"n": tm.count(), "total": tm.sum("id")}
KEYS = 5
#: Of the time windows behind a union.
SPAN = "10 seconds"


@dataclass(frozen=True)
class Step:
    """A query with a checkpoint of its own.

    ``does`` is ``write`` (Parquet files into a stream, one file a batch), ``copy`` (a stream, or
    the results of an operator, into a stream), ``aggregate`` (a stream through an operator at
    ``operator`` into Parquet files) or ``union`` (the streams of ``inputs``, through an operator
    with time windows, into Parquet files; ``options`` may have ``answer_within`` and
    ``max_rows_per_trigger``).
    """

    name: str
    does: str
    source: str
    target: str
    checkpoint: str
    ends: bool = False
    operator: str = ""
    trap: str = ""
    slow_s: float = 0.0
    columns: str = COLUMNS
    options: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)

    def ending(self) -> Step:
        return Step(**{**asdict(self), "ends": True, "slow_s": 0.0})


@dataclass(frozen=True)
class StepsConfig:
    """What an application is started with."""

    master: str
    scratch: str
    steps: list[Step]
    conf: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> StepsConfig:
        stored = json.loads(path.read_text())
        stored["steps"] = [Step(**step) for step in stored["steps"]]
        return cls(**stored)


def _rows(spark: SparkSession, step: Step) -> DataFrame:
    if step.does == "write":
        files = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
        return _slowed(files.parquet(step.source), step)
    if step.does == "union":
        return _union(step)
    # With its columns given, a step waits for a stream that there is not yet.
    reader = spark.readStream.format("trailmark").schema(step.columns)
    rows = reader.options(reader=step.name, **step.options).load(step.source)
    if step.does == "copy":
        return _slowed(rows, step)
    assert step.does == "aggregate"
    return tm.aggregate(
        rows,
        by="key",
        window=WINDOW,
        values=VALUES,
        path=step.operator,
        buckets=2,
        cache_dir=f"{step.operator}-cache",
    )


def _union(step: Step) -> DataFrame:
    most = step.options.get("max_rows_per_trigger")
    union = tm.union(
        step.inputs,
        time="time",
        path=f"{step.operator}-union",
        interval="1 second",
        reader="union",
        answer_within=step.options.get("answer_within"),
        max_rows_per_trigger=None if most is None else int(most),
    )
    return tm.aggregate(
        union,
        by="key",
        window=tm.time_window("time", SPAN, delay="1 second"),
        values={**VALUES, "sources": tm.last("source")},
        path=step.operator,
        buckets=2,
        cache_dir=f"{step.operator}-cache",
    )


def _slowed(rows: DataFrame, step: Step) -> DataFrame:
    """The same rows, from a Python function that takes its time and walks into traps."""
    trap, slow_s = step.trap, step.slow_s

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            time.sleep(slow_s)
            if trap:
                meet_traps(trap)
            yield batch.slice(batch.num_rows // 2)

    return rows.mapInArrow(pass_on, rows.schema) if trap or slow_s else rows


def start(spark: SparkSession, step: Step) -> StreamingQuery:
    sink = "parquet" if step.does in ("aggregate", "union") else "trailmark"
    writer = _rows(spark, step).writeStream.format(sink).queryName(step.name)
    writer = writer.option("checkpointLocation", step.checkpoint)
    if step.ends:
        return writer.trigger(availableNow=True).start(step.target)
    return writer.trigger(processingTime="100 milliseconds").start(step.target)


class _Follower(StreamingQueryListener):
    """Says which batches are through."""

    def __init__(self) -> None:
        self._names: dict[UUID, str | None] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._names[event.id] = event.name

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.onBatch(event.progress.id, event.progress.runId, event.progress.batchId)

    def onBatch(self, query_id: UUID, run: UUID, batch: int) -> None:
        say(f"batch {self._names[query_id]} {batch}")

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None: ...


def main(path: str) -> int:
    config = StepsConfig.read(Path(path))
    spark = open_session(Config(config.master, config.scratch, [], config.conf))
    tm.listen(spark)
    follower = _Follower()
    add_listener(spark, follower, follower.onBatch)
    all_end = all(step.ends for step in config.steps)
    turns = [[step] for step in config.steps] if all_end else [config.steps]
    went_well = all(
        run_to_end(spark, [partial(start, spark, step) for step in turn]) for turn in turns
    )
    spark.stop()
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
