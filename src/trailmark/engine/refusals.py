"""What a bucket does not take in, and why: rows, batches and columns that do not fit its log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from trailmark.errors import (
    BatchGoesBackward,
    BatchSkipped,
    InputDiffers,
    SchemaChanged,
    SettingError,
)
from trailmark.kernel.columns import contiguous
from trailmark.log import PortRows, Segment, StreamLog
from trailmark.operators.protocol import Port
from trailmark.records import NO_BATCH, Fingerprint
from trailmark.state.table import LAST_BATCH

#: What to do where a batch is missing.
LEFT_OUT = (
    "A batch was left unevaluated, or evaluated in part (take or head in foreachBatch?), or "
    "segments were deleted. Evaluate every batch whole. Restore the segments, or start the query "
    "with a new path and a new checkpoint."
)


def select_columns(
    ports: Sequence[Port], given: pa.Table | pa.RecordBatch | PortRows, where: str
) -> PortRows:
    """The columns that the operator reads of each port, as one record batch each."""
    if not isinstance(given, PortRows):
        given = PortRows((given,))
    if len(given.tables) != len(ports):
        raise SchemaChanged(
            f"The operator has {len(ports)} inputs; rows for {len(given.tables)} were given.",
            where=where,
            fix="Give rows for every input, if only none.",
        )
    tables = tuple(map(_selected, ports, given.tables, [where] * len(ports)))
    order = given.order
    if order is None and len(ports) > 1:
        order = np.repeat(np.arange(len(ports), dtype=np.uint8), [t.num_rows for t in tables])
    return PortRows(tables, order)


def _selected(port: Port, rows: pa.Table | pa.RecordBatch, where: str) -> pa.RecordBatch:
    for field in port.schema:
        at = rows.schema.get_field_index(field.name)
        found = rows.schema.field(at).type if at >= 0 else None
        if found != field.type:
            raise SchemaChanged(
                f"Column {field.name!r} is {found or 'missing'}; the operator was made for "
                f"{field.type}.",
                where=where,
                fix="Cast the column, or start the query on a new path.",
            )
    return contiguous(rows.select(port.schema.names))


def check_same_input(segment: Segment, digest: Fingerprint) -> None:
    """A batch that is delivered again has the same rows, in whatever order."""
    logged, batch = segment.footer.fingerprint, segment.batch
    if logged == digest:
        return
    fix = (
        "The query's checkpoint was deleted or rolled back, or another query uses this path. "
        "Restore the checkpoint, or start with a new path and a new checkpoint."
    )
    if batch and digest.rows < logged.rows:
        fix += (
            " If the source has lost rows of the batch since then, cut it off: trailmark truncate "
            f"--to-batch {batch - 1}."
        )
    raise InputDiffers(
        f"Batch {batch} is in the log with other rows ({logged.rows:,} then, {digest.rows:,} now).",
        where=segment.origin.path,
        fix=fix,
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
            fix=LEFT_OUT,
        )


def bucket_before(bucket: int, buckets: int) -> int:
    """The bucket that a bucket checks to have the batch before its own: around the circle, so that
    whichever is left out, another one looks at it.

    Spark evaluates partitions from the first on until it has enough rows (``take``, ``head``). So
    it always begins with the bucket that looks at the last, and a batch that was evaluated in part
    is noticed in the next one. If others are left out, it takes as many batches as there are
    buckets, at most: only those go on whose neighbour has the batch before.
    """
    return (bucket - 1) % buckets


def check_evaluated(output: StreamLog, batch: int) -> None:
    """The batch before this one was evaluated in another bucket, too."""
    reader = output.reader
    # A file that a trim has left over is as good: the bucket had the batch.
    if reader.storage.exists(reader.segment_path(batch - 1)) or output.newest() >= batch - 1:
        return
    bucket = output.identity.bucket
    raise BatchSkipped(
        f"Batch {batch} cannot be taken in: bucket {bucket} has not taken batch {batch - 1}, whose "
        "rows would be lost.",
        where=output.directory,
        fix=LEFT_OUT,
    )


def goes_backward(batch: int, why: str, where: str) -> BatchGoesBackward:
    return BatchGoesBackward(
        f"Batch {batch} cannot be taken in again: {why}.",
        where=where,
        fix="The query's checkpoint was deleted or rolled back. Restore it, or start with a new "
        "path and a new checkpoint.",
    )
