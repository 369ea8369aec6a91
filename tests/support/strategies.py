"""Random cases: whole aggregates with their input, from a plain ``random.Random``.

The same generator serves hypothesis (:func:`cases`), the property tests and the soak loop. It
favours what breaks code: nulls, NaN, infinities, -0.0, extreme and equal values, empty and long
strings, tiny windows, few keys, empty batches, arrays that begin inside their buffers.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.support.cases import Case
from tests.support.folds import scaled
from tests.support.userfunctions import notes, spread, trail, weighted
from trailmark.windows import functions as f
from trailmark.windows.functions import AnyFunction, Overflow
from trailmark.windows.spec import CountWindow, TimeWindow, Window

Maker = Callable[[random.Random], Any]

_T = pa.types
_UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_NAMES = ("total", "größe", "a b", "x.y", "n", "value", "count", "Σ")
_TEXTS = ("", "a", "b", "ab", "ä", "日本語", "🙂", "a\0b", "\0", "z" * 16, "z" * 17, "long " * 130)
_FLOATS = (0.0, -0.0, 1.5, -2.25, 0.1, 1e300, -1e300, 5e-324, float("inf"), float("-inf"))


def cases() -> st.SearchStrategy[Case]:
    """Cases for hypothesis."""
    return st.randoms(use_true_random=False).map(random_case)


def random_case(rng: random.Random, *, may_overflow: bool = False) -> Case:
    """A whole case.

    With ``may_overflow`` a sum may be asked to raise where it does not fit; otherwise such a sum is
    asked to be null, so that every batch of the case can be processed.
    """
    by = tuple(f"k{place}" for place in range(rng.choice((0, 1, 1, 1, 1, 1, 2, 2, 3))))
    columns: dict[str, pa.DataType] = {name: _key_type(rng) for name in by}
    columns |= {f"c{place}": _value_type(rng) for place in range(rng.randint(1, 4))}
    window = _window(rng)
    if isinstance(window, TimeWindow):
        columns["time"] = pa.timestamp(_unit(window), rng.choice((None, None, "UTC")))
    names = list(columns)
    rng.shuffle(names)
    schema = pa.schema([(name, columns[name]) for name in names])
    makers = {name: _maker(rng, kind, name in by) for name, kind in columns.items()}
    values = _values(rng, schema, by, may_overflow)
    counts = [_rows_in_batch(rng) for _ in range(rng.randint(1, 12))]
    times = _Times(rng, window) if isinstance(window, TimeWindow) else None
    batches, watermarks = [], []
    for count in counts:
        if times is not None:
            times.begin_batch()
            makers["time"] = times.make
        rows = [tuple(makers[name](rng) for name in names) for _ in range(count)]
        batches.append((rng.choice((0, 0, 1, 3, 8, 13)), rows))
        watermarks.append(times.watermark() if times is not None else None)
    return Case.of(
        schema,
        by=by,
        window=window,
        values=values,
        late=rng.choice(("drop", "keep")),
        batches=batches,
        watermarks=watermarks,
        order_by=_order(rng, names),
    )


def _order(rng: random.Random, names: list[str]) -> list[str]:
    """Mostly none; keys, values and event times alike."""
    return rng.sample(names, rng.choice((0, 0, 0, 1, 1, min(2, len(names)))))


def _rows_in_batch(rng: random.Random) -> int:
    return rng.choice((0, 1, 1, 2, 3, 5, rng.randint(4, 40), rng.randint(4, 40), 40))


# Types


def _key_type(rng: random.Random) -> pa.DataType:
    text = rng.choice((pa.string(), pa.string(), pa.large_string()))
    return rng.choice(
        (_integer(rng), text, text, pa.bool_(), pa.date32(), _time(rng), _decimal(rng))
    )


def _value_type(rng: random.Random) -> pa.DataType:
    text = rng.choice((pa.string(), pa.string(), pa.large_string()))
    other = rng.choice((pa.bool_(), pa.date32(), pa.date64(), _time(rng)))
    floating = rng.choice((pa.float64(), pa.float64(), pa.float32()))
    return rng.choice(
        (_integer(rng), _integer(rng), floating, floating, _decimal(rng), text, other)
    )


def _integer(rng: random.Random) -> pa.DataType:
    signed = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.int64())
    return rng.choice((*signed, *signed, pa.uint8(), pa.uint16(), pa.uint32()))


def _decimal(rng: random.Random) -> pa.DataType:
    precision = rng.choice((1, 4, 9, 18, 19, 28, 34, 38))
    return pa.decimal128(
        precision, rng.choice((0, 0, min(2, precision), precision // 2, precision, -2))
    )


def _time(rng: random.Random) -> pa.DataType:
    return pa.timestamp(
        rng.choice(("s", "ms", "us", "ns")), rng.choice((None, "UTC", "Asia/Tokyo"))
    )


# Values


def _maker(rng: random.Random, kind: pa.DataType, is_key: bool) -> Maker:
    """Draws from a few values, so that keys meet again and values are equal; some are null."""
    pool = [_value(rng, kind) for _ in range(rng.choice((1, 2, 3, 6)))]
    null_share = rng.choice((0.0, 0.0, 0.1, 0.3, 1.0 if not is_key else 0.2))
    fresh_share = 0.0 if is_key else rng.choice((0.0, 0.5, 1.0))

    def make(rng: random.Random) -> Any:
        if rng.random() < null_share:
            return None
        return _value(rng, kind) if rng.random() < fresh_share else rng.choice(pool)

    return make


def _value(rng: random.Random, kind: pa.DataType) -> Any:
    if _T.is_boolean(kind):
        return rng.random() < 0.5
    if _T.is_string(kind) or _T.is_large_string(kind):
        return rng.choice(_TEXTS) + rng.choice(("", "", "x", str(rng.randint(0, 99))))
    if _T.is_decimal(kind):
        return _decimal_value(rng, kind)
    if _T.is_floating(kind):
        return _float_value(rng, kind)
    if _T.is_date64(kind):
        return rng.randint(-100_000, 100_000) * 86_400_000
    if _T.is_integer(kind):
        bits = kind.bit_width
        low, high = (
            (-(1 << bits - 1), 1 << bits - 1) if _T.is_signed_integer(kind) else (0, 1 << bits)
        )
        edge = rng.choice((low, high - 1, rng.randrange(low, high)))
        return edge if rng.random() < 0.2 else rng.randint(max(low, -50), min(high - 1, 50))
    return rng.choice((0, -1, 1, rng.randint(-1_000_000, 1_000_000)))


def _decimal_value(rng: random.Random, kind: pa.DataType) -> Decimal:
    limit = 10**kind.precision
    if rng.random() < 0.5:
        limit = min(limit, 1000)
    return scaled(
        rng.choice((limit - 1, 1 - limit, 0, rng.randrange(1 - limit, limit))), kind.scale
    )


def _float_value(rng: random.Random, kind: pa.DataType) -> float:
    value = rng.choice((rng.choice(_FLOATS), rng.uniform(-100, 100), float(rng.randint(-9, 9))))
    if rng.random() < 0.1:
        value = float("nan")
    if not _T.is_float32(kind):
        return value
    if abs(value) > 1e38 and abs(value) != float("inf"):
        value = 1e38
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


# Windows and functions


def _window(rng: random.Random) -> Window:
    size = rng.choice((1, 2, 2, 3, 4, 5, 7, 12, 60))
    slide = rng.choice((size, size, 1, max(1, size // 2), max(1, size - 1), size + 1, 2 * size, 1))
    if rng.random() < 0.5:
        return CountWindow(size, slide)
    step = _UNITS[rng.choice(("s", "ms", "us", "us"))]
    delay = rng.choice((0, 0, 1, size, 3 * size)) * step
    return TimeWindow("time", size * step, slide * step, delay)


def _unit(window: TimeWindow) -> str:
    """A unit in which the window's bounds are whole numbers; nanoseconds fit any."""
    if window.size % 1_000_000 == 0:
        return "s"
    if window.size % 1_000 == 0:
        return "ms"
    return "ns" if window.size % 2 else "us"


