"""Upkeep of logs by hand: what their writers do by themselves now and then, and what only a person
can decide.

Of an operator, `trim` removes what no recovery needs, `merge` packs small files together: both may
run beside the query. `truncate` cuts the newest batches off, for a stopped query. Each returns what
it did, and each keeps to what the newest footers say a recovery needs. `streams` has what there is
to be done for a written stream. What a named reader needs stays in any case.
"""

from trailmark.upkeep.merge import LogMerge, merge_operator
from trailmark.upkeep.trim import LogTrim, OperatorTrim, trim_operator
from trailmark.upkeep.truncate import (
    LogCut,
    TruncatePlan,
    TruncateReport,
    plan_truncate,
    truncate_operator,
)

__all__ = [
    "LogCut",
    "LogMerge",
    "LogTrim",
    "OperatorTrim",
    "TruncatePlan",
    "TruncateReport",
    "merge_operator",
    "plan_truncate",
    "trim_operator",
    "truncate_operator",
]
