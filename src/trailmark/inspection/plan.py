"""What a recovery of a bucket would do, from its files alone."""

from __future__ import annotations

from trailmark.checkpoint.rates import Rates
from trailmark.errors import LogError, MissingSegment
from trailmark.inspection.logs import OperatorFiles
from trailmark.operators.kinds import form_of
from trailmark.records import NO_BATCH, Stream
from trailmark.recovery import RecoveryPlan, plan_recovery


def plan_bucket(files: OperatorFiles, bucket: int, target: int | None = None) -> RecoveryPlan:
    """The plan to rebuild the state at the end of a batch; of the newest if None.

    What cannot be rebuilt raises.
    """
    output = files.log(Stream.OUTPUT, bucket)
    newest = output.newest()
    target = newest if target is None else target
    if newest == NO_BATCH or not files.meta.first_batch <= target <= newest:
        held = "no batch" if newest == NO_BATCH else f"batches {output.oldest()} to {newest}"
        raise MissingSegment(
            f"There is no such batch in the output log of bucket {bucket}, which holds {held}.",
            where=output.directory,
            fix="Choose one of these batches.",
        )
    meta = files.meta
    return plan_recovery(
        form_of(meta),
        output,
        files.log(Stream.INPUT, bucket),
        files.log(Stream.SNAPSHOT, bucket),
        target,
        meta.first_batch,
    )


def predict_us(files: OperatorFiles, bucket: int, plan: RecoveryPlan) -> int | None:
    """How long a plan would take by the rates of its last batch; None if these are not known."""
    try:
        footer, _ = files.log(Stream.OUTPUT, bucket).read_footer(plan.target)
    except LogError:
        return None
    rates = footer.attributes.get("rates")
    return Rates.from_attributes(rates).predict_us(plan.work) if isinstance(rates, dict) else None
