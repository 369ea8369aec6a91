"""Small logs with known content."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pyarrow as pa

from trailmark.log import Footer, LogIdentity, Published, Storage, StreamLog, TimeRange
from trailmark.records import START_OF_LOG, Fingerprint, FrameKind, SegmentLink, Stream
from trailmark.settings import LogSettings

LOG_ID = uuid.UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
OTHER_ID = uuid.UUID("6ba7b811-9dad-11d1-80b4-00c04fd430c8")
IDENTITY = LogIdentity(Stream.INPUT, LOG_ID, 3)

SECOND = 1_000_000


def ticking_clock(start_us: int = 1_700_000_000 * SECOND) -> Callable[[], int]:
    """One second later every time it is asked."""
    now_us = start_us

    def tick() -> int:
        nonlocal now_us
        now_us += SECOND
        return now_us

    return tick


def rows_of(batch: int, count: int = 3) -> pa.Table:
    """The rows that every test expects in a batch."""
    return pa.table(
        {
            "item": pa.array([batch * 10 + i for i in range(count)], pa.int32()),
            "price": pa.array([(batch + i) % 7 for i in range(count)], pa.int32()),
        }
    )


def open_log(
    storage: Storage,
    *,
    stream: Stream = Stream.INPUT,
    log_id: uuid.UUID = LOG_ID,
    bucket: int = 3,
    settings: LogSettings | None = None,
) -> StreamLog:
    return StreamLog(storage, stream, log_id, bucket, settings, ticking_clock())


def append(log: StreamLog, batch: int, previous: SegmentLink, count: int = 3) -> Published:
    """Append the rows of a batch, with event times of ten seconds per batch."""
    return log.append(
        batch,
        [(FrameKind.INPUT, rows_of(batch, count))],
        previous=previous,
        fingerprint=Fingerprint(count, 2**127 + batch),
        time_range=TimeRange(batch * 10 * SECOND, (batch * 10 + 9) * SECOND),
        attributes={"N": batch},
    )


def fill(log: StreamLog, batches: int, first: int = 0) -> list[SegmentLink]:
    """Append batches one after another from an empty log on; their links."""
    links: list[SegmentLink] = []
    for batch in range(first, first + batches):
        links.append(append(log, batch, links[-1] if links else START_OF_LOG).link)
    return links


def footer_of(batch: int = 7, previous: SegmentLink = START_OF_LOG) -> Footer:
    return Footer(
        IDENTITY,
        batch,
        previous,
        Fingerprint(3, 2**127 + 5),
        written_us=1_700_000_000 * SECOND,
        time_range=TimeRange(-5, 2**62),
        attributes={"N": 12, "large": 2**127 + 1, "text": "größer", "nested": {"a": [1, None]}},
    )
