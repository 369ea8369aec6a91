"""What to know of an operator before it runs."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.small import small_case_of
from trailmark.operators.aggregate import Aggregate
from trailmark.operators.kinds import caution_of
from trailmark.windows.functions import AnyFunction, count, first, last
from trailmark.windows.spec import Window, count_window, time_window

_SCHEMA = pa.schema([("item", pa.int64()), ("time", pa.timestamp("us"))])
_TIME, _COUNT = time_window("time", "1 minute"), count_window(4)


@pytest.mark.parametrize(
    ("window", "values", "depends"),
    [
        (_COUNT, {"n": count()}, "windows"),
        (_COUNT, {"then": last("time")}, "windows and last"),
        (_COUNT, {"b": last("time"), "a": first("time")}, "windows, first and last"),
        (_TIME, {"a": first("time"), "n": count()}, "first"),
        (_TIME, {"a": first("time"), "b": last("time")}, "first and last"),
    ],
)
def test_what_depends_on_an_order_that_nobody_gave_is_named(
    window: Window, values: dict[str, AnyFunction], depends: str
) -> None:
    operator = Aggregate(_SCHEMA, by="item", window=window, values=values)
    assert caution_of(operator.describe()) == (
        f"without order_by, tuples of a batch have no certain order: {depends} may come out "
        "differently when the query starts anew"
    )
    ordered = Aggregate(_SCHEMA, by="item", window=window, values=values, order_by="time")
    assert caution_of(ordered.describe()) == ""


@pytest.mark.parametrize("form", ["keyed", "whole"])
def test_of_users_code_nobody_knows_whether_it_goes_by_an_order(form: str) -> None:
    described = small_case_of(form).operator().describe()
    assert "what goes by their order may come out differently" in caution_of(described)
    assert caution_of({**described, "order_by": ["at"]}) == ""


def test_time_windows_of_sums_need_no_order_and_unknown_kinds_are_let_be() -> None:
    operator = Aggregate(_SCHEMA, by="item", window=_TIME, values={"n": count()})
    assert caution_of(operator.describe()) == ""
    assert caution_of({"operator": "of somebody else"}) == ""
