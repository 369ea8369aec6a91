"""What the operator needs of a function once the types of its columns are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.kernel.columns import (
    ColumnView,
    arrow_fixed,
    is_plain_number,
    numbers,
    plain,
    single,
    view,
)
from trailmark.kernel.library import Bytes, Column, States, Updates, address
from trailmark.values import dataclass
from trailmark.windows.hashes import hashed

Physical = Literal["i64", "f64", "i128", "text", "hash", "any"]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class StateField:
    """One field of a function's state: in memory a NumPy type, in a footprint an Arrow type.

    What is ``held`` lies beside the slots: in memory the field begins with its place, see
    `trailmark.windows.blocks`; in a footprint it is the text or the list itself.
    """

    name: str
    dtype: Any
    kind: pa.DataType
    at: int
    is_held: bool = False
    may_be_null: bool = False


@dataclass(slots=True)
class BatchColumns:
    """The columns of a batch in the layouts the kernel reads, each prepared once."""

    rows: pa.RecordBatch
    #: Values that functions let states hold, by the name of the function, until they are stored.
    written: dict[str, npt.NDArray[np.uint8]] = field(default_factory=dict)
    _ready: dict[tuple[str, Physical], ColumnView] = field(default_factory=dict)

    def get(self, name: str, physical: Physical) -> ColumnView:
        key = (name, physical)
        if key not in self._ready:
            self._ready[key] = view(_cast(self.rows.column(name), physical))
        return self._ready[key]


def _cast(column: pa.Array, physical: Physical) -> pa.Array:
    column = plain(single(column))
    if physical == "hash":
        return hashed(column)
    if physical in ("i64", "f64") and is_plain_number(column):
        values = numbers(column)
        # What cannot overflow is widened here: Arrow's conversions take long to import.
        if values.dtype.kind == physical[0]:
            kind = pa.int64() if physical == "i64" else pa.float64()
            return arrow_fixed(values.astype(f"<{physical[0]}8", copy=False), kind)
    if physical == "f64":
        if pa.types.is_decimal(column.type):
            # Arrow's own conversion may miss the nearest double: -99.99 becomes -99.99000000000001.
            column = column.cast(pa.string())
        return column.cast(pa.float64(), safe=False)
    if physical == "i64":
        if pa.types.is_date32(column.type):
            column = column.cast(pa.int32())
        return column.cast(pa.int64())
    return column


@dataclass(slots=True)
class Assignment:
    """Which tuple goes to which window: ``row`` None means pair i is tuple i, window -1 none."""

    row: npt.NDArray[np.int32] | None
    window: npt.NDArray[np.int32]

    def structure(self) -> Updates:
        return Updates(address(self.row), address(self.window), len(self.window))


def column_structure(v: ColumnView | None) -> Column:
    return Column() if v is None else Column(v.data, v.validity, v.first)


def bytes_structure(v: ColumnView | None, heap: int | None) -> Bytes:
    return Bytes(v.offsets, v.data, heap) if v is not None else Bytes(None, None, heap)


def states_structure(states: Array, at: int) -> States:
    return States(address(states), states.dtype.itemsize, at)


class BatchFold(Protocol):
    """A function at work on one batch."""

    def add(
        self, states: Array, columns: BatchColumns, assigned: Assignment, heap: int | None
    ) -> None:
        """Takes tuples in; ``states`` holds all windows of the batch met so far, ``heap`` is
        where the table keeps strings."""

    def finish(
        self,
        states: Array,
        is_prior: npt.NDArray[np.bool_],
        columns: BatchColumns,
        heap: int | None,
    ) -> None:
        """Leaves the states after the batch in ``states``."""


class BoundFunction(Protocol):
    """A function whose types are settled. ``at`` is where its state begins in a window's state."""

    name: str
    at: int
    fields: tuple[StateField, ...]
    size: int
    result_type: pa.DataType

    def fresh(self, state: Array) -> None:
        """Writes the state of an empty window into a state of one row."""

    def begin(self) -> BatchFold: ...

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array: ...

    def source(self, columns: BatchColumns, heap: int | None) -> Bytes | None:
        """Where what states hold beside the slots is, in the batch or in the heap; None if they
        hold nothing there."""

    def read_held(self, states: Array, source: Bytes) -> dict[str, pa.Array]:
        """What states hold beside the slots, by the names of the fields."""

    def hold(self, states: Array, values: Mapping[str, pa.Array]) -> npt.NDArray[np.uint8]:
        """Lets states hold these values, which are in the bytes that are returned."""
