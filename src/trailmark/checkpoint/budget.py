"""The time that checking may take: ``interval`` of work in every ``period``."""

from __future__ import annotations

from typing import ClassVar

from trailmark.checkpoint.chooser import Chooser
from trailmark.checkpoint.noted import Bounds, Fields, Noted, number, or_none, read_time
from trailmark.checkpoint.rates import LEAST_US, MOST_US, smooth
from trailmark.values import dataclass

#: Intervals that can be owed. More can only come from a clock that leapt, or a process that was
#: stopped while it checked, and is not paid back.
_MOST_OWED = 100


def _read_credit(value: object, bounds: Bounds) -> float:
    return number(value, -MOST_US, MOST_US)


def _read_cost(value: object, bounds: Bounds) -> float:
    return number(value, LEAST_US, MOST_US)


@dataclass(slots=True)
class Budget(Noted):
    """Every period begins with the credit of one interval; checking spends it.

    Credit that is left over is not saved up, as it would add up to more than an interval in a later
    period. What was spent beyond it is taken from the periods that follow, up to a limit.

    ``counted_us`` is when the period began that the credit is of, ``cost_us`` what writing one
    footprint takes: a microsecond before it was measured.
    """

    interval_us: int
    period_us: int
    credit_us: float
    counted_us: float | None = None
    cost_us: float = 1.0

    FIELDS: ClassVar[Fields] = {
        "credit_us": _read_credit,
        "counted_us": or_none(read_time),
        "cost_us": _read_cost,
    }

    @classmethod
    def of(cls, interval_us: int, period_us: int) -> Budget:
        """One that nothing was spent of; without a limit if both are zero."""
        return cls(interval_us, period_us, float(interval_us))

    def check(self) -> None:
        number(self.credit_us, -_MOST_OWED * self.interval_us, self.interval_us)

    def affordable(self, now_us: float) -> int | None:
        """Windows that may be checked now; None without a limit."""
        counted = now_us if self.counted_us is None else min(self.counted_us, now_us)
        self.counted_us = counted
        if not self.period_us:
            return None
        periods = (now_us - counted) // self.period_us
        earned = periods * self.interval_us
        self.credit_us = min(self.credit_us + earned, float(self.interval_us))
        self.counted_us = counted + periods * self.period_us
        return max(0, int(self.credit_us / self.cost_us))

    def spend(self, windows: int, took_us: float) -> None:
        """Takes the time that checking took from the credit and learns what a window costs."""
        self.credit_us = max(self.credit_us - took_us, -float(_MOST_OWED * self.interval_us))
        if windows:
            # With a whole interval to spend, one window can always be checked, and tell better.
            measured = min(took_us / windows, float(self.interval_us or took_us))
            # At once if it costs more, so that a budget is overspent once and not again and again.
            self.cost_us = max(measured, smooth(self.cost_us, measured))


class Budgeted(Chooser):
    """A chooser that checks windows within a budget."""

    __slots__ = ()
    PARTS = ("budget",)
    budget: Budget

    def spend(self, windows: int, took_us: float) -> None:
        self.budget.spend(windows, took_us)
