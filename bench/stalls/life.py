"""One failure, from before it begins until everything is replaced; or a while without any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bench.stalls.chain import NO_ROWS, SCHEMA, Chain, counting
from trailmark.log import MonotonicClock, Storage, monotonic_us
from trailmark.operators.protocol import AnyOperator
from trailmark.streams.description import open_stream
from trailmark.streams.union.ahead import Phase
from trailmark.streams.union.answering import Answering
from trailmark.streams.union.deciding import Deciding, tentative_range
from trailmark.streams.union.decision import NOTHING_YET, Decision
from trailmark.streams.union.inputs import UnionInput
from trailmark.streams.union.rows import Piece, read_stretch, stretches
from trailmark.streams.view import open_view
from trailmark.streams.writer import StreamWriter
from trailmark.testing.disk import SimulatedDisk

SECOND = 1_000_000
STREAMS = 3
_ITEMS = 20
#: Before a failure, and at most after it.
_BEFORE_S, _MOST_AFTER_S = 3, 120
#: At the beginning, and not measured: nothing is complete yet.
_BEGINNING_S = 1


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often everybody does what they do, in microseconds.

    Parameters
    ----------
    commit_us
        Writers commit so often, and say with it up to when their stream is complete.
    phases_us
        How much later than the first moment each of them begins.
    interval_us
        The slices of the union.
    look_us
        The union looks at its streams so often, at most.
    """

    commit_us: int = 100_000
    phases_us: tuple[int, ...] = (0,) * STREAMS
    interval_us: int = 100_000
    look_us: int = 50_000


USUAL = Rhythm()


@dataclass(frozen=True, slots=True)
class Stalled:
    """What came of a failure: the longest that a new tuple of the other streams waited, how many
    tuples were given out as tentative, how many results of the last operator were, and how long it
    took to replace them."""

    longest_s: float
    tentative_tuples: int
    tentative_results: int
    corrected_s: float


