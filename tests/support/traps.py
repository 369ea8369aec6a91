"""Traps that a test lays for code that runs in the workers of Spark."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
import pyarrow as pa

import trailmark as tm
from trailmark.windows.functions import State

#: A task that is held longer than this was forgotten by its test.
_LONGEST_HOLD_S = 90.0


def meet_traps(directory: str) -> None:
    """A trap is a file. Who renames it is caught, and nobody else; the new name says who it is.

    ``raise`` makes the task fail. ``hold`` keeps it where it is until the file is removed. Only
    ``refuse`` stays where it is and makes every task fail.
    """
    if os.path.exists(f"{directory}/refuse"):
        raise RuntimeError("fails always, for a test")
    for kind in ("raise", "hold"):
        mine = f"{directory}/{kind}.{os.getpid()}"
        try:
            os.rename(f"{directory}/{kind}", mine)
        except FileNotFoundError:
            continue
        if kind == "raise":
            raise RuntimeError("fails once, for a test")
        until = time.monotonic() + _LONGEST_HOLD_S
        while os.path.exists(mine) and time.monotonic() < until:
            time.sleep(0.01)


def trapped_sum(column: str, trap: str, slow_s: float) -> tm.UserFunction:
    """A sum that takes its time and walks into traps."""

    def update(state: State, window: Any, prices: pa.Array) -> State:
        meet_traps(trap)
        time.sleep(slow_s)
        is_priced = prices.is_valid().to_numpy(zero_copy_only=False)
        total, count = state["total"].copy(), state["count"].copy()
        np.add.at(total, window[is_priced], prices.drop_null().to_numpy())
        np.add.at(count, window[is_priced], 1)
        return {"total": total, "count": count}

    return tm.UserFunction(
        columns=[column],
        state=pa.schema([("total", pa.int64()), ("count", pa.int64())]),
        result_type=pa.int64(),
        init=lambda n: {"total": np.zeros(n, np.int64), "count": np.zeros(n, np.int64)},
        update=update,
        merge=lambda a, b: {name: a[name] + b[name] for name in a},
        result=lambda state: pa.array(state["total"], mask=state["count"] == 0),
        name="trapped_sum",
    )
