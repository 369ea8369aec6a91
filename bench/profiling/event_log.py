"""When the tasks of a micro-batch ran, from the event log that Spark keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class Task:
    """A task, and when it was launched and had finished, in milliseconds of the wall clock."""

    number: int
    launched: int
    finished: int

    @property
    def took_ms(self) -> int:
        return self.finished - self.launched


@dataclass(slots=True)
class Tasks:
    """The tasks of one batch: those that write the shuffle, and those that run Python."""

    before_shuffle: list[Task] = field(default_factory=list)
    after_shuffle: list[Task] = field(default_factory=list)


def settings(directory: Path) -> dict[str, str]:
    """What makes a session keep an event log in one file that can be read as text."""
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": directory.as_uri(),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
    }


def read_tasks(directory: Path) -> dict[tuple[str, int], Tasks]:
    """The tasks of every query's batches. The session must have been stopped."""
    batches: dict[int, tuple[str, int]] = {}
    found: dict[tuple[str, int], Tasks] = {}
    for event in _events(directory):
        if event["Event"] == "SparkListenerStageSubmitted":
            properties: Mapping[str, str] = event["Properties"]
            if _QUERY in properties:
                batch = (properties[_QUERY], int(properties[_BATCH]))
                batches[event["Stage Info"]["Stage ID"]] = batch
        elif event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in batches:
            tasks = found.setdefault(batches[event["Stage ID"]], Tasks())
            is_before = event["Task Type"] == "ShuffleMapTask"
            (tasks.before_shuffle if is_before else tasks.after_shuffle).append(_task(event))
    return found


def _events(directory: Path) -> Iterator[dict[str, Any]]:
    for path in directory.iterdir():
        with path.open() as lines:
            yield from map(json.loads, lines)


def _task(event: Mapping[str, Any]) -> Task:
    info = event["Task Info"]
    return Task(info["Task ID"], info["Launch Time"], info["Finish Time"])


def wall_ms(tasks: Sequence[Task]) -> int:
    """From the launch of the first one until the last one has finished."""
    return max(task.finished for task in tasks) - min(task.launched for task in tasks)
