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
    def reaches(self) -> tuple[int, int]:
        """How long after its own time a tuple of each side may still meet a partner."""
        return self.after, self.before

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = {
            "times": [self.left, self.right],
            "before_us": self.before,
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
    if any(type(each) is not int or not 0 <= each <= _LONGEST_US for each in lengths):
        raise ValueError(f"a length that no interval has: {lengths}")
    if described.get("nearest") not in (None, "before") or (
        described.get("nearest") and lengths[1]
    ):
        raise ValueError("no way of choosing the nearest")
    return Interval(left, right, *lengths, is_nearest="nearest" in described)


def interval(
    left: str,
    right: str,
    *,
    before: Duration = "0 seconds",
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
        How much earlier and later than the left time the right one may be, both included.
    delay
        How far behind the greatest time of its side seen so far a tuple may be and still count; for
        both sides, or a pair of delays.
    nearest
        With ``"before"`` each left tuple is paired with one right tuple only: the latest that is
        not after it, at most ``before`` earlier. It comes out when the watermark has passed it.

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
    given = {"before": before, "after": after, "left delay": delays[0], "right delay": delays[1]}
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
    if nearest is not None and (lengths["after"] or not lengths["before"]):
        raise SettingError(
            "The nearest tuple before another lies at most so much earlier, and not later.",
            where="interval(before=..., after=...)",
            fix='For example interval("paid_at", "priced_at", before="1 day", nearest="before").',
        )
    before_us, after_us, left_us, right_us = lengths.values()
    is_nearest = nearest is not None
    return Interval(left, right, before_us, after_us, left_us, right_us, is_nearest)
