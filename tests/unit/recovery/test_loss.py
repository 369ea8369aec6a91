"""Loss by choice: what is left after a crash, what is counted, and how exactness comes back."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.support.compare import assert_same_rows, assert_same_states
from tests.support.engine import Query
from tests.support.harm import flip_in
from tests.support.losses import Watched, random_lossy
from tests.support.orders import count_case, random_orders
from tests.support.plain import plain_rows
from tests.support.policies import random_footprints, random_policy
from tests.support.seeds import reported, seeds
from trailmark.checkpoint.policy import Continuous
from trailmark.checkpoint.rates import Rates, Work
from trailmark.kernel.columns import contiguous
from trailmark.records import FrameKind, Loss, Stream
from trailmark.testing.disk import Crashed


def _watched(rng: random.Random, loss: Loss = Loss.BOUNDED) -> Watched:
    return Watched(random_lossy(rng), random_policy(rng), loss)


@pytest.mark.parametrize("part", range(4))
def test_what_has_a_footprint_is_left_after_a_crash_at_any_batch(part: int) -> None:
    lost_something = 0
    for seed in seeds(80)[part::4]:
        rng = random.Random(seed)
        run = _watched(rng)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                run.step()
                lost = run.check_left().plan.lost
                assert lost is not None
                lost_something += not lost.is_nothing
                if rng.random() < 0.3:
                    (bucket,) = run.query.open()
                    bucket.trim(acknowledged=rng.choice((None, run.next_batch)))
                if rng.random() < 0.3:
                    run.restart(policy=random_policy(rng) if rng.random() < 0.3 else None)
    assert lost_something


@pytest.mark.parametrize("part", range(2))
def test_the_tuples_that_are_lost_are_counted(part: int) -> None:
    for seed in seeds(40)[part::2]:
        rng = random.Random(seed)
        run = Watched(random_lossy(rng), random_footprints(rng), Loss.BOUNDED)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                report = run.step()
                assert report.account.replay == run.tuples_unprotected()
                lost = run.check_left().plan.lost
                assert lost is not None
                assert lost.tuples == run.tuples_unprotected()


def _check_damaged(run: Watched, batches: Iterable[int], rng: random.Random) -> bool:
    """With these segments damaged in a copy, what must be left is; whether windows may be back."""
    whole, run.damaged = run.disk, set(batches)
    run.disk = whole.copy()
    for batch in run.damaged:
        flip_in(run.disk, Stream.OUTPUT, batch, rng.random())
    lost = run.check_left().plan.lost
    assert lost is not None
    run.disk, run.damaged = whole, set()
    return lost.doubtful > 0


def _long(rng: random.Random) -> Watched:
    """Footprints of many ages: windows that stay open, and are checked now and then."""
    orders = random_orders(rng, batches=14, rows=25, items=14)
    policy = Continuous(u=rng.choice((40, 70, 120)), q=rng.choice((None, 60)))
    return Watched(count_case(orders, size=9), policy, Loss.BOUNDED)


@pytest.mark.parametrize("part", range(4))
def test_damaged_segments_are_passed_over(part: int) -> None:
    came_back = 0
    for seed in seeds(80)[part::4]:
        rng = random.Random(seed)
        run = _watched(rng) if rng.random() < 0.7 else _long(rng)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                run.step()
                some = range(run.next_batch)
                chosen = rng.sample(some, min(len(some), rng.choice((1, 1, 2, 3))))
                came_back += _check_damaged(run, chosen, rng)
                if rng.random() < 0.2:
                    run.restart()
    assert came_back


@pytest.mark.parametrize("part", range(2))
def test_what_is_trimmed_is_not_missed_around_one_damaged_segment(part: int) -> None:
    for seed in seeds(40)[part::2]:
        rng = random.Random(seed)
        run = _watched(rng) if rng.random() < 0.5 else _long(rng)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                run.step()
                (bucket,) = run.query.open()
                bucket.trim(acknowledged=run.next_batch)
                kept = run.query.logs().output(0).batches()
                _check_damaged(run, [rng.choice((kept[-1], rng.choice(kept)))], rng)
                if rng.random() < 0.3:
                    run.restart()


@pytest.mark.parametrize("part", range(2))
def test_the_query_goes_on_from_what_is_left(part: int) -> None:
    for seed in seeds(40)[part::2]:
        rng = random.Random(seed)
        run = _watched(rng)
        with reported(seed, (run.policy, run.case)):
            for _ in range(rng.randint(1, len(run.case.batches))):
                run.step()
            run.check_results_after()


@pytest.mark.parametrize("part", range(4))
def test_everything_is_exact_again_after_a_start_without_loss(part: int, tmp_path: Path) -> None:
    """With and without a crash, under any policies, whatever was trimmed: while no loss is
    accepted, a recovery at any moment gives the state as it is."""
    for seed in seeds(120)[part::4]:
        rng = random.Random(seed)
        run = _watched(rng, rng.choice((Loss.NONE, Loss.BOUNDED)))
        run.cache_root = tmp_path / str(seed) if rng.random() < 0.5 else None
        run.restart()
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                report = run.step()
                assert report.account.loss is run.loss
                if run.loss is Loss.NONE:
                    found, again = run.recovered()
                    assert again.plan.lost is None
                    assert_same_states(found, run.seen[run.next_batch - 1].states, "exactly")
                else:
                    run.check_left()
                if rng.random() < 0.5:
                    (bucket,) = run.query.open()
                    bucket.trim(acknowledged=rng.choice((None, run.next_batch)))
                if rng.random() < 0.6:
                    if run.cache_root is not None and rng.random() < 0.3:
                        for token in run.cache_root.glob("*/*/token"):
                            token.unlink()
                    changed = random_policy(rng) if rng.random() < 0.5 else None
                    run.restart(policy=changed, loss=rng.choice(tuple(Loss)))
            run.query.stop()


def test_no_input_is_kept_but_that_of_the_last_two_batches() -> None:
    for seed in seeds(20):
        rng = random.Random(seed)
        run = _watched(rng)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                report = run.step()
                assert report.account.keep_from == report.batch
                (bucket,) = run.query.open()
                bucket.trim()
                kept = run.query.logs().input(0).batches()
                assert kept == [max(0, report.batch - 1), report.batch][-len(kept) :]


def test_a_loss_is_in_the_footer_of_the_next_batch_and_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warned = 0
    for seed in seeds(30):
        rng = random.Random(seed)
        run = _watched(rng)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                run.restart()
                caplog.clear()
                with caplog.at_level(logging.WARNING, "trailmark"):
                    report = run.step()
                footer, _ = run.query.logs().output(0).read_footer(report.batch)
                told = [r.getMessage() for r in caplog.records if "with loss" in r.getMessage()]
                if report.recovery is None:
                    assert (report.batch, told) == (0, [])
                    continue
                lost = report.recovery.plan.lost
                assert lost is not None
                assert footer.attributes["recovery"]["lost"] == lost.describe()
                assert len(told) == (not lost.is_nothing)
                assert all(str(lost) in text for text in told)
                warned += len(told)
    assert warned


@pytest.mark.parametrize("part", range(2))
def test_a_batch_that_is_killed_at_any_operation_has_the_same_results_once(part: int) -> None:
    """Whoever does it again begins with the same loss, or finds its results in the log."""
    crashes = answered = 0
    for seed in seeds(90)[part::2]:
        rng = random.Random(seed)
        run = _watched(rng)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                run.restart()
                batch, rows = run.next_batch, run.case.batches[run.next_batch]
                twin = Query(run.case, run.disk.copy(), run.policy, loss=run.loss, wall=run.wall_us)
                (wanted,) = twin.run(batch, [rows])
                twin.stop()
                run.disk.stop_after(rng.randrange(30))
                try:
                    run.query.run(batch, [rows])
                except Crashed:
                    crashes += 1
                    run.query.stop()
                    run.disk.kill() if rng.random() < 0.5 else run.disk.crash(rng)
                    run.restart()
                run.disk.relax()
                (report,) = run.query.run(batch, [rows])
                answered += report.was_logged
                assert_same_rows(report.results, plain_rows(wanted.results), f"batch {batch}")
                logged = run.query.logs().output(0).read(batch).table(FrameKind.RESULTS)
                found = run.case.operator().publish(contiguous(logged))
                assert_same_rows(found, plain_rows(wanted.results), f"batch {batch} in the log")
                run.next_batch += 1
    assert min(crashes, answered) > 10


@pytest.mark.parametrize("part", range(2))
def test_a_recovery_is_predicted_to_load_and_not_to_replay(part: int) -> None:
    for seed in seeds(40)[part::2]:
        rng = random.Random(seed)
        run = _watched(rng)
        with reported(seed, (run.policy, run.case)):
            while not run.is_over:
                account = run.step().account
                plan = run.check_left().plan
                footer, _ = run.query.logs().output(0).read_footer(plan.target)
                rates = Rates.from_attributes(footer.attributes["rates"])
                work = Work(plan.segments_read, plan.records_read, excess=plan.extent_excess)
                assert account.predicted_us == pytest.approx(rates.predict_us(work), rel=0.001)
