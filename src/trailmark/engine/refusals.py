"""What a bucket does not take in, and why: rows, batches and columns that do not fit its log."""

from __future__ import annotations

import pyarrow as pa

from trailmark.errors import (
    BatchGoesBackward,
    BatchSkipped,
    InputDiffers,
    SchemaChanged,
    SettingError,
)
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment
from trailmark.operators.protocol import Operator
from trailmark.records import NO_BATCH, Fingerprint
from trailmark.state.table import LAST_BATCH


def select_columns(
    operator: Operator, rows: pa.Table | pa.RecordBatch, where: str
) -> pa.RecordBatch:
    """The columns the operator reads, as one record batch."""
    schema = operator.input_schema
    for field in schema:
        at = rows.schema.get_field_index(field.name)
        found = rows.schema.field(at).type if at >= 0 else None
        if found != field.type:
            raise SchemaChanged(
                f"Column {field.name!r} is {found or 'missing'}; the operator was made for "
                f"{field.type}.",
                where=where,
                fix="Cast the column, or start the query on a new path.",
            )
    return contiguous(rows.select(schema.names))


def check_same_input(segment: Segment, digest: Fingerprint) -> None:
    """A batch that is delivered again has the same rows, in whatever order."""
    logged = segment.footer.fingerprint
    if logged != digest:
        raise InputDiffers(
            f"Batch {segment.batch} is in the log with other rows ({logged.rows:,} then, "
            f"{digest.rows:,} now).",
            where=segment.origin.path,
            fix="The query's checkpoint was deleted or rolled back, or another query uses this "
            "path. Restore the checkpoint, or start with a new path and a new checkpoint.",
        )


def check_number(batch: int, first_batch: int, where: str) -> None:
    """A batch lies between the first and the last a log can have."""
    if batch < first_batch:
        raise goes_backward(batch, f"the log begins with batch {first_batch}", where)
    if batch > LAST_BATCH:
        raise SettingError(
            f"Batch {batch} is beyond the last one a log can have, {LAST_BATCH}.", where="batch"
        )


def check_order(batch: int, newest: int, first_batch: int, where: str) -> None:
    """A new batch follows the newest one of the log."""
    if newest > batch - 1:
        raise goes_backward(batch, f"the log holds batches up to {newest}", where)
    if newest < batch - 1:
        last = "no batch yet" if newest == NO_BATCH else f"batches up to {newest}"
        raise BatchSkipped(
            f"Batch {batch} cannot be taken in: the log holds {last}, so batch "
            f"{max(newest + 1, first_batch)} is missing.",
            where=where,
            fix="A batch was left unevaluated (take or head in foreachBatch?), or segments "
            "were deleted. Restore them, or start the query with a new path and a new checkpoint.",
        )


def goes_backward(batch: int, why: str, where: str) -> BatchGoesBackward:
    return BatchGoesBackward(
        f"Batch {batch} cannot be taken in again: {why}.",
        where=where,
        fix="The query's checkpoint was deleted or rolled back. Restore it, or start with a new "
        "path and a new checkpoint.",
    )
