"""`standby`: one of several drivers runs the queries, the others are ready to.

What keeps the results right is not here. A former active one may wake at any moment; every segment,
manifest and decision is published if absent, and Spark's own log of offsets says which rows a batch
has. So the worst that two drivers can do is the same batch, and all but one of them fail soon.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType
from typing import Literal, TypeAlias

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession, is_remote
from pyspark.sql.streaming.query import StreamingQuery

from trailmark import units
from trailmark.errors import SettingError, TrailmarkError
from trailmark.leases import Holder, Keeper, Keeping, Pass, check_term, open_lease
from trailmark.leases.fence import VARIABLE
from trailmark.log import Storage
from trailmark.log.storage.urls import redacted
from trailmark.settings import SECOND, parse_duration
from trailmark.spark.connect import is_connect, refused
from trailmark.spark.internals import is_running
from trailmark.spark.own_sources import register_again
from trailmark.spark.register import register
from trailmark.spark.rehearsal import (
    QUERY,
    Rehearsals,
    Rehearse,
    is_local,
    scratch_directory,
)
from trailmark.spark.tables_ahead import TablesAhead, say_own_work

_log = logging.getLogger("trailmark")

Build: TypeAlias = Callable[[SparkSession], StreamingQuery | Iterable[StreamingQuery]]
Ending: TypeAlias = Literal["finished", "stopped", "lost"]

_PAUSE_S = 0.1
#: What a query says that meets the last write of the former active one in Spark's checkpoint, or in
#: the log of a sink of files.
_MET_ANOTHER = (
    "Multiple streaming jobs detected for",
    "Multiple streaming queries are concurrently using",
    "Race while writing batch",
)
#: So often in a row it is started again for that: a process that wakes gets to a write or two.
_MOST_STARTS = 5
#: What has run for so long was no start in a row.
_LASTS_S = 60.0


def standby(
    build: Build,
    *,
    lease: str | os.PathLike[str],
    term: str | timedelta = "1 second",
    session: SparkSession | None = None,
    name: str | None = None,
    rehearse: Rehearse | None = None,
    patience: str | timedelta = "30 seconds",
) -> Ending:
    """Run queries here if no other process does; else be ready to.

    Start the same script twice, on two hosts or on one. The first takes the lease and runs the
    queries. The other keeps Spark and its Python workers warm; when the first has been silent for a
    term, it starts the queries where their logs and checkpoints are. ``SIGTERM`` ends a process
    after the current batch, and hands over at once.

    Parameters
    ----------
    build
        Defines and starts the queries, and returns them. Called when the lease is had.
    lease
        Directory or ``s3://`` URL, which all that take part can reach; where the logs are is a good
        place, beside them. Applications have one each.
    term
        How long the active one may be silent before it is replaced: longer than any pause that is
        no failure.
    session
        Where the queries run; by default the session that is there, or a new one.
    name
        What `trailmark status` and the logs call this process; host and process number by default.
    rehearse
        What else to run while waiting, now and then, with the session: for example the user's own
        plan as a batch query on no rows. It must not write what the queries write.
    patience
        How long ``SIGTERM`` waits for the current batch.

    Returns
    -------
    str
        ``"finished"`` if all queries have ended by themselves, ``"stopped"`` after ``SIGTERM``,
        ``"lost"`` if another process has the lease and goes on. If a query fails, its exception is
        raised, and the other process goes on.

    Examples
    --------
    >>> def build(spark):                                              # doctest: +SKIP
    ...     orders = spark.readStream.format("trailmark").load("/data/orders")
    ...     counts = tm.aggregate(orders, by="item", window=tm.count_window(100),
    ...                           values={"mean": tm.avg("price")}, path="/data/averages")
    ...     return counts.writeStream.option("checkpointLocation", "/data/ckpt").start("/data/out")
    >>> tm.standby(build, lease="/data/averages.lease")                # doctest: +SKIP
    'stopped'
    """
    _check_arguments(build, rehearse, name)
    term_us = check_term(term)
    patience_s = parse_duration(patience, "patience") / SECOND
    path, storage = open_lease(lease, term_us)
    if is_remote() if session is None else is_connect(session):
        why = "the lease is passed on through the driver, which it takes over"
        raise refused("tm.standby", why, "session")
    spark = SparkSession.builder.getOrCreate() if session is None else session
    holder = Holder.of_process(name)
    keeper = Keeper(path, storage, holder, term_us)
    scratch = scratch_directory()
    ready = _Readiness(keeper)
    rehearsals = Rehearsals(spark, scratch, rehearse, ready.say_rehearsed)
    ahead = TablesAhead(storage, ready.say_tables) if is_local(spark) else None
    passed = Pass(path, holder.token, term_us, f"{scratch}{os.sep}")
    with _passed_on(spark, passed), _Terminated() as terminated:
        keeper.start()
        try:
            if not _wait(keeper, rehearsals, ahead, terminated):
                return "stopped"
            active = _Active(spark, build, keeper, path, storage, terminated, patience_s)
            return active.run()
        finally:
            keeper.end()
            rehearsals.clear()


def _check_arguments(build: object, rehearse: object, name: object) -> None:
    for what, given in (("build", build), ("rehearse", rehearse)):
        if not callable(given) and not (what == "rehearse" and given is None):
            raise SettingError(
                f"{what} must be a function of the session, got {given!r}.",
                where=what,
                fix="Give the function itself, without calling it.",
            )
    if name is not None and not (isinstance(name, str) and 0 < len(name) <= 100):
        raise SettingError(
            f"{name!r} cannot be the name of a process.",
            where="name",
            fix="Use up to 100 characters, such as 'orders-a'.",
        )
    if VARIABLE in os.environ:
        raise SettingError(
            "This process takes part in a lease already.",
            where="lease",
            fix="Call tm.standby once in a process; build may start several queries.",
        )


def _wait(
    keeper: Keeper, rehearsals: Rehearsals, ahead: TablesAhead | None, terminated: _Terminated
) -> bool:
    """Waits for the lease, and rehearses and follows meanwhile; False if the process is to end."""
    # Whoever has it at once needs no rehearsal.
    if keeper.wait_while(Keeping.WAITING, _PAUSE_S) is Keeping.WAITING:
        rehearsals.start()
        if ahead is not None:
            ahead.start()
    try:
        while keeper.wait_while(Keeping.WAITING, _PAUSE_S) is Keeping.WAITING:
            if terminated.is_set:
                return False
    finally:
        if ahead is not None:
            ahead.end()
    rehearsals.end()
    return True


class _Readiness:
    """What is told to those who look: of the rehearsals, and of the tables."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._rehearsed = self._tables = self._said = ""

    def say_rehearsed(self, text: str) -> None:
        self._rehearsed = text
        self._say()

    def say_tables(self, text: str) -> None:
        self._tables = text
        self._say()

    def _say(self) -> None:
        text = "; ".join(filter(None, (self._rehearsed, self._tables)))
        if text != self._said:  # each time is a file
            self._said = text
            self._keeper.say_ready(text)


