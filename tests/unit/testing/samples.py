"""Small batches and functions for the tests of the tester."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import trailmark as tm
from trailmark.windows.functions import State

SCHEMA = pa.schema(
    [("item", pa.int32()), ("price", pa.float64()), ("at", pa.timestamp("us", "UTC"))]
)
SECOND = 1_000_000


def sales(batches: int = 3, rows: int = 12, seed: int = 7) -> list[pa.Table]:
    """Prices of a few items; times go on by ten seconds a batch, and some come late."""
    rng = np.random.default_rng(seed)
    return [
        pa.table(
            {
                "item": rng.integers(0, 4, rows, dtype=np.int32),
                "price": rng.random(rows),
                "at": (10 * number + rng.integers(-8, 10, rows)) * SECOND,
            }
        ).cast(SCHEMA)
        for number in range(batches)
    ]


def total(
    update: Callable[..., Any], result: Callable[[State], pa.Array] | None = None
) -> tm.UserFunction:
    """A sum of prices, updated in any way."""
    return tm.UserFunction(
        columns=["price"],
        state=pa.schema([("total", pa.float64())]),
        result_type=pa.float64(),
        init=lambda n: {"total": np.zeros(n)},
        update=update,
        merge=lambda earlier, later: {"total": earlier["total"] + later["total"]},
        result=result or (lambda state: pa.array(state["total"])),
    )


def add(state: State, window: Any, price: pa.Array) -> State:
    """What such a function should do."""
    np.add.at(state["total"], window, price.to_numpy())
    return state


def counted(function: tm.UserFunction | Any, size: int = 5) -> tm.testing.Query:
    return tm.testing.aggregate(by="item", window=tm.count_window(size), values={"value": function})
