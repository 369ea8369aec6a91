"""Manifests and data files of a later format: nobody reads, writes or trims over them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stored import QUERY, StoredAt, rows_of, stored_at
from tests.support.unknown import NEWS, renew_segment
from trailmark.errors import UnknownFormat
from trailmark.streams.manifest import read_manifest
from trailmark.streams.retention import Retention, left_over_files, trim_before, trim_stream
from trailmark.streams.status import StreamStatusReader
from trailmark.streams.table import read_table
from trailmark.streams.verify import verify_stream
from trailmark.streams.writer import plan_writing
from trailmark.upkeep.merge import merge_up_to
from trailmark.upkeep.streams import trim_by_hand

_BATCHES = 6


@pytest.fixture(params=NEWS)
def news(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stream(tmp_path: Path) -> StoredAt:
    return stored_at(tmp_path, _BATCHES)


@pytest.mark.parametrize("batch", [2, _BATCHES - 1])
@pytest.mark.parametrize(
    "does",
    [
        lambda stream: read_table(stream.path),
        lambda stream: read_table(stream.path, starting_timestamp="1970-01-01 00:00:30"),
        lambda stream: trim_before(stream.storage, stream.files.log, _BATCHES - 1),
        lambda stream: trim_stream(
            stream.storage, stream.files.log, Retention(batches=1), stream.now_us
        ),
        lambda stream: trim_by_hand(stream.files, _BATCHES - 1),
        lambda stream: left_over_files(stream.storage, stream.meta, stream.files.log, 2**62),
        lambda stream: stream.files.log.repair(),
    ],
)
def test_whoever_comes_to_a_manifest_is_refused_and_changes_nothing(
    stream: StoredAt, news: str, does: Callable[[StoredAt], object], batch: int
) -> None:
    renew_segment(stream.storage, stream.manifest(batch), news)
    stream.files.log.time_index()
    before = stream.contents()
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        does(stream)
    assert stream.contents() == before


def test_nobody_writes_behind_a_manifest_that_is_unknown(stream: StoredAt, news: str) -> None:
    renew_segment(stream.storage, stream.manifest(_BATCHES - 1), news)
    before = stream.contents()
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        plan_writing(stream.storage, stream.meta)
    assert stream.contents() == before


def test_a_commit_behind_a_manifest_that_is_unknown_keeps_what_it_may_name(
    stream: StoredAt, news: str
) -> None:
    writer = stream.writer()
    files = stream.task(rows_of(_BATCHES))
    renew_segment(stream.storage, stream.manifest(_BATCHES - 1), news)
    before = stream.contents()
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        writer.commit(files, QUERY, _BATCHES)
    assert stream.contents() == before


def test_manifest_and_data_file_are_found_as_unknown(stream: StoredAt, news: str) -> None:
    data = read_manifest(stream.files.log, 3).files[0].path
    for path in (stream.manifest(1), data):
        renew_segment(stream.storage, path, news)
    found = verify_stream(stream.storage)
    assert [(each.path, each.trouble) for each in found.findings] == [
        (stream.manifest(1), "unknown"),
        (data, "unknown"),
    ]
    for finding in found.findings:
        assert NEWS[news][1] in finding.what
        assert finding.fix.startswith("Use the Trailmark that wrote it, or a newer one.")
    with pytest.raises(UnknownFormat, match=NEWS[news][1]):
        read_table(stream.path, starting_batch=3, ending_batch=3)


def test_a_merge_stops_before_it(stream: StoredAt, news: str) -> None:
    renew_segment(stream.storage, stream.manifest(4), news)
    merged = merge_up_to(stream.files.log, _BATCHES)
    assert (merged.batches, NEWS[news][1] in merged.problem) == (4, True)


@pytest.mark.parametrize("batch", [2, _BATCHES - 1])
def test_status_tells_of_it(stream: StoredAt, news: str, batch: int) -> None:
    renew_segment(stream.storage, stream.manifest(batch), news)
    assert NEWS[news][1] in StreamStatusReader(stream.storage).read().problem
