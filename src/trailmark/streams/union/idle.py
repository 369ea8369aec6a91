"""Which streams of a union nobody waits for: they promise nothing, and have had nothing new for so
long that the others go on without them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from trailmark.errors import SettingError
from trailmark.settings import parse_duration
from trailmark.streams.boundaries import later
from trailmark.streams.promises import has_ended
from trailmark.streams.union.inputs import Look
from trailmark.streams.union.telling import tell_of_idle


class Idleness:
    """Since when streams have had nothing new, as far as this process knows.

    What one process has seen another has not, so the time begins anew with every process, and when
    a stream is back that could not be reached. Nothing of it has to be kept: how far a union goes
    without an idle stream is in its decisions.

    Parameters
    ----------
    after_us
        A stream that promises nothing is idle after so long; None waits for all of them.
    """

    def __init__(self, after_us: int | None) -> None:
        self._after_us = after_us
        #: Where each stream ended when it was last seen to have moved, and when that was.
        self._seen: dict[str, tuple[int, float]] = {}
        #: How far the others had come while a stream was idle: it does not hold them back again
        #: because they have become idle, too.
        self._passed: dict[str, int] = {}
        self._told: frozenset[str] = frozenset()

    def saw(self, looks: Mapping[str, Look], now_us: float) -> None:
        """The streams have answered by now."""
        self._seen = {
            name: seen
            if (seen := self._seen.get(name)) is not None and seen[0] == look.end
            else (look.end, now_us)
            for name, look in looks.items()
        }

    def idle(
        self, looks: Mapping[str, Look], boundaries: Mapping[str, int | None], asked_us: float
    ) -> frozenset[str]:
        """The streams that are not waited for. It is none if there is nobody to go on: by the clock
        alone no time is complete.

        Parameters
        ----------
        looks
            What was last seen of the streams that could be reached.
        boundaries
            Up to which slice each stream is complete, by itself.
        asked_us
            When they were asked: what has come to a stream since nobody knows.
        """
        if self._after_us is None:
            return frozenset()
        silent = {
            name
            for name, look in looks.items()
            if not look.is_promised and asked_us - self._seen[name][1] >= self._after_us
        }
        self._passed = {name: each for name, each in self._passed.items() if name in silent}
        # How far one has come that has ended says nothing about others.
        others = [b for name, b in boundaries.items() if name not in silent and not has_ended(b)]
        known = [each for each in others if each is not None]
        if known and len(known) == len(others):
            least = min(known)
            for name in silent:
                self._passed[name] = max(least, self._passed.get(name, least))
        found = frozenset(silent) if others else frozenset()
        tell_of_idle(found - self._told, self._told - found, self._after_us)
        self._told = found
        return found

    def lifted(self, boundaries: Mapping[str, int | None]) -> dict[str, int | None]:
        """The boundaries that count: where the others have passed a stream, theirs."""
        return {name: later(each, self._passed.get(name)) for name, each in boundaries.items()}


def parse_idle_after(given: str | timedelta, interval_us: int) -> int:
    """The argument ``idle_after`` of a union with slices of a length."""
    idle_after_us = parse_duration(given, "idle_after")
    if idle_after_us < max(1, interval_us):
        raise SettingError(
            "A stream would be idle before it can be complete for a slice (interval).",
            where="idle_after",
            fix="Use longer than its writer is ever silent while it has rows: '5 minutes', for "
            "example. What comes after that, and is older than what was released, is late.",
        )
    return idle_after_us
