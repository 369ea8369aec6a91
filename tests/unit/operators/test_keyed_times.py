"""Timers and times to live: when they are due, and what is refused."""

from __future__ import annotations

import random
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from tests.support.seeds import seeds
from trailmark.errors import OperatorError, SettingError
from trailmark.operators.keyed import Keyed
from trailmark.operators.keyed.due import NEVER, DueQueue
from trailmark.operators.protocol import BatchInput
from trailmark.recovery import NoHistory
from trailmark.state.memory import Memory

_SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us"))])
_OUTPUT = pa.schema([("key", pa.int64()), ("due", pa.timestamp("us"))])


def test_a_queue_gives_what_is_due_and_the_earliest_first() -> None:
    for seed in seeds(20):
        rng = np.random.default_rng(seed)
        queue = DueQueue(Memory(), "$times", is_new=True)
        times = rng.integers(0, 500, 6000)
        for part in np.array_split(np.arange(6000), 7):
            queue.push(times[part], part)
        left = 6000
        for limit in (-1, 100, 101, 400, 600):
            found, slots = queue.pop(limit)
            assert (np.diff(found) >= 0).all()
            assert (times[slots] == found).all()
            left -= len(found)
            assert left == queue.count == (times > limit).sum()


class Alarm:
    """Sets the timer that a test says, and tells when it is called."""

    state: ClassVar[Any] = {"n": pa.int64()}

    def __init__(self, first: Any, then: Any = None) -> None:
        self._first = first
        self._then = then

    def process(self, keys: Any, rows: Any, state: Any) -> None:
        state.event_timer = self._first(keys, state)

    def on_event_timer(self, keys: Any, due: Any, state: Any) -> Any:
        state["n"] += 1
        if self._then is not None:
            state.event_timer = self._then(due, state)
        return keys.table(due=due)


def _run(user: Any, watermarks: list[int | None], keys: int = 3) -> list[Any]:
    operator = Keyed(_SCHEMA, user, by="key", output=_OUTPUT, time="at")
    table = operator.open(Memory(), NoHistory())
    fired, before = [], None
    for batch, watermark in enumerate(watermarks):
        count = keys if batch == 0 else 0
        rows = pa.RecordBatch.from_pydict(
            {"key": list(range(count)), "at": [1_000] * count}, schema=_SCHEMA
        )
        outcome = operator.process(table, BatchInput(batch, rows, before, watermark))
        fired.append([(r["key"], r["due"].microsecond) for r in outcome.results.to_pylist()])
        before = watermark
    return fired


def _at(*microseconds: int) -> Any:
    return np.array(microseconds).astype("M8[us]")


def test_a_timer_is_called_once_when_the_watermark_has_reached_it() -> None:
    fired = _run(Alarm(lambda k, s: _at(10, 20, 30)), [None, 9, 10, 29, 29, 1000])
    assert fired == [[], [], [(0, 10)], [(1, 20)], [], [(2, 30)]]


def test_a_timer_that_is_set_again_is_called_until_the_watermark_is_passed() -> None:
    user = Alarm(lambda k, s: _at(10, 10, 10), lambda due, s: due + np.timedelta64(10, "us"))
    fired = _run(user, [None, 35, 40], keys=3)
    assert sorted(fired[1]) == [(key, at) for key in range(3) for at in (10, 20, 30)]
    assert sorted(fired[2]) == [(key, 40) for key in range(3)]


def test_a_timer_can_be_moved_in_either_direction_and_taken_back() -> None:
    class Moved(Alarm):
        def process(self, keys: Any, rows: Any, state: Any) -> None:
            if state.is_new.all():
                state.event_timer = _at(50, 50, 50)
            else:
                state.event_timer[:] = _at(20, 90, 0)
                state.event_timer[2] = np.datetime64("NaT")

    operator = Keyed(_SCHEMA, Moved(None), by="key", output=_OUTPUT, time="at")
    table = operator.open(Memory(), NoHistory())
    rows = pa.RecordBatch.from_pydict({"key": [0, 1, 2], "at": [1000] * 3}, schema=_SCHEMA)
    for batch in range(2):
        operator.process(table, BatchInput(batch, rows, None, None))
    fired = {}
    for batch, watermark in enumerate((20, 60, 90, 200), 2):
        outcome = operator.process(table, BatchInput(batch, rows[:0], None, watermark))
        fired[watermark] = [row["key"] for row in outcome.results.to_pylist()]
    assert fired == {20: [0], 60: [], 90: [1], 200: []}
    (queue,) = table.queues.values()
    assert queue.count == 0


def test_a_timer_in_the_past_is_refused_and_says_which() -> None:
    class Late(Alarm):
        def process(self, keys: Any, rows: Any, state: Any) -> None:
            state.event_timer = _at(*[5] * len(keys))

    operator = Keyed(_SCHEMA, Late(None), by="key", output=_OUTPUT, time="at")
    table = operator.open(Memory(), NoHistory())
    rows = pa.RecordBatch.from_pydict({"key": [0], "at": [1000]}, schema=_SCHEMA)
    with pytest.raises(OperatorError, match=r"Late.process set state.event_timer to .*which has"):
        operator.process(table, BatchInput(3, rows, 7, 8))


def test_a_timer_that_sets_itself_to_the_same_time_is_refused() -> None:
    with pytest.raises(OperatorError, match="which has passed"):
        _run(Alarm(lambda k, s: _at(10, 10, 10), lambda due, s: due), [None, 50])


def test_a_timer_that_nobody_would_hear_is_refused() -> None:
    class Deaf:
        state: ClassVar[Any] = {"n": pa.int64()}

        def process(self, keys: Any, rows: Any, state: Any) -> None:
            state.clock_timer = state.now

    operator = Keyed(_SCHEMA, Deaf, by="key", output=_OUTPUT)
    table = operator.open(Memory(), NoHistory())
    rows = pa.RecordBatch.from_pydict({"key": [0], "at": [1000]}, schema=_SCHEMA)
    with pytest.raises(SettingError, match="has no method on_clock_timer"):
        operator.process(table, BatchInput(0, rows))


def test_entries_that_no_key_has_any_more_are_let_go() -> None:
    class Short:
        """A key whose life has an end far away is removed at once."""

        state: ClassVar[Any] = {"n": pa.int64()}
        clock_time_to_live = "1000 days"

        def process(self, keys: Any, rows: Any, state: Any) -> None:
            state.remove()

    operator = Keyed(_SCHEMA, Short, by="key", output=_OUTPUT)
    table = operator.open(Memory(), NoHistory())
    rng = random.Random(1)
    for batch in range(200):
        keys = [rng.randrange(10**9) for _ in range(50)]
        rows = pa.RecordBatch.from_pydict({"key": keys, "at": [1] * 50}, schema=_SCHEMA)
        operator.process(table, BatchInput(batch, rows, now_us=batch))
    assert table.open_windows == 0
    (queue,) = table.queues.values()
    assert queue.count < 2000


def test_what_is_due_in_a_table_without_keys_is_nothing() -> None:
    operator = Keyed(_SCHEMA, Alarm(lambda k, s: _at(1)), by="key", output=_OUTPUT, time="at")
    table = operator.open(Memory(), NoHistory())
    due, others = table.take_due("$event_timer", NEVER - 1)
    assert len(due) == len(others) == 0
    assert operator.next_alarm(table) is None
