"""Upkeep by hand leaves segments of a later format where they are."""

from __future__ import annotations

import pytest

from tests.support.followed import Followed
from tests.support.harm import segment_path
from tests.support.unknown import NEWS, ended_query, renew_segment
from trailmark.errors import UnknownFormat
from trailmark.inspection.logs import OperatorFiles
from trailmark.records import Stream
from trailmark.upkeep import merge_operator, plan_truncate, trim_operator, truncate_operator

_BATCHES = 14


@pytest.fixture
def run() -> Followed:
    return ended_query(_BATCHES)


@pytest.fixture(params=NEWS)
def news(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _files(run: Followed) -> OperatorFiles:
    return OperatorFiles(run.disk.storage())


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_bucket_whose_newest_batch_is_unknown_is_not_trimmed(
    run: Followed, news: str, dry_run: bool
) -> None:
    renew_segment(run.disk.storage(), segment_path(Stream.OUTPUT, _BATCHES - 1), news)
    before = run.disk.files()
    done = trim_operator(_files(run), _BATCHES, dry_run=dry_run)
    (reason,) = done.left_alone
    assert NEWS[news][1] in reason
    assert (done.files, run.disk.files()) == (0, before)


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize("stream", [Stream.INPUT, Stream.OUTPUT])
def test_a_log_is_left_alone_and_the_other_is_trimmed(
    run: Followed, news: str, stream: Stream, dry_run: bool
) -> None:
    path = segment_path(stream, 2)
    renew_segment(run.disk.storage(), path, news)
    done = trim_operator(_files(run), _BATCHES, dry_run=dry_run)
    (reason,) = done.left_alone
    assert reason.startswith(f"bucket 0 {stream.name.lower()}: ")
    assert NEWS[news][1] in reason
    assert path in run.disk.files()
    assert {log.stream for log in done.logs if log.files} == {
        Stream.OUTPUT if stream is Stream.INPUT else Stream.INPUT
    }


def test_a_merge_stops_before_it_and_says_so(run: Followed, news: str) -> None:
    path = segment_path(Stream.OUTPUT, 4)
    renew_segment(run.disk.storage(), path, news)
    (merged,) = merge_operator(_files(run))
    assert (merged.batches, path in run.disk.files()) == (4, True)
    assert NEWS[news][1] in merged.problem
    renew_segment(run.disk.storage(), segment_path(Stream.OUTPUT, _BATCHES - 1), news)
    (merged,) = merge_operator(_files(run))
    assert (merged.batches, NEWS[news][1] in merged.problem) == (0, True)


@pytest.mark.parametrize("batch", [_BATCHES - 3, _BATCHES - 1])
def test_nothing_is_cut_off_that_is_unknown(run: Followed, news: str, batch: int) -> None:
    renew_segment(run.disk.storage(), segment_path(Stream.OUTPUT, batch), news)
    before = run.disk.files()
    for does in (plan_truncate, truncate_operator):
        with pytest.raises(UnknownFormat, match=NEWS[news][1]):
            does(_files(run), _BATCHES - 4)
    assert run.disk.files() == before
