"""Random sessions against the oracle: results of every batch, and what every key has open."""

from __future__ import annotations

import random

import pytest

from tests.support.compare import assert_same_outcome, assert_same_rows, assert_same_states
from tests.support.forks import Forked
from tests.support.plain import plain_rows
from tests.support.seeds import reported, seeds
from tests.support.sessions import SessionCase, random_sessions
from trailmark.recovery import NoHistory
from trailmark.state.memory import Memory

_PARTS = 2


def _check(case: SessionCase) -> int:
    """Every batch gives the oracle's results and leaves what it has open; returns how many sessions
    ended."""
    operator, oracle, ended = case.operator(), case.oracle(), 0
    table = operator.open(Memory(), NoHistory())
    for batch in range(len(case.batches)):
        given = case.given(batch)
        what = f"batch {batch}"
        times = (given.late_before, given.watermark)
        expected = oracle.process(batch, plain_rows(given.rows), *times)
        found = operator.process(table, given)
        assert_same_outcome(found, expected, oracle, what)  # type: ignore[arg-type]
        assert_same_states(case.states(operator, table), oracle.open_windows(), what)
        ended += len(expected.results)
    return ended


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_batch_gives_the_results_and_states_of_the_oracle(part: int) -> None:
    ended = 0
    for seed in seeds(300)[part::_PARTS]:
        case = random_sessions(random.Random(seed))
        with reported(seed, case):
            ended += _check(case)
    assert ended > 0


@pytest.mark.parametrize("origin_follows", [False, True])
def test_a_fork_goes_on_as_the_state_would_which_stays_as_it_is(origin_follows: bool) -> None:
    for seed in seeds(80):
        rng = random.Random(seed)
        case = random_sessions(rng)
        with reported(seed, case):
            _check_fork(case, rng, origin_follows=origin_follows)


def _check_fork(case: SessionCase, rng: random.Random, *, origin_follows: bool) -> None:
    operator, oracle = case.operator(), case.oracle()
    Forked(
        operator,
        operator.open(Memory(), NoHistory()),
        oracle,
        [case.given(batch) for batch in range(len(case.batches))],
        lambda given: oracle.process(
            given.batch, plain_rows(given.rows), given.late_before, given.watermark
        ),
        lambda found, expected, what: assert_same_rows(found.results, expected.results, what),
        lambda state: case.states(operator, state),
    ).check(rng, origin_follows=origin_follows)
