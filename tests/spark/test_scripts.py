"""Scripts as people run them: a job a day that ends without ``spark.stop()``."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import trailmark as tm
from tests.support.spark_feed import Feed
from tests.support.spark_orders import sink_files
from tests.support.spark_streams import follow, query
from trailmark.engine.commits import newest_mark
from trailmark.inspection import read_status
from trailmark.log import LocalStorage
from trailmark.log.readers import read_reader

_SCRIPT = """
import os, sys
from pyspark.sql import SparkSession
import trailmark as tm

listens, ends_at_once = "listen" in sys.argv, "exit" in sys.argv
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
if listens:
    tm.listen(spark)
files = spark.readStream.schema("item int, time timestamp").option("maxFilesPerTrigger", 1)
counted = tm.aggregate(
    files.parquet("in"),
    by="item",
    window=tm.time_window("time", "10 seconds"),
    values={"orders": tm.count()},
    path="log",
    buckets=2,
    late="keep",
)
job = counted.writeStream.option("checkpointLocation", "its checkpoint").trigger(availableNow=True)
job.start("out").awaitTermination()
if ends_at_once:
    os._exit(0)
"""
_FILES_A_DAY = 3


def _orders(file: int) -> pa.Table:
    """A hundred seconds of orders, and, but for the first file, some that come too late."""
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    seconds = [100 * file + second for second in range(100)] + [0] * (5 * min(file, 1))
    times = [noon + timedelta(seconds=second) for second in seconds]
    items = [second % 7 for second in range(len(seconds))]
    return pa.table(
        {"item": pa.array(items, pa.int32()), "time": pa.array(times, pa.timestamp("us", "UTC"))}
    )


def _run_script(place: Path, *arguments: str) -> str:
    """What it says on its way."""
    script = place / "job.py"
    script.write_text(_SCRIPT)
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


def _newest_commit(checkpoint: Path) -> int:
    names = [path.name for path in (checkpoint / "commits").iterdir()]
    return max(int(name) for name in names if name.isdecimal())


def _results(table: pa.Table) -> Counter[tuple[object, ...]]:
    return Counter(zip(table["item"].to_pylist(), table["orders"].to_pylist(), strict=True))


def test_what_a_script_has_committed_can_be_read_however_it_ends(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed = Feed(spark, tmp_path / "in", "item int, time timestamp")
    log, seen = tmp_path / "log", tmp_path / "seen"
    for day, arguments in enumerate([["exit"], ["listen"]], start=1):
        files = day * _FILES_A_DAY
        feed.add(*(_orders(file) for file in range(files - _FILES_A_DAY, files)))
        said = _run_script(tmp_path, *arguments)
        newest = _newest_commit(tmp_path / "its checkpoint")
        assert newest >= files - 1
        if "listen" in arguments:
            assert newest_mark(LocalStorage(log)) == newest, "it was told of its last batch"
            assert "Exception" not in said

        given = _results(pa.concat_tables(map(pq.read_table, sink_files(str(tmp_path / "out")))))
        assert given.total() > 100 * day
        assert _results(tm.read_table(log)) == given
        assert _results(query(spark, log).toArrow()) == given
        assert tm.read_table(log, records="late").num_rows == 5 * (files - 2)
        status = read_status(LocalStorage(log))
        assert (status.committed, status.in_doubt) == (newest, "")

        reading = follow(spark, log, reader="billing").writeStream
        reading = reading.option("checkpointLocation", str(tmp_path / "reading"))
        reading.trigger(availableNow=True).start(str(seen)).awaitTermination()
        assert _results(spark.read.parquet(str(seen)).toArrow()) == given
        reader = read_reader(LocalStorage(log), "billing")
        assert reader is not None
        assert reader.needs == newest + 1
