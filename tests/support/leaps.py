"""Clocks as machines have them: that stand still, leap, and on the wall also go back."""

from __future__ import annotations

import random

HOUR_US = 3_600 * 1_000_000
DAY_US = 24 * HOUR_US


class LeapingClock:
    """Never goes back, but may stand still for a while, or leap by an hour or a day, between any
    two looks."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now = 0.0

    def __call__(self) -> float:
        leaps = self._rng.random() < 0.02
        self._now += self._rng.choice((HOUR_US, DAY_US) if leaps else (0, 0, 7, 7, 7, 300))
        return self._now


class JumpingWall:
    """A clock on the wall that somebody sets by an hour or a day, ahead or back."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._now = 1_700_000_000 * 1_000_000

    def __call__(self) -> int:
        self._now += 1_000
        if self._rng.random() < 0.1:
            self._now += self._rng.choice((HOUR_US, DAY_US, -HOUR_US, -DAY_US))
        return self._now
