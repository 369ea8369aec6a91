"""Aggregates with columns of many types, over batches with nulls, NaN and stragglers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tests.support.cases import Case
from tests.support.folds import scaled
from tests.support.orders import SECOND
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction
from trailmark.windows.spec import CountWindow, TimeWindow, Window

_SCHEMA = pa.schema(
    [
        ("item", pa.string()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(12, 3)),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
#: Every built-in function, over numbers, floats, decimals, texts and times.
EVERY_FUNCTION: dict[str, AnyFunction] = {
    "count": f.count(),
    "count_x": f.count("x"),
    **{f"sum_{column}": f.sum(column) for column in "nxd"},
    **{f"avg_{column}": f.avg(column) for column in "nxd"},
    **{f"stddev_{column}": f.stddev(column) for column in "nxd"},
    **{f"variance_{column}": f.variance(column) for column in "nxd"},
    **{f"min_{column}": f.min(column) for column in ("n", "x", "d", "item", "at")},
    **{f"max_{column}": f.max(column) for column in ("n", "x", "d", "item", "at")},
    **{f"first_{column}": f.first(column) for column in ("n", "x", "d", "item", "at")},
    **{f"last_{column}": f.last(column, ignore_nulls=True) for column in ("n", "x", "d", "item")},
}
EVERY_WINDOW: dict[str, Window] = {
    "tumbling": CountWindow(5, 5),
    "overlapping": CountWindow(6, 2),
    "gapped": CountWindow(2, 5),
    "time": TimeWindow("at", 10 * SECOND, 10 * SECOND, 2 * SECOND),
    "sliding": TimeWindow("at", 10 * SECOND, 4 * SECOND, 0),
}


def wide_case(window: Window, values: Mapping[str, AnyFunction], seed: int = 3) -> Case:
    """Eight batches of a few items."""
    rng = random.Random(seed)
    batches = [(0, _rows(rng, batch)) for batch in range(8)]
    return Case.of(_SCHEMA, by=["item"], window=window, values=values, batches=batches)


def _rows(rng: random.Random, batch: int) -> list[tuple[Any, ...]]:
    return [
        (
            rng.choice(("a", "b", "", "ä", None)),
            rng.choice((None, rng.randint(-(2**31), 2**31 - 1))),
            rng.choice((None, 0.1, -0.0, float("inf"), float("nan"), rng.random())),
            None if rng.random() < 0.2 else scaled(rng.randint(-(10**6), 10**6), 3),
            (4 * batch + rng.randint(-9, 4)) * SECOND,
        )
        for _ in range(rng.randint(0, 25))
    ]
