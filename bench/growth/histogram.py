"""A user-defined function whose state is as wide as one likes: a histogram of a column."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.windows.functions import State, UserFunction

_BIN_BYTES = 8


def histogram(column: str, width: int) -> UserFunction:
    """Counts values by their remainder in ``width / 8`` bins; the result is the fullest bin."""
    bins = width // _BIN_BYTES
    kind = np.dtype((np.void, width))

    def counts(state: State) -> npt.NDArray[np.int64]:
        found: npt.NDArray[np.int64] = state["bins"].view(np.int64).reshape(-1, bins)
        return found

    def packed(values: npt.NDArray[np.int64]) -> State:
        return {"bins": np.ascontiguousarray(values).view(kind).reshape(-1)}

    def update(state: State, window: npt.NDArray[np.int64], values: pa.Array) -> State:
        place = window * bins + values.to_numpy() % bins
        np.add.at(counts(state).reshape(-1), place, 1)
        return state

    def result(state: State) -> pa.Array:
        fullest: Any = counts(state).argmax(axis=1)
        return pa.array(fullest, pa.int64())

    return UserFunction(
        columns=[column],
        state=pa.schema([("bins", pa.binary(width))]),
        result_type=pa.int64(),
        init=lambda n: packed(np.zeros((n, bins), dtype=np.int64)),
        update=update,
        merge=lambda earlier, later: packed(counts(earlier) + counts(later)),
        result=result,
        name="histogram",
    )
