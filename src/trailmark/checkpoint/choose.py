"""Which footprints go into the output log at the end of a batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from trailmark.checkpoint.budget import Budget
from trailmark.checkpoint.ledger import Ledger, Totals
from trailmark.checkpoint.policy import NoCheckpoint, Policy
from trailmark.checkpoint.rates import Rates
from trailmark.operators.protocol import Operator
from trailmark.records import NO_BATCH
from trailmark.state.table import Slots, StateTable

#: Windows checked between two looks at the targets.
_STEP = 4096


@dataclass(frozen=True, slots=True)
class Chosen:
    """Footprints of a batch, and whether the policy's targets are within reach."""

    footprints: pa.RecordBatch | None = None
    opened: int = 0
    checked: int = 0
    is_reachable: bool = True


def choose_footprints(
    operator: Operator,
    table: StateTable,
    ledger: Ledger,
    policy: Policy,
    budget: Budget | None,
    batch: int,
    now: Totals,
    opened: Slots,
    rates: Rates,
) -> Chosen:
    """Footprints of the windows that have none yet, then of old ones as the policy says.

    ``now`` counts the records and tuples up to the end of this batch, its footprints excluded;
    ``opened`` are the windows that the batch opened.
    """
    if isinstance(policy, NoCheckpoint):
        return Chosen()
    assert budget is not None
    first = opened
    if table.oldest_footprint() == NO_BATCH:
        bare = table.take_oldest(NO_BATCH + 1, batch, table.open_windows)
        first = np.concatenate([opened, bare])
    now = Totals(now.records + len(first), now.inputs, now.needs)
    started = budget.now_us()
    q, u = policy.targets(rates)
    checked = _check_oldest(table, ledger, q, u, budget, batch, now)
    slots = np.concatenate([first, checked]) if len(checked) else first
    footprints = operator.snapshot(table, slots, len(first)) if len(slots) else None
    if len(checked):
        took_us = budget.now_us() - started
        budget.spend(len(checked), took_us * len(checked) / len(slots))
    is_reachable = q is None or q >= table.open_windows
    return Chosen(footprints, len(first), len(checked), is_reachable)


def _check_oldest(
    table: StateTable,
    ledger: Ledger,
    q: int | None,
    u: int | None,
    budget: Budget,
    batch: int,
    now: Totals,
) -> Slots:
    """Takes windows from the oldest footprint on, until both targets are met or nothing is left."""
    if q is None and u is None:
        return np.empty(0, dtype=np.int64)
    left = budget.affordable()
    taken: list[Slots] = []
    while left is None or left > 0:
        before = ledger.first_batch_within(now, q, u)
        most = _STEP if left is None else min(_STEP, left)
        slots = table.take_oldest(before, batch, most)
        if not len(slots):
            break
        taken.append(slots)
        now = Totals(now.records + len(slots), now.inputs, now.needs)
        left = None if left is None else left - len(slots)
    return np.concatenate(taken) if taken else np.empty(0, dtype=np.int64)
