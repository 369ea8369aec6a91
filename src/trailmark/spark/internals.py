"""Names inside of Spark that have no public counterpart in PySpark.

Another version may lack any of them. Then these functions have no answer, and whoever asks does
without: ``tests/spark/test_internals.py`` says what is expected of Spark, and what is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trailmark.values import dataclass

#: What comes of a name that is not there (py4j knows a package of it, or nothing), and of a JVM
#: that is not.
_GONE = (Py4JError, AttributeError, OSError, TypeError)


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
