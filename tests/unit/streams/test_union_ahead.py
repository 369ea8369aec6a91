"""How long things wait, what is ahead of what stands, and how much a batch may have: the parts of a
union that answers on time, one by one."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.streams import Written, batch_of, written
from trailmark.errors import DamagedSegment
from trailmark.log.json_text import dump_guarded
from trailmark.streams.manifest import read_manifest
from trailmark.streams.promises import END_OF_TIME, end_for_good, has_ended
from trailmark.streams.union.ahead import Ahead, Edge, Phase, moved_on
from trailmark.streams.union.answering import Answering, Pace, Patience
from trailmark.streams.union.arrivals import Arrivals
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.decisions import newest_decision
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import SimulatedDisk

_SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("value", pa.int64())])

# How long things wait


def test_rows_wait_from_when_they_were_seen_and_boundaries_too() -> None:
    arrivals = Arrivals(grace_us=30)
    arrivals.saw(0, rows_end_us=10, boundary_us=None)
    assert arrivals.due_us(1_000, 90) is None, "no stream is complete for it"
    arrivals.saw(1_000, rows_end_us=10, boundary_us=10)
    assert arrivals.due_us(1_029, 90) is None, "the others may be about to be"
    assert arrivals.due_us(1_030, 90) == 10
    arrivals.saw(1_040, rows_end_us=10, boundary_us=20)
    assert arrivals.due_us(1_129, 90) == 10
    assert arrivals.due_us(1_130, 90) == 20, "also if no rows come"


def test_what_may_not_wait_any_longer_may_not_when_others_may() -> None:
    arrivals = Arrivals(grace_us=30)
    arrivals.saw(0, rows_end_us=10, boundary_us=10)
    arrivals.saw(20, rows_end_us=20, boundary_us=20)
    assert arrivals.due_us(75, 75) == 10
    assert arrivals.due_us(80, 90) == 10
    arrivals.saw(80, rows_end_us=30, boundary_us=30)
    assert arrivals.due_us(94, 75) == 10
    assert arrivals.due_us(95, 75) == 20


def test_rows_beyond_all_boundaries_move_nothing() -> None:
    arrivals = Arrivals(grace_us=30)
    arrivals.saw(0, rows_end_us=1_000_000, boundary_us=10)
    assert arrivals.due_us(89, 90) is None
    assert arrivals.due_us(90, 90) == 10


# What is ahead


def _ahead(*edges: tuple[int, int], since: int = 0) -> Ahead:
    found = tuple(Edge(*each) for each in edges)
    return Ahead(found[-1].time_us, since, Phase.UP_FAILURE, ("asia",), 5, found)


def _moved(before: Ahead | None, released: int, until: int, **given: Any) -> Ahead:
    return moved_on(before, released, until, 9, Phase.UP_FAILURE, ["asia"], 77, **given)


def test_a_part_stands_until_what_stands_has_reached_its_end() -> None:
    begun = _moved(None, 0, 10)
    assert (begun.since, begun.began_us, begun.edges) == (9, 77, (Edge(10, 9),))
    before = _ahead((10, 3), (20, 5), (30, 6), since=3)
    assert _moved(before, 0, 30).since == 3
    replaced = _moved(before, 20, 40)
    assert (replaced.since, replaced.began_us) == (6, 5)
    assert replaced.edges == (Edge(30, 6), Edge(40, 9))
    again = _moved(before, 30, 50)
    assert (again.since, again.began_us, again.edges) == (9, 77, (Edge(50, 9),))


def test_a_part_that_is_replaced_in_part_is_void() -> None:
    cut = _moved(_ahead((1_000, 3), (1_010, 5), since=3), 400, 1_010, is_cut=True)
    assert (cut.since, cut.edges) == (4, (Edge(1_000, 3), Edge(1_010, 5)))
    further = _moved(cut, 500, 1_010, is_cut=True)
    assert (further.since, further.edges) == (cut.since, cut.edges), "the next stands"
    last = _moved(_ahead((1_000, 3), since=3), 400, 1_000, is_cut=True)
    assert (last.since, last.edges) == (4, (Edge(1_000, 3),)), "how far it is stays known"


def test_many_parts_are_replaced_together() -> None:
    before = _ahead(*((10 * n, n) for n in range(1, 65)), since=1)
    after = _moved(before, 0, 650)
    assert len(after.edges) == 33
    assert (after.edges[0], after.edges[-1]) == (Edge(20, 2), Edge(650, 9))


@pytest.mark.parametrize(
    "changed",
    [
        {"edges": []},
        {"edges": [[1]]},
        {"edges": [[1, -1]]},
        {"edges": "no"},
        {"missing": ["x"] * 33},
        {"missing": [5]},
        {"missing": None},
        {"phase": "STABLEST"},
        {"since": -1},
        {"until_us": 2**63},
        {"until_us": "soon"},
        {"began_us": None},
    ],
)
def test_a_decision_with_what_cannot_be_ahead_is_refused(changed: dict[str, Any]) -> None:
    good = Decision(3, 5, {}, 0, _ahead((10, 3)))
    assert _read(good.to_json()) == good
    stored = {**_ahead((10, 3)).to_json(), **changed}
    with pytest.raises(DamagedSegment, match="holds no decision of a union"):
        _read({**good.to_json(), "ahead": stored})


def _read(stored: dict[str, Any]) -> Decision:
    """What is found of a decision that was kept."""
    storage = SimulatedDisk().storage()
    body = {"after": NOTHING_YET.to_json(), "by": "me", "decision": stored}
    storage.publish(f"decisions/{3:020d}.json", [dump_guarded(body, "decision")])
    return newest_decision(storage)


# How much a batch may have, and how long a stream may be away


def test_batches_grow_while_they_are_short_and_shrink_when_they_are_long() -> None:
    pace = Pace(batch_us=1_000)
    for number, (rows, took, wanted) in enumerate(
        [
            (100_000, 500, 200_000),
            (10, 900_000, 200_000),  # so few rows tell nothing
            (200_000, 2_000, 100_000),
            (100_000, 900_000, 25_000),
            (25_000, 900_000, 10_000),
            (10_000, 900_000, 10_000),
        ]
    ):
        pace.begin(number, rows, 0)
        pace.ended(number - 1, 1)  # of another batch
        pace.ended(number, took)
        assert pace.rows == wanted


def test_a_batch_keeps_up_with_what_comes_however_long_the_one_before_took() -> None:
    """Most of its time may go into what it takes whatever it has."""
    pace = Pace(batch_us=1_000)
    assert (pace.least_new_us, pace.least_replaced_us) == (0, 0)
    pace.begin(0, 10, 0)
    pace.ended(0, 700)
    assert (pace.least_new_us, pace.least_replaced_us) == (1_400, 2_800)
    pace.begin(1, 10, 0)
    pace.ended(1, 5_000)  # replacing must not make it take longer and longer
    assert (pace.least_new_us, pace.least_replaced_us) == (10_000, 4_000)


def test_the_longest_of_the_last_batches_tells_how_long_one_takes() -> None:
    pace = Pace(batch_us=1_000)
    found = []
    for number, took in enumerate([3, 9, 1, 1, 1, 1, 1, 1, 1, 2]):
        found.append(pace.longest_us)
        pace.begin(number, 10, 0)
        pace.ended(number, took)
    assert found == [0, 3, 9, 9, 9, 9, 9, 9, 9, 9]
    assert pace.longest_us == 2


def test_a_stream_that_moves_is_not_given_up() -> None:
    patience = Patience(100)
    assert patience.is_over(["asia"], {"asia": 5, "eu": 9}, 0) == []
    assert patience.is_over(["asia"], {"asia": 6, "eu": 9}, 90) == []
    assert patience.is_over(["asia"], {"asia": 6, "eu": 9}, 189) == []
    assert patience.is_over(["asia"], {"asia": 6, "eu": 9}, 190) == ["asia"]
    assert patience.is_over([], {"asia": 6, "eu": 9}, 200) == []
    assert patience.is_over(["asia"], {"asia": 6, "eu": 9}, 290) == [], "it was back meanwhile"
    assert Patience(None).is_over(["asia"], {"asia": 6}, 10**12) == []


def test_a_bound_is_spent_on_waiting_but_for_a_tenth() -> None:
    answering = Answering(1_000_000)
    assert answering.grace_us == 300_000
    longest = {0.0: 900_000, 60_000.0: 900_000, 120_000.0: 820_000, 400_000.0: 750_000}
    assert {each: answering.wait_us(each) for each in longest} == longest
    beside = {0.0: 900_000, 60_000.0: 808_000, 120_000.0: 616_000, 400_000.0: 500_000}
    assert {each: answering.wait_us(each, is_beside=True) for each in beside} == beside


# The end of a stream


def _commit(stream: Written, writer: str, number: int, times: list[int], delay: int | None) -> None:
    into = StreamWriter(stream.storage, stream.meta, clock=stream.clock, delay_us=delay)
    rows = [(time, number) for time in times]
    into.commit(into.write([batch_of(rows, _SCHEMA)], writer), writer, number)


@pytest.mark.parametrize("delay", [5, None])
def test_what_comes_to_a_stream_that_was_ended_is_late_for_everybody(delay: int | None) -> None:
    stream = written(schema=_SCHEMA, time_column="time")
    _commit(stream, "w", 0, [100], delay)
    assert end_for_good(stream.storage, 0)
    assert end_for_good(stream.storage, 0), "once more changes nothing"
    _commit(stream, "w", 1, [200, 300], delay)
    told = read_manifest(stream.log(), 2).boundaries
    assert told is not None
    assert (told.stream, told.late_before, told.late_rows) == (END_OF_TIME, END_OF_TIME, 2)


def test_a_stream_has_ended_that_promises_the_year_9999_whatever_its_delay() -> None:
    assert has_ended(END_OF_TIME)
    assert has_ended(END_OF_TIME - 3_600_000_000)
    assert not has_ended(None)
    assert not has_ended(4_000_000_000_000_000)


def test_a_stream_that_never_began_can_be_ended_too() -> None:
    stream = written(schema=_SCHEMA, time_column="time")
    assert end_for_good(stream.storage, 0)
    told = read_manifest(stream.log(), 0).boundaries
    assert told is not None
    assert told.stream == END_OF_TIME
