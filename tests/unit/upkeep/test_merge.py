"""A merge by hand packs what no recovery reads, and loses nothing."""

from __future__ import annotations

import random

from tests.support.followed import Followed
from tests.support.harm import flip_in
from tests.support.orders import count_case, random_orders
from trailmark.checkpoint.policy import Continuous
from trailmark.inspection.logs import OperatorFiles
from trailmark.inspection.verify import verify_operator
from trailmark.records import FrameKind, Stream
from trailmark.upkeep import LogMerge, merge_operator


def _run(batches: int = 14) -> Followed:
    rows = random_orders(random.Random(2), batches=batches + 3, rows=20, items=5)
    run = Followed(count_case(rows), Continuous(q=10, u=30), buckets=2)
    run.run(batches)
    return run


def _merge(run: Followed) -> list[LogMerge]:
    return merge_operator(OperatorFiles(run.disk.storage()))


def test_what_no_recovery_reads_is_merged_and_all_results_are_still_there() -> None:
    run = _run()
    logs = run.query.logs()
    before = [
        [segment.table(FrameKind.RESULTS) for segment in logs.output(bucket).read_from()]
        for bucket in range(2)
    ]
    done = _merge(run)
    for bucket, report in enumerate(done):
        output = run.query.logs().output(bucket)
        footer, _ = output.read_footer(13)
        up_to = footer.attributes["keep_output_from"] - 1
        assert report.up_to == up_to > 1
        assert report.batches == up_to + 1
        assert report.packs == (f"{0:020d}-{up_to:020d}.pack",)
        size = sum(entry.size for entry in run.disk.storage().list(f"out/{bucket:05d}"))
        assert 0 < report.bytes < size
        after = [segment.table(FrameKind.RESULTS) for segment in output.read_from()]
        assert after == before[bucket]
    assert verify_operator(run.disk.storage()).is_whole
    run.query.stop()
    run.run(3)


def test_a_second_merge_has_nothing_to_do() -> None:
    run = _run()
    _merge(run)
    files = run.disk.files()
    assert all(not report.packs and not report.problem for report in _merge(run))
    assert run.disk.files() == files


def test_a_merge_stops_at_damage_and_says_so() -> None:
    run = _run()
    path = flip_in(run.disk, Stream.OUTPUT, 3)
    harmed, sound = _merge(run)
    assert path in harmed.problem
    assert harmed.batches == 3
    assert not sound.problem
    assert sound.batches > 3


def test_a_bucket_without_a_readable_newest_footer_is_not_merged() -> None:
    run = _run()
    flip_in(run.disk, Stream.OUTPUT, 13, place=0.9)
    harmed, _ = _merge(run)
    assert harmed.problem
    assert not harmed.packs
