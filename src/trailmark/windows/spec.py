"""Which windows a tuple belongs to, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trailmark.errors import SchemaError, SettingError, UnsupportedType
from trailmark.kernel.columns import numbers
from trailmark.settings import parse_duration
from trailmark.values import dataclass

_LONGEST = (1 << 31) - 1
_MOST_OVERLAPS = 100_000
#: About 36,000 years: bounds of windows stay far from the ends of 64 bits.
_LONGEST_US = 1 << 60
#: Event times further out than this (about 146,000 years) could overflow window arithmetic.
_FURTHEST = 1 << 62
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True, slots=True)
class CountWindow:
    """``size`` tuples of a key; a new window starts every ``slide`` tuples."""

    size: int
    slide: int

    @property
    def has_start(self) -> bool:
        """Overlapping windows of a key differ by the position of their first tuple."""
        return self.slide < self.size

    def describe(self) -> dict[str, Any]:
        return {"kind": "count", **asdict(self)}


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Tuples whose event time lies in [start, start + size); a window starts every ``slide``.

    All in microseconds. A window closes when the watermark, the greatest event time seen less
    ``delay``, reaches its end.
    """

    column: str
    size: int
    slide: int
    delay: int

    @property
    def has_start(self) -> bool:
        return True

    def describe(self) -> dict[str, Any]:
        return {"kind": "time", **asdict(self)}

    def check_schema(self, schema: pa.Schema) -> None:
        kind = schema.field(self.column).type
        if not pa.types.is_timestamp(kind):
            raise UnsupportedType(
                f"Time windows need a timestamp column; {self.column!r} is {kind}.",
                where=f"time_window(column={self.column!r})",
                fix="Cast the column to a timestamp.",
            )


Window = CountWindow | TimeWindow


def window_from_description(described: Mapping[str, Any]) -> Window:
    """The window that described itself so.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    size, slide = described["size"], described["slide"]
    if described["kind"] == "count":
        return count_window(size, slide)
    if described["kind"] != "time" or not isinstance(described["column"], str):
        raise ValueError("no window of tuples or of time")
    lengths = (size, slide, described["delay"])
    if any(type(each) is not int or not 0 <= each <= _LONGEST_US for each in lengths):
        raise ValueError(f"a length that no window has: {lengths}")
    if not slide > 0 or not size > 0:
        raise ValueError("a window without a length")
    _check_overlap(size, slide, "time_window")
    return TimeWindow(described["column"], size, slide, described["delay"])


def count_window(size: int, slide: int | None = None) -> CountWindow:
    """Windows of ``size`` tuples per key.

    Parameters
    ----------
    size
        Number of tuples in a window.
    slide
        A new window starts every so many tuples. Smaller than ``size``: windows overlap. Larger:
        tuples between windows belong to none. Default: ``size``.

    Examples
    --------
    >>> count_window(10)
    CountWindow(size=10, slide=10)
    """
    slide = size if slide is None else slide
    for name, value in (("size", size), ("slide", slide)):
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _LONGEST:
            raise SettingError(
                f"{name} must be a whole number of tuples, at least 1; got {value!r}.",
                where=f"count_window({name}=...)",
                fix="For example count_window(10) or count_window(10, slide=5).",
            )
    _check_overlap(size, slide, "count_window")
    return CountWindow(size, slide)


def time_window(
    column: str,
    size: str | timedelta,
    slide: str | timedelta | None = None,
    delay: str | timedelta = "0 seconds",
) -> TimeWindow:
    """Windows of event time.

    Parameters
    ----------
    column
        Name of the timestamp column.
    size
        Length of a window, such as ``"10 minutes"``.
    slide
        A new window starts every so often. Default: ``size``.
    delay
        How far behind the greatest event time seen so far a tuple may be and still be counted.

    Examples
    --------
    >>> time_window("item_time", "1 minute", slide="30 seconds")
    TimeWindow(column='item_time', size=60000000, slide=30000000, delay=0)
    """
    length = parse_duration(size, "size")
    step = length if slide is None else parse_duration(slide, "slide")
    lag = parse_duration(delay, "delay")
    for name, value in (("size", length), ("slide", step)):
        if value <= 0:
            raise SettingError(
                f"{name} must be longer than zero.",
                where=f"time_window({name}=...)",
                fix='For example time_window("item_time", "1 minute").',
            )
    for name, value in (("size", length), ("slide", step), ("delay", lag)):
        if value > _LONGEST_US:
            raise SettingError(
                f"{name} must not be longer than 36,000 years.",
                where=f"time_window({name}=...)",
                fix='For example time_window("item_time", "1 minute").',
            )
    _check_overlap(length, step, "time_window")
    return TimeWindow(column, length, step, lag)


def _check_overlap(size: int, slide: int, where: str) -> None:
    """Each overlap is a window of its own: a tuple pays for all it is in."""
    if -(-size // slide) > _MOST_OVERLAPS:
        raise SettingError(
            f"A tuple would be in {-(-size // slide):,} windows at once; at most "
            f"{_MOST_OVERLAPS:,} are allowed.",
            where=f"{where}(size=..., slide=...)",
            fix="Use a longer slide or a shorter window.",
        )


def event_times(column: pa.Array) -> npt.NDArray[np.int64]:
    """Event times as whole microseconds; nanoseconds are rounded down, before 1970 too."""
    times: npt.NDArray[np.int64] = numbers(column.view(pa.int64()))
    if column.type.unit == "ns":
        return np.floor_divide(times, 1_000)
    scale = _MICROSECONDS[column.type.unit]
    if len(times) and (times.max() > _FURTHEST // scale or times.min() < -_FURTHEST // scale):
        raise SchemaError(
            "An event time lies more than 146,000 years from 1970.",
            where="event time column",
            fix="Filter such rows out before the aggregate.",
        )
    return np.ascontiguousarray(times * scale)
