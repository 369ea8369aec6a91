"""Recovers the state of a log that is in use, on the side, and says how long that took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.orders import aggregate, now_us
from trailmark.checkpoint.ledger import Ledger
from trailmark.checkpoint.rates import Rates, Work
from trailmark.engine import OperatorLogs
from trailmark.log import LocalStorage
from trailmark.operators.aggregate import Aggregate
from trailmark.recovery import plan_recovery, restore
from trailmark.state.memory import Memory
from trailmark.state.table import StateTable

_TIMES = 2


@dataclass(frozen=True, slots=True)
class Recovered:
    """A recovery to the end of a batch: what it had to do, and the microseconds of its parts."""

    batch: int
    work: Work
    open_us: float
    load_us: float
    replay_us: float

    @property
    def took_us(self) -> float:
        return self.open_us + self.load_us + self.replay_us


def recover_aside(place: Path, batch: int) -> Recovered:
    """The faster of some recoveries to the end of a batch. Changes nothing."""
    return min((recover_once(place, batch) for _ in range(_TIMES)), key=lambda found: found.took_us)


def recover_once(
    place: Path,
    batch: int,
    make_operator: Callable[[], Aggregate] = aggregate,
    bucket: int = 0,
    buckets: int = 1,
) -> Recovered:
    """Recovers one of the buckets of an operator to the end of a batch. Changes nothing."""
    started = now_us()
    operator = make_operator()
    logs = OperatorLogs(LocalStorage(place), operator, buckets=buckets)
    output, inputs, snapshots = logs.output(bucket), logs.input(bucket), logs.snapshots(bucket)
    memory = Memory()
    table, ledger = StateTable(operator.layout, memory), Ledger(memory)
    opened = now_us()
    plan = plan_recovery(operator, output, inputs, snapshots, batch, logs.first_batch)
    planned = now_us()
    restored = restore(plan, operator, table, ledger, output, inputs, logs.first_batch, now_us)
    plan_us, whole_us = planned - opened, now_us() - started
    for log in (output, inputs, snapshots):
        log.close()
    memory.close()
    load_us = plan_us + restored.load_us
    open_us = whole_us - load_us - restored.replay_us
    return Recovered(batch, plan.work, open_us, load_us, restored.replay_us)


def common_rates(recovered: Sequence[Recovered]) -> Rates:
    """One set of rates for all policies, by which their recoveries are compared."""
    return Rates(
        open_us=median(found.open_us for found in recovered),
        load_us=median(r.load_us / r.work.load_rows for r in recovered if r.work.load_rows),
        process_us=median(
            r.replay_us / r.work.replay_rows for r in recovered if r.work.replay_rows
        ),
    )
