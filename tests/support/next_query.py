"""Queries in a chain without Spark: each reads the tentative answers of the one before through its
log, by the source as Spark calls it.

The first is driven by a script. Of every other one it is known in plain Python what has to stand:
the tentative results of the one before that stand at the end of what has been read, once each.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from unittest import mock

import pyarrow as pa
from pyspark.sql.types import StructType

from tests.support.answered import Answered, random_since
from tests.support.answered import Step as ScriptedStep
from tests.support.cases import Case
from tests.support.orders import SECOND
from tests.support.plain import batch_of
from tests.support.tentative import BehindUnion, Step, TentativeJudge, standing
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport
from trailmark.engine.commits import mark_committed
from trailmark.engine.tentative import InputsTold
from trailmark.log import LocalStorage, StreamLog, read_tentative
from trailmark.operators.protocol import AnyOperator
from trailmark.spark import following as followed_source
from trailmark.spark import source as plain_source
from trailmark.spark.following import FollowingReader
from trailmark.spark.options import ReadOptions
from trailmark.spark.schemas import spark_schema
from trailmark.streams.answers import Answers
from trailmark.streams.following import following_path, newest_followed
from trailmark.streams.times import Span
from trailmark.streams.view import open_view
from trailmark.testing.disk import ROOT, Crashed, SimulatedDisk
from trailmark.testing.processes import AtOnce
from trailmark.windows import functions as f
from trailmark.windows.spec import CountWindow, TimeWindow, Window

Row = tuple[Any, ...]
Offset = dict[str, Any]

_READER = "next"
#: The columns that the results of a query have as the input of the next.
NEXT = pa.schema([("item", pa.string()), ("total", pa.int64()), ("time", pa.timestamp("us"))])


def time_windows(schema: pa.Schema, of: str, seconds: int, delay: int = 0) -> Case:
    """Sums by item in windows of so many seconds."""
    return _case(schema, of, TimeWindow("time", seconds * SECOND, seconds * SECOND, delay * SECOND))


def count_windows(schema: pa.Schema, of: str, size: int) -> Case:
    """Sums by item of so many tuples; their time is that of the last."""
    return _case(schema, of, CountWindow(size, size))


def _case(schema: pa.Schema, of: str, window: Window) -> Case:
    values = {"total": f.sum(of), "last": f.max("time")}
    return Case.of(schema, by=["item"], window=window, values=values, batches=[])


class Places:
    """Disks that stand in for directories of the root."""

    def __init__(self) -> None:
        self.disks: dict[str, SimulatedDisk] = {}

    def open(self, path: str) -> LocalStorage:
        name, _, below = path.removeprefix("/").partition("/")
        return LocalStorage(f"{ROOT}/{below}" if below else ROOT, file_system=self.disks[name])

    @contextmanager
    def instead(self) -> Iterator[None]:
        """The source opens these."""
        with ExitStack() as stack:
            for module, name in (
                (plain_source, "open_storage"),
                (plain_source, "open_to_write"),
                (followed_source, "open_to_write"),
            ):
                stack.enter_context(mock.patch.object(module, name, self.open))
            yield


class Before(Protocol):
    """A query whose answers are read."""

    def tentative(self, batch: int) -> list[Row]:
        """The tentative results of a batch, as the next query takes them in."""

    def stands_from(self, batch: int) -> int | None:
        """The first batch whose tentative results stand at the end of one."""


@dataclass
class Scripted:
    """The first query of a chain."""

    answered: Answered

    def tentative(self, batch: int) -> list[Row]:
        return [row for report in self.answered.reports[batch] for row in _next(report.tentative)]

    def stands_from(self, batch: int) -> int | None:
        return self.answered.steps[batch].since


def scripted_steps(rng: random.Random, batches: int) -> list[ScriptedStep]:
    """Failures that begin, go on, are corrected in parts, and end; in the end all stands."""
    steps: list[ScriptedStep] = []
    since: int | None = None
    for batch in range(batches):
        since = random_since(rng, batch, since, ends=0.12, is_corrected=0.33)
        tentative = [] if since is None or rng.random() < 0.2 else _orders(rng, batch + 2, 6)
        steps.append(ScriptedStep(_orders(rng, batch), tentative, since))
    ends = [batches + 100 * place for place in range(1, 6)]
    steps += [ScriptedStep([(item, 1, end * SECOND) for item in _ITEMS]) for end in ends]
    return [*steps, ScriptedStep([]), ScriptedStep([])]


_ITEMS = ("a", "b", "c")


def _orders(rng: random.Random, second: int, seconds: int = 2) -> list[Row]:
    return [
        (rng.choice(_ITEMS), rng.randrange(100), second * SECOND + rng.randrange(seconds * SECOND))
        for _ in range(rng.randrange(12))
    ]


@dataclass
class Told(BehindUnion):
    """The processes of a query that is told of what it reads by the files of its source."""

    places: Places = field(default_factory=Places)
    decisions: str = ""

    def told(self) -> InputsTold:
        upstream = newest_followed(self.places.open(self.decisions)).upstream()
        return InputsTold((None,), (), (upstream,))


class Follower:
    """A query that reads all answers of another one, to the judge's satisfaction."""

    def __init__(
        self,
        places: Places,
        path: str,
        before: Before,
        before_path: str,
        case: Case,
        rng: random.Random,
    ) -> None:
        self._places, self._before, self._rng = places, before, rng
        self._before_path, self._case = before_path, case
        disk = places.disks[path] = SimulatedDisk()
        self.steps: list[Step] = []
        self._query = Told(
            case,
            disk,
            Continuous(),
            buckets=rng.choice((1, 2)),
            retain_batches=rng.choice((None, 1, 3)),
            beside=AtOnce(),
            steps=self.steps,
            places=places,
            decisions=following_path(before_path, _READER),
        )
        self._judge = TentativeJudge(case, self.steps, self._query.buckets)
        self._rows_at_most = rng.choice((None, None, None, 8))
        self._reader: FollowingReader | None = None
        self._offset: Offset | None = None
        self._begun = 0
        self.reports: list[list[BatchReport]] = []
        self.crashes = self.given_again = 0

    # As `Before`

    def tentative(self, batch: int) -> list[Row]:
        return [row for report in self.reports[batch] for row in _next(report.tentative)]

    def stands_from(self, batch: int) -> int | None:
        found = standing(self.steps, batch)
        return found[0] if found else None

    def stable(self) -> Counter[Row]:
        """All stable results so far."""
        found = [row for reports in self.reports for each in reports for row in _next(each.results)]
        return Counter(found)

    def begin(self) -> None:
        """Says what it needs, so that it is kept from now on; the query before has begun."""
        with self._places.instead():
            self._offset = _through_json(self._open().initialOffset())
            self._begun = self._offset["batch"]

    def follow(self, meanwhile: Callable[[], None] | None = None) -> bool:
        """Runs a batch if anything is new; ``meanwhile`` something may happen."""
        assert self._offset is not None
        with self._places.instead():
            reader = self._open()
            end = _through_json(reader.latestOffset(self._offset))
            if end == self._offset:
                return False
            self._run(self._offset, end, meanwhile)
            self._offset = end
            reader.commit(end)
        return True

    def tick(self) -> None:
        """Runs a batch without any rows, which is no news of the source."""
        with self._places.instead():
            self._through([], [])

    def _open(self) -> FollowingReader:
        if self._reader is None or self._rng.random() < 0.2:
            given = {"path": self._before_path, "answers": "all", "reader": _READER}
            if self._rows_at_most is not None:
                given["maxRowsPerTrigger"] = str(self._rows_at_most)
            view = open_view(self._places.open(self._before_path), None, Answers.ALL)
            schema: StructType = spark_schema(view)
            self._reader = FollowingReader(ReadOptions.parse(given).for_stream(), schema)
        return self._reader

    def _run(self, start: Offset, end: Offset, meanwhile: Callable[[], None] | None) -> None:
        stable, tentative = self._read(start, end)
        self._check_read(start, end, tentative)
        if meanwhile is not None:
            meanwhile()
        if self._rng.random() < 0.3:
            self._reader = None  # another process, and more is there by now
            assert self._read(start, end) == (stable, tentative)
        self._through(stable, tentative)
        self._check_standing(end)

    def _read(self, start: Offset, end: Offset) -> tuple[list[Row], list[Row]]:
        reader, found = self._open(), ([], [])  # type: ignore[var-annotated]
        for partition in reader.partitions(start, end):
            for batch in reader.read(partition):
                marks = batch.column(batch.schema.names.index("tentative")).to_pylist()
                for row, is_tentative in zip(_next(batch), marks, strict=True):
                    assert is_tentative or not found[1], "stable rows come first"
                    found[is_tentative].append(row)
        return found

    def _check_read(self, start: Offset, end: Offset, tentative: Sequence[Row]) -> None:
        stands_from = self._before.stands_from(end["batch"] - 1)
        if stands_from is None:
            assert tentative == []
        earlier = range(0) if stands_from is None else range(stands_from, start["batch"])
        again = [row for batch in earlier for row in self._before.tentative(batch)]
        self.given_again += bool(again) and not (Counter(again) - Counter(tentative))

    def _through(self, stable: Sequence[Row], tentative: Sequence[Row]) -> None:
        """Runs a batch, as often as it takes."""
        batch = len(self.steps)
        told = self._query.told()
        rows = None if not told.is_ahead and not tentative else _rows(tentative)
        self.steps.append(Step(_rows(stable), rows, told))
        while True:
            if self._rng.random() < 0.3:
                self._query.disk.stop_after(self._rng.randrange(30))
            try:
                reports = self._query.run_step(batch)
                break
            except Crashed:
                self.crashes += 1
                self._query.stop()
                self._query.disk.kill()
        self._query.disk.relax()
        mark_committed(self._query.disk.storage(), batch, "a run")
        self.reports.append(reports)
        self._judge.check(self._query, batch, reports)
        self._check_current(batch)

    def _check_standing(self, end: Offset) -> None:
        """What stands of the batches that were run is what stands of those that were read."""
        last = end["batch"] - 1
        stands_from = self._before.stands_from(last)
        wanted: Counter[Row] = Counter()
        if stands_from is not None:
            for batch in range(max(stands_from, self._begun), last + 1):
                wanted.update(self._before.tentative(batch))
        logs, found = self._query.logs(), Counter[Row]()
        for batch in standing(self.steps, len(self.steps) - 1):
            for number in range(self._query.buckets):
                found.update(_logged(logs.input(number), batch, self._case.operator()))
        assert found == wanted

    def _check_current(self, batch: int) -> None:
        view = open_view(self._query.disk.storage(), None, Answers.CURRENT)
        found: Counter[tuple[bool, Row]] = Counter()
        first = view.oldest()
        for each in view.batches(first, batch + 1, Span()):
            for chunk in each.chunks:
                for rows in view.read(chunk, view.schema.names, Span()):
                    marks = rows.column(rows.num_columns - 1).to_pylist()
                    found.update(zip(marks, _next(rows), strict=True))
        wanted: Counter[tuple[bool, Row]] = Counter()
        stands = standing(self.steps, batch)
        for number in range(first, batch + 1):
            for report in self.reports[number]:
                wanted.update((False, row) for row in _next(report.results))
                if number in stands:
                    wanted.update((True, row) for row in _next(report.tentative))
        assert found == wanted

    def stop(self) -> None:
        self._query.stop()


def _through_json(offset: Offset) -> Offset:
    found: Offset = json.loads(json.dumps(offset))
    return found


def _rows(rows: Sequence[Row]) -> pa.RecordBatch:
    return batch_of(NEXT, rows)


def _next(results: pa.RecordBatch | None) -> list[Row]:
    """Results as the next query takes them in."""
    if results is None:
        return []
    return [(row["item"], row["total"], row["last"]) for row in results.to_pylist()]


def _logged(log: StreamLog, batch: int, operator: AnyOperator) -> list[Row]:
    found = read_tentative(log.read(batch), operator.ports)
    if found is None:
        return []
    return [(row["item"], row["total"], row["time"]) for row in found.tables[0].to_pylist()]
