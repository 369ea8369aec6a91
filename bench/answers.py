"""What `tm.union` costs, and whether it answers in time.

Merging: a union and an aggregate behind it, against the same aggregate over Spark's own union of
the same streams, which has no order; and what it costs to be ready to answer without a stream.
There is no other way to run the two, such as one operator behind the other: a union has no task and
no log of its own, it is a source (docs/architecture.md). Waiting: what a query takes of a core
while nothing comes. Failures: see `bench.answers_failures`.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import reduce
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from bench import answers_failures as failures
from bench.batch_files import Progress, batch_ms, run_to_end
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.processor import share_of_a_core
from bench.session import start_session
from bench.stalls.live import SETTINGS
from trailmark.streams.table import read_table

STREAMS = ("eu", "us", "asia")
ROWS = 900_000
BATCHES = 8
KEYS = 10_000
BUCKETS = 2
#: Batches that are not counted: the first ones start workers and fill caches.
WARM_UP = 2
#: A query that has read everything is left alone for so long before it counts as waiting.
SETTLES_S = 5
_SECOND_US = 1_000_000
_START_US = 1_700_000_000 * _SECOND_US
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([("at", _TIME), ("item_id", pa.int32()), ("price", pa.float64())])

Merge = Callable[[SparkSession, Path, Path, int], DataFrame]


def write_streams(home: Path, rows: int) -> None:
    """A second of event time in every batch of every stream, in order."""
    rng = np.random.default_rng(1)
    each = rows // len(STREAMS)
    for name in STREAMS:
        writer = tm.stream_writer(
            home / name, _SCHEMA, name=name, time_column="at", delay="0 seconds"
        )
        for batch in range(BATCHES + 1):
            times = np.sort(rng.integers(0, _SECOND_US, each)) + _START_US + batch * _SECOND_US
            columns = {
                "at": pa.array(times).cast(_TIME),
                "item_id": rng.integers(0, KEYS, each, dtype=np.int32),
                "price": rng.random(each),
            }
            writer.append(pa.table(columns, schema=_SCHEMA))


def complete_streams(home: Path) -> None:
    """All streams say that they are complete up to the end of what they have."""
    end = datetime.fromtimestamp((_START_US // _SECOND_US) + BATCHES + 1, timezone.utc)
    for name in STREAMS:
        tm.stream_writer(
            home / name, _SCHEMA, name=name, time_column="at", delay="0 seconds"
        ).heartbeat(end)


def united(spark: SparkSession, home: Path, root: Path, rows: int) -> DataFrame:
    """In order."""
    return _union(home, root, max_rows_per_trigger=rows)


def answering(spark: SparkSession, home: Path, root: Path, rows: int) -> DataFrame:
    """In order, with marks: ready to answer without a stream, though none is missing."""
    return _union(home, root, max_rows_per_trigger=rows, answer_within="3 seconds")


def _union(home: Path, root: Path, **given: Any) -> DataFrame:
    streams = {name: home / name for name in STREAMS}
    return tm.union(streams, time="at", path=root / "union", interval="1 second", **given)


def thrown_together(spark: SparkSession, home: Path, root: Path, rows: int) -> DataFrame:
    """As Spark does it: whatever comes, as it comes."""
    reader = spark.readStream.format("trailmark").option("maxRowsPerTrigger", rows // len(STREAMS))
    return reduce(DataFrame.union, (reader.load(str(home / name)) for name in STREAMS))


def counts_of(merged: DataFrame, root: Path) -> DataFrame:
    """Counts and sums in windows of five seconds."""
    return tm.aggregate(
        merged,
        by="item_id",
        window=tm.time_window("at", "5 seconds"),
        values={"n": tm.count(), "price": tm.sum("price")},
        path=root / "counts",
        buckets=BUCKETS,
    )


def run(spark: SparkSession, merge: Merge, home: Path, root: Path, rows: int) -> list[Progress]:
    """The batches of a query that have rows."""
    counts = counts_of(merge(spark, home, root, rows), root)
    progress = run_to_end(counts.writeStream.format("noop"), root / "checkpoint")
    return [each for each in progress if each["numInputRows"] > rows // 2]


def counted(root: Path) -> int:
    """Rows in the windows that have closed."""
    return int(np.sum(read_table(root / "counts")["n"].to_numpy()))


def merging(report: Report, spark: SparkSession, root: Path, rows: int, rounds: int) -> None:
    lanes: dict[str, Merge] = {
        "tm.union": united,
        "tm.union, answer_within": answering,
        "Spark's union": thrown_together,
    }
    times: dict[str, list[float]] = {name: [] for name in lanes}
    closed = set()
    for turn, name, merge in in_turn(lanes, rounds + 1):
        report.note(f"{name}, turn {turn}")
        place = root / f"{turn}-{list(lanes).index(name)}"
        progress = run(spark, merge, root / "streams", place, rows)[WARM_UP:]
        assert len(progress) >= BATCHES - WARM_UP - 1, [each["numInputRows"] for each in progress]
        closed.add(counted(place))
        if turn:  # the first turn compiles Spark's own code
            times[name].append(
                sum(batch_ms(progress)) / sum(each["numInputRows"] for each in progress)
            )
    assert len(closed) == 1, f"the lanes have counted different rows: {closed}"
    waits, answers, unordered = times.values()
    ratio = _ratio(waits, unordered)
    report.add(Figure("union and aggregate / Spark's union and aggregate", ratio, "x", 1.15))
    ratio = _ratio(answers, waits)
    report.add(Figure("union and aggregate with answer_within / without", ratio, "x", 1.03))
    for name, taken in times.items():
        rates = [1000 / each for each in taken]
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        report.add(Figure(f"  {name}, tuples per second ({spread})", median(rates), "tuples/s"))


def _ratio(one: list[float], other: list[float]) -> float:
    """Turn by turn: neighbours in time."""
    return median(a / b for a, b in zip(one, other, strict=True))


def waiting(report: Report, spark: SparkSession, root: Path, rows: int, seconds: float) -> None:
    """What the driver, its JVM and the Python workers take while nothing comes, all in all."""
    complete_streams(root / "streams")
    lanes: dict[str, Merge] = {
        "tm.union, answer_within": answering,
        "Spark's union": thrown_together,
    }
    for name, merge in lanes.items():
        report.note(f"{name} waits for {seconds:g} s")
        place = root / f"waits-{list(lanes).index(name)}"
        counts = counts_of(merge(spark, root / "streams", place, rows), place)
        writer = counts.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        query.processAllAvailable()
        time.sleep(SETTLES_S)
        committed = list((place / "checkpoint" / "commits").iterdir())
        share = share_of_a_core(os.getpid(), seconds)
        has_run = committed != list((place / "checkpoint" / "commits").iterdir())
        query.stop()
        assert not has_run, "something was due"
        report.add(Figure(f"{name} and aggregate, waiting, of a core", 100 * share, "%"))
    time.sleep(SETTLES_S)
    share = share_of_a_core(os.getpid(), seconds)
    report.add(Figure("  the session without a query", 100 * share, "%"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.answers", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="of a batch, when merging")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each query, when merging")
    parser.add_argument("--waits", type=float, default=30, help="seconds of waiting")
    parser.add_argument("--only", choices=("merging", "waiting", "failures"))
    failures.add_arguments(parser)
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        root = Path(folder)
        spark = start_session(settings=SETTINGS)
        if arguments.only in (None, "merging", "waiting"):
            write_streams(root / "streams", arguments.rows)
        if arguments.only in (None, "merging"):
            merging(report, spark, root, arguments.rows, arguments.rounds)
        if arguments.only in (None, "waiting"):
            waiting(report, spark, root, arguments.rows, arguments.waits)
        if arguments.only in (None, "failures"):
            failures.failing(report, spark, root / "failures", arguments)
        spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