class _Times:
    """Event times that move on from batch to batch, with stragglers, and their watermark."""

    def __init__(self, rng: random.Random, window: TimeWindow) -> None:
        self._rng = rng
        self._window = window
        self._unit = _unit(window)
        self._now = rng.choice((0, 0, -20, 1_000_000, -1_000_000)) * window.slide
        self._spread = rng.choice((1, 2, 5)) * max(window.slide, window.size)
        self._null_share = rng.choice((0.0, 0.0, 0.1))
        self._lags_a_batch = rng.random() < 0.5
        self._greatest: int | None = None
        self._mark: int | None = None

    def begin_batch(self) -> None:
        if self._lags_a_batch:
            self._raise_mark()
        self._now += self._rng.choice((0, 1, 1, 2, 10)) * self._spread // 2

    def make(self, rng: random.Random) -> int | None:
        if rng.random() < self._null_share:
            return None
        time = self._now + rng.randint(-self._spread, self._spread)
        if rng.random() < 0.1:
            time = self._now // self._window.slide * self._window.slide
        in_unit = time // _UNITS[self._unit]
        if self._unit == "ns":
            in_unit = time * 1_000 + rng.choice((0, 0, 1, 999))
        microseconds = in_unit // 1_000 if self._unit == "ns" else in_unit * _UNITS[self._unit]
        if self._greatest is None or microseconds > self._greatest:
            self._greatest = microseconds
        return in_unit

    def watermark(self) -> int | None:
        if not self._lags_a_batch:
            self._raise_mark()
        return self._mark

    def _raise_mark(self) -> None:
        if self._greatest is not None:
            reached = self._greatest - self._window.delay
            self._mark = reached if self._mark is None else max(self._mark, reached)


