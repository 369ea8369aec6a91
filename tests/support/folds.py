"""What the oracle computes over the tuples of one window: Spark SQL's rules, spelled out."""

from __future__ import annotations

import math
from copy import deepcopy
from decimal import Decimal
from typing import Any, Protocol

import pyarrow as pa

from tests.support.userfunctions import PLAIN
from tests.support.xxhash import hashed_bytes, xxhash64
from trailmark.errors import ValueOverflow
from trailmark.windows.functions import AnyFunction, Function, UserFunction

_T = pa.types
_MOST_DIGITS = 38

#: The functions that hold values.
COLLECTED = ("collect_list", "collect_set", "count_distinct", "percentile")


class Fold(Protocol):
    """A function at work on one window."""

    def add(self, row: dict[str, Any]) -> None: ...

    def state(self) -> dict[str, Any]:
        """The state as a footprint shows it; decimals in units of their last digit."""

    def result(self) -> Any: ...


def make_fold(call: AnyFunction, schema: pa.Schema) -> Fold:
    if isinstance(call, UserFunction):
        fold: Fold = PLAIN[call.name](*call.columns)
        return fold
    if call.name == "count":
        return Count(call.column)
    assert call.column is not None
    kind = schema.field(call.column).type
    if call.name in ("stddev", "variance"):
        return Moments(call)
    if call.name in COLLECTED:
        return Collected(call)
    if call.name == "approx_count_distinct":
        return Sketch(call, kind)
    if call.name in ("sum", "avg"):
        if _T.is_decimal(kind):
            return DecimalSum(call, kind)
        return FloatSum(call) if _T.is_floating(kind) else IntegerSum(call)
    return Held(call, kind)


def result_type(call: AnyFunction, schema: pa.Schema) -> str:
    if isinstance(call, UserFunction):
        return str(call.result_type)
    if call.name == "count":
        return "int64"
    if call.name in ("stddev", "variance"):
        return "double"
    kind = schema.field(call.column).type
    if call.name in ("collect_list", "collect_set"):
        return str(pa.list_(kind))
    if call.name in ("count_distinct", "approx_count_distinct"):
        return "int64"
    if call.name == "percentile":
        return str(pa.list_(pa.float64()) if isinstance(call.at, tuple) else pa.float64())
    if call.name in ("min", "max", "first", "last"):
        return str(kind)
    if _T.is_decimal(kind):
        precision, scale = _decimal_result(call, kind)
        return f"decimal128({precision}, {scale})"
    return "double" if call.name == "avg" or _T.is_floating(kind) else "int64"


class Count:
    def __init__(self, column: str | None) -> None:
        self._column = column
        self._count = 0

    def add(self, row: dict[str, Any]) -> None:
        if self._column is None or row[self._column] is not None:
            self._count += 1

    def merge(self, later: Count) -> None:
        self._count += later._count

    def state(self) -> dict[str, Any]:
        return {"count": self._count}

    def result(self) -> int:
        return self._count


class IntegerSum:
    def __init__(self, call: Function) -> None:
        self._call = call
        self._sum = 0
        self._count = 0

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._call.columns[0]]
        if value is not None:
            self._sum += value
            self._count += 1

    def merge(self, later: Any) -> None:
        self._sum += later._sum
        self._count += later._count

    def state(self) -> dict[str, Any]:
        return {"sum": self._sum, "count": self._count}

    def result(self) -> int | float | None:
        if self._count == 0:
            return None
        if self._call.name == "avg":
            return float(self._sum) / float(self._count)
        if -(2**63) <= self._sum < 2**63:
            return self._sum
        _check_overflow(self._call)
        return None


class FloatSum:
    def __init__(self, call: Function) -> None:
        self._call = call
        self._sum = 0.0
        self._count = 0

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._call.columns[0]]
        if value is not None:
            self._sum += value
            self._count += 1

    def merge(self, later: Any) -> None:
        self._sum += later._sum
        self._count += later._count

    def state(self) -> dict[str, Any]:
        return {"sum": self._sum, "count": self._count}

    def result(self) -> float | None:
        if self._count == 0:
            return None
        return self._sum / float(self._count) if self._call.name == "avg" else self._sum


