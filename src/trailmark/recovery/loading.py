"""The plan of a recovery that may lose something: it loads what the output log still has, and goes
on from there.

Nothing is replayed and nothing processed anew. For each window the newest footprint is taken that
can be found; a result met first means that the window has closed. A segment that cannot be read is
passed over. The footprints in it are dropped, and the walk goes as far back as it takes to find
the ones before; what it closed nobody knows, so windows that are loaded from before it may be back.

How far back the walk has to go is in the accounts: in that of the newest segment, and where one was
passed over, in that of the segment before it.
"""

from __future__ import annotations

import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.rates import Rates
from trailmark.errors import DamagedSegment, MissingSegment
from trailmark.log import Footer, Segment, StreamLog, Unreadable
from trailmark.records import Foundation, FrameKind
from trailmark.recovery.gathered import MOST_RESERVED, Form, Gathered
from trailmark.recovery.lost import Lost
from trailmark.recovery.planned import RecoveryPlan, Skipped

_UNREADABLE = (DamagedSegment, MissingSegment)


def plan_loading(
    form: Form,
    output: StreamLog,
    inputs: StreamLog,
    snapshots: StreamLog,
    target: int,
    first_batch: int,
) -> RecoveryPlan:
    """Finds what is left of the state at the end of batch ``target``, and what is not."""
    walk = _LoadingWalk(form, output, snapshots)
    walk.run(target, first_batch)
    foundation = Foundation.FOOTPRINTS if walk.found else Foundation.NOTHING
    if walk.has_snapshot:
        foundation = Foundation.SNAPSHOT
    return RecoveryPlan(
        target=target,
        base=target,
        foundation=foundation,
        oldest=min(walk.oldest, target),
        replay_from=target + 1,
        open_windows=walk.found,
        segments_read=walk.segments,
        records_read=walk.records,
        records_used=walk.used,
        replay_tuples=0,
        excess_used=walk.excess,
        extent_excess=walk.excess,
        skipped=tuple(walk.skipped),
        lost=_count_lost(walk, inputs, target),
        accounts=walk.accounts,
        footprints=tuple(reversed(walk.taken)),
    )


class _LoadingWalk(Gathered):
    """One reading of the output log, backward, past whatever is damaged.

    Attributes
    ----------
    accounts, footers
        Of the segments that could be read.
    asked
        The accounts that said how far back to go.
    doubtful, dropped
        Windows taken from before a damaged segment, and footprints in damaged ones.
    oldest
        The oldest batch that footprints were taken from.
    """

    def __init__(self, form: Form, output: StreamLog, snapshots: StreamLog) -> None:
        super().__init__(form)
        self._output = output
        self._snapshots = snapshots
        self.accounts: dict[int, Account] = {}
        self.footers: dict[int, Footer] = {}
        self.asked: list[Account] = []
        self.skipped: list[Skipped] = []
        self.doubtful = self.dropped = 0
        self.oldest = 1 << 62
        self.has_snapshot = False
        self._first = 1 << 62
        self._has_to_ask = True
        self._is_past_damage = False
        #: The excess of each snapshot that is to be loaded, as far as an account tells it.
        self._snapshots_of: dict[int, int] = {}

    def run(self, target: int, first_batch: int) -> None:
        """Gathers what can be found of the windows that were open at the end of a batch."""
        for segment in self._output.read_backward(target):
            if isinstance(segment, Unreadable):
                self._pass_over(segment.batch, segment.error.what)
            else:
                self._read(segment)
            if not self._has_to_ask and segment.batch <= self._first:
                return
        oldest = self._output.oldest()
        if oldest > first_batch:
            self.skipped.append(Skipped(oldest - 1, "The output log begins after it."))

    def _read(self, segment: Segment) -> None:
        batch = segment.batch
        try:
            account = Account.of(segment.footer, segment.origin)
        except DamagedSegment as error:
            self._pass_over(batch, error.what)
            return
        self.accounts[batch], self.footers[batch] = account, segment.footer
        if self._has_to_ask:
            self._ask(account, batch)
        if batch in self._snapshots_of:
            self._load_snapshot(account, batch)
            if batch == self._first:
                return
        if batch >= self._first:
            self._gather(segment)

    def _ask(self, account: Account, batch: int) -> None:
        """How far back there may be footprints of the windows that were open after a batch."""
        self._has_to_ask = False
        if not self.asked:
            self.reserve(min(account.open_windows, MOST_RESERVED))
        self.asked.append(account)
        is_nothing = account.foundation is Foundation.NOTHING  # then none of them has one
        self._first = min(self._first, batch + 1 if is_nothing else account.loads_output_from)
        if account.foundation is Foundation.SNAPSHOT:
            self._snapshots_of[account.base] = account.extent_excess
        if self.skipped:
            self._look_for_snapshots(account, batch)

    def _look_for_snapshots(self, account: Account, batch: int) -> None:
        """What was passed over may have been the first to name one."""
        for stored in self._snapshots.batches():
            if account.base < stored <= batch:
                self._snapshots_of.setdefault(stored, 0)
                self._first = min(self._first, stored)

    def _load_snapshot(self, account: Account, batch: int) -> None:
        footprints, why = self.snapshot_at(self._snapshots, self._output, batch)
        if footprints is not None:
            self.has_snapshot = True
            self.take_snapshot(footprints, batch, self._snapshots_of[batch])
            return
        self.skipped.append(Skipped(batch, why))
        self._drop_footprints(self._snapshots, batch)
        self._ask(account, batch)

    def _gather(self, segment: Segment) -> None:
        self.count(segment)
        try:
            footprints = self.footprints_of(segment)
            if footprints is not None and footprints.num_rows:
                excess = self.accounts[segment.batch].footprints_excess
                self.take(footprints, segment.batch, excess)
        except DamagedSegment as error:
            self.skipped.append(Skipped(segment.batch, error.what))
            self.dropped += segment.footer.rows[FrameKind.FOOTPRINTS]
            self._has_to_ask = True
        if segment.batch == self._first and not self._has_to_ask:
            return  # what closed here has no older footprint that would be met
        try:
            self.close(segment)
        except DamagedSegment as error:
            self.skipped.append(Skipped(segment.batch, error.what))
            self._is_past_damage = True

    def take(self, footprints: pa.RecordBatch, batch: int, excess: int) -> int:
        count = super().take(footprints, batch, excess)
        if count:
            self.oldest = min(self.oldest, batch)
        if self._is_past_damage:
            self.doubtful += count
        return count

    def _pass_over(self, batch: int, why: str) -> None:
        self.skipped.append(Skipped(batch, why))
        self._drop_footprints(self._output, batch)
        self._has_to_ask = self._is_past_damage = True

    def _drop_footprints(self, log: StreamLog, batch: int) -> None:
        try:
            footer, _ = log.read_footer(batch)
        except _UNREADABLE:
            return  # how many there were is not known
        self.dropped += footer.rows.get(FrameKind.FOOTPRINTS, 0)


