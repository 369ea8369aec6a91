"""Windows open, take tuples and close as they should; each rule on its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.cases import Case
from tests.support.checks import check_against_oracle
from tests.support.compare import assert_same_rows, exact
from tests.support.plain import batch_of, plain_rows
from trailmark.errors import SchemaError, ValueOverflow
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput, Outcome
from trailmark.records import START
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow, TimeWindow, Window, count_window, time_window

_SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int32())])
_TIMED = pa.schema([("k", pa.string()), ("t", pa.timestamp("us"))])


class Run:
    """An aggregate of one string key, fed batch by batch."""

    def __init__(self, schema: pa.Schema, window: Window, **values: AnyFunction) -> None:
        self.schema = schema
        self.operator = Aggregate(schema, by="k", window=window, values=values, late="keep")
        self.table = StateTable(self.operator.layout, Memory())
        self._batch = -1

    def feed(
        self,
        rows: Sequence[Sequence[Any]],
        late_before: int | None = None,
        watermark: int | None = None,
    ) -> Outcome:
        self._batch += 1
        batch = batch_of(self.schema, rows)
        return self.operator.process(
            self.table, BatchInput(self._batch, batch, late_before, watermark)
        )

    def results(self, *arguments: Any, **more: Any) -> list[tuple[Any, ...]]:
        results = self.feed(*arguments, **more).results
        return sorted(tuple(row.values()) for row in results.to_pylist())


def _values(*numbers: int) -> list[tuple[str, int]]:
    return [("a", number) for number in numbers]


# Count windows


def test_a_tumbling_window_closes_with_its_last_tuple() -> None:
    run = Run(_SCHEMA, count_window(3), total=f.sum("v"))
    assert run.results(_values(1, 2)) == []
    assert run.results(_values(4)) == [("a", 7)]
    assert run.results(_values(1, 1, 1, 2, 2, 2, 3)) == [("a", 3), ("a", 6)]
    assert run.table.open_windows == 1


def test_an_overlapping_window_opens_every_slide_tuples() -> None:
    run = Run(_SCHEMA, count_window(4, 2), total=f.sum("v"))
    assert run.results(_values(1, 10, 100, 1000)) == [("a", 0, 1111)]
    assert run.table.open_windows == 1, "a window opens with its first tuple, not before"
    assert run.results(_values(1, 1)) == [("a", 2, 1102)]
    assert run.table.open_windows == 1


def test_tuples_between_gapped_windows_belong_to_none() -> None:
    run = Run(_SCHEMA, count_window(2, 5), total=f.sum("v"))
    assert run.results(_values(1, 2)) == [("a", 3)]
    assert run.table.open_windows == 1, "the gap is counted by the window that follows it"
    assert run.results(_values(100, 100)) == []
    assert run.results(_values(100, 4, 5, 100)) == [("a", 9)]


def test_nulls_are_one_key() -> None:
    run = Run(_SCHEMA, count_window(2), total=f.sum("v"))
    assert run.results([(None, 1), ("", 5), (None, 2)]) == [(None, 3)]


def test_windows_of_one_tuple_close_at_once() -> None:
    run = Run(_SCHEMA, count_window(1), total=f.sum("v"))
    assert run.results(_values(3, 4)) == [("a", 3), ("a", 4)]
    assert run.table.open_windows == 0


# Time windows


def test_time_windows_are_aligned_to_the_epoch_before_it_too() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 10, 0), n=f.count())
    times = [("a", t) for t in (-11, -10, -1, 0, 9, 10)]
    assert run.results(times, watermark=100) == [
        ("a", -20, 1),
        ("a", -10, 2),
        ("a", 0, 2),
        ("a", 10, 1),
    ]


@pytest.mark.parametrize(
    ("unit", "time", "start"),
    [
        ("s", -1, -1_000_000),
        ("ms", -1, -1_000),
        ("us", -1, -1),
        ("ns", -1, -1),
        ("ns", -1_000, -1),
        ("ns", -1_001, -2),
        ("ns", 999, 0),
        ("ns", 1_000, 1),
    ],
)
def test_times_of_any_unit_are_rounded_down_to_microseconds(
    unit: str, time: int, start: int
) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp(unit))])
    run = Run(schema, TimeWindow("t", 1, 1, 0), n=f.count())
    assert run.results([("a", time)], watermark=10) == [("a", start, 1)]


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("sign", [1, -1])
def test_times_beyond_what_windows_can_hold_are_refused(unit: str, sign: int) -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp(unit))])
    run = Run(schema, TimeWindow("t", 1, 1, 0), n=f.count())
    with pytest.raises(SchemaError, match="146,000 years"):
        run.feed([("a", sign * ((1 << 63) - 1))])


def test_a_tuple_is_in_every_window_that_holds_its_time() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 4, 0), n=f.count())
    assert run.results([("a", 9)], watermark=100) == [("a", 0, 1), ("a", 4, 1), ("a", 8, 1)]


def test_a_time_between_windows_is_in_none_and_is_not_late() -> None:
    run = Run(_TIMED, TimeWindow("t", 2, 10, 0), n=f.count())
    outcome = run.feed([("a", 5), ("a", 1), ("a", 11)], late_before=5, watermark=100)
    assert [row[START] for row in outcome.results.to_pylist()] == [10]
    assert outcome.late is not None
    assert plain_rows(outcome.late) == [{"k": "a", "t": 1}]
    assert (outcome.late_rows, outcome.late_updates) == (1, 1)


def test_a_window_closes_when_the_watermark_reaches_its_end() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 10, 0), n=f.count())
    assert run.results([("a", 0), ("a", 9)], watermark=9) == []
    assert run.results([("a", 5)], late_before=9, watermark=10) == [("a", 0, 3)]
    assert run.table.open_windows == 0


def test_very_many_windows_close_in_a_batch_without_tuples() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 10, 0), n=f.count())
    run.feed([(f"key {n}", n % 30) for n in range(3000)])
    assert len(run.results([], watermark=20)) == 2000
    assert len(run.results([], late_before=20, watermark=1000)) == 1000
    assert run.table.open_windows == 0


@pytest.mark.parametrize("sign", [1, -1])
def test_the_furthest_times_still_have_their_windows(sign: int) -> None:
    size, time = 1 << 60, sign << 62
    run = Run(_TIMED, TimeWindow("t", size, size // 3, 0), n=f.count())
    assert run.results([("a", time)], watermark=time) == []
    closed = run.results([], late_before=time, watermark=(1 << 63) - 1)
    assert len(closed) == 3
    assert all(start <= time < start + size for _, start, _ in closed)


def test_windows_close_without_new_tuples() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 10, 0), n=f.count(), last=f.last("k"))
    run.feed([("a", 0), ("b" * 600, 5)])
    assert run.results([], watermark=10) == [("a", 0, 1, "a"), ("b" * 600, 0, 1, "b" * 600)]


def test_a_tuple_is_late_only_if_all_its_windows_have_closed() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 5, 0), n=f.count())
    outcome = run.feed([("a", 4), ("a", 7), ("a", 12)], late_before=10, watermark=10)
    assert (outcome.late_rows, outcome.late_updates) == (1, 3)
    assert outcome.late is not None
    assert plain_rows(outcome.late) == [{"k": "a", "t": 4}]
    assert run.table.open_windows == 2


def test_tuples_without_a_time_are_dropped_and_counted() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 10, 0), n=f.count())
    outcome = run.feed([("a", None), ("a", 1), (None, None)], watermark=10)
    assert outcome.null_times == 2
    assert outcome.late is None
    assert outcome.results.to_pylist() == [{"k": "a", START: 0, "n": 1}]


def test_late_rows_are_counted_but_not_kept_unless_asked_for() -> None:
    operator = Aggregate(
        _TIMED, by="k", window=TimeWindow("t", 10, 10, 0), values={"n": f.count()}, late="drop"
    )
    table = StateTable(operator.layout, Memory())
    rows = batch_of(_TIMED, [("a", 1)])
    outcome = operator.process(table, BatchInput(0, rows, late_before=10, watermark=10))
    assert outcome.late_rows == 1
    assert outcome.late is None


def test_nothing_closes_before_any_event_time_is_known() -> None:
    run = Run(_TIMED, TimeWindow("t", 10, 10, 0), n=f.count())
    assert run.results([("a", 1)]) == []
    assert run.table.open_windows == 1


# What is handed on


def test_published_results_show_the_bounds_of_time_windows_in_the_zone_of_the_column() -> None:
    schema = pa.schema([("k", pa.string()), ("t", pa.timestamp("ms", "Asia/Tokyo"))])
    window = time_window("t", "1 second", slide="500 ms")
    operator = Aggregate(schema, by="k", window=window, values={"n": f.count()})
    table = StateTable(operator.layout, Memory())
    rows = batch_of(schema, [("a", 1_700)])
    results = operator.process(table, BatchInput(0, rows, None, 10_000_000)).results
    published = operator.publish(results)
    assert published.schema == operator.result_schema
    assert sorted(plain_rows(published), key=lambda row: int(row["window_start"])) == [
        {"k": "a", "window_start": 1_000_000, "window_end": 2_000_000, "n": 1},
        {"k": "a", "window_start": 1_500_000, "window_end": 2_500_000, "n": 1},
    ]


@pytest.mark.parametrize("window", [count_window(2), count_window(2, 1), count_window(2, 3)])
def test_published_results_of_count_windows_hide_where_they_start(window: CountWindow) -> None:
    run = Run(_SCHEMA, window, total=f.sum("v"))
    results = run.feed(_values(1, 2)).results
    published = run.operator.publish(results)
    assert published.schema == run.operator.result_schema
    assert published.to_pylist() == [{"k": "a", "total": 3}]


def test_opened_windows_are_those_that_are_new_and_still_open() -> None:
    run = Run(_SCHEMA, count_window(2), n=f.count())
    run.feed([("old", 1)])
    outcome = run.feed([("old", 1), ("old", 1), ("new", 1), ("gone", 1), ("gone", 1)])
    keys = run.table.read_keys(outcome.opened, run.table.read(outcome.opened))[0].to_pylist()
    assert sorted(keys) == ["new", "old"], "the second window of old is a new one"


def test_a_value_that_does_not_fit_stops_the_batch() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    run = Run(schema, count_window(2), total=f.sum("v"))
    with pytest.raises(ValueOverflow, match="sum of column 'v' does not fit int64 in 1 window"):
        run.feed([("a", (1 << 63) - 1), ("a", 1)])


def test_many_windows_of_a_key_that_close_in_one_batch_are_each_named() -> None:
    run = Run(_SCHEMA, count_window(4, 1), total=f.sum("v"))
    found = run.feed(_values(*range(100))).results
    assert_same_rows(
        found,
        [{"k": "a", START: n, "total": 4 * n + 6} for n in range(97)],
        "a hundred tuples",
    )


# Arrow arrays as they come


_WINDOWS: list[Window] = [
    CountWindow(3, 3),
    CountWindow(3, 1),
    CountWindow(2, 4),
    TimeWindow("t", 4, 4, 0),
    TimeWindow("t", 6, 2, 0),
    TimeWindow("t", 2, 5, 0),
]
_ROWS = [
    (None if n % 7 == 3 else f"key {n % 3}" * (n % 4), n, None if n % 5 == 1 else n / 4, n % 2 == 0)
    for n in range(40)
]
_WIDE = pa.schema(
    [("k", pa.string()), ("t", pa.timestamp("us")), ("x", pa.float64()), ("b", pa.bool_())]
)
_ALL: dict[str, AnyFunction] = {
    "n": f.count("x"),
    "sum": f.sum("x"),
    "avg": f.avg("x"),
    "low": f.min("k"),
    "high": f.max("b"),
    "first": f.first("k"),
    "last": f.last("x", ignore_nulls=True),
    "dev": f.stddev("x"),
}


def _case(window: Window, cuts: Sequence[tuple[int, int]], offset: int) -> Case:
    batches = [(offset, _ROWS[start:end]) for start, end in cuts]
    marks = [max(0, end - 8) for _, end in cuts]
    return Case.of(_WIDE, by=["k"], window=window, values=_ALL, batches=batches, watermarks=marks)


@pytest.mark.parametrize("window", _WINDOWS, ids=str)
@pytest.mark.parametrize("offset", [0, 1, 8, 63])
def test_arrays_that_begin_inside_their_buffers_give_the_same_results(
    window: Window, offset: int
) -> None:
    check_against_oracle(_case(window, [(0, 13), (13, 14), (14, 40)], offset))


@pytest.mark.parametrize("window", _WINDOWS, ids=str)
def test_single_rows_and_empty_batches_give_the_same_results(window: Window) -> None:
    check_against_oracle(_case(window, [(n, n + 1) for n in range(20)], 0))
    check_against_oracle(_case(window, [(0, 0), (0, 20), (20, 20), (20, 20), (20, 40)], 0))
    check_against_oracle(_case(window, [(0, 0)], 0))


@pytest.mark.parametrize("window", [w for w in _WINDOWS if isinstance(w, CountWindow)], ids=str)
def test_the_cut_into_batches_does_not_matter_to_count_windows(window: CountWindow) -> None:
    """Also bit for bit: floats are added one after another."""
    whole = pa.concat_batches([_case(window, [(0, 40)], 0).batches[0]])
    found = []
    for size in (1, 3, 7, 40):
        operator = Aggregate(_WIDE, by="k", window=window, values=_ALL)
        table = StateTable(operator.layout, Memory())
        rows = [
            row
            for batch, start in enumerate(range(0, 40, size))
            for row in plain_rows(
                operator.process(table, BatchInput(batch, whole.slice(start, size))).results
            )
        ]
        found.append(sorted(repr([exact(value) for value in row.values()]) for row in rows))
    assert found[0] == found[1] == found[2] == found[3]
    assert found[0]


def test_columns_that_are_not_needed_may_come_along() -> None:
    operator = Aggregate(_SCHEMA, by="k", window=count_window(1), values={"n": f.count()})
    table = StateTable(operator.layout, Memory())
    rows = pa.record_batch({"z": pa.array([[1]]), "v": pa.array([1], pa.int32()), "k": ["a"]})
    assert operator.process(table, BatchInput(0, rows)).results.to_pylist() == [{"k": "a", "n": 1}]


def test_dictionary_and_large_strings_are_the_strings_they_stand_for() -> None:
    schema = pa.schema([("k", pa.string()), ("v", pa.string())])
    values = {"low": f.min("v"), "n": f.count("v")}
    results = []
    changes: list[Callable[[pa.Array], pa.Array]] = [
        lambda column: column,
        lambda column: column.dictionary_encode(),
        lambda column: column.cast(pa.large_string()),
    ]
    for change in changes:
        operator = Aggregate(schema, by="k", window=count_window(2), values=values)
        table = StateTable(operator.layout, Memory())
        keys, texts = pa.array(["a", "b", "a", "b"]), pa.array(["y", None, "x", "z"])
        rows = pa.RecordBatch.from_arrays([change(keys), change(texts)], names=["k", "v"])
        results.append(operator.process(table, BatchInput(0, rows)).results)
    assert results[0].equals(results[1])
    assert results[0].equals(results[2])


def test_a_large_batch_is_cut_into_pairs_without_losing_any() -> None:
    """More pairs of tuple and window than are worked on at a time."""
    schema = pa.schema([("k", pa.int32()), ("v", pa.int64())])
    window = count_window(100, 1)
    operator = Aggregate(schema, by="k", window=window, values={"s": f.sum("v"), "n": f.count()})
    table = StateTable(operator.layout, Memory())
    numbers = np.arange(60_000, dtype=np.int64)
    rows = pa.record_batch([np.zeros(60_000, dtype=np.int32), numbers], schema=schema)
    results = operator.process(table, BatchInput(0, rows)).results
    assert results.num_rows == 60_000 - 99
    starts = results.column(START).to_numpy()
    assert sorted(starts.tolist()) == list(range(60_000 - 99))
    assert (results.column("s").to_numpy() == 100 * starts + 4950).all()
    assert set(results.column("n").to_pylist()) == {100}
    assert table.open_windows == 99
