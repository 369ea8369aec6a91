"""The states of all functions of an aggregate side by side, and the columns that these read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.windows import bind
from trailmark.windows.bound import BoundFunction
from trailmark.windows.functions import AnyFunction


def bind_all(values: Mapping[str, AnyFunction], schema: pa.Schema) -> list[BoundFunction]:
    """The functions, each with a place of its own in the state of a window."""
    functions: list[BoundFunction] = []
    at = 0
    for name, call in values.items():
        function = bind(name, call, schema, at)
        functions.append(function)
        at += function.size
    return functions


def state_type(functions: Sequence[BoundFunction]) -> np.dtype[Any]:
    """The state of a window, function by function and field by field."""
    kinds = []
    for function in functions:
        kinds.append(
            np.dtype(
                {
                    "names": [f.name for f in function.fields],
                    "formats": [f.dtype for f in function.fields],
                    "offsets": [f.at for f in function.fields],
                    "itemsize": function.size,
                }
            )
        )
    return np.dtype(
        {
            "names": [function.name for function in functions],
            "formats": kinds,
            "offsets": [function.at for function in functions],
            "itemsize": sum(function.size for function in functions),
        }
    )


def fresh_state(functions: Sequence[BoundFunction]) -> npt.NDArray[Any]:
    """The state of a window that holds nothing yet, as an array of one."""
    fresh = np.zeros(1, dtype=state_type(functions))
    for function in functions:
        function.fresh(fresh)
    return fresh


def needed_columns(
    schema: pa.Schema,
    by: list[str],
    time: str | None,
    values: Mapping[str, AnyFunction],
    order: list[str],
) -> pa.Schema:
    """The columns of the input that are read."""
    names = list(by)
    if time is not None:
        names.append(time)
    for call in values.values():
        names.extend(call.columns)
    names.extend(order)
    return pa.schema([schema.field(name) for name in dict.fromkeys(names)])
