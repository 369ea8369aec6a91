"""Unions of streams without Spark: random streams, restarts and repeated batches, against the same
in plain Python; and what happens between two looks."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.meddling import Meddled
from tests.support.seeds import reported, seeds
from tests.support.streams import Written, batch_of, often, rows_by_batch, written
from tests.support.union import PlainIdleness, PlainInput, PlainUnion, UnionRow
from trailmark.errors import DamagedSegment, DataLoss, OtherQuery
from trailmark.log import LocalStorage, Storage, TimeRange
from trailmark.log.readers import acknowledge, register
from trailmark.streams import promises
from trailmark.streams.files import DataFile
from trailmark.streams.heartbeats import newest_heartbeats
from trailmark.streams.manifest import read_manifest
from trailmark.streams.retention import Retention
from trailmark.streams.union.deciding import Deciding
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.decisions import Decisions, newest_decision
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.union.rows import Piece, read_stretch, stretches
from trailmark.streams.view import open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import ROOT, SimulatedDisk

_SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_READER = "union"


@dataclass
class _Case:
    """What a seed asks for."""

    seed: int
    inputs: int
    interval: int
    delay: int
    most_rows: int | None
    bytes_at_once: int
    steps: int
    trims: bool
    idle_after: int | None

    @classmethod
    def of(cls, seed: int) -> _Case:
        rng = random.Random(seed)
        return cls(
            seed,
            rng.randint(1, 4),
            rng.choice([1, 7, 10, 100]),
            rng.choice([0, 5, 30]),
            rng.choice([None, None, 1, 5, 20]),
            rng.choice([1, 2_000, 1 << 24]),
            rng.randint(10, 60),
            rng.random() < 0.3,
            rng.choice([None, None, 1, 5, 20]),
        )


@dataclass
class _Input:
    """A stream, and the same in plain Python."""

    stream: Written
    plain: PlainInput
    #: The delay of every writer; None of one that promises nothing.
    writers: dict[str, int | None]
    numbers: dict[str, int] = field(default_factory=dict)
    now: int = 0

    def writer(self, name: str) -> StreamWriter:
        delay = self.writers[name]
        retention = self.stream.retention
        return StreamWriter(
            self.stream.storage,
            self.stream.meta,
            retention=retention,
            clock=self.stream.clock,
            delay_us=delay,
        )

    def commit(
        self, name: str, rows: Sequence[tuple[int | None, int]], released: int | None
    ) -> None:
        self.stream.clock.now_us += 1
        into = self.writer(name)
        self.numbers[name] = number = self.numbers.get(name, -1) + 1
        files = into.write([batch_of(rows, _SCHEMA)], name)
        into.commit(files, name, number)
        self.plain.commit(name, rows, self.writers[name], released)

    def heartbeat(self, name: str, asked: int) -> None:
        delay = self.writers[name]
        assert delay is not None
        self.writer(name).send_heartbeat(name, asked)
        self.plain.promises.heartbeat(name, asked, delay)

    def let_go(self, name: str) -> None:
        storage = self.stream.storage
        promises.let_go(storage, name, 0, newest_heartbeats(storage).get(name))
        self.plain.promises.let_go(name)


@dataclass
class _Run:
    """A union through a random life."""

    case: _Case
    rng: random.Random
    inputs: list[_Input]
    plain: PlainUnion
    idleness: PlainIdleness
    now: int = 0
    decision: Decision = NOTHING_YET
    deciding: Deciding | None = None
    rows: list[UnionRow] = field(default_factory=list)
    value: int = 0

    @classmethod
    def of(cls, case: _Case) -> _Run:
        rng = random.Random(f"run {case.seed}")
        inputs = []
        for _ in range(case.inputs):
            names = [f"w{n}" for n in range(rng.randint(1, 3))]
            kind = rng.choice(["promise", "promise", "promise", "nothing", "mixed"])
            delays = {
                name: None
                if kind == "nothing" or (kind == "mixed" and rng.random() < 0.5)
                else rng.choice([0, 3, 20])
                for name in names
            }
            retention = Retention(None, None, 1) if case.trims else None
            stream = written(schema=_SCHEMA, time_column="time", retention=retention)
            if case.trims:
                register(stream.storage, _READER, stream.log().identity.stream, 0)
            inputs.append(_Input(stream, PlainInput(case.delay), delays))
        plain = PlainUnion([each.plain for each in inputs], case.interval)
        return cls(case, rng, inputs, plain, PlainIdleness(plain.inputs, case.idle_after))

    def step(self) -> None:
        self.now += self.rng.randint(0, 2)
        each = self.rng.choice(self.inputs)
        name = self.rng.choice(list(each.writers))
        what = self.rng.random()
        if what < 0.5:
            self._append(each, name)
        elif what < 0.65 and each.writers[name] is not None:
            each.now += self.rng.randint(0, 20)
            each.heartbeat(name, each.now)
        elif what < 0.68 and each.writers[name] is not None:
            each.let_go(name)
        elif what < 0.75:
            self.restart()
        else:
            self.look()

    def _append(self, each: _Input, name: str) -> None:
        rows: list[tuple[int | None, int]] = []
        for _ in range(self.rng.randint(1, 6)):
            self.value += 1
            each.now += self.rng.randint(0, 6)
            back = self.rng.randint(0, 30) if self.rng.random() < 0.5 else 0
            rows.append((None if self.rng.random() < 0.03 else each.now - back, self.value))
        each.commit(name, rows, self.plain.released)

    def look(self) -> None:
        """Decisions until nothing more is released, each read twice, and all rows right."""
        self.idleness.look(self.now)
        self.plain.look(self.idleness)
        while (found := self._deciding().next(self.decision)) != self.decision:
            assert found.number == self.decision.number + 1
            assert _is_less(self.decision.released_us, found.released_us)
            before, self.decision = self.decision, Decision.from_json(_through_json(found))
            assert self.decision == found
            rows = self._read(before)
            if self.rng.random() < 0.3:
                running, self.deciding = self.deciding, None
                assert self._read(before) == rows, "repeated after a restart"
                if self.case.idle_after is not None:
                    self.deciding = running  # the other would have to wait first
            self.rows += rows
            if self.case.most_rows is None:
                assert self.decision.released_us == self.plain.released
            if self.case.trims:
                for each in self.inputs:
                    self._acknowledge(each)
        assert self.decision.released_us == self.plain.released
        assert self.rows == self.plain.rows()
        if self.decision is not NOTHING_YET:
            seen = sum(each.plain.late_rows for each in self.inputs)
            assert self.decision.late_rows <= seen

    def restart(self) -> None:
        self.deciding = None
        self.idleness = PlainIdleness(self.plain.inputs, self.case.idle_after)

    def _acknowledge(self, each: _Input) -> None:
        place = self.inputs.index(each)
        first = self.decision.inputs[str(place)].needs
        acknowledge(each.stream.storage, _READER, each.stream.log().identity.stream, first)

    def _deciding(self) -> Deciding:
        if self.deciding is None:
            inputs = [
                UnionInput(str(place), "/somewhere", each.stream.storage, self.case.delay)
                for place, each in enumerate(self.inputs)
            ]
            self.deciding = Deciding(
                inputs,
                self.case.interval,
                self.case.most_rows,
                idle_after_us=self.case.idle_after,
                now_us=lambda: self.now,
            )
        return self.deciding

    def _read(self, before: Decision) -> list[UnionRow]:
        pieces = self._deciding().pieces(before, self.decision)
        end = self.decision.released_us
        assert end is not None
        views = {n: open_view(each.stream.storage) for n, each in enumerate(self.inputs)}
        found: list[UnionRow] = []
        for stretch in stretches(pieces, before.released_us, end, self.case.bytes_at_once):
            table = read_stretch(stretch, views, _SCHEMA.names, "time", _with_place)
            if table is not None:
                times = table["time"].cast(pa.int64()).to_pylist()
                values = table["value"].to_pylist()
                found += zip(times, table["place"].to_pylist(), values, strict=True)
        return found


def _with_place(rows: pa.RecordBatch, place: int) -> pa.RecordBatch:
    return rows.append_column("place", pa.array([place] * rows.num_rows, pa.int64()))


def _is_less(one: int | None, other: int | None) -> bool:
    return other is not None and (one is None or one < other)


def _through_json(decision: Decision) -> object:
    return json.loads(json.dumps(decision.to_json()))


@pytest.mark.parametrize("seed", seeds(150))
def test_any_union_releases_what_is_complete_in_order_and_once(seed: int) -> None:
    case = _Case.of(seed)
    run = _Run.of(case)
    with reported(seed, case), often():
        for _ in range(case.steps):
            run.step()
        run.look()
        ends = {name: each.end for name, each in run.decision.inputs.items()}
        if ends == {str(n): each.stream.log().newest() + 1 for n, each in enumerate(run.inputs)}:
            late = sum(each.plain.late_rows for each in run.inputs)
            assert run.decision.late_rows == late, "all of them were looked at"


# Somebody writes meanwhile


def _in_time(stream: Written) -> list[tuple[int, int]]:
    """Rows that are not late by what their own batch says, in the order of the stream."""
    found = []
    for batch, rows in rows_by_batch(stream.storage).items():
        told = read_manifest(stream.log(), batch).boundaries
        limit = None if told is None else told.late_before
        found += [row for row in rows if limit is None or row[0] >= limit]
    return found


def _act(stream: Written, writer: str, number: int, what: int | list[int]) -> None:
    """A heartbeat, or rows, of a writer with a delay of 2."""
    into = StreamWriter(stream.storage, stream.meta, clock=stream.clock, delay_us=2)
    if isinstance(what, int):
        into.send_heartbeat(writer, what)
    else:
        rows = [(time, 100 * number + place) for place, time in enumerate(what)]
        into.commit(into.write([batch_of(rows, _SCHEMA)], writer), writer, number)


_MEDDLING: list[list[tuple[str, int, int | list[int]]]] = [
    [("a", 1, [60])],
    [("a", 1, 60), ("b", 1, 70)],
    [("a", 1, 60), ("b", 1, [20, 55])],
    [("c", 0, [1, 45, 80])],  # nobody knew of it
    [("c", 0, 5), ("c", 1, [10, 50])],
    [("b", 1, 90), ("a", 1, 90), ("c", 0, [30, 89, 95])],
    [("a", 1, [25]), ("a", 2, 99), ("b", 1, 99), ("d", 0, [97, 40])],
]


@pytest.mark.parametrize("meddling", _MEDDLING)
@pytest.mark.parametrize("begins_with", ["rows", "heartbeats"])
def test_whoever_writes_while_a_union_looks_loses_no_row(
    meddling: list[tuple[str, int, int | list[int]]], begins_with: str
) -> None:
    """At every look of the union, the others go on, and then the union does."""
    for at in range(1000):
        disk = SimulatedDisk()
        stream = written(disk.storage(), _SCHEMA, time_column="time")
        if begins_with == "rows":
            _act(stream, "a", 0, [10, 20, 30])
            _act(stream, "b", 0, [25, 40])
        else:
            _act(stream, "a", 0, 30)
            _act(stream, "b", 0, 40)

        def go_on(stream: Written = stream) -> None:
            for writer, number, what in meddling:
                _act(stream, writer, number, what)

        storage = _MeddledWith(disk, at, go_on)
        union = _OneStream(storage)
        union.go_on()
        if storage.looks <= at:
            break
        for writer, number in (("a", 8), ("b", 8), ("c", 8), ("d", 8)):
            _act(stream, writer, number, [120])
            _act(stream, writer, number + 1, 200)
        union.go_on()
        released = union.decision.released_us
        assert released == 198
        expected = [row for row in _in_time(stream) if row[0] < released]
        assert union.rows == sorted(expected, key=lambda row: row[0]), at
    else:
        raise AssertionError("it never ended")


def _end(stream: Written) -> None:
    promises.end_for_good(stream.storage, 0)


def _let_go(stream: Written) -> None:
    seen = newest_heartbeats(stream.storage).get("a")
    promises.let_go(stream.storage, "a", 0, seen)


@pytest.mark.parametrize("somebody_else", [_end, _let_go])
@pytest.mark.parametrize("delay", [2, None])
def test_a_writer_that_sleeps_in_a_commit_is_late_for_everybody_or_for_nobody(
    somebody_else: Callable[[Written], None], delay: int | None
) -> None:
    """Whoever went on without it has released what comes after that; others begin later."""
    for at in range(1000):
        disk = SimulatedDisk()
        stream = written(disk.storage(), _SCHEMA, time_column="time")
        _act(stream, "a", 0, [10, 20, 30])
        _act(stream, "b", 0, [25, 40])
        _act(stream, "b", 1, 102)
        early = _OneStream(disk.storage())

        def meanwhile(stream: Written = stream, early: _OneStream = early) -> None:
            somebody_else(stream)
            early.go_on()

        asleep = _MeddledWith(disk, at, meanwhile)
        into = StreamWriter(asleep, stream.meta, clock=stream.clock, delay_us=delay)
        rows = [(time, time) for time in (29, 45, 150)]
        into.commit(into.write([batch_of(rows, _SCHEMA)], "a"), "a", 1)
        if asleep.looks <= at:
            break
        for writer in ("a", "b"):
            _act(stream, writer, 9, 302)
        late = _OneStream(disk.storage())
        for union in (early, late):
            union.go_on()
        assert early.rows == late.rows, at
    else:
        raise AssertionError("it never ended")
    assert at > 3


class _MeddledWith(Meddled):
    """Whether there is a file is a look, too: so a union finds the newest batch."""

    def exists(self, path: str) -> bool:
        self._look()
        return super().exists(path)


class _OneStream:
    """One stream, in order."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._deciding = Deciding([UnionInput("a", "/a", storage, 0)], 1)
        self.decision = NOTHING_YET
        self.rows: list[tuple[int, int]] = []

    def go_on(self) -> None:
        while (found := self._deciding.next(self.decision)) != self.decision:
            before, self.decision = self.decision, found
            assert found.released_us is not None
            pieces = self._deciding.pieces(before, found)
            views = {0: open_view(self._storage)}
            for each in stretches(pieces, before.released_us, found.released_us):
                table = read_stretch(each, views, _SCHEMA.names, "time", lambda rows, _: rows)
                if table is None:
                    continue
                times = table["time"].cast(pa.int64()).to_pylist()
                self.rows += zip(times, table["value"].to_pylist(), strict=True)


