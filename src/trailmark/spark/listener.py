"""Follows streaming queries: marks what they have committed, and says what recoveries did."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from trailmark.engine.commits import mark_committed, mark_rolled_back
from trailmark.engine.progress import Progress, Recovery, read_progress
from trailmark.errors import LogError, StorageError
from trailmark.log import open_storage, read_meta
from trailmark.spark import paths

_log = logging.getLogger("trailmark")

#: Batches and recoveries that are remembered.
_REMEMBERED = 1000

OnProgress = Callable[[str, Progress], None]


class TrailmarkListener(StreamingQueryListener):
    """Follows the operators that this driver has made with ``tm.aggregate``.

    Attributes
    ----------
    progress
        Path and progress of the last batches, newest last.
    recoveries
        Path and report of the last recoveries, newest last.
    """

    def __init__(self, on_progress: OnProgress | None = None) -> None:
        self.progress: deque[tuple[str, Progress]] = deque(maxlen=_REMEMBERED)
        self.recoveries: deque[tuple[str, Recovery]] = deque(maxlen=_REMEMBERED)
        self._on_progress = on_progress
        self._unreachable: set[str] = set()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing has happened yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No batch, nothing to mark."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was committed is marked already."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark has committed a batch."""
        query_id, batch = str(event.progress.id), int(event.progress.batchId)
        for path in paths.known():
            try:
                self._follow(path, query_id, batch)
            except (LogError, StorageError) as error:
                # The query itself refuses what is wrong with its logs; here it is only looked at.
                _log.warning("%s: batch %d cannot be followed: %s", path, batch, error)

    def _follow(self, path: str, query_id: str, batch: int) -> None:
        storage = open_storage(path)
        meta = read_meta(storage)
        if meta is None or meta.query_id != query_id:
            return
        if not mark_committed(storage, batch):
            mark_rolled_back(storage, batch)
            _log.error("%s: batch %d was committed twice; the query is refused", path, batch)
            return
        found = read_progress(storage, meta, batch)
        self.progress.append((path, found))
        self.recoveries.extend((path, recovery) for recovery in found.recoveries)
        self._log(path, found)
        if self._on_progress is not None:
            self._on_progress(path, found)

    def _log(self, path: str, found: Progress) -> None:
        for recovery in found.recoveries:
            _log.warning("%s: %s", path, recovery)
        _log.info(
            "%s: batch %d, %s tuples, %s results, %s windows open, recovery would take %.0f ms",
            path,
            found.batch,
            f"{found.tuples:,}",
            f"{found.results:,}",
            f"{found.open_windows:,}",
            found.predicted_us / 1000,
        )
        if not found.is_reachable and path not in self._unreachable:
            self._unreachable.add(path)
            _log.warning(
                "%s: with %s windows open the recovery target cannot be met; use more buckets, "
                "or ask for less",
                path,
                f"{found.open_windows:,}",
            )


def listen(spark: SparkSession, on_progress: OnProgress | None = None) -> TrailmarkListener:
    """Follow the Trailmark operators of all queries of a session.

    Batches that Spark has committed are marked in the operators' logs, progress goes to the logger
    ``trailmark`` (recoveries as warnings, batches as information), and the listener remembers both.

    Parameters
    ----------
    spark
        The session whose queries are followed.
    on_progress
        Called with the path and the progress of every batch.

    Examples
    --------
    >>> listener = tm.listen(spark)                       # doctest: +SKIP
    >>> for path, recovery in listener.recoveries:        # doctest: +SKIP
    ...     print(path, recovery)
    """
    listener = TrailmarkListener(on_progress)
    spark.streams.addListener(listener)
    return listener