class DecimalSum:
    """Counts in units of the last digit. A running sum of more than 38 digits is lost for good."""

    def __init__(self, call: Function, kind: pa.DataType) -> None:
        self._call = call
        self._scale = kind.scale
        self._precision, self._result_scale = _decimal_result(call, kind)
        self._sum = 0
        self._count = 0

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._call.columns[0]]
        if value is None or self._count < 0:
            return
        self._sum += unscaled(value, self._scale)
        self._count += 1
        if abs(self._sum) >= 10**_MOST_DIGITS:
            self._sum, self._count = 0, -1

    def merge(self, later: DecimalSum) -> None:
        is_lost = self._count < 0 or later._count < 0
        self._sum += later._sum
        self._count += later._count
        if is_lost or abs(self._sum) >= 10**_MOST_DIGITS:
            self._sum, self._count = 0, -1

    def state(self) -> dict[str, Any]:
        return {"sum": self._sum, "count": self._count}

    def result(self) -> Decimal | None:
        if self._count == 0:
            return None
        if self._count < 0:
            _check_overflow(self._call)
            return None
        units = abs(self._sum)
        if self._call.name == "avg":
            units *= 10 ** (self._result_scale - self._scale)
            units = (2 * units + self._count) // (2 * self._count)
        if units >= 10**self._precision:
            _check_overflow(self._call)
            return None
        return scaled(-units if self._sum < 0 else units, self._result_scale)


class Moments:
    """Welford's method, in the order of its published form."""

    def __init__(self, call: Function) -> None:
        self._call = call
        self._count = 0
        self._mean = 0.0
        self._m2 = 0.0

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._call.columns[0]]
        if value is None:
            return
        self._count += 1
        delta = float(value) - self._mean
        part = delta / float(self._count)
        self._mean += part
        self._m2 += delta * (delta - part)

    def merge(self, later: Moments) -> None:
        """Chan's method."""
        if not later._count:
            return
        if not self._count:
            self._count, self._mean, self._m2 = later._count, later._mean, later._m2
            return
        count = self._count + later._count
        share = float(later._count) / float(count)
        delta = later._mean - self._mean
        self._mean += delta * share
        self._m2 = self._m2 + later._m2 + delta * delta * (float(self._count) * share)
        self._count = count

    def state(self) -> dict[str, Any]:
        return {"count": self._count, "mean": self._mean, "m2": self._m2}

    def result(self) -> float | None:
        if self._count < 2:
            return None
        variance = self._m2 / float(self._count - 1)
        return math.sqrt(variance) if self._call.name == "stddev" else variance


class Held:
    """Min, max, first, last: one of the values. ``seen`` is 0 for none, 1 a value, 2 a null."""

    def __init__(self, call: Function, kind: pa.DataType) -> None:
        self._call = call
        self._kind = kind
        self._value: Any = None
        self._seen = 0

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._call.columns[0]]
        if self._call.name in ("min", "max"):
            takes = value is not None and (self._seen == 0 or self._is_beyond(value))
        else:
            is_skipped = value is None and self._call.skip_nulls
            takes = not is_skipped and (self._seen == 0 or self._call.name == "last")
        if takes:
            self._value = value
            self._seen = 2 if value is None else 1

    def merge(self, later: Held) -> None:
        """Takes what the other holds like a tuple's value."""
        if later._seen:
            self.add({self._call.columns[0]: later._value})

    def _is_beyond(self, value: Any) -> bool:
        if self._call.name == "max":
            return is_less(self._value, value)
        return is_less(value, self._value)

    def state(self) -> dict[str, Any]:
        return {"value": self._stored(), "seen": self._seen}

    def _stored(self) -> Any:
        if _T.is_string(self._kind) or _T.is_large_string(self._kind):
            return self._value
        if _T.is_decimal(self._kind):
            return 0 if self._value is None else unscaled(self._value, self._kind.scale)
        if _T.is_floating(self._kind):
            return 0.0 if self._value is None else self._value
        return 0 if self._value is None else int(self._value)

    def result(self) -> Any:
        return self._value


