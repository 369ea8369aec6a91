"""A query over two streams of which one stalls, whose workers are killed in the middle of a batch:
what it is given, and what it must give."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa

import trailmark as tm
from tests.support.spark_orders import newest_of
from tests.support.spark_query import Query
from tests.support.spark_runs import Application, Round, held_worker, release, set_trap
from tests.support.spark_union import NAMES, Result, end_file, tries_file, union_path
from trailmark.log import LocalStorage
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.decisions import newest_decision

_START = datetime(2026, 1, 1, tzinfo=timezone.utc)
_TIME = pa.timestamp("us", "UTC")
_SCHEMA = pa.schema([("item", pa.int32()), ("price", pa.int64()), ("time", _TIME)])
_ITEMS, _WINDOW_S = 4, 10
#: So far both streams come before asia stalls, and so far eu comes then at first.
_BOTH, _ALONE = range(25), range(25, 45)

#: Count and sum, by item and begin of the window.
Counts = dict[tuple[int, int], tuple[int, int]]


class Stalled:
    """The streams have a row of every item a second, and promise that none is late."""

    def __init__(self, root: Path) -> None:
        own = root / "stalled"
        (own / "trap").mkdir(parents=True)
        self.query = Query(
            name="stalled",
            input=str(own),
            path=str(own / "log"),
            checkpoint=str(own / "checkpoint"),
            out=str(own / "out"),
            cache=str(own / "cache"),
            trap=str(own / "trap"),
            window="union",
        )
        self._writers = {
            name: tm.stream_writer(
                own / name, _SCHEMA, name=name, time_column="time", delay="0 seconds"
            )
            for name in NAMES
        }
        self._counts: Counts = defaultdict(lambda: (0, 0))
        self._without_asia: Counts = {}
        self._held_in: list[int] = []

    def start(self, application: Application) -> Round:
        """Until it has answered without asia."""
        self._application = application
        for name in NAMES:
            self.go_on(name, _BOTH)
        running = application.start([self.query])
        application.wait_until("the first windows", lambda: bool(self._given(is_tentative=False)))
        self.go_on("eu", _ALONE)
        application.wait_until("answers", lambda: bool(self._given(is_tentative=True)))
        return running

    def go_on(self, name: str, seconds: range) -> None:
        """All of it in one batch of a stream."""
        if name == "asia":
            self._without_asia = dict(self._counts)
        rows = [(item, second * 100 + item) for second in seconds for item in range(_ITEMS)]
        for item, price in rows:
            window = item, price // 100 // _WINDOW_S * _WINDOW_S
            n, total = self._counts[window]
            self._counts[window] = n + 1, total + price
        times = [_START + timedelta(seconds=price // 100) for _, price in rows]
        columns = [[item for item, _ in rows], [price for _, price in rows], pa.array(times, _TIME)]
        self._writers[name].append(pa.table(columns, schema=_SCHEMA))

    def hold(self, name: str, seconds: range) -> int:
        """The process id of a worker that stands still in the middle of the batch of these rows."""
        set_trap(self.query, "hold")
        self.go_on(name, seconds)
        worker = held_worker(self._application, self.query)
        batch = newest_of(self.query, "offsets")
        assert batch > newest_of(self.query, "commits"), "the batch is not through"
        assert (self._phase() is Phase.UP_FAILURE) == (name == "eu"), "asia is missing, or back"
        self._held_in.append(batch)
        return worker

    def let_go(self) -> None:
        """Until the batch is through."""
        release(self.query)
        self._application.wait_for_batch(self.query, self._held_in[-1])

    def finish(self) -> None:
        """Nothing more comes, and the query ends when all has come out."""
        for writer in self._writers.values():
            writer.heartbeat(_START + timedelta(days=1))
        self._application.wait_until("all windows", self._has_all)
        end_file(self.query).touch()

    def assert_is_right(self) -> None:
        """What is stable counts every row; what was tentative all but asia's; both again so."""
        tries = self._tries()
        for batch, found in tries.items():
            assert all(each == found[0] for each in found), f"batch {batch}: {found}"
        for batch in self._held_in:
            assert len(tries[batch]) == 2
            assert tries[batch][0], "it gave something"
        stable = self._given(is_tentative=False)
        assert _counted(stable) == self._counts
        assert len(stable) == len(self._counts), "each once"
        tentative = self._given(is_tentative=True)
        answered = range(_ALONE.start // _WINDOW_S * _WINDOW_S, 60)
        expected = {each: n for each, n in self._without_asia.items() if each[1] in answered}
        assert _counted(tentative) == expected
        assert len(tentative) == len(expected), "each once"
        assert self._phase() is Phase.STABLE
        current = tm.read_table(self.query.path, answers="current")
        assert current.num_rows == len(stable)
        assert not any(current["tentative"].to_pylist())

    def _has_all(self) -> bool:
        """Whether all windows have come out, of batches that are through."""
        has_come = len(self._given(is_tentative=False)) >= len(self._counts)
        return has_come and newest_of(self.query, "commits") == newest_of(self.query, "offsets")

    def _phase(self) -> Phase:
        return newest_decision(LocalStorage(union_path(self.query))).phase

    def _given(self, *, is_tentative: bool) -> list[Result]:
        """The results of one kind, of the first try of every batch."""
        first = [row for found in self._tries().values() for row in found[0]]
        return [row for row in first if row[5] is is_tentative]

    def _tries(self) -> dict[int, list[list[Result]]]:
        """What came out of every batch each time."""
        file, found = tries_file(self.query), defaultdict[int, list[list[Result]]](list)
        for line in file.read_text().splitlines(keepends=True) if file.exists() else []:
            if line.endswith("\n"):
                batch, rows = json.loads(line)
                found[batch].append([tuple(row) for row in rows])
        return found


def _counted(rows: list[Result]) -> Counts:
    start_s = round(_START.timestamp())
    assert all(total == trapped for *_, total, trapped, _ in rows)
    return {(item, begin - start_s): (n, total) for item, begin, n, total, *_ in rows}
