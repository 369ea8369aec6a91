"""Never more than one interval of checking in a period, on a clock that the test moves."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from trailmark.checkpoint.budget import Budget
from trailmark.checkpoint.noted import Bounds
from trailmark.checkpoint.policy import Continuous

_POLICY = Continuous(q=0, interval="5 ms", period="100 ms")
_INTERVAL, _PERIOD = 5_000, 100_000


class FakeClock:
    def __init__(self, now_us: float = 1_000_000.0) -> None:
        self.now_us = now_us

    def __call__(self) -> float:
        return self.now_us


def _budget(policy: Continuous) -> Budget:
    return policy.begin().budget


class Run:
    """Batches that check as many windows as they may, each at ``cost_us()``."""

    def __init__(self, policy: Continuous, cost_us: Callable[[], float]) -> None:
        self.clock = FakeClock()
        #: The first period begins with the first batch.
        self.started_us = self.clock.now_us
        self._budget = _budget(policy)
        self._policy = policy
        self._cost_us = cost_us
        #: When each piece of work began, and how long it took.
        self.work: list[tuple[float, float]] = []

    def batch(self, wanted: int = 1_000_000) -> int:
        """Checks up to ``wanted`` windows; what is known is carried on as the engine carries it."""
        if self._budget.counted_us is None:
            self.started_us = self.clock.now_us
        budget = _budget(self._policy)
        bounds = Bounds(0, self.clock.now_us)
        budget.read_json(json.loads(json.dumps(self._budget.to_json())), bounds)
        affordable = budget.affordable(self.clock.now_us)
        assert affordable is not None
        count = min(affordable, wanted)
        if count:
            took = self._cost_us() * count
            self.work.append((self.clock.now_us, took))
            self.clock.now_us += took
            budget.spend(count, took)
        self._budget = budget
        return count

    def in_period(self, number: int) -> float:
        """Work that began in the n-th period since the run began."""
        first = self.started_us + number * _PERIOD
        return sum(took for began, took in self.work if first <= began < first + _PERIOD)

    @property
    def periods(self) -> int:
        return int((self.clock.now_us - self.started_us) // _PERIOD) + 1


@pytest.mark.parametrize("seed", range(6))
def test_no_period_of_a_long_run_sees_more_than_one_interval_of_work(seed: int) -> None:
    rng = random.Random(seed)
    run = Run(_POLICY, lambda: 2.0)
    for _ in range(3_000):
        run.clock.now_us += rng.choice((100, 3_000, 40_000, rng.uniform(0, 300_000)))
        run.batch(rng.choice((10, 1_000_000)))
    # The first batch did not know yet what a window costs.
    worst = max(run.in_period(number) for number in range(1, run.periods))
    assert worst <= _INTERVAL


@pytest.mark.parametrize("seed", range(4))
def test_work_that_costs_more_than_expected_is_made_up_for(seed: int) -> None:
    rng = random.Random(seed)
    run = Run(_POLICY, lambda: rng.choice((0.5, 2.0, 2.0, 9.0)))
    for _ in range(3_000):
        run.clock.now_us += rng.uniform(0, 60_000)
        run.batch()
        spent = sum(took for _, took in run.work[-200:])
        stretch = run.clock.now_us - run.work[-200:][0][0]
        # Whatever a batch overspends, 18 intervals at most, is missing from the periods after it.
        assert spent <= _INTERVAL * (stretch / _PERIOD + 1 + 18)
    spent = sum(took for _, took in run.work)
    assert 0.5 * _INTERVAL * run.periods < spent <= _INTERVAL * run.periods + 18 * _INTERVAL


def test_what_is_not_used_is_not_saved_up() -> None:
    run = Run(_POLICY, lambda: 2.0)
    for _ in range(50):
        run.clock.now_us += _PERIOD / 5
        run.batch()
    idle = run.periods + 1_000
    run.clock.now_us = run.started_us + idle * _PERIOD
    for _ in range(5):
        run.batch()
        run.clock.now_us += 10
    assert 0.9 * _INTERVAL <= run.in_period(idle) <= _INTERVAL


def test_a_period_that_is_used_up_affords_nothing_until_the_next_one() -> None:
    run = Run(_POLICY, lambda: 1.0)
    assert run.batch() == _INTERVAL
    assert run.batch() == 0
    run.clock.now_us = run.started_us + _PERIOD - 1
    assert run.batch() == 0
    run.clock.now_us = run.started_us + _PERIOD
    assert run.batch() == _INTERVAL


def test_the_cost_of_a_window_is_learned() -> None:
    run = Run(_POLICY, lambda: 50.0)
    counts = []
    for _ in range(300):
        run.clock.now_us += _PERIOD
        counts.append(run.batch())
    assert counts[0] == _INTERVAL, "a microsecond, until it was measured"
    assert set(counts[1:40]) == {0}, "what that took too much is made up for"
    assert set(counts[60:]) == {100}


def test_a_window_that_becomes_cheaper_is_believed_bit_by_bit() -> None:
    cost = 50.0
    run = Run(_POLICY, lambda: cost)
    for _ in range(100):
        run.clock.now_us += _PERIOD
        run.batch()
    cost = 5.0
    counts = []
    for _ in range(60):
        run.clock.now_us += _PERIOD
        counts.append(run.batch())
    assert counts == sorted(counts)
    assert counts[0] < 150
    assert 950 <= counts[-1] <= 1_000


def test_a_window_that_costs_nothing_measurable_does_not_divide_by_zero() -> None:
    run = Run(_POLICY, lambda: 0.0)
    for _ in range(100):
        run.clock.now_us += _PERIOD
        assert run.batch() > 0


def test_without_a_period_there_is_no_limit() -> None:
    assert _budget(Continuous(q=0)).affordable(1_000.0) is None


def test_a_clock_that_went_back_neither_grants_nor_takes_credit() -> None:
    budget = Budget(_INTERVAL, _PERIOD, credit_us=100.0, counted_us=1e15)
    assert budget.affordable(10.0) == 100


def test_more_than_an_interval_is_never_there() -> None:
    budget = Budget(1_000, _PERIOD, credit_us=5_000.0, counted_us=0.0)
    assert budget.affordable(1.0) == 1_000
