"""Whom a reader of tentative results follows, and what it has then: single moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from tests.support.failing_replicas import (
    FailingReplica,
    Row,
    ScriptStep,
    digests,
    ready_replica,
)
from tests.support.replicas_of_seconds import SECOND
from tests.support.unreachable import Hands, Line
from trailmark.errors import SettingError
from trailmark.streams.answers import Answers
from trailmark.streams.replicas.answering import AnsweringReplicas
from trailmark.streams.replicas.place import Place
from trailmark.streams.replicas.shown import Decision, Shown
from trailmark.streams.replicas.table import table_of_replicas
from trailmark.streams.table import read_table


@dataclass
class _Reader:
    """Follows replicas by letters."""

    replicas: Sequence[FailingReplica]
    place: Place = field(init=False)
    tentative: list[tuple[int, Row]] = field(default_factory=list)
    results: int = 0

    def __post_init__(self) -> None:
        self.lines = {
            chr(ord("a") + number): Line(each.query.disk)
            for number, each in enumerate(self.replicas)
        }
        self.now_us = 0.0
        self.start()
        before_all = self.process.before_all()
        assert before_all is not None
        self.place = Place(before_all)

    def start(self) -> None:
        self.process = AnsweringReplicas(
            {name: line.storage() for name, line in self.lines.items()},
            hands=Hands(),
            now_us=lambda: self.now_us,
            clock=lambda: 0,
        )

    def read(self) -> int | None:
        """A batch, if anything is new; what it undoes."""
        end = self.process.next(self.place, self.process.look(), None)
        if end is None:
            return None
        undo = end.undoes(self.place)
        if undo is not None:
            self.tentative = [each for each in self.tentative if each[0] >= undo]
        first = self.process.first()
        assert first is not None
        shown = Shown(first.schema, Answers.CHANGES)
        for path, pieces in self.process.plan(self.place.position, end.position, end.path).items():
            for each in pieces:
                for rows in shown.stable(self.process, path, each, ["n"]):
                    self.results += rows.num_rows
        decision, names = Decision.of(end), first.schema.names
        for piece in self.process.plan_suffix(end.suffix):
            for rows in shown.tentative(self.process, end.suffix, piece, names, decision):
                self.tentative += [(decision.number, row) for row in digests(rows)]
        self.place = end
        return undo

    def stands(self) -> Counter[Row]:
        return Counter(row for _, row in self.tentative)


#: What stands up to second 10; then answers up to 13 and 16, of which the first are corrected.
_FAILS: list[ScriptStep] = [(10, 10, 10, None), (10, 10, 13, 1), (10, 13, 16, 1), (13, 16, 18, 2)]


def test_tentative_results_come_as_they_are_given_and_go_in_parts() -> None:
    replica, steps = ready_replica(_FAILS, 2)
    reader = _Reader([replica])
    assert reader.read() is None
    assert reader.stands() == replica.record[1].tentative != Counter()
    next(steps)
    assert reader.read() is None
    next(steps)
    assert reader.read() is not None
    assert reader.stands() == replica.record[2].tentative + replica.record[3].tentative
    assert reader.results == sum(replica.record[-1].results)
    assert reader.read() is None
    assert reader.place.path == "a"


def test_with_a_switch_all_that_was_tentative_is_void_and_what_stands_there_comes() -> None:
    one, _ = ready_replica(_FAILS, 3)
    other, _ = ready_replica(_FAILS, 2, seed=1)
    reader = _Reader([one, other])
    reader.read()
    assert reader.place.path == "a"
    reader.lines["a"].cut()
    assert reader.read() == reader.place.told.number
    assert reader.place.path == "b"
    assert reader.stands() == other.record[1].tentative
    reader.lines["a"].mend()
    assert reader.read() is None, "it is no better than the other one"


def test_one_that_is_stable_takes_the_place_of_one_in_failure_at_once() -> None:
    one, _ = ready_replica(_FAILS, 3)
    other, steps = ready_replica([(10, 10, 10, None), (15, 15, 15, None)], 1, seed=1)
    reader = _Reader([one, other])
    reader.read()
    assert reader.place.path == "a"
    assert reader.stands()
    next(steps)
    assert reader.read() is not None
    assert reader.place.path == "b"
    assert not reader.stands()
    assert reader.results == sum(other.record[-1].results)


def test_one_in_failure_that_stands_still_is_left_for_one_that_goes_on() -> None:
    one, _ = ready_replica(_FAILS, 3)
    other, steps = ready_replica(_FAILS, 2, seed=1)
    reader = _Reader([one, other])
    reader.read()
    assert reader.read() is None
    reader.now_us += 3 * SECOND
    next(steps)
    assert reader.read() is not None
    assert reader.place.path == "b"
    assert reader.stands() == other.record[1].tentative + other.record[2].tentative


def test_one_in_failure_is_left_for_the_last_answer_of_another_though_nothing_follows() -> None:
    one, ones = ready_replica(_FAILS, 2)
    other, steps = ready_replica(_FAILS, 2, seed=1)
    reader = _Reader([one, other])
    reader.read()
    reader.now_us += SECOND
    next(ones)
    assert reader.read() is None
    assert reader.place.path == "a"
    next(steps)
    reader.now_us += SECOND
    assert reader.read() is None
    reader.now_us += 9 * SECOND
    assert reader.read() is None
    assert reader.place.path == "a", "the other one has caught up, and answers no further"
    next(steps)
    reader.now_us += SECOND
    assert reader.read() is not None, "as before: nothing new for long, and another one has it"
    assert reader.place.path == "b"


def test_one_that_answers_further_a_moment_later_is_followed_in_the_end() -> None:
    one, _ = ready_replica(_FAILS, 2)
    other, steps = ready_replica(_FAILS, 2, seed=1)
    reader = _Reader([one, other])
    reader.read()
    assert reader.read() is None
    next(steps)
    reader.now_us += SECOND // 2
    assert reader.read() is None, "not for a moment's advantage"
    assert reader.place.path == "a"
    reader.now_us += 2 * SECOND
    assert reader.read() is not None
    assert reader.place.path == "b"
    assert reader.stands() == other.record[1].tentative + other.record[2].tentative


#: One that has got no further than second 5 for good, and answers up to 9, 12 and 15.
_BEHIND: list[ScriptStep] = [
    (5, 5, 5, None),
    (5, 5, 9, 1),
    (5, 9, 12, 1),
    (5, 12, 15, 1),
    (12, 15, 15, 3),
]


def test_of_one_that_is_behind_only_what_is_later_than_all_results_is_taken() -> None:
    one, _ = ready_replica([(10, 10, 10, None)], 1)
    other, steps = ready_replica(_BEHIND, 3, seed=1)
    reader = _Reader([one, other])
    reader.read()
    results = reader.results
    reader.lines["a"].cut()
    assert reader.read() is None
    assert reader.place.path == "a", "all that it answers goes by times that results are there for"
    next(steps)
    reader.read()
    assert (reader.place.path, reader.results) == ("b", results)
    assert reader.stands() == other.record[3].tentative != Counter()
    next(steps)
    reader.read()
    assert reader.results == sum(other.record[-1].results) > results
    assert reader.stands() == other.record[3].tentative + other.record[4].tentative


def test_what_cannot_be_read_is_left_out_and_void_with_the_next_switch() -> None:
    one, _ = ready_replica(_FAILS, 3)
    other, _ = ready_replica(_FAILS, 3, seed=1)
    reader = _Reader([one, other])
    end = reader.process.next(reader.place, reader.process.look(), None)
    assert end is not None
    reader.lines["a"].cut()
    assert reader.process.plan_suffix(end.suffix) == []
    before, reader.place = reader.place, end
    pieces = reader.process.plan(before.position, end.position, end.path)
    assert list(pieces) == ["b"]
    reader.start()
    assert reader.read() == reader.place.told.number
    assert reader.stands() == other.record[1].tentative + other.record[2].tentative


def test_a_table_of_what_is_current_has_the_suffix_of_the_one_that_answers_furthest() -> None:
    one, _ = ready_replica(_FAILS, 2)
    other, _ = ready_replica(_FAILS, 3, seed=1)
    reader = _Reader([one, other])

    def table(answers: Answers) -> pa.Table:
        return table_of_replicas(reader.process, None, answers, ["a", "b"])

    found = table(Answers.CURRENT).to_pylist()
    results = sum(other.record[-1].results)
    assert sum(not row["tentative"] for row in found) == results == table(Answers.STABLE).num_rows
    tentative = other.record[1].tentative + other.record[2].tentative
    assert len(found) - results == tentative.total()
    counted = table_of_replicas(reader.process, ["tentative"], Answers.CURRENT, ["a", "b"])
    assert counted.num_rows == len(found)


@pytest.mark.parametrize("given", [{"answers": "all"}, {"change_feed": True}])
def test_a_table_of_replicas_is_not_what_came_and_went(given: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=r"follow them with spark\.readStream"):
        read_table(["/nowhere/a", "/nowhere/b"], **given)  # type: ignore[arg-type]
