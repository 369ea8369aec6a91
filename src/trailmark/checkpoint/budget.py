"""The time that checking may take: ``interval`` of work in every ``period``."""

from __future__ import annotations

from typing import Any

from trailmark.checkpoint.policy import Continuous, CostBenefit, budget_us
from trailmark.checkpoint.rates import smooth
from trailmark.log import MonotonicClock
from trailmark.values import dataclass

#: Microseconds that writing one footprint takes before it was measured.
_FIRST_COST_US = 1.0
#: Intervals that can be owed. More can only come from a clock that leapt, or a process that was
#: stopped while it checked, and is not paid back.
_MOST_OWED = 100


@dataclass(slots=True)
class Budget:
    """Every period begins with the credit of one interval; checking spends it.

    Credit that is left over is not saved up, as it would add up to more than an interval in a later
    period. What was spent beyond it is taken from the periods that follow, up to a limit.
    """

    interval_us: int
    period_us: int
    now_us: MonotonicClock
    credit_us: float
    counted_us: float
    cost_us: float = _FIRST_COST_US

    @classmethod
    def from_notes(
        cls, policy: Continuous | CostBenefit, notes: dict[str, Any], now_us: MonotonicClock
    ) -> Budget:
        """Goes on from what was left after the last batch; without notes, with one interval."""
        interval, period = budget_us(policy)
        now = now_us()
        return cls(
            interval,
            period,
            now_us,
            float(notes.get("credit_us", interval)),
            min(float(notes.get("counted_us", now)), now),
            float(notes.get("cost_us", _FIRST_COST_US)),
        )

    def write_notes(self, notes: dict[str, Any]) -> None:
        notes["credit_us"] = self.credit_us
        notes["counted_us"] = self.counted_us
        notes["cost_us"] = self.cost_us

    def affordable(self) -> int | None:
        """Windows that may be checked now; None without a limit."""
        if not self.period_us:
            return None
        periods = (self.now_us() - self.counted_us) // self.period_us
        earned = periods * self.interval_us
        self.credit_us = min(self.credit_us + earned, float(self.interval_us))
        self.counted_us += periods * self.period_us
        return max(0, int(self.credit_us / self.cost_us))

    def spend(self, windows: int, took_us: float) -> None:
        """Takes the time that checking took from the credit and learns what a window costs."""
        self.credit_us = max(self.credit_us - took_us, -float(_MOST_OWED * self.interval_us))
        if windows:
            # With a whole interval to spend, one window can always be checked, and tell better.
            measured = min(took_us / windows, float(self.interval_us or took_us))
            # At once if it costs more, so that a budget is overspent once and not again and again.
            self.cost_us = max(measured, smooth(self.cost_us, measured))
