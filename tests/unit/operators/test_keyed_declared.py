"""What a user's class may declare, and how it is told that it may not."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

from trailmark.errors import SchemaError, SettingError, UnsupportedType
from trailmark.operators.keyed import Keyed

_SCHEMA = pa.schema(
    [("item", pa.int64()), ("value", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
)
_OUTPUT = pa.schema([("item", pa.int64()), ("n", pa.int64())])


class Count:
    state: ClassVar[Any] = {"n": pa.int64()}

    def process(self, keys: Any, rows: Any, state: Any) -> Any:
        return None


def _keyed(user: Any, **arguments: Any) -> Keyed:
    given = {"by": "item", "output": _OUTPUT, **arguments}
    return Keyed(_SCHEMA, user, **given)


def _class(**members: Any) -> type[Count]:
    return type("Named", (Count,), members)


def test_a_schema_of_arrows_declares_a_state_as_a_mapping_does() -> None:
    one = _keyed(Count)
    other = _keyed(_class(state=pa.schema([("n", pa.int64())])))
    assert one.layout_key() == other.layout_key()


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"state": {}}, "must name the columns of the state"),
        ({"state": None}, "must name the columns of the state"),
        ({"state": {"n": "long"}}, "must be one of Arrow's"),
        ({"state": {"$n": pa.int64()}}, "cannot be called"),
        ({"state": {"item": pa.int64()}}, "is a key, and a column of the state"),
        ({"initial": {"m": 1}}, "must give values for columns of the state"),
        ({"initial": {"n": 1.5}}, "cannot be the initial value"),
        ({"initial": {"n": 2**70}}, "cannot be the initial value"),
        ({"initial": {"n": "one"}}, "cannot be the initial value"),
        ({"process": None}, "has no method process"),
        ({"process": lambda self, rows: None}, "cannot be called with keys, rows, state"),
        ({"on_event_timer": lambda self, keys: None}, "cannot be called with keys, due, state"),
        ({"on_event_timer": lambda self, k, d, s: None}, "uses event time"),
        ({"event_time_to_live": "1 hour"}, "uses event time"),
        ({"clock_time_to_live": "0 seconds"}, "cannot live for no time"),
        ({"clock_time_to_live": "soon"}, "is not a duration"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message.replace("'", ".")):
        _keyed(_class(**members))


@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.list_(pa.list_(pa.int8())),
        pa.struct([("a", pa.int8())]),
        pa.map_(pa.string(), pa.list_(pa.int8())),
        pa.large_string(),
        pa.float16(),
        pa.null(),
    ],
    ids=str,
)
def test_a_type_that_states_do_not_hold_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match="State column 'odd'"):
        _keyed(_class(state={"odd": kind}))


def test_only_numbers_have_an_initial_value() -> None:
    with pytest.raises(SettingError, match="begins empty, or null"):
        _keyed(_class(state={"words": pa.list_(pa.string())}, initial={"words": []}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": []}, "At least one key column"),
        ({"by": "none"}, "There is no column 'none'"),
        ({"by": "item", "time": "none"}, "There is no column 'none'"),
        ({"late": "never"}, "late must be"),
        ({"order_by": "none"}, "There is no column 'none'"),
    ],
)
def test_arguments_that_cannot_be_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        _keyed(Count, **arguments)


def test_event_times_have_to_be_times_and_keys_of_a_type_that_can_be() -> None:
    with pytest.raises(UnsupportedType, match="must be timestamps"):
        _keyed(Count, time="value")
    with pytest.raises(UnsupportedType, match="cannot be a key"):
        _keyed(Count, by="value")


@pytest.mark.parametrize("names", [["item", "item"], ["$item"]])
def test_results_have_names_that_a_log_can_have(names: list[str]) -> None:
    with pytest.raises(SchemaError):
        _keyed(Count, output=pa.schema([(name, pa.int64()) for name in names]))


def test_an_initial_value_is_that_of_new_keys() -> None:
    from trailmark.operators.protocol import BatchInput
    from trailmark.recovery import NoHistory
    from trailmark.state.memory import Memory

    seen: list[Any] = []

    def process(self: Any, keys: Any, rows: Any, state: Any) -> None:
        seen.append((state["low"].tolist(), state["small"].tolist(), state.is_new.tolist()))

    user = _class(
        state={"low": pa.float64(), "small": pa.int8()},
        initial={"low": np.inf, "small": -3},
        process=process,
    )
    operator = _keyed(user)
    table = operator.open(Memory(), NoHistory())
    rows = pa.RecordBatch.from_pylist([{"item": 1}, {"item": 2}], schema=_SCHEMA)
    for batch in range(2):
        operator.process(table, BatchInput(batch, rows))
    assert seen == [([np.inf] * 2, [-3] * 2, [True] * 2), ([np.inf] * 2, [-3] * 2, [False] * 2)]
