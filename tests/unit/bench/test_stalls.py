"""Failures in simulated time, for figures: what they count, and what is compared."""

from __future__ import annotations

import pytest

from bench.experiment import Raw, Repetition
from bench.experiments import stalls
from bench.stalls import boundaries, chained, on_spark, reconciling
from bench.stalls.chain import numbering
from bench.stalls.life import Life, Rhythm, Stalled
from bench.stalls.part import CHOICES, FAST, RATE, Asked
from bench.stalls.reconcile import WAYS, reconcile
from trailmark.streams.union.answering import Answering
from trailmark.testing.processes import StepClock

_BOUND_US = 3_000_000
_RATE = 300


def _life(depth: int, *choice: str) -> Life:
    """One in which a batch takes no time."""
    answering = Answering(_BOUND_US, *choice)  # type: ignore[arg-type]
    return Life(_RATE, answering, operators=numbering(depth), now_us=StepClock(0.0))


def test_a_failure_shorter_than_the_wait_leaves_no_trace() -> None:
    life = _life(1)
    found = life.run(2)
    assert (found.tentative_tuples, found.tentative_results) == (0, 0)
    assert 1.9 < found.longest_s < 2.2


def test_without_work_a_new_tuple_waits_for_the_wait_alone() -> None:
    found = _life(1).run(5)
    assert 2.6 < found.longest_s < 2.8
    # From the two streams that are there, from when the failure begins until it ends, and a slice.
    assert found.tentative_tuples == pytest.approx(_RATE * 2 / 3 * 5, abs=_RATE * 0.2)


def test_slow_batches_fall_behind_neither_with_answers_nor_with_corrections() -> None:
    """As on Spark, where most of what they take is not for rows. Each takes a second, more than
    what the union wants of them: then it replaces 3.6 s with each, and 1 s comes anew."""
    answering = Answering(_BOUND_US)
    found = Life(100 * _RATE, answering, now_us=StepClock(1_000_000)).run(10)
    assert found.longest_s < 2.25 + 2 * 1.0 + 0.2, "waited for, and for two batches"
    assert found.corrected_s < 8


def test_every_operator_of_a_chain_answers_every_tuple() -> None:
    """What comes out of the last is as much as goes into the first, and as tentative."""
    lives = [_life(depth, "delay", "delay") for depth in (1, 3)]
    short, long = (life.run(4) for life in lives)
    assert short == long
    assert short.tentative_results == short.tentative_tuples > 0
    assert lives[0].stable_results == lives[1].stable_results > _RATE * 7


def test_without_work_a_tuple_waits_for_the_end_of_its_slice() -> None:
    """All streams begin with the slices and at the same moment; a look meets every boundary."""
    rhythm = Rhythm(commit_us=200_000, interval_us=200_000, look_us=10_000)
    assert Life(_RATE, None, rhythm, now_us=StepClock(0.0)).calm(2) == pytest.approx(0.1, abs=0.006)
    shifted = Rhythm(200_000, (0, 0, 150_000), 200_000, 10_000)
    assert Life(_RATE, None, shifted, now_us=StepClock(0.0)).calm(2) == pytest.approx(
        0.25, abs=0.02
    )


@pytest.mark.parametrize(("state", "failure"), [(7, 50), (3_000, 250_000)])
def test_three_ways_to_go_back_lead_to_the_same_state(state: int, failure: int) -> None:
    found = {way: reconcile(way, state, failure) for way in WAYS}
    expected = {item: 1 + len(range(item, failure, state)) for item in range(state)}
    for one in found.values():
        assert one.counts == expected
    assert found["waits"].recovery is None
    loaded, made = found["checkpoint"].recovery, found["undo"].recovery
    assert loaded is not None
    assert (loaded.plan.records_read, loaded.plan.replay_tuples) == (state, 0)
    assert made is not None
    assert (made.plan.records_read, made.plan.replay_tuples) == (0, state)


def test_what_was_measured_before_there_were_more_parts_is_shown_without_them() -> None:
    raw = _raw(_failures())
    assert all(part.show(raw) is None for part in (chained, reconciling, boundaries, on_spark))
    shown = stalls.show(raw)
    assert set(shown.pictures) == {"stalls.svg"}
    assert "###" in shown.text


def test_all_parts_are_shown_with_what_was_measured() -> None:
    chains = [
        Asked(rate, 15, choice, more={"depth": depth}).repetition("chain", _stalled(depth))
        for rate in (RATE, RATE * FAST)
        for choice in CHOICES
        for depth in (1, 4)
    ]
    calm = [
        {
            "what": "boundaries",
            "rate": rate,
            "interval_ms": interval_ms,
            "turn": turn,
            "seconds": 20,
            "delay_ms": interval_ms + turn,
        }
        for rate in (RATE, RATE * FAST)
        for interval_ms in (50, 100, 150, 200, 250, 300)
        for turn in range(3)
    ]
    back = [
        {
            "what": f"reconciled by {what}",
            "times": times,
            "state": 20 * times,
            "failure": 5_000 * times,
            "way": way,
            "turn": 0,
            "back_ms": 1.5,
            "redo_ms": 2.25,
            "copy_ms": 7.0,
        }
        for what in ("state", "failure")
        for times in (1, FAST)
        for way in WAYS
    ]
    live = [
        {
            **Asked(RATE, failure_s, choice).repetition("spark", _stalled(1)),
            "p999_s": 2.0,
            "within": 0.99956,
            "before_longest_s": 0.75,
            "tentative_results": 123,
            "batches": 7,
            "by_second": [[0, 1.0]],
        }
        for choice in CHOICES
        for failure_s in (2, 60)
    ]
    text = stalls.show(_raw([*_failures(), *chains, *calm, *back, *live])).text
    assert "| process & suspend | 2.7 s / 1,000 | 2.7 s / 4,000 |" in text
    assert "| 250 ms | 251 (0.8) | 251 (0.8) | 298 (55) |" in text
    assert "| undo/redo | 1.5 / 3.8 |" in text
    assert "| delay & delay | 2.7 s / 99.96% | 2.7 s / 99.96% |" in text
    assert "| delay & delay | 123 / 0.5 s | 123 / 0.5 s |" in text


def _stalled(number: int) -> Stalled:
    return Stalled(2.7, 1_000 * number, 1_000 * number, 0.5)


def _failures() -> list[Repetition]:
    found = [
        Asked(rate, 15, choice).repetition(what, _stalled(1))
        for what, rate in (("failures", RATE), ("fast", RATE * FAST))
        for choice in CHOICES
    ]
    bounds = [Asked(3_000, 5, (each, "process"), 2 / 0.9) for each in ("process", "delay")]
    return [*found, *(each.repetition("bounds", _stalled(2)) for each in bounds)]


def _raw(repetitions: list[Repetition]) -> Raw:
    settings = {"bound_s": 3, "waits_s": [2]}
    return Raw("stalls", "quick", "2026-01-01", 1.0, {}, {}, settings, 0, repetitions, {})
