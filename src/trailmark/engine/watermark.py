"""The watermark of a batch: one value for all buckets, whichever of them asks first.

It is the greatest event time of the batches before, in any bucket, less the delay. The input
footers of the batch before hold all that is needed: its own event times, and its watermark, which
covers everything older.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from zlib import crc32

from trailmark.engine.refusals import LEFT_OUT
from trailmark.errors import BatchSkipped, DamagedSegment, MissingSegment
from trailmark.log import Footer, Origin, Storage, StreamLog
from trailmark.log.json_text import load, read_text, whole
from trailmark.log.names import log_directory, segment_name
from trailmark.recovery.restore import logged_time
from trailmark.values import dataclass

_DIRECTORY = "watermark"

#: Watermarks that are kept, and after how many batches the others are removed.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class Watermark:
    """``at`` closes windows at the end of the batch; ``before`` did so in the batch before."""

    at: int | None = None
    before: int | None = None

    @classmethod
    def behind(cls, footers: Iterable[Footer], delay_us: int) -> Watermark:
        """The watermark of the next batch, from a footer of each bucket, of input or output."""
        before: int | None = None
        known: list[int] = []
        for footer in footers:
            before = _logged(footer)
            if footer.time_range is not None:
                known.append(footer.time_range.max_us - delay_us)
        if before is not None:
            known.append(before)
        return cls(max(known, default=None), before)

    @property
    def has_moved(self) -> bool:
        """Whether it may close windows that the batch before could not."""
        return self.at != self.before


class Watermarks:
    """Watermarks of one operator, published if absent."""

    def __init__(
        self, storage: Storage, inputs: Sequence[StreamLog], delay_us: int, first_batch: int
    ) -> None:
        self._storage = storage
        self._inputs = inputs
        self._delay_us = delay_us
        self._first_batch = first_batch

    def of(self, batch: int) -> Watermark:
        """The watermark of a batch; all earlier batches must be in the log."""
        if batch <= self._first_batch:
            return Watermark()
        path = watermark_path(batch)
        try:
            return self._read(path)
        except FileNotFoundError:
            found = self._compute(batch)
        text = json.dumps({"at": found.at, "before": found.before}).encode()
        self._storage.publish(path, [text, b"\n%08x\n" % crc32(text)])
        if batch % _KEPT == 0:
            self._forget_before(batch - _KEPT)
        return self._read(path)

    def _forget_before(self, batch: int) -> None:
        """Only the newest batch can be asked for again; the input log has the older watermarks."""
        oldest = watermark_path(batch)
        for entry in self._storage.list(_DIRECTORY):
            path = f"{_DIRECTORY}/{entry.name}"
            if path < oldest:
                self._storage.delete(path)

    def _read(self, path: str) -> Watermark:
        return read_watermark(self._storage, path)

    def _compute(self, batch: int) -> Watermark:
        footers = [self._footer(log, batch) for log in self._inputs]
        return Watermark.behind(footers, self._delay_us)

    def _footer(self, log: StreamLog, batch: int) -> Footer:
        """The footer of the batch before, in one bucket."""
        try:
            return log.read_footer(batch - 1)[0]
        except MissingSegment as error:
            raise BatchSkipped(
                f"Batch {batch} needs batch {batch - 1} of every bucket, but it is missing in "
                f"bucket {log.identity.bucket}.",
                where=error.where,
                fix=LEFT_OUT,
            ) from error


def read_watermark(storage: Storage, path: str) -> Watermark:
    """The watermark that a file holds."""
    text, _, checksum = bytes(read_text(storage, path)).partition(b"\n")
    if checksum != b"%08x\n" % crc32(text):
        raise _damaged("The watermark does not match its checksum.", path)
    stored = load(text)
    try:
        if stored is not None:
            return Watermark(_time(stored["at"]), _time(stored["before"]))
    except (KeyError, ValueError):
        pass  # whole, and not what was written
    raise _damaged("The file does not hold a watermark.", path)


def _logged(footer: Footer) -> int | None:
    """The watermark of a batch, as its footers have it."""
    directory = log_directory(footer.identity.stream, footer.identity.bucket)
    return logged_time(footer, "watermark", Origin(f"{directory}/{segment_name(footer.batch)}"))


def _time(stored: object) -> int | None:
    return None if stored is None else whole(stored, -(2**63), 2**63 - 1)


def _damaged(what: str, path: str) -> DamagedSegment:
    return DamagedSegment(
        what, where=path, fix="Delete the file: it is computed again from the input log."
    )


def watermark_path(batch: int) -> str:
    return f"{_DIRECTORY}/{batch:020d}.json"