class Life:
    """Three streams, merged, and operators behind them.

    Parameters
    ----------
    rate
        Tuples a second, of all streams together.
    answering
        How the union answers while a stream is missing; None waits for it.
    operators
        What is behind the union, in a chain; counts in windows of a second if nothing is said.
    now_us
        The clock that tells how long things really take.
    """

    def __init__(
        self,
        rate: int,
        answering: Answering | None,
        rhythm: Rhythm = USUAL,
        operators: Sequence[AnyOperator] | None = None,
        *,
        now_us: MonotonicClock = monotonic_us,
    ) -> None:
        self._per_stream = rate // STREAMS
        self._rhythm = rhythm
        self._stopwatch = now_us
        self.now_us = 1_000 * SECOND
        self._streams = [_Stream(f"s{place}", self.now_us, self._clock) for place in range(STREAMS)]
        inputs = [UnionInput(each.name, each.name, each.storage, 0) for each in self._streams]
        self._deciding = Deciding(
            inputs,
            rhythm.interval_us,
            None,
            answering,
            now_us=lambda: float(self.now_us),
            clock=self._clock,
        )
        self._decision = NOTHING_YET
        self._chain = Chain(counting() if operators is None else operators, lambda: self._decision)
        self._commits_us = [self.now_us + phase_us for phase_us in rhythm.phases_us]
        self._longest_us = 0.0
        self._tentative = 0
        #: Of the last operator.
        self.stable_results = self.tentative_results = 0
        self._waited_us, self._waited = 0, 0

    def run(self, failure_s: float) -> Stalled:
        """The first stream is missing for so long."""
        fails_us = self.now_us + _BEFORE_S * SECOND
        heals_us = fails_us + round(failure_s * SECOND)
        corrected_us: int | None = None
        while corrected_us is None:
            assert self.now_us < heals_us + _MOST_AFTER_S * SECOND, "it never ends"
            self._commit_all(lambda place, at: place == 0 and fails_us <= at < heals_us)
            looked_us = self.now_us
            self._look(counts=self.now_us >= fails_us)
            released_us = self._decision.released_us or 0
            if released_us >= heals_us and self._decision.phase is Phase.STABLE:
                corrected_us = self.now_us
            self.now_us = max(self.now_us, looked_us + self._rhythm.look_us)
        self._chain.close()
        return Stalled(
            self._longest_us / SECOND,
            self._tentative,
            self.tentative_results,
            (corrected_us - heals_us) / SECOND,
        )

    def calm(self, seconds: float) -> float:
        """Without a failure: how many seconds a tuple has waited on average, from when it was
        there to when it was processed."""
        end_us = self.now_us + round((_BEGINNING_S + seconds) * SECOND)
        counts_us = self.now_us + _BEGINNING_S * SECOND
        while self.now_us < end_us:
            self._commit_all(lambda place, at: False)
            looked_us = self.now_us
            self._look(counts=self.now_us >= counts_us)
            self.now_us = max(self.now_us, looked_us + self._rhythm.look_us)
        self._chain.close()
        return self._waited_us / self._waited / SECOND

    def _clock(self) -> int:
        return self.now_us

    def _commit_all(self, is_missing: Callable[[int, int], bool]) -> None:
        """Every commit whose time has come."""
        for place, stream in enumerate(self._streams):
            while self._commits_us[place] <= self.now_us:
                at_us = self._commits_us[place]
                if not is_missing(place, at_us):
                    stream.commit(at_us, self._per_stream)
                self._commits_us[place] += self._rhythm.commit_us

    def _look(self, *, counts: bool) -> None:
        """A decision, and the batch that it is, in the time that these really take."""
        started = self._stopwatch()
        before, self._decision = self._decision, self._deciding.next(self._decision)
        after = self._decision
        if after == before:
            return
        stable = self._rows(self._deciding.pieces(before, after), before, after, is_stable=True)
        pieces = self._deciding.tentative_pieces(before, after)
        tentative = self._rows(pieces, before, after, is_stable=False)
        results, marked = self._chain.run(after.number, stable, tentative)
        self.stable_results += results.num_rows
        self.tentative_results += marked.num_rows
        self.now_us += round(self._stopwatch() - started)
        if counts:
            self._count(before, after, stable, tentative)

    def _count(
        self, before: Decision, after: Decision, stable: pa.RecordBatch, tentative: pa.RecordBatch
    ) -> None:
        self._tentative += tentative.num_rows
        self._waited_us += self.now_us * stable.num_rows - _sum_of_times(stable)
        self._waited += stable.num_rows
        if before.until_us is not None and after.until_us != before.until_us:
            # The first of what is new was given to its stream with the next commit.
            waited_us = self.now_us - before.until_us - self._rhythm.commit_us
            self._longest_us = max(self._longest_us, waited_us)

    def _rows(
        self, pieces: Sequence[Piece], before: Decision, after: Decision, *, is_stable: bool
    ) -> pa.RecordBatch:
        bounds = (before.released_us, after.released_us)
        first_us, end_us = bounds if is_stable else tentative_range(before, after)
        views = {place: open_view(each.storage) for place, each in enumerate(self._streams)}
        parts = [
            read_stretch(stretch, views, SCHEMA.names, "at", lambda rows, _: rows)
            for stretch in ([] if end_us is None else stretches(pieces, first_us, end_us))
        ]
        found = pa.concat_tables([SCHEMA.empty_table(), *(each for each in parts if each)])
        return found.combine_chunks().to_batches()[0] if found.num_rows else NO_ROWS


def _sum_of_times(rows: pa.RecordBatch) -> int:
    return int(np.sum(rows["at"].cast(pa.int64()).to_numpy()))


class _Stream:
    """A stream whose writer has no delay: every commit says that it is complete."""

    def __init__(self, name: str, begins_us: int, clock: Callable[[], int]) -> None:
        self.name = name
        self.storage: Storage = SimulatedDisk().storage()
        self._meta = open_stream(self.storage, SCHEMA, time_column="at")
        self._clock = clock
        self._number = 0
        self._written_us = begins_us - SECOND // 10

    def commit(self, at_us: int, rate: int) -> None:
        """All rows up to a moment, since the last commit."""
        times = np.arange(self._written_us, at_us, SECOND // rate, dtype=np.int64)
        self._written_us = at_us
        columns = [pa.array(times).cast(SCHEMA.field("at").type), pa.array(times % _ITEMS)]
        rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        writer = StreamWriter(self.storage, self._meta, clock=self._clock, delay_us=0)
        writer.commit(writer.write([rows], self.name), self.name, self._number)
        self._number += 1
        writer.send_heartbeat(self.name, at_us)
