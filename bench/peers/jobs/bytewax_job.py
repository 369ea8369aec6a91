"""Bytewax on the orders of a workload: a stateful step for each item, recovery every second.

A window is the state of one key: how many orders, and their sum. It is discarded when the window
is full, so a snapshot holds open windows only. Bytewax writes the states that have changed into its
SQLite partitions at the end of every epoch (1 s), together with the positions of source and sink.

What is chosen, and why it is fair to Bytewax on two cores:

- orders are read from Parquet by pyarrow and handed on in lists, as its sources may do; its keys
  are strings, so whole columns of ids are turned into text, not one id after the other;
- ``stateful_batch``, the step below all its windows: their own operators need a clock;
- results are made into lines a list at a time, and written without waiting for the disk;
- two processes, which give each other the orders of their items: threads of one process would hold
  each other up, since only one of them runs Python at a time.

Results can be seen at once, before their epoch is kept: a reader who follows the files gets them at
least once. After a restart the sink cuts its files back to the last epoch and goes on, so what is
in them at the end is there exactly once. That is what ``results`` counts: after a kill it may begin
below what was told before. ``rows`` goes back and on in the same way. With a pace, one file after
the other can be read; the job ends after the last.
"""

from __future__ import annotations

import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import StatefulBatchLogic
from bytewax.outputs import FixedPartitionedSink, StatefulSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

#: Each is a process with one worker thread.
PROCESSES = 2
#: Parts of the input, of the output and of the recovery store.
PARTS = ("0", "1")
_EPOCH = timedelta(seconds=1)
_ROWS_AT_ONCE = 5_000
_TELL_EVERY_S = 0.25

Order = tuple[str, int]
Window = tuple[int, int]
SourcePosition = tuple[int, int, int]
SinkPosition = tuple[int, int]


class Progress:
    """What all parts have read and written so far, in memory that the processes share.

    Whoever has written results tells it, now and then.
    """

    def __init__(self) -> None:
        self._lock = multiprocessing.Lock()
        self._rows = multiprocessing.RawArray("q", len(PARTS))
        self._results = multiprocessing.RawArray("q", len(PARTS))
        self._is_reading = multiprocessing.RawValue("b", 0)
        self._told_at = multiprocessing.RawValue("d", 0.0)

    def begin(self) -> None:
        with self._lock:
            if not self._is_reading.value:
                self._is_reading.value = 1
                _tell("ready")

    def read(self, part: str, rows: int) -> None:
        self._rows[PARTS.index(part)] = rows

    def written(self, part: str, results: int) -> None:
        self._results[PARTS.index(part)] = results

    def tell_now_and_then(self) -> None:
        with self._lock:
            if time.monotonic() - self._told_at.value >= _TELL_EVERY_S:
                self._told_at.value = time.monotonic()
                self.tell("progress")

    def tell(self, event: str) -> None:
        _tell(event, rows=sum(self._rows), results=sum(self._results))


class OrdersPart(StatefulSourcePartition[Order, SourcePosition]):
    """Every second file, in order. A position is a file, the batch in it, and rows before it."""

    def __init__(
        self,
        part: str,
        files: list[Path],
        pace_s: float,
        progress: Progress,
        position: SourcePosition,
    ) -> None:
        self._part, self._files, self._progress = part, files, progress
        self._file, self._batch, self._rows = position
        self._pace = timedelta(seconds=pace_s * len(PARTS))
        self._began, self._first = datetime.now(timezone.utc), self._file
        self._batches = self._open(skip=self._batch)
        progress.read(part, self._rows)

    def next_batch(self) -> list[Order]:
        self._progress.begin()
        batch = next(self._batches, None)
        if batch is None:
            self._file, self._batch = self._file + 1, 0
            if self._file >= len(self._files):
                raise StopIteration
            self._batches = self._open(skip=0)
            return []
        self._batch += 1
        self._rows += batch.num_rows
        self._progress.read(self._part, self._rows)
        ids, prices = batch.columns
        return list(zip(ids.cast(pa.string()).to_pylist(), prices.to_pylist(), strict=True))

    def next_awake(self) -> datetime | None:
        """A file can be read when its time has come."""
        if not self._pace or self._batch:
            return None
        return self._began + self._pace * (self._file - self._first)

    def snapshot(self) -> SourcePosition:
        return self._file, self._batch, self._rows

    def _open(self, skip: int) -> Iterator[pa.RecordBatch]:
        if self._file >= len(self._files):
            return
        batches = pq.ParquetFile(self._files[self._file]).iter_batches(_ROWS_AT_ONCE)
        for number, batch in enumerate(batches):
            if number >= skip:
                yield batch


