"""What every random case of a join is held to: the oracle's answer, also after a recovery, and on a
fork."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa

from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.forks import Forked
from tests.support.joining import JoinCase, JoinOracle
from tests.support.oracle import Identity, OracleOutcome
from tests.support.plain import plain_rows
from trailmark.log import PortRows
from trailmark.operators.join.state import JoinState
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.records import FOOTPRINT, NO_BATCH
from trailmark.state.memory import Memory

MakeMemory = Callable[[], Memory]


class CaseHistory:
    """The batches of a case as the input log has them. Implements `History`."""

    def __init__(self, case: JoinCase) -> None:
        self._case = case
        self.read: set[int] = set()

    def rows(self, batch: int) -> PortRows:
        self.read.add(batch)
        return self._case.operator().arrange(self._case.batches[batch])


def open_state(case: JoinCase, make_memory: MakeMemory = Memory) -> JoinState:
    """An empty state that looks back at the batches of the case."""
    return case.operator().open(make_memory(), CaseHistory(case))


def _expected(case: JoinCase, oracle: JoinOracle, given: BatchInput) -> OracleOutcome:
    rows = PortRows((given.rows, *given.others), given.order)
    return case.outcome(oracle, given.batch, rows, given.late_before, given.watermark)


def _assert_same(outcome: Outcome, expected: OracleOutcome, what: str, *, keeps_late: bool) -> None:
    outcome.results.validate(full=True)
    assert_same_rows(outcome.results, expected.results, what)
    assert outcome.late_rows == expected.late_rows, what
    assert outcome.null_times == expected.null_times, what
    assert (outcome.late is not None) == (keeps_late and expected.late_rows > 0), what
    if outcome.late is not None:
        outcome.late.validate(full=True)
        assert_same_rows(outcome.late, expected.late, what)


def check_against_oracle(case: JoinCase, make_memory: MakeMemory = Memory) -> int:
    """Every batch gives the oracle's results, in order, and leaves the tuples that the oracle has;
    returns how many results there were."""
    operator, oracle, results = case.operator(), case.oracle(), 0
    state = open_state(case, make_memory)
    for batch in range(len(case.batches)):
        given = case.given(batch)
        expected = _expected(case, oracle, given)
        outcome = operator.process(state, given)
        _assert_same(outcome, expected, f"batch {batch}", keeps_late=oracle.keeps_late_rows)
        assert repr(plain_rows(outcome.results)) == repr(expected.results), f"order of {batch}"
        states = oracle.open_windows()
        assert_same_states(case.states(operator, state), states, f"batch {batch}")
        results += len(expected.results)
    return results


class EventualCheckpoint:
    """The newest footprint of every piece, taken a few at a time as checkpointing does."""

    def __init__(self, case: JoinCase, rng: random.Random) -> None:
        self._case = case
        self._operator = case.operator()
        self._rng = rng
        self._logged: dict[int, pa.RecordBatch] = {}
        self._newest: dict[Identity, tuple[int, int]] = {}
        self._looked_back: dict[int, int | None] = {}

    def take(self, state: JoinState, batch: int) -> None:
        """A footprint for every piece that has none, and for some of the oldest others."""
        bare = state.take_oldest(NO_BATCH + 1, batch, state.open_windows)
        checked = state.take_oldest(batch, batch, self._rng.choice((0, 0, 1, 2, 1000)))
        slots = np.concatenate([bare, checked])
        self._logged[batch] = self._operator.footprints(state, slots, len(bare))
        assert self._operator.trouble(self._logged[batch], batch) == ""
        for place, identity in enumerate(
            self._case.footprint_states(self._operator, self._logged[batch])
        ):
            self._newest[identity] = batch, place
        self._looked_back[batch] = self._operator.looks_back(state)

    def rebuild(self, state: JoinState, batch: int, memory: Memory) -> JoinState:
        """The pieces of a state from footprints and a replay of the batches since. Nothing is read
        that the state did not look back at when the oldest of them was written."""
        case, operator, history = self._case, self._operator, CaseHistory(self._case)
        needed: dict[int, list[int]] = {}
        wanted = case.states(operator, state)
        for found, place in sorted(self._newest[identity] for identity in wanted):
            needed.setdefault(found, []).append(place)
        recovered = operator.open(memory, history)
        for found, places in needed.items():
            rows = self._logged[found].take(pa.array(places))
            stamps = pa.array([found] * len(places), pa.int64())
            operator.load(recovered, rows.append_column(FOOTPRINT, stamps), "rebuild")
        oldest = min(needed, default=batch)
        looked_back = self._looked_back.get(oldest)
        first = oldest + 1 if looked_back is None else looked_back
        assert all(first <= read for read in history.read)
        for replayed in range(oldest + 1, batch + 1):
            operator.replay(recovered, case.given(replayed), "rebuild")
        what = f"rebuilt after batch {batch}"
        assert_same_states(case.states(operator, recovered), wanted, what)
        assert operator.looks_back(recovered) == operator.looks_back(state), what
        return recovered


def check_rebuilt(case: JoinCase, rng: random.Random, make_memory: MakeMemory = Memory) -> None:
    """A state rebuilt at random batches goes on exactly as the live one would have."""
    operator, oracle = case.operator(), case.oracle()
    state, checkpoint = open_state(case, make_memory), EventualCheckpoint(case, rng)
    for batch in range(len(case.batches)):
        given = case.given(batch)
        expected = _expected(case, oracle, given)
        outcome = operator.process(state, given)
        _assert_same(outcome, expected, f"batch {batch}", keeps_late=oracle.keeps_late_rows)
        checkpoint.take(state, batch)
        if rng.random() < 0.4:
            state = checkpoint.rebuild(state, batch, make_memory())


def check_changed(case: JoinCase) -> None:
    """A piece that a batch does not call changed is as it was."""
    operator, state = case.operator(), open_state(case)
    before = case.states(operator, state)
    for batch in range(len(case.batches)):
        given = replace(case.given(batch), lists_changed=True)
        changed = operator.process(state, given).changed
        named = set(case.footprint_states(operator, operator.footprints(state, changed, 0)))
        after = case.states(operator, state)
        left_alone = {identity: each for identity, each in after.items() if identity not in named}
        assert_same_states(left_alone, {each: before[each] for each in left_alone}, f"{batch}")
        before = after


def check_fork(case: JoinCase, rng: random.Random, *, origin_follows: bool) -> None:
    """A fork is as `Forked` says."""
    operator, oracle = case.operator(), case.oracle()
    Forked(
        operator,
        open_state(case),
        oracle,
        [case.given(batch) for batch in range(len(case.batches))],
        lambda given: _expected(case, oracle, given),
        partial(_assert_same, keeps_late=oracle.keeps_late_rows),
        lambda state: case.states(operator, state),
        CaseHistory(case),
    ).check(rng, origin_follows=origin_follows)
