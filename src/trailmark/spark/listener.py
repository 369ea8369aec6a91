"""Follows streaming queries: marks what they have committed, and says what recoveries did.

A session may have several listeners. Each of them gets its events, but what is done for an event
is done once. One that calls a function goes when a function of that name is given again: a cell of
a notebook is run a second time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from types import FunctionType
from uuid import UUID

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from trailmark.engine.commits import RunMarks
from trailmark.engine.progress import Progress, Recovery, read_progress
from trailmark.engine.tentative import STABLE
from trailmark.errors import LeaseLost, LogError, StorageError
from trailmark.log import OperatorMeta, Storage, read_meta
from trailmark.metrics import MetricsServer
from trailmark.spark import paths
from trailmark.spark.metrics import metrics_on
from trailmark.spark.sessions import (
    add_listener,
    listeners_of,
    refusal_in,
    remove_listener,
)
from trailmark.spark.storages import open_to_write

_log = logging.getLogger("trailmark")

#: Batches and recoveries that are remembered.
_REMEMBERED = 1000

OnProgress = Callable[[str, Progress], None]


class _Followed:
    """What the queries of this process have done, found out once for all listeners."""

    def __init__(self) -> None:
        self._marks: dict[tuple[str, UUID], RunMarks] = {}
        self._newest: dict[str, tuple[UUID, int, Progress | None]] = {}
        self._unreachable: set[str] = set()
        self._phases: dict[str, str] = {}

    def begin(self, query_id: UUID, run: UUID) -> None:
        """Takes note of what was marked in a query's operators before a run of it."""
        for path in paths.known():
            try:
                storage = open_to_write(path)
                meta = read_meta(storage)
                if meta is None or meta.query_id == str(query_id):
                    self._marks.setdefault((path, run), RunMarks(storage, str(run)))
            except (LeaseLost, LogError, StorageError) as error:
                _log.warning("%s: the run of a query cannot be followed: %s", path, error.line)

    def end(self, run: UUID) -> None:
        for key in list(self._marks):  # other queries may begin meanwhile
            if key[1] == run:
                self._marks.pop(key, None)

    def progress(self, query_id: UUID, run: UUID, batch: int) -> list[tuple[str, Progress]]:
        """The progress of a query's operators with a batch that Spark has committed."""
        found = [(path, self._of(path, query_id, run, batch)) for path in paths.known()]
        return [(path, progress) for path, progress in found if progress is not None]

    def _of(self, path: str, query_id: UUID, run: UUID, batch: int) -> Progress | None:
        known = self._newest.get(path)
        if known is not None and known[:2] == (run, batch):
            return known[2]
        progress = None
        try:
            storage = open_to_write(path)
            meta = read_meta(storage)
            if meta is not None and meta.query_id == str(query_id):
                progress = self._follow(path, storage, meta, run, batch)
        except LeaseLost as error:
            # Its successor marks the batch; whoever keeps the lease says that it is lost.
            _log.debug("%s: batch %d is not marked: %s", path, batch, error.line)
        except (LogError, StorageError) as error:
            # The query itself refuses what is wrong with its logs; here it is only looked at.
            _log.warning("%s: batch %d cannot be followed: %s", path, batch, error.line)
        self._newest[path] = (run, batch, progress)
        return progress

    def _follow(
        self, path: str, storage: Storage, meta: OperatorMeta, run: UUID, batch: int
    ) -> Progress | None:
        marks = self._marks.get((path, run))
        if marks is None:
            marks = self._marks[path, run] = RunMarks(storage, str(run))
        if not marks.commit(batch):
            _log.error("%s: the query has gone back to batch %d and is refused", path, batch)
            return None
        progress = read_progress(storage, meta, batch)
        self._tell(path, progress)
        return progress

    def _tell(self, path: str, found: Progress) -> None:
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
        before = self._phases.get(path, STABLE)
        if found.phase != before:
            self._phases[path] = found.phase
            _log.warning(
                "%s: %s after %s, from batch %d on, which has %s tentative results",
                path,
                found.phase,
                before,
                found.batch,
                f"{found.tentative:,}",
            )
        if not found.is_reachable and path not in self._unreachable:
            self._unreachable.add(path)
            _log.warning(
                "%s: with %s windows open the recovery target cannot be met; use more buckets, "
                "or ask for less",
                path,
                f"{found.open_windows:,}",
            )


