"""A policy at work in one bucket."""

from __future__ import annotations

from trailmark.checkpoint.moment import Choice, Moment
from trailmark.checkpoint.noted import Noted


class Chooser(Noted):
    """Chooses at the end of each batch, and remembers what its policy needs for that.

    This one chooses nothing and has nothing to remember.
    """

    __slots__ = ()

    def choose(self, moment: Moment) -> Choice:
        """The windows that get a footprint now. They have it when this returns."""
        return Choice()

    def spend(self, windows: int, took_us: float) -> None:
        """Told how long it took to check so many windows."""
