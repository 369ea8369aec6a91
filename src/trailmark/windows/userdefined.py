"""User-defined functions: fold a batch into fresh states, then merge them with the stored ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaError, SettingError, UnsupportedType
from trailmark.kernel.columns import single
from trailmark.kernel.library import Bytes, address
from trailmark.values import dataclass
from trailmark.windows.blocks import Blocks, HeldColumn, memory_of
from trailmark.windows.bound import Array, Assignment, BatchColumns, StateField
from trailmark.windows.functions import State, UserFunction

Numbers = npt.NDArray[np.int64]


def _memory_type(kind: pa.DataType) -> Any | None:
    if pa.types.is_fixed_size_binary(kind) and not pa.types.is_decimal(kind):
        return np.dtype((np.void, kind.byte_width))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
    return None


def chosen(state: State, places: Numbers) -> State:
    """The states of some windows."""
    return {
        name: values.take(pa.array(places)) if isinstance(values, pa.Array) else values[places]
        for name, values in state.items()
    }


def joined(state: State, more: State) -> State:
    """The states of some windows, then those of others."""
    return {
        name: pa.concat_arrays([values, more[name]])
        if isinstance(values, pa.Array)
        else np.concatenate([values, more[name]])
        for name, values in state.items()
    }


def _aligned(offset: int) -> int:
    return (offset + 7) // 8 * 8


def _held_values(returned: Any, item: StateField, step: str, count: int, where: str) -> pa.Array:
    """Texts or lists as the user has returned them."""
    try:
        is_arrow = isinstance(returned, pa.Array | pa.ChunkedArray)
        column = single(returned) if is_arrow else pa.array(returned, item.kind)
        column = column if column.type == item.kind else column.cast(item.kind)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"{step} returned {item.name!r}, declared {item.kind}, as something else: {error}",
            where=where,
            fix="Return an Arrow array of the declared type.",
        ) from error
    has_nulls = column.null_count or (pa.types.is_list(item.kind) and column.flatten().null_count)
    if len(column) != count or has_nulls:
        wrong = "with nulls" if has_nulls else f"with {len(column)} values, not {count}"
        raise SchemaError(f"{step} returned {item.name!r} {wrong}.", where=where)
    return column


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
            self.partial = joined(self.partial, more) if self.partial else more
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
        if not len(states):
            return
        # A window that only closes keeps its stored state, bit for bit.
        changed = np.flatnonzero(~is_prior)
        values = chosen(self.partial, changed)
        number = np.flatnonzero(is_prior & self.is_touched)
        if len(number):
            stored = self.function.read(states[number], columns, heap)
            later = chosen(self.partial, number)
            merged = self.function.checked("merge", len(number), stored, later)
            changed, values = np.concatenate([changed, number]), joined(values, merged)
        columns.written[self.function.name] = self.function.put(states, changed, values)


class UserDefined:
    """A :class:`UserFunction` bound to a place in the state."""

    def __init__(self, output: str, call: UserFunction, at: int) -> None:
        self.name = output
        self.call = call
        self.at = at
        self.result_type = call.result_type
        fields, offset = [], 0
        self._held: dict[str, HeldColumn] = {}
        for column in call.state:
            dtype = _memory_type(column.type)
            is_held = dtype is None
            dtype = memory_of(column.type) if dtype is None else dtype
            if dtype is None:
                raise UnsupportedType(
                    f"State field {column.name!r} of type {column.type} cannot be kept.",
                    where=f"value {output!r}",
                    fix="Declare integers, floats, fixed_size_binary(n), strings, bytes, or lists "
                    "of numbers, booleans, times, decimals, strings or bytes.",
                )
            if is_held:
                offset = _aligned(offset)
                self._held[column.name] = HeldColumn(column.type, at + offset)
            fields.append(StateField(column.name, dtype, column.type, offset, is_held=is_held))
            offset += dtype.itemsize
        if len(set(call.state.names)) != len(fields):
            raise SettingError(
                f"A field of the state is named twice: {call.state.names}.",
                where=f"value {output!r}",
            )
        self.fields = tuple(fields)
        self.size = _aligned(offset)

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
            if item.is_held:
                state[item.name] = _held_values(returned[item.name], item, step, count, where)
                continue
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
        """Texts and lists begin with the first batch of a window: a state alone has no heap."""
        empty = self.checked("init", 1, 1)
        for name, values in empty.items():
            if name not in self._held:
                state[self.name][name] = values

    def begin(self) -> UserFold:
        return UserFold(self)

    def read(self, states: Array, columns: BatchColumns, heap: int | None) -> State:
        """The states as the user's functions are given them."""
        source = self.source(columns, heap)
        return self.as_given(states, {} if source is None else self.read_held(states, source))

    def as_given(self, states: Array, held: Mapping[str, pa.Array]) -> State:
        mine = states[self.name]
        return {
            item.name: held[item.name] if item.is_held else mine[item.name].copy()
            for item in self.fields
        }

    def put(self, states: Array, which: Numbers, values: State) -> Blocks:
        """Leaves states with these values; texts and lists are in the bytes that are returned."""
        blocks, begin = [np.empty(1, dtype=np.uint8)], 1
        for name, column in values.items():
            if name in self._held:
                blocks.append(self._held[name].hold(states, which, column, begin))
                begin += len(blocks[-1])
            else:
                states[self.name][name][which] = column
        return np.concatenate(blocks)

    def source(self, columns: BatchColumns, heap: int | None) -> Bytes | None:
        if not self._held:
            return None
        written = columns.written.get(self.name)
        return Bytes(None, None if written is None else address(written), heap)

    def read_held(self, states: Array, source: Bytes) -> dict[str, pa.Array]:
        return {name: column.read(states, source) for name, column in self._held.items()}

    def hold(self, states: Array, values: Mapping[str, pa.Array]) -> Blocks:
        return self.put(states, np.arange(len(states)), dict(values))

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        if not len(states):
            # A list comprehension over no windows would make an array of no type.
            return pa.array([], self.result_type)
        values = self.call.result(self.read(states, columns, heap))
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
