"""Footprints of very different sizes: predictions, rounds and costs go by what they weigh."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.support.ballast import PLAIN, Ballasted
from tests.support.leaps import DAY_US
from tests.support.orders import count_case, random_orders
from tests.support.work import Costs, Worked
from trailmark.checkpoint import cost_benefit
from trailmark.checkpoint.account import Account, empty_account
from trailmark.checkpoint.ledger import Ledger, Totals
from trailmark.checkpoint.moment import NO_SLOTS, Moment
from trailmark.checkpoint.policy import Continuous, CostBenefit
from trailmark.checkpoint.rates import Rates, Work, smooth
from trailmark.engine import BatchReport
from trailmark.recovery import NoHistory, rehearse_load
from trailmark.state.memory import Memory

_BATCHES = 90
#: From here on one of two runs has states of ten times the bytes.
_GROWS = 45
_WINDOWS = 50
_LIGHT, _HEAVY = 20 * PLAIN, 200 * PLAIN
#: A segment takes as long as the records that it counts as.
_COSTS = Costs(look=0.0, load=20.0, read_segment=12_000.0, batch=10_000.0, tuple=4.0)
_POLICY = Continuous.within("600 ms")


def _begun(grows: bool) -> tuple[Ballasted, list[BatchReport]]:
    """Windows that never close, restarted until the rates are known; then their states grow."""
    case = count_case([[(item, 1) for item in range(_WINDOWS)]] * (_BATCHES + 1), size=1_000_000)
    run = Ballasted(case, _POLICY, _COSTS)
    reports = []
    run.heavy.ballast = _LIGHT
    while run.next_batch < _GROWS:
        reports.append(run.step())
        if run.next_batch % 5 in (2, 4):
            run.restart()
    if grows:
        run.heavy.ballast = _HEAVY
    return run, reports


def _rounds(reports: list[BatchReport]) -> list[BatchReport]:
    return [r for r in reports if r.footprints_opened + r.footprints_checked == _WINDOWS]


def _load_us(run: Worked, report: BatchReport) -> float:
    """What is predicted to go into loading the footprints of a batch, beside its segment."""
    rates = Rates.from_attributes(run.footer(report.batch).attributes["rates"])
    return report.account.predicted_us - rates.predict_us(Work(segments=1))


def test_states_of_ten_times_the_bytes_are_predicted_to_load_ten_times_as_long() -> None:
    """The pieces are as many as before. Predictions are right, and so the objective is kept to."""
    rounds: dict[bool, list[BatchReport]] = {}
    loads: dict[bool, float] = {}
    for grows in (False, True):
        run, _ = _begun(grows)
        reports = []
        while run.next_batch < _BATCHES:
            report = run.step()
            reports.append(report)
            took_us = run.recovery_us()
            assert report.account.is_reachable
            assert report.account.predicted_us == pytest.approx(took_us, rel=0.1)
            assert took_us <= _POLICY.objective_us
        rounds[grows] = _rounds(reports)
        loads[grows] = _load_us(run, rounds[grows][-1])
        run.restart()
    assert loads[True] == pytest.approx(10 * loads[False], rel=0.1)
    first, second = (report.batch for report in rounds[True][:2])
    also_first, light_second = (report.batch for report in rounds[False][:2])
    assert first == also_first, "until a heavy footprint is written nobody has to load one"
    assert second < light_second, "then a round comes earlier"
    assert len(rounds[True]) > len(rounds[False])


def test_the_weight_of_the_extent_is_that_of_its_bytes() -> None:
    run, reports = _begun(grows=False)
    for report in _rounds(reports):
        account = report.account
        assert account.segments == 1
        weight = account.extent + account.extent_excess
        assert weight == pytest.approx(_WINDOWS * (_LIGHT + PLAIN) / PLAIN, rel=0.05)
        assert account.footprints_excess == account.extent_excess
    run.restart()


def test_fewer_heavy_windows_than_light_ones_wait_for_a_round() -> None:
    """However much time the objective leaves, a batch does not write for longer than it works."""
    most = []
    for ballast in (0, 10 * PLAIN):
        rows = [[(100 * batch + item, 1) for item in range(100)] for batch in range(40)]
        run = Ballasted(count_case(rows, size=50), Continuous(u=0), Costs(footprint=40.0))
        run.heavy.ballast = ballast
        for _ in range(8):
            run.step()
        run.restart()
        run.policy = Continuous.within("1 hour")
        waiting, longest = 0, 0
        while run.next_batch < 40:
            report = run.step()
            is_round = report.footprints_opened > 0
            waiting = 0 if is_round else waiting + 100
            longest = max(longest, waiting)
            rates = Rates.from_attributes(run.footer(report.batch).attributes["rates"])
            assert waiting * rates.footprint_us <= max(50_000.0, rates.batch_us)
        most.append(longest)
        run.restart()
    light, heavy = most
    assert 0 < heavy < light / 4


def test_an_objective_that_loading_heavy_windows_exceeds_is_complained_about() -> None:
    """As many light ones can be loaded in time."""
    for ballast, is_reachable in ((0, True), (1_000 * PLAIN, False)):
        case = count_case([[(item, 1) for item in range(_WINDOWS)]] * 50, size=1_000_000)
        run = Ballasted(case, Continuous.within("300 ms"), _COSTS)
        run.heavy.ballast = ballast
        for _ in range(50):
            report = run.step()
            if report.footprints_opened:
                run.restart()  # and learn from the recovery
        assert report.account.is_reachable is is_reachable


# Rates


def test_the_average_weight_is_that_of_the_newest_footprints_of_all_windows() -> None:
    rates = Rates().after_weighing(10, 90, open_windows=10)
    assert rates.footprint_weight == 10.0
    rates = rates.after_weighing(10, 0, open_windows=20)
    assert rates.footprint_weight == 5.5
    assert rates.after_weighing(0, 0, open_windows=20) == rates, "none were written"
    assert rates.excess_of(100) == 450.0
    assert rates.footprint_us == 5.5 * rates.write_us
    assert rates.after_weighing(20, 0, open_windows=20).footprint_weight == 1.0


def test_the_rates_of_plain_records_are_what_they_were_without_weights() -> None:
    rates = Rates(write_us=0.3)
    assert rates.after_weighing(7, 0, open_windows=9) is rates
    assert "footprint_weight" not in rates.to_attributes()
    assert rates.footprint_us == rates.write_us
    assert rates.excess_of(10**9) == 0
    heavy = rates.after_weighing(3, 1_000, open_windows=4)
    assert Rates.from_token(heavy.to_attributes()) == Rates.from_attributes(heavy.to_attributes())
    assert Rates.from_attributes(heavy.to_attributes()).footprint_weight == heavy.footprint_weight


@pytest.mark.parametrize("wrong", [0.5, 0, -1, 1e17, True, None, "1", [1]])
def test_an_average_weight_that_cannot_be_is_none(wrong: object) -> None:
    assert Rates.from_attributes({"footprint_weight": wrong}) == Rates()
    with pytest.raises(ValueError, match="no rates"):
        Rates.from_token({**Rates().to_attributes(), "footprint_weight": wrong})


def test_loading_and_writing_teach_what_a_plain_record_costs() -> None:
    light, heavy = Work(segments=1, records=1_000), Work(segments=1, records=10, excess=990)
    assert heavy.load_rows == light.load_rows
    assert Rates().after_loading(heavy, 7_000.0) == Rates().after_loading(light, 7_000.0)
    assert Rates().after_recovery(heavy, 1, 9, 0) == Rates().after_recovery(light, 1, 9, 0)
    assert Rates().predict_us(heavy) == Rates().predict_us(light)
    assert Rates().after_loading(heavy, DAY_US) == Rates()


@pytest.mark.parametrize("ballast", [0, _LIGHT, 1_000 * PLAIN], ids=["none", "light", "heavy"])
def test_a_rehearsal_teaches_what_a_plain_record_costs_whatever_the_footprints_weigh(
    ballast: int,
) -> None:
    """Of heavy footprints it loads a few, and results beside them weigh next to nothing."""
    fast = [(item, 1) for item in range(700) for _ in range(2)]
    slow = [(1_000 + item, 1) for item in range(_WINDOWS)]
    run = Ballasted(count_case([fast + slow], size=2), Continuous(), _COSTS)
    run.heavy.ballast = ballast
    report = run.step()
    assert (report.results.num_rows, report.footprints_opened) == (700, _WINDOWS)
    run.restart()
    output = run.logs().output(0)
    rates = rehearse_load(run.operator, output, NoHistory(), 0, Rates(), run.clock)
    assert rates.load_us == pytest.approx(smooth(Rates().load_us, _COSTS.load), rel=0.01)


# The ledger and what is predicted from it


def _random_ledger(rng: random.Random) -> tuple[Ledger, Totals]:
    ledger = Ledger(Memory())
    now = Totals(rng.randrange(50), rng.randrange(50), 0, excess=rng.randrange(10**6))
    ledger.start(0, now)
    for batch in range(1, 20):
        ledger.append(batch, now)
        assert ledger.newest == now
        excess = now.excess + rng.choice((0, 0, 5, 10**9))
        now = Totals(now.records + rng.randrange(9), now.inputs + 7, batch, excess=excess)
    return ledger, now


def test_one_prediction_and_a_column_of_them_are_made_from_the_same_weights() -> None:
    case = count_case(random_orders(random.Random(1), batches=1, rows=5, items=5), size=2)
    pieces = case.operator().open(Memory(), NoHistory())
    for seed in range(30):
        rng = random.Random(seed)
        ledger, now = _random_ledger(rng)
        rates = Rates(footprint_weight=rng.choice((1.0, 1.37, 5_000.0)))
        moment = Moment(
            20, pieces, ledger, empty_account(0), now, NO_SLOTS, NO_SLOTS, rates, lambda: 0.0
        )
        oldest = np.arange(1, 21)
        footprints = np.array([rng.randrange(1_000) for _ in oldest])
        found = cost_benefit._predictions(moment, oldest, footprints)
        for place, batch in enumerate(oldest.tolist()):
            work = moment.work_from(batch, int(footprints[place]))
            start = ledger.at(batch - 1)
            assert start is not None
            written = int(footprints[place]) * (rates.footprint_weight - 1.0)
            assert work.excess == now.excess - start.excess + int(written)
            assert found[place] == pytest.approx(rates.predict_us(work), abs=2)


def test_what_is_checked_pays_by_what_it_weighs() -> None:
    """To write a window costs twenty times as much as its row would."""
    rows = random_orders(random.Random(2), batches=40, rows=150, items=110)
    run = Ballasted(count_case(rows, size=10), CostBenefit(0.05), _COSTS, idle_us=200_000.0)
    run.heavy.ballast = _LIGHT
    checked = 0
    for _ in range(40):
        report = run.step()
        attributes = run.footer(report.batch).attributes
        decision = attributes.get("decision", {})
        if "checked" in decision:
            checked += decision["checked"]
            rates = Rates.from_attributes(attributes["rates"])
            assert decision["cost_us"] / decision["checked"] == pytest.approx(
                rates.footprint_us, rel=0.1
            ), "what the batch wrote itself was weighed after the decision"
            assert decision["cost_us"] < decision["worth_us"]
    assert checked > 20
    run.restart()


# What is logged


def test_an_account_says_nothing_of_weights_where_records_are_plain() -> None:
    plain = empty_account(0)
    assert not {"extent_excess", "footprints_excess"} & plain.to_attributes().keys()
    heavy = Account.from_attributes({**plain.to_attributes(), "extent_excess": 7})
    assert heavy.extent_excess == 7
    assert heavy.footprints_excess == 0
    assert Account.from_attributes(heavy.to_attributes()) == heavy


@pytest.mark.parametrize("name", ["extent_excess", "footprints_excess"])
@pytest.mark.parametrize("wrong", [-1, 2**63, 0.5, None, True, "1"])
def test_weights_that_cannot_be_are_no_account(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match="no whole number"):
        Account.from_attributes({**empty_account(0).to_attributes(), name: wrong})
