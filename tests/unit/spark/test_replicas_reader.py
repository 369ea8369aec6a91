"""The source that follows replicas, without a query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.replicas_of_seconds import replica_of_seconds, write_down
from trailmark.spark.replicas_source import ReplicasStreamReader
from trailmark.spark.source import TrailmarkSource


def _reader(*paths: Path) -> ReplicasStreamReader:
    source = TrailmarkSource({"replicas": ",".join(map(str, paths))})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, ReplicasStreamReader)
    return reader


def _rows(reader: ReplicasStreamReader, start: dict[str, Any], end: dict[str, Any]) -> int:
    planned = reader.partitions(start, end)
    return sum(rows.num_rows for part in planned for rows in reader.read(part))


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
