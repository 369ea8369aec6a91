"""Carries a plan out: loads footprints, replays input, and says what it did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from trailmark.checkpoint.account import Account, empty_account
from trailmark.checkpoint.ledger import Ledger
from trailmark.errors import DamagedSegment, MissingInput, MissingSegment
from trailmark.log import Footer, MonotonicClock, Origin, Segment, StreamLog, read_ports
from trailmark.log.json_text import whole
from trailmark.operators.protocol import AnyOperator, BatchInput, Outcome, Port, State
from trailmark.operators.slices import is_in_slices
from trailmark.records import CLOCK, NO_BATCH, Foundation, Loss
from trailmark.recovery.gathered import records_of
from trailmark.recovery.planned import RecoveryPlan
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """What a recovery did, why it was needed, and how long it had been expected to take."""

    why: str
    plan: RecoveryPlan
    open_us: int
    plan_us: int
    load_us: int
    replay_us: int
    predicted_us: int = 0

    def describe(self) -> dict[str, Any]:
        """As it is written into the footer of the batch that follows."""
        return {
            "why": self.why,
            **self.plan.describe(),
            "open_us": self.open_us,
            "plan_us": self.plan_us,
            "load_us": self.load_us,
            "replay_us": self.replay_us,
            "predicted_us": self.predicted_us,
        }


@dataclass(frozen=True, slots=True)
class Restored:
    """A state that was rebuilt: its account, how long loading and replaying took, and the
    results of each batch that was processed anew, where results have numbers."""

    account: Account
    load_us: int
    replay_us: int
    results: Mapping[int, pa.RecordBatch]


def restore(
    plan: RecoveryPlan,
    operator: AnyOperator,
    state: State,
    ledger: Ledger,
    output: StreamLog,
    inputs: StreamLog,
    first_batch: int,
    now_us: MonotonicClock,
    *,
    marks_openings: bool = False,
) -> Restored:
    """Rebuilds an empty state and ledger.

    With ``marks_openings`` windows that open in batches processed anew are given the batch in the
    place of a footprint.
    """
    started = now_us()
    state.reserve_windows(plan.open_windows)
    for footprints in plan.footprints:
        operator.load(state, footprints, output.directory)
    operator.settle(state, 0 if plan.lost is None else plan.lost.tuples)
    loaded = now_us()
    if plan.lost is not None:
        account = _go_on_from(plan, state, ledger, inputs, first_batch)
        return Restored(account, int(loaded - started), 0, {})
    for segment in _read_inputs(inputs, plan.replay_from, plan.base):
        where = f"{inputs.directory}, batch {segment.batch}"
        operator.replay(state, batch_input(segment, operator.ports), where)
    is_numbered = is_in_slices(operator.describe())
    results = {
        batch: outcome.results
        for batch, outcome in process_anew(
            operator, state, inputs, plan.base + 1, plan.target, marks_openings=marks_openings
        )
        if is_numbered
    }
    if plan.skipped or plan.foundation is Foundation.SNAPSHOT:
        # No later recovery could get past what is damaged to the footprints before it; and the
        # windows of a snapshot have none in the output log.
        state.forget_footprints()
    account = _rebuild_ledger(plan, ledger, output, inputs, first_batch)
    replayed = now_us()
    if not plan.skipped and state.open_windows != account.open_windows:
        raise DamagedSegment(
            f"Recovered {state.open_windows:,} windows, where the footer of batch {plan.target} "
            f"counts {account.open_windows:,}.",
            where=output.directory,
            fix="Run a verification of the logs; restore the damaged files from a backup.",
        )
    if plan.base < plan.target:
        account = _processed_anew(account, plan, state, output, first_batch)
    return Restored(account, int(loaded - started), int(replayed - loaded), results)


def process_anew(
    operator: AnyOperator,
    state: State,
    inputs: StreamLog,
    first: int,
    last: int,
    *,
    marks_openings: bool = False,
) -> Iterator[tuple[int, Outcome]]:
    """Processes batches that were live once, and says what became of each. Whoever wants the state
    takes all of them."""
    for segment in _read_inputs(inputs, first, last):
        footprint = segment.batch if marks_openings else NO_BATCH
        given = batch_input(segment, operator.ports)
        yield segment.batch, operator.process(state, replace(given, footprint=footprint))


def _go_on_from(
    plan: RecoveryPlan, state: State, ledger: Ledger, inputs: StreamLog, first_batch: int
) -> Account:
    """The account of what is left. It is a new beginning: nothing in the logs leads to this state
    but the same loss once more."""
    newest = max(plan.accounts, default=first_batch - 1)
    account = plan.accounts.get(newest, empty_account(first_batch))
    for batch in inputs.batches():
        if newest < batch <= plan.target:
            with suppress(DamagedSegment, MissingSegment):  # what it held does not count any more
                account = _follow(account, inputs, batch)
    is_open = state.open_windows > 0
    account = replace(
        account,
        open_windows=state.open_windows,
        oldest=NO_BATCH if is_open else None,
        base=plan.target,
        needs=plan.target + 1,
        extent=0,
        extent_excess=0,
        segments=0,
        replay=0,
        foundation=Foundation.NOTHING,
        loss=Loss.BOUNDED,
    )
    # Until there is another batch, whoever recovers reads what this recovery has read.
    ledger.start(plan.target, replace(account.totals(), first=plan.oldest))
    return account


def _processed_anew(
    account: Account, plan: RecoveryPlan, state: State, output: StreamLog, first_batch: int
) -> Account:
    """The account of the target, which the next recovery rebuilds as this one did."""
    account = replace(account, open_windows=state.open_windows)
    if not state.open_windows:
        return replace(
            account,
            oldest=None,
            base=plan.target,
            needs=plan.target + 1,
            extent=0,
            extent_excess=0,
            segments=0,
            foundation=Foundation.NOTHING,
            loads_from=None,
        )
    extent = segments = 0
    if plan.foundation is Foundation.SNAPSHOT:
        extent, segments = plan.open_windows, 1
    elif plan.foundation is Foundation.FOOTPRINTS:
        at_base = _account_at(plan, output, plan.base, first_batch)
        if at_base is not None:
            extent, segments = at_base.extent, at_base.segments
    return replace(
        account,
        oldest=NO_BATCH,
        base=plan.base,
        needs=plan.replay_from,
        loads_from=plan.loads_from,
        extent=extent,
        extent_excess=plan.extent_excess,
        segments=segments,
        foundation=plan.foundation,
    )


def batch_input(segment: Segment, ports: Sequence[Port]) -> BatchInput:
    """A batch as it was given to the operator when it was live."""
    rows = read_ports(segment, ports)
    late_before = logged_time(segment.footer, "late_before", segment.origin)
    watermark = logged_time(segment.footer, "watermark", segment.origin)
    now_us = logged_time(segment.footer, CLOCK, segment.origin)
    return BatchInput.of(segment.batch, rows, late_before, watermark, now_us)


def logged_time(footer: Footer, name: str, origin: Origin) -> int | None:
    """A time among the attributes of a footer, if it has one."""
    found = footer.attributes.get(name)
    try:
        return None if found is None else whole(found, -(2**63), 2**63 - 1)
    except ValueError as error:
        raise origin.mismatch(0, f"{name!r} is no time ({error})") from error


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
    """Totals from the batch before the first segment that is read: trimming looks back that far."""
    reads_nothing = plan.foundation is Foundation.NOTHING
    oldest = max(first_batch - 1, plan.base if reads_nothing else plan.oldest - 1)
    account = _account_at(plan, output, oldest, first_batch)
    if account is None:
        account = _account_before(plan, output, inputs, oldest + 1, first_batch)
    ledger.start(oldest, account.totals())
    for batch in range(oldest + 1, plan.target + 1):
        found = _account_at(plan, output, batch, first_batch)
        account = _follow(account, inputs, batch) if found is None else found
        # Around damage, a recovery to the end of any of these batches begins as this one did.
        totals = account.totals(ledger.newest.excess)
        needs = min(totals.needs, plan.reads_from)
        first = min(totals.first, plan.oldest, plan.replay_from - 1)
        ledger.append(batch, replace(totals, needs=needs, first=first))
    return account


def _account_before(
    plan: RecoveryPlan, output: StreamLog, inputs: StreamLog, batch: int, first_batch: int
) -> Account:
    """The totals before a batch, from the first one since that can be read; what an unreadable one
    held does not count."""
    tuples = 0
    for later in range(batch, plan.target + 1):
        account = _account_at(plan, output, later, first_batch)
        if account is None:
            tuples += inputs.read_footer(later)[0].fingerprint.rows
            continue
        footer, _ = output.read_footer(later)
        return replace(
            account,
            records_total=account.records_total - records_of(footer),
            inputs_total=account.inputs_total - footer.fingerprint.rows - tuples,
            base=account.keep_output_from,
            segments=1,
            needs=account.keep_from,
            loads_from=None,
            looks_back=account.keep_from,
        )
    return replace(empty_account(first_batch), needs=plan.replay_from)


def _account_at(
    plan: RecoveryPlan, output: StreamLog, batch: int, first_batch: int
) -> Account | None:
    if batch < first_batch:
        return empty_account(first_batch)
    if batch in plan.accounts:
        return plan.accounts[batch]
    try:
        footer, _ = output.read_footer(batch)
        return Account.of(footer, Origin(output.reader.segment_path(batch)))
    except (DamagedSegment, MissingSegment):
        return None


def _follow(before: Account, inputs: StreamLog, batch: int) -> Account:
    """The account after a batch whose output cannot be read: its records do not count any more."""
    footer, _ = inputs.read_footer(batch)
    return replace(
        before,
        footprints_excess=0,
        inputs_total=before.inputs_total + footer.fingerprint.rows,
        watermark=logged_time(footer, "watermark", Origin(inputs.reader.segment_path(batch))),
    )
