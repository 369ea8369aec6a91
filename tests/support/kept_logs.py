"""Logs that an earlier Trailmark wrote and the present one has to go on with.

They lie under ``tests/data``, packed, and are never made again. `make` is how those of format 1
were made, and `go_on` how those of both formats were made from them. What they hold follows from
the cases here, so that a test can tell what comes next::

    engine/<window>-<policy>     an operator's logs: packs, trim marks, spares, snapshots
    spark/orders                 a written stream
    spark/<window>               the logs of a query over it, ``-checkpoint`` Spark's own beside
                                 them, ``-out`` the stream that it writes to

Those of both formats are operators' logs and the written stream.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.cases import Case
from tests.support.small import SMALL_WINDOWS, small_case
from trailmark.checkpoint.policy import Policy
from trailmark.engine import Bucket, OperatorLogs
from trailmark.log import LocalStorage
from trailmark.settings import LogSettings
from trailmark.streams.description import open_stream
from trailmark.streams.stored import StreamFiles
from trailmark.streams.writer import StreamWriter
from trailmark.testing.processes import StepClock
from trailmark.windows.spec import Window

_DATA = Path(__file__).parents[1] / "data"

POLICIES: dict[str, Policy] = {
    "continuous": tm.Continuous(q=40),
    "snapshot": tm.FullSnapshot(3, asynchronous=True),
    "delta": tm.Delta(3),
}
#: Batches that the kept operators' logs hold, and how many the cases have.
KEPT = {"format-1": 20, "formats-1-and-2": 23}
BATCHES = 26
_MERGED, _TRIMMED = 6, 12
#: In a pack with the last segments of format 1.
_MERGED_BOTH = 21

#: Queries on Spark: windows of either kind.
WINDOWS: dict[str, Window] = {
    "count": tm.count_window(4),
    "time": tm.time_window("time", "5 seconds", delay="1 second"),
}
VALUES = {"total": tm.sum("price"), "n": tm.count()}
SPARK_BATCHES = 5
#: Batches of the written stream.
ORDERS = {"format-1": SPARK_BATCHES, "formats-1-and-2": SPARK_BATCHES + 2}
_ORDERS = pa.schema(
    [("item", pa.int32()), ("price", pa.int32()), ("time", pa.timestamp("us", "UTC"))]
)


def unpack(root: Path, kept: str = "format-1") -> None:
    """Puts the kept logs into a directory, to go on with."""
    with tarfile.open(_DATA / f"{kept}.tar.xz") as archive:
        archive.extractall(root, filter="data")


def engine_case(window: str) -> Case:
    """What the engine's logs are made from."""
    return small_case(SMALL_WINDOWS[window], BATCHES)


def engine_bucket(root: Path, window: str, policy: str) -> Bucket:
    """The one bucket of these logs, in a new process."""
    operator = engine_case(window).operator()
    logs = OperatorLogs(LocalStorage(root), operator, buckets=1, query_id="kept")
    return Bucket(operator, logs, 0, POLICIES[policy], now_us=StepClock())


def orders(batch: int) -> pa.Table:
    """A batch of the stream: 40 orders, three seconds further on than the batch before."""
    numbers = range(40 * batch, 40 * (batch + 1))
    columns = [
        pa.array([n * n % 7 for n in numbers], pa.int32()),
        pa.array([n * 31 % 100 for n in numbers], pa.int32()),
        pa.array([1_000_000 * (3 * batch + n % 10) for n in numbers], pa.timestamp("us", "UTC")),
    ]
    return pa.table(columns, schema=_ORDERS)


def write_orders(root: Path, first: int, end: int) -> None:
    """Adds batches to the stream."""
    storage = LocalStorage(root / "orders")
    meta = open_stream(storage, _ORDERS, time_column="time", keys=("item",), buckets=2)
    writer = StreamWriter(storage, meta, LogSettings())
    for batch in range(first, end):
        files = writer.write(orders(batch).to_batches())
        writer.commit(files, writer="kept", number=batch)


def run_query(spark: SparkSession, root: Path, window: str, cache: Path) -> list[dict[str, Any]]:
    """Runs a query as far as there are orders; returns the progress of its batches."""
    stream = spark.readStream.format("trailmark").option("maxRowsPerTrigger", 1)
    results = tm.aggregate(
        stream.load(str(root / "orders")),
        by="item",
        window=WINDOWS[window],
        values=VALUES,
        path=root / window,
        buckets=2,
        retain_batches=None,
        cache_dir=cache,
    )
    writer = results.writeStream.format("trailmark").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(root / f"{window}-checkpoint"))
    query = writer.start(str(root / f"{window}-out"))
    query.awaitTermination()
    return [dict(progress) for progress in query.recentProgress]


def make(spark: SparkSession, root: Path, cache: Path) -> None:
    """Makes the kept logs, with the Trailmark that is installed."""
    for window in SMALL_WINDOWS:
        for policy in POLICIES:
            place = root / "engine" / f"{window}-{policy}"
            bucket = engine_bucket(place, window, policy)
            for batch, rows in enumerate(engine_case(window).batches[: KEPT["format-1"]]):
                bucket.run(batch, rows)
                if batch == _MERGED:
                    logs = OperatorLogs(LocalStorage(place), bucket.operator, buckets=1)
                    logs.output(0).merge(_MERGED - 2)
                if batch == _TRIMMED:
                    bucket.trim()
            bucket.close()
    write_orders(root / "spark", 0, SPARK_BATCHES)
    for window in WINDOWS:
        run_query(spark, root / "spark", window, cache)


def go_on(root: Path) -> None:
    """Goes on with the kept logs of format 1, with the Trailmark that is installed."""
    unpack(root)
    for window in SMALL_WINDOWS:
        for policy in POLICIES:
            place = root / "engine" / f"{window}-{policy}"
            bucket = engine_bucket(place, window, policy)
            for batch in range(KEPT["format-1"], KEPT["formats-1-and-2"]):
                bucket.run(batch, engine_case(window).batches[batch])
            bucket.close()
            logs = OperatorLogs(LocalStorage(place), bucket.operator, buckets=1)
            logs.output(0).merge(_MERGED_BOTH)
    write_orders(root / "spark", SPARK_BATCHES, ORDERS["formats-1-and-2"])
    StreamFiles(LocalStorage(root / "spark" / "orders")).log.merge(SPARK_BATCHES)
