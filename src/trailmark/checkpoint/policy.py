"""Policies as values: when windows get footprints. They never affect results, only costs.

How each of them chooses is in a module of its own: `continuous`, `rounds`, `cost_benefit`,
`slow_windows`, `snapshots`.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from functools import lru_cache
from typing import Any

from trailmark.errors import SettingError
from trailmark.settings import parse_duration
from trailmark.values import dataclass

_FAILURES = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s+per\s+(second|minute|hour|day|week)\s*")
_SECONDS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}


@dataclass(frozen=True, slots=True)
class NoCheckpoint:
    """Writes no footprints. A recovery replays the whole input since the log began, or since no
    window was open; the input log is kept for that."""

    def describe(self) -> dict[str, Any]:
        return {"policy": "none"}


@dataclass(frozen=True, slots=True)
class UpstreamBackup:
    """Writes no state either, and keeps no more input than the open windows are made of.

    A recovery replays the input since the oldest open window opened. That works for windows of
    time. Where a window begins in a count of tuples follows from the windows before it, so for
    these a recovery begins where no window was open, as under `NoCheckpoint`.
    """

    def describe(self) -> dict[str, Any]:
        return {"policy": "upstream backup"}


@dataclass(frozen=True, slots=True)
class Continuous:
    """Continuous eventual checkpointing with targets and a budget.

    Every window that outlives the batch that opens it gets a footprint in it (with an objective: in
    rounds). Beyond that, the windows with the oldest footprints are checked again while a target is
    missed and the budget lasts. Targets and budget hold for each bucket.

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
        Instead of ``q`` and ``u``: how long a recovery may take; see :meth:`within`.

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
        """Keeps the predicted recovery time of a bucket within an objective, with as few
        footprints as that takes.

        Windows that open and close between two rounds of footprints need none. Rounds are as far
        apart as the objective allows, by the rates that the bucket has measured.

        Examples
        --------
        >>> Continuous.within("2 seconds").describe()["objective_us"]
        2000000
        """
        return cls(interval=interval, period=period, objective=objective)

    def __post_init__(self) -> None:
        if self.objective is not None and (self.q is not None or self.u is not None):
            raise SettingError(
                "Give either an objective or targets.", where="Continuous(q=, u=, objective=)"
            )
        if self.objective is not None and not parse_duration(self.objective, "objective"):
            raise SettingError(
                f"An objective of no time cannot be met, got {self.objective!r}.",
                where="Continuous(objective=...)",
            )
        for name, value in (("q", self.q), ("u", self.u)):
            if value is not None and not _is_count(value):
                raise SettingError(
                    f"{name} must be a whole number of records or tuples, got {value!r}.",
                    where=f"Continuous({name}=...)",
                )
        _check_budget(self.interval, self.period, "Continuous")

    @property
    def objective_us(self) -> int:
        return 0 if self.objective is None else _microseconds(self.objective, "objective")

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "continuous",
            "q": self.q,
            "u": self.u,
            **_describe_budget(self.interval, self.period),
            "objective_us": self.objective_us or None,
        }


@dataclass(frozen=True, slots=True)
class CostBenefit:
    """Checks a window when the recovery time it is expected to save outweighs writing it.

    Every window that outlives the batch that opens it gets a footprint in it. After a batch, the
    oldest footprints are renewed if that saves more than it costs::

        failure_rate x (how long the saving lasts) x (time saved in a recovery) x weight
            >  footprints x (time to write one)

    Both sides are in microseconds and measured. How long the saving lasts is taken to be as long as
    the footprints have lasted: who has been open for a minute is expected to stay for another.

    Parameters
    ----------
    failure_rate
        How often a recovery is expected: ``"1 per day"``, or a number per second.
    weight
        How much worse a second of recovery is than a second of work.
    interval, period
        Budget, as in `Continuous`.

    Examples
    --------
    >>> CostBenefit(failure_rate="2 per hour").failures_per_second
    0.0005555555555555556
    """

    failure_rate: str | float
    weight: float = 1.0
    interval: str | timedelta | None = None
    period: str | timedelta | None = None

    def __post_init__(self) -> None:
        if not 0 < _read_failures(self.failure_rate) < math.inf:
            raise SettingError(
                f"failure_rate must be above zero and finite, got {self.failure_rate!r}.",
                where="CostBenefit(failure_rate=...)",
                fix='For example failure_rate="1 per day"; without failures use NoCheckpoint().',
            )
        if not _is_number(self.weight) or not 0 < self.weight < math.inf:
            raise SettingError(
                f"weight must be a number above zero and finite, got {self.weight!r}.",
                where="CostBenefit(weight=...)",
            )
        _check_budget(self.interval, self.period, "CostBenefit")

    @property
    def failures_per_second(self) -> float:
        return _failures(self.failure_rate)

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "cost-benefit",
            "failures_per_second": self.failures_per_second,
            "weight": self.weight,
            **_describe_budget(self.interval, self.period),
        }