class _Active:
    """Runs the queries as long as the lease is this process's."""

    def __init__(
        self,
        spark: SparkSession,
        build: Build,
        keeper: Keeper,
        path: str,
        storage: Storage,
        terminated: _Terminated,
        patience_s: float,
    ) -> None:
        self._spark = spark
        self._build = build
        self._keeper = keeper
        self._path = redacted(path)
        self._storage = storage
        self._terminated = terminated
        self._patience_s = patience_s
        self._queries: list[StreamingQuery] = []

    def run(self) -> Ending:
        """Until they end, the lease is lost, or the process is told to end."""
        starts = 0
        try:
            while self._keeper.state is Keeping.HELD:
                starts += 1
                began_s = time.monotonic()
                try:
                    self._start()
                    return self._follow()
                except Exception as error:
                    if not self._keeper.is_still_held():
                        return "lost"
                    if time.monotonic() - began_s > _LASTS_S:
                        starts = 0
                    if not _met_another(error) or starts >= _MOST_STARTS:
                        raise
                    _log.warning(
                        "lease %s: the former active one wrote once more to a checkpoint of "
                        "Spark; the queries are started again",
                        self._path,
                    )
                    self._stop()
            return "lost"
        finally:
            self._stop()

    def _start(self) -> None:
        began_s = time.monotonic()
        self._queries = []
        others = {query.runId for query in self._spark.streams.active}
        try:
            self._queries = _checked(self._build(self._spark))
        except BaseException:
            # What it has started by then must not go on unwatched.
            with suppress(Py4JError, OSError):
                self._queries = [
                    query
                    for query in self._spark.streams.active
                    if query.runId not in others and not (query.name or "").startswith(QUERY)
                ]
            raise
        self._say_work()
        took = units.duration((time.monotonic() - began_s) * SECOND)
        _log.info(
            "lease %s: queries started in %s: %s",
            self._path,
            took,
            ", ".join(str(query.name or query.id) for query in self._queries),
        )

    def _say_work(self) -> None:
        """For those that wait. On a cluster nobody knows where buckets will be."""
        if not is_local(self._spark):
            return
        try:
            say_own_work(self._storage)
        except TrailmarkError as error:
            _log.debug("lease %s: nobody is told what runs: %s", self._path, error.line)

    def _follow(self) -> Ending:
        while True:
            if self._keeper.wait_while(Keeping.HELD, _PAUSE_S) is Keeping.LOST:
                return "lost"
            if self._terminated.is_set:
                _log.info("lease %s: told to end; the current batch is the last", self._path)
                for query in self._queries:
                    _wait_for_batch(query, self._patience_s)
                return "stopped"
            ended = [query for query in self._queries if not query.isActive]
            for query in ended:
                query.awaitTermination()  # raises what it failed with
            if len(ended) == len(self._queries):
                return "finished"

    def _stop(self) -> None:
        """Stops all queries, but waits for none that hangs: the lease must not wait for it."""
        threads = [
            threading.Thread(target=_stop, args=(query,), daemon=True) for query in self._queries
        ]
        for thread in threads:
            thread.start()
        until_s = time.monotonic() + self._patience_s
        for thread in threads:
            thread.join(max(0.0, until_s - time.monotonic()))
        if any(thread.is_alive() for thread in threads):
            _log.warning("lease %s: a query does not stop; nobody waits for it", self._path)


