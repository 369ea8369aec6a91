"""A Spark application for tests to start, kill and start again.

``python -m tests.support.spark_query CONFIG.json`` runs the queries of the file to the end of their
input and says what happens, a line at a time, on its output::

    batch NAME N        Spark has committed batch N of a query
    finished            all queries have come to the end of their input
    failed MESSAGE      one has not; the message is a JSON string

The exit code is 1 if one of them failed. With ``serve``, further lists of queries are read from the
input, one JSON line each, and run in the same application.

Queries go over files of orders (see :mod:`tests.support.spark_runs`), one file a batch. One of the
values is computed by a function that a test can reach into: whatever it lays into the query's
``trap`` directory happens once, in the middle of a batch (see :mod:`tests.support.traps`). A query
whose window is ``chain`` has five operators instead (see :mod:`tests.support.spark_chain`), and one
whose window is ``union`` or ``replica`` goes over streams, until it is told to end or for ever; one
whose window is ``followed`` writes what replicas give to a stream (see
:mod:`tests.support.spark_union`).
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

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
from tests.support.spark_chain import chain
from tests.support.spark_union import start_following, start_replica, start_union
from tests.support.traps import trapped_sum
from trailmark.engine.progress import Progress
from trailmark.spark.connect import is_connect
from trailmark.spark.sessions import add_listener, listeners_of
from trailmark.windows.functions import AnyFunction, Function
from trailmark.windows.spec import Window

#: How long a client of Spark Connect waits for the end of its queries to be told.
PATIENCE_S = 60.0
COLUMNS = "item int, price bigint, weight double, time timestamp"


@dataclass(frozen=True)
class Query:
    """One query, as text that a file can hold: directories, and what is computed."""

    name: str
    input: str
    path: str
    checkpoint: str
    out: str
    cache: str
    trap: str
    window: str
    buckets: int = 2
    slow_s: float = 0.0

    def spec(self) -> Window:
        """The windows, unless the query is a chain of operators."""
        if self.window == "count":
            return tm.count_window(10)
        assert self.window == "time"
        return tm.time_window("time", "30 seconds", slide="10 seconds", delay="3 seconds")


@dataclass(frozen=True)
class Config:
    """What an application is started with."""

    master: str
    scratch: str
    queries: list[Query]
    conf: dict[str, str] = field(default_factory=dict)
    serve: bool = False

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> Config:
        stored = json.loads(path.read_text())
        stored["queries"] = [Query(**query) for query in stored["queries"]]
        return cls(**stored)


def plain_values() -> dict[str, Function]:
    """What every query computes; ``trapped`` is the same sum by a function of our own."""
    return {
        "number": tm.count(),
        "priced": tm.count("price"),
        "total": tm.sum("price"),
        "least": tm.min("price"),
        "most": tm.max("price"),
        "mean": tm.avg("price"),
        "load": tm.sum("weight"),
        "trapped": tm.sum("price"),
    }


def values(query: Query) -> Mapping[str, AnyFunction]:
    if not query.trap:
        return plain_values()
    return {**plain_values(), "trapped": trapped_sum("price", query.trap, query.slow_s)}


def open_session(config: Config) -> SparkSession:
    """A session that needs no network and writes nothing outside of its directory."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if config.master.startswith("sc://"):
        return SparkSession.builder.remote(config.master).getOrCreate()
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": f"{config.scratch}/local",
        "spark.sql.warehouse.dir": f"{config.scratch}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        **config.conf,
    }
    builder = SparkSession.builder.master(config.master).appName("trailmark tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start(spark: SparkSession, query: Query) -> StreamingQuery:
    if query.window == "union":
        return start_union(query)
    if query.window == "replica":
        return start_replica(query)
    if query.window == "followed":
        return start_following(spark, query)
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(query.input)
    results = chain(rows, query) if query.window == "chain" else aggregate(rows, query)
    return (
        results.writeStream.format("parquet")
        .option("checkpointLocation", query.checkpoint)
        .queryName(query.name)
        .trigger(availableNow=True)
        .start(query.out)
    )


def aggregate(rows: DataFrame, query: Query) -> DataFrame:
    return tm.aggregate(
        rows,
        by="item",
        window=query.spec(),
        values=values(query),
        path=query.path,
        checkpoint=tm.Continuous(q=300, u=600),
        buckets=query.buckets,
        retain_batches=None,
        cache_dir=query.cache or None,
    )


def say(*words: object) -> None:
    print(*words, flush=True)


class Ends(StreamingQueryListener):
    """The queries whose end was told; on Spark Connect nothing else says that all was."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._change = threading.Condition()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._change:
            self._told.add(str(event.id))
            self._change.notify_all()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._change:
            self._told.discard(str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None: ...

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def wait_for(self, queries: Sequence[StreamingQuery]) -> None:
        wanted = {query.id for query in queries}
        with self._change:
            assert self._change.wait_for(lambda: wanted <= self._told, PATIENCE_S)


class Follower:
    """Says which batches are through; several queries may write at the same time."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def expect(self, queries: list[Query]) -> None:
        self._names.update({query.path: query.name for query in queries})

    def __call__(self, path: str, progress: Progress) -> None:
        if path in self._names:  # of a chain, one operator is followed
            say(f"batch {self._names[path]} {progress.batch}")


def run(spark: SparkSession, queries: list[Query]) -> bool:
    """Runs queries side by side to the end of their input; tells whether they all got there."""
    return run_to_end(spark, [partial(start, spark, query) for query in queries])


def run_to_end(spark: SparkSession, starts: Sequence[Callable[[], StreamingQuery]]) -> bool:
    """Starts queries and waits for all of them; tells whether they all came to their end."""
    running: list[StreamingQuery] = []
    failure = ""
    try:
        running.extend(begin() for begin in starts)
        for query in running:
            query.awaitTermination()
    except Exception as error:  # noqa: BLE001 - whatever it is, the test wants to see it
        failure = f"{type(error).__name__}: {error}"
    for query in running:
        query.stop()
    # The commit marks are written behind the query's back.
    wait_for_listeners(spark, running)
    say(f"failed {json.dumps(failure)}" if failure else "finished")
    return not failure


def wait_for_listeners(spark: SparkSession, ended: Sequence[StreamingQuery]) -> None:
    """Waits until listeners have heard of all that has happened."""
    if is_connect(spark):
        # To take a listener away waits, too; but that hangs where an event is on its way.
        (ends,) = (each for each in listeners_of(spark) if isinstance(each, Ends))
        ends.wait_for(ended)
    else:
        jvm: Any = spark.sparkContext._jsc
        jvm.sc().listenerBus().waitUntilEmpty()


def main(path: str) -> int:
    config = Config.read(Path(path))
    spark = open_session(config)
    follower = Follower()
    tm.listen(spark, follower)
    if is_connect(spark):
        add_listener(spark, Ends(), None)
    follower.expect(config.queries)
    went_well = run(spark, config.queries)
    for line in sys.stdin if config.serve else ():
        queries = [Query(**query) for query in json.loads(line)]
        follower.expect(queries)
        run(spark, queries)
    spark.stop()
    return 0 if went_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
