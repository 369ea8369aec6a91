"""``refused.json``: what stopped a query last, left by the task that it happened in.

Spark shows an error of a task below its own, in a text of a hundred lines. Whoever looks at the
logs finds it here, on one line. The file is not removed: a bucket that has written a batch since
has got over it.
"""

from __future__ import annotations

import logging

from trailmark.errors import StorageError, TrailmarkError
from trailmark.log import Clock, Storage, json_text, wall_clock_us
from trailmark.values import dataclass

REFUSED = "refused.json"

_log = logging.getLogger("trailmark")


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that stopped a task.

    Attributes
    ----------
    query_id, batch, bucket
        Which query, and what the task was to do; no bucket if it had not found out.
    text
        The error, on one line.
    at_us
        When it happened.
    """

    query_id: str
    batch: int
    bucket: int | None
    text: str
    at_us: int


def leave_refusal(
    storage: Storage,
    error: TrailmarkError,
    query_id: str,
    batch: int,
    bucket: int | None,
    clock: Clock = wall_clock_us,
) -> None:
    """Leaves a note of an error. It is only a note: that it cannot be left is no error, and where
    the storage is what fails, it is not even tried."""
    if isinstance(error, StorageError):
        return
    body = {
        "at_us": clock(),
        "batch": batch,
        "bucket": bucket,
        "query_id": query_id,
        "text": error.line,
    }
    try:
        storage.replace(REFUSED, [json_text.dump_guarded(body, "refusal")])
    except TrailmarkError as failure:
        _log.debug("%s cannot be written: %s", REFUSED, failure.line)


def read_refusal(storage: Storage) -> Refusal | None:
    """The last refusal; None if there was none, or if it cannot be read."""
    try:
        body = json_text.load_guarded(storage.read(REFUSED))
    except FileNotFoundError:
        return None
    try:
        return None if body is None else Refusal(**body)
    except TypeError:  # of another version
        return None
