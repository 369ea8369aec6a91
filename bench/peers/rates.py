"""Rows per second from what a job has said, without the start of its engine."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from bench.peers.run import Event

#: What an engine without batches reads before it is at its speed: a part of all rows.
WARM_UP_SHARE = 0.25


def rows_per_s(events: Sequence[Event], rows: int, warm_up: int) -> float:
    """Of batches, the median of those after the first ``warm_up``. Of an engine without batches,
    from the first that it told of its progress after a quarter of all ``rows`` to the last before
    all were read."""
    told = [event for event in events if event.event == "progress"]
    batches = [event for event in told if event.batch_s]
    if batches:
        return median(event.batch_rows / event.batch_s for event in batches[warm_up:])
    inside = [event for event in told if rows * WARM_UP_SHARE <= event.rows < rows]
    steps = [step for step in pairwise(inside) if step[1].rows > step[0].rows]
    if steps:
        first, last = steps[0][0], steps[-1][1]
    else:
        # It was done before it told twice: from the moment it was up to its last word.
        first, last = events[0], events[-1]
    return (last.rows - first.rows) / (last.at - first.at)
