"""The footers of a batch, one of every bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from trailmark.log import Footer, StreamLog

#: Footers that are read at the same time; from an object store each takes a round trip.
_READS_AT_ONCE = 16
#: So few are read sooner from a disk than threads are started for them.
_FEW = 4


def footer_of(log: StreamLog, batch: int) -> Footer:
    """The footer of one bucket."""
    return log.read_footer(batch)[0]


def read_footers(
    logs: Sequence[StreamLog], batch: int, read: Callable[[StreamLog, int], Footer] = footer_of
) -> list[Footer]:
    """The footers of all logs; what ``read`` raises for the first of them, where it cannot."""
    if len(logs) <= _FEW:
        return [read(log, batch) for log in logs]
    with ThreadPoolExecutor(min(_READS_AT_ONCE, len(logs))) as pool:
        return list(pool.map(lambda log: read(log, batch), logs))
