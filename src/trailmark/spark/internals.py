"""Names inside of Spark that have no public counterpart in PySpark.

Another version may lack any of them. Then these functions have no answer, and whoever asks does
without; but no operator runs without `as_streaming`, which refuses.
``tests/spark/test_internals.py`` says what is expected of Spark, and what is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.streaming.listener import StreamingQueryListener
from pyspark.sql.streaming.query import StreamingQuery

from trailmark.errors import SettingError
from trailmark.values import dataclass

#: What comes of a name that is not there (py4j knows a package of it, or nothing), and of a JVM
#: that is not.
_GONE = (Py4JError, AttributeError, ImportError, OSError, TypeError)

#: Told of a batch: the id of its query, that of the run, and its number.
OnBatch = Callable[[UUID, UUID, int], None]


def as_streaming(rows: DataFrame) -> DataFrame:
    """A DataFrame of literals as a stream that has the same rows in every micro-batch.

    ``LocalRelation.isStreaming``: Spark's planner takes such a relation in a union with a stream,
    and it is no source. PySpark has no name for it.
    """
    session = rows.sparkSession
    try:
        plan = rows._jdf.queryExecution().optimizedPlan()
        if plan.nodeName() != "LocalRelation":
            raise TypeError(f"literals become {plan.nodeName()}")
        rest = [getattr(plan, f"copy$default${n}")() for n in range(4, plan.productArity() + 1)]
        streaming = plan.copy(plan.output(), plan.data(), True, *rest)
        jvm: Any = session.sparkContext._jvm
        dataset = jvm.org.apache.spark.sql.classic.Dataset
        return ClassicDataFrame(dataset.ofRows(session._jsparkSession, streaming), session)
    except _GONE as error:
        raise SettingError(
            f"Spark {session.version} cannot send a row to every bucket: what this Trailmark uses "
            f"of its planner is not there ({error!r}).",
            where="SparkSession",
            fix="Use a newer Trailmark, or a Spark from 4.0 to 4.3.",
        ) from error


def driver_directory(session: SparkSession) -> str | None:
    """The directory from which Spark's driver goes with relative paths."""
    try:
        jvm: Any = session.sparkContext._jvm
        return str(jvm.System.getProperty("user.dir"))
    except _GONE:
        return None


def checkpoint_of(query: StreamingQuery) -> str | None:
    """Where Spark keeps the checkpoint of a running query; None if this Spark does not tell.

    ``StreamExecution.resolvedCheckpointRoot`` is a path as Hadoop spells it, with its scheme and
    without escapes.
    """
    try:
        found = query._jsq.streamingQuery().resolvedCheckpointRoot()
    except _GONE:
        return None
    return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class StreamSource:
    """A source of a stream that has a path, by the name of its format."""

    format: str
    path: str


def stream_sources(df: DataFrame) -> list[StreamSource]:
    """The sources with paths that a streaming DataFrame reads."""
    try:
        leaves = df._jdf.queryExecution().analyzed().collectLeaves()
        return [found for n in range(leaves.size()) for found in _sources(leaves.apply(n))]
    except _GONE:
        return []


def _sources(leaf: Any) -> Iterator[StreamSource]:
    kind = leaf.nodeName()
    if kind == "StreamingRelation":
        source = leaf.dataSource()
        path = source.options().get("path")
        if path.isDefined():
            yield StreamSource(source.className(), path.get())
    elif kind == "StreamingRelationV2":
        path = leaf.extraOptions().get("path")
        if path is not None:
            yield StreamSource(leaf.sourceName(), path)


def is_running(spark: SparkSession) -> bool:
    """Whether a session has not been stopped."""
    return getattr(spark.sparkContext, "_jsc", None) is not None


def wait_for_events(spark: SparkSession, patience_ms: int) -> bool:
    """Waits until all listeners have been told what has happened; False if that is not known.

    ``LiveListenerBus.waitUntilEmpty`` raises when it has waited for too long.
    """
    try:
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(patience_ms)
    except _GONE:
        return False
    return True


def tell_briefly(
    spark: SparkSession, listener: StreamingQueryListener, on_batch: OnBatch | None
) -> None:
    """Has ``on_batch`` called instead of a listener's ``onQueryProgress``, before it is added.

    PySpark makes Python objects of all that is in an event, whether anybody looks at them or not.
    That takes some 450 calls into the JVM for every batch, and more time than a small batch. Where
    names are missing, ``onQueryProgress`` is called as ever.
    """
    try:
        from pyspark.java_gateway import ensure_callback_server_started
        from pyspark.sql.streaming.listener import JStreamingQueryListener

        context: Any = spark.sparkContext
        ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
        streaming = context._jvm.org.apache.spark.sql.streaming
        brief = _BriefEvents(JStreamingQueryListener(listener), on_batch)
        listener._jlistenerobj = streaming.PythonStreamingQueryListenerWrapper(brief)
    except _GONE:
        return


class _BriefEvents:
    """What the JVM calls for a listener."""

    def __init__(self, whole: Any, on_batch: OnBatch | None) -> None:
        self.onQueryStarted = whole.onQueryStarted
        self.onQueryIdle = whole.onQueryIdle
        self.onQueryTerminated = whole.onQueryTerminated
        self._on_batch = on_batch

    def onQueryProgress(self, event: Any) -> None:
        if self._on_batch is not None:
            done = event.progress()
            query_id, run = UUID(done.id().toString()), UUID(done.runId().toString())
            self._on_batch(query_id, run, int(done.batchId()))

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
