"""Histories of stable and tentative batches, as a union gives them out, and what must come of them.

A scripted union stands in for a real one: it says which decision a batch is made of, and since
which one its tentative rows stand; failures begin, go on, are corrected in parts or at once, and
begin again. The judge knows nothing of forks: it brings a new state to the end of the stable
batches from the first one on, lets it take in the tentative batches that stand, and looks at what
the last of them gives.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tests.support.barriers import random_barrier
from tests.support.compare import assert_same_rows
from tests.support.engine import CrashCase, Judge, Query, by_port
from tests.support.grouping import random_grouped
from tests.support.joining import random_join
from tests.support.keyed import random_keyed
from tests.support.plain import plain_column, plain_rows
from tests.support.sessions import random_sessions
from tests.support.strategies import random_case
from tests.support.whole import random_whole
from trailmark.engine import BatchReport
from trailmark.engine.tentative import InputsTold, Told, Upstream
from trailmark.inspection.verify import verify_operator
from trailmark.kernel.columns import contiguous
from trailmark.log import PortRows, Segment, read_tentative
from trailmark.operators.protocol import AnyOperator, BatchInput, Port
from trailmark.records import FrameKind
from trailmark.recovery import batch_input
from trailmark.state.memory import Memory
from trailmark.testing.disk import Crashed
from trailmark.windows.spec import event_times

Rng = random.Random

#: Operators that may come behind a union.
KINDS: dict[str, Callable[[Rng], CrashCase]] = {
    "aggregate": random_case,
    "barrier": random_barrier,
    "join": random_join,
    "groups": random_grouped,
    "keyed": random_keyed,
    "sessions": random_sessions,
    "whole": random_whole,
}

_US = {"s": 1_000_000, "ms": 1_000, "us": 1}


# Histories


@dataclass(frozen=True)
class Step:
    """A batch: its stable and its tentative rows, and what is told of the inputs with it."""

    rows: Any
    tentative: Any
    told: InputsTold

    @property
    def is_ahead(self) -> bool:
        """Whether anything is tentative."""
        return any(union.since is not None for union in self.told.unions)


@dataclass
class ScriptedUnion:
    """Decides once for each batch, or now and then not at all."""

    number: int = 0
    since: int | None = None
    phase: str = "STABLE"

    def decide(self, rng: Rng) -> None:
        if rng.random() < 0.1:
            return
        self.number += 1
        dice = rng.random()
        if self.since is None:
            if dice < 0.5:
                self.since, self.phase = self.number, "UP_FAILURE"
        elif dice < 0.15:
            self.since, self.phase = None, "STABLE"
        elif dice < 0.4:  # in parts
            self.since = rng.randint(self.since, self.number)
            self.phase = rng.choice(("UP_FAILURE", "STABILIZATION"))

    def upstream(self) -> Upstream:
        return Upstream(self.number, self.since, self.phase)


class _PortTimes:
    """Up to which times an input is told to be complete, and to have tentative tuples."""

    def __init__(self, rng: Rng, case: CrashCase, place: int, port: Port) -> None:
        self._times: list[int] = []
        if port.event_time is not None and rng.random() < 0.6:
            for rows in case.batches:
                column = by_port(rows).tables[place].column(port.event_time).drop_null()
                self._times += event_times(column).tolist()
            self._times.sort()
        self._share = rng.choice((0.3, 0.7, 1.0))
        self._released: int | None = None
        self._until: int | None = None

    def step(
        self, rng: Rng, progress: float, *, is_ahead: bool, begins: bool
    ) -> tuple[int | None, int | None]:
        if not self._times:
            return None, None
        released = self._at(progress * self._share) - rng.choice((0, 0, 1))
        self._released = max(released, released if self._released is None else self._released)
        until = self._at(progress * self._share + rng.random() / 2) if is_ahead else self._released
        if not begins and self._until is not None:
            until = max(until, self._until)
        self._until = max(until, self._released) if is_ahead else None
        return self._released, self._until or self._released

    def _at(self, share: float) -> int:
        return self._times[min(len(self._times) - 1, int(share * len(self._times)))]


def random_history(rng: Rng, case: CrashCase) -> list[Step]:
    """The batches of a case, with tentative ones beside them that are like those that follow."""
    ports = [_PortTimes(rng, case, *each) for each in enumerate(case.operator().ports)]
    unions = [ScriptedUnion(rng.randrange(-1, 3)) for _ in range(rng.choice((1, 1, 2)))]
    says_ahead = rng.random() < 0.7
    steps: list[Step] = []
    was_ahead = False
    for batch, rows in enumerate(case.batches):
        for union in unions:
            union.decide(rng)
        is_ahead = any(union.since is not None for union in unions)
        progress = (batch + 1) / len(case.batches)
        begins = not was_ahead
        times = [each.step(rng, progress, is_ahead=is_ahead, begins=begins) for each in ports]
        told = InputsTold(
            tuple(released for released, _ in times),
            tuple(until for _, until in times) if says_ahead else (),
            tuple(union.upstream() for union in unions),
        )
        tentative = None
        if is_ahead and rng.random() < 0.85:
            following = case.batches[batch + 1 :] if rng.random() < 0.7 else case.batches
            tentative = case.shuffled(rng.choice(following or case.batches), rng)
        steps.append(Step(rows, tentative, told))
        was_ahead = is_ahead
    return steps


def without_tentative(steps: Sequence[Step]) -> list[Step]:
    """The same history without any tentative tuple, or anything that tells of one."""
    return [Step(each.rows, None, InputsTold(each.told.boundaries)) for each in steps]


def standing(steps: Sequence[Step], batch: int) -> list[int]:
    """The batches whose tentative tuples count at the end of one, which is the last of them; none
    if nothing is tentative."""
    if not steps[batch].is_ahead:
        return []
    now = steps[batch].told.unions
    found = [
        earlier
        for earlier in range(batch)
        if steps[earlier].is_ahead
        and any(
            union.since is not None and then.number >= union.since
            for union, then in zip(now, steps[earlier].told.unions, strict=True)
        )
    ]
    assert found == list(range(batch - len(found), batch)), "what stands has no gaps"
    return [*found, batch]


# Queries


@dataclass
class BehindUnion(Query):
    """The processes of a query behind a scripted union."""

    steps: Sequence[Step] = ()
    #: The batch that runs: what is told is told of it.
    batch: int = 0

    def told_of(self, operator: AnyOperator) -> Told:
        return self.told

    def told(self) -> InputsTold:
        """What is known from elsewhere of the batch that runs."""
        return self.steps[self.batch].told

    def run_step(self, batch: int, rng: Rng | None = None) -> list[BatchReport]:
        """Runs a batch of the history; with ``rng`` in the order in which it comes after a
        crash."""
        self.batch = batch
        step = self.steps[batch]
        parts = self._parts(step.rows, rng)
        if step.tentative is None:
            tentative: Sequence[Any] = [None] * self.buckets
        else:
            tentative = [by_port(each) for each in self._parts(step.tentative, rng)]
        return [
            bucket.run(batch, rows, each)
            for bucket, rows, each in zip(self.open(), parts, tentative, strict=True)
        ]

    def _parts(self, rows: Any, rng: Rng | None) -> Sequence[Any]:
        if rng is not None and rng.random() < 0.5:
            rows = self.case.shuffled(rows, rng)
        return self.case.split(rows, self.buckets)

    def log_files(self) -> dict[str, bytes]:
        """All files of inputs and outputs."""
        return {
            path: self.disk.content(path)
            for path in self.disk.files()
            if path.startswith(("in/", "out/"))
        }


# The judge


@dataclass(frozen=True)
class Recorded:
    """What the input log had of a batch when it was new."""

    stable: BatchInput
    tentative: PortRows | None
    facts: Mapping[str, Any] | None


class _Remembered:
    """Batches as they were logged. Implements `History`."""

    def __init__(self, recorded: Sequence[Recorded]) -> None:
        self._rows = {
            each.stable.batch: PortRows((each.stable.rows, *each.stable.others), each.stable.order)
            for each in recorded
        }

    def rows(self, batch: int) -> PortRows:
        return self._rows[batch]


class TentativeJudge:
    """Says what the tentative results of every batch have to be.

    ``most_again`` are the tuples of earlier batches that are taken into account, at most.
    """

    def __init__(
        self,
        case: CrashCase,
        steps: Sequence[Step],
        buckets: int,
        most_again: int | None = None,
        most_batches: int | None = None,
    ) -> None:
        self._operator = case.operator()
        self._steps = steps
        self._most_again = most_again
        self._most_batches = most_batches
        self._recorded: list[list[Recorded]] = [[] for _ in range(buckets)]
        self._expected: dict[tuple[int, int], tuple[pa.RecordBatch, int]] = {}
        self._given: dict[tuple[int, int], bytes] = {}
        #: Tentative results that have been compared, and batches that were left out.
        self.results = self.left_out = 0
        #: The buckets that have left some out.
        self.short_buckets: set[int] = set()

    def check(self, query: Query, batch: int, reports: Sequence[BatchReport]) -> None:
        """What is tentative of a batch is what it has to be, wherever the answer comes from."""
        logs = query.logs()
        inputs = [logs.input(number).read(batch) for number in range(len(reports))]
        for number, segment in enumerate(inputs):
            if len(self._recorded[number]) == batch:
                self._recorded[number].append(self._record(segment))
        self._check_facts(batch)
        for number, report in enumerate(reports):
            what = f"batch {batch}, bucket {number}"
            output = logs.output(number).read(batch)
            facts = self._recorded[number][batch].facts
            assert output.footer.attributes.get("tentative") == facts, what
            if facts is None:
                assert report.tentative is None, what
                assert FrameKind.TENTATIVE not in output.frames, what
                assert "tentative_left_out" not in output.footer.attributes, what
                continue
            self._check_results(number, batch, report, output, what)
            for log in (logs.input(number), logs.output(number)):
                held = [each for each in log.batches() if each >= facts["stands_from"]]
                assert held == list(range(facts["stands_from"], batch + 1)), f"{what}: kept"

    def _check_results(
        self, number: int, batch: int, report: BatchReport, output: Segment, what: str
    ) -> None:
        expected, left_out = self._results(number, batch)
        published = self._operator.publish(expected)
        found = report.tentative
        assert found is not None, what
        assert found.schema.equals(self._operator.result_schema), what
        assert_same_rows(found, plain_rows(published), f"{what}: tentative results")
        again = self._given.setdefault((number, batch), _bytes_of(found))
        assert again == _bytes_of(found), f"{what}: in the same order as before"
        logged = output.table(FrameKind.TENTATIVE)
        assert (logged is None) == (expected.num_rows == 0), what
        if logged is not None:
            assert_same_rows(contiguous(logged), plain_rows(expected), f"{what}: logged")
        assert output.footer.attributes.get("tentative_left_out", 0) == left_out, what
        self.results += expected.num_rows
        self.left_out += left_out
        if left_out:
            self.short_buckets.add(number)

    def _record(self, segment: Segment) -> Recorded:
        ports = self._operator.ports
        return Recorded(
            batch_input(segment, ports),
            read_tentative(segment, ports),
            segment.footer.attributes.get("tentative"),
        )

    # A copy of the state that takes in what stands

    def state(self, number: int, batch: int) -> Any:
        """A new state after a stable batch, from the first one on."""
        recorded = self._recorded[number]
        state = self._operator.open(Memory(), _Remembered(recorded))
        for each in recorded[: batch + 1]:
            self._operator.process(state, each.stable)
        return state

    def _results(self, number: int, batch: int) -> tuple[pa.RecordBatch, int]:
        """The results of the last batch that stands, as they are logged, and how many of the others
        were left out."""
        if (number, batch) not in self._expected:
            recorded = self._recorded[number]
            again, left_out = self._taken(number, batch)
            state = self.state(number, batch)
            for place, each in enumerate([*again, batch], start=1):
                given = _as_batch(batch + place, recorded[each], recorded[batch], self._operator)
                outcome = self._operator.process(state, given)
            self._expected[number, batch] = outcome.results, left_out
        return self._expected[number, batch]

    def _taken(self, number: int, batch: int) -> tuple[list[int], int]:
        """The earlier batches that are taken in again: the last so many, as long as they have not
        too many tuples, and at least one that has some."""
        earlier = standing(self._steps, batch)[:-1]
        if self._most_again is None:
            return earlier, 0
        held = [self._recorded[number][each].tentative for each in earlier]
        counts = [0 if each is None else each.num_rows for each in held]
        first = most = len(earlier)
        if self._most_batches is not None:
            most = min(most, self._most_batches)
        while len(earlier) - first < most and (
            sum(counts[first - 1 :]) <= self._most_again or not sum(counts[first:])
        ):
            first -= 1
        return earlier[first:], first

    # What footers say

    def _check_facts(self, batch: int) -> None:
        """All buckets say the same: what stands, and the watermarks of tentative tuples."""
        for number, recorded in enumerate(self._recorded):
            what = f"batch {batch}, bucket {number}"
            facts = recorded[batch].facts
            if not self._steps[batch].is_ahead:
                assert facts is None, what
                continue
            unions = self._steps[batch].told.unions
            marks = self._marks(batch)
            before = self._facts_before(batch)
            late = recorded[batch].stable.late_before
            if before is not None and standing(self._steps, batch) != [batch]:
                late = before["at"]
            wanted: dict[str, Any] = {
                "at": self._slowest(marks),
                "before": late,
                "numbers": [union.number for union in unions],
                "phase": _worst([union.phase for union in unions]),
                "stands_from": standing(self._steps, batch)[0],
            }
            if len(marks) > 1:
                wanted["ports"] = marks
            assert facts == wanted, what

    def _facts_before(self, batch: int) -> Mapping[str, Any] | None:
        return self._recorded[0][batch - 1].facts if batch else None

    def _marks(self, batch: int) -> list[int | None]:
        """The watermark of the tentative tuples of every port."""
        told, before = self._steps[batch].told, self._facts_before(batch)
        found: list[int | None] = []
        for place, port in enumerate(self._operator.ports):
            reached = [self._stable_mark(batch, place)]
            if port.event_time is not None and told.ahead and told.ahead[place] is not None:
                reached.append(told.ahead[place])
            elif port.event_time is not None and before is not None:
                marks = before.get("ports") or [before["at"]]
                reached.append(marks[place])
                for recorded in self._recorded:
                    rows = recorded[batch - 1].tentative
                    latest = None if rows is None else latest_us(rows.tables[place], port)
                    reached.append(None if latest is None else latest - port.delay_us)
            found.append(max((each for each in reached if each is not None), default=None))
        return found

    def _stable_mark(self, batch: int, place: int) -> int | None:
        """The watermark of a port: by what was told, and by the times of the batches before."""
        port = self._operator.ports[place]
        if port.event_time is None:
            return None
        reached = [self._steps[each].told.boundaries[place] for each in range(batch + 1)]
        for recorded in self._recorded:
            for each in recorded[:batch]:
                tables = (each.stable.rows, *each.stable.others)
                latest = latest_us(tables[place], port)
                reached.append(None if latest is None else latest - port.delay_us)
        return max((each for each in reached if each is not None), default=None)

    def _slowest(self, marks: Sequence[int | None]) -> int | None:
        ports = self._operator.ports
        if len(ports) == 1:
            return marks[0]
        driving = [
            mark for mark, port in zip(marks, ports, strict=True) if port.event_time is not None
        ]
        known = [mark for mark in driving if mark is not None]
        return min(known, default=None) if len(known) == len(driving) else None


def _as_batch(number: int, tuples: Recorded, newest: Recorded, operator: AnyOperator) -> BatchInput:
    """Tentative tuples behind all stable ones: what the stable watermark has passed is over for
    them, too."""
    assert tuples.facts is not None
    rows = tuples.tentative
    if rows is None:
        none = tuple(contiguous(port.schema.empty_table()) for port in operator.ports)
        order = newest.stable.order
        rows = PortRows(none, None if order is None else order[:0])
    stable = newest.stable.watermark
    late_before, watermark = tuples.facts["before"], tuples.facts["at"]
    if stable is not None:
        late_before = stable if late_before is None else max(late_before, stable)
        watermark = stable if watermark is None else max(watermark, stable)
    return BatchInput.of(number, rows, late_before, watermark, tuples.stable.now_us)


def latest_us(rows: pa.RecordBatch, port: Port) -> int | None:
    """The latest event time, in microseconds."""
    assert port.event_time is not None
    column = rows.column(port.event_time)
    times: list[int] = [time for time in plain_column(column) if time is not None]
    if not times:
        return None
    unit = column.type.unit
    return max(times) // 1_000 if unit == "ns" else max(times) * _US[unit]


def _worst(phases: Sequence[str]) -> str:
    for phase in ("UP_FAILURE", "STABILIZATION"):
        if phase in phases:
            return phase
    return "STABLE"


def _bytes_of(rows: pa.RecordBatch) -> bytes:
    """All values, bit by bit. A column of no lists has one offset in Arrow, or none."""
    return bytes(rows.serialize()) if rows.num_rows else b""


# Runs


@dataclass
class StormyHistory:
    """What may go wrong while a history runs, drawn from ``rng``."""

    rng: Rng
    crash_chance: float = 0.5
    most_operations: int = 40
    crashes: int = field(default=0, init=False)

    def run(self, query: BehindUnion, stable: Judge, tentative: TentativeJudge) -> None:
        """Runs it to the end, through every crash; nothing may be wrong with the logs then."""
        for batch in range(len(query.steps)):
            reports = self._through(query, batch)
            query.disk.relax()
            self._check(query, batch, reports, stable, tentative)
            stable.check_state(query, f"after batch {batch}")
            if self.rng.random() < 0.2:
                query.stop()
            if self.rng.random() < 0.15:
                files = query.log_files()
                again = query.run_step(batch, self.rng)
                assert all(report.was_logged for report in again)
                self._check(query, batch, again, stable, tentative)
                assert query.log_files() == files, "an answer from the log leaves it as it is"
        query.stop()
        found = verify_operator(query.disk.storage()).findings
        assert found == (), found

    def _check(
        self,
        query: BehindUnion,
        batch: int,
        reports: list[BatchReport],
        stable: Judge,
        tentative: TentativeJudge,
    ) -> None:
        stable.check(query, batch, reports)
        tentative.check(query, batch, reports)

    def _through(self, query: BehindUnion, batch: int) -> list[BatchReport]:
        """Runs a batch, as often as it takes."""
        while True:
            if self.rng.random() < self.crash_chance:
                query.disk.stop_after(self.rng.randrange(self.most_operations))
            try:
                reports = query.run_step(batch, self.rng)
                self._maintain(query, batch)
                return reports
            except Crashed:
                self.crashes += 1
                self._restart(query)

    def _restart(self, query: BehindUnion) -> None:
        query.stop()
        if self.rng.random() < 0.5:
            query.disk.kill()
            return
        query.disk.crash(self.rng)
        if query.cache_root is not None:
            for token in query.cache_root.glob("*/*/token"):
                token.unlink()

    def _maintain(self, query: BehindUnion, batch: int) -> None:
        action = self.rng.random()
        if action < 0.15:
            for bucket in query.open():
                bucket.trim(self.rng.choice((None, batch + 1)))
        elif action < 0.3:
            logs = query.logs()
            for number in range(query.buckets):
                logs.output(number).merge(batch - 1)
                logs.input(number).merge(batch - 1)


class SetWall:
    """Shows the time that it was set to."""

    def __init__(self) -> None:
        self.now_us = 1_700_000_000 * 1_000_000

    def __call__(self) -> int:
        return self.now_us


#: What a batch may leave that is not tentative.
_STABLE_FRAMES = (FrameKind.RESULTS, FrameKind.FOOTPRINTS, FrameKind.CLOSED, FrameKind.LATE)
#: What footers say of tentative tuples, and up to where logs are kept for their sake.
_OF_TENTATIVE = ("tentative", "tentative_left_out", "tentative_times")
_KEPT = ("keep_from", "keep_output_from")


@dataclass
class Twins:
    """A history and the same one without any tentative tuple, side by side."""

    query: BehindUnion
    twin: BehindUnion

    @classmethod
    def of(
        cls, case: CrashCase, steps: Sequence[Step], make: Callable[[Sequence[Step]], BehindUnion]
    ) -> Twins:
        wall = SetWall()
        query, twin = make(steps), make(without_tentative(steps))
        query.wall = twin.wall = wall
        return cls(query, twin)

    def step(self, batch: int) -> list[BatchReport]:
        """Runs a batch of both: what is stable of it is the same, to the last byte."""
        assert isinstance(self.query.wall, SetWall)
        self.query.wall.now_us += 400_000
        reports, wanted = self.query.run_step(batch), self.twin.run_step(batch)
        logs, twins = self.query.logs(), self.twin.logs()
        for number in range(self.query.buckets):
            what = f"batch {batch}, bucket {number}"
            assert _bytes_of(reports[number].results) == _bytes_of(wanted[number].results), what
            given, twin = (each.input(number).read(batch) for each in (logs, twins))
            assert _stable_attributes(given) == _stable_attributes(twin), what
            left, twin = (each.output(number).read(batch) for each in (logs, twins))
            for kind in _STABLE_FRAMES:
                found, expected = (
                    None if kind not in each.frames else bytes(each.frames[kind].payload)
                    for each in (left, twin)
                )
                assert found == expected, f"{what}: {kind.label}"
            assert _stable_attributes(left) == _stable_attributes(twin), what
            self._check_kept(left, twin, what)
        return reports

    def _check_kept(self, left: Segment, twin: Segment, what: str) -> None:
        """What stands is kept beside what a recovery needs, and nothing else is."""
        attributes, expected = left.footer.attributes, twin.footer.attributes
        stands_from = attributes.get("tentative", {}).get("stands_from")
        for name in _KEPT:
            wanted = expected[name] if stands_from is None else min(expected[name], stands_from)
            assert attributes[name] == wanted, f"{what}: {name}"

    def check_states(self) -> None:
        """Both have the same state, to the last byte."""
        operator = self.query.case.operator()
        for mine, other in zip(self.query.open(), self.twin.open(), strict=True):
            states = [bucket.state() for bucket in (mine, other)]
            contents = [None if s is None else _bytes_of(operator.content(s)) for s in states]
            assert contents[0] == contents[1]

    def stop(self) -> None:
        self.query.stop()
        self.twin.stop()


def _stable_attributes(segment: Segment) -> dict[str, Any]:
    left_out = (*_OF_TENTATIVE, *_KEPT, "recovery")
    return {
        name: value for name, value in segment.footer.attributes.items() if name not in left_out
    }
