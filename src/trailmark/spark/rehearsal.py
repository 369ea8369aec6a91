"""What a standby does while it waits: it runs a small query, so that a real one starts quickly.

The first query of a session takes seconds: Spark loads classes and compiles code, Python workers
start and import. Workers that have nothing to do for a minute are closed. So the small query, an
aggregate on a stream of its own, runs again and again, in a directory of its own with a cache
of its own. It touches nothing of the application's.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from trailmark import units
from trailmark.settings import SECOND
from trailmark.spark import paths
from trailmark.spark.aggregate import aggregate
from trailmark.streams.own_writer import stream_writer
from trailmark.windows.functions import count
from trailmark.windows.spec import time_window

_log = logging.getLogger("trailmark")

#: Less than the minute after which Spark closes idle workers.
_EVERY_S = 45.0
_ROWS = 64
_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])
#: How long the end waits for a run that has begun.
_PATIENCE_S = 10.0
#: How the names of these queries begin.
QUERY = "trailmark rehearsal"

Rehearse = Callable[[SparkSession], object]


def scratch_directory() -> Path:
    """A directory for the rehearsals of one process."""
    return Path(tempfile.mkdtemp(prefix="trailmark-standby-"))


class Rehearsals:
    """Runs rehearsals in a thread until it is told to end.

    Parameters
    ----------
    session
        Where they run.
    scratch
        Where they write.
    also
        What the user wants to be run with each of them.
    say
        Told how ready the process is.
    """

    def __init__(
        self,
        session: SparkSession,
        scratch: Path,
        also: Rehearse | None,
        say: Callable[[str], None],
    ) -> None:
        self._session = session
        self._scratch = scratch
        self._also = also
        self._say = say
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trailmark rehearsals", daemon=True)

    def start(self) -> None:
        """Begins with the first one."""
        self._say("cold: Spark is up, its workers are not")
        self._thread.start()

    def end(self) -> None:
        """Begins no more of them. One that runs goes on: what it loads is wanted anyway."""
        self._ends.set()

    def clear(self) -> None:
        """Waits for the last one and removes what it has left."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _run(self) -> None:
        number = 0
        while not self._ends.is_set():
            number += 1
            began_s = time.monotonic()
            try:
                rehearse(self._session, self._scratch)
                if self._also is not None and not self._ends.is_set():
                    self._also(self._session)
            except Exception as error:  # noqa: BLE001 - it is the user's code, or Spark is going
                if self._ends.is_set():
                    return
                self._say(f"cold: rehearsal {number} failed")
                _log.warning("A rehearsal failed, the standby waits on: %s", _first_line(error))
            else:
                took = units.duration((time.monotonic() - began_s) * SECOND)
                self._say(f"warm: rehearsal {number} took {took}")
            self._ends.wait(_EVERY_S)


def rehearse(session: SparkSession, scratch: Path) -> None:
    """Runs the small query to its end: a batch with rows, and one that closes windows."""
    # The directory is on this host alone, and logs in it only do where all workers are.
    writer = _counted(session, scratch) if is_local(session) else _touched(session)
    query = (
        writer.queryName(f"{QUERY} {scratch.name}")
        .option("checkpointLocation", (scratch / "checkpoint").as_uri())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def is_local(session: SparkSession) -> bool:
    """Whether all workers are on the host of the driver."""
    return str(session.sparkContext.master).startswith("local")


def _counted(session: SparkSession, scratch: Path) -> DataStreamWriter:
    """A stream through an operator with logs into files: what most queries are made of."""
    stream, path, out = (str(scratch / name) for name in ("stream", "logs", "out"))
    writer = stream_writer(stream, _SCHEMA, name="rehearsal", retention_batches=1)
    number = writer.last + 1
    times = pa.array([number * SECOND] * _ROWS, _SCHEMA.field("at").type)
    writer.append(pa.table([times, list(range(_ROWS))], schema=_SCHEMA))
    rows = session.readStream.format("trailmark").load(stream)
    counts = aggregate(
        rows,
        by="item",
        window=time_window("at", "1 second"),
        values={"n": count()},
        path=path,
        cache_dir=str(scratch / "cache"),
        retain_batches=1,
    )
    paths.forget(path)
    shutil.rmtree(out, ignore_errors=True)  # or it would grow, file by file
    return counts.writeStream.format("parquet").option("path", out)


def _touched(session: SparkSession) -> DataStreamWriter:
    """Rows that Spark makes up, through workers that import what an operator needs."""
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()

    def touch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import trailmark.spark.task  # noqa: F401  (in the worker)

        yield from batches

    parallel = rows.sparkSession.sparkContext.defaultParallelism
    touched = rows.repartition(parallel, "value").mapInArrow(touch, rows.schema)
    return touched.writeStream.format("noop")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
