"""The time that checking may take: ``interval`` of work in every ``period``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trailmark.checkpoint.policy import Continuous
from trailmark.log import MonotonicClock

#: Microseconds that writing one footprint takes before it was measured.
_FIRST_COST_US = 1.0
_SMOOTHING = 0.2


@dataclass(slots=True)
class Budget:
    """Every period begins with the credit of one interval; checking spends it.

    Credit that is left over is not saved up, as it would add up to more than an interval in a later
    period. What was spent beyond it is taken from the periods that follow.
    """

    policy: Continuous
    now_us: MonotonicClock
    credit_us: float
    counted_us: float
    cost_us: float = _FIRST_COST_US

    @classmethod
    def from_notes(
        cls, policy: Continuous, notes: Mapping[str, Any], now_us: MonotonicClock
    ) -> Budget:
        """Goes on from what was left after the last batch; without notes, with one interval."""
        now = now_us()
        counted = min(float(notes.get("counted_us", now)), now)
        return cls(
            policy,
            now_us,
            float(notes.get("credit_us", policy.interval_us)),
            counted,
            float(notes.get("cost_us", _FIRST_COST_US)),
        )

    def notes(self) -> dict[str, Any]:
        return {
            "credit_us": self.credit_us,
            "counted_us": self.counted_us,
            "cost_us": self.cost_us,
        }

    def affordable(self) -> int | None:
        """Windows that may be checked now; None without a limit."""
        if not self.policy.period_us:
            return None
        periods = (self.now_us() - self.counted_us) // self.policy.period_us
        earned = periods * self.policy.interval_us
        self.credit_us = min(self.credit_us + earned, float(self.policy.interval_us))
        self.counted_us += periods * self.policy.period_us
        return max(0, int(self.credit_us / self.cost_us))

    def spend(self, windows: int, took_us: float) -> None:
        """Takes the time that checking took from the credit and learns what a window costs."""
        self.credit_us -= took_us
        if windows:
            measured = max(took_us / windows, 0.001)
            # At once if it costs more, so that a budget is overspent once and not again and again.
            self.cost_us = max(measured, self.cost_us + _SMOOTHING * (measured - self.cost_us))
