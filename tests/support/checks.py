"""What every random case of an aggregate is held to: the oracle's answer, also after recovery."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.support.cases import Case
from tests.support.compare import (
    assert_same_outcome,
    assert_same_states,
    footprint_states,
    table_states,
)
from tests.support.forks import Forked
from tests.support.oracle import Identity, Row, place_in_order
from tests.support.plain import plain_rows
from trailmark.errors import ValueOverflow
from trailmark.operators.aggregate import Aggregate
from trailmark.records import FOOTPRINT, KIND, NO_BATCH
from trailmark.state.memory import Memory
from trailmark.state.table import Slots, StateTable

MakeMemory = Callable[[], Memory]

_NONE = np.empty(0, dtype=np.int64)


def check_against_oracle(case: Case, make_memory: MakeMemory = Memory) -> None:
    """Every batch gives the oracle's results and leaves the oracle's open windows."""
    operator, oracle = case.operator(), case.oracle()
    table = StateTable(operator.layout, make_memory())
    for batch in range(len(case.batches)):
        given = case.given(batch)
        rows = plain_rows(given.rows)
        what = f"batch {batch}"
        check_order(case, batch, rows)
        try:
            expected = oracle.process(batch, rows, given.late_before, given.watermark)
        except ValueOverflow:
            with pytest.raises(ValueOverflow):
                operator.process(table, given)
            return
        assert_same_outcome(operator.process(table, given), expected, oracle, what)
        states = oracle.open_windows()
        assert table.open_windows == len(states), f"{what}: number of open windows"
        assert_same_states(table_states(operator, table), states, what)


def check_order(case: Case, batch: int, rows: list[Row]) -> None:
    """Rows are taken by the columns that were asked for, and as they came where these are equal."""
    came = plain_rows(case.batches[batch])
    wanted = sorted(came, key=lambda row: place_in_order(row, case.order_by))
    assert repr(rows) == repr(wanted), f"batch {batch}: order"


def check_reload(case: Case, make_memory: MakeMemory = Memory) -> None:
    """Footprints of all windows, loaded into a new table, give the same footprints again."""
    operator = case.operator()
    table = StateTable(operator.layout, make_memory())
    for batch in range(len(case.batches)):
        operator.process(table, case.given(batch))
    footprints = operator.footprints(table, table.slots(), 0)
    loaded = StateTable(operator.layout, make_memory())
    stamped = footprints.append_column(FOOTPRINT, pa.array([0] * footprints.num_rows, pa.int64()))
    operator.load(loaded, stamped, "reload")
    again = operator.footprints(loaded, loaded.slots(), 0)
    assert again.schema == footprints.schema
    assert again.num_rows == table.open_windows
    assert_same_states(
        footprint_states(operator, again), footprint_states(operator, footprints), "reload"
    )


class EventualCheckpoint:
    """The newest footprint of every window, taken a few at a time as checkpointing does."""

    def __init__(self, operator: Aggregate, rng: random.Random) -> None:
        self._operator = operator
        self._rng = rng
        self._logged: dict[int, pa.RecordBatch] = {}
        self._newest: dict[Identity, tuple[int, int]] = {}

    def take(self, table: StateTable, batch: int, opened: Slots) -> None:
        """A footprint for every window that has none, and for some of the oldest others."""
        bare = table.take_oldest(NO_BATCH + 1, batch, table.open_windows)
        most = self._rng.choice((0, 0, 1, 2, 5, 1000))
        checked = table.take_oldest(batch, batch, most)
        slots = np.concatenate([opened, bare, checked])
        footprints = self._operator.footprints(table, slots, len(slots) - len(checked))
        kinds = footprints.column(KIND).to_pylist()
        assert kinds == [0] * (len(slots) - len(checked)) + [1] * len(checked)
        self._logged[batch] = footprints
        for place, identity in enumerate(footprint_states(self._operator, footprints)):
            self._newest[identity] = batch, place

    def rebuild(self, case: Case, table: StateTable, batch: int, memory: Memory) -> StateTable:
        """The open windows of ``table`` from footprints and a replay of the batches since."""
        open_windows = table_states(self._operator, table)
        recovered = StateTable(self._operator.layout, memory)
        needed: dict[int, list[int]] = {}
        for found, place in sorted(self._newest[identity] for identity in open_windows):
            needed.setdefault(found, []).append(place)
        for found, places in needed.items():
            rows = self._logged[found].take(pa.array(places))
            stamps = pa.array([found] * len(places), pa.int64())
            self._operator.load(recovered, rows.append_column(FOOTPRINT, stamps), "rebuild")
        oldest = min(needed, default=None)
        assert recovered.oldest_footprint() == table.oldest_footprint() == oldest
        for replayed in range(batch if oldest is None else oldest, batch):
            self._operator.replay(recovered, case.given(replayed + 1), "rebuild")
        assert_same_states(
            table_states(self._operator, recovered), open_windows, f"rebuilt after batch {batch}"
        )
        return recovered


def check_restricted_replay(
    case: Case, rng: random.Random, make_memory: MakeMemory = Memory
) -> None:
    """A table rebuilt at random batches goes on exactly as the live one would have."""
    operator, oracle = case.operator(), case.oracle()
    table = StateTable(operator.layout, make_memory())
    checkpoint = EventualCheckpoint(operator, rng)
    for batch in range(len(case.batches)):
        logs_opened = rng.random() < 0.8
        given = replace(case.given(batch), footprint=batch if logs_opened else NO_BATCH)
        expected = oracle.process(batch, plain_rows(given.rows), given.late_before, given.watermark)
        outcome = operator.process(table, given)
        assert_same_outcome(outcome, expected, oracle, f"batch {batch}")
        checkpoint.take(table, batch, opened=outcome.opened if logs_opened else _NONE)
        if rng.random() < 0.4 or batch == len(case.batches) - 1:
            table = checkpoint.rebuild(case, table, batch, make_memory())
            assert_same_states(
                table_states(operator, table), oracle.open_windows(), f"after batch {batch}"
            )


def check_fork(case: Case, rng: random.Random, *, origin_follows: bool) -> None:
    """A fork is as `Forked` says."""
    operator, oracle = case.operator(), case.oracle()
    Forked(
        operator,
        StateTable(operator.layout, Memory()),
        oracle,
        [case.given(batch) for batch in range(len(case.batches))],
        lambda given: oracle.process(
            given.batch, plain_rows(given.rows), given.late_before, given.watermark
        ),
        lambda outcome, expected, what: assert_same_outcome(outcome, expected, oracle, what),
        lambda state: table_states(operator, state),
    ).check(rng, origin_follows=origin_follows)
