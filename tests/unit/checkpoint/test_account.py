"""The numbers in every output footer, against a count over all rows of both logs."""

from __future__ import annotations

import logging
import random

import pytest

from tests.support.crashes import OTHER_KINDS
from tests.support.engine import CrashCase
from tests.support.followed import Followed
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.policies import footprints_for
from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from trailmark.checkpoint.account import Account, empty_account
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy

_POLICIES: dict[str, Policy] = {
    "none": NoCheckpoint(),
    "open only": Continuous(),
    "extent": Continuous(q=150),
    "replay": Continuous(u=80),
    "both": Continuous(q=200, u=120),
    "budget": Continuous(q=100, u=50, interval="40 us", period="300 us"),
    "out of reach": Continuous(q=3),
    "nothing left to replay": Continuous(u=0),
}

_PARTS = 2


@pytest.mark.parametrize("part", range(_PARTS))
def test_every_footer_says_what_counting_all_rows_gives(part: int) -> None:
    for seed in seeds(120)[part::_PARTS]:
        rng = random.Random(seed)
        case = random_case(rng)
        with reported(seed, case):
            _check_accounts(case, rng)


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_footer_of_operators_of_other_kinds_says_so_too(kind: str) -> None:
    for seed in seeds(45):
        rng = random.Random(seed)
        case = OTHER_KINDS[kind](rng)
        with reported(seed, case):
            _check_accounts(case, rng)


def _check_accounts(case: CrashCase, rng: random.Random) -> None:
    run = Followed(case, footprints_for(rng, case), buckets=rng.choice((1, 2)))
    for reports in run.steps():
        run.check_accounts()
        for recount, report in zip(run.recounts, reports, strict=True):
            assert report.account.keep_from <= recount.needs_around_damage(report.batch)
        if rng.random() < 0.3:
            run.query.stop()  # what a recovery finds out is as right as what was known
        if rng.random() < 0.2:
            run.query.policy = footprints_for(rng, case)
            run.query.stop()


@pytest.mark.parametrize("policy", _POLICIES.values(), ids=_POLICIES)
@pytest.mark.parametrize("slide", [5, 2])
def test_the_footers_of_a_long_run_say_so_too(policy: Policy, slide: int) -> None:
    rng = random.Random(7)
    batches = random_orders(rng, batches=24, rows=60, items=40)
    run = Followed(count_case(batches, size=5, slide=slide), policy)
    for _ in run.steps():
        run.check_accounts()


@pytest.mark.parametrize("policy", _POLICIES.values(), ids=_POLICIES)
def test_the_footers_of_time_windows_say_so_too(policy: Policy) -> None:
    rng = random.Random(8)
    batches = random_timed_orders(rng, batches=24, rows=25, items=9)
    run = Followed(time_case(batches, slide=5_000_000, late="keep"), policy, buckets=2)
    for _ in run.steps():
        run.check_accounts()


@pytest.mark.parametrize("policy", _POLICIES.values(), ids=_POLICIES)
def test_input_is_kept_for_a_recovery_around_any_one_damaged_segment(policy: Policy) -> None:
    rng = random.Random(9)
    run = Followed(
        count_case(random_orders(rng, batches=24, rows=60, items=30), size=5, slide=3), policy
    )
    for (report,) in run.steps():
        safe = run.recounts[0].needs_around_damage(report.batch)
        assert report.account.keep_from <= safe, f"batch {report.batch}"


def test_input_that_nobody_needs_any_more_is_given_up() -> None:
    rng = random.Random(10)
    run = Followed(
        count_case(random_orders(rng, batches=100, rows=40, items=5), size=7), Continuous(u=60)
    )
    run.run()
    kept = run.query.logs().input(0).batches()
    assert kept[-1] == 99
    assert len(kept) < 40, "the input log is trimmed as the run goes on"


def test_a_target_below_the_open_windows_is_reported_in_every_footer_it_applies_to() -> None:
    batches = [[(item, 1) for item in range(first, first + 4)] for first in (0, 4, 0, 4)]
    run = Followed(count_case(batches, size=2), Continuous(q=6))
    run.run()
    log = run.query.logs().output(0)
    footers = [log.read_footer(batch)[0].attributes for batch in range(4)]
    assert [f["open_windows"] for f in footers] == [4, 8, 4, 0]
    assert [f["is_reachable"] for f in footers] == [True, False, True, True]


def test_a_target_out_of_reach_is_logged_once_per_bucket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batches = [[(item, 1) for item in range(20)] for _ in range(4)]
    run = Followed(count_case(batches, size=100), Continuous(q=3), buckets=2)
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        run.run()
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    for bucket, message in enumerate(sorted(messages)):
        assert f"bucket {bucket}" in message
        assert str(len(run.recounts[bucket].open_after[0])) in message


def test_a_reachable_target_is_not_complained_about(caplog: pytest.LogCaptureFixture) -> None:
    batches = [[(item, 1) for item in range(20)] for _ in range(4)]
    with caplog.at_level(logging.WARNING, logger="trailmark"):
        Followed(count_case(batches, size=100), Continuous(q=20)).run()
    assert not caplog.records


def test_the_account_before_the_first_batch_needs_nothing() -> None:
    account = empty_account(7)
    assert (account.open_windows, account.oldest, account.base, account.needs) == (0, None, 6, 7)
    assert (account.extent, account.replay, account.keep_from) == (0, 0, 7)


def test_an_account_is_read_back_as_it_was_written() -> None:
    account = Account(3, 4, 9, 5, 2, 100, 200, 300, 400, watermark=-5, is_reachable=False)
    attributes = {**account.to_attributes(), "written by": "a later version"}
    assert Account.from_attributes(attributes) == account
