"""Replicas that answer while some of their input is missing, and what each of them has given.

A script stands in for the union of each: in some batches it releases slices for good, in others
only some of their rows, as tentative ones; then it replaces these in parts, or at once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tests.support.engine import by_port
from tests.support.replicas import Replica, Told
from tests.support.replicas_of_seconds import SECOND, sliced_seconds
from trailmark.engine import BatchReport
from trailmark.engine.commits import mark_committed
from trailmark.engine.tentative import InputsTold, Upstream
from trailmark.kernel.columns import contiguous
from trailmark.kernel.fingerprints import row_digests
from trailmark.log import PortRows
from trailmark.operators.kinds import form_of
from trailmark.operators.protocol import AnyOperator

Row = int


@dataclass
class _ToldAhead(Told):
    """The same union, which is ahead of what stands."""

    upstream: Upstream = field(default_factory=lambda: Upstream(0, None, "STABLE"))
    ahead_us: int = 0

    def _inputs(self, operator: AnyOperator) -> InputsTold:
        told = super()._inputs(operator)
        (port, *others) = operator.ports
        ahead = None
        if port.event_time is not None:
            ahead = self.ahead_us - int(port.late_at_watermark)
        return InputsTold(told.boundaries, [ahead, *(None for _ in others)], (self.upstream,))


@dataclass(frozen=True)
class Given:
    """What a replica had given at the end of a batch.

    Parameters
    ----------
    results
        How many results stand, by bucket.
    since
        The first batch whose tentative results stand; None if nothing is tentative.
    complete_us
        The time up to which results that stand are complete.
    after_us
        Tentative results of the batch go by later rows than those up to this time; None where that
        is not known.
    tentative
        The tentative results of the batch.
    """

    results: tuple[int, ...]
    since: int | None
    complete_us: int
    after_us: int | None
    tentative: Counter[Row]


@dataclass
class FailingReplica(Replica):
    """One whose input fails, is corrected, and fails again; in the end everything stands.

    Attributes
    ----------
    record
        What it had given, batch by batch.
    """

    processes = _ToldAhead
    record: list[Given] = field(default_factory=list)

    @property
    def log(self) -> str:
        return str(self.query.logs().meta.log_id)

    def steps(self) -> Iterator[int]:
        for batch, (end, before, ahead, since) in enumerate(self._script()):
            query = self.query
            assert isinstance(query, _ToldAhead)
            query.boundary_us, query.ahead_us = end, ahead
            query.upstream = Upstream(batch, since, "STABLE" if since is None else "UP_FAILURE")
            released = self.sliced.first_us if batch == 0 else self.record[-1].complete_us
            parts = self.sliced.case.split(self._rows(released, end), self.buckets)
            self._tentative: list[PortRows | None] = [None] * self.buckets
            if since is not None:
                rows = self._some(self._rows(before, ahead))
                split = self.sliced.case.split(rows, self.buckets)
                self._tentative = [by_port(each) for each in split]
            reports = self._run(batch, parts)
            for number, report in enumerate(reports):
                self._judge(number, batch, report, end)
            after = None if batch == 0 else released if since == batch else before
            self.record.append(
                Given(
                    tuple(each.rows for each in self.given),
                    since,
                    end,
                    after,
                    Counter(row for report in reports for row in self._shown(report)),
                )
            )
            mark_committed(self.query.disk.storage(), batch, "a run")
            if self.rng.random() < 0.2:
                self.query.stop()
            yield batch
        self.query.stop()

    def _carry_out(self, batch: int, parts: Sequence[Any]) -> list[BatchReport]:
        return [
            bucket.run(batch, rows, tentative)
            for bucket, rows, tentative in zip(
                self.query.open(), parts, self._tentative, strict=True
            )
        ]

    def _script(self) -> Iterator[tuple[int, int, int, int | None]]:
        """Of each batch up to where slices are released for good, from where to where for now, and
        since which batch that stands."""
        rng, last = self.rng, int(self.sliced.times[-1])
        at_once, in_parts = rng.choice(((0.15, 0.3), (0.04, 0.04)))
        end = ahead = self.sliced.first_us
        reached: list[int] = []
        since: int | None = None
        while end <= last or since is not None or rng.random() < 0.5:
            batch, before, dice = len(reached), ahead, rng.random()
            ahead += self.sliced.slice_us * rng.choice((0, 1, 2, 5))
            if since is None and dice < 0.35 and end <= last:
                since = batch
            elif since is None or dice < at_once:
                end, since = ahead, None
            elif dice < at_once + in_parts:  # in part: up to where a batch had come
                first = rng.randint(since, batch)
                end = reached[first - 1] if first > since else end
                since = first
            yield end, before, ahead, since
            reached.append(ahead)

    def _some(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """What there is while some is missing."""
        kept = [place for place in range(rows.num_rows) if self.rng.random() < 0.7]
        return rows.take(pa.array(np.array(kept, dtype=np.int64)))

    def _shown(self, report: BatchReport) -> list[Row]:
        return [] if report.tentative is None else digests(report.tentative)

    def _as_read(self, results: pa.RecordBatch) -> pa.RecordBatch:
        shown = form_of(self.query.logs().meta).shown(pa.Table.from_batches([results]))
        return contiguous(shown)

    # What a reader has

    def shown_results(self, bucket: int) -> list[pa.RecordBatch]:
        """All results of a bucket that stand."""
        return list(map(self._as_read, self.results[bucket]))

    def standing(self, end: int, after_us: int | None = None, *, is_behind: bool) -> Counter[Row]:
        """The tentative results that stand before a batch. Whoever has come further has only the
        last of them: those that go by rows after the time up to which his are complete."""
        since, found = self.record[end - 1].since, Counter[Row]()
        for each in reversed(self.record[end if since is None else since : end]):
            if is_behind and (
                after_us is None or each.after_us is None or each.after_us < after_us
            ):
                break
            found += each.tentative
        return found


#: Up to which second slices are released for good, from and up to which for now, and since which
#: batch that stands.
ScriptStep = tuple[int, int, int, int | None]


@dataclass
class _Scripted(FailingReplica):
    script: Sequence[ScriptStep] = ()

    def _script(self) -> Iterator[ScriptStep]:
        for end, before, ahead, since in self.script:
            yield end * SECOND, before * SECOND, ahead * SECOND, since


def ready_replica(
    script: Sequence[ScriptStep], batches: int, seed: int = 0
) -> tuple[FailingReplica, Iterator[int]]:
    """One that counts rows by seconds and has done so many batches of a script; and what takes it
    further."""
    sliced = sliced_seconds(0, 100)
    found = _Scripted(sliced, 1, random.Random(seed), 0.0, script=script)
    steps = found.steps()
    for _ in range(batches):
        next(steps)
    return found, steps


def digests(rows: pa.RecordBatch) -> list[Row]:
    """Rows, told apart by what is in them. The engine has the bounds of windows side by side,
    readers as one column."""
    flat = contiguous(pa.Table.from_batches([rows]).flatten())
    found: list[Row] = row_digests(flat).tolist()
    return found
