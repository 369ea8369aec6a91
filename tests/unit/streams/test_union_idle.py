"""Streams of a union that promise nothing and have had nothing new for long: the others go on. Each
decision is held to the plain union in tests/support, which knows by itself who is idle."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from tests.support.streams import written
from tests.support.union_answers import LOOK, SCHEMA, Life
from trailmark.errors import SettingError
from trailmark.streams.asking import InTurn
from trailmark.streams.promises import END_OF_TIME
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.deciding import Deciding
from trailmark.streams.union.decision import NOTHING_YET
from trailmark.streams.union.idle import parse_idle_after
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.writer import StreamWriter

_T = TypeVar("_T")
_SLICE, _IDLE = 2 * LOOK, 10 * LOOK
_PROMISES: dict[str, int | None] = {"w0": 0}
_NOTHING: dict[str, int | None] = {"w0": None}


def _life(*delays: dict[str, int | None], answering: Answering | None = None, **given: Any) -> Life:
    """Streams that have all had rows until now."""
    life = Life(delays, _SLICE, answering, idle_after=_IDLE, **given)
    _go_on(life, 4, *range(len(delays)))
    return life


def _go_on(life: Life, looks: int, *places: int) -> None:
    for _ in range(looks):
        for place in places:
            life.commit(place, [life.now])
        life.look()


def _released(life: Life) -> int:
    assert life.decision.released_us is not None
    return life.decision.released_us


def _newest(life: Life) -> int:
    """The slice of the last rows."""
    return (life.now - LOOK) // _SLICE * _SLICE


def test_a_stream_holds_the_others_until_it_is_idle_and_then_what_comes_is_late() -> None:
    life = _life(_PROMISES, _NOTHING)
    held = _released(life)
    assert held == _newest(life)
    _go_on(life, 9, 0)
    assert _released(life) == held
    _go_on(life, 1, 0)
    assert _released(life) == _newest(life) > held
    assert life.decision.idle == ("1",)
    life.read_again()
    _go_on(life, 5, 0)
    late, released = life.now - 4 * LOOK, _released(life)
    life.commit(1, [late, life.now + _SLICE])
    _go_on(life, 4, 0)
    life.read_again()
    assert life.decision.late_rows == 1
    assert not life.decision.idle
    assert late < released < _released(life)
    assert late not in [time for time, place, _ in life.stable if place == 1]
    held = _released(life)
    _go_on(life, 6, 0)
    assert _released(life) == held, "it counts again"
    assert life.stable == life.oracle.union.rows()


def test_a_batch_without_idle_streams_is_repeated_by_a_process_that_waits_for_them() -> None:
    life = _life(_PROMISES, _NOTHING)
    _go_on(life, 10, 0)
    assert life.decision.idle == ("1",)
    life.commit(1, [life.now - 5 * LOOK])
    life.restart(None)
    life.read_again()
    life.look()
    assert life.decision.idle == ("1",), "its time begins anew, and nothing is released"


def test_time_begins_anew_with_every_process() -> None:
    life = _life(_PROMISES, _NOTHING)
    _go_on(life, 9, 0)
    life.restart(None)
    held = _released(life)
    _go_on(life, 10, 0)
    assert _released(life) == held
    _go_on(life, 1, 0)
    assert _released(life) == _newest(life)


def test_streams_with_promises_are_waited_for_and_nothing_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "trailmark"):
        life = _life(_PROMISES, {"w0": 0, "w1": None})
        held = _released(life)
        _go_on(life, 50, 0)
    assert _released(life) == held
    assert not caplog.records


def test_a_stream_that_never_had_anything_is_idle_like_any_other() -> None:
    life = Life([_PROMISES, _NOTHING], _SLICE, None, idle_after=_IDLE)
    _go_on(life, 10, 0)
    assert life.decision == NOTHING_YET
    _go_on(life, 1, 0)
    assert _released(life) == _newest(life)
    life.commit(1, [0])
    _go_on(life, 12, 0)
    assert life.decision.late_rows == 1


def test_where_all_are_idle_nothing_moves_by_the_clock() -> None:
    life = _life(_NOTHING, _NOTHING)
    life.commit(0, [life.now, life.now + 20 * LOOK])
    life.commit(1, [life.now])
    _go_on(life, 1)
    held = _released(life)
    _go_on(life, 40)
    assert _released(life) == held
    life.commit(0, [life.now])  # whoever has rows goes on
    _go_on(life, 1)
    assert _released(life) == _newest(life) > held


def test_what_the_others_have_passed_is_released_though_they_fall_idle_too() -> None:
    life = _life(_NOTHING, _NOTHING, most_rows=1, decisions_per_look=1)
    begin = _newest(life)
    life.commit(0, [begin + n * _SLICE for n in range(40)])
    _go_on(life, 10)
    assert life.decision.idle == ("1",)
    assert _released(life) == begin + _SLICE
    _go_on(life, 60)
    assert _released(life) == begin + 39 * _SLICE
    assert life.stable == life.oracle.union.rows()


def test_the_end_of_a_stream_says_nothing_about_one_that_is_idle() -> None:
    """Or all that it has later would be late."""
    life = _life(_PROMISES, _NOTHING)
    held = _released(life)
    life.heartbeat(0, END_OF_TIME)
    _go_on(life, 40)
    assert _released(life) == held
    _go_on(life, 1, 1)
    assert _released(life) == _newest(life)
    assert life.decision.late_rows == 0


@pytest.mark.parametrize("answering", [None, Answering(100 * LOOK)])
def test_a_stream_that_cannot_be_reached_is_not_idle(answering: Answering | None) -> None:
    """Nobody knows what it has. When it is back it has its time anew."""
    life = _life(_PROMISES, _NOTHING, answering=answering)
    _go_on(life, 8, 0)
    life.cut(1)
    held = _released(life)
    _go_on(life, 40, 0)
    life.mend(1)
    _go_on(life, 10, 0)
    assert _released(life) == held
    _go_on(life, 1, 0)
    assert _released(life) == _newest(life)


def test_what_comes_while_a_look_takes_long_is_not_late() -> None:
    """Of the time since a stream was asked nobody knows whether it had nothing."""
    now = 0

    class Slow(InTurn):
        def begin(self, work: Callable[[], _T]) -> Future[_T]:
            nonlocal now
            now += _IDLE * 6 // 10
            return super().begin(work)

        def wait(self, begun: Sequence[Future[Any]], seconds: float | None) -> None:
            assert all(each.done() for each in begun)

    streams = [written(schema=SCHEMA, time_column="time") for _ in range(2)]
    streams[1].add([(5 * _SLICE, 1)])
    inputs = [UnionInput(str(n), "", each.storage, 0) for n, each in enumerate(streams)]
    promising = StreamWriter(
        streams[0].storage, streams[0].meta, clock=streams[0].clock, delay_us=0
    )
    promising.send_heartbeat("a", 20 * _SLICE)
    answering = Answering(1_000 * LOOK)
    deciding = Deciding(
        inputs, _SLICE, None, answering, idle_after_us=_IDLE, now_us=lambda: now, hands=Slow()
    )
    first = deciding.next(NOTHING_YET)
    assert first.released_us == 5 * _SLICE
    assert deciding.next(first) == first
    assert deciding.next(first).released_us == 20 * _SLICE


def test_an_idle_stream_is_not_missing() -> None:
    life = _life(_PROMISES, _NOTHING, _PROMISES, answering=Answering(20 * LOOK))
    _go_on(life, 40, 0, 2)
    assert life.phases == [Phase.STABLE]
    assert not life.tentative
    _go_on(life, 30, 0)
    ahead = life.decision.ahead
    assert ahead is not None
    assert (ahead.missing, life.decision.idle) == (("2",), ("1",))
    life.commit(2, [life.now])
    _go_on(life, 3, 0, 2)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE, Phase.STABLE]


def test_a_stream_that_is_missing_first_is_back_as_soon_as_it_is_idle() -> None:
    life = _life(_PROMISES, _NOTHING, answering=Answering(5 * LOOK))
    _go_on(life, 9, 0)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE]
    _go_on(life, 3, 0)
    assert life.phases == [Phase.STABLE, Phase.UP_FAILURE, Phase.STABLE]


def test_an_idle_stream_is_not_ended() -> None:
    answering = Answering(5 * LOOK, give_up_us=20 * LOOK)
    life = _life(_PROMISES, _NOTHING, answering=answering)
    _go_on(life, 100, 0)
    back = life.now
    life.commit(1, [back, back + 2 * _SLICE])
    _go_on(life, 6, 0)
    assert back in [time for time, place, _ in life.stable if place == 1]


def test_whoever_goes_on_with_what_is_there_waits_for_all() -> None:
    life = _life(_PROMISES, _NOTHING)
    life.end_with_next_look()
    held = _released(life)
    _go_on(life, 40, 0)
    assert _released(life) == held


def test_who_is_idle_and_who_is_waited_for_again_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "trailmark"):
        life = _life(_PROMISES, _NOTHING)
        _go_on(life, 30, 0)
        _go_on(life, 5, 0, 1)
    assert [each.message for each in caplog.records] == [
        "union: input 1 has had nothing new for 500 ms (idle_after). The others go on without it.",
        "union: input 1 is waited for again.",
    ]


@pytest.mark.parametrize("given", ["0 seconds", "499 ms", timedelta(milliseconds=499)])
def test_a_time_that_is_no_longer_than_a_slice_is_refused(given: str | timedelta) -> None:
    with pytest.raises(SettingError, match="before it can be complete for a slice") as refused:
        parse_idle_after(given, 500_000)
    assert refused.value.where == "idle_after"
    assert parse_idle_after("500 ms", 500_000) == 500_000


@pytest.mark.parametrize("given", [5, "soon", "-1 seconds", timedelta(seconds=-1)])
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(SettingError, match="idle_after"):
        parse_idle_after(given, 500_000)
