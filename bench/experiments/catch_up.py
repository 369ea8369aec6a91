"""A consumer is killed and comes back while its producer goes on: rows per second over time.

Producer and consumer are queries in processes of their own, with a stream between them and another
one behind the consumer; what each has written when is read from the manifests of its stream.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from matplotlib.figure import Figure

from bench.experiment import Effort, Measured, Note, Raw, Repetition, Section
from trailmark.inspection.logs import existing_meta
from trailmark.log import LocalStorage
from trailmark.records import NO_BATCH
from trailmark.streams.manifest import manifest_log, read_manifest

NAME = "catch-up"
TITLE = "A stateless consumer crashes and catches up"

ROWS_PER_SECOND = 20_000
#: A batch of the consumer takes so many rows at most: catching up is several batches.
_MOST_ROWS = 100_000
#: No more than so many seconds behind is live.
_LIVE_S = 3
_LONGEST_WAIT_S = 240

_CHILD = f"""
import sys
from pyspark.sql import SparkSession, functions as F
role, root = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").getOrCreate()
)
if role == "producer":
    rows = spark.readStream.format("rate").option("rowsPerSecond", {ROWS_PER_SECOND}).load()
else:
    reader = spark.readStream.format("trailmark").option("maxRowsPerTrigger", {_MOST_ROWS})
    rows = reader.load(root + "/producer").withColumn("value", F.col("value") * 2)
writer = rows.writeStream.format("trailmark").option("checkpointLocation", root + "/ckpt-" + role)
writer.trigger(processingTime="1 second").start(root + "/" + role).awaitTermination()
"""


def measure(effort: Effort, note: Note) -> Measured:
    before, down, after = effort.pick((6, 8, 4), (30, 34, 30))
    with tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        repetition = _run(Path(folder), before, down, after, note)
    settings = {
        "rows_per_second": ROWS_PER_SECOND,
        "most_rows_per_batch": _MOST_ROWS,
        "seconds_before_the_kill": before,
        "seconds_without_the_consumer": down,
        "seconds_after_it_has_caught_up": after,
    }
    return Measured(settings, seed=0, repetitions=[repetition])


def _run(root: Path, before: int, down: int, after: int, note: Note) -> Repetition:
    processes = [_start("producer", root)]
    try:
        _wait(lambda: _rows(root / "producer") > 0, "the producer's first batch")
        processes.append(_start("consumer", root))
        _wait(lambda: _is_live(root), "the consumer to follow")
        note("both are running")
        time.sleep(before)
        killed_us = time.time_ns() // 1000
        _kill(processes.pop())
        note("the consumer is killed")
        time.sleep(down)
        started_us = time.time_ns() // 1000
        processes.append(_start("consumer", root))
        _wait(lambda: _is_live(root), "the consumer to catch up")
        note("it has caught up")
        time.sleep(after)
    finally:
        for process in processes:
            _kill(process)
    return {
        "killed_us": killed_us,
        "started_us": started_us,
        "producer": _batches(root / "producer"),
        "consumer": _batches(root / "consumer"),
    }


def _start(role: str, root: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", _CHILD, role, str(root)]
    # A group of its own: the JVM and the Python workers go with it.
    return subprocess.Popen(
        command, env=environment, start_new_session=True, stderr=subprocess.DEVNULL
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LONGEST_WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {_LONGEST_WAIT_S} s for {what}.")
        time.sleep(0.2)


def _is_live(root: Path) -> bool:
    rows = _rows(root / "consumer")
    return 0 < rows >= _rows(root / "producer") - _LIVE_S * ROWS_PER_SECOND


def _rows(path: Path) -> int:
    batches = _batches(path, last_only=True)
    return int(batches[-1][1]) if batches else 0


def _batches(path: Path, *, last_only: bool = False) -> list[tuple[int, int]]:
    """When each batch was committed, and the rows up to its end."""
    if not (path / "meta.json").exists():
        return []
    storage = LocalStorage(path)
    log = manifest_log(storage, existing_meta(storage))
    newest = log.newest()
    if newest == NO_BATCH:
        return []
    chosen = [newest] if last_only else log.batches()
    manifests = [read_manifest(log, batch) for batch in chosen]
    return [(manifest.written_us, manifest.total_rows) for manifest in manifests]


def show(raw: Raw) -> Section:
    (found,) = raw.repetitions
    consumer = found["consumer"]
    total_before = max(total for at, total in consumer if at <= found["killed_us"])
    later = [(at, total) for at, total in consumer if at > found["started_us"]]
    first_s = (later[0][0] - found["started_us"]) / 1e6
    fastest = max(
        (total - rows) / ((end - begin) / 1e6) for (begin, rows), (end, total) in pairwise(later)
    )
    caught_up_s = (_caught_up_us(found) - found["started_us"]) / 1e6
    down_s = (found["started_us"] - found["killed_us"]) / 1e6
    text = f"""\
After figure 3.10 of Zoe Sebepou's thesis: a producer writes {ROWS_PER_SECOND:,} rows per second
into a stream; a consumer in another process reads at most {_MOST_ROWS:,} rows at a time, doubles a
column and writes a stream of its own. It is killed with `kill -9` and started again {down_s:.0f}
seconds later. Both lines are what the manifests of the two streams say.

The producer went on all the time. The consumer had {total_before:,} rows when it was killed; its
next batch was there {first_s:.1f} s after its start, most of which is a JVM and Spark starting; it
went on with the row after the last it had, at up to {fastest / ROWS_PER_SECOND:.1f} times the
producer's rate, and was live again {caught_up_s:.1f} s after its start. In the thesis a node that
was down for 34 s streamed again after 4 s, at three quarters of its rate for 75 s; there, too,
replay was served by the producer's log. What differs: Spark works in batches, so lines are steps.
"""
    return Section(text, {"catch-up.svg": _draw(found)})


def _caught_up_us(found: Repetition) -> int:
    """When the consumer had what the producer had written some seconds before."""
    for at, rows in found["consumer"]:
        written = max(
            (total for then, total in found["producer"] if then <= at - _LIVE_S * 1_000_000),
            default=0,
        )
        if at > found["started_us"] and rows >= written:
            return int(at)
    raise ValueError("The consumer never caught up.")


def _draw(found: Repetition) -> Figure:
    """Rows per second of either, each second's from the batches around it."""
    start_us = found["producer"][0][0]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, colour in (("producer", "#909090"), ("consumer", "#2858a0")):
        for (begin, rows), (end, total) in pairwise(found[name]):
            if name == "consumer" and begin < found["started_us"] < end:
                continue  # it was down
            rate = (total - rows) / max(1e-3, (end - begin) / 1e6) / 1000
            axes.fill_between(
                [(begin - start_us) / 1e6, (end - start_us) / 1e6],
                rate,
                step="post",
                color=colour,
                alpha=0.75,
                linewidth=0,
            )
        axes.fill_between([], [], color=colour, alpha=0.75, label=name)
    for moment, text in (("killed_us", "killed"), ("started_us", "started again")):
        at = (found[moment] - start_us) / 1e6
        axes.axvline(at, color="#c03028", linewidth=1)
        axes.annotate(f" {text}", (at, axes.get_ylim()[1]), va="top", color="#c03028")
    axes.set_xlabel("seconds")
    axes.set_ylabel("thousand rows per second")
    axes.set_ylim(bottom=0)
    axes.legend(loc="upper left")
    return figure
