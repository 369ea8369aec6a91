"""What a join refuses, and what its results are called."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.joining import small_join
from tests.support.joining_checks import open_state
from trailmark.errors import OperatorError, SettingError, TrailmarkError, UnsupportedType
from trailmark.log import PortRows
from trailmark.operators.join import Join
from trailmark.operators.protocol import BatchInput
from trailmark.windows.interval import Interval, interval, interval_from_description
from trailmark.windows.last_tuples import LastTuples

_TIME = pa.timestamp("us")
_LEFT = pa.schema([("id", pa.int64()), ("seen", _TIME), ("note", pa.string())])
_RIGHT = pa.schema([("id", pa.int64()), ("clicked", _TIME), ("note", pa.string())])
_WITHIN = interval("seen", "clicked", after="1 minute")
_NEAREST = interval("seen", "clicked", before="1 minute", nearest="before")
_UNBOUNDED = interval("seen", "clicked", nearest="before")


def _join(**changed: Any) -> Join:
    given = {"left": _LEFT, "right": _RIGHT, "on": "id", "within": _WITHIN, **changed}
    left, right = given.pop("left"), given.pop("right")
    return Join(left, right, **given)


def _retyped(schema: pa.Schema, name: str, kind: pa.DataType) -> pa.Schema:
    return schema.set(schema.get_field_index(name), pa.field(name, kind))


def _renamed(schema: pa.Schema, name: str, new: str) -> pa.Schema:
    return schema.set(schema.get_field_index(name), schema.field(name).with_name(new))


@pytest.mark.parametrize(
    ("changed", "error", "says"),
    [
        ({"on": "no"}, SettingError, "no column 'no'"),
        ({"on": []}, SettingError, "at least one column"),
        ({"on": ["id", "id"]}, SettingError, "each once"),
        ({"on": 3}, SettingError, "name of a column of both sides"),
        (
            {"right": _retyped(_RIGHT, "id", pa.string())},
            UnsupportedType,
            "int64 on the left and string on the right",
        ),
        ({"on": "note", "left": _retyped(_LEFT, "note", pa.float64())}, UnsupportedType, "double"),
        ({"within": "1 minute"}, SettingError, "within must be an interval"),
        ({"within": interval("no", "clicked")}, SettingError, "no column 'no'"),
        ({"within": interval("seen", "id")}, UnsupportedType, "must be timestamps; 'id' is int64"),
        ({"suffixes": ("a",)}, SettingError, "a text for each side"),
        ({"suffixes": "ab"}, SettingError, "a text for each side"),
        ({"suffixes": (1, 2)}, SettingError, "a text for each side"),
        ({"suffixes": None}, SettingError, "a text for each side"),
        ({"late": np.array([1, 2])}, SettingError, "'drop' or 'keep'"),
        (
            {"within": None, "windows": (LastTuples(1), LastTuples(0)), "late": "keep"},
            SettingError,
            "is ever late",
        ),
        ({"how": "semi"}, SettingError, "inner, left, right or full, got 'semi'"),
        ({"how": None}, SettingError, "inner, left, right or full"),
        ({"condition": "a > b"}, SettingError, "must be a function"),
        ({"condition": lambda left: left}, SettingError, "cannot be called with both sides"),
        ({"suffixes": ("", "")}, SettingError, "would be called 'note'"),
        ({"left": _renamed(_LEFT, "note", "$x")}, SettingError, "begin with \\$"),
        ({"how": "full", "within": _NEAREST}, SettingError, "asks for all right tuples"),
        ({"how": "right", "within": _NEAREST}, SettingError, "Use inner or left"),
        (
            {"condition": lambda left, right: None, "within": _UNBOUNDED},
            SettingError,
            "none could ever leave",
        ),
        ({"most_pairs": 0}, SettingError, "most_pairs must be from 1"),
        ({"piece_rows": True}, SettingError, "piece_rows must be from 1"),
    ],
)
def test_what_cannot_be_joined_is_refused_with_what_to_do(
    changed: dict[str, Any], error: type[TrailmarkError], says: str
) -> None:
    with pytest.raises(error, match=says) as refused:
        _join(**changed)
    assert refused.value.where


def test_float_keys_are_refused() -> None:
    sides = [_retyped(schema, "note", pa.float64()) for schema in (_LEFT, _RIGHT)]
    with pytest.raises(UnsupportedType, match="cannot be a key"):
        _join(left=sides[0], right=sides[1], on="note")


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("inner", "inner"),
        ("leftouter", "left"),
        ("left_outer", "left"),
        ("RightOuter", "right"),
        ("outer", "full"),
        ("full_outer", "full"),
    ],
)
def test_joins_have_the_names_that_spark_gives_them(name: str, how: str) -> None:
    assert _join(how=name).how.value == how


def test_names_that_both_sides_have_get_suffixes() -> None:
    names = ["id", "seen", "note_left", "clicked", "note_right"]
    assert _join().result_schema.names == names
    assert _join(suffixes=("", "_r")).result_schema.names[2:] == ["note", "clicked", "note_r"]


def test_a_delay_may_be_different_on_each_side() -> None:
    found = interval("a", "b", before="1 s", delay=("2 s", "3 s"))
    assert found == Interval("a", "b", 1_000_000, 0, 2_000_000, 3_000_000)
    assert interval_from_description(found.describe()) == found
    with pytest.raises(SettingError, match="one for each side"):
        interval("a", "b", delay=("1 s",))  # type: ignore[arg-type]
    with pytest.raises(SettingError, match="36,000 years"):
        interval("a", "b", after="9999999 weeks")


def test_the_nearest_lies_before_and_within_reach() -> None:
    assert _NEAREST.is_nearest
    assert interval_from_description(_NEAREST.describe()) == _NEAREST
    unbounded = interval("a", "b", nearest="before")
    assert not unbounded.is_bounded
    assert interval_from_description(unbounded.describe()) == unbounded
    with pytest.raises(SettingError, match="is not later"):
        interval("a", "b", before="1 s", after="1 s", nearest="before")
    with pytest.raises(SettingError, match="must be 'before', got 'after'"):
        interval("a", "b", before="1 s", nearest="after")  # type: ignore[arg-type]


def _one_pair() -> BatchInput:
    times = pa.array([0], _TIME)
    sides = [
        pa.record_batch([pa.array([1]), times, pa.array(["x"])], schema=each)
        for each in (_LEFT, _RIGHT)
    ]
    return BatchInput.of(0, PortRows(tuple(sides), np.array([0, 1], dtype=np.uint8)), None, None)


def _asked(condition: Any) -> pa.RecordBatch:
    operator = _join(condition=condition)
    return operator.process(operator.open(*_empty()), _one_pair()).results


def _empty() -> Any:
    from trailmark.recovery import NoHistory
    from trailmark.state.memory import Memory

    return Memory(), NoHistory()


@pytest.mark.parametrize(
    ("told", "pairs"),
    [
        (pa.array([True]), 1),
        (pa.array([None], pa.bool_()), 0),
        (pa.chunked_array([[False], []], pa.bool_()), 0),
        (np.array([True]), 1),
    ],
    ids=str,
)
def test_a_condition_tells_of_each_pair_whether_it_matches(told: Any, pairs: int) -> None:
    assert _asked(lambda left, right: told).num_rows == pairs


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (None, "returned NoneType, no booleans"),
        (pa.array([1]), "no booleans"),
        (pa.array([True, False]), "returned 2 booleans for 1 pairs"),
        (np.array([[True]]), "booleans"),
        ([True], "returned list"),
    ],
    ids=str,
)
def test_a_condition_that_tells_something_else_is_refused(told: Any, says: str) -> None:
    if isinstance(told, np.ndarray):
        told = told.repeat(2)
    with pytest.raises(OperatorError, match=says):
        _asked(lambda left, right: told)


def test_what_a_condition_raises_is_told_with_its_line() -> None:
    def fails(left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        raise KeyError("nothing")

    with pytest.raises(OperatorError, match="fails raised KeyError") as refused:
        _asked(fails)
    assert "test_join_arguments.py" in refused.value.where


def test_a_join_can_be_sent_to_a_task() -> None:
    case = replace(small_join(), how="left")
    sent = pickle.loads(pickle.dumps(case.operator()))  # noqa: S301  (our own)
    assert sent.describe() == case.operator().describe()
    state = open_state(case)
    for batch in range(len(case.batches)):
        case.operator().process(state, case.given(batch))
    again = open_state(case)
    for batch in range(len(case.batches)):
        sent.process(again, case.given(batch))
    assert case.states(sent, again) == case.states(sent, state) != {}
