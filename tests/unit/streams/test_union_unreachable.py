"""Streams of a union that cannot be reached: the others are answered, or wait; nobody hangs, and
nothing fails that may go on later."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from tests.support.streams import SetClock, batch_of, written
from tests.support.union_answers import LOOK, Life
from tests.support.unreachable import Hands, Hangs, Line
from trailmark.errors import DataLoss, NoPermission, Unreachable
from trailmark.log.readers import read_reader
from trailmark.streams.asking import Asking, InThreads
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.deciding import Deciding
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.union.telling import TellOfStreams
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import SimulatedDisk

_SCHEMA = pa.schema([("time", pa.timestamp("us", "UTC")), ("value", pa.int64())])
_WITHIN = 20 * LOOK


def _life() -> Life:
    """Two streams that have spoken."""
    life = Life([{"w0": 0}, {"w0": 0}], 2 * LOOK, Answering(_WITHIN))
    _go_on(life, 6, 0, 1)
    return life


def _go_on(life: Life, looks: int, *places: int) -> None:
    for _ in range(looks):
        for place in places:
            life.commit(place, [life.now])
        life.look()


@pytest.mark.parametrize("code", [None, errno.EIO, errno.ENOTCONN])
def test_a_stream_that_does_not_answer_is_missing_until_it_does(
    code: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Its writer goes on all the while; the union sees nothing of that."""
    life = _life()
    life.cut(1, code)
    _go_on(life, 16, 0, 1)
    assert life.phases == [Phase.STABLE]
    _go_on(life, 14, 0, 1)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE]
    assert life.decision.ahead is not None
    assert life.decision.ahead.missing == life.decision.unreachable == ("1",)
    assert {each.place for each in life.tentative} == {0}
    told = life.unreachable["1"]
    assert told.since_us == life.clock.now_us - 29 * LOOK
    assert ("no answer within 100 ms" in told.why) == (code is None)
    life.restart(life.oracle.answering)
    _go_on(life, 4, 0, 1)
    assert life.decision.unreachable == ("1",)
    life.mend(1)
    _go_on(life, 4, 0, 1)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE, Phase.STABLE]
    assert not life.decision.unreachable
    assert not life.unreachable
    assert life.stable == life.oracle.union.rows()
    said = [each.message for each in caplog.records]
    assert any("input 1 cannot be reached since 2023-11-14" in each for each in said)
    assert any("(up to 1970-01-01 00:00:50Z, cannot be reached)" in each for each in said)


def test_who_was_never_reached_is_missing_too() -> None:
    life = Life([{"w0": 0}, {"w0": 0}], 2 * LOOK, Answering(_WITHIN))
    life.cut(1)
    _go_on(life, 30, 0, 1)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE]
    assert list(life.decision.inputs) == ["0"]
    life.mend(1)
    _go_on(life, 2, 0, 1)
    assert life.phases[-1] is Phase.STABLE
    assert life.stable == life.oracle.union.rows()


