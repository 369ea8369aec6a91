"""A clock that leaps, or a process that is stopped for a day, is forgotten soon."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.support.leaps import DAY_US, HOUR_US
from tests.support.orders import count_case
from tests.support.work import WorkClock, Worked, workloads
from trailmark.checkpoint.budget import Budget
from trailmark.checkpoint.noted import Bounds
from trailmark.checkpoint.policy import Continuous, Policy
from trailmark.checkpoint.rates import Rates, Work
from trailmark.engine import checkpoints
from trailmark.log import StreamLog
from trailmark.operators.protocol import AnyOperator, History
from trailmark.recovery.rehearse import rehearse_load

_BEGUN, _AFTER = 25, 8
_CASE = workloads(_BEGUN + _AFTER + 2)["uniform"]


class LeapsOnce(WorkClock):
    """Leaps by a day before the n-th look at it."""

    def __init__(self, before: int | None) -> None:
        super().__init__()
        self.looks = 0
        self._before = before

    def __call__(self) -> float:
        self.looks += 1
        if self.looks == self._before:
            self.now_us += DAY_US
        return super().__call__()


def _begun(policy: Policy) -> Worked:
    """A query whose rates are known."""
    run = Worked(_CASE, policy)
    while run.next_batch < _BEGUN:
        run.step()
        if run.next_batch % 5 in (2, 4):
            run.restart()
    run.restart()
    return run


def _goes_on(run: Worked, before: int | None) -> tuple[Worked, LeapsOnce]:
    """The same query in a new process, which recovers; the clock leaps on the way."""
    clock, disk = LeapsOnce(before), run.disk.copy()
    return Worked(run.case, run.policy, run.costs, disk, run.next_batch, clock=clock), clock


def test_wherever_a_leap_falls_the_objective_is_kept_soon_after() -> None:
    policy = Continuous.within("1 second")
    run = _begun(policy)
    twin, clock = _goes_on(run, None)
    twin.step()
    twin.step()
    twin.restart()
    assert clock.looks > 15
    for before in range(1, clock.looks + 1):
        twin, _ = _goes_on(run, before)
        written = 0
        for _ in range(_AFTER):
            report = twin.step()
            written += report.footprints_opened + report.footprints_checked
        assert report.account.is_reachable, f"look {before}"
        assert report.account.predicted_us <= 0.8 * policy.objective_us, f"look {before}"
        assert twin.recovery_us() <= policy.objective_us, f"look {before}"
        assert written > 0, f"look {before}: rounds go on"
        twin.restart()


def test_rehearsals_go_on_after_one_that_seemed_to_take_a_day(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rehearsed: list[int] = []

    def counted(
        operator: AnyOperator, output: StreamLog, history: History, batch: int, *rest: Any
    ) -> Rates:
        rehearsed.append(batch)
        if batch == 0:
            clock.spend(DAY_US)
        return rehearse_load(operator, output, history, batch, *rest)

    monkeypatch.setattr(checkpoints, "rehearse_load", counted)
    case = count_case([[(1_100 * b + item, 1) for item in range(1_100)] for b in range(3)])
    clock = WorkClock()
    run = Worked(case, Continuous(), clock=clock)
    for _ in range(3):
        run.step()
        clock.spend(HOUR_US)
    run.restart()
    assert rehearsed == [0, 1, 2], "an hour later at the latest"


def test_a_budget_is_there_again_soon_after_a_leap() -> None:
    clock = WorkClock()
    budget = Budget.of(5_000, 100_000)
    assert budget.affordable(clock()) == 5_000
    budget.spend(1_000, DAY_US)
    checked = 0
    for _ in range(200):
        clock.spend(100_000)
        affordable = budget.affordable(clock())
        assert affordable is not None
        budget.spend(affordable, 1.0 * affordable)
        checked += affordable
    assert budget.affordable(clock()) == int(budget.credit_us / budget.cost_us)
    assert budget.cost_us < 1.1, "it costs what it did before"
    assert checked > 100_000


def test_a_budget_leaves_its_notes_whole_when_the_clock_stands_still() -> None:
    budget = Budget.of(5_000, 100_000)
    for _ in range(50):
        affordable = budget.affordable(3.0)
        assert affordable is not None
        budget.spend(affordable, 0.0)
        notes = budget.to_json()
        assert all(isinstance(value, float) and math.isfinite(value) for value in notes.values())
        budget.read_json(notes, Bounds(0, 3.0))


def test_what_seems_to_take_a_day_teaches_nothing() -> None:
    rates, work = Rates(), Work(segments=1, records=1_000, batches=1, tuples=1_000)
    assert rates.after_processing(100, DAY_US) == rates
    assert rates.after_writing(100, DAY_US) == rates
    assert rates.after_loading(work, DAY_US) == rates
    assert rates.after_batch(DAY_US, None) == rates
    assert rates.after_recovery(work, DAY_US, DAY_US, DAY_US) == rates


def test_rates_stay_numbers_to_divide_by_when_the_clock_stands_still() -> None:
    rates, work = Rates(), Work(segments=1, records=1_000, batches=1, tuples=1_000)
    for _ in range(300):
        rates = rates.after_processing(100, 0).after_writing(100, 0).after_loading(work, 0)
        rates = rates.after_batch(0, 0).after_recovery(work, 0, 0, 0)
    assert all(0 < value < 10 for value in rates.to_attributes().values())
    assert rates.predict_us(work) >= 0
