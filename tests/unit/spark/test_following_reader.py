"""The source of a query that reads all answers of an operator under a name, as Spark calls it:
where it goes on after whatever has happened, and whom it refuses."""

from __future__ import annotations

import copy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.answered import SOME_STEPS, Answered, Row
from trailmark.engine.tentative import Tentative
from trailmark.errors import DataLoss, OtherQuery
from trailmark.log import LocalStorage
from trailmark.log.readers import forget, read_reader
from trailmark.spark.following import FollowingReader
from trailmark.spark.options import ReadOptions
from trailmark.spark.schemas import spark_schema
from trailmark.spark.source import ChunksOfStream
from trailmark.streams.answers import Answers
from trailmark.streams.following import Followed, Part, following_path, newest_followed, upstream_of
from trailmark.streams.view import open_view

Offset = dict[str, Any]


@pytest.fixture
def logs(tmp_path: Path) -> Answered:
    return Answered(LocalStorage(tmp_path), SOME_STEPS).run(3)


def _reader(path: Path, **given: str) -> FollowingReader:
    asked = {"path": str(path), "answers": "all", "reader": "next", **given}
    schema = spark_schema(open_view(LocalStorage(path), None, Answers.ALL))
    return FollowingReader(ReadOptions.parse(asked).for_stream(), schema)


def _read(reader: FollowingReader, start: Offset, end: Offset) -> list[tuple[Row, bool]]:
    sent = copy.copy(reader)  # as it is sent to tasks
    found = []
    for partition in reader.partitions(start, end):
        assert isinstance(partition, ChunksOfStream)
        for batch in sent.read(partition):
            for row in batch.to_pylist():
                is_tentative = row.pop("tentative")
                found.append((tuple(row.values()), is_tentative))
    return found


def _newest(path: Path) -> Followed:
    return newest_followed(LocalStorage(following_path(str(path), "next")))


def test_what_is_void_is_left_out_and_what_stands_of_a_part_comes_again(
    tmp_path: Path, logs: Answered
) -> None:
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    first = reader.latestOffset(start)
    assert Counter(_read(reader, start, first)) == logs.current(2)
    assert _newest(tmp_path).parts == (Part(0, 1),)
    assert reader.latestOffset(first) == first
    logs.run(1)  # after which those of batch 1 are void
    second = reader.latestOffset(first)
    tentative = [(row, True) for n in (2, 3) for b in range(2) for row in logs.tentative(n, b)]
    stable = [(row, False) for b in range(2) for row in logs.results(3, b)]
    found = _read(reader, first, second)
    assert Counter(found) == Counter(stable + tentative)
    assert [is_tentative for _, is_tentative in found] == sorted(mark for _, mark in found)
    assert _newest(tmp_path).parts == (Part(1, 2),)
    logs.run(1)
    third = reader.latestOffset(second)
    assert all(not is_tentative for _, is_tentative in _read(reader, second, third))
    assert _newest(tmp_path).upstream().since is None


def test_what_stands_is_kept_for_it(tmp_path: Path, logs: Answered) -> None:
    reader = _reader(tmp_path)
    first = reader.latestOffset(reader.initialOffset())
    reader.partitions(reader.initialOffset(), first)
    reader.latestOffset(first)
    known = read_reader(logs.storage, "next")
    assert known is not None
    assert known.needs == 1


def test_a_decision_that_spark_has_lost_is_taken_again(tmp_path: Path, logs: Answered) -> None:
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    first = reader.latestOffset(start)
    reader.partitions(start, first)
    logs.run(1)
    second = reader.latestOffset(first)
    rows = _read(reader, first, second)
    logs.run()
    reader = _reader(tmp_path)
    assert reader.latestOffset(first) == second
    assert _read(reader, first, second) == rows


def test_of_two_under_one_name_the_first_is_refused(tmp_path: Path, logs: Answered) -> None:
    one = _reader(tmp_path)
    start = one.initialOffset()
    end = one.latestOffset(start)
    _reader(tmp_path).latestOffset(start)
    with pytest.raises(OtherQuery, match=r"(?s)under the same name.*following/next/claims"):
        one.partitions(start, end)


def test_a_query_that_begins_anew_is_refused_until_the_reader_is_forgotten(
    tmp_path: Path, logs: Answered
) -> None:
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    reader.partitions(start, reader.latestOffset(start))
    with pytest.raises(OtherQuery, match="trailmark readers PATH --forget NAME"):
        _reader(tmp_path).latestOffset(start)
    assert forget(logs.storage, "next")
    assert _newest(tmp_path) == Followed()
    anew = _reader(tmp_path)
    end = anew.latestOffset(anew.initialOffset())
    assert Counter(_read(anew, start, end)) == logs.current(2)


