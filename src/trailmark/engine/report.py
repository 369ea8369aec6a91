"""What a batch did in one bucket."""

from __future__ import annotations

import pyarrow as pa

from trailmark.checkpoint.account import Account
from trailmark.recovery import RecoveryReport
from trailmark.recovery.catching_up import CaughtUp
from trailmark.values import dataclass


@dataclass(frozen=True, slots=True)
class BatchReport:
    """Results of a batch, and what it took.

    Attributes
    ----------
    results
        Results as users see them.
    tentative
        Results that stand until those of complete input are there; None where nothing is
        tentative.
    late
        Late rows, where the operator keeps them.
    was_logged
        The batch was in the log already, and these are the results that were logged then.
    recovery
        What a recovery did before the batch, if there was one.
    caught_up
        How an older table was brought up to the batch before, if one was.
    """

    batch: int
    bucket: int
    results: pa.RecordBatch
    account: Account
    late: pa.Table | None = None
    late_rows: int = 0
    late_updates: int = 0
    null_times: int = 0
    footprints_opened: int = 0
    footprints_checked: int = 0
    output_bytes: int = 0
    was_logged: bool = False
    recovery: RecoveryReport | None = None
    caught_up: CaughtUp | None = None
    tentative: pa.RecordBatch | None = None
