"""The view of an operator's logs: one kind of its records, as far as its query has committed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa

from trailmark.inspection.logs import OperatorFiles
from trailmark.log import Storage, StreamLog
from trailmark.records import NO_BATCH, Stream
from trailmark.streams.answers import Answers
from trailmark.streams.committed import CommittedBatches
from trailmark.streams.operator_rows import rows_of_kind
from trailmark.streams.times import Span
from trailmark.streams.view import (
    Chunk,
    StreamBatch,
    StreamView,
    find_time,
    rows_within,
    wanted_batches,
)


def open_operator_view(
    storage: Storage,
    records: str | None,
    answers: Answers | None = None,
    *,
    fails_on_data_loss: bool = True,
) -> StreamView:
    """The view of an operator's results, or of other records."""
    if answers in (None, Answers.STABLE):
        return OperatorView(storage, records or "results")
    from trailmark.streams.operator_answers import AnswersView, ChangesView

    if answers is Answers.CHANGES:
        return ChangesView(storage, fails_on_data_loss=fails_on_data_loss)
    return AnswersView(storage, answers)


class OperatorView:
    """Implements `StreamView` for one kind of an operator's records."""

    source_schema = None

    def __init__(self, storage: Storage, records: str) -> None:
        self._files = OperatorFiles(storage)
        self._rows = rows_of_kind(self._files.meta, records)
        self.schema = self._rows.schema
        self.time_column = self._rows.time_column
        self._logs = [self._files.log(self._rows.stream, b) for b in self._files.buckets]
        self._committed = CommittedBatches(self._files)

    @property
    def log_id(self) -> str:
        return str(self._files.meta.log_id)

    @property
    def stream(self) -> Stream:
        return self._rows.stream

    def oldest(self) -> int:
        return max([self._files.meta.first_batch, *(log.start() for log in self._logs)])

    def end(self) -> int:
        return self._committed.end()

    def find(self, timestamp_us: int) -> int:
        found = [find_time(log, timestamp_us, self.time_column is not None) for log in self._logs]
        return min((batch for batch in found if batch != NO_BATCH), default=self.end())

    def needs(self, batch: int) -> int:
        return batch

    def beginning_at(self, batch: int) -> StreamView:
        return self

    def batches(self, first: int, end: int, span: Span) -> Iterator[StreamBatch]:
        # Ranges stay ranges: they may be any length, if the name of a file lies.
        wanted: list[Collection[int]] = [
            wanted_batches(log, first, end, span, self.time_column is not None)
            for log in self._logs
        ]
        within: Sequence[int] = range(first, end)
        if span.has_times:
            wanted = [frozenset(batches) for batches in wanted]
            within = sorted(frozenset().union(*wanted))
        if not within:
            return
        planned = self._planned(within[-1])
        for batch in within:
            chunks = [
                planned(log, batch)
                for log, batches in zip(self._logs, wanted, strict=True)
                if batch in batches
            ]
            if chunks:
                yield StreamBatch(batch, chunks)

    def _planned(self, last: int) -> Callable[[StreamLog, int], Chunk]:
        """What makes the chunk of a bucket and a batch, of which ``last`` is the last."""
        return self._chunk

    def _chunk(self, log: StreamLog, batch: int) -> Chunk:
        footer, _ = log.read_footer(batch)
        rows = sum(footer.rows.get(kind, 0) for kind in self._rows.frames)
        # Rows are a small part of a segment with footprints. Its size would say little, and finding
        # it out costs another look.
        return Chunk(batch, log.identity.bucket, rows, rows * row_bytes(self.schema))

    def read(self, chunk: Chunk, columns: Sequence[str], span: Span) -> Iterator[pa.RecordBatch]:
        if chunk.rows == 0:
            return
        segment = self._logs[chunk.bucket].read(chunk.batch)
        for table in self._rows.tables(segment):
            for rows in table.to_batches():
                yield rows_within(rows, self.time_column, span).select(list(columns))


def row_bytes(schema: pa.Schema) -> int:
    """About how many bytes a row takes; texts and nested columns are guessed."""
    guess = 32
    return sum(
        max(1, field.type.bit_width // 8) if pa.types.is_primitive(field.type) else guess
        for field in schema
    )
