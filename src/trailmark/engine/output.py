"""What a batch leaves in the output log: written at its commit, read when it is asked for again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.checkpoint.choose import Chosen
from trailmark.checkpoint.policy import Policy
from trailmark.checkpoint.rates import Rates
from trailmark.engine.forking import Answered
from trailmark.engine.report import BatchReport
from trailmark.engine.tentative import TENTATIVE, Tentative
from trailmark.kernel.columns import contiguous
from trailmark.log import Segment
from trailmark.log.json_text import whole
from trailmark.operators.protocol import AnyOperator, Outcome
from trailmark.records import FrameKind
from trailmark.recovery import RecoveryReport
from trailmark.recovery.catching_up import CAUGHT_UP, CaughtUp


def output_frames(
    outcome: Outcome, chosen: Chosen, answered: Answered | None = None
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
    if answered is not None and answered.results.num_rows:
        frames.append((FrameKind.TENTATIVE, answered.results))
    return frames


def output_attributes(
    outcome: Outcome,
    chosen: Chosen,
    account: Account,
    policy: Policy,
    rates: Rates,
    recovery: RecoveryReport | None,
    caught_up: CaughtUp | None = None,
    tentative: Tentative | None = None,
    answered: Answered | None = None,
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
    if caught_up is not None:
        attributes[CAUGHT_UP] = caught_up.describe()
    if tentative is not None:
        attributes[TENTATIVE] = tentative.to_json()
    if answered is not None and answered.left_out:
        attributes["tentative_left_out"] = answered.left_out
    return attributes


def logged_report(operator: AnyOperator, bucket: int, segment: Segment) -> BatchReport:
    """The report of a batch that is in the log, with the results that were logged then."""
    results = segment.rows(FrameKind.RESULTS, operator.logged_schema)
    has_late = FrameKind.LATE in segment.frames
    tentative = None
    if Tentative.logged(segment.footer, segment.origin) is not None:
        has_some = FrameKind.TENTATIVE in segment.frames
        tentative = operator.publish(
            contiguous(
                segment.rows(FrameKind.TENTATIVE, operator.logged_schema)
                if has_some
                else operator.logged_schema.empty_table()
            )
        )

    def count(name: str) -> int:
        try:
            return whole(segment.footer.attributes.get(name), 0, 2**62)
        except ValueError as error:
            raise segment.origin.mismatch(0, f"the footer has no {name!r} ({error})") from error

    return BatchReport(
        segment.batch,
        bucket,
        operator.publish(contiguous(results)),
        Account.of(segment.footer, segment.origin),
        late=segment.rows(FrameKind.LATE, operator.late_schema) if has_late else None,
        late_rows=count("late_rows"),
        late_updates=count("late_updates"),
        null_times=count("null_times"),
        footprints_opened=count("footprints_opened"),
        footprints_checked=count("footprints_checked"),
        was_logged=True,
        tentative=tentative,
    )
