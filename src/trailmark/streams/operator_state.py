"""The state of an operator, at the end of any batch that its logs still lead to.

It is what the engine had then, exactly: a recovery to that batch in private memory. Nothing is
written, and no cache is touched.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from trailmark.engine.logs import describe_logs, has_ticks
from trailmark.errors import MissingInput, MissingSegment, SchemaChanged, SettingError
from trailmark.inspection.logs import OperatorFiles, existing_meta
from trailmark.inspection.read_only import ReadOnly
from trailmark.log import OperatorMeta, Storage, check_same_operator
from trailmark.operators.kinds import form_of, rebuilt
from trailmark.operators.logged import unknown_operator
from trailmark.operators.protocol import AnyOperator
from trailmark.records import Stream
from trailmark.recovery.aside import recovered_aside
from trailmark.streams.committed import CommittedBatches
from trailmark.streams.description import is_stream
from trailmark.streams.named_code import named_code
from trailmark.streams.rebuildable import rebuildable, told
from trailmark.streams.state_columns import StateColumns
from trailmark.streams.times import Span
from trailmark.streams.view import STATE, only_rows

#: Pieces that are shown at a time.
_AT_ONCE = 1 << 16
#: Batches that are looked at to say which of them one may ask for.
_LOOKED_AT = 1_000
#: Whoever asks for the newest batch is overtaken by trims at most so often.
_LOOKS = 5


def open_state(storage: Storage, code: object = None) -> OperatorState:
    """The state of the operator whose logs are in a storage.

    ``code`` is what of the operator is the user's own, or the name that it can be imported by.
    """
    if is_stream(existing_meta(storage)):
        raise only_rows(STATE)
    return OperatorState(storage, named_code(code) if isinstance(code, str) else code)


def check_as_of(span: Span) -> None:
    """Refuses a span that is more than the batch at whose end a state is asked for."""
    given = {
        "startingBatch": span.first_batch,
        "startingTimestamp": span.first_us,
        "endingTimestamp": span.last_us,
    }
    for name, value in given.items():
        if value is not None:
            raise SettingError(
                f"{name} does not go with a state, which is as of the end of one batch.",
                where=name,
                fix="Leave it out. endingBatch says which batch; without it, it is the newest.",
            )


class OperatorState:
    """A state that is rebuilt bucket by bucket.

    Attributes
    ----------
    schema
        The columns of its rows.
    """

    source_schema = None

    def __init__(self, storage: Storage, code: object) -> None:
        self._files = OperatorFiles(ReadOnly(storage))
        self._operator = operator_of(self._files.meta, code)
        self._columns = StateColumns(form_of(self._files.meta), self._operator)
        self.schema = self._columns.schema
        self._committed = CommittedBatches(self._files)

    @property
    def buckets(self) -> range:
        """The numbers of its buckets."""
        return self._files.buckets

    def as_of(self, asked: int | None) -> int | None:
        """The batch that is asked for, or the newest committed one; None while there is none."""
        end = self._committed.end()
        if asked is None:
            return end - 1 if end > self._files.meta.first_batch else None
        if asked in range(self._oldest(), end):
            return asked
        why = (
            "it is not committed"
            if asked >= end
            else "it is not in the output log any more, or never was"
        )
        raise MissingSegment(
            f"There is no state as of batch {asked}: {why}.",
            where="endingBatch",
            fix=self._choice(),
        )

    def rows(self, batch: int, bucket: int) -> Iterator[pa.RecordBatch]:
        """The open pieces of a bucket at the end of a batch; raises `MissingInput` if what it
        takes to rebuild them is gone."""
        streams = (Stream.OUTPUT, Stream.INPUT, Stream.SNAPSHOT)
        output, inputs, snapshots = (self._files.log(stream, bucket) for stream in streams)
        first_batch = self._files.meta.first_batch
        recovered = recovered_aside(self._operator, output, inputs, snapshots, batch, first_batch)
        try:
            with recovered as state:
                slots = state.list_oldest()
                for first in range(0, len(slots), _AT_ONCE):
                    some = slots[first : first + _AT_ONCE]
                    footprints = self._operator.footprints(state, some, 0)
                    yield self._columns.shown(footprints, batch, bucket)
        except MissingSegment as error:
            raise MissingInput(
                f"The state as of batch {batch} cannot be rebuilt: {error.what}",
                where=error.where,
                fix=f"A query keeps input as long as a recovery may need it. {self._choice()}",
            ) from error

    def table(self, asked: int | None = None) -> pa.Table:
        """All open pieces at the end of a batch.

        A query that runs may trim what it takes to rebuild the newest batch of a moment ago: then
        there is a newer one.
        """
        for look in range(_LOOKS):
            batch = self.as_of(asked)
            if batch is None:
                return self.schema.empty_table()
            try:
                parts = [rows for bucket in self.buckets for rows in self.rows(batch, bucket)]
                return pa.Table.from_batches(parts, self.schema)
            except MissingInput:
                if look + 1 == _LOOKS or self.as_of(asked) == batch:
                    raise
        raise AssertionError("the last look returns or raises")

    def _oldest(self) -> int:
        """The first batch that is in the output log of every bucket."""
        starts = (self._files.log(Stream.OUTPUT, bucket).start() for bucket in self.buckets)
        return max(self._files.meta.first_batch, *starts)

    def _choice(self) -> str:
        """Which batches one may ask for."""
        end = self._committed.end()
        found = rebuildable(self._files, range(max(self._oldest(), end - _LOOKED_AT), end))
        if not found:
            return "There is no batch whose state could be rebuilt now: read it later."
        return f"Choose one of the batches {told(found)}, or none to read the newest."


def operator_of(meta: OperatorMeta, code: object) -> AnyOperator:
    """The operator that wrote the logs, which has to describe itself as it did then."""
    operator = rebuilt(meta, code)
    try:
        check_same_operator(meta, describe_logs(operator, meta.buckets, ticks=has_ticks(meta)))
    except SchemaChanged as error:
        if code is None:
            raise unknown_operator(
                f"The description of the operator says more than is known of it. {error.what}"
            ) from error
        raise SchemaChanged(
            error.what,
            where="operator",
            fix="Name the code as it was when the logs were written (left of the arrow).",
        ) from error
    return operator
