"""The plan: what a recovery will read, load and replay, found by reading the output log backward.

The newest footer says how many windows are open. Going back from it, the first footprint met of a
window is its newest; a result met first means that the window has closed. When there are as many
footprints as open windows, the walk ends, and the oldest footprint says where replay begins.

A segment that cannot be read may have closed and opened windows, so nothing newer can be trusted
without it: the state is then rebuilt for the batch before it, and the batches since are processed
anew from the input log, without emitting anything. So are those since the newest batch at whose end
every open window had a footprint, or since the snapshot that the newest footer names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trailmark.checkpoint.account import Account, empty_account
from trailmark.errors import DamagedSegment, MissingInput
from trailmark.log import Segment, StreamLog, Unreadable
from trailmark.records import Foundation, Loss
from trailmark.recovery.gathered import MOST_RESERVED, Form, Gathered
from trailmark.recovery.loading import plan_loading
from trailmark.recovery.planned import RecoveryPlan, Skipped


def plan_recovery(
    form: Form,
    output: StreamLog,
    inputs: StreamLog,
    snapshots: StreamLog,
    target: int,
    first_batch: int,
    loss: Loss | None = None,
) -> RecoveryPlan:
    """Finds how to rebuild the state at the end of batch ``target``. Changes nothing.

    ``loss`` is what the author of the query accepts now; None goes by what the log says of the
    batch. What was written with loss accepted cannot be rebuilt without any, and is planned so.
    """
    if loss is Loss.BOUNDED:
        return plan_loading(form, output, inputs, snapshots, target, first_batch)
    skipped: list[Skipped] = []
    walks: list[_Walk] = []
    base = target
    while base >= first_batch:
        walk = _Walk(form, base)
        walks.append(walk)
        retry_at = walk.run(output, snapshots, skipped)
        if retry_at is None:
            break
        # Before the oldest output there is nothing to begin from but the beginning.
        held = [batch for batch in output.batches() if batch <= retry_at]
        base = held[-1] if held else first_batch - 1
    if walks and walks[-1].accepts_loss:
        if loss is Loss.NONE and skipped:
            raise _not_exact(output, target, skipped)
        return plan_loading(form, output, inputs, snapshots, target, first_batch)
    if base < first_batch:
        walk = _Walk(form, base)
        walk.account = empty_account(first_batch)
    accounts = {batch: account for w in walks for batch, account in w.accounts.items()}
    account = walk.account
    assert account is not None
    _check_inputs(inputs, account.reads_from, target, skipped)
    return RecoveryPlan(
        target=target,
        base=walk.base,
        foundation=account.foundation,
        oldest=walk.base if account.oldest is None else account.oldest,
        replay_from=account.needs,
        open_windows=walk.found,
        segments_read=sum(w.segments for w in walks),
        records_read=sum(w.records for w in walks),
        records_used=sum(w.used for w in walks),
        replay_tuples=_tuples_to_replay(inputs, account.needs, target, accounts.get(target)),
        loads_from=account.loads_from,
        excess_used=sum(w.excess for w in walks),
        extent_excess=account.extent_excess,
        skipped=tuple(skipped),
        accounts=accounts,
        footprints=tuple(reversed(walk.taken)),
    )


class _Walk(Gathered):
    """One reading of the output log, backward from ``base``."""

    def __init__(self, form: Form, base: int) -> None:
        super().__init__(form)
        self.base = base
        self.account: Account | None = None
        self.accounts: dict[int, Account] = {}
        self.accepts_loss = False

    def run(self, output: StreamLog, snapshots: StreamLog, skipped: list[Skipped]) -> int | None:
        """Collects footprints; returns the batch to start from instead, if this one cannot be."""
        for segment in output.read_backward(self.base):
            if isinstance(segment, Unreadable):
                skipped.append(Skipped(segment.batch, segment.error.what))
                return segment.batch - 1
            try:
                account = Account.of(segment.footer, segment.origin)
            except DamagedSegment as error:
                skipped.append(Skipped(segment.batch, error.what))
                return segment.batch - 1
            self.accounts[segment.batch] = account
            if self.account is None:
                if account.loss is Loss.BOUNDED:
                    self.accepts_loss = True
                    return None
                if account.foundation is Foundation.SNAPSHOT:
                    return self._begin_with_snapshot(snapshots, output, account, skipped)
                if account.foundation is Foundation.NOTHING:
                    self._begin_at(account)
                    return None
                if account.base < self.base:
                    return account.base
                self.account = account
                self.reserve(min(account.open_windows, MOST_RESERVED))
            if self.found == self.account.open_windows:
                return None
            try:
                self._read(segment)
            except DamagedSegment as error:
                skipped.append(Skipped(segment.batch, error.what))
                return segment.batch - 1
            if self.found == self.account.open_windows:
                return None
        assert self.account is not None
        missing = min(self.accounts) - 1
        why = (
            f"The output log begins after it, and has footprints of {self.found:,} of "
            f"{self.account.open_windows:,} open windows."
        )
        skipped.append(Skipped(missing, why))
        return missing - 1

    def _begin_at(self, account: Account) -> None:
        """The state is built on what the account says, before anything of the output is read."""
        self.base = account.base
        self.account = replace(account, oldest=None)

    def _begin_with_snapshot(
        self, snapshots: StreamLog, output: StreamLog, account: Account, skipped: list[Skipped]
    ) -> int | None:
        footprints, why = self.snapshot_at(snapshots, output, account.base)
        if footprints is None:
            skipped.append(Skipped(account.base, why))
            return account.base - 1
        self._begin_at(account)
        self.take_snapshot(footprints, account.base, account.extent_excess)
        return None

    def _read(self, segment: Segment) -> None:
        self.count(segment)
        footprints = self.footprints_of(segment)
        if footprints is not None and footprints.num_rows:
            excess = self.accounts[segment.batch].footprints_excess
            self.take(footprints, segment.batch, excess)
        assert self.account is not None
        if self.found != self.account.open_windows:
            self.close(segment)


def _not_exact(output: StreamLog, target: int, skipped: Sequence[Skipped]) -> MissingInput:
    """What lies before the damage does not lead to the state after it."""
    around = "".join(f" Output batch {s.batch} could not be used: {s.why}" for s in skipped)
    return MissingInput(
        f"The state at the end of batch {target} cannot be rebuilt as it was: before that, loss "
        f"was accepted, and no input kept.{around}",
        where=output.directory,
        fix="Bring the segment back from a backup, or start the query with loss='bounded', which "
        "goes on with what is left and counts what is lost.",
    )


def _check_inputs(inputs: StreamLog, first: int, last: int, skipped: Sequence[Skipped]) -> None:
    """Refuses to begin what cannot be finished."""
    if first > last:
        return
    present = set(inputs.batches())
    for batch in range(first, last + 1):
        if batch in present:
            continue
        around = "".join(f" Output batch {s.batch} could not be used: {s.why}" for s in skipped)
        raise MissingInput(
            f"Recovery has to read input batches {first} to {last}, but batch {batch} is "
            f"gone.{around}",
            where=inputs.reader.segment_path(batch),
            fix="Bring the segment back from a backup, or start the query on a new path.",
        )


def _tuples_to_replay(inputs: StreamLog, first: int, last: int, account: Account | None) -> int:
    """How many there are; known already, unless the recovery goes around damage."""
    if account is not None and account.needs == first:
        return account.replay
    return sum(inputs.read_footer(batch)[0].fingerprint.rows for batch in range(first, last + 1))
