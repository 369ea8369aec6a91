"""Carries a plan out: loads footprints, replays input, and says what it did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trailmark.checkpoint.account import Account, empty_account
from trailmark.checkpoint.ledger import Ledger, Totals
from trailmark.errors import DamagedSegment, MissingInput, MissingSegment
from trailmark.kernel.columns import contiguous
from trailmark.log import MonotonicClock, Segment, StreamLog
from trailmark.operators.protocol import BatchInput, Operator
from trailmark.records import NO_BATCH, FrameKind
from trailmark.recovery.plan import RecoveryPlan, records_of
from trailmark.state.table import StateTable


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a recovery did, why it was needed, and how long it had been expected to take."""

    why: str
    plan: RecoveryPlan
    plan_us: int
    load_us: int
    replay_us: int
    predicted_us: int = 0

    @property
    def took_us(self) -> int:
        return self.plan_us + self.load_us + self.replay_us

    def describe(self) -> dict[str, Any]:
        """As it is written into the footer of the batch that follows."""
        plan = self.plan
        return {
            "why": self.why,
            "target": plan.target,
            "base": plan.base,
            "oldest": plan.oldest,
            "segments_read": plan.segments_read,
            "records_read": plan.records_read,
            "footprints": plan.open_windows,
            "replay_tuples": plan.replay_tuples,
            "skipped": [[s.batch, s.why] for s in plan.skipped],
            "plan_us": self.plan_us,
            "load_us": self.load_us,
            "replay_us": self.replay_us,
            "predicted_us": self.predicted_us,
        }


def restore(
    plan: RecoveryPlan,
    operator: Operator,
    table: StateTable,
    ledger: Ledger,
    output: StreamLog,
    inputs: StreamLog,
    first_batch: int,
    now_us: MonotonicClock,
) -> tuple[Account, int, int]:
    """Rebuilds an empty table and ledger; returns the account and how long load and replay took."""
    started = now_us()
    table.reserve_windows(plan.open_windows)
    for footprints in plan.footprints:
        operator.load(table, footprints, output.directory)
    loaded = now_us()
    for segment in _read_inputs(inputs, plan.replay_from, plan.base):
        rows = segment.table(FrameKind.INPUT)
        where = f"{inputs.directory}, batch {segment.batch}"
        operator.replay(table, BatchInput(segment.batch, contiguous(rows)), where)
    for segment in _read_inputs(inputs, plan.base + 1, plan.target):
        operator.process(table, batch_input(segment))
    if plan.skipped:
        # No later recovery could get past what is damaged to the footprints before it.
        table.forget_footprints()
    replayed = now_us()
    account = _rebuild_ledger(plan, ledger, output, inputs, first_batch)
    if plan.base < plan.target:
        is_open = table.open_windows > 0
        at_base = _account_at(plan, output, plan.base, first_batch)
        account = replace(
            account,
            open_windows=table.open_windows,
            oldest=NO_BATCH if is_open else None,
            base=plan.base if is_open else plan.target,
            needs=plan.replay_from if is_open else plan.target + 1,
            extent=at_base.extent if is_open and at_base is not None else 0,
        )
    assert table.open_windows == account.open_windows, "the footer counts the open windows"
    return account, int(loaded - started), int(replayed - loaded)


def batch_input(segment: Segment) -> BatchInput:
    """A batch as it was given to the operator when it was live."""
    attributes = segment.footer.attributes
    rows = contiguous(segment.table(FrameKind.INPUT))
    return BatchInput(
        segment.batch, rows, attributes.get("late_before"), attributes.get("watermark")
    )


def _read_inputs(inputs: StreamLog, first: int, last: int) -> Any:
    if first > last:
        return
    try:
        yield from inputs.read_from(first, last)
    except MissingSegment as error:
        raise MissingInput(
            f"Input that a recovery has to replay was removed while it ran: {error.what}",
            where=error.where,
            fix="Start again; if it stays so, bring the segment back from a backup.",
        ) from error


def _rebuild_ledger(
    plan: RecoveryPlan, ledger: Ledger, output: StreamLog, inputs: StreamLog, first_batch: int
) -> Account:
    """Totals from two batches before the first replayed one: trimming looks back that far."""
    oldest = max(first_batch - 1, plan.replay_from - 2)
    account = _account_at(plan, output, oldest, first_batch)
    if account is not None:
        ledger.start(oldest, Totals(account.records_total, account.inputs_total, account.needs))
    else:
        ledger.start(oldest, _totals_before(output, oldest + 1))
    for batch in range(oldest + 1, plan.target + 1):
        found = _account_at(plan, output, batch, first_batch)
        if found is None:
            assert account is not None, "the batch of the oldest footprint was read"
            found = _follow(account, inputs, batch)
        account = found
        # Around damage, a recovery to the end of any of these batches begins as this one did.
        needs = min(account.needs, plan.replay_from)
        ledger.append(batch, Totals(account.records_total, account.inputs_total, needs))
    assert account is not None
    return account


def _totals_before(output: StreamLog, batch: int) -> Totals:
    """Totals before a batch, from what it says itself; for when the one before cannot be read."""
    footer, _ = output.read_footer(batch)
    account = Account.from_attributes(footer.attributes)
    return Totals(
        account.records_total - records_of(footer),
        account.inputs_total - footer.fingerprint.rows,
        account.keep_from,
    )


def _account_at(
    plan: RecoveryPlan, output: StreamLog, batch: int, first_batch: int
) -> Account | None:
    if batch < first_batch:
        return empty_account(first_batch)
    if batch in plan.accounts:
        return plan.accounts[batch]
    try:
        footer, _ = output.read_footer(batch)
    except (DamagedSegment, MissingSegment):
        return None
    return Account.from_attributes(footer.attributes)


def _follow(before: Account, inputs: StreamLog, batch: int) -> Account:
    """The account after a batch whose output cannot be read: its records do not count any more."""
    footer, _ = inputs.read_footer(batch)
    return replace(
        before,
        inputs_total=before.inputs_total + footer.fingerprint.rows,
        watermark=footer.attributes.get("watermark"),
    )
