"""A picture of an operator from its files alone, beside a running query and without disturbing it.

What it promises: nothing is created, changed, deleted or locked, and whatever is published, merged
or trimmed while it looks is no error. `read` makes the picture, `picture` holds it, `verify` reads
every byte of the logs, and `ReadOnly` is the storage through which all of them look.

What it leaves to others: how a picture is shown (:mod:`trailmark.cli`), and changing anything
(:mod:`trailmark.upkeep`).
"""

from trailmark.inspection.picture import Activity, BucketStatus, LogFiles, OperatorStatus, Recovered
from trailmark.inspection.read import StatusReader, read_status
from trailmark.inspection.read_only import ReadOnly
from trailmark.inspection.readers import ReaderStatus, read_readers

__all__ = [
    "Activity",
    "BucketStatus",
    "LogFiles",
    "OperatorStatus",
    "ReadOnly",
    "ReaderStatus",
    "Recovered",
    "StatusReader",
    "read_readers",
    "read_status",
]
