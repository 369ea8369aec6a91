"""Whatever is wrong with the files of an operator is found, named, and told what to do about."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support.followed import Followed
from tests.support.harm import PLACES, bring_back, flip_in, segment_path
from tests.support.meddling import Meddled
from tests.support.orders import count_case, random_orders, random_timed_orders, time_case
from trailmark.checkpoint.policy import Continuous, FullSnapshot
from trailmark.errors import UnknownFormat
from trailmark.inspection.verify import Finding, Verification, verify_operator
from trailmark.records import Stream


def _timed(batches: int = 8) -> Followed:
    rows = random_timed_orders(random.Random(5), batches=batches, rows=20, items=5)
    run = Followed(time_case(rows), Continuous(q=30, u=50), buckets=2)
    run.run()
    return run


def _counted(batches: int = 30) -> Followed:
    rows = random_orders(random.Random(2), batches=batches, rows=20, items=5)
    run = Followed(count_case(rows), Continuous(q=10, u=30))
    run.run()
    return run


def _verify(run: Followed) -> Verification:
    return verify_operator(run.disk.storage())


def _only(found: Verification) -> Finding:
    (finding,) = found.findings
    return finding


def test_sound_logs_are_whole_and_nothing_is_changed() -> None:
    run = _timed()
    before = run.disk.operations
    found = _verify(run)
    assert found.is_whole
    assert found.batches == 2 * 2 * 8
    logged = [path for path in run.disk.files() if path.startswith(("in/", "out/"))]
    assert found.bytes == sum(len(run.disk.content(path)) for path in logged)
    assert run.disk.operations == before


@pytest.mark.parametrize("stream", [Stream.INPUT, Stream.OUTPUT])
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_flipped_bit_anywhere_is_found_by_file_and_batch(stream: Stream, place: float) -> None:
    run = _timed()
    path = flip_in(run.disk, stream, 5, place, bucket=1)
    finding = _only(_verify(run))
    assert (finding.path, finding.trouble) == (path, "damaged")
    assert (finding.stream, finding.bucket, finding.batch) == (stream.name.lower(), 1, 5)
    assert path in finding.what
    assert finding.fix


def test_a_file_that_is_gone_is_missing() -> None:
    run = _timed()
    run.disk.storage().delete(segment_path(Stream.OUTPUT, 4))
    finding = _only(_verify(run))
    assert (finding.trouble, finding.batch, finding.bucket) == ("missing", 4, 0)


def test_files_that_came_back_after_a_trim_are_not_looked_at() -> None:
    run = _counted()
    earlier = run.disk.copy()
    _trim(run)
    bring_back(run.disk, earlier, [segment_path(Stream.OUTPUT, batch) for batch in (3, 7, 8)])
    bring_back(run.disk, earlier, [segment_path(Stream.INPUT, 20)])
    run.disk.flip(segment_path(Stream.OUTPUT, 7), 100, 1)
    assert _verify(run).is_whole


def test_damaged_packs_are_found_batch_by_batch() -> None:
    run = _counted()
    assert run.query.logs().output(0).merge(9).packs
    (pack,) = [path for path in run.disk.files() if path.endswith(".pack")]
    run.disk.flip(pack, len(run.disk.content(pack)) // 2, 1)
    finding = _only(_verify(run))
    assert finding.path == pack
    assert finding.batch is not None
    assert 0 <= finding.batch <= 9


def test_a_damaged_watermark_is_found_and_may_be_deleted() -> None:
    run = _timed()
    path = next(path for path in run.disk.files() if path.startswith("watermark/"))
    run.disk.flip(path, 3, 1)
    finding = _only(_verify(run))
    assert (finding.path, finding.batch) == (path, None)
    assert "Delete the file" in finding.fix
    run.disk.storage().delete(path)
    assert _verify(run).is_whole


def test_a_damaged_description_is_a_finding_and_a_missing_one_is_refused() -> None:
    run = _timed()
    run.disk.flip("meta.json", 40, 1)
    finding = _only(_verify(run))
    assert (finding.path, finding.trouble) == ("meta.json", "damaged")
    assert "backup" in finding.fix
    run.disk.storage().delete("meta.json")
    with pytest.raises(UnknownFormat):
        _verify(run)


def test_segments_of_another_log_are_foreign() -> None:
    run, other = _timed(), _timed()
    path = segment_path(Stream.OUTPUT, 7)
    run.disk.overwrite(path, other.disk.content(path))
    finding = _only(_verify(run))
    assert (finding.path, finding.trouble) == (path, "foreign")
    assert "move the file out" in finding.fix


def test_snapshots_link_to_nothing_and_are_whole_all_the_same() -> None:
    rows = random_orders(random.Random(2), batches=12, rows=20, items=5)
    run = Followed(count_case(rows), FullSnapshot(every=3, asynchronous=True))
    run.run()
    run.query.stop()
    assert sum(path.startswith("snap/") for path in run.disk.files()) > 1
    assert _verify(run).is_whole
    path = next(path for path in run.disk.files() if path.startswith("snap/"))
    run.disk.flip(path, 60, 1)
    finding = _only(_verify(run))
    assert (finding.stream, finding.path) == ("snapshot", path)


@pytest.mark.parametrize(
    ("stream", "batch", "advice"),
    [
        (Stream.OUTPUT, 29, "truncate PATH --to-batch 28"),
        (Stream.OUTPUT, 28, "A recovery goes around it by replaying more input"),
        (Stream.OUTPUT, 2, "trim PATH --before-batch 3"),
        (Stream.INPUT, 29, "A recovery needs it"),
        (Stream.INPUT, 25, "only if an output segment is damaged, too"),
        (Stream.INPUT, 20, "No recovery needs it any more"),
    ],
)
def test_what_to_do_depends_on_whether_a_recovery_needs_the_batch(
    stream: Stream, batch: int, advice: str
) -> None:
    run = _counted()
    footer, _ = run.query.logs().output(0).read_footer(29)
    assert (footer.attributes["keep_from"], footer.attributes["needs"]) == (24, 26)
    run.disk.flip(segment_path(stream, batch), 70, 2)
    assert advice in _only(_verify(run)).fix


def test_what_verify_calls_needed_is_what_a_recovery_asks_for() -> None:
    run = _counted()
    run.query.stop()
    footer, _ = run.query.logs().output(0).read_footer(29)
    oldest = run.query.logs().input(0).oldest()
    for batch in range(oldest, 30):
        twin = run.copy()
        twin.disk.flip(segment_path(Stream.INPUT, batch), 70, 2)
        is_needed = "A recovery needs it." in _only(_verify(twin)).fix
        assert is_needed == (batch >= footer.attributes["needs"])


# While the query goes on


def _merge(run: Followed) -> None:
    run.query.logs().output(0).merge(20)


def _trim(run: Followed) -> None:
    run.query.logs().output(0).trim(15)
    run.query.logs().input(0).trim(22)


@pytest.mark.parametrize("meddle", [_merge, _trim])
def test_what_is_merged_or_trimmed_meanwhile_is_not_missing(
    meddle: Callable[[Followed], None],
) -> None:
    run = _counted()
    counting = Meddled(run.disk, -1, lambda: None)
    verify_operator(counting)
    for look in range(0, counting.looks, 3):
        twin = run.copy()
        found = verify_operator(Meddled(twin.disk, look, lambda twin=twin: meddle(twin)))  # type: ignore[misc]
        assert found.is_whole, found.findings


def test_progress_tells_every_log_and_every_byte() -> None:
    run = _timed()
    logs: list[tuple[str, int, int]] = []
    read: list[int] = []
    found = verify_operator(
        run.disk.storage(), on_log=lambda *each: logs.append(each), on_read=read.append
    )
    assert [number for _, number, _ in logs] == list(range(1, found.logs + 1))
    assert {count for *_, count in logs} == {found.logs}
    assert {"in/00000", "in/00001", "out/00000", "out/00001"} <= {name for name, *_ in logs}
    assert sum(read) >= found.bytes
