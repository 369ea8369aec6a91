"""`CostBenefit`: against a plain loop over all prefixes of the windows, oldest footprint first."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.followed import Followed
from tests.support.orders import count_case
from tests.support.work import Costs, Counted, workloads
from trailmark.checkpoint.policy import CostBenefit
from trailmark.checkpoint.rates import Rates, Work
from trailmark.records import NO_BATCH, FootprintKind

_BATCHES = 30
_CASES = workloads(_BATCHES)
_KINDS = pytest.mark.parametrize("kind", _CASES)
_IDLE_US = 200_000.0


def _run(kind: str, policy: CostBenefit, costs: Costs | None = None) -> Counted:
    return Counted(_CASES[kind], policy, costs or Costs(), idle_us=_IDLE_US)


def _recovery_us(rates: Rates, work: Work) -> float:
    """In parts of a microsecond."""
    return rates.open_us + rates.load_us * work.load_rows + rates.replay_us * work.replay_rows


def _plain_best(run: Counted, policy: CostBenefit, batch: int) -> tuple[int, float]:
    """The prefix of old windows with the greatest gain, and that gain; no windows if none pays."""
    rates = run.rates(batch)
    before = run.ages_before(batch).values()
    ages = sorted(age for age in before if age != NO_BATCH)
    opened = len(before) - len(ages)
    if not ages:
        return 0, 0.0
    now_us = _recovery_us(rates, run.work_from(ages[0], batch, opened))
    lasts_s = (batch - ages[0]) * rates.period_us / 1e6
    chance = policy.failures_per_second * lasts_s * policy.weight
    best, greatest = 0, 0.0
    for count in range(1, len(ages) + 1):
        oldest = ages[count] if count < len(ages) else batch
        after_us = _recovery_us(rates, run.work_from(oldest, batch, opened + count))
        gain = chance * (now_us - after_us) - count * rates.write_us
        if gain > greatest:
            best, greatest = count, gain
    return best, greatest


@_KINDS
@pytest.mark.parametrize(("rate", "weight"), [("1 per minute", 20.0), (0.2, 1.0), (10, 1.0)])
def test_the_prefix_with_the_greatest_gain_is_checked(
    kind: str, rate: str | float, weight: float
) -> None:
    policy = CostBenefit(rate, weight)
    run = _run(kind, policy, Costs(footprint=300.0))
    for _ in range(_BATCHES):
        report = run.step()
        count, gain = _plain_best(run, policy, report.batch)
        what = f"batch {report.batch}, with a gain of {gain}"
        assert report.footprints_checked == count, what
        before = run.ages_before(report.batch)
        checked = Counter(before[w] for w in run.written(report.batch, FootprintKind.CHECK))
        ages = sorted(age for age in before.values() if age != NO_BATCH)
        assert checked == Counter(ages[:count]), what


@_KINDS
def test_nothing_is_checked_when_failures_are_so_rare_that_no_check_can_pay(kind: str) -> None:
    run = _run(kind, CostBenefit("1 per week"), Costs(footprint=300.0))
    assert sum(run.step().footprints_checked for _ in range(_BATCHES)) == 0


@_KINDS
def test_everything_old_is_checked_when_failures_are_frequent(kind: str) -> None:
    run = _run(kind, CostBenefit("1000 per second", weight=10))
    for _ in range(_BATCHES):
        report = run.step()
        assert report.account.oldest == report.batch
        assert report.footprints_opened + report.footprints_checked == report.account.open_windows


@_KINDS
def test_the_more_failures_are_expected_the_shorter_recoveries_are(kind: str) -> None:
    longest, checked = [], []
    for rate in (1e-5, 0.2, 1_000):
        run = _run(kind, CostBenefit(rate), Costs(footprint=300.0))
        reports = [run.step() for _ in range(_BATCHES)]
        longest.append(max(report.account.replay for report in reports))
        checked.append(sum(report.footprints_checked for report in reports))
    assert longest == sorted(longest, reverse=True)
    assert checked == sorted(checked)
    assert checked[0] < checked[-1]


@_KINDS
def test_every_footer_has_both_sides_of_the_decision(kind: str) -> None:
    run = _run(kind, CostBenefit(0.2), Costs(footprint=300.0))
    paid = 0
    for _ in range(_BATCHES):
        report = run.step()
        decision = run.footer(report.batch).attributes.get("decision", {})
        if not report.footprints_checked:
            assert "worth_us" not in decision
            continue
        assert decision["checked"] == report.footprints_checked
        assert decision["worth_us"] > decision["cost_us"] > 0
        worth = decision["chance"] * decision["recovery_us_saved"]
        assert decision["worth_us"] == pytest.approx(worth, rel=1e-3)
        paid += 1
    assert 0 < paid < _BATCHES


def test_every_window_has_a_footprint_from_the_batch_it_opened_in() -> None:
    run = _run("mixed", CostBenefit("1 per week"))
    for _ in range(10):
        report = run.step()
        opened = run.recount.open_after[report.batch]
        new = {window for window, at in opened.items() if at == report.batch}
        assert run.written(report.batch, FootprintKind.OPEN) == new


def test_a_budget_bounds_what_is_checked() -> None:
    case = count_case([[(item, 1) for item in range(200)]] * 30, size=1_000)
    policy = CostBenefit("1000 per second", interval="1 ms", period="200 ms")
    run = Counted(case, policy, Costs(footprint=50), idle_us=_IDLE_US)
    checked = [run.step().footprints_checked for _ in range(30)]
    assert sum(checked) > 0
    # The first batches do not know yet what a window costs.
    assert max(checked[20:]) <= 1_000 / 50


@pytest.mark.parametrize(("rate", "weight"), [(1e300, 1e300), (1e-300, 1e-300), (5e-324, 1.0)])
def test_no_rate_is_too_high_or_too_low_to_be_reckoned_with(rate: float, weight: float) -> None:
    case = count_case([[(item, 1) for item in range(5)]] * 4, size=10)
    run = Followed(case, CostBenefit(rate, weight))
    reports = [report for (report,) in run.steps()]
    assert [report.footprints_checked for report in reports] == (
        [0, 5, 5, 5] if rate > 1 else [0, 0, 0, 0]
    )