def _values(
    rng: random.Random, schema: pa.Schema, by: tuple[str, ...], may_overflow: bool
) -> dict[str, AnyFunction]:
    names = rng.sample(_NAMES, rng.randint(1, 5))
    columns = [name for name in schema.names if name not in by]
    if rng.random() < 0.1:
        columns += by
    values = {name: _function(rng, schema, rng.choice(columns), may_overflow) for name in names}
    if not by and not any(call.columns for call in values.values()):
        values[names[0]] = f.count(rng.choice(columns))  # an operator reads some column
    return values


def _function(
    rng: random.Random, schema: pa.Schema, column: str, may_overflow: bool
) -> AnyFunction:
    kind = schema.field(column).type
    chosen: list[Callable[[], AnyFunction]] = [
        f.count,
        lambda: f.count(column),
        lambda: f.min(column),
        lambda: f.max(column),
        lambda: f.first(column, ignore_nulls=rng.random() < 0.5),
        lambda: f.last(column, ignore_nulls=rng.random() < 0.5),
    ]
    if not _T.is_temporal(kind) and rng.random() < 0.2:
        chosen = [
            lambda: f.collect_list(column),
            lambda: f.collect_set(column),
            lambda: f.count_distinct(column),
            lambda: f.approx_count_distinct(column, rng.choice((0.05, 0.2, 0.39))),
        ]
    is_whole = _T.is_integer(kind)
    if is_whole or _T.is_floating(kind) or _T.is_decimal(kind):
        on_overflow: Overflow = "error" if may_overflow and rng.random() < 0.5 else "null"
        chosen += [
            lambda: f.sum(column, overflow=on_overflow),
            lambda: f.avg(column, overflow=on_overflow),
            lambda: f.stddev(column),
            lambda: f.variance(column),
        ] * 2
        chosen += [lambda: f.percentile(column, rng.choice((0, 0.5, 0.9, 1, (0.25, 1.0))))]
    if is_whole:
        wholes = [field.name for field in schema if _T.is_integer(field.type)]
        chosen += [lambda: trail(column), lambda: weighted(column, rng.choice(wholes))]
        chosen += [lambda: notes(column)]
    if _T.is_floating(kind):
        chosen += [lambda: spread(column)]
    return rng.choice(chosen)()
