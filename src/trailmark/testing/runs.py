"""One run over all batches, with the crashes that are planned for it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.policy import Policy
from trailmark.engine import BatchReport, Watermark
from trailmark.engine.opening import StateKeeper
from trailmark.log import PortRows
from trailmark.log.names import log_directory, segment_name
from trailmark.operators.protocol import AnyOperator, State
from trailmark.records import Stream
from trailmark.recovery import InputHistory, RecoveryReport
from trailmark.settings import SECOND
from trailmark.testing.batches import reordered
from trailmark.testing.crashes import Crash, Crashing, never_reached
from trailmark.testing.differences import Done
from trailmark.testing.disk import Crashed, SimulatedDisk
from trailmark.testing.processes import AtOnce, Processes
from trailmark.testing.query import Bound

#: As `tm.aggregate` has it, unless it is told otherwise.
_RETAINED = 100
#: The time of the first batch, by the clock: the beginning of 2026.
_FIRST_US = 1_767_225_600 * SECOND

Parts = Sequence[PortRows]


@dataclass
class Run:
    """A query on a disk of its own, in as many processes as it takes.

    Attributes
    ----------
    operations
        How many operations on the storage each batch took.
    happened
        The crashes so far.
    recoveries
        What the processes that came after them did.
    footprints
        How many the batches have left in the log.
    """

    bound: Bound
    policy: Policy
    buckets: int
    seed: int
    reorder: bool = True
    clock_step_us: int = SECOND
    operations: list[int] = field(default_factory=list)
    happened: list[Crashing] = field(default_factory=list)
    recoveries: list[RecoveryReport] = field(default_factory=list)
    footprints: int = 0

    def __post_init__(self) -> None:
        self._batch = 0
        self._rng = random.Random(self.seed)
        self._order = np.random.default_rng(self.seed)
        self._disk = SimulatedDisk()
        self._processes = Processes(
            self.bound,
            self._disk,
            self.policy,
            self.buckets,
            retain_batches=_RETAINED,
            wall=lambda: _FIRST_US + self._batch * self.clock_step_us,
            beside=AtOnce(),
        )

    def batch(self, batch: int, parts: Parts, crashes: Sequence[Crash] = ()) -> Done:
        """Runs a batch to its end, through these crashes."""
        self._batch = batch
        for crash in crashes:
            self._crash(crash, batch, parts)
            parts = self._delivered_again(batch, parts)
        before = self._disk.operations
        reports = self._processes.run(batch, parts)
        self.operations.append(self._disk.operations - before)
        self.footprints += sum(r.footprints_opened + r.footprints_checked for r in reports)
        self.recoveries += [r.recovery for r in reports if r.recovery is not None]
        return self._done(reports)

    def _crash(self, crash: Crash, batch: int, parts: Parts) -> None:
        before = self._disk.operations
        if crash.operation is None:
            first = f"{log_directory(Stream.OUTPUT, 0)}/{segment_name(batch)}"
            self._disk.stop_before_writing(first)
        else:
            self._disk.stop_after(crash.operation)
        try:
            self._processes.run(batch, parts)
        except Crashed:
            assert self._disk.stopped is not None
            self.happened.append(Crashing(crash, self._disk.stopped))
        else:
            raise never_reached(crash, self._disk.operations - before)
        self._processes.stop()
        if crash.kind == "kill":
            self._disk.kill()
        else:
            self._disk.crash(self._rng)

    def _delivered_again(self, batch: int, parts: Parts) -> Parts:
        """The rows of a batch, in another order where one has been logged: that one counts. Where
        none has, any other could give other results, and rightly so."""
        if not self.reorder:
            return parts
        logs = self._processes.logs()
        return [
            reordered(rows, self._order) if logs.input(number).contains(batch) else rows
            for number, rows in enumerate(parts)
        ]

    def _done(self, reports: Sequence[BatchReport]) -> Done:
        buckets = self._processes.open()
        return Done(
            tuple(b.operator.show(r.results) for b, r in zip(buckets, reports, strict=True)),
            tuple(r.late for r in reports),
            tuple((r.late_rows, r.late_updates, r.null_times) for r in reports),
            tuple(_content(bucket.operator, bucket.state()) for bucket in buckets),
        )

    def is_another_due(self, batch: int) -> bool:
        """Whether Spark would run one more batch without rows, because windows may close."""
        operator = self.bound.operator()
        if all(port.event_time is None for port in operator.ports):
            return False
        logs = self._processes.logs_of(operator)
        footers = [logs.output(number).read_footer(batch)[0] for number in range(self.buckets)]
        return Watermark.behind(footers, operator.ports).has_moved

    def recover(self, batch: int) -> tuple[pa.RecordBatch | None, ...]:
        """Ends the process, and gives the states that a new one finds in the logs after a batch."""
        self._processes.stop()
        return tuple(self._recovered(number, batch) for number in range(self.buckets))

    def _recovered(self, number: int, batch: int) -> pa.RecordBatch | None:
        operator = self.bound.operator()
        logs = self._processes.logs_of(operator)
        inputs = logs.input(number)
        keeper = StateKeeper(
            operator,
            logs,
            self.policy,
            inputs,
            InputHistory(inputs, operator.ports),
            logs.output(number),
            logs.snapshots(number),
            None,
            self._processes.clock,
        )
        state, recovery, _ = keeper.open(batch + 1)
        assert recovery is not None, "a batch is in the log, and no state in memory"
        self.recoveries.append(recovery)
        content = _content(operator, state.pieces)
        keeper.drop()
        return content

    def stop(self) -> None:
        self._processes.stop()


def _content(operator: AnyOperator, state: State | None) -> pa.RecordBatch | None:
    return None if state is None else operator.content(state)