def test_a_query_whose_reader_is_forgotten_while_it_runs_can_be_started_again(
    tmp_path: Path, logs: Answered
) -> None:
    """Its tasks must not take what is tentative for something that is not."""
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    rows = _read(reader, start, end)
    decisions = LocalStorage(following_path(str(tmp_path), "next"))
    expected = upstream_of(decisions, "next")
    assert expected.since == 0
    assert forget(logs.storage, "next")
    with pytest.raises(OtherQuery, match="'next' was forgotten while its query ran"):
        upstream_of(decisions, "next")
    logs.run(1)
    with pytest.raises(OtherQuery, match="or the reader was forgotten"):
        reader.latestOffset(end)
    again = _reader(tmp_path)
    assert _read(again, start, end) == rows
    assert upstream_of(decisions, "next") == expected


def test_a_place_is_claimed_also_where_nothing_is_read(tmp_path: Path, logs: Answered) -> None:
    """A batch that other sources have rows for may be the first after the reader was forgotten."""
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    decisions = LocalStorage(following_path(str(tmp_path), "next"))
    for offset in (start, end):
        forget(logs.storage, "next")
        assert _read(_reader(tmp_path), offset, offset) == []
        assert upstream_of(decisions, "next").since is None


def test_where_it_has_begun_is_not_asked_again(tmp_path: Path, logs: Answered) -> None:
    """Spark asks for the first offset anew when it repeats the first batch."""
    begun = _reader(tmp_path, startingOffsets="latest")
    start = begun.initialOffset()
    logs.run(1)
    end = begun.latestOffset(start)
    rows = _read(begun, start, end)
    assert Counter(rows) == logs.current(3, first=3)
    logs.run()
    again = _reader(tmp_path, startingOffsets="latest")
    assert again.initialOffset() != start
    assert _read(again, again.initialOffset(), end) == rows


def test_offsets_of_a_reader_that_did_not_decide_go_on(tmp_path: Path, logs: Answered) -> None:
    reader = _reader(tmp_path)
    plain = {name: reader.initialOffset()[name] for name in ("batch", "log")}
    repeated = _read(reader, plain, {**plain, "batch": 2})
    assert Counter(repeated) == Counter(logs.everything(last=1))
    end = reader.latestOffset({**plain, "batch": 2})
    assert Counter(_read(reader, {**plain, "batch": 2}, end)) == logs.current(2, first=2)


def test_of_another_operator_in_the_same_place_nothing_is_mixed(
    tmp_path: Path, logs: Answered
) -> None:
    reader = _reader(tmp_path)
    start = reader.initialOffset()
    first = reader.latestOffset(start)
    reader.partitions(start, first)
    for each in sorted(tmp_path.rglob("*"), reverse=True):
        if "following" not in each.parts:
            each.unlink() if each.is_file() else each.rmdir()
    other = Answered(LocalStorage(tmp_path), SOME_STEPS[:2]).run()
    reader = _reader(tmp_path)
    second = reader.latestOffset(first)
    with pytest.raises(DataLoss, match="holds another stream"):
        reader.partitions(first, second)
    reader = _reader(tmp_path, failOnDataLoss="false")
    second = reader.latestOffset(first)
    assert Counter(_read(reader, first, second)) == other.current(1)
    assert _newest(tmp_path).parts == (Part(1, 1),)


def _standing(first: int) -> Tentative:
    return Tentative(first, (0,), "UP_FAILURE", None, None)


def test_of_many_parts_neighbours_are_void_together() -> None:
    position = Followed()
    for batch in range(200):
        position = position.next("log", batch, batch + 1, _standing(0))
        assert len(position.parts) <= 64
        assert position.parts[0] == Part(0, 0)
        assert position.tentative_from == batch
        assert Followed.from_json(position.to_json()) == position
    left_out = next(n for n in range(200) if n not in {part.first for part in position.parts})
    again = position.next("log", 200, 201, _standing(left_out))
    assert again.parts == (Part(200, left_out),)
    edge = position.parts[5]
    kept = position.next("log", 200, 201, _standing(edge.first))
    assert (kept.parts[0], kept.tentative_from) == (edge, 200)


@pytest.mark.parametrize(
    "stored",
    [
        [],
        {"batch": 1},
        {"batch": -1, "log": ""},
        {"batch": 1, "log": "", "number": 0, "begun": 0, "phase": "STABLE", "parts": [[0]]},
        {"batch": 1, "log": "", "number": 0, "begun": 0, "phase": "STABLE", "parts": [[0, 0]] * 65},
        {"batch": 1, "log": "", "number": 0, "begun": 0, "phase": 1, "parts": []},
    ],
)
def test_what_is_no_offset_is_none(stored: object) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        Followed.from_json(stored)