class Collected:
    """All values, or each once, as they come; percentiles look at them as floats."""

    def __init__(self, call: Function) -> None:
        self._call = call
        self._values: list[Any] = []

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._call.columns[0]]
        if value is None:
            return
        if self._call.name == "percentile":
            value = float(value)
        elif self._call.name != "collect_list":
            value = value + 0.0 if isinstance(value, float) else value
            if any(value == each or (value != value and each != each) for each in self._values):
                return
        self._values.append(value)

    def merge(self, later: Collected) -> None:
        for value in later._values:
            self.add({self._call.columns[0]: value})

    def state(self) -> dict[str, Any]:
        return {"values": list(self._values)}

    def result(self) -> Any:
        if self._call.name == "count_distinct":
            return len(self._values)
        if self._call.name != "percentile":
            return list(self._values)
        if not self._values:
            return None
        if isinstance(self._call.at, tuple):
            return [self._percentile(each) for each in self._call.at]
        assert self._call.at is not None
        return self._percentile(self._call.at)

    def _percentile(self, at: float) -> float:
        numbers: list[float] = sorted(v for v in self._values if v == v)
        numbers += [v for v in self._values if v != v]
        position = (len(numbers) - 1) * at
        low, high = math.floor(position), math.ceil(position)
        if numbers[low] == numbers[high] or low == high:
            return numbers[low]
        return numbers[low] + (numbers[high] - numbers[low]) * (position - low)


class Sketch:
    """HyperLogLog, a value at a time."""

    def __init__(self, call: Function, kind: pa.DataType) -> None:
        self._column = call.columns[0]
        self._kind = kind
        assert call.rsd is not None
        self._bits = next(b for b in range(4, 65) if 1.106 / math.sqrt(2**b) <= call.rsd)
        self._registers = bytearray(1 << self._bits)

    def add(self, row: dict[str, Any]) -> None:
        value = row[self._column]
        if value is None:
            return
        value = unscaled(value, self._kind.scale) if _T.is_decimal(self._kind) else value
        hashed = f"{xxhash64(hashed_bytes(value, self._kind)):064b}"
        register, rest = int(hashed[: self._bits], 2), hashed[self._bits :]
        place = rest.index("1") + 1 if "1" in rest else len(rest) + 1
        self._registers[register] = max(self._registers[register], place)

    def merge(self, later: Sketch) -> None:
        pairs = zip(self._registers, later._registers, strict=True)
        self._registers = bytearray(max(pair) for pair in pairs)

    def state(self) -> dict[str, Any]:
        return {"registers": bytes(self._registers)}

    def result(self) -> int:
        count, empty = len(self._registers), self._registers.count(0)
        factor = {4: 0.673, 5: 0.697, 6: 0.709}.get(self._bits, 0.7213 / (1 + 1.079 / count))
        inverse = math.fsum(2.0**-each for each in self._registers)
        raw = factor * count * count / inverse
        if empty and raw <= 2.5 * count:
            return math.floor(count * math.log(count / empty) + 0.5)
        if raw >= 5 * count:
            return math.floor(raw + 0.5)
        share = empty / count
        inverse += count * math.fsum(share ** (2**k) * 2 ** (k - 1) for k in range(1, 40))
        return math.floor(count * count / (2 * math.log(2) * inverse) + 0.5)


def merged(earlier: Any, later: Any) -> Any:
    """The fold of the tuples of both, of which none is changed."""
    fold = deepcopy(earlier)
    fold.merge(later)
    return fold


def is_less(a: Any, b: Any) -> bool:
    """Spark's order: NaN after every number, strings by their bytes."""
    if isinstance(a, str):
        return a.encode() < str(b).encode()
    if isinstance(a, float) and (math.isnan(a) or math.isnan(b)):
        return not math.isnan(a)
    return bool(a < b)


def unscaled(value: Decimal, scale: int) -> int:
    """The value in units of its last digit; decimal's own arithmetic would round to 28 digits."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    shift = exponent + scale
    whole = int("".join(map(str, digits)) + "0" * shift)
    assert shift >= 0, "a value has no more digits than its column"
    return -whole if sign else whole


def scaled(units: int, scale: int) -> Decimal:
    digits = tuple(int(digit) for digit in str(abs(units)))
    return Decimal((int(units < 0), digits, -scale))


def _decimal_result(call: Function, kind: pa.DataType) -> tuple[int, int]:
    if call.name == "sum":
        return min(_MOST_DIGITS, kind.precision + 10), kind.scale
    return min(_MOST_DIGITS, kind.precision + 4), min(_MOST_DIGITS, kind.scale + 4)


def _check_overflow(call: Function) -> None:
    if call.overflow == "error":
        raise ValueOverflow(f"{call.name} of {call.column!r} does not fit.")
