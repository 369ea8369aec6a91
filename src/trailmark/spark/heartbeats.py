"""`with_heartbeat`: a stream that says when its source was asked and had nothing more.

A sink cannot say so by itself: Spark runs no batch while nothing comes. So a source is added that
has one row now and then, with a time at which all sources were asked in vain. The sink takes these
rows out again and tells the readers of the stream (`trailmark.streams.heartbeats`). They travel
with the batch, so a batch that is repeated says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import datasource as spark
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from trailmark.errors import SettingError
from trailmark.log import Clock, wall_clock_us
from trailmark.settings import parse_duration
from trailmark.spark.limits import SupportsTriggerAvailableNow
from trailmark.spark.options import HEARTBEAT
from trailmark.spark.own_sources import register_once


def with_heartbeat(df: DataFrame, every: str | timedelta = "500 ms") -> DataFrame:
    """Let a stream that is silent say that it is complete up to now.

    To be written with ``format("trailmark")`` and the options ``timeColumn`` and ``delay``: the
    boundary of the stream then moves with the clock while the source is asked and has nothing more,
    less the delay. Without it the boundary moves with the times of rows alone. Nothing is said
    while rows are still to be read, or while a source does not answer.

    Parameters
    ----------
    df
        A streaming DataFrame, as it is about to be written: what changes its columns comes before.
    every
        How often, at most.

    Examples
    --------
    >>> writer = tm.with_heartbeat(orders, "500 ms").writeStream        # doctest: +SKIP
    >>> writer = writer.format("trailmark").option("timeColumn", "at")  # doctest: +SKIP
    >>> writer.option("delay", "1 second").start("/data/orders")        # doctest: +SKIP
    """
    every_us = parse_duration(every, "every")
    if not every_us:
        raise SettingError("Heartbeats need a time between them.", where="every", fix="Use 500 ms.")
    if not df.isStreaming:
        raise SettingError(
            "The DataFrame does not stream, so it is complete once it is written.",
            where="df",
            fix="Give one of spark.readStream, or write it without a heartbeat.",
        )
    if HEARTBEAT in df.columns:
        raise SettingError(f"There is a column {HEARTBEAT} already.", where="df")
    session = df.sparkSession
    register_once(session, HeartbeatSource)
    beats = session.readStream.format(HeartbeatSource.name()).option("every", str(every_us)).load()
    nothing = [F.lit(None).cast(each.dataType).alias(each.name) for each in df.schema]
    asked = F.timestamp_micros("asked_us").alias(HEARTBEAT)
    return df.withColumn(HEARTBEAT, F.lit(None).cast("timestamp")).union(
        beats.select(*nothing, asked)
    )


class HeartbeatSource(spark.DataSource):
    """The entry point that Spark looks for; only `with_heartbeat` uses it."""

    @classmethod
    def name(cls) -> str:
        return "trailmark_heartbeats"

    def schema(self) -> str:
        return "asked_us BIGINT"

    def streamReader(self, schema: StructType) -> HeartbeatReader:
        return HeartbeatReader(int(self.options["every"]))


@dataclass(frozen=True)
class AskedInVain(spark.InputPartition):
    """One row: a time at which nothing was there that has not been read since."""

    asked_us: int


class HeartbeatReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Finds out from what Spark asks whether the other sources had anything.

    Spark asks all sources of a query, one after another, and runs a batch if any of them has
    something new. It then calls `commit`. So when it asks again without that, none had; and all
    were asked after the time before the last.
    """

    def __init__(self, every_us: int, clock: Clock = wall_clock_us) -> None:
        self._every_us = every_us
        self._clock = clock
        self._position = self.initialOffset()
        #: When Spark asked, the last two times, if it asked twice in vain.
        self._asked: list[int] = []
        self._ends = False

    def initialOffset(self) -> dict[str, Any]:
        return {"asked_us": 0}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The newest time that may be told, if it is time to tell; else where Spark stands."""
        self._position = start or self._position
        in_vain = self._asked[0] if len(self._asked) == 2 else None
        self._asked = [*self._asked[-1:], self._clock()]
        is_due = in_vain is not None and in_vain >= self._position["asked_us"] + self._every_us
        if is_due and not self._ends:
            self._position = {"asked_us": in_vain}
        return self._position

    def prepareForTriggerAvailableNow(self) -> None:
        """The run ends when all is read: there is nobody to ask again."""
        self._ends = True

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        self._asked = []
        self._position = end
        return [AskedInVain(end["asked_us"])] if end != start else []

    def read(self, partition: spark.InputPartition) -> Iterator[tuple[int]]:
        assert isinstance(partition, AskedInVain)
        yield (partition.asked_us,)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch begins: some source had something."""
        self._asked = []

    def stop(self) -> None:
        """Nothing is held."""
