"""User-defined functions: fold a batch into fresh states, then merge them with the stored ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaError, SettingError, UnsupportedType
from trailmark.values import dataclass
from trailmark.windows.bound import Array, Assignment, BatchColumns, StateField
from trailmark.windows.functions import State, UserFunction


def _memory_type(kind: pa.DataType) -> Any | None:
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return np.dtype((np.void, kind.byte_width))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
    return None


@dataclass(slots=True)
class UserFold:
    """Folds a batch's tuples into fresh states and merges them into the stored ones at the end."""

    function: UserDefined
    partial: State = field(default_factory=dict)
    is_touched: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def count(self) -> int:
        return len(self.is_touched)

    def _extend(self, count: int) -> None:
        if count > self.count:
            more = self.function.checked("init", count - self.count, count - self.count)
            for name, values in more.items():
                have = self.partial.get(name)
                self.partial[name] = values if have is None else np.concatenate([have, values])
            self.is_touched = np.concatenate(
                [self.is_touched, np.zeros(count - self.count, dtype=np.bool_)]
            )

    def add(
        self, states: Array, columns: BatchColumns, assigned: Assignment, heap: int | None
    ) -> None:
        self._extend(len(states))
        keep = assigned.window >= 0
        window = assigned.window[keep].astype(np.int64)
        if not len(window):
            return
        rows = np.flatnonzero(keep) if assigned.row is None else assigned.row[keep]
        is_all = assigned.row is None and len(window) == columns.rows.num_rows
        values = []
        for name in self.function.call.columns:
            column = columns.rows.column(name)
            values.append(column if is_all else column.take(pa.array(rows)))
        self.is_touched[window] = True
        self.partial = self.function.checked("update", self.count, self.partial, window, *values)

    def finish(
        self,
        states: Array,
        is_prior: npt.NDArray[np.bool_],
        columns: BatchColumns,
        heap: int | None,
    ) -> None:
        self._extend(len(states))
        mine = states[self.function.name]
        number = np.flatnonzero(is_prior & self.is_touched)
        merged: State = {}
        if len(number):
            stored = {name: np.ascontiguousarray(mine[name][number]) for name in self.partial}
            later = {name: values[number] for name, values in self.partial.items()}
            merged = self.function.checked("merge", len(number), stored, later)
        # A window that only closes keeps its stored state, bit for bit.
        fresh = np.flatnonzero(~is_prior)
        for name, values in self.partial.items():
            mine[name][fresh] = values[fresh]
        for name, values in merged.items():
            mine[name][number] = values


class UserDefined:
    """A :class:`UserFunction` bound to a place in the state."""

    def __init__(self, output: str, call: UserFunction, at: int) -> None:
        self.name = output
        self.call = call
        self.at = at
        self.result_type = call.result_type
        fields, offset = [], 0
        for column in call.state:
            dtype = _memory_type(column.type)
            if dtype is None:
                raise UnsupportedType(
                    f"State field {column.name!r} of type {column.type} has no fixed width.",
                    where=f"value {output!r}",
                    fix="Declare integers, floats or fixed_size_binary(n).",
                )
            fields.append(StateField(column.name, dtype, column.type, offset))
            offset += dtype.itemsize
        if len(set(call.state.names)) != len(fields):
            raise SettingError(
                f"A field of the state is named twice: {call.state.names}.",
                where=f"value {output!r}",
            )
        self.fields = tuple(fields)
        self.size = (offset + 7) // 8 * 8

    def checked(self, step: str, count: int, *arguments: Any) -> State:
        """Calls a function of the user's and checks what it returns."""
        call: Callable[..., Mapping[str, Any]] = getattr(self.call, step)
        returned = call(*arguments)
        where = f"value {self.name!r}, {step}"
        names = [f.name for f in self.fields]
        if not isinstance(returned, Mapping) or sorted(returned) != sorted(names):
            raise SchemaError(f"{step} must return a dictionary with {names}.", where=where)
        state: State = {}
        for item in self.fields:
            values = np.asarray(returned[item.name])
            if values.shape != (count,):
                raise SchemaError(
                    f"{step} returned {item.name!r} of shape {values.shape}, not ({count},).",
                    where=where,
                )
            if values.dtype != item.dtype and not np.can_cast(
                values.dtype, item.dtype, "same_kind"
            ):
                raise SchemaError(
                    f"{step} returned {item.name!r} as {values.dtype}, declared {item.kind}.",
                    where=where,
                    fix="Return arrays of the declared state types.",
                )
            state[item.name] = values.astype(item.dtype, copy=False)
        return state

    def fresh(self, state: Array) -> None:
        empty = self.checked("init", 1, 1)
        for name, values in empty.items():
            state[self.name][name] = values

    def begin(self) -> UserFold:
        return UserFold(self)

    def text_column(self) -> None:
        return None

    def source(self, columns: BatchColumns, heap: int | None) -> None:
        return None

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        if not len(states):
            # A list comprehension over no windows would make an array of no type.
            return pa.array([], self.result_type)
        mine = states[self.name]
        state = {f.name: mine[f.name].copy() for f in self.fields}
        values = self.call.result(state)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if not isinstance(values, pa.Array) or values.type != self.result_type:
            raise SchemaError(
                f"result returned {getattr(values, 'type', type(values))}, declared "
                f"{self.result_type}.",
                where=f"value {self.name!r}, result",
                fix="Return an Arrow array of the declared result type.",
            )
        if len(values) != len(states):
            raise SchemaError(
                f"result returned {len(values)} values for {len(states)} windows.",
                where=f"value {self.name!r}, result",
            )
        return values
