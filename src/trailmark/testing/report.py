"""What a test has done, for whoever asks."""

from __future__ import annotations

import pyarrow as pa

from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class Report:
    """What :func:`run` returns, when nothing differed.

    Attributes
    ----------
    batches
        Results of each batch, as Spark would see them. Where event time decides, there may be one
        more batch than was given: without rows, it closes the windows that have ended.
    tuples
        How many there were in all batches.
    operations
        Operations on the storage that a run without a crash takes: as many places to crash.
    runs
        How often all batches were run with a crash.
    crashes, recoveries
        How many there were in these runs; every run ends with a recovery in each bucket.
    tuples_replayed
        By all these recoveries.
    footprints
        How many a run without a crash writes.
    seed
        Makes the same test again.
    """

    batches: tuple[pa.Table, ...]
    tuples: int
    operations: int
    runs: int
    crashes: int
    recoveries: int
    tuples_replayed: int
    footprints: int
    seed: int

    @property
    def results(self) -> pa.Table:
        """The results of all batches, one after another."""
        return pa.concat_tables(self.batches)

    def __str__(self) -> str:
        done = (
            f"{_many(len(self.batches), 'batch')} with {_many(self.tuples, 'tuple')} gave "
            f"{_many(self.results.num_rows, 'result')} and {_many(self.footprints, 'footprint')}, "
            f"in {_many(self.operations, 'operation')} on the storage."
        )
        if not self.runs:
            return f"{done}\nNothing was made to crash."
        return (
            f"{done}\n{_many(self.crashes, 'crash')} in {_many(self.runs, 'run')}, "
            f"{_many(self.recoveries, 'recovery')} that replayed "
            f"{_many(self.tuples_replayed, 'tuple')}: every result and every state is the same "
            f"(seed {self.seed})."
        )


def _many(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}{'es' if noun.endswith(('ch', 'sh')) else 's'}"
