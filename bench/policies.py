"""What policies cost and what recoveries they give: one core, ratios within one run.

Prints one line per figure: name, value, limit, ok or short. Exit code 1 if any is short. Leaves all
numbers in docs/pictures/policies.json, and draws the pictures of docs/recovery.md from them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import platform
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench import policy_pictures
from bench.contest import Contest
from bench.crashes import Crashes, crash_often
from bench.figures import Figure, Report
from bench.one_core import one_core
from bench.tradeoff import DELTA, SNAPSHOT, WITHIN, Tradeoff, measure_tradeoff, median_error
from bench.workloads import MIXED, SKEWED, UNIFORM, WORKLOADS
from trailmark.checkpoint.policy import Continuous, NoCheckpoint, Policy
from trailmark.settings import parse_duration

#: What a user would write.
OBJECTIVE = "2 seconds"
#: Shorter, so that crashes come near to it in a few minutes.
CRASH_OBJECTIVE = "1 second"
#: Recovery times at which policies are compared, in seconds.
TARGETS_S = (0.25, 0.5)
_SECTIONS = ("overhead", "tradeoff", "crashes")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    overhead_batches: int = 720
    overhead_repetitions: int = 4
    tradeoff_batches: int = 310
    tradeoff_repetitions: int = 3
    crashes: int = 200


QUICK = Sizes(120, 2, 60, 2, 9)


def overhead(report: Report, root: Path, sizes: Sizes) -> dict[str, Any]:
    """`Continuous.within` against no footprints at all, on uniform orders."""
    contest = Contest(UNIFORM, sizes.overhead_batches, sizes.overhead_repetitions)
    policies: dict[str, Policy] = {"none": NoCheckpoint(), "within": Continuous.within(OBJECTIVE)}
    found = contest.run(policies, root, report.note)
    within, none, start = found["within"], found["none"], contest.counted_from
    rounds = start + np.flatnonzero(within.footprints[start:])
    ratio = within.total(start) / none.total(start)
    report.add(Figure("uniform: time, Continuous.within / NoCheckpoint", ratio, "x", 1.03))
    kept = [m.fastest[start:].sum() for m in (within, none)]
    report.add(Figure("  without the removal of old files", kept[0] / kept[1], "x"))
    computed = [m.processor[:, start:].min(axis=0).sum() for m in (within, none)]
    report.add(Figure("  the same in processor time", computed[0] / computed[1], "x"))
    report.add(Figure("  rounds of footprints in it", len(rounds), "", 2, "at least"))
    size = (within.bytes - none.bytes)[start:].sum() / none.bytes[start:].sum()
    report.add(Figure("  output bytes beyond NoCheckpoint's", 100 * size, "%"))
    pauses = 1e3 * (within.fastest - none.fastest)[rounds]
    report.add(Figure("  longest pause for a round", pauses.max(initial=0.0), "ms"))
    return {
        "objective": OBJECTIVE,
        "batches": contest.batches,
        "repetitions": contest.repetitions,
        "counted_from": start,
        "ratio": round(float(ratio), 4),
        "rounds": rounds.tolist(),
        "footprints": within.footprints[rounds].tolist(),
        "batch_ms": {name: _milliseconds(m.seconds) for name, m in found.items()},
        "beside_ms": {name: _milliseconds(m.beside) for name, m in found.items()},
    }


def _milliseconds(seconds: np.ndarray[Any, np.dtype[np.float64]]) -> list[list[float]]:
    rounded: list[list[float]] = (1e3 * seconds).round(3).tolist()
    return rounded


def tradeoff(report: Report, root: Path, sizes: Sizes) -> dict[str, Any]:
    """Cost against recovery time; `Continuous` against snapshots at equal recovery time."""
    described: dict[str, Any] = {
        "targets_s": TARGETS_S,
        "batches": sizes.tradeoff_batches,
        "repetitions": sizes.tradeoff_repetitions,
    }
    for workload in (SKEWED, MIXED):
        found = measure_tradeoff(
            workload,
            sizes.tradeoff_batches,
            sizes.tradeoff_repetitions,
            root,
            report.note,
            all_kinds=workload is MIXED,
        )
        described[workload.name] = found.describe()
        for target_s in TARGETS_S:
            _compare(report, found, target_s)
        error = median_error(found.points)
        report.add(Figure(f"{workload.name}: real recovery, off by", 100 * error, "%"))
    return described


def _compare(report: Report, found: Tradeoff, target_s: float) -> None:
    """Bytes and time of `Continuous` as parts of those of the best snapshots."""
    name = f"{found.workload}, {1e3 * target_s:.0f} ms"
    ours = found.at(WITHIN, target_s)
    theirs = [cost for kind in (SNAPSHOT, DELTA) if (cost := found.at(kind, target_s)) is not None]
    sizes = seconds = math.inf
    if ours is None or not theirs:
        report.note(f"{name}: no settings around it were measured")
    else:
        sizes = ours.bytes / min(cost.bytes for cost in theirs)
        best = min(theirs, key=lambda cost: cost.seconds)
        if ours.seconds > 2 * ours.noise_s and best.seconds > 2 * best.noise_s:
            seconds = ours.seconds / best.seconds
        else:
            report.note(f"{name}: the machine is too busy to tell the times apart")
    report.add(Figure(f"{name}: bytes, Continuous / best snapshots", sizes, "x"))
    report.add(Figure(f"{name}: time, Continuous / best snapshots", seconds, "x"))
    report.add(Figure(f"{name}: the smaller of the two", min(sizes, seconds), "x", 0.5))


def crashes(report: Report, root: Path, sizes: Sizes, seed: int) -> dict[str, Any]:
    """Random kills of a process, a third of them under each workload."""
    report.note(f"crashes with seed {seed}")
    rng = np.random.default_rng(seed)
    kills = [len(part) for part in np.array_split(np.arange(sizes.crashes), len(WORKLOADS))]
    found = [
        crash_often(workload, CRASH_OBJECTIVE, count, rng, root, report.note)
        for workload, count in zip(WORKLOADS.values(), kills, strict=True)
    ]
    _judge(report, found)
    return {
        "objective_s": parse_duration(CRASH_OBJECTIVE) / 1e6,
        "seed": seed,
        "workloads": [of_workload.describe() for of_workload in found],
    }


def _judge(report: Report, found: list[Crashes]) -> None:
    objective_s = parse_duration(CRASH_OBJECTIVE) / 1e6
    recoveries = [recovery for crashes in found for recovery in crashes.recoveries]
    took = np.array([recovery.took_s for recovery in recoveries])
    predicted = np.array([recovery.predicted_s for recovery in recoveries])
    report.add(Figure("crashes", sum(crashes.kills for crashes in found), ""))
    report.add(Figure("  recoveries that were not killed themselves", len(took), ""))
    share = 100 * float((took <= objective_s).mean())
    report.add(Figure("recoveries within the objective", share, "%", 99, "at least"))
    report.add(Figure("longest recovery / objective", took.max() / objective_s, "x", 2))
    error = float(np.median(np.abs(predicted - took) / took))
    report.add(Figure("prediction off by, median", error, "", 0.3))
    for part in (10, 50, 90):
        value = 1e3 * float(np.percentile(took, part))
        report.add(Figure(f"  recovery time, {part} % are shorter than", value, "ms"))
    for of_workload in found:
        own = np.array([r.took_s for r in of_workload.recoveries])
        ahead = np.array([r.predicted_s for r in of_workload.recoveries])
        bias = float(np.median((ahead - own) / own))
        report.add(Figure(f"  {of_workload.workload}: prediction above real, median", bias, ""))
        report.add(Figure(f"  {of_workload.workload}: longest", 1e3 * own.max(), "ms"))


def _machine() -> dict[str, Any]:
    """What figures depend on, and nothing that tells where they were taken."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "used": 1,
        "system": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pyarrow": pa.__version__,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.policies", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it out")
    parser.add_argument("--only", choices=_SECTIONS, action="append", help="a part of it")
    parser.add_argument("--crashes", type=int, help="how many (200)")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**32, help="of the crashes")
    parser.add_argument("--out", type=Path, help="where pictures and numbers go")
    arguments = parser.parse_args()
    sizes = QUICK if arguments.quick else Sizes()
    if arguments.crashes:
        sizes = dataclasses.replace(sizes, crashes=arguments.crashes)
    out = arguments.out or Path(".bench/policies" if arguments.quick else "docs/pictures")
    found: dict[str, Any] = {"machine": _machine()}
    report = Report()
    with one_core(), tempfile.TemporaryDirectory(prefix="trailmark-bench-") as folder:
        for section in arguments.only or _SECTIONS:
            began, before = time.monotonic(), len(report.figures)
            found[section] = _measure(section, report, Path(folder), sizes, arguments.seed)
            took_s = round(time.monotonic() - began)
            report.note(f"{section} took {took_s} s")
            figures = [_describe(figure) for figure in report.figures[before:]]
            found[section] |= {"took_s": took_s, "figures": figures}
            _write(out, found)
    policy_pictures.draw_all(out)
    return report.exit_code


def _measure(section: str, report: Report, root: Path, sizes: Sizes, seed: int) -> dict[str, Any]:
    if section == "overhead":
        return overhead(report, root, sizes)
    if section == "tradeoff":
        return tradeoff(report, root, sizes)
    return crashes(report, root, sizes, seed)


def _describe(figure: Figure) -> dict[str, Any]:
    value = round(float(figure.value), 4) if math.isfinite(figure.value) else None
    return dataclasses.asdict(figure) | {"value": value, "is_short": bool(figure.is_short)}


def _write(out: Path, found: dict[str, Any]) -> None:
    """Parts that were not measured now stay as they are."""
    out.mkdir(parents=True, exist_ok=True)
    path = out / policy_pictures.NUMBERS
    before = json.loads(path.read_text()) if path.exists() else {}
    lines = [f"{json.dumps(name)}: {json.dumps(part)}" for name, part in (before | found).items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
