"""How long batches and recoveries take, from what a batch and a task cost on a small machine.

    batch    = fixed + the longer of: launching all tasks, one after another on the driver
                                      waves x one task
    task     = fixed + its rows + the requests that it waits for, one after another
    recovery = waves x (fixed + its windows)

A wave is as many tasks as there are slots (cores of all hosts). What is left out grows, too: blocks
of the shuffle, of which there are as many as readers times buckets; hosts that are slower than
others; and what a store does when it is asked too much at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any

from bench.fit import fit_line
from bench.scaling import requests
from bench.scaling.requests import Shape

Times = Iterable[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Costs:
    """What was measured on a machine with ``slots``.

    Parameters
    ----------
    slots
        Tasks that it ran at a time.
    batch_ms
        A batch on Spark, whatever it has.
    launch_ms
        A task for the driver: to launch it, and to hear of its end. At most, for on one machine it
        is run there, too.
    task_ms
        A task with hardly any rows.
    row_ns
        A row, from its file to the state, on one core.
    recovery_ms, window_ns
        A recovery, and every window in it.
    listed_us
        A file when a directory is listed.
    """

    slots: int
    batch_ms: float
    launch_ms: float
    task_ms: float
    row_ns: float
    recovery_ms: float
    window_ns: float
    listed_us: float

    @classmethod
    def fitted(
        cls, slots: int, batches: Times, stages: Times, recoveries: Times, listings: Times
    ) -> Costs:
        """From measured times; each of them has what it is a time of."""
        batches, stages = list(batches), list(stages)
        recoveries, listings = list(recoveries), list(listings)
        few = min(each["tuples"] for each in batches)
        small = [each for each in batches if each["tuples"] == few]
        waves = fit_line([each["buckets"] / slots for each in small], _ms(small))
        rows = [
            (each["ms"] - waves.fixed - waves.slope * each["buckets"] / slots)
            / (each["tuples"] / slots)
            for each in batches
            if each["tuples"] != few
        ]
        recovery = fit_line([each["windows"] for each in recoveries], _ms(recoveries))
        return cls(
            slots,
            batch_ms=waves.fixed,
            launch_ms=fit_line([each["tasks"] for each in stages], _ms(stages)).slope,
            task_ms=waves.slope,
            row_ns=1e6 * sum(rows) / len(rows),
            recovery_ms=recovery.fixed,
            window_ns=1e6 * recovery.slope,
            listed_us=1e3 * fit_line([each["files"] for each in listings], _ms(listings)).slope,
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where a query runs: ``latency_ms`` is how long its storage takes to answer."""

    hosts: int
    cores: int
    latency_ms: float = 0.0

    @property
    def slots(self) -> int:
        return self.hosts * self.cores

    def waves(self, tasks: int) -> int:
        return ceil(tasks / self.slots)


def batch_ms(costs: Costs, cluster: Cluster, shape: Shape, tuples: int) -> float:
    """From a trigger to the commit."""
    launching = shape.buckets * costs.launch_ms
    running = cluster.waves(shape.buckets) * (
        costs.task_ms + cluster.latency_ms * requests.in_turn(shape)
    )
    rows = cluster.waves(shape.buckets) * tuples / shape.buckets * costs.row_ns / 1e6
    # The first tasks wait for it; the others find it.
    watermark = 0.0
    if shape.has_event_time:
        watermark = cluster.latency_ms * (requests.rounds_of_footers(shape) + 2)
    return costs.batch_ms + max(launching, running + rows + watermark)


def follow_ms(cluster: Cluster, shape: Shape) -> float:
    """How long a listener takes for a batch, beside the next one."""
    return cluster.latency_ms * (requests.rounds_of_footers(shape) + 2)


def lost_host_ms(costs: Costs, cluster: Cluster, shape: Shape, windows: int) -> float:
    """How long the batch after a host was lost takes beyond others: its buckets recover on the
    hosts that are left, all windows from footprints."""
    assert cluster.hosts > 1
    lost = ceil(shape.buckets / cluster.hosts)
    left = Cluster(cluster.hosts - 1, cluster.cores)
    each = costs.recovery_ms + windows / shape.buckets * costs.window_ns / 1e6
    return left.waves(lost) * each


def listing_ms(costs: Costs, cluster: Cluster, files: int) -> float:
    """How long it takes to list a directory: by pages of a store, or from a disk."""
    if cluster.latency_ms:
        return cluster.latency_ms * requests.pages(files)
    return costs.listed_us * files / 1e3


def fastest_buckets(
    costs: Costs, cluster: Cluster, tuples: int, *, has_event_time: bool, most: int = 1_000
) -> int:
    """With how many buckets a batch takes least."""

    def taken(buckets: int) -> float:
        return batch_ms(costs, cluster, Shape(buckets, has_event_time), tuples)

    return min(range(1, most + 1), key=taken)


def _ms(times: Times) -> list[float]:
    return [each["ms"] for each in times]
