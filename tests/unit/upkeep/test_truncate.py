"""After a cut the query goes on as if the batches behind it had never been."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.engine import Query
from tests.support.followed import Followed
from tests.support.harm import bring_back, flip_in, segment_path
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from tests.support.policies import random_policy
from trailmark.checkpoint.policy import Continuous, FullSnapshot, NoCheckpoint
from trailmark.engine.commits import (
    RunMarks,
    check_not_rolled_back,
    mark_committed,
    mark_rolled_back,
    newest_mark,
)
from trailmark.errors import BatchGoesBackward, MissingInput, MissingSegment, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.plan import plan_bucket
from trailmark.inspection.verify import verify_operator
from trailmark.log import LocalStorage
from trailmark.records import Foundation, Stream
from trailmark.testing.disk import Crashed
from trailmark.upkeep import TruncateReport, merge_operator, plan_truncate, truncate_operator


def _files(run: Followed) -> OperatorFiles:
    return OperatorFiles(run.disk.storage())


def _truncate(run: Followed, to_batch: int) -> TruncateReport:
    files = _files(run)
    plan_truncate(files, to_batch)
    return truncate_operator(files, to_batch)


def _followed(seed: int, *, buckets: int = 2, cache: Path | None = None) -> Followed:
    rng = random.Random(seed)
    if seed % 2:
        case = time_case(random_timed_orders(rng, batches=14, rows=25, items=6), late="keep")
    else:
        case = count_case(random_orders(rng, batches=14, rows=25, items=6))
    return Followed(case, random_policy(rng), buckets=buckets, cache_root=cache)


def _resume(before: Followed, cut: Followed) -> Followed:
    """The query as it was then, on the disk as it is now: the judge knows nothing of what was cut
    off."""
    cut.query.stop()
    before.disk = cut.disk
    before.query = Query(
        before.case,
        cut.disk,
        cut.query.policy,
        cut.query.buckets,
        cache_root=cut.query.cache_root,
    )
    return before


def _with_other_rows(run: Followed, from_batch: int, seed: int) -> None:
    """Other batches come this time."""
    batches = list(run.case.batches)
    rest = batches[from_batch:]
    random.Random(seed).shuffle(rest)
    object.__setattr__(run.case, "batches", (*batches[:from_batch], *rest))


@pytest.mark.parametrize("is_cached", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_a_query_goes_on_from_the_cut_with_other_rows(
    seed: int, is_cached: bool, tmp_path: Path
) -> None:
    run = _followed(seed, cache=tmp_path if is_cached else None)
    run.run(5)
    before = run.copy()
    run.run(4)
    report = _truncate(run, 4)
    assert not report.problems
    resumed = _resume(before, run)
    _with_other_rows(resumed, 5, seed)
    resumed.run()
    if isinstance(run.query.policy, Continuous | NoCheckpoint):
        resumed.check_accounts()
    assert verify_operator(resumed.disk.storage()).is_whole


def test_nothing_is_lost_only_moved() -> None:
    run = _followed(1)
    run.run(9)
    contents = {path: run.disk.content(path) for path in run.disk.files()}
    report = _truncate(run, 6)
    moved = dict(report.moved)
    for path, content in contents.items():
        assert run.disk.content(moved.get(path, path)) == content
    logged = [path for path in moved if path.startswith(("in/", "out/"))]
    assert len(logged) == 2 * 2 * 2
    assert any(path.startswith("watermark/") for path in moved)


def test_packs_that_reach_over_the_cut_are_taken_apart() -> None:
    run = _followed(2)
    run.query.policy = Continuous(q=5, u=10)
    run.run(6)
    before = run.copy()
    run.run(6)
    assert any(each.packs for each in merge_operator(_files(run)))
    logs = run.query.logs()
    logs.input(0).merge(11)
    packs = [path for path in run.disk.files() if path.endswith(".pack")]
    plan = plan_truncate(_files(run), 5)
    assert sum(cut.apart for cut in plan.logs) > 0
    report = _truncate(run, 5)
    assert packs
    assert not report.problems
    resumed = _resume(before, run)
    resumed.run()


@pytest.mark.parametrize("seed", [2, 3])
def test_snapshots_behind_the_cut_go_too(seed: int) -> None:
    """Else the snapshot of a batch that is done again would be taken for there already."""
    run = _followed(seed)
    run.query.policy = FullSnapshot(every=2, asynchronous=True)
    run.run(6)
    before = run.copy()
    run.run(5)
    run.query.stop()
    held = [run.query.logs().snapshots(bucket).batches() for bucket in range(2)]
    assert all(batches[-1] > 7 for batches in held)
    report = _truncate(run, 5)
    assert not report.problems
    for bucket in range(2):
        assert run.query.logs().snapshots(bucket).newest() <= 5
    resumed = _resume(before, run)
    _with_other_rows(resumed, 6, seed)
    for _ in resumed.steps():
        resumed.query.stop()


def test_a_second_cut_at_the_same_place_keeps_the_first_one_aside() -> None:
    run = _followed(2, buckets=1)
    run.run(8)
    before = run.copy()
    first = dict(_truncate(run, 7).moved)
    assert first == {}
    run.run(2)
    first = dict(_truncate(run, 7).moved)
    resumed = _resume(before, run)
    resumed.run(2)
    second = dict(_truncate(resumed, 7).moved)
    assert first.keys() == second.keys()
    assert not set(first.values()) & set(second.values())


def test_commit_marks_behind_the_cut_go_so_that_batches_can_be_committed_again() -> None:
    run = _followed(1)
    storage = run.disk.storage()
    for batch in range(9):
        run.step()
        mark_committed(storage, batch, "a run")
    mark_rolled_back(storage, 7, 9, "a run")
    _truncate(run, 4)
    assert newest_mark(storage) == 4
    assert RunMarks(storage, "another run").commit(5)
    check_not_rolled_back(storage)


def test_a_note_that_an_earlier_batch_was_committed_again_stays() -> None:
    run = _followed(1)
    run.run(9)
    mark_rolled_back(run.disk.storage(), 3, 9, "a run")
    _truncate(run, 6)
    with pytest.raises(BatchGoesBackward):
        check_not_rolled_back(run.disk.storage())


@pytest.mark.parametrize("power_fails", [False, True])
def test_a_cut_that_was_interrupted_anywhere_is_finished_by_cutting_again(
    power_fails: bool,
) -> None:
    run = _followed(1)
    run.run(6)
    before = run.copy()
    run.run(2)
    for batch in range(8):
        mark_committed(run.disk.storage(), batch, "a run")
    run.query.logs().input(0).merge(7)
    run.query.stop()
    whole = run.copy()
    start = whole.disk.operations
    _truncate(whole, 5)
    steps = whole.disk.operations - start
    assert steps > 40
    for step in range(0, steps, 7):
        twin = run.copy()
        twin.disk.stop_after(step)
        with pytest.raises(Crashed):
            _truncate(twin, 5)
        if power_fails:
            twin.disk.crash(random.Random(step))
        else:
            twin.disk.kill()
        assert not _truncate(twin, 5).problems
        assert newest_mark(twin.disk.storage()) == 5
        resumed = _resume(before.copy(), twin)
        resumed.run(1)


def test_nothing_behind_the_batch_is_an_empty_plan() -> None:
    run = _followed(1)
    run.run(4)
    plan = plan_truncate(_files(run), 3)
    assert plan.is_empty
    assert _truncate(run, 3).moved == ()


def test_planning_changes_nothing_and_counts_what_will_go() -> None:
    run = _followed(1)
    run.run(9)
    operations = run.disk.operations
    plan = plan_truncate(_files(run), 5)
    assert run.disk.operations == operations
    assert plan.newest == 8
    assert sum(cut.files for cut in plan.logs) == 2 * 2 * 3
    sizes = {path: len(run.disk.content(path)) for path in run.disk.files()}
    moved = [path for path, _ in _truncate(run, 5).moved if path.startswith(("in/", "out/"))]
    assert sum(cut.bytes for cut in plan.logs) == sum(sizes[path] for path in moved)


@pytest.mark.parametrize("to_batch", [9, 100])
def test_a_batch_that_a_bucket_does_not_have_is_refused(to_batch: int) -> None:
    run = _followed(1)
    run.run(9)
    run.query.open()[0].run(9, run.parts(9)[0])
    with pytest.raises(SettingError, match=r"is not in the output log of bucket"):
        plan_truncate(_files(run), to_batch)


def test_a_batch_whose_input_is_gone_is_refused() -> None:
    run = _followed(2, buckets=1)
    run.run(9)
    run.query.logs().input(0).trim(6)
    with pytest.raises((MissingSegment, MissingInput)) as refused:
        plan_truncate(_files(run), 3)
    assert refused.value.fix


def test_a_batch_whose_state_cannot_be_rebuilt_any_more_is_refused() -> None:
    """The batch itself is there, and what a recovery to its end would replay is not."""
    run = Followed(
        count_case(random_orders(random.Random(3), batches=12, rows=20, items=8)), Continuous()
    )
    run.run(9)
    footer, _ = run.query.logs().output(0).read_footer(6)
    needs = footer.attributes["needs"]
    assert needs < 6
    run.query.logs().input(0).trim(needs + 1)
    with pytest.raises(MissingInput, match="has to read"):
        plan_truncate(_files(run), 6)


def _run_with_snapshots(run: Followed, batches: int) -> None:
    for _ in range(batches):
        run.step()
        run.query.open()[0]._snapshots.collect()


def test_a_snapshot_that_was_trimmed_and_came_back_is_not_counted_on_and_does_not_stay() -> None:
    """The cut goes to before the mark of the snapshots: what is left over there is deleted, and
    new ones are written."""
    case = count_case(random_orders(random.Random(3), batches=20, rows=30, items=25), size=9)
    run = Followed(case, FullSnapshot(2, asynchronous=True))
    _run_with_snapshots(run, 8)
    before = run.copy()
    _run_with_snapshots(run, 6)
    plan = plan_bucket(_files(run), 0, 7)
    assert plan.foundation is Foundation.SNAPSHOT
    earlier = run.disk.copy()
    assert len(run.query.logs().snapshots(0).trim(13).deleted) > 1
    bring_back(run.disk, earlier, [segment_path(Stream.SNAPSHOT, plan.base)])
    assert plan.base in [skipped.batch for skipped in plan_bucket(_files(run), 0, 7).skipped]
    run.query.stop()
    _truncate(run, 7)
    assert run.query.logs().snapshots(0).batches() == []
    resumed = _resume(before, run)
    _run_with_snapshots(resumed, 4)
    assert resumed.query.logs().snapshots(0).oldest() in range(8, 12)


def test_a_torn_newest_batch_is_cut_off_and_done_again() -> None:
    run = _followed(2, buckets=1)
    run.run(7)
    before = run.copy()
    run.run(1)
    flip_in(run.disk, Stream.OUTPUT, 7)
    _truncate(run, 6)
    resumed = _resume(before, run)
    resumed.run()


def test_real_files_are_cut_the_same_way(tmp_path: Path) -> None:
    run = _followed(4, buckets=1)
    run.run(6)
    storage = LocalStorage(tmp_path)
    for path in run.disk.files():
        storage.publish(path, [run.disk.content(path)])
    files = OperatorFiles(storage)
    report = truncate_operator(files, 3)
    assert {source for source, _ in report.moved} == {
        source for source, _ in truncate_operator(_files(run), 3).moved
    }
    assert all((tmp_path / target).is_file() for _, target in report.moved)
