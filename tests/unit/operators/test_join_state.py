"""The state of a join: what it keeps, what it refers to, and what it lets go."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.compare import assert_same_states
from tests.support.engine import Judge, Query
from tests.support.joining import JoinCase, random_join
from tests.support.joining_checks import CaseHistory, open_state
from tests.support.policies import ONE_OF_EACH
from trailmark.checkpoint.ledger import Ledger
from trailmark.checkpoint.policy import Continuous, Delta, FullSnapshot, Policy
from trailmark.errors import DamagedSegment, OperatorError
from trailmark.log import PortRows, monotonic_us, read_ports
from trailmark.operators.join.arrivals import Arrivals
from trailmark.operators.join.matching import Asking, Matching
from trailmark.operators.join.state import JoinState
from trailmark.operators.protocol import BatchInput
from trailmark.records import FOOTPRINT
from trailmark.recovery import NoHistory, plan_recovery, restore
from trailmark.state.memory import Memory
from trailmark.testing.disk import SimulatedDisk
from trailmark.windows.interval import Interval, interval
from trailmark.windows.last_tuples import LastTuples

_SECOND = 1_000_000
_SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us")), ("text", pa.string())])
_FAR = 1 << 50


def _rows(keys: Any, times: Any) -> pa.RecordBatch:
    times = np.asarray(times, dtype=np.int64)
    texts = pa.array([f"tuple {time}" for time in times.tolist()], pa.string())
    columns = [pa.array(np.asarray(keys, dtype=np.int64)), pa.array(times).view(_SCHEMA.types[1])]
    return pa.RecordBatch.from_arrays([*columns, texts], schema=_SCHEMA)


def _batch(*sides: pa.RecordBatch) -> PortRows:
    counts = [rows.num_rows for rows in sides]
    return PortRows(sides, np.repeat(np.arange(2, dtype=np.uint8), counts))


def _case(
    batches: list[PortRows], *, how: str = "inner", reach: int = 0, piece_rows: int = 4
) -> JoinCase:
    within = Interval("at", "at", reach, reach)
    return JoinCase((_SCHEMA, _SCHEMA), ("key",), within, how, tuple(batches), piece_rows)


def _in_order(batches: int, *, rows: int = 6, far: int | None = None) -> list[PortRows]:
    """Both sides go on by a second for each batch; one tuple of a batch may lie far ahead."""
    made = []
    for batch in range(batches):
        times = batch * _SECOND + np.arange(rows) * 1000
        left = times.copy()
        if batch == far:
            left[2] = _FAR
        made.append(_batch(_rows(np.arange(rows) % 3, left), _rows(np.arange(rows) % 3, times)))
    return made


# What the input log is kept for


@pytest.mark.parametrize("how", ["inner", "full"])
@pytest.mark.parametrize(
    "policy",
    [Continuous(q=20), Continuous(u=30), FullSnapshot(3), Delta(2, full_every=4)],
    ids=str,
)
def test_a_tuple_far_in_the_future_does_not_keep_the_input(policy: Policy, how: str) -> None:
    case = _case(_in_order(50, far=3), how=how, reach=2 * _SECOND)
    disk = SimulatedDisk()
    query, judge = Query(case, disk, policy), Judge(case, 1)
    oldest = []
    for batch, rows in enumerate(case.batches):
        judge.check(query, batch, query.run(batch, [rows]))
        for bucket in query.open():
            bucket.trim()
        oldest.append(query.logs().input(0).oldest())
        if batch % 5 == 4:
            query.stop()
    judge.check_state(query, "in the end")
    assert oldest[-1] >= len(case.batches) - 20
    (piece,) = [each for each in judge.oracle(0).open_windows() if each[0][0] == 3]
    assert piece == ((3, 0, 0), None), "it still waits"


def test_with_times_in_order_no_tuple_is_in_a_footprint() -> None:
    case = _case(_in_order(30), how="full", reach=10 * _SECOND)
    operator, state = case.operator(), open_state(case)
    for batch in range(len(case.batches)):
        operator.process(state, case.given(batch))
        slots = state.take_oldest(batch, batch, 1000)
        footprints = operator.footprints(state, slots, 0)
        assert footprints["left"].null_count == footprints["right"].null_count == len(slots) > 0
        assert operator.weigh(footprints) == sum(footprints["tuples"].to_pylist())
    # The last tuple of a batch stays a millisecond longer, and so until the next batch.
    assert operator.looks_back(state) == len(case.batches) - 1 - 11


def test_a_piece_refers_to_its_batch_until_its_footprint_is_written() -> None:
    case = _case(_in_order(30, far=3), reach=0)
    operator, state = case.operator(), open_state(case)
    for batch in range(29):
        operator.process(state, case.given(batch))
    assert operator.looks_back(state) == 3
    state.take_oldest(29, 28, 1000)
    assert operator.looks_back(state) == 27


class _Recording(CaseHistory):
    """Reads the input log, and remembers what was read."""

    def __init__(self, case: JoinCase, query: Query) -> None:
        super().__init__(case)
        self._query = query

    def rows(self, batch: int) -> PortRows:
        self.read.add(batch)
        return read_ports(
            self._query.logs().input(0).read(batch), self._query.case.operator().ports
        )


@pytest.mark.parametrize("name", ["targets", "cost-benefit", "snapshots behind", "deltas"])
def test_a_recovery_looks_back_no_further_than_the_account_says(name: str) -> None:
    case = _case(_quiet_now_and_then(), how="left")
    query, operator = Query(case, SimulatedDisk(), ONE_OF_EACH[name]), case.operator()
    looked = 0
    for batch, rows in enumerate(case.batches):
        (report,) = query.run(batch, [rows])
        logs, history = query.logs(), _Recording(case, query)
        output, inputs = logs.output(0), logs.input(0)
        plan = plan_recovery(operator, output, inputs, logs.snapshots(0), batch, 0)
        state = operator.open(Memory(), history)
        restore(plan, operator, state, Ledger(Memory()), output, inputs, 0, monotonic_us)
        loads_from = report.account.loads_from
        assert all(loads_from is not None and loads_from <= each for each in history.read)
        looked += len(history.read)
    query.stop()
    assert looked


def _quiet_now_and_then() -> list[PortRows]:
    """A tuple far ahead; every few batches nothing comes, and then nothing else waits."""
    batches = _in_order(32, far=2)
    for batch in range(8, 32):
        if batch % 4 < 2:
            batches[batch] = _batch(_rows([], []), _rows([], []))
    return batches


def test_the_last_tuple_of_a_slow_key_keeps_neither_the_input_nor_those_before_it() -> None:
    """Prices of one key change in every batch, those of another once; both are asked for."""
    batches = []
    for batch in range(40):
        times = batch * _SECOND + np.arange(3)
        slow = [2] if batch == 2 else []
        prices = _rows([1] * 3 + slow, np.append(times, times[: len(slow)]))
        batches.append(_batch(_rows([1, 2], times[1:]), prices))
    within = interval("at", "at", nearest="before")
    case = replace(_case(batches, how="left", piece_rows=2), within=within)
    query, judge = Query(case, SimulatedDisk(), Continuous(q=12)), Judge(case, 1)
    for batch, rows in enumerate(batches):
        judge.check(query, batch, query.run(batch, [rows]))
        for bucket in query.open():
            bucket.trim()
        query.stop() if batch % 7 == 6 else None
    judge.check_state(query, "in the end")
    assert query.logs().input(0).oldest() >= 20
    waits = judge.oracle(0).open_windows()
    assert sum(len(each["tuples"]) for each in waits.values()) <= 2 + 2 * 5 + 1
    assert any(opened == 2 for (opened, _, _), _ in waits)


# What it lets go


def test_tuples_that_have_left_and_their_keys_are_let_go() -> None:
    batches = [
        _batch(
            _rows(np.arange(50) + 50 * batch, np.full(50, batch * _SECOND)),
            _rows(np.arange(50) + 50 * batch, np.full(50, batch * _SECOND)),
        )
        for batch in range(60)
    ]
    case = _case(batches, how="full", reach=3 * _SECOND)
    operator, state, sizes = case.operator(), open_state(case), []
    for batch in range(len(batches)):
        operator.process(state, case.given(batch))
        waits = int(state.read_pieces(state.list_oldest())["tuples"].sum())
        held = sum(side.count for side in state.sides)
        assert waits <= held <= 2 * waits + 2 * 64 + 100
        assert state.keys.header.indexed <= held
        sizes.append(state.memory.size)
    assert sizes[-1] == sizes[20], "it does not grow with the number of batches"


def test_few_tuples_that_wait_long_are_moved_no_more_often_than_others_come() -> None:
    """One in fifty lies far ahead, and stays when the others of its batch have left."""
    batches = []
    for batch in range(40):
        times = np.where(np.arange(100) % 50 == 0, _FAR + batch, batch * _SECOND)
        batches.append(_batch(_rows(np.arange(100), times), _rows([7], [batch * _SECOND + 1000])))
    case = _case(batches)
    operator, state, moved = case.operator(), open_state(case), 0
    for batch in range(len(batches)):
        before = state.sides[0].count
        operator.process(state, case.given(batch))
        if state.sides[0].count < before + 100:
            moved += state.sides[0].count
    assert state.sides[0].count <= 2 * 80 + 64 + 100
    assert moved <= 40 * 100


# Pairs


def test_more_pairs_than_allowed_are_refused_and_nothing_is_written() -> None:
    crowd = _batch(_rows([1] * 50, range(50)), _rows([1] * 50, range(50)))
    case = _case([_in_order(1)[0], crowd], reach=_SECOND)

    disk = SimulatedDisk()
    bounded = Query(replace(case, most_pairs=2_699), disk, Continuous())
    bounded.run(0, [case.batches[0]])
    with pytest.raises(OperatorError, match="makes more than 2,699 pairs") as refused:
        bounded.run(1, [crowd])
    assert "one tuple alone makes 52" in refused.value.what
    assert "Shorten the interval" in refused.value.fix
    assert not bounded.logs().output(0).contains(1)
    bounded.stop()
    query, judge = Query(case, disk, Continuous()), Judge(case, 1)
    judge.check(query, 0, query.run(0, [case.batches[0]]))
    judge.check(query, 1, query.run(1, [crowd]))
    query.stop()


@pytest.mark.parametrize("far", [None, 17], ids=["in order", "one far ahead"])
def test_a_key_that_a_million_tuples_have_costs_what_matches(far: int | None) -> None:
    """A window that holds all of them; few of each batch match a tuple."""
    count = 1_000_000
    times = np.arange(count, dtype=np.int64)
    if far is not None:
        times[far] = _FAR
    schema = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us"))])

    def rows(times: Any) -> pa.RecordBatch:
        columns = [pa.array(np.ones(len(times), np.int64)), pa.array(times).view(schema.types[1])]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    within = Interval("at", "at", 5, 5, left_delay=2 * count, right_delay=2 * count)
    case = JoinCase((schema, schema), ("key",), within, "inner", ())
    operator, state = case.operator(), case.operator().open(Memory(), NoHistory())
    operator.process(state, _given(0, rows(times), rows(times[:0])))
    asked = np.arange(0, count, 1000, dtype=np.int64)
    arrivals = Arrivals.of(_given(1, rows(times[:0]), rows(asked)), operator._rules.sides)
    matching = Matching(state, Asking.arriving(state, arrivals), operator._rules.reach, adds=True)
    assert matching.total == 11 * len(asked) - 5
    assert matching.steps <= 100 * len(asked)


def test_pairs_are_counted_no_further_than_they_are_allowed() -> None:
    """A million of one key on each side would take hours to count."""
    many = _rows(np.ones(1_000_000), np.zeros(1_000_000))
    operator = replace(_case([]), most_pairs=1_000_000).operator()
    state = operator.open(Memory(), NoHistory())
    with pytest.raises(OperatorError, match="one tuple alone makes 1,000,000"):
        operator.process(state, _given(0, many, many))


def _given(batch: int, left: pa.RecordBatch, right: pa.RecordBatch) -> BatchInput:
    return BatchInput.of(batch, _batch(left, right), None, None)


# Memory and footprints


def test_another_process_finds_the_state_as_it_was_left(tmp_path: Path) -> None:
    for seed in range(6):
        case = random_join(random.Random(seed))
        operator, oracle = case.operator(), case.oracle()
        place = tmp_path / str(seed)
        place.mkdir()
        for batch in range(len(case.batches)):
            given = case.given(batch)
            memory = Memory(place)
            state = operator.open(memory, NoHistory(), is_new=batch == 0)
            operator.process(state, given)
            marks = (given.late_before, given.watermark)
            case.outcome(oracle, batch, case.batches[batch], *marks)
            assert_same_states(case.states(operator, state), oracle.open_windows(), f"{seed}")
            memory.close()


def _footprints(case: JoinCase) -> pa.RecordBatch:
    operator, state = case.operator(), open_state(case)
    for batch in range(len(case.batches)):
        operator.process(state, case.given(batch))
    return operator.footprints(state, state.take_oldest(100, 2, 100), 0)


def _changed(rows: pa.RecordBatch, name: str, values: Any) -> pa.RecordBatch:
    place = rows.schema.get_field_index(name)
    column = values if isinstance(values, pa.Array) else pa.array(values, rows.schema.types[place])
    return rows.set_column(place, rows.schema.field(name), column)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("side", 2, "side"),
        ("first", -1, "first"),
        ("tuples", 0, "tuples"),
        ("tuples", 5, "tuples"),
        ("position", -1, "position"),
        ("since", -(1 << 63), "since"),
        ("$opened", 3, "opened"),
        ("matched", b"too long", "matched"),
        ("matched", None, "matched"),
        ("left", [], "left"),
        ("right", [{"key": 1, "at": 0, "text": ""}] * 9, "right"),
        ("right", [None] * 4, "right"),
    ],
)
def test_footprints_that_cannot_be_are_found_out(name: str, value: Any, says: str) -> None:
    case = _case(_in_order(3), how="full", reach=10 * _SECOND)
    rows, operator = _footprints(case), case.operator()
    assert operator.trouble(rows, 2) == ""
    assert says in operator.trouble(_changed(rows, name, [value] * rows.num_rows), 2)
    assert "other columns" in operator.trouble(rows.drop_columns([name]), 2)


@pytest.mark.parametrize(("name", "add"), [("since", 1), ("tuples", -1), ("first", 40)])
def test_footprints_that_contradict_the_input_are_refused(name: str, add: int) -> None:
    case = _case(_in_order(3), reach=10 * _SECOND)
    rows, operator = _footprints(case), case.operator()
    wrong = _changed(rows, name, [each + add for each in rows[name].to_pylist()])
    ages = pa.array([2] * rows.num_rows, pa.int64())
    with pytest.raises(DamagedSegment, match="contradicts the logged input"):
        operator.load(open_state(case), wrong.append_column(FOOTPRINT, ages), "here")


def test_a_replay_that_would_end_a_piece_is_refused() -> None:
    case = _case(_in_order(3), reach=10 * _SECOND)
    rows, operator, state = _footprints(case), case.operator(), open_state(case)
    ages = pa.array([2] * rows.num_rows, pa.int64())
    operator.load(state, rows.append_column(FOOTPRINT, ages), "here")
    given = _given(3, _rows([], []), _rows([], []))
    with pytest.raises(DamagedSegment, match="all tuples of a piece would leave"):
        operator.replay(state, replace(given, watermark=100 * _SECOND), "here")


def test_a_replay_of_windows_looks_at_no_tuple_that_came_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One key has 2,000 tuples on the left, then 5,000 on the right, which met them when they
    came."""
    schema = pa.schema([("key", pa.int64())])
    windows = (LastTuples(0, per_key=True), LastTuples(10_000, per_key=True))
    case = JoinCase((schema, schema), ("key",), None, "right", (), windows=windows)
    operator, rows = case.operator(), pa.record_batch({"key": pa.array([7] * 5000)})
    batches = [
        _given(0, rows.slice(0, 2000), rows.slice(0, 0)),
        _given(1, rows.slice(0, 0), rows),
    ]

    class Logged(NoHistory):
        def rows(self, batch: int) -> PortRows:
            given = batches[batch]
            return PortRows((given.rows, *given.others), given.order)

    state = operator.open(Memory(), Logged())
    for given in batches:
        operator.process(state, given)
    footprints = operator.footprints(state, state.list_oldest(), 0)
    recovered = operator.open(Memory(), Logged())
    stamps = pa.array([1] * footprints.num_rows, pa.int64())
    operator.load(recovered, footprints.append_column(FOOTPRINT, stamps), "here")
    met: list[int] = []
    looked = Matching.__init__

    def looking(self: Matching, *arguments: Any, **given: Any) -> None:
        looked(self, *arguments, **given)
        met.append(self.steps)

    monkeypatch.setattr(Matching, "__init__", looking)
    searched: list[int] = []
    surplus = JoinState.surplus
    monkeypatch.setattr(
        JoinState,
        "surplus",
        lambda *given: searched.append(0) or surplus(*given),  # type: ignore[func-returns-value]
    )
    for given in batches:
        operator.replay(recovered, given, "here")
    assert met[0] <= 2000 * 30  # a few jumps each
    assert len(searched) == 2, "what has left a window is looked for once for each side"
