"""Policies as values: when windows are checked again. They never affect results, only costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from trailmark.errors import SettingError
from trailmark.settings import parse_duration


@dataclass(frozen=True, slots=True)
class NoCheckpoint:
    """Writes no footprints. A recovery replays the whole input since the log began, or since no
    window was open; the input log is kept for that."""

    @property
    def writes_footprints(self) -> bool:
        return False

    def describe(self) -> dict[str, Any]:
        return {"policy": "none"}


@dataclass(frozen=True, slots=True)
class Continuous:
    """Continuous eventual checkpointing with targets and a budget.

    Every window gets a footprint in the batch that opens it. Beyond that, the windows with the
    oldest footprints are checked again while a target is missed and the budget lasts.

    Parameters
    ----------
    q
        Target for the extent: records of the output log that a recovery reads.
    u
        Target for the replay: input tuples that a recovery reads.
    interval, period
        Budget: at most ``interval`` of checking in every ``period`` of time. Without them there is
        no limit.

    Examples
    --------
    >>> Continuous(q=200_000, u=500_000, interval="5 ms", period="100 ms").describe()["q"]
    200000
    """

    q: int | None = None
    u: int | None = None
    interval: str | timedelta | None = None
    period: str | timedelta | None = None

    def __post_init__(self) -> None:
        for name, value in (("q", self.q), ("u", self.u)):
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            if value is not None and (not is_whole or value < 0):
                raise SettingError(
                    f"{name} must be a whole number of records or tuples, got {value!r}.",
                    where=f"Continuous({name}=...)",
                )
        if (self.interval is None) != (self.period is None):
            raise SettingError(
                "interval and period belong together.",
                where="Continuous(interval=..., period=...)",
                fix='For example interval="5 ms", period="100 ms".',
            )
        if self.interval is not None and not 0 < self.interval_us <= self.period_us:
            raise SettingError(
                "interval must be longer than zero and at most as long as period.",
                where="Continuous(interval=..., period=...)",
            )

    @property
    def writes_footprints(self) -> bool:
        return True

    @property
    def interval_us(self) -> int:
        return 0 if self.interval is None else _microseconds(self.interval, "interval")

    @property
    def period_us(self) -> int:
        return 0 if self.period is None else _microseconds(self.period, "period")

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "continuous",
            "q": self.q,
            "u": self.u,
            "interval_us": self.interval_us or None,
            "period_us": self.period_us or None,
        }


# Asked for in every batch.
_microseconds = lru_cache(parse_duration)

Policy = Continuous | NoCheckpoint
