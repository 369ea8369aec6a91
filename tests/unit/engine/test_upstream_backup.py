"""`UpstreamBackup`: the input that the open windows are made of, and nothing else."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.cases import Case
from tests.support.followed import Followed
from tests.support.harm import flip_anywhere
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint.account import Account
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy, UpstreamBackup
from trailmark.records import Foundation, Stream
from trailmark.windows.spec import TimeWindow

_BATCHES = 24


def _time_case(seed: int = 1, *, slide: int | None = None) -> Case:
    rows = random_timed_orders(random.Random(seed), batches=_BATCHES, rows=25, items=6)
    return time_case(rows, slide=slide, late="keep")


def _oldest_opening(run: Followed, batch: int) -> int:
    """The batch that opened the oldest window open at the end of a batch; the next batch if no
    window is open."""
    return min(run.recounts[0].open_after[batch].values(), default=batch + 1)


@pytest.mark.parametrize("slide", [None, 5_000_000, 17_000_000], ids=["tumbling", "overlap", "gap"])
def test_a_recovery_replays_from_the_batch_of_the_oldest_open_window_and_no_further(
    slide: int | None,
) -> None:
    run = Followed(_time_case(slide=slide), UpstreamBackup())
    while run.next_batch < _BATCHES - 1:
        (done,) = run.step()
        oldest = _oldest_opening(run, done.batch)
        assert done.account.needs == oldest
        assert done.account.replay == run.recounts[0].tuples(oldest, done.batch)
        (report,) = run.copy().step()
        assert report.recovery is not None
        plan = report.recovery.plan
        assert (plan.replay_from, plan.replay_tuples) == (oldest, done.account.replay)


def test_a_recovery_loads_nothing_and_a_batch_writes_nothing() -> None:
    run = Followed(_time_case(), UpstreamBackup())
    while run.next_batch < _BATCHES - 1:
        (done,) = run.step()
        assert (done.footprints_opened, done.footprints_checked) == (0, 0)
        assert done.account.extent == 0
        (report,) = run.copy().step()
        assert report.recovery is not None
        plan = report.recovery.plan
        assert plan.foundation is Foundation.NOTHING
        assert (plan.open_windows, plan.segments_read, plan.records_read) == (0, 0, 0)
    assert run.recounts[0].footprints == []


def test_input_that_no_open_window_is_made_of_is_trimmed() -> None:
    run = Followed(_time_case(), UpstreamBackup())
    trimmed = 0
    for (report,) in run.steps():
        run.query.open()[0].trim(acknowledged=run.next_batch)
        kept = run.query.logs().input(0).oldest()
        assert kept <= _oldest_opening(run, report.batch)
        if report.batch:
            # One batch more, in case that the newest output is damaged.
            assert kept == min(_oldest_opening(run, report.batch - 1), report.batch - 1)
        trimmed = kept
    assert trimmed > _BATCHES / 2


def test_more_than_enough_input_is_left_to_go_around_a_damaged_segment() -> None:
    rng = random.Random(5)
    run = Followed(_time_case(), UpstreamBackup())
    while run.next_batch < _BATCHES - 1:
        run.step()
        run.query.open()[0].trim(acknowledged=run.next_batch)
        twin = run.copy()
        flip_anywhere(twin.disk, Stream.OUTPUT, run.next_batch - 1, rng)
        twin.step()


def test_a_restart_after_every_batch_gives_the_same_accounts_as_none() -> None:
    """What a recovery knows about openings is what was known before."""
    runs = [Followed(_time_case(2), UpstreamBackup()) for _ in range(2)]
    for _ in range(_BATCHES):
        (first,), (second,) = runs[0].step(), runs[1].step()
        runs[1].query.stop()
        assert _what_counts(second.account) == _what_counts(first.account)


def test_the_next_process_goes_on_from_the_cache(cache_dir: Path) -> None:
    run = Followed(_time_case(3), UpstreamBackup(), cache_root=cache_dir)
    for (report,) in run.steps():
        assert report.recovery is None
        assert report.account.needs == _oldest_opening(run, report.batch)
        run.query.stop()


def _what_counts(account: Account) -> Account:
    """Without what depends on time."""
    return replace(account, predicted_us=0)


def _accounts(case: Case, policy: Policy) -> list[Account]:
    run = Followed(case, policy)
    return [_what_counts(report.account) for (report,) in run.steps()]


@pytest.mark.parametrize("slide", [3, 7, 10], ids=["overlap", "tumbling", "gap"])
def test_windows_of_a_count_are_recovered_as_without_checkpoints(slide: int) -> None:
    """Where they begin follows from the windows before them."""
    rows = random_orders(random.Random(6), batches=_BATCHES, rows=20, items=6)
    case = count_case(rows, size=7, slide=slide)
    assert _accounts(case, UpstreamBackup()) == _accounts(case, NoCheckpoint())


def test_where_no_window_is_open_nothing_is_replayed() -> None:
    rows = [[(1, batch), (1, batch)] for batch in range(6)]
    run = Followed(count_case(rows, size=2), UpstreamBackup())
    run.run(5)
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    assert report.recovery.plan.replay_tuples == 0


@pytest.mark.parametrize("part", range(2))
def test_random_queries_need_the_input_since_the_oldest_opening(part: int) -> None:
    checked = 0
    for seed in seeds(80)[part::2]:
        rng = random.Random(seed)
        case = random_case(rng)
        if not isinstance(case.window, TimeWindow):
            continue
        with reported(seed, case):
            run = Followed(case, UpstreamBackup())
            for (report,) in run.steps():
                assert report.account.needs == _oldest_opening(run, report.batch)
                checked += 1
                if rng.random() < 0.5:
                    run.query.stop()
    assert checked > 10


def test_footprints_of_another_policy_are_built_upon_while_one_of_its_windows_is_open() -> None:
    run = Followed(_time_case(4), Continuous(u=0))
    run.run(8)
    run.query.stop()
    run.query.policy = UpstreamBackup()
    foundations = []
    while run.next_batch < _BATCHES:
        (report,) = run.step()
        opened = _oldest_opening(run, report.batch)
        account = report.account
        if opened < 8:
            assert (account.foundation, account.base) == (Foundation.FOOTPRINTS, 7)
        else:
            assert (account.foundation, account.needs) == (Foundation.NOTHING, opened)
        foundations.append(account.foundation)
    assert set(foundations) == {Foundation.FOOTPRINTS, Foundation.NOTHING}
