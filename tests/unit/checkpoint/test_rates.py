"""Predictions follow what was measured."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from trailmark.checkpoint.rates import Rates, Work, smooth

#: A segment or a batch costs something whatever is in it.
_SEGMENT_ROWS = Work(segments=1).load_rows
_BATCH_ROWS = Work(batches=1).replay_rows


def _repeated(learn: Callable[[Rates], Rates], times: int = 60) -> Rates:
    rates = Rates()
    for _ in range(times):
        rates = learn(rates)
    return rates


def test_a_prediction_is_the_sum_of_opening_loading_and_replaying() -> None:
    rates = Rates(open_us=10, load_us=0.5, process_us=4, replay_factor=0.5)
    assert rates.predict_us(Work()) == 10
    assert rates.predict_us(Work(records=100)) == 10 + 50
    assert rates.predict_us(Work(tuples=1000)) == 10 + 2000
    work = Work(segments=3, records=100, batches=2, tuples=1000)
    expected = 10 + (100 + 3 * _SEGMENT_ROWS) * 0.5 + (1000 + 2 * _BATCH_ROWS) * 2
    assert rates.predict_us(work) == expected


def test_segments_and_batches_cost_something_however_few_rows_they_hold() -> None:
    assert Work(segments=7, records=5).load_rows == 5 + 7 * _SEGMENT_ROWS
    assert Work(batches=7, tuples=5).replay_rows == 5 + 7 * _BATCH_ROWS
    assert min(_SEGMENT_ROWS, _BATCH_ROWS) > 0


@pytest.mark.parametrize("tuples", [0, 10, 100_000])
def test_live_batches_teach_what_repeating_them_costs(tuples: int) -> None:
    """A batch that takes 3 microseconds a row is predicted to take as long again."""
    took_us = 3.0 * (tuples + _BATCH_ROWS)
    rates = _repeated(lambda r: r.after_processing(tuples, took_us))
    assert rates.replay_us == pytest.approx(3.0, rel=0.01)
    work = Work(batches=1, tuples=tuples)
    assert rates.predict_us(work) == pytest.approx(rates.open_us + took_us, rel=0.01)
    assert rates.load_us == Rates().load_us


def test_one_odd_batch_changes_little() -> None:
    rates = _repeated(lambda r: r.after_processing(1_000, 1_000.0))
    odd = rates.after_processing(1_000, 100_000.0)
    assert rates.replay_us < odd.replay_us < 25 * rates.replay_us


def test_recoveries_teach_what_it_takes_to_begin() -> None:
    rates = _repeated(lambda r: r.after_recovery(Work(), 60_000, 0, 0))
    assert rates.open_us == pytest.approx(60_000, rel=0.01)
    assert (rates.load_us, rates.replay_us) == (Rates().load_us, Rates().replay_us)


def test_recoveries_teach_both_costs() -> None:
    work = Work(segments=4, records=5_000, batches=3, tuples=2_000)
    load_us, replay_us = 2.0 * work.load_rows, 0.5 * work.replay_rows
    rates = _repeated(lambda r: r.after_recovery(work, 10_000, load_us, replay_us))
    assert rates.load_us == pytest.approx(2.0, rel=0.01)
    assert rates.replay_us == pytest.approx(0.5, rel=0.01)
    assert rates.predict_us(work) == pytest.approx(10_000 + load_us + replay_us, rel=0.01)


def test_a_recovery_is_believed_more_than_a_batch() -> None:
    work = Work(batches=1, tuples=1_000)
    took_us = 10.0 * Rates().process_us * work.replay_rows
    by_batch = Rates().after_processing(1_000, took_us)
    by_recovery = Rates().after_recovery(work, Rates().open_us, 0, took_us)
    assert Rates().replay_us < by_batch.replay_us < by_recovery.replay_us


def test_a_recovery_that_is_slower_than_live_batches_is_predicted_to_be_so_again() -> None:
    """What live batches teach later about a tuple is scaled by what recoveries taught."""
    work = Work(batches=1, tuples=1_000)
    rates = Rates(process_us=1.0)
    for _ in range(60):
        rates = rates.after_recovery(work, 10, 0, 3.0 * work.replay_rows)
    assert rates.replay_us == pytest.approx(3.0, rel=0.01)
    for _ in range(60):
        rates = rates.after_processing(1_000, 2.0 * work.replay_rows)
    assert rates.replay_us == pytest.approx(6.0, rel=0.01)


def test_rehearsals_teach_what_loading_costs() -> None:
    work = Work(segments=1, records=300)
    rates = _repeated(lambda r: r.after_loading(work, 5.0 * work.load_rows))
    assert rates.load_us == pytest.approx(5.0, rel=0.01)
    assert rates.after_loading(Work(), 1e9) == rates, "nothing was loaded"


def test_batches_teach_how_long_they_take_and_how_far_apart_they_are() -> None:
    rates = _repeated(lambda r: r.after_batch(2_000.0, 50_000.0))
    assert rates.batch_us == pytest.approx(2_000, rel=0.01)
    assert rates.period_us == pytest.approx(50_000, rel=0.01)
    alone = rates.after_batch(2_000.0, None)
    assert alone.period_us == rates.period_us, "a batch without one before it has no period"


def test_footprints_teach_what_writing_one_costs() -> None:
    rates = _repeated(lambda r: r.after_writing(200, 800.0))
    assert rates.write_us == pytest.approx(4.0, rel=0.01)
    assert rates.after_writing(0, 1e9) == rates, "none were written"


def test_a_clock_too_coarse_to_measure_anything_leaves_costs_above_zero() -> None:
    """They are divided by."""
    rates = Rates()
    for _ in range(200):
        rates = rates.after_processing(10, 0.0).after_writing(5, 0.0).after_batch(0.0, 0.0)
        rates = rates.after_loading(Work(records=5), 0.0)
        rates = rates.after_recovery(Work(1, 5, 1, 5), 0.0, 0.0, 0.0)
    assert min(rates.to_attributes().values()) > 0
    assert smooth(0.0, 0.0) > 0


def test_rates_survive_being_logged() -> None:
    work = Work(10, 10**6, 10, 10**6)
    rates = Rates().after_processing(10_000, 12_345.0).after_batch(9.87654321, 1e7)
    logged = Rates.from_attributes(rates.to_attributes())
    assert logged.predict_us(work) == pytest.approx(rates.predict_us(work), rel=1e-3)
    assert logged.period_us == pytest.approx(rates.period_us, rel=1e-3)
    assert Rates.from_attributes({}) == Rates()
    assert Rates.from_attributes({"of a later version": 1}) == Rates()
