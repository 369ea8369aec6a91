"""A consumer is killed and comes back while its producer goes on: rows per second over time.

Producer and consumer are queries in processes of their own, with a stream between them and another
one behind the consumer; what each has written when is read from the manifests of its stream.

python -m bench.timeline [directory]
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from trailmark.log import LocalStorage
from trailmark.records import NO_BATCH
from trailmark.status.logs import existing_meta
from trailmark.streams.manifest import manifest_log, read_manifest

NUMBERS = "stream-timeline.json"
PICTURE = "stream-timeline.svg"
_HOME = Path("docs/pictures")
#: Seconds before the kill, without the consumer, and after it has caught up.
_BEFORE, _DOWN, _AFTER = 30, 30, 25
ROWS_PER_SECOND = 20_000
#: A batch of the consumer takes so many rows at most: catching up is several batches.
_MOST_ROWS = 100_000

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


def measure(root: Path) -> dict[str, Any]:
    """Runs both queries; the rows that each has committed, by the time of their batch."""
    producer = _start("producer", root)
    _wait_for_rows(root / "producer", 1)
    consumer = _start("consumer", root)
    _wait_for_rows(root / "consumer", 1)
    _wait_until_live(root)
    print("both are running", file=sys.stderr)
    time.sleep(_BEFORE)
    killed_us = time.time_ns() // 1000
    os.killpg(consumer.pid, signal.SIGKILL)
    consumer.wait()
    print("the consumer is killed", file=sys.stderr)
    time.sleep(_DOWN)
    started_us = time.time_ns() // 1000
    consumer = _start("consumer", root)
    _wait_until_live(root)
    print("it has caught up", file=sys.stderr)
    time.sleep(_AFTER)
    for process in (producer, consumer):
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return {
        "rows_per_second": ROWS_PER_SECOND,
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


def _wait_for_rows(path: Path, rows: int) -> None:
    deadline = time.monotonic() + 180
    while _rows(path) < rows:
        assert time.monotonic() < deadline, f"nothing was written to {path}"
        time.sleep(0.2)


def _wait_until_live(root: Path) -> None:
    """Until the consumer is no more than some seconds behind."""
    while _rows(root / "consumer") < _rows(root / "producer") - 3 * ROWS_PER_SECOND:
        time.sleep(0.5)


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


def draw(found: dict[str, Any]) -> Figure:
    """Rows per second of either, each second's from the batches around it."""
    start_us = found["producer"][0][0]
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, colour in (("producer", "#909090"), ("consumer", "#2858a0")):
        batches = found[name]
        for (begin, rows), (end, total) in pairwise(batches):
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.timeline", description=__doc__)
    parser.add_argument("directory", nargs="?", type=Path, default=_HOME)
    parser.add_argument("--draw-only", action="store_true", help="from the numbers of the last run")
    arguments = parser.parse_args()
    numbers = arguments.directory / NUMBERS
    if not arguments.draw_only:
        with tempfile.TemporaryDirectory(prefix="trailmark-timeline-") as folder:
            numbers.write_text(json.dumps(measure(Path(folder)), indent=1) + "\n")
    figure = draw(json.loads(numbers.read_text()))
    figure.savefig(arguments.directory / PICTURE, metadata={"Date": None, "Creator": None})
    return 0


if __name__ == "__main__":
    sys.exit(main())
