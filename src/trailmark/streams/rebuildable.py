"""Of which batches the state can still be rebuilt, as far as their footers tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from trailmark.checkpoint.account import Account
from trailmark.errors import LogError
from trailmark.inspection.logs import OperatorFiles
from trailmark.log import Origin
from trailmark.records import Foundation, Loss, Stream

#: Runs of batches that are told; of more, the newest.
_MOST_TOLD = 5


def rebuildable(files: OperatorFiles, held: range) -> list[int]:
    """The batches of a range after which a recovery of every bucket would find what it reads.

    By the accounts in their footers: where it would have to go around damage, a batch is left out.
    """
    found = set(held)
    for bucket in files.buckets:
        found.intersection_update(_rebuildable_in(files, bucket, held))
    return sorted(found)


def _rebuildable_in(files: OperatorFiles, bucket: int, held: range) -> Iterator[int]:
    output = files.log(Stream.OUTPUT, bucket)
    output_from = output.start()
    inputs, snapshots = (
        frozenset(files.log(stream, bucket).batches()) for stream in (Stream.INPUT, Stream.SNAPSHOT)
    )
    input_from = held.start
    while input_from - 1 in inputs:
        input_from -= 1
    for batch in held:
        if batch not in inputs:
            input_from = batch + 1  # what is before cannot be replayed without it
        try:
            footer, _ = output.read_footer(batch)
            account = Account.of(footer, Origin(output.reader.segment_path(batch)))
        except LogError:
            continue
        if account.foundation is Foundation.SNAPSHOT:
            can_load = account.base in snapshots
        else:
            can_load = not account.segments or account.base - account.segments + 1 >= output_from
        has_all = account.reads_from > batch
        if account.loss is Loss.NONE:  # otherwise nothing is replayed, and what it takes is lost
            has_all = has_all or account.reads_from >= input_from
        if can_load and has_all:
            yield batch


def told(batches: Sequence[int]) -> str:
    """Batches in order as people are told of them.

    Examples
    --------
    >>> told([0, 3, 4, 5, 9])
    '0, 3 to 5, 9'
    """
    ends = np.flatnonzero(np.diff(batches) > 1) + 1
    runs = [part.tolist() for part in np.split(np.asarray(batches), ends)]
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    return ", ".join(["...", *texts[-_MOST_TOLD:]] if len(texts) > _MOST_TOLD else texts)
