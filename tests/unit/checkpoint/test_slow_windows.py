"""`SlowWindows`: every slow window once in a period, a few at a time, and no other."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.cases import Case
from tests.support.oracle import Identity
from tests.support.orders import Order, count_case
from tests.support.work import Costs, Counted
from trailmark.checkpoint.policy import SlowWindows
from trailmark.records import FootprintKind

#: Work takes no time here, and batches are a second apart.
_NO_TIME = Costs(0, 0, 0, 0, 0, 0, 0)
_SECOND_US = 1_000_000.0


def _run(case: Case, policy: SlowWindows) -> list[set[Identity]]:
    """The windows that each batch checks; only windows that are slow."""
    run = Counted(case, policy, _NO_TIME, idle_us=_SECOND_US)
    checked = []
    for batch in range(len(case.batches)):
        run.step()
        found = run.written(batch, FootprintKind.CHECK)
        opened = run.recount.open_after[batch]
        young = {w for w in found if (batch - opened[w]) * _SECOND_US < policy.threshold_us}
        assert not young, f"batch {batch}"
        checked.append(found)
    return checked


def _everyone(batches: int, items: int) -> list[list[Order]]:
    """All windows open in the first batch and stay open."""
    return [[(item, 1) for item in range(items)], *[[(0, 1)]] * (batches - 1)]


@pytest.mark.parametrize("shots", [1, 2, 5, 10])
@pytest.mark.parametrize("items", [1, 7, 100])
def test_every_slow_window_is_checked_exactly_once_in_every_period(shots: int, items: int) -> None:
    case = count_case(_everyone(60, items), size=1_000)
    checked = _run(case, SlowWindows("5 seconds", "10 seconds", shots=shots))
    for first in range(10, 60, 10):  # the first period has begun before any window was slow
        times = Counter(w for found in checked[first : first + 10] for w in found)
        assert set(times.values()) == {1}, f"period from batch {first}"
        assert len(times) == items


@pytest.mark.parametrize(("shots", "sizes"), [(1, [100]), (4, [25] * 4), (3, [34, 34, 32])])
def test_the_shots_of_a_period_are_evenly_spread_over_it(shots: int, sizes: list[int]) -> None:
    case = count_case(_everyone(36, 100), size=1_000)
    checked = _run(case, SlowWindows("5 seconds", "12 seconds", shots=shots))
    for first in (12, 24):
        period = [len(found) for found in checked[first : first + 12]]
        assert [count for count in period if count] == sizes
        assert [at for at, count in enumerate(period) if count] == [
            12 * shot // shots for shot in range(shots)
        ]


def test_more_shots_than_batches_are_made_up_for_in_the_next_batch() -> None:
    case = count_case(_everyone(25, 100), size=1_000)
    checked = _run(case, SlowWindows("2 seconds", "5 seconds", shots=50))
    assert [len(found) for found in checked[5:10]] == [2, 20, 20, 20, 20]


def test_windows_that_close_before_their_turn_leave_theirs_to_others() -> None:
    """Nobody is forgotten because others have gone."""
    rng = random.Random(1)
    rows = [[(rng.randrange(60), 1) for _ in range(40)] for _ in range(80)]
    case = count_case(rows, size=12)
    policy = SlowWindows("5 seconds", "10 seconds", shots=5)
    run = Counted(case, policy, _NO_TIME, idle_us=_SECOND_US)
    checked = []
    for batch in range(80):
        run.step()
        checked.append(run.written(batch, FootprintKind.CHECK))
    opened = run.recount.open_after
    for first in range(10, 80, 10):
        slow = {(w, at) for w, at in opened[first].items() if first - at >= 5}
        stayed = {w for w, at in slow if (w, at) in opened[first + 9].items()}
        assert stayed <= {w for found in checked[first : first + 10] for w in found}


def test_windows_that_become_slow_during_a_period_do_not_take_the_turn_of_others() -> None:
    """Three more in every batch, and all of them stay."""
    rows = [[(3 * batch + item, 1) for item in range(3)] for batch in range(60)]
    checked = _run(count_case(rows, size=10), SlowWindows("5 seconds", "10 seconds", shots=5))
    for first in range(10, 60, 10):
        slow = set(range(3 * (first - 4)))
        found = {w[0][0] for batch in range(first, first + 10) for w in checked[batch]}
        assert slow <= found, f"period from batch {first}: {len(slow - found)} were left out"


def test_a_threshold_of_no_time_makes_every_older_window_slow() -> None:
    case = count_case(_everyone(20, 30), size=1_000)
    checked = _run(case, SlowWindows("0 seconds", "5 seconds"))
    assert [len(found) for found in checked] == [0, 0, 0, 0, 0, *[30, 0, 0, 0, 0] * 3]


def test_a_window_younger_than_the_threshold_is_never_checked() -> None:
    rng = random.Random(2)
    rows = [[(rng.randrange(50), 1) for _ in range(60)] for _ in range(50)]
    checked = _run(count_case(rows, size=10), SlowWindows("8 seconds", "3 seconds"))
    assert sum(map(len, checked)) > 20


def test_every_window_has_a_footprint_from_the_batch_it_opened_in() -> None:
    rng = random.Random(3)
    rows = [[(rng.randrange(50), 1) for _ in range(60)] for _ in range(20)]
    run = Counted(count_case(rows, size=10), SlowWindows("1 hour", "1 hour"), _NO_TIME)
    for batch in range(20):
        run.step()
        opened = run.recount.open_after[batch]
        new = {window for window, at in opened.items() if at == batch}
        assert run.written(batch, FootprintKind.OPEN) == new


def test_after_a_restart_the_next_period_begins_at_once() -> None:
    case = count_case(_everyone(40, 40), size=1_000)
    policy = SlowWindows("5 seconds", "10 seconds", shots=2)
    run = Counted(case, policy, _NO_TIME, idle_us=_SECOND_US)
    checked = []
    for batch in range(40):
        if batch == 23:
            run.restart()
        run.step()
        checked.append(len(run.written(batch, FootprintKind.CHECK)))
    assert [batch for batch, count in enumerate(checked) if count] == [10, 15, 20, 23, 28, 33, 38]
    assert set(checked) == {0, 20}


def test_a_footer_says_how_many_windows_are_slow() -> None:
    case = count_case(_everyone(12, 40), size=1_000)
    run = Counted(case, SlowWindows("5 seconds", "10 seconds", shots=2), _NO_TIME)
    run.idle_us = _SECOND_US
    for _ in range(12):
        run.step()
    assert run.footer(10).attributes["decision"] == {"slow": 40, "shots": 1}
