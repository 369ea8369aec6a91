"""The tentative results of one replica. They have no numbers: how they are cut into batches, and
what they leave out, is each replica's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from trailmark.engine.tentative import Tentative
from trailmark.log import Footer, OperatorMeta, Origin, StreamLog
from trailmark.records import FrameKind
from trailmark.recovery.restore import logged_time
from trailmark.streams.operator_rows import tentative_results
from trailmark.values import dataclass

#: Batches whose counts are remembered. They are looked for again and again.
_MOST_KNOWN = 10_000


@dataclass(frozen=True, slots=True)
class TentativePiece:
    """The tentative results of a bucket in a batch."""

    bucket: int
    batch: int
    rows: int


@dataclass(frozen=True, slots=True)
class End:
    """How it stands at the end of a batch.

    Parameters
    ----------
    complete_until
        The time up to which the results that stand are complete; None if the operator does not go
        by time.
    standing
        What is tentative and stands; None if nothing is.
    """

    complete_until: int | None = None
    standing: Tentative | None = None


class TentativeResults:
    """Those of a replica, in its output logs, one for each bucket."""

    def __init__(self, meta: OperatorMeta, logs: Sequence[StreamLog]) -> None:
        self._rows = tentative_results(meta)
        self._logs = logs
        self._known: dict[tuple[int, int], int] = {}
        self._newest: tuple[int, End] | None = None

    def forget(self) -> None:
        """Batches of the same numbers will be others."""
        self._known.clear()
        self._newest = None

    def end(self, batch: int) -> End:
        """How it stands at the end of a batch: for all buckets alike. The newest is looked at again
        and again."""
        if self._newest is None or self._newest[0] != batch:
            footer, origin = self._footer(0, batch)
            complete_until = logged_time(footer, "watermark", origin)
            self._newest = batch, End(complete_until, Tentative.logged(footer, origin))
        return self._newest[1]

    def first_behind(self, time_us: int | None, batches: range) -> int:
        """The first of some batches, in all of which something is tentative, from which on results
        go by later tuples than those up to a time; the end of them if that is not known."""
        found = batches.stop
        for batch in reversed(batches):
            facts = Tentative.logged(*self._footer(0, batch))
            if time_us is None or facts is None or facts.before is None or facts.before < time_us:
                break
            found = batch
        return found

    def pieces(self, batches: range) -> list[TentativePiece]:
        """What of them is in these batches, bucket by bucket."""
        return [
            TentativePiece(bucket, batch, rows)
            for bucket in range(len(self._logs))
            for batch in batches
            if (rows := self._count(bucket, batch))
        ]

    def count(self, batches: range) -> int:
        """How many there are in these batches."""
        buckets = range(len(self._logs))
        return sum(self._count(bucket, batch) for batch in batches for bucket in buckets)

    def read(self, piece: TentativePiece, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The results of a piece: these columns, in this order."""
        for table in self._rows.tables(self._logs[piece.bucket].read(piece.batch)):
            yield from table.select(list(columns)).to_batches()

    def _count(self, bucket: int, batch: int) -> int:
        known = self._known.get((bucket, batch))
        if known is not None:
            return known
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        footer, _ = self._footer(bucket, batch)
        found = self._known[bucket, batch] = footer.rows.get(FrameKind.TENTATIVE, 0)
        return found

    def _footer(self, bucket: int, batch: int) -> tuple[Footer, Origin]:
        log = self._logs[bucket]
        footer, _ = log.read_footer(batch)
        return footer, Origin(log.reader.segment_path(batch))
