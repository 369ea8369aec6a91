"""What policies cost against how long a recovery takes, each with several settings.

How long the longest recovery takes is computed from what it would have to do, with rates that real
recoveries of the same policy have shown: one recovery alone would tell more about the machine's
mood.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bench.contest import Contest, Measured, Note
from bench.costs import Cost, cost_of, whole_cycles
from bench.recover_aside import common_rates
from bench.workloads import Workload
from trailmark.checkpoint.policy import (
    Continuous,
    CostBenefit,
    Delta,
    FullSnapshot,
    NoCheckpoint,
    Policy,
    SlowWindows,
)

NONE = "NoCheckpoint"
WITHIN = "Continuous.within"
SNAPSHOT = "FullSnapshot"
DELTA = "Delta"

#: Kinds that are compared at equal recovery time; batches between two snapshots, and objectives.
_COMPARED: dict[str, dict[str, Policy]] = {
    WITHIN: {f"{ms} ms": Continuous.within(f"{ms} ms") for ms in (250, 400, 600, 900, 1300)},
    SNAPSHOT: {f"every {k}": FullSnapshot(k) for k in (20, 40, 70, 110)},
    DELTA: {f"every {k}": Delta(k, full_every=3) for k in (10, 20, 40, 70)},
}
_OTHERS: dict[str, dict[str, Policy]] = {
    "FullSnapshot, asynchronous": {
        f"every {k}": FullSnapshot(k, asynchronous=True) for k in (20, 50, 110)
    },
    "Continuous(u=)": {
        f"{u / 1e6:g} million": Continuous(u=u) for u in (1_000_000, 3_000_000, 9_000_000)
    },
    "CostBenefit": {
        rate: CostBenefit(rate) for rate in ("1 per second", "1 per minute", "10 per hour")
    },
    "SlowWindows": {
        f"{ms} ms": SlowWindows(f"{ms} ms", f"{ms} ms", shots=4) for ms in (100, 300, 900)
    },
}

#: The state is lost and recovered after these batches, so that buckets know what that takes.
_RECOVERIES = (6, 12, 18)


@dataclass(frozen=True, slots=True)
class Point:
    """A policy with a setting, and what it costs.

    ``worst_s``: the longest recovery by rates; ``predicted_s``: by what the bucket itself had
    predicted; ``recovered_s``: a real one at the batch with that prediction, ``expected_s`` by
    rates.
    """

    kind: str
    setting: str
    extra_bytes: float
    extra_s: float
    noise_s: float
    longest_batch_s: float
    footprints: float
    bursts: int
    worst_s: float
    predicted_s: float
    recovered_s: float
    expected_s: float

    def describe(self) -> dict[str, Any]:
        return {
            name: value if isinstance(value, str | int) else float(f"{value:.6g}")
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True)
class Tradeoff:
    """All points of a workload, and what a batch takes without footprints."""

    workload: str
    batch_s: float
    batch_bytes: float
    points: tuple[Point, ...]

    def kind(self, kind: str) -> list[Point]:
        """The points of a policy, by recovery time."""
        return sorted((p for p in self.points if p.kind == kind), key=lambda p: p.worst_s)

    def at(self, kind: str, worst_s: float) -> Cost | None:
        """What a policy costs that is set to recover in such a time, between the settings that
        were measured; None outside of them."""
        points = self.kind(kind)
        at = [point.worst_s for point in points]
        if not points or not at[0] <= worst_s <= at[-1]:
            return None
        where = np.log(worst_s), np.log(at)
        size = np.interp(*where, np.log([max(1.0, point.extra_bytes) for point in points]))
        seconds = np.interp(*where, [point.extra_s for point in points])
        noise_s = max(point.noise_s for point in points)
        return Cost(float(np.exp(size)), float(seconds), noise_s)

    def describe(self) -> dict[str, Any]:
        return {
            "batch_s": round(self.batch_s, 6),
            "batch_bytes": round(self.batch_bytes),
            "points": [point.describe() for point in self.points],
        }


def measure_tradeoff(
    workload: Workload, batches: int, repetitions: int, root: Path, note: Note, *, all_kinds: bool
) -> Tradeoff:
    """Runs every setting of the policies that are compared, or of all."""
    kinds = _COMPARED | _OTHERS if all_kinds else _COMPARED
    policies: dict[str, Policy] = {NONE: NoCheckpoint()}
    policies |= {f"{kind}, {s}": p for kind, settings in kinds.items() for s, p in settings.items()}
    contest = Contest(workload, batches, repetitions, _RECOVERIES)
    measured = contest.run(policies, root, note)
    none = measured.pop(NONE)
    start = contest.counted_from
    points: list[Point] = []
    for kind, settings in kinds.items():
        found = {setting: measured[f"{kind}, {setting}"] for setting in settings}
        points += _points(kind, found, none, start)
    return Tradeoff(
        workload.name,
        float(none.fastest[start:].mean()),
        float(none.bytes[start:].mean()),
        tuple(points),
    )


def _points(
    kind: str, found: Mapping[str, Measured], none: Measured, start: int
) -> Iterable[Point]:
    recovered = [m.recovered for m in found.values() if m.recovered is not None]
    rates = common_rates(recovered)
    for setting, measured in found.items():
        cycles = whole_cycles(measured, none, start)
        if measured.recovered is None or cycles is None:
            continue
        cost = cost_of(measured, none, cycles)
        yield Point(
            kind,
            setting,
            extra_bytes=cost.bytes,
            extra_s=cost.seconds,
            noise_s=cost.noise_s,
            longest_batch_s=float(measured.fastest[cycles.batches].max()),
            footprints=float(measured.footprints[cycles.batches].mean()),
            bursts=cycles.bursts,
            worst_s=max(rates.predict_us(work) for work in measured.works[start:]) / 1e6,
            predicted_s=float(measured.predicted_us[start:].max()) / 1e6,
            recovered_s=measured.recovered.took_us / 1e6,
            expected_s=rates.predict_us(measured.recovered.work) / 1e6,
        )


def median_error(points: Iterable[Point]) -> float:
    """How far recoveries that really happened were from what the rates say."""
    return median(abs(p.expected_s - p.recovered_s) / p.recovered_s for p in points)
