"""One watermark for all buckets of a batch, and the rows that come too late for it."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

from tests.support.followed import Followed
from tests.support.orders import SECOND, TimedOrder, random_timed_orders, time_case, timed_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import BatchReport, Watermark, Watermarks
from trailmark.engine.tentative import InputsTold
from trailmark.engine.watermark import watermark_path
from trailmark.errors import BatchSkipped, DamagedSegment
from trailmark.log import Storage
from trailmark.operators.protocol import Port
from trailmark.testing.disk import SimulatedDisk


def _at(seconds: int, item: str = "a") -> TimedOrder:
    return item, 1, seconds * SECOND


def _starts(report: BatchReport) -> list[int]:
    return [start.second for start in report.results.column("window_start").to_pylist()]


def _run(batches: list[list[TimedOrder]], *, buckets: int = 2, delay: int = 0) -> Followed:
    return Followed(time_case(batches, delay=delay), Continuous(), buckets=buckets)


def test_times_seen_by_one_bucket_close_windows_in_all_of_them() -> None:
    run = _run([[], [], []])
    rows, none = timed_orders([_at(3)]), timed_orders([])
    far = timed_orders([_at(25)])
    run.query.run(0, [rows, none])
    run.query.run(1, [none, far])
    first, second = run.query.run(2, [none, none])
    assert _starts(first) == [0]
    assert _starts(second) == [], "its own window ends later than any time seen"


def test_a_batch_does_not_close_windows_by_its_own_times() -> None:
    run = _run([[], [], []], buckets=1)
    (report,) = run.query.run(0, [timed_orders([_at(3), _at(500)])])
    assert report.results.num_rows == 0
    (report,) = run.query.run(1, [timed_orders([])])
    assert _starts(report) == [0]


def test_the_delay_is_taken_off() -> None:
    run = _run([[], [], [], []], buckets=1, delay=15 * SECOND)
    for batch, seconds in enumerate((3, 24, 25)):
        (report,) = run.query.run(batch, [timed_orders([_at(seconds)])])
        assert _starts(report) == []
    (report,) = run.query.run(3, [timed_orders([])])
    assert _starts(report) == [0]


def test_a_watermark_never_falls() -> None:
    batches = random_timed_orders(random.Random(1), batches=20, rows=8, items=4)
    run = _run(batches)
    seen = []
    for _ in run.steps():
        logs = run.query.logs()
        batch = run.next_batch - 1
        marks = {
            logs.input(number).read_footer(batch)[0].attributes["watermark"] for number in range(2)
        }
        assert len(marks) == 1, "all buckets have the same"
        (mark,) = marks
        assert logs.watermark(batch).at == mark
        seen.append(mark)
    assert seen[0] is None
    known = [mark for mark in seen if mark is not None]
    assert known == sorted(known)
    assert len(set(known)) > 10


def test_the_first_batch_has_none() -> None:
    logs = _run([[]]).query.logs()
    assert logs.watermark(0) == Watermark(None, None)


def test_batches_without_a_time_leave_the_watermark_where_it_was() -> None:
    run = _run([[], [], [], [], []], buckets=1)
    null: TimedOrder = ("a", 1, None)
    run.query.run(0, [timed_orders([null])])
    assert run.query.logs().watermark(1) == Watermark(None, None)
    run.query.run(1, [timed_orders([_at(12)])])
    run.query.run(2, [timed_orders([null])])
    run.query.run(3, [timed_orders([])])
    assert run.query.logs().watermark(2) == Watermark(12 * SECOND, None)
    assert run.query.logs().watermark(4) == Watermark(12 * SECOND, 12 * SECOND)


def test_a_watermark_is_published_once_and_stays() -> None:
    batches = random_timed_orders(random.Random(2), batches=4, rows=9, items=4)
    run = _run(batches)
    run.run(3)
    path = watermark_path(2)
    before = run.disk.content(path)
    operations = run.disk.operations
    marks = [run.query.logs().watermark(2) for _ in range(3)]
    assert len(set(marks)) == 1
    assert run.disk.operations == operations
    assert run.disk.content(path) == before


def test_whoever_comes_second_takes_the_watermark_of_the_first() -> None:
    """A bucket that has done the batch could otherwise disagree with one that has not."""
    run = _run([[], [], []])
    none = timed_orders([])
    run.query.run(0, [timed_orders([_at(5)]), timed_orders([_at(7)])])
    first, second = run.query.open()
    first.run(1, timed_orders([_at(90)]))
    second.run(1, none)
    logs = run.query.logs()
    assert logs.watermark(1) == Watermark(7 * SECOND, None)
    assert [
        logs.input(number).read_footer(1)[0].attributes["watermark"] for number in range(2)
    ] == [7 * SECOND] * 2


def test_every_changed_or_missing_byte_of_a_watermark_is_noticed_and_its_file_named() -> None:
    run = _run(random_timed_orders(random.Random(3), batches=3, rows=9, items=4))
    run.run(2)
    path = watermark_path(1)
    whole = run.disk.content(path)
    expected = run.query.logs().watermark(1)
    for place in range(len(whole)):
        for harm in ("flipped", "cut off"):
            if harm == "flipped":
                run.disk.flip(path, place, place % 8)
            else:
                run.disk.truncate(path, place)
            with pytest.raises(DamagedSegment, match="watermark does not match") as refused:
                run.query.logs().watermark(1)
            assert refused.value.where == path
            run.disk.overwrite(path, whole)
    assert run.query.logs().watermark(1) == expected


def test_a_damaged_watermark_stops_the_batch_and_is_computed_again_when_deleted() -> None:
    batches = random_timed_orders(random.Random(4), batches=6, rows=9, items=4)
    run = _run(batches)
    run.run(3)
    expected = run.copy().query.logs().watermark(3)
    path = watermark_path(3)
    run.query.logs().watermark(3)
    run.disk.flip(path, 3, 1)
    with pytest.raises(DamagedSegment) as refused:
        run.query.run(3, run.parts(3))
    assert refused.value.where == path
    assert "Delete the file" in refused.value.fix
    run.query.logs().storage.delete(path)
    assert run.query.logs().watermark(3) == expected
    run.run()


def test_a_watermark_can_be_computed_again_though_another_bucket_has_trimmed() -> None:
    run = _run([[], [], [], []])
    none = timed_orders([])
    for batch in range(3):
        run.query.run(batch, [timed_orders([_at(batch)]), none])
    ahead, behind = run.query.open()
    behind.run(3, none)
    behind.trim()
    run.query.logs().storage.delete(watermark_path(3))
    report = ahead.run(3, none)
    assert report.account.watermark == 2 * SECOND


def test_a_bucket_that_has_not_done_the_batch_before_is_named() -> None:
    run = _run([[], [], []])
    first, second = run.query.open()
    none = timed_orders([])
    first.run(0, timed_orders([_at(1)]))
    with pytest.raises(BatchSkipped, match="batch 0 of every bucket") as refused:
        first.run(1, none)
    assert "missing in bucket 1" in refused.value.what
    assert refused.value.where == "in/00001/00000000000000000000.seg"
    assert refused.value.fix
    assert not run.query.logs().input(0).contains(1)
    second.run(0, none)
    assert not first.run(1, none).was_logged


def test_old_watermarks_do_not_pile_up() -> None:
    run = _run([[_at(batch)] for batch in range(150)], buckets=1)
    run.run()
    kept = [path for path in run.disk.files() if path.startswith("watermark/")]
    assert len(kept) <= 129
    assert kept[-1] == watermark_path(149)


# Late rows


@pytest.mark.parametrize("late", ["keep", "drop"])
def test_late_rows_are_counted_and_kept_if_asked(late: str) -> None:
    batches = [[_at(3)], [_at(25)], [_at(4), _at(26), ("b", 1, None)], [_at(5), _at(1)]]
    case = time_case(batches, late=late)  # type: ignore[arg-type]
    run = Followed(case, Continuous())
    reports = [report for (report,) in run.steps()]
    # The window of the first row closes in batch 2, and rows of that batch are still in time.
    assert [report.late_rows for report in reports] == [0, 0, 0, 2]
    assert [report.null_times for report in reports] == [0, 0, 1, 0]
    assert _starts(reports[2]) == [0]
    for report in reports[:3]:
        assert report.late is None
    if late == "drop":
        assert reports[3].late is None
    else:
        assert reports[3].late is not None
        times = [row["time"].second for row in reports[3].late.to_pylist()]
        assert sorted(times) == [1, 5]
    footer, _ = run.query.logs().output(0).read_footer(3)
    assert footer.attributes["late_rows"] == 2


def test_a_row_that_is_late_for_some_of_its_windows_counts_in_the_others() -> None:
    batches = [[_at(12)], [_at(12)], [_at(8)], [_at(40)], []]
    run = Followed(time_case(batches, slide=5 * SECOND, late="keep"), Continuous())
    reports = [report for (report,) in run.steps()]
    # [0, 10) had ended when second 8 came; [5, 15) had not.
    assert reports[2].late_updates == 1
    assert reports[2].late_rows == 0
    assert sum(row["number"] for row in reports[4].results.to_pylist()) == 5


def test_late_rows_of_a_long_run_are_the_oracles() -> None:
    rng = random.Random(5)
    batches = random_timed_orders(rng, batches=25, rows=20, items=6)
    run = Followed(time_case(batches, late="keep"), Continuous(u=60), buckets=3)
    late = 0
    for reports in run.steps():  # each is compared with the oracle on the way
        late += sum(report.late_rows for report in reports)
        if rng.random() < 0.4:
            run.query.stop()
    assert late > 10


# Inputs that know more than their rows say


def _watermarks(storage: Storage, told: list[int | None], ports: Sequence[Port]) -> Watermarks:
    return Watermarks(storage, [], ports, 0, lambda: InputsTold(told))


def test_an_input_that_says_how_far_it_is_is_believed_from_the_first_batch_on() -> None:
    storage = SimulatedDisk().storage()
    port = Port("input", pa.schema([]), "time", 5)
    assert _watermarks(storage, [100], [port]).of(0) == Watermark(100, None)
    # Whoever asks later gets what the first one was told.
    assert _watermarks(storage, [900], [port]).of(0) == Watermark(100, None)


def test_of_several_inputs_the_least_counts_however_it_is_known() -> None:
    ports = [Port("left", pa.schema([]), "time"), Port("right", pa.schema([]), "time")]
    before = Watermark(10, 7, (10, 40))
    assert before.told([None, None], ports) == before
    assert before.told([30, None], ports) == Watermark(30, 7, (30, 40))
    assert before.told([90, 20], ports) == Watermark(40, 7, (90, 40)), "it never falls"
    unknown = Watermark(None, None, (None, None))
    assert unknown.told([30, None], ports) == Watermark(None, None, (30, None))
