"""A trim by hand removes what it is asked to, and never what a recovery may need."""

from __future__ import annotations

import random

import pytest

from tests.support.followed import Followed
from tests.support.harm import flip_in
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.policies import random_policy
from trailmark.checkpoint.policy import Continuous, FullSnapshot, NoCheckpoint, Policy
from trailmark.inspection.logs import OperatorFiles
from trailmark.log.readers import register
from trailmark.records import Stream
from trailmark.settings import Durability
from trailmark.upkeep import OperatorTrim, merge_operator, trim_operator

_ALL = 10_000


def _counted(batches: int = 14, *, policy: Policy | None = None) -> Followed:
    rows = random_orders(random.Random(2), batches=18, rows=20, items=5)
    run = Followed(count_case(rows), Continuous(q=10, u=30) if policy is None else policy)
    run.run(batches)
    return run


def _trim(run: Followed, before: int, *, dry_run: bool = False) -> OperatorTrim:
    return trim_operator(OperatorFiles(run.disk.storage()), before, dry_run=dry_run)


def _goes_on(run: Followed) -> None:
    """Recovers, and gives the right results."""
    run.query.stop()
    (report, *_) = run.step()
    assert report.recovery is not None
    run.run(2)


@pytest.mark.parametrize("seed", range(12))
def test_a_query_recovers_after_any_trim_even_around_one_damaged_segment(seed: int) -> None:
    rng = random.Random(seed)
    if seed % 2:
        rows = random_timed_orders(rng, batches=14, rows=20, items=4)
        run = Followed(time_case(rows), random_policy(rng), buckets=2)
    else:
        case = count_case(random_orders(rng, batches=14, rows=20, items=4))
        run = Followed(case, random_policy(rng), buckets=2)
    run.run(11)
    _trim(run, _ALL)
    _goes_on(run.copy())
    held = run.query.logs().output(0).batches()
    flip_in(run.disk, Stream.OUTPUT, rng.choice(held))
    _goes_on(run)


def test_what_a_recovery_does_not_need_goes_and_is_counted() -> None:
    run = _counted()
    sizes = {path: len(run.disk.content(path)) for path in run.disk.files()}
    footer, _ = run.query.logs().output(0).read_footer(13)
    keep_from, output_from = (footer.attributes[f"keep_{name}"] for name in ("from", "output_from"))
    assert 3 < output_from <= keep_from <= 12
    done = _trim(run, _ALL)
    gone = sizes.keys() - set(run.disk.files())
    assert done.files == len(gone) > 0
    assert done.bytes == sum(sizes[path] for path in gone)
    logs = run.query.logs()
    assert logs.input(0).batches() == list(range(keep_from, 14))
    assert logs.output(0).batches() == list(range(output_from, 14))


def test_the_input_of_the_last_two_batches_stays_for_the_watermark_of_other_buckets() -> None:
    """Where no window is open, nothing is needed; a bucket that is behind still asks for it."""
    run = Followed(count_case([[(1, 1)] * 2] * 8, size=2), Continuous())
    run.run(6)
    footer, _ = run.query.logs().output(0).read_footer(5)
    assert footer.attributes["open_windows"] == 0
    _trim(run, _ALL)
    assert run.query.logs().input(0).batches() == [4, 5]
    _goes_on_without_windows(run)


def _goes_on_without_windows(run: Followed) -> None:
    run.query.stop()
    run.run(2)


def test_no_more_goes_than_was_asked_for() -> None:
    run = _counted()
    done = _trim(run, 2)
    assert all(log.before == 2 for log in done.logs)
    logs = run.query.logs()
    assert logs.input(0).oldest() == logs.output(0).oldest() == 2


def test_a_dry_run_says_the_same_and_removes_nothing() -> None:
    run = _counted()
    merge_operator(OperatorFiles(run.disk.storage()))
    for before in (0, 1, 5, _ALL):
        twin = run.copy()
        operations, files = twin.disk.operations, twin.disk.files()
        told = _trim(twin, before, dry_run=True)
        assert (twin.disk.operations, twin.disk.files()) == (operations, files)
        assert told == _trim(twin, before)


def test_without_footprints_all_input_stays() -> None:
    run = _counted(policy=NoCheckpoint())
    footer, _ = run.query.logs().output(0).read_footer(13)
    assert footer.attributes["open_windows"] > 0
    assert _trim(run, _ALL).files == 0
    assert run.query.logs().input(0).batches() == list(range(14))
    _goes_on(run)


def test_old_snapshots_go_and_the_one_that_is_needed_stays() -> None:
    run = _counted(policy=FullSnapshot(every=2, asynchronous=True))
    run.query.stop()
    before = run.query.logs().snapshots(0).batches()
    done = _trim(run, _ALL)
    after = run.query.logs().snapshots(0).batches()
    assert 1 <= len(after) < len(before)
    assert sum(len(log.files) for log in done.logs if log.stream is Stream.SNAPSHOT) > 0
    _goes_on(run)


def test_a_bucket_whose_newest_footer_cannot_be_read_is_left_alone() -> None:
    case = count_case(random_orders(random.Random(4), batches=14, rows=20, items=4))
    run = Followed(case, Continuous(q=5), buckets=2)
    run.run()
    flip_in(run.disk, Stream.OUTPUT, 13, place=0.9, bucket=1)
    held = run.query.logs().input(1).batches()
    done = _trim(run, _ALL)
    assert {log.bucket for log in done.logs} == {0}
    assert len(done.left_alone) == 1
    assert "bucket 1" in done.left_alone[0]
    assert run.query.logs().input(1).batches() == held


def test_output_that_replaces_what_is_removed_survives_a_power_failure() -> None:
    """The writer may not have synced it; the one who removes its input has to."""
    run = _counted(0)
    storage = run.disk.storage(Durability.UNSYNCED)
    run.disk.storage = lambda *_: storage  # type: ignore[method-assign]
    run.run(14)
    del run.disk.storage
    _trim(run, _ALL)
    for seed in range(20):
        twin = run.copy()
        twin.disk.crash(random.Random(seed))
        held = twin.query.logs().output(0)
        footer, _ = run.query.logs().output(0).read_footer(13)
        needed = range(footer.attributes["keep_output_from"], 14)
        assert all(held.contains(batch) for batch in needed)


def test_a_reader_keeps_its_log_and_no_other() -> None:
    run = _counted()
    footer, _ = run.query.logs().output(0).read_footer(13)
    keep_from = footer.attributes["keep_from"]
    register(run.disk.storage(), "audit", Stream.OUTPUT, 2)
    done = {log.stream: log for log in _trim(run, _ALL).logs}
    assert (done[Stream.OUTPUT].before, done[Stream.OUTPUT].held_by) == (2, ("audit",))
    assert (done[Stream.INPUT].before, done[Stream.INPUT].held_by) == (keep_from, ())
    assert run.query.logs().output(0).oldest() == 2
    _goes_on(run)


def test_a_reader_that_needs_no_more_than_a_recovery_does_not_hold_anything_back() -> None:
    run = _counted()
    footer, _ = run.query.logs().output(0).read_footer(13)
    needed = footer.attributes["keep_output_from"]
    register(run.disk.storage(), "audit", Stream.OUTPUT, needed)
    assert all(not log.held_by for log in _trim(run, _ALL).logs)
    assert run.query.logs().output(0).oldest() == needed
