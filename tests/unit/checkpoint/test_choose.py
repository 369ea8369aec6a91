"""Which footprints are in the output log, against a plain list of windows and their ages."""

from __future__ import annotations

import random
from collections import Counter
from functools import partial

import pytest

from tests.support.followed import Followed
from tests.support.oracle import Identity
from tests.support.orders import count_case, orders, random_orders
from tests.support.policies import random_policy
from tests.support.recount import LoggedFootprint, Recount
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint import continuous
from trailmark.checkpoint.account import empty_account
from trailmark.checkpoint.choose import choose_footprints
from trailmark.checkpoint.ledger import Ledger, Totals
from trailmark.checkpoint.moment import NO_SLOTS, Moment
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.checkpoint.rates import Rates
from trailmark.operators.protocol import BatchInput
from trailmark.records import FootprintKind
from trailmark.state.memory import Memory
from trailmark.state.table import Slots, StateTable


def _of_batch(recount: Recount, batch: int, kind: FootprintKind) -> list[LoggedFootprint]:
    return [f for f in recount.footprints if f.batch == batch and f.kind == kind]


def _plain_checks(recount: Recount, batch: int, policy: Continuous) -> set[Identity]:
    """One window at a time: the oldest, while a target is missed."""
    before, opened = recount.ages(batch - 1), recount.open_after[batch]
    ages = {i: batch if at == batch else before[i] for i, at in opened.items()}
    checked: set[Identity] = set()
    made = len(_of_batch(recount, batch, FootprintKind.CHECK))
    others = recount.records(batch, batch) - made
    while ages:
        oldest = min(ages.values())
        if oldest == batch:
            break
        records = recount.records(oldest, batch - 1) + others + len(checked)
        tuples = recount.tuples(oldest + 1, batch)
        misses_extent = policy.q is not None and records > policy.q
        misses_replay = policy.u is not None and tuples > policy.u
        if not misses_extent and not misses_replay:
            break
        window = next(identity for identity, age in ages.items() if age == oldest)
        ages[window] = batch
        checked.add(window)
    return checked


@pytest.mark.parametrize(
    "policy",
    [
        Continuous(q=40),
        Continuous(q=55),
        Continuous(u=30),
        Continuous(u=0),
        Continuous(q=70, u=60),
        Continuous(q=0),
    ],
    ids=str,
)
def test_windows_are_checked_oldest_first_while_a_target_is_missed_and_no_longer(
    policy: Continuous,
) -> None:
    batches = random_orders(random.Random(3), batches=30, rows=30, items=25)
    run = Followed(count_case(batches, size=6, slide=4), policy)
    checks = 0
    for (report,) in run.steps():
        recount = run.recounts[0]
        found = {f.identity for f in _of_batch(recount, report.batch, FootprintKind.CHECK)}
        assert found == _plain_checks(recount, report.batch, policy), f"batch {report.batch}"
        assert report.footprints_checked == len(found)
        checks += len(found)
    assert checks > 20


def test_targets_that_are_met_leave_every_window_alone() -> None:
    batches = random_orders(random.Random(4), batches=10, rows=20, items=10)
    run = Followed(count_case(batches, size=7), Continuous(q=10_000, u=10_000))
    assert sum(report.footprints_checked for (report,) in run.steps()) == 0


def test_after_a_batch_both_targets_are_met_unless_everything_is_fresh() -> None:
    policy = Continuous(q=60, u=45)
    batches = random_orders(random.Random(5), batches=40, rows=30, items=25)
    run = Followed(count_case(batches, size=6), policy)
    for (report,) in run.steps():
        account = report.account
        is_met = account.extent <= 60 and account.replay <= 45
        assert is_met or account.oldest == report.batch, f"batch {report.batch}"


def test_a_budget_takes_the_oldest_windows_that_it_can_afford() -> None:
    policy = Continuous(u=0, interval="20 us", period="20 us")
    batches = random_orders(random.Random(6), batches=30, rows=30, items=40)
    run = Followed(count_case(batches, size=9), policy)
    partly = 0
    for (report,) in run.steps():
        recount, batch = run.recounts[0], report.batch
        checked = {f.identity for f in _of_batch(recount, batch, FootprintKind.CHECK)}
        if not batch or not checked:
            continue
        before = recount.ages(batch - 1)
        left = [age for i, age in recount.ages(batch).items() if i not in checked and age < batch]
        assert max(before[i] for i in checked) <= min(left, default=batch), f"batch {batch}"
        partly += bool(left)
    assert partly > 5, "the budget has to bite"