@pytest.mark.parametrize("looks", [1, 4, 8])
def test_a_stream_that_always_answers_late_is_behind_and_not_missing(looks: int) -> None:
    """Its answers count when they come."""
    life = _life()
    for _ in range(80 // looks):
        life.cut(1, None)
        _go_on(life, looks, 0, 1)
        life.mend(1)
        _go_on(life, 1, 0, 1)
        assert life.decision.released_us == (life.now - LOOK) // (2 * LOOK) * (2 * LOOK)
    assert life.phases == [Phase.STABLE]
    assert not life.tentative


# One look


class _Streams:
    """Two streams with rows, and a union of them over lines that can be cut."""

    def __init__(self, reader: str | None = None) -> None:
        self.lines = [Line(SimulatedDisk()) for _ in range(2)]
        self.hands = Hands()
        self.reader = reader
        self.now_us = 0.0
        self.streams = [
            written(each.disk.storage(), _SCHEMA, time_column="time") for each in self.lines
        ]
        for number in range(3):
            self.add(number, 10 * number + 5)
        # Nobody has promised anything about these, so that late ones have to be counted.
        for stream in self.streams:
            stream.add([(30, 9), (None, 10)])

    def add(self, number: int, time_us: int, places: Sequence[int] = (0, 1)) -> None:
        for stream in [self.streams[place] for place in places]:
            into = StreamWriter(stream.storage, stream.meta, clock=stream.clock, delay_us=0)
            rows = [(time_us, number), (time_us + 3, number)]
            into.commit(into.write([batch_of(rows, _SCHEMA)], "w"), "w", number)

    def deciding(self, answering: Answering | None = None) -> Deciding:
        inputs = [
            UnionInput(name, f"/{name}", line.storage(), 0, self.reader)
            for name, line in zip("ab", self.lines, strict=True)
        ]
        return Deciding(
            inputs,
            10,
            None,
            answering,
            now_us=lambda: self.now_us,
            clock=SetClock(),
            hands=None if answering is None else self.hands,
        )


@pytest.mark.parametrize("answering", [None, Answering(1_000)])
@pytest.mark.parametrize("code", [errno.ESTALE, errno.ECONNRESET])
def test_wherever_the_line_is_cut_nothing_is_decided_otherwise(
    code: int, answering: Answering | None
) -> None:
    """Each single call may be the last that is answered."""
    expected = _Streams("me").deciding(answering).next(NOTHING_YET)
    assert expected.released_us == 20
    for calls in range(1_000):
        streams = _Streams("me")
        deciding = streams.deciding(answering)
        streams.lines[1].cut(code, calls)
        found = deciding.next(NOTHING_YET)
        was_met = streams.lines[1].calls > calls
        assert _same(found, NOTHING_YET if was_met else expected)
        assert set(deciding.looking.unreachable) == ({"b"} if was_met else set())
        streams.lines[1].mend()
        assert _same(deciding.next(NOTHING_YET), expected)
        if not was_met:
            break
    else:
        raise AssertionError("it never ended")
    assert calls > 10


def _same(one: Decision, other: Decision) -> bool:
    """But for the ids of logs."""
    first, second = (
        {name: replace(each, log="") for name, each in decision.inputs.items()}
        for decision in (one, other)
    )
    return replace(one, inputs=first) == replace(other, inputs=second)


def test_whoever_waits_for_all_waits_for_one_that_cannot_be_reached(
    caplog: pytest.LogCaptureFixture,
) -> None:
    streams = _Streams()
    deciding = streams.deciding()
    decided = deciding.next(NOTHING_YET)
    streams.add(4, 60)
    streams.lines[0].cut()
    assert deciding.next(decided) == decided
    assert streams.deciding().next(decided) == decided, "another process"
    assert "input a cannot be reached since" in caplog.text
    streams.lines[0].mend()
    assert deciding.next(decided).released_us == 60
    assert "input a can be reached again" in caplog.text


def test_a_run_that_ends_does_not_end_without_a_stream() -> None:
    streams = _Streams()
    deciding = streams.deciding()
    deciding.end_with_next_look()
    streams.lines[1].cut()
    with pytest.raises(Unreachable, match="No route to host"):
        deciding.next(NOTHING_YET)


@pytest.mark.parametrize("answering", [None, Answering(1_000)])
def test_what_is_no_matter_of_time_is_an_error_as_ever(answering: Answering | None) -> None:
    streams = _Streams()
    deciding = streams.deciding(answering)
    decided = deciding.next(NOTHING_YET)
    streams.lines[1].cut(errno.EACCES)
    with pytest.raises(NoPermission):
        deciding.next(decided)
    streams.lines[1].mend()
    streams.lines[1].disk = SimulatedDisk()
    with pytest.raises(DataLoss, match="The stream is gone"):
        deciding.next(decided)


def test_a_named_reader_lets_go_when_the_stream_answers_again() -> None:
    streams = _Streams("me")
    deciding = streams.deciding(Answering(1_000))
    decided = deciding.next(NOTHING_YET)

    def needs() -> int:
        found = read_reader(streams.streams[1].storage, "me")
        assert found is not None
        return found.needs

    streams.lines[1].cut(None)
    deciding.looking.acknowledge(decided)
    assert needs() == 0
    streams.lines[1].mend()
    streams.hands.go_on()
    assert deciding.next(decided) == decided
    deciding.looking.acknowledge(decided)
    assert needs() == decided.inputs["b"].needs > 0
    restarted = streams.deciding(Answering(1_000))
    streams.add(5, 70)
    following = deciding.next(decided)
    restarted.looking.acknowledge(following)
    assert needs() == following.inputs["b"].needs > decided.inputs["b"].needs, "another process"


def test_a_stream_is_not_ended_that_cannot_be_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody else would know. When it is back it has its time anew."""
    streams = _Streams()
    deciding = streams.deciding(Answering(1_000, give_up_us=5_000))
    decided = deciding.next(NOTHING_YET)
    streams.add(4, 60, [0])
    streams.lines[1].cut()
    for _ in range(4):
        decided = deciding.next(decided)
        streams.now_us += 2_000
    assert decided.phase is Phase.UP_FAILURE
    said = [each.message for each in caplog.records if "it is not ended" in each.message]
    assert len(said) == 1
    streams.lines[1].mend()
    for _ in range(3):
        assert deciding.next(decided) == decided
        streams.now_us += 2_000
    assert "is ended" not in caplog.text
    assert deciding.next(decided) == decided
    assert "input b has been missing for too long (give_up_after) and is ended" in caplog.text
    assert deciding.next(decided).phase is Phase.STABLE


def test_a_stream_that_has_moved_meanwhile_is_not_ended(caplog: pytest.LogCaptureFixture) -> None:
    """What it is told may come late, when its writer has gone on for long."""
    streams = _Streams()
    deciding = streams.deciding(Answering(1_000, give_up_us=5_000))
    decided = deciding.next(NOTHING_YET)
    streams.add(4, 60, [0])
    for _ in range(2):
        streams.now_us += 2_000
        decided = deciding.next(decided)
    before = streams.lines[1].calls
    assert deciding.next(decided) == decided
    streams.lines[1].cut(None, streams.lines[1].calls - before)
    streams.now_us += 5_000
    assert deciding.next(decided) == decided
    assert len(streams.hands.hanging) == 1
    streams.add(5, 70, [1])
    streams.lines[1].mend()
    streams.hands.go_on()
    assert not streams.hands.hanging
    decided = deciding.next(decided)
    assert "is ended" not in caplog.text
    assert decided.released_us == 60
    assert decided.inputs["b"].boundary_us == 73


# In threads


@contextmanager
def _hanging() -> Iterator[Event]:
    is_mended = Event()
    try:
        yield is_mended
    finally:
        is_mended.set()


def test_one_that_hangs_keeps_nobody_waiting_and_is_asked_nothing_more() -> None:
    asked: list[str] = []
    asking = Asking(
        InThreads(), 100_000, lambda: time.monotonic() * 1e6, SetClock(), TellOfStreams()
    )

    with _hanging() as is_mended:

        def hang() -> str:
            asked.append("b")
            assert is_mended.wait(60)
            return "b"

        work = {"a": lambda: "a", "b": hang}
        for _ in range(3):
            assert asking.ask("look", work) == {"a": "a"}
        assert asked == ["b"]
        is_mended.set()
        until = time.monotonic() + 60
        while (found := asking.ask("look", {"b": lambda: "another"})) == {}:
            assert time.monotonic() < until
        assert found == {"b": "b"}
        assert asking.ask("look", work) == {"a": "a", "b": "b"}


class _Slow:
    """Nothing is done before somebody waits for it, and what hangs is not done then."""

    def __init__(self) -> None:
        self.begun: list[tuple[Callable[[], Any], Future[Any]]] = []
        self.waited: list[int] = []

    def begin(self, work: Callable[[], Any]) -> Future[Any]:
        self.begun.append((work, Future()))
        return self.begun[-1][1]

    def wait(self, begun: Sequence[Future[Any]], seconds: float | None) -> None:
        self.waited.append(len(begun))
        for work, future in self.begun:
            with suppress(Hangs):
                if future in begun and not future.done():
                    future.set_result(work())


def test_one_whose_time_is_over_is_not_waited_for_beside_others() -> None:
    """Else every look would take as long as a stream may that hangs."""

    def hang() -> str:
        raise Hangs

    hands, now_us = _Slow(), 0.0
    asking = Asking(hands, 100, lambda: now_us, SetClock(), TellOfStreams())
    for _ in range(3):
        assert asking.ask("look", {"a": lambda: "a", "b": hang}) == {"a": "a"}
        now_us += 100
    assert hands.waited == [2, 1, 1]