# What a union cannot go on with


def _two_streams() -> tuple[Written, Written]:
    first, second = (written(schema=_SCHEMA, time_column="time") for _ in range(2))
    for stream in (first, second):
        _act(stream, "a", 0, [10, 20])
        _act(stream, "a", 1, [30, 40])
    return first, second


def _deciding(*streams: Written) -> Deciding:
    inputs = [UnionInput(n, f"/{n}", s.storage, 0) for n, s in zip("ab", streams, strict=False)]
    return Deciding(inputs, 10)


def test_an_input_that_was_trimmed_too_far_is_a_loss_of_data() -> None:
    first, second = _two_streams()
    decided = _deciding(first, second).next(NOTHING_YET)
    for stream in (first, second):
        _act(stream, "a", 2, [50])
    first.log().trim(2)
    with pytest.raises(DataLoss, match="Batch 1 is gone") as caught:
        _deciding(first, second).next(decided)
    assert "input a (/a)" in str(caught.value)
    assert "argument reader" in str(caught.value)


def test_another_stream_in_the_place_of_an_input_is_refused() -> None:
    first, second = _two_streams()
    decided = _deciding(first, second).next(NOTHING_YET)
    with pytest.raises(DataLoss, match="another stream than the union began to read") as refused:
        _deciding(second, first).next(decided)
    assert "it may have been moved" in refused.value.fix


