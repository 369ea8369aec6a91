"""Policies as values: when windows are checked again. They never affect results, only costs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

from trailmark.checkpoint.rates import Rates
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
    objective
        Instead of ``q`` and ``u``: how long a recovery may take. The targets then follow from the
        rates that the bucket has measured; see :meth:`within`.

    Examples
    --------
    >>> Continuous(q=200_000, u=500_000, interval="5 ms", period="100 ms").describe()["q"]
    200000
    """

    q: int | None = None
    u: int | None = None
    interval: str | timedelta | None = None
    period: str | timedelta | None = None
    objective: str | timedelta | None = None

    @classmethod
    def within(
        cls,
        objective: str | timedelta,
        *,
        interval: str | timedelta | None = None,
        period: str | timedelta | None = None,
    ) -> Continuous:
        """Keeps the predicted recovery time within an objective.

        Examples
        --------
        >>> Continuous.within("2 seconds").describe()["objective_us"]
        2000000
        """
        return cls(interval=interval, period=period, objective=objective)

    def targets(self, rates: Rates) -> tuple[int | None, int | None]:
        """Q and U: as given, or half of the objective for each of loading and replaying."""
        if self.objective is None:
            return self.q, self.u
        half_us = max(0.0, (self.objective_us - rates.open_us) / 2)
        return int(half_us / rates.load_us_per_record), int(half_us / rates.replay_us_per_tuple)

    def __post_init__(self) -> None:
        if self.objective is not None and (self.q is not None or self.u is not None):
            raise SettingError(
                "Give either an objective or targets.", where="Continuous(q=, u=, objective=)"
            )
        if self.objective is not None and not self.objective_us:
            raise SettingError(
                "An objective of no time cannot be met.", where="Continuous(objective=...)"
            )
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
    def objective_us(self) -> int:
        return 0 if self.objective is None else _microseconds(self.objective, "objective")

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
            "objective_us": self.objective_us or None,
        }


# Asked for in every batch.
_microseconds = lru_cache(parse_duration)

Policy = Continuous | NoCheckpoint
