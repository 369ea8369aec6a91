"""Random barriers against the oracle: results of every batch, and every tuple in flight."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from tests.support.barriers import BarrierCase, BarrierOracle, random_barrier
from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.forks import Forked
from tests.support.oracle import OracleOutcome
from tests.support.plain import plain_rows
from tests.support.seeds import reported, seeds
from tests.support.tables import ExactMemory
from trailmark.log import PortRows
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.records import FOOTPRINT
from trailmark.state.memory import Memory


class CaseHistory:
    """The batches of a case as the input log has them. Implements `History`."""

    def __init__(self, case: BarrierCase, since: int | None = 0) -> None:
        self._case = case
        self._since = since

    def rows(self, batch: int) -> PortRows:
        assert self._since is not None, "nothing is referred to"
        assert batch >= self._since, "an older batch than the state looks back to"
        return self._case.operator().arrange(self._case.batches[batch])


def _expected(case: BarrierCase, oracle: BarrierOracle, given: BatchInput) -> OracleOutcome:
    rows = PortRows((given.rows, *given.others), given.order)
    return case.outcome(oracle, given.batch, rows, None, None)


def _assert_same(outcome: Outcome, expected: OracleOutcome, what: str) -> None:
    outcome.results.validate(full=True)
    assert_same_rows(outcome.results, expected.results, what)


def test_every_batch_gives_the_results_of_the_oracle_in_order_and_leaves_its_tuples() -> None:
    results = 0
    for seed in seeds(60):
        case = random_barrier(random.Random(seed))
        with reported(seed, case):
            operator, oracle = case.operator(), case.oracle()
            memory = ExactMemory() if seed % 3 == 0 else Memory()
            state = operator.open(memory, CaseHistory(case))
            for batch in range(len(case.batches)):
                given = case.given(batch)
                expected = _expected(case, oracle, given)
                outcome = operator.process(state, given)
                _assert_same(outcome, expected, f"batch {batch}")
                assert repr(plain_rows(outcome.results)) == repr(expected.results)
                states = oracle.open_windows()
                assert_same_states(case.states(operator, state), states, f"batch {batch}")
                results += len(expected.results)
    assert results > 200


def test_a_footprint_and_a_replay_restore_every_tuple_in_flight() -> None:
    held = 0
    for seed in seeds(60):
        rng = random.Random(seed)
        case = random_barrier(rng)
        with reported(seed, case):
            operator, oracle = case.operator(), case.oracle()
            state = operator.open(Memory(), CaseHistory(case))
            written: tuple[int, pa.RecordBatch, int | None] | None = None
            for batch in range(len(case.batches)):
                given = case.given(batch)
                _assert_same(operator.process(state, given), _expected(case, oracle, given), "")
                if rng.random() < 0.5 and state.open_windows:
                    state.renew(state.list_oldest(), batch)
                    footprint = operator.footprints(state, state.list_oldest(), 0)
                    assert operator.trouble(footprint, batch) == ""
                    assert operator.weigh(footprint) == 1 + sum(q.in_flight for q in state.queues)
                    written = batch, footprint, operator.looks_back(state)
                    held += state.held_before > 0
                if written is not None and rng.random() < 0.4:
                    at, footprint, looked_back = written
                    recovered = operator.open(Memory(), CaseHistory(case, looked_back))
                    stamps = pa.array([at], pa.int64())
                    operator.load(recovered, footprint.append_column(FOOTPRINT, stamps), "rebuilt")
                    for replayed in range(at + 1, batch + 1):
                        operator.replay(recovered, case.given(replayed), "rebuilt")
                    wanted = oracle.open_windows()
                    assert_same_states(case.states(operator, recovered), wanted, f"at {batch}")
                    assert operator.looks_back(recovered) == operator.looks_back(state)
                    state = recovered
    assert held > 0


@pytest.mark.parametrize("origin_follows", [False, True])
def test_a_fork_goes_on_as_the_state_would_which_stays_as_it_is(origin_follows: bool) -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        case = random_barrier(rng)
        with reported(seed, case):
            _forked(case).check(rng, origin_follows=origin_follows)


def _forked(case: BarrierCase) -> Forked:
    operator, oracle, history = case.operator(), case.oracle(), CaseHistory(case)
    return Forked(
        operator,
        operator.open(Memory(), history),
        oracle,
        [case.given(batch) for batch in range(len(case.batches))],
        lambda given: _expected(case, oracle, given),
        _assert_same,
        lambda state: case.states(operator, state),
        history,
    )


def test_a_silent_input_costs_no_more_than_what_the_others_bring() -> None:
    schema = pa.schema([("value", pa.int64())])
    rows = pa.record_batch({"value": pa.array(np.arange(1000))})
    none = rows.slice(0, 0)
    case = BarrierCase({"a": schema, "b": schema}, (), ())
    operator = case.operator()
    state = operator.open(Memory(), CaseHistory(case))
    order = np.zeros(1000, dtype=np.uint8)
    for batch in range(50):
        operator.process(state, BatchInput.of(batch, PortRows((rows, none), order), None, None))
    state.renew(state.list_oldest(), 49)
    footprint = operator.footprints(state, state.list_oldest(), 0)
    assert footprint.nbytes < 50 * 100  # a range for each batch
    assert operator.looks_back(state) == 0
    given = BatchInput.of(50, PortRows((none, rows), order + 1), None, None)
    answer = operator.process(state, given)
    assert answer.results.column(0).to_pylist() == answer.results.column(1).to_pylist()
    assert answer.results.num_rows == 1000
    assert operator.looks_back(state) == 1
