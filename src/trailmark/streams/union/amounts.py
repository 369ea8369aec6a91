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
        earliest = min((times.min_us for times, _ in files), default=end_us)
        self.first_us = earliest if first_us is None else max(first_us, earliest)
        # Whole numbers until here: times far apart are no longer exact as floats.
        begin = np.array([times.min_us - self.first_us for times, _ in files], dtype=np.float64)
        length = np.array([times.max_us - times.min_us + 1 for times, _ in files], np.float64)
        rate = np.array([amount for _, amount in files], dtype=np.float64) / length
        span = float(end_us - self.first_us)
        begin, end = np.clip(begin, 0, span), np.clip(begin + length, 0, span)
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
