"""Output or input that cannot be read: the same state by another way, or a named refusal."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.support.followed import Followed
from tests.support.harm import PLACES, flip_anywhere, flip_in, segment_path
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.pairing import random_pairing
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.engine import BatchReport
from trailmark.errors import DamagedSegment, MissingInput
from trailmark.records import Stream
from trailmark.recovery import RecoveryPlan, plan_recovery

_BATCHES = 12


def _run(seed: int = 1, policy: Continuous | NoCheckpoint | None = None) -> Followed:
    """Stands before its last two batches; the extent of a recovery covers several segments."""
    batches = random_orders(random.Random(seed), batches=_BATCHES, rows=25, items=14)
    run = Followed(count_case(batches, size=6, slide=4), policy or Continuous(u=70))
    run.run(_BATCHES - 2)
    return run


def _extent(run: Followed) -> range:
    """The output segments that a recovery reads."""
    target = run.next_batch - 1
    standing = run.recounts[0].standing(target)
    assert standing.oldest is not None
    return range(standing.oldest, target + 1)


def _recovered(run: Followed) -> BatchReport:
    """Runs the next batch in a new process; results and state are judged on the way."""
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    return report


def _plan(run: Followed, target: int) -> RecoveryPlan:
    logs = run.query.logs()
    return plan_recovery(
        run.case.operator(),
        logs.output(0),
        logs.input(0),
        logs.snapshots(0),
        target,
        0,
    )


def _assert_no_longer_needed(run: Followed) -> None:
    """What is damaged lies behind: every window has a footprint from the newest batch."""
    batch = run.next_batch - 1
    recount = run.recounts[0]
    assert set(recount.ages(batch).values()) == {batch}
    run.check_accounts(was_damaged=True)
    plan = _plan(run, batch)
    assert plan.skipped == ()
    assert (plan.base, plan.segments_read, plan.replay_tuples) == (batch, 1, 0)


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_any_one_damaged_segment_of_the_extent_is_gone_around(place: float) -> None:
    whole = _run()
    extent = _extent(whole)
    assert len(extent) >= 4
    for damaged in extent:
        run = whole.copy()
        flip_in(run.disk, Stream.OUTPUT, damaged, place)
        report = _recovered(run)
        assert report.recovery is not None
        assert [skipped.batch for skipped in report.recovery.plan.skipped] == [damaged]
        assert report.recovery.plan.base == damaged - 1
        _assert_no_longer_needed(run)
        assert _recovered(run).recovery.plan.skipped == ()  # type: ignore[union-attr]


def test_several_damaged_segments_at_once_are_gone_around() -> None:
    whole = _run()
    extent = _extent(whole)
    pairs = list(itertools.combinations(extent, 2))
    for damaged in [*pairs, tuple(extent), (0, extent[0]), (extent[0] - 1, extent[-1])]:
        run = whole.copy()
        for batch in damaged:
            flip_in(run.disk, Stream.OUTPUT, batch)
        _recovered(run)
        _assert_no_longer_needed(run)
        run.step()


def test_a_log_without_one_readable_output_segment_is_replayed_from_the_start() -> None:
    run = _run()
    for batch in range(run.next_batch):
        flip_in(run.disk, Stream.OUTPUT, batch)
    report = _recovered(run)
    assert report.recovery is not None
    assert report.recovery.plan.base == -1
    assert len(report.recovery.plan.skipped) == run.next_batch - 1
    _assert_no_longer_needed(run)
    run.run()


@pytest.mark.parametrize("policy", [Continuous(), Continuous(q=80), NoCheckpoint()], ids=str)
def test_deleted_output_segments_are_gone_around(policy: Continuous | NoCheckpoint) -> None:
    whole = _run(2, policy)
    # The newest one is not among them: without it the log ends earlier, and that is another error.
    for deleted in range(whole.next_batch - 1):
        run = whole.copy()
        run.query.logs().storage.delete(segment_path(Stream.OUTPUT, deleted))
        _recovered(run)
        _recovered(run)


def test_output_trimmed_too_far_is_made_up_for_by_the_whole_input() -> None:
    run = _run()
    oldest = _extent(run)[0]
    run.query.logs().output(0).trim(oldest + 1)
    report = _recovered(run)
    assert report.recovery is not None
    plan = report.recovery.plan
    assert plan.base == -1
    ((batch, why),) = [(skipped.batch, skipped.why) for skipped in plan.skipped]
    assert batch == oldest
    assert "begins after it" in why
    _assert_no_longer_needed(run)
    run.run()


def test_a_damaged_newest_segment_of_a_trimmed_log_is_gone_around_without_a_search() -> None:
    run = _run()
    newest = run.next_batch - 1
    run.query.logs().output(0).trim(newest)
    flip_in(run.disk, Stream.OUTPUT, newest)
    report = _recovered(run)
    assert report.recovery is not None
    assert [skipped.batch for skipped in report.recovery.plan.skipped] == [newest]
    run.run()


@pytest.mark.parametrize("policy", [Continuous(), Continuous(q=80), NoCheckpoint()], ids=str)
def test_whatever_is_damaged_the_batches_that_follow_stay_right(
    policy: Continuous | NoCheckpoint,
) -> None:
    whole = _run(3, policy)
    rng = random.Random(4)
    for _ in range(25):
        run = whole.copy()
        for batch in rng.sample(range(run.next_batch), rng.randint(1, 4)):
            flip_anywhere(run.disk, Stream.OUTPUT, batch, rng)
        _recovered(run)
        if rng.random() < 0.5:
            run.query.stop()
        run.step()


def test_damage_within_a_pack_is_gone_around() -> None:
    rng = random.Random(5)
    whole = _run(6)
    whole.query.logs().output(0).merge(whole.next_batch - 2)
    (pack,) = [path for path in whole.disk.files() if path.endswith(".pack")]
    for _ in range(20):
        run = whole.copy()
        run.disk.flip(pack, rng.randrange(len(run.disk.content(pack))), rng.randrange(8))
        _recovered(run)
        run.step()


def test_time_windows_are_recovered_around_damage_with_their_watermarks() -> None:
    rng = random.Random(7)
    batches = random_timed_orders(rng, batches=_BATCHES, rows=25, items=5)
    whole = Followed(time_case(batches, slide=5_000_000), Continuous(u=90), buckets=2)
    whole.run(_BATCHES - 2)
    for damaged in range(3, whole.next_batch):
        run = whole.copy()
        for bucket in range(2):
            flip_in(run.disk, Stream.OUTPUT, damaged, bucket=bucket)
        for _ in range(2):
            run.query.stop()
            run.step()
            run.check_accounts(was_damaged=True)


def test_what_was_counted_is_right_again_after_damage_that_was_not_in_the_way() -> None:
    """The batch before the oldest footprint is looked at for its totals only."""
    whole = _run()
    before = _extent(whole)[0] - 1
    for place in PLACES.values():
        run = whole.copy()
        flip_in(run.disk, Stream.OUTPUT, before, place)
        report = _recovered(run)
        assert report.recovery is not None
        assert report.recovery.plan.skipped == ()
        run.check_accounts()
        run.step()
        run.check_accounts()


@pytest.mark.parametrize("after", [Continuous(u=70), NoCheckpoint()], ids=str)
@pytest.mark.parametrize("policy", [Continuous(u=70), NoCheckpoint()], ids=str)
def test_what_is_counted_after_a_recovery_around_damage_is_what_a_recovery_would_do(
    policy: Continuous | NoCheckpoint, after: Continuous | NoCheckpoint
) -> None:
    whole = _run(8, policy)
    for damaged in range(1, whole.next_batch):
        run = whole.copy()
        flip_in(run.disk, Stream.OUTPUT, damaged)
        run.query.policy = after
        account = _recovered(run).account
        target = run.next_batch - 1
        plan = _plan(run, target)
        assert (account.base, account.needs) == (plan.base, plan.replay_from), f"batch {damaged}"
        assert account.replay == plan.replay_tuples, f"batch {damaged}"
        if plan.skipped == ():
            assert account.extent == plan.records_read, f"batch {damaged}"
        run.query.policy = policy
        _recovered(run)


@pytest.mark.parametrize("after", [Continuous(u=10), NoCheckpoint()], ids=str)
def test_the_weight_of_what_is_left_after_damage_is_what_a_recovery_would_load(
    after: Continuous | NoCheckpoint,
) -> None:
    """Footprints of very different weights; each segment is damaged in turn."""
    heavy = 0
    for seed in range(12):
        whole = Followed(random_pairing(random.Random(seed)), Continuous(u=10))
        whole.run(len(whole.case.batches) - 1)
        for damaged in range(whole.next_batch):
            run = whole.copy()
            flip_in(run.disk, Stream.OUTPUT, damaged)
            run.query.policy = after
            account = _recovered(run).account
            plan = _plan(run, run.next_batch - 1)
            assert account.extent_excess == plan.extent_excess, f"batch {damaged}"
            if plan.skipped == ():
                assert account.extent == plan.records_read, f"batch {damaged}"
                assert account.extent_excess == plan.excess_used, f"batch {damaged}"
                heavy += account.extent_excess > 0
    assert heavy > 20


# Refusals


def _refused(run: Followed, error: type[MissingInput] | type[DamagedSegment]) -> str:
    """The next batch is refused, now and again; nothing is published. Returns the message."""
    run.query.stop()
    batch = run.next_batch
    for _ in range(2):
        with pytest.raises(error) as refused:
            run.query.run(batch, run.parts(batch))
        assert refused.value.fix
    assert not run.query.logs().output(0).contains(batch)
    return str(refused.value)


def test_input_trimmed_too_far_is_refused_by_name() -> None:
    run = _run()
    first = _extent(run)[0] + 1
    run.query.logs().input(0).trim(first + 1)
    message = _refused(run, MissingInput)
    assert f"input batches {first} to {run.next_batch - 1}, but batch {first} is gone" in message
    assert segment_path(Stream.INPUT, first) in message


def test_input_that_is_missing_in_the_middle_is_refused_by_name() -> None:
    whole = _run()
    extent = _extent(whole)
    for batch in range(extent[0] + 1, extent[-1]):
        run = whole.copy()
        run.query.logs().storage.delete(segment_path(Stream.INPUT, batch))
        assert f"batch {batch} is gone" in _refused(run, MissingInput)


def test_damage_that_needs_input_which_is_gone_is_refused_with_both_names() -> None:
    run = _run()
    extent = _extent(run)
    run.query.logs().input(0).trim(extent[0] + 1)
    assert run.copy().step(), "without damage there is all that is needed"
    flip_in(run.disk, Stream.OUTPUT, extent[0])
    message = _refused(run, MissingInput)
    assert f"Output batch {extent[0]} could not be used" in message
    assert "is gone" in message
    assert "in/00000/" in message


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_damaged_input_that_has_to_be_replayed_is_refused_by_name(place: float) -> None:
    whole = _run()
    extent = _extent(whole)
    for batch in range(extent[0] + 1, extent[-1] + 1):
        run = whole.copy()
        path = flip_in(run.disk, Stream.INPUT, batch, place)
        assert path in _refused(run, DamagedSegment)


def test_damaged_input_that_nobody_asks_for_harms_nothing() -> None:
    run = _run()
    for batch in range(_extent(run)[0] + 1):
        flip_in(run.disk, Stream.INPUT, batch)
    _recovered(run)
    run.run()


def test_damage_to_the_newest_input_alone_does_not_stop_a_process_that_holds_its_state() -> None:
    run = _run()
    flip_in(run.disk, Stream.INPUT, run.next_batch - 1)
    (report,) = run.step()
    assert report.recovery is None
