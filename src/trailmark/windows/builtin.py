"""The built-in functions: types, states and results by Spark SQL's rules; the kernel folds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import UnsupportedType, ValueOverflow
from trailmark.kernel.columns import (
    ColumnView,
    arrow_fixed,
    arrow_text,
    is_readable,
    plain,
)
from trailmark.kernel.library import Bytes, address, kernel, reference
from trailmark.values import dataclass
from trailmark.windows.blocks import read_blocks, text_parts
from trailmark.windows.bound import (
    Array,
    Assignment,
    BatchColumns,
    BatchFold,
    Physical,
    StateField,
    bytes_structure,
    column_structure,
    states_structure,
)
from trailmark.windows.functions import Function

_I128 = ("u1", (16,))
_T = pa.types


def is_number(kind: pa.DataType) -> bool:
    return _T.is_floating(kind) or _T.is_decimal128(kind) or _is_int(kind)


def _is_int(kind: pa.DataType) -> bool:
    return bool(_T.is_integer(kind)) and not _T.is_uint64(kind)


def physical_of(kind: pa.DataType) -> Physical | None:
    if _T.is_string(kind) or _T.is_large_string(kind):
        return "text"
    if _T.is_decimal128(kind):
        return "i128"
    if _T.is_float32(kind) or _T.is_float64(kind):
        return "f64"
    if _is_int(kind) or _T.is_boolean(kind) or _T.is_date(kind) or _T.is_timestamp(kind):
        return "i64"
    return None


@dataclass(slots=True)
class KernelFold:
    """Folds straight into the states; the order of tuples is the order of the batch."""

    function: BuiltIn

    def add(
        self, states: Array, columns: BatchColumns, assigned: Assignment, heap: int | None
    ) -> None:
        self.function.fold(states, columns, assigned, heap)

    def finish(
        self,
        states: Array,
        is_prior: npt.NDArray[np.bool_],
        columns: BatchColumns,
        heap: int | None,
    ) -> None:
        pass


class BuiltIn:
    """A built-in function bound to the type of its column."""

    physical: Physical | None
    fields: tuple[StateField, ...]
    result_type: pa.DataType

    def __init__(self, output: str, call: Function, kind: pa.DataType | None, at: int) -> None:
        self.name = output
        self.at = at
        self._call = call
        self._kind = kind
        self._settle(kind)
        self.size = sum(_size(f.dtype) for f in self.fields)

    def _settle(self, kind: Any) -> None:
        """Sets physical, fields and result_type from the type of the column."""
        raise NotImplementedError

    def _refuse(self) -> UnsupportedType:
        return UnsupportedType(
            f"{self._call.name} cannot take column {self._call.column!r} of type {self._kind}.",
            where=f"value {self.name!r}",
            fix="Cast the column to a type the function takes.",
        )

    def fresh(self, state: Array) -> None:
        state.view(np.uint8)[self.at : self.at + self.size] = 0

    def begin(self) -> BatchFold:
        return KernelFold(self)

    def source(self, columns: BatchColumns, heap: int | None) -> Bytes | None:
        return None

    def read_held(self, states: Array, source: Bytes) -> dict[str, pa.Array]:
        return {}

    def hold(self, states: Array, values: Mapping[str, pa.Array]) -> npt.NDArray[np.uint8]:
        raise NotImplementedError

    def fold(
        self, states: Array, columns: BatchColumns, assigned: Assignment, heap: int | None
    ) -> None:
        view = None
        if self._call.column is not None and self.physical is not None:
            view = columns.get(self._call.column, self.physical)
        self.fold_values(states, view, assigned, heap)

    def fold_values(
        self,
        states: Array,
        values: ColumnView | None,
        assigned: Assignment,
        heap: int | None = None,
    ) -> None:
        """Folds values that need not be those of the column."""
        structures = (
            states_structure(states, self.at),
            column_structure(values),
            assigned.structure(),
        )
        arguments = [reference(s) for s in structures]
        if self.physical == "text":
            arguments.append(reference(bytes_structure(values, heap)))
        self._call_kernel(arguments)

    def _call_kernel(self, arguments: list[Any]) -> None:
        raise NotImplementedError

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        raise NotImplementedError

    def _overflow(self, ok: npt.NDArray[np.uint8], values: npt.NDArray[Any]) -> pa.Array:
        if self._call.overflow == "error" and (ok == 2).any():
            raise ValueOverflow(
                f"{self._call.name} of column {self._call.column!r} does not fit "
                f"{self.result_type} in {int((ok == 2).sum())} window(s).",
                where=f"value {self.name!r}",
                fix="Cast the column to a wider type, or use overflow='null'.",
            )
        return arrow_fixed(values, self.result_type, ok == 1)


def _size(dtype: Any) -> int:
    return int(np.dtype(dtype).itemsize)


def _held(value: Any, kind: pa.DataType) -> tuple[StateField, ...]:
    width = _size(value)
    return (StateField("value", value, kind, 0), StateField("seen", "<i8", pa.int64(), width))


class Count(BuiltIn):
    def _settle(self, kind: Any) -> None:
        self.physical = None
        if kind is not None and not is_readable(kind):
            raise self._refuse()
        self.fields = (StateField("count", "<i8", pa.int64(), 0),)
        self.result_type = pa.int64()

    def fold(
        self, states: Array, columns: BatchColumns, assigned: Assignment, heap: int | None
    ) -> None:
        # Only nulls matter, so no column is converted.
        view = None
        if self._call.column is not None:
            view = columns.get(self._call.column, "any")
        kernel.tm_count(
            reference(states_structure(states, self.at)),
            reference(column_structure(view)),
            reference(assigned.structure()),
        )

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        return arrow_fixed(states[self.name]["count"], pa.int64())


class Sum(BuiltIn):
    """Sum and avg: the same state, another result."""

    def _settle(self, kind: Any) -> None:
        if not is_number(kind):
            raise self._refuse()
        is_avg = self._call.name == "avg"
        self._more = 0
        if _T.is_decimal128(kind):
            self.physical = "i128"
            grow = 4 if is_avg else 10
            scale = min(38, kind.scale + 4) if is_avg else kind.scale
            self._more = scale - kind.scale
            self.result_type = pa.decimal128(min(38, kind.precision + grow), scale)
        else:
            self.physical = "f64" if _T.is_floating(kind) else "i64"
            whole = pa.int64() if self.physical == "i64" else pa.float64()
            self.result_type = pa.float64() if is_avg else whole
        if self.physical == "f64":
            total = StateField("sum", "<f8", pa.float64(), 0)
        else:
            scale = kind.scale if self.physical == "i128" else 0
            total = StateField("sum", _I128, pa.decimal128(38, scale), 0)
        count = StateField("count", "<i8", pa.int64(), _size(total.dtype))
        self.fields = (total, count)

    def _call_kernel(self, arguments: list[Any]) -> None:
        getattr(kernel, f"tm_sum_{self.physical}")(*arguments)

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        if self.physical == "f64":
            return self._float_result(states[self.name])
        count = len(states)
        ok = np.empty(count, dtype=np.uint8)
        where = reference(states_structure(states, self.at))
        if self.physical == "i128":
            wide = np.empty((count, 16), dtype=np.uint8)
            digits = self.result_type.precision
            if self._call.name == "avg":
                kernel.tm_mean_decimal(where, count, self._more, digits, address(wide), address(ok))
            else:
                kernel.tm_total_decimal(where, count, digits, address(wide), address(ok))
            return self._overflow(ok, wide)
        if self._call.name == "avg":
            means = np.empty(count, dtype=np.float64)
            kernel.tm_mean_i128(where, count, address(means), address(ok))
            return self._overflow(ok, means)
        totals = np.empty(count, dtype=np.int64)
        kernel.tm_total_i64(where, count, address(totals), address(ok))
        return self._overflow(ok, totals)

    def _float_result(self, state: Array) -> pa.Array:
        values = np.ascontiguousarray(state["sum"])
        has_any = state["count"] > 0
        if self._call.name == "avg":
            values = np.divide(values, state["count"], out=np.zeros_like(values), where=has_any)
        return arrow_fixed(values, pa.float64(), has_any)


class Moments(BuiltIn):
    """Sample variance and standard deviation, by Welford's method."""

    def _settle(self, kind: Any) -> None:
        if not is_number(kind):
            raise self._refuse()
        self.physical = "f64"
        self.fields = (
            StateField("count", "<i8", pa.int64(), 0),
            StateField("mean", "<f8", pa.float64(), 8),
            StateField("m2", "<f8", pa.float64(), 16),
        )
        self.result_type = pa.float64()

    def _call_kernel(self, arguments: list[Any]) -> None:
        kernel.tm_moments(*arguments)

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        state = states[self.name]
        has_two = state["count"] > 1
        m2 = np.ascontiguousarray(state["m2"])
        values = np.divide(m2, state["count"] - 1, out=np.zeros_like(m2), where=has_two)
        if self._call.name == "stddev":
            values = np.sqrt(values)
        return arrow_fixed(values, pa.float64(), has_two)


