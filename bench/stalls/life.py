"""One failure, from before it begins until everything is replaced."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import trailmark as tm
from trailmark.checkpoint.policy import Continuous
from trailmark.engine import Bucket, OperatorLogs
from trailmark.engine.tentative import InputsTold, Upstream
from trailmark.log import PortRows, Storage
from trailmark.operators.aggregate import Aggregate
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

_SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.int64())])
_SECOND = 1_000_000
_ITEMS = 20
#: Writers commit, and the union looks, so often.
_COMMIT_US, _LOOK_US = 100_000, 50_000
_INTERVAL_US = 100_000
#: Before a failure, and at most after it.
_BEFORE_S, _MOST_AFTER_S = 3, 120


@dataclass(frozen=True, slots=True)
class Stalled:
    """What came of a failure: the longest that a new tuple of the other streams waited, how many
    tuples were given out as tentative, and how long it took to replace them."""

    longest_s: float
    tentative_tuples: int
    corrected_s: float


class Life:
    """Three streams, one of which is missing for a while.

    Parameters
    ----------
    rate
        Tuples a second, of all streams together.
    """

    def __init__(self, rate: int, answering: Answering) -> None:
        self._per_stream = rate // 3
        self.now_us = 1_000 * _SECOND
        self._streams = [_Stream(f"s{place}", self) for place in range(3)]
        inputs = [UnionInput(each.name, each.name, each.storage, 0) for each in self._streams]
        self._deciding = Deciding(
            inputs,
            _INTERVAL_US,
            None,
            answering,
            now_us=lambda: float(self.now_us),
            clock=lambda: self.now_us,
        )
        self._decision = NOTHING_YET
        operator = Aggregate(
            _SCHEMA, by=["item"], window=tm.time_window("at", "1 second"), values={"n": tm.count()}
        )
        logs = OperatorLogs(SimulatedDisk().storage(), operator, buckets=1, told=self._told)
        policy = Continuous.within("1 second")
        self._bucket = Bucket(operator, logs, 0, policy, retain_batches=64)
        self._longest_us = 0.0
        self._tentative = 0

    def run(self, failure_s: float) -> Stalled:
        begin_us = self.now_us
        fails_us = begin_us + _BEFORE_S * _SECOND
        heals_us = fails_us + round(failure_s * _SECOND)
        corrected_us: int | None = None
        commits_us = begin_us
        while corrected_us is None:
            assert self.now_us < heals_us + _MOST_AFTER_S * _SECOND, "it never ends"
            while commits_us <= self.now_us:
                for place, stream in enumerate(self._streams):
                    if place or not fails_us <= commits_us < heals_us:
                        stream.commit(commits_us, self._per_stream)
                commits_us += _COMMIT_US
            looked_us = self.now_us
            self._look(counts=self.now_us >= fails_us)
            released_us = self._decision.released_us or 0
            if released_us >= heals_us and self._decision.phase is Phase.STABLE:
                corrected_us = self.now_us
            self.now_us = max(self.now_us, looked_us + _LOOK_US)
        self._bucket.close()
        return Stalled(
            self._longest_us / _SECOND, self._tentative, (corrected_us - heals_us) / _SECOND
        )

    def _told(self) -> InputsTold:
        decision = self._decision
        since = None if decision.ahead is None else decision.ahead.since
        union = Upstream(decision.number, since, decision.phase.value)
        return InputsTold([decision.released_us], [decision.until_us], (union,))

    def _look(self, *, counts: bool) -> None:
        """A decision, and the batch that it is, in the time that these really take."""
        started = time.perf_counter()
        before, self._decision = self._decision, self._deciding.next(self._decision)
        after = self._decision
        if after == before:
            return
        stable = self._rows(self._deciding.pieces(before, after), before, after, is_stable=True)
        pieces = self._deciding.tentative_pieces(before, after)
        tentative = self._rows(pieces, before, after, is_stable=False)
        self._bucket.run(after.number, PortRows((stable,)), PortRows((tentative,)))
        self.now_us += round((time.perf_counter() - started) * _SECOND)
        if counts:
            self._tentative += tentative.num_rows
            if before.until_us is not None and after.until_us != before.until_us:
                # The first of what is new was given to its stream with the next commit.
                self._longest_us = max(self._longest_us, self.now_us - before.until_us - _COMMIT_US)

    def _rows(
        self, pieces: Sequence[Piece], before: Decision, after: Decision, *, is_stable: bool
    ) -> pa.RecordBatch:
        bounds = (before.released_us, after.released_us)
        first_us, end_us = bounds if is_stable else tentative_range(before, after)
        views = {place: open_view(each.storage) for place, each in enumerate(self._streams)}
        parts = [
            read_stretch(stretch, views, _SCHEMA.names, "at", lambda rows, _: rows)
            for stretch in ([] if end_us is None else stretches(pieces, first_us, end_us))
        ]
        found = pa.concat_tables([_SCHEMA.empty_table(), *(each for each in parts if each)])
        return found.combine_chunks().to_batches()[0] if found.num_rows else _NO_ROWS


_NO_ROWS = pa.RecordBatch.from_pylist([], schema=_SCHEMA)


class _Stream:
    """A stream whose writer has no delay: every commit says that it is complete."""

    def __init__(self, name: str, life: Life) -> None:
        self.name = name
        self.storage: Storage = SimulatedDisk().storage()
        self._meta = open_stream(self.storage, _SCHEMA, time_column="at")
        self._life = life
        self._number = 0
        self._written_us = life.now_us - _COMMIT_US

    def commit(self, at_us: int, rate: int) -> None:
        """All rows up to a moment, since the last commit."""
        times = np.arange(self._written_us, at_us, _SECOND // rate, dtype=np.int64)
        self._written_us = at_us
        columns = [pa.array(times).cast(_SCHEMA.field("at").type), pa.array(times % _ITEMS)]
        rows = pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
        writer = StreamWriter(self.storage, self._meta, clock=lambda: self._life.now_us, delay_us=0)
        writer.commit(writer.write([rows], self.name), self.name, self._number)
        self._number += 1
        writer.send_heartbeat(self.name, at_us)
