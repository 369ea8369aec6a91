"""Replay brings loaded windows up to date: nothing opens, nothing closes, nothing counts twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.support.compare import table_states
from tests.support.plain import batch_of
from tests.support.tables import footprint_ages
from trailmark.errors import DamagedSegment, SchemaChanged
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.records import FOOTPRINT, KIND, FootprintKind
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.spec import TimeWindow, Window, count_window

_SCHEMA = pa.schema([("k", pa.string()), ("v", pa.string()), ("t", pa.timestamp("us"))])


def _operator(window: Window) -> Aggregate:
    return Aggregate(_SCHEMA, by="k", window=window, values={"n": f.count(), "last": f.last("v")})


def _given(batch: int, *rows: tuple[Any, ...]) -> BatchInput:
    return BatchInput(batch, batch_of(_SCHEMA, rows, offset=1))


def _loaded(operator: Aggregate, footprints: pa.RecordBatch, batches: Sequence[int]) -> StateTable:
    table = StateTable(operator.layout, Memory())
    stamped = footprints.append_column(FOOTPRINT, pa.array(batches, pa.int64()))
    operator.load(table, stamped, "out/00000")
    return table


_WINDOWS = [count_window(5), count_window(5, 4), count_window(5, 9), TimeWindow("t", 10, 5, 0)]


@pytest.mark.parametrize("window", _WINDOWS, ids=str)
def test_a_window_ignores_batches_up_to_its_footprint(window: Window) -> None:
    operator = _operator(window)
    live = StateTable(operator.layout, Memory())
    batches = [
        _given(0, ("a", "1", 7), ("b", "x" * 300, 7)),
        _given(1, ("a", "2", 8)),
        _given(2, ("b", "y", 9), ("a", "3", 9)),
    ]
    operator.process(live, batches[0])
    operator.process(live, batches[1])
    middle = operator.footprints(live, live.slots(), 0)
    operator.process(live, batches[2])
    recovered = _loaded(operator, middle, [1] * middle.num_rows)
    for given in batches:
        operator.replay(recovered, given, "in/00000")
    assert table_states(operator, recovered) == table_states(operator, live)
    assert set(footprint_ages(recovered)) == {1}


@pytest.mark.parametrize("window", _WINDOWS, ids=str)
def test_replay_opens_no_window(window: Window) -> None:
    operator = _operator(window)
    table = StateTable(operator.layout, Memory())
    operator.replay(table, _given(0, ("a", "1", 0), ("b", None, 5)), "in/00000")
    assert table.open_windows == 0
    assert table.header.slot_top == 0


@pytest.mark.parametrize("window", [count_window(2), count_window(2, 1), count_window(2, 4)])
def test_a_window_that_would_close_in_a_replay_is_damage(window: Window) -> None:
    operator = _operator(window)
    live = StateTable(operator.layout, Memory())
    operator.process(live, _given(0, ("a", "1", 0)))
    recovered = _loaded(operator, operator.footprints(live, live.slots(), 1), [0])
    with pytest.raises(DamagedSegment, match=r"(?s)contradicts the logged input.*in/00000"):
        operator.replay(recovered, _given(1, ("a", "2", 0)), "in/00000")


def test_an_empty_batch_replays_to_nothing() -> None:
    operator = _operator(count_window(5))
    live = StateTable(operator.layout, Memory())
    operator.process(live, _given(0, ("a", "1", 0)))
    before = table_states(operator, live)
    operator.replay(live, _given(1), "in/00000")
    assert table_states(operator, live) == before


def test_footprints_name_their_kind_in_the_order_they_are_asked_for() -> None:
    operator = _operator(count_window(5))
    table = StateTable(operator.layout, Memory())
    operator.process(table, _given(0, ("a", "1", 0), ("b", "1", 0), ("c", "1", 0)))
    footprints = operator.footprints(table, table.slots(), 2)
    open_, check = int(FootprintKind.OPEN), int(FootprintKind.CHECK)
    assert footprints.column(KIND).to_pylist() == [open_, open_, check]
    assert operator.footprints(table, table.slots()[:0], 0).num_rows == 0


def test_footprints_of_no_window_load_nothing() -> None:
    operator = _operator(count_window(5))
    table = StateTable(operator.layout, Memory())
    empty = operator.footprints(table, table.slots(), 0)
    assert _loaded(operator, empty, []).open_windows == 0


def test_footprints_that_lack_a_column_are_refused() -> None:
    operator = _operator(count_window(5))
    table = StateTable(operator.layout, Memory())
    operator.process(table, _given(0, ("a", "1", 0)))
    footprints = operator.footprints(table, table.slots(), 1).drop_columns(["n.count"])
    with pytest.raises(SchemaChanged, match=r"(?s)lack \['n.count'\].*out/00000"):
        _loaded(operator, footprints, [0])


def test_sliced_footprints_load_as_they_are() -> None:
    operator = _operator(count_window(5, 2))
    table = StateTable(operator.layout, Memory())
    operator.process(table, _given(0, *[(f"k{n % 3}", f"v{n}" * n, 0) for n in range(12)]))
    footprints = operator.footprints(table, table.slots(), 0)
    for start in range(footprints.num_rows):
        part = footprints.slice(start, 2)
        loaded = _loaded(operator, part, [0] * part.num_rows)
        again = operator.footprints(loaded, loaded.slots(), 0)
        assert operator.widen(again, "").equals(operator.widen(part, ""))
