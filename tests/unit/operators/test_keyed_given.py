"""What a user's code does with keys and states, and how it is told that it cannot."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from trailmark.errors import OperatorError, TrailmarkError
from trailmark.operators.keyed import Keyed
from trailmark.operators.protocol import BatchInput
from trailmark.operators.whole import Whole
from trailmark.recovery import NoHistory
from trailmark.state.memory import Memory

_SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us"))])
_OUTPUT = pa.schema([("key", pa.int64()), ("n", pa.int64())])
_ROWS = pa.RecordBatch.from_pydict({"key": [1, 2, 1], "at": [1, 2, 3]}, schema=_SCHEMA)


class User:
    """Does what a test says."""

    state: ClassVar[Any] = {"n": pa.int64(), "small": pa.int16(), "when": pa.timestamp("us")}

    def __init__(self, does: Any) -> None:
        self._does = does

    def process(self, keys: Any, rows: Any, state: Any) -> Any:
        return self._does(keys, state)


def _run(does: Any, output: pa.Schema = _OUTPUT) -> pa.RecordBatch:
    operator = Keyed(_SCHEMA, User(does), by="key", output=output)
    table = operator.open(Memory(), NoHistory())
    return operator.process(table, BatchInput(7, _ROWS)).results


def _put(name: str, values: Any) -> Any:
    return lambda keys, state: state.__setitem__(name, values)


@pytest.mark.parametrize(
    ("does", "message"),
    [
        (_put("n", None), "object is not int64"),
        (_put("n", [0.5, 1.5]), "float64 is not int64"),
        (_put("n", np.array([1, 1 << 63], dtype=np.uint64)), "cannot hold: from 1 to 92233720"),
        (_put("small", [40_000, 0]), "int16, which the state declares, cannot hold"),
        (_put("small", [-40_000, 0]), "cannot hold: from -40000 to 0"),
        (_put("n", [1, 2, 3]), "2 values are needed"),
        (_put("m", [1, 2]), "The state has no column 'm'"),
        (lambda keys, state: state.remove([0, 1]), "2 flags are needed"),
        (lambda keys, state: state.remove([True]), "2 flags are needed"),
        (lambda keys, state: keys.table([1, 0], n=state["n"]), "2 flags are needed"),
        (lambda keys, state: setattr(state, "event_tmier", 1), "no attribute 'event_tmier'"),
        (lambda keys, state: keys.table(n=state["n"], m=state["n"]), "declared are ['key', 'n']"),
        (lambda keys, state: [1, 2], "returned list, not an Arrow"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(does: Any, message: str) -> None:
    with pytest.raises(TrailmarkError, match=re.escape(message)) as refused:
        _run(does)
    assert "batch 7" in refused.value.where


def test_a_flag_for_each_key_says_which_of_them_are_meant() -> None:
    def does(keys: Any, state: Any) -> Any:
        is_one = pa.array([True, False])
        state.remove(is_one)
        return keys.table(is_one, n=state["n"])

    assert _run(does).to_pylist() == [{"key": 1, "n": 0}]


def test_an_error_names_the_line_of_the_users_own_file() -> None:
    def deep(keys: Any, state: Any) -> Any:
        return pa.array(["many"]).cast(pa.int64())

    with pytest.raises(OperatorError, match="raised ArrowInvalid") as refused:
        _run(deep)
    assert refused.value.where.startswith(f"batch 7, {__file__}, line ")
    assert refused.value.where.endswith("in deep")


def test_fields_of_structs_are_neither_dropped_nor_made_up() -> None:
    pair = pa.struct([("a", pa.int64()), ("b", pa.int64())])
    kinds = {
        "pair": pair,
        "pairs": pa.list_(pair),
        "named": pa.map_(pa.string(), pair),
    }
    for name, kind in kinds.items():
        output = pa.schema([("key", pa.int64()), (name, kind)])
        for fields in ({"b": 2, "a": 1}, {"a": 1}, {"a": 1, "b": 2, "c": 3}):
            value: Any = {"pair": fields, "pairs": [fields], "named": [("x", fields)]}[name]
            given = pa.struct([(field, pa.int32()) for field in fields])
            wide = {"pair": given, "pairs": pa.list_(given), "named": pa.map_(pa.string(), given)}
            column = pa.array([value] * 2, wide[name])

            def does(keys: Any, state: Any, name: str = name, column: Any = column) -> Any:
                return keys.table(**{name: column})

            if len(fields) == 2:
                assert _run(does, output).column(name).type == kind
            else:
                with pytest.raises(OperatorError, match="other fields"):
                    _run(does, output)


@pytest.mark.parametrize(
    ("user", "message"),
    [
        (type("Empty", (), {}), "Empty has no method process"),
        (type("Odd", (), {"process": lambda self: None}), "Odd.process cannot be called"),
        (lambda: None, "cannot be called with a batch"),
        (User, "User cannot be made without arguments"),
    ],
)
def test_a_whole_operator_that_could_never_work_is_refused_at_once(user: Any, message: str) -> None:
    with pytest.raises(TrailmarkError, match=message):
        Whole(_SCHEMA, user, output=_OUTPUT)


def test_functions_of_any_kind_can_be_whole_operators() -> None:
    class Static:
        @staticmethod
        def process(batch: pa.RecordBatch) -> None: ...

    class Called:
        def __call__(self, batch: pa.RecordBatch) -> None: ...

    for user in (Static, Static(), Called(), Static.process, max):
        assert Whole(_SCHEMA, user, output=_OUTPUT).user is user
