"""The watermark of a batch: one value for all buckets, whichever of them asks first.

It is the greatest event time of the batches before, in any bucket, less the delay. The input
footers of the batch before hold all that is needed: its own event times, and its watermark, which
covers everything older.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from zlib import crc32

from trailmark.errors import BatchSkipped, DamagedSegment, MissingSegment
from trailmark.log import Storage, StreamLog
from trailmark.values import dataclass

_DIRECTORY = "watermark"

#: Watermarks that are kept, and after how many batches the others are removed.
_KEPT = 64


@dataclass(frozen=True, slots=True)
class Watermark:
    """``at`` closes windows at the end of the batch; ``before`` did so in the batch before."""

    at: int | None = None
    before: int | None = None


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
        text, _, checksum = bytes(self._storage.read(path)).partition(b"\n")
        if checksum != b"%08x\n" % crc32(text):
            raise DamagedSegment(
                "The watermark does not match its checksum.",
                where=path,
                fix="Delete the file: it is computed again from the input log.",
            )
        return Watermark(**json.loads(text))

    def _compute(self, batch: int) -> Watermark:
        latest: list[int] = []
        before: int | None = None
        for log in self._inputs:
            try:
                footer, _ = log.read_footer(batch - 1)
            except MissingSegment as error:
                raise BatchSkipped(
                    f"Batch {batch} needs batch {batch - 1} of every bucket, but it is missing in "
                    f"bucket {log.identity.bucket}.",
                    where=error.where,
                    fix="Every partition of a batch must be evaluated before the next batch.",
                ) from error
            if footer.time_range is not None:
                latest.append(footer.time_range.max_us - self._delay_us)
            before = footer.attributes.get("watermark")
        known = [*latest, *([] if before is None else [before])]
        return Watermark(max(known, default=None), before)


def watermark_path(batch: int) -> str:
    return f"{_DIRECTORY}/{batch:020d}.json"