@pytest.mark.parametrize("seed", seeds(40))
def test_every_window_left_open_has_one_open_footprint_from_the_batch_it_opened_in(
    seed: int,
) -> None:
    rng = random.Random(seed)
    case = random_case(rng)
    policy = random_policy(rng)
    while not policy.writes_openings:
        policy = random_policy(rng)
    with reported(seed, case):
        run = Followed(case, policy)
        run.run()
        recount = run.recounts[0]
        left_open = {
            (identity, opened)
            for batch, windows in recount.open_after.items()
            for identity, opened in windows.items()
            if opened == batch
        }
        opens = [f for f in recount.footprints if f.kind == FootprintKind.OPEN]
        assert Counter((f.identity, f.opened) for f in opens) == Counter(left_open)
        assert all(f.batch == f.opened for f in opens)


def test_a_window_that_opens_and_closes_within_a_batch_has_no_footprint() -> None:
    run = Followed(count_case([[(1, 5), (1, 6), (2, 7)]] * 3, size=2), Continuous(u=0))
    run.run()
    items = Counter(f.identity[0][0] for f in run.recounts[0].footprints)
    assert 1 not in items
    assert items[2] > 0


def test_a_footprint_describes_a_window_that_is_open_at_the_end_of_its_batch() -> None:
    batches = random_orders(random.Random(7), batches=30, rows=40, items=12)
    run = Followed(count_case(batches, size=4, slide=3), Continuous(q=50, u=20))
    run.run()
    recount = run.recounts[0]
    for footprint in recount.footprints:
        open_windows = recount.open_after[footprint.batch]
        assert open_windows[footprint.identity] == footprint.opened
    seen = Counter((f.batch, f.identity) for f in recount.footprints)
    assert set(seen.values()) == {1}, "at most one in a batch"


def test_no_checkpoint_writes_none() -> None:
    batches = random_orders(random.Random(8), batches=6, rows=20, items=10)
    run = Followed(count_case(batches, size=7), NoCheckpoint())
    reports = [report for (report,) in run.steps()]
    assert not run.recounts[0].footprints
    assert {(r.footprints_opened, r.footprints_checked) for r in reports} == {(0, 0)}


def test_a_choice_of_many_windows_looks_at_the_targets_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the size of a step, the same windows are checked."""
    batches = random_orders(random.Random(9), batches=20, rows=60, items=50)
    case = count_case(batches, size=5)
    whole = Followed(case, Continuous(q=120, u=70))
    whole.run()
    monkeypatch.setattr(continuous, "_STEP", 1)
    stepped = Followed(case, Continuous(q=120, u=70))
    stepped.run()
    assert stepped.recounts[0].footprints == whole.recounts[0].footprints


def test_windows_without_a_footprint_get_theirs_before_any_check() -> None:
    operator = count_case([], size=10).operator()
    table, ledger = StateTable(operator.layout, Memory()), Ledger(Memory())
    ledger.start(-1, Totals(0, 0, 0))
    operator.process(table, BatchInput(0, orders([(item, 1) for item in range(6)])))
    ledger.append(0, Totals(0, 6, 0))
    outcome = operator.process(table, BatchInput(1, orders([(9, 1)]), footprint=1))

    def moment(batch: int, opened: Slots) -> Moment:
        now, before = Totals(0, 7, 0), empty_account(0)
        return Moment(batch, table, ledger, before, now, opened, NO_SLOTS, Rates(), lambda: 0.0)

    chooser, gather = Continuous().begin(), partial(operator.footprints, table)
    chosen = choose_footprints(chooser, moment(1, outcome.opened), gather)
    assert (chosen.opened, chosen.checked) == (7, 0)
    assert chosen.footprints is not None
    assert chosen.footprints.num_rows == 7
    assert table.oldest_footprint() == 1
    again = choose_footprints(chooser, moment(2, NO_SLOTS), gather)
    assert (again.footprints, again.opened, again.checked) == (None, 0, 0)
