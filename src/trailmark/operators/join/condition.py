"""The further condition of a join: code of a user's, asked about pairs that match by key and
time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import OperatorError
from trailmark.kernel.columns import single, truths
from trailmark.operators.user_code import call

#: Takes the rows of both sides, pair by pair, and tells of each pair whether it matches.
Condition: TypeAlias = Callable[[pa.RecordBatch, pa.RecordBatch], Any]


def condition_name(condition: Condition) -> str:
    """What it is called in messages, and where it is only told about."""
    return str(getattr(condition, "__qualname__", type(condition).__qualname__))


def holds(
    condition: Condition, left: pa.RecordBatch, right: pa.RecordBatch, batch: int
) -> npt.NDArray[np.bool_]:
    """Of which pairs the condition holds; not of those for which it is null, as in SQL."""
    name = condition_name(condition)
    told = call(condition, name, batch, left, right)
    if isinstance(told, pa.ChunkedArray):
        told = single(told)
    if isinstance(told, pa.Array) and pa.types.is_boolean(told.type):
        found = truths(told)
    elif isinstance(told, np.ndarray) and told.dtype == np.bool_:
        found = told
    else:
        raise _wrong(f"{name} returned {type(told).__name__}, no booleans.", name, batch)
    if found.shape != (left.num_rows,):
        raise _wrong(
            f"{name} returned {found.size:,} booleans for {left.num_rows:,} pairs.", name, batch
        )
    return found


def _wrong(what: str, name: str, batch: int) -> OperatorError:
    return OperatorError(
        what,
        where=f"{name}, batch {batch}",
        fix="Return a boolean for each pair: an Arrow array, such as pyarrow.compute gives, or one "
        "of NumPy's.",
    )