def test_a_stream_that_is_gone_is_refused() -> None:
    gone = UnionInput("a", "/a", SimulatedDisk().storage(), 0)
    with pytest.raises(DataLoss, match="The stream is gone"):
        Deciding([gone], 1).next(NOTHING_YET)


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_stream_that_is_deleted_while_it_is_read_is_refused(
    tmp_path: Path, has_rows: bool
) -> None:
    storage = LocalStorage(tmp_path / "a")
    stream = written(storage, _SCHEMA, time_column="time")
    deciding, decided = _deciding(stream), NOTHING_YET
    if has_rows:
        _act(stream, "a", 0, [10, 30])
    decided = deciding.next(decided)
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(DataLoss, match="The stream is gone"):
        deciding.next(decided)


@pytest.mark.parametrize("all_of_it", [True, False])
def test_a_promise_that_is_taken_back_is_told_once(all_of_it: bool) -> None:
    first, _ = _two_streams()
    _act(first, "b", 0, [35])
    _act(first, "a", 9, 70)
    _act(first, "b", 9, 60)
    deciding = _deciding(first)
    decided = deciding.next(NOTHING_YET)
    assert decided.released_us == 50
    for entry in first.storage.list("heartbeats"):
        if all_of_it or entry.name.startswith("a-"):
            first.storage.delete(f"heartbeats/{entry.name}")
    with pytest.raises(DataLoss, match="Writer a had promised that nothing comes before") as told:
        deciding.next(decided)
    assert "input a (/a)" in str(told.value)
    assert _deciding(first).next(decided) == decided, "it waits until that time has come again"
    _act(first, "a", 10, 70)
    _act(first, "b", 10, 83)
    assert _deciding(first).next(decided).released_us == 60