_followed = _Followed()


class TrailmarkListener(StreamingQueryListener):
    """Follows the operators that this driver has made with ``tm.aggregate``.

    Attributes
    ----------
    progress
        Path and progress of the last batches, newest last.
    recoveries
        Path and report of the last recoveries, newest last.
    refusals
        Ids of the last queries that Trailmark has stopped, and why, on one line each.
    metrics
        The server of their figures, if one was asked for.
    """

    def __init__(self, on_progress: OnProgress | None = None) -> None:
        self.progress: deque[tuple[str, Progress]] = deque(maxlen=_REMEMBERED)
        self.recoveries: deque[tuple[str, Recovery]] = deque(maxlen=_REMEMBERED)
        self.refusals: deque[tuple[str, str]] = deque(maxlen=_REMEMBERED)
        self.metrics: MetricsServer | None = None
        self.on_progress = on_progress

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Before the run commits anything, and the query waits for this."""
        _followed.begin(event.id, event.runId)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """No batch, nothing to mark."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was committed is marked already."""
        _followed.end(event.runId)
        refusal = refusal_in(event.exception)
        if refusal is not None:
            self.refusals.append((str(event.id), refusal))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Spark has committed a batch."""
        done = event.progress
        self.onBatch(done.id, done.runId, int(done.batchId))

    def onBatch(self, query_id: UUID, run: UUID, batch: int) -> None:
        """The same, from an event that was not read further."""
        for path, found in _followed.progress(query_id, run, batch):
            self.progress.append((path, found))
            self.recoveries.extend((path, recovery) for recovery in found.recoveries)
            if self.on_progress is not None:
                self.on_progress(path, found)


def listen(
    spark: SparkSession,
    on_progress: OnProgress | None = None,
    *,
    metrics: int | None = None,
) -> TrailmarkListener:
    """Follow the Trailmark operators of all queries of a session.

    Batches that Spark has committed are marked in the operators' logs, progress goes to the logger
    ``trailmark`` (recoveries as warnings, batches as information), and the listener remembers both.
    It may be called again: every listener gets all events, but each is marked and logged once. A
    listener that calls a function of a module or a notebook takes the place of one that calls an
    earlier definition of it, so a cell may be run again.

    Parameters
    ----------
    spark
        The session whose queries are followed.
    on_progress
        Called with the path and the progress of every batch.
    metrics
        A port of this machine on which Prometheus finds figures of all these operators, under
        ``/metrics``; 0 is any free one, and ``listener.metrics.url`` says which. Needs
        ``pip install 'trailmark[metrics]'``. Calls that name the same port share it.

    Examples
    --------
    >>> listener = tm.listen(spark, metrics=9090)         # doctest: +SKIP
    >>> for path, recovery in listener.recoveries:        # doctest: +SKIP
    ...     print(path, recovery)
    """
    earlier = [each for each in listeners_of(spark) if _takes_the_place_of(on_progress, each)]
    listener = TrailmarkListener(on_progress)
    if metrics is not None:
        listener.metrics = metrics_on(metrics)
    add_listener(spark, listener, on_batch=listener.onBatch)
    # Not before: a client of Spark Connect that takes its last listener away waits for events, and
    # for ever if one is on its way.
    for each in earlier:
        remove_listener(spark, each)
    for query in spark.streams.active:
        _followed.begin(UUID(query.id), UUID(query.runId))
    return listener


def _takes_the_place_of(function: OnProgress | None, earlier: StreamingQueryListener) -> bool:
    return isinstance(earlier, TrailmarkListener) and _is_again(function, earlier.on_progress)


def _is_again(function: OnProgress | None, earlier: OnProgress | None) -> bool:
    """Whether two functions are defined under one name that a module or notebook has but once."""
    if not isinstance(function, FunctionType) or not isinstance(earlier, FunctionType):
        return False
    is_local = "<" in function.__qualname__  # one of <locals>, or a <lambda>
    names = [(each.__module__, each.__qualname__) for each in (function, earlier)]
    return not is_local and names[0] == names[1]
