"""The picture is what the engine knows and the oracle counts, and taking it disturbs nobody."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.support.followed import Followed
from tests.support.harm import bring_back, flip_in, segment_path
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.policies import random_policy
from trailmark.checkpoint.policy import Continuous, NoCheckpoint
from trailmark.engine.commits import mark_committed, mark_rolled_back
from trailmark.engine.refused import leave_refusal
from trailmark.errors import InputDiffers, UnknownFormat
from trailmark.inspection import OperatorStatus, read_status
from trailmark.log import StreamLog
from trailmark.records import NO_BATCH, START_OF_LOG, Fingerprint, FrameKind, Stream
from trailmark.testing.disk import SimulatedDisk


def _timed(batches: int, *, seed: int = 7, buckets: int = 2) -> Followed:
    rows = random_timed_orders(random.Random(seed), batches=batches, rows=30, items=6)
    return Followed(time_case(rows, late="keep"), Continuous(q=40, u=60), buckets=buckets)


def _counted(batches: int, *, seed: int = 3, buckets: int = 1) -> Followed:
    rows = random_orders(random.Random(seed), batches=batches, rows=20, items=5)
    return Followed(count_case(rows), Continuous(q=20, u=60), buckets=buckets)


def _status(run: Followed, look_back: int = 100) -> OperatorStatus:
    return read_status(run.disk.storage(), look_back=look_back)


@pytest.mark.parametrize("seed", range(6))
def test_every_account_is_the_one_that_the_engine_reports(seed: int) -> None:
    rng = random.Random(seed)
    run = _timed(12, seed=seed) if seed % 2 else _counted(12, seed=seed, buckets=3)
    run.query.policy = random_policy(rng)
    for reports in run.steps():
        status = _status(run)
        assert [bucket.account for bucket in status.buckets] == [each.account for each in reports]
        assert {bucket.batch for bucket in status.buckets} == {reports[0].batch}
        assert status.predicted_us == max(each.account.predicted_us for each in reports)
        assert status.is_reachable == all(each.account.is_reachable for each in reports)
        assert all(bucket.policy == run.query.policy.describe() for bucket in status.buckets)


def test_open_windows_and_the_age_of_the_oldest_footprint_are_what_counting_gives() -> None:
    run = _timed(15)
    ages = set()
    for _ in run.steps():
        status = _status(run)
        for bucket, recount in zip(status.buckets, run.recounts, strict=True):
            assert bucket.account is not None
            assert bucket.account.open_windows == len(recount.open_after[bucket.batch])
            oldest = recount.oldest(bucket.batch)
            age = None if oldest is None or oldest == NO_BATCH else bucket.batch - oldest
            assert bucket.age == age
            ages.add(age)
    assert len(ages) > 2, "there was something to tell apart"


def test_files_that_came_back_after_a_trim_take_room_and_change_nothing_else() -> None:
    run = _counted(20)
    run.run()
    earlier = run.disk.copy()
    run.query.logs().output(0).trim(9)
    before = _status(run).buckets[0]
    back = [segment_path(Stream.OUTPUT, batch) for batch in (2, 5, 6)]
    bring_back(run.disk, earlier, back)
    after = _status(run).buckets[0]
    assert (after.output.oldest, after.output.files) == (9, before.output.files + 3)
    size = sum(len(earlier.content(path)) for path in back)
    assert after.output.bytes == before.output.bytes + size
    assert replace(after, output=before.output) == before


@pytest.mark.parametrize("look_back", [1, 4, 100])
def test_sums_cover_the_batches_they_name_and_are_what_the_oracle_gives(look_back: int) -> None:
    run = _timed(11)
    run.run()
    status = _status(run, look_back=look_back)
    first = max(0, 11 - look_back)
    for number, bucket in enumerate(status.buckets):
        recent, newest = bucket.recent, bucket.newest
        assert recent is not None
        assert newest is not None
        assert (recent.first, recent.last, recent.batches) == (first, 10, 11 - first)
        outcomes = [run.judge.outcome(number, batch) for batch in range(first, 11)]
        assert recent.results == sum(len(each.results) for each in outcomes)
        assert recent.late_rows == sum(each.late_rows for each in outcomes)
        assert recent.late_updates == sum(each.late_updates for each in outcomes)
        assert recent.null_times == sum(each.null_times for each in outcomes)
        assert recent.tuples == run.recounts[number].tuples(first, 10)
        logged = [each for each in run.recounts[number].footprints if each.batch >= first]
        assert recent.footprints == len(logged)
        assert recent.footprints_checked == sum(each.kind == 1 for each in logged)
        assert (newest.first, newest.last) == (10, 10)
        assert newest.results == len(outcomes[-1].results)
    assert sum(bucket.recent.late_rows for bucket in status.buckets if bucket.recent) > 0


def test_totals_since_the_start_do_not_depend_on_how_far_it_looks_back() -> None:
    run = _counted(20)
    run.run()
    described = _status(run, look_back=1).describe()
    assert described["inputs_total"] == run.recounts[0].tuples(0, 19)
    assert described["records_total"] == run.recounts[0].records(0, 19)


def test_bytes_are_those_of_the_files() -> None:
    run = _timed(20)
    run.run()
    logs = run.query.logs()
    assert logs.output(0).merge(8).packs
    mark_committed(logs.storage, 19, "a run")
    status = _status(run)
    sizes = {path: len(run.disk.content(path)) for path in run.disk.files()}
    assert status.bytes == sum(sizes.values())
    first = status.buckets[0]
    assert first.output.bytes == sum(n for path, n in sizes.items() if path.startswith("out/00000"))
    assert first.output.packs == 1
    assert (first.output.oldest, first.output.newest) == (0, 19)
    segments = [path for path in sizes if path.startswith("in/00000/") and path.endswith(".seg")]
    assert first.input.files == len(segments)


def test_a_batch_is_committed_if_it_is_marked_or_has_a_later_one() -> None:
    run = _timed(4)
    storage = run.disk.storage()
    committed = []
    for reports in run.steps():
        committed.append([bucket.committed for bucket in _status(run).buckets])
        if reports[0].batch == 1:
            mark_committed(storage, 1, "a run")
            assert _status(run).committed == 1
    assert committed == [[NO_BATCH] * 2, [0] * 2, [1] * 2, [2] * 2]
    mark_committed(storage, 3, "a run")
    assert _status(run).committed == 3
    mark_committed(storage, 8, "a run")
    assert _status(run).committed == 3, "a bucket has no batch that it does not have"


def test_what_stopped_the_query_is_told_until_the_bucket_has_got_over_it() -> None:
    run = _timed(6)
    run.run(3)
    storage = run.disk.storage()
    written = _status(run).buckets[1].written_us
    assert written is not None
    error = InputDiffers("Other rows.", where="in/00001", fix="Go back.")
    leave_refusal(storage, error, "query", 3, 1, lambda: written - 1)
    assert _status(run).refusal is None, "it has written a batch since"
    leave_refusal(storage, error, "query", 3, 1, lambda: written)
    refusal = _status(run).refusal
    assert refusal is not None
    assert (refusal.batch, refusal.bucket) == (3, 1)
    assert _status(run).describe()["refusal"]["text"] == error.line
    run.query.open()[0].run(3, run.parts(3)[0])
    assert _status(run).refusal == refusal, "another bucket has"


def test_buckets_that_are_not_equally_far_are_told_apart() -> None:
    run = _timed(5)
    run.run(4)
    run.query.open()[1].run(4, run.parts(4)[1])
    status = _status(run)
    assert (status.last_batch, status.whole_batch) == (4, 3)
    assert [bucket.committed for bucket in status.buckets] == [3, 3]


def test_the_last_recovery_is_the_one_that_the_engine_reports() -> None:
    run = _counted(12)
    run.run(5)
    assert _status(run).recovery is None
    run.query.stop()
    (report,) = run.step()
    assert report.recovery is not None
    run.run(3)
    found = _status(run).recovery
    assert found is not None
    assert (found.bucket, found.batch, found.why) == (0, 5, report.recovery.why)
    plan = report.recovery.plan
    assert found.footprints == plan.open_windows > 0
    assert found.records_read == plan.records_read
    assert found.segments_read == plan.segments_read
    assert found.replay_tuples == plan.replay_tuples
    assert found.predicted_us == report.recovery.predicted_us
    assert found.took_us > 0
    assert _status(run, look_back=3).recovery is None, "it is further back"


def test_status_of_a_running_query_changes_nothing_on_disk() -> None:
    run = _timed(8)
    for _ in run.steps():
        before = run.disk.operations
        content = {path: run.disk.content(path) for path in run.disk.files()}
        _status(run)
        assert run.disk.operations == before
        assert {path: run.disk.content(path) for path in run.disk.files()} == content


def test_an_operator_without_a_batch_has_a_picture_too() -> None:
    run = _timed(1)
    run.query.logs()
    status = _status(run)
    assert status.last_batch == status.whole_batch == status.committed == NO_BATCH
    assert status.accounts == []
    assert status.predicted_us is None
    assert status.is_sound
    assert status.describe()["buckets"][0]["account"] is None


def test_a_place_without_logs_is_refused_and_nothing_is_made_there() -> None:
    disk = SimulatedDisk()
    with pytest.raises(UnknownFormat, match="no Trailmark log"):
        read_status(disk.storage())
    assert disk.operations == 0


def test_figures_are_those_of_the_newest_batch_that_can_be_read() -> None:
    run = _timed(6)
    reports = [run.step() for _ in range(6)]
    path = flip_in(run.disk, Stream.OUTPUT, 5, place=0.9, bucket=1)
    status = _status(run)
    sound, harmed = status.buckets
    assert sound.account == reports[5][0].account
    assert not sound.problem
    assert (harmed.output.newest, harmed.batch) == (5, 4)
    assert harmed.account == reports[4][1].account
    assert path in harmed.problem
    assert not status.is_sound


def test_damage_and_gaps_further_back_are_left_out_of_the_sums() -> None:
    run = _counted(10)
    run.run()
    flip_in(run.disk, Stream.OUTPUT, 6, place=0.9)
    run.disk.storage().delete(segment_path(Stream.OUTPUT, 3))
    status = _status(run)
    recent = status.buckets[0].recent
    assert recent is not None
    assert (recent.first, recent.last, recent.batches) == (0, 9, 8)
    read = [batch for batch in range(10) if batch not in (3, 6)]
    assert recent.tuples == sum(run.recounts[0].tuples(batch, batch) for batch in read)
    assert status.is_sound, "verify is for that"


def test_files_with_strange_names_are_passed_over() -> None:
    run = _counted(3)
    run.run()
    storage = run.disk.storage()
    for path in ("commits/README", "commits/7", "out/00000/notes.txt", "watermark/x.json"):
        storage.publish(path, [b"?"])
    assert _status(run).committed == 1


def test_a_query_that_went_back_is_noticed() -> None:
    run = _counted(3)
    run.run()
    mark_rolled_back(run.disk.storage(), 2, 9, "a run")
    status = _status(run)
    assert status.rolled_back.startswith("batch 2 was committed again by run a run, which began")
    assert not status.is_sound


def test_fields_and_policies_that_are_unknown_here_are_taken_as_they_are() -> None:
    run = _counted(1)
    (report,) = run.step()
    attributes = {
        **report.account.to_attributes(),
        "policy": {"policy": "by the moon", "phase": 3, "objective_us": 77},
        "new": 1,
        "late_rows": "many",
        "recovery": {"why": "x", "skipped": 3},
    }
    _append(run, 1, attributes)
    (bucket,) = _status(run).buckets
    assert bucket.account == report.account
    assert bucket.policy_title == "by the moon (objective 77 us, phase 3)"
    assert bucket.objective_us == 77
    assert bucket.is_within_objective is (report.account.predicted_us <= 77)
    assert bucket.newest is not None
    assert bucket.newest.late_rows == 0
    assert bucket.recovery is not None
    assert (bucket.recovery.why, bucket.recovery.skipped) == ("x", 0)


def test_a_footer_without_an_account_is_a_problem_and_no_crash() -> None:
    run = _counted(1)
    run.step()
    _append(run, 1, {"policy": "odd"})
    (bucket,) = _status(run).buckets
    assert bucket.account is None
    assert "no account" in bucket.problem
    assert (bucket.policy_title, bucket.is_within_objective) == ("unknown", None)


def _append(run: Followed, batch: int, attributes: dict[str, object]) -> None:
    log = run.query.logs().output(0)
    _, checksum = log.read_footer(batch - 1)
    frames = [(FrameKind.RESULTS, log.read(0).table(FrameKind.RESULTS))]
    link = log.read(batch - 1).link if checksum else START_OF_LOG
    log.append(batch, frames, previous=link, fingerprint=Fingerprint(0, 0), attributes=attributes)


def test_no_policy_writes_no_footprints_and_the_picture_says_so() -> None:
    run = _counted(5)
    run.query.policy = NoCheckpoint()
    run.run()
    (bucket,) = _status(run).buckets
    assert bucket.policy_title == "none"
    assert bucket.objective_us is None
    assert bucket.recent is not None
    assert bucket.recent.footprints == 0
    assert bucket.age is None


def test_snapshots_and_files_set_aside_are_counted() -> None:
    run = _counted(4)
    run.run()
    logs = run.query.logs()
    snapshots = StreamLog(logs.storage, Stream.SNAPSHOT, logs.meta.log_id, 0)
    rows = logs.output(0).read(3).table(FrameKind.RESULTS)
    snapshots.append(
        3, [(FrameKind.FOOTPRINTS, rows)], previous=START_OF_LOG, fingerprint=Fingerprint(0, 0)
    )
    logs.input(0).set_aside_after(1)
    (bucket,) = _status(run).buckets
    (path,) = [each for each in run.disk.files() if each.startswith("snap/")]
    assert bucket.snapshots.bytes == len(run.disk.content(path))
    aside = [each for each in run.disk.files() if each.startswith("aside/in/00000/")]
    assert bucket.aside == (2, sum(len(run.disk.content(each)) for each in aside))
