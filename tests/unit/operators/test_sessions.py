"""Sessions by hand: when tuples belong together, what merges, and what their logs say."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.seeds import reported, seeds
from tests.support.sessions import random_sessions
from trailmark.engine.logs import describe_logs
from trailmark.errors import SchemaChanged, SettingError, UnknownFormat, UnsupportedType
from trailmark.log import OperatorMeta, Origin, check_same_operator
from trailmark.operators.kinds import caution_of, form_of, title_of
from trailmark.operators.protocol import BatchInput
from trailmark.operators.sessions import Sessions
from trailmark.operators.sessions.logged import rebuild_sessions
from trailmark.recovery import NoHistory
from trailmark.state.memory import Memory
from trailmark.testing import aggregate, run
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction, UserFunction
from trailmark.windows.session import SessionWindow, session_window

_SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us")), ("w", pa.string())])
_VALUES: dict[str, AnyFunction] = {"n": f.count(), "first": f.first("w"), "last": f.last("w")}

Row = tuple[int, int, str]


def _sessions(**given: Any) -> Sessions:
    usual: dict[str, Any] = {"by": "k", "window": session_window("at", "10 us"), "values": _VALUES}
    return Sessions(_SCHEMA, **(usual | given))


def _ended(
    batches: Sequence[Sequence[Row]],
    marks: Sequence[int | None],
    calls: Mapping[str, AnyFunction] = _VALUES,
) -> list[tuple[int, ...] | Any]:
    """What a query gives, batch by batch: bounds and values."""
    operator = _sessions(values=calls)
    state = operator.open(Memory(), NoHistory())
    before: int | None = None
    found: list[Any] = []
    for batch, (rows, mark) in enumerate(zip(batches, marks, strict=True)):
        columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []]
        arrays = [pa.array(c, field.type) for c, field in zip(columns, _SCHEMA, strict=True)]
        given = pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)
        results = operator.process(state, BatchInput(batch, given, before, mark)).results
        moments = [results.column(name).view(pa.int64()).to_pylist() for name in _BOUNDS]
        values = [results.column(name).to_pylist() for name in calls]
        found += zip(*moments, *values, strict=True)
        before = mark
    return found


_BOUNDS = ("window_start", "window_end")


@pytest.mark.parametrize(
    ("batches", "marks", "expected"),
    [
        (
            [[(1, 0, "a"), (1, 10, "b"), (1, 21, "c")]],
            [99],
            [(0, 20, 2, "a", "b"), (21, 31, 1, "c", "c")],
        ),
        ([[(1, 0, "a")], [(1, 20, "b")], [(1, 10, "c")]], [0, 0, 99], [(0, 30, 3, "a", "c")]),
        ([[(1, 20, "b")], [(1, 0, "a")], [(1, 10, "c")]], [0, 0, 99], [(0, 30, 3, "a", "c")]),
        ([[(1, 5, "a")], [(1, 5, "b")], []], [0, 14, 15], [(5, 15, 2, "a", "b")]),
        ([[(1, 5, "a")], [(1, 5, "late")], []], [15, 15, 99], [(5, 15, 1, "a", "a")]),
        (
            [[(1, 5, "a")], [(1, 6, "b")], []],
            [15, 15, 99],
            [(5, 15, 1, "a", "a"), (6, 16, 1, "b", "b")],
        ),
        ([[(1, 5, "a"), (2, 9, "b")], []], [0, 99], [(5, 15, 1, "a", "a"), (9, 19, 1, "b", "b")]),
    ],
    ids=[
        "a tuple at the end of a session belongs to it",
        "a tuple in between makes one of two",
        "that which begins first counts as the earlier one",
        "a session ends with the watermark at its end",
        "a tuple whose own session has ended is late",
        "a tuple that is not late begins a new session where one has ended",
        "keys have sessions of their own",
    ],
)
def test_sessions(
    batches: Sequence[Sequence[Row]], marks: Sequence[int | None], expected: list[Any]
) -> None:
    assert sorted(_ended(batches, marks)) == expected


def test_values_are_collected_in_the_order_of_starts_then_in_that_of_the_log() -> None:
    calls: dict[str, AnyFunction] = {
        "all": f.collect_list("w"),
        "set": f.collect_set("w"),
        "different": f.count_distinct("w"),
        "about": f.approx_count_distinct("w"),
        "times": f.collect_list("k"),
        "middle": f.percentile("k"),
    }
    batches = [
        [(1, 20, "later"), (1, 21, "x"), (2, 0, "of another key")],
        [(1, 0, "earlier"), (1, 1, "x")],
        [(1, 50, "a session of its own")],
        [(1, 10, "between"), (1, 9, "x")],
    ]
    ended = _ended([*batches, []], [0, 0, 0, 0, 99], calls)
    assert sorted(ended) == [
        (0, 10, ["of another key"], ["of another key"], 1, 1, [2], 2.0),
        (
            *(0, 31),
            ["earlier", "x", "later", "x", "between", "x"],
            ["earlier", "x", "later", "between"],
            *(4, 4, [1] * 6, 1.0),
        ),
        (50, 60, ["a session of its own"], ["a session of its own"], 1, 1, [1], 1.0),
    ]


def _with(footprints: pa.RecordBatch, name: str, lists: list[Any]) -> pa.RecordBatch:
    place = footprints.schema.get_field_index(name)
    return footprints.set_column(place, name, pa.array(lists, footprints.schema.types[place]))


def test_footprints_whose_lists_do_not_belong_together_are_refused() -> None:
    """A checksum says that they are as they were written, not that they can be loaded."""
    operator = _sessions(values={"all": f.collect_list("w"), "first": f.first("w")})
    state = operator.open(Memory(), NoHistory())
    times = pa.array([0, 50, 51], pa.timestamp("us"))
    rows = pa.record_batch([pa.array([1, 1, 1]), times, pa.array(["a", "b", "c"])], schema=_SCHEMA)
    operator.process(state, BatchInput(0, rows, None, None))
    footprints = operator.footprints(state, state.list_oldest(), 0)
    assert not operator.trouble(footprints, 0)
    assert footprints.column("all.values").to_pylist() == [["a", "b", "c"]]
    assert footprints.column("all.values.count").to_pylist() == [[1, 2]]
    for name, lists, text in (
        ("all.values.count", [[1, 1]], "other lengths of 'all.values'"),
        ("all.values.count", [[-1, 4]], "less than no values in 'all.values'"),
        ("all.values.count", [[3]], "other lengths of 'all.values.count'"),
        ("all.values.count", [[None, 3]], "nulls among 'all.values.count'"),
        ("all.values", [["a", None, "c"]], "nulls among 'all.values'"),
        ("first.seen", [[1]], "other lengths of 'first.seen'"),
        ("session.end", [[1, 2, 3]], "other lengths of 'session.end'"),
    ):
        assert text in operator.trouble(_with(footprints, name, lists), 0)
    renamed = footprints.drop_columns(["all.values.count"])
    assert "has no 'all.values.count'" in operator.trouble(renamed, 0)


def test_a_users_function_merges_sessions_in_the_order_of_their_starts() -> None:
    """What it counts: each merge of an earlier with a later state."""

    def update(state: Any, window: Any, at: pa.Array) -> Any:
        np.minimum.at(state["from"], window, at.view(pa.int64()).to_numpy())
        return state

    def merge(earlier: Any, later: Any) -> Any:
        in_order = earlier["from"] <= later["from"]
        return {
            "from": np.minimum(earlier["from"], later["from"]),
            "wrong": earlier["wrong"] + later["wrong"] + ~in_order,
        }

    call = UserFunction(
        columns=["at"],
        state=pa.schema([("from", pa.int64()), ("wrong", pa.int64())]),
        result_type=pa.int64(),
        init=lambda n: {"from": np.full(n, 1 << 62), "wrong": np.zeros(n, np.int64)},
        update=update,
        merge=merge,
        result=lambda state: pa.array(state["wrong"]),
    )
    times = [[0, 40, 20, 60], [30, 50, 70], [10], [200]]
    rows = [pa.table({"k": [1] * len(t), "at": pa.array(t, pa.timestamp("us"))}) for t in times]
    window = session_window("at", "10 us", delay="100 us")
    query = aggregate(by="k", window=window, values={"wrong": call})
    report = run(query, [*rows, rows[-1]], crash_at="everywhere")
    # The tuple at 10 comes after the state of the session that begins at 0, and before none.
    assert report.results.column("wrong").to_pylist() == [0]


def test_sessions_are_those_that_described_themselves() -> None:
    for seed in seeds(60):
        case = random_sessions(random.Random(seed))
        with reported(seed, case):
            operator = case.operator()
            again = rebuild_sessions(_stored(operator), case.code())
            assert again.describe() == operator.describe()
            assert again.layout_key() == operator.layout_key()
            assert again.ports == operator.ports
            assert (
                again.shown_schema == operator.shown_schema == form_of(_stored(again)).shown_schema
            )


def _stored(operator: Sessions) -> OperatorMeta:
    """What its logs say of it, read from a file."""
    return OperatorMeta.from_json(describe_logs(operator, 1).to_json(), Origin("meta.json"))


@pytest.mark.parametrize(
    "strange",
    [
        {"window": {"kind": "session", "column": "at", "gap": 0, "delay": 0}},
        {"window": {"kind": "session", "column": "at", "gap": 10, "delay": -1}},
        {"window": {"kind": "session", "column": "at", "gap": True, "delay": 0}},
        {"window": {"kind": "session", "column": "k", "gap": 10, "delay": 0}},
        {"window": {"kind": "session", "column": "at", "gap": 10, "delay": 7}},
        {"window": {"kind": "time", "column": "at", "size": 10, "slide": 10, "delay": 0}},
        {"window": None},
        {"values": {}},
        {"values": {"n": {"function": "count"}}},
        {"by": []},
        {"by": [["absent", "string"]]},
        {"late": "sometimes"},
        {"time": "w"},
        {"state": {}},
    ],
    ids=str,
)
def test_sessions_that_are_not_understood_are_told_as_unknown(strange: dict[str, Any]) -> None:
    meta = _stored(_sessions())
    with pytest.raises(UnknownFormat):
        rebuild_sessions(replace(meta, operator={**meta.operator, **strange}), None)


def test_other_gaps_and_functions_are_another_operator() -> None:
    stored = _stored(_sessions())
    check_same_operator(stored, describe_logs(_sessions(), 1))
    for other in ({"window": session_window("at", "11 us")}, {"values": {"n": f.count()}}):
        with pytest.raises(SchemaChanged):
            check_same_operator(stored, describe_logs(_sessions(**other), 1))


def test_what_sessions_are_called() -> None:
    assert (
        title_of(_sessions().describe())
        == "aggregate by k, sessions of at with gaps of 10 microseconds"
    )
    every = _sessions(by=[], values={"n": f.count()})
    assert (
        title_of(every.describe())
        == "aggregate of all tuples, sessions of at with gaps of 10 microseconds"
    )
    assert "first and last may come out differently" in caution_of(_sessions().describe())
    assert not caution_of(every.describe())


def test_gaps_and_delays_are_words_or_longer_than_nothing() -> None:
    assert session_window("t", "1 minute", delay="2 s") == SessionWindow("t", 60_000_000, 2_000_000)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"gap": "0 seconds"}, "gap must be longer than zero"),
        ({"gap": "soon"}, "'soon' is not a duration"),
        ({"gap": "99999999 weeks"}, "gap must not be longer"),
        ({"delay": "99999999 weeks"}, "delay must not be longer"),
        ({"column": 3}, "by its name, as text, got 3"),
    ]
    for given, text in wrong:
        with pytest.raises(SettingError, match=text):
            session_window(**({"column": "t", "gap": "1 s"} | given))


def test_what_sessions_cannot_be_made_of_is_refused() -> None:
    with pytest.raises(UnsupportedType, match="Sessions need a timestamp column; 'w' is string"):
        _sessions(window=session_window("w", "1 s"))
    with pytest.raises(SettingError, match="bounds of"):
        _sessions(values={"window_start": f.count()})
    renamed = _SCHEMA.set(0, pa.field("session.start", pa.int64()))
    with pytest.raises(SettingError, match=r"'session\.start'"):
        Sessions(
            renamed, by="session.start", window=session_window("at", "1 s"), values={"n": f.count()}
        )
