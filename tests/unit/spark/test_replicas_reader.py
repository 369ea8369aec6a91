"""The source that follows replicas, without a query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import StructType

from tests.support.failing_replicas import ready_replica
from tests.support.replicas_of_seconds import replica_of_seconds, write_down
from trailmark.errors import SettingError
from trailmark.spark.replicas_source import ReplicasReader, ReplicasStreamReader
from trailmark.spark.source import TrailmarkSource
from trailmark.streams.table import read_table


def _reader(*paths: Path, **options: str) -> ReplicasStreamReader:
    source = TrailmarkSource({"replicas": ",".join(map(str, paths)), **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ReplicasStreamReader)
    return reader


def _rows(reader: ReplicasStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    planned = reader.partitions(start, end)
    return sum(rows.num_rows for part in planned for rows in reader.read(part))


def _told(
    reader: ReplicasStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, bool, int | None]]:
    """What happened to each row, whether it is tentative, and what it has of the values."""
    start, end = (json.loads(json.dumps(each)) for each in (start, end))
    return [
        (row.get("_change_type", "insert"), row["tentative"], row["n"])
        for part in reader.partitions(start, end)
        for rows in reader.read(part)
        for row in rows.to_pylist()
    ]


def _results(offset: dict[str, Any]) -> int:
    return sum(rows for rows, _ in offset["results"])


def test_what_is_available_now_goes_by_those_that_are_followed(tmp_path: Path) -> None:
    """One that has given others may have more in one bucket, and less in another."""
    write_down(replica_of_seconds(0, 8, keys=range(6), buckets=2), tmp_path / "a")
    follower = _reader(tmp_path / "a")
    begin = follower.initialOffset()
    start = follower.latestOffset(begin)
    assert _rows(follower, begin, start) == _results(start) > 0
    other, further = tmp_path / "other", tmp_path / "further"
    write_down(replica_of_seconds(0, 20, seed=1, keys=range(6), buckets=2), further)
    write_down(replica_of_seconds(0, 200, keys=[0], buckets=2), other)
    reader = _reader(further, other)
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(start)
    assert _rows(reader, start, end) == _results(end) - _results(start) > 0
    assert reader.latestOffset(end) == end


#: What stands up to second 10; then answers up to 13 and 16, of which the first are corrected.
_FAILS = [(10, 10, 10, None), (10, 10, 13, 1), (10, 13, 16, 1), (13, 16, 18, 2)]


def test_a_feed_of_replicas_has_an_undo_where_something_is_void(tmp_path: Path) -> None:
    """It comes first, and names no row: whose it was may be gone."""
    for batches, name in ((2, "a"), (4, "b")):
        write_down(ready_replica(_FAILS, batches)[0], tmp_path / name)
    reader = _reader(tmp_path / "a", readChangeFeed="true")
    begin = reader.initialOffset()
    start = reader.latestOffset(begin)
    first = _told(reader, begin, start)
    assert ("insert", True, 1) in first
    assert first.count(("insert", False, 1)) == _results(start)
    both = _reader(tmp_path / "gone", tmp_path / "b", readChangeFeed="true")
    end = both.latestOffset(start)
    undo, *rows = _told(both, start, end)
    assert undo == ("undo", True, None)
    assert rows.count(("insert", False, 1)) == _results(end) - _results(start)
    assert ("insert", True, 1) in rows
    assert both.latestOffset(end) == end


def test_all_answers_of_replicas_are_what_stands_and_what_is_tentative(tmp_path: Path) -> None:
    replica, _ = ready_replica(_FAILS, 3)
    write_down(replica, tmp_path / "a")
    reader = _reader(tmp_path / "a", answers="all")
    begin = reader.initialOffset()
    end = reader.latestOffset(begin)
    found = _told(reader, begin, end)
    tentative = replica.record[1].tentative + replica.record[2].tentative
    assert sum(is_tentative for _, is_tentative, _ in found) == tentative.total() > 0
    assert len(found) == tentative.total() + _results(end)


def test_an_offset_without_a_suffix_is_gone_on_with(tmp_path: Path) -> None:
    """As readers of stable results write it, and all did in 0.2.0."""
    replica, _ = ready_replica(_FAILS, 3)
    write_down(replica, tmp_path / "a")
    stable = _reader(tmp_path / "a", maxRowsPerTrigger="1")
    begin = stable.initialOffset()
    start = stable.latestOffset(begin)
    assert sorted(start) == ["replica", "results"]
    reader = _reader(tmp_path / "a", answers="all")
    end = reader.latestOffset(start)
    assert sorted(end) == ["replica", "results", "suffix"]
    found = _told(reader, start, end)
    assert sum(not is_tentative for _, is_tentative, _ in found) == _results(end) - _results(start)
    assert _rows(stable, begin, start) == _results(start)
    assert stable.latestOffset(end) == end, "and the other way round"


def test_decisions_are_counted_on_behind_a_while_without_tentative_results(tmp_path: Path) -> None:
    """Else their numbers would be those of rows that somebody has."""
    write_down(ready_replica(_FAILS, 2)[0], tmp_path / "a")
    write_down(ready_replica(_FAILS, 4, seed=1)[0], tmp_path / "b")
    feed = _reader(tmp_path / "a", readChangeFeed="true")
    start = feed.latestOffset(feed.initialOffset())
    between = _reader(tmp_path / "b").latestOffset(start)
    assert _results(between) > _results(start)
    feed = _reader(tmp_path / "b", readChangeFeed="true")
    end = feed.latestOffset(between)
    assert end["suffix"]["told"]["number"] == start["suffix"]["told"]["number"] + 1
    undo, *rows = _told(feed, between, end)
    assert undo == ("undo", True, None)
    assert {is_tentative for _, is_tentative, _ in rows} == {True}


def test_the_mark_alone_can_be_read(tmp_path: Path) -> None:
    write_down(ready_replica(_FAILS, 3)[0], tmp_path / "a")
    source = TrailmarkSource({"replicas": str(tmp_path / "a"), "answers": "current"})
    mark = StructType([field for field in source.schema() if field.name == "tentative"])
    reader = source.reader(mark)
    assert isinstance(reader, ReplicasReader)
    found = [
        is_tentative
        for part in reader.partitions()
        for rows in reader.read(part)
        for is_tentative in rows["tentative"].to_pylist()
    ]
    table = read_table([tmp_path / "a"], answers="current")
    assert sorted(found) == sorted(table["tentative"].to_pylist())
    assert set(found) == {True, False}


def test_what_a_stream_of_replicas_or_a_table_cannot_say_is_refused(tmp_path: Path) -> None:
    write_down(ready_replica(_FAILS, 3)[0], tmp_path / "a")
    source = TrailmarkSource({"replicas": str(tmp_path / "a"), "answers": "current"})
    with pytest.raises(SettingError, match="cannot take back"):
        source.streamReader(source.schema())
    for given in ({"answers": "all"}, {"readchangefeed": "true"}):
        source = TrailmarkSource({"replicas": str(tmp_path / "a"), **given})
        with pytest.raises(SettingError, match="is not kept"):
            source.reader(source.schema())
