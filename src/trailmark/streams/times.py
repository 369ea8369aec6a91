"""Ranges of batches and of times, as readers ask for them."""

from __future__ import annotations

from datetime import date, datetime, timezone

import pyarrow as pa

from trailmark.errors import SettingError
from trailmark.log import TimeRange
from trailmark.values import dataclass

#: The least and the greatest number that a time can be in its unit.
EARLIEST, LATEST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Span:
    """Which part of a stream is asked for; both ends are included, None leaves an end open."""

    first_batch: int | None = None
    last_batch: int | None = None
    first_us: int | None = None
    last_us: int | None = None

    def __post_init__(self) -> None:
        _check_order("Batch", self.first_batch, self.last_batch)
        _check_order("Timestamp", self.first_us, self.last_us)

    @property
    def has_times(self) -> bool:
        """Whether it is about times at all."""
        return self.first_us is not None or self.last_us is not None

    @property
    def has_start(self) -> bool:
        """Whether it says where to begin."""
        return self.first_batch is not None or self.first_us is not None

    def meets(self, times: TimeRange | None) -> bool:
        """Whether some time of a range may be asked for. Rows without a time never are."""
        if not self.has_times:
            return True
        if times is None:
            return False
        is_after = self.first_us is None or times.max_us >= self.first_us
        return is_after and (self.last_us is None or times.min_us <= self.last_us)


def _check_order(what: str, first: int | None, last: int | None) -> None:
    if first is not None and last is not None and last < first:
        raise SettingError(
            f"The range ends before it begins: {first} to {last}.",
            where=f"starting{what}, ending{what}",
        )


def parse_timestamp(given: str | datetime, argument: str) -> int:
    """Microseconds since 1970. A time without a zone is in UTC.

    Examples
    --------
    >>> parse_timestamp("1970-01-01 00:00:01", "t")
    1000000
    """
    try:
        moment = given if isinstance(given, datetime) else _parse(given.strip())
    except (AttributeError, ValueError):
        raise SettingError(
            f"{given!r} is not a time.",
            where=argument,
            fix='Write it as "2026-01-31 12:00:00", "2026-01-31T12:00:00+01:00" or "2026-01-31".',
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    since = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _parse(text: str) -> datetime:
    if len(text) == len("2026-01-31"):
        day = date.fromisoformat(text)
        return datetime(day.year, day.month, day.day)
    # Python 3.10 knows no Z.
    return datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "zZ" else text)


def first_in_unit(first_us: int, unit: str) -> int:
    """The least number of a unit that is not before a time; a whole number of any size."""
    if unit == "ns":
        return first_us * 1000
    return -(-first_us // {"s": 1_000_000, "ms": 1_000, "us": 1}[unit])


def count_before(times: pa.ChunkedArray, before_us: int) -> int:
    """How many of the times of a column are before one."""
    import pyarrow.compute as pc  # not for those who only commit

    first = first_in_unit(before_us, times.type.unit)
    if first > LATEST:
        return len(times) - int(times.null_count)
    if first <= EARLIEST:
        return 0
    is_before = pc.less(times.cast(pa.int64()), pa.scalar(first, pa.int64()))
    return int(pc.sum(is_before).as_py() or 0)
