"""What is tentative in a batch: which batches stand, the watermarks, and footers that lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from tests.support.engine import CrashCase, by_port
from tests.support.harm import segment_path
from tests.support.orders import SECOND, time_case, timed_orders
from tests.support.reseal import open_segment, relink
from tests.support.small import SMALL_KINDS, small_buckets, small_case_of
from tests.support.tentative import BehindUnion, Step, TentativeJudge
from trailmark.checkpoint.policy import Continuous, Incremental
from trailmark.engine import BatchReport, Watermark
from trailmark.engine.tentative import (
    InputsTold,
    Tentative,
    Upstream,
    logged_times,
    marks_ahead,
    worst_phase,
)
from trailmark.engine.watermark import read_watermark, watermark_path
from trailmark.errors import DamagedSegment, TrailmarkError
from trailmark.log import Footer, Origin, PortRows, TimeRange
from trailmark.operators.protocol import Port
from trailmark.records import NO_BATCH, FrameKind, Stream
from trailmark.testing.disk import SimulatedDisk

_ORIGIN = Origin("in/00000/some.seg")
_NOTHING = InputsTold((None,))

#: As the footers of batch 3 have it.
_STORED = {
    "at": 5,
    "before": None,
    "numbers": [4],
    "phase": "UP_FAILURE",
    "stands_from": 2,
}
_LIES: dict[str, object] = {
    "no object": [],
    "a text": "tentative",
    "nothing in it": {},
    "no batch": {**_STORED, "stands_from": None},
    "a batch before the first": {**_STORED, "stands_from": -1},
    "a batch out of range": {**_STORED, "stands_from": 2**63},
    "half a batch": {**_STORED, "stands_from": 1.5},
    "a batch that is true": {**_STORED, "stands_from": True},
    "no list of numbers": {**_STORED, "numbers": 4},
    "numbers by name": {**_STORED, "numbers": {"4": 4}},
    "a number that is a text": {**_STORED, "numbers": ["4"]},
    "a number before the first": {**_STORED, "numbers": [-2]},
    "no phase": {**_STORED, "phase": None},
    "a phase that is a list": {**_STORED, "phase": ["STABLE"]},
    "a time that is a text": {**_STORED, "at": "5"},
    "a time out of range": {**_STORED, "at": 2**63},
    "an earlier time out of range": {**_STORED, "before": -(2**63) - 1},
    "no list of ports": {**_STORED, "ports": "5"},
    "a port that is a text": {**_STORED, "ports": ["5", 5]},
    "too many ports": {**_STORED, "ports": [None] * 33},
}


def _told(
    *sinces: int | None, number: int, ahead: Sequence[int | None] = (), phase: str = "UP_FAILURE"
) -> InputsTold:
    """What is told of one input behind as many unions, all with the same number."""
    unions = tuple(Upstream(number, since, phase if since else "STABLE") for since in sinces)
    return InputsTold((None,), ahead, unions)


def _orders(*seconds: int) -> pa.RecordBatch:
    return timed_orders([("a", 1, each * SECOND) for each in seconds])


def _behind(steps: Sequence[Step], *, buckets: int = 1, delay: int = 0) -> BehindUnion:
    """Windows of ten seconds."""
    case = time_case([[] for _ in steps], delay=delay)
    return BehindUnion(case, SimulatedDisk(), Continuous(), buckets, steps=steps)


def _facts(query: BehindUnion, batch: int) -> Any:
    footer, _ = query.logs().input(0).read_footer(batch)
    return footer.attributes.get("tentative")


def _run(query: BehindUnion, batches: int | None = None) -> list[BatchReport]:
    count = len(query.steps) if batches is None else batches
    return [query.run_step(batch)[0] for batch in range(count)]


def _footer_with(attributes: Mapping[str, Any], batch: int = 3) -> Footer:
    query = _behind([Step(_orders(1), None, _NOTHING)])
    _run(query)
    footer, _ = query.logs().input(0).read_footer(0)
    query.stop()
    return replace(footer, batch=batch, attributes=attributes)


# What is stored


@pytest.mark.parametrize("ports", [(), (None, -(2**63))])
def test_what_is_written_is_read_back(ports: tuple[int | None, ...]) -> None:
    facts = Tentative(2, (4, 0), "STABILIZATION", 2**63 - 1, None, ports)
    assert Tentative.from_json(json.loads(json.dumps(facts.to_json()))) == facts
    footer = _footer_with({"tentative": facts.to_json()})
    assert Tentative.logged(footer, _ORIGIN) == facts


@pytest.mark.parametrize("lie", _LIES.values(), ids=_LIES)
def test_a_footer_that_lies_is_told_as_damage(lie: object) -> None:
    with pytest.raises((KeyError, ValueError)):
        Tentative.from_json(lie)
    with pytest.raises(DamagedSegment, match="'tentative' cannot be read") as refused:
        Tentative.logged(_footer_with({"tentative": lie}), _ORIGIN)
    assert refused.value.where.startswith("in/00000/some.seg")


def test_what_stands_from_a_later_batch_is_told_as_damage() -> None:
    footer = _footer_with({"tentative": {**_STORED, "stands_from": 4}})
    with pytest.raises(DamagedSegment, match="names a batch after 3"):
        Tentative.logged(footer, _ORIGIN)


@pytest.mark.parametrize(
    "lie", [0, "no", {}, [], [None, None], [5], ["ab"], [[1]], [[1, "2"]], [{"1": 2}]]
)
def test_times_that_lie_are_told_as_damage(lie: object) -> None:
    with pytest.raises(DamagedSegment, match="'tentative_times' cannot be read"):
        logged_times(_footer_with({"tentative_times": lie}), 1, _ORIGIN)


@pytest.mark.parametrize("lie", _LIES.values(), ids=_LIES)
def test_a_watermark_file_that_lies_is_told_as_damage(lie: object) -> None:
    _check_file_is_refused({"at": 5, "before": None, "tentative": lie})


def test_a_watermark_file_of_what_stands_from_a_later_batch_is_told_as_damage() -> None:
    stored = {**_STORED, "stands_from": 4}
    _check_file_is_refused({"at": 5, "before": None, "tentative": stored})


def _check_file_is_refused(stored: object) -> None:
    """In the place of the watermark of batch 3."""
    storage, path = SimulatedDisk().storage(), watermark_path(3)
    text = json.dumps(stored).encode()
    storage.publish(path, [text, b"\n%08x\n" % crc32(text)])
    with pytest.raises(DamagedSegment, match="does not hold a watermark") as refused:
        read_watermark(storage, path)
    assert refused.value.where == path
    assert "Delete the file" in refused.value.fix


def _lying(query: BehindUnion, batch: int, change: Mapping[str, Any] | None) -> None:
    """Changes what the input footer of a batch says of tentative tuples, and seals it again."""
    query.stop()
    path = segment_path(Stream.INPUT, batch)
    opened = open_segment(query.disk.content(path))
    fields = opened.fields
    if change is None:
        del fields["attributes"]["tentative"]
    else:
        fields["attributes"]["tentative"].update(change)
    names = [name for name in query.disk.files() if name.startswith("in/00000/")]
    files = {name: query.disk.content(name) for name in names}
    files[path] = opened.with_fields(fields).sealed()
    relink(files, "in/00000")
    for name, data in files.items():
        query.disk.overwrite(name, data)


@pytest.mark.parametrize(
    ("batch", "change"),
    [
        (1, {"stands_from": 2}),
        (1, {"stands_from": "0"}),
        (1, {"ports": [1, 2]}),
        (0, {"at": "now"}),
    ],
)
def test_a_batch_behind_a_footer_that_lies_is_refused_by_name(
    batch: int, change: Mapping[str, Any]
) -> None:
    steps = [Step(_orders(n), _orders(n + 5), _told(1, number=n + 1)) for n in range(3)]
    query = _behind(steps)
    _run(query, 2)
    _lying(query, batch, change)
    with pytest.raises(TrailmarkError):
        query.run_step(2)
    query.stop()


def test_a_batch_that_stands_without_a_word_of_it_in_its_footer_is_refused_by_name() -> None:
    steps = [Step(_orders(n), _orders(n + 5), _told(1, number=n + 1)) for n in range(4)]
    query = _behind(steps)
    _run(query, 3)
    _lying(query, 1, None)
    with pytest.raises(DamagedSegment, match="nothing is tentative, and yet it stands"):
        query.run_step(3)
    query.stop()


def test_ports_that_are_too_few_are_refused_by_name() -> None:
    case = small_case_of("join", 3)
    query = BehindUnion(case, SimulatedDisk(), Continuous(), 1, steps=_always_ahead(case))
    _run(query, 2)
    _lying(query, 1, {"ports": [1]})
    with pytest.raises(TrailmarkError):
        query.run_step(2)
    query.stop()


def _always_ahead(case: CrashCase) -> list[Step]:
    """Every batch comes once more as tentative; nothing is told but that."""
    none = (None,) * len(case.operator().ports)
    return [
        Step(rows, rows, InputsTold(none, (), (Upstream(batch + 1, 1, "UP_FAILURE"),)))
        for batch, rows in enumerate(case.batches)
    ]


# Watermarks


def _port(delay: int = 0, time: str | None = "at") -> Port:
    return Port("port", pa.schema([("at", pa.timestamp("us"))]), time, delay)


def _before(*marks: int | None) -> Tentative:
    return Tentative(0, (1,), "UP_FAILURE", None, None, marks)


def test_the_watermark_of_tentative_tuples_is_told_by_the_union_for_each_port() -> None:
    told = InputsTold((None, None), (50, 5))
    assert marks_ahead((10, 20), told, None, [], (_port(), _port())) == (50, 20)


def test_without_a_union_that_tells_it_is_that_of_the_tuples_of_the_batches_before() -> None:
    told = InputsTold((None,) * 3, (None, 70, None))
    times = [(TimeRange(1, 40), TimeRange(1, 90), None), (None, None, TimeRange(3, 8))]
    ports = (_port(delay=3), _port(), _port(delay=10))
    assert marks_ahead((10, 20, None), told, _before(30, 35, 0), times, ports) == (37, 70, 0)


def test_in_the_first_batch_that_has_some_it_is_that_of_the_stable_ones() -> None:
    times = [(TimeRange(1, 40), TimeRange(1, 90))]
    ports = (_port(), _port())
    assert marks_ahead((10, None), InputsTold(()), None, times, ports) == (10, None)


def test_an_input_without_event_times_has_none_whatever_is_told() -> None:
    told = InputsTold((None, None), (50, 50))
    times = [(None, None)]
    ports = (_port(time=None), _port())
    assert marks_ahead((None, None), told, _before(None, 3), times, ports) == (None, 50)


def test_a_tentative_watermark_closes_windows_of_the_fork_only() -> None:
    steps = [
        Step(_orders(3), _orders(4), _told(1, number=1, ahead=[12 * SECOND])),
        Step(_orders(5), _orders(15, 25), _told(1, number=2, ahead=[20 * SECOND])),
        Step(_orders(6), None, _told(1, number=3)),
        Step(_orders(7), None, _told(None, number=4)),
    ]
    query = _behind(steps)
    reports = _run(query)
    assert [report.results.num_rows for report in reports] == [0] * 4
    counts = [None if each.tentative is None else each.tentative.num_rows for each in reports]
    # The third has no more tuples; the times of those before it, to which it goes by then, have
    # closed nothing that was not given out before.
    assert counts == [1, 1, 0, None]
    assert [_facts(query, batch)["at"] for batch in range(3)] == [
        12 * SECOND,
        20 * SECOND,
        25 * SECOND,
    ]
    assert [_facts(query, batch)["before"] for batch in range(3)] == [
        None,
        12 * SECOND,
        20 * SECOND,
    ]
    assert query.logs().watermark(3) == Watermark(6 * SECOND, 5 * SECOND)
    query.stop()


def test_times_of_tentative_tuples_in_one_bucket_count_for_all_of_them() -> None:
    """Each port by the times of its own batches before, of whichever bucket."""
    for kind in ("join", "keyed"):
        case = small_case_of(kind, 4)
        steps = _always_ahead(case)
        query = BehindUnion(case, SimulatedDisk(), Continuous(), 2, steps=steps)
        judge = TentativeJudge(case, steps, 2)
        for batch in range(4):
            judge.check(query, batch, query.run_step(batch))
        assert _facts(query, 3)["at"] is not None
        assert len(_facts(query, 3).get("ports", [None])) == len(case.operator().ports)
        query.stop()


def test_several_inputs_without_event_times_have_no_watermark_behind_a_union() -> None:
    case = small_case_of("barrier", 3)
    query = BehindUnion(case, SimulatedDisk(), Continuous(), 1, steps=_always_ahead(case))
    reports = _run(query)
    assert query.logs().watermark(2).at is None
    assert sum(each.tentative.num_rows for each in reports if each.tentative is not None) > 0
    query.stop()


# What stands


def _stands_from(sinces: Sequence[Sequence[int | None]]) -> list[int | None]:
    """By what each union says with each batch; the numbers of all are those of the batches."""
    steps = [
        Step(_orders(1), _orders(2) if any(each) else None, _told(*each, number=batch))
        for batch, each in enumerate(sinces, start=1)
    ]
    query = _behind(steps)
    _run(query)
    found = [_facts(query, batch) for batch in range(len(steps))]
    query.stop()
    return [None if facts is None else facts["stands_from"] for facts in found]


def test_batches_stand_since_the_first_that_the_union_has_not_replaced() -> None:
    sinces: list[list[int | None]] = [[None], [2], [2], [3], [5], [None], [7], [7]]
    assert _stands_from(sinces) == [None, 1, 1, 2, 4, None, 6, 6]


def test_a_batch_stands_while_one_of_two_unions_still_needs_it() -> None:
    first, second = [1, 1, None, 4, 4, 4, None], [None, 2, 2, 2, 4, None, None]
    sinces = list(zip(first, second, strict=True))
    assert _stands_from(sinces) == [0, 0, 1, 1, 3, 3, None]


def test_a_union_may_have_decided_nothing_yet_while_another_is_ahead() -> None:
    none = Upstream(NO_BATCH, None, "STABLE")
    steps = [
        Step(_orders(n), _orders(n + 5), InputsTold((None,), (), (none, each)))
        for n, each in enumerate([Upstream(0, 0, "UP_FAILURE"), Upstream(1, 0, "UP_FAILURE")])
    ]
    query = _behind(steps)
    _run(query)
    assert [_facts(query, batch)["numbers"] for batch in (0, 1)] == [[NO_BATCH, 0], [NO_BATCH, 1]]
    query.stop()


def test_of_several_unions_the_worst_phase_is_told() -> None:
    phases = ("STABLE", "STABILIZATION", "UP_FAILURE")
    unions = [Upstream(1, 1, phase) for phase in phases]
    assert worst_phase(unions) == "UP_FAILURE"
    assert worst_phase(unions[:2]) == "STABILIZATION"
    assert worst_phase(unions[:1]) == "STABLE"


def test_a_watermark_that_is_lost_is_found_again_though_what_stood_before_is_trimmed() -> None:
    """By a bucket that is behind, of one that has done the batch and needs no more of them."""
    sinces = [1, 1, 1, 3]
    steps = [
        Step(_orders(n), _orders(n + 5), _told(since, number=n + 1))
        for n, since in enumerate(sinces)
    ]
    query = _behind(steps, buckets=2)
    _run(query, 3)
    query.batch = 3
    ahead, behind = query.open()
    none, rows = by_port(_orders()), by_port(_orders(8))
    ahead.run(3, _orders(3), rows)
    ahead.trim()
    assert query.logs().input(0).oldest() == 2
    expected = query.logs().watermark(3)
    query.logs().storage.delete(watermark_path(3))
    behind.run(3, _orders(), none)
    assert query.logs().watermark(3) == expected
    assert expected.tentative is not None
    assert expected.tentative.stands_from == 2
    query.stop()


def test_an_answer_from_the_log_tells_no_results_from_nothing_tentative() -> None:
    steps = [Step(_orders(1), _orders(2), _told(1, number=1)), Step(_orders(1), None, _NOTHING)]
    query = _behind(steps)
    for batch, expected in enumerate((0, None)):
        for report in (query.run_step(batch)[0], query.run_step(batch)[0]):
            found = None if report.tentative is None else report.tentative.num_rows
            assert found == expected, report.was_logged
    query.stop()


def test_what_has_been_replaced_counts_no_more() -> None:
    """The copy that judges begins with the stable state and with what still stands."""
    sinces: list[int | None] = [1, 1, 3, 3, None, 6]
    steps = [
        Step(_orders(n), _orders(n, n + 9) if since else None, _told(since, number=n + 1))
        for n, since in enumerate(sinces)
    ]
    query = _behind(steps, buckets=2)
    judge = TentativeJudge(query.case, steps, 2)
    for batch in range(len(steps)):
        judge.check(query, batch, query.run_step(batch))
    query.stop()


# Where nothing is tentative


@pytest.mark.parametrize("told", [_NOTHING, _told(None, number=1), _told(None, None, number=1)])
def test_tentative_tuples_are_refused_where_nothing_is_tentative(told: InputsTold) -> None:
    query = _behind([Step(_orders(1), _orders(2), told)])
    with pytest.raises(TrailmarkError, match="nothing is tentative"):
        query.run_step(0)
    assert not query.logs().input(0).contains(0)
    query.steps = [Step(_orders(1), _orders(), told)]
    assert query.run_step(0)[0].tentative is None
    query.stop()


_INPUT_KEYS = {"watermark", "late_before"}
_PORT_KEYS = {"port_times", "port_watermarks"}
_FRAMES = {FrameKind.RESULTS, FrameKind.FOOTPRINTS, FrameKind.CLOSED, FrameKind.LATE}


@pytest.mark.parametrize("is_behind_union", [False, True])
@pytest.mark.parametrize("kind", SMALL_KINDS)
def test_logs_without_tentative_tuples_are_as_they_always_were(
    kind: str, is_behind_union: bool
) -> None:
    case = small_case_of(kind)
    ports, buckets = case.operator().ports, small_buckets(kind)
    unions = (Upstream(1, None, "STABLE"),) if is_behind_union else ()
    steps = [
        Step(rows, None, InputsTold((None,) * len(ports), (), unions)) for rows in case.batches
    ]
    policy = Incremental(2, group_size=2) if kind == "groups" else Continuous(q=8, u=12)
    query = BehindUnion(case, SimulatedDisk(), policy, buckets, steps=steps)
    for batch in range(len(steps)):
        query.run_step(batch)
    logs = query.logs()
    inputs = {FrameKind.of_port(place) for place in range(len(ports))}
    of_ports = _PORT_KEYS if len(ports) > 1 else set()
    for number in range(buckets):
        for batch in range(len(steps)):
            given, left = logs.input(number).read(batch), logs.output(number).read(batch)
            assert given.frames.keys() - {FrameKind.ORDER} == inputs
            named = given.footer.attributes.keys() - {"clock_us"}
            assert named == _INPUT_KEYS | of_ports
            assert left.frames.keys() <= _FRAMES
            assert not [name for name in left.footer.attributes if "tentative" in name]
            for segment in (given, left):
                assert Tentative.logged(segment.footer, segment.origin) is None
                times = logged_times(segment.footer, len(ports), segment.origin)
                assert times == (None,) * len(ports)
        for path in query.disk.files():
            if path.startswith("watermark/"):
                assert b"tentative" not in query.disk.content(path)
    query.stop()


def test_a_batch_that_is_repeated_with_other_tentative_tuples_is_refused() -> None:
    query = _behind([Step(_orders(1), _orders(2), _told(1, number=1))])
    query.run_step(0)
    bucket = query.open()[0]
    for tentative in (None, _orders(), _orders(3), _orders(2, 2)):
        rows = None if tentative is None else by_port(tentative)
        with pytest.raises(TrailmarkError):
            bucket.run(0, _orders(1), rows)
    assert bucket.run(0, _orders(1), PortRows((_orders(2),))).was_logged
    query.stop()
