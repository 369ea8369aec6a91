"""Recoveries of an operator with much state, on the engine alone: stop, start, and look."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from bench.figures import Figure, Report
from trailmark.engine import BatchReport, Bucket

ROUNDS = 5
#: Batches between two recoveries.
_BETWEEN = 3

#: Runs a batch of all buckets, with as many tuples as there are, or with few.
RunBatch = Callable[[list[Bucket], int, bool], list[BatchReport]]


def measure_recoveries(
    report: Report,
    what: str,
    limit_s: float,
    opened: Callable[[], list[Bucket]],
    run: RunBatch,
    buckets: list[Bucket],
    batch: int,
) -> None:
    """Stops and starts the buckets again and again; each start recovers their state."""
    longest, shares = 0.0, []
    for _ in range(ROUNDS):
        for _ in range(_BETWEEN):
            batch += 1
            run(buckets, batch, False)
        for bucket in buckets:
            bucket.close()
        buckets, batch = opened(), batch + 1
        for each in run(buckets, batch, True):
            found = each.recovery
            assert found is not None, "the state was only in memory"
            took = found.open_us + found.plan_us + found.load_us + found.replay_us
            longest = max(longest, took / 1e6)
            shares.append(took / max(1, found.predicted_us))
    for bucket in buckets:
        bucket.close()
    report.add(Figure(f"longest of {len(shares)} recoveries, {what}", longest, "s", limit_s))
    report.add(Figure("  took / predicted, median", median(shares), "x"))