class Held(BuiltIn):
    """Functions that hold one of the values: min, max, first, last."""

    def _settle(self, kind: Any) -> None:
        self.physical = physical_of(kind)
        self.result_type = kind
        if self.physical == "text":
            self.fields = (
                StateField("value", "<u8", pa.string(), 0, is_held=True, may_be_null=True),
                StateField("length", "<u4", pa.null(), 8),
                StateField("seen", "<u1", pa.int8(), 12),
                StateField("in_batch", "<u1", pa.null(), 13),
                StateField("zero", "<u2", pa.null(), 14),
            )
        elif self.physical == "i128":
            self.fields = _held(_I128, pa.decimal128(38, kind.scale))
        elif self.physical == "f64":
            self.fields = _held("<f8", pa.float64())
        elif self.physical == "i64":
            self.fields = _held("<i8", pa.int64())
        else:
            raise self._refuse()

    def source(self, columns: BatchColumns, heap: int | None) -> Bytes | None:
        if self.physical != "text":
            return None
        return bytes_structure(columns.get(str(self._call.column), "text"), heap)

    def read_held(self, states: Array, source: Bytes) -> dict[str, pa.Array]:
        offsets, data = read_blocks(states, self.at, source)
        is_valid = states[self.name]["seen"] == 1
        return {"value": arrow_text(offsets, data, pa.string(), is_valid)}

    def hold(self, states: Array, values: Mapping[str, pa.Array]) -> npt.NDArray[np.uint8]:
        sizes, data = text_parts(plain(values["value"]))
        mine = states[self.name]
        mine["value"], mine["length"] = np.cumsum(sizes, dtype=np.int64) - sizes, sizes
        mine["in_batch"] = 1
        return data

    def _call_kernel(self, arguments: list[Any]) -> None:
        name, skip = self._call.name, int(self._call.skip_nulls)
        if name in ("min", "max"):
            kind = "blob" if self.physical == "text" else self.physical
            getattr(kernel, f"tm_extreme_{kind}")(*arguments, int(name == "max"))
        else:
            suffix = {"text": "blob", "i128": "16"}.get(str(self.physical), "8")
            getattr(kernel, f"tm_pick_{suffix}")(*arguments, int(name == "last"), skip)

    def result(self, states: Array, columns: BatchColumns, heap: int | None) -> pa.Array:
        has_value = states[self.name]["seen"] == 1
        if self.physical == "text":
            source = self.source(columns, heap)
            assert source is not None
            text = self.read_held(states, source)["value"]
            return text if _T.is_string(self.result_type) else text.cast(self.result_type)
        value = states[self.name]["value"]
        if self.physical == "i128":
            return arrow_fixed(np.ascontiguousarray(value), self.result_type, has_value)
        if self.physical == "f64":
            return arrow_fixed(value, pa.float64(), has_value).cast(self.result_type, safe=False)
        whole = arrow_fixed(value, pa.int64(), has_value)
        if _T.is_date32(self.result_type):
            whole = whole.cast(pa.int32())
        return whole.cast(self.result_type)


#: The functions whose states have a fixed size.
BY_NAME: dict[str, type[BuiltIn]] = {
    "count": Count,
    "sum": Sum,
    "avg": Sum,
    "stddev": Moments,
    "variance": Moments,
    "min": Held,
    "max": Held,
    "first": Held,
    "last": Held,
}
