"""Whether another batch is due though no rows have come: the next watermark may close windows, or a
time that the operator waits for has come."""

from __future__ import annotations

from collections.abc import Sequence

from trailmark.engine.footers import read_footers
from trailmark.engine.watermark import Watermark
from trailmark.errors import MissingSegment
from trailmark.log import (
    Clock,
    Footer,
    OperatorMeta,
    Storage,
    StreamLog,
    read_meta,
    wall_clock_us,
)
from trailmark.operators.kinds import form_of
from trailmark.operators.protocol import Port
from trailmark.records import ALARM, NO_BATCH, Stream


class DueBatch:
    """Looks at an operator's output, from anywhere and without writing.

    Attributes
    ----------
    after
        The newest batch that was seen to ask for another one; NO_BATCH if none did.
    """

    def __init__(self, storage: Storage, clock: Clock = wall_clock_us) -> None:
        self.after = NO_BATCH
        self._clock = clock
        self._alarm_us: int | None = None
        self._storage = storage
        self._outputs: list[StreamLog] = []
        self._ports: tuple[Port, ...] = ()
        self._has_times = False
        self._newest = NO_BATCH
        self._judged = NO_BATCH

    def end_at(self, now_us: int) -> None:
        """From now on, no time counts as having come that is later than this one."""
        clock = self._clock
        self._clock = lambda: min(clock(), now_us)

    def look(self) -> None:
        """Find out whether one is due after the newest batch. Cheap where nothing is new."""
        if not self._outputs:
            meta = read_meta(self._storage)
            if meta is None:
                return
            self._open(meta)
        self._newest = self._find_newest()
        if self._newest != self._judged:
            footers = self._footers(self._newest)
            if footers is None:
                return
            if self._has_times and (
                Watermark.behind(footers, self._ports).has_moved
                or Watermark.is_fork_due(footers, self._ports)
            ):
                self.after = self._newest
            self._alarm_us = _earliest_alarm(footers)
            self._judged = self._newest
        if self._alarm_us is not None and self._alarm_us <= self._clock():
            self.after = self._newest

    def _open(self, meta: OperatorMeta) -> None:
        self._ports = form_of(meta).ports
        self._has_times = any(port.event_time is not None for port in self._ports)
        self._outputs = [
            StreamLog(self._storage, Stream.OUTPUT, meta.log_id, bucket)
            for bucket in range(meta.buckets)
        ]

    def _find_newest(self) -> int:
        """The newest batch of the first bucket; lists its directory only to begin with, or if the
        newest one known has been merged."""
        log, newest = self._outputs[0], self._newest
        if newest == NO_BATCH or not self._storage.exists(log.reader.segment_path(newest)):
            return log.newest()
        while self._storage.exists(log.reader.segment_path(newest + 1)):
            newest += 1
        return newest

    def _footers(self, batch: int) -> list[Footer] | None:
        """The footers of all buckets; None where one has not published the batch."""
        try:
            return read_footers(self._outputs, batch)
        except MissingSegment:
            return None


def _earliest_alarm(footers: Sequence[Footer]) -> int | None:
    """The time that the first of all buckets waits for."""
    found = [footer.attributes.get(ALARM) for footer in footers]
    return min((each for each in found if isinstance(each, int)), default=None)
