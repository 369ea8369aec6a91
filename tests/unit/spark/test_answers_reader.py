"""Options for tentative results as Spark gives them, and offsets of a change feed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.answered import SOME_STEPS, Answered
from trailmark.errors import DataLoss, SettingError
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import LocalStorage
from trailmark.log.readers import needed_from
from trailmark.records import Stream
from trailmark.spark.options import ReadOptions
from trailmark.spark.source import ChunksOfStream, TrailmarkSource, TrailmarkStreamReader
from trailmark.streams.answers import Answers

_PLACE = {"path": "/data/orders"}
_FEED = {"readchangefeed": "true"}


@pytest.fixture
def logs(tmp_path: Path) -> Answered:
    return Answered(LocalStorage(tmp_path), SOME_STEPS).run()


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, None),
        ({"answers": "stable"}, Answers.STABLE),
        ({"answers": "All"}, Answers.ALL),
        ({"answers": "current"}, Answers.CURRENT),
        ({"readchangefeed": "True"}, Answers.CHANGES),
        ({"readchangefeed": "false", "answers": "all"}, Answers.ALL),
    ],
)
def test_options_say_which_answers_are_read(given: dict[str, str], asked: Answers | None) -> None:
    assert ReadOptions.parse({**_PLACE, **given}).answers is asked


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"answers": "tentative"}, "'tentative' are no answers"),
        ({"answers": "all", "records": "all"}, "about results, not about records 'all'"),
        ({**_FEED, "records": "input"}, "about results, not about records 'input'"),
        ({**_FEED, "answers": "current"}, "A change feed has all results"),
        ({"readchangefeed": "yes"}, "'yes' is unknown"),
    ],
)
def test_answers_that_do_not_go_together_are_refused(given: dict[str, str], what: str) -> None:
    with pytest.raises(SettingError, match=what):
        ReadOptions.parse({**_PLACE, **given})


def test_a_stream_of_what_stands_is_refused_with_the_change_feed_to_follow() -> None:
    options = ReadOptions.parse({**_PLACE, "answers": "current"})
    with pytest.raises(SettingError, match="cannot take back") as refused:
        options.for_stream()
    assert "readChangeFeed" in refused.value.fix
    for given in ({"answers": "all"}, _FEED):
        ReadOptions.parse({**_PLACE, **given}).for_stream()


def _reader(path: Path, **options: str) -> TrailmarkStreamReader:
    source = TrailmarkSource({"path": str(path), **_FEED, **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, TrailmarkStreamReader)
    return reader


def _rows(reader: TrailmarkStreamReader, start: dict[str, Any], end: dict[str, Any]) -> pa.Table:
    parts = [
        rows
        for each in reader.partitions(start, end)
        if isinstance(each, ChunksOfStream)
        for rows in reader.read(each)
    ]
    return pa.Table.from_batches(parts).select(["_commit_version", "_change_type"])


def _deletes(table: pa.Table) -> list[int]:
    return [row["_commit_version"] for row in table.to_pylist() if row["_change_type"] == "delete"]


def test_a_feed_that_begins_anywhere_deletes_nothing_that_came_before(
    logs: Answered, tmp_path: Path
) -> None:
    files = OperatorFiles(logs.storage)
    for bucket in files.buckets:
        files.log(Stream.OUTPUT, bucket).trim(3)
    first = _reader(tmp_path)
    start = first.initialOffset()
    assert (start["batch"], start["since"]) == (3, 3)
    end = first.latestOffset(start)
    assert (end["batch"], end["since"]) == (7, 3)
    assert _deletes(_rows(first, start, end)) == [4]
    assert first.latestOffset(end) == end, "Spark sees no change"
    assert "since" not in _reader(tmp_path, startingbatch="4").initialOffset()
    latest = _reader(tmp_path, startingoffsets="latest").initialOffset()
    assert (latest["batch"], latest["since"]) == (7, 7)
    assert "since" not in _reader(tmp_path, readchangefeed="false").initialOffset()


def test_a_feed_that_is_resumed_where_too_much_is_gone_fails_unless_told_to_go_on(
    logs: Answered, tmp_path: Path
) -> None:
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    files = OperatorFiles(logs.storage)
    for bucket in files.buckets:
        files.log(Stream.OUTPUT, bucket).trim(3)
    start, end = {**start, "batch": 4}, {**start, "batch": 7}
    with pytest.raises(DataLoss, match="batches 2 to 2 are gone, which batch 4 replaces") as lost:
        _rows(reader, start, end)
    assert "retain_batches" in lost.value.fix
    assert _deletes(_rows(_reader(tmp_path, failondataloss="false"), start, end)) == [4]
    with pytest.raises(DataLoss, match="Batches 0 to 2 are gone"):
        _rows(reader, {**start, "batch": 0}, end)


def test_a_named_reader_of_a_feed_keeps_what_it_has_still_to_delete(
    logs: Answered, tmp_path: Path
) -> None:
    reader = _reader(tmp_path, reader="table")
    offset = reader.initialOffset()
    assert needed_from(logs.storage, Stream.OUTPUT) == 0
    for batch, needs in ((2, 1), (4, 2), (5, 4), (7, 5)):
        reader.commit({**offset, "batch": batch})
        assert needed_from(logs.storage, Stream.OUTPUT) == needs


def test_limits_of_a_trigger_count_deletes(logs: Answered, tmp_path: Path) -> None:
    rows = len(logs.changes(3)) + len(logs.changes(4))
    for most, end in ((rows, 5), (rows - 1, 4)):
        reader = _reader(tmp_path, startingbatch="3", maxrowspertrigger=str(most))
        start = reader.initialOffset()
        assert reader.latestOffset(start, reader.getDefaultReadLimit())["batch"] == end
