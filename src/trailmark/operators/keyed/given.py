"""What a user's code is given: the keys of a call, and their states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaError, SettingError
from trailmark.operators.keyed.collections import Lists, Maps, mask_of
from trailmark.operators.keyed.columns import (
    ListColumn,
    MapColumn,
    NumberColumn,
    StateColumn,
    as_column,
)
from trailmark.operators.keyed.due import CLOCK_TIMER, EVENT_TIMER, NEVER
from trailmark.operators.keyed.elements import States
from trailmark.state.table import StateTable

_NOT_A_TIME = np.iinfo(np.int64).min
Mask = npt.NDArray[np.bool_]


class Keys:
    """The keys of a call, each once, in the order in which they first come.

    ``len(keys)`` is how many there are, ``keys["name"]`` an Arrow column of them.

    Attributes
    ----------
    of_rows
        For every row of the call, the number of its key: a NumPy array of whole numbers.
    """

    def __init__(
        self, count: int, of_rows: npt.NDArray[np.int64], read: Callable[[], pa.RecordBatch]
    ) -> None:
        self.of_rows = of_rows
        self._count = count
        self._read = read
        self._columns: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def columns(self) -> pa.RecordBatch:
        """The key columns, one row for each key."""
        if self._columns is None:
            self._columns = self._read()
        return self._columns

    def __getitem__(self, name: str) -> pa.Array:
        return self.columns.column(name)

    def counts(self) -> npt.NDArray[np.int64]:
        """How many rows each key has."""
        return np.bincount(self.of_rows, minlength=len(self))

    def table(self, which: Mask | None = None, **values: Any) -> pa.Table:
        """The key columns and, beside them, columns with a value for each key; with ``which``, of
        these keys only.

        Values that are no Arrow columns become such: NumPy arrays and lists do.
        """
        names = [*self.columns.schema.names, *values]
        arrays = [*self.columns.columns, *(_arrow(each) for each in values.values())]
        found = pa.table(arrays, names=names)
        return found if which is None else found.filter(pa.array(mask_of(which, len(self))))


def _arrow(values: Any) -> pa.Array:
    return values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)


class KeyedState:
    """The states of the keys of a call: a value in each column for each key.

    ``state["n"]`` is a NumPy array for numbers, booleans and times, to be changed in place or
    assigned to; an Arrow array for strings, bytes, dates and decimals, to be assigned to; `Lists`
    and `Maps` for lists and maps.

    Attributes
    ----------
    is_new
        Which keys had no state before.
    watermark
        The watermark of the batch, NaT while there is none.
    now
        The time of the batch by the clock, for operators that use it; NaT for others.
    """

    # A timer whose name is misspelt is refused, not kept and never looked at.
    __slots__ = (
        "_assigned",
        "_columns",
        "_open",
        "_removed",
        "_states",
        "_table",
        "_timers",
        "is_new",
        "now",
        "watermark",
    )

    def __init__(
        self,
        columns: Mapping[str, StateColumn],
        table: StateTable,
        states: States,
        is_new: Mask,
        watermark: int | None,
        now: int | None,
    ) -> None:
        self.is_new = is_new
        self.watermark = _moment(watermark)
        self.now = _moment(now)
        self._columns = columns
        self._table = table
        self._states = states
        self._open: dict[str, Any] = {}
        self._assigned: set[str] = set()
        self._timers: dict[str, npt.NDArray[Any]] = {}
        self._removed = np.zeros(len(states), dtype=np.bool_)

    def __len__(self) -> int:
        return len(self._states)

    def __getitem__(self, name: str) -> Any:
        if name not in self._open:
            self._open[name] = self._read(self._column(name))
        return self._open[name]

    def __setitem__(self, name: str, values: Any) -> None:
        if name in self._open and values is self._open[name]:
            return  # state["n"] += 1 has changed it in place already
        column = self._column(name)
        if isinstance(column, NumberColumn):
            self._open[name] = self._numbers(column, values)
        elif isinstance(column, ListColumn | MapColumn):
            self[name].assign(self._arrow(column, values))
        else:
            self._open[name] = self._arrow(column, values)
            self._assigned.add(name)

    @property
    def event_timer(self) -> npt.NDArray[np.datetime64]:
        """When `on_event_timer` is to be called for each key, by the watermark; NaT: not at all.
        To be changed in place or assigned to."""
        return self._timer(EVENT_TIMER, "on_event_timer")

    @event_timer.setter
    def event_timer(self, values: Any) -> None:
        self._set_timer(EVENT_TIMER, "on_event_timer", values)

    @property
    def clock_timer(self) -> npt.NDArray[np.datetime64]:
        """When `on_clock_timer` is to be called for each key, by the clock; NaT: not at all. To be
        changed in place or assigned to."""
        return self._timer(CLOCK_TIMER, "on_clock_timer")

    @clock_timer.setter
    def clock_timer(self, values: Any) -> None:
        self._set_timer(CLOCK_TIMER, "on_clock_timer", values)

    def remove(self, which: Mask | None = None) -> None:
        """Lets go of the states of these keys, or of all; the next tuple of such a key begins
        with a new one."""
        self._removed |= mask_of(which, len(self))

    # What becomes of it

    @property
    def removed(self) -> Mask:
        return self._removed

    def save(self) -> None:
        """Writes what was changed into the states, and what they refer to into the heap."""
        for name, values in self._open.items():
            column = self._columns[name]
            if isinstance(column, NumberColumn):
                column.put(self._states, self._numbers(column, values))
            elif isinstance(values, Lists | Maps):
                values.save(self._table, self._states)
            elif name in self._assigned:
                column.write(self._table, self._states, values)
        for kind, times in self._timers.items():
            given = times.view(np.int64)
            self._states[kind]["at"] = np.where(given == _NOT_A_TIME, NEVER, given)

    def _column(self, name: str) -> StateColumn:
        if name not in self._columns:
            raise SettingError(
                f"The state has no column {name!r}.",
                where=f"state[{name!r}]",
                fix=f"It has {list(self._columns)}; declare others in the class's state.",
            )
        return self._columns[name]

    def _read(self, column: StateColumn) -> Any:
        if isinstance(column, NumberColumn):
            return column.array(self._states)
        if isinstance(column, ListColumn):
            return Lists(column, *column.read_flat(self._table, self._states))
        if isinstance(column, MapColumn):
            return Maps(column, *column.read_flat(self._table, self._states))
        return column.read(self._table, self._states)

    def _numbers(self, column: NumberColumn, values: Any) -> npt.NDArray[Any]:
        found = np.asarray(values)
        if isinstance(values, pa.Array | pa.ChunkedArray):
            found = values.to_numpy(zero_copy_only=False)
        where = f"state[{column.name!r}]"
        if found.shape not in ((), (len(self),)):
            raise SchemaError(
                f"{len(self)} values are needed, one for each key; got the shape {found.shape}.",
                where=where,
            )
        if not np.can_cast(found.dtype, column.numpy, "same_kind"):
            raise SchemaError(
                f"{found.dtype} is not {column.kind}, which the state declares.",
                where=where,
                fix="Convert the values, or declare another type.",
            )
        if column.numpy.kind in "iu" and found.size:
            limits = np.iinfo(column.numpy)
            if not limits.min <= int(found.min()) <= int(found.max()) <= limits.max:
                raise SchemaError(
                    f"There are values that {column.kind}, which the state declares, cannot hold: "
                    f"from {found.min()} to {found.max()}.",
                    where=where,
                    fix="Declare a larger type.",
                )
        return np.broadcast_to(found, (len(self),)).astype(column.numpy)

    def _arrow(self, column: StateColumn, values: Any) -> pa.Array:
        where = f"state[{column.name!r}]"
        try:
            found = as_column(values, column.kind)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise SchemaError(
                f"The values are not {column.kind}, which the state declares: {error}",
                where=where,
                fix="Convert the values, or declare another type.",
            ) from error
        if len(found) != len(self):
            raise SchemaError(
                f"{len(self)} values are needed, one for each key; got {len(found)}.", where=where
            )
        return found

    def _timer(self, kind: str, method: str) -> npt.NDArray[Any]:
        if kind not in (self._states.dtype.names or ()):
            raise SettingError(
                f"The operator has no method {method}, so nothing would happen then.",
                where=kind.replace("$", "state."),
                fix=f"Write def {method}(self, keys, due, state).",
            )
        if kind not in self._timers:
            at = self._states[kind]["at"]
            self._timers[kind] = np.where(at == NEVER, _NOT_A_TIME, at).view("<M8[us]")
        return self._timers[kind]

    def _set_timer(self, kind: str, method: str, values: Any) -> None:
        timers = self._timer(kind, method)
        if values is not timers:
            timers[:] = np.asarray(values).astype("<M8[us]")


def _moment(microseconds: int | None) -> np.datetime64:
    return np.datetime64(_NOT_A_TIME if microseconds is None else microseconds, "us")