@dataclass(frozen=True, slots=True)
class SlowWindows:
    """Checks the windows that stay open, each once in a period, a few at a time.

    Every window that outlives the batch that opens it gets a footprint in it. A window that has
    been open for longer than ``threshold`` is slow. In every ``period`` all slow windows are
    checked once, in so many ``shots`` evenly spread over it, oldest footprint first.

    Examples
    --------
    >>> SlowWindows("10 seconds", "20 seconds", shots=4).describe()["shots"]
    4
    """

    threshold: str | timedelta
    period: str | timedelta
    shots: int = 1

    def __post_init__(self) -> None:
        period = parse_duration(self.period, "period")
        if not period:
            raise SettingError(
                f"A period must be longer than zero, got {self.period!r}.",
                where="SlowWindows(period=...)",
            )
        if not _is_count(self.shots) or not 1 <= self.shots <= period:
            raise SettingError(
                f"shots must be a whole number from 1 on, got {self.shots!r}.",
                where="SlowWindows(shots=...)",
            )
        parse_duration(self.threshold, "threshold")

    @property
    def threshold_us(self) -> int:
        return _microseconds(self.threshold, "threshold")

    @property
    def period_us(self) -> int:
        return _microseconds(self.period, "period")

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "slow windows",
            "threshold_us": self.threshold_us,
            "period_us": self.period_us,
            "shots": self.shots,
        }


@dataclass(frozen=True, slots=True)
class FullSnapshot:
    """Writes all open windows at once, every so often. A recovery begins at the last snapshot.

    Parameters
    ----------
    every
        A number of batches, or a time such as ``"10 seconds"``.
    asynchronous
        False: the batch waits until the snapshot is in the log. True: it waits for a copy only,
        and the copy is written while later batches run.
    """

    every: int | str | timedelta
    asynchronous: bool = False

    def __post_init__(self) -> None:
        _check_every(self.every, "FullSnapshot")
        if not isinstance(self.asynchronous, bool):
            raise SettingError(
                f"asynchronous must be True or False, got {self.asynchronous!r}.",
                where="FullSnapshot(asynchronous=...)",
            )

    def describe(self) -> dict[str, Any]:
        return {
            "policy": "full snapshot",
            **_describe_every(self.every),
            "asynchronous": self.asynchronous,
        }


@dataclass(frozen=True, slots=True)
class Delta:
    """Writes the windows that have changed since the last time, every so often.

    A recovery begins at the last delta, and reads as far back as the oldest footprint of a window
    that is still open.

    Parameters
    ----------
    every
        A number of batches, or a time such as ``"10 seconds"``.
    full_every
        Every so many deltas all windows are written, so that the chain has an end.
    """

    every: int | str | timedelta
    full_every: int = 10

    def __post_init__(self) -> None:
        _check_every(self.every, "Delta")
        if not _is_count(self.full_every) or not self.full_every:
            raise SettingError(
                f"full_every must be a whole number from 1 on, got {self.full_every!r}.",
                where="Delta(full_every=...)",
            )

    def describe(self) -> dict[str, Any]:
        return {"policy": "delta", **_describe_every(self.every), "full_every": self.full_every}


Policy = (
    Continuous | CostBenefit | SlowWindows | FullSnapshot | Delta | UpstreamBackup | NoCheckpoint
)


def budget_us(policy: Continuous | CostBenefit) -> tuple[int, int]:
    """Interval and period of a budget; zeros without one."""
    if policy.interval is None or policy.period is None:
        return 0, 0
    return _microseconds(policy.interval, "interval"), _microseconds(policy.period, "period")


def every_us(policy: FullSnapshot | Delta) -> int | None:
    """The time between two snapshots; None if batches are counted."""
    return None if isinstance(policy.every, int) else _microseconds(policy.every, "every")


def _check_budget(
    interval: str | timedelta | None, period: str | timedelta | None, where: str
) -> None:
    if (interval is None) != (period is None):
        raise SettingError(
            "interval and period belong together.",
            where=f"{where}(interval=..., period=...)",
            fix='For example interval="5 ms", period="100 ms".',
        )
    if interval is None or period is None:
        return
    if not 0 < parse_duration(interval, "interval") <= parse_duration(period, "period"):
        raise SettingError(
            "interval must be longer than zero and at most as long as period.",
            where=f"{where}(interval=..., period=...)",
        )


def _describe_budget(
    interval: str | timedelta | None, period: str | timedelta | None
) -> dict[str, Any]:
    return {
        "interval_us": None if interval is None else _microseconds(interval, "interval"),
        "period_us": None if period is None else _microseconds(period, "period"),
    }


def _check_every(every: int | str | timedelta, where: str) -> None:
    if isinstance(every, int):
        is_wrong = not _is_count(every) or not every
    else:
        is_wrong = not parse_duration(every, "every")
    if is_wrong:
        raise SettingError(
            f"every must be a number of batches from 1 on, or a time longer than zero; got "
            f"{every!r}.",
            where=f"{where}(every=...)",
            fix='For example every=10 or every="10 seconds".',
        )


def _describe_every(every: int | str | timedelta) -> dict[str, Any]:
    if isinstance(every, int):
        return {"every_batches": every}
    return {"every_us": _microseconds(every, "every")}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_failures(rate: str | float) -> float:
    if isinstance(rate, int | float) and not isinstance(rate, bool):
        return float(rate)
    found = _FAILURES.fullmatch(rate) if isinstance(rate, str) else None
    if found is None:
        raise SettingError(
            f"{rate!r} is not a rate of failures.",
            where="CostBenefit(failure_rate=...)",
            fix='Write "1 per day", or a number per second.',
        )
    return float(found[1]) / _SECONDS[found[2]]


# Asked for in every batch. What was refused when the policy was made never comes here.
_microseconds = lru_cache(parse_duration)
_failures = lru_cache(_read_failures)
