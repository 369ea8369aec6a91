"""Batches on Spark with few and with many buckets, and tasks that do nothing at all."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from pyspark.sql import SparkSession

from bench.experiment import in_turn
from bench.spark import WORKLOADS, ours, run

#: What a batch has: so many buckets, and so many tuples in all of them together.
_FEW, _MANY = 1_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Point:
    buckets: int
    tuples: int


#: The slots of `local[2]` and of two workers with one core are two: these are 1 to 16 waves.
POINTS = tuple(Point(buckets, _FEW) for buckets in (2, 4, 8, 16, 32)) + tuple(
    Point(buckets, _MANY) for buckets in (2, 8)
)


def batch_times(spark: SparkSession, root: Path, rounds: int) -> list[dict[str, Any]]:
    """The median time of a batch at each point, in every round; the first does not count."""
    works = {each.tuples: replace(each, batches=10) for each in (WORKLOADS[-1], WORKLOADS[0])}
    for tuples, work in works.items():
        work.write(root / f"orders-{tuples}", seed=1)
    found = []
    points = {f"{point.buckets} {point.tuples}": point for point in POINTS}
    for turn, name, point in in_turn(points, rounds + 1):
        make = partial(ours, buckets=point.buckets)
        place = root / f"{turn} {name}"
        work = works[point.tuples]
        taken = run(spark, work, root / f"orders-{point.tuples}", place, make)
        if turn:
            shape = {"turn": turn, "buckets": point.buckets, "tuples": point.tuples}
            found.append({**shape, "ms": median(taken)})
    return found


def stage_times(spark: SparkSession, rounds: int) -> list[dict[str, Any]]:
    """How long a stage of tasks takes that have nothing to do, and no Python: what it takes to
    launch them and to hear that they are done."""
    found = []
    for turn, _, tasks in in_turn({str(n): n for n in (2, 250, 500, 1_000)}, rounds + 1):
        began = time.perf_counter()
        spark.range(0, tasks, 1, tasks).write.format("noop").mode("overwrite").save()
        if turn:
            found.append({"turn": turn, "tasks": tasks, "ms": 1e3 * (time.perf_counter() - began)})
    return found
