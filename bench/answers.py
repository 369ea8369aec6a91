"""Cost of putting streams together in order: `tm.union` and an aggregate behind it, against the
same aggregate over Spark's own union of the same streams, which has no order.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import trailmark as tm
from bench.batch_files import Progress, batch_ms, run_to_end
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.session import start_session
from trailmark.streams.table import read_table

STREAMS = ("eu", "us", "asia")
ROWS = 900_000
BATCHES = 8
KEYS = 10_000
BUCKETS = 2
#: Batches that are not counted: the first ones start workers and fill caches.
WARM_UP = 2
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


def united(spark: SparkSession, home: Path, root: Path, rows: int) -> DataFrame:
    """In order."""
    streams = {name: home / name for name in STREAMS}
    path = root / "union"
    return tm.union(streams, time="at", path=path, interval="1 second", max_rows_per_trigger=rows)


def thrown_together(spark: SparkSession, home: Path, root: Path, rows: int) -> DataFrame:
    """As Spark does it: whatever comes, as it comes."""
    reader = spark.readStream.format("trailmark").option("maxRowsPerTrigger", rows // len(STREAMS))
    return reduce(DataFrame.union, (reader.load(str(home / name)) for name in STREAMS))


def run(spark: SparkSession, merge: Merge, home: Path, root: Path, rows: int) -> list[Progress]:
    """The batches with rows of a query that counts and sums in windows of five seconds."""
    counts = tm.aggregate(
        merge(spark, home, root, rows),
        by="item_id",
        window=tm.time_window("at", "5 seconds"),
        values={"n": tm.count(), "price": tm.sum("price")},
        path=root / "counts",
        buckets=BUCKETS,
    )
    progress = run_to_end(counts.writeStream.format("noop"), root / "checkpoint")
    return [each for each in progress if each["numInputRows"] > rows // 2]


def counted(root: Path) -> int:
    """Rows in the windows that have closed."""
    return int(np.sum(read_table(root / "counts")["n"].to_numpy()))


def merging(report: Report, spark: SparkSession, root: Path, rows: int, rounds: int) -> None:
    write_streams(root / "streams", rows)
    lanes: dict[str, Merge] = {"tm.union": united, "Spark's union": thrown_together}
    times: dict[str, list[float]] = {name: [] for name in lanes}
    rates: dict[str, list[float]] = {name: [] for name in lanes}
    closed = set()
    for turn, name, merge in in_turn(lanes, rounds + 1):
        report.note(f"{name}, turn {turn}")
        place = root / f"{turn}-{len(name)}"
        progress = run(spark, merge, root / "streams", place, rows)[WARM_UP:]
        assert len(progress) >= BATCHES - WARM_UP - 1, [each["numInputRows"] for each in progress]
        closed.add(counted(place))
        if turn:  # the first turn compiles Spark's own code
            taken = sum(batch_ms(progress)) / sum(each["numInputRows"] for each in progress)
            times[name].append(taken)
            rates[name].append(1000 / taken)
    assert len(closed) == 1, f"the lanes have counted different rows: {closed}"
    ratio = median(a / b for a, b in zip(*times.values(), strict=True))
    report.add(Figure("union and aggregate / Spark's union and aggregate", ratio, "x", 1.15))
    for name, each in rates.items():
        spread = f"{min(each):,.0f} to {max(each):,.0f}"
        report.add(Figure(f"  {name}, tuples per second ({spread})", median(each), "tuples/s"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.answers", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS, help="of a batch")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each query")
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        spark = start_session(settings={"spark.sql.shuffle.partitions": str(BUCKETS)})
        merging(report, spark, Path(folder), arguments.rows, arguments.rounds)
        spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
