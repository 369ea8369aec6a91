"""Aggregates made again from what their logs say of them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.support.seeds import reported, seeds
from tests.support.strategies import random_case
from tests.support.userfunctions import spread, trail
from trailmark.engine.logs import describe_logs
from trailmark.errors import SchemaChanged, SettingError, UnknownFormat
from trailmark.log import OperatorMeta, Origin
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.aggregate.rebuild import rebuild_aggregate
from trailmark.windows import _FUNCTIONS
from trailmark.windows import functions as f
from trailmark.windows.functions import BUILT_IN, AnyFunction, function_from_description
from trailmark.windows.spec import CountWindow

_SCHEMA = pa.schema([("item", pa.string()), ("n", pa.int64()), ("x", pa.float64())])


def _stored(operator: Aggregate) -> OperatorMeta:
    """What its logs say of it, read from a file."""
    return OperatorMeta.from_json(describe_logs(operator, 1).to_json(), Origin("meta.json"))


def _meta(**values: AnyFunction) -> OperatorMeta:
    return _stored(Aggregate(_SCHEMA, by="item", window=CountWindow(3, 3), values=values))


def test_an_aggregate_is_the_one_that_described_itself() -> None:
    for seed in seeds(300):
        case = random_case(random.Random(seed))
        with reported(seed, case):
            operator = case.operator()
            again = rebuild_aggregate(_stored(operator), case.code())
            assert again.describe() == operator.describe()
            assert list(again.describe()["values"]) == list(operator.describe()["values"])
            assert again.layout_key() == operator.layout_key()
            assert again.ports == operator.ports
            assert again.result_schema == operator.result_schema


def test_every_built_in_function_is_known_by_its_description() -> None:
    assert BUILT_IN.keys() == _FUNCTIONS.keys()
    for name, make in BUILT_IN.items():
        assert function_from_description(make("n").describe()) == make("n")
        assert make("n").name == name
    for call in (f.count(), f.sum("n", overflow="null"), f.last("x", ignore_nulls=True)):
        assert function_from_description(call.describe()) == call


@pytest.mark.parametrize(
    "strange",
    [
        {"function": "median"},
        {"function": 7},
        {"function": None},
        {"column": None},
        {"column": 3},
        {"column": ["n"]},
        {"column": "absent"},
        {"column": "item"},  # a text has no sum
        {"overflow": "wrap"},
        {"overflow": None},
        {"skip_nulls": 0},
        {"skip_nulls": "no"},
        {"distinct": True},
    ],
    ids=str,
)
def test_a_function_that_is_not_understood_is_told_as_unknown(strange: dict[str, Any]) -> None:
    meta = _meta(total=f.sum("n"))
    values = {"total": {**meta.operator["values"]["total"], **strange}}
    with pytest.raises(UnknownFormat, match="description"):
        rebuild_aggregate(replace(meta, operator={**meta.operator, "values": values}), None)


@pytest.mark.parametrize(
    "strange",
    [
        {"values": []},
        {"values": {}},
        {"values": {"total": 1}},
        {"values": {"other": {"function": "count"}}},
        {"late": "sometimes"},
        {"late": None},
        {"order_by": ["absent"]},
        {"order_by": 5},
        {"by": [["absent", "string"]]},
        {"by": []},
        {"window": {"kind": "session", "size": 3, "slide": 3}},
        {"window": None},
    ],
    ids=str,
)
def test_an_aggregate_that_is_not_understood_is_told_as_unknown(strange: dict[str, Any]) -> None:
    meta = _meta(total=f.sum("n"))
    with pytest.raises(UnknownFormat):
        rebuild_aggregate(replace(meta, operator={**meta.operator, **strange}), None)


def test_functions_of_ones_own_have_to_be_handed_in() -> None:
    meta = _meta(n=f.count(), trail=trail("n"), spread=spread("x"))
    with pytest.raises(SettingError, match="code of 'trail', 'spread', which are functions") as all:
        rebuild_aggregate(meta, None)
    assert all.value.where == "operator"
    assert "package.module:name" in all.value.fix
    assert "records='all'" in all.value.fix
    with pytest.raises(SettingError, match="code of 'spread', which is a function"):
        rebuild_aggregate(meta, {"trail": trail("n")})
    given: dict[str, AnyFunction] = {"spread": spread("x"), "trail": trail("n"), "n": f.count()}
    assert list(rebuild_aggregate(meta, given).describe()["values"]) == ["n", "trail", "spread"]


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("a name", "is a mapping, not str"),
        ([spread("x")], "is a mapping, not list"),
        ({"spread": print}, "'spread' has to be a function of an aggregate, not builtin"),
        ({"spread": spread("x"), "other": f.count()}, "no value 'other'"),
        ({"spread": spread("x"), 3: f.count()}, "no value 3"),
    ],
)
def test_what_is_no_code_of_an_aggregate_is_refused(code: object, what: str) -> None:
    with pytest.raises(SettingError, match=what) as refused:
        rebuild_aggregate(_meta(spread=spread("x")), code)
    assert refused.value.where == "operator"


@pytest.mark.parametrize(
    ("call", "difference"),
    [
        (replace(spread("x"), version=2), "values.spread.version: 1 -> 2"),
        (spread("n"), r"values.spread.columns: \['x'\] -> \['n'\]"),
        (trail("n"), "values.spread.function: user:spread -> user:trail"),
        (f.count(), "values.spread.function: user:spread -> count"),
    ],
)
def test_another_function_than_wrote_the_logs_is_refused(
    call: AnyFunction, difference: str
) -> None:
    with pytest.raises(SchemaChanged, match=difference) as refused:
        rebuild_aggregate(_meta(spread=spread("x")), {"spread": call})
    assert "left of the arrow" in refused.value.fix


def test_another_built_in_function_is_refused_too() -> None:
    with pytest.raises(SchemaChanged, match=r"values\.total.column: n -> x"):
        rebuild_aggregate(_meta(total=f.sum("n")), {"total": f.sum("x")})
