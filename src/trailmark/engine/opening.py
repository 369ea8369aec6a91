"""Opens the state of a bucket before a batch: the one at hand, that of a cached table, or a
recovered one."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from trailmark.checkpoint.policy import Policy
from trailmark.checkpoint.rates import Rates
from trailmark.engine.logs import OperatorLogs
from trailmark.engine.notes import BucketNotes
from trailmark.engine.numbers import RESULTS_GIVEN, given_after, results_given
from trailmark.engine.refusals import check_order
from trailmark.engine.state import BucketState
from trailmark.engine.tables import Tables
from trailmark.errors import CacheFull, CacheLost, DamagedSegment
from trailmark.log import MonotonicClock, Origin, StreamLog
from trailmark.operators.protocol import AnyOperator, History
from trailmark.records import (
    NO_BATCH,
    UNKNOWN_CHECKSUM,
    Fingerprint,
    Foundation,
    Loss,
    SegmentLink,
)
from trailmark.recovery import Lost, RecoveryReport, plan_recovery, restore
from trailmark.recovery.catching_up import CaughtUp
from trailmark.state.cache import CachedBucket, StateCache

_log = logging.getLogger("trailmark")


class Opened(NamedTuple):
    """A state, and what it took to have it: a recovery, or an older table that caught up, or
    neither."""

    state: BucketState
    recovery: RecoveryReport | None = None
    caught_up: CaughtUp | None = None


class StateKeeper:
    """Holds the state of one bucket for this process, as long as it is known to be whole."""

    def __init__(
        self,
        operator: AnyOperator,
        logs: OperatorLogs,
        policy: Policy,
        inputs: StreamLog,
        history: History,
        output: StreamLog,
        snapshots: StreamLog,
        cache: StateCache | None,
        now_us: MonotonicClock,
        loss: Loss = Loss.NONE,
    ) -> None:
        self.state: BucketState | None = None
        self._policy = policy
        self._loss = loss
        self._snapshots = snapshots
        self._operator = operator
        self._logs = logs
        self._inputs = inputs
        self._history = history
        self._output = output
        self._now_us = now_us
        self._bucket = output.identity.bucket
        self._tables = Tables(operator, logs, policy, inputs, history, output, cache, now_us, loss)

    def after(self, batch: int) -> BucketState | None:
        """The state after a batch, if it is at hand."""
        return self.state if self.state is not None and self.state.batch == batch else None

    def open(self, batch: int) -> Opened:
        """State at the end of the batch before."""
        started = self._now_us()
        at_hand = self.after(batch - 1)
        if at_hand is not None:
            return Opened(at_hand)
        self.drop()
        found = self._tables.find(batch - 1, started)
        if found.state is not None:
            self.state = found.state
            if found.caught_up is not None:
                self._clear_away()
            return Opened(self.state, caught_up=found.caught_up)
        self.state = self._empty_state(found.cached)
        self.state.notes = BucketNotes(self._policy.begin())
        newest = self._output.newest()
        if newest == NO_BATCH and batch == self._logs.first_batch:
            return Opened(self.state)
        check_order(batch, newest, self._logs.first_batch, self._output.directory)
        self._clear_away()
        return Opened(self.state, self._recover(self.state, batch - 1, found.why, started))

    def prepare(self, batch: int) -> bool:
        """Leaves the state at the end of a batch in the cache, for who works here next; tells
        whether it is there. Nothing is written but the table."""
        started = self._now_us()
        found = self._tables.find(batch, started, writes=False)
        self.state = found.state
        try:
            if self.state is None:
                if found.cached is None:
                    return False  # in use, or there is no room
                self.state = self._empty_state(found.cached)
                self._recover(self.state, batch, found.why, started)
            elif found.caught_up is None:
                return True
            if self.state.begins_anew:
                return False  # who goes on from there has to know
            self.state.end_change(self._operator, self._logs.log_id, self._bucket, is_noted=False)
            return True
        except CacheFull:
            self.drop(is_full=True)
            raise
        finally:
            self.drop()

    def _clear_away(self) -> None:
        """After a crash or a move: files of dead writers, tables nobody uses."""
        for log in (self._inputs, self._output, self._snapshots):
            self._logs.storage.clean(log.directory)
        self._tables.sweep()

    def drop(self, *, is_full: bool = False) -> None:
        """Lets the state go; with ``is_full``, for everybody: there was no room for it."""
        if self.state is None:
            return
        if is_full and self.state.cached is not None:
            self._tables.give_up(self.state.cached)
        self.state.close()
        self.state = None

    def move(self, error: CacheFull | CacheLost) -> None:
        """From now on the bucket keeps its state elsewhere."""
        self._tables.move(error)

    def _empty_state(self, cached: CachedBucket | None) -> BucketState:
        try:
            first = self._logs.first_batch
            return BucketState.empty(self._operator, self._history, cached, first)
        except BaseException as error:
            if cached is not None:
                self._tables.give_up(cached) if isinstance(error, CacheFull) else cached.clear()
                cached.close()
            raise

    def _recover(self, state: BucketState, target: int, why: str, started: float) -> RecoveryReport:
        opened = self._now_us()
        first = self._logs.first_batch
        plan = plan_recovery(
            self._operator,
            self._output,
            self._inputs,
            self._snapshots,
            target,
            first,
            self._loss,
        )
        planned = self._now_us()
        is_built_on_openings = plan.foundation is Foundation.NOTHING and not plan.skipped
        marks = self._policy.marks_openings and self._operator.rebuilds_from_openings
        restored = restore(
            plan,
            self._operator,
            state.pieces,
            state.ledger,
            self._output,
            self._inputs,
            first,
            self._now_us,
            marks_openings=marks and is_built_on_openings,
        )
        if marks and not is_built_on_openings:
            state.pieces.forget_footprints()
        if plan.lost is not None or plan.skipped:
            # What damage was gone around with was kept for one time.
            state.begin_anew()
        if plan.lost is not None:
            self._tell(plan.lost, target)
        state.batch = target
        state.account = restored.account
        state.output, logged = self._newest_output(target)
        if state.results is not None:
            state.results = self._results(state.results, target, restored.results)
        _, checksum = self._inputs.read_footer(target)
        state.inputs = SegmentLink(target, checksum)
        plan_us = int(planned - opened)
        # What is neither finding, loading nor replaying took as long as opening does.
        load_us, replay_us = restored.load_us, restored.replay_us
        open_us = int(self._now_us() - started) - plan_us - load_us - replay_us
        expected = Rates.from_attributes(logged.get("rates"))
        state.rates = expected.after_recovery(plan.work, open_us, plan_us + load_us, replay_us)
        found = logged.get("predicted_us")
        predicted_us = found if isinstance(found, int) else 0
        return RecoveryReport(why, plan, open_us, plan_us, load_us, replay_us, predicted_us)

    def _tell(self, lost: Lost, target: int) -> None:
        if not lost.is_nothing:
            _log.warning(
                "bucket %d recovered to the end of batch %d with loss: %s",
                self._bucket,
                target,
                lost,
            )

    def _results(
        self, given: Fingerprint, target: int, anew: Mapping[int, pa.RecordBatch]
    ) -> Fingerprint:
        """What the bucket has given: by the newest footer that can be read, and by what the batches
        since gave when they were processed anew; before all of them, ``given``."""
        since: list[int] = []
        for batch in range(target, self._logs.first_batch - 1, -1):
            try:
                footer, _ = self._output.read_footer(batch)
            except DamagedSegment:
                since.append(batch)
                continue
            origin = Origin(self._output.reader.segment_path(batch))
            found = results_given(footer, origin)
            if found is None:
                raise origin.mismatch(0, f"{RESULTS_GIVEN!r} is missing")
            given = found
            break
        for batch in reversed(since):
            given = given_after(given, anew[batch])
        return given

    def _newest_output(self, batch: int) -> tuple[SegmentLink, Mapping[str, Any]]:
        """Link and attributes of the newest output; no attributes if it is damaged."""
        try:
            footer, checksum = self._output.read_footer(batch)
        except DamagedSegment:
            return SegmentLink(batch, UNKNOWN_CHECKSUM), {}
        return SegmentLink(batch, checksum), footer.attributes
