"""A bucket and its policy, batch by batch: choose footprints, keep the account, learn."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

import pyarrow as pa

from trailmark.checkpoint.account import MOST_EXCESS, Account, next_account
from trailmark.checkpoint.choose import Chosen, choose_footprints
from trailmark.checkpoint.ledger import Totals
from trailmark.checkpoint.moment import Moment
from trailmark.checkpoint.policy import Policy
from trailmark.checkpoint.standing import Standing
from trailmark.engine.losses import check_refers_to_nothing
from trailmark.engine.notes import LONGEST_PAUSE_US
from trailmark.engine.snapshots import SnapshotWriter
from trailmark.engine.state import BucketState
from trailmark.log import MonotonicClock, StreamLog
from trailmark.operators.protocol import AnyOperator, BatchInput, History, Outcome
from trailmark.records import NO_BATCH, Loss, SegmentLink
from trailmark.recovery.rehearse import LIGHTEST, rehearse_load

_log = logging.getLogger("trailmark")

#: At most one part in so many of the time goes into rehearsals.
_REHEARSAL_SHARE = 500


class Checkpoints:
    """The policy of one bucket at work."""

    def __init__(
        self,
        operator: AnyOperator,
        policy: Policy,
        bucket: int,
        output: StreamLog,
        history: History,
        snapshots: SnapshotWriter,
        now_us: MonotonicClock,
        loss: Loss = Loss.NONE,
    ) -> None:
        self.policy = policy
        self._loss = loss
        self._marks_openings = policy.marks_openings and operator.rebuilds_from_openings
        self._operator = operator
        self._bucket = bucket
        self._output = output
        self._history = history
        self._snapshots = snapshots
        self._now_us = now_us

    def prepare(self, given: BatchInput, state: BucketState) -> BatchInput:
        """The batch, with what the policy asks of the operator."""
        marks = self.policy.writes_openings or self._marks(state)
        return replace(
            given,
            footprint=given.batch if marks else NO_BATCH,
            lists_changed=self.policy.lists_changed,
        )

    def _marks(self, state: BucketState) -> bool:
        """Whether windows are rebuilt from the batches that they opened in: not those of a state
        that begins anew."""
        return self._marks_openings and not state.begins_anew

    def choose(
        self, state: BucketState, batch: int, outcome: Outcome, tuples: int
    ) -> tuple[Chosen, Totals]:
        """The footprints of a batch, and the totals at its end."""
        before = state.account
        records = before.records_total + outcome.results.num_rows
        if outcome.closed is not None:
            records += outcome.closed.num_rows
        excess = state.ledger.newest.excess
        now = Totals(records, before.inputs_total + tuples, 0, excess=excess)
        moment = Moment(
            batch,
            state.pieces,
            state.ledger,
            before,
            now,
            outcome.opened,
            outcome.changed,
            state.rates,
            self._now_us,
            state.changes() if self.policy.lists_changed else None,
        )
        gather = partial(self._operator.footprints, state.pieces)
        copies = not self._snapshots.is_busy
        chosen = choose_footprints(
            state.notes.chooser,
            moment,
            gather,
            copies=copies,
            leaves_none_bare=state.begins_anew,
        )
        chosen = self._weigh(state, chosen)
        if not chosen.choice.is_reachable and not state.notes.has_warned:
            state.notes.has_warned = True
            _log.warning("bucket %d: %s", self._bucket, chosen.choice.complaint)
        written = chosen.opened + chosen.checked
        return chosen, replace(now, records=records + written, excess=excess + chosen.excess)

    def _weigh(self, state: BucketState, chosen: Chosen) -> Chosen:
        """The same with what the operator says of its footprints; learns what one weighs."""
        excess, copied = map(self._excess_of, (chosen.footprints, chosen.copy))
        written = chosen.opened + chosen.checked
        state.rates = state.rates.after_weighing(written, excess, state.pieces.open_windows)
        return replace(chosen, excess=excess, copy_excess=copied) if excess or copied else chosen

    def _excess_of(self, footprints: pa.RecordBatch | None) -> int:
        if footprints is None:
            return 0
        excess = self._operator.weigh(footprints) - int(footprints.num_rows)
        assert 0 <= excess <= MOST_EXCESS, "no footprint is lighter than a plain record"
        return excess

    def account(
        self,
        state: BucketState,
        batch: int,
        chosen: Chosen,
        now: Totals,
        watermark: int | None,
        stands_from: int | None = None,
    ) -> Account:
        """Where the bucket stands at the end of a batch."""
        looks_back = self._operator.looks_back(state.pieces)
        check_refers_to_nothing(looks_back, self._loss)
        standing = Standing(
            state.pieces.open_windows,
            state.pieces.oldest_footprint(),
            self._marks(state),
            chosen.choice.covered,
            self._snapshots.find_stored(state.notes),
            looks_back,
            chosen.excess,
            catches_up=self._operator.group_size is None,
        )
        if state.begins_anew and self._marks_openings:
            state.pieces.forget_footprints()  # from now on the table has marks in their place
        state.begins_anew = False
        return next_account(
            state.account,
            state.ledger,
            batch,
            now,
            standing,
            state.rates,
            watermark=watermark,
            is_reachable=chosen.choice.is_reachable,
            loss=self._loss,
            stands_from=stands_from,
        )

    def learn(
        self,
        state: BucketState,
        batch: int,
        chosen: Chosen,
        results: int,
        *,
        took_us: float,
        publish_us: float,
    ) -> None:
        """What a batch took, and how much of it was for footprints: of publishing, their share of
        what was written."""
        weight = chosen.opened + chosen.checked + chosen.excess
        share = weight / max(1, weight + results)
        rates = state.rates.after_writing(weight, chosen.took_us + share * publish_us)
        now = self._now_us()
        since_last = None if state.ended_us is None else max(0.0, now - state.ended_us)
        state.rates = rates.after_batch(took_us, since_last)
        if weight >= LIGHTEST:
            self._rehearse(state, batch, now)
        state.ended_us = self._now_us()

    def _rehearse(self, state: BucketState, batch: int, now: float) -> None:
        """Learns how long loading takes, when enough time has passed to afford it."""
        after_us = state.notes.rehearse_after_us
        if after_us is not None and now < after_us:
            return
        state.rates = rehearse_load(
            self._operator, self._output, self._history, batch, state.rates, self._now_us
        )
        took_us = self._now_us() - now
        pause_us = min(_REHEARSAL_SHARE * took_us, LONGEST_PAUSE_US)
        state.notes.rehearse_after_us = now + pause_us

    def write_copy(self, state: BucketState, output: SegmentLink, chosen: Chosen) -> None:
        """Begins to write a copy of all windows, if one was taken."""
        if chosen.copy is not None:
            self._snapshots.begin(output, chosen.copy, chosen.copy_excess, state.notes)
