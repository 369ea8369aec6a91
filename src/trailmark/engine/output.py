"""What a batch leaves in the output log: written at its commit, read when it is asked for again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.choose import Chosen
from trailmark.checkpoint.policy import Policy
from trailmark.checkpoint.rates import Rates
from trailmark.engine.report import BatchReport
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment
from trailmark.operators.protocol import Operator, Outcome
from trailmark.records import FrameKind
from trailmark.recovery import RecoveryReport


def output_frames(
    outcome: Outcome, chosen: Chosen
) -> list[tuple[FrameKind, pa.Table | pa.RecordBatch]]:
    """The results, and whatever else there is."""
    frames: list[tuple[FrameKind, pa.Table | pa.RecordBatch]] = [
        (FrameKind.RESULTS, outcome.results)
    ]
    if chosen.footprints is not None:
        frames.append((FrameKind.FOOTPRINTS, chosen.footprints))
    if outcome.closed is not None:
        frames.append((FrameKind.CLOSED, outcome.closed))
    if outcome.late is not None:
        frames.append((FrameKind.LATE, outcome.late))
    return frames


def output_attributes(
    outcome: Outcome,
    chosen: Chosen,
    account: Account,
    policy: Policy,
    rates: Rates,
    recovery: RecoveryReport | None,
) -> dict[str, Any]:
    """What the footer says: where the bucket stands, and what the batch did."""
    attributes = {
        **account.to_attributes(),
        "policy": policy.describe(),
        "rates": rates.to_attributes(),
        "late_rows": outcome.late_rows,
        "late_updates": outcome.late_updates,
        "null_times": outcome.null_times,
        "footprints_opened": chosen.opened,
        "footprints_checked": chosen.checked,
    }
    if chosen.choice.why:
        attributes["decision"] = dict(chosen.choice.why)
    if recovery is not None:
        attributes["recovery"] = recovery.describe()
    return attributes


def logged_report(operator: Operator, bucket: int, segment: Segment) -> BatchReport:
    """The report of a batch that is in the log, with the results that were logged then."""
    attributes = segment.footer.attributes
    return BatchReport(
        segment.batch,
        bucket,
        operator.publish(contiguous(segment.table(FrameKind.RESULTS))),
        Account.from_attributes(attributes),
        late=segment.table(FrameKind.LATE),
        late_rows=attributes["late_rows"],
        late_updates=attributes["late_updates"],
        null_times=attributes["null_times"],
        footprints_opened=attributes["footprints_opened"],
        footprints_checked=attributes["footprints_checked"],
        was_logged=True,
    )
