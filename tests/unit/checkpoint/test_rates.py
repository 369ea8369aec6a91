"""Predictions follow what was measured."""

from __future__ import annotations

import pytest

from trailmark.checkpoint.policy import Continuous
from trailmark.checkpoint.rates import Rates
from trailmark.errors import SettingError


def test_a_prediction_is_the_sum_of_opening_loading_and_replaying() -> None:
    rates = Rates(open_us=10, load_us_per_record=0.5, replay_us_per_tuple=2)
    assert rates.predict_us(100, 1000) == 10 + 50 + 2000


def test_live_batches_teach_what_a_tuple_costs() -> None:
    rates = Rates()
    for _ in range(60):
        rates = rates.after_batch(10_000, 30_000.0)
    assert rates.replay_us_per_tuple == pytest.approx(3.0, rel=0.01)
    assert rates.load_us_per_record == Rates().load_us_per_record


def test_small_batches_teach_nothing() -> None:
    assert Rates().after_batch(999, 1e9) == Rates()


def test_small_recoveries_teach_what_it_takes_to_begin() -> None:
    rates = Rates()
    for _ in range(60):
        rates = rates.after_recovery(999, 40_000, 999, 20_000)
    assert rates.open_us == pytest.approx(60_000, rel=0.01)
    assert rates.load_us_per_record == Rates().load_us_per_record


def test_recoveries_teach_both_costs() -> None:
    rates = Rates()
    for _ in range(60):
        rates = rates.after_recovery(5_000, 10_000, 2_000, 1_000)
    assert rates.load_us_per_record == pytest.approx(2.0, rel=0.01)
    assert rates.replay_us_per_tuple == pytest.approx(0.5, rel=0.01)


def test_rates_survive_being_logged() -> None:
    rates = Rates().after_batch(10_000, 12_345.0)
    assert Rates.from_attributes(rates.to_attributes()).predict_us(10**6, 10**6) == pytest.approx(
        rates.predict_us(10**6, 10**6), rel=1e-3
    )
    assert Rates.from_attributes({}) == Rates()


def test_an_objective_is_shared_by_loading_and_replaying() -> None:
    rates = Rates(open_us=100_000, load_us_per_record=0.5, replay_us_per_tuple=0.1)
    q, u = Continuous.within("1 second").targets(rates)
    assert (q, u) == (900_000, 4_500_000)
    assert rates.predict_us(900_000, 4_500_000) == 1_000_000


def test_an_objective_shorter_than_opening_leaves_nothing() -> None:
    assert Continuous.within("1 ms").targets(Rates()) == (0, 0)


def test_given_targets_do_not_depend_on_rates() -> None:
    assert Continuous(q=5, u=7).targets(Rates()) == (5, 7)
    assert Continuous().targets(Rates()) == (None, None)


def test_an_objective_beside_targets_is_refused() -> None:
    with pytest.raises(SettingError, match="either an objective or targets"):
        Continuous(q=5, objective="1 second")
