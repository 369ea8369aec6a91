"""User-defined functions: what they are given, what they may return, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.plain import batch_of
from tests.support.userfunctions import notes, trail, weighted
from trailmark.errors import SchemaError, SettingError, UnsupportedType
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.protocol import BatchInput
from trailmark.records import FOOTPRINT
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable
from trailmark.windows.functions import State, UserFunction
from trailmark.windows.lists import extend_lists
from trailmark.windows.spec import CountWindow, TimeWindow, Window

_SCHEMA = pa.schema([("k", pa.int8()), ("v", pa.int64()), ("t", pa.timestamp("us"))])


_FOUR = CountWindow(4, 4)


def _update(state: State, window: Any, column: pa.Array) -> State:
    np.add.at(state["sum"], window, column.to_numpy(zero_copy_only=False))
    return state


TOTAL = UserFunction(
    columns=["v"],
    state=pa.schema([("sum", pa.int64())]),
    result_type=pa.int64(),
    init=lambda n: {"sum": np.zeros(n, dtype=np.int64)},
    update=_update,
    merge=lambda a, b: {"sum": a["sum"] + b["sum"]},
    result=lambda state: pa.array(state["sum"]),
    name="total",
)


def run(
    call: UserFunction,
    batches: Sequence[Sequence[tuple[Any, ...]]],
    window: Window = _FOUR,
    watermark: int | None = None,
) -> list[Any]:
    operator = Aggregate(_SCHEMA, by="k", window=window, values={"x": call})
    table = StateTable(operator.layout, Memory())
    found: list[Any] = []
    for batch, rows in enumerate(batches):
        given = BatchInput(batch, batch_of(_SCHEMA, rows, offset=2), None, watermark)
        found += operator.process(table, given).results.column("x").to_pylist()
    return found


def test_tuples_of_several_batches_are_merged_in_order() -> None:
    call = trail("v")
    whole = run(call, [[(1, v, 0) for v in (3, 1, 4, 1)]])
    assert run(call, [[(1, 3, 0)], [(1, 1, 0), (1, 4, 0)], [], [(1, 1, 0)]]) == whole
    assert run(call, [[(1, 1, 0)], [(1, 3, 0), (1, 4, 0)], [(1, 1, 0)]]) != whole


def test_only_tuples_of_a_window_reach_it() -> None:
    gapped = CountWindow(1, 3)
    assert run(TOTAL, [[(1, v, 0) for v in range(8)]], gapped) == [0, 3, 6]
    assert run(TOTAL, [[(1, v, 0)] for v in range(8)], gapped) == [0, 3, 6]
    by_time = TimeWindow("t", 2, 4, 0)
    assert run(TOTAL, [[(1, 10, 0), (1, 100, 2), (1, 7, 1)]], by_time, watermark=9) == [17]


def test_a_replay_that_touches_no_window_does_not_call_update() -> None:
    operator = Aggregate(
        _SCHEMA, by="k", window=CountWindow(4, 4), values={"x": weighted("v", "v")}
    )
    table = StateTable(operator.layout, Memory())
    operator.replay(table, BatchInput(0, batch_of(_SCHEMA, [(1, 2, 3)])), "log")
    assert table.open_windows == 0


def test_states_may_be_returned_read_only_or_shared() -> None:
    """An Arrow array as NumPy is read-only; least and greatest of one value are one array."""

    def update(state: State, window: Any, column: pa.Array) -> State:
        sums = state["sum"].copy()
        np.add.at(sums, window, column.to_numpy(zero_copy_only=False))
        frozen = pa.array(sums).to_numpy()
        return {"sum": frozen, "again": frozen}

    shared = replace(
        TOTAL,
        state=pa.schema([("sum", pa.int64()), ("again", pa.int64())]),
        init=lambda n: dict.fromkeys(("sum", "again"), np.broadcast_to(np.int64(0), n)),
        update=update,
        merge=lambda a, b: {"sum": a["sum"] + b["sum"], "again": a["again"] * 10 + b["again"]},
        result=lambda state: pa.array(state["sum"] * 1000 + state["again"]),
    )
    assert run(shared, [[(1, 1, 0), (1, 1, 0)], [(1, 3, 0), (1, 0, 0)]]) == [5023]


def test_states_of_every_fixed_width_survive_a_footprint() -> None:
    kinds = [
        *[pa.int8(), pa.uint16(), pa.int32(), pa.uint64(), pa.int64()],
        *[pa.float16(), pa.float32(), pa.float64(), pa.binary(1), pa.binary(11)],
    ]
    state = pa.schema([(f"s{place}", kind) for place, kind in enumerate(kinds)])
    values = [
        *[-5, 65535, -(1 << 31), (1 << 64) - 1, -(1 << 63)],
        *[0.5, -0.0, float("inf"), b"x", b"hello\0world"],
    ]
    dtypes = [
        np.dtype((np.void, k.byte_width))
        if pa.types.is_fixed_size_binary(k)
        else k.to_pandas_dtype()
        for k in kinds
    ]

    def init(n: int) -> State:
        return {
            field.name: np.array([value] * n, dtype=dtype)
            for field, value, dtype in zip(state, values, dtypes, strict=True)
        }

    call = replace(TOTAL, state=state, init=init, update=lambda state, *_: state)
    operator = Aggregate(_SCHEMA, by="k", window=CountWindow(4, 4), values={"x": call})
    table, again = (StateTable(operator.layout, Memory()) for _ in range(2))
    operator.process(table, BatchInput(0, batch_of(_SCHEMA, [(1, 0, 0), (2, 0, 0)])))
    footprints = operator.footprints(table, table.slots(), 2)
    operator.load(again, footprints.append_column(FOOTPRINT, pa.array([0, 0], pa.int64())), "log")
    for found in (footprints, operator.footprints(again, again.slots(), 2)):
        assert [found.column(f"x.{name}")[0].as_py() for name in state.names] == values
    assert operator.footprints(again, again.slots(), 2).equals(footprints)


@pytest.mark.parametrize(
    ("step", "broken", "text"),
    [
        ("init", lambda n: {"total": np.zeros(n)}, r"init must return a dictionary with \['sum'\]"),
        ("init", lambda n: np.zeros(n), "init must return a dictionary"),
        (
            "init",
            lambda n: {"sum": np.zeros(n + 1, dtype=np.int64)},
            r"init returned 'sum' of shape",
        ),
        (
            "init",
            lambda n: {"sum": np.zeros((n, 1), dtype=np.int64)},
            r"shape \(1, 1\), not \(1,\)",
        ),
        ("init", lambda n: {"sum": np.zeros(n)}, "init returned 'sum' as float64, declared int64"),
        (
            "update",
            lambda s, *_: {"sum": s["sum"].astype(object)},
            "update returned 'sum' as object",
        ),
        ("update", lambda *_: None, "update must return a dictionary"),
        ("merge", lambda a, b: {"sum": (a["sum"] + b["sum"])[:0]}, "merge returned 'sum' of shape"),
        (
            "result",
            lambda s: pa.array(s["sum"], pa.int32()),
            "result returned int32, declared int64",
        ),
        ("result", lambda s: s["sum"], "result returned .*ndarray.*, declared int64"),
        ("result", lambda s: pa.array([1, 2, 3]), "result returned 3 values for 1 windows"),
    ],
)
def test_what_a_step_returns_is_checked(step: str, broken: Any, text: str) -> None:
    call = replace(TOTAL, **{step: broken})
    with pytest.raises(SchemaError, match=text):
        run(call, [[(1, 0, 0), (1, 0, 0)], [(1, 0, 0), (1, 0, 0)]])


def test_result_is_not_asked_about_no_windows() -> None:
    call = replace(TOTAL, result=lambda s: pa.array([int(n) for n in s["sum"]]))
    assert run(call, [[(1, 5, 0)], [(1, 5, 0)] * 3]) == [20]


def test_a_result_may_come_in_chunks() -> None:
    call = replace(TOTAL, result=lambda s: pa.chunked_array([s["sum"][:1], s["sum"][1:]]))
    assert run(call, [[(1, 5, 0)] * 4 + [(2, 1, 0)] * 4]) == [20, 4]


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.bool_(), pa.decimal128(9, 2), pa.timestamp("us"), pa.large_string()),
        *(pa.list_(pa.list_(pa.int8())), pa.list_(pa.float16()), pa.list_(pa.binary(2))),
        *(pa.map_(pa.int8(), pa.int8()), pa.struct([("a", pa.int8())])),
    ],
    ids=str,
)
def test_a_state_that_cannot_be_kept_is_refused(kind: pa.DataType) -> None:
    call = replace(TOTAL, state=pa.schema([("sum", kind)]))
    with pytest.raises(UnsupportedType, match=r"State field 'sum' of type .* cannot be kept"):
        run(call, [])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["", "ä" * 300, "x"]),
        (pa.binary(), [b"\0", b"", b"\xff" * 9]),
        (pa.list_(pa.int8()), [[], [1, -1], [3]]),
        (pa.list_(pa.bool_()), [[True, False, True], [], [False]]),
        (pa.list_(pa.float64()), [[0.5, float("inf")], [], []]),
        (pa.list_(pa.timestamp("us", "UTC")), [[1, 2], [3], []]),
        (pa.list_(pa.decimal128(9, 2)), [[], [], [Decimal("1.25")]]),
        (pa.list_(pa.string()), [["a", "", "ä"], [], [""]]),
        (pa.list_(pa.binary()), [[b""], [b"a", b"bc"], []]),
    ],
    ids=str,
)
def test_states_of_any_length_survive_batches_and_footprints(
    kind: pa.DataType, values: list[Any]
) -> None:
    """Each window is given the value that its number asks for, beside a field of three bytes."""
    every = pa.array(values, kind)

    def update(state: State, window: Any, column: pa.Array) -> State:
        taken = np.zeros(len(state["text"]), dtype=np.int64)
        taken[window] = column.to_numpy()
        return state | {"held": every.take(pa.array(taken)), "text": every_text.take(taken)}

    every_text = pa.array(["none", "one", "many"])
    call = UserFunction(
        columns=["v"],
        state=pa.schema([("odd", pa.binary(3)), ("held", kind), ("text", pa.string())]),
        result_type=kind,
        init=lambda n: {
            "odd": np.full(n, b"odd", dtype="V3"),
            "held": every.take(pa.array(np.ones(n, np.int64))),
            "text": ["begun"] * n,
        },
        update=update,
        merge=lambda earlier, later: later,
        result=lambda state: state["held"],
    )
    operator = Aggregate(_SCHEMA, by="k", window=CountWindow(3, 3), values={"x": call})
    table = StateTable(operator.layout, Memory())
    rows = [(key, 0, 0) for key in range(3)]
    for batch, given in enumerate((rows, [(key, key, 0) for key in range(3)])):
        operator.process(table, BatchInput(batch, batch_of(_SCHEMA, given, offset=2)))
    footprints = operator.footprints(table, table.slots(), 0)
    footprints.validate(full=True)
    assert operator.weigh(footprints) >= footprints.nbytes // 64
    assert not operator.trouble(footprints, 1)
    loaded = StateTable(operator.layout, Memory())
    operator.load(loaded, footprints.append_column(FOOTPRINT, pa.array([1, 1, 1])), "test")
    assert operator.content(loaded).equals(operator.content(table))
    by_key = dict(zip(*(footprints.column(n).to_pylist() for n in ("k", "x.held")), strict=True))
    assert [by_key[key] for key in range(3)] == every.to_pylist()
    nothing = batch_of(_SCHEMA, [(key, 2, 0) for key in range(3)], offset=2)
    for state in (table, loaded):
        results = operator.process(state, BatchInput(2, nothing)).results
        assert results.column("x").to_pylist() == every.take(pa.array([2, 2, 2])).to_pylist()


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ([["a"], None], "with nulls"),
        ([["a"], ["b", None]], "with nulls"),
        ([["a"]], "with 1 values, not 2"),
        ([[1], [2]], "declared list<item: string>, as something else"),
        (3, "as something else"),
    ],
    ids=str,
)
def test_texts_and_lists_that_are_not_as_declared_are_refused(returned: Any, text: str) -> None:
    call = replace(
        TOTAL,
        state=pa.schema([("sum", pa.list_(pa.string()))]),
        init=lambda n: {"sum": [[]] * n},
        update=lambda state, window, column: {"sum": returned},
    )
    with pytest.raises(SchemaError, match=text):
        run(call, [[(1, 1, 0), (2, 1, 0)]])


def test_what_windows_of_a_users_function_held_is_given_back() -> None:
    operator = Aggregate(_SCHEMA, by="k", window=CountWindow(30, 30), values={"x": notes("v")})
    table = StateTable(operator.layout, Memory())
    tops = []
    for batch in range(40):
        rows = batch_of(_SCHEMA, [(1, 100 + (7 * batch + n) % 900, 0) for n in range(10)], offset=2)
        operator.process(table, BatchInput(batch, rows))
        tops.append(int(table.header.heap_top))
    assert max(tops) == max(tops[:9])


def test_a_state_field_named_twice_is_refused() -> None:
    call = replace(TOTAL, state=pa.schema([("a", pa.int8()), ("a", pa.int8())]))
    with pytest.raises(SettingError, match="named twice"):
        run(call, [])


@pytest.mark.parametrize(
    "kind",
    [pa.null(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.string_view()],
    ids=str,
)
def test_columns_that_the_input_log_cannot_tell_apart_are_refused(kind: pa.DataType) -> None:
    schema = pa.schema([("k", pa.int8()), ("v", kind)])
    with pytest.raises(UnsupportedType, match="total cannot take column 'v'"):
        Aggregate(schema, by="k", window=CountWindow(4, 4), values={"x": TOTAL})


def test_a_description_changes_with_the_version() -> None:
    described = [replace(TOTAL, version=version).describe() for version in (1, 2)]
    assert described[0] != described[1]
    assert described[0]["function"] == "user:total"
    assert described[0]["state"] == [["sum", "int64"]]


def test_lists_are_extended_by_values_or_by_lists() -> None:
    """Also lists that begin inside of their buffers, as those of a slice do."""
    lists = pa.array([["hidden"], ["a"], [], ["b", "c"]]).slice(1)
    values = pa.chunked_array([["x"], ["y", "z"]])
    window = np.array([2, 0, 2])
    assert extend_lists(lists, values, window).to_pylist() == [["a", "y"], [], ["b", "c", "x", "z"]]
    more = pa.array([["hidden"], [], ["x"], ["y"]]).slice(1)
    assert extend_lists(lists, more).to_pylist() == [["a"], ["x"], ["b", "c", "y"]]
    none = lists.slice(0, 0)
    assert extend_lists(none, none).to_pylist() == []
    numbers = extend_lists(pa.array([[1.5]]), pa.array([2], pa.int8()), np.array([0]))
    assert numbers.to_pylist() == [[1.5, 2.0]]
    with pytest.raises(SchemaError, match="3 lists cannot be extended by 2 lists"):
        extend_lists(lists, more.slice(1))
