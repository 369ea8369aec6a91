"""A failure on Spark: three processes write, one query merges and counts, and one of the writers is
silent for a while.

What is measured is put together afterwards, from what the writers have written down and from
Spark's checkpoint, so that nothing looks at the query while it runs but one small file now and
then. All times are of the same clock.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

import trailmark as tm
from bench.stalls.checkpointed import batches_of
from bench.stalls.delays import Cells, Commit, corrected_us, waited
from bench.stalls.part import BOUND_S, CHOICES, Choice
from trailmark.log import LocalStorage
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decision import Decision
from trailmark.streams.union.decisions import newest_decision

STREAMS = ("eu", "us", "asia")
ITEMS, BUCKETS = 1_000, 2
#: What a session has to be told: Spark keeps what is measured.
SETTINGS = {
    "spark.sql.shuffle.partitions": str(BUCKETS),
    "spark.sql.streaming.minBatchesToRetain": "1000000",
}
_SECOND = 1_000_000
_MISSING = STREAMS[-1]
#: Answers have settled when all are newer than this for so long.
_NEW_S, _SETTLED_S, _MOST_SETTLING_S = 2.0, 3.0, 90.0
_MOST_CORRECTING_S = 180.0


@dataclass(frozen=True, slots=True)
class Trial:
    """What is tried.

    Parameters
    ----------
    rate
        Tuples a second, of all streams together.
    failure_s
        How long one of them is silent.
    before_s, after_s
        What is measured before, and what goes on after everything is replaced.
    """

    rate: int
    failure_s: float
    choice: Choice = CHOICES[0]
    within_s: float = BOUND_S
    before_s: float = 10.0
    after_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Found:
    """What came of it.

    Attributes
    ----------
    before, during
        New tuples before the failure, and from its beginning until everything was replaced.
    corrected_s
        How long that took from when the stream had returned.
    tentative_results
        Of the operator.
    by_second
        The longest delay of each second since the failure began.
    """

    before: Cells
    during: Cells
    corrected_s: float
    tentative_results: int
    batches: int
    by_second: list[tuple[int, float]]


class DoesNotKeepUp(Exception):
    """The rate is more than this machine carries."""


def try_failure(spark: SparkSession, root: Path, trial: Trial) -> Found:
    """Runs a query through a failure. Raises `DoesNotKeepUp` before it, if the query does not."""
    root.mkdir(parents=True)
    with _writers(root, trial.rate) as writers:
        query = _query(spark, root, trial)
        try:
            _settle(root, query)
            time.sleep(trial.before_s)
            fails_us = _now_us()
            writers[_MISSING].send_signal(signal.SIGUSR1)
            time.sleep(trial.failure_s)
            returned_us = _now_us()
            writers[_MISSING].send_signal(signal.SIGUSR2)
            _wait(query, lambda: _is_corrected(root, returned_us), _MOST_CORRECTING_S)
            time.sleep(trial.after_s)
            for each in writers.values():
                each.terminate()
                each.wait()
            commits = [each for name in STREAMS for each in _commits(root, name)]
            last_us = max(each.end_us for each in commits)
            _wait(query, lambda: _reached(root) > last_us, _MOST_CORRECTING_S)
            query.processAllAvailable()
        finally:
            query.stop()
    batches = batches_of(root / "checkpoint")
    cells = waited(commits, batches)
    done_us = corrected_us(commits, batches)
    (returned,) = [each for each in commits if each.returned_us is not None]
    first_us = fails_us - round(trial.before_s * _SECOND)
    rows = sum(each.rows for each in commits)
    return Found(
        cells.between(first_us, fails_us),
        cells.between(fails_us, done_us),
        (done_us - returned.committed_us) / _SECOND,
        _judged(root, rows),
        len(batches),
        cells.between(first_us, last_us).by_second(fails_us),
    )


def _query(spark: SparkSession, root: Path, trial: Trial) -> Any:
    orders = tm.union(
        {name: root / name for name in STREAMS},
        time="at",
        path=root / "union",
        answer_within=f"{trial.within_s} seconds",
        on_failure=trial.choice[0],
        on_correction=trial.choice[1],
    )
    counts = tm.aggregate(
        orders,
        by="item",
        window=tm.time_window("at", "1 second"),
        values={"n": tm.count()},
        path=root / "counts",
        buckets=BUCKETS,
        retain_batches=None,
    )
    writer = counts.writeStream.format("noop")
    return writer.option("checkpointLocation", str(root / "checkpoint")).start()


def _judged(root: Path, rows: int) -> int:
    """How many results were tentative. What stands has to have counted every row once."""
    stable = tm.read_table(root / "counts", columns=["n"])
    counted = int(np.sum(stable["n"].to_numpy()))
    if counted != rows:
        raise AssertionError(f"{rows:,} rows were written, and {counted:,} stand")
    marked = tm.read_table(root / "counts", answers="all", columns=["tentative"])
    return int(marked.num_rows - stable.num_rows)


@contextmanager
def _writers(root: Path, rate: int) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    started = {}
    try:
        for name in STREAMS:
            asked = ["--rate", str(rate // len(STREAMS)), "--items", str(ITEMS)]
            asked += ["--notes", str(_notes(root, name)), str(root / name)]
            command = [sys.executable, "-m", "bench.stalls.writing", *asked]
            started[name] = subprocess.Popen(command)
        until = time.monotonic() + _MOST_SETTLING_S
        while not all(_commits(root, name) for name in STREAMS):
            if time.monotonic() > until or any(
                each.poll() is not None for each in started.values()
            ):
                raise RuntimeError("a writer did not begin")
            time.sleep(0.1)
        yield started
    finally:
        for each in started.values():
            each.kill()
            each.wait()


def _notes(root: Path, name: str) -> Path:
    return root / f"{name}.commits"


def _commits(root: Path, name: str) -> list[Commit]:
    """What a writer has written down."""
    notes = _notes(root, name)
    if not notes.exists():
        return []
    # Of the last line there may be only a part yet.
    return [Commit(*json.loads(line)) for line in notes.read_text().split("\n")[:-1]]


def _settle(root: Path, query: Any) -> None:
    """Waits until the query has caught up with what came while Spark compiled its code."""
    since = time.monotonic()
    until = since + _MOST_SETTLING_S
    while time.monotonic() - since < _SETTLED_S:
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        if time.monotonic() > until:
            raise DoesNotKeepUp
        if _now_us() - _reached(root) > _NEW_S * _SECOND:
            since = time.monotonic()
        time.sleep(0.1)


def _wait(query: Any, is_so: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        if time.monotonic() > until:
            raise TimeoutError("the query is not through in time")
        time.sleep(0.2)


def _newest(root: Path) -> Decision:
    return newest_decision(LocalStorage(root / "union"))


def _reached(root: Path) -> int:
    """Up to when the batch that runs has rows."""
    return _newest(root).until_us or 0


def _is_corrected(root: Path, returned_us: int) -> bool:
    newest = _newest(root)
    return newest.phase is Phase.STABLE and (newest.released_us or 0) >= returned_us


def _now_us() -> int:
    return time.time_ns() // 1000
