"""Columns of a keyed state: what a slot holds of each, and how they become Arrow columns and back.

Numbers lie in the slot. What differs in length lies in the heap of the table, and the slot says
where.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SettingError, UnsupportedType
from trailmark.kernel.columns import arrow_fixed, single, validity
from trailmark.operators.keyed.elements import (
    VALUE,
    Counts,
    Elements,
    Parts,
    States,
    elements_of,
    fixed_bytes,
    fixed_width,
    free_values,
    is_text,
    read_parts,
    text_bytes,
    text_column,
    write_parts,
)
from trailmark.state.table import StateTable

#: A time that a state has not.
_NOT_A_TIME = np.datetime64("NaT", "us")


class StateColumn(ABC):
    """One column of a state.

    Attributes
    ----------
    name, kind
        As they are declared, and as footprints have them.
    memory
        What a slot holds.
    at
        Where in a state that is; set when all columns are known.
    """

    memory: np.dtype[Any]

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.kind = kind
        self.at = 0

    @abstractmethod
    def fresh(self, states: States) -> None:
        """Writes the value that a key begins with, into states that hold nothing yet."""

    @abstractmethod
    def read(self, table: StateTable, states: States) -> pa.Array:
        """The values of states."""

    @abstractmethod
    def write(self, table: StateTable, states: States, column: pa.Array) -> None:
        """Puts values in the place of those that states have."""

    @property
    def places(self) -> tuple[int, ...]:
        """Where in a state it refers to values in the heap."""
        return ()

    def free(self, table: StateTable, states: States) -> None:
        """Gives back what the values of states take in the heap."""
        for at in self.places:
            free_values(table, states, at)


class NumberColumn(StateColumn):
    """Numbers, booleans and times: a NumPy array, changed in place. Only times can be null."""

    def __init__(self, name: str, kind: pa.DataType, numpy: np.dtype[Any], initial: Any) -> None:
        super().__init__(name, kind)
        self.numpy = numpy
        self.memory = np.dtype(np.uint8) if numpy == np.bool_ else numpy
        self.initial = initial

    def fresh(self, states: States) -> None:
        states[self.name] = self.initial

    def array(self, states: States) -> npt.NDArray[Any]:
        """A copy of the values."""
        return states[self.name].astype(self.numpy)

    def put(self, states: States, values: npt.NDArray[Any]) -> None:
        states[self.name] = values

    def read(self, table: StateTable, states: States) -> pa.Array:
        values = self.array(states)
        is_valid = ~np.isnat(values) if self.numpy.kind == "M" else None
        return arrow_fixed(values, self.kind, is_valid)

    def write(self, table: StateTable, states: States, column: pa.Array) -> None:
        raw = np.ascontiguousarray(fixed_bytes(column, self.memory.itemsize))
        values = raw.reshape(-1).view(self.memory).copy()
        if column.null_count:
            values[~validity(column)] = _NOT_A_TIME
        states[self.name] = values


class NullableColumn(StateColumn):
    """Dates and decimals: an Arrow column. A key begins with null."""

    def __init__(self, name: str, kind: pa.DataType, width: int) -> None:
        super().__init__(name, kind)
        self._width = width
        self.memory = np.dtype([("value", "u1", (width,)), ("valid", "u1")])

    def fresh(self, states: States) -> None:
        states[self.name] = np.zeros((), dtype=self.memory)

    def read(self, table: StateTable, states: States) -> pa.Array:
        values = np.ascontiguousarray(states[self.name]["value"])
        return arrow_fixed(values, self.kind, states[self.name]["valid"] == 1)

    def write(self, table: StateTable, states: States, column: pa.Array) -> None:
        states[self.name]["value"] = fixed_bytes(column, self._width)
        states[self.name]["valid"] = validity(column)


class TextColumn(StateColumn):
    """Strings or bytes: an Arrow column. A key begins with null."""

    memory = VALUE

    def fresh(self, states: States) -> None:
        states[self.name] = np.zeros((), dtype=VALUE)

    def read(self, table: StateTable, states: States) -> pa.Array:
        parts = read_parts(table, states, self.at, 0)
        sizes = np.where(parts.counts == 1, parts.lengths, -1).astype(np.int32)
        return text_column(sizes, parts.second, self.kind)

    def write(self, table: StateTable, states: States, column: pa.Array) -> None:
        sizes, data = text_bytes(column)
        counts = (sizes >= 0).astype(np.int64)
        none = np.empty(0, dtype=np.uint8)
        lengths = np.maximum(sizes, 0).astype(np.int64)
        write_parts(table, states, self.at, 0, Parts(counts, lengths, none, data))

    @property
    def places(self) -> tuple[int, ...]:
        return (self.at,)


class ListColumn(StateColumn):
    """Lists, which are empty to begin with and never null."""

    memory = VALUE

    def __init__(self, name: str, kind: pa.DataType, elements: Elements) -> None:
        super().__init__(name, kind)
        self._elements = elements

    def fresh(self, states: States) -> None:
        states[self.name] = np.zeros((), dtype=VALUE)

    def read_flat(self, table: StateTable, states: States) -> tuple[Counts, pa.Array]:
        """How many elements each list has, and all of them one after another."""
        parts = read_parts(table, states, self.at, self._elements.width)
        return parts.counts, self._elements.flat(parts)

    def write_flat(self, table: StateTable, states: States, counts: Counts, flat: pa.Array) -> None:
        parts = self._elements.parts(flat, counts)
        write_parts(table, states, self.at, self._elements.width, parts)

    def read(self, table: StateTable, states: States) -> pa.Array:
        return list_array(*self.read_flat(table, states), self.kind)

    def write(self, table: StateTable, states: States, column: pa.Array) -> None:
        self.write_flat(table, states, list_counts(column), column.flatten())

    @property
    def places(self) -> tuple[int, ...]:
        return (self.at,)


class MapColumn(StateColumn):
    """Maps: two lists of the same lengths."""

    memory = np.dtype([("keys", VALUE), ("items", VALUE)], align=True)

    def __init__(self, name: str, kind: pa.DataType, keys: Elements, items: Elements) -> None:
        super().__init__(name, kind)
        self._elements = (keys, items)

    @property
    def places(self) -> tuple[int, ...]:
        return self.at, self.at + VALUE.itemsize

    def fresh(self, states: States) -> None:
        states[self.name] = np.zeros((), dtype=self.memory)

    def read_flat(self, table: StateTable, states: States) -> tuple[Counts, pa.Array, pa.Array]:
        """How many entries each map has, and keys and items of all of them."""
        keys, items = (
            read_parts(table, states, at, elements.width)
            for at, elements in zip(self.places, self._elements, strict=True)
        )
        flat_keys, flat_items = (
            elements.flat(parts)
            for elements, parts in zip(self._elements, (keys, items), strict=True)
        )
        return keys.counts, flat_keys, flat_items

    def write_flat(
        self, table: StateTable, states: States, counts: Counts, keys: pa.Array, items: pa.Array
    ) -> None:
        for at, elements, flat in zip(self.places, self._elements, (keys, items), strict=True):
            write_parts(table, states, at, elements.width, elements.parts(flat, counts))

    def read(self, table: StateTable, states: States) -> pa.Array:
        return map_array(*self.read_flat(table, states), self.kind)

    def write(self, table: StateTable, states: States, column: pa.Array) -> None:
        self.write_flat(table, states, *map_parts(column))


def list_counts(column: pa.Array) -> Counts:
    """How many elements each list has; none where it is null."""
    counts = column.value_lengths().fill_null(0)
    found: Counts = counts.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def offsets_of(counts: Counts) -> pa.Array:
    """Where each of so many elements begin, and where the last ones end."""
    return pa.array(np.concatenate([[0], np.cumsum(counts)]), pa.int32())


def list_array(counts: Counts, flat: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.ListArray.from_arrays(offsets_of(counts), flat, type=kind)


def map_array(counts: Counts, keys: pa.Array, items: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.MapArray.from_arrays(offsets_of(counts), keys, items, type=kind)


def map_parts(column: pa.Array) -> tuple[Counts, pa.Array, pa.Array]:
    """How many entries each map has, and keys and items of all of them."""
    as_lists = column.cast(
        pa.list_(pa.struct([("k", column.type.key_type), ("v", column.type.item_type)]))
    )
    entries = as_lists.flatten()
    return list_counts(as_lists), entries.field("k"), entries.field("v")


def column_of(name: str, kind: pa.DataType, initial: Mapping[str, Any]) -> StateColumn:
    """The column of a state that is declared so; refused if states hold none of the type."""
    numpy = _numpy_type(kind)
    if numpy is not None:
        return NumberColumn(name, kind, numpy, _initial(name, numpy, initial))
    if name in initial:
        raise SettingError(
            f"{name!r} of type {kind} cannot have an initial value: it begins empty, or null.",
            where=f"initial[{name!r}]",
            fix="Leave it out; state.is_new tells which keys are new.",
        )
    column = _column_beside(name, kind)
    if column is None:
        raise UnsupportedType(
            f"State column {name!r} of type {kind} cannot be kept.",
            where=f"state[{name!r}]",
            fix="Use numbers, booleans, strings, bytes, dates, timestamps of microseconds, "
            "decimals, or lists and maps of these.",
        )
    return column


def _column_beside(name: str, kind: pa.DataType) -> StateColumn | None:
    """A column that is no NumPy array for users."""
    if is_text(kind):
        return TextColumn(name, kind)
    if pa.types.is_map(kind):
        keys, items = elements_of(kind.key_type), elements_of(kind.item_type)
        return None if keys is None or items is None else MapColumn(name, kind, keys, items)
    if pa.types.is_list(kind):
        elements = elements_of(kind.value_type)
        return None if elements is None else ListColumn(name, kind, elements)
    width = fixed_width(kind)
    is_other_time = pa.types.is_timestamp(kind)  # those that NumPy takes have come by before
    return None if width is None or is_other_time else NullableColumn(name, kind, width)


def _numpy_type(kind: pa.DataType) -> np.dtype[Any] | None:
    """What users see of a column of numbers; None if it is something else."""
    t = pa.types
    if t.is_boolean(kind):
        return np.dtype(np.bool_)
    if t.is_timestamp(kind) and kind.unit == "us":
        return np.dtype("<M8[us]")
    if t.is_integer(kind) or t.is_float32(kind) or t.is_float64(kind):
        little: np.dtype[Any] = np.dtype(kind.to_pandas_dtype()).newbyteorder("<")
        return little
    return None


def _initial(name: str, numpy: np.dtype[Any], initial: Mapping[str, Any]) -> Any:
    if name not in initial:
        return _NOT_A_TIME if numpy.kind == "M" else numpy.type(0)
    given = np.asarray(initial[name])
    # A plain whole number fits wherever its value does.
    kind = np.min_scalar_type(given) if given.dtype.kind in "iu" else given.dtype
    is_number = given.shape == () and given.dtype.kind in "biufM"
    if not is_number or not np.can_cast(kind, numpy, "same_kind") or _is_cut(given, numpy):
        raise SettingError(
            f"{initial[name]!r} cannot be the initial value of {name!r}, which is {numpy}.",
            where=f"initial[{name!r}]",
        )
    return given.astype(numpy)[()]


def _is_cut(given: npt.NDArray[Any], numpy: np.dtype[Any]) -> bool:
    """Whether a whole number is too large for its type."""
    if given.dtype.kind not in "iu" or numpy.kind not in "iu":
        return False
    limits = np.iinfo(numpy)
    return not limits.min <= int(given) <= limits.max


def as_column(values: Any, kind: pa.DataType) -> pa.Array:
    """Values that users give as an Arrow column of a type; raises an `ArrowException`, or
    ``TypeError`` or ``ValueError``."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        column = single(values)
        return column if column.type == kind else column.cast(kind)
    return pa.array(values, kind)
