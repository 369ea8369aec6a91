"""kill -9 of a query with a join and 2,000,000 tuples that wait, then the time to the first new
result, beyond that of a clean start: `tm.join` and Spark's own, in turn.

Each builds its state up and is killed once; what that has left is copied for every restart, without
the tables that Trailmark caches in memory, as on another host.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.batch_files import write_batch
from bench.experiment import in_turn
from bench.figures import Figure, Report
from bench.join_rows import COLUMNS, side

#: Files of each side before the kill, and tuples in each: those of the last four wait.
_BATCHES, _ROWS = 5, 250_000
_FEW = 1_000
_TURNS = 3
_PATIENCE_S = 600.0
_ENGINES = {"tm.join": "trailmark", "Spark": "spark", "Spark, format 4": "spark-4"}
#: At most so much of Spark's time.
_LIMIT = 0.5


class _Child:
    """A query in a process of its own; leaving the ``with`` block kills it and its workers."""

    def __init__(self, engine: str, root: Path, place: Path) -> None:
        self._began = time.monotonic()
        place.mkdir(parents=True, exist_ok=True)
        self._log = (place / "stderr").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.join_child", engine, str(root), str(place)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._place = place

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def results(self, batch: int) -> tuple[float, int]:
        """Seconds from its start to the results of a batch, and how many these are."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told, rows = map(int, line.split())
            if told == batch:
                return time.monotonic() - self._began, rows
        raise RuntimeError((self._place / "stderr").read_text()[-2000:])

    def wait_for_commit(self, batch: int) -> None:
        """Waits until a batch is over."""
        until = time.monotonic() + _PATIENCE_S
        while not (self._place / "checkpoint" / "commits" / str(batch)).exists():
            assert time.monotonic() < until, f"batch {batch} takes too long"
            time.sleep(0.02)


def _write(root: Path, batch: int, rows: int) -> None:
    for seed, (which, columns) in enumerate(COLUMNS.items()):
        (root / which).mkdir(parents=True, exist_ok=True)
        write_batch(root / which, batch, side(rows, batch, *columns, seed))


def compare_crashes(report: Report, root: Path) -> None:
    """Adds what a restart takes of each, beyond a clean start, and how they compare."""
    report.note(f"inner joins killed with {8 * _ROWS:,} tuples that wait")
    full, fresh = root / "full", root / "fresh"
    for batch in range(_BATCHES):
        _write(full, batch, _ROWS)
    for name, engine in _ENGINES.items():
        report.note(f"{name}: {_BATCHES} batches, then kill -9")
        with _Child(engine, full, root / f"killed-{engine}") as child:
            child.results(_BATCHES - 1)
            child.wait_for_commit(_BATCHES - 1)
    _write(full, _BATCHES, _FEW)
    _write(fresh, _BATCHES, _FEW)
    beyond: dict[str, list[float]] = {name: [] for name in _ENGINES}
    found: set[int] = set()
    for turn, name, engine in in_turn(_ENGINES, _TURNS):
        report.note(f"{name}: restart {turn + 1} of {_TURNS}, and a clean start")
        again, clean = root / f"again-{engine}-{turn}", root / f"clean-{engine}-{turn}"
        shutil.copytree(root / f"killed-{engine}", again, ignore=shutil.ignore_patterns("cache"))
        with _Child(engine, full, again) as child:
            restarted, rows = child.results(_BATCHES)
            found.add(rows)
        with _Child(engine, fresh, clean) as child:
            started, _ = child.results(0)
        beyond[name].append(restarted - started)
        shutil.rmtree(again)
    assert len(found) == 1, "the same results"
    assert found != {0}, "of tuples that waited"
    for name, seconds in beyond.items():
        what = f"  {name}: restart after kill -9 - clean start"
        report.add(Figure(what, median(seconds), "s"))
    for name in list(_ENGINES)[1:]:
        ratio = median(beyond["tm.join"]) / median(beyond[name])
        report.add(Figure(f"restart after kill -9: tm.join / {name}", ratio, "x", _LIMIT))
