"""Divides the time of a batch into its parts; they add up to it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.profiling import parts
from bench.profiling.event_log import Task, Tasks, wall_ms


@dataclass(frozen=True, slots=True)
class Trace:
    """What a worker left of a task: when its function began, and the seconds of each part.

    ``in_background``: what other threads did meanwhile; only where the task waited for it, it is in
    the parts too.
    """

    task: int
    began: float
    seconds: float
    parts: Mapping[str, float]
    in_background: Mapping[str, float]


def read_traces(directory: Path) -> dict[int, Trace]:
    """The traces of all tasks, by task."""
    found = [Trace(**json.loads(path.read_text())) for path in directory.iterdir()]
    return {trace.task: trace for trace in found}


def divide(
    durations: Mapping[str, int], tasks: Tasks, traces: Mapping[int, Trace]
) -> dict[str, Any]:
    """Milliseconds of each part of a batch, from Spark's ``durationMs``, its tasks and traces.

    Buckets work side by side. The parts of their tasks are the mean over the buckets; what the
    stage took beyond their mean is waiting for the slower one.
    """
    total, execution = durations["triggerExecution"], durations["addBatch"]
    shuffle, stage = wall_ms(tasks.before_shuffle), wall_ms(tasks.after_shuffle)
    found = {
        parts.FIND: sum(
            durations[name] for name in ("latestOffset", "getBatch", "walCommit", "commitOffsets")
        ),
        parts.PLAN: durations["queryPlanning"],
        parts.SCHEDULE: execution - shuffle - stage,
        parts.SHUFFLE: shuffle,
        **_mean([_of_task(task, traces[task.number]) for task in tasks.after_shuffle]),
        parts.SLOWER: stage - fmean(task.took_ms for task in tasks.after_shuffle),
    }
    found[parts.SPARK_OTHER] = total - sum(found.values())
    beside = [traces[task.number].in_background for task in tasks.after_shuffle]
    return {
        "total_ms": total,
        **{name: found.get(name, 0.0) for name in parts.ALL},
        "in_background_ms": 1e3 * fmean(sum(seconds.values()) for seconds in beside),
    }


def _of_task(task: Task, trace: Trace) -> dict[str, float]:
    """Milliseconds of each part of a task, until it has finished."""
    start = 1e3 * trace.began - task.launched
    found = {name: 1e3 * seconds for name, seconds in trace.parts.items()}
    end = task.took_ms - start - 1e3 * trace.seconds
    return {parts.TASK_START: start, **found, parts.TASK_END: end}


def _mean(tasks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = {name for task in tasks for name in task}
    return {name: fmean(task.get(name, 0.0) for task in tasks) for name in names}
