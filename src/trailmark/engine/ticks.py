"""Whether another batch is due though no rows have come: the next watermark may close windows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from trailmark.engine.watermark import Watermark
from trailmark.errors import MissingSegment
from trailmark.log import Footer, OperatorMeta, Storage, StreamLog, read_meta
from trailmark.records import NO_BATCH, Stream
from trailmark.windows.spec import TimeWindow, window_from_description

#: Footers that are read at the same time; from an object store each takes a round trip.
_READS_AT_ONCE = 16


class DueBatch:
    """Looks at an operator's output, from anywhere and without writing.

    Attributes
    ----------
    after
        The newest batch that was seen to ask for another one; NO_BATCH if none did.
    """

    def __init__(self, storage: Storage) -> None:
        self.after = NO_BATCH
        self._storage = storage
        self._outputs: list[StreamLog] = []
        self._delay_us = 0
        self._newest = NO_BATCH
        self._judged = NO_BATCH

    def look(self) -> None:
        """Find out whether one is due after the newest batch. Cheap where nothing is new."""
        if not self._outputs:
            meta = read_meta(self._storage)
            if meta is None:
                return
            self._open(meta)
        self._newest = self._find_newest()
        if self._newest == self._judged:
            return
        footers = self._footers(self._newest)
        if footers is not None:
            if Watermark.behind(footers, self._delay_us).has_moved:
                self.after = self._newest
            self._judged = self._newest

    def _open(self, meta: OperatorMeta) -> None:
        window = window_from_description(meta.operator["window"])
        assert isinstance(window, TimeWindow), "only event time moves a watermark"
        self._delay_us = window.delay
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
            with ThreadPoolExecutor(min(_READS_AT_ONCE, len(self._outputs))) as pool:
                return list(pool.map(lambda log: log.read_footer(batch)[0], self._outputs))
        except MissingSegment:
            return None
