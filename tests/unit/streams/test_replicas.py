"""Who follows replicas that are made anew, trimmed, cut off, or others than they should be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.support.replicas import Replica
from tests.support.replicas_of_seconds import COLUMNS, SECOND, replica_of_seconds
from tests.support.unreachable import Hands, Line
from trailmark.errors import DataLoss, StorageError
from trailmark.inspection.logs import OperatorFiles
from trailmark.records import Stream
from trailmark.streams.replicas.choosing import Replicas
from trailmark.streams.replicas.numbered import NumberedResults, Piece
from trailmark.streams.replicas.place import Place
from trailmark.streams.replicas.positions import Position
from trailmark.testing.disk import SimulatedDisk


def _line(replica: Replica) -> Line:
    return Line(replica.query.disk)


class _Follower:
    """One who follows replicas, by letters."""

    def __init__(self, *lines: Line) -> None:
        self.now_us = 0.0
        self.paths = [chr(ord("a") + place) for place in range(len(lines))]
        self.replicas = Replicas(
            {path: line.storage() for path, line in zip(self.paths, lines, strict=True)},
            hands=Hands(),
            now_us=lambda: self.now_us,
            clock=lambda: 0,
        )

    def choose(self, position: Position) -> str | None:
        return self.replicas.choose(position, self.replicas.look())

    def before_all(self) -> Position:
        found = self.replicas.before_all()
        assert found is not None
        return found

    def half(self, path: str) -> Position:
        """About half of what a replica has given."""
        seen = self.replicas.look()[path]
        return self.replicas.admitted(path, self.before_all(), seen, seen.results // 2)

    def rows(self, start: Position, end: Position, first: str) -> list[dict[str, object]]:
        ((path, pieces),) = self.replicas.plan(start, end, first).items()
        return self.read(path, pieces)

    def read(self, path: str, pieces: Sequence[Piece]) -> list[dict[str, object]]:
        return [
            row
            for piece in pieces
            for rows in self.replicas.read(path, piece, COLUMNS)
            for row in rows.to_pylist()
        ]


class _Trimmed(Line):
    """Before a certain call, what is before a batch is trimmed."""

    def __init__(self, disk: SimulatedDisk, before: int) -> None:
        super().__init__(disk)
        self._before = before
        self.calls_before = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        carried_out = super().__getattr__(name)

        def beside(*given: Any) -> Any:
            self.calls_before -= 1
            if self.calls_before == 0:
                OperatorFiles(self.disk.storage()).log(Stream.OUTPUT, 0).trim(self._before)
            return carried_out(*given)

        return beside


def _nothing() -> Line:
    """Where no replica has begun."""
    return Line(SimulatedDisk())


def test_one_that_was_made_anew_over_other_rows_is_not_followed_any_more() -> None:
    line = _line(replica_of_seconds(0, 20))
    follower = _Follower(line, _nothing())
    start = follower.before_all()
    assert follower.choose(start) == "a"
    position = follower.replicas.look()["a"].given
    # The streams have been trimmed since: it begins later, and soon has given as many results.
    line.disk = replica_of_seconds(5, 60).query.disk
    for _ in range(3):
        assert follower.choose(position) is None


def test_one_that_was_made_anew_over_the_same_rows_is_followed_again() -> None:
    line = _line(replica_of_seconds(0, 20))
    follower = _Follower(line, _nothing())
    start = follower.before_all()
    assert follower.choose(start) == "a"
    position = follower.replicas.look()["a"].given
    line.disk = replica_of_seconds(0, 40, seed=1).query.disk
    found = [follower.choose(position) for _ in range(2)]
    assert found[-1] == "a"
    end = follower.replicas.look()["a"].given
    assert len(follower.rows(position, end, "a")) == sum(each.rows for each in end) - sum(
        each.rows for each in position
    )


def test_what_was_planned_is_not_read_from_one_that_has_given_others() -> None:
    line, other = _line(replica_of_seconds(0, 20)), _line(replica_of_seconds(5, 60))
    follower = _Follower(line, other)
    start = follower.before_all()
    end = follower.replicas.look()["a"].given
    ((path, pieces),) = follower.replicas.plan(start, end, "a").items()
    assert path == "a"
    line.cut()
    with pytest.raises(StorageError, match="No replica has the results"):
        follower.read(path, pieces)


def test_what_was_planned_is_not_read_from_what_was_made_anew_in_its_place() -> None:
    line = _line(replica_of_seconds(0, 20, seed=2))
    follower = _Follower(line)
    start = follower.before_all()
    end = follower.replicas.look()["a"].given
    ((path, pieces),) = follower.replicas.plan(start, end, "a").items()
    line.disk = replica_of_seconds(5, 60, seed=2).query.disk
    task = _Follower(line)  # it opens what it reads itself
    with pytest.raises(StorageError):
        task.read(path, pieces)


def test_what_is_planned_from_one_is_read_from_another() -> None:
    line, other = _line(replica_of_seconds(0, 20)), _line(replica_of_seconds(0, 30, seed=3))
    follower = _Follower(line, other)
    start, end = follower.before_all(), follower.half("a")
    expected = follower.rows(start, end, "a")
    planned = follower.replicas.plan(start, end, "a")["a"]
    line.cut()
    task = _Follower(line, other)
    assert task.read("a", planned) == expected


def test_one_that_differs_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    follower = _Follower(_line(replica_of_seconds(0, 20)), _line(replica_of_seconds(5, 60)))
    position = follower.replicas.look()["a"].given
    with caplog.at_level(logging.WARNING, "trailmark"):
        for _ in range(5):
            follower.now_us += 3 * SECOND
            assert follower.choose(position) is None
    assert caplog.text.count("cannot be followed") == 1


def test_one_with_a_damaged_batch_is_left_where_batches_are_limited() -> None:
    damaged, whole = replica_of_seconds(0, 30, seed=1), replica_of_seconds(0, 25, seed=4)
    numbered = NumberedResults(damaged.query.disk.storage(), "a")
    there = numbered.there()
    start = numbered.position(there.start, there)
    # A batch that nobody meets who looks for the place of the start by halving.
    batch = numbered.needs(start, there) + 4
    path, disk = damaged.query.logs().output(0).reader.segment_path(batch), damaged.query.disk
    disk.truncate(path, len(disk.content(path)) // 2)
    follower = _Follower(_line(damaged), _line(whole))
    assert follower.choose(start) == "a"
    found = follower.replicas.next(Place(start), follower.replicas.look(), most_rows=30)
    assert found is not None
    assert found.path == "b"
    assert follower.rows(start, found.position, found.path)


def test_who_has_nothing_left_to_go_on_with_is_told() -> None:
    one, other = replica_of_seconds(0, 30, seed=1), replica_of_seconds(0, 30, seed=4)
    for each in (one, other):
        log = each.query.logs().output(0)
        log.trim(log.newest() - 3)
    follower = _Follower(_line(one), _line(other))
    start = follower.before_all()
    with pytest.raises(DataLoss, match="was trimmed"):
        follower.choose(start)


def test_who_waits_for_one_that_is_behind_is_told_nothing() -> None:
    one, other = replica_of_seconds(0, 30, seed=1), replica_of_seconds(0, 10, seed=4)
    numbered = NumberedResults(other.query.disk.storage(), "b")
    there = numbered.there()
    position = numbered.position(there.stop, there)
    log = one.query.logs().output(0)
    log.trim(log.newest() - 3)
    follower = _Follower(_line(one), _line(other))
    assert follower.choose(position) is None


def test_trimming_beside_planning_takes_nothing_away_that_is_needed() -> None:
    """At any call of the storage."""
    replica = replica_of_seconds(0, 60, seed=5)
    numbered = NumberedResults(replica.query.disk.storage(), "a")
    there = numbered.there()
    middle = (there.start + there.stop) // 2
    position, end = (numbered.position(batch, there) for batch in (middle, there.stop))
    calls, was_trimmed = 0, True
    while was_trimmed:
        calls += 1
        line = _Trimmed(replica.query.disk.copy(), numbered.needs(position, there))
        follower = _Follower(line)
        seen = follower.replicas.look()
        line.calls_before = calls
        assert follower.replicas.choose(position, seen) == "a"
        assert len(follower.rows(position, end, "a")) == end[0].rows - position[0].rows
        was_trimmed = line.calls_before <= 0
    assert calls > 1


def _damage_oldest(replica: Replica) -> None:
    log, disk = replica.query.logs().output(0), replica.query.disk
    log.trim(log.newest() - 3)
    path = log.reader.segment_path(log.start())
    disk.flip(path, len(disk.content(path)) // 2, 0)


def test_one_whose_oldest_batch_is_damaged_does_not_keep_another_from_being_read() -> None:
    damaged, whole = replica_of_seconds(0, 30, seed=1), replica_of_seconds(0, 25, seed=4)
    _damage_oldest(damaged)
    follower = _Follower(_line(damaged), _line(whole))
    assert follower.replicas.beginning() == follower.before_all()
    found = follower.replicas.whole()
    assert found is not None
    assert found.suffix.path == "b"
    assert len(follower.rows(found.start, found.end, found.suffix.path)) == found.end[0].rows


def test_where_all_are_damaged_there_is_an_error_and_not_nothing() -> None:
    both = [replica_of_seconds(0, 30, seed=seed) for seed in (1, 4)]
    for each in both:
        _damage_oldest(each)
    follower = _Follower(*map(_line, both))
    for ask in (follower.replicas.beginning, follower.replicas.whole):
        with pytest.raises(StorageError, match="No replica has the results"):
            ask()
