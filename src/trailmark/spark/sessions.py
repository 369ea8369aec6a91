"""What is done for all queries of a session that has an operator.

**Their tasks are told where Spark keeps the query's checkpoint**, so that they can write it down. A
query that starts calls its listeners before it does anything else, from the thread that will start
its jobs, and waits for them. What they answer in Python runs in that thread, too (PySpark pins
threads unless it is told otherwise). So a local property that is set there goes with all tasks of
the query, as the number of its batch does. Where it does not arrive, nothing is written down.

**Where there are several hosts**, buckets are spread over executors that come (see `placement`).

**A query that Trailmark has stopped says why on one line** of the logger ``trailmark``. Spark's own
message has it somewhere in its middle.
"""

from __future__ import annotations

import atexit
import logging
import re
from weakref import WeakSet

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from trailmark.engine.spark_commits import record_checkpoint
from trailmark.errors import LeaseLost
from trailmark.log import Storage
from trailmark.spark.internals import (
    OnBatch,
    checkpoint_of,
    is_running,
    tell_briefly,
    wait_for_events,
)
from trailmark.spark.placement import Spreading, has_several_hosts

_log = logging.getLogger("trailmark")

_PROPERTY = "trailmark.checkpoint"

#: How long the end of a script waits for what its listeners have not been told yet.
_PATIENCE_MS = 10_000

#: What has to be taken away at the end.
_listeners: list[tuple[SparkSession, StreamingQueryListener]] = []
#: Sessions that are attended to.
_sessions: WeakSet[SparkSession] = WeakSet()
#: What this process has written down: logs, query, checkpoint.
_recorded: set[tuple[str, str, str]] = set()


def attend_queries(spark: SparkSession) -> None:
    """Attends to the queries that a session starts from now on; once is enough."""
    if spark not in _sessions:
        _sessions.add(spark)
        on_batch = Spreading(spark) if has_several_hosts(spark) else None
        add_listener(spark, _Attendant(spark), on_batch)


def add_listener(
    spark: SparkSession, listener: StreamingQueryListener, on_batch: OnBatch | None
) -> None:
    """Adds a listener to a session, until Python ends; ``on_batch`` is told of batches for it.

    A script that ends has not heard of its last batch yet. So it waits for that. Then the listener
    goes: Spark lives on for a moment, and would complain at length of one that does not answer.
    """
    tell_briefly(spark, listener, on_batch)
    spark.streams.addListener(listener)
    _listeners[:] = [each for each in _listeners if is_running(each[0])]
    _listeners.append((spark, listener))


def listeners_of(spark: SparkSession) -> list[StreamingQueryListener]:
    """What was added to a session, and not taken away again."""
    return [listener for session, listener in _listeners if session is spark]


def remove_listener(spark: SparkSession, listener: StreamingQueryListener) -> None:
    """Takes a listener away before Python ends."""
    spark.streams.removeListener(listener)
    _listeners[:] = [each for each in _listeners if each[1] is not listener]


@atexit.register
def _remove_listeners() -> None:
    patience_ms = _PATIENCE_MS
    for spark, listener in reversed(_listeners):
        if wait_for_events(spark, patience_ms):
            spark.streams.removeListener(listener)
        elif is_running(spark):
            patience_ms = 0  # it has been waited for


class _Attendant(StreamingQueryListener):
    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        query = self._spark.streams.get(str(event.id))
        checkpoint = None if query is None else checkpoint_of(query)
        if checkpoint is not None:
            # With the query's id: were it to end up in another thread, it would be passed over.
            self._spark.sparkContext.setLocalProperty(_PROPERTY, f"{event.id} {checkpoint}")

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """The tasks know it by then."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to tell."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        refusal = refusal_in(event.exception)
        # Whoever finds out that a lease is lost says so, once.
        if refusal is not None and not refusal.startswith(LeaseLost.__name__):
            _log.error("query %s was stopped: %s", event.id, refusal)


#: An error of ours as Python prints it, up to the next line that is not part of it.
_REFUSAL = re.compile(r"^trailmark\.errors\.(\w+: .*(?:\n +.*)*)", re.MULTILINE)


def refusal_in(exception: str | None) -> str | None:
    """The error of Trailmark that is in the text of an exception of Spark, on one line."""
    found = _REFUSAL.search(exception or "")
    if found is None:
        return None
    lines = found[1].splitlines()
    # As `TrailmarkError.line` has it.
    lines = [re.sub(r"^  where: (.*)", r"(\1)", line).removeprefix("  next:") for line in lines]
    return re.sub(r"( SQLSTATE: \w+)+$", "", " ".join(" ".join(lines).split()))


def record_where_told(storage: Storage, path: str, query_id: str) -> None:
    """Writes down where the checkpoint of a query is, in a task of it: once in each process."""
    context = TaskContext.get()
    told = None if context is None else context.getLocalProperty(_PROPERTY)
    of_query, _, checkpoint = (told or "").partition(" ")
    record = (path, query_id, checkpoint)
    if of_query == query_id and record not in _recorded:
        record_checkpoint(storage, query_id, checkpoint)
        _recorded.add(record)
