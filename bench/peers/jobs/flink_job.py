"""Apache Flink on the orders of a workload: count windows of its Table API, checkpoint each second.

The windows are Flink's own: ``Tumble.over(row_interval(n))`` over processing time, by item. Such a
window gives its result when it is full, so the number of results is that of the other engines. All
of it runs in the JVM, in Flink's generated code: Python only describes the query.

What is chosen, and why it is fair to Flink on two cores:

- a mini cluster in this job's own JVM, parallelism 2, objects reused: nothing crosses a network;
- 4 GiB of heap, as Spark's driver has; 1 GiB of managed memory for RocksDB, whose default here
  (128 MiB) is too little for 2,000,000 items;
- exactly once, aligned; RocksDB's checkpoints are incremental. A restart claims the checkpoint it
  begins from, else the first one after it would be a full copy;
- CSV by the filesystem connector: the package on PyPI has no Parquet;
- results by the filesystem sink: files become visible when their checkpoint is complete, which is
  exactly once, and up to a second late. What is counted is lines of visible files.

Flink deletes a checkpoint when the next one is complete, so a progress event also says how many
there were in this run and how many bytes they were (``checkpoints``, ``checkpoint_bytes``).

The connector hands out the files in any order, two at a time. ``rows`` of a progress event are the
rows that this process has read (a metric at most 0.2 s old); after a restart they begin at 0, and
only ``done`` tells all rows. With a pace, files arrive one by one beside the place of the job, and
it runs until it is killed.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

# Read when the package starts its JVM.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-Xmx4g")

from pyflink.common import Configuration
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.expressions import col, row_interval
from pyflink.table.window import Tumble

#: How often the job is looked at; only a changed number of results is told.
LOOK_S = 0.1
_ALIVE = {"RUNNING", "FINISHED"}


def main() -> None:
    job = json.loads(sys.argv[1])
    place = Path(job["place"]).absolute()
    port = free_port()
    tables = TableEnvironment.create(settings(job["variant"], place, port, resume=job["resume"]))
    files = sorted(Path(job["orders"]).absolute().glob("csv/*.csv"))[: job["batches"]]
    _declare(tables, job, files, place)
    counted = _Visible(place / "results")
    counted.look()
    client = _query(tables, job["window"]).execute_insert("results").get_job_client()
    ended = client.get_job_execution_result()
    watched = Watched(f"http://127.0.0.1:{port}/jobs/{client.get_job_id()}")
    if watched.wait_until_it_runs(ended):
        tell("ready")
    if job["pace_s"]:
        _arrive(files, _arrivals(place), job["pace_s"])
    while not ended.done():
        time.sleep(LOOK_S)
        rows = watched.rows()
        if rows is not None and counted.look():
            tell("progress", rows=rows, results=counted.results, **watched.checkpoints())
    ended.result()  # raises if the job has failed
    counted.look()
    at = time.time()
    tell("done", at=at, rows=sum(map(count_lines, files)), results=counted.results)


def settings(
    variant: str, place: Path, port: int, *, resume: bool = False, every: str = "1s"
) -> EnvironmentSettings:
    """A mini cluster on two cores that keeps its state in ``place``."""
    checkpoints = place / "checkpoints"
    chosen = {
        "parallelism.default": "2",
        "pipeline.object-reuse": "true",
        "taskmanager.memory.managed.size": "1g",
        "state.backend.type": {"hashmap": "hashmap", "rocksdb": "rocksdb"}[variant],
        "execution.checkpointing.interval": every,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.dir": checkpoints.as_uri(),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "io.tmp.dirs": str(place / "scratch"),
        "rest.bind-address": "127.0.0.1",
        "rest.bind-port": str(port),
        # How old an answer about the job may be: milliseconds.
        "metrics.fetcher.update-interval": "100",
        "web.refresh-interval": "100",
        # A job that fails ends, and is not begun again behind our back.
        "restart-strategy.type": "none",
    }
    newest = _newest(checkpoints) if resume else None
    if newest is not None:
        chosen["execution.state-recovery.path"] = newest.as_uri()
        chosen["execution.state-recovery.claim-mode"] = "CLAIM"
    configuration = Configuration()
    for name, value in chosen.items():
        configuration.set_string(name, value)
    builder = EnvironmentSettings.new_instance().in_streaming_mode()
    return builder.with_configuration(configuration).build()


def _newest(checkpoints: Path) -> Path | None:
    """The newest checkpoint that is complete: its metadata are written last."""
    complete = list(checkpoints.glob("*/chk-*/_metadata"))
    return max(complete, key=lambda file: file.stat().st_mtime_ns).parent if complete else None


def _declare(tables: TableEnvironment, job: Any, files: Sequence[Path], place: Path) -> None:
    kind = {"int": "INT", "text": "STRING"}[job["keys"]]
    if job["pace_s"]:
        _arrivals(place).mkdir(exist_ok=True)
        source = {"path": _arrivals(place).as_uri(), "source.monitor-interval": "100 ms"}
    else:
        names = "|".join(file.stem for file in files)
        source = {
            "path": files[0].parent.as_uri(),
            "source.path.regex-pattern": f".*/({names})\\.csv",
        }
    orders = f"item_id {kind}, item_price INT, moment AS PROCTIME()"
    results = f"item_id {kind}, avg_price DOUBLE"
    tables.execute_sql(f"CREATE TABLE orders ({orders}) WITH ({file_options(source)})")
    sink = {"path": (place / "results").as_uri()}
    tables.execute_sql(f"CREATE TABLE results ({results}) WITH ({file_options(sink)})")


def file_options(options: dict[str, str]) -> str:
    chosen = {"connector": "filesystem", "format": "csv", **options}
    return ", ".join(f"'{name}' = '{value}'" for name, value in chosen.items())


def _query(tables: TableEnvironment, window: int) -> Any:
    full = Tumble.over(row_interval(window)).on(col("moment")).alias("full")
    price = col("item_price").cast(DataTypes.DOUBLE())
    windows = tables.from_path("orders").window(full).group_by(col("item_id"), col("full"))
    return windows.select(col("item_id"), price.avg.alias("avg_price"))


class _Visible:
    """Counts the results that can be seen. Files that are not committed begin with a dot."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen: set[str] = set()
        self.results = 0

    def look(self) -> bool:
        """Whether there are more of them than at the last look."""
        before = self.results
        for file in self._directory.glob("[!.]*"):
            if file.name not in self._seen:
                self._seen.add(file.name)
                self.results += count_lines(file)
        return self.results > before