def test_a_heartbeat_that_is_damaged_is_no_promise_taken_back() -> None:
    first, _ = _two_streams()
    _act(first, "a", 8, 55)
    _act(first, "a", 9, 70)
    deciding = _deciding(first)
    decided = deciding.next(NOTHING_YET)
    assert decided.released_us == 60
    *_, newest = sorted(entry.name for entry in first.storage.list("heartbeats"))
    first.storage.replace(f"heartbeats/{newest}", [b"{"])
    assert deciding.next(decided) == decided
    _act(first, "a", 10, [65, 95])
    decided = deciding.next(decided)
    assert decided.released_us == 90


def test_a_stream_far_ahead_of_the_clock_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    first, second = _two_streams()
    day = 86_400_000_000
    inputs = [
        UnionInput(n, f"/{n}", s.storage, 0) for n, s in zip("ab", [first, second], strict=True)
    ]
    deciding = Deciding(inputs, 10, clock=lambda: 100)
    _act(first, "a", 2, [day + 102])
    _act(second, "a", 9, 70)
    decided = deciding.next(NOTHING_YET)
    assert not caplog.records
    _act(first, "a", 3, [10 * day])
    for _ in range(3):
        decided = deciding.next(decided)
    (told,) = caplog.records
    assert "input a says that it is complete up to 1970-01-10" in told.message
    _act(second, "a", 10, promises.END_OF_TIME)
    deciding.next(decided)
    assert len(caplog.records) == 1, "one that has ended is not ahead"


