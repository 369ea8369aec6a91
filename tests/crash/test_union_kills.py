"""kill -9 of a driver that merges three streams and counts their rows in windows, while others go
on writing: every row counts once, in its order. Also while it answers without one of them, and
while it replaces these answers."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trailmark as tm
from tests.support.seeds import seeds
from tests.support.spark_orders import sink_files
from tests.support.spark_runs import PATIENCE_S, Application
from tests.support.stream_query import KEYS, Step
from tests.support.stream_steps import newest_commit
from trailmark.log import LocalStorage
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decisions import newest_decision

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([("id", pa.int64()), ("key", pa.int32()), ("time", _TIME)])
_WINDOW_S = 10


class _Writers:
    """Three plain processes' worth of writers, in the order of the union."""

    def __init__(self, root: Path, rng: random.Random) -> None:
        self._rng = rng
        self.paths = {name: str(root / name) for name in ("eu", "us", "asia")}
        self._writers = {
            name: tm.stream_writer(
                path,
                _SCHEMA,
                name=name,
                time_column="time",
                delay="4 seconds",
                durability="unsynced",
            )
            for name, path in self.paths.items()
        }
        self._now_s = dict.fromkeys(self.paths, 0.0)
        #: Time in seconds, place of the input, id and key of every row.
        self.rows: list[tuple[float, int, int, int]] = []

    def go_on(self, turns: int, without: str = "") -> None:
        """Everybody writes a while, each at a pace of its own; no row is later than the delay."""
        for _ in range(turns):
            for place, name in enumerate(self.paths):
                if self._rng.random() < 0.3 or name == without:
                    continue
                self._append(place, name)

    def catch_up(self) -> None:
        """Everybody writes until all are where the first is, and says so; nothing may come then."""
        end_s = max(self._now_s.values())
        for place, (name, writer) in enumerate(self._writers.items()):
            while self._now_s[name] < end_s:
                self._append(place, name)
            writer.heartbeat(_START + timedelta(seconds=end_s + 10))

    def _append(self, place: int, name: str) -> None:
        found: list[tuple[float, int, int, int]] = []
        for _ in range(self._rng.randint(1, 30)):
            self._now_s[name] += self._rng.choice([0.0, 0.0, 0.1, 0.3])
            at_s = round(max(0.0, self._now_s[name] - self._rng.choice([0, 0, 1.5, 3.9])), 6)
            found.append((at_s, place, len(self.rows) + len(found), self._rng.randrange(KEYS)))
        self.rows += found
        times = [_START + timedelta(seconds=at_s) for at_s, *_ in found]
        columns = [[row[2] for row in found], [row[3] for row in found], pa.array(times, _TIME)]
        self._writers[name].append(pa.table(columns, schema=_SCHEMA))

    def finish(self) -> None:
        """Says that nothing more comes for a long time."""
        for writer in self._writers.values():
            writer.heartbeat(_START + timedelta(days=1))

    def expected(self) -> dict[tuple[int, int], tuple[int, int, str]]:
        """Count, sum of ids and last source by key and window."""
        found: dict[tuple[int, int], tuple[int, int, str]] = defaultdict(lambda: (0, 0, ""))
        names = list(self.paths)
        for at_s, place, number, key in sorted(self.rows):
            window = (key, int(at_s // _WINDOW_S) * _WINDOW_S)
            n, total, _ = found[window]
            found[window] = (n + 1, total + number, names[place])
        return dict(found)


@pytest.mark.parametrize("seed", seeds(1))
def test_a_killed_union_counts_every_row_once_and_in_order(tmp_path: Path, seed: int) -> None:
    print(f"TRAILMARK_SEED={seed} TRAILMARK_CASES=1 repeats it, but for the moments of the kills.")
    rng = random.Random(seed)
    writers = _Writers(tmp_path, rng)
    step = Step(
        "union",
        "union",
        "",
        str(tmp_path / "out"),
        str(tmp_path / "checkpoint"),
        operator=str(tmp_path / "counts"),
        inputs=writers.paths,
        # Few rows, so that there is more than one batch to what is replaced.
        options={"answer_within": "1 second", "max_rows_per_trigger": "150"},
    )
    union = LocalStorage(f"{step.operator}-union")
    for killed_in in (None, Phase.UP_FAILURE, Phase.STABILIZATION):
        before = newest_commit(step.checkpoint)
        missing = "asia" if killed_in is Phase.UP_FAILURE else ""
        writers.go_on(8, missing)
        with Application.of_steps(tmp_path / "app", [step]) as application:
            application.wait_for_batch(step, before + 1)
            if killed_in is Phase.STABILIZATION:
                writers.catch_up()
            until = time.monotonic() + PATIENCE_S
            while killed_in is not None and not _is_in(killed_in, step.operator):
                assert time.monotonic() < until, f"{newest_decision(union)}, not {killed_in}"
                if killed_in is Phase.UP_FAILURE:
                    writers.go_on(1, missing)
                time.sleep(0.02)
            time.sleep(rng.uniform(0, 0.5))
            application.kill_driver(with_workers=rng.random() < 0.5)
    writers.finish()
    with Application.of_steps(tmp_path / "app", [step.ending()]) as application:
        application.finish()
    assert newest_decision(union).late_rows == 0
    assert newest_decision(union).phase is Phase.STABLE
    assert len(writers.rows) > 500
    stable, tentative = _counted(step.target)
    assert stable == writers.expected()
    assert tentative, "there were answers without asia"


def _is_in(phase: Phase, operator: str) -> bool:
    """Whether a query is in a phase; while streams are missing, with answers."""
    if newest_decision(LocalStorage(f"{operator}-union")).phase is not phase:
        return False
    if phase is not Phase.UP_FAILURE:
        return True
    return any(tm.read_table(operator, answers="all")["tentative"].to_pylist())


def _counted(
    out: str,
) -> tuple[dict[tuple[int, int], tuple[int, int, str]], list[tuple[int, int]]]:
    """What stands, once for each key and window, and of which of these there were answers."""
    found: dict[tuple[int, int], tuple[int, int, str]] = {}
    tentative: list[tuple[int, int]] = []
    for path in sink_files(out):
        row: dict[str, Any]
        for row in pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read().to_pylist():
            begin = row["window"]["start"].replace(tzinfo=timezone.utc)
            key = (row["key"], int((begin - _START).total_seconds()))
            if row["tentative"]:
                tentative.append(key)
                continue
            assert key not in found, f"window {key} came twice"
            found[key] = (row["n"], row["total"], row["sources"])
    return found, tentative
