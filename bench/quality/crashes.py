"""Runs of an operator that crash, on a simulated disk: what comes out of them from then on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bench.quality.model import yield_operator
from trailmark.checkpoint.policy import Policy
from trailmark.engine import BatchReport
from trailmark.operators.protocol import AnyOperator
from trailmark.records import Loss
from trailmark.testing.disk import SimulatedDisk
from trailmark.testing.processes import AtOnce, Processes

Floats = npt.NDArray[np.float64]


class _Yields:
    def operator(self) -> AnyOperator:
        return yield_operator()


@dataclass(frozen=True, slots=True)
class Variant:
    """``drops``: whether what comes while the operator is down is dropped, or delivered later."""

    policy: Policy
    loss: Loss
    drops: bool


@dataclass(frozen=True, slots=True)
class Crash:
    """After so many batches, for so many more."""

    after: int
    down: int


@dataclass(frozen=True, slots=True)
class CrashedRun:
    """Predictions of the batches from ``first`` on, and what the recovery says it has lost."""

    first: int
    predicted: Floats
    lost_tuples: int


def _processes(variant: Variant, disk: SimulatedDisk) -> Processes:
    return Processes(
        _Yields(),
        disk,
        variant.policy,
        retain_batches=4,
        beside=AtOnce(),
        loss=variant.loss,
    )


def run_through(
    variant: Variant, batches: Sequence[pa.RecordBatch], crashes: Sequence[Crash]
) -> tuple[Floats, Mapping[Crash, SimulatedDisk]]:
    """The predictions of a run that never crashes, and the disk as each crash would leave it."""
    disk = SimulatedDisk()
    processes, found = _processes(variant, disk), []
    left: dict[Crash, SimulatedDisk] = {}
    for number, rows in enumerate(batches):
        left |= {crash: disk.copy() for crash in crashes if crash.after == number}
        found.append(_predicted(processes.run(number, [rows])[0]))
    processes.stop()
    return np.array(found), left


def run_after(
    variant: Variant, batches: Sequence[pa.RecordBatch], crash: Crash, disk: SimulatedDisk
) -> CrashedRun:
    """A new process goes on with what the disk has."""
    first = crash.after + (crash.down if variant.drops else 0)
    processes = _processes(variant, disk)
    reports = [
        processes.run(crash.after + place, [rows])[0] for place, rows in enumerate(batches[first:])
    ]
    processes.stop()
    recovery = reports[0].recovery
    assert recovery is not None
    lost = recovery.plan.lost
    predicted = np.array([_predicted(report) for report in reports])
    return CrashedRun(first, predicted, 0 if lost is None else lost.tuples)


def _predicted(report: BatchReport) -> Floats:
    values: Floats = report.results.column("predicted").to_numpy()
    return values


def errors_after(run: CrashedRun, golden: Floats) -> Floats:
    """How far each prediction is from that of the run that never crashed."""
    return (run.predicted - golden[run.first :]).ravel()


def rmse(errors: Floats) -> float:
    return float(np.sqrt(np.mean(errors**2)))
