"""What it costs whoever reads the results of a query to follow two replicas of it, not one.

Part of `make bench-standby`; ``python -m bench.replicas`` runs it alone.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

import trailmark as tm
from bench.batch_files import batch_ms, run_to_end
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.session import start_session

STREAMS = ("eu", "us")
#: Seconds of event time, each of which is a window of every key.
SECONDS = 24
KEYS = 50_000
BUCKETS = 2
#: Windows that the reader takes as one batch, and batches that are not counted.
_SECONDS_OF_BATCH, _WARM_UP = 2, 2
_SECOND_US = 1_000_000
_START_US = 1_700_000_000 * _SECOND_US
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([("at", _TIME), ("item_id", pa.int32()), ("price", pa.float64())])


def write_streams(home: Path) -> None:
    """Every key once in every second of every stream."""
    rng = np.random.default_rng(1)
    for name in STREAMS:
        writer = tm.stream_writer(
            home / name, _SCHEMA, name=name, time_column="at", delay="0 seconds"
        )
        for second in range(SECONDS):
            times = np.sort(rng.integers(0, _SECOND_US, KEYS)) + _START_US + second * _SECOND_US
            columns = {
                "at": pa.array(times).cast(_TIME),
                "item_id": rng.permutation(KEYS).astype(np.int32),
                "price": rng.random(KEYS),
            }
            writer.append(pa.table(columns, schema=_SCHEMA))
        end = datetime.fromtimestamp(_START_US // _SECOND_US + SECONDS, timezone.utc)
        writer.heartbeat(end)


def run_replica(home: Path, name: str, rows: int) -> Path:
    """A replica that takes so many rows as a batch; returns the path of its logs."""
    united = tm.union(
        {each: home / each for each in STREAMS},
        time="at",
        path=home / name / "union",
        interval="1 second",
        max_rows_per_trigger=rows,
    )
    path = home / name / "counts"
    counts = tm.aggregate(
        united,
        by="item_id",
        window=tm.time_window("at", "1 second"),
        values={"n": tm.count(), "price": tm.sum("price")},
        path=path,
        buckets=BUCKETS,
        numbered=True,
        retain_batches=None,
    )
    run_to_end(counts.writeStream.format("noop"), home / name / "checkpoint")
    return path


def follow(spark: SparkSession, paths: Sequence[Path], checkpoint: Path) -> list[int]:
    """How long the batches of a reader take, in milliseconds."""
    reader = spark.readStream.format("trailmark").option("replicas", ",".join(map(str, paths)))
    results = reader.option("maxRowsPerTrigger", _SECONDS_OF_BATCH * KEYS).load()
    progress = run_to_end(results.writeStream.format("noop"), checkpoint)
    return batch_ms([each for each in progress if each["numInputRows"]][_WARM_UP:])


def following(report: Report, spark: SparkSession, root: Path, rounds: int) -> None:
    """One replica alone, and two of them."""
    write_streams(root)
    a, b = run_replica(root, "a", KEYS), run_replica(root, "b", 3 * KEYS)
    lanes = {"one": [a], "two": [a, b]}
    taken: dict[str, list[float]] = {name: [] for name in lanes}
    for turn, name, paths in in_turn(lanes, rounds + 1):
        report.note(f"a reader of {name}, turn {turn}")
        found = follow(spark, paths, root / f"reader-{name}-{turn}")
        if turn:  # the first turn compiles Spark's own code
            taken[name].append(sum(found) / len(found))
    ratio = median(two / one for one, two in zip(taken["one"], taken["two"], strict=True))
    report.add(Figure("reader of two replicas / of one, time per batch", ratio, "x", 1.05))
    report.add(Figure("  of one", median(taken["one"]), "ms"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.replicas", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each reader")
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        spark = start_session()
        try:
            following(report, spark, Path(folder), arguments.rounds)
        finally:
            spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