def test_an_input_without_any_row_holds_all_others() -> None:
    first, _ = _two_streams()
    empty = written(schema=_SCHEMA, time_column="time")
    assert _deciding(first, empty).next(NOTHING_YET) == NOTHING_YET
    _act(empty, "a", 0, 27)
    assert _deciding(first, empty).next(NOTHING_YET).released_us == 20


def test_a_batch_without_any_time_is_told(caplog: pytest.LogCaptureFixture) -> None:
    stream = written(schema=_SCHEMA, time_column="time")
    into = StreamWriter(stream.storage, stream.meta, clock=stream.clock, delay_us=0)
    rows: list[tuple[int | None, int]] = [(None, 2), (None, 5)]
    into.commit(into.write([batch_of(rows, _SCHEMA)], "a"), "a", 0)
    union = _OneStream(stream.storage)
    for number in (1, 2):
        _act(stream, "a", number, [30 * number])
        union.go_on()
    told = [each.message for each in caplog.records if "no place in the order" in each.message]
    assert len(told) == 1
    assert "input a: 2 rows of batch 0 have no time" in told[0]


def test_rows_without_a_time_are_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    stream = written(schema=_SCHEMA, time_column="time")
    into = StreamWriter(stream.storage, stream.meta, clock=stream.clock, delay_us=0)
    rows: list[tuple[int | None, int]] = [(5, 1), (None, 2), (15, 3), (25, 4), (None, 5)]
    into.commit(into.write([batch_of(rows, _SCHEMA)], "a"), "a", 0)
    _act(stream, "a", 1, [32])
    union = _OneStream(stream.storage)
    union.go_on()
    _act(stream, "a", 2, [62])
    union.go_on()
    assert union.rows == [(5, 1), (15, 3), (25, 4), (32, 100)]
    told = [each.message for each in caplog.records if "no place in the order" in each.message]
    assert len(told) == 1
    assert "2 rows have no time in column time" in told[0]


