"""The source of a union as Spark calls it, where a test on Spark could not choose the moment."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BooleanType, StructField, StructType

import trailmark as tm
from trailmark.errors import DataLoss, OtherQuery
from trailmark.log import LocalStorage, read_meta
from trailmark.log.readers import read_reader
from trailmark.spark.union_source import RowsInOrder, UnionOptions, UnionReader
from trailmark.streams.manifest import manifest_log
from trailmark.streams.own_writer import OwnWriter
from trailmark.streams.union.ahead import Ahead, Edge, Phase
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.decision import NOTHING_YET
from trailmark.streams.union.decisions import newest_decision

_SCHEMA = StructType().add("at", "timestamp").add("item", "long").add("source", "string")
_STREAM = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])


class _Clock:
    now_us = 0.0

    def __call__(self) -> float:
        return self.now_us


def _writer(path: Path) -> OwnWriter:
    return tm.stream_writer(path, _STREAM, name=path.name, time_column="at", delay="0 seconds")


def _add(writer: OwnWriter, *times: int) -> None:
    at = pa.array(times, pa.int64()).cast(_STREAM.field("at").type)
    writer.append(pa.table({"at": at, "item": list(times)}, schema=_STREAM))


@pytest.fixture
def writers(tmp_path: Path) -> list[OwnWriter]:
    found = [_writer(tmp_path / name) for name in ("a", "b")]
    _add(found[0], 10, 20, 30)
    _add(found[1], 15, 25)
    return found


def _reader(
    tmp_path: Path, clock: _Clock | None = None, names: str = "ab", **given: Any
) -> UnionReader:
    paths = {name: str(tmp_path / name) for name in names}
    options = UnionOptions(str(tmp_path / "union"), paths, "at", 10, 0, **given)
    assert UnionOptions.of(options.to_options()) == options
    return UnionReader(options, _SCHEMA, clock or _Clock())


def _rows(reader: UnionReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, str]]:
    sent = copy.copy(reader)  # as it is sent to tasks
    found = []
    for partition in reader.partitions(start, end):
        assert isinstance(partition, RowsInOrder)
        for batch in sent.read(partition):
            assert batch.schema.names == _SCHEMA.names
            found += list(zip(*(batch[n].to_pylist() for n in ("item", "source")), strict=True))
    return found


def test_a_batch_is_a_decision_and_is_repeated_as_it_was(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    expected = [(10, "a"), (15, "b")]
    assert _rows(reader, start, end) == expected
    _add(writers[1], 50)
    # As after a crash: another process, and more is there by now.
    assert _rows(_reader(tmp_path), start, end) == expected
    reader = _reader(tmp_path)
    following = reader.latestOffset(end)
    assert _rows(reader, end, following) == [(20, "a"), (25, "b")]
    assert reader.partitions(following, following) == []


def test_rows_that_are_tentative_are_given_only_where_they_are_marked(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    """A batch that was begun may be repeated by a query that does not answer any more."""
    reader = _reader(tmp_path)
    start = reader.latestOffset(reader.initialOffset())
    ahead = Ahead(30, 1, Phase.UP_FAILURE, ("b",), 0, (Edge(30, 1),))
    end = {**start, "number": 1, "ahead": ahead.to_json()}
    answering = Answering(1_000_000)
    marked = _reader(tmp_path, answering=answering)
    marked._schema = StructType([*_SCHEMA, StructField("tentative", BooleanType())])
    (partition,) = marked.partitions(start, end)
    marks = [batch["tentative"].to_pylist() for batch in marked.read(partition)]
    assert marks == [[True], [True]]
    assert _rows(_reader(tmp_path), start, end) == [], "else they would count as stable ones"


def test_a_union_may_begin_to_go_on_without_idle_streams_and_stop(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    """It is no part of what the union is, and what was released stays so."""
    writers[0].heartbeat("1970-01-01 00:00:00.000090")
    _add(tm.stream_writer(tmp_path / "c", _STREAM, name="c", time_column="at"), 12, 14)
    clock, start = _Clock(), NOTHING_YET.to_json()
    released = []
    for given in ({}, {"idle_after_us": 1_000_000}, {}):
        reader = _reader(tmp_path, clock, "ac", **given)
        end = reader.latestOffset(start)
        clock.now_us += 1_000_000
        end = reader.latestOffset(end)
        rows = _rows(reader, start, end)
        assert _rows(_reader(tmp_path, clock, "ac"), start, end) == rows
        released.append((end["released_us"], rows))
        start = end
    rest = [(10, "a"), (12, "c"), (14, "c"), (20, "a"), (30, "a")]
    assert released == [(10, []), (90, rest), (90, [])]


def test_it_looks_no_more_often_than_is_worth_it(tmp_path: Path, writers: list[OwnWriter]) -> None:
    clock = _Clock()
    reader = _reader(tmp_path, clock)
    end = reader.latestOffset(reader.initialOffset())
    reader.partitions(reader.initialOffset(), end)
    for writer in writers:
        _add(writer, 100)
    clock.now_us += 10_000
    assert reader.latestOffset(end) == end
    clock.now_us += 50_000
    assert reader.latestOffset(end)["released_us"] == 100


def test_a_decision_that_spark_has_lost_is_taken_again(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    """Its checkpoint may lie on a disk that lost power after the batch was planned."""
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    for time in (100, 200):
        for writer in writers:
            _add(writer, time)
        if time == 100:
            reader = _reader(tmp_path)
            following = reader.latestOffset(end)
            reader.partitions(end, following)
    assert _reader(tmp_path).latestOffset(end) == following
    # The batch was not lost, only not done.
    assert len(_reader(tmp_path).partitions(end, following)) == 1


def test_a_query_that_begins_anew_is_refused(tmp_path: Path, writers: list[OwnWriter]) -> None:
    reader = _reader(tmp_path)
    start = position = reader.initialOffset()
    for time in (100, 200):
        following = reader.latestOffset(position)
        reader.partitions(position, following)
        position = following
        for writer in writers:
            _add(writer, time)
        reader = _reader(tmp_path)
    with pytest.raises(OtherQuery, match="Give each query that runs a union a path") as caught:
        _reader(tmp_path).latestOffset(start)
    assert caught.value.where == f"{tmp_path / 'union'}/decisions"


def test_one_union_used_twice_in_a_query_is_refused_before_a_batch_runs(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    """Spark asks both sources first, and then plans the batch."""
    first, second = _reader(tmp_path), _reader(tmp_path)
    start = first.initialOffset()
    end = first.latestOffset(start)
    second.latestOffset(start)
    with pytest.raises(OtherQuery, match="to join it with itself") as caught:
        first.partitions(start, end)
    assert caught.value.where == f"{tmp_path / 'union'}/claims"
    assert newest_decision(LocalStorage(tmp_path / "union")).number == -1


def test_a_first_batch_that_was_trimmed_meanwhile_is_not_repeated_with_fewer_rows(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    _add(writers[0], 40)
    _add(writers[1], 40)
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    reader.partitions(start, end)
    storage = LocalStorage(tmp_path / "a")
    meta = read_meta(storage)
    assert meta is not None
    manifest_log(storage, meta).trim(1)
    with pytest.raises(DataLoss, match="Batch 0 is gone"):
        _reader(tmp_path).partitions(start, end)


def test_a_run_that_ends_sees_nothing_that_comes_later(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    reader = _reader(tmp_path, most_rows=2)
    reader.prepareForTriggerAvailableNow()
    start = position = reader.initialOffset()
    seen = []
    while (following := reader.latestOffset(position)) != position:
        seen += _rows(reader, position, following)
        position = following
        for writer in writers:
            _add(writer, 1_000_000 + position["number"])
    assert seen == [(10, "a"), (15, "b")]
    assert position["released_us"] == 20
    assert start["released_us"] is None


def test_a_named_reader_keeps_what_is_not_released(
    tmp_path: Path, writers: list[OwnWriter]
) -> None:
    reader = _reader(tmp_path, reader="me")
    start = reader.initialOffset()
    end = reader.latestOffset(start)

    def needs(name: str) -> int | None:
        found = read_reader(LocalStorage(tmp_path / name), "me")
        return None if found is None else found.needs

    assert (needs("a"), needs("b")) == (0, 0), "said before anything is read"
    reader.partitions(start, end)
    _add(writers[0], 60)
    _add(writers[1], 70)
    clocked = _reader(tmp_path, reader="me")
    following = clocked.latestOffset(end)
    clocked.partitions(end, following)
    assert following["released_us"] == 60
    assert (needs("a"), needs("b")) == (0, 0), "the batch may be repeated"
    clocked.commit(following)
    assert (needs("a"), needs("b")) == (1, 1)
    assert newest_decision(LocalStorage(tmp_path / "union")).number == 1