def _count_lost(walk: _LoadingWalk, inputs: StreamLog, target: int) -> Lost:
    total, is_estimate = _inputs_at(walk, inputs, target)
    # What an exact recovery would have to replay is what is missing.
    missing = [account.replay + total - account.inputs_total for account in walk.asked]
    unseen = [target + 1 - account.needs for account in walk.asked]
    newest = walk.accounts.get(target)
    windows = None
    if newest is not None:
        windows = max(0, newest.open_windows - (walk.found - walk.doubtful))
    return Lost(
        max(0, *unseen) if walk.asked else len(inputs.batches()),
        max(0, *missing) if walk.asked else total,
        is_estimate,
        windows,
        walk.doubtful,
        walk.dropped,
    )


def _inputs_at(walk: _LoadingWalk, inputs: StreamLog, target: int) -> tuple[int, bool]:
    """The tuples that were taken up to the end of a batch, and whether that is an estimate: of
    batches whose output cannot be read, the input may be gone."""
    newest = max(walk.accounts, default=None)
    total = 0 if newest is None else walk.accounts[newest].inputs_total
    first = 0 if newest is None else newest + 1
    footers = dict(_footers(inputs, first, target))
    if newest is None:
        return sum(footer.fingerprint.rows for footer in footers.values()), True
    if len(footers) == target - newest:
        return total + sum(footer.fingerprint.rows for footer in footers.values()), False
    ends_us = max(footer.written_us for footer in [*footers.values(), walk.footers[newest]])
    passed_us = ends_us - walk.footers[newest].written_us
    return total + int(passed_us * _rate(walk, newest)), True


def _footers(inputs: StreamLog, first: int, last: int) -> list[tuple[int, Footer]]:
    found = []
    for batch in inputs.batches():
        if first <= batch <= last:
            try:
                found.append((batch, inputs.read_footer(batch)[0]))
            except _UNREADABLE:
                continue
    return found


def _rate(walk: _LoadingWalk, newest: int) -> float:
    """Tuples per microsecond, over the batches that were read, or in the only one."""
    oldest, footer = min(walk.footers), walk.footers[newest]
    passed_us = footer.written_us - walk.footers[oldest].written_us
    if passed_us > 0:
        taken = walk.accounts[newest].inputs_total - walk.accounts[oldest].inputs_total
        return max(0, taken) / passed_us
    return footer.fingerprint.rows / Rates.from_attributes(footer.attributes.get("rates")).period_us
