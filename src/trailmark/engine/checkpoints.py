"""A bucket and its policy, batch by batch: choose footprints, keep the account, learn."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial

from trailmark.checkpoint.account import Account, Standing, next_account
from trailmark.checkpoint.choose import Chosen, choose_footprints
from trailmark.checkpoint.ledger import Totals
from trailmark.checkpoint.moment import Moment
from trailmark.checkpoint.policy import Policy
from trailmark.engine.notes import LONGEST_PAUSE_US
from trailmark.engine.snapshots import SnapshotWriter
from trailmark.engine.state import BucketState
from trailmark.log import MonotonicClock, StreamLog
from trailmark.operators.protocol import AnyOperator, BatchInput, History, Outcome
from trailmark.records import NO_BATCH, SegmentLink
from trailmark.recovery.rehearse import FEWEST, rehearse_load

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
    ) -> None:
        self.policy = policy
        self._marks_openings = policy.marks_openings and operator.rebuilds_from_openings
        self._operator = operator
        self._bucket = bucket
        self._output = output
        self._history = history
        self._snapshots = snapshots
        self._now_us = now_us

    def prepare(self, given: BatchInput) -> BatchInput:
        """The batch, with what the policy asks of the operator."""
        marks = self.policy.writes_openings or self._marks_openings
        return replace(
            given,
            footprint=given.batch if marks else NO_BATCH,
            lists_changed=self.policy.lists_changed,
        )

    def choose(
        self, state: BucketState, batch: int, outcome: Outcome, tuples: int
    ) -> tuple[Chosen, Totals]:
        """The footprints of a batch, and the totals at its end."""
        before = state.account
        records = before.records_total + outcome.results.num_rows
        if outcome.closed is not None:
            records += outcome.closed.num_rows
        now = Totals(records, before.inputs_total + tuples, 0)
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
        chosen = choose_footprints(state.notes.chooser, moment, gather, copies=copies)
        if not chosen.choice.is_reachable and not state.notes.has_warned:
            state.notes.has_warned = True
            _log.warning("bucket %d: %s", self._bucket, chosen.choice.complaint)
        return chosen, replace(now, records=now.records + chosen.opened + chosen.checked)

    def account(
        self, state: BucketState, batch: int, chosen: Chosen, now: Totals, watermark: int | None
    ) -> Account:
        """Where the bucket stands at the end of a batch."""
        standing = Standing(
            state.pieces.open_windows,
            state.pieces.oldest_footprint(),
            self._marks_openings,
            chosen.choice.covered,
            self._snapshots.find_stored(state.notes),
            self._operator.looks_back(state.pieces),
        )
        return next_account(
            state.account,
            state.ledger,
            batch,
            now,
            standing,
            state.rates,
            watermark=watermark,
            is_reachable=chosen.choice.is_reachable,
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
        the records."""
        written = chosen.opened + chosen.checked
        share = written / max(1, written + results)
        rates = state.rates.after_writing(written, chosen.took_us + share * publish_us)
        now = self._now_us()
        since_last = None if state.ended_us is None else max(0.0, now - state.ended_us)
        state.rates = rates.after_batch(took_us, since_last)
        if written >= FEWEST:
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
            self._snapshots.begin(output, chosen.copy, state.notes)
