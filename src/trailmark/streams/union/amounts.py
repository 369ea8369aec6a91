"""How much of some files lies before a time, as far as their ranges of times tell."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trailmark.log import TimeRange


class Amounts:
    """Files whose rows are taken to be spread evenly over their times.

    Parameters
    ----------
    files
        The times of each, and how much it holds.
    first_us, end_us
        Only what lies from one to before the other counts.
    """

    def __init__(
        self, files: Sequence[tuple[TimeRange, int]], first_us: int | None, end_us: int
    ) -> None:
        begins = np.array([times.min_us for times, _ in files], dtype=np.float64)
        lasts = np.array([times.max_us for times, _ in files], dtype=np.float64)
        held = np.array([amount for _, amount in files], dtype=np.float64)
        earliest = min((times.min_us for times, _ in files), default=end_us)
        self.first_us = earliest if first_us is None else max(first_us, earliest)
        # Floats hold microseconds exactly for 285 years around 1970; beyond, about is good enough.
        begin = begins - float(self.first_us)
        end = lasts - float(self.first_us) + 1
        length = end - begin
        begin = np.clip(begin, 0, end_us - self.first_us)
        end = np.clip(end, 0, end_us - self.first_us)
        rate = held / length
        changes = np.concatenate([begin, end])
        order = np.argsort(changes, kind="stable")
        self._at = changes[order]
        rates = np.cumsum(np.concatenate([rate, -rate])[order])
        steps = np.diff(self._at) * rates[:-1] if len(rates) else np.zeros(0)
        self._before = np.concatenate([[0.0], np.cumsum(steps)]) if len(rates) else np.zeros(0)

    @property
    def total(self) -> float:
        """All of it."""
        return float(self._before[-1]) if len(self._before) else 0.0

    def time_of(self, amount: float) -> int | None:
        """The time before which about so much lies; None if there is not so much."""
        if amount >= self.total:
            return None
        return self.first_us + int(np.interp(amount, self._before, self._at))
