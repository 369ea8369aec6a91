"""How many requests a query makes of its storage, from the number of buckets alone.

A batch of every bucket is a task, and each does the same. What comes only now and then (trims,
merges) comes with the batches of a cycle. All of this is a query in its stride: its logs are as
long as they stay, and no task has failed. `tests/unit/bench/test_scaling.py` compares every number
here with what a storage has counted, batch by batch.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import ceil

from bench.scaling.counting import Request

Requests = Counter[Request]

#: Batches after which a bucket's logs are trimmed, and those that are kept for good are merged;
#: and after which marks of commits and watermarks are removed.
TRIM_EVERY, MERGE_EVERY, FORGET_EVERY = 16, 256, 64
#: Batches after which everything comes again.
CYCLE = MERGE_EVERY

#: Entries that a store lists with one request.
PAGE = 1_000
#: Looks of an idle query at its newest batch, in a second; two requests each.
_LOOKS_PER_SECOND = 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What the requests of a query depend on.

    Parameters
    ----------
    buckets
        Tasks of a batch.
    has_event_time
        Whether there is a watermark: all buckets agree on it, and the driver looks whether one is
        due.
    keeps_all
        Whether results stay for good (``retain_batches=None``) and are merged.
    racing
        Tasks that begin a batch at the same time, so that each of them finds no watermark and works
        it out: from 1, which is the least, up to the cores that the query has.
    """

    buckets: int
    has_event_time: bool = False
    keeps_all: bool = False
    racing: int = 1


def of_task(shape: Shape) -> Requests:
    """Of the task of one bucket, in any batch."""
    # Not rolled back; the batch is in neither log, the one before in both; two segments are in
    # time. Without a watermark, that the neighbour has done the batch before.
    looks_at_neighbour = shape.buckets > 1 and not shape.has_event_time
    return Counter(
        {
            Request.HEAD: 7 + looks_at_neighbour,
            # The description; the footers of the batch before. The watermark.
            Request.GET: 3 + shape.has_event_time,
            Request.LIST: 2,
            Request.PUT: 2,
        }
    )


def in_turn(shape: Shape) -> int:
    """Requests that a task waits for one after another; the input is put beside them."""
    return of_task(shape).total() - 2


def of_watermark(shape: Shape) -> Requests:
    """Of the tasks that work out a watermark: from a footer of every bucket, each on its own."""
    if not shape.has_event_time:
        return Counter()
    # It is put and read again. Who is not the first finds another's, and compares.
    first = Counter({Request.GET: shape.buckets + 1, Request.PUT: 1})
    other = first + Counter({Request.HEAD: 1, Request.GET: 1})
    return Counter(
        {request: first[request] + (shape.racing - 1) * other[request] for request in first | other}
    )


def rounds_of_footers(shape: Shape) -> int:
    """How often whoever reads a footer of every bucket waits: sixteen are read at the same time."""
    return shape.buckets if shape.buckets <= 4 else ceil(shape.buckets / 16)


def of_trim(shape: Shape) -> Requests:
    """Of a bucket whose logs are trimmed: of every file that goes, the footer is looked at."""
    logs = 1 if shape.keeps_all else 2  # results stay
    gone = TRIM_EVERY * logs
    return Counter(
        {
            # Readers, for each log; each log twice, and the snapshots.
            Request.LIST: 3 * logs + 2,
            Request.GET: gone,
            Request.PUT: logs,
            Request.DELETE: gone + logs,
        }
    )


def of_merge() -> Requests:
    """Of a bucket whose results are merged: all of them are read, and written as one file."""
    return Counter(
        {Request.LIST: 2, Request.GET: MERGE_EVERY, Request.PUT: 1, Request.DELETE: MERGE_EVERY}
    )


def of_listener(shape: Shape) -> Requests:
    """Of `tm.listen` after a batch: a mark, and the footers of all buckets."""
    return Counter({Request.GET: 1 + shape.buckets, Request.PUT: 1})


def of_ticks(shape: Shape) -> Requests:
    """Of the driver that looks whether a watermark is due: once after every batch."""
    if not shape.has_event_time:
        return Counter()
    return Counter({Request.HEAD: 3, Request.GET: shape.buckets})


def of_forgetting() -> Requests:
    """Of whoever removes old marks, or old watermarks."""
    return Counter({Request.LIST: 1, Request.DELETE: FORGET_EVERY})


def of_batch(shape: Shape, batch: int) -> Requests:
    """Of everybody, in one batch."""
    buckets = shape.buckets
    found = _times(of_task(shape), buckets) + of_watermark(shape)
    found += of_listener(shape) + of_ticks(shape)
    if batch % TRIM_EVERY == TRIM_EVERY - 1:
        found += _times(of_trim(shape), buckets)
    if shape.keeps_all and batch % MERGE_EVERY == MERGE_EVERY - 1:
        found += _times(of_merge(), buckets)
    if batch % FORGET_EVERY == 0:
        found += of_forgetting()
        if shape.has_event_time:
            found += _times(of_forgetting(), shape.racing)
    return found


def of_cycle(shape: Shape) -> Requests:
    """Of everybody, in `CYCLE` batches."""
    found: Requests = Counter()
    for batch in range(CYCLE):
        found += of_batch(shape, batch)
    return found


def per_day(shape: Shape, batches: float) -> dict[Request, float]:
    """Of a day with so many batches."""
    cycle = of_cycle(shape)
    return {request: cycle[request] * batches / CYCLE for request in Request}


def idle_per_day(shape: Shape) -> float:
    """HEAD requests of a query that waits for a day."""
    return 86_400 * _LOOKS_PER_SECOND * 2.0 if shape.has_event_time else 0.0


def files_kept(shape: Shape, retained: int) -> int:
    """Files of an operator in its stride, which keeps so many batches of both logs; a mark each."""
    return shape.buckets * 2 * (retained + TRIM_EVERY + 1)


def pages(files: int) -> int:
    """Requests that list a directory with so many files."""
    return max(1, ceil(files / PAGE))


def _times(requests: Requests, number: int) -> Requests:
    return Counter({request: count * number for request, count in requests.items()})
