"""Whether the writers of a stream keep to what they have promised."""

from __future__ import annotations

from collections.abc import Mapping

from trailmark import units
from trailmark.errors import DataLoss
from trailmark.streams.boundaries import NO_BOUNDARIES, Boundaries, is_later
from trailmark.streams.heartbeats import Heartbeat


class Kept:
    """What each writer has promised by now, as this process has seen it.

    None ever promises less. The stream as a whole may seem to, for a moment, while a writer comes
    to it that is new; and so may one whose newest heartbeat is damaged, until it sends another.

    Parameters
    ----------
    place
        Which stream it is, for messages.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._known = NO_BOUNDARIES
        self._numbers: dict[str, int] = {}

    def check(self, known: Boundaries | None, heartbeats: Mapping[str, Heartbeat]) -> None:
        """Refuses what takes a promise back: others have gone by it."""
        known = known or NO_BOUNDARIES
        for writer in self._known.writers:
            before_us, now_us = self._known.own(writer), known.own(writer)
            if is_later(before_us, now_us) and not self._is_damaged(writer, heartbeats):
                assert before_us is not None
                now = "nothing" if now_us is None else units.moment(now_us)
                raise DataLoss(
                    f"Writer {writer} had promised that nothing comes before "
                    f"{units.moment(before_us)}, and promises {now} now.",
                    where=self._place,
                    fix="Heartbeats were deleted, or the stream was replaced by an older copy: "
                    "put it back. If you start the query without, it waits until the writer has "
                    "come as far again, and rows older than what was released are late.",
                )
        self._known = known
        self._numbers = {name: each.number for name, each in heartbeats.items()}

    def _is_damaged(self, writer: str, heartbeats: Mapping[str, Heartbeat]) -> bool:
        """Whether the one before the newest heartbeat is taken, or none that can be read."""
        found = heartbeats.get(writer)
        return found is not None and (
            bool(found.problem) or found.number < self._numbers.get(writer, 0)
        )