def test_a_row_far_ahead_does_not_keep_all_that_comes_after_it() -> None:
    """It has to wait, but nobody looks through everything since for it again and again."""
    stream = written(schema=_SCHEMA, time_column="time")
    union = _OneStream(stream.storage)
    _act(stream, "a", 0, [10])
    job = StreamWriter(stream.storage, stream.meta, clock=stream.clock)
    for place in (1, 0):
        job.commit(job.write([batch_of([(10**15 - place, -place)], _SCHEMA)]))
    for number in range(1, 30):
        _act(stream, "a", number, [20 * number])
        union.go_on()
    reached = union.decision.inputs["a"]
    assert (reached.early, reached.first, reached.end) == ((1, 2), 31, 32)
    assert reached.needs == 1
    _act(stream, "a", 30, 10**15 + 10)
    union.go_on()
    assert union.rows[-2:] == [(10**15 - 1, -1), (10**15, 0)]
    assert union.decision.inputs["a"].needs == 32


def test_many_wide_files_are_read_in_few_stretches() -> None:
    stream = written(schema=_SCHEMA, time_column="time")
    pieces = []
    for number in range(50):
        files = stream.writer().write([batch_of([(number, 1), (10_000, 2)], _SCHEMA)])
        pieces += [Piece(0, number, file, None) for file in files]
    found = stretches(pieces, None, 20_000, size=1)
    assert 1 < len(found) <= 4, "each of them reads all files"
    rows = [
        read_stretch(each, {0: open_view(stream.storage)}, _SCHEMA.names, "time", lambda r, _: r)
        for each in found
    ]
    assert sum(0 if each is None else each.num_rows for each in rows) == 100
    ends = [(each.first_us, each.end_us) for each in found]
    assert all(one[1] <= (other[0] or 0) for one, other in pairwise(ends)), "one after another"


@pytest.mark.parametrize(
    "times",
    [
        [(-62_135_596_800_000_000, -62_135_596_800_000_000), (1_763_000_000_000_000,) * 2],
        [(-(2**63), -(2**63)), (2**63 - 6, 2**63 - 5)],
        [(-(2**63), 2**63 - 5), (0, 0), (0, 0)],
        [(5, 5)] * 40,
    ],
)
@pytest.mark.parametrize("first_us", [None, 3])
def test_times_however_far_apart_are_cut_somewhere(
    times: list[tuple[int, int]], first_us: int | None
) -> None:
    files = [DataFile("a", 0, 1, 1 << 20, 0, TimeRange(*each)) for each in times]
    pieces = [Piece(0, n, file, None) for n, file in enumerate(files)]
    for size in (1, 1 << 20, 1 << 30):
        found = stretches(pieces, first_us, 2**63 - 1, size)
        ends = [each.end_us for each in found]
        assert ends == sorted(set(ends))
        assert all(one.end_us <= (other.first_us or 0) for one, other in pairwise(found))
        for piece in pieces:
            times_of = piece.file.time_range
            assert times_of is not None
            held = [s for s in found if piece in s.pieces]
            assert held[-1].end_us > times_of.max_us, "its last row is in the last of them"
            begin = held[0].first_us
            assert begin == first_us or begin is None or begin <= times_of.min_us


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_any_unit_end_where_the_slice_ends(unit: str) -> None:
    schema = pa.schema([("time", pa.timestamp(unit, "UTC")), ("value", pa.int64())])
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    stream = written(schema=schema, time_column="time")
    into = StreamWriter(stream.storage, stream.meta, clock=stream.clock, delay_us=0)
    # The last moment before a second, that second, and the one after.
    times = [-per_second - 1, 2 * per_second - 1, 2 * per_second, 3 * per_second]
    rows = [(time, number) for number, time in enumerate(times)]
    into.commit(into.write([batch_of(rows, schema)], "a"), "a", 0)
    deciding = Deciding([UnionInput("a", "/a", stream.storage, 0)], 1_000_000)
    seen = []
    start = NOTHING_YET
    for asked in (3_000_000, 4_000_000):
        into.send_heartbeat("a", asked)
        end = deciding.next(start)
        assert end.released_us == asked
        for each in stretches(deciding.pieces(start, end), start.released_us, asked):
            views = {0: open_view(stream.storage)}
            table = read_stretch(each, views, schema.names, "time", lambda rows, _: rows)
            assert table is not None
            seen.append(table["value"].to_pylist())
        start = end
    assert seen == [[0, 1, 2], [3]]


# Decisions as files


