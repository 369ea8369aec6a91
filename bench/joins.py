"""Speed of joins: `tm.join` against Spark's own join of two streams, with equal results.

Both sides bring 1,000,000 tuples a batch over 100,000 keys, and a tuple has about one partner.
Spark keeps its state in RocksDB with changelog checkpoints, in its default format and in its
newest. Then recoveries with 2,000,000 tuples that wait, on the engine alone, and restarts of whole
queries that were killed with as many.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import trailmark as tm
from bench.batch_files import batch_ms, read_batches, run_to_end, write_batch
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.join_crashes import compare_crashes
from bench.join_rows import COLUMNS, KEYS, SECONDS, side
from bench.operators import BUCKETS, OBJECTIVE, ROCKSDB
from bench.recoveries import measure_recoveries
from bench.session import start_session
from trailmark.engine import BatchReport, Bucket, OperatorLogs
from trailmark.kernel.columns import contiguous, numbers
from trailmark.log import PortRows, open_storage
from trailmark.operators.join import Join

#: Tuples of both sides in the state when it is recovered.
WAITING = 2_000_000
BATCHES = 3
#: Batches that are not counted: the first one starts workers and fills nothing yet.
WARM_UP = 1
#: The least that a join has to reach of Spark's throughput.
_LEAST = {"inner": 1.5, "left": 1.2}
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"

Make = Callable[[DataFrame, DataFrame, str, Path], DataFrame]


def reach_ms(rows: int) -> int:
    """How far times may lie apart, so that a tuple has one partner on the average."""
    return int(SECONDS * 1000 * KEYS / rows / 2)


def ours(reach: int, left: DataFrame, right: DataFrame, how: str, path: Path) -> DataFrame:
    span = f"{reach} milliseconds"
    within = tm.interval("seen", "clicked", before=span, after=span)
    return tm.join(left, right, on="key", within=within, how=how, path=path, buckets=BUCKETS)


def sparks(reach: int, left: DataFrame, right: DataFrame, how: str, path: Path) -> DataFrame:
    span = f"INTERVAL {reach} MILLISECONDS"
    near = f"clicked BETWEEN seen - {span} AND seen + {span}"
    other = right.withColumnRenamed("key", "other").withWatermark("clicked", "0 seconds")
    timed = left.withWatermark("seen", "0 seconds")
    return timed.join(other, F.expr(f"key = other AND {near}"), how).drop("other")


def compare(report: Report, spark: SparkSession, root: Path, how: str, rows: int) -> None:
    report.note(f"{how} join, {rows:,} tuples a batch and side, {KEYS:,} keys")
    reach = reach_ms(rows)
    makes: dict[str, Make] = {
        "tm.join": partial(ours, reach),
        "Spark": partial(sparks, reach),
        "Spark, format 4": partial(sparks, reach),
    }
    rates: dict[str, float] = {}
    totals: dict[str, list[Any]] = {}
    for _, name, make in in_turn(makes, 1):
        spark.conf.set(_FORMAT, "4" if name.endswith("4") else "2")
        place = root / f"{how}-{name}"
        found: list[Any] = []
        left, right = (
            read_batches(spark, f"key long, {time} timestamp, {value} long", root / which)
            for which, (time, value) in COLUMNS.items()
        )
        results = make(left, right, how, place / "log")
        writer = results.writeStream.outputMode("append").foreachBatch(partial(_sums, found))
        progress = run_to_end(writer, place / "checkpoint")
        taken = batch_ms(progress[WARM_UP:BATCHES])
        rates[name], totals[name] = 2 * rows / median(taken) * 1000, found
        written = sum(f.stat().st_size for f in place.rglob("*") if f.is_file())
        report.add(Figure(f"  {name}", rates[name], "tuples/s"))
        size = written / (2 * rows * BATCHES)
        report.add(Figure(f"  {name}, a tuple on disk at the end", size, "bytes"))
    _check_equal(totals)
    for name in list(makes)[1:]:
        ratio = rates["tm.join"] / rates[name]
        report.add(
            Figure(f"tuples/s, {how}: tm.join / {name}", ratio, "x", _LEAST[how], "at least")
        )


def _sums(found: list[Any], df: DataFrame, batch: int) -> None:
    """What all have to agree on: how many rows, and the sums of both sides."""
    found.append(tuple(df.agg(F.count("*"), F.sum("bid"), F.sum("price")).first() or ()))


def _check_equal(totals: dict[str, list[Any]]) -> None:
    """The same rows in the end; a batch without data may come later."""
    sums = {
        name: tuple(sum(row[place] or 0 for row in found) for place in range(3))
        for name, found in totals.items()
    }
    assert len(set(sums.values())) == 1, sums


def recover_waiting(report: Report, root: Path, how: str) -> None:
    """Tuples wait for as long as four batches take, so that these are in the state."""
    report.note(f"recoveries of {how} joins with {WAITING:,} tuples that wait")
    rows = WAITING // 8
    schemas = [side(0, 0, *columns, 0).schema for columns in COLUMNS.values()]
    reach = f"{4 * SECONDS} seconds"
    within = tm.interval("seen", "clicked", before=reach, after=reach)
    operator = Join(*schemas, on="key", within=within, how=how, condition=_is_near)
    policy = tm.Continuous.within(OBJECTIVE)

    def opened() -> list[Bucket]:
        logs = OperatorLogs(open_storage(str(root)), operator, buckets=BUCKETS, query_id="bench")
        return [Bucket(operator, logs, number, policy) for number in range(BUCKETS)]

    def run(buckets: list[Bucket], batch: int, is_small: bool) -> list[BatchReport]:
        count = 1000 if is_small else rows
        sides = [side(count, batch, *each, place) for place, each in enumerate(COLUMNS.values())]
        reports = []
        for number, bucket in enumerate(buckets):
            mine = [
                contiguous(each.filter(pa.array(each["key"].to_numpy() % BUCKETS == number)))
                for each in sides
            ]
            order = np.repeat(np.arange(2, dtype=np.uint8), [each.num_rows for each in mine])
            reports.append(bucket.run(batch, PortRows(tuple(mine), order)))
        return reports

    buckets, batch = opened(), 0
    while batch < 5:
        run(buckets, batch, False)
        batch += 1
    states: list[Any] = [bucket.state() for bucket in buckets]
    waiting = sum(each.count - each.gone for state in states for each in state.sides)
    assert waiting >= WAITING, f"{waiting:,} tuples wait"
    what = f"{how} join, {WAITING:,} tuples"
    measure_recoveries(report, what, 2.0, opened, run, buckets, batch - 1)


def _is_near(left: pa.RecordBatch, right: pa.RecordBatch) -> Any:
    """Keeps results few: it is the state that is measured."""
    apart = np.abs(numbers(left["seen"]) - numbers(right["clicked"]))
    return apart < 1000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.joins", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="tuples a batch and side")
    parser.add_argument("--only", choices=(*_LEAST, "recovery", "crashes"))
    arguments = parser.parse_args()
    report = Report()
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        root = Path(folder)
        if arguments.only in (None, "recovery"):
            for how in _LEAST:
                recover_waiting(report, root / f"recovery-{how}", how)
        if arguments.only in (None, "crashes"):
            compare_crashes(report, root / "crashes")
        if arguments.only in ("recovery", "crashes"):
            return report.exit_code
        for seed, (which, (time, value)) in enumerate(COLUMNS.items()):
            (root / which).mkdir()
            for batch in range(BATCHES):
                write_batch(root / which, batch, side(arguments.rows, batch, time, value, seed))
        spark = start_session(settings=ROCKSDB)
        for how in _LEAST:
            if arguments.only in (None, how):
                compare(report, spark, root, how, arguments.rows)
        spark.stop()
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
