"""Lists and maps of many keys at once do what plain lists and dictionaries do."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.support.seeds import seeds
from trailmark.errors import SchemaError
from trailmark.operators.keyed import Keyed
from trailmark.operators.keyed.collections import Lists, Maps
from trailmark.operators.keyed.columns import column_of
from trailmark.operators.protocol import BatchInput
from trailmark.recovery import NoHistory
from trailmark.state.memory import Memory

_WORDS = ["", "a", "bc", "long " * 40]


def _values(rng: random.Random, kind: pa.DataType, count: int, *, null: bool = True) -> list[Any]:
    known: list[Any] = [0, -1, 7]
    if pa.types.is_string(kind):
        known = _WORDS
    elif pa.types.is_boolean(kind):
        known = [False, True]
    return [rng.choice([None, *known] if null else known) for _ in range(count)]


class Changed:
    """A keyed operator whose calls are written by the test, on a state with one column."""

    def __init__(self, kind: pa.DataType) -> None:
        self.state = {"column": kind}
        self.change: Any = None

    def process(self, keys: Any, rows: Any, state: Any) -> None:
        self.change(keys, state["column"])


class Harness:
    """Keys 0 to 4, all of them in every batch, each twice."""

    def __init__(self, kind: pa.DataType) -> None:
        self.user = Changed(kind)
        schema = pa.schema([("key", pa.int64())])
        self.operator = Keyed(schema, self.user, by="key", output=pa.schema([("x", pa.int64())]))
        self.table = self.operator.open(Memory(), NoHistory())
        self._rows = pa.RecordBatch.from_pydict({"key": [0, 1, 2, 3, 4] * 2}, schema=schema)
        self._batch = 0

    def change(self, change: Any) -> None:
        self.user.change = change
        self.operator.process(self.table, BatchInput(self._batch, self._rows))
        self._batch += 1

    def stored(self) -> list[Any]:
        rows = self.operator.footprints(self.table, self.table.slots(), 0).to_pylist()
        return [row["column"] for row in sorted(rows, key=lambda row: row["key"])]


@pytest.mark.parametrize("element", [pa.int16(), pa.string(), pa.float64(), pa.bool_()], ids=str)
def test_random_changes_of_lists_are_those_of_plain_lists(element: pa.DataType) -> None:
    for seed in seeds(15):
        rng = random.Random(seed)
        harness = Harness(pa.list_(element))
        expected: list[list[Any]] = [[] for _ in range(5)]
        for _ in range(12):
            harness.change(_change_of_lists(rng, element, expected))
            assert harness.stored() == expected, f"seed {seed}"


def _change_of_lists(rng: random.Random, element: pa.DataType, expected: list[list[Any]]) -> Any:
    what = rng.choice(("append", "append", "append", "keep", "clear", "assign"))
    numbers = [rng.randrange(5) for _ in range(rng.randrange(12))]
    values = pa.array(_values(rng, element, len(numbers)), element).to_pylist()
    if what == "append":
        for number, value in zip(numbers, values, strict=True):
            expected[number].append(value)
        return lambda keys, lists: lists.append(np.array(numbers, "i8"), values)
    if what == "keep":
        most = rng.randrange(4)
        expected[:] = [each[len(each) - min(most, len(each)) :] for each in expected]
        return lambda keys, lists: lists.keep_last(most)
    if what == "clear":
        which = [rng.random() < 0.5 for _ in range(5)]
        expected[:] = [[] if gone else each for each, gone in zip(expected, which, strict=True)]
        return lambda keys, lists: lists.clear(which)
    expected[:] = [values[: rng.randrange(4)] for _ in range(5)]
    made = pa.array([list(each) for each in expected], pa.list_(element))
    return lambda keys, lists: lists.assign(made)


@pytest.mark.parametrize(
    ("key", "item"), [(pa.string(), pa.int64()), (pa.int16(), pa.string())], ids=str
)
def test_random_changes_of_maps_are_those_of_plain_dictionaries(
    key: pa.DataType, item: pa.DataType
) -> None:
    for seed in seeds(15):
        rng = random.Random(seed)
        harness = Harness(pa.map_(key, item))
        expected: list[dict[Any, Any]] = [{} for _ in range(5)]
        for _ in range(12):
            harness.change(_change_of_maps(rng, key, item, expected))
            assert harness.stored() == [list(each.items()) for each in expected], f"seed {seed}"


def _change_of_maps(
    rng: random.Random, key: pa.DataType, item: pa.DataType, expected: list[dict[Any, Any]]
) -> Any:
    numbers = [rng.randrange(5) for _ in range(rng.randrange(12))]
    keys, items = _values(rng, key, len(numbers), null=False), _values(rng, item, len(numbers))
    places = list(zip(numbers, keys, strict=True))
    before = [dict(each) for each in expected]
    what = rng.choice(("put", "put", "put", "remove", "clear"))
    if what == "put":
        for (number, name), value in zip(places, items, strict=True):
            expected[number][name] = value
    elif what == "remove":
        for number, name in places:
            expected[number].pop(name, None)
    else:
        for number in range(0, 5, 2):
            expected[number] = {}

    def change(given: Any, maps: Maps) -> None:
        found = maps.get(np.array(numbers, "i8"), keys).to_pylist()
        assert found == [before[number].get(name) for number, name in places]
        if what == "put":
            maps.put(np.array(numbers, "i8"), keys, items)
        elif what == "remove":
            maps.remove(np.array(numbers, "i8"), keys)
        else:
            maps.clear(np.arange(5) % 2 == 0)
        assert maps.lengths().tolist() == [len(each) for each in expected]

    return change


def _lists() -> Lists:
    kind = pa.list_(pa.int64())
    column: Any = column_of("c", kind, {})
    return Lists(column, np.zeros(3, "i8"), pa.array([], pa.int64()))


def _maps() -> Maps:
    column: Any = column_of("c", pa.map_(pa.string(), pa.int64()), {})
    return Maps(column, np.zeros(3, "i8"), pa.array([], pa.string()), pa.array([], pa.int64()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: _lists().append(np.array([3]), [1]), "from 0 to 2"),
        (lambda: _lists().append(np.array([-1]), [1]), "from 0 to 2"),
        (lambda: _lists().append(np.array([0]), [1, 2]), "1 values are needed, got 2"),
        (lambda: _lists().append(np.array([0]), ["one"]), "are not int64"),
        (lambda: _lists().clear(np.array([True])), "3 flags are needed"),
        (lambda: _maps().put(np.array([0]), [None], [1]), "no key that is null"),
        (lambda: _maps().get(np.array([0]), [1.5]), "are not string"),
    ],
)
def test_what_does_not_fit_is_refused(change: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        change()