def _decided() -> tuple[Storage, Decision]:
    storage = SimulatedDisk().storage()
    decided = _deciding(*_two_streams()).next(NOTHING_YET)
    Decisions(storage, NOTHING_YET).publish(NOTHING_YET, decided)
    return storage, decided


def test_a_decision_that_was_published_stands() -> None:
    storage, decided = _decided()
    again = Decisions(storage, NOTHING_YET, decided)  # as after a crash
    again.publish(NOTHING_YET, decided)
    assert newest_decision(storage) == decided
    assert Decisions(storage, decided).adopted is None
    second = replace(decided, number=1)
    Decisions(storage, decided).publish(decided, second)
    assert Decisions(storage, decided).adopted == second, "though Spark has lost it"


def test_nobody_decides_otherwise() -> None:
    storage, decided = _decided()
    other = replace(decided, released_us=1)
    going = Decisions(storage, NOTHING_YET, other)
    with pytest.raises(OtherQuery, match="number 0 was decided elsewhere"):
        going.publish(NOTHING_YET, other)
    with pytest.raises(OtherQuery, match="path of its own"):
        Decisions(storage, replace(NOTHING_YET, late_rows=1))


def test_of_two_that_run_one_union_the_first_goes_no_further() -> None:
    """Also if it would decide the same: operators behind it may get rows of one, and the boundary
    of the other."""
    storage = SimulatedDisk().storage()
    decided = _deciding(*_two_streams()).next(NOTHING_YET)
    first, second = (Decisions(storage, NOTHING_YET) for _ in range(2))
    for refused in (first.check, lambda: first.publish(NOTHING_YET, decided)):
        with pytest.raises(OtherQuery, match="has begun to run the same union"):
            refused()
    second.publish(NOTHING_YET, decided)
    with pytest.raises(OtherQuery, match="knows of 0 batches"):
        Decisions(storage, NOTHING_YET)
    second.check()
    third = Decisions(storage, NOTHING_YET, decided)
    with pytest.raises(OtherQuery, match="has begun to run the same union"):
        second.check()
    third.publish(NOTHING_YET, decided)


def test_a_query_that_went_back_is_refused() -> None:
    storage, decided = _decided()
    second = replace(decided, number=1)
    going = Decisions(storage, decided)
    going.publish(decided, second)
    with pytest.raises(OtherQuery, match="knows of 0 batches: number 1"):
        going.publish(NOTHING_YET, decided)
    with pytest.raises(OtherQuery, match="knows of 0 batches: number 1"):
        Decisions(storage, NOTHING_YET)


def test_old_decisions_and_claims_go() -> None:
    storage, decided = _decided()
    for number in range(1, 200):
        following = replace(decided, number=number)
        Decisions(storage, decided).publish(decided, following)
        decided = following
    assert newest_decision(storage) == decided
    assert len(storage.list("decisions")) < 150
    assert len(storage.list("claims")) == 1


def test_answers_that_are_lost_do_not_matter() -> None:
    """Each call is carried out, and reported as failed or as done before, once."""
    decided = _deciding(*_two_streams()).next(NOTHING_YET)
    for lost in range(2):
        storage = _Forgetful(SimulatedDisk(), lost)
        Decisions(storage, NOTHING_YET).publish(NOTHING_YET, decided)
        assert newest_decision(storage) == decided


class _Forgetful(LocalStorage):
    """Publishes, and says once that somebody else did."""

    def __init__(self, disk: SimulatedDisk, lost: int) -> None:
        super().__init__(ROOT, file_system=disk)
        self._until = lost

    def publish(self, path: str, parts: Any, **given: Any) -> bool:
        done = super().publish(path, parts, **given)
        self._until -= 1
        return done and self._until != -1


@pytest.mark.parametrize("text", [b"", b"{}", b'{"body": {}, "crc32": 1}', b"\xff"])
def test_a_damaged_decision_is_named(text: bytes) -> None:
    storage, decided = _decided()
    storage.replace("decisions/00000000000000000000.json", [text])
    with pytest.raises(DamagedSegment, match="Delete the file") as caught:
        newest_decision(storage)
    assert caught.value.where == "decisions/00000000000000000000.json"
    storage.delete("decisions/00000000000000000000.json")
    Decisions(storage, NOTHING_YET, decided).publish(NOTHING_YET, decided)
    assert newest_decision(storage) == decided
