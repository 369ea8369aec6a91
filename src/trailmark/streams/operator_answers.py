"""Views of an operator's results with the tentative ones: what stands, and what came and went.

The footer of every batch says from which batch on tentative results stand at its end. What stood
before and does not any more has been replaced: by stable results, or by tentative ones that take
more into account.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa

from trailmark.engine.tentative import Tentative
from trailmark.errors import DataLoss, MissingSegment
from trailmark.log import Footer, Origin, Segment, Storage, StreamLog
from trailmark.log.names import LARGEST_BATCH
from trailmark.records import MARK, FrameKind
from trailmark.streams.answers import (
    CHANGE_TYPE,
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETE,
    INSERT,
    Answers,
    marked_schema,
)
from trailmark.streams.operator_rows import tentative_results
from trailmark.streams.operator_view import OperatorView, row_bytes
from trailmark.streams.times import Span
from trailmark.streams.view import Chunk, StreamView

_log = logging.getLogger("trailmark")

_NOTHING = range(0)


class AnswersView(OperatorView):
    """Stable results and tentative ones: all of them, or those that stand at the end of the last
    batch that is read."""

    def __init__(self, storage: Storage, answers: Answers) -> None:
        super().__init__(storage, "results")
        self._answers = answers
        self._half: bool | None = None
        self._tentative = tentative_results(self._files.meta)
        self.schema = marked_schema(self._rows.schema, answers)

    def standing(self, batch: int) -> Tentative | None:
        """What of the tentative results stands at the end of a batch."""
        log = self._logs[0]  # it is the same for all buckets
        return _standing(log, log.read_footer(batch)[0])

    def needs(self, batch: int) -> int:
        """What stands may be given out again."""
        if batch <= self._files.meta.first_batch:
            return batch
        try:
            before = self.standing(batch - 1)
        except MissingSegment:
            return batch  # trimmed; what stands is not
        return batch if before is None else before.stands_from

    def half(self, *, is_tentative: bool) -> AnswersView:
        """The view of the stable results alone, or of the tentative ones, marked all the same."""
        view = copy.copy(self)
        view._half = is_tentative
        return view

    def _planned(self, last: int) -> Callable[[StreamLog, int], Chunk]:
        if self._half is not None:
            return partial(self._marked, 0 if self._half else LARGEST_BATCH + 1)
        if self._answers is Answers.ALL:
            return partial(self._marked, 0)
        standing = self.standing(last)
        return partial(self._marked, last + 1 if standing is None else standing.stands_from)

    def _marked(self, stands_from: int, log: StreamLog, batch: int) -> Chunk:
        footer, _ = log.read_footer(batch)
        has_stable, tentative = not self._half, _NOTHING
        rows = footer.rows.get(FrameKind.RESULTS, 0) if has_stable else 0
        if batch >= stands_from:
            rows += footer.rows.get(FrameKind.TENTATIVE, 0)
            tentative = range(batch, batch + 1)
        size = rows * row_bytes(self.schema)
        return Chunk(
            batch,
            log.identity.bucket,
            rows,
            size,
            tentative=tentative,
            has_stable=has_stable,
        )

    def read(self, chunk: Chunk, columns: Sequence[str], span: Span) -> Iterator[pa.RecordBatch]:
        if chunk.rows == 0:
            return
        segment = self._logs[chunk.bucket].read(chunk.batch)
        found: list[tuple[bool, pa.Table]] = []
        if chunk.has_stable:
            found += [(False, table) for table in self._rows.tables(segment)]
        if chunk.batch in chunk.tentative:
            found += [(True, table) for table in self._tentative.tables(segment)]
        for is_tentative, table in found:
            marked = _with(table, self.schema, [pa.scalar(is_tentative)])
            yield from marked.select(list(columns)).to_batches()


class ChangesView(OperatorView):
    """What came and went with every batch: deletes of tentative results that no longer stand, then
    inserts of stable results, then of tentative ones.

    Whoever has read nothing before a batch has nothing to delete of what came before: see
    `beginning_at`.
    """

    def __init__(self, storage: Storage, *, fails_on_data_loss: bool) -> None:
        super().__init__(storage, "results")
        self._fails_on_data_loss = fails_on_data_loss
        self._tentative = tentative_results(self._files.meta)
        self.schema = marked_schema(self._rows.schema, Answers.CHANGES)
        self._first = self._files.meta.first_batch

    def beginning_at(self, batch: int) -> StreamView:
        view = copy.copy(self)
        view._first = max(batch, self._first)
        return view

    def needs(self, batch: int) -> int:
        if batch <= self._first:
            return batch
        log = self._logs[0]
        try:
            before = _standing(log, log.read_footer(batch - 1)[0])
        except MissingSegment:
            return batch  # whoever reads on is told of it
        return batch - 1 if before is None else max(before.stands_from, self._first)

    def _planned(self, last: int) -> Callable[[StreamLog, int], Chunk]:
        return partial(self._changes, {})

    def _changes(
        self, latest: dict[int, tuple[int, Tentative | None]], log: StreamLog, batch: int
    ) -> Chunk:
        """``latest`` is what the batch that was looked at last says, for each bucket."""
        bucket = log.identity.bucket
        footer, _ = log.read_footer(batch)
        known, before = latest.get(bucket, (None, None))
        if known != batch - 1:
            before = self._before(log, batch)
        now = _standing(log, footer)
        latest[bucket] = batch, now
        void = self._void(log, batch, before, now)
        footers = [footer, *(log.read_footer(each)[0] for each in void)]
        rows = sum(each.rows.get(FrameKind.TENTATIVE, 0) for each in footers)
        rows += footer.rows.get(FrameKind.RESULTS, 0)
        return Chunk(batch, bucket, rows, rows * row_bytes(self.schema), tentative=void)

    def _before(self, log: StreamLog, batch: int) -> Tentative | None:
        """What stood when a batch began."""
        if batch <= self._first:
            return None
        try:
            return _standing(log, log.read_footer(batch - 1)[0])
        except MissingSegment:
            if batch > log.start():
                raise  # not trimmed, but missing
        self._lose(
            log, f"Batch {batch - 1} is gone, and with it which results batch {batch} replaces."
        )
        return None

    def _void(
        self, log: StreamLog, batch: int, before: Tentative | None, now: Tentative | None
    ) -> range:
        """The batches whose tentative results no longer stand with this one."""
        if before is None:
            return _NOTHING
        end = batch if now is None else now.stands_from
        void = range(max(before.stands_from, self._first), end)
        start = log.start() if void else 0
        if not void or start <= void.start:
            return void
        gone = min(start, end)
        self._lose(
            log,
            f"Tentative results of batches {void.start} to {gone - 1} are gone, which batch "
            f"{batch} replaces.",
        )
        return range(gone, end)

    def read(self, chunk: Chunk, columns: Sequence[str], span: Span) -> Iterator[pa.RecordBatch]:
        if chunk.rows == 0:
            return
        log = self._logs[chunk.bucket]
        segment = log.read(chunk.batch)
        for batch in chunk.tentative:
            earlier = self._read_void(log, batch, chunk.batch)
            for table in [] if earlier is None else self._tentative.tables(earlier):
                yield from self._told(segment, table, columns, DELETE, is_tentative=True)
        for table in self._rows.tables(segment):
            yield from self._told(segment, table, columns, INSERT, is_tentative=False)
        for table in self._tentative.tables(segment):
            yield from self._told(segment, table, columns, INSERT, is_tentative=True)

    def _read_void(self, log: StreamLog, batch: int, by: int) -> Segment | None:
        try:
            return log.read(batch)
        except MissingSegment:
            if batch >= log.start():
                raise
        self._lose(log, f"Tentative results of batch {batch} are gone, which batch {by} replaces.")
        return None

    def _told(
        self,
        segment: Segment,
        table: pa.Table,
        columns: Sequence[str],
        change: str,
        *,
        is_tentative: bool,
    ) -> Iterator[pa.RecordBatch]:
        footer = segment.footer
        values = {
            MARK: is_tentative,
            CHANGE_TYPE: change,
            COMMIT_VERSION: footer.batch,
            COMMIT_TIMESTAMP: footer.written_us,
        }
        added = [pa.scalar(each, self.schema.field(name).type) for name, each in values.items()]
        yield from _with(table, self.schema, added).select(list(columns)).to_batches()

    def _lose(self, log: StreamLog, what: str) -> None:
        if self._fails_on_data_loss:
            raise DataLoss(
                what,
                where=log.directory,
                fix="Let the operator keep more batches (retain_batches), and give readers a name "
                "(option reader). To go on without deletes of what is gone, set the option "
                "failOnDataLoss to false; to begin with what is there, leave out the start.",
            )
        _log.warning("%s: %s Its deletes are left out.", log.directory, what)


def _standing(log: StreamLog, footer: Footer) -> Tentative | None:
    """What of the tentative results stands at the end of a batch."""
    return Tentative.logged(footer, Origin(log.reader.segment_path(footer.batch)))


def _with(table: pa.Table, schema: pa.Schema, added: Sequence[pa.Scalar]) -> pa.Table:
    """A table with columns behind it that are the same in all rows."""
    columns = [pa.repeat(each, table.num_rows) for each in added]
    return pa.Table.from_arrays([*table.columns, *columns], schema=schema)
