"""How far apart the times of two tuples may lie that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

from trailmark.errors import SettingError
from trailmark.settings import parse_duration
from trailmark.values import dataclass

#: About 36,000 years: sums of times and lengths stay within 64 bits.
_LONGEST_US = 1 << 60

#: The length of an interval that has no end: longer than any other.
_UNBOUNDED_US = 1 << 61

Duration = str | timedelta


@dataclass(frozen=True, slots=True)
class Interval:
    """Pairs of a left and a right tuple whose right time is at most ``before`` earlier and
    ``after`` later than the left one; with ``is_nearest``, of the right tuples that a left one
    would be paired with only the latest, and of several of that time the one that came last. All
    lengths in microseconds.

    The watermark of each side is the greatest time that it has seen, less its delay; that of both
    is the lesser one.
    """

    left: str
    right: str
    before: int
    after: int
    left_delay: int = 0
    right_delay: int = 0
    is_nearest: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether a right tuple is too old for any left one at some time."""
        return self.before < _UNBOUNDED_US

    @property
    def reaches(self) -> tuple[int, int]:
        """How long after its own time a tuple of each side may still meet a partner."""
        return self.after, self.before

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "times": [self.left, self.right],
            "before_us": self.before if self.is_bounded else None,
            "after_us": self.after,
            "delays_us": [self.left_delay, self.right_delay],
        }
        return {**described, "nearest": "before"} if self.is_nearest else described


def interval_from_description(described: Mapping[str, Any]) -> Interval:
    """The interval that described itself so.

    Anything that cannot have raises ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    left, right = described["times"]
    lengths = (described["before_us"], described["after_us"], *described["delays_us"])
    if not isinstance(left, str) or not isinstance(right, str) or len(lengths) != 4:
        raise ValueError("no two columns with times")
    is_nearest = described.get("nearest") == "before"
    if ("nearest" in described) != is_nearest or (is_nearest and lengths[1]):
        raise ValueError("no way of choosing the nearest")
    bounded = lengths[1:] if is_nearest and lengths[0] is None else lengths
    if any(type(each) is not int or not 0 <= each <= _LONGEST_US for each in bounded):
        raise ValueError(f"a length that no interval has: {lengths}")
    before = _UNBOUNDED_US if lengths[0] is None else lengths[0]
    return Interval(left, right, before, *lengths[1:], is_nearest=is_nearest)


def interval(
    left: str,
    right: str,
    *,
    before: Duration | None = None,
    after: Duration = "0 seconds",
    delay: Duration | tuple[Duration, Duration] = "0 seconds",
    nearest: Literal["before"] | None = None,
) -> Interval:
    """Pairs whose times lie close enough together.

    Parameters
    ----------
    left, right
        Names of the timestamp columns of both sides.
    before, after
        How much earlier and later than the left time the right one may be, both included. Without
        ``before``, the right time is not earlier; for the nearest, however much earlier.
    delay
        How far behind the greatest time of its side seen so far a tuple may be and still count; for
        both sides, or a pair of delays.
    nearest
        With ``"before"`` each left tuple is paired with one right tuple only: the latest that is
        not after it. It comes out when the watermark has passed it.

    Examples
    --------
    >>> interval("seen_at", "clicked_at", after="1 minute", delay=("0 s", "5 s"))
    Interval(left='seen_at', right='clicked_at', before=0, after=60000000, left_delay=0, \
right_delay=5000000, is_nearest=False)
    """
    delays = delay if isinstance(delay, tuple) else (delay, delay)
    if len(delays) != 2:
        raise SettingError(
            f"delay must be one duration, or one for each side, got {delay!r}.",
            where="interval(delay=...)",
            fix='For example delay="5 seconds", or delay=("5 seconds", "1 minute").',
        )
    is_nearest, is_bounded = nearest is not None, nearest is None or before is not None
    given = {
        "before": "0 seconds" if before is None else before,
        "after": after,
        "left delay": delays[0],
        "right delay": delays[1],
    }
    lengths = {name: parse_duration(each, name) for name, each in given.items()}
    for name, length in lengths.items():
        if length > _LONGEST_US:
            raise SettingError(
                f"{name} must not be longer than 36,000 years.",
                where=f"interval({name.split()[-1]}=...)",
                fix='For example interval("seen_at", "clicked_at", after="1 hour").',
            )
    if nearest not in (None, "before"):
        raise SettingError(
            f"nearest must be 'before', got {nearest!r}.", where="interval(nearest=...)"
        )
    before_us, after_us, left_us, right_us = lengths.values()
    if is_nearest and after_us:
        raise SettingError(
            "The nearest tuple before another is not later.",
            where="interval(after=...)",
            fix='For example interval("paid_at", "priced_at", nearest="before").',
        )
    before_us = before_us if is_bounded else _UNBOUNDED_US
    return Interval(left, right, before_us, after_us, left_us, right_us, is_nearest)