class Watched:
    """What Flink's own REST interface tells about the job."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._sources: dict[str, str] = {}

    def wait_until_it_runs(self, ended: Any) -> bool:
        """Until all tasks have their state and run; False if the job ended before that."""
        while not ended.done():
            told = self._ask("")
            vertices = told["vertices"] if told else []
            if vertices and all(vertex["status"] in _ALIVE for vertex in vertices):
                self._sources = {
                    v["id"]: self._metric(v["id"])
                    for v in vertices
                    if v["name"].startswith("Source")
                }
                return True
            time.sleep(LOOK_S / 2)
        return False

    def rows(self) -> int | None:
        """Rows that have left all sources in this run of the job; None if nobody answers."""
        told = [
            self._ask(f"/vertices/{source}/subtasks/metrics?get={quote(metric)}&agg=sum")
            for source, metric in self._sources.items()
        ]
        return sum(int(each[0]["sum"]) for each in told if each) if all(told) else None

    def _metric(self, source: str) -> str:
        """What counts the rows of a source. Those of its task are fewer where other operators are
        part of it, such as the first half of an aggregate."""
        while True:
            known = self._ask(f"/vertices/{source}/subtasks/metrics") or []
            for metric in known:
                name: str = metric["id"]
                if name.startswith("Source__") and name.endswith(".numRecordsOut"):
                    return name
            time.sleep(LOOK_S)

    def checkpoints(self) -> dict[str, int]:
        """How many are complete, and the bytes that all of them wrote: old ones are deleted."""
        told = self._ask("/checkpoints")
        if not told:
            return {}
        complete = told["counts"]["completed"]
        written = told["summary"]["checkpointed_size"]["avg"] * complete
        return {"checkpoints": complete, "checkpoint_bytes": round(written)}

    def _ask(self, what: str) -> Any | None:
        # Nobody answers before the cluster is up, or while it goes down after the last row.
        try:
            with urlopen(self._address + what, timeout=10) as answer:
                return json.load(answer)
        except (URLError, HTTPException, ConnectionError, TimeoutError):
            return None


def _arrivals(place: Path) -> Path:
    """Beside the place, whose bytes are what the engine itself writes; the same after a restart."""
    return place.with_name(place.name + "-arrivals")


def _arrive(files: Sequence[Path], arrivals: Path, pace_s: float) -> None:
    def link() -> None:
        for file in files:
            here = arrivals / file.name
            if not here.exists():
                here.symlink_to(file)
                time.sleep(pace_s)

    threading.Thread(target=link, daemon=True).start()


def count_lines(file: Path) -> int:
    with file.open("rb") as opened:
        return sum(part.count(b"\n") for part in iter(lambda: opened.read(1 << 20), b""))


def free_port() -> int:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port: int = asked.getsockname()[1]
        return port


def tell(event: str, at: float | None = None, **fields: int) -> None:
    print(json.dumps({"event": event, "at": at or time.time(), **fields}), flush=True)


if __name__ == "__main__":
    main()
