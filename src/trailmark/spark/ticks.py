"""Ticks: batches that run because time windows may close, though no rows have come.

Spark runs a batch when one of its sources has a new offset. `TickSource` is a source that never has
rows; its offset moves when the watermark of the next batch is beyond that of the newest one, as in
Spark's own windows. So windows close when the stream pauses or a run ends, not with the next rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import datasource as spark
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from trailmark.engine.ticks import DueBatch
from trailmark.errors import LogError, StorageError
from trailmark.log import MonotonicClock, monotonic_us, open_storage, wall_clock_us
from trailmark.records import NO_BATCH
from trailmark.spark.limits import SupportsTriggerAvailableNow
from trailmark.spark.own_sources import register_once

_log = logging.getLogger("trailmark")

#: Spark's own setting for batches without data.
_SETTING = "spark.sql.streaming.noDataMicroBatches.enabled"
#: How often a query that waits for data looks at the logs, though nothing should have changed.
_LOOK_EVERY_US = 1_000_000


def ticks_for(session: SparkSession, path: str, *, is_asked: bool) -> DataFrame:
    """A stream without rows, for the operator whose logs are there; unless it is asked for them, it
    has no batches of its own either."""
    register_once(session, TickSource)
    setting = str(session.conf.get(_SETTING)) if is_asked else "false"
    return session.readStream.format(TickSource.name()).options(operator=path, on=setting).load()


def with_columns_of(ticks: DataFrame, stream: DataFrame) -> DataFrame:
    """Ticks that can be united with a stream."""
    return ticks.select(
        *(F.lit(None).cast(field.dataType).alias(field.name) for field in stream.schema)
    )


class TickSource(spark.DataSource):
    """The entry point that Spark looks for; only operators with event time use it."""

    @classmethod
    def name(cls) -> str:
        return "trailmark_ticks"

    def schema(self) -> str:
        return "tick INT"

    def streamReader(self, schema: StructType) -> TickReader:
        return TickReader(self.options["operator"], is_on=self.options["on"].lower() == "true")


class TickReader(spark.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Says when a batch is due.

    An offset names the batch after which one was. Batches that are repeated have no rows of this
    source either, so nothing depends on when it was said.
    """

    def __init__(self, path: str, *, is_on: bool, now_us: MonotonicClock = monotonic_us) -> None:
        self._path = path
        self._is_on = is_on
        self._now_us = now_us
        self._due: DueBatch | None = None
        self._position = self.initialOffset()
        self._ends_us: int | None = None
        self._looked_us: float | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"batch": NO_BATCH}

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The newest batch if another one is due after it; else where Spark stands.

        Before version 4.2, Spark does not say where it stands, except when a query starts.
        """
        self._position = start or self._position
        if self._is_on and self._is_time_to_look():
            self._look()
        if self._due is not None and self._due.after > self._position["batch"]:
            self._position = {"batch": self._due.after}
        return self._position

    def prepareForTriggerAvailableNow(self) -> None:
        """The run ends with what is due by now: timers that set themselves again would keep it
        going for ever. What watermarks ask for ends by itself."""
        self._ends_us = wall_clock_us()

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[spark.InputPartition]:
        self._position = end
        self._looked_us = None
        return []

    def read(self, partition: spark.InputPartition) -> Iterator[tuple[Any, ...]]:
        raise AssertionError("there are no partitions")

    def commit(self, end: dict[str, Any]) -> None:
        """Another batch begins: what was seen does not hold any more."""
        self._looked_us = None

    def stop(self) -> None:
        """Nothing is held."""

    def _is_time_to_look(self) -> bool:
        """An idle query asks a hundred times a second. Where the next answer may be the last one
        of a run, it comes from the logs as they are."""
        if self._ends_us is not None or self._looked_us is None:
            return True
        return self._now_us() - self._looked_us >= _LOOK_EVERY_US

    def _look(self) -> None:
        self._looked_us = self._now_us()
        try:
            if self._due is None:
                self._due = DueBatch(open_storage(self._path))
                if self._ends_us is not None:
                    self._due.end_at(self._ends_us)
            self._due.look()
        except (LogError, StorageError) as error:
            # The operator itself refuses what is wrong with its logs; here it is only looked at.
            _log.warning("%s: cannot see whether a batch is due: %s", self._path, error)