def _stop(query: StreamingQuery) -> None:
    try:
        query.stop()
    except (Py4JError, OSError) as error:
        # The JVM is gone, or was told to end together with this process.
        _log.debug("a query was not stopped: %r", error)
    except Exception as error:  # noqa: BLE001 - it has failed before, and that was told
        _log.debug("a query was not stopped: %s", error)


def _wait_for_batch(query: StreamingQuery, patience_s: float) -> None:
    """Waits until no batch runs, or the one that runs is done."""
    until_s = time.monotonic() + patience_s
    try:
        last = _newest_batch(query)
        while query.isActive and query.status["isTriggerActive"]:
            if _newest_batch(query) != last or time.monotonic() > until_s:
                return
            time.sleep(0.01)
    except (Py4JError, OSError):
        return  # the JVM was told to end, too


def _newest_batch(query: StreamingQuery) -> int | None:
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


def _checked(built: object) -> list[StreamingQuery]:
    """The queries that were started; whatever else is refused."""
    queries = [built] if isinstance(built, StreamingQuery) else built
    if isinstance(queries, Iterable) and not isinstance(queries, str | bytes):
        found = list(queries)
        if found and all(isinstance(each, StreamingQuery) for each in found):
            return found
    got = "nothing" if built is None else repr(built)
    raise SettingError(
        f"build returned {got}, not the queries that it has started.",
        where="build",
        fix="End it with `return df.writeStream...start(...)`, or return a list of queries.",
    )


def _met_another(error: Exception) -> bool:
    return any(words in str(error) for words in _MET_ANOTHER)


@contextmanager
def _passed_on(spark: SparkSession, passed: Pass) -> Iterator[None]:
    """All Python processes of the application, and this one, find its pass."""
    places = (os.environ, spark.sparkContext.environment)
    for place in places:
        place[VARIABLE] = passed.to_text()
    _register_all(spark)
    try:
        yield
    finally:
        for place in places:
            place.pop(VARIABLE, None)
        if is_running(spark):
            with suppress(Py4JError, OSError):  # the JVM may be gone
                _register_all(spark)


def _register_all(spark: SparkSession) -> None:
    """Sources and sinks keep the environment that they were made known with."""
    register(spark)
    register_again(spark)


class _Terminated:
    """Whether the process was told to end, where signals can be had."""

    def __init__(self) -> None:
        self._is_set = threading.Event()
        self._before: object = None
        # What was not set from Python, by whoever embeds it, could not be put back.
        self._is_here = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is not None
        )

    @property
    def is_set(self) -> bool:
        return self._is_set.is_set()

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self._is_set.set()

    def __enter__(self) -> _Terminated:
        if self._is_here:
            self._before = signal.signal(signal.SIGTERM, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_here:
            signal.signal(signal.SIGTERM, self._before)  # type: ignore[arg-type]
