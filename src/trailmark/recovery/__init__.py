"""Recovery: `plan` finds out what has to be read, as a value one can print; `restore` does it,
`aside`, which is imported by name, does both for those who only look at the state.

Nothing is emitted and nothing is guessed: what cannot be rebuilt exactly is refused with a named
error. Only where the author of a query accepts loss, `loading` takes what is left, and counts the
rest.
"""

from trailmark.recovery.history import InputHistory, NoHistory
from trailmark.recovery.lost import Lost
from trailmark.recovery.plan import plan_recovery
from trailmark.recovery.planned import RecoveryPlan, Skipped
from trailmark.recovery.rehearse import rehearse_load
from trailmark.recovery.restore import RecoveryReport, batch_input, restore

__all__ = [
    "InputHistory",
    "Lost",
    "NoHistory",
    "RecoveryPlan",
    "RecoveryReport",
    "Skipped",
    "batch_input",
    "plan_recovery",
    "rehearse_load",
    "restore",
]