class Orders(FixedPartitionedSource[Order, SourcePosition]):
    def __init__(self, files: list[Path], pace_s: float, progress: Progress) -> None:
        self._files, self._pace_s, self._progress = files, pace_s, progress

    def list_parts(self) -> list[str]:
        return list(PARTS)

    def build_part(
        self, step_id: str, for_part: str, resume_state: SourcePosition | None
    ) -> OrdersPart:
        files = self._files[PARTS.index(for_part) :: len(PARTS)]
        position = resume_state or (0, 0, 0)
        return OrdersPart(for_part, files, self._pace_s, self._progress, position)


class CountWindow(StatefulBatchLogic[int, float, Window]):
    """The open window of one item."""

    __slots__ = ("_orders", "_sum", "_window")

    def __init__(self, window: int, state: Window | None) -> None:
        self._window = window
        self._orders, self._sum = state or (0, 0)

    def on_batch(self, values: list[int]) -> tuple[list[float], bool]:
        averages = []
        for price in values:
            self._orders += 1
            self._sum += price
            if self._orders == self._window:
                averages.append(self._sum / self._window)
                self._orders = self._sum = 0
        return averages, self._orders == 0

    def snapshot(self) -> Window:
        return self._orders, self._sum


class ResultsPart(StatefulSinkPartition[str, SinkPosition]):
    """A file. A position is its length and the results in it."""

    def __init__(self, part: str, file: Path, progress: Progress, position: SinkPosition) -> None:
        self._part, self._progress = part, progress
        length, self._results = position
        self._file = file.open("ab")
        self._file.truncate(length)
        progress.written(part, self._results)

    def write_batch(self, values: list[str]) -> None:
        self._file.write("".join(values).encode())
        self._file.flush()
        self._results += len(values)
        self._progress.written(self._part, self._results)
        self._progress.tell_now_and_then()

    def snapshot(self) -> SinkPosition:
        return self._file.tell(), self._results

    def close(self) -> None:
        self._file.close()


class Results(FixedPartitionedSink[str, SinkPosition]):
    def __init__(self, directory: Path, progress: Progress) -> None:
        self._directory, self._progress = directory, progress

    def list_parts(self) -> list[str]:
        return list(PARTS)

    def build_part(
        self, step_id: str, for_part: str, resume_state: SinkPosition | None
    ) -> ResultsPart:
        file = self._directory / f"{for_part}.csv"
        return ResultsPart(for_part, file, self._progress, resume_state or (0, 0))


def main() -> None:
    job = json.loads(sys.argv[1])
    assert job["variant"] == "recovery"
    place, progress = Path(job["place"]), Progress()
    store, results = place / "recovery", place / "results"
    if not (job["resume"] and store.exists()):
        store.mkdir()
        results.mkdir()
        init_db_dir(store, len(PARTS))
    addresses = _addresses()
    run = partial(_run, _flow(job, results, progress), store, addresses)
    others = [
        multiprocessing.get_context("fork").Process(target=run, args=(number,), daemon=True)
        for number in range(1, PROCESSES)
    ]
    for other in others:
        other.start()
    run(0)
    for other in others:
        other.join()
        assert other.exitcode == 0
    progress.tell("done")


def _run(flow: Dataflow, store: Path, addresses: list[str], process: int) -> None:
    cli_main(
        flow,
        process_id=process,
        addresses=addresses,
        epoch_interval=_EPOCH,
        recovery_config=RecoveryConfig(store, backup_interval=timedelta(0)),
    )


def _addresses() -> list[str]:
    """Ports that were free a moment ago, all asked for before one is given back."""
    with ExitStack() as asked:
        sockets = [asked.enter_context(socket.socket()) for _ in range(PROCESSES)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def _flow(job: Any, results: Path, progress: Progress) -> Dataflow:
    files = sorted(Path(job["orders"]).glob("*.parquet"))[: job["batches"]]
    window: int = job["window"]
    flow = Dataflow("orders")
    orders = op.input("read", flow, Orders(files, job["pace_s"], progress))
    averages = op.stateful_batch("window", orders, lambda state: CountWindow(window, state))
    lines = op.flat_map_batch("line", averages, _lines)
    op.output("write", lines, Results(results, progress))
    return flow


def _lines(averages: list[tuple[str, float]]) -> list[tuple[str, str]]:
    return [(item, f"{item},{average}\n") for item, average in averages]


def _tell(event: str, **fields: int) -> None:
    print(json.dumps({"event": event, "at": time.time(), **fields}), flush=True)


if __name__ == "__main__":
    main()
